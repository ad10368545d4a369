"""A training step of predictive coding beside pcx: relaxation, then the local rule by Adam.

    python benchmarks/generative_predictive.py                  the table of benchmarks/RESULTS.md
    python benchmarks/generative_predictive.py --repeats 1      a quick look, written nowhere

Layers of 784, 256, 256 and 10 units with the image on top, a batch of 128, 20 steps of relaxation
and Adam; both begin with the same weights, so that the energy after ten steps must be the same,
and a note gives it. Ours is a step of the recipe. pcx is called as its examples show, compiled
whole; compiling is its set-up. The plain loop of PyTorch takes autograd for both phases.
"""

import sys
from collections.abc import Callable
from itertools import pairwise

from side_by_side import Contestant, Job, Page, Turn, arguments

SIZES, BATCH, RELAXATION, DT, LR = (10, 256, 256, 784), 128, 20, 0.05, 1e-3
STEPS = 10
"""Training steps of a turn."""


def predictive_inputs(job: Job):
    """Images, codes of their classes, and weights from the bottom to the top, as numpy arrays."""
    import numpy as np

    random = np.random.default_rng(0)
    image = random.standard_normal((BATCH, SIZES[-1]), dtype=np.float32)
    code = np.eye(SIZES[0], dtype=np.float32)[random.integers(0, SIZES[0], BATCH)]
    weights = [
        random.standard_normal((above, below), dtype=np.float32) / np.float32(above) ** 0.5
        for below, above in pairwise(SIZES)
    ]
    return image, code, weights


def predictive_turn(step: Callable[[], object]) -> Callable[[], Turn]:
    """So many training steps; the energy that the first turn ends with is its note."""
    first: list[str] = []

    def work() -> Turn:
        for _ in range(STEPS):
            energy = step()
        first.append(f"energy {float(energy):.4f} after {STEPS} steps")  # also waits for the end
        return Turn(note=first[0])

    return work


