"""What would it take at the planner's context, how many tokens a second are there, and how sure is it?"""

from __future__ import annotations

from dataclasses import dataclass

from kvprefetch.capacity import usable_bytes
from kvprefetch.configs import HardwareProfile, ModelConfig
from kvprefetch.inverse import balancing_pcie, hideable_bytes, pcie_bound_batch, stall_free_pcie
from kvprefetch.plan import Plan
from kvprefetch.reach import Reach, reaches
from kvprefetch.sensitivity import Swing, swings
from kvprefetch.throughput import Generation, Served, generation, link_ceiling, served


@dataclass(frozen=True)
class Outlook:
    """The inverse questions, the rates and the sensitivities of one plan."""

    target_ms: float
    reaches: tuple[Reach, ...]  # the longest context with a step of at most that
    balancing_pcie_gb_s: float | None  # None: no link is fast enough
    stall_free_pcie_gb_s: float | None
    pcie_bound_batch: int | None  # None: no batch
    hideable_bytes: float
    served: tuple[Served, ...]  # empty where nothing fits, or no capacity is known
    link_ceiling_tokens_per_s: float | None  # None: nothing is offloaded
    resident_generation: Generation
    ondemand_generation: Generation
    prefetch_generation: Generation
    swings: tuple[Swing, ...]


def make_outlook(model: ModelConfig, hw: HardwareProfile, plan: Plan, target_ms: float, generate: int) -> Outlook:
    """The outlook from `plan`. Raises InputError like `planner.compare`."""
    usable, terms, batch, depth = usable_bytes(hw, plan.reserve), plan.terms, plan.step.batch, plan.step.depth
    at = model, hw, plan.ctx_len
    resident, ondemand, prefetch = generation(*at, generate, batch, depth, terms)
    return Outlook(
        target_ms=target_ms,
        reaches=reaches(model, hw, target_ms, usable, batch, depth, terms),
        balancing_pcie_gb_s=balancing_pcie(*at, batch, terms),
        stall_free_pcie_gb_s=stall_free_pcie(*at, batch, depth, terms),
        pcie_bound_batch=pcie_bound_batch(*at, terms),
        hideable_bytes=hideable_bytes(*at, batch, terms),
        served=served(model, hw, usable, plan.ctx_len, batch, depth, terms) if usable else (),
        link_ceiling_tokens_per_s=link_ceiling(*at, terms),
        resident_generation=resident,
        ondemand_generation=ondemand,
        prefetch_generation=prefetch,
        swings=swings(*at, batch, depth, terms),
    )
