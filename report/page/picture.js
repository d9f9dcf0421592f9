// SPDX-License-Identifier: Apache-2.0
"use strict";
// The network as a column of boxes; what does not read the box above it is joined by a curve at the right.

const SVG = "http://www.w3.org/2000/svg";
const BOX = { left: 8, width: 280, height: 34, step: 46, curve: 14, most: 9 };

function svg(kind, attributes, parent) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (parent) parent.appendChild(made);
  return made;
}

function cut(text, letters) { return text.length > letters ? `${text.slice(0, letters / 2)}…${text.slice(1 - letters / 2)}` : text; }

function drawNetwork(place, nodes, choose) {
  const right = BOX.left + BOX.width, width = right + BOX.curve * BOX.most + 12;
  const root = svg("svg", { viewBox: `0 0 ${width} ${nodes.length * BOX.step + 4}`, role: "group", "aria-label": "network" }, place);
  const top = (number) => 4 + number * BOX.step;
  nodes.forEach((node, number) => node.after.forEach((source) => {
    if (source === number - 1) {
      const middle = BOX.left + BOX.width / 2;
      svg("path", { d: `M ${middle} ${top(source) + BOX.height} V ${top(number)}` }, root);
    } else {
      const reach = right + BOX.curve * Math.min(number - source - 1, BOX.most);
      const from = top(source) + BOX.height / 2 + 4, to = top(number) + BOX.height / 2 - 4;
      svg("path", { d: `M ${right} ${from} C ${reach} ${from}, ${reach} ${to}, ${right} ${to}` }, root);
    }
  }));
  return nodes.map((node, number) => drawNode(root, node, top(number), choose));
}

function drawNode(root, node, y, choose) {
  const group = svg("g", { class: `node ${node.where}` }, root);
  svg("title", {}, group).textContent = `${node.label}, ${node.where}: ${node.detail}`;
  svg("rect", { x: BOX.left, y, width: BOX.width, height: BOX.height, rx: 5 }, group);
  svg("text", { x: BOX.left + 8, y: y + 14 }, group).textContent = cut(node.label, 40);
  svg("text", { x: BOX.left + 8, y: y + 28, class: "detail" }, group).textContent = cut(node.detail, 50);
  if (node.layer !== null) {
    for (const [name, value] of [["tabindex", 0], ["role", "button"]]) group.setAttribute(name, value);
    pressed(group, () => choose(node.layer));
  }
  return group;
}

// A click, or Enter where the keyboard is.
function pressed(element, act) {
  element.addEventListener("click", act);
  element.addEventListener("keydown", (event) => { if (event.key === "Enter") act(); });
}
