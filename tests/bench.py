"""How fast is it? Each figure beside its floor or a limit, measured in the same run, medians of interleaved runs.

make bench
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import nbformat
import numpy as np
from conftest import ROOT, copy_of_checkout, run_kvprefetch
from jupyter_client import AsyncKernelManager
from jupyter_client.utils import run_sync
from papermill import execute_notebook
from tqdm import tqdm

from kvprefetch import ModelConfig, survey
from kvprefetch.catalog import HARDWARE, MODELS, find, load_model, short_names
from kvprefetch.execution import rehearsed, template
from kvprefetch.html.exporter import ReportExporter, highlighted
from kvprefetch.html.markdown import to_html
from kvprefetch.kernels import kernel
from kvprefetch.layers import step_weight_bytes, token_bytes
from kvprefetch.planner import prefetch_ms
from kvprefetch.report import artefacts
from kvprefetch.request import Request
from kvprefetch.roofline import layer_times
from kvprefetch.schedule import prefetch_step, uniform_prefetch_step

CARD = find(HARDWARE, "a100")
REQUEST = Request(find(MODELS, "llama3-8b"), CARD)
EIGHT = "llama3-8b llama2-7b llama2-13b llama3.1-8b mistral-7b qwen3-8b phi-2"  # and the page that compares them
BATCHES = (1, 2, 4, 8)
FIGURE = """\
import io
from IPython.display import SVG, display
from matplotlib.figure import Figure
fig, file = Figure(), io.BytesIO()
fig.subplots().plot([1, 2])
fig.savefig(file, format="svg")
display(SVG(file.getvalue()), metadata={"image/svg+xml": {"alt": "a line"}})
"""


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def medians(*works: Callable[[], object], rounds: int, what: str) -> list[float]:
    """The median seconds of each, run in turn so that a slow moment of the machine meets all of them."""
    times = [[seconds(work) for work in works] for _ in tqdm(range(rounds), desc=what, leave=False)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def say(what: str, measured: str, limit: str) -> None:
    print(f"{what:<58}{measured:>28}   {limit}")


def floor_notebook() -> nbformat.NotebookNode:
    """As many code cells as the report has and as many figures, each cell trivial and each figure one line."""
    cells = sum(cell.cell_type == "code" for cell in template(REQUEST.notebook).cells)
    drawn = sum("notebook.show" in cell.source for cell in template(REQUEST.notebook).cells)
    figures = [nbformat.v4.new_code_cell(FIGURE) for _ in range(drawn)]
    trivial = [nbformat.v4.new_code_cell("1 + 1") for _ in range(cells - len(figures))]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Floor"), *trivial, *figures])


def floor_report(kernels: Callable[[], AbstractContextManager[AsyncKernelManager]]) -> None:
    """Executed by papermill and rendered by our exporter, which is nbconvert's with little added."""
    with kernels() as manager:
        executed = execute_notebook(floor_notebook(), None, progress_bar=False, kernel_name="python3", km=manager)
    ReportExporter().from_notebook_node(executed)


@contextmanager
def kernel_of_the_library() -> Iterator[AsyncKernelManager]:
    """One that jupyter_client starts, waits for and ends by itself, over files as ours: over TCP it would warn."""
    with tempfile.TemporaryDirectory() as folder:
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/k")
        run_sync(manager.start_kernel)()
        try:
            yield manager
        finally:
            run_sync(manager.shutdown_kernel)(now=True)


def report() -> None:
    for remembered in (rehearsed, highlighted, to_html):  # in the rounds before
        remembered.cache_clear()
    artefacts(REQUEST, progress_bar=False)


def bench_report() -> None:
    floors = partial(floor_report, kernel_of_the_library), partial(floor_report, kernel)
    floor, quicker, ours = medians(*floors, report, rounds=9, what="reports")
    what = "one report / a trivial notebook of as many cells and figures"
    say(what, f"{ours / floor:.2f}  ({ours:.2f} s / {floor:.2f} s)", "at most 1.3")
    say("one report / that, in a kernel started as ours are", f"{ours / quicker:.2f}  ({quicker:.2f} s)", "at most 1.5")


