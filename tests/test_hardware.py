"""Machine files: what a good one becomes, and how a bad one is refused."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from explorer.__main__ import main
from model.cost.result import CostRequest
from model.cost.simulate import simulate
from model.errors import FileError
from model.graph.load import load_graph
from model.hardware.loader import hardware_path, load_hardware, packaged_hardware
from model.packaged import folder
from model.plan.edits import unfused
from model.terminal import capacity, quantity

SMALL = """
format = 1
name = "small"
clock_hz = 1000000000
cores = 4
[[memory]]
name = "DRAM"
scope = "device"
capacity_bytes = 8.0e9
[[memory]]
name = "buffer"
scope = "core"
capacity_bytes = 524288
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "machine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(FileError) as caught:
        load_hardware(written(tmp_path, text))
    return caught.value.sentence()


def test_the_smallest_file_is_a_machine_that_says_what_is_absent(tmp_path):
    path = written(tmp_path, SMALL)
    machine = load_hardware(path)
    assert machine.clock_hz == 1.0e9 and isinstance(machine.clock_hz, float)
    assert machine.dram.capacity_bytes == 8_000_000_000 and isinstance(machine.dram.capacity_bytes, int)
    assert machine.buffer.name == "buffer"
    assert (machine.partition.slots, machine.slot_cores) == (1, 4)
    assert machine.digest == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    said = [where for where, _, _ in machine.warnings]
    assert said == [
        "small: matrix_unit",
        "small: vector_unit",
        "small: registers",
        "small: memory[0].bandwidth_bytes_per_s",
    ]


def test_every_packaged_machine_loads_and_is_what_its_name_says():
    assert packaged_hardware() == (
        "a100",
        "edge-npu",
        "ethos-like",
        "eyeriss-like",
        "gemmini",
        "h100",
        "npu-8-slots",
        "one-buffer",
        "rtx4090",
        "systolic-32",
        "tpu-v4i",
    )
    for name in packaged_hardware():
        assert load_hardware(name).name == name
        assert hardware_path(name).read_text(encoding="utf-8").startswith("# ")


def test_the_a100_has_its_published_peaks():
    machine = load_hardware("a100")
    rates = dict(machine.matrix_unit.macs_per_cycle)
    assert 2 * rates["bf16"] * machine.cores * machine.clock_hz == pytest.approx(312e12, rel=0.001)
    assert 2 * rates["int8"] * machine.cores * machine.clock_hz == pytest.approx(624e12, rel=0.001)
    assert 2 * rates["fp32"] * machine.cores * machine.clock_hz == pytest.approx(19.5e12, rel=0.001)
    assert machine.buffer.name == "shared" and machine.buffer.capacity_bytes == 164 * 1024
    assert machine.registers.per_core * 4 == 256 * 1024
    assert machine.slot_bandwidth_bytes_per_s == 2039e9


@pytest.mark.parametrize(
    ("name", "precision", "operations_per_s"),
    [
        ("h100", "bf16", 989.4e12),
        ("h100", "int8", 1978.9e12),
        ("rtx4090", "fp16", 165.2e12),
        ("rtx4090", "int8", 660.6e12),
        ("rtx4090", "fp32", 82.6e12),
        ("tpu-v4i", "bf16", 138e12),
        ("eyeriss-like", "fp16", 67.2e9),  # 168 elements at 200 MHz
        ("ethos-like", "int8", 1.024e12),
        ("gemmini", "int8", 512e9),
    ],
)
def test_peaks_are_the_published_ones(name, precision, operations_per_s):
    machine = load_hardware(name)
    rate = dict(machine.matrix_unit.macs_per_cycle)[precision]
    assert 2 * rate * machine.cores * machine.clock_hz == pytest.approx(operations_per_s, rel=0.005)


def test_levels_that_are_not_counted_yet_are_warned_of(tmp_path):
    assert load_hardware("a100").warnings == ()  # its L2 is simulated
    text = (folder("assets") / "hardware" / "a100.toml").read_text(encoding="utf-8")
    path = tmp_path / "deeper.toml"
    inner = '[[memory]]\nname = "L1"\nscope = "core"\ncapacity_bytes = 65536\n'
    path.write_text(text.replace("[energy]", inner + "[energy]"), encoding="utf-8")
    assert load_hardware(path).warnings == ()  # nor is there anything to say of one more explicit level
    assert [buffer.name for buffer in load_hardware(path).buffers] == ["shared", "L1"]
    path.write_text(text.replace("[energy]", inner + 'kind = "cache"\n[energy]'), encoding="utf-8")
    ((where, what, lever),) = load_hardware(path).warnings
    assert where == "a100: memory[3] L1" and "not in the sums yet" in what and lever


