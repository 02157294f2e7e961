// What the page does: layout, pointing, keys.

let hovered = null, chosen = null, isPlanned = false;

// Draws at the next frame, whatever changed until then.
function redraw() {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => { isPlanned = false; drawAll(); });
}

function drawAll() {
  drawOverview();
  drawRows();
  drawSpots();
}

const drawSpots = () => drawOverlay([chosen, hovered].filter((spot) => spot !== null));

// Lays the page out anew; `isFirst` chooses how high rows are.
function layOut(isFirst) {
  view.ratio = window.devicePixelRatio || 1;
  view.width = scroller.clientWidth;
  view.height = scroller.clientHeight;
  const widest = Math.max(String(cpus.length - 1).length, 2);
  view.gutter = Math.min(24 + widest * 9 + 12, view.width / 4);
  if (isFirst) view.row = Math.max(3, Math.min(44, Math.floor((view.height - view.axis) / cpus.length)));
  // The stage is as high as what is seen, and stays there while the rows scroll.
  element("stage").style.height = view.height + "px";
  element("rows").style.height = Math.max(view.height, view.axis + cpus.length * view.row) + "px";
  redraw();
}

const SHORTEST = 50;
function show(from, to) {
  const whole = trace.end - trace.begin;
  const span = Math.max(Math.min(to - from, whole), Math.min(SHORTEST, whole));
  const middle = (from + to) / 2;
  view.from = Math.max(trace.begin, Math.min(middle - span / 2, trace.end - span));
  view.to = view.from + span;
  hovered = null;
  element("tip").hidden = true;
  redraw();
}
const move = (part) => show(view.from + (view.to - view.from) * part, view.to + (view.to - view.from) * part);
function zoom(factor, around = (view.from + view.to) / 2) {
  const span = Math.min((view.to - view.from) * factor, trace.end - trace.begin), part = (around - view.from) / (view.to - view.from);
  if (span < Math.min(SHORTEST, trace.end - trace.begin)) return;
  show(around - span * part, around - span * part + span);
}
const showAll = () => show(trace.begin, trace.end);

function setRow(height) {
  const middle = rowAt(view.height / 2);
  view.row = Math.max(1, Math.min(60, height));
  layOut(false);
  scroller.scrollTop = middle * view.row - view.height / 2 + view.axis;
}

// The slice at a place, or one that is at most a few pixels away: narrow ones are hard to hit.
function spotAt(x, y) {
  const row = rowAt(y);
  if (x < view.gutter || y < view.axis || row < 0 || row >= cpus.length) return null;
  const cpu = cpus[row], time = timeAt(x), near = 3 / scaleOf();
  const index = firstAbove(cpu.end, time);
  const distance = (each) => each < 0 || each >= cpu.count ? Infinity : Math.max(cpu.begin[each] - time, time - cpu.end[each], 0);
  const best = distance(index) <= distance(index - 1) ? index : index - 1;
  return distance(best) <= near ? { row, index: best } : null;
}

function cause(cpu, index) {
  if (!(cpu.kind[index] & FLOW)) return cpu.kind[index] & SINCE ? "It had given way or been preempted, and was queued again." : "";
  const isSpawn = cpu.cause[index] % 2 === 1, waker = Math.floor(cpu.cause[index] / 2), from = cpu.from[index];
  const who = waker > 0 ? `task ${waker - 1} on CPU ${from}` : from === OUTSIDE ? "outside" : `a waker or timer on CPU ${from}`;
  return `${isSpawn ? "Spawned" : "Woken"} by ${from === OUTSIDE && waker === 0 ? "the outside" : who}.`;
}

// What is told of a slice: a heading, and sentences.
function tell({ row, index }) {
  const cpu = cpus[row], kind = cpu.kind[index], length = cpu.end[index] - cpu.begin[index];
  const where = `${cpu.name}, ${exactTime(cpu.begin[index])} to ${exactTime(cpu.end[index])}: ${exactTime(length)}`;
  const lines = [where + (kind & BEFORE ? ", begun before this trace" : "") + (kind & OPEN ? ", and goes on." : ".")];
  let title;
  switch (kind & 3) {
    case TASK:
      title = `${header.groups[cpu.group[index]]}, task ${cpu.task[index]}`;
      if (cpu.work[index] >= 0) lines.push(`Work ${exactTime(cpu.work[index])}, the rest scheduler, ticks and others.`);
      if (kind & SINCE) lines.push(`Waited ${exactTime(cpu.begin[index] - cpu.since[index])} for a CPU.`);
      lines.push(cause(cpu, index));
      if (kind & MOVED) lines.push(`Came here from CPU ${cpu.moved[index]}.`);
      break;
    case USER: title = "wakers and destructors"; if (cpu.work[index] >= 0) lines.push(`Work ${exactTime(cpu.work[index])}.`); break;
    case IDLE:
      title = "idle";
      if (!(kind & OPEN)) lines.push(cpu.from[index] === NOBODY ? "Ended by a timer." : cpu.from[index] === OUTSIDE ? "Ended by a kick from outside." : `Ended by a kick from CPU ${cpu.from[index]}.`);
      break;
    case WAIT: title = "lock wait"; lines.push(`Waits for lock ${cpu.task[index]}.`); break;
  }
  return { title, lines: lines.filter((line) => line !== "") };
}

