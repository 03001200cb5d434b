"""The layers of families in which most or all layers keep a constant state instead of a growing cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvprefetch.blocks import BY_HAND, Block, Feed, gated, grouped, output_gate, plain, routed, windows
from kvprefetch.checks import InputError
from kvprefetch.mixers import Mixer, delta_net, mamba1, mamba2


def qwen_moe(config: Any) -> Iterator[Block]:
    """Routed experts except in mlp_only_layers and between sparse steps; Qwen2's and Next's have a shared expert."""
    shared = getattr(config, "shared_expert_intermediate_size", 0)
    sparse = routed(config, config.num_experts, config.moe_intermediate_size, shared, gate=1 if shared else 0)
    step, skipped = getattr(config, "decoder_sparse_step", 1), getattr(config, "mlp_only_layers", None) or ()
    for index, (kind, window) in enumerate(windows(config)):
        routes = index not in skipped and config.num_experts > 0 and (index + 1) % step == 0
        feed = sparse if routes else Feed(mlp=gated(config.hidden_size, config.intermediate_size))
        yield Block(qwen_mixer(config, kind, window), feed)


def qwen_hybrid(config: Any) -> Iterator[Block]:
    """Qwen3.5: linear attention with gated full attention in every few layers, and a gated MLP."""
    feed = Feed(mlp=gated(config.hidden_size, config.intermediate_size))
    return (Block(qwen_mixer(config, *at), feed) for at in windows(config))


def qwen_mixer(config: Any, kind: str, window: int | None) -> Mixer:
    if kind == "linear":
        return delta_net(
            config.hidden_size,
            key_dim=config.linear_num_key_heads * config.linear_key_head_dim,
            value_heads=config.linear_num_value_heads,
            value_head_dim=config.linear_value_head_dim,
            key_head_dim=config.linear_key_head_dim,
            kernel=config.linear_conv_kernel_dim,
        )
    mixer = grouped(config, kind, window)
    if not hasattr(config, "linear_num_key_heads"):
        return mixer
    return replace(mixer, params=mixer.params + output_gate(config))  # in the hybrids q_proj also makes the gate


def jamba(config: Any) -> Iterator[Block]:
    """Mamba with attention in every few layers, experts in every few."""
    sparse = routed(config, config.num_experts, config.intermediate_size)
    dense_feed = Feed(mlp=gated(config.hidden_size, config.intermediate_size))
    for name, experts in zip(config.layers_block_type, config.layers_num_experts, strict=True):
        mixer = grouped(config, "full", None)
        if name == "mamba":
            inner = config.mamba_expand * config.hidden_size
            state, kernel, rank = config.mamba_d_state, config.mamba_d_conv, config.mamba_dt_rank
            mixer = mamba1(config.hidden_size, inner, state, kernel, rank)
        yield Block(mixer, sparse if experts > 1 else dense_feed)


def bamba(config: Any) -> Iterator[Block]:
    """Mamba 2 with attention in the layers that the file lists, a gated MLP in each."""
    feed = Feed(mlp=gated(config.hidden_size, config.intermediate_size))
    recurrent = mamba2_of(config, config.mamba_expand * config.hidden_size)
    for kind, window in windows(config):
        yield Block(recurrent if kind == "linear" else grouped(config, kind, window), feed)


def granite_hybrid(config: Any) -> Iterator[Block]:
    """Mamba 2 or attention; a shared MLP, and routed experts where there are any."""
    feed = Feed(mlp=gated(config.hidden_size, config.shared_intermediate_size))
    if config.num_local_experts:
        experts, width = config.num_local_experts, config.intermediate_size
        feed = routed(config, experts, width, shared_width=config.shared_intermediate_size)
    recurrent = mamba2_of(config, config.mamba_expand * config.hidden_size)
    for kind, window in windows(config):
        yield Block(recurrent if kind == "linear" else grouped(config, kind, window), feed)


def mamba2_of(config: Any, inner: int) -> Mixer:
    state, groups, kernel = config.mamba_d_state, config.mamba_n_groups, config.mamba_d_conv
    return mamba2(config.hidden_size, inner, config.mamba_n_heads, state, groups, kernel)


def falcon_h1(config: Any) -> Iterator[Block]:
    """Mamba 2 and attention side by side in every layer."""
    inner = config.mamba_expand * config.hidden_size if config.mamba_d_ssm is None else config.mamba_d_ssm
    both, recurrent = grouped(config, "full", None), mamba2_of(config, inner)
    mixer = replace(both, kind="full+mamba", params=both.params + recurrent.params, state_values=recurrent.state_values)
    feed = Feed(mlp=gated(config.hidden_size, config.intermediate_size))
    return iter([Block(mixer, feed)] * config.num_hidden_layers)


def nemotron_h(config: Any) -> Iterator[Block]:
    """One part a layer: Mamba 2, attention, an MLP of two matrices, or routed experts of two matrices."""
    hidden = config.hidden_size
    inner = config.mamba_num_heads * config.mamba_head_dim
    recurrent = mamba2(
        hidden, inner, config.mamba_num_heads, config.ssm_state_size, config.n_groups, config.conv_kernel
    )
    latent = config.moe_latent_size or hidden
    sparse = Feed(
        mlp=plain(hidden, config.moe_shared_expert_intermediate_size)
        + (2 * hidden * latent if latent != hidden else 0),
        router=hidden * config.n_routed_experts,
        expert=plain(latent, config.moe_intermediate_size),
        experts=config.n_routed_experts,
        experts_per_token=config.num_experts_per_tok,
    )
    known = {
        "linear_attention": Block(recurrent, Feed()),
        "full_attention": Block(grouped(config, "full", None), Feed()),
        "mlp": Block(Mixer("mlp", 0), Feed(mlp=plain(hidden, config.intermediate_size))),
        "moe": Block(Mixer("moe", 0), sparse),
    }
    for name in config.layer_types:
        if name not in known:
            raise InputError(f"layers_block_type: {name} is no kind of layer this reader knows; {BY_HAND}")
        yield known[name]
