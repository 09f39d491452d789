"""The model in plain torch, outputs by name: what a torch.export package holds, and what every file is held to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from litebert.model.heads import Model, named_outputs
from litebert.predict.runtime import Outputs, Request, outputs_of

INPUTS = ("input_ids", "attention_mask", "segment_ids")
# The input that a head has beside the encoder's.
OWN_INPUT = {"pretraining": "positions", "masked-lm": "positions", "answer": "outside"}


class NamedModel(nn.Module):
    """A model as a function of plain tensors, with its outputs by name."""

    def __init__(self, model: Model):
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor, own: Tensor | None = None
    ) -> dict[str, Tensor]:
        """`own`: the positions to predict [P], or where no answer can lie [B, S]."""
        inputs: dict[str, Any] = {"attention_mask": attention_mask, "segment_ids": segment_ids}
        if own is not None:
            inputs[OWN_INPUT[self.model.head]] = own
        if self.model.head == "multiple-choice":
            inputs["num_choices"] = 1
        return named_outputs(self.model.head, self.model(input_ids, **inputs))


class Reference:
    """A runtime without any haste: one request at a time, unpadded, through the model as it is written."""

    def __init__(self, model: Model):
        self.config, self.head = model.config, model.head
        self.outputs = outputs_of(model)
        self.model = model.eval()
        self._named = NamedModel(self.model)

    @torch.inference_mode()
    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order."""
        return [self._run(request) for request in requests]

    def _run(self, request: Request) -> Outputs:
        ids, segments = (torch.from_numpy(x.astype(np.int64))[None] for x in (request.ids, request.segments))
        inputs = [ids, torch.ones_like(ids), segments]
        own = OWN_INPUT.get(self.head)
        if own == "positions":
            assert request.positions is not None
            inputs.append(torch.from_numpy(request.positions))
        elif own == "outside":
            assert request.outside is not None
            inputs.append(torch.from_numpy(request.outside)[None].long())
        named = self._named(*inputs)
        # Once more for itself: a head may ask its encoder for some tokens only.
        maps = "attentions" in request.want
        encoded = self.model.encoder(ids, segment_ids=segments, output_attentions=maps)
        values = {name: value if name == "masked_lm" else value[0] for name, value in named.items()}
        hidden = encoded.hidden[0]
        values |= {"hidden": hidden, "first": hidden[0], "mean": hidden.mean(0)}
        if maps:
            values["attentions"] = torch.stack(encoded.attentions)[:, 0]
        if encoded.pooled is not None:
            values["pooled"] = encoded.pooled[0]
        return {name: values[name].numpy() for name in request.want}
