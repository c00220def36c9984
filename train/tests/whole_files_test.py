"""Tests of train/pipeline/whole_files.py; they need nothing but the standard library.

Run: python train/tests/whole_files_test.py
"""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
TRAIN = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TRAIN))

from pipeline import whole_files
from pipeline.whole_files import written_whole

WRITER = """
import sys, time
from pathlib import Path
from pipeline.whole_files import written_whole
with written_whole(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


class WholeFiles(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.target = self.folder / "weights.npz"

    def names(self):
        return sorted(entry.name for entry in self.folder.iterdir())

    def write(self, text="whole", path=None):
        with written_whole(path or self.target) as temporary:
            temporary.write_text(text)

    def start_writer(self):
        writer = subprocess.Popen([sys.executable, "-B", "-c", WRITER, str(self.target)], cwd=TRAIN, stdout=subprocess.PIPE)
        self.addCleanup(writer.stdout.close)
        self.addCleanup(writer.wait)
        self.addCleanup(writer.kill)
        self.assertEqual(writer.stdout.readline(), b"writing\n")
        return writer

    def test_a_file_takes_its_name_when_it_is_whole(self):
        self.target.write_text("before")
        with written_whole(self.target) as temporary:
            temporary.write_text("after")
            self.assertEqual(self.target.read_text(), "before")
            self.assertEqual(temporary.name, self.target.name)
        self.assertEqual((self.names(), self.target.read_text()), (["weights.npz"], "after"))
        self.assertEqual(stat.S_IMODE(self.target.stat().st_mode) & 0o600, 0o600)

    def test_an_error_leaves_what_was_there(self):
        self.target.write_text("before")
        with self.assertRaises(ValueError), written_whole(self.target) as temporary:
            temporary.write_text("half")
            raise ValueError
        self.assertEqual((self.names(), self.target.read_text()), (["weights.npz"], "before"))

    def test_names_cannot_be_guessed(self):
        found = set()
        for _ in range(8):
            with written_whole(self.target) as temporary:
                found.add(temporary.parent.name)
                temporary.write_text("x")
        self.assertEqual(len(found), 8)
        for name in found:
            self.assertRegex(name, r"^weights\.npz\.[0-9a-f]{16}\.espalier-tmp$")
            self.assertNotIn(f".{os.getpid()}.", name)

    def test_what_stands_at_the_name_already_is_not_written_to(self):
        """A link that somebody has planted, were the name to be guessed."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        planted = self.folder / f"weights.npz.{'0' * 16}.espalier-tmp"
        planted.symlink_to(elsewhere)
        with mock.patch.object(whole_files.secrets, "token_hex", side_effect=["0" * 16, "1" * 16]):
            self.write()
        self.assertEqual((list(elsewhere.iterdir()), self.target.read_text()), ([], "whole"))
        self.assertTrue(planted.is_symlink())

    def test_a_writer_may_replace_the_file_it_is_given(self):
        """As safetensors does."""
        with written_whole(self.target) as temporary:
            temporary.write_text("first")
            self.write("not mine to remove", self.folder / "other")
            (temporary.parent / "new").write_text("second")
            (temporary.parent / "new").replace(temporary)
            self.write("nor now", self.folder / "other")
        self.assertEqual((self.names(), self.target.read_text()), (["other", "weights.npz"], "second"))

    def test_what_a_killed_process_left_is_removed_by_the_next_that_writes_here(self):
        writer = self.start_writer()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        self.assertEqual(len(self.names()), 1)
        engine = self.folder / f"model.gguf.{'a' * 16}.espalier-tmp"  # of the engine: a file
        engine.write_text("half")
        (self.folder / "notes.espalier-tmp").write_text("of somebody else")
        self.write(path=self.folder / "next")
        self.assertEqual(self.names(), ["next", "notes.espalier-tmp"])

    def test_what_a_living_process_writes_stays(self):
        self.start_writer()
        self.write(path=self.folder / "next")
        self.assertEqual(len(self.names()), 2)


if __name__ == "__main__":
    unittest.main()
