"""The Predictor's methods as editors and type checkers see them; the abilities have the defaults and the code.

A test holds this file to the table. An ability without a line here works as well; its arguments are not checked.
"""

from collections.abc import Sequence
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from litebert.predict.masks import FilledMasks
from litebert.predict.order import Coherence, SentenceOrder
from litebert.predict.questions import Answer, Choice
from litebert.predict.similarity import Found, Similarity
from litebert.predict.tags import Tagging
from litebert.predict.texts import Attention, Classification

Texts = list[str] | tuple[str, ...]
Depth = int | Literal["auto"]

class AbilityMethods:
    @overload
    def fill_mask(self, text: str, top: int = ..., joint: bool = ..., depth: int | None = ...) -> FilledMasks: ...
    @overload
    def fill_mask(
        self, text: Texts, top: int = ..., joint: bool = ..., depth: int | None = ...
    ) -> list[FilledMasks]: ...
    @overload
    def sentence_order(self, a: str, b: str, symmetric: bool = ..., depth: int | None = ...) -> SentenceOrder: ...
    @overload
    def sentence_order(
        self, a: Texts, b: str | Texts, symmetric: bool = ..., depth: int | None = ...
    ) -> list[SentenceOrder]: ...
    @overload
    def sentence_order(
        self, a: str, b: Texts, symmetric: bool = ..., depth: int | None = ...
    ) -> list[SentenceOrder]: ...
    @overload
    def coherence(self, text: str, group: int = ..., depth: int | None = ...) -> Coherence: ...
    @overload
    def coherence(self, text: Texts, group: int = ..., depth: int | None = ...) -> list[Coherence]: ...
    def embed(
        self,
        text: str | Texts,
        pooling: Literal["mean", "cls"] | None = ...,
        normalize: bool | None = ...,
        size: int | None = ...,
        depth: int | None = ...,
    ) -> NDArray[np.float32]: ...
    @overload
    def similarity(
        self, a: str, b: str, pooling: Literal["mean", "cls"] | None = ..., depth: int | None = ...
    ) -> Similarity: ...
    @overload
    def similarity(
        self, a: Texts, b: str | Texts, pooling: Literal["mean", "cls"] | None = ..., depth: int | None = ...
    ) -> list[Similarity]: ...
    @overload
    def similarity(
        self, a: str, b: Texts, pooling: Literal["mean", "cls"] | None = ..., depth: int | None = ...
    ) -> list[Similarity]: ...
    @overload
    def search(
        self,
        query: str,
        texts: Texts,
        top: int = ...,
        pooling: Literal["mean", "cls"] | None = ...,
        lexical: float = ...,
        depth: int | None = ...,
    ) -> Found: ...
    @overload
    def search(
        self,
        query: Texts,
        texts: Texts | Sequence[Texts],
        top: int = ...,
        pooling: Literal["mean", "cls"] | None = ...,
        lexical: float = ...,
        depth: int | None = ...,
    ) -> list[Found]: ...
    @overload
    def classify(self, text: str, pair: str | None = ..., depth: Depth | None = ...) -> Classification: ...
    @overload
    def classify(
        self, text: Texts, pair: str | Texts | None = ..., depth: Depth | None = ...
    ) -> list[Classification]: ...
    @overload
    def tag(self, text: str, split: Literal["words", "spaces"] = ..., depth: Depth | None = ...) -> Tagging: ...
    @overload
    def tag(self, text: Texts, split: Literal["words", "spaces"] = ..., depth: Depth | None = ...) -> list[Tagging]: ...
    @overload
    def answer(
        self, question: str, context: str, top: int = ..., threshold: float | None = ..., depth: Depth | None = ...
    ) -> Answer: ...
    @overload
    def answer(
        self,
        question: Texts,
        context: str | Texts,
        top: int = ...,
        threshold: float | None = ...,
        depth: Depth | None = ...,
    ) -> list[Answer]: ...
    @overload
    def answer(
        self, question: str, context: Texts, top: int = ..., threshold: float | None = ..., depth: Depth | None = ...
    ) -> list[Answer]: ...
    @overload
    def choose(self, passage: str, question: str, options: Texts, depth: Depth | None = ...) -> Choice: ...
    @overload
    def choose(
        self, passage: Texts, question: str | Texts, options: Texts | Sequence[Texts], depth: Depth | None = ...
    ) -> list[Choice]: ...
    @overload
    def choose(
        self, passage: str, question: Texts, options: Texts | Sequence[Texts], depth: Depth | None = ...
    ) -> list[Choice]: ...
    @overload
    def attention(
        self, text: str, pair: str | None = ..., max_tokens: int = ..., depth: int | None = ...
    ) -> Attention: ...
    @overload
    def attention(
        self, text: Texts, pair: str | Texts | None = ..., max_tokens: int = ..., depth: int | None = ...
    ) -> list[Attention]: ...
