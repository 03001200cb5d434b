from dataclasses import replace

import pytest
from stacks import INTERLEAVED_24, WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA3_8B, HardwareProfile, verify
from kvprefetch.configs import Terms
from kvprefetch.planner import DEFAULT_CONTEXTS

FAST_LINK = HardwareProfile("fast link", 100, 100)


def checked(model=LLAMA3_8B, hw=A100_PCIE, **arguments):
    return verify.verify(model, hw, DEFAULT_CONTEXTS, **arguments)


def failing():
    return [check.claim.split()[0] for check in checked() if not check.holds]


@pytest.mark.parametrize(
    ("model", "hw", "arguments", "count"),
    [
        (LLAMA3_8B, A100_PCIE, {}, 7),
        (LLAMA3_8B, A100_PCIE, {"batch": 7}, 7),
        (LLAMA3_8B, A100_PCIE, {"batch": 10**5}, 7),
        (LLAMA3_8B, A100_PCIE, {"depth": 3}, 7),
        (INTERLEAVED_24, A100_PCIE, {}, 5),
        (INTERLEAVED_24, A100_PCIE, {"depth": 2, "batch": 3}, 5),
        (WINDOWS_ALONE, FAST_LINK, {}, 6),
        (replace(LLAMA3_8B, num_hidden_layers=1), A100_PCIE, {}, 6),
    ],
)
def test_all_checks_hold_for_a_real_pair(model, hw, arguments, count):
    checks = checked(model, hw, **arguments)
    assert len(checks) == count
    assert all(check.holds for check in checks), checks


def test_each_check_can_fail(monkeypatch):
    right = verify.sweep_columns, verify.crossover_ctx, verify.peak_ctx
    assert failing() == []

    def sweeps(**wrong):
        def changed(*arguments):
            swept = right[0](*arguments)
            return replace(swept, **{name: getattr(swept, name) * factor for name, factor in wrong.items()})

        monkeypatch.setattr(verify, "sweep_columns", changed)

    sweeps(ondemand_ms=1 + 1e-9)
    assert failing() == ["sum"]
    sweeps(prefetch_ms=1 + 1e-9)
    assert failing() == ["closed", "event"]
    for wrong in (0.9, 1.9):
        sweeps(prefetch_ms=wrong)
        assert {"closed", "event", "max(sum"} <= set(failing())
    monkeypatch.setattr(verify, "sweep_columns", right[0])

    for wrong in (1305, 1307):
        monkeypatch.setattr(verify, "crossover_ctx", lambda *_, wrong=wrong: wrong)
        assert "sum" in failing()
    monkeypatch.setattr(verify, "crossover_ctx", right[1])

    for wrong in (1305, 1307):
        monkeypatch.setattr(verify, "peak_ctx", lambda *_, wrong=wrong: wrong)
        assert "largest" in failing()
    monkeypatch.setattr(verify, "peak_ctx", lambda *_: 1307)
    assert failing() == ["largest", "the"]


@pytest.mark.parametrize(
    ("hw", "terms"),
    [
        (HardwareProfile("slow attention", 4000, 346), Terms(kv_read=True, attention_efficiency=0.05)),
        (HardwareProfile("unified", 273, 250), Terms(kv_read=True, attention_efficiency=0.8)),
        (A100_PCIE, Terms(kv_read=True, copy_latency_us=10**6, resident_tokens=352)),
        (A100_PCIE, Terms(kv_read=True, lm_head=True, cross_token_overlap=True)),
    ],
)
def test_all_checks_hold_where_the_reduction_only_tends_to_its_largest_value(hw, terms):
    for model in (LLAMA3_8B, INTERLEAVED_24):
        checks = verify.verify(model, hw, DEFAULT_CONTEXTS, terms=terms)
        assert all(check.holds for check in checks), checks
