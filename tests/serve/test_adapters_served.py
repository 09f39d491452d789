"""Adapters by request: named as `model`, loaded and unloaded while the server runs, equal to each of them alone."""

from __future__ import annotations

import httpx
import pytest
from running import at_once, process, running, wait_until
from small_adapters import TASKS, make_adapter_folder, make_base

from litebert.cli.serve import name_adapters
from litebert.errors import ConfigError
from litebert.predict.predictor import Predictor

KEY = {"X-API-Key": "sesame"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    base = make_base(folder / "base")
    names = ("sentiment", "topics", "spans")
    return {"base": base} | {
        name: make_adapter_folder(folder / name, base, TASKS[name], seed=number) for number, name in enumerate(names)
    }


def predictor_of(folder):
    return Predictor(folder, device="cpu", threads=1)


def test_every_request_names_its_adapter(folders):
    base = predictor_of(folders["base"])
    for name in ("sentiment", "topics"):
        base.add_adapter(name, folders[name])
    alone = {f"tiny:{name}": predictor_of(folders[name]) for name in ("sentiment", "topics")}
    with running({"tiny": base}, batch_wait_ms=50) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        models = client.get("/models").json()["models"]
        assert [each["name"] for each in models] == ["tiny", "tiny:sentiment", "tiny:topics"]
        assert models[1]["task"]["labels"] == ["bad", "good"]
        names = ["tiny:sentiment", "tiny:topics", "tiny:sentiment", "tiny:topics"]
        texts = [f"a warm day number {number}" for number in range(4)]
        answers = at_once(4, lambda i: client.post("/classify", json={"text": texts[i], "model": names[i]}).json())
        for name, text, answer in zip(names, texts, answers, strict=True):
            assert answer["model"] == name
            expected = alone[name].classify(text)
            assert answer["results"][0]["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
        assert client.post("/classify", json={"text": "a"}).json()["model"] == "tiny:sentiment", "the first that can"
        wrong = client.post("/classify", json={"text": "a", "model": "tiny:sentimen"})
        assert (wrong.status_code, "did you mean 'tiny:sentiment'" in wrong.json()["error"]["message"]) == (404, True)
        wrong = client.post("/fill-mask", json={"text": "a [MASK]", "model": "tiny:topics"})
        assert wrong.json()["error"]["message"].startswith("tiny:topics: this model (classification) has no fill_mask")


def test_adapters_come_and_go(folders):
    with running({"tiny": predictor_of(folders["base"])}, api_key="sesame") as client:
        new = {"name": "mood", "folder": str(folders["sentiment"])}
        assert client.post("/adapters/load", json=new).status_code == 401
        client.headers.update(KEY)
        assert client.post("/classify", json={"text": "a"}).status_code == 400
        answer = client.post("/adapters/load", json=new)
        assert (answer.status_code, answer.json()) == (200, {"status": "tiny:mood"})
        found = client.post("/classify", json={"text": "a warm day", "model": "tiny:mood"}).json()
        expected = predictor_of(folders["sentiment"]).classify("a warm day").probabilities
        assert found["results"][0]["probabilities"] == pytest.approx(expected, abs=1e-5)
        for change, message in (
            ({}, "must be a new name"),
            ({"name": "a:b"}, "must be a new name without ':'"),
            ({"name": ""}, "name: must have at least 1 character"),
            ({"name": "x", "folder": "nowhere"}, "no folder 'nowhere' on the server"),
            ({"name": "x", "folder": str(folders["base"])}, "it is a whole model"),
        ):
            wrong = client.post("/adapters/load", json=new | change)
            assert (wrong.status_code, message in wrong.json()["error"]["message"]) == (422, True), wrong.text
        wrong = client.post("/adapters/load", json=new | {"model": "tny"})
        assert (wrong.status_code, "did you mean 'tiny'" in wrong.text) == (404, True)
        assert client.post("/adapters/unload", json={"name": "mood"}).json() == {"status": "tiny:mood"}
        assert client.post("/adapters/unload", json={"name": "mood"}).status_code == 404
        assert client.post("/classify", json={"text": "a", "model": "tiny:mood"}).status_code == 404


def test_without_a_key_nobody_changes_what_is_served(folders):
    with running({"tiny": predictor_of(folders["base"])}) as client:
        wrong = client.post("/adapters/load", json={"name": "mood", "folder": str(folders["sentiment"])})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (403, "key_needed")
        assert client.post("/adapters/unload", json={"name": "mood"}).status_code == 403


def test_by_the_command(folders):
    pair = (f"tiny={folders['base']}", "--adapter", f"mood={folders['sentiment']}")
    with process("-m", "litebert", "serve", *pair, "--device", "cpu", "--port", 0) as (_, address):
        answer = httpx.post(f"{address}/classify", json={"text": "a warm day", "model": "tiny:mood"}, timeout=60)
        assert answer.json()["results"][0]["label"] in ("bad", "good")


def test_names_on_the_command_line():
    models = {"default": "default", "qa": "runs/qa"}
    named = name_adapters(["mood=a/b", "qa:dates=c=d"], models)
    assert named == {("default", "mood"): "a/b", ("qa", "dates"): "c=d"}
    for text, message in (
        ("mood", "expected NAME=FOLDER or MODEL:NAME=FOLDER"),
        ("x:mood=a", "no model 'x'; there is: default, qa"),
    ):
        with pytest.raises(ConfigError, match=message):
            name_adapters([text], models)
    with pytest.raises(ConfigError, match="given twice"):
        name_adapters(["mood=a", "default:mood=b"], models)
