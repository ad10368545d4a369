"""Networks as estimators of scikit-learn: its own checks, and what `fit` does of a run."""

import copy
import pickle
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import everynet
from everynet import Training
from everynet.data import load
from everynet.data.in_memory import Given
from everynet.metrics import name_classes
from everynet.runs.estimator import _divided
from everynet.system.errors import NonFinite

SMALL = {"hidden": (16,), "steps": 25, "batch_size": 8, "lr": 0.1, "passes": 0}
IRIS = load_iris(return_X_y=True)


def small(name="mlp", **settings):
    return everynet.estimator(name, **SMALL | settings)


@parametrize_with_checks([small(precision="fp64"), small(task="regression", precision="fp64")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_it_learns_and_searches_in_a_pipeline():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), small()),
        {"mlpclassifier__lr": [1e-6, 0.1], "mlpclassifier__hidden": [(16,)]},
        cv=2,
        error_score="raise",
    ).fit(*IRIS)
    assert search.best_params_["mlpclassifier__lr"] == 0.1
    assert search.best_score_ > 0.85
    assert search.predict_proba(IRIS[0]).shape == (150, 3)
    numbers = small(task="regression", steps=300, lr=0.01)
    assert cross_val_score(numbers, *load_diabetes(return_X_y=True), cv=2).min() > 0.2


