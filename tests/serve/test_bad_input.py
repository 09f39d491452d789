"""Every bad request gets a clear 4xx in our error format, never a 500, and the server goes on."""

from __future__ import annotations

import json

import hypothesis
import pytest
import schemathesis
from fake_predictor import FakePredictor
from hypothesis import strategies as st
from running import running, wait_until
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from litebert.predict.abilities import ABILITIES
from litebert.serve.app import create_app
from litebert.serve.schemas import path_of

JSON = {"Content-Type": "application/json"}
ENDPOINTS = [path_of(ability) for ability in ABILITIES.values()]


def check_refusal(answer, *statuses):
    """A refusal in our own form, from one of these statuses."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:300])
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert all(isinstance(value, str) and value for value in body["error"].values())
    return body["error"]["message"]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"null", 422),
        (b"[]", 422),
        (b'"text"', 422),
        (b"{}", 422),
        (b'{"text": "a" "b"}', 400),
        (b"\xff\xfe\x00", 400),
        (b'{"text": "\xc3\x28"}', 400),
        (b"[" * 100_000, 400),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 400),
        (b'{"top": ' + b"9" * 5000 + b"}", 400),
        (b'{"\\ud800": "\\udfff"}', 422),
        (b'{"nonsense": 1e999, "top": NaN}', 422),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_is_no_request(tiny_server, path, body, status):
    # 422 is also fine for what the parser lets through: which it is differs between versions of Python.
    check_refusal(tiny_server.post(path, content=body, headers=JSON), status, 422)


def variants():
    """Each ability's example with one field replaced by something that it cannot be."""
    for ability, entry in ABILITIES.items():
        example = entry.examples[0]
        for field in example:
            for wrong in (
                None,
                5,
                1.5,
                True,
                {},
                {"a": "b"},
                [5],
                [None],
                "",
                "   ",
                "\t\n",
                [],
                [""],
            ):
                if (ability, field) == ("choose", "question") and wrong == "":
                    continue  # a passage alone may ask
                yield ability, {**example, field: wrong}


@pytest.mark.parametrize("ability", ABILITIES)
def test_fields_that_cannot_be(tiny_server, ability):
    for name, body in variants():
        if name == ability:
            check_refusal(tiny_server.post(path_of(ABILITIES[ability]), json=body), 422)


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/fill-mask", {"text": "there is no mask"}, "[MASK]"),
        ("/fill-mask", {"text": "a [MASK]", "top": 0}, "top: "),
        ("/fill-mask", {"text": "a [MASK]", "top": "3"}, "top: "),
        ("/fill-mask", {"text": "a [MASK]", "topp": 3}, "topp: "),
        ("/sentence-order", {"a": ["x", "y"], "b": ["x"]}, "a has 2, b has 1"),
        ("/coherence", {"text": "Only one sentence here"}, "sentence"),
        ("/embed", {"text": "a", "pooling": "sum"}, "pooling: "),
        ("/embed", {"text": "a\ud800b"}, "character 1"),
        ("/embed", {"text": ["fine", "a\udfff"]}, "text.1: character 1"),
        ("/choose", {"passage": "a", "question": "b", "options": ["c"]}, "options: "),
        ("/choose", {"passage": "a", "question": "b", "options": "cd"}, "options: "),
        ("/attention", {"text": "a", "max_tokens": 1000}, "max_tokens: "),
        ("/answer", {"question": "who?", "context": ""}, "context"),
    ],
)
def test_the_message_names_what_is_wrong(tiny_server, path, body, words):
    answer = tiny_server.post(path, content=json.dumps(body), headers=JSON)
    assert words in check_refusal(answer, 422)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/classify", {"txt": "a"}, "text: missing; txt: unknown field; did you mean 'text'?"),
        ("/classify", {"texts": ["a"]}, "text: missing; texts: unknown field; did you mean 'text'?"),
        ("/classify", {"text": "a", "speed": 2}, "speed: unknown field"),
        ("/classify", {"text": 5}, "text: must be a text or a list"),
        ("/classify", {"text": ["a", 5]}, "text.1: must be a text"),
        ("/classify", {"text": "a", "depth": "x"}, "depth: must be a whole number or 'auto'"),
        ("/classify", ["a"], "body: must be a JSON object"),
        ("/fill-mask", {"text": "a [MASK]", "top": 0}, "top: must be >= 1"),
        ("/fill-mask", {"text": "a [MASK]", "top": 1000}, "top: must be <= 100"),
        ("/fill-mask", {"text": "a [MASK]", "joint": "yes"}, "joint: must be true or false"),
        ("/search", {"query": "a", "texts": []}, "texts: must be a list of at least 1"),
    ],
)
def test_the_message_is_in_plain_words(tiny_server, path, body, message):
    assert check_refusal(tiny_server.post(path, json=body), 422) == message


def test_ten_megabytes(tiny_server):
    for path in ENDPOINTS[:2]:
        check_refusal(tiny_server.post(path, json={"text": "word " * 2_000_000}), 413)
    # As much as is allowed is read, counted, and found to be too many tokens.
    answer = tiny_server.post("/embed", json={"text": "Anna slept. " * 80_000})
    assert "tokens" in check_refusal(answer, 413)
    assert tiny_server.post("/embed", json={"text": "Anna"}).status_code == 200


