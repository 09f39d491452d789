"""The folder of a build: its locks, its plan, its finished parts, and how they become a store.

While a build is running, the store has a folder `build/`:

    build/plan.json            sources, tokenizer and options: another run resumes only the same plan
    build/part-00000.json      written when part 0 is finished: its checksum, its counts and the plan's checksum
    build/part-00000.arrow     with deduplication: the part before the second pass
    build/part-00000.hashes    with deduplication: 16 bytes per document

When all parts are finished, the manifest is written and `build/` is removed. A build that is killed at any moment and
run again ends with the same bytes as one that was not interrupted; damaged parts are built again.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import litebert
from litebert.errors import DataError
from litebert.files import file_sha256, hold_lock, is_full, write_atomic
from litebert.parse import read_object
from litebert.text.sources import STDIN, Source
from litebert.text.store import TokenStore, read_manifest
from litebert.text.store_writer import (
    INDEX,
    MANIFEST,
    PartRecord,
    PartWriter,
    finish_store,
    json_sum,
    part_name,
    record_batches,
)
from litebert.text.workers import HASH_BYTES, BuildOptions

WORK, PLAN = "build", "plan.json"
LOCK, TURN = ".lock", ".lock-turn"

OnError = Literal["stop", "skip"]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Part:
    """The sources that make up one part of the store."""

    index: int
    sources: tuple[Source, ...]

    @property
    def size(self) -> int:
        """Bytes of its sources."""
        return sum(source.size for source in self.sources)


@dataclass(frozen=True)
class BuildFolder:
    """A build in progress: where its files are, which parts are finished, and how it ends."""

    out: Path
    fingerprint: str
    vocab_size: int
    options: BuildOptions
    on_error: OnError
    plan: str  # the checksum of the plan

    @contextlib.contextmanager
    def locked(self, shared: bool) -> Iterator[None]:
        """Keep other builds out of the folder, except shards of the same build; a killed process holds no lock."""
        if self.out.exists() and not self.out.is_dir():
            raise DataError(f"{self.out}: is a file; a store is a folder")
        with contextlib.ExitStack() as held:
            with writing(self.out):
                self.out.mkdir(parents=True, exist_ok=True)
                try:
                    held.enter_context(hold_lock(self.out / LOCK, shared=shared))
                except BlockingIOError:
                    raise DataError(f"{self.out}: another build is writing this store right now") from None
            yield
            if shared and (self.out / MANIFEST).is_file():  # releasing a shared lock does not remove its file
                (self.out / LOCK).unlink(missing_ok=True)

    def turn(self) -> contextlib.AbstractContextManager[None]:
        """One shard at a time begins or finishes the build; the others wait."""
        return hold_lock(self.out / TURN, wait=True)

    def is_built(self, plan: dict[str, Any]) -> bool:
        """Whether exactly this store is finished; any other finished store is an error."""
        if not (self.out / MANIFEST).is_file():
            return False
        manifest = read_manifest(self.out)
        sources = [{key: source[key] for key in ("path", "size", "mtime_ns")} for source in manifest.get("sources", [])]
        # A finished store of another version is as good; only unfinished builds must not be mixed.
        difference = _difference(plan, manifest | {"sources": sources, "litebert": plan["litebert"]})
        if any(source["path"] == STDIN for source in plan["sources"]):
            difference = difference or "standard input, which may have had other text"
        if self.on_error == "stop" and manifest.get("skipped"):
            difference = difference or f"on_error='skip' ({count_kinds(manifest['skipped'])} skipped)"
        if difference:
            raise DataError(
                f"{self.out}: already contains a store built from {difference}; use another folder, or set overwrite"
            )
        TokenStore.open(self.out)  # raises if it is damaged
        shutil.rmtree(self.out / WORK, ignore_errors=True)  # left by a build that was killed in its last step
        return True

    def begin(self, plan: dict[str, Any], overwrite: bool, shared: bool) -> list[str]:
        """Start a new build, or leave an interrupted one with the same plan as it is; returns notes for the user."""
        plan_file = self.out / WORK / PLAN
        if (self.out / WORK).is_dir() and not (self.out / MANIFEST).is_file():
            notes, difference = [], ""
            try:
                difference = _difference(plan, read_signed(plan_file))
            except (DataError, KeyError, TypeError, AttributeError) as error:
                damage = str(error) if isinstance(error, DataError) else f"{plan_file}: damaged"
                difference = f"unknown sources ({damage})"
                if any(self._belongs(file) for file in (self.out / WORK).glob("part-*.json")):
                    difference = ""
                    notes = [f"{damage}; the finished parts belong to the same build, so it resumes"]
                    write_signed(plan_file, plan)
            if not difference:
                if not shared:
                    self._remove_temporary()
                return notes
            if not overwrite and any(self.out.rglob("part-*")):  # one without parts has nothing to lose
                raise DataError(
                    f"{self.out}: contains an unfinished build from {difference}; finish that one, or set overwrite"
                )
        strangers = [entry.name for entry in self.out.iterdir() if not _is_ours(entry.name)]
        if strangers:
            raise DataError(f"{self.out}: not a token store, and not empty ({strangers[0]}, ...); use another folder")
        wipe(self.out)
        (self.out / WORK).mkdir()
        write_signed(plan_file, plan)
        return []

    def part_file(self, part: Part) -> Path:
        """Where the first pass writes a part."""
        folder = self.out / WORK if self.options.deduplicate else self.out
        return folder / part_name(part.index)

    def work_file(self, part: Part, suffix: str) -> Path:
        """The record (.json) or the hashes (.hashes) of a part."""
        return self.out / WORK / Path(part_name(part.index)).with_suffix(suffix)

    def record(self, part: Part) -> dict[str, Any]:
        """What was written down when a part was finished."""
        return read_signed(self.work_file(part, ".json"))

    def is_finished(self, part: Part, notes: list[str] | None = None) -> bool:
        """Whether a part is complete and undamaged; damage is added to the notes."""
        file = self.work_file(part, ".json")
        if not file.exists():
            return False
        try:
            record = self.record(part)
            if record.get("plan", self.plan) != self.plan:
                return False
            if record["skipped"] and self.on_error == "stop":
                return False  # from a run with on_error="skip"; this one has to report the error
            if any(source.path == STDIN for source in part.sources):
                return False  # it may be other text
            files = {self.part_file(part): record["part"]["sha256"]}
            if self.options.deduplicate:
                files[self.work_file(part, ".hashes")] = record["hashes"]
            for file, checksum in files.items():
                if not file.exists() or file_sha256(file) != checksum:
                    raise DataError(f"{file}: {'damaged' if file.exists() else 'missing'}")
        except (DataError, OSError, KeyError, TypeError, AttributeError) as error:
            damage = str(error) if isinstance(error, DataError) else f"{file}: damaged"
            if notes is not None:
                notes.append(f"{damage}; {part_name(part.index)} is built again")
            return False
        return True

    def totals(self, parts: Sequence[Part]) -> dict[str, Any]:
        """Counts, sources and problems of finished parts."""
        records = [self.record(part) for part in parts]
        skipped = sum((Counter(record["skipped"]) for record in records), Counter())
        return {
            **{name: sum(record["part"][name] for record in records) for name in ("documents", "sentences", "tokens")},
            "text_bytes": sum(record["text_bytes"] for record in records),
            "duplicates": 0,
            "skipped": dict(sorted(skipped.items())),
            "sources": [source for record in records for source in record["sources"]],
            "parts": [record["part"] for record in records],
            "problems": [problem for record in records for problem in record["problems"]],
        }

    def finish(self, parts: Sequence[Part]) -> list[str]:
        """Drop duplicates if asked to, then write the manifest; returns the first problems that were skipped."""
        totals = self.totals(parts)
        if not totals["documents"]:
            wipe(self.out)
            reason = f": {count_kinds(totals['skipped'])} skipped" if totals["skipped"] else ""
            raise DataError(f"{parts[0].sources[0].path}: no documents in this or any other source{reason}")
        finished = [PartRecord(**part) for part in totals["parts"]]
        if self.options.deduplicate:
            finished = self._drop_duplicates(parts)
        facts = {
            "litebert": litebert.__version__,
            "text_bytes": totals["text_bytes"],
            "duplicates": totals["documents"] - sum(part.documents for part in finished),
            "skipped": totals["skipped"],
            "options": asdict(self.options),
            "sources": totals["sources"],
        }
        self._remove_temporary()
        finish_store(self.out, finished, self.fingerprint, self.vocab_size, facts)
        shutil.rmtree(self.out / WORK)
        return list(totals["problems"])

    def _drop_duplicates(self, parts: Sequence[Part]) -> list[PartRecord]:
        """The second pass over the parts: copy each without documents that occurred before."""
        masks = find_first([self.work_file(part, ".hashes").read_bytes() for part in parts])
        finished = []
        for part, keep in zip(parts, masks, strict=True):
            with PartWriter(self.out / part_name(part.index), self.fingerprint, self.vocab_size) as writer:
                done = 0
                for batch in record_batches(self.part_file(part)):
                    sentences_of, tokens_of = np.diff(batch.document_offsets), np.diff(batch.sentence_offsets)
                    documents = keep[done : done + len(sentences_of)]
                    sentences = np.repeat(documents, sentences_of)
                    tokens = batch.tokens[np.repeat(sentences, tokens_of)]
                    writer.add(tokens, tokens_of[sentences], sentences_of[documents])
                    done += len(sentences_of)
                finished.append(writer.close())
        return finished

    def _remove_temporary(self) -> None:
        """Remove files that killed processes left half written."""
        for leftover in (*self.out.glob(".*.tmp"), *(self.out / WORK).glob(".*.tmp")):
            leftover.unlink(missing_ok=True)

    def _belongs(self, record: Path) -> bool:
        with contextlib.suppress(DataError):
            return bool(read_signed(record).get("plan") == self.plan)
        return False


def find_first(hashes: Sequence[bytes]) -> list[Mask]:
    """For the documents of each part, whether they occur for the first time in all parts.

    find_first([A + B, A + C]) -> [[True, True], [False, True]], where A, B and C are hashes.
    """
    words = np.frombuffer(b"".join(hashes), "<u8").reshape(-1, HASH_BYTES // 8)
    order = np.lexsort(words.T)  # stable: the first of equal documents comes first
    first = np.ones(len(words), np.bool_)
    first[order[1:]] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    ends = np.cumsum([len(part) // HASH_BYTES for part in hashes])
    return np.split(first, ends[:-1])


def write_signed(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON file with a checksum of its content."""
    write_atomic(path, json.dumps({**data, "sha256": json_sum(data)}))


