"""Write the committed schemas, or check them: `python -m specdrift.cli.schemas [--check]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from specdrift.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE


def files() -> dict[str, str]:
    """Return the name and the text of every committed schema."""
    from specdrift.service.schemas import documents
    from specdrift.sim.scenario import scenario_schema

    every = {**documents(), "scenario.json": scenario_schema()}
    return {
        name: json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        for name, document in sorted(every.items())
    }


def stale(folder: Path) -> list[str]:
    """Return a line for every file in the folder that is not what the code says."""
    wanted = files()
    lines = []
    for name, text in wanted.items():
        path = folder / name
        if not path.exists():
            lines.append(f"{path} is missing")
        elif path.read_text(encoding="utf-8") != text:
            lines.append(f"{path} is out of date")
    lines += [f"{path} is no schema" for path in folder.glob("*") if path.name not in wanted]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m specdrift.cli.schemas", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--folder", type=Path, help="default: schemas/ of the checkout")
    options = parser.parse_args(arguments)
    root = Path(__file__).parents[3]
    if options.folder is None and not (root / "pyproject.toml").exists():
        print("schemas: not run from a checkout. Try: --folder DIR", file=sys.stderr)
        return EXIT_USAGE
    folder = options.folder or root / "schemas"
    if options.check:
        lines = stale(folder)
        for line in lines:
            print(f"schemas: {line}. Try: make schemas", file=sys.stderr)
        return EXIT_FAILED if lines else EXIT_OK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files().items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"schemas: cannot write to {folder}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
