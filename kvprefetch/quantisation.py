"""How many bytes does each part of a quantised checkpoint's layer take a weight?

The file's quantization_config states the bits and names what is left as it was. Scales and zero points
count: they are read with the weights. What is not understood in full is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvprefetch.blocks import BY_HAND, Block
from kvprefetch.checks import InputError, shown

MXFP4_BITS = 4 + 8 / 32  # a weight: one 8-bit scale for 32 weights of 4 bits

# The large matrices of each part as checkpoints name them; a part may be stored in one way or another.
ATTENTION = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    ("self_attn.qkv_proj", "self_attn.o_proj"),
)
MIXERS = {
    **dict.fromkeys(("full", "sliding", "chunked"), ATTENTION),
    "mla": (
        tuple(f"self_attn.{name}" for name in ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")),
        tuple(f"self_attn.{name}" for name in ("q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")),
    ),
    "linear": (
        ("linear_attn.in_proj_qkvz", "linear_attn.out_proj"),
        ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"),
    ),
    "shared-kv": (("self_attn.q_proj", "self_attn.o_proj"),),
}


def _mlp(*places: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(f"{place}.{name}_proj" for name in ("gate", "up", "down")) for place in places)


DENSE = (*_mlp("mlp", "feed_forward"), ("mlp.gate_up_proj", "mlp.down_proj"))
SHARED = _mlp("mlp.shared_expert", "mlp.shared_experts", "feed_forward.shared_expert")
EXPERTS = (*_mlp("mlp.experts.0", "feed_forward.experts.0"), ("block_sparse_moe.experts.0.w1",), ("mlp.experts",))
# What may be named as left alone without a change to any of those: it is outside the layers, or small.
ELSEWHERE = re.compile(
    r"head|embed|norm|bias|visual|vision|audio|mtp|project[io]r|merger|router|gate$|gate\."
    r"|conv1d|in_proj_(a|b|ba)$|eh_proj"
)

# A pattern with repeats of repeats, or with many of them, can take a matcher for ever.
SLOW = re.compile(r"\)[*+?]|\{|([*+?][^*+?]*){5}")


@dataclass(frozen=True)
class Precision:
    """Bytes a weight of each part of one layer."""

    mixer: float
    mlp: float
    router: float
    expert: float


@dataclass(frozen=True)
class Quantisation:
    """What a quantization_config says."""

    method: str
    bits: float  # a weight, scales and zero points included
    experts_only: bool
    kept: tuple[str, ...]  # modules left as they were, as the file names them


def stated(given: Mapping[str, Any]) -> Quantisation:
    """The `quantization_config` of a file. Raises InputError on one that is not understood in full."""
    method = given.get("quant_method")
    kept = given.get("modules_to_not_convert") or given.get("ignored_layers") or given.get("ignore") or []
    if not isinstance(kept, list) or not all(isinstance(name, str) for name in kept):
        raise _unknown("modules_to_not_convert", kept)
    for name in kept:
        if len(name) > 200 or SLOW.search(name):
            raise _unknown("modules_to_not_convert", name)
    if method in ("fp8", "fbgemm_fp8") and given.get("expert_dtype", "fp8") == "fp8":
        bits: float = 8
    elif method == "mxfp4":
        bits = MXFP4_BITS
    elif method in ("gptq", "awq"):
        bits = _grouped_bits(given.get("bits"), given.get("group_size"), zero_point=True)
    elif method == "compressed-tensors" and given.get("format") != "dense":
        bits = _compressed(given.get("config_groups"))
    else:
        raise _unknown("quant_method", method)
    for key in ("dynamic", "modules_in_block_to_quantize", "modules_to_convert", "lm_head", "sparsity_config"):
        if given.get(key):
            raise _unknown(key, given[key])
    return Quantisation(method, bits, method == "mxfp4", tuple(kept))


def precision(block: Block, index: int, plain: float, quantisation: Quantisation | None) -> Precision:
    """Bytes a weight in layer `index`; `plain` is that of what is not quantised."""
    if quantisation is None:
        return Precision(plain, plain, plain, plain)
    small = quantisation.bits / 8
    if quantisation.experts_only:
        if not block.feed.experts:
            raise InputError(f"quantization_config: {quantisation.method} is known for routed experts alone; {BY_HAND}")
        return Precision(plain, plain, plain, small)
    if block.mixer.kind not in MIXERS:
        raise InputError(f"quantization_config: not known for layers of kind {block.mixer.kind}; {BY_HAND}")
    mlp = SHARED if block.feed.experts else DENSE
    parts = (MIXERS[block.mixer.kind], mlp, EXPERTS)
    mixer, mlp, expert = (plain if _is_kept(part, index, quantisation.kept) else small for part in parts)
    return Precision(mixer, mlp, router=plain, expert=expert)


def check_names(blocks: tuple[Block, ...], quantisation: Quantisation) -> None:
    """Raises InputError if the file leaves something alone that is no part of a layer this reader knows."""
    parts = (*MIXERS.values(), DENSE, SHARED, EXPERTS)
    names = {name for part in parts for alternative in part for name in alternative}
    for entry in quantisation.kept:
        number = re.search(r"layers\.(\d+)(?:\.|$)", entry)
        index = int(number[1]) if number else 0
        if index >= len(blocks) or ELSEWHERE.search(entry.removesuffix("$")):  # beyond the last: a draft layer's
            continue
        if not any(_names(entry, _module(index, name)) for name in names):
            raise _unknown("modules left as they are", entry)


def _grouped_bits(bits: Any, group_size: Any, zero_point: bool) -> float:
    """Bits a weight with a 16-bit scale, and a zero point of the weights' bits, for each group; -1: a group a row."""
    if bits not in (2, 3, 4, 8) or not isinstance(group_size, int) or not (group_size == -1 or group_size >= 16):
        raise _unknown("bits and group_size", (bits, group_size))
    return bits if group_size == -1 else bits + (16 + (bits if zero_point else 0)) / group_size


