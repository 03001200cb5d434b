"""What does each layer cost one decode step, in seconds?

Symbols: n context, b batch, W_l(b) bytes of weights layer l reads, K_l(n) bytes of KV it holds, of
which those that are offloaded cross the link. Every time is work / rate: c_l = W_l / HBM on the
engine, t_l = offloaded K_l / PCIe on the link.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from kvprefetch.configs import FIRST_ORDER, GB, HardwareProfile, Terms
from kvprefetch.layers import KV_BYTES, Layer, held_tokens, step_weight_bytes


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

    c_l = W_l(b) / HBM,    t_l = offloaded K_l(n) / PCIe

    `ctx_len` of shape (...) gives arrays of shape (..., L).
    """
    transfer = offloaded_bytes(layers, ctx_len, batch, terms) / (hw.pcie_gb_s * GB)
    compute = step_weight_bytes(layers, batch) / (hw.hbm_gb_s * GB)
    return LayerTimes(np.broadcast_to(compute, transfer.shape), transfer)


def offloaded_bytes(
    layers: tuple[Layer, ...], ctx_len: int | np.ndarray, batch: int, terms: Terms = FIRST_ORDER
) -> np.ndarray:
    """Bytes of each layer's KV that cross the link in a step: b · offloaded tokens · values · bytes a value.

    `ctx_len` of shape (...) gives (..., L).
    """
    a_token = np.array([layer.kv_values * KV_BYTES[terms.kv_dtype] for layer in layers])
    return batch * _offloaded_tokens(layers, ctx_len, terms) * a_token


def resident_bytes(
    layers: tuple[Layer, ...], ctx_len: int | np.ndarray, batch: int, terms: Terms = FIRST_ORDER
) -> np.ndarray:
    """Bytes of each layer's KV that stay on the GPU between steps; shape (..., L)."""
    a_token = np.array([layer.kv_values * KV_BYTES[terms.kv_dtype] for layer in layers])
    return batch * (held_tokens(layers, ctx_len) - _offloaded_tokens(layers, ctx_len, terms)) * a_token


def _offloaded_tokens(layers: tuple[Layer, ...], ctx_len: int | np.ndarray, terms: Terms) -> np.ndarray:
    """max(0, held - resident_tokens); 0 in layers whose window stays on the GPU."""
    kept_whole = np.array([terms.resident_windows and layer.window is not None for layer in layers])
    return np.where(kept_whole, 0.0, np.maximum(0.0, held_tokens(layers, ctx_len) - terms.resident_tokens))


def first_reaching_ctx(
    layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, terms: Terms = FIRST_ORDER, times_compute: int = 1
) -> int | None:
    """The smallest whole context >= 1 at which sum t is at least `times_compute` · sum c; None where none is.

    Exact: in rationals made from the rates' decimal text, by bisection on a sum that never falls. The
    ceiling of a float quotient is one off on some ties.
    """
    return _first_ctx(layers, terms, times_compute * _balance(layers, hw, batch, terms), bisect_left)


def first_exceeding_ctx(
    layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, terms: Terms = FIRST_ORDER
) -> int | None:
    """The smallest whole context >= 1 at which sum t is more than sum c; None where none is. Exact."""
    return _first_ctx(layers, terms, _balance(layers, hw, batch, terms), bisect_right)


def _balance(layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, terms: Terms) -> Fraction:
    """The cached values, over all layers of one sequence, that the link carries in sum c."""
    weights = sum(Fraction(float(each)) for each in step_weight_bytes(layers, batch))
    rates = Fraction(str(hw.pcie_gb_s)) / Fraction(str(hw.hbm_gb_s))
    return weights * rates / (batch * Fraction(KV_BYTES[terms.kv_dtype]))


def _first_ctx(layers: tuple[Layer, ...], terms: Terms, target: Fraction, bisect) -> int | None:
    """Where the offloaded values of one sequence reach (bisect_left) or pass (bisect_right) the target."""
    crossing = Counter(
        (layer.kv_values, layer.window) for layer in layers if not (terms.resident_windows and layer.window)
    )
    resident = terms.resident_tokens

    def offloaded_values(ctx_len: int) -> int:
        return sum(
            count * values * max(0, min(ctx_len, window or ctx_len) - resident)
            for (values, window), count in crossing.items()
        )

    growing = sum(count * values for (values, window), count in crossing.items() if window is None)
    longest = max((window for _, window in crossing if window), default=1)
    if growing:
        longest = max(longest, resident + ceil(target / growing) + 1)
    first = 1 + bisect(range(1, longest + 1), target, key=offloaded_values)
    return first if first <= longest else None
