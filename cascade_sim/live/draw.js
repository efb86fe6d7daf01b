"use strict";
/* Numbers as words, elements, and drawings in SVG. Nothing here asks the server or knows the state. */
const MINUS = "−", NONE = "–";

/* Marks that turn the order of letters, and signs that are none to be read, are written out: \u202e. */
const STEERING = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/g;
function shown(text) {
  return String(text).replace(STEERING, (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));
}
function words(children) {
  return children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : shown(child)));
}

function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key.startsWith("aria-")) node.setAttribute(key, String(value));
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...words(children));
  return node;
}

function svg(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...words(children));
  return node;
}

/* Digits after the point so that `size` shows so many significant ones. */
function decimals(size, digits) {
  if (!size || !isFinite(size)) return digits;
  return Math.min(Math.max(digits - 1 - Math.floor(Math.log10(Math.abs(size))), 0), 6);
}
function number(value, places) {
  if (value === null || value === undefined || !isFinite(value)) return NONE;
  const text = Math.abs(value).toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
  return (value < 0 && Number(text.replace(/,/g, "")) !== 0 ? MINUS : "") + text;
}
function signed(value, places) {
  const text = number(value, places);
  return value > 0 && text !== NONE && Number(text.replace(/,/g, "")) !== 0 ? "+" + text : text;
}
function level(value, unit) {
  if (value === null || value === undefined) return NONE;
  const shown = unit === "percent" ? 100 * value : value;
  return number(shown, decimals(shown, 3)) + (unit === "percent" ? " %" : "");
}
function plain(value) {
  if (value === null || value === undefined) return "none";
  return typeof value === "number" ? String(Number(value.toPrecision(10))) : String(value);
}

/* How a measure moved: the relative lift, or points where a relative one means nothing. */
function move(measure, entry) {
  const byPoints = measure.is_near_zero || !entry.lift || entry.lift.value === null;
  const what = byPoints ? entry.difference : entry.lift;
  const scale = byPoints && measure.unit !== "percent" ? 1 : 100;
  const unit = byPoints ? (measure.unit === "percent" ? " points" : "") : " %";
  if (!what || what.value === null) return { text: NONE, interval: "", tone: "", what: null, scale: 1 };
  const half = what.high === null ? null : (scale * (what.high - what.low)) / 2;
  const places = half ? Math.min(decimals(half, 2), 4) : 1;
  const interval = what.low === null ? "" : `${signed(scale * what.low, places)} to ${signed(scale * what.high, places)}${unit}`;
  let tone = "";
  if (what.low !== null && what.low > 0) tone = "up";
  if (what.high !== null && what.high < 0) tone = "down";
  if (measure.better === "lower" && tone) tone = tone === "up" ? "down" : "up";
  if (measure.better !== "higher" && measure.better !== "lower") tone = "";
  return { text: signed(scale * what.value, places) + unit, interval, tone, what, scale };
}

/* The interval of a move against zero, for a tile. */
function intervalBar(moved, label) {
  const node = svg("svg", { viewBox: "0 0 200 12", preserveAspectRatio: "none", role: "img", "aria-label": label });
  const what = moved.what;
  if (!what || what.low === null) return node;
  const reach = Math.max(Math.abs(what.low), Math.abs(what.high)) * 1.08 || 1;
  const x = (value) => 100 + (96 * value) / reach;
  const tone = what.low > 0 || what.high < 0 ? moved.tone || "flat" : "flat";
  node.append(
    svg("line", { x1: 100, x2: 100, y1: 0, y2: 12, class: "middle" }),
    svg("line", { x1: x(what.low), x2: x(what.high), y1: 6, y2: 6, class: tone, "stroke-width": 3 }),
    svg("rect", { x: x(what.value) - 2, y: 1, width: 4, height: 10, class: tone + " fill" })
  );
  return node;
}

function ticks(low, high, n) {
  if (!(high > low)) return [low];
  const raw = (high - low) / n, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 2.5, 5, 10].map((s) => s * power).find((s) => s >= raw);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return found;
}

