"""Fuzz of the readers: damaged real files and random protobufs against a limited child that lives on.

    python -m tests.fuzz_readers --cases 10000 --seed 1 --keep FOLDER FILES…

A file may be refused in one sentence or answered; whatever else happens is a finding: an exception that is none
of ours, a child that dies, one case that takes longer than `CASE_S`, or memory that grows from case to case. The
child reads many files, one after the other, because starting one takes longer than reading a small file; it is
started anew after a finding, and after so many cases that its growth can be told from what it keeps once.

What the child answers passes the parent's checks and becomes a graph here, as it would in the program.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from model.errors import FileError, TilewrightError
from model.graph.child import answered
from model.graph.load import graph_of
from model.graph.raw import read_answer
from model.graph.sniff import Format, check_bytes, format_of
from model.graph.summary import inspect_document, text_summary

CASE_S = 20.0  # what the reader itself allows a small file
MEMORY_BYTES = 1536 * 2**20  # address space of the child
GROWTH_BYTES = 160 * 2**20  # resident, from a child's 50th case on
CASES_A_CHILD = 1000
LARGEST = 400_000  # bytes of a seed
ROOT = Path(__file__).resolve().parents[1]

_NOT_OURS = b'"what": "it cannot be understood'
Reader = Callable[[bytes], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One case that went wrong: how, and the bytes that did it."""

    number: int
    what: str
    content: bytes


@dataclass(slots=True)
class Report:
    """What a run saw. ``growth``: the most that a child grew, in bytes, and over how many cases."""

    cases: int = 0
    answered: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    findings: list[Finding] = field(default_factory=list[Finding])
    growth: tuple[int, int] = (0, 0)
    slowest_s: float = 0.0

    def text(self) -> str:
        """For a person."""
        lines = [
            f"{self.cases} cases: {self.answered} answered, {sum(self.refused.values())} refused, "
            f"{len(self.findings)} findings; slowest {self.slowest_s:.2f} s; "
            f"a child grew by {self.growth[0] / 2**20:.1f} MiB over {self.growth[1]} cases"
        ]
        lines += [f"  {count:6d}  {what}" for what, count in self.refused.most_common(12)]
        lines += [f"case {finding.number}: {finding.what}" for finding in self.findings]
        return "\n".join(lines)


# ---------------------------------------------------------------- damage

_SPLINTERS = (b"\x00", b"\xff", b"\n", b'"', b"(", b"}", b"-1", b"9" * 30, b"\xf0\x9f")
_NUMERALS = (b"0", b"-1", b"4294967296", b"9223372036854775807", b"1" + b"0" * 40, b"x", b"")


def damaged(content: bytes, others: list[bytes], dice: random.Random) -> bytes:
    """One of: cut off, bits turned, bytes changed, a piece doubled, moved, taken out, or from another file."""
    out = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        at = dice.randrange(len(out) + 1)
        size = min(dice.choice((1, 2, 8, 60, 700)), len(out))
        match dice.randrange(9):
            case 0:
                del out[at:]
            case 1 if out:
                out[min(at, len(out) - 1)] ^= 1 << dice.randrange(8)
            case 2:
                out[at : at + size] = dice.randbytes(size)
            case 3:
                del out[at : at + size]
            case 4:
                out[at:at] = out[max(0, at - size) : at] * dice.choice((1, 2, 40))
            case 5:
                other = dice.choice(others)
                start = dice.randrange(len(other) + 1)
                out[at : at + size] = other[start : start + size]
            case 6:
                out[at : at + 1] = dice.choice(
                    (b"\x00", b"\xff", b"\n", b'"', b"(", b"}", b"-1", b"9" * 30, b"\xf0\x9f")
                )
            case 7:
                _edit_field(out, dice)
            case _:
                _edit_number(out, dice)
    return bytes(out[: 2 * LARGEST])


def _edit_number(out: bytearray, dice: random.Random) -> None:
    """A decimal number of a text becomes another one."""
    digits = [i for i, byte in enumerate(out[:50_000]) if 48 <= byte <= 57]
    if digits:
        at = dice.choice(digits)
        out[at : at + 1] = dice.choice(
            (b"0", b"-1", b"4294967296", b"9223372036854775807", b"1" + b"0" * 40, b"x", b"")
        )


