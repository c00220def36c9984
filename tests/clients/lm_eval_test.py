"""lm-evaluation-harness against the real server on the default model, without network: its tokens come from the server, its
log-likelihoods are those of `espalier perplexity`, and neither company nor their order changes a bit of them."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

PLACE = tempfile.TemporaryDirectory()
os.environ.update({"HF_HOME": str(Path(PLACE.name, "hf")), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})

import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

import served  # noqa: E402
from served import DEFAULT_MODEL, ROOT, Server  # noqa: E402

TEXTS = 16

LOGLIKELIHOOD = """
task: espalier_texts
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{continuation}}}}"
target_delimiter: ""
metric_list:
  - {{metric: perplexity, aggregation: perplexity, higher_is_better: false}}
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
"""

GENERATION = """
task: espalier_answers
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{context}}}}{{{{continuation}}}}"
doc_to_target: ""
generation_kwargs: {{until: ["\\n\\n"], max_gen_toks: 24, temperature: 0}}
metric_list:
  - {{metric: bypass}}
"""


def texts():
    lines = (ROOT / "data" / "eval" / "mt_bench.jsonl").read_text().splitlines()[:TEXTS]
    return [json.loads(line)["turns"][0] for line in lines]


class LmEval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(PLACE.name)
        data = cls.folder / "texts.jsonl"
        # The first word is the context: a first token has no probability.
        pairs = [(text.split(" ", 1)[0], " " + text.split(" ", 1)[1]) for text in texts()]
        data.write_text("".join(json.dumps({"context": first, "continuation": rest}) + "\n" for first, rest in pairs))
        for name, task in (("texts", LOGLIKELIHOOD), ("answers", GENERATION)):
            (cls.folder / f"{name}.yaml").write_text(task.format(data=data))
        cls.tasks = TaskManager(include_path=str(cls.folder), include_defaults=False)
        cls.server = Server("--parallel", "16", "--threads", "2", model=DEFAULT_MODEL)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.lines

    def evaluate(self, model, task, path, concurrent, **options):
        """What the harness heard for each text."""
        arguments = {"model": "SmolLM2", "base_url": f"http://127.0.0.1:{self.server.port}{path}", "num_concurrent": concurrent}
        result = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=[task], task_manager=self.tasks,
                                         bootstrap_iters=0, **options)
        samples = {sample["doc_id"]: sample["resps"] for sample in result["samples"][task]}
        self.assertEqual(len(samples), TEXTS)
        return samples

    def perplexity(self, text):
        """The log-probabilities of espalier perplexity, by place in the text."""
        file = self.folder / "text.txt"
        file.write_text(text)
        result = subprocess.run([str(served.server_test.ESPALIER), "perplexity", "-m", DEFAULT_MODEL, "--window", "2048",
                                 "--logprobs", "-", str(file)], text=True, capture_output=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        fields = (line.split("\t") for line in result.stdout.splitlines() if line.count("\t") == 2)
        return {int(place): float(logprob) for place, _, logprob in fields}

    def test_loglikelihoods_are_those_of_perplexity_at_any_concurrency(self):
        alone = self.evaluate("local-completions", "espalier_texts", "/v1/completions", 1)
        together = self.evaluate("local-completions", "espalier_texts", "/v1/completions", 16)
        self.assertEqual(together, alone)
        for number, text in enumerate(texts()):
            context = self.server.post("/tokenize", {"content": text.split(" ", 1)[0]}).json["count"]
            expected = sum(logprob for place, logprob in self.perplexity(text).items() if place >= context)
            told = float(alone[number][0][0][0])
            self.assertEqual(told, expected, text)

    def test_chats_are_generated_alike_at_any_concurrency(self):
        alone = self.evaluate("local-chat-completions", "espalier_answers", "/v1/chat/completions", 1, apply_chat_template=True)
        together = self.evaluate("local-chat-completions", "espalier_answers", "/v1/chat/completions", 16,
                                 apply_chat_template=True)
        self.assertEqual(together, alone)
        body = {"messages": [{"role": "user", "content": texts()[0]}], "max_tokens": 24, "temperature": 0, "stop": ["\n\n"]}
        expected = self.server.post("/v1/chat/completions", body).json["choices"][0]["message"]["content"]
        self.assertEqual(alone[0][0][0], expected)


if __name__ == "__main__":
    served.main()
