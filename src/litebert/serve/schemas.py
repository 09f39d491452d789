"""What goes over the wire: one request and one result model per ability. The OpenAPI file is made from these.

A text may be given alone or as a list; the answer always holds a list of results, in the order of the inputs.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from litebert.text.language import Language


def check_text(text: str) -> str:
    """Refuse text that is not Unicode: JSON can spell half of a surrogate pair, "\\ud800"."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"character {error.start} is half of a surrogate pair, which is no text") from None
    return text


Text = Annotated[str, AfterValidator(check_text)]
Texts = Text | list[Text]


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]})


class Request(BaseModel):
    """What every request may name."""

    model_config = ConfigDict(strict=True, extra="forbid")
    model: Annotated[Text | None, Field(description="One of GET /models; by default the first with the ability.")] = (
        None
    )

    def inputs(self) -> list[dict[str, Any]]:
        """The arguments of each job: {"a": ["x", "y"], "b": ["u", "v"]} -> [{"a": "x", "b": "u"}, {"a": "y", ...}]."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name != "model"}
        lists = {name: value for name, value in values.items() if isinstance(value, list)}
        lengths = {name: len(value) for name, value in lists.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"lists of different lengths: {', '.join(f'{n} has {k}' for n, k in lengths.items())}")
        count = next(iter(lengths.values()), 1)
        return [{name: value[i] if name in lists else value for name, value in values.items()} for i in range(count)]


class FillMask(Request):
    """What may stand where a text says [MASK]?"""

    text: Annotated[Texts, Field(description="With one [MASK] or several.")]
    top: Annotated[int, Field(description="Guesses per mask.", ge=1, le=100)] = 5
    joint: Annotated[bool, Field(description="Fill several masks together, too.")] = False

    model_config = _example(text="the [MASK] is cold in winter.")


class SentenceOrder(Request):
    """Does a come before b?"""

    a: Annotated[Texts, Field(description="What should come first.")]
    b: Annotated[Texts, Field(description="What should follow.")]
    symmetric: Annotated[bool, Field(description="Ask for (b, a) too, and answer what both support.")] = False

    model_config = _example(a="she put on her coat.", b="then she left the house.")


class Coherence(Request):
    """How well does a text hang together?"""

    text: Annotated[Texts, Field(description="Two sentences or more.")]
    group: Annotated[int, Field(description="Sentences read on each side of a boundary.", ge=1, le=16)] = 2

    model_config = _example(text="It began to rain. We opened our umbrellas. The street was soon empty.")


class Embed(Request):
    """Texts as vectors."""

    text: Texts
    pooling: Annotated[Literal["mean", "cls"], Field(description="How tokens become one vector.")] = "mean"
    normalize: Annotated[bool, Field(description="To length 1.")] = False

    model_config = _example(text=["a cat sleeps.", "a dog barks."])


class Classify(Request):
    """Which label does a text, or a pair of texts, have?"""

    text: Texts
    pair: Annotated[
        Texts | None,
        Field(description="The second text: required by models of pairs, refused by models of single texts."),
    ] = None

    model_config = _example(text="a warm and funny film.")


class Tag(Request):
    """Which tag does each word have?"""

    text: Texts
    split: Annotated[Literal["words", "spaces"], Field(description="spaces: the words stand apart already.")] = "words"

    model_config = _example(text="anna lives in oslo.")


class Answer(Request):
    """Which stretch of a context answers a question?"""

    question: Texts
    context: Annotated[Texts, Field(description="Where the answer stands; any length.")]
    top: Annotated[int, Field(description="Candidates to return.", ge=1, le=20)] = 3
    threshold: Annotated[
        float | None, Field(description="No answer above this score; null: the model's own.", allow_inf_nan=False)
    ] = None

    model_config = _example(question="who lives in oslo?", context="anna lives in oslo. her brother lives in rome.")


class Choose(Request):
    """Which option fits a passage and its question?"""

    passage: Text
    question: Text
    options: Annotated[list[Text], Field(min_length=2, max_length=16)]

    model_config = _example(passage="anna moved in may.", question="when did anna move?", options=["in may", "in june"])

    def inputs(self) -> list[dict[str, Any]]:
        """The arguments of its one job: the options belong together."""
        return [{"passage": self.passage, "question": self.question, "options": self.options}]


class Attention(Request):
    """Which token looks at which?"""

    text: Text
    pair: Annotated[Text | None, Field(description="A second segment.")] = None
    max_tokens: Annotated[int, Field(description="Read at most so many; the rest is left out.", ge=8, le=128)] = 64

    model_config = _example(text="the cat sat on the mat.")


# By the Predictor's names of the abilities.
REQUESTS: dict[str, type[Request]] = {
    "fill_mask": FillMask,
    "sentence_order": SentenceOrder,
    "coherence": Coherence,
    "embed": Embed,
    "classify": Classify,
    "tag": Tag,
    "answer": Answer,
    "choose": Choose,
    "attention": Attention,
}


def path_of(ability: str) -> str:
    """Where an ability is served: "fill_mask" -> "/fill-mask"."""
    return "/" + ability.replace("_", "-")


def example_of(ability: str, pair: bool = False) -> dict[str, Any]:
    """A small request that a model with the ability can answer; `pair` where it is a model of pairs."""
    extra: Any = REQUESTS[ability].model_config["json_schema_extra"]
    second = {"pair": "a cold and boring film."} if ability == "classify" and pair else {}
    return {**extra["examples"][0], **second}


# Results: the dataclasses of litebert.predict.results, as JSON. A test keeps the two together.

Probability = Annotated[float, Field(ge=0, le=1)]
Start = Annotated[int, Field(description="First character.")]
End = Annotated[int, Field(description="One past the last character.")]


class Candidate(BaseModel):
    """A guess for one mask."""

    word: str
    piece: Annotated[str, Field(description="As the vocabulary has it.")]
    probability: Probability
    text: Annotated[str, Field(description="The whole text with this word in it.")]


class Mask(BaseModel):
    """One mask and the guesses for it, best first."""

    start: Start
    end: End
    candidates: list[Candidate]


class JointFill(BaseModel):
    """One way to fill all masks of a text together."""

    words: list[str]
    probability: Probability
    text: str


class FilledMasks(BaseModel):
    """A text with the guesses for each of its masks."""

    text: str
    masks: list[Mask]
    joint: Annotated[list[JointFill], Field(description="All masks filled together, where asked for.")]


class SentenceOrderResult(BaseModel):
    """How sure the model is of an order."""

    probability: Annotated[Probability, Field(description="That a comes before b.")]
    forward: Annotated[Probability, Field(description="What the model says of (a, b).")]
    backward: Annotated[Probability | None, Field(description="What it says of (b, a), that being right.")]


class Sentence(BaseModel):
    """A sentence and where it stands."""

    start: Start
    end: End
    text: str


class CoherenceResult(BaseModel):
    """How well the sentences of a text follow each other."""

    score: Annotated[Probability, Field(description="The mean of the boundaries.")]
    sentences: list[Sentence]
    boundaries: Annotated[list[Probability], Field(description="That sentences i and i + 1 stand in the right order.")]


class Embedding(BaseModel):
    """A text as a vector."""

    vector: list[float]
    pooling: str
    tokens: int
    windows: Annotated[int, Field(description="A text longer than the model takes is read in several.")]


class Classification(BaseModel):
    """What the model makes of a text."""

    label: Annotated[str | None, Field(description="The likeliest; null for regression.")]
    probabilities: dict[str, Probability]
    labels: Annotated[list[str], Field(description="Multi-label models: all that reach 0.5.")]
    value: Annotated[float | None, Field(description="Regression: the score.")]
    scale: Annotated[
        tuple[float, float] | None, Field(description="Regression: the lowest and highest score, where known.")
    ]
    windows: int


class TaggedWord(BaseModel):
    """A word and its tag."""

    text: str
    start: Start
    end: End
    tag: str
    probability: Probability


class Entity(BaseModel):
    """Words that together name something."""

    label: str
    text: str
    start: Start
    end: End
    probability: Annotated[Probability, Field(description="Of its least certain word.")]


class Tagging(BaseModel):
    """The words of a text with their tags, and the entities that they make."""

    text: str
    words: list[TaggedWord]
    entities: list[Entity]


class AnswerSpan(BaseModel):
    """A stretch of the context that may be the answer."""

    text: str
    start: Annotated[int, Field(description="First character in the context.")]
    end: End
    probability: Annotated[Probability, Field(description="Among the candidates.")]
    score: float


class AnswerResult(BaseModel):
    """The answer, or that there is none, with the candidates."""

    text: Annotated[str, Field(description="Empty where there is no answer.")]
    start: int | None
    end: int | None
    probability: Probability
    no_answer: Annotated[Probability | None, Field(description="That there is none; null: this model always answers.")]
    candidates: list[AnswerSpan]


class Choice(BaseModel):
    """Which option, and how likely each is."""

    index: int
    option: str
    probabilities: list[Probability]


class AttentionResult(BaseModel):
    """The pieces of a text, and how much each looks at the others."""

    pieces: list[str]
    segments: list[int]
    weights: Annotated[list[list[list[list[float]]]], Field(description="[application][head][from][to], 4 digits.")]
    left_out: Annotated[int, Field(description="Tokens beyond what the model takes at once.")]


R = TypeVar("R", bound=BaseModel)


class Results(BaseModel, Generic[R]):
    """Results in the order of the inputs."""

    model: str
    results: list[R]


class Mistake(BaseModel):
    """Why there is no answer."""

    code: str
    message: str


class MistakeResponse(BaseModel):
    """What every refusal looks like."""

    error: Mistake


class LoadedTask(BaseModel):
    """What a model was fine-tuned for."""

    name: str
    kind: str
    labels: list[str]
    pair: Annotated[bool | None, Field(description="Whether it takes pairs of texts; null: the model does not say.")]
    scale: Annotated[
        tuple[float, float] | None, Field(description="Regression: the lowest and highest score, where known.")
    ]


class Loaded(BaseModel):
    """A model and what it can do."""

    name: str
    abilities: list[str]
    runtime: Annotated[str, Field(description="What runs it, and on what.")]
    language: Annotated[
        Language,
        Field(description="What most pieces of its vocabulary are: Hangul, Han, or kana and Han; en: none of these."),
    ]
    task: Annotated[LoadedTask | None, Field(description="Null for models that are not fine-tuned.")]


class Models(BaseModel):
    """All models of this server."""

    models: list[Loaded]
    version: str


class Status(BaseModel):
    """One word about the server."""

    status: str
