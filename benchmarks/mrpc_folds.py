"""MRPC by cross-validation: every labelled pair scored by a model that has not seen it, beside simple baselines.

    python benchmarks/mrpc_folds.py MODEL DATA --out folds/ --contenders majority overlap bow tfidf
    python benchmarks/mrpc_folds.py MODEL DATA --out folds/ --contenders qnli qnli+sts-b [--lr 5e-5] [--seeds 3]
    python benchmarks/mrpc_folds.py MODEL DATA --out smoke/ --limit 60 --steps 2 --device cpu
    python benchmarks/mrpc_folds.py MODEL DATA --out folds/ --contenders         # none: the report of what is there

Dev's 408 pairs are too few to tell models apart that are two points from each other, so train and dev are cut anew.
Nothing is chosen on a fold: it is no dev split, so the last weights are scored. Pairs that share a sentence are in one
fold, and first tasks leave out every pair that has a sentence of MRPC in it (STS-B took many from there).

DATA holds GLUE's folders (glue/MRPC, and for some contenders glue/STS-B and glue/QNLI). Each contender and fold is a
small JSON in --out; what is there is skipped, so several processes may work in one folder, on contenders that do not
share a first task. FOLDS.json and FOLDS.md are about all that are complete.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from finetune_scores import TASKS, make_random

from litebert.baselines.features import make_encoder
from litebert.baselines.labels import LinearModel, guess_labels
from litebert.files import write_atomic
from litebert.finetuning.config import FinetuneConfig, finetune_config
from litebert.finetuning.evaluate import evaluate_task
from litebert.finetuning.run import FinetuneResult, finetune
from litebert.tasks.metrics import score, show_interval, show_value
from litebert.tasks.read import read_task
from litebert.tasks.task import Example, Task, TaskData, TextExample, kind_of
from litebert.text.lexical import split_words
from litebert.train.device import open_device

BASELINES = ("majority", "overlap", "bow", "tfidf")
# What a model learns before MRPC.
MODELS: dict[str, tuple[str, ...]] = {
    "default": (),
    "random": (),
    "sts-b": ("sts-b",),
    "qnli": ("qnli",),
    "qnli+sts-b": ("qnli", "sts-b"),
}
RIVAL, PLAIN = "tfidf", "overlap"  # what all are compared with
QUINTILES = 5

Pairs = list[TextExample]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--contenders", nargs="*", choices=[*BASELINES, *MODELS], default=[*BASELINES, *MODELS])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1, help="of each model on each fold")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--lr", type=float, default=5e-5, help="on MRPC; another one is another row")
    parser.add_argument("--epochs", type=float, default=5.0, help="on MRPC")
    parser.add_argument("--first-lr", type=float, default=1e-4, help="on STS-B and QNLI")
    parser.add_argument("--sts-b-epochs", type=float, default=5.0)
    parser.add_argument("--qnli-epochs", type=float, default=1.0)
    parser.add_argument("--qnli-limit", type=int, default=0, help="examples of QNLI; 0 = all")
    parser.add_argument("--steps", type=int, help="of every training, for a smoke run")
    parser.add_argument("--limit", type=int, default=0, help="pairs of MRPC and of STS-B, for a smoke run")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()

    options.out.mkdir(parents=True, exist_ok=True)
    data = read_task("mrpc", folder=options.data / TASKS["mrpc"].path)
    labelled = pairs_of([*data.train, *data.dev["dev"]])
    sentences = {key for pair in [*labelled, *pairs_of(data.test.get("test", []))] for key in keys_of(pair)}
    pairs = labelled[: options.limit or None]
    folds = cut_folds(pairs, options.folds)
    known = count_known(options.data, pairs_of(data.dev["dev"]))
    for contender in options.contenders:
        run_contender(options, contender, data.task, pairs, folds, sentences)
        write_report(options.out, data.task, pairs, folds, len(data.train), known)
    if not options.contenders:
        write_report(options.out, data.task, pairs, folds, len(data.train), known)
    print((options.out / "FOLDS.md").read_text(encoding="utf-8"))


# ---------------------------------------------------------------------------------------------------------------------
# Pairs and folds


def letters(text: str) -> str:
    """What makes two sentences the same: "It 's 5 %." -> "its5" (STS-B and MRPC set their marks differently)."""
    return "".join(filter(str.isalnum, text.lower()))


def pairs_of(examples: Sequence[Example]) -> Pairs:
    """Examples as what they are in MRPC, STS-B and QNLI."""
    return [example for example in examples if isinstance(example, TextExample)]


def cut_folds(pairs: Pairs, number: int, seed: int = 0) -> list[list[int]]:
    """The rows of each fold: of each label as many everywhere, and pairs that share a sentence never apart."""
    groups = group_rows(pairs)
    random.Random(seed).shuffle(groups)
    groups.sort(key=len, reverse=True)  # while all folds have room
    folds: list[list[int]] = [[] for _ in range(number)]
    counts: list[Counter[Any]] = [Counter() for _ in range(number)]
    for group in groups:
        labels = Counter(pairs[row].label for row in group)
        usual = labels.most_common(1)[0][0]
        fold = min(range(number), key=lambda n: (counts[n][usual], len(folds[n])))
        folds[fold] += group
        counts[fold] += labels
    return [sorted(rows) for rows in folds]


def group_rows(pairs: Pairs) -> list[list[int]]:
    """Rows that share a sentence, also by way of others: [[0], [1, 7], ...]."""
    group_of: dict[str, list[int]] = {}
    for row, pair in enumerate(pairs):
        found = {id(group): group for key in keys_of(pair) if (group := group_of.get(key))}
        merged = sorted([row, *(each for group in found.values() for each in group)])
        for each in merged:
            group_of.update(dict.fromkeys(keys_of(pairs[each]), merged))
    return list({id(group): group for group in group_of.values()}.values())


def count_known(data: Path, dev: Pairs) -> int | None:
    """How many of dev's pairs stand in STS-B's training file, with a similarity; None where that is not at hand."""
    folder = data / TASKS["sts-b"][0]
    if not folder.exists():
        return None
    learnt = {frozenset(keys_of(pair)) for pair in pairs_of(read_task("sts-b", folder=folder).train)}
    return sum(frozenset(keys_of(pair)) in learnt for pair in dev)


def keys_of(pair: TextExample) -> tuple[str, str]:
    """Both sentences by their letters."""
    return letters(pair.a), letters(pair.b or "")


# ---------------------------------------------------------------------------------------------------------------------
# Contenders


def run_contender(
    options: argparse.Namespace, contender: str, task: Task, pairs: Pairs, folds: list[list[int]], sentences: set[str]
) -> None:
    """All folds of a contender, without those that are there."""
    is_model = contender in MODELS
    name = f"{contender} lr {options.lr:g}" if is_model else contender
    settings = settings_of(options, contender)
    start: tuple[str, dict[str, Any]] | None = None
    for seed in range(options.seeds if is_model else 1):
        for number, rows in enumerate(folds):
            path = options.out / f"{name.replace(' ', '-')}-seed-{seed}-fold-{number}.json"
            if is_done(path, settings):
                continue
            if is_model and start is None:
                start = starting_model(options, contender, sentences)
            began = time.perf_counter()
            held = set(rows)
            learnt = [pair for row, pair in enumerate(pairs) if row not in held]
            asked = [pairs[row] for row in rows]
            facts: dict[str, Any] = {}
            if start is not None:
                config = training_config(options, "mrpc", start[0], options.lr, options.epochs, seed)
                said, steps = ask_model(config, task, learnt, asked)
                hardware = open_device(config.device).name
                facts = {**start[1], "steps": steps, "hardware": hardware, "torch": torch.__version__}
            else:
                said = ask_baseline(contender, task, learnt, asked)
            facts |= {"seconds": round(time.perf_counter() - began, 1), "date": time.strftime("%Y-%m-%d")}
            result = {"contender": name, "seed": seed, "fold": number, "settings": settings, **facts}
            write_atomic(path, json.dumps({**result, "rows": rows, "said": said}) + "\n")
            right = np.mean([(p > 0.5) == pair.label for p, pair in zip(said, asked, strict=True)])
            print(f"{name}, seed {seed}, fold {number}: {100 * right:.1f} in {facts['seconds']} s", flush=True)


def settings_of(options: argparse.Namespace, contender: str) -> dict[str, Any]:
    """What a result depends on: it counts as done only where these are the same."""
    names = ["folds", "limit"]
    if contender in MODELS:
        names += ["model", "preset", "lr", "epochs", "steps"]
    if MODELS.get(contender):
        names += ["first_lr"]
        names += ["sts_b_epochs"] if "sts-b" in MODELS[contender] else []
        names += ["qnli_epochs", "qnli_limit"] if "qnli" in MODELS[contender] else []
    return {name: getattr(options, name) for name in names}


def is_done(path: Path, settings: dict[str, Any]) -> bool:
    """Whether the result is there; one of other settings ends the program, as a row must not mix them."""
    if not path.exists():
        return False
    before = json.loads(path.read_text(encoding="utf-8"))["settings"]
    if before != settings:
        raise SystemExit(f"{path}: is of other settings, {before}; choose another --out")
    return True


def ask_baseline(kind: str, task: Task, learnt: Pairs, asked: Pairs) -> list[float]:
    """What a simple method decides about each pair, 0 or 1; `bow` and `tfidf` are those of `litebert baseline`."""
    if kind == "majority":
        decided = kind_of(task).constant(task, learnt, asked)[1]
    elif kind == "overlap":
        model = LinearModel(task)
        model.fit(overlap_features(learnt), [pair.label for pair in learnt])
        decided = model.predict(overlap_features(asked))
    else:
        decided = guess_labels(task, learnt, {"fold": asked}, make_encoder(kind))[1]["fold"]
    return [float(value) for value in decided]


def overlap_features(pairs: Pairs) -> np.ndarray:
    """[N, 7]: words and neighbours shared, how much of either text is covered, lengths, numbers that only one has."""
    rows = []
    for pair in pairs:
        a, b = words_of(pair.a), words_of(pair.b or "")
        shorter, longer = sorted((set(a), set(b)), key=len)
        both = len(shorter & longer)
        numbers = {word for word in shorter ^ longer if any(map(str.isdigit, word))}
        rows.append(
            (
                jaccard(set(a), set(b)),
                both / max(1, len(shorter)),
                both / max(1, len(longer)),
                jaccard(set(pairwise(a)), set(pairwise(b))),
                abs(np.log((1 + len(a)) / (1 + len(b)))),
                len(longer),
                len(numbers),
            )
        )
    return np.array(rows, dtype=float)


def words_of(text: str) -> list[str]:
    """Lower-case words and numbers, without marks."""
    return [word for word in split_words(text) if any(map(str.isalnum, word))]


def jaccard(a: set[Any], b: set[Any]) -> float:
    """The share of what both have in what either has."""
    return len(a & b) / max(1, len(a | b))


def starting_model(options: argparse.Namespace, contender: str, sentences: set[str]) -> tuple[str, dict[str, Any]]:
    """The model that learns the folds, after its first tasks (each trained once), and what those were."""
    if contender == "random":
        return str(make_random(options.model, options.out / "random")), {}
    model, done = options.model, ""
    facts: dict[str, dict[str, int]] = {}
    for task in MODELS[contender]:
        data = read_task(task, folder=options.data / TASKS[task][0])
        limit = options.qnli_limit if task == "qnli" else options.limit
        clean = [pair for pair in pairs_of(data.train) if not sentences & set(keys_of(pair))]
        left_out = len(data.train) - len(clean)
        clean = clean[: limit or None]
        done = f"{done}+{task}".strip("+")
        epochs = options.qnli_epochs if task == "qnli" else options.sts_b_epochs
        config = training_config(options, task, model, options.first_lr, epochs)
        result = train(config, options.out / "first" / done, data.task, clean)
        facts[task] = {"learnt": len(clean), "left_out_of_mrpc": left_out, "steps": result.step}
        print(f"{done}: {len(clean):,} pairs, {left_out:,} of MRPC left out, {result.step:,} steps", flush=True)
        model = str(result.model)
    return model, {"first": facts}


def training_config(
    options: argparse.Namespace, task: str, model: str, lr: float, epochs: float, seed: int = 0
) -> FinetuneConfig:
    """A run of the preset."""
    settings: dict[str, Any] = {"task": task, "preset": options.preset, "model": model, "seed": seed}
    settings |= {"optim": {"lr": lr}, "epochs": epochs, "device": {"device": options.device}}
    return finetune_config(settings | ({"steps": options.steps} if options.steps else {}))


def train(config: FinetuneConfig, out: Path, task: Task, examples: Pairs) -> FinetuneResult:
    """Fine-tune to the last step; without a dev split there is no choice."""
    result = finetune(config, out, quiet=True, data=TaskData(task, list(examples)))
    if result.signal is not None:
        raise SystemExit(128 + result.signal)
    return result


def ask_model(config: FinetuneConfig, task: Task, learnt: Pairs, asked: Pairs) -> tuple[list[float], int]:
    """The probability of a paraphrase for each pair, and the steps that were trained; the model is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        result = train(config, Path(folder) / "run", task, learnt)
        assert result.model is not None
        data = TaskData(task, dev={"fold": list(asked)})
        [scored] = evaluate_task([result.model], data=data, device=config.device.device)
    said = [prediction.probabilities for prediction in scored.evaluations[0].predictions]
    return [round(float(each[1]), 6) for each in said if each is not None], result.step


