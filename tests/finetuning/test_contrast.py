"""Similarity: losses against sentence-transformers', several processes against one, and what is learned."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from similar_texts import labelled_rows, pair_rows, scored_rows, similarity_config, triplet_rows
from toy_tasks import finetune_in_two, make_files, make_model, tiny_config, write_rows

from litebert.errors import CheckpointError, ConfigError, DataError
from litebert.finetuning.contrast import Contrast, cosent_loss, cosine_loss, label_loss, mixed_loss, ranking_loss
from litebert.finetuning.data import make_pairs
from litebert.finetuning.run import finetune
from litebert.predict.load import load_adapted
from litebert.predict.predictor import Predictor
from litebert.tasks.read import read_task
from litebert.tasks.task import SimilarityExample, TaskData, load_task
from litebert.train.log import read_metrics

# ---------------------------------------------------------------------------------------------------------------------
# Losses: the same vectors through sentence-transformers' own


def vectors_and_scores(examples: int, texts: int, size: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    vectors = torch.randn(examples, texts, size, generator=generator, requires_grad=True)
    return vectors, torch.rand(examples, generator=generator).round(decimals=1)


def theirs(name: str, model: torch.nn.Module | None = None, **settings):
    from sentence_transformers.sentence_transformer import losses

    return getattr(losses, name)(model or Columns(), **settings)


class Columns(torch.nn.Module):
    """What their losses call a model: it returns the vectors that it is given."""

    def forward(self, features):
        return {"sentence_embedding": features["vectors"]}

    def __call__(self, features):
        return self.forward(features)

    def get_embedding_dimension(self):
        return 12

    get_sentence_embedding_dimension = get_embedding_dimension


def their_loss(loss, vectors: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
    return loss([{"vectors": vectors[:, text]} for text in range(vectors.shape[1])], labels)


def assert_same(ours: torch.Tensor, reference: torch.Tensor, vectors: torch.Tensor) -> None:
    torch.testing.assert_close(ours, reference)
    mine, other = (torch.autograd.grad(loss, vectors)[0] for loss in (ours, reference))
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-3)  # exp(20 x) makes rounding larger
    assert mine.abs().max() > 1e-3


def different(vectors: torch.Tensor) -> torch.Tensor:
    return torch.arange(vectors.shape[0] * vectors.shape[1]).view(vectors.shape[:2])


@pytest.mark.parametrize("temperature", [0.05, 0.2])
def test_cosent_is_theirs(temperature):
    vectors, scores = vectors_and_scores(9, 2)
    reference = their_loss(theirs("CoSENTLoss", scale=1 / temperature), vectors, scores)
    assert_same(cosent_loss(vectors, scores, temperature), reference, vectors)


def test_cosine_is_theirs():
    vectors, scores = vectors_and_scores(9, 2)
    assert_same(cosine_loss(vectors, scores), their_loss(theirs("CosineSimilarityLoss"), vectors, scores), vectors)


@pytest.mark.parametrize("texts", [2, 3])
@pytest.mark.parametrize("symmetric", [False, True])
def test_ranking_is_theirs(texts, symmetric):
    vectors, _ = vectors_and_scores(7, texts)
    ways = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"} if symmetric else {}
    reference = their_loss(theirs("MultipleNegativesRankingLoss", scale=10.0, **ways), vectors)
    assert_same(ranking_loss(vectors, different(vectors), 0.1, symmetric), reference, vectors)


def test_shorter_vectors_are_theirs():
    vectors, scores = vectors_and_scores(7, 2)
    cosent = theirs("CoSENTLoss")
    nested = theirs("MatryoshkaLoss", cosent.model, loss=cosent, matryoshka_dims=[12, 6, 3])
    reference = their_loss(nested, vectors, scores)
    ours = sum(cosent_loss(vectors[..., :size], scores) for size in (12, 6, 3))
    assert_same(ours, reference, vectors)


def test_a_text_is_not_its_own_negative():
    vectors, _ = vectors_and_scores(4, 2)
    same = torch.tensor([[0, 1], [2, 1], [3, 4], [4, 5]])  # 1 is the partner of two; 4 is a first and a second text
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    scores = unit[:, 0] @ unit[:, 1].T / 0.05
    for row, column in ((0, 1), (1, 0), (3, 2)):
        scores[row, column] = -torch.inf
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(4))
    torch.testing.assert_close(ranking_loss(vectors, same), expected)


def test_labels_pull_together_and_push_apart():
    vectors = torch.nn.functional.normalize(torch.tensor([[1.0, 0.2], [1.0, -0.2], [0.1, 1.0]]), dim=-1)
    cosines = (vectors @ vectors.T).tolist()
    near, far = (cosines[0][1] - 1) ** 2, (cosines[0][2] ** 2 + cosines[1][2] ** 2) / 2
    assert label_loss(vectors, torch.tensor([4, 4, 2])).item() == pytest.approx((near + far) / 2)


def test_two_processes_equal_one(toy_model, tmp_path):
    files = [
        write_rows(tmp_path / "pairs.jsonl", pair_rows(5)),
        write_rows(tmp_path / "triplets.jsonl", triplet_rows(5)),
        write_rows(tmp_path / "scored.jsonl", scored_rows(5)),
    ]
    command = [sys.executable, str(Path(__file__).with_name("two_similar.py")), str(toy_model), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["one"].keys() == {"pairs", "triplets", "scored"}
    for form, alone in results["one"].items():
        assert alone["totals"][0] == pytest.approx(5 * alone["loss"], rel=1e-6)
        for process in results["two"]:
            found = process[form]
            assert found["loss"] == pytest.approx(alone["loss"], rel=1e-5)
            assert found["totals"] == pytest.approx(alone["totals"], rel=1e-5)
            assert len(found["gradients"]) == len(alone["gradients"])
            for two, one in zip(found["gradients"], alone["gradients"], strict=True):
                np.testing.assert_allclose(two, one, rtol=1e-3, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Runs


@pytest.mark.parametrize("loss", ["cosent", "cosine"])
def test_scored_pairs_are_learned(toy_model, tmp_path, loss):
    config = similarity_config(
        toy_model, tmp_path, scored_rows(200), scored_rows(40, 1), steps=150, similarity={"loss": loss, "sizes": [4]}
    )
    result = finetune(config, tmp_path / "run", quiet=True)
    assert result.scores.metric == "spearman"
    assert result.scores.value > 0.6
    assert result.scores.splits["dev"]["pearson"].value > 0.9
    assert {each.baseline for each in result.scores.baselines} == {
        "all equally similar",
        "shared words (TF-IDF; BM25 for search)",
    }
    assert load_task(result.model).sizes == (4,)


def test_triplets_are_learned(toy_model, tmp_path):
    config = similarity_config(toy_model, tmp_path, triplet_rows(60), triplet_rows(40, 1), steps=150)
    result = finetune(config, tmp_path / "run", quiet=True)
    assert result.scores.metric == "accuracy"
    assert result.scores.value > 0.95


def test_the_reported_loss_is_the_mean_even_of_a_file_smaller_than_a_batch(toy_model, tmp_path, monkeypatch):
    """Its examples are then in the batch several times, and every row counts."""
    losses = []
    call = Contrast.__call__

    def kept(self, model, whole):
        loss, sums = call(self, model, whole)
        losses.append(loss.item())
        return loss, sums

    monkeypatch.setattr(Contrast, "__call__", kept)
    config = similarity_config(toy_model, tmp_path, triplet_rows(5), triplet_rows(4, 1), steps=2, batch=16)
    finetune(config, tmp_path / "run", quiet=True)
    reported = [line["loss"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if line["kind"] == "train"]
    assert len(losses) == 2
    assert sum(reported) / len(reported) == pytest.approx(sum(losses) / 2, rel=1e-5)


def test_pairs_are_found(toy_model, tmp_path):
    config = similarity_config(toy_model, tmp_path, pair_rows(80), pair_rows(40, 1), steps=80, batch=24)
    result = finetune(config, tmp_path / "run", quiet=True)
    scores = {name: metric.value for name, metric in result.scores.splits["dev"].items()}
    assert list(scores) == ["recall_at_10", "recall_at_1", "ndcg_at_10", "mrr_at_10"]
    assert scores["recall_at_10"] > 0.6  # 0.25 by chance
    assert scores["recall_at_1"] <= scores["mrr_at_10"] <= scores["ndcg_at_10"] <= scores["recall_at_10"]
    baseline = next(each for each in result.scores.baselines if "BM25" in each.baseline)
    assert baseline.score.value == 1.0  # the made-up word


def test_sentences_alone_turn_dropout_on(toy_model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{row['passage']} {row['question']}\n\n" for row in pair_rows(40)), encoding="utf-8")
    dev = write_rows(tmp_path / "dev.jsonl", pair_rows(10, 1))
    still = make_model(tmp_path / "still", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config = tiny_config(still, {"train": str(text), "dev": str(dev)}, "similarity", steps=20, batch=16)
    result = finetune(config, tmp_path / "run", quiet=True)
    saved = json.loads((result.model / "config.json").read_text())
    assert (saved["hidden_dropout_prob"], saved["attention_probs_dropout_prob"]) == (0.1, 0.1)
    notes = (tmp_path / "run" / "metrics.jsonl").read_text()
    losses = [json.loads(line)["loss"] for line in notes.splitlines() if '"train"' in line]
    assert losses[0] > 0.05
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    with pytest.raises(ConfigError, match="dropout: must be > 0 to learn from single sentences"):
        finetune(tiny_config(still, {"train": str(text)}, "similarity", dropout=0.0), tmp_path / "no", quiet=True)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("how", ["adjacent", "titles"])
def test_pairs_are_made_from_any_text(toy_model, tmp_path, how):
    story = "Anna lives in Rome and it is very fine. She saw a film there one day. The film was good. "
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"The story {n}\n{story * 2}" for n in "abcdefgh"), encoding="utf-8")
    made = make_pairs(text, how, 1000)
    if how == "titles":
        assert made["text"] == [f"The story {n}" for n in "abcdefgh"]
        assert set(made["pair"]) == {(story * 2).strip()}
    else:
        assert ("Anna lives in Rome and it is very fine.", "She saw a film there one day.") in zip(
            made["text"], made["pair"], strict=True
        )
    few = make_pairs(text, how, 5, seed=1)
    assert len(few["text"]) == 5
    assert few == make_pairs(text, how, 5, seed=1)
    config = tiny_config(toy_model, {"train": str(text)}, "similarity", steps=2, similarity={"pairs": how})
    assert finetune(config, tmp_path / "run", quiet=True).completed
    with pytest.raises(DataError, match="to learn from"):
        make_pairs(write_text(tmp_path / "short.txt", "a\n\nb\n"), how, 10)


def write_text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("adapter", [None, {"rank": 2}], ids=["whole", "adapter"])
def test_a_killed_run_goes_on_bit_for_bit(toy_model, tmp_path, adapter):
    config = similarity_config(toy_model, tmp_path, triplet_rows(30), steps=8, adapter=adapter)
    finetune(config, tmp_path / "whole", quiet=True)
    finetune_in_two(config, tmp_path / "cut", 3)
    whole, again = (load_file(tmp_path / run / "best" / "model.safetensors") for run in ("whole", "cut"))
    assert all(torch.equal(tensor, again[name]) for name, tensor in whole.items())


def test_an_adapter_learns_and_is_the_same_model(toy_model, tmp_path):
    adapter = {"adapter": {"rank": 4}, "optim": {"lr": 0.01}, "dropout": 0.0}
    config = similarity_config(toy_model, tmp_path, triplet_rows(60), triplet_rows(40, 1), steps=200, **adapter)
    result = finetune(config, tmp_path / "run", quiet=True)
    assert result.scores.value > 0.9
    model, task, _ = load_adapted(tmp_path / "run" / "adapter")
    assert (task.kind, model.head) == ("similarity", "encoder")
    settings = json.loads((tmp_path / "run" / "adapter" / "adapter_config.json").read_text())
    assert (settings["task_type"], "pooler" in settings["target_modules"]) == ("FEATURE_EXTRACTION", False)
    texts = ["the film was great", "it is poor"]
    vectors = [Predictor(tmp_path / "run" / folder, device="cpu").embed(texts) for folder in ("best", "adapter")]
    np.testing.assert_allclose(*vectors, atol=1e-6)
    other = make_model(tmp_path / "other", hidden_size=32)
    with pytest.raises(CheckpointError, match="an adapter of another base model"):
        load_adapted(tmp_path / "run" / "adapter", base=str(other))


def test_mistakes_are_named(cli, toy_model, tmp_path):
    def refused(match, train, error=ConfigError, **changes):
        config = similarity_config(toy_model, tmp_path / "files", train, **changes)
        with pytest.raises(error, match=match):
            finetune(config, tmp_path / "run", quiet=True)
        assert not (tmp_path / "run").exists()

    refused(
        "batch: must be >= 2, since in-batch negatives are the other examples of a batch; got 1", pair_rows(4), batch=1
    )
    refused("batch: must be >= 2, since cosent compares pairs of pairs", scored_rows(4), batch=1)
    refused(r"train\.jsonl:1: the only training example", pair_rows(1), DataError)
    refused(
        r"loss: cosent learns from scores, and .*train\.jsonl has none \(pairs\)",
        pair_rows(4),
        similarity={"loss": "cosent"},
    )
    refused("loss: ranking takes pairs that belong together", scored_rows(4), similarity={"loss": "ranking"})
    refused("sizes: must be <= 16, the model's vectors; got 32", pair_rows(4), similarity={"sizes": [32]})
    with pytest.raises(ConfigError, match="temperature: must be > 0 and < inf, got 0"):
        similarity_config(toy_model, tmp_path / "files", pair_rows(4), similarity={"temperature": 0})
    texts = [{"text": row["passage"]} for row in pair_rows(4)]
    with pytest.raises(DataError, match="single texts cannot be scored"):
        finetune(similarity_config(toy_model, tmp_path / "files", texts, texts), tmp_path / "run", quiet=True)
    named = [{"sentence1": "a", "sentence2": "b", "label": "near"}] * 3
    refused(r"train\.jsonl:1: column 'label': expected a number, got 'near'", named, DataError)
    same = [{**row, "score": 3} for row in scored_rows(4)]
    refused(r"train\.jsonl: every score is 3; pairs of different scores", same, DataError)
    adapter = {"rank": 2, "targets": ["pooler"]}
    with pytest.raises(ConfigError, match="adapter: targets: similarity does not read the pooler"):
        finetune(
            similarity_config(toy_model, tmp_path / "files", pair_rows(4), adapter=adapter), tmp_path / "no", quiet=True
        )
    file = write_rows(tmp_path / "pairs.jsonl", pair_rows(4))
    shown = cli(
        "finetune", "--task", "similarity", "--model", toy_model, "--train", file, "--set", "similarity.loss=cosine",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert shown.code == 2
    assert "learns from scores" in shown.err


def test_pairs_are_made_from_plain_text_alone(toy_model, tmp_path):
    """Where they could only be ignored, or made of a table's lines, that is an error."""
    made = {"similarity": {"pairs": "adjacent"}}
    table = tmp_path / "pairs.csv"
    table.write_text("question,passage\nwho wrote this long letter?,anna did it\nwhere is it?,in the old house\n")
    labelled = make_files(tmp_path / "labelled", "classification")
    for config, error, message in (
        (tiny_config(toy_model, {"train": str(table)}, "similarity", **made), DataError, r"pairs\.csv: a table"),
        (tiny_config(toy_model, labelled, **made), ConfigError, "pairs: are for the task similarity, not class"),
        (tiny_config(toy_model, {"folder": str(tmp_path)}, "similarity", **made), ConfigError, "name it as the train"),
    ):
        with pytest.raises(error, match=message):
            finetune(config, tmp_path / "run", quiet=True)
        assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="pairs: are made from a text file"):
        finetune(
            task="similarity",
            train=pair_rows(4),
            model=toy_model,
            out=tmp_path / "run",
            settings=["similarity.pairs=titles"],
        )


