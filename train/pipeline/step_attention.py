"""Attention of an unrolled step of an EAGLE head: a causal part over the text and a short diagonal part over the path.

The query of step s at index t sees the keys of step 0 at indices up to t and the keys of steps 1..s at index t, all in
one softmax. The causal part is ordinary attention; the diagonal part is s dot products a query. They are joined by
their log-sum-exps:

    lse = log(exp(lse_0) + sum_i exp(d_i))        out = exp(lse_0 - lse) out_0 + sum_i exp(d_i - lse) v_i

The backward pass of flash attention forms probabilities as exp(score - lse) and needs out only for rowsum(dout * out),
so handing it the joined out and lse gives the gradients of the causal part of the joined softmax.

Only keys of step 0 are seen by other rows, so later steps run on the rows that have labels alone (`Rows`).

On a GPU this is used after one comparison with the plain version below; should they differ, the plain one does the
work.
"""

import functools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

TOLERANCE = 0.05  # gradients in bfloat16 against float32, relative to the largest


@dataclass(frozen=True)
class Rows:
    """Which rows of a batch go on after step 0: only those with labels. places int64 [N]: b * length + t, and
    batch * length for rows that only fill up."""

    places: torch.Tensor
    batch: int
    length: int

    @property
    def are_real(self) -> torch.Tensor:
        """bool [N]: not only there to fill up."""
        return self.places < self.batch * self.length

    def gather(self, padded: torch.Tensor) -> torch.Tensor:
        """[B, T, ...] -> [N, ...]; rows that fill up hold anything."""
        return padded.flatten(0, 1).index_select(0, self.places.clamp(max=self.batch * self.length - 1))

    def scatter(self, rows: torch.Tensor) -> torch.Tensor:
        """[N, ...] -> [B, T, ...], zero elsewhere. One place more than there is takes the rows that fill up."""
        padded = rows.new_zeros(self.batch * self.length + 1, *rows.shape[1:])
        return padded.index_copy(0, self.places, rows)[:-1].unflatten(0, (self.batch, self.length))


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Step 0. q, k, v [B, T, heads, D] -> [B, T, heads, D]."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def step_attention(q: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor], rows: Rows) -> torch.Tensor:
    """A later step. q and the result [N, heads, D]; keys and values [B, T, heads, D] of step 0, else [N, heads, D]."""
    if q.is_cuda and q.dtype == torch.bfloat16 and joined_is_right(q.device):
        return joined_attention(q, keys, values, rows)
    return plain_attention(q, keys, values, rows)


def plain_attention(q, keys, values, rows):
    """Scores of all pairs of a sequence at once, float32 in the softmax."""
    length, scale = rows.length, 1 / math.sqrt(q.shape[-1])
    later = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)[None, :, None, :]
    scores = torch.einsum("bthd,bjhd->bthj", rows.scatter(q), keys[0]).float().masked_fill(later, -math.inf)
    diagonal = [(q * key).sum(-1, keepdim=True, dtype=torch.float32) for key in keys[1:]]
    shares = torch.softmax(torch.cat((rows.gather(scores), *diagonal), dim=-1) * scale, dim=-1).to(q.dtype)
    out = rows.gather(torch.einsum("bthj,bjhd->bthd", rows.scatter(shares[..., :length]), values[0]))
    for i, value in enumerate(values[1:]):
        out = out + shares[..., length + i, None] * value
    return out


def joined_attention(q, keys, values, rows):
    return JoinedAttention.apply(rows, q, *keys, *values)


