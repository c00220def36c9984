"""The server as clients meet it: python3 tests/server_test.py build/bin/espalier

Starts the real program on tiny models of tests/data, on a port of the system's choice, and talks to it over sockets with
nothing but the standard library."""

import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = str(DATA / "tiny" / "llama3.gguf")  # babbles, but reproducibly; has a chat template
CACHE = tempfile.TemporaryDirectory()
SLOW = ["--mode", "reference", "--draft", "none"]  # milliseconds for a token: an answer lasts until somebody ends it
PLACE = tempfile.TemporaryDirectory()  # where it is started: a dump would lie here
# As programs do, as they do when they crash, and as those do that have said all they had to say.
LEAVING = (lambda client: client.close(), lambda client: reset(client), lambda client: client.shutdown(socket.SHUT_WR))


def reset(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def environment(**more):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
    return {**variables, "XDG_CACHE_HOME": CACHE.name, **more}


def run(*flags, **variables):
    return subprocess.run([str(ESPALIER), "serve", *flags], text=True, capture_output=True, timeout=60, cwd=PLACE.name,
                          env=environment(**variables))


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, dict(response.getheaders()), response.read().decode()

    @property
    def json(self):
        return json.loads(self.body)

    def events(self):
        """What stands behind data: in an event stream, in order; checks that the stream is whole."""
        blocks = self.body.split("\n\n")
        assert blocks[-1] == "", self.body[-200:]
        lines = [block for block in blocks[:-1] if block != ":"]
        assert all(line.startswith("data: ") and "\n" not in line for line in lines), self.body[:200]
        assert lines[-1] == "data: [DONE]", lines[-1]
        return [json.loads(line[len("data: "):]) for line in lines[:-1]]


class Server:
    """A running server, until the end of the block. Its end is then asked for, and has to be a good one."""

    def __init__(self, *flags, model=MODEL, key=None, **variables):
        self.key = key
        threads = [] if "--threads" in flags else ["--threads", "1"]
        self.process = subprocess.Popen([str(ESPALIER), "serve", "--model", model, "--port", "0", *threads, *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PLACE.name,
                                        env=environment(**variables))
        self.lines = []
        started = threading.Event()
        self.reader = threading.Thread(target=self.read_lines, args=(started,), daemon=True)
        self.reader.start()
        if not started.wait(60) or not self.start_line:
            self.process.kill()
            self.reader.join()
            raise AssertionError(f"the server did not start: {self.lines}")
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", self.start_line).group(1))

    def read_lines(self, started):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if " at http://" in line:
                started.set()
        started.set()

    @property
    def start_line(self):
        return next((line for line in self.lines if " at http://" in line), "")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        code = self.stop() if self.process.poll() is None else self.process.returncode
        if kind is None:
            assert code == 0, (code, self.lines)

    def stop(self, number=signal.SIGTERM, timeout=60):
        self.process.send_signal(number)
        return self.wait(timeout)

    def wait(self, timeout=60):
        try:
            code = self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.reader.join()
            self.process.stdout.close()
            self.process.stderr.close()
        return code

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        given = dict(headers or {})
        if self.key:
            given["Authorization"] = f"Bearer {self.key}"
        if body is not None:
            given["Content-Type"] = "application/json"
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        try:
            connection.request(method, path, data, given)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def post(self, path, body, **more):
        return self.ask("POST", path, body, **more)

    def complete(self, **fields):
        return self.post("/v1/completions", fields)

    def chat(self, text, **fields):
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields})

    def open_stream(self, **fields):
        """A socket behind which many long answers are being streamed."""
        body = json.dumps({"prompt": "on and on", "max_tokens": 100_000, "ignore_eos": True, "stream": True, "n": 16, **fields})
        client = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        return client

    def wait_for(self, condition, what):
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, f"{what}: {self.get('/slots').body}"
            time.sleep(0.01)

    def busy_slots(self):
        return sum(slot["is_processing"] for slot in self.get("/slots").json)

    def metric(self, name):
        found = re.search(rf"^espalier_{re.escape(name)} (\S+)$", self.get("/metrics").body, re.MULTILINE)
        return float(found.group(1)) if found else 0.0


