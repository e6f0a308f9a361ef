"""Loop trees: the canonical one of a loop order, their text, and why one is not legal (docs/loop-tree.md, section 1).

Knows group spaces; knows no tile sizes and no machine. ``m { n { MatMul_1(k), MatMul_2(p) }, Relu }``: braces are
loops, leaves are operators in file order, parentheses are an operator's private loops, outermost first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import PlanError
from .unify import GroupSpace


@dataclass(frozen=True, slots=True)
class Leaf:
    """An operator (position in the space) under its private loops, outermost first."""

    operator: int
    private: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop over a group dim and what runs in it, in order."""

    dim: int
    body: Tree


Tree = tuple["Loop | Leaf", ...]

_TOKEN = re.compile(r"\s*(?:([{}(),])|([^\s{}(),]+))")


def canonical(space: GroupSpace, order: Sequence[int]) -> Tree:
    """The canonical tree of a loop order: dim by dim, neighbours that may share a loop form a run under it."""
    masks = [sum(1 << d for d in operator.dims) for operator in space.operators]
    barred = {(p, c): mask for p, c, mask in space.barred}

    def grow(operators: list[int], dims: Sequence[int]) -> Tree:
        if not dims:
            return tuple(Leaf(o) for o in operators)
        dim, rest = dims[0], dims[1:]
        out: list[Loop | Leaf] = []
        run: list[int] = []
        inside = False

        def close() -> None:
            if run and inside:
                out.append(_loop(dim, grow(run, rest)))
            elif run:
                out.extend(grow(run, rest))
            run.clear()

        for o in operators:
            has = bool(masks[o] >> dim & 1)
            shares = has == inside and not (has and any(barred.get((p, o), 0) >> dim & 1 for p in run))
            if not shares:
                close()
                inside = has
            run.append(o)
        close()
        return tuple(out)

    return grow(list(range(len(space.operators))), list(order))


def _loop(dim: int, body: Tree) -> Loop | Leaf:
    """A loop; over a single operator it is written in the operator's parentheses."""
    if len(body) == 1 and isinstance(body[0], Leaf):
        return Leaf(body[0].operator, (dim, *body[0].private))
    return Loop(dim, body)


def paths(tree: Tree) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Per operator, in order: the loops of its path as (loop numbers in preorder, their dims)."""
    out: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    number = 0

    def visit(body: Tree, loops: tuple[int, ...], dims: tuple[int, ...]) -> None:
        nonlocal number
        for node in body:
            if isinstance(node, Loop):
                number += 1
                visit(node.body, (*loops, number - 1), (*dims, node.dim))
            else:
                own = tuple(range(number, number + len(node.private)))
                number += len(node.private)
                out.append((node.operator, (*loops, *own), (*dims, *node.private)))

    visit(tree, (), ())
    return [(loops, dims) for _, loops, dims in sorted(out)]


def to_text(tree: Tree, dims: Sequence[str], operators: Sequence[str]) -> str:
    """The tree as text; `operators` are the names of the space's operators."""

    def part(node: Loop | Leaf) -> str:
        if isinstance(node, Loop):
            return f"{dims[node.dim]} {{ {', '.join(part(child) for child in node.body)} }}"
        private = f"({', '.join(dims[d] for d in node.private)})" if node.private else ""
        return operators[node.operator] + private

    return ", ".join(part(node) for node in tree)


def plain_name(name: str, otherwise: str) -> str:
    """A name that can stand in a tree's text: itself, or `otherwise` where it holds spaces, commas or brackets."""
    return otherwise if not name or re.search(r"[\s{}(),]", name) else name


