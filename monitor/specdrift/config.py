"""Policy, settings and prices: the only reader of the environment, policy and price files.

One pydantic model stands behind the policy file and the custom resource (design, section 5).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_settings import BaseSettings, SettingsConfigDict
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from specdrift import conventions as names
from specdrift.core.detector import DetectorConfig
from specdrift.core.policy import LOWER_K, OFF, Mode, Rules, Rung, WhenUnknown
from specdrift.core.prices import ApiPrice, Catalogue, GpuPrice, Price, price_in_force
from specdrift.core.specconfig import NGRAM_PRESET
from specdrift.durations import parse_duration
from specdrift.errors import PolicyError, UsageError


def _seconds(value: object) -> object:
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except UsageError as error:
            raise ValueError(str(error)) from error
    return value


def _positive(value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError("must be positive and finite")
    return value


Seconds = Annotated[
    float,
    BeforeValidator(_seconds, json_schema_input_type=float | str),
    AfterValidator(_positive),
]
Share = Annotated[float, Field(ge=0, le=1)]


class Model(BaseModel):
    """Base of every policy part: camelCase in files, unknown keys refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


class TargetRef(Model):
    """The workload: a Kubernetes object, or a process that specdrift supervises."""

    kind: str
    api_version: str | None = None
    name: str | None = None
    container: str | None = None
    command: tuple[str, ...] | None = None
    health_url: str | None = None
    environment: Mapping[str, str] = {}
    stop_grace: Seconds = 60.0

    @model_validator(mode="after")
    def _complete(self) -> TargetRef:
        if self.kind == "LocalProcess":
            if not self.command:
                raise ValueError("kind LocalProcess needs command")
            if not self.health_url:
                raise ValueError("kind LocalProcess needs healthUrl")
        elif not self.name:
            raise ValueError(f"kind {self.kind} needs name")
        return self


class PrometheusSource(Model):
    """Windows from a Prometheus."""

    url: str
    matchers: Mapping[str, str] = {}


class DirectSource(Model):
    """Windows straight from metrics pages."""

    urls: tuple[str, ...] = ()
    selector: Mapping[str, str] | None = None
    port: int | None = None
    path: str = "/metrics"


class SourceRef(Model):
    """Exactly one of prometheus and direct."""

    prometheus: PrometheusSource | None = None
    direct: DirectSource | None = None

    @model_validator(mode="after")
    def _one(self) -> SourceRef:
        if (self.prometheus is None) == (self.direct is None):
            raise ValueError("give exactly one of prometheus and direct")
        return self


class Detector(Model):
    """What operators know: how often a false page is bearable, how small a drop matters."""

    false_alarm_interval: Seconds = 30 * 86400.0
    smallest_drop: Annotated[float, Field(gt=0, lt=1)] = 0.05
    scrape_interval: Seconds = 15.0
    phase_one: Seconds = 86400.0


class Floor(Model):
    """Applies until break-even has been measured; never learned."""

    acceptance: Share = 0.55
    action: Literal["recommend", "act"] = "recommend"


class RungSpec(Model):
    """One allowed configuration: a preset by name, or a config of its own."""

    name: str
    speculative_config: Mapping[str, Any] | None = None
    classes: tuple[str, ...] = ()
    route: Mapping[str, str] | None = None

    @model_validator(mode="after")
    def _known(self) -> RungSpec:
        preset = self.name in (LOWER_K, OFF, "ngram")
        if not preset and self.speculative_config is None and self.route is None:
            raise ValueError(
                f"rung {self.name!r} is no preset (lower-k, ngram, off): "
                "it needs speculativeConfig or route"
            )
        if preset and self.speculative_config is not None:
            raise ValueError(f"rung {self.name!r} is a preset and takes no speculativeConfig")
        return self


class OutputCheck(Model):
    """Compare outputs before a change of method is trusted; may be switched off with a reason."""

    url: str | None = None
    prompts_from: Mapping[str, str] | None = None
    max_divergence: Literal["sameAsAA"] | Share = "sameAsAA"
    disabled_because: str | None = None


class Safety(Model):
    """Limits on patches and restarts."""

    cooldown: Seconds = 3600.0
    actions_per_day: Annotated[int, Field(ge=0)] = 4
    min_gain: Share = 0.05
    rollout_timeout: Seconds = 1200.0
    maintenance_windows: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _possible(self) -> Safety:
        for window in self.maintenance_windows:
            parse_maintenance_window(window)
        return self


class Recovery(Model):
    """When to try the original again."""

    probe_after: Seconds = 1800.0
    max_backoff: Seconds = 86400.0

    @model_validator(mode="after")
    def _ordered(self) -> Recovery:
        if self.max_backoff < self.probe_after:
            raise ValueError("maxBackoff is shorter than probeAfter")
        return self


