"""What do the figures say in words? The sentences of a report, computed from its data.

Sentences whose wording depends on the data live in the package, where each wording is tested: here
the takeaways, in `derivation` the laws with a pair's numbers, in `captions` what figures show. The
notebook holds all other prose.
"""

from __future__ import annotations

from kvprefetch.configs import GB, Terms
from kvprefetch.effects import Effects
from kvprefetch.formats import change, megabytes, tokens
from kvprefetch.layers import Layer
from kvprefetch.planner import Comparison, Sweep

FIGURES = {  # of a card, as a table names them
    "hbm_gb_s": "HBM (GB/s)",
    "pcie_gb_s": "PCIe or other link (GB/s)",
    "hbm_capacity_gb": "HBM capacity (GB)",
    "host_capacity_gb": "host memory that can be pinned (GB)",
    "host_gb_s": "host memory (GB/s)",
    "host_efficiency": "share of the host's rate reached by attention there",
    "weight_efficiency": "share of the HBM rate reached reading weights",
    "attention_efficiency": "share of the HBM rate reached by attention",
    "pcie_efficiency": "share of the link's rate reached",
    "copy_latency_us": "latency of a layer's copy (µs)",
    "layer_overhead_us": "overhead of a layer (µs)",
}


def ahead(depth: int) -> str:
    """How far prefetch looks ahead."""
    return "one layer ahead" if depth == 1 else f"{depth} layers ahead"


def bound(comparison: Comparison) -> str:
    """Which resource sets the pace, in words."""
    return {"pcie": "PCIe-bound", "compute": "compute-bound"}[comparison.bound]


def question(model_name: str, batch: int, depth: int, terms: Terms) -> str:
    """What is asked, and what the two policies are. `model_name` as Markdown."""
    part = "what is not kept on the GPU" if terms.resident_tokens or terms.resident_windows else "all of it"
    return (
        f"The KV cache of {model_name} is kept in host memory, and {part} crosses the link in each decode step (batch "
        f"{batch}). **On-demand** fetches a layer's KV, waits for it, then computes the layer. **Prefetch** fetches "
        f"{ahead(depth)} while the engine computes. This page says how much that saves, at which context the gain is "
        "largest, and what is left of it beyond; whether the cache must leave the GPU at all, and how much of it; "
        "and how far to trust the figures. Section 12 checks each claim a second way."
    )


def inputs(model_name: str, card_name: str) -> str:
    """What the page rests on. Names as Markdown."""
    return (
        f"Everything follows from two files, that of {model_name} and that of {card_name}, whose figures carry their "
        "sources, and from batch, depth and contexts; nothing on this page was measured here."
    )


def answer(peak: Comparison, longest: Comparison, windows: Comparison) -> str:
    """Does prefetch pay, where most, what is left of it at the longest context, and what would do better there?

    `windows` is `longest` with the windows kept on the GPU.
    """
    floor = f"With all KV on the GPU the engine alone would take {longest.engine_ms:.2f} ms."
    if peak.reduction == 0 and not any(peak.transfer):
        return f"Nothing crosses the link at any of these contexts. {floor}"
    if peak.reduction == 0:
        return f"Prefetch cannot help: no computation comes before a fetch that could hide it. {floor}"
    if windows.transfer_ms and windows.prefetch.total_ms < longest.prefetch.total_ms:
        floor = (
            f"Keeping the sliding layers' windows on the GPU ({megabytes(windows.ondemand.resident_bytes)}) would "
            f"make it {windows.prefetch.total_ms:.2f} ms; with all KV there the engine alone would take "
            f"{longest.engine_ms:.2f} ms."
        )
    most = (
        f"Prefetching {ahead(peak.depth)} pays most at {tokens(peak.ctx_len)}, "
        f"where it cuts the step by {peak.reduction_pct:.1f} %"
    )
    if not any(longest.transfer):
        return f"{most}; at {tokens(longest.ctx_len)} nothing crosses the link. {floor}"
    at_longest = (
        f"at {tokens(longest.ctx_len)} it saves {longest.reduction_pct:.1f} % "
        f"({longest.ondemand.total_ms:.2f} → {longest.prefetch.total_ms:.2f} ms)"
    )
    if longest.prefetch.total_ms <= 1.05 * longest.transfer_ms:
        return f"{most}; {at_longest}, because both policies then wait for the same link. {floor}"
    hidden = f"hiding {100 * longest.hidden_share:.0f} % of the transfer behind compute"
    return f"{most}; {at_longest}, {hidden}. {floor}"


