"""Triton kernels of the training step. Each is compared with a plain version beside its caller before it is used."""

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
