"""The last layer of a language model: ours against torch's, taking turns in one run.

A turn is the mean of whole updates (draw, forward, backward, descent) of a layer of 100,000 words
for 512 tokens whose targets follow Zipf's law; and of the loss with its gradients alone, without a
descent, of a layer of 10,000 words for 700 tokens, the step of a language model on the Penn
Treebank. All layers of one round hold the same numbers, but adaptive softmax is one of another
form. Sampled layers draw 512 candidates an update. Milliseconds.
"""

import sys
import time
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, Turn, arguments

RATE = 0.1
LEAST = 0.5  # s of work in a turn: a short update is repeated, and its mean is told


def setting(job: Job):
    """States, targets, the layer and its descent."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    tokens, size, words = job["tokens"], job["size"], job["words"]
    likely = 1 / torch.arange(1, words + 1)
    y = torch.multinomial(likely, tokens, replacement=True)
    x = torch.randn(tokens, size, requires_grad=True)
    weight = nn.Parameter(0.05 * torch.randn(words, size))
    bias = nn.Parameter(torch.zeros(words))
    return x, y, weight, bias, torch.optim.SGD([weight, bias], lr=RATE)


def repeated(job: Job, x, loss: Callable, optimizer) -> Callable[[], object]:
    """The work of a turn: whole updates, or gradients alone where nothing descends."""
    clock = time.process_time if job["clock"] == "cpu" else time.perf_counter

    def work() -> Turn:
        begun, done = clock(), 0
        while clock() - begun < LEAST:
            x.grad = None
            optimizer.zero_grad()
            loss().backward()
            if job["descends"]:
                optimizer.step()
            done += 1
        return Turn(seconds=1e3 * (clock() - begun) / done)

    work()
    return work


# ------------------------------------------------------------------------------------------- ours


def by_candidates(name: str) -> Callable[[Job], Callable[[], object]]:
    def prepare(job: Job) -> Callable[[], object]:
        import everynet.nn.sampled_softmax as ours

        x, y, weight, bias, optimizer = setting(job)
        pi = ours.expected_counts(ours.log_uniform(job["words"]), job["samples"])
        drawer, loss = ours.Candidates(pi), getattr(ours, name)
        return repeated(job, x, lambda: loss(x, weight, bias, y, drawer()), optimizer)

    return prepare


def by_rows_of_adagrad(job: Job) -> Callable[[], object]:
    import everynet.nn.sampled_softmax as ours
    from everynet.nn.row_sparse import RowAdagrad

    x, y, weight, bias, _ = setting(job)
    drawer = ours.Candidates(ours.expected_counts(ours.log_uniform(job["words"]), job["samples"]))
    optimizer = RowAdagrad([weight, bias], lr=RATE)
    return repeated(job, x, lambda: ours.sampled_softmax(x, weight, bias, y, drawer()), optimizer)


def by_partition(job: Job) -> Callable[[], object]:
    import torch

    from everynet.nn.sampled_softmax import importance_softmax

    x, y, weight, bias, optimizer = setting(job)
    words = torch.cat([torch.randperm(job["words"])[: job["samples"]], y]).unique()
    return repeated(job, x, lambda: importance_softmax(x, weight, bias, y, words), optimizer)


def in_chunks(job: Job) -> Callable[[], object]:
    from everynet.nn.chunked_cross_entropy import chunked_cross_entropy

    x, y, weight, bias, optimizer = setting(job)
    return repeated(job, x, lambda: chunked_cross_entropy(x, weight, y, bias), optimizer)


# ------------------------------------------------------------------------------------------ peers


def with_torch(job: Job) -> Callable[[], object]:
    from torch.nn.functional import cross_entropy, linear

    x, y, weight, bias, optimizer = setting(job)
    return repeated(job, x, lambda: cross_entropy(linear(x, weight, bias), y), optimizer)


def adaptive(job: Job) -> Callable[[], object]:
    import torch

    x, y, *_ = setting(job)
    layer = torch.nn.AdaptiveLogSoftmaxWithLoss(
        job["size"], job["words"], [1000, 5000, 30_000], div_value=4.0
    )
    optimizer = torch.optim.SGD(layer.parameters(), lr=RATE)
    return repeated(job, x, lambda: layer(x, y).loss, optimizer)


def dense_rows(job: Job) -> Callable[[], object]:
    """Sampled softmax as it is mostly written: indexing, and a dense gradient."""
    import torch
    from torch.nn.functional import cross_entropy

    from everynet.nn.sampled_softmax import Candidates, expected_counts, log_uniform

    x, y, weight, bias, optimizer = setting(job)
    drawer = Candidates(expected_counts(log_uniform(job["words"]), job["samples"]))
    first = torch.zeros_like(y)

    def loss():
        words, of_words, of_all = drawer()
        right = (x * weight[y]).sum(1) + bias[y] - of_all[y]
        others = x @ weight[words].T + bias[words] - of_words
        others = others.masked_fill(words == y[:, None], -1e9)
        return cross_entropy(torch.cat([right[:, None], others], 1), first)

    return repeated(job, x, loss, optimizer)


# ----------------------------------------------------------------------------------------- tables

CANDIDATES = [
    Contestant("everynet sampled", by_candidates("sampled_softmax"), "torch", "everynet"),
    Contestant("everynet noise-contrastive", by_candidates("noise_contrastive"), "torch"),
    Contestant("everynet sampled, RowAdagrad", by_rows_of_adagrad, "torch"),
    Contestant("everynet partition", by_partition, "torch"),
    Contestant("torch full softmax", with_torch, "torch", "torch", reach=50.0),
    Contestant("everynet full, in chunks", in_chunks, "torch"),
    Contestant("torch adaptive softmax", adaptive, "torch", "torch", reach=4.0),
    Contestant("sampled, dense gradient", dense_rows, "torch"),
]
CHUNKS = [
    Contestant("everynet in chunks", in_chunks, "torch", "everynet"),
    Contestant("torch plain", with_torch, "torch", "torch", reach=1.0),
]


def main() -> int:
    given = arguments(__doc__.splitlines()[0], [*CANDIDATES, *CHUNKS], repeats=5, threads=1)
    page = Page("large-vocabulary", __file__, given)
    shared = {"threads": given.threads, "size": 128, "samples": 512}
    page.round(
        "An update of a layer of 100,000 words, 512 tokens, 128 numbers, 512 candidates",
        CANDIDATES,
        {**shared, "words": 100_000, "tokens": 512, "descends": True},
        "ms",
    )
    penn = {**shared, "size": 200, "descends": False}
    page.round(
        "A loss with gradients of 10,000 words, 700 tokens, 200 numbers (Penn Treebank)",
        CHUNKS,
        {**penn, "words": 10_000, "tokens": 700},
        "ms",
    )
    page.round(
        "The same for 5,600 tokens: the peak shows what is held",
        CHUNKS,
        {**penn, "words": 10_000, "tokens": 5600},
        "ms",
    )
    page.close("The softmax of a large vocabulary", " ".join(__doc__.split("\n\n")[1].split()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
