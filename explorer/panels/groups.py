"""Groups: every fusion group with its numbers, sortable, filterable, copyable.

Knows `GroupResult`. The same columns are exported as CSV, with all digits, by `export`.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHeaderView, QLineEdit

from model.cost.result import CostResult, GroupResult

from .. import look
from ..document import Document
from ..names import operator_list, result_label
from .panel import Panel
from .rows import Column, Rows, RowsTable, group_rows_of


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of a result."""

    result: CostResult
    index: int
    group: GroupResult

    @property
    def label(self) -> str:
        """Made when it is painted."""
        return result_label(self.result, self.index)

    @property
    def names(self) -> str:
        """The operators' own names."""
        return operator_list(self.result.request.graph, self.group.operators, 40)

    @property
    def share(self) -> float:
        """Of the graph's latency, launches included."""
        whole = self.result.totals.latency_s
        return self.group.latency_s / whole if whole else 0.0

    @property
    def dram_bytes(self) -> int:
        """Read from and written to DRAM."""
        return sum(self.group.dram_bytes(self.result.request.accelerator.dram.name))

    @property
    def traffic_tip(self) -> str:
        """All bytes between each pair of levels."""
        pairs = self.group.moved_bytes().items()
        return "\n".join(f"{outer} ↔ {inner}: {look.fmt_bytes_exact(size)}" for (outer, inner), size in pairs)

    @property
    def words(self) -> str:
        """What the filter searches."""
        return f"{self.label} {self.names} {self.group.bottleneck.name} {self.fit}"

    @property
    def operators(self) -> tuple[int, ...]:
        """The group's operators."""
        return self.group.operators

    @property
    def fit(self) -> str:
        """Fits, spills or does not fit, in words."""
        if self.group.infeasible is not None:
            return "does not fit"
        return "spills" if self.group.registers.spilled_bytes else "fits"

    @property
    def fit_tip(self) -> str:
        """What each level holds at its peak; demand, capacity and levers where it does not fit."""
        missing = self.group.infeasible
        if missing is None:
            held = (f"{look.fmt_bytes(size)} in {name}" for name, size in self.group.footprint_bytes)
            return "\n".join((self.fit, *held))
        return (
            f"needs {look.fmt_bytes(missing.demand_bytes)} in {missing.memory}, "
            f"{look.fmt_bytes(missing.capacity_bytes)} available.\n"
            f"Try: {'; '.join(missing.levers) or 'split it'}"
        )

    @property
    def compulsory_ratio(self) -> float:
        """DRAM bytes over the compulsory ones; 0 where there are none."""
        return self.dram_bytes / self.group.compulsory_bytes if self.group.compulsory_bytes > 0 else 0.0

    @property
    def bound_ratio(self) -> float:
        """DRAM bytes over the I/O lower bound; 0 where there is none."""
        return self.dram_bytes / self.group.lower_bound_bytes if self.group.lower_bound_bytes > 0 else 0.0


def group_rows(result: CostResult) -> Rows:
    """Rows in the plan's order."""
    return group_rows_of(result, lambda index: GroupRow(result, index, result.groups[index]))


def _fit_state(row: GroupRow) -> str:
    return {"fits": "", "spills": "warn", "does not fit": "bad"}[row.fit]


COLUMNS: tuple[Column, ...] = (
    Column(
        "Group",
        lambda r: r.label,
        lambda r: r.index,
        "Place in the plan, op types",
        lambda r: r.names,
        "left",
    ),
    Column("Ops", lambda r: look.fmt_count(len(r.operators)), lambda r: len(r.operators), "Operators"),
    Column(
        "Latency",
        lambda r: look.fmt_seconds(r.group.latency_s),
        lambda r: r.group.latency_s,
        "From the group's start to its end, launch excluded",
        lambda r: f"{r.group.latency_s:.9g} s",
    ),
    Column(
        "Share",
        lambda r: look.fmt_percent(r.share),
        lambda r: r.share,
        "Of the whole latency, launches included",
    ),
    Column(
        "DRAM",
        lambda r: look.fmt_bytes(r.dram_bytes),
        lambda r: r.dram_bytes,
        "Bytes read from and written to DRAM",
        lambda r: r.traffic_tip,
    ),
    Column(
        "× compulsory",
        lambda r: f"{r.compulsory_ratio:.2f}" if r.compulsory_ratio else look.NO_NUMBER,
        lambda r: r.compulsory_ratio,
        "DRAM bytes over those of the group's operands and results once",
        lambda r: f"compulsory {look.fmt_bytes_exact(r.group.compulsory_bytes)}",
    ),
    Column(
        "× bound",
        lambda r: f"{r.bound_ratio:.2f}" if r.bound_ratio else look.NO_NUMBER,
        lambda r: r.bound_ratio,
        "DRAM bytes over the I/O lower bound, which no tile goes below",
        lambda r: f"bound {look.fmt_bytes_exact(r.group.lower_bound_bytes)} ({r.group.bound_source})",
    ),
    Column(
        "Fit",
        lambda r: r.fit,
        lambda r: ("fits", "spills", "does not fit").index(r.fit),
        "Whether its tiles fit the machine",
        lambda r: r.fit_tip,
        "left",
        _fit_state,
    ),
    Column(
        "Bottleneck",
        lambda r: r.group.bottleneck.name,
        lambda r: r.group.bottleneck.name,
        "The resource whose 10 % relief shortens the latency most",
        lambda r: (
            f"10 % relief gains {look.fmt_percent(r.group.bottleneck.gain_of_10_percent)}\n"
            f"{r.group.bottleneck.evidence}"
        ),
        "left",
    ),
    Column(
        "Utilisation",
        lambda r: look.fmt_percent(r.group.utilisation) if r.group.macs else look.NO_NUMBER,
        lambda r: r.group.utilisation if r.group.macs else -1.0,
        "Ideal cycles over cycles of the matrix unit",
    ),
)


class GroupsTable(Panel):
    """The groups panel."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "groups", "Groups", "one row a group · click a heading to sort")
        self._launches = 0
        self.filter = QLineEdit()
        self.filter.setPlaceholderText("Filter: a name, a type, a bottleneck, “spills” …")
        self.filter.setClearButtonEnabled(True)
        self.filter.setAccessibleName("Filter the groups")
        self.table = RowsTable(document, COLUMNS, words=lambda row: row.words)
        self.table.setAccessibleName("Fusion groups")
        self.table.setSortingEnabled(True)
        self.table.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        for column, width in enumerate((188, 44, 76, 62, 76, 64, 84, 140, 84)):
            self.table.setColumnWidth(column, width)
        self.filter.textChanged.connect(self._filter)
        self.body.addWidget(self.filter)
        self.body.addWidget(self.table, 1)
        self.follow("cost", document.cost_changed)

    def _filter(self, text: str) -> None:
        self.table.rows.set_words(text)
        if not self.message:
            self._count()

    def _count(self) -> None:
        shown, there = len(self.table.rows.shown), len(self.table.rows.rows)
        some = f"{shown:,} of {there:,}" if shown != there else f"{there:,}"
        self.set_line(f"{some} groups · {self._launches:,} launches · click a heading to sort")

    def redraw(self) -> None:
        """Rows of the newest result."""
        result = self.document.cost
        if self.explain_absence("the groups") or result is None:
            return
        self._launches = result.totals.launches  # groups of views alone launch nothing
        self.table.show_rows(group_rows(result))
        self._count()
        self.show_body()