def read_signed(path: Path) -> dict[str, Any]:
    """The content that `write_signed` wrote; DataError if it was changed (litebert 0.1 wrote no checksum)."""
    data = read_object(path)
    if data.pop("sha256", json_sum(data)) != json_sum(data):
        raise DataError(f"{path}: damaged")
    return data


def wipe(out: Path) -> None:
    """Remove a store, its manifest first, so that the rest never passes for a finished store."""
    (out / MANIFEST).unlink(missing_ok=True)
    for entry in out.iterdir():
        if entry.is_dir() and _is_ours(entry.name):
            shutil.rmtree(entry)
        elif entry.name not in (LOCK, TURN) and _is_ours(entry.name):
            entry.unlink()


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turn disk errors into a message that says what to do."""
    try:
        yield
    except OSError as error:
        advice = "free some space and rerun" if is_full(error) else "rerun"
        raise DataError(
            f"{out}: cannot write: {error.strerror or error}. Finished parts are kept: {advice} the same build"
        ) from error


def count_kinds(skipped: dict[str, int]) -> str:
    """Skipped documents in words: {"bad JSON": 3} -> "3 bad JSON"."""
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(skipped.items()))


def _difference(plan: dict[str, Any], other: dict[str, Any]) -> str:
    """How a store or build differs from the plan, in words; '' if it does not."""
    if other["tokenizer"] != plan["tokenizer"]:
        return f"another tokenizer (fingerprint {other['tokenizer']['fingerprint'][:12]})"
    if other.get("options") != plan["options"]:
        options = other.get("options") or {}
        changed = [key for key in plan["options"] if options.get(key) != plan["options"][key]]
        return "other options (" + ", ".join(f"{key}: {options.get(key)!r}" for key in changed) + ")"
    if other.get("sources") != plan["sources"]:
        before = {source["path"]: source for source in other.get("sources", [])}
        now = {source["path"]: source for source in plan["sources"]}
        for path in [*now, *before]:
            if before.get(path) != now.get(path):
                what = "is new" if path not in before else "is gone" if path not in now else "has changed"
                return f"other sources ({path} {what})"
        return "the same sources in another order"
    return f"litebert {other['litebert']}" if other["litebert"] != plan["litebert"] else ""


def _is_ours(name: str) -> bool:
    return name in (MANIFEST, INDEX, WORK, LOCK, TURN) or name.startswith(("part-", ".part-", f".{MANIFEST}."))
