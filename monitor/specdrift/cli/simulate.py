"""`specdrift simulate`: a simulated engine with vLLM's HTTP surface and vLLM's arguments."""

from __future__ import annotations

from typing import Annotated

import typer

from specdrift.conventions import LOOPBACK, PORT_SIMULATED_ENGINE

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def simulate(
    ctx: typer.Context,
    scenario: Annotated[
        str, typer.Option(help="Shipped scenario, or a scenario file.", metavar="NAME|FILE")
    ] = "no-drift",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draws onset, size and load; default: the file's.")
    ] = None,
    time_scale: Annotated[
        float | None, typer.Option(help="Scenario seconds per wall second; default: the file's.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = (
        PORT_SIMULATED_ENGINE
    ),
    scenario_epoch: Annotated[
        float | None,
        typer.Option(
            help="Unix time of scenario second 0, so that a restart goes on in the story.",
            metavar="UNIX",
        ),
    ] = None,
    calibrate: Annotated[
        float | None,
        typer.Option(help="Run a load of rising concurrency instead.", metavar="SECONDS"),
    ] = None,
    no_traffic: Annotated[
        bool, typer.Option("--no-traffic", help="Serve outside requests only.")
    ] = False,
    no_tap: Annotated[bool, typer.Option("--no-tap", help="Publish no specdrift_tap_*.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the scenario JSON Schema and exit.")
    ] = False,
) -> None:
    """Run a simulated engine that speaks vLLM's HTTP surface.

    vLLM's own arguments are taken too: --speculative-config in every spelling, --model,
    --served-model-name, --max-num-seqs, --per-request-spec-decode-metrics,
    --enable-per-request-metrics; others are ignored. Without a speculative config on the command
    line speculation is off.
    """
    from specdrift.errors import EXIT_FAILED, SpecConfigError, SpecdriftError, UsageError

    try:
        _run(
            ctx.args,
            scenario=scenario,
            seed=seed,
            time_scale=time_scale,
            host=host,
            port=port,
            scenario_epoch=scenario_epoch,
            calibrate=calibrate,
            no_traffic=no_traffic,
            no_tap=no_tap,
            schema=schema,
        )
    except SpecConfigError as error:
        typer.echo(f"validation error for SpeculativeConfig (simulated engine): {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from error
    except UsageError as error:
        typer.echo(f"specdrift simulate: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    except SpecdriftError as error:
        typer.echo(f"specdrift simulate: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from error


def _run(
    argv: list[str],
    *,
    scenario: str,
    seed: int | None,
    time_scale: float | None,
    host: str,
    port: int,
    scenario_epoch: float | None,
    calibrate: float | None,
    no_traffic: bool,
    no_tap: bool,
    schema: bool,
) -> None:
    from specdrift.errors import UsageError
    from specdrift.sim.scenario import load_scenario, scenario_schema

    if schema:
        import json

        typer.echo(json.dumps(scenario_schema(), indent=2, sort_keys=True))
        return
    for name, value in (("--time-scale", time_scale), ("--calibrate", calibrate)):
        if value is not None and not 0 < value < 1e6:
            raise UsageError(f"{name} must be above 0", where=str(value))

    from specdrift.sim.http.server import ServeOptions, serve
    from specdrift.sim.vllm_args import parse_vllm_arguments

    arguments = parse_vllm_arguments(argv)
    story = load_scenario(scenario)
    if time_scale is not None:
        story = story.model_copy(update={"time_scale": time_scale})
    resolved = story.resolve(seed)
    options = ServeOptions(
        host=host,
        port=port,
        scenario_epoch=scenario_epoch,
        calibrate_seconds=calibrate,
        traffic=not no_traffic,
        tap=not no_tap,
        seed=resolved.seed,
    )
    serve(resolved, arguments, options, lambda line: typer.echo(line, err=True))
