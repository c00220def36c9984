"""The program as a user meets it: python3 tests/cli_test.py build/bin/espalier

Runs on the tiny models of tests/data, so no download is needed."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = str(DATA / "tiny" / "llama2.gguf")  # babbles, but reproducibly


def run(*arguments, text=None, cwd=None, stdout=subprocess.PIPE):
    return subprocess.run([str(ESPALIER), *arguments], input=text, cwd=cwd, text=True, stdout=stdout,
                          stderr=subprocess.PIPE, timeout=120)


def generate(*arguments, **options):
    return run("generate", "--model", MODEL, *arguments, **options)


class Generate(unittest.TestCase):
    def test_only_the_answer_is_on_standard_output(self):
        result = generate("-n", "8", "--ignore-eos", "hello")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.endswith("\n"))

    def test_json_has_every_promised_field(self):
        result = generate("--json", "-n", "8", "--ignore-eos", "--seed", "5", "--logprobs", "2", "hello")
        self.assertEqual(result.returncode, 0, result.stderr)
        answer = json.loads(result.stdout)
        self.assertEqual(list(answer), ["text", "tokens", "prompt_tokens", "finish_reason", "prefill_seconds",
                                        "decode_seconds", "tokens_per_second", "seed", "model", "device", "logprobs"])
        self.assertEqual(len(answer["tokens"]), 8)
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual((answer["seed"], answer["device"]), (5, "reference"))
        self.assertEqual([len(entry["top"]) for entry in answer["logprobs"]], [2] * 8)
        self.assertEqual([entry["token"] for entry in answer["logprobs"]], answer["tokens"])
        speed = (len(answer["tokens"]) - 1) / answer["decode_seconds"]
        self.assertAlmostEqual(answer["tokens_per_second"], speed, delta=1e-6 * speed)

    def test_a_single_token_has_no_speed(self):
        answer = json.loads(generate("--json", "-n", "1", "hello").stdout)
        self.assertEqual(answer["tokens_per_second"], 0)

    def test_argument_standard_input_and_file_give_the_same_answer(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "prompt"
            file.write_text("hello there")
            answers = {generate("-n", "8", "hello there").stdout, generate("-n", "8", "-", text="hello there").stdout,
                       generate("-n", "8", "--file", str(file)).stdout}
        self.assertEqual(len(answers), 1)

    def test_threads_kv_and_checking_do_not_change_the_text(self):
        plain = json.loads(generate("--json", "-n", "12", "--temperature", "0.8", "--seed", "3", "hello").stdout)
        for flags in (["--threads", "1"], ["--threads", "3"], ["--checked"], ["--checked=ascend"]):
            other = generate("--json", "-n", "12", "--temperature", "0.8", "--seed", "3", *flags, "hello")
            self.assertEqual(other.returncode, 0, other.stderr)
            self.assertEqual(json.loads(other.stdout)["tokens"], plain["tokens"], flags)

    def test_raw_leaves_the_chat_template_out(self):
        chat = json.loads(generate("--json", "-n", "1", "hello").stdout)["prompt_tokens"]
        raw = json.loads(generate("--json", "-n", "1", "--raw", "hello").stdout)["prompt_tokens"]
        self.assertLess(raw, chat)

    def test_stop_string_and_stop_reason(self):
        whole = json.loads(generate("--json", "-n", "20", "--ignore-eos", "hello").stdout)["text"]
        cut = json.loads(generate("--json", "-n", "20", "--ignore-eos", "--stop", whole[5:7], "hello").stdout)
        self.assertEqual(cut["finish_reason"], "stop")
        self.assertEqual(cut["text"], whole[:whole.index(whole[5:7])])

    def test_a_banned_token_does_not_come(self):
        tokens = json.loads(generate("--json", "-n", "4", "--ignore-eos", "hello").stdout)["tokens"]
        banned = generate("--json", "-n", "4", "--ignore-eos", "--logit-bias", f"{tokens[0]}=-inf", "hello")
        self.assertNotIn(tokens[0], json.loads(banned.stdout)["tokens"])

    def test_a_full_disk_is_a_failure_with_one_line(self):
        with open("/dev/full", "w") as full:
            result = generate("-n", "4", "hello", stdout=full)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "espalier: standard output: cannot write: No space left on device\n")

    def test_a_closed_pipe_is_a_failure_with_one_line(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        result = generate("-n", "4", "hello", stdout=write_end)
        os.close(write_end)
        self.assertEqual((result.returncode, result.stderr),
                         (1, "espalier: standard output: cannot write: Broken pipe\n"))

    def test_interrupting_stops_the_answer_and_still_prints_it(self):
        process = subprocess.Popen([str(ESPALIER), "generate", "--model", MODEL, "--json", "-n", "400", "--checked",
                                    "--ignore-eos", "hello"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        if process.returncode == 1:  # a fast machine may have finished before
            self.assertEqual(json.loads(out)["finish_reason"], "cancelled", err)


class Usage(unittest.TestCase):
    def refused(self, message, *arguments, text=None):
        result = run(*arguments, text=text)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(message, result.stderr)

    def test_each_wrong_use_is_one_line_and_exit_code_2(self):
        given = ("generate", "--model", MODEL)
        self.refused("a command is missing")
        self.refused("unknown command 'bogus'", "bogus")
        self.refused("unknown command 'bogus'", "bogus", "--model", MODEL)
        self.refused("999999: the vocabulary has 272", *given, "--logit-bias", "999999=1", "hello")
        self.refused("only one of them", "inspect", MODEL, "--model", MODEL)
        self.refused("--nonsense", *given, "--nonsense", "hello")
        self.refused("PROMPT is missing", *given)
        self.refused("the prompt is empty", *given, "")
        self.refused("only one of them", *given, "hello", "--file", "x")
        self.refused("no/such/file: cannot open", *given, "--file", "no/such/file")
        self.refused("no/such/model: no such file", "generate", "--model", "no/such/model", "hello")
        self.refused("--temperature: expected 0 to 100, got -1", *given, "--temperature", "-1", "hello")
        self.refused("--top-p", *given, "--top-p", "1.5", "hello")
        self.refused("--max-tokens", *given, "-n", "-1", "hello")
        self.refused("--logit-bias: expected ID=VALUE", *given, "--logit-bias", "x=1", "hello")
        self.refused("--kv", *given, "--kv", "f8", "hello")
        self.refused("--device", *given, "--device", "tpu", "hello")
        self.refused("--checked", *given, "--checked=everything", "hello")
        self.refused("--draft", *given, "--draft", "guess", "hello")
        self.refused("--context", *given, "--context", "100000", "hello")
        self.refused("the context holds 16", *given, "--context", "16", "hello " * 50)
        self.refused("--logprobs: only with --json", *given, "--logprobs", "2", "hello")
        self.refused("--stop", *given, "--stop", "", "hello")
        self.refused("UTF-8", *given, "--file", str(DATA / "blocks.safetensors"))

    def test_a_file_that_is_no_model_is_named(self):
        self.refused("cli_test.py", "generate", "--model", __file__, "hello")
        self.refused("config.json", "generate", "--model", str(DATA), "hello")

    def test_without_a_model_the_message_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "espalier"
            os.link(ESPALIER.resolve(), copy) if os.stat(ESPALIER).st_dev == os.stat(folder).st_dev else \
                copy.write_bytes(ESPALIER.read_bytes())
            copy.chmod(0o755)
            result = subprocess.run([str(copy), "generate", "hello"], cwd=folder, capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("make model", result.stderr)

    def test_help_and_version_succeed(self):
        self.assertIn("generate", run("--help").stdout)
        self.assertIn("--temperature", run("generate", "--help").stdout)
        self.assertRegex(run("--version").stdout, r"^espalier \d+\.\d+\.\d+\n$")


class Chat(unittest.TestCase):
    def test_answers_every_line_of_a_script(self):
        result = run("chat", "--model", MODEL, "-n", "4", "--ignore-eos", text="hello\n\n/reset\nagain\n/exit\nnever\n")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertGreaterEqual(result.stdout.count("\n"), 2)

    def test_a_turn_beyond_the_context_does_not_end_the_conversation(self):
        result = run("chat", "--model", MODEL, "-n", "4", "--context", "64", text="x" * 500 + "\n/reset\nhello\n")
        self.assertEqual(result.returncode, 0)
        self.assertIn("the context holds 64", result.stderr)
        self.assertNotEqual(result.stdout, "")

    def test_ctrl_c_stops_the_answer_not_the_program(self):
        master, slave = pty.openpty()
        process = subprocess.Popen([str(ESPALIER), "chat", "--model", MODEL, "--checked", "-n", "400", "--ignore-eos"],
                                   stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        self.read_until(master, b"> ")
        os.write(master, b"hello\n")
        self.read_until(master, b"hello\n")
        os.read(master, 1)  # the answer has begun
        process.send_signal(signal.SIGINT)
        shown = self.read_until(master, b"\n> ")
        self.assertIn(b"[stopped]", shown)
        process.send_signal(signal.SIGINT)  # too late for the answer: still not the end of the conversation
        self.assertIn(b"/exit", self.read_until(master, b"\n> "))
        os.write(master, b"hello\n")
        self.read_until(master, b"hello\n")
        process.send_signal(signal.SIGINT)
        self.read_until(master, b"\n> ")
        os.write(master, b"/exit\n")
        self.assertEqual(process.wait(timeout=60), 0)
        os.close(master)

    def read_until(self, descriptor, end):
        data = b""
        while not data.replace(b"\r", b"").endswith(end):
            if not select.select([descriptor], [], [], 60)[0]:
                self.fail(f"nothing more came after {data!r}, expected {end!r}")
            part = os.read(descriptor, 4096)
            if not part:
                break
            data += part
        return data


class OtherCommands(unittest.TestCase):
    def test_inspect_tells_what_is_in_a_model(self):
        readable = run("inspect", MODEL)
        self.assertEqual((readable.returncode, readable.stderr), (0, ""))
        self.assertIn("family: llama", readable.stdout)
        object = json.loads(run("inspect", "--json", str(DATA / "tiny" / "pangu7b")).stdout)
        self.assertEqual(object["model"]["family"], "pangu")
        self.assertTrue(object["model"]["output_bias"])
        self.assertIn("problem", object["text"])
        self.assertIn("blk.0.attn_q.weight", run("inspect", "-v", MODEL).stdout)

    def test_tokenize_shows_ids_and_text(self):
        tokens = json.loads(run("tokenize", "--model", MODEL, "--json", "hello <|im_end|>").stdout)
        self.assertEqual("".join(token["text"] for token in tokens), "hello <|im_end|>")
        self.assertFalse(any(token["special"] for token in tokens))
        special = json.loads(run("tokenize", "--model", MODEL, "--json", "--special", "hello <|im_end|>").stdout)
        self.assertTrue(special[-1]["special"])

    def test_perplexity_of_a_text_with_its_standard_error(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "text"
            file.write_text("a tree trained flat against a wall. " * 20)
            answer = json.loads(run("perplexity", "--model", MODEL, "--json", "--window", "64", str(file)).stdout)
            line = run("perplexity", "--model", MODEL, "--window", "64", str(file)).stdout
        self.assertGreater(answer["perplexity"], 1)
        self.assertGreater(answer["standard_error"], 0)
        self.assertRegex(line, r"^perplexity \d+\.\d+ \+- \d+\.\d+ over \d+ tokens, windows of 64\n$")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
