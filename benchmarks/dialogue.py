"""Replies ranked and written: the dual encoder beside TF-IDF, and how long `chat` takes to answer.

    python benchmarks/dialogue.py                           the tables of benchmarks/RESULTS.md
    python benchmarks/dialogue.py --part ranking            one part
    python benchmarks/dialogue.py --contexts 200 --repeats 1    a quick look, written nowhere

The conversations are those of Ubuntu where EVERYNET_DATA holds them, and Chit-Chat's for `chat`;
else the generated ones. Weights are those of a network that was not trained, which is as fast.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import replace

from side_by_side import Contestant, Job, Page, Turn, arguments

LINES = ("hello , how are you ?", "what do you do all day ?", "and on sundays ?", "see you .")


def recipe_of(name: str):
    """The recipe, on the data that is at hand."""
    from everynet.recipes.catalog import find

    data = {} if os.environ.get("EVERYNET_DATA") else {"data": "shop-talk", "vocabulary": 0}
    return replace(find(name), **data)


def rank_everynet(job: Job) -> Callable[[], object]:
    """Ten replies of each context of the test, by `dual-encoder-ubuntu`."""
    import torch

    from everynet.zoo.dialogue.dual_encoder import score_ten

    recipe = recipe_of("dual-encoder-ubuntu")
    data = recipe.dataset()
    model = recipe.model(data).eval()
    batches = [
        tuple(part[: job["contexts"]] for part in data.splits["test"])
        if job["contexts"] < data.eval_batch_size
        else batch
        for batch in data.batches("test")
    ][: -(-job["contexts"] // data.eval_batch_size)]

    @torch.no_grad()
    def work() -> Turn:
        count = sum(len(score_ten(model, batch)) for batch in batches)
        return Turn(note=f"{count:,} contexts")

    return work


def rank_words(job: Job) -> Callable[[], object]:
    """The same by the cosine of scikit-learn's TfidfVectorizer, as its documentation shows."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    from everynet.data.loading import samples

    recipe = recipe_of("dual-encoder-ubuntu")
    talk = samples(recipe.data, kind="pairs", turns=recipe.turns)
    known = TfidfVectorizer().fit([text for side in talk.parts["train"] for text in side])
    replies = talk.parts["test"][1]
    contexts = [
        " ".join(text for _, text in reply.context(recipe.turns))
        for reply in talk.replies("test")[: job["contexts"]]
    ]

    def work() -> Turn:
        left, right = known.transform(contexts), known.transform(replies)
        for n in range(len(contexts)):
            ten = [(n + 397 * k) % len(replies) for k in range(10)]
            (right[ten] @ left[n].T).toarray()
        return Turn(note=f"{len(contexts):,} contexts")

    return work


def chat_everynet(job: Job) -> Callable[[], object]:
    """Four lines answered greedily by `conversation-chitchat`, as `everynet chat` does."""
    import time

    import torch

    recipe = recipe_of("conversation-chitchat")
    data = recipe.dataset()
    model = recipe.model(data).eval()
    model.output.bias.data[model.end] = -99.0  # an untrained network may end at once
    answer = recipe.chat(model, data.spec, longest=12)  # as long as a reply is

    @torch.no_grad()
    def work() -> Turn:
        turns, longest = [], 0.0
        for line in LINES:
            start = time.perf_counter()
            turns.append(("user", line))
            said = answer(turns, torch.Generator(), 0)["answer"]
            turns.append(("network", said))
            longest = max(longest, time.perf_counter() - start)
        return Turn(longest, f"{len(said.split())} words an answer")

    return work


def ranking_contestants() -> list[Contestant]:
    return [
        Contestant("everynet dual encoder", rank_everynet, "everynet", "everynet"),
        Contestant("scikit-learn TF-IDF", rank_words, "sklearn", "scikit-learn"),
    ]


def chat_contestants() -> list[Contestant]:
    return [Contestant("everynet chat", chat_everynet, "everynet", "everynet")]


def ranking(page: Page, contexts: int) -> None:
    """Ten replies for each context."""
    page.round("Ten replies a context", ranking_contestants(), {"contexts": contexts, "threads": 1})
    page.close(
        "Replies ranked",
        f"Ten replies for each test context of Ubuntu, one thread; best of {page.given.repeats} "
        "alternating turns. The dual encoder reads every word of eleven texts with an LSTM of 256 "
        "units; TF-IDF looks words up.",
        part="ranking",
    )


def chat(page: Page, contexts: int) -> None:
    """One answer."""
    page.round("The slowest of four answers", chat_contestants(), {"threads": 1})
    page.close(
        "An answer of `chat`",
        "`conversation-chitchat`, greedy, 12 words, one thread; it is to be under 0.1 s.",
        part="chat",
    )


PARTS = {"ranking": ranking, "chat": chat}


def main() -> None:
    everyone = [*ranking_contestants(), *chat_contestants()]
    given = arguments(__doc__.splitlines()[0], everyone, repeats=3, contexts=4063)
    page = Page("dialogue", __file__, given)
    for name, part in PARTS.items():
        if given.part in ("", name):
            part(page, given.contexts)


if __name__ == "__main__":
    sys.exit(main())
