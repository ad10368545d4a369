"""Language models beside their peers: n-grams and nltk's, an LSTM and a loop by hand.

    python benchmarks/language.py                           the tables of benchmarks/RESULTS.md
    python benchmarks/language.py --part ngrams             one part
    python benchmarks/language.py --sentences 2000 --repeats 2      a quick look, written nowhere

The text is the Penn Treebank where EVERYNET_DATA holds it, else Python's help. A part is one
function that names its contestants and its rounds.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from side_by_side import Contestant, Job, Page, Turn, arguments

ORDER = 3
TIMES = 12
"""The test part is scored so many times over, to be long enough for a clock."""


def at_hand() -> str:
    """The known text that is at hand."""
    return "ptb" if os.environ.get("EVERYNET_DATA") else "topics"


def sentences(part: str, most: int) -> list[list[str]]:
    """The lines of a text as lists of words."""
    from everynet.data import load
    from everynet.data.texts.tokens import Tokens

    data = load(at_hand(), kind="text", batch_size=1, tokens="words")
    text = Tokens.of(data.spec).decode(data.splits[part][0].tolist())
    return [line.split() for line in text.split("\n") if line.strip()][:most]


# ---------------------------------------------------------------------------------------- n-grams


def checked(text: list[list[str]], asked: Callable[[str, list[str]], float]) -> None:
    """Refuse a model whose commonest trigram has another probability than its counts say."""
    trigrams = Counter(gram for s in text for gram in zip(s, s[1:], s[2:], strict=False))
    (a, b, c), count = trigrams.most_common(1)[0]
    pairs = sum(s[n : n + 2] == [a, b] for s in text for n in range(len(s) - 1))
    given = asked(c, [a, b])
    if abs(given - count / pairs) > 1e-9:
        raise ValueError(f"P({c} | {a} {b}) is {given} and must be {count / pairs}: other work")


def fit_everynet(smoothing: str) -> Callable[[Job], Callable[[], object]]:
    def prepare(job: Job) -> Callable[[], object]:
        from everynet.zoo.language.ngram_model import NGram

        text = sentences("train", job["sentences"])
        words = sum(map(len, text)) + len(text)
        model = NGram(job["order"], smoothing).fit(text)
        if smoothing == "mle" and job["order"] == ORDER:
            checked(text, lambda w, h: model.predict_next(h)[model.vocabulary_.index(w)])

        def work() -> Turn:
            NGram(job["order"], smoothing).fit(text)
            return Turn(note=f"{words:,} words")

        return work

    return prepare


def fit_nltk(job: Job) -> Callable[[], object]:
    """Counting alone: all that nltk's `fit` does, whatever the smoothing."""
    from nltk.lm import MLE
    from nltk.lm.preprocessing import padded_everygram_pipeline

    text = sentences("train", job["sentences"])

    def fitted():
        model = MLE(job["order"])
        model.fit(*padded_everygram_pipeline(job["order"], text))
        return model

    if job["sentences"] <= 4000:
        checked(text, fitted().score)
    return fitted


def score_everynet(form: str) -> Callable[[Job], Callable[[], object]]:
    """The test part, as sentences of words or as one row of their numbers."""

    def prepare(job: Job) -> Callable[[], object]:
        import numpy as np

        from everynet.zoo.language.ngram_model import NGram

        model = NGram(job["order"]).fit(sentences("train", job["sentences"]))
        text = sentences("test", job["sentences"]) * TIMES
        number = {word: n for n, word in enumerate(model.vocabulary_)}
        row = [number.get(word, 0) for s in text for word in [*s, "</s>"]]
        given = text if form == "words" else np.array(row)

        def work() -> Turn:
            model.logprob(given)
            return Turn(note=f"{len(row):,} words")

        return work

    return prepare


def score_nltk(job: Job) -> Callable[[], object]:
    """Laplace's smoothing, nltk's fastest; one time over, and the seconds taken TIMES as many."""
    import time

    from nltk.lm import Laplace
    from nltk.lm.preprocessing import pad_both_ends, padded_everygram_pipeline
    from nltk.util import ngrams

    model = Laplace(ORDER)
    model.fit(*padded_everygram_pipeline(ORDER, sentences("train", job["sentences"])))
    text = sentences("test", job["sentences"])

    def work() -> Turn:
        start = time.perf_counter()
        for sentence in text:
            for *history, word in ngrams(pad_both_ends(sentence, ORDER), ORDER):
                model.logscore(word, history)
        return Turn(TIMES * (time.perf_counter() - start), "Laplace")

    return work


def ngram_training() -> list[Contestant]:
    module = "everynet.zoo.language.ngram_model"
    return [
        Contestant("everynet n-grams", fit_everynet("mle"), module, "everynet"),
        Contestant(
            *("everynet, modified Kneser-Ney", fit_everynet("modified-kneser-ney")),
            *(module, "everynet"),
        ),
        Contestant("nltk", fit_nltk, "nltk.lm", "nltk", reach=20.0),
    ]


