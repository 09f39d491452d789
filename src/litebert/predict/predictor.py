"""The Predictor: a model folder, and raw text in and plain answers out.

predictor = Predictor("runs/mine/model")
predictor.fill_mask("the capital of france is [MASK]").masks[0].candidates[0].word
predictor.fill_mask(["a [MASK]", "b [MASK]"])       -> two results, one pass
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from litebert.errors import InputError, did_you_mean
from litebert.predict.inputs import Inputs
from litebert.predict.job import Job, Steps, run_jobs
from litebert.predict.load import load_parts
from litebert.predict.masks import fill_mask
from litebert.predict.results import FilledMasks, Result
from litebert.predict.runtime import Runtime
from litebert.text.tokenizer import Tokenizer

R = TypeVar("R", bound=Result)

# Every ability: the raw outputs it needs, and the command that makes a model that has it.
NEEDS: dict[str, tuple[frozenset[str], str]] = {
    "fill_mask": (frozenset({"masked_lm"}), "litebert pretrain"),
}
ABILITIES: dict[str, Callable[..., Steps[Any]]] = {
    "fill_mask": fill_mask,
}


class Predictor:
    """Answers from raw text by one model; every method takes one input or a list, and any length of text."""

    def __init__(
        self,
        model: Path | str = "default",
        *,
        runtime: Literal["torch", "onnx"] = "torch",
        device: str = "auto",
        threads: int = 0,
        max_tokens: int = 8192,
    ):
        self._set(*load_parts(model, runtime, device, threads, max_tokens), str(model))

    @classmethod
    def of(cls, runtime: Runtime, tokenizer: Tokenizer, name: str = "model") -> Predictor:
        """A Predictor from parts that are loaded already."""
        predictor = cls.__new__(cls)
        predictor._set(runtime, tokenizer, name)
        return predictor

    def _set(self, runtime: Runtime, tokenizer: Tokenizer, name: str) -> None:
        self.name = name
        self.runtime = runtime
        self.inputs = Inputs(tokenizer, runtime.config.max_position_embeddings)
        self.abilities = tuple(name for name, (needs, _) in NEEDS.items() if needs <= runtime.outputs)

    def job(self, ability: str, **arguments: Any) -> Job:
        """One piece of work, checked and encoded, for `run`: job("fill_mask", text="a [MASK]", top=3)."""
        if ability not in NEEDS:
            raise InputError(f"no ability {ability!r}{did_you_mean(ability, NEEDS) or '.'} Known: {', '.join(NEEDS)}")
        if ability not in self.abilities:
            raise InputError(f"{self.name}: a {self.runtime.head} model cannot {ability}; {NEEDS[ability][1]}")
        return Job(ability, ABILITIES[ability](self.inputs, **arguments))

    def run(self, jobs: Sequence[Job]) -> list[Result | Exception]:
        """Run jobs together, whatever their abilities; each gets its result, or the error that is its own."""
        return run_jobs(self.runtime, jobs)

    def fill_mask(self, text: Any, top: int = 5, joint: bool = False) -> Any:
        """What may stand where a text says [MASK]."""
        return self._each(FilledMasks, "fill_mask", {"text": text}, top=top, joint=joint)

    def _each(self, kind: type[R], ability: str, inputs: dict[str, Any], **options: Any) -> R | list[R]:
        """One result for plain inputs, a list for lists."""
        lists = {name: value for name, value in inputs.items() if isinstance(value, (list, tuple))}
        if not lists:
            return cast(R, self._finish([self.job(ability, **inputs, **options)])[0])
        count = len(next(iter(lists.values())))
        jobs = [
            self.job(ability, **{n: v[i] if n in lists else v for n, v in inputs.items()}, **options)
            for i in range(count)
        ]
        return cast(list[R], self._finish(jobs))

    def _finish(self, jobs: Sequence[Job]) -> list[Result]:
        results = self.run(jobs)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return cast(list[Result], results)