# ---------------------------------------------------------------------------------------------------------------------
# The report


def write_report(
    out: Path, task: Task, pairs: Pairs, folds: list[list[int]], num_train: int, known: int | None
) -> None:
    """FOLDS.json and FOLDS.md about all contenders that are complete; from `num_train` on, pairs are those of dev."""
    gathered = gather(out, folds)
    complete = {name: said for name, said in gathered.items() if not np.isnan(said).any()}
    gold = np.array([pair.label for pair in pairs])
    overlap = np.array([jaccard(set(words_of(pair.a)), set(words_of(pair.b or ""))) for pair in pairs])
    parts = np.array_split(np.argsort(overlap, kind="stable"), QUINTILES)
    decided = with_votes({name: (said > 0.5).astype(int) for name, said in complete.items()})
    sure = {name: float(np.maximum(said, 1 - said).mean()) for name, said in complete.items() if name not in BASELINES}
    dev = slice(num_train, None)
    rows = [describe(name, decided, task, pairs, gold, parts, dev) | {"sure": sure.get(name)} for name in decided]
    quintiles = [
        {"from": overlap[part].min(), "to": overlap[part].max(), "pairs": len(part), "paraphrases": gold[part].mean()}
        for part in parts
    ]
    learnt = {key for pair in pairs[:num_train] for key in keys_of(pair)}
    facts = {
        "pairs": len(pairs),
        "folds": [len(rows) for rows in folds],
        "paraphrases": float(gold.mean()),
        "dev_pairs": len(pairs[dev]),
        "dev_pairs_with_a_sentence_of_train": sum(not learnt.isdisjoint(keys_of(pair)) for pair in pairs[dev]),
        "dev_pairs_in_sts_b": known,
    }
    unfinished = sorted(set(gathered) - set(complete))
    found = {**facts, "unfinished": unfinished, "quintiles": quintiles, "rows": rows}
    write_atomic(out / "FOLDS.json", json.dumps(found, indent=1) + "\n")
    write_atomic(out / "FOLDS.md", markdown(found) + "\n")


