"""Growing EAGLE trees below many roots at once, as the engine does below one, to see where the true text ends up.

Terms: a tree has M nodes with the root, at most `levels` levels below it, and K nodes of a level get K children each.
Growth is that of the engine (docs/trees.md, dynamic): the candidates of a level are the K best continuations of each
of the K best candidates of the level above; the tree is the M - 1 best candidates of all levels by the product of their
probabilities, ties to the earlier one.

The levels of a shallow tree are the first levels of a deep one, and a tree with fewer nodes is the beginning of a
larger one. So one growth says everything about all M and all smaller numbers of levels: for each node of the true
path, how many candidates come before it; and the same for the best guess below each of them, because the teacher
judges the guesses of a depth only where the tree has any.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .draft_layer import DraftLayer

ABSENT = 1 << 30  # the place of a node that was no candidate
ROOTS_AT_ONCE = 256


class Prefix:
    """Draft rows of a whole text: keys and values of step 0, and what each row feeds back."""

    def __init__(self, model: DraftLayer, tokens: torch.Tensor, features: torch.Tensor):
        """tokens int64 [T], features [T, width]. Row t belongs to the root x_{t+1}; the last row has none."""
        positions = torch.arange(len(tokens), device=tokens.device)
        z, residual = model.enter(model.embed(tokens.roll(-1)), model.fuse(features))
        q, k, v = model.project(z, *model.rotation(positions))
        group = model.shape.heads // model.shape.kv_heads
        self.keys, self.values = (part.repeat_interleave(group, dim=1) for part in (k, v))  # [T, heads, D]
        scores = torch.einsum("thd,jhd->htj", q, self.keys) / model.shape.head_dim**0.5
        scores = scores.masked_fill(positions[None, :] > positions[:, None], -torch.inf)
        attended = torch.einsum("htj,jhd->thd", scores.softmax(-1), self.values)
        self.feedback = model.finish(residual, attended.flatten(-2))  # [T, H]


@dataclass
class Places:
    """int64 [R, levels, levels]: entry [r, l, d] is a node's place among the candidates of a tree of l + 1 levels below
    root r, 0 the best; ABSENT where it is none."""

    true: torch.Tensor  # of the true node of depth d + 1
    best: torch.Tensor  # of the best node of depth d + 1 below the true one above it

    def accepted(self, nodes: list[int]) -> torch.Tensor:
        """int64 [len(nodes), R, levels]: how many drafted tokens trees of M nodes and 1, 2, ... levels get right. Places
        of deeper nodes than a tree has levels are ABSENT, so a path ends there."""
        return (self.true < self.drafted(nodes)).long().cumprod(-1).sum(-1)

    def judged(self, nodes: list[int]) -> torch.Tensor:
        """The same shape: how many depths the teacher judges, those accepted and the next if the tree has guesses there."""
        accepted = self.accepted(nodes)
        guessed = F.pad((self.best < self.drafted(nodes)).long(), (0, 1))
        return accepted + guessed.gather(-1, accepted.unsqueeze(-1)).squeeze(-1)

    def drafted(self, nodes: list[int]) -> torch.Tensor:
        return torch.tensor(nodes, device=self.true.device)[:, None, None, None] - 1


def true_places(
    model: DraftLayer, prefix: Prefix, tokens: torch.Tensor, roots: torch.Tensor, width: int, levels: int
) -> Places:
    """roots int64 [R]: positions of root tokens, at least 1; R is at least 1."""
    parts = [places_of(model, prefix, tokens, part, width, levels) for part in roots.split(ROOTS_AT_ONCE)]
    return Places(torch.cat([part.true for part in parts]), torch.cat([part.best for part in parts]))


def places_of(model, prefix, tokens, roots, width, levels) -> Places:
    growth = Growth(model, prefix, tokens, roots, width)
    for _ in range(levels - 1):
        growth.expand()
    return Places(
        growth.places(growth.true_scores, growth.true_flats), growth.places(growth.best_scores, growth.best_flats)
    )


class Growth:
    """The trees below some roots of one text, level by level."""

    def __init__(self, model: DraftLayer, prefix: Prefix, tokens: torch.Tensor, roots: torch.Tensor, width: int):
        self.model, self.prefix, self.tokens, self.roots, self.width = model, prefix, tokens, roots, width
        seed = prefix.feedback[roots - 1]  # [R, H]
        scores, drafts = self.best_of(seed)
        self.scores = [scores]  # of all candidates, level by level, [R, candidates of the level]
        self.true_scores, self.true_flats = [], []  # [R] each level; NaN where the true node is no candidate
        self.best_scores, self.best_flats = [], []  # the same of the best node below the true one above
        self.true_parent = torch.zeros_like(roots)  # its parent's place in the frontier, -1: not there
        chosen = model.ids[drafts]
        self.note_true(chosen.unsqueeze(1), scores.unsqueeze(1))
        self.true_parent = self.found_in(torch.arange(width, device=roots.device).expand(len(roots), -1))
        self.frontier_tokens, self.frontier_scores = chosen, scores  # [R, K]
        self.feedback = seed.unsqueeze(1).expand(-1, width, -1)  # [R, K, H]: what the parent's row fed back
        self.lineage = torch.empty(len(roots), width, 0, dtype=torch.int64, device=roots.device)  # [R, K, levels above]
        self.keys, self.values = [], []  # of the frontier of each level, [R, K, heads, D]

    def best_of(self, a: torch.Tensor):
        """Log-probabilities of the K best tokens of each row, and their draft ids."""
        logits = self.model.logits(a)
        best = logits.topk(self.width, dim=-1)
        return best.values - logits.logsumexp(-1, keepdim=True), best.indices

    def note_true(self, children: torch.Tensor, scores: torch.Tensor) -> None:
        """children [R, parents, K] tokens: finds the true one below the true parent."""
        depth = len(self.true_scores) + 1
        place = self.roots + depth
        wanted = self.tokens[place.clamp(max=len(self.tokens) - 1)]
        parent = self.true_parent.clamp(min=0)
        rows = torch.arange(len(self.roots), device=self.roots.device)
        matches = children[rows, parent] == wanted[:, None]
        inside = (self.true_parent >= 0) & (place < len(self.tokens))
        there = matches.any(-1) & inside
        rank = matches.int().argmax(-1)
        self.true_scores.append(torch.where(there, scores[rows, parent, rank], torch.nan))
        self.true_flats.append(torch.where(there, parent * self.width + rank, -1))
        self.best_scores.append(torch.where(inside, scores[rows, parent, 0], torch.nan))
        self.best_flats.append(torch.where(inside, parent * self.width, -1))

    def found_in(self, flats: torch.Tensor) -> torch.Tensor:
        """Where the true node of the last level stands in a frontier given as flat ids [R, K]; -1 where it does not."""
        matches = flats == self.true_flats[-1][:, None]
        return torch.where(matches.any(-1), matches.int().argmax(-1), -1)

    def expand(self) -> None:
        """One draft pass: children of the frontier, and the next frontier."""
        a = self.forward()
        scores, drafts = self.best_of(a)  # [R, K, K]
        scores = self.frontier_scores.unsqueeze(-1) + scores
        children = self.model.ids[drafts]
        self.note_true(children, scores)
        self.scores.append(scores.flatten(1))
        order = scores.flatten(1).sort(dim=-1, descending=True, stable=True)
        flats = order.indices[:, : self.width]
        parents = flats // self.width
        self.true_parent = self.found_in(flats)
        self.frontier_scores = order.values[:, : self.width]
        self.frontier_tokens = children.flatten(1).gather(1, flats)
        self.feedback = a.gather(1, parents.unsqueeze(-1).expand(-1, -1, a.shape[-1]))
        above = self.lineage.gather(1, parents.unsqueeze(-1).expand(-1, -1, self.lineage.shape[-1]))
        self.lineage = torch.cat((above, parents.unsqueeze(-1)), dim=-1)

    def forward(self) -> torch.Tensor:
        """a [R, K, H] of the frontier's rows: each sees the text up to its root's row, its path, and itself."""
        model, level = self.model, len(self.keys)
        cos, sin = model.rotation(self.roots + level)
        z, residual = model.enter(model.embed(self.frontier_tokens), self.feedback)
        q, k, v = model.project(z, cos.unsqueeze(1), sin.unsqueeze(1))
        group = model.shape.heads // model.shape.kv_heads
        self.keys.append(k.repeat_interleave(group, dim=2))
        self.values.append(v.repeat_interleave(group, dim=2))
        length = int(self.roots.max())
        text = torch.einsum("rkhd,jhd->rkhj", q, self.prefix.keys[:length])
        seen = torch.arange(length, device=q.device)[None, :] < self.roots[:, None]
        text = text.masked_fill(~seen[:, None, None, :], -torch.inf)
        path_keys, path_values = self.path(self.keys), self.path(self.values)  # [R, K, levels, heads, D]
        path = torch.einsum("rkhd,rklhd->rkhl", q, path_keys)
        shares = (torch.cat((text, path), dim=-1) / model.shape.head_dim**0.5).softmax(-1)
        attended = torch.einsum("rkhj,jhd->rkhd", shares[..., :length], self.prefix.values[:length])
        attended = attended + torch.einsum("rkhl,rklhd->rkhd", shares[..., length:], path_values)
        return model.finish(residual, attended.flatten(-2))

    def path(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Of each frontier node: the entries of its ancestors and its own, root first."""
        shape = parts[0].shape[2:]
        above = [
            part.gather(1, self.lineage[:, :, i, None, None].expand(-1, -1, *shape))
            for i, part in enumerate(parts[:-1])
        ]
        return torch.stack((*above, parts[-1]), dim=2)

    def places(self, node_scores: list[torch.Tensor], node_flats: list[torch.Tensor]) -> torch.Tensor:
        """Of one node a level, given by its score and its flat id."""
        levels = len(self.scores)
        result = torch.full((len(self.roots), levels, levels), ABSENT, device=self.roots.device)
        for depth in range(levels):
            score = node_scores[depth][:, None]
            before = []
            for level, scores in enumerate(self.scores):
                flats = torch.arange(scores.shape[1], device=scores.device)[None, :]
                earlier = (
                    flats < node_flats[depth][:, None]
                    if level == depth
                    else torch.tensor(level < depth, device=scores.device)
                )
                before.append(((scores > score) | ((scores == score) & earlier)).sum(-1))
            counts = torch.stack(before, dim=1).cumsum(1)
            counts[:, :depth] = ABSENT
            result[:, :, depth] = torch.where(score.isnan(), ABSENT, counts)
        return result
