"""What a GPU hour costs, as data: each figure with its date and where it was read.

Spot and contract prices differ several-fold and move monthly: every output that uses one names
it, and a policy's `dollarsPerGpuHour` overrides it. Nothing is fetched at run time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuPrice:
    """Dollars per GPU and hour, on demand; None where no dated quote was found."""

    dollars_per_hour: float | None
    read: str
    source: str


GPU_PRICES = {
    "H100-SXM": GpuPrice(3.99, "2026-11-09", "RunPod Secure; third-party transcription"),
    "H100-PCIe": GpuPrice(2.89, "2026-11-09", "RunPod Secure; third-party transcription"),
    "H200": GpuPrice(4.59, "2026-10-07", "RunPod Secure; third-party transcription"),
    "A100": GpuPrice(1.79, "2026-11-09", "RunPod Secure; third-party transcription"),
    "L40S": GpuPrice(1.09, "2026-11-09", "RunPod Secure; third-party transcription"),
    "B200": GpuPrice(6.79, "2026-10-07", "RunPod Secure; third-party transcription"),
    "A30": GpuPrice(None, "", "no dated quote found"),
}


def gpu_dollars_per_hour(gpu: str | None, override: float | None) -> float | None:
    """Return the price to use, or None when it is not known."""
    if override is not None:
        return override
    price = GPU_PRICES.get(gpu or "")
    return price.dollars_per_hour if price else None
