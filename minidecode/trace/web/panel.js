// The panel: what is known of the token that is pointed at.

function show(item) {
  for (const x of document.querySelectorAll(".current")) x.classList.remove("current");
  for (const element of item.elements) element.classList.add("current");
  const { candidate, step, node } = item;
  const text = sentence(item).trim();
  byId("announcement").textContent = text;
  byId("panel").replaceChildren(
    heading(candidate, node), make("p", { class: "sentence" }, text));
  if (!candidate) return;
  byId("panel").append(...trial(candidate), table(item), key(candidate),
    ...cutNote(Q ? P : "p", candidate.p), ...cutNote(Q, candidate.q), ...untested(candidate, step));
}

function heading(candidate, node) {
  if (!candidate) return make("h2", {}, "Blocked");
  const kind = node ? (node.best ? "plain" : node.fate) : candidate.kind;
  const name = make("span", { class: `token ${kind}` }, visible(label(candidate.token)));
  const where = `${node ? node.fate : KINDS[kind]}, position ${candidate.position}, id ${candidate.token}`;
  return make("h2", {}, name, " ", make("span", { class: "quiet" }, where));
}

function trial(candidate) {
  if (candidate.acceptance === undefined) return [];
  const yes = make("span", { class: "yes" });
  yes.style.width = `${100 * candidate.acceptance}%`;
  const picture = make("div", { class: "trial", "aria-hidden": "true" },
    make("div", { class: "line" }, yes));
  if (candidate.uniform !== undefined) {
    const drawn = make("div", { class: candidate.uniform > 0.5 ? "drawn late" : "drawn" },
      make("span", {}, `drawn ${number(candidate.uniform)}`));
    drawn.style.left = `${100 * candidate.uniform}%`;
    picture.append(drawn);
  }
  return [picture];
}

function untested(candidate, step) {
  const rest = candidate.kind === "rejected" ? step.candidates.filter((x) => x.kind === "untested") : [];
  const names = rest.map((x) => quoted(x.token)).join(", ");
  const text = `Drafted after it and not tested: ${names}.`;
  return rest.length ? [make("p", { class: "quiet" }, text)] : [];
}

/** The bars of each token, {name, title, model, final}: lists in the order of the candidate's ids. */
function series(candidate) {
  const rows = [{ name: "p", title: P, ...candidate.p }];
  if (candidate.q) rows.push({ name: "q", title: Q, ...candidate.q });
  if (candidate.residual) rows.push({ name: "residual", title: "p \u2212 q", final: candidate.residual });
  return rows;
}

/** The numbers of each token, [title, list]: of two models with scores what they say themselves. */
function columns(candidate) {
  const { p, q, scores, noise, residual } = candidate;
  const tested = q?.final && p?.final; // else a distribution of its own says more than its filters
  return [
    [P, tested ? !scores && p.final : p?.model],
    [Q, tested ? !scores && q.final : q?.model],
    ["score", scores],
    ["p", tested ? scores && p.final : p?.final],
    ["q", tested && scores && q.final],
    ["p \u2212 q", residual],
    ["noise", noise],
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
  const kinds = new Map(here.map((x) => [x.token, x.kind === "plain" ? "drawn" : x.kind]));
  const body = candidate.ids.map((id, i) => {
    const note = item.fates?.get(id) ?? kinds.get(id);
    const notes = [note, ...cutsOf(rows, i)].filter(Boolean);
    return make("tr", { class: kinds.has(id) ? "considered" : "", "data-id": id },
      make("th", { scope: "row", title: label(id) }, visible(label(id))),
      make("td", { class: "drawing" }, ...rows.map((row) => bar(row, i, scale))),
      ...numbers.map(([, list]) => make("td", {}, number(list[i]))),
      make("td", { class: "note" }, notes.join(", ")));
  });
  return make("table", {}, make("caption", { class: "heard-only" }, "The likeliest tokens"),
    make("thead", {}, head), make("tbody", {}, ...body));
}

/** What cut the i-th token, and of which side where the other kept it. */
function cutsOf(rows, i) {
  const cut = rows.filter((row) => row.cut?.[i]);
  const names = [...new Set(cut.map((row) => SETTINGS[row.cut[i]]))];
  const kept = rows.filter((row) => row.cut && row.final?.[i]);
  if (names.length === 1 && !kept.length) return [`cut: ${names[0]}`];
  return cut.map((row) => `cut: ${SETTINGS[row.cut[i]]} (${row.title})`);
}

/** Outlined: what the model said. Filled: what was left to draw from, or all if nothing was. */
function bar(row, i, scale) {
  const part = (kind, value) => {
    const element = make("i", { class: kind, "data-value": value });
    element.style.width = `${(100 * value) / scale}%`;
    return element;
  };
  const parts = row.model ? [part("model", row.model[i])] : [];
  parts.push(part("final", (row.final || row.model)[i]));
  return make("div", { class: `bar ${row.name}`, "aria-hidden": "true" }, ...parts);
}

function key(candidate) {
  const rows = series(candidate);
  const names = rows.map(({ name, title }) =>
    make("span", { class: `key ${name}` }, `\u25a0 ${title} `));
  const meaning = rows.some((row) => row.model && row.final)
    ? "Outlined: what the model says. Filled: what was left to draw from."
    : "";
  return make("p", { class: "quiet" }, ...(rows.length > 1 ? names : []), meaning);
}
