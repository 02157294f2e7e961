// Drawing: colors, the overview of all CPUs, the rows. Rows are drawn pixel by pixel: each has the mean of the colors of what
// happened in its time, so a million slices look like what they are.

const element = (id) => document.getElementById(id);
const chart = element("chart"), overlay = element("overlay"), overview = element("overview");
const scroller = element("scroller");

// What is shown.
const view = { from: trace.begin, to: trace.end, row: 22, only: -1, ratio: 1, width: 0, height: 0, gutter: 64, axis: 22 };

const PALETTE = ["#3b7dd8", "#e08a1e", "#2f9e5b", "#9a60c9", "#18a2b5", "#c2578f", "#8c6d3f", "#6b8e23", "#5563c1", "#d96c5f"];
const colors = {};

function rgb(text) {
  const number = parseInt(text.trim().slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

// Beyond the palette: hues that the golden angle spreads, in three lightnesses.
function groupColor(index) {
  if (index < PALETTE.length) return rgb(PALETTE[index]);
  const hue = (index * 137.508) % 360, light = [0.46, 0.58, 0.38][index % 3], chroma = 0.52 * (1 - Math.abs(2 * light - 1));
  const part = (offset) => {
    const k = (offset + hue / 30) % 12;
    return Math.round(255 * (light - (chroma / 2) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [part(0), part(8), part(4)];
}

function takeColors() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue("--" + name).trim();
  for (const name of ["back", "panel", "text", "soft", "line", "idle", "scheduler", "wait", "user", "queue", "mark", "arrow"]) {
    colors[name] = named(name);
  }
  const back = rgb(colors.back);
  colors.kinds = [null, rgb(colors.user), rgb(colors.idle), rgb(colors.wait)];
  colors.gap = rgb(colors.scheduler);
  colors.nothing = rgb(colors.panel);
  plate = null;
  colors.groups = header.groups.map((_, index) => {
    const color = groupColor(index);
    const isShown = view.only < 0 || view.only === index;
    return isShown ? color : color.map((part, channel) => Math.round(part * 0.16 + back[channel] * 0.84));
  });
}

const cssOf = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
const colorOf = (cpu, index) => (cpu.kind[index] & 3) === TASK ? colors.groups[cpu.group[index]] : colors.kinds[cpu.kind[index] & 3];

// Times are shown in the unit that fits `step`.
function timeText(ns, step = Math.abs(ns)) {
  const [unit, name] = step >= 1e9 ? [1e9, "s"] : step >= 1e6 ? [1e6, "ms"] : step >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / unit) - 1e-9)));
  return (ns / unit).toFixed(digits) + " " + name;
}
const exactTime = (ns) => ns >= 1e9 ? (ns / 1e9).toFixed(9) + " s" : ns >= 1e6 ? (ns / 1e6).toFixed(6) + " ms" : ns >= 1e3 ? (ns / 1e3).toFixed(3) + " µs" : ns + " ns";

function step(span, count) {
  const raw = Math.max(span / count, 1), power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
}

function size(canvas, width, height) {
  canvas.width = Math.round(width * view.ratio);
  canvas.height = Math.round(height * view.ratio);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  context.font = '11px system-ui, "DejaVu Sans", sans-serif';
  return context;
}

// Adds `weight` per time to the columns that a time covers; `scale` columns per ns.
function spread(columns, from, to, weight, scale, begin) {
  const left = Math.max(0, (from - begin) * scale), right = Math.min(columns.length, (to - begin) * scale);
  if (right <= left) return;
  const first = Math.floor(left), last = Math.min(Math.floor(right), columns.length - 1);
  if (first === last) { columns[first] += (right - left) * weight; return; }
  columns[first] += (first + 1 - left) * weight;
  for (let column = first + 1; column < last; column++) columns[column] += weight;
  columns[last] += (right - last) * weight;
}

