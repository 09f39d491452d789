"""The Predictor: a model folder, and raw text in and plain answers out.

    predictor = Predictor("runs/mine/model")
    predictor.fill_mask("the capital of france is [MASK]").masks[0].candidates[0].word
    predictor.fill_mask(["a [MASK]", "b [MASK]"])       -> two results from one pass through the model

Every method takes one input or a list of them, of any length, and answers in their order. A server makes jobs
(`predictor.job`) as requests arrive and runs them together, to their end (`predictor.run`) or pass by pass
(`predictor.run_pass`).
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from litebert.errors import ConfigError, InputError, did_you_mean, quote_value
from litebert.model.config import EXIT_HEADS, check_depth, check_exit, suggest_exits
from litebert.predict.abilities import ABILITIES, SHIPPED, abilities_of, infer_task, refuse, shipped_for
from litebert.predict.ability import Ability, Depth, Parameter, Result
from litebert.predict.exits import ExitRule, check_limit, load_rule
from litebert.predict.job import Ids, Inputs, Job, Join, Parts, run_jobs, run_open, run_pass
from litebert.predict.runtime import AdaptedRuntime, OpenRuntime, Runtime
from litebert.remote import DEFAULT, find_folder, shipped_adapters
from litebert.tasks.sentence_folder import transformer_folder
from litebert.tasks.task import Task, check_outputs, kind_of
from litebert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.predict.adapters import Adapter
    from litebert.predict.methods import AbilityMethods
else:
    AbilityMethods = object


class Predictor(AbilityMethods):
    """Answers from raw text by one model."""

    def __init__(
        self,
        model: Path | str = "default",
        *,
        runtime: str = "auto",  # or torch, onnx (int8 if there), onnx-fp32, onnx-int8
        device: str = "auto",
        threads: int = 0,
        max_tokens: int = 0,  # per pass; 0: 8,192, and more on a GPU where texts stop early
        depth: Depth | None = None,  # layers to apply, or "auto"; per call: classify(text, depth=6)
        speed_up: float | None = None,  # of "auto": by how much fewer layers; by default as it was calibrated
    ):
        counts: tuple[tuple[str, object, int], ...] = (("max_tokens", max_tokens, 0), ("threads", threads, 0))
        for name, value, least in counts:
            if not isinstance(value, Integral) or int(value) < least:
                raise ConfigError(f"{name}: must be a whole number >= {least}, not {value!r}")
        if speed_up is not None:
            check_limit("speed_up", speed_up, 1)
            if depth not in (None, "auto"):
                raise ConfigError(f"speed_up: chooses the depth of each text; leave out depth={quote_value(depth)}")
        from litebert.predict.load import load_parts  # torch: a worker whose model is elsewhere starts without it

        parts = load_parts(model, runtime, device, threads, max_tokens)
        self._set(*parts, str(model), load_rule(transformer_folder(find_folder(model)), speed_up))
        depth = "auto" if depth is None and speed_up is not None else depth
        if depth is not None:
            self._check_depth(depth, any(ABILITIES[name].heads for name in self.abilities))
        self.depth = depth
        if model == DEFAULT:
            self._ship(shipped_adapters())

    @classmethod
    def of(
        cls,
        runtime: Runtime,
        tokenizer: Tokenizer,
        task: Task | None = None,
        name: str = "model",
        rule: ExitRule | None = None,
        shipped: Mapping[str, Path] | None = None,
    ) -> Predictor:
        """A Predictor made of parts that are loaded already."""
        predictor = cls.__new__(cls)
        predictor._set(runtime, tokenizer, task, name, rule)
        if shipped:
            predictor._ship(shipped)
        return predictor

    def _set(
        self, runtime: Runtime, tokenizer: Tokenizer, task: Task | None, name: str, rule: ExitRule | None = None
    ) -> None:
        config = runtime.config
        if tokenizer.vocab_size > config.vocab_size:
            raise ConfigError(
                f"{name}: the tokenizer has {tokenizer.vocab_size:,} pieces, the model {config.vocab_size:,}; "
                "they do not match"
            )
        if task is not None:
            check_outputs(task, runtime.head, config.num_labels, name)
        self.name = name
        self.adapters: dict[str, Predictor] = {}  # by name; see `add_adapter`
        self.packaged = False  # whether it answers with an adapter of the package
        self._packaged: Mapping[str, Path] = {}  # those that came in `shipped`, whether or not they are still in it
        self.shipped = {}
        self._loading = threading.RLock()
        self.adapter: Adapter | None = None  # the one that this Predictor answers with
        self.runtime = runtime
        self.tokenizer = tokenizer
        self.task = task or infer_task(config, runtime.head)
        self.depth = None
        self.rule = rule
        self._list_abilities()
        # Positions that no training has seen are random: a model is asked in sequences as long as it was trained on.
        longest = min(config.max_position_embeddings, tokenizer.max_length or config.max_position_embeddings)
        self._inputs = Inputs(tokenizer, longest)
        self._task_inputs = Inputs(tokenizer, min(longest, self.task.max_length) if self.task else longest)

    def _ship(self, adapters: Mapping[str, Path]) -> None:
        self._packaged, self.shipped = adapters, dict(adapters)
        self._list_abilities()

    def _list_abilities(self) -> None:
        self._own = abilities_of(self.runtime)  # without those of shipped adapters
        self.abilities = tuple(name for name in ABILITIES if name in self._own or SHIPPED.get(name) in self.shipped)

    runtime: Runtime
    shipped: dict[str, Path]  # the package's adapters of the model "default", loaded when first needed
    abilities: tuple[str, ...]
    depth: Depth | None
    rule: ExitRule | None  # of early exit: what `litebert calibrate` found

    def _check_depth(self, depth: Any, by_head: bool) -> None:
        """Refuse a depth that the model, its head or its runtime lacks."""
        if depth == "auto":
            if not by_head:
                raise InputError("depth: auto is for answers of a fine-tuned head; give a number of layers")
            if not self.runtime.any_depth:
                raise InputError(f"depth: auto is for models with exits, and {self.name} has none")
            if self.rule is None:
                config = self.runtime.config
                if not config.exits:
                    some = suggest_exits(config.num_hidden_layers)
                    raise InputError(
                        f"depth: {self.name} has no exits for auto; fine-tune it with some (exits: {some})"
                    )
                raise InputError(
                    f"depth: {self.name} has no rule for auto yet; make one: "
                    f"litebert calibrate {self.name} --data FILE --max-loss 0.3"
                )
            return
        if isinstance(depth, bool) or not isinstance(depth, Integral):
            raise InputError(f"depth: must be a whole number of layers or 'auto', not {depth!r}")
        check_depth(self.runtime.config, int(depth))
        if by_head and self.runtime.head in EXIT_HEADS:
            check_exit(self.runtime.config, int(depth))
        if not self.runtime.any_depth and depth != self.runtime.config.num_hidden_layers:
            raise InputError(f"depth: {self.runtime.name} answers only at full depth; use the torch runtime")
        depths = getattr(self.runtime, "depths", None)  # those of an exported model
        if depths and depth not in (*depths, self.runtime.config.num_hidden_layers):
            raise InputError(f"depth: {self.runtime.name} has exits at {', '.join(map(str, depths))}, not at {depth}")

    def __repr__(self) -> str:
        return f"Predictor({self.name!r}, {self.runtime.head}: {', '.join(self.abilities)})"

    # -----------------------------------------------------------------------------------------------------------------
    # Jobs: what a server batches across requests

    def job(self, ability: str, **arguments: Any) -> Job:
        """One piece of work, checked and encoded, for `run`: job("fill_mask", text="a [MASK]", top=3)."""
        if (answering := self.answering(ability, arguments)) is not self:
            return answering.job(ability, **arguments)
        entry = self._entry(ability)
        arguments, when = self._when(entry, arguments)
        steps = entry.begin(self._inputs_of(entry), self.task, arguments)
        return Job(ability, steps, self.runtime.config, self.adapter, **when)

    def encode_texts(self, ability: str, texts: Sequence[Any]) -> list[Ids | InputError]:
        """The ids of each text as this ability reads it, or why it has none: for `many_job`."""
        if (answering := self.answering(ability, {})) is not self:
            return answering.encode_texts(ability, texts)
        return self._inputs_of(self._entry(ability)).encode_many(texts)

    def many_job(self, ability: str, texts: Sequence[Ids], **options: Any) -> Job:
        """One piece of work for many encoded texts, with the same options; its result is the list of theirs.

        For abilities with `Ability.many`. As many jobs of one text each would give the same results, but take longer.
        """
        if (answering := self.answering(ability, options)) is not self:
            return answering.many_job(ability, texts, **options)
        entry = self._entry(ability)
        options, when = self._when(entry, options)
        steps = entry.begin_many(self._inputs_of(entry), self.task, texts, options)
        return Job(ability, steps, self.runtime.config, self.adapter, **when)

    def answering(self, ability: str, arguments: Mapping[str, Any]) -> Predictor:
        """Who does the work: this Predictor, or the package's adapter for the model "default"."""
        shipped = shipped_for(ability, arguments)
        return self.load_shipped(shipped) if shipped is not None and shipped in self.shipped else self

    def _entry(self, ability: str) -> Ability:
        if ability not in self._own:
            raise refuse(ability, self.name, self.runtime.head, self.abilities)
        return ABILITIES[ability]

    def _inputs_of(self, entry: Ability) -> Inputs:
        trained = entry.takes_task or (entry.reads_task and self.task is not None and kind_of(self.task).compares)
        return self._task_inputs if trained else self._inputs

    def _when(self, entry: Ability, arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments without their depth, and it (or this Predictor's) as a Job takes it."""
        if "depth" not in entry.parameters:
            if self.depth not in (None, "auto"):
                raise InputError(f"{entry.name}: answers only at full depth, and this Predictor has depth {self.depth}")
            return arguments, {}
        depth = arguments.get("depth")
        if depth is None and (self.depth != "auto" or entry.heads):  # vectors have no confidence
            depth = self.depth
        if depth is not None:
            self._check_depth(depth, bool(entry.heads))
        rest = {name: value for name, value in arguments.items() if name != "depth"}
        return rest, {"rule": self.rule} if depth == "auto" else {"depth": depth}

    def run(self, jobs: Sequence[Job]) -> list[Result | Exception]:
        """Run jobs of any abilities together; each gets its result or its own error."""
        return run_jobs(self.runtime, jobs)

    def run_pass(self, parts: Sequence[tuple[Job, int]]) -> None:
        """Run the next sequences of each job together, as many as given; a finished job has its `result`."""
        run_pass(self.runtime, parts)

    def run_open(self, parts: Parts, join: Join, max_tokens: int, done: Callable[[Job], None]) -> bool:
        """As `run_pass` where texts stop early and others may join: see `litebert.predict.job.run_open`.

        False if nothing was run, since these jobs take no part in it: all must have the rule of early exit.
        """
        if not hasattr(self.runtime, "run_open") or any(job.rule is None for job, _ in parts):
            return False
        run_open(cast(OpenRuntime, self.runtime), parts, join, max_tokens, done)
        return True

    # -----------------------------------------------------------------------------------------------------------------
    # Adapters that share passes with this model

    def add_adapter(self, name: str, folder: Path | str, check: Callable[[Predictor], None] | None = None) -> Predictor:
        """Load an adapter of this model: a Predictor with the adapter's abilities, which is also in `adapters`.

        Jobs of the model and of all its adapters may run together, in any Predictor of them; they share passes.
        `check` is called with the new Predictor before anyone else can find it; if it raises, nothing is added.
        """
        self._check_new(name)
        from litebert.predict.load import open_adapter

        return self.attach(open_adapter(folder, name, self.runtime, self.name), check)

    def attach(self, adapter: Adapter, check: Callable[[Predictor], None] | None = None) -> Predictor:
        """As `add_adapter`, for one that is open already."""
        adapted = Predictor.of(AdaptedRuntime(self.runtime, adapter), self.tokenizer, adapter.task)
        adapted.name, adapted.adapter = f"{self.name}:{adapter.name}", adapter
        if check is not None:
            check(adapted)
        with self._loading:
            self._check_new(adapter.name)  # again: another thread may have been faster
            self.adapters = {**self.adapters, adapter.name: adapted}  # a new one: other threads may be reading it
            if adapter.name in self._packaged:  # it takes the place of the package's, which may be gone by now
                self.shipped = {**self.shipped, adapter.name: self._packaged[adapter.name]}
                self._list_abilities()
        return adapted

    def _check_new(self, name: str) -> None:
        if self.adapter is not None:
            raise ConfigError(f"{self.name}: an adapter itself; add adapters to the Predictor of its base")
        if not isinstance(name, str) or not name or ":" in name or name in self.adapters:
            loaded = ", ".join(self.adapters) or "none"
            raise ConfigError(f"adapter {name!r}: must be a new name without ':'; loaded: {loaded}")

    def load_shipped(self, name: str) -> Predictor:
        """The package's adapter of this name, loaded on first use, or the one that was added under its name."""
        with self._loading:
            if name not in self.adapters:
                added = self.add_adapter(name, self.shipped[name])
                added.depth, added.packaged = self.depth, True
            return self.adapters[name]

    def remove_adapter(self, name: str) -> None:
        """Unload an adapter; jobs that it has made can still run."""
        with self._loading:
            if name not in self.adapters:
                loaded = ", ".join(self.adapters) or "none"
                raise ConfigError(f"no adapter {name!r}{did_you_mean(name, self.adapters)}; loaded: {loaded}")
            self.adapters = {each: predictor for each, predictor in self.adapters.items() if each != name}
            self.shipped = {each: folder for each, folder in self.shipped.items() if each != name}
            self._list_abilities()

    # -----------------------------------------------------------------------------------------------------------------
    # One method per ability of the table, made below; `methods.pyi` has their types.

    def _ask(self, ability: Ability, arguments: dict[str, Any]) -> Any:
        """One result for plain inputs, a list for lists; a plain input is repeated for each element."""
        lists = {each.name: arguments[each.name] for each in ability.inputs if _is_list(each, arguments.get(each.name))}
        if not lists:
            return _value(ability, self._finish([self.job(ability.name, **arguments)])[0])
        sizes = {name: len(value) for name, value in lists.items()}
        if len(set(sizes.values())) > 1:
            given = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise InputError(f"{ability.name}: lists of different lengths: {given}")
        given_inputs = [each for each in ability.inputs if arguments.get(each.name) is not None]
        if ability.many is not None and len(given_inputs) == 1:
            values = [_value(ability, result) for result in self._ask_many(ability, arguments)]
            return self._joined(ability, values)
        jobs = []
        for number in range(next(iter(sizes.values()))):
            one = {name: lists[name][number] if name in lists else value for name, value in arguments.items()}
            try:
                jobs.append(self.job(ability.name, **one))
            except InputError as error:
                raise InputError(f"input {number}: {error}") from None
        return self._joined(ability, [_value(ability, result) for result in self._finish(jobs)])

    def _ask_many(self, ability: Ability, arguments: Mapping[str, Any]) -> list[Result]:
        """The results for a list of texts, in one job."""
        name = ability.inputs[0].name
        texts = self.encode_texts(ability.name, arguments[name])
        for number, ids in enumerate(texts):
            if isinstance(ids, InputError):
                raise InputError(f"input {number}: {ids}")
        options = {key: value for key, value in arguments.items() if not ability.parameters[key].is_input}
        if not texts:
            return []
        try:
            job = self.many_job(ability.name, cast(list[Ids], texts), **options)
        except InputError as error:
            raise InputError(f"input 0: {error}") from None
        return cast(list[Result], self._finish([job])[0])

    def _joined(self, ability: Ability, values: list[Any]) -> Any:
        """What a method returns for a list of inputs."""
        if not ability.array:
            return values
        return np.stack(values) if values else np.zeros((0, self.runtime.config.hidden_size), np.float32)

    def _finish(self, jobs: Sequence[Job]) -> list[Result]:
        results = self.run(jobs)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return cast(list[Result], results)

    if not TYPE_CHECKING:  # where `methods.pyi` knows better

        def __getattr__(self, name: str) -> Any:
            """An ability that was added to the table after this module was loaded."""
            if name in ABILITIES:
                return method_of(ABILITIES[name]).__get__(self)
            hint = did_you_mean(name, ABILITIES) or f"; it has {', '.join(ABILITIES)}"
            raise AttributeError(f"a Predictor has no {name!r}{'' if name.startswith('_') else hint}")


def method_of(ability: Ability) -> Callable[..., Any]:
    """An ability as a method: fill_mask(text, top=5, joint=False)."""

    def method(self: Predictor, *arguments: Any, **named: Any) -> Any:
        return self._ask(ability, ability.bind(arguments, named))

    method.__name__, method.__qualname__ = ability.name, f"Predictor.{ability.name}"
    lines = [f"{each.name}: {each.about}" for each in ability.parameters.values()]
    method.__doc__ = "\n".join([ability.about, "", *lines])
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(each.name, place, default=each.default) for each in ability.parameters.values()]
    method.__signature__ = inspect.Signature([inspect.Parameter("self", place), *parameters])  # type: ignore[attr-defined]
    return method


for _ability in ABILITIES.values():
    setattr(Predictor, _ability.name, method_of(_ability))


def _is_list(parameter: Parameter, value: Any) -> bool:
    """Whether an argument holds many inputs; the options of one question are a list themselves."""
    if isinstance(value, (str, bytes, bytearray)) or not isinstance(value, Sequence):
        return False
    return parameter.kind == "text" or (len(value) > 0 and not isinstance(value[0], str))


def _value(ability: Ability, result: Result) -> Any:
    """What a method returns of a result."""
    return getattr(result, ability.array) if ability.array else result
