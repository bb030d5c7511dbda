import { get } from "./api.js";
import { bytes, count, date, eventTag, h, link, ms, part, plural } from "./dom.js";
import { card } from "./passage.js";

const SIGNALS = { bm25: "BM25", vector: "Vectors", keywords: "Keywords", salience: "Salience", importance: "Importance", speaker: "Speaker", late: "Word by word", alike: "Like words", form: "Form", total: "Fused score" };
const FIRST = 12;
/** The id of its card: a passage may stand in one block and be left out of the other. */
const where = (one) => (one.reason ? `left-${one.kind}-${one.passage.id}` : `passage-${one.passage.id}`);
const REFUSED = new Set(["verdict", "untrusted", "superseded", "confidence", "left"]);
/** For those who listen: it stands between what is seen. */
const said = (words) => h("span", { class: "hidden" }, words);
const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

/** One column a signal: the same passages, each time in that signal's order; what was left out stands among them. */
function rankings(placed, left = []) {
  placed = [...placed, ...left.map((one) => ({ ...one, out: true, text: one.passage.text }))];
  const names = [...new Set(placed.flatMap((one) => Object.keys(one.signals).filter((name) => one.signals[name])))];
  const alone = names.length === 1 && placed.every((one) => Math.abs(one.score - (one.signals[names[0]] ?? one.score)) < 1e-9);
  const columns = [...(alone ? [] : [["total", (one) => one.score]]), ...names.map((name) => [name, (one) => one.signals[name] || NaN])];
  const links = [];
  const column = ([name, score]) => {
    const rows = placed.filter((one) => Number.isFinite(score(one))).sort((a, b) => score(b) - score(a));
    const values = rows.map(score), low = Math.min(0, ...values), most = Math.max(...values, 1e-9);
    const items = rows.map((one, at) => {
      const bar = h("i", {});
      bar.style.width = `${score(one) === 0 ? 0 : Math.max(2, (100 * (score(one) - low)) / (most - low))}%`;
      const made = h("a", { href: `#${where(one)}`, "data-passage": one.passage.id, title: one.text.slice(0, 200), class: one.out && "leftout",
        onclick: (event) => { event.preventDefault(); const card = document.getElementById(where(one)), folded = card.closest("details"); if (folded) folded.open = true; card.scrollIntoView({ block: "center" }); card.querySelector("a, button").focus(); } },
        said("Rank "), h("span", { class: "muted" }, `${at + 1}`), said(` of ${rows.length}: ${one.out ? "left " : "passage "}`), h("span", {}, one.out ? "out" : `№ ${one.rank}`),
        one.out && said(`, ${one.why}`), h("span", { class: "meter", "aria-hidden": "true" }, bar), said(", score "), h("span", { class: "num" }, score(one).toFixed(2)));
      links.push(made);
      return h("li", { hidden: at >= FIRST }, made);
    });
    return h("section", {}, h("h3", {}, SIGNALS[name] || name, " ", h("span", {}, `${rows.length} ranked`)), h("ol", {}, items));
  };
  const box = h("div", { class: "columns", tabindex: 0, role: "group", "aria-label": "Rankings side by side" }, columns.map(column));
  const light = (event) => { const id = event.target.closest?.("a")?.dataset.passage; for (const one of links) one.classList.toggle("same", Boolean(id) && one.dataset.passage === id); };
  for (const kind of ["pointerover", "focusin"]) box.addEventListener(kind, light);
  box.addEventListener("pointerleave", () => links.forEach((one) => one.classList.remove("same")));
  if (placed.length <= FIRST) return [box];
  const all = h("button", { type: "button", class: "small", onclick: () => { box.querySelectorAll("[hidden]").forEach((one) => { one.hidden = false; }); all.remove(); } }, `Rank all ${placed.length}`);
  return [box, h("p", { class: "row" }, all)];
}

const KINDS = { loss: ["What the compaction lost", "Chosen when no question was known: the most specific details, for their length, that stand nowhere in the request."], question: ["What the question needs", "Chosen for the question that was asked."] };

const displaced = (one, passed) => { const like = passed.filter((other) => ["similar", "echo"].includes(other.reason) && other.other === one.passage.id); return like.length > 0 && h("span", {}, `taken instead of ${plural(like.length, "passage")} with much the same content`); };

const leftOut = (passed, { request, taken }, open) => h("details", { class: "leftout", open }, h("summary", {}, `Left out: the best ${plural(passed.length, "passage")}, and why`),
  h("div", { class: "cardlist" }, passed.map((one) => card(one.passage, { id: where(one), rank: one.rank, request, edits: 0, note: [h("span", { class: REFUSED.has(one.reason) ? "tag lost" : "tag plain" }, one.why), taken?.has(one.passage.id) && h("span", {}, "the other block has it")] }))));

/** What a block that was not made could have held. */
export const unmade = (kind, passed, known = {}) => h("section", { class: "panel" }, h("h2", {}, kind === "loss" ? "Nothing of what is lost went in" : "Nothing was found worth adding for the question"), rankings([], passed), leftOut(passed, known, true));

