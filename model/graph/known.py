"""What the reader knows of one value. Runs in the reader's child process; knows nothing of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a value: element type ("" unknown), shape (None unknown), small constant payload."""

    dtype: str
    shape: tuple[int, ...] | None
    values: np.ndarray[Any, Any] | None = None

    @property
    def elements(self) -> int:
        """Number of elements of a known shape."""
        count = 1
        for extent in self.shape or ():
            count *= extent
        return count


NOTHING = Known("", None)
Lookup = Callable[[str], Known]
