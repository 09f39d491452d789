"""Adapters on the Hub: pushed by command and from Python, and opened by their names."""

from __future__ import annotations

import json
import shutil

import fake_hub
import pytest
from small_adapters import TASKS, make_adapter_folder, make_base

from litebert.errors import CheckpointError
from litebert.model.hub import load_model
from litebert.predict.predictor import Predictor
from litebert.remote import push_folder

TEXT = "a warm and happy day"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    return fake_hub.use(monkeypatch, tmp_path / "hub")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A base model and an adapter of it."""
    folder = tmp_path_factory.mktemp("made")
    base = make_base(folder / "base")
    return base, make_adapter_folder(folder / "adapter", base, TASKS["sentiment"])


def name_base(folder, name):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": name}))


def test_an_adapter_and_its_base_are_pushed_and_opened_by_name(cli, hub, folders, tmp_path):
    base, adapter = folders
    expected = Predictor(adapter, device="cpu", threads=1).classify(TEXT).probabilities
    pushed = cli("push", base, "me/base", "--private")
    assert (pushed.code, pushed.out) == (0, "https://hub/me/base\n"), pushed
    mine = shutil.copytree(adapter, tmp_path / "mine")
    name_base(mine, "me/base")
    pushed = cli("push", mine, "me/mood", "--revision", "v2", "--message", "new")
    assert (pushed.code, pushed.out) == (0, "https://hub/me/mood\n"), pushed
    assert hub.calls == [
        ("create", "me/base", True, True, None),
        ("upload", "me/base", None, "Upload model with litebert"),
        ("create", "me/mood", None, True, None),
        ("branch", "me/mood", "v2", True),
        ("upload", "me/mood", "v2", "new"),
    ]
    there = {path.name for path in (hub.place / "me" / "mood").iterdir()}
    assert there == {"adapter_config.json", "adapter_model.safetensors", "task.json"}
    found = Predictor("me/mood", device="cpu", threads=1)
    assert found.classify(TEXT).probabilities == expected
    shared = Predictor("me/base", device="cpu", threads=1).add_adapter("mood", "me/mood")
    assert shared.classify(TEXT).probabilities == pytest.approx(expected, abs=1e-5)


def test_from_python(hub, folders, tmp_path):
    mine = shutil.copytree(folders[1], tmp_path / "mine")
    for base in ("default", "me/base", "hub:me/base"):
        name_base(mine, base)
        assert push_folder(mine, f"me/{base[-4:]}{len(base)}") == f"https://hub/me/{base[-4:]}{len(base)}"
    assert hub.calls[-1] == ("upload", "me/base11", None, "Upload adapter with litebert")


def test_an_adapter_that_nobody_else_could_open_is_refused(cli, hub, folders, tmp_path, monkeypatch):
    base, adapter = folders
    cli("push", adapter, "me/mood").assert_refused(
        f"{adapter}: its base model, {base}, is not on the Hub, so nobody else could open the adapter; push the base "
        "too, and write its name (owner/name) to base_model_name_or_path in adapter_config.json"
    )
    mine = shutil.copytree(adapter, tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name, shown in ((None, "which has no name"), ("runs/a", "runs/a"), ("./default", "./default")):
        name_base(mine, name)
        with pytest.raises(CheckpointError, match=f"its base model, {shown}, is not on the Hub"):
            push_folder(mine, "me/mood")
    cli("push", tmp_path / "nowhere", "me/mood").assert_refused("nowhere: no such file or folder")
    assert hub.calls == []


def test_a_model_beside_whose_files_an_adapter_was_left_is_a_model(hub, folders):
    """As some tools leave it on the Hub; the adapter is in the model already."""
    base, adapter = folders
    place = hub.place / "me" / "merged"
    shutil.copytree(base, place)
    shutil.copy(adapter / "adapter_config.json", place)
    shutil.copy(adapter / "adapter_model.safetensors", place)
    assert Predictor("me/merged", device="cpu", threads=1).task is None
    assert load_model("me/merged").num_parameters == load_model(base).num_parameters
