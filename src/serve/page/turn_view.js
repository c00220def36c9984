// A question and its answer on the page.

const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // a page that came over plain HTTP may not
    const box = make("textarea", {class: "hidden"});
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
};

const saveFile = (name, text) => {
  const link = make("a", {download: name, href: URL.createObjectURL(new Blob([text], {type: "application/json"}))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

// Those that an answer has, as short texts.
const figuresOf = (answer) => {
  const {timings, rounds, usage} = answer, figures = [];
  if (timings) figures.push(counted(timings.predicted_n, "token"));
  if (timings?.predicted_per_second > 0) figures.push(`${timings.predicted_per_second.toFixed(1)} tokens/s`);
  if (timings && timings.draft_n > 0) figures.push(`accept length ${acceptLength(answer).toFixed(2)}`, `${timings.draft_n_accepted} of ${timings.draft_n} guesses accepted`);
  if (rounds.length || answer.forgotten) figures.push(counted(rounds.length || answer.forgotten, "round"));
  if (usage) figures.push(`${counted(usage.prompt_tokens, "token")} read, ${usage.prompt_tokens_details?.cached_tokens ?? 0} of them from the cache`);
  if (isText(answer.seed)) figures.push(`seed ${answer.seed}`);
  return figures;
};
// Guesses that a round accepted, the mean.
const acceptLength = ({timings, rounds, forgotten}) => timings.draft_n_accepted / (rounds.length || forgotten || 1);

const kEnds = {length: "The answer ended at its longest length, or the context is full.", abort: "The server ended the answer.", stopped: "Stopped.", left: "The page was left while this was being written."};

class TurnView {
  // actions: {edit, retry}, for the last turn of a conversation.
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.text = make("div", {class: "answer-text"});
    this.note = make("div", {class: "note"});
    this.figures = make("p", {class: "figures"});
    this.buttons = make("div", {class: "actions", role: "group", "aria-label": "about this answer"});
    this.questionButtons = make("div", {class: "actions", role: "group", "aria-label": "about this question"});
    this.question = make("article", {class: "question"}, make("h2", {}, "You"), make("p", {class: "question-text"}, turn.question), this.questionButtons);
    this.answer = make("article", {class: "answer"}, make("h2", {}, "Espalier"), this.text, this.note, this.figures, this.buttons);
    this.element = make("section", {class: "turn"}, this.question, this.answer);
    this.text.addEventListener("click", (event) => this.openAt(event));
    this.begin();
    if (turn.answer.text !== "") this.writeAgain();
  }

  begin() {
    this.text.replaceChildren();
    this.writer = new AnswerText(this.text);
    this.answer.classList.add("writing", "waiting");
  }

  // Letters as they come.
  write(runs) {
    if (runs.length > 0) this.answer.classList.remove("waiting");
    this.writer.add(runs);
  }

  // An answer that was kept.
  writeAgain() {
    let at = 0;
    const runs = this.turn.answer.runs.map(([length, drafted, round]) => ({text: this.turn.answer.text.slice(at, at += length), drafted: drafted === 1, round}));
    this.write([...runs, {text: this.turn.answer.text.slice(at), drafted: false, round: -1}].filter((run) => run.text !== ""));
  }

  // The answer is as complete as it will be.
  finish(last) {
    const {answer} = this.turn;
    this.writer.finish();
    this.answer.classList.remove("writing", "waiting");
    this.answer.classList.toggle("has-rounds", answer.rounds.length > 0);
    this.note.replaceChildren(...this.notes(answer));
    this.figures.replaceChildren(...figuresOf(answer).flatMap((text, i) => [...(i > 0 ? [" \u00b7 "] : []), make("span", {}, text)]));
    this.showButtons(last);
  }

  notes(answer) {
    const notes = [];
    if (isText(kEnds[answer.end])) notes.push(make("p", {class: "soft"}, kEnds[answer.end]));
    if (isText(answer.error)) notes.push(make("p", {class: "failed"}, answer.error));
    return notes;
  }

  // last: of the conversation, and nothing is being written.
  showButtons(last) {
    const {answer} = this.turn;
    this.questionButtons.replaceChildren(...(last ? [button("Edit", "edit your question", this.actions.edit)] : []));
    this.buttons.replaceChildren(
      ...(answer.text !== "" ? [button("Copy", "copy the answer", () => this.copied(answer.text, "The answer is copied."))] : []),
      ...(last ? [button("Try again", "try again, answer this question once more", this.actions.retry)] : []),
      ...(answer.rounds.length > 0 ? [this.roundsButton()] : []),
      ...(isText(answer.receipt) ? [button("Copy receipt", "copy receipt", () => this.copied(answer.receipt, "The receipt is copied.")),
        button("Download receipt", "download receipt", () => saveFile(`receipt-${answer.id ?? "answer"}.json`, `${answer.receipt}\n`))] : []),
      ...(answer.forgotten ? [make("span", {class: "hint"}, "Its rounds were not kept.")] : []));
  }

  async copied(text, said) {
    await copyText(text);
    this.actions.say(said);
  }

  roundsButton() {
    const toggle = button("Rounds", "rounds of this answer, as trees", () => (this.rounds ? this.closeRounds() : this.openRounds(0)));
    toggle.setAttribute("aria-expanded", String(Boolean(this.rounds)));
    return this.toggle = toggle;
  }

  openAt(event) {
    const span = event.target.closest("[data-round]");
    if (!span || this.turn.answer.rounds.length === 0 || !this.answer.classList.contains("has-rounds") || String(getSelection()) !== "") return;
    this.openRounds(Math.max(0, Number(span.dataset.round)));
  }

  openRounds(round) {
    if (!this.rounds) {
      this.rounds = new RoundsView(this.turn.answer, this.text);
      this.answer.append(this.rounds.element);
      this.toggle.setAttribute("aria-expanded", "true");
      this.rounds.element.scrollIntoView({block: "nearest"});
    }
    this.rounds.show(round);
  }

  closeRounds() {
    this.rounds.mark(null);
    this.rounds.element.remove();
    this.rounds = null;
    this.toggle.setAttribute("aria-expanded", "false");
  }
}