def scope(longest: Comparison, terms: Terms) -> str:
    """What one step is taken to do."""
    sequences = "one sequence" if longest.batch == 1 else f"each of {longest.batch} sequences"
    carried = longest.offloaded_bytes / GB
    part = "whole KV" if longest.ondemand.resident_bytes == 0 else "offloaded KV"
    reads = "streams the weights that the step uses once" + (" and reads the cache" if terms.kv_read else "")
    return (
        f"One step decodes one token for {sequences}: the engine {reads}, the link carries every layer's {part} once "
        f"({carried:.2f} GB at {tokens(longest.ctx_len)}){_else(terms)}."
    )


def _else(terms: Terms) -> str:
    if terms.lm_head or terms.copy_latency_us or terms.layer_overhead_us:
        return ", and the terms of section 4 add what they say"
    return ", and nothing else takes time"


def crossover(n_star: int | None, sweep: Sweep, layers: tuple[Layer, ...]) -> str:
    """Which of the swept contexts lie on which side of the crossover?"""
    pcie = sweep.bound == "pcie"
    share = "all" if pcie.all() else "none" if not pcie.any() else f"{pcie.sum()} of {pcie.size}"
    if n_star is None:
        windows = all(layer.window for layer in layers if layer.kv_values)
        why = "windows cap what it carries" if windows else "the engine's time grows faster than the link's"
        return f"The link never takes as long as the engine: {why}."
    if n_star == 1:
        where = "at every context"
    else:
        where = f"from {tokens(n_star)} on; below, the engine is busy longer"
    return f"The link takes at least as long as the engine {where}. PCIe-bound among the swept contexts: {share}."


def pace(n_star: int | None, peak: Comparison) -> str:
    """Which resource sets the pace where, and where the gap is widest."""
    widest = f"the gap to on-demand is widest, in proportion, at {tokens(peak.ctx_len)}"
    if n_star is None:
        return f"By the sums the engine is the bound at every context; {widest}."
    if n_star == 1:
        return f"By the sums the link is the bound at every context; {widest}."
    return f"By the sums the engine is the bound below {tokens(n_star)} and the link from there on; {widest}."


def sweep_range(sweep: Sweep) -> str:
    """How far does the reduction go over the swept contexts?"""
    best = int(sweep.reduction_pct.argmax())
    at_best = f"{sweep.reduction_pct[best]:.1f} % at {tokens(sweep.ctx_len[best])}"
    if len(sweep.ctx_len) == 1:
        return f"The reduction is {at_best}, the only context asked for."
    if sweep.reduction_pct.max() - sweep.reduction_pct.min() < 0.05:
        return f"The reduction is {sweep.reduction_pct[best]:.1f} % at every swept context."
    worst = int(sweep.reduction_pct.argmin())
    return (
        f"Among the swept contexts the reduction is largest, {at_best}, and smallest, "
        f"{sweep.reduction_pct[worst]:.1f} % at {tokens(sweep.ctx_len[worst])}."
    )


def first_order(effects: Effects) -> str:
    """How far do the refined terms move what first order says?"""
    first, together = effects.first, effects.refined
    steps = [
        f"the prefetch step at {tokens(old.ctx_len)} from {old.prefetch.total_ms:.2f} to {new.prefetch.total_ms:.2f} "
        f"ms ({100 * (new.prefetch.total_ms / old.prefetch.total_ms - 1):+.1f} %)"
        for old, new in zip(first.steps, together.steps, strict=True)
    ]
    crossover = change(first.crossover_ctx, together.crossover_ctx)
    old, new = first.steps[-1], together.steps[-1]
    steps.append(
        f"the step with all KV on the GPU at {tokens(old.ctx_len)} from {old.engine_ms:.2f} to {new.engine_ms:.2f} ms "
        f"({100 * (new.engine_ms / old.engine_ms - 1):+.1f} %)"
    )
    return (
        f"With the refined terms together the crossover {crossover}; they move {', '.join(steps[:-1])} and {steps[-1]}."
    )


def unstated_terms(names: tuple[str, ...], card_name: str) -> str:
    """Which terms have no figure for this card. `card_name` as Markdown; empty where all have one."""
    if not names:
        return ""
    return f"The file of {card_name} states no figure for: {', '.join(names)}. They stay neutral in the refined terms."
