"""A neural Turing machine, forward and backward: ours and a plain loop in torch.

    python benchmarks/neural_turing.py              the table of benchmarks/RESULTS.md
    python benchmarks/neural_turing.py --repeats 2  a quick look, written nowhere

Both take 32 sequences of 22 time steps through the same weights, with one read and one write head
and with four of each, and must give the same outputs in float64 before they are timed in float32.
The plain loop is written as the paper reads: each head by itself, each of its parameters by a
product of its own.
"""

import sys
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, arguments

BATCH, TIME, INPUT, BITS, HIDDEN, ROWS, WIDTH = 32, 22, 10, 8, 64, 32, 16


def machine(heads: int):
    import torch

    from everynet.zoo.transformer.neural_turing import LSTMController, NeuralTuringMachine

    torch.manual_seed(0)
    return NeuralTuringMachine(
        INPUT, BITS, LSTMController, HIDDEN,
        rows=ROWS, width=WIDTH, read_heads=heads, write_heads=heads,
    )  # fmt: skip


def plain(net, x):
    """The logits of the machine, head by head."""
    import torch
    from torch.nn import functional

    batch, reads, heads = len(x), net.read_heads, net.read_heads + net.write_heads
    memory = x.new_full((batch, ROWS, WIDTH), 1e-6)
    weights = [functional.one_hot(torch.zeros(batch).long(), ROWS).to(x) for _ in range(heads)]
    read, outputs = x.new_full((batch, reads * WIDTH), 1e-6), []
    state = (x.new_zeros(batch, HIDDEN), x.new_zeros(batch, HIDDEN))
    linear = net.controller.linear
    w = (*linear.weight.tensor_split([linear.in_features - HIDDEN], 1), linear.bias)

    def emit(h, first: int, size: int):
        rows = slice(first, first + size)
        return functional.linear(h, net.emit.weight[rows], net.emit.bias[rows])

    for now in x.unbind(1):
        z = torch.cat([now, read], 1)
        state = torch.lstm_cell(z, state, *w)
        h = state[0]
        for head in range(heads):
            first = head * (WIDTH + 6)
            key = torch.tanh(emit(h, first, WIDTH))
            beta = functional.softplus(emit(h, first + WIDTH, 1))
            gate = torch.sigmoid(emit(h, first + WIDTH + 1, 1))
            gamma = 1 + functional.softplus(emit(h, first + WIDTH + 2, 1))
            shift = torch.softmax(emit(h, first + WIDTH + 3, 3), 1)
            cosine = functional.cosine_similarity(key[:, None], memory, dim=2, eps=1e-12)
            content = torch.softmax(beta * cosine, 1)
            gated = gate * content + (1 - gate) * weights[head]
            shifted = sum(shift[:, n, None] * gated.roll(n - 1, 1) for n in range(3))
            powers = shifted**gamma
            weights[head] = powers / powers.sum(1, keepdim=True)
        for head in range(reads):
            at = weights[reads + head].unsqueeze(2)
            erase = torch.sigmoid(emit(h, heads * (WIDTH + 6) + head * 2 * WIDTH, WIDTH))
            memory = memory * (1 - at * erase[:, None])
        for head in range(reads):
            at = weights[reads + head].unsqueeze(2)
            add = torch.tanh(emit(h, heads * (WIDTH + 6) + (head * 2 + 1) * WIDTH, WIDTH))
            memory = memory + at * add[:, None]
        read = torch.cat([(w.unsqueeze(1) @ memory)[:, 0] for w in weights[:reads]], 1)
        outputs.append(net.output(torch.cat([h, read], 1)))
    return torch.stack(outputs, 1)


def timed(job: Job, forward: Callable[..., object]) -> Callable[[], object]:
    """The work of a turn: five times forward and backward."""
    import torch

    net = machine(job["heads"])
    x = torch.randint(0, 2, (BATCH, TIME, INPUT)).float()
    exact = net.double()
    torch.testing.assert_close(forward(exact, x.double()), exact(x.double())[0])
    net = exact.float()

    def work() -> None:
        for _ in range(5):
            net.zero_grad()
            forward(net, x).pow(2).mean().backward()

    work()
    return work


def with_everynet(job: Job) -> Callable[[], object]:
    return timed(job, lambda net, x: net(x)[0])


def with_torch(job: Job) -> Callable[[], object]:
    return timed(job, plain)


MACHINES = [
    Contestant("everynet", with_everynet, "everynet", "everynet"),
    Contestant("a plain torch loop", with_torch, "torch", "torch", reach=1.0),
]


def main() -> int:
    given = arguments(__doc__.splitlines()[0], MACHINES, repeats=7, threads=1)
    page = Page("neural_turing", __file__, given)
    for heads in (1, 4):
        job = {"threads": given.threads, "heads": heads}
        page.round(f"{BATCH} x {TIME}, {heads} read and {heads} write heads", MACHINES, job)
    page.close(
        "Neural Turing machine",
        "Seconds of five forward and backward passes in float32, one thread, of the same weights; "
        "both have given the same outputs in float64.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
