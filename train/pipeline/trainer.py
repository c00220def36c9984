"""The training loop of all kinds of heads: `main(config, "eagle3")`, "eagle2" and "medusa".

A folder of that name in WORK holds `checkpoint.pt` (everything needed to go on: parameters, optimiser, step, random
state), `metrics.jsonl` (one line every log_every steps) and `curves.svg`. A checkpoint replaces the one before in one
move, so a run may be killed at any time; calling it again goes on from the last one and gives the same parameters, bit
for bit on a CPU, as if nothing had happened. Batches depend on the step only.

Under torchrun each rank takes its part of every batch and gradients are averaged; rank 0 writes.
"""

import dataclasses
import json
import math
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from . import eagle2, eagle3
from .config import Config, InputError, digest
from .data import Batches, Sequences, load_training_sequences
from .labels import label_rows, make_labels
from .medusa import Medusa
from .plot import write_curves
from .progress import Progress
from .teacher import Teacher, teacher_of
from .vocabulary import load_vocabulary
from .whole_files import written_whole

NOT_PART_OF_THE_RECIPE = (
    "stop_after_seconds",
    "checkpoint_every",
    "log_every",
)  # may change between calls of one training


# What is trained


class Eagle3Task:
    """An EAGLE-3 head and how a batch becomes its inputs."""

    def __init__(self, config: Config, teacher: Teacher):
        self.section = config.eagle3
        self.teacher = teacher
        ids = torch.as_tensor(load_vocabulary(config).ids, device=teacher.embedding.device)
        self.model = eagle3.Eagle3(eagle3.shape_of(config, teacher), teacher.embedding.detach(), ids).to(ids.device)
        self.steps = config.eagle3.unroll

    def initialise(self, batch: dict[str, torch.Tensor], seed: int) -> None:
        _, taps = self.teacher.features(batch["tokens"], self.model.shape.taps)
        self.model.initialise(self.teacher, taps[:, 1:][batch["answer"][:, 1:]], seed)

    def inputs(self, batch: dict[str, torch.Tensor]) -> tuple:
        last, taps = self.teacher.features(batch["tokens"], self.model.shape.taps)
        labels = make_labels(self.teacher, last, batch, self.model.ids)
        return batch["tokens"], taps, labels, self.section.loss_decay


class Eagle2Task:
    """An EAGLE-2 head and how a batch becomes its inputs."""

    def __init__(self, config: Config, teacher: Teacher):
        self.section = config.eagle2
        self.teacher = teacher
        embedding, output = teacher.embedding.detach(), teacher.lm_head_weight.detach()
        self.model = eagle2.Eagle2(eagle2.shape_of(config, teacher), embedding, output).to(output.device)
        self.steps = self.section.unroll

    def initialise(self, batch: dict[str, torch.Tensor], seed: int) -> None:
        features, answer = self.model.features_of(self.teacher, batch["tokens"]), batch["answer"][:, 1:]
        self.model.initialise(batch["tokens"][:, 1:][answer], features[:, 1:][answer], seed)

    def inputs(self, batch: dict[str, torch.Tensor]) -> tuple:
        section = self.section
        last, _ = self.teacher.features(batch["tokens"], ())
        labels = make_labels(self.teacher, last, batch, None)
        if section.best_tokens:
            eagle2.count_best_again(labels, section.best_tokens, section.best_weight / section.token_weight)
        features = self.teacher.final_norm(last)
        wanted = features.flatten(0, 1).index_select(0, batch["rows"])
        noisy = eagle2.with_noise(features, batch["valid"], section.noise) if section.noise else features
        return batch["tokens"], noisy, labels, wanted, section.loss_decay, section.token_weight


class MedusaTask:
    """Medusa heads and how a batch becomes their inputs."""

    def __init__(self, config: Config, teacher: Teacher):
        self.section = config.medusa
        self.teacher = teacher
        output = teacher.lm_head_weight.detach()
        self.model = Medusa(self.section.heads, self.section.blocks, output).to(output.device)
        self.steps = self.section.heads

    def initialise(self, batch: dict[str, torch.Tensor], seed: int) -> None:
        self.model.initialise(seed)

    def inputs(self, batch: dict[str, torch.Tensor]) -> tuple:
        last, _ = self.teacher.features(batch["tokens"], ())
        labels = make_labels(self.teacher, last, batch, None)
        return self.teacher.final_norm(last), labels, self.section.loss_decay


TASKS = {"eagle3": Eagle3Task, "eagle2": Eagle2Task, "medusa": MedusaTask}


# Batches


