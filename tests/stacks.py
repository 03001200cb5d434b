"""Stacks that several tests share: the two interleaved ones of the golden table, and windows alone."""

from kvprefetch import Layer, ModelConfig


def decoder_layer(kind, hidden, heads, head_dim, kv_heads, ffn, window=None):
    """One layer with 16-bit weights: grouped-query attention and a gated MLP."""
    weights = 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim + 3 * hidden * ffn
    return Layer(kind, weights, 2.0 * weights, 2 * kv_heads * head_dim, window)


def stack(name, hidden, layers):
    return ModelConfig(name, hidden_size=hidden, vocab_size=1000, layers=tuple(layers))


SHAPE_24, SHAPE_62 = (2880, 64, 64, 8, 11520), (5376, 32, 128, 16, 21504)
SLIDING_24, FULL_24 = decoder_layer("sliding", *SHAPE_24, window=128), decoder_layer("full", *SHAPE_24)
SLIDING_62, FULL_62 = decoder_layer("sliding", *SHAPE_62, window=1024), decoder_layer("full", *SHAPE_62)

INTERLEAVED_24 = stack("24 layers", 2880, [SLIDING_24, FULL_24] * 12)
INTERLEAVED_62 = stack("62 layers", 5376, ([SLIDING_62] * 5 + [FULL_62]) * 10 + [SLIDING_62] * 2)
WINDOWS_ALONE = stack("windows alone", 2880, [SLIDING_24] * 4)
