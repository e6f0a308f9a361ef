"""One fusion group under one mapping, as plain numbers: what the kernels evaluate and the walker walks.

`unify.py` and `tree.py` make it from the graph and the plan; `layout.py` packs it into arrays. It knows
neither names nor machines. The laws are in docs/loop-tree.md.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimpleAxis:
    """Element ``coefficient * index(dim) + offset``, read only inside ``0 <= element < extent``."""

    dim: int
    coefficient: int = 1
    offset: int = 0
    extent: int = 1 << 62


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """Element ``p * stride + r * dilation + offset``, read only inside ``0 <= element < extent``.

    ``rolling``: what a tile shares with those before it along p is there already and is not moved or made again.
    """

    p: int
    r: int
    stride: int
    dilation: int
    offset: int
    extent: int
    rolling: bool = False


@dataclass(frozen=True, slots=True)
class IndirectAxis:
    """Addressed by value over ``dims``: ``min(tile of dims[0], distinct)`` in a tile, ``distinct`` in all."""

    dims: tuple[int, ...]
    distinct: int


NestAxis = SimpleAxis | WindowAxis | IndirectAxis


@dataclass(frozen=True, slots=True)
class NestAccess:
    """One operand. ``depth[level]``: loops of the operator's path outside its tile, per pair of levels, inwards.

    ``fixed``: exactly so many elements are moved once whatever the tiles are (an operand whose index map
    is not expressible); -1 for the normal case. Such an operand is streamed: it takes no room.
    ``at``: indices on the axes that no dim addresses, where any is not 0: another index is another slice.
    """

    tensor: int
    axes: tuple[NestAxis, ...]
    depth: tuple[int, ...]
    fixed: int = -1
    at: tuple[int, ...] = ()


# Where a tensor lives while the group runs: the number of its level. Further buffers, inwards, are 2, 3, ...
OUTER, BUFFER, REGISTERS = 0, 1, 64


@dataclass(frozen=True, slots=True)
class NestTensor:
    """``home``: OUTER for what only crosses to the outer level; BUFFER, a further one or REGISTERS for intermediates.

    ``written_outside``: an intermediate that someone outside also reads, or a graph output: one write more.
    ``pinned``: a tensor from outside that stays in the outermost buffer for as long as the group runs; its depth at
    level 0 is 0.
    ``spilled``: made and read in the group, but at home outside, because the buffer has no room for it.
    ``elements``: size of the tensor as its writer addresses it (for that one write).
    """

    bits: int
    partial_bits: int
    home: int = OUTER
    written_outside: bool = False
    elements: int = 0
    pinned: bool = False
    spilled: bool = False


@dataclass(frozen=True, slots=True)
class NestOperator:
    """An operator at its leaf.

    ``leaf``: index of its innermost loop, -1 for none. ``tree_depth``: how many loops of its path belong to
    the tree text (the rest is private). ``statistics``: elements of running statistics per element of the
    output's non-reduced dims (0 without an online consumer). ``rescale``: (dim, ...) of the online loops that
    this operator's accumulator is rescaled over. ``domain``: windows over two of its dims each, of which it runs each
    element once a tile: dims that follow a consumer's tile (docs/loop-tree.md, section 1). None of these dims has a
    private loop.
    """

    leaf: int
    tree_depth: int
    dims: tuple[int, ...]
    reductions: tuple[int, ...]
    contraction: bool
    pointwise: bool
    reads: tuple[NestAccess, ...]
    writes: tuple[NestAccess, ...]
    statistics: int = 0
    rescale: tuple[int, ...] = ()
    domain: tuple[WindowAxis, ...] = ()


@dataclass(frozen=True, slots=True)
class Nest:
    """The whole group.

    ``loops``: (dim, step, parent) in preorder, parent -1 at the root; private loops included, so that every
    operator's path is the chain of parents of its leaf. Children of a node, loops and operators alike, run in
    the order of the first operator below them. ``stages``: copies of a streamed tile in the outermost buffer;
    ``inner_stages``: in each further buffer, outermost first: there are as many of these as it has. ``splits``: (tree
    loop, cores) of the sums that cores share: the outermost loop of its dim, at least as many trips as cores, and every
    output that does not have the dim at home outside.
    """

    extents: tuple[int, ...]
    loops: tuple[tuple[int, int, int], ...]
    operators: tuple[NestOperator, ...]
    tensors: tuple[NestTensor, ...]
    stages: int = 1
    splits: tuple[tuple[int, int], ...] = ()
    inner_stages: tuple[int, ...] = ()

    @property
    def buffers(self) -> int:
        """Explicit on-chip levels, the registers aside."""
        return 1 + len(self.inner_stages)
