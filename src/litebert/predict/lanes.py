"""Depth-wise batching: sequences at different depths share every product, done ones leave, waiting ones join.

    for number, outputs in read_early(stages, rule, requests): ...      # as each is done, not in order

Every application of a shared layer has the same weights, so a sequence that begins may lie beside one that is nearly
through. Only attention sees more than one token, and only those of its own sequence: nobody's answer depends on its
neighbours. A lane holds as many tokens as a pass; on a GPU two lanes take turns, so that the device works on one while
the host decides about the other, and never waits for it.

Stages are what a runtime does with states: embed, apply layers, answer at a depth (TorchStages, OnnxStages).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from litebert.predict.exits import ExitRule, Gate, Ints, Problem, Signs, compare, see, signs_of, stops
from litebert.predict.runtime import More, Outputs, Request

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

    def embed(self, requests: Sequence[Request]) -> Any: ...
    def select(self, states: Sequence[Any], rows: Ints | None) -> Any:
        """Some rows [t] of several states taken together; None: all."""
        ...

    def apply(self, states: Any, lengths: Ints, begin: int, end: int) -> Any:
        """The states after the layers `begin` to `end`, the first being 0."""
        ...

    def answer(self, states: Any, requests: Sequence[Request], depth: int, gate: Gate | None) -> Answered: ...


def read_early(
    stages: Stages, rule: ExitRule, requests: Sequence[Request], more: More | None = None
) -> Iterator[tuple[int, Outputs]]:
    """The number and the outputs of each request as it is done; those that `more` adds are counted on."""
    waiting, count = deque(_units(range(len(requests)), requests)), len(requests)
    known = dict(enumerate(requests))
    lanes = [_Lane(stages, rule) for _ in range(stages.num_lanes)]
    while True:
        for lane in lanes:
            for number, output in lane.settle():
                yield number, output
                del known[number]
            joining: list[int] = []
            room = stages.max_tokens - lane.tokens
            if stages.joins or not lane.tokens:
                if not waiting and more is not None and (added := more(room)):
                    known.update(enumerate(added, count))
                    waiting.extend(_units(range(count, count + len(added)), added))
                    count += len(added)
                while waiting:
                    size = sum(len(known[number]) for number in waiting[0])
                    if size > room and (joining or lane.tokens):
                        break
                    joining += waiting.popleft()
                    room -= size
            lane.advance([(number, known[number]) for number in joining])
        if not waiting and not any(lane.tokens for lane in lanes):
            return


def _units(numbers: Sequence[int], requests: Sequence[Request]) -> Iterator[list[int]]:
    """Units that join together, the longest first: a sequence, or all options of a question."""
    units: dict[object, list[int]] = {}
    for number, request in zip(numbers, requests, strict=True):
        units.setdefault(number if request.group is None else request.group, []).append(number)
    sizes = dict(zip(numbers, map(len, requests), strict=True))
    return iter(sorted(units.values(), key=lambda unit: -max(sizes[number] for number in unit)))


class _Lane:
    """Sequences on their way through the layers."""

    def __init__(self, stages: Stages, rule: ExitRule):
        self.stages, self.rule = stages, rule
        self.requests: list[Request] = []
        self.numbers = np.zeros(0, np.int64)  # [n] of the requests
        self.depths = np.zeros(0, np.int64)  # [n]
        self.agreed = np.zeros(0, np.int64)  # [n]
        self.answers: list[NDArray[np.float64] | None] = []  # at the exit before
        self.states: Any = None  # [t, H]
        self.asked: list[tuple[int, Ints, Answered]] = []  # depth, places, what is being answered there
        self.tokens = 0

    def settle(self) -> list[tuple[int, Outputs]]:
        """Wait for the outputs, and release finished sequences."""
        done = np.zeros(len(self.requests), np.bool_)
        results: list[tuple[int, Outputs]] = []
        for depth, places, answered in self.asked:
            named, product = answered.fetch()
            here = [self.requests[place] for place in places]
            lengths = np.array([len(request) for request in here])
            stop = self._decide(depth, places, here, lengths, named, product)
            done[places] = stop
            ends = np.concatenate([[0], np.cumsum(lengths)])
            for row in np.flatnonzero(stop).tolist():
                wanted = {name: named[name] for name in here[row].want}
                results.append((int(self.numbers[places[row]]), self._cut(wanted, row, ends, depth)))
        self.asked = []
        if done.any():
            self._keep(np.flatnonzero(~done))
        return results

    def _cut(self, named: Mapping[str, NDArray[Any]], row: int, ends: Ints, depth: int) -> Outputs:
        per_token = PER_TOKEN | ({"logits"} if self.stages.problem == "tags" else set())
        output = {name: v[ends[row] : ends[row + 1]] if name in per_token else v[row] for name, v in named.items()}
        length = int(ends[row + 1] - ends[row])
        output |= {name: output[name][(slice(length),) * output[name].ndim] for name in BEAMS if name in output}
        return {**output, "depth": np.array(depth)}

    def _decide(
        self,
        depth: int,
        places: Ints,
        here: Sequence[Request],
        lengths: Ints,
        named: Mapping[str, NDArray[Any]],
        product: NDArray[Any] | None,
    ) -> NDArray[np.bool_]:
        problem, exits, rule = self.stages.problem, self.stages.exits, self.rule
        if depth == exits[-1]:
            return np.ones(len(here), np.bool_)
        marks = [np.zeros(len(each), np.bool_) if each.outside is None else each.outside for each in here]
        groups = group_numbers(here) if problem == "choice" else None
        signs = signs_of(problem, named, lengths, np.concatenate(marks), groups, self.numbers[places])
        number = exits.index(depth)
        before = None if number == 0 else np.stack([self.answers[place] for place in places])
        change, self.agreed[places] = compare(rule, problem, signs, before, self.agreed[places])
        agreed = self.agreed[places]
        says = None
        if rule.gate is not None:
            assert product is not None
            says = rule.gate.probability(number, product, see(signs, change, agreed))
        for place, answer in zip(places, signs.answer, strict=True):
            self.answers[place] = answer
        return stops(rule, problem, depth, signs, agreed, says, groups)

    def _keep(self, places: Ints) -> None:
        """Continue with only these sequences, in this order."""
        ends = np.cumsum([len(request) for request in self.requests])
        rows = [np.arange(ends[place] - len(self.requests[place]), ends[place]) for place in places]
        self.states = self.stages.select([self.states], np.concatenate(rows)) if rows else None
        self.requests = [self.requests[place] for place in places]
        self.answers = [self.answers[place] for place in places]
        self.numbers, self.depths, self.agreed = self.numbers[places], self.depths[places], self.agreed[places]
        self.tokens = sum(map(len, self.requests))

    def advance(self, joining: Sequence[tuple[int, Request]]) -> None:
        """Let sequences join, apply layers up to the next exit, and run the heads there, without waiting."""
        if joining:
            requests = [request for _, request in joining]
            states = self.stages.embed(requests)
            self.states = states if self.states is None else self.stages.select([self.states, states], None)
            begun = np.zeros(len(joining), np.int64)
            self.numbers = np.concatenate([self.numbers, [number for number, _ in joining]])
            self.depths, self.agreed = np.concatenate([self.depths, begun]), np.concatenate([self.agreed, begun])
            self.requests += requests
            self.answers += [None] * len(joining)
            alone = len(self.requests) == len(joining)
            if not alone:  # neighbours of one length attend together on a CPU
                self._keep(np.argsort([-len(request) for request in self.requests], kind="stable"))
            self.tokens = sum(map(len, self.requests))
        if not self.requests:
            return
        exits = self.stages.exits
        following = np.array([next(exit for exit in exits if exit > depth) for depth in self.depths])
        step = int((following - self.depths).min())
        lengths = np.array([len(request) for request in self.requests])
        begin = int(self.depths[0])  # where depths differ, all layers are the same
        self.states = self.stages.apply(self.states, lengths, begin, begin + step)
        self.depths += step
        ends = np.cumsum(lengths)
        for depth in sorted(set(self.depths.tolist()) & set(exits)):
            places = np.flatnonzero(self.depths == depth)
            states = self.states
            if len(places) < len(self.requests):
                rows = [np.arange(ends[place] - lengths[place], ends[place]) for place in places]
                states = self.stages.select([states], np.concatenate(rows))
            gate = self.rule.gate if depth < exits[-1] else None
            answered = self.stages.answer(states, [self.requests[place] for place in places], depth, gate)
            self.asked.append((depth, places, answered))


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
    marks = [np.zeros(len(each), np.bool_) if each.outside is None else each.outside for each in requests]
    lengths = np.array([len(request) for request in requests])
    groups = group_numbers(requests) if problem == "choice" else None
    return signs_of(problem, named, lengths, np.concatenate(marks), groups)
