import { get } from "./api.js";
import { timeline, timelineLegend } from "./chart.js";
import * as dialogs from "./dialogs.js";
import { LOSSES, ago, busy, bytes, count, date, eventTag, full, h, link, ms, part, plural, table, when } from "./dom.js";

const PAGE = 50;
const titleOf = (row) => row.title || row.id;

export async function sessions({ asked, live }) {
  const wanted = asked.get("q") || "";
  const body = h("tbody", {}), more = h("button", { type: "button", hidden: true }, "Show more"), note = h("p", { class: "muted small", role: "status" });
  let shown = 0;
  const row = (one) => h("tr", {},
    h("td", { class: "clip" }, link(`sessions/${part(one.id)}`, titleOf(one)), h("span", { class: "small muted" }, h("span", { class: "narrowonly" }, ago(one.last_seen_at), " · "), `${one.project ? `${one.project} · ` : ""}${one.id}`)),
    h("td", { class: "wideonly" }, when(one.last_seen_at)), h("td", { class: "r wideonly" }, count(one.messages)), h("td", { class: "r wideonly" }, count(one.requests)),
    h("td", { class: "r" }, one.losses ? h("span", { class: "tag lost" }, `▼ ${count(one.losses)}`) : "–"),
    h("td", { class: "r" }, one.blocks ? h("span", { class: "tag back" }, `↩ ${count(one.blocks)}`) : "–"));
  const load = async () => {
    const rows = await get("api/sessions", { limit: PAGE, offset: shown, q: wanted });
    body.append(...rows.map(row));
    shown += rows.length;
    more.hidden = rows.length < PAGE;
    note.textContent = shown ? `${plural(shown, "session")} shown, last seen first.` : wanted ? `No session has “${wanted}” in its title or id.` : "No session yet.";
  };
  more.addEventListener("click", () => busy(more, load));
  await load();
  const field = h("input", { type: "search", name: "q", value: wanted, placeholder: "Title or id", "aria-label": "Title or id" });
  const form = h("form", { class: "row", role: "search", onsubmit: (event) => { event.preventDefault(); location.hash = `#/sessions${field.value ? `?q=${part(field.value)}` : ""}`; } }, field, h("button", { type: "submit" }, "Find"));
  form.style.flexWrap = "nowrap";
  const list = table("Sessions", [["Session"], ["Last seen", "wideonly"], ["Messages", "r wideonly"], ["Requests", "r wideonly"], ["Lost", "r"], ["Restored", "r"]], []);
  list.querySelector("tbody").replaceWith(body);
  live(() => { if (shown <= PAGE) note.textContent = "There is news: reload to see it."; });
  return [h("div", { class: "head" }, h("h1", { tabindex: -1 }, "Sessions"), form), h("section", { class: "panel", "aria-label": "Sessions" }, shown ? list : null, note, h("p", { class: "row" }, more))];
}

function messageOf(session, shown, here) {
  const text = h("p", { class: shown.role === "tool" || shown.is_result ? "text mono" : "text" }, shown.text);
  const calls = shown.calls.map((call) => h("p", { class: "text mono" }, h("span", { class: "tag plain" }, "calls"), ` ${call}`));
  const rest = shown.length > shown.text.length && h("button", { type: "button", class: "small", onclick: async (event) => {
    const button = event.currentTarget;
    const [whole] = await busy(button, () => get(`api/sessions/${part(session)}/messages`, { from: shown.position, limit: 1, chars: 1e8 }));
    text.textContent = whole.text;
    button.remove();
  } }, `Show all ${full(shown.length)} characters`);
  return h("li", { class: here ? "message here" : "message", id: `at-${shown.position}`, tabindex: here ? -1 : null },
    h("div", { class: "who" }, h("b", {}, shown.role), shown.is_result && shown.role !== "tool" && h("span", { class: "tag plain" }, "tool result"), h("span", {}, `turn ${shown.turn}`), h("span", {}, date(shown.at)), shown.side && h("span", { class: "tag plain" }, "side call"), shown.partial && h("span", { class: "tag lost" }, "broke off")),
    h("div", {}, text.textContent ? text : !calls.length && h("p", { class: "muted" }, "(no text: media or reasoning)"), rest, calls));
}

