"""Tests of the training pipeline from the training on: loss, heads, trainer, export, simulation, trees.

Run: python train/tests/pipeline_train_test.py

Heads are held to the independent forward of train/fixtures/heads. Tests that run the engine take it from $ESPALIER or
build/bin/espalier and are skipped without it.
"""

import contextlib
import copy
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "train"), str(ROOT / "train" / "fixtures")]

import numpy as np
import torch
import torch.nn.functional as F

import run
from heads import eagle3 as reference
from heads.loading import load_head
from heads.medusa import load_medusa, predict
from heads.teachers import read_teacher

from pipeline import card, export, labels, plot, simulate, soft_loss, step_attention, trainer, trees
from pipeline.config import (
    Config,
    Eagle2Config,
    Eagle3Config,
    ExportConfig,
    InputError,
    MedusaConfig,
    PrepareConfig,
    SimulateConfig,
    TeacherConfig,
    TreesConfig,
    VocabularyConfig,
)
from pipeline.draft_trees import ABSENT, Places, Prefix, true_places
from pipeline.files import sha256_of, write_arrays, write_json
from pipeline.teacher import teacher_of
from pipeline.vocabulary import vocabulary_folder

TINY = ROOT / "tests" / "data" / "tiny"
TEACHER = "llama3"  # four layers, 64 wide, 272 tokens
TAPS = [0, 2, 3]
VOCABULARY = 96
ENGINE = Path(os.environ.get("ESPALIER", ROOT / "build" / "bin" / "espalier"))


