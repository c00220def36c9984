"""Many requests, many of whom leave, and an end under load: nothing is lost, kept or cut off."""

import concurrent.futures
import json
import random
import signal
import socket
import struct
import threading
import time
import unittest

import served
from served import Server, assert_census, connect, post_bytes, read_to_end, resident_kib

REQUESTS = 10_000
WARM = 2_000
USERS = 16
FLAGS = ["--context", "512", "--parallel", "8", "--queue", "64", "--draft", "ngram", "--metrics"]
BEGINNINGS = ["", "the quick brown fox ", "one two three four five six seven " * 6]


def request_of(number):
    choose = random.Random(number)
    fields = {"prompt": choose.choice(BEGINNINGS) + str(number), "max_tokens": choose.randint(1, 12), "seed": number,
              "temperature": choose.choice([0, 0.8]), "stream": choose.random() < 0.5}
    for name, value in (("n", 2), ("logprobs", 2), ("echo", True), ("stop", ["e"]), ("receipt", True), ("rounds", True)):
        if choose.random() < 0.15:
            fields[name] = value
    return fields, choose


def leave(client, choose):
    """At some moment of the answer's life, by one of the ways to go."""
    client.settimeout(60)
    if choose.random() < 0.5:
        client.recv(choose.choice([1, 300, 2000]))
    way = choose.randrange(3)
    if way == 0:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif way == 1:
        client.shutdown(socket.SHUT_WR)


def outcome_of(told):
    """'whole', or the status of an error; what is neither is an assertion."""
    if not told:
        return "closed"
    head, body = told.split(b"\r\n\r\n", 1)
    status = int(head.split(b" ")[1])
    if b"chunked" in head:
        assert body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), body[-300:]
        return "error" if b'"error"' in body else "whole"
    parsed = json.loads(body)
    return "whole" if "choices" in parsed else str(status)


def ask(server, number):
    fields, choose = request_of(number)
    leaves = number % 5 == 4
    try:
        with connect(server) as client:
            client.sendall(post_bytes("/v1/completions", {**fields, **({"max_tokens": 400} if leaves else {})}, "Connection: close\r\n"))
            if leaves:
                leave(client, choose)
                return "left"
            return outcome_of(read_to_end(client))
    except ConnectionError:
        return "refused"


class LongRun(unittest.TestCase):
    def ask_many(self, server, numbers):
        with concurrent.futures.ThreadPoolExecutor(USERS) as users:
            outcomes = list(users.map(lambda number: ask(server, number), numbers))
        self.assertLessEqual(set(outcomes), {"whole", "left"})
        assert_census(self, server)

    def test_ten_thousand_requests_with_every_fifth_client_gone(self):
        with Server(*FLAGS) as server:
            self.ask_many(server, range(WARM))
            warm = resident_kib(server)
            self.ask_many(server, range(WARM, REQUESTS))
            after = resident_kib(server)
            found = served.metrics(server)
            print(f"resident after {WARM} requests {warm} KiB, after {REQUESTS} {after} KiB; cancelled "
                  f"{found['espalier_requests_cancelled_total']:.0f}, generated {found['espalier_generation_tokens_total']:.0f}, "
                  f"reused {found['espalier_prefix_cache_hits_total']:.0f} tokens, preempted "
                  f"{found['espalier_num_preemptions_total']:.0f}")
            blocks = {name: value for name, value in found.items() if name.startswith("espalier_kv_blocks")}
            print(blocks)
            self.assertLess(after, warm * 1.05)


class End(unittest.TestCase):
    def test_sigterm_under_load_cuts_nobody_off(self):
        server = Server(*FLAGS, "--drain-seconds", "60")
        self.addCleanup(server.process.kill)
        ended = threading.Event()

        def keep_asking(user):
            outcomes = []
            for number in range(user, 100_000, USERS):
                if number % 5 != 4:
                    outcomes.append(ask(server, number))
                if outcomes and outcomes[-1] in ("refused", "closed") or ended.is_set():
                    return outcomes
            return outcomes

        with concurrent.futures.ThreadPoolExecutor(USERS) as users:
            asking = [users.submit(keep_asking, user) for user in range(USERS)]
            time.sleep(2)
            began = time.monotonic()
            code = server.stop(signal.SIGTERM)
            seconds = time.monotonic() - began
            ended.set()
            outcomes = [outcome for one in asking for outcome in one.result()]
        counts = {name: outcomes.count(name) for name in sorted(set(outcomes))}
        print(f"SIGTERM under load: ended in {seconds:.2f} s with {code}; {counts}")
        self.assertEqual(code, 0, server.lines)
        self.assertLessEqual(set(counts), {"whole", "503", "error", "refused", "closed"})


if __name__ == "__main__":
    served.main()
