"""What is planned: a model, and the card and link it runs on.

Plain frozen dataclasses, checked on construction. Model fields are spelled as in Hugging
Face's config.json, hardware fields carry their vendor unit in the name. The rest of the
package sees a model only as its tuple of `Layer`s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvprefetch.checks import InputError, line_of_text, number, one_of, refusal, settle, true_or_false, whole_number
from kvprefetch.layers import KV_BYTES, MOST_CTX, MOST_LAYERS, MOST_PARAMS, MOST_WIDTH, WEIGHT_BYTES, Layer, kv_bytes

GB = 1e9  # bytes, as vendors and this package count bandwidth and memory
MICRO = 1e-6  # seconds in a microsecond
LEAST_FIGURE, MOST_FIGURE = 1e-3, 1e6  # GB/s and GB: far beyond any hardware on either side

# What a card achieves of its rates, and takes beside them: a profile may state it, `Terms` hold it.
EFFICIENCIES = ("weight_efficiency", "attention_efficiency", "pcie_efficiency")
ACHIEVED = (*EFFICIENCIES, "copy_latency_us", "layer_overhead_us")
LEAST_EFFICIENCY, MOST_MICROSECONDS = 0.01, 1e6

# What a dense stack is built from, and `layers` stand in for.
STACK = ("num_hidden_layers", "num_attention_heads", "intermediate_size", "num_key_value_heads", "head_dim")


class _Built(tuple):
    """Layers that follow from the dense fields: `dataclasses.replace` hands them back, and they are built anew."""


@dataclass(frozen=True)
class ModelConfig:
    """A decoder: grouped-query attention and a gated MLP in every layer, or the `layers` as given."""

    name: str
    num_hidden_layers: int | None = None  # needed unless `layers` are given
    hidden_size: int | None = None  # needed
    num_attention_heads: int | None = None  # needed unless `layers` are given
    intermediate_size: int | None = None  # needed unless `layers` are given
    vocab_size: int | None = None  # needed
    num_key_value_heads: int | None = None  # None: as many as query heads; an int once constructed
    head_dim: int | None = None  # None: hidden_size / num_attention_heads; an int once constructed
    tie_word_embeddings: bool = False  # True: the LM head is the embedding matrix
    weight_dtype: str = "bf16"  # a key of WEIGHT_BYTES; with given `layers`, of embeddings and LM head alone
    layers: tuple[Layer, ...] | None = field(default=None, repr=False)  # the stack, first layer first
    other_params: int = 0  # weights outside layers, embeddings and LM head: position tables, per-layer embeddings
    max_position_embeddings: int | None = None  # tokens the model was made for; None: not known
    assumptions: tuple[str, ...] = ()  # what the source does not say and was taken instead: a sentence each

    def __post_init__(self) -> None:
        line_of_text("name", self.name, 100)
        settle(self, whole_number, "hidden_size", "vocab_size", most=MOST_WIDTH)
        true_or_false("tie_word_embeddings", self.tie_word_embeddings)
        one_of("weight_dtype", self.weight_dtype, WEIGHT_BYTES)
        settle(self, whole_number, "other_params", least=0, most=MOST_PARAMS)
        if self.max_position_embeddings is not None:
            settle(self, whole_number, "max_position_embeddings", most=MOST_CTX)
        if not isinstance(self.assumptions, tuple):
            raise refusal("assumptions", self.assumptions, "a tuple of sentences")
        for sentence in self.assumptions:
            line_of_text("assumptions", sentence, 1000)
        dense = self.num_attention_heads is not None or self.intermediate_size is not None
        if self.layers is None or (dense and isinstance(self.layers, _Built)):
            self._build_dense_stack()
        else:
            self._check_given_layers()

    def _build_dense_stack(self) -> None:
        settle(self, whole_number, "num_hidden_layers", most=MOST_LAYERS)
        settle(self, whole_number, "num_attention_heads", "intermediate_size", most=MOST_WIDTH)
        if self.num_key_value_heads is None:
            object.__setattr__(self, "num_key_value_heads", self.num_attention_heads)
        settle(self, whole_number, "num_key_value_heads", most=MOST_WIDTH)
        if self.num_attention_heads % self.num_key_value_heads:
            accepted = f"a divisor of num_attention_heads, {self.num_attention_heads}"
            raise refusal("num_key_value_heads", self.num_key_value_heads, accepted)
        if self.head_dim is None:
            if self.hidden_size % self.num_attention_heads:
                accepted = f"a divisor of hidden_size, {self.hidden_size}, or an explicit head_dim"
                raise refusal("num_attention_heads", self.num_attention_heads, accepted)
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_attention_heads)
        settle(self, whole_number, "head_dim", most=MOST_WIDTH)
        kv_width = self.num_key_value_heads * self.head_dim
        query_width = self.num_attention_heads * self.head_dim
        params = 2 * self.hidden_size * (query_width + kv_width)  # q and o, k and v
        params += 3 * self.hidden_size * self.intermediate_size  # gate, up, down
        layer = Layer("full", params, params * WEIGHT_BYTES[self.weight_dtype], kv_values=2 * kv_width)
        object.__setattr__(self, "layers", _Built((layer,) * self.num_hidden_layers))

    def _check_given_layers(self) -> None:
        if not isinstance(self.layers, tuple) or not all(isinstance(layer, Layer) for layer in self.layers):
            raise refusal("layers", self.layers, "a tuple of Layer")
        if not 1 <= len(self.layers) <= MOST_LAYERS:
            raise refusal("layers", f"{len(self.layers)} layers", f"1 to {MOST_LAYERS} of them")
        for name in STACK:
            accepted = (None, len(self.layers)) if name == "num_hidden_layers" else (None,)
            if getattr(self, name) not in accepted:
                raise InputError(f"{name}: not together with layers, which say it all")
        object.__setattr__(self, "num_hidden_layers", len(self.layers))

    @property
    def params(self) -> int:
        """Weights of the decoder layers' matrices, every expert's included: no norms, embeddings or LM head."""
        return sum(layer.all_params for layer in self.layers)

    @property
    def active_params(self) -> int:
        """Those of `params` that one token reads: all of them in a dense stack."""
        return sum(layer.active_params for layer in self.layers)

    @property
    def total_params(self) -> int:
        """`params` with embeddings and LM head: within the norms of the figure model cards quote."""
        return self.params + self._params_outside_layers

    @property
    def total_bytes(self) -> float:
        """Bytes of `total_params`: what the weights take on the GPU, every expert's included."""
        outside = self._params_outside_layers * WEIGHT_BYTES[self.weight_dtype]
        return sum(layer.all_bytes for layer in self.layers) + outside

    @property
    def state_bytes(self) -> float:
        """Bytes of recurrent state that one sequence holds, at any length; 0: no layer keeps any."""
        return sum(layer.state_bytes for layer in self.layers)

    @property
    def _params_outside_layers(self) -> int:
        matrices = 1 if self.tie_word_embeddings else 2
        return matrices * self.vocab_size * self.hidden_size + self.other_params

    @property
    def head_bytes(self) -> float:
        """Bytes of the LM head's matrix, tied or not."""
        return self.vocab_size * self.hidden_size * WEIGHT_BYTES[self.weight_dtype]

    def kv_bytes(self, ctx_len: int, batch: int = 1, kv_dtype: str = "fp16") -> float:
        """Bytes of K and V in all layers for `batch` sequences of `ctx_len` tokens."""
        return float(kv_bytes(self.layers, ctx_len, batch, kv_dtype).sum())


