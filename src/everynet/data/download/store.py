"""The files of the real sets: where they are now, and what they hold.

A file is looked for in the folder that EVERYNET_DATA names, then in the cache, then at the
sources of the set. A file that is there and damaged is an error: nothing is taken in its place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from everynet.data.download.contents import Content, DamagedFile, take
from everynet.data.sets import Form, Known, everything
from everynet.system import cache
from everynet.system.errors import UserError
from everynet.system.wording import nearest


def named(name: str) -> Known:
    """The real set of that name."""
    real = {known.name: known for known in everything().values() if known.forms}
    if name not in real:
        raise UserError(f"data ({name}) must be a known set{nearest(name, real)}")
    return real[name]


def fetched() -> Path:
    """The folder into which sets are fetched."""
    return cache.home() / "data"


def given() -> Path | None:
    """The folder that EVERYNET_DATA names."""
    named = os.environ.get("EVERYNET_DATA")
    if not named:
        return None
    if not Path(named).is_dir():
        raise UserError(
            f"EVERYNET_DATA ({named}) must be a folder that exists; make it or unset it"
        )
    return Path(named)


def places(form: Form, roots: Sequence[Path] = ()) -> dict[Content, Path]:
    """Which file holds each content of a form; those that no folder holds are left out."""
    roots = roots or tuple(root for root in (given(), fetched()) if root)
    found = {content: _place(form, content, roots) for content in form.contents}
    return {content: path for content, path in found.items() if path}


def _place(form: Form, content: Content, roots: Sequence[Path]) -> Path | None:
    for root in roots:
        folder = root / form.folder
        files = [folder / (name + suffix) for name in content.names for suffix in ("", ".gz")]
        if form.unpacked:
            files.append(folder / form.unpacked / content.name)
        if form.archive:
            files.append(folder / form.archive.name)
        for file in files:
            if os.path.lexists(file):
                return file
    return None


def where(known: Known) -> str:
    """Where a set is now, in the words of `everynet data list`; no file is opened."""
    roots = {"EVERYNET_DATA": given(), "cache": fetched()}
    for name, root in roots.items():
        if root and any(len(places(form, [root])) == len(form.contents) for form in known.forms):
            return name
    partly = [name for name, root in roots.items() if root and places(known.forms[0], [root])]
    return f"in part in {' and '.join(partly)}" if partly else "not here"


def whole(known: Known) -> tuple[Form, dict[Content, Path]] | None:
    """The first form of which every file is here."""
    for form in known.forms:
        found = places(form)
        if len(found) == len(form.contents):
            return form, found
    return None


def contents(known: Known, found: Mapping[Content, Path]) -> dict[Content, bytes]:
    """What the files of a set hold, checked."""
    files: dict[Path, list[Content]] = {}
    for content, path in found.items():
        files.setdefault(path, []).append(content)
    held: dict[Content, bytes] = {}
    for path, wanted in files.items():
        try:
            held.update(take(path, wanted))
        except DamagedFile as damage:
            raise UserError(f"{path} is damaged: it {damage}; {_remedy(known, path)}") from damage
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    return held


def _remedy(known: Known, path: Path) -> str:
    if path.is_relative_to(fetched()):
        return f"everynet data get {known.name} fetches it again"
    return "put a whole copy in its place or remove it"


def samples(known: Known) -> Any:  # noqa: ANN401 -- those of its kind
    """What a real set holds, fetched if no folder has it."""
    from everynet.data.download import fetch  # noqa: PLC0415 -- imports torch

    form, found = whole(known) or fetch.missing(known)
    held = contents(known, found)
    made = form.decode([held[content] for content in form.contents])
    return replace(made, name=known.name, digest=known.digest)
