"""Forward, backward and a step of SGD with our engine, and with every other there is.

    python benchmarks/autodiff.py                           the table of benchmarks/RESULTS.md
    python benchmarks/autodiff.py --steps 100 --repeats 2   a quick look, written nowhere

An MLP 784-256-10 and a small CNN, float32, batches of 64, the same weights and the same update in
all: each must give the losses below in its first steps, or it is left out. "numpy by hand" is the
same arithmetic without any engine: what no engine on numpy can beat by much. The last table is of
our engine alone: what an operation costs in a small graph and in a large one.
"""

import sys
from collections.abc import Callable

import numpy as np

from side_by_side import Contestant, Job, Page, arguments

BATCH, RATE = 64, 0.1
LOSSES = {"mlp": (2.640432, 1.932083, 1.451597), "cnn": (2.389933, 2.664238, 2.278535)}
"""What the first three steps give in torch."""
OPS = 1_000_000


def setting(network: str):
    """Inputs, classes and the first weights."""
    random = np.random.default_rng(0)

    def draw(scale, *shape):
        return (random.standard_normal(shape) * scale).astype(np.float32)

    def zeros(n):
        return np.zeros(n, np.float32)

    x, y = draw(1.0, BATCH, 784), random.integers(0, 10, BATCH)
    w1, w2 = draw(0.05, 784, 256), draw(0.05, 256, 10)
    if network == "mlp":
        return x, y, [w1, zeros(256), w2, zeros(10)]
    k1, k2, w = draw(0.3, 8, 1, 3, 3), draw(0.1, 16, 8, 3, 3), draw(0.03, 784, 10)
    return x.reshape(BATCH, 1, 28, 28), y, [k1, zeros(8), k2, zeros(16), w, zeros(10)]


def repeated(job: Job, step: Callable[[], float]) -> Callable[[], object]:
    """The work of a turn, after its first steps have been found right."""
    given = [float(step()) for _ in range(3)]
    wanted = LOSSES[job["network"]]
    if not np.allclose(given, wanted, rtol=1e-4):
        raise ValueError(f"losses {given} must be {wanted}: this is other work")

    def work() -> None:
        for _ in range(job["steps"]):
            step()

    return work


# ------------------------------------------------------------------------------------------- ours


def with_everynet(job: Job) -> Callable[[], object]:
    import everynet.autodiff as ad

    x, y, weights = setting(job["network"])
    parameters = [ad.Var(w) for w in weights]

    def mlp():
        w1, b1, w2, b2 = parameters
        return ad.relu(x @ w1 + b1) @ w2 + b2

    def cnn():
        k1, b1, k2, b2, w, b = parameters
        h = ad.max_pool2d(ad.relu(ad.conv2d(x, k1, b1, padding=1)), 2)
        h = ad.max_pool2d(ad.relu(ad.conv2d(h, k2, b2, padding=1)), 2)
        return h.reshape(BATCH, 784) @ w + b

    network = {"mlp": mlp, "cnn": cnn}[job["network"]]

    def step() -> float:
        loss = ad.cross_entropy(network(), y)
        for p in parameters:
            p.grad = None
        loss.backward()
        for p in parameters:
            p.grad *= RATE
            p.val -= p.grad
        return loss

    return repeated(job, step)


