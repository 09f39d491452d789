"""Blocks of text -> tokens: in this process, in several, or part by part on a Ray cluster.

`tokenize_block` is a pure function, so the result does not depend on how many processes there are or which of them did
the work. Results come back in order; only a few blocks per worker are in flight, so memory use is constant.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import re
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from litebert.errors import LitebertError
from litebert.extras import require
from litebert.text.normalize import normal_form
from litebert.text.readers import Block, Document, Format, Problem, parse_block
from litebert.text.sentences import split_sentences
from litebert.text.store_writer import token_dtype

HASH_BYTES = 16
SHOWN_PROBLEMS = 5
BLOCKS_PER_WORKER = 3  # one being tokenized, one waiting, one on its way back

Label = TypeVar("Label")
Other = TypeVar("Other")
Item = TypeVar("Item")
Result = TypeVar("Result")


class BatchEncoder(Protocol):
    """What a build needs from a tokenizer; `litebert.text.tokenizer.Tokenizer` has it."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    def encode_batch(self, texts: Sequence[str]) -> Sequence[npt.NDArray[Any]]: ...


@dataclass(frozen=True)
class BuildOptions:
    """Everything besides sources and tokenizer that determines the content of a store."""

    format: Format | Literal["auto"] = "auto"
    text_field: str = "text"
    language: str = "auto"
    deduplicate: bool = False


@dataclass(frozen=True)
class TokenizedBlock:
    """The documents of a block as arrays, and what was skipped."""

    tokens: npt.NDArray[Any]
    sentence_lengths: npt.NDArray[np.int64]  # tokens per sentence
    document_lengths: npt.NDArray[np.int64]  # sentences per document
    hashes: bytes  # HASH_BYTES per document, where duplicates are to be dropped
    skipped: Counter[str]
    problems: list[str]  # the first few messages
    format: str
    text_bytes: int
    position: int  # bytes of the file read so far


def tokenize_block(block: Block, tokenizer: BatchEncoder, options: BuildOptions) -> TokenizedBlock:
    """Parse, split into sentences and encode one block."""
    sentences: list[str] = []
    ends: list[int] = []  # where each document ends in `sentences`
    hashes: list[bytes] = []
    skipped: Counter[str] = Counter()
    problems: list[str] = []
    for item in parse_block(block, options.text_field):
        if isinstance(item, Problem):
            skipped[item.kind] += 1
            if len(problems) < SHOWN_PROBLEMS:
                problems.append(item.message)
            continue
        if item.are_sentences:
            sentences.extend(item.lines)
        else:
            for paragraph in item.lines:
                sentences.extend(split_sentences(paragraph, options.language))
        ends.append(len(sentences))
        if options.deduplicate:
            hashes.append(hash_document(item))
    encoded = tokenizer.encode_batch(sentences)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    tokens = np.concatenate(encoded) if len(encoded) else np.empty(0)
    # Sentences without tokens (a lone control character, say) are dropped, and so are documents without sentences.
    kept_before = np.concatenate([[0], np.cumsum(lengths > 0)])  # sentences kept before each sentence
    per_document = np.diff(kept_before[ends], prepend=0)
    kept = per_document > 0
    return TokenizedBlock(
        tokens.astype(token_dtype(tokenizer.vocab_size), copy=False),
        lengths[lengths > 0],
        per_document[kept],
        b"".join(value for value, keep in zip(hashes, kept, strict=True) if keep) if options.deduplicate else b"",
        skipped,
        problems,
        block.format,
        len(block.data) if isinstance(block.data, bytes) else sum(len(row or b"") for row in block.data),
        block.position,
    )


def hash_document(document: Document) -> bytes:
    """Equal for documents with the same text, ignoring spacing, line breaks and Unicode composition."""
    text = normal_form("NFC", " ".join(" ".join(document.lines).split()))
    return hashlib.blake2b(text.encode("utf-8"), digest_size=HASH_BYTES).digest()


