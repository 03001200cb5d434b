from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvprefetch import A100_PCIE, InputError
from kvprefetch.configs import FIRST_ORDER, Terms, refined
from kvprefetch.layers import KV_BYTES
from kvprefetch.termtext import base_terms, read_terms, terms_text

STATED = replace(A100_PCIE, weight_efficiency=0.82, attention_efficiency=0.39, copy_latency_us=12.5)


@pytest.mark.parametrize(
    ("text", "terms", "shortest"),
    [
        ("first-order", FIRST_ORDER, "first-order"),
        (" refined ", refined(STATED), "refined"),
        (
            "refined",
            Terms(kv_read=True, lm_head=True, weight_efficiency=0.82, attention_efficiency=0.39, copy_latency_us=12.5),
            "refined",
        ),
        ("kv_read=true", Terms(kv_read=True), "first-order,kv_read=true"),
        ("first-order,kv_read=false", FIRST_ORDER, "first-order"),
        ("refined,kv_read=true", refined(STATED), "refined"),
        ("refined,kv_read=false", replace(refined(STATED), kv_read=False), "refined,kv_read=false"),
        ("refined,weight_efficiency=1", replace(refined(STATED), weight_efficiency=1), "refined,weight_efficiency=1"),
        (
            " lm_head = true , kv_dtype = q8_0,resident_tokens=512 ",
            Terms(kv_dtype="q8_0", resident_tokens=512, lm_head=True),
            "first-order,kv_dtype=q8_0,resident_tokens=512,lm_head=true",
        ),
        ("copy_latency_us=1e1", Terms(copy_latency_us=10), "first-order,copy_latency_us=10"),
        ("layer_overhead_us=2.50", Terms(layer_overhead_us=2.5), "first-order,layer_overhead_us=2.5"),
        (
            "cross_token_overlap=true,resident_windows=true",
            Terms(resident_windows=True, cross_token_overlap=True),
            "first-order,resident_windows=true,cross_token_overlap=true",
        ),
    ],
)
def test_a_text_is_a_base_and_single_fields_and_has_a_shortest_form(text, terms, shortest):
    assert read_terms(text, STATED) == terms
    assert terms_text(text, STATED) == shortest


def test_a_card_that_states_nothing_refines_by_kv_read_and_head_alone():
    assert base_terms("refined", A100_PCIE) == Terms(kv_read=True, lm_head=True)
    assert base_terms("first-order", STATED) == FIRST_ORDER


def spelled(values):
    return values.map(lambda value: str(value).lower() if isinstance(value, bool) else str(value))


efficiencies, microseconds = spelled(st.floats(0.01, 1)), spelled(st.floats(0, 1e6))
overrides = st.fixed_dictionaries(
    {},
    optional={
        "kv_dtype": st.sampled_from([*KV_BYTES]),
        "resident_tokens": spelled(st.integers(0, 10**9)),
        **dict.fromkeys(("resident_windows", "kv_read", "lm_head", "cross_token_overlap"), spelled(st.booleans())),
        **dict.fromkeys(("weight_efficiency", "attention_efficiency", "pcie_efficiency"), efficiencies),
        **dict.fromkeys(("copy_latency_us", "layer_overhead_us"), microseconds),
    },
)


@given(st.sampled_from(["", "first-order", "refined"]), overrides, st.randoms())
def test_the_shortest_form_asks_for_the_same_terms_and_is_its_own_shortest_form(base, overrides, order):
    fields = [f"{name}={value}" for name, value in overrides.items()]
    order.shuffle(fields)
    text = ",".join(filter(None, [base, *fields])) or "first-order"
    shortest = terms_text(text, STATED)
    assert read_terms(shortest, STATED) == read_terms(text, STATED)
    assert terms_text(shortest, STATED) == shortest
    assert shortest == terms_text(",".join(filter(None, [base, *sorted(fields)])) or "first-order", STATED)


NAMES = (
    "kv_dtype resident_tokens resident_windows kv_read lm_head weight_efficiency attention_efficiency pcie_efficiency "
    "copy_latency_us layer_overhead_us cross_token_overlap"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "terms: got ''; accepted: first-order refined"),
        ("refind", "terms: got 'refind'; accepted: first-order refined. Did you mean refined?"),
        ("kv_read", "terms: got 'kv_read'; accepted: first-order refined"),
        ("refined,kv_read", "terms: got 'kv_read'; accepted: kv_read=value"),
        ("refined,", f"terms: got ''; accepted: {NAMES}"),
        ("refined,first-order", f"terms: got 'first-order'; accepted: {NAMES}"),
        ("kv_raed=true", f"terms: got 'kv_raed'; accepted: {NAMES}. Did you mean kv_read?"),
        ("kv_read=true,lm_head=true,kv_read=true", "terms: kv_read is there twice"),
        ("kv_read=yes", "kv_read: got 'yes'; accepted: true false"),
        ("kv_read=True", "kv_read: got 'True'; accepted: true false. Did you mean true?"),
        ("resident_tokens=1.5", "resident_tokens: got '1.5'; accepted: a whole number"),
        ("resident_tokens=-1", "resident_tokens: got -1; accepted: a whole number from 0 to 1000000000"),
        ("weight_efficiency=most", "weight_efficiency: got 'most'; accepted: a number"),
        ("weight_efficiency=", "weight_efficiency: got ''; accepted: a number"),
        ("weight_efficiency=82", "weight_efficiency: got 82.0; accepted: a number from 0.01 to 1"),
        ("pcie_efficiency=nan", "pcie_efficiency: got nan; accepted: a number from 0.01 to 1"),
        ("copy_latency_us=-1", "copy_latency_us: got -1.0; accepted: a number from 0 to 1e+06"),
        (
            "kv_dtype=q8",
            "kv_dtype: got 'q8'; accepted: f32 fp16 f16 bf16 fp8 int8 q8_0 q4_0. Did you mean q8_0?",
        ),
        (None, "terms: got None; accepted: first-order or refined, then field=value, separated by commas"),
        ("kv_read=true," + " " * 1000, "terms: got "),
    ],
)
def test_a_text_that_asks_for_no_terms_is_refused(text, message):
    for read in (read_terms, terms_text):
        with pytest.raises(InputError) as refused:
            read(text, STATED)
        assert str(refused.value) == message or (message == "terms: got " and str(refused.value).startswith(message))
