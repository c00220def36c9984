"""The report in a real browser: python3 tests/report/page_test.py build/bin/espalier SCREENSHOTS

Runs of tiny models, a suite and their reports are made first; then the pages are opened in headless Chromium at desktop
and telephone width, in light and dark. Screenshots are left in the folder SCREENSHOTS."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from browser import Browser  # noqa: E402
from looks import CONTRAST, OUTSIDE  # noqa: E402

ESPALIER = Path("build/bin/espalier")
SCREENSHOTS = Path("build/report-test")
DATA = Path(__file__).resolve().parent.parent / "data"
MODEL = str(DATA / "tiny" / "llama3.gguf")
HEAD = str(DATA / "heads" / "eagle3-specforge.gguf")
HOSTILE = "</script><img src=x onerror=\"window.broken=1\">'\u202e"
PROMPTS = [{"id": 81, "turns": ["hello there hello there", "again"]}, {"id": HOSTILE, "prompt": "one two one two one two"},
           {"id": "three", "turns": ["one two one two", "three three three", "four"]},
           *({"id": f"more-{i}", "prompt": "a b c " * (i + 1)} for i in range(60))]
DRAFT = ["--draft-nodes", "8", "--draft-depth", "4"]
SUITE = {
    "10-e1.json": {"id": "e1", "title": "Throughput", "kind": "throughput", "prompts": [{"data": "prompts.jsonl", "limit": 8}],
                   "max_tokens": 24, "drafters": ["ngram"], "axis": "drafter", "flags": ["--ignore-eos"],
                   "settings": [{"name": "m8", "flags": DRAFT}], "plot": {"form": "distribution", "figures": ["speed_up"]},
                   "paper": [{"source": "A paper, Table 1", "columns": ["mean", "p50", "p90", "p99"],
                              "rows": {"speed_up": [1.27, 1.21, 1.84, 2.46], "accept_L": [3.17, 3, 6, 8]}}]},
    "20-sweep.json": {"id": "sweep", "title": "Rows of a tree", "kind": "sweep", "prompts": [{"data": "prompts.jsonl", "limit": 5}],
                      "max_tokens": 24, "drafters": ["ngram"], "axis": "nodes", "flags": ["--draft-depth", "4", "--ignore-eos"],
                      "settings": [{"name": n, "flags": ["--draft-nodes", n]} for n in ["2", "4", "8"]],
                      "plot": {"form": "line", "figures": ["tokens_per_second", "speed_up", "accept_L"]},
                      "paper": [{"source": "A paper, Table 2", "columns": ["2", "4", "8"],
                                 "rows": {"speed_up": [1.1, None, 1.4]}}]},
    "30-stages.json": {"id": "e3", "title": "Stages", "kind": "stages", "from": "e1",
                       "plot": {"form": "stages", "figures": ["milliseconds"]}},
    "40-distance.json": {"id": "distance", "title": "Distance", "kind": "attention-distance", "prompts": [{"data": "prompts.jsonl", "limit": 3}],
                         "max_tokens": 12, "drafters": ["eagle3"], "flags": DRAFT},
    "50-history.json": {"id": "history", "title": "History", "kind": "sensitivity", "prompts": [{"data": "prompts.jsonl", "limit": 3}], "max_tokens": 6,
                        "drafters": ["ngram"], "axis": "turns", "flags": DRAFT,
                        "lengthening": {"what": "history", "lengths": [0, 2], "prompts": 2},
                        "plot": {"form": "line", "figures": ["speed_up", "ttft"]}},
    "60-leakage.json": {"id": "leakage", "title": "Leakage", "kind": "mask-leakage", "prompts": [{"data": "prompts.jsonl"}], "max_tokens": 12,
                        "drafters": ["head"], "axis": "form", "flags": DRAFT, "rounds": 5,
                        "settings": [{"name": "fused", "flags": ["--attention", "fused"]}, {"name": "eager", "flags": ["--attention", "eager"]}]},
}


def espalier(*words, cwd):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
    result = subprocess.run([str(ESPALIER), *map(str, words)], capture_output=True, text=True, timeout=600, cwd=cwd,
                            env={**variables, "XDG_CACHE_HOME": str(cwd)})
    if result.returncode != 0:
        raise AssertionError(f"{words}: {result.returncode}\n{result.stdout}{result.stderr}")


def make_reports(folder):
    """Two runs side by side, all of whose trees lie in files, and a suite, whose trees are in the page."""
    (folder / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    (folder / "suite").mkdir()
    (folder / "suite" / "prompts.jsonl").write_text((folder / "prompts.jsonl").read_text())
    for name, experiment in SUITE.items():
        (folder / "suite" / name).write_text(json.dumps(experiment))
    engine = ["--model", MODEL, "--context", "512", "--threads", "1"]
    for name, nodes in [("small tree", "4"), ("large tree", "16")]:
        espalier("eval", "run", "--data", "prompts.jsonl", "-o", name, *engine, "-n", "24", "--ignore-eos", "--draft", "ngram",
                 "--draft-nodes", nodes, "--baseline", "--trace", cwd=folder)
    espalier("eval", "run", "--suite", "suite", "-o", "results", *engine, "--draft", "eagle3", "--head", HEAD, cwd=folder)
    espalier("eval", "report", "small tree", "large tree", "-o", "runs-report", "--embed", "0", cwd=folder)
    espalier("eval", "report", "results", "-o", "suite-report", cwd=folder)


# Text that reaches beyond its image, and text too small to read.
CLIPPED = """[...document.querySelectorAll('svg.chart')].flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.width > 0 && (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1);
  }).map((text) => svg.querySelector('title').textContent + ': ' + text.textContent);
})"""
# Two drafters, whose names stand in the boxes, and words in wide letters of several scripts.
TREE = {"drafters": ["eagle3-head", "ngram"], "prompt": [0], "cut": 0, "first": [0],
        "words": ['"a"', '"' + "W" * 30 + '"', '"' + "\u6728\u306e" * 15 + '"', '"' + "\U0001f333" * 12 + '"', '"' + "\ufdfd" * 4 + '"', '"\\n"'],
        "rounds": [{"p": [0, 0, 0, 1, 1, 3], "t": [0, 1, 2, 3, 4, 5], "s": [0, -0.1, -2, -0.3, -4, -0.5], "d": [0, 3, 2, 3, 1, 3],
                    "v": [0, 1], "c": [1, 2], "f": None, "m": [1, 1, 1, 1, 1]}]}
# Tables that are wider than their frame, and frames that say that theirs is.
WIDE = "[...document.querySelectorAll('.scroll')].filter((frame) => frame.scrollWidth > frame.clientWidth + 1)"
SAYING = """[...document.querySelectorAll('.scroll')].filter((frame) =>
  getComputedStyle(frame, '::before').content.includes('scroll') && frame.tabIndex === 0)"""
SMALL = """[...document.querySelectorAll('svg.chart text')].filter((text) => {
  const svg = text.ownerSVGElement;
  return parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width < 8.5;
}).length"""


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = Path(cls.folder.name)
        make_reports(cls.root)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    def open(self, report, width=1280, hash="", **options):
        self.browser.open((self.root / report / "index.html").as_uri() + hash, width, **options)

    def look(self, expression):
        return self.browser.evaluate(expression)

    def check_page(self):
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual([url for url in self.browser.requests() if not url.startswith(("file:", "data:", "about:"))], [])
        self.assertLessEqual(self.look("document.documentElement.scrollWidth"), self.look("innerWidth"))
        self.assertEqual(self.look(CLIPPED), [])
        self.assertEqual(self.look(OUTSIDE), [])
        self.assertEqual(self.look(SMALL), 0)
        self.assertEqual(self.look(CONTRAST), [])
        self.assertEqual(self.look("window.broken"), None)

    def open_first_tree(self):
        self.look("document.querySelector('#turns tbody button').click()")
        self.browser.wait_for("document.querySelector('svg.tree') !== null")

    def test_pages_are_readable_at_every_width_in_light_and_dark(self):
        for report in ["runs-report", "suite-report"]:
            for width in [1280, 768, 360]:
                for dark in [False, True]:
                    with self.subTest(report=report, width=width, dark=dark):
                        self.open(report, width, dark=dark)
                        self.open_first_tree()
                        self.look("scrollTo(0, 0)")
                        self.browser.screenshot(SCREENSHOTS / f"{report}-{width}-{'dark' if dark else 'light'}.png")
                        self.check_page()

    def test_the_first_line_is_losslessness(self):
        for report, turns in [("runs-report", 132), ("suite-report", None)]:
            self.open(report)
            line = self.look("document.querySelector('main').firstElementChild.textContent")
            self.assertRegex(line, r"(\d+) of \1 turns are identical")
            if turns:
                self.assertIn(f"{turns} of {turns}", line)

    def test_everything_promised_is_on_the_page(self):
        self.open("runs-report")
        for selector in ["#runs-headline", "#runs-side-by-side", "#runs-stages", "#runs-prompt-lengths svg", "#runs-output-lengths svg",
                         "#runs-speed-up svg", "#runs-speed-up-by-accept-l svg", "#runs-accept-pos svg", "#runs-stage-times svg",
                         "#turns", "#configuration", "details pre"]:
            self.assertTrue(self.look(f"document.querySelector('{selector}') !== null"), selector)
        self.open("suite-report")
        for selector in ["#e1-headline", "#e1-accept-pos svg", "#sweep-settings", "#sweep-speed-up svg", "#e3-stages", "#e3-stage-times svg",
                         "#distance-distances", "#distance-distance-shares svg", "#history-settings", "#history-ttft svg", "#leakage-settings"]:
            self.assertTrue(self.look(f"document.querySelector('{selector}') !== null"), selector)
        self.assertTrue(self.look("document.querySelector('#e1-headline').textContent.includes('paper')"))

    def test_links_to_files_lead_to_files(self):
        for report in ["runs-report", "suite-report"]:
            self.open(report)
            links = self.look("[...document.querySelectorAll('.files a')].map((a) => a.getAttribute('href'))")
            self.assertGreater(len(links), 20)
            for link in links:
                self.assertTrue((self.root / report / link).is_file(), link)

    def test_the_list_of_turns_is_sorted_filtered_and_turned_over(self):
        self.open("runs-report")
        self.assertEqual(self.look("document.querySelectorAll('#turns tbody tr').length"), 50)
        self.look("document.querySelector('[aria-label=\"next page\"]').click()")
        self.assertEqual(self.look("document.getElementById('turn-count').textContent"), "51\u2013100 of 132")
        tokens = "[...document.querySelectorAll('#turns tbody tr')].map((row) => Number(row.cells[5].textContent))"
        for reverse in [False, True]:
            self.look("document.querySelectorAll('#turns thead button')[5].click()")
            found = self.look(tokens)
            self.assertEqual(found, sorted(found, reverse=reverse))
        self.look("(() => { const box = document.getElementById('turn-filter'); box.value = 'large three'; box.dispatchEvent(new Event('input')); })()")
        self.assertEqual(self.look("document.getElementById('turn-count').textContent"), "1\u20133 of 3")
        self.assertEqual(self.browser.complaints(), [])

    def test_every_round_of_a_turn_has_its_tree(self):
        for report in ["runs-report", "suite-report"]:  # from a file beside the page, and from the page itself
            with self.subTest(report=report):
                self.open(report)
                self.open_first_tree()
                rounds = self.look("document.querySelectorAll('#turn-view .round').length")
                self.assertGreater(rounds, 0)
                for number in range(rounds):
                    rows = int(self.look("document.querySelector('.round-facts').textContent").split()[0])
                    self.assertEqual(self.look("document.querySelectorAll('svg.tree rect').length"), rows + 1)
                    accepted = self.look("document.querySelector('.round-facts').textContent").split()[2]
                    self.assertEqual(self.look("document.querySelectorAll('svg.tree g.taken').length"), int(accepted) + 1)
                    self.assertEqual(self.look("location.hash"), f"#turn-1-{number}")
                    self.look("document.querySelector('[aria-label=\"next round\"]').click()")
                self.assertEqual(self.browser.complaints(), [])

    def test_labels_of_trees_stay_in_their_boxes(self):
        self.open("runs-report")
        self.look(f"espalierTurn(1, {json.dumps(TREE)})")
        self.open_first_tree()
        self.assertIn("eagle3-head+ngram", self.look("document.querySelector('svg.tree').textContent"))
        self.look("document.querySelector('svg.tree').scrollIntoView()")
        self.browser.screenshot(SCREENSHOTS / "tree-wide-labels.png")
        self.assertEqual(self.look(OUTSIDE), [])

    def test_rows_of_a_paper_are_set_apart(self):
        for width in [1280, 390]:
            self.open("suite-report", width)
            rows = self.look("""[...document.querySelectorAll('#e1-headline tbody tr')].map((row) => [
              row.textContent.includes('paper'), [...row.cells].map((cell) => getComputedStyle(cell).backgroundColor), getComputedStyle(row.cells[0]).fontStyle])""")
            page = self.look("getComputedStyle(document.body).backgroundColor")
            self.assertEqual(sum(of_paper for of_paper, *_ in rows), 2)
            for of_paper, colours, style in rows:
                self.assertEqual(all(colour not in (page, "rgba(0, 0, 0, 0)") for colour in colours), of_paper)
                self.assertEqual(style == "italic", of_paper)

    def test_tables_that_are_wider_than_the_page_scroll_and_say_so(self):
        for report in ["runs-report", "suite-report"]:
            for width in [1280, 390]:
                self.open(report, width)
                self.browser.wait_for(f"{WIDE}.length === {SAYING}.length")
                self.assertTrue(self.look(f"(() => {{ const saying = {SAYING}; return {WIDE}.every((frame) => saying.includes(frame)); }})()"))
                self.browser.screenshot(SCREENSHOTS / f"{report}-{width}-tables.png")
                if width == 390:
                    self.assertGreater(self.look(f"{WIDE}.length"), 2)
                    frame = "document.querySelector('#turns').parentElement"
                    self.look(f"{frame}.scrollLeft = 200")
                    self.assertEqual(self.look(f"{frame}.scrollLeft"), 200)
                    self.assertGreaterEqual(self.look("document.querySelector('#turns tbody th').getBoundingClientRect().left"), 0)
        self.assertEqual(self.browser.complaints(), [])

    def test_the_list_of_turns_shows_the_beginning_of_each_prompt(self):
        self.open("runs-report")
        self.assertEqual(self.look("[...document.querySelectorAll('#turns tbody tr')].slice(0, 3).map((row) => row.cells[4].textContent)"),
                         ["hello there hello there", "again", "one two one two one two"])

    def test_a_link_leads_to_a_round(self):
        self.open("runs-report", hash="#turn-2-1")
        self.browser.wait_for("document.querySelector('svg.tree') !== null")
        self.assertIn("prompt 81, turn 2", self.look("document.querySelector('#turn-view h3').textContent"))
        self.assertTrue(self.look("document.querySelectorAll('#turn-view .round')[1].classList.contains('chosen')"))
        self.look("location.hash = '#turn-3-0'")
        self.browser.wait_for("document.querySelector('#turn-view h3').textContent.includes('turn 1')")

    def test_a_turn_opens_in_sight_with_the_root_of_its_tree(self):
        self.open("runs-report", width=390)
        self.open_first_tree()
        self.assertLess(abs(self.look("document.getElementById('turn-view').getBoundingClientRect().top")), 900)
        self.look("document.querySelector('.tree-frame').style.maxHeight = '60px'")  # a tree higher than its frame
        self.look("document.querySelector('#turn-view .round').click()")
        root = "document.querySelector('svg.tree g.taken rect').getBoundingClientRect()"
        frame = "document.querySelector('.tree-frame').getBoundingClientRect()"
        self.assertGreater(self.look("document.querySelector('.tree-frame').scrollHeight"), 60)
        self.assertTrue(self.look(f"{root}.bottom > {frame}.top && {root}.top < {frame}.bottom"))

    def test_boxes_of_trees_can_be_told_apart_in_grey(self):
        self.open("suite-report")
        self.open_first_tree()
        strokes = self.look("""['taken', 'guess', 'bonus'].map((kind) => {
          const box = document.querySelector(`svg.tree g.${kind} rect`);
          return box && getComputedStyle(box).strokeDasharray;
        })""")
        self.assertEqual(len(set(strokes)), 3, strokes)
        self.browser.call("Emulation.setEmulatedVisionDeficiency", type="achromatopsia")
        self.browser.screenshot(SCREENSHOTS / "suite-report-1280-grey.png")
        self.browser.call("Emulation.setEmulatedVisionDeficiency", type="none")

    def test_without_scripts_the_list_is_a_plain_table(self):
        self.open("runs-report", scripts=False)
        self.assertEqual(self.look("document.querySelectorAll('#turns tbody tr').length"), 132)
        self.assertTrue(self.look("document.querySelector('noscript p') !== null"))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        SCREENSHOTS = Path(sys.argv.pop(2)).resolve()
    if len(sys.argv) > 1:
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
