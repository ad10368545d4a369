"""A step of training through spikes, beside three packages and the matrix products alone."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

from side_by_side import Contestant, Job, Page

BATCH, TIME, HIDDEN = 128, 25, 1000
INPUTS = {
    "constant": "A constant input",
    "spikes": "A changing input: spikes",
    "values": "A changing input: values",
}
BRIGHT = 0.26
"""Chances of a spike are drawn evenly up to it, so that their mean is that of MNIST's pixels."""


def images(job: Job):
    """Random images of 784 pixels and their classes.

    The same values at each step, new ones, or spikes whose chance is the brightness of the pixel.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    rows = 1 if job["input"] == "constant" else TIME
    x = torch.rand(rows, BATCH, 784, generator=generator)
    if job["input"] == "spikes":
        x = (x < BRIGHT * torch.rand(BATCH, 784, generator=generator)).float()
    return x, torch.randint(0, 10, (BATCH,), generator=generator)


def descending(parameters, loss: Callable[[], object]) -> Callable[[], None]:
    """Four steps on a loss by the fastest Adam that torch has, the same for all."""
    import torch

    optimizer = torch.optim.Adam(parameters, lr=5e-4, fused=True)

    def work() -> None:
        for _ in range(4):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

    return work


def our_training(job: Job) -> Callable[[], None]:
    from torch.nn.functional import cross_entropy

    from everynet.system.memory import keep_freed_memory
    from everynet.zoo.spiking.surrogate import SpikingNetwork

    keep_freed_memory()
    x, y = images(job)

    class Changing(SpikingNetwork):
        def inputs(self, _first):  # forward checks the batch of one step; here are all of them
            return x

    network = (SpikingNetwork if job["input"] == "constant" else Changing)((784, HIDDEN, 10), TIME)
    return descending(network.parameters(), lambda: cross_entropy(network(x[0]), y))


def products_alone(job: Job) -> Callable[[], None]:
    """The two products with the first weights, whole and at every step, and nothing else."""
    import torch

    x = images(job)[0].expand(TIME, -1, -1).reshape(-1, 784)
    weight, back = torch.rand(HIDDEN, 784), torch.rand(TIME * BATCH, HIDDEN)
    current, gradient = torch.empty_like(back), torch.empty_like(weight)

    def work() -> None:
        for _ in range(4):
            torch.mm(x, weight.T, out=current)
            torch.mm(back.T, x, out=gradient)

    return work


def snntorch_training(job: Job) -> Callable[[], None]:
    import snntorch
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    x, y = images(job)
    first, second = nn.Linear(784, HIDDEN), nn.Linear(HIDDEN, 10)
    hidden, out = snntorch.Leaky(0.9), snntorch.Leaky(0.9, reset_mechanism="none")

    def loss():
        m, r, traces = hidden.init_leaky(), out.init_leaky(), []
        for t in range(TIME):
            spikes, m = hidden(first(x[t if len(x) > 1 else 0]), m)
            _, r = out(second(spikes), r)
            traces.append(r)
        return cross_entropy(torch.stack(traces).mean(0), y)

    return descending([*first.parameters(), *second.parameters()], loss)


def norse_training(job: Job) -> Callable[[], None]:
    import norse.torch as norse
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    x, y = images(job)
    first, second = nn.Linear(784, HIDDEN), nn.Linear(HIDDEN, 10)
    hidden, out = norse.LIFCell(), norse.LICell()

    def loss():
        m, r, traces = None, None, []
        for t in range(TIME):
            spikes, m = hidden(first(x[t if len(x) > 1 else 0]), m)
            now, r = out(second(spikes), r)
            traces.append(now)
        return cross_entropy(torch.stack(traces).mean(0), y)

    return descending([*first.parameters(), *second.parameters()], loss)


def spikingjelly_training(job: Job) -> Callable[[], None]:
    from spikingjelly.activation_based import functional, layer, neuron, surrogate
    from torch import nn
    from torch.nn.functional import cross_entropy

    x, y = images(job)
    lif = {"tau": 10.0, "surrogate_function": surrogate.ATan(), "detach_reset": True}
    network = nn.Sequential(
        *(layer.Linear(784, HIDDEN), neuron.LIFNode(**lif)),
        *(layer.Linear(HIDDEN, 10), neuron.LIFNode(**lif)),
    )
    functional.set_step_mode(network, "m")
    given = x.expand(TIME, -1, -1)

    def loss():
        functional.reset_net(network)
        return cross_entropy(network(given).mean(0), y)

    return descending(network.parameters(), loss)


def contestants(job: Job) -> list[Contestant]:
    constant = job["input"] == "constant"
    others = 4.0 if constant else None
    return [
        Contestant("everynet", our_training, "everynet.zoo.spiking.surrogate", "everynet"),
        Contestant("products alone", products_alone, "torch", "torch"),
        Contestant(
            *("snnTorch", snntorch_training, "snntorch", "snntorch"),
            reach=4.0 if constant else 1.5,
        ),
        Contestant("SpikingJelly", spikingjelly_training, "torch", "spikingjelly", reach=others),
        Contestant("Norse", norse_training, "norse.torch", "norse", reach=others),
    ]


def race(page: Page, _folder: Path) -> None:
    for kind, threads in product(INPUTS, (1, 2)):
        job = {"part": "training", "input": kind, "threads": threads}
        page.round(f"{INPUTS[kind]}, threads: {threads}", contestants(job), job)
    page.close(
        "Spiking: training by surrogate gradients",
        f"Four steps of fused Adam on 784-1000-10, 25 time steps, batch 128; best of "
        f"{page.given.repeats} alternating turns. All have a hidden layer that spikes and outputs "
        "that do not, except SpikingJelly, whose outputs spike too; ours keeps freed memory, as "
        "its trainer does. Products alone: those with the first weights, forwards and for their "
        "gradient, whole at each step, and nothing else. Spikes come with a mean chance of 0.13, "
        "the brightness of MNIST, and ours adds up weights only where there are some; of values "
        "that are nowhere 0 it has all products to do.",
        "training",
    )
