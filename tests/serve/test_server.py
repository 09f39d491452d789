"""Whole processes and their clients: what they accept they finish, and no client can hold the server up."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fake_predictor import FakePredictor
from running import HERE, at_once, process, running, wait_until

from litebert.cli.serve import name_models
from litebert.errors import ConfigError
from litebert.export.onnx_file import export_onnx
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.predict.predictor import Predictor
from litebert.serve.config import ServeConfig
from litebert.serve.server import CACHES, SPARE, owner_of, serve


def test_sigterm_lets_accepted_requests_finish(tmp_path):
    gate = tmp_path / "gate"
    gate.touch()
    with process(HERE / "serve_fake.py", gate, "batch_tokens=4") as (child, address):
        wait_until(lambda: httpx.get(f"{address}/ready", timeout=60).status_code == 200)
        gate.unlink()
        answers = []
        threads = [
            threading.Thread(
                target=lambda i=i: answers.append(httpx.post(f"{address}/embed", json={"text": "x" * i}, timeout=60))
            )
            for i in range(1, 7)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: figure(address, "litebert_connections ") == 7)  # with the one that asks for the figure
        wait_until(lambda: queued(address) == 5)  # and one is in the model
        child.send_signal(signal.SIGTERM)
        wait_until(lambda: not takes_connections(address))
        assert child.poll() is None
        assert not answers
        gate.touch()
        for thread in threads:
            thread.join()
        assert child.wait(60) == 0
    assert [answer.status_code for answer in answers] == [200] * 6
    assert sorted(answer.json()["results"][0]["vector"][0] for answer in answers) == [1, 2, 3, 4, 5, 6]


def test_keep_alive_clients_lose_nothing_while_the_server_drains(tmp_path):
    gate = tmp_path / "gate"
    gate.touch()
    with (
        process(HERE / "serve_fake.py", gate, "batch_tokens=3", "last_call_s=60", "idle_s=60") as (child, address),
        contextlib.ExitStack() as stack,
    ):
        clients = [stack.enter_context(httpx.Client(base_url=address, timeout=60)) for _ in range(9)]
        wait_until(lambda: all(client.get("/ready").status_code == 200 for client in clients))
        busy, idle = clients[:4], clients[4:]
        gate.unlink()
        with ThreadPoolExecutor(4) as pool:
            answers = pool.map(lambda client: client.post("/embed", json={"text": "a"}), busy)
            wait_until(lambda: queued(address) == 3)  # and one is in the model
            child.send_signal(signal.SIGTERM)
            wait_until(lambda: not takes_connections(address))
            gate.touch()
            answers = list(answers)
        answers += [client.post("/embed", json={"text": "a"}) for client in idle[:-1]]
        assert [(answer.status_code, answer.headers["connection"]) for answer in answers] == [(200, "close")] * 8
        balancer = idle[-1].get("/ready")
        assert (balancer.status_code, balancer.json()["error"]["code"]) == (503, "closing")
        assert child.wait(60) == 0


def takes_connections(address):
    try:
        return httpx.get(f"{address}/health", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def queued(address):
    return figure(address, "litebert_queue_requests{")


def figure(address, name):
    lines = httpx.get(f"{address}/metrics", timeout=60).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name))


def test_a_second_ctrl_c_does_not_wait(tmp_path):
    with process(HERE / "serve_fake.py", tmp_path / "never") as (child, address):
        answers = []
        ask = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{address}/embed", json={"text": "a"}, timeout=60))
        )
        ask.start()
        wait_until(lambda: queued(address) == 1)  # behind the warm-up, which never ends
        child.send_signal(signal.SIGINT)
        wait_until(lambda: not takes_connections(address))
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        ask.join()
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "closing")


def test_a_taken_port_is_said(cli):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = cli("serve", "--port", port)
    assert result.code == 2
    assert f"127.0.0.1:{port}" in result.err
    assert "another host or port" in result.err


@pytest.mark.parametrize("module", ["fastapi", "prometheus_client", "uvicorn"])
def test_without_the_extra_its_name_is_said(cli, monkeypatch, module):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == module else find(name, *rest))
    result = cli("serve")
    assert result.code == 2
    assert 'pip install "litebert[serve]"' in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "queue=3"], "queue_requests"),
        (["--set", "timeout_s=soon"], "timeout_s"),
        (["a=x", "a=y"], "two models are called 'a'"),
        (["=x"], "NAME=FOLDER"),
        (["nowhere-at-all"], "nowhere-at-all"),
        (["--port", "99999"], "port"),
        (["--allowed-host", "https://albert.example.org"], "allowed_hosts"),
    ],
)
def test_mistakes_on_the_command_line(cli, arguments, words):
    result = cli("serve", *arguments, *(["--port", "0"] if "--port" not in arguments else []))
    assert result.code == 2, result
    assert words in result.err


def test_caches_are_capped_before_a_model_is_loaded(monkeypatch):
    for name in CACHES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")  # the user's own wish stands
    seen = {}

    def load():
        seen.update({name: os.environ.get(name) for name in CACHES})
        raise ConfigError("enough")

    with pytest.raises(ConfigError, match="enough"):
        serve(load, ServeConfig(port=0))
    assert seen == {**CACHES, "LRU_CACHE_CAPACITY": "7"}


def test_names_of_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "lr=3").mkdir(parents=True)
    assert name_models([]) == {"default": "default"}
    assert name_models(["runs/sst2/", "qa=runs/squad"]) == {"sst2": "runs/sst2/", "qa": "runs/squad"}
    assert name_models(["runs/lr=3"]) == {"lr=3": "runs/lr=3"}
    assert name_models(["runs/a/best", "runs/b/model"]) == {"a": "runs/a/best", "b": "runs/b/model"}
    with pytest.raises(ConfigError, match="two models"):
        name_models(["a/sst2", "b/sst2"])


def test_the_command_serves_a_model_folder(tiny_folders):
    folder = tiny_folders["classification"]
    with process("-m", "litebert", "serve", f"mood={folder}", "--port", "0", "--threads", "1") as (child, address):
        answer = httpx.post(f"{address}/classify", json={"text": "Anna slept."}, timeout=60)
        assert answer.status_code == 200
        assert answer.json()["model"] == "mood"
        assert set(answer.json()["results"][0]["probabilities"]) == {"sad", "calm", "glad"}
        assert "server" not in answer.headers, "nobody need know what runs below"
        child.terminate()
        assert child.wait(60) == 0


def test_the_command_serves_an_exported_folder(exported, tiny_predictors):
    arguments = ("serve", f"mood={exported}", "--runtime", "onnx", "--port", "0", "--threads", "1")
    with process("-m", "litebert", *arguments) as (child, address):
        with httpx.Client(base_url=address, timeout=60) as client:
            check_exported(client, tiny_predictors["classification"])
        child.terminate()
        assert child.wait(60) == 0


def test_an_exported_folder_without_weights_needs_no_word_about_its_runtime(exported, tiny_predictors):
    predictor = Predictor(exported, threads=1)
    assert isinstance(predictor.runtime, OnnxRuntime)
    with running({"mood": predictor}) as client:
        check_exported(client, tiny_predictors["classification"])


def check_exported(client, by_torch):
    """The server's answers are those of torch."""
    texts = ["Anna slept.", "Ben read the old book. " * 30]  # the second is read in several windows
    results = client.post("/classify", json={"text": texts}).json()["results"]
    for result, expected in zip(results, by_torch.classify(texts), strict=True):
        assert result["windows"] == expected.windows
        assert result["probabilities"] == pytest.approx(expected.probabilities, abs=1e-4)
    results = client.post("/embed", json={"text": texts}).json()["results"]
    for result, expected in zip(results, by_torch.embed(texts), strict=True):
        assert result["vector"] == pytest.approx(expected.tolist(), abs=1e-4)
    # Files without attention maps say so, and offer only what they can do.
    assert client.post("/attention", json={"text": "Anna slept."}).json()["error"]["code"] == "no_such_ability"
    (model,) = client.get("/models").json()["models"]
    assert model == {
        "name": "mood",
        "abilities": ["embed", "similarity", "search", "classify"],
        "runtime": "onnx fp32, CPU, 1 thread",
        "language": "en",
        "task": {
            "name": "mood",
            "kind": "classification",
            "labels": ["sad", "calm", "glad"],
            "pair": False,
            "scale": None,
        },
        "packaged": False,
        "depths": {"layers": 3, "exits": [], "auto": False, "depth": None},
    }


@pytest.fixture(scope="module")
def exported(tiny_folders, tmp_path_factory):
    """The classifier as `litebert export` writes it, without weights for torch."""
    folder = tmp_path_factory.mktemp("exported") / "mood"
    export_onnx(tiny_folders["classification"], folder)
    return folder


# ---------------------------------------------------------------------------------------------------------------------
# Clients that send nothing, half a request, too many at once, or do not read

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
