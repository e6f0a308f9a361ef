"""Shapes of all values, and everything that is computed only from constants.

Runs in the reader's child process. onnx infers shapes with data propagation; then `Shape` of known shapes
and small all-constant shape arithmetic is evaluated, and inference runs again, until nothing new is found
(GRAPHS 3: 53 of 99 files become 71). The file's own value shapes are dropped first and used only where all
else says nothing: after binding they cannot be trusted.

Sizes are checked before anything is evaluated: a file can ask for a constant of 1 PiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .attention import ATTENTIONS
from .functions import FileNode, graphs_of
from .known import NOTHING, Known, Lookup
from .parts import Writer, embed_layer_normalization, write_out
from .shapes import ruled, stand_in, unpacked

if TYPE_CHECKING:
    from .control import Entered  # which reads nested graphs, each with an inference of its own

EVALUATION_LIMIT = 65_536  # elements of an operand or result that may be evaluated
_ROUNDS = 40

# What shape arithmetic is made of; nothing else is ever evaluated.
_EVALUABLE = frozenset({
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Concat", "ConstantOfShape", "CumSum", "Div", "Equal",
    "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual",
    "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot", "Or",
    "Pad", "Pow",
    "Range", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round",
    "ScatterElements", "ScatterND", "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose",
    "Trilu", "Unsqueeze", "Where", "Xor",
})  # fmt: skip
_RANDOM = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli",
})  # fmt: skip

# Nodes that are several loop nests.
_WRITTEN_OUT: dict[tuple[str, str], Writer] = {
    **ATTENTIONS,
    ("com.microsoft", "EmbedLayerNormalization"): embed_layer_normalization,
}

# A constant through these is the same weight: the elements that the file stores are what is read.
_SAME_WEIGHT = frozenset({"Identity", "DequantizeLinear", "Dropout"})
_SAME_FLOATS = frozenset({"Cast", "CastLike"})  # between float types: stored narrow, widened on the way
# A constant through these keeps its elements under other axes, and so its name.
_SAME_ELEMENTS = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})


Enter = Callable[[FileNode, Lookup, set[str], int], "Entered | None"]


class Inference:
    """Runs the fixpoint over the nodes of one graph.

    Attributes
    ----------
    known : by value name.
    constant : names of initializers and of everything computed only from constants.
    live : the nodes that are left: those that compute something from an input.
    rearranged : constants that hold another constant's elements under other axes, and that other one.
    transposed : those of them that are a transpose, with its permutation.
    """

    def __init__(
        self,
        model: ModelProto,
        nodes: Iterable[FileNode],
        inputs: Mapping[str, Known],
        constants: Mapping[str, Known],
        hint: Callable[[str], Known],
        enter: Enter,
    ) -> None:
        """`hint`: what the file itself says of a value, asked for those that stay unknown.

        `enter`: what becomes of a control-flow node; see `control.Control.enter`.
        """
        self._opsets = list(model.opset_import)
        self._ir_version = model.ir_version
        self._hint = hint
        self._enter_node = enter
        self._inputs = set(inputs)
        self._same: dict[str, str] = {}
        self.known: dict[str, Known] = {**inputs, **constants}
        self.constant = set(constants)
        self.live = list(nodes)
        self._around = len(self.live)
        self.rearranged: dict[str, str] = {}
        self.transposed: dict[str, tuple[int, ...]] = {}

    def run(self) -> None:
        """Infer, fold, and again, until nothing new comes. Then let the file's own word fill the gaps."""
        for _ in range(_ROUNDS):
            self._infer()
            changed = [self._fold(), self._apply_rules(), self._write_out(), self._enter()]
            if not any(changed) or not self._unknown():
                break
        if self._unknown() and self._take_hints():
            self._infer()
            self._fold()
            self._apply_rules()
            self._write_out()
            self._enter()

    def alias(self, name: str) -> str:
        """The stored weight that `name` is another name of; else `name`."""
        while name in self._same:
            name = self._same[name]
        return name

    # ------------------------------------------------------------ inference

    def _unknown(self) -> bool:
        return any(
            self.known.get(name, NOTHING).shape is None
            for node in self.live
            for name in node.proto.output
            if name
        )

    def _infer(self) -> None:
        """One pass of onnx over the live nodes: new shapes and element types enter `known`."""
        graph = onnx.GraphProto(name="g")
        # onnx gives up at a node without outputs
        asked = [node.proto for node in self.live if not node.is_part and node.proto.output]
        graph.node.extend(map(stand_in, asked))
        made = {name for proto in asked for name in proto.output}
        for name, known in self.known.items():
            if known.values is not None and name in self.constant:
                graph.initializer.append(_stored(name, known.values))
            elif name in made and known.dtype:
                graph.value_info.append(_declared(name, known))
            elif known.dtype:
                graph.input.append(_declared(name, known))
        model = onnx.ModelProto(ir_version=max(self._ir_version, 4), graph=graph)
        model.opset_import.extend(self._opsets)
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
            return  # what the table and the file's own word say must do
        for value in inferred.graph.value_info:
            known = _of_value(value)
            old = self.known.get(value.name, NOTHING)
            if old.shape is None and (known.shape is not None or not old.dtype):
                self.known[value.name] = Known(known.dtype or old.dtype, known.shape)

    def _look(self, name: str) -> Known:
        return self.known.get(name, NOTHING)

    def _apply_rules(self) -> bool:
        """Shapes of operators that onnx leaves alone; whether anything new was found."""
        found = False
        for node in self.live:
            weights = unpacked(node.proto, self._look)
            if weights is not None and weights[0] in self.constant:
                self.known[weights[0]] = weights[1]
            if node.is_part or all(self._look(name).shape is not None for name in node.proto.output if name):
                continue
            for name, fact in ruled(node.proto, self._look).items():
                old = self._look(name)
                if old.shape is None:
                    self.known[name] = Known(fact.dtype or old.dtype, fact.shape)
                    found = True
        return found

    def _write_out(self) -> bool:
        """Nodes that are several loop nests become their parts, once their operands are known; whether any did."""
        live: list[FileNode] = []
        for node in self.live:
            written = write_out(node, self._look, _WRITTEN_OUT)
            if written is None:
                live.append(node)
                continue
            nodes, made = written
            live.extend(nodes)
            self.known.update(made)
        found = len(live) > len(self.live)
        self.live = live
        return found

    def _enter(self) -> bool:
        """Enter control-flow nodes whose operands are known; whether there were any."""
        found = False
        live: list[FileNode] = []
        for node in self.live:
            live.append(node)
            if node.entered or node.reason or not graphs_of(node.proto):
                continue
            entered = self._enter_node(node, self._look, self.constant, self._around)
            if entered is None:
                continue
            node.entered = found = True
            node.bodies, node.reason = entered.bodies, entered.reason
            for name, fact in entered.facts.items():
                if self._look(name).shape is None:
                    self.known[name] = fact
            if entered.nodes is not None:
                live.pop()
                live.extend(entered.nodes)
                self.known.update(entered.constants)
                self.constant.update(entered.constants)
        self.live = live
        return found

    def _take_hints(self) -> bool:
        """The file's own shapes for what is still unknown; whether there were any."""
        found = False
        for node in self.live:
            for name in node.proto.output:
                old = self.known.get(name, NOTHING)
                hint = self._hint(name) if name and old.shape is None else NOTHING
                if hint.shape is not None:
                    self.known[name] = Known(hint.dtype or old.dtype, hint.shape)
                    found = True
        return found

    # ------------------------------------------------------------ folding

    def _fold(self) -> bool:
        """Take out the nodes that depend only on constants and known shapes; whether values are new."""
        batch: list[NodeProto] = []
        pending: set[str] = set()
        live: list[FileNode] = []
        new = False
        for node in self.live:
            proto = node.proto
            if proto.op_type in ("Shape", "Size") and self._shape_value(proto):
                new = True
                continue
            if node.is_part or not self._is_constant(proto):
                live.append(node)
                continue
            self.constant.update(name for name in proto.output if name)
            self._remember_source(proto)
            if self._is_evaluable(proto, pending):
                batch.append(proto)
                pending.update(proto.output)
        self.live = live
        return self._evaluate(batch) or new

    def _remember_source(self, proto: NodeProto) -> None:
        """Note which stored weight a folded node's output is, or is a rearrangement of."""
        if not proto.output:
            return
        source, made = proto.input[0], proto.output[0]
        if not source or not made:
            return
        floats = all("float" in self.known[name].dtype for name in (source, made))
        if proto.op_type in _SAME_WEIGHT or (
            proto.op_type in _SAME_FLOATS and floats and self.known[made].elements > 64
        ):
            self._same[made] = source
        elif proto.op_type in _SAME_ELEMENTS:
            self.rearranged[made] = source
            if proto.op_type == "Transpose":
                rank = len(self.known[source].shape or ())
                perm = next((list(a.ints) for a in proto.attribute if a.name == "perm"), None)
                self.transposed[made] = tuple(range(rank))[::-1] if perm is None else tuple(perm)

    def _shape_value(self, proto: NodeProto) -> bool:
        """Evaluate Shape or Size of a known shape; whether that was possible."""
        known = self.known.get(proto.input[0] if proto.input else "", NOTHING)
        if known.shape is None or any(extent >= 2**62 for extent in (*known.shape, known.elements)):
            return False
        if proto.op_type == "Size":
            values = np.array(known.elements, dtype=np.int64)
        else:
            bounds = {attribute.name: attribute.i for attribute in proto.attribute}
            part = known.shape[slice(bounds.get("start"), bounds.get("end"))]
            values = np.array(part, dtype=np.int64)
        self.known[proto.output[0]] = Known("int64", values.shape, values)
        self.constant.add(proto.output[0])
        return True

    def _is_constant(self, proto: NodeProto) -> bool:
        """Whether a node computes from constants alone and what it makes has a known shape."""
        if proto.op_type in _RANDOM or graphs_of(proto):
            return False
        read = [name for name in proto.input if name]
        return (
            bool(read)
            and all(name in self.constant for name in read)
            and all(self.known.get(name, NOTHING).shape is not None for name in proto.output if name)
        )

    def _is_evaluable(self, proto: NodeProto, pending: set[str]) -> bool:
        """Whether a constant node is shape arithmetic on small operands with a small result."""
        if proto.domain not in ("", "ai.onnx") or proto.op_type not in _EVALUABLE:
            return False
        operands = [name for name in proto.input if name]
        made = [name for name in proto.output if name]
        return all(name in pending or self.known[name].values is not None for name in operands) and all(
            self.known[name].elements <= EVALUATION_LIMIT for name in (*operands, *made)
        )

    def _evaluate(self, batch: list[NodeProto]) -> bool:
        """Enter the values of all outputs of `batch`, one node at a time where the whole fails."""
        if not batch:
            return False
        try:
            self._run(batch)
        except Exception:  # the evaluator raises whatever its numpy code raises
            if len(batch) == 1:
                return False
        else:
            return True
        found = False
        for proto in batch:
            if all(self.known[name].values is not None for name in proto.input if name):
                found |= self._evaluate([proto])
        return found

    def _run(self, batch: list[NodeProto]) -> None:
        made = [name for proto in batch for name in proto.output if name]
        inside = set(made)
        read = {name for proto in batch for name in proto.input if name and name not in inside}
        graph = onnx.GraphProto(name="g")
        graph.node.extend(batch)
        graph.initializer.extend(_stored(name, self.known[name].values) for name in sorted(read))
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
        model = onnx.ModelProto(ir_version=max(self._ir_version, 4), graph=graph)
        model.opset_import.extend(self._opsets)
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, {})
        for name, result in zip(made, results, strict=True):
            values = np.asarray(result)
            if values.size <= EVALUATION_LIMIT:
                self.known[name] = Known(self.known[name].dtype, values.shape, values)


_RENAMED = {"float": "float32", "double": "float64", "undefined": ""}
_NAMES: dict[int, str] = {
    number: _RENAMED.get(name.lower(), name.lower()) for name, number in TensorProto.DataType.items()
}
_NUMBERS: dict[str, int] = {name: number for number, name in _NAMES.items()}


def dtype_name(number: int) -> str:
    """The element type's name in this program; "" where ONNX has none."""
    return _NAMES.get(number, "")


def _stored(name: str, values: Any) -> TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(values).reshape(np.shape(values)), name)


def _declared(name: str, known: Known) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _NUMBERS[known.dtype], known.shape)


def _of_value(value: onnx.ValueInfoProto) -> Known:
    """What inference says of a value; a dim without a number makes the shape unknown."""
    if not value.type.HasField("tensor_type"):
        return NOTHING
    tensor = value.type.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return Known(dtype, None)
    extents = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    return Known(dtype, None if any(extent < 0 for extent in extents) else tuple(extents))
