"""Byte pairs learned from 20 MB of text, and the same text cut by them, beside HF tokenizers.

    python benchmarks/tokens.py                          the table of benchmarks/RESULTS.md
    python benchmarks/tokens.py --megabytes 2 --repeats 1    a quick look, written nowhere

The text is text8 where EVERYNET_DATA has it, and otherwise as many words drawn by Zipf's law. Both
are given it in pieces of 10,000 characters cut at a space, with a vocabulary of 8,192 that holds
all bytes and no pair that is there but once, on one thread; what each makes of the text must be as
many tokens. HF tokenizers is called as its documentation shows for text in memory.
"""

import importlib.metadata
import os
import sys
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, Turn, arguments

VOCABULARY, PIECE = 8192, 10_000


def texts(job: Job) -> list[str]:
    """The text in pieces."""
    size = job["megabytes"] * 1_000_000
    try:
        from everynet.data.loading import samples

        whole = samples("text8", kind="text").parts["whole"]
    except Exception:  # without the set, words of the same law will do
        whole = drawn(size)
    whole = (whole * (size // len(whole) + 1))[:size]
    pieces, start = [], 0
    while start < len(whole):
        end = whole.find(" ", start + PIECE)
        end = len(whole) if end < 0 else end
        pieces.append(whole[start:end])
        start = end
    return pieces


def drawn(size: int) -> str:
    """Words of a to z, the n-th of them 1/n as common as the first."""
    import numpy as np

    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlcumwfgypbvkjxqz"))
    share = 1.0 / np.arange(2, 28)
    words = ["".join(random.choice(letters, n, p=share / share.sum())) for n in
             random.integers(2, 12, 100_000)]  # fmt: skip
    chance = 1.0 / np.arange(1, 100_001)
    return " ".join(words[n] for n in random.choice(100_000, size // 7, p=chance / chance.sum()))


def with_everynet(job: Job) -> Callable[[], object]:
    from everynet.data.texts.tokens import STREAM, Tokens

    given = texts(job)
    Tokens.learned(["a b ab ab"], "bpe", most=300).encode("ab")  # compiling is set-up
    learned = Tokens.learned(given, "bpe", most=VOCABULARY + len(STREAM))

    def learn() -> Turn:
        made = Tokens.learned(given, "bpe", most=VOCABULARY + len(STREAM))
        return Turn(note=f"{len(made.merges):,} pairs")

    def encode() -> Turn:
        fresh = Tokens(learned.kind, learned.vocabulary, learned.merges)  # remembers no word
        return Turn(note=f"{sum(len(fresh.stream(text)) for text in given):,} tokens")

    return learn if job["task"] == "learn" else encode


def with_tokenizers(job: Job) -> Callable[[], object]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    given = texts(job)

    def learned() -> Tokenizer:
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            min_frequency=2,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        made.train_from_iterator(given, trainer)
        return made

    tokenizer = learned()

    def learn() -> Turn:
        return Turn(note=f"{learned().get_vocab_size() - 256:,} pairs")

    def encode() -> Turn:
        made = tokenizer.encode_batch_fast(given)
        return Turn(note=f"{sum(len(one.ids) for one in made):,} tokens")

    return learn if job["task"] == "learn" else encode


def contestants() -> list[Contestant]:
    """Ours first; level with the peer is what is asked."""
    try:
        ours = importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:  # src is on the path, and that is enough
        ours = ""
    alone = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    return [
        Contestant("everynet", with_everynet, "everynet.data.texts.tokens", ours),
        Contestant("HF tokenizers", with_tokenizers, "tokenizers", "tokenizers", alone, reach=1.0),
    ]


def main() -> None:
    everyone = contestants()
    given = arguments(__doc__.splitlines()[0], everyone, repeats=5, megabytes=20)
    page = Page("tokens", __file__, given)
    for task, title in (("learn", "Learning"), ("encode", "Cutting")):
        job = {"task": task, "megabytes": given.megabytes, "threads": 1}
        page.round(f"{title}: {given.megabytes} MB, one thread", everyone, job)
    where = "text8" if os.environ.get("EVERYNET_DATA") else "words drawn by Zipf's law"
    page.close(
        "Byte pairs",
        f"{given.megabytes} MB of {where}, a vocabulary of {VOCABULARY:,} with all bytes, no pair "
        f"that is there but once; best of {given.repeats} alternating turns on one thread. "
        "Ours counts one token more, <unknown>.",
    )


if __name__ == "__main__":
    sys.exit(main())