def gather(out: Path, folds: list[list[int]]) -> dict[str, np.ndarray]:
    """What each contender says about every pair, NaN where it has not yet; several seeds each, and their mean."""
    rank = {name: number for number, name in enumerate([*BASELINES, *MODELS])}
    seeds: dict[str, dict[int, np.ndarray]] = defaultdict(dict)
    for path in sorted(out.glob("*-seed-*-fold-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if result["fold"] >= len(folds) or result["rows"] != folds[result["fold"]]:
            raise SystemExit(f"{path}: is about other pairs than this call's (--folds, --limit); choose another --out")
        said = seeds[result["contender"]].setdefault(result["seed"], np.full(sum(map(len, folds)), np.nan))
        said[result["rows"]] = result["said"]
    gathered = {}
    for name in sorted(seeds, key=lambda name: (rank[name.split()[0]], name)):
        if len(seeds[name]) == 1:
            gathered[name] = next(iter(seeds[name].values()))
            continue
        gathered |= {f"{name}, seed {seed}": said for seed, said in sorted(seeds[name].items())}
        gathered[f"{name}, mean of {len(seeds[name])}"] = np.mean(list(seeds[name].values()), axis=0)
    return gathered


def with_votes(decided: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Beside each contender, what two of three say: it, TF-IDF and overlap. Does it know what counting does not?"""
    if not {RIVAL, PLAIN} <= decided.keys():
        return decided
    votes = {
        f"vote of {RIVAL}, {PLAIN} and {name}": (own + decided[RIVAL] + decided[PLAIN] > 1).astype(int)
        for name, own in decided.items()
        if name not in ("majority", RIVAL, PLAIN)
    }
    return decided | votes


def describe(
    name: str,
    decided: dict[str, np.ndarray],
    task: Task,
    pairs: Pairs,
    gold: np.ndarray,
    parts: list[np.ndarray],
    dev: slice,
) -> dict[str, Any]:
    """Scores of a contender, and how it differs from TF-IDF and from overlap alone."""
    own = decided[name]
    right = own == gold
    scores = score(task, pairs, own.tolist())
    row: dict[str, Any] = {
        "contender": name,
        "scores": {metric: found.as_dict() for metric, found in scores.items()},
        "shown": [f"{show_value(scores[m].value)} ({show_interval(scores[m])})" for m in ("accuracy", "f1")],
        "paraphrases": float(own.mean()),
        "on_dev": float(right[dev].mean()) if len(right[dev]) else None,
        "by_quintile": [float(right[part].mean()) for part in parts],
    }
    for rival in (RIVAL, PLAIN):
        if rival in decided and rival != name:
            row[f"against_{rival}"] = compare(own, decided[rival], gold)
    return row


def compare(own: np.ndarray, other: np.ndarray, gold: np.ndarray) -> dict[str, Any]:
    """How often two agree; the pairs that only one gets right, and how likely so uneven a split is (McNemar, exact)."""
    from scipy.stats import binomtest

    differ = own != other
    better = int((differ & (own == gold)).sum())
    worse = int(differ.sum()) - better
    p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    points = (better - worse) / len(gold)
    return {"agree": float((~differ).mean()), "better": better, "worse": worse, "points": points, "p": p}


def markdown(found: dict[str, Any]) -> str:
    """Scores, comparisons, and accuracy by how many words the two texts share."""
    sizes, shared = found["folds"], found["dev_pairs_with_a_sentence_of_train"]
    header = ["contender", "accuracy", "F1", "accuracy on dev's pairs", "says yes", "how sure, mean"]
    header += [f"against {RIVAL}", "only it right", f"only {RIVAL} right", "p"]
    header += [f"agrees with {PLAIN}", "right where it does not"]
    lines = [
        f"{found['pairs']:,} pairs in {len(sizes)} folds of {min(sizes)} to {max(sizes)}, "
        f"{100 * found['paraphrases']:.1f} % paraphrases; 95 % bootstrap intervals; p is McNemar's, exact. "
        f"Of dev's {found['dev_pairs']:,} pairs {shared} have a sentence that train has too, and "
        f"{found['dev_pairs_in_sts_b']} stand in STS-B's training file.",
        "",
        "| " + " | ".join(header) + " |",
        "|---" * len(header) + "|",
    ]
    for row in found["rows"]:
        rival, plain = row.get(f"against_{RIVAL}"), row.get(f"against_{PLAIN}")
        cells = [row["contender"], *row["shown"], show_value(row["on_dev"]), f"{100 * row['paraphrases']:.1f} %"]
        cells += [f"{100 * row['sure']:.1f} %" if row["sure"] is not None else ""]
        cells += (
            [f"{100 * rival['points']:+.1f}", rival["better"], rival["worse"], show_p(rival["p"])]
            if rival
            else [""] * 4
        )
        cells += [f"{100 * plain['agree']:.1f} %", show_share(plain["better"], plain["worse"])] if plain else [""] * 2
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    ranges = [f"{part['from']:.2f} – {part['to']:.2f}" for part in found["quintiles"]]
    lines += ["", "Accuracy by the share of words that both texts have (Jaccard), a fifth of the pairs each:", ""]
    lines += ["| contender | " + " | ".join(ranges) + " |", "|---" * (1 + QUINTILES) + "|"]
    table = [("paraphrases, %", [part["paraphrases"] for part in found["quintiles"]])]
    table += [(row["contender"], row["by_quintile"]) for row in found["rows"]]
    lines += [f"| {name} | " + " | ".join(f"{100 * value:.1f}" for value in values) + " |" for name, values in table]
    if found["unfinished"]:
        lines += ["", f"Not all folds are there of: {', '.join(found['unfinished'])}."]
    return "\n".join(lines)


def show_p(p: float) -> str:
    """0.0312 -> "0.031"; tiny ones as powers."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"


def show_share(better: int, worse: int) -> str:
    """The share of pairs with another decision that are right: (30, 20) -> "60.0 % of 50"."""
    return f"{100 * better / (better + worse):.1f} % of {better + worse:,}" if better + worse else ""


if __name__ == "__main__":
    main()
