"""From the fields of a request to the bytes of its answer: pick the model, encode the texts, await the results."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import io
import json
import logging
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from litebert.errors import ConfigError, InputError, LitebertError, did_you_mean
from litebert.predict.abilities import ABILITIES
from litebert.predict.ability import Ability, Array, split_annotated
from litebert.predict.remote import RemoteRuntime
from litebert.serve.batcher import Batcher, FailedJob, Predictor
from litebert.serve.config import ServeConfig
from litebert.serve.gate import Exchange
from litebert.serve.queue import Job
from litebert.serve.schemas import Refusal, request_of
from litebert.serve.telemetry import Metrics, log_event

T = TypeVar("T")

# Longer texts are encoded in another thread, so as not to block the event loop.
INLINE_CHARACTERS = 4096
# Answers with more values than this are serialised in another thread.
INLINE_VALUES = 2048

Encode = Callable[[str, Sequence[Any]], bytes]


class Ask(Protocol):
    """A request in any of the accepted forms: ours, OpenAI's, text-embeddings-inference's."""

    ability: ClassVar[Ability]
    model: str | None

    def inputs(self) -> list[dict[str, Any]]: ...


class NotFinite(Exception):
    """A result contains NaN or infinity."""


class Service:
    """The loaded models with their queues."""

    def __init__(self, predictors: Mapping[str, Predictor], settings: ServeConfig, metrics: Metrics):
        if not predictors:
            raise ConfigError("a server needs at least one model")
        self.settings, self.metrics = settings, metrics
        for predictor in predictors.values():
            for name in getattr(predictor, "shipped", ()):  # now: no request should wait for one
                predictor.load_shipped(name)  # type: ignore[attr-defined]
        self.batchers = {name: Batcher(name, predictor, settings, metrics) for name, predictor in predictors.items()}
        self._cold = set(self.batchers)
        self._unusable: dict[str, list[str]] = {}  # abilities that failed in the warm-up, by model
        self.closing = False
        self._helpers = ThreadPoolExecutor(2, "prepare")

    def start(self) -> None:
        """Start the threads of the models, which warm up first."""
        for batcher in self.batchers.values():
            batcher.start(lambda batcher=batcher: self._warm_up(batcher))  # type: ignore[misc]

    async def close(self) -> None:
        """Finish accepted requests."""
        self.closing = True
        await asyncio.gather(*(batcher.close() for batcher in self.batchers.values()))
        self._helpers.shutdown(wait=False)

    def check_ready(self) -> None:
        """Raise a Refusal unless every model is warmed up and works."""
        if self._cold:
            raise Refusal(503, "warming_up", f"warming up: {', '.join(sorted(self._cold))}", {"Retry-After": "1"})
        if self.closing:
            raise Refusal(503, "closing", "the server is shutting down")
        if self._unusable:
            found = "; ".join(f"{model}: {', '.join(failed)}" for model, failed in sorted(self._unusable.items()))
            raise Refusal(503, "unusable", f"failed in the warm-up: {found}; see the server's log")

    def models(self) -> dict[str, tuple[Batcher, Predictor]]:
        """All models by the name that requests use: "default", and with an adapter "default:sentiment"."""
        found: dict[str, tuple[Batcher, Predictor]] = {}
        for name, batcher in self.batchers.items():
            found[name] = (batcher, batcher.predictor)
            for adapter, predictor in getattr(batcher.predictor, "adapters", {}).items():
                found[f"{name}:{adapter}"] = (batcher, predictor)
        return found

    def model(self, name: str) -> tuple[Batcher, Predictor]:
        """One of `models`."""
        models = self.models()
        if name not in models:
            hint = did_you_mean(name, models) or "."
            raise Refusal(404, "unknown_model", f"no model {name[:80]!r}{hint} Loaded: {', '.join(models)}")
        return models[name]

    async def answer(self, body: Ask, exchange: Exchange, encode: Encode | None = None) -> bytes:
        """The JSON answer to a request."""
        encode = encode or encode_results
        ability = body.ability.name
        name, batcher, predictor = self._pick(body.model, ability)
        exchange.model = name
        inputs = self._inputs(body)
        exchange.inputs = len(inputs)
        with batcher.place():
            jobs, together = await self._make_jobs(name, predictor, ability, inputs, self._time_left(exchange))
            exchange.model = name = answering_model(name, jobs)
            exchange.tokens = sum(job.tokens for job in jobs)
            limit = self.settings.request_tokens
            if exchange.tokens > limit:
                message = f"the request has {exchange.tokens:,} tokens, the limit is {limit:,}; send less text"
                if getattr(body, "joint", False):  # it reads the text once per candidate and mask
                    message += " or fewer masks, or ask for a smaller `top`"
                raise Refusal(413, "too_many_tokens", message)
            self._check_candidates(jobs, body)
            ticket = batcher.accept(jobs, lambda: exchange.line.gone)
        try:
            results = await batcher.wait(ticket, self._time_left(exchange))
        except FailedJob:
            message = f"model {name!r} failed on this input; see the server's log"
            raise Refusal(503, "failed", message) from None
        for index, result in enumerate(results):
            if isinstance(result, InputError):
                raise self._mistake(result, index, len(results))
        if together:
            (results,) = results
        try:
            if is_large(results):
                return await self._aside(lambda: encode(name, results))
            return encode(name, results)
        except NotFinite as error:
            log_event("failed", logging.ERROR, error, model=name, ability=ability)
            message = f"model {name!r} computes NaN or infinite numbers for this input; its weights may be damaged"
            raise Refusal(503, "failed", message) from None

    def _pick(self, name: str | None, ability: str) -> tuple[str, Batcher, Predictor]:
        models = self.models()
        if name is None:
            able = [each for each, (_, predictor) in models.items() if ability in predictor.abilities]
            if not able and len(models) > 1:
                raise Refusal(400, "no_such_ability", f"no loaded model can {ability.replace('_', ' ')}")
            name = (able or list(models))[0]
        return name, *self.model(name)

    def _inputs(self, body: Ask) -> list[dict[str, Any]]:
        try:
            inputs = body.inputs()
        except ValueError as error:
            raise Refusal(422, "invalid_input", str(error)) from None
        if not inputs:
            raise Refusal(422, "invalid_input", "the list of inputs is empty")
        limit = self.settings.request_inputs
        if len(inputs) > limit:
            raise Refusal(413, "too_many_inputs", f"the request has {len(inputs)} inputs, the limit is {limit}")
        return inputs

    async def _make_jobs(
        self, name: str, predictor: Predictor, ability: str, inputs: list[dict[str, Any]], seconds: float
    ) -> tuple[Sequence[Job], bool]:
        """The jobs of a request, and whether one job takes all its texts together and gives a list."""
        together = len(inputs) > 1 and hasattr(predictor, "many_job") and _are_alike(ABILITIES[ability], inputs)

        def make() -> list[Job]:
            if together and ability in predictor.abilities:
                return [self._joint_job(predictor, ABILITIES[ability], inputs)]
            return self._separate_jobs(name, predictor, ability, inputs)

        if count_characters(inputs) <= INLINE_CHARACTERS:
            return make(), together
        try:
            return await asyncio.wait_for(self._aside(make), seconds), together
        except TimeoutError:
            raise Refusal(503, "overloaded", "the server is overloaded; try again later") from None

    def _joint_job(self, predictor: Predictor, ability: Ability, inputs: list[dict[str, Any]]) -> Job:
        """One job for texts with the same options."""
        text = ability.inputs[0].name
        texts = predictor.encode_texts(ability.name, [each[text] for each in inputs])  # type: ignore[attr-defined]
        for index, ids in enumerate(texts):
            if isinstance(ids, InputError):
                raise self._mistake(ids, index, len(inputs))
        options = {key: value for key, value in inputs[0].items() if not ability.parameters[key].is_input}
        try:
            job: Job = predictor.many_job(ability.name, texts, **options)  # type: ignore[attr-defined]
        except InputError as error:
            raise self._mistake(error, 0, len(inputs)) from None
        return job

    def _separate_jobs(self, name: str, predictor: Predictor, ability: str, inputs: list[dict[str, Any]]) -> list[Job]:
        """A job for each input."""
        jobs = []
        for index, arguments in enumerate(inputs):
            try:
                jobs.append(predictor.job(ability, **arguments))
            except InputError as error:
                if ability not in predictor.abilities:
                    # Clients know the model by its served name, not by its folder.
                    reason = str(error).removeprefix(f"{predictor.name}: ")
                    raise Refusal(400, "no_such_ability", f"{name}: {reason}") from None
                raise self._mistake(error, index, len(inputs)) from None
        return jobs

    def _check_candidates(self, jobs: Sequence[Job], body: Ask) -> None:
        """Refuse requests of a few bytes that would need megabytes of candidates."""
        masks, top, limit = sum(job.masks for job in jobs), getattr(body, "top", 1), self.settings.request_candidates
        if masks * top > limit:
            message = f"{masks:,} masks with {top} candidates each, the limit is {limit:,} candidates"
            raise Refusal(413, "too_many_candidates", f"{message}; ask for a smaller `top`, or send less text")

    @staticmethod
    def _mistake(error: InputError, index: int, count: int) -> Refusal:
        where = f"input {index}: " if count > 1 else ""
        return Refusal(422, "invalid_input", f"{where}{error}")

    def _time_left(self, exchange: Exchange) -> float:
        return max(exchange.began + self.settings.timeout_s - time.perf_counter(), 0.0)

    async def _aside(self, work: Callable[[], T]) -> T:
        """Run slow work in another thread, so as not to block the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._helpers, work)

    async def load_adapter(self, name: str, folder: str, model: str | None) -> str:
        """Load an adapter while the server runs, test it, and return the name that requests use."""
        batcher = self._base_of(model)
        if not Path(folder).is_dir():
            raise Refusal(422, "invalid_input", f"folder: no folder {folder[:200]!r} on the server")

        def check(adapted: Predictor) -> None:
            if failed := self._try_out(f"{batcher.name}:{name}", adapted):
                raise Refusal(422, "unusable", f"{name}: failed in the warm-up: {', '.join(failed)}")

        try:
            await self._aside(lambda: batcher.predictor.add_adapter(name, folder, check))  # type: ignore[attr-defined]
        except LitebertError as error:
            raise Refusal(422, "invalid_input", str(error)) from None
        log_event("adapter_loaded", model=f"{batcher.name}:{name}")
        return f"{batcher.name}:{name}"

    def unload_adapter(self, name: str, model: str | None) -> str:
        """Unload an adapter; requests that were accepted still get their answers."""
        batcher = self._base_of(model)
        try:
            batcher.predictor.remove_adapter(name)  # type: ignore[attr-defined]
        except LitebertError as error:
            raise Refusal(404, "unknown_model", str(error)) from None
        log_event("adapter_unloaded", model=f"{batcher.name}:{name}")
        return f"{batcher.name}:{name}"

    def _base_of(self, model: str | None) -> Batcher:
        """The queue of a base model; only for callers allowed to change adapters."""
        if not self.settings.api_key:
            message = "adapters can be loaded and unloaded only on a server with an API key (api_key)"
            raise Refusal(403, "key_needed", message)
        name = next(iter(self.batchers)) if model is None else model
        if name not in self.batchers:
            hint = did_you_mean(name, self.batchers) or "."
            raise Refusal(404, "unknown_model", f"no model {name[:80]!r}{hint} Loaded: {', '.join(self.batchers)}")
        if not hasattr(self.batchers[name].predictor, "add_adapter"):
            raise Refusal(400, "no_such_ability", f"model {name!r} takes no adapters")
        if isinstance(getattr(self.batchers[name].predictor, "runtime", None), RemoteRuntime):
            message = "a server of several processes cannot change its adapters; name them at its start"
            raise Refusal(400, "no_such_ability", message)
        return self.batchers[name]

    def _warm_up(self, batcher: Batcher) -> None:
        began = time.perf_counter()
        for name, (queue, predictor) in self.models().items():
            if queue is batcher and (failed := self._try_out(name, predictor)):
                self._unusable[name] = failed
        self._cold.discard(batcher.name)
        log_event("warm", model=batcher.name, ms=round((time.perf_counter() - began) * 1000))

    @staticmethod
    def _try_out(name: str, predictor: Predictor) -> list[str]:
        """Run an example of each ability; the names of those that fail."""
        failed = []
        for ability in predictor.abilities:
            try:
                results = predictor.run(_example_jobs(predictor, ABILITIES[ability]))
                for result in results:
                    if isinstance(result, Exception):
                        raise result
                encode_results(name, results)
            except InputError as error:  # the example does not fit the model's vocabulary or length
                log_event("warm_up_skipped", logging.WARNING, error, model=name, ability=ability)
            except Exception as error:
                log_event("warm_up_failed", logging.ERROR, error, model=name, ability=ability)
                failed.append(ability)
        return failed