def _settle_achieved(config: object, names: Iterable[str]) -> None:
    for name in names:
        if name in EFFICIENCIES:
            settle(config, number, name, least=LEAST_EFFICIENCY, most=1)
        else:
            settle(config, number, name, least=0, most=MOST_MICROSECONDS)


@dataclass(frozen=True)
class HardwareProfile:
    """One GPU and the link that feeds it: sustained rates, one direction. None: not known."""

    name: str
    hbm_gb_s: float  # GB/s the GPU reads its own memory at
    pcie_gb_s: float  # GB/s host to device, pinned, after protocol overhead
    hbm_capacity_gb: float | None = None  # GB of GPU memory the driver reports
    host_capacity_gb: float | None = None  # GB of host memory that can be pinned
    host_gb_s: float | None = None  # GB/s the host reads its own memory at
    host_efficiency: float | None = None  # share of host_gb_s that attention on the host reaches
    weight_efficiency: float | None = None  # share of hbm_gb_s that reading weights reaches
    attention_efficiency: float | None = None  # share of hbm_gb_s that attention's reading of the cache reaches
    pcie_efficiency: float | None = None  # share of pcie_gb_s that copies of KV reach
    copy_latency_us: float | None = None  # microseconds each layer's copy takes beside its bytes
    layer_overhead_us: float | None = None  # microseconds each layer takes beside its reads: launches, synchronisation

    def __post_init__(self) -> None:
        line_of_text("name", self.name, 100)
        settle(self, number, "hbm_gb_s", "pcie_gb_s", least=LEAST_FIGURE, most=MOST_FIGURE)
        for figure in ("hbm_capacity_gb", "host_capacity_gb", "host_gb_s"):
            if getattr(self, figure) is not None:
                settle(self, number, figure, least=LEAST_FIGURE, most=MOST_FIGURE)
        if self.host_efficiency is not None:
            settle(self, number, "host_efficiency", least=LEAST_EFFICIENCY, most=1)
        _settle_achieved(self, [name for name in ACHIEVED if getattr(self, name) is not None])


@dataclass(frozen=True)
class Terms:
    """What first order leaves out; each field is neutral by default."""

    kv_dtype: str = "fp16"  # a key of KV_BYTES: how a cached value is stored
    resident_tokens: int = 0  # the newest tokens of every layer whose KV stays on the GPU
    resident_windows: bool = False  # layers with a window keep all of it on the GPU
    kv_read: bool = False  # attention reads the cache from HBM, resident or landed
    lm_head: bool = False  # the LM head is read once, after the last layer
    weight_efficiency: float = 1.0  # achieved over stated HBM rate, reading weights
    attention_efficiency: float = 1.0  # the same, attention reading the cache
    pcie_efficiency: float = 1.0  # achieved over stated link rate
    copy_latency_us: float = 0.0  # microseconds more for each offloaded layer's copy
    layer_overhead_us: float = 0.0  # microseconds more of engine time for each layer
    cross_token_overlap: bool = False  # the next token's first fetches start while this token ends

    def __post_init__(self) -> None:
        one_of("kv_dtype", self.kv_dtype, KV_BYTES)
        settle(self, whole_number, "resident_tokens", least=0, most=MOST_CTX)
        settle(self, true_or_false, "resident_windows", "kv_read", "lm_head", "cross_token_overlap")
        _settle_achieved(self, ACHIEVED)


FIRST_ORDER = Terms()


def refined(hw: HardwareProfile) -> Terms:
    """First order with what it leaves out: KV read, LM head, and all that the profile of `hw` states it achieves."""
    stated = {name: getattr(hw, name) for name in ACHIEVED if getattr(hw, name) is not None}
    return Terms(kv_read=True, lm_head=True, **stated)
