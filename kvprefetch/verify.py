"""Do the figures of a report hold? Each is worked out a second way, and both are shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kvprefetch.configs import HardwareProfile, ModelConfig
from kvprefetch.layers import KV_BYTES, is_uniform, step_weight_bytes
from kvprefetch.planner import contexts_in_order, crossover_ctx, peak_ctx
from kvprefetch.roofline import layer_times
from kvprefetch.schedule import ondemand_step, prefetch_step, uniform_prefetch_step
from kvprefetch.simulation import simulated_step

ROUNDING = 1e-12  # relative; sums of some hundred doubles stay well within it
NEIGHBOURS = 64  # contexts either side of the crossover among which the peak is looked for


@dataclass(frozen=True)
class Check:
    """One claim, what it came to, what it should come to, and whether it does."""

    claim: str
    computed: str
    expected: str
    holds: bool


def verify(
    model: ModelConfig, hw: HardwareProfile, contexts: Iterable[int], batch: int = 1, depth: int = 1
) -> tuple[Check, ...]:
    """The checks that hold for this stack, at these contexts. Raises InputError like `planner.compare`."""
    times = layer_times(model.layers, hw, contexts_in_order(contexts), batch)
    ondemand = ondemand_step(times.compute, times.transfer)
    prefetch = prefetch_step(times.compute, times.transfer, depth)
    simulated = [simulated_step(c, t, depth) for c, t in zip(times.compute, times.transfer, strict=True)]
    sums = times.compute.sum(-1) + times.transfer.sum(-1)
    crossover, peak = crossover_ctx(model, hw, batch), peak_ctx(model, hw, batch, depth)
    checks = [
        _equal("event simulation = prefetch recurrence at every context", simulated, prefetch),
        _equal("sum c + sum t = on-demand step at every context", sums, ondemand),
        _bounded(np.maximum(times.compute.sum(-1), times.transfer.sum(-1)), prefetch, ondemand),
        _crossover_is_first(model, hw, batch, crossover),
        _peak_is_highest(model, hw, batch, depth, peak),
    ]
    if is_uniform(model.layers):
        closed = uniform_prefetch_step(times.compute[:, 0], times.transfer[:, 0], len(model.layers))
        checks.insert(0, _equal("closed form = prefetch recurrence at every context", closed, prefetch))
        if len(model.layers) > 1 and crossover is not None:
            checks.append(_peak_is_at_the_crossover(model, hw, batch, depth, crossover, peak))
    return tuple(checks)


def _bounded(busier: np.ndarray, prefetch: np.ndarray, ondemand: np.ndarray) -> Check:
    least, smallest, largest = (prefetch / busier).min(), (ondemand / prefetch).min(), (ondemand / prefetch).max()
    return Check(
        "max(sum c, sum t) ≤ prefetch ≤ on-demand ≤ 2 · prefetch",
        f"prefetch / max ≥ {least:.6f}; on-demand / prefetch from {smallest:.6f} to {largest:.6f}",
        "at least 1; from 1 to 2",
        bool(least >= 1 - ROUNDING and smallest >= 1 - ROUNDING and largest <= 2 + ROUNDING),
    )


def _equal(claim: str, other: Iterable[float], step: np.ndarray) -> Check:
    worst = float(np.abs(np.asarray(other) / step - 1).max())
    return Check(claim, f"relative difference {worst:.1e}", f"at most {ROUNDING:.0e}", worst <= ROUNDING)


def _crossover_is_first(model: ModelConfig, hw: HardwareProfile, batch: int, crossover: int | None) -> Check:
    """In rationals: the link is short of the engine's time at n*-1 and not at n*."""
    weights = sum(Fraction(float(each)) for each in step_weight_bytes(model.layers, batch))
    sum_c = weights / Fraction(str(hw.hbm_gb_s))

    def ratio(ctx_len: int) -> Fraction:
        values = sum(layer.kv_values * min(ctx_len, layer.window or ctx_len) for layer in model.layers)
        return batch * values * Fraction(KV_BYTES["fp16"]) / Fraction(str(hw.pcie_gb_s)) / sum_c

    if crossover is None:
        longest = max(layer.window for layer in model.layers if layer.window)
        full = ratio(longest)
        return Check("sum t / sum c with every window full", f"{float(full):.6f}", "below 1", full < 1)
    before, at = ratio(crossover - 1), ratio(crossover)
    return Check(
        "sum t / sum c - 1 at n*-1 and at n*, in exact rationals",
        f"{float(before - 1):+.2e}, {float(at - 1):+.2e}",
        "below 0, then at least 0",
        before < 1 <= at,
    )


def _peak_is_highest(model: ModelConfig, hw: HardwareProfile, batch: int, depth: int, peak: int) -> Check:
    """By evaluating the reduction at the peak, at the contexts around it, and at contexts far from it."""
    around = np.arange(max(1, peak - NEIGHBOURS), peak + NEIGHBOURS + 1)
    others = np.unique([*around, *np.geomspace(1, 100 * peak, 4 * NEIGHBOURS).round().astype(int)])
    times = layer_times(model.layers, hw, others, batch)
    reduction = 1 - prefetch_step(times.compute, times.transfer, depth) / ondemand_step(times.compute, times.transfer)
    highest, at_peak = reduction.max(), reduction[others == peak][0]
    return Check(
        f"largest reduction of {len(others)} contexts around the peak and far from it",
        f"{100 * highest:.6f} %",
        f"{100 * at_peak:.6f} % at {peak}",
        bool(highest - at_peak <= ROUNDING),
    )


def _peak_is_at_the_crossover(
    model: ModelConfig, hw: HardwareProfile, batch: int, depth: int, crossover: int, peak: int
) -> Check:
    """True of uniform stacks of two layers or more, whose reduction has a closed form with its top there."""
    ceiling = (len(model.layers) - 1) / (2 * len(model.layers))
    times = layer_times(model.layers, hw, peak, batch)
    reduction = 1 - prefetch_step(times.compute, times.transfer, depth) / ondemand_step(times.compute, times.transfer)
    return Check(
        "the peak lies at n* or n*-1 and is at most (L-1)/(2L)",
        f"at {peak}, {100 * reduction:.6f} %",
        f"at {crossover - 1} or {crossover}, at most {100 * ceiling:.6f} %",
        bool(crossover - peak in (0, 1) and reduction <= ceiling + ROUNDING),
    )
