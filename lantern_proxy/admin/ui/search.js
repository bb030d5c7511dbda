import { get } from "./api.js";
import { busy, excerpt, h, marked, part, plural } from "./dom.js";
import { card } from "./passage.js";

const PAGE = 20;
const day = (text, days = 0) => (text ? Date.parse(`${text}T00:00:00Z`) / 1000 + days * 86400 : "");

export async function search({ asked }) {
  const value = (name) => asked.get(name) || "";
  const field = (name, words, more) => h("label", {}, words, h("input", { name, value: value(name), ...more }));
  const speaker = h("select", { name: "speaker" }, [["", "Anyone"], ["user", "user"], ["assistant", "assistant"], ["tool", "tool"], ["client", "client"]].map(([name, words]) => h("option", { value: name, selected: name === value("speaker") }, words)));
  const form = h("form", { class: "filters", role: "search", onsubmit: (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams([...new FormData(form)].filter(([, text]) => text));
    location.hash = `#/search?${wanted}`;
  } }, field("q", "Words, or \"a phrase\"", { type: "search" }), h("label", {}, "Said by", speaker), field("since", "From", { type: "date" }), field("until", "To", { type: "date" }), h("button", { type: "submit", class: "main" }, "Search"));
  if (value("session")) form.append(field("session", "Session"));
  const results = h("section", { class: "panel", "aria-label": "Results", hidden: true }), note = h("p", { class: "muted", role: "status" }), list = h("div", {}), more = h("button", { type: "button", hidden: true }, "Show more");
  const texts = new Set();
  let shown = 0, copies = 0;
  const load = async () => {
    const hits = await get("api/search", { q: value("q"), speaker: value("speaker"), session: value("session"), since: day(value("since")), until: day(value("until"), 1), limit: PAGE, offset: shown });
    const fresh = hits.filter((hit) => !texts.has(hit.passage.text) && texts.add(hit.passage.text));
    copies += hits.length - fresh.length;
    list.append(...fresh.map((hit) => card(hit.passage, { body: marked(excerpt(hit.passage.text, value("q")), value("q")), note: h("span", {}, `score ${hit.score.toFixed(2)}`) })));
    shown += hits.length;
    more.hidden = hits.length < PAGE;
    results.hidden = false;
    note.textContent = shown ? `${plural(shown, "passage")}${more.hidden ? "" : " so far"}, best first${copies ? `; ${copies === 1 ? "one, which says" : `${copies}, which say`} the same again, not repeated` : ""}.` : "Nothing was found. Try fewer words, or another date.";
  };
  more.addEventListener("click", () => busy(more, load));
  results.append(note, list, h("p", { class: "row" }, more));
  if (value("q")) await load();
  return [h("h1", { tabindex: -1 }, "Search"), h("p", { class: "lede" }, "In everything that was said, lost or not, word for word."), form, results];
}

export async function marks() {
  const rows = await get("api/marks", { limit: 200 });
  return [
    h("h1", { tabindex: -1 }, "Marked"),
    h("p", { class: "lede" }, "What somebody judged, pinned or corrected, newest first. Wrong and outdated passages are not restored again, in no copy of them; pinned ones are preferred and never pruned. Press a button again to take it back."),
    rows.length ? h("section", { class: "panel", "aria-label": "Marked passages" }, rows.map((row) => card(row.passage, { edits: row.edits })))
      : h("div", { class: "panel empty" }, h("h2", {}, "Nothing is marked yet"), h("p", {}, "Judge a passage where you find it: in a search, or under a request that it was restored into.")),
  ];
}
