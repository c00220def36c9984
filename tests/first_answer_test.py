"""What the default model is asked behind when nobody says: python3 tests/first_answer_test.py build/bin/espalier

Needs the default model in models/; without it there is nothing to show."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
MODEL = Path(__file__).resolve().parent.parent / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTION = "What is the capital of France?"
CHOSEN = "no system message: chosen for this model"
CACHE = tempfile.TemporaryDirectory()


@unittest.skipUnless(MODEL.is_file(), "needs the default model")
class FirstAnswer(unittest.TestCase):
    def run_program(self, command, *arguments, text=None):
        variables = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
        return subprocess.run([str(ESPALIER), *command.split(), "--model", str(MODEL), "--draft", "none", "--context", "256",
                               *map(str, arguments)], input=text, text=True, capture_output=True, check=True, timeout=300,
                              env={**variables, "XDG_CACHE_HOME": CACHE.name})

    def generate(self, *flags):
        return json.loads(self.run_program("generate", "--json", "-n", "24", *flags, QUESTION).stdout)

    def test_what_everyone_types_first_is_answered_rightly(self):
        result = self.run_program("generate", "-v", "-n", "24", QUESTION)
        self.assertIn("Paris", result.stdout)
        self.assertIn(CHOSEN, result.stderr)
        chat = self.run_program("chat", "-v", "--temperature", "0", "-n", "24", text=QUESTION + "\n")
        self.assertEqual(chat.stdout.strip(), result.stdout.strip())
        self.assertIn(CHOSEN, chat.stderr)

    def test_whoever_says_something_else_gets_it(self):
        for flags in (["--system-default"], ["--system", "Be brief."]):
            self.assertNotIn(CHOSEN, self.run_program("generate", "-v", "-n", "1", *flags, QUESTION).stderr)
        self.assertGreater(self.generate("--system-default")["prompt_tokens"], self.generate()["prompt_tokens"])

    def test_eval_keeps_the_templates_own(self):
        with tempfile.TemporaryDirectory() as folder:
            data, out = Path(folder) / "prompts.jsonl", Path(folder) / "run"
            data.write_text(json.dumps({"id": "0", "turns": [QUESTION]}) + "\n")
            self.run_program("eval run", "--data", data, "-o", out, "-n", "2")
            turns = json.loads((out / "turns.json").read_text())
        self.assertEqual(turns[0]["prompt_tokens"], self.generate("--system-default")["prompt_tokens"])

    def test_chat_samples_as_the_card_says_unless_told_otherwise(self):
        told = "sampling as recommended by the model card: temperature 0.2, top-k 0, top-p 0.9"
        self.assertIn(told, self.run_program("chat", "-v", text="").stderr)
        self.assertIn("temperature 0, top-k 0, top-p 0.9", self.run_program("chat", "-v", "--temperature", "0", text="").stderr)
        self.assertNotIn("recommended", self.run_program("generate", "-v", "-n", "1", QUESTION).stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
