"""A chat as a person at a terminal has it: python3 tests/cli_chat_test.py build/bin/espalier

Drives the program through a pseudo-terminal, on a tiny model that babbles reproducibly. What a message was is read from
what /save writes."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

ESPALIER = Path("build/bin/espalier")
DATA = Path(__file__).resolve().parent / "data"
MODEL = str(DATA / "tiny" / "llama2.gguf")
SHORT = ("-n", "6", "--ignore-eos", "--draft", "ngram")
READY = "\x1b[?2004h"  # pastes are marked from here on: a line is being read
LEFT, UP, BACKSPACE, CTRL_A, CTRL_C, CTRL_D = "\x1b[D", "\x1b[A", "\x7f", "\x01", "\x03", "\x04"
CACHE = tempfile.TemporaryDirectory()


def environment(**more):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("ESPALIER_") and name != "NO_COLOR"}
    return {**kept, "XDG_CACHE_HOME": CACHE.name, "HOME": CACHE.name, "TERM": "xterm", "LC_ALL": "C", **more}


def without_escapes(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r", "", text)


class Terminal:
    """A program behind a terminal of 100 columns."""

    def __init__(self, *flags, **variables):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C becomes a signal

        self.process = subprocess.Popen([str(ESPALIER), "chat", "--model", MODEL, *flags], stdin=slave, stdout=slave,
                                        stderr=slave, env=environment(**variables), preexec_fn=take_terminal)
        os.close(slave)
        self.output = ""
        self.seen = 0

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)

    def more(self, deadline):
        if not select.select([self.master], [], [], max(0, deadline - time.time()))[0]:
            raise AssertionError(f"nothing more came after {self.output[self.seen:]!r}")
        try:
            part = os.read(self.master, 65536)
        except OSError:  # the program has ended
            part = b""
        self.output += part.decode(errors="replace")
        return bool(part)

    def until(self, text):
        """What came up to and with this, since the last call."""
        deadline = time.time() + 100
        while text not in self.output[self.seen:]:
            if not self.more(deadline):
                raise AssertionError(f"the program ended, expected {text!r} after {self.output[self.seen:]!r}")
        end = self.output.index(text, self.seen) + len(text)
        shown, self.seen = self.output[self.seen:end], end
        return shown

    def send(self, keys):
        data = keys.encode()
        while data:  # a terminal takes only so much at once
            written = os.write(self.master, data[:1024])
            data = data[written:]
            while select.select([self.master], [], [], 0)[0] and self.more(time.time() + 1):
                pass  # until there is nothing, or the program has ended with these keys

    def ready(self):
        """Waits for the prompt, and until keys are read one by one; what was shown before it, as one sees it."""
        shown = without_escapes(self.until(READY))
        self.until(" ")
        while termios.tcgetattr(self.master)[3] & termios.ICANON:
            time.sleep(0.001)
        return shown

    def say(self, text):
        """Types a line; what was shown until the next prompt."""
        self.send(text + "\r")
        return self.ready()

    def wait(self):
        while self.more(time.time() + 100):
            pass
        return self.process.wait(timeout=60)


class ChatTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = str(Path(self.folder.name) / "chat.json")

    def chat(self, *flags, **variables):
        terminal = Terminal(*(flags or SHORT), **variables)
        self.addCleanup(terminal.close)
        terminal.ready()
        return terminal

    def questions(self, terminal):
        Path(self.file).unlink(missing_ok=True)
        terminal.say(f"/save {self.file}")
        return [m["content"] for m in self.messages() if m["role"] == "user"]

    def messages(self):
        return json.loads(Path(self.file).read_text())["messages"]


class Editing(ChatTest):
    def test_wide_characters_are_edited_as_they_look(self):
        terminal = self.chat()
        terminal.say("日本x" + LEFT + BACKSPACE)
        terminal.say("wörld" + CTRL_A + "hello ")
        self.assertEqual(self.questions(terminal), ["日x", "hello wörld"])

    def test_the_last_message_comes_back_with_the_arrow(self):
        terminal = self.chat()
        terminal.say("first")
        terminal.say("second")
        terminal.say(UP + UP + "!")
        self.assertEqual(self.questions(terminal), ["first", "second", "first!"])

    def test_a_paste_of_several_lines_is_one_message(self):
        terminal = self.chat()
        terminal.say("see: \x1b[200~one\rtwo\r/reset\r\x1b[201~")
        self.assertEqual(self.questions(terminal), ["see: one\ntwo\n/reset"])

    def test_a_paste_is_a_message_whatever_it_begins_with(self):
        terminal = self.chat()
        pastes = ['"""Adds."""\nimport os', "/usr/bin/make: error\nof a program", "// Adds.\nint x = 0;"]
        for text in pastes:
            terminal.say("\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~")
        self.assertEqual(self.questions(terminal), pastes)

    def test_a_paste_is_one_message_for_people_who_like_vi(self):
        with tempfile.TemporaryDirectory() as home:
            (Path(home) / ".editrc").write_text("bind -v\n")
            terminal = self.chat(HOME=home)
            terminal.say("\x1b[200~one\rtwo\x1b[201~")
            self.assertEqual(self.questions(terminal), ["one\ntwo"])

    def test_an_empty_line_asks_nothing(self):
        terminal = self.chat()
        self.assertNotIn("tokens/s", terminal.say("") + terminal.say("   ") + terminal.say("\t"))
        self.assertEqual(self.questions(terminal), [])

    def test_a_long_paste_is_whole(self):
        terminal = self.chat()
        shown = terminal.say("\x1b[200~" + "\r".join("word " * 15 + str(i) for i in range(200)) + "\x1b[201~")
        tokens = int(re.search(r"the prompt has (\d+) tokens", shown).group(1))
        self.assertGreater(tokens, 15000)  # one token for a byte, and nothing is cut
        self.assertIn("shorten it", shown)
        terminal.say("hello")
        self.assertEqual(self.questions(terminal), ["hello"])

    def test_a_line_beyond_4095_bytes_is_whole(self):
        terminal = self.chat()
        shown = terminal.say("x" * 6000)
        self.assertGreater(int(re.search(r"the prompt has (\d+) tokens", shown).group(1)), 5999)

    def test_three_quotes_hold_several_lines(self):
        terminal = self.chat()
        for line in ('"""one', "/reset"):
            terminal.say(line)
        terminal.say('two"""')
        self.assertEqual(self.questions(terminal), ["one\n/reset\ntwo"])

    def test_the_terminal_is_as_it_was(self):
        terminal = self.chat()
        before = termios.tcgetattr(terminal.master)
        terminal.say("hello")
        terminal.send("/exit\r")
        self.assertEqual(terminal.process.wait(timeout=60), 0)
        self.assertTrue(termios.tcgetattr(terminal.master)[3] & termios.ICANON)
        self.assertFalse(before[3] & termios.ICANON, "while a line is edited")

    def test_a_terminal_that_can_do_nothing_gets_plain_lines(self):
        terminal = Terminal(*SHORT, TERM="dumb")
        self.addCleanup(terminal.close)
        terminal.until("> ")
        terminal.send("hello\n")
        terminal.until("tokens/s")
        terminal.until("> ")
        terminal.send("x" * 6000 + "\n")
        terminal.until("the terminal hands over 4095 bytes of a line at most")
        terminal.until("> ")
        terminal.send("/exit\n")
        self.assertEqual(terminal.wait(), 0)
        self.assertNotIn(READY, terminal.output)


