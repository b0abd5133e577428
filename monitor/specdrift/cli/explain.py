"""`specdrift explain`: run a stored decision again, and say what was weighed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(
    decision: Annotated[
        int | None,
        typer.Argument(min=1, help="The decision's number; default: the newest.", metavar="NUMBER"),
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="The controller's state folder.", metavar="DIR")
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on one line.")
    ] = False,
) -> None:
    """Explain a decision: its evidence, the alternatives, and whether it comes out the same again.

    Exit codes: 0 the same inputs give the same decision, 1 they do not or the store cannot be
    read, 2 usage, 4 nothing was decided yet.
    """
    from specdrift.cli.failures import exit_on_failure

    with exit_on_failure("explain"):
        code = _run(decision, state_dir, json_output)
    raise typer.Exit(code)


def _run(number: int | None, state_dir: Path | None, json_output: bool) -> int:
    import sys

    from specdrift.adapters.store import STORE_FILE, SqliteStore
    from specdrift.config import Settings
    from specdrift.errors import EXIT_FAILED, EXIT_OK, EXIT_UNKNOWN, UsageError
    from specdrift.service.explain import explain as run_again
    from specdrift.service.views import ExplanationView

    path = (state_dir or Settings().state_dir) / STORE_FILE
    store = SqliteStore.open_read_only(path)
    try:
        newest = store.decisions(1)
        if not newest:
            print(f"specdrift explain: nothing was decided yet ({path})", file=sys.stderr)
            return EXIT_UNKNOWN
        last, stored = newest[0]
        chosen = store.decision(number) if number is not None else stored
    finally:
        store.close()
    if chosen is None:
        raise UsageError(
            f"there is no decision {number}", where=str(path), hint=f"a number from 1 to {last}"
        )
    shown = number if number is not None else last
    found = run_again(chosen, where=f"decision {shown} in {path}")
    if json_output:
        print(ExplanationView.of(shown, found).model_dump_json())
        return EXIT_OK if found.identical else EXIT_FAILED
    print(f"Decision {shown} of {last}")
    for line in found.lines:
        print(line)
    if found.identical:
        print("Run again from its stored inputs: the same decision.")
        return EXIT_OK
    print("Run again from its stored inputs, it differs:")
    for difference in found.differences:
        print(f"  {difference}")
    return EXIT_FAILED
