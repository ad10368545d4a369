"""Translation and its scores, beside the peers; so far BLEU, beside sacrebleu.

    python benchmarks/attention.py                    the tables of benchmarks/RESULTS.md
    python benchmarks/attention.py --part bleu        one part
    python benchmarks/attention.py --repeats 1        a quick look, written nowhere

BLEU: the 1,000 German captions of Multi30k's test where EVERYNET_DATA holds them, else sentences of
`verb-final`, are the references; hypotheses are the same with words left out, replaced and swapped.
Each is given the same texts and splits them itself, in every turn; scores must be equal to ten
digits. `ids` are the tokens of "none" as padded tensors, which sacrebleu does not take.
"""

import functools
import importlib.metadata
import random
import sys
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, Turn, arguments

REACH = 3.0


@functools.cache
def texts() -> tuple[str, list[str], list[str], list[str]]:
    """What they are, hypotheses and two sets of references."""
    from everynet.data.loading import samples
    from everynet.system.errors import UserError

    try:
        what, first = "captions of Multi30k", samples("multi30k-de", kind="pairs").parts["test"][1]
    except UserError:  # they are not here
        what, first = "sentences", samples("verb-final:5000", kind="pairs").parts["test"][1]
    draw = random.Random(1)
    words = [word for text in first for word in text.split()]

    def corrupt(text: str) -> str:
        kept = [word for word in text.split() if draw.random() > 0.08]
        other = [draw.choice(words) if draw.random() < 0.1 else word for word in kept]
        for at in draw.choices(range(max(1, len(other) - 1)), k=max(1, len(other) // 8)):
            other[at : at + 2] = reversed(other[at : at + 2])
        return " ".join(other)

    return what, [corrupt(text) for text in first], first, [corrupt(text) for text in first]


def given_to(job: Job) -> tuple[list[str], list[list[str]]]:
    _, hypotheses, *references = texts()
    return hypotheses, references[: job["references"]]


def with_everynet(job: Job) -> Callable[[], Turn]:
    from everynet.metrics.bleu import corpus_bleu, match_texts, sentence_bleu

    hypotheses, references = given_to(job)

    def score() -> Turn:
        matches = match_texts(hypotheses, references, tokenize=job["tokenize"])
        if job["task"] == "sentences":
            return Turn(note=f"mean {sentence_bleu(matches).mean().item():.10f}")
        return Turn(note=f"{corpus_bleu(matches).score:.10f}")

    return score


def with_ids(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.metrics.bleu import corpus_bleu, match_ids

    hypotheses, references = given_to(job)
    index: dict[str, int] = {}

    def padded(side: list[str]) -> torch.Tensor:
        rows = [[index.setdefault(w, len(index) + 1) for w in text.split()] for text in side]
        return torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True)

    own, others = padded(hypotheses), [padded(side) for side in references]
    return lambda: Turn(note=f"{corpus_bleu(match_ids(own, others)).score:.10f}")


def with_sacrebleu(job: Job) -> Callable[[], Turn]:
    from sacrebleu.metrics import BLEU

    hypotheses, references = given_to(job)

    def score() -> Turn:
        alone = job["task"] == "sentences"
        bleu = BLEU(tokenize=job["tokenize"], effective_order=alone)  # anew: it remembers sentences
        if not alone:
            return Turn(note=f"{bleu.corpus_score(hypotheses, references).score:.10f}")
        pairs = zip(hypotheses, zip(*references, strict=True), strict=True)
        scores = [bleu.sentence_score(own, others).score for own, others in pairs]
        return Turn(note=f"mean {sum(scores) / len(scores):.10f}")

    return score


def scorers() -> list[Contestant]:
    """Ours first."""
    try:
        ours = importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:  # src is on the path, and that is enough
        ours = ""
    return [
        Contestant("everynet", with_everynet, "everynet.metrics", ours),
        Contestant("sacrebleu", with_sacrebleu, "sacrebleu", "sacrebleu", reach=REACH),
        Contestant("everynet ids", with_ids, "everynet.metrics", ours),
    ]


def score_translations(page: Page) -> None:
    for title, racing, task, tokenize, references in (
        ("A corpus, none", 3, "corpus", "none", 1),
        ("A corpus, none, two references", 3, "corpus", "none", 2),
        ("A corpus, 13a", 2, "corpus", "13a", 1),
        ("Each sentence, none", 2, "sentences", "none", 1),
    ):
        job = {"task": task, "tokenize": tokenize, "references": references, "threads": 1}
        page.round(title, scorers()[:racing], job)
    what, hypotheses, *_ = texts()
    page.close(
        "BLEU",
        f"{len(hypotheses):,} {what}, corrupted, against themselves; seconds for all, splitting "
        f"included; best of {page.given.repeats} alternating turns on one thread.",
        part="bleu",
    )


PARTS = {"bleu": score_translations}


def main() -> None:
    given = arguments(__doc__.splitlines()[0], scorers(), repeats=7)
    page = Page("attention", __file__, given)
    for name, part in PARTS.items():
        if given.part in ("", name):
            part(page)


if __name__ == "__main__":
    sys.exit(main())
