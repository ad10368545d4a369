"""Convolutions with what follows them, and how their weights are initialised.

    a_k = b_k + sum_c w_kc * x_c                  (1)  convolution; c runs over the maps of x
    n_k = g_k (a_k - mean(a_k)) / std(a_k) + b_k  (2)  batch normalisation; (1) has no b_k then
    h_k = max(0, a_k) or max(0, n_k)              (3)  rectifier
    w ~ N(0, 2 / n)                               (4)  initialisation; n inputs of each sum (1)

With (4) the mean of squares stays the same from layer to layer: a rectifier halves it. Mean and
standard deviation of (2) are those of a batch while training, and running averages afterwards.

He, Zhang, Ren, Sun (2015), "Delving Deep into Rectifiers", arXiv:1502.01852, section 2.2; Ioffe,
Szegedy (2015), "Batch Normalization", arXiv:1502.03167.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

Maps = Float[Tensor, "batch channels height width"]


class ConvReLU(nn.Module):
    """Maps images to rectified feature maps, of the same size where `stride` is 1."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels, out_channels, kernel_size, stride, padding=kernel_size // 2
        )
        self.relu = nn.ReLU()

    def forward(self, x: Maps) -> Float[Tensor, "batch maps rows columns"]:
        a = self.conv(x)  # (1)
        h: Tensor = self.relu(a)  # (3)
        return h


class ConvNormReLU(nn.Module):
    """Maps images to normalised, rectified feature maps, of the same size where `stride` is 1."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels, out_channels, kernel_size, stride, padding=kernel_size // 2, bias=False
        )
        self.norm = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU()

    def forward(self, x: Maps) -> Float[Tensor, "batch maps rows columns"]:
        a = self.conv(x)
        n = self.norm(a)  # (2)
        h: Tensor = self.relu(n)  # (3)
        return h


def init_he_weights(model: nn.Module) -> None:
    """Initialise all convolutions and dense layers by (4), their biases by 0."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")  # (4)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
