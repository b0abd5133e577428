"""The demo's run: children started and stopped, calibration, the story told line by line."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from specdrift.adapters.localproc import LocalProcess
from specdrift.adapters.store import STORE_FILE
from specdrift.cli.page import Page
from specdrift.cli.story import DEMO_SCRAPE_SECONDS, Story, demo_policy
from specdrift.config import Settings
from specdrift.conventions import LOOPBACK
from specdrift.core.policy import Rollout
from specdrift.core.specconfig import SpecConfig, write_argv
from specdrift.errors import EXIT_FAILED, EXIT_OK, ActuationError, UsageError
from specdrift.service.api import ApiServer, create_app
from specdrift.service.build import Parts, build, run_ticks
from specdrift.sim.scenario import Scenario, load_scenario

CALIBRATION_SECONDS = 12.0
ENGINE_START_TIMEOUT = 60.0
# What starting the simulated engine's process takes, besides its simulated start-up.
ENGINE_START_SECONDS = 1.5
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line asked for."""

    scenario: str
    seed: int | None
    headless: bool
    json_output: bool
    seconds: float | None
    port: int
    dashboard_port: int
    state_dir: Path | None


class Teller:
    """Tells the story line by line: seconds since the start, what, and the sentence."""

    def __init__(self, started: float, stream: TextIO) -> None:
        self._started = started
        self._stream = stream

    def tell(self, time: float, kind: str, sentence: str) -> None:
        """Print one line."""
        line = f"{time - self._started:7.1f} s  {kind:<10} {sentence}"
        print(line, file=self._stream, flush=True)


def run_demo(options: DemoOptions) -> int:
    """Play one scenario on real processes; returns the exit code."""
    scenario = load_scenario(options.scenario)
    stream = sys.stderr if options.json_output else sys.stdout
    started = time.time()
    teller = Teller(started, stream)
    stopping = _Stopping(started, options.seconds)
    with ExitStack() as stack:
        stack.callback(stopping.restore)
        folder = _folder(options, stack)
        story = Story(scenario, scenario.resolve(options.seed), started)
        code = _play(options, scenario, story, teller, folder, stack, stopping)
    result = story.result()
    if options.json_output:
        print(json.dumps({**result, "seconds": round(time.time() - started, 3)}))
    return code


def _play(
    options: DemoOptions,
    scenario: Scenario,
    story: Story,
    teller: Teller,
    folder: Path,
    stack: ExitStack,
    stopping: _Stopping,
) -> int:
    port = _free_port()
    base = f"http://{LOOPBACK}:{port}"
    teller.tell(
        time.time(),
        "start",
        f"scenario {scenario.name} (simulated engine, seed {story.resolved.seed}): "
        f"{scenario.description.strip()}",
    )
    starting = ENGINE_START_SECONDS + scenario.engine.startup_seconds / scenario.time_scale
    story.begins(time.time() + CALIBRATION_SECONDS + 2 * starting)
    argv = [sys.executable, "-m", "specdrift", "simulate", "--port", str(port)]
    argv += ["--scenario", options.scenario, "--seed", str(story.resolved.seed)]
    command = [*argv, "--scenario-epoch", repr(story.zero)]
    found = scenario.engine.speculative_config
    policy = demo_policy(
        scenario,
        command=write_argv(command, SpecConfig(dict(found)) if found else None),
        health_url=f"{base}/health",
        pages=[f"{base}/metrics"],
    )
    parts = build(policy, folder, teller, simulated=True, die_with_parent=True)
    stack.callback(parts.close)
    if not options.headless:
        _serve(options, parts, teller, stack)
    _calibrate(parts, [*argv, *_calibration(scenario)], folder, teller, stopping)
    process = parts.process
    if process is None or stopping():
        return _verdict(options, story, teller, stopping)
    stack.callback(process.stop, STOP_SECONDS)
    _wait_ready(
        lambda: process.ensure(process.as_found(), "as-found"), parts.controller.observe, stopping
    )
    if stopping():
        return _verdict(options, story, teller, stopping)
    teller.tell(time.time(), "learn", "speculation is on; learning each class's baseline")
    onset = _Onset(story, teller)

    def step() -> None:
        alarms, decision = parts.controller.tick()
        now = time.time()
        story.saw(now, alarms, decision, parts.controller.memory.loop)
        onset.maybe_tell(now)

    run_ticks(step, DEMO_SCRAPE_SECONDS, lambda: stopping() or story.over(time.time()))
    code = _verdict(options, story, teller, stopping)
    if not options.headless and not stopping():
        teller.tell(time.time(), "end", "the story is over; the page stays up until Ctrl-C")
        run_ticks(parts.controller.tick, DEMO_SCRAPE_SECONDS, stopping)
    return code


