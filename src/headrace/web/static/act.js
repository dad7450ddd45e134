// What changes something: a button opens a dialog that says what happens, and the dialog's form is sent from here, since
// a POST needs a header of ours. Loaded only where something is allowed.

import { say } from "./page.js";

export const SAID = "headrace-said";

/** @param {HTMLDialogElement} dialog */
async function open(dialog) {
  wrong(dialog, "");
  name(dialog);
  dialog.showModal();
  const about = dialog.querySelector("[data-about]");
  if (!(about instanceof HTMLElement)) return;
  const does = /** @type {HTMLButtonElement} */ (dialog.querySelector(".does"));
  does.disabled = true; // nobody agrees to what is not told yet
  try {
    const answer = await fetch(about.dataset.about ?? "", { headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const told = answer.ok ? page.getElementById("about") : page.querySelector("main");
    about.replaceChildren(...(told?.childNodes ?? []));
    does.disabled = !answer.ok;
  } catch (error) {
    wrong(dialog, `The page does not answer: ${error}`);
  }
}

/** Say of which runs the dialog is: of those that are chosen now. @param {HTMLDialogElement} dialog */
function name(dialog) {
  const list = dialog.querySelector("[data-chosen]"), form = dialog.querySelector("form");
  if (!list || !form) return;
  const boxes = document.querySelectorAll(`input[name=run][form="${form.dataset.of}"]:checked`);
  list.replaceChildren(...[.../** @type {NodeListOf<HTMLInputElement>} */ (boxes)].map((box) => {
    const item = document.createElement("li"), said = document.createElement("small");
    item.dataset.run = box.value;
    item.append(box.value);
    if (box.dataset.name && !box.value.includes(box.dataset.name)) said.textContent = box.dataset.name;
    item.append(" ", said);
    return item;
  }));
}

/** @param {HTMLElement} dialog @param {string} text */
function wrong(dialog, text) {
  const place = /** @type {HTMLElement} */ (dialog.querySelector("[role=alert]"));
  place.textContent = text;
  place.hidden = text === "";
}

/** What a form holds: lines of name=value where a field says so, nothing of fields that are empty and may be.
 * @param {HTMLFormElement} form */
function held(form) {
  /** @type {Record<string, unknown>} */
  const found = {};
  for (const field of form.elements) {
    if (!(field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement || field instanceof HTMLSelectElement)) continue;
    if (!field.name) continue;
    if (field instanceof HTMLInputElement && field.type === "checkbox") found[field.name] = field.checked;
    else if (field.dataset.as === "pairs") found[field.name] = pairs(field.value);
    else if (field.dataset.as === "changes") found[field.name] = changes(field.value);
    else if (field.value !== "" || field.dataset.as === "text") found[field.name] = field.value;
  }
  return found;
}

/** @param {string} text */
function pairs(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter((line) => line);
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf("=");
    return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}

/** The same, and lines of -name, which take away. @param {string} text @returns {Record<string, string | null>} */
function changes(text) {
  return Object.fromEntries(Object.entries(pairs(text)).map(([tag, value]) =>
    tag.startsWith("-") ? [tag.slice(1).trim(), null] : [tag, value]));
}

/** @param {string} path @param {unknown} body @returns {Promise<{said: string, to: string | null}>} */
async function post(path, body) {
  const headers = { "content-type": "application/json", "x-headrace": "1" };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error([told.message, told.hint].filter(Boolean).join(". "));
  return told;
}

/** For each run that the dialog names, one after the other. What came of it stands beside its name; where any failed the
 * dialog stays, and sends those again. @param {HTMLFormElement} form @param {HTMLDialogElement} dialog */
async function sendEach(form, dialog) {
  const items = [.../** @type {NodeListOf<HTMLElement>} */ (dialog.querySelectorAll("[data-run]:not(.good)"))];
  const body = held(form);
  let failed = 0;
  for (const item of items) {
    const said = /** @type {HTMLElement} */ (item.querySelector("small"));
    said.textContent = "…";
    try {
      const path = (form.dataset.act ?? "").replace("*", encodeURIComponent(item.dataset.run ?? ""));
      said.textContent = (await post(path, body)).said;
      item.className = "good";
    } catch (error) {
      said.textContent = error instanceof Error ? error.message : String(error);
      item.className = "bad";
      failed += 1;
    }
  }
  if (failed) throw new Error(`${failed} of ${items.length} failed: why stands beside each`);
  const told = [.../** @type {NodeListOf<HTMLElement>} */ (dialog.querySelectorAll("[data-run] small"))];
  return { said: told.map((one) => one.textContent).join("\n"), to: null };
}

/** @param {HTMLFormElement} form @param {HTMLDialogElement} dialog */
async function send(form, dialog) {
  const does = /** @type {HTMLButtonElement} */ (dialog.querySelector(".does"));
  does.disabled = true;
  wrong(dialog, "");
  try {
    const told = await (form.dataset.of ? sendEach(form, dialog) : post(form.dataset.act ?? "", held(form)));
    sessionStorage.setItem(SAID, told.said);
    dialog.close();
    if (told.to) location.assign(`${document.documentElement.dataset.base}${told.to}`);
    else location.reload();
  } catch (error) {
    wrong(dialog, error instanceof Error ? error.message : String(error));
    does.disabled = false;
  }
}

document.addEventListener("click", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  const opener = target.closest("[data-opens]");
  const dialog = opener instanceof HTMLElement ? document.getElementById(opener.dataset.opens ?? "") : null;
  if (dialog instanceof HTMLDialogElement) open(dialog);
  if (target.closest("[data-closes]")) target.closest("dialog")?.close();
});
document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target), dialog = form.closest("dialog");
  if (!form.dataset.act || !dialog) return;
  event.preventDefault();
  send(form, dialog);
});

const said = sessionStorage.getItem(SAID);
if (said) {
  sessionStorage.removeItem(SAID);
  const line = document.createElement("p");
  line.className = "done";
  line.textContent = said;
  document.querySelector("main")?.prepend(line);
  say(said);
}
