"""Requests and responses as pydantic models, from which OpenAPI is made.

Requests and results of the abilities are made from the abilities themselves. A text may be given alone or as a list;
the answer always holds a list of results, in the order of the inputs. A refused request gets a status and
{"error": {"code", "message"}}.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, Union, get_args, get_origin

from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from litebert.errors import did_you_mean
from litebert.predict.ability import Ability, Array, Parameter, limits_in, split_annotated
from litebert.text.words import Language

R = TypeVar("R", bound=BaseModel)


def check_text(text: str) -> str:
    """Refuse text that is not Unicode: JSON can spell half of a surrogate pair, "\\ud800"."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"character {error.start} is half of a surrogate pair, not a character") from None
    return text


Text = Annotated[str, AfterValidator(check_text)]
Texts = Text | list[Text]


def path_of(ability: Ability) -> str:
    """Where an ability is served: "/fill-mask"."""
    return f"/{ability.title}"


# ---------------------------------------------------------------------------------------------------------------------
# Requests


class Request(BaseModel):
    """What every request may name."""

    model_config = ConfigDict(strict=True, extra="forbid")
    ability: ClassVar[Ability]
    model: Annotated[Text | None, Field(description="One of GET /models; by default the first with the ability.")] = (
        None
    )

    def inputs(self) -> list[dict[str, Any]]:
        """The arguments of each job: {"a": ["x", "y"], "b": ["u", "v"]} -> [{"a": "x", "b": "u"}, {"a": "y", ...}]."""
        values = {name: getattr(self, name) for name in self.ability.parameters}
        lists = {each.name for each in self.ability.inputs if each.kind == "text"}
        lists = {name for name in lists if isinstance(values[name], list)}
        lengths = {name: len(values[name]) for name in values if name in lists}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"lists of different lengths: {', '.join(f'{n} has {k}' for n, k in lengths.items())}")
        count = next(iter(lengths.values()), 1)
        return [{name: value[i] if name in lists else value for name, value in values.items()} for i in range(count)]


@functools.cache
def request_of(ability: Ability) -> type[Request]:
    """The request of an ability."""
    examples = ConfigDict(json_schema_extra={"examples": [dict(example) for example in ability.examples]})
    base = type("Base", (Request,), {"__module__": __name__, "model_config": examples})
    fields: Any = {
        each.name: (_wire_type(each, ability), ... if each.required else each.default)
        for each in ability.parameters.values()
    }
    name = _class_name(ability)
    made: Any = create_model(name, __base__=base, __module__=__name__, __doc__=ability.summary, **fields)
    made.ability = ability
    return typing.cast(type[Request], made)


def _wire_type(parameter: Parameter, ability: Ability) -> Any:
    kinds: dict[str, Any] = {
        "text": Text if ability.one_by_one else Texts,
        "texts": list[Text],
        "whole number": int,
        "number": float,
        "flag": bool,
        "depth": Annotated[int, Field(ge=1)] | Literal["auto"],
    }
    kind = Literal[parameter.choices] if parameter.choices else kinds[parameter.kind]
    bounds: dict[str, Any] = {}
    limits = parameter.limits
    most = limits.most if limits.served is None else limits.served
    if parameter.kind == "texts":
        bounds = {"min_length": limits.least, "max_length": most}
    elif parameter.kind in ("whole number", "number"):
        bounds = {"ge": limits.least, "le": most}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    if parameter.kind == "number":
        bounds["allow_inf_nan"] = False
    return Annotated[kind | None if parameter.optional else kind, Field(description=parameter.about, **bounds)]


def _class_name(ability: Ability) -> str:
    """fill_mask -> FillMask."""
    return "".join(word.capitalize() for word in ability.name.split("_"))


# ---------------------------------------------------------------------------------------------------------------------
# Results: the dataclasses of the abilities, as JSON


