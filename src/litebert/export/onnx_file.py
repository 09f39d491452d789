"""A model folder -> a folder with `model.onnx` and, on request, `model.int8.onnx`, checked against torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from litebert.errors import CheckpointError
from litebert.export.check import Check, Reference, compare, random_requests, read_check_data
from litebert.export.folder import (
    TOLERANCE,
    ExportedFile,
    ExportReport,
    copy_companions,
    find_tokenizer,
    is_foreign,
    merging_adapters,
    open_source,
    versions,
)
from litebert.export.model_graph import build_onnx, build_stages, layers_apart
from litebert.export.quantize import likely_requests, measure
from litebert.extras import require
from litebert.files import file_sha256, staged_folder
from litebert.predict.load import ONNX_FILES, Manifest, source_checksums, stage_file
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.predict.runtime import Outputs, Request

# protobuf reads no file above 2 GiB; larger weights are stored next to the graph.
MOST_BYTES = 2**31 - 2**20


@merging_adapters
def export_onnx(
    source: Path | str,
    target: Path | str,
    *,
    int8: bool = False,
    attentions: bool = False,
    check_data: Path | None = None,
    overwrite: bool = False,
) -> ExportReport:
    """Write the ONNX files of a model folder; nothing is written unless fp32 equals torch within 1e-4."""
    require("onnxruntime", "ONNX export")
    require("onnx", "ONNX export")
    target = Path(target)
    folder, model = open_source(source, target, overwrite)
    reference = Reference(model)
    want = reference.outputs if attentions else reference.outputs - {"attentions"}
    tokenizer = find_tokenizer(folder)
    requests = random_requests(model.config, want, tokenizer=tokenizer)
    expected = reference.run(requests)
    data = None if check_data is None else read_check_data(check_data, folder)
    files: list[ExportedFile] = []
    with staged_folder(target, keep=is_foreign) as staging:
        copy_companions(folder, staging)
        statistics = None
        protos: dict[Literal["fp32", "int8"], Any] = {"fp32": build_onnx(model, attentions=attentions)}
        if int8:
            statistics = measure(reference, likely_requests(model.config, tokenizer, reference.outputs))
            protos["int8"] = build_onnx(model, "int8", statistics, attentions=attentions)
        for precision, proto in protos.items():
            save_onnx(proto, staging / ONNX_FILES[precision])
            if layers_apart(model) is not None:
                parts = build_stages(model, precision, statistics if precision == "int8" else None)
                for stage, part in parts.items():
                    save_onnx(part, staging / stage_file(stage, precision))
        graph = protos["fp32"].graph
        manifest = Manifest(
            head=model.head,
            inputs=tuple(entry.name for entry in graph.input),
            outputs=tuple(entry.name for entry in graph.output),
            files={path.name: file_sha256(path) for path in sorted(staging.glob("model*.onnx*"))},
            versions=versions("onnx", "onnxruntime"),
            source=source_checksums(folder),
        )
        manifest.write(staging)
        for precision, proto in protos.items():
            exported = OnnxRuntime(staging, precision=precision)
            check, _ = compare(expected, exported, requests)
            if precision == "fp32":
                refuse_others(folder, check)
                for depth in exported.depths:
                    here = [replace(each, want=exported.outputs & reference.outputs, depth=depth) for each in requests]
                    refuse_others(folder, compare(reference_at(reference, here, depth), exported, here)[0], depth)
            data_check = None if data is None else data.check(exported)
            files.append(describe_file(proto, staging, ONNX_FILES[precision], check, data_check))
        checks = {file.name: file.as_dict() for file in files}
        Manifest(**{**manifest.__dict__, "checks": checks}).write(staging)
    return ExportReport(str(target), model.head, model.num_parameters, files)


def refuse_others(folder: Path, check: Check, depth: int | None = None) -> None:
    """Refuse a file that differs from the torch model."""
    if not check.within(TOLERANCE):
        worst, where = check.worst, "" if depth is None else f" at depth {depth}"
        raise CheckpointError(
            f"{folder}: the exported {worst.output}{where} differs from torch by {worst.difference:.1e} at a "
            f"magnitude of {worst.magnitude:.1e}, more than {TOLERANCE:g}; nothing was written"
        )


def reference_at(reference: Reference, requests: Sequence[Request], depth: int) -> list[Outputs]:
    """The torch model's outputs at a depth."""
    reference.model.set_depth(depth)
    try:
        return reference.run(requests)
    finally:
        reference.model.set_depth(None)


def save_onnx(proto: Any, path: Path) -> None:
    """Write a model, with large weights in a separate file, and check that it is valid."""
    onnx = require("onnx", "ONNX export")
    if proto.ByteSize() > MOST_BYTES:
        onnx.save_model(proto, path, save_as_external_data=True, location=f"{path.name}.data")
    else:
        onnx.save_model(proto, path)
    onnx.checker.check_model(str(path), full_check=True)


def describe_file(proto: Any, folder: Path, name: str, check: Check, data_check: Check | None = None) -> ExportedFile:
    """A file's entry in the report."""
    kinds = require("onnx", "ONNX export").TensorProto
    arrays = {tensor.name: (tensor.data_type, int(np.prod(tensor.dims))) for tensor in proto.graph.initializer}
    int8 = [size for kind, size in arrays.values() if kind == kinds.INT8]
    halves = {bits: sum(n for name, (_, n) in arrays.items() if name.endswith(bits)) for bits in ("int4", "int6")}
    highs = sum(n for name, (_, n) in arrays.items() if name.endswith(".high"))  # the other 2 of 6 bits
    return ExportedFile(
        name=name,
        bytes=sum(path.stat().st_size for path in folder.glob(f"{name}*")),
        parameters=sum(size for _, size in arrays.values()) + sum(halves.values()) - highs,
        int8_arrays=len(int8),
        int8_parameters=sum(int8),
        check=check,
        data_check=data_check,
        packed={bits: 2 * size for bits, size in halves.items() if size},
    )
