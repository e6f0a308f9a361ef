"""Replay a workload request by request: percentiles and the parts that they are made of

With --choose-lengths instead: the lengths to compile plans for, so that its requests cost the least tokens.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..graph.bindings import bindings_text, parse_bindings
from ..graph.dtypes import PRECISIONS
from ..serving.document import (
    lengths_document,
    lengths_text,
    questions_text,
    serving_document,
    serving_text,
)
from ..serving.lengths import Choice, choose_for
from ..serving.outcome import outcome
from ..serving.profile import load_profile
from ..serving.questions import answers, blamed, sigma
from ..serving.result import ServiceProfile
from ..serving.serve import prepare, replayed
from ..serving.streams import PlanFile, Workload, judged, with_objective
from ..serving.workload import load_workload
from ..serving.workload_schema import LEAST_RATE, MOST_RATE, MOST_SLOTS
from ..terminal import TOOL, columns, print_json

OVER = (("rate_per_s", "rate"), ("slots", "slots"), ("slo", "slo"))
"""What the command line sets over a workload's own: its key in JSON, its option."""
MACHINE = "edge-npu"
MOST_STREAMS = 8
"""Streams, and plans of the workload, that the heading names."""

_SLO = re.compile(
    r"(?:p(?P<percentile>\d{1,5}(?:\.\d{1,3})?)=)?(?P<seconds>\d{1,12}(?:\.\d*)?(?:e-?\d{1,2})?)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "graph", nargs="?", help="a model file or a sample; its plan on the machine gives the service times"
    )
    parser.add_argument("--workload", required=True, help="a .toml file or the name of a packaged workload")
    configure_load(parser)
    parser.add_argument(
        "--hardware", default=None, help=f"name or file of the machine (with GRAPH); none: {MACHINE}"
    )
    parser.add_argument(
        "--plan", default=None, help="a saved plan or a packaged one (with GRAPH); none: the starting plan"
    )
    parser.add_argument("--bind", default="", metavar="NAME=N,…", help="symbolic dims, e.g. batch=8,seq=512")
    parser.add_argument(
        "--precision", default="", help="bf16, int8 …: replaces the file's floating-point types"
    )
    parser.add_argument("--profile", default=None, help="a service profile (JSON) instead of GRAPH")
    parser.add_argument(
        "--drivers",
        action="store_true",
        help="split p95 and p99 over drivers (Shapley) also where that takes long: with contention, or many requests",
    )
    parser.add_argument(
        "--what-if",
        default="",
        metavar="ASK,…",
        help="load, batch, rate (the highest within the objective), ramp (what breaks first), placement, "
        "poisson, heat (an hour of it)",
    )
    lengths = parser.add_argument_group("lengths of compiled plans, instead of a replay")
    lengths.add_argument(
        "--choose-lengths",
        type=int,
        default=None,
        metavar="K",
        help="the best K lengths for the requests' tokens",
    )
    lengths.add_argument(
        "--fallback-factor",
        type=float,
        default=None,
        metavar="F",
        help="requests longer than all plans cost F times their length; none: the longest plan holds them all",
    )
    lengths.add_argument(
        "--train-half",
        action="store_true",
        help="choose for the first half of the requests, measure on the second (F is 3 where none is given)",
    )
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
    parser.add_argument(
        "--slo",
        default=None,
        metavar="[pNN=]S",
        help="objective in seconds, over the workload's own: 0.02, or p99=0.02 (default: the workload's, else p95)",
    )


def _objective_of(text: str) -> tuple[float, float | None]:
    """Seconds, and the percentile as a share where it is given: ``0.02``, ``p99=0.02``.

    Raises
    ------
    UsageError : it is neither.
    """
    found = _SLO.fullmatch(text.strip())
    seconds = float(found["seconds"]) if found else 0.0
    written = found["percentile"] if found else None
    share = None
    if written is not None:  # p999 is 99.9 %
        share = (
            int(written) / 10 ** len(written) if re.fullmatch("9{3,5}", written) else float(written) / 100.0
        )
    if not 0.0 < seconds < math.inf or (share is not None and not 0.0 < share < 1.0):
        raise UsageError(
            f"--slo {text!r} is no objective",
            lever="Give seconds, 0.02, or a percentile with them, p99=0.02.",
        )
    return seconds, share