function queueAt(row, time) {
  const { queue } = cpus[row], index = firstAbove(queue.at, time) - 1;
  return index >= 0 ? queue.length[index] : 0;
}

function point(event) {
  const box = chart.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const tip = element("tip"), row = rowAt(y);
  hovered = spotAt(x, y);
  const isOnRow = x >= view.gutter && y >= view.axis && row >= 0 && row < cpus.length;
  tip.hidden = !isOnRow;
  if (isOnRow) {
    const told = hovered ? tell(hovered) : { title: cpus[row].count > 0 ? "scheduler" : "nothing recorded", lines: [`${cpus[row].name}, ${exactTime(Math.round(timeAt(x)))}.`] };
    const title = document.createElement("strong");
    title.textContent = told.title;
    const waiting = queueAt(row, timeAt(x));
    tip.replaceChildren(title, [...told.lines, `${waiting} ${waiting === 1 ? "task waits" : "tasks wait"} in its queue.`].join("\n"));
    const left = event.clientX + 16, top = event.clientY + 16;
    tip.style.left = Math.max(4, left + tip.offsetWidth > innerWidth ? event.clientX - tip.offsetWidth - 12 : left) + "px";
    tip.style.top = Math.max(4, top + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : top) + "px";
  }
  drawSpots();
}

function choose(spot) {
  chosen = spot;
  const details = element("details");
  if (spot === null) { details.textContent = "Point at a slice, or click it to keep it. ? lists all keys."; return drawSpots(); }
  const { title, lines } = tell(spot), strong = document.createElement("strong");
  strong.textContent = title;
  details.replaceChildren(strong, " · " + lines.join(" "));
  drawSpots();
}

// Chooses the next slice of the CPU, and brings it into view.
function stepTo(direction) {
  const first = () => ({ row: Math.max(0, Math.min(cpus.length - 1, rowAt(view.axis + 1))), index: 0 });
  const from = chosen ?? { ...first(), index: firstAbove(cpus[first().row].end, view.from) - 1 };
  const index = Math.max(0, Math.min(cpus[from.row].count - 1, from.index + direction));
  if (cpus[from.row].count === 0) return;
  const spot = { row: from.row, index }, begin = cpus[spot.row].begin[index], end = cpus[spot.row].end[index];
  if (begin < view.from || end > view.to) {
    const half = Math.max(view.to - view.from, (end - begin) * 1.2) / 2;
    show((begin + end) / 2 - half, (begin + end) / 2 + half);
  }
  const y = yOf(spot.row);
  if (y < view.axis || y + view.row > view.height) scroller.scrollTop += y - view.height / 2;
  choose(spot);
}

function zoomTo(spot) {
  if (!spot) return;
  const cpu = cpus[spot.row], length = Math.max(cpu.end[spot.index] - cpu.begin[spot.index], 20);
  const from = cpu.kind[spot.index] & FLOW ? Math.max(cpu.since[spot.index], cpu.begin[spot.index] - 4 * length) : cpu.begin[spot.index];
  show(from - length * 0.6, cpu.end[spot.index] + length * 0.6);
}

function showOnly(group) {
  view.only = view.only === group ? -1 : group;
  element("legend").querySelectorAll("button").forEach((button, index) => button.setAttribute("aria-pressed", String(view.only === index)));
  takeColors();
  redraw();
}

function swatch(color, text) {
  const mark = document.createElement("i"), name = document.createElement("b");
  mark.style.background = color;
  name.textContent = text;
  return [mark, name];
}

function fillLegend() {
  const legend = element("legend"), sum = (trace.end - trace.begin) * cpus.length, time = totals?.time ?? [];
  legend.replaceChildren(...header.groups.map((name, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", String(view.only === index));
    button.title = "Show this group alone";
    button.append(...swatch(cssOf(groupColor(index)), `${name} ${((100 * (time[index] ?? 0)) / sum).toFixed(1)} %`));
    button.addEventListener("click", () => showOnly(index));
    return button;
  }), ...[["idle", "idle"], ["lock wait", "wait"], ["wakers, destructors", "user"], ["scheduler", "scheduler"]].map(([text, color]) => {
    const item = document.createElement("span");
    item.append(...swatch(`var(--${color})`, text));
    return item;
  }));
}

function setTheme(isDark) {
  document.documentElement.classList.toggle("dark", isDark);
  takeColors();
  redraw();
}
const toggleTheme = () => setTheme(!document.documentElement.classList.contains("dark"));

