"""Fine-tuning: labelled files and a pretrained model -> a scored model folder and its report.

from litebert.finetune import finetune, finetune_config
finetune(finetune_config({"task": "classification", "data": {"train": "a.csv", "dev": "b.csv"}}), "runs/mine")
"""

from typing import TYPE_CHECKING, Any

from litebert.finetune.config import FinetuneConfig, finetune_config

if TYPE_CHECKING:
    from litebert.finetune.run import finetune

__all__ = ["FinetuneConfig", "finetune", "finetune_config"]


def __getattr__(name: str) -> Any:
    if name != "finetune":
        raise AttributeError(f"module 'litebert.finetune' has no attribute {name!r}")
    from litebert.finetune import run  # torch comes with it, which configs and pages do without

    return run.finetune
