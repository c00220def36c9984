"""The program as a user meets it: python3 tests/cli_test.py build/bin/espalier

Runs on the tiny models of tests/data, so no download is needed."""

import hashlib
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
TREES = DATA.parent.parent / "data" / "trees"
MODEL = str(DATA / "tiny" / "llama2.gguf")  # babbles, but reproducibly
EAGLE3 = str(DATA / "heads" / "eagle3-full-vocabulary")  # of the same teacher, as random as it is
EAGLE2 = str(DATA / "heads" / "eagle2-vicuna")  # likewise
MEDUSA = str(DATA / "heads" / "medusa-d")  # likewise; three heads
STRANGER = str(DATA / "heads" / "medusa-b")  # of another teacher

CACHE = tempfile.TemporaryDirectory()  # step times are kept here, not in the user's own folder


def run(*arguments, text=None, cwd=None, stdout=subprocess.PIPE, environment=None, program=None):
    # Only the variables of the test: a mode that the caller's shell prefers is not what is tested here.
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith("ESPALIER_") and name not in ("NO_COLOR", "COLUMNS")}
    variables["XDG_CACHE_HOME"] = CACHE.name
    return subprocess.run([str(program or ESPALIER), *arguments], input=text, cwd=cwd, text=True, stdout=stdout,
                          stderr=subprocess.PIPE, timeout=120, env={**variables, **(environment or {})})


def generate(*arguments, **options):
    return run("generate", "--model", MODEL, *arguments, **options)


