"""A folder with everything that the documentation's commands and Python blocks refer to, in small."""

from __future__ import annotations

import csv
import fcntl
import shutil
from pathlib import Path

import pytest

GOOD = "warm bright sweet fresh lovely kind gentle happy".split()
BAD = "cold dark bitter stale awful rude harsh sad".split()
TINY = {
    "vocab_size": 400,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
}


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, worker_id) -> Path:
    """The folder, made once for all processes of pytest."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared if worker_id == "master" else shared.parent
    folder, done = shared / "documentation", shared / "documentation.done"
    with (shared / "documentation.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir()
            prepare(folder)
            done.touch()
    return folder


def prepare(folder: Path) -> None:
    """Texts, a vocabulary, a store, a run, tables, a fine-tuned run, and stand-ins for what one would download."""
    from litebert import finetune
    from litebert.finetuning.config import finetune_config
    from litebert.pretraining.config import run_config
    from litebert.pretraining.run import pretrain
    from litebert.text.build import build_store
    from litebert.text.generate import generate_documents
    from litebert.text.train_vocab import VocabConfig, train_vocab

    for name, split in (("mytext.txt", "train"), ("other.txt", "held-out")):
        documents = generate_documents(150, seed=0, split=split)
        (folder / name).write_text("\n\n".join("\n".join(document) for document in documents), encoding="utf-8")
    train_vocab([folder / "mytext.txt"], VocabConfig(vocab_size=400)).tokenizer.save(folder / "vocab")
    build_store([folder / "mytext.txt"], folder / "vocab", folder / "store", workers=1)
    run = {
        "model": TINY,
        "data": {"stores": [str(folder / "store")], "tokenizer": str(folder / "vocab"), "held_out": 10, "workers": 0},
        "recipe": {"max_length": 64},
        "optim": {"name": "adamw", "lr": 1e-3},
        "steps": 4,
        "batch_tokens": 1024,
        "micro_batch_tokens": 1024,
        "log": {"evaluate_every": 4, "evaluate_batches": 2, "checkpoint_every": 4},
    }
    pretrain(run_config(run), folder / "run", quiet=True)
    for name, count in (("train.csv", 64), ("dev.csv", 32), ("test.csv", 32)):
        write_reviews(folder / name, count)
    write_pairs(folder / "dev.csv", folder / "pairs.csv")
    data = {"train": str(folder / "train.csv"), "dev": str(folder / "dev.csv")}
    config = {"task": "classification", "data": data, "model": str(folder / "run" / "model"), "steps": 4}
    finetune(finetune_config(config, auto="cpu"), folder / "mine", quiet=True)
    (folder / "text").mkdir()
    shutil.copy(folder / "mytext.txt", folder / "text" / "wiki-0.txt")
    for name in ("ratings_train.txt", "ratings_test.txt", "train-10000.txt", "test-500.txt", "test-2000.txt"):
        write_nsmc(folder / ("train.csv" if "train" in name else "dev.csv"), folder / name)
    (folder / "glue" / "SST-2").mkdir(parents=True)
    for split in ("train", "dev"):
        write_sst2(folder / f"{split}.csv", folder / "glue" / "SST-2" / f"{split}.tsv")
    write_with_transformers(folder / "albert" / "albert-base-v2", folder / "vocab")
    links = {"mymodel": "albert/albert-base-v2", "wiki": "store", "books": "store", "reviews.txt": "mytext.txt"}
    for name, target in links.items():
        (folder / name).symlink_to(target)


def write_reviews(path: Path, count: int) -> None:
    """A CSV of texts and labels that a word decides."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for i in range(count):
            words, label = (GOOD, "good") if i % 2 else (BAD, "bad")
            rows.writerow([f"the soup of day {i} was {words[i // 2 % 8]} and the bread {words[i // 3 % 8]}", label])


def write_pairs(source: Path, target: Path) -> None:
    """The same texts in pairs: near where they share a label."""
    with source.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with target.open("w", encoding="utf-8", newline="") as file:
        pairs = csv.writer(file)
        pairs.writerow(["sentence1", "sentence2", "score"])
        for one, other in zip(rows, [*rows[3:], *rows[:3]], strict=True):
            pairs.writerow([one["text"], other["text"], 5 if one["label"] == other["label"] else 0])
        for one, other in zip(rows, [*rows[2:], *rows[:2]], strict=True):
            pairs.writerow([one["text"], other["text"], 5 if one["label"] == other["label"] else 0])


def write_nsmc(source: Path, target: Path) -> None:
    """The same rows as NSMC writes them."""
    with source.open(encoding="utf-8", newline="") as file:
        rows = [f"{i}\t{row['text']}\t{int(row['label'] == 'good')}" for i, row in enumerate(csv.DictReader(file))]
    target.write_text("\n".join(["id\tdocument\tlabel", *rows]) + "\n", encoding="utf-8")


def write_sst2(source: Path, target: Path) -> None:
    """The same rows as GLUE writes them."""
    with source.open(encoding="utf-8", newline="") as file:
        rows = [f"{row['text']}\t{int(row['label'] == 'good')}" for row in csv.DictReader(file)]
    target.write_text("\n".join(["sentence\tlabel", *rows]) + "\n", encoding="utf-8")


def write_with_transformers(folder: Path, tokenizer: Path) -> None:
    """What stands in for a released model: a tiny one of the same kind, written by transformers itself."""
    import torch
    from transformers import AlbertConfig, AlbertForPreTraining

    torch.manual_seed(0)
    AlbertForPreTraining(AlbertConfig(**TINY, num_hidden_groups=1, hidden_act="gelu_new")).save_pretrained(folder)
    for file in tokenizer.iterdir():
        shutil.copy(file, folder)