def quietly(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        result = function(*arguments)
    return out.getvalue(), result


def make_config(folder: Path, **eagle3) -> Config:
    training = {
        "steps": 6,
        "tokens_per_batch": 512,
        "max_tokens": 128,
        "warmup": 2,
        "checkpoint_every": 100,
        "log_every": 2,
    }
    return Config(
        work=str(folder),
        device="cpu",
        seed=3,
        teacher=TeacherConfig(str(TINY / f"{TEACHER}.gguf"), "float32"),
        prepare=PrepareConfig(["prompts.jsonl"]),
        vocabulary=VocabularyConfig(VOCABULARY),
        eagle3=Eagle3Config(**({"taps": TAPS, "unroll": 3} | training | eagle3)),
        eagle2=Eagle2Config(**({"unroll": 3} | training)),
        medusa=MedusaConfig(**({"heads": 3, "blocks": 2} | training)),
        export=ExportConfig(dtype="float32"),
        simulate=SimulateConfig(depths=3),
        trees=TreesConfig(sizes=[4, 16]),
    )


def write_data(config: Config) -> None:
    """Random sequences in the form `distil` leaves them, four of 16 held aside, and a vocabulary."""
    random = np.random.default_rng(5)
    lengths = random.integers(30, 90, 16)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    tokens = random.integers(3, 272, offsets[-1]).astype(np.int32)
    answer = np.concatenate([np.arange(n) >= n // 3 for n in lengths]).astype(np.uint8)
    shard = config.folder / "distilled" / "shard-00000.npz"
    write_arrays(
        shard,
        tokens=tokens,
        offsets=offsets,
        answer=answer,
        prompt_id=np.arange(16, dtype=np.int32),
        greedy=np.ones(16, np.uint8),
    )
    write_json(shard.parent / "manifest.json", {"shards": {shard.name: {"sha256": sha256_of(shard)}}})
    held, control = np.arange(4, dtype=np.int32), np.arange(3, dtype=np.int32)
    write_arrays(config.folder / "prepared" / "prompts.npz", held_ids=held, control_ids=control)
    chosen = np.sort(random.permutation(272)[:VOCABULARY])
    vocabulary = vocabulary_folder(config)
    vocabulary.mkdir(parents=True)
    np.save(vocabulary / "ids.npy", chosen)
    write_json(vocabulary / "order.json", random.permutation(chosen).tolist())
    write_json(vocabulary / "report.json", {})


def ask_engine(*arguments):
    """What the program prints with --json."""
    command = [str(ENGINE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return json.loads(done.stdout)


def replayed(text, lengths):
    """Accept lengths round by round. The engine drafts no further than the answer may go, which the end of the text
    does here."""
    ((begin, end),) = text.answers
    root, rounds = begin, []
    while root < end - 1:
        rounds.append(min(int(lengths[root - begin]), end - 2 - root))
        root += rounds[-1] + 1
    return rounds


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def prepared(self, name="work", **eagle3) -> Config:
        config = make_config(self.folder / name, **eagle3)
        write_data(config)
        return config


def small_loss(dtype=torch.float64):
    random = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(*size, generator=random, dtype=dtype).requires_grad_() for size in ((9, 8), (20, 8)))
    target = 0.8 * torch.softmax(torch.randn(9, 20, generator=random, dtype=dtype), -1)
    return x, weight, target, target.sum(-1), torch.rand(9, generator=random, dtype=dtype)


def fresh_task():
    """An untrained head of some vocabulary, and tokens [2, 64]."""
    config = make_config(Path("unused"))
    with unittest.mock.patch.object(trainer, "load_vocabulary") as load:
        load.return_value.ids = np.arange(0, 272, 3)
        task = trainer.Eagle3Task(config, teacher_of(config))
    tokens = torch.randint(3, 272, (2, 64), generator=torch.Generator().manual_seed(7))
    task.initialise({"tokens": tokens, "answer": torch.ones(2, 64, dtype=torch.bool)}, 1)
    return task, tokens


class SoftLoss(unittest.TestCase):
    def expected(self, x, weight, target, mass, share):
        loss = (-(target * torch.log_softmax(x @ weight.T, -1)).sum(-1) * share).sum()
        return loss, *torch.autograd.grad(loss, (x, weight))

    def test_is_the_cross_entropy_and_its_gradients(self):
        given = small_loss()
        loss, best = soft_loss.soft_cross_entropy(*given)
        found = loss, *torch.autograd.grad(3 * loss, given[:2])
        expected = self.expected(*given)
        self.assertTrue(torch.equal(best, (given[0] @ given[1].T).argmax(-1)))
        self.assertAlmostEqual(found[0].item(), expected[0].item(), places=5)
        for ours, theirs in zip(found[1:], expected[1:]):
            torch.testing.assert_close(ours.double(), 3 * theirs, rtol=1e-5, atol=1e-6)

    def test_chunks_change_nothing(self):
        given = small_loss()
        whole = torch.autograd.grad(soft_loss.soft_cross_entropy(*given)[0], given[:2])
        with unittest.mock.patch.object(soft_loss, "CHUNK_ELEMENTS", 40):
            parts = torch.autograd.grad(soft_loss.soft_cross_entropy(*given)[0], given[:2])
        for a, b in zip(whole, parts):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)

    def test_kernel_agrees_with_the_plain_version(self):
        """In Triton's interpreter, so that it is run without a GPU."""
        program = "import torch; from pipeline import soft_loss; print(soft_loss.kernel_is_right(torch.device('cpu')))"
        environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT / "train")}
        if subprocess.run([sys.executable, "-c", "import triton"], capture_output=True).returncode:
            self.skipTest("no Triton")
        done = subprocess.run([sys.executable, "-B", "-c", program], env=environment, capture_output=True, text=True)
        self.assertIn("True", done.stdout, done.stdout + done.stderr)


class StepAttention(unittest.TestCase):
    def test_joined_parts_are_one_softmax_forwards_and_backwards(self):
        self.assertLess(step_attention.compared(torch.device("cpu"), torch.float32), 1e-5)
        self.assertLess(step_attention.compared(torch.device("cpu"), torch.bfloat16), step_attention.TOLERANCE)

    def test_rows_left_out_change_nothing_for_the_others(self):
        task, tokens = fresh_task()
        _, taps = task.teacher.features(tokens, TAPS)
        some = torch.tensor([3, 4, 40, 66, 100, 128])  # the last one fills up
        with torch.no_grad():
            full = list(task.model.unrolled(tokens, taps, 4, torch.arange(128)))
            few = list(task.model.unrolled(tokens, taps, 4, some))
        for a, b in zip(full, few):
            torch.testing.assert_close(a[some[:-1]], b[:-1], rtol=1e-5, atol=1e-5)

    def gradients(self, task, tokens, answer, autocast):
        inputs = task.inputs({"tokens": tokens, "answer": answer} | labels.label_rows(answer, 3))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            outcome = task.model(*inputs)
        return torch.autograd.grad(outcome.loss, list(task.model.parameters()))

    def test_a_step_as_on_a_gpu_has_the_gradients_of_the_plain_one(self):
        """bfloat16 products and joined attention against float32 and plain attention: how a GPU does it."""
        task, tokens = fresh_task()
        answer = torch.ones(2, 64, dtype=torch.bool)
        answer[:, :10] = False
        answer[1, 50:] = False
        expected = self.gradients(task, tokens, answer, autocast=False)
        with unittest.mock.patch("pipeline.draft_layer.step_attention", step_attention.joined_attention):
            joined = self.gradients(task, tokens, answer, autocast=False)
            rounded = self.gradients(task, tokens, answer, autocast=True)
        for name, a, b, c in zip(dict(task.model.named_parameters()), expected, joined, rounded):
            self.assertLess((a - b).norm() / a.norm(), 1e-4, name)
            self.assertLess((a - c).norm() / a.norm(), 0.1, name)


class LabelRows(unittest.TestCase):
    def test_rows_are_positions_before_answer_tokens_and_steps_begin_at_answer_roots(self):
        answer = torch.tensor([[0, 0, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0]], dtype=torch.bool)
        made = labels.label_rows(answer, 3)
        self.assertEqual(
            made["rows"][:4].tolist(), [1, 2, 3, 6]
        )  # in front of tokens 2, 3, 4, and token 1 of the second row
        self.assertEqual(made["roots"][:5].tolist(), [1, 2, 3, 6, 12])
        counts = (made["shares"] > 0).tolist()
        self.assertEqual(counts[0][:4], [False, True, True, False])  # root x_p written by the teacher, and p >= 1
        self.assertEqual(counts[1][:4], [False, False, True, False])
        self.assertEqual(counts[2][:4], [False, False, False, False])
        self.assertEqual(made["places"][0, 1:3].tolist(), [0, 1])  # label 2 is predicted from row 1, label 3 from row 2
        self.assertEqual(made["places"][1, 2].item(), 0)
        self.assertFalse(any(any(row[4:]) for row in counts))
        self.assertAlmostEqual(float(made["shares"][0].sum()), 1.0)

    def test_probability_outside_the_vocabulary_is_missing_from_the_mass(self):
        config = make_config(Path("unused"))
        teacher = teacher_of(config)
        last, _ = teacher.features(torch.arange(3, 27)[None], ())
        ids = torch.arange(10, 200, 3)
        answer = torch.zeros(1, 24, dtype=torch.bool)
        answer[0, [5, 10]] = True
        made = labels.make_labels(teacher, last, labels.label_rows(answer, 1), ids)
        everything = torch.softmax(teacher.logits(last[0, [4, 9]]), -1)
        torch.testing.assert_close(made.target[:2].float(), everything[:, ids], atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(made.mass[:2], everything[:, ids].sum(-1), atol=1e-4, rtol=1e-3)
        self.assertTrue((made.mass[:2] < 0.95).all())
        self.assertTrue(torch.equal(made.best[:2], everything.argmax(-1)))


class Trained(Scratch):
    """A head of each kind after a few steps, exported."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.config = make_config(Path(scratch.name))
        write_data(cls.config)
        cls.output = "".join(quietly(trainer.main, cls.config, kind)[0] for kind in ("eagle3", "medusa"))
        cls.output += quietly(export.main, cls.config)[0]
        cls.eagle3 = export.out_folder(cls.config, "eagle3")
        cls.medusa = export.out_folder(cls.config, "medusa")
        cls.teacher = teacher_of(cls.config)
        random = torch.Generator().manual_seed(4)
        cls.tokens = torch.randint(3, 272, (40,), generator=random)
        _, taps = cls.teacher.features(cls.tokens[None], TAPS)
        cls.taps = taps[0]
        cls.model = export.load_exported_eagle3(cls.eagle3, tuple(TAPS), cls.teacher)
        cls.head = load_head(cls.eagle3, read_teacher(TINY / TEACHER))

    def chain(self, head, root, tokens):
        """The reference: rows of the prefix, then one row for each given token below the root. a of every row."""
        run = reference.Forward(head, root + len(tokens) + 1)
        seen = torch.ones(root, root).tril().bool()
        a = run.rows(reference.Batch(self.tokens[1 : root + 1], run.fuse(self.taps[:root]), torch.arange(root), seen))
        outputs = [a[-1]]
        for depth, token in enumerate(tokens):
            seen = torch.ones(1, root + depth + 1, dtype=torch.bool)
            outputs.append(
                run.rows(reference.Batch(torch.tensor([token]), outputs[-1][None], torch.tensor([root + depth]), seen))[
                    0
                ]
            )
        return run, outputs

    def test_progress_and_export_say_what_they_do(self):
        for text in (
            "eagle3: [####################] 100 %",
            "0:00 left  step 6/6  loss",
            "medusa: [####################] 100 %",
            "EAGLE-3 head",
            "3 Medusa heads of 2 blocks",
        ):
            self.assertIn(text, self.output)

    def test_unrolled_steps_are_the_rows_of_a_chain_below_every_root(self):
        steps = list(self.model.unrolled(self.tokens[None], self.taps[None], 4, torch.arange(40)))
        for root in (1, 7, 30):
            run, outputs = self.chain(self.head, root, self.tokens[root + 1 : root + 4].tolist())
            for step, expected in enumerate(outputs):
                torch.testing.assert_close(steps[step][root - 1], expected, rtol=1e-4, atol=1e-4)
                logits = self.model.logits(steps[step][root - 1])
                torch.testing.assert_close(logits, run.logits(expected[None])[0], rtol=1e-4, atol=1e-4)

    def test_all_files_hold_the_same_head(self):
        _, expected = self.chain(self.head, 12, [5, 9])
        for name, bound in (("head.gguf", 1e-5), ("head-q8_0.gguf", 0.05)):
            head = load_head(self.eagle3 / name, read_teacher(TINY / TEACHER))
            self.assertEqual(head.taps, tuple(TAPS))
            self.assertTrue(torch.equal(head.target_ids, self.model.ids))
            _, found = self.chain(head, 12, [5, 9])
            self.assertLess((found[-1] - expected[-1]).abs().max() / expected[-1].abs().max(), bound)

    def test_the_checkpoint_and_its_export_compute_the_same(self):
        """The scale of the features is folded into fc."""
        checkpoint = trainer.read_checkpoint(self.config.folder / "eagle3" / "checkpoint.pt")
        trained = trainer.Eagle3Task(self.config, self.teacher).model
        trained.load_state_dict(checkpoint["model"])
        self.assertFalse(torch.allclose(trained.feature_scale, torch.ones(())))
        torch.testing.assert_close(trained.fuse(self.taps), self.model.fuse(self.taps), rtol=1e-4, atol=1e-4)

    def test_vocabulary_order_lists_every_draft_token_once(self):
        order = json.loads((self.eagle3 / "vocab_order.json").read_text())
        self.assertEqual(sorted(order), self.model.ids.tolist())

    def test_medusa_heads_read_the_hidden_state_behind_the_final_norm(self):
        head = load_medusa(self.medusa, read_teacher(TINY / TEACHER))
        self.assertEqual((head.layout, len(head.weights), len(head.weights[0])), ("B", 3, 2))
        hidden = self.teacher.final_norm(self.teacher.features(self.tokens[None], ())[0])[0]
        expected = predict(head, hidden)
        model = export.load_exported_medusa(self.medusa, self.teacher)
        for k in range(3):
            torch.testing.assert_close(F.linear(model.head(k, hidden), model.output), expected[k], rtol=1e-4, atol=1e-4)

    def test_configs_name_the_file_of_the_teacher(self):
        for folder in (self.eagle3, self.medusa):
            fields = json.loads((folder / "config.json").read_text())["espalier"]
            self.assertEqual(fields["teacher_sha256"], self.teacher.source_sha256)
            self.assertEqual(fields["teacher_bytes"], Path(self.config.teacher.path).stat().st_size)

    def test_cards_name_teacher_recipe_and_licence(self):
        for folder in (self.eagle3, self.medusa):
            card = (folder / "README.md").read_text()
            for text in (
                "for llama3\n",  # as the file is called; inside it is "tiny llama3"
                f"| teacher | llama3, `llama3.gguf`, {Path(self.config.teacher.path).stat().st_size:,} bytes |",
                "| its name in that file | tiny llama3 |",
                self.teacher.source_sha256,
                "| sequences | 12, ",
                "| peak_rate |",
                "| hidden | the teacher's |" if folder == self.eagle3 else "| blocks | 2 |",
                "That of the teacher: its files do not name one.",
            ):
                self.assertIn(text, card)
            self.assertNotIn("accuracy", card)

    def test_cards_have_the_command_with_its_file_and_settings(self):
        config = make_config(self.folder)
        config.source = str(Path.cwd() / "train" / "configs" / "my own.toml")
        config.settings = ['variant="a"', "eagle3.steps=8"]
        self.assertEqual(
            card.command(config, "medusa"),
            """python train/run.py 'train/configs/my own.toml' --set 'variant="a"' --set eagle3.steps=8 """
            "prepare distil vocabulary train-medusa export simulate trees",
        )

    def test_a_teacher_is_called_by_its_file_without_the_quantisation(self):
        config = make_config(self.folder)
        for name in ("SmolLM2-135M-Instruct.Q4_1", "SmolLM2-135M-Instruct-Q8_0", "SmolLM2-135M-Instruct"):
            config.teacher.path = f"models/{name}.gguf"
            self.assertEqual(card.model_name(config), "SmolLM2-135M-Instruct")
        config.teacher.path = "Mistral-7B-v0.3.IQ4_XS.gguf"
        self.assertEqual(card.model_name(config), "Mistral-7B-v0.3")

    def exported_again(self, **settings):
        """The same heads, exported to a folder of this test."""
        config = copy.deepcopy(self.config)
        config.export = ExportConfig(
            out_eagle3=str(self.folder / "eagle3"), out_medusa=str(self.folder / "medusa"), dtype="float32", **settings
        )
        quietly(export.main, config)
        return config

    def test_only_the_wanted_formats_are_there(self):
        self.exported_again()
        weights = ("model.safetensors", "head.gguf", "head-q8_0.gguf")
        for formats, names in ((["gguf-q8_0"], weights[2:]), (["gguf"], weights[1:2]), (["safetensors"], weights[:1])):
            self.exported_again(formats_eagle3=formats)
            found = {path.name for path in (self.folder / "eagle3").iterdir()}
            self.assertEqual(found, {"config.json", "vocab_order.json", "README.md", *names})
            model = export.load_exported_eagle3(self.folder / "eagle3", tuple(TAPS), self.teacher)
            torch.testing.assert_close(model.lm_head, self.model.lm_head, rtol=0.01, atol=0.01)

    def test_another_export_keeps_what_was_suggested_for_the_same_teacher(self):
        config = self.exported_again()
        for kind in ("eagle3", "medusa"):
            trees.write_suggestion(config, kind, {"nodes": "auto", "depth": 3}, "avx2")
        before = [(self.folder / kind / "config.json").read_bytes() for kind in ("eagle3", "medusa")]
        self.assertIn(b"avx2", before[0])
        self.exported_again()
        self.assertEqual([(self.folder / kind / "config.json").read_bytes() for kind in ("eagle3", "medusa")], before)

    def test_what_was_suggested_for_another_teacher_is_left_out_and_said(self):
        config = self.exported_again()
        path = self.folder / "medusa" / "config.json"
        fields = json.loads(path.read_text())
        fields["espalier"] |= {"teacher_sha256": "0" * 64, "suggested": {"depth": 9}}
        write_json(path, fields)
        output, _ = quietly(export.main, config)
        self.assertIn("medusa/config.json: espalier.suggested was for another teacher", output)
        self.assertNotIn("suggested", json.loads(path.read_text())["espalier"])

    def test_figures_of_other_weights_are_in_no_card_and_no_tree(self):
        config = self.exported_again(formats_eagle3=["gguf-q8_0"])
        config.simulate = SimulateConfig(depths=2, max_sequences=2, grid_sequences=1)
        quietly(simulate.main, config)
        readme = self.folder / "eagle3" / "README.md"
        self.assertIn("| right | ", readme.read_text())
        config.export.formats_eagle3 = ["gguf"]
        quietly(export.main, config)
        self.assertNotIn("| right | ", readme.read_text())
        with self.assertRaisesRegex(InputError, "eagle3.json: expected figures of the exported head, got those of"):
            quietly(trees.main, config)

    def test_the_grid_may_have_fewer_sequences(self):
        config = self.exported_again()
        config.simulate = SimulateConfig(depths=2, max_sequences=3, grid_sequences=2)
        quietly(simulate.main, config)
        found = [json.loads((config.folder / "simulate" / f"{kind}.json").read_text()) for kind in ("eagle3", "medusa")]
        self.assertEqual([result["sequences"] for result in found], [2, 3])
        self.assertEqual(len(simulate.texts_for(make_config(self.folder), "eagle3", [None] * 5)), 5)

    def test_every_instruction_set_with_step_costs_gets_its_tree(self):
        config = self.exported_again()
        config.simulate = SimulateConfig(depths=3, max_sequences=2)
        quietly(simulate.main, config)
        for isa, of_eight in (("avx512", 1.2), ("neon", 40.0)):
            steps = [{"name": "step", "rows": r, "median_seconds": s} for r, s in ((1, 1.0), (8, of_eight))]
            write_json(self.folder / f"{isa}.json", {"isa": isa, "figures": steps})
        config.trees.step_costs = [str(self.folder / f"{isa}.json") for isa in ("avx512", "neon")]
        output, _ = quietly(trees.main, config)
        self.assertIn("EAGLE-3 on neon, M=2, ", output)
        suggested = json.loads((self.folder / "eagle3" / "config.json").read_text())["espalier"]["suggested"]
        self.assertEqual(list(suggested["isa"]), ["avx512", "neon"])
        for isa in suggested["isa"]:
            self.assertTrue((config.folder / "trees" / f"eagle3-{isa}.json").exists())

    def test_figures_from_elsewhere_are_in_the_card(self):
        (self.folder / "measured.md").write_text("Measured on the moon: 3.2.\n")
        self.exported_again(figures_medusa=str(self.folder / "measured.md"), licence="Ours.")
        text = (self.folder / "medusa" / "README.md").read_text()
        self.assertIn("\n\nMeasured on the moon: 3.2.\n\n## Recipe\n", text)
        self.assertIn("## Licence\n\nOurs.\n", text)
        config = make_config(self.folder)
        config.export.figures_medusa, config.variant = str(self.folder / "measured.md"), "study"
        self.assertEqual(card.figures(config, "medusa"), "")  # they are not those of a variant
        with self.assertRaisesRegex(InputError, "nowhere.md: cannot be read"):
            self.exported_again(figures_eagle3="nowhere.md")

    def brute_places(self, root, width, levels):
        """Candidates by following every path on its own through the reference forward."""
        run, outputs = self.chain(self.head, root, [])
        frontier = [(0.0, (), outputs[-1])]
        found = []
        for _ in range(levels):
            level = []
            for score, path, a in frontier:
                best = torch.log_softmax(run.logits(a[None])[0], -1).topk(width)
                tokens = self.head.target_ids[best.indices].tolist()
                level += [(score + value, (*path, token)) for value, token in zip(best.values.tolist(), tokens)]
            found.append(level)
            chosen = sorted(level, key=lambda entry: -entry[0])[:width]
            frontier = [(score, path, self.chain(self.head, root, list(path))[1][-1]) for score, path in chosen]
        return found

    def test_trees_have_the_candidates_of_a_growth_path_by_path(self):
        width, levels = 3, 3
        for root in (6, 20):
            found = self.brute_places(root, width, levels)
            for target in (found[2][1][1], found[2][5][1], found[1][4][1] + (1,)):
                tokens = torch.cat((self.tokens[: root + 1], torch.tensor(target)))
                places = true_places(
                    self.model,
                    Prefix(self.model, tokens, self.taps_of(tokens)),
                    tokens,
                    torch.tensor([root]),
                    width,
                    levels,
                )
                for depth, levels_used in itertools.product(range(levels), range(levels)):
                    expected = self.place(found, target[: depth + 1], levels_used)
                    self.assertEqual(places.true[0, levels_used, depth].item(), expected)
                    best = min(
                        (
                            self.place(found, path, levels_used)
                            for _, path in found[depth]
                            if path[:-1] == target[:depth]
                        ),
                        default=ABSENT,
                    )
                    self.assertEqual(places.best[0, levels_used, depth].item(), best)

    def taps_of(self, tokens):
        return self.teacher.features(tokens[None], TAPS)[1][0]

    def place(self, found, path, levels_used):
        scores = {candidate: score for level in found[: levels_used + 1] for score, candidate in level}
        return sum(score > scores[path] for score in scores.values()) if path in scores else ABSENT

    def test_a_chain_accepts_while_the_best_token_is_the_true_one(self):
        roots = torch.arange(1, 36)
        places = true_places(self.model, Prefix(self.model, self.tokens, self.taps), self.tokens, roots, 1, 3)
        lengths = places.accepted([4])[0, :, 2]
        rows = self.model.unrolled(self.tokens[None], self.taps[None], 3, torch.arange(40))
        steps = [self.model.ids[self.model.logits(a).argmax(-1)] for a in rows]
        for root, length in zip(roots.tolist(), lengths.tolist()):
            right = [steps[s][root - 1] == self.tokens[root + 1 + s] for s in range(3)]
            self.assertEqual(length, next((s for s, hit in enumerate(right) if not hit), 3))

    def test_depths_without_guesses_below_the_true_path_are_not_judged(self):
        places = Places(torch.tensor([[[0, 4, 9]]]), torch.tensor([[[0, 3, 7]]]))
        self.assertEqual(places.accepted([2, 5, 9, 11]).flatten().tolist(), [1, 1, 2, 3])
        self.assertEqual(places.judged([2, 5, 9, 11]).flatten().tolist(), [1, 2, 3, 3])
        found = simulate.static_rounds([[0], [1], [0, 0]], np.array([[0, 1], [1, 0], [2, 0]]))
        self.assertEqual(found.tolist(), [[1, 1, 0], [2, 1, 1]])

    def test_a_head_is_read_back_from_its_gguf_alone(self):
        folder = self.folder / "alone"
        folder.mkdir()
        for name in ("config.json", "head-q8_0.gguf"):
            (folder / name).symlink_to(self.eagle3 / name)
        found = export.load_exported_eagle3(folder, tuple(TAPS), self.teacher)
        self.assertTrue(torch.equal(found.ids, self.model.ids))
        for name, parameter in self.model.named_parameters():
            error = (dict(found.named_parameters())[name] - parameter).abs().max() / parameter.abs().max()
            self.assertLess(error, 0.005, name)

    def test_turns_of_the_engine_are_simulated_behind_their_prompts(self):
        write_json(self.folder / "turns.json", [{"prompt": [5, 6, 7], "tokens": [8, 9, 10, 11]}])
        (text,) = simulate.turns_of(self.folder / "turns.json")
        self.assertEqual((text.tokens.tolist(), text.answers), ([5, 6, 7, 8, 9, 10, 11], [(3, 7)]))
        config = copy.deepcopy(self.config)
        config.work = str(self.folder)
        config.export = ExportConfig(out_eagle3=str(self.eagle3), out_medusa=str(self.medusa), dtype="float32")
        config.simulate.turns, config.simulate.grid = [str(self.folder / "turns.json")], False
        quietly(simulate.main, config)
        found = json.loads((self.folder / "simulate-turns" / "eagle3.json").read_text())
        self.assertEqual((found["source"], found["sequences"], "grid" in found), ("turns.json", 1, False))

    def test_what_the_engine_answered_changes_neither_trees_nor_cards(self):
        write_json(self.folder / "turns.json", [{"prompt": [5, 6, 7], "tokens": [8, 9, 10, 11]}])
        config = copy.deepcopy(self.config)
        config.work = str(self.folder)
        config.export = ExportConfig(out_eagle3=str(self.eagle3), out_medusa=str(self.medusa), dtype="float32")
        config.simulate.turns, config.simulate.grid = [str(self.folder / "turns.json")], False
        cards = [folder / "README.md" for folder in (self.eagle3, self.medusa)]
        before = [card.read_text() for card in cards]
        quietly(simulate.main, config)
        self.assertEqual([card.read_text() for card in cards], before)
        self.assertFalse((self.folder / "simulate").exists())

    def test_simulate_and_trees_leave_figures_and_choices(self):
        quietly(simulate.main, self.config)
        output, _ = quietly(trees.main, self.config)
        result = json.loads((self.config.folder / "simulate" / "eagle3.json").read_text())
        self.assertEqual(result["sequences"], 4)
        self.assertEqual(len(result["top"]), 3)
        self.assertIn("EAGLE-3, M=", output)
        choices = json.loads((self.medusa / "choices.json").read_text())
        self.assertLessEqual(len(choices), 15)
        suggested = json.loads((self.eagle3 / "config.json").read_text())["espalier"]["suggested"]
        self.assertEqual((suggested["drafters"], suggested["nodes"]), (["eagle3"], "auto"))
        self.assertIn("| chain of 5 |", (self.eagle3 / "README.md").read_text())

    @unittest.skipUnless(ENGINE.exists(), "no engine: build it or set ESPALIER")
    def test_the_engine_loads_every_file_and_accepts_what_the_simulation_says(self):
        model = ("-m", self.config.teacher.path)
        prompt = "the quick brown fox jumps over the lazy dog"
        tokens = ask_engine("tokenize", *model, "--json", prompt)
        tokens = [token["id"] if isinstance(token, dict) else token for token in tokens]
        common = ("generate", *model, "--raw", "-n", "60", "--ignore-eos", "--json", "--weights", "f32", "--kv", "f32")
        plain = ask_engine(*common, "--draft", "none", prompt)
        self.assertEqual(plain["prompt_tokens"], len(tokens))
        text = simulate.Text(
            torch.tensor(tokens + plain["tokens"]), [(len(tokens), len(tokens) + len(plain["tokens"]))]
        )
        shape = ("--tree", "dynamic", "--draft-nodes", "16", "--draft-depth", "6", "--draft-expand", "4")
        drafted = {}
        for head in (self.eagle3, self.eagle3 / "head.gguf", self.eagle3 / "head-q8_0.gguf"):
            drafted[head] = ask_engine(*common, "--draft", "eagle3", "--head", str(head), *shape, prompt)
            self.assertEqual(drafted[head]["tokens"], plain["tokens"])
        quietly(simulate.main, self.config)
        quietly(trees.main, self.config)
        choices = self.medusa / "choices.json"
        medusa = ask_engine(
            *common, "--draft", "medusa", "--head", str(self.medusa), "--tree", f"static:{choices}", prompt
        )
        self.assertEqual(medusa["tokens"], plain["tokens"])
        self.assertEqual(drafted[self.eagle3]["accept_lengths"], replayed(text, self.eagle3_lengths(text)))
        self.assertEqual(
            medusa["accept_lengths"], replayed(text, self.medusa_lengths(text, json.loads(choices.read_text())))
        )

    def eagle3_lengths(self, text):
        with torch.inference_mode():
            prefix = Prefix(self.model, text.tokens, self.taps_of(text.tokens))
            places = true_places(self.model, prefix, text.tokens, text.roots, 4, 6)
        return places.accepted([16])[0, :, 5].numpy()

    def medusa_lengths(self, text, choices):
        ranks = simulate.medusa_ranks(export.load_exported_medusa(self.medusa, self.teacher), self.teacher, text)
        return simulate.static_rounds(choices, ranks)[0]


class Training(Scratch):
    def test_a_variant_leaves_the_heads_of_others_alone(self):
        config = self.prepared()
        config.variant, config.export.out_eagle3 = "shallow", str(self.folder / "shipped")
        quietly(trainer.main, config, "eagle3")
        quietly(export.main, config)
        folder = self.folder / "work" / "variants" / "shallow"
        self.assertTrue((folder / "eagle3" / "checkpoint.pt").exists())
        self.assertTrue((folder / "export" / "eagle3" / "head-q8_0.gguf").exists())
        self.assertFalse((self.folder / "shipped").exists() or (self.folder / "work" / "eagle3").exists())

    def test_a_checkpoint_of_other_data_is_refused(self):
        config = self.prepared()
        quietly(trainer.main, config, "eagle3")
        config.data.sequences = 3
        with self.assertRaisesRegex(InputError, "made by another recipe"):
            quietly(trainer.main, config, "eagle3")

    def test_a_checkpoint_of_another_distillation_is_refused(self):
        config = self.prepared()
        quietly(trainer.main, config, "eagle3")
        shard = min((config.folder / "distilled").glob("shard-*.npz"))
        arrays = dict(np.load(shard))
        arrays["tokens"][-1] ^= 1
        vocabulary = vocabulary_folder(config)
        write_arrays(shard, **arrays)
        write_json(shard.parent / "manifest.json", {"shards": {shard.name: {"sha256": sha256_of(shard)}}})
        vocabulary.rename(vocabulary_folder(config))
        with self.assertRaisesRegex(InputError, "made by another recipe"):
            quietly(trainer.main, config, "eagle3")

    def parameters(self, config, kind="eagle3"):
        return trainer.read_checkpoint(config.folder / kind / "checkpoint.pt")

    def assert_same_state(self, a, b):
        self.assertEqual(a["step"], b["step"])
        for name in a["model"]:
            self.assertTrue(torch.equal(a["model"][name], b["model"][name]), name)
        for key, state in a["optimiser"]["state"].items():
            for name, value in state.items():
                self.assertTrue(torch.equal(value, b["optimiser"]["state"][key][name]), name)

    def test_a_killed_training_goes_on_bit_for_bit(self):
        whole, broken = self.prepared("whole"), self.prepared("broken", checkpoint_every=3)
        quietly(trainer.main, whole, "eagle3")
        dying = self.die_after_the_first(trainer.save_checkpoint)
        with unittest.mock.patch.object(trainer, "save_checkpoint", dying), self.assertRaises(KeyboardInterrupt):
            quietly(trainer.main, broken, "eagle3")
        self.assertEqual(self.parameters(broken)["step"], 3)
        quietly(trainer.main, broken, "eagle3")
        self.assert_same_state(self.parameters(whole), self.parameters(broken))
        steps = [
            json.loads(line)["step"] for line in (broken.folder / "eagle3" / "metrics.jsonl").read_text().splitlines()
        ]
        self.assertEqual(steps, [2, 4, 6])

    def die_after_the_first(self, save):
        def saved(*arguments):
            save(*arguments)
            raise KeyboardInterrupt

        return saved

    def test_a_training_that_stops_by_the_clock_is_a_chain_of_short_ones(self):
        whole, short = self.prepared("whole"), self.prepared("short", stop_after_seconds=1e-6)
        quietly(trainer.main, whole, "eagle3")
        for step in range(1, 7):
            quietly(trainer.main, short, "eagle3")
            self.assertEqual(self.parameters(short)["step"], step)
        self.assert_same_state(self.parameters(whole), self.parameters(short))

    def test_what_is_half_trained_is_not_exported_by_the_same_command(self):
        short = self.prepared("short", stop_after_seconds=1e-6)
        with self.assertRaisesRegex(InputError, "train-eagle3: stopped by its time limit.*: export did not run"):
            quietly(run.run_steps, ["train-eagle3", "export"], short)
        self.assertFalse(export.out_folder(short, "eagle3").exists())

    def test_a_damaged_checkpoint_is_named(self):
        config = self.prepared()
        path = config.folder / "eagle3" / "checkpoint.pt"
        path.parent.mkdir()
        for content in (b"", b"PK\x03\x04 cut short", b"no checkpoint"):
            path.write_bytes(content)
            with self.assertRaisesRegex(InputError, "checkpoint.pt: expected a checkpoint of this pipeline, got "):
                trainer.read_checkpoint(path)

    def test_other_ranks_than_before_are_told(self):
        config = self.prepared(stop_after_seconds=1e-6)
        quietly(trainer.main, config, "eagle3")
        path = config.folder / "eagle3" / "checkpoint.pt"
        torch.save(torch.load(path, weights_only=True) | {"world": 4}, path)
        output, _ = quietly(trainer.main, config, "eagle3")
        self.assertIn("4 ranks came that far, 1 go on", output)

    def test_metrics_that_a_full_disk_cut_short_are_no_obstacle(self):
        path = self.folder / "metrics.jsonl"
        path.write_text('{"step": 2, "loss": 1.0}\n{"step": 4, "loss": 0.5}\n{"step": 6, "lo')
        trainer.cut_metrics(path, 2)
        self.assertEqual(path.read_text(), '{"step": 2, "loss": 1.0}\n')

    def test_a_checkpoint_of_another_vocabulary_is_not_exported(self):
        config = self.prepared()
        quietly(trainer.main, config, "eagle3")
        vocabulary = vocabulary_folder(config)
        np.save(vocabulary / "ids.npy", np.load(vocabulary / "ids.npy")[:-1])
        with self.assertRaisesRegex(InputError, f"for the {VOCABULARY - 1} tokens of the vocabulary, got one for"):
            quietly(export.main, config)

    def test_another_recipe_does_not_go_on(self):
        config = self.prepared()
        quietly(trainer.main, config, "eagle3")
        config.eagle3.peak_rate = 1e-4
        with self.assertRaisesRegex(InputError, "another recipe"):
            quietly(trainer.main, config, "eagle3")

    def test_starts_from_a_given_checkpoint(self):
        first = self.prepared("first")
        quietly(trainer.main, first, "eagle3")
        second = self.prepared(
            "second", from_checkpoint=str(first.folder / "eagle3" / "checkpoint.pt"), peak_rate=1e-12
        )
        quietly(trainer.main, second, "eagle3")
        for name, value in self.parameters(first)["model"].items():
            torch.testing.assert_close(value, self.parameters(second)["model"][name], rtol=1e-5, atol=1e-6)

    def test_a_given_checkpoint_of_another_size_is_refused_by_name(self):
        first = self.prepared("first", intermediate=32)
        quietly(trainer.main, first, "eagle3")
        path = first.folder / "eagle3" / "checkpoint.pt"
        second = self.prepared("second", intermediate=64, from_checkpoint=str(path))
        with self.assertRaisesRegex(InputError, "first/eagle3/checkpoint.pt: expected the parameters .* gate_up"):
            quietly(trainer.main, second, "eagle3")

    def test_learns_what_it_sees(self):
        config = self.prepared(steps=40, peak_rate=5e-3)
        quietly(trainer.main, config, "eagle3")
        losses = [
            json.loads(line)["loss"] for line in (config.folder / "eagle3" / "metrics.jsonl").read_text().splitlines()
        ]
        self.assertLess(losses[-1], losses[0] - 0.1)
        xml.etree.ElementTree.parse(config.folder / "eagle3" / "curves.svg")

    def test_two_ranks_train_together(self):
        config = self.prepared()
        program = self.folder / "train.py"
        folders = [str(ROOT / "train"), str(ROOT / "train" / "tests")]
        program.write_text(
            f"import sys; sys.dont_write_bytecode = True; sys.path[:0] = {folders!r}\n"
            "import pathlib, pipeline_train_test as t\n"
            f"t.trainer.main(t.make_config(pathlib.Path({config.work!r})), 'eagle3')\n"
        )
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc_per_node=2",
            "--master_port=0",
            "--standalone",
            str(program),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertEqual(self.parameters(config)["step"], 6)
        self.assertEqual(done.stdout.count("step 6/6"), 1, done.stdout)

    def test_rate_warms_up_and_falls_to_the_final_rate(self):
        section = Eagle3Config(taps=TAPS, steps=110, warmup=10, peak_rate=1.0, final_rate=0.1)
        rates = [trainer.rate_at(step, section) for step in range(111)]
        self.assertAlmostEqual(rates[0], 0.1)
        self.assertAlmostEqual(max(rates), 1.0)
        self.assertAlmostEqual(rates[60], 0.55)
        self.assertAlmostEqual(rates[110], 0.1)


class Curves(unittest.TestCase):
    def test_are_running_means_of_what_is_a_number(self):
        nan = float("nan")
        self.assertEqual(plot.smoothed([1.0, 3.0, nan, 8.0], 2), [1.0, 2.0, 3.0, 8.0])
        self.assertTrue(np.isnan(plot.smoothed([nan, 1.0], 1)[0]))

    def test_ticks_are_round_and_reach_from_zero_to_the_top(self):
        self.assertEqual(plot.ticks(0.816), [0, 0.2, 0.4, 0.6, 0.8])
        self.assertEqual(plot.ticks(8000), [0, 2000, 4000, 6000, 8000])
        for top in (1e-9, 0.03, 1.0, 2.4, 7.0, 99.0, 123456.0):
            self.assertLessEqual(plot.ticks(top)[-1], top * (1 + 1e-9))
            self.assertTrue(5 <= len(plot.ticks(top)) <= 11, top)

    def test_every_depth_is_drawn_though_a_batch_gave_no_number(self):
        with tempfile.TemporaryDirectory() as name:
            rows = [{"step": step, "losses": [float("nan"), 2.0], "accuracies": [0.5, 0.25]} for step in (25, 50)]
            (Path(name) / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            plot.write_curves(Path(name))
            svg = (Path(name) / "curves.svg").read_text()
        xml.etree.ElementTree.fromstring(svg)
        self.assertEqual(svg.count("<polyline"), 4)
        self.assertNotIn("nan", svg)


class Replay(unittest.TestCase):
    def test_rounds_follow_each_other_and_end_with_the_answer(self):
        text = simulate.Text(torch.arange(12), [(2, 8), (10, 12)])
        self.assertEqual(text.roots.tolist(), [2, 3, 4, 5, 6, 10])
        replays = simulate.Replays([{"levels": 3}, {"levels": 3}])
        lengths = np.array([[2, 9, 9, 0, 3, 0], [0, 0, 0, 0, 0, 0]])
        replays.add(text, lengths, np.array([[2, 9, 9, 1, 3, 1], [1, 1, 1, 1, 1, 0]]))
        first, second = replays.facts(details=True)
        self.assertEqual((first["rounds"], first["tau"]), (4, 6 / 4))  # 2..5, 5..6, 6..8; 10..12
        self.assertEqual(first["reached"], [4, 1, 0])  # two accepted below 2, and no guesses under them
        self.assertEqual((second["rounds"], second["tau"]), (6, 1.0))
        self.assertEqual(second["accept_pos"], [0.0, None, None])


class Trees(unittest.TestCase):
    def test_static_tree_is_the_best_of_its_size(self):
        random = np.random.default_rng(2)
        ranks = random.choice([0, 0, 0, 1, 1, 2, 10], (200, 3))
        visits = trees.path_counts(ranks)
        nodes = [path for path in itertools.chain.from_iterable(itertools.product(range(3), repeat=d) for d in (1, 2))]
        best = 0
        for chosen in itertools.combinations(nodes, 5):
            if all(path[:-1] in chosen or len(path) == 1 for path in chosen):
                best = max(best, sum(visits[path] for path in chosen))
        found = trees.best_tree(ranks[:, :2], 6)
        self.assertEqual(sum(visits[tuple(path)] for path in found), best)
        self.assertEqual(found, trees.best_tree(ranks[:, :2], 9)[:5])  # best first: a smaller tree is its beginning

    def costs(self, figures, measured=None):
        """Of a head of 3,000 weights and 10 for each of 700 tokens, measured with passes of 4 rows and 5 levels."""
        head = trees.HeadWeights(layer=3000, hidden=10, vocabulary=700, teacher_bytes=100_000)
        return trees.StepCosts(figures, TreesConfig(draft_levels=5, draft_expand=4), head, measured or head)

    def test_costs_are_interpolated_between_rows_and_follow_the_weights(self):
        steps = ((1, 1.0), (16, 2.5))
        figures = [{"name": "step", "rows": r, "median_seconds": s, "context": c} for c in (1, 2) for r, s in steps]
        figures.append({"name": "round_draft", "rows": None, "median_seconds": 1.5, "context": 128})
        costs = self.costs(figures)
        self.assertAlmostEqual(costs.verify(6), 1.5)
        self.assertAlmostEqual(costs.verify(32), 5.0)
        self.assertAlmostEqual(costs.draft(4, 700), 0.3)
        self.assertAlmostEqual(costs.draft(4, 200), 0.15)  # half of the weights
        self.assertAlmostEqual(costs.draft(6, 700), 0.3 * 1.5 / 1.3)

    def test_a_pass_of_another_head_than_the_measured_one_costs_its_share_of_that(self):
        figures = [{"name": "step", "rows": 4, "median_seconds": 1.0}, {"name": "round_draft", "median_seconds": 1.5}]
        measured = trees.HeadWeights(layer=4000, hidden=10, vocabulary=100, teacher_bytes=100_000)
        self.assertAlmostEqual(self.costs(figures, measured).draft(4, 700), 0.3 * 10_000 / 5_000)

    def test_without_times_a_pass_costs_its_share_of_the_weights(self):
        costs = self.costs([])
        self.assertEqual(costs.verify(60), costs.verify(1))
        self.assertAlmostEqual(costs.draft(4, 700), 0.2)  # 20,000 of 100,000 bytes

    def test_a_suggestion_leaves_those_for_other_instruction_sets_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            config = make_config(Path(folder))
            path = export.out_folder(config, "eagle3") / "config.json"
            write_json(
                path, {"hidden_size": 8, "espalier": {"teacher": "t", "suggested": {"isa": {"avx2": {"depth": 3}}}}}
            )
            setting = {"nodes": 16, "levels": 5, "expand": 4, "vocabulary": 64, "tau": 4.0}
            config.trees.suggest_ngram = True
            trees.write_suggestion(config, "eagle3", trees.suggestion_of(setting, 96, 8, config.trees), "avx512")
            found = json.loads(path.read_text())
        self.assertEqual((found["hidden_size"], found["espalier"]["teacher"]), (8, "t"))
        suggested = {"nodes": "auto", "depth": 7, "expand": 4, "vocab": 64}
        isas = {"avx2": {"depth": 3}, "avx512": suggested}
        elsewhere = {"nodes": "auto", "depth": 3, "expand": 4, "vocab": 64}  # the lowest bounds of all
        self.assertEqual(found["espalier"]["suggested"], {"drafters": ["eagle3", "ngram"], "isa": isas} | elsewhere)

    def test_levels_have_a_reserve_and_rounds_more_than_a_chain_where_the_engine_chooses_rows(self):
        setting = {"nodes": 4, "levels": 3, "expand": 1, "vocabulary": 96}
        bounds = [trees.suggestion_of(setting, 96, deepest, TreesConfig(spare_levels=2)) for deepest in (8, 4)]
        self.assertEqual(bounds, [{"nodes": "auto", "depth": depth, "expand": 2} for depth in (5, 4)])
        best = trees.suggestion_of(setting, 96, 8, TreesConfig(suggest_nodes="best"))
        self.assertEqual(best, {"nodes": 4, "depth": 3, "expand": 1})

    def test_two_step_costs_of_one_instruction_set_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [f"{folder}/{name}.json" for name in ("quiet", "busy")]
            for path in paths:
                step = {"name": "step", "rows": 1, "median_seconds": 1.0}
                write_json(Path(path), {"isa": "avx2", "figures": [step]})
            with self.assertRaisesRegex(InputError, "got two for avx2: .*quiet.json and .*busy.json"):
                trees.read_measurements(paths)
            self.assertEqual([found.isa for found in trees.read_measurements(paths[:1])], ["avx2"])

    def test_tap_ids_are_read_back_as_the_same_boundaries(self):
        self.assertEqual(export.tap_ids((2, 15, 27), 30), [1, 14, 26])
        self.assertEqual(export.tap_ids((0, 2, 3), 4), [0, 2, 3])
        self.assertEqual(export.tap_ids((1, 2, 4), 4), [1, 2, 4])


if __name__ == "__main__":
    unittest.main()
