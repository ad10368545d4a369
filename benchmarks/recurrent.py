"""Recurrent layers, forward and backward: ours, torch's and what others made for the same.

    python benchmarks/recurrent.py                          the tables of benchmarks/RESULTS.md
    python benchmarks/recurrent.py --part scan --repeats 2  a quick look, written nowhere

The linear recurrence h_t = a_t h_{t-1} + b_t of 8 x L x 256 numbers in float32: each contestant
gets a and b in the layout it likes best, and its states and the gradient of b must be those of a
loop in float64, or it is left out. minGRU-pytorch scans in logarithms, which it is given for
nothing, or as its whole layer, which has two products more; the bar is for that layer, and a table
of its own puts our layer beside it. Then an LSTM of 200 units over 35 tokens: our cell,
which is written in Python over torch's operations, beside torch's compiled layer and a loop over
its cell.
"""

import sys
from collections.abc import Callable

import numpy as np

from side_by_side import Contestant, Job, Page, arguments

BATCH, DIM = 8, 256
LENGTHS = (1024, 4096)
LSTM = {"batch": 20, "time": 35, "size": 200}

Form = Callable[..., object]


def drawn(length: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    shape = (BATCH, length, DIM)
    a = random.random(shape, dtype=np.float32) * np.float32(0.98) + np.float32(0.01)
    return a, random.random(shape, dtype=np.float32) + np.float32(0.01)


def check(a: np.ndarray, b: np.ndarray, states: np.ndarray, back: np.ndarray, near: float) -> None:
    """Whether states and gradients of their sum are those of a loop in float64."""
    h, g = np.zeros((BATCH, DIM)), np.zeros((BATCH, DIM))
    for t in range(a.shape[1]):
        h = a[:, t].astype(np.float64) * h + b[:, t]
        np.testing.assert_allclose(states[:, t], h, rtol=near)
    for t in range(a.shape[1] - 1, -1, -1):
        g = 1 + g
        np.testing.assert_allclose(back[:, t], g, rtol=near)
        g = a[:, t] * g


def scanning(job: Job, scan: Form, turned: bool = False, near: float = 1e-5) -> Form:
    """The work of a turn with torch: states, and gradients of their sum for a and b."""
    import torch

    first = a, b = drawn(job["length"])
    if turned:
        a, b = a.transpose(0, 2, 1).copy(), b.transpose(0, 2, 1).copy()
    a, b = (torch.from_numpy(part).requires_grad_() for part in (a, b))

    def work() -> object:
        a.grad = b.grad = None
        states = scan(a, b)
        states.sum().backward()
        return states

    found = [part.detach().numpy() for part in (work(), b.grad)]
    check(*first, *((part.transpose(0, 2, 1) for part in found) if turned else found), near)
    return work


# -------------------------------------------------------------------------------------------- ours


def with_everynet(job: Job) -> Form:
    import torch

    from everynet.kernels.recurrence import linear_recurrence

    h0 = torch.zeros(BATCH, DIM)
    return scanning(job, lambda a, b: linear_recurrence(a, b, h0))


def everynet_layer(job: Job) -> Form:
    from everynet.zoo.recurrent.min_gru import MinGRU

    return layered(job, lambda layer, x: layer(x)[0], MinGRU(DIM, DIM))


def everynet_lstm(job: Job) -> Form:
    from everynet.zoo.recurrent.lstm_variants import HandLSTM

    return reading(HandLSTM(LSTM["size"], LSTM["size"]))


# ------------------------------------------------------------------------------------------- scans


def with_numba(job: Job) -> Form:
    """The equations in a compiled loop, without torch: what the kernel is at heart."""
    import numba

    @numba.njit
    def ahead(a, b, h):
        for row in range(a.shape[0]):
            h[row, 0] = b[row, 0]
            for t in range(1, a.shape[1]):
                for i in range(a.shape[2]):
                    h[row, t, i] = a[row, t, i] * h[row, t - 1, i] + b[row, t, i]

    @numba.njit
    def back(a, h, up, to_a, to_b):
        last = a.shape[1] - 1
        for row in range(a.shape[0]):
            to_b[row, last] = up[row, last]
            for t in range(last, 0, -1):
                for i in range(a.shape[2]):
                    to_a[row, t, i] = to_b[row, t, i] * h[row, t - 1, i]
                    to_b[row, t - 1, i] = up[row, t - 1, i] + a[row, t, i] * to_b[row, t, i]
            to_a[row, 0] = 0

    a, b = drawn(job["length"])

    def work() -> tuple[np.ndarray, np.ndarray]:
        h, to_a, to_b, up = np.empty_like(b), np.empty_like(b), np.empty_like(b), np.ones_like(b)
        ahead(a, b, h)
        back(a, h, up, to_a, to_b)
        return h, to_b

    check(a, b, *work(), 1e-5)
    return work


def with_associative_scan(job: Job) -> Form:
    from torch._higher_order_ops.associative_scan import associative_scan

    def scan(a, b):
        def join(left, right):
            return left[0] * right[0], left[1] * right[0] + right[1]

        return associative_scan(join, (a, b), dim=1, combine_mode="generic")[1]

    return scanning(job, scan)


def with_accelerated_scan(job: Job) -> Form:
    """What it has for the CPU; its kernels are for GPUs."""
    from accelerated_scan.ref import scan

    return scanning(job, scan, turned=True)


def with_logarithms(job: Job) -> Form:
    import torch
    from minGRU_pytorch.minGRU import heinsen_associative_scan_log

    first = drawn(job["length"])
    logs = [torch.from_numpy(part).log().requires_grad_() for part in first]

    def work() -> object:
        logs[0].grad = logs[1].grad = None
        states = heinsen_associative_scan_log(*logs)
        states.sum().backward()
        return states

    states = work().detach().numpy()
    check(*first, states, logs[1].grad.numpy() / first[1], 1e-2)
    return work


# ------------------------------------------------------------------------------------------ layers


def layered(job: Job, call: Form, layer: object) -> Form:
    import torch

    x = torch.randn(BATCH, job["length"], DIM, requires_grad=True)

    def work() -> None:
        x.grad = None
        layer.zero_grad()
        call(layer, x).sum().backward()

    work()
    return work


def with_min_gru_pytorch(job: Job) -> Form:
    from minGRU_pytorch import minGRU

    return layered(job, lambda layer, x: layer(x), minGRU(DIM))


def reading(layer: object, turns: int = 20) -> Form:
    """The work of a turn with an LSTM: so many times forward and backward."""
    import torch

    torch.manual_seed(0)
    x = torch.randn(LSTM["batch"], LSTM["time"], LSTM["size"], requires_grad=True)

    def work() -> None:
        for _ in range(turns):
            x.grad = None
            layer.zero_grad()
            layer(x)[0].pow(2).mean().backward()

    work()
    return work


def torch_lstm(job: Job) -> Form:
    from torch import nn

    return reading(nn.LSTM(LSTM["size"], LSTM["size"], batch_first=True))


def torch_cells(job: Job) -> Form:
    import torch
    from torch import nn

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(LSTM["size"], LSTM["size"])

        def forward(self, x):
            state, found = None, []
            for now in x.unbind(1):
                state = self.cell(now, state)
                found.append(state[0])
            return torch.stack(found, 1), state

    return reading(Loop())


SCANS = [
    Contestant("everynet", with_everynet, "everynet.kernels", "everynet"),
    Contestant("torch associative_scan", with_associative_scan, "torch", "torch", reach=5.0),
    Contestant(
        "accelerated-scan", with_accelerated_scan, "accelerated_scan", "accelerated-scan", reach=5.0
    ),
    Contestant("minGRU-pytorch's scan", with_logarithms, "minGRU_pytorch", "minGRU-pytorch"),
    Contestant(
        "minGRU-pytorch's layer",
        with_min_gru_pytorch,
        "minGRU_pytorch",
        "minGRU-pytorch",
        reach=30.0,
    ),
    Contestant("a plain numba loop", with_numba, "numba", "numba"),
]
LAYERS = [
    Contestant("everynet MinGRU", everynet_layer, "everynet", "everynet"),
    Contestant("minGRU-pytorch", with_min_gru_pytorch, "minGRU_pytorch", "minGRU-pytorch"),
]
LSTMS = [
    Contestant("everynet HandLSTM", everynet_lstm, "everynet", "everynet"),
    Contestant("torch nn.LSTM", torch_lstm, "torch", "torch", reach=1 / 1.3),
    Contestant("loop over nn.LSTMCell", torch_cells, "torch", "torch", reach=2.0),
]


def main() -> int:
    given = arguments(__doc__.splitlines()[0], [*SCANS, *LAYERS, *LSTMS], repeats=7, threads=1)
    page = Page("recurrent", __file__, given)
    if given.part in ("", "scan"):
        for length in LENGTHS:
            job = {"threads": given.threads, "length": length}
            page.round(f"linear recurrence, {BATCH} x {length:,} x {DIM}", SCANS, job)
        job = {"threads": given.threads, "length": 1024}
        page.round(f"a whole minGRU layer, {BATCH} x 1,024 x {DIM}", LAYERS, job)
    if given.part in ("", "lstm"):
        shape = f"{LSTM['batch']} x {LSTM['time']} x {LSTM['size']}"
        page.round(f"LSTM, {shape}, twenty times", LSTMS, {"threads": given.threads})
    given.whole &= not given.part
    page.close(
        "Recurrent layers",
        "Seconds of a forward and a backward pass in float32, one thread. Each contestant of the "
        "linear recurrence has shown that its states and gradients are those of a loop in float64.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
