"""The speed measurement: both sides see the same tokens, and the figures are put together rightly."""

from __future__ import annotations

import json

import pytest
import torch
from tiny_run import make_corpus

from litebert.bench import BenchResult, Case, SpeedRow, bench_pretrain, make_batch, pad, peer_model, real_tokens
from litebert.model.config import preset, vary
from litebert.model.heads import PretrainingModel
from litebert.model.hub import save_model
from litebert.pretraining.objective import run_model, score
from litebert.train.device import DeviceConfig, open_device


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def device():
    return open_device(DeviceConfig(device="cpu", threads=1))


def case_of(corpus, **changes):
    options = dict(tokens=512, peers=("eager",), store=str(corpus / "store"), tokenizer=str(corpus / "tokenizer"))
    return Case("albert-tiny", 64, **{**options, **changes})


def test_the_peer_sees_the_same_tokens(corpus, device, tmp_path):
    """Its loss on the padded batch is ours on the packed one, with the same weights."""
    import transformers

    batch = make_batch(case_of(corpus), device)
    padded = pad(batch)
    assert int(padded["attention_mask"].sum()) == real_tokens(batch) < len(batch.tokens)
    assert int((padded["labels"] >= 0).sum()) == int((batch.labels >= 0).sum())
    shape = vary(preset("albert-tiny"), vocab_size=300, num_hidden_layers=2)
    shape = vary(shape, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    torch.manual_seed(0)
    ours = PretrainingModel(shape)
    save_model(ours, tmp_path / "model")
    peer = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "model")
    totals = score(run_model(ours, batch), batch)
    expected = peer(**{name: value for name, value in padded.items() if "order" not in name}).prediction_logits
    labels = padded["labels"]
    loss = torch.nn.functional.cross_entropy(expected[labels >= 0], labels[labels >= 0])
    assert (totals.mlm_loss / totals.mlm_count).item() == pytest.approx(loss.item(), rel=1e-4)


def test_peer_models_have_our_shape():
    import transformers

    for name in ("albert-tiny", "bert-base"):
        shape = vary(preset(name), num_hidden_layers=1)
        peer = peer_model(shape, transformers)
        ours = PretrainingModel(shape)
        count = sum(p.numel() for p in ours.parameters())
        # transformers' ALBERT head has the bias twice over (one shared tensor, counted once).
        assert sum(p.numel() for p in peer.parameters()) == count


def test_a_run_measures_both_sides_and_the_loader(corpus, device):
    result = bench_pretrain([case_of(corpus)], device, rounds=1, seconds=0.01)
    assert [row.side for row in result.rows] == ["litebert", "transformers eager"]
    assert all(row.tokens_per_second > 0 and row.warmup_seconds > 0 for row in result.rows)
    assert result.loader[0].stream_tokens_per_second > 0
    assert 0 <= result.loader[0].waiting_share <= 1
    json.dumps(result.as_dict())


def test_the_table_compares_with_our_side():
    row = dict(case="c", slowest=1.0, fastest=9.0, share_of_ceiling=0.5, warmup_seconds=3.0)
    rows = [SpeedRow(side="litebert", tokens_per_second=300.0, peak_gib=1.5, **row)]
    rows += [SpeedRow(side="transformers eager", tokens_per_second=200.0, peak_gib=0.0, **row)]
    result = BenchResult({}, rows)
    assert result.ratio("c", "transformers eager") == 1.5
    assert "| c | transformers eager | 200 | 1.50x | 50% |  | 3 |" in result.table()
    assert "| c | litebert | 300 |  | 50% | 1.5 | 3 |" in result.table()


def test_the_command(cli, tmp_path):
    options = ("--length", 32, "--micro-batch-tokens", 64, "--against", "none", "--rounds", 1, "--seconds", 0.01)
    result = cli("bench", "pretrain", "albert-tiny", *options, "--out", tmp_path / "new" / "r.json")
    assert result.code == 0, result
    assert "albert-tiny 32" in result.out
    assert json.loads((tmp_path / "new" / "r.json").read_text())["rows"][0]["side"] == "litebert"
    wrong = cli("bench", "pretrain", "--against", "jax")
    assert (wrong.code, "jax is not one of: compiled, eager, none" in wrong.err) == (2, True)
    wrong = cli("bench", "pretrain", "--store", tmp_path)
    assert (wrong.code, "--store and --tokenizer go together: give both or neither" in wrong.err) == (2, True)
