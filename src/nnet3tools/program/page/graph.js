// The computation graph: cindexes by time and node, coloured by step.

const CELL = 17, NAMES = 132;

class GraphView {
  constructor(root, graph) {
    this.root = root;
    this.cells = new Map();
    this.rows = [];
    this.sequence = 0;
    const key = (node, [n, t, x]) => `${node}|${n}|${t}|${x}`;
    for (const { node, state, indexes, usable_counts } of graph.computable) {
      indexes.forEach((index, i) => this.cells.set(key(node, index), {
        node, index, state, usable: usable_counts[i], step: null, from: [], id: null,
      }));
    }
    this.byId = [];
    for (const { node, first_id, indexes, dependencies, is_input } of graph.graph) {
      indexes.forEach((index, i) => {
        const cell = this.cells.get(key(node, index)) || { node, index, state: "computable", usable: 1, step: null };
        Object.assign(cell, { id: first_id + i, from: dependencies[i], given: is_input[i] });
        this.cells.set(key(node, index), cell);
        this.byId[first_id + i] = cell;
      });
    }
    this.steps = graph.steps.length;
    for (const { step, node, indexes, deriv } of graph.steps) {
      for (const index of indexes) {
        const cell = this.cells.get(key(node, index));
        if (cell) Object.assign(cell, { step, deriv });
      }
    }
    for (const cell of this.cells.values()) cell.label = `${cell.node}(n=${cell.index[0]}, t=${cell.index[1]}, x=${cell.index[2]})`;
    this.nodes = graph.nodes.filter((name) => [...this.cells.values()].some((c) => c.node === name));
    root.addEventListener("click", (event) => this.select(event.target.closest("[data-cell]")));
    this.draw();
  }

  // One sequence is drawn; times without cindexes of it are left out.
  draw() {
    const all = [...this.cells.values()];
    const shown = all.filter((c) => c.index[0] === this.sequence);
    const places = new Set(shown.map((c) => c.index[1]));
    const times = [...places].sort((a, b) => a - b), column = new Map(times.map((t, i) => [t, i]));
    const lanes = [];
    for (const node of this.nodes) {
      const xs = new Set(shown.filter((c) => c.node === node).map((c) => c.index[2]));
      for (const x of [...xs].sort((a, b) => a - b)) lanes.push({ node, x, many: xs.size > 1 });
    }
    const row = new Map(lanes.map(({ node, x }, i) => [`${node}|${x}`, i]));
    const at = (c) => [NAMES + column.get(c.index[1]) * CELL, 22 + row.get(`${c.node}|${c.index[2]}`) * CELL];
    this.at = at;
    this.drawn = shown;
    const text = (s) => s.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
    const parts = times.map((t, i) => (i % 2 && times.length > 12 ? "" :
      `<text class="time" x="${NAMES + i * CELL + 7}" y="14">${t < -1e9 ? "none" : t}</text>`));
    lanes.forEach(({ node, x, many }, i) => parts.push(
      `<text x="0" y="${34 + i * CELL}">${text(node.length > 20 ? node.slice(0, 19) + "\u2026" : node)}${many ? " x=" + x : ""}<title>${text(node)}</title></text>`));
    shown.forEach((c, i) => {
      const [x, y] = at(c), hue = Math.round((c.step * 137.5) % 360);
      const fill = c.step === null ? "" : ` style="fill:hsl(${hue} 62% 58%)"`;
      parts.push(`<rect data-cell="${i}" class="${c.state.replaceAll(" ", "-")}${c.step === null ? " idle" : ""}" x="${x}" y="${y}" width="14" height="14" rx="2"${fill}><title>${text(c.label)}</title></rect>`);
    });
    const sequences = Math.max(...all.map((c) => c.index[0])) + 1;
    const choice = sequences > 1
      ? `<label>sequence n = <input type="number" min="0" max="${sequences - 1}" value="${this.sequence}"></label> ` : "";
    this.root.innerHTML = `<p class="soft">${choice}${this.steps} steps, each with a colour of its own. Click a cindex to see what it depends on.</p>`
      + `<div class="scroll"><svg width="${NAMES + times.length * CELL + 8}" height="${26 + lanes.length * CELL}" role="img" aria-label="Cindexes by time and node">${parts.join("")}<g class="arrows"></g></svg></div>`
      + `<ul class="legend"><li><i class="bar key"></i>in a step</li><li><i class="bar idle"></i>computable, not used</li>`
      + `<li><i class="bar not"></i>not computable</li><li><i class="bar will"></i>will not compute</li></ul><p class="cell" aria-live="polite"></p>`;
    const input = this.root.querySelector("input");
    if (input) input.addEventListener("change", () => { this.sequence = Number(input.value) || 0; this.draw(); });
  }

  select(target) {
    if (!target) return;
    const cell = this.drawn[Number(target.dataset.cell)], from = cell.from.map((id) => this.byId[id]);
    for (const old of this.root.querySelectorAll(".chosen")) old.classList.remove("chosen");
    target.classList.add("chosen");
    const [x, y] = this.at(cell);
    this.root.querySelector(".arrows").innerHTML = from.filter((c) => c.index[0] === this.sequence).map((c) => {
      const [u, v] = this.at(c);
      return `<line x1="${u + 7}" y1="${v + 7}" x2="${x + 7}" y2="${y + 7}"/>`;
    }).join("");
    const facts = [cell.given ? "given" : cell.state, `usable count ${cell.usable}`];
    if (cell.step !== null) facts.push(`step ${cell.step}${cell.deriv ? " with derivative" : ""}`);
    if (cell.id !== null) facts.push(`cindex id ${cell.id}`);
    const depends = from.length ? `; depends on ${from.map((c) => c.label).join(", ")}` : "";
    this.root.querySelector(".cell").textContent = `${cell.label}: ${facts.join(", ")}${depends}`;
  }
}
