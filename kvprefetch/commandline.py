"""What was asked for on the command line, and what is printed in answer."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from kvprefetch.calibration import calibrate
from kvprefetch.calibrationrows import read_task
from kvprefetch.catalog import HARDWARE, MODELS, CatalogEntry, find, short_names
from kvprefetch.checks import InputError, line_of_text, whole_number
from kvprefetch.configs import HardwareProfile, ModelConfig
from kvprefetch.fleet import Fleet, entries, fleet_names, names_in, requests
from kvprefetch.metrics import as_json, from_json, measure, planned
from kvprefetch.modelfile import description, model_yaml
from kvprefetch.options import (
    COMPARED,
    DEFAULT_PAIR,
    FLEET_OPTIONS,
    FLEET_VARIABLES,
    MOST_JOBS,
    OPTIONS,
    Option,
    address,
    digits,
)
from kvprefetch.planner import crossover_ctx
from kvprefetch.printing import answer, plan_lines, sweep_lines
from kvprefetch.profile import profile_yaml, summary
from kvprefetch.publish import Page, folder, index_is_there, out_of_date, up_to_date, write_whole
from kvprefetch.request import PARAMETERS, Request
from kvprefetch.stops import undisturbed
from kvprefetch.validation import predictions
from kvprefetch.validationpage import ValidationPage
from kvprefetch.validationprose import trust

MOST_PATH = 4096  # characters
REPORT_PACKAGES = (
    *("papermill", "ipykernel", "nbconvert", "jinja2", "lxml", "latex2mathml", "matplotlib", "simpy", "joblib"),
)
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
        required=True,
        metavar="plan | sweep | crossover | report | reports | fleet | notebook | calibrate | validation | "
        "model | models | cards",
    )
    from_environment = "What is not given is taken from the variables {}, as make sets them."
    parameters = [each.variable for each in PARAMETERS.values()]
    variables = " ".join(["MODEL", "HW", *parameters])
    for name, run, needed, unused, text in (
        ("plan", _plan, True, (), "print whether to offload, how much, and what would help"),
        ("sweep", _sweep, True, ("target_ms", "generate"), "print the latency of both policies by context"),
        (
            *("crossover", _crossover, True, ("contexts", "target_ms", "generate")),
            "print the context from which on the link is the bound",
        ),
        ("report", _report, False, (), "build reports/<model>--<hw>/"),
        ("notebook", _notebook, False, (), "make a working copy of the notebook"),
    ):
        command = commands.add_parser(
            name, help=text, allow_abbrev=False, description=None if needed else from_environment.format(variables)
        )
        command.set_defaults(run=run)
        command.add_argument(
            "--model", metavar="NAME", required=needed, help="short name, or path to a YAML or config.json"
        )
        command.add_argument("--hw", metavar="NAME", required=needed, help="short name, or path to a YAML file")
        for parameter, option in ((name, OPTIONS[name]) for name in OPTIONS if name not in unused):
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
    fit = commands.add_parser("calibrate", help="fit a card's profile to measured steps", allow_abbrev=False)
    fit.set_defaults(run=_calibrate)
    fit.add_argument("--measurements", metavar="FILE", required=True, help="YAML with rows, model and card")
    fit.add_argument("--output", metavar="FILE", help="write the profile there (default: print it)")
    validation = commands.add_parser("validation", help="build reports/validation/: predictions against measurements")
    validation.set_defaults(run=_validation)
    for name, run, text in (("models", _models, "list the models by short name"), ("cards", _cards, "list the cards")):
        commands.add_parser(name, help=text, allow_abbrev=False).set_defaults(run=run)
    return grammar


def _plan(options: argparse.Namespace) -> None:
    request = _request(options)
    print(as_json(planned(request)) if options.json else _text(plan_lines(request)), end="")


def _sweep(options: argparse.Namespace) -> None:
    request = _request(options)
    print(as_json(measure(request)) if options.json else _text(sweep_lines(request)), end="")


def _crossover(options: argparse.Namespace) -> None:
    request = _request(options)
    crossover = crossover_ctx(request.model.config, request.hw.config, request.batch, request.in_force)
    print("none" if crossover is None else crossover)


def _model(options: argparse.Namespace) -> None:
    entry = find(MODELS, options.model)
    print(model_yaml(entry.config, entry.sources[0].text) if options.yaml else _text(description(entry.config)), end="")


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


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
    made = _make(request)
    try:
        metrics = from_json((folder(request) / "metrics.json").read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError, RecursionError):  # somebody has edited it
        metrics = measure(request)
    print(f"{answer(metrics)}\n{_where(request, made)}")


def _make(page: Page) -> bool:
    """Make the page where it or the index is out of date; whether it was made."""
    return not (up_to_date(page) and index_is_there()) and _jupyter("report").build(page)


def _where(page: Page, made: bool) -> str:
    """Where the page is, and whether it was there already."""
    return os.path.relpath(folder(page) / "report.html") + ("" if made else " (unchanged)")


def _calibrate(options: argparse.Namespace) -> None:
    found = calibrate(read_task(line_of_text("measurements", options.measurements, MOST_PATH)))
    if options.output is None:
        print(profile_yaml(found), end="")
        return
    output = Path(line_of_text("output", options.output, MOST_PATH))
    if output.exists() and output.samefile(options.measurements):
        raise InputError(f"output {output}: the measurements lie there; accepted: another file")
    write_whole(output, profile_yaml(found))
    print("\n".join(summary(found)))


def _validation(_: argparse.Namespace) -> None:
    page = ValidationPage()
    made = _make(page)
    for sentence in trust(predictions()):
        print(sentence.replace("*", ""))
    print(_where(page, made))


def _reports(options: argparse.Namespace) -> None:
    _from_environment(options, FLEET_VARIABLES)
    models, cards, failures = _members(options)
    pairs, impossible = requests(models, cards, _values(options, OPTIONS))
    pages = [*pairs, *([] if failures else [_compared(options, models, cards)])]
    stale = _build_all(options, pages, failures + impossible)
    index = os.path.relpath(folder(pages[0]).parent / "index.html")
    print(f"{index}: of {len(pages)} pages, {len(stale)} built, {len(pages) - len(stale)} unchanged")


def _fleet(options: argparse.Namespace) -> None:
    _from_environment(options, FLEET_VARIABLES)
    models, cards, failures = _members(options)
    if failures:
        raise InputError(failures[0])
    page = _compared(options, models, cards)
    print(_where(page, made=bool(_build_all(options, [page], []))))


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
    asked = {name: option for name, option in OPTIONS.items() if name in COMPARED}
    return Fleet(models, cards, **_values(options, asked))


def _build_all(options: argparse.Namespace, pages: Sequence[Page], failures: Sequence[str]) -> list[Page]:
    """Build what is not up to date and return it. Raises InputError where anything failed, a line for each before."""
    jobs = options.jobs and whole_number("jobs", digits("jobs", options.jobs), MOST_JOBS)
    scheduler = options.scheduler and address(options.scheduler)
    stale, failures = out_of_date(pages), list(failures)
    if stale or not index_is_there():
        failures += _jupyter("parallel").build_all(stale, jobs, scheduler)
    for failure in failures:
        print(f"kvprefetch: {failure}", file=sys.stderr)
    if failures:
        raise InputError(f"{len(failures)} failed; whatever else was asked for is there")
    return stale


def _notebook(options: argparse.Namespace) -> None:
    print(os.path.relpath(_jupyter("execution").working_copy(_request_of_make(options))))


def _jupyter(module: str) -> ModuleType:
    """A module that runs notebooks: loaded only where it is needed, because that takes half a second.

    Raises InputError that names a package which reports need and have not. Packages are looked up, not loaded.
    """
    for package in REPORT_PACKAGES:
        if find_spec(package) is None:
            raise InputError(f"reports need {package}; install them with: pip install 'kvprefetch[report]'")
    with undisturbed():
        return import_module(f"kvprefetch.{module}")


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
    given = {name: text for name in asked if (text := getattr(options, name, None)) is not None}
    return {name: asked[name].read(asked[name].name, text) for name, text in given.items()}
