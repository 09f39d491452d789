"""Every ability through HTTP gives what the Predictor gives, in the form that OpenAPI promises."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Annotated

import httpx
import numpy as np
import pydantic
import pytest
from fake_predictor import FakePredictor
from running import running, wait_until
from tiny_models import TASKS, write_model
from typing_extensions import TypeAliasType

from litebert.predict.abilities import ABILITIES
from litebert.predict.ability import Array
from litebert.predict.masks import Candidate, FilledMasks, Mask
from litebert.predict.predictor import Predictor
from litebert.predict.questions import Choice
from litebert.predict.texts import Attention, Classification, Embedding
from litebert.serve import schemas
from litebert.serve.app import ability_routes, create_app
from litebert.serve.compat import compat_routes
from litebert.serve.service import is_large

CALLS = {
    "fill_mask": {"text": ["Anna [MASK] the old [MASK].", "[MASK] slept."], "top": 3},
    "sentence_order": {"a": "Anna bought 1,000 apples.", "b": "Ben slept.", "symmetric": True},
    "coherence": {"text": "Anna slept. Ben read the old book. The rain fell. A farmer walked to the café."},
    "embed": {"text": ["Anna slept.", "Zoë slept. " * 40], "pooling": "mean"},
    "similarity": {"a": "Anna slept.", "b": ["Ben slept.", "The rain fell."]},
    "search": {"query": "Who slept?", "texts": ["The rain fell.", "Ben slept."], "top": 1},
    "classify": {"text": "The teacher slept on Monday."},
    "tag": {"text": "Anna and Zoë walked to the café on Monday."},
    "answer": {"question": "Who slept?", "context": "Ben read the old book. Anna slept. " * 8, "top": 2},
    "choose": {"passage": "Anna slept.", "question": "Who slept?", "options": ["Ben", "Anna", "A farmer"]},
    "attention": {"text": "Anna read the old book.", "pair": "Ben slept."},
}


def path_of(ability):
    return schemas.path_of(ABILITIES[ability])


@pytest.mark.parametrize("ability", CALLS)
def test_the_server_answers_what_the_predictor_answers(tiny_server, tiny_predictors, ability):
    answer = tiny_server.post(path_of(ability), json=CALLS[ability])
    assert answer.status_code == 200, answer.text
    model = answer.json()["model"]
    arguments = schemas.request_of(ABILITIES[ability]).model_validate(CALLS[ability]).inputs()
    predictor = tiny_predictors[model]
    expected = [each.as_dict() for each in predictor.run([predictor.job(ability, **each) for each in arguments])]
    for mine, theirs in zip(answer.json()["results"], json.loads(json.dumps(expected)), strict=True):
        assert_alike(mine, theirs, 1e-4 if ability == "attention" else 1e-5)


def assert_alike(mine, theirs, tolerance):
    """The same structure and words, and numbers that differ by rounding only."""
    if isinstance(theirs, float):
        assert mine == pytest.approx(theirs, abs=tolerance)
    elif isinstance(theirs, dict):
        assert list(mine) == list(theirs)
        for key in theirs:
            assert_alike(mine[key], theirs[key], tolerance)
    elif isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert_alike(one, other, tolerance)
    else:
        assert mine == theirs


def test_answers_name_the_fields_of_the_results():
    """In their order, whatever is nested in them."""
    assert list(schemas.result_of(ABILITIES["answer"]).model_fields) == [
        *("text", "start", "end", "probability", "no_answer", "candidates", "depth"),
    ]
    for ability in ABILITIES.values():
        fields = [field.name for field in dataclasses.fields(ability.result)]
        assert list(schemas.result_of(ability).model_fields) == fields


def test_an_array_may_be_any_kind_of_alias():
    """numpy 2.5 makes NDArray an alias that `get_origin` does not see through."""
    alias = TypeAliasType("alias", np.ndarray)
    found = pydantic.TypeAdapter(schemas._as_json(Annotated[alias, Array(2)]))
    assert found.json_schema() == {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}


def test_requests_have_the_defaults_of_python():
    for ability in ABILITIES.values():
        fields = schemas.request_of(ability).model_fields
        assert [name for name in fields if name != "model"] == list(ability.parameters)
        for name, parameter in ability.parameters.items():
            assert fields[name].is_required() == parameter.required
            assert parameter.required or fields[name].default == parameter.default


def test_a_request_may_name_a_depth(tmp_path):
    write_model(tmp_path, "classification", TASKS["classification"], exits=(1, 3))
    predictor = Predictor(tmp_path, device="cpu", threads=1)
    texts = ["Anna slept.", "Ben is in Oslo."]
    with running({"mood": predictor}) as client:
        for depth in (1, 3, None):
            results = client.post("/classify", json={"text": texts, "depth": depth}).json()["results"]
            assert [result["depth"] for result in results] == [depth, depth]
            expected = predictor.classify(texts, depth=depth)
            assert [result["label"] for result in results] == [each.label for each in expected]
            for result, each in zip(results, expected, strict=True):
                assert result["probabilities"] == pytest.approx(each.probabilities, abs=1e-5)
        vectors = client.post("/embed", json={"text": texts[0], "depth": 2}).json()["results"]
        assert vectors[0]["vector"] == pytest.approx(predictor.embed(texts[0], depth=2).tolist(), abs=1e-5)
        refused = client.post("/classify", json={"text": texts, "depth": 2})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_input")
        assert "exits at 1, 3" in refused.json()["error"]["message"]


def test_a_model_of_pairs_asks_for_pairs(tiny_pairs, tiny_server, caplog):
    with running({"sts-b": tiny_pairs}) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        assert not [record for record in caplog.records if "warm_up_" in str(vars(record))]
        (model,) = client.get("/models").json()["models"]
        assert model["task"] == {"name": "sts-b", "kind": "regression", "labels": [], "pair": True, "scale": [0.0, 5.0]}
        answer = client.post("/classify", json={"text": "Anna slept."})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input")
        assert "pair: missing; this model (sts-b) takes two texts" in answer.json()["error"]["message"]
        answer = client.post("/classify", json={"text": "Anna slept.", "pair": "Ben slept."})
        assert answer.json()["results"][0]["scale"] == [0.0, 5.0]
    answer = tiny_server.post("/classify", json={"text": "Anna slept.", "pair": "Ben slept."})
    assert answer.status_code == 422
    assert "takes one text" in answer.json()["error"]["message"]
    assert next(m for m in tiny_server.get("/models").json()["models"] if m["name"] == "pretraining")["task"] is None


def test_several_models(tiny_server):
    models = tiny_server.get("/models").json()["models"]
    assert models[0]["name"] == "pretraining"
    by_default = {ability: tiny_server.post(path_of(ability), json=CALLS[ability]).json()["model"] for ability in CALLS}
    # The first that has the ability.
    assert by_default["embed"] == by_default["fill_mask"] == "pretraining"
    assert (by_default["classify"], by_default["answer"]) == ("classification", "answer")
    named = tiny_server.post("/embed", json={"text": "Anna", "model": "answer"}).json()
    assert named["model"] == "answer"
    other = tiny_server.post("/embed", json={"text": "Anna"}).json()
    assert named["results"] != other["results"]


def test_models_name_their_language(two_languages):
    models = two_languages.get("/models").json()["models"]
    assert len(models) == 10
    assert all(model["language"] == ("ko" if model["name"].startswith("ko-") else "en") for model in models)


def test_asking_a_model_for_what_it_cannot_do_names_the_command(tiny_server):
    answer = tiny_server.post("/fill-mask", json={"text": "a [MASK]", "model": "answer"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_such_ability")
    assert "litebert pretrain" in answer.json()["error"]["message"]
    answer = tiny_server.post("/tag", json={"text": "a", "model": "pretraining"})
    assert "litebert finetune" in answer.json()["error"]["message"]
    assert answer.json()["error"]["message"].startswith("pretraining: "), "by its name, not by the folder it lies in"


def test_an_unknown_model_is_404_with_a_hint(tiny_server):
    answer = tiny_server.post("/embed", json={"text": "a", "model": "pretrainin"})
    assert answer.status_code == 404
    assert "did you mean 'pretraining'" in answer.json()["error"]["message"]


def test_lists_are_answered_in_order_and_one_bad_input_is_named(tiny_server):
    texts = ["Anna slept.", "Ben read the old book (twice).", "Zoë"]
    together = tiny_server.post("/embed", json={"text": texts}).json()["results"]
    for text, result in zip(texts, together, strict=True):
        alone = tiny_server.post("/embed", json={"text": text}).json()["results"][0]
        assert result["vector"] == pytest.approx(alone["vector"], abs=1e-5)
    answer = tiny_server.post("/embed", json={"text": ["Anna", " ", "Ben"]})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("input 1: ")


def test_limits_on_inputs_and_tokens():
    with running({"fake": FakePredictor()}, request_inputs=3, request_tokens=50) as client:
        assert client.post("/embed", json={"text": ["a"] * 3}).status_code == 200
        answer = client.post("/embed", json={"text": ["a"] * 4})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_inputs")
        answer = client.post("/embed", json={"text": "a " * 49})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_tokens")


def test_a_few_bytes_cannot_ask_for_megabytes(tiny_server):
    body = {"text": "[MASK] " * 285, "top": 100}
    answer = tiny_server.post("/fill-mask", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_candidates")
    assert "285 masks with 100" in answer.json()["error"]["message"]
    answer = tiny_server.post("/fill-mask", json={**body, "text": ["[MASK] " * 95] * 3})
    assert answer.json()["error"]["code"] == "too_many_candidates", "all texts of a request count together"
    answer = tiny_server.post("/fill-mask", json={**body, "top": 70})
    assert answer.status_code == 200
    assert len(answer.content) < 5_000_000


def test_a_few_bytes_cannot_ask_for_hours(tiny_server):
    body = {"text": "[MASK] " * 16, "top": 100, "joint": True}
    answer = tiny_server.post("/fill-mask", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_tokens")
    assert "smaller `top`" in answer.json()["error"]["message"]
    assert tiny_server.post("/fill-mask", json={**body, "top": 3}).status_code == 200


def test_large_answers_are_written_beside_the_loop():
    def filled(masks, top):
        candidates = (Candidate("a", "a", 0.5, "a text"),) * top
        return FilledMasks("text", (Mask(0, 1, candidates),) * masks)

    def embedding(size):
        return Embedding(np.zeros(size, np.float32), "mean", 3, 1)

    assert not is_large([filled(5, 5)])
    assert is_large([filled(285, 100)])
    assert is_large([filled(5, 5)] * 50)
    assert not is_large([embedding(768)] * 2)
    assert is_large([embedding(768)] * 3)
    assert is_large([Attention(("a",) * 64, (0,) * 64, np.zeros((2, 2, 64, 64), np.float32))])
    assert is_large([Classification("a", {str(i): 0.5 for i in range(3000)})])
    assert not is_large([Choice(0, "x" * 30_000, (0.5, 0.5))])
    assert is_large([Choice(0, "x" * 300_000, (0.5, 0.5))])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"text": "x" * 5000}),
        ("/embed", {"text": ["x" * 50] * 100}),
        ("/choose", {"passage": "a", "question": "b", "options": ["x" * 3000, "y" * 3000]}),
    ],
)
def test_large_texts_are_read_beside_the_loop(fake, path, body):
    """While one is read, everybody else waits."""
    threads, make = [], fake.job

    def job(*arguments, **fields):
        threads.append(threading.current_thread().name)
        return make(*arguments, **fields)

    with running({"fake": fake}) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        fake.job = job
        client.post("/embed", json={"text": "short"}).raise_for_status()
        assert not threads.pop().startswith("prepare")
        client.post(path, json=body).raise_for_status()
    assert threads
    assert all(name.startswith("prepare") for name in threads)


def test_openapi_describes_every_endpoint(tiny_server):
    description = tiny_server.get("/openapi.json").json()
    for ability, entry in ABILITIES.items():
        operation = description["paths"][path_of(ability)]["post"]
        assert operation["description"]
        assert {"200", "401", "404", "413", "422", "429", "503"} <= set(operation["responses"])
        for example in entry.examples:
            assert schemas.request_of(entry).model_validate(example).inputs()
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        reference = (schema["oneOf"][0] if ability == "similarity" else schema)["$ref"]  # also in another server's form
        assert description["components"]["schemas"][reference.split("/")[-1]]["examples"] == list(entry.examples)
    assert "HTTPValidationError" not in description["components"]["schemas"], "FastAPI's own form of errors is not ours"


@pytest.mark.parametrize("ability", CALLS)
def test_the_examples_of_the_documentation_work(tiny_server, ability):
    answer = tiny_server.post(path_of(ability), json=ABILITIES[ability].examples[0])
    assert answer.status_code == 200, answer.text


def test_the_documentation_needs_no_network(tiny_server):
    page = tiny_server.get("/docs").text
    assert "<script" not in page
    assert "http" not in page.replace(str(tiny_server.base_url), "")
    for ability in ABILITIES:
        assert f"</small> {path_of(ability)}</h2>" in page


def test_the_commands_of_the_documentation_go_to_this_server(tiny_server, fake):
    page = tiny_server.get("/docs").text
    for ability in ABILITIES:
        assert f"curl -s {tiny_server.base_url}{path_of(ability)} " in page
    assert "Bearer" not in page
    with running({"fake": fake}, allowed_hosts=("*",)) as client:
        elsewhere = client.get("/docs", headers={"Host": "<b>.example"})
        assert elsewhere.status_code == 200
        assert "<b>" not in elsewhere.text
    with running({"fake": fake}, api_key="sesame") as client:
        page = client.get("/docs").text
        assert "Bearer $LITEBERT_API_KEY" in page
        assert "sesame" not in page


def test_answers_have_the_promised_form(tiny_server):
    """What FastAPI would have checked, had the answer not been written by hand."""
    seen = set()
    routes = [*ability_routes().routes, *(each for each in compat_routes({}).routes if each.path == "/similarity")]
    for route in routes:
        ability = route.path.strip("/").replace("-", "_")
        answer = tiny_server.post(route.path, json=CALLS[ability])
        pydantic.TypeAdapter(route.response_model).validate_json(answer.content, strict=True)
        seen.add(ability)
    assert seen == set(CALLS)


def test_an_app_needs_a_model():
    from litebert.errors import ConfigError

    with pytest.raises(ConfigError, match="at least one model"):
        create_app({})


def test_any_asgi_server_can_run_the_app(fake):
    """create_app alone is enough: the lifespan starts and ends the threads."""
    import asyncio

    async def talk():
        app = create_app({"fake": fake})
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
        ):
            answers = await asyncio.gather(*(client.post("/embed", json={"text": "x" * i}) for i in range(1, 9)))
        return [answer.json()["results"][0]["vector"][0] for answer in answers]

    assert asyncio.run(talk()) == [1, 2, 3, 4, 5, 6, 7, 8]
