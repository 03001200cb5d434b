"""Which model, which card? A short name, a YAML file or a published config.json -> a checked configuration.

Short names are the files of params/models/ and params/hardware/. A value with a "/" in it, or
one that ends in .yaml or .json, is a path. Every figure of a card carries its source.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from kvprefetch import plainyaml
from kvprefetch.checks import InputError, checked_keys, did_you_mean, line_of_text, one_of, refusal
from kvprefetch.configs import HardwareProfile, ModelConfig
from kvprefetch.huggingface import read_config
from kvprefetch.modelfile import MOST_SOURCE, read_model
from kvprefetch.paths import DATA, workspace

MOST_BYTES = 1_000_000  # of one file: hundreds of times the largest useful one

Config = TypeVar("Config", ModelConfig, HardwareProfile)


@dataclass(frozen=True)
class Source:
    """Where a figure comes from."""

    figure: str  # the field's name; "model" where one source gives all of them
    text: str


@dataclass(frozen=True)
class CatalogEntry(Generic[Config]):
    """One configuration file, read and checked."""

    slug: str  # the short name; for a file of the user's, its stem (a config.json: its folder's name) and 8 hex digits
    digest: str  # SHA-256 of `content`, hex
    content: bytes  # the file, byte for byte
    config: Config
    sources: tuple[Source, ...]
    suffix: str = ".yaml"  # ".json" where the file is a published config.json


@dataclass(frozen=True)
class Shelf(Generic[Config]):
    """One kind of configuration: what messages call it, where its files lie, how one is read."""

    word: str
    folder: str
    listing: str  # the command that lists it
    read: Callable[[dict[str, Any]], tuple[Config, tuple[Source, ...]]]
    read_published: Callable[[bytes, str], tuple[Config, tuple[Source, ...]]] | None = None  # of a .json and a name


def load_model(name_or_path: str) -> ModelConfig:
    """The model of a short name ("llama3-8b"), a YAML file or a published config.json. Raises InputError."""
    return find(MODELS, name_or_path).config


def load_hardware(name_or_path: str) -> HardwareProfile:
    """The card of a short name ("a100") or of a YAML file. Raises InputError."""
    return find(HARDWARE, name_or_path).config


def short_names(shelf: Shelf[Config]) -> list[str]:
    """The catalogue's names, sorted."""
    return sorted(path.stem for path in (DATA / shelf.folder).glob("*.yaml"))


def find(shelf: Shelf[Config], name_or_path: str) -> CatalogEntry[Config]:
    """The entry of a short name, a path, or the slug of a file kept by `keep`. Raises InputError."""
    line_of_text(shelf.word, name_or_path, 4096)
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".json")):
        return _read(shelf, Path(name_or_path), name_or_path, slug=None)
    if re.fullmatch(r"[a-z0-9.-]{0,41}[0-9a-f]{8}", name_or_path):
        for path in (_kept(shelf, name_or_path, suffix) for suffix in (".yaml", ".json")):
            if path.is_file():
                return _read(shelf, path, name_or_path, name_or_path)
    names = short_names(shelf)
    if name_or_path not in names:
        accepted = f"a path, or one of the {len(names)} names that {shelf.listing} lists"
        raise refusal(shelf.word, name_or_path, accepted + did_you_mean(name_or_path, names))
    file = f"{shelf.folder}/{name_or_path}.yaml"
    return _read(shelf, DATA / file, file, name_or_path)


def keep(shelf: Shelf[Config], entry: CatalogEntry[Config]) -> None:
    """Copy a file of the user's into the workspace's cache, where `find` finds it by its slug.

    A report names its inputs by slug alone, never by a path, and can be run again.
    """
    if entry.slug not in short_names(shelf):
        path = _kept(shelf, entry.slug, entry.suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(entry.content)


def _kept(shelf: Shelf[Config], slug: str, suffix: str) -> Path:
    return workspace() / ".cache" / shelf.folder / f"{slug}{suffix}"


def _read(shelf: Shelf[Config], path: Path, shown_as: str, slug: str | None) -> CatalogEntry[Config]:
    published = shelf.read_published if path.suffix == ".json" else None
    try:
        content = content_of(path)
        digest = hashlib.sha256(content).hexdigest()
        stem = path.resolve().parent.name if published and path.name == "config.json" else path.stem
        slug = slug or slug_of(stem, digest)
        config, sources = published(content, slug[:-9] or slug) if published else shelf.read(plainyaml.mapping(content))
    except InputError as error:
        raise InputError(f"{shelf.word} {shown_as}: {error}") from None
    return CatalogEntry(slug, digest, content, config, sources, ".json" if published else ".yaml")


def slug_of(stem: str, digest: str) -> str:
    """The name of a file of the user's: letters of its stem, and 8 digits of its digest."""
    letters = re.sub(r"[^a-z0-9.-]+", "-", stem.lower())[:40].strip(".-")
    return f"{letters}-{digest[:8]}".lstrip("-")


def content_of(path: Path) -> bytes:
    """The content of a file of the user's, of a size that a configuration may have. Raises InputError."""
    try:
        if not path.is_file():
            given = "a folder" if path.is_dir() else "not a file" if path.exists() else "no such file"
            raise refusal("path", given, "a file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise refusal("size", "a larger file", f"at most {MOST_BYTES} bytes")
    return content


def _read_model(given: dict[str, Any]) -> tuple[ModelConfig, tuple[Source, ...]]:
    config, source = read_model(given)
    return config, (Source("model", source),)


def _read_published(content: bytes, name: str) -> tuple[ModelConfig, tuple[Source, ...]]:
    from importlib.metadata import version  # here, because it takes as long to load as all else together

    config = read_config(content, name)
    source = f"a published config.json (SHA-256 {hashlib.sha256(content).hexdigest()[:16]}), read with transformers"
    return config, (Source("model", f"{source} {version('transformers')}"),)


def _read_hardware(given: dict[str, Any]) -> tuple[HardwareProfile, tuple[Source, ...]]:
    required = [field.name for field in fields(HardwareProfile) if field.default is MISSING]
    optional = [field.name for field in fields(HardwareProfile) if field.default is not MISSING]
    checked_keys(given, (*required, "sources"), optional)
    values = {key: value for key, value in given.items() if key != "sources"}
    config = HardwareProfile(**values)
    figures = [figure for figure in values if figure != "name"]
    texts = given["sources"]
    if not isinstance(texts, dict):
        raise refusal("sources", texts, f"one source for each of {' '.join(figures)}")
    for figure in texts:
        one_of("sources", figure, figures)
    for figure in figures:
        if figure not in texts:
            raise InputError(f"sources: {figure} has none; accepted: one source for each of {' '.join(figures)}")
    return config, tuple(Source(key, line_of_text(f"sources.{key}", texts[key], MOST_SOURCE)) for key in figures)


MODELS = Shelf("model", "params/models", "kvprefetch models", _read_model, _read_published)
HARDWARE = Shelf("hw", "params/hardware", "kvprefetch cards", _read_hardware)
