"""Recovery with damaged files: every region of every small file of a run, a build and a store, alone and together.

    python benchmarks/damaged_files.py [--only pretraining] [--regions 12] [--together 40]

Makes an interrupted pretraining run, fine-tuning run and store build, and a finished store. Then, each time on a fresh
copy, it flips, zeroes or cuts off one region of one small file, or removes the file, or damages several files at once,
and reruns the same command. That must give the undamaged result (equal weights, equal bytes of the store) or one
LitebertError; with one damaged file of a run or a build, which have older state to fall back on, it must succeed.
Anything else is printed and makes the script fail.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tiny import tiny_model, tiny_run
from trials import describe_error, read_options, try_all

from litebert.errors import LitebertError
from litebert.files import file_sha256

SMALL = 64 << 10
MODES = ("flip", "zero", "cut", "remove")


@dataclass(frozen=True)
class Scene:
    """Something interrupted; `finish` resumes it and returns the result."""

    name: str
    folder: Path
    finish: Callable[[Path], dict[str, str]]
    must_recover: Callable[[Path], bool]  # whether it must survive damage to this file alone


def make_scenes(folder: Path) -> list[Scene]:
    """A pretraining run, a fine-tuning run, a build and a store."""
    from litebert.text.generate import generate_documents
    from litebert.text.train_vocab import VocabConfig, train_vocab

    texts = folder / "texts"
    texts.mkdir(parents=True)
    for number in range(3):
        documents = generate_documents(40, seed=number)
        (texts / f"{number}.txt").write_text("\n\n".join(map("\n".join, documents)), encoding="utf-8")
    train_vocab(sorted(texts.iterdir()), VocabConfig(vocab_size=200)).tokenizer.save(folder / "vocab")
    return [_store(folder), _build(folder), _pretraining(folder), _finetuning(folder)]


def _sums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): file_sha256(path) for path in files}


def _store(folder: Path) -> Scene:
    from litebert.text import store as store_module
    from litebert.text.build import build_store
    from litebert.text.store import TokenStore

    def read(place: Path) -> dict[str, str]:
        store_module._whole.clear()
        store = TokenStore.open(place)
        tokens = store.gather(store.sentence_offsets[:-1], store.sentence_offsets[1:])
        return {"tokens": str(tokens.tolist()), "documents": str(store.document_offsets.tolist())}

    build_store([folder / "texts"], folder / "vocab", folder / "store", workers=1)
    return Scene("store", folder / "store", read, lambda file: False)


def _build(folder: Path) -> Scene:
    """A build of three parts, of which two are finished."""
    from litebert.text import build as build_module

    place = folder / "build"

    class StopError(Exception):
        pass

    def stop_at_two(progress: build_module.Progress) -> None:
        if len(list((place / "build").glob("part-*.json"))) == 2:
            raise StopError

    def build(out: Path, on_progress: Callable[[build_module.Progress], None] = lambda progress: None) -> None:
        small, build_module.SMALL_FILE = build_module.SMALL_FILE, 1
        try:
            build_module.build_store([folder / "texts"], folder / "vocab", out, workers=1, on_progress=on_progress)
        finally:
            build_module.SMALL_FILE = small

    with contextlib.suppress(StopError):
        build(place, stop_at_two)
    assert (place / "build" / "part-00001.json").is_file()

    def go_on(out: Path) -> dict[str, str]:
        build(out)
        return _sums(out)

    return Scene("build", place, go_on, lambda file: True)


def _quiet() -> Console:
    return Console(file=io.StringIO())


def _pretraining(folder: Path) -> Scene:
    """A run of nine steps with checkpoints at three and six, killed after seven."""
    from litebert.pretraining.run import pretrain

    config = tiny_run(folder / "store", folder / "vocab", steps=9, log={"checkpoint_every": 3})

    def go_on(out: Path) -> dict[str, str]:
        from litebert.report import write_report

        pretrain(config, out, console=_quiet(), quiet=True)
        write_report([out], out / "report.html")
        return {"model": file_sha256(out / "model" / "model.safetensors"), "lines": _steps(out)}

    _stop_after(7, lambda: go_on(folder / "pretraining"))
    return Scene("pretraining", folder / "pretraining", go_on, lambda file: True)


def _finetuning(folder: Path) -> Scene:
    """A run of nine steps with its one checkpoint at six, killed after seven."""
    from litebert.finetuning.config import finetune_config
    from litebert.finetuning.run import finetune
    from litebert.model.heads import PretrainingModel
    from litebert.model.hub import save_model
    from litebert.text.tokenizer import Tokenizer
    from litebert.train.device import seed_everything

    tokenizer = Tokenizer.load(folder / "vocab")
    seed_everything(0)
    save_model(PretrainingModel(tiny_model(tokenizer.vocab_size)), folder / "model")
    tokenizer.save(folder / "model")
    rows = [json.dumps({"text": f"story {n} was {'good' if n % 2 else 'bad'}", "label": n % 2}) for n in range(24)]
    (folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    config = finetune_config(
        {
            "task": "classification",
            "model": str(folder / "model"),
            "preset": "base",
            "data": {"train": str(folder / "rows.jsonl"), "dev": str(folder / "rows.jsonl")},
            "optim": {"lr": 0.01},
            "batch": 8,
            "steps": 9,
            "device": {"device": "cpu", "threads": 1},
            "log": {"report_every": 1, "evaluate_every": 3, "checkpoint_every": 3},
        }
    )

    def go_on(out: Path) -> dict[str, str]:
        from litebert.report.finetuning_page import write_run_page

        finetune(config, out, console=_quiet(), quiet=True)
        write_run_page(out)
        return {"model": file_sha256(out / "best" / "model.safetensors"), "lines": _steps(out)}

    _stop_after(7, lambda: go_on(folder / "finetuning"))
    # One checkpoint is kept: without it there is nothing to go back to.
    return Scene("finetuning", folder / "finetuning", go_on, lambda file: "checkpoints" not in file.parts)


def _steps(run: Path) -> str:
    """Which steps a run's log reports, whatever was left out of it: all after the damage, in order."""
    from litebert.train.log import read_metrics

    steps = [line["step"] for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "train"]
    assert steps == sorted(set(steps)), steps
    return "9" if steps[-3:] == [7, 8, 9] else str(steps)


