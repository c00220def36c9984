"""The EAGLE-3 head as it is trained: a draft layer over the teacher's taps, and an output matrix of its own.

    g = Wfc f                                             f: the taps side by side
    z = [N(E[y]; input_layernorm); N(g; hidden_norm)]     what q, k and v read; the residual stream starts from g
    logits = Wlm N(a; norm)                               over the draft vocabulary

Every channel of the features is divided by its size on the first batch before Wfc (`feature_scale`): taps of a teacher,
and channels of a tap, differ in size by orders of magnitude, and one learning rate has to fit all. Exporting folds it
into Wfc.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from .config import Config, InputError
from .draft_layer import PASSED_THROUGH, DraftLayer, LayerShape
from .labels import Labels, Outcome, output_loss
from .teacher import Teacher


@dataclass(frozen=True)
class Shape(LayerShape):
    taps: tuple[int, ...]
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


class Eagle3(DraftLayer):
    def __init__(self, shape: Shape, embedding: torch.Tensor, ids: torch.Tensor):
        super().__init__(shape, embedding, ids)
        h = shape.hidden
        self.feature_scale = nn.Buffer(torch.ones(len(shape.taps) * shape.teacher_hidden))
        self.fc = nn.Parameter(torch.empty(h, len(shape.taps) * shape.teacher_hidden))
        self.input_layernorm = nn.Parameter(torch.ones(h))
        self.hidden_norm = nn.Parameter(torch.ones(h))
        self.add_layer(2 * h)
        self.norm = nn.Parameter(torch.ones(h))
        self.lm_head = nn.Parameter(torch.empty(len(ids), h))

    def initialise(self, teacher: Teacher, features: torch.Tensor, seed: int) -> None:
        """Starts from what the teacher knows: its output rows and final norm. And Wfc passes some of the
        highest tap through, so that the residual stream speaks the language of that output from the first step on.

        features [rows, taps * Ht] of some answer positions set the scales. The first position of a text is none of
        them: many teachers park values a hundred times the usual there."""
        sizes = features.float().square().mean(0).sqrt().clamp(min=1e-6)
        highest = sizes[-self.shape.teacher_hidden :]
        with torch.no_grad():
            self.randomise(torch.Generator().manual_seed(seed))
            straight = torch.diag(highest / highest.square().mean().sqrt())
            self.fc[:, -self.shape.teacher_hidden :] += PASSED_THROUGH * straight
            self.lm_head.copy_(teacher.lm_head_weight.index_select(0, self.ids).float())
            self.norm.copy_(teacher.final_norm.weight)
            self.feature_scale.copy_(1 / sizes)

    def features_of(self, teacher: Teacher, tokens: torch.Tensor) -> torch.Tensor:
        return teacher.features(tokens, self.shape.taps)[1]

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        return F.linear(features * self.feature_scale, self.fc).float()

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.rms(F.embedding(tokens, self.embedding).float(), self.input_layernorm)

    def enter(self, embedded: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat((embedded, self.rms(g, self.hidden_norm).to(embedded.dtype)), dim=-1), g

    def logits(self, a: torch.Tensor) -> torch.Tensor:
        return F.linear(self.rms(a, self.norm), self.lm_head).float()

    def forward(self, tokens: torch.Tensor, features: torch.Tensor, labels: Labels, decay: float) -> Outcome:
        outcome = Outcome()
        for step, a in enumerate(self.unrolled(tokens, features, labels.steps, labels.roots)):
            x = self.rms(a.index_select(0, labels.places[step]), self.norm)
            loss, best = output_loss(x, self.lm_head, labels, step)
            outcome.add(loss, decay**step, labels.accuracy(self.ids[best], step))
        return outcome
