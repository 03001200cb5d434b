"""What should a planner do with this pair? Three sentences: does it fit, which policy, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from kvprefetch.configs import GB, HardwareProfile, ModelConfig
from kvprefetch.plan import Choice, Fit, Placement, Plan
from kvprefetch.planner import crossover_ctx
from kvprefetch.prose import ahead, grouped, tokens

MOST_HELPS = 3  # changes that a verdict names
SHOWN = 0.005  # milliseconds: less would be printed as nothing
OF_NOTE = 0.01  # of a step, saved by any but the first of them
WEIGHT_BITS = (8, 4)  # narrower weights that are looked at where those of the model do not fit


def verdict(plan: Plan, model: ModelConfig, model_name: str, card_name: str) -> tuple[str, str, str]:
    """Fits or not; which policy and by how much; what limits it and what would help most. Names as they are shown."""
    return _room(plan, model_name, card_name), _policy(plan), _limit(plan, model)


def how_much(plan: Plan) -> str:
    """How much of the cache can stay on the GPU at the plan's context, and what that makes of the step."""
    at, step = tokens(plan.ctx_len), plan.step
    if plan.fit is Fit.UNKNOWN:
        return "The card's file states no hbm_capacity_gb, so how much of the cache could stay on the GPU is not known."
    if plan.fit is Fit.WEIGHTS:
        return "Nothing of the cache can stay on the GPU, which cannot hold the weights either."
    if plan.fit is Fit.RESIDENT:
        return f"At {at} the whole cache stays on the GPU, and a step takes {step.engine_ms:.2f} ms."
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
        return f"At {at} the engine is busy as long as the link, whatever stays on the GPU."
    kept = gigabytes(plan.computing_bytes)
    room = "" if plan.window is None or plan.fit is Fit.RESIDENT else f", where {tokens(plan.window)} fit"
    return f"For {at} to be compute-bound, the newest {tokens(window)} of every layer would have to stay: {kept}{room}."


def windows_reading(plan: Plan, model: ModelConfig, hw: HardwareProfile) -> str:
    """How to read the table of windows, and what the largest window that fits does to the crossover."""
    reading = (
        r"“Can hide” is $\min(1, \sum c / \sum t)$, the share of the transfer that no schedule can hide more than: the "
        "bytes that the link carries while the engine computes, over all that it must carry."
    )
    if plan.fit is Fit.RESIDENT or not plan.window:
        return reading
    without, with_it = (
        crossover_ctx(model, hw, plan.step.batch, replace(plan.terms, resident_tokens=kept))
        for kept in (0, plan.window)
    )
    if without is None:
        return reading
    return (
        f"{reading} The newest {tokens(plan.window)} on the GPU move the crossover from {tokens(without)} to "
        f"{tokens(with_it)}."
    )


def host_memory(plan: Plan) -> str:
    """How much pinned host memory the offloaded part takes, against what there is."""
    needed = f"The offloaded part takes {gigabytes(plan.step.offloaded_bytes)} of pinned host memory"
    if plan.host_capacity is None:
        return f"{needed}; how much the host has is not stated."
    verb = "fits" if plan.step.offloaded_bytes <= plan.host_capacity else "does not fit"
    return f"{needed}, which {verb} the {gigabytes(plan.host_capacity)} there is."


def gigabytes(count: float) -> str:
    """Bytes as GB, to ten MB."""
    return f"{count / GB:.2f} GB"


def _room(plan: Plan, model_name: str, card_name: str) -> str:
    memory, at = plan.memory, f"At {tokens(plan.ctx_len)}{_why(plan)}"
    if plan.fit is Fit.UNKNOWN:
        return f"Whether {model_name} fits {card_name} is not known: its file states no hbm_capacity_gb."
    room = f"the {gigabytes(memory.usable)} that {card_name} offers after a reserve of {100 * plan.reserve:g} %"
    if plan.fit is Fit.WEIGHTS:
        return (
            f"{model_name} does not fit {card_name}: its weights alone take {gigabytes(memory.weights)}, more than "
            f"{room}. Moving the cache to host memory is not enough; the latencies here leave that aside."
        )
    if plan.fit is Fit.RESIDENT:
        reach = "at every context" if memory.resident_ctx is None else f"up to {tokens(memory.resident_ctx)}"
        return (
            f"No offload is needed. {at}, weights and cache take {gigabytes(memory.needed)} of {room}; the cache "
            f"stays on the GPU {reach}, and at this one up to batch {grouped(memory.resident_batch)}."
        )
    left = f"the weights{' and the recurrent state' if memory.state else ''} leave {gigabytes(max(0, memory.free))}"
    kept = f"take {gigabytes(plan.step.prefetch.gpu_kv_bytes)}, and {left} of {room}"
    if plan.fit is Fit.NOTHING:
        windows = " with the sliding layers' windows on the GPU" if plan.terms.resident_windows else ""
        return f"Not even offload fits{windows}. {at}, what stays there and the buffers of the rest {kept}."
    if plan.fit is Fit.WINDOW:
        return (
            f"The resident window does not fit. {at}, the newest {tokens(plan.terms.resident_tokens)} of every layer "
            f"and the buffers of the rest {kept}; at most {tokens(plan.window)} fit."
        )
    if plan.fit is Fit.WHOLE:
        return (
            f"Offloaded whole it does not fit. {at}, the buffers {kept}; with the newest {tokens(plan.window)} of "
            "every layer there, fewer and smaller buffers fit."
        )
    reach = f"up to {tokens(memory.resident_ctx)} it stays" if memory.resident_ctx else "not one token of it stays"
    return f"The cache must be offloaded. {at}, it takes {gigabytes(memory.kv)} and {left} of {room}; {reach}."


