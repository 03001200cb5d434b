"""A published config.json -> `ModelConfig`: right, or refused in one line.

transformers reads the file: its classes know each family's defaults, spellings and layer patterns. No
network, no remote code. What the file leaves open and was taken instead is said in `assumptions`.
"""

from __future__ import annotations

import json
import os
import re
from types import ModuleType
from typing import Any

from kvprefetch.assumptions import assumptions
from kvprefetch.blocks import BY_HAND, Block, unknown_family
from kvprefetch.checks import InputError, refusal, shown, whole_number
from kvprefetch.configs import ModelConfig
from kvprefetch.families import blocks, other_params
from kvprefetch.layers import MOST_LAYERS, MOST_WIDTH, WEIGHT_BYTES, Layer
from kvprefetch.quantisation import Precision, Quantisation, check_names, precision, stated

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "bf16", "float8_e4m3fn": "fp8"}
STATE_BYTES = 4  # a value of recurrent state: engines keep it in f32

# Families that nest a text model this reader counts; what else they hold takes no part in a decode step.
WRAPPERS = (
    *("gemma3", "gemma3n", "gemma4", "llama4", "mistral3", "muse_glimmer", "qwen3_5", "qwen3_5_moe"),
    *("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "llava", "llava_next", "aya_vision", "cohere2_vision"),
    *("internvl", "kimi_k25"),
)
SIZE_KEYS = re.compile(
    "(hidden_size|hidden_size_per_layer_input|vocab_size|intermediate_size|head_dim|_heads|_lora_rank|experts)$"
    "|^(sliding_window|n_embd|n_head|n_inner|d_model|d_ff|num_experts_per_tok)$"
    "|^(first_k_dense_replace|num_kv_shared_layers)$"
)
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def read_config(content: bytes, name: str) -> ModelConfig:
    """The model that the text of a config.json describes, under `name`. Raises InputError."""
    raw = _parsed(content)
    try:
        return _model(raw, name)
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{raw['model_type']}: a figure is missing or odd: {_line(error)}; {BY_HAND}") from None


def _model(raw: dict[str, Any], name: str) -> ModelConfig:
    inner = raw.get("text_config") if isinstance(raw.get("text_config"), dict) else raw
    dtype, quantisation, tied = _dtype(raw, inner), _quantisation(raw, inner), _tied(raw, inner)
    config, text = _classed(raw)
    if text is not config and config.model_type not in WRAPPERS:
        raise unknown_family(config.model_type)
    if inner.get("per_layer_config"):
        raise InputError(f"per_layer_config: layers that differ one by one are not read; {BY_HAND}")
    stack = blocks(text)
    said = _layer_count(inner)
    if said not in (None, len(stack)):
        raise InputError(f"{len(stack)} layers are laid out where the file counts {said}; {BY_HAND}")
    if quantisation:
        check_names(stack, quantisation)
    plain = WEIGHT_BYTES[DTYPES[dtype or "bfloat16"]]
    return ModelConfig(
        name=name,
        hidden_size=text.hidden_size,
        vocab_size=text.vocab_size,
        tie_word_embeddings=getattr(text, "tie_word_embeddings", False) if tied is None else tied,
        weight_dtype=DTYPES[dtype or "bfloat16"],
        layers=tuple(_layer(block, precision(block, index, plain, quantisation)) for index, block in enumerate(stack)),
        other_params=other_params(text),
        max_position_embeddings=getattr(text, "max_position_embeddings", None),
        assumptions=tuple(assumptions(inner, text, text is not config, tied, dtype, quantisation, stack)),
    )


def _layer(block: Block, precision: Precision) -> Layer:
    mixer, feed = block.mixer, block.feed
    return Layer(
        kind=mixer.kind,
        params=mixer.params + feed.mlp + feed.router,
        weight_bytes=mixer.params * precision.mixer + feed.mlp * precision.mlp + feed.router * precision.router,
        kv_values=mixer.kv_values,
        window=mixer.window,
        experts=feed.experts,
        experts_per_token=feed.experts_per_token,
        expert_params=feed.expert,
        expert_bytes=feed.expert * precision.expert,
        state_bytes=float(mixer.state_values * STATE_BYTES),
    )


def _parsed(content: bytes) -> dict[str, Any]:
    accepted = "a published config.json: one JSON object that states its model_type"
    try:
        raw = json.loads(content, object_pairs_hook=_unique)
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError(f"not readable as JSON; accepted: {accepted}") from None
    if not isinstance(raw, dict):
        raise refusal("content", raw, accepted)
    if not isinstance(raw.get("model_type"), str):
        raise refusal("model_type", raw.get("model_type"), accepted)
    for level in (raw, *(raw.get(key) for key in ("text_config", "attn_config", "ffn_config"))):
        if isinstance(level, dict):
            _check_sizes(level)
    return raw


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """One JSON object; a key that is there twice says two things."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise InputError(f"{shown(next(key for key in keys if keys.count(key) > 1))}: the key is there twice")
    return found


def _check_sizes(level: dict[str, Any]) -> None:
    """Raises InputError on a layer count or a size that no model has; none, null and 0 are the class's to judge."""
    for key, given in level.items():
        if key in LAYER_COUNTS and given is not None:
            whole_number(key, given, MOST_LAYERS)
        elif SIZE_KEYS.search(key):
            for size in given if isinstance(given, list) else [given]:
                if size is not None:
                    whole_number(key, size, MOST_WIDTH, least=0)


def _classed(raw: dict[str, Any]) -> tuple[Any, Any]:
    """The file, and the text model in it, in the family's own class: defaults, spellings, layer patterns resolved."""
    transformers, family = _transformers(), raw["model_type"]
    if family not in transformers.CONFIG_MAPPING:
        known = f"transformers {transformers.__version__} has no class for it, and remote code is not run; {BY_HAND}"
        raise InputError(f"model_type: got {shown(family)}; {known}")
    try:
        config = transformers.CONFIG_MAPPING[family].from_dict(_plain(raw))
        return config, config.get_text_config(decoder=True)
    except Exception as error:  # whatever the class raises about its file
        raise InputError(f"transformers cannot read it as {family}: {_line(error)}") from None


def _plain(raw: dict[str, Any]) -> dict[str, Any]:
    """The file less what classes check in detail and this reader needs not, or reads itself, at both levels."""
    apart = ("rope_scaling", "rope_parameters", "quantization_config", "attribute_map", "sub_configs")
    apart += ("num_labels", "id2label", "label2id", "use_return_dict")
    kept = {key: value for key, value in raw.items() if key not in apart}
    if isinstance(kept.get("text_config"), dict):
        kept["text_config"] = _plain(kept["text_config"])
    return kept


def _transformers() -> ModuleType:
    """The library, told to stay off the network and to say nothing about the absence of PyTorch."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")  # a refusal is one line
    try:
        import transformers
    except ModuleNotFoundError as error:
        what = f"a config.json is read with {error.name}, which is not installed"
        raise InputError(f"{what}; install it with: pip install 'kvprefetch[huggingface]'") from None
    return transformers


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _dtype(raw: dict[str, Any], inner: dict[str, Any]) -> str | None:
    """The dtype that the file states; None where it states none."""
    found = [level[key] for level in (raw, inner) for key in ("dtype", "torch_dtype") if level.get(key) is not None]
    if not found:
        return None
    if not isinstance(found[0], str) or found[0] not in DTYPES:
        raise refusal("dtype", found[0], " ".join(DTYPES))
    return found[0]


def _layer_count(inner: dict[str, Any]) -> int | None:
    return next((inner[key] for key in LAYER_COUNTS if inner.get(key) is not None), None)


def _quantisation(raw: dict[str, Any], inner: dict[str, Any]) -> Quantisation | None:
    for key in ("quantization", "compression_config"):
        if raw.get(key):
            raise InputError(f"{key}: only quantization_config is read; {BY_HAND}")
    given = raw.get("quantization_config") or inner.get("quantization_config")
    if given is not None and not isinstance(given, dict):
        raise refusal("quantization_config", given, "a JSON object")
    return stated(given) if given else None


def _tied(raw: dict[str, Any], inner: dict[str, Any]) -> bool | None:
    """Whether the LM head is the embedding matrix; None where the file does not say."""
    return next((level["tie_word_embeddings"] for level in (raw, inner) if "tie_word_embeddings" in level), None)
