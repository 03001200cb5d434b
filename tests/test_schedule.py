from functools import partial

import numpy as np
import pytest
from brute_force import brute_force_ondemand_step, brute_force_step
from hypothesis import given
from hypothesis import strategies as st

from kvprefetch import InputError
from kvprefetch.schedule import (
    ROWS_AT_ONCE,
    ondemand_step,
    ondemand_timeline,
    prefetch_step,
    steady_step,
    timeline,
    uniform_prefetch_step,
)
from kvprefetch.simulation import simulated_step

ULPS = 1e-13  # relative: what some hundred additions in another order may differ by

ticks = st.integers(0, 6)
stacks = st.integers(1, 9).flatmap(
    lambda layers: st.tuples(
        st.lists(ticks, min_size=layers, max_size=layers), st.lists(ticks, min_size=layers, max_size=layers)
    )
)
depths = st.integers(1, 5)
seconds = st.floats(1e-6, 1.0)


@given(stacks, depths)
def test_prefetch_takes_as_many_ticks_as_the_brute_force_simulation(stack, depth):
    compute, transfer = stack
    assert prefetch_step(compute, transfer, depth) == brute_force_step(compute, transfer, depth)


@given(stacks)
def test_ondemand_takes_as_many_ticks_as_the_brute_force_simulation(stack):
    compute, transfer = stack
    assert ondemand_step(compute, transfer) == brute_force_ondemand_step(compute, transfer)


@given(stacks, depths)
def test_the_event_simulation_takes_as_many_ticks_as_the_brute_force_simulation(stack, depth):
    compute, transfer = stack
    assert simulated_step(compute, transfer, depth) == brute_force_step(compute, transfer, depth)


@given(seconds, seconds, st.integers(1, 80), depths)
def test_a_uniform_stack_has_the_closed_form_at_every_depth(c, t, layers, depth):
    step = prefetch_step([c] * layers, [t] * layers, depth)
    assert step == pytest.approx(uniform_prefetch_step(c, t, layers), rel=ULPS)


@given(stacks, depths)
def test_the_step_lies_between_the_busier_resource_and_the_sum(stack, depth):
    compute, transfer = stack
    assert max(sum(compute), sum(transfer)) <= prefetch_step(compute, transfer, depth) <= sum(compute) + sum(transfer)


@given(stacks, depths)
def test_prefetch_never_saves_more_than_half(stack, depth):
    compute, transfer = stack
    assert 2 * prefetch_step(compute, transfer, depth) >= ondemand_step(compute, transfer)


@given(stacks, depths)
def test_more_depth_is_never_slower(stack, depth):
    compute, transfer = stack
    assert prefetch_step(compute, transfer, depth + 1) <= prefetch_step(compute, transfer, depth)


def test_depth_is_a_speed_knob_where_layers_differ():
    """A second buffer ahead lets the one long transfer start earlier; in a uniform stack it buys nothing."""
    compute, transfer = [2, 2, 2, 2], [1, 1, 1, 5]
    assert prefetch_step(compute, transfer, depth=2) < prefetch_step(compute, transfer, depth=1)


def test_a_layer_that_fetches_nothing_takes_no_buffer():
    """With one buffer ahead, the fetch for layer 3 starts behind that for layer 1 although layer 2 lies between."""
    lines = timeline([5, 5, 5], [2, 0, 2], depth=1)
    assert lines.fetch_start.tolist() == [0, 2, 2]
    assert lines.compute_start.tolist() == [2, 7, 12]


@given(st.lists(stacks, min_size=1, max_size=6), depths)
def test_rows_of_a_sweep_may_fetch_in_different_layers(rows, depth):
    layers = min(len(compute) for compute, _ in rows)
    compute = np.array([row[0][:layers] for row in rows])
    transfer = np.array([row[1][:layers] for row in rows])
    alone = [brute_force_step(c, t, depth) for c, t in zip(compute.tolist(), transfer.tolist(), strict=True)]
    assert prefetch_step(compute, transfer, depth).tolist() == alone


