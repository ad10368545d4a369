"""Baselines: simple models of scikit-learn beside a network, on the same rows of the same table.

    difference = (1/G) sum_g mean_g (v - w)                            (1)
    error      = sqrt(sum_g share^2 var_g (v - w) / n_g)               (2)  of the difference

where v is what the baseline is worth on a test sample and w what the network is: 1 or 0 for a right
or wrong class and 1 - (p - t)^2 / var t for a number, so that the means are accuracy and R2. There
is one group g of samples; for balanced accuracy each of G classes is one, and share is 1/G. For the
area under the ROC curve v and w are placements, the two classes are the groups, each of which has
the area as its mean, and share is 1 (DeLong et al., see `metrics/ranking.py`). A baseline does
better where the difference is more than its error.

Cost is bounded by the size of the table and by no clock, so that a run that was resumed says the
same to the bit: at most `MOST_ROWS` rows and `MOST_VALUES` values are fitted, by one thread, which
takes a linear model some seconds at most. Boosting takes long where columns or classes are many,
and is left out where the estimate by `boosting_seconds` is above `MOST_SECONDS`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from everynet.data.dataset import Data
from everynet.data.split import stratified
from everynet.metrics.ranking import placements
from everynet.metrics.summary import classified, decided, regressed, summarise_outputs
from everynet.recipes.recipe import Recipe
from everynet.recipes.tabular import Probabilistic
from everynet.runs.threshold import find_threshold, has_threshold
from everynet.system.seeds import generator
from everynet.system.wording import shown

MOST_ROWS = 100_000
MOST_VALUES = 20_000_000  # 160 MB
MOST_SECONDS = 15
_TOGETHER = 128  # batches that are predicted at once, to take little memory
RARE = 0.2
"""A share of samples below which accuracy says little of the rarer of two classes."""
BOOSTED = "HistGradientBoosting"
KINDS = {
    **{"the commonest class": "commonest", "the mean": "mean"},
    **{"LogisticRegression": "linear", "Ridge": "linear", BOOSTED: "boosted"},
}
"""What metrics.jsonl calls each baseline."""
COMPARED = ("accuracy", "balanced_accuracy", "auc")
"""Metrics of classes whose differences have a standard error."""
Outputs: TypeAlias = Mapping[str, Tensor]
"""What a model says of every test sample, by name."""
Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Baselines:
    """What simple models reach on the test split of a run, beside its network."""

    network: str
    """The name of the recipe."""
    metrics: Mapping[str, Mapping[str, float]]
    """The metrics of each model by its name, those of the network first."""
    metric: str
    """What they are compared by."""
    best: str
    """The baseline that is best by it."""
    difference: float
    """By how much that is better than the network; below 0 where it is not."""
    error: float
    """The standard error of that."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why a baseline is not there, by its name."""
    rows: tuple[int, int] = (0, 0)
    """How many training rows the baselines were fitted to, and how many there are."""

    @property
    def better(self) -> str:
        """The baseline that does better than the network by more than chance; or empty."""
        tie = 1e-9  # one test sample more, whose difference and error are the same number
        return self.best if self.difference > self.error * (1 + tie) else ""

    def headline(self) -> Iterator[str]:
        """What a summary begins with where a baseline does better."""
        if self.better:
            theirs, ours = (self.metrics[n][self.metric] for n in (self.best, self.network))
            yield (
                f"{self.best} does better: {self.metric} {theirs:.3f} against {ours:.3f} on the "
                f"test split (standard error of the difference: {self.error:.2g})"
            )

    def notes(self) -> Iterator[str]:
        """What else there is to know of them."""
        if not self.better:
            yield f"no baseline does better by more than the standard error ({self.metric})"
        if self.rows[0] < self.rows[1]:
            yield f"fitted to {self.rows[0]:,} of {self.rows[1]:,} training rows"
        yield from (f"{name} is left out: {why}" for name, why in self.left_out.items())

    def table(self) -> list[list[str]]:
        """Models by metrics as text, a header first."""
        names = [*dict.fromkeys(name for found in self.metrics.values() for name in found)]
        return [["model", *names]] + [
            [model, *(f"{found[name]:.4g}" if name in found else "-" for name in names)]
            for model, found in self.metrics.items()
        ]

    def logged(self) -> dict[str, dict[str, float]]:
        """What metrics.jsonl holds of them, as of splits."""
        named = {name: found for name, found in self.metrics.items() if name in KINDS}
        return {f"baseline_{KINDS[name]}": dict(found) for name, found in named.items()}


