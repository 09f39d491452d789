"""The GPU path held to the CPU reference: packed bf16 and fp32 on CUDA against fp32 on the CPU, values and gradients.

python benchmarks/gpu_check.py            (needs a GPU; CI has none, so this is a script and not a test)
"""

from __future__ import annotations

import torch

from litebert.model.config import preset
from litebert.model.heads import PretrainingModel
from litebert.pretraining.objective import Inputs, run_model, score
from litebert.pretraining.plan import random_inputs
from litebert.train.device import Device, DeviceConfig, open_device, speed_up


def run(model: PretrainingModel, inputs: Inputs, device: Device) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss and gradients."""
    model.zero_grad(set_to_none=True)
    with device.autocast():
        totals = score(run_model(model, inputs), inputs)
    loss = totals.mlm_loss / totals.mlm_count + totals.sentence_loss / totals.sentence_count
    loss.backward()
    return loss.detach().cpu(), {name: p.grad.float().cpu() for name, p in model.named_parameters()}


def main() -> None:
    cpu = open_device(DeviceConfig(device="cpu"))
    config = preset("albert-base", num_hidden_layers=4)
    torch.manual_seed(0)
    model = PretrainingModel(config)
    inputs = random_inputs(config, 2048, 128, 0.15, cpu)
    expected_loss, expected = run(model, inputs, cpu)
    failed = False
    for precision, compiled, limit in (("fp32", "off", 2e-3), ("bf16", "off", 0.05), ("bf16", "on", 0.05)):
        gpu = open_device(DeviceConfig(device="cuda", precision=precision, compile=compiled))
        copy = PretrainingModel(config).to(gpu.device)
        copy.load_state_dict(model.state_dict())
        speed_up(copy, gpu)
        moved = Inputs(*(x.to(gpu.device) if isinstance(x, torch.Tensor) else x for x in inputs))
        loss, gradients = run(copy, moved, gpu)
        errors = {
            name: float((gradients[name] - g).norm() / g.norm().clamp(min=1e-12))
            for name, g in expected.items()
            if not name.endswith("key.bias")  # its true gradient is 0
        }
        worst = max(errors, key=errors.__getitem__)
        ok = abs(float(loss - expected_loss)) < limit and errors[worst] < limit
        failed |= not ok
        print(
            f"{precision} {'compiled' if gpu.compile else 'eager':8s}  loss {float(loss):.5f} "
            f"(CPU {float(expected_loss):.5f})  largest relative gradient error {errors[worst]:.2e} ({worst})  "
            f"{'ok' if ok else 'TOO FAR'}"
        )
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
