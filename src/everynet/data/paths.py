"""Files that the user gave: how they are read, and how they are named in an error message."""

from __future__ import annotations

from pathlib import Path

from everynet.system.errors import UserError
from everynet.system.wording import shown


def kind(path: Path) -> str:
    """What a path leads to: "folder", "file", "something else" or, if to nothing, ""."""
    try:
        if path.is_dir():
            return "folder"
        if path.is_file():
            return "file"
        return "something else" if path.exists() else ""
    except (OSError, ValueError) as error:  # a name that is too long, a folder that is closed
        raise unreadable(path, error) from None


def absolute(data: str) -> str:
    """A path, or two with a comma between them, from the root; any other name as it is."""
    from everynet.data import names  # noqa: PLC0415 -- the sets are not needed to read a file

    if not data or data.partition(":")[0] in names():
        return data
    if kind(Path(data)):
        return str(Path(data).absolute())
    parts = [Path(part) for part in data.split(",")]
    whole = [str(part.absolute()) for part in parts]
    alone = any("," in part for part in whole)  # then no comma could tell them apart
    return data if alone or not all(map(kind, parts)) else ",".join(whole)


def regular(path: Path) -> Path:
    """The path, if it leads to an ordinary file: reading a pipe or a device might never end."""
    found = kind(path)
    if found != "file":
        what = {"": "not there", "folder": "a folder"}.get(found, found)
        raise UserError(f"{shown(path)} must be a file, but is {what}")
    return path


def read_bytes(path: Path, most: int) -> bytes:
    """All of a file, if it is no larger than `most` bytes and not empty."""
    try:
        with regular(path).open("rb") as stream:
            content = stream.read(most + 1)
    except OSError as error:
        raise unreadable(path, error) from None
    if len(content) > most:
        raise UserError(f"{shown(path)} must be at most {most:,} bytes long")
    if not content:
        raise UserError(f"{shown(path)} is empty")
    return content


def unreadable(path: Path, error: Exception) -> UserError:
    """What is said of a file that the system or a decoder could not read."""
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return UserError(f"{shown(path)} cannot be read: {shown(why, 120)}")