# ---------------------------------------------------------------------------------------------------------------------
# Few labels


def test_few_labels_make_a_classifier(toy_model, tmp_path):
    files = {
        "train": str(write_rows(tmp_path / "train.jsonl", labelled_rows(16))),
        "dev": str(write_rows(tmp_path / "dev.jsonl", labelled_rows(60, 1))),
    }
    config = tiny_config(toy_model, files, few=True, steps=150, batch=16, optim={"lr": 0.003})
    result = finetune(config, tmp_path / "run", quiet=True)
    assert result.scores.metric == "accuracy"
    assert result.scores.value > 0.85  # 0.5 by chance; three of sixteen words are missing from training
    assert Predictor(result.model, device="cpu").classify("the film was great").label == "pos"
    assert "a linear head fitted on 16 rows" in (tmp_path / "run" / "metrics.jsonl").read_text()
    again = finetune(config, tmp_path / "again", quiet=True)
    assert again.scores.value == result.scores.value
    numbers = make_files(tmp_path / "numbers", "regression")
    with pytest.raises(ConfigError, match="few: learns which texts share a label, so it is for classification"):
        finetune(tiny_config(toy_model, numbers, "regression", few=True), tmp_path / "no", quiet=True)
    with pytest.raises(ConfigError, match="few: trains the encoder and fits a new head"):
        tiny_config(toy_model, files, few=True, head_only=True)


