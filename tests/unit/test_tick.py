"""The shell around the loop, over fake ports: order of effects, crashes, modes, overrides."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from specdrift.config import Policy, parse_policy
from specdrift.core.engines.model import ClassCounters, EngineCounters, SpecCounters
from specdrift.core.loop import Decision, Kind, Phase
from specdrift.core.policy import AS_FOUND, OFF, Mode, Rollout
from specdrift.core.windows import Snapshot
from specdrift.errors import StoreError
from specdrift.service import checkpoint
from specdrift.service.explain import explain
from specdrift.service.ports import StoredDecision, TickRecord
from specdrift.service.tick import DOCUMENT_MEMORY, Controller, Ports
from specdrift.service.views import DOCUMENT_OVERRIDE
from tests.support.virtual import MemoryStore

K = 3
FOUND = {"method": "eagle3", "model": "draft", "num_speculative_tokens": K}
GOOD = {"chat": 0.7, "code": 0.6}
BAD = {"chat": 0.7, "code": 0.05}
START = 1_800_000_000.0
STEPS = 400.0
DOWN_SECONDS = 3.0


class Crash(BaseException):
    """The process is gone: nothing may catch this."""


@dataclass
class World:
    """Clock, source and actuator: an engine whose counters grow by rule, almost without noise."""

    time: float = START
    settings: Mapping[str, object] | None = field(default_factory=lambda: dict(FOUND))
    acceptance: Mapping[str, float] = field(default_factory=lambda: dict(GOOD))
    process_start: float = START - 100.0
    ready_at: float = 0.0
    reachable: bool = True
    fail: str = ""
    crash_in_ensure: int = 0
    steps: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0
    spec: dict[str, list[float]] = field(default_factory=dict)
    log: list[tuple[Any, ...]] = field(default_factory=list)

    # --- clock and source ---
    def now(self) -> float:
        return self.time

    def advance(self) -> None:
        self.time += 1.0
        if self.time < self.ready_at:
            return
        self.steps += STEPS
        self.tokens += STEPS
        self.seconds += STEPS * (0.010 if self.settings is None else 0.025)
        if self.settings is None:
            return
        for i, (name, level) in enumerate(self.acceptance.items()):
            wave = 0.01 * math.sin(self.time * (1.3 + i))
            drafts, accepted = STEPS / 2, STEPS / 2 * K * max(0.0, level + wave)
            counts = self.spec.setdefault(name, [0.0, 0.0])
            counts[0] += drafts
            counts[1] += accepted
            self.tokens += accepted

    def collect(self, now: float) -> Sequence[Snapshot]:
        if not self.reachable or self.time < self.ready_at:
            return [Snapshot("engine", now, None, "down")]
        parts = {n: SpecCounters(d, d * K, a, (a / K,) * K) for n, (d, a) in self.spec.items()}
        drafts = sum(c.drafts for c in parts.values())
        accepted = sum(c.accepted_tokens for c in parts.values())
        on = self.settings is not None
        counters = EngineCounters(
            "vllm",
            "llama",
            "0",
            process_start=self.process_start,
            spec=SpecCounters(drafts, drafts * K, accepted, (accepted / K,) * K) if on else None,
            generation_tokens=self.tokens,
            first_tokens=0.0,
            steps=self.steps / 8.0,
            request_steps=self.steps,
            request_step_seconds=self.seconds,
            running=8.0,
            waiting=0.0,
            by_class=tuple(ClassCounters(n, K, c) for n, c in sorted(parts.items())),
            class_output_tokens=dict.fromkeys(GOOD, self.tokens / 2),
            method="eagle3" if on else None,
        )
        return [Snapshot("engine", now, counters)]

    def engine_version(self) -> str | None:
        return "0.32.0"

    # --- actuator ---
    def as_found(self) -> Mapping[str, object] | None:
        return FOUND

    def live(self) -> Mapping[str, object] | None:
        return self.settings

    def ensure(self, settings: Mapping[str, object] | None, plan: str) -> Rollout:
        if self.crash_in_ensure:
            self.crash_in_ensure -= 1
            raise Crash
        self.log.append(("ensure", settings, plan))
        if settings != self.settings:
            self.log.append(("restart", settings))
            self.settings = settings
            self.process_start = self.time
            self.ready_at = self.time + DOWN_SECONDS
            self.steps = self.tokens = self.seconds = 0.0
            self.spec = {}
        return self.status()

    def running(self) -> bool:
        return True

    def status(self) -> Rollout:
        if self.fail and self.settings is None:
            return Rollout("failed", self.fail, DOWN_SECONDS)
        ready = self.time >= self.ready_at
        return Rollout("ready" if ready else "in_progress", "", DOWN_SECONDS)

    # --- what happened ---
    def restarts(self) -> list[object]:
        return [entry[1] for entry in self.log if entry[0] == "restart"]


class Store(MemoryStore):
    """The store in memory; says in the world's log when something became durable."""

    def __init__(self, world: World, documents: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.documents = dict(documents or {})
        self.world = world
        self.refuse = 0

    def commit(self, record: TickRecord) -> None:
        if self.refuse:
            self.refuse -= 1
            raise StoreError("no space left on the device")
        super().commit(record)
        loop = checkpoint.load_plain(record.documents[DOCUMENT_MEMORY])["data"]["loop"]
        self.world.log.append(("commit", loop["phase"], loop["rung"], loop["plan"]))


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[float, str, str]] = []

    def tell(self, time: float, kind: str, sentence: str) -> None:
        self.lines.append((time, kind, sentence))