class Keys(ChatTest):
    def test_ctrl_c_stops_the_answer_not_the_program(self):
        terminal = self.chat("--mode", "reference", "-n", "4000", "--ignore-eos", "--no-loop-guard")
        terminal.send("hello\r")
        terminal.until("\x1b[?2004l")
        terminal.more(time.time() + 100)  # the answer has begun
        terminal.send(CTRL_C)
        self.assertIn("[stopped]", terminal.ready())

    def test_ctrl_c_at_the_prompt_drops_the_line_and_tells_how_to_leave(self):
        terminal = self.chat()
        terminal.send("never sent")
        terminal.until("sent")
        terminal.send(CTRL_C)
        self.assertIn("/exit", terminal.ready())
        terminal.say("hello")
        self.assertEqual(self.questions(terminal), ["hello"])

    def test_ctrl_d_on_an_empty_line_leaves(self):
        terminal = self.chat()
        terminal.send(CTRL_D)
        self.assertEqual(terminal.wait(), 0)


class Commands(ChatTest):
    def test_help_lists_all_commands(self):
        shown = self.chat().say("/help")
        for name in ("reset", "system", "set", "regen", "undo", "save", "load", "tree", "stats", "exit"):
            self.assertIn("/" + name, shown)

    def test_an_unknown_command_is_told_and_two_slashes_send_one(self):
        terminal = self.chat()
        self.assertIn('"/restart": no such command', terminal.say("/restart"))
        terminal.say("//usr")
        self.assertEqual(self.questions(terminal), ["/usr"])

    def test_reset_forgets_and_keeps_the_system_message(self):
        terminal = self.chat(*SHORT, "--system", "be brief")
        terminal.say("hello")
        terminal.say("/reset")
        terminal.say("again")
        self.questions(terminal)
        self.assertEqual([m["content"] for m in self.messages()][:2], ["be brief", "again"])

    def test_another_system_message_keeps_the_conversation(self):
        terminal = self.chat()
        terminal.say("hello")
        terminal.say("/system be brief")
        self.assertIn("be brief", terminal.say("/system"))
        terminal.say("again")
        self.assertEqual(self.questions(terminal), ["hello", "again"])
        self.assertEqual(self.messages()[0], {"role": "system", "content": "be brief"})

    def test_set_changes_how_answers_are_drawn(self):
        terminal = self.chat()
        terminal.say("/set temperature 0.7")
        terminal.say("/set seed 5")
        self.assertIn("temperature 0.7", terminal.say("/set"))
        self.assertIn("seed 5", terminal.say("/stats"))
        self.assertIn("expected a whole number", terminal.say("/set seed x"))
        self.assertIn("expected one of draft, temperature", terminal.say("/set warmth 1"))
        self.assertIn("expected a value", terminal.say("/set seed"))

    def test_other_drafters_say_the_same(self):
        terminal = self.chat()
        terminal.say("hello")
        terminal.say("/set draft none")
        self.assertIn("draft none", terminal.say("/set"))
        terminal.say("and now")
        self.questions(terminal)
        drafted = self.messages()
        terminal = self.chat()
        terminal.say("hello")
        terminal.say("and now")
        self.questions(terminal)
        self.assertEqual(self.messages(), drafted)
        self.assertIn("draft", terminal.say("/set draft wishes"))

    def test_drafters_that_come_back_have_what_the_flags_gave_them(self):
        terminal = self.chat("-n", "6", "--draft", "model", "--draft-model", MODEL, "--tree", "chain")
        terminal.say("/set draft none")
        self.assertIn("draft none", terminal.say("/set"))
        terminal.say("/set draft model+ngram")
        self.assertIn("draft model+ngram", terminal.say("/set"))

    def test_regen_draws_the_answer_again(self):
        terminal = self.chat(*SHORT, "--temperature", "1.5", "--seed", "1")
        terminal.say("hello")
        self.questions(terminal)
        first = self.messages()
        terminal.say("/regen")
        self.assertEqual(self.questions(terminal), ["hello"])
        self.assertNotEqual(self.messages(), first)
        self.assertIn("seed 2", terminal.say("/stats"))

    def test_a_regen_that_fails_changes_nothing(self):
        terminal = self.chat(*SHORT, "--context", "128", "--seed", "1")
        terminal.say("hello")
        terminal.say("/system " + "word " * 40)
        self.assertIn("tokens, the context holds 128", terminal.say("/regen"))
        self.assertEqual(self.questions(terminal), ["hello"])
        self.assertIn("seed 1,", terminal.say("/stats"))

    def test_the_context_in_stats_is_that_of_this_conversation(self):
        terminal = self.chat()
        terminal.say("hello")
        self.assertRegex(terminal.say("/stats"), r"context: \d+ of \d+ positions")
        terminal.say("/reset")
        self.assertNotIn("context:", terminal.say("/stats"))

    def test_undo_takes_a_turn_back(self):
        terminal = self.chat()
        self.assertIn("no question yet", terminal.say("/undo"))
        self.assertIn("no question yet", terminal.say("/regen"))
        terminal.say("hello")
        terminal.say("again")
        self.assertIn('took back: "again"', terminal.say("/undo"))
        self.assertEqual(self.questions(terminal), ["hello"])

    def test_a_saved_chat_goes_on_elsewhere_with_the_same_words(self):
        terminal = self.chat()
        terminal.say("hello")
        terminal.say(f"/save {self.file}")
        before = Path(self.file).read_text()
        terminal.say("and now")
        terminal.say(f"/save {self.file}")  # its own file
        here = self.messages()
        Path(self.file).write_text(before)
        other = self.chat()
        self.assertIn("exists", other.say(f"/save {self.file}"))
        other.say(f"/load {self.file}")
        other.say("and now")
        other.say(f"/save {self.file}")
        self.assertEqual(self.messages(), here)
        Path(self.file).write_text("{}")
        self.assertIn("espalier_chat", other.say(f"/load {self.file}"))
        self.assertIn("no such", other.say("/load /nowhere").lower())

    def test_a_disk_that_is_full_does_not_end_the_conversation(self):
        terminal = self.chat()
        terminal.say("hello")
        self.assertIn("No space left", terminal.say("/save /dev/full"))
        self.assertIn("cannot write", terminal.say("/save /proc/chat.json"))
        self.assertEqual(self.questions(terminal), ["hello"])

    def test_tree_shows_the_last_round(self):
        terminal = self.chat()
        self.assertIn("no round yet", terminal.say("/tree"))
        terminal.say("hello")
        self.assertIn("round", terminal.say("/tree"))

    def test_every_word_for_leaving_leaves(self):
        for word in ("/exit", "/bye", "/quit"):
            terminal = self.chat()
            terminal.send(word + "\r")
            self.assertEqual(terminal.wait(), 0)


