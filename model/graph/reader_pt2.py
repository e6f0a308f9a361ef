"""torch.export archives (``torch.export.save``): a zip that holds the graph as JSON and the weights as bytes.

Only the JSON is read: no pickle is opened, no weight is unpacked, and what the zip claims of sizes is checked
before anything is. The JSON's schema (torch/_export/serde/schema.py) changes with torch; what is not known is
left out, and an operator without a row is opaque. Runs in the reader's child process.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import FileError
from .band import Band
from .equation import BAND, band_text
from .raw import Attribute
from .translated import Shape, Translation

JSON_LIMIT_BYTES = 256 * 2**20
_FILES_LIMIT = 100_000
_GRAPH = re.compile(r"(?:^|/)models/[^/]+\.json$|(?:^|/)serialized_exported_program\.json$")
_NOT_STORED = "Export the model again with torch.export.save."
_SYMBOL = re.compile(r"[A-Za-z_]\w*")

# torch/_export/serde/schema.py: ScalarType.
_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8e4m3fn",
    30: "float8e5m2", 31: "float8e4m3fnuz", 32: "float8e5m2fnuz",
}  # fmt: skip
_TENSORS = frozenset(
    {"as_tensor", "as_tensors", "as_optional_tensor", "as_optional_tensors", "as_nested_tensors"}
)
# Optional tensors that may stand before others: left out, they keep their place.
_OPTIONAL = frozenset({"weight", "bias", "running_mean", "running_var", "attn_mask", "mask", "min", "max"})
_NUMBERS = frozenset(
    {"as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_string", "as_strings"}
)


def read(content: bytes) -> Translation:
    """The exported graph.

    Raises
    ------
    FileError : no zip, damaged, unpacks to more than the limit, no graph inside, or a graph of another form.
    """
    name, text = _graph_file(content)
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise FileError(f"the JSON of {name!r} nests too deep", lever=_NOT_STORED) from error
    except json.JSONDecodeError as error:
        raise FileError(
            f"{name!r} is no JSON: line {error.lineno:,}: {error.msg}", lever=_NOT_STORED
        ) from error
    except (UnicodeDecodeError, ValueError) as error:
        raise FileError(f"{name!r} is no JSON ({str(error)[:80]})", lever=_NOT_STORED) from error
    try:
        return _Writer(document["graph_module"]).graph()
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        version = document.get("schema_version", {}) if isinstance(document, dict) else {}
        what = f"the graph in {name!r} is not as torch.export writes it ({type(error).__name__}: {error})"
        raise FileError(
            f"{what}; its schema version is {version or 'missing'}"[:400], lever=_NOT_STORED
        ) from error


def _graph_file(content: bytes) -> tuple[str, bytes]:
    """Name and content of the JSON that holds the graph."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len(entries) > _FILES_LIMIT:
                raise FileError(f"the archive lists {len(entries):,} files", lever=_NOT_STORED)
            found = next((entry for entry in entries if _GRAPH.search(entry.filename)), None)
            if found is None:
                raise FileError(
                    "the zip archive holds no torch.export graph (models/*.json)", lever=_NOT_STORED
                )
            with archive.open(found) as stream:
                text = stream.read(JSON_LIMIT_BYTES + 1)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OSError,
        ValueError,
    ) as error:
        raise FileError(
            f"the zip archive is damaged ({error})", lever="Download or copy it again."
        ) from error
    if len(text) > JSON_LIMIT_BYTES:
        raise FileError(
            f"{found.filename!r} unpacks to more than {JSON_LIMIT_BYTES // 2**20} MiB",
            lever="The file may be made to exhaust its reader; do not trust it.",
        )
    return found.filename, text


