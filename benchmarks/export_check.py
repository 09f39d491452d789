"""How large are exported files, how long does an export take, and how far are they from torch?

    python benchmarks/export_check.py [--presets albert-base albert-large] [--head pretraining]
    python benchmarks/export_check.py --model FOLDER [--data FILE_OR_FOLDER] [--to web]

Random models of the presets, or one model folder; with --data the scores of torch and of each file on data of the
model's task stand beside each other (one text per line for a model without a task). `--to web` measures the files for
the browser, with 4 bits too.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import onnxruntime
import torch

import litebert
from litebert.export.onnx_file import export_onnx
from litebert.export.web import export_web
from litebert.model.config import preset
from litebert.model.heads import MODELS
from litebert.model.hub import save_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["albert-base"])
    parser.add_argument("--head", default="pretraining", choices=MODELS)
    parser.add_argument("--model")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--to", choices=["onnx", "web"], default="onnx")
    options = parser.parse_args()
    print(
        f"litebert {litebert.__version__}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, "
        f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    with tempfile.TemporaryDirectory() as folder:
        if options.model is not None:
            show(options.model, export(options.model, Path(folder, "onnx"), options.data, options.to))
            return
        for name in options.presets:
            torch.manual_seed(0)
            save_model(MODELS[options.head](preset(name)), Path(folder, "model"))
            show(name, export(Path(folder, "model"), Path(folder, "onnx"), None))


def export(source: Path | str, target: Path, data: Path | None, to: str = "onnx") -> dict[str, Any]:
    begin = time.perf_counter()
    if to == "web":
        report = export_web(source, target, check_data=data, overwrite=True)
    else:
        report = export_onnx(source, target, int8=True, check_data=data, overwrite=True)
    return {**report.as_dict(), "seconds": time.perf_counter() - begin}


def show(name: str, report: dict[str, Any]) -> None:
    parameters = report["model_parameters"]
    print(f"\n{name}, {report['head']}: {parameters:,} parameters, exported and checked in {report['seconds']:.1f} s")
    for file in report["files"]:
        print(f"  {file['name']:16} {file['bytes']:>13,} bytes = {file['bytes'] / parameters:.3f} per parameter")
        print(f"  {'':16} {file['int8_parameters']:>13,} numbers are int8, in {file['int8_arrays']} matrices")
        for bits, numbers in file["packed"].items():
            print(f"  {'':16} {numbers:>13,} numbers are {bits}")
        for kind in ("check", "data_check"):
            if file[kind] is not None:
                print(f"    {kind}: {json.dumps(shorten(file[kind]))}")


def shorten(check: dict[str, Any]) -> dict[str, Any]:
    differences = {row["output"]: f"{row['difference']:.1e} of {row['magnitude']:.1f}" for row in check["differences"]}
    return {**check, "differences": differences}


if __name__ == "__main__":
    main()
