"""What are the layers of a published model? A family's config -> one `Block` a decoder layer.

`FAMILIES` is the whole list: a family that is not in it is refused, and so is a layer whose shape the
config does not state in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kvprefetch.blocks import (
    BY_HAND,
    Block,
    Feed,
    gated,
    gated_experts,
    grouped,
    output_gate,
    plain,
    routed,
    unknown_family,
    windows,
)
from kvprefetch.checks import InputError
from kvprefetch.gemma import gemma3n, gemma4
from kvprefetch.hybrids import bamba, falcon_h1, granite_hybrid, jamba, nemotron_h, qwen_hybrid, qwen_moe
from kvprefetch.mixers import attention, latent_attention


def blocks(config: Any) -> tuple[Block, ...]:
    """The layers of a text model's config, first layer first. Raises InputError on a family it does not cover."""
    build = FAMILIES.get(config.model_type)
    if build is None:
        raise unknown_family(config.model_type)
    return tuple(build(config))


def other_params(config: Any) -> int:
    """Weights outside layers, embeddings and LM head: position tables, and Gemma's inputs to every layer."""
    if config.model_type in ("gpt2", "gpt_bigcode"):
        return config.n_positions * config.n_embd
    if config.model_type == "opt":
        return (config.max_position_embeddings + 2) * config.hidden_size
    width = getattr(config, "hidden_size_per_layer_input", None)
    if not width:
        return 0
    per_layer = config.num_hidden_layers * width * (config.vocab_size_per_layer_input + config.hidden_size)
    return per_layer + 2 * (getattr(config, "altup_num_inputs", 1) - 1) * config.hidden_size**2


def dense(config: Any) -> Iterator[Block]:
    """Grouped-query attention and a gated MLP in every layer, with or without windows."""
    feed = Feed(mlp=gated(config.hidden_size, config.intermediate_size))
    return (Block(grouped(config, *at), feed) for at in windows(config))


def two_matrix(config: Any) -> Iterator[Block]:
    """Grouped-query or multi-head attention and an MLP of two matrices."""
    width = next(
        (size for name in ("intermediate_size", "ffn_dim", "n_inner") if (size := getattr(config, name, None))),
        4 * config.hidden_size,
    )
    feed = Feed(mlp=plain(config.hidden_size, width))
    return (Block(grouped(config, *at), feed) for at in windows(config))


def opt(config: Any) -> Iterator[Block]:
    if config.word_embed_proj_dim != config.hidden_size:
        raise InputError(f"word_embed_proj_dim {config.word_embed_proj_dim} is narrower than the layers; {BY_HAND}")
    return two_matrix(config)


def falcon(config: Any) -> Iterator[Block]:
    """One KV head where multi_query says so, except in the new decoder, which states their number."""
    stated = config.num_kv_heads if config.new_decoder_architecture or not config.multi_query else 1
    size = config.head_dim
    mixer = attention("full", None, config.hidden_size, config.num_attention_heads, stated, size, size)
    feed = Feed(mlp=plain(config.hidden_size, config.ffn_hidden_size))
    return iter([Block(mixer, feed)] * config.num_hidden_layers)


def mpt(config: Any) -> Iterator[Block]:
    if config.attn_config.attn_type != "multihead_attention" or getattr(config.attn_config, "kv_n_heads", None):
        raise InputError(f"attn_config: only multihead attention is known for mpt; {BY_HAND}")
    feed = Feed(mlp=plain(config.hidden_size, config.expansion_ratio * config.hidden_size))
    return (Block(grouped(config, *at), feed) for at in windows(config))


def routed_everywhere(config: Any) -> Iterator[Block]:
    """Every layer routed; experts of intermediate_size."""
    feed = routed(config, getattr(config, "num_local_experts", None) or config.num_experts, config.intermediate_size)
    return (Block(grouped(config, *at), feed) for at in windows(config))


def dbrx(config: Any) -> Iterator[Block]:
    ffn = config.ffn_config
    feed = gated_experts(config.hidden_size, ffn.moe_num_experts, ffn.moe_top_k, ffn.ffn_hidden_size)
    return iter([Block(grouped(config, "full", None), feed)] * config.num_hidden_layers)


