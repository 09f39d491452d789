"""The folder of a scoring run: its plan, its parts (each written once, atomically), and a final summary.

_plan.json                     everything that determines the results; another command is refused
part-00000-000000.parquet      part 0 of input 0, and so on: in the order of their names they are the input's rows
_summary.json                  written last
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from litebert.bulk.part import read_note
from litebert.errors import DataError
from litebert.files import hold_lock, sweep, write_atomic
from litebert.parse import parse_json
from litebert.text.sources import StoreError, ask_store, file_system, is_url, open_file

PLAN, SUMMARY, LOCK = "_plan.json", "_summary.json", ".lock"
_PART = re.compile(r"part-(\d{5,})-(\d{6,})\.parquet")


def part_name(source: int, number: int) -> str:
    """(3, 12) -> "part-00003-000012.parquet"."""
    return f"part-{source:05d}-{number:06d}.parquet"


class Folder:
    """A folder on this machine, or at an address that fsspec opens."""

    def __init__(self, out: str | Path):
        self.name = str(out)
        self._path = None if is_url(self.name) else Path(self.name)
        if self._path is None:
            self._system, self._inner = file_system(self.name)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only run that writes here, as far as file systems of this machine can tell."""
        if self._path is None:
            yield
            return
        if self._path.exists() and not self._path.is_dir():
            raise DataError(f"{self.name}: is a file; name a folder")
        is_new = not self._path.exists()
        self._path.mkdir(parents=True, exist_ok=True)
        try:
            with hold_lock(self._path / LOCK):
                sweep(self._path)
                yield
        except BlockingIOError:
            raise DataError(f"{self.name}: another run is writing to this folder") from None
        finally:
            if is_new and not self.names():  # refused before anything was written: leave nothing behind
                with contextlib.suppress(OSError):
                    self._path.rmdir()

    def names(self) -> list[str]:
        """The files, without hidden ones."""
        if self._path is not None:
            found = [entry.name for entry in self._path.iterdir()] if self._path.is_dir() else []
        else:
            paths = ask_store(self.name, self._list)
            found = [str(path).rstrip("/").rsplit("/", 1)[-1] for path in paths]
        return sorted(name for name in found if not name.startswith("."))

    def _list(self) -> list[Any]:
        if not self._system.exists(self._inner):
            return []
        self._system.invalidate_cache()
        return list(self._system.ls(self._inner, detail=False))

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        if self._path is not None:
            return (self._path / name).is_file()
        return bool(ask_store(self.name, lambda: self._system.exists(f"{self._inner}/{name}")))

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, or nothing; a store of objects shows them when they are complete."""
        if self._path is not None:
            write_atomic(self._path / name, data)
            return

        def put() -> None:
            self._system.makedirs(self._inner, exist_ok=True)
            self._system.pipe_file(f"{self._inner}/{name}", data)

        ask_store(f"{self.name}/{name}", put, "write")

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        if self._path is not None:
            return (self._path / name).read_bytes()
        return bytes(ask_store(f"{self.name}/{name}", lambda: self._system.cat_file(f"{self._inner}/{name}")))

    # -----------------------------------------------------------------------------------------------------------------

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Start a run here, or resume it if the same command started it; anything else is refused."""
        names = self.names()
        if PLAN not in names:
            if names:
                raise DataError(f"{self.name}: not empty ({names[0]}, ...), and not the folder of a scoring run")
            self.write(PLAN, (json.dumps(plan, indent=2, ensure_ascii=False) + "\n").encode())
            return
        before = self.plan()
        parts = self.parts()
        for key, value in plan.items():
            if key == "inputs":
                self._check_inputs(before.get(key), value, parts)
            elif before.get(key) != value:
                raise DataError(f"{self.name}: {_difference(key, before.get(key), value)}; {_ADVICE}")
        if before != plan:  # an input that has no results yet was replaced
            self.write(PLAN, (json.dumps(plan, indent=2, ensure_ascii=False) + "\n").encode())

    def part_rows(self) -> int | None:
        """The number of rows per part of the run in this folder."""
        rows = self.plan().get("part_rows") if self.has(PLAN) else None
        return rows if isinstance(rows, int) else None

    def plan(self) -> dict[str, Any]:
        """What was started here."""
        plan = parse_json(self.read(PLAN).decode("utf-8", "replace"), f"{self.name}/{PLAN}")
        if not isinstance(plan, dict):
            raise DataError(f"{self.name}/{PLAN}: damaged; use another folder")
        return plan

    def _check_inputs(self, before: Any, now: Sequence[Mapping[str, Any]], parts: Mapping[int, set[int]]) -> None:
        old = [entry.get("path") for entry in before or ()]
        new = [entry["path"] for entry in now]
        if old != new:
            gone, more = [p for p in old if p not in new], [p for p in new if p not in old]
            what = f"without {gone[0]}" if gone else f"with {more[0]}" if more else "in another order"
            raise DataError(f"{self.name}: the inputs have changed ({what}); {_ADVICE}")
        for number, (was, entry) in enumerate(zip(before, now, strict=True)):
            if was != entry and parts.get(number):
                stale = part_name(number, 0).replace("000000.", "*.")
                advice = f"delete its parts ({stale}) to score it again, or use another folder"
                raise DataError(f"{self.name}: {entry['path']} has changed since it was scored; {advice}")

    def parts(self) -> dict[int, set[int]]:
        """The finished parts of each input."""
        found: dict[int, set[int]] = {}
        for name in self.names():
            if match := _PART.fullmatch(name):
                found.setdefault(int(match[1]), set()).add(int(match[2]))
        return found

    def tally(self, parts: Mapping[int, set[int]]) -> tuple[dict[int, dict[int, dict[str, Any]]], int]:
        """What finished parts say about themselves, with their "rows"; and how many rows they hold together."""
        keys = [(source, number) for source, numbers in parts.items() for number in sorted(numbers)]
        with ThreadPoolExecutor(16) as pool:  # a store of objects answers slowly, but many at a time
            notes = list(pool.map(lambda key: self._note(part_name(*key)), keys))
        found: dict[int, dict[int, dict[str, Any]]] = {}
        for (source, number), note in zip(keys, notes, strict=True):
            found.setdefault(source, {})[number] = note
        return found, sum(note["rows"] for note in notes)

    def _note(self, name: str) -> dict[str, Any]:
        where = f"{self.name}/{name}"
        try:
            if self._path is not None:
                metadata = pq.read_metadata(self._path / name)
            else:
                with open_file(where) as file:
                    metadata = pq.read_metadata(file)
        except StoreError as error:
            raise DataError(f"{where}: cannot read: {error}") from None
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{where}: damaged ({error}); delete it, and the same command computes it again") from None
        return {**read_note(metadata, where), "rows": metadata.num_rows}


_ADVICE = "use another folder, or delete this one first"


def _difference(key: str, before: Any, now: Any) -> str:
    if key == "model_files":
        return "holds another model's results"
    return f"holds results with {key} {json.dumps(before)}, not {json.dumps(now)}"