def _edit_field(out: bytearray, dice: random.Random) -> None:
    """One field of a protobuf, at any depth: its number, its length or its value changes, or it is doubled."""
    fields = list(_fields(bytes(out), 3000))
    if not fields:
        return
    start, key_end, end = dice.choice(fields)
    match dice.randrange(4):
        case 0:
            out[start : start + 1] = bytes((dice.randrange(256),))
        case 1:
            out[key_end:end] = _varint(dice.choice((0, 1, 127, 2**31, 2**63 - 1, 2**64 - 1)))
        case 2:
            out[start:start] = out[start:end] * dice.choice((1, 30))
        case _:
            del out[start:end]


def _fields(content: bytes, most: int) -> Iterator[tuple[int, int, int]]:
    """(start, end of the key, end) of fields of a protobuf, those of nested messages as far as they look like one."""
    stack = [(0, len(content))]
    found = 0
    while stack and found < most:
        at, end = stack.pop()
        while at < end and found < most:
            start = at
            key, at = _read_varint(content, at, end)
            if key is None or key >> 3 == 0:
                break
            key_end = at
            match key & 7:
                case 0:
                    _, at = _read_varint(content, at, end)
                case 1:
                    at += 8
                case 2:
                    length, at = _read_varint(content, at, end)
                    if length is None or at + length > end:
                        break
                    stack.append((at, at + length))
                    at += length
                case 5:
                    at += 4
                case _:
                    break
            found += 1
            yield start, key_end, min(at, end)


