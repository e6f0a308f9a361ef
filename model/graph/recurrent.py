"""Rows of the operator-type table that step through time: LSTM, GRU, RNN.

A recurrence cannot be cut between its steps, so it is one nest: per step the new input and the state before it,
side by side along ``k``, times the weights of all gates: ``T B gates H (I + H)`` multiply-accumulates a direction.
``t`` is marked as a reduction, since a step needs the one before: no core may take its steps apart, and nothing
runs between them. The state itself stays where it is made and is not counted as an operand.

Dims: ``t`` steps, ``d`` directions, ``b`` batch, ``h`` hidden units, ``g`` gates, ``k`` inputs and state.
"""

from __future__ import annotations

from .graph import Axis, Dim, OpKind
from .row import Call, Loops, Map, Row, Unmodelled, axis_of, whole

_T, _D, _B, _H, _G, _K = range(6)


def recurrence(gates: int, *per_unit: tuple[str, float]) -> Row:
    """A row for a recurrence with `gates` products a step; `per_unit`: vector operations per unit and step."""

    def row(call: Call) -> Loops:
        x, w, r = call.input(0), call.input(1), call.input(2)
        if len(x.shape) != 3 or len(w.shape) != 3 or len(r.shape) != 3:
            raise Unmodelled("a recurrence needs three axes each of input, weights and recurrent weights")
        batch_first = call.integer("layout", 0)
        batch, steps = x.shape[:2] if batch_first else x.shape[1::-1]
        directions, rows, hidden = r.shape
        width = w.shape[2]
        if rows != gates * hidden or w.shape[:2] != r.shape[:2] or x.shape[2] != width:
            raise Unmodelled(f"its weights are not those of {gates} gates")
        dims = (
            Dim("t", steps, reduction=True), Dim("d", directions), Dim("b", batch), Dim("h", hidden),
            Dim("g", gates, reduction=True), Dim("k", width + hidden, reduction=True),
        )  # fmt: skip
        gate = Axis(((_G, hidden), (_H, 1)))
        order = (axis_of(_B), axis_of(_T)) if batch_first else (axis_of(_T), axis_of(_B))
        inputs = [
            Map(0, (*order, axis_of(_K))),
            Map(1, (axis_of(_D), gate, axis_of(_K))),
            Map(2, (axis_of(_D), gate, axis_of(_K, 1, -width))),
        ]
        inputs += [
            whole(p, o) for p in range(3, len(call.inputs)) if (o := call.optional(p)) and not o.is_immediate
        ]
        state = (axis_of(_B), axis_of(_D)) if batch_first else (axis_of(_D), axis_of(_B))
        sequence = (*order, axis_of(_D)) if batch_first else (axis_of(_T), axis_of(_D), axis_of(_B))
        outputs = [
            Map(p, (*(state if p else sequence), axis_of(_H)))
            for p, operand in enumerate(call.outputs)
            if operand is not None
        ]
        if not outputs:
            raise Unmodelled("the shape of its output could not be inferred")
        per_point = gates * (width + hidden)
        ops = tuple((name, count / max(per_point, 1)) for name, count in per_unit)
        return Loops(OpKind.CONTRACTION, dims, tuple(inputs), tuple(outputs), ops)

    return row
