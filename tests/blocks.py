"""A small instance and small inputs for every block, what is checked of it, exceptions.

`test_blocks.py` sweeps over all of this; `docs/make_blocks.py` makes a page of it. What a block is
made from follows from the names of its parameters, its inputs from the shapes in the signature of
`forward`, and what cannot be guessed stands in `MADE` and `GIVEN`.
"""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from everynet import zoo
from everynet.recipes import catalog

BATCH = 3
SIZES: dict[str, Any] = {
    **{"input_size": 3, "hidden_size": 4, "output_size": 2, "latent_size": 2, "embedding_size": 3},
    **{"in_channels": 2, "out_channels": 4, "channels": 2, "classes": 3, "width": 4, "hidden": 4},
    **{"vocabulary": 7, "embedding": 3, "size": 4, "units": 4, "symbols": 3, "longest": 5},
    **{"outputs": 3, "answers": 2, "context": 5, "source": 6, "target": 7, "dropout": 0.0},
    **{"widths": (4, 5), "sizes": (6, 70, 3), "steps": 5, "word_dropout": 0.0, "one": 2},
    **{"three": (2, 3), "five": (2, 3), "pool": 2, "activation": "tanh", "unit": 1.0, "layers": 2},
    **{"middle": 1, "padding": 1, "pools": True, "stride": 2, "height": 6, "actions": 3},
    **{"capacity": 6, "state_size": 3, "lanes": 2, "depth": 2, "nets": BATCH, "filters": 2},
    **{"heads": 2, "feedforward_size": 5, "radius": 1, "query_size": 3, "key_size": 2},
}
"""What a constructor is given, by the name of the parameter."""
AXES = {
    **{"batch": BATCH, "rows": BATCH, "nets": BATCH, "tokens": BATCH, "count": BATCH},
    **{"time": 5, "inputs": 5, "context": 5, "source": 5, "target": 4, "input": 3, "hidden": 4},
    **{"units": 4, "both": 4, "latent": 2, "channels": 2, "height": 8, "width": 8, "points": 5},
    **{"samples": 200, "features": 2},
    **{"*shape": BATCH, "...": 6, "*batch": BATCH, "queries": 4, "keys": 5, "query": 3, "key": 2},
    **{"voices": 3},
}
"""The length of an axis of an input, by its name; other axes are numbers."""


def _unit() -> Any:
    return catalog.module_of("zoo/spiking/surrogate.py").Unit(0.7, "arctan", 1.5)


def _log_mel() -> nn.Module:
    from everynet.nn.log_mel import LogMel

    return LogMel(1000, 32, 16, 6)


def _losses() -> nn.Module:
    from everynet.nn.layer_outputs import LayerOutputs

    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Softplus(), nn.Conv2d(4, 4, 3), nn.Softplus())
    features = LayerOutputs(net, ["1", "3"], [0.5] * 3, [0.2] * 3)
    return zoo.PictureLosses(features, torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8))


def _woken(net: nn.Module) -> nn.Module:
    """The network with the weights drawn that begin at 0, where it computes nothing yet."""
    for weight in net.parameters():
        nn.init.normal_(weight, std=0.3)
    return net


_TRANSFORMER: dict[str, typing.Any] = {
    "hidden_size": 4, "heads": 2, "feedforward_size": 5, "layers": 1, "dropout": 0.0, "context": 8,
}  # fmt: skip

