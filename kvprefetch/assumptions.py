"""What does a config.json leave open, or hold without its being counted? Sentences that a report shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kvprefetch.blocks import Block
from kvprefetch.quantisation import Quantisation

SIZES = (  # what decides bytes: said where it comes from the class and not from the file
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"),
    *("intermediate_size", "moe_intermediate_size", "num_experts", "num_local_experts", "n_routed_experts"),
    *("num_experts_per_tok", "n_shared_experts", "decoder_sparse_step", "first_k_dense_replace"),
    *("kv_lora_rank", "q_lora_rank", "sliding_window", "num_kv_shared_layers", "full_attention_interval"),
    "max_position_embeddings",
)


# Keys that say, in one family or another, which layers are of which kind.
ORDER = re.compile(
    "layer_types|pattern|period|interval|block_type|dense_replace|(only|rope|window)_layers|indices|_step"
)


def assumptions(
    inner: dict[str, Any],
    text: Any,
    nested: bool,
    tied: bool | None,
    dtype: str | None,
    quantisation: Quantisation | None,
    stack: tuple[Block, ...],
) -> Iterator[str]:
    """What the file leaves open, or holds and is not counted: a sentence each. `tied` is None where it is not said."""
    if dtype is None:
        yield "The file states no dtype: 16-bit weights (bf16) are assumed."
    if dtype == "float32":
        yield "The file says float32: the weights are assumed to be served in bf16."
    if unstated := _unstated(inner, text):
        yield f"Not in the file, so taken from transformers' defaults for {text.model_type}: {', '.join(unstated)}."
    if len(set(stack)) > 1 and not any(ORDER.search(key) for key in inner):
        yield f"The file does not say which layer is of which kind: transformers' order for {text.model_type} is taken."
    if tied is None:
        yield f"The file does not say whether LM head and embeddings are one: {text.model_type}'s default is taken."
    if quantisation:
        what = "The routed experts' matrices" if quantisation.experts_only else "The layers' matrices"
        yield f"{what} are stored as {quantisation.method}, {quantisation.bits:g} bits a weight with scales."
    if nested:
        yield "Only the text model is counted, not what the file holds beside it."
    if inner.get("num_nextn_predict_layers") or inner.get("num_mtp_layers"):
        yield "Draft layers are not counted: a plain decode step does not run them."
    if any(block.mixer.state_values for block in stack):
        yield "Recurrent state is counted in f32."
    if any(block.mixer.kind == "shared-kv" for block in stack):
        yield "Layers that use an earlier layer's cache fetch nothing: that cache is assumed to be still on the GPU."


def _unstated(inner: dict[str, Any], text: Any) -> list[str]:
    """Sizes that the family's class filled in, with their values."""
    spelled = getattr(type(text), "attribute_map", {})
    fields, stored = type(text).__dataclass_fields__, vars(text)
    sizes = {name: stored.get(name, stored.get(spelled.get(name))) for name in SIZES if name in fields}
    return [
        f"{name} {size}"
        for name, size in sizes.items()
        if isinstance(size, int) and not {name, _alias(name, spelled)} & set(inner)
    ]


def _alias(name: str, spelled: dict[str, str]) -> str | None:
    """The other spelling of a field, where the class has one."""
    return spelled.get(name) or next((other for other, own in spelled.items() if own == name), None)
