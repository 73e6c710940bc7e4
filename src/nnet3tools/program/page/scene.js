// Drawing: memory curve, operations, bars, and the strip that shows where the window is.

class Scene extends View {
  constructor(canvas, model) {
    super(canvas, model);
    this.context = canvas.getContext("2d");
    this.readColors();
  }

  readColors() {
    const style = getComputedStyle(document.documentElement);
    const known = new Map(); // asking the style again and again is what drawing would wait for
    this.color = (name) => {
      if (!known.has(name)) known.set(name, style.getPropertyValue("--" + name).trim());
      return known.get(name);
    };
    this.sans = this.color("sans");
    this.mono = this.color("mono");
  }

  draw(ratio = window.devicePixelRatio || 1) {
    const g = this.context;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.layout();
    g.clearRect(0, 0, this.width, this.height);
    this.drawSegments(g);
    this.drawCurve(g);
    this.drawWork(g);
    this.drawRuler(g);
    g.save();
    g.beginPath();
    g.rect(0, this.barsTop, this.width, this.barsBottom - this.barsTop);
    g.clip();
    if (this.view === "memory") this.drawMap(g); else this.drawRows(g);
    g.restore();
    this.drawCursor(g);
    this.drawScroll(g);
    this.drawStrip(g);
  }

  // How far down the rows are, where they do not all fit.
  drawScroll(g) {
    const room = this.barsBottom - this.barsTop, all = this.rows.length * this.rowHeight;
    if (this.view === "memory" || all <= room + 1) return;
    g.fillStyle = this.color("faint");
    bar(g, this.right + 5, this.barsTop + (this.scroll / all) * room, 5, Math.max(20, (room / all) * room));
  }

  clipped(g, top, bottom, paint) {
    g.save();
    g.beginPath();
    g.rect(this.left, top, this.right - this.left, bottom - top);
    g.clip();
    paint();
    g.restore();
  }

