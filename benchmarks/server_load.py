"""How many requests can the server answer, beside a plain FastAPI + transformers server on the same model?

    python benchmarks/server_load.py --out result.json                       (albert-base, random weights)
    python benchmarks/server_load.py --preset albert-tiny --seconds 1 --rounds 1     (does the script work?)

A random classifier in the Hub's layout, with a vocabulary trained on generated text, opened by every server:
    plain           FastAPI + transformers, one request at a time: tokenise, one forward pass, softmax
    litebert        litebert serve, torch fp32
    litebert int8   litebert serve --runtime onnx on an export with int8 weights (left out without the extra [onnx])
All have the same number of threads and are started before the first round. A second process makes the load: --clients
connections, each sending its next request when the last is answered. Rounds are interleaved: in each one every server
gets --seconds of short requests and of long ones. A ratio is the median of the rounds' ratios.

Then the overload: litebert serve gets twice the requests per second that it could sustain, in an open loop (requests
are sent by the clock, whether or not others were answered). What it accepts it must answer; the rest must be 429 with
a Retry-After. Anything else counts as lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from litebert.machine import cpu_name

LENGTHS = {"short": 12, "long": 64}  # tokens, with [CLS] and [SEP]
TEXTS = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="albert-base")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0, help="per server, length and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="passed on to litebert serve")
    parser.add_argument("--out", type=Path, help="write JSON here")
    parser.add_argument("--plain", type=Path, help=argparse.SUPPRESS)  # be the plain server
    parser.add_argument("--load", help=argparse.SUPPRESS)  # be the client
    options = parser.parse_args()
    if options.plain:
        serve_plainly(options.plain, options.threads)
    elif options.load:
        print(json.dumps(asyncio.run(make_load(**json.loads(options.load)))))
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """Start all servers, load them in turns, and print what they did."""
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        texts = write_model(folder / "model", options.preset)
        (folder / "texts.json").write_text(json.dumps(texts))
        settings = [word for setting in options.settings for word in ("--set", setting)]
        ours = [sys.executable, "-m", "litebert", "serve", "--port", "0", "--threads", str(options.threads), *settings]
        commands = {
            "plain": [sys.executable, __file__, "--plain", str(folder / "model"), "--threads", str(options.threads)],
            "litebert": [*ours, f"load={folder / 'model'}"],
        }
        if all(importlib.util.find_spec(module) for module in ("onnx", "onnxruntime", "onnxscript")):
            export = [sys.executable, "-m", "litebert", "export", str(folder / "model"), "--int8"]
            subprocess.run([*export, "--out", str(folder / "exported")], check=True, stdout=subprocess.DEVNULL)
            commands["litebert int8"] = [*ours, f"load={folder / 'exported'}", "--runtime", "onnx"]
        addresses = {name: stack.enter_context(server(command)) for name, command in commands.items()}
        rows: dict[str, dict[str, list[dict[str, Any]]]] = {
            name: {length: [] for length in LENGTHS} for name in addresses
        }
        for number in range(options.rounds + 1):  # the first warms up
            for length in LENGTHS:
                for name, address in addresses.items():
                    seconds = options.seconds if number else min(2.0, options.seconds)
                    load = client(address, folder, length, seconds, clients=options.clients)
                    if number:
                        rows[name][length].append(load)
                        print(f"round {number} {length:5} {name:14} {describe(load)}", flush=True)
        rates = {name: statistics.median(load["per_second"] for load in rows[name]["short"]) for name in addresses}
        overload = {}
        for name in addresses:
            if name != "plain":
                seconds = max(options.seconds, 600 / rates[name])  # long enough to fill the queue
                overload[name] = client(addresses[name], folder, "short", seconds, per_second=2 * rates[name])
                print(f"overload      {name:14} {describe(overload[name])}", flush=True)
    report = {
        "ratios": {
            f"{name}, {length}": statistics.median(
                mine["per_second"] / plain["per_second"]
                for mine, plain in zip(rows[name][length], rows["plain"][length], strict=True)
            )
            for name in rows
            if name != "plain"
            for length in LENGTHS
        },
        "rounds": rows,
        "overload": overload,
        "setting": {key: value for key, value in vars(options).items() if key not in ("out", "plain", "load")},
        "hardware": {"cpu": cpu_name(), "cores": os.cpu_count()},
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d"),
    }
    print(json.dumps({key: report[key] for key in ("ratios", "hardware", "versions", "date")}, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    lost = {name: load["lost"] for name, load in overload.items() if load["lost"]}
    if lost:
        sys.exit(f"lost requests under overload: {lost}")


def describe(load: dict[str, Any]) -> str:
    answers = ", ".join(f"{count} x {status}" for status, count in load["statuses"].items())
    return (
        f"{load['per_second']:7.1f} answers/s  p50 {load['p50_ms']:7.1f} ms  p99 {load['p99_ms']:7.1f} ms  "
        f"[{answers}; lost {load['lost']}]"
    )


# ---- Servers --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def server(command: list[str]) -> Iterator[str]:
    """Run a server that prints `... at ADDRESS`, wait until it answers, and stop it at the end."""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " at http" not in line:
            sys.exit(f"{' '.join(command)}: did not start")
        yield line.split(" at ")[1].split()[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def serve_plainly(folder: Path, threads: int) -> None:
    """What a tutorial would write: one request, one forward pass."""
    import socket
    import threading

    import torch
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    app = FastAPI()
    one_at_a_time = threading.Lock()

    class Body(BaseModel):
        text: str

    def classify(body: Body) -> dict[str, Any]:
        with one_at_a_time, torch.inference_mode():
            inputs = tokenizer(body.text, return_tensors="pt", truncation=True)
            probabilities = model(**inputs).logits[0].softmax(-1).tolist()
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        return {"label": model.config.id2label[best], "probabilities": probabilities}

    classify.__annotations__["body"] = Body  # the class is local, its name alone says nothing to FastAPI
    app.post("/classify")(classify)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(2048)
        print(f"plain at http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listening])


def write_model(folder: Path, name: str) -> dict[str, list[str]]:
    """A random classifier with its tokenizer; returns texts of each length."""
    import torch

    from litebert.model.config import preset
    from litebert.model.heads import ClassificationModel
    from litebert.model.hub import save_model
    from litebert.text.generate import generate_documents
    from litebert.text.train_vocab import VocabConfig, train_vocab

    documents = list(generate_documents(2000, seed=1))
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "text.txt")
        path.write_text("\n".join(" ".join(document) for document in documents) + "\n", encoding="utf-8")
        tokenizer = train_vocab([path], VocabConfig(vocab_size=1000)).tokenizer
    torch.manual_seed(1)
    # The vocabulary's size does not matter to a classifier's speed; the file is as large as the released ones.
    config = preset(name, labels=("negative", "positive"))
    save_model(ClassificationModel(config), folder)
    tokenizer.save(folder)
    words = [word for document in documents for sentence in document for word in sentence.split()]
    draw = random.Random(1)
    texts: dict[str, list[str]] = {length: [] for length in LENGTHS}
    for length, tokens in LENGTHS.items():
        while len(texts[length]) < TEXTS:
            begin = draw.randrange(len(words) - tokens)
            chosen = words[begin : begin + tokens]
            while len(tokenizer.encode(" ".join(chosen))) > tokens - 2:
                chosen.pop()
            texts[length].append(" ".join(chosen))
    return texts


# ---- The client, in a process of its own ----------------------------------------------------------------------------


def client(address: str, folder: Path, length: str, seconds: float, **how: Any) -> dict[str, Any]:
    """Load one server from another process, and return what came of it."""
    task = {"address": address, "texts": str(folder / "texts.json"), "length": length, "seconds": seconds, **how}
    output = subprocess.run(
        [sys.executable, __file__, "--load", json.dumps(task)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return dict(json.loads(output))


async def make_load(
    address: str,
    texts: str,
    length: str,
    seconds: float,
    clients: int = 0,
    per_second: float = 0.0,
    path: str = "classify",
    **options: Any,
) -> dict[str, Any]:
    """A closed loop of some clients, or an open loop of some requests per second; `options` of each: depth="auto".

    A text may be a whole body: {"question": ..., "context": ...}.
    """
    host, port = address.removeprefix("http://").split(":")
    requests = []
    for text in json.loads(Path(texts).read_text())[length]:
        body = json.dumps({**(text if isinstance(text, dict) else {"text": text}), **options}).encode()
        head = f"POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        requests.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    draw = random.Random(length)
    statuses: Counter[str] = Counter()
    latencies: list[float] = []
    hints = 0
    pool: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask() -> None:
        nonlocal hints
        began = time.perf_counter()
        try:
            reader, writer = pool.pop() if pool else await asyncio.open_connection(host, int(port))
            writer.write(draw.choice(requests))
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).lower()
            size = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(size)
            pool.append((reader, writer))
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            statuses[type(error).__name__] += 1
            return
        status = head.split()[1].decode()
        statuses[status] += 1
        hints += status == "429" and b"retry-after: " in head
        if status == "200":
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    if clients:

        async def loop() -> None:
            while time.perf_counter() - began < seconds:
                await ask()

        await asyncio.gather(*(loop() for _ in range(clients)))
    else:
        tasks = []
        for number in range(int(per_second * seconds)):
            await asyncio.sleep(began + number / per_second - time.perf_counter())
            tasks.append(asyncio.create_task(ask()))
        await asyncio.gather(*tasks)
    took = time.perf_counter() - began
    for _, writer in pool:
        writer.close()
    latencies.sort()
    return {
        "per_second": statuses["200"] / took,
        "p50_ms": 1000 * latencies[len(latencies) // 2] if latencies else float("nan"),
        "p99_ms": 1000 * latencies[int(0.99 * (len(latencies) - 1))] if latencies else float("nan"),
        "statuses": dict(statuses),
        # Neither answered nor refused in the agreed way.
        "lost": sum(statuses.values()) - statuses["200"] - hints,
        "offered_per_second": per_second or None,
    }


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("litebert", "torch", "transformers", "fastapi", "uvicorn", "onnxruntime"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


if __name__ == "__main__":
    main()
