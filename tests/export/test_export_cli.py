from __future__ import annotations

import json

import pytest
from small_models import small_model

from litebert.model.hub import save_model
from litebert.predict.predictor import Predictor


@pytest.fixture
def folder(tmp_path):
    return save_model(small_model("classification"), tmp_path / "model")


def test_export_writes_beside_the_model_and_says_what(cli, folder):
    result = cli("export", folder, "--int8")
    assert result.code == 0, result
    assert (folder.parent / "model-onnx/model.int8.onnx").is_file()
    lines = result.out.splitlines()
    assert "classification head" in lines[0]
    assert "fp32" in lines[1]
    assert "int8 in 8 matrices" in lines[3]
    assert lines[2].count("from torch") == lines[4].count("decisions equal") == 1
    assert lines[5].startswith(f"next: litebert serve {folder.parent / 'model-onnx'} --runtime onnx-int8 ")


def test_export_of_the_folder_where_one_stands(cli, folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = cli("export", ".", "--to", "torch-export")
    assert result.code == 0, result
    assert (folder.parent / "model-torch" / "model.pt2").is_file()


def test_an_adapter_is_exported_merged(cli, tmp_path, monkeypatch):
    """By the package's name or by its folder: the file answers as the adapter does."""
    monkeypatch.chdir(tmp_path)
    result = cli("export", "default:sentiment")
    assert result.code == 0, result
    exported = Predictor("sentiment-onnx").classify("a warm and funny film")
    merged = Predictor("default:sentiment").classify("a warm and funny film")
    assert exported.label == merged.label == "positive"
    assert exported.probabilities == pytest.approx(merged.probabilities, abs=1e-4)
    assert cli("adapter", "merge", "default:sentiment", "--out", "merged").code == 0
    assert Predictor("merged").classify("a warm and funny film").probabilities == pytest.approx(merged.probabilities)


def test_export_as_json(cli, folder, tmp_path):
    result = cli("export", folder, "--to", "onnx", "--out", tmp_path / "x", "--json")
    assert result.code == 0, result
    report = json.loads(result.out)
    assert report["folder"] == str(tmp_path / "x")
    assert [file["name"] for file in report["files"]] == ["model.onnx"]
    assert max(row["difference"] for row in report["files"][0]["check"]["differences"]) < 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "onx"), "did you mean 'onnx'?"),
        (("--to", "torch-export", "--int8"), "--int8: goes with --to onnx only"),
        (("--to", "onnx", "--check-data", "nowhere.txt"), "nowhere.txt: no such file"),
    ],
)
def test_mistakes_are_named(cli, folder, arguments, message):
    from small_vocabularies import english

    english().save(folder)
    result = cli("export", folder, *arguments)
    assert result.code == 2
    assert message in result.err
    assert not (folder.parent / "model-onnx").exists()


def test_no_such_model(cli, tmp_path):
    result = cli("export", tmp_path / "nothing")
    assert result.code == 2
    assert "no such folder" in result.err
