"""The validation as a page: its notebook, what it depends on, and its figures for a machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kvprefetch.accuracy import accuracies
from kvprefetch.checks import refusal, whole_number
from kvprefetch.measurements import contents
from kvprefetch.validation import predictions

TITLE = "Predictions against published measurements"
DEFAULT_BANDS = (10, 25)  # per cent around exact agreement, drawn in the charts
MOST_BANDS = 2


@dataclass(frozen=True)
class ValidationPage:
    """The page that holds predictions against measurements. Raises InputError on bands that cannot be drawn."""

    folder: ClassVar[str] = "validation"
    notebook: ClassVar[str] = "validation.ipynb"
    artefacts: ClassVar[tuple[str, ...]] = ("report.ipynb", "report.html", "metrics.json")

    bands: tuple[int, ...] = DEFAULT_BANDS

    def __post_init__(self) -> None:
        if not 1 <= len(self.bands) <= MOST_BANDS:
            raise refusal("bands", f"{len(self.bands)} of them", f"1 to {MOST_BANDS}")
        object.__setattr__(self, "bands", tuple(whole_number("bands", band, most=90) for band in self.bands))

    @property
    def parameters(self) -> Mapping[str, object]:
        """What Papermill injects."""
        return {"bands": list(self.bands)}

    @property
    def inputs(self) -> tuple[bytes, ...]:
        """The measurements, and the models and cards they are held against."""
        return (*contents(), repr(self.bands).encode())

    def keep(self) -> None:
        """Nothing of the user's is named."""


def as_json() -> str:
    """The content of metrics.json: the errors by kind and way, then every row; full precision, a final newline."""
    made = predictions()
    figures = {
        "title": TITLE,
        "accuracy": [
            {
                "kind": each.kind,
                "way": each.way,
                "rows": len(each.errors_pct),
                "median_pct": each.median_pct,
                "bias_pct": each.bias_pct,
                "worst_pct": each.worst_pct,
            }
            for each in accuracies(made)
        ],
        "rows": [
            {
                "document": each.document.slug,
                "name": each.row.name,
                "kind": each.row.kind,
                "ctx_len": each.row.ctx_len,
                "batch": each.row.batch,
                "way": each.way,
                "measured_ms": 1e3 * each.row.step_s,
                "predicted_ms": 1e3 * each.step_s,
                "error_pct": each.error_pct,
                "within_pct": each.within_pct,
            }
            for each in made
        ],
    }
    return json.dumps(figures, indent=2, ensure_ascii=False) + "\n"
