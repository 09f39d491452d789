"""The whole story in two minutes on a laptop: generated text -> vocabulary -> store -> a small ALBERT that learns.

It works offline. The terminal shows what the model learned, next to simple baselines.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from litebert.baselines.masks import MaskBaselines, score_mask_baselines
from litebert.errors import ConfigError
from litebert.files import write_atomic
from litebert.model.count import count_parameters
from litebert.predict.predictor import Predictor
from litebert.pretraining.config import RunConfig, run_config
from litebert.pretraining.data import Data, settle
from litebert.pretraining.evaluate import Scores
from litebert.pretraining.run import pretrain
from litebert.report import write_report
from litebert.text.build import BuildOptions, build_store
from litebert.text.generate import Split, generate_documents, join_documents
from litebert.text.tokenizer import Tokenizer
from litebert.text.train_vocab import VocabConfig, train_vocab

EVALUATION_BATCHES = 24
VOCABULARY = 1000
SPLITS: tuple[Split, ...] = get_args(Split)

# Small enough for two cores, deep enough to be an ALBERT: one layer, applied once, then twice, then four times.
RUN: dict[str, Any] = {
    "model": {
        "embedding_size": 96,
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 512,
        "max_position_embeddings": 32,  # only these are trained
        # 0.02 suits widths of 768 and more; narrow models learn sooner from about 1 / sqrt(H).
        "initializer_range": 0.08,
    },
    "data": {"row_tokens": 1024, "held_out": 0, "workers": 0},
    # Short sequences learn fastest; a longer sentence is cut and gets no order label.
    "recipe": {"name": "paper", "max_length": 32, "long_sentences": "trim"},
    # Muon learns in half the steps what AdamW does at its best rate, which the other parameters keep here.
    "optim": {
        "name": "muon",
        "lr": 5e-3,
        "adam_factor": 0.4,
        "beta2": 0.98,
        "warmup_steps": 100,
        "bias_correction": True,
    },
    "depth": [{"until": 0.4, "value": 1}, {"until": 0.75, "value": 2}, {"until": 1.0, "value": 4}],
    "steps": 1800,
    "batch_tokens": 1024,
    "micro_batch_tokens": 1024,
    "log": {
        "report_every": 20,
        "evaluate_every": 300,
        "evaluate_batches": EVALUATION_BATCHES,
        "checkpoint_every": 300,
    },
}


@dataclass(frozen=True)
class QuickstartResult:
    """Scores of the quickstart's model on held-out documents, and of baselines."""

    scores: Scores
    baselines: MaskBaselines
    report: Path
    seconds: float


