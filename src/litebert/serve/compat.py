"""Endpoints in the form of other servers, so that their clients work here.

OpenAI: POST /v1/embeddings and GET /v1/models, with OpenAI's form of errors. text-embeddings-inference: POST /rerank
and POST /similarity (the ability of that name takes `a` and `b`; a body with `inputs` is theirs). Vectors have length
1, and scores are cosines.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from fastapi import APIRouter
from fastapi import Request as HttpRequest
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from litebert.predict.abilities import ABILITIES
from litebert.predict.ability import Ability
from litebert.predict.similarity import LEXICAL
from litebert.serve.schemas import Refusal, Results, Text, Texts, request_of, result_of
from litebert.serve.service import Service, dump, stack_finite

MOST_TEXTS = 1000  # of one request to rerank or to compare, as for the ability `search`


class Compatible(BaseModel):
    """A request of another server's client; fields that mean nothing here are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")
    ability: ClassVar[Ability]
    fields: ClassVar[Mapping[str, str]] = {}  # how our messages name a field (a pattern) -> how the client knows it
    model: Annotated[Text | None, Field(description="One of GET /models; by default the first with the ability.")] = (
        None
    )

    def inputs(self) -> list[dict[str, Any]]:
        """The arguments of each job."""
        raise NotImplementedError

    def encode(self, model: str, results: Sequence[Any]) -> bytes:
        """The results as JSON."""
        raise NotImplementedError


# ---------------------------------------------------------------------------------------------------------------------
# OpenAI


class Embeddings(Compatible):
    """Texts to embed, as OpenAI's clients send them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "default", "input": ["a cat sleeps."]}]})
    ability = ABILITIES["embed"]
    fields = {r"(input \d+: )?size": "dimensions", r"input (\d+): text": r"input[\2]", "text": "input"}
    input: Annotated[Texts | list[int] | list[list[int]], Field(description="A text or a list of texts.")]
    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        Field(description="Vectors as lists of numbers, or as float32 bytes in base64."),
    ] = "float"
    dimensions: Annotated[
        int | None,
        Field(ge=1, description="Keep this many numbers of each vector; for models trained with several sizes."),
    ] = None

    def inputs(self) -> list[dict[str, Any]]:
        """One job per text."""
        texts = [self.input] if isinstance(self.input, str) else self.input
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(
                "input: send text, not token ids, which belong to another vocabulary (LangChain's OpenAIEmbeddings: "
                "check_embedding_ctx_length=False)"
            )
        return [{"text": text, "normalize": True, "size": self.dimensions} for text in texts]

    def encode(self, model: str, results: Sequence[Any]) -> bytes:
        """OpenAI's list of embeddings, with the tokens counted."""
        tokens = sum(result.tokens for result in results)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        if self.encoding_format == "base64":  # put together by hand: json would look at each letter of it
            vectors = stack_finite(results)
            raws = (base64.b64encode(vector.tobytes()) for vector in vectors.astype("<f4", copy=False))
            entry = b'{"object":"embedding","index":%d,"embedding":"%b"}'
            listed = b",".join(entry % (index, raw) for index, raw in enumerate(raws))
            return b'{"object":"list","data":[%b],"model":%b,"usage":%b}' % (listed, dump(model), dump(usage))
        data = [
            {"object": "embedding", "index": index, "embedding": np.round(result.vector.astype(np.float64), 7).tolist()}
            for index, result in enumerate(results)
        ]
        return dump({"object": "list", "data": data, "model": model, "usage": usage})


class EmbeddingObject(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The vectors of a request, in the order of its texts."""

    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: Usage


# ---------------------------------------------------------------------------------------------------------------------
# text-embeddings-inference


class Rerank(Compatible):
    """A query and the texts to sort by their nearness to it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "how do plants grow?", "texts": ["the train leaves.", "a seed needs water."]}]
        }
    )
    ability = ABILITIES["search"]
    query: Annotated[Text, Field(description="What to look for.")]
    texts: Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS, description="The texts to sort.")]
    lexical: Annotated[
        float, Field(ge=0, le=1, description="How much shared words count: 0 for the vectors alone, 1 for words alone.")
    ] = LEXICAL
    return_text: Annotated[bool, Field(description="Whether results repeat the texts.")] = False

    def inputs(self) -> list[dict[str, Any]]:
        """One search."""
        return [{"query": self.query, "texts": self.texts, "top": len(self.texts), "lexical": self.lexical}]

    def encode(self, model: str, results: Sequence[Any]) -> bytes:
        """A list, the best first."""
        names = ("index", "score", "text") if self.return_text else ("index", "score")
        return dump([{name: getattr(hit, name) for name in names} for hit in results[0].hits])


