"""Images without classes: the image files of one folder, for networks that learn to draw.

    faces/1.jpg   faces/2.jpg                    split by hash of the file name

They are read, treated and written as images with a class each. Only a recipe that asks for this
kind takes such a folder: a classifier says that classes are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.images import folder
from everynet.data.images.decode import SUFFIXES
from everynet.data.images.decoded_cache import Decoded
from everynet.data.images.skipped import Tally
from everynet.data.kinds.image import Image
from everynet.data.kinds.image_kind import Listing
from everynet.data.paths import kind as kind_of_path


class Unlabelled(Image):
    """Images, each with a 0 where others have a class."""

    name: ClassVar[str] = "unlabelled"
    about: ClassVar[str] = "images without classes: a folder of image files"
    in_memory: ClassVar[str] = ""
    arrays: ClassVar[tuple[str, ...]] = ()
    keyed: ClassVar[str] = "file name"

    def matches(self, path: Path) -> bool:
        """Whether it is a folder of images with no folder in it: those would be classes."""
        if kind_of_path(path) != "folder":
            return False
        inside = folder.entries(path)
        images = any(entry.suffix.lower() in SUFFIXES for entry in inside)
        return images and not any(entry.is_dir() for entry in inside)

    def guess_task(self, path: Path) -> str:
        return "density"

    def list_files(self, root: Path, tally: Tally, probe: folder.Probe) -> list[Any]:
        return [("image", path) for path in folder.walk(root) if tally.takes(path, probe)]

    def require(self, path: Path, parts: Listing, tally: Tally, like: Spec | None) -> None:
        folder.require_parts(path, parts, tally)

    def label(
        self, path: Path, parts: Listing, columns: Sequence[Decoded], like: Spec | None
    ) -> tuple[Tensor, dict[str, Any]]:
        rows = sum(map(len, parts.values()))
        return torch.zeros(rows, dtype=torch.int64), {"task": "density"}


KIND = Unlabelled()
