"""Batched generation with static shapes: many answers at once, each in a slot of its own.

A slot holds one sequence: its keys and values from position 0 on, its answer so far, whether it has finished. One decode
step feeds the last token of every slot; finished slots are refilled from the queue every few steps. On a GPU the step is
captured once as a CUDA graph and replayed; on a CPU the same function is called.

What a sequence says depends on its tokens and its key alone, not on its slot or its neighbours, as far as the rounding of a
batched product allows. Randomness is a hash of (key, number of the token).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from .config import InputError
from .loops import ends_in_loop
from .teacher import Teacher, causal_attention, window_mask

CHECK_EVERY = 16  # steps between looks at the finished flags: a look waits for the device
LOOP_CHECK_EVERY = 2  # every how many of these looks loops are looked for too
PREFILL_TOKENS = 32768  # padded tokens of one prefill
PREFILL_ROUND = 32
BUCKET = 256  # attention reads the cache up to a multiple of this
CANDIDATES = (
    64  # a sampled token is one of the most likely ones; a full sort would take longer than the rest of the step
)


@dataclass
class Request:
    """A prompt to be answered. `name` is handed back with the answer."""

    name: object
    tokens: np.ndarray  # int32
    greedy: bool
    key: int  # seed of this sequence, 0 <= key < 2^62


@dataclass
class Sampling:
    temperature: float
    top_p: float
    any_sampled: bool  # without, the step takes the argmax only


class Slots:
    """Everything a decode step changes, in tensors that never move: a captured step finds them again."""

    def __init__(self, teacher: Teacher, batch: int, capacity: int, max_new: int, device, dtype):
        shape = (teacher.layers, batch, capacity, teacher.kv_heads, teacher.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.token = torch.zeros(batch, device=device, dtype=torch.int64)  # the last one, not fed yet
        self.position = torch.zeros(batch, device=device, dtype=torch.int64)  # where it will stand
        self.output = torch.zeros((batch, max_new), device=device, dtype=torch.int64)
        self.written = torch.zeros(batch, device=device, dtype=torch.int64)
        self.finished = torch.ones(batch, device=device, dtype=torch.bool)
        self.greedy = torch.ones(batch, device=device, dtype=torch.bool)
        self.key = torch.zeros(batch, device=device, dtype=torch.int64)
        self.number = torch.arange(batch, device=device)
        self.batch, self.capacity, self.max_new = batch, capacity, max_new


class Generator:
    """Answers requests. One generator per round: its cache is as long as the longest sequence can get."""

    def __init__(self, teacher: Teacher, batch: int, longest_prompt: int, max_new: int, sampling: Sampling):
        capacity = -(-(longest_prompt + max_new) // BUCKET) * BUCKET
        if teacher.window and capacity > teacher.window:
            raise InputError(
                f"{teacher.name}: expected a window of at least {capacity} tokens to generate, got {teacher.window}"
            )
        self.teacher, self.sampling = teacher, sampling
        self.device, dtype = teacher.embedding.device, teacher.embedding.dtype
        self.slots = Slots(teacher, batch, capacity, max_new, self.device, dtype)
        self.eos = torch.tensor(teacher.eos_ids, device=self.device, dtype=torch.int64)
        self.attend = choose_attention(teacher, self.device, dtype)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None  # None: nothing is captured

    # What a caller needs

    @torch.no_grad()
    def answers(self, requests: list[Request]) -> Iterator[tuple[object, np.ndarray]]:
        """Yields (name, answer) as answers finish. Requests are taken in the given order, so neighbours of similar length are
        prefilled with little padding."""
        waiting, owners = list(reversed(requests)), [None] * self.slots.batch
        ends = np.zeros(self.slots.batch, np.int64)
        rounds, ready = 0, []
        while True:
            self.admit(waiting, owners, ends)
            busy = np.array([owner is not None for owner in owners])
            if busy.any():
                self.run_steps(ends, busy)
                rounds += 1
                if rounds % LOOP_CHECK_EVERY == 0:
                    self.stop_loops()
            yield from ready  # the device is busy with its next steps while the caller stores the last answers
            if not busy.any():
                return
            ready = self.collect(owners)

    def run_steps(self, ends: np.ndarray, busy: np.ndarray) -> None:
        """CHECK_EVERY steps. `ends` follows the positions without asking the device; finished slots count on, which only
        makes the bucket larger."""
        for _ in range(CHECK_EVERY):
            self.step(self.bucket(int(ends[busy].max())))
            ends[busy] += 1

    def admit(self, waiting: list[Request], owners: list, ends: np.ndarray) -> None:
        """Fills free slots, a group of prompts at a time."""
        free = [slot for slot, owner in enumerate(owners) if owner is None]
        while waiting and free:
            group = take_group(waiting, len(free))
            slots = [free.pop() for _ in group]
            for slot, request in zip(slots, group):
                owners[slot] = request.name
                ends[slot] = len(request.tokens)
            self.prefill(group, slots)

    def collect(self, owners: list) -> list[tuple[object, np.ndarray]]:
        """Takes the answers of the slots that have finished since the last look. The one place that waits for the device."""
        state = self.slots
        finished = state.finished.cpu().numpy()
        done = [slot for slot in np.flatnonzero(finished).tolist() if owners[slot] is not None]
        if not done:
            return []
        places = torch.tensor(done, device=self.device)
        output, written = state.output[places].cpu().numpy(), state.written[places].tolist()
        answers = [
            (owners[slot], tokens[:count].astype(np.int32)) for slot, tokens, count in zip(done, output, written)
        ]
        for slot in done:
            owners[slot] = None
        state.position[places] = 0  # an empty slot attends to one entry and not to all that it has held
        return answers

    # One group of prompts

    def prefill(self, group: list[Request], slots: list[int]) -> None:
        """Runs the prompts of a group, leaves their keys and values in the slots and writes the first token of each answer."""
        state, teacher = self.slots, self.teacher
        lengths = torch.tensor([len(request.tokens) for request in group])
        width = min(-(-int(lengths.max()) // PREFILL_ROUND) * PREFILL_ROUND, state.capacity)
        padded = np.zeros((len(group), width), np.int64)
        for row, request in zip(padded, group):
            row[: len(request.tokens)] = request.tokens
        tokens, places = torch.from_numpy(padded).to(self.device), torch.tensor(slots, device=self.device)
        lengths = lengths.to(self.device)
        cos, sin = teacher.rotation(torch.arange(width, device=self.device))
        mask = window_mask(width, teacher.window, self.device)
        x = teacher.embed(tokens)
        for i, block in enumerate(teacher.blocks):
            q, k, v = block.project(x, cos, sin)
            state.keys[i, places, :width] = k
            state.values[i, places, :width] = v
            x = block.finish(x, causal_attention(q, k, v, mask))
        last = x[torch.arange(len(group), device=self.device), lengths - 1]
        state.greedy[places] = torch.tensor([request.greedy for request in group], device=self.device)
        state.key[places] = torch.tensor([request.key for request in group], device=self.device)
        state.position[places] = lengths
        state.written[places] = 1
        first = self.choose(teacher.logits(last), state.greedy[places], state.key[places], torch.zeros_like(lengths))
        state.token[places] = first
        state.output[places, 0] = first
        state.finished[places] = self.ends(first) | (state.max_new == 1)

    # One token for every slot

    def bucket(self, longest: int) -> int:
        """How much of the cache a step has to read when the longest sequence has `longest` tokens in it."""
        if self.attend is attend_grouped:
            return self.slots.capacity  # reads what each slot uses, whatever is passed
        return min(-(-(longest + 1) // BUCKET) * BUCKET, self.slots.capacity)

    def step(self, length: int) -> None:
        if self.pool is None:
            self.decode(length)
            return
        if length not in self.graphs:
            self.graphs[length] = self.capture(length)
        self.graphs[length].replay()

    def capture(self, length: int) -> torch.cuda.CUDAGraph:
        """Records a decode step. The run before it warms up libraries that may not be initialised while recording; what it
        does to the slots is undone, recording itself executes nothing."""
        state = self.slots
        changed = (state.token, state.position, state.output, state.written, state.finished)
        before = [tensor.clone() for tensor in changed]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.decode(length)
        torch.cuda.current_stream().wait_stream(stream)
        for tensor, old in zip(changed, before):
            tensor.copy_(old)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self.decode(length)
        return graph

    def decode(self, length: int) -> None:
        """Feeds the last token of every slot, attending to the first `length` entries of the cache, and writes the next one.
        Finished slots go through the motions and change nothing that is read again."""
        state, teacher = self.slots, self.teacher
        cos, sin = teacher.rotation(state.position)
        view = CacheView.at(state, length)
        x = teacher.embed(state.token)
        for i, block in enumerate(teacher.blocks):
            q, k, v = block.project(x, cos, sin)
            keys, values = state.keys[i], state.values[i]
            keys.flatten(0, 1).index_copy_(0, view.rows, k)
            values.flatten(0, 1).index_copy_(0, view.rows, v)
            x = block.finish(x, self.attend(q, keys, values, view))
        following = self.choose(teacher.logits(x), state.greedy, state.key, state.written)
        self.write(following)

    def write(self, following: torch.Tensor) -> None:
        state = self.slots
        alive = ~state.finished
        place = state.written.clamp(max=state.max_new - 1).unsqueeze(1)
        kept = state.output.gather(1, place).squeeze(1)
        state.output.scatter_(1, place, torch.where(alive, following, kept).unsqueeze(1))
        state.token.copy_(torch.where(alive, following, state.token))
        state.written.add_(alive)
        state.position.add_(alive)
        state.finished.logical_or_(self.ends(following) & alive)
        state.finished.logical_or_(state.written >= state.max_new)

    def ends(self, tokens: torch.Tensor) -> torch.Tensor:
        return (tokens.unsqueeze(-1) == self.eos).any(dim=-1)

    def choose(
        self, logits: torch.Tensor, greedy: torch.Tensor, key: torch.Tensor, number: torch.Tensor
    ) -> torch.Tensor:
        """The next token of each row: the argmax, or a draw for token `number` of the sequence with this key."""
        best = logits.argmax(dim=-1)
        if not self.sampling.any_sampled:
            return best
        drawn = draw(logits, uniform(key, number), self.sampling.temperature, self.sampling.top_p)
        return torch.where(greedy, best, drawn)

    def stop_loops(self) -> None:
        """Answers that only repeat themselves are finished here: a third of what a small teacher writes up to the cap."""
        state = self.slots
        state.finished.logical_or_(ends_in_loop(state.output, state.written))


@dataclass
class CacheView:
    """What every layer of a step needs to know about the cache."""

    rows: torch.Tensor  # int64 [B]: where the new key goes, slot * capacity + position
    length: int  # entries of the cache that are read
    mask: torch.Tensor  # [B, 1, 1, length]: 0 where a slot has an entry, else minus infinity; in the dtype of the cache
    used: torch.Tensor  # int32 [B]: entries of each slot, the new one included

    @staticmethod
    def at(state: Slots, length: int) -> "CacheView":
        seen = torch.arange(length, device=state.position.device) <= state.position.unsqueeze(1)
        mask = torch.zeros(seen.shape, device=seen.device, dtype=state.keys.dtype).masked_fill_(~seen, float("-inf"))
        return CacheView(
            rows=state.number * state.capacity + state.position,
            length=length,
            mask=mask[:, None, None],
            used=(state.position + 1).int(),
        )


def attend_masked(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, view: CacheView) -> torch.Tensor:
    """q [B, heads, D] over keys, values [B, capacity, kv_heads, D] -> [B, heads * D]. The query heads of one key head stand where
    queries usually stand: they share keys and mask, so nothing is copied per query head."""
    kv_heads = keys.shape[2]
    grouped = q.unflatten(1, (kv_heads, -1))
    keys, values = (part[:, : view.length].transpose(1, 2) for part in (keys, values))
    mask = view.mask.expand(-1, kv_heads, grouped.shape[2], -1)
    return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).flatten(1)


def attend_grouped(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, view: CacheView) -> torch.Tensor:
    """The same by a kernel that reads what each slot uses, once for all query heads of a key head. CUDA only."""
    from .kernels import attention_of_one  # here, because PyTorch for the CPU comes without Triton

    batch, capacity, kv_heads, dim = keys.shape
    heads = q.shape[1] // kv_heads
    sizes = {"heads": heads, "group": max(16, 1 << (heads - 1).bit_length()), "dim": dim, "block": 64}
    q = q.contiguous()
    out = torch.empty_like(q)
    attention_of_one[(batch, kv_heads)](q, keys, values, view.used, out, dim**-0.5, capacity, **sizes, num_warps=4)
    return out.flatten(1)


def choose_attention(teacher: Teacher, device: torch.device, dtype: torch.dtype):
    """Our kernel where it compiles and gives what the plain attention gives on an example; else the plain one."""
    if device.type != "cuda" or dtype != torch.bfloat16:
        return attend_masked
    example = Slots(teacher, 8, BUCKET, 1, device, dtype)
    random = torch.Generator(device).manual_seed(1)
    for tensor in (example.keys, example.values):
        tensor.normal_(generator=random)
    example.position.copy_(torch.arange(8, device=device) * 31)
    q = torch.randn((8, teacher.heads, teacher.head_dim), device=device, generator=random).to(dtype)
    view = CacheView.at(example, BUCKET)
    plain = attend_masked(q, example.keys[0], example.values[0], view)
    try:
        grouped = attend_grouped(q, example.keys[0], example.values[0], view)
        reason = "" if torch.allclose(grouped.float(), plain.float(), atol=0.03) else "other values"
    except Exception as error:  # any failure of a compiler here has the same remedy
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if reason:
        print(f"distil: attention kernel: not used, {reason}", flush=True)
    return attend_masked if reason else attend_grouped


def take_group(waiting: list[Request], places: int) -> list[Request]:
    """The next requests, at most `places` and at most PREFILL_TOKENS with padding, from the end of the reversed queue."""
    group, longest = [], 0
    while waiting and len(group) < places:
        longest = max(longest, len(waiting[-1].tokens))
        if group and longest * (len(group) + 1) > PREFILL_TOKENS:
            break
        group.append(waiting.pop())
    return group


# Randomness as a function of (key, number)


def mixed(value: torch.Tensor) -> torch.Tensor:
    """Scrambles int64 bits: xor-shifts and odd factors, every step invertible. torch shifts keep the sign, hence the masks."""
    value = (value ^ ((value >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    value = (value ^ ((value >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return value ^ ((value >> 31) & 0x1FFFFFFFF)


def uniform(key: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """float32 in [0, 1) with 24 random bits."""
    bits = mixed(mixed(key) + number * -0x61C8864680B583EB)
    return ((bits >> 40) & 0xFFFFFF).float() / (1 << 24)


def draw(logits: torch.Tensor, chance: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """A token of each row: the CANDIDATES most likely ones, of these the most likely that together reach top_p, and their
    distribution inverted at `chance`."""
    best, ids = logits.topk(min(CANDIDATES, logits.shape[-1]), dim=-1)
    probability = (best / temperature).softmax(dim=-1)
    before = probability.cumsum(dim=-1) - probability
    probability = torch.where(before < top_p, probability, torch.zeros_like(probability))
    reached = probability.cumsum(dim=-1)
    target = (chance * reached[:, -1]).unsqueeze(-1)
    place = (reached <= target).sum(dim=-1, keepdim=True)
    last = (probability > 0).sum(dim=-1, keepdim=True) - 1
    return ids.gather(-1, torch.minimum(place, last)).squeeze(-1)
