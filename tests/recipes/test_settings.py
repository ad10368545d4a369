"""Settings: text becomes a value of the declared type, or one line that says why not."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.cli import overridden, pairs
from everynet.data.dataset import Data
from everynet.recipes.catalog import entries, find
from everynet.recipes.recipe import Recipe, fact
from everynet.recipes.settings import override, setting_docs, setting_types
from everynet.recipes.settings import settings as values_of
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.values import convert
from everynet.system.wording import written


@dataclass(frozen=True, kw_only=True)
class Base(Recipe):
    """The first half of the settings."""

    width: int = 8
    """Units
    of a layer."""
    rate: float = 0.5
    undocumented: bool = False


@dataclass(frozen=True, kw_only=True)
class Every(Base):
    """One setting of each type."""

    rate: float = 0.25
    """Said again."""
    label: str = "a"
    """Any text."""
    sizes: tuple[int, ...] = (3, 4)
    """As many as wanted."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Exactly two."""
    words: tuple[str, ...] = ()
    """None or more."""
    flags: tuple[bool, ...] = (True,)
    """True or false."""
    goal: str = "accuracy >= 0.5"
    covers: tuple[str, ...] = fact(("F1",))


SETTINGS = ("seed", "width", "rate", "undocumented", "label", "sizes", "betas", "words", "flags")


def test_settings_are_the_fields_that_are_no_facts():
    assert tuple(setting_types(Every)) == SETTINGS
    assert tuple(setting_types(Every())) == SETTINGS
    assert values_of(Every(width=2))["width"] == 2
    assert values_of(Every())["sizes"] == (3, 4)


def test_docs_come_from_the_line_under_each_field_of_every_class():
    docs = setting_docs(Every())
    assert tuple(docs) == SETTINGS
    assert docs["width"] == "Units of a layer."
    assert docs["rate"] == "Said again."
    assert docs["undocumented"] == ""
    assert docs["seed"] == "All randomness of the run follows from this number."


# ------------------------------------------------------------------------------- text to a value


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("width", "12", 12),
        ("width", "-3", -3),
        ("rate", "3", 3.0),
        ("rate", "1e-3", 0.001),
        ("rate", ".5", 0.5),
        ("undocumented", "true", True),
        ("undocumented", "True", True),
        ("undocumented", "yes", True),
        ("undocumented", "1", True),
        ("undocumented", "false", False),
        ("undocumented", "NO", False),
        ("undocumented", "0", False),
        ("label", "", ""),
        ("label", "a=b, c", "a=b, c"),
        ("label", "12", "12"),
        ("sizes", "1,2,3", (1, 2, 3)),
        ("sizes", "(1, 2)", (1, 2)),
        ("sizes", "5", (5,)),
        ("sizes", "5,", (5,)),
        ("sizes", "", ()),
        ("sizes", "()", ()),
        ("betas", "0.1,1", (0.1, 1.0)),
        ("words", "a,b c", ("a", "b c")),
        ("flags", "true,no", (True, False)),
    ],
)
def test_text_becomes_a_value(name, written, value):
    converted = convert(name, written, setting_types(Every)[name])
    assert converted == value
    assert type(converted) is type(value)
    if isinstance(value, tuple):
        assert [type(part) for part in converted] == [type(part) for part in value]
    assert getattr(override(Every(), {name: written}), name) == value


@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
        ("width", "1.5", r"width \(1.5\) must be a whole number"),
        ("width", "", r"width \(\) must be a whole number"),
        ("width", "many", r"width \(many\) must be a whole number"),
        ("width", "9" * 5000, r"width \(9+\.\.\.9+\) must be a whole number"),
        ("rate", "fast", r"rate \(fast\) must be a number"),
        ("rate", "nan", r"rate \(nan\) must be a number"),
        ("rate", "-inf", r"rate \(-inf\) must be a number"),
        ("rate", "1e999", r"rate \(1e999\) must be a number"),
        ("undocumented", "maybe", r"undocumented \(maybe\) must be true or false"),
        ("sizes", "1,two", r"sizes \(1,two\) must be whole numbers separated by commas"),
        ("sizes", "1,,2", r"sizes \(1,,2\) must be whole numbers separated by commas"),
        ("betas", "1", r"betas \(1\) must be numbers separated by commas"),
        ("betas", "1,2,3", r"betas \(1,2,3\) must be numbers separated by commas"),
        ("betas", "1,inf", r"betas \(1,inf\) must be numbers separated by commas"),
    ],
)
def test_text_that_is_no_value(name, written, message):
    with pytest.raises(UserError, match=f"^{message}"):
        convert(name, written, setting_types(Every)[name])
    with pytest.raises(UserError, match=f"^{message}"):
        override(Every(), {name: written})


