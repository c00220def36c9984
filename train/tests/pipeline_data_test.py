"""Tests of the training pipeline up to the training: configuration, teacher, prompts, answers, vocabulary, batches.

Run: python train/tests/pipeline_data_test.py

The tiny models and what transformers computes from them in float32 come from tests/data. Tests that need the default model
(make model) are skipped without it.
"""

import contextlib
import io
import itertools
import json
import shutil
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "train"))

import numpy as np
import torch
from safetensors.torch import load_file

import run
from pipeline import card, data, distil, generator, head_files, loops, prepare, teacher, tokens, trees, vocabulary
from pipeline.config import Config, DataConfig, InputError, read_config
from pipeline.files import read_arrays

TINY = ROOT / "tests" / "data" / "tiny"
DEFAULT_MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MODELS = sorted(path for path in TINY.iterdir() if path.is_dir() or path.suffix == ".gguf")
CONFIG = """
work = "{work}"
device = "cpu"
[teacher]
path = "{teacher}"
[prepare]
prompts = ["{prompts}"]
evaluation = {evaluation}
max_prompt_tokens = 120
held_aside = 3
[distil]
max_new_tokens = 20
batch = 4
greedy_share = 0.5
temperature = 1.0
followups = 1
shard_prompts = 5
[vocabulary]
size = 64
[eagle3]
taps = [1, 2, 3]
"""
PROMPTS = [["Why is the sky blue?"], ["Name a fruit.", "Which colour?"], ["Say hi."], ["One.", "Two.", "Three."]] + [
    [f"Say {i}."] for i in range(9)
]


def golden(path):
    return load_file((path if path.is_dir() else path.with_suffix("")) / "golden.safetensors")


def load(name):
    return teacher.load_teacher(str(TINY / name), "cpu", torch.float32)


