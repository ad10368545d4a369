"""Turing test: whether an interrogator can tell what a network makes from its data.

    t      = (1/n) sum_i [(f(x_i) > 0) = l_i]      (1)  how often the interrogator is right
    s      = 1 / (2 sqrt(n)),   z = (t - 1/2) / s  (2)  spread of t if both are alike; surprise
    TV(p, q) >= 2 t - 1                            (3)  how far apart they are at the least

Half of n samples x_i are real (l_i = 1), of a density p, and half are made (l_i = 0), of a density
q. The interrogator f is a classifier that has learned on other samples. Where p = q nobody can do
better than guess, so that t is 1/2 up to (2); the best f of all reaches t = (1 + TV(p, q)) / 2,
where TV is the total variation distance, so that t bounds it from below. A t near 1/2 says that
this interrogator was fooled, not that a better one would be. Turing's interrogator asks questions;
this one is shown samples, half of them each time while it learns and the others at the end.

Two more tests show that t can be believed: real samples against other real ones, which nobody can
tell apart, and against noise, which everybody can.

Turing (1950), "Computing Machinery and Intelligence", Mind 59, p. 433, section 1; Lopez-Paz and
Oquab (2017), "Revisiting Classifier Two-Sample Tests", arXiv:1610.06545, section 3.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from everynet.data import kinds
from everynet.data.dataset import Batch, Data, Spec, Terms
from everynet.data.texts.tokens import Tokens
from everynet.plot import Panel, panels
from everynet.recipes.recipe import Fitting, Recipe, Simulation
from everynet.recipes.trained import Trained
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import mix
from everynet.training.loop import evaluating, trained
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.generative import gan

Samples = Float[Tensor, "rows features"]
GRAMS = 512  # features of a text, into which its letters, pairs and triples of letters are hashed


def hit_rate(
    score: Float[Tensor, " rows"], real: Int[Tensor, " rows"] | Float[Tensor, " rows"]
) -> float:
    """How often a score above 0 means a real sample."""
    return float(((score > 0) == (real > 0.5)).double().mean())  # (1)


def surprise(t: float, n: int) -> tuple[float, float]:
    """The standard error of t if nothing can be told apart, and how many of them it is off 1/2."""
    s = 1 / (2 * math.sqrt(n))
    return s, (t - 0.5) / s  # (2)


def least_distance(t: float) -> float:
    """The total variation distance that an interrogator who is right so often has shown."""
    return max(0.0, 2 * t - 1)  # (3)


def count_grams(texts: Sequence[str]) -> Samples:
    """Texts as square roots of how often letters, pairs and triples of letters occur, hashed."""
    rows = []
    for text in texts:
        letters = torch.tensor([ord(letter) for letter in text])
        places, codes = [], torch.zeros_like(letters)
        for length in (1, 2, 3):
            codes = (codes[: len(letters) - length + 1] * 1_000_003 + letters[length - 1 :]) % (
                2**31 - 1
            )
            places.append((codes * 48_271 + length) % (2**31 - 1) % GRAMS)
        rows.append(torch.cat(places).bincount(minlength=GRAMS).double().sqrt())
    return torch.stack(rows)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Interrogator(Training[MLP]):
    """Tell real samples from made ones by a perceptron with two hidden layers."""

    hidden_size: int = 128
    """Hidden units of each layer."""

    def model(self, data: Data) -> MLP:
        return MLP((data.spec["shape"][0], self.hidden_size, self.hidden_size, 1))

    def objective(self, model: MLP, batch: Batch) -> Terms:
        x, real = batch
        return {"loss": binary_cross_entropy_with_logits(model(x)[:, 0], real)}


def interrogate(
    real: Samples, made: Float[Tensor, "others features"], recipe: Interrogator
) -> tuple[Float[Tensor, " both"], Float[Tensor, " both"]]:
    """Scores of all samples, and which are real.

    Each half of the samples is scored by an interrogator that has learned from the other.
    """
    rows = min(len(real), len(made))
    x = torch.cat([real[:rows], made[:rows]]).float()
    x = (x - x.mean(0)) / x.std(0).clamp(min=1e-6)
    label = torch.cat([torch.ones(rows), torch.zeros(rows)])
    half = torch.arange(2 * rows) % 2 == 0
    score = torch.zeros(2 * rows)
    for number, learned in enumerate((half, ~half)):
        size = min(recipe.batch_size, int(learned.sum()))
        one = replace(recipe, seed=mix(recipe.seed, number), batch_size=size)
        split = {"train": (x[learned], label[learned])}
        network = trained(one, Data(split, {"shape": [x.shape[1]]}, size, one.seed))
        with evaluating(network):
            score[~learned] = network(x[~learned])[:, 0]
    return score.double(), label.double()


TESTS = {"equal": "others are real, too", "made": "others are made", "noise": "others are noise"}
KINDS = ("image", "table", "text")


@dataclass(frozen=True, kw_only=True)
class TuringTest(Simulation):
    """Let an interrogator tell samples of a trained network from its data."""

    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "how often made and real samples are recognised as such: 0.5 is a guess",
        "error": "the standard error of that, if there is no difference",
        "surprise": "how many of these standard errors it is above one half",
        "distance": "total variation distance between made and real samples, at the least",
        "equal_accuracy": "the same accuracy for real samples against other real ones",
        "noise_accuracy": "the same accuracy for real samples against noise",
    }

    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of a network that makes images, rows or texts; empty trains gan-ring first."""
    steps: int = 1500
    """Updates of the network that is trained where `of` is empty."""
    samples: int = 5000
    """Made samples, and as many real ones; fewer where fewer were held out."""
    letters: int = 80
    """Length of a piece of text."""
    hidden_size: int = 128
    """Hidden units of each of the two layers of the interrogator."""
    questions: int = 1000
    """Updates in which it learns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "hidden_size", "questions")
        self.at_least(20, "samples")
        self.at_least(3, "letters")

    def ready(self) -> None:
        if self.of:
            check_samples(self.of)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        real, made, noise = self.candidates(generator)
        recipe = Interrogator(
            hidden_size=self.hidden_size, steps=self.questions, batch_size=256, lr=3e-3,
            optimizer="adamw", weight_decay=0.05, schedule="one-cycle", seed=self.seed,
        )  # fmt: skip
        sets = {"equal": (real[::2], real[1::2]), "made": (real, made), "noise": (real, noise)}
        found = {}
        for name, (these, others) in sets.items():
            found[f"{name}_score"], found[f"{name}_real"] = interrogate(these, others, recipe)
        return found

    def candidates(self, generator: torch.Generator) -> tuple[Samples, Samples, Samples]:
        """Real samples, which the network has not learned from, made ones, and noise."""
        if not self.of:
            ring = replace(gan.RECIPES["gan-ring"], steps=self.steps, seed=self.seed)
            ring = replace(ring, held_out=max(2, -(-self.samples // 2)))
            data = ring.dataset()
            real = torch.cat([x for part in ("valid", "test") for (x,) in data.batches(part)])
            network = trained(ring, data)
            with evaluating(network):
                made = ring.sample(network, data.spec, generator, n=len(real))
            assert isinstance(made, Tensor)  # no film
            return real, made, uniform(real, generator)
        check_samples(self.of)
        source, spec = self.of.recipe, self.of.spec
        data = source.dataset()  # type: ignore[attr-defined]  # checked to have data
        if json.loads(json.dumps(data.spec)) != spec:
            raise UserError(f"of ({self.of}) must find its data as it was, but that has changed")
        if spec["kind"] == "text":
            return self.texts(data, generator)
        held = [x for part in ("valid", "test") for x, *_ in data.batches(part)]
        real = kinds.of(spec).to_data_units(torch.cat(held), spec).flatten(1).double()
        real = real[torch.randperm(len(real), generator=generator)[: self.samples]]
        check_enough(self.of, len(real))
        made = self.made(len(real), pixels=True)
        if not isinstance(made, Tensor) or made[0].numel() != real.shape[1]:
            raise UserError(
                f"of ({self.of}) must make samples like those of its data, because the two are "
                f"compared, and {source.name} makes others; try a run of vae"
            )
        return real, made.flatten(1).double().cpu(), uniform(real, generator)

    def texts(self, data: Data, generator: torch.Generator) -> tuple[Samples, Samples, Samples]:
        """Pieces of held-out text, of text that the network writes, and letters at random."""
        tokens = Tokens.of(data.spec)
        whole = "".join(
            tokens.decode(data.splits[part][0].long().tolist()) for part in ("valid", "test")
        )
        size = self.letters
        pieces = [whole[at : at + size] for at in range(0, len(whole) - size + 1, size)]
        order = torch.randperm(len(pieces), generator=generator)[: self.samples].tolist()
        real = [pieces[n] for n in order]
        check_enough(self.of, len(real))
        written = self.made(len(real), temperature=1.0, length=2 * size)
        made = [text[-size:] for text in written if len(text) >= 2 * size]  # far from the prompt
        check_enough(self.of, len(made))
        alphabet = sorted({*whole})
        drawn = torch.randint(len(alphabet), (len(real), size), generator=generator).tolist()
        noise = ["".join(alphabet[n] for n in row) for row in drawn]
        return count_grams(real), count_grams(made), count_grams(noise)

    def made(self, n: int, **wanted: object) -> Any:  # noqa: ANN401 -- as the network makes them
        """Samples of the network, with those of the wanted settings that it has."""
        known = inspect.signature(self.of.recipe.sample).parameters  # type: ignore[attr-defined]
        return self.of.sample(
            n=n, seed=self.seed, **{name: v for name, v in wanted.items() if name in known}
        )

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        rates = {name: hit_rate(result[f"{name}_score"], result[f"{name}_real"]) for name in TESTS}
        error, above = surprise(rates["made"], len(result["made_real"]))
        return {
            "accuracy": rates["made"],
            "error": error,
            "surprise": above,
            "distance": least_distance(rates["made"]),
            "equal_accuracy": rates["equal"],
            "noise_accuracy": rates["noise"],
        }

    def picture_answers(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """How real the interrogator finds real samples (blue) and others (orange).

        It is right {equal:.1%} of the time about two sets of real samples, {made:.1%} about what
        the network made, and {noise:.1%} about noise.
        """
        drawn, rates = [], {}
        for name, words in TESTS.items():
            score, real = result[f"{name}_score"], result[f"{name}_real"]
            rates[name] = hit_rate(score, real)
            curves = {}
            for label, which in (("real", real > 0.5), ("others", real < 0.5)):
                counts = torch.histc(score[which].sigmoid(), 20, 0, 1)
                curves[label] = (torch.arange(0.025, 1, 0.05), counts / which.sum())
            panel = Panel(
                curves,
                "probability of being real",
                "share of samples",
                f"{words}:\n{rates[name]:.1%} right",
                marks={" ": 0.5},
            )
            drawn.append(panel)
        return panels(*drawn), rates

    def tiny(self) -> Self:
        return replace(super().tiny(), of=Trained(), samples=40, questions=5)


def uniform(real: Samples, generator: torch.Generator) -> Samples:
    """Noise: every value is uniform from the lowest to the highest there is in real samples."""
    low, high = real.amin(0), real.amax(0)
    return low + (high - low) * torch.rand(real.shape, generator=generator, dtype=real.dtype)


def check_samples(of: Trained) -> None:
    """Refuse a run whose network makes nothing that could be compared with its data."""
    source: Recipe = of.recipe
    makes = isinstance(source, Training | Fitting) and (
        type(source).sample not in (Training.sample, Fitting.sample)
    )
    spec: Spec = of.spec
    if not makes or source.writes or spec.get("kind") not in KINDS:
        raise UserError(
            f"of ({of}) must be the run of a network that makes samples like those of its data, "
            f"images, rows or texts, and {source.name} makes none; try a run of vae"
        )


def check_enough(of: Trained, samples: int) -> None:
    """Refuse so few samples that nothing could be told from them."""
    if samples < 20:
        raise UserError(
            f"of ({of}) must give at least 20 samples to compare, because fewer tell nothing, and "
            f"there are {samples}; take a run on more data, or fewer letters"
        )


RECIPES = {
    "turing-test": TuringTest(
        goal="equal_accuracy >= 0.48 and equal_accuracy <= 0.52 and noise_accuracy >= 0.92",
        covers=("Z1",),
    ),
}
