"""An engine run as a local process: supervised, restarted with another speculative config.

Level-triggered: `ensure(settings, plan)` compares the command line in force with the wanted one
and takes the next step (stop, start, wait for health). The process outlives specdrift on purpose
and is adopted again by pid and start time, so a crash of the watcher never stops the engine.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from specdrift.core.policy import Rollout
from specdrift.core.specconfig import SpecConfig, read_argv, validate, write_argv
from specdrift.errors import ActuationError, SpecConfigError, clip

STOP_GRACE_SECONDS = 60.0
# An engine that dies so soon after it served did not really come up; so often, it never will.
QUICK_DEATH_SECONDS = 30.0
MOST_QUICK_DEATHS = 3
SECRETS = ("SPECDRIFT_API_TOKEN",)
LONGEST_BACKOFF_SECONDS = 60.0
LOG_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """Which process is ours, told by pid *and* start time (pids are used again)."""

    pid: int
    started: int
    argv: tuple[str, ...]
    plan: str
    spawned_at: float


class LocalProcess:
    """Supervises one engine process.

    Args:
        command: The argv the workload came with.
        healthy: Asks the engine whether it serves.
        folder: Where the process record and the engine's log are kept.
        environment: Added to the process's environment.
        engine_version: For validating a config before it is used; None: unknown.
        stop_grace: Seconds an engine may take to drain before what is left of it is killed.
        die_with_parent: Have the kernel stop the process when specdrift dies (demo only).
        clock: Unix time in seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        healthy: Callable[[], bool],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        engine_version: Callable[[], str | None] = lambda: None,
        stop_grace: float = STOP_GRACE_SECONDS,
        die_with_parent: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._command = tuple(command)
        self._healthy = healthy
        self._folder = folder
        self._environment = dict(environment or {})
        self._engine_version = engine_version
        self._stop_grace = stop_grace
        self._die_with_parent = die_with_parent
        self._clock = clock
        self._child: subprocess.Popen[bytes] | None = None
        self._record = self._read_record()
        self._served = self._record is not None
        self._stop_asked: float | None = None
        self._change_began: float | None = None
        self._restart_seconds: float | None = None
        self._crashes = 0
        self._retry_at = 0.0
        self._failed: tuple[str, str] | None = None
        self._ready_at: float | None = None
        self._quick_deaths = 0

    # --- what is asked of an actuator ------------------------------------------------------------

    def as_found(self) -> Mapping[str, object] | None:
        """Return the speculative config of the original command; None: speculation off."""
        found = read_argv(self._command).config
        return dict(found.settings) if found is not None and not found.off else None

    def live(self) -> Mapping[str, object] | None:
        """Return the speculative config of the process in force; None: speculation off."""
        argv = self._record.argv if self._record is not None else self._command
        found = read_argv(argv).config
        return dict(found.settings) if found is not None and not found.off else None

    def ensure(self, settings: Mapping[str, object] | None, plan: str) -> Rollout:
        """Take the next step towards `settings` being in force and served."""
        if self._failed is not None and self._failed[0] == plan:
            return self._answer("failed", self._failed[1])
        try:
            wanted = self._argv(settings)
        except SpecConfigError as error:
            self._failed = (plan, str(error))
            return self._answer("failed", str(error))
        if self._record is not None and self._record.argv == wanted:
            return self._watch(plan, keep_trying=False)
        if self._change_began is None:
            self._change_began = self._clock()
        if self._group_alive():
            self._stop_step()
            return self._answer("in_progress", "stopping the engine")
        try:
            self._spawn(wanted, plan)
        except ActuationError as error:
            # The engine is down now: a failed rollout is undone, a crash of ours would not be.
            self._failed = (plan, str(error))
            return self._answer("failed", str(error))
        return self._answer("in_progress", "starting the engine")

    def status(self) -> Rollout:
        """Return how the process is; one that died by itself is started again, with back-off."""
        if self._record is None:
            return self._answer("in_progress", "not started yet")
        return self._watch(self._record.plan, keep_trying=True)

    def running(self) -> bool:
        """Tell whether the engine's process lives."""
        return self._alive()

    def stop(self, grace: float) -> None:
        """Stop the process and wait for it and its workers; kill them after `grace` seconds."""
        deadline = time.monotonic() + grace
        while self._group_alive() and time.monotonic() < deadline:
            self._stop_step()
            time.sleep(0.05)
        if self._group_alive():
            self._signal(signal.SIGKILL)
            if self._child is not None:
                self._child.wait(timeout=5)
        self._record_path.unlink(missing_ok=True)
        self._record = None

    @property
    def pid(self) -> int | None:
        """The engine's process id; None when it does not run."""
        return self._record.pid if self._record is not None and self._alive() else None

    # --- steps ----------------------------------------------------------------------------------

    def _argv(self, settings: Mapping[str, object] | None) -> tuple[str, ...]:
        if settings == self.as_found():
            return self._command
        config = SpecConfig(settings) if settings is not None else None
        if config is not None:
            validate(config, self._engine_version())
        return tuple(write_argv(self._command, config))

    def _watch(self, plan: str, *, keep_trying: bool) -> Rollout:
        if self._alive():
            if not self._healthy():
                return self._answer("in_progress", "waiting for the engine to serve")
            self._served = True
            now = self._clock()
            self._ready_at = self._ready_at or now
            if now - self._ready_at > QUICK_DEATH_SECONDS:
                self._crashes = self._quick_deaths = 0
            if self._change_began is not None:
                self._restart_seconds = self._clock() - self._change_began
                self._change_began = None
            return self._answer("ready")
        record = self._record
        assert record is not None
        now = self._clock()
        if now < self._retry_at:
            return self._answer("in_progress", "the engine died; starting it again shortly")
        lived = now - self._ready_at if self._ready_at is not None else 0.0
        self._quick_deaths += self._served and lived < QUICK_DEATH_SECONDS
        if not keep_trying and (not self._served or self._quick_deaths >= MOST_QUICK_DEATHS):
            when = "soon after it served" if self._served else "before it served"
            reason = f"the engine exited {when}: {self._last_words()}"
            self._failed = (plan, reason)
            return self._answer("failed", reason)
        if self._group_alive():
            self._signal(signal.SIGKILL)  # its workers still hold the GPU
            return self._answer("in_progress", "the engine died; stopping its workers")
        served = self._served
        self._crashes += 1
        self._retry_at = now + min(LONGEST_BACKOFF_SECONDS, 2.0**self._crashes)
        try:
            self._spawn(record.argv, record.plan)
        except ActuationError as error:
            return self._answer("in_progress", str(error))
        self._served = served
        return self._answer("in_progress", "the engine died; started it again")

    def _answer(self, status: str, reason: str = "") -> Rollout:
        return Rollout(status, reason, self._restart_seconds)

    def _stop_step(self) -> None:
        now = self._clock()
        if self._stop_asked is None:
            self._stop_asked = now
            self._signal(signal.SIGTERM)
        elif now - self._stop_asked > self._stop_grace or not self._alive():
            # Out of patience, or the leader is gone and left workers behind.
            self._signal(signal.SIGKILL)

    def _spawn(self, argv: tuple[str, ...], plan: str) -> None:
        if self._healthy():
            raise ActuationError(
                "cannot start the engine",
                where=clip(" ".join(argv)),
                why="something else already answers at its health address",
                hint="stop that process, or give the engine another port",
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        before = die_with_parent if self._die_with_parent else None
        try:
            with self._log_path.open("ab") as log:
                child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**_inherited(), **self._environment},
                    start_new_session=True,  # a Ctrl-C meant for specdrift is not the engine's
                    preexec_fn=before,  # noqa: PLW1509 - one prctl call, no threads touched
                )
        except OSError as error:
            raise ActuationError(
                "cannot start the engine",
                where=clip(" ".join(argv)),
                why=error.strerror or str(error),
                hint="check targetRef.command in the policy",
            ) from error
        self._child = child
        self._stop_asked = None
        self._served = False
        self._ready_at = None
        self._record = ProcessRecord(child.pid, _start_ticks(child.pid), argv, plan, self._clock())
        temporary = self._record_path.with_suffix(".tmp")
        temporary.touch(mode=0o600)  # the command line may carry a key
        temporary.write_text(json.dumps(asdict(self._record)), encoding="utf-8")
        temporary.replace(self._record_path)

    # --- the process ----------------------------------------------------------------------------

    @property
    def _record_path(self) -> Path:
        return self._folder / "engine.json"

    @property
    def _log_path(self) -> Path:
        return self._folder / "engine.log"

    def _read_record(self) -> ProcessRecord | None:
        try:
            raw = json.loads(self._record_path.read_text(encoding="utf-8"))
            record = ProcessRecord(
                int(raw["pid"]),
                int(raw["started"]),
                tuple(raw["argv"]),
                str(raw["plan"]),
                float(raw["spawned_at"]),
            )
            if record.pid <= 1:  # to signal 0 or -1 is to signal a group, or everybody
                raise ValueError(f"{record.pid} is no engine's process id")
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ActuationError(
                "cannot tell which engine process is ours",
                where=str(self._record_path),
                why=f"the record is damaged ({error})",
                hint="stop the engine by hand and delete the file",
            ) from error
        return record if _is_alive(record.pid, record.started) else None

    def _alive(self) -> bool:
        if self._record is None:
            return False
        if self._child is not None and self._child.pid == self._record.pid:
            return self._child.poll() is None
        return _is_alive(self._record.pid, self._record.started)

    def _group_alive(self) -> bool:
        """Tell whether the process or any worker it started still lives (they hold the GPU)."""
        if self._record is None:
            return False
        if self._alive():
            return True
        if self._child is None:
            return False  # adopted and gone: its group's number may be anybody's by now
        try:
            os.killpg(self._record.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return _group_lives(self._record.pid)

    def _signal(self, number: signal.Signals) -> None:
        if self._record is None:
            return
        try:
            if number is signal.SIGKILL:
                os.killpg(self._record.pid, number)  # engines have workers of their own
            else:
                os.kill(self._record.pid, number)
        except ProcessLookupError:
            pass  # it ended meanwhile, which is what was wanted

    def _last_words(self) -> str:
        try:
            with self._log_path.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - LOG_TAIL_BYTES))
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return "no log"
        return clip(lines[-1]) if lines else "no output"


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SECRETS}


def _start_ticks(pid: int) -> int:
    """Return the kernel's start time of a process, 0 where /proc is not to be had."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(text.rsplit(")", 1)[1].split()[19])


def _is_alive(pid: int, started: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # somebody else's process: ours is gone
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return started == 0
    fields = text.rsplit(")", 1)[1].split()
    return fields[0] != "Z" and int(fields[19]) == started


def _group_lives(group: int) -> bool:
    """Tell whether a process group has a member that is more than an unreaped entry."""
    states = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[2]) == group:
            states.append(fields[0])
    return any(state != "Z" for state in states) if Path("/proc/self/stat").exists() else True


def die_with_parent() -> None:
    """Have the kernel stop this process when its parent dies (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
