"""Tests of the draft heads in train/fixtures/heads and of tests/data/heads.

Run: python train/tests/heads_test.py
"""

import dataclasses
import json
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "train" / "fixtures"))

import numpy as np
import torch
from heads import eagle2, eagle3
from heads.catalogue import Variant
from heads.eagle2 import load_eagle2
from heads.loading import HeadError, load_head
from heads.medusa import load_medusa, predict
from heads.teachers import read_teacher
from make_heads import EagleGolden, least_eagle2_effect
from safetensors.torch import load_file
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

DATA = ROOT / "tests" / "data"
HEADS = DATA / "heads"
ENTRIES = json.loads((HEADS / "heads.json").read_text())
LOADERS = {"eagle2": load_eagle2, "eagle3": load_head}
COMMITTED = 40


class RowByRow:
    """The EAGLE-3 formulas once more, one row at a time in numpy, over a plain chain: no mask, no batch, no tree."""

    def __init__(self, head):
        self.head = head
        self.w = {name: tensor.double().numpy() for name, tensor in head.tensors.items()}
        self.keys = [[] for _ in range(head.layers)]
        self.values = [[] for _ in range(head.layers)]

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x) + self.head.eps) * self.w[name]

    def fuse(self, feature):
        taps = len(self.head.taps)
        if "input_norm.weight" in self.w:
            feature = self.norm(feature, "input_norm.weight")
        if "fc_norm.0.weight" in self.w:
            parts = np.split(feature, taps)
            feature = np.concatenate([self.norm(x, f"fc_norm.{i}.weight") for i, x in enumerate(parts)])
        return self.w["fc.weight"] @ feature

    def project(self, layer, name, z):
        stem = f"layers.{layer}.self_attn.{name}_proj."
        return self.w[stem + "weight"] @ z + self.w.get(stem + "bias", 0.0)

    def rotated(self, layer, name, z, position):
        heads = self.project(layer, name, z).reshape(-1, self.head.head_dim)
        norm = f"layers.{layer}.self_attn.{name}_norm.weight"
        out = np.empty_like(heads)
        half = self.head.head_dim // 2
        for h, x in enumerate(heads):
            x = self.norm(x, norm) if norm in self.w else x
            for j in range(half):
                angle = position * float(self.head.rope.frequencies[j])
                c, s = self.head.rope.scale * np.cos(angle), self.head.rope.scale * np.sin(angle)
                out[h, j] = x[j] * c - x[j + half] * s
                out[h, j + half] = x[j + half] * c + x[j] * s
        return out

    def attend(self, layer, z, position, window):
        q = self.rotated(layer, "q", z, position)
        self.keys[layer].append(self.rotated(layer, "k", z, position))
        self.values[layer].append(self.project(layer, "v", z).reshape(-1, self.head.head_dim))
        seen = range(len(self.keys[layer]))
        if window is not None:
            end = min(position, COMMITTED)  # of the context; what lies behind it is an ancestor or the row itself
            seen = [i for i in seen if i >= end - window]
        out = []
        for h in range(self.head.heads):
            of = h // (self.head.heads // self.head.kv_heads)
            scores = np.array([q[h] @ self.keys[layer][i][of] for i in seen]) / np.sqrt(self.head.head_dim)
            shares = np.exp(scores - scores.max())
            out.append(sum(e * self.values[layer][i][of] for e, i in zip(shares, seen, strict=True)) / shares.sum())
        return self.w[f"layers.{layer}.self_attn.o_proj.weight"] @ np.concatenate(out)

    def row(self, token, g, position, window=None):
        """What is fed back, and the logits."""
        v = self.norm(g, "layers.0.hidden_norm.weight")
        z = np.concatenate([self.norm(self.w["embed_tokens.weight"][token], "layers.0.input_layernorm.weight"), v])
        a = self.through_layers(z, v if self.head.norm_before_residual else g, position, window)
        normed = self.norm(a, "norm.weight")
        logits = self.w["lm_head.weight"] @ normed * self.head.logit_scale
        return (normed if self.head.feedback_normed else a), logits

    def through_layers(self, z, a, position, window):
        """z: what the first layer's q, k, v read. a: the residual stream."""
        for layer in range(self.head.layers):
            if layer > 0:
                z = self.norm(a, f"layers.{layer}.input_layernorm.weight")
            a = a + self.attend(layer, z, position, window)
            n = self.norm(a, f"layers.{layer}.post_attention_layernorm.weight")
            gate, up = (self.w[f"layers.{layer}.mlp.{m}_proj.weight"] @ n for m in ("gate", "up"))
            a = a + self.w[f"layers.{layer}.mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
        return a

    def forget(self, rows):
        for cache in (*self.keys, *self.values):
            del cache[rows:]


class Eagle2RowByRow(RowByRow):
    """EAGLE-1/2: fc in every row on raw halves, no norm before the first layer, none behind the last."""

    def fuse(self, feature):
        scale = np.sqrt(np.mean(feature * feature) + self.head.final_eps)
        return feature / scale * self.head.final_norm.double().numpy()

    def row(self, token, g, position, window=None):
        x = self.w["fc.weight"] @ np.concatenate([self.w["embed_tokens.weight"][token], g]) + self.w.get("fc.bias", 0.0)
        a = self.through_layers(x, x, position, window)
        return a, self.w["lm_head.weight"] @ a


ROW_BY_ROW = {"eagle2": Eagle2RowByRow, "eagle3": RowByRow}


def path_to(node):
    """Nodes below the root, top first."""
    path = []
    while node != 0:
        path.insert(0, node)
        node = eagle3.PARENTS[node]
    return path


class Goldens(unittest.TestCase):
    def read(self, entry):
        teacher = read_teacher(DATA / entry["teacher"])
        return teacher, load_file(HEADS / entry["golden"])

    def assert_within(self, found, expected, bound, what):
        difference = np.abs(np.asarray(found, dtype=np.float64) - expected.double().numpy()).max()
        self.assertLessEqual(difference, bound.item(), what)

    def test_a_path_of_the_tree_equals_the_same_tokens_as_a_chain(self):
        for entry in [e for e in ENTRIES if e["kind"] in LOADERS]:
            with self.subTest(entry["golden"], head=entry["head"]):
                teacher, golden = self.read(entry)
                head = LOADERS[entry["kind"]](HEADS / entry["head"], teacher, entry["options"])
                self.check_chains(ROW_BY_ROW[entry["kind"]](head), teacher, golden, entry["window"])

    def check_chains(self, model, teacher, golden, window):
        head = model.head
        self.assertEqual(list(head.taps), golden["taps"].tolist())
        self.assertTrue(torch.equal(head.target_ids, golden["target_ids"]))
        features = teacher.features(head.taps, COMMITTED).double().numpy()
        for t in range(COMMITTED):
            g = model.fuse(features[t])
            self.assert_within(g, golden["fused"][t], golden["bound.fused"], f"fused {t}")
            seed = model.row(golden["tokens"][t + 1].item(), g, t, window)
            self.assert_within(seed[0], golden["prefix.feedback"][t], golden["bound.feedback"], f"row {t}")
        for leaf in range(len(eagle3.PARENTS)):
            model.forget(COMMITTED)
            feedback, logits = seed
            for depth, node in enumerate(path_to(leaf)):
                feedback, logits = model.row(golden["tree.tokens"][node].item(), feedback, COMMITTED + depth, window)
            self.assert_within(feedback, golden["tree.feedback"][leaf], golden["bound.feedback"], f"node {leaf}")
            self.assert_within(logits, golden["tree.logits"][leaf], golden["bound.logits"], f"node {leaf}")
            order = np.argsort(-logits, kind="stable")[:8]
            self.assertEqual(head.target_ids[order.copy()].tolist(), golden["tree.best"][leaf].tolist())

    def test_the_feature_of_eagle2_is_what_the_teachers_output_matrix_multiplies(self):
        for entry in [e for e in ENTRIES if e["kind"] == "eagle2"]:
            with self.subTest(entry["golden"]):
                teacher, golden = self.read(entry)
                self.assertEqual(golden["taps"].tolist(), [teacher.layers])
                hidden = teacher.golden["hidden"][:COMMITTED]
                self.assert_within(golden["fused"], hidden, golden["bound.fused"], "the teacher's hidden")
                logits = golden["fused"] @ teacher.output.T
                self.assert_within(logits, teacher.golden["logits"][:COMMITTED], teacher.golden["bound"], "logits")

    def test_an_eagle2_head_that_copies_its_feature_guesses_what_the_teacher_said_one_token_before(self):
        """a is f_t where fc picks the feature and the layer adds nothing, so the guess of row t, which is for x_{t+2},
        is the teacher's for x_{t+1}: feature, output matrix and pairing at once. What is fed back stays the same."""
        for entry in [e for e in ENTRIES if e["kind"] == "eagle2" and not e["options"]]:
            with self.subTest(entry["golden"]):
                teacher, golden = self.read(entry)
                head = load_eagle2(HEADS / entry["head"], teacher)
                tensors = {name: torch.zeros_like(t) for name, t in head.tensors.items() if "norm" not in name}
                tensors["fc.weight"][:, teacher.hidden :] = torch.eye(teacher.hidden)
                tensors["lm_head.weight"] = head.tensors["lm_head.weight"]
                copying = dataclasses.replace(head, tensors=head.tensors | tensors)
                features = teacher.features(head.taps, COMMITTED)
                drafted = eagle3.draft(copying, features, golden["tokens"], network=eagle2.Forward)
                expected = teacher.golden["logits"][COMMITTED - 1].expand_as(drafted.logits)
                self.assert_within(drafted.logits, expected, teacher.golden["bound"], "logits")

    def test_every_trap_that_engines_fell_into_shows_in_the_logits_of_eagle2(self):
        for entry in ENTRIES:
            if entry["kind"] != "eagle2":
                continue
            with self.subTest(golden=entry["golden"]):
                teacher = read_teacher(DATA / entry["teacher"])
                head = load_eagle2(HEADS / entry["head"], teacher, entry["options"])
                golden = EagleGolden(head, teacher, Variant("", window=entry["window"]), eagle2.Forward)
                golden.engine_bounds = {"logits": load_file(HEADS / entry["golden"])["bound.engine.logits"].item()}
                least_eagle2_effect(golden, None)  # asserts that the least of them is many bounds

    def test_every_node_carries_one_of_its_parents_best_tokens(self):
        for entry in [e for e in ENTRIES if e["kind"] in LOADERS]:
            _, golden = self.read(entry)
            for node, parent in list(enumerate(eagle3.PARENTS))[1:]:
                token = golden["tree.best"][parent][eagle3.RANKS[node]]
                self.assertEqual(golden["tree.tokens"][node], token, (entry["golden"], node))

    def test_medusa_heads_give_their_golden_logits(self):
        for entry in [e for e in ENTRIES if e["kind"] == "medusa"]:
            with self.subTest(entry["golden"]):
                teacher, golden = self.read(entry)
                head = load_medusa(HEADS / entry["head"], teacher)
                hidden = teacher.golden["hidden"][golden["positions"]]
                logits = predict(head, hidden, dtype=torch.float64)
                self.assert_within(logits, golden["logits"], golden["bound.logits"], entry["head"])

    def test_gguf_and_directory_mean_the_same_head(self):
        teacher = read_teacher(DATA / "tiny/llama3")
        directory = load_head(HEADS / "eagle3-specforge", teacher)
        gguf = load_head(HEADS / "eagle3-specforge.gguf", teacher)
        self.assertEqual(directory.taps, gguf.taps)
        self.assertTrue(torch.equal(directory.target_ids, gguf.target_ids))
        for name, tensor in directory.tensors.items():
            self.assertTrue(torch.equal(tensor, gguf.tensors[name]), name)


class RopeOfAHead(unittest.TestCase):
    def head(self, name):
        entry = next(e for e in ENTRIES if e["head"] == name)
        head = LOADERS[entry["kind"]](HEADS / name, read_teacher(DATA / entry["teacher"]))
        fields = json.loads((HEADS / name / "config.json").read_text())
        return head, LlamaConfig.from_dict(fields)

    def assert_like_transformers(self, head, kind, config):
        frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config)
        self.assertLess((head.rope.frequencies / frequencies.double() - 1).abs().max().item(), 1e-6)
        self.assertAlmostEqual(head.rope.scale, scale, places=12)

    def test_is_what_transformers_computes(self):
        kinds = {
            "eagle3-yarn": "yarn",
            "eagle3-yarn-mscale": "yarn",
            "eagle3-yarn-attention-factor": "yarn",
            "eagle3-dynamic": "dynamic",
            "eagle3-shared": "linear",
            "eagle2-two-layers": "linear",
            "eagle3-specforge": "llama3",
        }
        for name, kind in kinds.items():
            with self.subTest(name):
                head, config = self.head(name)
                self.assert_like_transformers(head, kind, config)

    def test_scales_cos_and_sin_by_yarns_factor_and_by_nothing_else(self):
        expected = {"eagle3-yarn": 0.1 * np.log(4.0) + 1.0, "eagle3-yarn-attention-factor": 0.75}
        expected |= {
            "eagle3-yarn-mscale": (0.2 * np.log(8.0) + 1.0) / (0.05 * np.log(8.0) + 1.0),
            "eagle3-dynamic": 1.0,
        }
        for name, scale in expected.items():
            self.assertAlmostEqual(self.head(name)[0].rope.scale, scale, places=12)

    def test_of_the_dynamic_kind_does_not_follow_the_length_of_the_text(self):
        head, config = self.head("eagle3-dynamic")
        self.assertGreater(COMMITTED, config.max_position_embeddings)
        grown, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, seq_len=COMMITTED)
        self.assertGreater((head.rope.frequencies / grown.double() - 1).abs().max().item(), 0.1)


