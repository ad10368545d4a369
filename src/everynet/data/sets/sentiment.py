"""Texts with a class: generated phrases, and the Stanford Sentiment Treebank by sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from everynet.data.download.contents import Content
from everynet.data.sets import Form, Known


def _phrases(count: str) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import phrases  # noqa: PLC0415 -- imports torch
    from everynet.system.errors import UserError  # noqa: PLC0415

    if count:
        raise UserError(
            f"data (phrases:{count[:40]}) must be phrases: it has a fixed number of samples"
        )
    return phrases.phrases()


def _decode(classes: tuple[str, ...]) -> Callable[[Sequence[bytes]], Any]:
    """Lines of a number, a space and a text; `classes` names the numbers."""

    def decode(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- samples
        from everynet.data.kinds.labelled import Labelled  # noqa: PLC0415 -- imports torch
        from everynet.data.split import PARTS  # noqa: PLC0415
        from everynet.data.texts.lines import cut  # noqa: PLC0415

        parts = {}
        for part, content in zip(PARTS, held, strict=True):
            rows = [line.split(" ", 1) for line in cut(content.decode())]
            parts[part] = ([text for _, text in rows], [classes[int(row[0])] for row in rows])
        return Labelled(
            name="",
            parts=parts,
            digest="",
            split="train, valid and test are those that ship with it",
            published=True,
            classes=classes,
        )

    return decode


_BINARY = (
    Content(
        "stsa.binary.train",
        738_844,
        "71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338",
    ),
    Content(
        "stsa.binary.dev",
        94_400,
        "02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1",
    ),
    Content(
        "stsa.binary.test",
        193_562,
        "6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b",
    ),
)
_FINE = (
    Content(
        "stsa.fine.train",
        902_818,
        "9b52b5f686ed438d4d0274c385369251b3d579b578fddd340ba8a9bae2ca4bee",
    ),
    Content(
        "stsa.fine.dev",
        117_239,
        "b2f76c62b960f9fda5c6d751edb125abab4f878eb94a8754239b7f4af647f4c3",
    ),
    Content(
        "stsa.fine.test",
        233_634,
        "0e2ebb450c231f7b3d67fc932066e7bb26ae7bad8c88488f45ed44ef02eb3c73",
    ),
)
_LICENCE = "none stated; cite Pang and Lee (2005), Socher et al. (2013)"
_FEELINGS = ("very negative", "negative", "neutral", "positive", "very positive")

SETS = (
    Known(
        "phrases",
        "labelled",
        "2,000 short sentences, good or bad, in which a not turns the sense round",
        "generated: no licence needed",
        make=_phrases,
    ),
    Known(
        name="sst",
        kind="labelled",
        about="sentences of film reviews, negative or positive: 6,920 + 872 + 1,821",
        licence=_LICENCE,
        forms=(Form("sentiment", _decode(("negative", "positive")), _BINARY),),
    ),
    Known(
        name="sst-fine",
        kind="labelled",
        about="sentences of film reviews in five degrees: 8,544 + 1,101 + 2,210",
        licence=_LICENCE,
        forms=(Form("sentiment", _decode(_FEELINGS), _FINE),),
    ),
)
