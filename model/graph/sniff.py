"""What the bytes of a file are, before anyone parses them: the format, or why it does not open.

Knows first bytes and the protobuf wire format; imports nothing that parses. The name of a file says nothing
here. Every message says what the file is and what to do (GRAPHS 5, GRAPHS 8.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from mmap import mmap

from ..errors import FileError

_NO_MESSAGE = "not an ONNX file: its bytes are no protobuf message", "Check that this is the model file."
_NESTING_LIMIT = 30  # nested subgraphs; protobuf stops at 100 messages, three a level

# Fields of ModelProto, GraphProto, NodeProto and AttributeProto that lead down to a nested graph.
_MODEL_GRAPH, _GRAPH_NODE, _NODE_ATTRIBUTE, _ATTRIBUTE_GRAPH = 7, 1, 5, 6


_LOOK = 65_536  # bytes at the front of a text, or of a zip's list of files, that are searched for marks
_ZIP_LIST = 16 * 2**20  # bytes of a zip's list of files
_HLO = re.compile(r"(?:\s|//[^\n]*\n)*HloModule\b")
_DOT = re.compile(
    r"(?:\s|//[^\n]*\n|#[^\n]*\n|/\*.*?\*/)*(?:strict\s+)?(?:di)?graph\b[^{;=:]*\{", re.DOTALL | re.IGNORECASE
)
_MLIR = re.compile(
    r'"builtin\.module"|"func\.func"|\bfunc\.func\b|^\s*module\b|"?\b(?:stablehlo|mhlo|vhlo)\.', re.MULTILINE
)
_PT2_FILE = re.compile(rb"(?:^|/)models/[^/]+\.json|serialized_exported_program\.json")


class Format(StrEnum):
    """The formats that there are readers for."""

    ONNX = "ONNX"
    PT2 = "torch.export archive"
    STABLEHLO = "StableHLO"
    HLO = "XLA HLO"
    DOT = "DOT"


def check_bytes(content: bytes | mmap, where: str) -> None:
    """Refuse what is plainly nothing that can be read.

    Raises
    ------
    FileError : empty, or recognised as something else; the message says what it is.
    """
    try:
        format_of(content)
    except FileError as error:
        raise FileError(error.what, where=where, lever=error.lever) from error


def check_start(head: bytes, where: str) -> None:
    """The same from a file's first bytes alone, where they are enough: a zip says at its end what it holds."""
    if not head.startswith(b"PK\x03\x04"):
        check_bytes(head, where)


def format_of(content: bytes | mmap) -> Format:
    """The format of a file's bytes, of which only both ends are looked at.

    Raises
    ------
    FileError : none that can be read; the message says what it is instead.
    """
    if not content:
        raise FileError("the file is empty (0 bytes)", lever="Export or download the model again.")
    head, tail = content[:_LOOK], content[-_LOOK:]
    if head.startswith(b"PK\x03\x04") and _PT2_FILE.search(_zip_names(content)):
        return Format.PT2
    for found in (_lfs(head), _magic(head, tail)):
        if found:
            raise FileError(found[0], lever=found[1])
    kind = _text_format(head)
    if kind is None and next(_fields(head, 0, len(head)))[1] < 0:
        raise FileError(_NO_MESSAGE[0], lever=_NO_MESSAGE[1])
    return kind or Format.ONNX


def _zip_names(content: bytes | mmap) -> bytes:
    """The part of a zip that lists its files; its last bytes where the archive's end does not say."""
    end = content.rfind(b"PK\x05\x06", max(0, len(content) - 66_000))
    at = int.from_bytes(content[end + 16 : end + 20], "little") if end >= 0 else 0
    return content[at : at + _ZIP_LIST] if end >= 0 else content[-_LOOK:]


def _lfs(content: bytes) -> tuple[str, str] | None:
    if content.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, not the model itself", "Run `git lfs pull` and open it again."
    return None


