"use strict";
// The page of one trace. All it shows comes from the JSON in #trace; nothing is fetched, and every
// text goes in as text, never as HTML.

const data = JSON.parse(document.getElementById("trace").textContent);
const byId = (id) => document.getElementById(id);
const KINDS = { plain: "token" };
for (const [kind, { name }] of Object.entries(data.kinds)) KINDS[kind] = name;
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
const own = (candidate, values) =>
  values ? values[candidate.ids.indexOf(candidate.token)] : null;
/** What the model itself gave the token, before any setting. */
const probability = (candidate) => own(candidate, candidate.p?.model || candidate.p?.final);
const surprise = (candidate) => -Math.log2(Math.max(probability(candidate), 2 ** -60));

// ---- what is said of a token

function sentence(item) {
  const { candidate, step, node } = item;
  if (node) return hypothesis(node);
  const rival = step.candidates
    .find((x) => x.position === candidate.position && x !== candidate);
  if (candidate.kind === "accepted" || candidate.kind === "rejected") {
    return tested(item, rival);
  }
  const p = number(own(candidate, candidate.p.final));
  if (candidate.kind === "correction") return corrected(candidate, step, rival);
  if (candidate.kind === "bonus") {
    return `Bonus: all ${step.drafted} drafts were accepted, so the ${P}'s next row gives one ` +
      `more, with p = ${p}${uniform(candidate)}. ${noise(candidate)}`;
  }
  if (candidate.likeness) {
    return `Taken for the best score, ${number(own(candidate, candidate.scores))}: its probability ` +
      `is ${p}, its likeness to the text ${number(own(candidate, candidate.likeness))}.`;
  }
  const how = candidate.p.kept === 1 ? "The only token left" : "Drawn";
  const score = candidate.scores
    ? ` Its score is ${number(own(candidate, candidate.scores))}.` : "";
  return `${how}, with probability ${p}${uniform(candidate)}.${score} ${noise(candidate)}`;
}

function corrected(candidate, step, rival) {
  if (candidate.noise) {
    return `Correction: with the noise here the ${P} draws it. ${noise(candidate)}`;
  }
  const share = number(own(candidate, candidate.residual));
  const rest = step.rule === "block" ? "max(0, P\u1d62 p \u2212 q)" : "max(0, p \u2212 q)";
  return `Correction: after the rejection of ${quoted(rival.token)} drawn from ` +
    `the residual, ${rest} divided by its sum ${number(candidate.divisor)}, where its share is ` +
    `${share}${uniform(candidate)}.`;
}

function tested(item, rival) {
  const { candidate, step } = item;
  const verdict = candidate.kind === "accepted" ? "Accepted" : "Rejected";
  const [p, q] = [candidate.p, candidate.q].map((bars) => number(own(candidate, bars?.final)));
  if (step.rule === "block") return inBlock(candidate, step, verdict);
  if (candidate.acceptance === undefined) {
    if (!candidate.noise && step.rule !== "coupled") {
      return `${verdict} by a rule of verification of the user's own. p = ${p}, q = ${q}.`;
    }
    const drawn = rival ? quoted(rival.token) : "it too";
    const outcome = `${verdict}: with the noise here the ${P} draws ${drawn}.`;
    return `${outcome} p = ${p}, q = ${q}. ${noise(candidate)}`;
  }
  const limit = number(candidate.acceptance);
  const chance = `${verdict}: min(1, p/q) = min(1, ${p}/${q}) = ${limit}`;
  return `${chance}${thrown(candidate, limit)}.`;
}

/** The number that decided a test; none where the outcome was certain. */
function thrown(candidate, limit) {
  if (candidate.uniform === undefined) return "";
  const sign = candidate.uniform < candidate.acceptance ? "<" : "\u2265";
  return `, and the number drawn was ${number(candidate.uniform)} ${sign} ${limit}`;
}

function inBlock(candidate, step, verdict) {
  if (candidate.acceptance === undefined) {
    return `${verdict} with the block: a coin further on decided for all drafts up to there.`;
  }
  const limit = number(candidate.acceptance);
  return `${verdict}. The drafts up to this one are kept with probability P\u1d62 = ` +
    `${number(candidate.reach)}; the coin that keeps them and none behind falls with probability ` +
    `${limit}${thrown(candidate, limit)}.`;
}

function uniform(candidate) {
  if (candidate.drawn === undefined || candidate.starts === undefined) return "";
  return `; the number drawn was ${number(candidate.drawn)}`;
}

function noise(candidate) {
  if (!candidate.noise) return "";
  const value = number(own(candidate, candidate.noise));
  return `Drawn is the largest sum of log-probability and noise; here the noise is ${value}.`;
}

function hypothesis(node) {
  const { candidate, level, index, total, fate, rank, group } = node;
  const of = group === undefined ? "" : `Group ${group}. `;
  const where = `Step ${level + 1}, place ${index + 1} of ${data.tree.levels[level].length}`;
  const added = candidate
    ? `${number(own(candidate, candidate.scores))} added, ` : "no token was allowed, ";
  const outcome = rank === undefined ? fate : `finished as number ${rank + 1}, ` +
    `score ${number(data.tree.hypotheses[rank].score)} (${data.tree.hypotheses[rank].reason})`;
  return `${of}${where}: ${added}sum ${number(total)}; ${outcome}.`;
}

function cutNote(name, bars) {
  if (!bars || bars.kept === undefined) return [];
  const cuts = (bars.cuts || []).filter(([, count]) => count > 0).map(([setting, count, share]) =>
    `${SETTINGS[setting] ?? setting} cut ${count.toLocaleString("en")} ` +
    `(${(100 * share).toFixed(1)}\u00a0%)`);
  const tokens = bars.kept === 1 ? "token was" : "tokens were";
  const kept = `${name}: ${bars.kept.toLocaleString("en")} ${tokens} left to draw from`;
  return [make("p", { class: "quiet" }, [kept, ...cuts].join("; ") + ".")];
}