ODD_TEXTS = {
    "right to left": "שלום [MASK] עולם. مرحبا بالعالم.",
    "mixed": "abc אבג 123 [MASK] ١٢٣ مرحبا. Ω\u202eevil\u202c.",
    "emoji": "👩‍👩‍👧‍👦 [MASK] 🏳️‍🌈 👍🏽. 🇳🇴 wins!",
    "control": "a\x00b\x07 [MASK] \x1b[31mred\x7f. c\u2028d.",
    "nothing to see": "\x00\u200b\u00ad [MASK] \u200b. \x00.",
    "combining": "Z\u0351\u036b\u0343a\u0334\u0321lgo [MASK]. e\u0301.",
    "unassigned": "\U000e0001\uffff\ufdd0 [MASK] \ue000. \ufeffx.",
    "one word": "a" * 5000 + " [MASK]. B.",
    "specials": "[CLS] [SEP] <pad> [MASK] <unk> ▁. [SEP] x.",
    "asian": "나는 [MASK] 서울에. 我在[MASK]北京。日本語も。",
    "markup": "<script>alert(1)</script> [MASK] {{7*7}} ' OR 1=1 --. %s %n.",
}


def odd_requests(text):
    """A text in the fields of every ability."""
    bodies = {
        "fill_mask": {"text": text},
        "sentence_order": {"a": text, "b": text},
        "coherence": {"text": text + " Anna slept. " + text},
        "embed": {"text": text},
        "similarity": {"a": text, "b": text},
        "search": {"query": text, "texts": [text, "b"]},
        "classify": {"text": text, "pair": text},
        "tag": {"text": text},
        "answer": {"question": text, "context": text},
        "choose": {"passage": text, "question": text, "options": [text, "b"]},
        "attention": {"text": text, "pair": text},
    }
    assert set(bodies) == set(ABILITIES)
    return bodies


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_odd_texts_are_answered_or_refused_but_never_break_anything(tiny_server, text):
    for ability, body in odd_requests(text).items():
        answer = tiny_server.post(path_of(ABILITIES[ability]), json=body)
        if answer.status_code != 200:
            check_refusal(answer, 422, 413)
        elif ability == "fill_mask":
            result = answer.json()["results"][0]
            assert result["text"] == text
            assert all(result["text"][mask["start"] : mask["end"]] == "[MASK]" for mask in result["masks"])
        elif ability == "tag":
            assert all(text[w["start"] : w["end"]] == w["text"] for w in answer.json()["results"][0]["words"])


# What schemathesis makes of our OpenAPI description: requests that follow it, and such that do not.
SCHEMA = schemathesis.openapi.from_dict(create_app({"fake": FakePredictor()}).openapi())


@SCHEMA.parametrize()
@hypothesis.settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
def test_made_requests(tiny_server, case):
    answer = case.call(base_url=str(tiny_server.base_url))
    assert answer.status_code < 500, answer.text
    case.validate_response(
        answer, checks=[status_code_conformance, content_type_conformance, response_schema_conformance]
    )


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(path=st.sampled_from(ENDPOINTS), text=st.text(max_size=60), other=st.text(max_size=20))
def test_any_text(tiny_server, path, text, other):
    body = {
        "/sentence-order": {"a": text, "b": other},
        "/similarity": {"a": text, "b": other},
        "/search": {"query": other, "texts": [text, other]},
        "/answer": {"question": other, "context": text},
        "/choose": {"passage": text, "question": other, "options": [other, text]},
        "/classify": {"text": text, "pair": other},
        "/fill-mask": {"text": f"{text} [MASK] {other}"},
    }.get(path, {"text": text})
    answer = tiny_server.post(path, content=json.dumps(body), headers=JSON)
    if answer.status_code != 200:
        check_refusal(answer, 422)


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(path=st.sampled_from(ENDPOINTS), body=st.binary(max_size=80))
def test_any_bytes(tiny_server, path, body):
    check_refusal(tiny_server.post(path, content=body, headers=JSON), 400, 422)


def test_the_server_is_still_there_and_nothing_was_its_own_failure(tiny_predictors):
    with running(tiny_predictors) as client:
        for text in ODD_TEXTS.values():
            for ability, body in odd_requests(text).items():
                client.post(path_of(ABILITIES[ability]), json=body)
        for body in (b"", b"{", b"\xff", b"[" * 100_000):
            client.post("/embed", content=body, headers=JSON)
        wait_until(lambda: client.get("/ready").status_code == 200)
        counts = client.get("/metrics").text
    assert 'litebert_requests_total{endpoint="/embed",status="200"}' in counts
    assert "litebert_failures_total{" not in counts


def test_wrong_paths_and_methods():
    with running({"fake": FakePredictor()}) as client:
        check_refusal(client.get("/nothing/../here%00"), 404)
        answer = client.get("/embed")
        check_refusal(answer, 405)
        assert answer.headers["allow"] == "POST"
        check_refusal(client.request("PROPFIND", "/embed"), 405)
        # Not every parser of HTTP lets a method through that it has never heard of.
        assert client.request("BREW", "/embed").status_code in (400, 405)
        check_refusal(client.post("/embed/", json={}), 404)
        # GET /models names the abilities as Python does.
        assert "no such path; did you mean '/fill-mask'?" in check_refusal(client.post("/fill_mask", json={}), 404)
        assert check_refusal(client.get("/xyzzy"), 404) == "no such path; GET /docs lists the endpoints"
