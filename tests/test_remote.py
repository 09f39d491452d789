"""A name that is nowhere is told after one question to the Hub, which is a server of this test's own."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from huggingface_hub import constants

from litebert import remote
from litebert.errors import CheckpointError
from litebert.model.config import PRESETS
from litebert.remote import check_hub, check_source, fetch_model


@pytest.fixture
def online(tmp_path, monkeypatch):
    """The Hub's library as if there were a network, at an address, with an empty cache."""

    def use(port):
        for name, value in (
            ("HF_HUB_OFFLINE", False),
            ("ENDPOINT", f"http://127.0.0.1:{port}"),
            ("HF_HUB_CACHE", str(tmp_path / "cache")),
        ):
            monkeypatch.setattr(constants, name, value)

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return use


@pytest.fixture
def hub(online):
    """A Hub with answers by name; it notes what it is asked."""
    answers, asked = {}, []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.startswith("/api/models/"):  # the library has questions of its own
                asked.append(self.path)
            name = self.path.removeprefix("/api/models/").split("/revision/")[0]
            status, error, files = answers.get(name, (404, "RepoNotFound", []))
            body = json.dumps({"id": name, "siblings": [{"rfilename": file} for file in files]}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if error:
                self.send_header("X-Error-Code", error)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    online(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield answers, asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_name_that_the_hub_does_not_have(hub):
    _, asked = hub
    with pytest.raises(
        CheckpointError, match=r"no-one/nothing: no such folder, and not in.*/cache\); http.* has no such model"
    ):
        check_source("no-one/nothing")
    assert asked == ["/api/models/no-one/nothing"]


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (401, "GatedRepo", "accept the terms of this model; .*`hf auth login`"),
        (404, "RevisionNotFound", "but no such revision"),
        (200, None, "contains no config.json"),
        (503, None, r"downloading from http.* failed \(.*503"),
    ],
)
def test_every_other_answer_is_told_as_it_is(hub, status, error, message):
    answers, asked = hub
    answers["a/b"] = (status, error, ["README.md"])
    with pytest.raises(CheckpointError, match=message):
        fetch_model("a/b", revision="old")
    assert asked == ["/api/models/a/b/revision/old"]


def test_a_model_that_is_there_passes(hub):
    answers, asked = hub
    answers["a/b"] = (200, None, ["config.json", "model.safetensors"])
    check_source("a/b")
    assert len(asked) == 1


def test_an_adapter_that_is_there_passes(hub):
    answers, _ = hub
    answers["a/b"] = (200, None, ["adapter_config.json", "adapter_model.safetensors"])
    check_source("a/b")


def test_a_model_in_the_cache_is_not_asked_for(hub, tmp_path):
    _, asked = hub
    repository = tmp_path / "cache" / "models--a--b"
    (repository / "snapshots" / "1234").mkdir(parents=True)
    (repository / "snapshots" / "1234" / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("1234")
    check_hub("a/b")
    assert asked == []


def test_no_network(online):
    with socket.socket() as nobody:  # bound, but not listening
        nobody.bind(("127.0.0.1", 0))
        online(nobody.getsockname()[1])
        with pytest.raises(CheckpointError, match=r" failed \(.*refused\); download it .*hf download a/b "):
            check_hub("a/b")


def test_a_network_that_swallows_everything(online, monkeypatch):
    monkeypatch.setattr(remote, "PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        online(silent.getsockname()[1])
        with pytest.raises(CheckpointError, match=r" failed \(.*timed out"):
            check_hub("a/b")


def test_what_no_name_can_be():
    with pytest.raises(CheckpointError, match=r"a/b--c: .*'a/b--c'"):
        check_source("a/b--c")


def test_the_hub_is_asked_for_what_is_called_its_own(hub):
    answers, asked = hub
    answers["someone/model"] = (200, None, ["config.json"])
    check_source("hub:someone/model")
    assert asked == ["/api/models/someone/model"]
    check_source_error = pytest.raises(CheckpointError, match="someone/model: no such folder")
    with check_source_error:
        check_source("someone/model")
    assert len(asked) == 1


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_no_model_but_a_released_name_is_the_hubs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name in remote.WITHOUT_OWNER:  # albert-base-v2 and its like: the Hub has these
        assert remote.find_local(name) is None
        return
    with pytest.raises(CheckpointError, match=rf"{name}: no such folder; {name} is an architecture without weights"):
        remote.find_local(name)