class Generate(unittest.TestCase):
    def test_only_the_answer_is_on_standard_output(self):
        result = generate("-n", "8", "--ignore-eos", "hello")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.endswith("\n"))

    def test_json_has_every_promised_field(self):
        result = generate("--json", "-n", "8", "--ignore-eos", "--seed", "5", "--logprobs", "2", "hello")
        self.assertEqual(result.returncode, 0, result.stderr)
        answer = json.loads(result.stdout)
        self.assertEqual(list(answer), ["text", "tokens", "prompt_tokens", "finish_reason", "prefill_seconds",
                                        "decode_seconds", "tokens_per_second", "seed", "model", "device", "isa", "arithmetic", "mode",
                                        "options", "draft", "draft_reason", "tree", "budget", "rounds", "accept_lengths",
                                        "accept_L", "tau",
                                        "draft_seconds", "prepare_seconds", "verify_seconds", "accept_seconds",
                                        "commit_seconds", "kv", "logprobs"])
        self.assertEqual(len(answer["tokens"]), 8)
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual((answer["seed"], answer["device"]), (5, "cpu"))
        self.assertIn(answer["isa"], ("avx2", "avx512", "neon", "dotprod", "i8mm"))
        self.assertEqual([len(entry["top"]) for entry in answer["logprobs"]], [2] * 8)
        self.assertEqual([entry["token"] for entry in answer["logprobs"]], answer["tokens"])
        speed = (len(answer["tokens"]) - 1) / answer["decode_seconds"]
        self.assertAlmostEqual(answer["tokens_per_second"], speed, delta=1e-6 * speed)

    def test_a_single_token_has_no_speed(self):
        answer = json.loads(generate("--json", "-n", "1", "hello").stdout)
        self.assertEqual(answer["tokens_per_second"], 0)

    def test_argument_standard_input_and_file_give_the_same_answer(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "prompt"
            file.write_text("hello there")
            answers = {generate("-n", "8", "hello there").stdout, generate("-n", "8", "-", text="hello there").stdout,
                       generate("-n", "8", "--file", str(file)).stdout}
        self.assertEqual(len(answers), 1)

    def test_threads_kv_and_checking_do_not_change_the_text(self):
        plain = json.loads(generate("--json", "-n", "12", "--temperature", "0.8", "--seed", "3", "hello").stdout)
        for flags in (["--threads", "1"], ["--threads", "3"], ["--checked"], ["--checked=ascend"],
                      ["--device", "reference"]):
            other = generate("--json", "-n", "12", "--temperature", "0.8", "--seed", "3", *flags, "hello")
            self.assertEqual(other.returncode, 0, other.stderr)
            self.assertEqual(json.loads(other.stdout)["tokens"], plain["tokens"], flags)

    def test_raw_leaves_the_chat_template_out(self):
        chat = json.loads(generate("--json", "-n", "1", "hello").stdout)["prompt_tokens"]
        raw = json.loads(generate("--json", "-n", "1", "--raw", "hello").stdout)["prompt_tokens"]
        self.assertLess(raw, chat)

    def test_stop_string_and_stop_reason(self):
        whole = json.loads(generate("--json", "-n", "20", "--ignore-eos", "hello").stdout)["text"]
        cut = json.loads(generate("--json", "-n", "20", "--ignore-eos", "--stop", whole[5:7], "hello").stdout)
        self.assertEqual(cut["finish_reason"], "stop")
        self.assertEqual(cut["text"], whole[:whole.index(whole[5:7])])

    def test_a_banned_token_does_not_come(self):
        tokens = json.loads(generate("--json", "-n", "4", "--ignore-eos", "hello").stdout)["tokens"]
        banned = generate("--json", "-n", "4", "--ignore-eos", "--logit-bias", f"{tokens[0]}=-inf", "hello")
        self.assertNotIn(tokens[0], json.loads(banned.stdout)["tokens"])

    def test_a_full_disk_is_a_failure_with_one_line(self):
        with open("/dev/full", "w") as full:
            result = generate("-n", "4", "hello", stdout=full)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "espalier: standard output: cannot write: No space left on device\n")

    def test_a_closed_pipe_is_no_error_and_needs_no_words(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        result = generate("-n", "4", "hello", stdout=write_end)
        os.close(write_end)
        self.assertEqual((result.returncode, result.stderr), (-signal.SIGPIPE, ""))

    def test_interrupting_stops_the_answer_and_still_prints_it(self):
        process = subprocess.Popen([str(ESPALIER), "generate", "--model", MODEL, "--json", "-n", "400", "--checked",
                                    "--ignore-eos", "hello"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        # A fast machine may have finished before, and a slow one may still be loading.
        self.assertIn(process.returncode, (0, 130), err)
        if "interrupted after" in err:
            self.assertEqual(json.loads(out)["finish_reason"], "cancelled", err)


def large_model(folder):
    """The tiny model with a million rows that no token names: a file that takes no space, and time to load."""
    source, rows = DATA / "tiny" / "llama2", 1_000_000
    folder.mkdir()
    for path in (source / "model.safetensors", *(DATA / "tokenizers" / "llama2").iterdir()):
        shutil.copy(path, folder)
    config = json.loads((source / "config.json").read_text())
    config["vocab_size"] = rows
    (folder / "config.json").write_text(json.dumps(config))
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    size = struct.unpack("<Q", whole[:8])[0]
    header, data = json.loads(whole[8:8 + size]), whole[8 + size:]
    end = len(data)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in header:
            header[name].update(shape=[rows, config["hidden_size"]], dtype="F32")
            header[name]["data_offsets"] = [end, end + 4 * rows * config["hidden_size"]]
            end = header[name]["data_offsets"][1]
    kept = {name: info for name, info in header.items() if name != "__metadata__"}
    place, moved = 0, b""
    for info in sorted(kept.values(), key=lambda info: info["data_offsets"]):
        begin, stop = info["data_offsets"]
        info["data_offsets"] = [place, place + stop - begin]
        if stop <= len(data):
            moved += data[begin:stop]
        place += stop - begin
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + moved)
        out.truncate(8 + len(text) + place)


class Signals(unittest.TestCase):
    def test_a_signal_while_weights_are_loading_ends_the_program_at_once_with_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "large"
            large_model(model)
            for number, line in ((signal.SIGINT, r"espalier: interrupted( after \d+ tokens)?\n"),
                                 (signal.SIGTERM, r"espalier: ended by SIGTERM\n")):
                process = subprocess.Popen([str(ESPALIER), "generate", "--model", str(model), "--device", "cpu", "-n",
                                            "400", "--ignore-eos", "hello"], stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True,
                                           preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
                while process.poll() is None and "model.safetensors" not in Path(f"/proc/{process.pid}/maps").read_text():
                    time.sleep(0.005)
                process.send_signal(number)
                _, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 128 + number, err)
                self.assertRegex(err, f"^{line}$")


class Devices(unittest.TestCase):
    def device(self, *flags, **options):
        result = generate("--json", "-n", "2", *flags, "hello", **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)["device"]

    def test_a_flag_beats_the_environment_which_beats_auto(self):
        variables = {"ESPALIER_DEVICE": "reference"}
        self.assertEqual(self.device(environment=variables), "reference")
        self.assertEqual(self.device("--device", "cpu", environment=variables), "cpu")
        self.assertEqual(self.device(), self.device("--device", "auto"))
        wrong = generate("hello", environment={"ESPALIER_DEVICE": "tpu"})
        self.assertEqual((wrong.returncode, wrong.stderr),
                         (2, "espalier: ESPALIER_DEVICE: expected auto or cpu or reference or cuda or ascend, or cuda:N or ascend:N, got 'tpu'\n"))

    def test_an_instruction_set_means_the_cpu(self):
        isa = json.loads(run("inspect", "--cpu", "--json").stdout)["cpu"]["supported"][0]
        self.assertEqual(self.device("--isa", isa), "cpu")


class Speculation(unittest.TestCase):
    FLAGS = ("--json", "-n", "24", "--ignore-eos", "--seed", "3")

    def answer(self, *flags, **options):
        result = generate(*self.FLAGS, *flags, "hello hello", **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), flags)
        return json.loads(result.stdout)

    def test_drafts_by_default(self):
        answer = self.answer()
        self.assertEqual(answer["draft"], "ngram")
        self.assertRegex(answer["draft_reason"], f"^auto: no head for {MODEL} in ")
        self.assertIsNotNone(answer["budget"])

    def test_with_draft_none_nothing_is_drafted(self):
        answer = self.answer("--draft", "none")
        self.assertEqual(answer["draft_reason"], "--draft none")
        self.assertEqual((answer["draft"], answer["tree"]["nodes"], answer["rounds"]), ("none", 1, 23))
        self.assertEqual((answer["accept_lengths"], answer["accept_L"], answer["tau"]), ([0] * 23, 0, 1))

    def test_the_text_is_the_same_with_any_drafter_and_any_tree(self):
        drafters = [["ngram"], ["hostile"], ["oracle", "--oracle-profile", "0.8,0.5"], ["auto"],
                    ["model", "--draft-model", str(DATA / "tiny" / "llama3.gguf")],
                    ["medusa", "--head", MEDUSA], ["eagle3", "--head", EAGLE3, "--draft-window", "8"],
                    ["eagle2", "--head", EAGLE2], ["eagle3+medusa+ngram", "--head", EAGLE3, "--head", MEDUSA]]
        trees = [[], ["--tree", "chain", "--draft-depth", "3"], ["--tree", "static:pangu_stage2"],
                 ["--tree", "dynamic", "--draft-nodes", "40", "--draft-expand", "6", "--draft-branch", "2"]]
        for sampling in ([], ["--temperature", "0.8", "--top-p", "0.9", "--repeat-penalty", "1.1"]):
            plain = self.answer("--draft", "none", *sampling)
            for drafter in drafters:
                for tree in trees:
                    answer = self.answer("--draft", *drafter, *tree, *sampling)
                    self.assertEqual((answer["text"], answer["tokens"], answer["finish_reason"]),
                                     (plain["text"], plain["tokens"], plain["finish_reason"]), (drafter, tree))

    def test_the_json_tells_who_drafted_in_which_tree_and_what_came_of_it(self):
        answer = self.answer("--draft", "oracle", "--tree", "chain", "--draft-depth", "5")
        self.assertEqual(answer["draft"], "oracle")
        self.assertEqual(answer["tree"], {"shape": "chain", "nodes": 6, "depth": 5, "expand": None, "branch": None})
        # 23 tokens after the first: five drafts and the teacher's own in each round, and four in the last.
        self.assertEqual(answer["accept_lengths"], [5, 5, 5, 4])
        self.assertEqual((answer["rounds"], answer["accept_L"], answer["tau"]), (4, 4.75, 5.75))
        self.assertGreater(answer["verify_seconds"], 0)
        self.assertEqual(answer["kv"]["reorder_fallbacks"], 0)
        defaults = self.answer("--draft", "ngram")["tree"]
        self.assertEqual(defaults, {"shape": "dynamic", "nodes": 16, "depth": 6, "expand": 4, "branch": 4})

    def test_a_static_tree_is_found_by_itself_and_cut_to_the_heads(self):
        repository = str(DATA.parent.parent)
        tree = self.answer("--draft", "ngram", "--tree", "static", cwd=repository)["tree"]
        self.assertEqual(tree["shape"], "static")
        self.assertEqual((tree["nodes"], tree["depth"]), (65, 4))
        medusa = self.answer("--draft", "medusa", "--head", MEDUSA, "--tree", f"static:{TREES / 'pangu_64.json'}",
                             "--draft-nodes", "16")
        self.assertEqual((medusa["tree"]["nodes"], medusa["tree"]["depth"]), (16, 3))
        best = self.answer("--draft", "ngram", "--tree", f"static:{TREES / 'pangu_64.json'}", "--draft-nodes", "16")
        self.assertEqual(best["tree"]["nodes"], 16)

    def test_a_static_tree_is_found_by_its_name_unless_a_file_has_it(self):
        self.assertEqual(self.answer("--draft", "ngram", "--tree", "static:eagle1_25")["tree"],
                         {"shape": "static", "nodes": 26, "depth": 5, "expand": None, "branch": None})
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "eagle1_25").write_text("[[0], [1]]")
            self.assertEqual(self.answer("--draft", "ngram", "--tree", "static:eagle1_25", cwd=folder)["tree"]["nodes"], 3)

    def test_a_static_tree_that_is_deeper_or_wider_than_the_heads_is_cut_in_one_line(self):
        plain = self.answer("--draft", "none")["tokens"]
        medusa = ("--draft", "medusa", "--head", MEDUSA, "--tree")
        deep = generate(*self.FLAGS, *medusa, "static:vicuna_7b_stage2", "hello hello")
        self.assertEqual(deep.stderr, "espalier: tree vicuna_7b_stage2: 4 levels, the heads have 3: cut to 57 rows\n")
        answer = json.loads(deep.stdout)
        self.assertEqual((answer["tree"]["nodes"], answer["tree"]["depth"], answer["tokens"]), (57, 3, plain))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "wide.json"
            file.write_text("[[0], [1], [299], [1, 0], [299, 0]]")
            wide = generate(*self.FLAGS, *medusa, f"static:{file}", "hello hello")
            self.assertEqual(wide.stderr, f"espalier: tree {file}: 300 guesses below a node, there are 256: cut to 4 rows\n")
            answer = json.loads(wide.stdout)
            self.assertEqual((answer["tree"]["nodes"], answer["tokens"]), (4, plain))

    def test_auto_takes_the_head_that_fits_and_says_so(self):
        result = generate(*self.FLAGS, "-v", "--draft", "auto", "--head", STRANGER, "--head", EAGLE3, "hello")
        self.assertEqual(json.loads(result.stdout)["draft"], "eagle3")
        self.assertRegex(result.stderr, rf"passes over {STRANGER}: .*medusa-b")
        self.assertIn(f"drafts by eagle3: auto: {EAGLE3} fits this model\n", result.stderr)
        fallback = generate(*self.FLAGS, "--draft", "auto", "--head", STRANGER, "hello")
        self.assertEqual(json.loads(fallback.stdout)["draft"], "ngram")
        self.assertRegex(fallback.stderr, rf"^espalier: passes over {STRANGER}: [^\n]*\n$")
        mistaken = generate(*self.FLAGS, "--draft", "auto", "--head", EAGLE3, "--head-option", "taps=1,2,99", "hello")
        self.assertEqual(mistaken.returncode, 2, "what the user said about the head must hold")

    def test_eagle_takes_either_generation_and_says_which(self):
        plain = self.answer("--draft", "none")["tokens"]
        for head, name, said in ((EAGLE2, "eagle2", "EAGLE-2"), (EAGLE3, "eagle3", "EAGLE-3")):
            result = generate(*self.FLAGS, "--draft", "eagle", "--head", head, "hello hello")
            answer = json.loads(result.stdout)
            self.assertEqual((answer["draft"], answer["tokens"]), (name, plain))
            self.assertEqual(result.stderr, f"espalier: drafts with an {said} head\n")

    def test_a_head_of_another_teacher_is_refused_in_one_line(self):
        other = str(DATA / "heads" / "refusals" / "eagle2-another-teacher")
        result = generate(*self.FLAGS, "--draft", "eagle2", "--head", other, "hello")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, "^espalier: .*: embed_tokens.weight: differs from the teacher's by .*: a head of "
                                        "another teacher\n$")

    def test_heads_are_found_by_the_hash_of_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            found = {"ESPALIER_HEADS": folder, "XDG_CACHE_HOME": str(Path(folder) / "cache")}
            model = Path(MODEL).read_bytes()
            for kind, head in (("medusa", MEDUSA), ("eagle3", EAGLE3)):
                copy = Path(shutil.copytree(head, Path(folder) / kind))
                config = json.loads((copy / "config.json").read_text())
                config["espalier"] = {"teacher_sha256": hashlib.sha256(model).hexdigest(), "teacher_bytes": len(model),
                                      "suggested": {"drafters": [kind, "ngram"], "depth": 3}}
                (copy / "config.json").write_text(json.dumps(config))
            plain = self.answer("--draft", "none")["tokens"]
            for _ in range(2):  # the second time the hash is known
                answer = self.answer(environment=found)
                self.assertEqual((answer["draft"], answer["tree"]["depth"]), ("eagle3+ngram", 3))
                self.assertEqual(answer["draft_reason"], f"auto: {folder}/eagle3 was trained for this model")
                self.assertEqual(answer["tokens"], plain)
            self.assertEqual(len(list(Path(folder).glob("cache/espalier/sha256-*.json"))), 1)
            for draft in ("eagle3", "medusa", "eagle3+medusa+ngram"):
                answer = self.answer("--draft", draft, environment=found)
                self.assertEqual((answer["draft"], answer["tokens"]), (draft, plain))
            order = Path(folder) / "eagle3" / "vocab_order.json"
            cut = generate("--draft", "eagle3", "--draft-vocab", "9", "hello", environment=found)
            self.assertEqual(cut.stderr, f"espalier: {order}: no such file, expected the head's tokens by frequency: "
                                         "without it --draft-vocab cannot cut\n")
            many = generate(*self.FLAGS, "--draft", "eagle3", "--draft-vocab", "99999", "hello", environment=found)
            self.assertRegex(many.stderr, r"^espalier: --draft-vocab: .*eagle3 guesses \d+ tokens, all are kept\n$")
            for flags in (["--head-weights", "file"], ["--head-weights", "f32"], ["--mode", "reference"]):
                self.assertEqual(self.answer(*flags, environment=found)["tokens"], plain, flags)

    def test_chosen_rows_are_reported_and_their_step_times_kept(self):
        self.assertIsNone(self.answer("--draft", "ngram")["budget"])
        with tempfile.TemporaryDirectory() as folder:
            cache = {"XDG_CACHE_HOME": folder}
            flags = ["--draft", "ngram", "--draft-nodes", "auto"]
            first = self.answer(*flags, environment=cache)["budget"]
            self.assertEqual(list(first), ["mean_rows", "plain_share", "undrafted_share", "step_times"])
            self.assertGreaterEqual(first["mean_rows"], 1)
            files = list(Path(folder).rglob("*"))
            self.assertEqual([file.suffix for file in files], ["", ".json"])
            second = self.answer(*flags, environment=cache)["budget"]
            self.assertEqual(first["step_times"]["seconds"], second["step_times"]["seconds"])
            self.assertEqual(json.loads(files[1].read_text())["way"]["arithmetic"], "2")
            self.answer(*flags, "--threads", "1", environment=cache)
            self.assertEqual(len(list(Path(folder).rglob("*.json"))), 1 if os.cpu_count() == 1 else 2)
            files[1].write_text("{")
            self.answer(*flags, environment=cache)
            self.assertEqual(json.loads(files[1].read_text())["rows"], first["step_times"]["rows"])
        self.answer(*flags, environment={"XDG_CACHE_HOME": "/dev/null/nowhere"})
        self.assertIsNotNone(self.answer("--draft", "auto")["budget"])
        self.assertIsNone(self.answer("--draft", "auto", "--draft-nodes", "8")["budget"])

    def test_verbose_tells_the_speed_and_what_was_accepted(self):
        result = generate("-n", "8", "--ignore-eos", "--draft", "oracle", "-v", "hello")
        self.assertRegex(result.stderr, r"oracle: \d+ rounds, accept_L \d")
        chat = run("chat", "--model", MODEL, "-n", "8", "--ignore-eos", "--draft", "oracle", "-v",
                   text="hello\nagain\n")
        self.assertEqual(chat.stderr.count("accept_L"), 2, chat.stderr)

    def test_chat_says_the_same_with_drafts(self):
        lines = "hello\nand again\n/reset\nhello\n"
        chat = ["chat", "--model", MODEL, "-n", "12", "--ignore-eos"]
        plain = run(*chat, "--draft", "none", text=lines)
        for draft in (["ngram"], ["oracle"], ["eagle2", "--head", EAGLE2], ["eagle3", "--head", EAGLE3]):
            drafted = run(*chat, "--draft", *draft, text=lines)
            self.assertEqual((drafted.returncode, drafted.stderr), (0, ""))
            self.assertEqual(drafted.stdout, plain.stdout, draft)


