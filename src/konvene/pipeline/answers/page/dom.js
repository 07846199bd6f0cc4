"use strict";
// Builds HTML and SVG elements. Strings are inserted as text or attribute values, never as markup.
var konvene = konvene || {};
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  // Sets attributes and appends children; returns the node.
  // `onNAME` adds a listener. `style` is an object of CSS properties, which a strict content security policy
  // allows (it blocks style attributes in markup). An attribute that is null, undefined or false is left out,
  // and so is a child that is null or undefined.
  function fill(node, attributes, ...children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "style") {
        for (const [property, each] of Object.entries(value)) node.style.setProperty(property, each);
      } else if (name.startsWith("on")) {
        node.addEventListener(name.slice(2), value);
      } else {
        node.setAttribute(name, value === true ? "" : value);
      }
    }
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined) continue;
      node.append(child.nodeType ? child : document.createTextNode(String(child)));
    }
    return node;
  }

  // Returns a new HTML element.
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, ...children);

  // Returns a new SVG element.
  const s = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, ...children);

  Object.assign(konvene, { fill, h, s });
})();
