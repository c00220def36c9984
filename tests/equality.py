"""Equality over sockets: what many clients get at once, from a server whose memory is short, with its cache and all its
drafters, is byte for byte what each request gets alone.

    python3 tests/equality.py build/bin/espalier --model MODEL --requests 500

Draws requests (greedy and sampled, penalties, stops, n, echo, log-probabilities, drafters, shared beginnings, predictions,
streams; one in five leaves before its end), has each answered alone by a server without cache and speculation, then sends
them to servers of several sizes by several clients at once, and compares texts, ids, log-probabilities and finish reasons
as they were written. scripts/test-equality is the large run, equality_test.py a small one on a tiny model."""

import argparse
import concurrent.futures
import dataclasses
import json
import random
import re
import socket
import sys
import time
from pathlib import Path

import server_test
from server_test import Server, joined, whole

# Clients, --parallel, and where it stands the most nodes of a tree: where trees are small, more answers share the memory, and
# some have to give way.
CONFIGURATIONS = "1x1,4x4,8x4,16x1,16x16,8x16:4,16x16:4"
POOL_SHARE = 0.3  # of what --parallel of the longer requests need
BLOCK = 128
TEXT = ("The quick brown fox jumps over the lazy dog while seven wizards boil a kettle of green tea. One, two, three, four, "
        "five, six, seven. In the year 1984 a small town by the sea built a lighthouse; nobody knows why. def add(a, b): "
        "return a + b. The answer to the question is not what the question asked for, said the old man, and he laughed. ")


@dataclasses.dataclass
class Request:
    path: str
    fields: dict  # what the answer depends on
    speed: dict   # what it does not
    leaves: bool  # its client closes before the end

    @property
    def body(self):
        return {**self.fields, **self.speed}

    @property
    def streams(self):
        return self.fields.get("stream", False)


class Draw:
    """Random requests for a model."""

    def __init__(self, seed, tokens, drafters, chats, most_tokens):
        self.random = random.Random(seed)
        self.tokens, self.drafters, self.chats, self.most_tokens = tokens, drafters, chats, most_tokens

    def rarely(self, n):
        return self.random.randrange(n) == 0

    def prompt(self):
        """Ids that often begin like those of others, and end before the end of a block, which the answer then crosses."""
        choose = self.random
        length = choose.choice([choose.randint(1, 30), choose.randint(60, 80), *[choose.randint(BLOCK - 18, BLOCK - 6)] * 3])
        begin = choose.choice([0, 0, 7, choose.randrange(len(self.tokens)), choose.randrange(len(self.tokens))])
        ids = (self.tokens * 3)[begin:begin + length]
        return ids + [choose.choice(self.tokens) for _ in range(choose.randint(0, 4))]

    def messages(self):
        words = TEXT.split()
        turns = [{"role": "user", "content": " ".join(words[:self.random.randint(1, 20)])}]
        if self.rarely(3):
            turns += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": self.random.choice(words)}]
        return turns

    def request(self, number):
        choose = self.random
        chat = self.chats and self.rarely(4)
        most = self.most_tokens
        fields = {"seed": number, "max_tokens": choose.choice([choose.randint(1, most), most]), "return_token_ids": True,
                  "temperature": choose.choice([0, 0, 0.7, 1.2])}
        for name, value in (("top_p", 0.8), ("top_k", 40), ("min_p", 0.05), ("repetition_penalty", 1.2),
                            ("presence_penalty", 0.5), ("frequency_penalty", -0.3), ("min_tokens", min(3, fields["max_tokens"])),
                            ("ignore_eos", True),
                            ("logit_bias", {str(choose.choice(self.tokens)): 3.5}), ("n", choose.randint(2, 4)),
                            ("stop", choose.choice([["e "], ["the", "a"], [".", ", "]])), ("stream", True)):
            if self.rarely(4):
                fields[name] = value
        if chat:
            fields["messages"] = self.messages()
            if self.rarely(3):
                fields |= {"logprobs": True, "top_logprobs": choose.randint(0, 5)}
        else:
            fields["prompt"] = self.prompt()
            if self.rarely(3):
                fields["logprobs"] = choose.randint(0, 5)
            if self.rarely(5):
                fields["echo"] = True
        return Request("/v1/chat/completions" if chat else "/v1/completions", fields, {}, self.rarely(5))

    def add_speed(self, request, answer):
        """What may change nothing but the time; a prediction is the answer, or something like it."""
        choose = self.random
        drafts = [{"draft": name} for name in ["auto", "none", *self.drafters]]
        speculation = choose.choice([*drafts, False, {"nodes": choose.randint(1, 16)}, {"depth": 2}, {"tree": "chain"}])
        if self.rarely(2):
            request.speed["speculation"] = speculation
        if self.rarely(6):
            request.speed["cache_prompt"] = False
        if self.rarely(4):
            text = answer[0]["text"]
            request.speed["prediction"] = {"type": "content", "content": (text if self.rarely(2) else text[1:] + " and") or "x"}
        for name in ("timings_per_token", "rounds", "metrics"):
            if self.rarely(8):
                request.speed[name] = True


