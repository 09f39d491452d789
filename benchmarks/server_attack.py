"""What others notice while some clients misuse the server.

    python benchmarks/server_attack.py --out result.json                     (the package's own model)
    python benchmarks/server_attack.py --preset albert-tiny --idle 60 --clients 8 --bytes 20000 --within 60   (anywhere)

A real server in a process of its own, and three attacks, one after the other:
    idle    --idle connections that send nothing or half a header. Asked meanwhile, on connections of their own: /health
            once, at once; /models until it answers.
    large   --large requests of --bytes each, all that one request may hold. When they are in the model, short requests
            are sent one after the other: none may take longer than --within seconds. Every large one must be answered.
            `timeout_s` is raised, so that all of them are accepted.
    drain   --clients clients on keep-alive connections. After SIGTERM each sends its next request: none may be lost.

Exits with 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from server_load import versions, write_model

from litebert.machine import cpu_name

SHORT = "The bread was still warm when she left the house on Monday."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--preset", help="a random model of this size instead of --model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--idle", type=int, default=1030)
    parser.add_argument("--large", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=80_000)
    parser.add_argument("--within", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--out", type=Path, help="write JSON here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.preset:
            write_model(Path(folder, "model"), options.preset)
            options.model = str(Path(folder, "model"))
        with server(options) as (process, address):
            report: dict[str, Any] = {
                "idle": idle(options, address),
                "large": large(options, address),
                "drain": drain(options, address, process),
            }
        report |= {
            "setting": {key: value for key, value in vars(options).items() if key != "out"},
            "hardware": {"cpu": cpu_name(), "cores": os.cpu_count(), "load": os.getloadavg()},
            "versions": versions(),
            "date": time.strftime("%Y-%m-%d"),
        }
    report["setting"]["model"] = options.preset or options.model
    print(json.dumps(report, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    failed = [name for name in ("idle", "large", "drain") if not report[name]["holds"]]
    if failed:
        sys.exit(f"does not hold: {', '.join(failed)}")


def idle(options: argparse.Namespace, address: str) -> dict[str, Any]:
    """Connections that keep the server waiting."""
    with contextlib.ExitStack() as stack:
        host, port = address.removeprefix("http://").split(":")
        for number in range(options.idle):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            if number % 2:
                with contextlib.suppress(OSError):  # refused already
                    connection.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        began = time.perf_counter()
        health = ask(address, "/health")
        health_ms = 1000 * (time.perf_counter() - began)
        statuses = []
        while 200 not in statuses and time.perf_counter() - began < 60:
            statuses.append(ask(address, "/models"))
        served_s = time.perf_counter() - began
    print(f"idle   {options.idle} connections: /health {health} in {health_ms:.0f} ms, others after {served_s:.2f} s")
    return {
        "health": health,
        "health_ms": health_ms,
        "served_after_s": served_s,
        "refused_before": len(statuses) - 1,
        "holds": health == 200 and statuses[-1] == 200,
    }


def large(options: argparse.Namespace, address: str) -> dict[str, Any]:
    """Short requests behind large ones."""
    with (
        httpx.Client(base_url=address, timeout=3600) as client,
        ThreadPoolExecutor(options.large) as pool,
    ):
        text = large_text(options)

        def short() -> float:
            began = time.perf_counter()
            client.post("/embed", json={"text": SHORT}).raise_for_status()
            return time.perf_counter() - began

        alone = statistics.median(short() for _ in range(9))

        def send(number: int) -> tuple[int, float]:
            began = time.perf_counter()
            answer = httpx.post(f"{address}/embed", json={"text": text}, timeout=3600)
            return answer.status_code, time.perf_counter() - began

        answers = [pool.submit(send, number) for number in range(options.large)]
        while figure(client, "litebert_queue_tokens{") == 0 and not all(answer.done() for answer in answers):
            time.sleep(0.001)
        behind = []
        while not all(answer.done() for answer in answers):
            behind.append(short())
        if not behind:
            sys.exit("the large requests ended before a short one began; use more --bytes")
        finished = [answer.result() for answer in answers]
        slowest_pass = longest_pass(client)
    behind = behind[:-1] or behind  # the last may have had the model for itself
    print(
        f"large  a request of {1000 * alone:.0f} ms, {len(behind)} times behind {options.large} of "
        f"{max(seconds for _, seconds in finished) / options.large:.1f} s: median {statistics.median(behind):.3f} s, "
        f"longest {max(behind):.3f} s"
    )
    return {
        "text_bytes": len(text.encode()),
        "alone_s": alone,
        "behind": len(behind),
        "behind_median_s": statistics.median(behind),
        "behind_longest_s": max(behind),
        "large": [{"status": status, "seconds": seconds} for status, seconds in finished],
        "pass_below_s": slowest_pass,
        "holds": max(behind) <= options.within and all(status == 200 for status, _ in finished),
    }


def large_text(options: argparse.Namespace) -> str:
    """As much text as one request may hold, and at most --bytes."""
    from litebert.remote import resolve_default
    from litebert.text.generate import generate_documents
    from litebert.text.tokenizer import Tokenizer

    text = " ".join(sentence for document in generate_documents(3000, seed=3) for sentence in document)
    text = text.encode()[: options.bytes].decode(errors="ignore")
    tokenizer = Tokenizer.load(resolve_default(options.model))
    while len(tokenizer.encode(text)) > 16_000:
        text = text[: int(len(text) * 0.98)]
    return text


def drain(options: argparse.Namespace, address: str, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Keep-alive clients while the server is told to stop."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client(base_url=address, timeout=60)) for _ in range(options.clients)]
        told = threading.Event()

        def talk(client: httpx.Client) -> str:
            """Requests one after the other, until an answer says that the connection ends."""
            while True:
                late = told.is_set()
                try:
                    answer = client.post("/embed", json={"text": SHORT})
                except httpx.TransportError as error:
                    return type(error).__name__
                if answer.status_code != 200:
                    return str(answer.status_code)
                if answer.headers.get("connection") == "close":
                    return "told after SIGTERM" if late else "told"

        with ThreadPoolExecutor(options.clients) as pool:
            ends = [pool.submit(talk, client) for client in clients]
            time.sleep(1.0)
            process.send_signal(signal.SIGTERM)
            told.set()
            found = [end.result() for end in ends]
        code = process.wait(90)
    lost = [end for end in found if not end.startswith("told")]
    print(f"drain  {options.clients} keep-alive clients: {len(lost)} lost a request, exit code {code}")
    return {"clients": len(found), "lost": lost, "exit_code": code, "holds": not lost and code == 0}


@contextlib.contextmanager
def server(options: argparse.Namespace) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`litebert serve`, ready, with fewer places than there will be idle connections."""
    command = [
        sys.executable,
        "-m",
        "litebert",
        "serve",
        options.model,
        "--port",
        "0",
        "--threads",
        str(options.threads),
    ]
    for setting in ("timeout_s=3600", f"connections={min(options.idle - 6, 1024)}"):
        command += ["--set", setting]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " at http" not in line:
            sys.exit(f"{' '.join(command)}: did not start")
        address = line.split(" at ")[1].split()[0]
        while httpx.get(f"{address}/ready", timeout=600).status_code != 200:
            time.sleep(0.05)
        yield process, address
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate()


def ask(address: str, path: str) -> int:
    """The status of an answer on a connection of its own; 0 where there is none."""
    try:
        return httpx.get(f"{address}{path}", timeout=60).status_code
    except httpx.TransportError:
        return 0


def figure(client: httpx.Client, name: str) -> float:
    """One figure of /metrics."""
    lines = client.get("/metrics").text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


def longest_pass(client: httpx.Client) -> float:
    """The bound, of those of the histogram, that no pass was above."""
    lines = [
        line for line in client.get("/metrics").text.splitlines() if line.startswith("litebert_batch_seconds_bucket")
    ]
    counts = [(float(line.split('le="')[1].split('"')[0]), float(line.split()[-1])) for line in lines]
    return next(bound for bound, count in counts if count == counts[-1][1])


if __name__ == "__main__":
    main()
