"""What should a planner do with this pair? Three sentences: does it fit, which policy, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from kvprefetch.configs import ModelConfig
from kvprefetch.formats import gigabytes, grouped, percent, tokens
from kvprefetch.plan import Choice, Fit, Plan
from kvprefetch.prose import ahead

MOST_HELPS = 3  # changes that a verdict names
SHOWN = 0.005  # milliseconds: less would be printed as nothing
OF_NOTE = 0.01  # of a step, saved by any but the first of them
WEIGHT_BITS = (8, 4)  # narrower weights that are looked at where those of the model do not fit


def verdict(plan: Plan, model: ModelConfig, model_name: str, card_name: str) -> tuple[str, str, str]:
    """Fits or not; which policy and by how much; what limits it and what would help most. Names as they are shown."""
    return _room(plan, model, model_name, card_name), _policy(plan), _limit(plan, model)


def _room(plan: Plan, model: ModelConfig, model_name: str, card_name: str) -> str:
    memory, at = plan.memory, f"At {tokens(plan.ctx_len)}{_why(plan, model)}"
    if plan.fit is Fit.HOST:
        held = f"{gigabytes(plan.step.offloaded_bytes)} of the cache are offloaded"
        return f"The host's memory is too small. {at}, {held}, and {gigabytes(plan.host_capacity)} of it can be pinned."
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
    if plan.fit is Fit.DEPTH:
        fitting = f"prefetch {ahead(memory.deepest)}" if memory.deepest else "fetching on demand"
        parts = (
            "the buffers" if not plan.step.ondemand.resident_bytes else "what stays there and the buffers of the rest"
        )
        return f"To prefetch {ahead(plan.step.depth)} does not fit. {at}, {parts} {kept}; {fitting} fits."
    if plan.fit is Fit.WINDOW:
        return (
            f"The resident window does not fit. {at}, the newest {tokens(plan.terms.resident_tokens)} of every layer "
            f"and the buffers of the rest {kept}; at most {tokens(plan.window)} fit."
        )
    if plan.choice is Choice.FIRST and memory.resident_ctx:
        stays = f"up to {tokens(memory.resident_ctx)} it stays on the GPU, where {left} of {room}"
        return f"The cache must be offloaded from {tokens(plan.ctx_len)} on; {stays}."
    reach = f"up to {tokens(memory.resident_ctx)} it stays" if memory.resident_ctx else "not one token of it stays"
    return f"The cache must be offloaded. {at}, it takes {gigabytes(memory.kv)} and {left} of {room}; {reach}."


def _why(plan: Plan, model: ModelConfig) -> str:
    """Why the context is the one it is, where it was not asked for; or what it is beyond."""
    if plan.choice is not Choice.ASKED:
        return f", {plan.choice}"
    limit = model.max_position_embeddings
    return "" if limit is None or plan.ctx_len <= limit else f", beyond the {limit} that the model was made for"


def _policy(plan: Plan) -> str:
    step = plan.step
    ondemand, prefetch = f"{step.ondemand.total_ms:.2f} ms", f"{step.prefetch.total_ms:.2f} ms"
    if not any(step.transfer):
        would = "takes" if plan.fit.runs else "would take"
        return f"A step {would} {step.engine_ms:.2f} ms with the cache on the GPU, and nothing crosses the link."
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
    if plan.fit is Fit.DEPTH:
        return (
            f"{kept} step takes {ondemand} on demand; with prefetch {ahead(step.depth)} it would take {prefetch}, were "
            f"there room, and with all KV on the GPU {step.engine_ms:.2f} ms."
        )
    takes = "takes" if plan.fit.runs else "would take, were there room,"
    return (
        f"{kept} step {takes} {ondemand} on demand and {prefetch}, {saves}, with prefetch {ahead(step.depth)}; with "
        f"all KV on the GPU it would take {step.engine_ms:.2f} ms."
    )


def _limit(plan: Plan, model: ModelConfig) -> str:
    helps = ", then to ".join(islice(_helps(plan), MOST_HELPS))
    if plan.fit is Fit.WEIGHTS:
        streamed = [f"To {way.advice} would take {way.total_ms:.2f} ms a step." for way in plan.ways]
        return " ".join(["The card's memory is the limit.", _narrower(plan, model), *streamed])
    if helps:
        return f"{_bottleneck(plan)} It would help most to {helps}."
    if plan.fit is Fit.RESIDENT:
        return _bottleneck(plan)
    return f"{_bottleneck(plan)} Of the changes looked at, none would shorten the step."


def _bottleneck(plan: Plan) -> str:
    if plan.fit is Fit.RESIDENT:
        return "The engine's reads of GPU memory are the limit, and the link is not used."
    if plan.fit is Fit.NOTHING:
        return (
            f"The card's memory is the limit: with the cache offloaded {tokens(plan.memory.offloaded_ctx)} fit at most."
        )
    if not plan.fit.runs:
        return f"{'The host' if plan.fit is Fit.HOST else 'The card'}'s memory is the limit."
    if plan.step.stall_ms < SHOWN:
        return "The engine is the limit, and does not wait for the link."
    if plan.step.bound == "pcie" and plan.step.hideable_share < 1:
        return f"The link is the limit: computing can hide {percent(plan.step.hideable_share)} of what crosses it."
    return f"The engine is the limit, and waits for the link {plan.step.stall_ms:.2f} ms of each step."


def _helps(plan: Plan) -> Iterator[str]:
    """The changes that save most, each with what it saves: the first, and others of note; of equals, the first."""
    step, named = plan.planned_ms, ""
    for change in plan.changes:
        latency, saved = f"{change.total_ms:.2f} ms", step - change.total_ms
        if saved >= SHOWN and (not named or (latency != named and saved >= OF_NOTE * step)):
            named = latency
            yield f"{change.advice} ({latency}, {saved:.2f} less)"


def _narrower(plan: Plan, model: ModelConfig) -> str:
    """The widest narrower weights that fit."""
    for bits in WEIGHT_BITS:
        narrow = model.total_params * bits / 8
        if narrow < min(plan.memory.usable, plan.memory.weights):
            return f"Weights of {bits} bits would take {gigabytes(narrow)} and fit."
    return (
        f"Not even weights of {WEIGHT_BITS[-1]} bits ({gigabytes(model.total_params * WEIGHT_BITS[-1] / 8)}) would fit."
    )
