"""/metrics follows Prometheus' text format, read here by its written rules."""

from __future__ import annotations

import re

from fake_predictor import FakePredictor
from running import running

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