def _read_varint(content: bytes, at: int, end: int) -> tuple[int | None, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            return None, end
        value |= (content[at] & 127) << shift
        at += 1
        if content[at - 1] < 128:
            return value, at
    return None, end


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def random_model(dice: random.Random) -> bytes:
    """A protobuf of ONNX's fields with nonsense in them: it parses, and means nothing."""
    from onnx import AttributeProto, ModelProto

    words = ("", "a", "b", "x", "y", "w", "é\n", "a" * 300, "/m/layers.0/q", "n?", "-1")
    types = ("Conv", "MatMul", "Gemm", "Reshape", "Slice", "Concat", "Gather", "If", "Loop", "Softmax", "Split", "Pad",
             "Resize", "Einsum", "LSTM", "TopK", "Constant", "ConstantOfShape", "Tile", "Expand", "Range", "Nope",
             "ReduceSum", "Transpose", "BatchNormalization", "QLinearConv", "MaxPool", "ConvTranspose", "LRN",
             "DepthToSpace", "GroupNormalization", "OneHot", "Cast", "Attention")  # fmt: skip
    numbers = (0, 1, 2, 3, 4, 7, -1, -2, 2**31, 2**62, -(2**63), 2**63 - 1)
    model = ModelProto(ir_version=dice.choice((0, 3, 8, 11)))
    model.opset_import.add(
        domain=dice.choice(("", "", "ai.onnx", "com.microsoft")),
        version=dice.choice((1, 7, 11, 13, 18, 23, 99)),
    )
    graph = model.graph

    def tensor(into: Any) -> None:
        into.name = dice.choice(words)
        into.data_type = dice.choice((0, 1, 6, 7, 7, 7, 9, 10, 16, 22, 99))
        into.dims.extend(
            dice.choice(numbers[:6] if dice.random() < 0.8 else numbers) for _ in range(dice.randrange(4))
        )
        if dice.random() < 0.5:
            into.int64_data.extend(dice.choice(numbers) for _ in range(dice.randrange(6)))
        elif dice.random() < 0.5:
            into.raw_data = dice.randbytes(dice.choice((0, 4, 8, 16, 40)))

    def value(into: Any) -> None:
        into.name = dice.choice(words)
        kind = into.type.tensor_type
        kind.elem_type = dice.choice((0, 1, 7, 9, 99))
        for _ in range(dice.randrange(5)):
            dim = kind.shape.dim.add()
            if dice.random() < 0.3:
                dim.dim_param = dice.choice(
                    ("batch", "batch*2", "?", "a//0", "é", "n" * 200, "9" * 60, "-batch")
                )
            elif dice.random() < 0.9:
                dim.dim_value = dice.choice(numbers[:6] if dice.random() < 0.8 else numbers)

    def node(into: Any, depth: int) -> None:
        into.op_type = dice.choice(types)
        into.name = dice.choice(words)
        into.domain = dice.choice(("", "", "", "com.microsoft", "ai.onnx.ml"))
        into.input.extend(dice.choice(words) for _ in range(dice.randrange(5)))
        into.output.extend(dice.choice(words) + str(dice.randrange(9)) for _ in range(dice.randrange(4)))
        for _ in range(dice.randrange(4)):
            attribute = into.attribute.add(
                name=dice.choice(("axis", "axes", "perm", "pads", "strides", "kernel_shape", "group", "equation",
                                  "value", "to", "then_branch", "body", "num_outputs", "mode", "blocksize", "split"))
            )  # fmt: skip
            attribute.type = dice.choice(
                (1, 2, 3, 4, 5, 6, 7)
            )  # float, int, string, tensor, graph, floats, ints
            attribute.i = dice.choice(numbers)
            attribute.f = dice.choice((0.0, float("nan"), float("inf"), 1.5))
            attribute.ints.extend(dice.choice(numbers) for _ in range(dice.randrange(5)))
            attribute.s = dice.choice((b"ab,bc->ac", b"ii->", b"...", b"\xff\xfe", b"nearest", b"SAME_UPPER"))
            if attribute.type == AttributeProto.TENSOR:
                tensor(attribute.t)
            if attribute.type == AttributeProto.GRAPH and depth < 3:
                node(attribute.g.node.add(), depth + 1)

    for _ in range(dice.randrange(6)):
        tensor(graph.initializer.add() if dice.random() < 0.95 else graph.sparse_initializer.add().values)
    for _ in range(dice.randrange(5)):
        value(dice.choice((graph.input, graph.input, graph.output, graph.value_info)).add())
    for _ in range(dice.randrange(12)):
        node(graph.node.add(), 0)
    if dice.random() < 0.2:
        function = model.functions.add(name=dice.choice(types), domain=dice.choice(("", "com.microsoft")))
        function.input.append("x")
        function.output.append("y")
        node(function.node.add(), 0)
    return model.SerializeToString()


def cases(seeds: list[bytes], dice: random.Random) -> Iterator[bytes]:
    """Damaged seeds, half of them ONNX and the others of each other format alike, and one random model in six."""
    onnx, others = list[bytes](), dict[str, list[bytes]]()
    for content in seeds:
        kind = _format(content)
        (onnx if kind == Format.ONNX else others.setdefault(kind, [])).append(content)
    while True:
        if dice.random() < 1 / 6:
            yield random_model(dice)
        else:
            from_onnx = onnx and (not others or dice.random() < 0.5)
            chosen = onnx if from_onnx else others[dice.choice(sorted(others))]
            yield damaged(dice.choice(chosen), seeds, dice)


def _format(content: bytes) -> str:
    try:
        return format_of(content)
    except FileError:
        return "broken"


# ---------------------------------------------------------------- the child that lives on


class Child:
    """A process that reads one file after another: a length and the bytes in, a length and JSON out."""

    def __init__(self, reader: str) -> None:
        """`reader`: ``module:function`` from bytes to the facts of a file."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        }
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[name] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz_readers", "--child", reader],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=ROOT,
        )  # fmt: skip
        self.cases = 0
        self.first_bytes = 0

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def resident(self) -> int:
        """Memory that it holds, in bytes; 0 where it has ended."""
        try:
            return psutil.Process(self._process.pid).memory_info().rss
        except psutil.Error:
            return 0

    def ask(self, content: bytes) -> bytes:
        """Its answer.

        Raises
        ------
        TimeoutError : none within `CASE_S`. EOFError : it died.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self.cases += 1
        deadline = time.monotonic() + CASE_S
        try:
            self._process.stdin.write(len(content).to_bytes(8, "little") + content)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise EOFError("the child died") from error
        head = self._receive(8, deadline)
        return self._receive(int.from_bytes(head, "little"), deadline)

    def _receive(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        out = bytearray()
        number = self._process.stdout.fileno()
        while len(out) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([number], [], [], left)[0]:
                raise TimeoutError(f"no answer within {CASE_S:.0f} s")
            piece = os.read(number, min(size - len(out), 2**20))
            if not piece:
                raise EOFError(f"the child died with code {self._process.wait()}")
            out += piece
        return bytes(out)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def serve(reader: str) -> None:
    """The child: read files until standard input ends."""
    from importlib import import_module

    module, _, name = reader.partition(":")
    read: Reader = getattr(import_module(module), name)
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stdin, answer_to = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    while head := stdin.read(8):
        content = stdin.read(int.from_bytes(head, "little"))
        text = answered(lambda read=read, content=content: read(content))
        answer_to.write(len(text).to_bytes(8, "little") + text)
        answer_to.flush()


def read_file(content: bytes) -> dict[str, Any]:
    """What the program's own child does with a file."""
    from model.graph.readers import read

    return read(content, {})


# ---------------------------------------------------------------- a run


def run(
    seeds: list[bytes],
    count: int,
    seed: int,
    reader: str = "tests.fuzz_readers:read_file",
    stop_after: int = 20,
) -> Report:
    """Try `count` cases; ends early after so many findings."""
    dice = random.Random(seed)
    report = Report()
    child: Child | None = None
    for number, content in enumerate(cases(seeds, dice)):
        if number == count or len(report.findings) >= stop_after:
            break
        if child is None or not child.alive or child.cases >= CASES_A_CHILD:
            if child is not None:
                child.close()
            child = Child(reader)
        what = _tried(child, content, report)
        if what:
            report.findings.append(Finding(number, what, content))
            child.close()
            child = None
    if child is not None:
        child.close()
    return report


def _tried(child: Child, content: bytes, report: Report) -> str:
    """Try one case; what was wrong, or nothing."""
    report.cases += 1
    before = time.monotonic()
    try:
        check_bytes(content, "f")
        text = child.ask(content)
        if _NOT_OURS in text[:400]:
            return f"an exception that is none of ours: {text[:400].decode()}"
        graph = graph_of(read_answer(text, "f"), name="f")
        json.dumps(inspect_document(graph), allow_nan=False)
        text_summary(graph)
        report.answered += 1
    except TilewrightError as error:
        sentence = error.sentence()
        if not sentence.isprintable():
            return f"a sentence that cannot be printed: {sentence!r}"
        if "answer is damaged" in sentence:
            return f"an answer that the parent does not take: {error.__cause__!r}"
        report.refused[" ".join(error.what.split()[:5])] += 1
    except (TimeoutError, EOFError) as error:
        return str(error)
    except Exception as error:  # the parent's part of reading: what the user would see as a traceback
        return f"in the parent: {type(error).__name__}: {error}"
    report.slowest_s = max(report.slowest_s, time.monotonic() - before)
    if child.cases == 50:
        child.first_bytes = child.resident()
    if child.cases > 50 and child.cases % 50 == 0:
        growth = child.resident() - child.first_bytes
        report.growth = max(report.growth, (growth, child.cases - 50))
        if growth > GROWTH_BYTES:
            return f"the child grew by {growth / 2**20:.0f} MiB over {child.cases - 50} cases"
    return ""


def seeds_of(paths: list[Path]) -> list[bytes]:
    """The files that are small enough; folders are searched."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return [file.read_bytes() for file in files if file.is_file() and 0 < file.stat().st_size <= LARGEST]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where the bytes of findings are written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        serve(arguments.child)
        return 0
    if not arguments.files:
        parser.error("name files or folders to begin from, e.g. sample_graphs")
    report = run(seeds_of(arguments.files), arguments.cases, arguments.seed)
    print(report.text())
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        for finding in report.findings:
            (arguments.keep / f"case_{finding.number}.bin").write_bytes(finding.content)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
