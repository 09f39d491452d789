"""Exported files answer as torch does: raw outputs, and every ability of the Predictor."""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from small_models import LABELS, predictor_of, runtime_of, small_model
from small_vocabularies import english

from litebert.errors import CheckpointError, ConfigError, InputError, MissingExtraError
from litebert.export.onnx_file import export_onnx
from litebert.export.torch_package import export_torch
from litebert.model.hub import save_model
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.predict.predictor import Predictor
from litebert.predict.runtime import HEAD_OUTPUTS, Request

_KEPT: list[tempfile.TemporaryDirectory] = []


def labels_of(head: str) -> dict:
    return {"labels": LABELS} if "classification" in head else {}


@functools.cache
def folder_of(head: str) -> Path:
    """An exported folder with both files and attention maps; made once for all tests."""
    _KEPT.append(tempfile.TemporaryDirectory())
    folder = Path(_KEPT[-1].name)
    save_model(small_model(head, **labels_of(head)), folder / "model")
    english().save(folder / "model")
    export_onnx(folder / "model", folder / "onnx", int8=True, attentions=True)
    return folder / "onnx"


def requests_for(want, lengths=(5, 11, 11, 30, 8, 5, 48)):
    rng = np.random.default_rng(0)
    requests = []
    for length in lengths:
        ids = rng.integers(5, english().vocab_size, length).astype(np.int32)
        segments = (np.arange(length) > length // 2).astype(np.int8)
        positions = np.arange(1, length, 4) if "masked_lm" in want and length != 11 else None
        names = frozenset(want) - ({"masked_lm"} if positions is None else set())
        outside = np.arange(length) < 2
        outside[0] = False
        requests.append(Request(ids, segments, names, positions, outside))
    return requests


@pytest.mark.parametrize("max_tokens", [1, 8192])
@pytest.mark.parametrize("head", HEAD_OUTPUTS)
def test_raw_outputs_are_those_of_torch(head, max_tokens):
    theirs = runtime_of(head, **labels_of(head))
    ours = OnnxRuntime(folder_of(head), threads=1, max_tokens=max_tokens, precision="fp32")
    assert ours.outputs == theirs.outputs
    assert (ours.head, ours.config) == (head, theirs.config)
    requests = requests_for(theirs.outputs)
    for expected, actual in zip(theirs.run(requests), ours.run(requests), strict=True):
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            assert actual[name].shape == value.shape
            if head == "answer" and ("start" in name or "end_" in name):
                # Five of the tokens always can be an answer; below them equals come in any order.
                value, actual[name] = value[..., :3], actual[name][..., :3]
                if name.startswith("end"):
                    value, actual[name] = value[:3], actual[name][:3]
            np.testing.assert_allclose(actual[name], value, atol=1e-4, err_msg=name)


def test_int8_is_taken_where_it_is_there_and_is_near():
    folder = folder_of("token-classification")
    ours, exact = OnnxRuntime(folder, threads=1), OnnxRuntime(folder, threads=1, precision="fp32")
    assert (ours.precision, exact.precision) == ("int8", "fp32")
    requests = requests_for({"logits"})
    for near, right in zip(ours.run(requests), exact.run(requests), strict=True):
        difference = np.abs(near["logits"] - right["logits"]).max()
        assert 0 < difference < 0.1 * np.abs(right["logits"]).max()


def test_nothing_to_predict_is_no_mistake():
    for precision in ("fp32", "int8"):
        runtime = OnnxRuntime(folder_of("masked-lm"), threads=1, precision=precision)
        (output,) = runtime.run(requests_for({"mean"}, lengths=[6]))
        assert output["mean"].shape == (24,)
        assert runtime.run([]) == []


ASKED = {
    "pretraining": [
        ("fill_mask", ["Anna [MASK] the old book.", "Ben [MASK]"]),
        ("sentence_order", ["Anna slept.", "Ben was happy."]),
        ("coherence", ["Anna slept. Ben read the old book. The rain fell."]),
        ("embed", ["Anna slept."]),
        ("attention", ["Anna slept."]),
    ],
    "classification": [("classify", ["Anna slept."])],
    "token-classification": [("tag", ["Anna walked to the café on Monday"])],
    "multiple-choice": [("choose", ["Anna slept.", "Who slept?", ["Anna", "Ben", "the rain"]])],
    "span": [("answer", ["Who slept?", "Anna slept. Ben read the old book."])],
    "answer": [("answer", ["Who slept?", "Anna slept. Ben read the old book."])],
}


@pytest.mark.parametrize("head", ASKED)
def test_the_predictor_answers_the_same_from_exported_files(head, tmp_path):
    theirs = predictor_of(head, **labels_of(head))
    shutil.copytree(folder_of(head), tmp_path / "fp32", ignore=shutil.ignore_patterns("*.int8.onnx"))
    ours = Predictor(tmp_path / "fp32", runtime="onnx", threads=1)
    assert isinstance(ours.runtime, OnnxRuntime)
    assert ours.abilities == theirs.abilities
    for ability, arguments in ASKED[head]:
        if ability == "fill_mask":
            arguments = [arguments]
        same(getattr(ours, ability)(*arguments), getattr(theirs, ability)(*arguments))


def same(actual, expected):
    """Equal but for the last digits of numbers, however deep."""
    if isinstance(expected, np.ndarray):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            same(a, b)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            same(actual[key], expected[key])
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=1e-4, nan_ok=True)
    elif hasattr(expected, "as_dict"):
        same(actual.as_dict(), expected.as_dict())
    else:
        assert actual == expected


