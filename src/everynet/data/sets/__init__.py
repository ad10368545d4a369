"""The known datasets, listed in `sets.toml`; the files here make their samples.

A dataset names its kind and is either built in (it ships with a dependency or is generated) or
real: then it has one or more forms. A form is a handful of contents, each known by its size and the
SHA-256 of its bytes after unpacking, a function that decodes them, and sources. A function is named
"file:function" and imported when it is called, so that listing datasets imports nothing heavy. A
dataset of one's own is made known by `everynet.data.register(Known(...))`.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from everynet.data.download.contents import Content
from everynet.system.errors import UserError
from everynet.system.wording import shown


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
    """One way in which a dataset is handed round."""

    folder: str
    """The folder of its files, in EVERYNET_DATA and in the cache."""
    decode: Callable[[Sequence[bytes]], Any]
    """Makes samples of the dataset's kind out of the contents, in their order."""
    contents: tuple[Content, ...]
    sources: tuple[Web | Package, ...] = ()
    archive: Content | None = None
    """One file that may hold all of them."""
    unpacked: str = ""
    """The folder that unpacking the archive by hand makes."""


@dataclass(frozen=True)
class Known:
    """A dataset that goes by a name."""

    name: str
    kind: str
    about: str
    licence: str
    make: Callable[[str], Any] | None = None
    """Makes the samples of a dataset that is built in; it is given what stands behind `name:`."""
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


_added: dict[str, Known] = {}


@cache
def _shipped() -> dict[str, Known]:
    listed = tomllib.loads(Path(__file__).with_name("sets.toml").read_text(encoding="utf-8"))
    return {name: _known(name, **fields) for name, fields in listed.items()}


def _known(  # noqa: PLR0917 -- the fields of an entry
    name: str,
    kind: str,
    about: str,
    licence: str,
    make: str = "",
    fixed: bool = False,
    forms: Sequence[Mapping[str, Any]] = (),
) -> Known:
    """An entry of sets.toml; a dataset that is `fixed` takes no count behind its name."""

    def made(count: str) -> Any:  # noqa: ANN401 -- samples of the kind
        if not fixed:
            return _call(make, count)
        if count:
            raise UserError(
                f"data ({name}:{shown(count, 40)}) must be {name}: it has a fixed number of samples"
            )
        return _call(make)

    return Known(name, kind, about, licence, made if make else None, tuple(map(_form, forms)))


def _form(fields: Mapping[str, Any]) -> Form:
    return Form(
        fields["folder"],
        partial(_call, fields["decode"]),
        tuple(map(_content, fields["contents"].splitlines())),
        tuple(map(_source, fields.get("sources", ()))),
        _content(fields["archive"]) if "archive" in fields else None,
        fields.get("unpacked", ""),
    )


def _content(line: str) -> Content:
    name, size, sha256, *also = line.split()
    return Content(name, int(size), sha256, *also)


def _source(line: str) -> Web | Package:
    if "://" in line:
        return Web(line)
    project, version, limit = line.split()
    return Package(project, version, int(limit))


def _call(named: str, *arguments: object) -> Any:  # noqa: ANN401 -- samples of a kind
    """What a function "file:function" gives, imported now."""
    module, _, name = named.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), name)(*arguments)


def register(known: Known) -> None:
    """Make a dataset of one's own known by its name."""
    _added[known.name] = known


def everything() -> dict[str, Known]:
    """Every dataset by name: those that are built in, then the real ones, then the user's own."""
    return _shipped() | _added


def built_in() -> tuple[str, ...]:
    """The names of the datasets that need no network and no file."""
    return tuple(name for name, known in everything().items() if known.make)


def parse_count(name: str, count: str, default: int, low: int, high: int) -> int:
    """The number behind `name:`, or the default where there is none."""
    if count and not (count.isdecimal() and len(count) < 20):
        raise UserError(
            f"data ({name}:{shown(count, 40)}) must be like {name}:2000, with a whole number"
        )
    if count and not low <= int(count) <= high:
        raise UserError(f"{name}:{count} must be from {name}:{low} to {name}:{high}")
    return int(count) if count else default
