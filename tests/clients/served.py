"""What the tests of clients share: a real server, and the address of its API.

Each is run by scripts/test-clients as: python3 tests/clients/NAME_test.py build/bin/espalier"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import server_test  # noqa: E402
from server_test import SLOW, Server  # noqa: E402, F401

ROOT = Path(__file__).resolve().parent.parent.parent
DEFAULT_MODEL = str(ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf")
QUESTION = [{"role": "user", "content": "hello"}]


def api(server):
    return f"http://127.0.0.1:{server.port}/v1"


def text_of(server, **fields):
    """What the server says to a plain request, for comparison."""
    answer = server.post("/v1/chat/completions", {"messages": QUESTION, **fields})
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]["message"]["content"]


class ServedTest(unittest.TestCase):
    """Tests against one server on a tiny model, that is ended well behind them."""

    flags = ["--alias", "tiny", "--context", "512", "--parallel", "4", "--draft", "ngram", "--seed", "3"]

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.lines


def main():
    server_test.ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
