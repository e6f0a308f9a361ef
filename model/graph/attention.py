"""Attention in its spellings, written out into parts: ONNX's own, and four of onnxruntime's.

Runs in the reader's child process. All of them are ``Y = softmax(mask(Q K^T)) V`` over heads; they differ in where
Q, K and V lie (one packed tensor, heads before or after the sequence), in what comes before (a projection, a bias,
rotary positions) and in the cache. The products read each operand where it lies: no copy is made up.

Letters: ``b`` batch, ``h`` heads of keys and values, ``g`` heads of queries that share one of them, ``m`` queries,
``n`` keys, ``s`` new keys, ``k`` and ``v`` depth of a head. The scale is part of the product, as Gemm's alpha is.

Sources: ONNX operators (Attention-23 to 25); onnxruntime docs/ContribOperators.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .band import between
from .equation import BAND, Equation, band_text
from .graph import OpKind
from .parts import Parts, Writer

_ROTATION = (("mul", 2.0), ("add", 1.0))


@dataclass(frozen=True, slots=True)
class _Operand:
    """Where Q, K or V lies: the tensor and its axes, ``{}`` standing for the letter of the sequence."""

    tensor: str
    axes: str

    def over(self, letter: str) -> str:
        return self.axes.format(letter)


@dataclass(slots=True)
class _Heads:
    """The sizes of one attention. ``past``: keys that were there before this call."""

    batch: int
    kv_heads: int
    group: int
    queries: int
    keys: int
    depth: int
    value_depth: int
    past: int = 0

    @property
    def query_heads(self) -> str:
        return "h.g" if self.group > 1 else "h"

    def extents(self, letters: str) -> dict[str, int]:
        """Extents of `letters` in their order; ``g`` only where heads are shared."""
        sizes = {
            "b": self.batch, "h": self.kv_heads, "g": self.group, "m": self.queries, "n": self.keys,
            "s": self.keys - self.past, "k": self.depth, "v": self.value_depth,
        }  # fmt: skip
        return {letter: sizes[letter] for letter in letters if letter != "g" or self.group > 1}


def _heads_of(hidden: int, heads: int) -> int:
    """Depth of a head."""
    if heads < 1 or hidden % heads:
        raise ValueError(f"{heads} heads do not divide {hidden}")
    return hidden // heads


def _group_of(query_heads: int, kv_heads: int) -> int:
    if kv_heads < 1 or query_heads % kv_heads:
        raise ValueError(f"{kv_heads} key heads do not divide {query_heads} query heads")
    return query_heads // kv_heads


# ---------------------------------------------------------------- what all have in common


def _attend(
    parts: Parts,
    heads: _Heads,
    q: _Operand,
    k: _Operand,
    v: _Operand,
    *,
    result: tuple[str, tuple[int, ...], str],
    masks: list[tuple[str, str, str]],
    window: tuple[int, int] = (-1, -1),
    softcap: bool = False,
    raw_scores: str = "",
) -> None:
    """Scores, masks, softmax, values: where a query may not see a key, none of them has a point.

    `result`: name, shape and axes of Y. `masks`: tensor, axes and primitive of what is applied to the scores.
    `window`: keys before and after a query's own place that it may see, -1: all.
    """
    dtype = parts.known(q.tensor).dtype
    left, right = window
    band = between(0, 1, heads.past, left, right, heads.keys)
    kept = "" if band is None else band_text(band, "mn")
    square = f"b {heads.query_heads} m n"
    shape = (heads.batch, heads.kv_heads * heads.group, heads.queries, heads.keys)
    scores = parts.value("scores", dtype, shape, raw_scores)
    product = Equation(
        f"{q.over('m')}, {k.over('n')} -> {square}",
        heads.extents("bhgmnk"),
        band="" if raw_scores else kept,  # who wants the scores themselves wants all of them
    )
    parts.state("scores", "AttentionScores", [q.tensor, k.tensor], [scores], product)
    if softcap:
        capped = parts.value("capped", dtype, shape)
        ops = (("mul", 2.0), ("tanh", 1.0))
        nest = Equation(f"{square} -> {square}", heads.extents("bhgmn"), OpKind.POINTWISE, ops=ops, band=kept)
        parts.state("softcap", "Tanh", [scores], [capped], nest)
        scores = capped
    for tensor, axes, primitive in masks:
        suffix = "mask" if tensor == masks[0][0] else "bias"
        masked = parts.value(suffix, dtype, shape)
        there = (parts.known(tensor).shape or (1,))[-1]
        short = (
            1 < there < heads.keys
        )  # its length is bound apart from that of the keys: the rest of it is padding
        nest = Equation(
            f"{square}, {axes} -> {square}", heads.extents("bhgmn"), OpKind.POINTWISE,
            ops=((primitive, 1.0),), band="" if short else kept,
        )  # fmt: skip
        parts.state(suffix, "Add" if primitive == "add" else "Where", [scores, tensor], [masked], nest)
        scores = masked
    weights = parts.value("weights", dtype, shape)
    banded = {} if band is None else {BAND: band_text(band, ("i2", "i3"))}
    parts.add("softmax", "Softmax", [scores], [weights], axis=-1, **banded)
    name, out_shape, out_axes = result
    out = parts.value("out", dtype, out_shape, name)
    product = Equation(
        f"{square}, {v.over('n')} -> {out_axes}",
        heads.extents("bmhgvn"),
        band=kept,
    )
    parts.state("values", "AttentionValues", [weights, v.tensor], [out], product)


def _appended(
    parts: Parts, heads: _Heads, new: _Operand, past: str, present: str, suffix: str, depth: str
) -> _Operand:
    """The cache with the new rows: an append in place, which moves only these. Heads stand before the sequence."""
    extents = heads.extents(f"bhs{depth}")
    dtype = parts.known(new.tensor).dtype
    size = (heads.batch, heads.kv_heads, heads.keys, extents[depth])
    cache = parts.value(suffix, dtype, size, present)
    nest = Equation(f"*0, {new.over('s')} -> b h {heads.past}+s {depth}", extents, OpKind.MOVEMENT)
    inputs = [past, new.tensor]
    if not past:
        nest = replace(nest, text=nest.text.removeprefix("*0, "))
        inputs = inputs[1:]
    parts.state(suffix, "Concat", inputs, [cache], nest)
    return _Operand(cache, f"b h {{}} {depth}")


def _mask(
    parts: Parts, name: str, heads: _Heads, letters: list[tuple[str, int]]
) -> list[tuple[str, str, str]]:
    """A mask or bias that broadcasts to the scores; `letters`: its axes at full extent, aligned at the last."""
    if not name:
        return []
    known = parts.known(name)
    shape = known.shape or ()
    if len(shape) > len(letters):
        raise ValueError(f"{name!r} has more axes than what it masks")
    axes = [
        letter if extent == full or letter == "n" else "_"
        for extent, (letter, full) in zip(shape, letters[len(letters) - len(shape) :], strict=True)
    ]
    text = " ".join("_" if extent == 1 else axis for extent, axis in zip(shape, axes, strict=True))
    return [(name, text, "add" if "float" in known.dtype else "select")]


def _square(heads: _Heads) -> list[tuple[str, int]]:
    total = heads.kv_heads * heads.group
    return [("b", heads.batch), (heads.query_heads, total), ("m", heads.queries), ("n", heads.keys)]


def _key_mask(parts: Parts, name: str, heads: _Heads) -> list[tuple[str, str, str]]:
    """onnxruntime's mask_index and key_padding_mask: lengths, keys, or queries and keys of each sample."""
    if not name:
        return []
    rank = len(parts.shape(name))
    if rank == 1:
        return [(name, "*", "select")]
    batch, keys = ("b", heads.batch), ("n", heads.keys)
    letters = {2: [batch, keys], 3: [batch, ("m", heads.queries), keys]}.get(rank, _square(heads))
    return [(tensor, axes, "select") for tensor, axes, _ in _mask(parts, name, heads, letters)]


