"""Cross-entropy against the teacher's probabilities, fused with the output matrix so that logits never outlive a chunk.

For rows x [N, H] and an output matrix W [V, H], with logits l = x W^T, targets p [N, V] (the teacher's probabilities
of the V tokens of this vocabulary) and mass m = sum_i p_i, which is below 1 where the teacher means tokens outside of
it:

    loss_n = -sum_i p_i log softmax(l)_i = m lse(l) - sum_i p_i l_i          d loss_n / d l = m softmax(l) - p

Probability outside the vocabulary is left out, not spread over the tokens inside: a row counts as much as it can be
right. The result is sum_n share_n loss_n; rows with share 0 do not count.

The gradient is formed in the forward pass while a chunk of logits is at hand, and overwrites it. On a GPU one kernel
does this in two reads of a row; it is compared with the plain version once, at the first call, and left alone if they
differ.
"""

import functools

import torch

CHUNK_ELEMENTS = 1 << 29  # of logits at a time: 1 GiB in bfloat16
KERNEL_BLOCK = 4096
TOLERANCE = 0.02  # of the kernel against the plain version, both rounding to bfloat16


def soft_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, mass: torch.Tensor, share: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss (a float32 scalar with gradients for x and weight), and the best token of every row, int64 [N].

    x [N, H] and weight [V, H] in one dtype, target [N, V] in any, mass and share float32 [N]."""
    return SoftCrossEntropy.apply(x, weight, target, mass, share)


class SoftCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, target, mass, share):
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        best = torch.empty(len(x), dtype=torch.int64, device=x.device)
        losses = torch.empty(len(x), dtype=torch.float32, device=x.device)
        gradient_x = torch.empty_like(x) if needs_x else None
        gradient_weight = torch.zeros(weight.shape, dtype=torch.float32, device=x.device) if needs_weight else None
        for begin in range(0, len(x), chunk_rows(weight)):
            part = slice(begin, begin + chunk_rows(weight))
            logits = x[part] @ weight.T
            losses[part], best[part] = to_gradient(logits, target[part], mass[part])
            if needs_x:
                gradient_x[part] = (logits @ weight) * share[part, None]
            if needs_weight:
                gradient_weight += logits.T @ (x[part] * share[part, None]).to(logits.dtype)
        ctx.save_for_backward(gradient_x, gradient_weight)
        ctx.weight_dtype = weight.dtype
        ctx.mark_non_differentiable(best)
        return (losses * share).sum(), best

    @staticmethod
    def backward(ctx, gradient, _):
        gradient_x, gradient_weight = ctx.saved_tensors
        if gradient_x is not None:
            gradient_x = (gradient_x * gradient).to(gradient_x.dtype)
        if gradient_weight is not None:
            gradient_weight = (gradient_weight * gradient).to(ctx.weight_dtype)
        return gradient_x, gradient_weight, None, None, None


def chunk_rows(weight: torch.Tensor) -> int:
    return max(CHUNK_ELEMENTS // weight.shape[0], 1)


def to_gradient(logits: torch.Tensor, target: torch.Tensor, mass: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Overwrites logits with mass * softmax(logits) - target; returns the losses and best tokens of the rows."""
    if logits.is_cuda and kernel_is_right(logits.device):
        return kernel_to_gradient(logits, target, mass)
    return plain_to_gradient(logits, target, mass)


def plain_to_gradient(logits, target, mass):
    values = logits.float()
    sums = torch.logsumexp(values, dim=-1)
    losses = mass * sums - (target * values).sum(-1)
    best = values.argmax(-1)
    logits.copy_(torch.exp(values - sums[:, None]) * mass[:, None] - target)
    return losses, best


def kernel_to_gradient(logits, target, mass):
    from .kernels import soft_gradient  # here, because PyTorch for the CPU comes without Triton

    losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    best = torch.empty(len(logits), dtype=torch.int32, device=logits.device)
    target, mass = target.contiguous(), mass.contiguous()
    arguments = logits, target, mass, losses, best, logits.shape[1]
    soft_gradient[(len(logits),)](*arguments, block=KERNEL_BLOCK, num_warps=8)
    return losses, best.long()


@functools.cache
def kernel_is_right(device: torch.device) -> bool:
    """One small comparison for each device of a run; whatever goes wrong, the plain version does the work."""
    try:
        random = torch.Generator(device).manual_seed(1)
        logits = (4 * torch.randn(64, 9001, device=device, generator=random)).bfloat16()
        target = torch.softmax(torch.randn(64, 9001, device=device, generator=random), -1).half()
        mass = target.float().sum(-1) * 0.9
        plain, fused = logits.clone(), logits.clone()
        expected, expected_best = plain_to_gradient(plain, target, mass)
        losses, best = kernel_to_gradient(fused, target, mass)
        close = torch.allclose(fused.float(), plain.float(), atol=TOLERANCE / 10, rtol=TOLERANCE)
        right = close and torch.allclose(losses, expected, rtol=1e-3) and torch.equal(best, expected_best)
        reason = "" if right else "other values"
    except Exception as error:  # any failure of a compiler here has the same remedy
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    print(f"loss kernel: {'in use' if not reason else 'not used, ' + reason}", flush=True)
    return not reason
