"""The command ``tilewright``: argparse first, Qt only where a window is asked for.

Commands live in `model/commands`, one file each; a file there with ``configure`` and ``run`` is a command by
itself. ``tilewright [FILE]`` opens the window. Exit codes (CONTRACT): 0 done; 1 done and the answer is no;
2 wrong usage or unusable input, one line that says what, where and what to do.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import importlib.util
import io
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

import model
import model.commands
from model import compiled
from model.errors import FileError, TilewrightError, UsageError
from model.packaged import folder, input_file, named_file

PROGRAM = "tilewright"


def command_names() -> tuple[str, ...]:
    """Every file in `model/commands` and the window's own commands, by their command-line names."""
    found = [module.name.replace("_", "-") for module in pkgutil.iter_modules(model.commands.__path__)]
    return (*sorted(found), "bench-ui")


def _where(name: str) -> str:
    return "explorer.bench_ui" if name == "bench-ui" else f"model.commands.{name.replace('-', '_')}"


def _module(name: str):
    return importlib.import_module(_where(name))


def _about(name: str) -> str:
    """The first line of a command's docstring, read from its file: to import it may compile kernels for minutes."""
    found = importlib.util.find_spec(_where(name))
    if found is None or found.origin is None:
        return ""
    doc = ast.get_docstring(ast.parse(Path(found.origin).read_text(encoding="utf-8"))) or ""
    return doc.partition("\n")[0]


def _overview() -> str:
    lines = [
        f"usage: {PROGRAM} [FILE]                open the explorer (a model, a sample, or the start page)"
    ]
    lines.extend(f"       {PROGRAM} {name:<12} … {_about(name)}" for name in command_names())
    lines.append(f"       {PROGRAM} --version")
    lines.append(
        f"\n`{PROGRAM} COMMAND --help` explains one command. `{PROGRAM} FILE --picture OUT.png` draws"
    )
    lines.append("the window into a file and ends; without a display it does so by itself.")
    return "\n".join(lines)


def _must_exist(name: str) -> None:
    """Refuse a file that is not there before a window opens on nothing; a mistyped command lands here too."""
    if os.path.isdir(name):
        raise FileError("this is a folder, not a file", where=name, lever="Name a file inside it.")
    if os.path.exists(name) or named_file(name, "sample_graphs", ".onnx"):
        return
    samples = [path.stem for path in folder("sample_graphs").glob("*.onnx")]
    near = difflib.get_close_matches(name, [*samples, *command_names()], n=1)
    lever = f"Did you mean {near[0]}?" if near else f"Samples: {', '.join(sorted(samples))}."
    raise FileError("no such file, sample or command", where=name, lever=lever)


def _configure_window(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", help="a model file or the name of a sample; none: the start page")
    parser.add_argument("--hardware", default=None, help="name or file of the machine")
    parser.add_argument("--workload", default=None, help="name or file of the workload")
    parser.add_argument("--plan", default=None, help="name or file (.json) of a plan for FILE")
    parser.add_argument("--bind", default="", metavar="NAME=N,…", help="symbolic dims, e.g. batch=8,seq=512")
    parser.add_argument(
        "--picture",
        default=None,
        metavar="OUT.png",
        help="draw the window that these words open, everything computed, and end; --size × --scale pixels",
    )
    look = parser.add_argument_group("how it looks, of the window and of its picture")
    look.add_argument(
        "--theme", choices=("light", "dark", "system"), help="none: as set in the window; a picture is light"
    )
    look.add_argument(
        "--scale", type=_scale, metavar="PERCENT", help="50 to 400; 200 is a screen of twice the dots"
    )
    look.add_argument("--size", type=_size, metavar="WxH", help="in points, 800x600 to 7680x4320; 1680x1020")


def _scale(text: str) -> float:
    """Per cent, with or without the sign, as a factor."""
    digits = text.removesuffix("%")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 3 and 50 <= int(digits) <= 400):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no scale; give 50 to 400, in per cent")
    return int(digits) / 100


def _size(text: str) -> tuple[int, int]:
    """Width and height in points."""
    words = text.lower().replace("×", "x").split("x")
    if all(word.isascii() and word.isdigit() and len(word) <= 4 for word in words) and len(words) == 2:
        width, height = int(words[0]), int(words[1])
        if 800 <= width <= 7680 and 600 <= height <= 4320:
            return width, height
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is no size; give 800x600 to 7680x4320, e.g. 1680x1020")


def _check_window(chosen: argparse.Namespace) -> None:
    """Refuse what the window could not open, before it opens."""
    if chosen.file is not None:
        _must_exist(chosen.file)
        if chosen.file.endswith(".json"):
            raise UsageError(
                f"{chosen.file} is a plan, which belongs to a model",
                lever=f"Open it with {PROGRAM} MODEL --plan {chosen.file}.",
            )
    elif chosen.plan or chosen.bind:
        raise UsageError(
            f"--{'plan' if chosen.plan else 'bind'} is of FILE, and none is given",
            lever="Name a model or a sample too.",
        )
    for name, where, suffix, lever in (
        ("hardware", "assets/hardware", ".toml", "`tilewright hardware` lists the machines."),
        ("workload", "assets/workloads", ".toml", "`tilewright samples` lists the workloads."),
        ("plan", "assets/plans", ".json", "`tilewright samples` lists the plans."),
    ):
        given = getattr(chosen, name)
        if given is not None:
            found = input_file(
                given, where, suffix, f"no such {name} file, and none of that name comes along", lever
            )
            if name == "plan":
                if found.suffix != suffix:  # by it the window tells a plan from a model
                    raise FileError("a plan file ends in .json", where=given, lever="Rename it.")
                chosen.plan = str(found)


def _tell_of_kernels(line: str) -> None:
    """How far compiling is, on standard error: one line that moves on a terminal, one in all elsewhere."""
    words = line.split()  # kernel 3 of 41: model.cost.traffic.measure
    if words[0] != "kernel":
        return
    done, total = int(words[1]), int(words[3].rstrip(":"))
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(
            f"\r{PROGRAM}: compiling kernels, once: {done} of {total}", end=end, file=sys.stderr, flush=True
        )
    elif done == 1:
        print(f"{PROGRAM}: compiling {total} kernels, once; it takes some minutes", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """One line on wrong usage, exit 2."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}. Try `{self.prog} --help`.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    if words and words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if words and words[0] == "--version":
        print(f"{PROGRAM} {model.__version__}")
        return 0
    name = words[0] if words and words[0] in command_names() else ""
    try:
        if name:
            compiled.fill_before_the_first(_tell_of_kernels)
            module = _module(name)
            doc = (module.__doc__ or "").strip()
            parser = _Parser(
                prog=f"{PROGRAM} {name}",
                description=doc,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            module.configure(parser)
            return module.run(parser.parse_args(words[1:]))
        parser = _Parser(prog=PROGRAM, description="Open the explorer.", epilog=f"Commands: {PROGRAM} --help")
        _configure_window(parser)
        if words and not words[0].startswith("-"):
            _must_exist(words[0])
        chosen = parser.parse_args(words)
        _check_window(chosen)
        from .app import open_window

        return open_window(chosen)
    except TilewrightError as error:
        print(f"{PROGRAM}: {error.sentence()}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (head, less) went away: not our fault and nothing to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"{PROGRAM}: stopped.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
