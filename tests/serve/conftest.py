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


@pytest.fixture
def open_page(browser):
    """Open the page at an ability; at the end nothing may have gone wrong in it, and nothing come from elsewhere."""
    contexts, troubles, requests = [], [], []

    def open_at(client, ability="", wait=True, refusals=False, **options):
        base = str(client.base_url)
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        # Chromium itself notes every status of 400 and above on the console.
        noted = "Failed to load resource" if refusals else "nothing"
        page.on("console", lambda m: troubles.append(m.text) if m.type == "error" and noted not in m.text else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda sent: requests.append((sent.url, base)))
        page.goto(f"{base}/#{ability}")
        if wait and ability:
            page.wait_for_selector(f"#{ability} .meta")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert troubles == []
    assert requests
    assert [url for url, base in requests if not url.startswith((base, "data:"))] == []
