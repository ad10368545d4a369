"""BLEU by the length of the source, and the table of three translators."""

import math

import pytest
import torch

from everynet.metrics.bleu import corpus_bleu, match_texts
from everynet.recipes.catalog import find
from everynet.recipes.experiment import Table
from everynet.zoo.translation.translation import bleu_by_length
from everynet.zoo.translation.translators import Translators


def sentence(words, first="a"):
    return " ".join([first, *(f"w{n}" for n in range(words - 1))])


def test_each_sentence_counts_in_the_part_of_its_source():
    lengths = (1, 10, 11, 15, 16, 30)
    sources = [sentence(n) for n in lengths]
    truths = [sentence(8, f"t{n}") for n in range(6)]
    outputs = [
        truths[0],
        truths[1],
        sentence(8, "x"),
        truths[3],
        sentence(8, "y"),
        sentence(8, "z"),
    ]
    found = bleu_by_length(sources, outputs, truths)
    for name, rows in {"short": [0, 1], "middle": [2, 3], "long": [4, 5]}.items():
        own, others = ([side[n] for n in rows] for side in (outputs, truths))
        assert found[name] == corpus_bleu(match_texts(own, [others])).score
    assert found["short"] == pytest.approx(100)
    assert found["short"] > found["middle"] > found["long"]


def test_a_part_without_sentences_is_left_out():
    assert set(bleu_by_length(["a b"], ["c d"], ["c d"])) == {"short"}


class Cell:
    def __init__(self, *bleu):
        nothing = [math.nan] * 3
        self.measured = {"bleu": torch.tensor([nothing, list(bleu)], dtype=torch.double)}


@pytest.mark.covers("R18")
def test_the_gap_is_what_attention_adds_at_the_end():
    table = Table.__new__(Table)
    cells = {
        "transformer": Cell(43, 40, 35),
        "bahdanau": Cell(42, 38, math.nan),
        "fixed": Cell(37, 31, 20),
    }
    object.__setattr__(table, "cells", cells)
    found = Translators().metrics(table)
    assert found["gap_short"] == 5
    assert found["gap_middle"] == 7
    assert "gap_long" not in found  # no long sentence was translated
    assert found["fixed_long"] == 20
    assert found["transformer_short"] == 43


def test_cells_are_the_recipes_with_their_own_numbers_of_updates():
    cells = Translators(steps=34, seed=5).cells()
    assert {name: cell.steps for name, cell in cells.items()} == {
        "transformer": 68, "bahdanau": 34, "fixed": 34,
    }  # fmt: skip
    whole = find("bahdanau-multi30k")
    assert cells["bahdanau"].dropout == whole.dropout
    assert all(cell.seed == 5 and not cell.goal for cell in cells.values())
