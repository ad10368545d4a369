"""X."""

from __future__ import annotations
import torch
from jaxtyping import Float
from torch import Tensor, nn


class LSTM(nn.Module):
    """Torch's cell, through its fused kernels; a state is h and c beside each other."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.cell = nn.LSTM(input_size, hidden_size, batch_first=True)
        with torch.no_grad():
            for bias, value in ((self.cell.bias_ih_l0, forget_bias), (self.cell.bias_hh_l0, 0.0)):
                bias.view(4, hidden_size)[1] = value

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]:
        given = None
        if state is not None:
            h, c = state.chunk(2, 2)
            given = h.contiguous(), c.contiguous()
        y, last = self.cell(x, given)
        return y, torch.cat(last, 2)
