// The server's pictures become charts once somebody looks closer: with the pointer over one, or the focus on it. A span is
// looked at by dragging over it (or + and - by keys); its values are asked for anew, so it is as exact as the record.

import { say } from "./page.js";

/** @typedef {{ name: string, x: number[], low: (number | null)[], high: (number | null)[], last: (number | null)[] }} Curve */
/** @typedef {{ setData(data: unknown[]): void, setSize(size: { width: number, height: number }): void, posToVal(at: number, scale: string): number, select: { left: number, width: number }, scales: Record<string, { min: number, max: number }>, root: HTMLElement }} Plot */

const root = document.documentElement;
/** @type {Promise<any> | undefined} */
let library;

/** uPlot, which is loaded when it is needed. @returns {Promise<any>} */
function uplot() {
  library ??= new Promise((done, fail) => {
    const style = document.createElement("link"), script = document.createElement("script");
    style.rel = "stylesheet";
    style.href = `${root.dataset.static}/uplot/uPlot.css`;
    script.src = `${root.dataset.static}/uplot/uPlot.js`;
    script.onload = () => done(/** @type {any} */ (window).uPlot);
    script.onerror = fail;
    document.head.append(style, script);
  });
  return library;
}

/** What the page shows, as values. @param {URLSearchParams} query @returns {Promise<any>} */
async function values(query) {
  const here = location.pathname.slice((root.dataset.base ?? "").length);
  const answer = await fetch(`${root.dataset.api}${here}?${query}`);
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

/** @param {any} told @param {string} at @returns {Curve[]} */
function curves(told, at) {
  const found = at.split("/").reduce((one, name) => one?.[name], told);
  return !found ? [] : Array.isArray(found) ? found : [found];
}

/** One table for all of them: what each has, at every place where any has something.
 * @param {any} uPlot @param {Curve[]} some @param {boolean} log */
function table(uPlot, some, log) {
  const clean = (/** @type {(number | null)[]} */ row) => row.map((one) => (log && one !== null && one <= 0 ? null : one));
  return uPlot.join(some.map((one) => [one.x, clean(one.low), clean(one.high), clean(one.last)]));
}

/** @param {string} name */
const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim() || "#888";

/** The colour of a curve on this background. @param {HTMLElement} place @param {number} at */
function shade(place, at) {
  const probe = document.createElement("span");
  probe.className = `swatch c${at % 8}`;
  place.append(probe);
  const found = getComputedStyle(probe).backgroundColor;
  probe.remove();
  return found;
}

/** What is drawn of each curve: its least and largest values as a band, its last ones as a line.
 * @param {HTMLElement} place @param {Curve[]} some @param {string} along */
function drawn(place, some, along) {
  /** @type {any[]} */
  const series = [{ label: along }];
  /** @type {any[]} */
  const bands = [];
  some.forEach((one, number) => {
    const stroke = shade(place, number), edge = { stroke: "transparent", points: { show: false }, spanGaps: true };
    series.push({ ...edge, label: `${one.name}, least` }, { ...edge, label: `${one.name}, largest` },
      { stroke, width: 1.6, label: one.name, spanGaps: true, points: { show: one.x.length < 50 } });
    bands.push({ series: [3 * number + 2, 3 * number + 1], fill: stroke.replace("rgb(", "rgba(").replace(")", ", 0.2)") });
  });
  return { series, bands };
}

/** @param {HTMLElement} place */
async function open(place) {
  if (place.dataset.open) return;
  place.dataset.open = "1";
  try {
    const uPlot = await uplot(), at = place.dataset.at ?? "";
    const some = curves(await values(new URLSearchParams(location.search)), at);
    if (!some.some((one) => one.x.length)) return;
    build(uPlot, place, some, at);
  } catch (error) {
    delete place.dataset.open; // the picture stays
    say(`The chart cannot be looked at closer: ${error}`);
  }
}

/** @param {any} uPlot @param {HTMLElement} place @param {Curve[]} some @param {string} at */
function build(uPlot, place, some, at) {
  const log = place.dataset.log === "1", isTime = place.dataset.axis === "time" || some[0].x[0] > 1e9;
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const size = () => ({ width: place.clientWidth, height: Number(place.dataset.height) });
  let shown = new URLSearchParams(location.search);
  const picture = place.firstElementChild;
  /** @type {Plot} */
  const plot = new uPlot({
    ...size(), ...drawn(place, some, isTime ? "time" : "step"), axes: [axis, { ...axis, size: 62 }],
    scales: { x: { time: isTime }, y: { distr: log ? 3 : 1 } }, cursor: { drag: { x: true, y: false, setScale: false } },
    hooks: { setSelect: [(/** @type {Plot} */ one) => {
      const { left, width } = one.select;
      if (width > 4) void look(one.posToVal(left, "x"), one.posToVal(left + width, "x"));
    }] },
  }, table(uPlot, some, log), place);
  picture?.remove();
  plot.root.tabIndex = 0;
  plot.root.setAttribute("role", "group");
  plot.root.setAttribute("aria-label", `${some.map((one) => one.name).join(", ")}. Plus looks closer, minus at all of it.`);

  const renew = async () => {
    const fresh = curves(await values(shown), at);
    if (fresh.length === some.length) plot.setData(table(uPlot, fresh, log));
  };
  /** @param {number} since @param {number} until */
  const look = async (since, until) => {
    const ends = isTime ? [since, until] : [Math.floor(since), Math.ceil(until)];
    shown = new URLSearchParams(location.search);
    shown.set("since", String(ends[0]));
    shown.set("until", String(ends[1]));
    if (place.dataset.drag === "ask") location.search = shown.toString();
    else await renew();
    say(`from ${ends[0]} to ${ends[1]}`);
  };
  const all = async () => {
    shown = new URLSearchParams(location.search);
    shown.delete("since");
    shown.delete("until");
    await renew();
    say("all of it");
  };
  plot.root.addEventListener("dblclick", all);
  plot.root.addEventListener("keydown", (event) => {
    const { min, max } = plot.scales.x, quarter = (max - min) / 4;
    if (event.key === "+" || event.key === "=") void look(min + quarter, max - quarter);
    else if (event.key === "-" || event.key === "0") void all();
  });
  place.closest("[data-poll]")?.addEventListener("fresh", () => void renew().catch(() => {}));
  new ResizeObserver(() => plot.setSize(size())).observe(place);
}

for (const kind of ["pointerover", "focusin"]) {
  document.addEventListener(kind, (event) => {
    const place = event.target instanceof Element ? event.target.closest(".plot[data-at]") : null;
    if (place instanceof HTMLElement && place.dataset.at) void open(place);
  });
}
for (const place of document.querySelectorAll(".plot[data-at]")) {
  if (place instanceof HTMLElement && place.dataset.at) place.tabIndex = 0; // for who has no pointer
}
