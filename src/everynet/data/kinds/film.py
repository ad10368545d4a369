"""Films that a network makes, such as games it plays; they are written, and no data is read so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from everynet.data.dataset import Spec
from everynet.data.kinds import Kind
from everynet.plot.film import Film
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown, with_article


class Films(Kind[None]):
    """What `sample` writes where a recipe makes a film, whatever its data is."""

    name: ClassVar[str] = "film"

    def write(self, made: Any, spec: Spec, path: Path) -> list[Path]:  # noqa: ANN401 -- to check
        """An animated WebP, and beside it a strip of frames as PNG."""
        if not isinstance(made, Film):
            given = with_article(type(made).__name__)
            raise UserError(
                f"sample ({given}) must return a Film, because the recipe writes `film`; return "
                "everynet.plot.Film(frames, rate)"
            )
        if path.suffix not in ("", ".webp"):
            raise UserError(f"--out ({shown(path)}) must end in .webp, because a film was made")
        contents = {path.with_suffix(".webp"): made.webp(), path.with_suffix(".png"): made.strip()}
        for each, content in contents.items():
            files.write(each, content)
        return [*contents]


KIND = Films()
