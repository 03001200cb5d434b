import json
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvprefetch import InputError, ModelConfig
from kvprefetch.families import FAMILIES
from kvprefetch.huggingface import WRAPPERS, read_config
from kvprefetch.modelfile import model_yaml, read_model

pytest.importorskip("transformers")

TINY = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "dtype": "bfloat16"}
TINY |= {"max_position_embeddings": 512}
LLAMA = {"model_type": "llama", **TINY, "num_key_value_heads": 2, "intermediate_size": 128}
LLAMA |= {"tie_word_embeddings": False}
MOE = {"model_type": "mixtral", **TINY, "num_key_value_heads": 2, "intermediate_size": 96, "num_local_experts": 8}
MLA = {"kv_lora_rank": 32, "q_lora_rank": 48, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 24}
DEEPSEEK = {"model_type": "deepseek_v3", **TINY, **MLA, "intermediate_size": 128, "moe_intermediate_size": 32}
DEEPSEEK |= {"n_routed_experts": 16, "num_experts_per_tok": 4, "n_shared_experts": 2, "first_k_dense_replace": 1}
NEMOTRON = {"model_type": "nemotron_h", "hybrid_override_pattern": "M-*E", "hidden_size": 64, "vocab_size": 100}
NEMOTRON |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128}
NEMOTRON |= {"mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 32, "n_groups": 2, "conv_kernel": 4}
NEMOTRON |= {"n_routed_experts": 4, "moe_intermediate_size": 48, "moe_shared_expert_intermediate_size": 40}


def read(config, **change):
    return read_config(json.dumps({**config, **change}).encode(), "any")


def cached(model):
    """Kind, window and values cached a token, a layer."""
    return [(layer.kind, layer.window, layer.kv_values) for layer in model.layers]


# What each way to spell a geometry comes to: worked out by hand.
FULL = ("full", None, 2 * 2 * 16)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, [FULL] * 4),
        ({**LLAMA, "num_key_value_heads": None}, [("full", None, 2 * 4 * 16)] * 4),
        ({**LLAMA, "num_key_value_heads": 1}, [("full", None, 2 * 16)] * 4),
        ({**LLAMA, "head_dim": 48}, [("full", None, 2 * 2 * 48)] * 4),
        ({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 4, "vocab_size": 100}, [("full", None, 128)] * 4),
        ({"model_type": "gpt_bigcode", "n_embd": 64, "n_head": 4, "n_layer": 2}, [("full", None, 2 * 16)] * 2),
        (
            {"model_type": "gpt_bigcode", "n_embd": 64, "n_head": 4, "n_layer": 2, "multi_query": False},
            [("full", None, 128)] * 2,
        ),
        ({"model_type": "falcon", **TINY}, [("full", None, 2 * 16)] * 4),
        ({"model_type": "falcon", **TINY, "multi_query": False}, [("full", None, 2 * 64)] * 4),
        ({"model_type": "falcon", **TINY, "new_decoder_architecture": True, "num_kv_heads": 2}, [FULL] * 4),
        ({**LLAMA, "model_type": "mistral", "sliding_window": 32}, [("sliding", 32, 64)] * 4),
        ({**LLAMA, "model_type": "mistral", "sliding_window": None}, [FULL] * 4),
        ({**LLAMA, "model_type": "qwen2", "use_sliding_window": False, "sliding_window": 32}, [FULL] * 4),
        (
            {**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 32, "max_window_layers": 3},
            [FULL] * 3 + [("sliding", 32, 64)],
        ),
        ({**LLAMA, "model_type": "gemma2", "head_dim": 16, "sliding_window": 32}, [("sliding", 32, 64), FULL] * 2),
        (
            {**LLAMA, "model_type": "gemma3_text", "head_dim": 16, "sliding_window": 32, "sliding_window_pattern": 3},
            [("sliding", 32, 64)] * 2 + [FULL] + [("sliding", 32, 64)],
        ),
        (
            {
                **LLAMA,
                "model_type": "olmo3",
                "sliding_window": 32,
                "layer_types": ["full_attention", "sliding_attention"] * 2,
            },
            [FULL, ("sliding", 32, 64)] * 2,
        ),
        (
            {**LLAMA, "model_type": "llama4_text", "head_dim": 16, "attention_chunk_size": 32},
            [("chunked", 32, 64)] * 3 + [FULL],
        ),
        (DEEPSEEK, [("mla", None, 32 + 8)] * 4),
        (
            {"model_type": "mimo_v2_flash", **TINY, "num_key_value_heads": 2, "head_dim": 24, "v_head_dim": 16}
            | {"sliding_window": 32},
            [("full", None, 2 * 40)] + [("sliding", 32, 4 * 40)] * 3,
        ),
        (
            {"model_type": "qwen3_next", **TINY, "num_key_value_heads": 2, "head_dim": 16},
            [("linear", None, 0)] * 3 + [FULL],
        ),
        (
            {
                "model_type": "qwen3_5_text",
                **TINY,
                "head_dim": 16,
                "num_key_value_heads": 2,
                "full_attention_interval": 2,
            },
            [("linear", None, 0), FULL] * 2,
        ),
        (
            {**LLAMA, "model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 1},
            [("mamba", None, 0), FULL] * 2,
        ),
        (
            {**LLAMA, "model_type": "bamba", "attn_layer_indices": [2]},
            [("mamba", None, 0)] * 2 + [FULL, ("mamba", None, 0)],
        ),
        (
            {**LLAMA, "model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"] * 2},
            [("mamba", None, 0), FULL] * 2,
        ),
        (NEMOTRON, [("mamba", None, 0), ("mlp", None, 0), FULL, ("moe", None, 0)]),
        ({**LLAMA, "model_type": "falcon_h1"}, [("full+mamba", None, 64)] * 4),
        (
            {"model_type": "gemma3n_text", **TINY, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 32}
            | {"num_kv_shared_layers": 2, "layer_types": ["sliding_attention", "full_attention"] * 2},
            [("sliding", 32, 64), FULL] + [("shared-kv", None, 0)] * 2,
        ),
        (
            {"model_type": "gemma4_text", **TINY, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32}
            | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "sliding_window": 32}
            | {"layer_types": ["sliding_attention", "full_attention"] * 2},
            [("sliding", 32, 2 * 2 * 16), ("full", None, 2 * 32)] * 2,
        ),
        (
            {
                "model_type": "gemma3",
                "text_config": {**LLAMA, "model_type": "gemma3_text", "head_dim": 16, "sliding_window": 32},
            },
            [("sliding", 32, 64)] * 4,
        ),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else "",
)
def test_the_cache_is_what_the_file_means(config, expected):
    assert cached(read(config)) == expected


