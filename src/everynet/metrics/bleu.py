"""BLEU: the share of a translation's n-grams that its references have, less a penalty for brevity.

    m_n  = sum_g min(h(g), max_k r_k(g))                        (1)  n-grams matched, clipped
    p_n  = m_n / t_n,  or  1 / (2^z t_n) where m_n = 0          (2)  precision, smoothed
    BP   = 1 if c > r else exp(1 - r / c)                       (3)  brevity penalty
    BLEU = 100 BP exp(sum_{n <= N} log(p_n) / N)                (4)  0 where nothing matches

g runs over the different n-grams of a hypothesis, which has h(g) of each; its k-th reference has
r_k(g). t_n is the number of its n-grams, c its length and r that of the closest reference, of two
that are equally close the shorter; z of the orders 1 to n have no match. For a corpus m, t, c and r
are added up over sentences before (2), and N = 4; for a sentence N is the highest order it has
(the effective order). Scores equal those of sacrebleu, and `signature` has its form:

    matches = match_texts(hypotheses, [references], lowercase=True)
    print(corpus_bleu(matches), sentence_bleu(matches))

Papineni, Roukos, Ward, Zhu (2002), "BLEU: a method for automatic evaluation of machine
translation", ACL; (2) where m_n = 0: Chen, Cherry (2014), "A systematic comparison of smoothing
techniques for sentence-level BLEU", WMT, method 3; Post (2018), "A call for clarity in reporting
BLEU scores", arXiv:1804.08771.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from everynet import __version__
from everynet.system.wording import unknown

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Matches:
    """The counts of each sentence from which BLEU follows, and how they were counted."""

    matched: Int64[Tensor, "sentences orders"]
    """N-grams that a reference has too, by their number of tokens n."""
    length: Int64[Tensor, " sentences"]
    reference_length: Int64[Tensor, " sentences"]
    """The length of the reference whose length is closest."""
    references: int
    tokenize: str
    lowercase: bool = False

    @property
    def total(self) -> Int64[Tensor, "sentences orders"]:
        """The n-grams of each sentence."""
        return (self.length[:, None] - torch.arange(self.matched.shape[1])).clamp(min=0)

    def signature(self, *, effective_order: bool = False) -> str:
        """What the score depends on, in sacrebleu's form; sentences have the effective order."""
        case, effective = "lc" if self.lowercase else "mixed", "yes" if effective_order else "no"
        orders = self.matched.shape[1]
        return (
            f"nrefs:{self.references}|case:{case}|eff:{effective}|tok:{self.tokenize}|smooth:exp|"
            f"{'' if orders == 4 else f'orders:{orders}|'}version:everynet-{__version__}"
        )


@dataclass(frozen=True)
class Bleu:
    """BLEU of a corpus, from 0 to 100, and its parts; printed as sacrebleu prints it."""

    score: float
    precisions: tuple[float, ...]
    """In per cent, smoothed."""
    brevity_penalty: float
    length: int
    reference_length: int
    signature: str

    def __str__(self) -> str:
        precisions = "/".join(f"{p:.1f}" for p in self.precisions)
        ratio = self.length / self.reference_length if self.reference_length else 0
        return (
            f"BLEU|{self.signature} = {self.score:.2f} {precisions} "
            f"(BP = {self.brevity_penalty:.3f} ratio = {ratio:.3f} "
            f"hyp_len = {self.length} ref_len = {self.reference_length})"
        )


def corpus_bleu(matches: Matches) -> Bleu:
    """BLEU of all sentences together, whose counts are added up."""
    matched, total = (counts.sum(0, keepdim=True) for counts in (matches.matched, matches.total))
    c, r = matches.length.sum(), matches.reference_length.sum()
    p, penalty = _precisions(matched, total), _brevity_penalty(c[None], r[None])
    score = _scores(matched, p, penalty, torch.tensor([matched.shape[1]]))
    return Bleu(
        score.item(), tuple((100 * p[0]).tolist()), penalty.item(), int(c), int(r),
        matches.signature(),
    )  # fmt: skip


