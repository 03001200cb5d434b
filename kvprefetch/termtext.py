"""Which terms does a line of text ask for? "refined,kv_dtype=q8_0": a base, then single fields by name."""

from __future__ import annotations

from dataclasses import fields, replace

from kvprefetch.checks import InputError, one_of, refusal
from kvprefetch.configs import FIRST_ORDER, HardwareProfile, Terms, refined

FIRST_ORDER_TEXT, REFINED_TEXT = BASES = ("first-order", "refined")
MOST_TEXT = 1_000  # characters


def read_terms(text: str, hw: HardwareProfile) -> Terms:
    """The terms of `text`: first-order or refined (first-order where none is named), then field=value. InputError."""
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise refusal("terms", text, "first-order or refined, then field=value, separated by commas")
    parts = [part.strip() for part in text.split(",")]
    base = one_of("terms", parts.pop(0), BASES) if "=" not in parts[0] else FIRST_ORDER_TEXT
    overrides: dict[str, object] = {}
    kinds = {field.name: type(field.default) for field in fields(Terms)}
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        one_of("terms", name, kinds)
        if not equals:
            raise refusal("terms", part, f"{name}=value")
        if name in overrides:
            raise InputError(f"terms: {name} is there twice")
        overrides[name] = _value(name, value, kinds[name])
    return replace(base_terms(base, hw), **overrides)


def base_terms(base: str, hw: HardwareProfile) -> Terms:
    """The terms that one of BASES stands for on this card."""
    return refined(hw) if base == REFINED_TEXT else FIRST_ORDER


def terms_text(text: str, hw: HardwareProfile) -> str:
    """The shortest text that asks for the same terms as `text`: its base, and what differs from it, in field order."""
    terms = read_terms(text, hw)
    base = text.split(",")[0].strip() if "=" not in text.split(",")[0] else FIRST_ORDER_TEXT
    plain = base_terms(base, hw)
    differing = [name for name in vars(terms) if getattr(terms, name) != getattr(plain, name)]
    return ",".join([base, *(f"{name}={_text(getattr(terms, name))}" for name in differing)])


def _value(name: str, text: str, kind: type) -> object:
    """The text of a field as its type; the field's own check judges the value."""
    if kind is bool:
        return one_of(name, text, ("true", "false")) == "true"
    if kind is str:
        return text
    try:
        if not text.isascii() or "_" in text:  # which Python reads too, and no other option does
            raise ValueError
        return kind(text)
    except ValueError:
        raise refusal(name, text, {int: "a whole number", float: "a number"}[kind]) from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")
