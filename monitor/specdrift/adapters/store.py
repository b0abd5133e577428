"""The loop's memory: one SQLite file, written in one transaction per tick.

WAL with synchronous=NORMAL: a process killed at any point leaves the last committed tick complete.
Writers hold an advisory lock beside the file for as long as they live, so that two controllers
never act from one store; readers (`open_read_only`) need none. One connection, one lock: the loop
and the threads of the API take turns.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from specdrift.core.ticks import StoredDecision, TickRecord
from specdrift.errors import StoreError

STORE_FILE: Final = "specdrift.db"
# "spdr": tells our files from any other SQLite database.
APPLICATION_ID: Final = 0x73706472
BUSY_MILLISECONDS: Final = 5000

# MIGRATIONS[n] takes a store from version n to n + 1. Released ones never change.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE documents (name TEXT PRIMARY KEY, text TEXT NOT NULL);
    CREATE TABLE points (id INTEGER PRIMARY KEY, time REAL NOT NULL, text TEXT NOT NULL);
    CREATE INDEX points_by_time ON points (time);
    CREATE TABLE alarms (
        id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, text TEXT NOT NULL
    );
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        time REAL NOT NULL,
        decision TEXT NOT NULL,
        inputs TEXT NOT NULL
    );
    """,
)

# What SQLite says, by its error name -> what to try.
_HINTS: Final = {
    "SQLITE_FULL": "free some space; nothing stored before was lost",
    "SQLITE_IOERR": "check the disk and its free space",
    "SQLITE_READONLY": "make the file and its folder writable, or choose another state folder",
    "SQLITE_CANTOPEN": "make the file and its folder writable, or choose another state folder",
    "SQLITE_PERM": "make the file and its folder writable, or choose another state folder",
    "SQLITE_BUSY": "close the other program that has the file open",
    "SQLITE_LOCKED": "close the other program that has the file open",
    "SQLITE_NOTADB": "move the file away or choose another state folder",
    "SQLITE_CORRUPT": "restore a copy, or move the file away to start learning anew",
}


