"""Prometheus text exposition -> samples, in one pass over the wanted families only.

For the wanted families the values are those of `prometheus_client.parser`, at a fraction of its
cost: a name is judged once per page, the lines of unwanted names are skipped unread, and the
ordinary spelling of a line is taken apart by one regular expression. Everything unusual (escapes,
blanks, quoted names) goes through a slower, complete path.

Names stay as written on the page. Exemplars and timestamps are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

from specdrift.core.engines.model import Sample
from specdrift.errors import NotAnExposition, clip

Wanted = Callable[[str], bool] | Collection[str] | None
_Labels = tuple[dict[str, str], frozenset[tuple[str, str]]]

_TYPE_LINE: Final = re.compile(r"^[ \t]*#[ \t]+TYPE[ \t]+\S", re.MULTILINE)
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
# The ordinary spelling of a label block and of a value: no escapes, no blanks, nothing behind.
_PLAIN: Final = re.compile(
    r'\{[a-zA-Z_][a-zA-Z0-9_]*="[^"\\]*"(?:,[a-zA-Z_][a-zA-Z0-9_]*="[^"\\]*")*\}'
)
_PAIR: Final = re.compile(r'([a-zA-Z0-9_]+)="([^"]*)"')
_ESCAPE: Final = re.compile(r'\\[\\n"]')
_ESCAPED: Final = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}
# One label of the slow path: a name or a quoted name, "=", and a quoted value; or a quoted name.
_QUOTED: Final = r'"((?:[^"\\]|\\.)*)"'
_TERM: Final = re.compile(
    rf"\s*(?:(?P<label>[^\s\"=,{{}}]+)|{_QUOTED})\s*(?:=\s*{_QUOTED}\s*)?(?=[,}}])", re.DOTALL
)
_TRY: Final = "an address whose /metrics page is a Prometheus text exposition"


def parse_exposition(body: str | bytes, wanted: Wanted = None, *, where: str = "") -> list[Sample]:
    """Return the samples of the wanted families, in the order of the page.

    Args:
        body: The page.
        wanted: Which metric names to return, as spelled on the page (`x_total`, `x_bucket`): a
            predicate, or prefixes. None is everything. A predicate is asked once per name.
        where: The address or file, for the error's sentence.

    Raises:
        NotAnExposition: The body is empty, HTML or JSON, has no `# TYPE` line, is cut off, has a
            malformed line, or gives one series twice.
    """
    text = _checked_text(body, where)
    keep = _predicate(wanted)
    known: dict[str, bool] = {}
    blocks: dict[str, _Labels] = {}
    samples: list[Sample] = []
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    lines = text.split("\n")
    for line in lines:
        if line[:1] == "#":
            continue
        brace = line.find("{")
        name = line[:brace] if brace > 0 else line.partition(" ")[0]
        verdict = known.get(name)
        if verdict is None and _NAME.match(name):
            verdict = known[name] = keep(name)
        if verdict is False:
            continue
        try:
            plain = _plain(line, brace, blocks) if verdict and brace > 0 else None
            if plain:
                labels, identity, value = plain
            else:
                stripped = line.strip()
                if not stripped or stripped[0] == "#":
                    continue
                name, labels, value = _parse_line(stripped)
                if not keep(name):
                    continue
                identity = frozenset(labels.items())
        except ValueError:
            raise _malformed(line, lines, where) from None
        before = len(seen)
        seen.add((name, identity))
        if len(seen) == before:
            raise NotAnExposition(
                "the metrics page gives one series twice",
                where=where,
                why=f"duplicate series {series_name(name, labels)}",
                hint="scraping the engine directly, without anything that joins pages",
            )
        samples.append(Sample(name, labels, value))
    return samples


def _plain(
    line: str, brace: int, blocks: dict[str, _Labels]
) -> tuple[dict[str, str], frozenset[tuple[str, str]], float] | None:
    """Parse the ordinary spelling, or return None for the complete parser.

    `blocks` remembers the label blocks of this page that were found whole. A block that is known
    ends where it ended before, so the value can be read without looking at the labels again.
    """
    close = line.find("} ", brace)
    block = line[brace:close]
    known = blocks.get(block)
    if known is None:
        match = _PLAIN.match(line, brace)
        if not match or match.end() != close + 1:
            return None
        labels = dict(_PAIR.findall(block))
        if len(labels) != block.count('="'):
            return None
        known = blocks[block] = labels, frozenset(labels.items())
    rest = line[close + 2 :]
    try:
        return (*known, float(rest)) if "_" not in rest else None
    except ValueError:
        return None


def series_name(name: str, labels: dict[str, str]) -> str:
    """Return `name{label="value"}` for a person."""
    inner = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name


def _checked_text(body: str | bytes, where: str) -> str:
    """Return the body as text once it looks like a complete exposition."""
    if isinstance(body, bytes):
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotAnExposition(
                "the page is no Prometheus exposition",
                where=where,
                why=f"not UTF-8 text ({error.reason} at byte {error.start})",
                hint=_TRY,
            ) from error
    else:
        text = body
    start = text[:64].lstrip("\ufeff \t\r\n")
    if not text.strip():
        why = "the body is empty"
    elif start[:1] == "<":
        why = "this is an HTML page"
    elif not _TYPE_LINE.search(text):
        json_like = start[:1] in ("{", "[") or start[:1] == '"'
        why = "this is JSON" if json_like else "it has no '# TYPE' line"
    elif not text.endswith("\n") and text.rpartition("\n")[2].strip() != "# EOF":
        raise NotAnExposition(
            "the metrics page is cut off",
            where=where,
            why=f"the last line has no end: {clip(text.rpartition(chr(10))[2], 80)!r}",
            hint="again; if it stays so, look at proxies and size limits on the way",
        )
    else:
        return text.removeprefix("\ufeff")
    raise NotAnExposition("the page is no Prometheus exposition", where=where, why=why, hint=_TRY)


def _predicate(wanted: Wanted) -> Callable[[str], bool]:
    if wanted is None:
        return lambda name: True
    if callable(wanted):
        return wanted
    prefixes = tuple(wanted)
    return lambda name: name.startswith(prefixes)


def _malformed(line: str, lines: list[str], where: str) -> NotAnExposition:
    return NotAnExposition(
        "the metrics page has a malformed line",
        where=where,
        why=f"line {lines.index(line) + 1}: {clip(line, 80)!r}",
        hint="again; if it stays so, the page was damaged or cut on the way",
    )


def _parse_line(line: str) -> tuple[str, dict[str, str], float]:
    """Parse one sample line in any spelling.

    Raises:
        ValueError: The line is malformed.
    """
    brace = line.find("{")
    if brace == -1 or " # " in line[:brace]:
        name, rest = line.split(None, 1)
        labels: dict[str, str] = {}
    else:
        name = line[:brace].strip()
        labels, end = _parse_labels(line, brace + 1)
        rest = line[end:]
        if not name:
            name = labels.pop("__name__", "")
            if not name:
                raise ValueError("a series without a name")
            return name, labels, _parse_value(rest)
        if "__name__" in labels:
            raise ValueError("two names")
    if not _NAME.match(name):
        raise ValueError("bad metric name")
    return name, labels, _parse_value(rest)


def _parse_labels(line: str, at: int) -> tuple[dict[str, str], int]:
    """Return the labels that start at `at`, and the place after the closing brace."""
    labels: dict[str, str] = {}
    expect_term = True
    while True:
        while at < len(line) and line[at].isspace():
            at += 1
        mark = line[at : at + 1]
        if mark == "}":
            return labels, at + 1
        if mark == ",":
            at += 1
            expect_term = True
            continue
        term = _TERM.match(line, at)
        if not mark or not term or not expect_term:
            raise ValueError("bad labels")
        bare, quoted, value = term["label"], term[2], term[3]
        if value is None:
            if bare is not None:
                raise ValueError("a label without a value")
            key, value = "__name__", quoted
        elif bare is not None:
            if not _LABEL_NAME.match(bare):
                raise ValueError("bad label name")
            key = bare
        else:
            key = _unescape(quoted)
        if key in labels:
            raise ValueError("duplicate label")
        labels[key] = _unescape(value)
        at = term.end()
        expect_term = False


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED[match.group(0)], text)


def _parse_value(rest: str) -> float:
    """Return the value in `value [timestamp] [# exemplar]`."""
    words = rest.partition(" # ")[0].split()
    if not 1 <= len(words) <= 2 or "_" in rest.partition(" # ")[0]:
        raise ValueError("no value, or more than a value and a timestamp")
    if len(words) == 2:
        float(words[1])
    return float(words[0])
