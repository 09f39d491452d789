"""Streams: the same batches from any number of processes, and a clear end however it comes."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from small_stores import FINGERPRINT, FIRST, SmallVocabulary, random_documents, same_batch

from litebert.errors import DataError
from litebert.pretraining.batches import Batches
from litebert.pretraining.recipes import named_recipe
from litebert.text.store import TokenStore


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    rng = np.random.default_rng(0)
    documents = [[rng.integers(FIRST, 900, n) for n in document] for document in random_documents(150, seed=3)]
    store = TokenStore.write(tmp_path_factory.mktemp("store") / "store", documents, FINGERPRINT, 900)
    recipe = named_recipe("paper", {"max_length": 128})
    return Batches(store, SmallVocabulary(900), recipe, tokens_per_batch=4096, row_tokens=512, seed=5)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_any_number_of_workers_gives_the_same_batches(batches, workers):
    with batches.iterate(4, 9, rank=1, world=2, micro_batches=2, workers=workers) as stream:
        found = list(stream)
    expected = [batches.batch(step, 1, 2, micro, 2) for step in range(4, 9) for micro in range(2)]
    assert len(found) == len(expected)
    assert all(same_batch(one, other) for one, other in zip(found, expected, strict=True))


def test_a_restart_goes_on_where_it_stopped(batches):
    with batches.iterate(0, None) as stream:
        first = [next(stream) for _ in range(3)]
    with batches.iterate(3, 5) as stream:
        rest = list(stream)
    assert all(same_batch(batch, batches.batch(step)) for step, batch in enumerate(first + rest))


def test_a_killed_worker_is_an_error_not_a_wait(batches):
    with batches.iterate(0, None, workers=2) as stream:
        next(stream)
        os.kill(stream.worker_ids[1], signal.SIGKILL)
        with pytest.raises(
            DataError, match=r"a batch worker died \(signal SIGKILL\); rerun the same command to resume"
        ):
            list(stream)  # what was made before may still arrive
        assert stream.worker_ids == []  # the other one was ended too


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_process_group_is_the_parents(batches, sent):
    with batches.iterate(0, 40, workers=1) as stream:  # more than a worker makes ahead
        (worker,) = stream.worker_ids
        os.kill(worker, sent)  # while it starts
        found = [next(stream)]
        os.kill(worker, sent)
        found += stream
    assert len(found) == 40
    assert all(same_batch(batch, batches.batch(step)) for step, batch in enumerate(found))
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGTERM}  # ours as before


def test_closing_ends_the_workers(batches):
    stream = batches.iterate(0, None, workers=2)
    next(stream)
    ids = stream.worker_ids
    stream.close()
    stream.close()
    for process in ids:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_worker_outlives_no_parent(batches, tmp_path):
    # A parent that is killed cannot close anything; its workers notice by their pipes.
    script = f"""
import os, pickle
batches = pickle.loads({pickle.dumps(batches)!r})
stream = batches.iterate(0, None)
next(stream)
print(stream.worker_ids[0], flush=True)
os.kill(os.getpid(), 9)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    worker = int(result.stdout)
    for _ in range(200):
        if not _runs(worker):
            break
        time.sleep(0.05)
    assert not _runs(worker)


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_error_in_a_worker_comes_back_as_it_was(batches, tmp_path):
    documents = [[[10, 11], [12]] for _ in range(50)]
    store = TokenStore.write(tmp_path / "store", documents, FINGERPRINT, 900)
    damaged = Batches(store, batches.symbols, batches.recipe, tokens_per_batch=512, row_tokens=512)
    (tmp_path / "store" / "manifest.json").unlink()
    with damaged.iterate(0, 2) as stream, pytest.raises(DataError, match="unfinished"):
        next(stream)
