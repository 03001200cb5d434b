"""Whole grids in one call, and each pair's limits."""

import time
from dataclasses import replace

import numpy as np
import pytest

from kvprefetch import LLAMA2_13B, LLAMA3_8B, RTX4090, InputError, Terms, compare, crossover_ctx, survey
from kvprefetch.capacity import largest_resident_ctx, usable_bytes
from kvprefetch.catalog import HARDWARE, MODELS, find, load_hardware, load_model, short_names
from kvprefetch.grid import standing
from kvprefetch.layers import MOST_CTX

GEMMA, L4 = load_model("gemma3-12b"), load_hardware("l4")
PAIRS = [(LLAMA3_8B, RTX4090), (LLAMA2_13B, RTX4090), (GEMMA, L4)]


def test_a_survey_is_what_compare_says_of_every_pair():
    models, cards, contexts = (LLAMA3_8B, GEMMA), (RTX4090, L4), (700, 512, 30_000, 512)
    grid = survey(models, cards, contexts, batch=2, depth=2, terms=Terms(kv_read=True))
    assert grid.ctx_len.tolist() == [512, 700, 30_000]
    assert grid.prefetch_ms.shape == grid.ondemand_ms.shape == grid.bound.shape == (2, 2, 3)
    for (m, c, n), prefetch in np.ndenumerate(grid.prefetch_ms):
        step = compare(models[m], cards[c], int(grid.ctx_len[n]), batch=2, depth=2, terms=Terms(kv_read=True))
        assert (prefetch, grid.ondemand_ms[m, c, n]) == (step.prefetch.total_ms, step.ondemand.total_ms)
        assert grid.bound[m, c, n] == step.bound
        assert grid.reduction_pct[m, c, n] == pytest.approx(step.reduction_pct)


def test_the_whole_catalogue_takes_seconds():
    models = [find(MODELS, name).config for name in short_names(MODELS)]
    cards = [find(HARDWARE, name).config for name in short_names(HARDWARE)]
    start = time.process_time()
    grid = survey(models, cards, np.linspace(1, 10**6, 1000).astype(int))
    assert grid.prefetch_ms.size > 800_000
    assert time.process_time() - start < 20  # a few, on a machine that does nothing else


@pytest.mark.parametrize(("models", "cards"), [([], [RTX4090]), ([LLAMA3_8B], [])])
def test_a_survey_of_nothing_is_refused(models, cards):
    with pytest.raises(InputError, match=r"(models|cards): got 'none'; accepted: one or more"):
        survey(models, cards, [512])


@pytest.mark.parametrize("target_ms", [0.001, 12, 50, 1000])
@pytest.mark.parametrize(("model", "hw"), PAIRS, ids=["fits", "does not fit", "sliding"])
def test_the_longest_context_in_time_is_in_time_and_one_token_more_is_not(model, hw, target_ms):
    limits = standing(model, hw, target_ms)
    longest = limits.link_in_time_ctx
    if longest:
        assert compare(model, hw, longest).prefetch.total_ms <= target_ms
    assert longest == MOST_CTX or compare(model, hw, longest + 1).prefetch.total_ms > target_ms


def test_a_pairs_limits_are_those_of_the_planner():
    limits = standing(LLAMA3_8B, RTX4090, 50)
    resident = largest_resident_ctx(LLAMA3_8B, usable_bytes(RTX4090))
    assert limits.weights_fit
    assert limits.crossover_ctx == crossover_ctx(LLAMA3_8B, RTX4090) == 2642
    assert (limits.resident_ctx, limits.offload_ctx) == (resident, resident + 1) == (54_351, 54_352)
    assert limits.offload_ms == compare(LLAMA3_8B, RTX4090, resident + 1).prefetch.total_ms
    assert limits.engine_ms == pytest.approx(compare(LLAMA3_8B, RTX4090, 1).engine_ms)
    assert limits.engine_in_time_ctx == resident  # the engine alone takes 13.8 ms
    assert limits.reach_ctx == 8192 == LLAMA3_8B.max_position_embeddings
    without_limit = replace(LLAMA3_8B, max_position_embeddings=None)
    assert standing(without_limit, RTX4090, 50).reach_ctx == resident
    assert not limits.link_serves
    assert standing(LLAMA3_8B, RTX4090, 300).link_serves  # 285 ms for the whole cache


def test_a_target_below_the_engine_is_never_met():
    limits = standing(LLAMA3_8B, RTX4090, 13)
    assert (limits.engine_in_time_ctx, limits.link_in_time_ctx, limits.reach_ctx) == (0, 0, 0)


def test_where_attention_reads_the_cache_the_engine_is_in_time_up_to_a_context():
    terms = Terms(kv_read=True)
    limits = standing(LLAMA3_8B, RTX4090, 15, terms=terms)
    longest = limits.engine_in_time_ctx
    assert 0 < longest < limits.resident_ctx
    assert (
        compare(LLAMA3_8B, RTX4090, longest, terms=terms).engine_ms
        <= 15
        < (compare(LLAMA3_8B, RTX4090, longest + 1, terms=terms).engine_ms)
    )


def test_weights_that_do_not_fit_and_a_card_of_unknown_memory():
    small = standing(LLAMA2_13B, RTX4090, 50)
    assert (small.weights_fit, small.offload_ctx, small.offload_ms, small.reach_ctx) == (False, None, None, 0)
    unknown = standing(LLAMA3_8B, replace(RTX4090, hbm_capacity_gb=None), 50)
    assert (unknown.weights_fit, unknown.resident_ctx, unknown.offload_ctx, unknown.reach_ctx) == (None, None, None, 0)
    assert unknown.link_in_time_ctx > 0