def test_the_oracles_machine():
    machine = load_hardware("one-buffer")
    assert machine.partial_sum_bits == 8 and not machine.online_statistics
    assert not machine.buffer.double_buffer and machine.matrix_unit is None


def test_a_file_wins_over_a_packaged_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, SMALL).rename(tmp_path / "edge-npu")
    assert load_hardware("edge-npu").name == "small"


def test_all_faults_come_at_once_with_their_paths(tmp_path):
    text = refusal(
        tmp_path,
        SMALL.replace("cores = 4", "cores = true").replace("format = 1", "format = 2")
        + "latency_s = nan\ncapacity_byte = 4\n[registers]\nmodel = 'smit'\n"
        + "[matrix_unit]\nkind = 'systolic'\nrows = 32.5\nmacs_per_cycle = { int9 = 3 }\n",
    )
    for fault in (
        "format: should be 1, not 2",
        "cores: should be a whole number, not true",
        "memory[1].latency_s (buffer): should be a finite number, not nan",
        "memory[1].capacity_byte (buffer): unknown key",
        "registers.model: should be 'accumulator' or 'simt'",
        "matrix_unit.rows: should be a whole number, not 32.5",
        "matrix_unit.columns: is missing",
        "matrix_unit.macs_per_cycle: unknown precision int9",
        "Did you mean capacity_bytes?",
    ):
        assert fault in text
    assert "\n" not in text


def test_faults_between_levels_come_beside_those_within(tmp_path):
    """Each level's own faults, and those of the sound ones among each other, of the partition and of the heat."""
    level = '[[memory]]\nname = "{}"\nscope = "{}"\ncapacity_bytes = {}\n{}\n'
    text = refusal(
        tmp_path,
        SMALL
        + level.format("L1", "core", 1 << 20, "bandwidth_bytes_per_s = -1")
        + level.format("L1b", "device", 1 << 20, "")
        + level.format("L1b", "core", 100, "access_bytes = 128")
        + level.format("cache", "core", 1 << 30, 'kind = "cache"')
        + level.format("registers", "core", 64, "")
        + "[partition]\nslots = 4\ncores_per_slot = 2\n"
        + "[thermal]\ntdp_w = inf\nambient_c = -1e9\ndie_k_per_w = 0\ndie_s = -1\nsink_k_per_w = 1\nsink_s = 1e300\n"
        + "throttle_c = 80\nresume_c = 70\nthrottled_clock_ratio = 0\n",
    )
    for fault in (
        "memory[2].bandwidth_bytes_per_s (L1): should be at least 1000, not -1",
        "memory[3].scope (L1b): the device shares it, and 'buffer' around it is of one core",
        "memory[3].capacity_bytes (L1b): 1,048,576 bytes are more than the 524,288 of 'buffer' around it",
        "memory[4].name (L1b): two levels are called 'L1b'",
        "memory[4].access_bytes (L1b): 128 bytes are more than the level holds",
        "memory[6].name (registers): a level may not be called 'registers'",
        "partition: 4 slots of 2 cores need 8 cores, the machine has 4",
        "thermal.tdp_w: should be a finite number, not inf",
        "thermal.ambient_c: should be at least -273.15, not -1000000000.0",
        "thermal.die_k_per_w: should be at least 0.000001, not 0",
        "thermal.die_s",
        "thermal.sink_s",
        "thermal.throttled_clock_ratio",
        "Figures are in Hz, bytes, bytes/s, seconds, joules and watts",
    ):
        assert fault in text
    assert "(cache)" not in text  # what a cache holds is no bound for what lies around it


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("cores = 4", "cores = 0"), "cores: should be greater than 0"),
        (("cores = 4", "cores = '4'"), "cores: should be a whole number, not '4'"),
        (("1000000000", "inf"), "clock_hz: should be a finite number"),
        (("1000000000", "false"), "clock_hz: should be a number"),
        (('"small"', '""'), "name: is empty"),
        (('name = "buffer"', 'name = "DRAM"'), "two levels are called 'DRAM'"),
        (('name = "buffer"', 'name = "registers"'), "may not be called 'registers'"),
        (('scope = "device"', 'scope = "core"'), "the first level is the outermost one"),
        (('scope = "core"', 'scope = "core"\nkind = "cache"'), "only caches are on chip"),
        (("cores = 4", "cores = 4\n[partition]\nslots = 4\ncores_per_slot = 2\n"), "need 8 cores"),
        (("cores = 4", "cores = 4\npartial_sum_precision = 'x'"), "unknown precision 'x'"),
        (("cores = 4", "cores = 4\ncores = 5"), "is not valid TOML"),
        (("524288", "1e300"), "memory[1].capacity_bytes"),
        (("1000000000", "1e30"), "clock_hz: should be at most 1e18"),
        (("cores = 4", "cores = 4000000000"), "cores: should be at most 1048576"),
        (("cores = 4", "cores = 4\nlaunch = { issue_s = 1e9 }"), "launch.issue_s: should be at most 1"),
        (("cores = 4", "cores = 4\nvector_unit = { lanes = 1, cycles = { exp = 1e9 } }"), "vector_unit.cycles.exp"),
    ],
)  # fmt: skip
def test_one_fault_one_sentence(tmp_path, change, said):
    assert said in refusal(tmp_path, SMALL.replace(*change, 1))


