"""An ONNX graph under construction: nodes in order, every array stored once.

    graph = Graph("fp32")
    hidden = graph.linear(graph.linear("x", "layer", weight, bias), "layer", weight, bias)   -> two products, one matrix

The names of values are strings, as in the file. How matrices are stored and multiplied is the graph's form:

fp32   as they are
int8   in 8 bits with a scale per output; a product quantizes each row of its input to 8 bits, by the row's own range
q4i8   the same, but in the file the repeated layers take 4 bits and the words 6; they become 8 bits when it is loaded
q4     stored like q4i8, multiplied in floats: for GPUs, which have no fast product of 8 bits

All use standard operators; a runtime computes what depends only on weights once, on loading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.export.quantize import (
    FINE,
    FourBits,
    Statistics,
    in_four_bits,
    pack,
    pack_six,
    quantize,
    quantize_four,
    quantize_six,
    smoothing_factors,
)
from litebert.extras import require

# Gelu came with operator set 20, which ONNX Runtime reads since 1.17 and other runtimes since about then.
OPSET = 20
IR_VERSION = 9
Form = Literal["fp32", "int8", "q4", "q4i8"]
Rounded = dict[str, FourBits]


class Graph:
    """Nodes, arrays, inputs and outputs; `model()` makes the ONNX model of them."""

    def __init__(self, form: Form = "fp32", statistics: Statistics | None = None, rounded: Rounded | None = None):
        self.form = form
        self._statistics = statistics or Statistics()
        self._rounded = {} if rounded is None else rounded  # matrices in 4 bits, which take time to make
        self._onnx = require("onnx", "ONNX export")
        require("onnx.helper", "ONNX export")
        self._nodes: list[Any] = []
        self._arrays: dict[str, NDArray[Any]] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._made: dict[str, str] = {}
        self._factors: dict[str, NDArray[np.float32]] = {}

    # -----------------------------------------------------------------------------------------------------------------
    # The parts of a graph

    def input(self, name: str, *shape: int | str, index: bool = True) -> str:
        """An input of int64, or of floats if not `index`; a string is a dimension of any size."""
        kind = self._onnx.TensorProto.INT64 if index else self._onnx.TensorProto.FLOAT
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))
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
        if self.form == "fp32":
            product = self.op("MatMul", x, self.array(f"{name}.weight", matrix))
        else:
            if name in self._statistics.peaks:
                factors = self._smoothing(name, matrix)
                x = self.op("Mul", x, self.array(f"{name}.smoothing", 1 / factors))
                matrix = matrix * factors[:, None]
            else:
                factors = np.ones(len(matrix), np.float32)
            small = self.form != "int8" and in_four_bits(name) and len(matrix) % 2 == 0
            stored = self._four_bits(name, matrix, factors) if small else self._eight_bits(name, matrix)
            product = self.product(x, *stored)
        return product if bias is None else self.op("Add", product, self.array(f"{name}.bias", to_numpy(bias)))

    def product(self, x: str, matrix: str, scale: str) -> str:
        """x @ (matrix * scale) for an int8 matrix [K, N] and scales [N]."""
        if self.form == "q4":
            return self.op("MatMul", x, self._once(matrix, lambda: self.op("Mul", self.cast_float(matrix), scale)))
        # Each row by its own range, so that one loud token costs the others nothing, whatever shares a pass with it.
        largest = self.op("ReduceMax", self.op("Abs", x), self.integers(-1), keepdims=1)
        largest = self.op("Max", largest, self.number(1e-12))
        middle = self.array("middle", np.array(128, np.uint8))
        small = self.op("QuantizeLinear", self.op("Div", x, largest), self.number(1 / 127), middle)
        whole = self.cast_float(self.op("MatMulInteger", small, matrix, middle))
        return self.op("Mul", self.op("Mul", whole, scale), self.op("Mul", largest, self.number(1 / 127)))

    def _smoothing(self, name: str, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        known = self._factors.get(name)  # every application asks
        if known is None:
            given = self._statistics
            known = self._factors[name] = smoothing_factors(given.peaks[name], matrix, given.rows[name])
        return known

    def _eight_bits(self, name: str, matrix: NDArray[np.float32]) -> tuple[str, str]:
        values, scale = quantize(matrix)
        return self.array(f"{name}.weight.int8", values), self.array(f"{name}.scale", scale)

    def _four_bits(self, name: str, matrix: NDArray[np.float32], factors: NDArray[np.float32]) -> tuple[str, str]:
        """The matrix in 4 bits, and the nodes that make 8 bits of it: [K / 2, N] bytes -> [K, N]."""
        if name not in self._rounded:
            gram = self._statistics.grams.get(name)
            self._rounded[name] = quantize_four(matrix, None if gram is None else gram / np.outer(factors, factors))
        rounded = self._rounded[name]
        whole = self._once(f"{name}.weight.int4", lambda: self._unpack(name, rounded))
        return whole, self.array(f"{name}.scale", rounded.scale)

    def _unpack(self, name: str, rounded: FourBits) -> str:
        channels, outputs = rounded.values.shape
        packed = self.array(f"{name}.weight.int4", pack(rounded.values))
        low = self.op("BitwiseAnd", packed, self.array("byte_15", np.array(15, np.uint8)))
        high = self.op("BitShift", packed, self.array("byte_4", np.array(4, np.uint8)), direction="RIGHT")
        both = self.op("Sub", self.cast_float(self.op("Concat", low, high, axis=0)), self.number(8.0))
        count = len(rounded.steps)
        blocks = self.op("Reshape", both, self.integers(count, channels // count, outputs))
        steps = self.op("Unsqueeze", self.cast_float(self.array(f"{name}.steps", rounded.steps)), self.integers(1))
        exact = self.op("Mul", blocks, self.op("Mul", steps, self.number(1 / FINE)))
        whole = self.op("Max", self.op("Round", exact), self.number(-128.0))
        whole = self.op("Reshape", whole, self.integers(channels, outputs))
        return self.op("Cast", whole, to=self._onnx.TensorProto.INT8)

    def table(self, name: str, values: NDArray[np.float32], words: bool = False) -> tuple[str, str | None]:
        """An array of embeddings [V, E], stored once; unless fp32, also the scale [V] of each row.

        Words take 8 bits (6 in the 4-bit forms). Other tables are small: fp32 in int8, 8 bits in the 4-bit forms.
        """
        if self.form == "fp32" or (self.form == "int8" and not words):
            return self.array(f"{name}.weight", values), None
        if words and self.form != "int8" and values.shape[1] % 4 == 0:
            whole, scale = quantize_six(values)
            made = self._once(f"{name}.weight.int6", lambda: self._unpack_six(name, whole))
            return made, self.array(f"{name}.scale", scale)
        turned, scale = quantize(values.T)  # one scale per row
        return self.array(f"{name}.weight.int8", turned.T), self.array(f"{name}.scale", scale)

    def _unpack_six(self, name: str, values: NDArray[np.int8]) -> str:
        four, two = pack_six(values)
        low, high = self.array(f"{name}.weight.int6", four), self.array(f"{name}.weight.high", two)

        def bits(packed: str, at: int, count: int) -> str:
            moved = self.op("BitShift", packed, self.array(f"byte_{at}", np.array(at, np.uint8)), direction="RIGHT")
            mask = self.array(f"byte_{2**count - 1}", np.array(2**count - 1, np.uint8))
            return self.op("BitwiseAnd", moved, mask)

        lows = self.cast_float(self.op("Concat", *(bits(low, at, 4) for at in (0, 4)), axis=1))
        highs = self.cast_float(self.op("Concat", *(bits(high, at, 2) for at in (0, 2, 4, 6)), axis=1))
        both = self.op("Add", lows, self.op("Mul", highs, self.number(16.0)))
        return self.op("Cast", self.op("Sub", both, self.number(32.0)), to=self._onnx.TensorProto.INT8)

    def _once(self, name: str, make: Callable[[], str]) -> str:
        """What depends on weights alone is made at its first use, and used by every application."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

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


def to_numpy(tensor: Tensor) -> NDArray[np.float32]:
    """A parameter as the float32 array of the file."""
    values: NDArray[np.float32] = tensor.detach().float().cpu().numpy()
    return values