class _Writer:
    """Writes one graph module into a translation."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        self._graph: Mapping[str, Any] = module["graph"]
        self._signature: Mapping[str, Any] = module["signature"]
        self._values: Mapping[str, Any] = self._graph["tensor_values"]
        self._out = Translation("")
        self._shown: dict[str, str] = {}

    def graph(self) -> Translation:
        """The translation: inputs and weights, operators, outputs."""
        weights = self._stored()
        for entry in self._graph["inputs"]:
            for name in _tensor_names(entry):
                dtype, shape = self._type(name)
                if name in weights:
                    # A weight shared by two parameters keeps the graph's own names.
                    self._shown[name] = weights[name] if weights[name] not in self._shown.values() else name
                    self._out.weight(self._shown[name], dtype, [e for e in shape or () if isinstance(e, int)])
                else:
                    self._out.input(name, dtype, shape)
        for node in self._graph["nodes"]:
            self._node(node)
        for entry in self._graph["outputs"]:
            for name in _tensor_names(entry):
                self._out.output(self._shown.get(name, name))
        return self._out

    def _stored(self) -> dict[str, str]:
        """Parameters, buffers and constants: the graph's name of each and that of the module."""
        stored: dict[str, str] = {}
        for spec in self._signature["input_specs"]:
            for kind, key in (("parameter", "parameter_name"), ("buffer", "buffer_name"),
                              ("tensor_constant", "tensor_constant_name")):  # fmt: skip
                if kind in spec:
                    name = str(spec[kind]["arg"]["name"])
                    stored[name] = str(spec[kind].get(key) or name)
        return stored

    def _type(self, name: str) -> tuple[str, Shape | None]:
        meta = self._values.get(name)
        if meta is None:
            return "", None
        shape = tuple(self._extent(size) for size in meta["sizes"])
        return _DTYPES.get(meta["dtype"], ""), shape

    def _extent(self, size: Mapping[str, Any]) -> int | str:
        """A dim: a number, or an expression of symbols with the number that it had at export."""
        if "as_int" in size:
            return int(size["as_int"])
        expression = size["as_expr"]
        text, hint = str(expression["expr_str"]), expression.get("hint") or {}
        if _SYMBOL.fullmatch(text) and "as_int" in hint:
            self._out.default(text, int(hint["as_int"]))
        return text

    def _node(self, node: Mapping[str, Any]) -> None:
        outputs = [name for entry in node["outputs"] for name in _tensor_names(entry)]
        if not outputs:
            return  # arithmetic of sizes and assertions: every tensor has its shape already
        library, op_type, variant = _target(str(node["target"]))
        operands: list[str] = []
        attributes: dict[str, Attribute] = {}
        for entry in node["inputs"]:
            name, argument = str(entry["name"]), entry["arg"]
            kind = next(iter(argument), "")
            if kind in _TENSORS:
                operands += [self._shown.get(n, n) for n in _tensor_names(argument)]
            elif kind == "as_none" and name in _OPTIONAL:
                operands.append("")
            elif kind in _NUMBERS:
                attributes[name] = _plain(argument[kind])
        scope = _scope(node.get("metadata") or {})
        title = str(node.get("name") or outputs[0])
        for name in outputs:
            self._out.value(name, *self._type(name))
        if op_type == "scaled_dot_product_attention" and self._attention(
            operands, outputs[0], title, scope, bool(attributes.get("is_causal"))
        ):
            return
        if variant == "mode" or library not in ("aten", ""):
            op_type = f"{library}.{op_type}"
        while operands and not operands[-1]:
            operands.pop()
        self._out.node(
            op_type, operands, outputs, name=title, domain="aten", scope=scope, attributes=attributes
        )

    def _attention(
        self, operands: Sequence[str], made: str, title: str, scope: tuple[str, ...], causal: bool
    ) -> bool:
        """Attention as what it computes: scores, scaled and masked, softmax, product.

        PyTorch's causal mask begins at the first key, however many queries there are. False where heads are shared
        between queries (the operands' shapes differ): it stays one operator.
        """
        q, k, v = (self._type(name) for name in operands[:3])
        if q[1] is None or k[1] is None or v[1] is None or not 3 <= len(q[1]) <= 6:
            return False
        if q[1][:-2] != k[1][:-2] or k[1][:-1] != v[1][:-1] or len(q[1]) != len(k[1]):
            return False
        batch = "abcd"[: len(q[1]) - 2]
        dtype, scores = q[0], (*q[1][:-1], k[1][-2])
        current = f"{made}.scores"
        self._out.value(current, dtype, scores)
        rank = len(scores)
        product = {BAND: band_text(Band(0, 1, 0), "mn")} if causal else {}
        inside = {BAND: band_text(Band(0, 1, 0), (f"i{rank - 2}", f"i{rank - 1}"))} if causal else {}
        self._out.node("Einsum", operands[:2], [current], name=f"{title}.scores", scope=scope,
                       attributes={"equation": f"{batch}mk,{batch}nk->{batch}mn", **product})  # fmt: skip
        scale = f"{made}.scale"
        self._out.weight(scale, dtype, ())
        steps = [("Mul", "scaled", [scale])]
        if len(operands) > 3 and operands[3]:
            steps.append(("Add", "masked", [operands[3]]))
        steps.append(("Softmax", "softmax", []))
        for op_type, suffix, more in steps:
            after = f"{made}.{suffix}"
            self._out.value(after, dtype, scores)
            self._out.node(
                op_type, [current, *more], [after], name=f"{title}.{suffix}", scope=scope, attributes=inside
            )
            current = after
        self._out.node("Einsum", [current, operands[2]], [made], name=title, scope=scope,
                       attributes={"equation": f"{batch}mn,{batch}nk->{batch}mk", **product})  # fmt: skip
        return True


def _target(written: str) -> tuple[str, str, str]:
    """``torch.ops.aten.add_.Tensor`` as library, operator (in place or not is the same here), overload."""
    parts = written.removeprefix("torch.ops.").split(".")
    if len(parts) < 2:
        return "", written[:100], ""
    name = parts[1]
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return parts[0][:100], name[:100], parts[2] if len(parts) > 2 else ""


def _tensor_names(argument: Any) -> list[str]:
    """The tensors of an argument, in order; "" for one that is left out of a list."""
    for kind, value in argument.items():
        if kind in ("as_tensor", "as_optional_tensor"):
            return [str(value["name"])] if "name" in value else _tensor_names(value)
        if kind in ("as_tensors", "as_optional_tensors"):
            return [str(v["name"]) if "name" in v else "".join(_tensor_names(v)) for v in value]
        if kind == "as_nested_tensors":
            return [str(v["name"]) for inner in value for v in inner]
    return []


def _plain(value: Any) -> Attribute:
    """A JSON value as an attribute."""
    if isinstance(value, bool | int | float | str):
        return int(value) if isinstance(value, bool) else value
    items = list(value)
    if all(isinstance(item, int) for item in items):
        return tuple(int(item) for item in items)
    if all(isinstance(item, int | float) and math.isfinite(item) for item in items):
        return tuple(float(item) for item in items)
    return tuple(str(item) for item in items)


def _scope(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """``L__self__,,Net;L__self__conv1,conv1,Conv2d``: the module paths, outermost first."""
    stack = str(metadata.get("nn_module_stack") or "")[:20_000]
    paths = [entry.split(",")[1] for entry in stack.split(";") if entry.count(",") >= 2]
    return tuple(path for path in paths if path)
