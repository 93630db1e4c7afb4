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
const SETTINGS = data.words; // of each setting that can cut, its name
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
  const rival = step.places.find((x) => x.position === place.position && x !== place);
  if (place.kind === "accepted" || place.kind === "rejected") return tested(place, rival);
  const p = number(own(place, place.p.final));
  if (place.kind === "correction") {
    if (place.noise) return `Correction: with the noise here the ${P} draws it. ${noise(place)}`;
    const share = number(own(place, place.residual));
    return `Correction: after the rejection of ${quoted(rival.token)} drawn from ` +
      `max(0, p \u2212 q), where its share is ${share}${uniform(place)}.`;
  }
  if (place.kind === "bonus") {
    return `Bonus: all ${step.drafted} drafts were accepted, so the ${P}'s next row gives one ` +
      `more, with p = ${p}${uniform(place)}. ${noise(place)}`;
  }
  const how = place.p.kept === 1 ? "The only token left" : "Drawn";
  const score = place.scores ? ` Its score is ${number(own(place, place.scores))}.` : "";
  return `${how}, with probability ${p}${uniform(place)}.${score} ${noise(place)}`;
}

function tested(place, rival) {
  const verdict = place.kind === "accepted" ? "Accepted" : "Rejected";
  const [p, q] = [place.p, place.q].map((bars) => number(own(place, bars.final)));
  if (place.acceptance === undefined) {
    const drawn = rival ? quoted(rival.token) : "it too";
    const outcome = `${verdict}: with the noise here the ${P} draws ${drawn}.`;
    return `${outcome} p = ${p}, q = ${q}. ${noise(place)}`;
  }
  const limit = number(place.acceptance);
  const chance = `${verdict}: min(1, p/q) = min(1, ${p}/${q}) = ${limit}`;
  if (place.uniform === undefined) return `${chance}.`;
  const sign = place.kind === "accepted" ? "<" : "\u2265";
  return `${chance}, and the number drawn was ${number(place.uniform)} ${sign} ${limit}.`;
}

function uniform(place) {
  if (place.drawn === undefined || place.p.kept === 1) return "";
  return `; the number drawn was ${number(place.drawn)}`;
}

function noise(place) {
  if (!place.noise) return "";
  const value = number(own(place, place.noise));
  return `Drawn is the largest sum of log-probability and noise; here the noise is ${value}.`;
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
    `${SETTINGS[setting]} cut ${count}, which had ${(100 * share).toFixed(1)}\u00a0%`);
  const tokens = bars.kept === 1 ? "token was" : "tokens were";
  const kept = `${name}: ${bars.kept} ${tokens} left to draw from`;
  return [make("p", { class: "quiet" }, [kept, ...cuts].join("; ") + ".")];
}
