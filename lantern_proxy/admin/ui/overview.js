import { get } from "./api.js";
import { activity, activityLegend } from "./chart.js";
import * as dialogs from "./dialogs.js";
import { count, date, eventTag, full, h, link, ms, part, plural, table, when } from "./dom.js";

const PERIODS = { day: ["24 hours", 86400], week: ["7 days", 604800], month: ["30 days", 2592000], all: ["All", 0] };
const EXAMPLE = "export OPENAI_BASE_URL={here}/v1\nexport ANTHROPIC_BASE_URL={here}";

/** Sums of several tenants as one. */
function joined(all) {
  const first = all[0], total = { ...first, events: {}, degraded: {}, buckets: [] };
  for (const name of ["sessions", "requests", "losses", "restores", "chars", "placed", "unsent_bytes"]) total[name] = all.reduce((sum, one) => sum + one[name], 0);
  for (const name of ["events", "degraded"]) for (const one of all) for (const [key, n] of Object.entries(one[name])) total[name][key] = (total[name][key] || 0) + n;
  total.since = Math.min(...all.map((one) => one.since));
  total.width_s = Math.max(...all.map((one) => one.width_s));
  const slots = new Map();
  for (const one of all) for (const bucket of one.buckets) {
    const at = total.since + Math.floor((bucket.at - total.since) / total.width_s) * total.width_s;
    const slot = slots.get(at) || { at, requests: 0, losses: 0, restores: 0, chars: 0 };
    for (const name of ["requests", "losses", "restores", "chars"]) slot[name] += bucket[name];
    slots.set(at, slot);
  }
  total.buckets = [...slots.values()].sort((a, b) => a.at - b.at);
  for (const name of ["ms_p50", "ms_p95"]) total[name] = Math.max(...all.map((one) => one[name]));
  return total;
}

export const requestRow = (row, fresh = false) => h("tr", { class: fresh ? "fresh" : null },
  h("td", { class: "wideonly" }, when(row.at)), h("td", { class: "wideonly" }, eventTag(row.event)),
  h("td", { class: "clip" }, link(`requests/${part(row.id)}`, row.query || row.model || row.id), h("span", { class: "narrowonly small muted" }, eventTag(row.event), " ", when(row.at))),
  h("td", { class: "r" }, row.restored ? h("span", { class: "tag back" }, `${row.restored} restored`) : "–"),
  h("td", { class: "r wideonly" }, ms(row.ms)));
export const REQUEST_HEADS = [["When", "wideonly"], ["What", "wideonly"], ["Asked"], ["Came back", "r"], ["In Lantern", "r wideonly"]];

const cell = (name, value, note) => h("div", { class: "card" }, h("dt", {}, name), h("dd", {}, value), note && h("dd", { class: "note" }, note));

function cards(sums) {
  const tokens = Math.round(sums.unsent_bytes / 4);
  return h("dl", { class: "cards" },
    cell("Sessions", count(sums.sessions), plural(sums.requests, "request")),
    cell("Compactions", count(sums.losses), sums.losses ? `${count(sums.events.compacted || 0)} summarised, ${count(sums.losses - (sums.events.compacted || 0))} dropped or cleared` : "none noticed"),
    cell("Restores", count(sums.restores), `requests with restored passages`),
    cell("Characters added", count(sums.chars), sums.restores ? `${count(Math.round(sums.chars / sums.restores))} a restore` : "nothing so far"),
    cell("Tokens not resent", `~${count(tokens)}`, "left out by clients, less what came back"),
    cell("Time in Lantern", ms(sums.ms_p50), `p95 ${ms(sums.ms_p95)}`));
}

function health(state, sums) {
  const rows = [];
  const say = (name, ok, words) => rows.push(h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, h("span", { class: `tag ${ok ? "back" : "lost"}` }, ok ? "✓ works" : "! look")), h("td", {}, words)));
  say("Archive", state.archive.ok, state.archive.problem || `${state.archive.path}${state.archive.waiting ? `, ${plural(state.archive.waiting, "record")} waiting` : ""}`);
  say("Vectors", ["ready", "off"].includes(state.embedder.state), `${state.embedder.state}${state.embedder.detail ? `: ${state.embedder.detail}` : ""}`);
  say("BM25", state.bm25.kernel !== "numpy", `kernel ${state.bm25.kernel}`);
  const skipped = Object.entries(sums.degraded);
  return h("section", { class: "panel", "aria-labelledby": "health" }, h("h2", { id: "health" }, "What works"), h("table", { class: "wrap" }, h("caption", { class: "hidden" }, "State of the parts"), h("tbody", {}, rows)),
    h("p", { class: "small muted" }, skipped.length ? ["Skipped in this time: ", skipped.map(([reason, n], at) => [at ? ", " : "", h("code", {}, reason), ` ${full(n)}×`])] : "Nothing was skipped in this time."));
}

export async function overview({ asked, live, again }) {
  const period = PERIODS[asked.get("period")] ? asked.get("period") : "week";
  const length = PERIODS[period][1], since = length ? Math.floor(Date.now() / 1000) - length : 0;
  const [all, state, requests] = await Promise.all([get("api/overview", { since }), get("health"), get("api/requests", { limit: 12 })]);
  const segments = h("div", { class: "segments", role: "group", "aria-label": "Period" }, Object.entries(PERIODS).map(([name, [words]]) =>
    h("button", { type: "button", "aria-pressed": String(name === period), onclick: () => { location.hash = `#/?period=${name}`; } }, words)));
  const head = h("div", { class: "head" }, h("h1", { tabindex: -1 }, "Overview"), segments);
  const problem = state.archive.problem && h("p", { class: "alert", role: "alert" }, h("strong", {}, "The archive cannot be written. "), state.archive.problem);
  if (!all.length) return [head, problem, h("div", { class: "panel empty" }, h("h2", {}, "Nothing archived yet"), h("p", {}, "Point a client at this proxy; its first request shows up here."), h("pre", {}, EXAMPLE.replaceAll("{here}", location.origin)))];
  const sums = joined(all);
  const body = h("tbody", {}, requests.map((row) => requestRow(row)));
  const recent = table("Latest requests", REQUEST_HEADS, []);
  recent.querySelector("tbody").replaceWith(body);
  let soon = null;
  live((kind, told) => {
    if (kind === "request") { body.prepend(requestRow({ query: "", ...told }, true)); while (body.children.length > 12) body.lastElementChild.remove(); }
    soon ??= setTimeout(() => again(), 4000);
  });
  const title = period === "all" ? `since ${date(sums.since)}` : `the last ${PERIODS[period][0]}`;
  return [head, h("p", { class: "lede" }, `What your clients sent, what they left out, and what Lantern put back: ${title}.`), problem, cards(sums),
    h("section", { class: "panel", "aria-labelledby": "activity" }, h("h2", { id: "activity" }, "Activity"), activity(sums), activityLegend()),
    h("div", { class: "two" },
      h("section", { class: "panel", "aria-labelledby": "latest" }, h("h2", { id: "latest" }, "Latest requests"), recent),
      h("div", {}, health(state, sums), h("section", { class: "panel", "aria-labelledby": "care" }, h("h2", { id: "care" }, "Care"), h("p", { class: "muted" }, "Nothing is removed unless you say so."), h("p", { class: "row" }, h("button", { type: "button", class: "bad", onclick: () => dialogs.prune() }, "Prune …")))))];
}
