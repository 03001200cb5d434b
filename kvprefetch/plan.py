"""Must the cache be offloaded at a context, how much of it, and what would help?

Capacity decides whether, `planner` what it costs, and both what to change. Symbols: n context, b batch,
d depth, R resident tokens, n* crossover.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from kvprefetch.capacity import (
    DEFAULT_RESERVE,
    fits,
    free_bytes,
    largest_depth,
    largest_offloaded_ctx,
    largest_resident_batch,
    largest_resident_ctx,
    largest_window,
    usable_bytes,
)
from kvprefetch.configs import FIRST_ORDER, GB, HardwareProfile, ModelConfig, Terms
from kvprefetch.crossover import smallest_window
from kvprefetch.layers import MOST_CTX
from kvprefetch.planner import Comparison, compare
from kvprefetch.roofline import resident_bytes
from kvprefetch.ways import Way, ways

NEGLIGIBLE = 1e-9  # of a step: rounding


class Choice(StrEnum):
    """Why the planner looks at the context it looks at."""

    ASKED = "asked for"
    FIRST = "the first that must offload"
    LIMIT = "the longest the model was made for"
    LONGEST = "the longest swept"


class Fit(StrEnum):
    """How a plan and the card's memory go together."""

    UNKNOWN = "capacity not known"
    WEIGHTS = "weights do not fit"
    RESIDENT = "all stays on the GPU"
    OFFLOAD = "offload fits"
    WINDOW = "the resident window asked for does not fit"
    DEPTH = "offload fits at a smaller depth alone"
    HOST = "the host's memory does not hold what is offloaded"
    NOTHING = "offload does not fit either"

    @property
    def runs(self) -> bool:
        """Whether the plan as asked for can be run, as far as memory is known."""
        return self in (Fit.UNKNOWN, Fit.RESIDENT, Fit.OFFLOAD)


@dataclass(frozen=True)
class Memory:
    """The card's memory and what it would hold with all KV on it, in bytes."""

    usable: float  # capacity less the reserve
    weights: float  # of all layers and experts, embeddings and LM head
    state: float  # recurrent state of all sequences
    kv: float  # of all layers and sequences at the planner's context
    resident_ctx: int | None  # the largest whole context at which all fits; 0: none, None: every one
    resident_batch: int  # the largest batch at the planner's context of which all fits; 0: none
    offloaded_ctx: int | None  # the largest whole context that fits with the KV offloaded as asked; 0: none, None: all
    deepest: int | None  # the largest depth, at most that asked for, that fits; 0: on demand alone; None: not even that

    @property
    def free(self) -> float:
        """What weights and state leave: below 0 where they do not fit."""
        return self.usable - self.weights - self.state

    @property
    def needed(self) -> float:
        return self.weights + self.state + self.kv

    @property
    def left(self) -> float:
        """What remains with all KV on the GPU: below 0 where not all fits."""
        return self.usable - self.needed


@dataclass(frozen=True)
class Placement:
    """How much of the cache can stay on the GPU at one context, and what that makes of the step."""

    ctx_len: int
    fit: Fit
    terms: Terms
    kv_bytes: float  # of the whole cache
    step: Comparison  # both policies under `terms`
    window: int | None  # the largest R that fits beside its buffers; None: not even 0 does, or no capacity is known
    filled: Comparison | None  # the step with that R
    computing_window: int  # the smallest R with which the engine is busy as long as the link
    computing_bytes: float  # of KV on the GPU with it


@dataclass(frozen=True)
class Plan(Placement):
    """What a planner decides at one context."""

    choice: Choice
    reserve: float  # share of the card's memory that neither weights nor cache may take
    memory: Memory | None  # None: the profile states no capacity
    host_capacity: float | None  # bytes of host memory that can be pinned; None: not known
    ways: tuple[Way, ...]  # every way to serve the step that fits, fastest first

    @property
    def changes(self) -> tuple[Way, ...]:
        """The ways that are faster than the step that is planned, fastest first."""
        slower = (1 - NEGLIGIBLE) * self.planned_ms
        return tuple(way for way in self.ways if way.advice and way.total_ms < slower)

    @property
    def planned_ms(self) -> float:
        """The step to beat: with all KV on the GPU where that fits, else with prefetch."""
        return self.step.engine_ms if self.fit is Fit.RESIDENT else self.step.prefetch.total_ms