def ngram_scoring() -> list[Contestant]:
    module = "everynet.zoo.language.ngram_model"
    return [
        Contestant("everynet, numbers", score_everynet("numbers"), module, "everynet"),
        Contestant("everynet, words", score_everynet("words"), module, "everynet"),
        Contestant("nltk scores", score_nltk, "nltk.lm", "nltk"),
    ]


def ngrams(page: Page, lines: int) -> None:
    """Training and scoring of n-grams."""
    ours = [one for one in ngram_training() if one.name != "nltk"]
    job = {"sentences": lines, "threads": 1}
    page.round(f"Training, {ORDER}-grams", ngram_training(), {**job, "order": ORDER})
    page.round("Training, 5-grams", ours, {**job, "order": 5})
    page.round(
        f"Scoring {TIMES} test parts, {ORDER}-grams", ngram_scoring(), {**job, "order": ORDER}
    )
    page.round(f"Scoring {TIMES} test parts, 5-grams", ngram_scoring()[:2], {**job, "order": 5})
    page.close(
        "N-gram language models",
        f"The Penn Treebank (else Python's help), one thread; best of {page.given.repeats} "
        "alternating turns. Ours learns probabilities, nltk's `fit` counts. Scoring by numbers is "
        "to reach 5 million words a second: 0.20 s for a million.",
        part="ngrams",
    )


# ------------------------------------------------------------------------------------------- LSTM

UPDATES = 40
"""Of a turn."""


def lstm_everynet(job: Job) -> Callable[[], object]:
    """The recipe `lstm-ptb` through the trainer."""
    import itertools

    from everynet.recipes.catalog import find
    from everynet.training.loop import begin, train

    recipe = replace(find("lstm-ptb"), data=at_hand())
    data = recipe.dataset()
    state = begin(recipe, data)
    state.model.train()
    records = train(recipe, state, data)
    words = f"{data.spec['shape'][0]:,} words"

    def work() -> Turn:
        last = list(itertools.islice(records, UPDATES))[-1]
        return Turn(note=f"{words}, cross-entropy {float(last.terms['cross_entropy']):.2f}")

    return work


def lstm_plain(job: Job) -> Callable[[], object]:
    """The same network as one writes it with `nn.LSTM`: all logits at once, tied weights."""
    import torch
    from torch import nn

    from everynet.recipes.catalog import find

    recipe = replace(find("lstm-ptb"), data=at_hand())
    data = recipe.dataset()
    size, words = recipe.hidden_size, data.spec["shape"][0]
    stream = data.splits["train"][0].long()
    lanes = stream[: len(stream) // recipe.batch_size * recipe.batch_size]
    lanes = lanes.view(recipe.batch_size, -1).T.contiguous()
    embedding, output = nn.Embedding(words, size), nn.Linear(size, words)
    output.weight = embedding.weight
    lstm, drop = nn.LSTM(size, size, recipe.layers, dropout=recipe.dropout), nn.Dropout(0.2)
    weights = [*lstm.parameters(), *output.parameters()]
    for weight in weights:
        nn.init.uniform_(weight, -recipe.spread, recipe.spread)
    optimizer = torch.optim.SGD(weights, lr=1.0)
    h, at = None, 0

    def work() -> Turn:
        nonlocal h, at
        for _ in range(UPDATES):
            x, y = lanes[at : at + recipe.window], lanes[at + 1 : at + recipe.window + 1]
            at += recipe.window
            h = None if h is None else tuple(part.detach() for part in h)
            states, h = lstm(drop(embedding(x)), h)
            loss = nn.functional.cross_entropy(output(drop(states)).flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            (loss * recipe.window).backward()
            nn.utils.clip_grad_norm_(weights, recipe.clip)
            optimizer.step()
        return Turn(note=f"{words:,} words, cross-entropy {loss.item():.2f}")

    return work


def lstm_training() -> list[Contestant]:
    return [
        Contestant("everynet lstm-ptb", lstm_everynet, "everynet.training.loop", "everynet"),
        Contestant("nn.LSTM by hand", lstm_plain, "torch", "torch", reach=1.3),
    ]


def lstm(page: Page, lines: int) -> None:
    """Updates of the LSTM of the Penn Treebank."""
    for threads in (1, 2):
        page.round(f"{UPDATES} updates, threads: {threads}", lstm_training(), {"threads": threads})
    page.close(
        "LSTM language model",
        "`lstm-ptb`: two layers of 200 units, 20 lanes of 35 words, tied weights, dropout, SGD and "
        f"clipped gradients; best of {page.given.repeats} alternating turns. By hand all logits of "
        "a window are held at once, ours are made and used in pieces. 1.3 is an aim.",
        part="lstm",
    )


PARTS = {"ngrams": ngrams, "lstm": lstm}


def main() -> None:
    everyone = [*ngram_training(), *ngram_scoring(), *lstm_training()]
    given = arguments(__doc__.splitlines()[0], everyone, repeats=5, sentences=50_000)
    page = Page("language", __file__, given)
    for name, part in PARTS.items():
        if given.part in ("", name):
            part(page, given.sentences)


if __name__ == "__main__":
    sys.exit(main())
