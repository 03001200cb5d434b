"""What is one decoder layer made of? A mixer of tokens and what feeds forward, in weights by part.

The parts that families share, as transformers' implementations build them. Every count is of matrices:
norms, biases and other vectors are left out, routers are in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvprefetch.checks import InputError, refusal
from kvprefetch.mixers import Mixer, attention

BY_HAND = "a catalogue YAML with layers: groups states it by hand"


def unknown_family(model_type: str) -> InputError:
    return InputError(f"the family {model_type} is not one whose cache and weights are known here; {BY_HAND}")


@dataclass(frozen=True)
class Feed:
    """What follows the mixer of one layer, in weights by part: quantised checkpoints treat the parts apart."""

    mlp: int = 0  # a dense MLP, or what every token reads beside the routed experts
    router: int = 0
    expert: int = 0  # one routed expert
    experts: int = 0  # E
    experts_per_token: int = 0


@dataclass(frozen=True)
class Block:
    """One decoder layer: what mixes tokens, and what follows."""

    mixer: Mixer
    feed: Feed


def gated(hidden: int, width: int) -> int:
    """Weights of a gated MLP: gate, up and down."""
    return 3 * hidden * width


def plain(hidden: int, width: int) -> int:
    """Weights of an MLP of two matrices."""
    return 2 * hidden * width


def windows(config: Any) -> list[tuple[str, int | None]]:
    """Each layer's kind of attention and the most tokens it caches: from layer_types, else one window for all."""
    window = config.sliding_window if _has_window(config) else None
    types = getattr(config, "layer_types", None)
    if types is None:
        types = ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers
    if len(types) != config.num_hidden_layers:
        raise InputError(f"layer_types: {len(types)} of them for {config.num_hidden_layers} layers; {BY_HAND}")
    chunk = getattr(config, "attention_chunk_size", None)
    known = {"full_attention": ("full", None), "sliding_attention": ("sliding", window)}
    known |= {"chunked_attention": ("chunked", chunk), "linear_attention": ("linear", None)}
    for name in types:
        if name not in known or (name in ("sliding_attention", "chunked_attention") and not known[name][1]):
            raise InputError(f"layer_types: {name} without a size this reader knows; {BY_HAND}")
    return [known[name] for name in types]


def _has_window(config: Any) -> bool:
    """Whether the family's class knows a window: a key that it does not know changes nothing in its model."""
    return "sliding_window" in type(config).__dataclass_fields__ and getattr(config, "use_sliding_window", True)


def head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def grouped(config: Any, kind: str, window: int | None) -> Mixer:
    """Grouped-query attention as most families spell it."""
    if kind == "linear":
        raise InputError(f"layer_types: linear_attention is not known for {config.model_type}; {BY_HAND}")
    size, heads = head_dim(config), config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    if heads % kv_heads:
        raise refusal("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads, {heads}")
    return attention(kind, window, config.hidden_size, heads, kv_heads, size, size)


def routed(config: Any, experts: int, expert_width: int, shared_width: int = 0, gate: int = 0) -> Feed:
    """Gated experts behind a router; `shared_width` columns that every token reads, behind a gate of `gate` columns."""
    hidden = config.hidden_size
    mlp = gated(hidden, shared_width) + hidden * gate
    return gated_experts(hidden, experts, config.num_experts_per_tok, expert_width, mlp)


def gated_experts(hidden: int, experts: int, experts_per_token: int, width: int, mlp: int = 0) -> Feed:
    """Gated experts of `width` behind a router, beside an MLP of `mlp` weights that every token reads."""
    return Feed(mlp, hidden * experts, gated(hidden, width), experts, experts_per_token)


def output_gate(config: Any) -> int:
    """Weights of a gate on attention's output, one column a query value."""
    return config.hidden_size * config.num_attention_heads * head_dim(config)
