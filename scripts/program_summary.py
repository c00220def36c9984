#!/usr/bin/env python3
"""Counts and names the tests inside the programs that ctest ran as one test each.

  scripts/program_summary.py BUILD_FOLDER/Testing/Temporary/LastTest.log

Prints every failed test with its program, also the one in the middle of which a program died, and one line in the words
of ctest with tests instead of programs. A test of ctest that is no program of googletest counts as one.
"""

import re
import sys

TEST = re.compile(r"^\d+/\d+ Testing: (\S+)\n(.*?)^Test (Passed|Failed)\.?$", re.MULTILINE | re.DOTALL)
EVENT = re.compile(r"\[( RUN      |       OK |  FAILED  |  SKIPPED )\] ([\w./]+)(?:, where .*)?(?: \(\d+ ms\))?$", re.MULTILINE)
ENDED = re.compile(r"^\[==========\] \d+ tests? from .* ran\.", re.MULTILINE)
REASON = re.compile(r"^(?:.*ERROR: \w+Sanitizer: |.*runtime error: |WARNING: ThreadSanitizer: ).*$", re.MULTILINE)


def outcome(output, passed):
    """How many tests an output tells of, and the failed ones, each with a reason or none."""
    running, ended, failed = None, 0, []
    body = ENDED.split(output)[0]  # behind it failures are listed once more
    for kind, name in EVENT.findall(body):
        if kind.strip() == "RUN":
            running = name
        elif running == name:
            running, ended = None, ended + 1
            if kind.strip() == "FAILED":
                failed.append((name, None))
    if running is not None:
        failed.append((running, why(output) or "the program ended in the middle of it"))
        ended += 1
    if not passed and not failed:
        return max(ended, 1), [("", why(output) or "failed outside of its tests")]
    return max(ended, 1), failed


def why(output):
    found = REASON.search(output)
    return found.group(0).strip() if found else None


def main():
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        log = file.read()
    total, failures = 0, []
    for program, output, verdict in TEST.findall(log):
        count, failed = outcome(output, verdict == "Passed")
        total += count
        failures += [(program, *failure) for failure in failed]
    for program, name, reason in failures:
        print("failed: " + ": ".join(part for part in (program, name, reason) if part))
    percent = 100 * (total - len(failures)) // max(total, 1)
    print(f"{percent}% tests passed, {len(failures)} tests failed out of {total}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
