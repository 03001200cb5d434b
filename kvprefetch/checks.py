"""Is this a value one can plan with?

Every check returns the value in its plain type or raises `InputError`, whose text is one
line: what it is, what was given, what is accepted and, for names, the nearest known one.
"""

from __future__ import annotations

import difflib
import math
import numbers
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


class InputError(ValueError):
    """Input that cannot be planned with."""


def refusal(what: str, given: object, accepted: str) -> InputError:
    """The error that says `what` was `given` and what is `accepted` instead."""
    return InputError(f"{what}: got {shown(given)}; accepted: {accepted}")


def shown(given: object) -> str:
    """`given` on one line and at most some 60 characters long."""
    if isinstance(given, int) and abs(given) >= 10**30:
        return f"a whole number of about {math.log10(abs(given)):.0f} digits"
    try:
        return " ".join(_short.repr(given).split())
    except ValueError:  # a number of thousands of digits inside something else
        return f"a {type(given).__name__}"


def whole_number(what: str, given: object, most: int, least: int = 1) -> int:
    """`given` as an int in least..most; a bool, a float or text is refused."""
    if isinstance(given, numbers.Integral) and not isinstance(given, bool) and least <= given <= most:
        return int(given)
    raise refusal(what, given, f"a whole number from {least} to {most}")


def number(what: str, given: object, least: float, most: float) -> float | int:
    """`given` as an int or a float in least..most; a bool, text, NaN or infinity is refused."""
    if isinstance(given, numbers.Real) and not isinstance(given, bool):
        plain = int(given) if isinstance(given, numbers.Integral) else float(given)  # wide enough to compare
        if least <= plain <= most:
            return plain
    raise refusal(what, given, f"a number from {least:g} to {most:g}")


def settle(config: object, check: Callable[..., object], *fields: str, **limits: float) -> None:
    """Put each field of a frozen dataclass through `check` and keep what it returns: the value in its plain type."""
    for field in fields:
        object.__setattr__(config, field, check(field, getattr(config, field), **limits))


def line_of_text(what: str, given: object, most: int) -> str:
    """`given` if it is one non-empty line of printable text of at most `most` characters."""
    if isinstance(given, str) and given.isprintable() and 0 < len(given.strip()) and len(given) <= most:
        return given
    raise refusal(what, given, f"one line of text, at most {most} characters")


def true_or_false(what: str, given: object) -> bool:
    """`given` if it is a bool."""
    if isinstance(given, bool):
        return given
    raise refusal(what, given, "true or false")


def one_of(what: str, given: object, known: Iterable[str]) -> str:
    """`given` if it is among the `known` names; else an error that lists them and the nearest."""
    names = list(known)
    if isinstance(given, str) and given in names:
        return given
    raise refusal(what, given, " ".join(names) + did_you_mean(given, names))


def did_you_mean(given: object, names: Iterable[str]) -> str:
    """A question that ends an error, with the nearest of the names; empty where none is near."""
    near = difflib.get_close_matches(str(given)[:100].lower(), names, n=1, cutoff=0.5)
    return f". Did you mean {near[0]}?" if near else ""


def checked_keys(given: Mapping[Any, Any], required: Iterable[str], optional: Iterable[str]) -> None:
    """Raises InputError unless every key of `given` is known and every required one is there."""
    required = list(required)
    known = [*required, *optional]
    for key in given:
        one_of("key", key, known)
    for key in required:
        if key not in given:
            raise InputError(f"{key}: missing; required: {' '.join(required)}")
