"""Suites of experiments in several processes: python3 tests/cli_suite_ranks_test.py build/bin/espalier

Ranks are started with torchrun's variables, and by mpirun where it is there."""

import json
import re
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

import cli_suite_test as suites
from cli_eval_test import files_up_to
from cli_suite_test import DISTANCE, E1, HISTORY, LEAKAGE, QUALITY, STAGES, SWEEP, environment, without_times
from launchers import torchrun_variables

PROMPTS = [{"id": number, "turns": [f"one two one two {number}", "again"][:1 + number % 2]} for number in range(5)]
EXPERIMENTS = [E1, SWEEP, STAGES, HISTORY, LEAKAGE]
COMPARED = 2 * 7 + 2 * 7 + 2 * (1 + 3)  # turns of these
TIMES = ("seconds", "stages", "baseline_seconds", "retimed_seconds")
GONE = r"rank {}: process \d+ is gone; --resume finishes them"


class SuiteRanks(suites.SuiteTest):
    def setUp(self):
        super().setUp()
        self.write_prompts(PROMPTS)

    def start(self, rank, world, *flags, preexec_fn=None, **options):
        return subprocess.Popen(self.command(*flags, **options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment(**torchrun_variables(rank, world)), preexec_fn=preexec_fn)

    def results(self, processes):
        return [(process.returncode, output, errors) for process in processes
                for output, errors in [process.communicate(timeout=300)]]

    def run_ranks(self, world, *flags, **options):
        return self.results([self.start(rank, world, *flags, **options) for rank in range(world)])

    def check_ranks(self, results, compared=COMPARED):
        self.assertEqual([code for code, _, _ in results], [0] * len(results), results)
        self.assertTrue(results[0][1].startswith(f"{compared} of {compared} turns identical\n"), results[0][1])
        for _, output, errors in results[1:]:
            self.assertEqual((output, errors), ("", ""), "what is said of a suite, its rank 0 says")

    def turns(self, out):
        """Of every run, what does not depend on how fast it was."""
        return {str(path.relative_to(out)): [{name: value for name, value in turn.items() if name not in TIMES}
                                             for turn in json.loads(path.read_text())]
                for path in sorted(out.rglob("turns.json"))}

    def check_same(self, out, whole, experiments):
        for experiment in experiments:
            name = experiment["id"]
            self.assertEqual(without_times(self.result(name, out)), without_times(self.result(name, whole)), name)
        self.assertEqual(self.turns(out), self.turns(whole))

    def read(self, name, out=None):
        return json.loads(((out or self.out) / name).read_text())

    def test_the_results_do_not_depend_on_the_number_of_ranks(self):
        self.write(*EXPERIMENTS)
        whole = self.folder / "whole"
        self.good(out=whole)
        for world in (2, 3):
            out = self.folder / str(world)
            self.check_ranks(self.run_ranks(world, out=out))
            self.check_same(out, whole, EXPERIMENTS)
            self.assertEqual(self.read("suite.json", out)["launch"],
                             {"launcher": "torchrun", "world": world, "experiments": [e["id"] for e in EXPERIMENTS]})
            for place in ("e1/ngram-m6", "baselines/prompts-5-12", "nodes/6", "history/2"):
                manifest = self.read(f"{place}/manifest.json", out)
                self.assertEqual([rank["rank"] for rank in manifest["ranks"]], list(range(world)), place)
                for rank in range(world):
                    journal = out / place / "ranks" / f"{rank:04}" / "turns.jsonl"
                    self.assertTrue(all(json.loads(line)["record"] % world == rank
                                        for line in journal.read_text().splitlines()))
            for rank in range(world):
                life = self.read(f"ranks/{rank:04}/rank.json", out)
                self.assertEqual((life["world"], life["ended"], life["failure"]), (world, True, None))
            for figures in (setting["figures"] for setting in self.result("nodes", out)["settings"]):
                self.assertEqual(figures["drift"]["count"], 2, "the same turns are timed again")

    def test_with_openmpi(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not there: scripts/setup test installs openmpi-bin")
        self.write(*EXPERIMENTS)
        whole = self.folder / "whole"
        self.good(out=whole)
        for world in (1, 2, 3):
            out = self.folder / str(world)
            launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(world)]
            result = subprocess.run([*launch, *self.command(out=out)], capture_output=True, text=True, timeout=300,
                                    env=environment())
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue(result.stdout.startswith(f"{COMPARED} of {COMPARED} turns identical\n"), result.stdout)
            self.check_same(out, whole, EXPERIMENTS)

    def test_experiments_without_turns_are_done_by_rank_0_alone(self):
        self.write(LEAKAGE, DISTANCE)
        whole = self.folder / "whole"
        self.good(out=whole)
        self.check_ranks(self.run_ranks(2), compared=0)
        self.check_same(self.out, whole, [LEAKAGE, DISTANCE])

    def write_long(self):
        """A suite that is long enough to be disturbed."""
        self.write_prompts([{"id": number, "turns": ["one two one two", "three"]} for number in range(10)])
        self.write({**E1, "max_tokens": 60}, {**SWEEP, "max_tokens": 60}, STAGES, LEAKAGE)

    def start_until(self, run, world):
        """Ranks of a suite, the last of which has answered a turn of a run."""
        processes = [self.start(rank, world) for rank in range(world)]
        journal = self.out / run / "ranks" / f"{world - 1:04}" / "turns.jsonl"
        while not (journal.exists() and journal.read_text()):
            self.assertEqual([process.poll() for process in processes], [None] * world)
            time.sleep(0.005)
        return processes

    def check_finished(self, results):
        self.check_ranks(results, compared=80)
        whole = self.folder / "whole"
        self.good(out=whole)
        self.check_same(self.out, whole, [E1, SWEEP, LEAKAGE])

    def test_a_rank_that_dies_is_named_and_resume_does_what_is_missing(self):
        self.write_long()
        processes = self.start_until("nodes/2", 3)
        processes[2].kill()
        (code, output, errors), second, _ = self.results(processes)
        self.assertEqual((code, output), (1, ""), errors)
        self.assertRegex(errors, "turns are missing: " + GONE.format(2) + "\n$")
        self.assertEqual((second[0], second[1], second[2].count("\n")), (1, "", 1), second)
        self.assertRegex(second[2], "results are missing: rank 0: .*" + GONE.format(2))
        kept = {path: path.read_bytes() for path in (self.out / "e1").rglob("*") if path.is_file()}
        self.check_finished(self.run_ranks(3, "--resume"))
        for path, before in kept.items():
            self.assertEqual(path.read_bytes(), before, path)

    def test_when_rank_0_dies_the_others_say_so_and_another_number_of_ranks_goes_on(self):
        self.write_long()
        processes = self.start_until("e1/head-m6", 3)
        processes[0].kill()
        _, *others = self.results(processes)
        for code, output, errors in others:
            self.assertEqual((code, output, errors.count("\n")), (1, "", 1), errors)
            self.assertRegex(errors, "results are missing: " + GONE.format(0))
        self.check_finished(self.run_ranks(2, "--resume"))

    def test_a_rank_that_fails_says_why(self):
        self.write_long()
        self.write_prompts([{"id": number, "turns": ["one two one two", "three"]} for number in range(30)])
        processes = [self.start(0, 2), self.start(1, 2, preexec_fn=files_up_to(12000))]
        first, second = self.results(processes)
        self.assertEqual((first[0], second[0], second[2].count("\n")), (1, 1, 1), second[2])
        self.assertRegex(second[2], "/0001/.*: cannot write: File too large")
        self.assertRegex(first[2], "turns are missing: rank 1: .*/0001/.*: cannot write: File too large; --resume finishes")

    def test_ranks_that_never_come_are_named(self):
        self.write(LEAKAGE)
        (result,) = self.results([self.start(0, 3, "--rank-timeout", "1")])
        self.assertEqual((result[0], result[1], result[2].count("\n")), (1, "", 1), result[2])
        self.assertIn("out: results are missing: rank 1: no sign of life for 1 s; rank 2: no sign of life for 1 s; "
                      "--resume finishes them", result[2])
        (result,) = self.results([self.start(1, 2, "--rank-timeout", "1", out=self.folder / "other")])
        self.assertIn("other: rank 0 has not created it within 1 s", result[2])
        self.assertEqual(result[0], 1)
        self.good("--resume")

    def test_all_ranks_must_have_been_asked_for_the_same(self):
        self.write(E1, LEAKAGE)
        for number, (flags, field) in enumerate(((["--seed", "1"], "configuration.sampling.seed"),
                                                 (["--only", "e1"], "launch.experiments"))):
            out = self.folder / str(number)
            first = self.start(0, 2, "--rank-timeout", "2", out=out)
            (second,) = self.results([self.start(1, 2, *flags, out=out)])
            self.assertEqual((second[0], second[2].count("\n")), (2, 1), second[2])
            self.assertIn(field, second[2])
            self.assertEqual(self.results([first])[0][0], 1)

    def test_a_rank_of_a_new_suite_finds_no_old_one(self):
        self.write(LEAKAGE)
        self.check_ranks(self.run_ranks(2), compared=0)
        for code, _, errors in self.run_ranks(2):
            self.assertEqual(code, 2)
            self.assertIn("out: exists already, expected a new directory, or --resume", errors)

    def test_what_was_skipped_is_tried_again_and_what_is_finished_is_shown_again(self):
        self.write({**E1, "drafters": ["ngram"]}, QUALITY)
        self.write_prompts(suites.PROMPTS)
        self.check_ranks(self.run_ranks(2), compared=3)
        self.assertIn("--execute-model-code", self.result("quality")["skipped"])
        turns = (self.out / "e1" / "m6" / "turns.json").read_bytes()
        self.check_ranks(self.run_ranks(3, "--resume", "--execute-model-code=unconfined"), compared=3)
        self.assertEqual(self.figures("quality")["m6"]["problems"], 1)
        shown = self.good("--resume")
        again = self.run_ranks(2, "--resume")
        self.check_ranks(again, compared=3)
        self.assertEqual(again[0][1], shown)
        self.assertEqual((self.out / "e1" / "m6" / "turns.json").read_bytes(), turns)

    def test_a_dry_run_is_printed_once(self):
        self.write(LEAKAGE)
        first, second = self.run_ranks(2, "--dry-run")
        self.assertEqual((first[0], second), (0, (0, "", "")))
        self.assertTrue(re.match("leakage +mask-leakage", first[1]), first[1])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        suites.ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
