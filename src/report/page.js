// The script of a report, behind elements.js and tree.js: sorts and filters the list of turns, and draws the tree of any round.
(() => {
  const kRowsOfAPage = 50;

  // ---- tables that are wider than the page ----

  // They say so, and can be moved with the keyboard.
  const markWide = (frame) => {
    const wide = frame.scrollWidth > frame.clientWidth + 1;
    frame.classList.toggle("wide", wide);
    if (wide) fill(frame, {tabindex: "0", role: "region", "aria-label": "a table that scrolls sideways"}, []);
    else for (const name of ["tabindex", "role", "aria-label"]) frame.removeAttribute(name);
  };
  const widths = new ResizeObserver((changes) => requestAnimationFrame(() => {  // later: what it says changes sizes again
    for (const frame of new Set(changes.map(({target}) => target.closest(".scroll")))) markWide(frame);
  }));
  for (const frame of document.querySelectorAll(".scroll")) {
    widths.observe(frame);
    widths.observe(frame.querySelector("table"));
  }

  // ---- the list of turns ----

  class TurnList {
    constructor(table) {
      this.body = table.tBodies[0];
      this.headings = [...table.tHead.rows[0].cells];
      this.rows = [...this.body.rows];
      this.page = 0;
      this.sorted = {column: -1, up: true};
      this.headings.forEach((heading, column) => {
        const text = heading.textContent;
        heading.replaceChildren(button(text, `sort by ${text}`, () => this.sort(column)));
      });
      this.addControls(table.parentElement);
      this.show();
    }

    addControls(before) {
      this.filter = make("input", {type: "search", id: "turn-filter", placeholder: "run, prompt, false ...", "aria-label": "filter turns"});
      this.filter.addEventListener("input", () => { this.page = 0; this.show(); });
      this.count = make("span", {id: "turn-count", role: "status"});
      before.before(make("div", {class: "controls"}, make("label", {for: "turn-filter"}, "Filter "), this.filter,
        button("\u2039", "previous page", () => this.turnPage(-1)), this.count,
        button("\u203a", "next page", () => this.turnPage(1))));
    }

    value(row, column) {
      const text = row.cells[column].textContent;
      const number = parseFloat(text);
      return row.cells[column].classList.contains("number") && !Number.isNaN(number) ? number : text;
    }

    sort(column) {
      const up = this.sorted.column === column ? !this.sorted.up : true;
      this.sorted = {column, up};
      const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true}));
      this.rows.sort((a, b) => order(this.value(a, column), this.value(b, column)) * (up ? 1 : -1));
      this.headings.forEach((heading, i) =>
        i === column ? heading.setAttribute("aria-sort", up ? "ascending" : "descending") : heading.removeAttribute("aria-sort"));
      this.page = 0;
      this.show();
    }

    matching() {
      const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      return this.rows.filter((row) => {
        const text = row.textContent.toLowerCase();
        return words.every((word) => text.includes(word));
      });
    }

    turnPage(step) {
      this.page += step;
      this.show();
    }

    show() {
      const rows = this.matching();
      const last = Math.max(0, Math.ceil(rows.length / kRowsOfAPage) - 1);
      this.page = Math.min(Math.max(0, this.page), last);
      const first = this.page * kRowsOfAPage;
      const shown = rows.slice(first, first + kRowsOfAPage);
      this.body.replaceChildren(...shown);
      this.count.textContent = rows.length === 0 ? "no turn" : `${first + 1}\u2013${first + shown.length} of ${rows.length}`;
    }
  }

  // ---- the data of a turn: in the page, or in a file beside it ----

  const waiting = new Map();
  const known = new Map();
  // Files of turns call this.
  window.espalierTurn = (number, data) => {
    known.set(number, data);
    waiting.get(number)?.(data);
  };

  const load = (number) => new Promise((done, failed) => {
    const embedded = document.querySelector(`script#turn-data-${number}`);
    if (embedded) known.set(number, JSON.parse(embedded.textContent));
    if (known.has(number)) return done(known.get(number));
    waiting.set(number, done);
    const script = make("script", {src: `turns/${number}.js`});
    script.addEventListener("error", () => failed(new Error(`turns/${number}.js is not beside this page`)));
    document.head.append(script);
  });

  // ---- words ----

  // A word as it stands in a line of text: without its quotes, and with line breaks that break.
  const plain = (word) => {
    if (!word.startsWith("\"")) return ` ${word}`;
    return word.slice(1, -1).replace(/\\(n|t|r|\\|")/g, (all, c) => ({n: "\n", t: "\t", r: "", "\\": "\\", "\"": "\""})[c]);
  };

  // ---- the tree of a round ----

  const sourceNames = (data, sources) => data.drafters.filter((_, bit) => Math.floor(sources / 2 ** bit) % 2 === 1).join("+");

  // As tree.js takes them: the rows, and behind the last one taken the teacher's own token.
  const treeNodes = (data, round) => {
    const token = (word) => data.words[word];
    const special = (node, figures) => ({...node, figures, about: `${node.token}, ${figures}`});
    const nodes = round.p.map((parent, i) => {
      const node = {token: token(round.t[i]), parent, kind: round.v.includes(i) ? "taken" : "guess"};
      return i === 0 ? special(node, "root") : guessNode(data, round, i, node);
    });
    const own = {token: token(round.c[round.c.length - 1]), parent: round.v[round.v.length - 1], kind: "bonus"};
    return [...nodes, special(own, round.f ? "the end" : "next root")];
  };

  const guessNode = (data, round, i, node) => {
    const own = round.s[i] === null ? 0 : probability(round.s[i] - (round.s[node.parent] ?? 0)), path = probability(round.s[i]);
    const names = sourceNames(data, round.d[i]);
    return {...node, strength: path, figures: `${digits(own)} \u00b7 ${digits(path)}${data.drafters.length > 1 && names ? ` ${names}` : ""}`,
      about: `${node.token}: ${own.toFixed(4)} behind its parent, ${path.toFixed(4)} for the whole path${names ? `, by ${names}` : ""}`};
  };

  // ---- the view of a turn ----

  class TurnView {
    constructor(element) {
      this.element = element;
    }

    async open(number, round = 0) {
      this.element.hidden = false;  // what is hidden has no size and takes no focus
      try {
        const data = await load(number);
        this.fill(number, data);
        this.show(round);
      } catch (error) {
        this.element.replaceChildren(make("p", {class: "failed"}, error.message));
      }
    }

    fill(number, data) {
      this.number = number;
      this.data = data;
      const heading = make("h3", {tabindex: "-1"}, titles.get(number) ?? `turn ${number}`);
      const prompt = data.prompt.map((word) => plain(data.words[word])).join("");
      this.answer = make("p", {class: "answer"});
      this.answer.append(make("span", {}, data.first.map((word) => plain(data.words[word])).join("")));
      this.parts = data.rounds.map((round, i) => this.part(round, i));
      this.answer.append(...this.parts);
      this.facts = make("p", {class: "round-facts", role: "status"});
      this.tree = make("div", {class: "scroll tree-frame", tabindex: "0"});
      this.element.replaceChildren(heading,
        make("details", {}, make("summary", {}, "prompt"), make("p", {class: "answer"}, (data.cut ? `\u2026 (${data.cut} tokens before) ` : "") + prompt)),
        make("p", {class: "hint"}, "The answer, round by round: underlined tokens were drafted and accepted. Choose a round to see its tree."),
        this.answer,
        make("div", {class: "controls"}, button("\u2039", "previous round", () => this.show(this.round - 1)),
          this.place = make("span", {class: "round-place"}), button("\u203a", "next round", () => this.show(this.round + 1)),
          button("close", "close the turn", () => this.close())),
        this.facts, this.tree, treeLegend());
      heading.focus({preventScroll: true});
      this.element.scrollIntoView({block: "start"});
    }

    // The tokens that a round gave: those drafted, then the teacher's own.
    part(round, i) {
      const words = round.c.map((word) => plain(this.data.words[word]));
      const own = words.pop();
      const part = make("span", {class: "round", role: "button", tabindex: "0", title: `round ${i}`}, make("u", {}, words.join("")), own);
      const choose = () => this.show(i);
      part.addEventListener("click", choose);
      part.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        choose();
      });
      return part;
    }

    show(round) {
      const rounds = this.data.rounds;
      if (rounds.length === 0) {
        this.facts.textContent = "This answer has no round: its first token was the last.";
        return;
      }
      this.round = Math.min(Math.max(0, round), rounds.length - 1);
      const shown = rounds[this.round];
      this.parts.forEach((part, i) => part.classList.toggle("chosen", i === this.round));
      this.place.textContent = `round ${this.round} \u00b7 ${rounds.length} rounds from 0`;
      const times = ["draft", "prepare", "verify", "accept", "commit"].map((stage, i) => `${stage} ${shown.m[i].toFixed(2)} ms`);
      this.facts.textContent = `${shown.p.length} ${shown.p.length === 1 ? "row" : "rows"}, ${shown.v.length - 1} of ${shown.p.length - 1} guesses accepted; ${times.join(", ")}`;
      const tree = drawTree(treeNodes(this.data, shown), `tree of ${shown.p.length} rows, ${shown.v.length - 1} guesses accepted`);
      this.tree.replaceChildren(tree);
      this.tree.scrollTop = tree.dataset.root - this.tree.clientHeight / 2;
      history.replaceState(null, "", `#turn-${this.number}-${this.round}`);
    }

    close() {
      this.element.hidden = true;
      history.replaceState(null, "", "#turns-title");
    }
  }

  const titles = new Map();
  const table = byId("turns");
  if (!table) return;
  const view = new TurnView(byId("turn-view"));
  for (const row of table.tBodies[0].rows) {
    const number = Number(row.dataset.turn);
    titles.set(number, `${row.cells[1].textContent}: prompt ${row.cells[2].textContent}, turn ${row.cells[3].textContent}`);
    if (row.dataset.traced === undefined) continue;
    row.cells[0].replaceChildren(button(`${number}`, `trees of turn ${number}`, () => view.open(number)));
  }
  new TurnList(table);
  const openLinked = () => {
    const link = /^#turn-(\d+)-(\d+)$/.exec(location.hash);
    if (link) view.open(Number(link[1]), Number(link[2]));
  };
  window.addEventListener("hashchange", openLinked);
  openLinked();
})();
