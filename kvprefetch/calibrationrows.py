"""What has a user measured on a card of their own? The rows that `kvprefetch calibrate` fits a profile to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from kvprefetch import plainyaml
from kvprefetch.catalog import HARDWARE, MODELS, CatalogEntry, content_of, find, slug_of
from kvprefetch.checks import InputError, line_of_text, number, one_of, refusal, settle, whole_number
from kvprefetch.configs import ACHIEVED, LEAST_FIGURE, MOST_FIGURE, HardwareProfile, ModelConfig
from kvprefetch.layers import KV_BYTES, MOST_BATCH, MOST_CTX, MOST_PARAMS
from kvprefetch.measured import LEAST_MS, LEAST_RATE, MOST_MS, MOST_RATE
from kvprefetch.measurements import made_of, rows_of

MOST_ROWS = 1_000
MOST_CONDITIONS = 300  # characters


class Policy(StrEnum):
    """What was timed."""

    RESIDENT = "resident"  # a step with all KV on the GPU
    ONDEMAND = "on-demand"  # a step that waits for each layer's copy
    COPY = "copy"  # the copies of a step alone


@dataclass(frozen=True)
class Row:
    """One timing: of a step, or of its copies."""

    ctx_len: int  # tokens in the cache of one sequence
    policy: Policy
    step_ms: float | None = None  # a number once constructed
    tok_s: float | None = None  # tokens a second, of all sequences together; in place of step_ms
    batch: int = 1
    moved_bytes: float | None = None  # bytes that crossed the link; None: the cache's

    def __post_init__(self) -> None:
        settle(self, whole_number, "ctx_len", most=MOST_CTX)
        object.__setattr__(self, "policy", Policy(one_of("policy", self.policy, list(Policy))))
        settle(self, whole_number, "batch", most=MOST_BATCH)
        if (self.step_ms is None) == (self.tok_s is None):
            raise InputError("step_ms or tok_s: one of them, and not both")
        if self.step_ms is None:
            settle(self, number, "tok_s", least=LEAST_RATE, most=MOST_RATE)
            object.__setattr__(self, "step_ms", 1e3 * self.batch / self.tok_s)
        settle(self, number, "step_ms", least=LEAST_MS, most=MOST_MS)
        if self.moved_bytes is not None:
            settle(self, number, "moved_bytes", least=1, most=MOST_PARAMS)


@dataclass(frozen=True)
class Task:
    """What is to be fitted: rows, and the model and card that they are of."""

    name: str  # of the profile
    conditions: str  # engine, version, formats, date: what the profile's sources quote
    model: CatalogEntry[ModelConfig]
    card: CatalogEntry[HardwareProfile]  # its stated rates
    rows: tuple[Row, ...]
    kv_dtype: str = "fp16"
    weights_gb: float | None = None  # GB read in a step, LM head included; None: as the model's file says
    fit: tuple[str, ...] = ()  # figures to fit; none: all that the rows speak of but layer_overhead_us
    source: str = ""  # the file: its slug and digest

    def __post_init__(self) -> None:
        line_of_text("name", self.name, 100)
        line_of_text("conditions", self.conditions, MOST_CONDITIONS)
        one_of("kv_dtype", self.kv_dtype, KV_BYTES)
        if self.weights_gb is not None:
            settle(self, number, "weights_gb", least=LEAST_FIGURE, most=MOST_FIGURE)
        for figure in self.fit:
            one_of("fit", figure, ACHIEVED)
        if len(set(self.fit)) < len(self.fit):
            raise refusal("fit", list(self.fit), "each figure once")
        if len(self.rows) > MOST_ROWS:
            raise refusal("rows", f"{len(self.rows)} of them", f"at most {MOST_ROWS}")


def read_task(path: str) -> Task:
    """The task in a file of the user's. Raises InputError that names it as the user did."""
    try:
        content = content_of(Path(path))
        digest = hashlib.sha256(content).hexdigest()
        task = _task(plainyaml.mapping(content))
    except InputError as error:
        raise InputError(f"measurements {path}: {error}") from None
    return replace(task, source=f"{slug_of(Path(path).stem, digest)}.yaml")


def _task(given: dict[str, Any]) -> Task:
    if "source" in given:
        raise InputError("source: not a key; say in conditions how the rows were taken")
    values = dict(given)
    if "rows" in given:
        values["rows"] = rows_of(given["rows"], lambda row: made_of(row, Row))
    for key, shelf in (("model", MODELS), ("card", HARDWARE)):
        if key in given:
            values[key] = find(shelf, given[key])
    if not isinstance(given.get("fit", []), list):
        raise refusal("fit", given["fit"], f"a list of {' '.join(ACHIEVED)}")
    return made_of(values | {"fit": tuple(given.get("fit", ()))}, Task)
