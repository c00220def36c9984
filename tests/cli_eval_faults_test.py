"""What may go wrong in an evaluation: python3 tests/cli_eval_faults_test.py build/bin/espalier

Baselines that cannot be compared, turns that cannot be answered, launches and builds that do not belong together."""

import json
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

import cli_eval_test as evals
from cli_eval_test import environment, files_up_to, torchrun


def changed(path, **fields):
    """A JSON object on disk, with other fields."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


class SharedBaselines(evals.EvalTest):
    def setUp(self):
        super().setUp()
        self.plain = self.folder / "plain"

    def refused_at_once(self, message, *flags, **options):
        self.refused(message, "--draft", "ngram", "--baseline-run", self.plain, *flags, **options)
        self.assertFalse(self.out.exists())

    def test_a_run_that_speculated_is_no_baseline_unless_it_had_one(self):
        self.good("--draft", "ngram", out=self.plain)
        self.refused_at_once('plain: it speculated (drafters "ngram"), expected a run with --draft none or --baseline')
        shutil.rmtree(self.plain)
        self.good("--draft", "ngram", "--baseline", out=self.plain)
        self.good("--draft", "hostile", "--baseline-run", self.plain)
        self.assertEqual([turn["baseline_seconds"] for turn in self.turns()],
                         [turn["baseline_seconds"] for turn in self.turns(self.plain)])

    def test_runs_whose_seconds_cannot_be_compared_are_refused_by_the_field(self):
        self.good("--draft", "none", "--threads", "1", out=self.plain)
        self.refused_at_once("configuration.engine.threads is", "--threads", "2")
        self.refused_at_once("configuration.engine.context is", "--threads", "1", context=256)
        self.refused_at_once("configuration.engine.device is", "--threads", "1", "--device", "reference")
        self.good("--draft", "ngram", "--baseline-run", self.plain, "--threads", "1", "--attention", "eager", "--cache",
                  "replicate", "--reorder", "full")
        shutil.rmtree(self.out)
        manifest = self.plain / "manifest.json"
        before = manifest.read_text()
        for field, value in (("commit", "0" * 40), ("compiler", {"name": "another"}), ("world", 2), ("program", "0" * 64)):
            changed(manifest, **{field: value})
            self.refused_at_once(f"plain: {field}", "--threads", "1")
            manifest.write_text(before)

    def test_a_baseline_that_was_made_again_is_another_one(self):
        self.good("--draft", "none", out=self.plain)
        self.good("--draft", "ngram", "--baseline-run", self.plain)
        self.make_unfinished(3)
        shutil.rmtree(self.plain)
        self.good("--draft", "none", out=self.plain)
        self.refused("--resume: configuration.baseline.turns_sha256 is", "--draft", "ngram", "--baseline-run", self.plain,
                     "--resume")

    def test_a_turn_that_differs_does_not_end_the_run_when_later_ones_are_timed_again(self):
        self.good("--draft", "none", out=self.plain)
        turns = self.turns(self.plain)
        turns[0]["tokens"][-1] ^= 1  # and so what was asked in the second turn is not what is asked now
        turns[1]["prompt"][-1] ^= 1
        turns[1]["tokens"][2] ^= 1
        (self.plain / "turns.json").write_text(json.dumps(turns))
        result = self.run_eval("--draft", "ngram", "--baseline-run", self.plain, "--baseline-turns", "1")
        self.assertEqual(result.returncode, 2, "the first turn itself no longer comes out")
        shutil.rmtree(self.out)
        turns[0]["tokens"][-1] ^= 1
        (self.plain / "turns.json").write_text(json.dumps(turns))
        result = self.run_eval("--draft", "ngram", "--baseline-run", self.plain, "--baseline-turns", "6")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertTrue(result.stdout.startswith('5 of 6 turns identical: prompt "81", turn 2 differs at position 2'))
        self.assertEqual(["retimed_seconds" in turn for turn in self.turns()], [True, False, True, True, True, True])


class FailedTurns(evals.EvalTest):
    """A context of 90 tokens is too small for second turns."""

    FLAGS = ("--draft", "ngram", "--draft-nodes", "16", "--baseline", "--trace")

    def run_with_failures(self, *flags, **options):
        result = self.run_eval(*self.FLAGS, *flags, context=90, **options)
        self.assertEqual(result.returncode, 1, result.stderr)
        return result

    def failed(self, out=None):
        return [(turn["prompt_id"], turn["turn"]) for turn in self.turns(out) if "error" in turn]

    def test_a_turn_that_outgrows_the_context_fails_and_the_run_goes_on(self):
        result = self.run_with_failures()
        failed = self.failed()
        self.assertIn((81, 2), failed)
        self.assertNotIn(("HumanEval/0", 1), failed)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), len(failed))
        self.assertRegex(lines[0], r"^espalier: .*prompts.jsonl:1: turn 2: the prompt has \d+ tokens, the context holds 90$")
        answered = 6 - len(failed)
        self.assertRegex(result.stdout, f'^{answered} of {answered} turns identical\nfailed turns +{len(failed)}; the first: '
                                        'prompt "81", turn 2: the prompt has')
        turn = self.turns()[1]
        self.assertEqual((turn["tokens"], turn["text"], turn["finish_reason"], turn["equal"]), ([], "", "error", None))
        summary = self.read("summary.json")
        self.assertEqual((summary["turns"], summary["failed"], summary["baseline"]["turns"]), (answered, len(failed), answered))
        self.check_traces(answered)
        self.assertEqual(self.files(), evals.FILES)

    def test_turns_after_one_that_failed_fail_with_it(self):
        self.write([{"id": 1, "turns": ["hello", "x " * 200, "again"]}, {"id": 2, "turns": ["hello"]}])
        self.run_with_failures()
        errors = [turn.get("error") for turn in self.turns()]
        self.assertRegex(errors[1], "the context holds 90")
        self.assertEqual((errors[0], errors[2], errors[3]), (None, "an earlier turn failed", None))

    def test_a_run_with_turns_that_failed_can_be_shown_again_resumed_and_reported(self):
        shown = self.run_with_failures().stdout
        whole, failed = self.untimed(), self.failed()
        again = self.run_with_failures("--resume")
        self.assertEqual((again.stdout, again.stderr), (shown, ""))
        for lines in (1, 2, 3):
            self.make_unfinished(lines)
            self.run_with_failures("--resume")
            self.assertEqual(self.untimed(), whole)
            self.check_traces(6 - len(failed))
        report = subprocess.run([str(evals.ESPALIER), "eval", "report", str(self.out), "-o", str(self.folder / "report")],
                                capture_output=True, text=True, timeout=60, env=environment())
        self.assertEqual((report.returncode, report.stderr), (1, ""))
        self.assertIn(f"{len(failed)} could not be answered", report.stdout)
        self.assertTrue((self.folder / "report" / "index.html").exists())

    def test_a_turn_that_failed_is_none_to_compare_with(self):
        plain = self.folder / "plain"
        self.assertEqual(self.run_eval("--draft", "none", context=90, out=plain).returncode, 1)
        result = self.run_eval("--draft", "ngram", "--baseline-run", plain, context=90)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.failed(), self.failed(plain))
        self.assertEqual(self.read("summary.json")["baseline"]["identical"], 6 - len(self.failed()))

    def test_a_rank_whose_prompts_all_fail_has_done_its_share(self):
        self.write([{"id": 1, "prompt": "short"}, {"id": 2, "prompt": "long " * 200}])
        processes = [subprocess.Popen(self.command("--draft", "none", context=90), stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, env=torchrun(rank, 2)) for rank in range(2)]
        outputs = [process.communicate(timeout=300) for process in processes]
        self.assertEqual([process.returncode for process in processes], [1, 0], outputs)
        self.assertRegex(outputs[1][1], "prompts.jsonl:2: turn 1: the prompt has")
        self.assertEqual(self.failed(), [(2, 1)])


class OtherBuilds(evals.EvalTest):
    def test_a_run_of_a_build_with_changes_is_resumed_by_the_same_program_only(self):
        self.good("--draft", "none")
        self.make_unfinished(3)
        manifest = self.out / "manifest.json"
        program = self.read("manifest.json")["program"]
        commit = self.read("manifest.json")["commit"]
        self.assertEqual(program is None, commit is not None and not commit.endswith("-dirty"))
        changed(manifest, program="0" * 64)
        self.refused("--resume: program is", "--draft", "none", "--resume")
        changed(manifest, program=program)
        self.good("--draft", "none", "--resume")


class Launches(evals.RanksTest):
    PLAIN = ("--draft", "none", "--trace")

    def kill(self, processes):
        for process in processes:
            process.kill()
            process.communicate(timeout=60)

    def start_by_mpirun(self, rank, local_size, *flags):
        variables = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_SIZE": local_size}
        return subprocess.Popen(self.command(*flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment(**{name: str(value) for name, value in variables.items()}))

    def test_ranks_on_hosts_with_more_and_fewer_of_them_have_their_own_threads(self):
        for flags in (self.PLAIN, (*self.PLAIN, "--resume")):
            results = self.results([self.start_by_mpirun(0, 1, *flags), self.start_by_mpirun(1, 2, *flags)])
            self.assertEqual([(code, errors) for code, _, errors in results], [(0, "")] * 2)
            changed(self.out / "manifest.json", end=None)
            journal = self.journal(rank=1)
            journal.write_text(journal.read_text().split("\n")[0] + "\n")

    def test_a_rank_with_other_flags_is_not_told_of_resuming(self):
        first = self.start(0, 2, *self.PLAIN, "--rank-timeout", "3")
        (second,) = self.results([self.start(1, 2, *self.PLAIN, "--seed", "1")])
        self.assertEqual((second[0], second[2].count("\n")), (2, 1), second[2])
        self.assertIn('manifest.json: configuration.sampling.seed is "1", expected "0", as rank 0 has it', second[2])
        self.assertNotIn("--resume", second[2])
        self.results([first])

    def test_the_manifest_has_the_end_of_every_rank(self):
        for number in range(3):
            out = self.folder / str(number)
            self.assertEqual([code for code, _, _ in self.run_ranks(3, *self.PLAIN, out=out)], [0] * 3)
            ranks = self.read("manifest.json", out)["ranks"]
            self.assertEqual([(rank["ended"], rank["end"] is None) for rank in ranks], [(True, False)] * 3)

    def test_a_rank_of_an_earlier_launch_that_is_still_there_must_end_first(self):
        processes = self.start_until(2, 3, *self.PLAIN)
        self.kill(processes[:2])
        self.refused("0002: another process is writing to this run", *self.PLAIN, "--resume", tokens=60)
        self.kill(processes[2:])
        self.good(*self.PLAIN, "--resume", tokens=60)
        self.check_traces(2 * evals.LONG)

    def test_traces_of_ranks_that_are_no_more_are_cut_beyond_one_that_has_none(self):
        self.kill(self.start_until(3, 5, *self.PLAIN))
        (self.journal(rank=3).parent / "trace.jsonl.zst").unlink(missing_ok=True)  # on a busy machine it has none yet
        journal = self.journal(rank=4)
        journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:1]))
        self.good(*self.PLAIN, "--resume", tokens=60)
        shown = subprocess.run([str(evals.ESPALIER), "trace", "stats", "--json", str(journal.parent / "trace.jsonl.zst")],
                               capture_output=True, text=True, timeout=60, env=environment())
        self.assertEqual(json.loads(shown.stdout)["turns"], 1, shown.stderr)

    def test_a_rank_that_fails_before_rank_0_looks_is_not_waited_for(self):
        self.kill(self.start_until(3, 2, "--draft", "none"))
        second = self.start(1, 2, "--draft", "none", "--resume", tokens=60, preexec_fn=files_up_to(1500))
        time.sleep(1.5)  # it has failed by now, and waits to be seen
        start = time.monotonic()
        first = self.start(0, 2, "--draft", "none", "--resume", tokens=60)
        first, second = self.results([first, second])
        self.assertLess(time.monotonic() - start, 120, "rank 0 waited for a sign of life")
        self.assertRegex(second[2], "turns.jsonl: cannot write: File too large")
        self.assertEqual(first[0], 1)
        self.assertRegex(first[2], "turns are missing: rank 1: .*turns.jsonl: cannot write: File too large")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        evals.ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
