"""Folders of sentence-transformers open here, and ours there, with equal vectors."""

from __future__ import annotations

import json
import shutil
import warnings
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import transformers
from small_adapters import make_adapter_folder, make_base
from small_models import small_model
from small_vocabularies import english

from litebert.errors import CheckpointError, InputError
from litebert.model.hub import load_model, save_model
from litebert.predict.load import merge_folder
from litebert.predict.predictor import Predictor
from litebert.tasks.sentence_folder import write_sentence_files
from litebert.tasks.task import Task, load_task, save_task

TEXTS = ["the cat sat on the mat.", "a dog", "we saw a film one day and it was very good"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The encoder of a tiny model with its tokenizer."""
    folder = tmp_path_factory.mktemp("base")
    save_model(small_model("encoder"), folder)
    english().save(folder)
    return folder


def theirs(folder: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("normalize", [True, False])
def test_ours_open_there(base, tmp_path, pooling, normalize):
    folder = Path(shutil.copytree(base, tmp_path / "model"))
    task = Task("similarity", "similarity", max_length=32, pooling=pooling, normalize=normalize)
    save_task(task, folder)
    write_sentence_files(folder, task, load_model(folder).config.hidden_size)
    model, predictor = theirs(folder), Predictor(folder, device="cpu")
    assert model.max_seq_length == 32
    vectors = predictor.embed(TEXTS)
    np.testing.assert_allclose(model.encode(TEXTS), vectors, atol=1e-5)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1) == normalize


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_theirs_open_here(base, tmp_path, pooling):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    width = load_model(base).config.hidden_size
    modules = [Transformer(str(base), max_seq_length=40), Pooling(width, pooling_mode=pooling)]
    model = SentenceTransformer(modules=[*modules, Normalize()] if pooling == "cls" else modules, device="cpu")
    model.save(str(tmp_path / "theirs"), create_model_card=False)
    predictor = Predictor(tmp_path / "theirs", device="cpu")
    assert (predictor.task.kind, predictor.task.max_length) == ("similarity", 40)
    np.testing.assert_allclose(model.encode(TEXTS), predictor.embed(TEXTS), atol=1e-5)
    # What is asked for comes first: the same vectors, scaled or made otherwise.
    plain = predictor.embed(TEXTS, pooling="mean", normalize=False)
    np.testing.assert_allclose(plain, Predictor(base, device="cpu").embed(TEXTS), atol=1e-5)
    with pytest.raises(InputError, match=f"size: must be <= {width}"):
        predictor.embed("a cat", size=width + 1)
    short = predictor.embed(TEXTS, size=4, normalize=True)
    assert short.shape == (3, 4)
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)


def test_old_folders_with_the_model_inside(base, tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(base, folder / "0_Transformer")
    (folder / "1_Pooling").mkdir()
    old = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(old))
    (folder / "0_Transformer" / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    modules = [("0_Transformer", "Transformer"), ("1_Pooling", "Pooling")]
    entries = [{"path": path, "type": f"sentence_transformers.models.{name}"} for path, name in modules]
    (folder / "modules.json").write_text(json.dumps(entries))
    predictor = Predictor(folder, device="cpu")
    assert (predictor.task.pooling, predictor.task.max_length) == ("first", 20)
    hidden = transformers.AutoModel.from_pretrained(folder / "0_Transformer")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "0_Transformer")
    expected = hidden(**tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state[0, 0].detach().numpy()
    np.testing.assert_allclose(predictor.embed(TEXTS[0]), expected, atol=1e-5)


def test_a_merged_adapter_opens_there(tmp_path):
    base = make_base(tmp_path / "base")
    task = Task("near", "similarity", max_length=32, pooling="first")
    adapter = make_adapter_folder(tmp_path / "adapter", base, task)
    merged = merge_folder(adapter, tmp_path / "merged")
    expected = Predictor(adapter, device="cpu").embed(TEXTS)
    np.testing.assert_allclose(theirs(merged).encode(TEXTS), expected, atol=1e-5)


def test_theirs_come_whole_from_the_hub(base, tmp_path, monkeypatch):
    """Without modules.json and the file of the pooling, [CLS] would be read as the mean."""
    folder = Path(shutil.copytree(base, tmp_path / "model"))
    write_sentence_files(folder, Task("s", "similarity", max_length=20, pooling="first"), 16)

    def download(name, revision, allow_patterns):
        for path in folder.rglob("*.*"):
            if any(fnmatch(str(path.relative_to(folder)), pattern) for pattern in allow_patterns):
                there = tmp_path / "cache" / path.relative_to(folder)
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, there)
        return str(tmp_path / "cache")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr("litebert.remote.check_hub", lambda name, revision=None: None)
    predictor = Predictor("somebody/sentences", device="cpu")
    assert (predictor.task.pooling, predictor.task.max_length) == ("first", 20)
    np.testing.assert_allclose(predictor.embed(TEXTS), Predictor(folder, device="cpu").embed(TEXTS), atol=1e-6)


def test_what_we_do_not_compute_is_refused(base, tmp_path):
    folder = Path(shutil.copytree(base, tmp_path / "model"))
    write_sentence_files(folder, Task("s", "similarity"), 16)
    entries = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*entries, {"path": "3_Dense", "type": "a.b.Dense"}]))
    with pytest.raises(CheckpointError, match=r"modules\.json: has a module Dense, which is not supported"):
        load_task(folder)
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}')
    with pytest.raises(CheckpointError, match="pooling max is not supported; mean and cls are"):
        load_task(folder)
    (folder / "modules.json").write_text('{"a": 1}')
    with pytest.raises(CheckpointError, match="not readable as a list of modules"):
        load_task(folder)
    (folder / "modules.json").write_text(json.dumps(entries[:1]))
    with pytest.raises(CheckpointError, match="has no Pooling module"):
        load_task(folder)
