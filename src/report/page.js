// The script of a report: sorts and filters the list of turns, and draws the tree of any round. Everything that runs wrote
// (ids, tokens, labels) enters the page as text nodes only.
"use strict";
(() => {
  const kRowsOfAPage = 50;
  const kSvg = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);

  // An element with attributes and children; texts become text nodes.
  const make = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
  const draw = (name, attributes = {}, ...children) => fill(document.createElementNS(kSvg, name), attributes, children);
  const fill = (element, attributes, children) => {
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const button = (text, label, action) => {
    const made = make("button", {type: "button", "aria-label": label}, text);
    made.addEventListener("click", action);
    return made;
  };

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
  const cut = (text, most) => {
    const letters = [...text];
    return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}\u2026`;
  };
  const probability = (score) => (score === null ? 0 : Math.exp(score));
  const digits = (value) => (value >= 0.9995 ? "1.00" : value.toFixed(3).replace(/^0/, ""));

  // ---- the tree of a round ----

  const kBox = {height: 40, pitch: 50, gap: 40, margin: 14, narrowest: 74, padding: 10, letters: 22};

  // How wide a text of a tree is, in the font that the style sheet gives its kind.
  const textWidth = (() => {
    const pen = document.createElement("canvas").getContext("2d");
    const fonts = new Map();
    const fontOf = (kind) => {
      const text = draw("text", {class: kind}), probe = draw("svg", {class: "tree", width: 0, height: 0}, text);
      document.body.append(probe);
      const {font} = getComputedStyle(text);
      probe.remove();
      return font;
    };
    return (kind, text) => {
      if (!fonts.has(kind)) fonts.set(kind, fontOf(kind));
      pen.font = fonts.get(kind);
      return pen.measureText(text).width;
    };
  })();

  const treeLayout = (data, round) => {
    const nodes = round.p.map((parent, i) => ({
      parent, index: i, token: data.words[round.t[i]], score: round.s[i], sources: round.d[i], children: [],
      depth: 0, taken: round.v.includes(i)}));
    nodes.forEach((node, i) => {
      if (i === 0) return;
      node.depth = nodes[node.parent].depth + 1;
      node.own = node.score === null ? 0 : probability(node.score - (nodes[node.parent].score ?? 0));
      node.path = probability(node.score);
      nodes[node.parent].children.push(node);
    });
    const last = nodes[round.v[round.v.length - 1]];
    const bonus = {token: data.words[round.c[round.c.length - 1]], depth: last.depth + 1, children: [], bonus: true, parentNode: last};
    last.children.push(bonus);
    const all = [...nodes, bonus];
    for (const node of all) {
      node.label = cut(node.token, kBox.letters);
      node.names = node.bonus || node.index === 0 ? "" : sourceNames(data, node.sources);
      node.figures = node.bonus ? (round.f ? "the end" : "next root") : node.index === 0 ? "root" : `${digits(node.own)} \u00b7 ${digits(node.path)}`;
      if (data.drafters.length > 1 && node.names) node.figures += ` ${node.names}`;
    }
    place(nodes[0], all);
    return {nodes, bonus, all, last};
  };

  // Columns by depth, a row for each leaf, parents in the middle of their children.
  const place = (root, all) => {
    const widths = [];
    for (const node of all) {
      const text = Math.max(textWidth("token", node.label), textWidth("figures", node.figures));
      widths[node.depth] = Math.max(widths[node.depth] ?? kBox.narrowest, text + 2 * kBox.padding);
    }
    const lefts = [];
    widths.reduce((x, width, depth) => { lefts[depth] = x; return x + width + kBox.gap; }, kBox.margin);
    let next = kBox.margin + kBox.height / 2;
    const below = (node) => {
      node.x = lefts[node.depth];
      node.width = widths[node.depth];
      node.children.forEach(below);
      const children = node.children;
      node.y = children.length ? (children[0].y + children[children.length - 1].y) / 2 : next;
      if (!children.length) next += kBox.pitch;
    };
    below(root);
  };

  const curve = (from, to) => {
    const begin = from.x + from.width, middle = (begin + to.x) / 2;
    return `M${begin} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
  };

  const sourceNames = (data, sources) => data.drafters.filter((_, bit) => Math.floor(sources / 2 ** bit) % 2 === 1).join("+");

  const drawBox = (node) => {
    const kind = node.bonus ? "bonus" : node.taken ? "taken" : "guess";
    const about = node.bonus || node.index === 0 ? `${node.token}, ${node.figures}`
      : `${node.token}: ${node.own.toFixed(4)} behind its parent, ${node.path.toFixed(4)} for the whole path${node.names ? `, by ${node.names}` : ""}`;
    const middle = node.x + node.width / 2;
    return draw("g", {class: kind}, draw("title", {}, about),
      draw("rect", {x: node.x, y: node.y - kBox.height / 2, width: node.width, height: kBox.height, rx: node.bonus ? 18 : 6}),
      draw("text", {class: "token", x: middle, y: node.y - 2}, node.label),
      draw("text", {class: "figures", x: middle, y: node.y + 13}, node.figures));
  };

  const drawTree = (data, round) => {
    const {nodes, bonus, all, last} = treeLayout(data, round);
    const width = Math.max(...all.map((node) => node.x + node.width)) + kBox.margin;
    const height = Math.max(...all.map((node) => node.y)) + kBox.height / 2 + kBox.margin;
    const svg = draw("svg", {class: "tree", role: "img", width, height, viewBox: `0 0 ${width} ${height}`, "data-root": nodes[0].y,
      "aria-label": `tree of ${nodes.length} rows, ${round.v.length - 1} guesses accepted`});
    const edge = (node, kind, strength = 0) =>
      draw("path", {class: kind, d: curve(node.bonus ? last : nodes[node.parent], node), ...(kind === "branch" ? {"stroke-width": 1.2 + 2.8 * strength} : {})});
    svg.append(...nodes.slice(1).filter((node) => !node.taken).map((node) => edge(node, "branch", node.path)), edge(bonus, "next"),
      ...nodes.slice(1).filter((node) => node.taken).map((node) => edge(node, "path")));
    svg.append(...all.map(drawBox));
    return svg;
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
        this.facts, this.tree, legend());
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
      const tree = drawTree(this.data, shown);
      this.tree.replaceChildren(tree);
      this.tree.scrollTop = tree.dataset.root - this.tree.clientHeight / 2;
      history.replaceState(null, "", `#turn-${this.number}-${this.round}`);
    }

    close() {
      this.element.hidden = true;
      history.replaceState(null, "", "#turns-title");
    }
  }

  const legend = () => make("ul", {class: "legend"},
    ...[["taken", "accepted: the teacher chose it too"], ["guess", "drafted, not accepted"], ["bonus", "the teacher\u2019s own next token"]]
      .map(([kind, text]) => make("li", {}, make("span", {class: `swatch ${kind}`}), text)),
    make("li", {}, "a \u00b7 b: the drafter\u2019s probability behind the parent \u00b7 of the whole path"));

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
