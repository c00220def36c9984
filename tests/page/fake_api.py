"""A server with the page and an API whose answers are known: what the page needs of `espalier serve`, in the form that
src/serve/protocol/ gives it. What a question says decides how it is answered (ANSWERS, and the words slow, error, lost, refused, short)."""

import http.server
import json
import re
import threading
import time

ESSAY = ("An espalier is a tree that is trained to grow flat against a wall. Each branch is tied to a wire while it is young, and what "
         "grows in another direction is cut. A wall that faces south keeps the warmth of the day, so the fruit ripens early, and a flat tree "
         "needs little room. The idea is old: Roman gardeners knew it, and in the kitchen gardens of the seventeenth century it became an art.\n\n"
         "Apples and pears are the easiest. Plant them half a metre apart, tie the leader to the lowest wire, and be patient: the first tier takes a year.")
CODE = ("Here is a function that reverses a list:\n\n```python\ndef reverse(items):\n    \"\"\"The items, last one first.\"\"\"\n"
        "    return [items[i] for i in range(len(items) - 1, -1, -1)]\n```\n\nIt makes a new list; `items` stays as it was.")
HELD_AT = 24  # the event behind which an answer may stand still
HOSTILE = "</script><img src=x onerror=\"window.broken=1\"> & <b>bold</b> \u202e \"quoted\" \\ back"
BYTES = "na\u00efve \U0001f333\U0001f333 \u6728\u306e\u8449 end"
MANY = " ".join(f"word{i}" for i in range(150))
ANSWERS = {"code": CODE, "hostile": HOSTILE, "bytes": BYTES, "many": MANY}
RECEIPT = ('{"espalier_receipt":1,"fingerprint":{"model":"' + "a" * 64 + '","kv":"f16"},"context":4096,'
           '"options":{"temperature":0.0,"presence_penalty":0.0,"seed":"18446744073709551615","stop":["}\\"{"]},"sha256":"' + "b" * 64 + '"}')
PROPS = {"default_generation_settings": {"n_ctx": 8192, "params": {"temperature": 0.2}}, "total_slots": 8, "model_alias": "SmolLM2-135M-Instruct",
         "model_path": "smollm2-135m.gguf", "chat_template": "", "build_info": "0.1.0 (test)", "fingerprint": "b0123456789abcdef",
         "batch_invariant": True, "drafters": ["eagle3", "ngram"], "system_message": "Be brief."}


def tokens_of(text):
    """Bytes of tokens: words with the space before them; what is no ASCII falls apart into its bytes."""
    tokens = []
    for word in re.findall(r" ?\w+|\s|[^\w\s]", text):
        tokens += [word.encode()] if word.isascii() else [bytes([byte]) for byte in word.encode()]
    return tokens


def shown(token):
    return token.decode(errors="replace")


class Step:
    """What a round gives: tokens that were accepted, then the teacher's own; and its tree."""

    def __init__(self, number, root, given):
        self.given = given
        parent, text, score, accepted = [0], [shown(root)], [0.0], [True]
        for depth, token in enumerate(given[:-1]):
            parent.append(depth and depth_row)
            depth_row = len(text)
            text.append(shown(token))
            score.append(-0.2 * (depth + 1))
            accepted.append(True)
        for extra in range(number % 5):  # guesses in vain
            parent.append(extra % len(text))
            text.append([" vine", "\n", " wall", " \u00e4ste"][extra % 4])
            score.append(score[parent[-1]] - 1.1 - extra / 3)
            accepted.append(False)
        self.json = {"parent": parent, "token": list(range(len(text))), "text": text, "score": score, "accepted": accepted, "drawn": 7}
        self.guesses = len(text) - 1


def steps_of(text):
    tokens = tokens_of(text)
    steps, at, root = [], 1, tokens[0]
    while at < len(tokens):
        given = tokens[at:at + 1 + [2, 0, 3, 1][len(steps) % 4]]
        steps.append(Step(len(steps), root, given))
        at += len(given)
        root = given[-1]
    return tokens[0], steps


def drafted_texts(text):
    """The texts that a page should shade."""
    _, steps = steps_of(text)
    return [b"".join(step.given[:-1]).decode(errors="replace") for step in steps if len(step.given) > 1]


