from __future__ import annotations

import collections
import functools
import importlib.util
import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from small_models import LABELS, small_model
from small_vocabularies import english

import litebert.export.onnx_file as onnx_file
from litebert.errors import CheckpointError, DataError, MissingExtraError
from litebert.export.graph import Graph
from litebert.export.onnx_file import export_onnx
from litebert.export.quantize import quantize
from litebert.model.heads import MODELS
from litebert.model.hub import save_model
from litebert.predict.load import Manifest, read_manifest
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.predict.predictor import Predictor
from litebert.tasks.task import Task, save_task

BERT = dict(model_type="bert", sharing="none", embedding_size=24, hidden_act="gelu")
SHARING = {
    "all": dict(num_hidden_layers=6),
    "none": dict(sharing="none", num_hidden_layers=3),
    "groups": dict(num_hidden_layers=4, num_hidden_groups=2),
    "inner": dict(num_hidden_layers=2, inner_group_num=2),
    "attention": dict(sharing="attention", num_hidden_layers=3),
    "ffn": dict(sharing="ffn", num_hidden_layers=3),
    "bert": BERT,
    "relu, no projection": dict(hidden_act="relu", embedding_size=24),
}
_KEPT: list[tempfile.TemporaryDirectory] = []


@functools.cache
def exported(head: str, sharing: str = "all", attentions: bool = False):
    """A model and the folder of its export, both files; made once for all tests."""
    model = small_model(head, **SHARING[sharing])
    _KEPT.append(tempfile.TemporaryDirectory())
    folder = Path(_KEPT[-1].name)
    save_model(model, folder / "model")
    return model, folder / "onnx", export_onnx(folder / "model", folder / "onnx", int8=True, attentions=attentions)


def session(folder: Path, name: str = "model.onnx", **options):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = 1, 3
    for key, value in options.items():
        setattr(settings, key, value)
    return onnxruntime.InferenceSession(str(folder / name), settings, providers=["CPUExecutionProvider"])


