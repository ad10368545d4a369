"""A system that follows from its settings: a ball that falls through air.

    dv/dt = g - k v      speed v in m/s, drag k in 1/s
    v -> g / k           the speed it comes to

Run it:            everynet run ./mine.py
Change a setting:  everynet run ./mine.py drag=0.5
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from everynet import Simulation


# Fields are settings: each has a type, a default and a line that `everynet show` prints.
@dataclass(frozen=True, kw_only=True)
class Mine(Simulation):
    """Let it fall, step by step."""

    gravity: float = 9.81
    """Acceleration g in m/s^2."""
    drag: float = 1.0
    """What the air takes, k in 1/s."""
    seconds: float = 8.0
    """How long it falls."""
    dt: float = 0.001
    """Length of a step in s."""

    def __post_init__(self) -> None:
        """A setting that makes no sense is refused, in one line, before anything is computed."""
        super().__post_init__()
        self.require(0 < self.dt <= 0.1, "dt", "from 0 to 0.1")
        self.above(0, "drag")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Named tensors, which are saved; what is random is drawn from `generator`."""
        v, speeds = 0.0, []
        for _ in range(round(self.seconds / self.dt)):
            speeds.append(v)
            v += self.dt * (self.gravity - self.drag * v)
        time = self.dt * torch.arange(len(speeds), dtype=torch.float64)
        return {"time": time, "speed": torch.tensor(speeds, dtype=torch.float64)}

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics of the result; the goal below names one of them."""
        last = self.gravity / self.drag
        return {"final_error": abs(result["speed"][-1].item() - last) / last}

    def picture_speed(self, result: Mapping[str, Tensor]) -> Figure:
        """Speed over time. It comes to the dotted line, where drag and gravity are equal."""
        # A picture is a method `picture_NAME`, and its docstring is the caption (optional).
        figure = Figure(figsize=(6.5, 3), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(result["time"].numpy(), result["speed"].numpy())
        axes.axhline(self.gravity / self.drag, linestyle=":", color="black")
        axes.set_xlabel("time (s)")
        axes.set_ylabel("speed (m/s)")
        return figure


# What `everynet run ./mine.py` finds.
RECIPES = {
    "mine": Mine(goal="final_error <= 0.01"),
}
