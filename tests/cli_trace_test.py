"""Traces, failure dumps and their replay: python3 tests/cli_trace_test.py build/bin/espalier

Runs on the tiny models of tests/data. Times are only looked at for being there."""

import ctypes
import ctypes.util
import hashlib
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = str(DATA / "tiny" / "llama2.gguf")  # babbles, but reproducibly
OTHER_MODEL = str(DATA / "tiny" / "llama3.gguf")
MEDUSA = str(DATA / "heads" / "medusa-d")  # of the same teacher, as random as it is
CACHE = tempfile.TemporaryDirectory()  # step times are kept here, not in the user's own folder
DEVICES = [("--device", "cpu"), ("--device", "reference"), ("--checked=ascend",)]


def zstd():
    library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    for function in (library.ZSTD_compressBound, library.ZSTD_compress, library.ZSTD_decompress,
                     library.ZSTD_findFrameCompressedSize):
        function.restype = ctypes.c_size_t
    library.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
    return library


def frames_of(data):
    """The compressed frames of a trace, and the text of each."""
    library, frames = zstd(), []
    while data:
        size = library.ZSTD_findFrameCompressedSize(data, ctypes.c_size_t(len(data)))
        room = library.ZSTD_getFrameContentSize(data, ctypes.c_size_t(len(data)))
        text = ctypes.create_string_buffer(room)
        library.ZSTD_decompress(text, ctypes.c_size_t(room), data, ctypes.c_size_t(size))
        frames.append((data[:size], text.raw[:room].decode()))
        data = data[size:]
    return frames


def compress(text):
    library, data = zstd(), text.encode()
    frame = ctypes.create_string_buffer(library.ZSTD_compressBound(ctypes.c_size_t(len(data))))
    size = library.ZSTD_compress(frame, ctypes.c_size_t(len(frame)), data, ctypes.c_size_t(len(data)), 3)
    return frame.raw[:size]


def records_of(path):
    return [json.loads(line) for _, text in frames_of(Path(path).read_bytes()) for line in text.splitlines()]