def padded_batch(model, batch: int, length: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(batch + length)
    ids = torch.randint(0, model.config.vocab_size, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, batch):
        mask[row, max(1, length - 2 * row) :] = 0
    return {"input_ids": ids, "attention_mask": mask, "segment_ids": torch.arange(length).expand_as(ids) % 2}


def run_both(model, folder, inputs, name="model.onnx", **only_ours):
    feeds = {key: value.numpy() for key, value in inputs.items()}
    opened = session(folder, name)
    actual = dict(zip([entry.name for entry in opened.get_outputs()], opened.run(None, feeds), strict=True))
    with torch.inference_mode():
        return model(**inputs, **only_ours), model.encoder(**{k: inputs[k] for k in INPUTS}), actual


INPUTS = ("input_ids", "attention_mask", "segment_ids")
SHAPES = [(1, 1), (1, 6), (3, 9), (2, 48)]


def close(actual, expected):
    np.testing.assert_allclose(actual, expected.numpy(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("head", sorted(set(MODELS) - {"answer"}))
def test_every_head_gives_the_same_numbers_at_any_shape(head, shape):
    model, folder, _ = exported(head)
    inputs, choices = padded_batch(model, *shape), {}
    if head in ("pretraining", "masked-lm"):
        inputs["positions"] = torch.arange(0, shape[0] * shape[1], 2)
    if head == "multiple-choice":
        choices["num_choices"] = 1
    output, encoded, actual = run_both(model, folder, inputs, **choices)
    real = inputs["attention_mask"].bool()
    close(actual["hidden"][real.numpy()], encoded.hidden[real])
    if encoded.pooled is not None:
        close(actual["pooled"], encoded.pooled)
    if head in ("pretraining", "masked-lm", "sentence-order"):
        for name in ("masked_lm", "sentence"):
            expected = getattr(output, name)
            assert (expected is not None) == (name in actual)
            if expected is not None:
                close(actual[name], expected)
    elif head == "span":
        close(actual["start"], output[0])
        close(actual["end"], output[1])
    elif head == "multiple-choice":
        close(actual["logits"], output[:, 0])
    elif head != "encoder":
        close(actual["logits"], output)


@pytest.mark.parametrize("shape", [(1, 3), (1, 6), (3, 9), (2, 48)], ids=str)
def test_the_beam_search_is_part_of_the_answer_graph(shape):
    model, folder, _ = exported("answer")
    inputs = padded_batch(model, *shape)
    inputs["outside"] = 1 - inputs["attention_mask"]
    inputs["outside"][:, 1:2] = 1
    output, _, actual = run_both(model, folder, inputs)
    beam = min(5, shape[1])
    assert actual["end_index"].shape == (shape[0], beam, beam)
    close(actual["answerable"], output.no_answer)
    possible = output.start_log_prob > -1e29  # equals among the impossible come in any order
    close(actual["start_log_prob"][possible.numpy()], output.start_log_prob[possible])
    assert (actual["start_index"] == output.start_index.numpy())[possible.numpy()].all()
    ends = possible.unsqueeze(1) & (output.end > -1e29)
    close(actual["end_log_prob"][ends.numpy()], output.end[ends])
    assert (actual["end_index"] == output.end_index.numpy())[ends.numpy()].all()


@pytest.mark.parametrize("sharing", [name for name in SHARING if name != "all"])
def test_every_way_of_sharing(sharing):
    model, folder, report = exported("pretraining", sharing)
    inputs = padded_batch(model, 3, 11) | {"positions": torch.tensor([0, 5, 20])}
    output, _, actual = run_both(model, folder, inputs)
    close(actual["masked_lm"], output.masked_lm)
    close(actual["sentence"], output.sentence)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert report.model_parameters == count
    assert count <= report.files[0].parameters < count + 50  # beside the weights: a few axes and constants


def test_transformers_agrees_with_the_file(tmp_path):
    torch.manual_seed(0)
    shape = dict(vocab_size=50, hidden_size=24, num_attention_heads=3, intermediate_size=40, num_hidden_layers=3)
    config = transformers.AlbertConfig(**shape, embedding_size=8, max_position_embeddings=20, num_labels=3)
    theirs = transformers.AlbertForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    export_onnx(tmp_path / "theirs", tmp_path / "onnx")
    ids = torch.randint(0, 50, (2, 20))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    with torch.inference_mode():
        expected = theirs(ids, attention_mask=mask, token_type_ids=ids % 2).logits
    feeds = {"input_ids": ids, "attention_mask": mask, "segment_ids": ids % 2}
    (logits,) = session(tmp_path / "onnx").run(["logits"], {k: v.numpy() for k, v in feeds.items()})
    assert logits.shape == (2, 3)
    close(logits, expected)


def test_attention_maps_where_asked_for():
    model, folder, _ = exported("encoder", "groups", attentions=True)
    inputs = padded_batch(model, 2, 7)
    _, _, actual = run_both(model, folder, inputs)
    with torch.inference_mode():
        maps = model(**inputs, output_attentions=True).attentions
    close(actual["attentions"], torch.stack(maps, dim=1))
    assert "attentions" not in read_manifest(exported("encoder")[1]).outputs


# ---------------------------------------------------------------------------------------------------------------------
# Size: the shared layer once, in the file and in what ONNX Runtime makes of it


@pytest.mark.parametrize(("precision", "most"), [("fp32", 4.0), ("int8", 1.0)])
def test_a_file_is_as_large_as_the_parameters(tmp_path, precision, most):
    model = small_model(
        "pretraining",
        num_hidden_layers=12,
        hidden_size=96,
        num_attention_heads=4,
        intermediate_size=384,
        vocab_size=3000,
    )
    save_model(model, tmp_path / "model")
    report = export_onnx(tmp_path / "model", tmp_path / "onnx", int8=True)
    name = {"fp32": "model.onnx", "int8": "model.int8.onnx"}[precision]
    (file,) = (file for file in report.files if file.name == name)
    assert file.bytes == (tmp_path / "onnx" / name).stat().st_size
    graph_bytes = 120_000  # the nodes of twelve applications
    small = sum(p.numel() for p in model.parameters() if p.ndim < 2) + 3000 + model.config.max_position_embeddings * 12
    limit = most * report.model_parameters + graph_bytes + (0 if precision == "fp32" else 4 * small)
    assert file.bytes < limit
    optimized = str(tmp_path / "optimized.onnx")
    session(tmp_path / "onnx", name, optimized_model_filepath=optimized)
    turned = 0 if precision == "fp32" else 3000 * 12  # the word table, a second time for predicting words
    assert Path(optimized).stat().st_size < limit + turned


def test_int8_weights_are_int8_and_stored_once():
    _, folder, report = exported("pretraining")
    proto = onnx.load(folder / "model.int8.onnx")
    arrays = {tensor.name: tensor for tensor in proto.graph.initializer}
    turned = {node.output[0]: node.input[0] for node in proto.graph.node if node.op_type == "Transpose"}
    products = [node for node in proto.graph.node if node.op_type == "MatMulInteger"]
    weights = {turned.get(node.input[1], node.input[1]) for node in products}
    assert all(arrays[name].data_type == onnx.TensorProto.INT8 for name in weights)
    # The projection, four matrices of the one layer used six times, the pooler, and three of the heads.
    assert (len(weights), len(products)) == (1 + 4 + 1 + 3, 1 + 4 * 6 + 1 + 3)
    assert report.files[1].int8_arrays == len(weights)
    floats = {name for name, t in arrays.items() if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1}
    assert floats == {"encoder.embeddings.position.weight", "encoder.embeddings.segment.weight"}
    # No product of weights is left in floats: those that remain are of attention, two per application.
    assert collections.Counter(node.op_type for node in proto.graph.node)["MatMul"] == 2 * 6


def test_onnx_runtime_keeps_int8_products_and_packs_each_weight_once(tmp_path):
    _, folder, _ = exported("pretraining")
    path = tmp_path / "optimized.onnx"
    session(folder, "model.int8.onnx", optimized_model_filepath=str(path))
    graph = onnx.load(path).graph
    kinds = collections.Counter(node.op_type for node in graph.node)
    assert kinds["MatMulInteger"] == 1 + 4 * 6 + 1 + 3
    assert kinds["QuantizeLinear"] == kinds["MatMulInteger"]
    weights = [node.input[1] for node in graph.node if node.op_type == "MatMulInteger"]
    assert set(weights) <= {tensor.name for tensor in graph.initializer}  # the word table is turned when it is loaded
    assert len(set(weights)) == 1 + 4 + 1 + 3


def test_int8_is_near_torch_and_the_report_says_how_near():
    _, _, report = exported("token-classification")
    check = report.files[1].check
    logits = next(row for row in check.differences if row.output == "logits")
    assert 1e-4 < logits.difference < 0.1 * logits.magnitude
    assert 0.9 < check.agreement <= 1
    assert report.files[0].check.worst.difference < 1e-4


def test_quantized_columns_are_within_half_a_step():
    matrix = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32) * np.logspace(-3, 3, 7, dtype=np.float32)
    matrix[:, 2] = 0
    values, scale = quantize(matrix)
    assert values.dtype == np.int8
    assert np.abs(values).max() == 127
    assert (np.abs(values * scale - matrix) <= scale / 2 * 1.001).all()


def test_one_name_means_one_array():
    graph = Graph()
    graph.array("a", np.zeros(2, np.float32))
    with pytest.raises(AssertionError):
        graph.array("a", np.zeros(3, np.float32))


# ---------------------------------------------------------------------------------------------------------------------
# The folder


def test_the_folder_stands_alone(tmp_path):
    model = small_model("token-classification", labels=LABELS)
    save_model(model, tmp_path / "model")
    english().save(tmp_path / "model")
    save_task(Task("ner", "token-classification", labels=LABELS), tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    names = {path.name for path in (tmp_path / "onnx").iterdir()}
    assert {"model.onnx", "export.json", "config.json", "task.json", "spiece.model", "tokenizer.json"} <= names
    assert not any(name.endswith(".safetensors") for name in names)
    data = json.loads((tmp_path / "onnx/export.json").read_text())
    assert data["head"] == "token-classification"
    assert data["inputs"] == ["input_ids", "attention_mask", "segment_ids"]
    assert data["outputs"] == ["logits", "hidden"]
    assert data["checks"]["model.onnx"]["check"]["differences"]


def test_check_data_is_read_as_texts_and_pairs(tmp_path):
    model = small_model("pretraining")
    save_model(model, tmp_path / "model")
    english().save(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("Anna slept.\tBen read the old book.\n\nA farmer walked to the café.\n")
    report = export_onnx(tmp_path / "model", tmp_path / "onnx", check_data=tmp_path / "texts.txt")
    check = report.files[0].data_check
    assert check.sequences == 2
    assert check.agreement == 1
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(DataError, match="holds no text"):
        export_onnx(tmp_path / "model", tmp_path / "onnx", check_data=tmp_path / "empty.txt", overwrite=True)


def test_data_of_the_task_are_scored_in_torch_and_in_the_file(tmp_path):
    model = small_model("classification", labels=("dull", "lively"))
    save_model(model, tmp_path / "model")
    english().save(tmp_path / "model")
    save_task(Task("classification", "classification", ("dull", "lively"), ("accuracy",)), tmp_path / "model")
    texts = ["Anna slept", "Ben walked to the café", "A farmer slept on Monday", "The teacher was happy"]
    said = [result.label for result in Predictor(tmp_path / "model", threads=1).classify(texts)]
    said[0] = {"dull": "lively", "lively": "dull"}[said[0]]  # so that three of four are right
    rows = [f"{text},{label}" for text, label in zip(texts, said, strict=True)]
    (tmp_path / "dev.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    report = export_onnx(tmp_path / "model", tmp_path / "onnx", int8=True, check_data=tmp_path / "dev.csv")
    exact, small = (file.data_check for file in report.files)
    assert exact.scores == {"accuracy": (0.75, 0.75)}
    assert exact.agreement == 1
    assert small.scores["accuracy"][0] == 0.75
    with pytest.raises(DataError, match="no such file"):
        export_onnx(tmp_path / "model", tmp_path / "onnx", check_data=tmp_path / "x.csv", overwrite=True)


def test_weights_beyond_what_protobuf_reads_lie_beside_the_graph(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "MOST_BYTES", 1000)
    save_model(small_model("encoder"), tmp_path / "model")
    report = export_onnx(tmp_path / "model", tmp_path / "onnx")
    assert report.files[0].check.worst.difference < 1e-4
    assert "model.onnx.data" in read_manifest(tmp_path / "onnx").files
    assert report.files[0].bytes > 4 * report.model_parameters
    with (tmp_path / "onnx/model.onnx.data").open("r+b") as file:
        file.write(b"\xff")
    with pytest.raises(CheckpointError, match=r"model.onnx.data: damaged"):
        OnnxRuntime(tmp_path / "onnx")


def test_an_export_that_differs_is_not_kept(tmp_path, monkeypatch):
    save_model(small_model("encoder"), tmp_path / "model")
    other = small_model("encoder", seed=1)
    build = onnx_file.build_onnx
    monkeypatch.setattr(onnx_file, "build_onnx", lambda model, **rest: build(other, **rest))
    with pytest.raises(CheckpointError, match="differs from torch"):
        export_onnx(tmp_path / "model", tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_what_is_there_is_not_overwritten(tmp_path):
    save_model(small_model("encoder"), tmp_path / "model")
    save_model(small_model("encoder"), tmp_path / "other")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab" / "spiece.model").write_bytes(b"mine")
    for source, target, message in (
        ("model", "model", "is the model folder itself"),
        ("model", "other", "holds a model"),
        ("model", "vocab", "holds a tokenizer"),
        ("model", "onnx", "set overwrite to replace it"),
        ("onnx", "new", "is an export itself"),
    ):
        with pytest.raises(CheckpointError, match=message):
            export_onnx(tmp_path / source, tmp_path / target)
    export_onnx(tmp_path / "model", tmp_path / "onnx", int8=True, overwrite=True)
    export_onnx(tmp_path / "model", tmp_path / "onnx", overwrite=True)
    assert not (tmp_path / "onnx/model.int8.onnx").exists()  # no file of the export before


def test_files_of_others_stay(tmp_path):
    save_model(small_model("encoder"), tmp_path / "model")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("keep me")
    export_onnx(tmp_path / "model", tmp_path / "mine")
    export_onnx(tmp_path / "model", tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine/notes.txt").read_text() == "keep me"


def test_a_tensorflow_checkpoint_is_converted_first(tmp_path):
    (tmp_path / "albert_config.json").write_text("{}")
    (tmp_path / "model.ckpt-best.index").write_bytes(b"")
    with pytest.raises(CheckpointError, match="litebert convert"):
        export_onnx(tmp_path, tmp_path / "onnx")


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_a_missing_extra_is_named(tmp_path, monkeypatch, missing):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == missing else find(name, *rest))
    save_model(small_model("encoder"), tmp_path / "model")
    with pytest.raises(MissingExtraError, match=r'pip install "litebert\[onnx\]"'):
        export_onnx(tmp_path / "model", tmp_path / "onnx")


def test_an_encoder_without_a_pooler_is_exported_without_one(tmp_path):
    save_model(MODELS["encoder"](small_model("encoder").config, pooler=False), tmp_path / "model")
    english().save(tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    assert list(read_manifest(tmp_path / "onnx").outputs) == ["hidden"]
    vectors = [Predictor(tmp_path / name, device="cpu").embed("good morning") for name in ("model", "onnx")]
    np.testing.assert_allclose(*vectors, atol=1e-5)


def test_a_folder_for_browsers_is_told_apart(tmp_path):
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx/model.onnx").touch()
    manifest = Manifest("classification", (), (), {"onnx/model.onnx": ""}, {})
    with pytest.raises(CheckpointError, match=r"for browsers \(`litebert serve --static`\)"):
        manifest.verify(tmp_path, "model.onnx")
