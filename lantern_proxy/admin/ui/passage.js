// One passage: what was said, where and when, and the buttons to judge it.

import { ApiError, post } from "./api.js";
import * as dialogs from "./dialogs.js";
import { date, h, link, part, toast } from "./dom.js";

const WORDS = { useful: "✓ useful", wrong: "✕ wrong", outdated: "◷ outdated" };
export const REFUSED = ["wrong", "outdated"];

const said = (verdict) => (REFUSED.includes(verdict) ? `Marked ${verdict}: it is not restored again.` : verdict ? "Marked useful." : "Verdict taken back.");

/** passage: as the API has it. rank, scores, note, text (what was shown of it), edits, request: what is known besides. */
export function card(passage, extra = {}) {
  const box = h("article", { class: "passage", id: extra.id || `passage-${passage.id}`, "aria-label": `Passage ${passage.id}` });
  let now = passage;

  const change = (work) => async () => {
    try {
      const changed = await work();
      if (changed) { now = { ...now, ...changed }; if (changed.text) extra = { ...extra, text: null, body: null }; show(); }
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      toast(error.message);
    }
  };
  const judge = (verdict) => change(async () => {
    const wanted = now.verdict === verdict ? "" : verdict;
    const changed = await post("api/feedback", { passage: now.id, verdict: wanted, request: extra.request || "" });
    toast(said(wanted));
    return changed;
  });
  const pin = change(async () => {
    const changed = await post("api/pin", { passage: now.id, pinned: !now.pinned });
    toast(changed.pinned ? "Pinned: preferred in restores, never pruned." : "No longer pinned.");
    return changed;
  });

  function show() {
    const focused = box.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    box.classList.toggle("out", REFUSED.includes(now.verdict));
    const buttons = [
      ...Object.entries(WORDS).map(([verdict, words]) => [verdict, words, judge(verdict), now.verdict === verdict]),
      ["pin", now.pinned ? "⚑ pinned" : "⚑ pin", pin, now.pinned],
      ["edit", "✎ correct", change(() => dialogs.edit(now)), null],
    ].map(([name, words, act, pressed]) => h("button", { type: "button", class: "small", "data-name": name, "aria-pressed": pressed === null ? null : String(Boolean(pressed)), onclick: act }, words));
    box.replaceChildren(
      h("div", { class: "meta" },
        extra.rank && h("span", { class: "rank" }, `${extra.rank}.`),
        h("span", { class: "tag" }, now.speaker),
        link(`sessions/${part(now.session)}?at=${now.position}`, `turn ${now.turn}`), h("span", {}, date(now.created_at)),
        h("span", {}, `passage ${now.id}`), now.verdict && h("span", { class: `tag ${REFUSED.includes(now.verdict) ? "lost" : "back"}` }, WORDS[now.verdict] || now.verdict), now.pinned && h("span", { class: "tag warm" }, "⚑ pinned"),
        extra.edits > 0 && h("button", { type: "button", class: "quiet small", onclick: () => dialogs.history(now.id) }, `corrected ${extra.edits === 1 ? "once" : `${extra.edits} times`}`),
        h("span", {}, `confidence ${Number(now.confidence).toFixed(2)}`), extra.note),
      h("p", { class: now.speaker === "tool" ? "text mono" : "text" }, extra.body || extra.text || now.text),
      h("div", { class: "actions", role: "group", "aria-label": "Judge this passage" }, buttons));
    if (focused) box.querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
  }
  show();
  return box;
}
