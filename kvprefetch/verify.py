"""Do the figures of a report hold? Each is worked out a second way, and both are shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from kvprefetch.configs import FIRST_ORDER, HardwareProfile, ModelConfig, Terms
from kvprefetch.layers import KV_BYTES, MOST_CTX, is_uniform, step_weight_bytes
from kvprefetch.plan import Fit, Plan
from kvprefetch.planner import crossover_ctx, peak_ctx, sweep_columns
from kvprefetch.roofline import head_time, layer_times, offloaded_bytes, resident_bytes
from kvprefetch.schedule import uniform_prefetch_step
from kvprefetch.simulation import simulated_step

ROUNDING = 1e-12  # relative; sums of some hundred doubles stay well within it
NEAR_A_LIMIT = 1e-3  # of the reduction: where it only tends to its largest value, this near counts as there
NEIGHBOURS = 64  # contexts either side of the crossover among which the peak is looked for


@dataclass(frozen=True)
class Check:
    """One claim, what it came to, what it should come to, and whether it does."""

    claim: str
    computed: str
    expected: str
    holds: bool


def verify(
    model: ModelConfig,
    hw: HardwareProfile,
    contexts: Iterable[int],
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> tuple[Check, ...]:
    """The checks that hold for this stack, at these contexts. Raises InputError like `planner.compare`."""
    pair = _Pair(model, hw, batch, depth, terms)
    swept = sweep_columns(model, hw, contexts, batch, depth, terms)
    compute, transfer = pair.times(swept.ctx_len)
    ondemand, prefetch = swept.ondemand_ms / 1e3, swept.prefetch_ms / 1e3
    simulated = [pair.simulated(c, t) for c, t in zip(compute, transfer, strict=True)]
    crossover, peak = crossover_ctx(model, hw, batch, terms), peak_ctx(model, hw, batch, depth, terms)
    checks = [
        _equal("event simulation = prefetch recurrence at every context", simulated, prefetch),
        _equal("sum of all times = on-demand step at every context", compute.sum(-1) + transfer.sum(-1), ondemand),
        _bounded(np.maximum(compute.sum(-1), transfer.sum(-1)), prefetch, ondemand),
        _crossover_is_first(pair, crossover),
        _peak_is_highest(pair, peak),
    ]
    if is_uniform(model.layers) and not terms.lm_head and not terms.cross_token_overlap:
        closed = uniform_prefetch_step(compute[:, 0], transfer[:, 0], len(model.layers))
        checks.insert(0, _equal("closed form = prefetch recurrence at every context", closed, prefetch))
        if len(model.layers) > 1 and crossover is not None and not (terms.kv_read and terms.copy_latency_us):
            checks.append(_peak_is_at_the_crossover(pair, crossover, peak))
    return tuple(checks)


def verify_plan(model: ModelConfig, plan: Plan) -> tuple[Check, ...]:
    """The checks of what fits, in plain floating-point sums; none where no capacity is known or no weights fit."""
    if plan.memory is None or plan.fit is Fit.WEIGHTS:
        return ()
    batch, depth, kv_dtype = plan.step.batch, plan.step.depth, plan.terms.kv_dtype
    beside = plan.memory.weights + plan.memory.state

    def resident(ctx_len: int) -> float:
        return (beside + model.kv_bytes(ctx_len, batch, kv_dtype)) / plan.memory.usable

    def filled(resident_tokens: int) -> float:
        terms = replace(plan.terms, resident_tokens=resident_tokens)
        offloaded = offloaded_bytes(model.layers, plan.ctx_len, batch, terms)
        passes = 2 if plan.terms.cross_token_overlap else 1  # of the stack, whose layers can hold buffers at once
        buffers = min(depth + 1, passes * int((offloaded > 0).sum())) * offloaded.max()
        kept = resident_bytes(model.layers, plan.ctx_len, batch, terms).sum()
        return float(beside + kept + buffers) / plan.memory.usable

    checks = []
    if plan.memory.resident_ctx:
        sizes = resident(plan.memory.resident_ctx), resident(plan.memory.resident_ctx + 1)
        checks.append(_turns("memory taken / usable at the largest resident context and at the next", *sizes))
    if plan.window is not None and plan.window < plan.ctx_len:
        sizes = filled(plan.window), filled(plan.window + 1)
        checks.append(_turns("memory taken / usable with the largest resident window and one token more", *sizes))
    return tuple(checks)


def summary(results: tuple[Check, ...]) -> str:
    """Whether the checks hold, in a sentence."""
    failed = [check.claim for check in results if not check.holds]
    if failed:
        return f"{len(failed)} of {len(results)} checks fail: {'; '.join(failed)}."
    return f"All {len(results)} checks hold: each figure was worked out a second way and agrees."


def _turns(claim: str, last: float, following: float) -> Check:
    holds = last <= 1 + ROUNDING and following >= 1 - ROUNDING
    return Check(claim, f"{last:.9f}, {following:.9f}", "at most 1, then at least 1", holds)


@dataclass(frozen=True)
class _Pair:
    """What is checked, and its arrays of times with the LM head as a last layer of the engine alone."""

    model: ModelConfig
    hw: HardwareProfile
    batch: int
    depth: int
    terms: Terms

    def times(self, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        times = layer_times(self.model.layers, self.hw, contexts, self.batch, self.terms)
        head = np.full((len(contexts), 1), head_time(self.model, self.hw, self.terms))
        return np.hstack([times.compute, head]), np.hstack([times.transfer, 0 * head])

    def simulated(self, compute: np.ndarray, transfer: np.ndarray) -> float:
        once = simulated_step(compute, transfer, self.depth)
        if not self.terms.cross_token_overlap:
            return once
        return simulated_step(np.tile(compute, 2), np.tile(transfer, 2), self.depth) - once

    def reduction(self, contexts: np.ndarray) -> np.ndarray:
        swept = sweep_columns(self.model, self.hw, contexts, self.batch, self.depth, self.terms)
        return swept.reduction_pct / 100

    def link_over_engine(self, ctx_len: int) -> Fraction:
        """sum t / sum c in exact rationals."""
        hw, terms = self.hw, self.terms
        compute = transfer = Fraction(0)
        for layer, weights in zip(self.model.layers, step_weight_bytes(self.model.layers, self.batch), strict=True):
            held = min(ctx_len, layer.window or ctx_len) if layer.kv_values else 0
            kept = held if terms.resident_windows and layer.window else min(held, terms.resident_tokens)
            value = self.batch * layer.kv_values * Fraction(KV_BYTES[terms.kv_dtype])
            compute += Fraction(float(weights)) / _rate(hw.hbm_gb_s, terms.weight_efficiency)
            compute += Fraction(str(terms.layer_overhead_us)) / 10**6
            compute += terms.kv_read * value * held / _rate(hw.hbm_gb_s, terms.attention_efficiency)
            if held > kept:
                transfer += value * (held - kept) / _rate(hw.pcie_gb_s, terms.pcie_efficiency)
                transfer += Fraction(str(terms.copy_latency_us)) / 10**6
        return transfer / compute


def _rate(gb_s: float, efficiency: float) -> Fraction:
    return Fraction(str(gb_s)) * Fraction(str(efficiency)) * 10**9


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


def _crossover_is_first(pair: _Pair, crossover: int | None) -> Check:
    """In rationals: the link is short of the engine's time at n*-1 and not at n*."""
    if crossover is None:
        windows = [layer.window for layer in pair.model.layers if layer.window]
        ratio = max(pair.link_over_engine(ctx_len) for ctx_len in (*windows, MOST_CTX))
        return Check(
            "sum t / sum c, windows full and at the longest context", f"{float(ratio):.6f}", "below 1", ratio < 1
        )
    before, at = pair.link_over_engine(crossover - 1), pair.link_over_engine(crossover)
    return Check(
        "sum t / sum c - 1 at n*-1 and at n*, in exact rationals",
        f"{float(before - 1):+.2e}, {float(at - 1):+.2e}",
        "below 0, then at least 0",
        before < 1 <= at,
    )


