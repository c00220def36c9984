"""What the program does to files, and what it can be given instead of one: python3 tests/cli_files_test.py build/bin/espalier

Runs on the tiny models of tests/data, so no download is needed."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = str(DATA / "tiny" / "llama2.gguf")
CACHE = tempfile.TemporaryDirectory()
TEXT = Path(CACHE.name) / "text"
TEXT.write_text("a tree trained flat against a wall. " * 10)


class FileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_program(self, *arguments, text="", **options):
        variables = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "input": text, "text": True, **options}
        return subprocess.run([str(ESPALIER), *map(str, arguments)], timeout=60, cwd=self.folder,
                              env={**variables, "XDG_CACHE_HOME": CACHE.name}, **options)

    def good(self, *arguments, **options):
        result = self.run_program(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        return result.stdout

    def refused(self, message, *arguments, code=2, **options):
        result = self.run_program(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (code, 1), result.stderr)
        self.assertIn(message, result.stderr)


def outputs(path):
    """Every command that writes a file of the user's choice."""
    model = ("--model", MODEL, "-n", "8", "--ignore-eos", "--context", "128")
    return {"generate": ("generate", *model, "--trace", path, "hello"),
            "chat": ("chat", *model, "--trace", path),
            "tree": ("tree", *model, "--svg", path, "hello hello"),
            "perplexity": ("perplexity", "--model", MODEL, "--window", "32", "--logprobs", path, TEXT),
            "quantize": ("quantize", MODEL, path, "--type", "q8_0")}


class Outputs(FileTest):
    def test_a_file_that_exists_is_replaced_only_by_force(self):
        for name, command in outputs("precious").items():
            path = self.folder / "precious"
            path.write_text("precious")
            self.refused("precious: the file exists, expected a new name or --force", *command, text="hello\n")
            self.assertEqual(path.read_text(), "precious", name)
            self.good(*command, "--force", text="hello\n")
            self.assertNotEqual(path.read_bytes(), b"precious", name)
            self.assertEqual([entry.name for entry in self.folder.iterdir()], ["precious"], name)
            path.unlink()

    def test_a_link_is_followed_and_stays(self):
        for name, command in outputs("link").items():
            target, link = self.folder / "target", self.folder / "link"
            link.symlink_to("target")
            self.good(*command, text="hello\n")
            self.assertTrue(link.is_symlink() and target.stat().st_size > 0, name)
            self.refused("link: the file exists", *command, text="hello\n")
            self.good(*command, "--force", text="hello\n")
            self.assertTrue(link.is_symlink(), name)
            link.unlink()
            target.unlink()

    def test_a_device_is_written_to_and_stays_a_device(self):
        for name, command in outputs("/dev/null").items():
            self.good(*command, text="hello\n")
            self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode), name)
        for command in outputs("/dev/full").values():
            self.refused("/dev/full: cannot write: No space left", *command, code=1, text="hello\n")

    def test_a_fifo_is_written_to(self):
        for name, command in outputs("fifo").items():
            path = self.folder / "fifo"
            os.mkfifo(path)
            heard = []
            reader = threading.Thread(target=lambda: heard.append(path.read_bytes()))
            reader.start()
            self.good(*command, text="hello\n")
            reader.join(timeout=20)
            self.assertGreater(len(heard[0]), 100, name)
            self.assertTrue(stat.S_ISFIFO(path.stat().st_mode), name)
            path.unlink()

    def test_a_read_only_file_is_not_replaced_even_by_force(self):
        path = self.folder / "precious"
        path.write_text("precious")
        path.chmod(0o444)
        for command in outputs("precious").values():
            self.refused("precious: is read-only", *command, "--force", text="hello\n")
        self.assertEqual(path.read_text(), "precious")

    def test_standard_output_where_that_makes_sense(self):
        self.assertTrue(self.good(*outputs("-")["tree"]).startswith("<?xml"))
        for name in ("generate", "chat"):
            self.refused("--trace -: expected a file", *outputs("-")[name], text="hello\n")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_reader_that_has_gone_is_no_error(self):
        for command in (outputs("-")["tree"], outputs("-")["quantize"], outputs("-")["perplexity"]):
            reader, writer = os.pipe()
            os.close(reader)
            result = self.run_program(*command, stdout=writer)
            os.close(writer)
            self.assertEqual((result.returncode, result.stderr), (-signal.SIGPIPE, ""), command)

    def test_a_model_on_standard_output_is_the_model(self):
        self.good("quantize", MODEL, "a.gguf", "--type", "q8_0")
        with open(self.folder / "b.gguf", "wb") as out:
            result = self.run_program(*outputs("-")["quantize"], stdout=out)
        self.assertEqual(result.returncode, 0)
        self.assertIn("tensors", result.stderr)
        self.assertEqual((self.folder / "a.gguf").read_bytes(), (self.folder / "b.gguf").read_bytes())

    def test_what_a_killed_process_left_is_removed_by_the_next(self):
        left = self.folder / "model.gguf.0123456789abcdef.espalier-tmp"
        left.write_text("half of a model")
        other = self.folder / "notes.tmp"
        other.write_text("of somebody else")
        self.good("quantize", MODEL, "model.gguf", "--type", "q8_0")
        self.assertEqual(sorted(entry.name for entry in self.folder.iterdir()), ["model.gguf", "notes.tmp"])


