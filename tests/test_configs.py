import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvprefetch import HardwareProfile, InputError, Layer, ModelConfig
from kvprefetch.layers import KV_BYTES, kv_bytes, step_weight_bytes, touched_experts

SMALL = {
    "name": "small",
    "num_hidden_layers": 3,
    "hidden_size": 8,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "vocab_size": 100,
}
CARD = {"name": "card", "hbm_gb_s": 1000.0, "pcie_gb_s": 25.0}


def test_weights_are_those_of_the_seven_matrices():
    model = ModelConfig(**SMALL, num_key_value_heads=2, head_dim=4)
    q, k, v, o = 8 * 16, 8 * 8, 8 * 8, 16 * 8
    gate = up = down = 8 * 16
    assert model.layers[0].params == q + k + v + o + gate + up + down
    assert model.params == model.active_params == 3 * model.layers[0].params
    assert model.total_params == model.params + 2 * 100 * 8


def test_tied_embeddings_are_counted_once():
    assert ModelConfig(**SMALL, tie_word_embeddings=True).total_params == ModelConfig(**SMALL).params + 100 * 8


def test_heads_and_head_dim_have_the_published_defaults():
    model = ModelConfig(**SMALL)
    assert (model.num_key_value_heads, model.head_dim) == (4, 2)


@pytest.mark.parametrize(("dtype", "a_weight"), [("bf16", 2), ("fp16", 2), ("fp8", 1), ("int8", 1), ("int4", 0.5)])
def test_weight_bytes_follow_the_dtype(dtype, a_weight):
    layer = ModelConfig(**SMALL, weight_dtype=dtype).layers[0]
    assert layer.weight_bytes == layer.params * a_weight


@pytest.mark.parametrize(
    ("dtype", "a_value"),
    [("f32", 4), ("fp16", 2), ("f16", 2), ("bf16", 2), ("fp8", 1), ("int8", 1), ("q8_0", 34 / 32), ("q4_0", 18 / 32)],
)
def test_kv_bytes_follow_the_dtype(dtype, a_value):
    assert ModelConfig(**SMALL).kv_bytes(10, batch=3, kv_dtype=dtype) == 3 * 2 * 3 * 10 * 4 * 2 * a_value


models = st.builds(
    lambda layers, kv_heads, group, head_dim: ModelConfig(
        "any", layers, 64, kv_heads * group, 128, 1000, num_key_value_heads=kv_heads, head_dim=head_dim
    ),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(1, 64),
)
contexts, batches = st.integers(1, 10**6), st.integers(1, 64)


@given(models, contexts, batches, st.sampled_from(sorted(KV_BYTES)))
def test_kv_bytes_are_linear_in_context_and_batch_and_additive_over_layers(model, ctx_len, batch, kv_dtype):
    one = model.kv_bytes(1, 1, kv_dtype)
    assert model.kv_bytes(ctx_len, batch, kv_dtype) == ctx_len * batch * one
    assert model.kv_bytes(ctx_len, batch, kv_dtype) == sum(
        float(kv_bytes((layer,), ctx_len, batch, kv_dtype).sum()) for layer in model.layers
    )


def test_kv_bytes_of_an_array_of_contexts_has_a_row_a_context():
    model = ModelConfig(**SMALL)
    assert kv_bytes(model.layers, np.array([[1, 2], [3, 4]])).shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "name: got ''; accepted: one line of text"),
        ({"name": "two\nlines"}, "name: got 'two.nlines'; accepted: one line"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: got 0; accepted: a whole number from 1 to"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers: got 2.0; accepted: a whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers: got True"),
        ({"hidden_size": "4096"}, "hidden_size: got '4096'"),
        ({"hidden_size": -8}, "hidden_size: got -8"),
        ({"vocab_size": 10**40}, "vocab_size: got a whole number of about 40 digits"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: got 3; accepted: a divisor of num_attention_heads, 4"),
        ({"num_key_value_heads": 8}, "num_key_value_heads: got 8; accepted: a divisor of num_attention_heads, 4"),
        ({"hidden_size": 9}, "num_attention_heads: got 4; accepted: a divisor of hidden_size, 9, or an explicit head"),
        ({"head_dim": 0}, "head_dim: got 0"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: got 'yes'; accepted: true or false"),
        ({"weight_dtype": "bf61"}, r"weight_dtype: got 'bf61'; accepted: fp16 bf16 fp8 int8 int4. Did you mean bf16\?"),
        ({"weight_dtype": ["bf16"]}, "weight_dtype: got"),
    ],
)
def test_a_model_that_cannot_be_is_refused(change, message):
    ModelConfig(**SMALL)
    with pytest.raises(InputError, match=message):
        ModelConfig(**{**SMALL, **change})


