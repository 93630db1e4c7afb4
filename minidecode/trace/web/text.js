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
  let step = null;
  for (const item of items) {
    if (item.step !== step && item.step.rule) text.append(passMark(item.step));
    step = item.step;
    text.append(tokenElement(item));
  }
  if (!items.length) text.append(make("span", { class: "prompt" }, ` (no tokens: ${data.reason})`));
  text.addEventListener("keydown", (event) => {
    const tokens = [...text.querySelectorAll(".token")].filter((x) => x.getClientRects().length);
    const to = neighbour(tokens, tokens.indexOf(document.activeElement), event.key);
    if (!to) return;
    event.preventDefault();
    to.focus();
  });
}

/** Where a pass of the target begins, with the number of its round. */
function passMark({ number }) {
  return make("span", { class: "pass", "aria-hidden": "true", "data-number": number,
    title: `round ${number} of ${data.steps.length}` });
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
  byId("about").textContent = data.about;
  for (const [name, value] of data.totals) entry("totals", name, value);
  for (const [name, value] of Object.entries(data.settings)) {
    entry("settings", SETTINGS[name] ?? name.replaceAll("_", " "), value);
  }
  for (const [kind, { name, words }] of Object.entries(data.kinds)) {
    if (!kinds.has(kind)) continue;
    byId("legend").append(make("li", {},
      make("span", { class: `token ${kind}` }, name), ` ${words}`));
  }
  if (kinds.has("accepted") || kinds.has("rejected")) {
    byId("legend").append(make("li", {},
      make("span", { class: "pass", "aria-hidden": "true", "data-number": "3" }),
      ` here round 3 begins, with one pass of the ${P}`));
  }
}

function entry(list, name, value) {
  byId(list).append(make("div", {}, make("dt", {}, name), make("dd", {}, String(value))));
}

// ---- what can be switched

const HEATS = { // of: the level of a token, from 0 to 4, -1 for the sixth; names: of the levels
  probability: {
    of: (candidate) => [0.9, 0.7, 0.5, 0.25, 0.1].findIndex((x) => probability(candidate) >= x),
    names: ["0.9 to 1", "0.7", "0.5", "0.25", "0.1", "below"],
    title: "Probability that the model gave the token",
  },
  surprise: {
    of: (candidate) => [0.25, 1, 2, 3.5, 5].findIndex((x) => surprise(candidate) < x),
    names: ["below 0.25", "1", "2", "3.5", "5", "above"],
    title: "Surprise in bits, \u2212log\u2082 of the probability",
  },
};

function writeControls(items) {
  const kinds = new Set(items.map((item) => item.candidate.kind));
  if (kinds.has("rejected")) {
    const box = make("input", { type: "checkbox", id: "hide-rejected" });
    box.addEventListener("change", () =>
      byId("text").classList.toggle("without-rejected", box.checked));
    byId("controls").append(make("label", {}, box, " Hide rejected drafts"));
  }
  if (data.tree || !items.length || data.steps.some((step) => step.rule)) return;
  const choice = make("select", { id: "heat" },
    ...["probability", "surprise", "nothing"].map((name) => make("option", {}, name)));
  choice.addEventListener("change", () => colour(items, choice.value));
  byId("controls").append(make("label", {}, "Colour by ", choice),
    make("span", { id: "scale", role: "note" }));
  colour(items, choice.value);
}

/** The tokens in the colours of a scale, and the scale. */
function colour(items, by) {
  const heat = HEATS[by];
  for (const { candidate, elements } of items) {
    const element = elements[0];
    element.classList.remove(...[...element.classList].filter((x) => x.startsWith("heat")));
    const level = heat?.of(candidate);
    if (heat) element.classList.add(`heat${level < 0 ? 5 : level}`);
  }
  byId("scale").replaceChildren(...(heat ? [`${heat.title}: `, ...heat.names.map((name, i) =>
    make("span", { class: `swatch heat${i}` }, name))] : []));
}

// ---- the strip: one bar per round, or per token

const SVG = "http://www.w3.org/2000/svg";

function writeStrip(items) {
  if (data.tree || !items.length) return;
  const rounds = data.steps.some((step) => step.rule);
  const bars = rounds ? roundBars() : items.map((item) =>
    ({ item, parts: [["surprise", surprise(item.candidate)]] }));
  const most = Math.max(rounds ? 1 : 4, ...bars.map(({ parts }) =>
    parts.reduce((sum, [, height]) => sum + height, 0)));
  const words = rounds
    ? `Drafts in each round, at most ${most}: accepted below, rejected or untested above`
    : `Surprise of each token, from 0 to ${most.toFixed(1)} bits`;
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ role: "img", "aria-label": words,
    viewBox: `0 0 ${Math.max(24, bars.length)} ${most}`, preserveAspectRatio: "none" })) {
    svg.setAttribute(name, value);
  }
  bars.forEach(({ item, parts }, i) => svg.append(...column(item, parts, i, most)));
  byId("strip").append(svg, make("figcaption", { "aria-hidden": "true" }, `${words}.`));
  byId("strip").hidden = false;

  function roundBars() {
    return data.steps.map((step) => {
      const accepted = step.candidates.filter((x) => x.kind === "accepted").length;
      return { item: items.find((item) => item.step === step),
        parts: [["yes", accepted], ["no", step.drafted - accepted]] };
    });
  }
}

function column(item, parts, i, most) {
  let top = most;
  return parts.filter(([, height]) => height > 0).map(([kind, height]) => {
    top -= height;
    const rect = document.createElementNS(SVG, "rect");
    for (const [name, value] of Object.entries({ x: i + 0.08, y: top, width: 0.84, height,
      class: kind })) rect.setAttribute(name, value);
    if (item) rect.addEventListener("click", () => item.elements[0].focus());
    return rect;
  });
}

function start() {
  data.steps.forEach((step, i) => { step.number = i + 1; });
  const items = data.tree
    ? plantTree()
    : data.steps.flatMap((step) => step.candidates
        .filter((candidate) => candidate.kind !== "untested")
        .map((candidate) => ({ candidate, step, elements: [] })));
  writeHeader(new Set(items.map((item) => item.candidate.kind)));
  writeText(items);
  writeControls(items);
  writeStrip(items);
  const first = items.find((item) => item.candidate.kind === "rejected") || items[0];
  if (first) show(first);
  pinned = first;
}

start();
