"""What did a pair's plan come to, as one object a machine can read? The content of metrics.json."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass

from kvprefetch.planner import SweepRow, crossover_ctx, peak_ctx, sweep_columns
from kvprefetch.request import Request


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

    def to_json(self) -> str:
        """The text of metrics.json: full precision, keys in the order above, a final newline."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str) -> Metrics:
    """The object whose `to_json` is `text`. Raises ValueError, KeyError or TypeError on any other text."""
    read = json.loads(text)
    rows = tuple(SweepRow(**row) for row in read["sweep"])
    if not rows or not all(isinstance(value, (int, float)) for row in rows for value in astuple(row)[:-1]):
        raise ValueError("a sweep has a row or more, of numbers")
    return Metrics(**read | {"sweep": rows})


def measure(request: Request) -> Metrics:
    """The figures of the report that `request` asks for."""
    model, hw = request.model.config, request.hw.config
    return Metrics(
        model=request.model.slug,
        model_name=model.name,
        hardware=request.hw.slug,
        hardware_name=hw.name,
        batch=request.batch,
        depth=request.depth,
        params=model.params,
        crossover_ctx=crossover_ctx(model, hw, request.batch),
        peak_ctx=peak_ctx(model, hw, request.batch, request.depth),
        sweep=tuple(sweep_columns(model, hw, request.contexts, request.batch, request.depth).rows()),
    )
