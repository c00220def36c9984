"""The commands that measure and convert models: python3 tests/cli_bench_test.py build/bin/espalier

Runs on the tiny models of tests/data. No time is ever compared with another: only what is reported, and in which shape.
Where the Python package gguf is installed, its reader looks at what `espalier quantize` has written."""

import json
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

try:
    import gguf
except ImportError:
    gguf = None

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = DATA / "tiny" / "llama2.gguf"  # all f32, rows of 32 and 96
EAGLE3 = str(DATA / "heads" / "eagle3-full-vocabulary")
EAGLE2 = str(DATA / "heads" / "eagle2-vicuna")
TYPES = ("f16", "q8_0", "q4_0", "q4_1")
CACHE = tempfile.TemporaryDirectory()  # step times are kept here, not in the user's own folder


def environment():
    # Only the variables of the test: a mode that the caller's shell prefers is not what is tested here.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
    return {**variables, "XDG_CACHE_HOME": CACHE.name}


def run(*arguments, **options):
    return subprocess.run([str(ESPALIER), *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env=environment(), **options)


class Quantize(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "out.gguf"

    def quantize(self, kind, *flags, source=MODEL):
        result = run("quantize", source, self.out, "--type", kind, *flags)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def inspect(self, path):
        return json.loads(run("inspect", "--json", path).stdout)

    def refused(self, message, *arguments, code=2, **options):
        before = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        result = run("quantize", *arguments, **options)
        self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (code, "", 1), result.stderr)
        self.assertIn(message, result.stderr)
        self.assertEqual({path.name: path.read_bytes() for path in self.folder.iterdir()}, before)

    def test_every_type_gives_a_model_that_answers(self):
        for kind in TYPES:
            self.quantize(kind, "--force")
            self.assertEqual([path.name for path in self.folder.iterdir()], ["out.gguf"])
            types = self.inspect(self.out)["weights"]["types"]
            self.assertEqual(set(types), {"f32", kind})
            answer = run("generate", "--model", self.out, "--json", "-n", "4", "--ignore-eos", "hello")
            self.assertEqual(len(json.loads(answer.stdout)["tokens"]), 4)

    def test_threads_do_not_change_a_byte(self):
        files = set()
        for threads in (1, 3):
            self.quantize("q4_0", "--force", "--threads", threads)
            files.add(self.out.read_bytes())
        self.assertEqual(len(files), 1)

    def test_f16_and_back_to_the_same_type_change_nothing_more(self):
        self.quantize("f16")
        again = self.folder / "again.gguf"
        self.assertEqual(run("quantize", self.out, again, "--type", "f16").returncode, 0)
        self.assertEqual(again.read_bytes(), self.out.read_bytes())

    def test_the_table_tells_what_changed(self):
        shown = self.quantize("q8_0")
        self.assertRegex(shown, r"f32 -> q8_0 +30 +\d+\.\d\d MB +\d+\.\d\d MB\n")
        self.assertRegex(shown, r"f32 kept +9 ")
        self.assertRegex(shown, r"\nall +39 ")
        self.assertRegex(shown, r"out\.gguf: 0\.\d\d MB\n$")
        self.assertNotIn("note:", shown)
        listed = run("quantize", self.out, self.folder / "b.gguf", "--type", "q4_0", "-v").stdout
        self.assertIn("note: what a block format has lost", listed)
        self.assertRegex(listed, r"blk\.0\.attn_q\.weight +q8_0 -> q4_0\n")
        self.assertRegex(listed, r"output_norm\.weight +f32 -> f32\n")

    def test_a_set_of_split_files_becomes_one(self):
        self.write_split()
        result = run("quantize", self.folder / "m-00001-of-00002.gguf", self.out, "--type", "f16")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"all +2 ")
        content = self.out.read_bytes()
        self.assertIn(b"general.name", content)
        self.assertNotIn(b"split.", content)
        self.refused("IN and OUT are the same file", self.folder / "m-00001-of-00002.gguf",
                     self.folder / "m-00002-of-00002.gguf", "--type", "f16", "--force")

    def write_split(self):
        """Two files with a matrix each; the rows of the second are no whole blocks."""
        for number, columns in ((0, 32), (1, 5)):
            def text(value):
                return struct.pack("<Q", len(value)) + value
            keys = [text(b"general.name") + struct.pack("<I", 8) + text(b"split")] if number == 0 else []
            keys += [text(b"split.no") + struct.pack("<IH", 2, number), text(b"split.count") + struct.pack("<IH", 2, 2),
                     text(b"split.tensors.count") + struct.pack("<Ii", 5, 2)]
            entry = text(b"%d.weight" % number) + struct.pack("<IQQIQ", 2, columns, 3, 0, 0)
            head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(keys) + entry
            data = struct.pack(f"<{3 * columns}f", *range(3 * columns))
            (self.folder / f"m-0000{number + 1}-of-00002.gguf").write_bytes(head + bytes(-len(head) % 32) + data)

    def test_rows_that_are_no_whole_blocks_become_f16(self):
        self.write_split()
        shown = run("quantize", self.folder / "m-00001-of-00002.gguf", self.out, "--type", "q4_0").stdout
        self.assertRegex(shown, r"f32 -> f16, rows are no multiple of 32 +1 ")
        self.assertRegex(shown, r"f32 -> q4_0 +1 ")

    def test_each_refusal_is_one_line_and_leaves_nothing_behind(self):
        self.refused("no/such/model.gguf: cannot open", "no/such/model.gguf", self.out, "--type", "q4_0")
        self.refused("expected a GGUF file, got a folder", DATA / "tiny" / "llama2", self.out, "--type", "q4_0")
        self.refused("--type", MODEL, self.out, "--type", "q2_k")
        self.refused("--type", MODEL, self.out)
        self.refused("expected a file or a name for a new one", MODEL, self.folder, "--type", "q4_0")
        self.refused("/dev/full: cannot write", MODEL, "/dev/full", "--type", "q4_0", code=1)
        self.refused("expected a file or a name for a new one", MODEL, self.folder, "--type", "q4_0", "--force")
        self.refused("no/folder/out.gguf: no such directory as no/folder", MODEL, "no/folder/out.gguf", "--type", "q4_0")
        self.out.write_bytes(MODEL.read_bytes())
        self.refused("the file exists, expected a new name or --force", MODEL, self.out, "--type", "q4_0")
        self.refused("IN and OUT are the same file", self.out, self.out, "--type", "q4_0", "--force")
        link = self.folder / "link.gguf"
        link.symlink_to(self.out)
        self.refused("IN and OUT are the same file", self.out, link, "--type", "q4_0", "--force")

    def test_a_full_disk_is_one_line_and_leaves_nothing_behind(self):
        def small_files_only():
            resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.refused("out.gguf: cannot write: File too large", MODEL, self.out, "--type", "q8_0", code=1,
                     preexec_fn=small_files_only, restore_signals=False)

    def test_weights_that_no_type_can_hold_are_refused(self):
        content = bytearray(MODEL.read_bytes())
        content[-4:] = struct.pack("<f", float("nan"))
        broken = self.folder / "broken.gguf"
        # The last tensor of the file may be a vector, which is copied: break them all.
        for at in range(len(content) - 200000, len(content), 4):
            content[at:at + 4] = struct.pack("<f", 1e6)
        broken.write_bytes(content)
        self.refused("expected finite weights below 65520", broken, self.out, "--type", "q8_0")

    @unittest.skipUnless(gguf, "the Python package gguf is not installed")
    def test_the_gguf_package_reads_the_same_metadata_and_the_weights_it_would_have_written(self):
        source = gguf.GGUFReader(MODEL)
        for kind in TYPES:
            self.quantize(kind, "--force")
            written = gguf.GGUFReader(self.out)
            self.compare_fields(source, written, kind)
            self.compare_tensors(source, written, kind)

    def compare_fields(self, source, written, kind):
        changed = {"general.file_type", "general.quantization_version", "GGUF.kv_count"}
        self.assertEqual(set(written.fields) - set(source.fields) - changed, set())
        for name, field in source.fields.items():
            if name not in changed:
                self.assertEqual((field.types, field.contents()), (written.fields[name].types,
                                                                   written.fields[name].contents()), name)
        file_type = gguf.LlamaFileType(written.fields["general.file_type"].contents())
        self.assertEqual(file_type.name, f"MOSTLY_{kind.upper()}")
        self.assertEqual(written.fields["general.quantization_version"].contents(), gguf.GGML_QUANT_VERSION)

    def compare_tensors(self, source, written, kind):
        old = {tensor.name: tensor for tensor in source.tensors}
        self.assertEqual({tensor.name for tensor in written.tensors}, set(old))
        for tensor in written.tensors:
            before = old[tensor.name]
            self.assertEqual(list(tensor.shape), list(before.shape))
            expected = before.data
            if len(before.shape) > 1:
                self.assertEqual(tensor.tensor_type.name, kind.upper(), tensor.name)
                expected = gguf.quants.quantize(before.data, tensor.tensor_type)
            self.assertEqual(tensor.data.tobytes(), expected.tobytes(), tensor.name)


