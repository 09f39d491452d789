"""`litebert serve default`: the package's adapters by name, and under the plain name if one of them answers."""

from __future__ import annotations

import httpx
import numpy as np
import openai
import pytest
from running import at_once, process, running, wait_until

from litebert.predict.predictor import Predictor

NAMES = ("entailment", "questions", "sentiment", "similarity")
TEXT, OTHER = "a warm and funny film.", "someone makes people laugh."


@pytest.fixture(scope="module")
def client():
    with running({"default": Predictor(device="cpu", threads=1)}, batch_wait_ms=50) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        yield client


def alone(name):
    return Predictor(f"default:{name}", device="cpu", threads=1)


def test_models_list_them(client):
    models = {each["name"]: each for each in client.get("/models").json()["models"]}
    assert list(models) == [
        "default",
        *(f"default:{name}" for name in NAMES),
    ]
    assert models["default:sentiment"]["task"]["labels"] == ["negative", "positive"]
    assert {"classify", "answer", "fill_mask"} <= set(models["default"]["abilities"])


def test_each_answers_in_a_shared_batch(client):
    requests = [
        ("/classify", {"text": TEXT}, "default:sentiment"),
        ("/classify", {"text": TEXT, "model": "default"}, "default:sentiment"),
        ("/classify", {"text": TEXT, "model": "default:sentiment"}, "default:sentiment"),
        ("/classify", {"text": TEXT, "pair": OTHER}, "default:entailment"),
        ("/answer", {"question": "who laughs?", "context": OTHER}, "default:questions"),
        ("/similarity", {"a": TEXT, "b": OTHER}, "default:similarity"),
        ("/fill-mask", {"text": "a [MASK] day"}, "default"),
    ]
    answers = at_once(len(requests), lambda i: client.post(requests[i][0], json=requests[i][1]).json())
    assert [answer["model"] for answer in answers] == [model for *_, model in requests]
    expected = alone("sentiment").classify(TEXT).probabilities
    for answer in answers[:3]:
        assert answer["results"][0]["probabilities"] == pytest.approx(expected, abs=1e-5)
    assert answers[5]["results"][0]["score"] == pytest.approx(
        alone("similarity").similarity(TEXT, OTHER).score, abs=1e-5
    )


def test_openais_client_gets_vectors_of_similarity(client):
    with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none", max_retries=0) as api:
        answer = api.embeddings.create(model="default", input=[TEXT, OTHER])
    assert answer.model == "default:similarity"
    expected = alone("similarity").embed([TEXT, OTHER])
    np.testing.assert_allclose(np.array([each.embedding for each in answer.data]), expected, atol=1e-5)


@pytest.mark.parametrize("processes", [1, 2])
def test_the_command_serves_them(processes):
    words = ["serve", "default", "--device", "cpu", "--threads", 1, "--port", 0, "--set", f"processes={processes}"]
    with process("-m", "litebert", *words) as (_, address), httpx.Client(base_url=address, timeout=60) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        models = {each["name"]: each["packaged"] for each in client.get("/models").json()["models"]}
        assert models == {"default": False, **{f"default:{name}": True for name in NAMES}}
        for model in ({}, {"model": "default:sentiment"}):
            found = client.post("/classify", json={"text": TEXT, **model}).json()
            assert found["model"] == "default:sentiment"
            assert found["results"][0]["label"] in ("negative", "positive")
