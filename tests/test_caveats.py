"""The bullets that follow the terms, each with terms that produce it and terms that do not."""

from dataclasses import fields

import pytest

from kvprefetch.caveats import assumptions, in_force, left_out
from kvprefetch.configs import FIRST_ORDER, Terms

ALL = Terms(
    kv_dtype="q8_0",
    resident_tokens=1,
    resident_windows=True,
    kv_read=True,
    lm_head=True,
    weight_efficiency=0.82,
    attention_efficiency=0.39,
    pcie_efficiency=0.9,
    copy_latency_us=12.5,
    layer_overhead_us=3,
    cross_token_overlap=True,
)


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        (FIRST_ORDER, "- **The whole KV of a layer crosses the link in each step.** Nothing of it stays on the GPU"),
        (
            Terms(resident_tokens=512),
            "- **What is not kept on the GPU crosses the link in each step.** The newest 512 tokens of every layer "
            "stay there. A layer with a window",
        ),
        (
            Terms(resident_windows=True),
            "- **What is not kept on the GPU crosses the link in each step.** Layers with a window stay there. A layer",
        ),
        (ALL, "The newest 1 token of every layer stay there. Layers with a window stay there. A layer with a window"),
        (FIRST_ORDER, "- **KV of 16 bits a value** (fp16), and $d + 1$ buffers"),
        (ALL, "- **KV of 8.5 bits a value** (q8_0), and $d + 1$ buffers"),
        (FIRST_ORDER, "- **No fixed cost** of copy latency or kernel launches, and no protocol stalls"),
        (Terms(copy_latency_us=5), "- **No fixed cost** of kernel launches, and no protocol stalls"),
        (Terms(layer_overhead_us=5), "- **No fixed cost** of copy latency, and no protocol stalls"),
    ],
)
def test_what_is_assumed(terms, sentence):
    assert sentence in assumptions(terms)


@pytest.mark.parametrize("terms", [FIRST_ORDER, ALL])
def test_some_assumptions_hold_under_any_terms(terms):
    for bullet in ("Single-token decode", "One link and one engine", "Routed experts", "Each layer's KV is one contig"):
        assert assumptions(terms).count(f"\n- **{bullet}") + assumptions(terms).startswith(f"- **{bullet}") == 1


def test_assumptions_that_terms_lift_are_gone():
    assert "No fixed cost" not in assumptions(ALL)
    assert "The whole KV" not in assumptions(ALL)
    assert "What is not kept" not in assumptions(FIRST_ORDER)


@pytest.mark.parametrize(
    ("lifted_by", "sentence"),
    [
        ({"kv_read": True}, "- **Attention's own read of the cache.** The engine also reads the landed KV from HBM."),
        ({"lm_head": True}, "- **LM head and embeddings**, once a step."),
        (
            {"weight_efficiency": 0.82, "attention_efficiency": 0.39},
            "- **Achieved against stated rates.** Reading weights and the cache, by attention, is taken to reach the "
            "whole HBM rate.\n",
        ),
        (
            {"copy_latency_us": 5, "layer_overhead_us": 3},
            "- **Copy latency**, a fixed time for each copy, which weighs most at short contexts.",
        ),
        ({"cross_token_overlap": True}, "- **Overlap across tokens:** the next token's first fetches could start"),
    ],
)
def test_what_is_left_out_is_named_until_a_term_models_it(lifted_by, sentence):
    assert sentence in left_out(FIRST_ORDER)
    assert sentence not in left_out(Terms(**lifted_by))
    assert sentence not in left_out(ALL)
    others = {name: value for name, value in vars(ALL).items() if name not in lifted_by}
    if "Achieved" not in sentence:
        assert sentence in left_out(Terms(**others))


