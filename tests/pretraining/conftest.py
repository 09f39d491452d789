"""A tiny corpus, built once; tests that change it take a copy."""

from __future__ import annotations

import pytest
from tiny_run import make_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))