MADE: dict[str, Callable[[], nn.Module]] = {
    "AblationCNN": lambda: zoo.AblationCNN((2, 8, 8), 3, width=4, activation="tanh"),
    "Adder": lambda: zoo.Adder(zoo.GRU(2, 4), 4),
    "AlexNet": lambda: zoo.AlexNet(2, 3, width=3, size=67, dropout=0.0),
    "Autoencoder": lambda: zoo.Autoencoder((6, 5, 3)),
    "AuxiliaryHead": lambda: zoo.AuxiliaryHead(2, 3, 4, 14),
    "Backward": lambda: zoo.Backward(zoo.LSTM(3, 4)),
    "BandEnergies": lambda: zoo.BandEnergies(2, 2),
    "BERT": lambda: zoo.BERT(7, **_TRANSFORMER),
    "BERTClassifier": lambda: zoo.BERTClassifier(7, 3, **_TRANSFORMER),
    "BernoulliDecoder": lambda: zoo.BernoulliDecoder(nn.Linear(2, 6)),
    "BiasFreeNetwork": lambda: zoo.BiasFreeNetwork((3, 4, 2), "tanh"),
    "BlockReader": lambda: zoo.BlockReader(7, 4, [zoo.MinGRUBlock(4, zoo.ConvolvedMinGRU(4))]),
    "BoltzmannMachine": lambda: zoo.BoltzmannMachine(5, 4),
    "BothWays": lambda: zoo.BothWays(zoo.LSTM(3, 4), zoo.LSTM(3, 4)),
    "CifarResNet": lambda: zoo.CifarResNet(2, 3, depth=8, width=4),
    "Diffusion": lambda: zoo.Diffusion(
        zoo.NoiseMLP(6, 4, 1, 5), zoo.NoiseSchedule(torch.full((5,), 0.1).double())
    ),
    "ConvDiscriminator": lambda: zoo.ConvDiscriminator(3, (1, 8, 8)),
    "ConvGAN": lambda: zoo.ConvGAN(2, 3, (1, 8, 8)),
    "ConvGenerator": lambda: zoo.ConvGenerator(2, 3, (1, 8, 8)),
    "Dropout": lambda: zoo.Dropout(0.5),
    "ExactNoise": lambda: zoo.ExactNoise(
        torch.eye(3, 2), torch.eye(2), zoo.NoiseSchedule(torch.full((5,), 0.1).double())
    ),
    "FBPConvNet": lambda: zoo.FBPConvNet(
        zoo.UNet(1, 1, width=2, depth=1), gain=[1.0], offset=[0.0], peak=1.0
    ),
    "DilatedLayer": lambda: zoo.DilatedLayer(2, 3, 2),
    "GaussianDecoder": lambda: zoo.GaussianDecoder(nn.Linear(2, 6), 0.5),
    "GoogLeNet": lambda: zoo.GoogLeNet(2, 3, width=8, size=65, dropout=0.0),
    "GroupBlock": lambda: zoo.GroupBlock(zoo.Lifting(2, 4), 4, pools=True),
    "LeakyUnits": lambda: zoo.LeakyUnits([2.0, 3.0, 4.0, 8.0]),
    "LogMel": _log_mel,
    "LogBilinear": lambda: zoo.LogBilinear(torch.tensor([5, 3, 2, 1]), 3),
    "MinGRUBlock": lambda: zoo.MinGRUBlock(4, zoo.MinGRU(4, 4)),
    "MLP": lambda: zoo.MLP((6, 5, 3), "tanh"),
    "MaskedConv2d": lambda: zoo.MaskedConv2d(2, 3, torch.tensor([[True, True, False]])),
    "NaiveInception": lambda: zoo.NaiveInception(2, 2, 3, 3),
    "NeuralTuringMachine": lambda: zoo.NeuralTuringMachine(
        3, 2, zoo.LSTMController, 4, rows=4, width=3, read_heads=2, write_heads=2
    ),
    "NoiseMLP": lambda: zoo.NoiseMLP(2, 4, 1, 5),
    "NoiseSchedule": lambda: zoo.NoiseSchedule(torch.full((5,), 0.1).double()),
    "NoiseUNet": lambda: _woken(zoo.NoiseUNet(2, (2, 4), noise_steps=5, classes=3, blocks=1)),
    "OnPixels": lambda: zoo.OnPixels(
        nn.Sequential(nn.Flatten(), nn.Linear(32, 3)), [0.5, 0.4], [0.2, 0.3]
    ),
    "NoteLSTM": lambda: zoo.NoteLSTM(3, 4),
    "Onward": lambda: zoo.Onward(zoo.LSTM(3, 4)),
    "OriginalUNet": lambda: zoo.OriginalUNet(2, 3, width=2, depth=1),
    "PatchNet": lambda: zoo.PatchNet(2, 3, sizes=[(4, 1), (5, 1)]),
    "Picture": lambda: zoo.Picture(torch.rand(1, 3, 8, 8), _losses),
    "PersistentChains": lambda: zoo.PersistentChains(torch.zeros(2, 5)),
    "PhotoVGG": lambda: zoo.PhotoVGG(2, 3, width=2),
    "PictureLosses": _losses,
    "PixelAttention": lambda: _woken(zoo.PixelAttention(2)),
    "PlainNet": lambda: zoo.PlainNet(2, 3, depth=8, width=4),
    "Playing": lambda: zoo.Playing(zoo.QNetwork(6, 6, 3, 4), torch.zeros(2, 3).int(), 6),
    "PoissonNetwork": lambda: zoo.PoissonNetwork(
        (6, 70, 3), 5, _unit(), spec={"mean": [0.5], "std": [0.25]}
    ),
    "PretrainingBERT": lambda: zoo.PretrainingBERT(7, **_TRANSFORMER),
    "PreNormTransformer": lambda: zoo.PreNormTransformer(7, **_TRANSFORMER),
    "QNetwork": lambda: zoo.QNetwork(6, 6, 3, 4),
    "RateNetwork": lambda: zoo.RateNetwork(6, 4, 3, zoo.LIF(), gamma=0.5),
    "Reader": lambda: zoo.Reader(7, 4, [zoo.LSTM(4, 4), zoo.LSTM(4, 4)]),
    "RecurrentNetwork": lambda: zoo.RecurrentNetwork((6, 5, 3), 5, _unit()),
    "RecurrentStack": lambda: zoo.RecurrentStack([zoo.Onward(zoo.LSTM(3, 4))]),
    "Regressor": lambda: zoo.Regressor((6, 5, 3), "tanh", 2.0),
    "Rememberer": lambda: zoo.Rememberer(zoo.GRU(3, 4), 4, 3, 2),
    "ResidualReader": lambda: zoo.ResidualReader(7, 4, [zoo.LSTM(4, 4), zoo.LSTM(4, 4)]),
    "ResNet": lambda: zoo.ResNet(2, 3, depth=18, width=4),
    "SampledLogBilinear": lambda: zoo.SampledLogBilinear(torch.tensor([5, 3, 2, 1]), 3, 2),
    "SentenceDiscriminator": lambda: zoo.SentenceDiscriminator(torch.rand(7), 4),
    "SentenceReader": lambda: zoo.SentenceReader(
        nn.Embedding(7, 3),
        zoo.BothWays(zoo.LSTM(3, 4), zoo.LSTM(3, 4)),
        zoo.LargestState(),
        nn.Linear(8, 3),
        0.0,
    ),
    "Shallow": lambda: zoo.Shallow(BATCH, 4, torch.tanh),
    "SmallAlexNet": lambda: zoo.SmallAlexNet(2, 3, width=3, size=16, dropout=0.0),
    "SmallCNN": lambda: zoo.SmallCNN(2, 3, size=16, dropout=0.0),
    "SmallVGG": lambda: zoo.SmallVGG(2, 3, depth=11, width=2, dropout=0.0),
    "SparseAutoencoder": lambda: zoo.SparseAutoencoder(3, 4, nn.Sigmoid()),
    "StateQNetwork": lambda: zoo.StateQNetwork(3, 4, 2, 5.0),
    "SoundCNN": lambda: zoo.SoundCNN(3, rate=1000, mels=8, width=2, dropout=0.0),
    "SpeechNet": lambda: zoo.SpeechNet(3, rate=1000, mels=6, hidden_size=4, layers=2, dropout=0.0),
    "SpikingNetwork": lambda: zoo.SpikingNetwork((6, 70, 70, 3), 5, _unit()),
    "TableConv": lambda: zoo.TableConv(((0,), (0, 1)), 3),
    "Tagger": lambda: zoo.Tagger(7, 3, zoo.RecurrentStack([zoo.Onward(zoo.LSTM(3, 4))]), 4),
    "TextCNN": lambda: zoo.TextCNN(
        zoo.Words(7, 3, 0.0, 0.0), 3, widths=(2, 3), filters=2, dropout=0.0
    ),
    "TimeBlock": lambda: _woken(zoo.TimeBlock(2, 4, 4, attends=True, dropout=0.0)),
    "Transformer": lambda: zoo.Transformer(7, **_TRANSFORMER),
    "TiedAutoencoder": lambda: zoo.TiedAutoencoder((6, 5, 3)),
    "TiedReader": lambda: zoo.TiedReader(7, 4, [zoo.LSTM(4, 4)]),
    "UNet": lambda: zoo.UNet(2, 3, width=2, depth=1),
    "UNetWithoutNorm": lambda: zoo.UNetWithoutNorm(2, 3, width=2, depth=1),
    "VAE": lambda: zoo.VAE(nn.Linear(6, 4), zoo.BernoulliDecoder(nn.Linear(2, 6))),
    "VGG": lambda: zoo.VGG(2, 3, depth=11, width=2, dropout=0.0),
    "ViT": lambda: zoo.ViT(
        2, 3, size=(8, 8), patch=4, hidden_size=4, heads=2, feedforward_size=5, layers=1
    ),
    "WaveNet": lambda: zoo.WaveNet(3, 4, layers=2, levels=5),
}
"""Blocks whose sizes have meanings of their own."""
GIVEN: dict[str, tuple[tuple[int, ...], ...]] = {
    "AlexNet": ((BATCH, 2, 67, 67),),
    "Autoencoder": ((BATCH, 6),),
    "AuxiliaryHead": ((BATCH, 2, 14, 14),),
    "BoltzmannMachine": ((BATCH, 5),),
    "ConvDiscriminator": ((BATCH, 1, 8, 8),),
    "FBPConvNet": ((BATCH, 1, 8, 8),),
    "GoogLeNet": ((BATCH, 2, 65, 65),),
    "GroupBlock": ((BATCH, 2, 8, 8),),
    "GroupConv": ((BATCH, 2, 4, 8, 8),),
    "LayerwiseNet": ((BATCH, 3),),
    "Middle": ((BATCH, 4, 8, 8),),
    "MinGRUStack": ((BATCH, 5, 3),),
    "MemoryGateLSTM": ((BATCH, 5, 3),),
    "OnPixels": ((BATCH, 2, 4, 4),),
    "PeepholeLSTM": ((BATCH, 5, 3),),
    "PhotoVGG": ((BATCH, 2, 16, 16),),
    "PictureLosses": ((1, 3, 8, 8),),
    "QNetwork": ((BATCH, 1, 6, 6),),
    "ResetAfterGRU": ((BATCH, 5, 3),),
    "SmallAlexNet": ((BATCH, 2, 16, 16),),
    "SmallCNN": ((BATCH, 2, 16, 16),),
    "SmallGoogLeNet": ((BATCH, 2, 32, 32),),
    "SmallXception": ((BATCH, 2, 16, 16),),
    "SparseAutoencoder": ((BATCH, 3),),
    "StateQNetwork": ((BATCH, 3),),
    "TiedAutoencoder": ((BATCH, 6),),
    "VAE": ((BATCH, 6),),
    "VGG": ((BATCH, 2, 224, 224),),
    "SmallVGG": ((BATCH, 2, 32, 32),),
    "Xception": ((BATCH, 2, 64, 64),),
    "OriginalUNet": ((BATCH, 2, 24, 24),),
}
"""Shapes of inputs that the signature does not tell."""
SEEDS = {"Halving": 2}
"""Where two pixels of a pool are as good as equal with the usual seed, so that differences jump."""