@pytest.mark.slow
def test_it_goes_to_other_processes():
    alone, two = (cross_val_score(small(), *IRIS, cv=2, n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_array_equal(alone, two)


def test_every_row_is_trained_on():
    """`batch_size` cannot be above the rows that are trained on: all of them, or nine tenths."""
    X, y = IRIS[0][::15], IRIS[1][::15]
    all_of_them = small(batch_size=10).fit(X, y)
    assert all_of_them.n_iter_ == 25
    with pytest.raises(ValueError, match=r"batch_size \(11\) must be between 1 and the 10"):
        small(batch_size=11).fit(X, y)
    for setting in ({"patience": 3}, {"metric": "accuracy"}, {"schedule": "plateau"}):
        with pytest.raises(ValueError, match="must be between 1 and the 9 training samples"):
            small(batch_size=10, **setting).fit(X, y)
    fewer = everynet.estimator("mlp", steps=2).fit(X, y)
    assert (fewer.recipe_.batch_size, everynet.recipe("mlp").batch_size) == (10, 64)


def test_what_is_held_out_chooses_the_weights():
    X, y = IRIS
    last = small(steps=400).fit(X, y)
    patient = small(steps=400, eval_every=10, patience=2).fit(X, y)
    assert "valid_loss" not in last.history_
    assert patient.n_iter_ < last.n_iter_ == 400
    losses = np.array(patient.history_["valid_loss"])
    best = np.nanargmin(losses)
    assert patient.history_["step"][best] == patient.n_iter_ - 20
    order, parts = _divided(y, chooses=True)
    held_out = order[parts["valid"].start :]
    assert sorted(order) == [*range(150)]
    assert np.bincount(y[held_out]).tolist() == [5, 5, 5]
    sure = patient.predict_proba(X[held_out])[np.arange(len(held_out)), y[held_out]]
    np.testing.assert_allclose(-np.log(sure).mean(), losses[best], rtol=1e-4)
    order, parts = _divided(X[:, 0], chooses=True)
    assert sorted(order) == [*range(150)]
    assert len(parts["train"]) + len(parts["valid"]) == 150
    frame = pd.DataFrame(X, columns=list("abcd"))
    of_frame = small(steps=400, eval_every=10, patience=2).fit(frame, y)
    np.testing.assert_array_equal(of_frame.predict_proba(frame), patient.predict_proba(X))


def test_the_seed_is_random_state():
    X, y = IRIS

    def first(**settings):
        return small(**settings).fit(X, y).predict_proba(X)[:, 1].sum()

    before = torch.random.get_rng_state()
    assert first() == first(random_state=np.int64(0)) != first(random_state=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    drawn = np.random.RandomState(3)
    assert first(random_state=drawn) != first(random_state=drawn)
    with pytest.raises(ValueError, match="cannot be used to seed"):
        first(random_state="three")


def test_fit_is_a_run_that_out_keeps(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    X, y = IRIS
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    silent = small().fit(X, names)
    assert capfd.readouterr() == ("", "")
    assert not [*tmp_path.iterdir()]
    assert silent.run_ is None
    kept = small(out="kept").fit(X, names)
    assert capfd.readouterr() == ("", "")
    assert kept.run_.parent.name == "kept"
    of_folder = everynet.trained(kept.run_).predict(X[:3])
    np.testing.assert_allclose(
        [[*answer["probabilities"].values()] for answer in of_folder],
        silent.predict_proba(X[:3]),
        rtol=1e-6,
    )
    assert of_folder[0]["class"] == silent.predict(X[:1])[0]
    weights = zip(kept.model_.parameters(), everynet.load(kept.run_).parameters(), strict=True)
    assert all(torch.equal(*two) for two in weights)
    assert all(map(torch.equal, kept.model_.parameters(), silent.model_.parameters()))
    with pytest.raises(ValueError, match="must be what the run was made with"):
        everynet.resume(kept.run_, data=(X, names))  # which would divide the rows otherwise


def test_rows_that_are_divided_otherwise_are_other_data():
    x, parts = IRIS[0], {"train": range(100), "valid": range(100, 150), "test": range(100, 150)}
    assert len({Given(x).name, Given(x, parts=parts).name, Given(x, parts=parts).name}) == 2


def test_frames_become_features_as_those_of_a_run_do():
    colour = np.array(["red", "green", "blue"])
    which = np.arange(90) % 3
    frame = pd.DataFrame(
        {"colour": colour[which], "length": np.where(np.arange(90) % 9, 1.0 + which, np.nan)}
    )
    learned = small(steps=60).fit(frame, which)
    assert [*learned.feature_names_in_] == ["colour", "length"]
    assert learned.score(frame, which) == 1
    assert learned.spec_["features"][:3] == ["colour=blue", "colour=green", "colour=red"]
    with pytest.raises(ValueError, match="feature names should match"):
        learned.predict(frame.rename(columns={"colour": "color"}))
    polars = pl.DataFrame({"length": [1.0, 2.0] * 20, "width": [3.0, 4.0] * 20})
    assert small().fit(polars, [0, 1] * 20).predict(polars[:2]).tolist() == [0, 1]


def test_missing_numbers_are_a_column_of_their_own():
    X = np.array([[0.0, 1.0], [np.nan, 2.0]] * 20)
    y = np.isnan(X[:, 0]).astype(int)
    assert small().fit(X, y).score(X, y) == 1
    assert small().fit(X, y).spec_["features"] == ["x0", "x0 is missing", "x1"]
    with pytest.raises(ValueError, match="X contains infinity"):
        small().fit(X, y).predict([[0.0, np.inf]])


def images():
    digits = load_digits()
    return digits.images[:200].astype(np.uint8) * 15, digits.target[:200]


def test_images():
    x, y = images()
    net = everynet.estimator("lenet", steps=60, batch_size=50, lr=0.01).fit(x, y)
    assert net.score(x, y) > 0.8
    assert net.spec_["peak"] == 255
    x.flags.writeable = False
    colour = np.repeat(x[:20, None], 3, axis=1)
    colour.flags.writeable = False
    in_colour = everynet.estimator("lenet", steps=1, batch_size=20).fit(colour, y[:20])  # all rows
    assert set(in_colour.predict(colour)) <= set(y[:20])


def test_a_copy_answers_with_the_same_bits():
    x, y = images()
    net = everynet.estimator("lenet", steps=3, batch_size=50).fit(x, y)
    before = torch.random.get_rng_state()
    copies = pickle.loads(pickle.dumps(net)), copy.deepcopy(net)
    assert torch.equal(torch.random.get_rng_state(), before)
    for other in copies:
        np.testing.assert_array_equal(net.predict_proba(x), other.predict_proba(x))
        assert type(other) is type(net)
    assert clone(net).get_params() == net.get_params()
    assert not hasattr(clone(net), "model_")
    state = net.__getstate__()
    assert {type(array) for array in state["model_"].values()} == {np.ndarray}
    assert type(state["recipe_"]) is dict
    assert isinstance(net.model_, nn.Module)


def test_tensors_come_back_as_tensors():
    x, y = map(torch.tensor, IRIS)
    net = small().fit(x, y)
    assert isinstance(net.predict(x), torch.Tensor)
    assert isinstance(net.predict_proba(x), torch.Tensor)
    assert net.predict(x).dtype == net.classes_.dtype == torch.int64
    np.testing.assert_array_equal(net.predict_proba(x), small().fit(*IRIS).predict_proba(IRIS[0]))


def test_weights_of_classes():
    X, y = IRIS[0][50:], IRIS[1][50:]
    rare = np.r_[0:50, 50:55]

    def found(weights):
        return (small(class_weight=weights).fit(X[rare], y[rare]).predict(X) == 2).mean()

    assert found({2: 1000.0}) > found({1: 1000.0, 2: 1.0})
    assert small(class_weight="balanced").fit(X[rare], y[rare]).recipe_.class_weights == (0.55, 5.5)
    assert small(class_weight=None).fit(X, y).recipe_.class_weights == ()


def test_more_than_fifty_classes():
    y = np.repeat(np.arange(60) - 7, 2)
    net = small(steps=1).fit(np.c_[y, y].astype(float), y)
    np.testing.assert_array_equal(net.classes_, np.arange(60) - 7)
    assert set(net.predict(np.c_[y, y])) <= set(y)


@dataclass(frozen=True, kw_only=True)
class Line(Training):
    """A recipe of one's own."""

    data: str = "iris"
    width: int = 4

    def dataset(self):
        return load(self.data, kind="table", batch_size=self.batch_size, seed=self.seed)

    def model(self, data):
        return nn.Linear(data.spec["shape"][0], len(data.spec["classes"]))

    def objective(self, model, batch):
        x, t = batch
        return {"loss": nn.functional.cross_entropy(model(x), t)}

    def predict(self, model, inputs, spec):
        return name_classes(model(inputs).softmax(1), spec["classes"])


def test_a_recipe_of_ones_own():
    net = everynet.estimator(Line(lr=0.1, steps=200), width=3)
    assert repr(net) == "LineClassifier(width=3)"
    assert net.get_params()["lr"] == 0.1
    assert pickle.loads(pickle.dumps(net.fit(*IRIS))).score(*IRIS) > 0.9


def test_what_a_recipe_says_of_its_own_data_is_not_meant():
    given = {"data": "mine.csv", "target": "price", "drop": ("id",), "holdout": False}
    recipe = everynet.recipe("mlp", task="regression", steps=5, **given)
    assert set(everynet.estimator(recipe).fit(*IRIS).predict(IRIS[0])) <= {0, 1, 2}


def test_what_is_typed_wrong_is_one_line():
    with pytest.raises(TypeError, match=r"^mlp has no setting lrr; did you mean lr, .*\?$"):
        everynet.estimator("mlp", lrr=0.1)
    with pytest.raises(TypeError, match=r"^mlp has no setting learning_rate; write lr=0.1$"):
        everynet.estimator("mlp", learning_rate=0.1)
    with pytest.raises(TypeError, match=r"^seed \(3\) is called random_state by scikit-learn"):
        everynet.estimator("mlp", seed=3)
    with pytest.raises(TypeError, match=r"^data must be left out of an estimator, because X and y"):
        everynet.estimator("mlp", data="iris")
    with pytest.raises(ValueError, match=r"^mlp has no setting hiden; did you mean hidden"):
        small().set_params(hiden=(3,))
    with pytest.raises(ValueError, match=r"^unknown optimizer 'adm'; did you mean adam"):
        small(optimizer="adm").fit(*IRIS)
    with pytest.raises(ValueError, match=r"^unknown task 'regresion'; did you mean regression"):
        everynet.estimator("mlp", task="regresion")
    with pytest.raises(ValueError, match="did you mean mlp"):
        everynet.estimator("mpl")
    for name, kind in (("least-squares", "fitting"), ("dqn", "training")):
        line = rf"{name} \(a {kind}\) must be a training that takes data= to be an estimator"
        with pytest.raises(ValueError, match=line):
            everynet.estimator(name)
    with pytest.raises(
        ValueError, match=r"class_weight \(7\) must name classes of y; did you mean"
    ):
        small(class_weight={7: 2.0}).fit(*IRIS)
    with pytest.raises(ValueError, match=r"^unknown device 'gpu'"):
        small(device="gpu").fit(*IRIS)


def test_a_network_that_predicts_something_else_is_refused_before_it_is_trained():
    x, y = images()
    with pytest.raises(ValueError, match=r"autoencoder predicts .* and not probabilities"):
        everynet.estimator("autoencoder", steps=20).fit(x, y)
    with pytest.raises(ValueError, match="must be images with a class each"):
        everynet.estimator("lenet", task="regression").fit(x, y)
    with pytest.raises(ValueError, match="images X, N x H x W"):
        everynet.estimator("lenet").fit(*IRIS)


def test_numbers_that_cease_to_be_finite_end_it_in_a_line():
    message = re.escape("a value became non-finite by step") + r" \d+; try a smaller lr or clip=1"
    with pytest.raises(NonFinite, match=message):
        small(task="regression", lr=1e30, optimizer="sgd", steps=200).fit(*IRIS)