def our_predictive(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.recipes.state import State
    from everynet.system.memory import keep_freed_memory
    from everynet.zoo.predictive.predictive_coding import ImageOnTop, PredictiveCoding

    keep_freed_memory()
    image, code, weights = predictive_inputs(job)
    recipe = ImageOnTop(hidden=SIZES[-2:0:-1], relaxation_steps=RELAXATION, dt=DT, lr=LR)
    net = PredictiveCoding(SIZES)
    with torch.no_grad():
        for mine, given in zip(net.weights, weights, strict=True):
            mine.copy_(torch.from_numpy(given))
    state = State(net, torch.nn.Module(), recipe.optimizers(net))
    batch = torch.from_numpy(image), torch.from_numpy(code).argmax(1)

    def step():
        return recipe.step(state, batch)["energy"].detach()

    return predictive_turn(step)


def plain_predictive(job: Job) -> Callable[[], Turn]:
    import torch

    image, code, given = predictive_inputs(job)
    top, bottom = torch.from_numpy(image), torch.from_numpy(code)
    weights = [torch.from_numpy(weight).requires_grad_() for weight in given]
    biases = [torch.zeros(n, requires_grad=True) for n in SIZES[:-1]]
    optimizer = torch.optim.Adam([*weights, *biases], lr=LR, fused=True)

    def energy(hidden):
        x = [bottom, *hidden, top]
        layers = zip(x[:-1], x[1:], weights, biases, strict=True)
        return sum((a - b.tanh() @ m - c).square().sum() for a, b, m, c in layers) / 2

    def step():
        hidden = [top]
        with torch.no_grad():
            for m, c in zip(weights[:0:-1], biases[:0:-1], strict=True):
                hidden.insert(0, hidden[0].tanh() @ m + c)
        hidden = [h.requires_grad_() for h in hidden[:-1]]
        for _ in range(RELAXATION):
            slopes = torch.autograd.grad(energy(hidden), hidden)
            with torch.no_grad():
                for h, slope in zip(hidden, slopes, strict=True):
                    h.sub_(DT * slope)
        optimizer.zero_grad()
        loss = energy([h.detach() for h in hidden]) / BATCH
        loss.backward()
        optimizer.step()
        return loss.detach()

    return predictive_turn(step)


def pcx_predictive(job: Job) -> Callable[[], Turn]:
    import jax
    import jax.numpy as jnp
    import optax
    import pcx.functional as pxf
    import pcx.nn as pxnn
    import pcx.predictive_coding as pxc
    import pcx.utils as pxu

    image, code, given = predictive_inputs(job)

    class Network(pxc.EnergyModule):
        def __init__(self) -> None:
            super().__init__()
            downwards = list(zip(SIZES[:0:-1], SIZES[-2::-1], strict=True))
            self.layers = [pxnn.Linear(above, below) for above, below in downwards]
            self.vodes = [pxc.Vode() for _ in downwards]
            self.vodes[-1].h.frozen = True

        def __call__(self, x, y):
            for vode, layer in zip(self.vodes, self.layers, strict=True):
                x = vode(layer(jnp.tanh(x)))
            if y is not None:
                self.vodes[-1].set("h", y)
            return self.vodes[-1].get("u")

    def each():
        return pxu.M(pxc.VodeParam | pxc.VodeParam.Cache).to((None, 0))

    @pxf.vmap(each(), in_axes=(0, 0), out_axes=0)
    def forward(x, y, *, model):
        return model(x, y)

    @pxf.vmap(each(), in_axes=(0,), out_axes=(None, 0), axis_name="batch")
    def energy(x, *, model):
        y = model(x, None)
        return jax.lax.psum(model.energy(), "batch"), y

    def hidden():
        return pxu.M_hasnot(pxc.VodeParam, frozen=True)

    @pxf.jit()
    def train(x, y, *, model, optim_w, optim_h):
        model.train()
        with pxu.step(model, pxc.STATUS.INIT, clear_params=pxc.VodeParam.Cache):
            forward(x, y, model=model)
        optim_h.init(hidden()(model))
        for _ in range(RELAXATION):
            with pxu.step(model, clear_params=pxc.VodeParam.Cache):
                slope = pxf.value_and_grad(hidden().to([False, True]), has_aux=True)(energy)
                _, found = slope(x, model=model)
            optim_h.step(model, found["model"])
        optim_h.clear()
        with pxu.step(model, clear_params=pxc.VodeParam.Cache):
            slope = pxf.value_and_grad(pxu.M(pxnn.LayerParam).to([False, True]), has_aux=True)(
                energy
            )
            (value, _), found = slope(x, model=model)
        optim_w.step(model, found["model"], scale_by=1 / BATCH)
        return value / BATCH

    def begin():
        model = Network()
        for layer, weight in zip(model.layers, reversed(given), strict=True):
            layer.nn.weight.set(jnp.asarray(weight.T))
            layer.nn.bias.set(jnp.zeros(weight.shape[1]))
        with pxu.step(model, pxc.STATUS.INIT, clear_params=pxc.VodeParam.Cache):
            forward(jnp.zeros((BATCH, SIZES[-1])), None, model=model)
            optim_h = pxu.Optim(lambda: optax.sgd(DT))
            optim_w = pxu.Optim(lambda: optax.adam(LR), pxu.M(pxnn.LayerParam)(model))
        return {"model": model, "optim_w": optim_w, "optim_h": optim_h}

    x, y = jnp.asarray(image), jnp.asarray(code)
    jax.block_until_ready(train(x, y, **begin()))  # compiling is set-up
    parts = begin()
    return predictive_turn(lambda: train(x, y, **parts))


def xla(threads: int) -> dict[str, str]:
    """Settings of jax on so many threads."""
    several = "true" if threads > 1 else "false"
    flags = f"--xla_cpu_multi_thread_eigen={several} intra_op_parallelism_threads={threads}"
    return {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def predictive_contestants(job: Job) -> list[Contestant]:
    """Ours first."""
    threads = xla(job.get("threads", 1))
    return [
        Contestant("everynet", our_predictive, "everynet", "everynet"),
        Contestant("pcx", pcx_predictive, "pcx", "pcx", threads, reach=1.5),
        Contestant("plain PyTorch, autograd", plain_predictive, "torch", "torch"),
    ]


def race_predictive(page: Page) -> None:
    """The part `predictive`."""
    for threads in (1, 2):
        job = {"part": "predictive", "threads": threads}
        many = f"{threads} thread{'s' * (threads > 1)}"
        title = f"{STEPS} training steps, 784-256-256-10, {RELAXATION} of relaxation, {many}"
        page.round(title, predictive_contestants(job), job)
    page.close("Predictive coding", " ".join(__doc__.split("\n\n")[-1].split()), "predictive")


def main() -> None:
    given = arguments(__doc__.splitlines()[0], predictive_contestants({}))
    race_predictive(Page("generative", __file__, given))


if __name__ == "__main__":
    sys.exit(main())
