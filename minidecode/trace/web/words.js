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
const own = (candidate, values) => (values ? values[candidate.ids.indexOf(candidate.token)] : null);

// ---- what is said of a token

function sentence(item) {
  const { candidate, step, node } = item;
  if (node) return hypothesis(node);
  const rival = step.candidates.find((x) => x.position === candidate.position && x !== candidate);
  if (candidate.kind === "accepted" || candidate.kind === "rejected") return tested(candidate, rival);
  const p = number(own(candidate, candidate.p.final));
  if (candidate.kind === "correction") {
    if (candidate.noise) return `Correction: with the noise here the ${P} draws it. ${noise(candidate)}`;
    const share = number(own(candidate, candidate.residual));
    return `Correction: after the rejection of ${quoted(rival.token)} drawn from ` +
      `max(0, p \u2212 q), where its share is ${share}${uniform(candidate)}.`;
  }
  if (candidate.kind === "bonus") {
    return `Bonus: all ${step.drafted} drafts were accepted, so the ${P}'s next row gives one ` +
      `more, with p = ${p}${uniform(candidate)}. ${noise(candidate)}`;
  }
  const how = candidate.p.kept === 1 ? "The only token left" : "Drawn";
  const score = candidate.scores ? ` Its score is ${number(own(candidate, candidate.scores))}.` : "";
  return `${how}, with probability ${p}${uniform(candidate)}.${score} ${noise(candidate)}`;
}

function tested(candidate, rival) {
  const verdict = candidate.kind === "accepted" ? "Accepted" : "Rejected";
  const [p, q] = [candidate.p, candidate.q].map((bars) => number(own(candidate, bars.final)));
  if (candidate.acceptance === undefined) {
    const drawn = rival ? quoted(rival.token) : "it too";
    const outcome = `${verdict}: with the noise here the ${P} draws ${drawn}.`;
    return `${outcome} p = ${p}, q = ${q}. ${noise(candidate)}`;
  }
  const limit = number(candidate.acceptance);
  const chance = `${verdict}: min(1, p/q) = min(1, ${p}/${q}) = ${limit}`;
  if (candidate.uniform === undefined) return `${chance}.`;
  const sign = candidate.kind === "accepted" ? "<" : "\u2265";
  return `${chance}, and the number drawn was ${number(candidate.uniform)} ${sign} ${limit}.`;
}

function uniform(candidate) {
  if (candidate.drawn === undefined || candidate.p.kept === 1) return "";
  return `; the number drawn was ${number(candidate.drawn)}`;
}

function noise(candidate) {
  if (!candidate.noise) return "";
  const value = number(own(candidate, candidate.noise));
  return `Drawn is the largest sum of log-probability and noise; here the noise is ${value}.`;
}

function hypothesis(node) {
  const { candidate, level, index, total, fate, rank } = node;
  const where = `Step ${level + 1}, place ${index + 1} of ${data.tree.levels[level].length}`;
  const added = candidate ? `${number(own(candidate, candidate.scores))} added, ` : "no token was allowed, ";
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