class Cost(Model):
    """What the hardware costs; dollars per GPU and hour override the catalogue."""

    gpu: str | None = None
    gpus: Annotated[float, Field(gt=0)] = 1
    dollars_per_gpu_hour: Annotated[float, Field(ge=0)] | None = None

    @property
    def price(self) -> Price:
        """What a GPU hour costs here, or why that is not known."""
        listed = self.gpu is not None and self.dollars_per_gpu_hour is None
        catalogue = prices() if listed else Catalogue()
        return price_in_force(catalogue, self.gpu, self.dollars_per_gpu_hour)


class Live(Model):
    """Steering inside the running engine (comes with the tap)."""

    enabled: bool = True
    exploration: Share | None = None
    persist_after: Seconds = 86400.0


class PolicySpec(Model):
    """What one workload's watcher may see and do."""

    target_ref: TargetRef | None = None
    source: SourceRef
    mode: Mode = Mode.OBSERVE
    classes: tuple[str, ...] = ()
    detector: Detector = Detector()
    floor: Floor | None = Floor()
    when_benefit_unknown: WhenUnknown = WhenUnknown.RECOMMEND
    rungs: tuple[RungSpec, ...] = (RungSpec(name=LOWER_K), RungSpec(name=OFF))
    output_check: OutputCheck | None = None
    live: Live = Live()
    safety: Safety = Safety()
    recovery: Recovery = Recovery()
    cost: Cost = Cost()

    @model_validator(mode="after")
    def _consistent(self) -> PolicySpec:
        listed = [r.name for r in self.rungs]
        twice = {n for n in listed if listed.count(n) > 1}
        if twice:
            raise ValueError(f"rungs: {min(twice)!r} is listed twice")
        if self.mode is Mode.ACT and self.target_ref is None:
            raise ValueError("mode act needs targetRef: there is nothing to act on")
        if self.mode is Mode.ACT and self.safety.actions_per_day == 0:
            raise ValueError("mode act with actionsPerDay 0 can never act: use recommend")
        return self


class Metadata(Model):
    """Name and namespace; what else Kubernetes keeps here is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    namespace: str = "default"
    annotations: Mapping[str, str] = {}


class Policy(Model):
    """A SpecDecodePolicy document."""

    api_version: Literal["specdrift.dev/v1alpha1"]
    kind: Literal["SpecDecodePolicy"]
    metadata: Metadata
    spec: PolicySpec

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        asked = self.metadata.annotations.get(names.ANNOTATION_MODE)
        if asked is not None and asked not in [m.value for m in Mode]:
            raise ValueError(
                f"annotation {names.ANNOTATION_MODE}: {asked!r} is none of "
                + ", ".join(m.value for m in Mode)
            )
        if self.mode is Mode.ACT and self.spec.target_ref is None:
            raise ValueError("mode act needs targetRef: there is nothing to act on")
        return self

    @property
    def mode(self) -> Mode:
        """The mode in force: the annotation overrides the spec."""
        return Mode(self.metadata.annotations.get(names.ANNOTATION_MODE, self.spec.mode))

    def detector_config(self, charts: int) -> DetectorConfig:
        """Return the detector's settings when `charts` classes share the budget."""
        d = self.spec.detector
        return DetectorConfig(
            d.false_alarm_interval, d.smallest_drop, d.phase_one, d.scrape_interval, charts
        )

    def rules(self) -> Rules:
        """Return the policy in the units of the core."""
        s = self.spec
        check = s.output_check
        return Rules(
            mode=self.mode,
            rungs=tuple(Rung(r.name, _rung_settings(r)) for r in s.rungs if r.route is None),
            when_unknown=s.when_benefit_unknown,
            output_check_disabled_because=check.disabled_because if check else None,
            floor=s.floor.acceptance if s.floor else None,
            floor_acts=s.floor is not None and s.floor.action == "act",
            smallest_drop=s.detector.smallest_drop,
            min_gain=s.safety.min_gain,
            cooldown=s.safety.cooldown,
            actions_per_day=s.safety.actions_per_day,
            maintenance_only=tuple(
                parse_maintenance_window(w) for w in s.safety.maintenance_windows
            ),
            rollout_timeout=s.safety.rollout_timeout,
            probe_after=s.recovery.probe_after,
            max_backoff=s.recovery.max_backoff,
            scrape_interval=s.detector.scrape_interval,
        )


def _rung_settings(rung: RungSpec) -> Mapping[str, object] | None:
    return dict(NGRAM_PRESET.settings) if rung.name == "ngram" else rung.speculative_config


