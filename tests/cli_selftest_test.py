"""`espalier selftest`: python3 tests/cli_selftest_test.py build/bin/espalier

The program is copied beside test programs that are scripts, so that everything a real one may do is done here in no
time: hold, fail, crash, hang. One test runs real ones on the reference device, the quickest part of them."""

import html.parser
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = DATA / "tiny" / "llama2.gguf"
PROGRAMS = ("device_conformance_test", "digest_test", "whole_engine_test", "lossless_test")
PARTS = ["conformance", "digests", "invariance", "lossless"]
HOLDS = 'echo "[==========] Running 1 test"; report ""'
FAILS = 'report \', "failures": [{"failure": "a.cpp:7\\nExpected: <b>", "type": ""}]\'; exit 1'
SCRIPT = """#!/bin/sh
for word; do case $word in --gtest_output=json:*) file=${word#*json:};; --gtest_filter=*) filter=${word#*=};; esac; done
report() {
  printf '{"testsuites": [{"testsuite": [{"name": "Holds/%s", "classname": "Suite", "status": "RUN",
    "result": "COMPLETED"%s}]}]}' "$ESPALIER_JUDGED_DEVICE" "$1" > "$file"
}
"""


def environment(**more):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
    return {**variables, **more}


class Selftest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.espalier = self.bin / "espalier"
        shutil.copy(ESPALIER, self.espalier)  # no link: it looks for tests beside its own file
        for name in PROGRAMS:
            self.program(name, HOLDS)

    def program(self, name, script, folder=None):
        path = (folder or self.bin) / name
        path.write_text(SCRIPT + script + "\n")
        path.chmod(0o755)

    def run_selftest(self, *flags, code=0, **variables):
        result = subprocess.run([str(self.espalier), "selftest", *map(str, flags)], capture_output=True, text=True,
                                timeout=300, env=environment(**variables), cwd=self.folder)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def refused(self, message, *flags, code=2):
        result = self.run_selftest(*flags, code=code)
        self.assertEqual((result.stdout, result.stderr.count("\n")), ("", 1), result.stderr)
        self.assertIn(message, result.stderr)

    def test_a_device_that_holds_is_reported_in_lines_json_and_a_page(self):
        out = self.run_selftest("--device", "cpu", "--model", MODEL, "--json", "a.json", "--page", "a.html").stdout
        for part in PARTS:
            self.assertRegex(out, rf"(?m)^{part} +1 tests held +[\d.]+ s$")
        self.assertIn("plain decoding", out)
        self.assertRegex(out, r"everything held on cpu, \w+\n$")
        report = json.loads((self.folder / "a.json").read_text())
        self.assertEqual((report["schema"], report["held"], report["left_out"]), (1, True, []))
        self.assertEqual([part["name"] for part in report["parts"]], PARTS)
        self.assertTrue(all(part["held"] and part["tests"] == 1 for part in report["parts"]))
        self.assertEqual(report["device"]["device"], "cpu")
        self.assertEqual(report["speed"]["figures"]["model"], MODEL.name)
        self.assertIn("compiler", report["build"])
        self.assertIn("cores", report["machine"])
        page = (self.folder / "a.html").read_text()
        html.parser.HTMLParser().feed(page)
        self.assertIn("everything held on cpu", page)
        for text in (page, json.dumps(report)):
            self.assertNotIn(str(DATA), text)
            self.assertNotIn(os.uname().nodename + "\"", text)

    def test_failing_tests_are_named_and_the_exit_code_is_1(self):
        self.program("digest_test", FAILS)
        result = self.run_selftest("--device", "cpu", "--only", "digests,lossless", "--json", "a.json", "--page",
                                   "a.html", code=1)
        self.assertRegex(result.stdout, r"digests +FAILED: 1 of 1 tests")
        self.assertIn("  Suite.Holds/cpu\n      a.cpp:7\n      Expected: <b>\n", result.stdout)
        self.assertRegex(result.stdout, r"lossless +1 tests held")  # the others go on
        self.assertRegex(result.stdout, r"FAILED on cpu, \w+: digests \(left out: conformance, invariance, speed\)\n$")
        report = json.loads((self.folder / "a.json").read_text())
        self.assertEqual((report["held"], report["left_out"]), (False, ["conformance", "invariance", "speed"]))
        self.assertEqual(report["parts"][0]["failed"][0]["name"], "Suite.Holds/cpu")
        self.assertIn("Expected: &lt;b&gt;", (self.folder / "a.html").read_text())

    def test_a_crash_is_reported_as_one(self):
        self.program("lossless_test", 'echo "[ RUN      ] Lossless.Of/cpu"; kill -SEGV $$')
        result = self.run_selftest("--device", "cpu", "--only", "lossless", code=1)
        self.assertIn("FAILED: ended by signal 11 (Segmentation fault) in Lossless.Of/cpu", result.stdout)

    def test_half_a_report_is_a_part_that_failed(self):
        self.program("digest_test", 'echo \'{"testsuites": [\' > "$file"')
        result = self.run_selftest("--device", "cpu", "--only", "digests,lossless", code=1)
        self.assertRegex(result.stdout, "digests +FAILED: the report of a test program")
        self.assertRegex(result.stdout, r"lossless +1 tests held")

    def test_a_program_that_shows_nothing_has_not_held(self):
        self.program("lossless_test", 'echo \'{"testsuites": []}\' > "$file"')
        result = self.run_selftest("--device", "cpu", "--only", "lossless", code=1)
        self.assertIn("FAILED: no test applies to this device", result.stdout)

    def hanging(self, script):
        (self.folder / "pid").unlink(missing_ok=True)
        self.program("digest_test", f"echo $$ > {self.folder}/pid; {script}")
        process = subprocess.Popen([str(self.espalier), "selftest", "--device", "cpu", "--only", "digests"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   env=environment(), cwd=self.folder)
        pid = self.folder / "pid"
        while process.poll() is None and not (pid.exists() and pid.read_text().endswith("\n")):
            time.sleep(0.02)
        return process, int(pid.read_text())

    def assert_gone(self, pid):
        for _ in range(500):
            if not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return
            time.sleep(0.02)
        self.fail(f"process {pid} is still there")

    def test_ctrl_c_ends_it_and_a_program_that_hangs(self):
        for script in ("exec sleep 100", "trap '' INT TERM; while :; do sleep 0.1; done"):
            process, pid = self.hanging(script)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, err), (130, "espalier: interrupted\n"))
            self.assert_gone(pid)

    def test_a_program_does_not_outlive_it(self):
        process, pid = self.hanging("exec sleep 100")
        process.kill()
        process.communicate(timeout=60)
        self.assert_gone(pid)

    def test_installed_programs_are_found_with_their_fixtures(self):
        for name in PROGRAMS:
            (self.bin / name).unlink()
        libexec, data = self.folder / "libexec" / "espalier", self.folder / "share" / "espalier" / "tests" / "data"
        for folder in (libexec, data):
            folder.mkdir(parents=True)
        for name in PROGRAMS:
            self.program(name, f'[ "$ESPALIER_TEST_DATA" = {data.resolve()} ] && report ""', folder=libexec)
        self.assertIn("digests      1 tests held", self.run_selftest("--device", "cpu", "--only", "digests").stdout)

    def test_what_would_choose_other_tests_is_not_passed_on(self):
        self.program("digest_test", '[ -z "$GTEST_FILTER$GTEST_TOTAL_SHARDS$ESPALIER_MODE" ] && [ "$filter" = "*" ] && '
                                    'report ""')
        self.run_selftest("--device", "cpu", "--only", "digests", GTEST_FILTER="x", GTEST_TOTAL_SHARDS="2",
                          ESPALIER_MODE="reference")

    def test_without_test_programs_one_line_says_what_to_build(self):
        (self.bin / "lossless_test").unlink()
        self.refused("lossless_test is not there: make selftest builds them", "--only", "lossless",
                     "--device", "cpu", code=1)

    def test_without_a_model_nothing_is_measured_and_that_is_no_failure(self):
        out = self.run_selftest("--device", "cpu", "--only", "speed").stdout
        self.assertRegex(out, r"speed +not measured: the default model .* is not there")
        out = self.run_selftest("--device", "reference", "--only", "speed", "--model", MODEL).stdout
        self.assertRegex(out, r"speed +not measured: the reference device")

    def test_json_on_standard_output_stands_there_alone(self):
        result = self.run_selftest("--device", "cpu", "--only", "digests", "--json", "-")
        self.assertTrue(json.loads(result.stdout)["held"])
        self.assertIn("everything held", result.stderr)

    def test_wrong_flags_are_one_line_and_exit_code_2(self):
        self.refused("--device: expected auto or cpu or reference or cuda or ascend, or cuda:N or ascend:N, got 'tpu'", "--device", "tpu")
        self.refused("--only", "--only", "everything")
        self.refused("--nonsense", "--nonsense")
        self.refused("only one of them can be -", "--json", "-", "--page", "-")
        (self.folder / "there").write_text("")
        self.refused("there: ", "--json", "there")
        self.refused("there: ", "--page", "there")
        self.run_selftest("--device", "cpu", "--only", "digests", "--json", "there", "--force")

    def test_a_device_that_is_not_there_is_one_line(self):
        self.refused("CUDA: ", "--device", "cuda:999", code=1)


