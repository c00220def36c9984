// The picture of a token tree. A node has
//   token    what stands in its box, cut where it is too long
//   figures  a smaller line below
//   about    what a pointer that rests on it is told
//   parent   the index of a node before it; of the root, which is the first, its own
//   kind     "taken": the teacher chose it too; "guess": drafted in vain; "bonus": the teacher's own, behind the last one taken
//   strength of the branch that leads to a guess, 0 to 1

const kBox = {height: 40, pitch: 50, gap: 40, margin: 14, narrowest: 74, padding: 10, letters: 22};

const probability = (score) => (score === null ? 0 : Math.exp(score));
const digits = (value) => (value >= 0.9995 ? "1.00" : value.toFixed(3).replace(/^0/, ""));

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

// Boxes by node, with children and depth.
const boxesOf = (nodes) => {
  const boxes = nodes.map((node) => ({...node, label: cut(node.token, kBox.letters), depth: 0, children: []}));
  boxes.slice(1).forEach((box) => {
    box.above = boxes[box.parent];
    box.depth = box.above.depth + 1;
    box.above.children.push(box);
  });
  return boxes;
};

// Columns by depth, a row for each leaf, parents in the middle of their children.
const placeBoxes = (boxes) => {
  const widths = [];
  for (const box of boxes) {
    const text = Math.max(textWidth("token", box.label), textWidth("figures", box.figures));
    widths[box.depth] = Math.max(widths[box.depth] ?? kBox.narrowest, text + 2 * kBox.padding);
  }
  const lefts = [];
  widths.reduce((x, width, depth) => { lefts[depth] = x; return x + width + kBox.gap; }, kBox.margin);
  let next = kBox.margin + kBox.height / 2;
  const below = (box) => {
    box.x = lefts[box.depth];
    box.width = widths[box.depth];
    box.children.forEach(below);
    const children = box.children;
    box.y = children.length ? (children[0].y + children[children.length - 1].y) / 2 : next;
    if (!children.length) next += kBox.pitch;
  };
  below(boxes[0]);
};

const curve = (from, to) => {
  const begin = from.x + from.width, middle = (begin + to.x) / 2;
  return `M${begin} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
};

const kEdges = {guess: "branch", bonus: "next", taken: "path"};
const drawEdge = (box) => draw("path", {class: kEdges[box.kind], d: curve(box.above, box),
  ...(box.kind === "guess" ? {"stroke-width": 1.2 + 2.8 * box.strength} : {})});

const drawBox = (box) => {
  const middle = box.x + box.width / 2;
  return draw("g", {class: box.kind}, draw("title", {}, box.about),
    draw("rect", {x: box.x, y: box.y - kBox.height / 2, width: box.width, height: kBox.height, rx: box.kind === "bonus" ? 18 : 6}),
    draw("text", {class: "token", x: middle, y: box.y - 2}, box.label),
    draw("text", {class: "figures", x: middle, y: box.y + 13}, box.figures));
};

// The path that was taken lies over all other edges.
const drawTree = (nodes, label) => {
  const boxes = boxesOf(nodes);
  placeBoxes(boxes);
  const width = Math.max(...boxes.map((box) => box.x + box.width)) + kBox.margin;
  const height = Math.max(...boxes.map((box) => box.y)) + kBox.height / 2 + kBox.margin;
  const edges = Object.keys(kEdges).flatMap((kind) => boxes.slice(1).filter((box) => box.kind === kind).map(drawEdge));
  return draw("svg", {class: "tree", role: "img", width, height, viewBox: `0 0 ${width} ${height}`, "data-root": boxes[0].y, "aria-label": label},
    ...edges, ...boxes.map(drawBox));
};

const treeLegend = () => make("ul", {class: "legend"},
  ...[["taken", "accepted: the teacher chose it too"], ["guess", "drafted, not accepted"], ["bonus", "the teacher\u2019s own next token"]]
    .map(([kind, text]) => make("li", {}, make("span", {class: `swatch ${kind}`}), text)),
  make("li", {}, "a \u00b7 b: the drafter\u2019s probability behind the parent \u00b7 of the whole path"));