def policy(**spec: Any) -> Policy:
    return parse_policy(
        {
            "apiVersion": "specdrift.dev/v1alpha1",
            "kind": "SpecDecodePolicy",
            "metadata": {"name": "llama"},
            "spec": {
                "targetRef": {"kind": "LocalProcess", "command": ["x"], "healthUrl": "http://x"},
                "source": {"direct": {"urls": ["http://x"]}},
                "mode": "act",
                "classes": ["chat", "code"],
                "detector": {
                    "falseAlarmInterval": "1d",
                    "scrapeInterval": "1s",
                    "phaseOne": "20s",
                },
                "floor": None,
                "rungs": [{"name": "off"}],
                "safety": {"cooldown": "5s", "rolloutTimeout": "30s"},
                "recovery": {"probeAfter": "20s", "maxBackoff": "60s"},
                **spec,
            },
        },
        where="test",
    )


ACT = policy()


def controller(world: World, store: Store, told: Told | None = None, p: Policy = ACT) -> Controller:
    ports = Ports(world, world, store, told or Told(), world)
    return Controller(p, ports, workload="llama")


def run(watcher: Controller, world: World, ticks: int) -> list[Decision]:
    made = []
    for _ in range(ticks):
        world.advance()
        _, decision = watcher.tick()
        if decision is not None:
            made.append(decision)
    return made


def run_until(watcher: Controller, world: World, phase: Phase, most: int = 200) -> list[Decision]:
    made = []
    for _ in range(most):
        made += run(watcher, world, 1)
        if watcher.memory.loop.phase is phase:
            return made
    pytest.fail(f"never {phase.value}")


@pytest.fixture(scope="module")
def calm() -> tuple[World, dict[str, str]]:
    """T(B, 0) measured, baselines learned, nothing wrong yet. Not timed: solves thresholds."""
    world = World(settings=None)
    store = Store(world)
    watcher = controller(world, store)
    for _ in range(12):
        world.advance()
        watcher.observe()
    world.ensure(FOUND, "as-found")
    assert run(watcher, world, 32) == []
    assert watcher.memory.loop.phase is Phase.STEADY
    assert all(c.baseline is not None for c in watcher.memory.pipeline.charts.values())
    world.log.clear()
    return world, store.documents


@pytest.fixture
def world(calm: tuple[World, dict[str, str]]) -> World:
    return copy.deepcopy(calm[0])


@pytest.fixture
def store(calm: tuple[World, dict[str, str]], world: World) -> Store:
    return Store(world, calm[1])


def test_calm_stays_calm(world: World, store: Store) -> None:
    watcher = controller(world, store)
    assert run(watcher, world, 40) == []
    assert all(entry[0] == "commit" for entry in world.log)