class Feed:
    """Batches with their label rows, prepared one step ahead while the device works."""

    def __init__(self, batches: Batches, steps: int, device: torch.device):
        self.batches = batches
        self.steps = steps
        self.device = device
        self.pool = ThreadPoolExecutor(1)
        self.ahead = {}

    def prepare(self, step: int) -> dict[str, torch.Tensor]:
        batch = self.batches.batch(step)
        batch |= label_rows(batch["answer"], self.steps)
        return {name: part.pin_memory() for name, part in batch.items()} if self.device.type == "cuda" else batch

    def get(self, step: int) -> dict[str, torch.Tensor]:
        waiting = self.ahead.pop(step, None) or self.pool.submit(self.prepare, step)
        self.ahead = {step + 1: self.pool.submit(self.prepare, step + 1)}
        return {name: part.to(self.device, non_blocking=True) for name, part in waiting.result().items()}

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


# Optimiser


def rate_at(step: int, section) -> float:
    """Linear warm-up, then half a cosine from peak_rate to final_rate."""
    if step < section.warmup:
        return section.peak_rate * (step + 1) / section.warmup
    done = min((step - section.warmup) / max(section.steps - section.warmup, 1), 1.0)
    return section.final_rate + (section.peak_rate - section.final_rate) * (1 + math.cos(math.pi * done)) / 2


def make_optimiser(model: nn.Module, section, device: torch.device) -> torch.optim.AdamW:
    """Norms and biases are not decayed."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": section.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=section.peak_rate, betas=tuple(section.betas), fused=device.type == "cuda")


def apply_gradients(model: nn.Module, optimiser: torch.optim.AdamW, section, step: int) -> torch.Tensor:
    """Returns the norm of the gradient before clipping. Gradients that are not numbers become zero: one bad batch in an
    unattended run is a lost batch, not a lost run."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), section.clip)
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
    for group in optimiser.param_groups:
        group["lr"] = rate_at(step, section)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return norm


# Checkpoints


def recipe_digest(config: Config, kind: str, teacher: Teacher, sequences: Sequences) -> str:
    """What must not change between two calls of one training: the data itself too, for a distillation that has gone on
    meanwhile gives other batches."""
    recipe = dataclasses.asdict(getattr(config, kind))
    for name in NOT_PART_OF_THE_RECIPE:
        recipe.pop(name, None)
    vocabulary = load_vocabulary(config).ids.tolist() if kind == "eagle3" else None
    return digest(recipe, config.data, vocabulary, config.seed, teacher.source_sha256, sequences.sha256)


def save_checkpoint(path: Path, step: int, model: nn.Module, optimiser, recipe: str, world: int) -> None:
    content = {
        "step": step,
        "world": world,
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "random": torch.get_rng_state(),
        "recipe": recipe,
    }
    with written_whole(path) as temporary, open(temporary, "wb") as file:
        torch.save(content, file)


def read_checkpoint(path: Path, device: torch.device | str = "cpu") -> dict:
    """Tensors and plain values only: a checkpoint runs no code."""
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}, expected a checkpoint of this pipeline") from error
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        got = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: expected a checkpoint of this pipeline, got {got}") from error


def restore(path: Path, section, model: nn.Module, optimiser, recipe: str) -> tuple[int, int]:
    """The step to go on with, and how many ranks have come that far (0: nobody knows). A checkpoint of this training
    comes first; `from_checkpoint` gives only parameters to start from, with a fresh optimiser and schedule."""
    if path.exists():
        saved = read_checkpoint(path)
        if saved["recipe"] != recipe:
            raise InputError(
                f"{path}: made by another recipe, expected {recipe}, got {saved['recipe']}; move it away to start anew"
            )
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        torch.set_rng_state(saved["random"])
        return saved["step"], saved.get("world", 0)
    if section.from_checkpoint:
        load_parameters(model, Path(section.from_checkpoint))
    return 0, 0


def load_parameters(model: nn.Module, path: Path) -> None:
    try:
        model.load_state_dict(read_checkpoint(path)["model"])
    except (KeyError, RuntimeError) as error:
        got = " ".join(str(error).split())
        raise InputError(f"{path}: expected the parameters of a head of these sizes, got {got}") from error


def cut_metrics(path: Path, step: int) -> None:
    """Drops lines of steps behind the checkpoint, which will be written again, and one that a full disk cut short."""
    if not path.exists():
        return
    *whole, _ = path.read_text().split("\n")
    lines = [line for line in whole if json.loads(line)["step"] <= step]
    with written_whole(path) as temporary:
        temporary.write_text("".join(line + "\n" for line in lines))


# Metrics


