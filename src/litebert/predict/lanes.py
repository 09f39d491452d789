"""Depth-wise batching: sequences at different depths share every product, done ones leave, waiting ones join.

    for number, outputs in read_early(stages, rule, requests): ...      # as each is done, not in order

Every application of a shared layer has the same weights, so a sequence that begins may run beside one that is nearly
through. Only attention sees more than one token, and only those of the same sequence, so no answer depends on its
neighbours. Where a head reads [CLS] alone, an exit completes only that state: the last FFN, two thirds of a layer, is
run for the other tokens of a sequence once it goes on. A lane holds as many tokens as a pass; on a GPU two lanes take
turns, so that the device works on one while the host decides about the other, and never waits for it.

Stages are what a runtime does with states: embed, apply layers, answer at a depth (TorchStages, OnnxStages).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from litebert.predict.exits import ExitRule, Gate, Ints, Problem, Signs, compare, see, signs_of, stops
from litebert.predict.runtime import More, Outputs, Request, rows_of_outputs, wanted_of

PER_TOKEN = frozenset({"hidden", "start", "end"})  # outputs that are so for every head; the logits of tags are too


BEAMS = ("start_index", "start_log_prob", "end_index", "end_log_prob")  # of which a short text has fewer


class Answered(Protocol):
    """The outputs of a head for some sequences; a GPU may still be computing them."""

    def fetch(self) -> tuple[Mapping[str, NDArray[Any]], NDArray[Any] | None]:
        """The outputs by name, [n, ...] or [t, ...], and the states times the gate's [n]; waits for them."""
        ...


class Stages(Protocol):
    """A model in parts: packed states [t, H] of any type."""

    problem: Problem
    exits: tuple[int, ...]
    joins: bool  # whether all layers are the same, so that depths can be mixed
    max_tokens: int  # of a lane
    num_lanes: int
    by_first: frozenset[str]  # outputs that are read from [CLS] alone

    def embed(self, requests: Sequence[Request]) -> Any: ...
    def select(self, states: Sequence[Any], rows: Ints | None) -> Any:
        """Some rows [t] of several states taken together; None: all."""
        ...

    def apply(self, states: Any, lengths: Ints, begin: int, end: int, unfinished: bool) -> Any:
        """The states after the layers `begin` to `end`, the first being 0; `unfinished`: all but the last FFN."""
        ...

    def finish(self, states: Any, depth: int) -> Any:
        """Unfinished states, or some rows of them, after the last FFN of the layers up to `depth`."""
        ...

    def answer(
        self, states: Any, lengths: Ints, requests: Sequence[Request], depth: int, gate: Gate | None
    ) -> Answered:
        """What the exit says of requests by their states, of which each has `lengths` rows."""
        ...


def read_early(
    stages: Stages, rule: ExitRule, requests: Sequence[Request], more: More | None = None, every_exit: bool = False
) -> Iterator[tuple[int, Outputs]]:
    """The number and the outputs of each request as it is done; those that `more` adds are counted on.

    `every_exit`: also what the exits before say, each as it comes.
    """
    waiting, count = deque([_Queue(0, requests)]), len(requests)
    lanes = [_Lane(stages, rule, every_exit) for _ in range(stages.num_lanes)]
    while True:
        for lane in lanes:
            yield from lane.settle()
            numbers: list[int] = []
            joining: list[Request] = []
            room = stages.max_tokens - lane.tokens
            if stages.joins or not lane.tokens:
                if not waiting and more is not None and (added := more(room)):
                    waiting.append(_Queue(count, added))
                    count += len(added)
                while waiting:
                    rows, tokens = waiting[0].take(room, at_least_one=not (joining or lane.tokens))
                    numbers += [waiting[0].begin + row for row in rows]
                    joining += [waiting[0].requests[row] for row in rows]
                    room -= tokens
                    if not waiting[0].is_empty:
                        break
                    waiting.popleft()
            lane.advance(numbers, joining)
        if not waiting and not any(lane.tokens for lane in lanes):
            return


class _Queue:
    """Requests that wait, the longest first; all options of a question join together."""

    def __init__(self, begin: int, requests: Sequence[Request]):
        self.begin, self.requests = begin, requests  # the number of the first
        lengths = lengths_of(requests)
        unit, longest = np.arange(len(requests)), lengths
        if any(request.group is not None for request in requests):
            unit = group_numbers(requests)
            longest = np.zeros(len(requests), np.int64)
            np.maximum.at(longest, unit, lengths)
        order = np.lexsort((unit, -longest[unit]))
        self._rows, lengths, unit = order.tolist(), lengths[order], unit[order]
        last = np.ones(len(unit), np.bool_)
        last[:-1] = unit[1:] != unit[:-1]
        self._ends = np.flatnonzero(last) + 1  # of each unit, in rows
        self._tokens = np.cumsum(lengths)[self._ends - 1] if len(lengths) else lengths  # of it and all before
        self._taken = 0  # units

    @property
    def is_empty(self) -> bool:
        return self._taken == len(self._ends)

    def take(self, room: int, at_least_one: bool) -> tuple[list[int], int]:
        """The rows of the next requests, as many as there is room for, and their tokens."""
        begin = self._taken
        rows_before, tokens_before = (int(x[begin - 1]) if begin else 0 for x in (self._ends, self._tokens))
        end = int(np.searchsorted(self._tokens, tokens_before + room, side="right"))
        end = max(end, min(begin + at_least_one, len(self._ends)))
        if end <= begin:
            return [], 0
        self._taken = end
        return self._rows[rows_before : self._ends[end - 1]], int(self._tokens[end - 1]) - tokens_before


