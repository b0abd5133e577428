"""Entry points: `specdrift` and `kubectl specdrift`. Verbs import what they need when they run."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer

from specdrift import __version__
from specdrift.cli.breakeven import breakeven
from specdrift.cli.cost import cost
from specdrift.cli.demo import demo
from specdrift.cli.explain import explain
from specdrift.cli.replay import replay
from specdrift.cli.run import run
from specdrift.cli.simulate import CONTEXT_SETTINGS, simulate
from specdrift.cli.watch import watch
from specdrift.errors import EXIT_FAILED, EXIT_USAGE

# What commands write elsewhere (the store, records) has errors of its own.
OUTPUT_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

app = typer.Typer(
    name="specdrift",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Watch speculative decoding in LLM servers: find acceptance drift per traffic class, "
    "name its cause, and act on it when that pays.",
)
app.command()(demo)
app.command()(watch)
app.command()(replay)
app.command()(run)
app.command()(explain)
app.command()(breakeven)
app.command()(cost)
app.command(context_settings=CONTEXT_SETTINGS)(simulate)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Hold options of the whole program."""


def main() -> None:
    """Run `specdrift`."""
    # It shares a machine with an engine, and its matrices are small: threads would only spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except OSError as error:
        if error.errno not in OUTPUT_ERRORS or error.filename is not None:
            raise  # not the output: a bug, and it stays loud
        print(f"specdrift: cannot write to the output: {error.strerror}", file=sys.stderr)
        os._exit(EXIT_FAILED)  # the interpreter's own flush would fail again, with a traceback


def kubectl_main() -> None:
    """Run the kubectl plugin: it comes with the Kubernetes controller."""
    typer.echo(
        "kubectl specdrift: not in this version yet: it needs the Kubernetes controller, which is "
        "being built. Try: specdrift watch URL, or specdrift watch --prometheus URL.",
        err=True,
    )
    sys.exit(EXIT_USAGE)
