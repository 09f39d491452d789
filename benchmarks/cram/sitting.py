"""One sitting on a rented GPU against the clock: text -> stores -> a run -> the fp16 model -> adapters, depth, scores.

    python benchmarks/cram/sitting.py benchmarks/cram/fourth.yaml --corpora CORPORA --tasks TASKS --work WORK \\
        --train-until 1000 --until 1650
    python benchmarks/cram/sitting.py RUN.yaml --corpora CORPORA --tasks TASKS --work /tmp/w --smoke   # on a CPU

Seconds count from the start. WORK gets data/ and vocab (where the run's config expects them), run/, model/ (the fp16
model folder), abilities/, depth/, scores/, logs/ with one log per step, and out/ with what should be brought home,
written as soon as it is there: the model in parts of 12 MB (`cat model.part* > model.safetensors`), the generator,
logs, adapters, tables, in out/depth the packed models of depth_curve.py. A step that fails or runs out of time is
reported and does not end the others; what is complete is not done again when the command is repeated. Corpora may
still be arriving: the file CORPORA/complete says that all are there.

A run in another language takes its --vocab along; after Korean, unseen text and film reviews (NSMC) are scored.

Adapters, scores and the models for the depth curve are trained side by side, on a GPU that MPS shares where it is
installed, until little more than the time for timing is left: depth_curve.py then times alone, over as many seeds as
are complete. Its runs without exits are the scores of SST-2, QNLI, STS-B and SQuAD. On an H200, adapters and one seed
of the curve took about 430 s side by side, the timing 180 s; --measure leaves parts out for a longer run.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from litebert.model.hub import WEIGHTS_FILE, load_model, save_model
from litebert.pretraining.objective import DETECTION_FILE as DETECTION
from litebert.remote import DEFAULT_FOLDER
from litebert.text.tokenizer import Tokenizer

HERE = Path(__file__).resolve().parent
PART = 12_000_000  # bytes
SCORED = ("cola", "mrpc", "rte", "mnli-20k", "rte-after-mnli")
PARTS = ("adapters", "scores", "depth", "blimp")
RESERVE = 15  # seconds in which a stopped step still writes its files
TIMING = 270  # seconds for timing the depth curve, alone, and minimal pairs


class Clock:
    """Seconds since the start, and steps that must end in time."""

    def __init__(self, work: Path):
        self.work, self.began = work, time.monotonic()

    def now(self) -> int:
        return round(time.monotonic() - self.began)

    def step(self, name: str, until: float, script: Path | str, *given: object) -> bool:
        """Run a script, or a command of litebert, in WORK; stopped by SIGTERM when its time is over."""
        target = ["-m", "litebert", script] if isinstance(script, str) else [str(script)]
        print(f"{self.now()} begin {name}", flush=True)
        with (self.work / "logs" / f"{name}.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, *target, *map(str, given)],
                cwd=self.work,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, since a step may have started others
            )
            try:
                process.wait(max(1.0, until - self.now()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(RESERVE)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        print(f"{self.now()} end {name}: {process.wait()}", flush=True)
        return process.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="of the run; its minutes are set by --train-until")
    parser.add_argument("--corpora", type=Path, required=True, help="folder of NAME.txt.xz")
    parser.add_argument("--tasks", type=Path, required=True, help="folder with glue, squad, pairs, blimp; or with nsmc")
    parser.add_argument("--vocab", type=Path, default=DEFAULT_FOLDER, help="a tokenizer's folder")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--train-until", type=float, default=1000)
    parser.add_argument("--until", type=float, default=1650)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the run")
    parser.add_argument("--seeds", type=int, default=3, help="of the depth curve and of the scores")
    parser.add_argument("--measure", nargs="+", choices=PARTS, default=PARTS, help="what, after the run")
    parser.add_argument("--smoke", action="store_true", help="a few steps of everything, without waiting")
    given = parser.parse_args()
    for name in ("config", "corpora", "tasks", "vocab", "work"):
        setattr(given, name, getattr(given, name).resolve())
    for name in ("logs", "out"):
        (given.work / name).mkdir(parents=True, exist_ok=True)
    clock = Clock(given.work)
    train(given, clock)
    if not (given.work / "run" / "model" / "config.json").is_file():
        sys.exit(f"no model; see {given.work / 'logs'}")
    convert(given.work)
    measure_unseen(given, clock)
    if (given.tasks / "nsmc").is_dir():
        measure_korean(given, clock)
    else:
        measure(given, clock)
    print(f"{clock.now()} all done", flush=True)


def train(given: argparse.Namespace, clock: Clock) -> None:
    """Stores of all corpora, then the run."""
    while not given.smoke and not (given.corpora / "complete").exists():
        time.sleep(0.5)
    vocab = given.work / "vocab"
    if not vocab.exists():
        shutil.copytree(given.vocab, vocab, ignore=shutil.ignore_patterns("adapters", WEIGHTS_FILE, "SHA256SUMS"))
    corpora = sorted(given.corpora.glob("*.txt*"))
    clock.step("prepare", given.until, HERE / "prepare.py", *corpora, "--tokenizer", vocab, "--out", "data")
    minutes = max(0.1, (given.train_until - RESERVE - clock.now()) / 60)
    settings = [f"max_minutes={minutes:.2f}", *given.set]
    if given.smoke:
        settings += ["steps=2", "batch_tokens=1024", "micro_batch_tokens=1024", "data.workers=0", "data.held_out=2"]
        settings += ["log.evaluate_batches=1", "optim.warmup_steps=1"]
    pairs = [part for setting in settings for part in ("--set", setting)]
    clock.step("run", given.until, "pretrain", given.config, *pairs, "--out", "run")


def convert(work: Path) -> None:
    """The run's model in fp16, also in parts, its generator, and its log."""
    if not (work / "model" / WEIGHTS_FILE).exists():
        save_model(load_model(work / "run" / "model"), work / "model", torch.float16)
        Tokenizer.load(work / "run" / "model").save(work / "model")
    data = (work / "model" / WEIGHTS_FILE).read_bytes()
    for number, begin in enumerate(range(0, len(data), PART)):
        (work / "out" / f"model.part{number}").write_bytes(data[begin : begin + PART])
    if (work / "run" / DETECTION).exists():  # for a run that goes on: a new generator needs minutes to become useful
        halves = {name: tensor.half() for name, tensor in load_file(work / "run" / DETECTION).items()}
        save_file(halves, work / "out" / DETECTION)
    keep(work, "run.tar.xz", *(work / "run" / name for name in ("config.yaml", "metrics.jsonl", "run.json")))