def sentence_bleu(matches: Matches) -> Float64[Tensor, " sentences"]:
    """BLEU of each sentence by itself, up to the highest order of n-grams that it has."""
    p = _precisions(matches.matched, matches.total)
    penalty = _brevity_penalty(matches.length, matches.reference_length)
    return _scores(matches.matched, p, penalty, (matches.total > 0).sum(1))


def _precisions(
    matched: Int64[Tensor, "rows orders"], total: Int64[Tensor, "rows orders"]
) -> Float64[Tensor, "rows orders"]:
    """Of n-grams that a row does not have, and of a row without any match, 0."""
    none = (matched == 0) & (total > 0)
    smoothed = matched.double().where(~none, 0.5 ** none.double().cumsum(1))
    return smoothed / total.clamp(min=1) * matched.any(1, keepdim=True)  # (2)


def _brevity_penalty(
    c: Int64[Tensor, " rows"], r: Int64[Tensor, " rows"]
) -> Float64[Tensor, " rows"]:
    return torch.where(c < r, torch.exp(1 - r.double() / c), 1.0)  # (3)


def _scores(
    matched: Int64[Tensor, "rows orders"],
    p: Float64[Tensor, "rows orders"],
    penalty: Float64[Tensor, " rows"],
    highest: Int64[Tensor, " rows"],
) -> Float64[Tensor, " rows"]:
    counted = torch.arange(p.shape[1]) < highest[:, None]
    mean = p.log().where(counted, 0).sum(1) / highest.clamp(min=1)
    return (100 * penalty * mean.exp()).where(matched.any(1), 0)  # (4)


def match_texts(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    orders: int = 4,
) -> Matches:
    """Count n-grams of texts; `references` are one or more lists, each as long as hypotheses.

    `tokenize` is "13a", which parts punctuation from words as mteval-v13a does, or "none", which
    cuts at white space alone.
    """
    if tokenize not in TOKENIZERS:
        raise ValueError(unknown("tokenize", tokenize, TOKENIZERS))
    if isinstance(hypotheses, str) or any(isinstance(texts, str) for texts in references):
        raise TypeError(
            "hypotheses must be a list of texts and references a list of such lists, because a "
            "sentence may have several; write [text] for one text, [texts] for one list"
        )
    _check(len(hypotheses), list(map(len, references)), orders)
    texts = [*hypotheses, *chain.from_iterable(references)]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"texts must be strings, not {type(text).__name__}; see match_ids")
    if lowercase:
        texts = [text.lower() for text in texts]
    words = [text.split() for text in TOKENIZERS[tokenize](texts)]
    numbers = defaultdict[str, int](count().__next__)
    tokens = np.fromiter(map(numbers.__getitem__, chain.from_iterable(words)), np.int64)
    lengths = np.fromiter(map(len, words), np.int64)
    matched, c, r = _match(tokens, lengths, len(hypotheses), orders)
    return Matches(matched, c, r, len(references), tokenize, lowercase)


def match_ids(
    hypotheses: Int[Tensor, "sentences time"],
    references: Sequence[Int[Tensor, "sentences _"]],
    *,
    ignored: Sequence[int] = (0,),
    orders: int = 4,
) -> Matches:
    """Count n-grams of token ids, but for the `ignored` ones: padding, <start>, <end>."""
    if isinstance(references, Tensor):
        raise TypeError("references must be a list of tensors, one a set; write [references]")
    _check(len(hypotheses), list(map(len, references)), orders)
    if any(x.is_floating_point() for x in (hypotheses, *references)):
        raise TypeError("ids must be integers, the numbers of tokens; of logits take the argmax")
    ids = [x.cpu().long() for x in (hypotheses, *references)]
    kept = [~torch.isin(x, torch.tensor(ignored, dtype=torch.int64)) for x in ids]
    tokens = torch.cat([x[mask] for x, mask in zip(ids, kept, strict=True)])
    lengths = torch.cat([mask.sum(1) for mask in kept])
    _, dense = np.unique(tokens.numpy(), return_inverse=True)
    matched, c, r = _match(dense, lengths.numpy(), len(hypotheses), orders)
    return Matches(matched, c, r, len(references), "ids")


