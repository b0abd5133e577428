"""What GPU hours and API tokens cost: figures with their date, source and whether they are sure.

The figures are data (data/prices.yaml, read by config.py). Prices differ several-fold between
vendors and move monthly: every output that uses one names it, and a policy's `dollarsPerGpuHour`
overrides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GpuPrice:
    """Dollars per GPU and hour, on demand; None where no dated quote was found."""

    name: str
    dollars_per_hour: float | None
    read: str = ""
    source: str = ""
    verified: bool = False


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """Dollars per million tokens of a hosted model; None where no public price was found.

    Attributes:
        nearest: The documented model to look at instead, where this one's price is not public.
    """

    name: str
    input: float | None
    output: float | None
    cached_input: float | None = None
    read: str = ""
    source: str = ""
    verified: bool = False
    nearest: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All known prices, by name."""

    gpus: Mapping[str, GpuPrice] = field(default_factory=dict)
    apis: Mapping[str, ApiPrice] = field(default_factory=dict)

    def gpu(self, name: str) -> GpuPrice | None:
        """Return a GPU's price whatever the case of its name; None for one not listed."""
        wanted = name.casefold()
        return next((g for n, g in self.gpus.items() if n.casefold() == wanted), None)


@dataclass(frozen=True, slots=True)
class Price:
    """The price in force for a workload, or None and the reason why it is not known.

    Attributes:
        source: Where it comes from, with its date.
        verified: False where the source is not sure; a policy's own figure counts as sure.
    """

    dollars_per_gpu_hour: float | None
    source: str = ""
    verified: bool = True
    unknown_because: str | None = None


def price_in_force(catalogue: Catalogue, gpu: str | None, override: float | None) -> Price:
    """Return what a GPU hour costs: the policy's own figure, else the catalogue's."""
    if override is not None:
        return Price(override, "the policy's cost.dollarsPerGpuHour")
    if gpu is None:
        return Price(None, unknown_because="the policy names neither cost.gpu nor a price")
    found = catalogue.gpu(gpu)
    if found is None:
        return Price(None, unknown_because=f"{gpu} is not in the price catalogue")
    if found.dollars_per_hour is None:
        why = f"no price of {found.name} is known ({found.source}); set cost.dollarsPerGpuHour"
        return Price(None, found.source, False, why)
    return Price(found.dollars_per_hour, f"{found.source}, {found.read}", found.verified)
