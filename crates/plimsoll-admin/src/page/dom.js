// Small tools for the document. Text enters as text only: names of customers come from strangers.

/** An element with attributes and children; strings become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const find = (selector, root = document) => root.querySelector(selector);

/** Changes text only where it differs, so that an update costs nothing where nothing changed. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

export function attribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export function hide(element, isHidden) {
  if (element.hidden !== isHidden) element.hidden = isHidden;
}

/**
 * A number for the style sheet. By the object model: the policy of the page forbids style
 * attributes.
 */
export function style(element, name, value) {
  if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
}

/**
 * One child for each item, found again by its key: `build(item)` returns `{ element, update(item)
 * }`.
 * Children are made, moved and removed only where the list changed.
 */
export function list(parent, items, keyOf, build) {
  const known = (parent.known ??= new Map());
  const wanted = new Set();
  let place = parent.firstElementChild;
  while (place?.tagName === "THEAD") place = place.nextElementSibling;
  for (const item of items) {
    const key = keyOf(item);
    if (wanted.has(key)) continue;
    wanted.add(key);
    if (!known.has(key)) known.set(key, build(item));
    const child = known.get(key);
    if (child.element === place) place = place.nextElementSibling;
    else parent.insertBefore(child.element, place);
    child.update?.(item);
  }
  for (const [key, child] of known) {
    if (wanted.has(key)) continue;
    child.element.remove();
    known.delete(key);
  }
}

/** A link to the requests behind a number; `explain.js` shows them in place. */
export const explainLink = (href, ...children) => make("a", { href, class: "explains" }, ...children);
