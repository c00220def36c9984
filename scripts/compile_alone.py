#!/usr/bin/env python3
"""Compiles every C++ file alone, headers too, as far as errors go (-fsyntax-only): a unity build hides a missing include.

  scripts/compile_alone.py BUILD_FOLDER    the folder of a build that clang makes file by file (preset clang), configured

Most of the time goes into reading the same headers of libraries again, so these come precompiled. That hides nothing: a
file is given only headers that it includes itself, directly or through headers of this project, so what it sees is what
it would see without. Only the order is lost within a file. A source that includes its own header first can be
given only what that header reaches, and so shows that the header compiles alone; other headers are compiled too.
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
NEEDED = re.compile(r"-(std=|I|D|isystem|m)")  # of a compile command; warnings are for the builds

# What takes long to read, with hundredths of a second; other headers are not worth precompiling.
COST = {"CLI/CLI.hpp": 380, "nlohmann/json.hpp": 330, "gmock/gmock.h": 290, "gtest/gtest.h": 220, "filesystem": 120,
        "fmt/format.h": 90, "nlohmann/json_fwd.hpp": 90, "memory": 60, "string": 40, "functional": 30}
# These bring others along, or outweigh them, so that others are not precompiled beside them.
SMALL = {"memory", "string", "functional", "nlohmann/json_fwd.hpp"}
OUTWEIGHS = {"CLI/CLI.hpp": SMALL | {"filesystem"}, "nlohmann/json.hpp": SMALL | {"filesystem"},
             "gmock/gmock.h": SMALL | {"gtest/gtest.h"}, "gtest/gtest.h": SMALL}
HEADER_COST = 100  # of compiling one apart
WORTHWHILE = 10  # files that reach the same headers


class Includes:
    """Who includes what, read from the text; conditions are not looked at."""

    def __init__(self, search):
        self.search = search

    def resolve(self, name, beside):
        return next((path for folder in (beside, *self.search) if (path := folder / name).is_file()), None)

    @functools.cache
    def direct(self, path):
        """The headers of this project and the names of others that a file includes."""
        own, others = set(), set()
        for bracket, name in INCLUDE.findall(path.read_text()):
            header = self.resolve(name, path.parent) if bracket == '"' else None
            own.add(header) if header else others.add(name)
        return own, others

    @functools.cache
    def reached(self, path):
        """The file and the headers of this project that it includes, directly or through others."""
        seen, pending = {path}, [path]
        while pending:
            new = self.direct(pending.pop())[0] - seen
            pending += new
            seen |= new
        return seen

    @functools.cache
    def shown_header(self, path):
        """The header that a source includes before anything else, unless reading what it does not reach took longer than
        compiling it apart."""
        first = INCLUDE.search(path.read_text())
        header = self.resolve(first[2], path.parent) if first and first[1] == '"' else None
        dear = header and cost(self.libraries(path)) - cost(self.libraries(header)) > HEADER_COST
        return None if dear else header

    def libraries(self, path):
        """The headers with a cost that a file reaches, without those that others outweigh."""
        found = set().union(*(self.direct(file)[1] for file in self.reached(path))) & COST.keys()
        return frozenset(found - set().union(*(OUTWEIGHS.get(header, ()) for header in found)))


def cost(headers):
    return sum(COST[header] for header in headers)


def flags_of(command):
    words, kept = shlex.split(command), []
    for word, following in zip(words, [*words[1:], ""]):
        if word == "-isystem":
            kept += [word, following]
        elif NEEDED.match(word):
            kept.append(word)
    return kept


def commands(build):
    """Flags by source file, as the build has them."""
    flags = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(ROOT) and not path.is_relative_to(build):
            flags.setdefault(path, flags_of(entry["command"]))
    return flags


def machine(flags):
    return [flag for flag in flags if flag.startswith("-m")]


def with_headers(flags, includes):
    """The files with the flags to compile them alone. A header has those of a source that reaches it, unless a source
    begins with it. Sources of one instruction set have headers that need it, and its vector type before them: these are
    part of such a source."""
    files = dict(flags)
    shown = {includes.shown_header(source) for source in flags}
    for source, of_source in flags.items():
        if not source.name.startswith("kernels_"):
            for header in sorted(includes.reached(source) - {source} - shown):
                files.setdefault(header, of_source)
    return files


def clang(arguments):
    return subprocess.run(["clang++", "-w", *arguments], capture_output=True, text=True)


def common(flags):
    """The flags that all files share: those of precompiled headers."""
    lists = list(flags.values())
    return [flag for flag in lists[0] if all(flag in other for other in lists)]


def precompile(headers, path, flags):
    text = "".join(f"#include <{header}>\n" for header in sorted(headers))
    source = path.with_suffix(".h")
    source.write_text(text)
    result = clang([*flags, "-x", "c++-header", "-Xclang", "-fpch-instantiate-templates", str(source), "-o", str(path)])
    if result.returncode != 0:
        sys.exit(f"compile_alone: cannot precompile {', '.join(sorted(headers))}:\n{result.stderr}")


def part(text):
    first, step = (int(word) for word in text.split("/"))
    if not 1 <= first <= step:
        raise ValueError
    return first, step


def main():
    parser = argparse.ArgumentParser(description="Compile every C++ file alone.")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--part", type=part, default=part("1/1"), help="2/4: every fourth file, from the second on")
    arguments = parser.parse_args()
    sources = commands(arguments.build.resolve())
    includes = Includes((ROOT / "src", ROOT / "tests", ROOT / "include"))
    usual = common(sources)
    flags = with_headers(sources, includes)
    first, step = arguments.part
    flags = {path: flags[path] for path in sorted(flags)[first - 1::step]}
    wishes = {path: includes.libraries(includes.shown_header(path) or path)
              if machine(flags[path]) == machine(usual) else frozenset() for path in flags}
    counts = collections.Counter(wishes.values())
    chosen = [headers for headers in counts if headers and counts[headers] >= WORTHWHILE]
    failed = 0
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        precompiled = {headers: pathlib.Path(scratch, f"{i}.pch") for i, headers in enumerate(chosen)}
        list(pool.map(lambda item: precompile(*item, usual), precompiled.items()))

        def check(path):
            usable = [headers for headers in chosen if headers <= wishes[path]]
            use = ["-include-pch", str(precompiled[max(usable, key=cost)])] if usable else []
            return path, clang([*flags[path], *use, "-fsyntax-only", "-x", "c++", str(path)])

        for path, result in pool.map(check, flags):
            if result.returncode != 0:
                failed += 1
                print(f"compile_alone: {path.relative_to(ROOT)} does not compile alone:\n{result.stderr}", file=sys.stderr)
    print(f"compile_alone: {len(flags)} files with {len(chosen)} precompiled sets of headers, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
