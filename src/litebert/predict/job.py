"""Texts as requests, and work as steps that share forward passes: a generator asks for outputs and returns a result.

    def ability(inputs: Inputs, text: str) -> Steps[Answer]:
        outputs = yield [inputs.request(inputs.encode(text), want=["pooled"])]   # one pass with every other job's
        return Answer(outputs[0]["pooled"], ...)

`run_jobs` runs jobs to their end. A server calls `run_pass` instead, with as many sequences of each job as it sees fit.
User errors are raised when a job is created (the code before the first yield), so none reaches a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError
from litebert.predict.runtime import OpenRuntime, Outputs, Request, Runtime

if TYPE_CHECKING:
    from litebert.model.config import ModelConfig
    from litebert.predict.ability import Result
    from litebert.predict.adapters import Adapter
    from litebert.predict.exits import ExitRule
    from litebert.text.tokenizer import Tokenizer

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Inputs:
    """A tokenizer and the length of the longest sequence that the model takes."""

    tokenizer: Tokenizer
    max_length: int

    def encode(self, text: str, name: str = "text", allow_special: bool | Collection[str] = False) -> Ids:
        """The ids of a text that must hold at least one token."""
        check_text(text, name)
        ids = np.array(self.tokenizer.encode(text, allow_special), dtype=np.int32)
        if not ids.size:
            raise _no_text(name)
        return ids

    def encode_many(self, texts: Sequence[Any], name: str = "text") -> list[Ids | InputError]:
        """The ids of each of many texts, or why it has none."""
        found: list[Ids | InputError] = []
        good: list[str] = []
        for text in texts:
            try:
                check_text(text, name)
                good.append(text)
                found.append(_NOTHING)
            except InputError as error:
                found.append(error)
        encoded = iter(self.tokenizer.encode_batch(good))
        for number, entry in enumerate(found):
            if not isinstance(entry, InputError):
                ids = next(encoded)
                found[number] = ids if len(ids) else _no_text(name)
        return found

    def request(
        self,
        *segments: Ids,
        want: Iterable[str],
        positions: NDArray[np.int64] | None = None,
        later: int = 0,
    ) -> Request:
        """[CLS] A [SEP] or [CLS] A [SEP] B [SEP]; `positions` count from the first token of A."""
        cls, sep = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        ids = np.concatenate([cls, *(part for segment in segments for part in (segment, sep))])
        sizes = [len(segment) + 1 for segment in segments]
        types = np.repeat(np.arange(len(segments)), [1 + sizes[0], *sizes[1:]])
        assert len(ids) <= self.max_length, (len(ids), self.max_length)
        places = None if positions is None else positions + 1
        return Request(ids.astype(np.int32), types.astype(np.int8), frozenset(want), places, later=later)

    def requests(self, texts: Sequence[Ids], want: Iterable[str]) -> list[Request]:
        """[CLS] A [SEP] of each of many texts, as views of one array: thousands of small arrays take long to make."""
        if not texts:
            return []
        cls, sep = np.array([self.tokenizer.cls_id], np.int32), np.array([self.tokenizer.sep_id], np.int32)
        ids = np.concatenate([part for text in texts for part in (cls, text, sep)], dtype=np.int32)
        segments = np.zeros(max(map(len, texts)) + 2, np.int8)
        assert len(segments) <= self.max_length, (len(segments), self.max_length)
        wanted, found, begin = frozenset(want), [], 0
        for text in texts:
            end = begin + len(text) + 2
            found.append(Request(ids[begin:end], segments[: end - begin], wanted))
            begin = end
        return found

    def windows(self, ids: Ids) -> list[Ids]:
        """The ids in the fewest windows that fit the model, of nearly equal size: 700 of at most 510 -> 350 + 350."""
        if len(ids) <= self.max_length - 2:
            return [ids]
        return np.array_split(ids, -(-len(ids) // (self.max_length - 2)))


_NOTHING = np.zeros(0, np.int32)


def _no_text(name: str) -> InputError:
    return InputError(f"{name}: has no text that the vocabulary covers (only spaces or control characters)")


def check_text(text: object, name: str = "text") -> None:
    """Refuse anything but a str with some text in it."""
    if not isinstance(text, str):
        hint = f"; decode it first: {name}.decode('utf-8')" if isinstance(text, (bytes, bytearray)) else ""
        if hasattr(text, "tolist"):  # numpy, pandas
            hint = f"; several texts are a list: {name}.tolist()"
        raise InputError(f"{name}: expected a str, got {type(text).__name__}{hint}")
    if not text.strip():
        raise InputError(f"{name}: is empty")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name}: character {error.start} is {text[error.start]!a}, half of a surrogate pair, not a character; "
            "read the text as UTF-8, or drop it with text.encode('utf-8', 'ignore').decode()"
        ) from None


# ---------------------------------------------------------------------------------------------------------------------
# Jobs


MOST_NUMBERS = 64_000_000  # of outputs held at once, four bytes each

R = TypeVar("R")
Steps = Generator[list[Request], list[Outputs], R]


class Job:
    """One piece of work for one result, ready to run once; `tokens` is what all its passes cost at most.

    `masks` is how many tokens it wants predicted. What its requests are answered with: an `adapter`, a `depth` (None:
    all layers), or a `rule` of early exit.
    """

    def __init__(
        self,
        ability: str,
        steps: Steps[Any],
        config: ModelConfig,
        adapter: Adapter | None = None,
        depth: int | None = None,
        rule: ExitRule | None = None,
    ):
        self.ability = ability
        self.rule = rule
        self._steps = steps
        self._config = config
        self.adapter = adapter
        self._with: dict[str, Any] = {"adapter": adapter, "depth": depth, "rule": rule}
        self._depth = depth  # that answered: of several sequences, the deepest
        self._units = self._settled(next(steps))
        self._outputs: list[Outputs] = []  # of the units that are done, in order
        self._num_done = 0  # units
        self.tokens = sum(len(each) * (1 + each.later) for each in self._requests)
        self.masks = sum(len(each.positions) for each in self._requests if each.positions is not None)
        self.result: Any = None  # a Result, a list of them (`Predictor.many_job`), or an Exception

    def __repr__(self) -> str:
        return f"Job({self.ability!r}, tokens={self.tokens})"

    @property
    def _requests(self) -> list[Request]:
        return [request for unit in self._units for request in unit]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each unit that it waits for now: a sequence, or those that have to be in one pass."""
        return [sum(map(len, unit)) for unit in self._units[self._num_done :]]

    @property
    def numbers(self) -> int:
        """About how many numbers it holds when it has all outputs that it waits for."""
        return sum(_output_size(self._config, request) for request in self._requests)

    def _settled(self, requests: list[Request]) -> list[list[Request]]:
        """Requests and their outputs, in units."""
        given = {name: value for name, value in self._with.items() if value is not None}
        if given:
            requests = [replace(request, **given) for request in requests]
        if self.rule is None:
            return [[request] for request in requests]
        keys = (object() if request.group is None else request.group for request in requests)
        pairs = itertools.groupby(zip(keys, requests, strict=True), key=lambda pair: pair[0])
        return [[request for _, request in unit] for _, unit in pairs]

    def _next(self, count: int) -> list[Request]:
        units = self._units[self._num_done : self._num_done + count]
        return [request for unit in units for request in unit]

    def _take(self, outputs: list[Outputs] | Exception, count: int = 0) -> None:
        """Keep the outputs of the next `count` units; continue when all are there."""
        if isinstance(outputs, Exception):
            self.result = outputs
            return
        self._num_done += count
        if self._num_done < len(self._units):
            # Copies: what a runtime gives may be a view of a whole pass, which would stay in memory with it.
            self._outputs += [{name: value.copy() for name, value in each.items()} for each in outputs]
            return
        outputs, self._outputs, self._num_done = [*self._outputs, *outputs], [], 0
        if (found := deepest(outputs)) is not None:
            self._depth = max(self._depth or 0, found)
        try:
            self._units = self._settled(self._steps.send(outputs))
        except StopIteration as stop:
            self.result = self._with_depth(stop.value)
            self._units = []
        except Exception as error:  # this job's alone: the others go on
            self.result = error

    def _with_depth(self, result: Any) -> Any:
        if self._depth is None:
            return result
        if not isinstance(result, list):
            return replace(result, depth=self._depth)
        if self.rule is not None:  # each has its own already
            return result
        return [replace(each, depth=self._depth) for each in result]


