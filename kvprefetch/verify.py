"""Do the figures of a report hold? Each is worked out a second way, and both are shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kvprefetch.configs import HardwareProfile, ModelConfig
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
    """The checks of a uniform stack at these contexts. Raises InputError like `planner.compare`."""
    times = layer_times(model.layers, hw, contexts_in_order(contexts), batch)
    ondemand = ondemand_step(times.compute, times.transfer)
    prefetch = prefetch_step(times.compute, times.transfer, depth)
    busier = np.maximum(times.compute.sum(-1), times.transfer.sum(-1))
    closed = uniform_prefetch_step(times.compute[:, 0], times.transfer[:, 0], model.num_hidden_layers)
    simulated = [simulated_step(c, t, depth) for c, t in zip(times.compute, times.transfer, strict=True)]
    return (
        _equal("closed form = recurrence at every context", closed, prefetch),
        _equal("event simulation = recurrence at every context", simulated, prefetch),
        Check(
            "max(sum c, sum t) ≤ prefetch ≤ on-demand",
            f"{(prefetch / busier).min():.6f}, {(prefetch / ondemand).max():.6f}",
            "smallest ratio to the left ≥ 1, largest to the right ≤ 1",
            bool((busier <= prefetch * (1 + ROUNDING)).all() and (prefetch <= ondemand * (1 + ROUNDING)).all()),
        ),
        _crossover_is_first(model, hw, batch),
        *_peak_is_highest(model, hw, batch, depth),
    )


def _equal(claim: str, other: Iterable[float], prefetch: np.ndarray) -> Check:
    worst = float(np.abs(np.asarray(other) / prefetch - 1).max())
    return Check(claim, f"relative difference {worst:.1e}", f"at most {ROUNDING:.0e}", worst <= ROUNDING)


def _crossover_is_first(model: ModelConfig, hw: HardwareProfile, batch: int) -> Check:
    """In rationals: the link is short of the engine's time at n*-1 and not at n*."""
    crossover = crossover_ctx(model, hw, batch)
    sum_c = Fraction(sum(layer.weight_bytes for layer in model.layers)) / Fraction(str(hw.hbm_gb_s))
    before, at = (
        Fraction(model.kv_bytes(n, batch) if n else 0.0) / Fraction(str(hw.pcie_gb_s)) / sum_c
        for n in (crossover - 1, crossover)
    )
    return Check(
        "sum t / sum c at n*-1 and at n*, in exact rationals",
        f"{float(before):.6f}, {float(at):.6f}",
        "below 1, then at least 1",
        before < 1 <= at,
    )


def _peak_is_highest(model: ModelConfig, hw: HardwareProfile, batch: int, depth: int) -> tuple[Check, Check]:
    """By evaluating the reduction at the contexts around n*."""
    crossover, peak = crossover_ctx(model, hw, batch), peak_ctx(model, hw, batch)
    around = np.arange(max(1, crossover - NEIGHBOURS), crossover + NEIGHBOURS + 1)
    times = layer_times(model.layers, hw, around, batch)
    reduction = 1 - prefetch_step(times.compute, times.transfer, depth) / ondemand_step(times.compute, times.transfer)
    highest, at_peak = reduction.max(), reduction[around == peak][0]
    ceiling = (model.num_hidden_layers - 1) / (2 * model.num_hidden_layers)
    return (
        Check(
            f"largest reduction of {len(around)} contexts around n*",
            f"{100 * highest:.6f} %",
            f"{100 * at_peak:.6f} % at {peak}, n* or n*-1",
            highest - at_peak <= ROUNDING and crossover - peak in (0, 1),
        ),
        Check(
            "largest reduction ≤ (L-1)/(2L)",
            f"{100 * highest:.6f} %",
            f"at most {100 * ceiling:.6f} %",
            highest <= ceiling + ROUNDING,
        ),
    )