class Modes(unittest.TestCase):
    def options(self, *flags, environment=None):
        result = generate("--json", "-n", "8", "--ignore-eos", *flags, "hello", environment=environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        answer = json.loads(result.stdout)
        return answer["mode"], answer["options"], answer["tokens"]

    def test_modes_are_presets_and_change_no_token(self):
        mode, options, tokens = self.options("--draft", "oracle")
        self.assertEqual((mode, options), ("performance", {
            "attention": "fused", "cache": "shared", "reorder": "fast", "mask": "list", "checked": "off",
            "invariants": False, "round_route": "host"}))
        mode, options, same = self.options("--draft", "oracle", "--mode", "reference")
        self.assertEqual((mode, options), ("reference", {
            "attention": "eager", "cache": "replicate", "reorder": "full", "mask": "dense", "checked": "plain",
            "invariants": True, "round_route": "host"}))
        self.assertEqual(same, tokens)
        mode, options, same = self.options("--draft", "oracle", "--mode", "eager-aligned")
        self.assertEqual((mode, options["attention"], options["mask"], options["cache"]),
                         ("eager-aligned", "eager", "dense", "shared"))
        self.assertEqual(same, tokens)
        self.assertEqual(self.options("--draft", "oracle", "--checked=ascend", "--invariants")[2], tokens)

    def test_rounds_that_stay_on_the_device_change_no_token(self):
        drafted = ["--draft", "model", "--draft-model", MODEL]
        _, options, tokens = self.options(*drafted, "--round-route", "host")
        self.assertEqual(options["round_route"], "host")
        _, options, same = self.options(*drafted, "--round-route", "device")
        self.assertEqual((options["round_route"], same), ("device", tokens))
        result = generate("--draft", "ngram", "--round-route", "device", "hello")
        self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), result.stderr)
        self.assertIn("--round-route device: rounds of ngram", result.stderr)

    def test_a_flag_beats_the_environment_which_beats_the_mode(self):
        variables = {"ESPALIER_MODE": "reference", "ESPALIER_ATTENTION": "fused", "ESPALIER_REORDER": "fast"}
        mode, options, _ = self.options(environment=variables)
        self.assertEqual((mode, options["attention"], options["reorder"], options["cache"]),
                         ("reference", "fused", "fast", "replicate"))
        mode, options, _ = self.options("--mode", "performance", "--attention", "eager", environment=variables)
        self.assertEqual((mode, options["attention"], options["cache"]), ("performance", "eager", "shared"))

    def test_wrong_values_and_contradictions_are_one_line(self):
        for message, flags, variables in (
                ("--mode: expected performance or reference or eager-aligned, got 'fast'", ["--mode", "fast"], {}),
                ("--cache: expected shared or replicate, got 'both'", ["--cache", "both"], {}),
                ("ESPALIER_ATTENTION: expected fused or eager, got 'x'", [], {"ESPALIER_ATTENTION": "x"}),
                ("ESPALIER_MODE: expected", [], {"ESPALIER_MODE": "x"}),
                ("ESPALIER_REORDER: expected", [], {"ESPALIER_REORDER": "x"}),
                ("--mask list with --attention eager", ["--attention", "eager", "--mask", "list"], {}),
                ("--mask list with ESPALIER_MODE=reference", ["--mask", "list"], {"ESPALIER_MODE": "reference"})):
            result = generate(*flags, "hello", environment=variables)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), result.stderr)
            self.assertIn(message, result.stderr)

    def test_verbose_tells_what_holds(self):
        result = generate("-v", "-n", "2", "hello", environment={"ESPALIER_REORDER": "full"})
        self.assertIn("mode performance: attention fused, cache shared, reorder full, mask auto, round route auto, "
                      "checked off, invariants off\n", result.stderr)