def test_a_long_sweep_equals_its_rows_one_by_one():
    rng = np.random.default_rng(0)
    compute, transfer = rng.random((2, ROWS_AT_ONCE + 3, 5))
    transfer[::3, 2] = 0
    steps = prefetch_step(compute, transfer, 2)
    for row in (0, 1, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 2):
        assert steps[row] == prefetch_step(compute[row], transfer[row], 2)
        assert ondemand_step(compute, transfer)[row] == ondemand_step(compute[row], transfer[row])


def test_leading_axes_broadcast():
    compute, transfer = np.ones(3), np.arange(24.0).reshape(2, 4, 3)
    steps = prefetch_step(compute, transfer)
    assert steps.shape == (2, 4)
    assert steps[1, 2] == prefetch_step(compute, transfer[1, 2])
    assert ondemand_step(compute, transfer).shape == (2, 4)
    assert timeline(compute, transfer).fetch_end.shape == (2, 4, 3)


@given(stacks, depths)
def test_the_timeline_ends_with_the_step_and_never_serves_two_layers_at_once(stack, depth):
    compute, transfer = stack
    for lines, step in (
        (timeline(compute, transfer, depth), prefetch_step(compute, transfer, depth)),
        (ondemand_timeline(compute, transfer), ondemand_step(compute, transfer)),
    ):
        assert lines.compute_end[-1] == step
        assert (lines.fetch_end - lines.fetch_start).tolist() == transfer
        assert (lines.compute_end - lines.compute_start).tolist() == compute
        assert (lines.compute_start[1:] >= lines.compute_end[:-1]).all()
        fetching = np.array(transfer) > 0
        assert (lines.fetch_start[fetching][1:] >= lines.fetch_end[fetching][:-1]).all()
        assert (lines.compute_start[fetching] >= lines.fetch_end[fetching]).all()


@pytest.mark.parametrize(
    ("compute", "transfer", "depth", "message"),
    [
        ([1.0], [-1.0], 1, "transfer: got .*from 0 to 1e.100"),
        ([np.nan], [1.0], 1, "compute: got .*from 0 to"),
        ([1.0], [np.inf], 1, "transfer: got .*from 0 to"),
        ([], [], 1, "compute: got .*an array"),
        (1.0, 1.0, 1, "compute: got .*an array"),
        ([1.0, 1.0], [1.0], 1, "transfer: got '1 layers'; accepted: as many as compute has, 2"),
        ("ab", [1.0], 1, "compute: got 'ab'"),
        ([[1.0], [1.0, 2.0]], [1.0], 1, "compute: got"),
        ([10**6000], [1.0], 1, "compute: got"),
        ([1e300], [1e300], 1, "compute: got"),
        (np.ones((2, 3)), np.ones((4, 3)), 1, "transfer: got 'shape .4, 3.'; accepted: one that broadcasts"),
        ([1.0], [1.0], 0, "depth: got 0; accepted: a whole number from 1 to"),
        ([1.0], [1.0], 1.5, "depth: got 1.5"),
        ([1.0], [1.0], True, "depth: got True"),
    ],
)
def test_bad_arrays_and_depths_are_refused(compute, transfer, depth, message):
    with pytest.raises(InputError, match=message):
        prefetch_step(compute, transfer, depth)


@given(data=st.data(), depth=st.integers(1, 5), kinds=st.integers(1, 3))
def test_equal_layers_may_share_a_column_and_nothing_changes_to_the_bit(data, depth, kinds):
    order = data.draw(st.lists(st.integers(0, kinds - 1), min_size=1, max_size=12))
    seconds = st.one_of(st.just(0.0), st.floats(1e-6, 1.0))
    rows = data.draw(st.lists(st.tuples(*[seconds] * (2 * kinds)), min_size=1, max_size=4))
    compute, transfer = np.array(rows)[:, :kinds], np.array(rows)[:, kinds:]
    for step in (ondemand_step, partial(prefetch_step, depth=depth), partial(steady_step, depth=depth)):
        shared, spelled = step(compute, transfer, order=order), step(compute[:, order], transfer[:, order])
        assert shared.tolist() == spelled.tolist()
    assert ondemand_step(compute, transfer, order).tolist() == (
        ondemand_timeline(compute[:, order], transfer[:, order]).compute_end[:, -1].tolist()
    )
    assert prefetch_step(compute, transfer, depth, order).tolist() == (
        timeline(compute[:, order], transfer[:, order], depth).compute_end[:, -1].tolist()
    )
