"""Tokens: how text becomes whole numbers and back, by characters or by words.

What was learned of a text (its vocabulary) is plain JSON in `spec["tokens"]`, so that whatever is
asked later is cut exactly as the training text was. A token that training did not hold is
`<unknown>`. Words are what stands between spaces; the end of a line is a token of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from everynet.types import Spec, UserError, nearest

PAD, UNKNOWN, START, END = "<pad>", "<unknown>", "<start>", "<end>"
SENTENCE = (PAD, UNKNOWN, START, END)
"""The first tokens of a vocabulary of sentences: filler, what is new, beginning and end."""
STREAM = (UNKNOWN,)
"""The first token of a vocabulary of one long text."""
KINDS = ("characters", "words")

_WORDS = re.compile(r"\n|[^\s]+")


def cut(text: str, kind: str) -> list[str]:
    """A text as its tokens."""
    return list(text) if kind == "characters" else _WORDS.findall(text)


@dataclass(frozen=True)
class Tokens:
    """A vocabulary: token n is `vocabulary[n]`."""

    kind: str
    vocabulary: tuple[str, ...]
    index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"tokens ({self.kind}) must be one we have{nearest(self.kind, KINDS)}")
        index = {token: number for number, token in enumerate(self.vocabulary)}
        object.__setattr__(self, "index", index)

    @staticmethod
    def learned(
        texts: Iterable[str], kind: str, special: Sequence[str] = STREAM, most: int = 0
    ) -> Tokens:
        """The tokens of some texts, the commonest first; only `most` of them where that is set."""
        if kind not in KINDS:
            raise UserError(f"tokens ({kind}) must be one we have{nearest(kind, KINDS)}")
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(cut(text, kind))
        common = sorted(counts, key=lambda token: (-counts[token], token))
        room = max(0, most - len(special)) if most else None
        kept = [token for token in common if token not in special][:room]
        return Tokens(kind, (*special, *kept))

    @staticmethod
    def of(spec: Spec, name: str = "tokens") -> Tokens:
        """The tokens that a description of data holds."""
        return Tokens(spec[name]["kind"], tuple(spec[name]["vocabulary"]))

    @property
    def spec(self) -> Spec:
        """Itself as plain JSON."""
        return {"kind": self.kind, "vocabulary": list(self.vocabulary)}

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's tokens."""
        unknown = self.index[UNKNOWN]
        return [self.index.get(token, unknown) for token in cut(text, self.kind)]

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of tokens; what is new becomes a replacement character, fillers are left out."""
        tokens = [self.vocabulary[number] for number in numbers]
        tokens = ["\N{REPLACEMENT CHARACTER}" if t == UNKNOWN else t for t in tokens]
        tokens = [token for token in tokens if token not in (PAD, START, END)]
        if self.kind == "characters":
            return "".join(tokens)
        return " ".join(tokens).replace(" \n ", "\n").replace(" \n", "\n").replace("\n ", "\n")
