"""Logs as JSON lines on stderr, which never contain text of a user.

log_event("request", ability="embed", status=200, ms=3.1) -> {"time": "...", "level": "info", "event": "request", ...}

Values are numbers and known names. An exception is logged as its type and the places in the code; its message is left
out, because it may quote what a user sent.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from typing import Any

LOGGER = logging.getLogger("litebert.serve")


class JsonLines(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of JSON."""
        moment = time.gmtime(record.created)
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
        }
        if record.name == LOGGER.name:
            line["event"] = record.msg
            line |= getattr(record, "fields", {})
        else:  # from uvicorn: the message's template, without its arguments
            line |= {"event": "server", "message": re.sub(r" ?\[?%[sdr]\]?", "", str(record.msg))}
        if record.exc_info and record.exc_info[1]:
            line |= describe_exception(record.exc_info[1])
        return json.dumps(line)


def log_event(event: str, /, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Write one line."""
    if LOGGER.isEnabledFor(level):
        if error is not None:
            fields |= describe_exception(error)  # not exc_info: other handlers would print the message
        LOGGER.log(level, event, extra={"fields": fields})


def describe_exception(error: BaseException) -> dict[str, Any]:
    """The type and the places of an exception: {"error": "KeyError", "at": ["batcher.py:88 _run", ...]}."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "at": places[-8:]}


def log_to_stderr() -> None:
    """Send our logs and uvicorn's to stderr only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (LOGGER.name, "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler] if name != "uvicorn.error" else []
        logger.propagate = name == "uvicorn.error"  # to uvicorn's
        logger.setLevel(logging.INFO)
