"""The EAGLE-2 head as it is trained: a draft layer over the vector that the teacher's output matrix reads.

    f = the teacher's state behind its final norm; a is trained to be the f of the next position
    x = Wfc [E[y]; g] + bfc         g: f, or a of the row above; raw embedding, no norm
    q, k and v read x, and the residual stream starts from x
    logits = Wlm a                  the teacher's output matrix, frozen, over its whole vocabulary; no norm

EAGLE-1 and HASS heads are the same network. The loss of a step, a mean over its labels with f and p the teacher's
feature and probabilities there (arXiv 2401.15077; the last term is HASS's, 2408.15766):

    SmoothL1(a, f) + token_weight CE(p, softmax(Wlm a)) + best_weight CE(the best_tokens largest of p, softmax(Wlm a))

Every channel of [E[y]; g] is divided by its size on the first batch before Wfc, as EAGLE-3 does it with its features;
exporting folds that into Wfc.
"""

import torch
import torch.nn.functional as F
from torch import nn

from .config import Config, InputError
from .draft_layer import PASSED_THROUGH, DraftLayer, LayerShape
from .labels import Labels, Outcome, output_loss
from .teacher import Teacher

NOISE_LENGTH = 512  # texts of this length get noise of the spread that was asked for, longer ones less


def shape_of(config: Config, teacher: Teacher) -> LayerShape:
    """What the configuration says, the teacher's sizes where it says 0. Readers of these files know no head_dim: it is
    hidden / heads, whatever the teacher's is."""
    section = config.eagle2
    heads, kv_heads = section.heads or teacher.heads, section.kv_heads or teacher.kv_heads
    if teacher.hidden % (2 * heads):
        raise InputError(
            f"eagle2.heads: expected heads of an even size side by side in {teacher.hidden} channels, got {heads} heads"
        )
    if heads % kv_heads:
        raise InputError(f"eagle2.kv_heads: expected a divisor of the {heads} heads, got {kv_heads}")
    return LayerShape(
        hidden=teacher.hidden,
        intermediate=section.intermediate or teacher.intermediate,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=teacher.hidden // heads,
        rope_theta=section.rope_theta,
        eps=teacher.eps,
    )


class Eagle2(DraftLayer):
    def __init__(self, shape: LayerShape, embedding: torch.Tensor, output: torch.Tensor):
        super().__init__(shape, embedding, torch.arange(len(output)))
        self.register_buffer("lm_head", output, persistent=False)  # [V, H], the teacher's
        self.input_scale = nn.Buffer(torch.ones(2 * shape.hidden))
        self.fc = nn.Parameter(torch.empty(shape.hidden, 2 * shape.hidden))
        self.fc_bias = nn.Parameter(torch.zeros(shape.hidden))
        self.add_layer(shape.hidden)

    def initialise(self, tokens: torch.Tensor, features: torch.Tensor, seed: int) -> None:
        """Wfc passes some of the feature through, as EAGLE-3 begins. tokens int64 [rows] and features [rows, H] of some
        answer positions set the scales."""
        inputs = torch.cat((F.embedding(tokens, self.embedding).float(), features), dim=-1)
        sizes = inputs.square().mean(0).sqrt().clamp(min=1e-6)
        h = self.shape.hidden
        with torch.no_grad():
            self.randomise(torch.Generator().manual_seed(seed))
            self.fc[:, h:] += PASSED_THROUGH * torch.diag(sizes[h:])
            self.input_scale.copy_(1 / sizes)

    def features_of(self, teacher: Teacher, tokens: torch.Tensor) -> torch.Tensor:
        return teacher.final_norm(teacher.features(tokens, ())[0])

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        return features

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, self.embedding).float() * self.input_scale[: self.shape.hidden]

    def enter(self, embedded: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scaled = (g * self.input_scale[self.shape.hidden :]).to(embedded.dtype)
        x = F.linear(torch.cat((embedded, scaled), dim=-1), self.fc, self.fc_bias).float()
        return x, x

    def logits(self, a: torch.Tensor) -> torch.Tensor:
        return F.linear(a, self.lm_head.float())

    def forward(
        self,
        tokens: torch.Tensor,
        features: torch.Tensor,
        labels: Labels,
        wanted: torch.Tensor,
        decay: float,
        token_weight: float,
    ) -> Outcome:
        """wanted [N, H]: the teacher's features where the labels are."""
        outcome = Outcome()
        for step, a in enumerate(self.unrolled(tokens, features, labels.steps, labels.roots)):
            a = a.index_select(0, labels.places[step])
            distance = F.smooth_l1_loss(a, wanted, reduction="none").mean(-1)
            of_tokens, best = output_loss(a, self.lm_head, labels, step)
            loss = (distance * labels.shares[step]).sum() + token_weight * of_tokens
            outcome.add(loss, decay**step, labels.accuracy(best, step))
        return outcome


def count_best_again(labels: Labels, tokens: int, weight: float) -> None:
    """HASS: the teacher's best tokens of every label count `weight` times more. Cross-entropy is linear in its targets,
    so that this costs no further product with the output matrix."""
    best = labels.target.topk(min(tokens, labels.target.shape[1]), dim=-1)
    labels.target.scatter_(1, best.indices, best.values * (1 + weight))
    labels.mass += weight * best.values.sum(-1, dtype=torch.float32)


def with_noise(features: torch.Tensor, valid: torch.Tensor, spread: float) -> torch.Tensor:
    """features [B, T, H] and noise as in the reference's training: uniform, less of it in longer texts; valid bool
    [B, T] says how long they are. The seed comes from the CPU's generator, whose state checkpoints hold, so that a run
    that was stopped goes on with the same noise on any device."""
    random = torch.Generator(features.device).manual_seed(int(torch.randint(1 << 62, ())))
    noise = torch.rand(features.shape, generator=random, device=features.device) - 0.5
    return features + noise * (spread * NOISE_LENGTH / valid.sum(1))[:, None, None]