@pytest.mark.parametrize("figure", ["hbm_gb_s", "pcie_gb_s", "hbm_capacity_gb"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "2039e9", True, [25], 1e9])
def test_a_figure_that_is_no_positive_number_is_refused(figure, value):
    HardwareProfile(**CARD, hbm_capacity_gb=80.0)
    with pytest.raises(InputError, match=f"{figure}: got .*; accepted: a number from 0.001 to 1e.06"):
        HardwareProfile(**{**CARD, figure: value})


def test_an_unknown_kv_dtype_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"kv_dtype: got 'q8'; accepted: .* Did you mean q8_0\?"):
        ModelConfig(**SMALL).kv_bytes(1, kv_dtype="q8")


def test_configurations_are_frozen_and_compare_by_value():
    assert ModelConfig(**SMALL) == ModelConfig(**SMALL, num_key_value_heads=4)
    assert hash(HardwareProfile(**CARD)) == hash(HardwareProfile(**CARD))
    with pytest.raises(AttributeError):
        ModelConfig(**SMALL).hidden_size = 1


FULL = Layer("full", 1000, 2000.0, kv_values=8)
SLIDING = Layer("sliding", 1000, 2000.0, kv_values=8, window=100)
ROUTED = Layer("full", 10, 20.0, 8, experts=8, experts_per_token=2, expert_params=100, expert_bytes=200.0)
MAMBA = Layer("mamba", 50, 100.0, kv_values=0, state_bytes=512.0)
GIVEN = {"name": "given", "hidden_size": 8, "vocab_size": 100}


def test_a_model_given_as_layers_counts_what_they_say():
    model = ModelConfig(**GIVEN, layers=(FULL, ROUTED, MAMBA), tie_word_embeddings=True, other_params=7)
    assert model.num_hidden_layers == 3
    assert model.params == 1000 + 10 + 8 * 100 + 50
    assert model.active_params == 1000 + 10 + 2 * 100 + 50
    assert model.total_params == model.params + 800 + 7


def test_a_dense_model_with_one_field_replaced_is_built_anew_and_a_given_one_keeps_its_layers():
    assert replace(ModelConfig(**SMALL), num_hidden_layers=1) == ModelConfig(**{**SMALL, "num_hidden_layers": 1})
    assert replace(ModelConfig(**SMALL), weight_dtype="fp8").layers[0].weight_bytes == ModelConfig(**SMALL).params / 3
    assert replace(ModelConfig(**GIVEN, layers=(FULL,)), name="new").layers == (FULL,)


@pytest.mark.parametrize(("ctx_len", "held"), [(1, 1), (99, 99), (100, 100), (101, 100), (10**6, 100)])
def test_a_layer_with_a_window_holds_no_more_than_it(ctx_len, held):
    assert kv_bytes((FULL, SLIDING), ctx_len, batch=3).tolist() == [3 * ctx_len * 8 * 2, 3 * held * 8 * 2]


@pytest.mark.parametrize(("batch", "touched"), [(1, 2.0), (2, 8 * (1 - 0.75**2)), (10**6, 8.0)])
def test_a_step_reads_the_experts_that_its_tokens_touch(batch, touched):
    assert touched_experts(ROUTED, batch) == touched
    assert step_weight_bytes((FULL, ROUTED), batch).tolist() == [2000.0, 20.0 + touched * 200.0]


@given(st.integers(1, 512), st.data())
def test_one_token_reads_exactly_its_experts_and_many_never_more_than_all(experts, data):
    used = data.draw(st.integers(1, experts))
    layer = Layer("full", 1, 1.0, 0, experts=experts, experts_per_token=used, expert_params=1, expert_bytes=1.0)
    assert touched_experts(layer, 1) == used
    assert used <= touched_experts(layer, 2) + 1e-9 * experts
    assert touched_experts(layer, 7) <= min(experts, 7 * used) * (1 + 1e-12)


