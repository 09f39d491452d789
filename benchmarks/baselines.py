"""Baselines on public tasks: one Markdown table of every task whose files lie under a folder.

    python benchmarks/baselines.py DATA --out results/
DATA holds GLUE's folders (glue/SST-2, ...), squad/, race/ and nsmc/ (ratings_train.txt, ratings_test.txt). Each task's
table is kept as JSON in --out; tasks that are there already are not measured again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from litebert.baselines.table import BaselineTable, Method, rows_of, score_baselines
from litebert.tasks.metrics import Metric
from litebert.tasks.read import read_task
from litebert.tasks.task import TaskData

# Task, its folder, and training examples at most: word vectors of all of the large ones take long on one core.
TASKS = (
    ("cola", "glue/CoLA", 0),
    ("sst-2", "glue/SST-2", 0),
    ("mrpc", "glue/MRPC", 0),
    ("sts-b", "glue/STS-B", 0),
    ("qnli", "glue/QNLI", 20_000),
    ("rte", "glue/RTE", 0),
    ("wnli", "glue/WNLI", 0),
    ("squad-1.1", "squad", 3_000),
    ("race", "race", 2_000),
    ("nsmc", "nsmc", 50_000),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="these tasks alone")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, folder, max_train in TASKS:
        kept = arguments.out / f"{name}.json"
        if (arguments.only and name not in arguments.only) or not (arguments.data / folder).is_dir():
            continue
        if not kept.exists():
            table = score_baselines(read(name, arguments.data / folder), ["all"], max_train=max_train)
            kept.write_text(json.dumps(table.as_dict(), indent=1), encoding="utf-8")
        print(markdown(name, load(kept)), flush=True)


def read(name: str, folder: Path) -> TaskData:
    """A task's examples; NSMC is read as anybody's own files are."""
    if name != "nsmc":
        return read_task(name, folder=folder)
    train, dev = folder / "ratings_train.txt", folder / "ratings_test.txt"
    return read_task("classification", train=train, dev=dev, columns={"text": "document", "label": "label"})


def load(path: Path) -> BaselineTable:
    """A table from its JSON."""
    data = json.loads(path.read_text(encoding="utf-8"))
    methods = []
    for method in data["methods"]:
        splits = method["splits"].items()
        scores = {split: {name: Metric(**metric) for name, metric in found.items()} for split, found in splits}
        methods.append(Method(method["name"], method["what"], scores, method["seconds"]))
    return BaselineTable(data["task"], data["kind"], tuple(methods), data["examples"], tuple(data["notes"]))


def markdown(name: str, table: BaselineTable) -> str:
    """A heading, how much was learnt from and scored, the table, and what was counted."""
    header, rows = rows_of(table)
    sizes = ", ".join(f"{count:,} {split}" for split, count in table.examples.items())
    lines = [f"## {name}", "", f"{sizes}.", "", "| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += ["", "; ".join(f"`{method.name}`: {method.what}" for method in table.methods[:2]) + ".", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
