"""`specdrift run POLICY`: the loop over one workload, with its API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdrift.conventions import LOOPBACK, PORT_API


def run(
    policy: Annotated[Path, typer.Argument(help="Policy file (kind SpecDecodePolicy).")],
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Where the store lives. [env SPECDRIFT_STATE_DIR; ./specdrift-state]"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address of the API.")] = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API.")] = PORT_API,
    ticks: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many ticks (for scripts).")
    ] = None,
) -> None:
    """Watch one workload by its policy: observe, recommend, or act on a local process.

    Killing it loses nothing: started again, it goes on where it was. The engine process goes on
    meanwhile. Exit codes: 0 stopped as asked, 1 failed, 2 usage.
    """
    import signal
    import threading

    from specdrift.cli.failures import exit_on_failure

    with exit_on_failure("run"):
        from specdrift.config import Settings, load_policy
        from specdrift.service.api import LOOPBACK_HOSTS, ApiServer, create_app
        from specdrift.service.build import LogNarrator, build, run_ticks

        settings = Settings()
        parts = build(load_policy(policy), state_dir or settings.state_dir, LogNarrator())
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        hosts = LOOPBACK_HOSTS if host in LOOPBACK_HOSTS else None
        app = create_app(parts.store, token=settings.api_token, allowed_hosts=hosts)
        api = ApiServer(app, host=host, port=port)
        left = [ticks if ticks is not None else -1]

        def step() -> None:
            parts.controller.tick()
            left[0] -= 1
            if left[0] == 0:
                stop.set()

        try:
            api.start()
            typer.echo(f"specdrift: API at {api.url}", err=True)
            interval = parts.controller.policy.spec.detector.scrape_interval
            parts.controller.adopt()
            run_ticks(step, interval, stop.is_set)
        finally:
            api.stop()
            parts.close()
            pid = parts.process.pid if parts.process is not None else None
            if pid is not None:
                typer.echo(f"specdrift: stopped; the engine goes on as process {pid}", err=True)