def test_an_adapter_of_few_labels_is_the_same_model(toy_model, tmp_path):
    """Its head reads the mean of all tokens, wherever the adapter is opened."""
    files = {"train": str(write_rows(tmp_path / "train.jsonl", labelled_rows(16)))}
    config = tiny_config(toy_model, files, few=True, steps=3, batch=16, adapter={"rank": 2}, optim={"lr": 0.01})
    finetune(config, tmp_path / "run", quiet=True)
    opened = [Predictor(tmp_path / "run" / name, device="cpu") for name in ("best", "adapter")]
    opened.append(Predictor(toy_model, device="cpu").add_adapter("mine", tmp_path / "run" / "adapter"))
    best, *others = [predictor.classify("the film was great").probabilities for predictor in opened]
    for other in others:
        assert other == pytest.approx(best, abs=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Scores and triplets in one batch


def test_a_mixed_batch_is_the_sum_of_both_losses():
    vectors, scores = vectors_and_scores(9, 3)
    texts = different(vectors)
    some = torch.tensor([1, 4, 5])
    given = torch.full((9,), torch.nan).index_copy(0, some, scores[some])
    rest = given.isnan()
    reference = ranking_loss(vectors[rest], texts[rest], 0.1) + cosent_loss(vectors[~rest], scores[~rest], 0.1)
    assert_same(mixed_loss(vectors, texts, given, 0.1), reference, vectors)
    alone = mixed_loss(vectors, texts, torch.full((9,), torch.nan))
    assert_same(alone, ranking_loss(vectors, texts), vectors)
    assert_same(mixed_loss(vectors, texts, scores), cosent_loss(vectors, scores), vectors)


def test_triplets_with_and_without_scores_are_learned_together(toy_model, tmp_path):
    scored = [(row["sentence1"], row["sentence2"], "film", row["score"]) for row in scored_rows(200)]
    plain = [(row["question"], row["passage"], "film", None) for row in pair_rows(150)]
    rows = [
        SimilarityExample(str(number), tuple(texts), score, "made", "triplets")
        for number, (*texts, score) in enumerate([*plain, *scored])
    ]
    files = {
        "scored": str(write_rows(tmp_path / "scored.jsonl", scored_rows(40, 1))),
        "pairs": str(write_rows(tmp_path / "pairs.jsonl", pair_rows(60, 1))),
    }
    dev = {name: read_task("similarity", dev=file).dev["dev"] for name, file in files.items()}
    task = dataclasses.replace(read_task("similarity", dev=files["scored"]).task, max_length=40)
    config = similarity_config(toy_model, tmp_path, triplet_rows(2), batch=32)

    def scores(steps: int, rows: list) -> tuple[float, float]:
        run = dataclasses.replace(config, steps=steps)
        found = finetune(run, tmp_path / f"run-{steps}", quiet=True, data=TaskData(task, rows, dev)).scores.splits
        return found["scored"]["spearman"].value, found["pairs"]["recall_at_10"].value

    (likeness, found), (likeness_before, found_before) = scores(200, rows), scores(1, rows[:2])
    assert likeness > 0.5 > likeness_before
    assert found > found_before + 0.1
