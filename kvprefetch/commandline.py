"""What was asked for on the command line, and what is printed in answer."""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, NoReturn

from kvprefetch.calibration import calibrate
from kvprefetch.calibrationrows import read_task
from kvprefetch.catalog import HARDWARE, MODELS, find, short_names
from kvprefetch.checks import InputError, refusal
from kvprefetch.metrics import as_json, from_json, measure, planned
from kvprefetch.modelfile import description, model_yaml
from kvprefetch.planner import crossover_ctx
from kvprefetch.printing import answer, plan_lines, sweep_lines
from kvprefetch.profile import profile_yaml, summary
from kvprefetch.publish import folder, index_is_there, up_to_date
from kvprefetch.request import AUTO, PARAMETERS, Request
from kvprefetch.validation import predictions
from kvprefetch.validationpage import ValidationPage
from kvprefetch.validationprose import trust


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
        metavar="plan | sweep | crossover | report | notebook | calibrate | validation | model | models | cards",
    )
    variables = " ".join(["MODEL", "HW", *(each.variable for each in PARAMETERS.values())])
    from_environment = f"What is not given is taken from the variables {variables}, as make sets them."
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
            name, help=text, allow_abbrev=False, description=None if needed else from_environment
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
    model = commands.add_parser("model", help="describe a model", allow_abbrev=False)
    model.set_defaults(run=_model)
    model.add_argument("model", metavar="NAME", help="short name, or path to a YAML file or a published config.json")
    model.add_argument("--yaml", action="store_true", help="print it as a file of the catalogue")
    calibrate = commands.add_parser("calibrate", help="fit a card's profile to measured steps", allow_abbrev=False)
    calibrate.set_defaults(run=_calibrate)
    calibrate.add_argument("--measurements", metavar="FILE", required=True, help="YAML with rows, model and card")
    calibrate.add_argument("--output", metavar="FILE", help="write the profile there (default: print it)")
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
    made = not (up_to_date(request) and index_is_there()) and _jupyter().build(request)
    page = os.path.relpath(folder(request) / "report.html")
    try:
        metrics = from_json((folder(request) / "metrics.json").read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError):  # somebody has edited it
        metrics = measure(request)
    print(f"{answer(metrics)}\n{page}{'' if made else ' (unchanged)'}")


def _calibrate(options: argparse.Namespace) -> None:
    found = calibrate(read_task(options.measurements))
    if options.output is None:
        print(profile_yaml(found), end="")
        return
    try:
        Path(options.output).write_text(profile_yaml(found), encoding="utf-8")
    except OSError as error:
        raise InputError(f"output {options.output}: cannot be written: {error.strerror}") from None
    print("\n".join(summary(found)))


def _validation(_: argparse.Namespace) -> None:
    page = ValidationPage()
    made = not (up_to_date(page) and index_is_there()) and _jupyter().build(page)
    for sentence in trust(predictions()):
        print(sentence.replace("*", ""))
    print(f"{os.path.relpath(folder(page) / 'report.html')}{'' if made else ' (unchanged)'}")


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
    variables = {"model": "MODEL", "hw": "HW", **{name: each.variable for name, each in PARAMETERS.items()}}
    for name, variable in variables.items():
        if getattr(options, name) is None:
            setattr(options, name, os.environ.get(variable) or DEFAULT_PAIR.get(name))
    return _request(options)


def _request(options: argparse.Namespace) -> Request:
    """What was asked for, from the options as the user wrote them."""
    given = {name: text for name in OPTIONS if (text := getattr(options, name, None)) is not None}
    values = {name: OPTIONS[name].read(OPTIONS[name].name, text) for name, text in given.items()}
    return Request(find(MODELS, options.model), find(HARDWARE, options.hw), **values)


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


def _stripped(_: str, text: str) -> str:
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
    "target_ms": Option("target-ms", "MS", _decimal, "latency of a step that is to be kept (default 50)"),
    "generate": Option(
        "generate", "N", _whole_number, "tokens to generate from the planner's context on (default 512)"
    ),
    "terms": Option(
        "terms", "TEXT", _stripped, "first-order or refined, then field=value by comma (default first-order)"
    ),
}
