"""Errors as clients see them: a status and {"error": {"code", "message"}}."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.responses import Response


class Refusal(Exception):
    """Why a request is refused."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})

    def response(self) -> Response:
        """The refusal as a response."""
        body = {"error": {"code": self.code, "message": self.message}}
        # ASCII, because a message may quote a field name that contains a lone surrogate.
        return Response(json.dumps(body), self.status, headers=self.headers, media_type="application/json")


class ClientGone(Exception):
    """The client disconnected before the answer."""


def describe_mistakes(errors: Sequence[Mapping[str, Any]], limit: int = 3) -> str:
    """Pydantic's errors as one sentence, without the values sent: 'top: should be a valid integer'."""
    found: dict[str, list[str]] = {}
    # For a union, report only the branch that fits the value: "not a list" does not help with a bad text.
    matched = {error["loc"][:2] for error in errors if error["type"] not in ("string_type", "list_type")}
    for error in errors:
        if error["loc"][:2] in matched and error["type"] in ("string_type", "list_type"):
            continue
        # ("body", "text", "list[str]", 3): the body and the branches of a union are not fields.
        path = [str(part) for part in error["loc"] if part != "body" and not _is_branch(part)]
        where = ".".join(path)[:80] or "body"
        message = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
        if message not in found.setdefault(where, []):
            found[where].append(message)
    sentences = [f"{where}: {' or '.join(messages)}" for where, messages in found.items()]
    more = len(sentences) - limit
    return "; ".join(sentences[:limit]) + (f"; and {more} more" if more > 0 else "")


def _is_branch(part: str | int) -> bool:
    return isinstance(part, str) and (
        part in ("str", "list") or part.startswith(("list[", "constrained-", "function-"))
    )
