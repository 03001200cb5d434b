import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvprefetch import HardwareProfile, InputError, ModelConfig
from kvprefetch.configs import KV_BYTES, kv_bytes

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
    with pytest.raises(InputError, match=f"{figure}: got .*; accepted: a number above 0, at most 1e.06"):
        HardwareProfile(**{**CARD, figure: value})


def test_an_unknown_kv_dtype_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"kv_dtype: got 'q8'; accepted: .* Did you mean q8_0\?"):
        ModelConfig(**SMALL).kv_bytes(1, kv_dtype="q8")


def test_configurations_are_frozen_and_compare_by_value():
    assert ModelConfig(**SMALL) == ModelConfig(**SMALL, num_key_value_heads=4)
    assert hash(HardwareProfile(**CARD)) == hash(HardwareProfile(**CARD))
    with pytest.raises(AttributeError):
        ModelConfig(**SMALL).hidden_size = 1
