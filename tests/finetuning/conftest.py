"""A tiny model, made once; every test runs on one thread, even after a command that used more."""

from __future__ import annotations

import pytest
import torch
from toy_tasks import make_model


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("toy") / "model")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
