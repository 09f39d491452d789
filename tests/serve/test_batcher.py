"""Requests share batches; the queue is bounded; what was accepted is answered, or told why not."""

from __future__ import annotations

import asyncio
import json
import socket
import threading

import httpx
import pytest
from fake_predictor import FakePredictor
from running import at_once, running, wait_until

from litebert.errors import InputError
from litebert.serve.batcher import Batcher
from litebert.serve.config import ServeConfig
from litebert.serve.schemas import Refusal
from litebert.serve.telemetry import Metrics


def embed(client, text, **fields):
    return client.post("/embed", json={"text": text, **fields})


def occupy(client, fake):
    """One request that sits in the model (behind the warm-up, which runs first)."""
    fake.entered.clear()
    thread = threading.Thread(target=embed, args=(client, "occupied"))
    thread.start()
    return thread


def block(client, fake):
    """The same once the server is ready; the model is held until `fake.go` is set."""
    wait_until(lambda: client.get("/ready").status_code == 200)
    fake.go.clear()
    first = occupy(client, fake)
    wait_until(fake.entered.is_set)
    return first


def together(client, fake, count, call):
    """The answers to calls that stand in the queue together, behind one request that sits in the model until then."""
    first = block(client, fake)

    def release():
        wait_until(lambda: client.app.state.service.batchers["fake"]._queue.waiting == count)
        fake.go.set()

    releasing = threading.Thread(target=release)
    releasing.start()
    answers = at_once(count, call)
    first.join()
    releasing.join()
    return answers


def served(fake):
    """The batches that came from requests, as the texts in them."""
    return [
        [job.arguments["text"] for job in batch] for batch in fake.batches if batch[0].arguments.get("text") in TEXTS
    ]


TEXTS = {"occupied", *(f"text {i}" for i in range(40))}


def test_requests_that_wait_together_run_together_and_nobody_gets_anothers_answer(fake):
    with running({"fake": fake}, batch_tokens=512) as client:
        texts = [f"text {i}" for i in range(20)]
        answers = together(client, fake, 20, lambda i: embed(client, [texts[i], texts[i] + "0" * i]))
    for i, answer in enumerate(answers):
        lengths = [result["vector"][0] for result in answer.json()["results"]]
        assert lengths == [len(texts[i]), len(texts[i]) + i]
    assert len(fake.batches[-1]) == 40, "all twenty waiting requests went through the model at once"


def test_a_batch_ends_at_its_budget_and_keeps_the_order_of_arrival(fake):
    # Each text costs 4 tokens, so a budget of 10 takes two requests.
    with running({"fake": fake}, batch_tokens=10) as client:
        first = block(client, fake)
        queue = client.app.state.service.batchers["fake"]._queue
        threads = []
        for i in range(6):
            threads.append(threading.Thread(target=embed, args=(client, f"text {i}")))
            threads[-1].start()
            wait_until(lambda i=i: queue.waiting == i + 1)
        fake.go.set()
        for thread in [first, *threads]:
            thread.join()
    assert served(fake)[1:] == [["text 0", "text 1"], ["text 2", "text 3"], ["text 4", "text 5"]]


def test_abilities_share_a_batch(fake):
    with running({"fake": fake}, batch_tokens=512) as client:
        calls = [("/embed", {"text": "text 1"}), ("/attention", {"text": "text 2"})]
        together(client, fake, 2, lambda i: client.post(calls[i][0], json=calls[i][1]).raise_for_status())
    assert {job.ability for job in fake.batches[-1]} == {"embed", "attention"}


def test_a_request_larger_than_the_budget_runs_alone(fake):
    with running({"fake": fake}, batch_tokens=5) as client:
        assert embed(client, "a b c d e f g h i j").status_code == 200


def test_a_small_request_goes_before_the_rest_of_a_large_one():
    fake = FakePredictor(window=10)
    with running({"fake": fake}, batch_tokens=10) as client:
        answers = behind_a_large_one(client, fake, lambda: embed(client, "small"))
        assert [answer.status_code for answer in answers] == [200, 200]
        assert answers[0].json()["results"][0]["vector"][0] == len("large " * 98)
    assert fake.passes[-11:] == [[("large la", 10)], [("small", 3)], *[[("large la", 10)]] * 9]


def test_a_large_request_that_nobody_waits_for_is_not_finished():
    fake = FakePredictor(window=10)
    with running({"fake": fake}, batch_tokens=10, timeout_s=1) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        begun = len(fake.passes)
        fake.go.clear()
        late = embed(client, "large " * 98)
        assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")
        fake.go.set()
        assert embed(client, "small").status_code == 200
    assert fake.passes[begun:] == [[("large la", 10)], [("small", 3)]]


