"""What did a pair's plan come to, as one object a machine can read? The content of metrics.json."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass
from typing import Any

from kvprefetch.configs import GB, ModelConfig
from kvprefetch.outlook import Outlook
from kvprefetch.plan import Plan
from kvprefetch.planner import SweepRow, crossover_ctx, peak_ctx, sweep_columns
from kvprefetch.reach import Reach
from kvprefetch.request import Request
from kvprefetch.sensitivity import Point, Swing
from kvprefetch.throughput import Generation, Served
from kvprefetch.verdict import verdict

EVERY = "every"  # context: none is too long


@dataclass(frozen=True)
class WayFigures:
    """One way to serve the step at the planner's context."""

    name: str
    total_ms: float
    tokens_per_s: float
    gpu_gb: float
    host_gb: float
    limit: str
    rests_on: str


@dataclass(frozen=True)
class PlanFigures:
    """The plan at one context: memory in GB (1e9 bytes), None where the card's is not known; latencies in ms."""

    verdict: tuple[str, ...]
    ctx_len: int
    choice: str  # why this context
    fit: str
    reserve: float
    usable_gb: float | None
    weights_gb: float
    state_gb: float
    kv_gb: float
    resident_ctx: int | str | None  # the largest that stays on the GPU; 0: none; EVERY one; None: not known
    resident_batch: int | None
    resident_ms: float
    ondemand_ms: float
    prefetch_ms: float
    reduction_pct: float
    stall_ms: float
    bound: str
    hideable_pct: float
    window_tokens: int | None  # the largest that fits
    window_ms: float | None
    computing_window_tokens: int
    host_gb: float
    ways: tuple[WayFigures, ...]  # that fit, fastest first


@dataclass(frozen=True)
class Metrics:
    """One pair's figures; latencies in milliseconds where their name does not say otherwise, contexts in tokens."""

    model: str  # slug
    model_name: str
    hardware: str  # slug
    hardware_name: str
    batch: int
    depth: int
    params: int  # weights of the decoder layers
    crossover_ctx: int | None
    peak_ctx: int | None
    sweep: tuple[SweepRow, ...]
    terms: str
    resident_tokens: int
    plan: PlanFigures
    outlook: Outlook


@dataclass(frozen=True)
class Planned:
    """What `kvprefetch plan --json` prints."""

    plan: PlanFigures
    outlook: Outlook


def as_json(figures: Metrics | Planned) -> str:
    """Its text in metrics.json: full precision, keys in the order of the fields, a final newline."""
    return json.dumps(asdict(figures), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str) -> Metrics:
    """The object whose `as_json` is `text`. Raises ValueError, KeyError or TypeError on any other text."""
    read = json.loads(text)
    rows = tuple(SweepRow(**row) for row in read["sweep"])
    if not rows or not all(isinstance(value, (int, float)) for row in rows for value in astuple(row)[:-1]):
        raise ValueError("a sweep has a row or more, of numbers")
    ways = tuple(WayFigures(**way) for way in read["plan"]["ways"])
    plan = PlanFigures(**read["plan"] | {"ways": ways, "verdict": tuple(read["plan"]["verdict"])})
    if not plan.verdict or not all(isinstance(sentence, str) for sentence in plan.verdict):
        raise ValueError("a verdict has a sentence or more")
    return Metrics(**read | {"sweep": rows, "plan": plan, "outlook": _outlook(read["outlook"])})


def _outlook(read: dict[str, Any]) -> Outlook:
    nested = {
        "reaches": tuple(Reach(**each) for each in read["reaches"]),
        "served": tuple(Served(**each) for each in read["served"]),
        "swings": tuple(Swing(each["figure"], Point(**each["low"]), Point(**each["high"])) for each in read["swings"]),
    }
    policies = ("resident", "ondemand", "prefetch")
    generations = {f"{policy}_generation": Generation(**read[f"{policy}_generation"]) for policy in policies}
    return Outlook(**read | nested | generations)


def title_of(text: str) -> str:
    """The title in the metrics.json of a page that is no pair's. Raises ValueError, KeyError or TypeError."""
    title = json.loads(text)["title"]
    if not isinstance(title, str):
        raise TypeError("a title is text")
    return title


def planned(request: Request) -> Planned:
    """The figures of the plan alone."""
    plan = _figures(request.plan, request.model.config, request.hw.config.name)
    return Planned(plan, request.outlook)


def measure(request: Request) -> Metrics:
    """The figures of the report that `request` asks for."""
    model, hw, terms = request.model.config, request.hw.config, request.in_force
    return Metrics(
        model=request.model.slug,
        model_name=model.name,
        hardware=request.hw.slug,
        hardware_name=hw.name,
        batch=request.batch,
        depth=request.depth,
        params=model.params,
        crossover_ctx=crossover_ctx(model, hw, request.batch, terms),
        peak_ctx=peak_ctx(model, hw, request.batch, request.depth, terms),
        sweep=tuple(sweep_columns(model, hw, request.contexts, request.batch, request.depth, terms).rows()),
        terms=request.terms,
        resident_tokens=terms.resident_tokens,
        **vars(planned(request)),
    )


def _figures(plan: Plan, model: ModelConfig, card_name: str) -> PlanFigures:
    step, memory = plan.step, plan.memory
    return PlanFigures(
        verdict=verdict(plan, model, model.name, card_name),
        ctx_len=plan.ctx_len,
        choice=plan.choice.value,
        fit=plan.fit.value,
        reserve=plan.reserve,
        usable_gb=memory and memory.usable / GB,
        weights_gb=model.total_bytes / GB,
        state_gb=step.batch * model.state_bytes / GB,
        kv_gb=plan.kv_bytes / GB,
        resident_ctx=memory and (EVERY if memory.resident_ctx is None else memory.resident_ctx),
        resident_batch=memory and memory.resident_batch,
        resident_ms=step.engine_ms,
        ondemand_ms=step.ondemand.total_ms,
        prefetch_ms=step.prefetch.total_ms,
        reduction_pct=step.reduction_pct,
        stall_ms=step.stall_ms,
        bound=step.bound,
        hideable_pct=100 * step.hideable_share,
        window_tokens=plan.window,
        window_ms=plan.filled and plan.filled.prefetch.total_ms,
        computing_window_tokens=plan.computing_window,
        host_gb=step.offloaded_bytes / GB,
        ways=tuple(
            WayFigures(
                *(way.name, way.total_ms, way.tokens_per_s, way.gpu_bytes / GB, way.host_bytes / GB),
                *(way.limit, way.rests_on),
            )
            for way in plan.ways
        ),
    )