def test_the_intent_is_on_disk_before_the_actuator_is_asked(world: World, store: Store) -> None:
    watcher = controller(world, store)
    world.acceptance = BAD
    made = run_until(watcher, world, Phase.ROLLOUT)
    assert [(d.kind, d.rung) for d in made] == [(Kind.ACT, OFF)]
    before, (intent, asked, done) = world.log[:-3], world.log[-3:]
    assert intent == ("commit", "rollout", OFF, 1)
    assert asked == ("ensure", None, "llama-1")
    assert done == ("restart", None)
    assert all(entry[0] == "commit" for entry in before)
    assert store.stored_decisions[-1].time == made[0].time


def test_a_whole_story(world: World, store: Store) -> None:
    told = Told()
    watcher = controller(world, store, told)
    world.acceptance = BAD
    made = run_until(watcher, world, Phase.STANDING)
    assert [d.kind for d in made] == [Kind.ACT, Kind.VERIFIED]
    gain = made[1].gain
    assert gain is not None
    # 0.010 a token plain; before: 0.025 a step for 1 + (0.7 + 0.05) / 2 x 3 tokens.
    assert gain.value == pytest.approx(2.5 / 2.125 - 1, abs=0.02)
    world.acceptance = GOOD
    made = run_until(watcher, world, Phase.STEADY)
    assert [d.kind for d in made] == [Kind.PROBE, Kind.RECOVERED]
    assert world.restarts() == [None, FOUND]
    assert watcher.memory.loop.rung == AS_FOUND
    kinds = [kind for _, kind, _ in told.lines]
    assert kinds == ["alarm", "act", "verified", "probe", "recovered", "recovery"] or kinds == [
        "alarm",
        "act",
        "verified",
        "probe",
        "recovery",
        "recovered",
    ]
    # One sentence, the same for the people told and in the store.
    decided = [s for _, kind, s in told.lines if kind not in ("alarm", "recovery")]
    stored = [checkpoint.load(Decision, d.decision).sentence for d in store.stored_decisions]
    assert decided == stored


def test_a_crash_between_record_and_action_resumes_without_a_second_one(
    world: World, store: Store
) -> None:
    watcher = controller(world, store)
    world.acceptance = BAD
    world.crash_in_ensure = 1
    with pytest.raises(Crash):
        run_until(watcher, world, Phase.VERIFYING)
    assert world.restarts() == []
    heir = controller(world, store)
    assert heir.memory.loop.phase is Phase.ROLLOUT
    made = run_until(heir, world, Phase.STANDING)
    assert [d.kind for d in made] == [Kind.VERIFIED]
    assert world.restarts() == [None]
    assert len(heir.memory.loop.actions) == 1
    assert {entry[2] for entry in world.log if entry[0] == "ensure"} == {"llama-1"}


def test_a_crash_after_the_action_resumes_without_a_second_one(world: World, store: Store) -> None:
    watcher = controller(world, store)
    world.acceptance = BAD
    run_until(watcher, world, Phase.ROLLOUT)
    assert world.restarts() == [None]
    made = run_until(controller(world, store), world, Phase.STANDING)
    assert [d.kind for d in made] == [Kind.VERIFIED]
    assert world.restarts() == [None]


def ticks_to_act(world: World, store: Store) -> int:
    """How many ticks from now the watcher will act, found on a copy."""
    twin = copy.deepcopy(world)
    run_until(controller(twin, Store(twin, store.documents)), twin, Phase.ROLLOUT)
    return round(twin.time - world.time)


def test_what_cannot_be_recorded_is_not_done(world: World, store: Store) -> None:
    world.acceptance = BAD
    ticks = ticks_to_act(world, store)
    watcher = controller(world, store)
    run(watcher, world, ticks - 1)
    store.refuse = 1
    with pytest.raises(StoreError):
        run(watcher, world, 1)
    assert not any(entry[0] == "ensure" for entry in world.log)
    heir = controller(world, store)
    assert heir.memory.loop.phase is Phase.STEADY
    made = run_until(heir, world, Phase.VERIFYING)
    assert [d.kind for d in made] == [Kind.ACT]
    assert world.restarts() == [None]