SHARED = {
    "AdditiveScore": "nn/attention.py",
    "LogMel": "nn/log_mel.py",
    **dict.fromkeys(("MultiHeadAttention", "WindowedAttention"), "nn/attention.py"),
    **dict.fromkeys(("LearnedPositions", "SinusoidalPositions"), "nn/positions.py"),
    **dict.fromkeys(("DecoderLayer", "EncoderLayer", "FeedForward"), "nn/transformer.py"),
    **dict.fromkeys(("PreNormDecoderLayer", "PreNormEncoderLayer"), "nn/transformer.py"),
}
"""Blocks of `everynet.nn` with a file of the sweep's own, and where they stand."""


def files() -> dict[str, str]:
    """Every block of the zoo and those that families share, with its file."""
    return dict(sorted({**catalog.blocks(), **SHARED}.items()))


def block(name: str) -> type:
    """That class; only its file is imported."""
    found: type = getattr(catalog.module_of(files()[name]), name)
    return found


def networks() -> list[str]:
    """The blocks that are modules of torch, without importing any."""
    others = set().union(*NOT_NETWORKS.values())
    return [name for name in files() if name not in others]


@cache
def make(name: str, seed: int = 0) -> nn.Module:
    """A small instance in float64, in eval mode: nothing is dropped, and norms are fixed."""
    torch.manual_seed(seed)
    cls = block(name)
    if name in MADE:
        return MADE[name]().double().eval()
    wanted = inspect.signature(cls.__init__).parameters.values()
    empty = inspect.Parameter.empty
    given = {p.name: SIZES[p.name] for p in wanted if p.name in SIZES and p.default in (empty, 0.5)}
    made: nn.Module = cls(**given).double().eval()
    return made