class Compare(unittest.TestCase):
    def compare(self, *flags, **options):
        return run("compare", "--model", MODEL, "-n", "20", "--ignore-eos", *flags, "hello hello", **options)

    def test_shows_both_texts_and_one_line_about_them(self):
        result = self.compare("--draft", "oracle")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.startswith("without speculation\n"))
        self.assertIn("\nwith drafts by oracle, dynamic tree of 16 rows\n", result.stdout)
        self.assertRegex(result.stdout, r"\n\ntokens equal: 20; \d+\.\d tokens/s without, \d+\.\d with speculation: "
                                        r"\d+\.\d\dx; accept_L \d\.\d\d\n$")

    def test_drafts_by_default(self):
        self.assertIn("with drafts by ngram", self.compare().stdout)

    def test_json_holds_both_answers(self):
        answer = json.loads(self.compare("--json", "--draft", "oracle", "--temperature", "0.8").stdout)
        self.assertEqual(list(answer), ["equal", "first_difference", "ratio", "accept_L", "without", "with"])
        self.assertTrue(answer["equal"])
        self.assertIsNone(answer["first_difference"])
        self.assertEqual(answer["with"]["tokens"], answer["without"]["tokens"])
        self.assertEqual((answer["without"]["draft"], answer["with"]["draft"]), ("none", "oracle"))
        self.assertGreater(answer["accept_L"], 3)


