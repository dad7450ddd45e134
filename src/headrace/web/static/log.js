// A log that goes on: new lines come at the end while the page is looked at, and older ones when one scrolls up to them.
// No more than some thousand lines are in the page, however long the log is.

import { every } from "./page.js";

const box = /** @type {HTMLElement} */ (document.getElementById("lines"));
const list = /** @type {HTMLOListElement} */ (box.querySelector("ol"));
const { run = "", stream = "", fixed } = box.dataset;
const place = document.getElementById("where");
const api = document.documentElement.dataset.api;
const MOST = 2000, STEP = 200, FOLLOWED = 400;
let total = Number(box.dataset.total), over = box.dataset.over === "true", busy = false;

/** @typedef {{number: number, time: string, text: string, error: boolean, over: boolean}} Line */

/** @param {number} start @param {number} count @returns {Promise<{lines: Line[], total: number, over: boolean}>} */
async function read(start, count) {
  const answer = await fetch(`${api}/runs/${encodeURIComponent(run)}/log?stream=${stream}&start=${start}&count=${count}`);
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

/** @param {Line} line */
function row(line) {
  const item = document.createElement("li"), link = document.createElement("a"), text = document.createElement("span");
  item.id = `L${line.number}`;
  item.dataset.number = String(line.number);
  if (line.error) item.className = "bad";
  link.href = `?stream=${stream}&start=${Math.max(0, line.number - 5)}#L${line.number}`;
  link.title = line.time;
  link.textContent = String(line.number);
  text.textContent = line.text;
  item.append(link, text);
  return item;
}

const first = () => Number(/** @type {HTMLElement | null} */ (list.firstElementChild)?.dataset.number ?? 0);
const last = () => Number(/** @type {HTMLElement | null} */ (list.lastElementChild)?.dataset.number ?? -1);
const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 40;

function tell() {
  if (place) place.textContent = `${first().toLocaleString("en")} to ${last().toLocaleString("en")} of ${total.toLocaleString("en")}`;
}

/** Lines that follow those shown; the last one again, as it may have changed. Who is at the end stays there, however fast
 * lines come: what no one could have read is left to who scrolls up. */
async function after() {
  const stays = atEnd();
  let told = await read(Math.max(0, last()), stays ? FOLLOWED : STEP);
  if (stays && told.total > last() + FOLLOWED) { // each row in the page costs every frame that shows new ones
    told = await read(told.total - FOLLOWED, FOLLOWED);
    list.replaceChildren();
  }
  total = told.total;
  over = told.over;
  const fresh = document.createDocumentFragment();
  for (const line of told.lines) {
    const there = line.number <= last() ? document.getElementById(`L${line.number}`) : null;
    if (there) there.replaceWith(row(line));
    else fresh.append(row(line));
  }
  list.append(fresh);
  while (list.children.length > MOST) list.firstElementChild?.remove();
  if (stays) box.scrollTop = box.scrollHeight;
  tell();
}

async function before() {
  const from = first();
  if (!from) return;
  const told = await read(Math.max(0, from - STEP), Math.min(STEP, from));
  const height = box.scrollHeight;
  list.prepend(...told.lines.map(row));
  box.scrollTop += box.scrollHeight - height;
  while (list.children.length > MOST) list.lastElementChild?.remove();
  tell();
}

/** @param {() => Promise<void>} work */
async function alone(work) {
  if (busy) return;
  busy = true;
  try {
    await work();
  } finally {
    busy = false;
  }
}

if (fixed !== "true") {
  if (!location.hash && last() + 1 >= total) box.scrollTop = box.scrollHeight;
  box.addEventListener("scroll", () => {
    if (box.scrollTop < 200 && first() > 0) alone(before);
    else if (atEnd() && last() + 1 < total) alone(after);
  });
  every(1, async () => {
    if (!over && atEnd()) await alone(after);
  });
}
