from __future__ import annotations

import pytest
import torch
from small_models import small_model

from litebert.errors import CheckpointError
from litebert.export.torch_package import export_torch
from litebert.model.hub import save_model
from litebert.predict.load import read_manifest


@pytest.mark.parametrize("head", ["pretraining", "answer"])
def test_a_package_gives_the_same_numbers_at_any_shape(tmp_path, head):
    model = small_model(head, num_hidden_layers=3)
    save_model(model, tmp_path / "model")
    report = export_torch(tmp_path / "model", tmp_path / "package")
    assert report.files[0].parameters == report.model_parameters  # the layer once, not three times
    with pytest.raises(CheckpointError, match="set overwrite"):
        export_torch(tmp_path / "model", tmp_path / "package")

    program = torch.export.load(tmp_path / "package/model.pt2")
    layer = [name for name in program.state_dict if ".ffn." in name and name.endswith("input.weight")]
    assert len(layer) == 1
    loaded, names = program.module(), read_manifest(tmp_path / "package").outputs
    for batch, length in ((1, 5), (4, 48), (2, 17)):
        ids = torch.randint(0, model.config.vocab_size, (batch, length))
        mask, segments = torch.ones_like(ids), ids % 2
        mask[-1, length // 2 + 1 :] = 0
        own = torch.arange(0, length, 2) if head == "pretraining" else 1 - mask
        name = "positions" if head == "pretraining" else "outside"
        with torch.inference_mode():
            expected = model(ids, attention_mask=mask, segment_ids=segments, **{name: own})
            actual = loaded(ids, mask, segments, own)
        assert set(actual) == set(names)
        if head == "pretraining":
            torch.testing.assert_close(actual["masked_lm"], expected.masked_lm, atol=1e-4, rtol=0)
            torch.testing.assert_close(actual["sentence"], expected.sentence, atol=1e-4, rtol=0)
        else:
            torch.testing.assert_close(actual["answerable"], expected.no_answer, atol=1e-4, rtol=0)
            torch.testing.assert_close(actual["end_log_prob"], expected.end, atol=1e-4, rtol=1e-5)
            assert torch.equal(actual["start_index"], expected.start_index)
