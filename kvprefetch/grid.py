"""How do many models do on many cards? Whole grids in one call, without a notebook.

`survey` gives both policies at every context; `standing` says where one pair's limits lie, each solved exactly:
n* crossover, the first context that must offload, and the longest that a target latency allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kvprefetch.capacity import DEFAULT_RESERVE, largest_offloaded_ctx, largest_resident_ctx, usable_bytes
from kvprefetch.checks import number, refusal
from kvprefetch.configs import FIRST_ORDER, HardwareProfile, ModelConfig, Terms
from kvprefetch.inverse import longest_ctx
from kvprefetch.layers import MOST_CTX
from kvprefetch.planner import contexts_in_order, crossover_ctx, prefetch_ms, steps_at, sweep_columns
from kvprefetch.reach import LEAST_TARGET, MOST_TARGET


@dataclass(frozen=True)
class Survey:
    """Both policies for every model on every card: ms, arrays of shape (models, cards, contexts)."""

    ctx_len: np.ndarray  # ascending, each once
    ondemand_ms: np.ndarray
    prefetch_ms: np.ndarray
    bound: np.ndarray  # "pcie" or "compute"

    @property
    def reduction_pct(self) -> np.ndarray:
        return 100 * (1 - self.prefetch_ms / self.ondemand_ms)


@dataclass(frozen=True)
class Standing:
    """Where the limits of one pair lie, in tokens."""

    crossover_ctx: int | None  # None: the link never is the bound
    weights_fit: bool | None  # None: the card's file states no capacity
    resident_ctx: int | None  # the largest whose KV stays on the GPU; 0: none; None: every one, or not known
    offload_ms: float | None  # prefetch step at the first context that must offload; None: there is none
    engine_in_time_ctx: int  # the largest that stays on the GPU and meets the target; 0: none
    link_in_time_ctx: int  # the largest that meets it with all KV crossing the link, on any memory; 0: none
    reach_ctx: int  # the largest that fits, meets it one way or the other, and the model was made for; 0: none
    engine_ms: float  # a step of one token with all KV on the GPU

    @property
    def offload_ctx(self) -> int | None:
        """The first context that must offload; None where none must, or none can."""
        return self.resident_ctx + 1 if self.weights_fit and self.resident_ctx is not None else None

    @property
    def link_serves(self) -> bool:
        """Whether the target is met at the first context that must offload."""
        return self.offload_ctx is not None and self.link_in_time_ctx >= self.offload_ctx


def survey(
    models: Sequence[ModelConfig],
    cards: Sequence[HardwareProfile],
    contexts: Iterable[int],
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> Survey:
    """Both policies for each of `models` on each of `cards` at each of `contexts`: as `sweep`, to the bit.

    Raises InputError like `sweep`, and where there is no model or no card.
    """
    for what, given in (("models", models), ("cards", cards)):
        if not len(given):
            raise refusal(what, "none", "one or more")
    ctx_len = contexts_in_order(contexts)
    sweeps = [[sweep_columns(model, hw, ctx_len, batch, depth, terms) for hw in cards] for model in models]
    names = ("ondemand_ms", "prefetch_ms", "bound")
    return Survey(ctx_len, *(np.array([[getattr(each, name) for each in row] for row in sweeps]) for name in names))


def standing(
    model: ModelConfig,
    hw: HardwareProfile,
    target_ms: float,
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
    reserve: float = DEFAULT_RESERVE,
) -> Standing:
    """The limits of one pair when a step may take `target_ms`. Raises InputError like `compare`."""
    number("target_ms", target_ms, least=LEAST_TARGET, most=MOST_TARGET)
    usable = usable_bytes(hw, reserve)
    weights_fit = None if usable is None else usable >= model.total_bytes
    resident = (
        largest_resident_ctx(model, usable, batch, terms.kv_dtype) if weights_fit else None if usable is None else 0
    )

    def engine_ms(contexts: np.ndarray) -> np.ndarray:
        return 1e3 * steps_at(model, hw, contexts, batch, depth, terms).engine

    def prefetched(contexts: np.ndarray) -> np.ndarray:
        return prefetch_ms(model, hw, contexts, batch, depth, terms)

    link, stays = _up_to(MOST_CTX, longest_ctx(prefetched, target_ms)), _up_to(MOST_CTX, resident)
    on_gpu = _up_to(stays, longest_ctx(engine_ms, target_ms, stays)) if weights_fit and stays else 0
    reach = on_gpu
    if weights_fit and link > on_gpu:
        reach = max(on_gpu, min(link, _up_to(MOST_CTX, largest_offloaded_ctx(model, usable, batch, depth, terms))))
    return Standing(
        crossover_ctx=crossover_ctx(model, hw, batch, terms),
        weights_fit=weights_fit,
        resident_ctx=resident,
        offload_ms=float(prefetched(np.array([resident + 1]))[0]) if weights_fit and resident is not None else None,
        engine_in_time_ctx=on_gpu,
        link_in_time_ctx=link,
        reach_ctx=min(reach, _up_to(MOST_CTX, model.max_position_embeddings)),
        engine_ms=float(engine_ms(np.array([1]))[0]),
    )


def _up_to(most: int, ctx_len: int | None) -> int:
    """`ctx_len`, or `most` where it is None: no limit."""
    return most if ctx_len is None else ctx_len