def test_an_unrecorded_intent_is_not_carried_out_by_the_next_tick(
    world: World, store: Store
) -> None:
    """A full disk at the very tick of the decision, and a caller that goes on ticking."""
    world.acceptance = BAD
    ticks = ticks_to_act(world, store)
    watcher = controller(world, store)
    run(watcher, world, ticks - 1)
    store.refuse = 1
    with pytest.raises(StoreError):
        run(watcher, world, 1)
    assert not any(entry[0] == "ensure" for entry in world.log)
    run(watcher, world, 1)
    first = next(i for i, entry in enumerate(world.log) if entry[0] == "ensure")
    assert ("commit", "rollout", OFF, 1) in world.log[:first]


@pytest.mark.parametrize("mode", ["observe", "recommend"])
def test_other_modes_never_touch_the_engine(world: World, store: Store, mode: str) -> None:
    watcher = controller(world, store, p=policy(mode=mode))
    world.acceptance = BAD
    made = run(watcher, world, 90)
    assert {d.kind for d in made} <= {Kind.HOLD, Kind.REPORT, Kind.RECOMMEND}
    assert [d.rung for d in made] == [OFF]
    assert not any(entry[0] in ("ensure", "restart") for entry in world.log)
    assert world.settings == FOUND


@pytest.mark.parametrize(
    "override", ['{"mode":null,"paused":true}', '{"mode":"observe","paused":false}']
)
def test_an_override_holds_the_hand_until_it_is_lifted(
    world: World, store: Store, override: str
) -> None:
    watcher = controller(world, store)
    world.acceptance = BAD
    store.put_document(DOCUMENT_OVERRIDE, override)
    made = run(watcher, world, 60)
    assert made
    assert {d.kind for d in made} <= {Kind.RECOMMEND, Kind.REPORT}
    assert world.restarts() == []
    state = checkpoint.load_plain(store.documents["state"])
    assert state["mode"] in ("recommend", "observe")
    store.put_document(DOCUMENT_OVERRIDE, '{"mode":null,"paused":false}')
    made = run(watcher, world, 3)
    assert [d.kind for d in made] == [Kind.ACT]


def test_an_override_can_allow_what_the_policy_only_recommends(world: World, store: Store) -> None:
    watcher = controller(world, store, p=policy(mode="recommend"))
    store.put_document(DOCUMENT_OVERRIDE, '{"mode":"act","paused":false}')
    world.acceptance = BAD
    run_until(watcher, world, Phase.ROLLOUT)
    assert world.restarts() == [None]


@pytest.mark.parametrize("phase", [Phase.ROLLOUT, Phase.VERIFYING, Phase.STANDING])
def test_another_watcher_goes_on_in_the_same_phase(
    world: World, store: Store, phase: Phase
) -> None:
    watcher = controller(world, store)
    world.acceptance = BAD
    run_until(watcher, world, phase)
    loop = watcher.memory.loop
    restarts = world.restarts()
    heir = controller(world, store)
    assert heir.memory.loop == loop
    assert heir.memory.pipeline == watcher.memory.pipeline
    run(heir, world, 1)
    assert heir.memory.loop.plan == loop.plan
    assert heir.memory.loop.settings is None
    assert world.restarts() == restarts


@pytest.mark.timeout(10)  # a new controller for each of some hundred ticks
def test_restarting_the_watcher_at_every_tick_changes_nothing(world: World, store: Store) -> None:
    def story(world: World, store: Store, *, fresh: bool) -> list[tuple[object, ...]]:
        watcher = controller(world, store)
        told: list[tuple[object, ...]] = []
        for i in range(110):
            world.acceptance = BAD if i < 50 else GOOD
            if fresh:
                watcher = controller(world, store)
            world.advance()
            alarms, decision = watcher.tick()
            told += [("alarm", a.signal) for a in alarms]
            told += [(decision.kind, decision.time, decision.sentence)] if decision else []
        told.append((watcher.memory.loop,))
        return told

    other = copy.deepcopy(world)
    others = Store(other, store.documents)
    whole = story(world, store, fresh=False)
    pieces = story(other, others, fresh=True)
    assert pieces == whole
    assert other.restarts() == world.restarts() == [None, FOUND]


