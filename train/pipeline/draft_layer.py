"""The decoder layer of EAGLE heads as it is trained: unrolled over its own output.

With tokens x, the teacher's features f and positions t, all indices of one sequence at once:

    step 0   g_t = fuse(f_t),        token x_{t+1},   rope position t
    step s   g_t = a_t of step s-1,  token x_{t+1+s}, rope position t+s         a: the layer's output

Tokens are those of the text, so step s is what the head does s levels below a root that was right so far. Its query at
t sees the keys of step 0 up to t (the text before the root: features of the teacher) and its own keys of steps 1..s
(the path below it). The logits of step s at t stand for x_{t+2+s}, and the label is the teacher's distribution at
position t+1+s.

Precision: parameters, residual stream, norms, softmax and loss in float32, matrix products under autocast.

EAGLE-2 and EAGLE-3 differ in what they read, in what enters the layer and in what follows it: eagle2.py, eagle3.py.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from .step_attention import Rows, causal_attention, step_attention
from .teacher import Teacher

INITIAL_STD = 0.02
PASSED_THROUGH = 0.3  # of the highest feature: as it is, it would begin with confident guesses of the token before


@dataclass(frozen=True)
class LayerShape:
    """The sizes of the layer. heads * head_dim need not be hidden."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    eps: float


class DraftLayer(nn.Module):
    """Parameters are float32. q, k, v and gate, up are one matrix each, so that a step is few products."""

    def __init__(self, shape: LayerShape, embedding: torch.Tensor, ids: torch.Tensor):
        super().__init__()
        self.shape = shape
        self.register_buffer("embedding", embedding, persistent=False)  # [V, H], the teacher's
        self.register_buffer("ids", ids, persistent=False)  # int64 [Vd] ascending ids of the teacher

    def add_layer(self, width: int) -> None:
        """The parameters of a layer whose q, k and v read vectors of this width."""
        shape = self.shape
        h, rows = shape.hidden, shape.heads * shape.head_dim
        self.qkv = nn.Parameter(torch.empty(rows + 2 * shape.kv_heads * shape.head_dim, width))
        self.o = nn.Parameter(torch.empty(h, rows))
        self.post_attention_layernorm = nn.Parameter(torch.ones(h))
        self.gate_up = nn.Parameter(torch.empty(2 * shape.intermediate, h))
        self.down = nn.Parameter(torch.empty(h, shape.intermediate))

    # Of each kind of heads

    def features_of(self, teacher: Teacher, tokens: torch.Tensor) -> torch.Tensor:
        """What the head reads of the teacher, float32 [.., T, width], of tokens int64 [.., T]."""
        raise NotImplementedError

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Features -> g [.., H], float32."""
        raise NotImplementedError

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """The token half of the layer's input, [.., H]. It depends on the token only: once is enough for all steps."""
        raise NotImplementedError

    def enter(self, embedded: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What q, k and v are made of, and the residual stream, float32 [.., H]."""
        raise NotImplementedError

    def logits(self, a: torch.Tensor) -> torch.Tensor:
        """float32 [.., Vd]."""
        raise NotImplementedError

    # The layer

    def randomise(self, random: torch.Generator) -> None:
        """The first values of all matrices of the layer and of fc, which every kind has."""
        for matrix in (self.fc, self.qkv, self.o, self.gate_up, self.down):
            matrix.copy_(INITIAL_STD * torch.randn(matrix.shape, generator=random))

    def rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, weight, self.shape.eps)

    def rotation(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and signed sin, float32 [.., 1, head_dim]: rotated x = x cos + roll(x, half) sin."""
        half = self.shape.head_dim // 2
        exponents = torch.arange(half, device=positions.device, dtype=torch.float64) / half
        angles = positions.unsqueeze(-1).double() * self.shape.rope_theta**-exponents
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), -1).float().unsqueeze(-2), torch.cat((-sin, sin), -1).float().unsqueeze(-2)

    def project(self, z: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor):
        """q [.., heads, D], k and v [.., kv_heads, D]; q and k rotated."""
        shape = self.shape
        row = F.linear(z, self.qkv).unflatten(-1, (-1, shape.head_dim))
        both, v = row.split((shape.heads + shape.kv_heads, shape.kv_heads), dim=-2)
        turned = both * cos + both.roll(shape.head_dim // 2, -1) * sin
        return *turned.to(v.dtype).split((shape.heads, shape.kv_heads), dim=-2), v

    def of_all_heads(self, part: torch.Tensor) -> torch.Tensor:
        """[.., kv_heads, D] -> [.., heads, D]: query head h uses the key head h // (heads / kv_heads)."""
        return part.repeat_interleave(self.shape.heads // self.shape.kv_heads, dim=-2)

    def finish(self, residual: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """attended [.., heads * D] -> a [.., H], float32: the rest of the layer."""
        r = residual + F.linear(attended, self.o)
        gate, up = F.linear(self.rms(r, self.post_attention_layernorm), self.gate_up).chunk(2, dim=-1)
        return r + F.linear(F.silu(gate) * up, self.down)

    def unrolled(self, tokens: torch.Tensor, features: torch.Tensor, steps: int, rows: torch.Tensor):
        """Yields a [N, H] of each step at the given rows, flat indices b * T + t, B * T for rows that only fill up.

        tokens int64 [B, T]; behind the end of the text any token stands. All rows have keys in step 0,
        because others see them; everything else is computed for the rows that were asked for."""
        batch, length = tokens.shape
        kept = Rows(rows, batch, length)
        embedded = self.cast(self.embed(F.pad(tokens, (0, steps))))
        cos, sin = self.rotation(torch.arange(length + steps, device=tokens.device))
        z, residual = self.enter(embedded[:, 1 : length + 1], self.fuse(features))
        q, k, v = self.project(z, cos[:length], sin[:length])
        keys, values = [self.of_all_heads(k)], [self.of_all_heads(v)]
        attended = causal_attention(q, keys[0], values[0])
        a = self.finish(kept.gather(residual), kept.gather(attended).flatten(-2))
        yield a
        index = rows.clamp(max=batch * length - 1)
        position, sequence = index % length, index // length
        for step in range(1, steps):
            token = embedded.flatten(0, 1).index_select(0, sequence * (length + steps) + position + 1 + step)
            z, residual = self.enter(token, a)
            q, k, v = self.project(z, cos[position + step], sin[position + step])
            keys.append(self.of_all_heads(k))
            values.append(self.of_all_heads(v))
            a = self.finish(residual, step_attention(q, keys, values, kept).flatten(-2))
            yield a

    def cast(self, x: torch.Tensor) -> torch.Tensor:
        """To the dtype that products have here."""
        kind = x.device.type
        return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x
