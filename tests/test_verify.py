import pytest

from kvprefetch import A100_PCIE, LLAMA3_8B, planner, verify
from kvprefetch.planner import DEFAULT_CONTEXTS


def failing(**arguments):
    checks = verify.verify(LLAMA3_8B, A100_PCIE, DEFAULT_CONTEXTS, **arguments)
    assert len(checks) == 6
    return [check.claim.split()[0] for check in checks if not check.holds]


@pytest.mark.parametrize("arguments", [{}, {"batch": 7}, {"batch": 10**5}, {"depth": 3}])
def test_all_checks_hold_for_a_real_pair(arguments):
    assert failing(**arguments) == []


def test_each_check_can_fail(monkeypatch):
    right = verify.prefetch_step, verify.crossover_ctx, verify.peak_ctx

    monkeypatch.setattr(verify, "prefetch_step", lambda c, t, depth: right[0](c, t, depth) * (1 + 1e-9))
    assert failing() == ["closed", "event"]
    monkeypatch.setattr(verify, "prefetch_step", lambda c, t, depth: right[0](c, t, depth) * 0.9)
    assert failing() == ["closed", "event", "max(sum", "largest"]
    monkeypatch.setattr(verify, "prefetch_step", right[0])

    for wrong in (1305, 1307):
        monkeypatch.setattr(verify, "crossover_ctx", lambda *_, wrong=wrong: wrong)
        assert "sum" in failing()
    monkeypatch.setattr(verify, "crossover_ctx", right[1])

    monkeypatch.setattr(verify, "peak_ctx", lambda *_: planner.crossover_ctx(LLAMA3_8B, A100_PCIE) - 1)
    assert failing() == ["largest"]
