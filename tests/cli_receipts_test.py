"""Receipts as a user meets them: python3 tests/cli_receipts_test.py build/bin/espalier

The hash of a receipt is made here once more, from docs/receipts.md alone. Runs on the tiny models of tests/data."""

import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = str(DATA / "tiny" / "llama2.gguf")  # babbles, but reproducibly; float weights
OTHER = str(DATA / "tiny" / "llama3.gguf")

CACHE = tempfile.TemporaryDirectory()


def run(*arguments, text=None, cwd=None, stdin=None):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
    variables["XDG_CACHE_HOME"] = CACHE.name
    given = {"input": text} if stdin is None else {"stdin": stdin}
    return subprocess.run([str(ESPALIER), *arguments], **given, cwd=cwd, text=True, capture_output=True, timeout=120,
                          env=variables)


def bits(number):
    return "ff800000" if number is None else struct.pack(">f", number).hex()


def listed(values):
    return " ".join(str(value) for value in values) or "-"


def word(value):
    return "-" if value is None else str(value)


def canonical(receipt):
    """The text that is hashed, as docs/receipts.md describes it."""
    fingerprint, options = receipt["fingerprint"], receipt["options"]
    lines = [f"espalier receipt {receipt['espalier_receipt']}"]
    lines += [f"{name} {word(fingerprint[name])}" for name in ("model", "weights", "configuration", "tokenizer")]
    lines += [f"end_tokens {listed(fingerprint['end_tokens'])}"]
    lines += [f"{name} {word(fingerprint[name])}" for name in ("chat_template", "kv", "arithmetic", "float_order",
                                                               "activations")]
    lines += [f"context {receipt['context']}", f"date {(receipt['date'] or '').encode().hex() or '-'}"]
    lines += [f"logit_bias {listed(f'{token}:{bits(bias)}' for token, bias in options['logit_bias'])}"]
    lines += [f"{name} {bits(options[name])}" for name in ("repeat_penalty", "presence_penalty", "frequency_penalty",
                                                           "temperature")]
    lines += [f"top_k {options['top_k']}", f"top_p {bits(options['top_p'])}", f"min_p {bits(options['min_p'])}"]
    lines += [f"{name} {options[name]}" for name in ("seed", "max_tokens", "min_tokens")]
    lines += [f"stop {listed(stop.encode().hex() for stop in options['stop'])}"]
    lines += [f"include_stop {int(options['include_stop'])}", f"stop_tokens {listed(options['stop_tokens'])}"]
    lines += [f"{name} {int(options[name])}" for name in ("ignore_eos", "loop_guard")]
    lines += [f"prompt {listed(receipt['prompt'])}", f"answer {listed(receipt['answer'])}"]
    lines += [f"finish_reason {receipt['finish_reason']}"]
    return "".join(line + "\n" for line in lines)


def hashed(receipt):
    """The same receipt, by somebody who makes its hash anew."""
    return {**receipt, "sha256": hashlib.sha256(canonical(receipt).encode()).hexdigest()}