def result_of(ability: Ability) -> type[BaseModel]:
    """The result of an ability; one that is called like the request has "Result" behind its name."""
    kind: Any = ability.result
    return _as_model(kind, f"{kind.__name__}Result" if kind.__name__ == _class_name(ability) else kind.__name__)


@functools.cache
def _as_model(kind: Any, name: str) -> type[BaseModel]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields: Any = {each.name: (_as_json(hints[each.name]), ...) for each in dataclasses.fields(kind)}
    return create_model(name, __module__=__name__, __doc__=kind.__doc__, **fields)


def _as_json(hint: Any) -> Any:
    """The type of a field as JSON has it: tuple[Mask, ...] -> list of objects, an array -> lists of numbers."""
    kind, about, marks = split_annotated(hint)
    origin, inner = get_origin(kind), get_args(kind)
    found: Any = kind
    arrays = [mark for mark in marks if isinstance(mark, Array)]
    if arrays:  # not by its type: NDArray is an alias of numpy's, of another kind from 2.5 on
        found = float
        for _ in range(arrays[0].axes):
            found = list[found]
    elif origin in (Union, types.UnionType):
        found = functools.reduce(lambda a, b: a | b, (_as_json(part) for part in inner))
    elif origin is tuple and inner[-1] is Ellipsis:
        found = list[_as_json(inner[0])]  # type: ignore[misc]
    elif origin is dict:
        found = dict[inner[0], _as_json(inner[1])]  # type: ignore[misc,valid-type]
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        found = _as_model(kind, kind.__name__)
    if not about and not marks:
        return found
    limits = limits_in(marks)
    return Annotated[found, Field(description=about or None, ge=limits.least, le=limits.most)]


class Results(BaseModel, Generic[R]):
    """Results in the order of the inputs."""

    model: str
    results: list[R]


class LoadedTask(BaseModel):
    """What a model was fine-tuned for."""

    name: str
    kind: str
    labels: list[str]
    pair: Annotated[bool | None, Field(description="Whether it takes pairs of texts; null: the model does not say.")]
    scale: Annotated[
        tuple[float, float] | None, Field(description="Regression: the lowest and highest score, where known.")
    ]


class LoadedDepths(BaseModel):
    """How deep a model can answer."""

    layers: Annotated[int, Field(description="Its full depth.")]
    exits: Annotated[
        list[int], Field(description="Depths at which it was trained to answer; empty: at full depth only.")
    ]
    auto: Annotated[bool, Field(description="Whether it is calibrated for the depth `auto`.")]
    depth: Annotated[
        int | Literal["auto"] | None, Field(description="What answers a request without a depth; null: all layers.")
    ] = None


class Loaded(BaseModel):
    """A model and what it can do."""

    name: str
    abilities: list[str]
    runtime: Annotated[str, Field(description="What runs it, and on what.")]
    language: Annotated[
        Language,
        Field(description="Main script of its vocabulary: ko Hangul, zh Han, ja kana and Han, otherwise en."),
    ]
    task: Annotated[LoadedTask | None, Field(description="Null for models that are not fine-tuned.")]
    packaged: Annotated[bool, Field(description="Whether it is an adapter that comes with litebert.")] = False
    depths: Annotated[LoadedDepths | None, Field(description="Null where a model does not say.")] = None


class Models(BaseModel):
    """All models of this server."""

    models: list[Loaded]
    version: str


class NewAdapter(BaseModel):
    """An adapter to load."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        json_schema_extra={"examples": [{"name": "sentiment", "folder": "runs/sst2/adapter"}]},
    )
    name: Annotated[
        str,
        Field(description="What requests call it: `MODEL:NAME`.", min_length=1, max_length=80),
        AfterValidator(check_text),
    ]
    folder: Annotated[Text, Field(description="The adapter's folder on the server.")]
    model: Annotated[Text | None, Field(description="Its base model; by default the first one.")] = None


class OldAdapter(BaseModel):
    """An adapter to unload."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra={"examples": [{"name": "sentiment"}]})
    name: Annotated[Text, Field(description="Its name, without that of the model.")]
    model: Annotated[Text | None, Field(description="Its base model; by default the first one.")] = None


