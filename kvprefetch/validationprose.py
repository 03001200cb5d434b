"""What does the validation come to in words? The sentences of its page, and the one beside each verdict."""

from __future__ import annotations

from collections.abc import Sequence

from kvprefetch.accuracy import WHERE, Accuracy, accuracies, accuracy, percent, signed
from kvprefetch.diagnosis import one_buffers
from kvprefetch.measured import Document, Kind, Way
from kvprefetch.measurements import documents
from kvprefetch.plan import Fit, Plan
from kvprefetch.validation import Prediction, predictions

PAGE = "../validation/report.html"  # from the folder of another report
NAMES = {Way.LAW: "the law alone", Way.REFINED: "refined terms", Way.FIRST_ORDER: "first order"}


def track_record(plan: Plan) -> str:
    """How accurate a plan of this kind, in its terms, has been, as Markdown, with a link to every row."""
    terms = plan.terms
    shares = terms.weight_efficiency < 1 and terms.attention_efficiency < 1
    way = Way.REFINED if terms.kv_read and shares else Way.FIRST_ORDER
    name = NAMES[way]
    if terms.kv_read and way is Way.FIRST_ORDER:
        name += " (the card's file does not state both shares of its HBM rate)"
    kinds = (
        [Kind.RESIDENT]
        if plan.fit is Fit.RESIDENT or not plan.step.offloaded_bytes
        else [Kind.RESIDENT, Kind.ONDEMAND, Kind.ONE_AHEAD]
    )
    parts = ", ".join(_missed(accuracy(predictions((kind,), (way,)), kind, way)) for kind in kinds)
    return (
        f"How accurate this kind of prediction has been: against published measurements, {_cards(documents())}, {name} "
        f"missed the step {parts}. [The validation]({PAGE}), which `make validation` builds, shows every row "
        "and what is missing from the model."
    )


def _cards(papers: Sequence[Document]) -> str:
    names = sorted({paper.card.config.name for paper in papers if paper.card})
    return f"all of one card ({names[0]})" if len(names) == 1 else f"of {len(names)} cards"


def question(made: Sequence[Prediction], papers: Sequence[Document]) -> str:
    """What the page asks, and how."""
    rows = sum(len(paper.rows) for paper in papers)
    return (
        f"A model that is checked against itself alone convinces nobody. This page holds {len(made)} predictions "
        f"against {rows} decode steps that others have measured and published, in {len(papers)} sets, kind by kind "
        "and in up to three ways; it says where the predictions are off, by how much, and what is missing from the "
        "model there."
    )


def trust(made: Sequence[Prediction]) -> tuple[str, ...]:
    """How far the figures of a report can be trusted."""
    law, refined, first = (accuracy(made, Kind.ONDEMAND, way) for way in Way)
    ahead = accuracy(made, Kind.ONE_AHEAD, Way.REFINED)
    return (
        f"**On demand, the laws hold to {percent(law.median_pct)} in the median; with a card's measured efficiencies "
        f"the whole planner holds to {percent(refined.median_pct)}, and without them it is {signed(first.bias_pct)}.** "
        "The sum of engine and link is right; what is uncertain is the engine's own rate.",
        f"**A real pipeline is slower than the one computed: the prediction is {signed(ahead.bias_pct)} in the median "
        f"and {signed(ahead.worst_pct)} at worst.** Read a predicted reduction as what a perfect implementation gains.",
    )


def worst(each: Accuracy) -> str:
    """The note under a key figure."""
    return f"median of {len(each.errors_pct)} rows; worst {signed(each.worst_pct)}"


def comes_to(made: Sequence[Prediction], way: Way) -> str:
    """What one way of predicting comes to, over all kinds."""
    parts = [_missed(each) for each in accuracies(made) if each.way is way]
    return f"{NAMES[way].capitalize()} missed the step {'; '.join(parts)}."


def independence(papers: Sequence[Document]) -> str:
    """Whose rows are judged with what."""
    given = " and ".join(paper.slug for paper in papers if paper.gives)
    return (
        f"No figure is fitted to rows that it is judged on. The card's file takes the two shares of its HBM rate from "
        f"{given}, so refined terms are judged on the other documents alone. All rows with a model and a card are "
        f"{_cards(papers).removeprefix('all ')}: this tests the model, not every card."
    )


def missing() -> str:
    """What section 5 comes to."""
    rows = one_buffers()
    slower = sum(each.ideal_pct < 0 for each in rows)
    return (
        "Three things account for nearly all of the error: reads that reach only a share of the stated rate, which one "
        "calibration finds; the engine's build, which no file knows; and overlap that a real pipeline does not reach "
        f"({slower} of {len(rows)} rows are slower than predicted)."
    )


def no_targets(count: int) -> str:
    """Why some public figures stay out."""
    return (
        f"{count} public figures look comparable and are not: prefill is in the rate, the CPU computes attention, or "
        "something other than the cache is streamed. They are in no error figure on this page."
    )


def _missed(each: Accuracy) -> str:
    rows = f"median of {len(each.errors_pct)} rows, at worst {signed(each.worst_pct)}"
    return f"{WHERE[each.kind]} by {percent(each.median_pct)} ({rows})"
