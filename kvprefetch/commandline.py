"""What was asked for on the command line, and what is printed in answer."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple, NoReturn

from kvprefetch.catalog import HARDWARE, MODELS, CatalogEntry, find, short_names
from kvprefetch.checks import InputError, refusal, whole_number
from kvprefetch.configs import HardwareProfile, ModelConfig
from kvprefetch.fleet import Fleet, entries, fleet_names, names_in, requests
from kvprefetch.metrics import Metrics, as_json, from_json, measure
from kvprefetch.modelfile import description, model_yaml
from kvprefetch.planner import crossover_ctx
from kvprefetch.prose import tokens
from kvprefetch.publish import Page, folder, index_is_there, out_of_date, up_to_date
from kvprefetch.request import AUTO, PARAMETERS, Request
from kvprefetch.termtext import FIRST_ORDER_TEXT

Models, Cards = list[CatalogEntry[ModelConfig]], list[CatalogEntry[HardwareProfile]]


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        one_line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
        self.exit(2, f"{self.prog}: {one_line}\n")


def parser() -> argparse.ArgumentParser:
    """The command line's grammar; parsed options carry their verb as `run(options)`, which may raise InputError."""
    grammar = _Parser(prog="kvprefetch", description="Plan decode latency with the KV cache in host memory.")
    commands = grammar.add_subparsers(
        required=True, metavar="plan | sweep | crossover | report | reports | fleet | notebook | model | models | cards"
    )
    from_environment = "What is not given is taken from the variables {}, as make sets them."
    parameters = [each.variable for each in PARAMETERS.values()]
    variables = " ".join(["MODEL", "HW", *parameters])
    for name, run, needed, text in (
        ("plan", _plan, True, "print whether to offload, how much, and what would help"),
        ("sweep", _sweep, True, "print the latency of both policies by context"),
        ("crossover", _crossover, True, "print the context from which on the link is the bound"),
        ("report", _report, False, "build reports/<model>--<hw>/"),
        ("notebook", _notebook, False, "make a working copy of the notebook"),
    ):
        command = commands.add_parser(
            name, help=text, allow_abbrev=False, description=None if needed else from_environment.format(variables)
        )
        command.set_defaults(run=run)
        command.add_argument(
            "--model", metavar="NAME", required=needed, help="short name, or path to a YAML or config.json"
        )
        command.add_argument("--hw", metavar="NAME", required=needed, help="short name, or path to a YAML file")
        for parameter, option in OPTIONS.items():
            command.add_argument(f"--{option.name}", dest=parameter, metavar=option.metavar, help=option.help)
        if run in (_plan, _sweep):
            command.add_argument("--json", action="store_true", help="print it as a report's metrics.json holds it")
    for name, run, text in (
        ("reports", _reports, "build the report of every pair of the fleet, and the page that compares them"),
        ("fleet", _fleet, "build the page that compares the pairs"),
    ):
        description = from_environment.format(" ".join([*FLEET_VARIABLES.values(), *parameters]))
        command = commands.add_parser(name, help=text, allow_abbrev=False, description=description)
        command.set_defaults(run=run)
        for parameter, option in (FLEET_OPTIONS | OPTIONS).items():
            command.add_argument(f"--{option.name}", dest=parameter, metavar=option.metavar, help=option.help)
    model = commands.add_parser("model", help="describe a model", allow_abbrev=False)
    model.set_defaults(run=_model)
    model.add_argument("model", metavar="NAME", help="short name, or path to a YAML file or a published config.json")
    model.add_argument("--yaml", action="store_true", help="print it as a file of the catalogue")
    for name, run, text in (("models", _models, "list the models by short name"), ("cards", _cards, "list the cards")):
        commands.add_parser(name, help=text, allow_abbrev=False).set_defaults(run=run)
    return grammar


def _plan(options: argparse.Namespace) -> None:
    metrics = measure(_request(options))
    print(as_json(metrics.plan) if options.json else "\n".join(_plan_lines(metrics)) + "\n", end="")


def _sweep(options: argparse.Namespace) -> None:
    metrics = measure(_request(options))
    print(as_json(metrics) if options.json else "\n".join(_lines(metrics)) + "\n", end="")


def _crossover(options: argparse.Namespace) -> None:
    request = _request(options)
    crossover = crossover_ctx(request.model.config, request.hw.config, request.batch, request.in_force)
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


def _reports(options: argparse.Namespace) -> None:
    _from_environment(options, FLEET_VARIABLES)
    models, cards, failures = _members(options)
    pairs, impossible = requests(models, cards, _values(options, OPTIONS))
    pages = [*pairs, *([] if failures else [_compared(options, models, cards)])]
    _build_all(options, pages, failures + impossible)