def loaded(arguments: argparse.Namespace) -> Workload:
    """The workload, with the objective that was set over its own.

    Raises
    ------
    UsageError : it has several streams, and which of them is meant is open.
    """
    workload = load_workload(arguments.workload)
    if arguments.slo is None:
        return workload
    if judged(workload) is None:
        names = ", ".join(stream.name for stream in workload.streams)
        raise UsageError(
            f"--slo is of one stream, and this workload has {names}",
            where=workload.path,
            lever="Write slo = { percentile = 0.95, response_s = 0.02 } into its [[stream]].",
        )
    return with_objective(workload, *_objective_of(arguments.slo))


def check_load(arguments: argparse.Namespace) -> None:
    """Refuse a rate, slots or an objective that no workload file could have either."""
    rate, slots = arguments.rate, arguments.slots
    if arguments.slo is not None:
        _objective_of(arguments.slo)
    if rate is not None and not LEAST_RATE <= rate <= MOST_RATE:
        raise UsageError(
            f"--rate {rate:g} is no rate", lever=f"Give requests/s from {LEAST_RATE:g} to {MOST_RATE:g}."
        )
    if slots is not None and not 1 <= slots <= MOST_SLOTS:
        raise UsageError(f"--slots {slots} cannot serve", lever=f"Give 1 to {MOST_SLOTS:,}.")


def workload_input(workload: Workload, arguments: argparse.Namespace) -> dict[str, Any]:
    """``inputs.workload``: which file, and what was set over its own."""
    over = {"rate_per_s": arguments.rate, "slots": arguments.slots, "slo": arguments.slo}
    named: dict[str, Any] = {"name": workload.name, "path": workload.path, "digest": workload.digest}
    streams = [
        {"name": stream.name, "source": stream.arrivals.source, "recorded": stream.arrivals.recorded}
        for stream in workload.streams
    ]
    return named | {"streams": streams} | {name: value for name, value in over.items() if value is not None}


def run(arguments: argparse.Namespace) -> int:
    """Replay and print, or choose lengths and print; 0."""
    check_load(arguments)
    if arguments.choose_lengths is not None:
        return _choose(arguments)
    if arguments.fallback_factor is not None or arguments.train_half:
        raise UsageError(
            "--fallback-factor and --train-half are of --choose-lengths K", lever="Give it as well."
        )
    workload = loaded(arguments)
    if arguments.graph is not None and arguments.profile is not None:
        raise UsageError("GRAPH and --profile both say how long a request takes", lever="Give one of them.")
    if arguments.precision and arguments.precision not in PRECISIONS:
        raise UsageError(
            f"no precision {arguments.precision!r}", where="--precision", lever=f"Use {', '.join(PRECISIONS)}"
        )
    lost = [
        name
        for name in ("hardware", "plan", "bind", "precision")
        if getattr(arguments, name) not in (None, "")
    ]
    if lost and arguments.graph is None:
        raise UsageError(f"--{lost[0]} is of GRAPH, and none is given", lever="Name a model or a sample too.")
    inputs: dict[str, Any] = {"workload": workload_input(workload, arguments)}
    own: tuple[ServiceProfile, ...] = ()
    plans: Mapping[PlanFile, ServiceProfile] = {}
    if arguments.profile is not None or arguments.graph is not None:
        _must_matter(workload, arguments.graph is not None)
    if arguments.profile is not None:
        own = (load_profile(Path(arguments.profile)),)
        inputs["profile"] = {"path": arguments.profile}
    elif arguments.graph is not None:
        own, plans = _planned(arguments, workload, inputs)
    prepared = prepare(workload, own, arguments.slots, arguments.rate, plans)
    result = outcome(prepared, replayed(prepared))
    shapley = blamed(prepared, arguments.drivers)
    whatif = answers(prepared, [word.strip() for word in arguments.what_if.split(",") if word.strip()])
    if arguments.json:
        serving = serving_document(result)
        more = {"shapley": shapley, "sigma": sigma(prepared), "whatif": whatif or None}
        serving |= {name: value for name, value in more.items() if value is not None}
        print_json({"format": 1, "tool": TOOL, "inputs": inputs, "serving": serving})
    else:
        print(
            "\n\n".join([_heading(workload, inputs), serving_text(result), *questions_text(shapley, whatif)])
        )
    return 0


