"""Sources + tokenizer -> token store: streaming, in many processes, resumable, in one job or several.

    build_store(["corpus/"], "tokenizer", "store")                  one build; run again after a kill, it resumes
    build_store(["corpus/"], "tokenizer", "store", shard=(2, 8))    the second of eight jobs that share the work

Each part of the store is made from one large input file, or from several small ones, and depends on nothing else.
What is on disk while a build is running: build_folder.py.
"""

from __future__ import annotations

import contextlib
import os
import re
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
from litebert.text.build_folder import BuildFolder, OnError, Part, write_signed, writing
from litebert.text.readers import FORMATS, Block, read_blocks
from litebert.text.sentences import split_sentences
from litebert.text.sources import STDIN, Source, describe_source, find_sources, is_url
from litebert.text.store import read_manifest
from litebert.text.store_writer import MANIFEST, PartWriter, json_sum, part_name
from litebert.text.workers import (
    SHOWN_PROBLEMS,
    BatchEncoder,
    BuildOptions,
    TokenizedBlock,
    map_on_ray,
    open_encoder,
    tokenize_in_order,
)

__all__ = ["BuildOptions", "BuildReport", "Part", "Progress", "build_store", "parse_shard", "plan_parts"]

# Files smaller than this share a part; where there would be more than MAX_PARTS parts, larger ones do too.
SMALL_FILE = 1 << 20
MAX_PARTS = 1024

Engine = Literal["local", "ray"]
Shard = tuple[int, int]  # (2, 8): the second of eight


@dataclass(frozen=True)
class Progress:
    """How far a build is: bytes of the source files (0 for stdin), and bytes of text that this run has read."""

    done_bytes: int
    total_bytes: int
    text_bytes: int
    source: str


@dataclass(frozen=True)
class BuildReport:
    """What is in the store (or, of an unfinished one, in this shard), and what this run did."""

    documents: int
    sentences: int
    tokens: int
    text_bytes: int
    duplicates: int
    skipped: dict[str, int]  # documents skipped, by kind of problem
    problems: list[str]  # the first few of them
    formats: dict[str, int]  # files per format; "empty" for those without text
    parts: int
    parts_reused: int
    seconds: float
    notes: list[str] = field(default_factory=list)  # what was damaged and how the build resumed
    missing: list[str] = field(default_factory=list)  # shards that are not finished: ["1/8", "3/8"]