  text(g, text, x, y, color, { size = 11, mono = false, align = "left", weight = "", room = 0 } = {}) {
    g.font = `${weight} ${size}px ${mono ? this.mono : this.sans}`;
    g.fillStyle = this.color(color);
    g.textAlign = align;
    g.textBaseline = "middle";
    if (room > 0 && g.measureText(text).width > room) {
      let low = 0, high = text.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (g.measureText(text.slice(0, middle) + "\u2026").width <= room) low = middle; else high = middle - 1;
      }
      text = low > 1 ? text.slice(0, low) + "\u2026" : "";
    }
    g.fillText(text, x, y);
  }

  drawSegments(g) {
    const names = this.model.segments.length === 2 ? ["forward", "backward"] : [];
    let begin = 0;
    this.model.segments.forEach((end, i) => {
      const x0 = Math.max(this.left, this.x(begin)), x1 = Math.min(this.right, this.x(end + 1));
      if (x1 > x0) {
        if (i % 2 === 1) {
          g.fillStyle = this.color("band");
          g.fillRect(x0, TOP, x1 - x0, this.barsBottom - TOP);
        }
        if (names[i]) this.text(g, names[i], x0 + 6, TOP + 8, "faint", { room: x1 - x0 - 10 });
      }
      begin = end + 1;
    });
  }

  drawCurve(g) {
    const { memory, peakBytes, peak, arena } = this.model;
    const most = Math.max(1, peakBytes, arena), base = TOP + CURVE;
    const y = (bytes) => base - (bytes / most) * (CURVE - 34);
    this.text(g, "memory", this.left - 12, base - CURVE / 2 + 6, "soft", { align: "right" });
    g.strokeStyle = this.color("line");
    g.lineWidth = 1;
    line(g, this.left, base + 0.5, this.right, base + 0.5);
    this.clipped(g, TOP, base + 1, () => {
      const first = Math.max(0, Math.floor(this.from)), last = Math.min(memory.length - 1, Math.ceil(this.to));
      g.beginPath();
      g.moveTo(this.x(first), base);
      for (let c = first; c <= last; c++) {
        g.lineTo(this.x(c), y(memory[c]));
        g.lineTo(this.x(c + 1), y(memory[c]));
      }
      g.lineTo(this.x(last + 1), base);
      g.fillStyle = this.color("area");
      g.globalAlpha = 0.45;
      g.fill();
      g.globalAlpha = 1;
      g.strokeStyle = this.color("curve");
      g.lineWidth = 1.2;
      g.stroke();
      if (peak >= this.from - 1 && peak <= this.to) {
        g.fillStyle = this.color("peak");
        g.beginPath();
        g.arc(this.x(peak + 0.5), y(peakBytes), 3.5, 0, 7);
        g.fill();
      }
    });
    g.setLineDash([3, 3]);
    g.strokeStyle = this.color("peak");
    g.globalAlpha = 0.6;
    line(g, this.left, y(peakBytes), this.right, y(peakBytes));
    g.globalAlpha = 1;
    g.setLineDash([]);
    this.text(g, bytesText(peakBytes), this.left - 12, y(peakBytes) + 1, "peak", { align: "right", weight: "600" });
    this.text(g, "0", this.left - 12, base, "faint", { align: "right" });
    const x = Math.max(this.left + 70, Math.min(this.right - 60, this.x(peak + 0.5)));
    if (peak >= this.from && peak <= this.to) {
      this.text(g, `peak at c${peak}`, x, y(peakBytes) - 9, "peak", { align: "center" });
    }
  }

  drawWork(g) {
    const base = this.rulerTop - 3, room = WORK - 8;
    this.text(g, "operations", this.left - 12, base - 8, "soft", { align: "right" });
    this.clipped(g, this.workTop, base + 1, () => {
      g.fillStyle = this.color("work");
      const last = Math.min(this.model.commands.length, Math.ceil(this.to));
      for (let c = Math.max(0, Math.floor(this.from)); c < last; c++) {
        const { flops } = this.model.commands[c];
        // The square root lets small commands be seen beside matrix products.
        const height = Math.sqrt(flops / this.model.maxFlops) * room;
        if (height > 0) g.fillRect(this.x(c), base - height, Math.max(1, this.scale * 0.9), height);
      }
    });
  }

  drawRuler(g) {
    const y = this.rulerTop + RULER / 2;
    const wanted = 70 / this.scale;
    const power = 10 ** Math.floor(Math.log10(Math.max(1, wanted)));
    const step = Math.max(1, [1, 2, 5, 10].map((f) => f * power).find((s) => s >= wanted));
    g.strokeStyle = this.color("grid");
    g.lineWidth = 1;
    for (let c = Math.ceil(this.from / step) * step; c < this.to; c += step) {
      const x = Math.round(this.x(c)) + 0.5;
      line(g, x, this.barsTop, x, this.barsBottom);
      if (x < this.right - 20) this.text(g, "c" + c, x + 2, y, "faint", { size: 10 });
    }
    g.strokeStyle = this.color("line");
    line(g, 0, this.barsTop - 0.5, this.width, this.barsTop - 0.5);
    const what = this.view === "memory" ? "address in the arena" : `${this.rows.length} matrices in view`;
    this.text(g, what, this.left - 12, y, "soft", { align: "right" });
  }

  dimmed(m) { return this.matches && !this.matches.matrices.has(m.index); }

  drawRows(g) {
    const pad = this.rowHeight > 8 ? 2 : this.rowHeight > 5 ? 1 : this.rowHeight > 3 ? 0.4 : 0.1;
    const size = Math.max(9, Math.min(12, this.rowHeight - 3));
    this.rows.forEach((m, i) => {
      const top = this.rowTop(i);
      if (top + this.rowHeight < this.barsTop || top > this.barsBottom) return;
      const lit = this.hover.matrix === m.index || this.held.matrix === m.index;
      if (lit) {
        g.fillStyle = this.color("hover");
        g.fillRect(0, top, this.width, this.rowHeight);
      }
      g.globalAlpha = this.dimmed(m) ? 0.15 : 1;
      this.clipped(g, this.barsTop, this.barsBottom, () => this.drawBar(g, m, top + pad, this.rowHeight - 2 * pad));
      if (this.rowHeight >= LABEL_ROW) {
        const middle = top + this.rowHeight / 2;
        this.text(g, m.name, 52, middle, "faint", { size: size - 1, mono: true, align: "right" });
        this.text(g, m.label, 60, middle, "ink", { size, room: this.left - 72, weight: lit ? "600" : "" });
      }
      g.globalAlpha = 1;
    });
    if (this.rowHeight < LABEL_ROW) this.drawSparseLabels(g);
  }

  // Where rows are too low for names: every so many rows one, so that one knows where one is.
  drawSparseLabels(g) {
    const every = Math.ceil(15 / this.rowHeight);
    for (let i = Math.floor(every / 2); i < this.rows.length; i += every) {
      const m = this.rows[i], y = this.rowTop(i) + this.rowHeight / 2;
      this.text(g, m.name, 52, y, "faint", { size: 9, mono: true, align: "right" });
      this.text(g, m.label, 60, y, "faint", { size: 10, room: this.left - 72 });
    }
  }

  drawBar(g, m, top, height) {
    g.fillStyle = this.color(colorOf(m));
    for (const life of m.lives) {
      const x0 = this.x(life.first), x1 = this.x(life.last + 1);
      if (x1 < this.left || x0 > this.right) continue;
      const packed = life.bytes < m.peak;
      const alpha = g.globalAlpha;
      if (packed) g.globalAlpha = alpha * 0.55;
      const h = packed ? Math.max(1, height / 2) : height;
      bar(g, x0, top + (height - h) / 2, Math.max(1.5, x1 - x0), h);
      g.globalAlpha = alpha;
    }
    if (height >= 3) this.drawMarks(g, m, top, height);
  }

  drawMarks(g, m, top, height) {
    const width = Math.max(1, Math.min(5, this.scale * 0.5));
    if (this.scale < 0.6 && m.uses.length > 40) return;
    for (const { command, mark } of m.uses) {
      if (command < this.from - 1 || command > this.to || !(mark & (READ | WRITE))) continue;
      const x = this.x(command + 0.5) - width / 2;
      g.fillStyle = this.color(mark & WRITE ? "write" : "read");
      const h = mark & WRITE ? height : height * 0.55;
      g.fillRect(x, top + (height - h) / 2, width, h);
    }
  }

  drawMap(g) {
    this.drawByteScale(g);
    this.clipped(g, this.barsTop, this.barsBottom, () => {
      for (const place of this.model.places) {
        const m = this.model.matrices[place.index];
        const x0 = this.x(place.first), x1 = this.x(place.last + 1);
        if (x1 < this.left || x0 > this.right) continue;
        const y0 = this.byteY(place.offset + place.bytes), y1 = this.byteY(place.offset);
        const lit = this.hover.matrix === m.index || this.held.matrix === m.index;
        g.globalAlpha = this.dimmed(m) ? 0.12 : lit ? 1 : 0.72;
        g.fillStyle = this.color(colorOf(m));
        g.fillRect(x0, y0, Math.max(1, x1 - x0 - 0.5), Math.max(0.8, y1 - y0 - 0.5));
        if (y1 - y0 >= 13 && x1 - x0 >= 34) {
          const shownFrom = Math.max(x0, this.left);
          g.globalAlpha = this.dimmed(m) ? 0.2 : 1;
          this.text(g, `${m.name} ${m.label}`, shownFrom + 4, (y0 + y1) / 2, "on-bar",
            { size: 10.5, room: Math.min(x1, this.right) - shownFrom - 8 });
        }
        if (lit) this.drawMarks(g, m, y0, Math.max(3, y1 - y0));
      }
      g.globalAlpha = 1;
    });
  }

  drawByteScale(g) {
    for (let i = 0; i <= 4; i++) {
      const bytes = (this.model.arena * i) / 4, y = this.byteY(bytes);
      g.strokeStyle = this.color("grid");
      line(g, this.left, y, this.right, y);
      this.text(g, bytesText(Math.round(bytes)), this.left - 12, Math.min(Math.max(y, this.barsTop + 7), this.barsBottom - 7), "faint", { align: "right" });
    }
  }

  // The column of the command in question, and rings around the matrices that it touches.
  drawCursor(g) {
    for (const [at, color] of [[this.held, "value"], [this.hover, "soft"]]) {
      if (at.command === undefined || at.command < this.from - 1 || at.command > this.to) continue;
      const x = this.x(at.command + 0.5);
      this.clipped(g, TOP, this.barsBottom, () => {
        g.strokeStyle = this.color(color);
        g.lineWidth = 1;
        g.globalAlpha = 0.75;
        line(g, x, TOP, x, this.barsBottom);
        g.globalAlpha = 1;
        if (this.view === "matrices") this.drawRings(g, this.model.commands[at.command], x);
      });
    }
  }

  drawRings(g, command, x) {
    for (const [index, { mark }] of command.access) {
      const row = this.rowOf.get(index);
      if (row === undefined) continue;
      const y = this.rowTop(row) + this.rowHeight / 2;
      if (y < this.barsTop || y > this.barsBottom) continue;
      g.beginPath();
      g.arc(x, y, Math.max(4, Math.min(7, this.rowHeight / 2)), 0, 7);
      g.fillStyle = this.color(mark & WRITE ? "write" : "read");
      g.strokeStyle = this.color(mark & WRITE ? "read" : "write");
      g.lineWidth = 1.6;
      g.fill();
      g.stroke();
    }
  }

  drawStrip(g) {
    const top = this.height - STRIP - 4, { memory, peakBytes } = this.model, total = memory.length;
    const width = this.right - this.left;
    g.fillStyle = this.color("area");
    g.globalAlpha = 0.5;
    const columns = Math.max(1, Math.floor(width));
    for (let i = 0; i < columns; i++) {
      const begin = Math.floor((i * total) / columns), end = Math.max(begin + 1, Math.floor(((i + 1) * total) / columns));
      let most = 0;
      for (let c = begin; c < end && c < total; c++) most = Math.max(most, memory[c]);
      const h = (most / Math.max(1, peakBytes)) * STRIP;
      g.fillRect(this.left + i, top + STRIP - h, 1, h);
    }
    g.globalAlpha = 1;
    if (this.matches) {
      g.fillStyle = this.color("peak");
      for (const c of this.matches.commands) g.fillRect(this.left + (c / total) * width, top, 1, 5);
    }
    const x0 = this.left + (this.from / total) * width, x1 = this.left + (this.to / total) * width;
    g.fillStyle = this.color("value");
    g.globalAlpha = 0.14;
    g.fillRect(x0, top, x1 - x0, STRIP);
    g.globalAlpha = 1;
    g.strokeStyle = this.color("value");
    g.lineWidth = 1.2;
    g.strokeRect(x0, top, Math.max(2, x1 - x0), STRIP);
    this.text(g, "whole program", this.left - 12, top + STRIP / 2, "soft", { align: "right" });
  }
}

function line(g, x0, y0, x1, y1) {
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
}

function bar(g, x, y, width, height) {
  const radius = Math.min(3, width / 2, height / 2);
  if (radius < 1.5) { g.fillRect(x, y, width, height); return; }
  g.beginPath();
  g.roundRect(x, y, width, height, radius);
  g.fill();
}
