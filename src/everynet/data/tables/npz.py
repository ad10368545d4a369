"""Arrays out of npy and npz files that are not trusted.

What a header says is held against the length of the file before any memory is taken, checksums
are looked at, and no Python object is ever made from a file.
"""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Shaped
from numpy.lib import format as npy

from everynet.data.paths import regular, unreadable
from everynet.system.errors import UserError
from everynet.system.wording import shown

MOST_RATIO, RATIO_FROM = 200, 2**26
"""Arrays of more than 64 MB in all that were packed more than two hundredfold stay packed."""

Array = Shaped[np.ndarray, "..."]


@runtime_checkable
class Stream(Protocol):
    """An open file or a member of an archive."""

    def read(self, size: int = -1, /) -> bytes: ...

    def tell(self) -> int: ...


def read_npy(path: Path) -> Array:
    """The one array of an npy file."""
    try:
        with regular(path).open("rb") as stream:
            return _array(shown(path), stream, path.stat().st_size)
    except OSError as error:
        raise unreadable(path, error) from None


def read_npz(path: Path, wanted: Collection[str] | None = None) -> dict[str, Array]:
    """The arrays of an npz file by their names; of these alone, where some are wanted."""
    with _opened(path) as archive:
        members = [m for m in _members(path, archive) if wanted is None or _name(m) in wanted]
        size = sum(member.file_size for member in members)
        packed = max(1, sum(member.compress_size for member in members))
        if size > RATIO_FROM and size > MOST_RATIO * packed:
            raise UserError(f"{shown(path)} would unpack to {size:,} bytes from {packed:,}")
        arrays: dict[str, Array] = {}
        for member in members:
            with archive.open(member) as stream:
                place = f"{shown(path)}: {shown(_name(member), 40)}"
                arrays[_name(member)] = _array(place, stream, member.file_size)
        return arrays


def names(path: Path) -> tuple[str, ...]:
    """What the arrays of an npz file are called; none is read."""
    with _opened(path) as archive:
        return tuple(_name(member) for member in _members(path, archive))


def dimensions(path: Path, name: str) -> int:
    """How many dimensions an array of an npz file has by its header."""
    with _opened(path) as archive, archive.open(f"{name}.npy") as stream:
        return len(_header(f"{shown(path)}: {shown(name, 40)}", stream)[0])


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(regular(path)) as archive:
            yield archive
    except UserError:
        raise
    except OSError as error:
        raise unreadable(path, error) from None
    except Exception as error:  # zipfile and zlib raise whatever a damaged file leads them to
        why = shown(str(error) or type(error).__name__, 120)
        raise UserError(f"{shown(path)} is damaged or no npz file: {why}") from None


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _members(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    members, seen = archive.infolist(), set[str]()
    for member in members:
        if _name(member) in seen:
            raise UserError(f"{shown(path)}: {shown(_name(member), 40)} is there twice")
        seen.add(_name(member))
    if not members:
        raise UserError(f"{shown(path)} holds no array")
    return members


def _header(place: str, stream: Stream) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy warns where it has to mend a header
            version = npy.read_magic(stream)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = header(stream)
    except (OSError, zipfile.BadZipFile):
        raise
    except Exception:  # a damaged header is read as whatever Python it looks like
        raise UserError(f"{place} is no array of numpy, or is damaged") from None
    return shape, fortran, dtype


def _array(place: str, stream: Stream, size: int) -> Array:
    """One array, read only if its header agrees with the number of bytes that are there."""
    shape, fortran, dtype = _header(place, stream)
    if dtype.kind not in "biufU" or not dtype.itemsize:
        kind = "Python objects" if dtype.hasobject else f"values of type {shown(dtype, 40)}"
        raise UserError(f"{place} must hold numbers, not {kind}")
    left = size - stream.tell()
    wanted = math.prod(map(int, shape)) * dtype.itemsize
    if wanted != left or min(shape, default=0) < 0:
        raise UserError(
            f"{place} should take {wanted:,} bytes by its header, with shape {shown(shape, 60)}, "
            f"but has {left:,}; it is damaged or cut short"
        )
    content = stream.read(left)
    if len(content) != left:
        raise UserError(f"{place} is cut short")
    array = np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise UserError(f"{place} must be finite, but holds NaN or infinity")
    return array.astype(dtype.newbyteorder("="), order="C")
