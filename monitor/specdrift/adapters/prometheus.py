"""A fleet as a Prometheus sees it: one row per workload and traffic class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from specdrift.errors import TargetError, TargetUnreachable, UsageError

DEFAULT_WINDOW: Final = 300.0
DEFAULT_TIMEOUT: Final = 10.0
_LOOPBACKS: Final = ("127.0.0.1", "localhost", "::1")
_BY: Final = "namespace, job, model_name"
_LABELS: Final = ("namespace", "job", "model_name", "traffic_class")

Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One workload, or one traffic class of it (`traffic_class` is "" for the whole).

    Attributes:
        acceptance: Accepted per draft tokens in the window, 0 to 1.
        time_per_output_token_seconds: Mean over requests that finished in the window.
        age_seconds: Age of the newest sample Prometheus has.
        state: "ok", "no_traffic", "no_drafts", "speculation_off" or "not_enough_data".
    """

    namespace: str
    job: str
    model_name: str
    traffic_class: str
    state: str
    acceptance: float | None = None
    drafts_per_second: float | None = None
    tokens_per_second: float | None = None
    running: float | None = None
    waiting: float | None = None
    time_per_output_token_seconds: float | None = None
    age_seconds: float | None = None


def _engine_series(name: str) -> str:
    """Return a selector for a vLLM series in any spelling (Ray's prefix, `_total` left out)."""
    return f'{{__name__=~"(ray_)?vllm[:_]{name}"}}'


def engine_queries(window: float) -> dict[str, str]:
    """Return the queries over whole workloads, by the fact they answer."""
    span = f"[{max(1, round(window))}s]"
    tokens = _engine_series("generation_tokens(_total)?")
    drafts = _engine_series("spec_decode_num_drafts(_total)?")

    def rate(selector: str) -> str:
        return f"sum by ({_BY}) (rate({selector}{span}))"

    return {
        "present": f"count by ({_BY}) ({tokens})",
        "speculating": f"count by ({_BY}) ({drafts})",
        "age": f"min by ({_BY}) (time() - timestamp({tokens}))",
        "accepted": rate(_engine_series("spec_decode_num_accepted_tokens(_total)?")),
        "draft_tokens": rate(_engine_series("spec_decode_num_draft_tokens(_total)?")),
        "drafts": rate(drafts),
        "tokens": rate(tokens),
        "running": f"sum by ({_BY}) ({_engine_series('num_requests_running')})",
        "waiting": f"sum by ({_BY}) ({_engine_series('num_requests_waiting')})",
        "tpot_sum": rate(_engine_series("request_time_per_output_token_seconds_sum")),
        "tpot_count": rate(_engine_series("request_time_per_output_token_seconds_count")),
    }


def class_queries(window: float, prefix: str) -> dict[str, str]:
    """Return the queries over traffic classes; `prefix` is the exporter's or the tap's."""
    span = f"[{max(1, round(window))}s]"
    by = f"{_BY}, traffic_class"

    def rate(name: str) -> str:
        return f"sum by ({by}) (rate({prefix}{name}{span}))"

    drafts = f"{prefix}spec_drafts_total"
    return {
        "present": f"count by ({by}) ({drafts})",
        "speculating": f"count by ({by}) ({drafts})",
        "age": f"min by ({by}) (time() - timestamp({drafts}))",
        "accepted": rate("spec_accepted_tokens_total"),
        "draft_tokens": rate("spec_draft_tokens_total"),
        "drafts": rate("spec_drafts_total"),
        "tokens": rate("output_tokens_total"),
        "tpot_sum": rate("time_per_output_token_seconds_sum"),
        "tpot_count": rate("time_per_output_token_seconds_count"),
    }


