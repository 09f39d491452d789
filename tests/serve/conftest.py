"""Servers that several tests share."""

from __future__ import annotations

import pytest
from fake_predictor import FakePredictor
from running import running
from tiny_models import TASKS, write_model, write_models

from litebert.tasks.task import Task


@pytest.fixture
def fake():
    return FakePredictor()


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def tiny_predictors(tiny_folders):
    """A real Predictor per kind of model."""
    from litebert.predict.predictor import Predictor

    assert set(tiny_folders) == set(TASKS)
    return {name: Predictor(folder, device="cpu", threads=1) for name, folder in tiny_folders.items()}


@pytest.fixture(scope="session")
def tiny_pairs(tmp_path_factory):
    """A regression model of pairs."""
    from litebert.predict.predictor import Predictor

    folder = tmp_path_factory.mktemp("pairs") / "model"
    write_model(folder, "classification", Task("sts-b", "regression", pair=True, scale=(0.0, 5.0)))
    return Predictor(folder, device="cpu", threads=1)


@pytest.fixture(scope="session")
def two_languages(tiny_predictors, tmp_path_factory):
    """A server with English and Korean models."""
    from litebert.predict.predictor import Predictor

    folders = write_models(tmp_path_factory.mktemp("korean"), "ko")
    korean = {f"ko-{name}": Predictor(folder, device="cpu", threads=1) for name, folder in folders.items()}
    with running({**tiny_predictors, **korean}) as client:
        yield client


@pytest.fixture(scope="session")
def tiny_server(tiny_predictors):
    """A server with all of them."""
    with running(tiny_predictors) as client:
        yield client
