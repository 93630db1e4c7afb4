// The panel: what is known of the token that is pointed at.

function show(item) {
  for (const x of document.querySelectorAll(".current")) x.classList.remove("current");
  for (const element of item.elements) element.classList.add("current");
  const { candidate, step, node } = item;
  const text = sentence(item).trim();
  byId("announcement").textContent = text;
  byId("panel").replaceChildren(
    heading(item), make("p", { class: "sentence" }, text));
  byId("panel").scrollTop = 0;
  if (!candidate) return;
  byId("panel").append(...trial(candidate), ...draw(candidate), table(item), key(candidate),
    ...divided(candidate, step), ...cutNote(Q ? P : "p", candidate.p),
    ...cutNote(Q, candidate.q), ...untested(candidate, step));
}

function heading(item) {
  const { candidate, node, step } = item;
  if (!candidate) return make("h2", {}, "Blocked");
  const kind = node ? (node.best ? "plain" : node.fate) : candidate.kind;
  const name = make("span", { class: `token ${kind}` }, visible(label(candidate.token)));
  const round = step.rule ? `, round ${step.number} of ${data.steps.length}` : "";
  const where = `${node ? node.fate : KINDS[kind]}${round}, position ${candidate.position}, ` +
    `id ${candidate.token}`;
  return make("h2", {}, name, " ", make("span", { class: "quiet" }, where));
}

/** A needle at x of a line from 0 to 1, with its number. */
function needle(x) {
  const element = make("div", { class: x > 0.5 ? "drawn late" : "drawn" },
    make("span", {}, `drawn ${number(x)}`));
  element.style.left = `${100 * x}%`;
  return element;
}

function trial(candidate) {
  if (candidate.acceptance === undefined) return [];
  const yes = make("span", { class: "yes" });
  yes.style.width = `${100 * candidate.acceptance}%`;
  const picture = make("div", { class: "trial", "aria-hidden": "true" },
    make("div", { class: "line" }, yes));
  if (candidate.uniform !== undefined) picture.append(needle(candidate.uniform));
  const words = candidate.uniform === undefined
    ? "The green part is the chance of acceptance."
    : "Accepted if the number drawn lies in the green part.";
  return [make("p", { class: "quiet picture" }, words), picture];
}

/** All tokens side by side on a line from 0 to 1, each as wide as it is likely, and the needle. */
function draw(candidate) {
  if (!candidate.starts) return [];
  const ofDraft = ["accepted", "rejected", "untested"].includes(candidate.kind);
  const shares = candidate.residual || (ofDraft ? candidate.q : candidate.p)?.final;
  if (!shares) return [];
  const line = make("div", { class: "line" });
  candidate.ids.forEach((id, i) => {
    if (!shares[i]) return;
    const part = make("span", { class: id === candidate.token ? "part chosen" : "part",
      "data-id": id, title: label(id) });
    part.style.left = `${100 * candidate.starts[i]}%`;
    part.style.width = `${100 * shares[i]}%`;
    if (shares[i] > 0.12) part.append(visible(label(id)));
    line.append(part);
  });
  const picture = make("div", { class: "trial cumulative", "aria-hidden": "true" },
    line, needle(candidate.drawn));
  const from = candidate.residual ? "the residual" : ofDraft ? `the ${Q}` : "what was left";
  const words = `Drawn from ${from}: every token is as wide as it is likely, in the order of ` +
    "ids, and the number drawn points at one.";
  return [make("p", { class: "quiet picture" }, words), picture];
}

/** What the residual is, with the sum that divides. */
function divided(candidate, step) {
  if (!candidate.residual) return [];
  const rest = step.rule === "block" ? "max(0, P\u1d62 p \u2212 q)" : "max(0, p \u2212 q)";
  return [make("p", { class: "quiet divisor" },
    `residual = ${rest} / ${number(candidate.divisor)}, the sum of ${rest} over all tokens.`)];
}

function untested(candidate, step) {
  const rest = candidate.kind === "rejected"
    ? step.candidates.filter((x) => x.kind === "untested") : [];
  const names = rest.map((x) => quoted(x.token)).join(", ");
  const text = `Drafted after it and not tested: ${names}.`;
  return rest.length ? [make("p", { class: "quiet" }, text)] : [];
}

/** The bars of each token, {name, title, model, final}: lists in the order of the ids. */
function series(candidate) {
  const rows = [{ name: "p", title: P, ...candidate.p }];
  if (candidate.q) rows.push({ name: "q", title: Q, ...candidate.q });
  if (candidate.residual) {
    rows.push({ name: "residual", title: "residual", final: candidate.residual });
  }
  return rows;
}