def _example_jobs(predictor: Predictor, ability: Ability) -> list[Any]:
    """The first example that the model takes: a model of pairs refuses a single text."""
    for number, example in enumerate(ability.examples, start=1):
        arguments = request_of(ability).model_validate(dict(example)).inputs()
        try:
            return [predictor.job(ability.name, **each) for each in arguments]
        except InputError:
            if number == len(ability.examples):
                raise
    return []


def answering_model(name: str, jobs: Sequence[Any]) -> str:
    """The name of what answers: "default:sentiment" where the package's adapter does for "default"."""
    adapter = getattr(jobs[0], "adapter", None)
    return name if adapter is None or name.endswith(f":{adapter.name}") else f"{name}:{adapter.name}"


def _are_alike(ability: Ability, inputs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether inputs are single texts with the same options, for an ability that takes many of those at once."""
    if ability.many is None:
        return False
    first = ability.inputs[0].name
    rest = [{key: value for key, value in each.items() if key != first} for each in inputs]
    pairs = [each.name for each in ability.inputs[1:]]
    return all(each == rest[0] for each in rest) and all(rest[0].get(name) is None for name in pairs)


def count_characters(value: Any) -> int:
    """The characters in nested fields: [{"text": "abc", "options": ["d", "e"], "top": 5}] -> 5."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        value = value.values()
    return 0 if value is None or isinstance(value, int | float) else sum(map(count_characters, value))


def is_large(results: Sequence[Any]) -> bool:
    """Whether results are large enough to serialise in another thread; stops counting as soon as that is clear."""
    room, waiting = INLINE_VALUES, list(results)
    while waiting and room > 0:
        value = waiting.pop()
        if isinstance(value, np.ndarray):
            room -= value.size
        elif isinstance(value, str):
            room -= 1 + len(value) // 32  # characters are faster to serialise than numbers
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, tuple | list):
            waiting.extend(value)
        elif dataclasses.is_dataclass(value):
            waiting.extend(vars(value).values())
        else:
            room -= 1
    return room <= 0