class RealPrograms(unittest.TestCase):
    def test_the_cpu_has_the_pinned_digests(self):
        if not (ESPALIER.parent / "digest_test").exists():
            self.skipTest("build the target selftest_programs")
        result = subprocess.run([str(ESPALIER), "selftest", "--device", "cpu", "--only", "digests"],
                                capture_output=True, text=True, timeout=600, env=environment())
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertRegex(result.stdout, r"digests +1 tests held")


class OnAFake(unittest.TestCase):
    """The whole command, with real programs, on fakes of the Ascend API."""

    def run_on(self, fake, *flags, **variables):
        library = ESPALIER.parent.parent / "tests" / "ascend_fake" / f"lib{fake}.so"
        if not (ESPALIER.parent / "near_tie_test").exists() or not library.exists():
            self.skipTest("build the targets selftest_programs and ascend_fake_tests")
        with tempfile.TemporaryDirectory() as folder:
            json_file, page_file = Path(folder) / "a.json", Path(folder) / "a.html"
            result = subprocess.run([str(ESPALIER), "selftest", "--device", "ascend", "--json", str(json_file), "--page",
                                     str(page_file), *flags], capture_output=True, text=True, timeout=600,
                                    env=environment(ESPALIER_ASCEND_LIBRARY=str(library), **variables))
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            page = page_file.read_text()
            html.parser.HTMLParser().feed(page)
            return result.stdout, json.loads(json_file.read_text()), page

    def test_a_device_whose_rows_depend_on_each_other_holds_within_bounds_and_outside_near_ties(self):
        out, report, page = self.run_on("ascend_fake", ASCEND_FAKE="seed=3")
        self.assertRegex(out, r"(?m)^conformance +\d+ tests held")
        self.assertRegex(out, r"(?m)^lossless +2 tests held, 16 do not apply: \d+ answers equal")
        self.assertRegex(out, r"speed +not measured: a fake says nothing of a card's speed")
        self.assertEqual((report["held"], [part["name"] for part in report["parts"]]), (True, ["conformance", "lossless"]))
        answers = report["parts"][1]["answers"]
        self.assertGreater(answers["equal"] + answers["near_ties"], 30)  # fewer under sanitizers
        self.assertEqual(len(answers["margins"]), answers["near_ties"])
        self.assertIn("everything held on ascend (fake)", page)

    def test_with_the_fake_beside_it_every_call_is_judged(self):
        out, report, page = self.run_on("ascend_fake_8_5", "--only", "conformance", ASCEND_FAKE="seed=3",
                                        ESPALIER_ASCEND_BESIDE="1")
        self.assertRegex(out, r"(?m)^conformance +\d+ tests held")
        self.assertTrue(report["held"])
        self.assertIn("everything held on ascend (fake)", page)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
