"""Requests and answers of the OpenAI-style endpoints, shaped as vLLM shapes them.

The texts are filler that says it is simulated; only counts and timings mean something.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from specdrift.errors import clip
from specdrift.sim.traffic import SimulatedRequest, TokenEvent

FINGERPRINT: Final = "vllm-{version}-simulated"
_WORDS: Final = (" This", " is", " simulated", " text", " of", " no", " meaning", ";")
_CHAT_TEMPLATE_TOKENS: Final = 8
_CHARACTERS_PER_TOKEN: Final = 4
_COMPLETION_MAX_TOKENS: Final = 16
_MAX_CHOICES: Final = 64
_MAX_BODY_ID: Final = 64


class ApiError(Exception):
    """An answer with an OpenAI-style error body.

    Args:
        status: HTTP status.
        message: What is wrong, for a person.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        kinds = {404: "NotFoundError", 503: "ServiceUnavailableError"}
        kind = kinds.get(self.status, "BadRequestError")
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": None,
                "code": self.status,
            }
        }


@dataclass(frozen=True)
class Asked:
    """A request after checking.

    Args:
        chat: Whether it came to /v1/chat/completions.
        prompt_tokens: One estimate per prompt.
        max_tokens: Limit of each answer; None leaves it to the class.
        n: Answers per prompt.
    """

    chat: bool
    prompt_tokens: tuple[int, ...]
    max_tokens: int | None
    n: int
    stream: bool
    include_usage: bool
    ignore_eos: bool

    @property
    def choices(self) -> int:
        """Return the number of answers."""
        return self.n * len(self.prompt_tokens)


def parse_request(raw: bytes, *, chat: bool, model: str, max_model_len: int) -> Asked:
    """Check a request's body.

    Raises:
        ApiError: 400 or 404 with the reason.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not valid JSON: {clip(str(error), 80)}") from error
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object")
    wanted = body.get("model")
    if wanted is not None and wanted != model:
        raise ApiError(404, f"The model `{clip(str(wanted), 60)}` does not exist.")
    prompts = _chat_tokens(body) if chat else _prompt_tokens(body)
    limit = _number(body, "max_completion_tokens") if chat else None
    limit = limit or _number(body, "max_tokens")
    if limit is None and not chat:
        limit = _COMPLETION_MAX_TOKENS
    longest = max(prompts)
    if longest >= max_model_len or (limit is not None and longest + limit > max_model_len):
        raise ApiError(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, you "
            f"requested {limit or 1} output tokens and your prompt contains {longest} input "
            "tokens.",
        )
    stream = _flag(body, "stream")
    options = body.get("stream_options")
    if options is not None and not stream:
        raise ApiError(400, "Stream options can only be defined when `stream=True`.")
    if options is not None and not isinstance(options, dict):
        raise ApiError(400, "stream_options must be an object")
    n = _number(body, "n") or 1
    if n * len(prompts) > _MAX_CHOICES:
        raise ApiError(400, f"at most {_MAX_CHOICES} answers per request")
    include_usage = isinstance(options, dict) and options.get("include_usage") is True
    return Asked(chat, prompts, limit, n, stream, include_usage, _flag(body, "ignore_eos"))


def _number(body: Mapping[str, Any], key: str) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ApiError(400, f"{key} must be a whole number of at least 1")
    return value


def _flag(body: Mapping[str, Any], key: str) -> bool:
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise ApiError(400, f"{key} must be true or false")
    return bool(value)


def _estimate(text: str) -> int:
    return max(1, len(text) // _CHARACTERS_PER_TOKEN)


def _chat_tokens(body: Mapping[str, Any]) -> tuple[int, ...]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages must be a non-empty list")
    total = 0
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ApiError(400, "each message must be an object with a role")
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        for part in parts:
            text = part.get("text") if isinstance(part, dict) else part
            total += _estimate(text) if isinstance(text, str) else 0
        total += _CHAT_TEMPLATE_TOKENS
    return (total,)


def _prompt_tokens(body: Mapping[str, Any]) -> tuple[int, ...]:
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return (_estimate(prompt),)
    if isinstance(prompt, list) and prompt:
        if all(isinstance(part, int) for part in prompt):
            return (len(prompt),)
        if all(isinstance(part, str) for part in prompt):
            return tuple(_estimate(part) for part in prompt)
        if all(isinstance(part, list) and part for part in prompt):
            return tuple(len(part) for part in prompt)
    raise ApiError(400, "prompt must be a string, a list of strings or a list of token ids")


def request_id(chat: bool, header: str | None) -> str:
    """Return the id of an answer: the client's X-Request-Id is part of it, as in vLLM."""
    own = header[:_MAX_BODY_ID] if header else uuid.uuid4().hex[:16]
    return f"{'chatcmpl' if chat else 'cmpl'}-{own}"


