"""One group on one machine before anything is chosen: what its operators ask of the units, and a nest without loops.

Knows group spaces and one machine; knows no knobs and no tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..graph.dtypes import BITS
from ..graph.graph import Operator, OperatorGraph, OpKind
from ..plan.plan import FusionGroup
from . import cycles as c
from .layout import NestArrays, axis_dims, pack, whole_elements
from .nest import BUFFER, OUTER, Nest, NestAccess, NestOperator, NestTensor, WindowAxis
from .tree import plain_name
from .unify import GroupSpace, SpaceAccess, SpaceOperator
from .units import Machine, compute_type, element_type

BUFFER_NAME, REGISTERS_NAME = "buffer", "registers"
"""What plans call the first explicit level and the registers, whatever the machine calls its buffer."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Group dims by what a contraction does with them; ``outer`` are products of a batch, groups and taps."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    outer: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around the tiles of a further buffer: a mapped nest of the buffers outside it.

    ``paths``: per operator the tree loops of its path; ``loops``: their rows, as `sweep.py` has them.
    ``least``: per access the effective depth at the buffer outside; ``wide``: whether this has room for unfinished sums
    of its tensor.
    """

    nest: Nest
    paths: tuple[tuple[int, ...], ...]
    loops: NDArray[np.int64]
    least: tuple[int, ...]
    wide: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One group on one machine before anything is chosen: a nest without loops and what its operators ask.

    ``around``: None, but where it is posed for a further buffer: then the extents of ``space`` are the tiles outside.
    ``names`` are the members' names as trees write them; ``number`` the operator of every name that a plan may use,
    ``<OpType>_<index>`` included; ``tensor_names`` those of the local tensors;
    ``statistics`` the running values per row of a reduction that runs online.
    """

    space: GroupSpace
    machine: Machine
    base: Nest
    arrays: NestArrays
    roles: tuple[Roles | None, ...]
    mat: NDArray[np.int64]
    rate: NDArray[np.float64]
    vector: NDArray[np.float64]
    barred: NDArray[np.int64]
    statistics: tuple[int, ...]
    names: tuple[str, ...]
    number: dict[str, int]
    tensor_names: tuple[str, ...]
    warnings: tuple[str, ...]
    around: Around | None = None

    @property
    def level(self) -> int:
        """Of the pair that leads into the buffer that it is posed for: 0 for the outermost."""
        return 0 if self.around is None else self.around.nest.buffers

    @property
    def outside(self) -> tuple[tuple[int, ...], ...]:
        """Per operator the loops around."""
        return ((),) * len(self.space.operators) if self.around is None else self.around.paths


def roles_of(space: GroupSpace, operator: SpaceOperator, im2col: bool) -> Roles | None:
    """Which dims of a contraction are rows, columns, sums and separate products; None where it is no product.

    The two operands are the first two that touch a reduction dim. A dim that both operands and the output have is
    a batch or a group: separate products. The taps of a window are separate products too, unless the machine
    unrolls windows (im2col).
    """
    sums = set(operator.reductions)
    touched = [{d for axis in access.axes for d in axis_dims(axis)} for access in operator.reads]
    operands = [i for i, dims in enumerate(touched) if dims & sums]
    if len(operands) < 2 or not operator.writes:
        return None
    a, b = touched[operands[0]], touched[operands[1]]
    out = {d for axis in operator.writes[0].axes for d in axis_dims(axis)}
    taps: set[int] = set()
    if not im2col:
        axes = operator.reads[operands[0]].axes + operator.reads[operands[1]].axes
        taps = {axis.r for axis in axes if isinstance(axis, WindowAxis)} & sums
    m = tuple(d for d in operator.dims if d in a and d in out and d not in b)
    n = tuple(d for d in operator.dims if d in b and d in out and d not in a)
    inner = tuple(d for d in operator.dims if d in sums and d in a and d in b and d not in taps)
    rest = tuple(d for d in operator.dims if d not in m + n + inner)
    return Roles(m, n, inner, rest)