class Metrics:
    """The metrics file, and a line for whoever watches."""

    def __init__(self, path: Path, kind: str, first: int, last: int):
        self.path = path
        self.last = last
        self.mark = (first, time.monotonic())
        self.progress = Progress(kind, last, begun=first)

    def log(self, step: int, outcome, norm: torch.Tensor, rate: float) -> None:
        """step: how many are done. Waits for the device, so call it now and then."""
        losses, accuracies = torch.stack(outcome.losses).tolist(), torch.stack(outcome.accuracies).tolist()
        loss, now = outcome.loss.item(), time.monotonic()
        speed = (now - self.mark[1]) / max(step - self.mark[0], 1)
        self.mark = (step, now)
        values = {
            "step": step,
            "loss": loss,
            "losses": losses,
            "accuracies": accuracies,
            "norm": float(norm),
            "rate": rate,
            "seconds": speed,
        }
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        depths = " ".join(f"{accuracy:.3f}" for accuracy in accuracies)
        line = f"step {step}/{self.last}  loss {loss:.3f}  accuracy {depths}  {speed * 1000:.0f} ms a step"
        self.progress.show(step, line)


# The loop


def main(config: Config, kind: str) -> bool:
    """Whether the training has come to its end; false where stop_after_seconds were over before."""
    rank, world = join_ranks()
    try:
        return train(config, kind, rank, world)
    finally:
        if world > 1:
            torch.distributed.destroy_process_group()


def join_ranks() -> tuple[int, int]:
    """Rank and number of ranks; torchrun says them in the environment."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return (torch.distributed.get_rank(), world) if world > 1 else (0, 1)


def train(config: Config, kind: str, rank: int, world: int) -> bool:
    section = getattr(config, kind)
    folder = config.heads_folder / kind
    torch.manual_seed(config.seed)
    teacher = teacher_of(config)
    device = teacher.embedding.device
    task = TASKS[kind](config, teacher)
    sequences = load_training_sequences(config)
    batches = Batches(sequences, section.tokens_per_batch, section.max_tokens, config.seed, rank, world)
    feed = Feed(batches, task.steps, device)
    optimiser = make_optimiser(task.model, section, device)
    recipe = recipe_digest(config, kind, teacher, sequences)
    first, ranks_before = restore(folder / "checkpoint.pt", section, task.model, optimiser, recipe)
    if first == 0 and not section.from_checkpoint:
        first_batch = Batches(sequences, section.tokens_per_batch, section.max_tokens, config.seed).batch(0)
        task.initialise({name: part.to(device) for name, part in first_batch.items()}, config.seed)
    if rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        cut_metrics(folder / "metrics.jsonl", first)
        size = sum(parameter.numel() for parameter in task.model.parameters())
        tokens = int(sequences.lengths.sum())
        print(
            f"{kind}: {size:,} parameters, {len(sequences):,} sequences, {tokens:,} tokens, from step {first}",
            flush=True,
        )
        if ranks_before not in (0, world):
            print(
                f"{kind}: {ranks_before} ranks came that far, {world} go on: other batches than without the break",
                flush=True,
            )
    finished = loop(task, section, feed, optimiser, folder, recipe, first, rank, world)
    feed.close()
    if rank == 0:
        write_curves(folder)
    return finished


def loop(task, section, feed: Feed, optimiser, folder: Path, recipe: str, first: int, rank: int, world: int) -> bool:
    device = feed.device
    model = DistributedDataParallel(task.model, broadcast_buffers=False) if world > 1 else task.model
    metrics = Metrics(folder / "metrics.jsonl", folder.name, first, section.steps)
    began, step = time.monotonic(), first
    while step < section.steps:
        inputs = task.inputs(feed.get(step))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            outcome = model(*inputs)
        outcome.loss.backward()
        norm = apply_gradients(task.model, optimiser, section, step)
        step += 1
        if rank == 0 and (step % section.log_every == 0 or step == section.steps):
            metrics.log(step, outcome, norm, rate_at(step - 1, section))
        stop = is_over(began, section.stop_after_seconds, step, device, world)
        if rank == 0 and (stop or step % section.checkpoint_every == 0 or step == section.steps):
            save_checkpoint(folder / "checkpoint.pt", step, task.model, optimiser, recipe, world)
        if stop and step < section.steps:
            if rank == 0:
                print(f"{folder.name}: time is up at step {step} of {section.steps}; call again to go on", flush=True)
            return False
    return True


def is_over(began: float, limit: float, step: int, device: torch.device, world: int) -> bool:
    """Whether stop_after_seconds have passed. All ranks must agree, so rank 0 decides, every tenth step."""
    if not limit or (world > 1 and step % 10):
        return False
    over = torch.tensor([time.monotonic() - began >= limit], dtype=torch.int32, device=device if world > 1 else "cpu")
    if world > 1:
        torch.distributed.broadcast(over, 0)
    return bool(over.item())
