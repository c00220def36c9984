// The rounds of an answer: one as a tree, which is also there as a list to be read aloud, and all of them in a table, by pages.
const kRoundsOfAPage = 20;

const quoted = (text) => JSON.stringify(text);
const counted = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;
const acceptedRows = (round) => round.accepted.flatMap((accepted, row) => (accepted ? [row] : []));

// As tree.js takes them: the rows, and behind the last one accepted the teacher's own token, if its text is known.
const treeNodes = (round, own) => {
  const nodes = round.parent.map((parent, row) => (row === 0 ? rootNode(round) : guessNode(round, row, parent)));
  const last = acceptedRows(round).at(-1) ?? 0;
  return own === null ? nodes : [...nodes, {token: quoted(own), parent: last, kind: "bonus", figures: "next root", about: `${quoted(own)}, the teacher\u2019s own`}];
};
const rootNode = (round) => ({token: quoted(round.text[0]), parent: 0, kind: "taken", figures: "root", about: `${quoted(round.text[0])}, the root`});
const guessNode = (round, row, parent) => {
  const own = probability(Math.min(0, round.score[row] - round.score[parent])), path = probability(Math.min(0, round.score[row]));
  return {token: quoted(round.text[row]), parent, kind: round.accepted[row] ? "taken" : "guess", strength: path,
    figures: `${digits(own)} \u00b7 ${digits(path)}`,
    about: `${quoted(round.text[row])}: ${own.toFixed(4)} behind its parent, ${path.toFixed(4)} for the whole path`};
};

const kSpoken = {taken: "accepted", guess: "not accepted", bonus: "the teacher\u2019s own"};
// The tree as lists in lists.
const nestedList = (nodes) => {
  const items = nodes.map((node, row) => make("li", {}, row === 0 ? `${node.token}, the root` : `${node.token}, ${kSpoken[node.kind]}`));
  nodes.forEach((node, row) => {
    if (row === 0) return;
    const above = items[node.parent];
    if (above.lastElementChild === null) above.append(make("ul"));
    above.lastElementChild.append(items[row]);
  });
  return make("ul", {class: "tree-list"}, items[0]);
};

class RoundsView {
  // text: the element of the answer's text, whose spans say of which round they are.
  constructor(answer, text) {
    this.answer = answer;
    this.text = text;
    this.element = make("section", {class: "rounds", "aria-label": "rounds of this answer", tabindex: "-1"});
    this.shown = 0;
    this.fill();
  }

  fill() {
    const rounds = this.answer.rounds;
    this.place = make("span", {class: "round-place"});
    this.facts = make("p", {class: "round-facts", role: "status"});
    this.frame = make("div", {class: "scroll tree-frame", tabindex: "0", role: "region", "aria-label": "the tree as a picture, which scrolls"});
    this.list = make("details", {}, make("summary", {}, "The tree as a list"));
    this.slider = make("input", {type: "range", min: 1, max: rounds.length, value: 1, "aria-label": "round"});
    this.slider.addEventListener("input", () => this.show(this.slider.value - 1));
    this.back = button("\u2039", "previous round", () => this.show(this.shown - 1));
    this.next = button("\u203a", "next round", () => this.show(this.shown + 1));
    this.table = new RoundsTable(rounds, (round) => this.tokens(round), (round) => this.show(round));
    this.element.replaceChildren(make("div", {class: "controls"}, this.back, this.place, this.next, ...(rounds.length > 2 ? [this.slider] : [])),
      this.facts, this.frame, treeLegend(), this.list, this.table.element);
  }

  // The text of the teacher's own token: the root of the next round, or whatever else is left of the answer.
  ownToken(round) {
    if (round + 1 < this.answer.rounds.length) return this.answer.rounds[round + 1].text[0];
    const rest = this.spans(round).filter((span) => !span.classList.contains("drafted")).map((span) => span.textContent).join("");
    return rest === "" ? null : rest;
  }

