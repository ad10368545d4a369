"""Files that the user gave: how they are read, and how they are named in an error message."""

from __future__ import annotations

from pathlib import Path

from everynet.types import UserError
from everynet.words import shown


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
