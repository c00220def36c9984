"""The chat page in a real browser: python3 tests/page/chat_page_test.py build/bin/print_chat_page SCREENSHOTS

The page, as the server has it compiled in, is served with its policy by a small server whose answers are known (fake_api.py), and
used as people would: typed into, streamed to, stopped, reloaded, cut off, on a phone, by keyboard, in the dark. Screenshots are left in
the folder SCREENSHOTS."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "report"))
import fake_api  # noqa: E402
from browser import Browser  # noqa: E402
from looks import CONTRAST, OUTSIDE  # noqa: E402

PRINTER = Path("build/bin/print_chat_page")
SCREENSHOTS = Path("build/page-test")
KEYS = {"Enter": ("Enter", "Enter", 13, "\r"), "Tab": ("Tab", "Tab", 9, ""), "Escape": ("Escape", "Escape", 27, ""), " ": (" ", "Space", 32, " ")}

LAST = "[...document.querySelectorAll('.turn')].at(-1)"
ANSWER = f"({LAST}?.querySelector('.answer-text').textContent ?? '')"
IDLE = "!document.getElementById('send').hidden && document.querySelectorAll('.writing').length === 0"
# Runs of letters that are shaded, joined where they are one behind the other.
SHADED = f"""(() => {{
  const found = [];
  let before = false;
  for (const span of {LAST}.querySelectorAll('[data-round]')) {{
    const drafted = span.classList.contains('drafted');
    if (drafted && before) found[found.length - 1] += span.textContent;
    else if (drafted) found.push(span.textContent);
    before = drafted;
  }}
  return found;
}})()"""
# What takes focus but has no name, by the browser's own account of the page.
ROLES = {"button", "textbox", "combobox", "spinbutton", "slider", "link", "region", "form", "dialog", "img"}


class ChatPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        policy, page = subprocess.run([str(PRINTER)], capture_output=True, check=True).stdout.split(b"\n", 1)
        cls.server = fake_api.FakeServer(page, policy.decode())
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.shutdown()
        cls.server.server_close()

    def setUp(self):
        self.server.reset()
        self.browser.call("Emulation.clearDeviceMetricsOverride")
        self.browser.open(self.server.url, 1280)
        self.look("localStorage.clear(); sessionStorage.clear()")

    def open(self, width=1280, **options):
        self.browser.open(self.server.url, width, **options)
        if options.get("scripts", True):
            self.browser.wait_for("document.getElementById('drafter').options.length > 2 || document.querySelector('dialog[open]') !== null")

    def look(self, expression):
        return self.browser.evaluate(expression)

    def wait(self, condition):
        self.browser.wait_for(condition)

    def press(self, key, modifiers=0):
        name, code, number, text = KEYS[key]
        for kind in ["keyDown", "keyUp"]:
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=name, code=code, windowsVirtualKeyCode=number, modifiers=modifiers,
                              **({"text": text} if text and kind == "keyDown" else {}))

    def type(self, text):
        self.look("document.getElementById('question').focus()")
        self.browser.call("Input.insertText", text=text)

    def ask(self, text, wait=True):
        self.type(text)
        self.press("Enter")
        if wait:
            self.wait(IDLE)

    def click(self, selector):
        self.look(f"document.querySelector({json.dumps(selector)}).click()")

    def click_button(self, text):
        self.look(f"[...{LAST}.querySelectorAll('button')].find((one) => one.textContent === {json.dumps(text)}).click()")

    def shot(self, name, whole=False):
        time.sleep(0.05)
        self.browser.screenshot(SCREENSHOTS / f"{name}.png", whole)

    def check_page(self, complaints=True):
        if complaints:
            self.assertEqual(self.browser.complaints(), [])
        own = (self.server.url, "data:", "about:", "blob:")
        self.assertEqual([url for url in self.browser.requests() if not url.startswith(own)], [])
        self.assertLessEqual(self.look("document.documentElement.scrollWidth"), self.look("innerWidth"))
        self.assertEqual(self.look(OUTSIDE), [])
        self.assertEqual(self.look(CONTRAST), [])
        self.assertEqual(self.look("window.broken"), None)

    def last_request(self):
        return json.loads(self.server.bodies[-1])

    # ---- asking ----

    def test_a_question_is_answered_as_it_streams(self):
        self.server.goes_on.clear()
        self.open()
        self.shot("welcome")
        self.check_page()
        self.ask("What is an espalier?", wait=False)
        self.wait(f"{ANSWER}.length > 100")
        self.assertTrue(self.look("document.getElementById('send').hidden"))
        self.assertRegex(self.look("document.getElementById('live').textContent"), r"^\d+ tokens · \d+\.\d tokens/s · accept length \d\.\d\d$")
        self.assertEqual(self.look("document.getElementById('announcer').textContent"), "", "nothing is read aloud token by token")
        self.shot("streaming")
        self.server.goes_on.set()
        self.wait(IDLE)
        self.assertEqual(self.look(ANSWER), fake_api.ESSAY)
        self.assertEqual(self.look("document.getElementById('announcer').textContent"), "Answer: " + fake_api.ESSAY)
        figures = self.look(f"{LAST}.querySelector('.figures').textContent")
        for part in ["tokens/s", "accept length", "guesses accepted", "12 of them from the cache", "seed 4711"]:
            self.assertIn(part, figures)
        self.shot("answered")
        self.check_page()

    def test_what_was_drafted_is_shaded_letter_by_letter(self):
        self.open()
        self.ask("What is an espalier?")
        self.assertEqual(self.look(SHADED), fake_api.drafted_texts(fake_api.ESSAY))
        style = self.look("(() => { const style = getComputedStyle(document.querySelector('.answer .drafted:not(.blank)')); return [style.textDecorationStyle, style.backgroundColor]; })()")
        self.assertEqual(style[0], "dotted", "not by colour alone")
        self.assertNotEqual(style[1], "rgba(0, 0, 0, 0)")

    def test_characters_and_events_that_come_apart_are_put_together(self):
        self.open()
        self.ask("bytes, please")
        self.assertEqual(self.look(ANSWER), fake_api.BYTES)
        self.assertNotIn("\ufffd", "".join(self.look(SHADED)))
        self.check_page()

    def test_a_request_carries_the_conversation_and_asks_for_rounds_and_a_receipt(self):
        self.open()
        self.ask("first")
        self.ask("second")
        request = self.last_request()
        self.assertEqual([message["role"] for message in request["messages"]], ["system", "user", "assistant", "user"])
        self.assertEqual(request["messages"][0]["content"], "Be brief.")
        self.assertEqual(request["messages"][2]["content"], fake_api.ESSAY)
        for field in ["stream", "rounds", "receipt", "timings_per_token", "return_token_ids"]:
            self.assertIs(request[field], True, field)
        self.assertEqual(request["speculation"], {"draft": "auto"})
        self.assertNotIn("temperature", request)
        self.assertNotIn("seed", request)

    def test_a_server_whose_answers_depend_on_their_company_is_asked_for_no_receipt(self):
        self.server.props["batch_invariant"] = False
        self.open()
        self.ask("first")
        self.assertIs(self.last_request()["receipt"], False)
        self.assertNotIn("receipt", self.look(f"{LAST}.textContent"))

    def test_code_is_set_apart_and_its_fences_are_not_shown(self):
        self.open()
        self.ask("some code")
        self.assertEqual(self.look(f"{LAST}.querySelectorAll('pre').length"), 1)
        code = fake_api.CODE.split("```python\n")[1].split("```")[0]
        self.assertEqual(self.look(f"{LAST}.querySelector('pre').textContent"), code)
        self.assertIn("monospace", self.look(f"getComputedStyle({LAST}.querySelector('code')).fontFamily").lower())
        self.assertEqual(self.look(f"{LAST}.querySelector('.language').textContent"), "python")
        self.assertNotIn("```", self.look(ANSWER))
        self.shot("code")
        self.check_page()

    def test_text_is_never_markup(self):
        self.open()
        self.ask("hostile <img src=x onload='window.broken=1' src='data:,'>")
        self.assertEqual(self.look(ANSWER), fake_api.HOSTILE)
        self.assertEqual(self.look("document.querySelectorAll('main img, main b').length"), 0)
        self.click_button("Rounds")
        self.open()
        self.assertEqual(self.look(ANSWER), fake_api.HOSTILE)
        self.check_page()

    # ---- stopping, failing, coming back ----

    def test_stop_ends_the_request_and_keeps_what_is_there(self):
        for how in ["button", "key"]:
            with self.subTest(how=how):
                self.server.gone.clear()
                self.open()
                self.ask("slow, please", wait=False)
                self.wait(f"{ANSWER}.length > 100")
                if how == "button":
                    self.shot("stopping")
                    self.click("#stop")
                else:
                    self.press("Escape")
                self.wait(IDLE)
                self.assertTrue(self.server.gone.wait(10), "the server still writes for nobody")
                self.assertTrue(fake_api.ESSAY.startswith(self.look(ANSWER)))
                self.assertIn("Stopped.", self.look(f"{LAST}.textContent"))
                self.check_page()

    def test_focus_is_never_lost_by_sending_and_stopping(self):
        self.open()
        self.type("slow, please")
        self.look("document.getElementById('send').focus()")
        self.press("Enter")
        self.wait("!document.getElementById('stop').hidden")
        self.assertEqual(self.look("document.activeElement.id"), "stop")
        self.press("Enter")
        self.wait(IDLE)
        self.assertEqual(self.look("document.activeElement.id"), "question")

    def test_an_error_while_streaming_is_shown_in_the_answer(self):
        self.open()
        self.ask("error, please")
        self.assertIn("the device has failed; request chatcmpl-1", self.look(f"{LAST}.querySelector('.failed').textContent"))
        self.assertGreater(len(self.look(ANSWER)), 20)
        self.assertIn("The answer failed.", self.look("document.getElementById('announcer').textContent"))
        self.shot("error")
        self.check_page()

    def test_a_lost_connection_is_shown_and_the_question_can_be_asked_again(self):
        self.open()
        self.ask("lost, please")
        self.assertIn("connection was lost", self.look(f"{LAST}.querySelector('.failed').textContent"))
        self.click_button("Try again")
        self.wait(IDLE)
        self.assertEqual(len(self.server.bodies), 2)
        self.assertEqual(self.server.bodies[0], self.server.bodies[1])
        self.assertEqual(self.look("document.querySelectorAll('.turn').length"), 1)

    def test_a_refusal_is_shown_and_left_out_of_what_is_said_next(self):
        self.open()
        self.ask("refused, please")
        self.assertIn("do not fit", self.look(f"{LAST}.querySelector('.failed').textContent"))
        self.ask("next")
        self.assertEqual([message["content"] for message in self.last_request()["messages"]], ["Be brief.", "next"])

    def test_an_answer_that_reached_its_longest_length_says_so(self):
        self.open()
        self.ask("short, please")
        self.assertIn("longest length", self.look(f"{LAST}.querySelector('.note').textContent"))

    def test_a_conversation_that_another_tab_changed_is_shown(self):
        self.open()
        self.ask("first")
        self.look("""(() => {
          const turns = JSON.parse(localStorage.getItem('espalier.conversation'));
          localStorage.setItem('espalier.conversation', JSON.stringify([...turns, {...turns[0], question: 'elsewhere'}]));
          window.dispatchEvent(new StorageEvent('storage', {key: 'espalier.conversation'}));
        })()""")
        self.assertEqual(self.look("[...document.querySelectorAll('.question-text')].map((one) => one.textContent)"), ["first", "elsewhere"])

    def test_a_reload_keeps_the_conversation_with_its_shades_rounds_and_receipts(self):
        self.open()
        self.ask("What is an espalier?")
        self.ask("some code")
        shaded, page = self.look(SHADED), self.look("document.getElementById('turns').textContent")
        self.open()
        self.assertEqual(self.look(SHADED), shaded)
        self.assertEqual(self.look("document.getElementById('turns').textContent"), page)
        self.click_button("Rounds")
        self.assertTrue(self.look(f"{LAST}.querySelector('svg.tree') !== null"))
        self.check_page()

    def test_a_reload_in_the_midst_of_an_answer_keeps_its_beginning(self):
        self.open()
        self.ask("slow, please", wait=False)
        self.wait(f"{ANSWER}.length > 100")
        self.open()
        self.assertTrue(fake_api.ESSAY.startswith(self.look(ANSWER)))
        self.assertGreater(len(self.look(ANSWER)), 100)
        self.assertIn("The page was left", self.look(f"{LAST}.textContent"))
        self.assertTrue(self.look(IDLE))

    def test_a_conversation_is_cleared_and_that_can_be_undone(self):
        self.open()
        self.ask("What is an espalier?")
        self.click("#new")
        self.assertEqual(self.look("document.querySelectorAll('.turn').length"), 0)
        self.assertEqual(self.look("localStorage.getItem('espalier.conversation')"), None)
        self.click("#notice button")
        self.assertEqual(self.look(ANSWER), fake_api.ESSAY)
        self.click("#new")
        self.open()
        self.assertEqual(self.look("document.querySelectorAll('.turn').length"), 0)

    def test_the_last_question_can_be_changed(self):
        self.open()
        self.ask("first")
        self.ask("some cod")
        self.click_button("Edit")
        self.assertEqual(self.look("document.getElementById('question').value"), "some cod")
        self.browser.call("Input.insertText", text="e")
        self.press("Enter")
        self.wait(IDLE)
        self.assertEqual(self.look("document.querySelectorAll('.turn').length"), 2)
        self.assertEqual(self.last_request()["messages"][-1]["content"], "some code")

    def test_what_an_older_page_kept_is_not_believed(self):
        for kept in ["{", "7", "null", '[{"question": 1}]', '[{"question": "a", "answer": {"text": "b", "runs": [[1]], "rounds": []}}]',
                     '[{"question": "a", "answer": {"text": "b", "runs": [], "rounds": [{"parent": [3], "text": ["a"], "score": [0], "accepted": [true]}]}}]']:
            self.look(f"localStorage.setItem('espalier.conversation', {json.dumps(kept)}); localStorage.setItem('espalier.settings', {json.dumps(kept)})")
            self.open()
            self.assertEqual(self.look("document.querySelectorAll('.turn').length"), 0)
            self.check_page()

    def test_a_browser_that_keeps_nothing_still_chats(self):
        script = self.browser.call("Page.addScriptToEvaluateOnNewDocument", source="""
          for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, {get() { throw new DOMException('no', 'SecurityError'); }});""")
        try:
            self.server.key = "secret"
            self.open()
            self.give_key("secret")
            self.ask("What is an espalier?")
            self.assertEqual(self.look(ANSWER), fake_api.ESSAY)
        finally:
            self.browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])

    def test_rounds_that_are_too_many_to_keep_are_forgotten_before_texts_are(self):
        self.open()
        self.ask("What is an espalier?")
        self.look("""(() => {
          const [turn] = JSON.parse(localStorage.getItem('espalier.conversation'));
          const answer = {...turn.answer, rounds: Array(400).fill(turn.answer.rounds).flat()};
          const turns = Array.from({length: 4}, () => ({...turn, answer}));
          window.kept = new ChatStore().saveTurns(turns);
        })()""")
        self.assertTrue(self.look("window.kept"))
        kept = json.loads(self.look("localStorage.getItem('espalier.conversation')"))
        self.assertEqual([turn["answer"]["text"] for turn in kept], [fake_api.ESSAY] * 4)
        self.assertEqual(kept[0]["answer"]["rounds"], [])
        self.look("localStorage.clear()")

    # ---- the server ----

    def give_key(self, key):
        self.wait("document.getElementById('key-dialog').open")
        self.look("document.getElementById('key').focus()")
        self.browser.call("Input.insertText", text=key)
        self.press("Enter")

    def test_a_key_is_asked_for_and_kept_in_this_tab_only(self):
        self.server.key = "secret"
        self.open()
        self.wait("document.getElementById('key-dialog').open")
        self.assertTrue(self.look("document.getElementById('key-said').hidden"))
        self.give_key("wrong")
        self.wait("!document.getElementById('key-said').hidden")
        self.shot("key")
        self.give_key("secret")
        self.wait("!document.getElementById('key-dialog').open")
        self.ask("What is an espalier?")
        self.assertEqual(self.look(ANSWER), fake_api.ESSAY)
        self.assertEqual(self.look("sessionStorage.getItem('espalier.key')"), "secret")
        self.assertNotIn("secret", self.look("JSON.stringify(localStorage)"))
        self.open()
        self.wait("document.getElementById('model').textContent !== ''")
        self.assertFalse(self.look("document.getElementById('key-dialog').open"))

    def test_a_key_that_is_refused_while_asking_is_asked_for_again(self):
        self.open()
        self.server.key = "secret"
        self.ask("What is an espalier?", wait=False)
        self.give_key("secret")
        self.wait(IDLE)
        self.assertEqual(self.look(ANSWER), fake_api.ESSAY)

    def test_whoever_has_no_key_is_told_so_in_the_answer(self):
        self.open()
        self.server.key = "secret"
        self.ask("What is an espalier?", wait=False)
        self.wait("document.getElementById('key-dialog').open")
        self.press("Escape")
        self.wait(IDLE)
        self.assertIn("key is wrong", self.look(f"{LAST}.querySelector('.failed').textContent"))

    def test_a_server_that_is_loading_is_waited_for(self):
        self.server.loading = 2
        self.browser.open(self.server.url, 1280)
        self.wait("document.getElementById('server-state').textContent.includes('being loaded')")
        self.shot("loading")
        self.ask("What is an espalier?")
        self.assertEqual(self.look("document.getElementById('server-state').textContent"), "")
        self.assertEqual(self.look(ANSWER), fake_api.ESSAY)

    # ---- settings ----

    def set(self, name, value):
        self.look(f"""(() => {{ const field = document.getElementById('{name}'); field.value = {json.dumps(value)};
                      field.dispatchEvent(new Event('change')); }})()""")

    def test_settings_are_sent_and_kept(self):
        self.open()
        self.click("#open-settings")
        self.assertEqual(self.look("document.getElementById('system').value"), "Be brief.")
        self.assertEqual(self.look("document.getElementById('temperature').placeholder"), "0.2")
        for name, value in [("system", "Speak like a gardener."), ("temperature", "0.7"), ("seed", "-9223372036854775807"), ("length", "50"), ("drafter", "ngram")]:
            self.set(name, value)
        self.shot("settings")
        self.check_page()
        self.open()
        self.ask("What is an espalier?")
        self.assertIn('"seed":-9223372036854775807}', self.server.bodies[-1], "as it was typed, not rounded")
        request = self.last_request()
        self.assertEqual((request["temperature"], request["max_tokens"], request["speculation"]), (0.7, 50, {"draft": "ngram"}))
        self.assertEqual(request["messages"][0], {"role": "system", "content": "Speak like a gardener."})
        self.assertIn("seed -9223372036854775807", self.look(f"{LAST}.querySelector('.figures').textContent"))
        self.click("#open-settings")
        self.click("#reset")
        self.click("#close-settings")
        self.ask("again")
        request = self.last_request()
        self.assertNotIn("temperature", request)
        self.assertEqual(request["messages"][0]["content"], "Be brief.")

    def test_an_empty_system_message_is_not_sent(self):
        self.open()
        self.set("system", "")
        self.ask("What is an espalier?")
        self.assertEqual([message["role"] for message in self.last_request()["messages"]], ["user"])

    def test_settings_that_cannot_be_are_refused_and_not_sent(self):
        self.open()
        self.click("#open-settings")
        for name, value in [("temperature", "2.5"), ("seed", "twelve"), ("seed", "9223372036854775808"), ("length", "0")]:
            self.set(name, value)
            self.assertIn("Expected", self.look(f"document.getElementById('{name}-error').textContent"))
            self.assertEqual(self.look(f"document.getElementById('{name}').getAttribute('aria-invalid')"), "true")
        self.shot("settings-wrong")
        self.click("#close-settings")
        self.ask("What is an espalier?")
        self.assertFalse({"temperature", "seed", "max_tokens"} & set(self.last_request()))

    # ---- rounds and receipts ----

    def test_every_round_of_an_answer_has_its_tree(self):
        self.open()
        self.ask("some code")
        _, steps = fake_api.steps_of(fake_api.CODE)
        self.click_button("Rounds")
        for number, step in enumerate(steps):
            self.assertEqual(self.look(f"{LAST}.querySelector('.round-place').textContent"), f"round {number + 1} of {len(steps)}")
            self.assertEqual(self.look("document.querySelectorAll('svg.tree g.taken').length"), len(step.given))
            self.assertEqual(self.look("document.querySelectorAll('svg.tree g.guess').length"), step.guesses - len(step.given) + 1)
            own = json.dumps(step.given[-1].decode())
            self.assertEqual(self.look("document.querySelector('svg.tree g.bonus text').textContent"), own)
            self.assertEqual(self.look("document.querySelectorAll('.tree-list li').length"), step.guesses + 2)
            self.assertEqual(self.look("document.querySelectorAll('.chosen').length > 0"), step.given != [b"`"] and self.look("document.querySelector('.chosen') !== null"))
            self.click("[aria-label='next round']")
        self.check_page()
        self.click_button("Rounds")
        self.assertEqual(self.look("document.querySelectorAll('.rounds, .chosen').length"), 0)

    def test_a_click_on_a_word_shows_the_round_it_came_from(self):
        self.open()
        self.ask("What is an espalier?")
        self.look(f"[...{LAST}.querySelectorAll('.drafted')].at(5).click()")
        chosen = self.look(f"[...{LAST}.querySelectorAll('.drafted')].at(5).dataset.round")
        self.assertIn(f"round {int(chosen) + 1} of", self.look(f"{LAST}.querySelector('.round-place').textContent"))
        self.shot("rounds", whole=True)
        self.check_page()

    def test_many_rounds_are_a_list_with_pages(self):
        self.open()
        self.ask("many, please")
        rounds = len(fake_api.steps_of(fake_api.MANY)[1])
        self.click_button("Rounds")
        self.look(f"{LAST}.querySelector('.all-rounds summary').click()")
        self.wait(f"{LAST}.querySelectorAll('.all-rounds tbody tr').length === 20")
        self.click("[aria-label='later rounds']")
        self.assertEqual(self.look(f"{LAST}.querySelector('.all-rounds [role=status]').textContent"), f"21–40 of {rounds}")
        self.click("[aria-label='tree of round 23']")
        self.assertIn("round 23 of", self.look(f"{LAST}.querySelector('.round-place').textContent"))
        self.look(f"{LAST}.querySelector('.rounds').scrollIntoView()")
        self.shot("many-rounds", whole=True)
        self.check_page()

    def test_a_receipt_is_downloaded_byte_for_byte(self):
        self.open()
        self.ask("What is an espalier?")
        with tempfile.TemporaryDirectory() as folder:
            self.browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
            self.click_button("Download receipt")
            deadline = time.monotonic() + 20
            while not [name for name in os.listdir(folder) if name.endswith(".json")] and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertEqual((Path(folder) / "receipt-chatcmpl-1.json").read_text(), fake_api.RECEIPT + "\n")
        self.check_page()

    def test_answers_and_receipts_are_copied(self):
        self.open()
        self.look("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        self.ask("What is an espalier?")
        self.click_button("Copy receipt")
        self.assertEqual(self.look("window.copied"), fake_api.RECEIPT)
        self.click_button("Copy")
        self.assertEqual(self.look("window.copied"), fake_api.ESSAY)
        self.wait("document.getElementById('notice').textContent === 'The answer is copied.'")

    # ---- everybody ----

    def test_it_can_be_read_at_every_width_in_light_and_dark(self):
        for width in [1280, 768, 320]:
            for dark in [False, True]:
                with self.subTest(width=width, dark=dark):
                    self.open(width, dark=dark)
                    self.look("localStorage.clear()")
                    self.open(width, dark=dark)
                    self.ask("What is an espalier?") if width > 600 else self.send_by_button("What is an espalier?")
                    self.ask("some code") if width > 600 else self.send_by_button("some code")
                    name = f"chat-{width}-{'dark' if dark else 'light'}"
                    self.shot(name)
                    self.check_page()
                    self.click_button("Rounds")
                    self.click("[aria-label='next round']")
                    self.click("[aria-label='next round']")
                    self.shot(f"{name}-rounds", whole=True)
                    self.check_page()
                    self.click("#open-settings")
                    self.shot(f"{name}-settings")
                    self.check_page()

    def send_by_button(self, text):
        self.type(text)
        self.click("#send")
        self.wait(IDLE)

    def test_at_twice_the_size_nothing_is_lost(self):
        self.open()
        self.browser.call("Emulation.setDeviceMetricsOverride", width=640, height=400, deviceScaleFactor=2, mobile=False)
        self.ask("What is an espalier?")
        self.shot("zoomed")
        self.check_page()
        self.assertEqual(self.look("getComputedStyle(document.getElementById('composer')).position"), "static", "it would cover what is read")

    def test_who_reads_further_up_stays_there(self):
        self.open()
        for _ in range(2):
            self.ask("What is an espalier?")
        self.server.goes_on.clear()
        self.ask("many, please", wait=False)
        self.wait(f"{ANSWER}.length > 50")
        self.look("scrollTo(0, 0)")
        self.server.goes_on.set()
        self.wait(IDLE)
        self.assertEqual(self.look("scrollY"), 0)

    def test_the_keyboard_reaches_everything_in_the_order_of_the_page(self):
        self.open()
        self.ask("What is an espalier?")
        self.open()  # nothing has focus yet
        seen = []
        for _ in range(10):
            self.press("Tab")
            seen.append(self.look("document.activeElement.id || document.activeElement.textContent"))
            outline = self.look("getComputedStyle(document.activeElement).outlineStyle")
            self.assertNotEqual(outline, "none", seen[-1])
        self.assertEqual(seen[:10], ["Skip to your question", "new", "open-settings", "Edit", "Copy", "Try again", "Rounds", "Copy receipt", "Download receipt", "question"])

    def test_everything_has_a_name_and_a_place_for_screen_readers(self):
        self.open()
        self.ask("What is an espalier?")
        self.click_button("Rounds")
        for dialog in [None, "#open-settings"]:
            if dialog:
                self.click(dialog)
            nodes = self.browser.call("Accessibility.getFullAXTree")["nodes"]
            found = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
            self.assertEqual([role for role, name in found if role in ROLES and not name], [])
            if not dialog:
                roles = [role for role, _ in found]
                for landmark in ["banner", "main", "form"]:
                    self.assertEqual(roles.count(landmark), 1, landmark)
                self.assertEqual([name for role, name in found if role == "heading"], ["Espalier", "You", "Espalier"])
            else:
                self.assertIn(("dialog", "Settings"), found)

    def test_a_phone_sends_by_its_button_and_writes_lines_by_enter(self):
        self.open(390)
        self.browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
        self.open(390)
        try:
            self.ask("line one", wait=False)
            self.browser.call("Input.insertText", text="line two")
            self.assertEqual(self.look("document.getElementById('question').value"), "line one\nline two")
            self.shot("phone-typing")
            self.click("#send")
            self.wait(IDLE)
            self.assertEqual(self.last_request()["messages"][-1]["content"], "line one\nline two")
            self.shot("phone")
            self.check_page()
        finally:
            self.browser.call("Emulation.setTouchEmulationEnabled", enabled=False)

    def test_who_wants_less_motion_gets_none(self):
        self.open()
        self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
        self.ask("slow, please", wait=False)
        self.wait(f"{ANSWER}.length > 100")
        self.assertEqual(self.look("document.getAnimations().length"), 0)
        self.click("#stop")

    def test_without_scripts_the_page_says_what_it_needs(self):
        self.open(scripts=False)
        self.assertIn("JavaScript", self.look("document.querySelector('noscript').textContent"))

    def test_the_policy_lets_nothing_else_run(self):
        self.open()
        self.look("(() => { const script = document.createElement('script'); script.textContent = 'window.broken = 1'; document.body.append(script); })()")
        self.assertEqual(self.look("window.broken"), None)
        self.assertTrue(any("Content Security Policy" in text for text in self.browser.complaints()))

    # ---- parts of the script ----

    def test_events_are_read_however_they_are_cut(self):
        self.open()
        text = "data: a\r\n\r\n: comment\n\ndata:b\ndata: c\n\nevent: x\rdata: d\r\rdata: not whole"
        for size in range(1, len(text)):
            parts = [text[i:i + size] for i in range(0, len(text), size)]
            found = self.look(f"(() => {{ const parser = new EventParser(); return {json.dumps(parts)}.flatMap((part) => parser.push(part)); }})()")
            self.assertEqual(found, ["a", "b\nc", "d"], size)

    def drafted(self, *events):
        """What is shaded of events of text, rounds and complete tokens."""
        return self.look(f"""(() => {{ const text = new DraftedText();
          return {json.dumps(events)}.flatMap((event) => text.push(...event)).map((run) => [run.text, run.drafted, run.round]); }})()""")

    def test_tokens_that_are_not_in_the_text_as_they_are_told_shift_no_others(self):
        self.open()
        tree = lambda *texts: {"text": list(texts), "accepted": [True] * len(texts)}  # noqa: E731
        # SentencePiece drops the first space.
        self.assertEqual(self.drafted(["One", [], 1], [" two three", [tree(" One", " two")], 2]),
                         [["One", False, -1], [" two", True, 0], [" three", False, 0]])
        # A control token has no text.
        self.assertEqual(self.drafted(["a", [], 1], [" b c", [tree("a", "<|x|>", " b")], 3]), [["a", False, -1], [" b", True, 0], [" c", False, 0]])
        # Text that is held back comes with a later event, and the tokens with it.
        self.assertEqual(self.drafted(["a", [], 1], [" be", [tree("a", " behind", " it")], 0], ["hind it now", [], 3]),
                         [["a", False, -1], [" be", True, 0], ["hind", True, 0], [" it", True, 0], [" now", False, 0]])
        # Letters of tokens that are bytes are shared out; the next word is found again.
        self.assertEqual(self.drafted(["a", [], 1], ["\u6728 b c", [tree("a", "\ufffd", "\ufffd", " b")], 4]),
                         [["a", False, -1], ["\u6728", True, 0], [" b", True, 0], [" c", False, 0]])

    def test_the_bytes_of_an_object_are_taken_as_they_came(self):
        self.open()
        for json_text, expected in [('{"a":"\\"receipt\\":{}","receipt":{"x":1.0,"y":"}\\""},"z":2}', '{"x":1.0,"y":"}\\""}'), ('{"receipt":null}', None), ('{"a":1}', None)]:
            self.assertEqual(self.look(f"rawObject({json.dumps(json_text)}, 'receipt')"), expected)


if __name__ == "__main__":
    if len(sys.argv) > 2 and not sys.argv[2].startswith("-"):
        SCREENSHOTS = Path(sys.argv.pop(2)).resolve()
    if len(sys.argv) > 1 and not sys.argv[1].startswith(("-", "ChatPage")):
        PRINTER = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
