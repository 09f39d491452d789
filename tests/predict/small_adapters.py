"""Adapter folders with random low-rank parts and heads, for a base model made on the spot."""

from __future__ import annotations

from pathlib import Path

import torch
from small_models import small_model
from small_vocabularies import english

from litebert.model.adapter import AdapterConfig, add_adapter, save_adapter
from litebert.model.hub import load_model, save_model
from litebert.tasks.task import Task, kind_of, save_task

ALL = ("query", "key", "value", "attention_output", "ffn_input", "ffn_output", "pooler")
TASKS = {
    "sentiment": Task("sst-2", "classification", labels=("bad", "good"), max_length=40),
    "topics": Task("topics", "multi-label", labels=("a", "b", "c"), max_length=32),
    "score": Task("sts-b", "regression", pair=True, max_length=48),
    "names": Task("ner", "token-classification", labels=("O", "B-PER", "I-PER"), max_length=40),
    "options": Task("race", "multiple-choice", num_choices=3, max_length=48),
    "spans": Task("squad", "question-answering", max_length=48),
    "squad2": Task("squad2", "question-answering", answerable_head=True, max_length=48),
}


def make_base(folder: Path, head: str = "pretraining", seed: int = 0, **changes) -> Path:
    save_model(small_model(head, seed, **changes), folder)
    english().save(folder)
    return folder


def make_adapter_folder(folder: Path, base: Path, task: Task, rank: int = 2, seed: int = 0, targets=ALL) -> Path:
    """An adapter that changes what the model says a lot."""
    torch.manual_seed(seed)
    kind = kind_of(task)
    model = load_model(base, kind.head(task), new_head=True, labels=task.labels, problem_type=kind.problem_type)
    there = targets if model.encoder.pooler is not None else [each for each in targets if each != "pooler"]
    add_adapter(model, AdapterConfig(rank=rank, targets=tuple(there)))
    for name, parameter in model.named_parameters():
        if ".lora_" in name or not name.startswith("encoder."):
            parameter.data = (0.2 if ".lora_" in name else 0.5) * torch.randn(parameter.shape)
    save_adapter(model, folder, str(base))
    save_task(task, folder)
    return folder
