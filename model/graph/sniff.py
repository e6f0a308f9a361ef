"""What the bytes of a file are, before anyone parses them: the readable answer to "why does it not open".

Knows first bytes and the protobuf wire format; imports nothing that parses. Every message says what the
file is and what to do (GRAPHS 5, GRAPHS 8.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import FileError

MAX_FILE_BYTES = 2**31 - 1  # what protobuf itself can hold
_NESTING_LIMIT = 30  # nested subgraphs; protobuf stops at 100 messages, three a level

# Fields of ModelProto, GraphProto, NodeProto and AttributeProto that lead down to a nested graph.
_MODEL_GRAPH, _GRAPH_NODE, _NODE_ATTRIBUTE, _ATTRIBUTE_GRAPH = 7, 1, 5, 6


def check_bytes(content: bytes, where: str) -> None:
    """Refuse what is plainly not an ONNX protobuf.

    Raises
    ------
    FileError : empty, too large, or recognised as something else; the message says what it is.
    """
    if not content:
        raise FileError(
            "the file is empty (0 bytes)", where=where, lever="Export or download the model again."
        )
    if len(content) > MAX_FILE_BYTES:
        raise FileError(
            f"the file has {len(content)} bytes; a protobuf holds at most {MAX_FILE_BYTES}",
            where=where,
            lever="Save the model with external data; only dims and element types are read.",
        )
    for recognise in (_lfs, _magic, _text):
        found = recognise(content)
        if found:
            raise FileError(found[0], where=where, lever=found[1])


def _lfs(content: bytes) -> tuple[str, str] | None:
    if content.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, not the model itself", "Run `git lfs pull` and open it again."
    return None


def _magic(content: bytes) -> tuple[str, str] | None:
    if content.startswith(b"PK\x03\x04"):
        if b"data.pkl" in content[:4096] or b"/data.pkl" in content[-65536:]:
            return (
                "this is a PyTorch archive (zip with a pickle), not an ONNX file; it is never unpickled",
                "Export the model with torch.onnx.export.",
            )
        return "this is a zip archive, not an ONNX file", "Unpack it and open the .onnx file inside."
    if content.startswith(b"\x1f\x8b"):
        return "this is a gzip archive, not an ONNX file", "Unpack it first (gunzip)."
    if content.startswith(b"\x89PNG"):
        return "this is a PNG picture, not an ONNX file", "Open the model file instead."
    if content.startswith(b"\x89HDF"):
        return "this is an HDF5 file (Keras?), not an ONNX file", "Convert the model with tf2onnx."
    if content[4:8] == b"TFL3":
        return "this is a TFLite file, not an ONNX file", "Convert the model with tf2onnx."
    if content.startswith(b"\x80") and content[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "this is a Python pickle, not an ONNX file; it is never unpickled", "Export the model to ONNX."
    return None


def _text(content: bytes) -> tuple[str, str] | None:
    head = content[:512]
    if head.startswith(b"\xef\xbb\xbf"):
        head = head[3:]
    # Protobuf of any model has control bytes within its first fields; text has none but white space.
    if any(byte < 9 or 13 < byte < 32 for byte in head):
        return None
    start = head.lstrip()[:40].decode("utf-8", "replace")
    if start[:1] in ("{", "["):
        return (
            "this is JSON, not an ONNX protobuf",
            "Convert it to ONNX with the tool that wrote it (for a TensorFlow.js graph-model: tf2onnx).",
        )
    lead = " ".join(start.split())
    return (
        f"this is not an ONNX file: the first bytes look like text ({lead!r})",
        "Open the .onnx file instead.",
    )


def damage(content: bytes) -> tuple[str, str]:
    """Why protobuf refused these bytes: what, and what to do. Never raises.

    The top-level fields tell a file that was cut off (and how long it should be) from one that is not a
    protobuf at all; counting graphs inside graphs finds nesting beyond what protobuf accepts.
    """
    end = _expected_end(content)
    if end is None:
        return "not an ONNX file: its bytes are no protobuf message", "Check that this is the model file."
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
