"""Clients that mean no good, against the real server: smuggled requests, bytes one by one, slow ones, thousands that leave."""

import json
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import unittest

import served
from served import Server, assert_census, connect, descriptors, post_bytes, read_to_end

FLAGS = ["--context", "512", "--parallel", "4", "--draft", "ngram", "--metrics", "--temperature", "0"]
ASKED = {"prompt": "once upon a time", "max_tokens": 16}

SMUGGLED = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"content": "x"}'


def head(*lines, target=b"/tokenize", version=b"HTTP/1.1"):
    given = [b"Host: localhost", b"Content-Type: application/json", *lines]
    return b"POST " + target + b" " + version + b"\r\n" + b"".join(line + b"\r\n" for line in given) + b"\r\n"


LENGTH = b"Content-Length: %d" % len(BODY)
# Two readers could disagree about where each of these ends.
AMBIGUOUS = {
    "both lengths": head(LENGTH, b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunked": head(b"Transfer-Encoding: chunked") + b"10\r\n" + BODY + b"\r\n0\r\n\r\n",
    "chunked, capitals": head(b"TRANSFER-ENCODING: CHUNKED") + b"0\r\n\r\n",
    "an unknown coding": head(LENGTH, b"Transfer-Encoding: xchunked") + BODY,
    "identity": head(LENGTH, b"Transfer-Encoding: identity") + BODY,
    "two codings": head(b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "a coding behind a tab": head(LENGTH, b"Transfer-Encoding:\tchunked") + b"0\r\n\r\n",
    "a space before the colon": head(LENGTH, b"Transfer-Encoding : chunked") + b"0\r\n\r\n",
    "a folded header": head(LENGTH, b"X: y\r\n Transfer-Encoding: chunked") + BODY,
    "a bare line feed": head(LENGTH, b"X: y\nTransfer-Encoding: chunked") + BODY,
    "a bare carriage return": head(LENGTH, b"X: y\rTransfer-Encoding: chunked") + BODY,
    "a zero byte": head(LENGTH, b"X: y\0") + BODY,
    "two equal lengths": head(LENGTH, LENGTH) + BODY,
    "two lengths": head(LENGTH, b"Content-Length: 0") + BODY,
    "a list of lengths": head(b"Content-Length: 16, 16") + BODY,
    "a signed length": head(b"Content-Length: +16") + BODY,
    "a negative length": head(b"Content-Length: -16") + BODY,
    "a hexadecimal length": head(b"Content-Length: 0x10") + BODY,
    "a length of many digits": head(b"Content-Length: 18446744073709551632") + BODY,
    "an empty length": head(b"Content-Length:") + BODY,
    "two hosts": head(LENGTH, b"Host: localhost") + BODY,
    "an unknown version": head(LENGTH, version=b"HTTP/3.7") + BODY,
    "no version": b"GET /version\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a TLS greeting": bytes.fromhex("160301020001000001fc0303") + bytes(200),
    "a line break in the target": head(LENGTH, target=b"/tokenize\r\nX: y") + BODY,
    "a header without a name": head(LENGTH, b": y") + BODY,
}


class Framing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(*FLAGS)
        cls.expected = cls.server.complete(**ASKED).json["choices"]

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.lines

    def test_what_two_readers_could_read_differently_is_refused_with_all_behind_it(self):
        for name, request in AMBIGUOUS.items():
            with self.subTest(name), connect(self.server) as client:
                client.sendall(request + SMUGGLED)
                told = read_to_end(client)
                self.assertRegex(told, rb"^HTTP/1\.1 4\d\d ")
                self.assertEqual(len(re.findall(rb"HTTP/1\.1 \d\d\d ", told)), 1, told)
                self.assertIn(b"Connection: close", told)
                self.assertNotIn(b'"version"', told)

    def test_what_cannot_be_misread_is_answered_in_order(self):
        tokenized = post_bytes("/tokenize", {"content": "x"})
        with connect(self.server) as client:
            client.sendall(tokenized + SMUGGLED + b"\r\n" + tokenized + SMUGGLED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            told = read_to_end(client)
        kinds = [b"version" if b'"version"' in part else b"tokens" for part in told.split(b"HTTP/1.1 200 OK")[1:]]
        self.assertEqual(kinds, [b"tokens", b"version"] * 2)

    def test_bytes_one_by_one_are_a_request_like_any(self):
        with connect(self.server) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in post_bytes("/v1/completions", ASKED, "Connection: close\r\n"):
                client.sendall(bytes([byte]))
            told = read_to_end(client)
        self.assertEqual(json.loads(told.split(b"\r\n\r\n", 1)[1])["choices"], self.expected)

    def test_garbage_is_answered_with_4xx_or_not_at_all(self):
        choose = random.Random(19)
        whole = post_bytes("/v1/completions", ASKED)
        for _ in range(500):
            data = bytearray(whole)
            for _ in range(choose.randint(1, 8)):
                data[choose.randrange(len(data))] = choose.randrange(256)
            with connect(self.server) as client:
                client.sendall(bytes(data))
                client.shutdown(socket.SHUT_WR)
                told = read_to_end(client)
            self.assertRegex(told, rb"^(HTTP/1\.1 [24]\d\d |$)", bytes(data))
        assert_census(self, self.server)


class Crowds(unittest.TestCase):
    def test_ten_thousand_connections_opened_and_dropped_leave_nothing(self):
        choose = random.Random(20)
        beginnings = [b"", b"G", SMUGGLED, head(LENGTH), head(LENGTH) + BODY[:3], b"nonsense\r\n\r\n", post_bytes(
            "/v1/completions", {**ASKED, "stream": True})]
        with Server(*FLAGS) as server:
            server.get("/health")
            before = descriptors(server)
            for _ in range(10_000):
                client = connect(server)
                client.sendall(choose.choice(beginnings))
                if choose.random() < 0.5:  # as a crash does
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            assert_census(self, server)
            server.wait_for(lambda: server.metric("http_connections") == 1, "only who asks is connected")
            server.wait_for(lambda: descriptors(server) <= before + 1, "their sockets are closed")
            print(f"10,000 connections: {before} open files before, {descriptors(server)} after")


class Slow(unittest.TestCase):
    """slowhttptest holds as many connections as it can; whoever comes meanwhile is answered, and all is well behind it."""

    def attack(self, *flags, path="/openapi.json"):
        self.assertTrue(shutil.which("slowhttptest"), "slowhttptest is a Debian package")
        with Server(*FLAGS) as server, tempfile.TemporaryDirectory() as place:
            expected = server.complete(**ASKED).json["choices"]
            attack = subprocess.Popen(["slowhttptest", *flags, "-l", "40", "-r", "100", "-u",
                                       f"http://127.0.0.1:{server.port}{path}"],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=place,
                                      env={**os.environ, "TERM": "dumb"})
            answers = 0
            while attack.poll() is None:
                self.assertEqual(server.complete(**ASKED).json["choices"], expected)
                answers += 1
                try:
                    attack.wait(1)
                except subprocess.TimeoutExpired:
                    pass
            attack.communicate()
            self.assertGreater(answers, 0)
            assert_census(self, server)
            server.wait_for(lambda: server.metric("http_connections") == 1, "only who asks is connected")
            print(f"slowhttptest {' '.join(flags)}: {answers} others were answered meanwhile")

    def test_headers(self):
        self.attack("-H", "-c", "200", "-i", "5")

    def test_headers_on_more_connections_than_there_are(self):
        self.attack("-H", "-c", "400", "-i", "5")

    def test_bodies(self):
        self.attack("-B", "-c", "200", "-i", "5", "-s", "8192", "-t", "POST", "-f", "application/json", path="/v1/completions")

    def test_readers(self):
        self.attack("-X", "-c", "200", "-w", "1", "-y", "8", "-n", "5", "-z", "1", "-k", "3")


if __name__ == "__main__":
    served.main()
