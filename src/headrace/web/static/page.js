// What every page does: theme, keys, copying, lists that keep themselves current. Checked by `tsc --checkJs`.

const root = document.documentElement;
/** @type {Array<[string, string, () => void]>} keys, what they do, and how */
const keys = [];

/** @param {string} key @param {string} what @param {() => void} work */
export function onKey(key, what, work) {
  keys.push([key, what, work]);
}

/** Tell those who listen instead of look. @param {string} text */
export function say(text) {
  const place = document.getElementById("said");
  if (place) place.textContent = text;
}

function theme() {
  const dark = getComputedStyle(root).colorScheme === "dark"
    || (root.dataset.theme === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("headrace-theme", root.dataset.theme);
  say(`${root.dataset.theme} colours`);
}

function showKeys() {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("keys"));
  const list = /** @type {HTMLElement} */ (dialog.querySelector("dl"));
  list.replaceChildren(...keys.flatMap(([key, what]) => {
    const term = document.createElement("dt"), mark = document.createElement("kbd"), told = document.createElement("dd");
    mark.textContent = key;
    term.append(mark);
    told.textContent = what;
    return [term, told];
  }));
  dialog.showModal();
}

/** Walk through the rows of the page's list. @param {number} by */
function walk(by) {
  const rows = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-rows] tbody tr"))];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.ariaSelected === "true");
  const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
  for (const row of rows) row.ariaSelected = row === next ? "true" : "false";
  next.querySelector("a")?.focus();
  next.scrollIntoView({ block: "nearest" });
}

onKey("?", "show these keys", showKeys);
onKey("t", "dark or light", theme);
for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(".top nav a"))) {
  const word = (link.textContent ?? "").toLowerCase();
  onKey(word[0], word, () => link.click());
}
if (document.querySelector("[data-focus]")) {
  onKey("/", "search", () => /** @type {HTMLElement} */ (document.querySelector("[data-focus]")).focus());
}
if (document.querySelector("[data-rows]")) {
  onKey("j", "next row", () => walk(1));
  onKey("k", "row before", () => walk(-1));
  onKey("x", "select the row", () => {
    const box = document.querySelector("tr[aria-selected=true] input[type=checkbox]");
    if (box) /** @type {HTMLElement} */ (box).click();
  });
}
document.querySelectorAll(".tabs a").forEach((tab, number) => {
  onKey(String(number + 1), (tab.textContent ?? "").toLowerCase(), () => /** @type {HTMLElement} */ (tab).click());
});

addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") target.blur();
  if (target.closest("input, select, textarea, dialog[open]")) return;
  const found = keys.find(([key]) => key === event.key);
  if (!found) return;
  event.preventDefault();
  found[2]();
});
document.addEventListener("click", (event) => {
  const what = /** @type {HTMLElement} */ (event.target).closest("[data-do]");
  if (what instanceof HTMLElement) (what.dataset.do === "theme" ? theme : showKeys)();
});

for (const code of document.querySelectorAll("[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "copy";
  button.setAttribute("aria-label", `copy ${code.textContent}`);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent ?? "");
    button.textContent = "copied";
    say("copied");
  });
  code.after(" ", button);
}

function choose() {
  for (const button of document.querySelectorAll("button[data-needs]")) {
    const form = /** @type {HTMLButtonElement} */ (button).form;
    const count = form ? new FormData(form).getAll("run").length : 0;
    /** @type {HTMLButtonElement} */ (button).disabled = count < Number(/** @type {HTMLElement} */ (button).dataset.needs);
  }
}
addEventListener("change", choose);
choose();

/** Again and again while the page is looked at; never two at once. @param {number} seconds @param {() => Promise<void>} work */
export function every(seconds, work) {
  let due = Date.now() + seconds * 1000, busy = false;
  const look = async () => {
    if (document.hidden || busy || Date.now() < due) return;
    busy = true;
    try {
      await work();
      root.removeAttribute("data-away");
    } catch (error) {
      root.setAttribute("data-away", String(error));
    } finally {
      busy = false;
      due = Date.now() + seconds * 1000;
    }
  };
  setInterval(look, Math.min(seconds * 1000, 1000));
  document.addEventListener("visibilitychange", look);
}

/** The page itself once more, for its lists. @returns {Promise<Document>} */
async function again() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) throw new Error(`${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

const polled = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-poll]"))];
if (polled.length) {
  every(Math.min(...polled.map((one) => Number(one.dataset.poll))), async () => {
    const fresh = await again();
    const there = [...fresh.querySelectorAll("[data-poll]")];
    polled.forEach((old, number) => {
      if (there[number] && !old.contains(document.activeElement)) replace(old, there[number]);
    });
    choose();
  });
}

/** Where a picture cannot be had, words stand in its place. @param {HTMLImageElement} picture */
function missing(picture) {
  const words = document.createElement("p");
  words.className = "gone";
  words.textContent = `${picture.alt}: cannot be shown`;
  const link = document.createElement("a");
  link.href = picture.src;
  link.textContent = "why";
  words.append(" ", link);
  picture.replaceWith(words);
}
addEventListener("error", (event) => {
  if (event.target instanceof HTMLImageElement) missing(event.target);
}, true);
for (const picture of document.querySelectorAll("img")) {
  if (picture.complete && !picture.naturalWidth && picture.src) missing(picture);
}

const waiting = document.querySelector("[data-wait]");
if (waiting instanceof HTMLElement) {
  every(Number(waiting.dataset.wait), async () => {
    const there = (await again()).querySelector("[data-wait]");
    if (there) waiting.replaceChildren(...there.childNodes);
    else location.reload();
  });
}

/** Take over what changed; boxes stay as they were set. @param {Element} old @param {Element} fresh */
function replace(old, fresh) {
  if (old.querySelector(".uplot")) { // somebody looks closer at a chart: it brings its own values
    old.dispatchEvent(new CustomEvent("fresh", { bubbles: true }));
    return;
  }
  const set = new Set([...old.querySelectorAll("input:checked")].map((box) => /** @type {HTMLInputElement} */ (box).value));
  if (old.innerHTML === fresh.innerHTML && !set.size) return;
  old.replaceChildren(...fresh.childNodes);
  for (const box of old.querySelectorAll("input[type=checkbox]")) {
    const input = /** @type {HTMLInputElement} */ (box);
    input.checked = set.has(input.value);
  }
}
