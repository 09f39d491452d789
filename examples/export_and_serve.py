"""Export a model to ONNX in 8 bits, serve it beside the original, ask both over HTTP, and stop the server.

    python examples/export_and_serve.py                   after examples/pretrain_on_text.py
    python examples/export_and_serve.py --model FOLDER

Needs pip install "litebert[serve,onnx]". On the command line: litebert export MODEL --to onnx --int8 --out FOLDER, then
litebert serve MODEL small=FOLDER, and a browser at http://127.0.0.1:8000
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

from litebert import export_onnx

TEXT = "The baker kneaded the [MASK] for ten minutes."


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="runs/example/model")
    parser.add_argument("--out", type=Path, default=Path("runs/example-onnx"))
    options = parser.parse_args(arguments)

    shutil.rmtree(options.out, ignore_errors=True)
    export_onnx(options.model, options.out, int8=True)  # keeps nothing that differs from torch
    weights = Path(options.model) / "model.safetensors"
    for path in (weights, options.out / "model.onnx", options.out / "model.int8.onnx"):
        print(f"{path.name:18s} {path.stat().st_size / 1e3:8,.0f} kB")

    models = [f"full={options.model}", f"small={options.out}"]
    command = [sys.executable, "-m", "litebert", "serve", *models, "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            # The first line says where: "full, small at http://127.0.0.1:40123   (Ctrl-C stops it)"
            address = server.stdout.readline().split(" at ")[1].split()[0]
            print(f"serving {', '.join(model['name'] for model in ask(address, '/models')['models'])}")
            for model in ("full", "small"):
                [answer] = ask(address, "/fill-mask", model=model, text=TEXT, top=3)["results"]
                guesses = answer["masks"][0]["candidates"]
                print(f"{model:6s} {TEXT}  " + "  ".join(f"{g['word']} {g['probability']:.0%}" for g in guesses))
        finally:
            server.terminate()  # it finishes what it has accepted, then exits with 0
    print(f"server stopped with exit code {server.returncode}")


def ask(address: str, path: str, **body: object) -> dict:
    """One request: a POST of JSON where there is something to say, else a GET."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


if __name__ == "__main__":
    main()
