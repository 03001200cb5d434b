"""What was asked for on the command line, and what is printed in answer."""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import NoReturn

from kvprefetch.catalog import HARDWARE, MODELS, find, short_names
from kvprefetch.checks import InputError, refusal
from kvprefetch.metrics import Metrics, from_json, measure
from kvprefetch.modelfile import description, model_yaml
from kvprefetch.planner import crossover_ctx
from kvprefetch.prose import tokens
from kvprefetch.publish import folder, index_is_there, up_to_date
from kvprefetch.request import Request

# What `report` and `notebook` take from the environment for an option not given, and what stands in for an empty one.
VARIABLES = {"MODEL": "llama3-8b", "HW": "a100", "CONTEXTS": None, "BATCH": None, "DEPTH": None}


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        one_line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
        self.exit(2, f"{self.prog}: {one_line}\n")


def parser() -> argparse.ArgumentParser:
    """The command line's grammar; parsed options carry their verb as `run(options)`, which may raise InputError."""
    grammar = _Parser(prog="kvprefetch", description="Plan decode latency with the KV cache in host memory.")
    commands = grammar.add_subparsers(
        required=True, metavar="sweep | crossover | report | notebook | model | models | cards"
    )
    sweep = commands.add_parser("sweep", help="print the latency of both policies by context")
    crossover = commands.add_parser("crossover", help="print the context from which on the link is the bound")
    from_environment = f"What is not given is taken from the variables {' '.join(VARIABLES)}, as make sets them."
    report = commands.add_parser("report", help="build reports/<model>--<hw>/", description=from_environment)
    notebook = commands.add_parser("notebook", help="make a working copy of the notebook", description=from_environment)
    for command, run in ((sweep, _sweep), (crossover, _crossover), (report, _report), (notebook, _notebook)):
        command.set_defaults(run=run)
        command.allow_abbrev = False
        needed = command in (sweep, crossover)
        command.add_argument(
            "--model", metavar="NAME", required=needed, help="short name, or path to a YAML or config.json"
        )
        command.add_argument("--hw", metavar="NAME", required=needed, help="short name, or path to a YAML file")
        command.add_argument("--batch", metavar="N", help="sequences decoded together (default 1)")
    for command in (sweep, report, notebook):
        command.add_argument("--contexts", metavar="N,N", help="tokens in the cache (default 512 to 32768, doubling)")
        command.add_argument("--depth", metavar="N", help="layers fetched ahead (default 1)")
    model = commands.add_parser("model", help="describe a model", allow_abbrev=False)
    model.set_defaults(run=_model)
    model.add_argument("model", metavar="NAME", help="short name, or path to a YAML file or a published config.json")
    model.add_argument("--yaml", action="store_true", help="print it as a file of the catalogue")
    for name, run, text in (("models", _models, "list the models by short name"), ("cards", _cards, "list the cards")):
        commands.add_parser(name, help=text, allow_abbrev=False).set_defaults(run=run)
    sweep.add_argument("--json", action="store_true", help="print what a report's metrics.json holds")
    return grammar


def _sweep(options: argparse.Namespace) -> None:
    metrics = measure(_request(options))
    print(metrics.to_json() if options.json else "\n".join(_lines(metrics)) + "\n", end="")


def _crossover(options: argparse.Namespace) -> None:
    request = _request(options)
    crossover = crossover_ctx(request.model.config, request.hw.config, request.batch)
    print("none" if crossover is None else crossover)


def _model(options: argparse.Namespace) -> None:
    entry = find(MODELS, options.model)
    described = "".join(f"{line}\n" for line in description(entry.config))
    print(model_yaml(entry.config, entry.sources[0].text) if options.yaml else described, end="")


def _models(_: argparse.Namespace) -> None:
    print(f"{'short name':<22}{'name':<22}{'weights':>9}{'a token':>9}{'KV/token':>11}  layers")
    for name in short_names(MODELS):
        model = find(MODELS, name).config
        layers = ", ".join(f"{count} {kind}" for kind, count in Counter(each.kind for each in model.layers).items())
        print(
            f"{name:<22}{model.name:<22}{model.total_params / 1e9:>7.2f} B{model.active_params / 1e9:>7.2f} B"
            f"{model.kv_bytes(1) / 1e3:>8.1f} kB  {layers}"
        )