def exact(text):
    return json.loads(text, parse_float=str)  # numbers as they were written


def told(request, answer):
    """What must be equal, of a whole response."""
    assert answer.status == 200, (answer.status, answer.body[:300], request)
    if request.streams:
        return joined(events(answer))
    return whole(exact(answer.body)["choices"])


def events(answer):
    answer.events()  # checks the stream
    lines = [line[len("data: "):] for line in answer.body.split("\n\n") if line.startswith("data: ")]
    return [exact(line) for line in lines[:-1]]


def leave(server, request, choose):
    """Sends the request, reads some of the answer and closes. Gives the events that came whole, where it streams."""
    body = json.dumps(request.body).encode()
    head = (f"POST {request.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    came = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
        client.sendall(head + body)
        client.settimeout(choose.choice([0.001, 0.02, 0.1, 0.5]))
        most = choose.choice([0, 300, 2000, 10000])
        try:
            while len(came) < most and (chunk := client.recv(1024)):
                came += chunk
        except TimeoutError:
            pass
    whole_events = re.findall(rb"data: (\{.*\})\n\n", came)
    return joined([exact(event) for event in whole_events if b'"error"' not in event]) if request.streams else []


class Alone:
    """The answers to requests that had a server for themselves: every so many a fresh one."""

    def __init__(self, flags, model, each):
        self.flags, self.model, self.each = flags, model, each
        self.server, self.left = None, 0

    def answer(self, request):
        if self.left == 0:
            self.close()
            self.server = Server("--parallel", "1", "--draft", "none", *self.flags, model=self.model)
            self.left = self.each
        self.left -= 1
        return self.server.post(request.path, {**request.fields, "cache_prompt": False, "speculation": False})

    def close(self):
        if self.server:
            self.server.__exit__(None, None, None)
            self.server = None


@dataclasses.dataclass
class Tally:
    compared: int = 0
    left: int = 0
    tokens: int = 0
    differ: list = dataclasses.field(default_factory=list)
    preempted: int = 0
    cached: int = 0
    accepted: int = 0
    cancelled: int = 0
    seconds: float = 0

    def line(self):
        return (f"{self.compared} compared ({self.tokens} tokens), {self.left} left early ({self.cancelled} noticed), "
                f"{self.preempted} preemptions, {self.cached} prompt tokens from the cache, {self.accepted} drafted tokens "
                f"accepted, {self.seconds:.0f} s; {len(self.differ)} differ")


def compare(server, request, expected, tally, choose):
    if request.leaves:
        got = leave(server, request, choose)
        # A choice that has said nothing yet is not there.
        same = len(got) <= len(expected) and all(any(other["text"].startswith(choice["text"]) for other in expected)
                                                 for choice in got)
        tally.left += 1
    else:
        got = told(request, server.post(request.path, request.body))
        same = json.dumps(got, sort_keys=True) == json.dumps(expected, sort_keys=True)
        tally.compared += 1
        tally.tokens += sum(len(choice["token_ids"]) for choice in expected)
    if not same:
        tally.differ.append({"request": dataclasses.asdict(request), "expected": expected, "got": got})


def run_at_once(asked, expected, clients, server, seed):
    tally = Tally()
    begin = time.monotonic()
    order = list(range(len(asked)))
    random.Random(seed).shuffle(order)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        asking = [pool.submit(compare, server, asked[i], expected[i], tally, random.Random(seed * 1000 + i)) for i in order]
        for one in asking:
            one.result()
    tally.seconds = time.monotonic() - begin
    server.wait_for(lambda: server.busy_slots() == 0, "everybody has left")
    tally.preempted = round(server.metric("num_preemptions_total"))
    tally.cached = round(server.metric("prompt_tokens_cached_total"))
    tally.accepted = round(server.metric("spec_decode_num_accepted_tokens_total"))
    tally.cancelled = round(server.metric("requests_cancelled_total"))
    return tally


def position_bytes(flags, model):
    """What one position takes in the memories of model and drafters."""
    said = server_test.run("--model", model, "--port", "0", "--parallel", "1", "--kv-memory", "1", *flags).stderr
    least = re.search(r"expected (\d+) bytes or more for (\d+) positions", said)
    assert least, said
    return int(least.group(1)) // int(least.group(2))


def pool_bytes(flags, model, parallel, longest):
    """A share of what so many answers of `longest` positions need, but enough for one whole context."""
    with Server(*flags, "--parallel", "1", model=model) as server:
        one = int(re.search(r"(\d+) KV positions", server.start_line).group(1))
    demand = parallel * -(-longest // BLOCK) * BLOCK
    return max(one, round(POOL_SHARE * demand) // BLOCK * BLOCK) * position_bytes(flags, model)


def measure(options, say):
    common = ["--context", str(options.context), "--threads", str(options.threads), "--queue", "1000"]
    drafting = [*common, *options.draft]
    with Server(*drafting, model=options.model) as server:
        props = server.get("/props").json
        tokens = server.post("/tokenize", {"content": TEXT}).json["tokens"]
    draw = Draw(options.seed, tokens, props["drafters"], bool(props["chat_template"]), options.max_tokens)
    asked = [draw.request(number) for number in range(options.requests)]
    begin = time.monotonic()
    alone = Alone([*common, "--device", "cpu"], options.model, options.fresh)
    expected = [told(request, alone.answer(request)) for request in asked]
    alone.close()
    say(f"{len(asked)} requests alone, {sum(len(c['token_ids']) for e in expected for c in e)} tokens, drafters "
        f"{'+'.join(props['drafters'])}: {time.monotonic() - begin:.0f} s")
    for request, answer in zip(asked, expected):
        draw.add_speed(request, answer)
    tallies = []
    for i, (clients, parallel, nodes) in enumerate(options.configurations):
        own = slice(i, None, len(options.configurations)) if options.dealt else slice(None)
        flags = [*drafting, *(["--draft-nodes", nodes, "--draft-depth", "2"] if nodes else [])]
        memory = pool_bytes(flags, options.model, parallel, BLOCK + options.max_tokens)
        with Server(*flags, "--parallel", str(parallel), "--kv-memory", str(memory), "--metrics", model=options.model) as server:
            tallies.append(run_at_once(asked[own], expected[own], clients, server, options.seed))
        say(f"{clients} at once, --parallel {parallel} --kv-memory {memory}{f' --draft-nodes {nodes}' if nodes else ''}: "
            f"{tallies[-1].line()}")
    return tallies


def configurations(text):
    matches = [re.fullmatch(r"(\d+)x(\d+)(?::(\d+))?", one) for one in text.split(",")]
    if not all(matches):
        raise argparse.ArgumentTypeError(f"expected CLIENTSxPARALLEL[:NODES],..., got {text}")
    return [(int(match.group(1)), int(match.group(2)), match.group(3)) for match in matches]


def arguments(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("espalier", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--dealt", action="store_true", help="each request to one of the servers, not to all")
    parser.add_argument("--max-tokens", type=int, default=24, help="of an answer, at most")
    parser.add_argument("--context", type=int, default=192)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--fresh", type=int, default=25, help="requests that one plain server answers, one after the other")
    parser.add_argument("--configurations", default=CONFIGURATIONS, type=configurations,
                        help="CLIENTSxPARALLEL or CLIENTSxPARALLEL:NODES, with commas between them")
    options, options.draft = parser.parse_known_args(words)
    return options


def main():
    options = arguments(sys.argv[1:])
    server_test.ESPALIER = options.espalier.resolve()
    options.model = str(Path(options.model).resolve())
    tallies = measure(options, lambda line: print(line, flush=True))
    differ = [one for tally in tallies for one in tally.differ]
    print(f"in all {sum(t.compared for t in tallies)} compared, {len(differ)} differ")
    for one in differ[:3]:
        print(json.dumps(one, indent=1))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
