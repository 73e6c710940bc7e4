// The right side: details of what is pointed at or held, and the list of commands.

const ROW = 20;

function element(tag, content = "", className = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  for (const part of [content].flat()) made.append(part);
  return made;
}

class Details {
  constructor(root, model, go) {
    this.root = root;
    this.model = model;
    root.addEventListener("click", (event) => {
      const row = event.target.closest("[data-go]");
      if (row) go(JSON.parse(row.dataset.go));
    });
  }

  show(at, held) {
    const key = JSON.stringify([at, held]);
    if (key === this.shown) return;
    this.shown = key;
    const both = at.command !== undefined && at.matrix !== undefined;
    const parts = [];
    if (at.matrix !== undefined) parts.push(...this.matrix(at.matrix, held, both));
    if (at.command !== undefined) parts.push(...this.command(at.command, held && !both));
    this.root.replaceChildren(...(parts.length ? parts : this.overview()));
    this.root.scrollTop = 0;
  }

  heading(text, held) {
    const title = element("h2", text);
    if (held) title.append(element("span", "held \u2014 Esc lets go", "held"));
    return title;
  }

  table(head, rows) {
    const table = element("table");
    if (head) table.append(element("tr", head.map(([text, kind]) => element("th", text, kind || ""))));
    for (const { go, cells } of rows) {
      const row = element("tr", cells.map(([content, kind]) => element("td", content, kind || "")));
      if (go) row.dataset.go = JSON.stringify(go);
      table.append(row);
    }
    return table;
  }

  share(part, whole, className) {
    const made = element("div", "", "share " + className);
    made.style.width = `${Math.max(1, (70 * part) / Math.max(1, whole)).toFixed(1)}px`;
    return made;
  }

  overview() {
    const { model } = this, kinds = new Map();
    for (const { kind, flops } of model.commands) {
      const entry = kinds.get(kind) || { count: 0, flops: 0 };
      entry.count += 1;
      entry.flops += flops;
      kinds.set(kind, entry);
    }
    const rows = [...kinds].sort((a, b) => b[1].flops - a[1].flops || b[1].count - a[1].count);
    return [
      this.heading("Commands by kind"),
      this.table([["kind"], ["number", "num"], ["operations", "num"], [""]], rows.map(([kind, e]) => ({
        cells: [[kind], [String(e.count), "num"], [e.flops ? flopsText(e.flops) : "", "num"],
          [e.flops ? this.share(e.flops, model.flops, "work") : ""]],
      }))),
      element("h3", `Alive at the peak, after c${model.peak}: ${bytesText(model.peakBytes)}`),
      this.alive(model.peak, 40),
    ];
  }

  alive(command, most) {
    const found = [];
    for (const m of this.model.shown) {
      const life = m.lives.find((l) => l.first <= command && command <= l.last);
      if (life) found.push([m, life.bytes]);
    }
    found.sort((a, b) => b[1] - a[1] || a[0].index - b[0].index);
    return this.table(null, found.slice(0, most).map(([m, bytes]) => ({
      go: { matrix: m.index },
      cells: [[m.name, "mono"], [m.what || `${m.rows} \u00d7 ${m.cols}`], [bytesText(bytes), "num"],
        [this.share(bytes, found[0][1], colorOf(m))]],
    })));
  }

  badges(mark) {
    const made = [];
    if (mark & BEGIN) made.push(element("span", "begins", "badge"));
    if ((mark & 3) === 3) made.push(element("span", "updates", "badge w"));
    else if (mark & WRITE) made.push(element("span", "writes", "badge w"));
    else if (mark & READ) made.push(element("span", "reads", "badge r"));
    if (mark & END) made.push(element("span", "ends", "badge"));
    return made;
  }

  command(index, held) {
    const { model } = this, command = model.commands[index];
    const rows = [...command.access].map(([m, { mark, blocks }]) => ({
      go: { matrix: m, command: index },
      cells: [[this.badges(mark)], [blocks.slice(0, 3).join(" ") + (blocks.length > 3 ? " \u2026" : ""), "mono"],
        [[model.matrices[m].what || "", element("div",
          `${model.matrices[m].rows} \u00d7 ${model.matrices[m].cols}`, "soft")]]],
    }));
    const facts = [segmentOf(model, index), command.flops ? flopsText(command.flops) : "",
      `${bytesText(model.memory[index])} alive after it`].filter(Boolean).join(" \u00b7 ");
    return [
      this.heading(`c${index}  ${command.kind}`, held), element("code", command.text),
      element("p", facts, "soft"), element("h3", rows.length ? "Matrices it touches" : ""),
      this.table(null, rows),
    ];
  }

  matrix(index, held, brief) {
    const { model } = this, m = model.matrices[index];
    const spans = m.lives.map((l) => `c${l.first}\u2013c${l.last} (${bytesText(l.bytes)})`);
    const place = m.places[0];
    const parts = [
      this.heading(`${m.name}  ${m.rows} \u00d7 ${m.cols}`, held), element("p", m.what),
      element("p", [m.role, "alive " + spans.slice(0, 6).join(", ") + (spans.length > 6 ? ", \u2026" : "")]
        .filter(Boolean).join(" \u00b7 "), "soft"),
    ];
    if (place) parts.push(element("p", `at ${place.offset.toLocaleString("en")} in the arena`, "soft"));
    if (brief) return [...parts, element("h3", "")];
    parts.push(element("h3", `${m.uses.length} commands touch it`));
    parts.push(this.table(null, m.uses.slice(0, 400).map(({ command, mark }) => ({
      go: { command, matrix: index },
      cells: [["c" + command, "mono num"], [this.badges(mark)], [model.commands[command].kind]],
    }))));
    return parts;
  }
}

// Only the rows in sight exist in the document, so that length does not matter.
class Listing {
  constructor(root, rows, model, go) {
    this.root = root;
    this.rows = rows;
    this.model = model;
    this.order = model.commands.map((c) => c.index);
    this.held = undefined;
    root.addEventListener("scroll", () => this.draw());
    rows.addEventListener("click", (event) => {
      const row = event.target.closest("[data-command]");
      if (row) go({ command: Number(row.dataset.command) });
    });
  }

  setOrder(order) {
    this.order = order || this.model.commands.map((c) => c.index);
    this.root.scrollTop = 0;
    this.draw();
  }

  hold(command, reveal) {
    this.held = command;
    const at = this.order.indexOf(command);
    if (reveal && at >= 0) {
      const top = at * ROW, { scrollTop, clientHeight } = this.root;
      if (top < scrollTop || top + ROW > scrollTop + clientHeight) this.root.scrollTop = top - clientHeight / 2;
    }
    this.draw();
  }

  draw() {
    this.rows.style.height = `${this.order.length * ROW}px`;
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - 5);
    const last = Math.min(this.order.length, first + Math.ceil(this.root.clientHeight / ROW) + 10);
    const made = [];
    for (let i = first; i < last; i++) {
      const command = this.model.commands[this.order[i]];
      const row = element("div", [element("span", "c" + command.index), command.text], "row");
      if (command.index === this.held) row.classList.add("held");
      if (command.kind === "NoOperationMarker") row.classList.add("end");
      row.style.top = `${i * ROW}px`;
      row.dataset.command = command.index;
      row.title = command.text;
      made.push(row);
    }
    this.rows.replaceChildren(...made);
  }
}
