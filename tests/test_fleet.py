"""Which pairs are a fleet, and what its page says."""

import json
from dataclasses import replace

import numpy as np
import pytest
from html_rules import broken_rules

from kvprefetch import InputError, figures, fleet, heatmap, overview
from kvprefetch.catalog import HARDWARE, MODELS, find, short_names
from kvprefetch.fleet import Fleet, entries, fleet_names, names_in, requests
from kvprefetch.metrics import as_json
from kvprefetch.verify import summary


def members(models, cards):
    return [find(MODELS, name) for name in models.split()], [find(HARDWARE, name) for name in cards.split()]


BUILT_IN = members("llama3-8b llama2-13b mistral-7b", "a100 a100-gen3 rtx4090")


@pytest.fixture(scope="module")
def built_in():
    return Fleet(*BUILT_IN)


def test_the_fleet_of_the_file_is_the_nine_built_in_pairs():
    models, cards = fleet_names()
    pairs, failures = requests(entries(MODELS, models)[0], entries(HARDWARE, cards)[0], {})
    assert len(pairs) == 9 and not failures
    assert {pair.folder for pair in pairs} >= {"llama3-8b--a100", "mistral-7b--rtx4090"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [llama3-8b]", "params/fleet.yaml: cards: missing; required: models cards"),
        ("models: llama3-8b\ncards: [a100]", "params/fleet.yaml: models: got 'llama3-8b'; accepted: a list of short"),
        ("models: [1]\ncards: [a100]", "params/fleet.yaml: models: got [1]; accepted: a list of short names"),
        ("models: [a]\nhws: [a100]", "params/fleet.yaml: key: got 'hws'; accepted: models cards"),
        (None, "params/fleet.yaml: cannot be read: No such file or directory"),
    ],
)
def test_a_bad_fleet_file_is_one_line(tmp_path, monkeypatch, text, message):
    monkeypatch.setattr(fleet, "DATA", tmp_path)
    if text is not None:
        (tmp_path / "params").mkdir()
        (tmp_path / "params" / "fleet.yaml").write_text(text)
    with pytest.raises(InputError) as refused:
        fleet_names()
    assert str(refused.value).startswith(message)


def test_names_are_parted_by_blanks_and_commas_and_all_is_the_catalogue():
    assert names_in(" a,b  c,\na ", MODELS) == ["a", "b", "c"]
    assert names_in("x all", MODELS) == ["x", *short_names(MODELS)]
    assert names_in(" ", MODELS) == []


def test_a_pair_that_cannot_be_is_a_line_and_the_others_are_there():
    (model,), (card, other) = members("llama3-8b", "a100 rtx4090")
    unknown = replace(other, config=replace(other.config, hbm_capacity_gb=None))
    pairs, failures = requests([model], [card, unknown], {"resident": "auto"})
    assert [pair.folder for pair in pairs] == ["llama3-8b--a100--residentauto"]
    assert failures == [
        "llama3-8b--rtx4090: resident: got 'auto'; accepted: a number of tokens, as the card's file states no "
        "hbm_capacity_gb"
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"models": ()}, "models: got '0 of them'; accepted: 1 to 1000"),
        ({"target_ms": -1}, "target_ms: got -1; accepted: a number from 0"),
        ({"batch": 0}, "batch: got 0"),
        ({"terms": "refine"}, "terms: got 'refine'; accepted: first-order refined. Did you mean refined?"),
    ],
)
def test_a_bad_fleet_is_refused(built_in, changed, message):
    with pytest.raises(InputError) as refused:
        replace(built_in, **changed)
    assert str(refused.value).startswith(message)


def test_only_the_files_fleet_has_the_plain_folder(built_in):
    assert built_in.folder == "fleet"
    others = [replace(built_in, target_ms=20), replace(built_in, batch=2), Fleet(BUILT_IN[0][:2], BUILT_IN[1])]
    folders = [each.folder for each in others]
    assert all(folder.startswith("fleet--") and len(folder) == 15 for folder in folders)
    assert len(set(folders)) == 3
    assert others[0].command.endswith("HWS=a100,a100-gen3,rtx4090 TARGET_MS=20")


