"""What does one decoder layer hold and read? The only view of a model that costs and schedules have.

Symbols: n context, b batch, K_l(n) bytes of K and V that layer l holds, W_l(b) bytes of weights it
reads in one step, E experts of which a token uses k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvprefetch.checks import line_of_text, number, one_of, refusal, settle, whole_number

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

MOST_CTX = 10**9  # tokens
MOST_BATCH = 10**6  # sequences
MOST_LAYERS = 10_000
MOST_WIDTH = 10_000_000  # hidden sizes, heads, vocabularies: far above any model, below overflow
MOST_PARAMS = 10**15  # weights, or bytes of them, in one place
LEAST_BYTES = 0.1  # of a layer's weights: below any one weight


@dataclass(frozen=True)
class Layer:
    """What one decoder layer costs one decode step."""

    kind: str  # "full", "sliding", "linear", "mamba", "mlp", ...: shown in reports
    params: int  # weights outside the routed experts
    weight_bytes: float  # bytes of those, read from GPU memory once a step
    kv_values: int  # K and V values cached a token; 0: caches nothing, or uses another layer's cache
    window: int | None = None  # most tokens cached; None: all
    experts: int = 0  # routed experts; 0: none, and the next three are 0 too
    experts_per_token: int = 0
    expert_params: int = 0  # weights of one expert
    expert_bytes: float = 0.0  # bytes of one expert
    state_bytes: float = 0.0  # constant state a sequence (recurrent layers)

    def __post_init__(self) -> None:
        line_of_text("kind", self.kind, 40)
        settle(self, whole_number, "params", most=MOST_PARAMS)
        settle(self, number, "weight_bytes", least=LEAST_BYTES, most=MOST_PARAMS)
        settle(self, whole_number, "kv_values", "experts", least=0, most=MOST_WIDTH)
        if self.window is not None:
            settle(self, whole_number, "window", most=MOST_CTX)
        of_experts = (self.experts_per_token, self.expert_params, self.expert_bytes)
        if self.experts:
            settle(self, whole_number, "experts_per_token", most=self.experts)
            settle(self, whole_number, "expert_params", most=MOST_PARAMS)
            settle(self, number, "expert_bytes", least=LEAST_BYTES, most=MOST_PARAMS)
        elif any(value != 0 or value is False for value in of_experts):
            raise refusal("experts", 0, "at least 1 where an expert's figures are given")
        settle(self, number, "state_bytes", least=0, most=MOST_PARAMS)

    @property
    def all_params(self) -> int:
        """Weights of the layer, those of every expert included."""
        return self.params + self.experts * self.expert_params

    @property
    def all_bytes(self) -> float:
        """Bytes of those."""
        return self.weight_bytes + self.experts * self.expert_bytes

    @property
    def active_params(self) -> int:
        """Weights that one token reads: the experts it uses, not the others."""
        return self.params + self.experts_per_token * self.expert_params


def is_uniform(layers: tuple[Layer, ...]) -> bool:
    """Whether all layers are equal, so that closed forms hold."""
    return len(set(layers)) == 1


def has_windows(layers: tuple[Layer, ...]) -> bool:
    """Whether any layer caches no more than a window of its own."""
    return any(layer.window and layer.kv_values for layer in layers)


def kv_bytes(
    layers: tuple[Layer, ...], ctx_len: int | np.ndarray, batch: int = 1, kv_dtype: str = "fp16"
) -> np.ndarray:
    """Bytes of K and V that each layer holds for `batch` sequences of `ctx_len` tokens.

    K_l(n) = b · min(n, window_l) · kv_values_l · bytes_per_value

    `ctx_len` of shape (...) gives (..., L). Raises InputError on an unknown `kv_dtype`.
    """
    one_of("kv_dtype", kv_dtype, KV_BYTES)
    return batch * held_tokens(layers, ctx_len) * token_bytes(layers, kv_dtype)


def token_bytes(layers: tuple[Layer, ...], kv_dtype: str) -> np.ndarray:
    """Bytes of K and V that each layer caches of one token; shape (L,)."""
    return np.array([layer.kv_values * KV_BYTES[kv_dtype] for layer in layers])


def held_tokens(layers: tuple[Layer, ...], ctx_len: int | np.ndarray) -> np.ndarray:
    """Tokens that each layer caches of one sequence: min(n, window_l); shape (..., L)."""
    window = np.array([layer.window or np.inf for layer in layers])
    return np.minimum(np.asarray(ctx_len, dtype=float)[..., None], window)


def step_weight_bytes(layers: tuple[Layer, ...], batch: int = 1) -> np.ndarray:
    """Bytes of weights that each layer reads in a step of `batch` tokens; shape (L,).

    W_l(b) = weight_bytes_l + experts touched · expert_bytes_l
    """
    return np.array([layer.weight_bytes + touched_experts(layer, batch) * layer.expert_bytes for layer in layers])


def touched_experts(layer: Layer, batch: int) -> float:
    """Distinct experts that a step of `batch` tokens is expected to read.

    E·(1 - (1 - k/E)^b): uniform routing, so an upper bound where some experts are preferred; k, exactly, for one token.
    """
    if batch == 1 or not layer.experts:
        return float(layer.experts_per_token)
    return layer.experts * (1 - (1 - layer.experts_per_token / layer.experts) ** batch)
