"""Attacks on one network, beside the peers: what each leaves right, and how long it takes.

    python benchmarks/adversarial.py                 the tables of benchmarks/RESULTS.md
    python benchmarks/adversarial.py --part pgd      one part
    python benchmarks/adversarial.py --repeats 1     a quick look, written nowhere

A LeNet that learned digits for 400 updates, the same in every process, is attacked with 100 test
images that it gets right. The budget is the same for all: the size of the change, 40 steps of a
tenth of it for PGD, which begins at the image itself so that no luck decides, and at most 50 steps
for DeepFool, with all classes and an overshoot of 0.02. The note is the accuracy that is left and
the mean size of the changes of those that fell, in the norm of the attack: of two attacks the one
that leaves less, or needs less, is the stronger. Ours stops at the images that have fallen, and
shortens what DeepFool found; torchattacks' DeepFool takes one image after another and knows l2
only.
"""

import functools
import importlib.metadata
import sys
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, Turn, arguments

IMAGES, UPDATES, STEPS = 100, 400, 40
EPS = {"linf": 0.1, "l2": 1.5}
REACH_DEEPFOOL = 3.0


def ours() -> str:
    """The distribution of everynet; none where src is on the path, and that is enough."""
    try:
        return importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.cache
def victim() -> tuple:
    """The network on pixels from 0 to 1, and images that it gets right with their classes."""
    from everynet.zoo.adversarial.attacks import OnPixels, answers, first_images, train_lenet

    network, data = train_lenet(UPDATES, 0)
    model = OnPixels(network.float(), data.spec["mean"], data.spec["std"]).eval()
    x, y = first_images(data, 4 * IMAGES)
    x = (x * model.std + model.mean).clamp(0, 1).float()
    right = (answers(model, x) == y).nonzero().flatten()[:IMAGES]
    return model, x[right], y[right]


def judged(norm: str, changed: object) -> Turn:
    """What an attack leaves right, and the mean size of the changes of those that fell."""
    from everynet.zoo.adversarial.attacks import answers, size

    model, x, y = victim()
    fell = answers(model, changed) != y
    sizes = size(changed - x, norm)
    left, mean = float((~fell).double().mean()), float(sizes[fell].mean())
    most = float(sizes.max())
    return Turn(note=f"accuracy {left:.3f}, mean size {mean:.4f}, largest {most:.4f}")


def with_everynet(job: Job) -> Callable[[], Turn]:
    from everynet.zoo.adversarial import attacks

    model, x, y = victim()
    norm, eps = job["norm"], EPS[job["norm"]]
    run = {
        "fgsm": lambda: attacks.fgsm(model, x, y, eps),
        "pgd": lambda: attacks.pgd(
            model, x, y, eps, norm=norm, steps=STEPS, step_size=eps / 10, from_sample=True
        ),
        "deepfool": lambda: attacks.deepfool(model, x, y, norm=norm),
    }[job["attack"]]
    return lambda: judged(norm, run())


def with_torchattacks(job: Job) -> Callable[[], Turn]:
    import torchattacks

    model, x, y = victim()
    norm, eps = job["norm"], EPS[job["norm"]]
    how = {"eps": eps, "alpha": eps / 10, "steps": STEPS, "random_start": False}
    attack = {
        ("fgsm", "linf"): lambda: torchattacks.FGSM(model, eps=eps),
        ("pgd", "linf"): lambda: torchattacks.PGD(model, **how),
        ("pgd", "l2"): lambda: torchattacks.PGDL2(model, **how),
        ("deepfool", "l2"): lambda: torchattacks.DeepFool(model, steps=50, overshoot=0.02),
    }[job["attack"], norm]()
    return lambda: judged(norm, attack(x, y))


def with_foolbox(job: Job) -> Callable[[], Turn]:
    import foolbox

    model, x, y = victim()
    norm, eps = job["norm"], EPS[job["norm"]]
    how = {"steps": STEPS, "abs_stepsize": eps / 10, "random_start": False}
    attack = {
        ("fgsm", "linf"): foolbox.attacks.LinfFastGradientAttack,
        ("pgd", "linf"): lambda: foolbox.attacks.LinfPGD(**how),
        ("pgd", "l2"): lambda: foolbox.attacks.L2PGD(**how),
        ("deepfool", "linf"): lambda: foolbox.attacks.LinfDeepFoolAttack(steps=50, candidates=10),
        ("deepfool", "l2"): lambda: foolbox.attacks.L2DeepFoolAttack(steps=50, candidates=10),
    }[job["attack"], norm]()
    network = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    budget = None if job["attack"] == "deepfool" else eps
    return lambda: judged(norm, attack(network, x, y, epsilons=budget)[1])


def contestants(attack: str, norm: str) -> list[Contestant]:
    """Ours first."""
    level = 1.0 if attack != "deepfool" else None
    foolbox = REACH_DEEPFOOL if attack == "deepfool" else None
    found = [Contestant("everynet", with_everynet, "everynet.zoo.adversarial.attacks", ours())]
    if (attack, norm) != ("deepfool", "linf"):
        name = "torchattacks"
        found.append(Contestant(name, with_torchattacks, name, name, reach=level))
    return [*found, Contestant("foolbox", with_foolbox, "foolbox", "foolbox", reach=foolbox)]


NORMS = {"fgsm": ("linf",), "pgd": ("linf", "l2"), "deepfool": ("linf", "l2")}


def attack_all(page: Page, attack: str) -> None:
    for norm in NORMS[attack]:
        for threads in (1, 2):
            job = {"attack": attack, "norm": norm, "threads": threads}
            budget = "" if attack == "deepfool" else f", eps = {EPS[norm]:g}"
            plural = "s" * (threads > 1)
            page.round(
                f"{attack}, {norm}{budget}, {threads} thread{plural}",
                contestants(attack, norm),
                job,
            )
    page.close(
        f"Adversarial attacks: {attack}",
        f"{IMAGES} images of digits, 32 x 32, and a LeNet; seconds, best of {page.given.repeats} "
        "alternating turns.",
        part=attack,
    )


def main() -> None:
    everyone = {
        one.name: one for a, norms in NORMS.items() for n in norms for one in contestants(a, n)
    }
    given = arguments(__doc__.splitlines()[0], [*everyone.values()], repeats=7)
    page = Page("adversarial", __file__, given)
    for attack in NORMS:
        if given.part in ("", attack):
            attack_all(page, attack)


if __name__ == "__main__":
    sys.exit(main())
