"""The catalogue's file of one model: read, and written for any model.

A file gives the dense fields, or `layers:`: groups in order, each `{count, ...fields of Layer}` or
`{count, layers: [groups]}` for a pattern that repeats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from itertools import groupby
from typing import Any

import yaml

from kvprefetch.checks import InputError, checked_keys, line_of_text, refusal, whole_number
from kvprefetch.configs import STACK, ModelConfig
from kvprefetch.layers import MOST_LAYERS, Layer

MOST_SOURCE = 1_000  # characters of one source
REQUIRED = ("name", "source", "hidden_size", "vocab_size")
DENSE = ("num_hidden_layers", "num_attention_heads", "intermediate_size")
LONGEST_PATTERN = 64  # layers of a repeating pattern that is looked for


def read_model(given: dict[str, Any]) -> tuple[ModelConfig, str]:
    """The model, and where its figures come from. Raises InputError."""
    own = ("layers",) if "layers" in given else DENSE
    optional = [field.name for field in fields(ModelConfig) if field.name not in (*REQUIRED, *own)]
    if "layers" in given:
        optional = [name for name in optional if name not in STACK]
    checked_keys(given, (*REQUIRED, *own), optional)
    values = {key: value for key, value in given.items() if key != "source"}
    if "layers" in given:
        values["layers"] = _layers(given["layers"], "layers", nested=False)
    if "assumptions" in given:
        if not isinstance(given["assumptions"], list):
            raise refusal("assumptions", given["assumptions"], "a list of sentences")
        values["assumptions"] = tuple(given["assumptions"])
    return ModelConfig(**values), line_of_text("source", given["source"], MOST_SOURCE)


def model_yaml(model: ModelConfig, source: str) -> str:
    """The catalogue file that reads as `model`: its layers as groups."""
    values: dict[str, Any] = {"name": model.name, "source": source}
    for field in fields(ModelConfig):
        value = getattr(model, field.name)
        if field.name not in ("name", "layers", *STACK) and value != field.default:
            values[field.name] = list(value) if isinstance(value, tuple) else value
    style = {"sort_keys": False, "allow_unicode": True, "width": 110}
    head = yaml.safe_dump(values, default_flow_style=False, **style)
    return head + yaml.safe_dump({"layers": list(_groups(model.layers))}, default_flow_style=None, **style)


def description(model: ModelConfig) -> Iterator[str]:
    """The model in a few lines for people."""
    yield f"model        {model.name}"
    for layer, count in Counter(model.layers).items():
        window = f", window {layer.window:,}" if layer.window else ""
        experts = f", {layer.experts_per_token} of {layer.experts} experts a token" if layer.experts else ""
        yield f"layers       {count} {layer.kind}{window}, {layer.kv_values:,} values cached a token{experts}"
    yield f"params       {model.params:,} in the layers, {model.active_params:,} of them read for one token"
    yield f"in all       {model.total_params:,} with embeddings and LM head"
    grows = sum(layer.kv_values for layer in model.layers if layer.window is None)
    beyond = "" if grows == model.kv_bytes(1) / 2 else f", {2 * grows:,} beyond every window"
    yield f"KV           {model.kv_bytes(1):,.0f} bytes a token in 16 bits{beyond}"
    if state := model.state_bytes:
        yield f"state        {state:,.0f} bytes a sequence"
    if model.max_position_embeddings:
        yield f"made for     {model.max_position_embeddings:,} tokens of context"
    for sentence in model.assumptions:
        yield f"assumed      {sentence}"


def _layers(groups: Any, what: str, nested: bool) -> tuple[Layer, ...]:
    """The layers of `groups`, each as often as it says."""
    layers: list[Layer] = []
    if not isinstance(groups, list) or not groups:
        raise refusal(what, groups, "a list of groups: {count, ...fields of a layer}")
    for number, group in enumerate(groups, 1):
        try:
            one = _group(group, nested)
            count = whole_number("count", group["count"], MOST_LAYERS // len(one))
        except InputError as error:
            raise InputError(f"{what}, group {number}: {error}") from None
        layers += one * count
        if len(layers) > MOST_LAYERS:
            raise refusal(what, "more layers", f"1 to {MOST_LAYERS} of them")
    return tuple(layers)


def _group(group: Any, nested: bool) -> tuple[Layer, ...]:
    """One group's layers, once."""
    if not isinstance(group, dict):
        raise refusal("content", group, "keys and values")
    if "layers" in group and not nested:
        checked_keys(group, ("count", "layers"), ())
        return _layers(group["layers"], "layers", nested=True)
    required = [field.name for field in fields(Layer) if field.default is MISSING]
    checked_keys(group, ("count", *required), [field.name for field in fields(Layer) if field.name not in required])
    return (Layer(**{key: value for key, value in group.items() if key != "count"}),)


def _groups(layers: tuple[Layer, ...]) -> Iterator[dict[str, Any]]:
    """`layers` as groups in order: runs of equal layers, and patterns that repeat."""
    at = 0
    while at < len(layers):
        length, count = _pattern(layers[at:])
        pattern = layers[at : at + length]
        if length == 1:
            yield _run(pattern[0], count)
        else:
            yield {"count": count, "layers": [_run(layer, len(list(run))) for layer, run in groupby(pattern)]}
        at += length * count


def _pattern(layers: tuple[Layer, ...]) -> tuple[int, int]:
    """Length and count of the repeating pattern that covers most of the front of `layers`, the shortest such."""
    best = (1, 1)
    for length in range(1, min(LONGEST_PATTERN, len(layers)) + 1):
        count = 1
        while layers[length * count : length * (count + 1)] == layers[:length]:
            count += 1
        if (count > 1 or length == 1) and length * count > best[0] * best[1]:
            best = (length, count)
        if best[0] * best[1] == len(layers):
            break
    return best


def _run(layer: Layer, count: int) -> dict[str, Any]:
    return {"count": count} | {
        field.name: getattr(layer, field.name) for field in fields(Layer) if _is_said(field, layer)
    }


def _is_said(field: Field[Any], layer: Layer) -> bool:
    return field.default is MISSING or getattr(layer, field.name) != field.default
