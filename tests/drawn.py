"""Graphs drawn as text for tests: ``a = Relu(x); b = MatMul(a, w); y = Add(a, b)``.

Each statement is one operator that writes the tensor of the same name; commas on the left make more outputs.
The operator's name is its first output's. Names that nothing writes are inputs; those that start with ``w``
are weights. All tensors are 4 x 4 unless they say ``name:1``, a weight of one element.
"""

from __future__ import annotations

from model.graph.graph import Access, Axis, Dim, Operator, OperatorGraph, OpKind, Tensor, TensorRole

KINDS = {
    "MatMul": OpKind.CONTRACTION,
    "Conv": OpKind.CONTRACTION,
    "Softmax": OpKind.REDUCTION,
    "Reshape": OpKind.VIEW,
    "Transpose": OpKind.MOVEMENT,
    "If": OpKind.OPAQUE,
}
AXES = (Axis(((0, 1),)), Axis(((1, 1),)))


def drawn(text: str, digest: str = "sha256:drawn") -> OperatorGraph:
    """The graph that `text` draws; operator types not listed in `KINDS` are pointwise."""
    tensors: dict[str, Tensor] = {}
    operators: list[Operator] = []
    read: set[str] = set()

    def tensor(name: str, role: TensorRole) -> int:
        plain, _, one = name.partition(":")
        shape = (1,) if one else (4, 4)
        return tensors.setdefault(plain, Tensor(len(tensors), plain, "int8", shape, role)).index

    for statement in filter(None, (part.strip() for part in text.replace("\n", ";").split(";"))):
        left, call = (side.strip() for side in statement.split("=", 1))
        op_type, _, arguments = call.rstrip(")").partition("(")
        sources = [name.strip() for name in arguments.split(",") if name.strip()]
        read.update(sources)
        inputs = tuple(
            Access(tensor(name, TensorRole.WEIGHT if name.startswith("w") else TensorRole.INPUT), AXES)
            for name in sources
        )
        names = [name.strip() for name in left.split(",")]
        outputs = tuple(Access(tensor(name, TensorRole.ACTIVATION), AXES) for name in names)
        kind = KINDS.get(op_type, OpKind.POINTWISE)
        dims = (Dim("i0", 4), Dim("i1", 4))
        if kind is OpKind.CONTRACTION:
            dims += (Dim("k", 4, reduction=True),)
        index = len(operators)
        operators.append(
            Operator(index, names[0], op_type, kind, dims, inputs, outputs, identity=f"#{index}")
        )
    return OperatorGraph("drawn", tuple(tensors.values()), tuple(operators), digest=digest)