def _why(plan: Plan) -> str:
    """Why the context is the one it is, where that is not because it was asked for."""
    return "" if plan.choice is Choice.ASKED else f", {plan.choice}"


def _policy(plan: Plan) -> str:
    step = plan.step
    ondemand, prefetch = f"{step.ondemand.total_ms:.2f} ms", f"{step.prefetch.total_ms:.2f} ms"
    if not any(step.transfer) and plan.fit is Fit.WINDOW:
        return f"Were there room, a step would take {step.engine_ms:.2f} ms, and nothing would cross the link."
    if not any(step.transfer):
        return f"A step takes {step.engine_ms:.2f} ms with the cache on the GPU, and nothing crosses the link."
    if plan.fit is Fit.RESIDENT:
        return (
            f"A step takes {step.engine_ms:.2f} ms with the cache on the GPU; offloaded it would take {ondemand} on "
            f"demand and {prefetch} with prefetch."
        )
    kept = (
        f"With the newest {tokens(plan.terms.resident_tokens)} of every layer on the GPU, a"
        if plan.terms.resident_tokens
        else "A"
    )
    saves = f"{step.reduction_pct:.1f} % less" if step.reduction_pct >= 0.05 else "no less"
    return (
        f"{kept} step takes {ondemand} on demand and {prefetch}, {saves}, with prefetch {ahead(step.depth)}; with all "
        f"KV on the GPU it would take {step.engine_ms:.2f} ms."
    )


def _limit(plan: Plan, model: ModelConfig) -> str:
    if plan.fit is Fit.WEIGHTS:
        streamed = [f"To {way.advice} would take {way.total_ms:.2f} ms a step." for way in plan.ways]
        return " ".join(["The card's memory is the limit.", _narrower(plan, model), *streamed])
    if plan.fit is Fit.RESIDENT:
        return "The engine's reads of GPU memory are the limit, and the link is not used."
    if plan.fit is Fit.NOTHING:
        return (
            f"The card's memory is the limit: with the cache offloaded {tokens(plan.memory.offloaded_ctx)} fit at most."
        )
    if plan.step.bound == "pcie":
        limit = f"The link is the limit: computing can hide {_percent(plan.step.hideable_share)} of what crosses it."
    elif plan.step.stall_ms < 0.005:
        limit = "The engine is the limit, and does not wait for the link."
    else:
        limit = f"The engine is the limit, and waits for the link {plan.step.stall_ms:.2f} ms of each step."
    helps = ", then to ".join(islice(_helps(plan), MOST_HELPS))
    return (
        f"{limit} It would help most to {helps}."
        if helps
        else f"{limit} Of the changes looked at, none would shorten the step."
    )


def _helps(plan: Plan) -> Iterator[str]:
    """The changes that save most, each with what it saves: the first, and others of note; of equals, the first."""
    step, named = plan.step.prefetch.total_ms, ""
    for change in plan.changes:
        latency, saved = f"{change.total_ms:.2f} ms", step - change.total_ms
        if saved >= SHOWN and (not named or (latency != named and saved >= OF_NOTE * step)):
            named = latency
            yield f"{change.advice} ({latency}, {saved:.2f} less)"


def _percent(share: float) -> str:
    """A share to two digits, or to whole percents."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _narrower(plan: Plan, model: ModelConfig) -> str:
    """The widest narrower weights that fit."""
    for bits in WEIGHT_BITS:
        narrow = model.total_params * bits / 8
        if narrow < min(plan.memory.usable, plan.memory.weights):
            return f"Weights of {bits} bits would take {gigabytes(narrow)} and fit."
    return (
        f"Not even weights of {WEIGHT_BITS[-1]} bits ({gigabytes(model.total_params * WEIGHT_BITS[-1] / 8)}) would fit."
    )
