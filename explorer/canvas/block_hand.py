"""Opening and closing blocks by mouse, key and menu.

Knows the document's selection and the stage. Must not know widgets or the pointer; methods without arguments are
actions of the one list. Opening and closing is no edit: the plan stays, and undo does not know of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from .scene import Hit, Part, Scene
from .stage import Stage

if TYPE_CHECKING:
    from ..document import Document


class BlockHand:
    """See the module's docstring."""

    def __init__(self, document: Document, stage: Stage) -> None:
        self._document, self._stage = document, stage

    @property
    def _scene(self) -> Scene | None:
        return self._stage.scene

    def turn(self, hit: Hit, meant: tuple[int, ...]) -> None:
        """Open the closed block, close the open one, or open what hides an end of the line at `hit`.

        Parameters
        ----------
        meant : the operators of what was hit; it stays under the pointer.
        """
        scene = self._scene
        if scene is None or not meant:
            return
        folding = scene.folding
        if hit.part is Part.FRAME:
            block = folding.opened[hit.index]
            self._stage.fold(folding.closing_block(block), _topmost(scene, meant))
        else:
            self._stage.fold(folding.opening(_closed_around(scene, meant)), meant[0])

    def open_block(self) -> None:
        """Open the closed blocks that are selected."""
        selection, scene = self._document.selection, self._scene
        if scene is None or not selection:
            return
        closed = _closed_around(scene, selection)
        if closed:
            self._stage.fold(scene.folding.opening(closed), selection[0])
        else:
            self._document.said.emit("No closed block is selected.", "note")

    def close_block(self) -> None:
        """Close the blocks around what is selected."""
        selection, scene = self._document.selection, self._scene
        if scene is None or not selection:
            return
        folding = scene.folding.closing(selection)
        if folding.closed == scene.folding.closed:
            self._document.said.emit("What is selected lies in no block.", "note")
        else:
            self._stage.fold(folding, _topmost(scene, selection), lambda: self._select_whole(selection[0]))

    def _select_whole(self, operator: int) -> None:
        """Select all that is one box with an operator."""
        if self._scene is not None:
            self._document.select(self._scene.folding.together(operator))

    def open_all_blocks(self) -> None:
        """See every operator."""
        if self._scene is not None:
            self._stage.fold(self._scene.folding.with_closed(()))

    def close_all_blocks(self) -> None:
        """See the graph as it opens when it is large."""
        folding = None if self._scene is None else self._scene.folding
        if folding is None or folding.hierarchy is None:
            return
        closed = folding.hierarchy.opening() or folding.hierarchy.children(-1).tolist()
        if not closed:
            self._document.said.emit("This model has no blocks: no scopes, and nothing that repeats.", "note")
        self._stage.fold(folding.with_closed(closed), then=self._stage.first_look)

    def uncover(self, operators: tuple[int, ...]) -> None:
        """Open what hides some operators, and bring them into the middle."""
        if self._scene is not None and operators:
            seen = self._scene.folding.revealing(operators)
            self._stage.fold(seen, operators[0], lambda: self._stage.centre(operators))


def _closed_around(scene: Scene, operators: Iterable[int]) -> list[int]:
    """The closed blocks that hold some operators."""
    slots = np.unique(scene.folding.slot_of[np.array(list(operators), dtype=np.int64)])
    return [scene.folding.blocks[slot] for slot in slots.tolist() if slot >= 0]


def _topmost(scene: Scene, operators: Iterable[int]) -> int:
    """Of some operators, at least one, that which is seen highest."""
    found = list(operators)
    return found[int(np.argmin(scene.boxes[found, 1]))]