class Inputs(FileTest):
    def test_a_prompt_may_come_from_a_pipe(self):
        flags = ("generate", "--model", MODEL, "-n", "4")
        expected = self.good(*flags, "hello there")
        self.assertEqual(self.good(*flags, "--file", "/dev/stdin", text="hello there"), expected)
        read_end, write_end = os.pipe()
        os.write(write_end, b"hello there")
        os.close(write_end)
        self.assertEqual(self.good(*flags, "--file", f"/dev/fd/{read_end}", pass_fds=(read_end,)), expected)
        os.close(read_end)

    def test_standard_input_that_cannot_be_read_is_no_empty_prompt(self):
        folder = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        result = self.run_program("generate", "--model", MODEL, "-", text=None, stdin=folder)
        self.assertEqual((result.returncode, result.stderr), (2, "espalier: standard input: cannot read\n"))

    def test_a_fifo_where_a_file_is_needed_is_refused_before_it_blocks(self):
        os.mkfifo(self.folder / "fifo")
        for command in (("generate", "--model", "fifo", "hello"), ("inspect", "fifo"), ("tokenize", "--model", "fifo", "x"),
                        ("perplexity", "--model", MODEL, "fifo"), ("trace", "show", "fifo"), ("replay", "fifo"),
                        ("quantize", "fifo", "x", "--type", "f16"),
                        ("generate", "--model", MODEL, "--draft", "eagle3", "--head", "fifo", "hello"),
                        ("eval", "run", "--model", MODEL, "--data", "fifo", "-o", "out")):
            self.refused("fifo: expected a regular file", *command)


class Descriptors(FileTest):
    def start(self, arguments, closed):
        """Without some of the descriptors 0, 1 and 2."""
        def close():
            for descriptor in closed:
                os.close(descriptor)
        return self.run_program(*arguments, text=None, stdin=None if 0 in closed else subprocess.DEVNULL, preexec_fn=close)

    def test_without_standard_input_a_conversation_ends(self):
        result = self.start(("chat", "--model", MODEL), [0])
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(self.start(("generate", "--model", MODEL, "-"), [0]).returncode, 2)

    def test_without_standard_output_a_lost_answer_is_an_error(self):
        result = self.start(("generate", "--model", MODEL, "-n", "4", "hello"), [1])
        self.assertEqual((result.returncode, result.stderr),
                         (1, "espalier: standard output: cannot write: Bad file descriptor\n"))

    def test_without_standard_error_nothing_aborts(self):
        self.assertEqual(self.start(("generate", "--model", "no/such", "hello"), [2]).returncode, 2)
        self.assertEqual(self.start(("generate", "--model", MODEL, "-v", "-n", "4", "hello"), [2]).returncode, 0)
        self.assertEqual(self.start(("generate", "--model", MODEL, "-n", "4", "hello"), [0, 1, 2]).returncode, 1)

    def test_no_file_gets_the_number_of_a_missing_descriptor(self):
        result = self.start(("generate", "--model", MODEL, "-n", "4", "--trace", "t", "hello"), [1, 2])
        self.assertEqual(result.returncode, 1)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
