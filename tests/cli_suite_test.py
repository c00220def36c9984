"""The command that runs suites of experiments: python3 tests/cli_suite_test.py build/bin/espalier

A tiny suite with every kind of experiment, on the tiny models of tests/data. Times are only looked at for being there."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from launchers import SANITIZED, plain_environment

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = str(DATA / "tiny" / "llama3.gguf")  # babbles, but reproducibly
EAGLE3 = str(DATA / "heads" / "eagle3-specforge.gguf")
CACHE = tempfile.TemporaryDirectory()

PROMPTS = [{"question_id": 81, "turns": ["hello there hello there", "again"]},
           {"task_id": "HumanEval/0", "prompt": "def twice(x):\n    \"\"\"Twice x.\"\"\"\n", "entry_point": "twice",
            "test": "def check(candidate):\n    assert candidate(2) == 4\n"}]
TREE = ["--draft-nodes", "6", "--draft-depth", "3", "--draft-expand", "2"]
BOTH = [{"data": "prompts.jsonl"}]

E1 = {"id": "e1", "title": "Throughput", "kind": "throughput", "prompts": BOTH, "max_tokens": 12, "full_max_tokens": 20,
      "drafters": ["head", "ngram"], "axis": "drafter", "settings": [{"name": "m6", "flags": TREE}],
      "paper": [{"source": "Table 1", "columns": ["mean"], "rows": {"speed_up": [1.27]}}],
      "plot": {"form": "distribution", "figures": ["speed_up"]}}
SWEEP = {"id": "nodes", "title": "Nodes", "kind": "sweep", "prompts": BOTH, "max_tokens": 12, "drafters": ["head"],
         "axis": "nodes", "retimed_turns": 2, "flags": ["--draft-depth", "3"],
         "settings": [{"name": "2", "flags": ["--draft-nodes", "2"]}, {"name": "6", "flags": ["--draft-nodes", "6"]}]}
STAGES = {"id": "e3", "title": "Stages", "kind": "stages", "from": "e1"}
MEDUSA = {"id": "medusa", "title": "Medusa", "kind": "medusa", "prompts": BOTH, "drafters": ["medusa"], "axis": "length",
          "flags": ["--draft-nodes", "4", "--ignore-eos"],
          "settings": [{"name": "8", "max_tokens": 8}, {"name": "16", "max_tokens": 16}]}
HISTORY = {"id": "history", "title": "History", "kind": "sensitivity", "prompts": BOTH, "max_tokens": 6,
           "drafters": ["ngram"], "axis": "turns", "flags": TREE,
           "lengthening": {"what": "history", "lengths": [0, 2], "prompts": 2}}
PREFIX = {**HISTORY, "id": "prefix", "lengthening": {"what": "prefix", "lengths": [0, 30], "prompts": 2}}
LONGER = {**HISTORY, "id": "longer", "lengthening": {"what": "prompt", "lengths": [80, 160], "prompts": 2}}
DISTANCE = {"id": "distance", "title": "Distance", "kind": "attention-distance", "prompts": BOTH, "max_tokens": 12,
            "drafters": ["eagle3"], "flags": TREE}
LEAKAGE = {"id": "leakage", "title": "Leakage", "kind": "mask-leakage", "prompts": BOTH, "max_tokens": 12,
           "drafters": ["head"], "axis": "form", "flags": TREE, "rounds": 5,
           "settings": [{"name": "fused", "flags": ["--attention", "fused"]},
                        {"name": "eager", "flags": ["--attention", "eager"]}]}
QUALITY = {"id": "quality", "title": "Quality", "kind": "quality", "from": "e1"}
ALL = [E1, SWEEP, STAGES, MEDUSA, HISTORY, PREFIX, LONGER, DISTANCE, LEAKAGE, QUALITY]


def environment(**more):
    return plain_environment(CACHE.name, **more)


def without_times(value):
    """Everything of a result that two runs have in common."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items()
                if key not in ("tokens_per_second", "tpot", "ttft", "speed_up", "decode_speed_up", "drift", "stages",
                               "baseline_tokens_per_second", "baseline_tpot", "baseline_ttft", "overhead", "turn_speed_up")}
    return [without_times(item) for item in value] if isinstance(value, list) else value


