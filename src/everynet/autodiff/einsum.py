"""Sums of products over named indices, with numpy's notation: `einsum("ij,jk->ik", a, b)`.

    y[out] = sum over the other letters of  a1[s1] a2[s2] ...                       (1)
    da_i[s_i] = sum over the letters not in s_i of  g[out] prod over j != i of a_j[s_j]   (2)

(2) is itself such a sum: a letter that argument i alone has is repeated by a vector of ones, and a
letter that it has twice, as in the trace "ii", comes back on the diagonal by an identity matrix.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import partial

import numpy as np

from everynet.autodiff.arraylike import Value, implements, value
from everynet.autodiff.graph import Op, Rule, Var


class Einsum(Op):
    """y = the sum of products that the last argument, the subscripts, says."""

    forward = staticmethod(lambda *args: np.einsum(args[-1], *args[:-1], optimize=len(args) > 3))

    @property
    def vjps(self) -> tuple[Rule, ...]:  # type: ignore[override]  # as many as there are arrays
        return tuple(partial(_rule, i) for i in range(len(self) - 1))


def _rule(i: int, g: Value, y: Value, *args: Value) -> Value:
    *arrays, subscripts = args
    left, out = subscripts.split("->")
    letters = left.split(",")
    own, shape = letters[i], np.shape(value(arrays[i]))
    others = [(s, a) for j, (s, a) in enumerate(zip(letters, arrays, strict=True)) if j != i]
    found = {(s, n) for names, a in [(out, g), *others] for s, n in _sizes(names, a)}
    free = (letter for letter in string.ascii_letters if letter not in subscripts)
    terms, wanted = [(out, g), *others], ""
    for letter, n in zip(own, shape, strict=True):
        if letter in wanted:
            again = next(free)
            terms.append((letter + again, np.eye(n, dtype=g.dtype)))
            wanted += again
            continue
        if (letter, n) not in found:
            terms.append((letter, np.ones(n, g.dtype)))
        wanted += letter
    names, values = zip(*terms, strict=True)
    return Einsum.of(*values, f"{','.join(names)}->{wanted}")  # (2)


def _sizes(letters: str, array: Value) -> list[tuple[str, int]]:
    return list(zip(letters, np.shape(value(array)), strict=True))


@implements(np.einsum)
def einsum(subscripts: str, *operands: Value, optimize: bool = True) -> Var:
    """The sum of products of numpy's `einsum`, such as "ij,jk->ik" or "...ii->...i"."""
    return Einsum.apply(*operands, explicit(subscripts, [np.ndim(value(a)) for a in operands]))


def explicit(subscripts: str, ndims: Sequence[int]) -> str:
    """The same subscripts with the letters of the result, and letters for an ellipsis."""
    if not isinstance(subscripts, str):
        raise TypeError(
            f'einsum: subscripts must be text such as "ij,jk->ik", not {type(subscripts).__name__}'
        )
    left, arrow, out = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ValueError(
            f"einsum: subscripts ({subscripts}) must name the indices of each array, one after the "
            f"other with commas between them: {len(terms)} for {len(ndims)} given"
        )
    for term in (*terms, out):
        if strange := set(term.replace("...", "", 1)) - {*string.ascii_letters}:
            raise ValueError(
                f"einsum: subscripts ({subscripts}) must hold letters, commas, one -> and ..., not "
                f"{min(strange)!r}"
            )
    spare = [letter for letter in string.ascii_letters if letter not in subscripts]
    counts = [_dots(term, ndim, subscripts) for term, ndim in zip(terms, ndims, strict=True)]
    dots = "".join(spare[: max(counts)])
    named = [
        term.replace("...", dots[len(dots) - n :]) for term, n in zip(terms, counts, strict=True)
    ]
    if not arrow:
        once = [letter for letter in sorted({*left} - {*",."}) if left.count(letter) == 1]
        out = dots + "".join(once)
    elif dots and "..." not in out:
        raise ValueError(
            f"einsum: subscripts ({subscripts}) must have ... in the result too, because the axes "
            "it stands for are kept; name them to sum over them"
        )
    return f"{','.join(named)}->{out.replace('...', dots)}"  # (1)


def _dots(term: str, ndim: int, subscripts: str) -> int:
    """How many axes an ellipsis stands for in one term."""
    named = len(term.replace("...", ""))
    if ndim < named or (ndim > named and "..." not in term):
        raise ValueError(
            f"einsum: subscripts ({subscripts}) must have a letter for each axis, or ... for "
            f"several: {term!r} has {named} for an array of {ndim} axes"
        )
    return ndim - named
