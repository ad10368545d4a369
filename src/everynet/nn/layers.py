"""Shapes, costs and receptive fields of the layers of a network, found on the device "meta".

    n_l = floor((n_{l-1} + 2 p_l - d_l (k_l - 1) - 1) / s_l) + 1            output size
    r_l = r_{l-1} + (k_l - 1) d_l j_{l-1},    r_0 = 1                       receptive field
    j_l = j_{l-1} s_l,                        j_0 = 1                       distance of neighbours

for kernel k, stride s, dilation d and padding p, along each axis, and over the longest path where
paths meet. A layer that spreads each value over s places (transposed convolution, nearest
upsampling) has neighbours j / s apart and sees ceil(k / s) values; after it r is a mean over
places, which do not all see equally much. Padding is not subtracted, so a deep layer can see more
than the image, and the statistics of a norm are not counted as seeing.

A multiplication is a product of two numbers in the forward pass of one sample, products with
padded zeros and masked places included; additions, comparisons, roots, exponentials are none. Of
attention and of whatever multiplies matrices by a function (`q @ k.mT`, `einsum`, torch's fused
attention), the products of matrices alone are counted, in the row of the module that called it:

    4 n d^2 + 2 n^2 d        self-attention over n tokens of width d, causal or not, of any heads

The memory of a layer is its output for one sample at four bytes a number, none where it is its
input seen another way; what functions make between layers is left out. A convolution or pool that
is called as a function, not as a module, has no row; the table names it at its foot.

    print(layer_table(torchvision.models.resnet18(), (3, 224, 224)))
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle


class Layer(NamedTuple):
    """One row of the table: one call of one layer."""

    name: str
    kind: str
    shape: tuple[int, ...]
    """Of the output, for one sample."""
    parameters: int
    """Its own; 0 where an earlier row has counted them."""
    multiplications: int | None = None
    """None where there is no formula for the layer here."""
    receptive_field: tuple[int, ...] | None = None
    """Pixels that one output sees, by axis; None without axes or where no formula is known."""
    memory: int = 0
    """Bytes of the output; 0 where an earlier row has counted them."""
    kernel: tuple[int, ...] | None = None
    """Pixels of the window that slides over its input; None where none does."""


class LayerTable(list[Layer]):
    """Rows in the order the layers are called; printed, they stand in columns with their totals."""

    def __init__(self, rows: Iterable[Layer], parameters: int, functions: Sequence[str]) -> None:
        super().__init__(rows)
        self.parameters = parameters
        """Of the whole network, also of layers that were not called."""
        self.functions = functions
        """Functions that were called and have no row: `conv2d in head`."""

    @property
    def multiplications(self) -> int:
        """Of all rows that have a formula."""
        return sum(row.multiplications or 0 for row in self)

    @property
    def memory(self) -> int:
        """Bytes of all outputs, which learning keeps until the gradient has passed."""
        return sum(row.memory for row in self)

    def __str__(self) -> str:
        header = ("layer", "kind", "output", "bytes", "parameters", "multiplications", "sees")
        rows = [header, *map(_cells, self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if 3 <= number <= 5 else cell.ljust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *self.foot()])

    def foot(self) -> Iterator[str]:
        """The lines below the table: the totals, and what they do not count."""
        uncalled = self.parameters - sum(row.parameters for row in self)
        yield f"{self.parameters:,} parameters" + (
            f", {uncalled:,} of them in layers that were not called" if uncalled else ""
        )
        unknown = ", and those of layers marked -"
        some = any(row.multiplications is None for row in self)
        yield f"{self.multiplications:,} multiplications for one sample{unknown if some else ''}"
        yield f"{self.memory:,} bytes of activations for one sample in fp32"
        if self.functions:
            yield f"not counted, because called as functions: {', '.join(self.functions)}"


def _cells(row: Layer) -> tuple[str, ...]:
    products, field = row.multiplications, row.receptive_field
    return (
        row.name,
        row.kind,
        " x ".join(map(str, row.shape)),
        f"{row.memory:,}",
        f"{row.parameters:,}",
        "-" if products is None else f"{products:,}",
        "-" if field is None else " x ".join(map(str, field)),
    )


def layer_table(
    model: nn.Module, shape: Sequence[int], *, dtype: torch.dtype | None = None
) -> LayerTable:
    """Every layer in the order it is called, for one sample of this shape.

    A layer is a module without children, one with parameters that no row has counted before, or one
    that multiplies matrices itself.
    Nothing is computed: the network may be on any device, also on "meta", and is left as it was.
    """
    if dtype is None:
        dtype = next((p.dtype for p in model.parameters()), torch.float32)
    x = torch.empty(1, *shape, dtype=dtype, device="meta")
    slides = any(isinstance(m, _SLIDING + _TRANSPOSED) for m in model.modules())
    products = _MatrixProducts()
    fields = _Fields(x, tuple(shape[1:]) if slides else (), products)
    rows: list[Layer] = []
    counted: set[Tensor] = set()
    stored = {_storage(x)}

    def add_row(name: str, module: nn.Module, given: object, output: object) -> None:
        fields.inside.pop()
        matrices = products.inside.pop()
        inputs, outputs = list(_tensors(given)), list(_tensors(output))
        if not inputs or not outputs:
            return
        made = outputs[0]
        field = fields.through(module, inputs[0], made)
        leaf = next(module.children(), None) is None
        # those of children that were not called too, where it used them itself
        own = [p for p in module.parameters() if id(p) in fields.used and p not in counted]
        counted.update(own)
        if leaf or own or matrices:
            fresh = {_storage(t): t.numel() for t in outputs if _storage(t) not in stored}
            stored.update(fresh)
            rows.append(
                Layer(
                    name=name or type(module).__name__,
                    kind=type(module).__name__,
                    shape=tuple(made.shape[1:]),
                    parameters=sum(p.numel() for p in own),
                    multiplications=_multiplications(module, inputs[0], made, matrices),
                    receptive_field=field.sizes if field and field.sizes else None,
                    memory=4 * sum(fresh.values()),
                    kernel=_kernel(module, len(made.shape) - 2),
                )
            )

    def enter(name: str, module: nn.Module) -> None:
        fields.inside.append((name or type(module).__name__, module))
        products.inside.append(0)

    hooked = _hooked(model, add_row, enter)
    with _shapes_only(model) as tensors, hooked, products, fields, torch.no_grad():
        torch.func.functional_call(model, tensors, (x,))
    return LayerTable(
        rows, sum(p.numel() for p in model.parameters()), list(dict.fromkeys(fields.unnoticed))
    )


def layers_called(model: nn.Module, call: Callable[[], object], samples: int = 0) -> list[Layer]:
    """The input of the first layer, then every layer with the shape of its first output.

    For networks with a forward of their own: `call` runs it on so many samples, by which the batch
    axis is known where time comes first. A layer that was not called, only its parameters used, has
    no shape, or is counted with the module that used them.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    first: list[tuple[int, ...]] = []

    def of_one(tensor: Tensor) -> tuple[int, ...]:
        behind_time = tensor.dim() > 1 and tensor.shape[0] != samples == tensor.shape[1]
        return (tensor.shape[0], *tensor.shape[2:]) if behind_time else tuple(tensor.shape[1:])

    def keep(name: str, _module: nn.Module, given: object, output: object) -> None:
        if not shapes:
            first.extend(map(of_one, _tensors(given)))
        for made in _tensors(output):
            shapes.setdefault(name, of_one(made))

    with _hooked(model, keep), torch.no_grad():
        call()
    rows = [Layer("input", "input", first[0] if first else (), 0)]
    counted: set[Tensor] = set()
    order = {name: number for number, name in enumerate(shapes)}
    places, place = {}, -1.0
    for name, _ in model.named_modules():  # one that was not called stands behind its neighbour
        place = order.get(name, place + 1e-3 if name else place)
        places[name] = place
    for name, module in sorted(model.named_modules(), key=lambda known: places[known[0]]):
        own = [p for p in module.parameters(recurse=False) if p not in counted]
        counted.update(own)
        leaf = next(module.children(), None) is None
        if own or (leaf and name in shapes):
            kind, parameters = type(module).__name__, sum(p.numel() for p in own)
            rows.append(Layer(name or kind, kind, shapes.get(name, ()), parameters))
    return rows


