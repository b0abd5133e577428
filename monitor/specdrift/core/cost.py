"""What a workload's GPUs cost per token, by class and by method: a ledger that slowly forgets.

A class's cost is its share of request-steps x GPU-hours (rejected and bonus tokens included: they
took the steps). *Busy* counts only time in which at least one request ran, *billed* all time,
restarts and nights too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from specdrift.core.economics import StepTimes, cost_per_million_tokens, dollars_per_hour_gained
from specdrift.core.windows import Window, WindowState

MEMORY_SECONDS = 3600.0
TOTAL = ""
BUSY = "busy"
BILLED = "billed"
BASES = (BUSY, BILLED)
_UNKNOWN_TIME = (WindowState.FIRST, WindowState.DOWN, WindowState.CLOCK_WENT_BACK)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one class (or all of them) used in one configuration.

    Attributes:
        seconds: All time; `busy_seconds`: of it, with at least one request running.
        tokens: Output tokens.
        step_seconds: Request-step seconds in windows where T(B, 0) was known.
        plain_seconds: What the tokens of the same windows would have taken without speculation.
    """

    seconds: float = 0.0
    busy_seconds: float = 0.0
    tokens: float = 0.0
    request_steps: float = 0.0
    step_seconds: float = 0.0
    plain_seconds: float = 0.0

    def plus(self, other: Usage, keep: float) -> Usage:
        """Return the sum with `other`, this one faded to `keep` of itself."""
        return Usage(
            self.seconds * keep + other.seconds,
            self.busy_seconds * keep + other.busy_seconds,
            self.tokens * keep + other.tokens,
            self.request_steps * keep + other.request_steps,
            self.step_seconds * keep + other.step_seconds,
            self.plain_seconds * keep + other.plain_seconds,
        )

    @property
    def speedup(self) -> float | None:
        """Time without speculation over time with it; None where T(B, 0) was never known."""
        return self.plain_seconds / self.step_seconds if self.step_seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Ledger:
    """Usage by config key and class; class "" is all of them. `until`: accounted so far."""

    usage: Mapping[str, Mapping[str, Usage]] = field(default_factory=dict)
    until: float | None = None


@dataclass(frozen=True, slots=True)
class CostShare:
    """One class's or method's cost on one basis; numbers that are not known are None.

    Attributes:
        share: Its share of request-steps (a method's: of time).
        dollars_per_hour: What it takes of the GPUs' price in an hour of that basis.
        dollars_per_hour_gained: Saved in such an hour because of speculation (negative: lost).
    """

    name: str
    basis: str
    share: float | None
    dollars_per_million_tokens: float | None
    dollars_per_hour: float | None
    dollars_per_hour_gained: float | None


def account(
    ledger: Ledger, windows: Sequence[Window], key: str, reference: StepTimes, *, off: bool
) -> Ledger:
    """Return the ledger with one tick's windows (one per instance) of configuration `key`.

    A window after an outage reaches back to the last good scrape: that time is billed with it.
    """
    if any(w.state is WindowState.CLOCK_WENT_BACK for w in windows):
        return Ledger(ledger.usage, max(w.end for w in windows))
    counted = [w for w in windows if w.state not in _UNKNOWN_TIME and w.seconds > 0]
    if not counted:
        return ledger
    begin = min(w.start for w in counted)
    end = max(w.end for w in counted)
    seconds = end - (begin if ledger.until is None else max(begin, ledger.until))
    if seconds <= 0:
        return ledger
    busy = seconds * sum(_busy_share(w) for w in counted) / len(counted)
    news: dict[str, Usage] = {}
    for window in counted:
        for name, used in _usage(window, reference, off=off).items():
            news[name] = news.get(name, Usage()).plus(used, 1.0)
    total = news.get(TOTAL, Usage())
    news[TOTAL] = total.plus(Usage(seconds=seconds, busy_seconds=busy), 1.0)
    keep = math.exp(-seconds / MEMORY_SECONDS)
    former = ledger.usage.get(key, {})
    usage = {
        name: former.get(name, Usage()).plus(news.get(name, Usage()), keep)
        for name in {**former, **news}
    }
    return Ledger({**ledger.usage, key: usage}, end)


def _busy_share(window: Window) -> float:
    """Return the share of a window in which at least one request ran."""
    steps, request_steps = window.steps, window.request_steps
    if steps and request_steps and window.request_step_seconds:
        return min(1.0, steps * window.request_step_seconds / request_steps / window.seconds)
    return float(bool(window.generation_tokens) or bool(window.running))