def planner_ctx(
    model: ModelConfig, usable: Fraction | None, batch: int, kv_dtype: str, longest_swept: int
) -> tuple[int, Choice]:
    """The first context that must offload, but none beyond what the model was made for.

    Where none must, or none can because the weights do not fit: the longest the model was made for, or of the sweep.
    """
    if usable is not None and free_bytes(model, usable, batch) >= 0:
        resident = largest_resident_ctx(model, usable, batch, kv_dtype)
        if resident is not None and resident < (model.max_position_embeddings or MOST_CTX):
            return resident + 1, Choice.FIRST
    if model.max_position_embeddings:
        return model.max_position_embeddings, Choice.LIMIT
    return longest_swept, Choice.LONGEST


def make_plan(
    model: ModelConfig,
    hw: HardwareProfile,
    ctx_len: int,
    choice: Choice = Choice.ASKED,
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
    reserve: float = DEFAULT_RESERVE,
) -> Plan:
    """The plan at `ctx_len`. Raises InputError like `planner.compare`."""
    usable = usable_bytes(hw, reserve)
    placed = _place(model, hw, usable, ctx_len, batch, depth, terms)
    return Plan(
        **vars(placed),
        choice=choice,
        reserve=reserve,
        memory=None if usable is None else _memory(model, usable, placed.step, terms),
        host_capacity=None if hw.host_capacity_gb is None else hw.host_capacity_gb * GB,
        ways=ways(model, hw, usable, placed.step, terms, placed.window),
    )


def placements(model: ModelConfig, hw: HardwareProfile, contexts: Sequence[int], plan: Plan) -> tuple[Placement, ...]:
    """What `plan` comes to at each of `contexts`, at its own, and at the first that must offload; ascending."""
    first = set() if plan.memory is None or not plan.memory.resident_ctx else {plan.memory.resident_ctx + 1}
    usable, step = usable_bytes(hw, plan.reserve), plan.step
    return tuple(
        _place(model, hw, usable, ctx_len, step.batch, step.depth, plan.terms)
        for ctx_len in sorted({*contexts, plan.ctx_len, *first})
    )


def _place(
    model: ModelConfig,
    hw: HardwareProfile,
    usable: Fraction | None,
    ctx_len: int,
    batch: int,
    depth: int,
    terms: Terms,
) -> Placement:
    step = compare(model, hw, ctx_len, batch, depth, terms)
    window = None if usable is None else largest_window(model, usable, ctx_len, batch, depth, terms)
    computing = smallest_window(model.layers, hw, ctx_len, batch, terms)
    kept = resident_bytes(model.layers, ctx_len, batch, replace(terms, resident_tokens=computing))
    filling = None if window is None else replace(terms, resident_tokens=window)
    return Placement(
        ctx_len=ctx_len,
        fit=_fit(model, hw, usable, step, terms, window),
        terms=terms,
        kv_bytes=model.kv_bytes(ctx_len, batch, terms.kv_dtype),
        step=step,
        window=window,
        filled=filling and compare(model, hw, ctx_len, batch, depth, filling),
        computing_window=computing,
        computing_bytes=float(kept.sum()),
    )


def _memory(model: ModelConfig, usable: Fraction, step: Comparison, terms: Terms) -> Memory:
    return Memory(
        usable=float(usable),
        weights=model.total_bytes,
        state=step.batch * model.state_bytes,
        kv=model.kv_bytes(step.ctx_len, step.batch, terms.kv_dtype),
        resident_ctx=largest_resident_ctx(model, usable, step.batch, terms.kv_dtype),
        resident_batch=largest_resident_batch(model, usable, step.ctx_len, terms.kv_dtype),
        offloaded_ctx=largest_offloaded_ctx(model, usable, step.batch, step.depth, terms),
        deepest=largest_depth(model, usable, step.ctx_len, step.batch, step.depth, terms),
    )


def _fit(
    model: ModelConfig,
    hw: HardwareProfile,
    usable: Fraction | None,
    step: Comparison,
    terms: Terms,
    window: int | None,
) -> Fit:
    if usable is not None and usable < model.total_bytes:
        return Fit.WEIGHTS
    all_resident = replace(terms, resident_tokens=step.ctx_len)
    if usable is not None and fits(model, usable, step.ctx_len, step.batch, terms=all_resident):
        return Fit.RESIDENT
    if hw.host_capacity_gb is not None and step.offloaded_bytes > hw.host_capacity_gb * GB:
        return Fit.HOST
    if usable is None:
        return Fit.UNKNOWN
    if fits(model, usable, step.ctx_len, step.batch, step.depth, terms):
        return Fit.OFFLOAD
    if terms.resident_tokens and window is not None:
        return Fit.WINDOW
    return Fit.DEPTH if fits(model, usable, step.ctx_len, step.batch, 0, terms) else Fit.NOTHING
