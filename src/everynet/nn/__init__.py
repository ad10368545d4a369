"""Blocks that several networks share: layers, losses, optimisers, tables of layers."""

from everynet.nn import schedules as schedules
from everynet.nn.chunked_cross_entropy import chunked_cross_entropy as chunked_cross_entropy
from everynet.nn.conv import ConvNormReLU as ConvNormReLU
from everynet.nn.conv import ConvReLU as ConvReLU
from everynet.nn.conv import init_he_weights as init_he_weights
from everynet.nn.frozen import Given as Given
from everynet.nn.heads import Head as Head
from everynet.nn.heads import head as head
from everynet.nn.layer_outputs import LayerOutputs as LayerOutputs
from everynet.nn.layers import Layer as Layer
from everynet.nn.layers import LayerTable as LayerTable
from everynet.nn.layers import activations as activations
from everynet.nn.layers import layer_table as layer_table
from everynet.nn.lion import Lion as Lion
from everynet.nn.recurrent import last_of as last_of
from everynet.nn.recurrent import reversed_within as reversed_within
from everynet.nn.recurrent import unrolled as unrolled
from everynet.nn.row_sparse import RowAdagrad as RowAdagrad
from everynet.nn.sampled_softmax import Candidates as Candidates
from everynet.nn.sampled_softmax import importance_softmax as importance_softmax
from everynet.nn.sampled_softmax import noise_contrastive as noise_contrastive
from everynet.nn.sampled_softmax import sampled_softmax as sampled_softmax

__all__ = [
    "Candidates",
    "ConvNormReLU",
    "ConvReLU",
    "Given",
    "Head",
    "Layer",
    "LayerOutputs",
    "LayerTable",
    "Lion",
    "RowAdagrad",
    "activations",
    "chunked_cross_entropy",
    "head",
    "importance_softmax",
    "init_he_weights",
    "last_of",
    "layer_table",
    "noise_contrastive",
    "reversed_within",
    "sampled_softmax",
    "schedules",
    "unrolled",
]


def __dir__() -> list[str]:
    return __all__
