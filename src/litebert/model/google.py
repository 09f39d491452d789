"""Google's released checkpoints (TensorFlow V2 bundle + `albert_config.json`) as our models, without TensorFlow.

Reads released tar folders, TF-Hub modules (`module/` names, no sentence head) and fine-tuned checkpoints. Two
spellings of LayerNorm occur: `LayerNorm`, as released, and `layer_normalization_<n>`, from later TensorFlow versions,
where each layer may have its own norms although the matrices are shared (google-research/albert#241).
brightmart/albert_zh's checkpoints are read too: another graph under other names, `project_words_only` in our config.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.errors import CheckpointError
from litebert.model.config import ModelConfig, find_google_config, plan_of, read_config, vary
from litebert.model.heads import Model
from litebert.model.hub import LoadReport, build_model
from litebert.model.names import TensorPlace, tf_names
from litebert.model.tf_checkpoint import TfCheckpoint, read_bundle

_SLOT = re.compile(r"/(adam_[mv]|lamb_[mv]|Adam(_1)?|Momentum)$|(^|/)(global_step|beta[12]_power)$")
# .../group_0/inner_group_0/layer_normalization_1/gamma, and per layer
# .../group_0_3/layer_3/inner_group_0/layer_normalization_7/gamma
_KERAS_NORM = re.compile(
    r"bert/encoder/transformer/group_(?P<group>\d+)(?:_\d+)?(?:/layer_(?P<layer>\d+))?/inner_group_(?P<inner>\d+)"
    r"/layer_normalization(?:_(?P<number>\d+))?/(?P<part>gamma|beta)"
)


def load_google(
    source: Path | str,
    head: str | None = None,
    new_head: bool = False,
    config: Path | str | None = None,
    allow_nan: bool = False,
    **changes: Any,
) -> tuple[Model, LoadReport]:
    """A model from a checkpoint's folder, prefix or file; its config is looked for beside it unless given."""
    source = Path(source)
    if source.is_dir() and not list(source.glob("*.index")) and (source / "variables").is_dir():
        source = source / "variables"  # a TF-Hub module
    bundle = read_bundle(source)
    where = str(bundle.prefix)
    model_config = read_config(Path(config or find_google_config(bundle.prefix.parent)), google=True)[0]
    report = LoadReport()
    names = _clean_names(bundle, report)
    layer_shared = any("/layer_shared/" in name for name in names)  # brightmart/albert_zh's graph
    if layer_shared:
        model_config = _fit_brightmart(model_config, names, report)
    names, own_norms = _respell_norms(names, where)
    _refuse_other_groups(model_config, where)
    if "bert/encoder/embedding_hidden_mapping_in/kernel" in names:
        model_config = vary(model_config, embedding_projection=True)

    head = head or _find_head(names)
    model_config = _fit_labels(model_config, head, names, bundle, report)
    places = tf_names(model_config, layer_shared)
    found = {ours: place.name for ours, place in places.items() if place.name in names}
    if own_norms:
        model_config, found, places = _unshare_norms(model_config, found, places, own_norms)
        report.notes.append("each layer has its own LayerNorms in this file, so the model is kept unshared")
    report.skipped += [names[name] for name in names if name not in set(found.values())]
    transposed = {place.name for place in places.values() if place.transpose}

    def read(name: str) -> Tensor:
        tensor = torch.from_numpy(bundle.tensor(names[name]).copy()).float()
        return tensor.T.contiguous() if name in transposed else tensor

    fill_sentence = head == "pretraining" and "sentence.weight" not in found
    new_head_allowed = new_head or fill_sentence
    model = build_model(vary(model_config, **changes), head, found, read, new_head_allowed, where, report, allow_nan)
    if fill_sentence:
        unexpected = [name for name in report.missing if not name.startswith("sentence.")]
        if unexpected and not new_head:
            raise CheckpointError(f"{where}: tensors are missing, first: {unexpected[0]}")
        torch.nn.init.zeros_(model.sentence.weight)  # type: ignore[union-attr, arg-type]
        report.notes.append("the file has no sentence head (TF-Hub modules lack it): set to zero, 50:50 until trained")
    return model, report


def _clean_names(bundle: TfCheckpoint, report: LoadReport) -> dict[str, str]:
    """Released name -> name in this file, without optimiser state."""
    names = {}
    for name in bundle:
        if _SLOT.search(name):
            report.skipped.append(name)
        else:
            names[name.removeprefix("module/")] = name
    return names


