"""litebert: ALBERT (A Lite BERT), whole and exact, in PyTorch.

Public names are loaded when first used, so that `import litebert` is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from litebert.errors import CheckpointError, ConfigError, DataError, InputError, LitebertError, MissingExtraError
    from litebert.export.onnx_file import export_onnx
    from litebert.export.torch_package import export_torch
    from litebert.finetune.config import FinetuneConfig, finetune_config
    from litebert.finetune.evaluate import evaluate_task
    from litebert.finetune.study import run_study
    from litebert.model.config import PRESETS, ModelConfig, preset
    from litebert.model.convert import convert_model
    from litebert.model.count import count_parameters
    from litebert.model.encoder import Encoder
    from litebert.model.folder import load_config
    from litebert.model.heads import (
        AnswerModel,
        ClassificationModel,
        EncoderModel,
        MaskedLMModel,
        MultipleChoiceModel,
        PretrainingModel,
        SentenceOrderModel,
        SpanModel,
        TokenClassificationModel,
    )
    from litebert.model.hub import load_model, save_model
    from litebert.predict.predictor import Predictor
    from litebert.pretraining.batches import Batches
    from litebert.pretraining.config import RunConfig, load_run_config, run_config
    from litebert.pretraining.evaluate import evaluate_model
    from litebert.pretraining.recipes import Recipe, named_recipe
    from litebert.pretraining.run import pretrain
    from litebert.report import write_report
    from litebert.text.build import BuildOptions, build_store
    from litebert.text.sentences import split_sentences
    from litebert.text.store import TokenStore
    from litebert.text.tokenizer import Tokenizer
    from litebert.text.train_vocab import VocabConfig, train_vocab

_PUBLIC = {
    "litebert.errors": (
        "CheckpointError",
        "ConfigError",
        "DataError",
        "InputError",
        "LitebertError",
        "MissingExtraError",
    ),
    # The function itself is litebert.finetune.finetune: its package has the name here.
    "litebert.finetune.config": ("FinetuneConfig", "finetune_config"),
    "litebert.finetune.evaluate": ("evaluate_task",),
    "litebert.finetune.study": ("run_study",),
    "litebert.export.onnx_file": ("export_onnx",),
    "litebert.export.torch_package": ("export_torch",),
    "litebert.model.config": ("PRESETS", "ModelConfig", "preset"),
    "litebert.model.convert": ("convert_model",),
    "litebert.model.count": ("count_parameters",),
    "litebert.model.encoder": ("Encoder",),
    "litebert.model.heads": (
        "AnswerModel",
        "ClassificationModel",
        "EncoderModel",
        "MaskedLMModel",
        "MultipleChoiceModel",
        "PretrainingModel",
        "SentenceOrderModel",
        "SpanModel",
        "TokenClassificationModel",
    ),
    "litebert.model.folder": ("load_config",),
    "litebert.model.hub": ("load_model", "save_model"),
    "litebert.predict.predictor": ("Predictor",),
    "litebert.pretraining.batches": ("Batches",),
    "litebert.pretraining.config": ("RunConfig", "load_run_config", "run_config"),
    "litebert.pretraining.evaluate": ("evaluate_model",),
    "litebert.pretraining.recipes": ("Recipe", "named_recipe"),
    "litebert.pretraining.run": ("pretrain",),
    "litebert.report": ("write_report",),
    "litebert.text.build": ("BuildOptions", "build_store"),
    "litebert.text.sentences": ("split_sentences",),
    "litebert.text.store": ("TokenStore",),
    "litebert.text.tokenizer": ("Tokenizer",),
    "litebert.text.train_vocab": ("VocabConfig", "train_vocab"),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [*sorted(_MODULE_OF), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'litebert' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