def _fleet(options: argparse.Namespace) -> None:
    _from_environment(options, FLEET_VARIABLES)
    models, cards, failures = _members(options)
    if failures:
        raise InputError(failures[0])
    page = _compared(options, models, cards)
    _build_all(options, [page], [])
    print(os.path.relpath(folder(page) / "report.html"))


def _members(options: argparse.Namespace) -> tuple[Models, Cards, list[str]]:
    """The fleet's models and cards, and a line for each name that is none."""
    default = fleet_names() if None in (options.models, options.cards) else ([], [])
    models, cards = (
        entries(shelf, names if given is None else names_in(given, shelf))
        for shelf, given, names in zip((MODELS, HARDWARE), (options.models, options.cards), default, strict=True)
    )
    return models[0], cards[0], models[1] + cards[1]


def _compared(options: argparse.Namespace, models: Models, cards: Cards) -> Fleet:
    """The page that compares the pairs."""
    asked = {name: option for name, option in OPTIONS.items() if name in COMPARED} | {"target_ms": TARGET}
    return Fleet(models, cards, **_values(options, asked))


def _build_all(options: argparse.Namespace, pages: Sequence[Page], failures: Sequence[str]) -> None:
    """Build what is not up to date and say what came of it. Raises InputError where anything failed."""
    stale, failures = out_of_date(pages), list(failures)
    if stale or not index_is_there():
        jobs = options.jobs and whole_number("jobs", _whole_number("jobs", options.jobs), MOST_JOBS)
        failures += _jupyter("parallel").build_all(stale, jobs, options.scheduler and _address(options.scheduler))
    for failure in failures:
        print(f"kvprefetch: {failure}", file=sys.stderr)
    if failures:
        raise InputError(f"{len(failures)} failed; whatever else was asked for is there")
    index = os.path.relpath(folder(pages[0]).parent / "index.html")
    print(f"{index}: {len(stale)} built, {len(pages) - len(stale)} unchanged")


def _notebook(options: argparse.Namespace) -> None:
    print(os.path.relpath(_jupyter().working_copy(_request_of_make(options))))


def _jupyter(module: str = "report") -> ModuleType:
    """A module that runs notebooks: loaded only where it is needed, because that takes half a second."""
    try:
        return import_module(f"kvprefetch.{module}")
    except ModuleNotFoundError as error:
        raise InputError(f"reports need {error.name}; install them with: pip install 'kvprefetch[report]'") from None


def _request_of_make(options: argparse.Namespace) -> Request:
    """What was asked for, with the environment and the defaults in place of options not given."""
    _from_environment(options, {"model": "MODEL", "hw": "HW"})
    return _request(options)


def _from_environment(options: argparse.Namespace, variables: Mapping[str, str]) -> None:
    """Put what the environment says, or the default pair, in place of options not given."""
    for name, variable in (variables | {name: each.variable for name, each in PARAMETERS.items()}).items():
        if getattr(options, name) is None:
            setattr(options, name, os.environ.get(variable) or DEFAULT_PAIR.get(name))


def _request(options: argparse.Namespace) -> Request:
    """What was asked for, from the options as the user wrote them."""
    return Request(find(MODELS, options.model), find(HARDWARE, options.hw), **_values(options, OPTIONS))


def _values(options: argparse.Namespace, asked: Mapping[str, Option]) -> dict[str, object]:
    """The parameters that were given, read."""
    given = {name: text for name in asked if (text := getattr(options, name)) is not None}
    return {name: asked[name].read(asked[name].name, text) for name, text in given.items()}


def _whole_number(what: str, text: str, accepted: str = "a whole number") -> int:
    if re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
        return int(text)
    raise refusal(what, text, accepted)


def _whole_numbers(what: str, text: str) -> tuple[int, ...]:
    return tuple(_whole_number(what, part, "whole numbers, separated by commas") for part in text.split(","))


def _window(what: str, text: str) -> int | str:
    return AUTO if text.strip() == AUTO else _whole_number(what, text, f"a whole number, or {AUTO}")


def _decimal(what: str, text: str) -> float:
    if re.fullmatch(r"\s*[0-9]{0,9}\.?[0-9]{1,18}\s*", text):
        return float(text)
    raise refusal(what, text, "a number")


def _address(text: str) -> str:
    if re.fullmatch(r"(tcp|tls|ws|wss)://[^\s/]+:[0-9]{1,5}", text.strip()):
        return text.strip()
    raise refusal("scheduler", text, "the address of a running Dask scheduler, such as tcp://host:8786")


def _text(_: str, text: str) -> str:
    return text.strip()


class Option(NamedTuple):
    """How one parameter of a request is asked for."""

    name: str
    metavar: str
    read: Callable[[str, str], object]  # of its name and the text
    help: str


