// Draws one series as inline SVG. Points are [x, y]; a null y is a value that was not finite, and leaves a gap.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 360, HEIGHT = 170, LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 20;

function shape(name, attributes, parent) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
}

/** A number short enough for a label: integers whole, others with 6 digits, very large and small ones with an exponent. */
export function short(value) {
  if (value === null || value === undefined) return "NaN";
  if (typeof value !== "number" || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (Number.isSafeInteger(value)) return String(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(3).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(6)));
}

/** The round distance that cuts low..high into at most about `count` parts. */
function tickStep(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw * 0.999) ?? high - low;
}

/** The multiples of `step` between low and high; the ends themselves where doubles cannot tell multiples apart. */
function ticks(low, high, step) {
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9 && found.length < 12; n++) found.push(n * step);
  return found.length < 2 ? [low, high] : found;
}

function tickLabel(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size !== 0 && size < 1e-3)) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= 10 * unit || (size >= unit && unit > 1e3)) return `${Number((value / unit).toPrecision(5))}${name}`;
  }
  return String(Number(value.toPrecision(6)));
}

/** Limits that are never equal, with a little air around a flat line. */
function range(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low === high) { const air = Math.abs(low) * 0.1 || 1; return [low - air, high + air]; }
  return [low, high];
}

/** The path of the curve, and the lone points between gaps that a path would not show. */
function trace(points, toX, toY) {
  let path = "";
  const lone = [];
  points.forEach(([x, y], index) => {
    if (y === null) return;
    const before = index > 0 && points[index - 1][1] !== null;
    const after = index + 1 < points.length && points[index + 1][1] !== null;
    path += `${before ? "L" : "M"}${toX(x).toFixed(1)} ${toY(y).toFixed(1)}`;
    if (!before && !after) lone.push([x, y]);
  });
  return [path, lone];
}

/** A card with the series' name, its last value, and its curve. `xName` says what the horizontal axis counts. */
export function chart(series, xName) {
  const card = document.createElement("section");
  card.className = "card chart";
  const header = document.createElement("header");
  const name = document.createElement("span"), value = document.createElement("span");
  name.textContent = name.title = series.name;
  const resting = series.not_finite ? `${short(series.last)} · ${series.not_finite} not finite` : short(series.last);
  value.textContent = resting;
  header.append(name, value);
  card.append(header);

  const drawn = series.points.filter((point) => point[1] !== null);
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  svg.setAttribute("aria-label", `${series.name}: ${series.count} values, last ${short(series.last)}`);
  card.append(svg);
  if (drawn.length === 0) {
    shape("text", { x: WIDTH / 2, y: HEIGHT / 2, class: "tick", "text-anchor": "middle" }, svg).textContent = "no finite value";
    return card;
  }
  const [x0, x1] = range(series.points.map((point) => point[0]));
  let [y0, y1] = range(drawn.map((point) => point[1]));
  const least = Math.max(Math.abs(y0), Math.abs(y1)) * 1e-4;  // less, and the ticks' six digits would all be the same
  if (y1 - y0 < least) [y0, y1] = [(y0 + y1 - least) / 2, (y0 + y1 + least) / 2];
  const air = (y1 - y0) * 0.04;
  [y0, y1] = [y0 - air, y1 + air];
  const toX = (x) => LEFT + ((x - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT);
  const toY = (y) => HEIGHT - BOTTOM - ((y - y0) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM);
  for (const tick of ticks(y0, y1, tickStep(y0, y1, 5))) {
    shape("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: toY(tick), y2: toY(tick), class: "gridline" }, svg);
    shape("text", { x: LEFT - 6, y: toY(tick) + 3, class: "tick", "text-anchor": "end" }, svg).textContent = tickLabel(tick);
  }
  for (const tick of ticks(x0, x1, tickStep(x0, x1, 5))) {
    const anchor = toX(tick) > WIDTH - 24 ? "end" : "middle";
    shape("text", { x: toX(tick), y: HEIGHT - 6, class: "tick", "text-anchor": anchor }, svg).textContent = tickLabel(tick);
  }
  const [path, lone] = trace(series.points, toX, toY);
  // A long series: the stretch from least to greatest as a pale band, the mean as the curve.
  shape("path", { d: path, class: series.means.length ? "curve band" : "curve" }, svg);
  if (series.means.length) shape("path", { d: trace(series.means, toX, toY)[0], class: "curve" }, svg);
  for (const [x, y] of lone) shape("circle", { cx: toX(x), cy: toY(y), r: 2.5, class: "dot" }, svg);

  const cursor = shape("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor", visibility: "hidden" }, svg);
  const mark = shape("circle", { r: 3, class: "dot", visibility: "hidden" }, svg);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * WIDTH;
    let nearest = drawn[0];
    for (const point of drawn) if (Math.abs(toX(point[0]) - at) < Math.abs(toX(nearest[0]) - at)) nearest = point;
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, toX(nearest[0]));
    mark.setAttribute("cx", toX(nearest[0]));
    mark.setAttribute("cy", toY(nearest[1]));
    for (const element of [cursor, mark]) element.setAttribute("visibility", "visible");
    value.textContent = `${xName} ${short(nearest[0])}: ${short(nearest[1])}`;
  });
  svg.addEventListener("pointerleave", () => {
    for (const element of [cursor, mark]) element.setAttribute("visibility", "hidden");
    value.textContent = resting;
  });
  return card;
}
