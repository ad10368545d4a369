"""The interface that a Var shares with numpy's arrays: operators, methods, numpy's functions.

`FUNCTIONS` maps a function of numpy to ours. The operators of a Var look there, and so does numpy:
`np.exp(x)` of a Var is our `exp(x)`, by numpy's protocols (NEP 13 and NEP 18). The rules of
differentiation are therefore written once, in plain numpy, and work on arrays as on Vars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from everynet.autodiff.graph import Op, Var

Array: TypeAlias = NDArray[np.floating]
Value: TypeAlias = Any  # a Var, or an array or number: rules of differentiation take either
Axis: TypeAlias = int | tuple[int, ...] | None
Function = TypeVar("Function", bound=Callable[..., Any])  # of any arguments, as numpy's are

FUNCTIONS: dict[Callable[..., Value], Callable[..., Var]] = {}
"""Ours for each function of numpy that can be differentiated."""
PLAIN = {
    *(np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal),
    *(np.sign, np.floor, np.ceil, np.rint, np.isnan, np.isinf, np.isfinite),
    *(np.argmax, np.argmin, np.argsort, np.shape, np.ndim, np.size, np.array_equal, np.allclose),
}
"""Functions whose derivative is zero or has no meaning: of Vars they give plain arrays."""


def implements(*functions: Callable[..., Value]) -> Callable[[Function], Function]:
    """Let numpy's `functions` call the decorated one when an argument is a Var."""

    def register(ours: Function) -> Function:
        FUNCTIONS.update(dict.fromkeys(functions, ours))
        return ours

    return register


def value(x: Value) -> Value:
    """The array in a Var; anything else as it is."""
    return x.val if isinstance(x, ArrayLike) else x


class ArrayLike:
    """Operators and methods of an array, each a function of `FUNCTIONS`."""

    __slots__ = ()
    val: Array  # or a scalar of numpy
    creator: Op | None
    requires_grad: bool

    # ---------------------------------------------------------------------------------- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.val.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.val.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.val.size

    @property
    def dtype(self) -> np.dtype[Any]:  # float32 or float64; others in constants
        """Type of the elements."""
        return self.val.dtype

    def item(self) -> float:
        """The one element as a Python number."""
        return float(self.val.item())

    def __float__(self) -> float:
        return self.item()

    def __bool__(self) -> bool:
        return bool(self.val)

    def __len__(self) -> int:
        return len(self.val)

    def __iter__(self) -> Iterator[Var]:
        return (self[i] for i in range(len(self.val)))

    def __array__(self, *args: object, **kwargs: object) -> Array:
        raise TypeError(
            f"a Var of shape {self.shape} must not be turned into an array, because its "
            "graph would be lost; take its .val"
        )

    # ----------------------------------------------------------------------------------- operators

    def __neg__(self) -> Var:
        return FUNCTIONS[np.negative](self)

    def __abs__(self) -> Var:
        return FUNCTIONS[np.absolute](self)

    def __add__(self, other: Value) -> Var:
        return FUNCTIONS[np.add](self, other)

    def __radd__(self, other: Value) -> Var:
        return FUNCTIONS[np.add](other, self)

    def __sub__(self, other: Value) -> Var:
        return FUNCTIONS[np.subtract](self, other)

    def __rsub__(self, other: Value) -> Var:
        return FUNCTIONS[np.subtract](other, self)

    def __mul__(self, other: Value) -> Var:
        return FUNCTIONS[np.multiply](self, other)

    def __rmul__(self, other: Value) -> Var:
        return FUNCTIONS[np.multiply](other, self)

    def __truediv__(self, other: Value) -> Var:
        return FUNCTIONS[np.divide](self, other)

    def __rtruediv__(self, other: Value) -> Var:
        return FUNCTIONS[np.divide](other, self)

    def __pow__(self, other: Value) -> Var:
        return FUNCTIONS[np.power](self, other)

    def __rpow__(self, other: Value) -> Var:
        return FUNCTIONS[np.power](other, self)

    def __matmul__(self, other: Value) -> Var:
        return FUNCTIONS[np.matmul](self, other)

    def __rmatmul__(self, other: Value) -> Var:
        return FUNCTIONS[np.matmul](other, self)

    def __getitem__(self, index: Value) -> Var:
        return FUNCTIONS[np.ndarray.__getitem__](self, index)

    # A comparison has no derivative: it gives a plain array of truth values.
    def __lt__(self, other: Value) -> NDArray[np.bool_]:
        return np.less(self.val, value(other))

    def __le__(self, other: Value) -> NDArray[np.bool_]:
        return np.less_equal(self.val, value(other))

    def __gt__(self, other: Value) -> NDArray[np.bool_]:
        return np.greater(self.val, value(other))

    def __ge__(self, other: Value) -> NDArray[np.bool_]:
        return np.greater_equal(self.val, value(other))

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]  # as numpy's
        return np.equal(self.val, value(other))

    def __ne__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]  # as numpy's
        return np.not_equal(self.val, value(other))

    __hash__ = object.__hash__  # by identity: a Var is a node of a graph

    # ------------------------------------------------------------------------------------- methods

    @property
    def T(self) -> Var:
        """The axes in reverse order."""
        return FUNCTIONS[np.transpose](self)

    def transpose(self, *axes: int) -> Var:
        """The axes in another order."""
        return FUNCTIONS[np.transpose](self, axes or None)

    def swapaxes(self, axis1: int, axis2: int) -> Var:
        """Two axes exchanged."""
        return FUNCTIONS[np.swapaxes](self, axis1, axis2)

    def reshape(self, *shape: int | Sequence[int]) -> Var:
        """The elements in another shape."""
        whole = isinstance(shape[0], Sequence)
        return FUNCTIONS[np.reshape](self, shape[0] if whole else shape)

    def astype(self, dtype: Value) -> Var:
        """The elements in another type."""
        return FUNCTIONS[np.ndarray.astype](self, dtype)

    def sum(self, axis: Axis = None, *, keepdims: bool = False) -> Var:
        """The sum over `axis`."""
        return FUNCTIONS[np.sum](self, axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> Var:
        """The mean over `axis`."""
        return FUNCTIONS[np.mean](self, axis, keepdims=keepdims)

    def var(self, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Var:
        """The variance over `axis`."""
        return FUNCTIONS[np.var](self, axis, ddof=ddof, keepdims=keepdims)

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> Var:
        """The largest over `axis`."""
        return FUNCTIONS[np.max](self, axis, keepdims=keepdims)

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> Var:
        """The smallest over `axis`."""
        return FUNCTIONS[np.min](self, axis, keepdims=keepdims)

    # ---------------------------------------------------------------------------- numpy's protocols

    def __array_ufunc__(
        self, ufunc: Callable[..., Value], method: str, *inputs: Value, **kwargs: Value
    ) -> Value:
        if method != "__call__" or kwargs:
            how = f"{ufunc.__name__}.{method}" if method != "__call__" else ufunc.__name__
            raise TypeError(
                f"{how} with {', '.join(kwargs) or 'a Var'} must be given arrays, because Vars are "
                "never changed in place; write the plain operation and keep its result"
            )
        return self.__array_function__(ufunc, (), inputs, {})

    def __array_function__(
        self, function: Callable[..., Value], types: Value, args: Value, kwargs: Value
    ) -> Value:
        if function in PLAIN:
            return function(*map(value, args), **kwargs)
        if function not in FUNCTIONS:
            raise TypeError(
                f"{function.__name__} must be given arrays, because no derivative is known "
                "for it; take .val, or write an Op"
            )
        return FUNCTIONS[function](*args, **kwargs)
