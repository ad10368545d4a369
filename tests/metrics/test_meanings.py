"""What a figure means: in the words of the recipe, of its pattern, or of all."""

import pytest

from everynet.metrics.meanings import MEANINGS, explain_metric, meanings


def test_a_recipe_has_the_first_word():
    own = {"accuracy": "of tags", "mse_*": "at a length", "mse_far_*": "never asked"}
    assert explain_metric(own, "accuracy") == "of tags"
    assert explain_metric(own, "mse_12") == "at a length"
    assert explain_metric(own, "mse_far_3") == "at a length", "the first that fits"
    assert explain_metric(own, "mse") == MEANINGS["mse"]
    assert not explain_metric(own, "mse_*".replace("_*", "2"))


def test_only_known_figures_are_shared():
    assert meanings("r2", "mae") == {"r2": MEANINGS["r2"], "mae": MEANINGS["mae"]}
    with pytest.raises(KeyError):
        meanings("acuracy")
