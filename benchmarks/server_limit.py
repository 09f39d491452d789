"""How many tokens per second does `litebert serve` answer over HTTP, and how soon? Open loop, Poisson arrivals.

On a GPU (about two minutes; embed and classify at 20, 50 and 200 tokens):
    python benchmarks/server_limit.py --device cuda --processes 10 --clients 4 --out result.json
A small setting that runs anywhere:
    python benchmarks/server_limit.py --preset albert-tiny --clients 1 --rates 2e3 --seconds 2 --request-tokens 400

Random weights of --preset with the default model's vocabulary, as an encoder and as a classifier, are served by one
`litebert serve` with --processes processes. A request holds texts of one length, together about --request-tokens
tokens; vectors come as base64 (/v1/embeddings). Requests come by the clock, with exponential gaps, whether or not
others were answered; a latency counts from when its request was due. --clients processes send them, over --connections
connections each.

For each ability and length, rates (tokens per second offered) go up until p99 is above --limit-ms, or a request is
refused or lost; the last rate before that is the figure. Two seconds at the lowest rate warm up and do not count.
Beside each rate: how many cores the process with the models and all others of the server used.

A machine without the server's packages takes them in a folder; where there is a package index:
    pip install --target local/server --no-compile --python-version 3.12 --only-binary=:all: \\
        --platform manylinux2014_x86_64 fastapi uvicorn prometheus-client
and there: PYTHONPATH=src:local/server python benchmarks/server_limit.py ...
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

LENGTHS = (20, 50, 200)  # tokens, with [CLS] and [SEP]
BODIES = 64  # different requests of each kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="albert-base")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--clients", type=int, default=2, help="processes that send")
    parser.add_argument("--connections", type=int, default=64, help="of each client")
    parser.add_argument("--request-tokens", type=int, default=3200)
    parser.add_argument("--rates", type=float, nargs="+", default=[4e5, 8e5, 1.2e6, 1.6e6, 2e6], help="tokens/s")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each rate")
    parser.add_argument("--limit-ms", type=float, default=250.0)
    parser.add_argument("--zeros", action="store_true", help="the model answers zeros at once: what the rest allows")
    parser.add_argument("--only", nargs="+", default=[], help="such as embed:50 classify:20; by default all six")
    parser.add_argument(
        "--set", dest="settings", action="append", default=["queue_tokens=262144", "queue_requests=2048"]
    )
    parser.add_argument("--out", type=Path, help="write JSON here")
    parser.add_argument("--serve", help=argparse.SUPPRESS)  # be the server
    parser.add_argument("--load", help=argparse.SUPPRESS)  # be a client
    options = parser.parse_args()
    if options.serve:
        serve(json.loads(options.serve))
    elif options.load:
        print(json.dumps(asyncio.run(make_load(**json.loads(options.load)))))
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """Start the server, raise the load of each kind of request, and print what came back."""
    kinds = [kind.split(":") for kind in options.only]
    kinds = kinds or [[ability, str(tokens)] for ability in ("embed", "classify") for tokens in LENGTHS]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_models(folder, options.preset)
        for ability, tokens in kinds:
            write_bodies(folder, ability, int(tokens), options.request_tokens)
        with server(folder, options) as (process, address):
            for ability, tokens in kinds:
                load(options, folder, address, ability, tokens, options.rates[0], seconds=2.0)  # warms up
                for rate in options.rates:
                    row = measure_rate(options, folder, address, process.pid, ability, tokens, rate)
                    rows.append(row)
                    print(describe(row), flush=True)
                    if not row["held"]:
                        break
    report = {
        "held": {
            f"{ability}:{tokens}": max(
                (row["tokens_per_second"] for row in rows if (row["kind"] == f"{ability}:{tokens}") and row["held"]),
                default=0.0,
            )
            for ability, tokens in kinds
        },
        "rows": rows,
        "setting": {key: value for key, value in vars(options).items() if key not in ("out", "serve", "load")},
        "hardware": hardware(options.device),
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d"),
    }
    print(json.dumps({key: report[key] for key in ("held", "hardware", "versions", "date")}, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def measure_rate(
    options: argparse.Namespace, folder: Path, address: str, pid: int, ability: str, tokens: str, rate: float
) -> dict[str, Any]:
    """One rate, and whether the server held it."""
    before = cores(pid)
    began = time.perf_counter()
    found = load(options, folder, address, ability, tokens, rate, options.seconds)
    took = time.perf_counter() - began
    after = cores(pid)
    latencies = np.sort([each for one in found for each in one["latencies"]])
    statuses: Counter[str] = sum((Counter(one["statuses"]) for one in found), Counter())
    answered = sum(one["tokens"] for one in found) / max(one["seconds"] for one in found)
    p50, p99 = (float(np.quantile(latencies, q)) * 1000 if len(latencies) else float("inf") for q in (0.5, 0.99))
    all_answered = set(statuses) == {"200"}
    return {
        "kind": f"{ability}:{tokens}",
        "offered_tokens_per_second": rate,
        "tokens_per_second": answered,
        "p50_ms": p50,
        "p99_ms": p99,
        "statuses": dict(statuses),
        "held": all_answered and p99 <= options.limit_ms,
        "cores_of_the_model": (after[0] - before[0]) / took,
        "cores_of_the_others": (after[1] - before[1]) / took,
    }


def describe(row: dict[str, Any]) -> str:
    answers = ", ".join(f"{count} x {status}" for status, count in row["statuses"].items())
    return (
        f"{row['kind']:12} offered {row['offered_tokens_per_second']:9,.0f}  answered {row['tokens_per_second']:9,.0f} "
        f"tokens/s  p50 {row['p50_ms']:6.1f}  p99 {row['p99_ms']:6.1f} ms  cores {row['cores_of_the_model']:.1f} + "
        f"{row['cores_of_the_others']:.1f}  [{answers}]{'' if row['held'] else '  NOT HELD'}"
    )


# ---- The server -----------------------------------------------------------------------------------------------------


def write_models(folder: Path, preset_name: str) -> None:
    """An encoder and a classifier with random weights, and the default model's vocabulary."""
    import dataclasses

    import torch

    from litebert.model.config import preset
    from litebert.model.heads import MODELS
    from litebert.model.hub import save_model
    from litebert.remote import find_folder
    from litebert.tasks.task import Task, save_task
    from litebert.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(find_folder("default"))
    torch.manual_seed(0)
    task = Task("mood", "classification", labels=("bad", "good"), pair=False)
    for name, head, labels in (("embed", "encoder", ()), ("classify", "classification", task.labels)):
        config = dataclasses.replace(preset(preset_name), vocab_size=tokenizer.vocab_size, labels=labels)
        save_model(MODELS[head](config), folder / name)
        tokenizer.save(folder / name)
    save_task(task, folder / "classify")


