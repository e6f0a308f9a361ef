"""List the packaged machines, or print one machine with every figure and its source."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ..hardware.accelerator import Accelerator, MemoryLevel
from ..hardware.loader import hardware_path, load_hardware, packaged_hardware
from ..packaged import headline
from ..terminal import TOOL, capacity, columns, print_json, quantity


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("name", nargs="?", help="a packaged machine or a .toml file; none: list them")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Print; 0."""
    if arguments.name is None:
        _list(arguments.json)
        return 0
    machine = load_hardware(arguments.name)
    if arguments.json:
        print_json({"format": 1, "tool": TOOL, "hardware": document(machine)})
    else:
        print(text(machine))
        print(f"\nfile: {hardware_path(arguments.name)} (its comments say where each figure is from)")
    return 0


def _list(as_json: bool) -> None:
    machines = [load_hardware(name) for name in packaged_hardware()]
    if as_json:
        print_json({"format": 1, "tool": TOOL, "machines": [document(machine) for machine in machines]})
        return
    print(columns([(machine.name, headline(hardware_path(machine.name))) for machine in machines]))
    print("\n`tilewright hardware NAME` prints one; --hardware takes these names or a .toml file.")


def document(machine: Accelerator) -> dict[str, Any]:
    """The machine as JSON: the keys of the TOML file, pairs as objects, absent parts left out."""
    out = {key: value for key, value in asdict(machine).items() if value is not None}
    for part, key in (("matrix_unit", "macs_per_cycle"), ("vector_unit", "cycles"), ("energy", "mac_j")):
        if part in out:
            out[part][key] = dict(out[part][key])
    out["warnings"] = [
        {"where": where, "what": what, "lever": lever} for where, what, lever in machine.warnings
    ]
    return out


def text(machine: Accelerator) -> str:
    """The machine for a person: one block a part, then what is absent or not counted yet."""
    cut = machine.partition
    rows = [
        ("clock", quantity(machine.clock_hz, "Hz")),
        ("cores", f"{machine.cores}, served as {cut.slots} slot(s) of {cut.cores_per_slot} core(s)"),
        (
            "launch",
            f"issue {quantity(machine.launch.issue_s, 's')}, gap {quantity(machine.launch.gap_s, 's')}",
        ),
        ("matrix unit", _matrix(machine)),
        ("vector unit", _vector(machine)),
        ("registers", _registers(machine)),
        *((f"memory {level.name}", _memory(level)) for level in machine.memory),
        ("energy", _energy(machine)),
    ]
    if machine.topology is not None:
        where = machine.topology
        rows.append(("topology", f"{where.kind}, {where.off_home_factor_per_hop:g} slower per hop off home"))
    if machine.thermal is not None:
        heat = machine.thermal
        rows.append(
            (
                "thermal",
                f"{heat.tdp_w:g} W, throttles at {heat.throttle_c:g} °C to {heat.throttled_clock_ratio:g} "
                f"of the clock until {heat.resume_c:g} °C",
            )
        )
    body = columns(rows, indent="  ")
    said = "".join(
        f"\n  note: {where.removeprefix(machine.name + ': ')}: {what}. {lever}"
        for where, what, lever in machine.warnings
    )
    return f"{machine.name}   ({machine.source})\n{body}{said}"


def _pairs(pairs: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in pairs)


def _matrix(machine: Accelerator) -> str:
    unit = machine.matrix_unit
    if unit is None:
        return "none"
    shape = (
        f"{unit.rows} x {unit.columns} systolic, {unit.dataflow}, folds "
        + ("overlap" if unit.overlap_folds else "do not overlap")
        if unit.kind == "systolic"
        else "tensor cores, mma " + " x ".join(str(extent) for extent in unit.mma)
    )
    return f"{shape}; multiply-accumulates a cycle and core: {_pairs(unit.macs_per_cycle)}"


def _vector(machine: Accelerator) -> str:
    unit = machine.vector_unit
    if unit is None:
        return "none"
    return f"{unit.lanes} lanes; cycles an element: {_pairs(unit.cycles) or 'all 1'} (others 1)"


def _registers(machine: Accelerator) -> str:
    file = machine.registers
    if file is None:
        return "none"
    if file.model == "accumulator":
        return f"{capacity(file.capacity_bytes)} of accumulators at the array"
    return (
        f"{file.per_core:,} a core, at most {file.per_thread_max} a thread; "
        f"{file.threads_max:,} threads and {file.blocks_max} blocks a core"
    )


def _memory(level: MemoryLevel) -> str:
    where = "whole device" if level.scope == "device" else "each core"
    parts = [f"{capacity(level.capacity_bytes)}, {where}"]
    if level.kind == "cache":
        parts.append("cache")
    if level.bandwidth_bytes_per_s is not None:
        parts.append(quantity(level.bandwidth_bytes_per_s, "B/s"))
    if level.bandwidth_per_core_bytes_per_s is not None:
        parts.append(f"{quantity(level.bandwidth_per_core_bytes_per_s, 'B/s')} a core")
    if level.latency_s:
        parts.append(f"latency {quantity(level.latency_s, 's')}")
    if level.access_bytes > 1:
        parts.append(f"{level.access_bytes}-byte accesses")
    if not level.double_buffer:
        parts.append("single copies")
    return ", ".join(parts)


def _energy(machine: Accelerator) -> str:
    figures = machine.energy
    macs = ", ".join(f"{name} {quantity(joules, 'J')}" for name, joules in figures.mac_j)
    launch, static = quantity(figures.launch_j, "J"), quantity(figures.static_w, "W")
    return f"MAC {macs or '-'}; launch {launch}; static {static}"