def test_registers_hold_a_thread_of_every_warp(tmp_path):
    text = (folder("assets") / "hardware" / "a100.toml").read_text(encoding="utf-8")
    assert "warp <= threads_max <= per_core" in refusal(
        tmp_path, re.sub(r"per_core = \d+", "per_core = 3", text)
    )


def test_a_buffer_of_one_byte_is_infeasible_and_no_fault(tmp_path):
    text = SMALL.replace("524288", "1")
    machine = load_hardware(written(tmp_path, text))
    graph = load_graph("swiglu_mlp")
    result = simulate(CostRequest(graph, machine, unfused(graph)))
    assert not result.totals.feasible and result.groups[0].infeasible.capacity_bytes == 1


def test_no_on_chip_level(tmp_path):
    assert "there is no on-chip level" in refusal(tmp_path, SMALL[: SMALL.rindex("[[memory]]")])


def test_files_that_are_no_files(tmp_path):
    with pytest.raises(FileError, match=r"no packaged machine of that name.*Did you mean edge-npu\?"):
        load_hardware("edge-npx")
    with pytest.raises(FileError, match="UTF-8"):
        path = tmp_path / "bytes.toml"
        path.write_bytes(b"\xff\xfe")
        load_hardware(path)
    with pytest.raises(FileError, match="larger than"):
        path.write_bytes(b"#" * (2 << 20))
        load_hardware(path)


def test_hardware_command(capsys):
    assert main(["hardware", "edge-npu", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["hardware"]["memory"][1]["capacity_bytes"] == 524288
    assert printed["hardware"]["matrix_unit"]["macs_per_cycle"]["int8"] == 1024
    assert main(["hardware"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()][
        : len(packaged_hardware())
    ] == list(packaged_hardware())
    assert main(["hardware", "a100"]) == 0
    shown = capsys.readouterr().out
    assert "2.039 TB/s" in shown and "L2" in shown and "note:" not in shown
    assert main(["hardware", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("tilewright: nothing: no such machine file")


def test_samples_command(capsys):
    assert main(["samples", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["samples"]
    assert [row["name"] for row in rows if row["kind"] == "machine"] == list(packaged_hardware())
    assert all(row["about"] and Path(row["path"]).is_file() for row in rows)
    assert main(["samples"]) == 0
    assert "systolic-32" in capsys.readouterr().out


def test_numbers_for_a_person():
    assert quantity(25.6e9, "B/s") == "25.6 GB/s"
    assert quantity(999999.6, "B") == "1 MB"
    assert quantity(0.0005, "s") == "500 µs"
    assert quantity(None, "s") == "-"
    assert capacity(524288) == "512 KiB" and capacity(80_000_000_000) == "80 GB" and capacity(100) == "100 B"
