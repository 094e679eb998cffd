// The question before a command. The dialog keeps the focus inside, and Escape cancels.

import { find, text } from "./dom.js";

const dialog = find("#confirm");

/** Whether the operator says yes. */
export function ask({ title, words, verb }) {
  text(find("#confirm-title"), title);
  text(find("#confirm-text"), words);
  text(find(".strong", dialog), verb);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
