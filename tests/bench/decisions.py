"""Decisions against known truth: generated scenarios, the real loop, a confusion matrix.

    python -m tests.bench.decisions [--count 100] [--first-seed 70000] [--out FILE]

Every scenario file is drawn from its seed: loads, lengths, step times, K, class mix, what changes
(or nothing) and how much. The simulator's own equilibrium says which allowed rung is fastest at
the load the story ends with; the loop under a virtual clock does not know it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specdrift.core.specconfig import SpecConfig
from specdrift.sim.analysis import outlook, speed
from specdrift.sim.scenario import Scenario, parse_scenario
from tests.support.virtual import MemoryStore, run_story

KINDS = (
    "none",
    "content_drift",
    "content_drift_all",
    "weights_changed",
    "restart_unchanged",
    "engine_changed",
    "engine_fault_suspected",
    "mix_shift",
    "overload",
)
AT = 32.0
DURATION = 110.0
MIN_GAIN = 0.02
WITHIN = 0.02


def draw(seed: int) -> Scenario | None:
    """Return the scenario of a seed, or None when it would not be stable under every rung."""
    r = np.random.default_rng([seed, 20261121])
    kind = KINDS[seed % len(KINDS)]
    k = int(r.integers(2, 6))
    names = ("chat", "code")
    classes = {
        name: {
            "arrivals_per_second": float(r.uniform(2.0, 6.0)),
            "output_tokens": {"mean": float(r.uniform(100, 220)), "sigma": 0.35, "max": 640},
            "prompt_tokens": {"mean": float(r.uniform(100, 300)), "sigma": 0.3, "max": 2048},
            "acceptance": {"eagle3": float(r.uniform(0.5, 0.88))},
            "between_requests_sd": float(r.uniform(0.05, 0.12)),
        }
        for name in names
    }
    document: dict[str, Any] = {
        "version": 1,
        "name": f"generated-{kind}-{seed}",
        "seed": seed,
        "duration_seconds": DURATION,
        "engine": {
            "version": "0.32.0",
            "model": "simulated-llama",
            "max_num_seqs": 160,
            "startup_seconds": 2.0,
            "speculative_config": {
                "method": "eagle3",
                "model": "/models/draft",
                "num_speculative_tokens": k,
            },
            "step_time": {
                "base_seconds": float(r.uniform(0.006, 0.014)),
                "per_token_seconds": float(r.uniform(2e-5, 7e-5)),
                "draft_seconds_per_token": {"eagle3": float(r.uniform(0.0004, 0.0035))},
                "draft_seconds_per_token_and_request": {"eagle3": float(r.uniform(0, 2e-5))},
                "noise": 0.02,
            },
        },
        "classes": classes,
        "events": _events(kind, classes, r),
        "policy": {"safety": {"minGain": MIN_GAIN}},
    }
    scenario = parse_scenario(json.dumps(document), where=f"seed {seed}")
    resolved = scenario.resolve(seed)
    for t in (0.0, DURATION):
        for rung in _rungs(scenario).values():
            if not outlook(resolved, rung, t).running < 110:
                return None
    return scenario


def _events(kind: str, classes: Mapping[str, Any], r: np.random.Generator) -> list[dict[str, Any]]:
    now = {name: c["acceptance"]["eagle3"] for name, c in classes.items()}
    ramp = float(r.uniform(0, 5))
    worse = {name: float(a * r.uniform(0.1, 0.75)) for name, a in now.items()}

    def drift(name: str, to: float) -> dict[str, Any]:
        return {
            "at": AT,
            "type": "acceptance",
            "class": name,
            "to": {"eagle3": to},
            "over_seconds": ramp,
        }

    if kind == "content_drift":
        return [drift("code", worse["code"])]
    if kind == "content_drift_all":
        return [drift(name, max(0.2, to)) for name, to in worse.items()]
    if kind == "engine_fault_suspected":
        ramp = 0.0
        return [drift(name, 0.02) for name in now]
    if kind == "weights_changed":
        after = {name: {"eagle3": to} for name, to in worse.items()}
        return [{"at": AT, "type": "restart", "acceptance": after}]
    if kind == "restart_unchanged":
        return [{"at": AT, "type": "restart"}]
    if kind == "engine_changed":
        after = {name: {"eagle3": to} for name, to in worse.items()}
        return [{"at": AT, "type": "restart", "acceptance": after, "version": "0.33.0"}]
    if kind == "mix_shift":
        chat, code = (classes[n]["arrivals_per_second"] for n in ("chat", "code"))
        factor = float(r.uniform(0.15, 0.35))
        return [
            {
                "at": AT,
                "type": "arrivals",
                "class": "code",
                "arrivals_per_second": code * factor,
                "over_seconds": ramp,
            },
            {
                "at": AT,
                "type": "arrivals",
                "class": "chat",
                "arrivals_per_second": chat + code * (1 - factor),
                "over_seconds": ramp,
            },
        ]
    if kind == "overload":
        return [
            {
                "at": AT,
                "type": "load",
                "class": "*",
                "factor": float(r.uniform(1.6, 3.0)),
                "over_seconds": ramp,
            }
        ]
    return []


def _rungs(scenario: Scenario) -> dict[str, SpecConfig | None]:
    found = dict(scenario.engine.speculative_config or {})
    rungs: dict[str, SpecConfig | None] = {"as-found": SpecConfig(found), "off": None}
    for k in range(1, int(found["num_speculative_tokens"])):
        rungs[f"K={k}"] = SpecConfig({**found, "num_speculative_tokens": k})
    return rungs


@dataclass(frozen=True)
class Outcome:
    """One scenario's end: what was in force, what would have been best, what was said."""

    seed: int
    kind: str
    chosen: str
    best: str
    loss: float
    acted: bool
    pays: float
    said: str
    actions: int
    undone: bool
    false_alarms: int


