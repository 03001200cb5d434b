"""What would it take, how sure is it, and what else could be done? Computed sentences for these sections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from kvprefetch.configs import HardwareProfile, ModelConfig, refined
from kvprefetch.formats import milliseconds, size, tokens
from kvprefetch.layers import has_windows
from kvprefetch.links import LINKS
from kvprefetch.outlook import Outlook
from kvprefetch.plan import Fit, Plan
from kvprefetch.planner import compare
from kvprefetch.reach import Reach
from kvprefetch.sensitivity import Point
from kvprefetch.throughput import Generation


def reach_text(ctx_len: int | None) -> str:
    """The longest context for a table."""
    return "any" if ctx_len is None else "none" if ctx_len == 0 else f"{ctx_len}"


def crossover_text(crossover: int | None) -> str:
    """A crossover for a table."""
    return "never" if crossover is None else f"{crossover}"


def target(outlook: Outlook) -> str:
    """How far a latency target reaches under each policy."""
    *others, last = [_kept(each) for each in outlook.reaches]
    return f"A step of at most {outlook.target_ms:g} ms is kept {', '.join(others)}, and {last}."


def _kept(reach: Reach) -> str:
    policy = {"all KV on the GPU": "with all KV on the GPU", "on demand": "on demand", "prefetch": "with prefetch"}
    if reach.ctx_len is None:
        return f"at every context {policy[reach.policy]}"
    if not reach.ctx_len:
        return f"at no context {policy[reach.policy]} (stopped by {reach.cap})"
    return f"up to {tokens(reach.ctx_len)} {policy[reach.policy]} (stopped by {reach.cap})"


def links(plan: Plan, outlook: Outlook, hw: HardwareProfile) -> str:
    """Which link the planner's context would need."""
    at = tokens(plan.ctx_len)
    if not plan.step.offloaded_bytes:
        return f"At {at} nothing crosses the link, so any link will do."
    if outlook.balancing_pcie_gb_s is None:
        return f"At {at} no link is fast enough: the copies' fixed latencies alone take as long as the engine."
    if outlook.stall_free_pcie_gb_s is None:
        alone = "no link spares the engine a further wait: some copies' fixed latencies alone take longer than it has"
    else:
        alone = f"{_rate(outlook.stall_free_pcie_gb_s)} for a prefetched step to wait for its first fetch alone"
    return (
        f"At {at} the link would have to carry {_rate(outlook.balancing_pcie_gb_s)} for its work to take no longer "
        f"than the engine's, and {alone}; this card's carries {hw.pcie_gb_s:g} GB/s."
    )


def _rate(gb_s: float) -> str:
    """Rounded up, so that what is printed suffices."""
    return f"{ceil(100 * gb_s - 1e-9) / 100:.2f} GB/s"


def bound_batch(plan: Plan, outlook: Outlook) -> str:
    """From which batch on the planner's context is PCIe-bound."""
    at, batch = tokens(plan.ctx_len), outlook.pcie_bound_batch
    if batch is None:
        return f"At {at} no batch makes the link the bound."
    if batch == 1:
        return f"At {at} the link takes at least as long as the engine with any batch."
    return f"At {at} the link takes at least as long as the engine from batch {batch} on."


def hideable(plan: Plan, outlook: Outlook) -> str:
    """How much of the cache a step can hide."""
    most = f"While the engine computes, the link can carry {size(outlook.hideable_bytes)}"
    needed = plan.step.offloaded_bytes
    return f"{most}; it must carry {size(needed)} in each step." if needed else f"{most}; it need not carry any."


def throughput(plan: Plan, outlook: Outlook) -> str:
    """Which batch decodes most tokens a second, and what the link allows at most."""
    if plan.memory is None:
        return "Which batches fit is not known."
    if not outlook.served:
        return "At this depth no batch fits." if plan.fit is Fit.DEPTH else "No batch fits."
    best, ceiling = max(outlook.served, key=lambda row: row.tokens_per_s), outlook.link_ceiling_tokens_per_s
    most = f"With the cache as it is, most tokens a second are {best.tokens_per_s:.4g}: batch {best.batch}, {best.way}."
    return most if ceiling is None else f"{most} Offloaded, the link lets no batch decode more than {ceiling:.4g}."