# Histograms of seconds.
TIMED = ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
         "request_queue_time_seconds", "step_seconds")


def joined(events):
    """The choices of a stream as a response without one would have them."""
    choices = {}
    for event in events:
        for delta in event["choices"]:
            choice = choices.setdefault(delta["index"], {"text": "", "logprobs": None, "finish_reason": None, "token_ids": []})
            message = delta.get("delta", delta)
            choice["text"] += message.get("content") or message.get("text") or ""
            choice["finish_reason"] = delta["finish_reason"] or choice["finish_reason"]
            choice["token_ids"] += delta.get("token_ids") or []
            if delta.get("logprobs"):
                kept = choice["logprobs"] = choice["logprobs"] or {}
                for name, values in delta["logprobs"].items():
                    kept[name] = kept.get(name, []) + values if isinstance(values, list) else values
    return [choices[index] for index in sorted(choices)]


def whole(choices):
    return [{"text": choice["message"]["content"] if "message" in choice else choice["text"],
             "logprobs": choice["logprobs"] or None, "finish_reason": choice["finish_reason"],
             "token_ids": choice.get("token_ids") or []} for choice in choices]


class Endpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--alias", "tiny", "--metrics", "--parallel", "4", "--context", "512", "--draft", "ngram",
                            "--temperature", "0.8", "--seed", "3", "--system", "Be brief.")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.lines
        assert len(cls.server.lines) == 1, cls.server.lines

    def test_one_line_says_what_was_started(self):
        self.assertRegex(self.server.start_line, r"^espalier: tiny at http://127\.0\.0\.1:\d+: on cpu, 4 answers at once, \d+ KV "
                                                 r"positions, contexts of 512, drafts by ngram, no API key$")

    def test_it_says_what_it_is(self):
        get = self.server.get
        self.assertEqual(get("/health").json, {"status": "ok"})
        self.assertEqual(get("/v1/health").status, 200)
        for path in ("/v1/models", "/models"):
            model, = get(path).json["data"]
            self.assertEqual((model["id"], model["owned_by"], model["meta"]["n_ctx"]), ("tiny", "espalier", 512))
        self.assertEqual(get("/v1/models/tiny").json["id"], "tiny")
        self.assertEqual(get("/v1/models/other").status, 404)
        props = get("/props").json
        self.assertEqual((props["total_slots"], props["model_path"], props["drafters"], props["tree"],
                          props["batch_invariant"]), (4, "llama3.gguf", ["ngram"], "dynamic", True))
        self.assertEqual(props["system_message"], "Be brief.")
        self.assertNotIn("Be brief.", self.server.post("/apply-template", {"messages": [{"role": "user", "content": "hi"}]}).body)
        self.assertAlmostEqual(props["default_generation_settings"]["params"]["temperature"], 0.8, 6)
        self.assertEqual(len(get("/slots").json), 4)
        info = get("/tokenizer_info").json
        self.assertEqual(self.server.post("/tokenize", {"prompt": info["eos_token"]}).json["tokens"][-1:],
                         self.server.post("/tokenize", {"content": info["eos_token"]}).json["tokens"])
        self.assertEqual(info["chat_template"], props["chat_template"])
        self.assertEqual(get("/slots?fail_on_no_slot=1").status, 200)
        self.assertIn("version", get("/version").json)
        self.assertEqual(get("/openapi.json").json["openapi"][:3], "3.1")
        page = get("/")
        self.assertEqual((page.status, page.headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'none'", page.headers["Content-Security-Policy"])

    def test_a_path_or_a_method_that_is_not_there_is_said(self):
        self.assertEqual(self.server.get("/v1/embeddings").status, 404)
        wrong = self.server.get("/v1/chat/completions")
        self.assertEqual((wrong.status, wrong.headers["Allow"]), (405, "POST"))
        head = self.server.ask("HEAD", "/health")
        self.assertEqual((head.status, head.body), (200, ""))

    def test_texts_become_tokens_and_back(self):
        tokens = self.server.post("/tokenize", {"content": "hello there"}).json["tokens"]
        self.assertEqual(self.server.post("/detokenize", {"tokens": tokens}).json["content"], "hello there")
        messages = {"messages": [{"role": "user", "content": "hi"}]}
        prompt = self.server.post("/apply-template", messages).json["prompt"]
        self.assertIn("hi", prompt)
        counted = self.server.post("/v1/chat/completions/input_tokens", messages).json["input_tokens"]
        self.assertEqual(counted, self.server.chat("hi", max_tokens=1).json["usage"]["prompt_tokens"])

    def test_a_response_has_what_clients_look_for(self):
        answer = self.server.chat("hello", max_tokens=8)
        body = answer.json
        self.assertEqual((answer.status, body["object"], body["model"], body["seed"]), (200, "chat.completion", "tiny", 3))
        self.assertTrue(body["id"].startswith("chatcmpl-"))
        self.assertEqual(answer.headers["X-Request-Id"], body["id"])
        self.assertEqual(body["choices"][0]["message"]["role"], "assistant")
        usage = body["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        self.assertEqual(body["system_fingerprint"], self.server.get("/props").json["fingerprint"])
        self.assertEqual(body["timings"]["predicted_n"], usage["completion_tokens"])
        again = self.server.chat("hello", max_tokens=8).json
        self.assertEqual(again["choices"], body["choices"])
        self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_a_stream_says_what_a_response_without_one_says(self):
        common = {"max_tokens": 24, "seed": 5, "n": 2, "return_token_ids": True}
        for fields in ({"prompt": "once upon", "logprobs": 3, "echo": True}, {"prompt": ["once", "twice"]},
                       {"prompt": "once upon a time", "stop": ["e"], "temperature": 0}, {"prompt": "x", "logprobs": 0}):
            plain = self.server.complete(**common, **fields).json
            stream = self.server.complete(**common, **fields, stream=True)
            self.assertTrue(stream.headers["Content-Type"].startswith("text/event-stream"), stream.body)
            events = stream.events()
            self.assertEqual(joined(events), whole(plain["choices"]), fields)
            self.assertEqual({event["id"] for event in events}, {stream.headers["X-Request-Id"]})
        plain = self.server.chat("hello", **common, logprobs=True, top_logprobs=2).json
        stream = self.server.chat("hello", **common, logprobs=True, top_logprobs=2, stream=True,
                                  stream_options={"include_usage": True})
        events = stream.events()
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": None})
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"]["completion_tokens"], plain["usage"]["completion_tokens"])
        self.assertEqual(joined(events), whole(plain["choices"]))

    def test_the_choices_of_a_request_have_seeds_of_their_own(self):
        body = self.server.complete(prompt="once", n=3, max_tokens=12, seed=9, return_token_ids=True).json
        first = self.server.complete(prompt="once", max_tokens=12, seed=9, return_token_ids=True).json
        self.assertEqual(body["choices"][0]["token_ids"], first["choices"][0]["token_ids"])
        self.assertGreater(len({tuple(choice["token_ids"]) for choice in body["choices"]}), 1)

    def test_receipts_verify(self):
        for answer in (self.server.chat("hello", max_tokens=16, receipt=True), self.server.complete(prompt="once", receipt=True),
                       self.server.complete(prompt="once", receipt=True, n=2, seed=77, stop=["q"], temperature=0.3)):
            file = Path(PLACE.name) / "response.json"
            file.write_text(answer.body)
            result = subprocess.run([str(ESPALIER), "verify", "--model", MODEL, str(file)], text=True, capture_output=True,
                                    env=environment(), timeout=60)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            file.unlink()

    def test_wrong_requests_are_told_what_is_wrong(self):
        for path, body, status, expected in (
                ("/v1/chat/completions", "{", 400, "byte"), ("/v1/chat/completions", {"messages": []}, 400, "messages"),
                ("/v1/completions", {"prompt": "x", "temperature": 7}, 400, "temperature"),
                ("/v1/completions", {"prompt": "x", "priority": 3}, 400, "priority"),
                ("/v1/completions", {"prompt": "x", "speculation": {"draft": "eagle3"}}, 400, "speculation.draft"),
                ("/v1/completions", {"prompt": "word " * 4000}, 400, "prompt"), ("/tokenize", {}, 400, "content")):
            answer = self.server.post(path, body)
            self.assertEqual(answer.status, status, answer.body)
            self.assertIn(expected, answer.json["error"]["message"])
            self.assertEqual(set(answer.json["error"]) & {"message", "type", "param", "code"},
                             {"message", "type", "param", "code"})
        long = self.server.complete(prompt="word " * 4000).json["error"]
        self.assertEqual((long["type"], long["n_ctx"]), ("exceed_context_size_error", 512))

    def test_metrics_count(self):
        before = self.server.metric("generation_tokens_total")
        body = self.server.complete(prompt="abc abc abc", max_tokens=40, ignore_eos=True, temperature=0).json
        self.assertEqual(body["usage"]["completion_tokens"], 40)
        self.server.wait_for(lambda: self.server.metric("generation_tokens_total") >= before + 40, "tokens are counted")
        text = self.server.get("/metrics")
        self.assertTrue(text.headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        for line in text.body.splitlines():
            self.assertRegex(line, r"^(# (HELP|TYPE) espalier_\w+ .+|espalier_\w+(\{[^}]*\})? \S+)$")
        self.assertGreater(self.server.metric('request_success_total{finished_reason="length"}'), 0)
        for name in TIMED:
            self.assertGreater(self.server.metric(f"{name}_count"), 0, name)


class Ascend(unittest.TestCase):
    """On the recording fake of the API."""

    def test_answers_have_no_times_and_no_rule_is_broken(self):
        report = Path(PLACE.name) / "fake_report"
        self.addCleanup(report.unlink, missing_ok=True)
        library = ESPALIER.resolve().parent.parent / "tests" / "ascend_fake" / "libascend_fake.so"
        with Server("--device", "ascend", "--allow-batch-variance", "--metrics", "--parallel", "2", "--context", "256",
                    "--draft", "ngram", ESPALIER_ASCEND_LIBRARY=str(library), ASCEND_FAKE_REPORT=str(report)) as server:
            body = server.complete(prompt="abc abc abc", max_tokens=12, ignore_eos=True, temperature=0).json
            self.assertEqual(body["usage"]["completion_tokens"], 12)
            times = [value for name, value in body["timings"].items() if name.endswith(("_ms", "_per_second"))]
            self.assertEqual((len(times), set(times)), (6, {0}))
            server.wait_for(lambda: server.metric("generation_tokens_total") == 12, "tokens are counted")
            for name in TIMED:
                self.assertEqual(server.metric(f"{name}_count"), 0, name)
        found = [line for line in report.read_text().splitlines() if line.startswith(("violation", "alive"))]
        self.assertEqual(found, [])


class Equality(unittest.TestCase):
    """What many get at once, from a small pool, with caches and drafters, is what each gets alone."""

    def requests(self, count, seed):
        choose = random.Random(seed)
        beginnings = ["the quick brown fox ", "one two three four five six seven " * 4, "", "abc abc abc abc "]
        for i in range(count):
            fields = {"prompt": choose.choice(beginnings) + choose.choice(["x", "jumps", "and so on"]), "seed": i,
                      "max_tokens": choose.randint(1, 40), "temperature": choose.choice([0, 0.7, 1.3]),
                      "return_token_ids": True, "ignore_eos": choose.random() < 0.5}
            for name, value in (("top_p", 0.8), ("repetition_penalty", 1.2), ("presence_penalty", 0.5), ("logprobs", 2),
                                ("echo", True), ("n", 3), ("stop", ["e", "th"]), ("min_tokens", 1), ("top_k", 40)):
                if choose.random() < 0.25:
                    fields[name] = value
            extra = choose.choice([{}, {}, {"speculation": {"draft": "ngram"}}, {"speculation": {"nodes": 3}},
                                   {"speculation": False}, {"cache_prompt": False}, {"prediction": {
                                       "type": "content", "content": "the quick brown fox jumps"}}])
            yield fields, extra

    @staticmethod
    def told(answer):
        body = answer.json
        assert answer.status == 200, body
        return {"choices": body["choices"], "fingerprint": body["system_fingerprint"], "seed": body["seed"],
                "usage": {name: body["usage"][name] for name in ("prompt_tokens", "completion_tokens")}}

    def test_company_cache_and_drafts_change_nothing(self):
        asked = list(self.requests(24, seed=19))
        common = ["--context", "128"]
        alone = []
        for fields, _ in asked:
            with Server(*common, "--parallel", "1", "--draft", "none") as fresh:
                alone.append(self.told(fresh.complete(**fields, cache_prompt=False, speculation=False)))
        for users, parallel, memory in ((1, 8, "1M"), (4, 1, "1M"), (8, 4, "320K"), (16, 16, "1M")):
            with Server(*common, "--parallel", str(parallel), "--kv-memory", memory, "--draft",
                        "ngram+hostile", "--queue", "200") as server, \
                    concurrent.futures.ThreadPoolExecutor(users) as pool:
                asking = [pool.submit(server.complete, **fields, **extra) for fields, extra in asked]
                for expected, answer, (fields, extra) in zip(alone, asking, asked):
                    self.assertEqual(self.told(answer.result()), expected, (users, parallel, fields, extra))

    def test_streams_and_leaving_neighbours_change_nothing(self):
        asked = list(self.requests(10, seed=20))
        with Server("--context", "128", "--parallel", "4", "--draft", "ngram", "--queue", "200") as server:
            expected = [self.told(server.complete(**fields)) for fields, _ in asked]
            with concurrent.futures.ThreadPoolExecutor(8) as pool, contextlib.ExitStack() as stack:
                asking = []
                for i, (fields, extra) in enumerate(asked):
                    if i % 2 == 0:
                        stack.enter_context(server.open_stream()).close()
                    asking.append(pool.submit(server.complete, **fields, **extra, stream=True))
                for told, answer in zip(expected, asking):
                    self.assertEqual(joined(answer.result().events()), whole(told["choices"]))


class Limits(unittest.TestCase):
    def test_a_client_that_leaves_frees_its_place(self):
        with Server(*SLOW, "--metrics", "--parallel", "1") as server:
            held = server.metric('kv_blocks{state="held"}')  # this mode sets some aside
            left = 0
            for ends, stream in itertools.product(LEAVING, (True, False)):
                with server.open_stream(stream=stream) as client:
                    server.wait_for(lambda: server.busy_slots() == 1, "it runs")
                    ends(client)
                    server.wait_for(lambda: server.busy_slots() == 0, "its place is free")
                left += 1
                self.assertEqual(server.metric("requests_cancelled_total"), left)
            self.assertEqual(server.metric('kv_blocks{state="held"}'), held)

    def test_a_client_that_leaves_the_queue_touches_nobody(self):
        with Server(*SLOW, "--metrics", "--parallel", "1") as server:
            with server.open_stream(n=1) as running:
                self.assertIn(b"200 OK", running.recv(100))
                for left, (ends, stream) in enumerate(itertools.product(LEAVING, (True, False))):
                    with server.open_stream(stream=stream) as waiting:
                        server.wait_for(lambda: server.metric("num_requests_waiting") == 1, "it waits")
                        ends(waiting)
                        server.wait_for(lambda: server.metric("num_requests_waiting") == 0, "it has left")
                    self.assertEqual(server.metric("requests_cancelled_total"), left + 1)
                    self.assertEqual(server.busy_slots(), 1)
                self.assertTrue(running.recv(1 << 16))

    def test_a_client_that_leaves_a_server_that_ends_is_not_waited_for(self):
        for ends in LEAVING:
            with Server(*SLOW, "--parallel", "1", "--drain-seconds", "300") as server, server.open_stream() as running:
                self.assertIn(b"200 OK", running.recv(100))
                server.wait_for(lambda: server.busy_slots() == 1, "it runs")
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
                self.assertIsNone(server.process.poll())
                ends(running)
                self.assertEqual(server.wait(60), 0, server.lines)

    def test_a_full_queue_says_when_to_come_back(self):
        with Server(*SLOW, "--parallel", "1", "--queue", "1") as server:
            with server.open_stream() as running, contextlib.ExitStack() as stack:
                self.assertIn(b"200 OK", running.recv(100))
                waiting = stack.enter_context(server.open_stream())
                self.assertIn(b"200 OK", waiting.recv(100))  # after a second in the queue
                full = server.complete(prompt="x")
                self.assertEqual((full.status, full.json["error"]["type"]), (503, "unavailable_error"))
                self.assertTrue(1 <= int(full.headers["Retry-After"]) <= 30)
                self.assertEqual(server.get("/slots?fail_on_no_slot=1").status, 503)
                self.assertEqual(server.get("/health").status, 200)

    def test_whoever_comes_in_a_burst_is_answered_or_told_when_to_come_back(self):
        with Server("--parallel", "1", "--queue", "2") as server, concurrent.futures.ThreadPoolExecutor(24) as clients:
            answers = list(clients.map(lambda _: server.complete(prompt="x" * 200, max_tokens=8), range(24)))
            told = {answer.status for answer in answers}
            self.assertLessEqual(told, {200, 503}, [answer.body for answer in answers if answer.status == 500][:1])
            for refused in (answer for answer in answers if answer.status == 503):
                self.assertTrue(1 <= int(refused.headers["Retry-After"]) <= 30)

    def test_a_prompt_is_computed_once_for_all_choices_that_have_it_back(self):
        with Server("--metrics", "--draft", "none") as server:
            fields = {"prompt": list(range(5, 105)), "max_tokens": 2, "n": 4, "echo": True, "logprobs": 1, "seed": 3}
            choices = server.complete(**fields).json["choices"]
            self.assertEqual(len({json.dumps(choice["logprobs"]["token_logprobs"][:100]) for choice in choices}), 1)
            self.assertGreater(server.metric("prompt_tokens_cached_total"), 250)

    def test_waiting_and_answering_have_their_time(self):
        with Server(*SLOW, "--parallel", "1", "--queue-timeout", "0.3", "--request-timeout", "1.5") as server:
            with server.open_stream() as running:
                self.assertIn(b"200 OK", running.recv(100))
                late = server.complete(prompt="x")
                self.assertEqual((late.status, "Retry-After" in late.headers), (503, True))
                told = b""
                while chunk := running.recv(1 << 16):
                    told += chunk
                    if b"[DONE]" in told:
                        break
                self.assertIn(b'"timeout_error"', told)
            late = server.complete(prompt="x", max_tokens=100_000, ignore_eos=True, n=16)
            self.assertEqual((late.status, late.json["error"]["type"]), (408, "timeout_error"))

    def test_keys_open_the_server_and_nothing_else_does(self):
        with Server("--api-key", "first", "--api-key", "second", "--metrics", "--public-metrics", "--max-per-key", "1",
                    key="second") as server:
            self.assertIn("2 API keys", server.start_line)
            self.assertEqual(server.complete(prompt="x").status, 200)
            self.assertEqual(server.get("/props", headers={"X-Api-Key": "first"}).status, 200)
            server.key = "wrong"
            self.assertEqual(server.complete(prompt="x").status, 401)
            self.assertEqual((server.get("/health").status, server.get("/metrics").status, server.get("/").status),
                             (200, 200, 200))
            self.assertEqual(server.get("/v1/models").status, 401)
        with Server(ESPALIER_API_KEY="of-the-environment") as server:
            self.assertEqual(server.get("/v1/models").status, 401)
            server.key = "of-the-environment"
            self.assertEqual(server.get("/v1/models").status, 200)
            self.assertFalse(any("of-the-environment" in line for line in server.lines))

    def test_what_one_key_computed_another_does_not_find(self):
        prompt = "a prompt of many words, " * 8
        for flags, shared in (([], False), (["--cache-scope", "shared"], True)):
            with Server("--api-key", "first", "--api-key", "second", *flags) as server:
                cached = []
                for server.key in ("first", "first", "second"):
                    usage = server.complete(prompt=prompt, max_tokens=1).json["usage"]
                    cached.append(usage["prompt_tokens_details"]["cached_tokens"] > 0)
                self.assertEqual(cached, [False, True, shared])

    def test_endpoints_can_be_switched_off(self):
        with Server("--no-slots", "--no-ui", "--strict-model", "--alias", "me", "--priorities") as server:
            self.assertEqual((server.get("/slots").status, server.get("/metrics").status, server.get("/").status),
                             (501, 501, 404))
            self.assertEqual(server.complete(prompt="x", model="other").status, 404)
            self.assertEqual(server.complete(prompt="x", model="me", priority=-3).status, 200)

    def test_a_small_memory_cuts_the_context_and_says_so(self):
        with Server("--kv-memory", "250K") as server:
            self.assertEqual(len(server.lines), 2)
            self.assertRegex(server.lines[0], r"^espalier: the context is \d+ positions instead of 512: --kv-memory")
            context = server.get("/props").json["default_generation_settings"]["n_ctx"]
            self.assertLess(context, 512)
            self.assertEqual(server.complete(prompt="x", max_tokens=4000, ignore_eos=True).json["choices"][0]["finish_reason"],
                             "length")


class Ends(unittest.TestCase):
    def started(self, *flags):
        server = Server(*flags)
        self.addCleanup(server.process.kill)
        return server

    def test_the_end_under_load_truncates_no_answer(self):
        server = self.started(*SLOW, "--parallel", "2", "--drain-seconds", "30")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            def ask(i):
                try:
                    answer = server.complete(prompt=f"number {i}", max_tokens=200, ignore_eos=True, stream=i % 2 == 1)
                except ConnectionError:  # it came when nobody listened any more
                    return "refused"
                if answer.headers["Content-Type"].startswith("text/event-stream"):
                    return "error" if "error" in answer.events()[-1] else "whole"
                return ("whole" if answer.status == 200 else answer.json["error"]["type"])
            asking = [pool.submit(ask, i) for i in range(8)]
            server.wait_for(lambda: server.busy_slots() == 2, "two run")
            began = time.monotonic()
            code = server.stop()
            outcomes = [one.result() for one in asking]
        self.assertEqual(code, 0, server.lines)
        self.assertLess(time.monotonic() - began, 30)
        self.assertGreaterEqual(outcomes.count("whole"), 1, outcomes)
        self.assertLessEqual(set(outcomes), {"whole", "unavailable_error", "error", "refused"})

    def test_who_is_not_done_in_time_gets_an_error_and_the_exit_says_so(self):
        server = self.started(*SLOW, "--drain-seconds", "0.3", "--parallel", "1")
        with server.open_stream() as client:
            self.assertIn(b"200 OK", client.recv(100))
            server.wait_for(lambda: server.busy_slots() == 1, "it runs")
            server.process.send_signal(signal.SIGINT)
            told = b""
            while chunk := client.recv(1 << 16):
                told += chunk
        self.assertIn(b"shutting down", told)
        self.assertIn(b"[DONE]", told)
        self.assertEqual(server.wait(), 1)

    def test_whoever_reads_slowly_gets_the_whole_answer_before_the_end(self):
        body = json.dumps({"content": "x" * 1_500_000}).encode()
        with Server() as server, socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(60)
            client.connect(("127.0.0.1", server.port))
            client.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            came = client.recv(1000)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(4)  # longer than a server waits that has nothing to do
            while chunk := client.recv(1 << 20):
                came += chunk
            head, _, answer = came.partition(b"\r\n\r\n")
            self.assertEqual(len(answer), int(re.search(rb"Content-Length: (\d+)", head, re.IGNORECASE).group(1)))
            self.assertEqual(server.wait(60), 0, server.lines)

    def test_half_a_request_does_not_hold_up_the_end(self):
        server = self.started()
        with socket.create_connection(("127.0.0.1", server.port)) as head, \
                socket.create_connection(("127.0.0.1", server.port)) as body:
            head.sendall(b"POST /v1/completions HT")
            body.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         b"Content-Length: 9\r\n\r\n{")
            server.wait_for(lambda: server.get("/health").status == 200, "both were read")
            self.assertEqual(server.stop(), 0, server.lines)

    def test_a_second_signal_ends_it_at_once(self):
        server = self.started(*SLOW, "--drain-seconds", "60", "--parallel", "1")
        with server.open_stream() as client:
            client.recv(100)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            began = time.monotonic()
            self.assertEqual(server.stop(timeout=10), 1)
            self.assertLess(time.monotonic() - began, 5)

    def test_a_signal_while_the_model_loads_ends_it_with_a_line(self):
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
            model, port = Path(folder, "model.gguf"), free.getsockname()[1]
            free.close()
            shutil.copy(MODEL, model)
            os.truncate(model, 1 << 36)  # nothing but a hole behind the tensors, but it takes long to hash
            process = subprocess.Popen([str(ESPALIER), "serve", "--model", str(model), "--port", str(port)],
                                       stderr=subprocess.PIPE, text=True, env=environment())
            self.addCleanup(process.kill)
            self.assertEqual(self.health(port), 503)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.communicate(timeout=60)[1], "espalier: ended before the model was loaded\n")
            self.assertEqual(process.returncode, 0)

    @staticmethod
    def health(port):
        """The status of /health, once somebody listens there."""
        for _ in range(600):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with contextlib.closing(connection), contextlib.suppress(ConnectionError):
                connection.request("GET", "/health")
                return connection.getresponse().status
            time.sleep(0.1)
        raise AssertionError("nobody listens")

    def test_wrong_flags_are_one_line_and_exit_2(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            for flags, expected in ((["--port", port], "port"), (["--host", "0.0.0.0", "--port", "0"], "--no-auth"),
                                    (["--model", "no/such.gguf", "--port", "0"], "no/such.gguf"),
                                    (["--model", str(Path(__file__)), "--port", "0"], "server_test.py"),
                                    (["--parallel", "0"], "--parallel"), (["--kv-memory", "lots"], "--kv-memory"),
                                    (["--kv-memory", "1", "--port", "0"], "--kv-memory"),
                                    (["--api-key", ""], "--api-key"), (["--api-key-file", "no-such"], "no-such"),
                                    (["--cors-origins", "example"], "--cors-origins"),
                                    (["--draft", "oracle", "--port", "0"], "oracle"), (["--public-metrics"], "--metrics"),
                                    (["--api-key", "k", "--no-auth", "--port", "0"], "--no-auth"),
                                    (["--date", "yesterday"], "yesterday"), (["--template-variables", "[]", "--port", "0"], "template variables"), (["--nonsense"], "--nonsense"),
                                    (["--temperature", "9"], "--temperature")):
                words = flags if "--model" in flags else ["--model", MODEL, *flags]
                result = run(*words)
                self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1),
                                 (flags, result.stderr))
                self.assertIn(expected, result.stderr)

    def test_nothing_is_left_behind(self):
        self.assertEqual(os.listdir(PLACE.name), [])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
