"""Every command once, each under the leak detection of a sanitizer build: python3 tests/cli_leaks_test.py build-sanitize/bin/espalier

The other tests of the program start it 760 times, and looking for leaks takes seconds at the end of each process
on Arm (clang 14), so under sanitizers they leave it off and this one has it on."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

ESPALIER = Path("build-sanitize/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = str(DATA / "tiny" / "llama2.gguf")
MEDUSA = str(DATA / "heads" / "medusa-d")
ANSWER = ("--model", MODEL, "-n", "8", "--ignore-eos")


class Leaks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def good(self, *words, text=None):
        result = subprocess.run([str(ESPALIER), *map(str, words)], input=text, text=True, capture_output=True,
                                timeout=300, cwd=self.folder, env={**os.environ, "XDG_CACHE_HOME": str(self.folder)})
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_commands_that_answer(self):
        self.good("generate", *ANSWER, "--draft", "medusa", "--head", MEDUSA, "--receipt", "receipt.json", "hello hello")
        self.good("verify", "--model", MODEL, "receipt.json")
        self.good("chat", *ANSWER, text="hello\nand again\n")
        self.good("compare", *ANSWER, "--draft", "ngram", "hello hello")
        self.good("tree", *ANSWER, "--draft", "ngram", "hello hello")

    def test_commands_that_look_at_models_and_text(self):
        (self.folder / "text.txt").write_text("hello hello and hello again")
        self.good("inspect", MODEL)
        self.good("tokenize", "--model", MODEL, "hello")
        self.good("perplexity", "--model", MODEL, "--logprobs", "logprobs", "text.txt")
        self.good("quantize", MODEL, "small.gguf", "--type", "f16")

    def test_runs_their_traces_and_reports(self):
        (self.folder / "data.jsonl").write_text(json.dumps({"id": 1, "turns": ["one two one two", "again"]}) + "\n")
        self.good("eval", "run", *ANSWER, "--data", "data.jsonl", "-o", "out", "--context", "512", "--draft", "ngram", "--trace")
        self.good("eval", "report", "out", "-o", "report")
        trace = next(self.folder.glob("out/**/trace.jsonl.zst"))
        self.good("trace", "stats", trace)
        self.good("replay", trace)

    def test_the_benchmark(self):
        self.good("bench", "--model", MODEL, "--rows", "1,2", "--contexts", "16", "--repeat", "1", "--threads", "2")

    def test_the_server(self):
        server = subprocess.Popen([str(ESPALIER), "serve", "--model", MODEL, "--port", "0", "--draft", "ngram", "--metrics"],
                                  stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                  env={**os.environ, "XDG_CACHE_HOME": str(self.folder)})
        self.addCleanup(server.kill)
        self.addCleanup(server.stderr.close)
        url = re.search(r"http://\S+:\d+", server.stderr.readline()).group(0)
        for path, body in (("/v1/completions", {"prompt": "hello", "n": 3, "max_tokens": 8, "receipt": True}),
                           ("/v1/completions", {"prompt": "hello", "stream": True, "logprobs": 2, "echo": True}),
                           ("/tokenize", {"content": "hello"}), ("/metrics", None), ("/props", None), ("/slots", None)):
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"} if data else {})
            with urllib.request.urlopen(request, timeout=300) as answer:
                self.assertEqual(answer.status, 200)
                answer.read()
        server.terminate()
        self.assertEqual((server.wait(300), server.stderr.read()), (0, ""))

    def test_an_input_that_is_refused(self):
        result = subprocess.run([str(ESPALIER), "generate", "--model", "nowhere.gguf", "hello"], capture_output=True, text=True,
                                timeout=300)
        self.assertEqual((result.returncode, len(result.stderr.splitlines())), (2, 1), result.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
