"""Ask the processor for a part of an array before it is needed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np import arrayobj

READ, KEEP, DATA = 0, 3, 1  # the last three arguments of llvm.prefetch


def _prefetch(_typing: Any, array: Any, place: Any) -> Any:  # noqa: ANN401 -- types of numba's own
    """Types and code of a call of `prefetch(array, place)`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ANN401
        wrapped: Any = arrayobj.make_array  # without types
        data = wrapped(signature.args[0])(context, builder, values[0]).data
        byte, number, nothing = ir.IntType(8).as_pointer(), ir.IntType(32), ir.VoidType()
        address = builder.bitcast(builder.gep(data, [values[1]]), byte)
        shape = ir.FunctionType(nothing, [byte, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], shape)
        builder.call(fetch, [address, *map(number, (READ, KEEP, DATA))])
        return context.get_dummy_value()

    return types.void(array, place), generate


prefetch: Any = intrinsic(_prefetch)
"""Within compiled code: fetch the line of the cache with array[place], which may lie outside."""