DEFAULT_PAIR = {"model": "llama3-8b", "hw": "a100"}
OPTIONS = {
    "batch": Option("batch", "N", _whole_number, "sequences decoded together (default 1)"),
    "depth": Option("depth", "N", _whole_number, "layers fetched ahead (default 1)"),
    "contexts": Option(
        "contexts", "N,N", _whole_numbers, "tokens in the cache, to sweep (default 512 to 32768, doubling)"
    ),
    "ctx_len": Option("ctx", "N", _whole_number, "the planner's context (default: the first that must offload)"),
    "resident": Option("resident", "N", _window, "newest tokens kept on the GPU, or auto: as many as fit (default 0)"),
    "reserve": Option("reserve", "SHARE", _decimal, "of the card's memory that stays free (default 0.1)"),
    "terms": Option("terms", "TEXT", _text, "first-order or refined, then field=value by comma (default first-order)"),
}
TARGET = Option("target", "MS", _decimal, "milliseconds that a step may take (default 50)")
FLEET_OPTIONS = {
    "models": Option(
        "models", "NAMES", _text, "names with blanks or commas between, or all (default params/fleet.yaml)"
    ),
    "cards": Option("hws", "NAMES", _text, "names with blanks or commas between, or all (default params/fleet.yaml)"),
    "target_ms": TARGET,
    "jobs": Option("jobs", "N", _whole_number, "worker processes (default: one a core)"),
    "scheduler": Option("scheduler", "ADDRESS", _text, "of a Dask scheduler, tcp://host:port, whose workers build"),
}
FLEET_VARIABLES = {"models": "MODELS", "cards": "HWS", "target_ms": "TARGET", "jobs": "JOBS", "scheduler": "SCHEDULER"}
COMPARED = ("batch", "depth", "reserve", "terms")  # parameters of a report that hold for the comparison too
MOST_JOBS = 1_000


def _answer(metrics: Metrics) -> str:
    best = max(metrics.sweep, key=lambda row: row.reduction_pct)
    return (
        f"{metrics.model_name} on {metrics.hardware_name}, batch {metrics.batch}, depth {metrics.depth}: "
        f"crossover {tokens(metrics.crossover_ctx)}; largest reduction swept {best.reduction_pct:.1f} % "
        f"at {tokens(best.ctx_len)} ({best.ondemand_ms:.2f} -> {best.prefetch_ms:.2f} ms)\n{metrics.plan.verdict[0]}"
    )


def _plan_lines(metrics: Metrics) -> Iterator[str]:
    """The plan for people: the verdict, then the figures it rests on."""
    plan = metrics.plan
    yield from (*plan.verdict, "")
    yield f"model      {metrics.model_name}"
    yield f"hardware   {metrics.hardware_name}"
    yield f"context    {tokens(plan.ctx_len)}, batch {metrics.batch}, depth {metrics.depth}, terms {metrics.terms}"
    if plan.usable_gb is not None:
        yield f"memory     {plan.usable_gb:.2f} GB after the reserve of {100 * plan.reserve:g} %"
        yield f"weights    {plan.weights_gb:.2f} GB"
        yield f"cache      {plan.kv_gb:.2f} GB, and {plan.state_gb:.2f} GB of recurrent state"
        reach = "every context" if plan.resident_ctx is None else f"{tokens(plan.resident_ctx)} at most"
        yield f"resident   {reach}; here batch {plan.resident_batch} at most"
    if plan.window_tokens is not None:
        yield f"window     {tokens(plan.window_tokens)} of every layer fit beside the buffers: {plan.window_ms:.2f} ms"
    yield f"host       {plan.host_gb:.2f} GB of pinned memory"
    yield ""
    yield f"{'on-demand ms':>12}  {'prefetch ms':>11}  {'resident ms':>11}  bound"
    yield f"{plan.ondemand_ms:>12.2f}  {plan.prefetch_ms:>11.2f}  {plan.resident_ms:>11.2f}  {plan.bound}"


def _lines(metrics: Metrics) -> Iterator[str]:
    """The sweep as a table for people."""
    yield f"model      {metrics.model_name}, {metrics.params:,} weights in its layers"
    yield f"hardware   {metrics.hardware_name}"
    yield f"batch      {metrics.batch}"
    yield f"depth      {metrics.depth}"
    if metrics.terms != FIRST_ORDER_TEXT:
        yield f"terms      {metrics.terms}"
    if metrics.resident_tokens:
        yield f"resident   the newest {tokens(metrics.resident_tokens)} of every layer"
    yield f"crossover  {tokens(metrics.crossover_ctx)}"
    yield ""
    yield f"{'ctx':>10}  {'on-demand ms':>12}  {'prefetch ms':>11}  {'reduction':>9}  {'speedup':>7}  bound"
    for row in metrics.sweep:
        yield (
            f"{row.ctx_len:>10}  {row.ondemand_ms:>12.2f}  {row.prefetch_ms:>11.2f}  "
            f"{row.reduction_pct:>7.1f} %  {row.speedup:>6.2f}x  {row.bound}"
        )
