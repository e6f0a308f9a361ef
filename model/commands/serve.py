"""Replay a workload request by request: percentiles and the parts that they are made of."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..serving.document import serving_document, serving_text
from ..serving.profile import load_profile, profile_of
from ..serving.result import ServiceProfile
from ..serving.serve import serve
from ..serving.workload import Workload, load_workload
from ..serving.workload_schema import LEAST_RATE, MOST_RATE, MOST_SLOTS
from ..terminal import TOOL, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "graph", nargs="?", help="an .onnx file or a sample; its plan gives the service times"
    )
    parser.add_argument("--workload", required=True, help="a .toml file or the name of a packaged workload")
    configure_load(parser)
    parser.add_argument("--hardware", default="edge-npu", help="name or file of the machine (with GRAPH)")
    parser.add_argument("--plan", default=None, help="a saved plan (with GRAPH); none: the starting plan")
    parser.add_argument("--bind", default="", help="symbolic dims of the graph, e.g. batch=8,seq=512")
    parser.add_argument("--precision", default="", help="bf16, int8 ...; none: the file's")
    parser.add_argument("--profile", default=None, help="a service profile (JSON) instead of GRAPH")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def configure_load(parser: argparse.ArgumentParser) -> None:
    """Rate and slots over the workload's own, as in the window's latency panel."""
    parser.add_argument(
        "--rate",
        type=float,
        default=None,
        metavar="R",
        help="mean requests/s of all streams together, over the workload's own; a trace keeps its rhythm",
    )
    parser.add_argument(
        "--slots", type=int, default=None, metavar="N", help="slots that serve, over the workload's own"
    )


def check_load(arguments: argparse.Namespace) -> None:
    """Refuse a rate or slots that no workload file could have either."""
    rate, slots = arguments.rate, arguments.slots
    if rate is not None and not LEAST_RATE <= rate <= MOST_RATE:
        raise UsageError(
            f"--rate {rate:g} is no rate", lever=f"Give requests/s from {LEAST_RATE:g} to {MOST_RATE:g}."
        )
    if slots is not None and not 1 <= slots <= MOST_SLOTS:
        raise UsageError(f"--slots {slots} cannot serve", lever=f"Give 1 to {MOST_SLOTS:,}.")


def workload_input(workload: Workload, arguments: argparse.Namespace) -> dict[str, Any]:
    """``inputs.workload``: which file, and what was set over its own."""
    over = {"rate_per_s": arguments.rate, "slots": arguments.slots}
    named = {"path": workload.path, "digest": workload.digest}
    return named | {name: value for name, value in over.items() if value is not None}


def run(arguments: argparse.Namespace) -> int:
    """Replay and print; 0."""
    check_load(arguments)
    workload = load_workload(arguments.workload)
    if arguments.graph and arguments.profile:
        raise UsageError("GRAPH and --profile both say how long a request takes", lever="Give one of them.")
    inputs: dict[str, Any] = {"workload": workload_input(workload, arguments)}
    profile: ServiceProfile | None = None
    if arguments.profile:
        profile = load_profile(Path(arguments.profile))
        inputs["profile"] = {"path": arguments.profile}
    elif arguments.graph:
        profile = _planned(arguments, inputs)
    _one_source(workload, profile)
    result = serve(workload, profile, arguments.slots, arguments.rate)
    if arguments.json:
        print_json({"format": 1, "tool": TOOL, "inputs": inputs, "serving": serving_document(result)})
    else:
        print(serving_text(result))
    return 0


def _one_source(workload: Workload, profile: ServiceProfile | None) -> None:
    """A plan that would change nothing is a mistake on the command line, not a note."""
    if profile is not None and workload.streams[0].service is not None:
        raise UsageError(
            "has service times of its own, so the plan would change nothing",
            where=workload.path,
            lever="Leave out GRAPH and --profile, or remove service from the stream.",
        )


def _planned(arguments: argparse.Namespace, inputs: dict[str, Any]) -> ServiceProfile:
    """Simulate the graph under its plan on one slot; fills `inputs` with what was used."""
    from ..cost.result import CostRequest
    from ..cost.simulate import simulate
    from ..graph.bindings import parse_bindings
    from ..graph.load import load_graph
    from ..hardware.loader import load_hardware
    from ..plan.file import load_plan
    from ..plan.starting import starting_plan

    bindings = parse_bindings(arguments.bind)
    graph = load_graph(arguments.graph, bindings)
    machine = load_hardware(arguments.hardware)
    start = None if arguments.plan else starting_plan(graph)
    plan = load_plan(Path(arguments.plan), graph) if start is None else start.plan
    inputs["graph"] = {
        "path": graph.path,
        "digest": graph.digest,
        "operators": len(graph.operators),
        "tensors": len(graph.tensors),
    }
    inputs["hardware"] = {"name": machine.name, "digest": machine.digest}
    inputs["plan"] = {"path": arguments.plan if start is None else start.source}
    inputs["bindings"] = dict(graph.bindings)
    return profile_of(simulate(CostRequest(graph, machine, plan, arguments.precision)))
