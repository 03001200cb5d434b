"""What did a pair's plan come to, as one object a machine can read? The content of metrics.json."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass

from kvprefetch.configs import GB, ModelConfig
from kvprefetch.plan import Plan
from kvprefetch.planner import SweepRow, crossover_ctx, peak_ctx, sweep_columns
from kvprefetch.request import Request
from kvprefetch.verdict import verdict


@dataclass(frozen=True)
class ChangeFigures:
    """One change that would shorten the prefetch step, alone."""

    name: str
    prefetch_ms: float
    saved_ms: float


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
    resident_ctx: int | None  # the largest that stays on the GPU; 0: none; None: every one, or not known
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
    changes: tuple[ChangeFigures, ...]


@dataclass(frozen=True)
class Metrics:
    """One pair's figures; latencies in milliseconds, contexts in tokens."""

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


def as_json(figures: Metrics | PlanFigures) -> str:
    """Its text in metrics.json: full precision, keys in the order of the fields, a final newline."""
    return json.dumps(asdict(figures), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str) -> Metrics:
    """The object whose `as_json` is `text`. Raises ValueError, KeyError or TypeError on any other text."""
    read = json.loads(text)
    rows = tuple(SweepRow(**row) for row in read["sweep"])
    if not rows or not all(isinstance(value, (int, float)) for row in rows for value in astuple(row)[:-1]):
        raise ValueError("a sweep has a row or more, of numbers")
    changes = tuple(ChangeFigures(**change) for change in read["plan"]["changes"])
    plan = PlanFigures(**read["plan"] | {"changes": changes, "verdict": tuple(read["plan"]["verdict"])})
    if not plan.verdict or not all(isinstance(sentence, str) for sentence in plan.verdict):
        raise ValueError("a verdict has a sentence or more")
    return Metrics(**read | {"sweep": rows, "plan": plan})


def title_of(text: str) -> str:
    """The title in the metrics.json of a page that is no pair's. Raises ValueError, KeyError or TypeError."""
    title = json.loads(text)["title"]
    if not isinstance(title, str):
        raise TypeError("a title is text")
    return title


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
        plan=_figures(request.plan, model, hw.name),
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
        state_gb=step.batch * sum(layer.state_bytes for layer in model.layers) / GB,
        kv_gb=plan.kv_bytes / GB,
        resident_ctx=memory and memory.resident_ctx,
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
        changes=tuple(ChangeFigures(each.name, each.step.prefetch.total_ms, each.saved_ms) for each in plan.changes),
    )
