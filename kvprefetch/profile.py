"""A calibration as a file of the catalogue: the card's stated rates, what it achieves, and whence each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from kvprefetch import plainyaml
from kvprefetch.calibration import Calibration, Fitted
from kvprefetch.configs import EFFICIENCIES, HardwareProfile

DIGITS = 4  # significant ones, of a fitted figure


def profile(found: Calibration) -> HardwareProfile:
    """The card with what was fitted."""
    values = {each.name: float(f"{each.value:.{DIGITS}g}") for each in found.fitted}
    return replace(found.task.card.config, name=found.task.name, **values)


def profile_yaml(found: Calibration) -> str:
    """The file that reads as `profile`: residuals and confidence above as comments, sources with each figure."""
    card, fitted = profile(found), {each.name: each for each in found.fitted}
    stated = {source.figure: source.text for source in found.task.card.sources}
    values = {field.name: value for field in fields(card) if (value := getattr(card, field.name)) is not None}
    sources = {
        name: _source(found, fitted[name]) if name in fitted else stated[name] for name in values if name != "name"
    }
    comments = "".join(f"# {line}".rstrip() + "\n" for line in summary(found))
    return comments + plainyaml.text(values | {"sources": sources})


def summary(found: Calibration) -> Iterator[str]:
    """The fit in lines for people: each figure with its confidence, each row with its residual."""
    task = found.task
    yield f"{task.name}: fitted to {len(task.rows)} rows of {task.source}"
    for each in found.fitted:
        yield f"{each.name:<22}{each.value:>9.{DIGITS}g}  {_confidence(each)}"
    yield ""
    yield f"{'policy':<10}{'context':>9}{'batch':>6}{'measured ms':>13}{'fitted ms':>11}{'residual':>10}"
    for row, ms, residual in zip(task.rows, found.fitted_ms, found.residuals_pct, strict=True):
        yield f"{row.policy:<10}{row.ctx_len:>9}{row.batch:>6}{row.step_ms:>13.2f}{ms:>11.2f}{residual:>+8.2f} %"


def _confidence(each: Fitted) -> str:
    if each.at_bound:
        if each.name in EFFICIENCIES and each.value < 1:
            return "at its bound: the rows ask for less than that"
        return "at its bound: the rows ask for more than the stated rate, or for less than nothing"
    return "no confidence: as many figures as rows" if each.error is None else f"± {each.error:.2g} standard error"


def _source(found: Calibration, each: Fitted) -> str:
    worst = max(found.residuals_pct, key=abs)
    return (
        f"measured: fitted by kvprefetch calibrate to {len(found.task.rows)} rows of {found.task.source}, "
        f"{_confidence(each)}, worst residual {worst:+.2f} %; {found.task.model.config.name}, {found.task.conditions}"
    )
