"""A shorter quickstart: it learns more than counting can guess, and shows it."""

from __future__ import annotations

import functools
import itertools
import json

import pytest

from litebert.model.hub import load_model
from litebert.predict.predictor import Predictor
from litebert.quickstart import RUN, quickstart
from litebert.text.generate import generate_documents

KINDS = ("baking", "repair", "growing")


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    import io

    from rich.console import Console

    # One thread: the suite runs on all cores already.
    patch = pytest.MonkeyPatch()
    patch.setitem(RUN, "device", {"device": "cpu", "threads": 1})
    patch.setitem(RUN, "depth", [{"until": 0.9, "value": 1}, {"until": 1.0, "value": 4}])
    # Few kinds of story: their order is learnt in a third of the steps.
    few = functools.partial(generate_documents, kinds=KINDS)
    patch.setattr("litebert.quickstart.generate_documents", few)
    patch.setattr("litebert.quickstart.VOCABULARY", 600)
    out = tmp_path_factory.mktemp("quickstart")
    screen = io.StringIO()
    outcome = quickstart(out, documents=1500, steps=500, console=Console(file=screen, width=120))
    patch.undo()
    return out, outcome, screen.getvalue()


def test_it_learns(story):
    _, outcome, _ = story
    assert outcome.scores.mlm_accuracy > 1.3 * outcome.baselines.unigram
    assert outcome.scores.sentence_accuracy > 0.6
    assert outcome.scores.sentence_accuracy > outcome.baselines.connectives


def test_it_learns_order_and_not_places(story):
    """Every boundary of a story is judged: also those that no pair of sentences from its start would straddle."""
    out, _, _ = story
    predictor = Predictor(out / "run" / "model", threads=1)
    told = list(generate_documents(60, seed=1, split="held-out", kinds=KINDS))
    for parity in (0, 1):
        pairs = [(a, b) for text in told for i, (a, b) in enumerate(itertools.pairwise(text)) if i % 2 == parity]
        firsts, seconds = map(list, zip(*pairs, strict=True))
        right = sum(result.probability > 0.5 for result in predictor.sentence_order(firsts, seconds, symmetric=True))
        assert right / len(pairs) > 0.65


def test_the_screen_proves_it(story):
    _, outcome, screen = story
    for part in ("masked words", "trigrams", "unigrams", "sentence order", "connectives alone", "a coin"):
        assert part in screen
    assert f"{outcome.scores.mlm_accuracy:.1%}" in screen
    assert f"{outcome.baselines.trigram:.1%}" in screen


def test_everything_is_left_behind(story):
    out, outcome, _ = story
    assert "<svg" in outcome.report.read_text()
    assert load_model(out / "run" / "model").config.vocab_size > 300
    assert json.loads((out / "run" / "baselines.json").read_text()) == outcome.baselines.as_dict()


def test_no_held_out_sentence_stands_in_training():
    train = {sentence for document in generate_documents(1500, seed=1) for sentence in document}
    held_out = [s for document in generate_documents(150, seed=1, split="held-out") for s in document]
    assert held_out
    assert not train & set(held_out)