def draw(name: str, batch: int = BATCH) -> tuple[Any, ...]:
    """Inputs for it in float64, or whole numbers."""
    torch.manual_seed(SEEDS.get(name, 1))
    if name in GIVEN:
        shapes = GIVEN[name]
        return tuple(torch.randn(batch if s[0] == BATCH else 1, *s[1:]).double() for s in shapes)
    inputs: list[Any] = []
    for parameter, hint in _signature(name).items():
        if hint is int:
            inputs.append(1 if name.endswith("One") else 5)
            continue
        shape = [AXES.get(axis, 0) or int(axis) for axis in hint.dim_str.split()]
        shape[0] = batch if shape[0] == BATCH else shape[0]
        if "int64" not in str(hint.dtypes):
            inputs.append(torch.randn(shape).double())
        elif parameter == "lengths":
            inputs.append(torch.tensor([5, 3, 4, 5, 2][:batch]))
        else:
            inputs.append(torch.randint(1, 4, shape))  # 0 may be padding, which has no gradient
    return tuple(inputs)


@cache
def _signature(name: str) -> dict[str, Any]:
    """The type of each input that has no default."""
    forward = block(name).forward
    hints = typing.get_type_hints(inspect.unwrap(forward))
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    needed = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    alone = {n: next(iter(typing.get_args(hints[n])), hints[n]) for n in needed}  # or None
    return alone


