"""The command that answers sets of prompts: python3 tests/cli_eval_test.py build/bin/espalier

Runs on the tiny models of tests/data. Times are only looked at for being there."""

import csv
import hashlib
import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from launchers import SANITIZED, plain_environment, torchrun_variables

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = str(DATA / "tiny" / "llama2.gguf")  # babbles, but reproducibly
BENCHMARKS = DATA.parent.parent / "data" / "eval"
CACHE = tempfile.TemporaryDirectory()  # step times are kept here, not in the user's own folder

PROMPTS = [{"question_id": 81, "category": "writing", "turns": ["hello there hello there", "again"]},
           {"task_id": "HumanEval/0", "prompt": "def f(x):\n    return x\n", "test": "unused"},
           {"id": "three", "turns": ["one two one two", "three", "four"]}]
TURNS = [(81, 1), (81, 2), ("HumanEval/0", 1), ("three", 1), ("three", 2), ("three", 3)]
FILES = ["manifest.json", "ranks", "summary.json", "turns.csv", "turns.json"]
LONG = 10 if SANITIZED else 30  # prompts of a run that takes long enough to be disturbed
TIMES = ("seconds", "stages", "baseline_seconds", "retimed_seconds")  # fields of a turn that differ from run to run


def environment(**variables):
    return plain_environment(CACHE.name, **variables)


def torchrun(rank, world):
    return environment(**torchrun_variables(rank, world))


def without_progress(text):
    """What was said besides how far it is, of which a slow machine hears more often."""
    return re.sub(r"^\d+ of \d+ turns, (.* left|the next one for .*)\n", "", text, flags=re.MULTILINE)