def measure_unseen(given: argparse.Namespace, clock: Clock) -> None:
    """Masked LM and order on the text that prepare.py kept aside, at both lengths of training."""
    folder = given.work / "data" / "unseen"
    files = sorted(folder.glob("*.txt"), reverse=True)  # their order decides the masks
    unseen = [part for path in files for part in ("--text", path)]
    for length in (512, 128) if unseen else ():
        tokens = ["--max-length", length, "--tokens", 2000 if given.smoke else 200_000, "--json"]
        clock.step(f"unseen-{length}", given.until, "evaluate", given.work / "model", *unseen, *tokens)
    keep(given.work, "logs.tar.xz", given.work / "logs")


def measure_korean(given: argparse.Namespace, clock: Clock) -> None:
    """Film reviews, three passes; the last weights are scored."""
    reviews = given.tasks / "nsmc"
    files = ["--train", reviews / "ratings_train.txt", "--dev", reviews / "ratings_test.txt"]
    files += ["--column", "text=document", "--column", "label=label"]
    settings = ["epochs=3", "batch=64", "optim.lr=1e-4", "log.num_evaluations=1"]
    settings += ["steps=2", "data.limit=32"] if given.smoke else []
    options = [part for setting in settings for part in ("--set", setting)]
    options += ["--seeds", 1 if given.smoke else given.seeds, "--out", "nsmc"]
    task = ["--task", "classification", "--model", "model"]
    clock.step("nsmc", given.until, "finetune", *task, *files, *options)
    keep(given.work, "scores.tar.xz", *sorted((given.work / "nsmc").rglob("scores.json")))
    keep(given.work, "logs.tar.xz", given.work / "logs")