stacks = st.lists(
    st.builds(replace, st.just(SLIDING), window=st.none() | st.integers(1, 10**5)), min_size=1, max_size=6
)


@given(stacks, contexts, contexts, batches)
def test_kv_bytes_grow_with_context_and_batch_and_are_linear_below_every_window(layers, ctx_len, more, batch):
    model = ModelConfig(**GIVEN, layers=tuple(layers))
    held = model.kv_bytes(ctx_len, batch)
    assert held <= model.kv_bytes(ctx_len + more, batch)
    assert held == batch * model.kv_bytes(ctx_len)
    assert held == sum(ModelConfig(**GIVEN, layers=(layer,)).kv_bytes(ctx_len, batch) for layer in layers)
    if ctx_len <= min(layer.window or math.inf for layer in layers):
        assert held == ctx_len * model.kv_bytes(1, batch)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": ""}, "kind: got ''; accepted: one line of text"),
        ({"params": 0}, "params: got 0; accepted: a whole number from 1 to"),
        ({"weight_bytes": 0}, "weight_bytes: got 0; accepted: a number from 0.1"),
        ({"weight_bytes": math.nan}, "weight_bytes: got nan"),
        ({"kv_values": -1}, "kv_values: got -1; accepted: a whole number from 0 to"),
        ({"kv_values": 1.5}, "kv_values: got 1.5"),
        ({"window": 0}, "window: got 0; accepted: a whole number from 1 to"),
        ({"experts": -1}, "experts: got -1"),
        ({"experts": 4}, "experts_per_token: got 0; accepted: a whole number from 1 to 4"),
        ({"experts": 4, "experts_per_token": 5}, "experts_per_token: got 5; accepted: a whole number from 1 to 4"),
        ({"experts": 4, "experts_per_token": 2}, "expert_params: got 0"),
        ({"experts": 4, "experts_per_token": 2, "expert_params": 1}, "expert_bytes: got 0.0"),
        ({"expert_params": 1}, "experts: got 0; accepted: at least 1 where an expert's figures are given"),
        ({"experts_per_token": False}, "experts: got 0; accepted: at least 1"),
        ({"state_bytes": -1.0}, "state_bytes: got -1.0"),
        ({"state_bytes": "1"}, "state_bytes: got '1'"),
    ],
)
def test_a_layer_that_cannot_be_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        replace(FULL, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": ()}, "layers: got '0 layers'; accepted: 1 to 10000 of them"),
        ({"layers": [FULL]}, "layers: got .*; accepted: a tuple of Layer"),
        ({"layers": ("full",)}, "layers: got .*; accepted: a tuple of Layer"),
        ({"num_hidden_layers": 2}, "num_hidden_layers: not together with layers, which say it all"),
        ({"intermediate_size": 2}, "intermediate_size: not together with layers"),
        ({"hidden_size": None}, "hidden_size: got None"),
        ({"other_params": -1}, "other_params: got -1"),
        ({"assumptions": ("",)}, "assumptions: got ''"),
        ({"assumptions": "One."}, "assumptions: got 'One.'; accepted: a tuple of sentences"),
    ],
)
def test_a_given_stack_that_cannot_be_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        ModelConfig(**{**GIVEN, "layers": (FULL,), **change})


def test_figures_of_narrow_types_are_kept_as_plain_numbers():
    narrow = {name: np.int32(value) if isinstance(value, int) else value for name, value in SMALL.items()}
    wide = {**narrow, "hidden_size": np.int32(16384), "intermediate_size": np.int32(53248)}
    assert type(ModelConfig(**narrow).hidden_size) is int
    assert (
        ModelConfig(**wide).params == ModelConfig(**{**SMALL, "hidden_size": 16384, "intermediate_size": 53248}).params
    )
    card = HardwareProfile("card", np.float16(100), np.float16(25))
    assert (type(card.hbm_gb_s), card.hbm_gb_s) == (float, 100.0)


def test_a_refusal_is_one_line_whatever_was_given():
    for name in (np.ones((3, 3)), "a\nb", [10**6000]):
        with pytest.raises(InputError) as refused:
            ModelConfig(**{**SMALL, "name": name})
        assert "\n" not in str(refused.value)
