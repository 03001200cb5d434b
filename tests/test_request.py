from dataclasses import replace

import pytest

from kvprefetch import InputError
from kvprefetch.catalog import HARDWARE, MODELS, CatalogEntry, find
from kvprefetch.configs import HardwareProfile
from kvprefetch.planner import DEFAULT_CONTEXTS
from kvprefetch.request import Request

PAIR = find(MODELS, "llama3-8b"), find(HARDWARE, "a100")


@pytest.mark.parametrize(
    ("parameters", "folder", "command"),
    [
        ({}, "llama3-8b--a100", "make report MODEL=llama3-8b HW=a100"),
        ({"contexts": reversed(DEFAULT_CONTEXTS)}, "llama3-8b--a100", "make report MODEL=llama3-8b HW=a100"),
        (
            {"contexts": [1024, 512, 512], "depth": 2, "batch": 4},
            "llama3-8b--a100--batch4-depth2-ctx512-1024",
            "make report MODEL=llama3-8b HW=a100 BATCH=4 DEPTH=2 CONTEXTS=512,1024",
        ),
        ({"depth": 3}, "llama3-8b--a100--depth3", "make report MODEL=llama3-8b HW=a100 DEPTH=3"),
    ],
)
def test_folder_and_command_spell_what_is_not_default(parameters, folder, command):
    request = Request(*PAIR, **parameters)
    assert (request.folder, request.command) == (folder, command)


def test_a_long_list_of_parameters_becomes_eight_digits_that_depend_on_all_of_them():
    folders = {Request(*PAIR, contexts=range(10**6, 10**6 + count)).folder for count in (9, 10, 11)}
    assert len(folders) == 3
    assert all(len(folder) == len("llama3-8b--a100--") + 8 for folder in folders)


def test_papermill_is_given_every_parameter_of_the_notebook():
    request = Request(*PAIR, contexts=(4, 2), batch=3)
    assert request.parameters == {
        **{"model": "llama3-8b", "hw": "a100", "contexts": [2, 4], "batch": 3, "depth": 1},
        **{
            "ctx_len": None,
            "resident": None,
            "reserve": 0.1,
            "target_ms": 50.0,
            "generate": 512,
            "terms": "first-order",
        },
    }


def card(hbm, pcie):
    return CatalogEntry("odd", "0" * 64, b"", HardwareProfile("odd", hbm, pcie), ())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch: got 0"),
        ({"depth": 1001}, "depth: got 1001; accepted: a whole number from 1 to 1000"),
        ({"contexts": ()}, "contexts: got 'none'"),
        ({"contexts": range(1, 102)}, "contexts: got '101 of them'; accepted: at most 100"),
        ({"hw": card(1e-3, 1e6)}, "model and hw: got 'a crossover of .* tokens'"),
    ],
)
def test_a_report_that_cannot_be_planned_is_refused(arguments, message):
    Request(*PAIR)
    with pytest.raises(InputError, match=message):
        Request(**{"model": PAIR[0], "hw": PAIR[1], **arguments})


def test_given_contexts_never_pass_for_the_default_ones():
    """Where no limit is known the planned context is the longest swept, so it depends on the contexts."""
    model = CatalogEntry("any", "0" * 64, b"", replace(PAIR[0].config, max_position_embeddings=None), ())
    unknown = CatalogEntry("card", "0" * 64, b"", HardwareProfile("card", 1000, 25), ())
    requests = [Request(model, unknown, resident=0, contexts=given) for given in (None, (*DEFAULT_CONTEXTS, 40_000))]
    assert len({request.folder for request in requests}) == len({request.command for request in requests}) == 2
    assert [request.plan.ctx_len for request in requests] == [32768, 40_000]


def test_a_rebuild_command_spells_numbers_as_they_are_accepted():
    assert Request(*PAIR, reserve=0.00005, target_ms=10**9).command.endswith("RESERVE=0.00005 TARGET_MS=1000000000")
