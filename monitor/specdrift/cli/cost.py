"""`specdrift cost`: dollars per million output tokens of a server, beside hosted models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from specdrift.core.prices import ApiPrice, Catalogue, GpuPrice


def cost(
    dollars_per_hour: Annotated[
        float | None, typer.Option(help="Dollars per GPU and hour; default: the catalogue's.")
    ] = None,
    gpus: Annotated[float, typer.Option(help="GPUs of the server.")] = 1,
    tokens_per_second: Annotated[
        float | None, typer.Option(help="Output tokens per second of the whole server.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="GPU in the price catalogue: H100-SXM, ...")
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on one line; numbers not rounded.")
    ] = False,
) -> None:
    """Tell dollars per million output tokens, beside what hosted models cost.

    Prices are dated; SPECDRIFT_PRICES names a file that is merged over the catalogue.

    Exit codes: 0 told, 2 usage.
    """
    import json

    from specdrift.cli.failures import exit_on_failure

    with exit_on_failure("cost"):
        from specdrift.cli.numbers import positive
        from specdrift.config import prices
        from specdrift.core.economics import cost_per_million_tokens
        from specdrift.errors import UsageError

        positive("--dollars-per-hour", dollars_per_hour)
        positive("--gpus", gpus)
        positive("--tokens-per-second", tokens_per_second)
        if tokens_per_second is None:
            raise UsageError(
                "--tokens-per-second is missing",
                hint="output tokens per second of the whole server: --tokens-per-second 3600",
            )
        catalogue = prices()
        listed = _listed(catalogue, gpu)
        price = dollars_per_hour
        if price is None:
            price = _price(catalogue, gpu, listed)
        each = cost_per_million_tokens(price, gpus, tokens_per_second)
        assert each is not None  # tokens_per_second is positive
    document: dict[str, Any] = {
        "dollars_per_million_output_tokens": each,
        "dollars_per_gpu_hour": price,
        "gpus": gpus,
        "dollars_per_hour": price * gpus,
        "tokens_per_second": tokens_per_second,
        "gpu": _gpu_row(listed),
        "apis": [_api_row(api, each) for api in catalogue.apis.values()],
    }
    if json_output:
        typer.echo(json.dumps(document, allow_nan=False))
        return
    for line in as_lines(document, catalogue.apis, own_price=dollars_per_hour is not None):
        typer.echo(line)


def _listed(catalogue: Catalogue, gpu: str | None) -> GpuPrice | None:
    from specdrift.errors import UsageError

    if gpu is None:
        return None
    listed = catalogue.gpu(gpu)
    if listed is None:
        raise UsageError(
            "--gpu is not in the price catalogue",
            where=gpu,
            hint=f"one of {', '.join(catalogue.gpus)}, or --dollars-per-hour without --gpu",
        )
    return listed


def _price(catalogue: Catalogue, gpu: str | None, listed: GpuPrice | None) -> float:
    from specdrift.errors import UsageError

    if listed is None:
        raise UsageError(
            "--dollars-per-hour is missing",
            hint=f"--dollars-per-hour 2.01, or --gpu with one of {', '.join(catalogue.gpus)}",
        )
    if listed.dollars_per_hour is None:
        raise UsageError(
            "the price of this --gpu is not known",
            where=f"{gpu}",
            why=listed.source,
            hint="--dollars-per-hour with what you pay",
        )
    return listed.dollars_per_hour


def _gpu_row(gpu: GpuPrice | None) -> dict[str, Any] | None:
    if gpu is None:
        return None
    return {
        "name": gpu.name,
        "catalogue_dollars_per_hour": gpu.dollars_per_hour,
        "read": gpu.read,
        "source": gpu.source,
        "verified": gpu.verified,
    }


def _api_row(api: ApiPrice, own: float) -> dict[str, Any]:
    return {
        "name": api.name,
        "dollars_per_million_input_tokens": api.input,
        "dollars_per_million_cached_input_tokens": api.cached_input,
        "dollars_per_million_output_tokens": api.output,
        "times_own_cost": api.output / own if api.output is not None else None,
        "read": api.read,
        "source": api.source,
        "verified": api.verified,
        "nearest": api.nearest,
        "note": api.note,
    }


def as_lines(
    document: Mapping[str, Any], apis: Mapping[str, ApiPrice], *, own_price: bool
) -> list[str]:
    """Return the answer as lines for a person."""
    own, gpu = document["dollars_per_million_output_tokens"], document["gpu"]
    price = f"${document['dollars_per_gpu_hour']:.2f} per GPU and hour"
    if gpu is not None:
        told = gpu["catalogue_dollars_per_hour"]
        source = f"{gpu['source']}, read {gpu['read']}"
        known = f"${told:.2f}" if told is not None else "no price"
        price += f" for {gpu['name']}"
        price += f" (catalogue: {known}; {source})" if own_price else f" ({source})"
    lines = [
        f"${own:.3f} per million output tokens",
        f"  {price}",
        f"  {document['gpus']:g} x GPU, {document['tokens_per_second']:g} output tokens per second",
        "",
        "Hosted models, dollars per million tokens (their tokenizers count differently):",
        f"  {'':<20} {'output':>7} {'input':>7} {'cached':>7}  output / yours",
    ]
    for api in apis.values():
        if api.output is None:
            text = f"no public price found (unverified, {api.source})"
            near = f"; nearest: {api.nearest}" if api.nearest else ""
            lines.append(f"  {api.name:<20} {text}{near}")
            continue
        lines.append(
            f"  {api.name:<20} {api.output:>7.2f} {_dollars(api.input):>7} "
            f"{_dollars(api.cached_input):>7}  {api.output / own:>13.1f}x  {_about(api)}"
        )
    return lines


def _dollars(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _about(api: ApiPrice) -> str:
    about = [f"read {api.read}"] if api.read else []
    about += [] if api.verified else ["unverified"]
    about += [api.note] if api.note else []
    return ", ".join(about)