class Status(BaseModel):
    """One word about the server."""

    status: str


# ---------------------------------------------------------------------------------------------------------------------
# Refusals


class Mistake(BaseModel):
    """Why there is no answer."""

    code: str
    message: str


class MistakeResponse(BaseModel):
    """What every refusal looks like."""

    error: Mistake


OPENAI = "/v1/"  # paths with OpenAI's form of requests, answers and errors
OPENAI_ERRORS = {401: "authentication_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """Why a request is refused."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})

    def response(self, path: str = "") -> Response:
        """The refusal as a response; under /v1 in OpenAI's form."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        status = self.status
        if path.startswith(OPENAI):
            status = 400 if status == 422 else status
            kind = OPENAI_ERRORS.get(status, "invalid_request_error" if status < 500 else "server_error")
            error |= {"type": kind, "param": None}
        # ASCII, because a message may quote a field name that contains a lone surrogate.
        return Response(json.dumps({"error": error}), status, headers=self.headers, media_type="application/json")


class ClientGone(Exception):
    """The client disconnected before the answer."""


def describe_mistakes(errors: Sequence[Mapping[str, Any]], limit: int = 3) -> str:
    """Pydantic's errors as one sentence, without the values sent: 'top: must be a whole number'."""
    found: dict[str, list[str]] = {}
    # For a union, report only the branch that fits the value: "not a list" does not help with a bad text.
    matched = {error["loc"][:2] for error in errors if not _is_other_branch(error)}
    for error in errors:
        if error["loc"][:2] in matched and _is_other_branch(error):
            continue
        # ("body", "text", "list[str]", 3): the body and the branches of a union are not fields.
        path = [str(part) for part in error["loc"] if part != "body" and not _is_branch(part)]
        where = ".".join(path)[:80] or "body"
        message = _in_words(error)
        if message not in found.setdefault(where, []):
            found[where].append(message)
    missing = [where for where, messages in found.items() if WORDS["missing"] in messages]
    for where, messages in found.items():
        if WORDS["extra_forbidden"] in messages:
            messages[-1] += did_you_mean(where, missing)
    sentences = [
        f"{where}: {' or '.join(messages)}".replace(" or must be ", " or ") for where, messages in found.items()
    ]
    more = len(sentences) - limit
    return "; ".join(sentences[:limit]) + (f"; and {more} more" if more > 0 else "")


WORDS = {  # by pydantic's type of the error
    "missing": "missing",
    "extra_forbidden": "unknown field",
    "string_type": "must be a text",
    "list_type": "must be a list",
    "model_attributes_type": "must be a JSON object",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "greater_than_equal": "must be >= {ge}",
    "less_than_equal": "must be <= {le}",
    "string_too_short": "must have at least {min_length} character(s)",
    "string_too_long": "must have at most {max_length} character(s)",
    "too_short": "must be a list of at least {min_length}",
    "too_long": "must be a list of at most {max_length}",
    "literal_error": "must be {expected}",
}


def _in_words(error: Mapping[str, Any]) -> str:
    if error["type"] in WORDS:
        return WORDS[error["type"]].format(**error.get("ctx", {}))
    return str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ").replace("should", "must", 1)


def _is_other_branch(error: Mapping[str, Any]) -> bool:
    """Whether a value only is of another kind than this branch of a union; text 3 of a list is in its branch."""
    return error["type"] in ("string_type", "list_type") and not any(isinstance(part, int) for part in error["loc"])


def _is_branch(part: str | int) -> bool:
    return isinstance(part, str) and (
        part in ("str", "list", "own", "tei") or part.startswith(("list[", "constrained-", "function-", "literal["))
    )
