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
    NOTHING = "offload does not fit either"


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

    @property
    def free(self) -> float:
        """What weights and state leave: below 0 where they do not fit."""
        return self.usable - self.weights - self.state

    @property
    def needed(self) -> float:
        return self.weights + self.state + self.kv

    @property
    def parts(self) -> tuple[float, float, float, float, float]:
        """Usable, weights, state, KV, and what is left: below 0 where not all fits."""
        return self.usable, self.weights, self.state, self.kv, self.usable - self.needed


@dataclass(frozen=True)
class Plan:
    """What a planner decides at one context."""

    ctx_len: int
    choice: Choice
    fit: Fit
    terms: Terms
    reserve: float  # share of the card's memory that neither weights nor cache may take
    memory: Memory | None  # None: the profile states no capacity
    kv_bytes: float  # of the whole cache
    step: Comparison  # both policies under `terms`
    window: int | None  # the largest R that fits beside its buffers; None: not even 0 does, or no capacity is known
    filled: Comparison | None  # the step with that R
    computing_window: int  # the smallest R with which the engine is busy as long as the link
    computing_bytes: float  # of KV on the GPU with it
    host_capacity: float | None  # bytes of host memory that can be pinned; None: not known
    ways: tuple[Way, ...]  # every way to serve the step that fits, fastest first

    @property
    def changes(self) -> tuple[Way, ...]:
        """The ways that are faster than the prefetch step, fastest first."""
        slower = (1 - NEGLIGIBLE) * self.step.prefetch.total_ms
        return tuple(way for way in self.ways if way.advice and way.total_ms < slower)

    @property
    def overflow(self) -> float:
        """Bytes of KV that find no room on the GPU; all of it where weights and state leave none."""
        return min(self.memory.kv, self.memory.needed - self.memory.usable)


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


def plans_by_context(model: ModelConfig, hw: HardwareProfile, contexts: Sequence[int], plan: Plan) -> tuple[Plan, ...]:
    """The same plan at each of `contexts`, at its own context, and at the first that must offload; ascending."""
    first = set() if plan.memory is None or not plan.memory.resident_ctx else {plan.memory.resident_ctx + 1}
    return tuple(
        make_plan(model, hw, ctx_len, Choice.ASKED, plan.step.batch, plan.step.depth, plan.terms, plan.reserve)
        for ctx_len in sorted({*contexts, plan.ctx_len, *first})
    )


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
    step = compare(model, hw, ctx_len, batch, depth, terms)
    usable = usable_bytes(hw, reserve)
    memory = window = filled = None
    if usable is not None:
        memory = _memory(model, usable, step, terms)
        window = largest_window(model, usable, ctx_len, batch, depth, terms)
        if window is not None:
            filled = compare(model, hw, ctx_len, batch, depth, replace(terms, resident_tokens=window))
    fit = _fit(model, usable, step, terms, window)
    computing = smallest_window(model.layers, hw, ctx_len, batch, terms)
    kept = resident_bytes(model.layers, ctx_len, batch, replace(terms, resident_tokens=computing))
    return Plan(
        ctx_len=ctx_len,
        choice=choice,
        fit=fit,
        terms=terms,
        reserve=reserve,
        memory=memory,
        kv_bytes=model.kv_bytes(ctx_len, batch, terms.kv_dtype),
        step=step,
        window=window,
        filled=filled,
        computing_window=computing,
        computing_bytes=float(kept.sum()),
        host_capacity=None if hw.host_capacity_gb is None else hw.host_capacity_gb * GB,
        ways=ways(model, hw, usable, step, terms, window),
    )


def _memory(model: ModelConfig, usable: Fraction, step: Comparison, terms: Terms) -> Memory:
    return Memory(
        usable=float(usable),
        weights=model.total_bytes,
        state=step.batch * sum(layer.state_bytes for layer in model.layers),
        kv=model.kv_bytes(step.ctx_len, step.batch, terms.kv_dtype),
        resident_ctx=largest_resident_ctx(model, usable, step.batch, terms.kv_dtype),
        resident_batch=largest_resident_batch(model, usable, step.ctx_len, terms.kv_dtype),
        offloaded_ctx=largest_offloaded_ctx(model, usable, step.batch, step.depth, terms),
    )


def _fit(model: ModelConfig, usable: Fraction | None, step: Comparison, terms: Terms, window: int | None) -> Fit:
    if usable is None:
        return Fit.UNKNOWN
    if usable < model.total_bytes:
        return Fit.WEIGHTS
    if fits(model, usable, step.ctx_len, step.batch, terms=replace(terms, resident_tokens=step.ctx_len)):
        return Fit.RESIDENT
    if fits(model, usable, step.ctx_len, step.batch, step.depth, terms):
        return Fit.OFFLOAD
    return Fit.NOTHING if window is None else Fit.WINDOW
