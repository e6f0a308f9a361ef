"""Machine files: TOML as CONTRACT writes it, to an `Accelerator`.

Knows the file format and what this version can compute with; knows nothing of graphs and plans. What is
read but not counted yet, and what a file leaves out, goes into ``Accelerator.warnings``: results say it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from ..graph.dtypes import BITS, PRECISIONS
from ..packaged import input_file, packaged_names
from ..schema import Count, Fault, Name, Share, Strict, read_bytes, read_toml, tell
from .accelerator import (
    Accelerator,
    Energy,
    Launch,
    MatrixUnit,
    MemoryLevel,
    Partition,
    Registers,
    Thermal,
    Topology,
    VectorUnit,
)

# Wider than any machine that was built; beyond, times and bytes would not fit into the numbers that count them.
Rate = Annotated[float, Field(ge=1e3, le=1e18)]
"""Bytes or cycles a second."""
Seconds = Annotated[float, Field(ge=0, le=1.0)]
"""A delay."""
Cycles = Annotated[float, Field(ge=0, le=1e6)]
"""Cycles an element."""
Macs = Annotated[float, Field(ge=1e-3, le=1e9)]
"""Multiply-accumulates a cycle and core."""
Few = Annotated[Count, Field(le=2**20)]
"""How many of something a machine has: cores, rows, lanes, registers."""
Joules = Annotated[float, Field(ge=0, le=1e6)]
"""Joules, or watts."""

Celsius = Annotated[float, Field(ge=-273.15, le=2000)]
"""A temperature."""
Size = Annotated[float, Field(ge=1e-6, le=1e9)]
"""Watts, kelvins a watt or seconds of a thermal node."""

UNITS = "Figures are in Hz, bytes, bytes/s, seconds, joules and watts, without prefixes."

Dataflow = Literal["output-stationary", "weight-stationary", "input-stationary"]


def _known_precisions(table: dict[str, float]) -> dict[str, float]:
    """Refuse names that no ``--precision`` has: their figures would never be used."""
    unknown = [name for name in table if name not in PRECISIONS]
    if unknown:
        raise ValueError(f"unknown precision {', '.join(unknown)}; known are {', '.join(PRECISIONS)}")
    return table


class _Launch(Strict):
    issue_s: Seconds = 0.0
    gap_s: Seconds = 0.0
    instruction_memory_bytes: Count | None = None


class _Partition(Strict):
    slots: Few
    cores_per_slot: Few


class _Systolic(Strict):
    kind: Literal["systolic"]
    rows: Few
    columns: Few
    dataflow: Dataflow = "output-stationary"
    macs_per_cycle: Annotated[dict[str, Macs], Field(min_length=1)]
    overlap_folds: bool = False
    conv: Literal["channels", "im2col"] = "channels"

    _precisions = field_validator("macs_per_cycle")(_known_precisions)


class _TensorCore(Strict):
    kind: Literal["tensor-core"]
    mma: Annotated[list[Few], Field(min_length=3, max_length=3)]
    macs_per_cycle: Annotated[dict[str, Macs], Field(min_length=1)]
    conv: Literal["channels", "im2col"] = "channels"

    _precisions = field_validator("macs_per_cycle")(_known_precisions)


class _VectorUnit(Strict):
    lanes: Few
    cycles: dict[str, Cycles] = Field(default_factory=dict)


class _Accumulators(Strict):
    model: Literal["accumulator"]
    capacity_bytes: Count


class _Simt(Strict):
    model: Literal["simt"]
    per_core: Few
    per_thread_max: Few
    allocation_unit: Few
    warp: Few
    threads_max: Few
    blocks_max: Few

    @model_validator(mode="after")
    def _hold_a_block(self) -> Self:
        if not self.warp <= self.threads_max <= self.per_core:
            raise ValueError("needs warp <= threads_max <= per_core: a register for each thread of a core")
        return self


class _Memory(Strict):
    name: Name
    scope: Literal["device", "core"]
    kind: Literal["scratchpad", "cache"] = "scratchpad"
    capacity_bytes: Count
    bandwidth_bytes_per_s: Rate | None = None
    latency_s: Seconds = 0.0
    bandwidth_per_core_bytes_per_s: Rate | None = None
    efficiency_loss: Share = 0.0
    energy_j_per_byte: Joules = 0.0
    double_buffer: bool = True
    access_bytes: Few = 1


class _Topology(Strict):
    kind: Literal["mesh", "ring", "bus", "crossbar"]
    columns: Few = 1
    off_home_factor_per_hop: Cycles = 0.0


class _Energy(Strict):
    mac_j: dict[str, Joules] = Field(default_factory=dict)
    launch_j: Joules = 0.0
    static_w: Joules = 0.0

    _precisions = field_validator("mac_j")(_known_precisions)


class _Thermal(Strict):
    tdp_w: Size
    ambient_c: Celsius
    die_k_per_w: Size
    die_s: Size
    sink_k_per_w: Size
    sink_s: Size
    throttle_c: Celsius
    resume_c: Celsius
    throttled_clock_ratio: Annotated[float, Field(ge=1e-3, le=1)]
    power_cap_w: Size | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.ambient_c < self.resume_c < self.throttle_c:
            raise ValueError("needs ambient_c < resume_c < throttle_c")
        return self


class _Hardware(Strict):
    format: Literal[1]
    name: Name
    source: Name = "assumed"
    clock_hz: Rate
    cores: Few
    launch: _Launch = _Launch()
    partition: _Partition | None = None
    matrix_unit: Annotated[_Systolic | _TensorCore, Field(discriminator="kind")] | None = None
    vector_unit: _VectorUnit | None = None
    registers: Annotated[_Accumulators | _Simt, Field(discriminator="model")] | None = None
    memory: Annotated[list[_Memory], Field(min_length=1)]
    topology: _Topology | None = None
    energy: _Energy = _Energy()
    thermal: _Thermal | None = None
    partial_sum_precision: Name | None = None
    online_statistics: bool = True

    @field_validator("partial_sum_precision")
    @classmethod
    def _is_a_precision(cls, name: str | None) -> str | None:
        if name is not None and not _bits(name):
            raise ValueError(f"unknown precision {name!r}; try {', '.join(PRECISIONS)}, int16 or int32")
        return name

    @field_validator("memory", mode="wrap")
    @classmethod
    def _levels(cls, given: Any, handler: ValidatorFunctionWrapHandler) -> list[_Memory]:
        """What levels must be to each other is told beside the faults inside them, over those that have none."""
        try:
            levels = handler(given)
        except ValidationError as error:
            faulty = {fault["loc"][0] for fault in error.errors(include_url=False) if fault["loc"]}
            rows = list(enumerate(given)) if faulty else []
            sound = {i: _Memory.model_validate(level) for i, level in rows if i not in faulty}
            tell(_level_faults(sound, len(rows)), beside=error)
            raise
        tell(_level_faults(dict(enumerate(levels)), len(levels)))
        return levels

    @field_validator("partition")
    @classmethod
    def _slots_fit(cls, cut: _Partition | None, info: ValidationInfo) -> _Partition | None:
        cores = info.data.get("cores")
        if cut is not None and cores is not None and cut.slots * cut.cores_per_slot > cores:
            raise ValueError(
                f"{cut.slots} slots of {cut.cores_per_slot} cores need {cut.slots * cut.cores_per_slot} cores, "
                f"the machine has {cores}"
            )
        return cut


def _level_faults(sound: dict[int, _Memory], count: int) -> Iterator[Fault]:
    """What is wrong between the levels that are `sound`, by their place among all `count`."""
    named: dict[str, int] = {}
    for i, level in sound.items():
        if level.name in named:
            yield (i, "name"), f"two levels are called {level.name!r}; plans name levels, so names are unique"
        elif level.name == "registers":
            yield (i, "name"), "a level may not be called 'registers': plans use that name for the registers"
        named.setdefault(level.name, i)
    if 0 in sound and (sound[0].scope != "device" or sound[0].kind != "scratchpad"):
        yield (0,), "the first level is the outermost one: scope = 'device' and no cache"
    if len(sound) == count and not any(level.kind == "scratchpad" for i, level in sound.items() if i):
        what = "only caches are on chip" if count > 1 else "there is no on-chip level"
        yield (), f"{what}; tiles are cut for explicit on-chip levels (kind = 'scratchpad')"
    outer = None
    for i, level in sound.items():
        if level.access_bytes > level.capacity_bytes:
            yield (i, "access_bytes"), f"{level.access_bytes:,} bytes are more than the level holds"
        if outer is not None and outer.scope == "core" and level.scope == "device":
            yield (i, "scope"), f"the device shares it, and {outer.name!r} around it is of one core"
        if (
            level.kind == "cache"
        ):  # it may be smaller than what is inside it; tiles lie in those of the level around
            continue
        if outer is not None and level.capacity_bytes > outer.capacity_bytes:
            yield (
                (i, "capacity_bytes"),
                f"{level.capacity_bytes:,} bytes are more than the {outer.capacity_bytes:,} of {outer.name!r} "
                "around it; levels stand from outermost to innermost",
            )
        outer = level


def _bits(precision: str) -> int:
    """Bits of a precision given by its short name or as an element type; 0 where there is none."""
    return BITS.get(PRECISIONS.get(precision, precision), 0)


def packaged_hardware() -> tuple[str, ...]:
    """Names of the machines that ship with the program, sorted."""
    return packaged_names("assets/hardware", ".toml")


def hardware_path(source: str | Path) -> Path:
    """The file that `source` means: a file of that name, else the packaged machine of that name.

    Raises
    ------
    FileError : neither; the message lists the packaged machines.
    """
    return input_file(
        source,
        "assets/hardware",
        ".toml",
        f"no such machine file, and no packaged machine of that name ({', '.join(packaged_hardware())})",
        "Give a .toml file or one of these names.",
    )


def load_hardware(source: str | Path) -> Accelerator:
    """Read a machine from a TOML file or by the name of a packaged one.

    Parameters
    ----------
    source : path of a file; a name that no file bears is looked up among the packaged machines.

    Raises
    ------
    FileError : no such machine, or a file with faults: all of them at once, each with its path.
    """
    path = hardware_path(source)
    content = read_bytes(path)
    return _accelerator(read_toml(content, _Hardware, str(source), UNITS), _digest(content))


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _accelerator(file: _Hardware, digest: str) -> Accelerator:
    """The schema's values as the model's; an absent partition is one slot of all cores."""
    cut = file.partition
    return Accelerator(
        name=file.name,
        source=file.source,
        digest=digest,
        clock_hz=file.clock_hz,
        cores=file.cores,
        memory=tuple(MemoryLevel(**level.model_dump()) for level in file.memory),
        launch=Launch(**file.launch.model_dump()),
        partition=Partition(cut.slots, cut.cores_per_slot) if cut else Partition(1, file.cores),
        matrix_unit=_matrix_unit(file.matrix_unit),
        vector_unit=(
            VectorUnit(file.vector_unit.lanes, tuple(file.vector_unit.cycles.items()))
            if file.vector_unit
            else None
        ),
        registers=Registers(**file.registers.model_dump()) if file.registers else None,
        topology=Topology(**file.topology.model_dump()) if file.topology else None,
        energy=Energy(tuple(file.energy.mac_j.items()), file.energy.launch_j, file.energy.static_w),
        thermal=Thermal(**file.thermal.model_dump()) if file.thermal else None,
        partial_sum_bits=_bits(file.partial_sum_precision) if file.partial_sum_precision else None,
        online_statistics=file.online_statistics,
        warnings=_warnings(file),
    )


def _matrix_unit(unit: _Systolic | _TensorCore | None) -> MatrixUnit | None:
    if unit is None:
        return None
    rates = tuple(unit.macs_per_cycle.items())
    if isinstance(unit, _TensorCore):
        m, n, k = unit.mma
        return MatrixUnit(unit.kind, rates, mma=(m, n, k), conv=unit.conv)
    return MatrixUnit(
        unit.kind,
        rates,
        rows=unit.rows,
        columns=unit.columns,
        dataflow=unit.dataflow,
        overlap_folds=unit.overlap_folds,
        conv=unit.conv,
    )


def _warnings(file: _Hardware) -> tuple[tuple[str, str, str], ...]:
    """Caches that this version leaves out of its sums, and parts that the file leaves out."""
    said: list[tuple[str, str, str]] = []
    buffer = next(level for level in file.memory[1:] if level.kind == "scratchpad")
    outside = file.memory[: file.memory.index(buffer)]
    counted = next((level for level in outside if level.kind == "cache"), None)
    for index, level in enumerate(file.memory):
        if level.kind == "cache" and level is not counted:
            said.append(
                (
                    f"{file.name}: memory[{index}] {level.name}",
                    f"this cache of {level.capacity_bytes:,} bytes is read, not in the sums yet: one cache is counted, "
                    f"between {file.memory[0].name} and {buffer.name}",
                    "Compare plans with each other rather than with measured bytes.",
                )
            )
    absent = (
        (file.matrix_unit, "matrix_unit", "matrix products take no compute time"),
        (file.vector_unit, "vector_unit", "pointwise work takes no compute time"),
        (file.registers, "registers", "register tiles and spills are not limiting"),
        (file.memory[0].bandwidth_bytes_per_s, "memory[0].bandwidth_bytes_per_s", "DRAM takes no time"),
    )
    for part, key, consequence in absent:
        if part is None:
            said.append(
                (f"{file.name}: {key}", f"absent, so {consequence}", f"Add {key} to the machine file.")
            )
    return tuple(said)
