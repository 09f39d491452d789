"""Fine-tuning speed: ours against transformers' Trainer (bf16, dynamic padding), on files of SST-2, QNLI and SQuAD.

    python benchmarks/finetune_speed.py --sst-2 glue/SST-2 --qnli glue/QNLI --squad-1.1 squad --out result.json
    python benchmarks/finetune_speed.py --sst-2 glue/SST-2 --model albert-tiny --steps 3 --rounds 1 --device cpu

Both get the same token ids, the same batch size and the same work per step (forward, backward, clipping at 1, AdamW,
linear schedule), from the same weights. Timed are steps in a row after a warm-up, in interleaved rounds; the ratio is
that of the medians. Where `accelerate` is missing, which the Trainer needs, its loop is written out here.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from litebert.files import write_atomic
from litebert.finetuning.config import FinetuneConfig, finetune_config
from litebert.finetuning.data import Data, open_tokenizer, read_data
from litebert.finetuning.run import Finetuning
from litebert.model.config import PRESETS, load_config, preset, vary
from litebert.model.heads import PretrainingModel
from litebert.model.hub import save_model
from litebert.remote import find_folder
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import Device, open_device
from litebert.train.graphs import shape_of
from litebert.train.processes import World
from litebert.train.trainer import Trainer

TASKS = {"sst-2": (32, 128), "qnli": (32, 128), "squad-1.1": (48, 384)}  # batch of Table 14, length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for task in TASKS:
        parser.add_argument(f"--{task}", dest=task, help=f"folder with the official files of {task}")
    parser.add_argument("--model", default="albert-base", help="a preset (random weights) or a model folder")
    parser.add_argument("--tokenizer", default="default", help="a folder with one, for a preset")
    parser.add_argument("--steps", type=int, default=300, help="timed steps per round")
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0, help="read only so many examples")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--fast-layers", default="on", choices=["on", "off"])
    parser.add_argument("--out", help="write JSON here")
    arguments = parser.parse_args()
    folders = {task: getattr(arguments, task) for task in TASKS if getattr(arguments, task)}
    if not folders:
        parser.error("name the files of at least one task: --sst-2 FOLDER, --qnli FOLDER or --squad-1.1 FOLDER")

    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        model = prepare_model(arguments, Path(scratch) / "model")
        for task, folder in folders.items():
            for found in compare(arguments, task, folder, model, Path(scratch)):
                results[task] = found
                write_report(arguments, results)  # after every round: a run that is cut short has lost nothing
            print(json.dumps({task: results[task]}), flush=True)


def write_report(arguments: argparse.Namespace, results: dict[str, Any]) -> None:
    """What was measured so far, as JSON."""
    device = open_device(config_of(arguments, next(iter(results)), "", "").device)
    report = {
        "hardware": device.name,
        "precision": device.precision,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "date": time.strftime("%Y-%m-%d"),
        "model": arguments.model,
        "steps": arguments.steps,
        "fast_layers": arguments.fast_layers,
        "baseline": "Trainer" if has_accelerate() else "the Trainer's loop, written out (no accelerate here)",
        "tasks": results,
    }
    if arguments.out:
        write_atomic(arguments.out, json.dumps(report, indent=1) + "\n")


def prepare_model(arguments: argparse.Namespace, out: Path) -> str:
    """A model folder that both sides open: the one that was named, or random weights of a preset."""
    if arguments.model not in PRESETS:
        return str(find_folder(arguments.model))
    tokenizer = Tokenizer.load(find_folder(arguments.tokenizer, weights=False))
    torch.manual_seed(0)
    shape = vary(preset(arguments.model), vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id)
    save_model(PretrainingModel(shape), out)
    tokenizer.save(out)
    return str(out)


def config_of(arguments: argparse.Namespace, task: str, folder: str, model: str) -> FinetuneConfig:
    """Our run."""
    batch, length = TASKS[task]
    return finetune_config(
        {
            "task": task,
            "preset": "base",
            "model": model,
            "data": {"folder": folder, "limit": arguments.limit},
            "batch": batch,
            "max_length": length,
            "steps": 10_000,  # never reached; a long run, so that it is compiled where that helps
            "dropout": 0.0,
            "device": {"device": arguments.device, "fast_layers": arguments.fast_layers},
            "log": {"report_every": 1_000_000, "evaluate_every": 1_000_000},
        }
    )


def compare(
    arguments: argparse.Namespace, task: str, folder: str, model: str, scratch: Path
) -> Iterator[dict[str, Any]]:
    """Examples per second of both sides, after every round what is known so far."""
    config = config_of(arguments, task, folder, model)
    device = open_device(config.device)
    data = read_data(config, open_tokenizer(model), load_config(model))
    lengths = [len(sequence.ids) for sequence in data.train.features]
    ours: list[float] = []
    theirs: list[float] = []
    problem = None
    for number in range(arguments.rounds):
        rate, problem = measure_ours(config, data, device, arguments, scratch / f"{task}-run-{number}")
        ours.append(rate)
        theirs.append(measure_theirs(config, data, device, arguments, scratch / f"{task}-trainer-{number}"))
        yield {
            "batch": config.batch,
            "mean_tokens": round(float(np.mean(lengths)), 1),
            "ours": [round(rate, 1) for rate in ours],
            "transformers": [round(rate, 1) for rate in theirs],
            "ratio": round(statistics.median(ours) / statistics.median(theirs), 2),
            "problem": problem,
        }


def measure_ours(
    config: FinetuneConfig, data: Data, device: Device, arguments: argparse.Namespace, out: Path
) -> tuple[float, str | None]:
    """Examples per second of our own training step, and what kept steps from being recorded (on a GPU)."""
    out.mkdir(parents=True)
    learner = Finetuning(config, data, device, World())
    with Trainer(learner, config, out, device, World(), quiet=True) as trainer:
        if learner.training.shapes:  # each size is recorded at its first use, which a long run pays once
            for inputs in first_of_each_shape(learner):
                trainer.take_step(inputs, torch.ones(1, device=device.device))
            trainer.take_step.clear()
        problem = next(iter(trainer.take_step.news), None)
        for _ in range(arguments.warm_up):
            train_step(trainer)
        device.synchronize()
        began = time.perf_counter()
        for _ in range(arguments.steps):
            train_step(trainer)
        device.synchronize()
        return config.batch * arguments.steps / (time.perf_counter() - began), problem


def train_step(trainer: Trainer) -> None:
    """What the loop does with a step that is in order."""
    totals, _ = trainer.forward_backward()
    trainer.update(totals)
    trainer.take_step.clear()
    trainer.step += 1


def first_of_each_shape(learner: Finetuning, most: int = 2000) -> Iterator[Any]:
    """One micro-batch of every planned size that the next steps hold."""
    seen = set()
    for batches in itertools.islice(learner.batches(0), most):
        for inputs in batches.inputs:
            if shape_of(inputs) not in seen:
                seen.add(shape_of(inputs))
                yield inputs
        if len(seen) >= len(learner.training.shapes):
            return


# ---------------------------------------------------------------------------------------------------------------------
# The other side


class Features(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The same token ids as transformers wants them."""

    def __init__(self, data: Data):
        self.features, self.kind = data.train.features, data.task.kind

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> dict[str, Any]:
        sequence = self.features[index]
        item: dict[str, Any] = {"input_ids": sequence.ids.tolist(), "token_type_ids": sequence.segments.tolist()}
        if self.kind == "question-answering":
            assert isinstance(sequence.target, tuple)
            item["start_positions"], item["end_positions"] = sequence.target[:2]
        else:
            item["labels"] = sequence.target
        return item


