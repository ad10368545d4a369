"""An expression-graph engine on numpy: values, operations, and their derivatives of any order.

    >>> x = Var(3.0)
    >>> y = x * x + x
    >>> y.backward()
    >>> float(x.grad)
    7.0

Functions take Vars or arrays and return a Var; each has numpy's name, arguments and meaning where
numpy has it, else those of torch.nn.functional. `np.exp(x)` of a Var is `exp(x)`.
"""

from typing import TYPE_CHECKING

from everynet.autodiff.activations import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    leaky_relu,
    log_softmax,
    relu,
    sigmoid,
    softmax,
    softplus,
)
from everynet.autodiff.derivatives import (
    finite_difference,
    grad,
    gradcheck,
    hessian,
    hvp,
    jacobian,
    jvp,
    value_and_grad,
)
from everynet.autodiff.einsum import einsum
from everynet.autodiff.elementwise import (
    absolute,
    add,
    arctan,
    astype,
    clip,
    cos,
    cosh,
    divide,
    exp,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    where,
)
from everynet.autodiff.graph import Op, Var, stop_gradient
from everynet.autodiff.images import avg_pool2d, conv2d, max_pool2d
from everynet.autodiff.linear import cholesky, matmul, solve
from everynet.autodiff.modes import check_finite, enable_grad, no_grad
from everynet.autodiff.reductions import logsumexp, max, mean, min, norm, sum, var
from everynet.autodiff.shaping import (
    broadcast_to,
    concatenate,
    expand_dims,
    index,
    pad,
    reshape,
    scatter,
    squeeze,
    stack,
    swapaxes,
    transpose,
)
from everynet.autodiff.steps import to_dot, trace
from everynet.system.memory import keep_freed_memory

if TYPE_CHECKING:
    from everynet.autodiff.picture import draw, to_svg
else:

    def __getattr__(name):  # noqa: ANN001, ANN202 -- what is typed above
        if name not in ("draw", "to_svg"):
            raise AttributeError(f"module {__name__} has no attribute {name}")
        from everynet.autodiff import picture  # noqa: PLC0415 -- matplotlib, for those who draw

        return getattr(picture, name)


__all__ = [
    "Op", "Var", "abs", "absolute", "add", "arctan", "astype", "avg_pool2d",
    "binary_cross_entropy_with_logits", "broadcast_to", "check_finite", "cholesky", "clip",
    "concatenate", "conv2d", "cos", "cosh", "cross_entropy", "divide", "draw", "einsum",
    "enable_grad", "exp", "expand_dims", "finite_difference", "grad", "gradcheck", "hessian", "hvp",
    "index", "jacobian", "jvp", "leaky_relu", "log", "log_softmax", "logsumexp", "matmul", "max",
    "max_pool2d", "maximum", "mean", "min", "minimum", "multiply", "negative", "no_grad", "norm",
    "pad", "power", "relu", "reshape", "scatter", "sigmoid", "sin", "sinh", "softmax", "softplus",
    "solve", "sqrt", "square", "squeeze", "stack", "stop_gradient", "subtract", "sum", "swapaxes",
    "tan", "tanh", "to_dot", "to_svg", "trace", "transpose", "value_and_grad", "var", "where",
]  # fmt: skip

abs = absolute
keep_freed_memory()
