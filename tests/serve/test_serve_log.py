"""Logs are JSON lines, and no text of a user is in them, whatever goes wrong."""

from __future__ import annotations

import json
import logging

import httpx
import pytest
from running import HERE, process

SECRETS = ["sesame", "zanzibar", "quetzal", "marzipan", "obelisk", "explode-turnip", "PROPFIND"]


def test_no_text_of_a_user_is_written_down():
    with process(HERE / "serve_fake.py", HERE, "api_key=open-sesame", "request_bytes=500") as (child, address):
        headers = {"X-API-Key": "open-sesame"}
        with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
            assert client.post("/embed", json={"text": "zanzibar"}).status_code == 200
            assert client.post("/embed", json={"text": "explode-turnip zanzibar"}).status_code == 503
            assert client.post("/embed", json={"text": 5, "quetzal": "marzipan"}).status_code == 422
            assert client.post("/embed", json={"text": "a", "model": "quetzal"}).status_code == 404
            assert client.post("/embed", content=b'{"text": "marzipan', headers={"Content-Type": "application/json"})
            assert client.post("/embed", json={"text": "obelisk " * 100}).status_code == 413
            assert client.get("/marzipan?text=obelisk", headers={"User-Agent": "quetzal"}).status_code == 404
            assert client.request("PROPFIND", "/embed").status_code == 405
            assert client.get("/models", headers={"X-API-Key": "not-sesame"}).status_code == 401
        child.terminate()
        out, _ = child.communicate(timeout=60)
        assert child.returncode == 0
        err = child.log.read_text()
    for secret in SECRETS:
        assert secret not in out + err
    lines = [json.loads(line) for line in err.splitlines()]
    assert all({"time", "level", "event"} <= set(line) for line in lines)
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["status"] for line in requests] == [200, 503, 422, 404, 400, 413, 404, 405, 401]
    assert requests[0]["endpoint"] == "/embed"
    assert (requests[0]["model"], requests[0]["tokens"], requests[0]["inputs"]) == ("fake", 3, 1)
    assert requests[6]["endpoint"] == requests[7]["method"] == "other"
    failure = next(line for line in lines if line["event"] == "failed")
    assert failure["error"] == "RuntimeError"
    assert len({line["id"] for line in requests}) == len(requests)
    assert [line["event"] for line in lines if line["event"] in ("listening", "closed")] == ["listening", "closed"]


def test_nor_by_anothers_log_handler(caplog):
    from litebert.serve.log import log_event

    with caplog.at_level(logging.INFO):
        try:
            raise ValueError("zanzibar")
        except ValueError as error:
            log_event("failed", logging.ERROR, error, model="m")
    assert caplog.records[0].fields["error"] == "ValueError"
    assert caplog.records[0].fields["at"][-1].endswith("test_nor_by_anothers_log_handler")
    assert "zanzibar" not in caplog.text


@pytest.mark.parametrize("message", ["Exception in ASGI application\n", "odd %s"])
def test_lines_of_the_server_below_us_carry_no_values(message):
    from litebert.serve.log import JsonLines

    try:
        raise KeyError("zanzibar")
    except KeyError:
        import sys

        record = logging.LogRecord("uvicorn.error", logging.ERROR, "f", 1, message, ("zanzibar",), sys.exc_info())
    line = JsonLines().format(record)
    assert json.loads(line)["error"] == "KeyError"
    assert "zanzibar" not in line
