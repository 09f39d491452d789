"""`litebert.score`: a model over many files, resumable, on this machine or on a Ray cluster.

    score("runs/sentiment/best", ["reviews-*.parquet"], "scored", columns={"text": "body"})

The input is cut into parts of `part_rows` rows. Each part is read, scored and written as one Parquet file, which
appears only when complete. So a run can be killed at any moment; the same call resumes it and keeps finished parts.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import litebert
from litebert.bulk.columns import find_columns, named_columns
from litebert.bulk.folder import SUMMARY, Folder
from litebert.bulk.local import Feed, run_here, run_workers
from litebert.bulk.part import Scored, Work, select_columns
from litebert.bulk.reading import Part, find_inputs, read_parts
from litebert.errors import ConfigError, DataError, InputError, LitebertError, check_choice
from litebert.files import file_sha256
from litebert.machine import usable_cpus
from litebert.predict.abilities import ABILITIES, refuse, shipped_model
from litebert.predict.predictor import Predictor
from litebert.predict.torch_runtime import TorchRuntime
from litebert.remote import find_folder
from litebert.text.sources import Source

ENGINES = ("local", "ray")
SMALL = 1 << 18  # bytes of input that are not worth starting processes for
_MODEL_ENDINGS = (".json", ".safetensors", ".bin", ".onnx", ".data", ".model", ".txt")


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    rows: int  # in finished parts, earlier runs included
    errors: int
    share: float  # of the input's bytes
    rows_per_second: float  # of this run
    tokens_per_second: float
    seconds_left: float | None


@dataclass(frozen=True)
class Summary:
    """The result of a run."""

    out: str
    rows: int
    errors: int  # rows with something in the column `error`
    parts: int
    inputs: int
    scored_rows: int  # by this call; the others were there already
    scored_tokens: int
    seconds: float
    examples: tuple[str, ...]  # of errors that this call met


def score(
    model: str | Path,
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    ability: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    options: Mapping[str, Any] | None = None,
    keep: Sequence[str] | None = None,
    dedupe: bool = False,
    part_rows: int = 0,
    max_chars: int = 1_000_000,
    encoding: str = "utf-8",
    engine: str = "local",
    workers: int = 0,
    runtime: str = "auto",
    device: str = "auto",
    worker_threads: int = 1,
    max_tokens: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Ask a model about every row of the input files, and write the rows with its answers to a folder of Parquet files.

    inputs: Files, folders, globs or addresses such as s3://bucket/*.parquet: Parquet, CSV, TSV, JSON lines or plain
        lines, compressed or not.
    ability: What to ask for ("embed"); by default what the model was fine-tuned for.
    columns: The column of each input of the ability: {"text": "review"}; by default those of the same names.
    options: Options of the ability: {"pooling": "cls"}.
    keep: The input columns to write next to the results; by default all.
    dedupe: Compute rows with equal inputs once within each part.
    part_rows: Rows per part, 0 for 2,048 on a CPU and 8,192 on a GPU; a kill loses at most one part per worker.
    max_chars: Rows with a longer text get an error instead of a result.
    engine: "local", or "ray" for the cluster at RAY_ADDRESS (without one, Ray starts on this machine).
    workers: Processes; 0 for one per core (local), or one per core or GPU of the cluster (ray).
    worker_threads: CPU threads of each worker.
    max_tokens: Tokens per pass through the model, 0 for 8,192, and more on a GPU where texts stop early.
    progress: Called as parts finish.
    """
    check_choice("engine", engine, ENGINES, ConfigError)
    counts = {"part_rows": (part_rows, 0), "max_chars": (max_chars, 1), "max_tokens": (max_tokens, 0)}
    counts |= {"workers": (workers, 0), "worker_threads": (worker_threads, 1)}
    for name, (value, least) in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"{name}: must be a whole number >= {least}, not {value!r}")
    if keep is not None and len(set(keep)) < len(keep):
        raise ConfigError(f"keep: {next(name for name in keep if keep.count(name) > 1)!r} is named twice")
    sources = find_inputs([inputs] if isinstance(inputs, str | os.PathLike) else inputs, os.fspath(out))
    folder = Folder(out)
    with folder.locked():
        model = shipped_model(str(model), (ability or "").replace("-", "_"), columns or {})
        place = find_folder(model)
        runtime = _resolve(place, runtime)
        work = Work(
            model=str(model),
            ability="",
            columns={},
            options=dict(options or {}),
            keep=None if keep is None else tuple(keep),
            dedupe=dedupe,
            max_chars=max_chars,
            runtime=runtime,
            device=device,
            threads=worker_threads,
            max_tokens=max_tokens,
        )
        predictor = work.open_model()
        part_rows = part_rows or folder.part_rows() or (8192 if _on_gpu(predictor) else 2048)
        work = _choose(work, predictor, ability, columns or {}, sources, encoding)
        folder.begin(
            {
                "format": "litebert score 1",
                "model_files": _checksums(place),
                "ability": work.ability,
                "columns": {name: list(names) for name, names in work.columns.items()},
                "options": json.loads(json.dumps(work.options)),
                "keep": list(work.keep) if work.keep is not None else None,
                "dedupe": dedupe,
                "part_rows": part_rows,
                "max_chars": max_chars,
                "encoding": encoding,
                "runtime": predictor.runtime.name.partition(",")[0],  # "torch fp32"
                "max_tokens": max_tokens,
                "inputs": [asdict(source) for source in sources],
            }
        )
        run = _Run(folder, sources, part_rows, encoding, progress)
        if engine == "ray":
            from litebert.bulk.ray_engine import run_ray

            run_ray(work, run.out, run.spans(), workers, run.done)
        else:
            _run_local(work, predictor, run, workers)
        return run.finish()


