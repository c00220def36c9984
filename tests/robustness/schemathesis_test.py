"""schemathesis over /openapi.json: requests as described and not as described, none of which the server fails at."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import served
from served import Server, assert_census

EXAMPLES = "60"  # for each operation and phase
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


class Schemathesis(unittest.TestCase):
    def test_no_request_is_a_fault_of_ours(self):
        flags = ["--context", "256", "--parallel", "4", "--draft", "ngram", "--metrics", "--priorities"]
        with tempfile.TemporaryDirectory() as place, Server(*flags) as server:
            program = str(Path(sys.executable).absolute().parent / "schemathesis")
            result = subprocess.run([program, "run", f"http://127.0.0.1:{server.port}/openapi.json", "--checks", CHECKS,
                                     "--max-examples", EXAMPLES, "--phases", "examples,coverage,fuzzing", "--seed", "19",
                                     "--no-color", "--request-timeout", "60", "--generation-database", "none"],
                                    text=True, capture_output=True, timeout=3600, cwd=place)
            print(result.stdout[-2500:])
            self.assertEqual(result.returncode, 0, result.stdout[-6000:] + result.stderr[-2000:])
            assert_census(self, server)


if __name__ == "__main__":
    served.main()