def tokenize_in_order(
    jobs: Iterable[tuple[Label, Block | Other]],
    tokenizer: Path | BatchEncoder,
    options: BuildOptions,
    workers: int,
) -> Generator[tuple[Label, TokenizedBlock | Other], None, None]:
    """Tokenize the blocks among (label, block) pairs; anything else passes through in its place."""
    if workers == 1:
        encoder = open_encoder(tokenizer)
        for label, item in jobs:
            yield label, tokenize_block(item, encoder, options) if isinstance(item, Block) else item
        return
    # Spawned, not forked: forking a process with threads (Arrow's, say) can hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(tokenizer, options))
    waiting: deque[tuple[Label, Future[TokenizedBlock] | Other]] = deque()
    try:
        for label, item in jobs:
            waiting.append((label, _submit(pool, item) if isinstance(item, Block) else item))
            if len(waiting) > BLOCKS_PER_WORKER * workers:
                yield _result(*waiting.popleft())
        while waiting:
            yield _result(*waiting.popleft())
    except BrokenProcessPool:
        raise LitebertError(
            "a worker process died: it was killed, ran out of memory, or the script lacks "
            'if __name__ == "__main__". Finished parts are kept: rerun the same build, '
            "with fewer workers if memory ran out"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def open_encoder(tokenizer: Path | BatchEncoder) -> BatchEncoder:
    """A tokenizer from its folder, or the one given."""
    return _load_once(str(tokenizer)) if isinstance(tokenizer, Path) else tokenizer


@lru_cache(maxsize=1)  # a worker that builds several parts loads it once
def _load_once(path: str) -> BatchEncoder:
    from litebert.text.tokenizer import Tokenizer

    return Tokenizer.load(path)


def _submit(pool: ProcessPoolExecutor, block: Block) -> Future[TokenizedBlock]:
    """Submit a block; the first one starts the workers, which inherit the blocked Ctrl-C."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        return pool.submit(_work, block)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        return pool.submit(_work, block)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_worker: tuple[BatchEncoder, BuildOptions] | None = None


def _start_worker(tokenizer: Path | BatchEncoder, options: BuildOptions) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = open_encoder(tokenizer), options


def _end_with_parent() -> None:
    """Exit with the parent: if it is killed, it cannot stop its workers, which would wait forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _work(block: Block) -> TokenizedBlock:
    assert _worker is not None
    return tokenize_block(block, *_worker)


def _result(label: Label, item: Future[TokenizedBlock] | Other) -> tuple[Label, TokenizedBlock | Other]:
    return label, item.result() if isinstance(item, Future) else item


def map_on_ray(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[tuple[int, Result]]:
    """(index, result) for each item on a Ray cluster, one task per item, as they finish."""
    if not items:
        require("ray", "engine='ray'")
        return
    with open_ray(workers) as (_, data):
        rows = [{"index": index, "item": pickle.dumps(item)} for index, item in enumerate(items)]
        dataset = data.from_items(rows, override_num_blocks=len(rows)).map(_apply, fn_args=(function,), num_cpus=1)
        for row in dataset.iter_rows():
            yield row["index"], pickle.loads(row["result"])


@contextlib.contextmanager
def open_ray(workers: int) -> Iterator[tuple[Any, Any]]:
    """The modules `ray` and `ray.data`, connected and quiet.

    To the cluster at RAY_ADDRESS or the one this process is connected to; otherwise to a local Ray with `workers` cores
    (0: all) that is shut down at the end.
    """
    ray = require("ray", "engine='ray'")
    data = require("ray.data", "engine='ray'")
    started = not ray.is_initialized()
    if started:
        address = os.environ.get("RAY_ADDRESS")
        local: dict[str, Any] = {"num_cpus": workers or None, "include_dashboard": False}
        try:
            ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **({} if address else local))
        except (ValueError, OSError, RuntimeError) as error:
            where = f"no cluster at RAY_ADDRESS ({address})" if address else "cannot start on this machine"
            raise LitebertError(f"Ray: {where}: {_reason(str(error))}") from error
    context = data.DataContext.get_current()
    bars, context.enable_progress_bars = context.enable_progress_bars, False
    chatter = logging.getLogger("ray.data")
    level = chatter.level
    chatter.setLevel(logging.ERROR)
    try:
        yield ray, data
    except ray.exceptions.RayError as error:
        raise LitebertError(
            f"Ray: {_reason(str(error))}. Finished parts are kept: rerun the same command to resume"
        ) from error
    finally:
        context.enable_progress_bars = bars
        chatter.setLevel(level)
        if started:
            ray.shutdown()


def _reason(text: str) -> str:
    """What happened, from the traceback of a Ray task: the line of the first exception, before what Ray made of it."""
    first = text.partition("\n\nThe above exception was")[0].strip()
    named = [line for line in first.splitlines() if re.match(r"[A-Za-z_][\w.]*: ", line)]
    return (named or first.splitlines() or ["failed"])[-1].rstrip(".")


def _apply(row: dict[str, Any], function: Callable[[Any], Any]) -> dict[str, Any]:
    return {"index": row["index"], "result": pickle.dumps(function(pickle.loads(row["item"])))}