class Tree(unittest.TestCase):
    def tree(self, *flags, **options):
        return run("tree", "--model", MODEL, "-n", "16", "--ignore-eos", *flags, "hello hello", **options)

    def test_shows_the_accepted_path_of_a_round(self):
        result = self.tree("--draft", "oracle+ngram", "--round", "0")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = result.stdout.splitlines()
        self.assertRegex(lines[0], r"^round 0: \d+ rows, 6 of \d+ drafted tokens accepted$")
        self.assertEqual(sum(line.startswith("* ") for line in lines), 6 + 1 + 1)  # the root, and the last line
        self.assertIn("teacher", lines[3])
        self.assertNotIn("\x1b", result.stdout)

    def test_without_a_round_one_that_accepted_most_is_shown(self):
        self.assertIn(" 6 of ", self.tree("--draft", "oracle").stdout.splitlines()[0])

    def test_colour_is_for_those_who_ask_and_lines_fit_the_screen(self):
        self.assertIn("\x1b[1;32m", self.tree("--draft", "oracle", "--color", "always").stdout)
        narrow = self.tree("--draft", "oracle", environment={"COLUMNS": "40"}).stdout
        self.assertLessEqual(max(map(len, narrow.splitlines())), 40)

    def test_writes_an_image(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "round.svg"
            self.assertEqual(self.tree("--draft", "oracle", "--svg", str(file)).returncode, 0)
            image = xml.etree.ElementTree.parse(file).getroot()
            self.assertEqual([path.name for path in Path(folder).iterdir()], ["round.svg"])
        self.assertEqual(image.tag, "{http://www.w3.org/2000/svg}svg")
        boxes = [node.get("class") for node in image.iter("{http://www.w3.org/2000/svg}rect")]
        self.assertEqual(boxes.count("bonus"), 2)  # the token, and the legend
        self.assertGreater(boxes.count("taken"), 6)

    def test_an_image_that_cannot_be_written_is_one_line(self):
        result = self.tree("--draft", "oracle", "--svg", "no/such/folder/round.svg")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, "espalier: no/such/folder/round.svg: no such directory as no/such/folder\n")

    def test_lists_the_trees_that_have_names(self):
        result = run("tree", "--list")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        head, *lines = result.stdout.splitlines()
        self.assertEqual(head.split(), ["name", "rows", "leaves", "nodes", "per", "depth"])
        self.assertEqual([line.split()[0] for line in lines], sorted(path.stem for path in TREES.glob("*.json")))
        self.assertIn("eagle1_25                   26      15  4/8/8/3/2", lines)
        self.assertIn("vicuna_7b_stage1_ablation   64      42  10/21/25/7", lines)
        self.assertEqual(run("tree", "--list", "hello").stderr, "espalier: --list: shows the named trees, expected no prompt\n")

    def test_the_named_trees_are_found_beside_an_installed_program(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = Path(folder).resolve()
            (prefix / "bin").mkdir()
            installed = shutil.copy(ESPALIER, prefix / "bin" / "espalier")
            none = run("tree", "--list", program=installed, cwd=folder)
            self.assertEqual((none.returncode, none.stdout), (2, ""))
            self.assertRegex(none.stderr, "^espalier: --list: there are no named trees: data/trees is in none of ., .*/share/espalier\n$")
            trees = Path(shutil.copytree(TREES, prefix / "share" / "espalier" / "data" / "trees"))
            self.assertEqual(run("tree", "--list", program=installed, cwd=folder).stdout, run("tree", "--list").stdout)
            (trees / "broken.json").write_text("[[0], [0")
            broken = run("tree", "--list", program=installed, cwd=folder)
            self.assertEqual((broken.returncode, broken.stderr),
                             (0, f"espalier: passes over {trees}/broken.json: not JSON, at byte 9\n"))
            self.assertEqual(broken.stdout, run("tree", "--list").stdout)

    def test_a_round_beyond_the_answer_is_refused(self):
        result = self.tree("--draft", "ngram", "--round", "99")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, r"^espalier: --round: expected 0 to \d+, the last round of this answer, got 99\n$")