def measure_baselines(
    recipe: Recipe, data: Data, outputs: Outputs, metrics: Mapping[str, float], unit: float = 1.0
) -> Baselines | None:
    """Fit and measure them; None where a run has no rows with a target, or does not want them.

    `outputs` is what the network says of each test sample, `metrics` what follows from it, and
    `unit` how large a target of 1 is in the units of these.
    """
    if not getattr(recipe, "baselines", True) or not _has_targets(data, outputs):
        return None
    (x, t), left_out = data.whole, dict[str, str]()
    metric = deciding_metric(recipe, outputs, metrics)
    fitted, compared = dict[str, dict[str, float]](), dict[str, tuple[float, float]]()
    chosen = _choose_rows(x, t)
    rows, targets = _arrays(x[chosen], t[chosen])
    for name, model in make_models(recipe, data.spec["task"]).items():
        why = _explain_cost(rows, t) if name == BOOSTED else ""
        if why or (why := fit(model, rows, targets)):
            left_out[name] = why
            continue
        found = predict(model, data, "test", unit)
        if has_threshold(recipe) and isinstance(recipe, Probabilistic):
            own = find_threshold(recipe, data, predict(model, data, "valid", unit))
            found = decided(found, {**data.spec, "threshold": own})
        fitted[name] = _without_majority(summarise_outputs(found))
        compared[name] = compare(metric, found, outputs)
    shared = {n: v for n, v in metrics.items() if any(n in each for each in fitted.values())}
    best = max(compared, key=lambda name: compared[name][0])
    network = recipe.name or type(recipe).__name__
    every = {network: shared, **fitted}
    return Baselines(network, every, metric, best, *compared[best], left_out, (len(rows), len(x)))


def _has_targets(data: Data, outputs: Outputs) -> bool:
    """Whether rows of a table have a class or a number to learn, and outputs say how well."""
    task = {"classification": "accuracy", "regression": "_predicted"}
    if data.spec.get("kind") != "table" or task.get(data.spec.get("task", "")) not in outputs:
        return False
    shapes = [[tensor.dim() for tensor in data.splits.get(s, ())] for s in ("train", "test")]
    return shapes == [[2, 1], [2, 1]]


