"""The SQLite store: one transaction per tick, one writer, one clear sentence when it cannot."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from specdrift.adapters import store as stores
from specdrift.adapters.store import STORE_FILE, SqliteStore
from specdrift.core.ticks import StoredDecision, TickRecord
from specdrift.errors import StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / STORE_FILE


def tick(time: float, **more: object) -> TickRecord:
    return TickRecord(time=time, documents={"loop": f"loop {time}"}, point=f"{time}", **more)  # type: ignore[arg-type]


def test_a_tick_is_kept_whole_and_in_order(path: Path) -> None:
    store = SqliteStore(path)
    decision = StoredDecision(2.0, '{"data":{"kind":"act","rung":"off"}}', "{}")
    store.commit(tick(1.0, alarms=("first", "second")))
    store.commit(tick(2.0, alarms=("third",), decisions=(decision,)))
    store.put_document("override", "{}")
    store.close()
    again = SqliteStore(path)
    assert again.document("loop") == "loop 2.0"
    assert again.document("override") == "{}"
    assert again.document("nothing") is None
    assert again.points(0.0, 10) == ["1.0", "2.0"]
    assert again.alarms(2) == [(3, "third"), (2, "second")]
    assert again.decisions(5) == [(1, decision)]
    assert again.decision(1) == decision
    assert again.decision(2) is None
    assert again.decision(2**80) is None
    again.close()


def test_points_are_the_newest_ones_oldest_first_and_fade(path: Path) -> None:
    store = SqliteStore(path)
    for time in range(10):
        store.commit(tick(float(time), keep_points_since=time - 4.0))
    assert store.points(-1.0, 100) == ["5.0", "6.0", "7.0", "8.0", "9.0"]
    assert store.points(6.0, 100) == ["7.0", "8.0", "9.0"]
    assert store.points(-1.0, 2) == ["8.0", "9.0"]
    assert store.points(-1.0, -3) == []
    store.close()


def test_decisions_are_counted_by_kind_and_rung(path: Path) -> None:
    store = SqliteStore(path)
    texts = ['{"data":{"kind":"act","rung":"off"}}'] * 2 + ['{"data":{"kind":"hold"}}', "damaged"]
    store.commit(tick(1.0, decisions=tuple(StoredDecision(1.0, t, "{}") for t in texts)))
    assert store.decision_kinds() == [("act", "off", 2), ("hold", None, 1)]
    store.close()


def test_a_failing_commit_changes_nothing(path: Path) -> None:
    store = SqliteStore(path)
    store.commit(tick(1.0))
    bad = TickRecord(2.0, {"loop": "new"}, "2.0", decisions=(StoredDecision(2.0, None, ""),))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="cannot write to the store"):
        store.commit(bad)
    assert store.document("loop") == "loop 1.0"
    assert store.points(0.0, 10) == ["1.0"]
    store.commit(tick(3.0))
    assert store.document("loop") == "loop 3.0"
    store.close()


def test_a_full_disk_is_said_and_loses_nothing(path: Path) -> None:
    store = SqliteStore(path)
    store.commit(tick(1.0))
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StoreError, match=r"full.*free some space; nothing stored before was lost"):
        store.commit(TickRecord(2.0, {"loop": "x" * 100_000}))
    assert store.document("loop") == "loop 1.0"
    store._connection.execute("PRAGMA max_page_count = 100000")
    store.commit(tick(3.0))
    assert store.document("loop") == "loop 3.0"
    store.close()


def test_two_writers_are_refused_and_a_reader_is_not(path: Path) -> None:
    first = SqliteStore(path)
    first.commit(tick(1.0))
    with pytest.raises(StoreError, match=r"in use by another specdrift .*process \d+ writes to it"):
        SqliteStore(path)
    reader = SqliteStore.open_read_only(path)
    assert reader.document("loop") == "loop 1.0"
    first.commit(tick(2.0))
    assert reader.document("loop") == "loop 2.0"
    with pytest.raises(StoreError, match="cannot write"):
        reader.put_document("loop", "mine")
    reader.close()
    first.close()
    first.close()
    SqliteStore(path).close()


def test_a_store_that_is_closed_says_so(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        store.document("loop")


def test_a_newer_store_is_left_alone(path: Path) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    for opening in (SqliteStore, SqliteStore.open_read_only):
        with pytest.raises(StoreError, match=r"newer specdrift .*: its version is 99"):
            opening(path)


def test_an_older_store_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    store.commit(tick(1.0))
    store.close()
    added = "ALTER TABLE points ADD COLUMN note TEXT; CREATE TABLE extra (id INTEGER)"
    monkeypatch.setattr(stores, "MIGRATIONS", (*stores.MIGRATIONS, added))
    with pytest.raises(StoreError, match=r"older specdrift .*start the controller once"):
        SqliteStore.open_read_only(path)
    store = SqliteStore(path)
    assert store.document("loop") == "loop 1.0"
    assert store._rows("SELECT count(*) FROM extra", ()) == [(0,)]
    store.close()
    SqliteStore.open_read_only(path).close()


def test_a_failing_migration_leaves_the_store_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(path).close()
    with monkeypatch.context() as patch:
        patch.setattr(stores, "MIGRATIONS", (*stores.MIGRATIONS, "CREATE TABLE a (b); nonsense"))
        with pytest.raises(StoreError, match="cannot write to the store"):
            SqliteStore(path)
    SqliteStore(path).close()


@pytest.mark.parametrize("opening", [SqliteStore, SqliteStore.open_read_only])
@pytest.mark.parametrize(
    "content", [b"this is text\n" * 200, b"SQLite format 3\0" + b"\xff" * 4096]
)
def test_a_file_that_is_no_database(path: Path, opening: type[SqliteStore], content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreError, match=rf"cannot .* \({path}\): .*Try: "):
        opening(path)
    assert path.read_bytes() == content
    path.unlink()
    SqliteStore(path).close()  # the lock was given back


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    for opening in (SqliteStore, SqliteStore.open_read_only):
        with pytest.raises(StoreError, match=r"not a specdrift store.*another program"):
            opening(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot make the folder .* Try: choose another"):
        SqliteStore(tmp_path / "file" / "state" / STORE_FILE)


def test_a_folder_that_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(stores.os, "open", refuse)
    with pytest.raises(StoreError, match=r"cannot write to the folder.*Permission denied"):
        SqliteStore(path)


def test_a_path_that_is_a_folder(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot open the store"):
        SqliteStore(path)


def test_reading_what_is_not_there(path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        SqliteStore.open_read_only(path)
    assert not path.parent.exists()


def test_a_file_held_by_another_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BUSY_MILLISECONDS", 50)
    store = SqliteStore(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"locked\. Try: close the other program"):
        store.commit(tick(1.0))
    other.execute("ROLLBACK")
    other.close()
    store.commit(tick(2.0))
    store.close()


def test_threads_take_turns(path: Path) -> None:
    store = SqliteStore(path)
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(50):
                points = store.points(-1.0, 1000)
                assert points == [f"{n}.0" for n in range(len(points))]
                store.put_document("override", "{}")
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for time in range(50):
        store.commit(tick(float(time)))
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.points(-1.0, 1000)) == 50
    store.close()