def _magic(content: bytes, tail: bytes) -> tuple[str, str] | None:
    if content.startswith(b"PK\x03\x04"):
        if b"data.pkl" in content[:4096] or b"/data.pkl" in tail:
            return (
                "this is a PyTorch archive (zip with a pickle), not an ONNX file; it is never unpickled",
                "Export the model with torch.onnx.export.",
            )
        return (
            "this is a zip archive, neither an ONNX file nor a torch.export archive",
            "Unpack it and open the .onnx file inside.",
        )
    if content.startswith(b"\x1f\x8b"):
        return "this is a gzip archive, not an ONNX file", "Unpack it first (gunzip)."
    if content.startswith(b"ML\xefR"):
        return (
            "this is MLIR bytecode, not MLIR text",
            "Print it as text in the generic form (stablehlo-opt --mlir-print-op-generic).",
        )
    if content.startswith(b"\x89PNG"):
        return "this is a PNG picture, not an ONNX file", "Open the model file instead."
    if content.startswith(b"\x89HDF"):
        return "this is an HDF5 file (Keras?), not an ONNX file", "Convert the model with tf2onnx."
    if content[4:8] == b"TFL3":
        return "this is a TFLite file, not an ONNX file", "Convert the model with tf2onnx."
    if content.startswith(b"\x80") and content[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "this is a Python pickle, not an ONNX file; it is never unpickled", "Export the model to ONNX."
    return None


def _text_format(head: bytes) -> Format | None:
    """Which text this is; None where it is none.

    Raises
    ------
    FileError : a text that no reader here reads.
    """
    if head.startswith(b"\xef\xbb\xbf"):
        head = head[3:]
    # Protobuf of any model has control bytes within its first fields; text has none but white space.
    if any(byte < 9 or 13 < byte < 32 for byte in head[:512]):
        return None
    text = head.decode("utf-8", "replace")
    start = text.lstrip()[:40]
    if start[:1] in ("{", "["):
        raise FileError(
            "this is JSON, not an ONNX protobuf",
            lever="Convert it to ONNX with the tool that wrote it (for a TensorFlow.js graph-model: tf2onnx).",
        )
    for kind, mark in ((Format.HLO, _HLO), (Format.DOT, _DOT)):
        if mark.match(text):
            return kind
    if _MLIR.search(text):
        return Format.STABLEHLO
    lead = " ".join(start.split())
    raise FileError(
        f"this is not an ONNX file: the first bytes look like text ({lead!r})",
        lever="Open the .onnx file instead (or .pt2, StableHLO, HLO or DOT text).",
    )


def damage(content: bytes) -> tuple[str, str]:
    """Why protobuf refused these bytes: what, and what to do. Never raises.

    The top-level fields tell a file that was cut off (and how long it should be) from one that is not a
    protobuf at all; counting graphs inside graphs finds nesting beyond what protobuf accepts.
    """
    end = _expected_end(content)
    if end is None:
        return _NO_MESSAGE
    if end > len(content):
        return (
            f"the file ends in the middle of the graph: it has {len(content)} bytes, expected {end} or more",
            "Download or copy it again.",
        )
    depth = _nesting(content)
    if depth > _NESTING_LIMIT:
        return (
            f"nesting too deep: {depth} graphs inside each other; protobuf reads about {_NESTING_LIMIT}",
            "Simplify the control flow (nested If or Loop) of the model.",
        )
    return (
        "the file is damaged: its graph is no valid protobuf message",
        "Export or download the model again.",
    )


def _expected_end(content: bytes) -> int | None:
    """Where the top-level message ends by its own lengths (may lie beyond the file); None: no protobuf."""
    end = 0
    for _field, start, length in _fields(content, 0, len(content)):
        if start < 0:
            return None
        end = start + length
    return end


def _nesting(content: bytes) -> int:
    """The largest number of graphs inside each other, by walking the wire format with an explicit stack."""
    deepest = 0
    stack = [
        (start, start + length, 1)
        for f, start, length in _fields(content, 0, len(content))
        if f == _MODEL_GRAPH
    ]
    while stack:
        start, end, depth = stack.pop()
        deepest = max(deepest, depth)
        if depth > 100_000:
            break
        for node, node_start, node_length in _fields(content, start, end):
            if node != _GRAPH_NODE:
                continue
            for attribute, a_start, a_length in _fields(content, node_start, node_start + node_length):
                if attribute != _NODE_ATTRIBUTE:
                    continue
                for graph, g_start, g_length in _fields(content, a_start, a_start + a_length):
                    if graph == _ATTRIBUTE_GRAPH:
                        stack.append((g_start, g_start + g_length, depth + 1))
    return deepest


def _fields(content: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, start, length) of each field in a message; start -1 where the bytes are no message.

    A length may reach beyond `end`: that is the last field of a message that was cut off.
    """
    at, end = start, min(end, len(content))
    while at < end:
        key, at = _varint(content, at, end)
        if key < 0 or not 0 < key >> 3 < 1 << 29:
            yield 0, -1, 0
            return
        wire = key & 7
        if wire == 0:
            begin = at
            _value, at = _varint(content, at, end)
            length = at - begin
        elif wire in (1, 5):
            begin, length = at, 8 if wire == 1 else 4
            at += length
        elif wire == 2:
            length, begin = _varint(content, at, end)
            if length < 0:
                yield 0, -1, 0
                return
            at = begin + length
        else:
            yield 0, -1, 0
            return
        yield key >> 3, begin, length


def _varint(content: bytes, at: int, end: int) -> tuple[int, int]:
    """(value, position after it); value -1 where there is none."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            return -1, end
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return -1, at