class KilledError(BaseException):
    """Ends a run without a word, as SIGKILL would."""


def _stop_after(step: int, go: Callable[[], object]) -> None:
    from litebert.train.trainer import Trainer

    update = Trainer.update

    def dying(self: Trainer, totals: object) -> None:
        if self.step == step:
            raise KilledError
        update(self, totals)

    Trainer.update = dying
    try:
        go()
    except KilledError:
        return
    finally:
        Trainer.update = update
    raise AssertionError("the run was not stopped")


def small_files(folder: Path) -> list[Path]:
    """The small files below a folder, by their names in it."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size <= SMALL)
    return [path.relative_to(folder) for path in found]


def damage(file: Path, mode: str, region: float, bit: int) -> None:
    """Flip a bit at, zero from, cut at a place (a share of the file), or remove it."""
    content = bytearray(file.read_bytes())
    place = min(int(region * len(content)), len(content) - 1)
    if mode == "remove" or not content:
        file.unlink()
        return
    if mode == "flip":
        content[place] ^= 1 << bit
    elif mode == "zero":
        content[place : place + 16] = bytes(len(content[place : place + 16]))
    else:
        del content[place:]
    file.write_bytes(content)


Case = tuple[tuple[Path, str, float, int], ...]


def cases(scene: Scene, regions: int, together: int) -> Iterator[Case]:
    """Every file alone, region by region; then several at once."""
    draw = random.Random(scene.name)
    files = small_files(scene.folder)
    for file in files:
        yield ((file, "remove", 0.0, 0),)
        for number in range(regions):
            mode = ("flip", "flip", "zero", "cut")[number % 4]
            yield ((file, mode, (number + draw.random()) / regions, draw.randrange(8)),)
    for _ in range(together):
        chosen = draw.sample(files, min(len(files), draw.randint(2, 4)))
        yield tuple((file, draw.choice(MODES), draw.random(), draw.randrange(8)) for file in chosen)


def try_case(scene: Scene, case: Case, expected: dict[str, str], place: Path) -> str:
    """What is wrong after this damage; '' if nothing."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(scene.folder, place)
    for file, mode, region, bit in case:
        damage(place / file, mode, region, bit)
    done = "; ".join(f"{mode} {file} at {region:.2f}, bit {bit}" for file, mode, region, bit in case)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            found = scene.finish(place)
    except LitebertError as error:
        if len(case) == 1 and scene.must_recover(case[0][0]):
            return f"{scene.name}: {done}: does not resume: {error}"
        return ""
    except Exception as error:
        return f"{scene.name}: {done}: {describe_error(error)}"
    return "" if found == expected else f"{scene.name}: {done}: ends with another result"


def try_scene(scene: Scene, regions: int, together: int, every: int = 1, first: int = 0) -> tuple[int, list[str]]:
    """The number of cases and the failures."""
    place = scene.folder.with_name(f"{scene.name}-damaged")
    shutil.copytree(scene.folder, place)
    expected = scene.finish(place)
    wrong, count = [], 0
    for number, case in enumerate(cases(scene, regions, together)):
        if number % every == first % every:
            count += 1
            problem = try_case(scene, case, expected, place)
            wrong += [problem] if problem else []
    shutil.rmtree(place)
    return count, wrong


def main() -> None:
    """Try every scene, print failures."""
    options = read_options(__doc__, regions=12, together=40)
    try_all(make_scenes, lambda scene: try_scene(scene, options.regions, options.together), options.only)


if __name__ == "__main__":
    main()