def generated(plan: Plan, outlook: Outlook) -> str:
    """What a whole generation takes."""
    resident, prefetch = outlook.resident_generation, outlook.prefetch_generation
    takes = "takes" if plan.fit.runs else "would take, were there room,"
    start = f"To generate {tokens(prefetch.tokens)} from {tokens(plan.ctx_len)} on {takes}"
    if not plan.step.offloaded_bytes:
        return f"{start} {_generation(prefetch)}."
    offloaded = f"{_generation(prefetch)} with prefetch, and {outlook.ondemand_generation.total_s:.2f} s on demand"
    if plan.fit is Fit.RESIDENT:
        reach, last = plan.memory.resident_ctx, plan.ctx_len + prefetch.tokens - 1
        until = "" if reach is None or reach >= last else f", where it fits up to {tokens(reach)}"
        return f"{start} {_generation(resident)} with all KV on the GPU{until}; offloaded, {offloaded}."
    return f"{start} {offloaded}."


def _generation(each: Generation) -> str:
    steps = f"steps of {milliseconds(1e3 * each.first_s)} to {milliseconds(1e3 * each.last_s)} ms"
    return f"{each.total_s:.2f} s ({steps}, {each.tokens_per_s:.4g} tokens a second)"


def sensitivity(plan: Plan, outlook: Outlook, crossover: int | None) -> str:
    """Which rate moves crossover and step more."""
    hbm, pcie, *_ = outlook.swings
    moves = [
        f"with {name} 20 % lower or higher, {_crossover(swing.low)} or {_crossover(swing.high)} and "
        f"{milliseconds(swing.low.prefetch_ms)} or {milliseconds(swing.high.prefetch_ms)} ms"
        for name, swing in (("an HBM rate", hbm), ("a link rate", pcie))
    ]
    now = "no crossover" if crossover is None else f"a crossover of {tokens(crossover)}"
    return f"Now {now} and a step of {milliseconds(plan.step.prefetch.total_ms)} ms; {'; '.join(moves)}."


def _crossover(point: Point) -> str:
    return "none" if point.crossover_ctx is None else tokens(point.crossover_ctx)


def link_sources() -> str:
    """What the map's lines are."""
    lines = "; ".join(f"{link.name} {link.gb_s:g} GB/s ({link.source})" for link in LINKS)
    return f"What prefetch saves, over context and link rate. Lines: this card's link, and {lines}."


def reads_left_out(plan: Plan, model: ModelConfig, hw: HardwareProfile) -> str:
    """What first order leaves out of the step with all KV on the GPU; empty where attention's reads are counted."""
    if plan.terms.kv_read:
        return ""
    counted = replace(refined(hw), kv_dtype=plan.terms.kv_dtype)
    step = compare(model, hw, plan.ctx_len, plan.step.batch, plan.step.depth, counted)
    verb = "takes" if plan.fit in (Fit.RESIDENT, Fit.UNKNOWN) else "would take, were there room,"
    return (
        "These figures leave attention's own read of the cache out. With it, the LM head and what the card's file "
        f"states, a step at {tokens(plan.ctx_len)} {verb} {step.engine_ms:.2f} ms with all KV on the GPU: "
        "TERMS=refined counts them."
    )


def ranking(plan: Plan) -> str:
    """Which way is fastest at the planner's context, and how far the others are behind."""
    at = tokens(plan.ctx_len)
    if not plan.ways:
        return f"At {at} no way to serve a step fits."
    best = plan.ways[0]
    behind = f", {milliseconds(best.total_ms)} ms a step"
    if plan.memory is None:
        return f"At {at} the fastest way looked at is: {best.name}{behind}; what fits is not known."
    if best.name == "all KV on the GPU":
        kept = f"all KV on the GPU, {milliseconds(plan.planned_ms)} ms a step"
        return f"At {at} nothing beats keeping the cache as it is: {kept}."
    return f"At {at} the fastest way that fits is: {best.name}{behind}."


def left_out(plan: Plan, model: ModelConfig, hw: HardwareProfile) -> str:
    """Why some ways are not in the ranking."""
    return " ".join(_left_out(plan, model, hw))


def _left_out(plan: Plan, model: ModelConfig, hw: HardwareProfile) -> Iterator[str]:
    if plan.memory is None:
        yield "What fits is not known, so keeping all KV on the GPU and streaming weights are left out."
    elif plan.fit is Fit.RESIDENT:
        yield "All of it fits, so streaming weights is left out."
    else:
        host = "" if plan.host_capacity is None else " or in the host's memory"
        yield f"Ways that do not fit on the GPU{host}, such as keeping all KV there, are left out."
    if not has_windows(model.layers):
        yield "No layer has a window that could stay on the GPU alone."
    if hw.host_gb_s is None or hw.host_efficiency is None:
        yield (
            "Attention on the host is left out: the card's file does not say how fast the host reads its memory, and "
            "what share of that attention reaches."
        )
