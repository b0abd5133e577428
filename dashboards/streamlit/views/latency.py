"""Latency at equal load: per batch bucket, before and after a change."""

from __future__ import annotations

import streamlit as st

import charts
import live
import segments
import words
from live import View
from segments import BucketRow, Comparison

NO_WINDOW = BucketRow(0, None, None, None, None)
COLUMNS = (
    ("time per output token p50", "tpot_p50"),
    ("time per output token p99", "tpot_p99"),
    ("time to first token p50", "ttft_p50"),
    ("time to first token p99", "ttft_p99"),
)


def body(view: View) -> None:
    """Draw the page."""
    if not view.data.points:
        st.info(
            "**No window stored yet.** Latencies show once requests have finished.",
            icon=":material/hourglass_top:",
        )
        return
    found = segments.comparisons(view.data.points, view.data.alarms, view.data.decisions, view.at)
    if found:
        _compare(view, found)
    else:
        st.markdown("**Latency by requests running at once**")
        st.caption("Nothing has changed yet, so there is nothing to compare: all windows held.")
        rows = segments.by_bucket(view.data.points, float("-inf"), float("inf"))
        _table(
            [
                {
                    "running": bucket,
                    "windows": str(row.windows),
                    **{name: words.milliseconds(getattr(row, key)) for name, key in COLUMNS},
                }
                for bucket, row in rows.items()
            ]
        )
    left, right = st.columns(2)
    with left:
        live.title("p99 time per output token", "by requests running at once")
        live.chart(charts.tpot(view.frame), "tpot", "p99 time per output token over time")
    with right:
        live.title("p99 time to first token", "by requests running at once")
        live.chart(charts.ttft(view.frame), "ttft", "p99 time to first token over time")


def _compare(view: View, found: tuple[Comparison, ...]) -> None:
    labels = [c.label for c in found]
    acts = (i for i, c in enumerate(found) if c.kind == "act")
    label = st.selectbox("Change to look at", labels, index=next(acts, 0), key="change")
    chosen = found[labels.index(label)] if label in labels else found[0]
    before = segments.by_bucket(view.data.points, *chosen.before)
    after = segments.by_bucket(view.data.points, *chosen.after)
    st.markdown(
        f"**Before ({chosen.before_name}) → after ({chosen.after_name}), "
        "by requests running at once**"
    )
    rows = []
    for bucket in dict.fromkeys([*before, *after]):
        b, a = before.get(bucket, NO_WINDOW), after.get(bucket, NO_WINDOW)
        cells = {"running": bucket, "windows": f"{b.windows} → {a.windows}"}
        for name, key in COLUMNS:
            cells[name] = _cell(getattr(b, key), getattr(a, key))
        rows.append(cells)
    _table(rows)
    st.caption(
        f"{chosen.note} Medians over the windows; a bucket seen on one side only is not "
        "comparable. A window's percentile covers the requests of the last few scrapes, so just "
        "after a change it still shows the time before."
    )


def _cell(before: float | None, after: float | None) -> str:
    if before is None and after is None:
        return "no finished request"
    dash = "none"
    change = segments.change(before, after)
    return f"{words.milliseconds(before, dash)} → {words.milliseconds(after, dash)}  \n**{change}**"


def _table(rows: list[dict[str, str]]) -> None:
    if rows:
        st.table(rows, hide_index=True, border="horizontal")
    else:
        st.info("**No window with finished requests here.**", icon=":material/pause_circle:")


live.show(body)
