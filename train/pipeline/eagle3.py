"""The EAGLE-3 head as it is trained: one decoder layer over the teacher's taps, unrolled over its own output.

With tokens x, features f (the taps side by side) and positions t, all indices of one sequence at once:

    step 0   g_t = Wfc f_t,          token x_{t+1},   rope position t
    step s   g_t = a_t of step s-1,  token x_{t+1+s}, rope position t+s         a: the layer's output, before the norm

Tokens are those of the text, so step s is what the head does s levels below a root that was right so far. Its query at
t sees the keys of step 0 up to t (the text before the root: features of the teacher) and its own keys of steps 1..s
(the path below it). The logits of step s at t stand for x_{t+2+s}, and the label is the teacher's distribution at
position t+1+s.

Precision: parameters, residual stream, norms, softmax and loss in float32, matrix products under autocast.

Every channel of the features is divided by its size on the first batch before Wfc (`feature_scale`): taps of a teacher,
and channels of a tap, differ in size by orders of magnitude, and one learning rate has to fit all. Exporting folds it
into Wfc.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from .config import Config, InputError
from .labels import Labels, Outcome, output_loss
from .step_attention import Rows, causal_attention, step_attention
from .teacher import Teacher

INITIAL_STD = 0.02
PASSED_THROUGH = 0.3  # of the highest tap: as it is, it would begin with confident guesses of the token before


@dataclass(frozen=True)
class Shape:
    """The sizes of a head. heads * head_dim need not be hidden."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    taps: tuple[int, ...]
    rope_theta: float
    eps: float
    teacher_hidden: int
    teacher_layers: int
    teacher_vocabulary: int


def shape_of(config: Config, teacher: Teacher) -> Shape:
    """What the configuration says, the teacher's sizes where it says 0."""
    section = config.eagle3
    heads = section.heads or teacher.heads
    hidden = section.hidden or teacher.hidden
    if hidden != teacher.hidden:
        raise InputError(
            f"eagle3.hidden: expected the teacher's {teacher.hidden} (the embedding is shared), got {hidden}"
        )
    if section.taps[-1] > teacher.layers:
        raise InputError(f"eagle3.taps: expected boundaries 0 to {teacher.layers}, got {section.taps}")
    kv_heads = section.kv_heads or teacher.kv_heads
    if heads % kv_heads:
        raise InputError(f"eagle3.kv_heads: expected a divisor of the {heads} heads, got {kv_heads}")
    return Shape(
        hidden=hidden,
        intermediate=section.intermediate or teacher.intermediate,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=teacher.head_dim,
        taps=tuple(section.taps),
        rope_theta=section.rope_theta,
        eps=teacher.eps,
        teacher_hidden=teacher.hidden,
        teacher_layers=teacher.layers,
        teacher_vocabulary=teacher.vocab,
    )


