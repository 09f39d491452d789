"""An ability is one function, defined by its signature, its result type and its docstring.

    @ability(outputs=("sentence",), examples=[{"a": "She put on her coat.", "b": "Then she left."}])
    def sentence_order(
        inputs: Inputs,
        a: Annotated[str, "The text that should come first."],
        b: Annotated[str, "The text that should follow."],
        symmetric: Annotated[bool, "Also score (b, a), and weigh both."] = False,
    ) -> Steps[SentenceOrder]:
        "The probability that text A comes before text B."
        outputs = yield [inputs.request(...)]
        return SentenceOrder(...)

The Predictor's method, the command of `litebert predict`, the HTTP route, its schemas and its documentation are made
from this object, so defaults and limits are the same everywhere. `abilities.py` lists those that exist.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral, Real
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np

from litebert.errors import InputError, check_choice, did_you_mean
from litebert.predict.job import Ids, Inputs, Steps, check_text
from litebert.tasks.task import Task

REQUIRED = inspect.Parameter.empty
PRETRAIN = "litebert pretrain CONFIG, or name a pretrained model"

# What a parameter is: one text, several texts that belong together, or an option.
Kind = Literal["text", "texts", "whole number", "number", "flag", "choice", "depth"]
Depth = int | Literal["auto"]  # layers to apply, or as many as a text needs
Applied = Annotated[int | None, "Layers applied, to the sequence that took most; null: all."]
DEPTH = "Answer after this many layers{}; by default the Predictor's depth."


@dataclass(frozen=True)
class Limits:
    """Bounds of a number, or of how many texts a list holds; `Limits(0)` for a text: it may be empty."""

    least: float | None = None
    most: float | None = None
    served: float | None = None  # the most that one HTTP request may ask for


Probability = Annotated[float, Limits(0, 1)]


@dataclass(frozen=True)
class Array:
    """A field that holds a numpy array: how many axes it has, and how many decimal places go over HTTP (None: all)."""

    axes: int
    digits: int | None = None


@dataclass(frozen=True)
class Result:
    """Base of every answer: a frozen dataclass of plain values.

    Fields may be `Annotated` with a sentence and `Limits`, which the HTTP documentation shows. Offsets are (start, end)
    in characters of the given text.
    """

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain data that JSON can hold."""
        return {each.name: _plain(getattr(self, each.name)) for each in dataclasses.fields(self)}

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """The answer in a few flat columns, for a table; nested values become JSON."""
        values = self.as_dict().items()
        return {name: json.dumps(v, ensure_ascii=False) if isinstance(v, list | dict) else v for name, v in values}


@dataclass(frozen=True)
class Parameter:
    """One parameter of an ability, as its signature spells it."""

    name: str
    kind: Kind
    about: str  # a sentence for people
    default: Any = REQUIRED
    limits: Limits = field(default_factory=Limits)
    choices: tuple[str, ...] = ()
    optional: bool = False  # it may be None

    @property
    def is_input(self) -> bool:
        """Whether this is an input that the model reads, not an option."""
        return self.kind in ("text", "texts")

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED

    def check(self, value: Any) -> None:
        """Refuse a value that the ability cannot use."""
        name, limits = self.name, self.limits
        if value is None and self.optional:
            return
        if self.kind == "text":
            if not (limits.least == 0 and value == ""):
                check_text(value, name)
        elif self.kind == "texts":
            if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) or len(value) < (limits.least or 0):
                raise InputError(f"{name}: expected a list of {limits.least or 0} or more texts")
            for number, text in enumerate(value):
                check_text(text, f"{name}[{number}]")
        elif self.kind == "depth" and value == "auto":
            return
        elif self.kind == "choice":
            check_choice(name, value, self.choices, InputError)
        elif self.kind == "flag":
            if not isinstance(value, (bool, np.bool_)):
                raise InputError(f"{name}: must be True or False, not {value!r}")
        else:
            self._check_number(value)

    def _check_number(self, value: Any) -> None:
        whole = self.kind in ("whole number", "depth")
        is_number = not isinstance(value, bool) and isinstance(value, Integral if whole else Real)
        fits = is_number and not math.isnan(value)
        if fits and self.limits.least is not None:
            fits = value >= self.limits.least
        if fits and self.limits.most is not None:
            fits = value <= self.limits.most
        if not fits:
            what = "a whole number" if whole else "a number"
            bounds = [f">= {self.limits.least:g}"] if self.limits.least is not None else []
            bounds += [f"<= {self.limits.most:g}"] if self.limits.most is not None else []
            raise InputError(f"{self.name}: must be {what}{' ' if bounds else ''}{' and '.join(bounds)}, not {value!r}")