# --------------------------------------------------------------------------- values from Python


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("rate", 2, 2.0),
        ("sizes", [1, 2], (1, 2)),
        ("sizes", (), ()),
        ("betas", [0.1, 1], (0.1, 1.0)),
        ("words", ["a"], ("a",)),
        ("flags", [False], (False,)),
        ("rate", np.float64(0.5), 0.5),
        ("rate", np.float32(0.5), 0.5),
        ("rate", torch.tensor(2), 2.0),
        ("width", np.int64(3), 3),
        ("undocumented", np.bool_(True), True),
        ("sizes", 3, (3,)),  # as the command line takes it
        ("sizes", np.int64(3), (3,)),
        ("sizes", np.array([3, 4]), (3, 4)),
        ("flags", True, (True,)),
        ("words", "a", ("a",)),
        ("label", Path("a/b"), "a/b"),
    ],
)
def test_values_from_python(name, value, kept):
    made = getattr(override(Every(), {name: value}), name)
    assert repr(made) == repr(kept)  # 2 is not 2.0 to torch


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("width", 1.5, r"width \(1.5\) must be a whole number"),
        ("width", True, r"width \(True\) must be a whole number"),
        ("width", None, r"width \(None\) must be a whole number"),
        pytest.param("rate", 10**400, r"rate \(10+\.\.\.0+\) must be a number", id="huge"),
        pytest.param(
            "rate", np.zeros((9, 9)), r"rate \(\[\[0\. .*\) must be a number$", id="array"
        ),
        ("rate", True, r"rate \(True\) must be a number"),
        ("label", 3, r"label \(3\) must be text"),
        ("undocumented", 1, r"undocumented \(1\) must be true or false"),
        ("sizes", 3.5, r"sizes \(3.5\) must be a whole number"),
        ("sizes", None, r"sizes \(None\) must be whole numbers separated by commas"),
        ("betas", 1.0, r"betas \(.*1.0.*\) must be numbers separated by commas"),
        ("sizes", [1, 2.5], r"sizes \(.*2.5.*\) must be a whole number"),
        ("sizes", [1, [2]], r"sizes \(.*2.*\) must be a whole number"),
        ("betas", [1.0], r"betas \(.*1.0.*\) must be numbers separated by commas"),
        ("betas", [1.0, 2.0, 3.0], r"betas \(.*\) must be numbers separated by commas"),
    ],
)
def test_values_of_the_wrong_type(name, value, message):
    with pytest.raises(UserError, match=f"^{message}"):
        override(Every(), {name: value})


@pytest.mark.parametrize("name", ["widht", "goal", "covers", "name", "changed", "epochs"])
def test_what_is_no_setting(name):
    with pytest.raises(
        UserError, match=f"^Every has no setting {name}; did you mean .*, .* or .*\\?$"
    ):
        override(Every(), {name: "1"})


def test_the_nearest_setting_comes_first():
    with pytest.raises(UserError, match=r"^mine has no setting widht; did you mean width, "):
        override(Every(name="mine"), {"widht": 1})


def test_a_recipe_checks_its_own_values():
    with pytest.raises(UserError, match=r"^seed \(-1\) must be at least 0 and below 2\^63"):
        override(Every(), {"seed": "-1"})


# -------------------------------------------------------------------------------------- changed


def test_changed_names_what_differs_from_the_zoo():
    recipe = override(Every(), {"sizes": "1", "width": "9"})
    assert recipe.changed == ("width", "sizes")  # in the order of the fields
    assert override(recipe, {"label": "b"}).changed == ("width", "label", "sizes")
    assert override(Every(), {"width": 8, "seed": 5}).changed == ()
    assert override(Every(), {}).changed == ()


def test_a_setting_given_with_its_own_value_is_given_and_no_change():
    recipe = override(override(Every(), {"width": 8, "seed": 5}), {"label": "b"})
    assert recipe.changed == ("label",)
    assert recipe.explicit == recipe.settings_given() == ("width", "label")
    assert replace(Every(), width=9, changed=("width",)).settings_given() == ("width",)
    assert recipe == replace(recipe, explicit=()), "it is the same recipe"


def test_override_keeps_the_facts():
    recipe = override(Every(name="mine", covers=("M1",)), {"width": 3})
    assert (recipe.name, recipe.covers, recipe.goal) == ("mine", ("M1",), "accuracy >= 0.5")


