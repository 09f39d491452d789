"""Whole processes: what they accept they finish, and they say why they cannot start."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from running import HERE, process, running, wait_until

from litebert.cli.serve import name_models
from litebert.errors import ConfigError
from litebert.export.onnx_file import export_onnx
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.predict.predictor import Predictor
from litebert.serve.config import ServeConfig
from litebert.serve.server import CACHES, serve


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
    assert "--port" in result.err


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
        "abilities": ["embed", "classify"],
        "runtime": "onnx fp32, CPU, 1 thread",
        "language": "en",
        "task": {
            "name": "mood",
            "kind": "classification",
            "labels": ["sad", "calm", "glad"],
            "pair": False,
            "scale": None,
        },
    }


@pytest.fixture(scope="module")
def exported(tiny_folders, tmp_path_factory):
    """The classifier as `litebert export` writes it, without weights for torch."""
    folder = tmp_path_factory.mktemp("exported") / "mood"
    export_onnx(tiny_folders["classification"], folder)
    return folder
