"""The folder of a build: who may write there, what stands there already, and whether it can go on."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from litebert.errors import DataError
from litebert.files import hold_lock, is_full, write_atomic
from litebert.parse import read_object
from litebert.text.compressed import STDIN
from litebert.text.store import TokenStore, read_manifest
from litebert.text.store_writer import INDEX, MANIFEST, json_sum

WORK, PLAN = "build", "plan.json"  # while a build is under way
LOCK = ".lock"

OnError = Literal["stop", "skip"]


def is_built(out: Path, plan: dict[str, Any], on_error: OnError) -> bool:
    """Whether the very store that is asked for is there; another one is an error."""
    if not (out / MANIFEST).is_file():
        return False
    manifest = read_manifest(out)
    sources = [{key: source[key] for key in ("path", "size", "mtime_ns")} for source in manifest.get("sources", [])]
    # A finished store of another version is as good; only an unfinished one must not be mixed.
    difference = _difference(plan, manifest | {"sources": sources, "litebert": plan["litebert"]})
    if any(source["path"] == STDIN for source in plan["sources"]):
        difference = difference or "maybe other text on standard input"
    if on_error == "stop" and manifest.get("skipped"):
        difference = difference or f"--on-error skip ({count_kinds(manifest['skipped'])} left out)"
    if difference:
        raise DataError(f"{out}: a store stands there already, built from {difference}; --overwrite replaces it")
    TokenStore.open(out)  # says so if it is damaged
    return True


def begin_build(out: Path, plan: dict[str, Any], overwrite: bool) -> list[str]:
    """Start a new build, or leave an interrupted one of the same plan as it is; gives what a person should know."""
    plan_file = out / WORK / PLAN
    if (out / WORK).is_dir() and not (out / MANIFEST).is_file():
        notes, difference = [], ""
        try:
            difference = _difference(plan, read_signed(plan_file))
        except (DataError, KeyError, TypeError, AttributeError) as error:
            damage = str(error) if isinstance(error, DataError) else f"{plan_file}: damaged"
            difference = f"nobody knows what ({damage})"
            if any(_belongs(file, plan) for file in (out / WORK).glob("part-*.json")):
                difference = ""
                notes = [f"{damage}; the finished parts say that they are of the same build, so it goes on"]
                write_signed(plan_file, plan)
        if not difference:
            for leftover in (*out.glob(".*.tmp"), *(out / WORK).glob(".*.tmp")):
                leftover.unlink()
            return notes
        if not overwrite and any(out.rglob("part-*")):  # one that a bad file ended at once has nothing to lose
            raise DataError(f"{out}: holds an unfinished build from {difference}; finish that, or --overwrite it")
    strangers = [entry.name for entry in out.iterdir() if not _is_ours(entry.name)]
    if strangers:
        raise DataError(f"{out}: not a token store, and not empty ({strangers[0]}, ...); choose another folder")
    wipe(out)
    (out / WORK).mkdir()
    write_signed(plan_file, plan)
    return []


def write_signed(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON file with a checksum of what it says."""
    write_atomic(path, json.dumps({**data, "sha256": json_sum(data)}))


def read_signed(path: Path) -> dict[str, Any]:
    """What `write_signed` wrote; a DataError if the file says anything else (litebert 0.1 wrote no checksum)."""
    data = read_object(path)
    if data.pop("sha256", json_sum(data)) != json_sum(data):
        raise DataError(f"{path}: damaged")
    return data


def _belongs(record: Path, plan: dict[str, Any]) -> bool:
    with contextlib.suppress(DataError):
        return bool(read_signed(record).get("plan") == json_sum(plan))
    return False


def _difference(plan: dict[str, Any], other: dict[str, Any]) -> str:
    """What a store or build has that the plan has not, in words; '' if they agree."""
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
                what = "was not one" if path not in before else "was one" if path not in now else "was different"
                return f"other sources ({path} {what})"
        return "the same sources in another order"
    return f"litebert {other['litebert']}" if other["litebert"] != plan["litebert"] else ""


def _is_ours(name: str) -> bool:
    return name in (MANIFEST, INDEX, WORK, LOCK) or name.startswith(("part-", ".part-", f".{MANIFEST}."))


def wipe(out: Path) -> None:
    """Remove a store, its manifest first: what is left is never taken for whole."""
    (out / MANIFEST).unlink(missing_ok=True)
    for entry in out.iterdir():
        if entry.is_dir() and _is_ours(entry.name):
            shutil.rmtree(entry)
        elif entry.name != LOCK and _is_ours(entry.name):
            entry.unlink()


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep a second build out of the same folder; the lock of a killed process does not count."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: is a file; a store is a folder")
    with contextlib.ExitStack() as held:
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(hold_lock(out / LOCK))
            except BlockingIOError:
                raise DataError(f"{out}: another build is writing this store right now") from None
        yield


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """Tell what is wrong with the disk, and that nothing finished is lost."""
    try:
        yield
    except OSError as error:
        advice = "free some space and run" if is_full(error) else "run"
        raise DataError(
            f"{out}: cannot write: {error.strerror or error}. Finished parts are kept: {advice} the same build again"
        ) from error


def count_kinds(skipped: dict[str, int]) -> str:
    """What was left out, in words: {"bad JSON": 3} -> "3 bad JSON"."""
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(skipped.items()))