/* Points {x, value, low, high, is_all, label} over a parameter; `now` and `current` are values of the parameter. */
function curveChart(points, options) {
  const width = options.width, height = 300, left = 58, right = 16, top = 16, bottom = 44;
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label });
  const known = points.filter((p) => p.value !== null);
  if (!known.length) return node;
  const ends = known.flatMap((p) => [p.value, p.low === null ? p.value : p.low, p.high === null ? p.value : p.high]).concat(0);
  let low = Math.min(...ends), high = Math.max(...ends);
  const pad = (high - low) * 0.06 || 1;
  low -= pad; high += pad;
  const xs = points.map((p) => p.x), first = Math.min(...xs), last = Math.max(...xs);
  const X = (x) => left + (last > first ? (x - first) / (last - first) : 0.5) * (width - left - right);
  const Y = (y) => top + ((high - y) / (high - low)) * (height - top - bottom);
  for (const tick of ticks(low, high, 5)) {
    node.append(
      svg("line", { x1: left, x2: width - right, y1: Y(tick), y2: Y(tick), class: tick === 0 ? "zero" : "axis" }),
      svg("text", { x: left - 8, y: Y(tick) + 4, "text-anchor": "end" }, signed(tick, decimals(high - low, 2)))
    );
  }
  const marks = options.isChoice ? points.map((p) => [p.x, p.label]) : ticks(first, last, width < 480 ? 4 : 8).map((v) => [v, plain(v)]);
  const room = (width - left - right) / Math.max(marks.length, 1) / 7;
  for (const [x, label] of marks) {
    const text = String(label), short = options.isChoice && text.length > room ? text.slice(0, Math.max(Math.floor(room) - 1, 2)) + "…" : text;
    node.append(svg("text", { x: X(x), y: height - bottom + 18, "text-anchor": "middle" }, short));
  }
  node.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, options.parameter));
  const sorted = known.slice().sort((a, b) => a.x - b.x);
  if (!options.isChoice && sorted.length > 1) {
    const banded = sorted.filter((p) => p.low !== null);
    const upper = banded.map((p) => `${X(p.x)},${Y(p.high)}`), lower = banded.map((p) => `${X(p.x)},${Y(p.low)}`).reverse();
    node.append(svg("polygon", { points: [...upper, ...lower].join(" "), class: "band" }));
    node.append(svg("polyline", { points: sorted.map((p) => `${X(p.x)},${Y(p.value)}`).join(" "), class: "line" }));
  }
  if (!options.isChoice) {
    for (const [value, kind] of [[options.current, "axis"], [options.at, "here"]]) {
      if (value >= first && value <= last) node.append(svg("line", { x1: X(value), x2: X(value), y1: top, y2: height - bottom, class: kind }));
    }
  }
  for (const p of sorted) {
    if (options.isChoice && p.low !== null) node.append(svg("line", { x1: X(p.x), x2: X(p.x), y1: Y(p.low), y2: Y(p.high), class: "whisker" }));
    const dot = svg("circle", { cx: X(p.x), cy: Y(p.value), r: p.label === options.now ? 6 : 4, class: "dot" + (p.label === options.now ? " now" : p.is_all ? "" : " quick") });
    dot.append(svg("title", {}, `${options.parameter} = ${p.label}: ${p.text}`));
    node.append(dot);
  }
  return node;
}

/* Lines {class, values} over hours or minutes: `start` and `step` in units of `unit`. */
function dayChart(lines, options) {
  const width = options.width, height = 240, left = 58, right = 12, top = 14, bottom = 40;
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label });
  const values = lines.flatMap((line) => line.values).filter((v) => v !== null);
  if (!values.length) return node;
  const n = Math.max(...lines.map((line) => line.values.length)), high = Math.max(...values) * 1.06 || 1;
  const X = (i) => left + (n > 1 ? i / (n - 1) : 0.5) * (width - left - right);
  const Y = (v) => top + (1 - v / high) * (height - top - bottom);
  for (const tick of ticks(0, high, 4)) {
    node.append(svg("line", { x1: left, x2: width - right, y1: Y(tick), y2: Y(tick), class: "axis" }));
    node.append(svg("text", { x: left - 8, y: Y(tick) + 4, "text-anchor": "end" }, number(tick, decimals(high, 2))));
  }
  const step = Math.max(1, Math.ceil(n / (width < 480 ? 5 : 10)));
  for (let i = 0; i < n; i += step) node.append(svg("text", { x: X(i), y: height - bottom + 18, "text-anchor": "middle" }, plain((options.start || 0) + i * (options.step || 1))));
  node.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, options.unit || "hour"));
  for (const line of lines) {
    const points = line.values.map((v, i) => (v === null ? null : `${X(i)},${Y(v)}`)).filter(Boolean);
    if (points.length > 1) node.append(svg("polyline", { points: points.join(" "), class: "line " + (line.class || "") }));
    else for (const point of points) node.append(svg("circle", { cx: point.split(",")[0], cy: point.split(",")[1], r: 4, class: "dot" }));
  }
  return node;
}

/* Where the best ads went, before and after: two stacked bars. */
function fateBars(sides, fates, width) {
  const height = 40 * sides.length + 8, left = Math.min(Math.max(64, 16 + 7 * Math.max(...sides.map((side) => side.name.length))), width / 3), right = 8, across = width - left - right;
  const label = sides.map((side) => `${side.name}: ` + fates.map((fate) => `${number(100 * side.best[fate.name], 1)} % ${fate.label}`).join(", ")).join("; ");
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  sides.forEach((side, i) => {
    let x = left;
    node.append(svg("text", { x: 0, y: 40 * i + 27 }, side.name));
    for (const fate of fates) {
      const share = side.best[fate.name];
      node.append(svg("rect", { x, y: 40 * i + 8, width: Math.max(share * across, 0), height: 28, class: "bar-" + (fate.kind || "variant") }));
      x += share * across;
    }
  });
  return node;
}
