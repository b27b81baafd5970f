// Lines over time, drawn as SVG. The figures are a table for those who cannot see the lines.
import { h, svg } from "./dom.js";
import { instant, rate, ticks } from "./format.js";

const HEIGHT = 240, LEFT = 48, RIGHT = 8, TOP = 10, BOTTOM = 24;

/** A round number that is at least this. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= value * 1.0001) ?? 10 * power;
}

/** The path of the values; where one is null, the line has a gap. */
function line(values, x, y, close) {
  const pieces = [];
  let piece = [];
  values.forEach((value, i) => {
    if (value === null) {
      if (piece.length) pieces.push(piece);
      piece = [];
    } else piece.push(i);
  });
  if (piece.length) pieces.push(piece);
  return pieces
    .map((some) => {
      const points = some.map((i) => `${x(i).toFixed(1)} ${y(values[i]).toFixed(1)}`);
      if (some.length === 1) points.push(`${(x(some[0]) + 1).toFixed(1)} ${y(values[some[0]]).toFixed(1)}`);
      const path = `M${points.join("L")}`;
      return close ? `${path}L${x(some.at(-1)).toFixed(1)} ${y(0)}L${x(some[0]).toFixed(1)} ${y(0)}Z` : path;
    })
    .join("");
}

/** A small line without axes, with a gap where a count is null; `text` says what it shows. */
export function spark(counts, text, kind = "passed") {
  const width = 120, height = 28, most = Math.max(1e-9, ...counts.map((count) => count ?? 0));
  const x = (i) => (counts.length > 1 ? (i / (counts.length - 1)) * (width - 2) + 1 : 1);
  const y = (value) => height - 2 - (value / most) * (height - 4);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "spark", role: "img", "aria-label": text },
    svg("path", { d: line(counts, x, y, true), class: `area ${kind}` }),
    svg("path", { d: line(counts, x, y, false), class: `line ${kind}` }),
  );
}

function axes(start, end, most, x, y, width) {
  const parts = [];
  for (const part of [0, 0.5, 1]) {
    const at = y(most * part);
    parts.push(svg("line", { x1: LEFT, x2: width - RIGHT, y1: at, y2: at, class: "grid" }));
    parts.push(svg("text", { x: LEFT - 6, y: at + 4, class: "tick end" }, rate(most * part)));
  }
  for (const tick of ticks(start, end, Math.max(2, Math.floor(width / 110)))) {
    const at = x(tick.at);
    if (at < LEFT + 12 || at > width - RIGHT - 12) continue;
    parts.push(svg("text", { x: at, y: HEIGHT - 6, class: "tick middle" }, tick.text));
  }
  return parts;
}

function legend(series) {
  return h("ul", { class: "legend" }, series.map((one) => h("li", { class: one.kind }, h("span", { class: "dot" }), one.name)));
}

const highest = (values) => (values.some((value) => value !== null) ? Math.max(...values.filter((value) => value !== null)) : null);

function figures(series, start, step, unit) {
  const count = Math.max(...series.map((one) => one.values.length));
  const every = Math.max(1, Math.ceil(count / 60));
  const rows = [];
  for (let i = 0; i < count; i += every) rows.push([instant((start + i * step) * 1000), ...series.map((one) => rate(highest(one.values.slice(i, i + every))))]);
  return h(
    "details",
    null,
    h("summary", null, "Figures"),
    every > 1 && h("p", { class: "quiet" }, "The highest of each time."),
    h("div", { class: "scroll figures", tabindex: "0", role: "region", "aria-label": "Figures of the chart" },
      h("table", null,
        h("caption", { class: "unseen" }, `Figures of the chart, ${unit}`),
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "time"), series.map((one) => h("th", { scope: "col" }, one.name)))),
        h("tbody", null, rows.map((row) => h("tr", null, row.map((cell) => h("td", null, cell))))))),
  );
}

/** The drawing for a width in pixels, so that its texts have the size of others. */
function draw(place, width, { title, series, start, step, unit }, reading) {
  const count = Math.max(...series.map((one) => one.values.length), 2);
  const end = start + (count - 1) * step;
  const most = ceiling(Math.max(0, ...series.flatMap((one) => one.values.filter((value) => value !== null))));
  const x = (at) => LEFT + ((at - start) / (end - start)) * (width - LEFT - RIGHT);
  const xi = (i) => x(start + i * step);
  const y = (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
  const cross = svg("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "cross", visibility: "hidden" });
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, class: "chart", role: "img", "aria-label": `${title}, ${unit}. The figures follow as a table.` },
    axes(start, end, most, x, y, width),
    series.map((one) => svg("path", { d: line(one.values, xi, y, true), class: `area ${one.kind}` })),
    series.map((one) => svg("path", { d: line(one.values, xi, y, false), class: `line ${one.kind}` })),
    cross,
  );
  drawing.addEventListener("pointermove", (event) => {
    const at = event.clientX - drawing.getBoundingClientRect().left;
    const i = Math.min(count - 1, Math.max(0, Math.round(((at - LEFT) / (width - LEFT - RIGHT)) * (count - 1))));
    cross.setAttribute("x1", xi(i));
    cross.setAttribute("x2", xi(i));
    cross.setAttribute("visibility", "visible");
    reading.textContent = `${instant((start + i * step) * 1000)} · ${series.map((one) => `${one.name} ${rate(one.values[i] ?? null)}`).join(" · ")}`;
  });
  drawing.addEventListener("pointerleave", () => {
    cross.setAttribute("visibility", "hidden");
    reading.textContent = "";
  });
  place.replaceChildren(drawing);
}

/** series: [{name, kind, values}], with a value for each step from `start` (seconds) on. Values are rates a second. */
export function chart({ unit = "requests a second", ...what }) {
  const reading = h("p", { class: "reading", "aria-hidden": "true" }), place = h("div", { class: "drawing" });
  let drawn = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width > 100 && width !== drawn) draw(place, (drawn = width), { unit, ...what }, reading);
  }).observe(place);
  return h("figure", { class: "plot" }, h("figcaption", null, h("span", null, what.title, h("small", null, ` ${unit}`)), legend(what.series)),
    place, reading, figures(what.series, what.start, what.step, unit));
}