def outputs(net: nn.Module, inputs: tuple[Any, ...]) -> list[Tensor]:
    """All that a block gives, one after another."""
    return [part for part in tree_leaves(net(*inputs)) if isinstance(part, Tensor)]


# ------------------------------------------------------------------------------------- the checks


def float64(name: str) -> None:
    """Float64 in, float64 out."""
    made = outputs(make(name), draw(name))
    assert made
    assert all(part.dtype == torch.float64 for part in made)
    assert all(part.isfinite().all() for part in made)


def _by_leaves(name: str) -> tuple[Callable[..., Any], list[Tensor]]:
    """The block as a function of its real inputs and of all its parameters in one, and these."""
    net, inputs = make(name), draw(name)
    params = {n: p.detach() for n, p in net.named_parameters() if p.requires_grad}
    real = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.is_floating_point()]

    def call(*leaves: Tensor) -> tuple[Tensor, ...]:
        given = list(inputs)
        for i, leaf in zip(real, leaves, strict=False):
            given[i] = leaf
        parts = leaves[-1].split([p.numel() for p in params.values()]) if params else ()
        named = {n: part.view_as(p) for part, (n, p) in zip(parts, params.items(), strict=True)}
        torch.manual_seed(3)
        found = tree_leaves(functional_call(net, named, tuple(given)))
        return tuple(part for part in found if isinstance(part, Tensor) and part.requires_grad)

    leaves = [inputs[i] for i in real]
    if params:
        leaves.append(torch.cat([p.flatten() for p in params.values()]))
    return call, [leaf.clone().requires_grad_() for leaf in leaves]


def gradcheck(name: str) -> None:
    """The gradient against differences."""
    call, leaves = _by_leaves(name)
    torch.manual_seed(2)
    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)


def gradgradcheck(name: str) -> None:
    """The gradient of the gradient against differences."""
    call, leaves = _by_leaves(name)
    torch.manual_seed(2)
    assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True, atol=1e-4)


