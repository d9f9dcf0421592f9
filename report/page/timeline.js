// SPDX-License-Identifier: Apache-2.0
"use strict";
// The operations of each unit as sorted columns, and what a picture of some of them needs: pure functions.

// [operations] int32: begin (as differences), length, layer, text, one column behind the other -> a table for each unit.
function unitTables(packed, meaning) {
  const total = meaning.operations, tables = [];
  let from = 0, begin = 0;
  meaning.units.forEach((name, number) => {
    const size = meaning.counts[number];
    const table = { name, begin: new Float64Array(size), end: new Float64Array(size), busy: new Float64Array(size + 1),
      layer: packed.subarray(2 * total + from, 2 * total + from + size),
      text: packed.subarray(3 * total + from, 3 * total + from + size) };
    for (let index = 0; index < size; index += 1) {
      begin += packed[from + index];
      const length = packed[total + from + index];
      table.begin[index] = begin;
      table.end[index] = begin + length;
      table.busy[index + 1] = table.busy[index] + length;
    }
    tables.push(table);
    from += size;
  });
  return tables;
}

// The first index whose value is greater than `value`; the array is sorted.
function firstAbove(array, value) {
  let low = 0, high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

// Cycles before `cycle` in which the unit works.
function busyBefore(table, cycle) {
  const begun = firstAbove(table.begin, cycle);
  return begun === 0 ? 0 : table.busy[begun] - Math.max(table.end[begun - 1] - cycle, 0);
}

// [bins]: the share of each of the equal parts of from..to in which the unit works.
function busyShares(table, from, to, bins) {
  const step = (to - from) / bins, shares = new Array(bins);
  let before = busyBefore(table, from);
  for (let bin = 0; bin < bins; bin += 1) {
    const after = busyBefore(table, from + (bin + 1) * step);
    shares[bin] = Math.min(Math.max((after - before) / step, 0), 1);
    before = after;
  }
  return shares;
}

// [first, behind the last] of the operations that touch from..to.
function within(table, from, to) { return [firstAbove(table.end, from), firstAbove(table.begin, to)]; }

function operationsWithin(tables, from, to) {
  return tables.reduce((sum, table) => { const [first, behind] = within(table, from, to); return sum + Math.max(behind - first, 0); }, 0);
}

// The operation at a cycle or, when the unit rests there, the next one that begins within `reach`; -1 for none.
function operationAt(table, cycle, reach) {
  const index = firstAbove(table.end, cycle);
  return index < table.end.length && table.begin[index] <= cycle + reach ? index : -1;
}

// The same unit with nothing but the operations of a layer.
function ofLayer(table, layer) {
  const mine = [];
  table.layer.forEach((value, index) => { if (value === layer) mine.push(index); });
  const pick = (column) => Float64Array.from(mine, (index) => column[index]);
  const begin = pick(table.begin), end = pick(table.end), busy = new Float64Array(mine.length + 1);
  mine.forEach((_, index) => { busy[index + 1] = busy[index] + end[index] - begin[index]; });
  return { name: table.name, begin, end, busy };
}

// A window of the timeline: inside 0..total, at least some cycles wide.
const LEAST_CYCLES = 10;
function clamped(from, to, total) {
  const wide = Math.min(Math.max(to - from, LEAST_CYCLES), Math.max(total, LEAST_CYCLES));
  const middle = Math.min(Math.max((from + to) / 2, wide / 2), Math.max(total, LEAST_CYCLES) - wide / 2);
  return [middle - wide / 2, middle + wide / 2];
}