def _run_local(work: Work, predictor: Predictor, run: _Run, workers: int) -> None:
    on_gpu = _on_gpu(predictor)
    cores = usable_cpus()
    small = sum(source.size for source in run.sources) < SMALL
    count = workers or (1 if small else max(2, cores - 1) if on_gpu else max(1, cores // work.threads))
    if count == 1:
        run_here(work, predictor, run.out, run.feed(), run.done)
    else:
        run_workers(work, predictor if on_gpu else None, run.out, run.feed(), count, run.done)


def _on_gpu(predictor: Predictor) -> bool:
    return isinstance(predictor.runtime, TorchRuntime) and predictor.runtime.device.is_cuda


class _Run:
    """The parts that are still to do, and how far they are."""

    def __init__(
        self,
        folder: Folder,
        sources: Sequence[Source],
        part_rows: int,
        encoding: str,
        progress: Callable[[Progress], None] | None,
    ):
        self.folder, self.sources, self.part_rows, self.encoding = folder, sources, part_rows, encoding
        self.out = folder.name
        self._progress = progress
        self._notes, self._rows_before = folder.tally(folder.parts())
        self._begun = time.monotonic()
        self._size = max(1, sum(source.size for source in sources))
        # Rows and bytes of each input that are done; the bytes of one begun earlier are known with its next part.
        self._done = [sum(note["rows"] for note in self._notes.get(i, {}).values()) for i in range(len(sources))]
        self._bytes = [float(source.size) if self._ended(index) else 0.0 for index, source in enumerate(sources)]
        self._gained = 0.0  # bytes done by this run
        self.rows = self.tokens = 0
        self.errors = sum(note["errors"] for notes in self._notes.values() for note in notes.values())
        self.examples: list[str] = []

    def _ended(self, index: int) -> bool:
        """Whether all parts of an input are there."""
        notes = self._notes.get(index, {})
        return bool(notes) and notes[max(notes)]["last"] and len(notes) == max(notes) + 1

    def feed(self) -> Feed:
        """The parts to do, in order."""
        for index, source in enumerate(self.sources):
            if not self._ended(index):
                done = self._notes.get(index, {})
                parts = read_parts(source, self.part_rows, index=index, encoding=self.encoding, done=done)
                yield from ((source, part) for part in parts)

    def done(self, source: Source, part: Part, scored: Scored) -> None:
        """Count a finished part."""
        self.rows += scored.rows
        self.tokens += scored.tokens
        self.errors += scored.errors
        self.examples += scored.examples[: max(0, 3 - len(self.examples))]
        # Parts come in any order: a row counts as many bytes as those up to here do on average.
        through = part.begin + scored.rows
        each = (source.size if part.last else part.position) / max(through, 1)
        self._done[part.source] += scored.rows
        self._bytes[part.source] = min(source.size, self._done[part.source] * each) if through else source.size
        self._gained += scored.rows * each if through else source.size
        if self._progress is not None:
            seconds = max(time.monotonic() - self._begun, 1e-9)
            share = min(1.0, sum(self._bytes) / self._size)
            left = seconds * (1 - share) * self._size / self._gained if self._gained else None
            rates = (self.rows / seconds, self.tokens / seconds)
            self._progress(Progress(self._rows_before + self.rows, self.errors, share, *rates, left))

    def finish(self) -> Summary:
        """Make sure that nothing is missing, and write the summary."""
        notes, rows = self.folder.tally(self.folder.parts())
        for index, source in enumerate(self.sources):
            found = notes.get(index, {})
            if not found or len(found) != max(found) + 1 or not found[max(found)]["last"]:
                advice = "rerun the same command (with several machines, all must see this folder)"
                raise LitebertError(f"{self.out}: parts of {source.path} are missing; {advice}")
        every = [note for each in notes.values() for note in each.values()]
        seconds = time.monotonic() - self._begun
        errors = sum(note["errors"] for note in every)
        summary = Summary(
            self.out, rows, errors, len(every), len(self.sources), self.rows, self.tokens, seconds, tuple(self.examples)
        )
        if self.rows or not self.folder.has(SUMMARY):
            data = {**asdict(summary), "litebert": litebert.__version__}
            self.folder.write(SUMMARY, (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())
        return summary

    def spans(self) -> list[Any]:
        """The work as stretches of parts that can be read by themselves."""
        from litebert.bulk.ray_engine import cut_spans

        unfinished = [(index, source) for index, source in enumerate(self.sources) if not self._ended(index)]
        return cut_spans(unfinished, self.part_rows, self.encoding, {i: set(n) for i, n in self._notes.items()})


def _choose(
    work: Work,
    predictor: Predictor,
    ability: str | None,
    columns: Mapping[str, str | Sequence[str]],
    sources: Sequence[Source],
    encoding: str,
) -> Work:
    """What to ask for, checked against the model and the first rows before anything is written."""
    if ability is None:
        own = [name for name in predictor.abilities if ABILITIES[name].takes_task]
        if len(own) != 1:
            raise InputError(f"ability: missing; {work.model} has {', '.join(predictor.abilities)}")
        ability = own[0]
    ability = ability.replace("-", "_")
    if ability not in predictor.abilities:
        raise refuse(ability, work.model, predictor.runtime.head, predictor.abilities)
    entry = ABILITIES[ability]
    settings = {each.name for each in entry.parameters.values() if not each.is_input}
    for name, value in work.options.items():
        if name not in settings:
            raise InputError(f"options: {ability} takes {', '.join(sorted(settings)) or 'none'}, not {name!r}")
        entry.parameters[name].check(value)
    named = named_columns(entry, columns)
    for source in sources:
        first = next(read_parts(source, 1, encoding=encoding)).table.slice(0, 0)
        if first.column_names:
            break
    else:
        raise DataError(f"{source.path}: empty, without rows or columns")
    find_columns(entry, named, first.schema, source)
    if work.keep is not None:
        select_columns(first, work.keep, source)
    return Work(**{**vars(work), "ability": ability, "columns": named, "schema": first.schema})


def _resolve(folder: Path, runtime: str) -> str:
    """ "auto" as the one runtime that all workers and later calls take: torch where there are weights, else ONNX."""
    from litebert.predict.load import is_adapter, weight_files

    if runtime != "auto":
        return runtime
    return "torch" if weight_files(folder) or is_adapter(folder) else "onnx"


def _checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a model folder that may decide an answer."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix in _MODEL_ENDINGS)
    return {path.name: file_sha256(path) for path in files}
