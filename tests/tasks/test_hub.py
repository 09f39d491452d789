"""Data sets by name: `datasets` loads a local folder here, and a stand-in plays the Hub."""

from __future__ import annotations

import importlib.util
import json

import datasets
import huggingface_hub
import pytest

from litebert.errors import DataError, MissingExtraError
from litebert.tasks.read import PATIENCE, PUBLIC, named_tasks, read_task


@pytest.fixture
def hub(monkeypatch):
    """A Hub that holds what is put into it: hub["owner/name:config"] = {"train": Dataset}."""
    shelf = {}

    def load_dataset(repository, config=None):
        key = repository if config is None else f"{repository}:{config}"
        if key not in shelf:
            raise ConnectionError(f"no network\nto {key}")
        return datasets.DatasetDict(shelf[key])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return shelf


def rows(features=None, **columns):
    return datasets.Dataset.from_dict(columns, features=features)


def test_every_public_task_has_a_place():
    assert {name for file in PUBLIC for name in file.HUB} == set(named_tasks())


def test_a_public_task_by_name(hub):
    names = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["negative", "positive"])}
    )
    hub["nyu-mll/glue:sst2"] = {
        "train": rows(names, sentence=["good", "bad"], label=[1, 0]),
        "validation": rows(names, sentence=["fine"], label=[1]),
        "test": rows(names, sentence=["hmm"], label=[-1]),
    }
    data = read_task("sst-2")
    assert [(e.a, e.label) for e in data.train] == [("good", 1), ("bad", 0)]
    assert data.dev["dev"][0].where == "hub:nyu-mll/glue:sst2/validation:1"
    assert data.test["test"][0].label is None


def test_mnli_in_the_hubs_order_of_labels(hub):
    names = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    features = datasets.Features(
        {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string"), "label": names}
    )
    split = rows(features, premise=["A"] * 3, hypothesis=["B"] * 3, label=[0, 1, 2])
    hub["nyu-mll/glue:mnli"] = {"train": split, "validation_matched": split, "test_mismatched": split}
    data = read_task("mnli")
    assert [e.label for e in data.train] == [1, 2, 0]
    assert (list(data.dev), list(data.test)) == (["matched"], ["test-mismatched"])


def test_squad_and_race_by_name(hub):
    answers = [{"text": ["Rome"], "answer_start": [3]}, {"text": [], "answer_start": []}]
    hub["rajpurkar/squad_v2"] = {
        "validation": rows(id=["a", "b"], question=["?", "?"], context=["In Rome"] * 2, answers=answers)
    }
    assert [e.impossible for e in read_task("squad-2.0").dev["dev"]] == [False, True]
    hub["ehovy/race:high"] = {
        "test": rows(
            example_id=["high1.txt"], article=["A"], question=["Q"], options=[["a", "b", "c", "d"]], answer=["C"]
        )
    }
    assert read_task("race-high").test["test"][0].label == 2


def test_the_users_own_by_name(hub):
    tags = datasets.Features(
        {
            "tokens": datasets.List(datasets.Value("string")),
            "ner_tags": datasets.List(datasets.ClassLabel(names=["O", "B-PER"])),
        }
    )
    hub["me/ner:small"] = {"train": rows(tags, tokens=[["Anna", "slept"]], ner_tags=[[1, 0]])}
    data = read_task("token-classification", folder="hub:me/ner:small")
    assert (data.task.labels, data.train[0].tags) == (("O", "B-PER"), (1, 0))


def test_a_local_folder_through_datasets(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "nsmc"
    folder.mkdir()
    for split, label in (("train", [0, 1]), ("test", [1])):
        lines = [json.dumps({"document": f"영화 {i}", "label": value}) + "\n" for i, value in enumerate(label)]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    data = read_task("classification", folder=f"hub:{folder}")
    assert [(e.a, e.label) for e in data.train] == [("영화 0", 0), ("영화 1", 1)]
    assert data.task.columns == {"text": "document", "label": "label"}


def test_what_goes_wrong_is_told(hub, monkeypatch):
    with pytest.raises(DataError, match=r"cannot load it: ConnectionError: no network$"):
        read_task("rte")
    hub["me/odd"] = {"extra": rows(text=["a"])}
    with pytest.raises(DataError, match="no split named train, validation or test; the splits are extra"):
        read_task("classification", folder="hub:me/odd")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"without a folder of its official files .*\"litebert\[hf\]\""):
        read_task("rte")
    with pytest.raises(MissingExtraError, match=r"hub:me/odd needs an optional dependency"):
        read_task("classification", folder="hub:me/odd")


def test_a_hub_that_does_not_answer_is_asked_once(hub, monkeypatch):
    asked, seen = [], []

    class Session:
        def head(self, address, timeout):
            asked.append((address, timeout))
            raise OSError("no network")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.utils, "get_session", Session)
    load = datasets.load_dataset
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *what: seen.append(huggingface_hub.constants.HF_HUB_OFFLINE) or load(*what)
    )
    with pytest.raises(DataError, match=r"^rte: give a folder with its official files"):
        read_task("rte")
    assert asked == [(huggingface_hub.constants.ENDPOINT, PATIENCE)]
    assert seen == [True]  # so that only the cache was looked into
    assert (huggingface_hub.constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE) == (False, False)


def test_the_name_of_the_task_is_looked_at_first():
    with pytest.raises(DataError, match="unknown task 'sst-3'; did you mean 'sst-2'"):
        read_task("sst-3", folder="nowhere")