def build_store(
    sources: Path | str | Iterable[Path | str],
    tokenizer: Path | str | BatchEncoder,
    out: Path | str,
    options: BuildOptions | None = None,
    *,
    workers: int = 0,
    on_error: OnError = "stop",
    engine: Engine = "local",
    overwrite: bool = False,
    shard: Shard | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> BuildReport:
    """Build a store, resume an interrupted build, or find that it is finished.

    workers: processes; 0 is one per core. shard: (2, 8) builds only the second of eight shares of the sources; all
    eight write to the same folder, in any order or at once, and the last one to finish completes the store. Without
    `shard`, whatever is missing is built.
    """
    began = time.monotonic()
    out, options = Path(out), options or BuildOptions()
    sources = [sources] if isinstance(sources, str | Path) else list(sources)
    _check_arguments(out, sources, options, workers, on_error, engine, overwrite, shard)
    tokenizer = Path(tokenizer) if isinstance(tokenizer, str) else tokenizer
    encoder = open_encoder(tokenizer)
    parts = plan_parts(find_sources(sources))
    plan = {
        "litebert": litebert.__version__,
        "tokenizer": {"fingerprint": encoder.fingerprint, "vocab_size": encoder.vocab_size},
        "options": asdict(options),
        "sources": [asdict(source) for part in parts for source in part.sources],
    }
    folder = BuildFolder(out.absolute(), encoder.fingerprint, encoder.vocab_size, options, on_error, json_sum(plan))
    mine = parts if shard is None else share_out(parts, shard[1])[shard[0] - 1]
    with folder.locked(shared=shard is not None):
        with folder.turn():
            if not overwrite and folder.is_built(plan):
                return _report(read_manifest(out), len(parts), began)
            with writing(out):
                notes = folder.begin(plan, overwrite, shared=shard is not None)
        waiting = [part for part in mine if not folder.is_finished(part, notes)]
        watch = _Watch(on_progress, mine, waiting)
        if engine == "ray":
            _build_parts_on_ray(folder, waiting, tokenizer, workers, watch)
        else:
            _build_parts(folder, waiting, tokenizer, workers or usable_cpus(), watch)
        reused = len(mine) - len(waiting)
        with folder.turn(), writing(out):
            done = (out / MANIFEST).is_file()  # by another shard
            missing = [] if shard is None or done else _missing_shards(folder, parts, mine, shard[1], notes)
            if missing:
                return replace(_report(folder.totals(mine), reused, began), notes=notes, missing=missing)
            problems = [] if done else folder.finish(parts)
        return replace(_report(read_manifest(out), reused, began), notes=notes, problems=problems)


def plan_parts(sources: Sequence[Source]) -> list[Part]:
    """Which sources share a part: a large file has its own, small ones are grouped, up to MAX_PARTS or so."""
    enough = max(SMALL_FILE, sum(source.size for source in sources) // MAX_PARTS)
    groups: list[list[Source]] = []
    for source in sources:
        last = groups[-1] if groups else []
        together = sum(other.size for other in last) + source.size <= enough
        if not last or not together or STDIN in (source.path, last[-1].path):
            groups.append([])
        groups[-1].append(source)
    return [Part(index, tuple(group)) for index, group in enumerate(groups)]


def parse_shard(text: str) -> Shard:
    """ "2/8" -> (2, 8)."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match:
        raise InputError(f"shard: expected i/n, for example 2/8, got {text!r}")
    return int(match[1]), int(match[2])


def share_out(parts: Sequence[Part], count: int) -> list[list[Part]]:
    """The parts of each of `count` shards, of about equal size: the largest goes first, to the smallest shard."""
    shares: list[list[Part]] = [[] for _ in range(count)]
    sizes = [0] * count
    for part in sorted(parts, key=lambda part: (-part.size, part.index)):
        smallest = min(range(count), key=lambda number: (sizes[number], len(shares[number])))
        shares[smallest].append(part)
        sizes[smallest] += part.size
    return [sorted(share, key=lambda part: part.index) for share in shares]


def _missing_shards(
    folder: BuildFolder, parts: Sequence[Part], mine: Sequence[Part], count: int, notes: list[str]
) -> list[str]:
    """The shards with parts that are not finished: ["1/8", "3/8"]."""
    missing = {part.index for part in parts if not folder.work_file(part, ".json").exists()}
    if not missing:  # only the last shard reads all parts
        own = {part.index for part in mine}
        others = (part for part in parts if part.index not in own)
        missing = {part.index for part in others if not folder.is_finished(part, notes)}
    shares = share_out(parts, count)
    return [f"{n}/{count}" for n, share in enumerate(shares, 1) if missing & {part.index for part in share}]


class _EndOfSource:
    """Follows the last block of a source."""


_Item = TokenizedBlock | DataError | _EndOfSource  # what comes back from the workers, in order


class _PartBuilder:
    """Collects one part; it counts once `_close` has written its record."""

    def __init__(self, folder: BuildFolder, part: Part):
        self.folder, self.part = folder, part
        folder.work_file(part, ".json").unlink(missing_ok=True)
        self.writer = PartWriter(folder.part_file(part), folder.fingerprint, folder.vocab_size)
        self.hashes: list[bytes] = []
        self.formats: dict[Source, str] = {}
        self.skipped: Counter[str] = Counter()
        self.problems: list[str] = []
        self.text_bytes = 0

    def take(self, source: Source, item: _Item) -> bool:
        """Add the next item; True if it was the last one of the part."""
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
        if problems and self.folder.on_error == "stop":
            raise DataError(f"{problems[0]} (on_error='skip' skips such documents)")
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
            "plan": self.folder.plan,
        }
        if self.folder.options.deduplicate:
            file = self.folder.work_file(self.part, ".hashes")
            write_atomic(file, hashes)
            record["hashes"] = file_sha256(file)
        write_signed(self.folder.work_file(self.part, ".json"), record)


class _Watch:
    """Reports progress block by block; parts that were finished before count as done."""

    def __init__(self, on_progress: Callable[[Progress], None], parts: Sequence[Part], waiting: Sequence[Part]):
        self.on_progress = on_progress
        self.total = sum(part.size for part in parts)
        self.before = self.total - sum(part.size for part in waiting)
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
    folder: BuildFolder,
    parts: Sequence[Part],
    tokenizer: Path | BatchEncoder,
    workers: int,
    watch: _Watch,
    base: str = "",
) -> None:
    """Build the given parts one after the other; all workers share the blocks."""
    jobs = _jobs(parts, folder.options, base)
    builder: _PartBuilder | None = None
    results: Generator[tuple[tuple[Part, Source], _Item], None, None]
    results = tokenize_in_order(jobs, tokenizer, folder.options, workers)
    with contextlib.closing(results):
        try:
            for (part, source), item in results:
                with writing(folder.out):
                    builder = builder or _PartBuilder(folder, part)
                    if builder.take(source, item):
                        builder = None
                watch.see(source, item)
        finally:
            if builder is not None:
                builder.writer.abort()


def _jobs(
    parts: Iterable[Part], options: BuildOptions, base: str
) -> Iterator[tuple[tuple[Part, Source], Block | DataError | _EndOfSource]]:
    """All blocks, in order; the unreadable rest of a file is an item too, at its place."""
    for part in parts:
        for source in part.sources:
            path = source.path if source.path == STDIN or is_url(source.path) else os.path.join(base, source.path)
            try:
                for block in read_blocks(path, options.format, options.text_field, options.language):
                    yield (part, source), block
            except DataError as error:
                yield (part, source), error
            if replace(describe_source(path), path=source.path) != source:
                raise DataError(f"{source.path}: changed while it was being read; build again and set overwrite")
            yield (part, source), _EndOfSource()


def _build_parts_on_ray(
    folder: BuildFolder, parts: Sequence[Part], tokenizer: Path | BatchEncoder, workers: int, watch: _Watch
) -> None:
    if any(source.path == STDIN for part in parts for source in part.sources):
        raise DataError("-: a cluster cannot read standard input; use engine='local'")
    tokenizer = tokenizer.absolute() if isinstance(tokenizer, Path) else tokenizer
    failures: dict[int, str] = {}
    for index, failure in map_on_ray(_RayJob(folder, tokenizer, os.getcwd()), parts, workers):
        if failure:
            failures[index] = failure
        else:
            watch.finish(parts[index].sources, folder.record(parts[index])["text_bytes"])
    if failures:
        raise DataError(failures[min(failures)])
    for part in parts:
        if not folder.is_finished(part):
            raise DataError(f"{folder.out}: {part_name(part.index)} is missing; all Ray nodes must share this folder")


@dataclass(frozen=True)
class _RayJob:
    """The function that runs on the cluster: one part in one task; returns the error message, or ''."""

    folder: BuildFolder
    tokenizer: Path | BatchEncoder
    base: str

    def __call__(self, part: Part) -> str:
        try:
            _build_parts(self.folder, [part], self.tokenizer, 1, _Watch(lambda progress: None, [], []), self.base)
        except DataError as error:
            return str(error)
        return ""


def _check_arguments(
    out: Path,
    sources: Sequence[Path | str],
    options: BuildOptions,
    workers: int,
    on_error: str,
    engine: str,
    overwrite: bool,
    shard: Shard | None,
) -> None:
    check_choice("format", options.format, ("auto", *FORMATS), InputError)
    check_choice("on_error", on_error, get_args(OnError), InputError)
    check_choice("engine", engine, get_args(Engine), InputError)
    if workers < 0:
        raise InputError(f"workers must be >= 0 (0: one per core), got {workers}")
    split_sentences("", options.language)  # raises for an unknown language
    if not sources:
        raise InputError("sources: expected files, folders, patterns, URLs, or - for standard input")
    for source in sources:
        if os.path.isdir(source) and out.resolve().is_relative_to(Path(source).resolve()):
            raise DataError(f"{out}: is inside the source folder {source}; write the store somewhere else")
    if shard is None:
        return
    if not 1 <= shard[0] <= shard[1]:
        raise InputError(f"shard must be between 1/{shard[1]} and {shard[1]}/{shard[1]}, got {shard[0]}/{shard[1]}")
    if overwrite:
        raise InputError("overwrite: not with shard, since shards share the folder; remove the folder first")
    if STDIN in map(str, sources):
        raise InputError("-: standard input does not support shards; use files")


def _report(totals: dict[str, Any], reused: int, began: float) -> BuildReport:
    names = ("documents", "sentences", "tokens", "text_bytes", "duplicates", "skipped")
    return BuildReport(
        **{name: totals[name] for name in names},
        problems=totals.get("problems", []),
        formats=dict(sorted(Counter(source["format"] for source in totals["sources"]).items())),
        parts=len(totals["parts"]),
        parts_reused=reused,
        seconds=time.monotonic() - began,
    )
