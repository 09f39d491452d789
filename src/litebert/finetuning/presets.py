"""Fine-tuning presets by name: the paper's per task, and our own for small models and for CPUs.

Plain data in the form of the YAML file, so that a preset can be printed, copied and changed.

    find_preset("v2", "race")        -> {"optim": {"lr": 1e-05, ...}, "batch": 32, ...}     the row of the task
    find_preset("v2/sst-2", "mine")  -> the row of SST-2 for a task of your own
    find_preset("small", "mine")     -> one preset for every task
"""

from __future__ import annotations

from typing import Any

from litebert.config import merge
from litebert.errors import ConfigError, did_you_mean

# Table 14: learning rate, batch, ALBERT dropout, classifier dropout, steps, warm-up steps, maximum length.
_TABLE_14: dict[str, tuple[float, int, float, float, int, int, int]] = {
    "cola": (1e-5, 16, 0.0, 0.1, 5336, 320, 512),
    "sts-b": (2e-5, 16, 0.0, 0.1, 3598, 214, 512),
    "sst-2": (1e-5, 32, 0.0, 0.1, 20935, 1256, 512),
    "mnli": (3e-5, 128, 0.0, 0.1, 10000, 1000, 512),
    "qnli": (1e-5, 32, 0.0, 0.1, 33112, 1986, 512),
    "qqp": (5e-5, 128, 0.1, 0.1, 14000, 1000, 512),
    "rte": (3e-5, 32, 0.1, 0.1, 800, 200, 512),
    "mrpc": (2e-5, 32, 0.0, 0.1, 800, 200, 512),
    "wnli": (2e-5, 16, 0.1, 0.1, 2000, 250, 512),
    "squad-1.1": (5e-5, 48, 0.0, 0.1, 3649, 365, 384),
    "squad-2.0": (3e-5, 48, 0.0, 0.1, 8144, 814, 512),
    "race": (2e-5, 32, 0.1, 0.1, 12000, 1000, 512),
}
# The README: RACE's setting of v1 diverges on v2; everything else is the same.
_V2_CHANGES: dict[str, dict[str, Any]] = {"race": {"optim": {"lr": 1e-5}, "dropout": 0.0}}
# run_glue.sh evaluates every 100 steps (QNLI: 200) and keeps the best on dev.
_EVALUATE_EVERY = {"qnli": 200, "squad-1.1": 500, "squad-2.0": 500, "race": 500}
# Footnote 4: these start from a model that was fine-tuned on MNLI.
FROM_MNLI = ("rte", "sts-b", "mrpc")


def _row(task: str) -> dict[str, Any]:
    lr, batch, dropout, classifier_dropout, steps, warmup, max_length = _TABLE_14[task]
    return {
        "optim": {
            "name": "adamw",
            "lr": lr,
            "warmup_steps": warmup,
            # As released: the rate counts from step 0, and Adam has no bias correction.
            "style": "google",
            "bias_correction": False,
        },
        "batch": batch,
        "steps": steps,
        "dropout": dropout,
        "classifier_dropout": classifier_dropout,
        "max_length": max_length,
        "log": {"evaluate_every": _EVALUATE_EVERY.get(task, 100)},
    }


_GENERAL: dict[str, dict[str, Any]] = {
    # A model of the released sizes on a GPU, data of any kind.
    "base": {"optim": {"lr": 2e-5}, "batch": 32, "epochs": 3.0},
    # Small models have seen little text: they need larger steps and more of them.
    "small": {"optim": {"lr": 1e-4}, "batch": 32, "epochs": 5.0},
    # The same for a laptop: shorter inputs, fewer evaluations.
    "cpu": {
        "optim": {"lr": 1e-4},
        "batch": 16,
        "epochs": 3.0,
        "max_length": 128,
        "micro_batch_tokens": 2048,
        "log": {"num_evaluations": 4},
    },
    # The encoder stays as it is, only the head learns: quick, weaker, and nothing to diverge.
    "frozen": {"optim": {"lr": 1e-3, "freeze": "encoder"}, "batch": 64, "epochs": 10.0},
}


# On top of any preset where an adapter is trained: it starts at zero and has few parameters, so it takes larger steps.
ADAPTER: dict[str, Any] = {"optim": {"lr": 5e-4}}
# Similarity: the other examples of a batch are what a text is told apart from, so batches are larger.
COMPARISON: dict[str, Any] = {"batch": 64, "optim": {"lr": 5e-5}}
# A handful of labels: so many passes that every example has met every other several times.
FEW: dict[str, Any] = {"batch": 32, "steps": 100, "optim": {"lr": 3e-5}}


def _all() -> dict[str, dict[str, Any]]:
    presets = dict(_GENERAL)
    for task in _TABLE_14:
        presets[f"v1/{task}"] = _row(task)
        presets[f"v2/{task}"] = merge(_row(task), _V2_CHANGES.get(task, {}))
    return presets


PRESETS: dict[str, dict[str, Any]] = _all()
AUTO = "auto"
SMALL_HIDDEN = 512  # models narrower than this are "small"


def find_preset(name: str, task: str) -> dict[str, Any]:
    """The settings of a preset; `v1` and `v2` alone mean the row of the task."""
    if name in ("v1", "v2"):
        task = "race" if task.startswith("race-") else task  # middle and high were trained together
        if f"{name}/{task}" not in PRESETS:
            rows = ", ".join(_TABLE_14)
            raise ConfigError(
                f"preset: Table 14 of the paper has no row for the task {task!r}; "
                f"borrow one by its name, for example {name}/sst-2 (rows: {rows}), or use base, small or cpu"
            )
        name = f"{name}/{task}"
    if name not in PRESETS:
        known = [AUTO, "v1", "v2", *PRESETS]
        raise ConfigError(f"preset: no preset {name!r}{did_you_mean(name, known) or '.'} Known: {', '.join(known)}")
    return PRESETS[name]


def pick_preset(hidden_size: int, on_gpu: bool) -> str:
    """What `auto` means: "small" for narrow models, "cpu" where there is no GPU, else "base"."""
    if not on_gpu:
        return "cpu"
    return "small" if hidden_size < SMALL_HIDDEN else "base"
