"""What is printed for people who ask for numbers without a report?"""

from __future__ import annotations

from collections.abc import Iterator

from kvprefetch.answers import generated, reads_left_out, target, throughput
from kvprefetch.configs import GB
from kvprefetch.formats import gigabytes, tokens
from kvprefetch.metrics import Metrics
from kvprefetch.planner import crossover_ctx, sweep_columns
from kvprefetch.request import Request
from kvprefetch.termtext import FIRST_ORDER_TEXT
from kvprefetch.verdict import verdict


def answer(metrics: Metrics) -> str:
    """A report in two lines: what prefetch saves, and whether the cache must be offloaded."""
    best = max(metrics.sweep, key=lambda row: row.reduction_pct)
    return (
        f"{metrics.model_name} on {metrics.hardware_name}, batch {metrics.batch}, depth {metrics.depth}: "
        f"crossover {tokens(metrics.crossover_ctx)}; largest reduction swept {best.reduction_pct:.1f} % "
        f"at {tokens(best.ctx_len)} ({best.ondemand_ms:.2f} -> {best.prefetch_ms:.2f} ms)\n{metrics.plan.verdict[0]}"
    )


def sweep_lines(request: Request) -> Iterator[str]:
    """The sweep as a table."""
    model, hw, terms = request.model.config, request.hw.config, request.in_force
    yield f"model      {model.name}, {model.params:,} weights in its layers"
    yield f"hardware   {hw.name}"
    yield f"batch      {request.batch}"
    yield f"depth      {request.depth}"
    if request.terms != FIRST_ORDER_TEXT:
        yield f"terms      {request.terms}"
    if terms.resident_tokens:
        yield f"resident   the newest {tokens(terms.resident_tokens)} of every layer"
    yield f"crossover  {tokens(crossover_ctx(model, hw, request.batch, terms))}"
    yield ""
    yield f"{'ctx':>10}  {'on-demand ms':>12}  {'prefetch ms':>11}  {'reduction':>9}  {'speedup':>7}  bound"
    for row in sweep_columns(model, hw, request.contexts, request.batch, request.depth, terms).rows():
        yield (
            f"{row.ctx_len:>10}  {row.ondemand_ms:>12.2f}  {row.prefetch_ms:>11.2f}  "
            f"{row.reduction_pct:>7.1f} %  {row.speedup:>6.2f}x  {row.bound}"
        )


def plan_lines(request: Request) -> Iterator[str]:
    """The verdict, then the figures it rests on."""
    model, hw, plan, outlook = request.model.config, request.hw.config, request.plan, request.outlook
    step = plan.step
    yield from verdict(plan, model, model.name, hw.name)
    if note := reads_left_out(plan, model, hw):
        yield note
    yield ""
    yield f"model      {model.name}"
    yield f"hardware   {hw.name}"
    yield f"context    {tokens(plan.ctx_len)}, batch {step.batch}, depth {step.depth}, terms {request.terms}"
    if plan.memory:
        yield f"memory     {gigabytes(plan.memory.usable)} after the reserve of {100 * plan.reserve:g} %"
        yield f"weights    {gigabytes(plan.memory.weights)}"
        if plan.memory.state:
            yield f"state      {gigabytes(plan.memory.state)}"
        yield f"cache      {gigabytes(plan.memory.kv)}"
        yield f"left       {gigabytes(plan.memory.left)}"
    if plan.window:
        yield f"window     the newest {tokens(plan.window)} fit: {plan.filled.prefetch.total_ms:.2f} ms"
    yield f"host       {gigabytes(step.offloaded_bytes)} of pinned memory"
    yield ""
    yield target(outlook)
    yield f"{throughput(plan, outlook)} {generated(plan, outlook)}"
    yield ""
    yield f"{'step ms':>10}  {'GPU GB':>8}  {'host GB':>8}  {'limit':<12}way"
    for way in plan.ways:
        sizes = f"{way.gpu_bytes / GB:>8.2f}  {way.host_bytes / GB:>8.2f}"
        yield f"{way.total_ms:>10.2f}  {sizes}  {way.limit:<12}{way.name}"