def muse_glimmer(config: Any) -> Iterator[Block]:
    """Windows and a gate on attention's output."""
    for block in dense(config):
        yield replace(block, mixer=replace(block.mixer, params=block.mixer.params + output_gate(config)))


def deepseek(config: Any) -> Iterator[Block]:
    """Latent attention; dense first layers, then routed and shared experts."""
    mixer = latent_attention(
        config.hidden_size,
        config.num_attention_heads,
        q_rank=config.q_lora_rank,
        kv_rank=config.kv_lora_rank,
        nope=config.qk_nope_head_dim,
        rope=config.qk_rope_head_dim,
        value=config.v_head_dim,
    )
    return (Block(mixer, feed) for feed in dense_first(config))


def glm_moe(config: Any) -> Iterator[Block]:
    """Grouped-query attention; dense first layers, then routed and shared experts."""
    return (Block(grouped(config, *at), feed) for at, feed in zip(windows(config), dense_first(config), strict=True))


def dense_first(config: Any) -> list[Feed]:
    """The first_k_dense_replace layers are dense, all others routed."""
    if getattr(config, "moe_layer_freq", 1) != 1:
        raise InputError(f"moe_layer_freq: only 1 is known for {config.model_type}; {BY_HAND}")
    width = config.moe_intermediate_size
    sparse = routed(config, config.n_routed_experts, width, shared_width=(config.n_shared_experts or 0) * width)
    first = min(config.first_k_dense_replace, config.num_hidden_layers)
    dense_feed = Feed(mlp=gated(config.hidden_size, config.intermediate_size))
    return [dense_feed] * first + [sparse] * (config.num_hidden_layers - first)


def mimo(config: Any) -> Iterator[Block]:
    """K wider than V; sliding layers have twice the KV heads of full ones."""
    sparse = routed(config, config.n_routed_experts, config.moe_intermediate_size)
    dense_feed = Feed(mlp=gated(config.hidden_size, config.intermediate_size))
    for (kind, window), mlp in zip(windows(config), config.mlp_layer_types, strict=True):
        kv_heads = config.num_key_value_heads * (2 if kind == "sliding" else 1)
        heads, key, value = config.num_attention_heads, config.head_dim, config.v_head_dim
        mixer = attention(kind, window, config.hidden_size, heads, kv_heads, key, value)
        yield Block(mixer, sparse if mlp == "sparse" else dense_feed)


def llama4(config: Any) -> Iterator[Block]:
    """Chunked attention in most layers; a shared expert as wide as a routed one; dense layers of their own width."""
    width = config.intermediate_size
    sparse = routed(config, config.num_local_experts, width, shared_width=width)
    dense_feed = Feed(mlp=gated(config.hidden_size, config.intermediate_size_mlp))
    for index, at in enumerate(windows(config)):
        yield Block(grouped(config, *at), sparse if index in config.moe_layers else dense_feed)


FAMILIES: dict[str, Callable[[Any], Iterator[Block]]] = {
    **dict.fromkeys(("llama", "mistral", "ministral", "ministral3", "qwen2", "qwen3", "phi3", "glm", "glm4"), dense),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "cohere", "cohere2", "granite", "smollm3", "exaone4"), dense),
    **dict.fromkeys(("olmo", "olmo2", "olmo3", "seed_oss", "stablelm", "ernie4_5", "helium"), dense),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"), dense),
    **dict.fromkeys(
        ("phi", "gpt2", "gpt_bigcode", "gpt_neox", "starcoder2", "bloom", "nemotron", "apertus"), two_matrix
    ),
    **dict.fromkeys(("mixtral", "gpt_oss", "phimoe", "granitemoe", "minimax_m2", "olmoe"), routed_everywhere),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text", "qwen3_vl_moe_text"), qwen_moe),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), deepseek),
    "bamba": bamba,
    "dbrx": dbrx,
    "falcon": falcon,
    "falcon_h1": falcon_h1,
    "gemma3n_text": gemma3n,
    "gemma4_text": gemma4,
    "glm4_moe": glm_moe,
    "granitemoehybrid": granite_hybrid,
    "jamba": jamba,
    "llama4_text": llama4,
    "mimo_v2_flash": mimo,
    "mpt": mpt,
    "muse_glimmer_text": muse_glimmer,
    "nemotron_h": nemotron_h,
    "opt": opt,
    "qwen3_5_text": qwen_hybrid,
}
