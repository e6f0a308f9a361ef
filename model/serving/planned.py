"""What a workload's requests cost under plans: a graph simulated at every shape that the workload asks for.

Knows which shapes those are; the cost room knows the rest. Its kernels load only when this is called, not for workloads
with times of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..cost.result import CostResult
from ..errors import UsageError
from ..graph.graph import OperatorGraph, TensorRole
from .profile import profile_of
from .result import ServiceProfile
from .streams import UNFUSED, PlanFile, Workload

Reader = Callable[[Mapping[str, int]], OperatorGraph]
"""Reads the graph with these symbolic dims over what was bound before; UsageError for a dim that it does not have."""


def profiles_of(
    workload: Workload, result: CostResult, read: Reader
) -> tuple[tuple[ServiceProfile, ...], dict[PlanFile, ServiceProfile]]:
    """Profiles of the plan at batch size 1, 2, ... as far as streams batch, and of the workload's own plan files.

    Parameters
    ----------
    result : the plan that was simulated at the graph's own shape.

    Raises
    ------
    UsageError : a plan cannot be had at another batch size: the graph's batch dim is not named, or does not exist.
    """
    return _by_batch(workload, result, read), {
        file: _of_file(file, result, read) for file in workload.plan_files
    }


def _by_batch(workload: Workload, result: CostResult, read: Reader) -> tuple[ServiceProfile, ...]:
    users = [stream for stream in workload.streams if stream.service is None and not stream.plans]
    if not users:
        return ()
    largest = max(users, key=lambda stream: stream.batch)
    dims = {dict(stream.bind)["batch"] for stream in users if "batch" in dict(stream.bind)}
    if largest.batch == 1:
        return (profile_of(result),)
    if len(dims) != 1:
        raise UsageError(
            f"a batch of {largest.batch} runs the plan at that size, and bind names "
            + ("no dim that is the batch" if not dims else f"several: {', '.join(sorted(dims))}"),
            where=f"{workload.path or workload.name}: stream {largest.name}",
            lever='Set bind = { batch = "name of the dim" }, the same in all streams.',
        )
    (dim,) = dims
    return tuple(_at(result, read({dim: size})) for size in range(1, largest.batch + 1))


def _at(result: CostResult, graph: OperatorGraph) -> ServiceProfile:
    """The profile of the same plan for the same model at another shape."""
    from ..cost.simulate import simulate
    from ..plan.carry import carried

    found = carried(result.request.graph, result.request.plan, graph)
    if found is None:
        raise UsageError(
            f"the plan is not legal with {', '.join(f'{name} = {value}' for name, value in graph.bindings)}",
            lever="Give a plan for this shape in plans.",
        )
    return profile_of(simulate(replace(result.request, graph=graph, plan=found.plan), with_unfused=False))


def _of_file(file: PlanFile, result: CostResult, read: Reader) -> ServiceProfile:
    from ..cost.simulate import simulate
    from ..graph.load import load_graph
    from ..plan.edits import unfused
    from ..plan.file import load_plan

    graph = read(dict(file.bindings)) if file.graph is None else load_graph(file.graph, dict(file.bindings))
    plan = unfused(graph) if file.path == UNFUSED else load_plan(file.path, graph)
    profile = profile_of(simulate(replace(result.request, graph=graph, plan=plan), with_unfused=False))
    return profile if file.past is None else replace(profile, past_bytes=_past_bytes(graph, file.past))


def _past_bytes(graph: OperatorGraph, past: str) -> int:
    """Bytes of the graph's inputs that have the dim `past`: the cache that a decode step reads."""
    inputs = (tensor for tensor in graph.tensors if tensor.role is TensorRole.INPUT)
    return sum(tensor.bytes or 0 for tensor in inputs if past in (tensor.declared or ()))
