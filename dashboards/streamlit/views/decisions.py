"""Every decision with its one sentence, and each one run again on request."""

from __future__ import annotations

import streamlit as st

import live
import words
from answers import Decision
from client import ApiProblem
from live import View

SHOWN = 50


def body(view: View) -> None:
    """Draw the page."""
    decisions = view.data.decisions[:SHOWN]
    if view.classes and len(view.classes) == 1:
        only = view.classes[0]
        decisions = tuple(d for d in decisions if d.traffic_class in ("", only))
    if decisions:
        _explain(view, decisions)
        live.title("Decisions", "newest first")
        st.table(
            [
                {
                    "time": view.at(d.time),
                    "decision": words.KINDS.get(d.kind, d.kind),
                    "rung": d.rung.replace("-", "\u2011"),  # a hyphen that does not break
                    "class": d.traffic_class,
                    "cause": d.cause.replace("_", "\u00a0"),
                    "sentence": live.plain(d.sentence),
                }
                for d in decisions
            ],
            hide_index=True,
            border="horizontal",
        )
    else:
        st.info(
            "**No decision yet.** One is made when acceptance drifts, when speculation is "
            "measured to lose, or when the mix of classes changes.",
            icon=":material/gavel:",
        )
    _alarms(view)


def _explain(view: View, decisions: tuple[Decision, ...]) -> None:
    with st.expander("Explain a decision: run it again from its stored inputs"):
        by_id = {d.id: d for d in decisions}

        def label(number: int) -> str:
            d = by_id.get(number)
            if d is None:
                return str(number)
            return f"#{d.id}  {view.at(d.time)}  {words.KINDS.get(d.kind, d.kind)}  {d.rung}"

        number = st.selectbox("Decision", list(by_id), format_func=label, key="explain")
        try:
            found = live.explain(live.api_url(), number)
        except ApiProblem as problem:
            live.say(problem)
            return
        if found.identical is True:
            st.markdown(":green[:material/check: The same inputs give the same decision again.]")
        elif found.identical is False:
            st.warning(
                "The same inputs give another decision now: another version of specdrift decided. "
                + "; ".join(live.plain(d) for d in found.differences),
                icon=":material/difference:",
            )
        st.code("\n".join(found.lines) or "nothing was weighed", language=None, wrap_lines=True)


def _alarms(view: View) -> None:
    shown = [
        a
        for a in view.data.alarms[:SHOWN]
        if len(view.classes) != 1 or a.traffic_class in view.classes
    ]
    live.title("Alarms", "newest first")
    if not shown:
        st.caption("No alarm in the store.")
        return
    st.table(
        [
            {
                "time": view.at(a.time),
                "class": a.traffic_class,
                "what": live.plain(words.alarm(a, view.at)),
                "evidence": live.plain("; ".join(a.evidence)),
                "advice": live.plain(a.advice),
            }
            for a in shown
        ],
        hide_index=True,
        border="horizontal",
    )


live.show(body)