class PrometheusSource:
    """Asks one Prometheus.

    Args:
        url: Its base address.
        timeout: Seconds for each query.
    """

    def __init__(self, url: str, timeout: float = DEFAULT_TIMEOUT) -> None:
        import requests
        from prometheus_api_client import PrometheusConnect
        from urllib3.util.retry import Retry

        address = url.strip().rstrip("/")
        if "://" not in address:
            address = f"http://{address}"
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url!r} is no address of a Prometheus", hint="http://127.0.0.1:9090")
        self.url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        session = requests.Session()
        # A proxy of the environment is for the world outside, never for this machine.
        session.trust_env = parts.hostname not in _LOOPBACKS
        self._timeout = timeout
        self._client = PrometheusConnect(
            url=address,
            session=session,
            retry=Retry(total=0),
            timeout=timeout,
        )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def rows(self, window: float = DEFAULT_WINDOW) -> list[WorkloadRow]:
        """Return one row per workload and per class of it, worst acceptance first.

        Classes come from the exporter's series, else from the tap's own, never from both.

        Raises:
            TargetUnreachable: Prometheus does not answer, or not in time.
            TargetError: The address is no Prometheus, or it refused a query.
        """
        rows = self._table(engine_queries(window))
        exported = self._table(class_queries(window, "specdrift_"))
        known = {(row.namespace, row.model_name) for row in exported}
        tapped = [
            row
            for row in self._table(class_queries(window, "specdrift_tap_"))
            if (row.namespace, row.model_name) not in known
        ]
        return sorted((*rows, *exported, *tapped), key=_worst_first)

    def _table(self, queries: Mapping[str, str]) -> list[WorkloadRow]:
        facts = {"present": self._values(queries["present"])}
        if not facts["present"]:
            return []
        facts |= {name: self._values(query) for name, query in queries.items() if name != "present"}
        return [
            _row(key, {name: values.get(key) for name, values in facts.items()})
            for key in facts["present"]
        ]

    def _values(self, query: str) -> dict[Key, float]:
        """Return a query's answer by namespace, job, model name and class."""
        import requests
        from prometheus_api_client.exceptions import PrometheusApiClientException

        try:
            result = self._client.custom_query(query)
            return {
                _key(entry["metric"]): value
                for entry in result
                if math.isfinite(value := float(entry["value"][1]))
            }
        except requests.Timeout as error:
            raise TargetUnreachable(
                "cannot ask Prometheus",
                where=self.url,
                why=f"no answer within {self._timeout:g} s",
                hint="a longer --timeout, or a shorter --window",
            ) from error
        except PrometheusApiClientException as error:
            raise TargetError(
                "Prometheus refused a query",
                where=self.url,
                why=str(error),
                hint="whether this is the base address of a Prometheus",
            ) from error
        except (requests.JSONDecodeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise TargetError(
                "this is no Prometheus",
                where=self.url,
                why="its answer to a query is not Prometheus's",
                hint="the base address of a Prometheus, such as http://127.0.0.1:9090",
            ) from error
        except requests.RequestException as error:
            refused = "refused" in str(error)
            raise TargetUnreachable(
                "cannot ask Prometheus",
                where=self.url,
                why="connection refused" if refused else f"no connection ({type(error).__name__})",
                hint="whether it runs there, and its port",
            ) from error


def _key(metric: Mapping[str, Any]) -> Key:
    namespace, job, model, traffic_class = (str(metric.get(label, "")) for label in _LABELS)
    return namespace, job, model, traffic_class


def _row(key: Key, facts: Mapping[str, float | None]) -> WorkloadRow:
    accepted, draft_tokens = facts["accepted"], facts["draft_tokens"]
    acceptance = None
    if accepted is not None and draft_tokens:
        acceptance = accepted / draft_tokens
    tokens = facts["tokens"]
    if not facts["speculating"]:
        state = "speculation_off"
    elif draft_tokens is None:
        state = "not_enough_data"
    elif acceptance is not None:
        state = "ok"
    else:
        state = "no_drafts" if tokens else "no_traffic"
    seconds, count = facts["tpot_sum"], facts["tpot_count"]
    return WorkloadRow(
        *key,
        state=state,
        acceptance=acceptance,
        drafts_per_second=facts["drafts"],
        tokens_per_second=tokens,
        running=facts.get("running"),
        waiting=facts.get("waiting"),
        time_per_output_token_seconds=seconds / count if seconds is not None and count else None,
        age_seconds=facts["age"],
    )


def _worst_first(row: WorkloadRow) -> tuple[bool, float, Key]:
    acceptance = row.acceptance
    key = (row.namespace, row.job, row.model_name, row.traffic_class)
    return acceptance is None, acceptance if acceptance is not None else 0.0, key