# Weights of one layer, worked out by hand from the shapes of its matrices.
ATTENTION = 64 * 64 * 2 + 64 * 32 * 2


@pytest.mark.parametrize(
    ("config", "index", "params", "expert"),
    [
        (LLAMA, 0, ATTENTION + 3 * 64 * 128, 0),
        ({**LLAMA, "head_dim": 48}, 0, 64 * 192 * 2 + 64 * 96 * 2 + 3 * 64 * 128, 0),
        ({"model_type": "opt", **TINY, "ffn_dim": 200, "word_embed_proj_dim": 64}, 0, 4 * 64 * 64 + 2 * 64 * 200, 0),
        ({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 4}, 0, 4 * 64 * 64 + 8 * 64 * 64, 0),
        ({"model_type": "falcon", **TINY}, 0, 64 * (64 + 2 * 16) + 64 * 64 + 8 * 64 * 64, 0),
        (MOE, 0, ATTENTION + 64 * 8, 3 * 64 * 96),
        (
            {"model_type": "qwen2_moe", **TINY, "num_key_value_heads": 2, "num_experts": 8, "moe_intermediate_size": 48}
            | {"shared_expert_intermediate_size": 80},
            0,
            ATTENTION + 64 * 8 + 3 * 64 * 80 + 64,
            3 * 64 * 48,
        ),
        (
            {"model_type": "qwen3_moe", **TINY, "num_key_value_heads": 2, "head_dim": 16, "mlp_only_layers": [0]}
            | {"intermediate_size": 128},
            0,
            ATTENTION + 3 * 64 * 128,
            0,
        ),
        (
            DEEPSEEK,
            0,
            48 * (64 + 4 * 24) + 64 * (32 + 8) + 32 * 4 * (16 + 24) + 4 * 24 * 64 + 3 * 64 * 128,
            0,
        ),
        (
            {**DEEPSEEK, "q_lora_rank": None},
            1,
            64 * 4 * 24 + 64 * (32 + 8) + 32 * 4 * (16 + 24) + 4 * 24 * 64 + 64 * 16 + 3 * 64 * 2 * 32,
            3 * 64 * 32,
        ),
        (
            {"model_type": "qwen3_next", **TINY, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 0}
            | {"intermediate_size": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
            | {"linear_key_head_dim": 8, "linear_value_head_dim": 8},
            3,
            ATTENTION + 64 * 64 + 3 * 64 * 128,
            0,
        ),
        (NEMOTRON, 0, 64 * (128 + 128 + 2 * 2 * 32 + 8) + 4 * (128 + 128) + 128 * 64, 0),
        (NEMOTRON, 1, 2 * 64 * 128, 0),
        (NEMOTRON, 2, ATTENTION, 0),
        (NEMOTRON, 3, 64 * 4 + 2 * 64 * 40, 2 * 64 * 48),
    ],
)
def test_weights_are_those_of_the_matrices(config, index, params, expert):
    layer = read(config).layers[index]
    assert (layer.params, layer.expert_params) == (params, expert)


def test_recurrent_layers_keep_a_constant_state_in_f32():
    mamba = read(NEMOTRON).layers[0]
    assert mamba.state_bytes == 4 * (8 * 16 * 32 + 3 * (128 + 2 * 2 * 32))
    assert read(NEMOTRON).assumptions[-1] == "Recurrent state is counted in f32."


@pytest.mark.parametrize(
    ("change", "dtype", "said"),
    [
        ({}, "bf16", ()),
        ({"dtype": None, "torch_dtype": "float16"}, "fp16", ()),
        ({"dtype": "float32"}, "bf16", ("The file says float32: the weights are assumed to be served in bf16.",)),
        ({"dtype": None}, "bf16", ("The file states no dtype: 16-bit weights (bf16) are assumed.",)),
    ],
)
def test_the_weights_dtype_is_the_files_or_said_to_be_assumed(change, dtype, said):
    model = read(LLAMA, **change, head_dim=16)
    assert (model.weight_dtype, model.assumptions) == (dtype, said)
    assert model.layers[0].weight_bytes == 2 * model.layers[0].params


def test_sizes_from_the_class_and_not_the_file_are_said():
    said = read(LLAMA, num_key_value_heads=None).assumptions
    assert said == ("Not in the file, so taken from transformers' defaults for llama: head_dim 16.",)
    assert "num_attention_heads 8, num_key_value_heads 4" in read({"model_type": "gemma3"}).assumptions[1]


ORDERED = {
    **{"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 1000, "sliding_window": 8},
    **{"layer_types": ["sliding_attention", "full_attention"] * 3, "tie_word_embeddings": False, "dtype": "float16"},
    "max_position_embeddings": 512,
}
SPARSE = {
    **{"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 1000, "num_experts": 8},
    **{"num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 2, "mlp_only_layers": [1]},
    **{"tie_word_embeddings": True, "dtype": "bfloat16", "max_position_embeddings": 512},
}


SAYS_NOTHING = {"model_type", "mlp_only_layers"}  # the second lists exceptions: without it there are none


@pytest.mark.parametrize(
    ("config", "left_out"),
    [(config, key) for config in (ORDERED, SPARSE) for key in config if key not in SAYS_NOTHING],
    ids=lambda value: value if isinstance(value, str) else value["model_type"],
)
def test_what_a_file_leaves_out_is_said_wherever_it_changes_the_model(config, left_out):
    whole = read(config)
    assert whole.assumptions == ()
    try:
        partial = read({key: value for key, value in config.items() if key != left_out})
    except InputError:
        return
    assert partial.assumptions or partial == whole


@pytest.mark.parametrize(
    "stray",
    [
        {"sliding_window": 32},
        {"attribute_map": {"hidden_size": "vocab_size"}},
        {"num_labels": 10**9},
        {"id2label": {"0": "a"}, "sub_configs": {"a": 1}},
    ],
    ids=" ".join,
)
def test_a_key_that_the_family_does_not_know_changes_nothing(stray):
    assert read(LLAMA, **stray) == read(LLAMA)


def test_a_window_that_the_file_turns_off_is_off():
    mistral = {**LLAMA, "model_type": "mistral", "sliding_window": 32}
    assert cached(read(mistral, use_sliding_window=False)) == [FULL] * 4


@pytest.mark.parametrize("stray", [{"max_position_embeddings": 7, "layer_types": 3}, {"hidden_act": 5}])
def test_nothing_is_printed_beside_the_error(stray, capfd):
    with pytest.raises(InputError):
        read(LLAMA, **stray)
    assert capfd.readouterr() == ("", "")


def test_tied_embeddings_are_the_files_or_the_familys():
    assert not read(LLAMA).tie_word_embeddings
    assert read(LLAMA, tie_word_embeddings=True).tie_word_embeddings
    assert read({"model_type": "gpt2"}).tie_word_embeddings
    nested = {"model_type": "gemma3", "text_config": {"tie_word_embeddings": False}}
    assert not read(nested).tie_word_embeddings


SMALLER = {
    "fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": -1}, 4),
    "compressed": (
        {"quant_method": "compressed-tensors", "ignore": ["lm_head"]}
        | {"config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "strategy": "channel"}}}},
        8,
    ),
    "grouped": (
        {"quant_method": "compressed-tensors"}
        | {
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64},
                }
            }
        },
        4 + 16 / 64,
    ),
}


