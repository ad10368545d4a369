"""The one folder of everynet in the user's cache: the index of the zoo and the sets fetched."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """Where it is, whether it exists or not."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "everynet"


def pixels() -> Path:
    """Where the decoded images of large folders are; it may be deleted whenever no run reads it."""
    return home() / "pixels"
