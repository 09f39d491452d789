"""OpenAI's own client and LangChain's against our server, and the forms of text-embeddings-inference."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest
from fake_predictor import FakePredictor
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import OpenAIEmbeddings
from running import running

TEXTS = ["good morning anna", "the train leaves at noon", "anna lives in oslo"]


@pytest.fixture
def client(tiny_server):
    with openai.OpenAI(base_url=f"{tiny_server.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("form", ["float", "base64", None])  # without one, the client asks for base64 and decodes it
def test_embeddings_by_openais_client(client, tiny_predictors, form):
    more = {} if form is None else {"encoding_format": form}
    answer = client.embeddings.create(model="pretraining", input=TEXTS, **more)
    predictor = tiny_predictors["pretraining"]
    expected = predictor.embed(TEXTS, normalize=True)
    vectors = [each.embedding for each in answer.data]
    if form == "base64":
        vectors = [np.frombuffer(base64.b64decode(each), "<f4") for each in vectors]
    np.testing.assert_allclose(np.array(vectors), expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(np.array(vectors), axis=1), 1, atol=1e-6)
    assert [(each.index, each.object) for each in answer.data] == [(0, "embedding"), (1, "embedding"), (2, "embedding")]
    assert (answer.model, answer.object) == ("pretraining", "list")
    tokens = sum(len(predictor.tokenizer.encode(text)) for text in TEXTS)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == tokens


def test_one_text_and_fewer_dimensions(client, tiny_predictors):
    answer = client.embeddings.create(model="pretraining", input=TEXTS[0], dimensions=8, user="somebody")
    whole = tiny_predictors["pretraining"].embed(TEXTS[0])[:8]
    np.testing.assert_allclose(answer.data[0].embedding, whole / np.linalg.norm(whole), atol=1e-6)


def test_langchain_embeds_documents_and_queries(tiny_server, tiny_predictors):
    """Its class sends OpenAI's token ids unless told not to."""
    settings = {"model": "pretraining", "base_url": f"{tiny_server.base_url}/v1", "api_key": "none", "max_retries": 0}
    embeddings = OpenAIEmbeddings(**settings, check_embedding_ctx_length=False)
    expected = tiny_predictors["pretraining"].embed(TEXTS, normalize=True)
    np.testing.assert_allclose(np.array(embeddings.embed_documents(TEXTS)), expected, atol=1e-6)
    np.testing.assert_allclose(np.array(embeddings.embed_query(TEXTS[1])), expected[1], atol=1e-6)
    store = InMemoryVectorStore.from_texts(TEXTS, embeddings)
    best = tiny_predictors["pretraining"].search("good morning", TEXTS, lexical=0).hits
    found = store.similarity_search_with_score("good morning", k=3)
    assert [document.page_content for document, _ in found] == [hit.text for hit in best]
    assert [score for _, score in found] == pytest.approx([hit.score for hit in best], abs=1e-5)


def test_the_models_that_embed(client, tiny_predictors):
    assert [model.id for model in client.models.list()] == list(tiny_predictors)
    assert client.models.retrieve("pretraining").id == "pretraining"
    with pytest.raises(openai.NotFoundError, match="no model 'pretrainin'; did you mean 'pretraining'"):
        client.models.retrieve("pretrainin")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": "text-embedding-3-small"}, openai.NotFoundError, "no model 'text-embedding-3-small'. Loaded: pre"),
        ({"input": [[1, 2, 3]]}, openai.BadRequestError, "input: send text, not token ids"),
        ({"input": [1, 2, 3]}, openai.BadRequestError, "input: send text, not token ids"),
        ({"input": []}, openai.BadRequestError, "the list of inputs is empty"),
        ({"input": " "}, openai.BadRequestError, "input: is empty"),
        ({"input": ["a", " "]}, openai.BadRequestError, "input[1]: is empty"),
        ({"input": ["a", "b"], "dimensions": 33}, openai.BadRequestError, "dimensions: must be <= 32, the length"),
        (
            {"dimensions": 33},
            openai.BadRequestError,
            "dimensions: must be <= 32, the length of this model's vectors, not 33",
        ),
        ({"dimensions": 0}, openai.BadRequestError, "dimensions: must be >= 1"),
        ({"encoding_format": "int8"}, openai.BadRequestError, "encoding_format: must be 'float' or 'base64'"),
    ],
)
def test_mistakes_are_openais_errors(client, change, error, message):
    with pytest.raises(error) as caught:
        client.embeddings.create(**{"model": "pretraining", "input": "good", **change})
    assert message in caught.value.message
    assert caught.value.type == "invalid_request_error"
    assert set(caught.value.body) == {"code", "message", "type", "param"}


def test_a_wrong_key_and_a_full_queue_are_openais_errors():
    with running({"fake": FakePredictor()}, api_key="sesame") as server:
        with (
            openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError) as caught,
        ):
            client.embeddings.create(model="fake", input="good")
        assert (caught.value.type, caught.value.code) == ("authentication_error", "key_needed")
        with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="sesame", max_retries=0) as client:
            answer = client.embeddings.create(model="fake", input="good", encoding_format="float")
        assert answer.data[0].embedding == [4.0, 0.5]
        assert "type" not in server.post("/embed", json={"text": "a"}).json()["error"], "elsewhere our own form"


def test_rerank_as_text_embeddings_inference(tiny_server, tiny_predictors):
    hits = tiny_predictors["pretraining"].search("good morning", TEXTS).hits
    answer = tiny_server.post("/rerank", json={"query": "good morning", "texts": TEXTS, "raw_scores": False})
    assert [each["index"] for each in answer.json()] == [hit.index for hit in hits]
    assert [each["score"] for each in answer.json()] == pytest.approx([hit.score for hit in hits], abs=1e-6)
    assert set(answer.json()[0]) == {"index", "score"}
    answer = tiny_server.post("/rerank", json={"query": "good morning", "texts": TEXTS, "return_text": True})
    assert [each["text"] for each in answer.json()] == [hit.text for hit in hits]
    hits = tiny_predictors["pretraining"].search("good morning", TEXTS, lexical=0).hits
    answer = tiny_server.post("/rerank", json={"query": "good morning", "texts": TEXTS, "lexical": 0})
    assert [each["score"] for each in answer.json()] == pytest.approx([hit.score for hit in hits], abs=1e-6)
    answer = tiny_server.post("/rerank", json={"query": "good morning", "texts": []})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input")


def test_similarity_in_both_forms(tiny_server, tiny_predictors):
    predictor = tiny_predictors["pretraining"]
    expected = [each.score for each in predictor.similarity(["good morning"] * 3, TEXTS)]
    theirs = {"inputs": {"source_sentence": "good morning", "sentences": TEXTS}}
    assert tiny_server.post("/similarity", json=theirs).json() == pytest.approx(expected, abs=1e-6)
    ours = tiny_server.post("/similarity", json={"a": "good morning", "b": TEXTS}).json()
    assert [each["score"] for each in ours["results"]] == pytest.approx(expected, abs=1e-6)
    wrong = tiny_server.post("/similarity", json={"a": "good morning"}).json()["error"]["message"]
    assert wrong == "b: missing"
    wrong = tiny_server.post("/similarity", json={"inputs": {"source_sentence": "good"}}).json()["error"]["message"]
    assert wrong == "inputs.sentences: missing"
    theirs["inputs"]["sentences"] = ["good", ""]
    assert tiny_server.post("/similarity", json=theirs).json()["error"]["message"] == "inputs.sentences[1]: is empty"
