"""The API over a real socket: what it answers, to whom, and what it refuses."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from specdrift import __version__
from specdrift import conventions as names
from specdrift.adapters.store import STORE_FILE, SqliteStore
from specdrift.core.detector import Side, Signal
from specdrift.core.pipeline import AlarmRecord
from specdrift.core.ticks import StoredDecision, TickRecord
from specdrift.errors import SpecdriftError
from specdrift.service import checkpoint
from specdrift.service.api import ApiServer, create_app
from specdrift.service.views import PointView, StateView
from tests.unit.test_explain import decided

NOW = 1_700_000_000.0
TOKEN = "s3cret-ü"
STATE = StateView(
    version=__version__,
    workload="llama",
    simulated=True,
    mode="act",
    phase="standing",
    rung="off",
    config_key="eagle3:3",
    engine_state="ok",
    time=NOW - 10,
    scrape_interval=15.0,
    classes=(
        {
            "traffic_class": "code",
            "chart_phase": "alarmed",
            "baseline": 0.6,
            "acceptance": float("nan"),
            "cusum": {"drop": [1.0, 2.0, None], "rise": [0.0, 0.0, 0.0]},
            "decision_intervals": [4.0, 5.0, 6.0],
        },
    ),
    drops=(0.05, 0.1, 0.2),
    benefit={"value": 0.8, "low": 0.7, "high": 0.9, "windows": 12},
    last_decision={"time": NOW - 60, "kind": "act", "sentence": "because"},
)
ALARM = AlarmRecord(
    "code",
    "eagle3:3",
    Signal(Side.DROP, NOW - 90, NOW - 99, 0.6, 0.3, -0.3, (-0.35, -0.25)),
    "content_drift",
    ("no restart",),
    "retrain",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / STORE_FILE)
    yield store
    store.close()


Serve = Callable[..., httpx2.Client]


@pytest.fixture
def serve(store: SqliteStore) -> Iterator[Serve]:
    """Start a server over the store; returns a client for it."""
    closing: list[Any] = []

    def start(**options: Any) -> httpx2.Client:
        options.setdefault("now", lambda: NOW)
        server = ApiServer(create_app(store, **options), port=0).start()
        client = httpx2.Client(base_url=server.url, trust_env=False, timeout=10)
        closing.extend([client.close, server.stop])
        return client

    yield start
    for close in closing:
        close()


def point(time: float) -> str:
    return PointView(time=time, state="ok", rung="off", acceptance=0.1 + 0.2).model_dump_json()


def fill(store: SqliteStore) -> None:
    _, decision = decided()
    damaged = StoredDecision(NOW, '{"version":9}', "{}")
    record = TickRecord(
        NOW,
        {"state": STATE.model_dump_json()},
        alarms=(checkpoint.dump(ALARM), "damaged"),
        decisions=(decision, damaged),
    )
    store.commit(record)
    for i in range(5):
        store.commit(TickRecord(NOW + i, {}, point=point(NOW + i)))


def test_before_the_first_tick(serve: Serve) -> None:
    client = serve()
    assert client.get("/healthz").json() == {"status": "ok", "version": __version__}
    ready = client.get("/readyz")
    assert ready.status_code == 503
    assert ready.json()["reason"] == "no tick has completed yet"
    state = client.get("/api/v1/state")
    assert state.status_code == 503
    assert "no tick has completed" in state.json()["error"]
    assert client.get("/api/v1/series").json() == {"points": []}
    assert client.get("/api/v1/decisions").json() == {"decisions": []}
    assert client.get("/api/v1/alarms").json() == {"alarms": []}
    assert client.get("/api/v1/explain/1").status_code == 404
    assert "no tick has completed" in client.get("/").text
    assert samples(client)[("specdrift_build_info", ("version", __version__))] == 1


def test_everything_there_is_to_read(serve: Serve, store: SqliteStore) -> None:
    fill(store)
    client = serve()
    assert client.get("/readyz").json()["ready"] is True
    state = client.get("/api/v1/state").json()
    assert state["simulated"] is True
    assert state["classes"][0]["acceptance"] is None  # never NaN
    series = client.get("/api/v1/series", params={"since": NOW + 1, "limit": 2}).json()
    assert [p["time"] for p in series["points"]] == [NOW + 3, NOW + 4]
    assert series["points"][0]["acceptance"] == 0.1 + 0.2
    decisions = client.get("/api/v1/decisions").json()["decisions"]
    assert [(d["id"], d["kind"]) for d in decisions] == [(1, "act")]
    assert decisions[0]["alternatives"][0]["taken"] is True
    alarms = client.get("/api/v1/alarms", params={"limit": 9}).json()["alarms"]
    assert [(a["id"], a["side"], a["cause"]) for a in alarms] == [(1, "drop", "content_drift")]
    explained = client.get("/api/v1/explain/1").json()
    assert explained["identical"] is True
    assert explained["decision"]["id"] == 1
    damaged = client.get("/api/v1/explain/2")
    assert damaged.status_code == 503
    assert "decision 2" in damaged.json()["error"]
    page = client.get("/")
    assert "llama: mode act, off in force (simulated engine)" in page.text
    for path in ("/api/v1/state", "/metrics", "/openapi.json"):
        assert f'href="{path}"' in page.text
        assert client.get(path).status_code == 200


def test_fields_of_a_newer_loop_are_handed_on(serve: Serve, store: SqliteStore) -> None:
    client = serve(state_provider=lambda: json.dumps({**json.loads(text), "added": 1}))
    text = STATE.model_dump_json()
    assert client.get("/api/v1/state").json()["added"] == 1


def test_a_loop_that_stands_still_is_not_ready(serve: Serve, store: SqliteStore) -> None:
    fill(store)
    time = [STATE.time + 5 * 15.0]
    client = serve(now=lambda: time[0])
    assert client.get("/readyz").status_code == 200
    assert samples(client)[("specdrift_up", ("workload", "llama"))] == 1
    time[0] += 0.1
    late = client.get("/readyz")
    assert late.status_code == 503
    assert late.json()["reason"] == "the last tick is older than 5 scrape intervals"
    assert samples(client)[("specdrift_up", ("workload", "llama"))] == 0


def samples(client: httpx2.Client) -> dict[tuple[Any, ...], float]:
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }


def test_metrics_of_the_controller_itself(serve: Serve, store: SqliteStore) -> None:
    fill(store)
    seen = samples(serve())
    code, llama = ("traffic_class", "code"), ("workload", "llama")

    def value(name: str, *labels: tuple[str, str]) -> float | None:
        return seen.get((name, *sorted((*labels, llama))))

    assert value(names.CONTROLLER_UP) == 1
    assert value(names.CONTROLLER_STATE, code, ("state", "alarmed")) == 1
    assert value(names.CONTROLLER_STATE, code, ("state", "watching")) == 0
    assert value(names.CONTROLLER_ENGINE_STATE, ("state", "ok")) == 1
    assert value(names.CONTROLLER_CUSUM, code, ("side", "drop"), ("drop", "0.1")) == 2.0
    assert value(names.CONTROLLER_CUSUM, code, ("side", "drop"), ("drop", "0.2")) is None
    assert value(names.CONTROLLER_DECISION_INTERVAL, code, ("drop", "0.2")) == 6.0
    assert value(names.CONTROLLER_BASELINE, code) == 0.6
    assert value(names.CONTROLLER_LAST_TICK) == STATE.time
    assert value(names.CONTROLLER_LAST_DECISION) == NOW - 60
    assert value(names.CONTROLLER_SPEEDUP, ("bound", "low")) == 0.7
    assert value(names.CONTROLLER_BREAK_EVEN) is None  # not known: no sample
    assert value(names.CONTROLLER_ACTIONS, ("outcome", "started"), ("rung", "off")) == 1


def test_every_own_series_has_its_name_in_conventions(serve: Serve, store: SqliteStore) -> None:
    fill(store)
    known = {v for k, v in vars(names).items() if k.startswith("CONTROLLER_")}
    assert {name for name, *_ in samples(serve())} <= known


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/series?since=nan", 422),
        ("/api/v1/series?limit=0", 422),
        ("/api/v1/decisions?limit=many", 422),
        ("/api/v1/explain/one", 422),
        (f"/api/v1/explain/{10**30}", 404),
        ("/api/v1/nothing", 404),
        ("/docs", 404),
    ],
)
def test_what_is_asked_wrongly_gets_one_sentence(serve: Serve, path: str, status: int) -> None:
    answer = serve().get(path)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]


def test_a_store_that_fails_is_said(serve: Serve, store: SqliteStore) -> None:
    client = serve()
    store.close()
    answer = client.get("/api/v1/series")
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("the store is closed")
    assert client.get("/healthz").status_code == 200


# --- who may do what --------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, ""])
def test_write_routes_do_not_exist_without_a_token(serve: Serve, token: str | None) -> None:
    client = serve(token=token)
    for path in ("mode", "pause", "resume"):
        answer = client.post(f"/api/v1/{path}", json={}, headers={"Authorization": "Bearer x"})
        assert answer.status_code == 404
        assert f"/api/v1/{path}" not in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    "given",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer wrong",
        b"Basic s3cret",
        b"Bearer \xff\xfe",
        b"s3cret",
    ],
)
def test_write_routes_want_the_token(serve: Serve, store: SqliteStore, given: bytes | None) -> None:
    client = serve(token=TOKEN)
    headers = [] if given is None else [(b"authorization", given)]
    answer = client.post("/api/v1/mode", json={"mode": "act"}, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert list(answer.json()) == ["error"]
    assert store.document("override") is None


def test_mode_and_pause_are_kept_for_the_loop(serve: Serve, store: SqliteStore) -> None:
    client = serve(token=TOKEN)
    headers = [(b"authorization", b"Bearer " + TOKEN.encode())]

    def post(path: str, body: object = None) -> object:
        answer = client.post(f"/api/v1/{path}", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        text = store.document("override")
        assert text is not None
        assert json.loads(text) == answer.json()
        return answer.json()

    assert post("mode", {"mode": "recommend"}) == {"mode": "recommend", "paused": False}
    assert post("pause") == {"mode": "recommend", "paused": True}
    assert post("mode", {"mode": None}) == {"mode": None, "paused": True}
    assert post("resume") == {"mode": None, "paused": False}
    for bad in ({"mode": "reckless"}, {"mode": "act", "more": 1}, {}, [], "act"):
        answer = client.post("/api/v1/mode", json=bad, headers=headers)
        assert answer.status_code == 422, bad
    assert client.get("/api/v1/mode").status_code == 405
    assert store.document("override") == '{"mode":null,"paused":false}'
    store.put_document("override", "damaged")
    assert client.post("/api/v1/pause", headers=headers).status_code == 503
    assert store.document("override") == "damaged"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_other_host_names_are_refused(serve: Serve, host: str) -> None:
    client = serve(token=TOKEN)
    for path in ("/", "/api/v1/state", "/metrics"):
        answer = client.get(path, headers={"Host": host})
        assert answer.status_code == 400
        assert "loopback names only" in answer.json()["error"]


@pytest.mark.parametrize("host", ["localhost:1", "LOCALHOST", "127.0.0.1", "[::1]:9470"])
def test_loopback_names_are_answered(serve: Serve, host: str) -> None:
    assert serve().get("/healthz", headers={"Host": host}).status_code == 200


def test_any_name_where_that_was_asked_for(serve: Serve) -> None:
    client = serve(allowed_hosts=None)
    assert client.get("/healthz", headers={"Host": "specdrift.serving"}).status_code == 200


def test_large_bodies_are_refused(serve: Serve, store: SqliteStore) -> None:
    client = serve(token=TOKEN)
    headers = [(b"authorization", b"Bearer " + TOKEN.encode())]
    answer = client.post("/api/v1/mode", content=b"x" * 20_000, headers=headers)
    assert answer.status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 1024

    assert client.post("/api/v1/mode", content=endless(), headers=headers).status_code == 413
    assert store.document("override") is None


# --- the server -------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_one_sentence(store: SqliteStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SpecdriftError) as caught:
            ApiServer(create_app(store), port=port)
    assert str(caught.value) == (
        f"cannot serve the API (127.0.0.1:{port}): the port is taken. "
        "Try: another --port (0 takes any free one)"
    )


@pytest.mark.parametrize(
    ("host", "port"), [("no.such.host.invalid", 0), ("192.0.2.1", 0), ("::1", -1)]
)
def test_an_address_that_is_not_ours(store: SqliteStore, host: str, port: int) -> None:
    with pytest.raises(SpecdriftError, match="cannot serve the API"):
        ApiServer(create_app(store), host=host, port=port)


def test_stopping_gives_the_port_and_the_thread_back(store: SqliteStore) -> None:
    before = threading.active_count()
    server = ApiServer(create_app(store), port=0)
    with server:
        assert httpx2.get(f"{server.url}/healthz", trust_env=False).status_code == 200
    server.stop()
    assert [t.name for t in threading.enumerate() if t.name == "specdrift-api"] == []
    assert threading.active_count() <= before + 1
    with socket.create_server(("127.0.0.1", server.port)):
        pass
    ApiServer(create_app(store), port=0).stop()  # never started


def test_a_loop_that_writes_while_many_read(serve: Serve, store: SqliteStore) -> None:
    fill(store)
    client = serve()
    failures: list[object] = []

    def read() -> None:
        for path in ("state", "series", "decisions", "alarms", "explain/1") * 6:
            answer = client.get(f"/api/v1/{path}")
            if answer.status_code != 200:
                failures.append(answer.text)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(60):
        state = STATE.model_copy(update={"time": NOW + i}).model_dump_json()
        store.commit(TickRecord(NOW + i, {"state": state}, point=point(NOW + i)))
    for thread in threads:
        thread.join()
    assert failures == []
