// Which page is shown, what happens live, and the theme.

import { ApiError, beside, get } from "./api.js";
import { announce, h, link, toast } from "./dom.js";
import { overview } from "./overview.js";
import { marks, search } from "./search.js";
import { session, sessions } from "./sessions.js";
import { tryit } from "./tryit.js";
import { why } from "./why.js";

const main = document.getElementById("main");
const PAGES = { __proto__: null, "": overview, sessions, search, requests: why, marked: marks, try: tryit };
let listeners = [], showing = 0;

const place = () => {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const plain = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
  return { path: path.split("/").map(plain), asked: new URLSearchParams(query || "") };
};

async function show({ keep = false } = {}) {
  const mine = ++showing, { path, asked } = place();
  const page = path[0] === "sessions" && path[1] ? session : path[0] === "requests" && !path[1] ? null : PAGES[path[0]];
  const heard = [], scroll = scrollY;
  for (const item of document.querySelectorAll(".top nav a")) {
    const is = item.getAttribute("href").slice(2) === (path[0] === "requests" ? "sessions" : path[0]);
    if (is) item.setAttribute("aria-current", "page"); else item.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  let found;
  try {
    if (!page) throw new ApiError("there is no such page");
    found = await page({ path, asked, live: (listen) => heard.push(listen), again: () => mine === showing && !document.querySelector("dialog") && show({ keep: true }) });
  } catch (error) {
    found = [h("h1", { tabindex: -1 }, error instanceof ApiError ? "That did not work" : "Something is broken"), h("p", { class: "alert", role: "alert" }, error.message), h("p", { class: "row" }, link("", "Back to the overview"))];
    if (!(error instanceof ApiError)) console.error(error);
  }
  if (mine !== showing) return;
  const active = keep && main.contains(document.activeElement);
  listeners = heard;
  main.replaceChildren(...found.flat(Infinity).filter((part) => part && part !== true));
  main.removeAttribute("aria-busy");
  const title = main.querySelector("h1");
  document.title = `${title ? title.textContent : "Lantern"} – Lantern`;
  if (keep) { scrollTo(0, scroll); if (active) title?.focus({ preventScroll: true }); return; }
  const target = asked.get("at") ? await waitFor(() => document.querySelector(".message.here")) : null;
  if (target) { target.scrollIntoView({ block: "center" }); target.focus({ preventScroll: true }); }
  else { scrollTo(0, 0); if (started) title?.focus({ preventScroll: true }); }
  if (started) announce(document.title);
  started = true;
}
let started = false;

function waitFor(look, left = 40) {
  return new Promise((done) => {
    const again = () => { const found = look(); if (found || !left--) done(found); else setTimeout(again, 50); };
    again();
  });
}

function listen() {
  const box = document.getElementById("live"), words = document.getElementById("live-text");
  const state = (on, text) => { box.dataset.state = on ? "on" : "off"; words.textContent = text; box.title = text; };
  const stream = new EventSource(beside("api/events"));
  stream.onopen = () => state(true, "live");
  stream.onerror = () => state(false, "not connected");
  for (const kind of ["request", "compaction", "restore", "change"])
    stream.addEventListener(kind, (event) => {
      const told = JSON.parse(event.data);
      if (kind === "compaction") announce("A compaction was noticed.");
      box.classList.remove("beat");
      void box.offsetWidth;
      box.classList.add("beat");
      for (const heard of listeners) heard(kind, told);
    });
  addEventListener("pagehide", () => stream.close());
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}

function theme() {
  const button = document.getElementById("theme"), root = document.documentElement, order = ["system", "light", "dark"];
  const set = (name) => {
    if (name === "system") delete root.dataset.theme; else root.dataset.theme = name;
    try { localStorage.setItem("lantern-theme", name); } catch { /* not kept */ }
    const words = { system: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" }[name];
    button.setAttribute("aria-label", words);
    button.title = words;
    button.firstElementChild.textContent = { system: "◐", light: "☀", dark: "☾" }[name];
    return name;
  };
  let now = set(root.dataset.theme || "system");
  button.addEventListener("click", () => { now = set(order[(order.indexOf(now) + 1) % 3]); announce(button.title); });
}

theme();
listen();
addEventListener("hashchange", () => show());
addEventListener("unhandledrejection", (event) => { if (event.reason instanceof ApiError) { toast(event.reason.message); event.preventDefault(); } });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
get("health").then((state) => { document.getElementById("version").textContent = `Lantern ${state.version || ""}`; }).catch(() => {});
show();
