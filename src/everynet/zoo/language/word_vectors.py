"""Word vectors: the similarity of two words, and the word that completes an analogy.

    cos(a, b) = (v_a / |v_a|) . (v_b / |v_b|)                      (1)  similarity of two words
    d = argmax cos(v_d, v_b/|v_b| - v_a/|v_a| + v_c/|v_c|)         (2)  a is to b as c is to d

A dot is the inner product; vectors v are not of unit length, so both equations normalise them. The
words of the question and all but the 300,000 commonest are no answers to (2), and questions with an
unknown word are left out, as in gensim.

Mikolov, Chen, Corrado and Dean (2013), "Efficient Estimation of Word Representations in Vector
Space", arXiv:1301.3781, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from scipy.stats import spearmanr
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from torch import Tensor
from torch.nn.functional import normalize

from everynet.data.sets.judgements import Judgements
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown
from everynet.zoo.language import vector_files

RESTRICTED = 300_000
"""The commonest words, to which evaluation is restricted."""
LISTS = ("wordsim", "simlex")

SEARCHED = 4000
"""The commonest words, among which groups for the pictures are searched."""
FREQUENT, APART = 100, 0.4
"""The commonest words such as the and of, which head no group; the largest cosine of two heads."""
DRAWN = ("family", "capital-common-countries")
"""Sections of the analogies that are drawn, if they are there."""

Neighbours = list[tuple[str, float]]


class WordVectors(BaseEstimator):
    """Queries on `vectors_` of `words_`, the commonest first."""

    words_: list[str]
    vectors_: Float[Tensor, "vocab dimensions"]

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags

    def _fitted_words(self) -> list[str]:
        if not hasattr(self, "words_"):
            raise NotFittedError(f"{type(self).__name__} has learned no words yet; call fit first")
        return self.words_

    def row(self, word: str) -> int:
        """The index of a word, or of the same in lower case where it is not known as it stands."""
        words = self._fitted_words()
        if self.__dict__.get("_numbered") is not words:
            self._index = {one: number for number, one in enumerate(words)}
            self._numbered = words
        found = self._index.get(word, self._index.get(word.casefold()))
        if found is None:
            raise UserError(
                f"word ({shown(word)}) must be one of the {len(self.words_):,} that were learned"
                + nearest(word, self.words_[:RESTRICTED])
            )
        return found

    def vector(self, word: str) -> Float[Tensor, " dimensions"]:
        """The vector of a word, as it was learned."""
        number = self.row(word)
        return self.vectors_[number]

    def similarity(self, a: str, b: str) -> float:
        """The cosine between two words."""
        rows = [self.row(a), self.row(b)]
        unit = normalize(self.vectors_[rows], dim=1)
        return float(unit[0] @ unit[1])  # (1)

    def most_similar(self, word: str, n: int = 10) -> Neighbours:
        """The n words nearest to one, and their cosines."""
        return self.nearest([word], [], n)

    def analogy(self, a: str, b: str, c: str, n: int = 1) -> Neighbours:
        """What is to c as b is to a."""
        return self.nearest([b, c], [a], n)

    def nearest(self, positive: Sequence[str], negative: Sequence[str], n: int = 10) -> Neighbours:
        """The n words nearest to a sum and difference of unit vectors, none of those given."""
        signs = torch.tensor([1.0] * len(positive) + [-1.0] * len(negative))
        rows = torch.tensor([self.row(word) for word in (*positive, *negative)])
        unit = normalize(self.vectors_, dim=1)
        place = normalize((signs[:, None] * unit[rows]).sum(0), dim=0)  # (2)
        cosines = (unit @ place).index_fill(0, rows, -math.inf)
        best, found = cosines.topk(min(n, len(self.words_) - len(rows.unique())))
        return [(self.words_[i], x) for i, x in zip(found.tolist(), best.tolist(), strict=True)]

    def evaluate(self, by: Judgements) -> dict[str, float]:
        """Spearman's rank correlation with each list of pairs, and the accuracy on analogies.

        Questions with an unknown word are left out.
        """
        rows, kind, score, _ = select_known_questions(by, self._fitted_words()[:RESTRICTED])
        return summarise_questions(kind, score, self.score_questions(rows, kind))

    def score_questions(
        self, rows: Int[Tensor, "questions 4"], kind: Int[Tensor, " questions"]
    ) -> Tensor:
        """The cosine of each pair, and 1 for each analogy that is answered correctly."""
        unit = normalize(self.vectors_[:RESTRICTED], dim=1)
        found = (unit[rows[:, 0]] * unit[rows[:, 1]]).sum(1)
        analogies = kind == len(LISTS)
        for part in analogies.nonzero()[:, 0].split(512):
            a, b, c, d = rows[part].T
            cosines = (unit[b] - unit[a] + unit[c]) @ unit.T
            cosines.scatter_(1, torch.stack([a, b, c], 1), -math.inf)
            found[part] = (cosines.argmax(1) == d).float()
        return found

    def answer_line(self, line: str, n: int) -> dict[str, Any]:
        """Answer `like: queen` or `king - man + woman`; a line that cannot be answered says why."""
        parts = line.removeprefix("like:").split()
        if len(parts) % 2 == 0 or any(sign not in ("+", "-") for sign in parts[1::2]):
            why = f"line ({shown(line)}) must read like 'like: queen' or 'king - man + woman'"
            return {"refused": f"{why}, with a space on each side of a sign"}
        signs = ["+", *parts[1::2]]
        words = {
            sign: [w for w, s in zip(parts[::2], signs, strict=True) if s == sign] for sign in "+-"
        }
        try:
            return {
                "nearest": [[w, round(x, 4)] for w, x in self.nearest(words["+"], words["-"], n)]
            }
        except UserError as error:
            return {"refused": str(error)}

    # ------------------------------------------------------------------------------ pictures

    def similar_groups(self, most: int, each: int) -> dict[str, list[str]]:
        """Common words and their nearest neighbours; no word is in two groups."""
        searched = max(2, min(SEARCHED, len(self.words_) // 2))
        unit = normalize(self.vectors_[:searched], dim=1)
        cosines = (unit @ unit.T).fill_diagonal_(-1)
        best, found = cosines.topk(min(each, len(unit) - 1), dim=1)
        groups: dict[str, list[str]] = {}
        heads: list[int] = []
        used: set[int] = set()
        first = min(FREQUENT, searched // 8)
        for head in (best[first : searched // 2].mean(1).argsort(descending=True) + first).tolist():
            members = {head, *found[head].tolist()}
            if len(groups) < most and not members & used and all(cosines[head, heads] < APART):
                groups[self.words_[head]] = [self.words_[i] for i in (head, *found[head].tolist())]
                used |= members
                heads.append(head)
        return groups

    def unit_vectors(self, groups: Mapping[str, Sequence[str]]) -> Float[Tensor, "words dims"]:
        """The normalised vectors of all words of some groups."""
        rows = [self.row(word) for group in groups.values() for word in group]
        return normalize(self.vectors_[rows], dim=1)

    def analogy_pairs(self, by: Judgements) -> dict[str, tuple[list[tuple[str, str]], Tensor]]:
        """Up to eight pairs of words for each of two sections of analogies, with coordinates."""
        known = {word.casefold() for word in self.words_}
        found = {}
        for name, questions in by.analogies.items():
            both = dict.fromkeys((a, b) for a, b, *_ in questions if {a, b} <= known)
            pairs = sorted(both, key=lambda pair: max(map(self.row, pair)))[:8]  # the commonest
            if len(pairs) > 2:
                rows = torch.tensor([[self.row(a), self.row(b)] for a, b in pairs])
                unit = normalize(self.vectors_[rows.flatten()], dim=1)
                found[name] = (pairs, principal_plane(unit).reshape(-1, 2, 2))
        wanted = [name for name in DRAWN if name in found] or list(found)
        return {name: found[name] for name in wanted[:2]}

    # ------------------------------------------------------------------------------ files

    def save_text(self, path: str | Path) -> None:
        """Write the vectors in the text form of word2vec."""
        vector_files.save_text(path, self._fitted_words(), self.vectors_)

    def save_binary(self, path: str | Path) -> None:
        """Write the vectors in the binary form of word2vec."""
        vector_files.save_binary(path, self._fitted_words(), self.vectors_)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The vectors of a file in either format, which holds none of contexts."""
        words, vectors = vector_files.read_vectors(path)
        loaded = cls()
        loaded.words_, loaded.vectors_ = words, vectors
        return loaded


