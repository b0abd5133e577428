"""Write docs/benchmarks/predictions.md: speeds nobody measured yet, from off and K = 3.

    python docs/tools/predictions.py [--check]

Reads the two recorded grids under tests/fixtures/traces. Same inputs, same text.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from specdrift.adapters.trace import read_trace
from specdrift.core.benefit import expected_speedup, reference_times, samples
from specdrift.core.economics import operating_point
from specdrift.core.windows import NO_SPEC, Window, add_spec
from specdrift.service.recorded import windows_of

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "tests" / "fixtures" / "traces"
DOCUMENT = ROOT / "docs" / "benchmarks" / "predictions.md"
GRID = "vllm0251-h200-9b-grid"
PREDICTED = (1, 5)
MEASURED = 3

HEAD = f"""\
# Predictions: K = 1 and K = 5 from off and K = {MEASURED}

Made by `make bench-decisions` (docs/tools/predictions.py) from `{GRID}-off` and
`{GRID}-eagle3-k3`: vLLM 0.25.1, one H200, a 9.3B body, EAGLE-3, closed loop. Written down before
anybody measured K = 1 or K = 5 there.

Speed is in times off, at the same load: L(K) T(B, 0) / T(B, K).

- Step times are means over the cell's windows, weighted by request-steps; T(B, 0) is read off the
  off recording at the cell's own load.
- T(B, K) is the straight line in K through T(B, 0) and T(B, {MEASURED}): the model to beat. A jump
  where a batch of B (K + 1) tokens leaves a captured graph, or where the step turns from memory
  to compute, is not in it; expect it to be worst at concurrency 128.
- L(1) = 1 + S1 is exact. L(5) needs positions 4 and 5, which K = {MEASURED} does not show: they
  are carried on geometrically, each the mean factor (S3 / S1)^(1/2) of the one before. A guess,
  but a small part of L.
- Acceptance at concurrency 1 is rough (one request at a time, ten seconds).
"""


def cells() -> list[dict[str, Any]]:
    """Return one object per class and concurrency of the grid."""
    rows = json.loads((TRACES / f"{GRID}.rows.json").read_text(encoding="utf-8"))
    plain = {(r["cls"], r["conc"]): r for r in rows if r["cfg"] == "off"}
    reference = reference_times(windows_of(read_trace(TRACES / f"{GRID}-off.jsonl.gz")))
    on = list(windows_of(read_trace(TRACES / f"{GRID}-eagle3-k3.jsonl.gz")))
    found = []
    for row in rows:
        if row["cfg"] == "off":
            continue
        inside = [w for w in on if _inside(w, row)]
        kept = samples(inside, speculation=True)
        spec = NO_SPEC
        for window in inside:
            spec = add_spec(spec, window.spec or NO_SPEC)
        point = operating_point(
            [s.row for s in kept], MEASURED, spec.drafts, spec.accepted_per_position
        )
        base = reference.at(point.running) if point is not None else None
        if point is None or base is None:
            raise SystemExit(f"predictions: {row['cls']} at {row['conc']} has no step times")
        without = plain[row["cls"], row["conc"]]["tok_s"]
        speeds = {k: expected_speedup(point, base, k) for k in (*PREDICTED, MEASURED)}
        found.append(
            {
                "class": row["cls"],
                "concurrency": row["conc"],
                "running": point.running,
                "positions": point.position_acceptance,
                "off_seconds": base,
                "seconds": point.step_seconds,
                "off_tokens_per_second": without,
                "measured": row["tok_s"] / without,
                "speeds": speeds,
            }
        )
    return sorted(found, key=lambda c: (c["class"] != "prose", c["concurrency"]))


def _inside(window: Window, row: dict[str, Any]) -> bool:
    return bool(window.start >= row["t_start"] and window.end <= row["t_end"])


def document() -> str:
    """Return the text of the page."""
    lines = [
        HEAD,
        "| class, concurrency | S1 S2 S3 | step ms off | step ms K=3 | K=1 | K=3 told | "
        "K=3 measured | K=5 | tokens/s K=1 | tokens/s K=5 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c in cells():
        positions = " ".join(f"{s:.3f}".lstrip("0") for s in c["positions"])
        speeds, off = c["speeds"], c["off_tokens_per_second"]
        lines.append(
            f"| {c['class']} {c['concurrency']} | {positions} | {c['off_seconds'] * 1e3:.2f} | "
            f"{c['seconds'] * 1e3:.2f} | **{speeds[1]:.2f}** | {speeds[3]:.2f} | "
            f"{c['measured']:.2f} | **{speeds[5]:.2f}** | {speeds[1] * off:.0f} | "
            f"{speeds[5] * off:.0f} |"
        )
    lines += [
        "",
        '"K=3 told" is L(3) T(B, 0) / T(B, 3) from the metrics page alone, "K=3 measured" the '
        "load\ngenerator's tokens per second over those without speculation: how far the formula "
        "itself is off\n(prefills take time that steps do not show).",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    text = document()
    if parser.parse_args().check:
        same = DOCUMENT.exists() and DOCUMENT.read_text(encoding="utf-8") == text
        if not same:
            sys.stderr.write(f"{DOCUMENT} is out of date. Try: make bench-decisions\n")
        return 0 if same else 1
    DOCUMENT.parent.mkdir(parents=True, exist_ok=True)
    DOCUMENT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