@pytest.mark.parametrize("method", SMALLER)
def test_a_quantised_checkpoint_has_its_own_bits(method):
    given_config, bits = SMALLER[method]
    layer = read(MOE, quantization_config=given_config).layers[0]
    assert layer.expert_bytes == layer.expert_params * bits / 8
    assert layer.weight_bytes == ATTENTION * bits / 8 + 2 * 64 * 8  # the router stays as it was


@pytest.mark.parametrize(
    "kept",
    [
        ["model.layers.0.self_attn", "lm_head"],
        ["model.layers.*.self_attn"],
        ["re:.*self_attn.*"],
        ["self_attn", "model.layers.0.mlp.gate", "model.layers.4.eh_proj"],
        ["re:.*self_attn.*", "re:lm_head$", "model.layers.4"],
        [f"model.language_model.layers.0.self_attn.{name}_proj" for name in "qkvo"],
    ],
)
def test_parts_that_are_left_as_they_were_keep_their_bytes(kept):
    quantised = {"quant_method": "fp8", "modules_to_not_convert": kept}
    layer = read(LLAMA, quantization_config=quantised).layers[0]
    assert layer.weight_bytes == 2 * ATTENTION + 3 * 64 * 128


def test_mxfp4_is_of_the_experts_alone():
    layer = read(MOE, model_type="gpt_oss", head_dim=16, quantization_config={"quant_method": "mxfp4"}).layers[0]
    assert layer.weight_bytes == 2 * layer.params
    assert layer.expert_bytes == layer.expert_params * 4.25 / 8


