"""Lines of text as they were written: questions whose words the network must see whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from everynet.data.dataset import Spec
from everynet.data.in_memory import Part, texts_of
from everynet.data.kinds import Kind, files_in
from everynet.data.texts.lines import check_length, cut, read
from everynet.system.errors import UserError
from everynet.system.wording import shown


class Lines(Kind[Any]):
    """Inputs line by line; the text that was learned from is of the kind `text`."""

    name: ClassVar[str] = "lines"
    about: ClassVar[str] = "lines of text: one file in UTF-8"
    suffix: ClassVar[str] = ".txt"
    of_texts: ClassVar[bool] = True
    skips_empty_lines: ClassVar[bool] = True

    def matches(self, path: Path) -> bool:
        return False  # a text is what it looks like

    def reads_lines(self, spec: Spec) -> bool:
        return True

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], list[str]]:
        """Each line that is not empty, as it is."""
        names: list[str] = []
        lines: list[str] = []
        for path in files_in(paths):
            found = [(n, line.strip()) for n, line in enumerate(cut(read(path)), 1) if line.strip()]
            if not found:
                raise UserError(f"{shown(path)} must hold a line that is not empty")
            for number, line in found:
                check_length(path, number, line)
            names += [f"{path}:{number}" for number, _ in found]
            lines += [line for _, line in found]
        return names, lines

    def convert(self, x: Part, spec: Spec) -> list[str]:
        return [text.strip() for text in texts_of(x)]

    def line(self, spec: Spec) -> str:
        return f"{spec['name']}: text, {spec['shape'][0]:,} different words"


KIND = Lines()
