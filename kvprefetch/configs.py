"""What is planned: a model, and the card and link it runs on.

Plain frozen dataclasses, checked on construction. Model fields are spelled as in Hugging
Face's config.json, hardware fields carry their vendor unit in the name. The rest of the
package sees a model only as its tuple of `Layer`s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kvprefetch.checks import line_of_text, one_of, positive_number, refusal, true_or_false, whole_number

GB = 1e9  # bytes, as vendors and this package count bandwidth and memory
GIB = 2.0**30  # bytes, as drivers and engines print memory

# Bytes a stored value. q8_0 and q4_0 are llama.cpp's blocks of 32 values and one 16-bit scale.
WEIGHT_BYTES = {"fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
KV_BYTES = {
    "f32": 4.0,
    "fp16": 2.0,
    "f16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
}

MOST_LAYERS = 10_000
MOST_WIDTH = 10_000_000  # hidden sizes, heads, vocabularies: far above any model, below overflow


@dataclass(frozen=True)
class Layer:
    """What one decoder layer costs one decode step."""

    kind: str  # "full", ...: shown in reports
    params: int  # weights of the layer's matrices
    weight_bytes: float  # bytes of those, read from GPU memory once a step
    kv_values: int  # K and V values cached a token; 0: caches nothing


def kv_bytes(
    layers: tuple[Layer, ...], ctx_len: int | np.ndarray, batch: int = 1, kv_dtype: str = "fp16"
) -> np.ndarray:
    """Bytes of K and V that each layer holds for `batch` sequences of `ctx_len` tokens.

    K_l(n) = b · n · kv_values_l · bytes_per_value

    `ctx_len` of shape (...) gives (..., L). Raises InputError on an unknown `kv_dtype`.
    """
    bytes_per_value = KV_BYTES[one_of("kv_dtype", kv_dtype, KV_BYTES)]
    per_token = np.array([layer.kv_values * bytes_per_value for layer in layers])
    return batch * np.asarray(ctx_len, dtype=float)[..., None] * per_token


@dataclass(frozen=True)
class ModelConfig:
    """A dense decoder: grouped-query attention and a gated MLP in every layer."""

    name: str
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    num_key_value_heads: int | None = None  # None: as many as query heads; an int once constructed
    head_dim: int | None = None  # None: hidden_size / num_attention_heads; an int once constructed
    tie_word_embeddings: bool = False  # True: the LM head is the embedding matrix
    weight_dtype: str = "bf16"  # a key of WEIGHT_BYTES

    def __post_init__(self) -> None:
        line_of_text("name", self.name, 100)
        whole_number("num_hidden_layers", self.num_hidden_layers, MOST_LAYERS)
        for field in ("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"):
            whole_number(field, getattr(self, field), MOST_WIDTH)
        if self.num_key_value_heads is None:
            object.__setattr__(self, "num_key_value_heads", self.num_attention_heads)
        if whole_number("num_key_value_heads", self.num_key_value_heads, MOST_WIDTH) > self.num_attention_heads or (
            self.num_attention_heads % self.num_key_value_heads
        ):
            accepted = f"a divisor of num_attention_heads, {self.num_attention_heads}"
            raise refusal("num_key_value_heads", self.num_key_value_heads, accepted)
        if self.head_dim is None:
            if self.hidden_size % self.num_attention_heads:
                accepted = f"a divisor of hidden_size, {self.hidden_size}, or an explicit head_dim"
                raise refusal("num_attention_heads", self.num_attention_heads, accepted)
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_attention_heads)
        whole_number("head_dim", self.head_dim, MOST_WIDTH)
        true_or_false("tie_word_embeddings", self.tie_word_embeddings)
        one_of("weight_dtype", self.weight_dtype, WEIGHT_BYTES)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The stack, first layer first: all that costs and schedules need of a model."""
        query_width = self.num_attention_heads * self.head_dim
        kv_width = self.num_key_value_heads * self.head_dim
        attention = 2 * self.hidden_size * query_width + 2 * self.hidden_size * kv_width  # q and o, k and v
        mlp = 3 * self.hidden_size * self.intermediate_size  # gate, up, down
        params = attention + mlp
        layer = Layer("full", params, params * WEIGHT_BYTES[self.weight_dtype], kv_values=2 * kv_width)
        return (layer,) * self.num_hidden_layers

    @property
    def params(self) -> int:
        """Weights of the decoder layers' matrices: no norms, embeddings or LM head."""
        return sum(layer.params for layer in self.layers)

    @property
    def active_params(self) -> int:
        """Those of `params` that one token reads: all of them in a dense stack."""
        return self.params

    @property
    def total_params(self) -> int:
        """`params` with embeddings and LM head: within the norms of the figure model cards quote."""
        matrices = 1 if self.tie_word_embeddings else 2
        return self.params + matrices * self.vocab_size * self.hidden_size

    def kv_bytes(self, ctx_len: int, batch: int = 1, kv_dtype: str = "fp16") -> float:
        """Bytes of K and V in all layers for `batch` sequences of `ctx_len` tokens."""
        return float(kv_bytes(self.layers, ctx_len, batch, kv_dtype).sum())


@dataclass(frozen=True)
class HardwareProfile:
    """One GPU and the link that feeds it: sustained rates, one direction."""

    name: str
    hbm_gb_s: float  # GB/s the GPU reads its own memory at
    pcie_gb_s: float  # GB/s host to device, pinned, after protocol overhead
    hbm_capacity_gb: float | None = None  # GB of GPU memory the driver reports; None: not known

    def __post_init__(self) -> None:
        line_of_text("name", self.name, 100)
        positive_number("hbm_gb_s", self.hbm_gb_s, 1e6)
        positive_number("pcie_gb_s", self.pcie_gb_s, 1e6)
        if self.hbm_capacity_gb is not None:
            positive_number("hbm_capacity_gb", self.hbm_capacity_gb, 1e6)
