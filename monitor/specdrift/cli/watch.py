"""`specdrift watch`: a live view of engines, or of a whole Prometheus, without configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from specdrift.adapters.prometheus import PrometheusSource, WorkloadRow
    from specdrift.cli.watch_targets import Fleet, TargetView

_FAILED_STATES = ("down", "not_an_exposition", "not_supported", "error")
_PROMETHEUS_INTERVAL = "15s"
_NOTHING = "no inference servers found"


def watch(
    urls: list[str] | None = typer.Argument(
        None,
        metavar="[URL]...",
        help="Engines: base address or /metrics address.",
        show_default=False,
    ),
    prometheus: str | None = typer.Option(
        None, "--prometheus", metavar="URL", help="Ask this Prometheus instead of engines."
    ),
    interval: str | None = typer.Option(
        None,
        "--interval",
        metavar="DURATION",
        help="Time between two readings: 500ms, 5s, 2m. [1s; with --prometheus 15s]",
    ),
    once: bool = typer.Option(
        False, "--once", help="Read twice, one interval apart, print and stop."
    ),
    json_output: bool = typer.Option(
        False, "--json", help="One JSON object on one line per reading, numbers unrounded."
    ),
    timeout: str = typer.Option("5s", "--timeout", metavar="DURATION", help="For each page."),
    window: str = typer.Option(
        "5m", "--window", metavar="DURATION", help="Span of the rates, with --prometheus."
    ),
    reference_tpot: str | None = typer.Option(
        None,
        "--reference-tpot",
        metavar="DURATION",
        help="Time per output token without speculation at this load, for the break-even verdict.",
    ),
) -> None:
    """Watch acceptance, speed and load of running engines.

    Exit codes: 0 fine, 1 a target could not be read, 2 usage, 4 nothing can be known yet.
    """
    import os
    import sys

    from specdrift.durations import parse_duration
    from specdrift.errors import EXIT_OK, SpecdriftError, UsageError

    try:
        if bool(urls) == bool(prometheus):
            raise UsageError(
                "watch needs either engines or --prometheus",
                hint="specdrift watch http://127.0.0.1:8000",
            )
        pause = interval or (_PROMETHEUS_INTERVAL if prometheus else "1s")
        options = _Options(
            pause=parse_duration(pause, name="--interval"),
            timeout=parse_duration(timeout, name="--timeout"),
            once=once,
            as_json=json_output,
        )
        span = parse_duration(window, name="--window")
        reference = (
            parse_duration(reference_tpot, name="--reference-tpot") if reference_tpot else None
        )
        if prometheus:
            code = _watch_prometheus(prometheus, span, options)
        else:
            code = _watch_engines(urls or [], reference, options)
    except SpecdriftError as error:
        _say(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        code = EXIT_OK
    except BrokenPipeError:
        # The reader of the pipe has seen enough; nothing may complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_OK
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class _Options:
    """How to watch: seconds between readings and for each page, and what to print."""

    pause: float
    timeout: float
    once: bool
    as_json: bool


def _watch_engines(urls: Sequence[str], reference: float | None, options: _Options) -> int:
    from specdrift.adapters.scrape import Scraper
    from specdrift.cli import watch_view
    from specdrift.cli.watch_targets import Fleet
    from specdrift.errors import EXIT_OK

    with Scraper(options.timeout) as scraper:
        fleet = Fleet(urls, scraper)
        try:
            if options.once:
                views = _twice(fleet, options.pause)
                _print_once(views, reference, options.as_json)
                return _exit_code(views)

            def lines() -> list[str]:
                views = fleet.poll()
                if options.as_json:
                    return [_json({"targets": _targets(views, reference)})]
                at = _time_of_day()
                return [text for view in views for text in watch_view.line(view, at)]

            def page() -> Any:
                from specdrift.cli import watch_live

                return watch_live.page(fleet.poll(), reference)

            _repeat(lines, page, options)
            return EXIT_OK
        finally:
            fleet.close()


def _twice(fleet: Fleet, pause: float) -> list[TargetView]:
    """Read all pages twice; a target that failed the first time is not waited for."""
    import time

    began = time.monotonic()
    views = fleet.poll()
    if all(view.state in _FAILED_STATES for view in views):
        return views
    time.sleep(max(0.0, pause - (time.monotonic() - began)))
    return fleet.poll()


def _print_once(views: Sequence[TargetView], reference: float | None, as_json: bool) -> None:
    from specdrift.cli import watch_view

    if as_json:
        _print([_json({"targets": _targets(views, reference)})])
    else:
        readable = [view for view in views if view.error is None]
        _print([text for view in readable for text in watch_view.block(view, reference)])
    for view in views:
        if view.error is not None:
            _say(view.error)


def _targets(views: Sequence[TargetView], reference: float | None) -> list[dict[str, Any]]:
    from specdrift.cli import watch_json

    return [watch_json.target_json(view, reference) for view in views]


def _exit_code(views: Sequence[TargetView]) -> int:
    """Return 1 if a target failed, 4 if nothing is known of any, else 0."""
    from specdrift.errors import EXIT_FAILED, EXIT_OK, EXIT_UNKNOWN

    if any(view.state in _FAILED_STATES for view in views):
        return EXIT_FAILED
    known = any(
        engine.state == "speculation_off"
        or (engine.since_start is not None and engine.since_start.acceptance is not None)
        for view in views
        for engine in view.engines
    )
    return EXIT_OK if known else EXIT_UNKNOWN


def _watch_prometheus(url: str, window: float, options: _Options) -> int:
    from specdrift.adapters.prometheus import PrometheusSource
    from specdrift.cli import watch_json, watch_view
    from specdrift.durations import format_duration
    from specdrift.errors import EXIT_OK, EXIT_UNKNOWN, TargetError

    source: PrometheusSource = PrometheusSource(url, options.timeout)
    title = f"{source.url}, rates over {format_duration(window)}, worst first"

    def show(rows: Sequence[WorkloadRow]) -> list[str]:
        if options.as_json:
            found = [watch_json.row_json(row) for row in rows]
            return [_json({"prometheus": source.url, "window_seconds": window, "rows": found})]
        return [title, *(watch_view.workload_lines(rows) if rows else [_NOTHING])]

    def lines() -> list[str]:
        try:
            return show(source.rows(window))
        except TargetError as error:
            if options.as_json:
                return [_json({"prometheus": source.url, "error": str(error), "rows": []})]
            return [str(error)]

    def page() -> Any:
        from rich.text import Text

        from specdrift.cli import watch_live

        try:
            return watch_live.workloads(source.rows(window), title)
        except TargetError as error:
            return Text(str(error), style="red")

    try:
        # The first reading fails loudly: a wrong address is no outage to wait for.
        rows = source.rows(window)
        if not options.once:
            _repeat(lines, page, options)
            return EXIT_OK
        if options.as_json or rows:
            _print(show(rows))
        if not rows:
            _say(
                f"{_NOTHING} ({source.url}): no series like vllm:generation_tokens_total. "
                "Try: whether this Prometheus scrapes the engines"
            )
            return EXIT_UNKNOWN
        return EXIT_OK
    finally:
        source.close()


def _repeat(lines: Callable[[], list[str]], page: Callable[[], Any], options: _Options) -> None:
    """Show something anew at each interval until interrupted."""
    import os
    import sys
    import time

    if not options.as_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from rich.live import Live

        with Live(page(), auto_refresh=False, screen=False) as screen:
            while True:
                time.sleep(options.pause)
                screen.update(page(), refresh=True)
    while True:
        _print(lines())
        time.sleep(options.pause)


def _print(lines: Sequence[str]) -> None:
    if lines:
        typer.echo("\n".join(lines))


def _say(sentence: str) -> None:
    typer.echo(f"specdrift watch: {sentence}", err=True)


def _json(body: dict[str, Any]) -> str:
    import json

    return json.dumps(body, allow_nan=False)


def _time_of_day() -> str:
    import datetime

    return datetime.datetime.now().astimezone().strftime("%H:%M:%S")
