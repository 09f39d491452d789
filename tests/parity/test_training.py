"""The default model in other people's training loops: it opens in float32, learns, and no weight becomes NaN."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file

from litebert.model.config import preset
from litebert.model.heads import MODELS
from litebert.model.hub import save_model
from litebert.remote import DEFAULT_FOLDER as FOLDER

TEXTS = ["a fine film.", "dull and far too long.", "i would see it again.", "nobody laughed."]
LABELS = [1, 0, 1, 0]
STEPS = 3


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture
def classifier():
    transformers.set_seed(0)
    return transformers.AutoModelForSequenceClassification.from_pretrained(FOLDER)


def trainable(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def copy_of(parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


def check_trained(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> None:
    """Every weight is a float32 number, and training has moved some."""
    assert {parameter.dtype for parameter in after.values()} == {torch.float32}
    assert all(parameter.isfinite().all() for parameter in after.values())
    assert any(not torch.equal(before[name], parameter) for name, parameter in after.items())


def descend(model: torch.nn.Module, loss_of) -> None:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of()
        assert loss.isfinite()
        loss.backward()
        optimizer.step()


def test_a_plain_adamw_loop(classifier, tokenizer):
    before = copy_of(trainable(classifier))
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    descend(classifier.train(), lambda: classifier(**batch, labels=torch.tensor(LABELS)).loss)
    check_trained(before, trainable(classifier))


def test_the_trainer_of_transformers(classifier, tokenizer, tmp_path):
    before = copy_of(trainable(classifier))
    examples = [{**tokenizer(text), "labels": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = transformers.Trainer(
        classifier, arguments, train_dataset=examples, data_collator=transformers.DataCollatorWithPadding(tokenizer)
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == STEPS
    assert torch.tensor(losses).isfinite().all()
    check_trained(before, trainable(classifier))


def test_lora_adapters_of_peft(classifier, tokenizer):
    import peft

    # The names that the attention has in transformers' ALBERT.
    config = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
    model = peft.get_peft_model(classifier, config)
    before = copy_of(trainable(model))
    assert any("lora_" in name for name in before)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    descend(model.train(), lambda: model(**batch, labels=torch.tensor(LABELS)).loss)
    check_trained(before, trainable(model))


def test_sentence_transformers():
    import sentence_transformers
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    model = sentence_transformers.SentenceTransformer(str(FOLDER), device="cpu")
    before = copy_of(trainable(model))
    loss = CosineSimilarityLoss(model)
    pairs = [model.preprocess(TEXTS[:2]), model.preprocess(TEXTS[2:])]
    descend(model.train(), lambda: loss(pairs, torch.tensor([1.0, 0.0])))
    check_trained(before, trainable(model))
    vectors = torch.from_numpy(model.eval().encode(TEXTS))
    assert vectors.shape == (len(TEXTS), 768)
    assert vectors.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_whatever_the_file_holds_transformers_opens_it_in_float32(dtype, tmp_path):
    config = preset(
        "albert-tiny", vocab_size=60, hidden_size=32, embedding_size=16, num_attention_heads=2, intermediate_size=64
    )
    save_model(MODELS["classification"](config), tmp_path, dtype)
    assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {dtype}
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "float32"
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    before = copy_of(trainable(model))
    ids = torch.arange(20).view(2, 10)
    descend(model.train(), lambda: model(ids, labels=torch.tensor([0, 1])).loss)
    check_trained(before, trainable(model))
