"""Which options does the command line have, and how is the text of each read?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from kvprefetch.checks import refusal
from kvprefetch.request import AUTO


def digits(what: str, text: str, accepted: str = "a whole number without a sign") -> int:
    if re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
        return int(text)
    raise refusal(what, text, accepted)


def whole_numbers(what: str, text: str) -> tuple[int, ...]:
    return tuple(digits(what, part, "whole numbers, separated by commas") for part in text.split(","))


def window(what: str, text: str) -> int | str:
    return AUTO if text.strip() == AUTO else digits(what, text, f"a whole number, or {AUTO}")


def decimal(what: str, text: str) -> float:
    if re.fullmatch(r"\s*[0-9]{0,10}\.?[0-9]{1,18}\s*", text):
        return float(text)
    raise refusal(what, text, "a number")


def address(text: str) -> str:
    if re.fullmatch(r"(tcp|tls|ws|wss)://[^\s/]+:[0-9]{1,5}", text.strip()):
        return text.strip()
    raise refusal("scheduler", text, "the address of a running Dask scheduler, such as tcp://host:8786")


def stripped(_: str, text: str) -> str:
    return text.strip()


class Option(NamedTuple):
    """How one parameter of a request is asked for."""

    name: str
    metavar: str
    read: Callable[[str, str], object]  # of its name and the text
    help: str


DEFAULT_PAIR = {"model": "llama3-8b", "hw": "a100"}
OPTIONS = {
    "batch": Option("batch", "N", digits, "sequences decoded together (default 1)"),
    "depth": Option("depth", "N", digits, "layers fetched ahead (default 1)"),
    "contexts": Option(
        "contexts", "N,N", whole_numbers, "tokens in the cache, to sweep (default 512 to 32768, doubling)"
    ),
    "ctx_len": Option("ctx", "N", digits, "the planner's context (default: the first that must offload)"),
    "resident": Option("resident", "N", window, "newest tokens kept on the GPU, or auto: as many as fit (default 0)"),
    "reserve": Option("reserve", "SHARE", decimal, "of the card's memory that stays free (default 0.1)"),
    "target_ms": Option("target-ms", "MS", decimal, "latency of a step that is to be kept (default 50)"),
    "generate": Option("generate", "N", digits, "tokens to generate from the planner's context on (default 512)"),
    "terms": Option(
        "terms", "TEXT", stripped, "first-order or refined, then field=value by comma (default first-order)"
    ),
}
FLEET_OPTIONS = {
    "models": Option(
        "models", "NAMES", stripped, "names with blanks or commas between, or all (default params/fleet.yaml)"
    ),
    "cards": Option(
        "hws", "NAMES", stripped, "names with blanks or commas between, or all (default params/fleet.yaml)"
    ),
    "jobs": Option("jobs", "N", digits, "worker processes (default: one a core)"),
    "scheduler": Option("scheduler", "ADDRESS", stripped, "of a Dask scheduler, tcp://host:port, whose workers build"),
}
FLEET_VARIABLES = {"models": "MODELS", "cards": "HWS", "jobs": "JOBS", "scheduler": "SCHEDULER"}
COMPARED = ("batch", "depth", "reserve", "target_ms", "terms")  # parameters of a report that the comparison shares
MOST_JOBS = 1_000
