"""Clients that send nothing, half a request, too many at once, or do not read: they lose, and nobody else does."""

from __future__ import annotations

import contextlib
import json
import socket
import threading

import httpx
import pytest
from fake_predictor import FakePredictor
from running import at_once, running, wait_until

from litebert.serve.connections import SPARE, owner_of

HALF = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(client, address="127.0.0.1"):
    """A bare connection to the server, from one of this machine's addresses."""
    server = (client.base_url.host, client.base_url.port)
    return socket.create_connection(server, timeout=60, source_address=(address, 0))


def read_all(connection):
    """What the server sends until it closes the connection: status, headers and body."""
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def get(client, path, address="127.0.0.1"):
    """An answer over a connection of its own."""
    transport = httpx.HTTPTransport(local_address=address)
    with httpx.Client(transport=transport, base_url=client.base_url, timeout=60) as other:
        return other.get(path)


def check_refusal(answer, status, code):
    found, headers, body = answer
    assert (found, json.loads(body)["error"]["code"]) == (status, code)
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"


def count(client, name):
    """One figure of /metrics."""
    lines = client.get("/metrics").text.splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(name)), 0.0)


def test_a_connection_that_sends_nothing_is_closed():
    with running({"fake": FakePredictor()}, header_s=0.1) as client, connect(client) as connection:
        assert connection.recv(1) == b""


@pytest.mark.parametrize("before", [b"", WHOLE], ids=["first request", "second request"])
def test_half_a_header_is_408(before):
    with running({"fake": FakePredictor()}, header_s=0.1, idle_s=60) as client, connect(client) as connection:
        if before:
            connection.sendall(before)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(HALF)
        check_refusal(read_all(connection), 408, "too_slow")
        assert count(client, 'litebert_closed_total{reason="slow_header"}') == 1


def test_a_header_that_comes_byte_by_byte_gets_no_more_time():
    with running({"fake": FakePredictor()}, header_s=0.2) as client, connect(client) as connection:
        connection.sendall(HALF)
        connection.settimeout(0.01)
        with contextlib.suppress(ConnectionError):
            for _ in range(6000):
                connection.sendall(b"x")
                with contextlib.suppress(TimeoutError):
                    assert connection.recv(100).startswith(b"HTTP/1.1 408")
                    break
            else:
                pytest.fail("the connection is still open")


def test_a_connection_between_requests_is_closed_in_time():
    with running({"fake": FakePredictor()}, idle_s=0.1) as client, connect(client) as connection:
        connection.sendall(WHOLE)
        status, headers, _ = read_all(connection)
        assert status == 200
        assert "connection" not in headers


@pytest.mark.parametrize("sent", [b"", HALF], ids=["nothing", "half a header"])
def test_idle_connections_lock_nobody_out(sent):
    limits = {"connections": 20, "client_connections": 10, "header_s": 600}
    with running({"fake": FakePredictor()}, **limits) as client, contextlib.ExitStack() as stack:
        for _ in range(20 + SPARE // 2):
            stack.enter_context(connect(client)).sendall(sent)
        # At once: whoever looks after the server. As soon as the idle ones have had their time: everybody.
        assert get(client, "/health").status_code == 200
        wait_until(lambda: get(client, "/ready").status_code == 200)
        wait_until(lambda: get(client, "/models").status_code == 200)
        assert get(client, "/models", "127.0.0.2").status_code == 200
        assert count(client, 'litebert_closed_total{reason="replaced"}') > 0
        wait_until(lambda: count(client, "litebert_connections ") <= 20)


def test_what_is_beyond_the_spare_places_is_dropped():
    with running({"fake": FakePredictor()}, connections=5, header_s=600) as client, contextlib.ExitStack() as stack:
        for _ in range(5 + 2 * SPARE):
            stack.enter_context(connect(client))
        wait_until(lambda: is_served(client))
        assert count(client, 'litebert_refused_total{model="",reason="too_many_connections"}') >= 1
        assert count(client, "litebert_connections ") <= 5


def is_served(client):
    with contextlib.suppress(httpx.TransportError):
        return get(client, "/models").status_code == 200
    return False


def test_everyone_in_a_crowd_gets_an_answer():
    with running({"fake": FakePredictor()}, connections=5, client_connections=5) as client:
        answers = at_once(20, lambda i: get(client, "/models"))
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert sum(answer.status_code == 200 for answer in answers) >= 5


@pytest.fixture
def busy(fake):
    """A server with room for six connections, four of one client, and a function that fills places with requests."""
    with running({"fake": fake}, connections=6, client_connections=4) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        client.close()  # and with it the connection
        fake.go.clear()
        answers, threads = [], []

        def ask(address):
            transport = httpx.HTTPTransport(local_address=address)
            with httpx.Client(transport=transport, base_url=client.base_url, timeout=60) as other:
                answers.append(other.post("/embed", json={"text": "a"}))

        def fill(address, number):
            for _ in range(number):
                threads.append(threading.Thread(target=ask, args=(address,)))
                threads[-1].start()

        yield client, fill, answers
        fake.go.set()
        for thread in threads:
            thread.join()
    assert [answer.status_code for answer in answers if answer.status_code != 503] == [200] * fill.accepted


def test_one_client_cannot_take_every_place(busy):
    client, fill, answers = busy
    fill.accepted = 4
    fill("127.0.0.2", 7)
    wait_until(lambda: len(answers) == 3)
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_many_connections")
        assert answer.headers["connection"] == "close"
        assert int(answer.headers["retry-after"]) >= 1
    assert get(client, "/models").status_code == 200
    assert get(client, "/models", "127.0.0.2").status_code == 503
    assert get(client, "/health", "127.0.0.2").status_code == 200


def test_room_is_kept_for_probes(busy, fake):
    client, fill, answers = busy
    fill.accepted = 6
    fill("127.0.0.2", 4)
    fill("127.0.0.3", 2)
    wait_until(lambda: sum(map(len, fake.batches)) + waiting(client) >= 6 + len(fake.abilities))
    refused = get(client, "/models")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_connections")
    for path in ("/health", "/ready"):
        answer = get(client, path)
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert not answers


def waiting(client):
    return client.app.state.service.batchers["fake"]._queue.waiting


def test_a_client_that_does_not_read_is_closed():
    with running({"fake": FakePredictor()}, timeout_s=0.5) as client, connect(client) as connection:
        asked = threading.Thread(target=send_quietly, args=(connection, WHOLE.replace(b"/health", b"/page.js") * 3000))
        asked.start()
        wait_until(lambda: count(client, 'litebert_closed_total{reason="unread"}') == 1)
        asked.join()
        assert not asked.is_alive()


def send_quietly(connection, data):
    with contextlib.suppress(OSError):
        connection.sendall(data)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x00\xa5 this is no http\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",  # no Host
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n",
        b"GET /" + b"x" * 100_000,
        b"POST /embed HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=lambda sent: repr(sent)[:40],
)
def test_what_is_not_http_is_refused_in_our_own_form(sent):
    with running({"fake": FakePredictor()}) as client:
        with connect(client) as connection:
            send_quietly(connection, sent)
            check_refusal(read_all(connection), 400, "invalid_http")
        assert count(client, 'litebert_requests_total{endpoint="other",status="400"}') == 1
        assert client.get("/health").status_code == 200


def test_an_upgrade_is_not_followed():
    """A WebSocket would leave the deadlines behind."""
    with running({"fake": FakePredictor()}) as client:
        headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        assert client.get("/health", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("address", "owner"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_whom_an_address_counts_for(address, owner):
    assert owner_of(address) == owner