class JoinedAttention(torch.autograd.Function):
    """The rows, q, the keys of all steps and the values of all steps."""

    @staticmethod
    def forward(ctx, rows, q, *parts):
        keys, values = parts[: len(parts) // 2], parts[len(parts) // 2 :]
        scale = 1 / math.sqrt(q.shape[-1])
        out, causal, rest = flash_forward(rows.scatter(q), keys[0], values[0], scale)
        out, causal = rows.gather(out).float(), rows.gather(causal)  # [N, heads, D], [N, heads]
        diagonal = [(q * key).sum(-1, dtype=torch.float32) * scale for key in keys[1:]]
        lse = torch.logsumexp(torch.stack((causal, *diagonal)), dim=0)
        out = out * (causal - lse).exp().unsqueeze(-1)
        for score, value in zip(diagonal, values[1:]):
            out = torch.addcmul(out, (score - lse).exp().unsqueeze(-1), value)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, out, lse, *diagonal, *parts)
        ctx.rows, ctx.scale, ctx.rest = rows, scale, rest
        return out

    @staticmethod
    def backward(ctx, gradient):
        q, out, lse, *others = ctx.saved_tensors
        rows, steps = ctx.rows, (len(others) + 1) // 3
        diagonal, keys, values = others[: steps - 1], others[steps - 1 : 2 * steps - 1], others[2 * steps - 1 :]
        # Places without a row have a gradient of zero and give none, whatever their lse says.
        padded = (rows.scatter(part) for part in (gradient, q, out, lse))
        dq, dk, dv = flash_backward(*padded, keys[0], values[0], ctx.scale, ctx.rest)
        key_gradients, value_gradients, dq = [dk], [dv], rows.gather(dq).float() * rows.are_real[:, None, None]
        total = (gradient * out).sum(-1, dtype=torch.float32)
        for score, key, value in zip(diagonal, keys[1:], values[1:]):
            share = (score - lse).exp()
            pull = share * ((gradient * value).sum(-1, dtype=torch.float32) - total) * ctx.scale
            dq = torch.addcmul(dq, pull.unsqueeze(-1), key)
            key_gradients.append((pull.unsqueeze(-1) * q).to(q.dtype))
            value_gradients.append((share.unsqueeze(-1) * gradient).to(q.dtype))
        return None, dq.to(q.dtype), *key_gradients, *value_gradients


def flash_forward(q, k, v, scale):
    """q, k, v [B, T, heads, D] -> out of that shape, lse float32 [B, T, heads], and what the backward pass wants."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    if q.is_cuda:
        out, lse, *rest = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=scale)
    else:
        out, lse, *rest = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True, scale=scale)
    return out.transpose(1, 2), lse.transpose(1, 2), tuple(rest[:6])


def flash_backward(gradient, q, out, lse, k, v, scale, rest):
    """Gradients of q, k and v, [B, T, heads, D]. out and lse are the joined ones."""
    gradient, q, out, k, v = (part.transpose(1, 2) for part in (gradient, q, out, k, v))
    lse = lse.transpose(1, 2).contiguous()
    arguments = gradient, q, k, v, out, lse
    if q.is_cuda:
        starts_q, starts_k, longest_q, longest_k, seed, offset = rest
        arguments += starts_q, starts_k, longest_q, longest_k, 0.0, True, seed, offset
        gradients = torch.ops.aten._scaled_dot_product_flash_attention_backward(*arguments, scale=scale)
    else:
        gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *arguments, 0.0, True, scale=scale
        )
    return [part.transpose(1, 2) for part in gradients]


@functools.cache
def joined_is_right(device: torch.device) -> bool:
    """One small comparison of outputs and all gradients for each device of a run."""
    try:
        difference = compared(device, torch.bfloat16)
        reason = "" if difference < TOLERANCE else f"differs by {difference:.3g}"
    except Exception as error:  # whatever another version of PyTorch says, the plain version works
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    print(f"joined attention: {'in use' if not reason else 'not used, ' + reason}", flush=True)
    return not reason


def compared(device: torch.device, dtype: torch.dtype) -> float:
    """The largest difference between the joined version in `dtype` and the plain one in float32, over outputs and
    gradients of three steps, each relative to its largest value."""
    random = torch.Generator().manual_seed(1)

    def values(*shape):
        return torch.randn(*shape, 3, 64, generator=random).to(device, dtype)

    places = torch.cat((torch.randperm(2 * 128, generator=random)[:150].sort().values, torch.tensor([256, 256])))
    rows = Rows(places.to(device), 2, 128)
    given = [values(152), *(values(*shape) for shape in 2 * [(2, 128), (152,), (152,)])]
    seed = values(152)
    seed[150:] = 0
    results = []
    for attention, kind in ((joined_attention, dtype), (plain_attention, torch.float32)):
        q, *parts = (part.detach().to(kind).requires_grad_() for part in given)
        out = attention(q, parts[:3], parts[3:], rows)
        results.append((out[:150], *torch.autograd.grad(out, (q, *parts), seed.to(kind))))
    pairs = [(a.detach().float(), b.detach().float()) for a, b in zip(*results)]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
