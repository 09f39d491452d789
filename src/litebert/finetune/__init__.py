"""Fine-tuning: labelled files and a pretrained model -> a scored model folder and its report.

from litebert.finetune import finetune, finetune_config
finetune(finetune_config({"task": "classification", "data": {"train": "a.csv", "dev": "b.csv"}}), "runs/mine")
"""

from litebert.finetune.config import FinetuneConfig, finetune_config
from litebert.finetune.run import FinetuneResult, finetune
from litebert.finetune.study import Study, run_study

__all__ = ["FinetuneConfig", "FinetuneResult", "Study", "finetune", "finetune_config", "run_study"]