def _storage(tensor: Tensor) -> int:
    """A number of the memory of a tensor, shared by its views; the same while one of them lives."""
    return int(tensor.untyped_storage()._cdata)


def activations(model: nn.Module, x: Tensor, names: Iterable[str] = ()) -> dict[str, Tensor]:
    """The outputs of the named modules for a batch, in the order they were made.

    Without names, those of the children of the model.
    """
    wanted = set(names) or {name for name, _ in model.named_children()}
    known = {name for name, _ in model.named_modules() if name}
    if not wanted <= known:
        raise ValueError(
            f"names ({', '.join(sorted(wanted - known))}) must be modules of "
            f"{type(model).__name__}, which are {', '.join(sorted(known))}"
        )
    made: dict[str, Tensor] = {}

    def keep(name: str, _module: nn.Module, _given: object, output: object) -> None:
        if name in wanted and isinstance(output, Tensor):
            made[name] = output.detach()

    with _hooked(model, keep), torch.no_grad():
        model(x)
    return made


# ------------------------------------------------------------------------------- multiplications

_CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_MAX_POOL = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_AVG_POOL = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
_ADAPTIVE_AVG = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
_ADAPTIVE_MAX = (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
_SLIDING = _CONV + _MAX_POOL + _AVG_POOL
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


_MULTIPLY_NOTHING = {
    f"torch.nn.modules.{name}"
    for name in ("activation", "dropout", "flatten", "linear", "padding", "pooling")
}


def _multiplications(module: nn.Module, x: Tensor, y: Tensor, matrices: int) -> int | None:
    if matrices and (isinstance(module, nn.MultiheadAttention) or not _is_layer(module)):
        return matrices
    values = y[0].numel()
    each: int | None = None  # products for one value of the output
    if isinstance(module, nn.Linear):
        each = module.in_features
    elif isinstance(module, _CONV):
        each = module.in_channels // module.groups * math.prod(module.kernel_size)
    elif isinstance(module, _TRANSPOSED):
        kernels = module.out_channels // module.groups * math.prod(module.kernel_size)
        return x[0].numel() * kernels
    elif isinstance(module, _AVG_POOL + _ADAPTIVE_AVG):
        each = 1  # 1 / n of the mean
    elif isinstance(module, _BATCH_NORM):
        each = 1  # gain / sigma, one factor after training
    elif isinstance(module, nn.LayerNorm):
        return _norm(values, values // math.prod(module.normalized_shape), module.weight)
    elif isinstance(module, nn.GroupNorm):
        return _norm(values, module.num_groups, module.weight)
    elif isinstance(module, nn.Embedding) or _is_plain(module):
        each = 0
    return None if each is None else values * each


def _norm(values: int, groups: int, gain: Tensor | None) -> int:
    """A square, 1 / sigma and the gain for each value; 1 / n of mean and variance for a group."""
    return values * (2 if gain is None else 3) + 2 * groups


def _is_plain(module: nn.Module) -> bool:
    """Whether a module without weights is one of torch's that multiply nothing."""
    bare = next(module.parameters(), None) is None and next(module.children(), None) is None
    return bare and type(module).__module__ in _MULTIPLY_NOTHING


_FACTORS = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}
"""Every product of matrices is one of these to torch, each with the place of its left factor."""


class _MatrixProducts(TorchDispatchMode):
    """Multiplications in products of matrices: of all, and of each module that is running."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types there
        self.total, self.inside = 0, [0]

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 -- an overload of an operator, which torch does not type
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 -- whatever the operator returns
        result = func(*args, **(kwargs or {}))
        place = _FACTORS.get(func.overloadpacket.__name__)
        if place is not None:
            made = result.numel() * args[place].shape[-1]
            self.total += made
            self.inside[-1] += made
        return result


# ------------------------------------------------------------------------------- receptive field


class Field(NamedTuple):
    """How many input pixels a value sees along each axis, and how far apart neighbours are."""

    sizes: tuple[int, ...]
    jumps: tuple[int, ...]


_MIXES = re.compile(
    r"conv|pool|interpolate|fold|shuffle|linear|matmul|mm|einsum|attention|fft|rnn|lstm|gru"
)
"""Functions that join values of several places: what they make is known only to their layer."""
_REDUCES = {"mean", "sum", "amax", "amin", "max", "min", "std", "var", "logsumexp"}
"""Functions that see the whole image where they leave none of its axes."""


class _Fields(TorchFunctionMode):
    """The fields of all tensors made from `x`: functions hand them on, layers widen them.

    The field of what a function makes that joins places is None until its layer, if torch has
    one, says better.
    """

    def __init__(self, x: Tensor, image: tuple[int, ...], products: _MatrixProducts) -> None:
        super().__init__()
        self.image, self.products = image, products
        self.inside: list[tuple[str, nn.Module]] = []
        self.unnoticed: list[str] = []
        self.used: set[int] = set()
        one = (1,) * len(image)
        # Tensors are kept beside their fields, so that no number is given to a second one.
        self.known: dict[int, tuple[Tensor, Field | None]] = {id(x): (x, Field(one, one))}

    def of(self, tensor: Tensor) -> Field | None:
        return self.known[id(tensor)][1] if id(tensor) in self.known else None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 -- whatever the function returns
        """Call a function of torch; what it makes sees all that its arguments see."""
        before = self.products.total
        result = func(*args, **(kwargs or {}))
        multiplied = self.products.total > before
        arguments = list(_tensors((args, kwargs or {})))
        self.used.update(map(id, arguments))
        given = [t for t in arguments if id(t) in self.known]
        if given:
            function = getattr(func, "__name__", "")
            mixes = _MIXES.search(function)
            field = None if mixes else _joined([self.of(tensor) for tensor in given])
            if function in _REDUCES and given[0].dim() > 2 and _is_one_place(result):
                field = Field(self.image, (1,) * len(self.image))
            if mixes and not multiplied and self.inside and not _is_layer(self.inside[-1][1]):
                self.unnoticed.append(f"{function} in {self.inside[-1][0]}")
            for tensor in _tensors(result):
                self.known[id(tensor)] = (tensor, field)
        return result

    def through(self, module: nn.Module, x: Tensor, y: Tensor) -> Field | None:
        """The field of what a layer made of `x`, kept for what follows."""
        before, field = self.of(x), self.of(y)
        axes = len(self.image)
        parts = y.shape[2:] if isinstance(module, _ADAPTIVE_AVG + _ADAPTIVE_MAX) else ()
        if (isinstance(module, nn.Linear) and x.dim() == 2) or (parts and max(parts) == 1):
            field = Field(self.image, (1,) * axes)
        elif isinstance(module, nn.Linear):
            field = before
        elif x.dim() != axes + 2:  # no image, such as what a generator is given
            pass
        elif before and isinstance(module, _SLIDING):
            kernel, stride, dilation = (
                _by_axis(getattr(module, name, 1), axes)
                for name in ("kernel_size", "stride", "dilation")
            )
            field = _slide(before, kernel, stride, dilation)
        elif before and isinstance(module, (*_TRANSPOSED, nn.Upsample)):
            field = _spread(before, module, axes)
        elif before and parts:
            shares = [size // part for size, part in zip(x.shape[2:], parts, strict=True)]
            even = all(size % part == 0 for size, part in zip(x.shape[2:], parts, strict=True))
            field = _slide(before, shares, shares, [1] * axes) if even else None
        self.known[id(y)] = (y, field)
        return field


def _is_layer(module: nn.Module) -> bool:
    """Whether it is, or is made of, a layer of torch, whose functions are those of its row."""
    homes = {cls.__module__ for cls in type(module).__mro__}
    plain = {"torch.nn.modules.module", "torch.nn.modules.container"}
    return any(home.startswith("torch.nn.") for home in homes - plain)


def _is_one_place(made: object) -> bool:
    return all(max(tensor.shape[2:], default=1) == 1 for tensor in _tensors(made))


def _slide(
    before: Field, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Field:
    return Field(
        tuple(
            size + (k - 1) * d * jump
            for size, k, d, jump in zip(before.sizes, kernel, dilation, before.jumps, strict=True)
        ),
        tuple(jump * s for jump, s in zip(before.jumps, stride, strict=True)),
    )


def _spread(before: Field, module: nn.Module, axes: int) -> Field | None:
    """The field behind a layer whose neighbours lie closer together than those before it."""
    if isinstance(module, nn.Upsample):
        factor = module.scale_factor
        factors = factor if isinstance(factor, tuple) else (factor,) * axes
        if module.mode != "nearest" or any(f is None or f != int(f) for f in factors):
            return None
        stride = kernel = dilation = tuple(int(f or 1) for f in factors)
        dilation = (1,) * axes
    else:
        stride, kernel, dilation = (
            _by_axis(getattr(module, name), axes) for name in ("stride", "kernel_size", "dilation")
        )
    if max(dilation) > 1 or any(j % s for j, s in zip(before.jumps, stride, strict=True)):
        return None
    seen = [-(-k // s) for k, s in zip(kernel, stride, strict=True)]
    jumps = tuple(j // s for j, s in zip(before.jumps, stride, strict=True))
    return Field(_slide(before, seen, (1,) * axes, (1,) * axes).sizes, jumps)


def _joined(fields: Sequence[Field | None]) -> Field | None:
    known = [field for field in fields if field is not None]
    if len(known) < len(fields):
        return None
    return Field(
        tuple(map(max, zip(*(field.sizes for field in known), strict=True))),
        tuple(map(max, zip(*(field.jumps for field in known), strict=True))),
    )


def _kernel(module: nn.Module, axes: int) -> tuple[int, ...] | None:
    if not isinstance(module, _SLIDING + _TRANSPOSED):
        return None
    return _by_axis(module.kernel_size, axes)  # an int, or one for each axis


def _by_axis(value: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
    return (value,) * axes if isinstance(value, int) else value


# ----------------------------------------------------------------------------------------- hooks


@contextmanager
def _hooked(
    model: nn.Module,
    after: Callable[[str, nn.Module, object, object], None],
    before: Callable[[str, nn.Module], None] = lambda _name, _module: None,
) -> Iterator[None]:
    """Call `before`, then `after` with inputs and output, around each module that is called."""
    handles: list[RemovableHandle] = []
    for name, module in model.named_modules():
        handles += [
            module.register_forward_pre_hook(lambda m, _x, name=name: before(name, m)),
            module.register_forward_hook(
                lambda m, x, named, y, name=name: after(name, m, (x, named), y), with_kwargs=True
            ),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _shapes_only(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Parameters and buffers without their numbers, the model in eval mode meanwhile."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield {
            name: torch.empty_like(tensor, device="meta")
            for name, tensor in chain(model.named_parameters(), model.named_buffers())
        }
    finally:
        for module in training:
            module.training = True


def _tensors(value: object) -> Iterator[Tensor]:
    match value:
        case Tensor():
            yield value
        case list() | tuple():
            for part in value:
                yield from _tensors(part)
        case Mapping():
            for part in value.values():
                yield from _tensors(part)
