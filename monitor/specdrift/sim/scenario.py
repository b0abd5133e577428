"""Scenario files: what a simulated engine serves, how fast it is, and what happens to it.

The models below are the file format; `scenario_schema()` publishes it as JSON Schema. Seconds are
seconds of scenario time: zero is the moment the engine first serves with speculation.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from specdrift.errors import ScenarioError, clip

if TYPE_CHECKING:
    from specdrift.sim.resolved import ResolvedScenario

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0)]
ByMethod = dict[str, Fraction]
EVERY_CLASS = "*"
_SUFFIXES = (".yaml", ".yml", ".json")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepTime(_Model):
    """T(B, K) = base + per_token * B * (K + 1) + K * (draft + draft_and_request * B), seconds."""

    base_seconds: float = Field(gt=0, description="A step's memory-bound floor, in seconds.")
    per_token_seconds: float = Field(ge=0, description="Per token verified or decoded in a step.")
    prefill_seconds_per_token: float = Field(default=4e-6, ge=0, description="Per prompt token.")
    draft_seconds_per_token: dict[str, Seconds] = Field(
        default_factory=dict, description="By method: fixed seconds per draft position and step."
    )
    draft_seconds_per_token_and_request: dict[str, Seconds] = Field(
        default_factory=dict, description="By method: seconds per draft position and request."
    )
    noise: float = Field(default=0.02, ge=0, le=0.5, description="Relative sd of a step's time.")


class EngineSpec(_Model):
    """The engine that is simulated."""

    version: str = Field(default="0.32.0", description="vLLM version; shown as VERSION+simulated.")
    model: str = "simulated-llama"
    max_num_seqs: int = Field(default=128, ge=1, le=1024)
    max_model_len: int = Field(default=8192, ge=16)
    startup_seconds: Seconds = Field(default=2.0, description="From start to serving.")
    speculative_config: dict[str, JsonValue] | None = Field(
        default=None, description="As found at first; the demo puts it on the command line."
    )
    step_time: StepTime


class Lengths(_Model):
    """A log-normal number of tokens, cut at `max`."""

    mean: float = Field(ge=1)
    sigma: float = Field(default=0.4, ge=0, le=2, description="Sd of the logarithm.")
    max: int = Field(default=1024, ge=1)


class TrafficClass(_Model):
    """One traffic class as it is at the start."""

    arrivals_per_second: float = Field(ge=0)
    output_tokens: Lengths
    prompt_tokens: Lengths = Lengths(mean=200.0, sigma=0.3, max=2048)
    acceptance: ByMethod = Field(
        description="By method: probability that a draft token is accepted when all before it "
        "in the draft were; the acceptance rate at K is (a + ... + a^K) / K."
    )
    between_requests_sd: float = Field(
        default=0.06, ge=0, le=0.3, description="Sd of a request's own probability (beta)."
    )
    coverage: Fraction = Field(
        default=0.8, description="Share of steps in which prompt-lookup methods propose a draft."
    )


class _Event(_Model):
    at: Seconds = Field(description="Seconds of scenario time, before the seed's shift.")


class AcceptanceEvent(_Event):
    """Content drift: requests of a class that arrive from now on are easier or harder to draft."""

    type: Literal["acceptance"]
    traffic_class: str = Field(alias="class")
    to: ByMethod
    over_seconds: Seconds = Field(default=0.0, description="Length of the linear ramp.")


class LoadEvent(_Event):
    """Arrivals of a class (`*`: of all) become `factor` times those of the start."""

    type: Literal["load"]
    traffic_class: str = Field(default=EVERY_CLASS, alias="class")
    factor: float = Field(ge=0)
    over_seconds: Seconds = 0.0


class ArrivalsEvent(_Event):
    """Arrivals of a class move to a new rate: several of these are a change of mix."""

    type: Literal["arrivals", "mix"]
    traffic_class: str = Field(alias="class")
    arrivals_per_second: float = Field(ge=0)
    over_seconds: Seconds = 0.0


class RestartEvent(_Event):
    """The engine restarts: requests are lost, counters start at zero."""

    type: Literal["restart"]
    down_seconds: Seconds | None = Field(default=None, description="Default: startup_seconds.")
    acceptance: dict[str, ByMethod] = Field(
        default_factory=dict,
        description="By class and method: values after it, e.g. a worse draft.",
    )
    version: str | None = Field(default=None, description="The engine version after it.")


Event = Annotated[
    AcceptanceEvent | LoadEvent | ArrivalsEvent | RestartEvent, Field(discriminator="type")
]
Range = tuple[float, float]


class Vary(_Model):
    """What a seed draws, uniformly: [low, high]."""

    onset_seconds: Range = Field(default=(0.0, 0.0), description="Shift of all event times.")
    size: Range = Field(
        default=(1.0, 1.0),
        description="Factor on the distance between an acceptance event's target and the start.",
    )
    load: Range = Field(default=(1.0, 1.0), description="Factor on all arrivals.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for name in ("onset_seconds", "size", "load"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise ValueError(f"{name}: needs 0 <= low <= high")
        return self


class Expect(_Model):
    """How the story must end. What is left out is not checked."""

    action: bool | None = Field(default=None, description="Whether the controller acts.")
    alarm: bool | None = Field(default=None, description="Whether acceptance drift is alarmed.")
    alarm_class: str | None = None
    causes: list[str] | None = Field(default=None, description="Allowed causes.")
    rungs: list[str] | None = Field(default=None, description="Allowed first rungs.")
    verified: bool | None = None
    undone: bool | None = None
    recovered: bool | None = None


class Scenario(_Model):
    """One story: an engine, its traffic, what happens, and what should come of it."""

    version: Literal[1]
    name: str = Field(min_length=1)
    description: str = ""
    seed: int = Field(default=0, ge=0)
    time_scale: float = Field(default=1.0, gt=0, description="Scenario seconds per wall second.")
    duration_seconds: float = Field(gt=0, description="Scenario seconds the story may take.")
    engine: EngineSpec
    classes: dict[str, TrafficClass] = Field(min_length=1, max_length=16)
    events: list[Event] = Field(default_factory=list)
    vary: Vary = Vary()
    policy: dict[str, Any] = Field(default_factory=dict, description="Overrides of a policy spec.")
    expect: Expect = Expect()

    @model_validator(mode="after")
    def _known_classes(self) -> Self:
        for index, event in enumerate(self.events):
            named = (
                set(event.acceptance) if isinstance(event, RestartEvent) else {event.traffic_class}
            )
            if not isinstance(event, RestartEvent | AcceptanceEvent | ArrivalsEvent):
                named -= {EVERY_CLASS}
            unknown = sorted(named - set(self.classes))
            if unknown:
                raise ValueError(f"events.{index}: unknown class {unknown[0]!r}")
        return self

    def resolve(self, seed: int | None = None) -> ResolvedScenario:
        """Draw what the seed varies; None takes the scenario's own seed."""
        from specdrift.sim.resolved import ResolvedScenario

        return ResolvedScenario(self, self.seed if seed is None else seed)


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file."""
    schema = Scenario.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "specdrift scenario"
    return schema


def shipped_scenarios() -> list[str]:
    """Return the names of the scenarios that come with specdrift, sorted."""
    folder = resources.files("specdrift.sim") / "scenarios"
    return sorted(
        item.name[: -len(".yaml")] for item in folder.iterdir() if item.name.endswith(".yaml")
    )


def load_scenario(name_or_path: str | Path) -> Scenario:
    """Load a shipped scenario by name, or any scenario file (YAML or JSON).

    Raises:
        ScenarioError: Not found, not readable, or not valid; names the field.
    """
    text = str(name_or_path)
    if text in shipped_scenarios():
        source = resources.files("specdrift.sim") / "scenarios" / f"{text}.yaml"
        return parse_scenario(source.read_text("utf-8"), where=text)
    path = Path(text)
    try:
        content = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise ScenarioError(
            "no such scenario",
            where=text,
            hint="a file, or one of " + ", ".join(shipped_scenarios()),
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "not a text file"
        raise ScenarioError("cannot read the scenario file", where=text, why=why) from error
    return parse_scenario(content, where=text)


def parse_scenario(content: str, *, where: str) -> Scenario:
    """Read a scenario from YAML or JSON text.

    Raises:
        ScenarioError: Not valid; names the field. `where` is the file's name in that sentence.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = YAML(typ="safe", pure=True).load(content)
    except (YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        why = getattr(error, "problem", None) or clip(str(error), 80)
        raise ScenarioError(
            "the scenario file is not valid YAML", where=where + line, why=why
        ) from error
    if not isinstance(data, dict):
        raise ScenarioError("the scenario file is empty or not a mapping", where=where)
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise _named(error, where) from error


def _named(error: ValidationError, where: str) -> ScenarioError:
    """Return one sentence about the first thing that is wrong."""
    first = error.errors(include_url=False)[0]
    kinds = {"acceptance", "load", "arrivals", "mix", "restart"}
    parts = [str(part) for part in first["loc"]]
    field = ".".join(
        p for i, p in enumerate(parts) if not (p in kinds and i == 2 and parts[0] == "events")
    )
    if first["type"] == "extra_forbidden":
        return ScenarioError(f"unknown key {field!r} in the scenario", where=where)
    why = first["msg"].removeprefix("Value error, ")
    what = f"the scenario field {field!r} is not valid" if field else "the scenario is not valid"
    return ScenarioError(what, where=where, why=why)