def test_a_client_that_goes_away_frees_its_place():
    fake = FakePredictor(window=10)
    with running({"fake": fake}, batch_tokens=10) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        begun = len(fake.passes)
        fake.go.clear()
        fake.entered.clear()
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=60) as connection:
            body = json.dumps({"text": "large " * 98}).encode()
            head = "POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(fake.entered.is_set)
        wait_until(lambda: "litebert_connections 1" in client.get("/metrics").text)
        fake.go.set()
        assert embed(client, "small").status_code == 200
        assert 'litebert_requests_total{endpoint="/embed",status="0"} 1.0' in client.get("/metrics").text
    assert fake.passes[begun:] == [[("large la", 10)], [("small", 3)]]


def behind_a_large_one(client, fake, ask):
    """The answers to a large request and to one that comes while the first pass of the large one is in the model."""
    wait_until(lambda: client.get("/ready").status_code == 200)
    fake.go.clear()
    fake.entered.clear()
    answers = [None, None]

    def large():
        answers[0] = embed(client, "large " * 98)

    def small():
        answers[1] = ask()

    threads = [threading.Thread(target=large), threading.Thread(target=small)]
    threads[0].start()
    wait_until(fake.entered.is_set)
    threads[1].start()
    wait_until(lambda: client.app.state.service.batchers["fake"]._queue.waiting == 1)
    fake.go.set()
    for thread in threads:
        thread.join()
    return answers


def test_what_a_slow_device_cannot_do_in_time_is_refused_at_once(fake):
    """2 tokens per second and 8 s per request: three quarters of 16 tokens may wait."""

    async def talk():
        batcher = Batcher("fake", fake, ServeConfig(timeout_s=8, batch_tokens=4), Metrics())
        batcher._speed.note(20, 10.0)
        batcher.start()
        fake.go.clear()
        first = batcher.accept([fake.job("embed", text="w " * 98)])  # nothing ahead: it is tried
        await asyncio.to_thread(wait_until, lambda: first.started)
        accepted = [batcher.accept([fake.job("embed", text="a b")]) for _ in range(3)]
        with pytest.raises(Refusal) as refusal:
            batcher.accept([fake.job("embed", text="a b")])
        assert (refusal.value.status, refusal.value.headers) == (429, {"Retry-After": "6"})
        fake.go.set()
        await asyncio.gather(first.promise, *(ticket.promise for ticket in accepted))
        await batcher.close()

    asyncio.run(talk())


@pytest.mark.parametrize("setting", [{"queue_requests": 3}, {"queue_tokens": 12, "request_tokens": 12}])
def test_a_full_queue_refuses_with_429_and_loses_nothing(fake, setting):
    # Each text costs 4 tokens: three fit either queue.
    with running({"fake": fake}, **setting) as client:
        first = block(client, fake)
        answers: list[httpx.Response] = []
        threads = [threading.Thread(target=lambda i=i: answers.append(embed(client, f"text {i}"))) for i in range(10)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answers) == 7)
        assert {answer.status_code for answer in answers} == {429}
        for answer in answers:
            assert answer.json()["error"]["code"] == "queue_full"
            assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert 'litebert_refused_total{model="fake",reason="queue_full"} 7.0' in client.get("/metrics").text
        assert 'litebert_queue_requests{model="fake"} 3.0' in client.get("/metrics").text
        fake.go.set()
        for thread in [first, *threads]:
            thread.join()
        assert [answer.status_code for answer in answers].count(200) == 3
        assert 'litebert_queue_tokens{model="fake"} 0.0' in client.get("/metrics").text


def test_a_request_that_cannot_start_in_time_is_503_and_never_runs(fake):
    with running({"fake": fake}, timeout_s=2) as client:
        first = block(client, fake)
        late = embed(client, "text 1")
        assert (late.status_code, late.json()["error"]["code"]) == (503, "overloaded")
        assert int(late.headers["retry-after"]) >= 1
        fake.go.set()
        first.join()
        wait_until(lambda: embed(client, "text 2").status_code == 200)
    assert ["text 2"] in served(fake)
    assert ["text 1"] not in served(fake)


def test_a_request_that_does_not_finish_in_time_is_504(fake):
    with running({"fake": fake}, timeout_s=2) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        fake.go.clear()
        late = embed(client, "text 1")
        assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")
        fake.go.set()
        wait_until(lambda: embed(client, "text 2").status_code == 200)