# ---------------------------------------------------------------------------------------------------------------------
# Folders that are not what they seem


@pytest.fixture
def copy(tmp_path):
    return Path(shutil.copytree(folder_of("encoder"), tmp_path / "copy"))


def test_a_model_folder_is_not_an_export(tmp_path):
    save_model(small_model("encoder"), tmp_path)
    with pytest.raises(CheckpointError, match="litebert export"):
        OnnxRuntime(tmp_path)


def test_the_advice_to_export_names_the_model_as_it_was_named(tmp_path, monkeypatch):
    """Not the folder of the package or of the Hub's cache, beside which the export would be written."""
    monkeypatch.chdir(tmp_path)
    advice = r"`litebert export default --to onnx --out FOLDER`, and name that FOLDER"
    with pytest.raises(CheckpointError, match=rf"^default: no export.json here.*{advice}"):
        Predictor("default", runtime="onnx")


def test_a_model_that_was_exported_already_names_its_export(tmp_path):
    model = shutil.copytree(folder_of("encoder").parent / "model", tmp_path / "model")
    shutil.copytree(folder_of("encoder"), tmp_path / "model-onnx")
    with pytest.raises(CheckpointError, match=r"its export is .*model-onnx$"):
        Predictor(model, runtime="onnx")


def test_an_export_asked_for_torch_and_a_package_say_what_to_use(copy):
    with pytest.raises(CheckpointError, match="an export, without weights for torch; name the model folder"):
        Predictor(copy, runtime="torch")
    export_torch(folder_of("encoder").parent / "model", copy, overwrite=True)
    with pytest.raises(CheckpointError, match=r"found: model.pt2, for torch.export.load; litebert runs .*--to onnx"):
        Predictor(copy)


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"format": "another"}', '{"format": "litebert export", "version": 1}']
)
def test_a_foreign_manifest(copy, text):
    (copy / "export.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"export.json: damaged, or not written by litebert"):
        OnnxRuntime(copy)


def test_a_manifest_of_a_later_version_or_an_unknown_head(copy):
    data = json.loads((copy / "export.json").read_text())
    (copy / "export.json").write_text(json.dumps(data | {"version": 2}))
    with pytest.raises(CheckpointError, match="version 2"):
        OnnxRuntime(copy)
    (copy / "export.json").write_text(json.dumps(data | {"head": "tail"}))
    with pytest.raises(CheckpointError, match="no readable head"):
        OnnxRuntime(copy)


def test_one_flipped_byte_is_seen(copy):
    path = copy / "model.onnx"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    OnnxRuntime(copy, precision="int8", threads=1)  # the other file is whole
    with pytest.raises(CheckpointError, match=r"model.onnx: damaged"):
        OnnxRuntime(copy, precision="fp32")


def test_a_file_that_is_gone(copy):
    (copy / "model.int8.onnx").unlink()
    assert OnnxRuntime(copy, threads=1).precision == "fp32"
    with pytest.raises(CheckpointError, match=r"contains no model.int8.onnx; found: model.onnx"):
        OnnxRuntime(copy, precision="int8")


def test_a_file_that_is_no_onnx_although_its_checksum_fits(copy):
    from litebert.files import file_sha256

    (copy / "model.onnx").write_bytes(b"not a graph")
    data = json.loads((copy / "export.json").read_text())
    data["files"]["model.onnx"] = file_sha256(copy / "model.onnx")
    (copy / "export.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="cannot open it"):
        OnnxRuntime(copy, precision="fp32")


def test_mistakes_in_arguments():
    with pytest.raises(ConfigError, match="threads"):
        OnnxRuntime(folder_of("encoder"), threads=-1)
    with pytest.raises(ConfigError, match="precision"):
        OnnxRuntime(folder_of("encoder"), precision="int4")


def test_requests_that_the_model_cannot_take():
    runtime = OnnxRuntime(folder_of("encoder"), threads=1)
    vocabulary = english().vocab_size
    for ids, segments, want, message in (
        ([], [], "mean", "takes 1 to 48"),
        ([5] * 49, [0] * 49, "mean", "takes 1 to 48"),
        ([vocabulary], [0], "mean", f"takes 0 to {vocabulary - 1}"),
        ([5], [0], "logits", "an encoder model has no output logits"),
    ):
        request = Request(np.array(ids, np.int32), np.array(segments, np.int8), frozenset({want}))
        with pytest.raises(InputError, match=message):
            runtime.run([request])


def test_second_segment_of_a_model_that_knows_one(tmp_path):
    model = small_model("encoder", type_vocab_size=1)
    save_model(model, tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    ids = np.arange(5, 9, dtype=np.int32)
    pair, text = (Request(ids, np.array(kinds, np.int8), frozenset({"mean"})) for kinds in ([0, 0, 1, 1], [0] * 4))
    of_pair, of_text = OnnxRuntime(tmp_path / "onnx", threads=1).run([pair, text])
    np.testing.assert_array_equal(of_pair["mean"], of_text["mean"])


def test_attention_maps_need_an_export_that_has_them(tmp_path):
    save_model(small_model("encoder"), tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    runtime = OnnxRuntime(tmp_path / "onnx", threads=1)
    with pytest.raises(InputError, match="export the model again with attentions"):
        runtime.run(requests_for({"attentions"}, lengths=[4]))


def test_a_missing_extra_is_named(monkeypatch):
    folder = folder_of("encoder")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnxruntime" else find(name, *rest)
    )
    with pytest.raises(MissingExtraError, match=r'pip install "litebert\[onnx\]"'):
        OnnxRuntime(folder)


def test_auto_is_torch_where_there_are_weights_and_the_export_where_there_are_none(tmp_path, copy):
    model = shutil.copytree(folder_of("encoder").parent / "model", tmp_path / "model")
    shutil.copytree(folder_of("encoder"), tmp_path / "model-onnx")  # an export beside the weights changes nothing
    assert Predictor(model, device="cpu", threads=1).runtime.name.startswith("torch fp32")
    assert Predictor(copy, threads=1).runtime.name.startswith("onnx fp32")
