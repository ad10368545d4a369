"""Sentences of unequal length shared out over two processes."""

import torch

import everynet
from everynet.cli import main
from tests.training.torchrun import torchrun


def test_two_processes_learn_what_one_does(tmp_path):
    """Each process takes the mean over its own tokens, and counts by how many they are."""
    words = ["run", "seq2seq", "data=reversal:400", "steps=20", "hidden_size=16", "--precision",
             "fp64", "--device", "cpu", "--quiet", "--out"]  # fmt: skip
    assert main([*words, str(tmp_path / "one")]) == 0
    with torchrun(*words, str(tmp_path / "two")) as both:
        _, errors = both.communicate(timeout=240)
    assert both.returncode == 0, errors
    (one,), (two,) = (tmp_path / "one").iterdir(), (tmp_path / "two").iterdir()
    weights = [everynet.load(folder).state_dict() for folder in (one, two)]
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-5, atol=1e-6, msg=name)
