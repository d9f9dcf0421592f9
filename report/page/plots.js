// SPDX-License-Identifier: Apache-2.0
"use strict";
// What plotly draws. Colours are Okabe and Ito's, which colour-blind people tell apart; of so many some need stripes.

const PARTS = [["useful", "useful", "#0072B2", ""], ["idle", "idle lanes", "#56B4E9", ""]];
const CAUSES = [["weights", "wait: weights", "#E69F00", ""], ["dram_read", "wait: DRAM read", "#D55E00", ""],
  ["dram_write", "wait: DRAM write", "#CC79A7", "/"], ["moves", "wait: moves", "#F0E442", ""],
  ["simd", "wait: SIMD", "#009E73", ""], ["hazard", "wait: sums", "#999999", "x"],
  ["cores", "wait: other cores", "#0072B2", "."], ["issue", "wait: issue", "#000000", ""]];
const UNIT_LOOKS = { read0: ["#56B4E9", "solid"], write0: ["#E69F00", "solid"], read1: ["#009E73", "solid"], write1: ["#CC79A7", "dot"] };
const CHOSEN = "#E69F00";
const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage", "autoScale2d"] };
const FONT = { family: 'system-ui, "DejaVu Sans", sans-serif', size: 12, color: "#1b1f24" };
const HOVER = { bgcolor: "#fff", bordercolor: "#57606a", align: "left", font: { color: "#1b1f24", size: 12 } };
const AXIS = { gridcolor: "#e5e9ed", zerolinecolor: "#d0d7de", automargin: true, ticks: "outside", ticklen: 5, tickcolor: "#d0d7de" };
const ABOVE = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 }, traceorder: "normal" };

const EDGES = { l: 60, r: 12, t: 8, b: 44 };
const UNDER_TOOLS = { ...EDGES, t: 28 };  // plotly's buttons lie above what stands at the top

// Near, a cycle is a number of its own; from far millions are enough.
const CYCLES = [{ dtickrange: [null, 99999], value: ",d" }, { dtickrange: [100000, null], value: "~s" }];

function layout(more) {
  return { font: FONT, paper_bgcolor: "#fff", plot_bgcolor: "#fff", hoverlabel: HOVER,
    margin: EDGES, ...more };
}

function layerLabel(layer, number) { return `${number + 1} ${plain(layer.name)}`; }

// -- layers -----------------------------------------------------------------------------------------------------------
function layerTraces(layers) {
  const numbers = layers.map((_, number) => number + 1);
  const trace = (values, name, color, shape) => ({ type: "bar", x: numbers, y: values, name,
    marker: { color, pattern: { shape, fillmode: "overlay", fgcolor: "#fff", size: 6 } },
    customdata: layers.map(layerLabel), hovertemplate: `%{customdata}<br>${name}: %{y:,.0f}<extra></extra>` });
  const parts = PARTS.map(([key, ...look]) => trace(layers.map((layer) => layer[key]), ...look));
  const waits = CAUSES.map(([key, ...look]) => trace(layers.map((layer) => layer.waits[key] || 0), ...look));
  return [...parts, ...waits.filter((found) => found.y.some((cycles) => cycles > 0))];
}

function layerLayout(inPercent) {
  return layout({ height: 360, barmode: "stack", barnorm: inPercent ? "percent" : "", bargap: 0.15, legend: ABOVE,
    xaxis: { ...AXIS, title: { text: "layer number" }, tickformat: "d" },
    yaxis: { ...AXIS, title: { text: inPercent ? "% of the layer's cycles" : "cycles", standoff: 12 }, rangemode: "tozero" } });
}

// -- roofline ---------------------------------------------------------------------------------------------------------
function roofPoints(data) {
  return data.layers.map((layer, number) => ({ layer, number })).filter(({ layer }) => layer.roof)
    .map(({ layer, number }) => ({ number, x: layer.roof.macs_per_byte, y: layer.roof.macs_per_cycle,
      text: layerLabel(layer, number) }));
}

