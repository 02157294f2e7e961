// What the page holds: the header, and for each CPU its slices and the changes of its queue, as columns.

const TASK = 0, USER = 1, IDLE = 2, WAIT = 3;
const OPEN = 4, SINCE = 8, FLOW = 16, MOVED = 32, BEFORE = 64;
const NOBODY = -2, OUTSIDE = -1;

const header = JSON.parse(document.getElementById("header").textContent);

function bytesOf(element) {
  const text = atob(element.textContent);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
  element.remove();
  return bytes;
}

function readAll(bytes) {
  let at = 0;
  // Numbers may have more than 32 bits, so no shifts.
  const next = () => {
    let value = 0, factor = 1;
    for (;;) {
      const byte = bytes[at++];
      if (byte < 128) return value + byte * factor;
      value += (byte - 128) * factor;
      factor *= 128;
    }
  };
  return header.cpus.map((name) => {
    const slices = readSlices(next(), next);
    const queue = readQueue(next(), next);
    return { name, ...slices, queue };
  });
}

function readSlices(count, next) {
  const row = {
    count,
    kind: new Uint8Array(count), begin: new Float64Array(count), end: new Float64Array(count),
    group: new Int32Array(count).fill(-1), task: new Float64Array(count), work: new Float64Array(count),
    since: new Float64Array(count).fill(NaN), from: new Int32Array(count).fill(NOBODY), cause: new Float64Array(count),
    moved: new Int32Array(count).fill(NOBODY),
  };
  let time = 0;
  for (let index = 0; index < count; index++) {
    const kind = next();
    row.kind[index] = kind;
    time += next();
    row.begin[index] = time;
    time += next();
    row.end[index] = time;
    switch (kind & 3) {
      case TASK:
        row.group[index] = next();
        row.task[index] = next();
        row.work[index] = next() - 1;
        if (kind & SINCE) row.since[index] = row.begin[index] - next();
        if (kind & FLOW) { row.from[index] = next() - 1; row.cause[index] = next(); }
        if (kind & MOVED) row.moved[index] = next();
        break;
      case USER: row.work[index] = next() - 1; break;
      case IDLE: row.from[index] = next() - 2; break;
      case WAIT: row.task[index] = next(); break;
    }
  }
  return row;
}

function readQueue(count, next) {
  const queue = { count, at: new Float64Array(count), length: new Float64Array(count) };
  let time = 0;
  for (let index = 0; index < count; index++) {
    time += next();
    queue.at[index] = time;
    queue.length[index] = next();
  }
  return queue;
}

// The first index whose value is above `limit`, in a column that grows.
function firstAbove(column, limit) {
  let low = 0, high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] > limit) high = middle; else low = middle + 1;
  }
  return low;
}

const cpus = readAll(bytesOf(document.getElementById("data")));
const trace = { begin: header.begin, end: Math.max(header.end, header.begin + 1) };
const queueMax = cpus.reduce((max, cpu) => cpu.queue.length.reduce((a, b) => Math.max(a, b), max), 1);
