"""The Stanford Sentiment Treebank by sentences: lines of a number, a space and a text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from everynet.data.kinds.labelled import Labelled
from everynet.data.split import PARTS
from everynet.data.texts.lines import cut


def decode(classes: tuple[str, ...], held: Sequence[bytes]) -> Labelled:
    """Sentences in the three parts that ship with the dataset; `classes` names the numbers."""
    parts = {}
    for part, content in zip(PARTS, held, strict=True):
        rows = [line.split(" ", 1) for line in cut(content.decode())]
        parts[part] = ([text for _, text in rows], [classes[int(row[0])] for row in rows])
    split = "train, valid and test are those that ship with it"
    return Labelled("", parts, "", split, published=True, classes=classes)


binary = partial(decode, ("negative", "positive"))
fine = partial(decode, ("very negative", "negative", "neutral", "positive", "very positive"))
