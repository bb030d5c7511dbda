// Questions before anything changes. Each resolves to what was answered, or null when it was called off.

import { ApiError, get, post } from "./api.js";
import { bytes, h, plural, toast } from "./dom.js";

/** A modal dialog around `inside(form)`; act(form) runs on confirm, and its error is shown in the dialog. */
export function ask({ title, inside, confirm, danger = false, act }) {
  return new Promise((done) => {
    const problem = h("p", { class: "alert", role: "alert", hidden: true });
    const yes = h("button", { type: "submit", class: danger ? "main bad" : "main" }, confirm);
    const no = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    const form = h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), inside, problem, h("div", { class: "row" }, no, yes));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => { dialog.remove(); done(null); } }, form);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      yes.disabled = true;
      try {
        const result = await act(form, yes);
        if (result === undefined) return;
        done(result);
        dialog.close();
      } catch (error) {
        problem.hidden = false;
        problem.textContent = error.message;
        if (!(error instanceof ApiError)) throw error;
      } finally {
        yes.disabled = false;
      }
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function edit(passage) {
  const text = h("textarea", { rows: 8, name: "text", required: true, spellcheck: "true" });
  text.value = passage.text;
  return ask({
    title: "Correct this passage", confirm: "Save the correction",
    inside: [h("p", { class: "muted" }, "From now on this text is found and restored. The original stays in the archive."), h("label", {}, "New text", text)],
    act: async () => {
      const changed = await post("api/edit", { passage: passage.id, text: text.value });
      toast("Corrected. The next restore uses the new text.");
      return changed;
    },
  });
}

const RULES = {
  older: ["older than", "days", 90, (n) => ({ older_than_s: n * 86400 })],
  confidence: ["with confidence below", "(0 to 1)", 0.15, (n) => ({ below_confidence: n })],
};

const report = (found) => `${plural(found.passages, "passage")}, ${plural(found.messages, "message")} and ${plural(found.sessions, "session")}, ${bytes(found.bytes)} of text`;

/** First what would go, then, asked again, that it goes. scope: {session} or nothing. */
export function prune(scope = {}) {
  let rule = null;
  const kind = h("select", { name: "kind" }, Object.entries(RULES).map(([name, [words]]) => h("option", { value: name }, `Passages ${words}`)));
  const number = h("input", { type: "number", name: "number", min: 0, step: "any", value: RULES.older[2], required: true });
  const unit = h("span", {}, "days");
  const preview = h("p", { class: "preview", "aria-live": "polite", hidden: true });
  const reset = () => { rule = null; preview.hidden = true; };
  kind.addEventListener("change", () => { number.value = RULES[kind.value][2]; unit.textContent = RULES[kind.value][1]; reset(); });
  number.addEventListener("input", reset);
  const whole = Boolean(scope.session);
  return ask({
    title: whole ? "Prune this session" : "Prune the archive", confirm: "Show what would go", danger: true,
    inside: [
      h("p", { class: "muted" }, "Pinned passages stay. What goes is overwritten in the file and cannot be brought back."),
      whole ? h("p", {}, "Everything of this session: its passages, messages and requests.") : [h("label", {}, "Which", kind), h("label", {}, h("span", {}, "How much, in ", unit), number)],
      preview,
    ],
    act: async (form, button) => {
      const wanted = whole ? { session: scope.session, tenant: scope.tenant } : RULES[kind.value][3](Number(number.value));
      if (!rule) {
        const found = await post("api/prune", { ...wanted, dry_run: true });
        preview.hidden = false;
        preview.textContent = `This would remove ${report(found)}.`;
        rule = wanted;
        button.textContent = "Remove it now";
        number.oninput = kind.onchange = () => { button.textContent = "Show what would go"; };
        return undefined;
      }
      const gone = await post("api/prune", { ...rule, dry_run: false });
      toast(`Removed ${report(gone)}.`);
      return gone;
    },
  });
}

/** Forget a session for good: its id has to be typed. */
export function forget(session) {
  const typed = h("input", { name: "typed", autocomplete: "off", spellcheck: "false", required: true });
  const counts = h("p", { class: "preview" }, "Counting …");
  post("api/forget", { session: session.id, tenant: session.tenant }).then((found) => {
    const rows = Object.entries(found.removed).filter(([, n]) => n);
    counts.textContent = rows.length ? `This removes ${rows.map(([table, n]) => `${n} ${table}`).join(", ")}.` : "There is nothing to remove.";
  }).catch((error) => { counts.textContent = error.message; });
  return ask({
    title: "Forget this session", confirm: "Forget it for good", danger: true,
    inside: [
      h("p", {}, "Everything of it goes, pinned passages too: from the archive, its indexes and its log. What your client sends again of it is not archived either."),
      counts, h("label", {}, h("span", {}, "Type ", h("code", {}, session.id), " to confirm"), typed),
    ],
    act: async () => {
      if (typed.value.trim() !== session.id) throw new ApiError("that is not the session's id");
      const receipt = await post("api/forget", { session: session.id, tenant: session.tenant, confirm: session.id });
      toast("Forgotten.");
      return receipt;
    },
  });
}

export async function history(id) {
  const found = await get(`api/passages/${id}`);
  return ask({
    title: "What it said before", confirm: "Close",
    inside: found.history.map((change) => h("div", {}, h("p", { class: "small muted" }, new Date(change.at * 1000).toLocaleString("en-GB")), h("pre", { class: "box" }, change.before))),
    act: async () => true,
  });
}