def play(scenario: Scenario, seed: int) -> Outcome:
    """Run one scenario and compare its end with the truth."""
    store = MemoryStore()
    story, world, told = run_story(scenario, seed, store=store)
    resolved = world.resolved
    kind = scenario.name.removeprefix("generated-").rsplit("-", 1)[0]
    # An original probed at the very end is no choice: take what stood before a running probe.
    loop = story.loop
    assert loop is not None
    probing = loop.purpose is not None and loop.purpose.value == "probe"
    settings = loop.previous_settings if probing else loop.settings
    running = float(
        np.mean(
            [p["running"] for p in map(json.loads, store.stored_points[-20:]) if p["running"]]
            or [1.0]
        )
    )
    speeds = {n: speed(resolved, c, DURATION, running) for n, c in _rungs(scenario).items()}
    chosen = _name(settings, scenario)
    best = max(speeds, key=lambda n: speeds[n])
    causes = [
        json.loads(a)["data"]["cause"]
        for a in store.stored_alarms
        if not json.loads(a)["data"]["signal"]["recovery"]
    ]
    mixed = any(k == "report" and "mix of traffic" in s for _, k, s in told.lines)
    said = causes[0] if causes else ("mix_shift" if mixed else "nothing")
    if said == "nothing" and story.action is not None:
        said = "overload"
    return Outcome(
        seed,
        kind,
        chosen,
        best,
        1 - speeds[chosen] / speeds[best],
        story.action is not None,
        speeds[best] / speeds["as-found"] - 1,
        said,
        story.actions,
        story.undone,
        story.false_alarms,
    )


def _name(settings: Mapping[str, object] | None, scenario: Scenario) -> str:
    if settings is None:
        return "off"
    if settings == dict(scenario.engine.speculative_config or {}):
        return "as-found"
    return f"K={settings['num_speculative_tokens']}"


RIGHT = {
    "content_drift": {"content_drift"},
    "content_drift_all": {"content_drift"},
    "weights_changed": {"weights_changed"},
    "engine_changed": {"engine_changed"},
    "engine_fault_suspected": {"engine_fault_suspected"},
    "mix_shift": {"mix_shift"},
    "overload": {"overload", "nothing"},
    "none": {"nothing"},
    "restart_unchanged": {"nothing"},
}
KNOWN_CAUSE = (
    "content_drift",
    "content_drift_all",
    "weights_changed",
    "engine_changed",
    "engine_fault_suspected",
    "mix_shift",
)


def main() -> int:
    """Play `--count` scenarios and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=70000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    outcomes: list[Outcome] = []
    seed = options.first_seed
    while len(outcomes) < options.count:
        scenario = draw(seed)
        if scenario is not None:
            outcome = play(scenario, seed)
            outcomes.append(outcome)
            print(outcome, file=sys.stderr, flush=True)
        seed += 1
    text = report(outcomes, options.first_seed)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


def report(outcomes: list[Outcome], first_seed: int) -> str:
    """Return the report in Markdown."""
    n = len(outcomes)
    near = sum(o.loss <= WITHIN for o in outcomes)
    idle = [o for o in outcomes if o.pays < WITHIN]
    known = [o for o in outcomes if o.kind in KNOWN_CAUSE]
    right = sum(o.said in RIGHT[o.kind] for o in known)
    kinds = [k for k in KINDS if any(o.kind == k for o in outcomes)]
    said = sorted({o.said for o in outcomes})
    counts = Counter((o.kind, o.said) for o in outcomes)
    lines = [
        "# Decisions against known truth (simulated)",
        "",
        f"`make bench-decisions`: {n} generated scenarios from seed {first_seed}, the loop under a "
        "virtual clock; rungs allowed: lower-k and off.",
        "",
        "| figure | value |",
        "|---|---|",
        f"| chosen rung within {WITHIN:.0%} of the best allowed rung's speed | {near} of {n} |",
        f"| acted where no rung gains {WITHIN:.0%} | {sum(o.acted for o in idle)} of {len(idle)} |",
        f"| most actions in one story | {max(o.actions for o in outcomes)} |",
        f"| stories with an action undone | {sum(o.undone for o in outcomes)} |",
        f"| false alarms | {sum(o.false_alarms for o in outcomes)} |",
        f"| cause named right, of those with a known cause | {right} of {len(known)} |",
        "",
        "## What changed (rows) and what was said (columns)",
        "",
        "| truth | " + " | ".join(said) + " |",
        "|---|" + "---|" * len(said),
    ]
    for kind in kinds:
        row = [str(counts[kind, s] or "") for s in said]
        lines.append(f"| {kind} | " + " | ".join(row) + " |")
    lines += [
        "",
        "## Not within the margin",
        "",
        "| seed | truth | chosen | best | loss |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {o.seed} | {o.kind} | {o.chosen} | {o.best} | {o.loss:.1%} |"
        for o in outcomes
        if o.loss > WITHIN
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
