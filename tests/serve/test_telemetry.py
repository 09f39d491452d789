"""Logs are JSON lines without text of a user; /metrics follows Prometheus' text format."""

from __future__ import annotations

import json
import logging
import re

import httpx
import pytest
from fake_predictor import FakePredictor
from running import HERE, process, running

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
    from litebert.serve.telemetry import log_event

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
    from litebert.serve.telemetry import JsonLines

    try:
        raise KeyError("zanzibar")
    except KeyError:
        import sys

        record = logging.LogRecord("uvicorn.error", logging.ERROR, "f", 1, message, ("zanzibar",), sys.exc_info())
    line = JsonLines().format(record)
    assert json.loads(line)["error"] == "KeyError"
    assert "zanzibar" not in line


# ---------------------------------------------------------------------------------------------------------------------
# Metrics, read by the written rules of the text format

# From the description of text format 0.0.4.
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"({NAME})(\{{{LABEL}(?:,{LABEL})*\}})? (-?[0-9.]+(?:e[+-]?\d+)?|[+-]Inf|NaN)")
KINDS = {"counter", "gauge", "histogram"}


def read_metrics(text):
    """{name: (kind, {labels: value})}; fails on whatever the format does not allow."""
    assert text.endswith("\n")
    found, current = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split()[2]
            assert current not in found, "a metric's lines must stand together"
            found[current] = ["", {}]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == current
            assert kind in KINDS
            found[name][0] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            suffixes = ("_bucket", "_sum", "_count") if found[current][0] == "histogram" else ("",)
            assert name in {current + suffix for suffix in suffixes}
            key = (name.removeprefix(current), labels or "")
            assert key not in found[current][1]
            found[current][1][key] = float(value)
    return found


def check_histograms(metrics):
    for name, (kind, samples) in metrics.items():
        if kind == "counter":
            assert name.endswith("_total")
        if kind != "histogram":
            continue
        series = {labels for suffix, labels in samples if suffix == "_count"}
        for labels in series:
            inside = labels.strip("{}")
            buckets = [
                value
                for (suffix, own), value in samples.items()
                if suffix == "_bucket" and re.sub(r'^le="[^"]*",?|,le="[^"]*"', "", own.strip("{}")) == inside
            ]
            assert buckets == sorted(buckets), "buckets are cumulative"
            assert buckets[-1] == samples[("_count", labels)]


def test_what_the_server_exposes():
    with running({'od"d\\na\nme': FakePredictor()}) as client:
        for text in ("one", "two words", "three words here"):
            client.post("/embed", json={"text": text}).raise_for_status()
        client.post("/embed", json={"text": ""})
        client.get("/some/secret/path?q=secret")
        answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    metrics = read_metrics(answer.text)
    check_histograms(metrics)
    assert metrics["litebert_requests_total"][1][("", '{endpoint="/embed",status="200"}')] == 3
    assert metrics["litebert_requests_total"][1][("", '{endpoint="/embed",status="422"}')] == 1
    assert metrics["litebert_requests_total"][1][("", '{endpoint="other",status="404"}')] == 1
    assert sum(metrics["litebert_tokens_total"][1].values()) == 3 + 4 + 5
    assert metrics["litebert_batch_requests"][0] == "histogram"
    assert metrics["litebert_queue_requests"][0] == metrics["litebert_queue_tokens"][0] == "gauge"
    assert "secret" not in answer.text


def test_every_request_is_a_span_of_the_clients_trace(monkeypatch):
    trace = pytest.importorskip("opentelemetry.trace")
    spans = []

    class Tracer(trace.NoOpTracer):
        def start_span(self, name, context=None, kind=None, attributes=None, *, start_time=0, **rest):
            attributes = dict(attributes or {})
            parent = trace.get_current_span(context).get_span_context()
            span = trace.NonRecordingSpan(parent)
            span.set_status = lambda status: attributes.update(failed=status.status_code.name)
            span.end = lambda ended: spans.append((name, kind, attributes, parent, ended - start_time))
            return span

    class Provider(trace.TracerProvider):
        def get_tracer(self, *names, **rest):
            return Tracer()

    monkeypatch.setattr(trace, "get_tracer", lambda name: Tracer())
    # What FastAPI asks before it makes spans, metrics and logs of its own, which have paths and error messages in them.
    monkeypatch.setattr(trace, "get_tracer_provider", Provider)
    with running({"fake": FakePredictor()}) as client:
        begun = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        answer = client.post("/embed", json={"text": "zanzibar"}, headers={"traceparent": begun})
        client.post("/embed", json={"text": "explode-turnip"})
        client.get("/marzipan", headers={"traceparent": "nonsense"})
    (name, kind, attributes, parent, took), failed, unknown = spans
    assert (name, kind) == ("POST /embed", trace.SpanKind.SERVER)
    assert f"{parent.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert attributes["http.response.status_code"] == 200
    assert attributes["litebert.request_id"] == answer.headers["x-request-id"]
    assert {"litebert.model", "litebert.inputs", "litebert.tokens"} <= attributes.keys()
    assert 0 < took < 60e9
    assert (failed[2]["http.response.status_code"], failed[2]["failed"]) == (503, "ERROR")
    assert (unknown[0], unknown[3].is_valid) == ("GET other", False)
    assert not any(secret in str(span) for span in spans for secret in SECRETS)
