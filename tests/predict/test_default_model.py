"""The model that is shipped: small, whole, and it has learned something."""

from __future__ import annotations

import json
import re
from importlib import resources

import numpy as np
import pytest
import torch
from safetensors import safe_open

import litebert
from litebert import Predictor
from litebert.remote import DEFAULT_FOLDER as FOLDER

# Written by us; the model has never seen them. Each passage is cut in two, in its right order.
IN_ORDER = (
    (
        "The town was founded in 1832 by two brothers from Ohio. They built a mill on the river, and other families "
        "followed them.",
        "It grew quickly after the railway came ten years later. By 1860 it had a school, two churches and a bank.",
    ),
    (
        "Maria Alvarez was born in Lima in 1921. Her father was a baker, and her mother taught at a small school.",
        "She studied medicine in the same city and became a surgeon in 1948. She retired in 1986 and died four years "
        "later.",
    ),
    (
        "The river rises in the northern hills, where many small streams meet.",
        "From there it flows south through three lakes. Before it reaches the sea it passes the old port.",
    ),
    (
        "He knocked twice and waited. Nobody answered, and he was about to go away.",
        "At last the door opened, and an old man looked out at him. He asked him what he wanted.",
    ),
    (
        "The company was set up in 1995 to build small boats. It began with four workers in a rented barn.",
        "In 2003 it was sold to a larger firm, which closed it two years later.",
    ),
    (
        "A new bridge was planned after the flood of 1951 had carried the old one away.",
        "It was finished in 1964 and is still in use today. Since 1990 it has also had a path for bicycles.",
    ),
    (
        "The film tells the story of a young teacher who comes to a village in the mountains.",
        "When she falls ill in the winter, her pupils carry her to the city. There she meets her brother again.",
    ),
    (
        "Bees live in large groups that are called colonies. A colony can have many thousands of bees.",
        "Each of them has one queen, who lays all of the eggs. The other bees feed her and keep the nest clean.",
    ),
)


@pytest.fixture(scope="module")
def default():
    return Predictor(device="cpu", threads=2)


def test_files_are_what_the_card_says():
    size = sum(path.stat().st_size for path in FOLDER.iterdir())
    assert size < 30e6
    with safe_open(FOLDER / "model.safetensors", "pt") as weights:
        kinds = {weights.get_tensor(name).dtype for name in weights.keys()}  # noqa: SIM118 (not a dictionary)
        count = sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118
    assert kinds == {torch.float16}
    model = litebert.load_model("default")
    assert count == sum(parameter.numel() for parameter in model.parameters())
    assert litebert.count_parameters(model.config).total == 11_683_584  # ALBERT-base, as in the paper's Table 1
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for part in ("not** the released albert-base-v2", "## Scores", "## Limits", "CC BY-SA"):
        assert part in card
    assert len(re.findall(r"^\|.*\[MASK\]", card, re.MULTILINE)) == 12


def test_it_fills_masks(default):
    texts = [
        "the president of the united [MASK] lives in washington.",
        "he studied law at the [MASK] of oxford.",
        "i have [MASK] brothers and two sisters.",
    ]
    best = [result.masks[0].candidates[0].word for result in default.fill_mask(texts, top=1)]
    assert best[:2] == ["states", "university"]
    assert best[2] in {"one", "two", "three", "four", "five"}


def test_it_knows_the_order_of_sentences_better_than_chance(default):
    firsts, seconds = zip(*IN_ORDER, strict=True)
    right = [r.probability for r in default.sentence_order(list(firsts), list(seconds), symmetric=True)]
    assert sum(p > 0.5 for p in right) >= 6
    assert sum(right) / len(right) > 0.6  # turned round it would be below 0.4, and without a notion of order at 0.5


def test_it_opens_in_transformers_with_the_same_answers(default):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForPreTraining.from_pretrained(FOLDER)
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    batch = tokenizer("the book was [MASK] by an english writer.", return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).prediction_logits[0, batch["input_ids"][0].tolist().index(tokenizer.mask_token_id)]
    probability, best = logits.softmax(-1).max(-1)
    (mask,) = default.fill_mask("the book was [MASK] by an english writer.", top=1).masks
    assert tokenizer.convert_ids_to_tokens(int(best)) == mask.candidates[0].piece
    assert float(probability) == pytest.approx(mask.candidates[0].probability, abs=1e-4)


def test_the_first_examples_of_the_page_show_what_the_model_can():
    """Chosen by tools/page_examples.py; a new default model needs a new choice."""
    text = resources.files("litebert").joinpath("page", "examples.js").read_text(encoding="utf-8")
    examples = json.loads(text.partition("EXAMPLES = ")[2].rstrip().rstrip(";"))["en"]
    predictor = Predictor(threads=1)
    for example in examples["fill_mask"]:
        for mask in predictor.fill_mask(**example).masks:
            best = mask.candidates[0]
            assert best.probability > 0.3
            assert best.word not in example["text"].split(), "no word of the sentence is repeated"
    order = predictor.sentence_order(**examples["sentence_order"][0], symmetric=True)
    assert order.probability > 0.8
    assert min(predictor.coherence(**examples["coherence"][0]).boundaries) > 0.8
    vectors = predictor.embed(examples["embed"][0]["text"].split("\n"), normalize=True)
    cosines = vectors @ vectors.T - 2 * np.eye(6)
    assert cosines.argmax(1).tolist() == [1, 0, 3, 2, 5, 4], "lines come in pairs"
    for example, pair in zip(examples["embed"], ({0, 1}, {2, 3}, {4, 5}), strict=True):
        lines = example["text"].split("\n")
        hits = predictor.search(example["query"], lines, top=2).hits
        assert {hit.text for hit in hits} == {lines[i] for i in pair}, example["query"]


def test_the_examples_of_the_adapters_have_the_right_answers():
    text = resources.files("litebert").joinpath("page", "examples.js").read_text(encoding="utf-8")
    examples = json.loads(text.partition("EXAMPLES = ")[2].rstrip().rstrip(";"))["en"]
    predictor = Predictor(threads=1)
    found = [predictor.classify(**example).label for example in examples["sentiment"]]
    assert found == ["positive", "negative", "positive"]
    found = [predictor.classify(**example).label for example in examples["entailment"]]
    assert found == ["entailment", "contradiction", "neutral"]
    found = [predictor.answer(**example).text for example in examples["answer"]]
    assert found == ["Clara Holm", "steel", "A flood"]
