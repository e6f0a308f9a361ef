"""What the readers of XLA's two texts (HLO and StableHLO) share: element types, numbers, and one rule.

The rule: a constant of one element that is broadcast is a number inside the operators that compute with it
(as every compiler has it); only for an operator that needs the array is it written out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .raw import Attribute
from .translated import Shape, Translation
from .xla import ELEMENTWISE

_INTEGER = re.compile(r"-?\d+")
_SHORT_TYPES = re.compile(r"(pred|i1)|(bf16)|(s|ui|u|i|f|c)(\d+)(.*)")
_LONG = {"s": "int", "i": "int", "u": "uint", "ui": "uint", "f": "float", "c": "complex"}
_INT64_DIGITS = 20


def dtype_of(written: str) -> str:
    """``f32, s8, ui8, pred, bf16, f8E4M3FN`` as this program's element types; others as they are written."""
    match = _SHORT_TYPES.fullmatch(written)
    if match is None:
        return written
    if match[1] or match[2]:
        return "bool" if match[1] else "bfloat16"
    return f"{_LONG[match[3]]}{match[4]}{match[5].lower()}"


def integers(text: str) -> tuple[int, ...]:
    """Every whole number in a text; one of more digits than any tensor has counts as the largest."""
    return tuple(int(digits) if len(digits) <= _INT64_DIGITS else 2**63 for digits in _INTEGER.findall(text))


@dataclass(frozen=True, slots=True)
class Type:
    """A tensor's element type and shape; no shape for tokens and the like."""

    dtype: str
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operator of either text: StableHLO's name, value names, the results' types, flat attributes."""

    opcode: str
    name: str
    operands: Sequence[str]
    results: Sequence[tuple[str, Type]]
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    scope: Sequence[str] = ()
    group: str = ""


class XlaTranslation(Translation):
    """A translation that keeps broadcast numbers as numbers."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._numbers: set[str] = set()
        self._spread: dict[str, tuple[str, Instruction]] = {}
        self._written: set[str] = set()
        self._uses: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """`name`, with a number behind it where calls repeat it."""
        found = name
        while found in self._uses:
            self._uses[name] += 1
            found = f"{name} ({self._uses[name]})"
        self._uses[found] = 1
        return found

    def constant(self, name: str, kind: Type) -> None:
        """A constant of a type whose shape is numbers."""
        shape = [extent for extent in kind.shape or () if isinstance(extent, int)]
        self.weight(name, kind.dtype, shape)
        if all(extent == 1 for extent in shape):
            self._numbers.add(name)

    def instruction(self, instruction: Instruction) -> None:
        """Any other operator."""
        if instruction.opcode == "broadcast_in_dim" and instruction.operands[:1]:
            number = self.number(instruction.operands[0])
            if number and len(instruction.results) == 1:
                self._spread[instruction.results[0][0]] = (number, instruction)
                return
        if instruction.opcode in ELEMENTWISE:
            operands = [self.number(name) or name for name in instruction.operands]
        else:
            operands = [self.written(name) for name in instruction.operands]
        self._add(instruction, operands)

    def number(self, name: str) -> str:
        """The one-element constant that `name` is or repeats; "" where it is none."""
        return name if name in self._numbers else self._spread[name][0] if name in self._spread else ""

    def written(self, name: str) -> str:
        """`name` as an array: a repeated number is written out where it was not yet."""
        if name in self._spread and name not in self._written:
            self._written.add(name)
            number, instruction = self._spread[name]
            self._add(instruction, [number])
        return name

    def _add(self, instruction: Instruction, operands: Sequence[str]) -> None:
        self.node(
            instruction.opcode,
            operands,
            [name for name, _ in instruction.results],
            name=instruction.name,
            domain="xla",
            scope=instruction.scope,
            group=instruction.group,
            attributes=instruction.attributes,
        )
        for name, kind in instruction.results:
            self.value(name, kind.dtype, kind.shape)