class SuiteTest(unittest.TestCase):
    """A folder with a suite and its prompts, and what runs it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.suite = self.folder / "suite"
        self.suite.mkdir()
        self.out = self.folder / "out"
        self.write_prompts(PROMPTS)

    def write_prompts(self, prompts):
        (self.suite / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))

    def write(self, *experiments):
        for path in self.suite.glob("*.json"):
            path.unlink()
        for number, experiment in enumerate(experiments):
            (self.suite / f"{number:02}.json").write_text(json.dumps(experiment))

    def command(self, *flags, out=None, head=True, model=MODEL):
        drafter = ["--draft", "eagle3", "--head", EAGLE3] if head else []
        return [str(ESPALIER), "eval", "run", "--suite", str(self.suite), "--model", model, "--context", "512",
                "-o", str(out or self.out), *drafter, *map(str, flags)]

    def run_suite(self, *flags, **options):
        return subprocess.run(self.command(*flags, **options), capture_output=True, text=True, timeout=300,
                              env=environment())

    def good(self, *flags, **options):
        result = self.run_suite(*flags, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, message, *flags, code=2, **options):
        result = self.run_suite(*flags, **options)
        self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (code, "", 1), result.stderr)
        self.assertIn(message, result.stderr)

    def result(self, name, out=None):
        return json.loads(((out or self.out) / name / "result.json").read_text())

    def figures(self, name):
        return {setting["name"]: setting["figures"] for setting in self.result(name)["settings"]}


class Suite(SuiteTest):
    def test_every_kind_of_experiment_runs_and_every_turn_is_identical(self):
        self.write(*ALL)
        shown = self.good()
        compared = 3 * 2 + 3 * 2 + 2 * (1 + 3) + 2 * 2 + 2 * 2
        self.assertTrue(shown.startswith(f"{compared} of {compared} turns identical\n"), shown)
        suite = json.loads((self.out / "suite.json").read_text())
        self.assertTrue(suite["finished"])
        self.assertEqual(suite["identical"], {"turns": compared, "identical": compared, "first_difference": None})
        states = {experiment["id"]: experiment["state"] for experiment in suite["experiments"]}
        self.assertEqual(states, {**{experiment["id"]: "finished" for experiment in ALL}, "medusa": "skipped",
                                  "quality": "skipped"})
        self.check_throughput()
        self.check_sweep()
        self.check_probes()
        self.check_lengths()
        self.assertIn("no Medusa head for", self.result("medusa")["skipped"])
        self.assertIn("--execute-model-code", self.result("quality")["skipped"])

    def check_throughput(self):
        result = self.result("e1")
        self.assertEqual([(s["name"], s["drafter"], s["run"]) for s in result["settings"]],
                         [("m6", "eagle3", "e1/head-m6"), ("m6", "ngram", "e1/ngram-m6")])
        self.assertEqual(result["paper"][0]["rows"]["speed_up"], [1.27])
        for setting in result["settings"]:
            self.assertEqual(setting["identical"]["turns"], 3)
            self.assertEqual(setting["figures"]["speed_up"]["count"], 3)
            turns = json.loads((self.out / setting["run"] / "turns.json").read_text())
            self.assertTrue(all(turn["equal"] for turn in turns))
        for setting in self.result("e3")["settings"]:
            stages = [stage["stage"] for stage in setting["figures"]["stages"]]
            self.assertEqual(stages, ["prefill", "draft", "prepare", "verify", "accept", "commit"])

    def check_sweep(self):
        self.assertEqual([path.name for path in (self.out / "baselines").iterdir()], ["prompts-2-12"])
        for figures in self.figures("nodes").values():
            self.assertEqual((figures["turns"], figures["drift"]["count"]), (3, 2))
            self.assertGreater(figures["baseline_tokens_per_second"]["mean"], 0)

    def check_probes(self):
        for figures in self.figures("leakage").values():
            self.assertEqual((figures["rounds"], figures["logits_changed"], figures["blind_rows"]), (5, 0, 0))
            self.assertGreater(figures["tokens_changed"], 5)
        distance = self.result("distance")
        self.assertTrue(distance["profile"])
        buckets = distance["settings"][0]["figures"]["buckets"]
        self.assertAlmostEqual(sum(bucket["top1_share"] for bucket in buckets), 1)

    def check_lengths(self):
        history = self.figures("history")
        self.assertEqual([history[n]["turns"] for n in ("0", "2")], [2, 2])
        for name, shorter, longer in (("history", "0", "2"), ("prefix", "0", "30"), ("longer", "80", "160")):
            figures = self.figures(name)
            self.assertGreater(figures[longer]["prompt_tokens"]["mean"], figures[shorter]["prompt_tokens"]["mean"])

    def test_medusa_figures_are_tokens_per_step_over_the_cost_of_a_step(self):
        self.write(MEDUSA)
        model = str(DATA / "tiny" / "llama2.gguf")
        self.good("--draft", "medusa", "--head", DATA / "heads" / "medusa-d", head=False, model=model)
        for name, figures in self.figures("medusa").items():
            self.assertEqual(figures["output_tokens"]["mean"], int(name))
            self.assertAlmostEqual(figures["speed_up"]["value"], figures["ac"]["value"] / figures["overhead"]["value"])

    def test_answers_are_judged_in_a_sandbox_only_when_that_was_asked_for(self):
        self.write(E1, QUALITY)
        self.good()
        probe = self.run_suite("--resume", "--execute-model-code")
        unconfined = "does not allow a sandbox" in probe.stderr
        shown = self.good("--resume", "--execute-model-code=unconfined") if unconfined else probe.stdout
        self.assertIn("quality: Quality", shown)
        for figures in self.figures("quality").values():
            self.assertEqual((figures["problems"], figures["passed"], figures["baseline_passed"]), (1, 0, 0))

    def test_no_answer_passes_that_did_not_solve_the_problem(self):
        """Answers that mean harm, put where those of the model were."""
        right = "def twice(x):\n    return 2 * x"
        hostile = {
            "reads its own program back": "import os\nos.lseek(0, 0, 0)\nos.write(1, os.read(0, 1 << 20))\nos._exit(0)\n",
            "looks for open files": "import os\nfor n in range(3, 4096):\n    try: os.write(n, b'passed\\n' * 99)\n"
                                    "    except OSError: pass\nos._exit(0)\n",
            "ends at once": "import os\nos._exit(0)\n",
            "ends when it is called": "import os\ndef twice(x):\n    os._exit(0)\n",
            "claims to be equal": "class E(int):\n    def __eq__(s, o): return True\ndef twice(x):\n    return E(1)\n",
            "changes what equal means": "import builtins\nbuiltins.AssertionError = Exception\n"
                                        "import sys\nsys.excepthook = lambda *a: None\n",
            "kills what it can": "import os, signal\nfor p in (-1, 0, os.getppid()):\n    try: os.kill(p, 9)\n"
                                 "    except OSError: pass\n",
            "goes on forever": "import os\nwhile True: pass\n"}
        self.write(E1, QUALITY)
        self.good()
        runs = [path for path in self.out.glob("e1/*/turns.json")]
        self.assertGreater(len(runs), 0)
        probe = self.run_suite("--resume", "--execute-model-code")
        if "does not allow a sandbox" in probe.stderr:
            self.skipTest("the system does not allow a sandbox")

        def passed(code):
            wrong = "" if "def twice" in code else "def twice(x):\n    return 1\n"
            for path in runs:
                turns = json.loads(path.read_text())
                for turn in turns:
                    turn["text"] = f"```python\n{code}\n{wrong}```"
                path.write_text(json.dumps(turns))
            (self.out / "quality" / "result.json").unlink()
            self.good("--resume", "--execute-model-code")
            return {(figures["problems"], figures["passed"]) for figures in self.figures("quality").values()}

        self.assertEqual(passed(right), {(1, 1)})
        for what, code in hostile.items():
            self.assertEqual(passed(code), {(1, 0)}, what)
        self.assertEqual(passed(right), {(1, 1)})

    def test_a_dry_run_says_what_there_is_to_do_and_does_nothing(self):
        self.write(*ALL)
        shown = self.good("--dry-run")
        self.assertFalse(self.out.exists())
        self.assertRegex(shown, r"(?m)^nodes +sweep +6 turns +[\d.]+ min  2, 6$")
        self.assertRegex(shown, r"(?m)^leakage +mask-leakage +5 rounds")
        self.assertTrue(shown.splitlines()[-1].startswith("at most about "))

    def test_the_paper_suite_takes_at_most_ninety_minutes(self):
        result = subprocess.run([str(ESPALIER), "eval", "run", "--suite", "paper", "--dry-run", "--execute-model-code"],
                                capture_output=True, text=True, timeout=60, env=environment(),
                                cwd=DATA.parent.parent)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^e1 +throughput +480 turns")
        minutes = [float(line.split(" min")[0].split()[-1]) for line in result.stdout.splitlines()[:-1] if " min" in line]
        self.assertLess(sum(minutes), 90, result.stdout)
        self.assertGreater(sum(minutes), 20)

    def test_only_some_experiments_and_those_they_look_at(self):
        self.write(*ALL)
        self.good("--only", "e3")
        self.assertEqual(sorted(path.name for path in self.out.iterdir()), ["e1", "e3", "suite.json"])
        self.refused('--only: the suite has no experiment "bogus"', "--only", "e1,bogus", out=self.folder / "other")

    def test_longer_answers_with_full(self):
        self.write({**E1, "drafters": ["ngram"], "flags": ["--ignore-eos"]})
        self.good("--full")
        self.assertEqual(self.figures("e1")["m6"]["output_tokens"]["p50"], 20)

    def test_without_a_head_its_experiments_are_skipped_and_the_others_take_ngrams(self):
        self.write(E1, DISTANCE)
        self.good(head=False)
        self.assertEqual([setting["drafter"] for setting in self.result("e1")["settings"]], ["ngram"])
        self.assertIn("no EAGLE-3 head for", self.result("distance")["skipped"])

    def test_a_drafter_that_an_experiment_names_is_measured_alone(self):
        self.write(E1, DISTANCE)
        self.good("--draft", "eagle3+ngram", "--head", EAGLE3, head=False)
        self.assertEqual([setting["drafter"] for setting in self.result("e1")["settings"]], ["eagle3+ngram", "ngram"])
        self.assertEqual([setting["drafter"] for setting in self.result("distance")["settings"]], ["eagle3"])

    def test_a_killed_suite_goes_on_where_it_stopped(self):
        prompts = 3 if SANITIZED else 10  # so that it takes long enough to be disturbed
        self.write_prompts([{"id": number, "turns": ["one two one two", "three"]} for number in range(prompts)])
        self.write({**E1, "max_tokens": 60}, {**SWEEP, "max_tokens": 60}, STAGES, LEAKAGE)
        whole = self.folder / "whole"
        self.good(out=whole)
        for kill in (signal.SIGKILL, signal.SIGINT):
            out = self.folder / kill.name
            process = subprocess.Popen(self.command(out=out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env=environment(),
                                       preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
            while process.poll() is None and not (out / "nodes" / "2" / "ranks").exists():
                time.sleep(0.005)
            process.send_signal(kill)
            errors = process.communicate(timeout=60)[1]
            self.assertNotEqual(process.returncode, 0)
            self.assertFalse((out / "leakage").exists())
            if kill == signal.SIGINT:
                self.assertEqual(process.returncode, 130)
                self.assertTrue(errors.endswith(f"espalier: interrupted; what is finished is kept in {out}, "
                                                f"--resume -o {out} goes on\n"), errors)
            kept = (out / "e1" / "result.json").read_bytes()
            shown = self.good("--resume", out=out)
            self.assertTrue(shown.startswith(f"{prompts * 8} of {prompts * 8} turns identical\n"), shown)
            self.assertEqual((out / "e1" / "result.json").read_bytes(), kept)
            for name in ("e1", "nodes", "leakage"):
                self.assertEqual(without_times(self.result(name, out)), without_times(self.result(name, whole)))

    def test_resuming_a_finished_suite_shows_it_again(self):
        self.write(E1, STAGES)
        shown = self.good()
        self.assertEqual(self.good("--resume"), shown)

    def resume_without_flags(self):
        return subprocess.run([str(ESPALIER), "eval", "run", "--resume", "-o", str(self.out)], capture_output=True,
                              text=True, timeout=300, env=environment())

    def test_resuming_needs_no_flags_however_often(self):
        self.write(E1)
        shown = self.good()
        for attempt in range(2):
            result = self.resume_without_flags()
            self.assertEqual((result.returncode, result.stdout), (0, shown), result.stderr)

    def test_code_runs_unconfined_only_when_that_is_asked_for_now(self):
        self.write(E1)
        self.good()
        suite = json.loads((self.out / "suite.json").read_text())
        suite["command"].append("--execute-model-code=unconfined")
        (self.out / "suite.json").write_text(json.dumps(suite))
        result = self.resume_without_flags()
        self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), result.stderr)
        self.assertIn("expected --execute-model-code=unconfined once more", result.stderr)

    def test_only_the_same_suite_is_resumed(self):
        self.write(E1)
        self.good()
        self.refused("configuration.full is", "--resume", "--full")
        self.refused("configuration.drafter.draft is", "--resume", head=False)
        self.refused("configuration.engine.kv is", "--resume", "--kv", "f32")
        self.write({**E1, "title": "Another"})
        self.refused("00.json has changed since the suite began", "--resume")
        self.refused("no suite.json, expected the directory of a suite to resume", "--resume", out=self.folder / "none")
        self.refused("exists already, expected a new directory, or --resume")

    def test_a_turn_that_differs_fails_the_suite_and_is_named(self):
        self.write({**SWEEP, "retimed_turns": 1})
        self.good()
        answers = self.out / "baselines" / "prompts-2-12" / "turns.json"
        turns = json.loads(answers.read_text())
        turns[1]["tokens"][3] ^= 1
        answers.write_text(json.dumps(turns))
        shutil.rmtree(self.out / "nodes")
        result = self.run_suite("--resume")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stdout, r'^4 of 6 turns identical: prompt "81", turn 2 differs at position 3')
        self.assertTrue(list(self.out.glob("nodes/2/dumps/*")))
        self.assertEqual(self.result("nodes")["identical"]["identical"], 4)

    def test_a_turn_that_cannot_be_answered_fails_the_suite_and_is_named(self):
        self.write({**E1, "drafters": ["ngram"]})
        self.write_prompts([{"id": 1, "prompt": "short"}, {"id": 2, "prompt": "long " * 600}])
        result = self.run_suite()
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertTrue(result.stdout.startswith("1 of 1 turns identical\n"), result.stdout)
        failure = self.result("e1")["failure"]
        self.assertRegex(failure, '^e1/m6: turns that failed: 1; the first: prompt "2", turn 1: ')
        self.assertIn(f"failed: {failure}\n", result.stdout)

    def test_each_wrong_use_is_one_line_and_leaves_no_directory(self):
        cases = [({**E1, "colour": 1}, '00.json: unknown key "colour"'),
                 ({**E1, "settings": [{"name": "x", "flags": ["--bogus"]}]}, "00.json: settings[0].flags: "),
                 ({**E1, "flags": ["--device", "cpu"]}, "00.json: flags: "),
                 ({**E1, "settings": [{"name": "x", "flags": ["--draft-nodes", "0"]}]}, "--draft-nodes: expected auto or 1"),
                 ({**E1, "settings": [{"name": "x"}]}, "--draft-nodes N is missing, expected a fixed budget"),
                 ({**E1, "prompts": [{"data": "none.jsonl"}]}, "none.jsonl"),
                 ({**E1, "prompts": BOTH + BOTH}, '00.json: prompts: two data sets are called "prompts"'),
                 ({**E1, "kind": "guess"}, "00.json: kind: expected one of throughput")]
        for experiment, message in cases:
            self.write(experiment)
            self.refused(message)
            self.assertFalse(self.out.exists(), message)
        self.write(E1)
        self.refused("--max-tokens: not with --suite", "-n", "4")
        self.refused("--draft-nodes: not with --suite", "--draft-nodes", "4")
        self.assertFalse(self.out.exists())
        for words, message in ((["--full"], "--full: only with --suite"), ([], "--data is required")):
            result = subprocess.run([str(ESPALIER), "eval", "run", "-o", str(self.out), *words], capture_output=True,
                                    text=True, timeout=60, env=environment())
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1))
            self.assertIn(message, result.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
