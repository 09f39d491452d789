"""Depth as a dial on the server's page: what a model with exits offers, and which depth answered."""

from __future__ import annotations

import pytest
import torch
from running import running
from tiny_models import TASKS, write_model

from litebert.predict.exits import ExitRule, save_rule
from litebert.predict.predictor import Predictor


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exits")
    torch.manual_seed(5)
    for head in ("classification", "pretraining"):
        write_model(folder / head, head, TASKS[head], exits=(1, 2, 3))
    write_model(folder / "plain", "classification", TASKS["classification"])
    save_rule(ExitRule("patience", patience=1), folder / "classification", {})
    return folder


def open_predictor(folder, **more):
    return Predictor(folder, device="cpu", threads=1, **more)


def depths_of(client):
    return {model["name"]: model["depths"] for model in client.get("/models").json()["models"]}


def test_models_say_how_deep_they_can_answer(folders):
    loaded = {
        "mood": open_predictor(folders / "classification"),
        "quick": open_predictor(folders / "classification", depth=2),
        "words": open_predictor(folders / "pretraining"),
        "plain": open_predictor(folders / "plain"),
    }
    with running(loaded) as client:
        found = depths_of(client)
    assert found == {
        "mood": {"layers": 3, "exits": [1, 2, 3], "auto": True, "depth": None},
        "quick": {"layers": 3, "exits": [1, 2, 3], "auto": True, "depth": 2},
        "words": {"layers": 3, "exits": [1, 2, 3], "auto": False, "depth": None},
        "plain": {"layers": 3, "exits": [], "auto": False, "depth": None},
    }
    loaded["mood"].runtime.any_depth = False  # as a graph
    with running({"mood": loaded["mood"]}) as client:
        assert depths_of(client)["mood"]["exits"] == []
    loaded["mood"].runtime.any_depth = True


def test_the_dial_chooses_the_depth_of_each_request(folders, open_page):
    predictor = open_predictor(folders / "classification")
    plain = open_predictor(folders / "plain")
    with running({"mood": predictor, "plain": plain}) as client:
        page = open_page(client, "classify")
        page.wait_for_selector("#classify .meta")
        select, meta = page.locator("#classify-depth"), page.locator("#classify .meta")
        offered = ["All 3 layers", "2 layers", "1 layer", "As each text needs"]
        assert select.locator("option").all_inner_texts() == offered
        assert page.inner_text("#classify .meta span:nth-child(3)") == "all 3 layers"
        assert '"depth"' not in page.locator("#classify pre").text_content()  # as before there was a choice
        text = page.input_value("#classify-text")
        for value in ("1", "auto"):
            with page.expect_response("**/classify") as answered:
                select.select_option(value)
            depth = "auto" if value == "auto" else int(value)
            assert answered.value.request.post_data_json["depth"] == depth
            expected = predictor.classify(text, depth=depth).depth
            words = "all 3 layers" if expected == 3 else f"{expected} of 3 layers"
            meta.filter(has_text=words).wait_for()
        page.select_option("#classify-model", "plain")
        meta.filter(has_text="plain").wait_for()
        assert page.is_hidden("#classify-depth")
        assert "layers" not in page.inner_text("#classify .meta span:nth-child(2)")


def test_the_depth_of_the_server_is_what_the_dial_begins_with(folders, open_page):
    with running({"quick": open_predictor(folders / "classification", depth=2)}) as client:
        page = open_page(client, "classify")
        page.wait_for_selector("#classify .meta")
        assert page.input_value("#classify-depth") == "2"
        assert "2 of 3 layers" in page.inner_text("#classify .meta")
        with page.expect_response("**/classify") as answered:
            page.select_option("#classify-depth", "3")
        assert answered.value.request.post_data_json["depth"] == 3