// The share of all CPUs that each group has, over the whole trace, and how many tasks wait.
let totals = null;
function takeTotals(width) {
  const scale = width / (trace.end - trace.begin);
  const make = () => new Float64Array(width);
  totals = { width, groups: header.groups.map(make), kinds: [null, make(), make(), make()], waiting: make(), time: header.groups.map(() => 0) };
  for (const cpu of cpus) {
    for (let index = 0; index < cpu.count; index++) {
      const kind = cpu.kind[index] & 3, group = cpu.group[index];
      spread(kind === TASK ? totals.groups[group] : totals.kinds[kind], cpu.begin[index], cpu.end[index], 1, scale, trace.begin);
      if (kind === TASK) totals.time[group] += cpu.end[index] - cpu.begin[index];
    }
    const { count, at, length } = cpu.queue;
    for (let index = 0; index < count; index++) {
      const to = index + 1 < count ? at[index + 1] : trace.end;
      if (length[index] > 0) spread(totals.waiting, at[index], to, length[index], scale, trace.begin);
    }
  }
}

// The overview without what is shown of it: drawn anew only for another size or other colors.
let plate = null;
function drawPlate(width, height, left, inner) {
  plate = document.createElement("canvas");
  const context = size(plate, width, height);
  if (!totals || totals.width !== inner) takeTotals(inner);
  const top = 6, area = height - 12;
  context.fillStyle = colors.back;
  context.fillRect(0, 0, width, height);
  context.fillStyle = colors.scheduler;
  context.fillRect(left, top, inner, area);
  const layers = totals.groups.map((column, index) => [column, cssOf(colors.groups[index])]);
  layers.push([totals.kinds[USER], colors.user], [totals.kinds[WAIT], colors.wait]);
  const base = new Float64Array(inner);
  const fill = (column, color, isFromTop) => {
    context.fillStyle = color;
    for (let x = 0; x < inner; x++) {
      const part = (column[x] / cpus.length) * area;
      if (part < 0.02) continue;
      context.fillRect(left + x, isFromTop ? top : top + area - base[x] - part, 1, part);
      if (!isFromTop) base[x] += part;
    }
  };
  for (const [column, color] of layers) fill(column, color, false);
  fill(totals.kinds[IDLE], colors.idle, true);
  drawWaiting(context, left, top, area, inner);
  context.fillStyle = colors.soft;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText("all CPUs", left - 6, top + area / 2 - 7);
  context.fillText("waiting", left - 6, top + area / 2 + 7);
}

function drawOverview() {
  const width = overview.clientWidth, height = 76, left = view.gutter, inner = Math.max(1, width - left - 8);
  const top = 6, area = height - 12;
  const context = size(overview, width, height);
  if (plate === null || plate.width !== overview.width || totals.width !== inner) drawPlate(width, height, left, inner);
  context.drawImage(plate, 0, 0, width, height);
  const scale = inner / (trace.end - trace.begin);
  const x0 = left + (view.from - trace.begin) * scale, x1 = left + (view.to - trace.begin) * scale;
  context.fillStyle = colors.back;
  context.globalAlpha = 0.55;
  context.fillRect(left, top, Math.max(0, x0 - left), area);
  context.fillRect(x1, top, Math.max(0, left + inner - x1), area);
  context.globalAlpha = 1;
  context.strokeStyle = colors.mark;
  context.lineWidth = 1.5;
  context.strokeRect(x0, top - 2, Math.max(2, x1 - x0), area + 4);
}

function drawWaiting(context, left, top, area, inner) {
  const most = totals.waiting.reduce((a, b) => Math.max(a, b), 0);
  if (most <= 0) return;
  const path = new Path2D();
  for (let x = 0; x < inner; x++) path.lineTo(left + x + 0.5, top + area - (totals.waiting[x] / most) * (area - 3));
  context.lineJoin = "round";
  context.strokeStyle = colors.back;
  context.lineWidth = 3;
  context.stroke(path);
  context.strokeStyle = colors.arrow;
  context.lineWidth = 1.2;
  context.stroke(path);
  context.fillStyle = colors.text;
  context.textAlign = "left";
  context.textBaseline = "top";
  const text = "line: 0 to " + Math.round(most) + " waiting";
  context.globalAlpha = 0.8;
  context.fillStyle = colors.back;
  context.fillRect(left + 3, top + 2, context.measureText(text).width + 8, 15);
  context.globalAlpha = 1;
  context.fillStyle = colors.text;
  context.fillText(text, left + 7, top + 4);
}

const scaleOf = () => (view.width - view.gutter) / (view.to - view.from);
const xOf = (time) => view.gutter + (time - view.from) * scaleOf();
const timeAt = (x) => view.from + (x - view.gutter) / scaleOf();
const yOf = (row) => view.axis + row * view.row - scroller.scrollTop;
const rowAt = (y) => Math.floor((y - view.axis + scroller.scrollTop) / view.row);
const showsQueues = () => view.row >= 16;
const barHeight = () => Math.max(1, view.row - (view.row >= 5 ? 1 : 0) - (showsQueues() ? Math.round(view.row * 0.28) : 0));