def chained(ops: int) -> Callable[[Job], Callable[[], object]]:
    """Graphs of `ops` operations on scalars, a million operations in all."""

    def prepare(job: Job) -> Callable[[], object]:
        import everynet.autodiff as ad

        def work() -> None:
            for _ in range(OPS // ops):
                y = ad.Var(1.0)
                for _ in range(ops // 2):
                    y = ad.sin(y * 0.999)
                y.backward()

        return work

    return prepare


# ------------------------------------------------------------------------------------------ peers


def by_hand(job: Job) -> Callable[[], object]:
    """The equations of backpropagation in numpy, in place wherever that is possible."""
    x, y, (w1, b1, w2, b2) = setting("mlp")
    rows = np.arange(BATCH)

    def step() -> float:
        h = x @ w1
        h += b1
        np.maximum(h, 0, out=h)
        z = h @ w2
        z += b2
        z -= z.max(1, keepdims=True)
        p = np.exp(z)
        total = p.sum(1, keepdims=True)
        loss = np.mean(np.log(total[:, 0]) - z[rows, y])
        p /= total
        p[rows, y] -= 1
        p *= RATE / BATCH
        back = p @ w2.T
        back *= h > 0
        w2[...] -= h.T @ p
        b2[...] -= p.sum(0)
        w1[...] -= x.T @ back
        b1[...] -= back.sum(0)
        return loss

    return repeated(job, step)


def with_torch(job: Job) -> Callable[[], object]:
    import torch
    import torch.nn.functional as F

    x, y, weights = setting(job["network"])
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    parameters = [torch.from_numpy(w).requires_grad_() for w in weights]
    optimizer = torch.optim.SGD(parameters, lr=RATE, fused=True)

    def mlp():
        w1, b1, w2, b2 = parameters
        return torch.addmm(b2, torch.addmm(b1, x, w1).relu(), w2)

    def cnn():
        k1, b1, k2, b2, w, b = parameters
        h = F.max_pool2d(F.relu(F.conv2d(x, k1, b1, padding=1)), 2)
        h = F.max_pool2d(F.relu(F.conv2d(h, k2, b2, padding=1)), 2)
        return torch.addmm(b, h.reshape(BATCH, 784), w)

    network = {"mlp": mlp, "cnn": cnn}[job["network"]]

    def step() -> float:
        loss = F.cross_entropy(network(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return repeated(job, step)


def with_mygrad(job: Job) -> Callable[[], object]:
    import mygrad as mg
    from mygrad.nnet.activations import relu
    from mygrad.nnet.layers import conv_nd, max_pool
    from mygrad.nnet.losses import softmax_crossentropy

    mg.turn_memory_guarding_off()
    x, y, weights = setting(job["network"])
    parameters = [mg.tensor(w) for w in weights]

    def mlp():
        w1, b1, w2, b2 = parameters
        return mg.matmul(relu(mg.matmul(x, w1) + b1), w2) + b2

    def cnn():
        k1, b1, k2, b2, w, b = parameters
        h = conv_nd(x, k1, stride=1, padding=1) + b1.reshape(1, 8, 1, 1)
        h = max_pool(relu(h), (2, 2), 2)
        h = conv_nd(h, k2, stride=1, padding=1) + b2.reshape(1, 16, 1, 1)
        h = max_pool(relu(h), (2, 2), 2)
        return mg.matmul(h.reshape(BATCH, 784), w) + b

    network = {"mlp": mlp, "cnn": cnn}[job["network"]]

    def step() -> float:
        loss = softmax_crossentropy(network(), y)
        loss.backward()
        for p in parameters:
            p.data -= np.float32(RATE) * p.grad
        return loss.item()

    return repeated(job, step)


def with_autograd(job: Job) -> Callable[[], object]:
    import autograd.numpy as anp
    from autograd import value_and_grad

    x, y, parameters = setting("mlp")
    onehot = np.eye(10, dtype=np.float32)[y]

    def loss_of(parameters):
        w1, b1, w2, b2 = parameters
        z = anp.dot(anp.maximum(anp.dot(x, w1) + b1, 0.0), w2) + b2
        z = z - anp.max(z, 1, keepdims=True)
        log_p = z - anp.log(anp.sum(anp.exp(z), 1, keepdims=True))
        return -anp.sum(onehot * log_p) / BATCH

    both = value_and_grad(loss_of)

    def step() -> float:
        loss, slopes = both(parameters)
        for p, slope in zip(parameters, slopes, strict=True):
            np.subtract(p, RATE * slope, out=p)
        return loss

    return repeated(job, step)


def with_jax(compiled: bool) -> Callable[[Job], Callable[[], object]]:
    def prepare(job: Job) -> Callable[[], object]:
        import jax
        import jax.numpy as jnp
        from jax import lax

        x, y, weights = setting(job["network"])
        x, onehot = jnp.asarray(x), jnp.asarray(np.eye(10, dtype=np.float32)[y])
        parameters = [jnp.asarray(w) for w in weights]

        def mlp(parameters):
            w1, b1, w2, b2 = parameters
            return jax.nn.relu(x @ w1 + b1) @ w2 + b2

        def convolved(h, k, b):
            h = lax.conv(h, k, (1, 1), "SAME") + b[:, None, None]
            window = (1, 1, 2, 2)
            return lax.reduce_window(jax.nn.relu(h), -jnp.inf, lax.max, window, window, "VALID")

        def cnn(parameters):
            k1, b1, k2, b2, w, b = parameters
            return convolved(convolved(x, k1, b1), k2, b2).reshape(BATCH, 784) @ w + b

        network = {"mlp": mlp, "cnn": cnn}[job["network"]]

        def loss_of(parameters):
            return -(onehot * jax.nn.log_softmax(network(parameters))).sum() / BATCH

        def update(parameters):
            loss, slopes = jax.value_and_grad(loss_of)(parameters)
            return loss, [p - RATE * g for p, g in zip(parameters, slopes, strict=True)]

        update = jax.jit(update, donate_argnums=0) if compiled else update

        def step() -> float:
            nonlocal parameters
            loss, parameters = jax.block_until_ready(update(parameters))
            return loss

        return repeated(job, step)

    return prepare


# ----------------------------------------------------------------------------------------- tables


def contestants(network: str = "all", threads: int = 1) -> list[Contestant]:
    """Ours first; the least ratios are those the design promises."""
    mlp = network in ("mlp", "all")
    one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    flags = {"XLA_FLAGS": one} if threads == 1 else {}
    judged = mlp and threads == 1
    return [
        Contestant("everynet", with_everynet, "everynet.autodiff", "everynet"),
        *([Contestant("numpy by hand", by_hand, "numpy", "numpy")] if mlp else []),
        Contestant("torch eager", with_torch, "torch", "torch", reach=1 / 1.2 if judged else None),
        Contestant("mygrad", with_mygrad, "mygrad", "mygrad", reach=1.0 if threads == 1 else None),
        *(
            [
                Contestant(
                    "autograd", with_autograd, "autograd", "autograd", reach=3.0 if judged else None
                )
            ]
            if mlp
            else []
        ),
        Contestant("jax", with_jax(False), "jax", "jax", flags),
        Contestant("jax jitted", with_jax(True), "jax", "jax", flags),
    ]


def sizes() -> list[Contestant]:
    """One graph of a million operations, and the same in graphs of a thousand."""
    return [
        Contestant("one graph of a million", chained(OPS), "everynet.autodiff", "everynet"),
        Contestant(
            *("graphs of a thousand", chained(1_000), "everynet.autodiff", "everynet"),
            reach=1 / 1.5,
        ),
    ]


def main() -> None:
    everyone = contestants() + sizes()
    given = arguments(__doc__.splitlines()[0], everyone, repeats=9, steps=1_000)
    page = Page("autodiff", __file__, given)
    for threads in (1, 2):
        for network, title in (("mlp", "MLP 784-256-10"), ("cnn", "CNN, 8 and 16 channels")):
            steps = given.steps if network == "mlp" else max(given.steps // 20, 1)
            job = {"network": network, "steps": steps, "threads": threads}
            heading = f"{title}: {steps:,} steps, threads: {threads}"
            page.round(heading, contestants(network, threads), job)
    page.round("Operations on scalars: s for a million", sizes(), {"threads": 1})
    page.close(
        "The autodiff engine",
        f"Forward, backward and SGD, batches of {BATCH}, float32; best of {given.repeats} "
        "alternating turns, each engine in a process of its own. Within 1.2 times the time of "
        "torch is a ratio of at least 0.83; the last table asks that an operation in a graph of a "
        "million costs at most 1.5 times what it costs in one of a thousand (0.67), with the "
        "garbage collector on.",
    )


if __name__ == "__main__":
    sys.exit(main())