class Answers(ChatTest):
    def test_a_rate_follows_every_answer_unless_it_is_quiet(self):
        self.assertRegex(self.chat().say("hello"), r"\n[0-9.]+ tokens/s, accept_L [0-9.]+\n")
        self.assertNotIn("tokens/s", self.chat(*SHORT, "--quiet").say("hello"))

    def test_a_full_context_drops_the_oldest_turns_and_says_so(self):
        terminal = self.chat(*SHORT, "--context", "128", "--system", "be brief")
        shown = "".join(terminal.say(f"question {i}") for i in range(8))
        self.assertIn("[the context is full: the oldest turn", shown)
        left = self.questions(terminal)
        self.assertEqual(left, [f"question {i}" for i in range(8)][-len(left):])
        self.assertLess(len(left), 8)
        self.assertEqual(self.messages()[0]["content"], "be brief")
        whole = self.messages()
        fresh = self.chat(*SHORT, "--context", "128")
        Path(self.file).write_text(json.dumps({"espalier_chat": 1, "messages": whole[:-2]}))
        fresh.say(f"/load {self.file}")
        fresh.say("question 7")
        fresh.say(f"/save {self.file}")
        self.assertEqual(self.messages(), whole)

    def test_keep_history_stops_with_a_way_on(self):
        terminal = self.chat(*SHORT, "--context", "128", "--keep-history")
        shown = "".join(terminal.say(f"question {i}") for i in range(8))
        self.assertRegex(shown, r"the prompt has \d+ tokens, the context holds 128: take turns back with /undo")
        terminal.say("/undo")
        terminal.say("/undo")
        self.assertIn("tokens/s", terminal.say("short"))

    def test_an_answer_in_circles_ends(self):
        circle = ("-n", "150", "--ignore-eos", "--logit-bias", "70=1000")
        self.assertIn("[the model repeats itself]", self.chat(*circle).say("hello"))
        self.assertIn("[--max-tokens reached]", self.chat(*circle, "--no-loop-guard").say("hello"))

    def test_seeds_are_fresh_unless_given(self):
        def seed(*flags):
            return re.search(r"seed (\d+),", self.chat(*SHORT, *flags).say("/stats")).group(1)
        self.assertNotEqual(seed(), seed())
        self.assertEqual(seed("--seed", "7"), "7")