FAKE = '''#!{python}
import json, sys, time
words = sys.argv[1:]
options = dict(zip(words[::2], words[1::2]))
rows, generated, depth = (int(options[name]) for name in ("-p", "-n", "-d"))
with open({log!r}, "a") as log:
    log.write(json.dumps(options) + "\\n")
{behaviour}
print(json.dumps([{{"n_prompt": rows, "n_gen": generated, "n_depth": depth,
                   "samples_ns": [{speed} * 1000000 * max(1, generated)] * 3}}]))
'''


class Bench(unittest.TestCase):
    FLAGS = ("--model", str(MODEL), "--json", "--rows", "1,2", "--contexts", "16,40", "--repeat", "2", "--threads", "2")

    shown = tuple(flag for flag in FLAGS if flag != "--json")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def bench(self, *flags):
        drafts = () if "--draft" in flags or "--head" in flags else ("--draft", "none")
        result = run("bench", *self.FLAGS, *drafts, *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout), result.stderr

    def fake(self, name, speed=1, behaviour=""):
        program = self.folder / name
        program.write_text(FAKE.format(python=sys.executable, log=str(self.folder / f"{name}.log"), speed=speed,
                                       behaviour=behaviour))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return str(program)

    def calls(self, name):
        return [json.loads(line) for line in (self.folder / f"{name}.log").read_text().splitlines()]

    def test_users_of_one_batch_are_measured_where_they_are_asked_for(self):
        def users(*flags):
            figures = self.bench("--draft", "none", *flags)[0]["figures"]
            return [(figure["rows"], figure["context"]) for figure in figures if figure["name"] == "users_step"]

        self.assertEqual(users("--users", "5,1,5"), [(1, 128), (5, 128)])
        self.assertEqual(users(), [])

    def test_json_has_every_promised_field(self):
        answer, errors = self.bench("--draft", "ngram")
        self.assertEqual(errors, "")
        self.assertEqual(list(answer), ["model", "device", "isa", "threads", "kv", "repeats", "cut", "load_seconds",
                                        "draft", "draft_rows", "figures", "row_ratios", "shares", "host_work", "memory",
                                        "against"])
        self.assertEqual((answer["threads"], answer["repeats"], answer["draft"]), (2, 2, "ngram"))
        figures = {(figure["name"], figure["rows"], figure["context"]) for figure in answer["figures"]}
        steps = {("step", rows, context) for rows in (1, 2) for context in (16, 40)}
        self.assertLessEqual(steps | {("prompt_step", 1, 16), ("prompt_step", 2, 16), ("prefill", 512, None),
                                      ("plain_decoding", None, 128), ("step_by_ops", 1, 16), ("step_linears", 1, 16),
                                      ("step_attention", 1, 40), ("plain_decoding_by_ops", None, 128),
                                      ("grow", 2, 40), ("tensorise", 2, 40), ("tables", 2, 40), ("mask", 2, 40),
                                      ("commit", 2, 40), ("round_draft", None, 128), ("round_trace", None, 128)}, figures)
        self.assertEqual(len(figures), len(answer["figures"]))
        for figure in answer["figures"]:
            self.assertEqual(len(figure["samples"]), 2)
            self.assertGreaterEqual(min(figure["samples"]), 0)
            self.assertLessEqual(figure["lower_quartile_seconds"], figure["median_seconds"])
            self.assertLessEqual(figure["median_seconds"], figure["upper_quartile_seconds"])
        self.assertEqual([(ratio["context"], ratio["rows"]) for ratio in answer["row_ratios"]],
                         [(16, 1), (16, 2), (40, 1), (40, 2)])
        self.assertEqual(answer["row_ratios"][0]["to_one_row"], 1)
        for share in answer["shares"]:
            self.assertAlmostEqual(share["linears"] + share["attention"] + share["other"], 1)
            self.assertTrue(all(0 < share[part] < 1 for part in ("linears", "attention", "other")), share)
        self.assertEqual([(share["figure"], share["context"]) for share in answer["shares"]],
                         [("step", 16), ("step", 40), ("plain_decoding", 128)])
        self.assertGreater(answer["memory"]["peak_after_loading_bytes"], 0)
        self.assertGreaterEqual(answer["memory"]["peak_bytes"], answer["memory"]["peak_after_loading_bytes"])
        self.assertEqual(answer["memory"]["weights_bytes"], 283776)
        self.assertEqual((answer["cut"], answer["against"]), ([], []))

    def test_the_tables_show_the_same_to_people(self):
        result = run("bench", *self.shown, "--draft", "ngram")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for text in ("context 16", "2 rows", "plain decoding", "tokens/s, 128 tokens after 128", "prefill of 512",
                     "a round with drafts by ngram", "host work, tree of 2 rows, context 40", "linears", "peak memory"):
            self.assertIn(text, result.stdout)
        self.assertNotIn("llama.cpp", result.stdout)
        self.assertLessEqual(max(map(len, result.stdout.splitlines()[1:])), 100, result.stdout)

    def test_what_does_not_fit_the_model_is_cut_and_said(self):
        answer, errors = self.bench("--contexts", "128,4096")
        self.assertEqual(answer["cut"], ["context: 4096 cut to 510, what the context holds"])
        self.assertEqual(errors, "espalier: context: 4096 cut to 510, what the context holds\n")
        self.assertIn(510, {figure["context"] for figure in answer["figures"]})

    def test_a_head_drafts_and_none_does_not(self):
        self.assertEqual(self.bench("--head", EAGLE3)[0]["draft"], "eagle3")
        self.assertEqual(self.bench("--draft", "eagle2", "--head", EAGLE2)[0]["draft"], "eagle2")
        answer, _ = self.bench("--draft", "none")
        self.assertEqual(answer["draft"], "none")
        self.assertFalse([figure for figure in answer["figures"] if figure["name"].startswith("round")])

    def test_other_devices_and_modes_are_measured_too(self):
        for flags in (["--device", "reference"], ["--mode", "reference"], ["--checked=ascend"], ["--kv", "f32"]):
            result = run("bench", "--model", MODEL, "--json", "--rows", "2", "--contexts", "16", "--repeat", "1", "--draft",
                         "none", *flags)
            self.assertEqual((result.returncode, result.stderr), (0, ""), flags)
            answer = json.loads(result.stdout)
            self.assertEqual((answer["repeats"], answer["row_ratios"]), (1, []))

    def test_peers_run_interleaved_and_the_better_one_counts(self):
        answer, _ = self.bench("--against", self.fake("slow", speed=7), "--against", self.fake("fast", speed=3))
        self.assertEqual([(duel["figure"], duel["rows"], duel["context"]) for duel in answer["against"]],
                         [("prompt_step", 1, 16), ("prompt_step", 2, 16), ("plain_decoding", None, 128),
                          ("plain_decoding", None, 1), ("prefill", 512, None)])
        ours = {(figure["name"], figure["rows"], figure["context"]): figure["median_seconds"]
                for figure in answer["figures"]}
        for duel in answer["against"]:
            self.assertEqual(Path(duel["best"]).name, "fast")
            self.assertEqual([peer["median_seconds"] for peer in duel["peers"]], [0.007, 0.003])
            self.assertAlmostEqual(duel["ratio"], 0.003 / ours[duel["figure"], duel["rows"], duel["context"]], places=5)
            self.assertLessEqual(duel["ratio_lower_quartile"], duel["ratio_upper_quartile"])
        asked = [(call["-p"], call["-n"], call["-d"], call["-t"], call["-m"]) for call in self.calls("fast")]
        once = [("1", "0", "16"), ("2", "0", "16"), ("0", "128", "128"), ("0", "128", "0"), ("512", "0", "0")]
        self.assertEqual(asked, 2 * [(*test, "2", str(MODEL)) for test in once])

    def test_a_peer_that_crashes_loses_one_figure_and_is_not_asked_again(self):
        crash = "import os, signal\nif rows == 2: os.kill(os.getpid(), signal.SIGILL)"
        program = self.fake("crashing", behaviour=crash)
        answer, _ = self.bench("--against", program)
        duels = {(duel["figure"], duel["rows"]): duel for duel in answer["against"]}
        lost = duels["prompt_step", 2]
        self.assertEqual((lost["ratio"], lost["best"], lost["peers"][0]["median_seconds"]), (None, None, None))
        self.assertIn("signal 4", lost["peers"][0]["problem"])
        self.assertIsNotNone(duels["prompt_step", 1]["ratio"])
        self.assertEqual(sum(call["-p"] == "2" for call in self.calls("crashing")), 2)  # with the context, and without
        shown = run("bench", *self.shown, "--draft", "none", "--against", program).stdout
        self.assertRegex(shown, r"2 rows of a prompt, context 16 +\S+ .s +failed +-\n")
        self.assertRegex(shown, r"\n\[1\] 2 rows of a prompt, context 16: ended by signal 4")

    def test_a_peer_that_fails_behind_a_context_is_measured_without_one(self):
        crash = "if depth: sys.exit('cannot do that')"
        answer, _ = self.bench("--against", self.fake("shallow", behaviour=crash))
        for duel in answer["against"]:
            self.assertEqual(duel["peers"][0]["depth"], 0)
            self.assertIsNotNone(duel["ratio"])
        self.assertEqual(answer["against"][0]["peers"][0]["problem"], "failed behind a context, measured without one")
        self.assertIsNone(answer["against"][-1]["peers"][0]["problem"])

    def test_a_peer_that_talks_nonsense_is_told(self):
        answer, _ = self.bench("--against", self.fake("silent", behaviour="sys.exit(0)"))
        self.assertEqual({duel["peers"][0]["problem"] for duel in answer["against"]},
                         {"printed no JSON list with one test"})
        answer, _ = self.bench("--against", self.fake("sad", behaviour="sys.exit('no such model')"))
        self.assertEqual({duel["peers"][0]["problem"] for duel in answer["against"]}, {"exit code 1: no such model"})

    def test_each_wrong_use_is_one_line_and_exit_code_2(self):
        for message, flags in (("--rows", ["--rows", "0"]), ("--contexts", ["--contexts", "x"]),
                               ("--repeat", ["--repeat", "0"]), ("does not fit the context", ["--context", "2"]),
                               ("expected the path of a llama-bench", ["--against", "no/such/program"]),
                               ("--weights: not with --against", ["--against", sys.executable, "--weights", "f32"]),
                               ("reads GGUF files only", ["--against", sys.executable, "--model",
                                                          str(DATA / "tiny" / "llama2")])):
            result = run("bench", *([] if "--model" in flags else ["--model", str(MODEL)]), *flags)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), result.stderr)
            self.assertIn(message, result.stderr)

    def test_ctrl_c_ends_it_and_the_peer_with_it(self):
        program = self.fake("endless", behaviour="time.sleep(100)")
        process = subprocess.Popen([str(ESPALIER), "bench", *self.FLAGS, "--draft", "none", "--against", program],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   env=environment())
        log = self.folder / "endless.log"
        while process.poll() is None and not log.exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, err), (130, "", "espalier: interrupted\n"))
        running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        self.assertNotIn(program, running)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