def write_bodies(folder: Path, ability: str, tokens: int, request_tokens: int) -> None:
    """Requests of texts of one length, as bytes of HTTP, and how many tokens each has."""
    from score_speed import make_texts  # beside this script

    from litebert.remote import find_folder
    from litebert.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(find_folder("default"))
    count = max(1, round(request_tokens / tokens))
    texts = make_texts(tokenizer, BODIES * count, tokens)
    sizes = [len(ids) + 2 for ids in tokenizer.encode_batch(texts)]
    path = "/v1/embeddings" if ability == "embed" else "/classify"
    requests = []
    for begin in range(0, len(texts), count):
        own = texts[begin : begin + count]
        given = {"input": own, "encoding_format": "base64"} if ability == "embed" else {"text": own}
        body = json.dumps({"model": ability, **given}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        whole = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        requests.append({"bytes": whole.decode("latin-1"), "tokens": sum(sizes[begin : begin + count])})
    (folder / f"{ability}-{tokens}.json").write_text(json.dumps(requests))


@contextlib.contextmanager
def server(folder: Path, options: argparse.Namespace) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`litebert serve`, once every one of its processes is ready."""
    pairs = dict(setting.split("=", 1) for setting in options.settings)
    task = {
        "models": {name: str(folder / name) for name in ("embed", "classify")},
        "device": options.device,
        "zeros": options.zeros,
        "settings": {**{key: json.loads(value) for key, value in pairs.items()}, "processes": options.processes},
    }
    command = [sys.executable, __file__, "--serve", json.dumps(task)]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        deadline = time.monotonic() + 240
        ready = 0
        while ready < 2 * options.processes:  # connections go to them in turn
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server did not start:\n{(folder / 'log').read_text()[-4000:]}")
            try:
                with urllib.request.urlopen(f"{address}/ready", timeout=60):
                    ready += 1
            except (urllib.error.URLError, OSError):
                ready = 0
                time.sleep(0.2)
        yield process, address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(90)


def serve(task: dict[str, Any]) -> None:
    """What `litebert serve` does, without the packages of the command line."""
    from litebert.predict.predictor import Predictor
    from litebert.serve.config import ServeConfig
    from litebert.serve.server import serve as run

    if task["zeros"]:
        from litebert.predict import remote

        def zeros(runtime: Any, sequences: Any) -> dict[str, Any]:
            (name,) = sequences.wants[0]
            width = runtime.config.num_labels if name == "logits" else 768
            return {name: (None, [(width,)], np.zeros((len(sequences.lengths), width), np.float32))}

        remote.run_rows = zeros

    def load() -> dict[str, Any]:
        return {name: Predictor(path, device=task["device"]) for name, path in task["models"].items()}

    run(load, ServeConfig(port=0, **task["settings"]), lambda address: print(address, flush=True))


def cores(pid: int) -> tuple[float, float]:
    """Seconds of processor time so far: of the process with the models, and of the others of the server."""

    def seconds(number: int) -> float:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    children: list[str] = []
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return seconds(pid), sum(seconds(int(child)) for child in children)


# ---- The clients, in processes of their own -------------------------------------------------------------------------


def load(
    options: argparse.Namespace, folder: Path, address: str, ability: str, tokens: str, rate: float, seconds: float
) -> list[dict[str, Any]]:
    """Send requests from several processes, and return what came of them."""
    clients = []
    for number in range(options.clients):
        task = {
            "address": address,
            "bodies": str(folder / f"{ability}-{tokens}.json"),
            "tokens_per_second": rate / options.clients,
            "seconds": seconds,
            "connections": options.connections,
            "seed": number,
        }
        command = [sys.executable, __file__, "--load", json.dumps(task)]
        clients.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    return [json.loads(client.communicate()[0]) for client in clients]


async def make_load(
    address: str, bodies: str, tokens_per_second: float, seconds: float, connections: int, seed: int
) -> dict[str, Any]:
    """An open loop: requests are due by the clock, and one that finds no idle connection waits for the next."""
    host, port = address.removeprefix("http://").split(":")
    requests = [(each["bytes"].encode("latin-1"), each["tokens"]) for each in json.loads(Path(bodies).read_text())]
    draw = random.Random(seed)
    per_second = tokens_per_second / (sum(tokens for _, tokens in requests) / len(requests))
    statuses: Counter[str] = Counter()
    latencies: list[float] = []
    answered = 0
    due: deque[float] = deque()
    arrival = asyncio.Semaphore(0)

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        while True:
            await arrival.acquire()
            if not due:
                return
            moment = due.popleft()
            body, tokens = draw.choice(requests)
            try:
                writer.write(body)
                head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).lower()
                await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                statuses[type(error).__name__] += 1
                reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
                continue
            status = head.split()[1].decode()
            statuses[status] += 1
            if status == "200":
                latencies.append(time.perf_counter() - moment)
                answered += tokens

    opened = [await asyncio.open_connection(host, int(port), limit=1 << 22) for _ in range(connections)]
    workers = [asyncio.create_task(work(*each)) for each in opened]
    began = moment = time.perf_counter()
    while (moment := moment + draw.expovariate(per_second)) < began + seconds:
        await asyncio.sleep(max(moment - time.perf_counter(), 0))
        due.append(moment)
        arrival.release()
    for _ in workers:  # each ends when nothing is due
        arrival.release()
    await asyncio.gather(*workers)
    took = time.perf_counter() - began
    for _, writer in opened:
        writer.close()
    return {"latencies": latencies, "statuses": dict(statuses), "tokens": answered, "seconds": max(took, seconds)}


def hardware(device: str) -> dict[str, Any]:
    from litebert.machine import cpu_name

    found: dict[str, Any] = {"cpu": cpu_name(), "cores": os.cpu_count()}
    if device == "cuda":
        import torch

        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("torch", "fastapi", "uvicorn", "pydantic", "sentencepiece"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


if __name__ == "__main__":
    main()
