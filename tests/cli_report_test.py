"""The command that makes reports: python3 tests/cli_report_test.py build/bin/espalier

Tiny runs and a tiny suite with every kind of experiment are made once. Every table of their reports is computed again
here, from the traces, with nothing but arithmetic; what a trace does not have (the answer without speculation) comes from
turns.json. How pages look is tested in tests/report."""

import csv
import html.parser
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cli_suite_test  # noqa: E402
from cli_trace_test import records_of  # noqa: E402

ESPALIER = Path("build/bin/espalier")
CACHE = tempfile.TemporaryDirectory()
HOSTILE = "</script><script>alert('1')</script>\"&\u202e\u0001"
PROMPTS = [{"id": 81, "turns": ["hello there hello there", "again"]}, {"id": HOSTILE, "prompt": "one two one two one two"},
           {"id": "three", "turns": ["one two one two", "three"]}]


def environment():
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
    return {**variables, "XDG_CACHE_HOME": CACHE.name}


def espalier(*words):
    return subprocess.run([str(ESPALIER), *map(str, words)], capture_output=True, text=True, timeout=300, env=environment())


def good(*words):
    result = espalier(*words)
    assert result.returncode == 0, f"{words}: {result.stderr}"
    return result.stdout


def mean(samples):
    return sum(samples) / len(samples)


def quantile(samples, share):
    samples = sorted(samples)
    place = share * (len(samples) - 1)
    below = math.floor(place)
    above = min(below + 1, len(samples) - 1)
    return samples[below] + (place - below) * (samples[above] - samples[below])


def traced_turns(run):
    """The turns of a run's traces, each with its rounds, and its baseline of turns.json."""
    turns = []
    for path in sorted((run / "ranks").glob("*/trace.jsonl.zst")):
        for record in records_of(path):
            if record["kind"] == "turn":
                turns.append({**record, "rounds": []})
            if record["kind"] == "round":
                turns[-1]["rounds"].append(record)
    by_name = {(json.dumps(turn["prompt_id"]), turn["turn"]): turn for turn in json.loads((run / "turns.json").read_text())}
    for turn in turns:
        turn["baseline"] = by_name[json.dumps(turn["prompt_id"]), turn["turn"]]["baseline_seconds"]
    return turns


def samples_of(turns):
    """By the titles of figures."""
    samples = {title: [] for title in ["speculative Tok/s", "baseline Tok/s", "speed-up", "TTFT, ms", "TPOT, ms", "accept_L",
                                       "tokens of the prompt", "tokens of the answer"]}
    for turn in turns:
        seconds = turn["prefill_seconds"] + turn["decode_seconds"]
        plain = turn["baseline"]["prefill"] + turn["baseline"]["decode"]
        tokens = len(turn["tokens"])
        samples["speculative Tok/s"].append(tokens / seconds)
        samples["baseline Tok/s"].append(tokens / plain)
        samples["speed-up"].append(plain / seconds)
        samples["TTFT, ms"].append(1000 * turn["prefill_seconds"])
        if tokens > 1:
            samples["TPOT, ms"].append(1000 * turn["decode_seconds"] / (tokens - 1))
        samples["tokens of the prompt"].append(len(turn["prompt"]))
        samples["tokens of the answer"].append(tokens)
        samples["accept_L"] += [len(round["path"]) - 1 for round in turn["rounds"]]
    return samples


def stage_samples(turns):
    stages = {"prefill": [1000 * turn["prefill_seconds"] for turn in turns]}
    for stage in ["draft", "prepare", "verify", "accept", "commit"]:
        stages[stage] = [1000 * round["seconds"][stage] for turn in turns for round in turn["rounds"]]
    return stages


def accept_pos(turns):
    """By depth: judged, accepted."""
    counts = {}
    for turn in turns:
        for round in turn["rounds"]:
            accepted = len(round["path"]) - 1
            below = round["path"][-1] in round["tree"]["parents"][1:]
            for depth in range(1, accepted + (1 if below and not round["finish"] else 0) + 1):
                judged, taken = counts.get(depth, (0, 0))
                counts[depth] = (judged + 1, taken + (1 if depth <= accepted else 0))
    return counts


def number(cell):
    return cell["value"] if isinstance(cell, dict) else cell