def deepest(outputs: Sequence[Outputs]) -> int | None:
    """The depth of the sequence that took most layers under a rule of early exit; None without one."""
    return max((int(output["depth"]) for output in outputs if "depth" in output), default=None)


def run_jobs(runtime: Runtime, jobs: Sequence[Job]) -> list[Result | Exception]:
    """Run jobs together and return a result or an error for each, in order."""
    for group in _groups(jobs):
        active = [job for job in group if job.result is None]
        while active:
            for part in _groups(active):  # a later step may ask for more than the first
                run_pass(runtime, [(job, len(job.lengths)) for job in part])
            active = [job for job in active if job.result is None]
    results = [job.result for job in jobs]
    assert all(result is not None for result in results)
    return results


def run_pass(runtime: Runtime, parts: Sequence[tuple[Job, int]]) -> None:
    """Run the next sequences of each job together, as many as given; a job that finishes or fails has its `result`.

    If the shared pass fails, each job is tried alone.
    """
    requests = [job._next(count) for job, count in parts]
    try:
        outputs = iter(runtime.run([request for each in requests for request in each]))
        found = [[next(outputs) for _ in each] for each in requests]
    except Exception as error:
        if len(parts) == 1:
            parts[0][0]._take(error)
        else:
            for part in parts:
                run_pass(runtime, [part])
        return
    for (job, count), own in zip(parts, found, strict=True):
        job._take(own, count)


