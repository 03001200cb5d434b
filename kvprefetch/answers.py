"""What would it take, how sure is it, and what else could be done? Computed sentences for these sections."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from kvprefetch.configs import GB, HardwareProfile, ModelConfig
from kvprefetch.links import LINKS
from kvprefetch.outlook import Outlook
from kvprefetch.plan import Fit, Plan
from kvprefetch.prose import megabytes, milliseconds, tokens
from kvprefetch.reach import Reach
from kvprefetch.verdict import gigabytes


def reach_text(ctx_len: int | None) -> str:
    """The longest context for a table."""
    return "any" if ctx_len is None else "none" if ctx_len == 0 else f"{ctx_len}"


def target(outlook: Outlook) -> str:
    """How far a latency target reaches under each policy."""
    parts = [f"{reach_text(each.ctx_len)} {_by(each)} with {each.policy}" for each in outlook.reaches]
    kept = f"A step of at most {outlook.target_ms:g} ms is kept up to a context of"
    return f"{kept} {', '.join(parts[:-1])}, and {parts[-1]}."


def _by(reach: Reach) -> str:
    return "(nothing stops it)" if reach.ctx_len is None else f"(stopped by {reach.cap})"


def links(plan: Plan, outlook: Outlook, hw: HardwareProfile) -> str:
    """Which link the planner's context would need."""
    at = tokens(plan.ctx_len)
    if not plan.step.offloaded_bytes:
        return f"At {at} nothing crosses the link, so any link will do."
    if outlook.balancing_pcie is None or outlook.stall_free_pcie is None:
        return f"At {at} no link is fast enough: the copies' fixed latencies alone take as long as the engine."
    return (
        f"At {at} the link would have to carry {_rate(outlook.balancing_pcie)} for its work to take no longer than "
        f"the engine's, and {_rate(outlook.stall_free_pcie)} for a prefetched step to wait for its first fetch alone; "
        f"this card's carries {hw.pcie_gb_s:g} GB/s."
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
    most, all_of_it = (
        gigabytes(each) if each >= GB else megabytes(each)
        for each in (outlook.hideable_bytes, plan.step.offloaded_bytes)
    )
    return f"While the engine computes, the link carries at most {most}; it must carry {all_of_it} in each step."


def throughput(outlook: Outlook) -> str:
    """Which batch decodes most tokens a second, and what the link allows at most."""
    if not outlook.served:
        return "No batch is known to fit, so there is no rate to state."
    best, ceiling = max(outlook.served, key=lambda row: row.tokens_per_s), outlook.link_ceiling
    sentence = f"Most tokens a second: {best.tokens_per_s:.1f}, with batch {best.batch} ({best.name.split(',')[0]})."
    if ceiling is None:
        return sentence
    return f"{sentence} Offloaded, no batch decodes more than {ceiling:.2f} tokens a second: the link carries no more."


def generated(plan: Plan, outlook: Outlook) -> str:
    """What a whole generation takes."""
    ondemand, prefetch = outlook.ondemand_generation, outlook.prefetch_generation
    return (
        f"To generate {tokens(prefetch.tokens)} from {tokens(plan.ctx_len)} on, offloaded, takes {prefetch.total:.2f} "
        f"s with prefetch and {ondemand.total:.2f} s on demand. The first step takes "
        f"{milliseconds(1e3 * prefetch.first)} ms, the last {milliseconds(1e3 * prefetch.last)} ms with prefetch, "
        f"{prefetch.tokens_per_s:.2f} tokens a second on average."
    )


def sensitivity(plan: Plan, outlook: Outlook, crossover: int | None) -> str:
    """Which rate moves crossover and step more."""
    hbm, pcie, *_ = outlook.swings
    moves = [
        f"{name} 20 % lower or higher makes the crossover {tokens(swing.low.crossover_ctx)} or "
        f"{tokens(swing.high.crossover_ctx)}, and the step {milliseconds(swing.low.prefetch_ms)} or "
        f"{milliseconds(swing.high.prefetch_ms)} ms"
        for name, swing in (("an HBM rate", hbm), ("a link rate", pcie))
    ]
    return f"From {tokens(crossover)} and {milliseconds(plan.step.prefetch.total_ms)} ms: {moves[0]}; {moves[1]}."


def link_sources() -> str:
    """What the map's lines are."""
    lines = "; ".join(f"{link.name} {link.gb_s:g} GB/s ({link.source})" for link in LINKS)
    return f"What prefetch saves, over context and link rate. Lines: this card's link, and {lines}."


def ranking(plan: Plan) -> str:
    """Which way is fastest at the planner's context, and how far the others are behind."""
    at = tokens(plan.ctx_len)
    if not plan.ways:
        return f"At {at} no way to serve a step fits."
    best = plan.ways[0]
    behind = f", {milliseconds(best.total_ms)} ms a step"
    if plan.fit is Fit.RESIDENT:
        return f"At {at} nothing beats keeping the cache where it is: {best.name}{behind}."
    return f"At {at} the fastest way that fits is: {best.name}{behind}."


def left_out(plan: Plan, model: ModelConfig, hw: HardwareProfile) -> str:
    """Why some ways are not in the ranking."""
    return " ".join(_left_out(plan, model, hw))


def _left_out(plan: Plan, model: ModelConfig, hw: HardwareProfile) -> Iterator[str]:
    if plan.fit is Fit.UNKNOWN:
        yield "What fits is not known, so keeping all KV on the GPU and streaming weights are left out."
    elif plan.fit is Fit.RESIDENT:
        yield "All of it fits, so streaming weights is left out."
    else:
        yield "Ways that do not fit on the GPU, such as keeping all KV there, are left out."
    if not any(layer.window and layer.kv_values for layer in model.layers):
        yield "No layer has a window that could stay on the GPU alone."
    if hw.host_gb_s is None or hw.host_efficiency is None:
        yield (
            "Attention on the host is left out: the card's file does not say how fast the host reads its memory, and "
            "what share of that attention reaches."
        )