// One row of pixels: the mean color of each column's time.
function mix(cpu, width, sums, line) {
  const { red, green, blue, told } = sums;
  red.fill(0); green.fill(0); blue.fill(0); told.fill(0);
  const scale = width / (view.to - view.from), begin = view.from;
  for (let index = firstAbove(cpu.end, begin); index < cpu.count && cpu.begin[index] < view.to; index++) {
    const color = colorOf(cpu, index), from = cpu.begin[index], to = cpu.end[index];
    const left = Math.max(0, (from - begin) * scale), right = Math.min(width, (to - begin) * scale);
    let first = Math.floor(left);
    const last = Math.min(Math.floor(right), width - 1);
    for (let column = first; column <= last; column++) {
      const part = Math.min(right, column + 1) - Math.max(left, column);
      red[column] += color[0] * part; green[column] += color[1] * part; blue[column] += color[2] * part; told[column] += part;
    }
  }
  const [r, g, b] = cpu.count > 0 ? colors.gap : colors.nothing;
  for (let column = 0; column < width; column++) {
    const rest = Math.max(0, 1 - told[column]);
    line[column] = 0xff000000 | ((blue[column] + b * rest) << 16) | ((green[column] + g * rest) << 8) | (red[column] + r * rest);
  }
}

function drawRows() {
  const context = size(chart, view.width, view.height);
  const { ratio } = view;
  context.fillStyle = colors.back;
  context.fillRect(0, 0, view.width, view.height);
  const width = Math.max(1, Math.round((view.width - view.gutter) * ratio));
  const first = Math.max(0, rowAt(view.axis)), last = Math.min(cpus.length - 1, rowAt(view.height));
  const make = () => new Float32Array(width);
  const sums = { red: make(), green: make(), blue: make(), told: make() };
  for (let row = first; row <= last; row++) {
    const y = Math.round(yOf(row) * ratio), height = Math.max(1, Math.round(barHeight() * ratio));
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    mix(cpus[row], width, sums, pixels.subarray(0, width));
    for (let each = 1; each < height; each++) pixels.copyWithin(each * width, 0, width);
    context.putImageData(image, Math.round(view.gutter * ratio), y);
    if (showsQueues()) drawQueue(context, cpus[row].queue, yOf(row) + barHeight());
    if (view.row >= 6) drawNames(context, cpus[row], yOf(row));
  }
  drawGutter(context, first, last);
  drawAxis(context);
}

function drawQueue(context, queue, top) {
  const height = view.row - barHeight() - 1;
  context.fillStyle = colors.queue;
  let index = Math.max(0, firstAbove(queue.at, view.from) - 1);
  const drawnTo = { x: -1, most: 0 };
  for (; index < queue.count && queue.at[index] < view.to; index++) {
    const length = queue.length[index];
    if (length === 0) continue;
    const to = index + 1 < queue.count ? queue.at[index + 1] : trace.end;
    const x0 = Math.max(view.gutter, xOf(queue.at[index])), x1 = Math.min(view.width, xOf(to));
    // Many changes in one pixel: the longest queue is drawn once.
    const pixel = Math.floor(x0 * view.ratio);
    if (x1 - x0 < 1 / view.ratio && pixel === drawnTo.x && length <= drawnTo.most) continue;
    drawnTo.most = pixel === drawnTo.x ? Math.max(drawnTo.most, length) : length;
    drawnTo.x = pixel;
    const part = Math.max(1, (length / queueMax) * height);
    context.fillRect(x0, top + height - part, Math.max(x1 - x0, 1 / view.ratio), part);
  }
}

