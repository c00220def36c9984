"""Triton kernels of generation and training. Each is compared with a plain version beside its caller before it is used."""

import triton
import triton.language as tl


@triton.jit
def soft_gradient(logits, target, mass, losses, best, columns, block: tl.constexpr):
    """What soft_loss.plain_to_gradient does, one program a row, in two reads."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, block)
    # Running maximum, sum of exponentials and place of the maximum, separately in every lane. A finite "minus
    # infinity", so that lanes that never see a column give 0 and not NaN.
    top = tl.full([block], -1e30, tl.float32)
    total = tl.zeros([block], tl.float32)
    dot = tl.zeros([block], tl.float32)
    place = tl.zeros([block], tl.int32)
    for begin in range(0, columns, block):
        column = begin + lanes
        inside = column < columns
        value = tl.load(logits + row * columns + column, mask=inside, other=-1e30).to(tl.float32)
        share = tl.load(target + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        dot += share * tl.where(inside, value, 0.0)
        place = tl.where(value > top, column, place)
        higher = tl.maximum(top, value)
        total = total * tl.exp(top - higher) + tl.exp(value - higher)
        top = higher
    highest = tl.max(top, axis=0)
    summed = highest + tl.log(tl.sum(total * tl.exp(top - highest), axis=0))
    weight = tl.load(mass + row)
    tl.store(losses + row, weight * summed - tl.sum(dot, axis=0))
    tl.store(best + row, tl.min(tl.where(top == highest, place, 2147483647), axis=0))
    for begin in range(0, columns, block):
        column = begin + lanes
        inside = column < columns
        value = tl.load(logits + row * columns + column, mask=inside, other=-1e30).to(tl.float32)
        share = tl.load(target + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        gradient = weight * tl.exp(value - summed) - share
        tl.store(logits + row * columns + column, gradient.to(logits.dtype.element_ty), mask=inside)


@triton.jit
def attention_of_one(
    q, keys, values, used, out, scale, capacity, heads: tl.constexpr, group: tl.constexpr, dim: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    """One query of every slot over the entries that the slot uses. A program is a slot and a key head: the `heads` query heads
    of a key head stand together in a tile of `group` rows, so that keys and values are read once for all of them."""
    slot, kv, kv_heads = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    rows, lanes = tl.arange(0, group), tl.arange(0, dim)
    real = (rows < heads)[:, None]
    own = ((slot * kv_heads + kv) * heads + rows)[:, None] * dim + lanes[None, :]
    query = tl.load(q + own, mask=real, other=0.0)
    count = tl.load(used + slot)
    top = tl.full([group], -1e30, tl.float32)
    total = tl.zeros([group], tl.float32)
    result = tl.zeros([group, dim], tl.float32)
    first = (slot * capacity * kv_heads + kv) * dim
    for begin in range(0, count, block):
        places = begin + tl.arange(0, block)
        seen = places < count
        offsets = first + places[:, None] * (kv_heads * dim) + lanes[None, :]
        key = tl.load(keys + offsets, mask=seen[:, None], other=0.0)
        score = tl.where(seen[None, :], tl.dot(query, tl.trans(key)) * scale, -1e30)
        higher = tl.maximum(top, tl.max(score, axis=1))
        share, shrink = tl.exp(score - higher[:, None]), tl.exp(top - higher)
        value = tl.load(values + offsets, mask=seen[:, None], other=0.0)
        result = result * shrink[:, None] + tl.dot(share.to(value.dtype), value)
        total = total * shrink + tl.sum(share, axis=1)
        top = higher
    tl.store(out + own, (result / total[:, None]).to(out.dtype.element_ty), mask=real)
