"""The error about a folder of the wrong kind says which kind it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from litebert.folders import beside, folder_hint


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        (["run.json", "best/config.json"], "; it is a run folder, its model is {folder}/best"),
        (["run.json", "model/config.json"], "; it is a run folder, its model is {folder}/model"),
        (["summary.json", "best/config.json"], "; it is a run folder, its model is {folder}/best"),
        (["run.json"], "; it is an unfinished run: rerun the same command"),
        (["state.json", "checksums.json"], "; it is a training checkpoint"),
        (["manifest.json"], "; it is a token store"),
        (["tokenizer_config.json"], "; it is a tokenizer"),
        (["notes.txt"], ""),
    ],
)
def test_what_a_folder_is(tmp_path, files, hint):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = folder_hint(tmp_path)
    assert found.startswith(hint.format(folder=tmp_path))
    assert bool(found) == bool(hint)


@pytest.mark.parametrize(
    ("here", "name", "neighbour"),
    [
        (".", "runs/a", "runs/a-x"),
        ("runs/a", ".", "runs/a-x"),
        ("runs/a", "..", "runs-x"),
        (".", "runs/a/..", "runs-x"),
    ],
)
def test_the_neighbour_of_a_folder(tmp_path, monkeypatch, here, name, neighbour):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / here)
    assert beside(Path(name), "-x").resolve() == tmp_path / neighbour