class Usage(unittest.TestCase):
    def refused(self, message, *arguments, text=None):
        result = run(*arguments, text=text)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(message, result.stderr)

    def test_each_wrong_use_is_one_line_and_exit_code_2(self):
        given = ("generate", "--model", MODEL)
        self.refused("a command is missing")
        self.refused("unknown command 'bogus'", "bogus")
        self.refused("unknown command 'bogus'", "bogus", "--model", MODEL)
        self.refused("999999: the vocabulary has 272", *given, "--logit-bias", "999999=1", "hello")
        self.refused("only one of them", "inspect", MODEL, "--model", MODEL)
        self.refused("expected no model", "inspect", "--devices", MODEL)
        self.refused("expected auto or cpu or reference or cuda or ascend, or cuda:N or ascend:N, got 'cuda:x'", *given, "--device", "cuda:x", "hello")
        self.refused("--nonsense", *given, "--nonsense", "hello")
        self.refused("PROMPT is missing", *given)
        self.refused("the prompt is empty", *given, "")
        self.refused("only one of them", *given, "hello", "--file", "x")
        self.refused("no/such/file: cannot open", *given, "--file", "no/such/file")
        self.refused("no/such/model: no such file", "generate", "--model", "no/such/model", "hello")
        self.refused("--temperature: expected 0 to 100, got -1", *given, "--temperature", "-1", "hello")
        self.refused("--top-p", *given, "--top-p", "1.5", "hello")
        self.refused("--max-tokens", *given, "-n", "-1", "hello")
        self.refused("--logit-bias: expected ID=VALUE", *given, "--logit-bias", "x=1", "hello")
        self.refused("--kv", *given, "--kv", "f8", "hello")
        self.refused("--device", *given, "--device", "tpu", "hello")
        self.refused("--activations", *given, "--activations", "f8", "hello")
        self.refused("--activations bf16: only with --device cuda, on cpu", *given, "--device", "cpu", "--activations", "bf16", "hello")
        self.refused("--checked", *given, "--checked=everything", "hello")
        self.refused("--context", *given, "--context", "100000", "hello")
        self.refused("the context holds 16", *given, "--context", "16", "hello " * 50)
        self.refused("--logprobs: only with --json", *given, "--logprobs", "2", "hello")
        self.refused("--stop", *given, "--stop", "", "hello")
        self.refused("UTF-8", *given, "--file", str(DATA / "blocks.safetensors"))
        for seed in ("-1", "18446744073709551616", "1.5", "one"):
            self.refused(f'--seed: expected a whole number from 0 to 18446744073709551615, got "{seed}"', *given, "--seed",
                         seed, "hello")
        self.refused("--model: expected a path", "generate", "-m", "", "hello")

    def test_the_largest_seed_is_one(self):
        answer = json.loads(generate("--json", "-n", "1", "--seed", "18446744073709551615", "hello").stdout)
        self.assertEqual(answer["seed"], 18446744073709551615)

    def test_of_a_flag_given_twice_the_last_one_counts(self):
        twice = json.loads(generate("--json", "-n", "3", "-n", "5", "--ignore-eos", "--seed", "1", "--seed", "2",
                                    "hello").stdout)
        self.assertEqual((len(twice["tokens"]), twice["seed"]), (5, 2))
        self.refused("hello", "generate", "--model", MODEL, "one", "hello")  # two prompts are not one flag twice

    def test_links_in_a_circle_and_closed_folders_are_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            loop = Path(folder) / "loop"
            loop.symlink_to("loop")
            self.refused(f"{loop}: Too many levels of symbolic links", "generate", "--model", str(loop), "hello")
            closed = Path(folder) / "closed"
            closed.mkdir(mode=0)
            if not os.access(closed, os.X_OK):  # root may enter
                self.refused("Permission denied", "generate", "--model", str(closed / "m.gguf"), "hello")
            closed.chmod(0o700)

    def test_a_context_of_one_position_is_told_in_the_words_of_users(self):
        for command in (("generate", "hello"), ("compare", "hello"), ("tree", "hello")):
            self.refused("--context: expected at least 2 positions", command[0], "--model", MODEL, "-c", "1", *command[1:])

    def test_each_wrong_draft_is_one_line_and_exit_code_2(self):
        given = ("generate", "--model", MODEL, "hello")
        self.refused("got 'guess'", *given, "--draft", "guess")
        self.refused("ngram is there twice", *given, "--draft", "ngram+ngram")
        self.refused("none stands alone", *given, "--draft", "none+ngram")
        self.refused("--tree: expected chain, static", *given, "--draft", "ngram", "--tree", "bush")
        self.refused("no/such/tree.json", *given, "--draft", "ngram", "--tree", "static:no/such/tree.json")
        self.refused("--tree static:oak: no such file or name, expected one of eagle1_25, mc_sim_7b_63, pangu_32, ", *given,
                     "--draft", "ngram", "--tree", "static:oak")
        self.refused("--draft-nodes", *given, "--draft", "ngram", "--draft-nodes", "some")
        self.refused("--draft-nodes", *given, "--draft", "ngram", "--draft-nodes", "0")
        self.refused("--draft-nodes", *given, "--draft", "ngram", "--draft-nodes", "257")
        self.refused("--draft-expand: only with --tree dynamic", *given, "--draft", "ngram", "--tree", "chain",
                     "--draft-expand", "2")
        self.refused(f"--draft eagle3: no EAGLE-3 head for {MODEL} in ", *given, "--draft", "eagle3")
        self.refused("--draft-vocab", *given, "--draft", "eagle3", "--head", EAGLE3, "--draft-vocab", "0")
        self.refused("--head-weights", *given, "--draft", "eagle3", "--head", EAGLE3, "--head-weights", "q4_0")
        self.refused("--draft model: needs --draft-model PATH", *given, "--draft", "model")
        self.refused("--head: only with --draft eagle or medusa", *given, "--draft", "ngram", "--head", EAGLE3)
        self.refused("--head: only with --draft eagle or medusa", *given, "--draft", "none", "--head", EAGLE3)
        self.refused("a head for --draft eagle3", *given, "--draft", "medusa", "--head", EAGLE3)
        self.refused("medusa-b", *given, "--draft", "medusa", "--head", STRANGER)
        self.refused("no/such/head", *given, "--draft", "auto", "--head", "no/such/head")
        self.refused("head option", *given, "--draft", "eagle3", "--head", EAGLE3, "--head-option", "colour=red")
        self.refused("--draft-window: only with --draft eagle", *given, "--draft", "ngram", "--draft-window", "8")
        self.refused("--draft-model: only with --draft model", *given, "--draft", "ngram", "--draft-model", MODEL)
        self.refused("no/such/model", *given, "--draft", "model", "--draft-model", "no/such/model")
        self.refused("--oracle-profile: expected", *given, "--draft", "oracle", "--oracle-profile", "2")
        self.refused("--oracle-profile: only with", *given, "--oracle-profile", "0.5")
        self.refused("nothing to compare", "compare", "--model", MODEL, "hello", "--draft", "none")
        self.refused("--color", "tree", "--model", MODEL, "hello", "--color", "green")
        self.refused("--round", "tree", "--model", MODEL, "hello", "--round", "-1")

    def test_a_file_that_is_no_model_is_named(self):
        self.refused("cli_test.py", "generate", "--model", __file__, "hello")
        self.refused("config.json", "generate", "--model", str(DATA), "hello")

    def test_without_a_model_the_message_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "espalier"
            os.link(ESPALIER.resolve(), copy) if os.stat(ESPALIER).st_dev == os.stat(folder).st_dev else \
                copy.write_bytes(ESPALIER.read_bytes())
            copy.chmod(0o755)
            result = subprocess.run([str(copy), "generate", "hello"], cwd=folder, capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("make model", result.stderr)

    def test_help_and_version_succeed(self):
        self.assertIn("generate", run("--help").stdout)
        self.assertIn("--temperature", run("generate", "--help").stdout)
        self.assertRegex(run("--version").stdout, r"^espalier \d+\.\d+\.\d+\n$")
        self.assertNotIn("--logit-bias", run("generate", "--help").stdout)
        self.assertIn("--logit-bias", run("generate", "--help-all").stdout)

    def test_wrong_words_are_named_with_the_help_of_their_command(self):
        for words, said in (
                (["generate", "hi", "there"], "generate: 'there' is one word too many: several words are put in quotes"),
                (["generate", "--temp", "1", "hi"], "generate: unknown flag --temp"),
                (["generate", "--max-tokens", "x", "hi"], "generate: --max-tokens: expected a number, got 'x'"),
                (["eval"], "eval: expected run or report")):
            result = run(*words)
            self.assertEqual((result.returncode, result.stderr),
                             (2, f"espalier: {said} (espalier {words[0]} --help tells more)\n"))

    def test_help_shows_flags_as_they_are_typed(self):
        text = run("generate", "--help-all").stdout
        self.assertIn("--checked[=NAME]", text)
        self.assertIn("FILE...", run("verify", "--help").stdout)
        self.assertIn("--device", run("generate", "--help").stdout)

    def test_help_that_nobody_can_read_fails(self):
        for words in (["--help"], ["generate", "--help-all"], ["--version"]):
            with open("/dev/full", "w") as full:
                result = run(*words, stdout=full)
            self.assertEqual((result.returncode, result.stderr),
                             (1, "espalier: standard output: cannot write: No space left on device\n"))


class Chat(unittest.TestCase):
    def test_answers_every_line_of_a_script(self):
        result = run("chat", "--model", MODEL, "-n", "4", "--ignore-eos", text="hello\n\n/reset\nagain\n/exit\nnever\n")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertGreaterEqual(result.stdout.count("\n"), 2)

    def test_a_turn_beyond_the_context_does_not_end_the_conversation(self):
        result = run("chat", "--model", MODEL, "-n", "4", "--context", "64", text="x" * 500 + "\n/reset\nhello\n")
        self.assertEqual(result.returncode, 0)
        self.assertIn("the context holds 64", result.stderr)
        self.assertNotEqual(result.stdout, "")

    def test_ctrl_c_stops_the_answer_not_the_program(self):
        master, slave = pty.openpty()
        process = subprocess.Popen([str(ESPALIER), "chat", "--model", MODEL, "--mode", "reference", "-n", "400", "--ignore-eos"],
                                   stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                   env={**os.environ, "TERM": "dumb"})  # plain lines; cli_chat_test.py edits
        os.close(slave)
        self.read_until(master, b"> ")
        os.write(master, b"hello\n")
        self.read_until(master, b"hello\n")
        os.read(master, 1)  # the answer has begun
        process.send_signal(signal.SIGINT)
        shown = self.read_until(master, b"\n> ")
        self.assertIn(b"[stopped]", shown)
        process.send_signal(signal.SIGINT)  # too late for the answer: still not the end of the conversation
        self.assertIn(b"/exit", self.read_until(master, b"\n> "))
        os.write(master, b"hello\n")
        self.read_until(master, b"hello\n")
        process.send_signal(signal.SIGINT)
        self.read_until(master, b"\n> ")
        os.write(master, b"/exit\n")
        self.assertEqual(process.wait(timeout=60), 0)
        os.close(master)

    def read_until(self, descriptor, end):
        data = b""
        while not data.replace(b"\r", b"").endswith(end):
            if not select.select([descriptor], [], [], 60)[0]:
                self.fail(f"nothing more came after {data!r}, expected {end!r}")
            part = os.read(descriptor, 1)  # not a byte further: the answer may follow at once
            if not part:
                break
            data += part
        return data


class Ascend(unittest.TestCase):
    """On the recording fake of the API; what it finds wrong is in its report."""

    def run_on_fake(self, *arguments, seed=0, code=0, text=None):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report"
            library = ESPALIER.resolve().parent.parent / "tests" / "ascend_fake" / "libascend_fake.so"
            result = run(*arguments, text=text,
                         environment={"ESPALIER_ASCEND_LIBRARY": str(library), "ASCEND_FAKE": f"seed={seed}",
                                      "ASCEND_FAKE_REPORT": str(report)})
            self.assertEqual(result.returncode, code, result.stderr)
            found = [line for line in report.read_text().splitlines() if line.startswith(("violation", "alive"))]
            self.assertEqual(found, [])
        return result

    def test_a_selftest_judges_it_within_bounds_and_measures_no_fake(self):
        with tempfile.TemporaryDirectory() as folder:
            files = {name: str(Path(folder) / name) for name in ("json", "page")}
            result = self.run_on_fake("selftest", "--device", "ascend", "--only", "digests,speed", "--json", files["json"],
                                      "--page", files["page"])
            device = json.loads(Path(files["json"]).read_text())["device"]
            page = Path(files["page"]).read_text()
        self.assertEqual((device["npu"]["name"], device["npu"]["fused_attention"]), ("Ascend910B4", "V2"))
        self.assertEqual(set(device["npu"]["probes"].values()), {True})
        self.assertGreater(device["npu"]["memory_bytes"], device["npu"]["free_bytes"])
        self.assertRegex(device["runtime"], r"^1\.\d+$")
        self.assertIn("npu probes fused_over_bf16", page)
        self.assertIn("on ascend (fake), ", result.stdout)
        self.assertIn("not measured: a fake says nothing of a card's speed", result.stdout)
        self.assertIn("left out: conformance, digests, invariance, lossless", result.stdout)

    def test_inspect_lists_the_card_and_what_weights_take_there(self):
        devices = json.loads(self.run_on_fake("inspect", "--devices", "--json").stdout)["devices"]
        self.assertEqual(devices["ascend:0"]["name"], "Ascend910B4")
        self.assertFalse(devices["ascend:0"]["row_independent"])
        weights = json.loads(run("inspect", "--json", MODEL).stdout)["weights"]
        self.assertGreater(weights["bytes_on_ascend"], 0)

    def test_generate_gives_the_text_of_the_cpu_and_says_what_the_device_cannot_promise(self):
        given = ("generate", "--model", MODEL, "-n", "12", "--ignore-eos", "hello")
        result = self.run_on_fake(*given, "--device", "ascend")
        self.assertRegex(result.stderr, r"^espalier: the device ascend \(fake\) is not row independent: [^\n]*\n$")
        self.assertEqual(result.stdout, run(*given).stdout)

    def test_compare_counts_near_ties(self):
        given = ("compare", "--json", "--model", str(DATA / "tiny" / "pangu1b.gguf"), "-n", "100", "--ignore-eos",
                 "--draft", "ngram", "--device", "ascend")
        answer = json.loads(self.run_on_fake(*given, "hello hello snow hello song one", seed=5).stdout)
        self.assertTrue(answer["equal_outside_near_ties"])
        self.assertNotEqual(answer["with"]["tokens"], answer["without"]["tokens"])
        self.assertLess(abs(answer["margin"]), 0.1)

    def test_a_fake_has_no_speed_whatever_is_asked_of_it(self):
        given = ("--model", MODEL, "-n", "12", "--ignore-eos", "--draft", "ngram", "--device", "ascend")
        answer = json.loads(self.run_on_fake("generate", "--json", *given, "hello hello").stdout)
        compared = json.loads(self.run_on_fake("compare", "--json", *given, "hello hello").stdout)
        self.assertIsNone(compared["ratio"])
        for one in (answer, compared["without"], compared["with"]):
            times = {key: value for key, value in one.items() if key.endswith(("seconds", "per_second"))}
            self.assertEqual(len(times), 8)
            self.assertEqual(set(times.values()), {None})
            self.assertIsNone(one["budget"])
        for command in ("generate", "compare"):
            result = self.run_on_fake(command, "-v", *given, "hello hello")
            self.assertIn("accept_L", result.stdout + result.stderr)
            self.assertNotRegex(result.stdout + result.stderr, r"per second|tokens/s|[0-9] s\b")
        self.assertRegex(run("generate", "-v", "--model", MODEL, "-n", "4", "hello").stderr, r"per second")
        chat = self.run_on_fake("chat", "-v", "--model", MODEL, "-n", "4", "--device", "ascend",
                                text="hello\n/stats\n")
        self.assertNotRegex(chat.stdout + chat.stderr, r"per second|tokens/s")
        bench = self.run_on_fake("bench", "--model", MODEL, "--device", "ascend", code=2)
        self.assertIn("bench: ascend (fake) only stands in for a device: it has no speed to measure\n", bench.stderr)
        self.assertEqual(bench.stdout, "")

    def test_an_evaluation_on_a_fake_compares_texts_and_no_speeds(self):
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "data.jsonl"
            data.write_text('{"id": "one", "prompt": "hello hello hello"}\n')
            given = ("eval", "run", "--data", str(data), "--model", MODEL, "-n", "8", "--draft", "ngram", "--baseline")
            result = self.run_on_fake(*given, "--device", "ascend", "--out", str(Path(folder) / "fake"))
            self.assertIn("1 of 1 turns identical", result.stdout)
            self.assertNotRegex(result.stdout, r"per second|TTFT|TPOT|speed-up")
            self.assertRegex(run(*given, "--out", str(Path(folder) / "cpu")).stdout, r"per second")
            summary = json.loads((Path(folder) / "fake" / "summary.json").read_text())
            self.assertEqual(summary["tokens_per_second"], 0)
            self.assertIsNone(summary["tokens_per_second_in_all"])

    def test_an_evaluation_in_company_counts_a_near_tie_as_one_alone_does(self):
        prompts = {"one": "hello hello snow hello song one", "two": "night hello rain two day wind"}
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "data.jsonl"
            data.write_text("".join(json.dumps({"id": id, "prompt": prompt}) + "\n" for id, prompt in prompts.items()))
            given = ("eval", "run", "--data", str(data), "--model", str(DATA / "tiny" / "pangu1b.gguf"), "-n", "60",
                     "--ignore-eos", "--draft", "ngram", "--baseline", "--parallel", "2", "--device", "ascend")
            result = self.run_on_fake(*given, "--out", str(Path(folder) / "out"), seed=3)
            self.assertRegex(result.stdout, r"1 of 2 turns identical, 1 parts at a near-tie \(margin -?0\.0\d+\)\n")
            near_ties = json.loads((Path(folder) / "out" / "summary.json").read_text())["baseline"]["near_ties"]
            self.assertEqual((near_ties["turns"], len(near_ties["margins"])), (1, 1))
            self.assertEqual([path.name for path in (Path(folder) / "out").rglob("*dump*")], [])

    def test_what_needs_independent_rows_is_refused(self):
        refused = self.run_on_fake("serve", "--model", MODEL, "--device", "ascend", "--port", "0", code=2)
        self.assertIn("--allow-batch-variance", refused.stderr)
        refused = run("generate", "--model", MODEL, "--device", "ascend", "--mask", "list", "hello")
        self.assertEqual((refused.returncode, refused.stderr),
                         (2, "espalier: --mask list with --device ascend: this device needs the dense mask\n"))


class OtherCommands(unittest.TestCase):
    def test_inspect_tells_what_is_in_a_model(self):
        readable = run("inspect", MODEL)
        self.assertEqual((readable.returncode, readable.stderr), (0, ""))
        self.assertIn("family: llama", readable.stdout)
        object = json.loads(run("inspect", "--json", str(DATA / "tiny" / "pangu7b")).stdout)
        self.assertEqual((object["model"]["family"], object["arithmetic"]), ("pangu", 2))
        self.assertIn("arithmetic: 2\n", readable.stdout)
        self.assertEqual(json.loads(run("inspect", "--cpu", "--json").stdout)["arithmetic"], 2)
        self.assertTrue(object["model"]["output_bias"])
        self.assertIn("problem", object["text"])
        self.assertIn("blk.0.attn_q.weight", run("inspect", "-v", MODEL).stdout)

    def test_a_device_that_is_not_there_is_one_line(self):
        devices = json.loads(run("inspect", "--devices", "--json").stdout)["devices"]
        self.assertIn("isa", devices["cpu"])
        if "problem" in devices["cuda"]:
            refused = run("generate", "--model", MODEL, "--device", "cuda", "hello")
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertEqual(refused.stderr, f"espalier: CUDA: {devices['cuda']['problem']}\n")
        if "problem" in devices["ascend"]:
            refused = run("generate", "--model", MODEL, "--device", "ascend", "hello")
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertEqual(refused.stderr, f"espalier: Ascend: {devices['ascend']['problem']}\n")

    def test_tokenize_shows_ids_and_text(self):
        tokens = json.loads(run("tokenize", "--model", MODEL, "--json", "hello <|im_end|>").stdout)
        self.assertEqual("".join(token["text"] for token in tokens), "hello <|im_end|>")
        self.assertFalse(any(token["special"] for token in tokens))
        special = json.loads(run("tokenize", "--model", MODEL, "--json", "--special", "hello <|im_end|>").stdout)
        self.assertTrue(special[-1]["special"])

    def test_perplexity_of_a_text_with_its_standard_error(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "text"
            file.write_text("a tree trained flat against a wall. " * 20)
            answer = json.loads(run("perplexity", "--model", MODEL, "--json", "--window", "64", str(file)).stdout)
            line = run("perplexity", "--model", MODEL, "--window", "64", str(file)).stdout
        self.assertGreater(answer["perplexity"], 1)
        self.assertGreater(answer["standard_error"], 0)
        self.assertRegex(line, r"^perplexity \d+\.\d+ \+- \d+\.\d+ over \d+ tokens, windows of 64\n$")

    def test_perplexity_counts_as_llama_cpp_does_and_tells_every_log_probability(self):
        with tempfile.TemporaryDirectory() as folder:
            file, out = Path(folder) / "text", Path(folder) / "logprobs"
            file.write_text("a tree trained flat against a wall. " * 20)
            tokens = [token["id"] for token in json.loads(run("tokenize", "--model", MODEL, "--json", file.read_text()).stdout)]
            command = ("perplexity", "--model", MODEL, "--window", "64", "--second-half", str(file))
            answer = json.loads(run(*command, "--json", "--logprobs", str(out)).stdout)
            lines = [line.split("\t") for line in out.read_text().splitlines()]
            both = run(*command, "--logprobs", "-")
            self.assertEqual(both.stdout, out.read_text())
            narrow = run("perplexity", "--model", MODEL, "--window", "2", "--second-half", str(file))
            file.write_text("a tree")
            short = run(*command)
        windows = len(tokens) // 64
        places = [64 * window + place for window in range(windows) for place in range(33, 64)]
        self.assertEqual([(int(place), int(token)) for place, token, _ in lines], [(place, tokens[place]) for place in places])
        self.assertEqual((answer["tokens_scored"], answer["second_half"]), (windows * 31, True))
        self.assertAlmostEqual(answer["mean_negative_logprob"], -sum(float(value) for *_, value in lines) / len(lines), places=10)
        self.assertRegex(both.stderr, r"^perplexity \d+\.\d+ \+- \d+\.\d+ over \d+ tokens, second halves of windows of 64\n$")
        self.assertIn("text: expected at least 64 tokens, got", short.stderr)
        self.assertIn("--window: expected 3 to the context", narrow.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