def quietly(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        function(*arguments)
    return out.getvalue()


class Scratch(unittest.TestCase):
    """A folder that is removed afterwards, with prompts and a configuration in it."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def lines(self, name, records):
        path = self.folder / name
        path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
        return path

    def config(self, prompts=PROMPTS, evaluation=(), work="work", text=CONFIG) -> Config:
        path = self.folder / "config.toml"
        files = [str(self.lines("evaluation.jsonl", evaluation))] if evaluation else []
        source = self.lines("prompts.jsonl", [{"turns": turns} for turns in prompts])
        path.write_text(
            text.format(
                work=self.folder / work, teacher=TINY / "llama3.gguf", prompts=source, evaluation=json.dumps(files)
            )
        )
        return read_config(path)

    def prepared(self, **options) -> tuple[Config, prepare.PreparedPrompts]:
        config = self.config(**options)
        quietly(prepare.main, config)
        return config, prepare.load_prompts(config)


class ConfigurationTest(Scratch):
    def complaint(self, text):
        (self.folder / "config.toml").write_text(text)
        with self.assertRaises(InputError) as caught:
            read_config(self.folder / "config.toml")
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def plain(self):
        return CONFIG.format(work="w", teacher="t", prompts="p", evaluation="[]")

    def test_a_misspelt_key_is_refused_by_name(self):
        self.assertIn("distil.bach: unknown key", self.complaint(self.plain().replace("batch", "bach")))

    def test_a_wrong_type_is_refused_with_what_was_found(self):
        self.assertIn(
            "distil.batch: expected int, got 'many'",
            self.complaint(self.plain().replace("batch = 4", 'batch = "many"')),
        )

    def test_a_missing_key_is_named(self):
        self.assertIn("teacher.path: missing", self.complaint(self.plain().replace('path = "t"', "")))

    def test_a_value_out_of_range_is_refused(self):
        self.assertIn(
            "distil.greedy_share: expected 0 to 1, got 5.0",
            self.complaint(self.plain().replace("greedy_share = 0.5", "greedy_share = 5")),
        )

    def test_formats_are_known_and_each_named_once(self):
        for value in ("[]", '["gguf", "gguf"]', '["onnx"]'):
            complaint = self.complaint(self.plain() + f"\n[export]\nformats_eagle3 = {value}\n")
            self.assertIn("export.formats_eagle3: expected some of safetensors, gguf and gguf-q8_0, each", complaint)

    def test_where_a_configuration_is_from_is_no_key_of_it(self):
        self.assertIn("source: unknown key", self.complaint('source = "x"\n' + self.plain()))
        (self.folder / "config.toml").write_text(self.plain())
        config = read_config(self.folder / "config.toml", ["seed=2"])
        self.assertEqual((config.source, config.settings), (str(self.folder / "config.toml"), ["seed=2"]))

    def test_the_shipped_heads_are_the_files_that_their_configuration_makes(self):
        config = read_config(ROOT / "train" / "configs" / "smollm2-135m.toml")
        eagle3, medusa = (ROOT / folder for folder in (config.export.out_eagle3, config.export.out_medusa))
        weights = {head_files.FILES["eagle3"][kind] for kind in config.export.formats_eagle3}
        choices = {"choices.json", *(f"choices-{size}.json" for size in config.trees.sizes)}
        common = {"README.md", "config.json"}
        self.assertEqual({path.name for path in eagle3.iterdir()}, {*common, *weights, "vocab_order.json"})
        self.assertEqual({path.name for path in medusa.iterdir()}, {*common, *choices, "medusa_lm_head.safetensors"})
        suggested = json.loads((eagle3 / "config.json").read_text())["espalier"]["suggested"]
        costs = trees.read_measurements([str(ROOT / path) for path in config.trees.step_costs])
        self.assertEqual(list(suggested["isa"]), [measured.isa for measured in costs])
        config.source = "train/configs/smollm2-135m.toml"
        for kind, folder in (("eagle3", eagle3), ("medusa", medusa)):
            text = (folder / "README.md").read_text()
            for part in (card.command(config, kind), card.table(card.recipe(config, kind)), config.export.licence):
                self.assertIn(part, text)
            self.assertIn((ROOT / getattr(config.export, f"figures_{kind}")).read_text(), text)

    def test_text_that_is_not_toml_is_refused(self):
        self.assertIn("expected TOML", self.complaint("work = ["))

    def test_the_configurations_in_the_repository_are_valid(self):
        for path in sorted((ROOT / "train" / "configs").glob("*.toml")):
            with self.subTest(path.name):
                read_config(path)

    def test_settings_beat_the_file(self):
        (self.folder / "config.toml").write_text(self.plain())
        config = read_config(self.folder / "config.toml", ["distil.batch=9", "data.text='prompts'", "variant = 'a'"])
        self.assertEqual((config.distil.batch, config.data.text), (9, "prompts"))
        self.assertEqual((config.folder, config.heads_folder), (Path("w"), Path("w/variants/a")))

    def test_a_setting_that_is_none_is_refused(self):
        (self.folder / "config.toml").write_text(self.plain())
        for setting in ("distil.batch", "distil.batch=many", "=3", "work.path='a'", "distil.bach=3"):
            with self.subTest(setting), self.assertRaises(InputError) as caught:
                read_config(self.folder / "config.toml", [setting])
            self.assertNotIn("\n", str(caught.exception))

    def test_an_unknown_step_ends_with_one_line(self):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            code = run.main([str(ROOT / "train" / "configs" / "tiny.toml"), "distill"])
        self.assertEqual((code, err.getvalue().count("\n")), (1, 1), err.getvalue())


class TeacherTest(unittest.TestCase):
    def test_logits_and_boundaries_are_those_of_transformers(self):
        for path in MODELS:
            with self.subTest(path.name):
                expected, model = golden(path), load(path.name)
                last, taps = model.features(expected["tokens"][None], range(model.layers + 1))
                self.assertLessEqual((model.logits(last)[0] - expected["logits"]).abs().max(), expected["bound"].item())
                for i, tap in enumerate(taps[0].split(model.hidden, dim=-1)):
                    bound = expected["bound.boundary"][i].item()
                    self.assertLessEqual((tap - expected[f"boundary.{i}"]).abs().max(), bound, f"boundary {i}")
                self.assertTrue(torch.equal(last[0], taps[0, :, -model.hidden :]))

    def test_padding_behind_a_sequence_is_never_seen(self):
        model = load("qwen3")
        sequence = golden(TINY / "qwen3")["tokens"][None, :20]
        padded = torch.cat([sequence, torch.zeros((1, 44), dtype=torch.int64)], dim=1)
        alone, beside = model.features(sequence, [1, 3]), model.features(padded, [1, 3])
        for short, long in zip(alone, beside):
            torch.testing.assert_close(long[:, :20], short)

    def test_the_end_tokens_and_the_hash_come_from_the_files(self):
        model = load("llama3.gguf")
        self.assertEqual(model.eos_ids, (2,))
        self.assertEqual(model.source_sha256, prepare.sha256_of(TINY / "llama3.gguf"))

    def test_taps_out_of_range_are_refused(self):
        with self.assertRaisesRegex(InputError, "from 0 to 4, got"):
            load("llama2").features(torch.zeros((1, 4), dtype=torch.int64), [2, 5])

    def test_a_path_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(InputError, "nowhere: no such file"):
            teacher.load_teacher("nowhere", "cpu", torch.float32)

    @unittest.skipUnless(DEFAULT_MODEL.exists(), "needs the default model: make model")
    def test_the_default_model_gives_the_logits_of_transformers(self):
        expected = load_file(ROOT / "tests" / "data" / "smollm2_reference.safetensors")
        model = teacher.load_teacher(str(DEFAULT_MODEL), "cpu", torch.float32)
        for name in ("p00", "p25"):
            sequence, prompt = expected[f"{name}.tokens"], int(expected[f"{name}.prompt"])
            last, _ = model.features(sequence[None, :-1], [])
            logits = model.logits(last[0, prompt - 1 :])
            found = logits.gather(1, expected[f"{name}.ids"].long())
            self.assertLessEqual((found - expected[f"{name}.logits"]).abs().max(), expected["bound"].item(), name)


class GeneratorTest(unittest.TestCase):
    GREEDY = generator.Sampling(1.0, 1.0, any_sampled=False)
    SAMPLED = generator.Sampling(0.9, 0.95, any_sampled=True)

    def answers(self, model, requests, batch, max_new, sampling, longest=80):
        made = generator.Generator(model, batch, longest, max_new, sampling)
        return dict(made.answers(requests))

    def requests(self, model, count, greedy=True):
        random = np.random.default_rng(7)
        return [
            generator.Request(
                i, random.integers(3, model.vocab, 3 + 2 * i).astype(np.int32), greedy or i % 2 == 0, 1000 + i
            )
            for i in range(count)
        ]

    def one_by_one(self, model, prompt, count):
        """Greedy decoding too simple to be wrong: the whole sequence again for every token."""
        sequence = torch.tensor(prompt, dtype=torch.int64)
        for _ in range(count):
            last, _ = model.features(sequence[None], [])
            following = model.logits(last[0, -1]).argmax()
            sequence = torch.cat([sequence, following[None]])
            if int(following) in model.eos_ids:
                break
        return sequence[len(prompt) :].numpy()

    def test_greedy_answers_are_those_of_transformers(self):
        for path in MODELS:
            if path.name == "mistral":  # its window of 16 tokens is too short to generate with
                continue
            with self.subTest(path.name):
                expected, model = golden(path)["greedy"].numpy(), load(path.name)
                requests = [generator.Request(i, expected[:16].astype(np.int32), True, i) for i in range(3)]
                for answer in self.answers(model, requests, 2, 64, self.GREEDY).values():
                    count = len(
                        answer
                    )  # the teacher ends at its end token or in a loop; transformers was made to go on
                    self.assertGreater(count, 0)
                    self.assertEqual(answer.tolist(), expected[16 : 16 + count].tolist())
                    self.assertTrue(count == 64 or loops.trimmed_length(answer) < count or answer[-1] in model.eos_ids)

    def test_more_requests_than_slots_are_all_answered_as_if_alone(self):
        model = load("qwen2")
        requests = self.requests(model, 9)
        found = self.answers(model, requests, 4, 24, self.GREEDY)
        self.assertEqual(sorted(found), list(range(9)))
        for request in requests:
            self.assertEqual(found[request.name].tolist(), self.one_by_one(model, request.tokens, 24).tolist())

    def test_sampled_answers_depend_on_their_key_and_not_on_their_neighbours(self):
        model = load("llama3")
        requests = self.requests(model, 10, greedy=False)
        together = self.answers(model, requests, 8, 30, self.SAMPLED)
        backwards = self.answers(model, requests[::-1], 3, 30, self.SAMPLED)
        for i in range(10):
            self.assertEqual(together[i].tolist(), backwards[i].tolist(), f"request {i}")
        for request in requests:
            request.key += 5
        other = self.answers(model, requests, 8, 30, self.SAMPLED)
        for i in range(10):
            self.assertEqual(
                together[i].tolist() == other[i].tolist(), i % 2 == 0, f"request {i}: even ones are greedy"
            )

    def test_the_end_token_is_stored_and_nothing_after_it(self):
        model = load("llama3")
        requests = self.requests(model, 6)
        free = self.answers(model, requests, 6, 24, self.GREEDY)
        model = teacher.Teacher(model.shape, weights_of(TINY / "llama3"), torch.float32, "")
        model.eos_ids = (int(free[3][10]),)
        ended = self.answers(model, requests, 6, 24, self.GREEDY)
        stop = free[3].tolist().index(model.eos_ids[0]) + 1
        self.assertEqual(ended[3].tolist(), free[3][:stop].tolist())

    def test_long_contexts_read_more_of_the_cache(self):
        model = load("llama3")
        requests = self.requests(model, 2)
        requests[1].tokens = np.random.default_rng(3).integers(3, model.vocab, 250).astype(np.int32)
        found = self.answers(model, requests, 2, 16, self.GREEDY, longest=250)
        for request in requests:
            self.assertEqual(found[request.name].tolist(), self.one_by_one(model, request.tokens, 16).tolist())

    def test_capturing_a_step_leaves_no_trace_in_the_answers(self):
        """Without a GPU: recording runs nothing, replaying runs the step, and the run that warms up really happens."""
        model = load("qwen2")
        requests = self.requests(model, 7)
        made = generator.Generator(model, 4, 80, 24, self.GREEDY)
        made.pool, decode, calls = "pool", made.decode, []

        class Graph:
            def replay(self):
                decode(self.length)

        @contextlib.contextmanager
        def recording(graph, pool):
            made.decode = lambda length: setattr(graph, "length", length)
            yield
            made.decode = decode
            calls.append(pool)

        cuda = mock.MagicMock(CUDAGraph=Graph, graph=recording)
        with mock.patch.object(torch, "cuda", cuda):
            found = dict(made.answers(requests))
        self.assertEqual(calls, ["pool"])
        plain = self.answers(model, requests, 4, 24, self.GREEDY)
        self.assertEqual(
            {name: answer.tolist() for name, answer in found.items()},
            {name: answer.tolist() for name, answer in plain.items()},
        )

    def test_a_window_shorter_than_the_sequences_is_refused(self):
        with self.assertRaisesRegex(InputError, "expected a window of at least 256 tokens to generate, got 16"):
            generator.Generator(load("mistral"), 1, 8, 8, self.GREEDY)

    def test_a_draw_inverts_the_distribution_up_to_top_p(self):
        logits = torch.tensor([[0.1, 2.0, 1.0, -1.0, 0.5]])
        probability = (logits / 0.7).softmax(-1)[0]
        order = probability.argsort(descending=True)
        kept = order[: int((probability[order].cumsum(0) < 0.9).sum()) + 1]
        chances = (torch.arange(20000) + 0.5) / 20000
        drawn = generator.draw(logits.expand(20000, -1), chances, 0.7, 0.9)
        share = torch.bincount(drawn, minlength=5) / 20000
        expected = torch.zeros(5)
        expected[kept] = probability[kept] / probability[kept].sum()
        self.assertLess((share - expected).abs().max(), 2 / 20000)

    def test_random_numbers_are_spread_and_belong_to_key_and_number(self):
        keys, numbers = torch.meshgrid(torch.arange(500), torch.arange(200), indexing="ij")
        chance = generator.uniform(keys.flatten(), numbers.flatten())
        self.assertTrue(((chance >= 0) & (chance < 1)).all())
        counts = torch.histc(chance, 20, 0, 1)
        self.assertLess((counts - 5000).abs().max(), 5 * 5000**0.5)
        table = chance.view(500, 200)
        for shifted, plain in ((table[1:], table[:-1]), (table[:, 1:], table[:, :-1])):
            self.assertLess(torch.corrcoef(torch.stack((shifted.flatten(), plain.flatten())))[0, 1].abs(), 0.02)


def weights_of(folder):
    return teacher.read_folder(folder)[1]


class LoopsTest(unittest.TestCase):
    def looping(self, period, repeats, start=30):
        random = np.random.default_rng(period)
        return np.concatenate([random.integers(0, 1000, start), np.tile(random.integers(1000, 2000, period), repeats)])

    def test_a_loop_is_cut_after_two_extra_periods(self):
        for period in (1, 2, 7, 79, 80):
            with self.subTest(period):
                answer = self.looping(period, max(4, 60 // period))
                self.assertEqual(loops.trimmed_length(answer), 30 + 3 * period)

    def test_what_is_no_loop_is_kept(self):
        for name, answer in {
            "no repetition": np.arange(100),
            "a period that is too long": self.looping(81, 4),
            "a short run": self.looping(1, 10),
            "two periods": self.looping(20, 2),
            "a loop that was left": np.concatenate([self.looping(5, 20), [7]]),
            "nothing": np.arange(0),
            "one token": np.arange(1),
        }.items():
            with self.subTest(name):
                self.assertEqual(loops.trimmed_length(answer), len(answer))

    def test_the_device_stops_only_loops_that_are_cut_later(self):
        random = np.random.default_rng(5)
        rows = [self.looping(int(random.integers(1, 90)), int(random.integers(1, 60)))[:384] for _ in range(300)]
        output, written = torch.zeros((300, 384), dtype=torch.int64), torch.tensor([len(row) for row in rows])
        for place, row in zip(output, rows):
            place[: len(row)] = torch.from_numpy(row)
        stopped = loops.ends_in_loop(output, written).numpy()
        self.assertGreater(stopped.sum(), 50)
        for row, stop in zip(rows, stopped):
            if stop:
                self.assertLess(loops.trimmed_length(row), len(row))
            elif loops.trimmed_length(row) < len(row) - 3 * loops.LONGEST_PERIOD:
                self.fail(f"a long loop was not seen: {row}")


class PrepareTest(Scratch):
    def test_pieces_and_answers_join_to_the_rendered_conversation(self):
        config, prompts = self.prepared()
        chat = tokens.load_chat_tokenizer(config)
        conversation = [
            {"role": "user", "content": "One."},
            {"role": "assistant", "content": "Yes"},
            {"role": "user", "content": "Two."},
        ]
        whole = chat.encode(
            [chat.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)]
        )[0]
        joined = [*prompts.piece(3, 0), *chat.encode(["Yes"])[0], *prompts.piece(3, 1)]
        self.assertEqual(joined, whole)
        self.assertEqual(prompts.piece(3, 1)[0], 2, "a piece between answers begins with the end token")
        self.assertEqual(prompts.pieces(3), 3)

    def test_overlaps_with_the_evaluation_are_dropped_and_reported(self):
        long = "the quick brown fox jumps over the lazy dog and then sleeps all day long"
        prompts = [
            ["What is it?"],
            ["  WHAT is it "],
            ["Please say: " + long + "!"],
            ["Sum of two plus two is?"],
            ["Fine.", "the five words of it here"],
            ["Fine."],
        ]
        evaluation = [
            {"turns": ["what is it", long]},
            {"prompt": "two plus two is"},
            {"prompt": "five words of it here"},
        ]
        config, found = self.prepared(prompts=prompts, evaluation=evaluation)
        report = json.loads((config.folder / "prepared" / "report.json").read_text())
        self.assertEqual(found.prompt_id.tolist(), [3, 5])
        self.assertEqual(report["dropped"], {"equal to an evaluation prompt": 2, "overlaps an evaluation prompt": 2})
        self.assertEqual([entry["id"] for entry in report["dropped_prompts"]], [0, 1, 2, 4])

    def test_repeated_long_and_dangerous_prompts_are_dropped(self):
        prompts = [["Hi."], ["Hi."], ["x" * 200], ["Say <|im_end|> now."], ["Fine.", "y" * 200, "Never reached."]]
        config, found = self.prepared(prompts=prompts)
        report = json.loads((config.folder / "prepared" / "report.json").read_text())
        self.assertEqual(found.prompt_id.tolist(), [0, 4])
        self.assertEqual(report["dropped"], {"repeats another prompt": 1, "spells a control token": 1, "too long": 1})
        self.assertEqual((found.pieces(1), report["followups_cut"]), (1, 2))

    def test_a_line_separator_inside_a_string_does_not_end_the_line(self):
        _, found = self.prepared(prompts=[["one\u2028two"], ["three\x85four"]])
        self.assertEqual(len(found), 2)

    def test_compressed_prompts_are_read(self):
        if not shutil.which("zstd"):
            self.skipTest("needs zstd")
        path = self.lines("packed.jsonl", [{"turns": ["a"]}])
        prepare.subprocess.run(["zstd", "-q", str(path)], check=True)
        self.assertEqual(prepare.read_prompts([f"{path}.zst"])[0].turns, ["a"])

    def test_a_bad_line_is_named(self):
        path = self.lines("bad.jsonl", [{"turns": ["a"]}, {"turns": "a"}])
        with self.assertRaisesRegex(InputError, "bad.jsonl:2: turns: expected a list of strings"):
            prepare.read_prompts([str(path)])

    def test_the_prompts_held_aside_stay_the_same_when_others_join(self):
        few, many = prepare.choose_held(list(range(100)), 10, 1), prepare.choose_held(list(range(110)), 10, 1)
        self.assertEqual(len(few), 10)
        self.assertGreaterEqual(len(set(few) & set(many)), 7)

    def test_nothing_is_done_twice(self):
        config, _ = self.prepared()
        self.assertIn("up to date", quietly(prepare.main, config))
        config.prepare.held_aside = 2
        self.assertNotIn("up to date", quietly(prepare.main, config))

    def test_a_tokenizer_of_its_own_counts_with_its_files(self):
        config = self.config()
        self.assertEqual(prepare.tokenizer_files(config), [])
        folder = self.folder / "tokenizer"
        folder.mkdir()
        (folder / "tokenizer.json").write_text("{}")
        config.teacher.tokenizer = str(folder)
        before = prepare.fingerprint(config)
        (folder / "tokenizer.json").write_text("{ }")
        self.assertNotEqual(prepare.fingerprint(config), before)

    def test_a_damaged_file_of_arrays_is_named(self):
        for content in (b"", b"PK\x03\x04 and no more"):
            (self.folder / "broken.npz").write_bytes(content)
            with self.assertRaisesRegex(InputError, "broken.npz"):
                read_arrays(self.folder / "broken.npz", "tokens")

    @unittest.skipUnless(DEFAULT_MODEL.exists(), "needs the default model: make model")
    def test_the_default_model_tokenises_as_the_engine_does(self):
        config = self.config()
        config.teacher.path = str(DEFAULT_MODEL)
        folder = ROOT / "tests" / "data" / "tokenizers"
        strings = json.loads((folder / "strings.json").read_text(encoding="utf-8"))
        expected = json.loads((folder / "smollm2" / "ids.json").read_text())
        found = tokens.load_chat_tokenizer(config).encode(strings[: len(expected)])
        for text, ids, (with_control, _) in zip(strings, found, expected):
            self.assertEqual(ids, with_control, repr(text))


class DistilTest(Scratch):
    def shard_bytes(self, config):
        return {path.name: path.read_bytes() for path in sorted((config.folder / "distilled").glob("shard-*.npz"))}

    def distilled(self, **options):
        config, prompts = self.prepared(**options)
        quietly(distil.main, config)
        return config, prompts

    def test_every_answer_follows_its_history(self):
        config, prompts = self.distilled()
        model = teacher.teacher_of(config)
        everything = data.joined([data.load_sequences(config, split) for split in ("train", "held")])
        self.assertEqual(sorted(everything.prompt_id.tolist()), list(range(len(PROMPTS))))
        for i, identity in enumerate(everything.prompt_id.tolist()):
            sequence, answer = everything.sequence(i)
            first = prompts.piece(identity, 0)
            self.assertEqual(sequence[: len(first)].tolist(), first.tolist())
            self.assertFalse(answer[: len(first)].any())
            self.assertTrue(answer[len(first)] and answer[-1])
            if everything.greedy[i]:
                self.check_greedy(model, sequence, answer)

    def check_greedy(self, model, sequence, answer):
        last, _ = model.features(torch.from_numpy(sequence.astype(np.int64))[None], [])
        best = model.logits(last[0]).argmax(-1).numpy()
        places = np.flatnonzero(answer)
        self.assertEqual(sequence[places].tolist(), best[places - 1].tolist())

    def test_a_followup_is_answered_with_the_first_answer_before_it(self):
        config, prompts = self.distilled()
        folder = config.folder / "distilled"
        shards = distil.plan_shards(config, prompts)
        self.assertEqual(
            [len(shard.prompts) for shard in shards if shard.round == 1], [len(s.prompts) for s in shards[3:]]
        )
        for shard in (shard for shard in shards if shard.round == 1 and len(shard.prompts)):
            later, earlier = data.read_shard(folder / shard.file), data.read_shard(folder / shard.before)
            for i, place in enumerate(shard.prompts.tolist()):
                sequence, answer = later.sequence(i)
                row = earlier.prompt_id.tolist().index(later.prompt_id[i])
                before, marks = earlier.sequence(row)
                self.assertEqual(sequence[: len(before)].tolist(), before.tolist())
                piece = prompts.piece(place, 1)[1 if before[-1] == 2 else 0 :]
                between = slice(len(before), len(before) + len(piece))
                self.assertEqual(sequence[between].tolist(), piece.tolist())
                self.assertFalse(answer[between].any(), "an end token that the teacher did not write is no answer")
                self.assertEqual(answer[: len(before)].tolist(), marks.tolist())

    def test_prompts_held_aside_are_in_no_training_sequence_and_greedy(self):
        config, prompts = self.distilled()
        training, held = data.load_sequences(config, "train"), data.load_sequences(config, "held")
        self.assertEqual(sorted(held.prompt_id.tolist()), prompts.held_ids.tolist())
        self.assertFalse(set(training.prompt_id.tolist()) & set(held.prompt_id.tolist()))
        self.assertTrue(held.greedy.all())
        self.assertTrue(training.greedy.any() and not training.greedy.all())

    def test_a_run_that_was_stopped_goes_on_with_the_missing_shards(self):
        config, _ = self.prepared()
        with (
            mock.patch.object(distil, "add_shard", stop_after(distil.add_shard, 2)),
            self.assertRaises(KeyboardInterrupt),
        ):
            quietly(distil.main, config)
        left = self.shard_bytes(config)
        self.assertEqual(len(left), 2)
        written = [path.stat().st_mtime_ns for path in sorted((config.folder / "distilled").glob("shard-*.npz"))]
        quietly(distil.main, config)
        again = [(config.folder / "distilled" / name).stat().st_mtime_ns for name in left]
        self.assertEqual(again, written)
        whole, _ = self.distilled(work="whole")
        self.assertEqual(self.shard_bytes(config), self.shard_bytes(whole))

    def test_ranks_share_the_shards_and_get_the_same_answers(self):
        config, _ = self.prepared()
        with mock.patch.object(distil, "wait_for"):
            for number in (1, 0):  # one after the other, so the round behind the first finds what both have left
                with (
                    mock.patch.dict("os.environ", {"RANK": str(number), "WORLD_SIZE": "2"}),
                    mock.patch.object(config.distil, "followups", 0),
                ):
                    with mock.patch.object(distil, "fingerprint", lambda *_: "same"):
                        quietly(distil.main, config)
        whole, _ = self.distilled(work="whole")
        alone = self.shard_bytes(whole)
        for name, content in self.shard_bytes(config).items():
            self.assertEqual(content, alone[name], name)

    def test_a_rank_that_does_not_deliver_is_named_and_not_waited_for_longer(self):
        config, prompts = self.distilled()
        folder, shards = config.folder / "distilled", distil.plan_shards(config, prompts)[:3]
        distil.wait_for(folder, shards, 2, 5.0)
        (folder / shards[1].file).unlink()
        clock = iter(range(100))
        with (
            mock.patch.object(distil.time, "monotonic", lambda: next(clock)),
            mock.patch.object(distil.time, "sleep") as sleep,
            self.assertRaisesRegex(InputError, r"shard-00001.npz: expected this shard from rank 1, got .* in 5 s"),
        ):
            distil.wait_for(folder, shards, 2, 5.0)
        self.assertLessEqual(sleep.call_count, 5)

    def test_a_slow_rank_that_goes_on_is_waited_for(self):
        config, prompts = self.distilled()
        folder, shards = config.folder / "distilled", distil.plan_shards(config, prompts)[:3]
        files = {shard.file for shard in shards}
        seen = iter([set(), {shards[0].file}, files - {shards[2].file}, files])
        seconds = itertools.count(step=2)  # each shard within the three seconds, all of them not
        with (
            mock.patch.object(distil, "finished", lambda _: next(seen)),
            mock.patch.object(distil.time, "monotonic", lambda: next(seconds)),
            mock.patch.object(distil.time, "sleep"),
        ):
            distil.wait_for(folder, shards, 2, 3.0)

    def test_how_long_a_rank_waits_is_no_other_distillation(self):
        config, _ = self.distilled()
        config.distil.wait_seconds = 1.0
        self.assertIn("13 sequences", quietly(distil.main, config))

    def test_answers_of_another_configuration_are_refused(self):
        config, _ = self.distilled()
        config.distil.temperature = 0.5
        with self.assertRaisesRegex(InputError, "manifest.json: expected answers of this configuration"):
            distil.main(config)

    def test_a_shard_that_is_not_the_one_in_the_manifest_is_refused_and_answered_again(self):
        config, _ = self.distilled()
        path = config.folder / "distilled" / "shard-00001.npz"
        whole = path.read_bytes()
        shutil.copy(path.with_name("shard-00000.npz"), path)
        with self.assertRaisesRegex(InputError, "shard-00001.npz: expected SHA-256 .* remove it and run the step"):
            data.load_sequences(config, "train")
        path.unlink()
        with self.assertRaisesRegex(InputError, "shard-00001.npz: .* got no file"):
            data.load_sequences(config, "train")
        quietly(distil.main, config)
        self.assertEqual(path.read_bytes(), whole)

    def test_the_manifest_counts_what_is_in_the_shards(self):
        config, _ = self.distilled()
        folder = config.folder / "distilled"
        manifest = json.loads((folder / "manifest.json").read_text())
        self.assertEqual(manifest["teacher"], prepare.sha256_of(TINY / "llama3.gguf"))
        self.assertEqual(list(manifest["shards"]), sorted(self.shard_bytes(config)))
        for name, entry in manifest["shards"].items():
            shard = data.read_shard(folder / name)
            self.assertEqual(entry["sha256"], prepare.sha256_of(folder / name))
            self.assertEqual((entry["sequences"], entry["tokens"]), (len(shard), len(shard.tokens)))
            self.assertEqual(entry["answer_tokens"], int(shard.answer.sum()))


def stop_after(function, count):
    """The function `count` times, then an interrupt."""
    calls = iter(range(count))

    def limited(*arguments):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return function(*arguments)

    return limited


class VocabularyTest(Scratch):
    def test_the_most_frequent_tokens_and_all_control_tokens_are_chosen(self):
        counts = np.array([0, 5, 0, 9, 1, 7, 7, 0])
        found = vocabulary.choose(counts, np.array([0, 2]), 5)
        self.assertEqual(found.ids.tolist(), [0, 2, 3, 5, 6])
        self.assertEqual(found.order.tolist(), [0, 2, 3, 5, 6])  # whatever is cut off, an answer can end
        self.assertEqual((found.d2t + np.arange(5)).tolist(), found.ids.tolist())

    def test_a_vocabulary_too_small_for_the_control_tokens_is_refused(self):
        with self.assertRaisesRegex(InputError, "at least the 3 control tokens, got 2"):
            vocabulary.choose(np.ones(8, int), np.array([0, 1, 2]), 2)

    def test_it_is_made_once_and_found_by_its_data_and_size(self):
        config, _ = self.prepared()
        quietly(distil.main, config)
        with self.assertRaisesRegex(InputError, "run the step vocabulary"):
            vocabulary.load_vocabulary(config)
        self.assertIn("vocabulary:      64", quietly(vocabulary.main, config))
        self.assertIn("up to date", quietly(vocabulary.main, config))
        found = vocabulary.load_vocabulary(config)
        self.assertEqual(len(found.ids), 64)
        self.assertTrue((np.diff(found.ids) > 0).all() and {0, 1, 2} <= set(found.ids.tolist()))
        self.assertEqual(sorted(found.order.tolist()), found.ids.tolist())
        path = config.folder / "prepared" / "prompts.npz"
        with np.load(path) as arrays:
            prepare.write_packed_arrays(path, **(dict(arrays) | {"control_ids": np.array([0, 1, 2, 3], np.int32)}))
        with self.assertRaisesRegex(InputError, "run the step vocabulary"):  # another tokenizer, another vocabulary
            vocabulary.load_vocabulary(config)
        quietly(vocabulary.main, config)
        config.vocabulary.size = 100
        with self.assertRaises(InputError):
            vocabulary.load_vocabulary(config)


class TrainingDataTest(unittest.TestCase):
    """Two sequences: a prompt with two answers, and one whose prompt begins alike; 1 and 2 are control tokens."""

    def load(self, **options) -> data.Sequences:
        tokens = np.array([1, 7, 8, 2, 21, 22, 2, 9, 23, 1, 7, 5, 24], np.int32)
        answer = np.array([0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1], bool)
        everything = data.Sequences(tokens, answer, np.array([0, 9, 13]), np.array([4, 6]), np.ones(2, bool))
        config = types.SimpleNamespace(data=DataConfig(**options), seed=1, folder=Path("unused"))
        with (
            mock.patch.object(data, "load_sequences", return_value=everything),
            mock.patch.object(data, "read_arrays", return_value=[np.array([1, 2])]),
        ):
            return data.load_training_sequences(config)

    def parts(self, sequences):
        return [
            (tokens.tolist(), np.flatnonzero(answer).tolist())
            for tokens, answer in map(sequences.sequence, range(len(sequences)))
        ]

    def test_prompts_end_before_the_first_answer_and_their_common_beginning_is_not_learned(self):
        found = self.parts(self.load(text="prompts"))
        self.assertEqual(found, [([1, 7, 8, 2], [2, 3]), ([1, 7, 5], [2])])

    def test_control_tokens_are_stripped_from_prompts_and_answers(self):
        found = self.parts(self.load(control_tokens="stripped"))
        self.assertEqual(found, [([7, 8, 21, 22, 9, 23], [2, 3, 5]), ([7, 5, 24], [2])])

    def test_fewer_sequences_are_a_choice_of_all(self):
        self.assertEqual(len(self.load(sequences=5)), 2)
        (found,) = self.parts(self.load(sequences=1))
        self.assertIn(found, self.parts(self.load()))


class BatchesTest(unittest.TestCase):
    def sequences(self, count=200, longest=300, seed=4):
        random = np.random.default_rng(seed)
        lengths = random.integers(5, longest, count)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        numbers = np.repeat(np.arange(count), lengths).astype(np.int32) + 1  # every token names its sequence
        answer = np.concatenate([np.empty(0, bool), *(np.arange(length) >= length // 2 for length in lengths)])
        return data.Sequences(numbers, answer, offsets, np.arange(count, dtype=np.int32), np.ones(count, bool))

    def steps_of_an_epoch(self, batches):
        return len(batches.plan(0))

    def test_an_epoch_shows_every_sequence_once(self):
        batches = data.Batches(self.sequences(), 2048, 320, seed=1)
        seen = []
        for step in range(self.steps_of_an_epoch(batches)):
            batch = batches.batch(step)
            self.assertTrue((batch["valid"][:, 0]).all())
            seen += batch["tokens"][:, 0].tolist()
        self.assertEqual(sorted(seen), list(range(1, 201)))

    def test_a_batch_depends_on_seed_step_and_rank_alone(self):
        sequences = self.sequences()
        one, other = (data.Batches(sequences, 2048, 128, seed=1) for _ in range(2))
        for step in range(60):
            one.batch(step)
        for step in (59, 3, 41):
            for name in ("tokens", "answer", "valid"):
                self.assertTrue(torch.equal(one.batch(step)[name], other.batch(step)[name]))
        different = data.Batches(sequences, 2048, 128, seed=2)
        self.assertFalse(all(one.batch(s)["tokens"].shape == different.batch(s)["tokens"].shape for s in range(10)))

    def test_shapes_are_few_and_within_the_budget(self):
        batches = data.Batches(self.sequences(), 2048, 192, seed=1)
        for step in range(100):
            rows, length = batches.batch(step)["tokens"].shape
            self.assertEqual(length % 64, 0)
            self.assertLessEqual(length, 192)
            self.assertLessEqual(rows * length, 2048)

    def test_long_sequences_are_cut_to_a_window_with_answer_tokens(self):
        batches = data.Batches(self.sequences(), 2048, 64, seed=1)
        for step in range(100):
            batch = batches.batch(step)
            self.assertTrue((batch["answer"] & batch["valid"]).any(dim=1).all())

    def test_ranks_share_the_rows_of_a_batch(self):
        sequences = self.sequences(203)
        alone = data.Batches(sequences, 2048, 320, seed=1)
        ranks = [data.Batches(sequences, 2048, 320, seed=1, rank=rank, world=2) for rank in range(2)]
        self.assertEqual({len(batches.plan(0)) for batches in ranks}, {len(ranks[0].plan(0))})
        seen = [
            token
            for step in range(len(ranks[0].plan(0)))
            for batches in ranks
            for token in batches.batch(step)["tokens"][:, 0].tolist()
        ]
        self.assertEqual(set(seen), set(range(1, 204)))
        self.assertLessEqual(len(seen), 204)
        self.assertLessEqual(abs(len(alone.plan(0)) - len(ranks[0].plan(0))), 4)

    def test_no_sequences_are_refused(self):
        with self.assertRaisesRegex(InputError, "at least one sequence"):
            data.Batches(self.sequences(0), 2048, 64, seed=1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
