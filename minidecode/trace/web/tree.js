// The tree of a beam search: a column a step, the nodes in the order of their scores.

const COLUMN = 136, ROW = 34, NODE = 112; // pixels from node to node, and a node's width

/** Draws the tree and returns the items of the best hypothesis, in order. */
function plantTree() {
  const levels = data.tree.levels;
  levels.forEach((nodes, level) => nodes.forEach((node, index) => {
    Object.assign(node, { level, index, children: [] });
    node.above = level ? levels[level - 1][node.parent] : null;
    if (node.above) node.above.children.push(node);
    node.item = { node, candidate: node.candidate, step: { candidates: [] }, elements: [] };
  }));
  levels.flat().forEach((node) => {
    const siblings = node.above ? node.above.children : levels[0];
    node.item.fates = new Map(siblings.filter((x) => x.candidate).map((x) => [x.candidate.token, x.fate]));
    node.item.step.candidates = node.candidate ? [node.candidate] : [];
  });
  byId("tree-section").hidden = levels.length === 0;
  document.body.classList.add("has-tree");
  listHypotheses();
  const tree = byId("tree");
  tree.style.height = `${ROW * Math.max(0, ...levels.map((nodes) => nodes.length)) + 40}px`;
  tree.append(edges(levels), ...levels.flat().map(nodeElement));
  const best = levels.flat().filter((node) => node.best);
  const entry = (best[0] || levels.flat()[0])?.item.elements[0];
  if (entry) entry.tabIndex = 0;
  tree.addEventListener("keydown", walk);
  return best.filter((node) => node.candidate).map((node) => node.item);
}

/** The finished texts with how each came to its score. */
function listHypotheses() {
  const { hypotheses, penalty } = data.tree;
  if (!hypotheses.length) return;
  byId("hypotheses-section").hidden = false;
  byId("score-rule").textContent =
    `score = sum / length ** penalty, and the penalty is ${penalty}: the highest score is the best.`;
  const titles = ["", "text", "sum", "length", "score", "ended by"];
  const head = titles.map((title) => make("th", { scope: "col" }, title));
  const rows = hypotheses.map(({ score, reason, sum, length, text }, i) =>
    make("tr", { class: i === 0 ? "best" : "" },
      make("th", { scope: "row" }, i === 0 ? "best" : `#${i + 1}`),
      make("td", { class: "text" }, text),
      make("td", {}, number(sum)),
      make("td", {}, length),
      make("td", {}, `${number(sum)} / ${length} ** ${penalty} = ${number(score)}`),
      make("td", {}, reason)));
  byId("hypotheses").append(make("table", {},
    make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
}

const left = (node) => 10 + COLUMN * node.level;
const middle = (node) => 10 + ROW * node.index + ROW / 2 - 3;

function edges(levels) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("width", 20 + COLUMN * levels.length);
  svg.setAttribute("height", 20 + ROW * Math.max(0, ...levels.map((nodes) => nodes.length)));
  for (const node of levels.flat().filter((x) => x.above).sort((a, b) => a.best - b.best)) {
    const x = left(node.above) + NODE, y = middle(node.above);
    const toX = left(node), toY = middle(node);
    const bend = (toX - x) / 2;
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", `M${x} ${y} C${x + bend} ${y} ${toX - bend} ${toY} ${toX} ${toY}`);
    if (node.best) path.setAttribute("class", "best");
    svg.append(path);
  }
  return svg;
}

function nodeElement(node) {
  const name = node.candidate ? visible(label(node.candidate.token)) : "(blocked)";
  const total = node.total.toFixed(2).replace("-", "\u2212");
  const end = node.rank === undefined ? total : `#${node.rank + 1}`;
  const element = make("div", {
    class: `node ${node.fate}${node.best ? " best" : ""}`,
    role: "treeitem",
    tabindex: "-1",
    "aria-level": node.level + 1,
    "aria-label": `${node.candidate ? label(node.candidate.token) : "blocked"}, ${hypothesis(node)}`,
  }, make("span", { class: "name" }, name), make("span", { class: "sum" }, end));
  element.style.left = `${left(node)}px`;
  element.style.top = `${10 + ROW * node.index}px`;
  element.style.width = `${NODE}px`;
  element.node = node;
  attach(element, node.item);
  return element;
}

/** Arrow keys: left to the parent, right to the best child, up and down within the step. */
function walk(event) {
  const node = event.target.node;
  const level = node && data.tree.levels[node.level];
  const to = node && {
    ArrowLeft: node.above,
    ArrowRight: node.children[0],
    ArrowUp: level[node.index - 1],
    ArrowDown: level[node.index + 1],
    Home: data.tree.levels[0][0],
    End: data.tree.levels.at(-1)[0],
  }[event.key];
  if (!to) return;
  event.preventDefault();
  for (const x of document.querySelectorAll("#tree [tabindex='0']")) x.tabIndex = -1;
  const element = to.item.elements.find((x) => x.node);
  element.tabIndex = 0;
  element.focus();
}
