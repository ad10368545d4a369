"""Blocks that several networks share: layers, losses, optimisers, tables of layers."""

from everynet.nn import schedules
from everynet.nn.chunked_cross_entropy import chunked_cross_entropy
from everynet.nn.conv import ConvNormReLU, ConvReLU, init_he_weights
from everynet.nn.frozen import Frozen
from everynet.nn.heads import Head, head
from everynet.nn.layer_outputs import LayerOutputs
from everynet.nn.layers import Layer, LayerTable, activations, layer_table
from everynet.nn.lion import Lion
from everynet.nn.recurrent import last_states, reverse_sequences, unroll
from everynet.nn.row_sparse import RowAdagrad
from everynet.nn.sampled_softmax import (
    Candidates,
    importance_softmax,
    noise_contrastive,
    sampled_softmax,
)

__all__ = [
    "Candidates", "ConvNormReLU", "ConvReLU", "Frozen", "Head", "Layer", "LayerOutputs",
    "LayerTable", "Lion", "RowAdagrad", "activations", "chunked_cross_entropy", "head",
    "importance_softmax", "init_he_weights", "last_states", "layer_table", "noise_contrastive",
    "reverse_sequences", "sampled_softmax", "schedules", "unroll",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
