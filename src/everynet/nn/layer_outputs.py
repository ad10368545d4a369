"""The outputs of some layers of a network for a picture; the rest of it does not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import torch
from jaxtyping import Float
from torch import Tensor, nn

ACTIVATIONS = (
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Softplus, nn.Tanh, nn.Sigmoid, nn.Hardtanh, nn.Hardswish),
)
"""Modules whose outputs are feature maps."""


class _Enough(Exception):
    """Every named layer has run: the rest of the network need not."""


class LayerOutputs(nn.Module):
    """Maps one picture to the outputs of the named layers of a network, a matrix for each."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, network: nn.Module, layers: Sequence[str], mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.network, self.layers = network, tuple(layers)
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(
        self, x: Float[Tensor, "1 channels height width"]
    ) -> list[Float[Tensor, "_maps _pixels"]]:
        found: dict[str, Tensor] = {}

        def keep(name: str, made: Tensor) -> None:
            found.setdefault(name, made)  # of a layer that is called twice, the first time
            if len(found) == len(set(self.layers)):
                raise _Enough

        with _hooked(self.network, self.layers, keep), suppress(_Enough):
            self.network((x - self.mean) / self.std)
        return [found[name][0].flatten(1).to(x.dtype) for name in self.layers]


def group_by_size(
    network: nn.Module, x: Float[Tensor, "1 channels height width"]
) -> list[list[str]]:
    """Layers behind an activation function in the order they run, those of one size together.

    A head that takes images of another size does not matter: all that stands before it has run by
    then. Maps of a single pixel, or row, are left out.
    """
    found: dict[str, tuple[int, ...]] = {}

    def keep(name: str, made: object) -> None:
        found.setdefault(name, tuple(made.shape[2:]) if isinstance(made, Tensor) else ())

    names = [n for n, module in network.named_modules() if isinstance(module, ACTIVATIONS)]
    with _hooked(network, names, keep), torch.no_grad(), suppress(RuntimeError):
        network(x)
    by_size: dict[tuple[int, ...], list[str]] = {}
    for name, size in found.items():
        if len(size) == 2 and min(size) > 1:
            by_size.setdefault(size, []).append(name)
    return [*by_size.values()]


@contextmanager
def _hooked(
    network: nn.Module, names: Sequence[str], keep: Callable[[str, Tensor], None]
) -> Iterator[None]:
    """Call `keep` with the name and the output of each named layer that runs."""
    handles = [
        network.get_submodule(n).register_forward_hook(lambda _m, _x, y, n=n: keep(n, y))
        for n in {*names}
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