def words(start: int, count: int) -> str:
    """Return `count` filler tokens, continuing after `start` of them."""
    text = "".join(_WORDS[i % len(_WORDS)] for i in range(start, start + count))
    return text if start else text.lstrip()


@dataclass
class Progress:
    """What one answer has got so far."""

    request: SimulatedRequest | None = None
    tokens: int = 0
    finished_reason: str | None = None
    per_step_accepted: list[int] = field(default_factory=list)
    per_step_drafted: list[int] = field(default_factory=list)

    def add(self, event: TokenEvent) -> str:
        """Take a step's event; returns the text it brings."""
        text = words(self.tokens, event.tokens)
        self.tokens += event.tokens
        self.finished_reason = event.finished_reason
        if event.drafted:
            self.per_step_accepted.append(event.accepted)
            self.per_step_drafted.append(event.drafted)
        return text


def usage(asked: Asked, answers: list[Progress]) -> dict[str, int]:
    """Return the usage counts of a whole request."""
    prompt = sum(asked.prompt_tokens)
    completion = sum(answer.tokens for answer in answers)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }


def speculation_metrics(answer: Progress, k: int, detailed: bool) -> dict[str, Any]:
    """Return `metrics.speculative_decoding` of one answer; `k` is the configured K."""
    steps = len(answer.per_step_drafted)
    accepted, drafted = sum(answer.per_step_accepted), sum(answer.per_step_drafted)
    histogram = [0] * (k + 1)
    for count in answer.per_step_accepted:
        histogram[min(count, k)] += 1
    return {
        "mean_acceptance_length": 1.0 + accepted / steps if steps else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": histogram,
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": k,
        "per_step_accepted": answer.per_step_accepted if detailed else None,
        "per_step_drafted": answer.per_step_drafted if detailed else None,
    }


def timing_metrics(answer: Progress) -> dict[str, Any]:
    """Return the latencies of one answer, in milliseconds of scenario time."""
    request = answer.request
    if request is None:
        return {}
    generation = request.last_token - request.first_token
    lived = request.last_token - request.admitted
    return {
        "time_to_first_token_ms": (request.first_token - request.admitted) * 1000,
        "generation_time_ms": generation * 1000,
        "queue_time_ms": (request.admitted - request.arrival) * 1000,
        "mean_itl_ms": generation * 1000 / (answer.tokens - 1) if answer.tokens > 1 else None,
        "tokens_per_second": answer.tokens / lived if lived > 0 else None,
    }


def answer_body(
    asked: Asked,
    answers: list[Progress],
    texts: list[str],
    *,
    identity: Mapping[str, Any],
    version: str,
    metrics: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the body of an answer that is not streamed; `identity` is id, created and model."""
    choices = []
    for index, (answer, text) in enumerate(zip(answers, texts, strict=True)):
        choice: dict[str, Any] = {"index": index}
        if asked.chat:
            message = {"role": "assistant", "content": text, "refusal": None, "reasoning": None}
            choice |= {"message": message}
        else:
            choice |= {"text": text}
        choice |= {
            "logprobs": None,
            "finish_reason": answer.finished_reason,
            "stop_reason": None,
            "token_ids": None,
        }
        choices.append(choice)
    return {
        "id": identity["id"],
        "object": "chat.completion" if asked.chat else "text_completion",
        "created": identity["created"],
        "model": identity["model"],
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": FINGERPRINT.format(version=version),
        "usage": {
            **usage(asked, answers),
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
        "kv_transfer_params": None,
        "metrics": metrics,
    }


def chunk_body(
    chat: bool, identity: Mapping[str, Any], index: int, text: str, reason: str | None
) -> dict[str, Any]:
    """Return one streamed chunk: what one engine step gave one answer."""
    choice: dict[str, Any] = {"index": index}
    choice |= {"delta": {"content": text}} if chat else {"text": text}
    choice |= {"logprobs": None, "finish_reason": reason}
    if reason is not None or not chat:
        choice["stop_reason"] = None
    choice["token_ids"] = None
    return {
        "id": identity["id"],
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": identity["created"],
        "model": identity["model"],
        "choices": [choice],
    }
