"""A policy -> a running loop: adapters chosen and wired, ticks paced."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from specdrift.adapters.localproc import LocalProcess
from specdrift.adapters.scrape import Scraper
from specdrift.adapters.store import STORE_FILE, SqliteStore
from specdrift.config import Policy
from specdrift.core.specconfig import SpecConfig, validate
from specdrift.errors import PolicyError, SpecConfigError, SpecdriftError
from specdrift.service.ports import Actuator, Narrator
from specdrift.service.source import DirectSource
from specdrift.service.tick import Controller, Ports


class WallClock:
    """Unix time of this machine."""

    def now(self) -> float:
        """Return unix time in seconds."""
        return time.time()


class LogNarrator:
    """Tells the structured log."""

    def __init__(self) -> None:
        self._log = structlog.get_logger("specdrift")

    def tell(self, time: float, kind: str, sentence: str) -> None:
        """Log one sentence."""
        self._log.info(sentence, kind=kind, at=time)


@dataclass(frozen=True, slots=True)
class Parts:
    """What was built from a policy, and must be closed."""

    controller: Controller
    store: SqliteStore
    scraper: Scraper
    process: LocalProcess | None

    def close(self) -> None:
        """Close store and connections; the engine process goes on."""
        self.store.close()
        self.scraper.close()


def build(
    policy: Policy,
    folder: Path,
    narrator: Narrator,
    *,
    simulated: bool = False,
    die_with_parent: bool = False,
) -> Parts:
    """Wire the loop of one policy over a state folder.

    Raises:
        PolicyError: The policy asks for what this build cannot do, or for an impossible rung.
        StoreError: The store cannot be opened.
    """
    direct = policy.spec.source.direct
    if direct is None or not direct.urls:
        raise PolicyError(
            "this policy's source cannot be read here",
            where="field spec.source",
            why="the embedded loop reads pages directly",
            hint="source: {direct: {urls: [http://127.0.0.1:8000]}}",
        )
    interval = policy.spec.detector.scrape_interval
    scraper = Scraper(timeout=max(0.2, min(5.0, 0.8 * interval)))
    source = DirectSource(direct.urls, scraper)
    process = _process(policy, folder, source, die_with_parent)
    _check_rungs(policy, source.engine_version())
    store = SqliteStore(folder / STORE_FILE)
    actuator: Actuator | None = process
    try:
        controller = Controller(
            policy,
            Ports(WallClock(), source, store, narrator, actuator),
            workload=policy.metadata.name,
            simulated=simulated,
        )
    except SpecdriftError:
        store.close()
        scraper.close()
        raise
    return Parts(controller, store, scraper, process)


def _process(
    policy: Policy, folder: Path, source: DirectSource, die_with_parent: bool
) -> LocalProcess | None:
    target = policy.spec.target_ref
    if target is None:
        return None
    if target.kind != "LocalProcess" or target.command is None or target.health_url is None:
        raise PolicyError(
            "this target cannot be acted on here",
            where="field spec.targetRef.kind",
            why=f"{target.kind} needs the Kubernetes controller",
            hint="kind: LocalProcess, or leave targetRef out and use mode observe",
        )
    health_url = target.health_url
    return LocalProcess(
        target.command,
        healthy=lambda: source.healthy(health_url),
        folder=folder,
        environment=target.environment,
        engine_version=source.engine_version,
        stop_grace=target.stop_grace,
        die_with_parent=die_with_parent,
    )


def _check_rungs(policy: Policy, version: str | None) -> None:
    """Refuse a rung that would crash the engine, before anything is touched."""
    for index, rung in enumerate(policy.spec.rungs):
        if rung.classes or rung.route is not None:
            raise PolicyError(
                "a rung cannot be carried out here",
                where=f"field spec.rungs.{index}",
                why="a restart changes every class; single classes need routing or the tap",
                hint="leave classes and route out",
            )
        if rung.speculative_config is None:
            continue
        try:
            validate(SpecConfig(dict(rung.speculative_config)), version)
        except SpecConfigError as error:
            raise PolicyError(
                "a rung is not possible",
                where=f"field spec.rungs.{index}.speculativeConfig",
                why=str(error),
            ) from error


def run_ticks(step: Callable[[], object], interval: float, stopping: Callable[[], bool]) -> None:
    """Call `step` every `interval` seconds until told to stop; late steps never pile up."""
    due = time.monotonic()
    while not stopping():
        step()
        due += interval
        now = time.monotonic()
        due = max(due, now)
        while not stopping() and (left := due - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
