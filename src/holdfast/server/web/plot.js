// Plots in SVG, drawn to the available width, each with its figures in a table behind it.

import { cut, h, put, s } from "./dom.js";
import { plural } from "./words.js";

const observer = new ResizeObserver((changes) => {
  for (const { target, contentRect } of changes) {
    if (target.drawn !== Math.round(contentRect.width) && contentRect.width > 0) {
      target.drawn = Math.round(contentRect.width);
      target.draw(target.drawn);
    }
  }
});

// `draw(width)` returns an svg. The table has the same figures for screen readers.
function figure(title, draw, head, rows) {
  const stage = h("div", { class: "plot-stage" });
  stage.draw = (width) => put(stage, draw(Math.max(width, 240)));
  observer.observe(stage);
  return h("figure", { class: "plot" }, h("figcaption", {}, title), stage,
    h("details", {}, h("summary", {}, "Figures"), h("div", { class: "scroll" }, table(head, rows))));
}

export function table(head, rows) {
  return h("table", {}, h("thead", {}, h("tr", {}, head.map((each) => h("th", { scope: "col" }, each)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((each, place) => h(place ? "td" : "th", place ? {} : { scope: "row" }, each))))));
}

// Round steps for an axis: 1, 2 or 5 times a power of ten.
export function steps(most, about = 4) {
  if (!(most > 0)) return [0, 1];
  const rough = most / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let value = 0; value < most + step * 0.999; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

function frame(width, height, title) {
  return s("svg", { width: String(width), height: String(height), viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
}

function axis(svg, values, y, left, right, tell) {
  for (const value of values) {
    svg.append(s("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      s("text", { class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, tell(value)));
  }
}

// Upright bars, in the order given. `rows`: [{key, value, note}].
export function bars(title, rows, tell, names = ["", ""]) {
  const draw = (width) => {
    const [height, left, bottom, top] = [220, 54, 26, 14];
    const svg = frame(width, height, `${title}: ${plural(rows.length, "bar")}; the figures are in the table below`);
    const scale = steps(Math.max(...rows.map((row) => row.value), 0));
    const most = scale[scale.length - 1];
    const y = (value) => height - bottom - (value / most) * (height - bottom - top);
    axis(svg, scale, y, left, width - 4, tell);
    const each = (width - left - 4) / Math.max(rows.length, 1);
    const wide = Math.min(each * 0.72, 56);
    const every = Math.ceil(46 / each);
    rows.forEach((row, place) => {
      const x = left + each * place + (each - wide) / 2;
      svg.append(s("rect", { class: "bar", x, y: y(row.value), width: wide, height: Math.max(0, height - bottom - y(row.value)), rx: 2 },
        s("title", {}, `${row.key}: ${tell(row.value)}`)));
      if (rows.length <= 12 && row.value > 0 && each > 40) svg.append(s("text", { class: "value", x: x + wide / 2, y: y(row.value) - 4, "text-anchor": "middle" }, tell(row.value)));
      if ((rows.length - 1 - place) % every === 0) svg.append(s("text", { class: "tick", x: Math.min(x + wide / 2, width - 18), y: height - 8, "text-anchor": "middle" }, cut(row.label || row.key, 12)));
    });
    return svg;
  };
  return figure(title, draw, names, rows.map((row) => [row.key, tell(row.value), ...(row.more || [])]));
}

// Lying bars, the largest first, with their names beside them.
export function ranking(title, rows, tell, names = ["", ""]) {
  const sorted = [...rows].sort((a, b) => b.value - a.value);
  const seen = sorted.slice(0, 12);
  const draw = (width) => {
    const [step, side, top] = [28, Math.min(150, width * 0.36), 4];
    const svg = frame(width, top * 2 + step * seen.length, `${title}: ${plural(seen.length, "bar")}; the figures are in the table below`);
    const most = Math.max(...seen.map((row) => row.value), 1e-9);
    const long = width - side - 70;
    seen.forEach((row, place) => {
      const y = top + place * step;
      svg.append(s("text", { class: "name", x: side - 8, y: y + 18, "text-anchor": "end" }, cut(row.key || "–", Math.floor(side / 7.2))),
        s("rect", { class: "bar", x: side, y: y + 5, width: Math.max(1, (row.value / most) * long), height: step - 11, rx: 2 }, s("title", {}, `${row.key}: ${tell(row.value)}`)),
        s("text", { class: "value", x: side + Math.max(1, (row.value / most) * long) + 6, y: y + 18 }, tell(row.value)));
    });
    return svg;
  };
  return figure(title, draw, names, sorted.map((row) => [row.key || "–", tell(row.value), ...(row.more || [])]));
}

// A line that rises in steps. `points`: [{at, value}], sorted by time.
export function rise(title, points, tell, when) {
  const draw = (width) => {
    const [height, left, bottom, top] = [180, 54, 24, 12];
    const svg = frame(width, height, `${title}: from ${tell(points[0].value)} to ${tell(points[points.length - 1].value)}`);
    const scale = steps(Math.max(...points.map((point) => point.value), 0));
    const most = scale[scale.length - 1];
    const [from, to] = [points[0].at, Math.max(points[points.length - 1].at, points[0].at + 1)];
    const x = (at) => left + ((at - from) / (to - from)) * (width - left - 12);
    const y = (value) => height - bottom - (value / most) * (height - bottom - top);
    axis(svg, scale, y, left, width - 4, tell);
    let path = `M${x(points[0].at)} ${y(points[0].value)}`;
    for (const point of points.slice(1)) path += `H${x(point.at)}V${y(point.value)}`;
    svg.append(s("path", { class: "area", d: `${path}V${y(0)}H${x(points[0].at)}z` }), s("path", { class: "line", d: path }));
    const last = points[points.length - 1];
    svg.append(s("circle", { class: "dot", cx: x(last.at), cy: y(last.value), r: 3.5 }),
      s("text", { class: "tick", x: left, y: height - 6 }, when(from)), s("text", { class: "tick", x: width - 4, y: height - 6, "text-anchor": "end" }, when(to)));
    return svg;
  };
  return figure(title, draw, ["Time", "Sum"], points.map((point) => [when(point.at), tell(point.value)]));
}
