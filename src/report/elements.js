// Elements of a page and of its pictures, made by scripts; the pages' scripts begin with this one. Whatever somebody else wrote
// (ids, tokens, labels) enters a page as text nodes only.
"use strict";
const kSvg = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

// An element with attributes and children; texts become text nodes.
const make = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes = {}, ...children) => fill(document.createElementNS(kSvg, name), attributes, children);
const fill = (element, attributes, children) => {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const button = (text, label, action) => {
  const made = make("button", {type: "button", "aria-label": label}, text);
  made.addEventListener("click", action);
  return made;
};
const cut = (text, most) => {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}\u2026`;
};