BY_HAND = "a catalogue YAML with layers: groups states it by hand"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "internlm2", "auto_map": {}}, f"got 'internlm2'; .* remote code is not run; {BY_HAND}"),
        ({"model_type": "bert"}, f"the family bert is not one whose cache and weights are known here; {BY_HAND}"),
        ({"model_type": "t5"}, "the family t5 is not one"),
        ({"model_type": "deepseek_v32"}, "the family deepseek_v32 is not one"),
        ({"model_type": "mamba"}, "the family mamba is not one"),
        ({"model_type": "llama\n"}, r"model_type: got 'llama.n'"),
        ({}, "model_type: got None; accepted: a published config.json"),
        ({"model_type": ["llama"]}, "model_type: got .*; accepted"),
        ({**LLAMA, "hidden_size": "64"}, "hidden_size: got '64'; accepted: a whole number"),
        ({**LLAMA, "hidden_size": 0}, "params: got 0|hidden_size: got 0"),
        (
            {**LLAMA, "num_hidden_layers": 10**9},
            "num_hidden_layers: got 1000000000; accepted: a whole number from 1 to",
        ),
        ({**LLAMA, "num_hidden_layers": -1}, "num_hidden_layers: got -1"),
        ({**LLAMA, "num_attention_heads": 0}, "transformers cannot read it as llama"),
        (
            {**LLAMA, "layer_types": ["full_attention"] * 3},
            "transformers cannot read it as llama|layer_types: 3 of them",
        ),
        ({**LLAMA, "dtype": ["bfloat16"]}, "dtype: got .*; accepted: bfloat16"),
        ({**LLAMA, "tie_word_embeddings": "yes"}, "tie_word_embeddings: got 'yes'|transformers cannot read it"),
        ({**LLAMA, "text_config": [1]}, "the family llama is not one"),
        ({**LLAMA, "quantization_config": {"quant_method": "mxfp4"}}, "mxfp4 is known for routed experts alone"),
        ({**LLAMA, "quantization_config": {"quant_method": "fp8", "ignored_layers": "lm_head"}}, "got 'lm_head'"),
        ({**LLAMA, "dtype": "int3"}, "dtype: got 'int3'; accepted: bfloat16"),
        ({**LLAMA, "layer_types": ["linear_attention"] * 4}, f"linear_attention is not known for llama; {BY_HAND}"),
        ({**LLAMA, "layer_types": ["sliding_attention"] * 4}, "sliding_attention without a size"),
        ({**LLAMA, "per_layer_config": {"0": {"num_key_value_heads": 1}}}, "per_layer_config: layers that differ"),
        ({"model_type": "opt", **TINY, "word_embed_proj_dim": 32}, "word_embed_proj_dim 32 is narrower"),
        ({"model_type": "mpt", "attn_config": {"attn_type": "multiquery_attention"}}, "attn_config: only multihead"),
        ({**DEEPSEEK, "moe_layer_freq": 2}, "moe_layer_freq: only 1 is known"),
        ({**DEEPSEEK, "model_type": "deepseek_v2", "num_experts_per_tok": None}, "experts_per_token: got None"),
        ({**LLAMA, "quantization": {"bits": 4}}, "quantization: only quantization_config is read"),
        ({**LLAMA, "quantization_config": "fp8"}, "quantization_config: got 'fp8'; accepted: a JSON object"),
        ({**LLAMA, "quantization_config": {"quant_method": "bitsandbytes"}}, "quant_method: got 'bitsandbytes'"),
        (
            {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 5}},
            r"bits and group_size: got \(5, None\)",
        ),
        ({**LLAMA, "quantization_config": {**SMALLER["gptq"][0], "dynamic": {"x": 1}}}, "dynamic: got"),
        (
            {**LLAMA, "quantization_config": {**SMALLER["fp8"][0], "ignored_layers": ["blocks.7.w1"]}},
            "got 'blocks.7.w1'",
        ),
        (
            {**LLAMA, "quantization_config": {**SMALLER["fp8"][0], "ignored_layers": ["model.layers.1.mlp.down_proj"]}},
            "some of mlp in layer 1",
        ),
        ({**NEMOTRON, "quantization_config": SMALLER["fp8"][0]}, "not known for layers of kind mamba"),
        ({**LLAMA, "num_key_value_heads": 3}, "num_key_value_heads: got 3; accepted: a divisor of num_attention_heads"),
        ({**LLAMA, "num_key_value_heads": -2}, "num_key_value_heads: got -2"),
        ({**LLAMA, "head_dim": True}, "head_dim: got True"),
        ({**LLAMA, "intermediate_size": 1e3}, "intermediate_size: got 1000.0"),
        ({**DEEPSEEK, "kv_lora_rank": 10**12}, "kv_lora_rank: got 1000000000000"),
        ({**DEEPSEEK, "num_experts_per_tok": -1}, "num_experts_per_tok: got -1"),
        ({"model_type": "falcon_h1", "text_config": [1], "vocab_size": -1}, "vocab_size: got -1"),
        ({**NEMOTRON, "num_hidden_layers": 7}, "4 layers are laid out where the file counts 7"),
        ({**LLAMA, "quantization_config": {**SMALLER["compressed"][0], "format": "dense"}}, "quant_method: got"),
        ({**LLAMA, "quantization_config": {**SMALLER["fp8"][0], "sparsity_config": {"a": 1}}}, "sparsity_config: got"),
        ({**LLAMA, "quantization_config": {**SMALLER["fp8"][0], "ignored_layers": ["re:(a+)+b"]}}, "got 're:"),
        ({**LLAMA, "quantization_config": {**SMALLER["fp8"][0], "ignored_layers": ["re:" + ".*" * 20]}}, "got 're:"),
        ({**LLAMA, "quantization_config": {**SMALLER["fp8"][0], "ignored_layers": ["x" * 201]}}, "got 'xxx"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(config, message):
    with pytest.raises(InputError, match=message) as refused:
        read(config)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"])
def test_what_is_no_json_object_is_refused(content):
    with pytest.raises(InputError, match="accepted: a published config.json"):
        read_config(content, "any")


def test_a_key_that_is_there_twice_is_refused():
    with pytest.raises(InputError, match="'hidden_size': the key is there twice"):
        read_config(b'{"model_type": "llama", "hidden_size": 64, "hidden_size": 128}', "any")


REQUIRED = {"bamba": {"attn_layer_indices": [1]}, "deepseek_v2": {"num_experts_per_tok": 6}}


@pytest.mark.parametrize("family", [*FAMILIES, *WRAPPERS])
def test_every_family_reads_from_its_defaults_and_is_the_same_model_as_its_yaml(family):
    model = read({"model_type": family, **REQUIRED.get(family, {})})
    assert model.kv_bytes(1) >= 0 and model.active_params <= model.params < model.total_params
    text = model_yaml(model, "the test")
    again, source = read_model(yaml.safe_load(text))
    assert (again, source) == (model, "the test")
    assert text.count("count:") <= 20


SEVERAL_KINDS = ("gemma2", "gpt_oss", "qwen3_next", "deepseek_v3", "gemma3n", "llama4", "jamba")
DEFAULTS = {family: read({"model_type": family}) for family in SEVERAL_KINDS}


@given(
    st.sampled_from(SEVERAL_KINDS),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.integers(1, 64),
)
def test_the_cache_grows_with_context_and_is_additive_over_layers(family, ctx_len, more, batch):
    model = DEFAULTS[family]
    held = model.kv_bytes(ctx_len, batch)
    assert held <= model.kv_bytes(ctx_len + more, batch)
    assert held == batch * model.kv_bytes(ctx_len)
    alone = [ModelConfig("one", hidden_size=1, vocab_size=1, layers=(layer,)) for layer in model.layers]
    assert held == sum(one.kv_bytes(ctx_len, batch) for one in alone)


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"transformers, which is not installed; install it with: pip install 'kvpre"):
        read(LLAMA)


def test_reading_is_silent_and_needs_no_torch():
    code = f"import sys; from kvprefetch.huggingface import read_config; read_config({json.dumps(LLAMA).encode()}, 'x')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