def _choose_rows(
    x: Float[Tensor, "rows columns"], t: Shaped[Tensor, " rows"]
) -> Int[Tensor, " chosen"]:
    """The training rows that are fitted: by hash, and of each class its share.

    Of a large table they are chosen among rows drawn with a fixed seed.
    """
    most = max(1, min(MOST_ROWS, MOST_VALUES // max(1, x.shape[1])))
    some = torch.arange(min(len(x), 4 * most))
    if len(some) < len(x):
        some = torch.randint(len(x), some.shape, generator=generator(most)).unique()
    if len(some) <= most:
        return some
    classes = torch.zeros(len(some)) if t.is_floating_point() else t[some.to(t.device)].cpu()
    return some[stratified(classes, most / len(some), "baselines")]


def _arrays(x: Tensor, t: Tensor) -> tuple[Array, Array]:
    numbers = t.double() if t.is_floating_point() else t
    return x.double().cpu().numpy(), numbers.cpu().numpy()


def boosting_seconds(rows: int, columns: int, trees: int) -> float:
    """What a hundred steps of boosting take one core of today at most, `trees` in each."""
    return trees * columns * (6e-3 + 3e-7 * rows)


def _explain_cost(x: Array, t: Tensor) -> str:
    """Why boosting would take too long; mostly empty."""
    classes = 2 if t.is_floating_point() else int(t.max()) + 1
    trees = classes if classes > 2 else 1
    rows, columns = x.shape
    seconds = boosting_seconds(rows, columns, trees)
    if seconds <= MOST_SECONDS:
        return ""
    many = f"{columns:,} columns" + (f" and {trees:,} classes" if trees > 1 else "")
    return f"{many} would take it about {seconds:,.0f} s, more than {MOST_SECONDS}"


def make_models(recipe: Recipe, task: str) -> dict[str, Any]:
    """The baselines by their name, the cheapest first; classes weigh as they do for the network."""
    from sklearn import dummy, ensemble, linear_model  # noqa: PLC0415 -- half a second

    seed = recipe.seed % 2**32
    if task == "regression":
        return {
            "the mean": dummy.DummyRegressor(),
            "Ridge": linear_model.Ridge(),
            BOOSTED: ensemble.HistGradientBoostingRegressor(random_state=seed),
        }
    weights = {"class_weight": getattr(recipe, "class_weight", "") or None}
    return {
        "the commonest class": dummy.DummyClassifier(),
        "LogisticRegression": linear_model.LogisticRegression(max_iter=1000, **weights),
        BOOSTED: ensemble.HistGradientBoostingClassifier(random_state=seed, **weights),
    }


def fit(model: Any, x: Array, t: Array) -> str:  # noqa: ANN401 -- scikit-learn has no types
    """Fit a model by one thread, so that no bit depends on the machine; why it cannot be."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 -- with scikit-learn

    try:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence: it is a baseline
            model.fit(x, t)
    except (ValueError, ArithmeticError, MemoryError) as error:  # the run is whole without it
        return f"scikit-learn refuses the rows ({shown(' '.join(str(error).split()), 200)})"
    return ""


def predict(model: Any, data: Data, split: str, unit: float) -> dict[str, Tensor]:  # noqa: ANN401 -- scikit-learn has no types
    """What a fitted model says of each sample of a split, as recipes say it."""
    batches = ([tensor.cpu() for tensor in batch] for batch in data.batches(split))
    pieces = list[dict[str, Tensor]]()
    while some := [*islice(batches, _TOGETHER)]:
        x, t = (torch.cat(parts) for parts in zip(*some, strict=True))
        pieces.append(_predict(model, x, t, unit, len(data.spec["classes"])))
    return {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}


def _predict(
    model: Any,  # noqa: ANN401 -- scikit-learn has no types
    x: Tensor,
    t: Tensor,
    unit: float,
    classes: int,
) -> dict[str, Tensor]:
    rows, _ = _arrays(x, t)
    if t.is_floating_point():
        predicted = torch.from_numpy(model.predict(rows))
        return regressed(predicted * unit, t.double() * unit)
    log_p = np.log(model.predict_proba(rows).clip(1e-300))
    logits = torch.full((len(t), classes), math.log(1e-300), dtype=torch.float64)
    logits[:, model.classes_] = torch.from_numpy(log_p)
    return classified(logits, t)


def _without_majority(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name != "majority"}


def deciding_metric(recipe: Recipe, outputs: Outputs, metrics: Mapping[str, float]) -> str:
    """What models are compared by: the run's own metric, or one that suits how rare classes are."""
    if "_predicted" in outputs:
        return "r2"
    if (own := str(getattr(recipe, "metric", ""))) in COMPARED and own in metrics:
        return own
    if getattr(recipe, "class_weight", ""):
        return "balanced_accuracy"
    ranked = "_score" in outputs and "auc" in metrics
    return "auc" if ranked and metrics.get("majority", 0) > 1 - RARE else "accuracy"


def compare(metric: str, theirs: Outputs, ours: Outputs) -> tuple[float, float]:
    """By how much a baseline is better than the network, and the standard error of that."""
    v, w = (_worth(metric, outputs) for outputs in (theirs, ours))
    parts = [(v - w.cpu())[group] for group in _groups(metric, theirs)]
    difference = sum(float(d.mean()) for d in parts) / len(parts)  # (1)
    if min(map(len, parts)) < 2:
        return difference, math.inf  # of one sample there is no spread
    share = 1 if metric == "auc" else 1 / len(parts)
    error = math.sqrt(sum(share**2 * float(d.var() / len(d)) for d in parts))  # (2)
    return difference, error


def _worth(metric: str, outputs: Outputs) -> Float[Tensor, " samples"]:
    """What a model is worth on each sample."""
    if metric == "r2":
        p, t = outputs["_predicted"].double(), outputs["_target"].double()
        return 1 - (p - t).square() / (t - t.mean()).square().mean()
    if metric == "auc":
        return placements(outputs["_score"].cpu(), outputs["_target"].cpu() == 1)
    return outputs["accuracy"].double()


def _groups(metric: str, outputs: Outputs) -> Sequence[Shaped[Tensor, " samples"]]:
    """Marks of the samples that are drawn apart from each other."""
    t = outputs["_target"]
    if metric in ("auc", "balanced_accuracy"):
        return [t == k for k in t.unique()]
    return [torch.ones(len(t), dtype=torch.bool)]
