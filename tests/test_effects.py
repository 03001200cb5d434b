from dataclasses import replace

import pytest
from stacks import INTERLEAVED_24, WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA3_8B, HardwareProfile, InputError, compare, crossover_ctx
from kvprefetch.configs import FIRST_ORDER, Terms, refined
from kvprefetch.effects import effects, unstated

STATED = replace(
    A100_PCIE,
    weight_efficiency=0.82,
    attention_efficiency=0.39,
    pcie_efficiency=0.9,
    copy_latency_us=12.5,
    layer_overhead_us=3,
)
REFINED = Terms(
    kv_read=True,
    lm_head=True,
    weight_efficiency=0.82,
    attention_efficiency=0.39,
    pcie_efficiency=0.9,
    copy_latency_us=12.5,
    layer_overhead_us=3,
)
NEUTRAL = [
    ("attention reads the cache from HBM", Terms(kv_read=True)),
    ("LM head after the last layer", Terms(lm_head=True)),
]
WINDOWS = ("windows kept on the GPU", Terms(resident_windows=True))
LAST = [("overlap across tokens", Terms(cross_token_overlap=True)), ("8-bit cache", Terms(kv_dtype="fp8"))]


@pytest.mark.parametrize(
    ("model", "hw", "alone", "together"),
    [
        (LLAMA3_8B, A100_PCIE, [*NEUTRAL, *LAST], Terms(kv_read=True, lm_head=True)),
        (INTERLEAVED_24, A100_PCIE, [*NEUTRAL, WINDOWS, *LAST], Terms(kv_read=True, lm_head=True)),
        (
            WINDOWS_ALONE,
            replace(A100_PCIE, weight_efficiency=1.0, copy_latency_us=0),  # stated, and neutral
            [*NEUTRAL, WINDOWS, *LAST],
            Terms(kv_read=True, lm_head=True),
        ),
        (
            LLAMA3_8B,
            STATED,
            [
                *NEUTRAL,
                ("HBM rate reached reading weights: 0.82", Terms(weight_efficiency=0.82)),
                (
                    "HBM rate reached by attention: 0.39, its reads counted",
                    Terms(kv_read=True, attention_efficiency=0.39),
                ),
                ("PCIe rate reached: 0.9", Terms(pcie_efficiency=0.9)),
                ("copy latency: 12.5", Terms(copy_latency_us=12.5)),
                ("layer overhead: 3", Terms(layer_overhead_us=3)),
                *LAST,
            ],
            REFINED,
        ),
    ],
)
def test_each_term_of_the_pair_alone_and_together(model, hw, alone, together):
    rows = [
        ("first order", FIRST_ORDER),
        *alone,
        ("refined: KV read, LM head, and what the card's file states", together),
        ("refined, with overlap across tokens", replace(together, cross_token_overlap=True)),
    ]
    found = effects(model, hw, [512, 4096], batch=2, depth=3)
    assert [each.name for each in found.rows] == [name for name, _ in rows]
    for effect, (_, terms) in zip(found.rows, rows, strict=True):
        assert effect.steps == tuple(compare(model, hw, n, batch=2, depth=3, terms=terms) for n in (512, 4096))
        assert effect.crossover_ctx == crossover_ctx(model, hw, 2, terms)
    assert (found.first, found.refined, found.overlapped) == (found.rows[0], found.rows[-2], found.rows[-1])
    assert found.alone == found.rows[1:-2]


@pytest.mark.parametrize(
    ("model", "resident_tokens", "names"),
    [
        (LLAMA3_8B, 0, []),
        (LLAMA3_8B, 1, ["newest 1 token on the GPU"]),
        (INTERLEAVED_24, 500, ["newest 500 tokens on the GPU", "windows kept on the GPU"]),
    ],
)
def test_a_resident_window_has_a_row_of_its_own(model, resident_tokens, names):
    found = effects(model, A100_PCIE, [512, 4096], batch=2, depth=3, resident_tokens=resident_tokens)
    assert [each.name for each in found.alone][2:-2] == names
    for each in found.alone[2:3] if resident_tokens else ():
        kept = Terms(resident_tokens=resident_tokens)
        assert each.steps == tuple(compare(model, A100_PCIE, n, batch=2, depth=3, terms=kept) for n in (512, 4096))
        assert each.crossover_ctx == crossover_ctx(model, A100_PCIE, 2, kept)
    without = effects(model, A100_PCIE, [512, 4096], batch=2, depth=3)
    assert [each for each in found.rows if not each.name.startswith("newest")] == list(without.rows)


def test_refined_takes_from_the_card_what_it_states():
    assert refined(STATED) == REFINED
    assert refined(replace(A100_PCIE, pcie_efficiency=0.5)) == Terms(kv_read=True, lm_head=True, pcie_efficiency=0.5)


def test_what_the_terms_do_to_the_crossover():
    """A token's 4096 B take 2.009 ns of attention's reads and 163.84 ns of the link; weights 436.2 MB."""
    by_name = {effect.name: effect.crossover_ctx for effect in effects(LLAMA3_8B, A100_PCIE, [512]).rows}
    assert list(by_name.values()) == [1306, 1322, 1306, 1306, 2612, 1322, 1322]


@pytest.mark.parametrize(
    ("hw", "names"),
    [
        (
            HardwareProfile("bare", 100, 10),
            (
                "HBM rate reached reading weights",
                "HBM rate reached by attention",
                "PCIe rate reached",
                "copy latency",
                "layer overhead",
            ),
        ),
        (
            HardwareProfile("some", 100, 10, weight_efficiency=1.0, copy_latency_us=0.0),
            ("HBM rate reached by attention", "PCIe rate reached", "layer overhead"),
        ),
        (STATED, ()),
    ],
)
def test_what_the_file_gives_no_figure_for_is_named(hw, names):
    assert unstated(hw) == names


def test_arguments_out_of_range_are_refused():
    with pytest.raises(InputError, match="ctx_len: got 0"):
        effects(LLAMA3_8B, A100_PCIE, [0])
    with pytest.raises(InputError, match="depth: got 0"):
        effects(LLAMA3_8B, A100_PCIE, [512], depth=0)
