// SPDX-License-Identifier: Apache-2.0
"use strict";
// Pictures are drawn when they come into view, and again when what they show has changed: loading the page draws none
// that nobody sees.

const MARGIN = "150px";

// `drawers`: name of a place -> what draws it, which may return a promise.
function makeViews(drawers) {
  const seen = new Set(), stale = new Set(Object.keys(drawers));

  async function draw(wanted) {
    const names = wanted.filter((name) => stale.delete(name));
    for (const name of names) await drawers[name]();
  }

  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) seen.add(target.id); else seen.delete(target.id);
    }
    draw([...seen]);
  }, { rootMargin: MARGIN });
  for (const name of Object.keys(drawers)) observer.observe(document.getElementById(name));

  return {
    // What these show is another thing now.
    changed(...names) {
      for (const name of names) stale.add(name);
      return draw(names.filter((name) => seen.has(name)));
    },
    // For printing, and for those who look at a page without scrolling.
    drawAll() { return draw(Object.keys(drawers)); },
  };
}
