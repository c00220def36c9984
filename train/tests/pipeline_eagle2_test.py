"""Tests of the EAGLE-2 head in the training pipeline: network, loss, noise, trainer, export, simulation, trees.

Run: python train/tests/pipeline_eagle2_test.py

The head is held to a forward of its own below: one row at a time, in float64, from the files of the export.
"""

import copy
import json
import sys
import unittest
import unittest.mock
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import pipeline_train_test as common
from heads.teachers import read_teacher

import run
from pipeline import eagle2, export, labels, simulate, step_attention, trainer, trees
from pipeline.config import Config, InputError
from pipeline.draft_trees import Prefix, true_places
from pipeline.teacher import teacher_of

UNROLL = 3
TENSORS = {
    "fc.weight",
    "fc.bias",
    *(f"layers.0.self_attn.{part}_proj.weight" for part in "qkvo"),
    *(f"layers.0.mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
    "layers.0.post_attention_layernorm.weight",
}


class RowByRow:
    """The formulas over a plain chain: no mask, no batch, no tree."""

    def __init__(self, folder: Path):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: value.double().numpy() for name, value in load_file(folder / "model.safetensors").items()}
        teacher = read_teacher(common.TINY / common.TEACHER)
        self.embedding, self.output = teacher.embedding.double().numpy(), teacher.output.double().numpy()
        self.keys, self.values = [], []

    def rotated(self, name, x, position):
        heads = (self.weights[f"layers.0.self_attn.{name}_proj.weight"] @ x).reshape(-1, self.head_dim)
        half = self.head_dim // 2
        angles = position * self.config["rope_theta"] ** (-np.arange(half) / half)
        first, second = heads[:, :half], heads[:, half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=1)

    @property
    def head_dim(self):
        return self.config["hidden_size"] // self.config["num_attention_heads"]

    def row(self, token, g, position):
        """Appends a row; returns its a."""
        x = self.weights["fc.weight"] @ np.concatenate((self.embedding[token], g)) + self.weights["fc.bias"]
        self.keys.append(self.rotated("k", x, position))
        self.values.append((self.weights["layers.0.self_attn.v_proj.weight"] @ x).reshape(-1, self.head_dim))
        q, shared = self.rotated("q", x, position), self.config["num_attention_heads"] // len(self.keys[0])
        out = []
        for h, query in enumerate(q):
            scores = np.array([key[h // shared] @ query for key in self.keys]) / np.sqrt(self.head_dim)
            shares = np.exp(scores - scores.max())
            out.append(sum(s * value[h // shared] for s, value in zip(shares / shares.sum(), self.values)))
        r = x + self.weights["layers.0.self_attn.o_proj.weight"] @ np.concatenate(out)
        n = r / np.sqrt(np.mean(r * r) + self.config["rms_norm_eps"])
        n = n * self.weights["layers.0.post_attention_layernorm.weight"]
        gate = self.weights["layers.0.mlp.gate_proj.weight"] @ n
        up = self.weights["layers.0.mlp.up_proj.weight"] @ n
        return r + self.weights["layers.0.mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)

    def chain(self, tokens, features, root, below):
        """a of the root's row and of a row for each token below it."""
        self.keys, self.values = [], []
        for position in range(root):
            a = self.row(tokens[position + 1], features[position], position)
        outputs = [a]
        for depth, token in enumerate(below):
            outputs.append(self.row(token, outputs[-1], root + depth))
        return outputs


def fresh_task(**eagle2):
    """An untrained head and a batch [2, 64], the second text shorter."""
    config = common.make_config(Path("unused"))
    for name, value in eagle2.items():
        setattr(config.eagle2, name, value)
    task = trainer.Eagle2Task(config, teacher_of(config))
    tokens = torch.randint(3, 272, (2, 64), generator=torch.Generator().manual_seed(7))
    valid = torch.arange(64) < torch.tensor([[64], [40]])
    answer = valid & (torch.arange(64) >= 10)
    batch = {"tokens": tokens, "valid": valid, "answer": answer} | labels.label_rows(answer, task.steps)
    task.initialise(batch, 1)
    return task, batch


class Loss(unittest.TestCase):
    def expected(self, task, batch, step, a):
        """Of one step, label by label; a [2 * 64, H] of all rows."""
        section, features = task.section, task.model.features_of(task.teacher, batch["tokens"]).flatten(0, 1)
        output, answer, total = task.teacher.lm_head_weight, batch["answer"], []
        for b, p in answer.nonzero().tolist():
            p -= 1  # the teacher wrote the token behind p
            if p - 1 - step < 0 or not answer[b, p - step]:
                continue
            f, guess = features[64 * b + p], a[64 * b + p - 1 - step]
            probability, logarithm = torch.softmax(output @ f, -1), torch.log_softmax(output @ guess, -1)
            best = probability.topk(section.best_tokens).indices
            total.append(
                F.smooth_l1_loss(guess, f)
                - section.token_weight * (probability * logarithm).sum()
                - section.best_weight * (probability[best] * logarithm[best]).sum()
            )
        return sum(total) / len(total)

    def test_is_the_distance_of_features_and_two_cross_entropies(self):
        for settings in ({}, {"best_tokens": 0}, {"best_weight": 0.25, "token_weight": 0.5, "best_tokens": 3}):
            task, batch = fresh_task(noise=0.0, **settings)
            with torch.no_grad():
                outcome = task.model(*task.inputs(batch))
                features = task.model.features_of(task.teacher, batch["tokens"])
                for step, a in enumerate(task.model.unrolled(batch["tokens"], features, UNROLL, torch.arange(128))):
                    wanted = self.expected(task, batch, step, a)
                    torch.testing.assert_close(outcome.losses[step], wanted, rtol=1e-3, atol=1e-3)
            decays = task.section.loss_decay ** torch.arange(UNROLL)
            torch.testing.assert_close(outcome.loss, (torch.stack(outcome.losses) * decays).sum())

    def gradients(self, task, batch, autocast):
        inputs = task.inputs(batch)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            outcome = task.model(*inputs)
        return torch.autograd.grad(outcome.loss, list(task.model.parameters()))

    def test_a_step_as_on_a_gpu_has_the_gradients_of_the_plain_one(self):
        """bfloat16 products and joined attention against float32 and plain attention: how a GPU does it."""
        task, batch = fresh_task(noise=0.0)
        expected = self.gradients(task, batch, autocast=False)
        with unittest.mock.patch("pipeline.draft_layer.step_attention", step_attention.joined_attention):
            rounded = self.gradients(task, batch, autocast=True)
        for name, a, b in zip(dict(task.model.named_parameters()), expected, rounded):
            self.assertLess((a - b).norm() / a.norm(), 0.1, name)

    def test_only_the_inputs_of_a_training_have_noise(self):
        task, batch = fresh_task()
        exact = task.model.features_of(task.teacher, batch["tokens"])
        _, noisy, made, wanted, *_ = task.inputs(batch)
        noise = (noisy - exact).abs().amax((1, 2))
        for found, length in zip(noise.tolist(), (64, 40)):
            bound = 0.5 * 0.2 * 512 / length
            self.assertTrue(0.95 * bound < found <= bound * (1 + 1e-5), (found, bound))
        self.assertTrue(torch.equal(wanted, exact.flatten(0, 1)[batch["rows"]]))
        _, again, *_ = task.inputs(batch)
        self.assertFalse(torch.equal(noisy, again))
        _, plain, without, *_ = fresh_task(noise=0.0)[0].inputs(batch)
        self.assertTrue(torch.equal(plain, exact) and torch.equal(made.target, without.target))

    def test_sizes_that_no_file_can_say_are_refused(self):
        config = common.make_config(Path("unused"))
        for key, value, text in (("heads", 3, "eagle2.heads: .* got 3 heads"), ("kv_heads", 3, "eagle2.kv_heads")):
            changed = copy.deepcopy(config)
            setattr(changed.eagle2, key, value)
            with self.assertRaisesRegex(InputError, text):
                eagle2.shape_of(changed, teacher_of(config))


class Training(common.Scratch):
    def prepared(self, name="work", **eagle2) -> Config:
        config = super().prepared(name)
        for key, value in eagle2.items():
            setattr(config.eagle2, key, value)
        return config

    def checkpoint(self, config):
        return trainer.read_checkpoint(config.folder / "eagle2" / "checkpoint.pt")

    def test_a_training_that_was_stopped_goes_on_bit_for_bit(self):
        """Killed behind a checkpoint or stopped by the clock: the same noise on the same batches."""
        whole, stopped = self.prepared("whole"), self.prepared("stopped", checkpoint_every=3)
        common.quietly(trainer.main, whole, "eagle2")

        def save_and_die(*arguments, save=trainer.save_checkpoint):
            save(*arguments)
            raise KeyboardInterrupt

        with unittest.mock.patch.object(trainer, "save_checkpoint", save_and_die), self.assertRaises(KeyboardInterrupt):
            common.quietly(trainer.main, stopped, "eagle2")
        self.assertEqual(self.checkpoint(stopped)["step"], 3)
        stopped.eagle2.stop_after_seconds = 1e-6
        common.quietly(trainer.main, stopped, "eagle2")
        self.assertEqual(self.checkpoint(stopped)["step"], 4)
        stopped.eagle2.stop_after_seconds = 0.0
        common.quietly(trainer.main, stopped, "eagle2")
        a, b = self.checkpoint(whole), self.checkpoint(stopped)
        self.assertEqual((a["step"], b["step"]), (6, 6))
        for name in a["model"]:
            self.assertTrue(torch.equal(a["model"][name], b["model"][name]), name)

    def test_learns_what_it_sees(self):
        config = self.prepared(steps=40, peak_rate=5e-3)
        common.quietly(trainer.main, config, "eagle2")
        lines = (config.folder / "eagle2" / "metrics.jsonl").read_text().splitlines()
        losses = [json.loads(line)["loss"] for line in lines]
        self.assertLess(losses[-1], losses[0] - 0.1)

    def test_has_the_batches_of_eagle3(self):
        seen = {}
        for kind in ("eagle3", "eagle2"):
            task = trainer.TASKS[kind]
            with unittest.mock.patch.object(task, "inputs", autospec=True, side_effect=task.inputs) as inputs:
                common.quietly(trainer.main, self.prepared(kind), kind)
            seen[kind] = [call.args[1]["tokens"] for call in inputs.call_args_list]
        self.assertEqual(len(seen["eagle3"]), 6)
        for a, b in zip(seen["eagle3"], seen["eagle2"], strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_all_steps_are_those_of_the_shipped_heads_unless_more_are_named(self):
        self.assertNotIn("train-eagle2", run.wanted_steps(["all"]))
        self.assertEqual(run.wanted_steps(["train-eagle2", "all"]), list(run.STEPS))


class Exported(common.Scratch):
    """A head after a few steps, exported."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        scratch = common.tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.config = common.make_config(Path(scratch.name))
        common.write_data(cls.config)
        cls.output, _ = common.quietly(run.run_steps, ["train-eagle2", "export"], cls.config)
        cls.out = export.out_folder(cls.config, "eagle2")
        cls.teacher = teacher_of(cls.config)
        cls.model = export.load_exported_eagle2(cls.out, cls.teacher)
        cls.tokens = torch.randint(3, 272, (40,), generator=torch.Generator().manual_seed(4))
        cls.features = cls.model.features_of(cls.teacher, cls.tokens[None])[0]

    def test_its_feature_is_what_the_output_matrix_of_the_teacher_reads(self):
        last, _ = self.teacher.features(self.tokens[None], ())
        expected = self.teacher.logits(last)[0]
        torch.testing.assert_close(F.linear(self.features, self.teacher.lm_head_weight), expected)

    def test_file_and_checkpoint_guess_what_the_formulas_say(self):
        trained = trainer.Eagle2Task(self.config, self.teacher).model
        trained.load_state_dict(trainer.read_checkpoint(self.config.folder / "eagle2" / "checkpoint.pt")["model"])
        self.assertFalse(torch.allclose(trained.input_scale, torch.ones(())))
        reference = RowByRow(self.out)
        features = self.features.double().numpy()
        for model in (self.model, trained):
            with torch.no_grad():
                steps = list(model.unrolled(self.tokens[None], self.features[None], 4, torch.arange(40)))
                logits = [model.logits(a) for a in steps]
            for root in (1, 7, 30):
                rows = reference.chain(self.tokens, features, root, self.tokens[root + 1 : root + 4].tolist())
                for step, a in enumerate(rows):
                    expected = torch.from_numpy(reference.output @ a).float()
                    torch.testing.assert_close(logits[step][root - 1], expected, rtol=1e-3, atol=1e-3)

    def test_the_file_has_the_names_of_the_layout_and_an_embedding_only_when_asked(self):
        self.assertEqual(set(load_file(self.out / "model.safetensors")), TENSORS)
        config = copy.deepcopy(self.config)
        config.export.out_eagle2, config.export.embedding_eagle2 = str(self.folder / "copy"), True
        config.export.dtype = "float16"
        common.quietly(export.main, config)
        stored = load_file(self.folder / "copy" / "model.safetensors")
        self.assertEqual(set(stored), {*TENSORS, "embed_tokens.weight"})
        self.assertTrue(torch.equal(stored["embed_tokens.weight"], self.teacher.embedding.half()))

    def test_the_configuration_is_flat_and_names_the_teacher(self):
        fields = json.loads((self.out / "config.json").read_text())
        told = {"hidden_size": 64, "vocab_size": 272, "num_hidden_layers": 1, "bias": True, "hidden_act": "silu"}
        self.assertEqual({key: fields[key] for key in told}, told)
        self.assertFalse({"draft_vocab_size", "eagle_config"} & fields.keys())
        self.assertEqual(fields["espalier"]["teacher_sha256"], self.teacher.source_sha256)
        self.assertEqual(fields["espalier"]["teacher_bytes"], Path(self.config.teacher.path).stat().st_size)

    def test_the_order_has_every_token_once_and_frequent_ones_first(self):
        order = json.loads((self.out / "vocab_order.json").read_text())
        self.assertEqual(sorted(order), list(range(272)))
        self.assertEqual(order[:3], [0, 1, 2])  # control tokens
        sequences = simulate.load_sequences(self.config, "train")
        counts = np.bincount(sequences.tokens[sequences.answer], minlength=272)[order[3:]]
        self.assertTrue((np.diff(counts) <= 0).all())

    def test_a_chain_accepts_while_the_best_token_is_the_true_one(self):
        """On its own guesses, which it all accepts, and on a text that is none of them."""
        reference, features = RowByRow(self.out), self.features.double().numpy()
        guessed = []
        for _ in range(3):
            a = reference.chain(self.tokens, features, 20, guessed)[-1]
            guessed.append(int((reference.output @ a).argmax()))
        tokens = torch.cat((self.tokens[:21], torch.tensor(guessed), self.tokens[24:]))
        for text, expected in ((tokens, 3), (self.tokens, 0)):
            prefix = Prefix(self.model, text, self.model.features_of(self.teacher, text[None])[0])
            places = true_places(self.model, prefix, text, torch.tensor([20]), 1, 3)
            self.assertEqual(places.accepted([4])[0, 0, 2].item(), expected)

    def test_a_smaller_vocabulary_speaks_the_first_of_the_order(self):
        order = json.loads((self.out / "vocab_order.json").read_text())
        smaller = simulate.restricted(self.model, order[:50])
        a = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
        self.assertEqual(smaller.ids.tolist(), sorted(order[:50]))
        self.assertTrue(torch.equal(smaller.logits(a), self.model.logits(a)[:, smaller.ids]))
        self.assertEqual(len(self.model.lm_head), 272)

    @unittest.skipUnless(common.ENGINE.exists(), "no engine: build it or set ESPALIER")
    def test_the_engine_accepts_what_the_simulation_says(self):
        prompt = "the quick brown fox jumps over the lazy dog"
        model = ("-m", self.config.teacher.path)
        asked = ("generate", *model, "--raw", "-n", "60", "--ignore-eos", "--json", "--weights", "f32", "--kv", "f32")
        tokens = [token["id"] for token in common.ask_engine("tokenize", *model, "--json", prompt)]
        plain = common.ask_engine(*asked, "--draft", "none", prompt)
        drafted = common.ask_engine(
            *asked, *("--draft", "eagle", "--head", str(self.out), "--head-weights", "f32"),
            *("--tree", "dynamic", "--draft-nodes", "16", "--draft-depth", "6", "--draft-expand", "4"), prompt
        )  # fmt: skip
        self.assertEqual((drafted["draft"], drafted["tokens"]), ("eagle2", plain["tokens"]))
        text = simulate.Text(
            torch.tensor(tokens + plain["tokens"]), [(len(tokens), len(tokens) + len(plain["tokens"]))]
        )
        with torch.inference_mode():
            prefix = Prefix(self.model, text.tokens, self.model.features_of(self.teacher, text.tokens[None])[0])
            places = true_places(self.model, prefix, text.tokens, text.roots, 4, 6)
        lengths = places.accepted([16])[0, :, 5].numpy()
        self.assertEqual(drafted["accept_lengths"], common.replayed(text, lengths))

    def test_simulate_and_trees_leave_figures_and_a_suggestion(self):
        config = copy.deepcopy(self.config)
        config.trees.suggest_ngram = True
        common.quietly(simulate.main, config)
        output, _ = common.quietly(trees.main, config)
        self.assertIn("EAGLE-2, M=", output)
        result = json.loads((config.folder / "simulate" / "eagle2.json").read_text())
        self.assertEqual((result["sequences"], len(result["top"])), (4, 3))
        self.assertEqual({setting["vocabulary"] for setting in result["grid"]}, {common.VOCABULARY, 272})
        suggested = json.loads((self.out / "config.json").read_text())["espalier"]["suggested"]
        self.assertEqual((suggested["drafters"], suggested["nodes"]), (["eagle2", "ngram"], "auto"))
        card = (self.out / "README.md").read_text()
        for text in ("# EAGLE-2 head for llama3\n", "| chain of 5 |", "| noise | 0.2 |", "| heads | the teacher's |"):
            self.assertIn(text, card)


if __name__ == "__main__":
    unittest.main()