def _peak_is_highest(pair: _Pair, peak: int) -> Check:
    """By evaluating the reduction at the peak, at the contexts around it, and at contexts far from it."""
    around = np.arange(max(1, peak - NEIGHBOURS), min(peak + NEIGHBOURS, MOST_CTX) + 1)
    others = np.unique([*around, *np.geomspace(1, min(100 * peak, MOST_CTX), 4 * NEIGHBOURS).round().astype(int)])
    reduction = pair.reduction(others)
    highest, at_peak = reduction.max(), reduction[others == peak][0]
    return Check(
        f"largest reduction of {len(others)} contexts around the peak and far from it",
        f"{100 * highest:.6f} %",
        f"{100 * at_peak:.6f} % at {peak}",
        bool(highest - at_peak <= (NEAR_A_LIMIT if pair.terms.kv_read or pair.terms.cross_token_overlap else ROUNDING)),
    )


def _peak_is_at_the_crossover(pair: _Pair, crossover: int, peak: int) -> Check:
    """True of uniform stacks of two layers or more, whose reduction has a closed form with its top there."""
    layers = len(pair.model.layers)
    ceiling = (layers - 1) / (2 * layers)
    reduction = pair.reduction(np.array([peak]))[0]
    return Check(
        "the peak lies at n* or n*-1 and is at most (L-1)/(2L)",
        f"at {peak}, {100 * reduction:.6f} %",
        f"at {crossover - 1} or {crossover}, at most {100 * ceiling:.6f} %",
        bool(crossover - peak in (0, 1) and reduction <= ceiling + ROUNDING),
    )
