"""Published figures: what, ours, theirs, tolerance, source. One place for all of them."""

import pytest

from kvprefetch import A100_PCIE, A100_PCIE_GEN3, LLAMA2_13B, LLAMA3_8B, MISTRAL_7B, RTX4090, compare, crossover_ctx
from kvprefetch.catalog import HARDWARE, MODELS, find

# This planner's own published table: Llama-3-8B, A100 PCIe Gen4, batch 1, depth 1, printed precision.
GOLDEN = [
    (512, 9.53, 6.93, 27.3, 1.38, "compute"),
    (1024, 12.21, 7.01, 42.6, 1.74, "compute"),
    (2048, 17.58, 10.95, 37.7, 1.61, "pcie"),
    (4096, 28.32, 21.69, 23.4, 1.31, "pcie"),
    (8192, 49.80, 43.16, 13.3, 1.15, "pcie"),
    (16384, 92.75, 86.11, 7.2, 1.08, "pcie"),
    (32768, 178.64, 172.01, 3.7, 1.04, "pcie"),
]


@pytest.mark.parametrize(("ctx_len", "ondemand", "prefetch", "reduction", "speedup", "bound"), GOLDEN)
def test_the_golden_table(ctx_len, ondemand, prefetch, reduction, speedup, bound):
    c = compare(LLAMA3_8B, A100_PCIE, ctx_len=ctx_len)
    ours = (c.ondemand.total_ms, c.prefetch.total_ms, c.reduction_pct, c.speedup)
    assert [round(x, digits) for x, digits in zip(ours, (2, 2, 1, 2), strict=True)] == [
        ondemand,
        prefetch,
        reduction,
        speedup,
    ]
    assert c.bound == bound


def test_the_golden_crossover():
    assert crossover_ctx(LLAMA3_8B, A100_PCIE) == 1306


def test_the_golden_weights():
    assert LLAMA3_8B.layers[0].params == 218_103_808
    assert LLAMA3_8B.params == 6_979_321_856


# The built-ins' figures: their config.json as stored in mlc-ai/mlc-llm@79d603f, model_preset.py.
@pytest.mark.parametrize(
    ("model", "short_name", "figures"),
    [
        (LLAMA3_8B, "llama3-8b", (32, 4096, 32, 8, 128, 14336, 128256, False)),
        (LLAMA2_13B, "llama2-13b", (40, 5120, 40, 40, 128, 13824, 32000, False)),
        (MISTRAL_7B, "mistral-7b", (32, 4096, 32, 8, 128, 14336, 32768, False)),
    ],
)
def test_the_built_in_models_hold_the_published_figures(model, short_name, figures):
    assert model == find(MODELS, short_name).config
    assert figures == (
        model.num_hidden_layers,
        model.hidden_size,
        model.num_attention_heads,
        model.num_key_value_heads,
        model.head_dim,
        model.intermediate_size,
        model.vocab_size,
        model.tie_word_embeddings,
    )


@pytest.mark.parametrize(
    ("card", "short_name", "hbm", "pcie", "mib"),
    [
        (A100_PCIE, "a100", 2039, 25, 81920),
        (A100_PCIE_GEN3, "a100-gen3", 2039, 12, 81920),
        (RTX4090, "rtx4090", 1008, 25, 24564),
    ],
)
def test_the_built_in_cards_hold_the_published_figures(card, short_name, hbm, pcie, mib):
    """HBM and PCIe in GB/s as all results here use them; capacity as nvidia-smi prints it, in MiB."""
    assert card == find(HARDWARE, short_name).config
    assert (card.hbm_gb_s, card.pcie_gb_s) == (hbm, pcie)
    assert card.hbm_capacity_gb == pytest.approx(mib * 2**20 / 1e9, abs=0.005)


# Parameter counts that model cards and engines quote, within 1 %: our count leaves out the norms.
@pytest.mark.parametrize(
    ("model", "published", "source"),
    [
        (LLAMA3_8B, 8.03e9, "vendor's model card"),
        (LLAMA2_13B, 13.02e9, "vendor's model card"),
        (MISTRAL_7B, 7.25e9, "vendor's model card"),
    ],
)
def test_the_total_is_the_count_that_model_cards_quote(model, published, source):
    assert model.total_params == pytest.approx(published, rel=0.01), source
