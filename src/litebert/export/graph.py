"""An ONNX graph under construction: nodes in order, and every array stored once, whoever uses it.

    graph = Graph(int8=False)
    hidden = graph.linear(graph.linear("x", "layer", weight, bias), "layer", weight, bias)   -> two products, one matrix

The names of values are strings, as in the file. With `int8`, matrices are stored as int8 with one scale per output,
and a product is made of the standard operators that ONNX Runtime fuses into one (DynamicQuantizeMatMul).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.export.smooth import Peaks, smoothing_factors
from litebert.extras import require

# Gelu came with operator set 20, which ONNX Runtime reads since 1.17 and other runtimes since about then.
OPSET = 20
IR_VERSION = 9
Shape = tuple[int | str, ...]


class Graph:
    """Nodes, arrays, inputs and outputs; `model()` makes the ONNX model of them."""

    def __init__(self, int8: bool = False, peaks: Peaks | None = None):
        self.int8 = int8
        self.peaks = peaks or {}  # how loud the input channels of a linear layer are, by its name
        self._onnx = require("onnx", "ONNX export")
        require("onnx.helper", "ONNX export")
        self._nodes: list[Any] = []
        self._arrays: dict[str, NDArray[Any]] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    # -----------------------------------------------------------------------------------------------------------------
    # The parts of a graph

    def input(self, name: str, *shape: int | str) -> str:
        """An int64 input; a string is a dimension of any size."""
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, self._onnx.TensorProto.INT64, shape))
        return name

    def output(self, name: str, value: str, *shape: int | str, index: bool = False) -> None:
        """Give a value to the outside under a name; `index` for int64 instead of float."""
        kind = self._onnx.TensorProto.INT64 if index else self._onnx.TensorProto.FLOAT
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name], name=f"output_{name}"))
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))

    def array(self, name: str, values: NDArray[Any]) -> str:
        """A constant; a name that is known already must mean the same array."""
        known = self._arrays.setdefault(name, values)
        assert (known.shape, known.dtype) == (values.shape, values.dtype), name
        return name

    def integers(self, *values: int) -> str:
        """A constant one-dimensional int64 array, as shapes and axes are given."""
        return self.array("integers_" + "_".join(map(str, values)), np.array(values, np.int64))

    def number(self, value: float) -> str:
        """A constant float."""
        return self.array(f"number_{value!r}", np.array(value, np.float32))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """One node with one output."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """One node with `count` outputs."""
        name = f"{kind}_{len(self._nodes)}"
        outputs = [name] if count == 1 else [f"{name}_{i}" for i in range(count)]
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), outputs, name=name, **attributes))
        return outputs

    # -----------------------------------------------------------------------------------------------------------------
    # What models are made of

    def linear(self, x: str, name: str, weight: Tensor, bias: Tensor | None = None) -> str:
        """x @ weight.T + bias, with torch's [out, in] weight."""
        matrix = to_numpy(weight).T
        if self.int8:
            if name in self.peaks:
                factors = smoothing_factors(self.peaks[name], matrix)
                x = self.op("Mul", x, self.array(f"{name}.smoothing", 1 / factors))
                matrix = matrix * factors[:, None]
            values, scale = quantize(matrix)
            product = self.int8_product(
                x, self.array(f"{name}.weight.int8", values), self.array(f"{name}.scale", scale)
            )
        else:
            product = self.op("MatMul", x, self.array(f"{name}.weight", matrix))
        return product if bias is None else self.op("Add", product, self.array(f"{name}.bias", to_numpy(bias)))

    def int8_product(self, x: str, matrix: str, scale: str) -> str:
        """x @ (matrix * scale), x being brought to 8 bits by its own range when the model runs."""
        values, x_scale, zero = self.ops("DynamicQuantizeLinear", 3, x)
        whole = self.op("MatMulInteger", values, matrix, zero)
        # The scales first: ONNX Runtime fuses this order.
        return self.op("Mul", self.op("Cast", whole, to=self._onnx.TensorProto.FLOAT), self.op("Mul", x_scale, scale))

    def norm(self, x: str, name: str, layer: nn.LayerNorm) -> str:
        """LayerNorm over the last axis."""
        weight = self.array(f"{name}.weight", to_numpy(layer.weight))
        bias = self.array(f"{name}.bias", to_numpy(layer.bias))
        return self.op("LayerNormalization", x, weight, bias, axis=-1, epsilon=layer.eps)

    def activation(self, x: str, hidden_act: str) -> str:
        """The activation function of a config's `hidden_act`."""
        if hidden_act == "relu":
            return self.op("Relu", x)
        return self.op("Gelu", x, approximate="none" if hidden_act == "gelu" else "tanh")

    def cast_float(self, x: str) -> str:
        """Integers as floats."""
        return self.op("Cast", x, to=self._onnx.TensorProto.FLOAT)

    def size(self, x: str, axis: int) -> str:
        """The size of one axis, as an array of one number."""
        return self.op("Shape", x, start=axis, end=axis + 1)

    # -----------------------------------------------------------------------------------------------------------------

    def model(self, name: str) -> Any:
        """The finished ONNX model."""
        helper = self._onnx.helper
        tensors = [self._onnx.numpy_helper.from_array(np.array(v, order="C"), k) for k, v in self._arrays.items()]
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, tensors)
        operators = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=operators, ir_version=IR_VERSION, producer_name="litebert")


def quantize(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Columns in [-127, 127], and the scale of each: matrix ~ values * scale."""
    scale = np.maximum(np.abs(matrix).max(axis=0) / 127, np.float32(1e-12)).astype(np.float32)
    return np.clip(np.rint(matrix / scale), -127, 127).astype(np.int8), scale


def to_numpy(tensor: Tensor) -> NDArray[np.float32]:
    """A parameter as the float32 array of the file."""
    values: NDArray[np.float32] = tensor.detach().float().cpu().numpy()
    return values
