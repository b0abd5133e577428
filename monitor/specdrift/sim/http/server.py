"""Run a simulated engine as a process: bind, start up, serve, restart with the story, stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn

from specdrift.core.specconfig import validate
from specdrift.errors import SpecdriftError
from specdrift.sim.engine import SimulatedEngine
from specdrift.sim.http.app import Frontend, build_app
from specdrift.sim.http.counters import HttpCounters
from specdrift.sim.resolved import ResolvedScenario
from specdrift.sim.vllm_args import VllmArguments

_POLL_SECONDS = 0.02
_GRACE_SECONDS = 0.5


@dataclass(frozen=True)
class ServeOptions:
    """How to run the process.

    Args:
        host: Address to listen on.
        port: Port; 0 takes a free one.
        scenario_epoch: Unix time at which scenario time is zero; None: when it begins to serve.
        calibrate_seconds: Scenario seconds of calibration load instead of the story's.
        traffic: Whether the scenario's own requests arrive.
        tap: Whether the tap's series are published.
        seed: Seed of the engine's own randomness.
    """

    host: str
    port: int
    scenario_epoch: float | None
    calibrate_seconds: float | None
    traffic: bool
    tap: bool
    seed: int


class _Server(uvicorn.Server):
    """A server that leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing: the process handles its signals itself."""
        yield


def serve(
    resolved: ResolvedScenario,
    arguments: VllmArguments,
    options: ServeOptions,
    say: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        resolved: The scenario.
        arguments: What vLLM's command line says.
        options: How to run.
        say: Takes lines for a person.

    Raises:
        SpecConfigError: The engine version would not start with the speculative config.
        SpecdriftError: The port cannot be had.
    """
    start = 0.0
    if options.scenario_epoch is not None:
        start = (time.time() - options.scenario_epoch) * resolved.scenario.time_scale
    if arguments.config is not None:
        validate(arguments.config, resolved.version_at(start))
    with _bind(options.host, options.port) as listener:
        asyncio.run(_live(resolved, arguments, options, listener, say))


def _bind(host: str, port: int) -> socket.socket:
    """Take the port at once, as vLLM does; connections are refused until it serves."""
    listener: socket.socket | None = None
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(info[0], socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(info[4])
    except OSError as error:
        if listener is not None:
            listener.close()
        raise _port_error(error, host, port) from error
    return listener


def _port_error(error: OSError, host: str, port: int) -> SpecdriftError:
    if error.errno == errno.EADDRINUSE:
        return SpecdriftError(
            f"port {port} is taken", where=f"{host}:{port}", hint="another --port"
        )
    return SpecdriftError("cannot listen", where=f"{host}:{port}", why=error.strerror or str(error))


async def _live(
    resolved: ResolvedScenario,
    arguments: VllmArguments,
    options: ServeOptions,
    listener: socket.socket,
    say: Callable[[str], None],
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    scale = resolved.scenario.time_scale
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), resolved.engine.startup_seconds / scale)
        return
    now = time.time()
    epoch = now if options.scenario_epoch is None else options.scenario_epoch
    engine = SimulatedEngine(
        resolved,
        arguments.config,
        seed=options.seed,
        start_at=max(0.0, (now - epoch) * scale),
        epoch=epoch,
        tap=options.tap,
        traffic=options.traffic,
        calibrate_seconds=options.calibrate_seconds,
        max_num_seqs=arguments.max_num_seqs,
        model_name=arguments.model_name,
    )
    frontend = Frontend(
        engine,
        per_request_speculation=arguments.per_request_speculation,
        per_request_metrics=arguments.per_request_metrics,
        force_include_usage=arguments.force_include_usage,
    )
    driving = asyncio.create_task(frontend.drive())
    address = listener.getsockname()
    _, counters = build_app(frontend)
    say(_greeting(frontend, options.host, address[1]))
    try:
        while not stop.is_set():
            await _one_life(engine, counters, listener, stop, driving)
            while not (engine.up or stop.is_set() or driving.done()):  # noqa: ASYNC110 virtual time
                await asyncio.sleep(_POLL_SECONDS)
            if stop.is_set() or driving.done():
                break
            listener = _bind(options.host, address[1])
            counters.reset()
            say(_greeting(frontend, options.host, address[1]))
    except OSError as error:
        raise _port_error(error, options.host, address[1]) from error
    finally:
        driving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await driving


async def _one_life(
    engine: SimulatedEngine,
    app: HttpCounters,
    listener: socket.socket,
    stop: asyncio.Event,
    driving: asyncio.Task[None],
) -> None:
    """Serve until the process is asked to stop, the engine goes down or its driver fails."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    ends = (stop.is_set, serving.done, driving.done)
    while engine.up and not any(end() for end in ends):  # noqa: ASYNC110 virtual time
        await asyncio.sleep(_POLL_SECONDS)
    for one in getattr(server, "servers", []):
        one.close()  # at once: new connections are refused from here
    server.should_exit = True
    if stop.is_set():
        engine.shut_down()
        logging.getLogger("uvicorn.error").disabled = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(serving, _GRACE_SECONDS)
            return
        return
    await serving


def _greeting(frontend: Frontend, host: str, port: int) -> str:
    engine = frontend.engine
    speculation = "off" if engine.config is None else engine.config.describe()
    return (
        f"simulated vLLM {frontend.version} serves {engine.model_name} on http://{host}:{port} "
        f"(scenario {engine.resolved.name}, seed {engine.resolved.seed}, speculation {speculation})"
    )
