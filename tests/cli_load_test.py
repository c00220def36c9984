"""The load benchmark: python3 tests/cli_load_test.py build/bin/espalier

Loads a real `espalier serve` on a tiny model of tests/data, and servers that lie. No time is ever compared with another:
only what is reported, and in which shape."""

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
ROOT = Path(__file__).resolve().parent.parent
MODEL = str(ROOT / "tests" / "data" / "tiny" / "llama3.gguf")
CACHE = tempfile.TemporaryDirectory()
KEY = "a-key"


def environment(**more):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
    return {**variables, "XDG_CACHE_HOME": CACHE.name, **more}


def bench(*flags, **variables):
    return subprocess.run([str(ESPALIER), "bench", "serve", *map(str, flags)], capture_output=True, text=True, timeout=300,
                          cwd=ROOT, env=environment(**variables))


class Server:
    """`espalier serve` on a port of the system's choice, until stop()."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([str(ESPALIER), "serve", "--model", MODEL, "--port", "0", "--threads", "1", *flags],
                                        stderr=subprocess.PIPE, text=True, cwd=CACHE.name, env=environment())
        line = ""
        while " at http://" not in line:
            line = self.process.stderr.readline()
            assert line, "the server did not start"
        self.url = re.search(r"http://127\.0\.0\.1:\d+", line).group()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.process.stderr.close()
        return code


class Liar(http.server.BaseHTTPRequestHandler):
    """Lists a model, and answers requests as `answer` says: a status, or the text of a stream."""
    answer = 500
    model = {"id": "m"}

    def do_GET(self):
        self.reply(200, json.dumps({"data": [self.model]}))

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if isinstance(self.answer, int):
            self.reply(self.answer, '{"error": {"message": "no"}}')
        else:
            self.reply(200, self.answer)

    def reply(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *words):
        pass


class Burster(Liar):
    """Answers in one burst, between a head and an end that come apart; behind the second prompt that disturbs, token by
    token. Such a prompt, which wants one token, takes a while."""
    disturbed = 0

    def do_POST(self):
        wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["max_tokens"]
        pieces = [self.event({"delta": {"content": "a"}})] * wanted
        if wanted == 1:
            type(self).disturbed += 1
            time.sleep(0.2)
        elif self.disturbed <= 2:
            pieces = ["".join(pieces)]
        end = self.event({"delta": {}, "finish_reason": "length"}) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for piece in (self.event({"delta": {"role": "assistant"}}), *pieces, end):
            try:
                self.wfile.write(piece.encode())
            except OSError:  # the load has ended
                return
            time.sleep(0.005)

    @staticmethod
    def event(choice):
        return "data: " + json.dumps({"choices": [{"index": 0, **choice}]}) + "\n\n"


def serve_by(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def lying_server(answer, **more):
    return serve_by(type("Its", (Liar,), {"answer": answer, **more}))


class Load(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", "4", "--api-key", KEY)
        cls.place = tempfile.TemporaryDirectory()
        cls.prompts = Path(cls.place.name) / "prompts.jsonl"  # a tiny model has a token for each letter
        cls.prompts.write_text("".join(f'{{"id": {i}, "prompt": "{word}"}}\n' for i, word in enumerate(("Why?", "Who?"))))

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()
        assert cls.server.stop() == 0

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def bench(self, *flags, **variables):
        return bench("--url", self.server.url, "--prompts", self.prompts, *flags, **{"ESPALIER_API_KEY": KEY, **variables})

    def refused(self, result, message, code):
        self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (code, "", 1), result.stderr)
        self.assertIn(message, result.stderr)

    def test_users_are_answered_and_everything_is_told(self):
        chart, file = self.folder / "load.svg", self.folder / "load.json"
        result = self.bench("--users", "1,3", "-n", "8", "--requests", "2", "--repeat", "2", "--json", file, "--chart", chart,
                            "--seed", "5", "--speculation", "ngram")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(all(len(line) <= 100 for line in result.stdout.split("\n")), result.stdout)
        self.assertIn("seed 5", result.stdout)
        told = json.loads(file.read_text())
        self.assertEqual([load["users"] for load in told["loads"]], [1, 3])
        for load in told["loads"]:
            (figures,) = load["figures"]
            self.assertEqual(figures["requests"], 4 * load["users"])
            self.assertEqual((figures["failed"], figures["short_answers"]), (0, 0))
            self.assertEqual(figures["tokens"], 8 * figures["requests"])
            self.assertEqual(len(figures["tokens_per_second"]["samples"]), 2)
            self.assertEqual(figures["first_token_ms"]["count"], figures["requests"])
            self.assertTrue(figures["tokens_of_events_known"])
            # No more gaps than there are between tokens; fewer, and on a fast machine none, where they came together.
            self.assertLessEqual(figures["gaps"]["between_events_ms"]["count"], figures["tokens"] - figures["requests"])
        self.assertEqual(told["servers"][0]["owned_by"], "espalier")
        xml.etree.ElementTree.parse(chart)
        self.assertNotIn(KEY, file.read_text() + result.stdout)

    def test_a_chart_has_each_server_with_its_spread_and_what_it_was_made_of(self):
        answer = 'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n'
        stranger = lying_server(answer, model={"id": "m", "owned_by": "llamacpp\x1b[31m<b>"})
        chart = self.folder / "load.svg"
        result = self.bench("--against", f"http://127.0.0.1:{stranger.server_port}", "--users", "1,2", "-n", "4",
                            "--requests", "2", "--repeat", "3", "--chart", chart)
        stranger.shutdown()
        stranger.server_close()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertNotIn("\x1b", result.stdout + chart.read_text())
        titles = "\n".join(title.text for title in xml.etree.ElementTree.parse(chart).iter("{http://www.w3.org/2000/svg}title"))
        number = r"[0-9]+\.[0-9]"
        for server in (r"\[1\] espalier", r"\[2\] llamacpp\ufffd\[31m<b>"):
            for users in (1, 2):
                self.assertRegex(titles, rf"(?m)^{server}, {users}: {number} \[{number}, {number}\]; 3 rounds$")
                self.assertRegex(titles, rf"(?m)^{server}, {users}: {number}; of {6 * users}$")

    def test_two_servers_stand_side_by_side(self):
        result = self.bench("--against", self.server.url, "--against-api-key", KEY, "--against-speculation", "none",
                            "--users", "2", "-n", "4", "--requests", "1", "--repeat", "2", "--json", "-", "--api",
                            "completions")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        told = json.loads(result.stdout)
        (load,) = told["loads"]
        self.assertEqual([figures["failed"] for figures in load["figures"]], [0, 0])
        self.assertGreater(load["ratio"], 0)

    def test_requests_arrive_by_themselves(self):
        result = self.bench("--rate", "50,100", "-n", "2", "--requests", "10", "--repeat", "1", "--json", "-")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([load["figures"][0]["requests"] for load in json.loads(result.stdout)["loads"]], [10, 10])

    def test_long_prompts_disturb(self):
        result = self.bench("--interrupt", "250", "--gaps", "5", "--users", "2", "-n", "64", "--json", "-")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        interrupts = json.loads(result.stdout)["loads"][0]["figures"][0]["interrupts"]
        self.assertEqual(interrupts["failed"], 0)
        self.assertGreaterEqual(interrupts["gaps_disturbed"]["between_events_ms"]["count"], 5)
        self.assertAlmostEqual(interrupts["prompt_tokens"], 250, delta=100)

    def test_answers_in_one_burst_are_no_disturbed_gaps(self):
        server = serve_by(Burster)
        result = bench("--url", f"http://127.0.0.1:{server.server_port}", "--interrupt", "50", "--gaps", "5", "--users", "1",
                       "-n", "6", "--json", "-")
        server.shutdown()
        server.server_close()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        interrupts = json.loads(result.stdout)["loads"][0]["figures"][0]["interrupts"]
        self.assertGreaterEqual(interrupts["gaps_disturbed"]["between_events_ms"]["count"], 5)

    def test_an_interrupt_keeps_what_was_measured(self):
        process = subprocess.Popen([str(ESPALIER), "bench", "serve", "--url", self.server.url, "--api-key", KEY, "--users",
                                    "2", "--seconds", "100", "-n", "8", "--prompts", str(self.prompts)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, cwd=ROOT, env=environment())
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        self.assertEqual((process.returncode, error), (130, "espalier: interrupted\n"))
        self.assertIn("interrupted: these are the figures until then", out)

    def test_a_key_is_asked_for(self):
        self.refused(bench("--url", self.server.url), "does not let us in (status 401)", 2)
        self.refused(bench("--url", self.server.url, "--api-key", "other"), "(status 401)", 2)

    def test_files_that_exist_are_kept(self):
        file = self.folder / "load.json"
        file.write_text("mine")
        self.refused(self.bench("--json", file), "the file exists", 2)
        self.refused(self.bench("--chart", file), "the file exists", 2)
        self.assertEqual(file.read_text(), "mine")

    def test_what_cannot_be_measured_is_one_line(self):
        self.refused(bench("--url", "http://127.0.0.1:1"), "cannot be reached", 1)
        self.refused(self.bench("--against", "http://127.0.0.1:1"), "http://127.0.0.1:1: the server cannot be reached", 1)
        self.refused(self.bench("--prompts", self.folder / "none.jsonl"), "none.jsonl", 2)
        self.refused(self.bench("--users", "65"), "--users", 2)
        self.refused(self.bench("--users", "2", "--rate", "1"), "--rate: not with --users", 2)
        self.refused(self.bench("--speculation", "nobody", "--users", "1"), "speculation", 1)

    def test_servers_that_lie_are_one_line(self):
        for answer, message in ((500, "status 500: \"no\""), ("data: hello\n\n", "no JSON object"), ("{}", "no event stream"),
                                ('data: {"choices":[{"delta":{"content":"a"}}]}\n\n', "ended before the answer")):
            server = lying_server(answer)
            self.refused(bench("--url", f"http://127.0.0.1:{server.server_port}"), message, 1)
            server.shutdown()
            server.server_close()


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
