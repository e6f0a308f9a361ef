"""Blocks: runs of a topological order, whatever the scopes; layers, stages and repetition as a person names them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from model.graph import raw
from model.graph.functions import path_of
from model.graph.graph import Access, Operator, OperatorGraph, OpKind, Tensor, TensorRole
from model.graph.hierarchy import Hierarchy, hierarchy, parameter_bytes, repetitions
from model.graph.load import load_graph
from model.graph.summary import inspect_document, text_summary

Links = Sequence[tuple[int, int]]


def graph_of(types: Sequence[str], links: Links, scopes: Sequence[str] = ()) -> OperatorGraph:
    """One operator per type, each writing one tensor of 4 bytes; scopes as ``model/layers.0``, empty for none."""
    tensors = tuple(
        Tensor(i, f"t{i}", "float32", (1,), TensorRole.ACTIVATION, is_output=i == len(types) - 1)
        for i in range(len(types))
    )
    operators = tuple(
        Operator(
            i,
            f"{kind}_{i}",
            kind,
            OpKind.POINTWISE,
            (),
            tuple(Access(a, whole=True) for a, b in sorted(set(links)) if b == i),
            (Access(i, whole=True),),
            scope=tuple(part for part in scopes[i].split("/") if part) if scopes else (),
        )
        for i, kind in enumerate(types)
    )
    return OperatorGraph("g", tensors, operators)


def chain(count: int) -> list[tuple[int, int]]:
    return list(pairwise(range(count)))


def shown(graph: OperatorGraph, found: Hierarchy, closed: frozenset[int]) -> nx.DiGraph:
    """What is drawn: closed blocks and the operators outside them, and who reads whom."""
    block = found.outermost(closed)
    box = [("block", int(b)) if b >= 0 else ("operator", o) for o, b in enumerate(block)]
    out = nx.DiGraph()
    out.add_nodes_from(box)
    out.add_edges_from((box[a], box[b]) for a, b, _ in graph.edges.tolist() if box[a] != box[b])
    return out


def check(graph: OperatorGraph, found: Hierarchy) -> None:
    """What every hierarchy promises."""
    place = np.empty(len(found.order), dtype=np.int64)
    place[found.order] = np.arange(len(found.order))
    assert sorted(found.order.tolist()) == list(range(len(graph.operators)))
    assert (place[graph.edges[:, 0]] < place[graph.edges[:, 1]]).all()
    for block, parent in enumerate(found.parent.tolist()):
        assert found.end[block] - found.start[block] >= 2
        assert parent < block
        if parent >= 0:
            assert found.start[parent] <= found.start[block] and found.end[block] <= found.end[parent]
            assert found.end[parent] - found.start[parent] > found.end[block] - found.start[block]
    innermost = found.outermost([])
    for block in range(len(found.name)):  # children come later and write over their parents
        innermost[found.operators(block)] = block
    assert innermost.tolist() == found.home.tolist()


@st.composite
def scoped_graphs(draw: st.DrawFn) -> OperatorGraph:
    """Random acyclic graphs whose scopes know nothing of who reads whom."""
    count = draw(st.integers(1, 24))
    scopes = [draw(st.sampled_from(["", "a", "a/0", "a/1", "b", "b/c", "b/c/d"])) for _ in range(count)]
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    links = [(min(p), max(p)) for p in draw(st.lists(ends, max_size=40)) if p[0] != p[1]]
    types = [draw(st.sampled_from("XYZ")) for _ in range(count)]
    return graph_of(types, links, scopes)


@settings(max_examples=300, deadline=None)
@given(scoped_graphs(), st.data())
def test_any_choice_of_closed_blocks_leaves_an_acyclic_picture(
    graph: OperatorGraph, data: st.DataObject
) -> None:
    found = hierarchy(graph)
    check(graph, found)
    blocks = range(len(found.name))
    closed = frozenset(data.draw(st.sets(st.sampled_from(blocks)))) if found.name else frozenset()
    assert nx.is_directed_acyclic_graph(shown(graph, found, closed))
    again = hierarchy(graph)
    assert (again.name, again.order.tolist()) == (found.name, found.order.tolist())


def test_scopes_that_lie_apart_in_the_file_become_one_block_where_they_may() -> None:
    scopes = ["a", "b", "a", "b", ""]
    found = hierarchy(graph_of("XXXXX", [(0, 2), (1, 3), (2, 4), (3, 4)], scopes))
    assert found.name == ("a", "b")
    assert found.order.tolist() == [0, 2, 1, 3, 4]
    # b reads a and a reads b: neither can be one box.
    found = hierarchy(graph_of("XXXXXX", chain(6), ["a", "a", "b", "b", "a", "a"]))
    assert found.name == ("a (1)", "b", "a (2)")


def test_wrappers_of_one_block_are_left_out_and_numbers_get_their_stem() -> None:
    scopes = [f"m/blocks/{i // 4}/{i // 2 % 2}" for i in range(8)]
    found = hierarchy(graph_of("XYXYXYXY", chain(8), scopes))
    assert found.name == ("blocks.0", "blocks.0.0", "blocks.0.1", "blocks.1", "blocks.1.0", "blocks.1.1")
    assert found.runs([0, 3]) == [("blocks.0 … blocks.1 ×2", [0, 3])]


def test_repetition_without_any_name() -> None:
    layer = "NQKVSPRNUGDR"  # types of one layer of twelve operators
    links = chain(2 + 12 * 30 + 1)
    # What every layer begins with is read again at its end: the cut with one tensor lies between layers.
    links += [(2 + 12 * i - 1, 2 + 12 * i + 6) for i in range(30)]
    links += [(2 + 12 * i + 6, 2 + 12 * i + 11) for i in range(30)]
    found = hierarchy(graph_of("EW" + layer * 30 + "H", links))
    assert found.source == "repetition"
    assert len(found.children(-1)) == 30
    assert [found.start[b] for b in found.children(-1)[:3]] == [2, 14, 26]
    assert found.runs(found.children(-1).tolist())[0][0] == "block.0 … block.29 ×30"


def test_stretches_that_come_again() -> None:
    assert repetitions(np.array([9, *[1, 2, 3, 4, 5] * 3, 8])) == [(1, 16, 5)]
    assert repetitions(np.array([1, 2, 3, 4])) == []
    assert repetitions(np.arange(100)) == []


def test_a_long_list_without_any_structure_is_cut_where_few_tensors_pass() -> None:
    count = 1000
    links = chain(count) + [(i, i + 1 + (i * i) % 37) for i in range(count - 40) if i % 50 < 40]
    graph = graph_of([f"T{i}" for i in range(count)], links)
    found = hierarchy(graph)
    check(graph, found)
    boxes = len(shown(graph, found, found.opening()))
    assert 10 <= boxes <= 64


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("llama3_70b_80layer_prefill2048", "layers.0 … layers.79 ×80"),
        ("bert_base_dynamic", "layer.0 … layer.11 ×12"),
        ("gpt2_prefill_legacy_op14", "h.0 … h.11 ×12"),
        ("efficientnet_b0_dynbatch", "blocks.6"),
        ("sd_unet_2level_op17", "up_blocks.1.attentions.0"),
    ],
)
def test_real_models_open_as_a_person_draws_them(file: str, said: str, shared: Path) -> None:
    graph = load_graph(shared / "graphs" / "open" / f"{file}.onnx")
    found = hierarchy(graph)
    check(graph, found)
    drawn = shown(graph, found, found.opening())
    assert nx.is_directed_acyclic_graph(drawn)
    assert len(drawn) <= 100
    assert said in text_summary(graph)
    blocks = inspect_document(graph)["blocks"]
    top = [b for b in blocks if "/" not in b["path"]]
    assert sum(b["macs"] for b in top) <= graph.macs
    layers = [b["macs"] for b in blocks if b["path"].rpartition("/")[2].startswith("layers.")]
    assert len(set(layers)) <= 1  # every layer of the decoder costs the same


def test_weights_of_a_block_count_once(shared: Path) -> None:
    graph = load_graph(shared / "graphs" / "open" / "llama3_70b_80layer_prefill2048.onnx")
    found = hierarchy(graph)
    layer = found.operators(found.name.index("layers.3")).tolist()
    # 70B: hidden 8192, 64 heads and 8 of keys and values of 128, feed-forward 28672, two norms; 4 bytes each.
    elements = 8192 * (64 + 2 * 8 + 64) * 128 + 3 * 8192 * 28672 + 2 * 8192
    folded = 2048 * 2048 + 2 * 2048 * 128  # the mask, and sine and cosine of the positions, of constants
    assert 0 <= parameter_bytes(graph, layer) - 4 * (elements + folded) < 64  # and a few scalars


def test_paths_that_torch_writes() -> None:
    def path(written: str) -> tuple[str, ...]:
        node = helper.make_node("Add", ["a", "b"], ["c"])
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=written)
        return path_of(node)

    assert path("['', 'm', 'm.layers.0', 'm.layers.0.mlp', 'mul_3']") == ("m", "layers.0", "mlp")
    assert path("['', 'blocks', 'blocks.1', 'add']") == ("blocks", "1")
    assert path("['_empty_nn_module_stack_from_metadata_hook', 'sym_size_int_6']") == ()


def test_long_answers_of_the_reader_are_parsed_item_by_item() -> None:
    node = ["Add", {"axis": [1, -2], "text": 'a\\"],[{ b'}, None, True, 1.5, []]
    whole = {
        "name": "g",
        "values": [node] * 3000,
        "nodes": [],
        "one": [[]],
        "error?": {"x": [1]},
        "last": [7],
    }
    text = json.dumps(whole, separators=(",", ":"))
    assert len(text) > raw._SHORT and raw._parsed(text) == whole
    for end in (1, 10, len(text) // 2, len(text) - 1):
        with pytest.raises((ValueError, IndexError)):
            raw._parsed(text[:-end])


@pytest.mark.shared
@pytest.mark.parametrize("name", ["llama_2layer_int4_matmulnbits", "basic_pitch_nmp", "llama_2layer_opset23"])
def test_every_block_has_a_path_of_its_own(shared: Path, name: str) -> None:
    graph = load_graph(shared / "graphs" / "open" / f"{name}.onnx")
    paths = [block["path"] for block in inspect_document(graph)["blocks"]]
    assert len(set(paths)) == len(paths) > 1
    assert any(path.endswith(" (2)") for path in paths)


def test_residual_blocks_in_stages_without_any_name() -> None:
    """Stages whose first block has a projection beside it: no distance repeats, but each block branches and joins."""
    types, links = "E", list[tuple[int, int]]()
    begins: list[int] = []
    for form in "pii" + "piii" + "pi":
        before, begins = len(types) - 1, [*begins, len(types)]
        types += "CRCPSR" if form == "p" else "CRCSR"
        first, joined = before + 1, len(types) - 2
        links += [(before, first), (first, first + 1), (first + 1, first + 2), (first + 2, joined)]
        links += [(before, first + 3), (first + 3, joined)] if form == "p" else [(before, joined)]
        links.append((joined, joined + 1))
    links.append((len(types) - 1, len(types)))
    graph = graph_of([*types, "H"], links)
    found = hierarchy(graph)
    check(graph, found)
    assert [int(found.start[block]) for block in found.children(-1)] == begins
    assert [len(found.operators(block)) for block in found.children(-1)] == [6, 5, 5, 6, 5, 5, 5, 6, 5]
    assert {int(found.home[0]), int(found.home[len(types)])} == {-1}


@pytest.mark.shared
def test_a_nameless_resnet_closes_into_its_sixteen_blocks(shared: Path) -> None:
    found = hierarchy(load_graph(shared / "graphs" / "open" / "light_resnet50.onnx"))
    sizes = [len(found.operators(block)) for block in found.children(-1)]
    assert sizes == [12, 10, 10, 12, 10, 10, 10, 12, *[10] * 5, 12, 10, 10]


@pytest.mark.parametrize("scopes", [["model/layers.0"] * 6 + ["model/layers.1"] * 6, ()])
def test_whoever_wants_no_blocks_any_more_ends_the_work_between_two_steps(scopes: Sequence[str]) -> None:
    class Enough(Exception):
        pass

    def looks(most: int) -> list[int]:
        asked: list[int] = []

        def look() -> None:
            asked.append(1)
            if len(asked) > most:
                raise Enough

        graph = graph_of(["A", "B", "C", "D", "E", "F"] * 2, chain(12), scopes)
        if most < 1000:
            with pytest.raises(Enough):
                hierarchy(graph, look)
        else:
            hierarchy(graph, look)
        return asked

    whole = len(looks(1000))
    assert whole > 3
    for most in range(whole):
        assert len(looks(most)) == most + 1