class Rules(unittest.TestCase):
    def expectation(self, folder):
        lines = (folder / "expected.txt").read_text().splitlines()
        pairs = [line.split(": ", 1) for line in lines if ": " in line and not line.startswith("#")]
        options = dict(value.split("=") for key, value in pairs if key == "option")
        if "taps" in options:
            options["taps"] = [int(tap) for tap in options["taps"].split(",")]
        says = [value for key, value in pairs if key == "says"]
        return dict(pairs), options, says

    def load(self, folder):
        fields, options, says = self.expectation(folder)
        teacher, path = read_teacher(DATA / fields["teacher"]), folder / fields["head"]
        if fields["kind"] == "medusa":
            return fields, load_medusa(path, teacher)
        return fields, LOADERS[fields["kind"]](path, teacher, options)

    def test_every_refusal_is_one_line_that_says_what_it_must(self):
        folders = sorted((HEADS / "refusals").iterdir())
        self.assertGreater(len(folders), 50)
        for folder in folders:
            with self.subTest(folder.name), self.assertRaises(HeadError) as caught:
                self.load(folder)
            message = str(caught.exception)
            self.assertNotIn("\n", message)
            for text in self.expectation(folder)[2]:
                self.assertIn(text, message)

    def test_the_tensors_tell_the_network(self):
        with self.assertRaisesRegex(HeadError, "expected EAGLE-3"):
            load_head(HEADS / "eagle2-vicuna", read_teacher(DATA / "tiny/llama2"))
        with self.assertRaisesRegex(HeadError, "expected EAGLE-1/2"):
            load_eagle2(HEADS / "eagle3-two-taps", read_teacher(DATA / "tiny/llama2"))  # its fc is [H, 2H] too

    def test_what_looks_wrong_and_is_right_is_accepted(self):
        for folder in sorted((HEADS / "accepted").iterdir()):
            with self.subTest(folder.name):
                fields, head = self.load(folder)
                self.assertEqual(" ".join(map(str, head.target_ids.tolist())), fields["target_ids"])
                if "taps" in fields:
                    self.assertEqual(" ".join(map(str, head.taps)), fields["taps"])


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    unittest.main()