def test_memory_that_cannot_be_read_is_said_and_changes_nothing(world: World, store: Store) -> None:
    watcher = controller(world, store)
    world.acceptance = BAD
    run_until(watcher, world, Phase.STANDING)
    store.documents[DOCUMENT_MEMORY] = store.documents[DOCUMENT_MEMORY][:-40]
    told = Told()
    heir = controller(world, store, told)
    assert [kind for _, kind, _ in told.lines] == ["lost"]
    assert "learned baselines" in told.lines[0][2]
    assert heir.memory.loop.phase is Phase.STANDING
    assert heir.memory.loop.settings is None
    before = world.restarts()
    run(heir, world, 10)
    assert world.restarts() == before


def test_a_rollout_that_fails_is_undone(world: World, store: Store) -> None:
    watcher = controller(world, store)
    world.acceptance, world.fail = BAD, "CUDA out of memory"
    made = run(watcher, world, 40)
    assert [d.kind for d in made][:2] == [Kind.ACT, Kind.UNDO]
    assert "CUDA out of memory" in made[1].sentence
    assert world.restarts() == [None, FOUND]
    assert world.settings == FOUND


def test_without_an_actuator_it_recommends(world: World, store: Store) -> None:
    p = policy(targetRef=None, mode="recommend")
    watcher = Controller(p, Ports(world, world, store, Told()), workload="llama")
    store.put_document(DOCUMENT_OVERRIDE, '{"mode":"act","paused":false}')
    world.acceptance = BAD
    made = run(watcher, world, 40)
    assert [d.kind for d in made] == [Kind.RECOMMEND]
    assert "nothing here can change" in made[0].sentence


def test_outside_the_maintenance_windows_it_waits(world: World, store: Store) -> None:
    hour = int(world.time % 86400 // 3600)
    closed = [f"{(hour + 6) % 24:02d}:00-{(hour + 8) % 24:02d}:00"]
    safety = {"cooldown": "5s", "rolloutTimeout": "30s"}
    shut = policy(safety={**safety, "maintenanceWindows": closed})
    watcher = controller(world, store, p=shut)
    world.acceptance = BAD
    made = run(watcher, world, 40)
    assert [d.kind for d in made] == [Kind.RECOMMEND]
    assert "maintenance" in made[0].sentence
    now = [f"{(hour + 23) % 24:02d}:00-{(hour + 3) % 24:02d}:00"]
    heir = controller(world, store, p=policy(safety={**safety, "maintenanceWindows": now}))
    assert [d.kind for d in run(heir, world, 2)] == [Kind.ACT]


def test_an_engine_that_does_not_answer_alarms_nothing(world: World, store: Store) -> None:
    watcher = controller(world, store)
    world.reachable = False
    assert run(watcher, world, 30) == []
    assert checkpoint.load_plain(store.documents["state"])["engine_state"] == "down"
    world.reachable = True
    assert run(watcher, world, 20) == []
    assert checkpoint.load_plain(store.documents["state"])["engine_state"] == "ok"


def test_every_stored_decision_can_be_run_again(world: World, store: Store) -> None:
    watcher = controller(world, store)
    world.acceptance = BAD
    run_until(watcher, world, Phase.STANDING)
    world.acceptance = GOOD
    run_until(watcher, world, Phase.STEADY)
    assert len(store.stored_decisions) == 4
    for stored in store.stored_decisions:
        assert isinstance(stored, StoredDecision)
        assert explain(stored).identical


def test_modes_in_the_state_document(world: World, store: Store) -> None:
    watcher = controller(world, store)
    run(watcher, world, 1)
    state = checkpoint.load_plain(store.documents["state"])
    assert (state["mode"], state["paused"], state["phase"]) == (Mode.ACT, False, "steady")


def test_an_engine_that_cannot_be_seen_is_said_once_and_its_return_too(
    world: World, store: Store
) -> None:
    told = Told()
    watcher = controller(world, store, told)
    run(watcher, world, 5)
    world.reachable = False
    run(watcher, world, 20)
    world.reachable = True
    run(watcher, world, 5)
    assert [(kind, "llama" in text) for _, kind, text in told.lines] == [
        ("down", True),
        ("up", True),
    ]