def parse_maintenance_window(text: str) -> tuple[float, float]:
    """Return (start, end) in seconds of the UTC day from "HH:MM-HH:MM".

    Raises:
        ValueError: If the text is anything else.
    """
    match = re.fullmatch(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})", text.strip())
    if not match:
        raise ValueError(f"maintenanceWindows: {text!r} is not HH:MM-HH:MM (UTC)")
    h0, m0, h1, m1 = (int(g) for g in match.groups())
    start, end = h0 * 3600.0 + m0 * 60.0, h1 * 3600.0 + m1 * 60.0
    if start >= 86400 or end > 86400 or m0 > 59 or m1 > 59:
        raise ValueError(f"maintenanceWindows: {text!r} has no such time of day")
    return start, end


def load_policy(path: Path) -> Policy:
    """Read a policy file (YAML or JSON).

    Raises:
        PolicyError: Naming the file and the field, or why the file cannot be read.
    """
    try:
        document = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(
            "cannot read the policy", where=str(path), why=error.strerror or str(error)
        ) from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise PolicyError(
            "the policy is not valid YAML", where=str(path), why=str(error)
        ) from error
    return parse_policy(document, where=str(path))


def parse_policy(document: object, *, where: str) -> Policy:
    """Validate a policy document.

    Raises:
        PolicyError: Naming the first field that is wrong.
    """
    try:
        policy = Policy.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "document"
        message = str(first["msg"]).removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = "no such field"
        raise PolicyError(
            "the policy is not valid",
            where=f"{where}, field {place}",
            why=message,
            hint="compare with the example in the README",
        ) from error
    cost = policy.spec.cost
    if cost.gpu is not None and cost.dollars_per_gpu_hour is None:
        known = prices()
        if known.gpu(cost.gpu) is None:
            raise PolicyError(
                "the policy is not valid",
                where=f"{where}, field spec.cost.gpu",
                why=f"no GPU {cost.gpu!r} in the price catalogue",
                hint=f"one of {', '.join(known.gpus)}, or set cost.dollarsPerGpuHour",
            )
    return policy


# --- prices -----------------------------------------------------------------------------------

_Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Entry(Model):
    read: str = ""
    source: str = ""
    verified: bool = False


class _GpuEntry(_Entry):
    dollars_per_hour: _Dollars | None


class _ApiEntry(_Entry):
    input: _Dollars | None
    output: _Dollars | None
    cached_input: _Dollars | None = None
    nearest: str | None = None
    note: str = ""


class _PriceFile(Model):
    gpus: Mapping[str, _GpuEntry] = {}
    apis: Mapping[str, _ApiEntry] = {}


PRICES_FILE = Path(__file__).parent / "data" / "prices.yaml"


def prices(override: Path | None = None) -> Catalogue:
    """Return the price catalogue: the one shipped, with the file of SPECDRIFT_PRICES over it.

    Args:
        override: The file to use instead of the one SPECDRIFT_PRICES names.

    Raises:
        UsageError: That file cannot be read, or has a field that is wrong.
    """
    own = override or Settings().prices
    shipped = _read_prices(PRICES_FILE)
    if own is None:
        return shipped
    added = _read_prices(own)
    return Catalogue({**shipped.gpus, **added.gpus}, {**shipped.apis, **added.apis})


# Read once: a file that changes under a running loop must not stop it.
@lru_cache(maxsize=8)
def _read_prices(path: Path) -> Catalogue:
    where = f"{path}"
    try:
        document = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
        read = _PriceFile.model_validate(document)
    except OSError as error:
        raise UsageError(
            "cannot read the price file",
            where=where,
            why=error.strerror or str(error),
            hint="the path of a file like the shipped prices.yaml in SPECDRIFT_PRICES",
        ) from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise UsageError("the price file is not valid YAML", where=where, why=str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "document"
        raise UsageError(
            "the price file is not valid", where=f"{where}, field {place}", why=str(first["msg"])
        ) from error
    return Catalogue(
        {
            name: GpuPrice(name, e.dollars_per_hour, e.read, e.source, e.verified)
            for name, e in read.gpus.items()
        },
        {
            name: ApiPrice(
                name=name,
                input=e.input,
                output=e.output,
                cached_input=e.cached_input,
                read=e.read,
                source=e.source,
                verified=e.verified,
                nearest=e.nearest,
                note=e.note,
            )
            for name, e in read.apis.items()
        },
    )


class Settings(BaseSettings):
    """Settings of the process, from the environment (prefix SPECDRIFT_).

    Attributes:
        api_token: Bearer token for the API's write routes; without it they do not exist.
        state_dir: Where the store lives.
        log_level: Of the service's own log.
        prices: A price file, merged over the one shipped.
    """

    model_config = SettingsConfigDict(env_prefix="SPECDRIFT_", extra="ignore")

    api_token: str | None = None
    state_dir: Path = Path("specdrift-state")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    prices: Path | None = None
