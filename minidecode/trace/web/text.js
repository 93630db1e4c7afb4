// The text, and what the mouse and the keyboard do. An item is what can be pointed at, with the
// elements that stand for it: {candidate, step, elements}, and in a beam search its node too.

let pinned = null; // the item that was focused last; pointing at another shows that one meanwhile

function attach(element, item) {
  item.elements.push(element);
  element.addEventListener("focus", () => {
    pinned = item;
    show(item);
  });
  element.addEventListener("click", () => element.focus());
  element.addEventListener("mouseenter", () => show(item));
  element.addEventListener("mouseleave", () => pinned && show(pinned));
}

function tokenElement(item) {
  const { candidate, step } = item;
  const kind = item.node ? "best" : candidate.kind;
  const element = make("span", {
    class: `token ${kind}`,
    role: "button",
    tabindex: "0",
    "aria-label": `${label(candidate.token)}, ${item.node ? "token" : KINDS[kind]}`,
  });
  if (!candidate.text) element.classList.add("unfinished"); // part of a character, or no text at all
  (candidate.text || label(candidate.token)).split("\n").forEach((line, i) => {
    if (i > 0) element.append(make("span", { class: "break", "aria-hidden": "true" }, "\u21b5"));
    if (i > 0 && kind !== "rejected") element.append("\n");
    element.append(line);
  });
  attach(element, item);
  return element;
}

function writeText(items) {
  const text = byId("text");
  text.append(make("span", { class: "prompt" }, data.prompt));
  text.append(...items.map(tokenElement));
  if (!items.length) text.append(make("span", { class: "prompt" }, ` (no tokens: ${data.reason})`));
  text.addEventListener("keydown", (event) => {
    const tokens = [...text.querySelectorAll(".token")];
    const to = neighbour(tokens, tokens.indexOf(document.activeElement), event.key);
    if (!to) return;
    event.preventDefault();
    to.focus();
  });
}

/** The token to which a key leads; up and down go to the nearest token of the next line. */
function neighbour(tokens, i, key) {
  const steps = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: tokens.length - 1 };
  if (key in steps) return tokens[steps[key]];
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  const from = tokens[i].getClientRects()[0];
  const away = (rect) => (key === "ArrowDown" ? rect.top - from.bottom : from.top - rect.bottom);
  const others = tokens.map((token) => [token, token.getClientRects()[0]])
    .filter(([, rect]) => away(rect) > -from.height / 2 && rect.top !== from.top);
  const cost = ([, rect]) => 1000 * away(rect) + Math.abs(rect.left - from.left);
  return others.sort((a, b) => cost(a) - cost(b))[0]?.[0];
}

function writeHeader(kinds) {
  byId("summary").textContent = data.summary;
  for (const [name, value] of Object.entries(data.settings)) {
    byId("settings").append(make("div", {}, make("dt", {}, name), make("dd", {}, String(value))));
  }
  for (const kind of ["accepted", "rejected", "correction", "bonus"]) {
    if (!kinds.has(kind)) continue;
    byId("legend").append(make("li", {}, make("span", { class: `token ${kind}` }, KINDS[kind])));
  }
}

function start() {
  const items = data.tree
    ? plantTree()
    : data.steps.flatMap((step) => step.candidates
        .filter((candidate) => candidate.kind !== "untested")
        .map((candidate) => ({ candidate, step, elements: [] })));
  writeHeader(new Set(items.map((item) => item.candidate.kind)));
  writeText(items);
  const first = items.find((item) => item.candidate.kind === "rejected") || items[0];
  if (first) show(first);
  pinned = first;
}

start();