def lengths_of(requests: Sequence[Request]) -> Ints:
    """[N]."""
    return np.fromiter(map(len, [request.ids for request in requests]), np.int64, len(requests))


def rows_of(places: Ints, lengths: Ints) -> Ints:
    """The tokens of some of the sequences that lie end to end: places 2, 0 of lengths 1, 3, 2 -> 4, 5, 0."""
    starts, sizes = (np.cumsum(lengths) - lengths)[places], lengths[places]
    return np.arange(int(sizes.sum())) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)


class _Lane:
    """Sequences on their way through the layers; what is decided about them is arrays, for there may be thousands."""

    def __init__(self, stages: Stages, rule: ExitRule, every_exit: bool):
        self.stages, self.rule, self.every_exit = stages, rule, every_exit
        self.by_token = PER_TOKEN | ({"logits"} if stages.problem == "tags" else set())
        self.requests: list[Request] = []
        self.numbers = np.zeros(0, np.int64)  # [n] of the requests
        self.lengths = np.zeros(0, np.int64)  # [n]
        self.depths = np.zeros(0, np.int64)  # [n]
        self.agreed = np.zeros(0, np.int64)  # [n]
        self.answers: NDArray[np.float64] | None = None  # [n, K] at the exit before; None: there was none yet
        self.states: Any = None  # [t, H]
        self.by_first = False  # whether all that is wanted is read from [CLS]
        self.unfinished = False  # whether the last FFN has not been applied to `states` yet
        self.asked: list[tuple[int, Ints, Answered]] = []  # depth, places, what is being answered there
        self.tokens = 0

    def settle(self) -> list[tuple[int, Outputs]]:
        """Wait for the outputs, and release finished sequences."""
        done = np.zeros(len(self.requests), np.bool_)
        results: list[tuple[int, Outputs]] = []
        for depth, places, answered in self.asked:
            named, product = answered.fetch()
            stop = self._decide(depth, places, named, product)
            done[places] = stop
            rows = np.arange(len(stop)) if self.every_exit else np.flatnonzero(stop)
            chosen = places[rows]
            outputs = self._outputs(named, places, rows, depth)
            results += zip(self.numbers[chosen].tolist(), outputs, strict=True)
        self.asked = []
        if done.any():
            self._keep(np.flatnonzero(~done))
        return results

    def _outputs(self, named: Mapping[str, NDArray[Any]], places: Ints, rows: Ints, depth: int) -> list[Outputs]:
        """What some rows of an answer, given for sequences at `places`, say of each sequence."""
        wants = [self.requests[place].want for place in places[rows].tolist()]
        if len(set(wants)) == 1 and not wants[0] & self.by_token and self.stages.problem != "answer":
            return rows_of_outputs({name: named[name][rows] for name in wants[0]}, depth=np.array(depth))
        ends = np.concatenate([[0], np.cumsum(self.lengths[places])]).tolist()
        return [
            self._cut(named, want, row, ends[row], ends[row + 1], depth)
            for row, want in zip(rows.tolist(), wants, strict=True)
        ]

    def _cut(
        self, named: Mapping[str, NDArray[Any]], want: Iterable[str], row: int, begin: int, end: int, depth: int
    ) -> Outputs:
        by_token = self.by_token
        output = {name: named[name][begin:end] if name in by_token else named[name][row] for name in want}
        if self.stages.problem == "answer":
            length = end - begin
            output |= {name: output[name][(slice(length),) * output[name].ndim] for name in BEAMS if name in output}
        output["depth"] = np.array(depth)
        return output

    def _decide(
        self, depth: int, places: Ints, named: Mapping[str, NDArray[Any]], product: NDArray[Any] | None
    ) -> NDArray[np.bool_]:
        problem, exits, rule = self.stages.problem, self.stages.exits, self.rule
        if depth == exits[-1]:
            return np.ones(len(places), np.bool_)
        lengths, marks, groups = self.lengths[places], None, None
        if problem in ("tags", "span"):
            marks = outside_of([self.requests[place] for place in places.tolist()], lengths)
        elif problem == "choice":
            groups = group_numbers([self.requests[place] for place in places.tolist()])
        signs = signs_of(problem, named, lengths, marks, groups, self.numbers[places])
        number = exits.index(depth)
        if self.answers is None:
            self.answers = np.zeros((len(self.requests), signs.answer.shape[1]))
        before = None if number == 0 else self.answers[places]
        change, self.agreed[places] = compare(rule, problem, signs, before, self.agreed[places])
        agreed = self.agreed[places]
        says = None
        if rule.gate is not None:
            assert product is not None
            says = rule.gate.probability(number, product, see(signs, change, agreed))
        self.answers[places] = signs.answer
        return stops(rule, problem, depth, signs, agreed, says, groups)

    def _keep(self, places: Ints) -> None:
        """Continue with only these sequences, in this order."""
        self.states = self.stages.select([self.states], rows_of(places, self.lengths)) if len(places) else None
        self.requests = [self.requests[place] for place in places.tolist()]
        self.answers = None if self.answers is None else self.answers[places]
        self.numbers, self.lengths = self.numbers[places], self.lengths[places]
        self.depths, self.agreed = self.depths[places], self.agreed[places]
        self.tokens = int(self.lengths.sum())

    def advance(self, numbers: Sequence[int], joining: Sequence[Request]) -> None:
        """Let sequences join, apply layers up to the next exit, and run the heads there, without waiting."""
        if self.unfinished and self.requests:
            self.states = self.stages.finish(self.states, int(self.depths[0]))
        if joining:
            by_first = wanted_of(joining) <= self.stages.by_first
            self.by_first = by_first and (self.by_first or not self.requests)
            states = self.stages.embed(joining)
            self.states = states if self.states is None else self.stages.select([self.states, states], None)
            begun = np.zeros(len(joining), np.int64)
            self.numbers = np.concatenate([self.numbers, np.array(numbers, np.int64)])
            self.lengths = np.concatenate([self.lengths, lengths_of(joining)])
            self.depths, self.agreed = np.concatenate([self.depths, begun]), np.concatenate([self.agreed, begun])
            if self.answers is not None:
                self.answers = np.concatenate([self.answers, np.zeros((len(joining), self.answers.shape[1]))])
            alone = not self.requests
            self.requests += joining
            if not alone:  # neighbours of one length attend together on a CPU
                self._keep(np.argsort(-self.lengths, kind="stable"))
            self.tokens = int(self.lengths.sum())
        if not self.requests:
            return
        exits = np.array(self.stages.exits)
        following = exits[np.searchsorted(exits, self.depths, side="right")]
        step = int((following - self.depths).min())
        begin = int(self.depths[0])  # where depths differ, all layers are the same
        self.unfinished = self.by_first
        self.states = self.stages.apply(self.states, self.lengths, begin, begin + step, self.unfinished)
        self.depths += step
        for depth in sorted({*self.depths.tolist()}.intersection(self.stages.exits)):
            places = np.flatnonzero(self.depths == depth)
            states, lengths, requests = self.states, self.lengths[places], self.requests
            if len(places) < len(requests):
                requests = [requests[place] for place in places.tolist()]
            if self.by_first:
                first = (np.cumsum(self.lengths) - self.lengths)[places]
                states, lengths = self.stages.finish(self.stages.select([states], first), depth), np.ones_like(lengths)
            elif len(places) < len(self.requests):
                states = self.stages.select([states], rows_of(places, self.lengths))
            gate = self.rule.gate if depth < exits[-1] else None
            answered = self.stages.answer(states, lengths, requests, depth, gate)
            self.asked.append((depth, places, answered))


def outside_of(requests: Sequence[Request], lengths: Ints) -> NDArray[np.bool_]:
    """[T]: the tokens that do not count."""
    parts = zip(requests, lengths.tolist(), strict=True)
    return np.concatenate([np.zeros(n, np.bool_) if r.outside is None else r.outside for r, n in parts])


def group_numbers(requests: Sequence[Request]) -> Ints:
    """A number for each group of sequences that leave together: [N]."""
    known: dict[object, int] = {}
    alone = (object() if request.group is None else request.group for request in requests)
    return np.array([known.setdefault(each, len(known)) for each in alone])


def trace_signs(problem: Problem, requests: Sequence[Request], outputs: Sequence[Outputs]) -> Signs:
    """The signs of the outputs that requests got at one exit."""
    per_token = PER_TOKEN | ({"logits"} if problem == "tags" else set())
    names = outputs[0].keys()
    named = {
        name: (np.concatenate if name in per_token else np.stack)([output[name] for output in outputs])
        for name in names
    }
    lengths = lengths_of(requests)
    groups = group_numbers(requests) if problem == "choice" else None
    return signs_of(problem, named, lengths, outside_of(requests, lengths), groups)