def _rotated(
    parts: Parts, heads: _Heads, new: _Operand, names: str, tables: list[str], suffix: str
) -> _Operand:
    """Rotary positions on queries (heads `names` = ``h.g``) or new keys (``h``)."""
    count = heads.kv_heads * (heads.group if "g" in names else 1)
    rows = heads.keys - heads.past
    dtype = parts.known(new.tensor).dtype
    turned = parts.value(suffix, dtype, (heads.batch, rows, count * heads.depth))
    axes = f"b s {names}.k"
    nest = Equation(
        f"{new.over('s')}, *{rows * heads.depth // 2}, *{rows * heads.depth // 2} -> {axes}",
        heads.extents("bshgk" if "g" in names else "bshk"),
        OpKind.POINTWISE,
        ops=_ROTATION,
    )
    parts.state(suffix, "RotaryEmbedding", [new.tensor, *tables], [turned], nest)
    return _Operand(turned, f"b {{}} {names}.k")


# ---------------------------------------------------------------- the spellings


def onnx_attention(parts: Parts) -> None:
    """Attention-23 to 25: 3 axes (heads packed) or 4 (heads first); cache and mask optional."""
    q, k, v, mask, past_key, past_value = map(parts.has, range(6))
    shape = parts.shape(q)
    if len(shape) == 3:
        query_heads, kv_heads = parts.integer("q_num_heads"), parts.integer("kv_num_heads")
        batch, queries, _ = shape
        depth = _heads_of(shape[2], query_heads)
        new, value_depth = parts.shape(k, 3)[1], _heads_of(parts.shape(v, 3)[2], kv_heads)
    else:
        batch, query_heads, queries, depth = parts.shape(q, 4)
        _, kv_heads, new, _ = parts.shape(k, 4)
        value_depth = parts.shape(v, 4)[3]
    past = parts.shape(past_key, 4)[2] if past_key else 0
    group = _group_of(query_heads, kv_heads)
    heads = _Heads(batch, kv_heads, group, queries, past + new, depth, value_depth, past)
    packed = len(shape) == 3
    at = heads.query_heads
    at_q = _Operand(q, f"b {{}} {at}.k" if packed else f"b {at} {{}} k")
    at_k = _Operand(k, "b {} h.k" if packed else "b h {} k")
    at_v = _Operand(v, "b {} h.v" if packed else "b h {} v")
    if past_key or parts.wants(1):
        at_k = _appended(parts, heads, at_k, past_key, parts.wants(1), "keys", "k")
    if past_value or parts.wants(2):
        at_v = _appended(parts, heads, at_v, past_value, parts.wants(2), "cached", "v")
    if parts.has(6) and not past_key:  # the cache lies outside, with these queries at its end
        heads.past = max(0, heads.keys - queries)
    out = (
        (batch, queries, query_heads * value_depth) if packed else (batch, query_heads, queries, value_depth)
    )
    left, right = parts.integer("left_window_size", -1), parts.integer("right_window_size", -1)
    _attend(
        parts, heads, at_q, at_k, at_v,
        result=(parts.wants(0), out, f"b m {at}.v" if packed else f"b {at} m v"),
        masks=_mask(parts, mask, heads, _square(heads)),
        window=(left, 0 if parts.integer("is_causal") else right),
        softcap=bool(parts.attributes.get("softcap", 0.0)),
        raw_scores=parts.wants(3),
    )  # fmt: skip


