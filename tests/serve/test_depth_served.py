"""Depth by request over HTTP: any ability at a depth, texts that stop early, requests that join others on their way."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from running import at_once, running, wait_until
from tiny_models import TASKS, write_model

from litebert.predict.exits import ExitRule, save_rule
from litebert.predict.predictor import Predictor
from litebert.predict.runtime import Request
from litebert.predict.torch_runtime import TorchStages

TEXTS = [f"a {word} dog runs in the park {'and sleeps ' * (number % 4)}" for number, word in enumerate("abcdefghijklm")]
REQUESTS = {
    "classification": ("classify", {"text": TEXTS[0]}),
    "token-classification": ("tag", {"text": TEXTS[1]}),
    "answer": ("answer", {"question": "who runs?", "context": " ".join(TEXTS)}),
    "multiple-choice": ("choose", {"passage": TEXTS[2], "question": "who?", "options": ["a dog", "a cat", "a fox"]}),
    "pretraining": ("fill-mask", {"text": "a dog [MASK] in the park"}),
}
RULE = ExitRule("patience", patience=1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exits")
    torch.manual_seed(5)
    for head, task in TASKS.items():
        write_model(folder / head, head, task, exits=(1, 2, 3))
        save_rule(RULE, folder / head, {})
    return folder


def open_predictor(folder, **more):
    return Predictor(folder, device="cpu", threads=1, **more)


@pytest.mark.parametrize("head", REQUESTS)
def test_a_request_names_its_depth(folders, head):
    ability, body = REQUESTS[head]
    predictor = open_predictor(folders / head)
    with running({"tiny": predictor}) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        for depth in (1, 3, "auto"):
            answer = client.post(f"/{ability}", json={**body, "depth": depth})
            if depth == "auto" and head == "pretraining":
                assert answer.status_code == 422
                continue
            assert answer.status_code == 200, answer.text
            said = answer.json()
            (result,) = said.get("results") or [said["result"]]
            expected = getattr(predictor, ability.replace("-", "_"))(**body, depth=depth)
            assert result["depth"] == expected.depth
            assert expected.depth == depth or (depth == "auto" and 2 <= expected.depth <= 3)
        assert client.post(f"/{ability}", json={**body, "depth": 4}).status_code == 422
        full = client.post(f"/{ability}", json=body).json()
        assert (full.get("results") or [full["result"]])[0]["depth"] is None


def test_requests_join_those_on_their_way_and_are_answered_as_alone(folders, monkeypatch):
    """One text is held at its first layers until the others wait: they join its pass, and it leaves before them."""
    predictor = open_predictor(folders / "classification", depth="auto")
    expected = {text: predictor.classify(text) for text in TEXTS}
    runs, mixed = [], []
    begun, go = threading.Event(), threading.Event()
    run_open, apply = predictor.runtime.run_open, TorchStages.apply

    def counted(*arguments):
        runs.append(arguments[0])
        return run_open(*arguments)

    def held(self, states, lengths, *layers):
        begun.set()
        assert go.wait(60)
        mixed.append(len(lengths))
        return apply(self, states, lengths, *layers)

    with running({"tiny": predictor}, batch_wait_ms=0, batch_tokens=200) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        monkeypatch.setattr(predictor.runtime, "run_open", counted)
        monkeypatch.setattr(TorchStages, "apply", held)
        found = {}

        def ask(number):
            found[TEXTS[number]] = client.post("/classify", json={"text": TEXTS[number]}).json()["results"][0]

        first = threading.Thread(target=ask, args=(0,))
        first.start()
        wait_until(begun.is_set)
        others = [threading.Thread(target=ask, args=(number,)) for number in range(1, len(TEXTS))]
        for thread in others:
            thread.start()
        queue = client.app.state.service.batchers["tiny"]._queue
        wait_until(lambda: queue.waiting == len(others))
        go.set()
        for thread in (first, *others):
            thread.join()
        assert len(runs) == 1
        assert max(mixed) > 1
        assert not queue._running
        counted_tokens = client.get("/metrics").text
    assert "litebert_batch_tokens_count" in counted_tokens
    for text, result in found.items():
        assert result["depth"] == expected[text].depth
        assert result["probabilities"] == pytest.approx(expected[text].probabilities, abs=1e-5)


def held() -> int:
    """Sequences and tensors in memory."""
    gc.collect()
    return sum(type(each) in (torch.Tensor, Request) for each in gc.get_objects())


def test_others_get_their_turn_and_nothing_stays_in_memory(folders):
    """Vectors cannot join: they wait for a pass of their own, however many texts stop early meanwhile."""
    predictor = open_predictor(folders / "classification", depth="auto")
    expected = [predictor.classify(text) for text in TEXTS]
    with running({"tiny": predictor}, batch_tokens=64, batch_wait_ms=0) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)

        def ask(number):
            if number % 5 == 4:
                return client.post("/embed", json={"text": TEXTS[0]}).status_code == 200
            answer = client.post("/classify", json={"text": TEXTS}).json()["results"]
            return [each["label"] for each in answer] == [each.label for each in expected]

        assert all(at_once(20, ask))
        before = held()
        for _ in range(3):
            assert all(at_once(20, ask))
        assert held() <= before + 4


def test_a_failing_pass_fails_alone(folders, monkeypatch):
    """What breaks an open pass breaks one request at most: the others are tried by themselves."""
    predictor = open_predictor(folders / "classification", depth="auto")
    expected = predictor.classify(TEXTS[0])
    answer, broken = TorchStages.answer, []

    def breaks(self, *arguments):
        if not broken:
            broken.append(True)
            raise RuntimeError("once")
        return answer(self, *arguments)

    with running({"tiny": predictor}, batch_wait_ms=0) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        monkeypatch.setattr(TorchStages, "answer", breaks)
        said = client.post("/classify", json={"text": TEXTS[0]}).json()["results"][0]
        assert broken
        assert said["label"] == expected.label
