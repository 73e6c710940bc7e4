// What part of the program is in sight, and what lies where in it.

const GUTTER = 214, CURVE = 112, WORK = 30, RULER = 20, STRIP = 30, TOP = 10, MARGIN = 16;
const MIN_ROW = 1.5, MAX_ROW = 24, LABEL_ROW = 11;

class View {
  constructor(canvas, model) {
    this.canvas = canvas;
    this.model = model;
    this.from = 0;
    this.to = Math.max(1, model.commands.length);
    this.scroll = 0;
    this.view = "matrices";
    this.matches = null;
    this.hover = {};
    this.held = {};
    this.pending = false;
  }

  request() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.draw(); });
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.draw(ratio); // at once: the canvas has just been emptied
  }

  // -- where things are

  get left() { return this.width < 560 ? 108 : GUTTER; }
  get right() { return this.width - MARGIN; }
  get workTop() { return TOP + CURVE + 6; }
  get rulerTop() { return this.workTop + WORK; }
  get barsTop() { return this.rulerTop + RULER; }
  get barsBottom() { return this.height - STRIP - 12; }
  get scale() { return (this.right - this.left) / (this.to - this.from); }
  x(command) { return this.left + (command - this.from) * this.scale; }
  commandAt(x) { return this.from + (x - this.left) / this.scale; }

  layout() {
    const inWindow = (m) => m.lives.some((l) => l.last + 1 > this.from && l.first < this.to);
    this.rows = this.model.shown.filter(inWindow);
    const room = this.barsBottom - this.barsTop;
    this.rowHeight = Math.max(MIN_ROW, Math.min(MAX_ROW, room / Math.max(1, this.rows.length)));
    const overflow = this.rows.length * this.rowHeight - room;
    this.scroll = Math.max(0, Math.min(this.scroll, overflow));
    this.rowOf = new Map(this.rows.map((m, i) => [m.index, i]));
  }

  rowTop(i) { return this.barsTop + i * this.rowHeight - this.scroll; }
  byteY(bytes) {
    const span = this.barsBottom - this.barsTop - 6;
    return this.barsBottom - (bytes / Math.max(1, this.model.arena)) * span;
  }

  // What is at a point: {command, matrix}.
  hit(x, y) {
    const at = {};
    if (x >= this.left && x <= this.right && y < this.barsBottom) {
      const c = Math.floor(this.commandAt(x));
      if (c >= 0 && c < this.model.commands.length) at.command = c;
    }
    if (y < this.barsTop || y > this.barsBottom) return at;
    if (this.view === "memory") {
      const c = this.commandAt(x);
      const place = this.model.places.find((p) => p.first <= c && c < p.last + 1
        && y <= this.byteY(p.offset) && y >= this.byteY(p.offset + p.bytes));
      if (place && at.command !== undefined) at.matrix = place.index;
      return at;
    }
    const row = this.rows[Math.floor((y - this.barsTop + this.scroll) / this.rowHeight)];
    if (!row) return at;
    const c = at.command;
    const alive = c === undefined || row.lives.some((l) => l.first <= c && c <= l.last + 1);
    if (x < this.left || alive) at.matrix = row.index;
    return at;
  }

  // -- moving the window

  setWindow(from, to) {
    const total = this.model.commands.length;
    const span = Math.min(Math.max(to - from, Math.min(6, total)), total);
    this.from = Math.max(0, Math.min(from, total - span));
    this.to = this.from + span;
    this.request();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.setWindow(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  fit() { this.scroll = 0; this.setWindow(0, this.model.commands.length); }

  // Brings a command, or else a matrix, into the window.
  reveal({ command, matrix }) {
    const m = this.model.matrices[matrix];
    const span = this.to - this.from;
    if (command !== undefined && (command < this.from + span * 0.05 || command > this.to - span * 0.05)) {
      this.setWindow(command - span / 2, command + span / 2);
    } else if (command === undefined && m && (m.last < this.from || m.first > this.to)) {
      this.setWindow(m.first - span * 0.1, m.first + span * 0.9);
    }
    this.layout();
    const touched = command === undefined ? [] : [...this.model.commands[command].access.keys()];
    const row = this.rowOf.get(matrix !== undefined ? matrix : touched[touched.length - 1]);
    if (row !== undefined) {
      const y = this.rowTop(row);
      if (y < this.barsTop || y + this.rowHeight > this.barsBottom) {
        this.scroll += y - (this.barsTop + this.barsBottom) / 2;
      }
    }
    this.request();
  }
}