def _calibration(scenario: Scenario) -> list[str]:
    return ["--calibrate", str(CALIBRATION_SECONDS * scenario.time_scale)]


def _calibrate(
    parts: Parts, argv: list[str], folder: Path, teller: Teller, stopping: _Stopping
) -> None:
    """Measure the time per step without speculation over the loads, before the story begins."""
    teller.tell(
        time.time(), "calibrate", "speculation off: measuring the time per step over the loads"
    )
    target = parts.controller.policy.spec.target_ref
    assert target is not None and target.health_url is not None
    health_url = target.health_url
    engine = LocalProcess(
        argv,
        healthy=lambda: parts.scraper.answers(health_url),
        folder=folder / "calibration",
        die_with_parent=True,
    )
    try:
        _wait_ready(lambda: engine.ensure(None, "calibration"), lambda: None, stopping)
        end = time.monotonic() + CALIBRATION_SECONDS
        run_ticks(
            parts.controller.observe,
            DEMO_SCRAPE_SECONDS,
            lambda: stopping() or time.monotonic() >= end,
        )
    finally:
        engine.stop(STOP_SECONDS)


def _wait_ready(
    ensure: Callable[[], Rollout], meanwhile: Callable[[], None], stopping: _Stopping
) -> None:
    deadline = time.monotonic() + ENGINE_START_TIMEOUT
    while not stopping():
        rollout = ensure()
        if rollout.status == "ready":
            return
        if rollout.status == "failed" or time.monotonic() > deadline:
            raise ActuationError(
                "the simulated engine did not start",
                why=rollout.reason or f"not ready after {ENGINE_START_TIMEOUT:g} s",
                hint="the engine's log in the state folder (--state-dir keeps it)",
            )
        meanwhile()
        time.sleep(0.1)


def _serve(options: DemoOptions, parts: Parts, teller: Teller, stack: ExitStack) -> None:
    api = ApiServer(
        create_app(parts.store, token=Settings().api_token), host=LOOPBACK, port=options.port
    )
    api.start()
    stack.callback(api.stop)
    page = Page(api.url, options.dashboard_port)
    page.start()
    stack.callback(page.stop)
    teller.tell(time.time(), "page", f"{page.url}  (API: {api.url})")


def _verdict(options: DemoOptions, story: Story, teller: Teller, stopping: _Stopping) -> int:
    missing = story.shortcomings()
    if missing and stopping.asked:
        teller.tell(time.time(), "stopped", "stopped before the story's end")
        return EXIT_FAILED if options.headless else EXIT_OK
    if missing:
        text = "not as the scenario calls for: " + "; ".join(missing)
        pace = story.tick_seconds()
        if pace is not None and pace > 2 * DEMO_SCRAPE_SECONDS:
            text += (
                f" (this machine is too busy for the demo: one scrape every {pace:.1f} s, not "
                f"every {DEMO_SCRAPE_SECONDS:g} s)"
            )
        teller.tell(time.time(), "verdict", text)
        return EXIT_FAILED
    teller.tell(time.time(), "verdict", "the loop did what the scenario calls for")
    return EXIT_OK


class _Onset:
    """Tells once when the scenario's change begins: the controller is not told."""

    def __init__(self, story: Story, teller: Teller) -> None:
        self._story = story
        self._teller = teller
        self._told = False

    def maybe_tell(self, now: float) -> None:
        onset = self._story.onset
        if not self._told and onset is not None and now >= onset:
            self._told = True
            self._teller.tell(onset, "onset", "(simulator) the scenario's change begins")


class _Stopping:
    """Ctrl-C, SIGTERM or the time limit; asked between steps, so that everything is closed."""

    def __init__(self, started: float, seconds: float | None) -> None:
        self._end = None if seconds is None else started + seconds
        self.asked = False
        self._former = {
            number: signal.signal(number, self._ask)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True

    def restore(self) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        return self.asked or (self._end is not None and time.time() >= self._end)


def _folder(options: DemoOptions, stack: ExitStack) -> Path:
    if options.state_dir is not None:
        try:
            options.state_dir.mkdir(parents=True, exist_ok=True)
            used = (options.state_dir / STORE_FILE).exists()
        except OSError as error:
            raise UsageError(
                "cannot use the state folder",
                where=str(options.state_dir),
                why=error.strerror or str(error),
                hint="another --state-dir",
            ) from error
        if used:
            raise UsageError(
                "a demo begins with nothing learned",
                where=str(options.state_dir),
                why="the folder holds the store of an earlier run",
                hint="another --state-dir, or remove it",
            )
        return options.state_dir
    folder = Path(tempfile.mkdtemp(prefix="specdrift-demo-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
