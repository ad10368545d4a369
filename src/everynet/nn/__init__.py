"""Blocks that several networks share: layers, losses, optimisers, tables of layers."""

from everynet.nn import schedules
from everynet.nn.attention import (
    AdditiveScore,
    KeyValueCache,
    MemoryCache,
    MultiHeadAttention,
    WindowedAttention,
    attend,
    banded_mask,
    causal_mask,
    padding_mask,
    record_weights,
    score_cosine,
    score_dot,
    score_scaled_dot,
)
from everynet.nn.chunked_cross_entropy import chunked_cross_entropy
from everynet.nn.conv import ConvNormReLU, ConvReLU, init_he_weights
from everynet.nn.frozen import Frozen
from everynet.nn.heads import Head, head
from everynet.nn.layer_outputs import LayerOutputs
from everynet.nn.layers import Layer, LayerTable, activations, layer_table
from everynet.nn.lion import Lion
from everynet.nn.log_mel import LogMel, mel_filters
from everynet.nn.positions import LearnedPositions, SinusoidalPositions, sinusoidal
from everynet.nn.recurrent import last_states, reverse_sequences, unroll
from everynet.nn.row_sparse import RowAdagrad
from everynet.nn.sampled_softmax import (
    Candidates,
    importance_softmax,
    noise_contrastive,
    sampled_softmax,
)
from everynet.nn.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    PreNormDecoderLayer,
    PreNormEncoderLayer,
)

__all__ = [
    "AdditiveScore", "Candidates", "ConvNormReLU", "ConvReLU", "DecoderLayer", "EncoderLayer",
    "FeedForward", "Frozen", "Head", "KeyValueCache", "Layer", "LayerOutputs", "LayerTable",
    "LearnedPositions", "Lion", "LogMel", "MemoryCache", "MultiHeadAttention",
    "PreNormDecoderLayer", "PreNormEncoderLayer", "RowAdagrad", "SinusoidalPositions",
    "WindowedAttention", "activations", "attend", "banded_mask", "causal_mask",
    "chunked_cross_entropy", "head", "importance_softmax", "init_he_weights", "last_states",
    "layer_table", "mel_filters", "noise_contrastive", "padding_mask", "record_weights",
    "reverse_sequences", "sampled_softmax", "schedules", "score_cosine", "score_dot",
    "score_scaled_dot", "sinusoidal", "unroll",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