def _fit_brightmart(config: ModelConfig, names: Iterable[str], report: LoadReport) -> ModelConfig:
    """The config as brightmart/albert_zh's code takes it, where the word embeddings alone are projected."""
    if "bert/embeddings/word_embeddings_2" not in names:
        return config
    report.notes.append(
        "brightmart/albert_zh's layout: the word embeddings alone are projected, so this model opens in litebert only; "
        "transformers has no such ALBERT"
    )
    return vary(config, project_words_only=True, embedding_projection=True)


def _refuse_other_groups(config: ModelConfig, where: str) -> None:
    """The released code places a layer by int(layer / layers * groups), which leaves some of 22 groups unused, say."""
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    if config.model_type == "albert" and any(int(i / layers * groups) != i * groups // layers for i in range(layers)):
        raise CheckpointError(
            f"{where}: {layers} layers in {groups} groups; TensorFlow's rounding leaves a group unused, which "
            "litebert does not support"
        )


def _respell_norms(names: dict[str, str], where: str) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """LayerNorms in the released spelling; those that belong to one layer only come apart, by layer."""
    result: dict[str, str] = {}
    numbers: dict[str, set[int]] = {}  # scope of two norms -> the numbers of its layer_normalizations
    found: list[tuple[re.Match[str], str, str]] = []
    for name, in_file in names.items():
        match = _KERAS_NORM.fullmatch(name)
        if match:
            scope = name.rsplit("/", 2)[0]
            numbers.setdefault(scope, set()).add(int(match["number"] or 0))
            found.append((match, scope, in_file))
        else:
            result[re.sub(r"/layer_normalization(_\d+)?/(?=gamma|beta)", "/LayerNorm/", name)] = in_file
    own: dict[int, dict[str, str]] = {}
    for match, scope, in_file in found:
        if len(numbers[scope]) != 2:
            raise CheckpointError(f"{where}: {scope} should hold two layer_normalizations, got {len(numbers[scope])}")
        second = int(match["number"] or 0) == max(numbers[scope])
        norm = f"{'LayerNorm_1' if second else 'LayerNorm'}/{match['part']}"
        if match["layer"] is None:
            result[f"bert/encoder/transformer/group_{match['group']}/inner_group_{match['inner']}/{norm}"] = in_file
        else:
            name = f"layer_{match['layer']}/inner_group_{match['inner']}/{norm}"
            own.setdefault(int(match["layer"]), {})[f"inner_group_{match['inner']}/{norm}"] = name
            result[name] = in_file
    return result, own


def _unshare_norms(
    config: ModelConfig, found: dict[str, str], places: dict[str, TensorPlace], own: dict[int, dict[str, str]]
) -> tuple[ModelConfig, dict[str, str], dict[str, TensorPlace]]:
    """The same function with every layer spelled out: shared matrices repeated, each layer's norms its own."""
    inner = config.inner_group_num
    unshared = {
        name: file for name, file in found.items() if not name.startswith(("encoder.attention.", "encoder.ffn."))
    }
    for application, step in enumerate(plan_of(config)):
        layer, position = divmod(application, inner)
        for kind, block, norm in (
            ("attention", step.attention, "LayerNorm"),
            ("ffn", step.ffn, "LayerNorm_1"),
        ):
            prefix = f"encoder.{kind}.{block}."
            for name, file in found.items():
                if name.startswith(prefix):
                    unshared[f"encoder.{kind}.{application}.{name.removeprefix(prefix)}"] = file
            for ours, part in (("weight", "gamma"), ("bias", "beta")):
                file_name = own.get(layer, {}).get(f"inner_group_{position}/{norm}/{part}")
                if file_name is not None:
                    unshared[f"encoder.{kind}.{application}.norm.{ours}"] = file_name
    config = vary(config, sharing="none", embedding_projection=config.embedding_projection)
    return config, unshared, places


def _find_head(names: dict[str, str]) -> str:
    if "start_logits/dense/kernel" in names:
        return "answer"
    if "cls/squad/output_weights" in names:
        return "span"
    if "output_weights" in names:
        return "classification"
    if "cls/predictions/output_bias" in names:
        return "pretraining"
    return "encoder"


def _fit_labels(
    config: ModelConfig, head: str, names: dict[str, str], bundle: TfCheckpoint, report: LoadReport
) -> ModelConfig:
    if head != "classification" or "output_weights" not in names:
        return config
    outputs = bundle.shapes[names["output_weights"]][0]
    if outputs == 1:
        report.notes.append("one output: read as regression (STS-B); for RACE, choose the multiple-choice head")
        return vary(config, problem_type="regression", embedding_projection=config.embedding_projection)
    labels = tuple(f"LABEL_{i}" for i in range(outputs))
    return vary(config, labels=labels, embedding_projection=config.embedding_projection)
