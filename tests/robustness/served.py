"""What the tests of robustness share: a real server on a tiny model, what it says of itself, and what the system says of it.

Each is run by scripts/test-robustness as: python3 tests/robustness/NAME_test.py build/bin/espalier"""

import json
import re
import socket
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import server_test  # noqa: E402
from server_test import Server  # noqa: E402, F401


def post_bytes(path, body, headers=""):
    data = json.dumps(body)
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(data)}\r\n\r\n{data}").encode()


def connect(server, timeout=60):
    return socket.create_connection(("127.0.0.1", server.port), timeout=timeout)


def read_to_end(client):
    told = b""
    try:
        while chunk := client.recv(1 << 16):
            told += chunk
    except ConnectionResetError:  # it closed while we still sent
        pass
    return told


def resident_kib(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1))


def descriptors(server):
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def metrics(server):
    """Names with labels, and values."""
    lines = (line.rsplit(" ", 1) for line in server.get("/metrics").body.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def assert_census(test, server, held=0):
    """Nothing runs or waits, and every block of the pool is free or cached but those that the mode sets aside."""
    def quiet():
        found = metrics(server)
        return found["espalier_num_requests_running"] == 0 and found["espalier_num_requests_waiting"] == 0

    server.wait_for(quiet, "all have ended")
    found = metrics(server)
    test.assertEqual(found['espalier_kv_blocks{state="held"}'], held, found)
    test.assertEqual(server.busy_slots(), 0)
    test.assertEqual(server.get("/health").status, 200)


def main():
    server_test.ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