class Strict(html.parser.HTMLParser):
    """Elements that were opened and closed in order, and all scripts."""
    VOID = {"meta", "link", "img", "br", "input"}

    def __init__(self):
        super().__init__()
        self.open, self.scripts, self.wrong = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag == "script":
            self.scripts.append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        cls.make_runs()
        cls.make_suite()
        cls.report = cls.root / "report"
        cls.shown = good("eval", "report", cls.root / "short", cls.root / "long", "-o", cls.report)
        cls.suite_report = cls.root / "suite-report"
        cls.suite_shown = good("eval", "report", cls.root / "results", "-o", cls.suite_report)

    @classmethod
    def make_runs(cls):
        data = cls.root / "prompts.jsonl"
        data.write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
        for name, tokens in [("short", 16), ("long", 40)]:
            good("eval", "run", "--model", cli_suite_test.MODEL, "--context", "512", "--data", data, "-o", cls.root / name, "-n", tokens,
                 "--draft", "ngram", "--draft-nodes", "8", "--draft-depth", "4", "--baseline", "--trace", "--ignore-eos")

    @classmethod
    def make_suite(cls):
        suite = cls.root / "suite"
        suite.mkdir()
        (suite / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in cli_suite_test.PROMPTS))
        for i, experiment in enumerate(cli_suite_test.ALL):
            plot = {"form": "line", "figures": ["speed_up", "accept_L"]}
            (suite / f"{i:02}.json").write_text(json.dumps({"plot": plot, **experiment}))
        good("eval", "run", "--suite", suite, "--model", cli_suite_test.MODEL, "--context", "512", "--draft", "eagle3", "--head",
             cli_suite_test.EAGLE3, "-o", cls.root / "results")

    def table(self, name, report=None):
        return json.loads(((report or self.report) / "tables" / f"{name}.json").read_text())

    def result(self, experiment):
        return json.loads((self.root / "results" / experiment / "result.json").read_text())

    def check_statistics(self, cells, samples, what):
        for cell, expected in zip(cells, [mean(samples), *(quantile(samples, share) for share in (0.5, 0.9, 0.99))]):
            self.assertAlmostEqual(number(cell), expected, delta=1e-9 * max(1, abs(expected)), msg=what)
        low, high = cells[0]["interval"]
        self.assertTrue(min(samples) - 1e-9 <= low <= number(cells[0]) + 1e-9, what)
        self.assertTrue(number(cells[0]) - 1e-9 <= high <= max(samples) + 1e-9, what)

    def test_headline_tables_are_those_of_the_traces(self):
        samples = {run: samples_of(traced_turns(self.root / run)) for run in ["short", "long"]}
        checked = 0
        for figure, run, *cells in self.table("runs-headline")["rows"]:
            if run == "paper" or figure not in samples[run]:
                continue
            self.check_statistics(cells, samples[run][figure], f"{figure} of {run}")
            checked += 1
        self.assertEqual(checked, 16)

    def test_accept_pos_and_stages_are_those_of_the_traces(self):
        for run in ["short", "long"]:
            turns = traced_turns(self.root / run)
            rows = [row for row in self.table("runs-accept-pos-table")["rows"] if row[1] == run]
            counts = accept_pos(turns)
            self.assertEqual({int(row[0]): row[2] for row in rows}, {depth: judged for depth, (judged, _) in counts.items()})
            for depth, _, judged, share in rows:
                self.assertAlmostEqual(number(share), counts[int(depth)][1] / judged)
            stages = stage_samples(turns)
            whole = sum(map(sum, stages.values()))
            for stage, label, _, *cells, tail, share in self.table("runs-stages")["rows"]:
                if label != run:
                    continue
                self.check_statistics(cells, stages[stage], stage)
                self.assertAlmostEqual(tail, quantile(stages[stage], 0.99) / mean(stages[stage]))
                self.assertAlmostEqual(share, 100 * sum(stages[stage]) / whole)

    def test_the_side_by_side_table_and_the_list_of_turns_are_those_of_the_traces(self):
        columns = self.table("runs-side-by-side")["columns"]
        rows = iter(self.table("turns")["rows"])
        for row in self.table("runs-side-by-side")["rows"]:
            cells = dict(zip(columns, row))
            turns = traced_turns(self.root / row[0])
            samples = samples_of(turns)
            for title in ["baseline Tok/s", "speculative Tok/s", "speed-up", "accept_L"]:
                self.assertAlmostEqual(number(cells[title]), mean(samples[title]))
            self.assertAlmostEqual(number(cells["tau"]), mean(samples["accept_L"]) + 1)
            self.assertEqual((cells["turns"], cells["identical"]), (5, "5 of 5"))
            for turn in turns:
                found = dict(zip(self.table("turns")["columns"], next(rows)))
                one = samples_of([turn])
                self.assertEqual((found["run"], found["turn"], found["tokens"], found["rounds"]),
                                 (row[0], turn["turn"], len(turn["tokens"]), len(turn["rounds"])))
                for title, column in [("speculative Tok/s", "Tok/s"), ("baseline Tok/s", "baseline Tok/s"), ("speed-up", "speed-up"),
                                      ("accept_L", "accept_L")]:
                    self.assertAlmostEqual(found[column], mean(one[title]))

    def test_tables_of_a_suite_are_those_of_its_traces(self):
        results = self.root / "results"
        for row in self.table("e1-headline", self.suite_report)["rows"]:
            figure, run, *cells = row
            if run == "paper":
                continue
            folder = {"eagle3, m6": "e1/head-m6", "ngram, m6": "e1/ngram-m6"}[run]
            samples = samples_of(traced_turns(results / folder))
            if figure in samples:
                self.check_statistics(cells, samples[figure], figure)
        for experiment in ["nodes", "prefix", "longer"]:
            table = self.table(f"{experiment}-settings", self.suite_report)
            runs = {setting["name"]: setting["run"] for setting in self.result(experiment)["settings"]}
            self.assertEqual([row[0] for row in table["rows"]], list(runs))
            for row in table["rows"]:
                samples = samples_of(traced_turns(results / runs[row[0]]))
                for title, cell in zip(table["columns"], row):
                    if title in samples:
                        self.assertAlmostEqual(number(cell), mean(samples[title]), msg=f"{experiment} {title}")
        stages = {"eagle3, m6": stage_samples(traced_turns(results / "e1/head-m6")),
                  "ngram, m6": stage_samples(traced_turns(results / "e1/ngram-m6"))}
        for stage, run, _, *cells, tail, share in self.table("e3-stages", self.suite_report)["rows"]:
            self.check_statistics(cells, stages[run][stage], stage)

    def test_every_experiment_of_a_suite_has_a_section(self):
        sections = json.loads((self.suite_report / "report.json").read_text())["sections"]
        self.assertEqual([section["id"] for section in sections], [experiment["id"] for experiment in cli_suite_test.ALL])
        for section in sections:
            if section["id"] not in ("medusa", "quality"):  # skipped, as their sections say
                self.assertTrue(section["tables"], section)
        page = (self.suite_report / "index.html").read_text()
        for words in ["no Medusa head", "logits changed", "--execute-model-code"]:
            self.assertTrue(words in page, words)
        for row in self.table("leakage-settings", self.suite_report)["rows"]:
            self.assertEqual(dict(zip(self.table("leakage-settings", self.suite_report)["columns"], row))["logits changed"], 0)

    def test_the_first_line_says_how_many_turns_are_identical(self):
        self.assertEqual(self.shown, f"10 of 10 turns are identical with and without speculation.\n{self.report}/index.html\n")
        self.assertRegex(self.suite_shown, r"^28 of 28 turns are identical")
        body = (self.report / "index.html").read_text().split("<main>")[1].strip()
        self.assertTrue(body.startswith("<p class=\"lossless holds\""), body[:100])
        self.assertIn("10 of 10 turns have a trace; tokens, rounds, judged guesses and seconds of 10 of them", body)

    def test_pages_are_well_formed_and_hostile_text_stays_text(self):
        for report in [self.report, self.suite_report]:
            page = (report / "index.html").read_text()
            parser = Strict()
            parser.feed(page)
            self.assertEqual((parser.open, parser.wrong), ([], []))
            self.assertNotIn("<script>alert", page)
            self.assertNotIn("\u0001", page)
            self.assertFalse([s for s in ("http://", "https://") if s in page.replace("http://www.w3.org/2000/svg", "")])
            for script in parser.scripts[:-1]:  # the last one is the program
                json.loads(script)

    def test_files_of_figures_and_tables_can_be_read(self):
        for report in [self.report, self.suite_report]:
            for path in (report / "figures").glob("*.svg"):
                xml.dom.minidom.parse(str(path))
            for path in [*report.glob("figures/*.csv"), *report.glob("tables/*.csv")]:
                rows = list(csv.reader(path.read_text().splitlines(keepends=True)))
                self.assertEqual({len(row) for row in rows}, {len(rows[0])}, path)
            for path in report.rglob("*.json"):
                json.loads(path.read_text())

    def test_trees_are_those_of_the_traces(self):
        out = self.root / "trees"
        good("eval", "report", self.root / "short", "-o", out, "--embed", "0")
        for i, turn in enumerate(traced_turns(self.root / "short"), 1):
            text = (out / "turns" / f"{i}.js").read_text()
            data = json.loads(text.removeprefix(f"espalierTurn({i}, ").removesuffix(");\n"))
            self.assertEqual(data["drafters"], ["ngram"])
            self.assertEqual(len(data["rounds"]), len(turn["rounds"]))
            for drawn, traced in zip(data["rounds"], turn["rounds"]):
                self.assertEqual((drawn["p"], drawn["v"]), (traced["tree"]["parents"], traced["path"]))
                self.assertTrue(all(abs(a - b) <= 0.0006 for a, b in zip(drawn["s"], traced["tree"]["scores"]) if a is not None))
                words = {token: data["words"][word] for token, word in zip(traced["tree"]["tokens"], drawn["t"])}
                self.assertEqual([data["words"][word] for word in drawn["t"]], [words[token] for token in traced["tree"]["tokens"]])
                self.assertTrue(all(word.startswith("\"") and word.endswith("\"") for word in words.values()))

    def test_a_run_whose_model_is_gone_shows_ids(self):
        run, out = self.root / "gone", self.root / "gone-report"
        shutil.copytree(self.root / "short", run)
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["configuration"]["model"]["path"] = "/nowhere.gguf"
        (run / "manifest.json").write_text(json.dumps(manifest))
        good("eval", "report", run, "-o", out, "--embed", "0")
        data = json.loads((out / "turns" / "1.js").read_text().removeprefix("espalierTurn(1, ").removesuffix(");\n"))
        self.assertTrue(all(word.isdigit() for word in data["words"]))

    def test_a_difference_is_told_and_the_exit_status_is_1(self):
        run, out = self.root / "differs", self.root / "differs-report"
        shutil.copytree(self.root / "short", run)
        turns = json.loads((run / "turns.json").read_text())
        turns[1].update(equal=False, first_difference=3, baseline_finish_reason=turns[1]["finish_reason"],
                        baseline_tokens=turns[1]["tokens"][:3] + [1] + turns[1]["tokens"][4:])
        (run / "turns.json").write_text(json.dumps(turns))
        result = espalier("eval", "report", run, "-o", out)
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stdout.startswith("4 of 5 turns are identical with and without speculation.\n"), result.stdout)
        self.assertIn("prompt \"81\", turn 2 differs at position 3", result.stdout)
        page = (out / "index.html").read_text()
        self.assertIn("<p class=\"lossless failed\" id=\"lossless\">FAILED: 4 of 5", page)
        self.assertIn("tr data-turn=\"2\" data-traced class=\"differs\"", page)

    def refused(self, message, *words, code=2):
        result = espalier("eval", "report", *words)
        self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (code, "", 1), result.stderr)
        self.assertIn(message, result.stderr)
        self.assertEqual([path.name for path in self.root.iterdir() if path.name.endswith((".tmp", ".old"))], [])

    def test_what_is_no_run_is_refused_in_one_line(self):
        out = self.root / "never"
        self.refused("no such directory", self.root / "nowhere", "-o", out)
        self.refused("neither manifest.json nor suite.json", self.root / "suite", "-o", out)
        for file, content, message in [("turns.json", "[{]", "turns.json"), ("manifest.json", "{\"end\": null}", "not finished"),
                                       ("ranks/0000/trace.jsonl.zst", "no trace", "trace.jsonl.zst"),
                                       ("turns.json", "[{\"record\": 1}]", "expected a turn of an evaluation")]:
            run = self.root / "broken"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(self.root / "short", run)
            (run / file).write_text(content)
            self.refused(message, run, "-o", out)
        suite = self.root / "broken-suite"
        shutil.copytree(self.root / "results", suite)
        (suite / "nodes" / "result.json").write_text("{\"kind\": \"experiment\", \"schema\": 2}")
        self.refused("result.json", suite, "-o", out)
        self.assertFalse(out.exists())

    def test_an_earlier_report_is_replaced_only_by_force_and_nothing_else_is(self):
        out = self.root / "again"
        good("eval", "report", self.root / "short", "-o", out)
        (out / "mine.txt").write_text("")
        self.refused("exists already", self.root / "short", "-o", out)
        good("eval", "report", self.root / "long", "-o", out, "--force")
        self.assertFalse((out / "mine.txt").exists())
        self.assertEqual(self.table("turns", out)["rows"][0][1], "long")
        self.refused("no report.json", self.root / "short", "-o", self.root / "long", "--force")
        self.assertTrue((self.root / "long" / "turns.json").exists())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main()