class WithoutKinks(TorchFunctionMode):
    """Softplus in the place of ReLU and mean pooling in that of maximum pooling."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func is functional.max_pool2d:
            return functional.avg_pool2d(*args, stride=kwargs["stride"], padding=kwargs["padding"])
        if func.__name__ in ("relu", "relu_"):
            return functional.softplus(args[0])
        return func(*args, **(kwargs or {}))


def state_dict(name: str) -> None:
    """A second instance with the state of the first computes the same."""
    first, second = make(name), make.__wrapped__(name, seed=5)
    second.load_state_dict(first.state_dict())
    assert _same(first, second, name)


def deepcopy(name: str) -> None:
    """A copy computes the same and shares no memory."""
    first = make(name)
    second = copy.deepcopy(first)
    assert _same(first, second, name)
    places = [{p.data_ptr() for p in net.parameters()} - {0} for net in (first, second)]
    assert not places[0] & places[1]


def _same(first: nn.Module, second: nn.Module, name: str) -> bool:
    if name in NO_FORWARD:
        pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
        return all(torch.equal(one, two) for one, two in pairs)
    made = []
    for net in (first, second):
        inputs = draw(name)
        torch.manual_seed(3)
        made.append(outputs(net, inputs))
    return all(torch.equal(one, two) for one, two in zip(*made, strict=True))


def meta(name: str) -> None:
    """Without memory it gives tensors of the same shapes."""
    net = copy.deepcopy(make(name))
    if name in NO_FORWARD:
        assert all(part.is_meta for part in net.to("meta").state_dict().values())
        return
    inputs = draw(name)
    shapes = [part.shape for part in outputs(net, inputs)]
    bare = tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, inputs)
    made = outputs(net.to("meta"), bare)
    assert [part.shape for part in made] == shapes
    assert all(part.is_meta for part in made)


def compile(name: str, backend: str = "eager") -> None:
    """One whole graph, which computes the same, and whose gradients are the same."""
    torch._dynamo.reset()
    net, inputs = make(name), draw(name)
    compiled = torch.compile(net, fullgraph=True, backend=backend)
    close = {"rtol": 1e-9, "atol": 1e-9}
    made = []
    for form in (compiled, net):
        torch.manual_seed(3)
        made.append(outputs(form, inputs))
    torch.testing.assert_close(*made, **close)
    params = [p for p in net.parameters() if p.requires_grad]
    if params:
        found, expected = (
            torch.autograd.grad(_total(part), params, allow_unused=True) for part in made
        )
        for mine, theirs in zip(found, expected, strict=True):
            if theirs is not None:  # rows that were read alone, of a table whose gradient is sparse
                torch.testing.assert_close(mine, theirs.to_dense(), **close)


def export(name: str) -> None:
    """A program for any batch, which computes the same for another one."""
    net, inputs = make(name), draw(name)
    axes = tuple({0: torch.export.Dim.DYNAMIC} if isinstance(x, Tensor) else None for x in inputs)
    program = torch.export.export(net, inputs, dynamic_shapes=(axes,) if _packed(net) else axes)
    made = []
    for form in (program.module(), net):
        other = draw(name, 5)
        torch.manual_seed(3)
        made.append([part.detach().clone() for part in outputs(form, other)])
    torch.testing.assert_close(*made)


def _packed(net: nn.Module) -> bool:
    kinds = [p.kind for p in inspect.signature(net.forward).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds


def _total(made: list[Tensor]) -> Tensor:
    return torch.stack([part.square().sum() for part in made if part.requires_grad]).sum()


def func_grad(name: str) -> None:
    """torch.func.grad gives the gradients of autograd."""
    call, leaves = _by_leaves(name)

    def loss(*leaves: Tensor) -> Tensor:
        return torch.stack([part.square().sum() for part in call(*leaves)]).sum()

    expected = torch.autograd.grad(loss(*leaves), leaves, create_graph=True)
    every = tuple(range(len(leaves)))
    found = torch.func.grad(loss, every)(*(leaf.detach() for leaf in leaves))
    torch.testing.assert_close(found, expected)


def vmap(name: str) -> None:
    """One sample at a time by torch.vmap is the same as in a loop."""
    net, inputs = make(name), draw(name)
    axes = tuple(0 if isinstance(x, Tensor) else None for x in inputs)

    def one(*sample: Any) -> list[Tensor]:
        return outputs(net, tuple(x[None] if isinstance(x, Tensor) else x for x in sample))

    found = torch.vmap(one, axes)(*inputs)
    for i in range(BATCH):
        expected = one(*(x[i] if isinstance(x, Tensor) else x for x in inputs))
        torch.testing.assert_close([part[i] for part in found], expected)


CHECKS: dict[str, Callable[[str], None]] = {
    "float64": float64,
    "gradcheck": gradcheck,
    "gradgradcheck": gradgradcheck,
    "state_dict": state_dict,
    "deepcopy": deepcopy,
    "meta": meta,
    "torch.func.grad": func_grad,
    "torch.vmap": vmap,
    "torch.compile": compile,
    "torch.export": export,
}
NO_FORWARD = (
    *("Carried", "EndSymbol", "HaltUnit", "PersistentChains", "Playing", "ReplayBuffer"),
    *("SampledLength", "Translator"),
)
"""Holders of state, which are not called, and a base class."""

NOT_NETWORKS = {
    "estimators: fit, then predict or transform, with scikit-learn's own checks in their tests": (
        *(
            "BayesianRegression",
            "BetaBernoulli",
            "CBOW",
            "FactorAnalysis",
            "FastICA",
            "GaussianMixture",
            "Hopfield",
            "LearnedWordVectors",
            "LeastSquares",
            "LinearSVC",
            "OneAgainstOne",
            "LogisticRegression",
            "ModernHopfield",
            "NGram",
            "Perceptron",
        ),
        *("RBM", "SoftmaxRegression", "SparseCoding", "Word2Vec", "WordVectors"),
        *("PCA", "ProbabilisticPCA", "RBM", "SVC", "SoftmaxRegression", "Word2Vec", "WordVectors"),
    ),
    "a network laid out for one sample at a time, without gradients": ("Queues",),
    "parameters of a distribution, with the steps of EM": ("Factors", "Gaussians"),
    "kernels of support vector machines, and columns of their matrices": ("Columns", "Kernel"),
    "simulators of spikes and populations, from numbers to recordings, without gradients": (
        *(
            "Balanced",
            "DimensionalLIF",
            "Ensemble",
            "EnsembleChain",
            "EulerLIF",
            "ExponentialEuler",
        ),
        *("HodgkinHuxley", "InterpolatedLIF", "LIF", "LIFNetwork", "LIFRate", "Method"),
        *("RK4", "RatePopulation", "RectifiedLinear", "Sigmoid", "SpikingPopulation", "Staggered"),
    ),
    "solvers of least squares for decoders": (
        *("LeastSquaresDecoders", "NystromRidgeDecoders", "RidgeDecoders"),
    ),
    "steps of sampling, from noise to data": ("DDIM", "DDPM"),
    "rules of an update, from gradient to step": (
        *("AdaGradRule", "AdamRule", "LionRule", "MomentumRule", "NesterovRule", "RMSPropRule"),
        *("SGDRule", "UpdateRule"),
    ),
    "objectives with derivatives in closed form, which their tests compare with autograd": (
        *("LogisticObjective", "SoftmaxObjective", "Waves"),
    ),
    "games, played by the thousand as tensors, and what learns a table of values from them": (
        *("CartPole", "Catch", "Environment", "GridWorld", "MountainCar"),
        *("MountainCarAnywhere",),
        *("PolicyIteration", "QLearning", "ValueIteration"),
    ),
    "a loss that is given actions besides values, compared with torch's in its tests": (
        *("HuberTDLoss",),
    ),
    "counts, texts and other data": (
        "Utterances",
        *("BackoffModel", "Bag", "CellRow", "ClassBigrams", "Corpus", "LineScorer", "LogisticBag"),
        *("NaiveBayes", "PartitionedRows", "Record", "SmoothingSettings", "Victim", "WholeWindows"),
    ),
}
"""Blocks that are no modules of torch, by what they are."""

LARGE = (
    *("AlexNet", "CifarResNet", "FBPConvNet", "GoogLeNet", "LeNet", "PhotoVGG", "PlainNet"),
    *("ResNet", "SmallCNN", "SmallGoogLeNet", "SmallVGG", "SmallXception", "SparseLeNet", "UNet"),
    *("PoissonNetwork", "VGG", "Xception"),
)
"""Networks of many layers: slow tests but for the first."""
SMOOTHED = tuple(name for name in LARGE if name != "PoissonNetwork")
"""Networks whose second derivatives are checked without kinks."""
TRACED = ("GRU", "MinGRU", "RecurrentNetwork", "SpikingNetwork")
"""Some blocks with loops of our own: the others are compiled and exported in slow tests."""

TORCH_RNN = (
    *("Backward", "BothWays", "LSTM", "Onward", "PlainAdder", "Reader", "RecurrentStack"),
    "NoteLSTM",
    *("ResetAfterGRU", "ResidualReader", "SentenceDiscriminator", "SentenceReader", "Seq2Seq"),
    *("Bahdanau", "FixedContext", "LSTMSeq2Seq", "Tagger", "TiedBahdanau", "TiedReader"),
    *("ConversationModel", "DualEncoder"),
    *("LSTMCopier",),
    *("SpeechNet",),
)


FUSED_ATTENTION = (
    *("DecoderLayer", "EncoderLayer", "GPT", "GPTLayer", "MultiHeadAttention"),
    *("PreNormDecoderLayer", "PreNormEncoderLayer", "PreNormTransformer", "Transformer"),
    *("ViT", "ViTLayer", "WindowedAttention"),
    *("BERT", "BERTClassifier", "BERTLayer", "PretrainingBERT"),
    *("NoiseUNet", "PixelAttention", "TimeBlock"),
)


class Exempt(typing.NamedTuple):
    """Blocks that do not pass a check, the error that comes instead, and the reason."""

    check: str
    names: tuple[str, ...]
    error: str | None
    """What the message has in it; None is not run."""
    reason: str


EXCEPTIONS = (
    Exempt(
        "torch.compile",
        TORCH_RNN,
        "Dynamo does not support RNN, GRU, or LSTM",
        "torch's own limit: dynamo traces no nn.LSTM, nn.GRU or nn.RNN into a whole graph",
    ),
    Exempt(
        "torch.vmap",
        TORCH_RNN,
        "Batching rule not implemented for aten::(lstm|gru|rnn_tanh)",
        "torch's own limit: nn.LSTM, nn.GRU and nn.RNN have no rule for vmap",
    ),
    Exempt(
        "gradgradcheck",
        FUSED_ATTENTION,
        "derivative for aten::_scaled_dot_product_flash_attention.* is not implemented",
        "torch's own limit: its fused attention has no second derivative; with "
        "`torch.nn.attention.sdpa_kernel(SDPBackend.MATH)` around the call it has, as a test shows",
    ),
    Exempt(
        "gradcheck",
        ("PoissonNetwork", "RecurrentNetwork", "SpikingNetwork"),
        None,  # torch compares all elements before it says so, which takes long
        "a surrogate stands for the derivative of a spike, which is 0 or none",
    ),
    Exempt(
        "gradgradcheck",
        ("PoissonNetwork", "RecurrentNetwork", "SpikingNetwork"),
        None,
        "the same of spikes in a gradient; tests of the kernels compare them with plain loops",
    ),
    Exempt(
        "gradgradcheck",
        SMOOTHED,
        None,
        "a finite difference crosses kinks of ReLU and maximum pooling in so many layers; with "
        "softplus and mean pooling in their places each of them passes",
    ),
    Exempt(
        "torch.vmap",
        ("PoissonNetwork",),
        "called random operation while in randomness error mode",
        "it draws spikes: torch.vmap wants to be given randomness='different'",
    ),
    Exempt(
        "torch.vmap", ("Shallow",), "must match the existing size", "its first axis is of networks"
    ),
    Exempt(
        "torch.export",
        ("Shallow",),
        "specialized it to be a constant",
        "its first axis is of networks",
    ),
    Exempt("torch.vmap", ("Picture",), "got no inputs", "a picture has no input"),
    Exempt("torch.vmap", ("PictureLosses",), "", "it takes one picture at a time"),
    Exempt(
        "torch.compile",
        ("PictureLosses",),
        r"setattr\(\) is not supported|raised exception AttributeError",  # the latter in tests
        "it reads layers by hooks that are set for the call",
    ),
    Exempt(
        "torch.export",
        ("PictureLosses",),
        "Unexpected key",
        "it reads layers by hooks that are set for the call",
    ),
    Exempt(
        "state_dict",
        ("PictureLosses",),
        "",
        "content and style, which it is made with, are no part of its state",
    ),
    Exempt(
        "meta",
        ("PictureLosses",),
        "unsupported scalarType",
        "torch's own limit: autocast knows no device meta",
    ),
)
"""What does not pass, in one place; a test fails where one of these passes after all."""


def exempt(check: str, name: str) -> Exempt | None:
    """The exception of a block from a check, or None."""
    found = [e for e in EXCEPTIONS if e.check == check and name in e.names]
    return found[0] if found else None


def checked(name: str) -> list[str]:
    """The checks that make sense for a block."""
    alone = ("state_dict", "deepcopy", "meta")
    return [check for check in CHECKS if name not in NO_FORWARD or check in alone]
