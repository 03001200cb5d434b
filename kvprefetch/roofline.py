"""What does each layer cost one decode step, in seconds?

Symbols: n context, b batch, W_l(b) bytes of weights layer l reads, K_l(n) bytes of KV it holds, of
which those that are offloaded cross the link. Every time is work / rate: c_l = W_l / HBM on the
engine, t_l = offloaded K_l / PCIe on the link; `Terms` add to both what first order leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvprefetch.configs import FIRST_ORDER, GB, MICRO, HardwareProfile, ModelConfig, Terms
from kvprefetch.layers import Layer, held_tokens, kv_bytes, step_weight_bytes, token_bytes


@dataclass(frozen=True)
class LayerTimes:
    """Seconds of engine and of link time, one column a layer: two arrays of shape (..., L)."""

    compute: np.ndarray
    transfer: np.ndarray


def layer_times(
    layers: tuple[Layer, ...],
    hw: HardwareProfile,
    ctx_len: int | np.ndarray,
    batch: int,
    terms: Terms = FIRST_ORDER,
) -> LayerTimes:
    """The layers' compute and transfer at each context.

    c_l = W_l(b) / (HBM · weight efficiency) + K_l(n) / (HBM · attention efficiency) where KV is read + layer overhead
    t_l = offloaded K_l(n) / (PCIe · efficiency) + copy latency where any is offloaded

    `ctx_len` of shape (...) gives arrays of shape (..., L).
    """
    offloaded = offloaded_bytes(layers, ctx_len, batch, terms)
    transfer = offloaded / (hw.pcie_gb_s * GB * terms.pcie_efficiency)
    transfer += (offloaded > 0) * (terms.copy_latency_us * MICRO)
    compute = step_weight_bytes(layers, batch) / (hw.hbm_gb_s * GB * terms.weight_efficiency)
    compute += terms.layer_overhead_us * MICRO
    if terms.kv_read:
        held = kv_bytes(layers, ctx_len, batch, terms.kv_dtype)
        compute = compute + held / (hw.hbm_gb_s * GB * terms.attention_efficiency)
    return LayerTimes(np.broadcast_to(compute, transfer.shape), transfer)


def head_time(model: ModelConfig, hw: HardwareProfile, terms: Terms = FIRST_ORDER) -> float:
    """Seconds the LM head takes after the last layer: vocab_size · hidden_size · bytes / HBM; 0 where terms omit it."""
    return terms.lm_head * model.head_bytes / (hw.hbm_gb_s * GB * terms.weight_efficiency)


def offloaded_bytes(
    layers: tuple[Layer, ...], ctx_len: int | np.ndarray, batch: int, terms: Terms = FIRST_ORDER
) -> np.ndarray:
    """Bytes of each layer's KV that cross the link in a step: b · offloaded tokens · values · bytes a value.

    `ctx_len` of shape (...) gives (..., L).
    """
    return batch * offloaded_tokens(layers, ctx_len, terms) * token_bytes(layers, terms.kv_dtype)


def resident_bytes(
    layers: tuple[Layer, ...], ctx_len: int | np.ndarray, batch: int, terms: Terms = FIRST_ORDER
) -> np.ndarray:
    """Bytes of each layer's KV that stay on the GPU between steps; shape (..., L)."""
    return kv_bytes(layers, ctx_len, batch, terms.kv_dtype) - offloaded_bytes(layers, ctx_len, batch, terms)


def kv_blocks(fetching: int, depth: int, terms: Terms = FIRST_ORDER) -> int:
    """Blocks of GPU memory that the KV of `fetching` offloaded layers lands in: min(d + 1, M).

    With overlap across tokens the next token's layers take buffers too: d + 1, however few layers fetch.
    """
    return min(depth + 1, 2 * fetching if terms.cross_token_overlap else fetching)


def offloaded_tokens(layers: tuple[Layer, ...], ctx_len: int | np.ndarray, terms: Terms) -> np.ndarray:
    """Tokens of one sequence whose KV crosses the link, by layer: max(0, held - resident_tokens); shape (..., L).

    0 in layers whose window stays on the GPU.
    """
    kept_whole = np.array([terms.resident_windows and layer.window is not None for layer in layers])
    return np.where(kept_whole, 0.0, np.maximum(0.0, held_tokens(layers, ctx_len) - terms.resident_tokens))
