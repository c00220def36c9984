"""Answers that run into an exact loop: a small teacher often repeats itself until it is stopped. Loops are found while
generating, so that no time is spent on them, and cut afterwards, so that a head does not learn mainly to repeat."""

import numpy as np
import torch

LONGEST_PERIOD = 80
EXTRA_PERIODS = 2  # repetitions kept: repeating is something the head should see, but not for long
SHORTEST_RUN = 24  # repeated tokens below which it may be a table or a list
STOP_RUN = 48  # while generating, a loop has to be longer: an answer that is stopped cannot leave its loop
STOP_PERIODS = 3


def trimmed_length(answer: np.ndarray) -> int:
    """How much of an answer to keep: all, or up to EXTRA_PERIODS repetitions of the loop it ends in."""
    count = len(answer)
    window = answer[max(count - 1 - LONGEST_PERIOD, 0) : count - 1]
    for period in (len(window) - np.flatnonzero(window == answer[-1])[::-1]).tolist() if count else []:
        different = np.flatnonzero(answer[period:] != answer[:-period])
        run = count - period - (int(different[-1]) + 1 if len(different) else 0)
        if run >= max(EXTRA_PERIODS * period, SHORTEST_RUN):
            return count - run + EXTRA_PERIODS * period
    return count


def ends_in_loop(output: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
    """bool [B]: whether the first written[b] tokens of output[b] end in a loop that is worth stopping. Stays on the device."""
    span = max(STOP_RUN, STOP_PERIODS * LONGEST_PERIOD) + LONGEST_PERIOD
    places = written.unsqueeze(1) - span + torch.arange(span, device=output.device)
    tail = output.gather(1, places.clamp(min=0, max=output.shape[1] - 1))
    # What lies before the answer differs from everything, itself included.
    tail = torch.where(places >= 0, tail, -1 - torch.arange(span, device=output.device))
    looping = torch.zeros_like(written, dtype=torch.bool)
    for period in range(1, LONGEST_PERIOD + 1):
        run = max(STOP_RUN, STOP_PERIODS * period)
        looping |= (tail[:, -run:] == tail[:, -run - period : -period]).all(dim=1)
    return looping
