// SPDX-License-Identifier: Apache-2.0
"use strict";
// Numbers as people read them. Every quantity says its unit.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function count(value) { return value === null || value === undefined ? "–" : grouped.format(value); }

function percent(share) { return share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`; }

function scaled(value, units, base) {
  let unit = 0;
  while (Math.abs(value) >= base && unit < units.length - 1) { value /= base; unit += 1; }
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}

function bytes(value) { return scaled(value, ["B", "KB", "MB", "GB"], 1024); }

function duration(cycles, hertz) { return scaled(1e9 * cycles / hertz, ["ns", "µs", "ms", "s"], 1000); }

function significant(value, digits = 4) { return value === null ? "–" : String(Number(value.toPrecision(digits))); }

// How a layer's output holds real numbers.
function held(numbers) {
  return numbers.scale ? `${significant(numbers.scale[0])}, ${numbers.scale[1]}` : count(numbers.point);
}

// plotly.js reads labels as markup: a name is not.
function plain(text) { return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); }