/** Messages by the page; `first` a position. */
function messages(session, total, first) {
  const list = h("ol", { class: "list" }), before = h("button", { type: "button" }, "↑ Earlier"), after = h("button", { type: "button" }, "↓ Later");
  let low = Math.max(0, first), high = low;
  const load = async (from, limit, place) => {
    const found = await get(`api/sessions/${part(session)}/messages`, { from, limit });
    const rows = found.filter((one) => (place === "prepend" ? one.position < low : true)).map((one) => messageOf(session, one, one.position === first && first > 0));
    list[place](...rows);
    return found;
  };
  const settle = () => { before.hidden = low <= 0; };
  after.addEventListener("click", async () => {
    const found = await load(high, PAGE, "append");
    high = found.length ? found.at(-1).position + 1 : high;
    after.hidden = found.length < PAGE;
  });
  before.addEventListener("click", async () => {
    const from = Math.max(0, low - PAGE), anchor = list.firstElementChild, top = anchor?.getBoundingClientRect().top;
    await load(from, low - from, "prepend");
    low = from;
    settle();
    if (anchor) scrollBy(0, anchor.getBoundingClientRect().top - top);
  });
  settle();
  after.click();
  return h("section", { class: "panel", "aria-labelledby": "said" }, h("div", { class: "row spread" }, h("h2", { id: "said" }, "What was said"), h("span", { class: "muted small" }, plural(total, "message"))), h("p", { class: "row" }, before), list, h("p", { class: "row" }, after));
}

export async function session({ path, asked, live, again }) {
  const id = path[1], found = await get(`api/sessions/${part(id)}/timeline`);
  const open = (step) => { location.hash = `#/requests/${part(step.id)}`; };
  const events = found.steps.flatMap((step, at) => (LOSSES.includes(step.event) || found.bridges.some((bridge) => bridge.request === step.id) ? [[step, at]] : []));
  const rows = events.slice(-200).reverse().map(([step, at]) => {
    const brought = found.bridges.filter((bridge) => bridge.request === step.id);
    return h("tr", {}, h("td", {}, link(`requests/${part(step.id)}`, `Request ${at + 1}`), h("span", { class: "narrowonly small muted" }, " ", eventTag(step.event), " ", when(step.at))), h("td", { class: "wideonly" }, eventTag(step.event)), h("td", { class: "wideonly" }, when(step.at)),
      h("td", { class: "r wideonly" }, LOSSES.includes(step.event) && step.gone ? `${plural(step.gone, "message")}, ${bytes(step.lost)}` : "–"), h("td", { class: "r" }, brought.length ? h("span", { class: "tag back" }, `↩ ${plural(brought.length, "passage")}`) : "–"), h("td", { class: "r wideonly" }, count(step.chars)), h("td", { class: "r wideonly" }, ms(step.ms)));
  });
  let soon = null;
  live((kind, told) => { if (told.session === id) soon ??= setTimeout(again, 1500); });
  const at = Number(asked.get("at")), first = Number.isSafeInteger(at) ? at : 0, gone = (work) => async () => { if (await work()) location.hash = "#/sessions"; };
  const steps = found.steps.filter((step) => step.event !== "side");
  return [
    h("nav", { class: "crumbs", "aria-label": "Where you are" }, link("sessions", "Sessions"), h("span", { "aria-hidden": "true" }, "/"), h("span", {}, found.id)),
    h("div", { class: "head" }, h("h1", { tabindex: -1 }, titleOf(found)), h("div", { class: "row" }, h("button", { type: "button", class: "small", onclick: gone(() => dialogs.prune(found)) }, "Prune …"), h("button", { type: "button", class: "small bad", onclick: gone(() => dialogs.forget(found)) }, "Forget …"))),
    h("p", { class: "lede" }, `${plural(found.messages, "message")}, ${plural(found.requests, "request")}, ${plural(found.losses, "compaction")}, ${plural(found.blocks, "restored block")}. Begun ${date(found.created_at)}, last seen ${date(found.last_seen_at)}.${found.parent ? " It branched from " : ""}`, found.parent && link(`sessions/${part(found.parent)}`, found.parent)),
    h("section", { class: "panel", "aria-labelledby": "timeline" }, h("h2", { id: "timeline" }, "Timeline"), steps.length ? [timeline(steps, found.bridges, open), timelineLegend()] : h("p", { class: "muted" }, "No request is known of this session."), found.requests > found.steps.length && h("p", { class: "muted small" }, `The newest ${full(found.steps.length)} of ${full(found.requests)} requests.`)),
    rows.length > 0 && h("section", { class: "panel", "aria-labelledby": "events" }, h("h2", { id: "events" }, "Compactions and restores"), table("Compactions and restores", [["Request"], ["What", "wideonly"], ["When", "wideonly"], ["Left out", "r wideonly"], ["Came back", "r"], ["Chars added", "r wideonly"], ["In Lantern", "r wideonly"]], rows)),
    messages(id, found.messages, first),
  ];
}