def select_known_questions(
    by: Judgements, words: Sequence[str]
) -> tuple[Int[Tensor, "questions 4"], Int[Tensor, " questions"], Float[Tensor, " questions"], int]:
    """Questions whose words are all known: their rows, the number of their list and their rating.

    The last value is the number of questions that are left out.
    """
    index = {word: number for number, word in reversed([*enumerate(w.casefold() for w in words)])}
    questions = [(n, (a, b, a, b), s) for n, name in enumerate(LISTS) for a, b, s in by.pairs[name]]
    questions += [(len(LISTS), q, 1.0) for section in by.analogies.values() for q in section]
    known = [(n, [index[w] for w in q], s) for n, q, s in questions if all(w in index for w in q)]
    rows = torch.tensor([row for _, row, _ in known], dtype=torch.long).reshape(-1, 4)
    kind, score = torch.tensor([n for n, _, _ in known]), torch.tensor([s for *_, s in known])
    return rows, kind.long(), score.float(), len(questions) - len(known)


def summarise_questions(
    kind: Int[Tensor, " questions"],
    score: Float[Tensor, " questions"],
    found: Float[Tensor, " questions"],
) -> dict[str, float]:
    """Rank correlations of the lists and the accuracy on analogies; 0 where there are too few."""
    metrics = {}
    for n, name in enumerate(LISTS):
        of = kind == n
        enough = int(of.sum()) > 2 and len(found[of].unique()) > 1
        metrics[name] = float(spearmanr(score[of], found[of])[0]) if enough else 0.0
    of = kind == len(LISTS)
    return metrics | {"analogies": float(found[of].double().mean()) if bool(of.any()) else 0.0}


def principal_plane(vectors: Float[Tensor, "words dimensions"]) -> Float[Tensor, "words 2"]:
    """Coordinates on the two principal axes."""
    centred = vectors - vectors.mean(0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    coordinates: Tensor = centred @ axes[:2].T
    return coordinates
