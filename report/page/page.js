// SPDX-License-Identifier: Apache-2.0
"use strict";
// The page: reads the data, says it in words, draws what comes into view, and keeps one layer chosen in all pictures.

const data = JSON.parse(document.getElementById("data").textContent);
const at = (name) => document.getElementById(name);
const state = { chosen: null, inPercent: false, tables: [], lines: null, from: 0, to: Math.max(data.cycles, LEAST_CYCLES), drawing: false, pointed: [-1, -1] };

function element(kind, text, parent, className) {
  const made = document.createElement(kind);
  made.textContent = text;
  if (className) made.className = className;
  parent.appendChild(made);
  return made;
}

function facts(place, rows) {
  place.replaceChildren();
  for (const [name, value] of rows) {
    const pair = element("div", "", place);
    element("dt", name, pair);
    element("dd", value, pair);
  }
}

// -- what stands in words -----------------------------------------------------------------------------------------------
function writeHead() {
  const { machine } = data;
  const clock = `${significant(machine.clock_hz / 1e6)} MHz${machine.clock_known ? ` (asked of its board's build; place and route by open tools: ${machine.routing})` : " (assumed)"}`;
  at("machine-line").textContent = `on ${machine.name}: array of ${data.lanes} x ${data.lanes}, ${machine.keys.data_type}, ${clock}`;
  facts(at("totals"), [["cycles", count(data.cycles)], ["latency", duration(data.cycles, machine.clock_hz)],
    ["MACs", macsText(data)], ["utilization", percent(data.utilization)], ["layers", count(data.layers.length)],
    ["tail", `${count(data.tail)} cycles`]]);
}

function macsText(of) {
  const left = of.macs - of.done_macs;
  return left > 0 ? `${count(of.macs)}, ${count(left)} left out` : count(of.macs);
}

function lanesText(layer) {
  if (!layer.lanes) return "–";
  const { rows, columns, group } = layer.lanes;
  return `${rows} x ${columns} of ${data.lanes}${group > 1 ? `, group of ${group}` : ""}`;
}

function largestWait(layer) {
  const [cause, cycles] = Object.entries(layer.waits).reduce((best, each) => each[1] > best[1] ? each : best, ["", 0]);
  return cycles ? `${cause.replace("_", " ")} ${percent(cycles / layer.cycles)}` : "–";
}

function range(numbers) { return numbers.low === null ? "–" : `${significant(numbers.low)}..${significant(numbers.high)}`; }

function decibels(numbers) {
  if (numbers.snr !== null) return numbers.snr.toFixed(1);
  return numbers.measured ? "exact" : "–";
}

function saturations(numbers) { return count(numbers.measured ? numbers.saturations : numbers.saturated); }

function writeChosen() {
  const layer = data.layers[state.chosen], { numbers } = layer;
  at("selected-name").textContent = `${state.chosen + 1} ${layer.name}`;
  at("selected-hint").textContent = layer.kind.split("+").join(", then ");
  const dram = Object.entries(layer.dram).filter(([, moved]) => moved).map(([unit, moved]) => `${unit.replace("_", " ")} ${bytes(moved)}`);
  const vectors = Math.max(layer.vectors, 1);
  facts(at("selected-facts"), [
    ["input", layer.input.join(" x ") || "–"], ["output", layer.output.join(" x ") || "–"], ["MACs", macsText(layer)],
    ["cycles", `${count(layer.cycles)} (${duration(layer.cycles, data.machine.clock_hz)})`],
    ["utilization", percent(layer.utilization)], ["array filled, rows x columns", lanesText(layer)],
    ["idle lanes while vectors pass", layer.vectors ? percent(layer.idle / vectors) : "–"],
    ["longest wait", largestWait(layer)], ["DRAM", dram.join(", ") || "none"],
    ["range", range(numbers)], ["point, or scale and zero", held(numbers)], ["SNR, dB", decibels(numbers)],
    ["saturations", saturations(numbers)]]);
}

// A table whose first columns are text; `act(row)` makes rows clickable.
function fill(table, heads, rows, texts, act) {
  const head = element("tr", "", element("thead", "", table));
  heads.forEach((name, column) => element("th", name, head, column < texts ? "text" : ""));
  const body = element("tbody", "", table);
  return rows.map((cells, number) => {
    const line = element("tr", "", body);
    cells.forEach((cell, column) => {
      const made = element("td", cell, line, column < texts ? "text name" : "");
      if (column < texts) made.title = cell;
    });
    if (act) { line.tabIndex = 0; pressed(line, () => act(number)); }
    return line;
  });
}

function writeTable() {
  const measured = data.layers.some((layer) => layer.numbers.measured);
  const more = data.layers.some((layer) => layer.macs > layer.done_macs) ? " MACs are the network's as drawn; what nobody needs is left out, and is not in the utilization." : "";
  at("numbers-hint").textContent = (measured ? "Range, SNR and saturations on calibration inputs."
    : "SNR: compile with --report FILE.json or --html PAGE.html to measure it. Saturations are those of the ranges seen in calibration.") + more;
  return fill(at("layer-table"), ["layer", "kind", "#", "cycles", "time", "util.", "rows x columns", "idle lanes", "longest wait",
    "MACs", "DRAM", "range", "point, or scale and zero", "SNR dB", "saturated"], data.layers.map((layer, number) => [
    layer.name, layer.kind, count(number + 1), count(layer.cycles), duration(layer.cycles, data.machine.clock_hz),
    percent(layer.utilization), lanesText(layer), layer.vectors ? percent(layer.idle / layer.vectors) : "–",
    largestWait(layer), count(layer.macs), bytes(Object.values(layer.dram).reduce((sum, each) => sum + each, 0)),
    range(layer.numbers), held(layer.numbers), decibels(layer.numbers), saturations(layer.numbers)]), 2, select);
}

const RESOURCES = { lut: "LUTs", ff: "flip-flops", dsp: "DSP blocks", bram: "block RAMs" };

function writeMachine() {
  const { resources, keys } = data.machine;
  fill(at("key-table"), ["key", "value"], Object.entries(keys), 2);
  if (!resources) {
    at("resources-hint").textContent = "No board's chip is known for this machine: give --part to see what it takes of one.";
    return;
  }
  at("resources-hint").textContent = `Predicted for ${resources.part}: ${resources.fits ? "fits" : "does not fit"} with what a board needs beside the machine.`;
  const of = Object.entries(resources.of_part);
  const lines = fill(at("resource-table"), ["resource", "machine", "rest of a board", "chip", "machine, % of chip", ""],
    of.map(([key, [machine, rest, part]]) => [RESOURCES[key], count(machine), count(rest), count(part), percent(machine / part), ""]), 1);
  of.forEach(([, [machine, rest, part]], row) => {
    const meter = element("span", "", lines[row].lastChild, "meter");
    const width = (value) => Math.min(100 * value / part, 100);
    element("span", "", meter, "machine").style.width = `${width(machine)}%`;
    element("span", "", meter, "rest").style.width = `${Math.min(width(rest), 100 - width(machine))}%`;
  });
  const columns = Object.keys(resources.total);
  fill(at("block-table"), ["block", ...columns], Object.entries(resources.blocks).map(
    ([name, counts]) => [name, ...columns.map((column) => count(counts[column] || 0))]), 1);
}

// -- the timeline -------------------------------------------------------------------------------------------------------
async function unzipped(name) {
  const packed = atob(at(name).textContent), raw = new Uint8Array(packed.length);
  for (let index = 0; index < packed.length; index += 1) raw[index] = packed.charCodeAt(index);
  return new Response(new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

// What is packed is unpacked when it is first needed.
function once(make) {
  let made = null;
  return () => { made = made || make(); return made; };
}
const readTables = once(async () => { state.tables = unitTables(new Int32Array(await unzipped("columns")), data.timeline); });
const readTexts = once(async () => { state.lines = new TextDecoder().decode(await unzipped("texts")).split("\n"); });

function lineOf(number) { return state.lines ? state.lines[number] : ""; }

async function drawTimeline() {
  await readTables();
  if (operationsWithin(state.tables, state.from, state.to) <= MOST_BARS) await readTexts();
  const { from, to, tables, chosen } = state;
  state.drawing = true;
  await plot("timeline-plot", timelineTraces(tables, from, to, chosen, lineOf), timelineLayout(tables.map(unitLabel), from, to),
    { ...CONFIG, scrollZoom: true }, { plotly_relayout: zoomed, plotly_hover: hovered, plotly_click: clicked,
      plotly_doubleclick: () => show(0, data.cycles) });
  state.drawing = false;
}

let waiting = false;
function show(from, to) {
  [state.from, state.to] = clamped(from, to, data.cycles);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; views.changed("timeline-plot"); });
}

function zoomed(change) {
  if (state.drawing) return;
  const box = at("timeline-plot")._fullLayout.xaxis.range;
  if (change["xaxis.autorange"]) show(0, data.cycles);
  else if (Object.keys(change).some((key) => key.startsWith("xaxis.range"))) show(Number(box[0]), Number(box[1]));
}

function zoomBy(factor) {
  const middle = (state.from + state.to) / 2, half = factor * (state.to - state.from) / 2;
  show(middle - half, middle + half);
}

// The unit and operation under the pointer of a plotly event: of a heat map by its time.
function operationUnder(event) {
  const point = event.points[0];
  if (Array.isArray(point.customdata)) return point.customdata;
  const number = state.tables.findIndex((table) => unitLabel(table) === point.y);
  const reach = (state.to - state.from) / BINS;
  return number < 0 ? [-1, -1] : [number, operationAt(state.tables[number], point.x - reach / 2, reach)];
}

function describe(number, index) {
  const table = state.tables[number];
  if (index < 0) return `${unitLabel(table)}: rests`;
  const layer = table.layer[index], [text, addresses] = lineOf(table.text[index]).split("\t");
  const named = layer < 0 ? "no layer" : `layer ${layer + 1} ${data.layers[layer].name}`;
  return `${unitLabel(table)}, cycles ${count(table.begin[index])}..${count(table.end[index] - 1)} (${count(table.end[index] - table.begin[index])}), ${named}\n${text}\n${addresses || ""}`;
}

async function hovered(event) {
  const [number, index] = operationUnder(event);
  state.pointed = [number, index];
  if (number < 0) return;
  await readTexts();
  if (state.pointed[0] === number && state.pointed[1] === index) at("operation").textContent = describe(number, index);
}

function clicked(event) {
  const [number, index] = operationUnder(event);
  if (number >= 0 && index >= 0 && state.tables[number].layer[index] >= 0) select(state.tables[number].layer[index], true);
}

// -- the other plots ----------------------------------------------------------------------------------------------------
// `acts`: event of plotly -> what it does.
function plot(name, traces, layout, config, acts) {
  const place = at(name), first = !place.on;
  const drawn = Plotly.react(place, traces, layout, config);
  if (first) for (const [event, act] of Object.entries(acts)) place.on(event, act);
  return drawn;
}

function drawLayers() {
  const mark = state.chosen === null ? [] : [{ type: "rect", xref: "x", yref: "paper", y0: 0, y1: 1, layer: "below",
    x0: state.chosen + 0.5, x1: state.chosen + 1.5, fillcolor: "#fdf0d5", line: { width: 0 } }];
  return plot("layers-plot", layerTraces(data.layers), { ...layerLayout(state.inPercent), shapes: mark }, CONFIG,
    { plotly_click: (event) => select(event.points[0].x - 1) });
}

function drawRoof() {
  return plot("roof-plot", roofTraces(data, state.chosen), roofLayout(), CONFIG,
    { plotly_click: (event) => { if (Number.isInteger(event.points[0].customdata)) select(event.points[0].customdata); } });
}

function drawMemory() { return plot("memory-plot", memoryTraces(data), memoryLayout(), CONFIG, {}); }

// -- one layer is chosen ------------------------------------------------------------------------------------------------
let boxes = [], lines = [], views = null;

function select(number, stay) {
  const old = state.chosen;
  state.chosen = number;
  data.nodes.forEach((node, index) => boxes[index].classList.toggle("chosen", node.layer === number));
  if (old !== null) lines[old].classList.remove("chosen");
  lines[number].classList.add("chosen");
  writeChosen();
  views.changed("layers-plot", "roof-plot");
  if (stay === true) show(state.from, state.to); else zoomToChosen();
}

function zoomToChosen() {
  const layer = data.layers[state.chosen];
  if (layer && layer.begin !== null) {
    const margin = (layer.end - layer.begin) / 50;
    show(layer.begin - margin, layer.end + margin);
  }
}

// -- begin --------------------------------------------------------------------------------------------------------------
function reserve(name, layout) { at(name).style.minHeight = `${layout.height}px`; }

function begin() {
  writeHead();
  boxes = drawNetwork(at("picture"), data.nodes, select);
  lines = writeTable();
  writeMachine();
  for (const [name, layout] of [["layers-plot", layerLayout(false)], ["roof-plot", roofLayout()], ["memory-plot", memoryLayout()],
    ["timeline-plot", timelineLayout(data.timeline.units, 0, 1)]]) reserve(name, layout);
  at("share").addEventListener("click", () => {
    state.inPercent = !state.inPercent;
    at("share").textContent = state.inPercent ? "show cycles" : "show percent";
    views.changed("layers-plot");
  });
  for (const [name, act] of [["zoom-in", () => zoomBy(0.5)], ["zoom-out", () => zoomBy(2)],
    ["zoom-all", () => show(0, data.cycles)], ["zoom-layer", zoomToChosen]]) at(name).addEventListener("click", act);
  views = makeViews({ "layers-plot": drawLayers, "timeline-plot": drawTimeline, "roof-plot": drawRoof, "memory-plot": drawMemory });
  window.addEventListener("beforeprint", () => views.drawAll());
  document.body.dataset.ready = "yes";
}

begin();
