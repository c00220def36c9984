"""The command that answers sets of prompts: python3 tests/cli_eval_test.py build/bin/espalier

Runs on the tiny models of tests/data. Times are only looked at for being there."""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = str(DATA / "tiny" / "llama2.gguf")  # babbles, but reproducibly
BENCHMARKS = DATA.parent.parent / "data" / "eval"
CACHE = tempfile.TemporaryDirectory()  # step times are kept here, not in the user's own folder

PROMPTS = [{"question_id": 81, "category": "writing", "turns": ["hello there hello there", "again"]},
           {"task_id": "HumanEval/0", "prompt": "def f(x):\n    return x\n", "test": "unused"},
           {"id": "three", "turns": ["one two one two", "three", "four"]}]
TURNS = [(81, 1), (81, 2), ("HumanEval/0", 1), ("three", 1), ("three", 2), ("three", 3)]


def environment():
    # Only the variables of the test: a mode that the caller's shell prefers is not what is tested here.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
    return {**variables, "XDG_CACHE_HOME": CACHE.name}


class EvalRun(unittest.TestCase):
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
        return [str(ESPALIER), "eval", "run", "--model", MODEL, "--data", str(data or self.data), "-o",
                str(out or self.out), "-n", str(tokens), "--ignore-eos", "--context", str(context), *map(str, flags)]

    def run_eval(self, *flags, stdout=subprocess.PIPE, preexec_fn=None, **options):
        return subprocess.run(self.command(*flags, **options), stdout=stdout, stderr=subprocess.PIPE, text=True,
                              timeout=300, env=environment(), preexec_fn=preexec_fn)

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

    def answers(self, out=None):
        return [(turn["prompt_id"], turn["turn"], turn["prompt"], turn["tokens"]) for turn in self.turns(out)]

    def make_unfinished(self, lines, tail=""):
        """The run in self.out as a killed process leaves it: some turns finished, a line begun."""
        turns = [json.dumps(turn) + "\n" for turn in self.turns()[:lines]]
        (self.out / "turns.partial.jsonl").write_text("".join(turns) + tail)
        (self.out / "turns.json").unlink()
        (self.out / "summary.json").unlink()
        manifest = self.read("manifest.json")
        (self.out / "manifest.json").write_text(json.dumps({**manifest, "end": None}))

    def files(self, out=None):
        return sorted(path.name for path in (out or self.out).iterdir())

    def test_a_run_directory_has_everything_that_is_promised(self):
        shown = self.good("--draft", "ngram", "--baseline")
        self.assertTrue(shown.startswith("6 of 6 turns identical\n"), shown)
        self.assertEqual(self.files(), ["manifest.json", "summary.json", "turns.json"])
        turns = self.turns()
        self.assertEqual([(turn["prompt_id"], turn["turn"]) for turn in turns], TURNS)
        for turn in turns:
            self.assertEqual(list(turn), ["prompt_id", "turn", "prompt_tokens", "prompt", "tokens", "text", "finish_reason",
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

    def test_the_manifest_says_which_run_it_was(self):
        self.good("--draft", "ngram", "--threads", "2", "--seed", "4")
        manifest = self.read("manifest.json")
        configuration = manifest["configuration"]
        self.assertEqual(manifest["schema"], 1)
        self.assertEqual(manifest["command"][1:3], ["eval", "run"])
        self.assertRegex(manifest["version"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(manifest["start"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertLessEqual(manifest["start"], manifest["end"])
        self.assertEqual((len(manifest["load_before"]), len(manifest["load_after"])), (3, 3))
        self.assertEqual(configuration["model"], {"path": MODEL, "bytes": Path(MODEL).stat().st_size})
        self.assertEqual((configuration["data"]["prompts"], configuration["data"]["turns"]), (3, 6))
        self.assertEqual(len(configuration["data"]["sha256"]), 64)
        self.assertEqual(configuration["draft"]["drafters"], "ngram")
        self.assertEqual((configuration["sampling"]["seed"], configuration["sampling"]["max_tokens"]), (4, 24))
        self.assertEqual(configuration["engine"]["threads"], 2)

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
        self.write([{**PROMPTS[2], "id": number} for number in range(40)])
        whole = self.folder / "whole"
        self.good("--draft", "ngram", out=whole, tokens=60)
        for kill in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            out = self.folder / kill.name
            process = subprocess.Popen(self.command("--draft", "ngram", out=out, tokens=60), stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, env=environment(),
                                       preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
            journal = out / "turns.partial.jsonl"
            while process.poll() is None and not (journal.exists() and journal.read_text().count("\n") >= 4):
                time.sleep(0.01)
            process.send_signal(kill)
            output, errors = process.communicate(timeout=60)
            finished = journal.read_text().count("\n")
            self.assertEqual(output, "")
            if kill == signal.SIGINT:
                self.assertEqual(process.returncode, 1)
                self.assertEqual(errors, f"espalier: interrupted after {finished} of 120 turns; --resume goes on\n")
            kept = [json.loads(line) for line in journal.read_text().splitlines()[:finished]]
            self.good("--draft", "ngram", "--resume", out=out, tokens=60)
            self.assertEqual(self.turns(out)[:finished], kept)
            self.assertEqual(self.answers(out), self.answers(whole))
            self.assertEqual([turn["accept_lengths"] for turn in self.turns(out)],
                             [turn["accept_lengths"] for turn in self.turns(whole)])
            self.assertEqual(self.files(out), ["manifest.json", "summary.json", "turns.json"])
            self.assertEqual(len(self.read("manifest.json", out)["resumed"]), 1)

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
        before = {name: (self.out / name).read_bytes() for name in self.files()}
        self.assertEqual(self.good("--draft", "ngram", "--baseline", "--resume"), shown)
        self.assertEqual({name: (self.out / name).read_bytes() for name in self.files()}, before)

    def test_only_the_same_run_is_resumed(self):
        self.good("--draft", "ngram")
        self.make_unfinished(3)
        self.refused('configuration.sampling.seed is "1", expected "0"', "--draft", "ngram", "--resume", "--seed", "1")
        self.refused("configuration.draft.drafters", "--draft", "none", "--resume")
        self.write(PROMPTS[:2])
        self.refused("configuration.data.sha256", "--draft", "ngram", "--resume")
        self.refused("no manifest.json, expected the directory of a run to resume", "--resume", out=self.folder / "none")

    def test_a_run_whose_finished_turns_no_longer_come_out_is_refused(self):
        self.good("--draft", "ngram")
        whole = self.turns()
        self.make_unfinished(4)
        journal = self.out / "turns.partial.jsonl"
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        lines[3]["tokens"][7] += 1
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.refused('prompt "three", turn 1: other tokens than the run had', "--draft", "ngram", "--resume")
        journal.write_text("".join(json.dumps(turn) + "\n" for turn in [whole[1], whole[0]]))
        self.refused("turn 1 is not that of prompt", "--draft", "ngram", "--resume")

    def test_a_turn_that_differs_fails_the_run_and_is_named(self):
        self.good("--draft", "ngram", "--baseline")
        self.make_unfinished(3)
        journal = self.out / "turns.partial.jsonl"
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
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

        self.refused("turns.partial.jsonl: cannot write: File too large", "--draft", "ngram", code=1,
                     preexec_fn=small_files)
        kept = [json.loads(line) for line in (self.out / "turns.partial.jsonl").read_text().splitlines()]
        self.assertGreater(len(kept), 1)
        self.good("--draft", "ngram", "--resume")
        self.assertEqual(self.turns()[:len(kept)], kept)

    def test_each_wrong_use_is_one_line_and_leaves_no_directory(self):
        for message, flags in (("--baseline: there is nothing to compare", ["--draft", "none", "--baseline"]),
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

    def test_a_conversation_that_outgrows_the_context_is_told_with_its_line(self):
        self.refused("prompts.jsonl:1: turn 1: the prompt has", context=8)
        self.refused("prompts.jsonl:1: turn 2: the prompt has", context=90, out=self.folder / "other")
        self.assertEqual((self.folder / "other" / "turns.partial.jsonl").read_text().count("\n"), 1)

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


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
