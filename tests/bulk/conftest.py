"""Models of every head, as folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_models import small_model
from small_runs import TASKS
from small_vocabularies import english

from litebert.model.hub import save_model
from litebert.tasks.task import save_task


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a small model with a head: model("pretraining")."""
    made = {}

    def make(head: str) -> Path:
        if head not in made:
            folder = tmp_path_factory.mktemp(head) / "model"
            task = TASKS.get(head)
            labels = dict(labels=task.labels) if task is not None and task.labels else {}
            save_model(small_model(head, **labels), folder)
            english().save(folder)
            if task is not None:
                save_task(task, folder)
            made[head] = folder
        return made[head]

    return make
