"""Equality over sockets, on a tiny model with all kinds of drafters: python3 tests/equality_test.py build/bin/espalier"""

import sys
import unittest
from pathlib import Path

import equality
import server_test

DATA = server_test.DATA
MODEL = str(DATA / "tiny" / "llama2.gguf")  # babbles, but reproducibly
DRAFT = ["--draft", "eagle3+medusa+ngram+hostile", "--head", str(DATA / "heads" / "eagle3-full-vocabulary"),
         "--head", str(DATA / "heads" / "medusa-d")]


class Equality(unittest.TestCase):
    def test_every_answer_is_what_the_request_gets_alone(self):
        options = equality.arguments(["", "--model", MODEL, "--requests", "500", "--dealt", "--max-tokens", "60",
                                      "--context", "192", "--threads", "1", "--configurations", "1x4,4x1,8x4,16x16:4,24x16:4", *DRAFT])
        lines = []
        tallies = equality.measure(options, lines.append)
        for tally in tallies:
            self.assertEqual(tally.differ[:1], [], lines)
            self.assertEqual(tally.compared + tally.left, 100)
            self.assertGreater(tally.left, 0)
        for figure in ("cached", "accepted", "cancelled", "preempted"):  # a test in which nothing happens proves nothing
            self.assertGreater(sum(getattr(tally, figure) for tally in tallies), 0, (figure, lines))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        server_test.ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
