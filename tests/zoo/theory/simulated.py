"""The metrics of a simulation without a run folder and pictures, which the contract sweeps."""

from dataclasses import replace

import torch


def simulate_metrics(recipe, seed=0, **fields):
    """The metrics, and whether they reach the goal of the recipe."""
    recipe = replace(recipe, seed=seed, **fields)
    metrics = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(seed)))
    assert metrics.keys() == recipe.meanings.keys()
    return metrics, all(goal.reached(metrics) for goal in recipe.goals())
