"""What does a training loop lose to the making of its batches: in place, by a thread, or by a process?

    python benchmarks/batch_feeding.py --store STORE --tokenizer TOKENIZER [--steps 40] [--rounds 8]

A step is stood in for by Python that holds the interpreter, as launching kernels does, and by a wait, as for a GPU. The
ways take turns, round by round; the figure is the median over the rounds of the mean milliseconds of a step. It means
something on an idle machine only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import queue
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from litebert.pretraining.batches import Batches
from litebert.pretraining.recipes import named_recipe
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer

PYTHON_SECONDS, WAIT_SECONDS = 0.010, 0.010


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    tokenizer = Tokenizer.load(options.tokenizer)
    store = TokenStore.open(options.store, tokenizer)
    batches = Batches(store, tokenizer, named_recipe("paper"), tokens_per_batch=32_768)
    batches.batch(0)
    count = calibrate_work()
    ways = {"no batches": no_batches, "in place": in_place, "by a thread": by_a_thread, "by a process": by_a_process}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            stream = way(batches)
            next(stream)
            start = time.perf_counter()
            for _ in range(options.steps):
                next(stream)
                hold_the_interpreter(count)
                time.sleep(WAIT_SECONDS)
            found[name].append(1000 * (time.perf_counter() - start) / options.steps)
            stream.close()
    print(json.dumps({name: round(statistics.median(values), 2) for name, values in found.items()}, indent=1))


def calibrate_work() -> int:
    """How many rounds of the loop below take PYTHON_SECONDS of CPU time."""
    start = time.thread_time()
    hold_the_interpreter(100_000)
    return int(100_000 * PYTHON_SECONDS / (time.thread_time() - start))


def hold_the_interpreter(count: int) -> int:
    total = 0
    for number in range(count):
        total += number
    return total


def no_batches(batches: Batches) -> Iterator[object]:
    yield from itertools.repeat(None)


def in_place(batches: Batches) -> Iterator[object]:
    for step in itertools.count():
        yield batches.batch(step)


def by_a_thread(batches: Batches) -> Iterator[object]:
    ready: queue.Queue[object] = queue.Queue(4)
    ended = threading.Event()

    def make() -> None:
        for step in itertools.count():
            ready.put(batches.batch(step))
            if ended.is_set():
                return

    thread = threading.Thread(target=make)
    thread.start()
    try:
        while True:
            yield ready.get()
    finally:
        ended.set()
        while thread.is_alive():
            while not ready.empty():
                ready.get()
            thread.join(0.01)


def by_a_process(batches: Batches) -> Iterator[object]:
    with batches.iterate(workers=1) as stream:
        yield from stream


if __name__ == "__main__":
    main()