class Eagle3(nn.Module):
    """Parameters are float32. q, k, v and gate, up are one matrix each, so that a step is few products."""

    def __init__(self, shape: Shape, embedding: torch.Tensor, ids: torch.Tensor):
        super().__init__()
        self.shape = shape
        self.register_buffer("embedding", embedding, persistent=False)  # [V, H], the teacher's
        self.register_buffer("ids", ids, persistent=False)  # int64 [Vd] ascending ids of the teacher
        h, rows = shape.hidden, shape.heads * shape.head_dim
        self.feature_scale = nn.Buffer(torch.ones(len(shape.taps) * shape.teacher_hidden))
        self.fc = nn.Parameter(torch.empty(h, len(shape.taps) * shape.teacher_hidden))
        self.input_layernorm = nn.Parameter(torch.ones(h))
        self.hidden_norm = nn.Parameter(torch.ones(h))
        self.qkv = nn.Parameter(torch.empty(rows + 2 * shape.kv_heads * shape.head_dim, 2 * h))
        self.o = nn.Parameter(torch.empty(h, rows))
        self.post_attention_layernorm = nn.Parameter(torch.ones(h))
        self.gate_up = nn.Parameter(torch.empty(2 * shape.intermediate, h))
        self.down = nn.Parameter(torch.empty(h, shape.intermediate))
        self.norm = nn.Parameter(torch.ones(h))
        self.lm_head = nn.Parameter(torch.empty(len(ids), h))

    def initialise(self, teacher: Teacher, features: torch.Tensor, seed: int) -> None:
        """Starts from what the teacher knows: its output rows and final norm. And Wfc passes some of the
        highest tap through, so that the residual stream speaks the language of that output from the first step on.

        features [rows, taps * Ht] of some answer positions set the scales. The first position of a text is none of
        them: many teachers park values a hundred times the usual there."""
        random = torch.Generator().manual_seed(seed)
        sizes = features.float().square().mean(0).sqrt().clamp(min=1e-6)
        highest = sizes[-self.shape.teacher_hidden :]
        with torch.no_grad():
            for matrix in (self.fc, self.qkv, self.o, self.gate_up, self.down):
                matrix.copy_(INITIAL_STD * torch.randn(matrix.shape, generator=random))
            straight = torch.diag(highest / highest.square().mean().sqrt())
            self.fc[:, -self.shape.teacher_hidden :] += PASSED_THROUGH * straight
            self.lm_head.copy_(teacher.lm_head_weight.index_select(0, self.ids).float())
            self.norm.copy_(teacher.final_norm.weight)
            self.feature_scale.copy_(1 / sizes)

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """[.., taps * Ht] -> g [.., H], float32."""
        return F.linear(features * self.feature_scale, self.fc).float()

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """The token half of the layer's input, [.., H]. It depends on the token only: once is enough for all steps."""
        return self.rms(F.embedding(tokens, self.embedding).float(), self.input_layernorm)

    def rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, weight, self.shape.eps)

    def rotation(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and signed sin, float32 [.., 1, head_dim]: rotated x = x cos + roll(x, half) sin."""
        half = self.shape.head_dim // 2
        exponents = torch.arange(half, device=positions.device, dtype=torch.float64) / half
        angles = positions.unsqueeze(-1).double() * self.shape.rope_theta**-exponents
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), -1).float().unsqueeze(-2), torch.cat((-sin, sin), -1).float().unsqueeze(-2)

    def project(self, embedded: torch.Tensor, g: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor):
        """q [.., heads, D], k and v [.., kv_heads, D]; q and k rotated."""
        shape = self.shape
        z = torch.cat((embedded, self.rms(g, self.hidden_norm).to(embedded.dtype)), dim=-1)
        row = F.linear(z, self.qkv).unflatten(-1, (-1, shape.head_dim))
        both, v = row.split((shape.heads + shape.kv_heads, shape.kv_heads), dim=-2)
        turned = both * cos + both.roll(shape.head_dim // 2, -1) * sin
        return *turned.to(v.dtype).split((shape.heads, shape.kv_heads), dim=-2), v

    def of_all_heads(self, part: torch.Tensor) -> torch.Tensor:
        """[.., kv_heads, D] -> [.., heads, D]: query head h uses the key head h // (heads / kv_heads)."""
        return part.repeat_interleave(self.shape.heads // self.shape.kv_heads, dim=-2)

    def finish(self, g: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """attended [.., heads * D] -> a [.., H], float32: the rest of the layer."""
        r = g + F.linear(attended, self.o)
        gate, up = F.linear(self.rms(r, self.post_attention_layernorm), self.gate_up).chunk(2, dim=-1)
        return r + F.linear(F.silu(gate) * up, self.down)

    def logits(self, a: torch.Tensor) -> torch.Tensor:
        return F.linear(self.rms(a, self.norm), self.lm_head).float()

    def unrolled(self, tokens: torch.Tensor, features: torch.Tensor, steps: int, rows: torch.Tensor):
        """Yields a [N, H] of each step at the given rows, flat indices b * T + t, B * T for rows that only fill up.

        tokens int64 [B, T]; behind the end of the text any token stands. All rows have keys in step 0,
        because others see them; everything else is computed for the rows that were asked for."""
        batch, length = tokens.shape
        kept = Rows(rows, batch, length)
        embedded = self.cast(self.embed(F.pad(tokens, (0, steps))))
        cos, sin = self.rotation(torch.arange(length + steps, device=tokens.device))
        g = self.fuse(features)
        q, k, v = self.project(embedded[:, 1 : length + 1], g, cos[:length], sin[:length])
        keys, values = [self.of_all_heads(k)], [self.of_all_heads(v)]
        attended = causal_attention(q, keys[0], values[0])
        a = self.finish(kept.gather(g), kept.gather(attended).flatten(-2))
        yield a
        index = rows.clamp(max=batch * length - 1)
        position, sequence = index % length, index // length
        for step in range(1, steps):
            token = embedded.flatten(0, 1).index_select(0, sequence * (length + steps) + position + 1 + step)
            q, k, v = self.project(token, a, cos[position + step], sin[position + step])
            keys.append(self.of_all_heads(k))
            values.append(self.of_all_heads(v))
            a = self.finish(a, step_attention(q, keys, values, kept).flatten(-2))
            yield a

    def cast(self, x: torch.Tensor) -> torch.Tensor:
        """To the dtype that products have here."""
        kind = x.device.type
        return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x

    def forward(self, tokens: torch.Tensor, features: torch.Tensor, labels: Labels, decay: float) -> Outcome:
        outcome = Outcome()
        for step, a in enumerate(self.unrolled(tokens, features, labels.steps, labels.roots)):
            x = self.rms(a.index_select(0, labels.places[step]), self.norm)
            loss, best = output_loss(x, self.lm_head, labels, step)
            outcome.add(loss, decay**step, labels.accuracy(self.ids[best], step))
        return outcome
