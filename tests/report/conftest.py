"""A tiny model to fine-tune, made once."""

from __future__ import annotations

import pytest
from toy_tasks import make_model


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("toy") / "model")