def measure(given: argparse.Namespace, clock: Clock) -> None:
    """Adapters beside the depth curve's models; the curve; scores, minimal pairs."""
    work, model, until = given.work, given.work / "model", given.until
    few = ["--limit", 32, "--steps", 2] if given.smoke else []
    jobs = 1 if given.smoke else 4
    corpus = next(iter(sorted(given.corpora.glob("simplewiki*"))), sorted(given.corpora.glob("*.txt*"))[0])
    # When training ends, so that what is there can be timed.
    timing = until - (TIMING if "depth" in given.measure and not given.smoke else 3 * RESERVE)
    depth = [model, given.tasks, "--out", "depth", "--bring", "out/depth", *few]
    depth += [] if given.smoke else ["--timed-tokens", 300000, "--max-tokens", 32768, 131072]
    depth += ["--tasks", "sts-b", "--splits", 2] if given.smoke else []
    seeds = 1 if given.smoke else given.seeds

    def adapters() -> bool:
        options = [model, given.tasks, "--corpus", corpus, "--out", "abilities", "--jobs", jobs, *few]
        done = clock.step("abilities", timing, HERE / "abilities.py", *options)
        keep(work, "abilities.tar.xz", work / "abilities")
        return done

    def scores() -> bool:
        tasks = SCORED[1:2] if given.smoke else SCORED
        options = [model, given.tasks, "--out", "scores", "--seeds", seeds, "--jobs", jobs, *few]
        done = clock.step("scores", timing, HERE.parent / "finetune_scores.py", *options, "--tasks", *tasks)
        keep(
            work, "scores.tar.xz", *sorted((work / "scores").rglob("scores.json")), *(work / "scores").glob("SCORES.*")
        )
        return done

    def deep() -> bool:
        more = ["--jobs", jobs if given.smoke else 6, "--train-only", "--seeds", seeds]
        return clock.step("depth-train", timing, HERE.parent / "depth_curve.py", *depth, *more)

    steps = {"depth": deep, "adapters": adapters, "scores": scores}
    lines = [[steps[name] for name in line if name in given.measure] for line in (("depth",), ("adapters", "scores"))]
    with shared_gpu(work), concurrent.futures.ThreadPoolExecutor() as pool:
        ended = [pool.submit(lambda line=line: all(step() for step in line)) for line in lines]
    for found, line in zip(ended, lines, strict=True):
        if not found.result() and clock.now() < timing - 2 * RESERVE:  # a fault of one process under MPS ends all
            for step in line:
                step()
    trained = 0
    while "depth" in given.measure and trained < seeds and all_trained(work / "depth", trained, given.smoke):
        trained += 1
    if trained:
        at_once = 1 if given.smoke else 4 * trained
        more = ["--seeds", trained, "--jobs", at_once]
        clock.step("depth", until - RESERVE, HERE.parent / "depth_curve.py", *depth, *more)
    keep(work, "logs.tar.xz", work / "logs", work / "depth" / "logs")
    if "blimp" in given.measure and not given.smoke:
        clock.step("blimp", until, "evaluate", model, "--blimp", given.tasks / "blimp" / "full", "--json")
    keep(work, "logs.tar.xz", work / "logs", work / "depth" / "logs")


def all_trained(depth: Path, seed: int, smoke: bool) -> bool:
    """Whether the depth curve has all models of a seed, with exits and without."""
    tasks = ("sts-b",) if smoke else ("squad-1.1", "qnli", "sst-2", "sts-b")
    folders = [depth / f"{task}-{kind}-{seed}" for task in tasks for kind in ("plain", "exits")]
    return all((folder / "took.json").is_file() for folder in folders)


@contextlib.contextmanager
def shared_gpu(work: Path) -> Iterator[None]:
    """Within this block, kernels of several processes run on the GPU at once; without MPS they take turns."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield
        return
    place = {"CUDA_MPS_PIPE_DIRECTORY": str(work / "mps"), "CUDA_MPS_LOG_DIRECTORY": str(work / "logs")}
    (work / "mps").mkdir(exist_ok=True)
    os.environ |= place
    subprocess.run([control, "-d"], check=False)
    try:
        yield
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([control], input="quit\n", text=True, check=False, timeout=30)
        for name in place:
            del os.environ[name]


def keep(work: Path, name: str, *paths: Path) -> None:
    """What is there of some files and folders, without models and checkpoints, as WORK/out/NAME."""

    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if Path(entry.name).name in ("best", "checkpoints", "corpus.txt") else entry

    with tarfile.open(work / "out" / name, "w:xz") as archive:
        for path in paths:
            if path.exists():
                archive.add(path, path.relative_to(work), filter=chosen)


if __name__ == "__main__":
    main()
