"""The store against kill -9: it always opens, and the last committed tick is complete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import specdrift
from specdrift.adapters.store import STORE_FILE, SqliteStore

WRITER = """
import sys
from pathlib import Path
from specdrift.adapters.store import SqliteStore
from specdrift.core.ticks import StoredDecision, TickRecord

store = SqliteStore(Path(sys.argv[1]))
n = int(store.document("loop") or 0)
while True:
    n += 1
    text = str(n)
    store.commit(
        TickRecord(
            time=float(n),
            documents={"loop": text, "pipeline": text, "padding": text * 20_000},
            point=text,
            alarms=(text,),
            decisions=(StoredDecision(float(n), text, text),),
            keep_points_since=n - 100.0,
        )
    )
    print(n, flush=True)
"""


def test_killed_ten_times_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / STORE_FILE
    environment = {**os.environ, "PYTHONPATH": str(Path(specdrift.__file__).parents[1])}
    reported = 0
    for attempt in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            reported = int(writer.stdout.readline())
            time.sleep(0.01 + 0.013 * attempt)
            writer.send_signal(signal.SIGKILL)
            for line in writer.stdout:
                if line.endswith("\n"):
                    reported = int(line)
        store = SqliteStore(path)
        last = store.document("loop")
        assert last is not None
        assert int(last) >= reported
        assert store.document("pipeline") == last
        assert store.document("padding") == last * 20_000
        assert store.points(0.0, 1) == [last]
        assert store.alarms(1) == [(int(last), last)]
        number, decision = store.decisions(1)[0]
        assert (number, decision.inputs) == (int(last), last)
        assert len(store.points(0.0, 1000)) == min(int(last), 101)
        store.close()
    assert reported > 10
