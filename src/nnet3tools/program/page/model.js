"use strict";
// The program as the page was given it (see page_data in html_page.py), with what is looked up often.

const READ = 1, WRITE = 2, BEGIN = 4, END = 8;

function buildModel(data) {
  const matrices = data.matrices.map((m, index) => ({
    ...m, index, name: "m" + index, lives: [], uses: [], places: [],
    label: (m.deriv ? "\u2202 " : "") + (m.node || m.what), first: Infinity, last: -1, peak: 0,
  }));
  for (const [index, first, last, bytes] of data.lives) {
    const m = matrices[index];
    m.lives.push({ first, last, bytes });
    m.first = Math.min(m.first, first);
    m.last = Math.max(m.last, last);
    m.peak = Math.max(m.peak, bytes);
  }
  const commands = data.commands.map(([kind, text, flops, touched], index) => {
    const access = new Map();
    for (const [matrix, block, mark] of touched) {
      const known = access.get(matrix) || { mark: 0, blocks: [] };
      known.mark |= mark;
      if (!known.blocks.includes(block)) known.blocks.push(block);
      access.set(matrix, known);
    }
    for (const [matrix, { mark }] of access) matrices[matrix].uses.push({ command: index, mark });
    return { index, kind, text, flops, access, search: `c${index} ${kind} ${text}`.toLowerCase() };
  });
  data.places.forEach(([index, first, last, offset, bytes], number) => {
    matrices[index].places.push({ index, first, last, offset, bytes, number });
  });
  for (const m of matrices) m.search = `${m.name} ${m.what} ${m.role || ""}`.toLowerCase();
  const shown = matrices.filter((m) => m.lives.length);
  shown.sort((a, b) => a.first - b.first || a.index - b.index);
  const peak = data.memory.reduce((best, bytes, c) => (bytes > data.memory[best] ? c : best), 0);
  return {
    title: data.title, matrices, shown, commands, memory: data.memory, segments: data.segments,
    places: matrices.flatMap((m) => m.places), arena: data.arena, peak,
    peakBytes: data.memory.length ? data.memory[peak] : 0,
    flops: commands.reduce((sum, c) => sum + c.flops, 0),
    maxFlops: commands.reduce((most, c) => Math.max(most, c.flops), 1),
  };
}

function colorOf(matrix) {
  return matrix.role ? "user" : matrix.deriv ? "deriv" : "value";
}

function bytesText(bytes) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (bytes < 1024 || unit === "GiB") return (unit === "B" ? bytes : bytes.toFixed(1)) + " " + unit;
    bytes /= 1024;
  }
}

function flopsText(count) {
  for (const unit of ["", "k", "M", "G", "T", "P"]) {
    if (count < 1000 || unit === "P") return Number(count.toPrecision(3)) + " " + unit + "FLOP";
    count /= 1000;
  }
}

function segmentOf(model, command) {
  const at = model.segments.findIndex((end) => command <= end);
  if (model.segments.length === 2) return at === 0 ? "forward" : "backward";
  return model.segments.length === 1 ? "" : "segment " + (at + 1);
}

// Matrices and commands that contain all words of a query; null for an empty one.
function findMatches(model, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  // A number of a matrix or command means just that one, not all whose number begins so.
  const exact = (search, word) => new RegExp("\\b" + word + "\\b").test(search);
  const fits = (search) => words.every((w) => (/^[mc]\d+$/.test(w) ? exact(search, w) : search.includes(w)));
  return {
    matrices: new Set(model.shown.filter((m) => fits(m.search)).map((m) => m.index)),
    commands: model.commands.filter((c) => fits(c.search)).map((c) => c.index),
  };
}
