"""Sentences of unequal length shared out over two processes."""

import torch

from everynet.cli import main
from tests.core.test_distributed import losses, torchrun


def test_two_processes_learn_nearly_what_one_does(tmp_path):
    """Each process takes the mean over its own tokens, so that the two differ by a little."""
    words = ["run", "seq2seq", "data=reversal:400", "steps=20", "hidden_size=16", "--precision",
             "fp64", "--device", "cpu", "--quiet", "--out"]  # fmt: skip
    assert main([*words, str(tmp_path / "one")]) == 0
    with torchrun(*words, str(tmp_path / "two")) as both:
        _, errors = both.communicate(timeout=240)
    assert both.returncode == 0, errors
    (one,), (two,) = (tmp_path / "one").iterdir(), (tmp_path / "two").iterdir()
    torch.testing.assert_close(losses(two, 20), losses(one, 20), rtol=0.02, atol=0)
