"""reports/index.html: every page that is there, pairs' reports in one table with links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kvprefetch.html.page import page, shell_template
from kvprefetch.html.structure import article
from kvprefetch.publish import Published


def index_page(published: Sequence[Published]) -> str:
    """The index's HTML. Steps are given at the context that most reports swept, the largest such."""
    reports = [report for report in published if report.metrics]
    others = [page for page in published if not page.metrics]
    swept = Counter(row.ctx_len for report in reports for row in report.metrics.sweep)
    common = max(swept, key=lambda ctx_len: (swept[ctx_len], ctx_len), default=0)
    rows = [
        {
            "folder": report.folder,
            "metrics": report.metrics,
            "best": max(report.metrics.sweep, key=lambda row: row.reduction_pct),
            "step": next((row for row in report.metrics.sweep if row.ctx_len == common), None),
        }
        for report in reports
    ]
    content = article(shell_template("reports.html.j2").render(rows=rows, common=common, others=others))
    return page(content.title, content.body)
