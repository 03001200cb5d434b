"""How good is first order? What each term that it leaves out does to the step and to the crossover."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvprefetch.configs import ACHIEVED, FIRST_ORDER, HardwareProfile, ModelConfig, Terms, refined
from kvprefetch.formats import tokens
from kvprefetch.layers import has_windows
from kvprefetch.planner import Comparison, compare, crossover_ctx

NAMES = {
    "kv_read": "attention reads the cache from HBM",
    "lm_head": "LM head after the last layer",
    "weight_efficiency": "HBM rate reached reading weights",
    "attention_efficiency": "HBM rate reached by attention",
    "pcie_efficiency": "PCIe rate reached",
    "copy_latency_us": "copy latency",
    "layer_overhead_us": "layer overhead",
    "resident_windows": "windows kept on the GPU",
    "cross_token_overlap": "overlap across tokens",
}


@dataclass(frozen=True)
class Effect:
    """The steps at some contexts, and the crossover, under some terms."""

    name: str
    steps: tuple[Comparison, ...]  # one a context asked for
    crossover_ctx: int | None


@dataclass(frozen=True)
class Effects:
    """First order, each term of the pair alone, the refined ones together, and these with overlap across tokens."""

    first: Effect
    alone: tuple[Effect, ...]
    refined: Effect
    overlapped: Effect

    @property
    def rows(self) -> tuple[Effect, ...]:
        return (self.first, *self.alone, self.refined, self.overlapped)


def effects(
    model: ModelConfig,
    hw: HardwareProfile,
    contexts: Sequence[int],
    batch: int = 1,
    depth: int = 1,
    resident_tokens: int = 0,
) -> Effects:
    """What the terms that this pair has do at `contexts`, a resident window among them. InputError like `compare`."""

    def effect(name: str, terms: Terms) -> Effect:
        steps = tuple(compare(model, hw, ctx_len, batch, depth, terms) for ctx_len in contexts)
        return Effect(name, steps, crossover_ctx(model, hw, batch, terms))

    together = refined(hw)
    return Effects(
        effect("first order", FIRST_ORDER),
        tuple(effect(name, terms) for name, terms in _alone(model, together, resident_tokens)),
        effect("refined: KV read, LM head, and what the card's file states", together),
        effect("refined, with overlap across tokens", replace(together, cross_token_overlap=True)),
    )


def unstated(hw: HardwareProfile) -> tuple[str, ...]:
    """The terms that the card's file gives no figure for, which therefore stay neutral."""
    return tuple(NAMES[name] for name in ACHIEVED if getattr(hw, name) is None)


def _alone(model: ModelConfig, together: Terms, resident_tokens: int) -> Iterator[tuple[str, Terms]]:
    """Each term of the pair on its own: in words, and as terms."""
    yield NAMES["kv_read"], Terms(kv_read=True)
    yield NAMES["lm_head"], Terms(lm_head=True)
    for name in ACHIEVED:
        if (value := getattr(together, name)) != getattr(FIRST_ORDER, name):
            reads = ", its reads counted" if name == "attention_efficiency" else ""
            yield (
                f"{NAMES[name]}: {value:g}{reads}",
                replace(Terms(kv_read=name == "attention_efficiency"), **{name: value}),
            )
    if resident_tokens:
        yield f"newest {tokens(resident_tokens)} on the GPU", Terms(resident_tokens=resident_tokens)
    if has_windows(model.layers):
        yield NAMES["resident_windows"], Terms(resident_windows=True)
    yield NAMES["cross_token_overlap"], Terms(cross_token_overlap=True)
    yield "8-bit cache", Terms(kv_dtype="fp8")