# ------------------------------------------------------------------------- there and back again

LETTERS = st.text("abcxyz-_./: =", max_size=8)
NAMES = st.text("abcxyz-_./:", min_size=1, max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=50, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "seed": st.integers(0, 2**63 - 1),
            "width": st.integers(-(2**63), 2**63 - 1),
            "rate": NUMBERS,
            "undocumented": st.booleans(),
            "label": LETTERS,
            "sizes": st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple),
            "betas": st.tuples(NUMBERS, NUMBERS),
            "words": st.lists(NAMES).map(tuple),
            "flags": st.lists(st.booleans()).map(tuple),
        }
    )
)
def test_every_value_survives_the_command_line(values):
    recipe = override(Every(), values)
    words = [f"{name}={written(value)}" for name, value in values_of(recipe).items()]
    again = overridden(Every(), words)
    assert values_of(again) == values_of(recipe)
    assert again.changed == recipe.changed


@pytest.mark.parametrize("name", [entry.name for entry in entries()[0]])
def test_every_field_of_the_zoo_survives_the_command_line(name):
    recipe = find(name)
    for field, value in values_of(recipe).items():
        again = override(recipe, pairs([f"{field}={written(value)}"]))
        assert again == recipe, field
        assert type(getattr(again, field)) is type(value), field
    assert all(setting_docs(recipe).values()), "each field has a docstring line"
    methods = {word for cls in type(recipe).__mro__[:-1] for word in vars(cls)}
    named = {f.name for f in fields(recipe)}
    assert not {word for word in methods & named if callable(getattr(type(recipe), word, None))}


# --------------------------------------------------------------------------------------- epochs


@dataclass(frozen=True, kw_only=True)
class Learning(Training):
    """Sixty rows, ten at a time: six steps an epoch."""

    batch_size: int = 10
    rows: int = 60

    def dataset(self):
        if self.rows == 0:
            return Data.none()
        return Data(splits={"train": (torch.zeros(self.rows, 1),)}, batch_size=self.batch_size)


@dataclass(frozen=True, kw_only=True)
class Counting(Training):
    """A recipe with a setting of its own that is called epochs."""

    epochs: int = 3


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (["epochs=1"], 6),
        (["epochs=2", "batch_size=20"], 6),
        (["epochs=2", "batch_size=7"], 16),
        (["epochs=0.5"], 3),
        (["epochs=0.01"], 1),
        (["rows=90", "epochs=10"], 90),
        (["steps=5"], 5),
        ([], 1000),
    ],
)
def test_epochs_become_steps(words, steps):
    recipe = overridden(Learning(name="mine"), words)
    assert recipe.steps == steps
    assert ("steps" in recipe.changed) == (steps != 1000)


def test_a_setting_called_epochs_stays_one():
    assert overridden(Counting(), ["epochs=7"]) == override(Counting(), {"epochs": 7})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["epochs=2", "steps=3"], "epochs and steps must not both be given"),
        (["epochs=0"], r"epochs \(0\) must be a positive number"),
        (["epochs=-1"], r"epochs \(-1\) must be a positive number"),
        (["epochs=few"], r"epochs \(few\) must be a number"),
        (["epochs=nan"], r"epochs \(nan\) must be a number"),
        (["epochs=2", "rows=0"], r"epochs \(2\) must be steps: mine has no set to go through"),
        (["lr"], "lr must be a setting written name=value, such as seed=1"),
        (["=3"], "=3 must be a setting written name=value"),
        (["lr=1", "lr=2"], "lr is given twice; keep one of them"),
        (["steps=0"], r"steps \(0\) must be at least 1"),
        (["batch_size=61", "epochs=1"], r"batch_size \(61\) must be between 1 and the 60"),
        (["optimizer=admw"], r"unknown optimizer 'admw'; did you mean adamw, "),
    ],
)
def test_settings_that_cannot_be(words, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        overridden(Learning(name="mine"), words)


def test_a_recipe_without_steps_has_no_epochs():
    with pytest.raises(UserError, match=r"^Every has no setting epochs"):
        overridden(Every(), ["epochs=3"])


def test_a_value_may_hold_an_equals_sign():
    assert pairs(["data=a=b", "target="]) == {"data": "a=b", "target": ""}


def test_numbers_keep_every_bit_on_the_command_line():
    for value in (0.1, 1 / 3, 5e-324, math.pi * 1e300):
        assert convert("rate", written(value), float) == value
