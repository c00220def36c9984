#!/usr/bin/env python3
"""How many tokens per second the generator of train/pipeline writes on this GPU, and where a step's time goes.

usage: python bench/bench_distil.py [--batch 2048] [--longest 512] [--new 384]

The teacher has the shape of SmolLM2-135M and random weights: a step costs the same as with real ones. Slots are filled as in
the middle of a distillation, with 50 to 450 tokens each, and 15 % of them sample.
"""
import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "train"))
from pipeline import generator as g
from pipeline.teacher import Shape, Teacher, choose_device, plain_frequencies

SHAPE = Shape(
    name="random", hidden=576, layers=30, heads=9, kv_heads=3, head_dim=64, intermediate=1536, vocab=49152, eps=1e-5,
    rope_theta=100000.0, frequencies=plain_frequencies(100000.0, 64), eos_ids=(2,),
)  # fmt: skip


def random_teacher(device):
    torch.manual_seed(1)
    s, wide, narrow = SHAPE, SHAPE.heads * SHAPE.head_dim, SHAPE.kv_heads * SHAPE.head_dim
    matrices = {
        "self_attn.q_proj": (wide, s.hidden), "self_attn.k_proj": (narrow, s.hidden),
        "self_attn.v_proj": (narrow, s.hidden), "self_attn.o_proj": (s.hidden, wide),
        "mlp.gate_proj": (s.intermediate, s.hidden), "mlp.up_proj": (s.intermediate, s.hidden),
        "mlp.down_proj": (s.hidden, s.intermediate),
    }  # fmt: skip
    weights = {"model.embed_tokens.weight": torch.randn(s.vocab, s.hidden) * 0.1, "model.norm.weight": torch.ones(s.hidden)}
    for i in range(s.layers):
        prefix = f"model.layers.{i}."
        for name, size in matrices.items():
            weights[f"{prefix}{name}.weight"] = torch.randn(size) * size[1] ** -0.5
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = torch.ones(s.hidden)
    return Teacher(s, weights, torch.bfloat16, "").to(device).eval()


def fill(made):
    state = made.slots
    state.position.copy_(torch.randint(50, 450, (state.batch,)))
    state.token.copy_(torch.randint(0, SHAPE.vocab, (state.batch,)))
    state.greedy.copy_(torch.rand(state.batch) > 0.15)
    state.key.copy_(torch.randint(0, 2**40, (state.batch,)))
    state.written.fill_(1)
    state.finished.fill_(False)


def step_seconds(made, steps=32):
    length = made.bucket(450)
    made.step(length)
    fill(made)
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(steps):
        made.step(length)
    torch.cuda.synchronize()
    return (time.monotonic() - begin) / steps


def profiled(made):
    fill(made)
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        made.decode(made.bucket(450))
        torch.cuda.synchronize()
    return profile.key_averages().table(sort_by="self_cuda_time_total", row_limit=14, max_name_column_width=60)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--longest", type=int, default=512)
    parser.add_argument("--new", type=int, default=384)
    options = parser.parse_args()
    teacher = random_teacher(choose_device("auto"))
    with torch.no_grad():
        made = g.Generator(teacher, options.batch, options.longest, options.new, g.Sampling(0.8, 0.95, True))
        seconds = step_seconds(made)
        print(f"{made.attend.__name__}: {seconds * 1e3:.2f} ms a step of {options.batch}, {options.batch / seconds:,.0f} tokens per second")
        print(profiled(made))


if __name__ == "__main__":
    main()