def test_the_page_depends_on_every_file_and_parameter(built_in):
    card = BUILT_IN[1][0]
    edited = replace(built_in, cards=(replace(card, content=card.content + b"\n"), *BUILT_IN[1][1:]))
    assert len({built_in.inputs, edited.inputs, replace(built_in, depth=2).inputs}) == 3


def test_the_crossover_lies_far_below_the_first_context_to_offload(built_in):
    assert figures.ratios(built_in).min() > 20
    assert overview.gap(built_in) == (
        "In each of the 8 pairs that have both, the crossover lies below the first context that must offload, which is "
        "21 to 760 times as long: where the cache has to leave the GPU, the link is already the bound, and prefetch "
        "hides only a part."
    )


def test_a_context_beyond_what_a_model_was_made_for_is_said_and_does_not_count(built_in):
    assert list(overview.beyond(built_in)) == [
        "In all 8 pairs with such a context, it is longer than the model was made for: at batch 1, that cache never "
        "has to leave the GPU.",
        "In 1 of 9 pairs not even the weights fit.",
    ]
    assert list(overview.beyond(Fleet(*members("opt-66b", "mi300x"), batch=400))) == []
    for model, _, each in figures.pairs(built_in):
        assert each.reach_ctx <= model.config.max_position_embeddings


def test_the_span_is_that_of_the_pairs_that_are_counted():
    mixed = Fleet(*members("mistral-7b phi-2", "t4"))
    short, long = sorted(figures.ratios(mixed))
    assert short < 1 < long
    assert overview.gap(mixed).startswith(
        "In 1 of the 2 pairs that have both, the crossover lies below the first context that must offload, which is "
        f"{long:.2g} times as long: "
    )


def test_the_best_card_reaches_furthest_and_of_equals_is_the_fastest(built_in):
    row = built_in.standings[0]
    assert figures.best_card(row) == 0
    slower = replace(row[0], engine_ms=row[0].engine_ms + 1)
    assert figures.best_card([slower, row[0]]) == 1
    assert figures.best_card([replace(row[0], reach_ctx=0)]) is None


def test_models_that_no_link_serves_and_those_that_one_does(built_in):
    assert figures.unserved(built_in) == ["llama3-8b", "llama2-13b", "mistral-7b"]
    assert overview.served(built_in) == (
        "Where the cache must leave the GPU, no card's link brings all of it within 50 ms for all 3 models: "
        "llama3-8b, llama2-13b, mistral-7b. At batch 1, and at contexts that it was made for, none comes to that."
    )
    slow = replace(built_in, target_ms=300)
    assert figures.unserved(slow) == ["llama2-13b", "mistral-7b"]
    assert "for 2 of 3 models: llama2-13b, mistral-7b." in overview.served(slow)
    assert list(overview.exceptions(slow)) == [
        "A link keeps up, at the first context that must offload, for llama3-8b on rtx4090."
    ]
    assert "Every model that must offload has a card" in overview.served(replace(built_in, target_ms=1e5))


def test_models_that_come_to_it_at_contexts_they_were_made_for_are_named():
    some = Fleet(*members("llama3-8b opt-6.7b qwen3-8b", "rtx4090 l4"), batch=4)
    assert overview.served(some).endswith(" At batch 4, and at contexts that it was made for, it is so for qwen3-8b.")


def test_the_tables_say_why_there_is_no_context():
    some = Fleet(*members("llama2-13b llama3-8b", "rtx4090"))
    assert overview.offloads(some, 0) == ["no fit", "54\N{NARROW NO-BREAK SPACE}352"]
    assert overview.crossovers(some, 0) == ["769", "2\N{NARROW NO-BREAK SPACE}642"]
    windows = Fleet(*members("mistral-7b-v0.1", "h200"))
    assert overview.offloads(windows, 0) == ["never"]
    assert overview.crossovers(Fleet(*members("mistral-7b-v0.1", "a10")), 0) == ["never"]
    card = replace(BUILT_IN[1][0], config=replace(BUILT_IN[1][0].config, hbm_capacity_gb=None))
    assert set(overview.offloads(Fleet(BUILT_IN[0], [card]), 0)) == {"not known"}


def test_cards_that_tie_are_named_together(built_in):
    assert [row.card for row in overview.best_rows(built_in)] == ["a100, a100-gen3"] * 3


