"""`specdrift breakeven`: the acceptance above which speculation pays, told or measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from specdrift.core.benefit import Bucket


def breakeven(
    num_speculative_tokens: Annotated[
        int | None, typer.Option("--num-speculative-tokens", metavar="K", help="Tokens per draft.")
    ] = None,
    overhead: Annotated[
        float | None,
        typer.Option(help="Step time with speculation over step time without it, minus 1."),
    ] = None,
    mean_length: Annotated[
        float | None,
        typer.Option(help="Measured mean acceptance length; with --speedup gives the overhead."),
    ] = None,
    speedup: Annotated[
        float | None, typer.Option(help="Measured speedup at that mean acceptance length.")
    ] = None,
    acceptance: Annotated[
        float | None, typer.Option(help="Acceptance rate to tell the speedup for.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="TRACE", help="Recorded with speculation: measure.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="OFF_TRACE", help="The same server recorded without speculation."),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on one line; numbers not rounded.")
    ] = False,
) -> None:
    """Tell the acceptance at which speculation neither gains nor loses.

    Either from numbers (--num-speculative-tokens 3 --overhead 0.38), or measured by batch bucket
    from two recordings (--trace TRACE --reference OFF_TRACE).

    Exit codes: 0 told, 1 a recording cannot be read, 2 usage.
    """
    import json

    from specdrift.cli.failures import exit_on_failure

    with exit_on_failure("breakeven"):
        from specdrift.errors import UsageError

        if trace is not None or reference is not None:
            numbers = {
                "--num-speculative-tokens": num_speculative_tokens,
                "--overhead": overhead,
                "--mean-length": mean_length,
                "--speedup": speedup,
                "--acceptance": acceptance,
            }
            given = [name for name, value in numbers.items() if value is not None]
            if given:
                raise UsageError(
                    f"{given[0]} contradicts --trace and --reference: they measure it",
                    hint="the one or the other",
                )
            if trace is None or reference is None:
                absent = "--trace" if trace is None else "--reference"
                raise UsageError(
                    f"{absent} is missing", hint="--trace TRACE --reference OFF_TRACE, both"
                )
            document, lines = _measured(trace, reference)
        else:
            document, lines = _told(
                num_speculative_tokens, overhead, mean_length, speedup, acceptance
            )
    if json_output:
        typer.echo(json.dumps(document, allow_nan=False))
    else:
        for line in lines:
            typer.echo(line)


# --- from numbers -----------------------------------------------------------------------------


def _told(
    k: int | None,
    overhead: float | None,
    mean_length: float | None,
    speedup: float | None,
    acceptance: float | None,
) -> tuple[dict[str, Any], list[str]]:
    from specdrift.cli.numbers import at_least_one, positive, share
    from specdrift.core.economics import break_even_acceptance, speedup_at
    from specdrift.errors import UsageError

    at_least_one("--num-speculative-tokens", k)
    positive("--overhead", overhead)
    positive("--mean-length", mean_length)
    positive("--speedup", speedup)
    share("--acceptance", acceptance)
    if overhead is not None and (mean_length is not None or speedup is not None):
        other = "--mean-length" if mean_length is not None else "--speedup"
        raise UsageError(
            f"--overhead contradicts {other}",
            why="the overhead follows from mean length and speedup",
            hint="--overhead alone, or --mean-length with --speedup",
        )
    if overhead is None:
        overhead = _overhead(k, mean_length, speedup)
    elif k is None:
        raise UsageError("--num-speculative-tokens is missing", hint="--num-speculative-tokens 3")
    if acceptance is not None and k is None:
        raise UsageError(
            "--acceptance needs --num-speculative-tokens", hint="--num-speculative-tokens 3"
        )
    rate = break_even_acceptance(overhead, k) if k is not None else None
    length = 1.0 + overhead
    at = speedup
    if acceptance is not None and k is not None:
        at = speedup_at(acceptance, k, overhead)
    document = {
        "num_speculative_tokens": k,
        "overhead": overhead,
        "break_even_acceptance": rate,
        "break_even_mean_length": length,
        "mean_length": mean_length,
        "acceptance": acceptance,
        "speedup": at,
    }
    lines = [f"a step with speculation takes {overhead:.1%} longer than one without"]
    if rate is not None:
        lines.append(f"breaks even at acceptance {rate:.3f} with {k} tokens per draft")
    lines.append(f"breaks even at a mean acceptance length of {length:.2f}")
    if rate is not None and rate > 1:
        lines.append("it cannot pay: not even accepting every token makes up for the longer step")
    if acceptance is not None and at is not None:
        verdict = "pays" if at > 1 else "loses" if at < 1 else "neither gains nor loses"
        lines.append(
            f"at acceptance {acceptance:g} it runs at {at:.2f}x of plain decoding: {verdict}"
        )
    return document, lines


def _overhead(k: int | None, mean_length: float | None, speedup: float | None) -> float:
    from specdrift.core.economics import overhead_from
    from specdrift.errors import UsageError

    if mean_length is None or speedup is None:
        if mean_length is None and speedup is None:
            raise UsageError(
                "--overhead is missing",
                hint="--num-speculative-tokens 3 --overhead 0.38, or --mean-length 2.54 "
                "--speedup 1.84, or --trace TRACE --reference OFF_TRACE",
            )
        absent = "--mean-length" if mean_length is None else "--speedup"
        raise UsageError(f"{absent} is missing", hint="--mean-length 2.54 --speedup 1.84, both")
    if mean_length < 1 or (k is not None and mean_length > k + 1):
        most = f" to {k + 1} with {k} tokens per draft" if k is not None else " or more"
        raise UsageError(f"--mean-length is 1{most}", where=f"{mean_length:g}")
    if speedup >= mean_length:
        raise UsageError(
            "--speedup contradicts --mean-length",
            where=f"{speedup:g} and {mean_length:g}",
            why="a step with a draft is never free, so the speedup is below the mean length",
        )
    return overhead_from(mean_length, speedup)


# --- from recordings --------------------------------------------------------------------------


def _measured(trace: Path, reference: Path) -> tuple[dict[str, Any], list[str]]:
    from specdrift.adapters.trace import read_trace
    from specdrift.service.recorded import learn_reference, measured_buckets

    times = learn_reference(read_trace(reference), str(reference))
    found = measured_buckets(read_trace(trace), times, str(trace))
    document = {"trace": str(trace), "reference": str(reference), "buckets": as_rows(found)}
    return document, as_table(found)


def as_rows(buckets: Sequence[Bucket]) -> list[dict[str, Any]]:
    """Return the buckets as JSON objects; what is not known is null."""
    from dataclasses import asdict

    return [asdict(bucket) for bucket in buckets]


def as_table(buckets: Sequence[Bucket]) -> list[str]:
    """Return the buckets as lines for a person."""

    def ms(seconds: float | None) -> str:
        return "-" if seconds is None else f"{seconds * 1000:.2f}"

    lines = ["running  K  with ms  without ms  overhead  acceptance  breaks even at   verdict"]
    for b in buckets:
        accepted = f"{b.acceptance:.3f}" if b.acceptance is not None else "-"
        over, even, verdict = "-", "not known: the reference has no such load", ""
        if b.overhead is not None and b.break_even_acceptance is not None:
            over, even = f"{b.overhead:+.0%}", f"{b.break_even_acceptance:.3f}"
            if b.low is not None and b.high is not None:
                even += f" ({b.low:.2f}-{b.high:.2f})"
                verdict = _verdict(b.acceptance, b.low, b.high)
        lines.append(
            f"{b.batch_bucket:<7} {b.num_speculative_tokens:>2} {ms(b.step_seconds):>8} "
            f"{ms(b.reference_step_seconds):>11} {over:>9} {accepted:>11}  {even:<16} {verdict}"
        )
    return [line.rstrip() for line in lines]


def _verdict(acceptance: float | None, low: float, high: float) -> str:
    if acceptance is None:
        return ""
    return "pays" if acceptance > high else "loses" if acceptance < low else "unclear"