/** The numbers of each token, [title, list]: of two models with scores what they say themselves. */
function columns(candidate) {
  const { p, q, scores, likeness, noise, residual } = candidate;
  const tested = q?.final && p?.final; // else a distribution of its own says more than its filters
  const sums = noise && p?.final &&
    noise.map((g, i) => (p.final[i] > 0 ? Math.log(p.final[i]) + g : null));
  return [
    [P, tested ? !scores && p.final : p?.model],
    [Q, tested ? !scores && q.final : q?.model],
    ["alike", likeness],
    [data.tree && !Q ? "added" : "score", scores],
    ["p", likeness ? null : tested ? scores && p.final : p?.final],
    ["q", tested && scores && q.final],
    ["residual", residual],
    ["noise", noise],
    ["log p + noise", sums],
  ].filter(([, list]) => list);
}

function table(item) {
  const { candidate, step } = item;
  const rows = series(candidate), numbers = columns(candidate);
  const most = Math.max(...rows.flatMap((row) => [...(row.model || []), ...(row.final || [])]));
  const scale = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((x) => x >= most) || 1;
  const axis = make("div", { class: "axis" }, make("span", {}, "0"), make("span", {}, scale));
  const head = make("tr", {}, make("th", { scope: "col" }, "token"),
    make("td", { class: "drawing" }, axis),
    ...numbers.map(([title]) => make("th", { scope: "col" }, title)),
    make("th", { scope: "col", class: "note" }, make("span", { class: "heard-only" }, "note")));
  const here = step.candidates.filter((x) => x.position === candidate.position);
  const taken = candidate.likeness ? "taken" : "drawn";
  const kinds = new Map(here.map((x) => [x.token, x.kind === "plain" ? taken : x.kind]));
  const body = candidate.ids.map((id, i) => {
    const note = item.fates?.get(id) ?? kinds.get(id);
    const notes = [note, ...cutsOf(rows, i)].filter(Boolean).join(", ");
    return make("tr", { class: kinds.has(id) ? "considered" : "", "data-id": id },
      make("th", { scope: "row", title: label(id), "data-note": notes }, visible(label(id))),
      make("td", { class: "drawing" }, ...rows.map((row) => bar(row, i, scale, candidate)),
        ...scoreBar(candidate, i)),
      ...numbers.map(([, list]) => make("td", {}, number(list[i]))),
      make("td", { class: "note" }, notes));
  });
  return make("table", {}, make("caption", { class: "heard-only" }, "The likeliest tokens"),
    make("thead", {}, head), make("tbody", {}, ...body));
}

/** What cut the i-th token, and of which side where the other kept it. */
function cutsOf(rows, i) {
  const cut = rows.filter((row) => row.cut?.[i]);
  const names = [...new Set(cut.map((row) => SETTINGS[row.cut[i]] ?? row.cut[i]))];
  const kept = rows.filter((row) => row.cut && row.final?.[i]);
  if (names.length === 1 && !kept.length) return [`cut: ${names[0]}`];
  return cut.map((row) => `cut: ${SETTINGS[row.cut[i]] ?? row.cut[i]} (${row.title})`);
}

/** Outlined: what the model said. Filled: what was left to draw from, or all if nothing was. */
function bar(row, i, scale, candidate) {
  const part = (kind, value) => {
    const element = make("i", { class: kind, "data-value": value });
    element.style.width = `${(100 * value) / scale}%`;
    return element;
  };
  const parts = row.model ? [part("model", row.model[i])] : [];
  parts.push(part("final", (row.final || row.model)[i]));
  const element = make("div", { class: `bar ${row.name}`, "aria-hidden": "true" }, ...parts);
  if (row.name === "p" && candidate.least !== undefined) {
    const least = make("b", { class: "least" });
    least.style.left = `${(100 * candidate.least) / scale}%`;
    element.append(least);
  }
  return element;
}

/** A contrastive score as a bar from 0 to the right or the left. */
function scoreBar(candidate, i) {
  const { scores } = candidate;
  if (!scores || (data.tree && !Q)) return [];
  const known = scores.filter((x) => x !== null);
  const low = Math.min(0, ...known), high = Math.max(0, ...known);
  const element = make("div", { class: "bar score", "aria-hidden": "true" });
  if (scores[i] !== null && high > low) {
    const part = make("i", { class: "final", "data-value": scores[i] });
    part.style.left = `${(100 * (Math.min(0, scores[i]) - low)) / (high - low)}%`;
    part.style.width = `${(100 * Math.abs(scores[i])) / (high - low)}%`;
    element.append(part);
  }
  return [element];
}

function key(candidate) {
  const rows = series(candidate);
  if (scoreBar(candidate, 0).length) rows.push({ name: "score", title: "score" });
  const names = rows.map(({ name, title }) =>
    make("span", { class: `key ${name}` }, `\u25a0 ${title} `));
  const meaning = rows.some((row) => row.model && row.final)
    ? "Outlined: what the model says. Filled: what was left to draw from. "
    : "";
  const alike = candidate.likeness
    ? "alike: the largest cosine of its hidden state with one of the text. " : "";
  const least = candidate.least === undefined ? "" :
    `The line: alpha times the ${P}'s largest probability, ${number(candidate.least)}; what is ` +
    "less likely is left out.";
  return make("p", { class: "quiet" }, ...(rows.length > 1 ? names : []), meaning, alike, least);
}
