"""`specdrift replay TRACE`: what the pipeline would have said about recorded traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from specdrift.service.replay import Replay


def replay(
    trace: Annotated[Path, typer.Argument(help="Recorded expositions: JSON lines, plain or .gz.")],
    requests: Annotated[
        Path | None, typer.Option(help="Request log: attributes per class, tells mix from drift.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="What was done when: adds delays and false alarms.")
    ] = None,
    scrape_interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Nominal time between scrapes.")
    ] = "1s",
    phase_one: Annotated[
        str, typer.Option(metavar="DURATION", help="Traffic to learn the baseline from.")
    ] = "45s",
    false_alarm_interval: Annotated[
        str, typer.Option(metavar="DURATION", help="At most one false alarm per so long.")
    ] = "1d",
    smallest_drop: Annotated[
        float, typer.Option(help="Smallest change of acceptance worth an alarm.")
    ] = 0.05,
    floor: Annotated[
        float | None,
        typer.Option(help="Acceptance below which to speak up while the benefit is unknown."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="OFF_TRACE",
            help="The same server recorded without speculation: measures the benefit.",
        ),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on one line.")
    ] = False,
) -> None:
    """Replay recorded traffic through detection, diagnosis and decisions.

    Exit codes: 0 no alarm, 1 failed, 2 usage, 3 acceptance drift was alarmed.
    """
    import json

    from specdrift.cli.failures import exit_on_failure
    from specdrift.errors import EXIT_DRIFT, EXIT_OK

    with exit_on_failure("replay"):
        from specdrift.adapters.trace import read_labels, read_requests, read_trace
        from specdrift.core.detector import DetectorConfig
        from specdrift.core.policy import Rules
        from specdrift.durations import parse_duration
        from specdrift.errors import UsageError
        from specdrift.service.recorded import learn_reference
        from specdrift.service.replay import replay as run_replay

        for name, share in (("--smallest-drop", smallest_drop), ("--floor", floor)):
            if share is not None and not 0 < share < 1:
                raise UsageError(f"{name} must be between 0 and 1", where=f"{share:g}")
        interval = parse_duration(scrape_interval, name="--scrape-interval")
        result = run_replay(
            read_trace(trace),
            DetectorConfig(
                parse_duration(false_alarm_interval, name="--false-alarm-interval"),
                smallest_drop,
                parse_duration(phase_one, name="--phase-one"),
                interval,
            ),
            Rules(floor=floor, smallest_drop=smallest_drop, scrape_interval=interval),
            requests=read_requests(requests) if requests is not None else (),
            labels=read_labels(labels) if labels is not None else None,
            workload=trace.name,
            reference=(
                learn_reference(read_trace(reference), str(reference))
                if reference is not None
                else None
            ),
        )
    blended = requests is None
    if json_output:
        typer.echo(json.dumps(as_json(result, blended), allow_nan=False))
    else:
        for line in as_lines(result):
            typer.echo(line)
    raise typer.Exit(EXIT_DRIFT if result.alarms else EXIT_OK)


def as_json(result: Replay, blended: bool) -> dict[str, Any]:
    """Return the replay as a JSON object; times on the trace's own clock."""
    document: dict[str, Any] = {
        "scrapes": result.scrapes,
        "failed_scrapes": result.failed,
        "windows": result.windows,
        "start": result.start,
        "end": result.end,
        "alarms": [
            {
                "t": a.signal.time,
                "change_point": a.signal.change_point,
                "side": a.signal.side.value,
                "traffic_class": None if blended else a.traffic_class,
                "effect": a.signal.effect,
                "interval": list(a.signal.interval),
                "cause": a.cause,
                "evidence": list(a.evidence),
                "changed_with_deployment": a.signal.changed_with_deployment,
                "recovery": a.signal.recovery,
            }
            for a in result.alarms
        ],
        "decisions": [
            {
                "t": d.time,
                "traffic_class": None if blended else d.traffic_class,
                "kind": d.kind.value,
                "cause": d.cause,
                "sentence": d.sentence,
            }
            for d in result.decisions
        ],
        "changes": [
            {
                "start": f.change.start,
                "end": f.change.end,
                "what": f.change.what,
                "alarm": f.alarm.signal.time if f.alarm is not None else None,
                "delay_seconds": f.delay,
            }
            for f in result.found
        ],
        "false_alarms": result.false_alarms,
        "unattributed": result.unattributed,
        "baselines": {
            ("all traffic" if blended else key.rsplit("|", 1)[0]): chart.baseline.acceptance
            for key, chart in result.pipeline.charts.items()
            if chart.baseline is not None
        },
    }
    if result.benefit is not None:
        document["benefit"] = [
            {
                "from": s.start,
                "to": s.end,
                "running": s.running,
                "acceptance": s.acceptance,
                "speedup": s.speedup,
                "low": s.low,
                "high": s.high,
                "verdict": s.verdict.value,
            }
            for s in result.benefit
        ]
    return document


def as_lines(result: Replay) -> list[str]:
    """Return the replay as lines for a person; seconds since the first scrape."""
    from specdrift.core.sentences import alarm, benefit_run

    def at(time: float) -> str:
        return f"{time - result.start:7.1f} s"

    lines = [
        f"{result.scrapes} scrapes over {result.end - result.start:.0f} s, {result.failed} failed, "
        f"{result.windows} windows with drafts"
    ]
    if result.unattributed is not None:
        lines.append(f"{result.unattributed:.1%} of draft tokens are not in the request log")
    told = [(a.signal.time, "alarm", alarm(a)) for a in result.alarms]
    told += [(d.time, d.kind.value, d.sentence) for d in result.decisions]
    lines += [f"{at(t)}  {kind:<9} {text}" for t, kind, text in sorted(told)]
    if not result.alarms:
        learned = any(c.baseline is not None for c in result.pipeline.charts.values())
        why = "" if learned else ": no baseline was learned, Phase I takes more traffic than this"
        lines.append(f"no alarm{why}")
    for f in result.found:
        found = f"alarm after {f.delay:.1f} s" if f.delay is not None else "no alarm"
        lines.append(f"{at(f.change.start)}  change    {f.change.what}: {found}")
    if result.false_alarms is not None:
        lines.append(f"{result.false_alarms} false alarms")
    lines += [
        f"{at(run.start)}  benefit   {benefit_run(run, result.start)}"
        for run in result.benefit_runs
    ]
    return lines