def test_a_job_that_fails_takes_no_other_down(fake):
    with running({"fake": fake}, batch_tokens=512) as client:
        texts = ["text 1", "explode", "explain"]
        answers = together(client, fake, 3, lambda i: embed(client, texts[i]))
        assert len(fake.batches[-1]) == 3
        assert [answer.status_code for answer in answers] == [200, 503, 422]
        assert answers[1].json()["error"]["code"] == "failed"
        assert "found out late" in answers[2].json()["error"]["message"]
        assert 'litebert_failures_total{model="fake"} 1.0' in client.get("/metrics").text


def test_a_model_that_breaks_altogether_is_503_and_the_server_lives(fake):
    def broken(jobs):
        raise MemoryError("gone")

    with running({"fake": fake}) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        fake.run_pass = broken
        assert embed(client, "text 1").status_code == 503
        del fake.run_pass
        assert embed(client, "text 1").status_code == 200


def test_not_ready_before_the_warm_up_is_over(fake):
    fake.go.clear()
    with running({"fake": fake, "other": FakePredictor("other")}) as client:
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "warming_up")
        assert "fake" in answer.json()["error"]["message"]
        assert client.get("/health").status_code == 200
        fake.go.set()
        wait_until(lambda: client.get("/ready").status_code == 200)
    assert {batch[0].ability for batch in fake.batches} == set(fake.abilities), "every ability was tried once"


def test_a_model_that_computes_nan_is_not_ready(fake):
    fake.number = float("nan")
    with running({"fake": fake, "other": FakePredictor("other")}) as client:
        wait_until(lambda: client.get("/ready").json()["error"]["code"] != "warming_up")
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unusable")
        assert "fake: fill_mask, " in answer.json()["error"]["message"]
        assert "other" not in answer.json()["error"]["message"]
        answer = embed(client, "text 1", model="fake")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "failed")
        assert "NaN" in answer.json()["error"]["message"]
        assert embed(client, "text 1", model="other").status_code == 200


def test_a_model_that_fails_when_it_is_tried_is_not_ready(fake):
    fake._result = lambda job: RuntimeError("broken") if job.ability == "tag" else FakePredictor._result(fake, job)
    with running({"fake": fake}) as client:
        wait_until(lambda: client.get("/ready").json()["error"]["code"] != "warming_up")
        assert "fake: tag;" in client.get("/ready").json()["error"]["message"]


def test_an_example_that_does_not_fit_a_model_does_not_make_it_unusable(fake):
    fake._result = lambda job: InputError("text: too long")
    with running({"fake": fake}) as client:
        wait_until(lambda: client.get("/ready").status_code != 503)
        assert client.get("/ready").status_code == 200


def test_closing_finishes_what_waits(fake):
    answers = []
    with running({"fake": fake}, batch_tokens=4) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        fake.go.clear()
        fake.entered.clear()
        url = client.base_url.join("/embed")
        threads = [
            threading.Thread(target=lambda i=i: answers.append(httpx.post(url, json={"text": f"text {i}"}, timeout=60)))
            for i in range(6)
        ]
        for thread in threads:
            thread.start()
        wait_until(fake.entered.is_set)
        wait_until(lambda: client.app.state.service.batchers["fake"]._queue.waiting == 5)
        assert not answers
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 6


@pytest.mark.parametrize("by", ["handler", "promise"])
def test_closing_does_not_run_what_nobody_waits_for(fake, by):
    """After shutdown_s uvicorn cancels the handlers; what they had queued would only keep the process alive."""

    async def talk():
        batcher = Batcher("fake", fake, ServeConfig(batch_tokens=4), Metrics())
        batcher.start()
        fake.go.clear()
        tickets = [batcher.accept([fake.job("embed", text=f"text {i}")]) for i in range(3)]
        handlers = [asyncio.create_task(batcher.wait(ticket, 60)) for ticket in tickets]
        await asyncio.to_thread(wait_until, lambda: tickets[0].started)
        if by == "handler":
            handlers[1].cancel()
        else:
            tickets[1].promise.cancel()
        results = await asyncio.gather(handlers[1], return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        fake.go.set()
        await batcher.close()
        return [result[0].vector[0] for result in await asyncio.gather(handlers[0], handlers[2])]

    assert asyncio.run(talk()) == [6, 6]
    assert served(fake) == [["text 0"], ["text 2"]]
