"""A model folder -> a `torch.export` package, `model.pt2`: a graph that torch loads without any code of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.errors import CheckpointError
from litebert.export.check import INPUTS, OWN_INPUT, Check, NamedModel
from litebert.export.folder import (
    TOLERANCE,
    ExportedFile,
    ExportReport,
    copy_companions,
    is_foreign,
    merging_adapters,
    open_source,
    versions,
)
from litebert.export.model_graph import BEAM
from litebert.files import file_sha256, staged_folder
from litebert.model.convert import Difference
from litebert.model.heads import Model
from litebert.predict.load import TORCH_FILE, Manifest


@merging_adapters
def export_torch(source: Path | str, target: Path | str, *, overwrite: bool = False) -> ExportReport:
    """Write `model.pt2`: call `torch.export.load(path).module()` with int64 tensors of any batch and length."""
    target = Path(target)
    folder, model = open_source(source, target, overwrite)
    named = NamedModel(model).eval().requires_grad_(False)
    inputs = _example(model, batch=3, length=min(16, model.config.max_position_embeddings))
    with torch.no_grad():
        program = torch.export.export(named, tuple(inputs), dynamic_shapes=_dynamic(model), strict=False)
    names = (*INPUTS, *([OWN_INPUT[model.head]] if model.head in OWN_INPUT else []))
    with staged_folder(target, keep=is_foreign) as staging:
        copy_companions(folder, staging)
        torch.export.save(program, staging / TORCH_FILE)
        check = _check(named, staging / TORCH_FILE)
        if not check.within(TOLERANCE):
            raise CheckpointError(f"{folder}: the package differs from the model; nothing was written: {check.worst}")
        with torch.no_grad():
            outputs = tuple(named(*inputs))
        file = ExportedFile(
            name=TORCH_FILE,
            bytes=(staging / TORCH_FILE).stat().st_size,
            parameters=sum(tensor.numel() for tensor in program.state_dict.values()),
            int8_arrays=0,
            int8_parameters=0,
            check=check,
        )
        Manifest(
            head=model.head,
            inputs=names,
            outputs=outputs,
            files={TORCH_FILE: file_sha256(staging / TORCH_FILE)},
            versions=versions(),
            checks={TORCH_FILE: file.as_dict()},
        ).write(staging)
    return ExportReport(str(target), model.head, model.num_parameters, [file])


def _example(model: Model, batch: int, length: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(batch * 1000 + length)
    shape = (batch, length)
    ids = torch.randint(0, model.config.vocab_size, shape, generator=generator)
    mask = torch.ones(shape, dtype=torch.long)
    mask[0, (length + 1) // 2 :] = 0
    segments = torch.randint(0, min(2, model.config.type_vocab_size), shape, generator=generator)
    own = OWN_INPUT.get(model.head)
    if own is None:
        return [ids, mask, segments]
    if own == "positions":
        return [ids, mask, segments, torch.arange(0, batch * length, 3)]
    return [ids, mask, segments, 1 - mask]


def _dynamic(model: Model) -> tuple[Any, ...]:
    longest = model.config.max_position_embeddings
    sequence = torch.export.Dim("sequence", min=_shortest(model), max=longest)
    shape = {0: torch.export.Dim("batch"), 1: sequence}
    own = OWN_INPUT.get(model.head)
    extra = {None: None, "positions": {0: torch.export.Dim("predictions")}, "outside": shape}[own]
    return (shape, shape, shape, extra) if extra else (shape, shape, shape)


def _shortest(model: Model) -> int:
    # torch.export cannot see that min(5, length) is at most length; no question is that short.
    return BEAM if model.head == "answer" else 1


def _check(named: NamedModel, path: Path) -> Check:
    """The package as loaded from its file, at several shapes."""
    loaded = torch.export.load(path).module()
    longest = named.model.config.max_position_embeddings
    worst: dict[str, Difference] = {}
    shapes = [(1, _shortest(named.model)), (1, 8), (2, min(33, longest)), (5, min(7, longest)), (1, min(512, longest))]
    for batch, length in shapes:
        inputs = _example(named.model, batch, length)
        with torch.no_grad():
            expected, actual = named(*inputs), loaded(*inputs)
        for name, value in expected.items():
            row = Difference(name, float((value - actual[name]).abs().max()), float(value.abs().max()))
            worst[name] = max(worst.get(name, row), row, key=lambda each: each.difference)
    return Check(len(shapes), list(worst.values()), None)