  // The tokens that a round gave.
  tokens(round) {
    const {text} = this.answer.rounds[round], own = this.ownToken(round);
    return [...acceptedRows(this.answer.rounds[round]).slice(1).map((row) => text[row]), ...(own === null ? [] : [own])];
  }

  spans(round) {
    return [...this.text.querySelectorAll(`[data-round="${round}"]`)];
  }

  show(round) {
    const rounds = this.answer.rounds;
    this.shown = Math.min(Math.max(0, round), rounds.length - 1);
    const data = rounds[this.shown], rows = data.parent.length, accepted = acceptedRows(data).length - 1;
    this.mark(this.shown);
    this.slider.value = this.shown + 1;
    this.back.disabled = this.shown === 0;
    this.next.disabled = this.shown === rounds.length - 1;
    this.place.textContent = `round ${this.shown + 1} of ${rounds.length}`;
    this.facts.textContent = rows === 1 ? "One row: nothing was guessed." : `${counted(rows, "row")}, ${accepted} of ${rows - 1} guesses accepted`;
    const nodes = treeNodes(data, this.ownToken(this.shown)), tree = drawTree(nodes, `tree of ${counted(rows, "row")}, ${accepted} accepted; below it the same as a list`);
    this.frame.replaceChildren(tree);
    this.frame.scrollTop = tree.dataset.root - this.frame.clientHeight / 2;
    this.list.replaceChildren(this.list.firstElementChild, nestedList(nodes));
    this.table.mark(this.shown);
  }

  mark(round) {
    for (const span of this.text.querySelectorAll(".chosen")) span.classList.remove("chosen");
    if (round !== null) for (const span of this.spans(round)) span.classList.add("chosen");
  }
}

class RoundsTable {
  constructor(rounds, tokensOf, choose) {
    Object.assign(this, {rounds, tokensOf, choose, page: 0, chosen: 0});
    this.body = make("tbody");
    this.count = make("span", {role: "status"});
    this.back = button("\u2039", "earlier rounds", () => this.turn(this.page - 1));
    this.next = button("\u203a", "later rounds", () => this.turn(this.page + 1));
    const head = make("tr", {}, ...["Round", "Rows", "Accepted", "What it gave"].map((text) => make("th", {scope: "col"}, text)));
    this.element = make("details", {class: "all-rounds"}, make("summary", {}, `All ${counted(rounds.length, "round")}`),
      make("div", {class: "scroll"}, make("table", {}, make("thead", {}, head), this.body)),
      ...(rounds.length > kRoundsOfAPage ? [make("div", {class: "controls"}, this.back, this.count, this.next)] : []));
    this.element.addEventListener("toggle", () => this.turn(Math.floor(this.chosen / kRoundsOfAPage)));
  }

  // Only what can be seen is made.
  turn(page) {
    if (!this.element.open) return;
    const last = Math.ceil(this.rounds.length / kRoundsOfAPage) - 1;
    this.page = Math.min(Math.max(0, page), last);
    const first = this.page * kRoundsOfAPage, end = Math.min(first + kRoundsOfAPage, this.rounds.length);
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page === last;
    this.count.textContent = `${first + 1}\u2013${end} of ${this.rounds.length}`;
    this.body.replaceChildren(...this.rounds.slice(first, end).map((round, i) => this.row(round, first + i)));
    this.mark(this.chosen);
  }

  row(round, number) {
    const open = button(`${number + 1}`, `tree of round ${number + 1}`, () => this.choose(number));
    return make("tr", {"data-number": number}, make("th", {scope: "row"}, open), make("td", {}, `${round.parent.length}`),
      make("td", {}, `${acceptedRows(round).length - 1}`), make("td", {class: "given"}, this.tokensOf(number).map(quoted).join(" ")));
  }

  mark(round) {
    this.chosen = round;
    for (const row of this.body.rows) {
      if (Number(row.dataset.number) === round) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }
}