def _check(hypotheses: int, references: Sequence[int], orders: int) -> None:
    if orders < 1:
        raise ValueError(f"orders ({orders}) must be 1 or more, the longest n-grams; BLEU has 4")
    if not hypotheses or not references:
        raise ValueError(
            f"hypotheses ({hypotheses}) and lists of references ({len(references)}) must each be "
            "1 or more, because BLEU compares them; give some"
        )
    for number, given in enumerate(references, 1):
        if given != hypotheses:
            raise ValueError(
                f"references {number} ({given} sentences) must be as many as the hypotheses "
                f"({hypotheses}), because they are compared one by one; give one for each"
            )


def _match(
    tokens: Ints, lengths: Ints, sentences: int, orders: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Matches by order, and the lengths c and r, from the tokens of all texts in one row.

    The texts are the hypotheses, then the references, list after list. An n-gram is known by its
    sentence and tokens: its number is that of the (n-1)-gram it begins with and its last token,
    both in one integer, numbered anew by sorting. Where an n-gram has no match, no longer one
    that begins with it has, so that only those that matched go on.
    """
    text = np.repeat(np.arange(len(lengths)), lengths)
    ends = lengths.cumsum()[text]
    sides, vocabulary = len(lengths) // sentences, int(tokens.max(initial=0)) + 1
    matched = np.zeros((sentences, orders), np.int64)
    begins, gram = np.arange(len(tokens)), text % sentences
    for n in range(orders):
        _, gram = np.unique(gram * vocabulary + tokens[begins + n], return_inverse=True)
        grams = int(gram.max(initial=-1)) + 1
        side, sentence = np.divmod(text[begins], sentences)
        counts = np.bincount(side * grams + gram, minlength=sides * grams).reshape(sides, grams)
        shared = np.minimum(counts[0], counts[1:].max(0))  # (1)
        owner = np.empty(grams, np.int64)
        owner[gram] = sentence
        matched[:, n] = np.bincount(owner, shared, sentences)
        going = (shared[gram] > 0) & (begins + n + 1 < ends[begins])
        begins, gram = begins[going], gram[going]
    c, *others = lengths.reshape(sides, sentences)
    closest = np.argmin([2 * np.abs(r - c) + (r > c) for r in others], 0)
    r = np.take_along_axis(np.stack(others), closest[None], 0)[0]
    return torch.from_numpy(matched), torch.tensor(c), torch.from_numpy(r)


_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_RULES = (
    (re.compile(r"[!-&(-+/:-@\[-`{-~]"), r" \g<0> "),  # ASCII punctuation but for ' , - .
    (re.compile(r"(\D)([.,])", re.ASCII), r"\1 \2 "),  # . and , unless after a digit
    (re.compile(r"([.,])(\D)", re.ASCII), r" \1 \2"),  # . and , unless before a digit
    (re.compile(r"(\d)-", re.ASCII), r"\1 - "),  # a dash after a digit
)


def _split_13a(texts: Sequence[str]) -> list[str]:
    """Part punctuation from words; the rules run over all texts at once, a line each."""
    lines = [text.rstrip().replace("<skipped>", "").replace("-\n", "") for text in texts]
    whole = "\n".join([f" {line.replace(chr(10), ' ')} " for line in lines])
    if "&" in whole:
        for entity, character in _ENTITIES:
            whole = whole.replace(entity, character)
    for pattern, spaced in _RULES:
        whole = pattern.sub(spaced, whole)
    return whole.split("\n")


TOKENIZERS: Mapping[str, Callable[[Sequence[str]], Sequence[str]]] = {
    "13a": _split_13a,
    "none": lambda texts: texts,
}
