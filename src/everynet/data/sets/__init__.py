"""The known sets: each file here holds some, in `SETS`, and imports nothing heavy by itself.

A set names its kind and is either built in (it ships with a dependency or is generated) or real:
then it has one or more forms. A form is a handful of contents, each known by its size and the
SHA-256 of its bytes after unpacking, a function that makes samples of them, and sources. A set of
one's own is made known by `everynet.data.register(Known(...))`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from everynet.data.download.contents import Content


@dataclass(frozen=True)
class Web:
    """An https address: of one archive, or of each file where it holds `{name}`."""

    url: str


@dataclass(frozen=True)
class Package:
    """A distribution on the Python package index that holds the files."""

    project: str
    version: str
    limit: int
    """It is not longer than this many bytes."""


@dataclass(frozen=True)
class Form:
    """One way in which a set is handed round."""

    folder: str
    """The folder of its files, in EVERYNET_DATA and in the cache."""
    decode: Callable[[Sequence[bytes]], Any]
    """Makes samples of the set's kind out of the contents, in their order."""
    contents: tuple[Content, ...]
    sources: tuple[Web | Package, ...] = ()
    archive: Content | None = None
    """One file that may hold all of them."""
    unpacked: str = ""
    """The folder that unpacking the archive by hand makes."""


@dataclass(frozen=True)
class Known:
    """A set that goes by a name."""

    name: str
    kind: str
    about: str
    licence: str
    make: Callable[[str], Any] | None = None
    """Of a set that is built in: its samples; it is given what stands behind `name:`."""
    forms: tuple[Form, ...] = ()

    @property
    def size(self) -> int:
        """Bytes after unpacking."""
        return sum(content.size for content in self.forms[0].contents)

    @property
    def digest(self) -> str:
        """SHA-256 of the checksums of its contents: the same whichever form was read."""
        sums = "\n".join(content.sha256 for content in self.forms[0].contents)
        return hashlib.sha256(sums.encode()).hexdigest()


FILES = ("scikit", "generated", "mnist", "cifar")
_added: dict[str, Known] = {}


@cache
def _shipped() -> dict[str, Known]:
    files = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem != "__init__")
    found: dict[str, Known] = {}
    for file in sorted(files, key=lambda name: (FILES.index(name) if name in FILES else 99, name)):
        module = import_module(f"everynet.data.sets.{file}")
        made: Iterable[Known] = getattr(module, "SETS", ())
        found |= {known.name: known for known in made}
    return found


def register(known: Known) -> None:
    """Make a set of one's own known by its name."""
    _added[known.name] = known


def everything() -> dict[str, Known]:
    """Every set by name: those that are built in, then the real ones, then the user's own."""
    shipped = _shipped()
    built_in = {name: known for name, known in shipped.items() if known.make}
    return built_in | shipped | _added


def built_in() -> tuple[str, ...]:
    """The names of the sets that need no network and no file."""
    return tuple(name for name, known in everything().items() if known.make)