def files_up_to(size):
    """A disk that is full, as far as one file is concerned."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit


class EvalTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.data = self.folder / "prompts.jsonl"
        self.write(PROMPTS)
        self.out = self.folder / "run"

    def write(self, prompts):
        self.data.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))

    def command(self, *flags, out=None, data=None, tokens=24, context=512):
        files = data if isinstance(data, list) else [data or self.data]
        words = [word for file in files for word in ("--data", str(file))]
        return [str(ESPALIER), "eval", "run", "--model", MODEL, *words, "-o", str(out or self.out), "-n", str(tokens),
                "--ignore-eos", "--context", str(context), *map(str, flags)]

    def run_eval(self, *flags, stdout=subprocess.PIPE, preexec_fn=None, **options):
        result = subprocess.run(self.command(*flags, **options), stdout=stdout, stderr=subprocess.PIPE, text=True,
                                timeout=300, env=environment(), preexec_fn=preexec_fn)
        result.stderr = without_progress(result.stderr)
        return result

    def good(self, *flags, **options):
        result = self.run_eval(*flags, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def refused(self, message, *flags, code=2, **options):
        result = self.run_eval(*flags, **options)
        self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (code, "", 1), result.stderr)
        self.assertIn(message, result.stderr)

    def read(self, name, out=None):
        return json.loads(((out or self.out) / name).read_text())

    def turns(self, out=None):
        return self.read("turns.json", out)

    def untimed(self, out=None):
        """Everything that must not depend on how fast, or by how many, a run was done."""
        turns = [{name: value for name, value in turn.items() if name not in TIMES} for turn in self.turns(out)]
        summary = self.read("summary.json", out)
        figures = [summary[name] for name in ("turns", "tokens", "rounds", "accept_L", "tau", "accept_pos", "reached",
                                              "per_round")]
        figures += [summary["intervals"][name] for name in ("accept_L", "tau", "accept_pos")]
        if summary["baseline"]:
            figures += [summary["baseline"][name] for name in ("turns", "identical", "first_difference")]
        with open((out or self.out) / "turns.csv", newline="") as file:
            table = [[row[name] for name in ("set", "prompt_id", "turn", "tokens", "rounds", "accept_L", "tau", "equal")]
                     for row in csv.DictReader(file)]
        return turns, figures, table

    def check_traces(self, turns):
        """The traces of all ranks hold every turn once."""
        files = sorted(self.out.glob("ranks/*/trace.jsonl.zst"))
        shown = subprocess.run([str(ESPALIER), "trace", "stats", "--json", *map(str, files)], capture_output=True,
                               text=True, timeout=60, env=environment())
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertEqual(json.loads(shown.stdout)["turns"], turns)

    def journal(self, out=None, rank=0):
        return (out or self.out) / "ranks" / f"{rank:04}" / "turns.jsonl"

    def answers(self, out=None):
        return [(turn["prompt_id"], turn["turn"], turn["prompt"], turn["tokens"]) for turn in self.turns(out)]

    def make_unfinished(self, lines, tail=""):
        """The run in self.out as a killed process leaves it: some turns finished, a line begun."""
        turns = [json.dumps(turn) + "\n" for turn in self.turns()[:lines]]
        self.journal().write_text("".join(turns) + tail)
        for name in ("turns.json", "turns.csv", "summary.json"):
            (self.out / name).unlink()
        manifest = self.read("manifest.json")
        (self.out / "manifest.json").write_text(json.dumps({**manifest, "end": None}))

    def files(self, out=None):
        return sorted(path.name for path in (out or self.out).iterdir())


class EvalRun(EvalTest):
    def test_a_run_directory_has_everything_that_is_promised(self):
        shown = self.good("--draft", "ngram", "--baseline")
        self.assertTrue(shown.startswith("6 of 6 turns identical\n"), shown)
        self.assertEqual(self.files(), FILES)
        turns = self.turns()
        self.assertEqual([(turn["prompt_id"], turn["turn"]) for turn in turns], TURNS)
        for turn in turns:
            self.assertEqual(list(turn), ["record", "set", "prompt_id", "turn", "user", "prompt_tokens", "prompt", "tokens", "text", "finish_reason",
                                          "accept_lengths", "reached", "seconds", "stages", "baseline_seconds", "equal"])
            self.assertEqual((len(turn["tokens"]), len(turn["prompt"])), (24, turn["prompt_tokens"]))
            self.assertEqual(24, 1 + len(turn["accept_lengths"]) + sum(turn["accept_lengths"]))
            self.assertTrue(turn["equal"])
        summary = self.read("summary.json")
        rounds = sum(len(turn["accept_lengths"]) for turn in turns)
        self.assertEqual((summary["turns"], summary["tokens"], summary["rounds"]), (6, 144, rounds))
        self.assertAlmostEqual(summary["tau"], (144 - 6) / rounds)
        self.assertEqual((summary["baseline"]["turns"], summary["baseline"]["identical"]), (6, 6))
        ratios = [sum(turn["baseline_seconds"].values()) / sum(turn["seconds"].values()) for turn in turns]
        self.assertAlmostEqual(summary["baseline"]["speed_up"], sum(ratios) / 6)
        for depth, (reached, share) in enumerate(zip(summary["reached"], summary["accept_pos"]), 1):
            accepted = sum(length >= depth for turn in turns for length in turn["accept_lengths"])
            self.assertAlmostEqual(share, accepted / reached)
        per_turn = summary["per_turn"]
        self.assertAlmostEqual(per_turn["ttft"]["mean"], sum(turn["seconds"]["prefill"] for turn in turns) / 6)
        self.assertAlmostEqual(per_turn["tpot"]["mean"], sum(turn["seconds"]["decode"] / 23 for turn in turns) / 6)
        for figure in (*per_turn.values(), *summary["baseline"]["per_turn"].values(), summary["per_round"]["accept_L"]):
            self.assertEqual(list(figure), ["count", "mean", "interval", "p50", "p90", "p99"])
            self.assertLessEqual(figure["interval"][0], figure["mean"] + 1e-12)
            self.assertLessEqual(figure["mean"], figure["interval"][1] + 1e-12)
            self.assertLessEqual(figure["p50"], figure["p99"])
        self.assertIn("by turn", shown)

    def test_the_table_has_a_line_for_each_turn(self):
        self.good("--draft", "ngram", "--baseline")
        with open(self.out / "turns.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        for row, turn in zip(rows, self.turns(), strict=True):
            self.assertEqual((row["set"], row["prompt_id"], int(row["turn"])),
                             ("prompts", str(turn["prompt_id"]), turn["turn"]))
            self.assertEqual(float(row["seconds"]), sum(turn["seconds"].values()))
            self.assertAlmostEqual(float(row["speed_up"]),
                                   sum(turn["baseline_seconds"].values()) / sum(turn["seconds"].values()))
            self.assertAlmostEqual(float(row["tau"]), 23 / len(turn["accept_lengths"]))
            self.assertEqual(row["equal"], "true")

    def test_several_files_follow_each_other_and_are_told_apart(self):
        other = self.folder / "other.jsonl"
        other.write_text(self.data.read_text())
        self.good("--draft", "none", "--skip", "2", "--limit", "2", data=[self.data, other])
        self.assertEqual([(turn["record"], turn["set"], turn["prompt_id"]) for turn in self.turns()],
                         [(0, "prompts", "three")] * 3 + [(1, "other", 81)] * 2)
        files = self.read("manifest.json")["configuration"]["data"]["files"]
        self.assertEqual([file["set"] for file in files], ["prompts", "other"])
        self.refused('are both named "prompts"', data=[self.data, self.data], out=self.folder / "new")

    def test_the_manifest_says_which_run_it_was(self):
        self.good("--draft", "ngram", "--threads", "2", "--seed", "4")
        manifest = self.read("manifest.json")
        configuration = manifest["configuration"]
        self.assertEqual((manifest["schema"], manifest["world"], manifest["launcher"]), (2, 1, None))
        self.assertRegex(manifest["compiler"]["name"], r"^(GNU|Clang) \d")
        self.assertIn("-ffp-contract=off", manifest["compiler"]["flags"])
        self.assertEqual(manifest["environment"], {})
        self.assertGreater(manifest["machine"]["cores"], 0)
        self.assertEqual([rank["rank"] for rank in manifest["ranks"]], [0])
        self.assertEqual(manifest["command"][1:3], ["eval", "run"])
        self.assertRegex(manifest["version"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(manifest["start"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertLessEqual(manifest["start"], manifest["end"])
        self.assertEqual((len(manifest["load_before"]), len(manifest["load_after"])), (3, 3))
        digest = hashlib.sha256(Path(MODEL).read_bytes()).hexdigest()
        self.assertEqual(configuration["model"],
                         {"path": MODEL, "bytes": Path(MODEL).stat().st_size, "sha256": digest})
        self.assertEqual((configuration["data"]["prompts"], configuration["data"]["turns"]), (3, 6))
        self.assertEqual(configuration["data"]["files"][0]["sha256"],
                         hashlib.sha256(self.data.read_bytes()).hexdigest())
        self.assertEqual(configuration["draft"]["drafters"], "ngram")
        self.assertEqual((configuration["sampling"]["seed"], configuration["sampling"]["max_tokens"]), (4, 24))
        self.assertEqual((configuration["engine"]["threads"], configuration["arithmetic"]), (2, 2))

    def test_the_manifest_names_the_head_that_was_used(self):
        head = DATA / "heads" / "medusa-d"
        self.good("--draft", "medusa", "--head", head)
        files = self.read("manifest.json")["configuration"]["draft"]["head_files"]
        self.assertEqual([file["path"] for file in files], [str(head)])
        self.assertEqual(len(files[0]["sha256"]), 64)

    def test_tokens_are_those_of_generate_and_do_not_depend_on_the_drafter(self):
        self.good("--draft", "none")
        turn = self.turns()[2]
        answer = subprocess.run([str(ESPALIER), "generate", "--model", MODEL, "--json", "-n", "24", "--ignore-eos",
                                 "--context", "512", PROMPTS[1]["prompt"]], capture_output=True, text=True, timeout=300,
                                env=environment())
        self.assertEqual(turn["tokens"], json.loads(answer.stdout)["tokens"])
        self.assertEqual(turn["text"], json.loads(answer.stdout)["text"])
        for draft in (["--draft", "auto"], ["--draft", "oracle"], ["--draft", "hostile", "--baseline"],
                      ["--draft", "medusa", "--head", DATA / "heads" / "medusa-d"]):
            out = self.folder / draft[1]
            self.good(*draft, out=out)
            self.assertEqual(self.answers(out), self.answers(), draft)
        self.assertGreater(self.read("summary.json", self.folder / "oracle")["tau"], 4)
        self.assertEqual(self.read("summary.json")["tau"], 1)

    def test_what_drafters_learn_starts_afresh_with_each_prompt(self):
        self.good("--draft", "ngram")
        together = {(turn["prompt_id"], turn["turn"]): turn["accept_lengths"] for turn in self.turns()}
        for skip in range(3):
            out = self.folder / str(skip)
            self.good("--draft", "ngram", "--skip", skip, "--limit", "1", out=out)
            for turn in self.turns(out):
                self.assertEqual(turn["accept_lengths"], together[turn["prompt_id"], turn["turn"]])

    def test_skip_and_limit_count_prompts(self):
        self.good("--draft", "none", "--skip", "1", "--limit", "1")
        self.assertEqual([(turn["prompt_id"], turn["turn"]) for turn in self.turns()], TURNS[2:3])
        self.refused("--skip: expected less than 3", "--skip", "3", out=self.folder / "other")

    def test_raw_prompts_go_without_a_template(self):
        self.write(PROMPTS[1:2])
        self.good("--draft", "none", "--raw")
        self.good("--draft", "none", out=self.folder / "chat")
        self.assertLess(self.turns()[0]["prompt_tokens"], self.turns(self.folder / "chat")[0]["prompt_tokens"])
        self.write(PROMPTS)
        self.refused("prompts.jsonl:1: 2 turns, expected one with --raw", "--raw", out=self.folder / "other")

    def test_both_benchmarks_run(self):
        for name, ids in (("mt_bench", [81, 81, 82, 82]), ("humaneval", ["HumanEval/0", "HumanEval/1"])):
            out = self.folder / name
            self.good("--draft", "none", "--limit", "2", data=BENCHMARKS / f"{name}.jsonl", out=out, tokens=1)
            self.assertEqual([turn["prompt_id"] for turn in self.turns(out)], ids)

    def test_a_killed_run_goes_on_where_it_stopped_and_ends_with_the_same_tokens(self):
        self.write([{**PROMPTS[2], "id": number} for number in range(LONG // 2)])
        whole = self.folder / "whole"
        self.good("--draft", "ngram", out=whole, tokens=60)
        for kill in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            out = self.folder / kill.name
            process = subprocess.Popen(self.command("--draft", "ngram", out=out, tokens=60), stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, env=environment(),
                                       preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
            journal = self.journal(out)
            while process.poll() is None and not (journal.exists() and journal.read_text().count("\n") >= 4):
                time.sleep(0.01)
            process.send_signal(kill)
            output, errors = process.communicate(timeout=60)
            finished = journal.read_text().count("\n")
            self.assertEqual(output, "")
            if kill == signal.SIGINT:
                self.assertEqual(process.returncode, 130)
                self.assertEqual(without_progress(errors),
                                 f"espalier: interrupted; {finished} of {LONG // 2 * 3} turns are kept in {out}, "
                                 f"--resume -o {out} goes on\n")
            kept = [json.loads(line) for line in journal.read_text().splitlines()[:finished]]
            self.good("--draft", "ngram", "--resume", out=out, tokens=60)
            self.assertEqual(self.turns(out)[:finished], kept)
            self.assertEqual(self.answers(out), self.answers(whole))
            self.assertEqual([turn["accept_lengths"] for turn in self.turns(out)],
                             [turn["accept_lengths"] for turn in self.turns(whole)])
            self.assertEqual(self.files(out), FILES)
            self.assertEqual(len(self.read("manifest.json", out)["resumed"]), 1)

    def test_the_directory_knows_how_to_go_on(self):
        self.write([{**PROMPTS[2], "id": number} for number in range(LONG // 2)])
        process = subprocess.Popen(self.command("--draft", "ngram", "--seed", "7", tokens=60), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment())
        journal = self.journal(self.out)
        while process.poll() is None and not (journal.exists() and journal.read_text().count("\n") >= 4):
            time.sleep(0.01)
        process.kill()
        process.communicate(timeout=60)
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        result = subprocess.run([str(ESPALIER), "eval", "run", "--resume", "-o", "../run"], cwd=elsewhere, text=True,
                                capture_output=True, env=environment(), timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(self.turns()), LONG // 2 * 3)
        self.assertEqual(list(elsewhere.iterdir()), [])
        result = subprocess.run([str(ESPALIER), "eval", "run", "--resume", "-o", str(elsewhere)], text=True,
                                capture_output=True, env=environment(), timeout=120)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)
        self.assertIn("expected a directory to resume", result.stderr)

    def test_a_run_killed_again_and_again_at_any_point_ends_as_if_nothing_had_happened(self):
        self.write([{**PROMPTS[2], "id": number} for number in range(12)])
        whole, flags = self.folder / "whole", ("--draft", "ngram", "--draft-nodes", "16", "--baseline", "--trace")
        start = time.monotonic()
        self.good(*flags, out=whole)
        lasts = time.monotonic() - start
        generator = random.Random(7)
        for attempt in range(100):
            resume = ["--resume"] if (self.out / "manifest.json").exists() else []
            process = subprocess.Popen(self.command(*flags, *resume), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True, env=environment())
            try:
                output, errors = process.communicate(timeout=generator.uniform(0.02, 0.8 * lasts) if attempt < 12 else 300)
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        self.assertEqual((process.returncode, without_progress(errors)), (0, ""), f"attempt {attempt}, seed 7")
        self.assertEqual(self.untimed(), self.untimed(whole))
        self.check_traces(36)

    def test_resuming_inside_a_prompt_carries_over_what_its_earlier_turns_gave(self):
        self.good("--draft", "ngram")
        whole = self.turns()
        self.make_unfinished(5, tail='{"prompt_id": "three", "tu')
        self.good("--draft", "ngram", "--resume")
        self.assertEqual(self.turns()[:5], whole[:5])
        for field in ("prompt", "tokens", "text", "accept_lengths", "reached"):
            self.assertEqual(self.turns()[5][field], whole[5][field])

    def test_resuming_a_finished_run_shows_it_again(self):
        shown = self.good("--draft", "ngram", "--baseline")
        def contents():
            return {path: path.read_bytes() for path in self.out.rglob("*") if path.is_file()}

        before = contents()
        self.assertEqual(self.good("--draft", "ngram", "--baseline", "--resume"), shown)
        self.assertEqual(contents(), before)

    def test_only_the_same_run_is_resumed(self):
        self.good("--draft", "ngram")
        self.make_unfinished(3)
        self.refused('configuration.sampling.seed is "1", expected "0"', "--draft", "ngram", "--resume", "--seed", "1")
        self.refused("configuration.draft.drafters", "--draft", "none", "--resume")
        self.write(PROMPTS[:2])
        self.refused("configuration.data.files", "--draft", "ngram", "--resume")
        self.refused("no manifest.json, expected the directory of a run to resume", "--resume", out=self.folder / "none")

    def test_a_run_of_another_arithmetic_is_refused_by_both_numbers(self):
        self.good("--draft", "none")
        manifest = self.read("manifest.json")
        del manifest["configuration"]["arithmetic"]
        (self.out / "manifest.json").write_text(json.dumps({**manifest, "commit": "older"}))
        message = f"{self.out / 'manifest.json'}: arithmetic 1, this program computes with 2: "
        self.refused(message, "--draft", "none", "--resume")
        self.refused(message, "--draft", "ngram", "--baseline-run", self.out, out=self.folder / "new")

    def test_a_run_whose_finished_turns_no_longer_come_out_is_refused(self):
        self.good("--draft", "ngram")
        whole = self.turns()
        self.make_unfinished(4)
        journal = self.journal()
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        lines[3]["tokens"][7] += 1
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.refused('prompt "three", turn 1: other tokens than the run had', "--draft", "ngram", "--resume")
        journal.write_text(json.dumps({**whole[1], "prompt_id": 82}) + "\n")
        self.refused('turn 2 of prompt "82" is not that of record 0', "--draft", "ngram", "--resume")

    def test_a_turn_that_differs_fails_the_run_and_is_named(self):
        self.good("--draft", "ngram", "--baseline")
        self.make_unfinished(3)
        journal = self.journal()
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        other = list(lines[1]["tokens"])
        other[5] = 0 if other[5] else 1
        lines[1].update(equal=False, first_difference=5, baseline_tokens=other, baseline_finish_reason="length")
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = self.run_eval("--draft", "ngram", "--baseline", "--resume")
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        first = result.stdout.split("\n")[0]
        self.assertEqual(first, f'5 of 6 turns identical: prompt "81", turn 2 differs at position 5: {other[5]} without, '
                                f'{lines[1]["tokens"][5]} with speculation')
        self.assertEqual(self.read("summary.json")["baseline"]["identical"], 5)

    def test_a_full_disk_is_one_line_and_keeps_what_was_finished(self):
        self.write([{**PROMPTS[2], "id": number} for number in range(8)])
        self.refused("turns.jsonl: cannot write: File too large", "--draft", "ngram", code=1,
                     preexec_fn=files_up_to(12000))
        kept = [json.loads(line) for line in self.journal().read_text().splitlines()]
        self.assertGreater(len(kept), 1)
        self.good("--draft", "ngram", "--resume")
        self.assertEqual(self.turns()[:len(kept)], kept)

    def test_each_wrong_use_is_one_line_and_leaves_no_directory(self):
        for message, flags in (("--baseline: there is nothing to compare", ["--draft", "none", "--baseline"]),
                               ("--baseline-run: there is nothing", ["--draft", "none", "--baseline-run", "x"]),
                               ("--baseline and --baseline-run", ["--baseline", "--baseline-run", "x"]),
                               ("--baseline-turns: only with", ["--baseline-turns", "2"]),
                               ("--rank-timeout", ["--rank-timeout", "-1"]),
                               ("--logprobs: not with eval run", ["--logprobs", "2"]),
                               ("--limit", ["--limit", "0"]), ("--skip", ["--skip", "-1"]),
                               ("not with --raw", ["--raw", "--system", "be brief"]),
                               ("--draft", ["--draft", "bogus"])):
            self.refused(message, *flags)
            self.assertFalse(self.out.exists(), flags)
        (self.folder / "there").mkdir()
        self.refused("there: exists already, expected a new directory, or --resume", out=self.folder / "there")
        self.data.write_text('{"id": 1, "prompt": "a"}\n{"id": 2}\n')
        self.refused("prompts.jsonl:2: expected turns or prompt", out=self.folder / "new")
        for words in (["eval"], ["eval", "bogus"]):
            result = subprocess.run([str(ESPALIER), *words], capture_output=True, text=True, timeout=60)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), result.stderr)

    def test_a_context_that_no_prompt_fits_into_is_told_with_the_first_of_them(self):
        self.refused("prompts.jsonl:1: turn 1: the prompt has", context=8)
        self.assertEqual(self.journal().read_text(), "")

    def test_a_terminal_sees_how_far_it_is(self):
        leader, follower = pty.openpty()
        process = subprocess.Popen(self.command("--draft", "ngram"), stdout=subprocess.PIPE, stderr=follower,
                                   env=environment())
        output, _ = process.communicate(timeout=300)
        os.close(follower)
        shown = os.read(leader, 1 << 16).decode()
        os.close(leader)
        self.assertRegex(shown, r"\r6 of 6 turns, [\d.]+ s each, [\d.]+ tokens/s, 0 s left")
        self.assertTrue(shown.endswith("\r\x1b[K"))
        self.assertTrue(output.startswith(b"6 turns, not compared with plain decoding"))


class Parallel(EvalTest):
    def test_conversations_in_one_batch_leave_the_same_tokens_in_the_same_order(self):
        self.good("--draft", "ngram", "--baseline", "--trace")
        self.assertEqual(self.read("manifest.json")["configuration"]["parallel"], 1)
        self.assertGreater(self.read("summary.json")["tokens_per_second_in_all"], 0)
        for number in (2, 5):
            out = self.folder / f"run{number}"
            shown = self.good("--draft", "ngram", "--baseline", "--trace", "--parallel", number, out=out)
            self.assertTrue(shown.startswith("6 of 6 turns identical\n"), shown)
            self.assertRegex(shown, r"(?m)^in all +[\d.]+ tokens per second$")
            self.assertEqual(self.answers(out), self.answers())
            places = [(turn["record"], turn["turn"]) for turn in map(json.loads, self.journal(out).read_text().splitlines())]
            self.assertEqual(places, sorted(places))
            self.assertEqual(self.read("manifest.json", out)["configuration"]["parallel"], number)
            answered = self.read("ranks/0000/rank.json", out)["answered"]
            self.assertEqual(answered["tokens"], sum(len(turn["tokens"]) for turn in self.turns(out)))
            self.assertAlmostEqual(self.read("summary.json", out)["tokens_per_second_in_all"],
                                   answered["tokens"] / answered["seconds"])
        self.check_traces(6)

    def test_an_oracle_learns_every_answer_in_company(self):
        shown = self.good("--draft", "oracle", "--baseline", "--parallel", 3)
        self.assertTrue(shown.startswith("6 of 6 turns identical\n"), shown)
        self.assertGreater(self.read("summary.json")["tau"], 2)

    def test_runs_of_different_numbers_are_not_compared(self):
        plain = self.folder / "plain"
        self.good("--draft", "none", "--parallel", 2, out=plain)
        self.refused('configuration.parallel is "3", expected "2" as in that run', "--draft", "ngram", "--parallel", 3,
                     "--baseline-run", plain)
        self.refused('configuration.parallel is "1", expected "2" as in that run', "--draft", "ngram", "--baseline-run", plain)
        shown = self.good("--draft", "ngram", "--parallel", 2, "--baseline-run", plain, "--baseline-turns", 2)
        self.assertTrue(shown.startswith("6 of 6 turns identical\n"), shown)
        self.refused('configuration.parallel is "4", expected "2"', "--draft", "ngram", "--parallel", 4, "--baseline-run",
                     plain, "--baseline-turns", 2, "--resume")
        self.good("--draft", "none", out=self.folder / "alone")
        report = subprocess.run([str(ESPALIER), "eval", "report", str(plain), str(self.folder / "alone"), "-o",
                                 str(self.folder / "report")], capture_output=True, text=True, timeout=60, env=environment())
        self.assertEqual((report.returncode, report.stderr.count("\n")), (2, 1), report.stderr)
        self.assertIn("a run with --parallel 1, expected 2 as in", report.stderr)
        self.assertFalse((self.folder / "report").exists())

    def test_an_interrupted_run_goes_on(self):
        self.write([{"id": i, "turns": [f"hello {i} hello {i}", "again"]} for i in range(LONG)])
        whole = self.folder / "whole"
        self.good("--draft", "ngram", out=whole)
        process = subprocess.Popen(self.command("--draft", "ngram", "--parallel", 4), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment())
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (self.journal().exists() and self.journal().read_text()):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        if process.returncode != 0:  # it was not faster
            self.assertEqual(process.returncode, 130, said)
            self.assertIn("turns are kept in", said)
            self.good("--draft", "ngram", "--parallel", 4, "--resume")
        self.assertEqual(self.answers(), self.answers(whole))


class SharedBaseline(EvalTest):
    def setUp(self):
        super().setUp()
        self.plain = self.folder / "plain"
        self.good("--draft", "none", out=self.plain)

    def test_the_turns_of_an_earlier_run_are_compared_and_some_are_timed_again(self):
        shown = self.good("--draft", "ngram", "--baseline-run", self.plain, "--baseline-turns", "2")
        self.assertTrue(shown.startswith("6 of 6 turns identical\n"), shown)
        self.assertIn("baseline drift", shown)
        for number, (turn, before) in enumerate(zip(self.turns(), self.turns(self.plain), strict=True)):
            self.assertTrue(turn["equal"])
            self.assertEqual(turn["baseline_seconds"], before["seconds"])
            self.assertEqual("retimed_seconds" in turn, number < 2)
        self.assertEqual(self.read("summary.json")["baseline"]["drift"]["count"], 2)
        baseline = self.read("manifest.json")["configuration"]["baseline"]
        digest = hashlib.sha256((self.plain / "turns.json").read_bytes()).hexdigest()
        self.assertEqual(baseline, {"kind": "shared", "run": str(self.plain), "turns_sha256": digest, "retimed_turns": 2})

    def test_a_turn_that_differs_fails_the_run_with_a_dump(self):
        turns = self.turns(self.plain)
        turns[1]["tokens"][5] += 1
        (self.plain / "turns.json").write_text(json.dumps(turns))
        result = self.run_eval("--draft", "ngram", "--baseline-run", self.plain)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)
        self.assertTrue(result.stdout.startswith('5 of 6 turns identical: prompt "81", turn 2 differs at position 5'))
        self.assertIn('prompt "81", turn 2 differs at position 5', result.stderr)
        dump = Path(result.stderr.split("dump: ")[1].strip())
        self.assertEqual(dump.parent, self.out / "dumps")
        self.assertEqual((json.loads(dump.read_text())["prompt_id"], self.read("summary.json")["baseline"]["identical"]),
                         (81, 5))

    def test_only_a_finished_run_of_the_same_model_and_draws_will_do(self):
        self.refused("sampling.seed is", "--draft", "ngram", "--baseline-run",
                     self.plain, "--seed", "3")
        self.refused("no manifest.json", "--draft", "ngram", "--baseline-run", self.folder / "none",
                     out=self.folder / "b")
        self.write([{**PROMPTS[0], "question_id": 99}])
        self.refused('prompt "99", turn 1: not there', "--draft", "ngram", "--baseline-run", self.plain,
                     out=self.folder / "c")


class RanksTest(EvalTest):
    FLAGS = ("--draft", "ngram", "--draft-nodes", "16", "--baseline", "--trace")  # a fixed budget

    def setUp(self):
        super().setUp()
        self.write([{"id": number, "turns": [f"one two one two {number}", "again"][:1 + number % 2]}
                    for number in range(7)])

    def start(self, rank, world, *flags, preexec_fn=None, **options):
        return subprocess.Popen(self.command(*flags, **options), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=torchrun(rank, world), preexec_fn=preexec_fn)

    def results(self, processes):
        return [(process.returncode, output, without_progress(errors)) for process in processes
                for output, errors in [process.communicate(timeout=300)]]

    def run_ranks(self, world, *flags, **options):
        return self.results([self.start(rank, world, *flags, **options) for rank in range(world)])

    def start_until(self, turns, world, *flags, **options):
        """Ranks of a run that is long enough to be disturbed, the last of which has answered some turns."""
        self.write([{"id": number, "turns": ["one two one two", "again"]} for number in range(LONG)])
        processes = [self.start(rank, world, *flags, tokens=60, **options) for rank in range(world)]
        journal = self.journal(rank=world - 1)
        while not (journal.exists() and journal.read_text().count("\n") >= turns):
            self.assertIsNone(processes[-1].poll())
            time.sleep(0.01)
        return processes


class ManyProcesses(RanksTest):
    def check_ranks(self, results):
        self.assertEqual([(code, errors) for code, _, errors in results], [(0, "")] * len(results))
        self.assertTrue(results[0][1].startswith("10 of 10 turns identical\n"), results[0][1])
        self.assertEqual([output for _, output, _ in results[1:]], [""] * (len(results) - 1))

    def test_the_merged_result_does_not_depend_on_the_number_of_ranks(self):
        self.good(*self.FLAGS)
        for world in (2, 3, 5):
            out = self.folder / str(world)
            self.check_ranks(self.run_ranks(world, *self.FLAGS, out=out))
            self.assertEqual(self.untimed(out), self.untimed(), world)
            self.assertEqual(self.files(out), FILES)
            for rank in range(world):
                share = [json.loads(line) for line in self.journal(out, rank).read_text().splitlines()]
                self.assertTrue(all(turn["record"] % world == rank for turn in share))
                self.assertTrue((self.journal(out, rank).parent / "trace.jsonl.zst").exists())
            manifest = self.read("manifest.json", out)
            self.assertEqual((manifest["launcher"], manifest["world"]), ("torchrun", world))
            self.assertEqual([rank["rank"] for rank in manifest["ranks"]], list(range(world)))
            self.assertEqual(manifest["configuration"]["engine"]["threads"], max(1, os.cpu_count() // world))

    def test_with_openmpi(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not there: scripts/setup test installs openmpi-bin")
        self.good(*self.FLAGS)
        for world in (1, 2, 3, 5):
            out = self.folder / str(world)
            launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(world)]
            result = subprocess.run([*launch, *self.command(*self.FLAGS, out=out)], capture_output=True, text=True,
                                    timeout=300, env=environment())
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.startswith("10 of 10 turns identical\n"), result.stdout)
            self.assertEqual(self.untimed(out), self.untimed(), world)
            self.assertEqual(self.read("manifest.json", out)["launcher"], "mpirun")

    def check_resumed(self, whole):
        self.assertEqual(self.untimed(), self.untimed(whole))
        self.check_traces(2 * LONG)

    def test_a_rank_that_dies_is_named_and_resume_finishes_its_share(self):
        processes = self.start_until(3, 3, *self.FLAGS)
        processes[2].kill()
        (code, output, errors), second, _ = self.results(processes)
        self.assertEqual((code, output, errors.count("\n")), (1, "", 1), errors)
        self.assertRegex(errors, r"turns are missing: rank 2: process \d+ is gone; --resume finishes them")
        self.assertEqual(second, (0, "", ""))
        kept = {rank: self.journal(rank=rank).read_text() for rank in range(3)}
        results = self.run_ranks(3, *self.FLAGS, "--resume", tokens=60)
        self.assertEqual([(code, errors) for code, _, errors in results], [(0, "")] * 3)
        for rank in range(3):
            self.assertTrue(self.journal(rank=rank).read_text().startswith(kept[rank].rpartition("\n")[0]))
        self.assertEqual(self.journal(rank=1).read_text(), kept[1])
        whole = self.folder / "whole"
        self.good(*self.FLAGS, out=whole, tokens=60)
        self.check_resumed(whole)

    def test_a_disk_that_is_full_when_ranks_are_merged_loses_nothing(self):
        self.write([{**PROMPTS[2], "id": number} for number in range(16)])
        whole = self.folder / "whole"
        self.good("--draft", "ngram", "--draft-nodes", "16", out=whole)
        size = (whole / "turns.json").stat().st_size
        first, second = self.run_ranks(2, "--draft", "ngram", "--draft-nodes", "16", preexec_fn=files_up_to(size * 3 // 4))
        self.assertEqual(second, (0, "", ""))
        self.assertEqual((first[0], first[1], first[2].count("\n")), (1, "", 1), first[2])
        self.assertIn("turns.json: cannot write: File too large", first[2])
        self.good("--draft", "ngram", "--draft-nodes", "16", "--resume")
        self.assertEqual(self.untimed(), self.untimed(whole))

    def test_another_number_of_ranks_can_finish_a_run(self):
        for process in self.start_until(3, 5, *self.FLAGS):
            process.kill()
            process.communicate(timeout=60)
        # As if the last rank had died between writing a turn to its trace and to its journal.
        journal = self.journal(rank=4)
        journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
        results = self.run_ranks(2, *self.FLAGS, "--resume", tokens=60)
        self.assertEqual([(code, errors) for code, _, errors in results], [(0, "")] * 2)
        whole = self.folder / "whole"
        self.good(*self.FLAGS, out=whole, tokens=60)
        self.check_resumed(whole)
        self.assertEqual([entry["world"] for entry in self.read("manifest.json")["resumed"]], [2])

    def test_a_rank_that_never_comes_is_named(self):
        (result,) = self.results([self.start(0, 2, *self.FLAGS, "--rank-timeout", "1")])
        self.assertEqual((result[0], result[1], result[2].count("\n")), (1, "", 1), result[2])
        self.assertIn("run: turns are missing: rank 1: no sign of life for 1 s; --resume finishes them", result[2])
        (result,) = self.results([self.start(1, 2, *self.FLAGS, "--rank-timeout", "1", out=self.folder / "other")])
        self.assertIn("other: rank 0 has not created it within 1 s", result[2])
        self.assertEqual(result[0], 1)

    def test_a_rank_that_fails_says_why(self):
        processes = [self.start(0, 2, "--draft", "none"),
                     self.start(1, 2, "--draft", "none", preexec_fn=files_up_to(2000))]
        first, second = self.results(processes)
        self.assertEqual((first[0], second[0]), (1, 1))
        self.assertRegex(second[2], "turns.jsonl: cannot write: File too large")
        self.assertRegex(first[2], "turns are missing: rank 1: .*turns.jsonl: cannot write: File too large")

    def test_flags_of_all_ranks_must_be_the_same(self):
        first = self.start(0, 2, *self.FLAGS, "--rank-timeout", "5")
        (second,) = self.results([self.start(1, 2, *self.FLAGS, "--seed", "1")])
        self.assertEqual(second[0], 2)
        self.assertIn("configuration.sampling.seed", second[2])
        self.assertEqual(self.results([first])[0][0], 1)

    def test_variables_that_contradict_each_other_are_refused(self):
        for message, variables in (("RANK is set and WORLD_SIZE is not", {"RANK": "0"}),
                                   ("RANK: expected a number from 0 to 1", {"RANK": "2", "WORLD_SIZE": "2"}),
                                   ("but 0 of 3 by those of mpirun",
                                    {"RANK": "1", "WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0",
                                     "OMPI_COMM_WORLD_SIZE": "3"})):
            result = subprocess.run(self.command(), capture_output=True, text=True, timeout=60,
                                    env=environment(**variables))
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), result.stderr)
            self.assertIn(message, result.stderr)
            self.assertFalse(self.out.exists())


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
