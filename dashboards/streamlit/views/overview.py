"""What speculation does now, what happened, and what it is worth."""

from __future__ import annotations

import streamlit as st

import charts
import live
import timeline
import words
from answers import State
from live import View


def body(view: View) -> None:
    """Draw the page."""
    _numbers(view)
    if not view.frame.points and view.data.points:
        st.info("**No window in this stretch of time.** Choose a longer one, or auto.")
        return
    if not view.frame.points:
        st.info(
            "**No window stored yet.** The charts begin with the second scrape of the engine.",
            icon=":material/hourglass_top:",
        )
        return
    _story(view)
    left, right = st.columns(2)
    with left:
        live.title("Evidence of drift", "CUSUM / decision interval: an alarm at 1")
        live.chart(
            charts.cusum(view.frame, view.classes, view.data.alarms),
            "cusum",
            "CUSUM statistic per class over time",
        )
        live.title("p99 time per output token", "by requests running at once")
        live.chart(charts.tpot(view.frame), "tpot", "p99 time per output token over time")
        live.title("Load", "requests running and waiting")
        live.chart(charts.load(view.frame), "load", "requests running and waiting over time")
    with right:
        live.title("Speed of decoding", "against plain decoding at equal load; below 1 it loses")
        live.chart(charts.speedup(view.frame), "speedup", "speedup over plain decoding over time")
        live.title("Cost", "dollars per million output tokens")
        if any(p.cost is not None for p in view.frame.points):
            live.chart(charts.cost(view.frame), "cost", "dollars per million tokens over time")
        else:
            st.caption("Not known yet: name the GPU in the policy (`cost: {gpu: H100-SXM}`).")
        live.title("Classes", "now")
        _classes(view)


def _numbers(view: View) -> None:
    state = view.state
    columns = st.columns(6, gap="small")
    break_even = (
        f"break-even {state.break_even:.2f}"
        if state.break_even is not None
        else "break-even not known yet"
    )
    _metric(
        columns[0],
        "Acceptance",
        words.share(state.acceptance, words.why_no_acceptance(state)),
        break_even,
        "Accepted per draft token, all classes together, over the last windows. Break-even: the "
        "acceptance at which speculation is as fast as plain decoding at this load; it is known "
        "once a time per step without speculation was measured.",
    )
    _speed(columns[1], state)
    last = next((p for p in reversed(view.data.points) if p.tpot_p99 is not None), None)
    fresh = last is not None and state.time - last.time < 10 * state.scrape_interval
    _metric(
        columns[2],
        "TPOT p99",
        words.milliseconds(last.tpot_p99 if last and fresh else None, words.why_no_rate(state)),
        f"p50 {words.milliseconds(last.tpot_p50)}" if last and fresh else "no finished request",
        "Time per output token: 99% of requests got their tokens faster than this, on average over "
        "each request.",
    )
    _metric(
        columns[3],
        "Output tokens/s",
        words.why_no_rate(state)
        if state.tokens_per_second is None
        else f"{state.tokens_per_second:,.0f}",
        _load(state),
        "Tokens that all requests together receive each second.",
    )
    _metric(
        columns[4],
        "Cost per 1M tokens",
        words.dollars(state.cost, words.why_no_rate(state) if state.gpu_hour else "price not set"),
        _hardware(state),
        "GPU-hours at the price in the policy, over the tokens made.",
    )
    _worth(columns[5], state)


def _metric(
    column: st.delta_generator.DeltaGenerator, label: str, value: str, below: str, explained: str
) -> None:
    column.metric(
        label,
        value,
        below.replace("$", "\\$"),
        delta_color="off",
        delta_arrow="off",
        border=True,
        help=explained,
    )


def _speed(column: st.delta_generator.DeltaGenerator, state: State) -> None:
    below = words.why_unknown_benefit(state)
    if state.benefit is not None:
        below = "plain decoding = 1"
        if state.benefit_interval is not None:
            low, high = state.benefit_interval
            below = f"95%: {low:.2f} to {high:.2f}"
    off = state.engine_state == "speculation_off"
    _metric(
        column,
        "Speed vs plain",
        words.times(state.benefit, "1x (plain)" if off else words.NOT_KNOWN),
        below,
        "Tokens per second with speculation over those without it, at equal load. Below 1, "
        "speculation makes the engine slower.",
    )


def _worth(column: st.delta_generator.DeltaGenerator, state: State) -> None:
    label, value, below = "Speculation is worth", words.NOT_KNOWN, words.why_unknown_benefit(state)
    if state.engine_state == "speculation_off":
        value, below = "$0.00/h", "speculation is off"
    elif state.gpu_hour is None:
        value, below = "price not set", "policy: cost.gpu"
    elif state.gained is not None:
        label = "Speculation loses" if state.gained < 0 else "Speculation saves"
        value, below = f"{words.dollars(abs(state.gained))}/h", "vs plain decoding"
    _metric(
        column,
        label,
        value.replace("$", "\\$"),
        below,
        "What the same tokens would cost without speculation, less what they cost now.",
    )


def _load(state: State) -> str:
    if state.running is None:
        return "no request running"
    said = f"{state.running:.0f} running"
    return said if state.waiting is None else f"{said}, {state.waiting:.0f} waiting"


def _hardware(state: State) -> str:
    if state.gpu_hour is None:
        return "policy: cost.gpu"
    count = f"{state.gpus:g} x " if state.gpus is not None and state.gpus != 1 else ""
    return f"{count}{state.gpu or 'GPU'} at {words.dollars(state.gpu_hour)}/h"


def _story(view: View) -> None:
    explained = "solid: now · dashed: learned baseline · shaded: another rung in force"
    if view.state.break_even is not None:
        explained += " · long dashes: break-even at this load"
    if view.step > 1:
        explained += f" · every {view.step}th window drawn"
    live.title("Acceptance per class", explained)
    shown = set(view.classes)
    marked = timeline.events(
        [a for a in view.data.alarms if a.traffic_class in shown or len(shown) != 1],
        view.data.decisions,
        view.at,
    )
    live.chart(
        timeline.acceptance(view.frame, view.classes, marked, view.state.break_even),
        "acceptance",
        "acceptance per class over time with alarms and decisions",
    )


def _classes(view: View) -> None:
    rows = []
    for c in view.state.classes:
        if c.name not in view.classes:
            continue
        chart = {"learning": "learning", "watching": "watching", "alarmed": "alarm"}.get(
            c.chart_phase, c.chart_phase
        )
        if c.chart_phase == "learning" and c.progress is not None:
            chart = f"learning {c.progress:.0%}"
        rows.append(
            {
                "class": c.name,
                "acceptance": words.share(c.acceptance, words.why_no_acceptance(view.state)),
                "baseline": words.share(c.baseline),
                "share of drafts": "unknown" if c.share is None else f"{c.share:.0%}",
                "chart": chart,
                "cause": (c.cause or "").replace("_", " "),
            }
        )
    if rows:
        st.table(rows, hide_index=True, border="horizontal")
    if view.state.false_alarm_interval is not None:
        span = words.span(view.state.false_alarm_interval)
        st.caption(f"At most one false alarm per {span} for this workload.")


live.show(body)