@pytest.mark.parametrize(
    ("terms", "stated"),
    [
        (FIRST_ORDER, "weights and the cache, by attention,"),
        (Terms(attention_efficiency=0.39), "weights"),
        (Terms(weight_efficiency=0.82), "the cache, by attention,"),
        (Terms(kv_read=True, weight_efficiency=0.82), "the cache, by attention,"),
    ],
)
def test_what_is_read_at_the_stated_rate_is_named(terms, stated):
    said = left_out(terms)
    assert f"\n- **Achieved against stated rates.** Reading {stated} is taken to reach the whole HBM rate.\n" in said
    assert said.count("Achieved against") == 1


@pytest.mark.parametrize(("terms", "streamed"), [(FIRST_ORDER, "the weights"), (ALL, "the weights and the cache")])
def test_the_engines_time_is_that_of_what_it_streams(terms, streamed):
    assert f"the engine's time is the time to stream {streamed} from HBM. Prefill and batches large" in assumptions(
        terms
    )


def test_a_fixed_cost_that_is_in_force_is_not_called_left_out():
    assert "copy latency" not in left_out(Terms(copy_latency_us=5))
    assert "launches" in left_out(Terms(copy_latency_us=5))


def test_with_the_head_in_force_only_the_embeddings_are_left_out():
    assert "- **Embeddings**, one row a token." in left_out(Terms(lm_head=True))
    assert "one row a token" not in left_out(FIRST_ORDER)


@pytest.mark.parametrize("terms", [FIRST_ORDER, ALL])
def test_some_things_are_always_left_out(terms):
    assert "- **Writing the new token's K and V back** to host memory in each step." in left_out(terms)
    assert "- **Prefill, arithmetic-bound batches, multi-GPU stacks, and contention** for the link" in left_out(terms)


ADDED = {
    "kv_dtype": "**KV dtype** q8_0: 1.0625 bytes a cached value instead of 2.",
    "resident_tokens": (
        r"**Resident window**, $R$ = 1 token: the newest stay on the GPU, and of the $\min(n, w_l)$ that a layer holds "
        r"only $\max(0, \min(n, w_l) - R)$ cross the link."
    ),
    "resident_windows": (
        "**Resident sliding layers:** a layer with a window keeps all of it on the GPU and fetches nothing."
    ),
    "kv_read": (
        r"**KV read:** attention reads the cache from HBM too, $c_l$ grows by $K_l(n) / (\text{HBM} \cdot \eta_a)$ "
        r"with an efficiency $\eta_a$ = 0.39."
    ),
    "lm_head": "**LM head:** its matrix is read once after the last layer: in the step, not in the sum of compute.",
    "weight_efficiency": "**Weights** are read at 0.82 of the stated HBM rate.",
    "pcie_efficiency": "**Copies** reach 0.9 of the stated link rate.",
    "copy_latency_us": "**Copy latency:** 12.5 µs more for each offloaded layer.",
    "layer_overhead_us": "**Layer overhead:** 3 µs more of engine time for each layer.",
    "cross_token_overlap": (
        "**Overlap across tokens:** the next token's first fetches start while this token ends, so the steady step is "
        "what a second pass over the stack adds to the first."
    ),
}


def test_first_order_has_nothing_in_force():
    assert in_force(FIRST_ORDER).startswith("None is in force: what follows is first order. Section ")
    assert in_force(FIRST_ORDER).endswith(" shows what each would change.")


def test_all_terms_in_force_are_listed_in_order():
    assert in_force(ALL) == "\n".join(f"- {sentence}" for sentence in ADDED.values())


@pytest.mark.parametrize("name", ADDED)
def test_a_term_in_force_alone_is_listed_alone(name):
    sentence = ADDED[name].replace("0.39", "1")
    assert in_force(Terms(**{name: getattr(ALL, name)})) == f"- {sentence}"


@pytest.mark.parametrize("field", fields(Terms), ids=lambda field: field.name)
def test_terms_that_are_not_first_order_never_give_an_empty_list(field):
    assert in_force(Terms(**{field.name: getattr(ALL, field.name)}))
