"""The library as an application meets it: python3 tests/install_test.py build

Installs the build into an empty folder, builds the examples there, with CMake and with pkg-config, and runs them on the
tiny models of tests/data."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = Path("build")
ROOT = Path(__file__).resolve().parent.parent
MODEL = str(ROOT / "tests" / "data" / "tiny" / "llama2.gguf")  # babbles, but reproducibly


def run(*command, environment=None, cwd=None):
    return subprocess.run([str(word) for word in command], cwd=cwd, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=300, env={**os.environ, **(environment or {})})


class Installed(unittest.TestCase):
    """Each step stands on the one before it, so they are one test's set-up."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        first, cls.prefix, cls.examples = (Path(cls.folder.name) / name for name in ("first", "installed", "examples"))
        cls.check(run("cmake", "--install", BUILD, "--prefix", first))
        first.rename(cls.prefix)  # an installed tree can be moved
        shutil.copytree(ROOT / "examples", cls.examples)
        cls.check(run("cmake", "-S", cls.examples, "-B", cls.examples / "build", f"-DCMAKE_PREFIX_PATH={cls.prefix}"))
        cls.check(run("cmake", "--build", cls.examples / "build", "-j2"))

    @staticmethod
    def check(result):
        if result.returncode != 0:
            raise AssertionError(f"{result.args}\n{result.stdout}{result.stderr}")

    def program(self, name, *arguments):
        return run(self.examples / "build" / name, *arguments, cwd=self.folder.name)

    def test_one_answer_has_the_text_of_the_program(self):
        heads = self.prefix / "share" / "espalier" / "heads"
        answer = self.program("one_answer", MODEL, heads, "hello")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        installed = run(self.prefix / "bin" / "espalier", "generate", "--model", MODEL, "hello", cwd=self.folder.name,
                        environment={"XDG_CACHE_HOME": self.folder.name})
        self.assertEqual(installed.returncode, 0, installed.stderr)
        self.assertEqual(answer.stdout, installed.stdout)
        self.assertRegex(answer.stderr, r"^\d+ tokens in \d+ rounds, \d+ of them drafted by ngram; ended by \w+\n$")

    def test_conversations_say_the_same_every_time(self):
        first = self.program("conversations", MODEL)
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertIn("lively remembers 5 messages\n", first.stdout)
        self.assertIn("plain remembers 4 messages\n", first.stdout)
        self.assertEqual(self.program("conversations", MODEL).stdout, first.stdout)

    def test_together_every_question_ends_and_one_is_cancelled(self):
        first = self.program("together", MODEL)
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertIn("Name all fruit trees. (cancelled)\n", first.stdout)
        for question in ("Name a fruit tree.", "And a nut tree?"):
            self.assertRegex(first.stdout, re.escape(question) + r" \((stop|length)\)\n")

    def test_what_is_wrong_is_one_line(self):
        for arguments, code, line in (((), 2, "usage: one_answer MODEL HEADS QUESTION\n"),
                                      (("no/model", "heads", "x"), 2, "one_answer: no/model: no such file or folder\n")):
            result = self.program("one_answer", *arguments)
            self.assertEqual((result.returncode, result.stderr), (code, line))

    def test_the_installed_program_can_judge_a_device(self):
        if not (BUILD / "bin" / "digest_test").exists():
            self.skipTest("built without the target selftest_programs")
        result = run(self.prefix / "bin" / "espalier", "selftest", "--device", "reference", "--only", "digests",
                     cwd=self.folder.name)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertRegex(result.stdout, r"digests +1 tests held")

    def test_the_installed_program_knows_trees_by_name(self):
        result = run(self.prefix / "bin" / "espalier", "tree", "--list", cwd=self.folder.name)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([line.split()[0] for line in result.stdout.splitlines()[1:]],
                         sorted(path.stem for path in (ROOT / "data" / "trees").glob("*.json")))

    def test_pkg_config_gives_what_a_compiler_needs(self):
        environment = {"PKG_CONFIG_PATH": str(next(self.prefix.rglob("espalier.pc")).parent)}
        flags = run("pkg-config", "--cflags", "--libs", "espalier", environment=environment)
        self.check(flags)
        version = run("pkg-config", "--modversion", "espalier", environment=environment).stdout
        program = Path(self.folder.name) / "version"
        source = program.with_suffix(".cpp")
        source.write_text('#include <espalier/espalier.h>\n#include <iostream>\n'
                          'int main() { std::cout << espalier::version() << "\\n"; }\n')
        self.check(run("c++", "-std=c++20", source, "-o", program, *flags.stdout.split()))
        self.assertEqual(run(program).stdout, version)

    def test_public_headers_include_nothing_else_of_ours(self):
        headers = sorted((self.prefix / "include" / "espalier").iterdir())
        self.assertEqual([header.name for header in headers], ["error.h", "espalier.h"])
        for header in headers:
            for line in header.read_text().splitlines():
                if line.startswith("#include"):
                    self.assertRegex(line, r"^#include <(espalier/\w+\.h|\w+)>$")


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