def pose(
    graph: OperatorGraph, group: FusionGroup, space: GroupSpace, machine: Machine, precision: str
) -> Problem:
    """The problem of mapping `group`; `precision` is already the group's own where it has one.

    Raises
    ------
    OverflowError
        Where counts would not fit 64-bit integers.
    """
    unit = machine.accelerator.matrix_unit
    members = [graph.operators[i] for i in group.operators]
    roles: list[Roles | None] = []
    rate = np.ones(len(space.operators))
    vector = np.zeros(len(space.operators))
    mat = np.zeros((len(space.operators), c.MAT_COLUMNS), np.int64)
    warnings: list[str] = []
    operators: list[NestOperator] = []
    for i, operator in enumerate(space.operators):
        member = members[operator.member]
        contraction = member.kind is OpKind.CONTRACTION
        role = roles_of(space, operator, unit is not None and unit.conv == "im2col") if contraction else None
        if contraction and role is None:
            role = Roles(operator.dims, (), (), ())
        roles.append(role)
        vector[i] = machine.operator_cycles(member)
        if role is not None and unit is not None:
            mat[i] = (1, *(sum(1 << d for d in dims) for dims in (role.m, role.n, role.k, role.outer)))
            rate[i], note = machine.rate(compute_type(graph, member, precision))
            if note and note not in warnings:
                warnings.append(note)
        operators.append(
            NestOperator(
                leaf=-1,
                tree_depth=0,
                dims=operator.dims,
                reductions=operator.reductions,
                contraction=contraction,
                pointwise=member.kind is OpKind.POINTWISE,
                reads=tuple(_flat(access, machine.levels) for access in operator.reads),
                writes=tuple(_flat(access, machine.levels) for access in operator.writes),
                domain=operator.domain,
            )
        )
    tensors: list[NestTensor] = []
    for local, index in enumerate(space.tensors):
        bits = BITS.get(element_type(graph.tensors[index].dtype, precision), 0)
        size = 0
        if space.producer[local] >= 0:
            for access in space.operators[space.producer[local]].writes:
                if access.tensor == local:
                    size = access.fixed if access.fixed >= 0 else whole_elements(access.axes, space.extents)
        home = BUFFER if space.intermediate(local) else OUTER
        exported = home != OUTER and space.exported[local]
        tensors.append(NestTensor(bits, machine.partial_bits(bits), home, exported, size))
    base = Nest(space.extents, (), tuple(operators), tuple(tensors))
    barred = np.zeros((len(operators), len(operators)), np.int64)
    for producer, consumer, mask in space.barred:
        barred[producer, consumer] = mask
    workers = [members[op.member] for op in space.operators]
    named = [(member, f"{member.op_type}_{member.index}") for member in workers]
    return Problem(
        space=space,
        machine=machine,
        base=base,
        # A run of one element may move as a sector and touch one more.
        arrays=pack(base, max(64, 16 * max(level.access_bytes for level in machine.accelerator.memory))),
        roles=tuple(roles),
        mat=mat,
        rate=rate,
        vector=vector,
        barred=barred,
        statistics=tuple(_running_values(members[op.member], machine) for op in space.operators),
        names=tuple(plain_name(member.name, indexed) for member, indexed in named),
        number={name: i for i, (member, indexed) in enumerate(named) for name in (indexed, member.name)},
        tensor_names=tuple(graph.tensors[index].name for index in space.tensors),
        warnings=tuple(warnings),
    )


def _running_values(operator: Operator, machine: Machine) -> int:
    """Values per row that an online reduction keeps: maximum and sum, mean and variance, or one sum of squares."""
    if not operator.online or not machine.accelerator.online_statistics:
        return 0
    return 1 if operator.op_type in ("RMSNormalization", "SimplifiedLayerNormalization") else 2


def _flat(access: SpaceAccess, levels: int) -> NestAccess:
    return NestAccess(access.tensor, access.axes, (0,) * levels, access.fixed, access.at)
