import { ApiError, get, post } from "./api.js";
import { eventTag, h, link, part, plural } from "./dom.js";
import { block, taken, unmade } from "./why.js";

const EXAMPLE = { model: "any", messages: [{ role: "user", content: "Summary of what we did so far: ..." }, { role: "user", content: "What was the port of the staging database?" }] };

export async function tryit() {
  const rows = await get("api/sessions", { limit: 100 });
  const chosen = h("select", { name: "session" }, rows.map((row) => h("option", { value: `${row.tenant}\n${row.id}` }, row.title || row.id)));
  const text = h("textarea", { name: "request", rows: 14, spellcheck: "false" });
  text.value = JSON.stringify(EXAMPLE, null, 2);
  const results = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "panel", onsubmit: async (event) => {
    event.preventDefault();
    results.replaceChildren(h("p", { class: "muted" }, "Looking …"));
    try {
      let request;
      try { request = JSON.parse(text.value); } catch (error) { throw new ApiError(`the request is not JSON: ${error.message}`); }
      const [tenant, session] = chosen.value.split("\n"), project = rows.find((row) => row.id === session)?.project || "";
      const found = await post("api/why", { request, tenant, session, project });
      const held = taken(found.blocks), passed = (kind) => found.passed.filter((one) => one.kind === kind), made = found.blocks.map((one) => one.kind);
      results.replaceChildren(
        h("div", { class: "head" }, h("h2", {}, "What would come back"), eventTag(found.event)),
        h("p", { class: "lede" }, `The request lacks ${plural(found.gone, "message")} of its session. ${found.blocks.length ? "" : "Nothing would be added: "}${found.blocks.length ? "" : found.gone ? "nothing that is lost answers it well enough, or is worth its room." : "it holds all that the session shows now."}`),
        ...found.blocks.map((one) => block(one, { passed: passed(one.kind), taken: held })),
        ...["loss", "question"].filter((kind) => !made.includes(kind) && passed(kind).length).map((kind) => unmade(kind, passed(kind), { taken: held })),
        found.refused.length ? h("section", { class: "panel" }, h("h2", {}, "Kept out"), h("ul", { class: "list" }, found.refused.map((one) => h("li", { class: "passage out" }, h("div", { class: "meta" }, h("span", { class: "tag lost" }, one.why)), h("p", { class: "text" }, one.text))))) : "",
        found.notes.length ? h("p", { class: "muted small" }, "Skipped: ", h("code", {}, found.notes.join(", "))) : "");
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      results.replaceChildren(h("p", { class: "alert", role: "alert" }, error.message));
    }
  } }, h("label", {}, "As the next request of", chosen), h("br"), h("label", {}, "The request's JSON, as a client would send it", text), h("br"), h("button", { type: "submit", class: "main", disabled: !rows.length }, "Try it"));
  return [h("h1", { tabindex: -1 }, "Try"), h("p", { class: "lede" }, "What would be restored into a request. Nothing is sent anywhere and nothing is archived."),
    rows.length ? form : h("div", { class: "panel empty" }, h("h2", {}, "No session yet"), h("p", {}, "There is nothing that could come back. ", link("", "See how to connect a client."))), results];
}