def _cards(_: argparse.Namespace) -> None:
    print(f"{'short name':<15}{'name':<34}{'HBM GB/s':>9}{'link GB/s':>10}{'memory GB':>10}  link rate is")
    for name in short_names(HARDWARE):
        entry = find(HARDWARE, name)
        card, (link,) = entry.config, (source.text for source in entry.sources if source.figure == "pcie_gb_s")
        memory = "–" if card.hbm_capacity_gb is None else f"{card.hbm_capacity_gb:.2f}"
        print(f"{name:<15}{card.name:<34}{card.hbm_gb_s:>9g}{card.pcie_gb_s:>10g}{memory:>10}  {link.split(':')[0]}")


def _report(options: argparse.Namespace) -> None:
    request = _request_of_make(options)
    made = not (up_to_date(request) and index_is_there()) and _jupyter().build(request)
    page = os.path.relpath(folder(request) / "report.html")
    try:
        metrics = from_json((folder(request) / "metrics.json").read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError):  # somebody has edited it
        metrics = measure(request)
    print(f"{_answer(metrics)}\n{page}{'' if made else ' (unchanged)'}")


def _notebook(options: argparse.Namespace) -> None:
    print(os.path.relpath(_jupyter().working_copy(_request_of_make(options))))


def _jupyter() -> ModuleType:
    """The module that runs notebooks: loaded only where it is needed, because that takes half a second."""
    try:
        from kvprefetch import report
    except ModuleNotFoundError as error:
        raise InputError(f"reports need {error.name}; install them with: pip install 'kvprefetch[report]'") from None
    return report


def _request_of_make(options: argparse.Namespace) -> Request:
    """What was asked for, with the environment and the defaults in place of options not given."""
    for variable, default in VARIABLES.items():
        if getattr(options, variable.lower()) is None:
            setattr(options, variable.lower(), os.environ.get(variable) or default)
    return _request(options)


def _request(options: argparse.Namespace) -> Request:
    """What was asked for, from the options as the user wrote them."""
    numbers = {
        name: _whole_number(name, text)
        for name in ("batch", "depth")
        if (text := getattr(options, name, None)) is not None
    }
    if getattr(options, "contexts", None) is not None:
        numbers["contexts"] = tuple(_whole_number("contexts", text) for text in options.contexts.split(","))
    return Request(find(MODELS, options.model), find(HARDWARE, options.hw), **numbers)


def _whole_number(what: str, text: str) -> int:
    if re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
        return int(text)
    raise refusal(what, text, "whole numbers, separated by commas" if what == "contexts" else "a whole number")


def _answer(metrics: Metrics) -> str:
    best = max(metrics.sweep, key=lambda row: row.reduction_pct)
    return (
        f"{metrics.model_name} on {metrics.hardware_name}, batch {metrics.batch}, depth {metrics.depth}: "
        f"crossover {tokens(metrics.crossover_ctx)}; largest reduction swept {best.reduction_pct:.1f} % "
        f"at {tokens(best.ctx_len)} ({best.ondemand_ms:.2f} -> {best.prefetch_ms:.2f} ms)"
    )


def _lines(metrics: Metrics) -> Iterator[str]:
    """The sweep as a table for people."""
    yield f"model      {metrics.model_name}, {metrics.params:,} weights in its layers"
    yield f"hardware   {metrics.hardware_name}"
    yield f"batch      {metrics.batch}"
    yield f"depth      {metrics.depth}"
    yield f"crossover  {tokens(metrics.crossover_ctx)}"
    yield ""
    yield f"{'ctx':>10}  {'on-demand ms':>12}  {'prefetch ms':>11}  {'reduction':>9}  {'speedup':>7}  bound"
    for row in metrics.sweep:
        yield (
            f"{row.ctx_len:>10}  {row.ondemand_ms:>12.2f}  {row.prefetch_ms:>11.2f}  "
            f"{row.reduction_pct:>7.1f} %  {row.speedup:>6.2f}x  {row.bound}"
        )
