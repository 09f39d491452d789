"""The key, the size, the clock and the headers, before any ability is asked."""

from __future__ import annotations

import json
import socket

import pytest
from fake_predictor import FakePredictor
from running import running

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client():
    with running({"fake": FakePredictor()}, request_bytes=2000) as client:
        yield client


def connect(client):
    """A bare connection to the server."""
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=60)


@pytest.mark.parametrize(
    "path", ["/", "/page.css", "/page.js", "/examples.js", "/docs", "/openapi.json", "/models", "/nothing"]
)
def test_every_answer_is_locked_down(client, path):
    headers = client.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {source for sources in policy.values() for source in sources.split()} <= {"'none'", "'self'", "data:"}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert len(headers["x-request-id"]) == 16


def test_texts_are_not_cached_and_the_page_is_revalidated(client):
    assert client.post("/embed", json={"text": "a"}).headers["cache-control"] == "no-store"
    page = client.get("/page.css")
    assert page.headers["cache-control"] == "no-cache"
    assert client.get("/page.css", headers={"If-None-Match": page.headers["etag"]}).status_code == 304


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/docs", "/models", "/nothing", "/embed"])
def test_head_is_get_without_the_body(client, path):
    whole, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers["content-length"] == str(len(whole.content))


@pytest.mark.parametrize("size", [3000, 10_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_413(client, size, chunked):
    body = json.dumps({"text": "x" * size}).encode()
    content = (body[i : i + 100_000] for i in range(0, len(body), 100_000)) if chunked else body
    answer = client.post("/embed", content=content, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert client.post("/embed", json={"text": "a"}).status_code == 200


def test_a_body_that_never_comes_is_408():
    with running({"fake": FakePredictor()}, timeout_s=0.5) as client, connect(client) as connection:
        connection.sendall(
            b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_a_client_that_goes_away_harms_nobody(client):
    with connect(client) as connection:
        connection.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
    assert client.post("/embed", json={"text": "a"}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"])
def test_what_a_foreign_page_could_send_is_415(client, kind):
    answer = client.post("/embed", content=b'{"text": "a"}', headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "not_json")
    answer = client.post("/embedd", content=b'{"text": "a"}', headers={"Content-Type": kind})
    assert answer.status_code == 404  # the mistake that comes first


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.api+json", "APPLICATION/JSON"])
def test_json_by_its_other_names(client, kind):
    assert client.post("/embed", content=b'{"text": "a"}', headers={"Content-Type": kind}).status_code == 200


def test_rubbish_instead_of_http(client):
    with connect(client) as connection:
        connection.sendall(b"\x16\x03\x01\x00\xa5 this is no http\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.:80", "page.localhost", "127.0.0.1", "127.9.9.9:1", "[::1]:80"]
)
def test_loopback_by_any_of_its_names(client, host):
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "notlocalhost", "203.0.113.5:8000", "[2001:db8::1]", "", "127.1"]
)
@pytest.mark.parametrize("path", ["/", "/health", "/embed", "/metrics"])
def test_dns_rebinding(client, host, path):
    """A page whose own name points at our address can ask us, but only under that name."""
    answer = client.post(path, json={"text": "a"}, headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (421, "unknown_host")
    assert "allowed_hosts" in answer.json()["error"]["message"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_names_that_the_operator_allows():
    with running({"fake": FakePredictor()}, allowed_hosts=("Albert.example.org", "albert")) as client:
        for host, status in [("albert.example.org:443", 200), ("albert", 200), ("www.albert.example.org", 421)]:
            assert client.get("/health", headers={"Host": host}).status_code == status


def test_http_1_0_without_a_host(client):
    with connect(client) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


@pytest.fixture(scope="module")
def locked():
    with running({"fake": FakePredictor()}, api_key="open sesame") as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/page.js", "/examples.js", "/docs", "/health", "/ready", "/openapi.json"])
def test_the_page_and_the_probes_need_none(locked, path):
    assert locked.get(path).status_code in (200, 503)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer open"},
        {"Authorization": "Bearer open sesame!"},
        {"Authorization": "Basic open sesame"},
        {"Authorization": "open sesame"},
        {"X-API-Key": "Open sesame"},
        {"Authorization": b"Bearer \xff\xfe"},
    ],
    ids=str,
)
def test_without_the_key_nothing_else_answers(locked, headers):
    for answer in (
        locked.post("/embed", json={"text": "a"}, headers=headers),
        locked.get("/models", headers=headers),
        locked.get("/metrics", headers=headers),
        locked.get("/nothing", headers=headers),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "key_needed")
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("headers", [{"Authorization": "bearer open sesame"}, {"X-API-Key": "open sesame"}], ids=str)
def test_with_it_everything_does(locked, headers):
    assert locked.post("/embed", json={"text": "a"}, headers=headers).status_code == 200
    assert locked.get("/metrics", headers=headers).status_code == 200