Parts = Sequence[tuple[Job, int]]
Join = Callable[[int], Parts]  # tokens that there is room for -> further parts that fit; called at every exit


def run_open(runtime: OpenRuntime, parts: Parts, join: Join, max_tokens: int, done: Callable[[Job], None]) -> None:
    """As `run_pass` for jobs with one rule of early exit; others join on the way, `done` gets each finished job.

    A pass holds at most `max_tokens`. If it fails, what is left is tried part by part.
    """
    left: dict[int, tuple[tuple[Job, int], list[Outputs | None]]] = {}  # by the number of the first request
    first_of: dict[int, int] = {}  # number of a request -> that of the first of its part
    numbers = itertools.count()

    def enter(parts: Parts) -> list[Request]:
        entered: list[Request] = []
        for job, count in parts:
            requests = job._next(count)
            own = [next(numbers) for _ in requests]
            first_of.update(dict.fromkeys(own, own[0]))
            left[own[0]] = ((job, count), [None] * len(own))
            entered += requests
        return entered

    try:
        for number, output in runtime.run_open(enter(parts), lambda tokens: enter(join(tokens)), max_tokens):
            first = first_of.pop(number)
            (job, count), outputs = left[first]
            outputs[number - first] = output
            if None not in outputs:
                del left[first]
                job._take([each for each in outputs if each is not None], count)
                done(job)
    except Exception:
        for part, _ in list(left.values()):
            run_pass(runtime, [part])
            done(part[0])


def _groups(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Jobs in order, as many at a time as their outputs leave room in memory for."""
    group: list[Job] = []
    numbers = 0
    for job in jobs:
        size = job.numbers
        if group and numbers + size > MOST_NUMBERS:
            yield group
            group, numbers = [], 0
        group.append(job)
        numbers += size
    if group:
        yield group


def _output_size(config: ModelConfig, request: Request) -> int:
    """About how many numbers the outputs of a request hold."""
    size = len(request) * (config.hidden_size if "hidden" in request.want else 8)
    if request.positions is not None:
        size += len(request.positions) * config.vocab_size
    if "attentions" in request.want:
        size += config.num_hidden_layers * config.num_attention_heads * len(request) ** 2
    return size
