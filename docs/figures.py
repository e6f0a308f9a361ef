"""Make the figures of the docs anew: ``python docs/figures.py``; with ``--check`` only say which pages differ.

A page marks where a table stands, ``<!-- figures: NAME -->`` to ``<!-- end -->``, and `TABLES` says how NAME is made.
All of it comes from packaged files by the model's own doors: nothing is written by hand, and nothing is tuned.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from model.cost.profile import contention, service_phases  # noqa: E402
from model.cost.result import CostRequest, CostResult  # noqa: E402
from model.cost.simulate import GroupCache, simulate  # noqa: E402
from model.errors import TilewrightError  # noqa: E402
from model.graph.graph import OperatorGraph  # noqa: E402
from model.graph.load import load_graph  # noqa: E402
from model.graph.training import forward_only  # noqa: E402
from model.hardware.accelerator import Accelerator  # noqa: E402
from model.hardware.loader import load_hardware  # noqa: E402
from model.plan.edits import contraction_tails, fuse, unfused  # noqa: E402
from model.plan.file import load_plan  # noqa: E402
from model.plan.plan import Plan  # noqa: E402
from model.plan.recompute import recompute  # noqa: E402
from model.serving.drivers import Driver, Setting, blame  # noqa: E402
from model.serving.exact import replay  # noqa: E402
from model.serving.profile import LAUNCH, profile_of  # noqa: E402
from model.serving.questions import answers  # noqa: E402
from model.serving.result import ServiceProfile, ServingResult  # noqa: E402
from model.serving.serve import prepare, serve  # noqa: E402
from model.serving.streams import Workload  # noqa: E402
from model.serving.workload import load_workload  # noqa: E402

PLANS = ("moderate", "maximum", "boundary-back")
RATE = 640.0
SEEDS = range(5)
KIB = (768, 896, 1024, 1040, 1088, 1152, 1184, 1216, 1248, 1280, 1408, 1536, 2048, 3072)


# -- the mini case ---------------------------------------------------------------------------------
@cache
def graph() -> OperatorGraph:
    return load_graph("mini_case")


@cache
def machine(kib: int = 0, launch_us: float | None = None) -> Accelerator:
    """The packaged machine, or one that differs in its scratchpad or in its launches."""
    as_it_is = load_hardware("npu-8-slots")
    memory = tuple(
        replace(each, capacity_bytes=kib << 10) if kib and each.name == "scratchpad" else each
        for each in as_it_is.memory
    )
    launch = as_it_is.launch if launch_us is None else replace(as_it_is.launch, gap_s=launch_us * 1e-6)
    return replace(as_it_is, memory=memory, launch=launch, digest=f"{kib} {launch_us}")


@cache
def cost(plan: str, kib: int = 0, launch_us: float | None = None) -> CostResult:
    chosen = unfused(graph()) if plan == "unfused" else load_plan(f"mini-case-{plan}", graph())
    return simulate(CostRequest(graph(), machine(kib, launch_us), chosen, "int8"), GroupCache())


@cache
def workload(name: str, seed: int = 0, contend: bool = True) -> Workload:
    """A packaged workload, with another seed or without contention."""
    read = load_workload(name)
    if seed != read.seed:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "seeded.toml"
            text = Path(read.path).read_text(encoding="utf-8")
            file.write_text(text.replace(f"seed = {read.seed}", f"seed = {seed}"), encoding="utf-8")
            read = load_workload(file)
    return replace(read, contention=contend)


@cache
def served(
    plan: str, name: str, rate: float | None = None, seed: int = 0, contend: bool = True, kib: int = 0
) -> ServingResult:
    return serve(workload(name, seed, contend), profile_of(cost(plan, kib)), rate_per_s=rate)


def p95(result: ServingResult) -> str:
    return "unstable" if result.unstable else f"{result.p95_ns / 1e6:.2f}"


def alone() -> str:
    rows: list[list[str]] = []
    for plan in ("unfused", *PLANS):
        result = cost(plan)
        phases = service_phases(result)
        profile = profile_of(result)
        load, stretch = contention(phases, profile.slots, profile.bandwidth_bytes_per_s)
        figures = [int(phases[name].sum()) / 1e6 for name in ("bytes", "refetch", "spill")]
        rows.append(
            [
                plan,
                f"{result.totals.launches}",
                f"{result.totals.latency_s * 1e3:.2f}",
                *(f"{each:.1f}" for each in figures),
                f"{load:.2f}",
                f"{1 + stretch:.2f}",
            ]
        )
    head = ["plan", "launches", "alone, ms", "DRAM, MB", "fetched again, MB", "spilled, MB", "U_8", "1 + X_8"]
    return table(head, rows)


def tails() -> str:
    rows: list[list[str]] = []
    for plan in PLANS:
        one, free = served(plan, "mini-case"), served(plan, "mini-case", contend=False)
        seeds = [served(plan, "mini-case", seed=seed).p95_ns / 1e6 for seed in SEEDS]
        azure, calm = served(plan, "mini-case-azure"), served(plan, "mini-case-azure", contend=False)
        mean = one.sum_response_ns / len(one.requests.arrival_ns) / 1e6
        rows.append(
            [
                plan,
                f"{mean:.2f}",
                f"**{p95(one)}**",
                f"{min(seeds):.2f} to {max(seeds):.2f}",
                f"{one.p99_ns / 1e6:.2f}",
                p95(free),
                f"**{p95(azure)}**",
                p95(calm),
            ]
        )
    head = [
        "plan",
        "mean",
        "p95",
        "p95, seeds 0 to 4",
        "p99",
        "p95, B infinite",
        "p95, Azure",
        "Azure, B infinite",
    ]
    return table(head, rows)


def ratios() -> str:
    rows: list[list[str]] = []
    for factor in (0.9, 1.0, 1.1):
        worst: list[tuple[float, float]] = []
        orders: set[tuple[str, ...]] = set()
        for seed in SEEDS:
            mod, most, back = (served(plan, "mini-case", RATE * factor, seed).p95_ns for plan in PLANS)
            worst.append((most / mod, mod / back))
            free = {plan: served(plan, "mini-case", RATE * factor, seed, False).p95_ns for plan in PLANS}
            orders.add(tuple(sorted(PLANS, key=free.__getitem__)))
        spans = [f"{min(each):.2f} to {max(each):.2f}" for each in zip(*worst, strict=True)]
        rows.append(
            [f"{RATE * factor:.0f}", *spans, "; ".join(" < ".join(order) for order in sorted(orders))]
        )
    return table(
        [
            "requests/s",
            "p95 maximum / moderate",
            "p95 moderate / boundary-back",
            "with B infinite, all seeds",
        ],
        rows,
    )


def parts() -> str:
    shown = (
        "queue",
        "contention_queue",
        "base",
        "stall_burst",
        "stall_steady",
        "stall_refetch",
        "stall_spill",
    )
    rows: list[list[str]] = []
    for name, said in (("mini-case", "Poisson"), ("mini-case-azure", "Azure")):
        for plan in PLANS:
            result = served(plan, name)
            found = dict(dict(result.parts)["p95"])
            row = [f"{found[part] / 1e6:.2f}" for part in shown]
            rows.append([said, plan, *row, p95(result)])
    return table(["arrivals", "plan", *(part.replace("_", " ") for part in shown), "= p95, ms"], rows)


def _profiles(setting: Setting, change: Callable[[ServiceProfile], ServiceProfile]) -> Setting:
    services = setting.services
    return replace(setting, services=replace(services, profiles=tuple(map(change, services.profiles))))


def _without_refetch(profile: ServiceProfile) -> ServiceProfile:
    phases = profile.phases.copy()
    phases["bytes"] -= phases["refetch"]
    phases["refetch"] = 0
    return replace(profile, phases=phases)


def _flat(profile: ServiceProfile) -> ServiceProfile:
    """The same bytes and times with one demand throughout, launches left out."""
    phases = profile.phases.copy()
    for name in ("bytes", "spill", "refetch"):
        share = np.where(phases["kind"] == LAUNCH, 0, phases["base_ns"]).cumsum()
        ends = np.rint(share * (phases[name].sum() / share[-1])).astype(np.int64)
        phases[name] = np.diff(ends, prepend=0)
    return replace(profile, phases=phases)


def bytes_blamed() -> str:
    drivers = (
        Driver("refetch", lambda setting: _profiles(setting, _without_refetch)),
        Driver("shape", lambda setting: _profiles(setting, _flat)),
    )
    rows: list[list[str]] = []
    for name, said in (("mini-case", "Poisson"), ("mini-case-azure", "Azure")):
        for plan in PLANS:
            setting = prepare(workload(name), profile_of(cost(plan))).setting
            found = blame(setting, drivers, replay)
            values = dict(dict(found.values_ns)["p95"])
            rows.append(
                [
                    said,
                    plan,
                    f"{found.grid[0].percentiles_ns[0] / 1e6:.2f}",
                    *(f"{float(values[each.name]) / 1e6:+.2f}" for each in drivers),
                    f"{found.grid[-1].percentiles_ns[0] / 1e6:.2f}",
                ]
            )
    return table(["arrivals", "plan", "neither", "fetched again", "shape (bursts)", "= p95, ms"], rows)


def loads() -> str:
    rows = [
        [said, f"{rate:g}", *(p95(served(plan, name, rate)) for plan in PLANS)]
        for name, said, rates in (
            ("mini-case", "Poisson", (16.0, 160.0, 320.0, 480.0, 576.0, 640.0, 704.0, 768.0)),
            ("mini-case-azure", "Azure", (10.0, 46.0, 75.0, 92.0, 138.0, 184.0)),
        )
        for rate in rates
    ]
    return table(["arrivals", "requests/s", *PLANS], rows)


def capacities() -> str:
    rows: list[list[str]] = []
    for kib in KIB:
        every = [served(plan, "mini-case", kib=kib) for plan in PLANS]
        figures = [-1 if each.unstable else each.p95_ns for each in every]
        times = [cost(plan, kib).totals.latency_s for plan in PLANS]
        faster = times[1] < times[0]
        worse = figures[1] < 0 or figures[1] > figures[0] > 0
        said = (
            "reverses"
            if faster and worse
            else "fusing more helps"
            if faster
            else "fusing all is slower alone already"
        )
        moved = [int(service_phases(cost(plan, kib))["bytes"].sum()) / 1e6 for plan in PLANS]
        rows.append(
            [
                f"{kib:,}",
                " / ".join(f"{each * 1e3:.2f}" for each in times),
                " / ".join(f"{each:.0f}" for each in moved),
                " / ".join(map(p95, every)),
                said,
            ]
        )
    return table(["scratchpad, KiB", "alone, ms", "DRAM, MB", "p95, ms", "maximum against moderate"], rows)


def launches() -> str:
    rows: list[list[str]] = []
    for us in (0.5, 2.0, 5.0, 10.0):
        costs = [cost(plan, launch_us=us) for plan in PLANS]
        every = [serve(workload("mini-case"), profile_of(each)) for each in costs]
        rows.append(
            [
                f"{us:g}",
                " / ".join(f"{each.totals.latency_s * 1e3:.2f}" for each in costs),
                " / ".join(map(p95, every)),
            ]
        )
    return table(["launch, µs", "alone, ms", "p95, ms"], rows)


# -- traps of serving ------------------------------------------------------------------------------
def serving_traps() -> str:
    rows: list[list[str]] = []
    for name, about, question in (
        ("static-starves", "four tenants on a slot each", "placement"),
        ("dynamic-always", "who finds his slot busy leaves home, at 1.45 times the time", "placement"),
        ("batch-for-throughput", "batches of 16 that wait 20 ms", "batch"),
    ):
        result = serve(workload(name))
        busiest = max(result.slot_busy_ns) / (sum(result.slot_busy_ns) / len(result.slot_busy_ns))
        (answer,) = answers(prepare(workload(name)), [question])
        if question == "placement":
            other = answer["dynamic" if name == "static-starves" else "static"]["p95_s"]
            way = "from one queue for all slots" if name == "static-starves" else "each at home"
            even = f"`placement`: even at a factor of {answer['break_even_off_home_factor']:.2f}"
        else:
            best = min(answer["points"], key=lambda point: (point["p95_s"], point["batch"]))
            other = best["p95_s"]
            way = f"with batches of {best['batch']} that wait {best['linger_s'] * 1e3:g} ms"
            even = "`batch`"
        rows.append(
            [
                f"`{name}`: {about}; rho {result.utilisation:.2f}"
                + (f", {busiest * result.utilisation:.2f} on one slot" if name == "static-starves" else ""),
                f"{result.p95_ns / 1e6:.1f} ms",
                f"{other * 1e3:.1f} ms {way}",
                even,
            ]
        )
    return table(["`tilewright serve --workload`", "p95 as it is", "otherwise", "`--what-if`"], rows)


# -- training --------------------------------------------------------------------------------------
FORWARD = ("forward_1", "forward_relu", "forward_2")


def training() -> str:
    """The block of the sample training_step, its forward pass alone and the whole step, under alike plans."""
    step, edge = load_graph("training_step"), load_hardware("edge-npu")
    alone = forward_only(step)

    def plan(of: OperatorGraph, fused: int, again: tuple[str, ...] = ()) -> Plan:
        found = contraction_tails(of) if of is step else unfused(of)  # the rest of the step stays the same
        members = [of.operator_by_name[name] for name in FORWARD[:fused]]
        found = fuse(of, found, members) if fused > 1 else found
        return recompute(of, found, [tensor.index for tensor in of.tensors if tensor.name in again])

    def figures(of: OperatorGraph, made: Plan, trains: bool) -> list[str]:
        now = simulate(CostRequest(of, edge, made)).totals
        moved = now.dram_read_bytes + now.dram_write_bytes
        shown = [f"{moved / 1e6:.1f}", f"{now.latency_s * 1e3:.2f}", str(now.launches)]
        return shown + (
            [f"{now.saved_activation_bytes / 1e6:.2f}", f"{now.macs / 1e9:.2f}"] if trains else []
        )

    rows: list[list[str]] = []
    for name, fused in (
        ("each operator alone", 0),
        ("first product and ReLU", 2),
        ("all three in one", 3),
    ):
        rows.append(
            [name, *figures(alone, plan(alone, fused), False), *figures(step, plan(step, fused), True)]
        )
    for names in (("forward_1",), ("forward_relu",), ("forward_1", "forward_relu")):
        words = f"first product and ReLU; {' and '.join(names)} computed again"
        rows.append([words, "", "", "", *figures(step, plan(step, 2, names), True)])
    head = ["forward pass", "inference: DRAM, MB", "ms", "launches"]
    return table([*head, "training: DRAM, MB", "ms", "launches", "held, MB", "GMAC"], rows)


# -- pages -----------------------------------------------------------------------------------------
TABLES: dict[str, Callable[[], str]] = {
    "alone": alone,
    "tails": tails,
    "ratios": ratios,
    "parts": parts,
    "bytes": bytes_blamed,
    "loads": loads,
    "capacities": capacities,
    "launches": launches,
    "serving-traps": serving_traps,
    "training": training,
}
MARKED = re.compile(r"(<!-- figures: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(words: Sequence[str]) -> int:
    """Write the pages, or with ``--check`` name those that differ; 1 where any does."""
    differ = 0
    for page in sorted(HERE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        made = MARKED.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)
        if made == text:
            continue
        differ += 1
        print(page.name, "differs" if "--check" in words else "written")
        if "--check" not in words:
            page.write_text(made, encoding="utf-8")
    return 1 if differ and "--check" in words else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TilewrightError as error:
        sys.exit(error.sentence())
