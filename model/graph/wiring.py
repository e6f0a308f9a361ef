"""Who makes and who reads each value of a file: order, undefined values, double writers, cycles.

Runs in the reader's child process. Faults are reported and worked around so that the graph can still be
looked at; `refusal` says when nothing may be simulated. No recursion: chains of 10,000 nodes are valid.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from .functions import FileNode, captured_names

Warnings = list[tuple[str, str, str]]


class Wiring:
    """The checked order of the nodes.

    Attributes
    ----------
    order : the nodes in a topological order, file order wherever that is one; nodes on cycles come last.
    undefined : values that nothing makes, in order of appearance.
    captured : per node the outer values that its nested graphs read.
    refusal : why nothing may be simulated; "" where nothing stands against it.
    """

    def __init__(
        self, nodes: list[FileNode], outside: Iterable[str], outputs: Iterable[str], warnings: Warnings
    ) -> None:
        """`outside`: graph inputs and constants. `warnings` is appended to."""
        self._nodes = nodes
        self._warnings = warnings
        self._outside = frozenset(outside)
        self._maker: dict[str, int] = {}
        self.refusal = ""
        self.captured = {node: captured_names(node.proto) for node in nodes}
        for index, node in enumerate(nodes):
            self._enter_outputs(index, node)
        self.undefined = self._find_undefined(outputs)
        self.order = self._sorted()

    def _enter_outputs(self, index: int, node: FileNode) -> None:
        for position, name in enumerate(node.proto.output):
            if not name:
                continue
            if name in self._maker or name in self._outside:
                name = self._renamed_second(node, name)
                node.proto.output[position] = name
            self._maker[name] = index

    def _renamed_second(self, node: FileNode, name: str) -> str:
        """Report a second writer. Both stay visible: the second one's value gets a name that nobody reads."""
        first = self._nodes[self._maker[name]].label if name in self._maker else "an input or weight"
        what = f"value {name!r} is written twice, by {first} and by {node.label}"
        self._warnings.append((name, what, "Each value must have one writer; export the model again."))
        self.refusal = self.refusal or what
        other = f"{name} (of {node.label})"
        while other in self._maker or other in self._outside:
            other += "'"
        return other

    def _reads(self, node: FileNode) -> Iterator[str]:
        yield from (name for name in node.proto.input if name)
        yield from self.captured[node]

    def _find_undefined(self, outputs: Iterable[str]) -> tuple[str, ...]:
        readers: dict[str, list[str]] = {}
        for node in self._nodes:
            for name in self._reads(node):
                if name not in self._maker and name not in self._outside:
                    readers.setdefault(name, []).append(node.label)
        for name, who in readers.items():
            what = f"nothing makes value {name!r}, which {listed(who)} reads"
            self._warnings.append((name, what, "It is taken as an input of unknown shape."))
        missing = [name for name in outputs if name not in self._maker and name not in self._outside]
        if missing:
            what = f"nothing makes graph output {listed([repr(name) for name in missing])}"
            self._warnings.append(("graph outputs", what, "Export the model again."))
        return (*readers, *(name for name in missing if name not in readers))

    def _sorted(self) -> list[FileNode]:
        """Kahn's algorithm with a heap of file indices."""
        waiting = [0] * len(self._nodes)
        readers: list[list[int]] = [[] for _ in self._nodes]
        for index, node in enumerate(self._nodes):
            for maker in {self._maker[name] for name in self._reads(node) if name in self._maker}:
                waiting[index] += 1
                readers[maker].append(index)
        ready = [index for index, count in enumerate(waiting) if count == 0]
        order: list[int] = []
        while ready:
            index = heapq.heappop(ready)
            order.append(index)
            for reader in readers[index]:
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    heapq.heappush(ready, reader)
        if order != sorted(order):
            self._warnings.append(("graph", "its nodes are not in topological order", "They were sorted."))
        left = [index for index, count in enumerate(waiting) if count > 0]
        if left:
            cycle = " -> ".join(self._nodes[index].label for index in self._one_cycle(set(left)))
            what = f"the graph has a cycle: {cycle}"
            self._warnings.append(("graph", what, "No model has one; export it again."))
            self.refusal = self.refusal or what
            for index in left:
                self._nodes[index].reason = "it stands on a cycle or behind one"
        return [self._nodes[index] for index in order + left]

    def _one_cycle(self, left: set[int]) -> list[int]:
        """One cycle among `left`, its first node repeated at the end.

        Every node in `left` waits for another one in `left`: walking to makers must come back somewhere.
        """
        seen: dict[int, int] = {}
        path: list[int] = []
        at = min(left)
        while at not in seen:
            seen[at] = len(path)
            path.append(at)
            makers = (self._maker.get(name, -1) for name in self._reads(self._nodes[at]))
            at = min(maker for maker in makers if maker in left)
        cycle = path[seen[at] :][::-1]
        start = cycle.index(min(cycle))
        cycle = cycle[start:] + cycle[:start]
        return [*cycle, cycle[0]]


def listed(names: list[str]) -> str:
    """Names for a message: at most four of them."""
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