class SqliteStore:
    """A store in one file; opening it to write makes it (and its folder) when it is not there.

    Raises:
        StoreError: From every method, when the file cannot be opened, read or written; the
            sentence says what to try. A write that fails changes nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                "cannot make the folder of the store",
                where=str(path.parent),
                why=error.strerror or str(error),
                hint="choose another state folder",
            ) from error
        self._lock = _lock(path)
        try:
            self._connection = self._connect(str(path), uri=False)
            version = self._check_version(writing=True)  # before anything is changed
            with self._guarded("open the store"):
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute("PRAGMA journal_size_limit = 16777216")
            self._migrate(version)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open_read_only(cls, path: Path) -> SqliteStore:
        """Open a store to look at; never writes, also while a controller has it open.

        Raises:
            StoreError: There is no store, or it cannot be read.
        """
        if not path.exists():
            raise StoreError(
                "there is no store",
                where=str(path),
                hint="name the state folder of a controller that has run",
            )
        store = cls.__new__(cls)
        store.path, store._turn, store._lock = path, threading.RLock(), None
        address = f"{path.resolve().as_uri()}?mode=ro"
        store._connection = store._connect(address, uri=True)
        try:
            store._check_version(writing=False)
        except StoreError:
            store.close()
            if os.access(path.parent, os.W_OK) or path.with_name(f"{path.name}-wal").exists():
                raise
            # A folder that nobody can write to has no writer either, and SQLite may not make the
            # shared memory it wants there.
            store._connection = store._connect(f"{address}&immutable=1", uri=True)
            store._check_version(writing=False)
        return store

    # --- reading ------------------------------------------------------------------------------

    def document(self, name: str) -> str | None:
        """Return a named document, None when it was never written."""
        rows = self._rows("SELECT text FROM documents WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def points(self, since: float, limit: int) -> list[str]:
        """Return points newer than `since`, oldest first, at most `limit` (the newest ones)."""
        rows = self._rows(
            "SELECT text FROM points WHERE time > ? ORDER BY time DESC, id DESC LIMIT ?",
            (since, max(0, limit)),
        )
        return [str(text) for (text,) in reversed(rows)]

    def alarms(self, limit: int) -> list[tuple[int, str]]:
        """Return (id, JSON) newest first."""
        rows = self._rows("SELECT id, text FROM alarms ORDER BY id DESC LIMIT ?", (max(0, limit),))
        return [(int(number), str(text)) for number, text in rows]

    def decisions(self, limit: int) -> list[tuple[int, StoredDecision]]:
        """Return (id, decision) newest first."""
        rows = self._rows(
            "SELECT id, time, decision, inputs FROM decisions ORDER BY id DESC LIMIT ?",
            (max(0, limit),),
        )
        return [(int(number), StoredDecision(*rest)) for number, *rest in rows]

    def decision(self, number: int) -> StoredDecision | None:
        """Return the decision of that id, None when there is none."""
        rows = self._rows(
            "SELECT time, decision, inputs FROM decisions WHERE id = ?", (_as_id(number),)
        )
        return StoredDecision(*rows[0]) if rows else None

    def decision_kinds(self) -> list[tuple[str, str | None, int]]:
        """Return (kind, rung, how many) over all stored decisions."""
        rows = self._rows(
            "SELECT json_extract(decision, '$.data.kind') AS kind,"
            " json_extract(decision, '$.data.rung') AS rung, count(*) FROM decisions"
            " WHERE json_valid(decision) AND kind IS NOT NULL GROUP BY kind, rung"
            " ORDER BY kind, rung",
            (),
        )
        return [(str(kind), rung, int(count)) for kind, rung, count in rows]

    # --- writing ------------------------------------------------------------------------------

    def commit(self, record: TickRecord) -> None:
        """Write everything of one tick, or nothing of it."""
        with self._transaction() as connection:
            connection.executemany(_REPLACE, list(record.documents.items()))
            if record.point is not None:
                connection.execute(
                    "INSERT INTO points (time, text) VALUES (?, ?)", (record.time, record.point)
                )
            connection.execute("DELETE FROM points WHERE time < ?", (record.keep_points_since,))
            connection.executemany(
                "INSERT INTO alarms (time, text) VALUES (?, ?)",
                [(record.time, text) for text in record.alarms],
            )
            connection.executemany(
                "INSERT INTO decisions (time, decision, inputs) VALUES (?, ?, ?)",
                [(d.time, d.decision, d.inputs) for d in record.decisions],
            )

    def put_document(self, name: str, text: str) -> None:
        """Replace one document, outside of a tick."""
        with self._transaction() as connection:
            connection.execute(_REPLACE, (name, text))

    def close(self) -> None:
        """Close the file and let another controller have it. Closing twice is fine."""
        with self._turn:
            connection = getattr(self, "_connection", None)
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()
            if self._lock is not None:
                os.close(self._lock)  # which also gives the lock back
                self._lock = None

    # --- inside -------------------------------------------------------------------------------

    def _connect(self, address: str, *, uri: bool) -> sqlite3.Connection:
        with self._guarded("open the store"):
            connection = sqlite3.connect(
                address,
                uri=uri,
                timeout=BUSY_MILLISECONDS / 1000,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        return connection

    def _migrate(self, version: int) -> None:
        if version == len(MIGRATIONS):
            return
        with self._transaction() as connection:
            for script in MIGRATIONS[version:]:
                for statement in filter(str.strip, script.split(";")):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _check_version(self, *, writing: bool) -> int:
        """Return the version of the file's tables; 0 for a new file."""
        identity = self._rows("PRAGMA application_id", ())[0][0]
        version = int(self._rows("PRAGMA user_version", ())[0][0])
        tables = int(self._rows("SELECT count(*) FROM sqlite_master", ())[0][0])
        if identity != APPLICATION_ID and (tables or version or not writing):
            raise StoreError(
                "the file is not a specdrift store",
                where=str(self.path),
                why="it is a database of another program" if tables else "it is empty",
                hint="name the state folder of a controller that has run",
            )
        if version > len(MIGRATIONS):
            raise StoreError(
                "the store was written by a newer specdrift",
                where=str(self.path),
                why=f"its version is {version}, this specdrift knows {len(MIGRATIONS)}",
                hint="the newer specdrift, or another state folder (it starts learning anew)",
            )
        if version < len(MIGRATIONS) and not writing:
            raise StoreError(
                "the store was written by an older specdrift",
                where=str(self.path),
                why=f"its version is {version}, this specdrift reads {len(MIGRATIONS)}",
                hint="start the controller once: it brings the store up to date",
            )
        return version

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn, self._guarded("write to the store"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise

    def _rows(self, query: str, values: Sequence[object]) -> list[Any]:
        with self._turn, self._guarded("read the store"):
            return self._connection.execute(query, tuple(values)).fetchall()

    @contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as error:
            if "closed" not in str(error):
                raise
            raise StoreError("the store is closed", where=str(self.path)) from error
        except sqlite3.DatabaseError as error:
            name = getattr(error, "sqlite_errorname", "")
            family = "_".join(name.split("_")[:2])
            raise StoreError(
                f"cannot {doing}",
                where=str(self.path),
                why=str(error),
                hint=_HINTS.get(family, "another state folder"),
            ) from error


_REPLACE: Final = (
    "INSERT INTO documents (name, text) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET text = excluded.text"
)


def _as_id(number: int) -> int:
    """Return the number, or one that no row has when SQLite could not even hold it."""
    return number if 0 < number < 2**63 else -1


def _lock(path: Path) -> int | None:
    """Take the writer's lock of a store; held until the returned descriptor is closed.

    Raises:
        StoreError: Another specdrift writes to this store, or nobody can lock here.
    """
    beside = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(
            "cannot write to the folder of the store",
            where=str(beside),
            why=error.strerror or str(error),
            hint="make the folder writable, or choose another state folder",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StoreError(
            "the store is in use by another specdrift",
            where=str(path),
            why=f"process {holder} writes to it" if holder else "another process writes to it",
            hint="stop that one first, or choose another state folder",
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise StoreError(
            "cannot lock the store",
            where=str(beside),
            why=error.strerror or str(error),
            hint="free some space, or choose a state folder on a local disk",
        ) from error
    return descriptor
