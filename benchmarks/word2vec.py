"""Word vectors of the first 20 MB of text8 with our word2vec, and with gensim.

    python benchmarks/word2vec.py                              the tables of benchmarks/RESULTS.md
    python benchmarks/word2vec.py --repeats 1 --epochs 1       a quick look, written nowhere
    python benchmarks/word2vec.py --part cbow                  CBOW instead of skip-gram

Skip-gram with the defaults of both: 100 dimensions, window 5, 5 words of noise, words that occur 5
times, subsampling at 1e-3, 5 epochs. Text and vocabulary are ready before the clock starts. Every
turn has a seed of its own, and the note says what the vectors of all turns were worth: Spearman's
rank correlation with WordSim-353 and SimLex-999, and the share of Mikolov's analogies that is met,
each side judged by its own code. EVERYNET_DATA must hold text8 and word-eval.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from side_by_side import Contestant, Job, Page, Turn, arguments

SENTENCE = 10_000
"""Words of a piece of the text, which has no sentences."""
NAMES = ("WordSim", "SimLex", "analogies")


def words() -> list[str]:
    from everynet.data.loading import samples

    return samples("text8", kind="text").parts["whole"].split()


def timed(
    job: Job, train: Callable[[int], object], judge: Callable[[object], tuple[float, ...]]
) -> Callable[[], Turn]:
    """A turn with the next seed; what is judged is not timed."""
    clock = time.process_time if job["clock"] == "cpu" else time.perf_counter
    found: list[tuple[float, ...]] = []

    def work() -> Turn:
        start = clock()
        model = train(len(found) + 1)
        seconds = clock() - start
        found.append(judge(model))
        each = zip(NAMES, zip(*found, strict=True), strict=True)
        note = "; ".join(f"{name} {' '.join(f'{x:.3f}' for x in values)}" for name, values in each)
        return Turn(seconds, note)

    return work


def with_everynet(job: Job) -> Callable[[], Turn]:
    from everynet.data import judgements
    from everynet.data.corpus import Corpus
    from everynet.zoo.language.word2vec import CBOW, Word2Vec

    kind = CBOW if job["bag"] else Word2Vec
    text = words()
    corpus = Corpus.of([text[i : i + SENTENCE] for i in range(0, len(text), SENTENCE)], 5)
    by = judgements.read("word-eval")
    kind(epochs=1).fit([["a", "b"] * 9])  # compiles

    def train(seed: int) -> object:
        return kind(epochs=job["epochs"], threads=job["threads"], seed=seed).fit(corpus)

    def judge(model) -> tuple[float, ...]:
        figures = model.evaluate(by)
        return figures["wordsim"], figures["simlex"], figures["analogies"]

    return timed(job, train, judge)


def with_gensim(job: Job) -> Callable[[], Turn]:
    from gensim.models import Word2Vec

    from everynet.data import judgements

    text = words()
    pieces = [text[i : i + SENTENCE] for i in range(0, len(text), SENTENCE)]
    ready = Word2Vec(vector_size=100, min_count=5)
    ready.build_vocab(pieces)
    by = judgements.read("word-eval")

    def train(seed: int) -> object:
        model = Word2Vec(
            vector_size=100,
            window=5,
            sg=0 if job["bag"] else 1,
            negative=5,
            min_count=5,
            sample=1e-3,
            workers=job["threads"],
            seed=seed,
        )
        model.reset_from(ready)  # the vocabulary
        model.train(pieces, total_examples=len(pieces), epochs=job["epochs"])
        return model.wv

    def judge(vectors) -> tuple[float, ...]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "asked")
            figures = []
            for name in ("wordsim", "simlex"):
                path.write_text("".join(f"{a}\t{b}\t{s}\n" for a, b, s in by.pairs[name]))
                figures.append(float(vectors.evaluate_word_pairs(str(path))[1][0]))
            sections = by.analogies.items()
            lines = (
                line for name, rows in sections for line in (f": {name}", *map(" ".join, rows))
            )
            path.write_text("\n".join(lines) + "\n")
            return *figures, float(vectors.evaluate_word_analogies(str(path))[0])

    return timed(job, train, judge)


def contestants(threads: int = 1) -> list[Contestant]:
    """Ours first; the least ratio is what the issue asks for."""
    least = {1: 2.0, 2: 1.5}.get(threads)
    return [
        Contestant("everynet", with_everynet, "everynet.zoo.language.word2vec", "everynet"),
        Contestant("gensim", with_gensim, "gensim.models", "gensim", reach=least),
    ]


def main() -> None:
    given = arguments(__doc__.splitlines()[0], contestants(), repeats=3, epochs=5)
    if not os.environ.get("EVERYNET_DATA"):
        sys.exit("left out: EVERYNET_DATA must name the folder that holds text8 and word-eval")
    page = Page("word2vec", __file__, given)
    bag = given.part == "cbow"
    name = "CBOW" if bag else "Skip-gram"
    for threads in (1, 2):
        job = {"epochs": given.epochs, "threads": threads, "bag": bag}
        heading = f"{name}: 3,416,067 words, epochs: {given.epochs}, threads: {threads}"
        page.round(heading, contestants(threads), job)
    page.close(
        f"Word vectors ({name})",
        f"Training on the first 20 MB of text8, without reading the text; best of {given.repeats} "
        "alternating turns, each with a seed of its own; the figures of the vectors of each turn "
        "stand in the last column.",
        part=given.part,
    )


if __name__ == "__main__":
    sys.exit(main())