def encode_results(model: str, results: Sequence[Any]) -> bytes:
    """Results as JSON."""
    return dump({"model": model, "results": [_rounded(result).as_dict() for result in results]})


def encode_array(field: str, results: Sequence[Any]) -> bytes:
    """One array of all results in numpy's file format: of texts, their vectors [N, H]."""
    buffer = io.BytesIO()
    np.save(buffer, stack_finite(results, field))
    return buffer.getvalue()


def stack_finite(results: Sequence[Any], field: str = "vector") -> Any:
    """The arrays of all results as one; NaN and infinity are refused, as in JSON."""
    array = np.stack([getattr(result, field) for result in results])
    if not np.isfinite(array).all():
        raise NotFinite
    return array


def dump(answer: Any) -> bytes:
    """An answer as JSON, which has no NaN and no infinity."""
    try:
        return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise NotFinite from None


def _rounded(result: Any) -> Any:
    """A result with its arrays rounded to the digits they declare: four digits take a third of the bytes."""
    kind: Any = type(result)
    changes = {name: getattr(result, name).round(digits) for name, digits in _digits(kind).items()}
    return dataclasses.replace(result, **changes) if changes else result


@functools.cache
def _digits(kind: Any) -> dict[str, int]:
    hints = typing.get_type_hints(kind, include_extras=True)
    marks = {each.name: split_annotated(hints[each.name])[2] for each in dataclasses.fields(kind)}
    arrays = {name: mark for name, found in marks.items() for mark in found if isinstance(mark, Array)}
    return {name: mark.digits for name, mark in arrays.items() if mark.digits is not None}
