"""A random model folder of every kind, small enough to be made and run in no time."""

from __future__ import annotations

from pathlib import Path

import torch
from small_vocabularies import english, korean

from litebert.model.config import ModelConfig
from litebert.model.heads import MODELS
from litebert.model.hub import save_model
from litebert.tasks.task import Task, save_task

TASKS = {
    "pretraining": None,
    "classification": Task("mood", "classification", labels=("sad", "calm", "glad")),
    "token-classification": Task("names", "token-classification", labels=("O", "B-PER", "I-PER", "B-LOC", "I-LOC")),
    "answer": Task("questions", "question-answering", max_length=64, stride=16, max_question=16, answerable_head=True),
    "multiple-choice": Task("exam", "multiple-choice", num_choices=4, max_length=64, max_option=24),
}


def write_models(folder: Path, language: str = "en") -> dict[str, Path]:
    """One folder per kind, named after it."""
    torch.manual_seed(5)
    for head, task in TASKS.items():
        write_model(folder / head, head, task, language)
    return {head: folder / head for head in TASKS}


def write_model(path: Path, head: str, task: Task | None, language: str = "en", **changes) -> None:
    """One folder."""
    tokenizer = {"en": english, "ko": korean}[language]()
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
        labels=task.labels if task else (),
        problem_type="regression" if task and task.kind == "regression" else None,
        **changes,
    )
    save_model(MODELS[head](config), path)
    tokenizer.save(path)
    if task:
        save_task(task, path)
