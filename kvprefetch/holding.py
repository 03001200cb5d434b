"""How much of the cache stays on the GPU, in words? The sentences of the section on what fits."""

from __future__ import annotations

from dataclasses import replace

from kvprefetch.configs import HardwareProfile, ModelConfig
from kvprefetch.formats import change, gigabytes, tokens
from kvprefetch.plan import Fit, Memory, Placement, Plan
from kvprefetch.planner import crossover_ctx

PARTS = ("usable, after the reserve", "all weights", "recurrent state", "the whole cache", "left")


def parts(memory: Memory) -> tuple[float, ...]:
    """The bytes of each of PARTS."""
    return memory.usable, memory.weights, memory.state, memory.kv, memory.left


def part(plan: Plan) -> int:
    """The largest resident window that fits, where that is a part of the cache; else 0."""
    return 0 if plan.fit is Fit.RESIDENT else plan.window or 0


def how_much(plan: Plan) -> str:
    """How much of the cache can stay on the GPU at the plan's context, and what that makes of the step."""
    at, step = tokens(plan.ctx_len), plan.step
    if plan.memory is None:
        return "The card's file states no hbm_capacity_gb, so how much of the cache could stay on the GPU is not known."
    if plan.fit is Fit.WEIGHTS:
        return "Nothing of the cache can stay on the GPU, which cannot hold the weights either."
    if plan.fit is Fit.RESIDENT:
        return f"At {at} the whole cache stays on the GPU, and a step takes {step.engine_ms:.2f} ms."
    if plan.fit is Fit.DEPTH:
        return f"At {at} the buffers of so deep a look-ahead do not fit on the GPU; those of a smaller one do."
    if plan.window is None:
        return f"At {at} not even the buffers of an offloaded cache fit on the GPU."
    if not plan.window:
        return f"At {at} the buffers of an offloaded cache fit on the GPU, and nothing of it beside them."
    return (
        f"At {at} the newest {tokens(plan.window)} of every layer fit on the GPU beside the buffers of the rest, and "
        f"the prefetch step takes {plan.filled.prefetch.total_ms:.2f} ms."
    )


def stays(plan: Plan) -> tuple[str, str]:
    """Up to which context the cache stays on the GPU: the figure, and a note."""
    if plan.memory is None:
        return "not known", "the card's file states no capacity"
    if plan.fit is Fit.WEIGHTS:
        return "never", "the weights alone do not fit"
    at = f"batch {plan.step.batch}, reserve {100 * plan.reserve:g} %"
    if plan.memory.resident_ctx is None:
        return "at every context", at
    return f"up to {tokens(plan.memory.resident_ctx)}", at


def window(placed: Placement) -> tuple[str, str]:
    """The largest resident window that fits and the prefetch step with it, for a table."""
    if placed.filled is None:
        return "–", "–"
    kept = "all" if placed.fit is Fit.RESIDENT else f"{placed.window}"
    return kept, f"{placed.filled.prefetch.total_ms:.2f}"


def compute_bound_window(plan: Plan) -> str:
    """How much would have to stay on the GPU for the link to be no longer the bound?"""
    window, at = plan.computing_window, tokens(plan.ctx_len)
    if not window:
        return f"At {at} the engine is busy at least as long as the link, whatever stays on the GPU."
    kept = gigabytes(plan.computing_bytes)
    room = "" if plan.window is None or plan.fit is Fit.RESIDENT else f", where {tokens(plan.window)} fit"
    return f"For {at} to be compute-bound, the newest {tokens(window)} of every layer would have to stay: {kept}{room}."


def windows_reading(plan: Plan, model: ModelConfig, hw: HardwareProfile) -> str:
    """How to read the table of windows, and what the largest window that fits does to the crossover."""
    reading = (
        r"“Can hide” is $\min(1, \text{engine} / \sum t)$, the share of the transfer that no schedule can hide more "
        "than: the bytes that the link carries while the engine computes, over all that it must carry."
    )
    if plan.fit is Fit.RESIDENT or not plan.window:
        return reading
    without, with_it = (
        crossover_ctx(model, hw, plan.step.batch, replace(plan.terms, resident_tokens=kept))
        for kept in (0, plan.window)
    )
    return f"{reading} With the newest {tokens(plan.window)} on the GPU the crossover {change(without, with_it)}."


def host_memory(plan: Plan) -> str:
    """How much pinned host memory the offloaded part takes, against what there is."""
    needed = f"The offloaded part takes {gigabytes(plan.step.offloaded_bytes)} of pinned host memory"
    if plan.host_capacity is None:
        return f"{needed}; how much the host has is not stated."
    verb = "fits" if plan.step.offloaded_bytes <= plan.host_capacity else "does not fit"
    return f"{needed}, which {verb} the {gigabytes(plan.host_capacity)} there is."