function say() {
  const slices = cpus.reduce((sum, cpu) => sum + cpu.count, 0), number = (value) => value.toLocaleString("en-US");
  element("facts").textContent = `${number(cpus.length)} CPUs, ${exactTime(trace.end - trace.begin)}, ${number(slices)} slices`;
  const parts = [];
  if (slices === 0) parts.push("Nothing happened in this trace.");
  if (header.left_out > 0) parts.push(`The record was cut at its limit: ${number(header.left_out)} later events of the run are not in it.`);
  if (header.dropped > 0) parts.push(`This page holds the first ${number(header.events_max)} events or a few less, until ${exactTime(trace.end)}; ${number(header.dropped)} later ones were dropped. The Perfetto trace has them.`);
  element("notice").textContent = parts.join(" ");
  element("notice").hidden = parts.length === 0;
}

function listenToChart() {
  let drag = null;
  chart.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, y: event.clientY, from: view.from, to: view.to, top: scroller.scrollTop, isMoved: false };
    chart.setPointerCapture(event.pointerId);
    scroller.focus({ preventScroll: true });
  });
  chart.addEventListener("pointermove", (event) => {
    if (!drag) return point(event);
    const x = event.clientX - drag.x, y = event.clientY - drag.y;
    if (!drag.isMoved && Math.hypot(x, y) < 4) return;
    drag.isMoved = true;
    chart.classList.add("dragging");
    scroller.scrollTop = drag.top - y;
    const by = -x / ((view.width - view.gutter) / (drag.to - drag.from));
    show(drag.from + by, drag.to + by);
  });
  chart.addEventListener("pointerup", (event) => {
    if (drag && !drag.isMoved) { point(event); choose(hovered); }
    drag = null;
    chart.classList.remove("dragging");
  });
  chart.addEventListener("pointercancel", () => { drag = null; chart.classList.remove("dragging"); });
  chart.addEventListener("pointerleave", () => { hovered = null; element("tip").hidden = true; drawSpots(); });
  chart.addEventListener("dblclick", () => zoomTo(hovered ?? chosen));
  chart.addEventListener("wheel", (event) => {
    const pixels = event.deltaMode === 0 ? 1 : 30, across = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(1.0025 ** (event.deltaY * pixels), timeAt(Math.max(view.gutter, event.clientX - chart.getBoundingClientRect().left)));
    } else if (across !== 0) {
      event.preventDefault();
      move((across * pixels) / (view.width - view.gutter));
    }
  }, { passive: false });
  scroller.addEventListener("scroll", redraw);
}

function listenToOverview() {
  const at = (event) => trace.begin + (event.clientX - view.gutter) / Math.max(1, overview.clientWidth - view.gutter - 8) * (trace.end - trace.begin);
  let from = null;
  overview.addEventListener("pointerdown", (event) => { from = at(event); overview.setPointerCapture(event.pointerId); });
  overview.addEventListener("pointermove", (event) => {
    if (from !== null && Math.abs(at(event) - from) > (trace.end - trace.begin) / 200) show(Math.min(from, at(event)), Math.max(from, at(event)));
  });
  overview.addEventListener("pointerup", (event) => {
    const half = (view.to - view.from) / 2;
    if (from !== null && Math.abs(at(event) - from) <= (trace.end - trace.begin) / 200) show(at(event) - half, at(event) + half);
    from = null;
  });
  overview.addEventListener("pointercancel", () => { from = null; });
}

const scroll = (pixels) => { scroller.scrollTop += pixels; };
const KEYS = {
  ArrowUp: () => scroll(-3 * view.row), ArrowDown: () => scroll(3 * view.row), PageUp: () => scroll(-view.height * 0.8), PageDown: () => scroll(view.height * 0.8),
  ArrowLeft: () => move(-0.2), a: () => move(-0.2), ArrowRight: () => move(0.2), d: () => move(0.2),
  "+": () => zoom(0.6), "=": () => zoom(0.6), w: () => zoom(0.6), "-": () => zoom(1 / 0.6), s: () => zoom(1 / 0.6),
  "0": showAll, "[": () => setRow(view.row - Math.ceil(view.row / 4)), "]": () => setRow(view.row + Math.ceil(view.row / 4)),
  n: () => stepTo(1), p: () => stepTo(-1), t: toggleTheme, "?": () => element("keys").showModal(),
  Enter: () => zoomTo(chosen), Escape: () => { choose(null); if (view.only >= 0) showOnly(view.only); },
};

function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || element("keys").open) return;
    if (event.key === "Enter" && event.target instanceof HTMLButtonElement) return;
    const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  for (const [id, act] of [["fit", showAll], ["in", () => zoom(0.6)], ["out", () => zoom(1 / 0.6)], ["theme", toggleTheme], ["help", KEYS["?"]]]) {
    element(id).addEventListener("click", act);
  }
}

const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => setTheme(dark.matches));
setTheme(dark.matches);
say();
takeTotals(Math.max(1, overview.clientWidth));
fillLegend();
choose(null);
layOut(true);
listenToChart();
listenToOverview();
listenToKeys();
new ResizeObserver(() => layOut(false)).observe(scroller);
