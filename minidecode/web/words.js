"use strict";
// The page of one trace. All it shows comes from the JSON in #trace; nothing is fetched, and every
// text goes in as text, never as HTML.

const data = JSON.parse(document.getElementById("trace").textContent);
const byId = (id) => document.getElementById(id);
const KINDS = {
  accepted: "accepted draft",
  rejected: "rejected draft",
  correction: "correction",
  bonus: "bonus token",
  plain: "token",
};
const SETTINGS = {
  no_repeat_ngram_size: "n-gram blocking",
  temperature: "greedy",
  top_k: "top-k",
  top_p: "top-p",
  epsilon: "epsilon",
  alpha: "alpha",
};
const [P, Q] = data.names; // such as target and draft

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function number(x) {
  if (x === null || x === undefined) return "";
  if (x === 0) return "0";
  if (Math.abs(x) < 0.00005) return x.toExponential(0);
  return x.toFixed(4).replace("-", "\u2212");
}

const label = (token) => data.labels[token];
const quoted = (token) => `\u201c${label(token)}\u201d`;
const visible = (text) => text.replaceAll(" ", "\u2423");
const own = (place, values) => (values ? values[place.ids.indexOf(place.token)] : null);

// ---- what is said of a token

function sentence(item) {
  const { place, step, node } = item;
  if (node) return hypothesis(node);
  const p = number(own(place, place.p.final));
  const q = place.q ? number(own(place, place.q.final)) : "";
  const certain = place.p.kept === 1;
  const u = place.drawn === undefined || certain ? "" : `; the number drawn was ${number(place.drawn)}`;
  const other = step.places.find((x) => x.position === place.position && x !== place);
  switch (place.kind) {
    case "accepted":
    case "rejected":
      return tested(place, p, q, other);
    case "correction":
      return place.residual
        ? `Correction: after the rejection of ${quoted(other.token)} drawn from max(0, p \u2212 q), ` +
            `where its share is ${number(own(place, place.residual))}${u}.`
        : `Correction: the ${P}'s own draw, where the draft was ${quoted(other.token)}. ${noisy(place)}`;
    case "bonus":
      return `Bonus: all ${step.drafted} drafts were accepted, so the ${P}'s next row gives one more, ` +
        `with p = ${p}${u}. ${noisy(place)}`;
  }
  const score = place.scores ? ` Its score is ${number(own(place, place.scores))}.` : "";
  const how = certain ? "The only token left" : "Drawn";
  return `${how}, with probability ${p}${u}.${score} ${noisy(place)}`;
}

function tested(place, p, q, other) {
  const verdict = place.kind === "accepted" ? "Accepted" : "Rejected";
  if (place.acceptance === undefined) {
    return place.kind === "accepted"
      ? `Accepted: it is the ${P}'s own draw too. p = ${p}, q = ${q}. ${noisy(place)}`
      : `Rejected: the ${P} itself draws ${quoted(other.token)}. p = ${p}, q = ${q}. ${noisy(place)}`;
  }
  const chance = `min(1, p/q) = min(1, ${p}/${q}) = ${number(place.acceptance)}`;
  if (place.uniform === undefined) return `${verdict}: ${chance}.`;
  const sign = place.kind === "accepted" ? "<" : "\u2265";
  return `${verdict}: ${chance}, and the number drawn was ${number(place.uniform)} ${sign} ${number(place.acceptance)}.`;
}

function noisy(place) {
  return place.noise
    ? `Drawn as the largest log p + noise; its noise is ${number(own(place, place.noise))}.`
    : "";
}

function hypothesis(node) {
  const { place, level, index, total, fate, rank } = node;
  const where = `Step ${level + 1}, place ${index + 1} of ${data.tree.levels[level].length}`;
  const added = place ? `${number(own(place, place.scores))} added, ` : "no token was allowed, ";
  const outcome = rank === undefined ? fate : `finished as number ${rank + 1}, ` +
    `score ${number(data.tree.hypotheses[rank].score)} (${data.tree.hypotheses[rank].reason})`;
  return `${where}: ${added}sum ${number(total)}; ${outcome}.`;
}

function cutNote(name, bars) {
  if (!bars || bars.kept === undefined) return [];
  const cuts = (bars.cuts || []).filter(([, count]) => count > 0).map(([setting, count, share]) =>
    `${SETTINGS[setting]} cut ${count}, which had ${(100 * share).toFixed(1)} %`);
  const kept = `${name}: ${bars.kept} ${bars.kept === 1 ? "token was" : "tokens were"} left to draw from`;
  return [make("p", { class: "quiet" }, [kept, ...cuts].join("; ") + ".")];
}
