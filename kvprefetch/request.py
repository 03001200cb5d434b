"""Which report is asked for, and under which name is it filed?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

from kvprefetch.capacity import DEFAULT_RESERVE, MOST_RESERVE, largest_window, usable_bytes
from kvprefetch.catalog import HARDWARE, MODELS, CatalogEntry, keep
from kvprefetch.checks import InputError, number, refusal, settle, whole_number
from kvprefetch.configs import FIRST_ORDER, HardwareProfile, ModelConfig, Terms
from kvprefetch.layers import MOST_BATCH, MOST_CTX
from kvprefetch.measurements import contents
from kvprefetch.outlook import Outlook, make_outlook
from kvprefetch.plan import Choice, Plan, make_plan, planner_ctx
from kvprefetch.planner import DEFAULT_CONTEXTS, contexts_in_order, crossover_ctx
from kvprefetch.reach import LEAST_TARGET, MOST_TARGET
from kvprefetch.termtext import FIRST_ORDER_TEXT, read_terms, terms_text
from kvprefetch.throughput import MOST_GENERATED

MOST_REPORT_DEPTH = 1_000  # a report also looks at the depths beyond
MOST_CROSSOVER = MOST_CTX // 4  # and at contexts beyond the crossover
MOST_PLANNED = MOST_CTX - MOST_GENERATED  # of the planner's context, so that a generation stays within MOST_CTX
MOST_CONTEXTS = 100  # rows of a table that is still read
MOST_SUFFIX = 60  # characters of a folder's name that spell parameters
ARTEFACTS = ("report.ipynb", "report.html", "metrics.json", "before_after.png")
AUTO = "auto"  # as resident: the largest window that fits at the planner's context


class Parameter(NamedTuple):
    """How one parameter is spelled: as make's variable, and in front of its value in a report's folder."""

    variable: str
    word: str


PARAMETERS = {
    "batch": Parameter("BATCH", "batch"),
    "depth": Parameter("DEPTH", "depth"),
    "contexts": Parameter("CONTEXTS", "ctx"),
    "ctx_len": Parameter("CTX", "at"),
    "resident": Parameter("RESIDENT", "resident"),
    "reserve": Parameter("RESERVE", "reserve"),
    "target_ms": Parameter("TARGET_MS", "target"),
    "generate": Parameter("GENERATE", "generate"),
    "terms": Parameter("TERMS", ""),
}


@dataclass(frozen=True)
class Request:
    """A pair and its parameters, checked on construction: the page that reports on it. Raises InputError."""

    notebook: ClassVar[str] = "report.ipynb"
    artefacts: ClassVar[tuple[str, ...]] = ARTEFACTS

    model: CatalogEntry[ModelConfig]
    hw: CatalogEntry[HardwareProfile]
    contexts: tuple[int, ...] | None = None  # to sweep; None: `default_contexts`. Ascending once constructed, each once
    batch: int = 1
    depth: int = 1
    ctx_len: int | None = None  # the planner's context; None: the first that must offload, within the model's limit
    resident: int | str | None = None  # newest tokens kept on the GPU, or AUTO; None: as `terms` say
    reserve: float = DEFAULT_RESERVE  # share of the card's memory that neither weights nor cache may take
    target_ms: float = 50.0  # latency of a step that is to be kept
    generate: int = 512  # tokens to generate from the planner's context on
    terms: str = FIRST_ORDER_TEXT  # as `termtext` reads it; its shortest form once constructed

    def __post_init__(self) -> None:
        settle(self, whole_number, "batch", most=MOST_BATCH)
        settle(self, whole_number, "depth", most=MOST_REPORT_DEPTH)
        settle(self, number, "reserve", least=0, most=MOST_RESERVE)
        settle(self, number, "target_ms", least=LEAST_TARGET, most=MOST_TARGET)
        settle(self, whole_number, "generate", most=MOST_GENERATED)
        if self.ctx_len is not None:
            settle(self, whole_number, "ctx_len", most=MOST_PLANNED)
        object.__setattr__(self, "terms", terms_text(self.terms, self.hw.config))
        contexts = self.default_contexts if self.contexts is None else contexts_in_order(self.contexts).tolist()
        object.__setattr__(self, "contexts", tuple(contexts))
        if len(self.contexts) > MOST_CONTEXTS:
            raise refusal("contexts", f"{len(self.contexts)} of them", f"at most {MOST_CONTEXTS}")
        if not any(layer.kv_values for layer in self.model.config.layers):
            raise refusal("model", "layers that cache nothing", "a model with a KV cache to offload")
        self._check_resident()
        for terms in (FIRST_ORDER, self.in_force):
            crossover = crossover_ctx(self.model.config, self.hw.config, self.batch, terms)
            if crossover is not None and crossover > MOST_CROSSOVER:
                accepted = f"a pair whose crossover is at most {MOST_CROSSOVER} tokens"
                raise refusal("model and hw", f"a crossover of {crossover} tokens", accepted)

    def _check_resident(self) -> None:
        if self.resident is None:
            return
        if read_terms(self.terms, self.hw.config).resident_tokens:
            raise InputError("resident: not together with resident_tokens in terms, which says the same")
        if self.resident != AUTO:
            settle(self, whole_number, "resident", least=0, most=MOST_CTX)
        elif self.hw.config.hbm_capacity_gb is None:
            raise refusal("resident", AUTO, "a number of tokens, as the card's file states no hbm_capacity_gb")

    @property
    def default_contexts(self) -> tuple[int, ...]:
        """512 to 32768, doubling; and the planner's context where that or a resident window is asked for."""
        if self.ctx_len is None and self.resident is None:
            return DEFAULT_CONTEXTS
        return tuple(sorted({*DEFAULT_CONTEXTS, self._planned_when(DEFAULT_CONTEXTS[-1])[0]}))

    @cached_property
    def in_force(self) -> Terms:
        """The terms that hold on the whole page, the resident window among them."""
        terms = read_terms(self.terms, self.hw.config)
        if self.resident != AUTO:
            return terms if self.resident is None else replace(terms, resident_tokens=self.resident)
        usable, (ctx_len, _) = usable_bytes(self.hw.config, self.reserve), self._planned
        window = largest_window(self.model.config, usable, ctx_len, self.batch, self.depth, terms)
        return replace(terms, resident_tokens=window or 0)

    @cached_property
    def plan(self) -> Plan:
        """The plan at the planner's context."""
        pair = self.model.config, self.hw.config
        return make_plan(*pair, *self._planned, self.batch, self.depth, self.in_force, self.reserve)

    @cached_property
    def outlook(self) -> Outlook:
        """What the plan would take, and how sure it is."""
        return make_outlook(self.model.config, self.hw.config, self.plan, self.target_ms, self.generate)

    @cached_property
    def _planned(self) -> tuple[int, Choice]:
        return self._planned_when(self.contexts[-1])

    def _planned_when(self, longest_swept: int) -> tuple[int, Choice]:
        if self.ctx_len is not None:
            return self.ctx_len, Choice.ASKED
        usable, kv_dtype = usable_bytes(self.hw.config, self.reserve), read_terms(self.terms, self.hw.config).kv_dtype
        ctx_len, choice = planner_ctx(self.model.config, usable, self.batch, kv_dtype, longest_swept)
        return (ctx_len, choice) if ctx_len <= MOST_PLANNED else (MOST_PLANNED, Choice.ASKED)

    @property
    def folder(self) -> str:
        """The report's folder below reports/: the pair, then what is not default."""
        spelled = ((PARAMETERS[name].word, text) for name, text in self._not_default())
        suffix = "-".join(word + text.replace(",", "-").replace("=", "-") for word, text in spelled)
        if len(suffix) > MOST_SUFFIX:
            suffix = hashlib.sha256(suffix.encode()).hexdigest()[:8]
        return "--".join(filter(None, (self.model.slug, self.hw.slug, suffix)))

    @property
    def inputs(self) -> tuple[bytes, ...]:
        """What the page depends on beside its notebook and the package: both files, and what its accuracy rests on."""
        return self.model.content, self.hw.content, self.command.encode(), *contents()

    def keep(self) -> None:
        """Keep copies of the user's files, so that the page can be run again from its slugs."""
        keep(MODELS, self.model)
        keep(HARDWARE, self.hw)

    @property
    def parameters(self) -> dict[str, str | int | float | list[int] | None]:
        """What Papermill injects: the files by their slugs, never by a path."""
        given = {name: getattr(self, name) for name in PARAMETERS}
        return {"model": self.model.slug, "hw": self.hw.slug, **given, "contexts": list(self.contexts)}

    @property
    def command(self) -> str:
        """The command that builds this report."""
        given = [f"{PARAMETERS[name].variable}={text}" for name, text in self._not_default()]
        return " ".join([f"make report MODEL={self.model.slug} HW={self.hw.slug}", *given])

    def _not_default(self) -> list[tuple[str, str]]:
        """Parameters that differ from their defaults, as text, in fixed order."""
        default = {field.name: field.default for field in fields(self)} | {"contexts": self.default_contexts}
        differing = [(name, value) for name in PARAMETERS if (value := getattr(self, name)) != default[name]]
        return [(name, ",".join(map(str, value)) if name == "contexts" else _text(value)) for name, value in differing]


def _text(value: object) -> str:
    """A parameter as it can be given again: numbers without an exponent."""
    if isinstance(value, float) and "e" in str(value):
        return f"{value:.18f}".rstrip("0").rstrip(".")
    return str(value).removesuffix(".0")