class Ranked(BaseModel):
    """One text of a sorted list."""

    index: int
    score: float
    text: str | None = None


class Sentences(BaseModel):
    """A sentence and those to compare it with."""

    model_config = ConfigDict(strict=True)
    source_sentence: Text
    sentences: Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]


class Compare(Compatible):
    """A sentence and those to compare it with, as text-embeddings-inference takes them."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"inputs": {"source_sentence": "a cat sleeps.", "sentences": ["a cat rests.", "a dog barks."]}}
            ]
        }
    )
    ability = ABILITIES["search"]
    fields = {"texts": "inputs.sentences", "query": "inputs.source_sentence"}
    sentences: Annotated[Sentences, Field(alias="inputs")]

    def inputs(self) -> list[dict[str, Any]]:
        """One search over all of them."""
        texts = self.sentences.sentences
        return [{"query": self.sentences.source_sentence, "texts": texts, "top": len(texts), "lexical": 0.0}]

    def encode(self, model: str, results: Sequence[Any]) -> bytes:
        """The scores in the order of the sentences."""
        return dump([hit.score for hit in sorted(results[0].hits, key=lambda hit: hit.index)])


def _whose(body: Any) -> str:
    return "tei" if isinstance(body, dict) and "inputs" in body else "own"


OwnSimilarity: Any = request_of(ABILITIES["similarity"])
AnySimilarity = Annotated[
    Annotated[OwnSimilarity, Tag("own")] | Annotated[Compare, Tag("tei")],
    Discriminator(_whose),
]


def _entry(name: str) -> dict[str, Any]:
    """A model as OpenAI lists it."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "litebert"}


def compat_routes(responses: dict[int | str, dict[str, object]]) -> APIRouter:
    """The endpoints; they come before those of the abilities."""
    router = APIRouter(tags=["compatible"], responses=responses)
    compared: Any = Results[result_of(ABILITIES["similarity"])] | list[float]  # type: ignore[misc]

    async def answer(request: HttpRequest, body: Any) -> Response:
        service: Service = request.app.state.service
        try:
            content = await service.answer(body, request.scope["litebert"], getattr(body, "encode", None))
        except Refusal as refusal:
            for ours, theirs in getattr(body, "fields", {}).items():
                refusal.message = re.sub(rf"^({ours})(?=[:\[])", theirs, refusal.message)
            raise
        return Response(content, media_type="application/json")

    @router.post("/v1/embeddings", response_model=EmbeddingList)
    async def embeddings(request: HttpRequest, body: Embeddings) -> Response:
        """Vectors of texts, in the form of OpenAI's API: point its client at this server's /v1."""
        return await answer(request, body)

    @router.post("/rerank", response_model=list[Ranked])
    async def rerank(request: HttpRequest, body: Rerank) -> Response:
        """Sort texts by their similarity to a query, in the form of text-embeddings-inference."""
        return await answer(request, body)

    @router.post("/similarity", response_model=compared, description=ABILITIES["similarity"].about)
    async def similarity(request: HttpRequest, body: AnySimilarity) -> Response:
        return await answer(request, body)

    @router.get("/v1/models")
    async def openai_models(request: HttpRequest) -> Response:
        """The loaded models that embed texts, in the form of OpenAI's API."""
        service: Service = request.app.state.service
        able = [name for name, (_, each) in service.models().items() if "embed" in each.abilities]
        return Response(
            dump({"object": "list", "data": [_entry(name) for name in able]}), media_type="application/json"
        )

    @router.get("/v1/models/{name:path}")
    async def openai_model(request: HttpRequest, name: str) -> Response:
        """One loaded model, in the form of OpenAI's API."""
        service: Service = request.app.state.service
        service.model(name)
        return Response(dump(_entry(name)), media_type="application/json")

    return router
