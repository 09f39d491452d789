"""Work as steps that share forward passes: a generator asks for outputs of sequences and returns a result.

    def ability(...) -> Steps[Answer]:
        outputs = yield [Request(...), Request(...)]      # in the same pass as the requests of every other job
        return Answer(outputs[0]["logits"], ...)

Mistakes of the user show while a job is made (the code before the first yield), so none reaches a batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

from litebert.model.config import ModelConfig
from litebert.predict.results import Result
from litebert.predict.runtime import Outputs, Request, Runtime

MOST_NUMBERS = 64_000_000  # of outputs held at once, four bytes each

R = TypeVar("R")
Steps = Generator[list[Request], list[Outputs], R]


class Job:
    """One piece of work for one result, ready to run once; `tokens` is what all its passes cost at most.

    `masks` is how many tokens it wants predicted.
    """

    def __init__(self, ability: str, steps: Steps[Result]):
        self.ability = ability
        self._steps = steps
        self._requests: list[Request] = next(steps)
        self.tokens = sum(len(each) * (1 + each.later) for each in self._requests)
        self.masks = sum(len(each.positions) for each in self._requests if each.positions is not None)
        self.result: Result | Exception | None = None

    def __repr__(self) -> str:
        return f"Job({self.ability!r}, tokens={self.tokens})"


def run_jobs(runtime: Runtime, jobs: Sequence[Job]) -> list[Result | Exception]:
    """Run jobs together and give a result or the reason for none to each, in order."""
    for group in _groups(runtime.config, jobs):
        active = [job for job in group if job.result is None]
        while active:
            for part in _groups(runtime.config, active):  # a later step may ask for more than the first
                for job, outputs in zip(part, _outputs_of(runtime, part), strict=True):
                    _advance(job, outputs)
            active = [job for job in active if job.result is None]
    results = [job.result for job in jobs]
    assert all(result is not None for result in results)
    return results  # type: ignore[return-value]


def _groups(config: ModelConfig, jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Jobs in order, as many at a time as their outputs leave room in memory for."""
    group: list[Job] = []
    numbers = 0
    for job in jobs:
        size = sum(_output_size(config, request) for request in job._requests)
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


def _outputs_of(runtime: Runtime, jobs: Sequence[Job]) -> list[list[Outputs] | Exception]:
    """The outputs that each job waits for; if the shared pass fails, each job is tried alone."""
    requests = [request for job in jobs for request in job._requests]
    try:
        outputs = iter(runtime.run(requests))
        return [[next(outputs) for _ in job._requests] for job in jobs]
    except Exception as error:
        if len(jobs) == 1:
            return [error]
        return [_outputs_of(runtime, [job])[0] for job in jobs]


def _advance(job: Job, outputs: list[Outputs] | Exception) -> None:
    if isinstance(outputs, Exception):
        job.result = outputs
        return
    try:
        job._requests = job._steps.send(outputs)
    except StopIteration as stop:
        job.result = stop.value
        job._requests = []
    except Exception as error:  # this job's alone: the others go on
        job.result = error