def _compressed(groups: Any) -> float:
    group = next(iter(groups.values())) if isinstance(groups, Mapping) and len(groups) == 1 else None
    weights = group.get("weights") if isinstance(group, Mapping) and group.get("targets") == ["Linear"] else None
    if not isinstance(weights, Mapping):
        raise _unknown("config_groups", groups)
    if weights.get("strategy") in ("tensor", "channel", "block") and weights.get("num_bits") in (4, 8):
        return weights["num_bits"]
    if weights.get("strategy") == "group" and weights.get("type") == "int":
        return _grouped_bits(weights.get("num_bits"), weights.get("group_size"), not weights.get("symmetric", True))
    raise _unknown("config_groups", weights)


def _is_kept(part: tuple[tuple[str, ...], ...], index: int, kept: tuple[str, ...]) -> bool:
    """Whether every matrix of a part is left as it was; some of them only is refused."""
    named = [
        [any(_names(entry, _module(index, name)) for entry in kept) for name in alternative] for alternative in part
    ]
    if any(all(alternative) for alternative in named):
        return True
    if any(any(alternative) for alternative in named):
        raise _unknown("modules left as they are", f"some of {part[0][0].split('.')[0]} in layer {index}")
    return False


def _module(index: int, name: str) -> str:
    return f"model.layers.{index}.{name}"


def _names(entry: str, module: str) -> bool:
    """Whether an entry names a module or a part of the model that holds it: in full, in part, or as a pattern."""
    entry = re.sub(r"^(model\.)?(language_model|backbone)\.(model\.)?", "model.", entry)
    if f".{entry}." in f".{module}.":
        return True
    try:
        return bool(re.match(rf"(?:{entry.removeprefix('re:')})(?:(?<=\.)|(?=\.|$))", module))
    except (re.error, OverflowError, RecursionError):
        return False


def _unknown(what: str, given: object) -> InputError:
    return InputError(f"quantization_config: {what}: got {shown(given)}, which this reader does not know; {BY_HAND}")