@dataclass(frozen=True, eq=False)
class Ability:
    """One thing that a Predictor can do."""

    steps: Callable[..., Steps[Any]]
    outputs: tuple[str, ...]  # raw outputs that the runtime must give
    examples: tuple[Mapping[str, Any], ...]  # requests to try; a model takes at least one of them
    heads: tuple[str, ...] = ()  # the heads that have it; (): all
    makes: str = PRETRAIN  # the command that makes a model with it
    also: tuple[str, ...] = ()  # other names that people try on the command line
    one_by_one: bool = False  # over HTTP, a request holds one input and not a list
    array: str = ""  # the field that the Predictor's method returns: one array [H], of many inputs [N, H]
    # The same for the ids of many texts at once, if its one input is a text: a list of results. See `many_job`.
    many: Callable[..., Steps[list[Any]]] | None = None

    @property
    def name(self) -> str:
        """As Python knows it: "fill_mask"."""
        return self.steps.__name__

    @property
    def title(self) -> str:
        """As commands and paths have it: "fill-mask"."""
        return self.name.replace("_", "-")

    @property
    def about(self) -> str:
        """What it does: the docstring."""
        return inspect.cleandoc(self.steps.__doc__ or "")

    @property
    def summary(self) -> str:
        """The same in one sentence: the docstring's first paragraph."""
        return " ".join(self.about.split("\n\n")[0].split())

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return typing.get_type_hints(self.steps, include_extras=True)

    @cached_property
    def takes_task(self) -> bool:
        """Whether it reads the model's task, and texts as that task was trained."""
        return Task in self._hints.values()

    @cached_property
    def reads_task(self) -> bool:
        """Whether it works for every model, and reads the task if there is one."""
        return Task | None in self._hints.values()

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """What it takes, in order, by name."""
        ours = (Inputs, Task, Task | None)
        signature = inspect.signature(self.steps).parameters
        found = {
            name: _parameter(name, self._hints[name], each.default)
            for name, each in signature.items()
            if self._hints[name] not in ours
        }
        if "depth" not in {each.name for each in dataclasses.fields(self.result)}:
            return found
        # Steps do not see the depth. Only trained heads can tell when to stop.
        about = DEPTH.format(", or auto: as many as the text needs" if self.heads else "")
        depth = Parameter("depth", "depth" if self.heads else "whole number", about, None, Limits(1), optional=True)
        return {**found, depth.name: depth}

    @property
    def inputs(self) -> list[Parameter]:
        """The parameters that the model reads."""
        return [each for each in self.parameters.values() if each.is_input]

    @cached_property
    def result(self) -> type[Result]:
        """The class of its results."""
        return typing.cast(type[Result], get_args(self._hints["return"])[-1])

    def bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name; a name that it does not take, or one that is missing, is an error."""
        names = list(self.parameters)
        if len(positional) > len(names):
            raise InputError(f"{self.name} takes at most {len(names)} arguments ({', '.join(names)})")
        given = dict(zip(names, positional, strict=False))
        for name in named:
            if name not in names:
                raise InputError(
                    f"{self.name} takes no {name!r}{did_you_mean(name, names)}; it takes {', '.join(names)}"
                )
            if name in given:
                raise InputError(f"{self.name}: {name!r} is given twice")
        given |= named
        missing = [each.name for each in self.parameters.values() if each.required and each.name not in given]
        if missing:
            raise InputError(f"{self.name}: missing {', '.join(map(repr, missing))}; it takes {', '.join(names)}")
        return given

    def begin(self, inputs: Inputs, task: Task | None, arguments: Mapping[str, Any]) -> Steps[Any]:
        """The steps for these arguments, which are checked first; the depth is not one of them."""
        for name, value in self.bind((), arguments).items():
            self.parameters[name].check(value)
        if self.takes_task or self.reads_task:
            return self.steps(inputs, task, **arguments)
        return self.steps(inputs, **arguments)

    def begin_many(
        self, inputs: Inputs, task: Task | None, texts: Sequence[Ids], options: Mapping[str, Any]
    ) -> Steps[list[Any]]:
        """The steps for the ids of many texts, with the same options for all."""
        assert self.many is not None, f"{self.name} takes one input at a time"
        for name, value in options.items():
            self.parameters[name].check(value)
        return self.many(inputs, task, texts, **options)


def ability(
    *,
    outputs: Iterable[str],
    examples: Iterable[Mapping[str, Any]],
    heads: Iterable[str] = (),
    makes: str = PRETRAIN,
    also: Iterable[str] = (),
    one_by_one: bool = False,
    array: str = "",
    many: Callable[..., Steps[list[Any]]] | None = None,
) -> Callable[[Callable[..., Steps[Any]]], Ability]:
    """Turn a generator of steps into an Ability; see the top of this file."""

    def wrap(steps: Callable[..., Steps[Any]]) -> Ability:
        marks = (tuple(outputs), tuple(examples), tuple(heads), makes, tuple(also), one_by_one, array, many)
        return Ability(steps, *marks)

    return wrap


def split_annotated(hint: Any) -> tuple[Any, str, tuple[Any, ...]]:
    """A type, its sentence, its marks: Annotated[int, "How many.", Limits(1)] -> int, "How many.", (Limits(1),)."""
    if get_origin(hint) is not Annotated:
        return hint, "", ()
    kind, *marks = get_args(hint)
    return kind, next((m for m in marks if isinstance(m, str)), ""), tuple(m for m in marks if not isinstance(m, str))


def limits_in(marks: Iterable[Any]) -> Limits:
    """The limits among the marks of an annotation."""
    return next((mark for mark in marks if isinstance(mark, Limits)), Limits())


def without_none(hint: Any) -> tuple[Any, bool]:
    """str | None -> str, True; str -> str, False."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        if len(rest) == 1 and len(get_args(hint)) == 2:
            return rest[0], True
    return hint, False


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    kind, about, marks = split_annotated(hint)
    kind, optional = without_none(kind)
    choices: tuple[str, ...] = ()
    what: Kind
    if get_origin(kind) is Literal:
        what, choices = "choice", get_args(kind)
    elif get_origin(kind) in (list, Sequence):
        what = "texts"
    else:
        kinds: dict[Any, Kind] = {str: "text", int: "whole number", float: "number", bool: "flag"}
        what = kinds[kind]
    return Parameter(name, what, about, default, limits_in(marks), choices, optional)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        # Seven digits are what a float32 holds.
        return np.round(value.astype(np.float64), 7).tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
