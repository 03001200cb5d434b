"""reports/index.html: every report that is there, in one table with links, and the pages beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kvprefetch.html.page import page, shell_template
from kvprefetch.html.structure import article
from kvprefetch.metrics import Metrics
from kvprefetch.publish import Beside, Published


def index_page(reports: Sequence[Published], beside: Sequence[Beside] = ()) -> str:
    """The index's HTML. Steps are given at the context that most reports swept, the largest such."""
    swept = Counter(row.ctx_len for report in reports for row in report.metrics.sweep)
    common = max(swept, key=lambda ctx_len: (swept[ctx_len], ctx_len), default=0)
    rows = [
        {
            "folder": report.folder,
            "metrics": report.metrics,
            "terms": _terms(report.metrics),
            "stays": "–" if report.metrics.plan.resident_ctx is None else report.metrics.plan.resident_ctx,
            "best": max(report.metrics.sweep, key=lambda row: row.reduction_pct),
            "step": next((row for row in report.metrics.sweep if row.ctx_len == common), None),
        }
        for report in reports
    ]
    content = article(shell_template("reports.html.j2").render(rows=rows, common=common, beside=beside))
    return page(content.title, content.body)


def _terms(metrics: Metrics) -> str:
    """The terms in force, the resident window among them."""
    kept = f", R {metrics.resident_tokens}" if metrics.resident_tokens else ""
    return metrics.terms.replace(",", ", ") + kept