class Receipts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def receipt_of(self, *flags, name="receipt.json", prompt="hello hello"):
        file = self.folder / name
        result = run("generate", "--model", MODEL, "-n", "16", "--json", "--receipt", str(file), *flags, prompt)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        receipt = json.loads(file.read_text())
        self.assertEqual(receipt["answer"], json.loads(result.stdout)["tokens"])
        return receipt

    def write(self, name, content):
        file = self.folder / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(file)

    def verify(self, *files, flags=(), text=None):
        return run("verify", "--model", MODEL, *flags, *files, text=text)

    def expect_verified(self, *files, **options):
        result = self.verify(*files, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertNotIn("NOT", result.stdout)
        return result.stdout

    def expect_one_line(self, content, code, words, name="changed.json", flags=()):
        result = self.verify(self.write(name, content), flags=flags)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        said, silent = (result.stdout, result.stderr) if code == 1 else (result.stderr, result.stdout)
        self.assertEqual((said.count("\n"), silent), (1, ""))
        self.assertRegex(said, words)

    def test_an_answer_is_verified(self):
        receipt = self.receipt_of("--ignore-eos")
        self.assertEqual(receipt["sha256"], hashed(receipt)["sha256"], "as the document says")
        self.assertEqual(self.expect_verified(str(self.folder / "receipt.json")),
                         f"{self.folder / 'receipt.json'}: verified: 16 tokens, finished by length\n")

    def test_answers_of_many_settings_are_verified_and_hash_as_documented(self):
        settings = [["--temperature", "0.8", "--seed", "18446744073709551615"], ["--top-k", "5", "--temperature", "1.3"],
                    ["--logit-bias", "70=-inf", "--logit-bias", "80=2.5", "--repeat-penalty", "1.2"],
                    ["--presence-penalty", "0.3", "--frequency-penalty", "0.1", "--min-p", "0.02", "--temperature", "1"],
                    ["--stop", "e", "--stop", "ä\n"], ["--kv", "f32"], ["--weights", "q8_0"], ["--raw"], ["-c", "32"],
                    ["--draft", "hostile"], ["--system", "Be brief."], ["--device", "reference"], ["--threads", "3"]]
        for i, flags in enumerate(settings):
            receipt = self.receipt_of(*flags, name=f"{i}.json")
            self.assertEqual(receipt, hashed(receipt), flags)
        said = self.expect_verified(str(self.folder))
        self.assertTrue(said.endswith(f"{len(settings)} receipts: {len(settings)} verified, 0 not verified, 0 refused\n"))

    def test_a_template_that_asks_for_the_date_has_it_in_the_receipt(self):
        self.assertIsNone(self.receipt_of("--date", "2026-11-15")["date"])
        dated = self.write("dated.jinja", "{{ strftime_now('%d %B %Y') }}: {{ messages[-1].content }}")
        receipt = self.receipt_of("--date", "2026-11-15", "--chat-template", dated, name="dated.json")
        self.assertEqual(receipt["date"], "2026-11-15")
        self.assertIsNotNone(self.receipt_of("--chat-template", dated, name="today.json")["date"])
        self.assertIsNone(self.receipt_of("--raw", name="raw.json")["date"])
        own = self.receipt_of(name="own.json")["fingerprint"]["chat_template"]
        self.assertNotEqual(receipt["fingerprint"]["chat_template"], own)
        self.expect_verified(str(self.folder))

    def test_float_weights_name_their_order_of_sums(self):
        floats = self.receipt_of()["fingerprint"]
        self.assertEqual((floats["float_order"], floats["activations"]), ("ascending", "f32"))
        blocks = self.receipt_of("--weights", "q8_0", name="blocks.json")["fingerprint"]
        self.assertEqual((blocks["float_order"], blocks["activations"]), (None, None))

    def test_standard_input_lines_lists_and_responses(self):
        receipt = self.receipt_of("--ignore-eos")
        text = json.loads(run("verify", "--model", MODEL, "--json", str(self.folder / "receipt.json")).stdout)
        answer = text["receipts"][0]["text"]
        self.expect_verified("-", text=json.dumps(receipt))
        self.expect_verified("-", text=json.dumps(receipt, indent=2, sort_keys=True))
        self.assertIn("2 verified", self.expect_verified("-", text=f"{json.dumps(receipt)}\n{json.dumps(receipt)}\n"))
        self.assertIn("2 verified", self.expect_verified("-", text=json.dumps([receipt, receipt])))
        chat = {"choices": [{"message": {"role": "assistant", "content": answer}, "receipt": receipt}]}
        self.assertIn("choices[0].receipt: verified", self.expect_verified("-", text=json.dumps(chat)))
        events = f"data: {json.dumps({'choices': [{'delta': {}, 'receipt': receipt}]})}\n\ndata: [DONE]\n\n"
        self.expect_verified("-", text=events)
        chat["choices"][0]["message"]["content"] = answer + "!"
        self.expect_one_line(chat, 1, "NOT VERIFIED: the text beside it is not what its tokens say")
        chat["choices"][0]["message"]["content"] = ""
        self.expect_one_line(chat, 1, "NOT VERIFIED: the text beside it is not what its tokens say")

    def test_standard_input_that_cannot_be_read_is_refused_by_the_name_it_was_given(self):
        folder = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        result = run("verify", "--model", MODEL, "--json", "-", stdin=folder)
        self.assertEqual((result.returncode, result.stderr), (2, ""))
        self.assertEqual(json.loads(result.stdout)["receipts"],
                         [{"receipt": "-", "verdict": "refused", "error": "standard input: cannot read"}])
        (other,) = json.loads(self.verify("-", flags=["--json"], text="{}").stdout)["receipts"]
        self.assertEqual((other["receipt"], other["error"]), ("standard input", "standard input: no receipt in it"))

    def test_json_has_the_verdicts(self):
        receipt = self.receipt_of("--ignore-eos")
        other = hashed({**receipt, "answer": [*receipt["answer"][:5], 70 if receipt["answer"][5] != 70 else 71,
                                              *receipt["answer"][6:]]})
        result = self.verify(self.write("all.jsonl", "\n".join(json.dumps(one) for one in (receipt, other, {**other, "context": 3}))),
                             flags=["--json"])
        self.assertEqual((result.returncode, result.stderr), (2, ""))
        verdicts = json.loads(result.stdout)
        self.assertEqual((verdicts["verified"], verdicts["not_verified"], verdicts["refused"]), (1, 1, 1))
        first, second, third = verdicts["receipts"]
        self.assertEqual((first["verdict"], first["tokens"], first["finish_reason"]), ("verified", 16, "length"))
        self.assertGreater(first["seconds"], 0)
        difference = second["difference"]
        self.assertEqual((second["verdict"], difference["position"]), ("not verified", 5))
        self.assertEqual((difference["model"]["token"], difference["receipt"]["token"]), (receipt["answer"][5], other["answer"][5]))
        self.assertGreater(difference["margin"], 0)
        self.assertEqual(third["verdict"], "refused")
        self.assertIn("changed since it was written", third["error"])

    def test_a_lie_is_one_line_and_status_1(self):
        receipt = self.receipt_of("--ignore-eos", "--temperature", "0.9", "--seed", "4")
        options, answer = receipt["options"], receipt["answer"]
        lies = [{"answer": answer[:-1]}, {"answer": [*answer, 9]}, {"answer": [*answer[:7], *answer[8:]]},
                {"answer": answer[::-1]}, {"finish_reason": "stop"}, {"finish_reason": "cancelled"},
                {"prompt": receipt["prompt"][:-1]}, {"prompt": [*receipt["prompt"], 9]},
                {"options": {**options, "seed": "5"}}, {"options": {**options, "temperature": 0.0}},
                {"options": {**options, "max_tokens": 15}}, {"options": {**options, "max_tokens": 17}},
                {"options": {**options, "logit_bias": [[answer[2], None]]}},
                {"options": {**options, "stop_tokens": [answer[3]]}}, {"context": len(receipt["prompt"]) + 3}]
        for lie in lies:
            self.expect_one_line(hashed({**receipt, **lie}), 1, r"^\S+changed.json: NOT VERIFIED: ")
        self.expect_one_line(hashed({**receipt, "answer": [*answer[:3], 100000, *answer[4:]]}), 1,
                             r"token 3 of the answer is \d+ \".*\", the receipt says 100000 \"\", margin infinite$")

    def test_what_cannot_be_judged_is_one_line_and_status_2(self):
        receipt = self.receipt_of("--ignore-eos")
        whole = json.dumps(receipt)
        fingerprint = receipt["fingerprint"]
        self.expect_one_line({**receipt, "context": receipt["context"] - 1}, 2,
                             r"^espalier: \S+: changed since it was written: SHA-256 [0-9a-f]{64}, expected \"[0-9a-f]{64}\"$")
        self.expect_one_line(whole[:len(whole) // 2], 2, r"^espalier: \S+changed.json:1:\d+: not JSON: ")
        self.expect_one_line("", 2, r"^espalier: \S+changed.json:1:1: not JSON: ")
        self.expect_one_line({**receipt, "espalier_receipt": 2}, 2, "a receipt of version \"2\", expected 1$")
        self.expect_one_line({"text": "none"}, 2, "changed.json: no receipt in it$")
        self.expect_one_line(hashed({**receipt, "context": 1 << 40}), 2, "--context: expected 1 to 512")
        for field, value in (("model", "0" * 64), ("tokenizer", "0" * 64), ("arithmetic", 1), ("float_order", "mma-90"), ("activations", "bf16"), ("end_tokens", [5])):
            self.expect_one_line(hashed({**receipt, "fingerprint": {**fingerprint, field: value}}), 2,
                                 rf"not of \S+ as it is computed here: {field} is .*, expected ")
        self.expect_one_line(receipt, 2, "kv is f16, expected f32, as --kv says$", flags=["--kv", "f32"])
        other = run("verify", "--model", OTHER, str(self.folder / "receipt.json"))
        self.assertEqual((other.returncode, other.stderr.count("\n"), other.stdout), (2, 1, ""))
        self.assertIn("model is ", other.stderr)

    def test_the_worst_of_several_counts_and_all_are_looked_at(self):
        receipt = self.receipt_of("--ignore-eos")
        lie = self.write("lie.json", hashed({**receipt, "finish_reason": "stop"}))
        broken = self.write("broken.json", "{")
        true = str(self.folder / "receipt.json")
        self.assertEqual(self.verify(lie, true).returncode, 1)
        result = self.verify(broken, lie, true, "absent.json")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 2))
        self.assertIn("4 receipts: 1 verified, 1 not verified, 2 refused\n", result.stdout)

    def test_wrong_flags_are_one_line(self):
        for words, expected in ((["generate", "--receipt", "-", "hi"], "--receipt -"),
                                (["verify"], "FILE"), (["verify", "-c", "64", "x.json"], "--context: not with verify"),
                                (["generate", "--receipt", MODEL, "hi"], "the file exists")):
            result = run(*words[:1], "--model", MODEL, *words[1:])
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), words)
            self.assertIn(expected, result.stderr)
        empty = self.folder / "empty"
        empty.mkdir()
        result = self.verify(str(empty))
        self.assertEqual((result.returncode, result.stderr), (2, f"espalier: {empty}: no receipt in it\n"))

    def test_a_run_keeps_receipts_of_its_turns(self):
        data = self.write("data.jsonl", "\n".join(json.dumps({"id": i, "turns": ["hello", "and you"]}) for i in range(3)))
        out = str(self.folder / "run")
        flags = ["eval", "run", "--model", MODEL, "-n", "12", "--temperature", "0.7", "--data", data, "-o", out]
        result = run(*flags, "--receipts", "--parallel", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        turns = json.loads((self.folder / "run" / "turns.json").read_text())
        receipts = [json.loads(line) for line in (self.folder / "run" / "receipts.jsonl").read_text().splitlines()]
        self.assertEqual([(one["prompt"], one["answer"], one["finish_reason"]) for one in receipts],
                         [(turn["prompt"], turn["tokens"], turn["finish_reason"]) for turn in turns])
        self.assertIn("6 receipts: 6 verified", self.expect_verified(out))
        (self.folder / "run" / "receipts.jsonl").unlink()
        again = run("eval", "run", "--resume", "-o", out)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("6 receipts: 6 verified", self.expect_verified(out))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
