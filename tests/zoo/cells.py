"""Cells of an experiment made by hand."""

import torch
from torch import nn

from everynet.recipes.experiment import Cell
from everynet.recipes.training import Training


def cell(
    *, steps=(0,), valid=None, measured=None, terms=None, diverged=None, test=None, network=None
):
    """What a training found: lists of numbers become tensors."""

    def tensors(given):
        return {name: torch.as_tensor(v, dtype=torch.float64) for name, v in (given or {}).items()}

    logged = {n: (torch.arange(1, len(v) + 1), v) for n, v in tensors(terms).items()}
    return Cell(
        recipe=Training(),
        step=steps[-1],
        steps=torch.tensor(steps),
        measured=tensors(measured),
        valid=tensors(valid),
        terms=logged,
        diverged=diverged,
        test=test or {},
        network=lambda: network or nn.Module(),
    )
