// Two pictures: what happened over time, and one session with its compactions as cliffs and its restores as bridges.

import { LOSSES, bytes, count, date, eventWords, h, plural, s } from "./dom.js";

const PAD = { left: 62, right: 12 };

/** Draw into a box as wide as it is, again whenever that changes. */
function drawn(draw, attributes = {}) {
  const box = h("div", attributes);
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(box.clientWidth - width) < 2) return;
    width = box.clientWidth;
    box.replaceChildren(draw(width));
  }).observe(box);
  return box;
}

export function activity(sums) {
  const height = 132, base = height - 24;
  return drawn((width) => {
    const slots = 48, room = width - PAD.left - PAD.right, step = room / slots, most = Math.max(1, ...sums.buckets.map((b) => b.requests));
    const y = (n) => base - (n / most) * (base - 16);
    const bars = sums.buckets.map((bucket) => {
      const x = PAD.left + Math.min(slots - 1, Math.round((bucket.at - sums.since) / sums.width_s)) * step;
      const part = (n, kind, wide, shift) => n > 0 && s("rect", { class: `bar ${kind}`, x: x + shift, y: y(n), width: Math.max(1, wide), height: Math.max(1, base - y(n)), rx: 1 });
      return s("g", {}, s("title", {}, `${date(bucket.at)}: ${plural(bucket.requests, "request")}, ${plural(bucket.losses, "compaction")}, ${bucket.restores} with restored passages`),
        part(bucket.requests, "", step * .8, step * .1), part(bucket.restores, "back", step * .34, step * .1), part(bucket.losses, "lost", step * .34, step * .56));
    });
    const words = `Requests over time, from ${date(sums.since)} to now: ${plural(sums.requests, "request")}, ${plural(sums.losses, "compaction")}, ${plural(sums.restores, "request")} with restored passages.`;
    return s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": words },
      s("line", { class: "axis", x1: PAD.left, x2: width - PAD.right, y1: base, y2: base }),
      s("text", { x: PAD.left - 8, y: 20, "text-anchor": "end" }, count(most)), s("text", { x: PAD.left - 8, y: base, "text-anchor": "end" }, "0"), bars,
      s("text", { x: PAD.left, y: height - 6 }, date(sums.since)), s("text", { x: width - PAD.right, y: height - 6, "text-anchor": "end" }, "now"));
  });
}

const small = (shape) => s("svg", { class: "chart key", width: 16, height: 12, "aria-hidden": "true" }, shape);

export const activityLegend = () => h("p", { class: "legend" },
  h("span", {}, small(s("rect", { class: "bar", x: 2, y: 1, width: 12, height: 10 })), "requests"),
  h("span", {}, small(s("rect", { class: "bar back", x: 5, y: 1, width: 5, height: 10 })), "with restored passages (left, narrow)"),
  h("span", {}, small(s("rect", { class: "bar lost", x: 5, y: 1, width: 5, height: 10 })), "compactions (right, narrow)"));

export const timelineLegend = () => h("p", { class: "legend" },
  h("span", {}, small(s("path", { class: "line", d: "M1 9L15 3" })), "size of each request"),
  h("span", {}, small(s("path", { class: "fall", d: "M3 2h10l-5 8z" })), "compaction: what the client left out"),
  h("span", {}, small(s("path", { class: "arc", d: "M1 11A7 8 0 0 1 15 11", "stroke-width": 2 })), "passages restored, from the turn where they were said"));

/** Index of the last step that came no later than `at`. */
function stepAt(steps, at) {
  let low = 0, high = steps.length - 1, found = 0;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (steps[middle].at <= at + 0.001) { found = middle; low = middle + 1; } else high = middle - 1;
  }
  return found;
}

function bridgesOf(steps, bridges) {
  const places = new Map(steps.map((step, at) => [step.id, at])), grouped = new Map();
  for (const bridge of bridges) {
    const to = places.get(bridge.request);
    if (to === undefined) continue;
    const from = stepAt(steps, bridge.said_at), id = `${from}>${to}`;
    const group = grouped.get(id) || { from, to, passages: 0 };
    group.passages += 1;
    grouped.set(id, group);
  }
  return [...grouped.values()];
}

export function stepWords(step, at, from) {
  const parts = [`Request ${at + 1}`, eventWords(step.event).replace("▼ ", ""), `${bytes(step.size)} from the client`];
  if (LOSSES.includes(step.event)) parts.push(`left out ${plural(step.gone, "message")}, ${bytes(step.lost)}`);
  if (step.restored) parts.push(`${plural(step.restored, "restored passage")}, ${count(step.chars)} characters added${from.length ? `, from ${plural(from.length, "earlier request")}` : ""}`);
  parts.push(date(step.at));
  return parts.join(" · ");
}

/** The timeline. open(step): what a click or Enter does. */
/** How the first and the last time read below a chart so wide: one day is named once, and its hour only where there is room. */
function ends(first, last, width) {
  const [from, until] = [date(first), date(last)].map((text) => text.split(", "));
  if (from[0] === until[0]) return [from.join(", "), until[1] || ""];
  return width < 360 ? [from[0], until[0]] : [from.join(", "), until.join(", ")];
}

