"""Where a head is taught, and what: the labels of a batch, shared by all kinds of heads.

A label is a position p of the batch whose next token x_{p+1} the teacher wrote; it holds the teacher's distribution at
p. Step s of an EAGLE head (and head s of Medusa) predicts that token from index t = p - 1 - s, so all steps share
one table of probabilities, and only these rows ever meet an output matrix: prompts and padding cost none of the
largest products.

At run time drafting begins below a root that the teacher wrote. The rows t in front of such roots x_{t+1} are those a
head is taught at; labels whose step would begin elsewhere do not count in it.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from .soft_loss import soft_cross_entropy
from .teacher import Teacher

ROUND_ROWS = 512  # numbers of rows are rounded up to this, so that the memory of few shapes is reused
TEACHER_ELEMENTS = 1 << 28  # of float32 logits at a time: 1 GiB


@dataclass
class Labels:
    roots: torch.Tensor  # int64 [R]: flat indices b * T + t in front of roots; filled up with B * T
    places: torch.Tensor  # int64 [steps, N]: which of these rows predicts label n in each step; 0 where none does
    shares: torch.Tensor  # float32 [steps, N]: the weight of a label in the mean of a step; 0 where it does not count
    target: torch.Tensor  # [N, vocabulary]: the teacher's probabilities
    mass: torch.Tensor  # float32 [N]: their sums
    best: torch.Tensor  # int64 [N]: the teacher's choice among all its tokens

    @property
    def steps(self) -> int:
        return len(self.shares)

    def accuracy(self, chosen: torch.Tensor, step: int) -> torch.Tensor:
        """How often `chosen`, ids of the teacher, are its choices."""
        return ((chosen == self.best) * self.shares[step]).sum()


@dataclass
class Outcome:
    """Of a batch, step by step; tensors stay on the device until someone prints them."""

    loss: torch.Tensor | float = 0.0  # the weighted sum, with gradients
    losses: list[torch.Tensor] = field(default_factory=list)
    accuracies: list[torch.Tensor] = field(default_factory=list)

    def add(self, loss: torch.Tensor, weight: float, accuracy: torch.Tensor) -> None:
        self.loss = self.loss + weight * loss
        self.losses.append(loss.detach())
        self.accuracies.append(accuracy)


def label_rows(answer: torch.Tensor, steps: int) -> dict[str, torch.Tensor]:
    """From answer bool [B, T]: rows int64 [N], flat positions of the labels, and roots, places and shares of Labels. On
    the CPU: finding rows on a GPU would stall it."""
    before = F.pad(answer[:, 1:], (0, 1)).flatten()  # the next token was written by the teacher
    rows = before.nonzero().squeeze(1)
    number = before.cumsum(0) - 1  # of a flat index among the rows, where it is one
    size = -(-max(len(rows), 1) // ROUND_ROWS) * ROUND_ROWS
    places, counts = torch.zeros(steps, size, dtype=torch.int64), torch.zeros(steps, size)
    for step in range(steps):
        index = (rows - 1 - step).clamp(min=0)
        inside = before[index] & (rows % answer.shape[1] > step)
        places[step, : len(rows)] = torch.where(inside, number[index], 0)
        counts[step, : len(rows)] = inside.float()
    roots = F.pad(rows, (0, size - len(rows)), value=answer.numel())
    shares = counts / counts.sum(-1, keepdim=True).clamp(min=1)
    return {"rows": F.pad(rows, (0, size - len(rows))), "roots": roots, "places": places, "shares": shares}


def make_labels(
    teacher: Teacher, last: torch.Tensor, batch: dict[str, torch.Tensor], ids: torch.Tensor | None
) -> Labels:
    """last [B, T, H] is the teacher's residual stream, batch holds what label_rows() gave, ids int64 [Vd] is the
    vocabulary of the head, None for the teacher's.

    Probabilities are formed over all tokens and then restricted: what the teacher means outside is missing from
    mass."""
    rows = batch["rows"]
    vocabulary = teacher.vocab if ids is None else len(ids)
    target = torch.empty(len(rows), vocabulary, dtype=torch.float16, device=last.device)
    mass = torch.empty(len(rows), dtype=torch.float32, device=last.device)
    best = torch.empty(len(rows), dtype=torch.int64, device=last.device)
    chunk = max(TEACHER_ELEMENTS // teacher.vocab, 1)
    for begin in range(0, len(rows), chunk):
        part = slice(begin, begin + chunk)
        logits = teacher.logits(last.flatten(0, 1).index_select(0, rows[part]))
        best[part] = logits.argmax(-1)
        probabilities = torch.softmax(logits, dim=-1)
        restricted = probabilities if ids is None else probabilities.index_select(1, ids)
        target[part], mass[part] = restricted, restricted.sum(-1)
    return Labels(batch["roots"], batch["places"], batch["shares"], target, mass, best)


def output_loss(x: torch.Tensor, weight: torch.Tensor, labels: Labels, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The soft loss of a step, in the dtype that products have here: autocast does not reach into our own function."""
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    with torch.autocast(kind, enabled=False):
        return soft_cross_entropy(x.to(dtype), weight.to(dtype), labels.target, labels.mass, labels.shares[step])
