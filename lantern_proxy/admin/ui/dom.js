// Elements and words. Text becomes text nodes, never markup: everything shown here was written by somebody else.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function announce(words) {
  document.getElementById("status").textContent = words;
}

export function toast(words) {
  announce(words);
  const shown = h("div", { class: "toast", "aria-hidden": "true" }, words);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), 5000);
}

/** Disable a button while `work` runs; it can be pressed again where that fails. */
export async function busy(button, work) {
  button.disabled = true;
  try { return await work(); } finally { button.disabled = false; }
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const count = (n) => (Math.abs(n) < 10000 ? whole.format(n) : short.format(n));
export const full = (n) => whole.format(n);
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(n) {
  const units = ["B", "KB", "MB", "GB"];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) { n /= 1000; at += 1; }
  return `${n >= 100 || at === 0 ? Math.round(n) : n.toFixed(1)} ${units[at]}`;
}

export const ms = (n) => `${n >= 100 ? Math.round(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2)} ms`;

const dated = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
export const date = (at) => (at > 0 ? dated.format(new Date(at * 1000)) : "no date");

export function ago(at) {
  const seconds = Date.now() / 1000 - at;
  if (seconds < 45) return "now";
  for (const [size, name] of [[86400 * 365, "y"], [86400 * 30, "mo"], [86400, "d"], [3600, "h"], [60, "min"]])
    if (seconds >= size) return `${Math.floor(seconds / size)} ${name} ago`;
  return "1 min ago";
}

export const when = (at) => h("time", { datetime: new Date(at * 1000).toISOString(), title: date(at) }, ago(at));

const EVENTS = {
  compacted: ["▼ summarised", "lost"], window: ["▼ dropped", "lost"], cleared: ["▼ cleared", "lost"],
  new: ["✳ new", "plain"], turn: ["turn", "plain"], retry: ["↻ retry", "plain"], branch: ["↳ branch", "warm"],
  side: ["side call", "plain"], passthrough: ["passed through", "plain"],
};
export const LOSSES = ["compacted", "window", "cleared"];
export const eventWords = (event) => (EVENTS[event] || [event])[0];
export const eventTag = (event) => h("span", { class: `tag ${(EVENTS[event] || [event, "plain"])[1]}` }, eventWords(event));

/** `text` with the words of a query marked. */
export function marked(text, query) {
  const words = (query.match(/[\p{L}\p{N}_./:-]{2,}/gu) || []).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!words.length) return [text];
  const parts = text.split(new RegExp(`(${words.join("|")})`, "giu"));
  return parts.map((part, at) => (at % 2 ? h("mark", {}, part) : part));
}

/** The part of `text` around the first word of the query. */
export function excerpt(text, query, room = 420) {
  if (text.length <= room) return text;
  const words = query.toLowerCase().match(/[\p{L}\p{N}_./:-]{2,}/gu) || [];
  const places = words.map((word) => text.toLowerCase().indexOf(word)).filter((at) => at >= 0);
  const start = places.length ? Math.max(0, Math.min(...places) - 120) : 0;
  return `${start ? "… " : ""}${text.slice(start, start + room)}${start + room < text.length ? " …" : ""}`;
}

export function table(caption, heads, rows) {
  return h("div", { class: "scroll" }, h("table", {},
    h("caption", { class: "hidden" }, caption),
    h("thead", {}, h("tr", {}, heads.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
    h("tbody", {}, rows)));
}

export const link = (path, ...inside) => h("a", { href: `#/${path}` }, ...inside);
export const part = encodeURIComponent;