class Scripts(unittest.TestCase):
    def run_chat(self, text, *flags):
        return subprocess.run([str(ESPALIER), "chat", "--model", MODEL, *SHORT, *flags], input=text, text=True,
                              capture_output=True, timeout=120, env=environment())

    def test_a_script_gets_the_answers_alone(self):
        result = self.run_chat("hello\n/help\n/undo\n")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertNotIn("tokens/s", result.stdout)
        self.assertNotIn(READY, result.stdout)

    def test_a_script_hears_of_wrong_commands_and_dropped_turns_on_standard_error(self):
        result = self.run_chat("".join(f"question {i}\n" for i in range(8)) + "/restart\n/stats\n", "--context", "128")
        self.assertEqual(result.returncode, 0)
        self.assertIn("espalier: the context is full: the oldest turn", result.stderr)
        self.assertIn("no such command", result.stderr)
        self.assertIn("seed", result.stderr)

    def test_help_tells_what_chat_does_where_nothing_is_given(self):
        shown = subprocess.run([str(ESPALIER), "chat", "--help"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(shown, r"--temperature FLOAT .*\n?.*\[as recommended\]")
        self.assertRegex(shown, r"--seed N .*\n?.*\[fresh\]")
        self.assertLessEqual(max(map(len, shown.splitlines())), 80)

    def test_lines_may_end_as_on_windows(self):
        result = self.run_chat("/undo\r\n/exit\r\nhello\r\n")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertEqual(result.stderr, "espalier: /undo: there is no question yet\n")

    def test_a_message_without_its_last_quotes_is_told(self):
        result = self.run_chat('"""hello\nthere\n')
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("ends inside a message", result.stderr)

    def test_an_input_that_cannot_be_read_ends_the_program(self):
        folder = os.open("/", os.O_RDONLY)
        result = subprocess.run([str(ESPALIER), "chat", "--model", MODEL], stdin=folder, capture_output=True, text=True,
                                timeout=120, env=environment())
        os.close(folder)
        self.assertEqual((result.returncode, result.stderr),
                         (2, "espalier: standard input: cannot read: Is a directory\n"))

    def test_system_is_given_once(self):
        result = self.run_chat("", "--system", "a", "--system-default")
        self.assertEqual((result.returncode, result.stderr),
                         (2, "espalier: --system and --system-default: expected only one of them\n"))

    def test_a_template_can_stand_in_for_the_models_own(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{% for m in messages %}{{ m.content }}{% endfor %}")
            file.flush()
            base = [str(ESPALIER), "generate", "--model", MODEL, "--json", "-n", "1", "hello"]
            own, other = (json.loads(subprocess.run([*base, *flags], capture_output=True, text=True, env=environment(),
                                                    check=True).stdout)["prompt_tokens"]
                          for flags in ([], ["--chat-template", file.name]))
        self.assertLess(other, own)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        ESPALIER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=0)
