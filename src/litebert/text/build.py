"""Sources + tokenizer -> token store: streaming, in many processes, and going on where it was interrupted.

Each part of the store is made from one large input file, or from a run of small ones, and depends on nothing else.
While a build is under way the store holds a folder `build/`:

    build/plan.json            sources, tokenizer and options: a second run must mean the same to go on
    build/part-00000.json      written when part 0 is finished: its checksum and counts, and which plan it is of
    build/part-00000.arrow     where duplicates are dropped: the part before the second pass
    build/part-00000.hashes    where duplicates are dropped: 16 bytes per document

When all parts are finished the manifest is written and `build/` removed. Killed at any moment and run again, a build
ends with the same bytes as one that was left alone; what was damaged meanwhile is made again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import litebert
from litebert.errors import DataError, InputError, check_choice
from litebert.files import file_sha256, write_atomic
from litebert.machine import usable_cpus
from litebert.text.blocks import FORMATS, Block, read_blocks
from litebert.text.build_folder import (
    WORK,
    OnError,
    begin_build,
    count_kinds,
    is_built,
    locked,
    read_signed,
    wipe,
    write_signed,
    writing,
)
from litebert.text.compressed import STDIN
from litebert.text.deduplicate import find_first, keep_documents
from litebert.text.sentences import split_sentences
from litebert.text.sources import Source, describe_source, find_sources
from litebert.text.store import read_manifest
from litebert.text.store_writer import PartRecord, PartWriter, finish_store, json_sum, part_name
from litebert.text.workers import (
    SHOWN_PROBLEMS,
    BatchEncoder,
    BuildOptions,
    TokenizedBlock,
    open_encoder,
    tokenize_in_order,
)

__all__ = ["BuildOptions", "BuildReport", "Part", "Progress", "build_store", "plan_parts"]

# Files smaller than this share a part, and so do larger ones where there would be more than MAX_PARTS parts.
SMALL_FILE = 1 << 20
MAX_PARTS = 1024

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Part:
    """Which sources make up one part of the store."""

    index: int
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Progress:
    """How far a build is: bytes of the source files (0 for stdin), and bytes of text that this run has read."""

    done_bytes: int
    total_bytes: int
    text_bytes: int
    source: str


@dataclass(frozen=True)
class BuildReport:
    """What is in the store, and what this run did."""

    documents: int
    sentences: int
    tokens: int
    text_bytes: int
    duplicates: int
    skipped: dict[str, int]  # what was left out, by kind of problem
    problems: list[str]  # the first few of them
    formats: dict[str, int]  # files per format; "empty" for those without text
    parts: int
    parts_reused: int
    seconds: float
    notes: list[str] = field(default_factory=list)  # what was damaged and how the build went on


def build_store(
    sources: Iterable[Path | str],
    tokenizer: Path | str | BatchEncoder,
    out: Path | str,
    options: BuildOptions | None = None,
    *,
    workers: int = 0,
    on_error: OnError = "stop",
    engine: Engine = "local",
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> BuildReport:
    """Build a store, or finish an interrupted one, or find that it is built already (0 workers: one per core)."""
    began = time.monotonic()
    out, sources, options = Path(out), list(sources), options or BuildOptions()
    _check_choices(options, workers, on_error, engine)
    _check_place(out, sources)
    tokenizer = Path(tokenizer) if isinstance(tokenizer, str) else tokenizer
    encoder = open_encoder(tokenizer)
    parts = plan_parts(find_sources(sources))
    plan = {
        "litebert": litebert.__version__,
        "tokenizer": {"fingerprint": encoder.fingerprint, "vocab_size": encoder.vocab_size},
        "options": asdict(options),
        "sources": [asdict(source) for part in parts for source in part.sources],
    }
    build = _Build(out.absolute(), encoder.fingerprint, encoder.vocab_size, options, on_error, json_sum(plan))
    with locked(out):
        if not overwrite and is_built(out, plan, on_error):
            shutil.rmtree(out / WORK, ignore_errors=True)  # left by a build that was killed on its last step
            return _report(read_manifest(out), [], len(parts), began)
        with writing(out):
            notes = begin_build(out, plan, overwrite)
        waiting = [part for part in parts if not build.is_finished(part, notes)]
        watch = _Watch(on_progress, parts, waiting)
        if engine == "ray":
            _build_parts_on_ray(build, waiting, tokenizer, workers, watch)
        else:
            _build_parts(build, waiting, tokenizer, workers or usable_cpus(), watch)
        with writing(out):
            problems = build.finish(parts)
        report = _report(read_manifest(out), problems, len(parts) - len(waiting), began)
        return replace(report, notes=notes)


def plan_parts(sources: Sequence[Source]) -> list[Part]:
    """Which sources go together: a large file alone, small ones in company, never very many parts."""
    enough = max(SMALL_FILE, sum(source.size for source in sources) // MAX_PARTS)
    groups: list[list[Source]] = []
    for source in sources:
        last = groups[-1] if groups else []
        together = sum(other.size for other in last) + source.size <= enough
        if not last or not together or STDIN in (source.path, last[-1].path):
            groups.append([])
        groups[-1].append(source)
    return [Part(index, tuple(group)) for index, group in enumerate(groups)]


@dataclass(frozen=True)
class _Build:
    """A build under way: where its files lie, what a finished part is, how the store is closed."""

    out: Path
    fingerprint: str
    vocab_size: int
    options: BuildOptions
    on_error: OnError
    plan: str  # the checksum of its plan

    def part_file(self, part: Part) -> Path:
        """Where the first pass puts a part."""
        folder = self.out / WORK if self.options.deduplicate else self.out
        return folder / part_name(part.index)

    def work_file(self, part: Part, suffix: str) -> Path:
        return self.out / WORK / Path(part_name(part.index)).with_suffix(suffix)

    def is_finished(self, part: Part, notes: list[str] | None = None) -> bool:
        """Whether a part is there and whole; what is damaged is noted, to be made again."""
        file = self.work_file(part, ".json")
        if not file.exists():
            return False
        try:
            record = self.record(part)
            if record.get("plan", self.plan) != self.plan:
                return False
            if record["skipped"] and self.on_error == "stop":
                return False  # made by a run that was told to skip; this one has to say what is wrong
            if any(source.path == STDIN for source in part.sources):
                return False  # nobody knows whether it would be the same text
            files = {self.part_file(part): record["part"]["sha256"]}
            if self.options.deduplicate:
                files[self.work_file(part, ".hashes")] = record["hashes"]
            for file, checksum in files.items():
                if not file.exists() or file_sha256(file) != checksum:
                    raise DataError(f"{file}: {'damaged' if file.exists() else 'missing'}")
        except (DataError, OSError, KeyError, TypeError, AttributeError) as error:
            damage = str(error) if isinstance(error, DataError) else f"{file}: damaged"
            if notes is not None:
                notes.append(f"{damage}; {part_name(part.index)} is made again")
            return False
        return True

    def record(self, part: Part) -> dict[str, Any]:
        return read_signed(self.work_file(part, ".json"))

    def finish(self, parts: Sequence[Part]) -> list[str]:
        """Drop duplicates if asked, then write the manifest; gives the first problems that were skipped."""
        records = [self.record(part) for part in parts]
        finished = [PartRecord(**record["part"]) for record in records]
        documents = sum(part.documents for part in finished)
        skipped = sum((Counter(record["skipped"]) for record in records), Counter())
        if not documents:
            wipe(self.out)
            reason = f": {count_kinds(skipped)} skipped" if skipped else ""
            raise DataError(f"{parts[0].sources[0].path}: no documents in this and all other sources{reason}")
        if self.options.deduplicate:
            finished = self._drop_duplicates(parts)
        facts = {
            "litebert": litebert.__version__,
            "text_bytes": sum(record["text_bytes"] for record in records),
            "duplicates": documents - sum(part.documents for part in finished),
            "skipped": dict(sorted(skipped.items())),
            "options": asdict(self.options),
            "sources": [source for record in records for source in record["sources"]],
        }
        finish_store(self.out, finished, self.fingerprint, self.vocab_size, facts)
        shutil.rmtree(self.out / WORK)
        return [problem for record in records for problem in record["problems"]]

    def _drop_duplicates(self, parts: Sequence[Part]) -> list[PartRecord]:
        masks = find_first([self.work_file(part, ".hashes").read_bytes() for part in parts])
        return [
            keep_documents(
                self.part_file(part), self.out / part_name(part.index), mask, self.fingerprint, self.vocab_size
            )
            for part, mask in zip(parts, masks, strict=True)
        ]


class _EndOfSource:
    """Stands behind the last block of a source."""


_Item = TokenizedBlock | DataError | _EndOfSource  # what comes back from the workers, in order


class _PartBuilder:
    """Collects one part; nothing of it counts until `close` has written its record."""

    def __init__(self, build: _Build, part: Part):
        self.build, self.part = build, part
        build.work_file(part, ".json").unlink(missing_ok=True)
        self.writer = PartWriter(build.part_file(part), build.fingerprint, build.vocab_size)
        self.hashes: list[bytes] = []
        self.formats: dict[Source, str] = {}
        self.skipped: Counter[str] = Counter()
        self.problems: list[str] = []
        self.text_bytes = 0

    def take(self, source: Source, item: _Item) -> bool:
        """Add what comes next; True if the part is finished with it."""
        if isinstance(item, TokenizedBlock):
            self._skip(item.skipped, item.problems)
            self.writer.add(item.tokens, item.sentence_lengths, item.document_lengths)
            self.hashes.append(item.hashes)
            self.formats[source] = item.format
            self.text_bytes += item.text_bytes
        elif isinstance(item, DataError):
            self._skip(Counter(["damaged file"]), [str(item)])
        elif source is self.part.sources[-1]:
            self._close()
            return True
        return False

    def _skip(self, kinds: Counter[str], problems: list[str]) -> None:
        if problems and self.build.on_error == "stop":
            raise DataError(f"{problems[0]} (--on-error skip leaves such documents out)")
        self.skipped += kinds
        self.problems += problems[: SHOWN_PROBLEMS - len(self.problems)]

    def _close(self) -> None:
        hashes = b"".join(self.hashes)
        record: dict[str, Any] = {
            "part": asdict(self.writer.close()),
            "sources": [asdict(source) | {"format": self.formats.get(source, "empty")} for source in self.part.sources],
            "text_bytes": self.text_bytes,
            "skipped": dict(self.skipped),
            "problems": self.problems,
            "plan": self.build.plan,
        }
        if self.build.options.deduplicate:
            file = self.build.work_file(self.part, ".hashes")
            write_atomic(file, hashes)
            record["hashes"] = file_sha256(file)
        write_signed(self.build.work_file(self.part, ".json"), record)


class _Watch:
    """Turns blocks done into progress; parts that were finished before count as done."""

    def __init__(self, on_progress: Callable[[Progress], None], parts: Sequence[Part], waiting: Sequence[Part]):
        self.on_progress = on_progress
        self.total = sum(source.size for part in parts for source in part.sources)
        self.before = self.total - sum(source.size for part in waiting for source in part.sources)
        self.text_bytes = 0

    def see(self, source: Source, item: _Item) -> None:
        if isinstance(item, TokenizedBlock):
            self.text_bytes += item.text_bytes
            self.on_progress(Progress(self.before + item.position, self.total, self.text_bytes, source.path))
        elif isinstance(item, _EndOfSource):
            self.finish([source])

    def finish(self, sources: Iterable[Source], text_bytes: int = 0) -> None:
        self.text_bytes += text_bytes
        for source in sources:
            self.before += source.size
            self.on_progress(Progress(self.before, self.total, self.text_bytes, source.path))


def _build_parts(
    build: _Build,
    parts: Sequence[Part],
    tokenizer: Path | BatchEncoder,
    workers: int,
    watch: _Watch,
    base: str = "",
) -> None:
    """Make the given parts, one after the other, with all workers on whatever block comes next."""
    jobs = _jobs(parts, build.options, base)
    builder: _PartBuilder | None = None
    results: Generator[tuple[tuple[Part, Source], _Item], None, None]
    results = tokenize_in_order(jobs, tokenizer, build.options, workers)
    with contextlib.closing(results):
        try:
            for (part, source), item in results:
                with writing(build.out):
                    builder = builder or _PartBuilder(build, part)
                    if builder.take(source, item):
                        builder = None
                watch.see(source, item)
        finally:
            if builder is not None:
                builder.writer.abort()


def _jobs(
    parts: Iterable[Part], options: BuildOptions, base: str
) -> Iterator[tuple[tuple[Part, Source], Block | DataError | _EndOfSource]]:
    """All there is to do, in order; an unreadable rest of a file is an item too, so that it is met in its place."""
    for part in parts:
        for source in part.sources:
            path = source.path if source.path == STDIN else os.path.join(base, source.path)
            try:
                for block in read_blocks(path, options.format, options.text_field, options.language):
                    yield (part, source), block
            except DataError as error:
                yield (part, source), error
            if replace(describe_source(path), path=source.path) != source:
                raise DataError(f"{source.path}: changed while it was being read; run the build again with --overwrite")
            yield (part, source), _EndOfSource()


def _build_parts_on_ray(
    build: _Build, parts: Sequence[Part], tokenizer: Path | BatchEncoder, workers: int, watch: _Watch
) -> None:
    from litebert.text.ray_engine import map_on_ray

    if any(source.path == STDIN for part in parts for source in part.sources):
        raise DataError("-: standard input cannot be read on a cluster; use --engine local")
    tokenizer = tokenizer.absolute() if isinstance(tokenizer, Path) else tokenizer
    failures: dict[int, str] = {}
    for index, failure in map_on_ray(_RayJob(build, tokenizer, os.getcwd()), parts, workers):
        if failure:
            failures[index] = failure
        else:
            watch.finish(parts[index].sources, build.record(parts[index])["text_bytes"])
    if failures:
        raise DataError(failures[min(failures)])
    for part in parts:
        if not build.is_finished(part):
            raise DataError(
                f"{build.out}: {part_name(part.index)} did not arrive; all Ray nodes must share this folder"
            )


@dataclass(frozen=True)
class _RayJob:
    """The function that runs on the cluster: one part, start to end, in one task; gives what went wrong, or ''."""

    build: _Build
    tokenizer: Path | BatchEncoder
    base: str

    def __call__(self, part: Part) -> str:
        try:
            _build_parts(self.build, [part], self.tokenizer, 1, _Watch(lambda progress: None, [], []), self.base)
        except DataError as error:
            return str(error)
        return ""


def _check_choices(options: BuildOptions, workers: int, on_error: str, engine: str) -> None:
    check_choice("format", options.format, ("auto", *FORMATS), InputError)
    check_choice("on_error", on_error, get_args(OnError), InputError)
    check_choice("engine", engine, get_args(Engine), InputError)
    if workers < 0:
        raise InputError(f"workers: {workers} cannot be; 0 means one per core")
    split_sentences("", options.language)  # complains about an unknown language


def _check_place(out: Path, sources: Sequence[Path | str]) -> None:
    if not sources:
        raise InputError("no sources: give files, folders, patterns, or - for standard input")
    for source in sources:
        if os.path.isdir(source) and out.resolve().is_relative_to(Path(source).resolve()):
            raise DataError(f"{out}: lies in the source folder {source}; put the store somewhere else")


def _report(manifest: dict[str, Any], problems: list[str], reused: int, began: float) -> BuildReport:
    return BuildReport(
        documents=manifest["documents"],
        sentences=manifest["sentences"],
        tokens=manifest["tokens"],
        text_bytes=manifest["text_bytes"],
        duplicates=manifest["duplicates"],
        skipped=manifest["skipped"],
        problems=problems,
        formats=dict(sorted(Counter(source["format"] for source in manifest["sources"]).items())),
        parts=len(manifest["parts"]),
        parts_reused=reused,
        seconds=time.monotonic() - began,
    )