def test_one_pair_and_none_below_are_said_in_words_of_their_own():
    one = Fleet(*members("llama3-8b", "a100"))
    assert overview.gap(one).startswith("In the one pair that has both, the crossover lies below the first context")
    assert "which is 360 times as long: where" in overview.gap(one)
    # Little room and a slow engine: offload begins while the link is still faster.
    above = Fleet(*members("mistral-7b", "t4"))
    assert figures.ratios(above).max() < 1
    assert overview.gap(above).startswith("In the one pair that has both, the crossover does not lie below")


def test_what_fits_nowhere_is_said():
    lone = Fleet(*members("llama2-13b", "rtx4090"))
    assert overview.gap(lone) == "No pair has both a crossover and a context that must offload."
    assert overview.ratio_note(lone) == ("–", "no pair has both")
    assert overview.span(lone, "offload_ctx") == "never"
    assert overview.in_time(lone) == "No card serves any of these models within 50 ms a step."
    assert overview.served(lone) == "None of these models must leave a card on which its weights fit."
    assert list(overview.exceptions(lone)) == ["The weights alone fit none of these cards for llama2-13b."]
    assert overview.best_rows(lone)[0].card == "–"
    assert overview.closest_rows(lone) == []
    assert summary(figures.fleet_checks(lone)).startswith("All 2 checks hold")


def test_many_names_are_cut_short():
    many = Fleet(*members(" ".join(short_names(MODELS)[:16]), "mi300x"))
    assert overview.served(many).count(",") <= 14


@pytest.mark.parametrize("cards", ["a100 l4", "a100 l4 rtx4090 h200 t4 a10"], ids=["few", "many"])
def test_a_heatmap_has_the_labels_and_both_values_of_each_pair(cards):
    some = Fleet(*members("llama3-8b mistral-7b-v0.1", cards))
    rows, columns = [["llama3-8b", "mistral-7b-v0.1"], cards.split()]
    chart, (cells, bar) = heatmap.heatmap_figure(rows, columns)
    left, right = figures.heat(some, "crossover_ctx"), figures.heat(some, "offload_ctx")
    heatmap.heatmap(cells, bar, rows, columns, left, right)
    (image,) = cells.get_images()
    assert image.get_array().shape == (2, 2 * len(columns))
    np.testing.assert_array_equal(image.get_array().filled(np.nan)[:, ::2], left)
    np.testing.assert_array_equal(image.get_array().filled(np.nan)[:, 1::2], right)
    assert [tick.get_text() for tick in cells.get_yticklabels()] == rows
    assert [tick.get_text() for tick in cells.get_xticklabels()] == columns
    assert bool(cells.texts) == (len(columns) <= heatmap.FEW)
    assert chart.get_size_inches()[0] < 6


def test_a_heatmap_of_nothing_is_drawn():
    chart, (cells, bar) = heatmap.heatmap_figure(["m"], ["c"])
    nothing = np.array([[np.nan]])
    heatmap.heatmap(cells, bar, ["m"], ["c"], nothing, nothing)
    chart.canvas.draw()
    assert [text.get_text() for text in cells.texts] == ["–", "–"]


def test_the_alt_text_gives_the_spans(built_in):
    alt = overview.heatmap_alt(built_in)
    assert "3 models by 3 cards" in alt and "183 to 2" in alt and "21 to 760 times" in alt


def test_every_check_holds_for_stacks_of_all_kinds():
    some = Fleet(*members("gemma3-4b mistral-7b-v0.1 qwen3-next-80b-a3b", "l4 mi300x"), terms="refined")
    assert all(check.holds for check in figures.fleet_checks(some))


def test_the_metrics_hold_every_pair(built_in):
    read = json.loads(as_json(figures.fleet_metrics(built_in)))
    assert [(pair["model"], pair["card"]) for pair in read["pairs"]][:2] == [
        ("llama3-8b", "a100"),
        ("llama3-8b", "a100-gen3"),
    ]
    assert read["pairs"][0]["crossover_ctx"] == 1306
    assert read["best"][0] == {"model": "llama3-8b", "card": "a100", "reach_ctx": 8192}
    assert read["target_ms"] == 50.0


def test_the_page_keeps_the_promises(fleet_page):
    assert broken_rules(fleet_page.decode()) == []
    text = fleet_page.decode()
    assert "The fleet: 3 models on 3 cards" in text
    assert "All 3 checks hold" in text