function roofTraces(data, chosen) {
  const lying = (point) => point.number === chosen ? 1 : 0;  // the last one lies above those at the same place
  const points = roofPoints(data).sort((one, other) => lying(one) - lying(other)), top = data.roof.macs_per_cycle, slope = data.roof.bytes_per_cycle;
  const ridge = top / slope, known = points.map((point) => point.x);
  const low = Math.min(ridge, ...known) / 3, high = Math.max(ridge, ...known) * 3;
  const label = (x, y, text, textposition) => ({ type: "scatter", mode: "text", x: [x], y: [y], text: [text], textposition,
    textfont: { size: 11 }, hoverinfo: "skip" });
  return [label(high, 1.4 * top, `array: ${count(top)} MACs per cycle`, "top left"),
    label(low, low * slope, `  DRAM: ${count(slope)} bytes per cycle`, "middle right"),
    { type: "scatter", mode: "lines", name: "limit", x: [low, ridge, high], y: [low * slope, top, top],
    line: { color: "#000" }, hoverinfo: "skip" },
  { type: "scatter", mode: "markers", name: "layers", x: known, y: points.map((point) => point.y),
    customdata: points.map((point) => point.number), text: points.map((point) => point.text),
    marker: { size: points.map((point) => point.number === chosen ? 16 : 9), line: { color: "#fff", width: 1 },
      color: points.map((point) => point.number === chosen ? CHOSEN : "#0072B2") },
    hovertemplate: "%{text}<br>%{y:,.1f} MACs per cycle<br>%{x:,.1f} MACs per byte<extra></extra>" }];
}

function roofLayout() {
  const log = { ...AXIS, type: "log", dtick: 1, exponentformat: "power" };
  return layout({ height: 400, showlegend: false, margin: UNDER_TOOLS,
    xaxis: { ...log, title: { text: "MACs per byte of the busiest DRAM channel" } },
    yaxis: { ...log, title: { text: "MACs per cycle", standoff: 12 } } });
}

// -- memory -----------------------------------------------------------------------------------------------------------
// One column over all programs; they run one behind the other.
function joined(data, pick) { return data.memory.flatMap(pick); }

function memoryTraces(data) {
  let before = 0;
  const cycles = data.memory.flatMap((memory, number) => {
    const shifted = memory.cycle.map((cycle) => cycle + before);
    before += data.programs[number];
    return shifted;
  });
  const line = (y, name, color, yaxis, template, more) => ({ type: "scatter", mode: "lines", x: cycles, y, name, yaxis,
    line: { color, width: 1.6, shape: "hv" }, hovertemplate: `${name}: ${template}<extra></extra>`, ...more });
  const share = (name, color, dash) => line(joined(data, (memory) => memory.live[name].map(
    (vectors) => 100 * vectors / Math.max(memory.capacity[name], 1))), name, color, "y3", "%{y:.1f} %",
  { customdata: joined(data, (memory) => memory.live[name]), line: { color, width: 1.6, shape: "hv", dash } });
  const names = Object.keys(data.memory[0] ? data.memory[0].traffic : {})
    .filter((name) => data.memory.some((memory) => memory.traffic[name].some((rate) => rate > 0)));
  const traffic = names.map((name, index) => {
    const [color, dash] = UNIT_LOOKS[`${name.includes("read") ? "read" : "write"}${name.includes("1") ? 1 : 0}`];
    return line(joined(data, (memory) => memory.traffic[name]), name.replace("_", " "), color, "y", "%{y:.1f} B per cycle",
      { legendrank: 10 + index, line: { color, width: 1.6, shape: "hv", dash } });
  });
  const dram = (name, color, dash) => line(joined(data, (memory) => memory.live[name].map(
    (vectors) => vectors * data.vector_bytes / 1024)), `${name.toUpperCase()} in use`, color, "y2", "%{y:,.0f} KB",
  { line: { color, width: 1.6, shape: "hv", dash } });
  return [share("local", "#0072B2", "solid"), share("accumulators", "#D55E00", "dot"), dram("dram0", "#000000", "solid"),
    dram("dram1", "#7a7a7a", "dash"), ...traffic];
}

