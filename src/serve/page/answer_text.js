// An answer's text on the page, as it comes: runs of letters in, spans out, those that were drafted shaded. Lines between ``` are
// code, in a block of its own. What was written stays as it is, so a long answer costs no more than a short one.
const kFence = /^ {0,3}```+([^`\n]*)\n?$/;

class AnswerText {
  constructor(element) {
    this.element = element;
    this.code = false;
    this.held = [];  // a line that may become a fence
    this.inLine = false;  // within a line that is none
    this.block = null;
  }

  add(runs) {
    for (const run of runs)
      for (const text of run.text.match(/[^\n]*\n|[^\n]+/g)) this.addPart({...run, text});
  }

  // What was held is a line, whatever it looks like.
  finish() {
    this.settle(true);
  }

  addPart(part) {
    if (this.inLine) this.write(part);
    else this.held.push(part);
    if (part.text.endsWith("\n")) this.settle(true);
    else if (!this.inLine) this.settle(false);
    if (part.text.endsWith("\n")) this.inLine = false;
  }

  settle(whole) {
    const line = this.held.map((part) => part.text).join("");
    if (line === "" || (!whole && /^ {0,3}(`{0,2}|```+[^`\n]*)$/.test(line))) return;
    const fence = kFence.exec(line), isFence = fence && (!this.code || fence[1].trim() === "");
    if (isFence) this.turn(fence[1].trim());
    else this.held.forEach((part) => this.write(part));
    this.inLine = !isFence && !line.endsWith("\n");
    this.held = [];
  }

  // From text to code or back.
  turn(language) {
    if (!this.code) this.dropEmptyLines();
    this.code = !this.code;
    this.block = null;
    if (this.code && language !== "") this.element.append(make("p", {class: "language"}, language));
    if (this.code) this.open();
  }

  // At the end of a text that code follows, which keeps its distance by itself.
  dropEmptyLines() {
    for (let last = this.block?.lastElementChild; last; last = this.block.lastElementChild) {
      last.textContent = last.textContent.trimEnd();
      if (last.textContent !== "") return;
      last.remove();
    }
  }

  open() {
    this.block = this.code ? make("code") : make("div", {class: "prose"});
    this.element.append(this.code ? make("pre", {tabindex: "0"}, this.block) : this.block);
  }

  write({text, drafted, round}) {
    if (!this.block && text === "\n" && this.element.childElementCount > 0) return;  // an empty line behind code
    if (!this.block) this.open();
    const [, blank, letters] = /^(\s*)([^]*)$/.exec(text);  // spaces in front of a word are drafted too, but not shaded
    this.append(blank, round, drafted ? "drafted blank" : "");
    this.append(letters, round, drafted ? "drafted" : "");
  }

  append(text, round, kind) {
    if (text === "") return;
    const last = this.block.lastElementChild;
    if (last && last.className === kind && last.dataset.round === String(round)) last.firstChild.appendData(text);
    else this.block.append(make("span", {"data-round": round, ...(kind === "" ? {} : {class: kind})}, text));
  }
}
