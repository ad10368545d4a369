"""What decides a result is sealed: manifest.json has the SHA-256 of each file and of itself.

In a run folder it seals recipe.json, environment.json, spec.json and, in a cell, ended.json. Before
one of them changes, the manifest says what it was and what it will be, and afterwards what it is:
a kill at any point leaves a folder whose files are all known. A checksum tells of accidents and of
edits; whoever can write all files of a folder can seal them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from everynet.system import files
from everynet.system.errors import Damaged, Missing, UserError

NAME = "manifest.json"
SEALED = ("recipe.json", "environment.json", "spec.json", "ended.json")
DEEP = 64  # lists and objects in each other
TRIES = 20  # looks at a file that a run is just writing
ABSENT = ""
"""Stands for the digest of a file that is not there yet."""


def digest(content: bytes) -> str:
    """The SHA-256 of bytes."""
    return hashlib.sha256(content).hexdigest()


def canonical(value: object) -> bytes:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode()


def parsed(content: bytes, path: Path) -> Any:  # noqa: ANN401 -- JSON, any value
    """The value of a file of JSON, if it is nested as ours are."""
    try:
        value = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: it is not JSON ({error})") from error
    level = [value]
    for _ in range(DEEP):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise Damaged(f"{path} is damaged: it is nested deeper than {DEEP} levels")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _inside(value: object) -> list[Any]:
    """The lists and objects in a list or object."""
    values = [*value.values()] if isinstance(value, dict) else value
    return [v for v in values if isinstance(v, dict | list)] if isinstance(values, list) else []


def written(digests: Mapping[str, object]) -> bytes:
    """The bytes of a manifest."""
    manifest = {"format": 1, "files": dict(digests)}
    return canonical({**manifest, "self": digest(canonical(manifest))})


def opened(content: bytes, path: Path) -> dict[str, Any]:
    """What a manifest says of files, if every byte of it is as it was written."""
    manifest = parsed(content, path)
    known = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(known, dict) or content != written(known):
        raise Damaged(f"{path} is damaged: its checksum does not match")
    return known


# ------------------------------------------------------------------------------- a run's own files


def sealed(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a new run folder, and the manifest of those that decide its result."""
    digests = {name: [digest(contents[name])] for name in contents if name in SEALED}
    return {**contents, NAME: written(digests)}


def put(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files that are sealed, so that each is known whenever the process may end."""
    known = _known(folder)[1] if files.exists(folder / NAME) else {}
    new = {name: [digest(content)] for name, content in contents.items()}
    if all(known.get(name) == new[name] for name in new):
        return
    now = {name: [_digest_of(folder / name)] for name in new}
    for name, (found,) in now.items():
        if found not in known.get(name, [ABSENT, found]):
            raise _changed(folder / name)
    both = {name: [*now[name], *new[name]] for name in new}
    files.write(folder / NAME, written({**known, **both}))
    for name, content in contents.items():
        files.write(folder / name, content)
    files.write(folder / NAME, written({**known, **new}))


def read(path: Path) -> bytes:
    """A file of a run folder, every byte of which is as it was written."""
    return _read_files(path.parent, (path.name,))[path.name]


def _read_files(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Files of a run folder, every byte of which is as it was written; the manifest is read once.

    A run may be writing the folder meanwhile: then all of it is read again.
    """
    for _ in range(TRIES):
        manifest, known = _known(folder)
        contents: dict[str, bytes] = {}
        for name in names:
            try:
                contents[name] = files.read(folder / name)
            except Missing:
                if ABSENT in known.get(name, [ABSENT]):
                    raise
                break
            if digest(contents[name]) not in known.get(name, []):
                break
        else:
            return contents
        if files.read(folder / NAME) == manifest:  # else a run wrote both meanwhile
            break
    raise _changed(folder / name)


def read_json(path: Path) -> dict[str, Any]:
    """A file of JSON of a run folder, which must hold an object."""
    return read_json_files(path.parent, (path.name,))[path.name]


def read_json_files(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Files of JSON of a run folder, each of which must hold an object."""
    if not files.exists(folder / "recipe.json"):
        raise UserError(f"{folder} is not a run folder: it has no recipe.json")
    try:
        contents = _read_files(folder, names)
    except Missing as error:
        name = next(name for name in names if not files.exists(folder / name))
        raise UserError(f"{folder} is not a run folder: it has no {name}") from error
    values = {name: parsed(content, folder / name) for name, content in contents.items()}
    for name, value in values.items():
        if not isinstance(value, dict):
            raise Damaged(f"{folder / name} is damaged: it must hold an object")
    return values


def _known(folder: Path) -> tuple[bytes, dict[str, list[str]]]:
    """The bytes of a manifest, and the digests that each file may have."""
    path = folder / NAME
    try:
        content = files.read(path)
    except Missing:
        raise UserError(
            f"{folder} has no {NAME}, because another version of everynet made it or it was taken "
            "away; run it again, or use that version"
        ) from None
    known = opened(content, path)
    for name, digests in known.items():
        if name not in SEALED or not _are_digests(digests):
            raise Damaged(f"{path} is damaged: {name[:40]} is none of our files")
    return content, known


def _are_digests(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _digest_of(path: Path) -> str:
    try:
        return digest(files.read(path))
    except Missing:
        return ABSENT


def _changed(path: Path) -> Damaged:
    return Damaged(
        f"{path} has been changed since it was written, so that nobody can say what the run is; "
        "bring it back as it was, or run the recipe anew"
    )
