"""litebert: ALBERT (A Lite BERT) in PyTorch, from raw text to a running server.

Public names are loaded when first used, so that `import litebert` is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:  # `as`: a type checker takes these for public names
    from litebert.bulk.score import score as score
    from litebert.errors import (
        CheckpointError as CheckpointError,
        ConfigError as ConfigError,
        DataError as DataError,
        InputError as InputError,
        LitebertError as LitebertError,
        MissingExtraError as MissingExtraError,
    )
    from litebert.evaluation import evaluate as evaluate
    from litebert.export.onnx_file import export_onnx as export_onnx
    from litebert.export.torch_package import export_torch as export_torch
    from litebert.finetuning.calibrate import calibrate as calibrate
    from litebert.finetuning.config import FinetuneConfig as FinetuneConfig, finetune_config as finetune_config
    from litebert.finetuning.run import finetune as finetune
    from litebert.finetuning.study import run_study as run_study
    from litebert.model.config import PRESETS as PRESETS, ModelConfig as ModelConfig, preset as preset
    from litebert.model.convert import convert_model as convert_model
    from litebert.model.count import count_parameters as count_parameters
    from litebert.model.encoder import Encoder as Encoder
    from litebert.model.config import load_config as load_config
    from litebert.model.heads import (
        AnswerModel as AnswerModel,
        ClassificationModel as ClassificationModel,
        EncoderModel as EncoderModel,
        MaskedLMModel as MaskedLMModel,
        Model as Model,
        MultipleChoiceModel as MultipleChoiceModel,
        PretrainingModel as PretrainingModel,
        SentenceOrderModel as SentenceOrderModel,
        SpanModel as SpanModel,
        TokenClassificationModel as TokenClassificationModel,
    )
    from litebert.model.hub import load_model as load_model, save_model as save_model
    from litebert.predict.predictor import Predictor as Predictor
    from litebert.pretraining.batches import Batches as Batches
    from litebert.pretraining.config import (
        RunConfig as RunConfig,
        load_run_config as load_run_config,
        run_config as run_config,
    )
    from litebert.pretraining.recipes import Recipe as Recipe, named_recipe as named_recipe
    from litebert.pretraining.run import pretrain as pretrain
    from litebert.report import write_report as write_report
    from litebert.text.build import BuildOptions as BuildOptions, build_store as build_store
    from litebert.text.sentences import split_sentences as split_sentences
    from litebert.text.store import TokenStore as TokenStore
    from litebert.text.tokenizer import Tokenizer as Tokenizer
    from litebert.text.train_vocab import VocabConfig as VocabConfig, train_vocab as train_vocab

_PUBLIC = {
    "litebert.bulk.score": ("score",),
    "litebert.errors": (
        "CheckpointError",
        "ConfigError",
        "DataError",
        "InputError",
        "LitebertError",
        "MissingExtraError",
    ),
    "litebert.evaluation": ("evaluate",),
    "litebert.finetuning.calibrate": ("calibrate",),
    "litebert.finetuning.config": ("FinetuneConfig", "finetune_config"),
    "litebert.finetuning.run": ("finetune",),
    "litebert.finetuning.study": ("run_study",),
    "litebert.export.onnx_file": ("export_onnx",),
    "litebert.export.torch_package": ("export_torch",),
    "litebert.model.config": ("PRESETS", "ModelConfig", "load_config", "preset"),
    "litebert.model.convert": ("convert_model",),
    "litebert.model.count": ("count_parameters",),
    "litebert.model.encoder": ("Encoder",),
    "litebert.model.heads": (
        "AnswerModel",
        "ClassificationModel",
        "EncoderModel",
        "MaskedLMModel",
        "Model",
        "MultipleChoiceModel",
        "PretrainingModel",
        "SentenceOrderModel",
        "SpanModel",
        "TokenClassificationModel",
    ),
    "litebert.model.hub": ("load_model", "save_model"),
    "litebert.predict.predictor": ("Predictor",),
    "litebert.pretraining.batches": ("Batches",),
    "litebert.pretraining.config": ("RunConfig", "load_run_config", "run_config"),
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
        raise AttributeError(f"module 'litebert' has no attribute {name!r}{_hint(name)}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def _hint(name: str) -> str:
    if name.startswith("_"):
        return ""
    from litebert.errors import did_you_mean
    from litebert.predict.abilities import ABILITIES

    return "; litebert.Predictor() has it as a method" if name in ABILITIES else did_you_mean(name, _MODULE_OF)


def __dir__() -> list[str]:
    return sorted(__all__)