/** Ids of all passages in some blocks. */
export const taken = (blocks) => new Set(blocks.flatMap((one) => one.placed.map((placed) => placed.passage.id)));

/** A block of restored passages. marks: what became of them; request: whose; passed: what was left out of it; taken: what all blocks hold. */
export function block(restored, { marks = new Map(), request = "", place = "", passed = [], taken = null } = {}) {
  const [title, how] = KINDS[restored.kind] || [restored.kind, ""], left = Math.max(0, restored.considered - restored.placed.length);
  const placed = restored.placed.map((one) => ({ ...one, note: marks.get(one.passage.id) })), cut = (one) => one.text !== one.passage.text;
  const used = (note) => note?.used === true ? h("span", { class: "tag back" }, "✓ used in the answer") : note?.used === false ? h("span", { class: "tag plain" }, "not used") : null;
  return h("section", { class: "panel" }, h("h2", {}, title), h("p", { class: "muted" }, how),
    h("dl", { class: "facts" }, fact("Passages", count(placed.length)), fact("Characters", count(restored.text.length)), fact("Looked at", plural(restored.considered, "passage")),
      fact("Displaced", left ? plural(left, "passage") : "none"), fact("Took", ms(restored.ms)), place && fact("Where", place), restored.degraded.length > 0 && fact("Skipped", h("code", {}, restored.degraded.join(", ")))),
    rankings(placed, passed),
    h("div", { class: "cardlist" }, placed.map((one) => card(one.passage, { rank: one.rank, text: one.text, request, edits: 0, note: [used(one.note), cut(one) && h("span", {}, "sentences of it"), displaced(one, passed)] }))),
    passed.length > 0 && leftOut(passed, { request, taken }, false),
    h("details", {}, h("summary", {}, "The block, as it stands in the request"), h("pre", {}, restored.text)));
}

export async function why({ path, live, again }) {
  const found = await get(`api/requests/${part(path[1])}`), request = found.request;
  const marks = new Map(found.marks.map((mark) => [mark.passage, mark]));
  let soon = null;
  live((kind) => { if (kind === "change" && !document.querySelector("dialog")) soon ??= 1; });
  const passed = (kind) => found.passed.filter((one) => one.kind === kind), made = found.blocks.map((one) => one.restored.kind);
  const held = taken(found.blocks.map((one) => one.restored));
  const carried = request.restored - found.blocks.reduce((sum, one) => sum + one.restored.placed.length, 0);
  return [
    h("nav", { class: "crumbs", "aria-label": "Where you are" }, link("sessions", "Sessions"), h("span", { "aria-hidden": "true" }, "/"), link(`sessions/${part(request.session)}`, request.session), h("span", { "aria-hidden": "true" }, "/"), h("span", {}, request.id)),
    h("div", { class: "head" }, h("h1", { tabindex: -1 }, found.blocks.length ? "Why this came back" : "A request"), eventTag(request.event)),
    request.query && h("section", { class: "panel", "aria-label": "What was asked" }, h("p", { class: "small muted" }, "Asked"), h("p", { class: "text" }, request.query)),
    h("dl", { class: "facts" }, fact("When", date(request.at)), fact("Model", request.model || "–"), fact("Path", h("code", {}, request.path || "–")), fact("Answer", request.status ? `HTTP ${request.status}` : "none came"), fact("From the client", request.size ? bytes(request.size) : "–"),
      fact("Gone from it", request.gone ? `${plural(request.gone, "message")}${request.lost ? `, ${bytes(request.lost)}` : ""}` : "nothing"), fact("Restored", plural(request.restored, "passage")), fact("Added", plural(request.chars, "character")), fact("In Lantern", ms(request.ms)),
      request.degraded.length > 0 && fact("Skipped", h("code", {}, request.degraded.join(", "))), request.error && fact("Error", request.error)),
    carried > 0 && h("p", { class: "lede" }, `${plural(carried, "passage")} ${carried === 1 ? "stands" : "stand"} in it since earlier requests, byte for byte, so that the provider's cache holds; see the session's timeline.`),
    found.blocks.length ? found.blocks.map((one) => block(one.restored, { marks, request: request.id, passed: passed(one.restored.kind), taken: held, place: { inside: "at the end of its message", before: "before the last part of its message", after: "as a message of its own" }[one.place] }))
      : h("div", { class: "panel empty" }, h("h2", {}, "Nothing was added by this request"), h("p", {}, request.event === "side" ? "A side call (a title, a summary, a sub-agent) is never restored into." : request.gone ? "What is lost was not worth its room, or nothing of it answered the question." : found.passed.length ? "What its question could use stands in it already, or was not worth the room." : "It holds everything that its session held.")),
    ["loss", "question"].filter((kind) => !made.includes(kind) && passed(kind).length).map((kind) => unmade(kind, passed(kind), { request: request.id, taken: held })),
  ];
}
