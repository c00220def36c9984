"""The command that makes reports: python3 tests/cli_report_test.py build/bin/espalier

Tiny runs and a tiny suite with every kind of experiment are made once. Every table of their reports is computed again
here, from the traces, with nothing but arithmetic; what a trace does not have (the answer without speculation) comes from
turns.json. How pages look is tested in tests/report."""

import csv
import functools
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
DATA = Path(__file__).resolve().parent / "data"
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


def uniform(position):
    """The number in [0, 1) at this position of stream 0, as src/base/random.h has it (SplitMix64)."""
    low, gamma = 2**64 - 1, 0x9e3779b97f4a7c15

    def mixed(x):
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & low
        x = (x ^ x >> 27) * 0x94d049bb133111eb & low
        return x ^ x >> 31

    return (mixed(mixed(gamma) + gamma * (position + 1) & low) >> 11) * 2.0**-53


@functools.lru_cache(maxsize=None)
def resamples(count):
    """Which of so many turns are drawn, 2000 times over."""
    return [[int(uniform(i * count + j) * count) for j in range(count)] for i in range(2000)]


def interval(above, below=None):
    """The middle 95 % of what resampled turns give: their mean, or the sum of the one by the sum of the other."""
    below = below or [1] * len(above)
    found = []
    for drawn in resamples(len(above)):
        bottom = sum(below[i] for i in drawn)
        found.append(sum(above[i] for i in drawn) / bottom if bottom else 0)
    return quantile(found, 0.025), quantile(found, 0.975)


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
        record = by_name[json.dumps(turn["prompt_id"]), turn["turn"]]
        turn["baseline"], turn["retimed"] = record["baseline_seconds"], record.get("retimed_seconds")
    return turns


def samples_of(turns):
    """By the titles of figures."""
    samples = {title: [] for title in ["speculative Tok/s", "baseline Tok/s", "speed-up", "TTFT, ms", "TPOT, ms", "accept_L",
                                       "tokens of the prompt", "tokens of the answer", "speed-up from the first token on",
                                       "baseline TPOT, ms", "baseline TTFT, ms", "baseline drift"]}
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
            samples["baseline TPOT, ms"].append(1000 * turn["baseline"]["decode"] / (tokens - 1))
            samples["speed-up from the first token on"].append(turn["baseline"]["decode"] / turn["decode_seconds"])
        samples["baseline TTFT, ms"].append(1000 * turn["baseline"]["prefill"])
        if turn["retimed"]:
            samples["baseline drift"].append((turn["retimed"]["prefill"] + turn["retimed"]["decode"]) / plain)
        samples["tokens of the prompt"].append(len(turn["prompt"]))
        samples["tokens of the answer"].append(tokens)
        samples["accept_L"] += [len(round["path"]) - 1 for round in turn["rounds"]]
    return samples


def intervals_of(turns):
    """By the titles of figures. Rounds of a turn resemble each other: those of accept_L and tau draw turns."""
    accepted = [sum(len(round["path"]) - 1 for round in turn["rounds"]) for turn in turns]
    rounds = [len(turn["rounds"]) for turn in turns]
    found = {title: interval(samples) for title, samples in samples_of(turns).items() if samples and title != "accept_L"}
    return {**found, "accept_L": interval(accepted, rounds), "tau": interval(list(map(sum, zip(accepted, rounds))), rounds)}


def stage_samples(turns):
    stages = {"prefill": [1000 * turn["prefill_seconds"] for turn in turns]}
    for stage in ["draft", "prepare", "verify", "accept", "commit"]:
        stages[stage] = [1000 * round["seconds"][stage] for turn in turns for round in turn["rounds"]]
    return stages