def pad_batch(items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Dynamic padding: to the longest of the batch, as DataCollatorWithPadding does."""
    longest = max(len(item["input_ids"]) for item in items)
    batch: dict[str, torch.Tensor] = {}
    for key, value in items[0].items():
        if isinstance(value, list):
            batch[key] = torch.tensor([item[key] + [0] * (longest - len(item[key])) for item in items])
        else:
            batch[key] = torch.tensor([item[key] for item in items])
    lengths = torch.tensor([len(item["input_ids"]) for item in items])
    batch["attention_mask"] = (torch.arange(longest)[None] < lengths[:, None]).long()
    return batch


def has_accelerate() -> bool:
    """Whether the Trainer can be used."""
    return importlib.util.find_spec("accelerate") is not None


def measure_theirs(
    config: FinetuneConfig, data: Data, device: Device, arguments: argparse.Namespace, out: Path
) -> float:
    """Examples per second of the Trainer on the same data."""
    torch.manual_seed(0)
    # Weights may lie in half precision in the folder; both sides train float32 ones, with bf16 products.
    if data.task.kind == "question-answering":
        model = transformers.AutoModelForQuestionAnswering.from_pretrained(config.model, dtype=torch.float32)
    else:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            config.model, num_labels=len(data.task.labels), dtype=torch.float32
        )
    steps = arguments.warm_up + arguments.steps
    measure: Callable[..., float] = measure_trainer if has_accelerate() else measure_loop
    seconds = measure(model, Features(data), config, device, arguments.warm_up, steps, out)
    return config.batch * arguments.steps / seconds


def measure_trainer(
    model: Any, dataset: Features, config: FinetuneConfig, device: Device, warm_up: int, steps: int, out: Path
) -> float:
    """Seconds of the steps after the warm-up, inside transformers' Trainer."""

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        began = ended = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step in (warm_up, steps):
                device.synchronize()
                now = time.perf_counter()
                if state.global_step == warm_up:
                    self.began = now
                else:
                    self.ended = now

    clock = Clock()
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(out),
            per_device_train_batch_size=config.batch,
            max_steps=steps,
            learning_rate=config.optim.lr,
            bf16=device.precision == "bf16",
            use_cpu=not device.is_cuda,
            logging_steps=1_000_000,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_num_workers=4 if device.is_cuda else 0,
            max_grad_norm=1.0,
        ),
        train_dataset=dataset,
        data_collator=pad_batch,
        callbacks=[clock],
    )
    trainer.train()
    return clock.ended - clock.began


def measure_loop(
    model: Any, dataset: Features, config: FinetuneConfig, device: Device, warm_up: int, steps: int, out: Path
) -> float:
    """The same with the Trainer's default loop written out: fused AdamW, clipping, linear schedule, bf16 autocast."""
    model.to(device.device).train()
    loader = torch.utils.data.DataLoader(
        dataset,
        config.batch,
        shuffle=True,
        collate_fn=pad_batch,
        drop_last=True,
        num_workers=4 if device.is_cuda else 0,
        pin_memory=device.is_cuda,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.optim.lr, fused=device.is_cuda)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, steps)
    began, done = 0.0, 0
    while True:
        for batch in loader:
            inputs = {name: tensor.to(device.device, non_blocking=True) for name, tensor in batch.items()}
            with device.autocast():
                loss = model(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            done += 1
            if done == warm_up:
                device.synchronize()
                began = time.perf_counter()
            if done == steps:
                device.synchronize()
                return time.perf_counter() - began


if __name__ == "__main__":
    main()
