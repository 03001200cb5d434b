"""Which report is asked for, and under which name is it filed?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

from kvprefetch.catalog import CatalogEntry
from kvprefetch.checks import refusal, settle, whole_number
from kvprefetch.configs import HardwareProfile, ModelConfig
from kvprefetch.planner import DEFAULT_CONTEXTS, MOST_BATCH, MOST_CTX, contexts_in_order, crossover_ctx

MOST_REPORT_DEPTH = 1_000  # a report also looks at the depths beyond
MOST_CROSSOVER = MOST_CTX // 4  # and at contexts beyond the crossover
MOST_CONTEXTS = 100  # rows of a table that is still read
MOST_SUFFIX = 60  # characters of a folder's name that spell parameters


@dataclass(frozen=True)
class Request:
    """A pair and its parameters, checked on construction. Raises InputError."""

    model: CatalogEntry[ModelConfig]
    hw: CatalogEntry[HardwareProfile]
    contexts: tuple[int, ...] = DEFAULT_CONTEXTS  # ascending once constructed, each once
    batch: int = 1
    depth: int = 1

    def __post_init__(self) -> None:
        settle(self, whole_number, "batch", most=MOST_BATCH)
        settle(self, whole_number, "depth", most=MOST_REPORT_DEPTH)
        object.__setattr__(self, "contexts", tuple(contexts_in_order(self.contexts).tolist()))
        if len(self.contexts) > MOST_CONTEXTS:
            raise refusal("contexts", f"{len(self.contexts)} of them", f"at most {MOST_CONTEXTS}")
        if not any(layer.kv_values for layer in self.model.config.layers):
            raise refusal("model", "layers that cache nothing", "a model with a KV cache to offload")
        crossover = crossover_ctx(self.model.config, self.hw.config, self.batch)
        if crossover is not None and crossover > MOST_CROSSOVER:
            accepted = f"a pair whose crossover is at most {MOST_CROSSOVER} tokens"
            raise refusal("model and hw", f"a crossover of {crossover} tokens", accepted)

    @property
    def folder(self) -> str:
        """The report's folder below reports/: the pair, then what is not default."""
        suffix = "-".join(name + "-".join(map(str, values)) for name, values in self._not_default())
        if len(suffix) > MOST_SUFFIX:
            suffix = hashlib.sha256(suffix.encode()).hexdigest()[:8]
        return "--".join(filter(None, (self.model.slug, self.hw.slug, suffix)))

    @property
    def parameters(self) -> dict[str, str | int | list[int]]:
        """What Papermill injects: the files by their slugs, never by a path."""
        return {
            "model": self.model.slug,
            "hw": self.hw.slug,
            "contexts": list(self.contexts),
            "batch": self.batch,
            "depth": self.depth,
        }

    @property
    def command(self) -> str:
        """The command that builds this report."""
        variables = {"batch": "BATCH", "depth": "DEPTH", "ctx": "CONTEXTS"}
        given = [f"{variables[name]}={','.join(map(str, values))}" for name, values in self._not_default()]
        return " ".join([f"make report MODEL={self.model.slug} HW={self.hw.slug}", *given])

    def _not_default(self) -> list[tuple[str, tuple[int, ...]]]:
        """Parameters that differ from their defaults, by the names that folders spell, in fixed order."""
        default = {field.name: field.default for field in fields(self)}
        asked = (
            ("batch", self.batch != default["batch"], (self.batch,)),
            ("depth", self.depth != default["depth"], (self.depth,)),
            ("ctx", self.contexts != default["contexts"], self.contexts),
        )
        return [(name, values) for name, differs, values in asked if differs]