def quickstart(
    out: Path | str,
    documents: int = 6000,
    steps: int | None = None,
    console: Console | None = None,
) -> QuickstartResult:
    """Generate, train and show. A finished quickstart in `out` is replaced, an interrupted one is resumed."""
    out = Path(out)
    console = console or Console(highlight=False)
    began = time.monotonic()
    config = quickstart_config(out, steps)
    _own_folder(out)

    _headline(console, 1, "A generated corpus: short stories whose sentences have an order")
    texts = {split: _write_text(out, split, documents if split == "train" else documents // 10) for split in SPLITS}
    example = next(iter(generate_documents(1, seed=1)))
    console.print(Text("   " + " ".join(example[:4]) + " ...", style="italic"))

    _headline(console, 2, "A SentencePiece vocabulary and two token stores")
    tokenizer = _vocabulary(out, texts["train"])
    for split, path in texts.items():
        report = build_store([path], tokenizer, out / f"store-{split}", BuildOptions(format="lines"), workers=1)
        console.print(f"   {split:9s} {report.documents:,} documents, {report.tokens:,} tokens")

    config = settle(config, tokenizer)
    parameters = count_parameters(config.model).total
    _headline(console, 3, f"An ALBERT of {parameters:,} parameters: one layer, applied 1, then 2, then 4 times")
    result = pretrain(config, out / "run", console=Console(highlight=False, soft_wrap=True))
    if not result.completed or result.scores is None:
        raise KeyboardInterrupt

    data = Data(config, tokenizer)
    evaluation = data.evaluation(data.last_length)
    assert evaluation is not None
    length = config.recipe.max_length
    count = min(EVALUATION_BATCHES, evaluation.steps_per_epoch)
    baselines = score_mask_baselines(data.stores, data.training(length), evaluation, tokenizer, count)
    write_atomic(out / "run" / "baselines.json", json.dumps(baselines.as_dict(), indent=1))
    page = write_report([out / "run"], out / "report.html")

    _headline(console, 4, "What it learned, on documents whose sentences are not in the training text")
    _print_scores(console, result.scores, baselines)
    _print_samples(console, out / "run" / "samples.json")
    _headline(console, 5, "The bundled model: an English ALBERT-base, trained for minutes on a GPU (litebert predict)")
    _print_default(console)
    seconds = time.monotonic() - began
    console.print()
    console.print(Text.assemble(("   report   ", "bold"), str(page)))
    console.print(Text.assemble(("   model    ", "bold"), str(result.model)))
    console.print(Text.assemble(("   took     ", "bold"), f"{seconds:.0f} s"))
    return QuickstartResult(result.scores, baselines, page, seconds)


ASKED = "he studied law at the [MASK] of oxford."


def quickstart_config(out: Path, steps: int | None = None) -> RunConfig:
    """The config of the quickstart's run."""
    data = {**RUN, "steps": steps or RUN["steps"]}
    data["data"] = {
        **RUN["data"],
        "stores": [str(out / "store-train")],
        "eval_stores": [str(out / "store-held-out")],
        "tokenizer": str(out / "vocabulary"),
    }
    if steps is not None:
        data["optim"] = {**RUN["optim"], "warmup_steps": min(100, max(1, steps // 10))}
    return run_config(data)


def _own_folder(out: Path) -> None:
    """Make the folder, or clear a finished quickstart from it; other folders are refused."""
    marker = out / "quickstart.txt"
    if out.exists() and any(out.iterdir()) and not marker.exists():
        raise ConfigError(f"{out}: holds something other than a quickstart; choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(marker, "Made by `litebert quickstart`; delete it or run the command again.\n")
    if (out / "run" / "model").exists():
        shutil.rmtree(out / "run")


def _write_text(out: Path, split: Split, documents: int) -> Path:
    path = out / f"{split}.txt"
    out.mkdir(parents=True, exist_ok=True)
    stories = generate_documents(documents, seed=1, split=split, excerpts=True)
    text = join_documents(stories)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        for made in ("vocabulary", "store-train", "store-held-out", "run"):  # made from another text
            shutil.rmtree(out / made, ignore_errors=True)
        write_atomic(path, text)
    return path


def _vocabulary(out: Path, text: Path) -> Tokenizer:
    folder = out / "vocabulary"
    if not (folder / "spiece.model").exists():
        train_vocab([text], VocabConfig(vocab_size=VOCABULARY)).tokenizer.save(folder)
    return Tokenizer.load(folder)


def _headline(console: Console, number: int, text: str) -> None:
    console.print()
    console.print(Text.assemble((f"{number}  ", "bold cyan"), (text, "bold")))


def _print_scores(console: Console, scores: Scores, baselines: MaskBaselines) -> None:
    rows = [
        ("masked words", "this model", scores.mlm_accuracy, "bold green"),
        ("", "trigrams of the visible words", baselines.trigram, ""),
        ("", "unigrams: the most frequent piece", baselines.unigram, ""),
        ("sentence order", "this model", scores.sentence_accuracy, "bold green"),
        ("", "connectives alone", baselines.connectives, ""),
        ("", "a coin", 0.5, ""),
    ]
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, who, value, style in rows:
        if value is not None:
            bar = Text("█" * round(20 * value), style or "dim")
            table.add_row(Text(f"   {name}", "bold"), Text(who, style), Text(f"{value:6.1%}", style), bar)
    console.print(table)


def _print_samples(console: Console, path: Path, count: int = 6) -> None:
    samples = json.loads(path.read_text(encoding="utf-8"))
    console.print()
    for sample in samples[:count]:
        guess = sample["guesses"][0][0]
        right = guess["token"] == sample["answers"][0]
        before, _, after = sample["text"].partition("[MASK]")
        mark = Text(f" {guess['token']} ", "bold black on green" if right else "bold black on yellow")
        note = Text(f"  {guess['probability']:.0%}" + ("" if right else f", was: {sample['answers'][0]}"), "dim")
        console.print(Text("   ") + Text(_end(before)) + mark + Text(after[:60].split(" [")[0]) + note)


def _print_default(console: Console) -> None:
    """One prediction of the bundled model, which was trained on real text."""
    predictor = Predictor(device="cpu")
    (mask,) = predictor.fill_mask(ASKED, top=3).masks
    before, _, after = ASKED.partition("[MASK]")
    best, *others = mask.candidates
    others_too = ", ".join(f"{candidate.word} {candidate.probability:.0%}" for candidate in others)
    said = Text(f" {best.word} ", "bold black on green")
    note = Text(f"  {best.probability:.0%}, then {others_too}", "dim")
    console.print(Text("   ") + Text(before) + said + Text(after) + note)


def _end(text: str, most: int = 90) -> str:
    return text if len(text) <= most else "... " + text[-most:].split(" ", 1)[-1]