def packed_attention(parts: Parts) -> None:
    """com.microsoft::Attention: one projection to Q, K and V; past and present of both in one tensor."""
    x, weights, bias, mask, past, extra = map(parts.has, range(6))
    batch, queries, width = parts.shape(x, 3)
    _, packed = parts.shape(weights, 2)
    sizes = parts.attributes.get("qkv_hidden_sizes") or [packed // 3] * 3
    hidden, _, value_hidden = sizes
    count = parts.integer("num_heads")
    depth, value_depth = _heads_of(hidden, count), _heads_of(value_hidden, count)
    before = parts.shape(past, 5)[3] if past else 0
    heads = _Heads(batch, count, 1, queries, before + queries, depth, value_depth, before)
    dtype = parts.known(x).dtype
    qkv = parts.value("qkv", dtype, (batch, queries, packed))
    extents = {"b": batch, "m": queries, "n": packed, "k": width}
    if bias:
        nest = Equation("b m k, k n, n -> b m n", extents, ops=(("add", 1.0 / max(width, 1)),))
    else:
        nest = Equation("b m k, k n -> b m n", extents)
    parts.state("projection", "MatMul", [x, weights, *([bias] if bias else [])], [qkv], nest)
    q = _Operand(qkv, "b {} h.k")
    k, v = _Operand(qkv, f"b {{}} {hidden}+h.k"), _Operand(qkv, f"b {{}} {2 * hidden}+h.v")
    if past or parts.wants(1):
        if hidden != value_hidden:
            raise ValueError("keys and values of one cache differ in depth")
        cache = parts.value("cache", dtype, (2, batch, count, heads.keys, depth), parts.wants(1))
        new = f"b s {hidden}+c.h.k -> c b h {before}+s k"
        nest = Equation(f"*0, {new}" if past else new, {"c": 2, **heads.extents("bhsk")}, OpKind.MOVEMENT)
        parts.state("append", "Concat", [*([past] if past else []), qkv], [cache], nest)
        k, v = _Operand(cache, "_ b h {} k"), _Operand(cache, "1+_ b h {} v")
    masks = _key_mask(parts, mask, heads) + _mask(parts, extra, heads, _square(heads))
    _attend(
        parts, heads, q, k, v,
        result=(parts.wants(0), (batch, queries, value_hidden), "b m h.v"),
        masks=masks,
        window=(-1, 0 if parts.integer("unidirectional") else -1),
    )  # fmt: skip


def multi_head_attention(parts: Parts) -> None:
    """com.microsoft::MultiHeadAttention: Q, K, V apart, K and V packed, or all three packed per head."""
    q, k, v, bias, mask, extra, past_key, past_value = map(parts.has, range(8))
    count = parts.integer("num_heads")
    if not k:
        batch, queries, _, _, depth = parts.shape(q, 5)
        at = [_Operand(q, f"b {{}} h {i}+_ {letter}") for i, letter in enumerate("kkv")]
        new, value_depth = queries, depth
    else:
        batch, queries, hidden = parts.shape(q, 3)
        depth = _heads_of(hidden, count)
        shape = parts.shape(k)
        at_q = _Operand(q, "b {} h.k")
        if len(shape) == 5:
            new, value_depth = shape[1], depth
            at = [at_q, _Operand(k, "b {} h _ k"), _Operand(k, "b {} h 1+_ v")]
        elif len(shape) == 4:
            new, value_depth = shape[2], parts.shape(v, 4)[3]
            at = [at_q, _Operand(k, "b h {} k"), _Operand(v, "b h {} v")]
        else:
            new, value_depth = shape[1], _heads_of(parts.shape(v, 3)[2], count)
            at = [at_q, _Operand(k, "b {} h.k"), _Operand(v, "b {} h.v")]
    past = parts.shape(past_key, 4)[2] if past_key else 0
    heads = _Heads(batch, count, 1, queries, past + new, depth, value_depth, past)
    if bias and k and len(parts.shape(k)) == 3:
        at = _biased(parts, heads, at, bias)
    if past_key or parts.wants(1):
        at[1] = _appended(parts, heads, at[1], past_key, parts.wants(1), "keys", "k")
    if past_value or parts.wants(2):
        at[2] = _appended(parts, heads, at[2], past_value, parts.wants(2), "cached", "v")
    _attend(
        parts, heads, *at,
        result=(parts.wants(0), (batch, queries, count * value_depth), "b m h.v"),
        masks=_key_mask(parts, mask, heads) + _mask(parts, extra, heads, _square(heads)),
        window=(-1, 0 if parts.integer("unidirectional") else -1),
    )  # fmt: skip


def _biased(parts: Parts, heads: _Heads, at: list[_Operand], bias: str) -> list[_Operand]:
    """Q, K and V with their thirds of one bias added."""
    out: list[_Operand] = []
    offset = 0
    for operand, depth, sequence, suffix in zip(at, "kkv", "mss", ("q", "k", "v"), strict=True):
        extents = heads.extents(f"b{sequence}h{depth}")
        hidden = heads.kv_heads * extents[depth]
        name = parts.value(f"{suffix}_biased", parts.known(operand.tensor).dtype,
                           (heads.batch, extents[sequence], hidden))  # fmt: skip
        axes = f"b {sequence} h.{depth}"
        text = f"{operand.over(sequence)}, {offset}+h.{depth} -> {axes}"
        nest = Equation(text, extents, OpKind.POINTWISE, ops=(("add", 1.0),))
        parts.state(f"{suffix}_bias", "Add", [operand.tensor, bias], [name], nest)
        out.append(_Operand(name, f"b {{}} h.{depth}"))
        offset += hidden
    return out


def group_query_attention(parts: Parts) -> None:
    """com.microsoft::GroupQueryAttention: causal, with a cache, rotary positions and a window as options."""
    q, k, v, past_key, past_value, _, _, cosine, sine, _, extra = map(parts.has, range(11))
    query_heads, kv_heads = parts.integer("num_heads"), parts.integer("kv_num_heads")
    batch, queries, hidden = parts.shape(q, 3)
    group = _group_of(query_heads, kv_heads)
    depth = _heads_of(hidden, query_heads if k else query_heads + 2 * kv_heads)
    new = parts.shape(k, 3)[1] if k else queries
    past = parts.shape(past_key, 4)[2] if past_key else 0
    heads = _Heads(batch, kv_heads, group, queries, past + new, depth, depth, past)
    at = heads.query_heads
    at_q = _Operand(q, f"b {{}} {at}.k")
    at_k, at_v = _Operand(k, "b {} h.k"), _Operand(v, "b {} h.v")
    if not k:
        first = query_heads * depth
        at_k = _Operand(q, f"b {{}} {first}+h.k")
        at_v = _Operand(q, f"b {{}} {first + kv_heads * depth}+h.v")
    if parts.integer("do_rotary") and cosine and sine:
        at_q = _rotated(parts, heads, at_q, at, [cosine, sine], "rotary_q")
        at_k = _rotated(parts, heads, at_k, "h", [cosine, sine], "rotary_k")
    at_k = _appended(parts, heads, at_k, past_key, parts.wants(1), "keys", "k")
    at_v = _appended(parts, heads, at_v, past_value, parts.wants(2), "cached", "v")
    window = parts.integer("local_window_size", -1)
    _attend(
        parts, heads, at_q, at_k, at_v,
        result=(parts.wants(0), (batch, queries, query_heads * depth), f"b m {at}.v"),
        masks=_mask(parts, extra, heads, _square(heads)),
        window=(window - 1 if window > 0 else -1, 0),
        softcap=bool(parts.attributes.get("softcap", 0.0)),
    )  # fmt: skip


ATTENTIONS: dict[tuple[str, str], Writer] = {
    ("", "Attention"): onnx_attention,
    ("com.microsoft", "Attention"): packed_attention,
    ("com.microsoft", "MultiHeadAttention"): multi_head_attention,
    ("com.microsoft", "GroupQueryAttention"): group_query_attention,
}