// Where a slice begins, and its name: for those that are wide enough.
function drawNames(context, cpu, y) {
  const narrowest = 7 / scaleOf();
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (let index = firstAbove(cpu.end, view.from); index < cpu.count && cpu.begin[index] < view.to; index++) {
    if (cpu.end[index] - cpu.begin[index] < narrowest) continue;
    const x0 = Math.max(view.gutter, xOf(cpu.begin[index])), x1 = Math.min(view.width, xOf(cpu.end[index]));
    const isDark = (color) => color[0] * 0.3 + color[1] * 0.59 + color[2] * 0.11 <= 140;
    const kind = cpu.kind[index] & 3, color = colorOf(cpu, index);
    if (cpu.begin[index] >= view.from && kind !== IDLE) {
      context.fillStyle = "rgb(0 0 0 / .38)";
      context.fillRect(x0, y, 1, barHeight());
    }
    if (view.row < 12 || x1 - x0 < 26) continue;
    const whole = kind === TASK ? `${header.groups[cpu.group[index]]} #${cpu.task[index]}` : ["", "user code", "idle", "lock wait"][kind];
    const short = kind === TASK ? "#" + cpu.task[index] : whole;
    const fits = (text) => context.measureText(text).width <= x1 - x0 - 8;
    const text = fits(whole) ? whole : fits(short) ? short : "";
    const isFaded = kind === IDLE || (view.only >= 0 && view.only !== cpu.group[index]);
    context.fillStyle = isFaded ? colors.soft : isDark(color) ? "#ffffff" : "#101318";
    context.fillText(text, x0 + 5, y + barHeight() / 2 + 0.5);
  }
}

function drawGutter(context, first, last) {
  context.fillStyle = colors.back;
  context.fillRect(0, view.axis, view.gutter, view.height);
  context.fillStyle = colors.soft;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const every = step(Math.max(1, Math.ceil(12 / view.row)), 1);
  for (let row = first; row <= last; row++) {
    if (row % every === 0) context.fillText("CPU " + row, view.gutter - 6, yOf(row) + Math.max(barHeight(), 1) / 2);
  }
}

function drawAxis(context) {
  context.fillStyle = colors.panel;
  context.fillRect(0, 0, view.width, view.axis);
  context.strokeStyle = colors.line;
  context.lineWidth = 1;
  const each = step(view.to - view.from, Math.max(2, (view.width - view.gutter) / 110));
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = colors.text;
  context.beginPath();
  for (let tick = Math.ceil(view.from / each) * each; tick <= view.to; tick += each) {
    const x = Math.round(xOf(tick)) + 0.5;
    context.moveTo(x, view.axis - 5);
    context.lineTo(x, view.axis);
    const text = timeText(tick, each), half = context.measureText(text).width / 2;
    if (x - half > view.gutter - 40 && x + half < view.width) context.fillText(text, x, view.axis / 2 - 1);
  }
  context.moveTo(0, view.axis - 0.5);
  context.lineTo(view.width, view.axis - 0.5);
  context.stroke();
}

// The slice pointed at, and the wake that led to it.
function drawOverlay(spots) {
  const context = size(overlay, view.width, view.height);
  context.beginPath();
  context.rect(view.gutter, view.axis, view.width - view.gutter, view.height - view.axis);
  context.clip();
  for (const spot of spots) drawSpot(context, spot);
}

function drawSpot(context, { row, index }) {
  const cpu = cpus[row], x0 = xOf(cpu.begin[index]), x1 = xOf(cpu.end[index]), y = yOf(row);
  context.strokeStyle = colors.arrow;
  context.lineWidth = 1.5;
  context.strokeRect(x0, y - 0.5, Math.max(2, x1 - x0), barHeight() + 1);
  if (!(cpu.kind[index] & FLOW) || (cpu.kind[index] & 3) !== TASK) return;
  const fromX = xOf(cpu.since[index]), from = cpu.from[index];
  const fromY = from === OUTSIDE ? view.axis : yOf(from) + barHeight() / 2, toY = y + barHeight() / 2;
  const bend = Math.max(14, Math.abs(x0 - fromX) / 3);
  const path = new Path2D();
  path.moveTo(fromX, fromY);
  path.bezierCurveTo(fromX + bend, fromY, x0 - bend, toY, x0 - 2, toY);
  context.strokeStyle = colors.back;
  context.lineWidth = 5;
  context.stroke(path);
  context.strokeStyle = colors.arrow;
  context.lineWidth = 1.8;
  context.stroke(path);
  context.fillStyle = colors.arrow;
  context.beginPath();
  context.arc(fromX, fromY, 3.5, 0, 7);
  context.moveTo(x0 + 1, toY);
  context.lineTo(x0 - 7, toY - 4.5);
  context.lineTo(x0 - 7, toY + 4.5);
  context.fill();
}