def from_text(text: str, space: GroupSpace, names: dict[str, int]) -> Tree:
    """Read a tree's text; `names` gives the operator (position in the space) of each name.

    Raises
    ------
    PlanError
        Where the text is not a tree, names what the group does not have, or does not hold every operator once in
        file order.
    """
    tokens = [(m.group(1) or "", m.group(2) or "", m.start()) for m in _TOKEN.finditer(text)]
    if _TOKEN.sub("", text).strip():
        raise PlanError(f"tree {text!r} cannot be read")
    dims = {name: i for i, name in enumerate(space.names)}
    at = 0

    def fail(what: str) -> PlanError:
        place = tokens[at][2] + 1 if at < len(tokens) else len(text)
        return PlanError(
            f"tree, character {place}: {what}", lever="Write it like `m { n { MatMul_1(k) }, Relu_2 }`"
        )

    def peek() -> str:
        return tokens[at][0] if at < len(tokens) else ""

    def body(depth: int) -> Tree:
        nonlocal at
        out: list[Loop | Leaf] = []
        while at < len(tokens) and peek() != "}":
            if peek() == ",":
                at += 1
                continue
            out.append(item(depth))
        return tuple(out)

    def item(depth: int) -> Loop | Leaf:
        nonlocal at
        _, name, _ = tokens[at]
        if not name:
            raise fail(f"{peek()!r} where a dim or an operator should stand")
        at += 1
        if peek() == "{":
            if name not in dims:
                at -= 1
                raise fail(f"the group has no dim {name!r}; its dims are {', '.join(space.names)}")
            if depth > 60:
                raise fail("too many loops inside each other")
            at += 1
            inner = body(depth + 1)
            if peek() != "}":
                raise fail("a brace is not closed")
            at += 1
            return _loop(dims[name], inner) if inner else Loop(dims[name], ())
        if name not in names:
            at -= 1
            raise fail(f"the group has no operator {name!r}")
        private: list[int] = []
        if peek() == "(":
            at += 1
            while peek() != ")":
                if at >= len(tokens):
                    raise fail("a parenthesis is not closed")
                _, dim, _ = tokens[at]
                if peek() != ",":
                    if dim not in dims:
                        raise fail(f"the group has no dim {dim!r}; its dims are {', '.join(space.names)}")
                    private.append(dims[dim])
                at += 1
            at += 1
        return Leaf(names[name], tuple(private))

    tree = body(0)
    if at < len(tokens):
        raise fail("a brace is closed that was not opened")
    order = [leaf.operator for leaf in leaves(tree)]
    if order != list(range(len(space.operators))):
        raise PlanError(
            "a tree holds every operator of its group once, in file order",
            lever="Views are left out: they run nowhere",
        )
    return tree


def leaves(tree: Tree) -> list[Leaf]:
    """All leaves, in the order in which they run."""
    out: list[Leaf] = []
    for node in tree:
        if isinstance(node, Loop):
            out.extend(leaves(node.body))
        else:
            out.append(node)
    return out


def check(space: GroupSpace, tree: Tree, operators: Sequence[str]) -> None:
    """Refuse a tree that breaks a law.

    Raises
    ------
    PlanError
        Naming the operators, the dim and the law: a consumer inside its producer's sum, an axis that must stay
        whole, a foreign loop inside a reduction, a dim twice on one path.
    """
    chains = paths(tree)
    for o, (_, dims) in enumerate(chains):
        operator = space.operators[o]
        twice = next((d for i, d in enumerate(dims) if d in dims[:i]), None)
        if twice is not None:
            raise PlanError(
                f"{operators[o]} stands under two loops over {space.names[twice]}", lever="Keep one"
            )
        reduced = False
        for d in dims:
            if d not in operator.dims and reduced:
                raise PlanError(
                    f"the loop over {space.names[d]} is not {operators[o]}'s own and lies inside its reduction",
                    lever=f"Put {space.names[d]} outside",
                )
            reduced = reduced or d in operator.reductions
    for producer, consumer, mask in space.barred:
        shared = [
            d for i, d in zip(*chains[producer], strict=True) if i in chains[consumer][0] and mask >> d & 1
        ]  # fmt: skip
        if not shared:
            continue
        dim = space.names[shared[0]]
        if shared[0] in space.operators[producer].reductions:
            raise PlanError(
                f"{operators[consumer]} cannot run inside {operators[producer]}'s reduction over {dim}: the sum is "
                "not complete there",
                lever=f"Make {dim} private: {operators[producer]}({dim})",
            )
        raise PlanError(
            f"{operators[consumer]} needs all of {dim} of what {operators[producer]} makes: they cannot share a loop "
            "over it",
            lever=f"Make {dim} private: {operators[producer]}({dim})",
        )
