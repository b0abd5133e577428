"""The whole loop under a virtual clock: the real controller over the simulator's own core.

Pages are real exposition text, read by the real reader; only HTTP, processes and waiting are
left out. A story of 150 s takes a few seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specdrift.adapters.exposition import parse_exposition
from specdrift.cli.story import Story, demo_policy
from specdrift.core.engines.registry import read_page, wanted
from specdrift.core.policy import Rollout
from specdrift.core.specconfig import SpecConfig
from specdrift.core.windows import Snapshot
from specdrift.service.ports import StoredDecision, TickRecord
from specdrift.service.tick import Controller, Ports
from specdrift.sim.engine import SimulatedEngine
from specdrift.sim.scenario import Scenario

CALIBRATION_SECONDS = 12.0
EPOCH = 1_800_000_000.0


class MemoryStore:
    """The store port in memory."""

    def __init__(self) -> None:
        self.documents: dict[str, str] = {}
        self.stored_points: list[str] = []
        self.stored_alarms: list[str] = []
        self.stored_decisions: list[StoredDecision] = []

    def document(self, name: str) -> str | None:
        return self.documents.get(name)

    def commit(self, record: TickRecord) -> None:
        self.documents.update(record.documents)
        if record.point is not None:
            self.stored_points.append(record.point)
        self.stored_alarms.extend(record.alarms)
        self.stored_decisions.extend(record.decisions)

    def put_document(self, name: str, text: str) -> None:
        self.documents[name] = text

    def points(self, since: float, limit: int) -> list[str]:
        return self.stored_points[-limit:]

    def alarms(self, limit: int) -> list[tuple[int, str]]:
        return list(enumerate(self.stored_alarms, 1))[::-1][:limit]

    def decisions(self, limit: int) -> list[tuple[int, StoredDecision]]:
        return list(enumerate(self.stored_decisions, 1))[::-1][:limit]

    def decision(self, number: int) -> StoredDecision | None:
        known = self.stored_decisions
        return known[number - 1] if 0 < number <= len(known) else None

    def close(self) -> None:
        pass


class VirtualWorld:
    """Clock, source and actuator over one simulated engine."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.resolved = scenario.resolve(seed)
        self.time = EPOCH
        self.found = dict(scenario.engine.speculative_config or {})
        self.settings: Mapping[str, object] | None = self.found
        self.engine = SimulatedEngine(
            self.resolved, None, epoch=EPOCH, calibrate_seconds=CALIBRATION_SECONDS
        )
        self.zero = EPOCH
        self.changes = 0

    def begin_story(self) -> None:
        self.zero = self.time + self.resolved.engine.startup_seconds
        self.engine = SimulatedEngine(self.resolved, SpecConfig(self.found), epoch=self.zero)

    def advance(self, seconds: float) -> None:
        self.time += seconds
        self.engine.advance(self.time - self.zero)

    def now(self) -> float:
        return self.time

    def engine_version(self) -> str | None:
        return self.engine.version

    def collect(self, now: float) -> Sequence[Snapshot]:
        if not self.engine.up or self.time < self.zero:
            return [Snapshot("virtual", now, None, "down")]
        counters = read_page(parse_exposition(self.engine.exposition(), wanted))
        return [Snapshot("virtual", now, counters[0])]

    def as_found(self) -> Mapping[str, object] | None:
        return self.found or None

    def live(self) -> Mapping[str, object] | None:
        return self.settings

    def ensure(self, settings: Mapping[str, object] | None, plan: str) -> Rollout:
        if settings != self.settings:
            self.settings = settings
            self.changes += 1
            self.engine.restart(SpecConfig(settings) if settings is not None else None)
        return self.status()

    def running(self) -> bool:
        return True

    def status(self) -> Rollout:
        seconds = self.resolved.engine.startup_seconds
        return Rollout("ready" if self.engine.up else "in_progress", "", seconds)


class Told:
    """Keeps what was told."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.lines: list[tuple[float, str, str]] = []

    def tell(self, time: float, kind: str, sentence: str) -> None:
        self.lines.append((time, kind, sentence))


def run_story(
    scenario: Scenario, seed: int, *, scrape_interval: float = 0.5, store: MemoryStore | None = None
) -> tuple[Story, VirtualWorld, Told]:
    """Play a scenario to its end; returns the story with its verdict."""
    world = VirtualWorld(scenario, seed)
    policy = demo_policy(scenario, command=("simulated",), health_url="http://127.0.0.1/health")
    story = Story(scenario, world.resolved, started=EPOCH)
    told = Told(story)
    memory = store or MemoryStore()
    controller = Controller(
        policy,
        Ports(world, world, memory, told, world),
        workload="simulated-llama",
        simulated=True,
    )
    calibrating = CALIBRATION_SECONDS
    while calibrating > 0:
        world.advance(scrape_interval)
        controller.observe()
        calibrating -= scrape_interval
    world.begin_story()
    story.begins(world.zero)
    while not story.over(world.time):
        world.advance(scrape_interval)
        alarms, decision = controller.tick()
        story.saw(world.time, alarms, decision, controller.memory.loop)
    return story, world, told
