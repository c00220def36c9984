"""The program llm against the real server, told of it as its documentation says: extra-openai-models.yaml."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from served import ServedTest, api, main, text_of

MODELS = """
- model_id: espalier
  model_name: tiny
  api_base: "{api}"
"""


class Llm(ServedTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.home = tempfile.TemporaryDirectory()
        Path(cls.home.name, "extra-openai-models.yaml").write_text(MODELS.format(api=api(cls.server)))

    @classmethod
    def tearDownClass(cls):
        cls.home.cleanup()
        super().tearDownClass()

    def llm(self, *words, code=0):
        program = [str(Path(sys.executable).absolute().parent / "llm")]
        result = subprocess.run([*program, *words], text=True, capture_output=True, timeout=120, stdin=subprocess.DEVNULL,
                                env={**os.environ, "LLM_USER_PATH": self.home.name})
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout + (result.stderr if code else "")

    def ask(self, *words, **more):
        return self.llm("-m", "espalier", "-o", "max_tokens", "24", *words, **more)

    def test_the_model_is_listed(self):
        self.assertIn("espalier", self.llm("models"))

    def test_streamed_or_not_it_prints_what_the_server_says(self):
        expected = text_of(self.server, max_tokens=24, seed=5)
        self.assertEqual(self.ask("-o", "seed", "5", "hello"), expected + "\n")
        self.assertEqual(self.ask("-o", "seed", "5", "--no-stream", "hello"), expected + "\n")

    def test_a_conversation_goes_on(self):
        self.ask("-o", "temperature", "0", "hello")
        second = self.ask("-o", "temperature", "0", "-c", "and again")
        turns = [{"role": "user", "content": "hello"},
                 {"role": "assistant", "content": text_of(self.server, max_tokens=24, temperature=0)},
                 {"role": "user", "content": "and again"}]
        self.assertEqual(second, text_of(self.server, messages=turns, max_tokens=24, temperature=0) + "\n")

    def test_an_error_is_said(self):
        self.assertIn("response_format", self.ask("-o", "json_object", "1", "hello", code=1))


if __name__ == "__main__":
    main()
