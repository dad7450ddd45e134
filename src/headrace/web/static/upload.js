// Files into the folder that is shown, piece by piece. Whatever breaks off is asked where it stands, and goes on from there.

import { SAID } from "./act.js";

const TRIES = 6;
const form = document.getElementById("upload");
const list = /** @type {HTMLElement} */ (document.getElementById("uploads"));

/** @typedef {{id: string, offset: number, piece: number, over: boolean}} Standing */

class Refused extends Error {}

/** @param {string} url @param {BodyInit} body @param {string} type @returns {Promise<Standing>} */
async function post(url, body, type) {
  const answer = await fetch(url, { method: "POST", headers: { "content-type": type, "x-headrace": "1" }, body });
  const told = await answer.json();
  if (answer.ok) return told;
  const words = [told.message, told.hint].filter(Boolean).join(". ");
  // Another piece is wanted, the upload is gone, or the store is away: that is worth asking where it stands.
  throw told.code === "changed" || told.code === "not-found" || answer.status >= 500 ? new Error(words) : new Refused(words);
}

/** @param {string} acts @param {string} folder @param {File} file @param {boolean} replace */
function begin(acts, folder, file, replace) {
  const about = { folder, name: file.name, size: file.size, stamp: file.lastModified, replace };
  return post(acts, JSON.stringify(about), "application/json");
}

/** @param {File} file @param {() => Promise<Standing>} ask @param {string} acts @param {(done: number) => void} tell */
async function send(file, ask, acts, tell) {
  let failed = 0;
  /** @type {Standing | null} */
  let at = null;
  for (;;) {
    try {
      at ??= await ask();
      tell(at.offset);
      if (at.over) return;
      const piece = file.slice(at.offset, at.offset + at.piece);
      at = await post(`${acts}/${at.id}?offset=${at.offset}`, piece, "application/octet-stream");
      failed = 0;
    } catch (error) {
      if (error instanceof Refused || ++failed >= TRIES) throw error;
      at = null;
      await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** failed));
    }
  }
}

/** @param {File} file */
function row(file) {
  const item = document.createElement("li"), bar = document.createElement("progress"), said = document.createElement("span");
  bar.max = Math.max(1, file.size);
  bar.value = 0;
  bar.setAttribute("aria-label", file.name);
  item.append(file.name, " ", bar, " ", said);
  list.append(item);
  return { bar, said };
}

/** @param {HTMLFormElement} form */
async function upload(form) {
  const files = [.../** @type {HTMLInputElement} */ (form.querySelector("input[type=file]")).files ?? []];
  const replace = /** @type {HTMLInputElement} */ (form.querySelector("#replace")).checked;
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  const { folder = "", acts = "" } = form.dataset;
  list.replaceChildren();
  button.disabled = true;
  const rows = files.map(row);
  let there = 0;
  for (const [number, file] of files.entries()) {
    const { bar, said } = rows[number];
    try {
      await send(file, () => begin(acts, folder, file, replace), acts, (done) => {
        bar.value = done;
        said.textContent = `${Math.floor((100 * done) / Math.max(1, file.size))} %`;
      });
      bar.value = bar.max;
      said.textContent = "is there";
      there += 1;
    } catch (error) {
      said.className = "bad";
      said.textContent = error instanceof Error ? error.message : String(error);
    }
  }
  button.disabled = false;
  if (there !== files.length) return;
  sessionStorage.setItem(SAID, there === 1 ? `${files[0].name} is there.` : `${there} files are there.`);
  location.reload();
}

form?.addEventListener("submit", (event) => {
  event.preventDefault();
  upload(/** @type {HTMLFormElement} */ (form));
});