def bench_eight() -> None:
    """Both as commands, in a copy in which nothing is built."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of_checkout(Path(folder))

        def command(*arguments: str) -> Callable[[], object]:
            def run() -> None:
                shutil.rmtree(copy / "reports", ignore_errors=True)
                done = run_kvprefetch(copy, *arguments)
                assert done.returncode == 0, done.stderr

            return run

        one = command("report", "--model", "llama3-8b", "--hw", "a100")
        eight = command("reports", "--models", EIGHT, "--hws", "a100", "--jobs", "2")
        alone, together = medians(one, eight, rounds=3, what="eight reports")
    measured = f"{together / alone:.2f}  ({together:.2f} s / {alone:.2f} s)"
    say("eight reports on two workers / one report", measured, "at most 3.0")


def plain_prefetch_ms(model: ModelConfig, contexts: list[int], batch: int) -> list[float]:
    """The arithmetic of `prefetch_ms` at depth 1, and of the on-demand step beside it, a number at a time."""
    hbm, link = CARD.config.hbm_gb_s * 1e9, CARD.config.pcie_gb_s * 1e9
    weights, values = step_weight_bytes(model.layers, batch).tolist(), token_bytes(model.layers, "fp16").tolist()
    windows = [layer.window or float("inf") for layer in model.layers]
    steps = []
    for ctx_len in contexts:
        ondemand = link_free = done = 0.0
        buffers = [0.0, 0.0]
        for read, value, window in zip(weights, values, windows, strict=True):
            compute = read / hbm
            transfer = batch * min(ctx_len, window) * value / link
            ondemand += transfer
            ondemand += compute
            if transfer > 0:
                link_free = max(link_free, buffers.pop(0)) + transfer
                done = max(done, link_free) + compute
                buffers.append(done)
            else:
                done += compute
        steps.append(done * 1e3)
    return steps


def bench_core() -> None:
    few = np.linspace(1, 10**8, 500).astype(int).tolist()
    for name, kind, limit in (
        ("llama3-8b", "uniform", 200),
        ("gemma3-27b", "sliding", 20),
        ("gpt-oss-20b", "in turn", 20),
    ):
        model = load_model(name)

        def core(points: int, model: ModelConfig = model) -> Callable[[], object]:
            contexts = np.linspace(1, 10**8, points // len(BATCHES)).astype(int)
            return lambda: [prefetch_ms(model, CARD.config, contexts, batch) for batch in BATCHES]

        def plain(model: ModelConfig = model) -> list[list[float]]:
            return [plain_prefetch_ms(model, few, batch) for batch in BATCHES]

        assert plain() == [prefetch_ms(model, CARD.config, few, batch).tolist() for batch in BATCHES]
        loop, small, large = medians(plain, core(10**4), core(10**6), rounds=7, what=name)
        loop, small, large = loop / len(few) / len(BATCHES), small / 10**4, large / 10**6
        measured = f"{loop / large:.0f}  ({1e-6 / large:.1f} M / {1e-6 / loop:.3f} M)"
        say(f"{name} ({kind}): points a second / plain Python's", measured, f"at least {limit}")
        huge = statistics.median(seconds(core(10**7)) for _ in range(3)) / 10**7
        measured = f"{huge / small:.2f}  ({1e9 * huge:.0f} ns / {1e9 * small:.0f} ns)"
        say(f"{name}: a point of 1e7 / a point of 1e4", measured, "at most 1.5")


def bench_survey() -> None:
    models = [find(MODELS, name).config for name in short_names(MODELS)]
    cards = [find(HARDWARE, name).config for name in short_names(HARDWARE)]
    contexts = np.geomspace(16, 10**6, 1000).astype(int)
    took = seconds(lambda: survey(models, cards, contexts))
    what = f"survey: {len(models)} models x {len(cards)} cards x {len(np.unique(contexts))} contexts"
    say(what, f"{took:.2f} s", "seconds")


def bench_commands() -> None:
    def command(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run(arguments, cwd=ROOT, check=True, capture_output=True)

    python, pair = sys.executable, ("--model", "llama3-8b", "--hw", "a100")
    command("make", "report")()  # from here on it is unchanged
    names = ("an unchanged make report", "import kvprefetch", "from kvprefetch import compare", "kvprefetch sweep")
    limits = (0.3, 0.25, 0.25, 0.5)
    bare, *ours = medians(
        command(python, "-c", "pass"),
        command("make", "report"),
        command(python, "-c", "import kvprefetch"),
        command(python, "-c", "from kvprefetch import compare"),
        command(python, "-m", "kvprefetch", "sweep", *pair),
        rounds=11,
        what="commands",
    )
    for name, took, limit in zip(names, ours, limits, strict=True):
        say(f"{name} / a bare python", f"{took / bare:.1f}  ({took:.3f} s / {bare:.3f} s)", f"under {limit} s")


def bench_schedule() -> None:
    layers = REQUEST.model.config.layers
    few, many = (
        layer_times(layers, REQUEST.hw.config, np.linspace(1, 10**6, count), batch=1) for count in (10**4, 10**6)
    )
    rounds = 100  # of the small sweep, so that both take about as long

    def small() -> None:
        for _ in range(rounds):
            prefetch_step(few.compute, few.transfer)

    at_few, at_many = medians(small, lambda: prefetch_step(many.compute, many.transfer), rounds=5, what="prefetch_step")
    per_few, per_many = 1e9 * at_few / rounds / 10**4, 1e9 * at_many / 10**6
    measured = f"{per_many / per_few:.2f}  ({per_many:.0f} ns / {per_few:.0f} ns)"
    say("prefetch_step, 32 layers: a point of 1e6 / a point of 1e4", measured, "at most 1.5")

    c, t = many.compute[:, 0].copy(), many.transfer[:, 0].copy()
    closed, recurrence = medians(
        lambda: uniform_prefetch_step(c, t, 32),
        lambda: prefetch_step(many.compute, many.transfer),
        rounds=5,
        what="closed form",
    )
    measured = f"{closed / recurrence:.3f}  ({closed:.3f} s / {recurrence:.3f} s)"
    say("1e6 contexts: closed form / recurrence", measured, "")


if __name__ == "__main__":
    for bench in (bench_schedule, bench_core, bench_survey, bench_commands, bench_report, bench_eight):
        bench()