function memoryLayout() {
  const panel = (low, high, text) => ({ ...AXIS, domain: [low, high], title: { text, standoff: 8 }, rangemode: "tozero",
    nticks: 4 });
  return layout({ height: 470, hovermode: "x", legend: ABOVE, modebar: { orientation: "v" }, margin: { ...EDGES, r: 36 },
    xaxis: { ...AXIS, title: { text: "cycle" }, anchor: "y", tickformatstops: CYCLES },
    yaxis: panel(0, 0.29, "bytes / cycle"), yaxis2: { ...panel(0.37, 0.64, "DRAM, KB"), tickformat: "," },
    yaxis3: { ...panel(0.72, 1, "on chip, %"), range: [0, 103] } });
}

// -- timeline ---------------------------------------------------------------------------------------------------------
const BINS = 700, MOST_BARS = 1200;
const LAYER_COLOURS = ["#0072B2", "#56B4E9"];
const BUSY = [[0, "#f4f6f8"], [1, "#0072B2"]], BUSY_CHOSEN = [[0, "rgba(230,159,0,0)"], [0.02, "rgba(230,159,0,0.45)"], [1, "rgba(230,159,0,1)"]];

function unitLabel(table) { return table.name.replace("_", " "); }

// Bars where few operations are in sight, else how busy each unit is.
function timelineTraces(tables, from, to, chosen, textOf) {
  return operationsWithin(tables, from, to) <= MOST_BARS ? barTraces(tables, [from, to], chosen, textOf)
    : heatTraces(tables, from, to, chosen);
}

function heatTraces(tables, from, to, chosen) {
  const step = (to - from) / BINS, x = Array.from({ length: BINS }, (_, bin) => from + (bin + 0.5) * step);
  const map = (rows, colorscale, more) => ({ type: "heatmap", x, y: rows.map(unitLabel), zmin: 0, zmax: 1, colorscale,
    z: rows.map((table) => busyShares(table, from, to, BINS)), hoverinfo: "none", showscale: false, ygap: 3, ...more });
  const all = map(tables, BUSY, { name: "busy" });
  return chosen === null ? [all] : [all, map(tables.map((table) => ofLayer(table, chosen)), BUSY_CHOSEN, { name: "chosen" })];
}

// Bars end where the picture does, so that their names stand in what is seen of them.
function barTraces(tables, [from, to], chosen, textOf) {
  const ranges = tables.map((table) => within(table, from, to)), few = operationsWithin(tables, from, to) <= MOST_BARS / 4;
  const bars = { type: "bar", orientation: "h", name: "operations", x: [], base: [], y: [], text: [], customdata: [],
    marker: { color: [], line: { color: "#fff", width: few ? 1 : 0 } }, hoverinfo: "none", textposition: "inside",
    insidetextanchor: "middle", textangle: 0, insidetextfont: { color: [], size: 11 }, cliponaxis: true };
  tables.forEach((table, number) => {
    for (let index = ranges[number][0]; index < ranges[number][1]; index += 1) {
      const layer = table.layer[index];
      const begin = Math.max(table.begin[index], from);
      bars.base.push(begin);
      bars.x.push(Math.min(table.end[index], to) - begin);
      bars.y.push(unitLabel(table));
      bars.text.push(plain(textOf(table.text[index]).split(" ")[0]));
      bars.customdata.push([number, index]);
      const colour = layer === chosen && chosen !== null ? CHOSEN : LAYER_COLOURS[layer & 1];
      bars.marker.color.push(colour);
      bars.insidetextfont.color.push(colour === LAYER_COLOURS[0] ? "#fff" : "#000");
    }
  });
  // Units without an operation in sight keep their row.
  const rows = { type: "scatter", x: tables.map(() => null), y: tables.map(unitLabel), hoverinfo: "skip" };
  return [rows, bars];
}

function timelineLayout(names, from, to) {
  return layout({ height: 90 + 26 * names.length, showlegend: false, dragmode: "zoom", hovermode: "closest", bargap: 0.2,
    uniformtext: { mode: "hide", minsize: 9 }, margin: UNDER_TOOLS,
    xaxis: { ...AXIS, title: { text: "cycle" }, range: [from, to], tickformatstops: CYCLES },
    yaxis: { ...AXIS, autorange: "reversed", type: "category", fixedrange: true, categoryorder: "array",
      categoryarray: names } });
}