class Stream:
    """The events of an answer."""

    def __init__(self, text):
        self.first, self.steps = steps_of(text)
        self.tokens = self.drafted = self.accepted = 0

    def event(self, choice, **more):
        return "data: " + json.dumps({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": "b0",
                                      "choices": choice, "usage": None, **more}, ensure_ascii=False) + "\n\n"

    def delta(self, text, rounds, complete):
        self.tokens += complete
        choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None, "token_ids": [5] * complete, "rounds": rounds}
        return self.event([choice], timings=self.timings())

    def timings(self):
        return {"cache_n": 12, "prompt_n": 9, "prompt_ms": 20.0, "predicted_n": self.tokens, "predicted_ms": 5.0 * self.tokens,
                "predicted_per_second": 200.0 + self.tokens / 7, "draft_n": self.drafted, "draft_n_accepted": self.accepted}

    def begin(self):
        yield self.event([{"index": 0, "delta": {"role": "assistant", "content": None}, "logprobs": None, "finish_reason": None}])
        yield ": a comment\n\n"

    def body(self):
        """Bytes that are no whole character wait, and the tokens and rounds with them."""
        held, count, rounds = self.first, 1, []
        for step in [None, *self.steps]:
            if step:
                held += b"".join(step.given)
                count += len(step.given)
                rounds.append(step.json)
                self.drafted += step.guesses
                self.accepted += len(step.given) - 1
            whole = len(held.decode(errors="ignore").encode())
            if held[:whole].decode(errors="strict") and whole == len(held):
                yield self.delta(held.decode(), rounds, count)
                held, count, rounds = b"", 0, []
        if held:
            yield self.delta(held.decode(errors="replace"), rounds, count)

    def end(self, seed, receipt, reason):
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason, "stop_reason": None, "token_ids": [2], "rounds": []}
        event = self.event([choice], seed=seed, timings=self.timings())
        if receipt:  # as bytes, since Python would write its numbers anew
            event = event.replace('"stop_reason"', '"receipt":' + RECEIPT + ', "stop_reason"')
        yield event
        yield self.event([]).replace('"usage": null', '"usage": ' + json.dumps(
            {"prompt_tokens": 21, "completion_tokens": self.tokens, "total_tokens": 21 + self.tokens, "prompt_tokens_details": {"cached_tokens": 12}}))
        yield "data: [DONE]\n\n"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, kind):
        self.reply(status, {"error": {"message": message, "type": kind, "param": None, "code": None}})

    def allowed(self):
        return self.server.key in (None, self.headers.get("Authorization", "").removeprefix("Bearer "))

    def do_GET(self):
        if self.path == "/":
            return self.reply(200, self.server.page, "text/html; charset=utf-8", Content_Security_Policy=self.server.policy)
        if self.path != "/props":
            return self.refuse(404, "no such path", "not_found_error")
        if self.server.loading > 0:
            self.server.loading -= 1
            return self.refuse(503, "the model is being loaded", "unavailable_error")
        if not self.allowed():
            return self.refuse(401, "the API key is wrong", "authentication_error")
        self.reply(200, self.server.props)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if not self.allowed():
            return self.refuse(401, "the API key is wrong", "authentication_error")
        self.server.bodies.append(body)
        request = json.loads(body)
        question = request["messages"][-1]["content"]
        if "refused" in question:
            return self.refuse(400, "messages: 9000 tokens do not fit into 8192 positions", "exceed_context_size_error")
        try:
            self.stream(question, request)
        except (BrokenPipeError, ConnectionResetError):
            self.server.gone.set()
            self.close_connection = True

    def stream(self, question, request):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        answer = Stream(next((text for word, text in ANSWERS.items() if word in question), ESSAY))
        self.send(*answer.begin())
        for i, event in enumerate(answer.body()):
            self.send(event, tiny="bytes" in question)
            if i == HELD_AT:
                self.server.goes_on.wait(60)
            if "slow" in question and i == 12:
                return self.wait_until_gone()
            if "error" in question and i == 6:
                error = {"error": {"message": "the device has failed; request chatcmpl-1", "type": "server_error", "param": None, "code": None}}
                return self.send("data: " + json.dumps(error) + "\n\ndata: [DONE]\n\n", last=True)
            if "lost" in question and i == 6:
                self.close_connection = True
                return self.connection.close()
        self.send(*answer.end(request.get("seed", 4711), request.get("receipt"), "length" if "short" in question else "stop"), last=True)

    def send(self, *events, tiny=False, last=False):
        data = "".join(events).encode()
        for begin in range(0, len(data), 1 if tiny else 997):
            part = data[begin:begin + (1 if tiny else 997)]
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if last:
            self.wfile.write(b"0\r\n\r\n")

    def wait_until_gone(self):
        for _ in range(600):
            self.send(": still here\n\n")
            time.sleep(0.05)


class FakeServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, page, policy):
        super().__init__(("127.0.0.1", 0), Handler)
        self.page, self.policy = page, policy
        self.gone = threading.Event()
        self.goes_on = threading.Event()  # cleared by a test: answers stand still in their midst
        self.reset()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def reset(self):
        self.key, self.loading, self.props, self.bodies = None, 0, dict(PROPS), []
        self.gone.clear()
        self.goes_on.set()

    def handle_error(self, *_):  # clients that go away are part of the tests
        pass

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"
