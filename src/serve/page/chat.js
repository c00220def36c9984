// The chat: a list of turns, each a question and its answer, of which the last may be under way.

const kExamples = ["Write a haiku about an apple tree.", "How does a tree grow along a wall?", "Write a function that reverses a list."];
const kSaveEvery = 2000;  // milliseconds, while an answer is being written
const kWaitForServer = 1000;

// Fails when the signal comes.
const aborted = (signal) => new Promise((_, failed) => signal.addEventListener("abort", () => failed(signal.reason)));

const emptyAnswer = () => ({text: "", runs: [], rounds: [], end: "left"});

class Chat {
  constructor() {
    this.store = new ChatStore();
    this.api = new ChatApi(this.store);
    this.settings = new ChatSettings(this.store);
    this.turns = this.store.turns;
    this.views = [];
    this.stopping = null;  // an AbortController, while an answer is under way
    this.listen();
    this.showAll();
    this.meet();
  }

  listen() {
    byId("composer").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    byId("question").addEventListener("keydown", (event) => this.key(event));
    byId("question").addEventListener("input", () => this.fitQuestion());
    byId("stop").addEventListener("click", () => this.stop());
    byId("new").addEventListener("click", () => this.clear());
    byId("open-settings").addEventListener("click", () => this.settings.open());
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !document.querySelector("dialog[open]")) this.stop(); });
    window.addEventListener("pagehide", () => { if (this.stopping) this.save(); });
    window.addEventListener("storage", (event) => { if (event.key === kConversation) this.takeOver(); });
    byId("examples").replaceChildren(...kExamples.map((text) => make("li", {}, button(text, text, () => this.ask(text)))));
  }

  // Another tab has changed the conversation.
  takeOver() {
    if (this.stopping) return;
    this.turns = this.store.turns;
    this.showAll();
  }

  // ---- the server ----

  meet() {
    this.ready = this.meetServer();
    this.ready.catch(() => {});  // whoever asks a question hears of it
    return this.ready;
  }

  // Until it is there; a server that is loading says so.
  async meetServer() {
    for (;;) {
      try {
        const props = await this.withKey(() => this.api.props());
        this.settings.learn(props);
        byId("server-state").textContent = "";
        byId("model").textContent = props.model_alias ?? props.model_path ?? "";
        return;
      } catch (error) {
        byId("server-state").textContent = error.message;
        if (error.status === 401) throw error;
      }
      await new Promise((done) => setTimeout(done, kWaitForServer));
    }
  }

  // Does what may need a key; asks for one where it is missing or wrong.
  async withKey(act) {
    for (;;) {
      try {
        return await act();
      } catch (error) {
        if (error.status !== 401 || !(await this.askKey(this.store.key === "" ? "" : error.message))) throw error;
      }
    }
  }

  // Whether one was given.
  askKey(said) {
    const dialog = byId("key-dialog"), form = byId("key-form");
    byId("key-said").hidden = said === "";
    byId("key-said").textContent = said;
    byId("key").value = "";
    if (!dialog.open) dialog.showModal();
    byId("key").focus();
    return new Promise((done) => {
      const end = (given) => { dialog.onclose = form.onsubmit = byId("no-key").onclick = null; dialog.close(); done(given); };
      dialog.onclose = byId("no-key").onclick = () => end(false);
      form.onsubmit = (event) => {
        event.preventDefault();
        if (byId("key").value.trim() === "") return;
        this.store.key = byId("key").value.trim();
        end(true);
      };
    });
  }

  // ---- asking ----

  key(event) {
    const newLine = event.shiftKey || event.isComposing || matchMedia("(pointer: coarse)").matches;
    if (event.key !== "Enter" || newLine) return;
    event.preventDefault();
    this.send();
  }

  send() {
    const text = byId("question").value;
    if (text.trim() === "" || this.stopping) return;
    byId("question").value = "";
    this.fitQuestion();
    this.ask(text);
  }

  fitQuestion() {
    const box = byId("question");
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight + 2}px`;
  }

  ask(question) {
    if (this.stopping) return;
    this.say("");
    this.views.at(-1)?.showButtons(false);
    this.turns.push({question, answer: emptyAnswer()});
    this.add(this.turns.at(-1));
    this.showFrame();
    scrollTo(0, document.documentElement.scrollHeight);
    return this.run();
  }

  // What the model is told: turns without an answer are left out, since templates want question and answer in turn.
  messages() {
    return this.turns.filter(({answer}, i) => answer.text !== "" || i === this.turns.length - 1)
      .flatMap(({question, answer}) => [{role: "user", content: question}, ...(answer.text === "" ? [] : [{role: "assistant", content: answer.text}])]);
  }

  // Gets the answer of the last turn, whatever becomes of it.
  async run() {
    const {answer} = this.turns.at(-1), view = this.views.at(-1), stopping = new AbortController();
    this.setBusy(stopping);
    try {
      await Promise.race([this.ready.catch(() => this.meet()), aborted(stopping.signal)]);
      await this.withKey(() => this.receive(answer, view, stopping.signal));
    } catch (error) {
      if (stopping.signal.aborted) answer.end = "stopped";
      else Object.assign(answer, {end: "failed", error: error.message});
    }
    const follows = this.atEnd();
    this.setBusy(null);
    view.finish(view === this.views.at(-1));
    this.save();
    byId("announcer").textContent = answer.error ? `The answer failed. ${answer.error}` : `${answer.end === "stopped" ? "Stopped" : "Answer"}: ${answer.text}`;
    this.follow(follows);
  }

  async receive(answer, view, signal) {
    const drafted = new DraftedText(), seed = this.settings.value("seed");
    if (seed !== "") answer.seed = seed;  // with all its digits, which an event's number may not have
    for await (const event of this.api.answer(this.settings.request(this.messages()), signal)) {
      const follows = this.atEnd();
      this.takeEvent(answer, event, view, drafted);
      this.showLive(answer);
      this.follow(follows);
      this.saveSometimes();
    }
  }

  takeEvent(answer, event, view, drafted) {
    const choice = event.choices?.[0], text = choice?.delta?.content ?? "", rounds = (choice?.rounds ?? []).filter(isRound);
    answer.id = event.id;
    if (event.timings) answer.timings = event.timings;
    if (event.usage) answer.usage = event.usage;
    if (Number.isFinite(event.seed)) answer.seed ??= String(event.seed);
    if (event.receipt) answer.receipt = event.receipt;
    if (choice?.finish_reason) answer.end = choice.finish_reason;
    answer.rounds.push(...rounds.map(({parent, text, score, accepted}) => ({parent, text, score, accepted})));
    const runs = drafted.push(text, rounds, choice?.token_ids?.length ?? 0);
    answer.text += text;
    answer.runs.push(...runs.map((run) => [run.text.length, run.drafted ? 1 : 0, run.round]));
    view.write(runs);
  }

  stop() {
    this.stopping?.abort();
  }

  // ---- other actions ----

  edit() {
    const {question} = this.turns.at(-1);
    this.change(this.turns.slice(0, -1), "Your question is below, to be changed.");
    byId("question").value = question;
    this.fitQuestion();
    byId("question").focus();
  }

  retry() {
    const turn = this.turns.at(-1);
    turn.answer = emptyAnswer();
    this.views.pop().element.remove();
    this.add(turn);
    byId("question").focus();
    this.run();
  }

  clear() {
    this.stop();
    this.change([], "The conversation is cleared.");
    byId("question").focus();
  }

  // Other turns, and a way back.
  change(turns, said) {
    const before = this.turns;
    this.turns = turns;
    this.showAll();
    this.save();
    this.say(said, () => { this.turns = before; this.showAll(); this.save(); byId("question").focus(); });
  }

  // ---- the page ----

  say(text, undo = null) {
    byId("notice").replaceChildren(...(text === "" ? [] : [make("span", {}, text)]),
      ...(undo ? [button("Undo", "undo", () => { this.say(""); undo(); })] : []));
  }

  add(turn) {
    const view = new TurnView(turn, {edit: () => this.edit(), retry: () => this.retry(), say: (text) => this.say(text)});
    this.views.push(view);
    byId("turns").append(view.element);
    return view;
  }

  showAll() {
    this.views = [];
    byId("turns").replaceChildren();
    this.turns.forEach((turn, i) => this.add(turn).finish(i === this.turns.length - 1));
    this.showFrame();
    scrollTo(0, document.documentElement.scrollHeight);
  }

  showFrame() {
    byId("welcome").hidden = this.turns.length > 0;
    byId("new").hidden = this.turns.length === 0;
    byId("shading").hidden = this.turns.length === 0;
    byId("live").textContent = "";
  }

  setBusy(stopping) {
    const held = [byId("send"), byId("stop")].includes(document.activeElement);
    this.stopping = stopping;
    byId("send").hidden = stopping !== null;
    byId("stop").hidden = stopping === null;
    if (held) (stopping ? byId("stop") : byId("question")).focus();  // what is hidden holds no focus
    byId("live").textContent = stopping ? "waiting for the first token" : "";
  }

  showLive({timings, rounds}) {
    if (!timings) return;
    const rate = timings.predicted_per_second > 0 ? `${timings.predicted_per_second.toFixed(1)} tokens/s` : "";
    const length = timings.draft_n > 0 ? `accept length ${acceptLength({timings, rounds}).toFixed(2)}` : "";
    byId("live").textContent = [counted(timings.predicted_n, "token"), rate, length].filter(Boolean).join(" \u00b7 ");
  }

  // Who reads further up is left there.
  atEnd() {
    return innerHeight + scrollY >= document.documentElement.scrollHeight - 40;
  }
  follow(follows) {
    if (follows) scrollTo(0, document.documentElement.scrollHeight);
  }

  save() {
    this.saved = performance.now();
    this.store.saveTurns(this.turns);
  }
  saveSometimes() {
    if (performance.now() - (this.saved ?? 0) > kSaveEvery) this.save();
  }
}

new Chat();