export function timeline(steps, bridges, open) {
  const top = 96, height = 300, base = height - 26, groups = bridgesOf(steps, bridges);
  let cursor = null, show = () => {};
  const readout = h("p", { class: "readout", "aria-live": "polite" }, h("span", { class: "muted" }, "Point at the picture, or focus it and use the arrow keys; Enter opens the request."));
  const most = Math.max(1, ...steps.map((step) => step.size));
  const losses = steps.flatMap((step, at) => (LOSSES.includes(step.event) ? [at] : []));
  const words = `Size of ${plural(steps.length, "request")} over time, ${plural(losses.length, "compaction")}, ${plural(bridges.length, "passage")} restored.`;

  const draw = (width) => {
    const [from, until] = steps.length ? ends(steps[0].at, steps.at(-1).at, width) : ["", ""];
    const room = width - PAD.left - PAD.right;
    const x = (at) => PAD.left + (steps.length > 1 ? (at / (steps.length - 1)) * room : room / 2);
    const y = (size) => base - (size / most) * (base - top - 8);
    const points = steps.map((step, at) => `${x(at).toFixed(1)} ${y(step.size).toFixed(1)}`);
    const arcs = groups.map((group) => {
      const a = x(group.from), b = Math.max(x(group.to), a + 2), tall = Math.min(top - 10 + (base - top) * .1, 26 + (b - a) * .32), foot = Math.min(y(steps[group.from].size), y(steps[group.to].size));
      const peak = Math.max(8, Math.min(foot - 14, top + 10) - tall);
      return s("path", { class: "arc", "data-to": group.to, "data-from": group.from, "stroke-width": Math.min(3.5, 1 + group.passages * .35).toFixed(2), d: `M${a.toFixed(1)} ${y(steps[group.from].size).toFixed(1)}C${a.toFixed(1)} ${peak} ${b.toFixed(1)} ${peak} ${b.toFixed(1)} ${y(steps[group.to].size).toFixed(1)}` });
    });
    const cliffs = losses.map((at, n) => {
      const fall = x(at), before = at ? y(steps[at - 1].size) : top, after = y(steps[at].size);
      const named = losses.length <= 4 || (n === losses.length - 1);
      const right = fall > width - 150;
      return s("g", {}, s("line", { class: "cliff", x1: fall, x2: fall, y1: before, y2: base }), s("path", { class: "fall", d: `M${fall - 6} ${after - 12}h12l-6 9z` }),
        named && s("text", { class: "lostlabel", x: fall + (right ? -10 : 10), y: Math.min(base - 8, before + 16), "text-anchor": right ? "end" : "start" }, `−${bytes(steps[at].lost || Math.max(0, (at ? steps[at - 1].size : 0) - steps[at].size))}`));
    });
    const feet = groups.map((group) => s("circle", { class: "foot", cx: x(group.from), cy: y(steps[group.from].size), r: 2.5 }));
    const line = s("line", { class: "cursor", y1: 8, y2: base, visibility: "hidden" }), here = s("circle", { class: "here", r: 4.5, visibility: "hidden" });
    const drawing = s("svg", { class: groups.length > 40 ? "chart many" : "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": words },
      s("line", { class: "axis", x1: PAD.left, x2: width - PAD.right, y1: base, y2: base }),
      s("text", { x: PAD.left - 8, y: top + 12, "text-anchor": "end" }, bytes(most)), s("text", { x: PAD.left - 8, y: base, "text-anchor": "end" }, "0"),
      s("path", { class: "area", d: `M${x(0)} ${base}L${points.join("L")}L${x(steps.length - 1)} ${base}Z` }), s("path", { class: "line", d: `M${points.join("L")}` }),
      steps.length === 1 && s("circle", { class: "here", cx: x(0), cy: y(steps[0].size), r: 4 }),
      arcs, feet, cliffs, line, here,
      s("text", { x: PAD.left, y: height - 6 }, from), steps.length > 1 && s("text", { x: width - PAD.right, y: height - 6, "text-anchor": "end" }, until));
    show = (at) => {
      cursor = Math.max(0, Math.min(steps.length - 1, at));
      for (const [name, value] of [["x1", x(cursor)], ["x2", x(cursor)], ["visibility", "visible"]]) line.setAttribute(name, value);
      for (const [name, value] of [["cx", x(cursor)], ["cy", y(steps[cursor].size)], ["visibility", "visible"]]) here.setAttribute(name, value);
      for (const arc of arcs) arc.classList.toggle("hot", arc.dataset.to === String(cursor) || arc.dataset.from === String(cursor));
      readout.textContent = stepWords(steps[cursor], cursor, groups.filter((group) => group.to === cursor));
    };
    const nearest = (event) => Math.round(((event.clientX - drawing.getBoundingClientRect().left - PAD.left) / room) * (steps.length - 1));
    drawing.addEventListener("pointermove", (event) => show(nearest(event)));
    drawing.addEventListener("click", (event) => { show(nearest(event)); open(steps[cursor]); });
    return drawing;
  };

  const jump = (from, way) => {
    for (let at = from + way; at >= 0 && at < steps.length; at += way) if (steps[at].restored || LOSSES.includes(steps[at].event)) return at;
    return from;
  };
  const plot = drawn(draw, { class: "plot", tabindex: 0, role: "group", "aria-label": "Timeline. Left and right arrow: from request to request; up and down: from one compaction or restore to the next; Enter opens the request.",
    onkeydown: (event) => {
      const at = cursor ?? 0;
      const to = { ArrowRight: at + 1, ArrowLeft: cursor === null ? steps.length - 1 : at - 1, Home: 0, End: steps.length - 1, ArrowDown: jump(cursor ?? -1, 1), ArrowUp: jump(cursor ?? steps.length, -1) }[event.key];
      if (to !== undefined) { event.preventDefault(); show(to); }
      if (event.key === "Enter" && cursor !== null) open(steps[cursor]);
    } });
  return h("div", {}, plot, readout);
}
