"""Medusa heads as they are trained: residual blocks on the teacher's hidden state, the teacher's own output matrix.

Head k reads the hidden state h_t after the final norm, exactly the vector the teacher's output matrix reads, and
predicts x_{t+2+k}:

    x = h;  x = x + silu(W[k,r] x + b[k,r]) for each block r;  logits = U x           U: the teacher's, frozen
"""

import torch
import torch.nn.functional as F
from torch import nn

from .labels import Labels, Outcome, output_loss


INITIAL_STD = 0.005  # the hidden state has entries of about 2: the blocks begin as a small disturbance


class Medusa(nn.Module):
    """Parameters are float32: weight [heads, blocks, H, H] and bias [heads, blocks, H]."""

    def __init__(self, heads: int, blocks: int, output: torch.Tensor):
        super().__init__()
        hidden = output.shape[1]
        self.register_buffer("output", output, persistent=False)  # [V, H]
        self.weight = nn.Parameter(torch.zeros(heads, blocks, hidden, hidden))
        self.bias = nn.Parameter(torch.zeros(heads, blocks, hidden))

    def initialise(self, seed: int) -> None:
        """Small random blocks. Zeros would give all blocks of a head the same gradient, and they would stay alike."""
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.weight.copy_(INITIAL_STD * torch.randn(self.weight.shape, generator=random))

    @property
    def heads(self) -> int:
        return len(self.weight)

    @property
    def blocks(self) -> int:
        return self.weight.shape[1]

    def head(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """[.., H] -> what head k hands to the output matrix. The residual stays float32."""
        for weight, bias in zip(self.weight[k], self.bias[k]):
            x = x + F.silu(F.linear(x, weight, bias).float())
        return x

    def forward(self, hidden: torch.Tensor, labels: Labels, decay: float) -> Outcome:
        """hidden float32 [B, T, H] after the final norm."""
        places = labels.roots.clamp(max=hidden.shape[0] * hidden.shape[1] - 1)  # those that fill up may be any row
        rows, outcome = hidden.flatten(0, 1).index_select(0, places), Outcome()
        for k in range(self.heads):
            x = self.head(k, rows.index_select(0, labels.places[k]))
            loss, best = output_loss(x, self.output, labels, k)
            outcome.add(loss, decay**k, labels.accuracy(best, k))
        return outcome
