"""The layers of Gemma 3n and Gemma 4: small inputs of their own, caches used twice, heads that differ by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvprefetch.blocks import Block, Feed, gated, gated_experts, grouped, head_dim, windows
from kvprefetch.mixers import Mixer, attention


def gemma3n(config: Any) -> Iterator[Block]:
    """The last layers use the cache of an earlier one, and have no k or v; every layer has its own small input."""
    extra = 2 * config.hidden_size * (config.hidden_size_per_layer_input + config.laurel_rank)
    shared_from = config.num_hidden_layers - config.num_kv_shared_layers
    for index, (at, width) in enumerate(zip(windows(config), config.intermediate_size, strict=True)):
        mixer = grouped(config, *at)
        mixer = mixer if index < shared_from else shared_kv(config, mixer, head_dim(config))
        yield Block(mixer, Feed(mlp=gated(config.hidden_size, width) + extra))


def gemma4(config: Any) -> Iterator[Block]:
    """Full layers have their own head size and KV heads, and may take V from K; the last may borrow a cache."""
    hidden, heads = config.hidden_size, config.num_attention_heads
    extra = 2 * hidden * (config.hidden_size_per_layer_input or 0)
    sparse = Feed()
    if config.enable_moe_block:
        sparse = gated_experts(hidden, config.num_experts, config.top_k_experts, config.moe_intermediate_size)
    shared_from = config.num_hidden_layers - config.num_kv_shared_layers
    for index, (kind, window) in enumerate(windows(config)):
        layer = config.per_layer_config[index]  # a view of the config with what this layer has of its own
        size, kv_heads = layer.head_dim, layer.num_key_value_heads
        mixer = attention(kind, window, hidden, heads, kv_heads, size, size)
        width = config.intermediate_size
        if index >= shared_from:
            mixer = shared_kv(config, mixer, size)
            width *= 2 if config.use_double_wide_mlp else 1
        elif config.attention_k_eq_v and kind == "full":
            mixer = replace(mixer, params=mixer.params - hidden * kv_heads * size)
        yield Block(mixer, replace(sparse, mlp=gated(hidden, width) + extra))


def shared_kv(config: Any, mixer: Mixer, size: int) -> Mixer:
    """`mixer` without k and v: it reads another layer's cache."""
    return replace(
        mixer,
        kind="shared-kv",
        params=2 * config.hidden_size * config.num_attention_heads * size,
        kv_values=0,
        window=None,
    )
