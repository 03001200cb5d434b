"""What does each layer cost one decode step, in seconds?

Symbols: W_l bytes of weights layer l reads, K_l(n) bytes of KV it holds at context n.
Every time is work / rate: c_l = W_l / HBM on the engine, t_l = K_l(n) / PCIe on the link.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kvprefetch.configs import GB, HardwareProfile, Layer, kv_bytes


@dataclass(frozen=True)
class LayerTimes:
    """Seconds of engine and of link time, one column a layer: two arrays of shape (..., L)."""

    compute: np.ndarray
    transfer: np.ndarray


def layer_times(layers: tuple[Layer, ...], hw: HardwareProfile, ctx_len: int | np.ndarray, batch: int) -> LayerTimes:
    """The layers' compute and transfer at each context.

    c_l = W_l / HBM,    t_l = K_l(n) / PCIe

    `ctx_len` of shape (...) gives arrays of shape (..., L).
    """
    transfer = kv_bytes(layers, ctx_len, batch) / (hw.pcie_gb_s * GB)
    weights = np.array([layer.weight_bytes for layer in layers])
    return LayerTimes(np.broadcast_to(weights / (hw.hbm_gb_s * GB), transfer.shape), transfer)


def balance_ctx(layers: tuple[Layer, ...], hw: HardwareProfile, batch: int) -> Fraction | None:
    """The real context at which sum t = sum c, exactly; None where no layer caches anything.

    n = sum W_l · PCIe / (HBM · sum K_l(1))

    Solved in rationals made from the rates' decimal text: the ceiling of a float quotient is one
    off on exact ties.
    """
    weights = sum(Fraction(layer.weight_bytes) for layer in layers)
    kv_a_token = Fraction(float(kv_bytes(layers, 1, batch).sum()))
    if not kv_a_token:
        return None
    return weights * Fraction(str(hw.pcie_gb_s)) / (Fraction(str(hw.hbm_gb_s)) * kv_a_token)