def _heading(workload: Workload, inputs: Mapping[str, Any]) -> str:
    """What was served: the workload, its streams where they are several, the graph, its plan and the machine."""
    given = inputs["workload"]
    over = [f"--{option} {given[key]}" for key, option in OVER if key in given]
    rows = [["workload", " ".join([workload.name, *over]), workload.path]]
    if len(workload.streams) > 1:
        shown = [[f"  {stream.name}", stream.arrivals.title] for stream in workload.streams[:MOST_STREAMS]]
        left = len(workload.streams) - len(shown)
        rows += shown + [["", f"… and {left:,} streams more"]] * bool(left)
    if "profile" in inputs:
        rows.append(["profile", "", inputs["profile"]["path"]])
    if "graph" in inputs:
        graph, machine, plan = inputs["graph"], inputs["hardware"], inputs["plan"]
        bound = ",".join(f"{name}={text}" for name, text in bindings_text(inputs["bindings"]).items())
        precision = f" in {inputs['precision']}" if inputs["precision"] else ""
        rows.append(["graph", f"{graph['name']} {bound}{precision}", graph["path"]])
        if takes_plan(workload):
            groups = f"{plan['groups']:,} group{'s' * (plan['groups'] != 1)}"
            rows.append(["plan", f"{groups}, {plan['digest'][:19]}", plan["path"]])
        for own in inputs["plans"][:MOST_STREAMS]:
            dims = ",".join(f"{name}={extent}" for name, extent in own["bindings"].items())
            rows.append(["plan", f"of the workload {dims}", own["path"]])
        cut = f"{machine['cores']} of {machine['all_cores']} cores a slot"
        rows.append(["machine", f"{machine['name']}, {cut}", machine["path"]])
    return columns(rows)


def _choose(arguments: argparse.Namespace) -> int:
    if arguments.graph is not None or arguments.profile is not None:
        raise UsageError("lengths are chosen by tokens alone", lever="Leave out GRAPH and --profile.")
    workload = load_workload(arguments.workload)
    choices: list[Choice] = [
        choose_for(
            stream.name,
            stream.arrivals.input_tokens,
            arguments.choose_lengths,
            arguments.fallback_factor,
            arguments.train_half,
        )
        for stream in workload.streams
    ]
    if arguments.json:
        inputs = {"workload": workload_input(workload, arguments)}
        lengths = lengths_document(choices)
        print_json({"format": 1, "tool": TOOL, "inputs": inputs, "choose_lengths": lengths})
    else:
        print(lengths_text(choices))
    return 0


def takes_plan(workload: Workload) -> bool:
    """Whether a stream has no service times and no plans of its own: then GRAPH's plan or the profile says them."""
    return any(stream.service is None and not stream.plans for stream in workload.streams)


def _must_matter(workload: Workload, graph: bool) -> None:
    """A plan that would change nothing is a mistake on the command line, not a note."""
    if takes_plan(workload):
        return
    if graph and workload.plan_files:
        return
    raise UsageError(
        "has service times of its own, so the plan would change nothing",
        where=workload.path,
        lever="Leave out GRAPH and --profile, or remove service from the stream.",
    )


def _planned(
    arguments: argparse.Namespace, workload: Workload, inputs: dict[str, Any]
) -> tuple[tuple[ServiceProfile, ...], Mapping[PlanFile, ServiceProfile]]:
    """Simulate the graph under its plan on one slot; fills `inputs` with what was used."""
    from ..cost.result import CostRequest
    from ..cost.simulate import simulate
    from ..graph.load import load_graph
    from ..graph.missing import require_sizes
    from ..hardware.loader import hardware_path, load_hardware
    from ..plan.file import load_plan, plan_digest
    from ..plan.starting import starting_plan
    from ..serving.planned import profiles_of

    bindings = parse_bindings(arguments.bind)
    graph = load_graph(arguments.graph, bindings)
    require_sizes(graph)
    named = arguments.hardware or MACHINE
    machine = load_hardware(named)
    start = starting_plan(graph) if arguments.plan is None else None
    plan = load_plan(str(arguments.plan), graph) if start is None else start.plan
    inputs["graph"] = {
        "name": graph.name,
        "path": graph.path,
        "digest": graph.digest,
        "operators": len(graph.operators),
        "tensors": len(graph.tensors),
    }
    inputs["hardware"] = {
        "name": machine.name,
        "path": str(hardware_path(named)),
        "digest": machine.digest,
        "cores": machine.slot_cores,
        "all_cores": machine.cores,
    }
    inputs["plan"] = {
        "path": arguments.plan if start is None else start.source,
        "digest": plan_digest(graph, plan),
        "groups": len(plan.groups),
    }
    inputs["plans"] = [
        {"path": own.path, "bindings": dict(own.bindings), "graph": own.graph} for own in workload.plan_files
    ]
    inputs["bindings"] = dict(graph.bindings)
    inputs["precision"] = arguments.precision or None
    result = simulate(CostRequest(graph, machine, plan, arguments.precision), with_unfused=False)
    return profiles_of(workload, result, lambda dims: load_graph(arguments.graph, {**bindings, **dims}))
