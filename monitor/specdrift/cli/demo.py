"""`specdrift demo`: a simulated engine, the real loop in act mode, and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdrift.conventions import PORT_API, PORT_DASHBOARD


def demo(
    scenario: Annotated[
        str, typer.Option(help="Shipped scenario, or a scenario file.", metavar="NAME|FILE")
    ] = "drift-to-off",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draws onset, size and load; default: the file's.")
    ] = None,
    headless: Annotated[
        bool, typer.Option("--headless", help="No page; stop when the story ends.")
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON line (story on stderr).")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Stop after this many wall-clock seconds.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API; 0: any.")] = (
        PORT_API
    ),
    dashboard_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the page; 0: any.")
    ] = PORT_DASHBOARD,
    state_dir: Annotated[
        Path | None, typer.Option(help="Keep the store here; default: a temporary folder.")
    ] = None,
) -> None:
    """Watch drift being found, acted on, verified and taken back, on a simulated engine.

    Exit codes: 0 the loop did what the scenario calls for, 1 it did not or something failed,
    2 usage.
    """
    from specdrift.cli.demo_run import DemoOptions, run_demo
    from specdrift.cli.failures import exit_on_failure

    options = DemoOptions(
        scenario=scenario,
        seed=seed,
        headless=headless,
        json_output=json_output,
        seconds=seconds,
        port=port,
        dashboard_port=dashboard_port,
        state_dir=state_dir,
    )
    with exit_on_failure("demo"):
        code = run_demo(options)
    raise typer.Exit(code)