def _usage(window: Window, reference: StepTimes, *, off: bool) -> dict[str, Usage]:
    """Return one window's tokens and steps, all of them and by class; time is not in it."""
    steps = window.request_steps or 0.0
    tokens = window.generation_tokens or 0.0
    running = window.mean_running
    base = reference.at(running) if running and not off else None
    step = (window.request_step_seconds or 0.0) / steps if steps > 0 else 0.0
    known = base is not None and step > 0
    found = {
        TOTAL: Usage(
            tokens=tokens,
            request_steps=steps,
            step_seconds=step * steps if known else 0.0,
            plain_seconds=(
                (base or 0.0) * max(0.0, tokens - (window.first_tokens or 0.0)) if known else 0.0
            ),
        )
    }
    accepted: dict[str, float] = {}
    for one in window.by_class:
        old = accepted.get(one.traffic_class, 0.0)
        accepted[one.traffic_class] = old + one.spec.accepted_tokens
    for name, count in window.class_request_steps.items():
        found[name] = Usage(
            tokens=window.class_output_tokens.get(name, 0.0),
            request_steps=count,
            step_seconds=step * count if known else 0.0,
            # Every request-step gives a token, and what was accepted on top of it.
            plain_seconds=(base or 0.0) * (count + accepted.get(name, 0.0)) if known else 0.0,
        )
    return found


def totals(
    ledger: Ledger, key: str, dollars_per_gpu_hour: float, gpus: float, *, off: bool
) -> tuple[CostShare, ...]:
    """Return the cost of all traffic in configuration `key`, busy and billed."""
    used = ledger.usage.get(key, {}).get(TOTAL, Usage())
    return tuple(_shares("all", used, used, dollars_per_gpu_hour * gpus, 1.0, off=off))


def by_class(
    ledger: Ledger, key: str, dollars_per_gpu_hour: float, gpus: float, default: str, *, off: bool
) -> tuple[CostShare, ...]:
    """Return each class's cost in configuration `key`, busy and billed.

    Where no class is known, all traffic is the one class `default`.
    """
    usage = ledger.usage.get(key, {})
    every = usage.get(TOTAL, Usage())
    named = {name: used for name, used in usage.items() if name != TOTAL}
    steps = sum(used.request_steps for used in named.values())
    if not named:
        named, steps = {default: every}, every.request_steps
    found: list[CostShare] = []
    for name, used in sorted(named.items()):
        share = used.request_steps / steps if steps > 0 else None
        found += _shares(name, used, every, dollars_per_gpu_hour * gpus, share, off=off)
    return tuple(found)


def by_method(
    ledger: Ledger, dollars_per_gpu_hour: float, gpus: float, off_key: str
) -> tuple[CostShare, ...]:
    """Return the cost of all traffic in each configuration that was in force."""
    every = sum(u.get(TOTAL, Usage()).seconds for u in ledger.usage.values())
    found: list[CostShare] = []
    for key, usage in sorted(ledger.usage.items()):
        used = usage.get(TOTAL, Usage())
        share = used.seconds / every if every > 0 else None
        price = dollars_per_gpu_hour * gpus
        shares = _shares(key, used, used, price, 1.0, off=key == off_key)
        found += [replace(one, share=share) for one in shares]
    return tuple(found)


def _shares(
    name: str, used: Usage, every: Usage, price: float, share: float | None, *, off: bool
) -> list[CostShare]:
    speed = 1.0 if off else used.speedup
    # A person pays for all hours; in those without a request, speculation gains nothing.
    busy_part = every.busy_seconds / every.seconds if every.seconds > 0 else None
    found = []
    for basis, seconds, part in (
        (BUSY, every.busy_seconds, 1.0),
        (BILLED, every.seconds, busy_part),
    ):
        cost = gained = None
        if share is not None and seconds > 0:
            cost = cost_per_million_tokens(price * share, 1.0, used.tokens / seconds)
        if share is not None and speed is not None and part is not None:
            gained = dollars_per_hour_gained(price * share, part, speed)
        hour = price * share if share is not None else None
        found.append(CostShare(name, basis, share, cost, hour, gained))
    return found


def busy_share(ledger: Ledger, key: str) -> float | None:
    """Return the share of time in which at least one request ran in configuration `key`."""
    used = ledger.usage.get(key, {}).get(TOTAL, Usage())
    return used.busy_seconds / used.seconds if used.seconds > 0 else None
