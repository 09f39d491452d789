"""Ten thousand made-up requests: no answer of 500 and above, no crash, steady memory.

    python benchmarks/server_fuzz.py [MODEL ...] [--requests 10000] [--out result.json]

MODEL as for `litebert serve`; without any, random models of every kind are made, so that each ability is reached.
The server is a process of its own. Of the requests, six tenths are made by schemathesis from the OpenAPI description
(half of them follow it, half break it), two tenths put any text into the right fields, one tenth is any JSON and one
tenth any bytes. Memory is the server's own /metrics figure; the second half of the run may add at most --grow MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import schemathesis
from hypothesis import strategies as st
from tiny import tiny_model

from litebert.predict.abilities import ABILITIES
from litebert.serve.schemas import path_of

QUIET = hypothesis.settings(
    deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate]
)
JSON = {"Content-Type": "application/json"}


class Run:
    """Counts what the server answers, and reads its memory now and then."""

    def __init__(self, address: str, total: int):
        self.client = httpx.Client(base_url=address, timeout=60)
        self.total, self.sent = total, 0
        self.statuses: Counter[int] = Counter()
        self.bad: list[str] = []
        self.memory: list[tuple[int, float]] = []

    def note(self, answer: Any, what: str) -> None:
        """Count one answer."""
        self.statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            self.bad.append(f"{answer.status_code} for {what}: {answer.text[:200]}")
        elif answer.status_code >= 400 and set(answer.json()) != {"error"}:
            self.bad.append(f"{answer.status_code} in another form for {what}")
        self.sent += 1
        if self.sent % max(self.total // 20, 1) == 0:
            lines = self.client.get("/metrics").text.splitlines()
            resident = next(
                float(line.split()[1]) for line in lines if line.startswith("process_resident_memory_bytes ")
            )
            self.memory.append((self.sent, resident / 2**20))
            counts = " ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
            print(f"{self.sent:6,} requests  {resident / 2**20:7.1f} MiB  {counts}", flush=True)

    def post(self, path: str, content: bytes | str) -> None:
        self.note(self.client.post(path, content=content, headers=JSON), f"{path} {content[:200]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--grow", type=float, default=32.0, help="MiB that the second half may add")
    parser.add_argument("--out", type=Path, help="write JSON here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = options.models or write_models(Path(folder))
        command = [sys.executable, "-m", "litebert", "serve", *models, "--port", "0", "--threads", "1"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert server.stdout is not None
        assert server.stderr is not None
        logs: list[str] = []
        reader = threading.Thread(target=lambda: logs.extend(line for line in server.stderr if '"request"' not in line))  # type: ignore[union-attr]
        reader.start()
        line = server.stdout.readline()
        if " at http" not in line:
            sys.exit(f"the server did not start: {''.join(logs)}")
        run = Run(line.split(" at ")[1].split()[0], options.requests)
        began = time.perf_counter()
        fuzz(run)
        alive = server.poll() is None
        server.terminate()
        code = server.wait(60)
        reader.join()
    half = [mebibytes for sent, mebibytes in run.memory if sent >= run.total // 2]
    grown = half[-1] - half[0]
    failures = [line for line in logs if '"failed"' in line]
    report = {
        "requests": run.sent,
        "statuses": {str(status): count for status, count in sorted(run.statuses.items())},
        "memory_mib": [round(mebibytes, 1) for _, mebibytes in run.memory],
        "second_half_added_mib": round(grown, 1),
        "bad": run.bad[:20],
        "failures_logged": failures[:20],
        "alive": alive,
        "exit_code": code,
        "seconds": round(time.perf_counter() - began, 1),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
    }
    print(json.dumps(report, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if not run.bad and not failures and alive and code == 0 and grown <= options.grow else 1)


def fuzz(run: Run) -> None:
    """All requests, a round at a time, so that every kind is met in both halves."""
    schema = schemathesis.openapi.from_dict(run.client.get("/openapi.json").json())
    operations = [schema[path_of(ability)]["POST"] for ability in ABILITIES.values()]
    paths = st.sampled_from([path_of(ability) for ability in ABILITIES.values()])
    rounds = 10
    for number in range(rounds):
        share = (run.total - run.sent) / (rounds - number)
        for index, operation in enumerate(operations):
            for mode in schemathesis.GenerationMode:
                send_cases(run, operation, mode, int(share * 0.3 / len(operations)) + 1, seed=100 * number + index)
        send(run, st.tuples(paths, any_request()), int(share * 0.2) + 1, number)
        send(run, st.tuples(paths, any_json()), int(share * 0.1) + 1, number)
        send(run, st.tuples(paths, st.binary(max_size=400)), int(share * 0.1) + 1, number)


def send_cases(run: Run, operation: Any, mode: Any, count: int, seed: int) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(QUIET, max_examples=count)
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def each(case: Any) -> None:
        if run.sent < run.total:
            run.note(case.call(base_url=str(run.client.base_url)), f"{operation.label} ({mode.value})")

    each()


def send(run: Run, strategy: Any, count: int, seed: int) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(QUIET, max_examples=count)
    @hypothesis.given(drawn=strategy)
    def each(drawn: Any) -> None:
        if run.sent < run.total:
            path, content = drawn
            if isinstance(content, dict) and "ability" in content:
                path, content = path_of(ABILITIES[content["ability"]]), json.dumps(content["body"])
            run.post(path, content)

    each()


def any_request() -> st.SearchStrategy[dict[str, Any]]:
    """The example of an ability with any texts in its fields."""
    texts = st.text(max_size=200) | st.sampled_from(["[MASK] ", "A. B. C. ", "👩‍👩‍👧‍👦", "שלום", "\x00", "a" * 3000])

    def fill(ability: str) -> st.SearchStrategy[dict[str, Any]]:
        example = ABILITIES[ability].examples[0]
        fields = {
            name: st.lists(texts, min_size=2, max_size=4)
            if isinstance(value, list)
            else texts.map(f"{value}{{}}".format)
            for name, value in example.items()
        }
        return st.fixed_dictionaries({"ability": st.just(ability), "body": st.fixed_dictionaries(fields)})

    return st.sampled_from(list(ABILITIES)).flatmap(fill)


def any_json() -> st.SearchStrategy[str]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40)
    names = st.sampled_from(["text", "a", "b", "model", "question", "context", "options", "top"]) | st.text(max_size=8)
    values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5))
    return values.map(json.dumps)


def write_models(folder: Path) -> list[str]:
    """A small random model of every kind."""
    import torch

    from litebert.model.heads import MODELS
    from litebert.model.hub import save_model
    from litebert.tasks.task import Task, save_task
    from litebert.text.generate import generate_documents
    from litebert.text.train_vocab import VocabConfig, train_vocab

    text = folder / "text.txt"
    text.write_text("\n".join(" ".join(each) for each in generate_documents(1000)) + "\n", encoding="utf-8")
    tokenizer = train_vocab([text], VocabConfig(vocab_size=800)).tokenizer
    tasks = {
        "pretraining": None,
        "classification": Task("mood", "classification", labels=("sad", "glad")),
        "token-classification": Task("names", "token-classification", labels=("O", "B-PER", "I-PER")),
        "answer": Task("questions", "question-answering", max_length=64, stride=16, answerable_head=True),
        "multiple-choice": Task("exam", "multiple-choice", num_choices=4, max_length=64),
    }
    torch.manual_seed(0)
    for head, task in tasks.items():
        config = tiny_model(tokenizer.vocab_size, labels=task.labels if task else ())
        save_model(MODELS[head](config), folder / head)
        tokenizer.save(folder / head)
        if task:
            save_task(task, folder / head)
    return [str(folder / head) for head in tasks]


if __name__ == "__main__":
    main()
