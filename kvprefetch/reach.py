"""How far does a latency target reach under each policy, and what stops it there?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kvprefetch.capacity import largest_offloaded_ctx, largest_resident_ctx
from kvprefetch.configs import FIRST_ORDER, GB, HardwareProfile, ModelConfig, Terms
from kvprefetch.inverse import longest_ctx
from kvprefetch.planner import Steps, steps_at
from kvprefetch.roofline import offloaded_bytes

LEAST_TARGET, MOST_TARGET = 1e-3, 1e9  # milliseconds


@dataclass(frozen=True)
class Reach:
    """The longest context under one policy: None where nothing stops it, 0 where not even one token meets the cap."""

    policy: str
    by_target: int | None  # by the latency target alone
    ctx_len: int | None  # by every cap
    cap: str  # the one that binds


def reaches(
    model: ModelConfig,
    hw: HardwareProfile,
    target_ms: float,
    usable: Fraction | None,
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> tuple[Reach, Reach, Reach]:
    """Of all KV on the GPU, of on-demand, and of prefetch: the longest context with a step of at most `target_ms`."""

    def by_target(seconds: Callable[[Steps], np.ndarray]) -> int | None:
        def step(contexts: np.ndarray) -> np.ndarray:
            return seconds(steps_at(model, hw, contexts, batch, depth, terms))

        return longest_ctx(step, target_ms / 1e3)

    host = None
    if hw.host_capacity_gb is not None:
        host = longest_ctx(
            lambda contexts: offloaded_bytes(model.layers, contexts, batch, terms).sum(axis=-1),
            hw.host_capacity_gb * GB,
        )
    on_gpu = usable and largest_resident_ctx(model, usable, batch, terms.kv_dtype)
    buffers = [usable and largest_offloaded_ctx(model, usable, batch, ahead, terms) for ahead in (0, depth)]
    limit = model.max_position_embeddings
    return (
        _capped("all KV on the GPU", by_target(lambda each: each.engine), on_gpu, None, limit),
        _capped("on demand", by_target(lambda each: each.ondemand), buffers[0], host, limit),
        _capped("prefetch", by_target(lambda each: each.prefetch), buffers[1], host, limit),
    )


def _capped(policy: str, target: int | None, gpu: int | None, host: int | None, limit: int | None) -> Reach:
    caps = {"the target": target, "GPU memory": gpu, "host memory": host, "the model's own limit": limit}
    binding = {cap: ctx_len for cap, ctx_len in caps.items() if ctx_len is not None}
    if not binding:
        return Reach(policy, target, None, "nothing")
    cap = min(binding, key=binding.__getitem__)
    return Reach(policy, target, binding[cap], cap)