def model_that_fails_at(token, path):
    """The model with NaN for the embedding of one token: whoever looks behind it finds no logits."""
    weights = (DATA / "tiny" / "llama2" / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", weights[:8])[0]
    tensor = json.loads(weights[8:8 + size])["model.embed_tokens.weight"]
    begin = 8 + size + tensor["data_offsets"][0]
    row = 4 * tensor["shape"][1]
    first = weights[begin:begin + row]
    data = bytearray(Path(MODEL).read_bytes())
    at = data.find(first) + token * row
    assert data.count(first) == 1 and data[at:at + row] == weights[begin + token * row:begin + (token + 1) * row]
    data[at:at + row] = struct.pack("<f", float("nan")) * (row // 4)
    Path(path).write_bytes(data)
    return str(path)


class RecordTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.trace = self.folder / "trace.jsonl.zst"

    def run_program(self, *arguments, text=None, preexec_fn=None, cwd=None):
        variables = {name: value for name, value in os.environ.items()
                     if not name.startswith("ESPALIER_") and name not in ("NO_COLOR", "COLUMNS")}
        return subprocess.run([str(ESPALIER), *map(str, arguments)], input=text, text=True, capture_output=True, timeout=300,
                              env={**variables, "XDG_CACHE_HOME": CACHE.name}, preexec_fn=preexec_fn,
                              cwd=cwd or self.folder)

    def good(self, *arguments, code=0, **options):
        result = self.run_program(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (code, ""), result.stdout)
        return result.stdout

    def refused(self, message, *arguments, code=2, **options):
        result = self.run_program(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (code, 1), result.stderr)
        self.assertIn(message, result.stderr)
        return result.stderr


class Traces(RecordTest):
    def generate(self, *flags, trace=None, model=MODEL, **options):
        return self.good("generate", "--model", model, "-n", 32, "--ignore-eos", "--context", 256, "--trace",
                         trace or self.trace, "--force", *flags, "one two one two one two", **options)

    def chat(self, turns=3):
        self.good("chat", "--model", MODEL, "-n", 12, "--ignore-eos", "--context", 512, "--draft", "ngram", "--trace",
                  self.trace, text="\n".join(["one two one two"] * turns) + "\n")

    def test_a_trace_has_a_record_for_the_turn_and_for_every_round(self):
        answer = json.loads(self.generate("--draft", "ngram", "--json"))
        header, turn, *rounds = records_of(self.trace)
        self.assertEqual((header["kind"], header["schema"], header["rank"], header["world"]), ("trace", 2, 0, 1))
        self.assertEqual(header["configuration"]["model"]["path"], MODEL)
        self.assertEqual((turn["kind"], turn["prompt_id"], turn["tokens"]), ("turn", "generate", answer["tokens"]))
        self.assertEqual([record["accepted"] for record in rounds], answer["accept_lengths"])
        for record in rounds:
            self.assertEqual(list(record), ["kind", "prompt_id", "turn", "round", "prefix", "tree", "path", "choices", "accepted",
                                            "finish", "attention", "mask", "kv_bytes", "seconds", "budget"])
        self.assertEqual([record["finish"] for record in rounds], [None] * (len(rounds) - 1) + ["length"])

    def test_the_text_is_the_same_with_and_without_a_trace(self):
        self.assertEqual(self.generate("--draft", "ngram"),
                         self.good("generate", "--model", MODEL, "-n", 32, "--ignore-eos", "--context", 256, "--draft",
                                   "ngram", "one two one two one two"))

    def test_stats_are_those_of_the_run(self):
        answer = json.loads(self.generate("--draft", "ngram", "--cache", "replicate", "--json"))
        stats = json.loads(self.good("trace", "stats", self.trace, "--json"))
        for name in ("rounds", "accept_L", "tau"):
            self.assertEqual(stats[name], answer[name], name)
        for stage in ("draft", "prepare", "verify", "accept", "commit"):
            self.assertAlmostEqual(stats["stages"][stage], answer[stage + "_seconds"])
        self.assertEqual(stats["tokens"], len(answer["tokens"]))
        # What the prompt's own steps copied is in no round.
        self.assertGreater(stats["kv_bytes"]["branched"], 0)
        self.assertLessEqual(stats["kv_bytes"]["branched"], answer["kv"]["bytes_branched"])
        self.assertLessEqual(stats["kv_bytes"]["committed"], answer["kv"]["bytes_committed"])
        both = json.loads(self.good("trace", "stats", self.trace, self.trace, "--json"))
        self.assertEqual((both["turns"], both["rounds"]), (2, 2 * stats["rounds"]))

    def test_every_round_of_a_run_is_identical_in_its_replay_on_every_device(self):
        runs = [("--draft", "ngram"), ("--draft", "medusa+ngram", "--head", MEDUSA, "--temperature", "0.9", "--seed", "7"),
                ("--draft", "none", "--repeat-penalty", "1.3"),
                ("--draft", "ngram", "--attention", "eager", "--cache", "replicate", "--reorder", "full")]
        for run in runs:
            self.generate(*run)
            rounds = len(records_of(self.trace)) - 2
            for device in DEVICES:
                with self.subTest(run=run, device=device):
                    self.assertEqual(self.good("replay", self.trace, "--turn", 1, *device),
                                     f"turn 1 (prompt \"generate\", turn 1): {rounds} rounds identical\n")

    def test_a_replay_names_the_first_round_that_differs(self):
        self.generate("--draft", "ngram")
        header, (_, text) = frames_of(self.trace.read_bytes())
        lines = [json.loads(line) for line in text.splitlines()]
        lines[0]["tokens"][-1] = lines[-1]["choices"][-1] = (lines[0]["tokens"][-1] + 1) % 272
        changed = "".join(json.dumps(line) + "\n" for line in lines)
        self.trace.write_bytes(header[0] + compress(changed))
        shown = self.good("replay", self.trace, code=1)
        self.assertIn(f"DIFFERS: round {len(lines) - 2}: ", shown)

    def test_a_conversation_is_a_trace_of_several_turns_and_replays(self):
        self.chat()
        self.assertEqual(self.good("replay", self.trace).count("identical"), 3)
        self.assertEqual(self.good("replay", self.trace, "--turn", 2).count('turn 2 (prompt "chat", turn 2)'), 1)
        self.refused("expected 1 to 3", "replay", self.trace, "--turn", 4)

    def test_a_conversation_replays_whatever_was_changed_in_it(self):
        commands = ["hello", "/set temperature 1.2", "/set seed 5", "/regen", "/system be brief", "again", "/undo", "a", "b", "c",
                    "/reset", "d", "/set temperature 0", "e"]
        result = self.run_program("chat", "--model", MODEL, "-n", 12, "--ignore-eos", "--context", 128, "--draft", "ngram",
                                  "--trace", self.trace, text="\n".join(commands) + "\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("left out", result.stderr)
        self.assertEqual(self.good("replay", self.trace).count("identical"), 8)

    def test_an_interrupt_ends_a_replay(self):
        self.good("chat", "--model", MODEL, "-n", 12, "--ignore-eos", "--draft", "ngram", "--trace", self.trace,
                  text="one two one two\n/reset\n" * 30)
        process = subprocess.Popen([str(ESPALIER), "replay", str(self.trace), "--checked"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_CACHE_HOME": CACHE.name},
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        self.assertIn("identical", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        shown, told = process.communicate(timeout=120)
        self.assertEqual((process.returncode, told), (130, "espalier: interrupted\n"))
        self.assertLess(shown.count("identical"), 29)

    def test_a_trace_cut_anywhere_is_readable_up_to_its_last_whole_turn(self):
        self.chat()
        whole = self.trace.read_bytes()
        ends = [sum(len(frame) for frame, _ in frames_of(whole)[:count]) for count in range(1, 5)]
        cut = self.folder / "cut.zst"
        for size in range(0, len(whole), 97):
            cut.write_bytes(whole[:size])
            if size < ends[0]:
                self.refused(str(cut), "trace", "stats", cut)
                continue
            turns = sum(end <= size for end in ends) - 1
            result = self.run_program("trace", "stats", "--json", cut)
            self.assertEqual((result.returncode, json.loads(result.stdout)["turns"]), (0, turns))
            if size not in ends:
                self.assertEqual(result.stderr, f"espalier: {cut}: the file breaks off behind turn {turns}\n")

    def test_every_command_says_where_a_trace_breaks_off(self):
        self.chat(turns=2)
        cut = self.folder / "cut.zst"
        cut.write_bytes(self.trace.read_bytes()[:-1])
        for command in (["trace", "show", cut], ["trace", "stats", cut], ["trace", "diff", cut, cut], ["replay", cut]):
            result = self.run_program(*command)
            note = f"espalier: {cut}: the file breaks off behind turn 1\n"
            self.assertEqual((result.returncode, set(result.stderr.splitlines(True))), (0, {note}), command)

    def test_the_turns_of_an_evaluation_name_their_set(self):
        data = self.folder / "questions.jsonl"
        data.write_text(json.dumps({"id": 81, "prompt": "one two one two"}) + "\n")
        self.good("eval", "run", "--model", MODEL, "--data", data, "-o", self.folder / "run", "-n", 8, "--ignore-eos", "--context",
                  256, "--draft", "ngram", "--trace")
        trace = self.folder / "run" / "ranks" / "0000" / "trace.jsonl.zst"
        _, turn, *_ = records_of(trace)
        self.assertEqual((turn["set"], turn["prompt_id"]), ("questions", 81))
        self.assertTrue(self.good("trace", "show", trace).splitlines()[1].endswith('"questions"'))
        (header, _), (_, text) = frames_of(trace.read_bytes())
        lines = [json.loads(line) for line in text.splitlines()]
        del lines[0]["set"]  # as it was written before there was one
        self.trace.write_bytes(header + compress("".join(json.dumps(line) + "\n" for line in lines)))
        self.assertTrue(self.good("trace", "show", self.trace).splitlines()[1].endswith("-"))
        self.assertIn("nothing differs", self.good("trace", "diff", trace, self.trace))
        self.assertIn("identical", self.good("replay", self.trace))

    def test_other_versions_and_other_files_are_refused_in_one_line(self):
        self.generate("--draft", "none")
        (_, header), (turn, _) = frames_of(self.trace.read_bytes())
        for field, value, message in [("schema", 1, "a trace of schema"), ("version", "0.0.9", "a trace of version"),
                                      ("arithmetic", 1, f"{self.trace}: arithmetic 1, this program computes with 2"),
                                      ("kind", "log", "expected a trace of espalier")]:
            self.trace.write_bytes(compress(json.dumps({**json.loads(header), field: value})) + turn)
            for command in (["trace", "show"], ["trace", "stats"], ["replay"]):
                self.refused(message, *command, self.trace)
        for content, message in [(b"", "empty"), (b"hello", "zstd"), (compress("{}"), "expected a trace of espalier"),
                                 (compress(header)[:20], "breaks off")]:
            self.trace.write_bytes(content)
            self.refused(message, "trace", "show", self.trace)
        self.refused("No such file", "trace", "show", self.folder / "nowhere")

    def test_show_tells_turns_rounds_and_a_tree_in_words(self):
        self.generate("--draft", "ngram")
        _, turn, *rounds = records_of(self.trace)
        self.assertIn('"generate"', self.good("trace", "show", self.trace))
        lines = self.good("trace", "show", self.trace, "--turn", 1).splitlines()
        self.assertEqual(sum(line.split()[:1] == [str(number)] for number in range(len(rounds)) for line in lines[6:]),
                         len(rounds))
        largest = max(rounds, key=lambda record: len(record["tree"]["tokens"]))
        tree = self.good("trace", "show", self.trace, "--turn", 1, "--round", largest["round"])
        self.assertTrue(tree.startswith(f"round {largest['round']}: {len(largest['tree']['tokens'])} rows"), tree)
        self.assertIn("ngram", tree)
        self.assertIn("mask; KV bytes copied", tree)
        self.refused("expected less than", "trace", "show", self.trace, "--round", 1000)
        self.refused("expected 1 to 1", "trace", "show", self.trace, "--turn", 2)

    def test_show_tells_ids_where_the_model_is_not_at_hand(self):
        self.generate("--draft", "none")
        (_, header), (frame, _) = frames_of(self.trace.read_bytes())
        moved = json.loads(header)
        moved["configuration"]["model"]["path"] = "/nowhere/model.gguf"
        self.trace.write_bytes(compress(json.dumps(moved)) + frame)
        token = records_of(self.trace)[1]["tokens"][0]
        self.assertIn(f'"{token}"', self.good("trace", "show", self.trace, "--turn", 1, "--round", 0))
        self.refused("no such file or folder, the model of", "replay", self.trace)
        self.assertIn("identical", self.good("replay", self.trace, "--model", MODEL))

    def test_rounds_of_an_eagle2_head_in_a_named_tree_are_replayed(self):
        head = str(DATA / "heads" / "eagle2-vicuna")
        self.generate("--draft", "eagle2", "--head", head, "--tree", "static:eagle1_25")
        (_, header), *_ = frames_of(self.trace.read_bytes())
        self.assertEqual(json.loads(header)["configuration"]["draft"]["drafters"], "eagle2")
        self.assertIn("identical", self.good("replay", self.trace))

    def test_another_model_is_refused(self):
        self.generate("--draft", "none")
        self.refused("not the model of", "replay", self.trace, "--model", OTHER_MODEL)

    def test_diff_says_what_differs_and_only_other_tokens_are_a_failure(self):
        second = self.folder / "second.zst"
        self.generate("--draft", "ngram")
        self.assertIn("nothing differs", self.good("trace", "diff", self.trace, self.trace))
        self.generate("--draft", "ngram", trace=second)
        self.assertIn("times differ only", self.good("trace", "diff", self.trace, second))
        self.generate("--draft", "none", trace=second)
        self.assertEqual(json.loads(self.good("trace", "diff", "--json", self.trace, second))["difference"], "trees")
        self.generate("--draft", "ngram", "--temperature", "2", trace=second)
        found = json.loads(self.good("trace", "diff", "--json", self.trace, second, code=1))
        self.assertEqual((found["difference"], found["first"]["turn"]), ("tokens", 1))

    @unittest.skipUnless(shutil.which("strace"), "needs strace")
    def test_the_loop_makes_no_system_call_with_or_without_a_trace(self):
        log = self.folder / "calls"
        if subprocess.run(["strace", "-o", log, "true"], capture_output=True, timeout=60).returncode != 0:
            self.skipTest("strace is not allowed here")

        def calls(tokens, *flags):
            subprocess.run(["strace", "-f", "-y", "-o", log, ESPALIER, "generate", "--model", MODEL, "--threads", "1", "-n", str(tokens),
                            "--ignore-eos", "--json", "--draft", "ngram", "--context", "256", *flags, "one two one two"],
                           capture_output=True, timeout=120, check=True,
                           env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})  # which cannot be traced
            # A sanitizer reads its map of the process: in as many pieces as the addresses of this run happen to take.
            lines = [line for line in log.read_text().splitlines() if "</proc/" not in line]
            names = [line.split(maxsplit=1)[1].split("(")[0] for line in lines]
            self.assertIn("write", names)  # the answer itself, at the end: the log is not empty
            return [name for name in names if name not in ("brk", "mmap", "munmap", "madvise", "mremap")]

        trace = ("--force", "--trace", self.trace)
        calls(16, *trace)  # the first run keeps the model's hash for the others
        self.assertEqual(calls(16), calls(128))
        self.assertEqual(calls(16, *trace), calls(128, *trace))

    def test_a_full_disk_leaves_no_part_of_a_trace(self):
        def fill_disk():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        self.refused("cannot write", "generate", "--model", MODEL, "-n", 8, "--draft", "none", "--trace", self.trace,
                     "hello", code=1, preexec_fn=fill_disk)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_place_that_is_not_there_is_told_before_the_answer(self):
        self.refused("no such directory", "generate", "--model", MODEL, "--trace", self.folder / "no" / "t", "hello")


class Dumps(RecordTest):
    """A model that fails behind the tenth token of its answer."""

    def setUp(self):
        super().setUp()
        self.answer = json.loads(self.good("generate", "--model", MODEL, "-n", 24, "--ignore-eos", "--json", "--draft",
                                           "none", "hello"))["tokens"]
        token = next(token for i, token in enumerate(self.answer) if i >= 10 and token not in self.answer[:i])
        self.at = self.answer.index(token)
        self.model = model_that_fails_at(token, self.folder / "broken.gguf")

    def fail_an_answer(self, *flags):
        line = self.refused("; dump: ", "generate", "--model", self.model, "-n", 24, "--ignore-eos", "--json", *flags, "hello")
        return Path(line.strip().split("; dump: ")[1])

    def test_a_failure_leaves_a_dump_with_everything_but_the_weights(self):
        path = self.fail_an_answer("--draft", "ngram", "--dump-dir", self.folder / "dumps")
        self.assertEqual(list((self.folder / "dumps").iterdir()), [path])
        self.assertRegex(path.name, r"^espalier-dump-\d{8}T\d{6}Z-\d+\.json$")
        dump = json.loads(path.read_text())
        self.assertEqual((dump["kind"], dump["schema"], dump["failure"], dump["stage"]), ("dump", 2, "error", "accept"))
        self.assertEqual(dump["answered"] + dump["drawn"], self.answer[:self.at + 1])
        self.assertEqual(dump["tables"]["token"][:len(dump["tree"]["tokens"])], dump["tree"]["tokens"])
        self.assertEqual(dump["cache"]["committed"], len(dump["prompt"]) + len(dump["answered"]) - 1)
        self.assertEqual(dump["configuration"]["model"]["path"], self.model)

    def test_a_dump_lies_in_the_current_directory_unless_another_is_named(self):
        path = self.fail_an_answer("--draft", "none")
        self.assertEqual(path.parent, Path("."))
        self.assertTrue((self.folder / path).exists())

    def test_the_failure_comes_again_on_every_device(self):
        path = self.fail_an_answer("--draft", "ngram")
        for device in DEVICES:
            with self.subTest(device=device):
                shown = self.good("replay", path, *device, code=1)
                self.assertTrue(shown.endswith("reproduced: the same error\n"), shown)

    def test_a_failure_that_is_gone_is_not_reproduced(self):
        path = self.folder / self.fail_an_answer("--draft", "ngram")
        dump = json.loads(path.read_text())
        dump["configuration"]["model"]["sha256"] = hashlib.sha256(Path(MODEL).read_bytes()).hexdigest()
        path.write_text(json.dumps(dump))
        shown = self.good("replay", path, "--model", MODEL)
        self.assertTrue(shown.endswith("not reproduced: no error\n"), shown)

    def test_a_mismatch_that_is_gone_is_not_reproduced(self):
        path = self.folder / self.fail_an_answer("--draft", "ngram")
        dump = json.loads(path.read_text())
        dump["configuration"]["model"]["sha256"] = hashlib.sha256(Path(MODEL).read_bytes()).hexdigest()
        drawn = self.answer[len(dump["answered"]):][:1]
        mismatch = {"token": len(dump["answered"]), "speculative": drawn, "plain": [drawn[0] + 1]}
        path.write_text(json.dumps({**dump, "failure": "mismatch", "mismatch": mismatch, "drawn": drawn}))
        shown = self.good("replay", path, "--model", MODEL)
        self.assertTrue(shown.endswith("not reproduced: both routes give the same tokens\n"), shown)

    def test_a_dump_that_the_model_cannot_run_is_refused(self):
        path = self.folder / self.fail_an_answer("--draft", "ngram")
        dump = json.loads(path.read_text())
        for change, message in [({"prompt": [272]}, "token 272, the vocabulary has 272"),
                                ({"draw": {**dump["draw"], "logit_bias": [[272, 1]]}}, "token 272, the vocabulary has 272"),
                                ({"draw": {**dump["draw"], "min_p": 2}}, "draw: --min-p: expected 0 to 1, got 2")]:
            path.write_text(json.dumps({**dump, **change}))
            self.assertIn(f"espalier: {path}: ", self.refused(message, "replay", path))

    def test_a_model_of_the_same_size_is_not_taken_for_the_same(self):
        self.refused("SHA-256", "replay", self.fail_an_answer("--draft", "none"), "--model", MODEL)

    def test_a_failure_in_the_prompt_comes_again_too(self):
        prompt = json.loads(self.good("tokenize", "--model", MODEL, "--json", "hello"))[-1]["id"]
        self.model = model_that_fails_at(prompt, self.folder / "broken.gguf")
        path = self.fail_an_answer("--draft", "none", "--raw")
        self.assertEqual(json.loads((self.folder / path).read_text())["stage"], "prefill")
        self.assertIn("reproduced: the same error", self.good("replay", path, code=1))

    def test_a_round_that_failed_before_it_had_a_tree_is_drafted_again(self):
        path = self.folder / self.fail_an_answer("--draft", "ngram")
        dump = json.loads(path.read_text())
        path.write_text(json.dumps({**dump, "stage": "draft", "tree": None, "tables": None, "drawn": []}))
        shown = self.good("replay", path, code=1)
        self.assertTrue(shown.endswith("reproduced: the same error\n"), shown)

    def test_a_conversation_goes_on_after_a_failure(self):
        result = self.run_program("chat", "--model", self.model, "-n", 24, "--ignore-eos", text="hello\n/exit\n")
        self.assertEqual(result.returncode, 0)
        self.assertLessEqual(result.stderr.count("; dump: "), 1)

    def test_dumps_of_other_versions_are_refused(self):
        path = self.folder / self.fail_an_answer("--draft", "none")
        dump = json.loads(path.read_text())
        for field, value, message in [("schema", 7, "a dump of schema"), ("version", "0.0.9", "a dump of version"),
                                      ("arithmetic", 1, f"{path}: arithmetic 1, this program computes with 2"),
                                      ("kind", "trace", "expected a dump of espalier"), ("prompt", [], "expected a prompt")]:
            path.write_text(json.dumps({**dump, field: value}))
            self.refused(message, "replay", path)
        path.write_text("{")
        self.refused(str(path), "replay", path)

    def test_a_full_disk_leaves_no_part_of_a_dump_and_does_not_hide_the_error(self):
        def fill_disk():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        before = sorted(self.folder.iterdir())
        line = self.refused("; no dump: ", "generate", "--model", self.model, "-n", 24, "--ignore-eos", "--draft", "none",
                            "--json", "hello", preexec_fn=fill_disk)
        self.assertIn("logit", line)
        self.assertEqual(sorted(self.folder.iterdir()), before)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