def accept_pos(turns):
    """By depth: judged and accepted guesses of each turn."""
    counts = {}
    for place, turn in enumerate(turns):
        for round in turn["rounds"]:
            accepted = len(round["path"]) - 1
            below = round["path"][-1] in round["tree"]["parents"][1:]
            for depth in range(1, accepted + (1 if below and not round["finish"] else 0) + 1):
                judged, taken = counts.setdefault(depth, ([0] * len(turns), [0] * len(turns)))
                judged[place] += 1
                taken[place] += depth <= accepted
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
    def run_suite(cls, name, experiments, out, *flags, check=True):
        suite = cls.root / name
        suite.mkdir(exist_ok=True)
        (suite / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in cli_suite_test.PROMPTS))
        for i, experiment in enumerate(experiments):
            plot = {"form": "line", "figures": ["speed_up", "accept_L"]}
            (suite / f"{i:02}.json").write_text(json.dumps({"plot": plot, **experiment}))
        result = espalier("eval", "run", "--suite", suite, "--context", "512", "-o", out, *flags)
        assert result.returncode == 0 or not check, result.stderr
        return result

    @classmethod
    def make_suite(cls):
        cls.run_suite("suite", cli_suite_test.ALL, cls.root / "results", "--model", cli_suite_test.MODEL, "--draft", "eagle3", "--head",
                      cli_suite_test.EAGLE3)

    def table(self, name, report=None):
        return json.loads(((report or self.report) / "tables" / f"{name}.json").read_text())

    def result(self, experiment):
        return json.loads((self.root / "results" / experiment / "result.json").read_text())

    def check_number(self, cell, expected, what):
        self.assertAlmostEqual(number(cell), expected, delta=1e-9 * max(1, abs(expected)), msg=what)

    def check_mean(self, cell, expected, ends, what):
        self.check_number(cell, expected, what)
        for end, expected_end in zip(cell["interval"], ends):
            self.check_number(end, expected_end, f"{what}, interval")

    def check_statistics(self, cells, samples, ends, what):
        self.check_mean(cells[0], mean(samples), ends, what)
        for cell, share in zip(cells[1:], (0.5, 0.9, 0.99)):
            self.check_number(cell, quantile(samples, share), f"{what}, {share}")

    def check_settings(self, table, row, turns):
        """Every number of a setting that traces give."""
        samples, intervals = samples_of(turns), intervals_of(turns)
        for title, cell in list(zip(table["columns"], row))[3:]:
            if title == "accept_L p90":
                self.check_number(cell, quantile(samples["accept_L"], 0.9), f"{row[0]} {title}")
            elif title != "paper":
                self.check_mean(cell, mean(samples[title]), intervals[title], f"{row[0]} {title}")

    def test_headline_tables_are_those_of_the_traces(self):
        turns = {run: traced_turns(self.root / run) for run in ["short", "long"]}
        samples = {run: samples_of(turns[run]) for run in turns}
        intervals = {run: intervals_of(turns[run]) for run in turns}
        checked = 0
        for figure, run, *cells in self.table("runs-headline")["rows"]:
            if run == "paper":
                continue
            self.check_statistics(cells, samples[run][figure], intervals[run][figure], f"{figure} of {run}")
            checked += 1
        self.assertEqual(checked, 2 * 11)

    def test_accept_pos_and_stages_are_those_of_the_traces(self):
        for run in ["short", "long"]:
            turns = traced_turns(self.root / run)
            rows = [row for row in self.table("runs-accept-pos-table")["rows"] if row[1] == run]
            counts = accept_pos(turns)
            self.assertEqual({int(row[0]): row[2] for row in rows}, {depth: sum(judged) for depth, (judged, _) in counts.items()})
            for depth, _, count, share in rows:
                judged, accepted = counts[int(depth)]
                self.check_mean(share, sum(accepted) / count, interval(accepted, judged), f"depth {depth}")
            stages = stage_samples(turns)
            whole = sum(map(sum, stages.values()))
            for stage, label, _, *cells, tail, share in self.table("runs-stages")["rows"]:
                if label != run:
                    continue
                self.check_statistics(cells, stages[stage], interval(stages[stage]), stage)
                self.assertAlmostEqual(tail, quantile(stages[stage], 0.99) / mean(stages[stage]))
                self.assertAlmostEqual(share, 100 * sum(stages[stage]) / whole)

    def test_the_side_by_side_table_and_the_list_of_turns_are_those_of_the_traces(self):
        columns = self.table("runs-side-by-side")["columns"]
        rows = iter(self.table("turns")["rows"])
        for row in self.table("runs-side-by-side")["rows"]:
            cells = dict(zip(columns, row))
            turns = traced_turns(self.root / row[0])
            samples, intervals = samples_of(turns), intervals_of(turns)
            for title in ["baseline Tok/s", "speculative Tok/s", "speed-up", "accept_L"]:
                self.check_mean(cells[title], mean(samples[title]), intervals[title], title)
            self.check_mean(cells["tau"], mean(samples["accept_L"]) + 1, intervals["tau"], "tau")
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
            turns = traced_turns(results / folder)
            self.check_statistics(cells, samples_of(turns)[figure], intervals_of(turns)[figure], figure)
        for experiment in ["nodes", "history", "prefix", "longer"]:
            table = self.table(f"{experiment}-settings", self.suite_report)
            runs = {setting["name"]: setting["run"] for setting in self.result(experiment)["settings"]}
            self.assertEqual([row[0] for row in table["rows"]], list(runs))
            self.assertIn("baseline drift" if experiment == "nodes" else "TTFT, ms", table["columns"])
            for row in table["rows"]:
                turns = traced_turns(results / runs[row[0]])
                if experiment == "history":  # those before the last only led there
                    turns = [turn for turn in turns if turn["turn"] == int(row[0]) + 1]
                self.check_settings(table, row, turns)
        stages = {"eagle3, m6": stage_samples(traced_turns(results / "e1/head-m6")),
                  "ngram, m6": stage_samples(traced_turns(results / "e1/ngram-m6"))}
        for stage, run, _, *cells, tail, share in self.table("e3-stages", self.suite_report)["rows"]:
            self.check_statistics(cells, stages[run][stage], interval(stages[run][stage]), stage)
            self.check_number(tail, quantile(stages[run][stage], 0.99) / mean(stages[run][stage]), stage)
            self.check_number(share, 100 * sum(stages[run][stage]) / sum(map(sum, stages[run].values())), stage)

    def test_what_has_no_trace_is_that_of_the_results(self):
        names = ["rounds", "rows", "tokens_changed", "logits", "logits_changed", "blind_rows"]
        self.assertEqual([row[2:] for row in self.table("leakage-settings", self.suite_report)["rows"]],
                         [[setting["figures"][name] for name in names] for setting in self.result("leakage")["settings"]])
        rows = iter(self.table("distance-distances", self.suite_report)["rows"])
        for setting in self.result("distance")["settings"]:
            for bucket, row in zip(setting["figures"]["buckets"], rows):
                self.assertEqual(row[0], bucket["distance"])
                self.check_number(row[2], 100 * bucket["top1_share"], row[0])
                self.check_number(row[3], 100 * bucket["attention_share"], row[0])
        self.assertIsNone(next(rows, None))

    def test_medusa_tables_are_those_of_the_traces(self):
        results, out = self.root / "medusa", self.root / "medusa-report"
        self.run_suite("medusa-suite", [cli_suite_test.MEDUSA], results, "--model", DATA / "tiny" / "llama2.gguf", "--draft", "medusa",
                       "--head", DATA / "heads" / "medusa-d")
        good("eval", "report", results, "-o", out)
        runs = {setting["name"]: setting["run"] for setting in json.loads((results / "medusa" / "result.json").read_text())["settings"]}
        rows = self.table("medusa-settings", out)["rows"]
        self.assertEqual([row[0] for row in rows], ["8", "16"])
        for length, _, identical, ac, overhead, gain in rows:
            turns = traced_turns(results / runs[length])
            self.assertEqual(identical, f"{len(turns)} of {len(turns)}")
            tokens, steps = [len(turn["tokens"]) - 1 for turn in turns], [len(turn["rounds"]) for turn in turns]
            seconds, plain = [turn["decode_seconds"] for turn in turns], [turn["baseline"]["decode"] for turn in turns]
            overheads = [(s / n) / (p / t) for s, n, p, t in zip(seconds, steps, plain, tokens)]
            self.check_mean(ac, sum(tokens) / sum(steps), interval(tokens, steps), "AC")
            self.check_mean(overhead, (sum(seconds) / sum(steps)) / (sum(plain) / sum(tokens)), interval(overheads), "overhead")
            self.check_mean(gain, sum(plain) / sum(seconds), interval(plain, seconds), "speed-up")
            self.check_number(gain, number(ac) / number(overhead), "speed-up = AC / overhead")

    def test_the_table_of_quality_is_that_of_the_judged_answers(self):
        results, out = self.root / "judged", self.root / "judged-report"
        flags = ["--model", cli_suite_test.MODEL]
        suite = [{**cli_suite_test.E1, "drafters": ["ngram"]}, cli_suite_test.QUALITY]
        confined = self.run_suite("judged-suite", suite, results, *flags, "--execute-model-code", check=False)
        if "does not allow a sandbox" in confined.stderr:  # what the tiny model writes is no program
            shutil.rmtree(results, ignore_errors=True)
            self.run_suite("judged-suite", suite, results, *flags, "--execute-model-code=unconfined")
        good("eval", "report", results, "-o", out)
        setting = json.loads((results / "quality" / "result.json").read_text())["settings"][0]
        figures, problems = setting["figures"], [turn for turn in traced_turns(results / setting["run"]) if turn["prompt_id"] == "HumanEval/0"]
        (row,) = self.table("quality-settings", out)["rows"]
        self.assertEqual(row[2:], [len(problems), figures["baseline_passed"] / len(problems), figures["passed"] / len(problems)])

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
        self.assertEqual([path.name for path in self.root.iterdir() if path.name.endswith(".espalier-tmp")], [])

    def test_what_is_no_run_is_refused_in_one_line(self):
        out = self.root / "never"
        self.refused("no such directory", self.root / "nowhere", "-o", out)
        self.refused("neither manifest.json nor suite.json", self.root / "suite", "-o", out)
        for file, content, message in [("turns.json", "[{]", "turns.json"), ("manifest.json", "{\"end\": null}", "not finished"),
                                       ("ranks/0000/trace.jsonl.zst", "no trace", "trace.jsonl.zst"),
                                       ("turns.json", "[{\"record\": 1}]", '"set" is missing')]:
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
