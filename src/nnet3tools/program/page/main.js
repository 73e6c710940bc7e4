// Events, and what holds the parts together.

(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("program").textContent);
  const programs = [...(data.programs || []), data];
  let model = buildModel(data);
  const canvas = byId("canvas");
  const scene = new Scene(canvas, model);
  const details = new Details(byId("details"), model, hold);
  const listing = new Listing(byId("listing"), byId("rows"), model, hold);
  const graph = data.graph ? new GraphView(byId("graph"), data.graph) : null;
  let drag = null;

  function showFigures() {
    byId("title").textContent = data.title;
    const figures = [
      ["commands", model.commands.length.toLocaleString("en")],
      ["matrices", (model.matrices.length - 1).toLocaleString("en")],
      ["peak", bytesText(model.peakBytes), `at c${model.peak}`],
      ["operations", flopsText(model.flops)],
    ];
    if (model.arena) figures.push(["arena", bytesText(model.arena)]);
    byId("figures").replaceChildren(...figures.map(([name, value, more]) => {
      const dd = element("dd", value);
      if (more) dd.append(" ", element("small", more));
      return element("div", [element("dt", name), dd]);
    }));
  }

  function setView(view) {
    scene.view = view;
    byId("plot").classList.toggle("graph", view === "graph");
    for (const name of ["matrices", "memory", "graph"]) byId("view-" + name).setAttribute("aria-checked", String(name === view));
    scene.request();
  }

  // Show one of the programs: after a pass, or (the last) the program of the file.
  function use(number) {
    model = buildModel(programs[number]);
    scene.model = details.model = listing.model = model;
    scene.held = scene.hover = {};
    details.shown = listing.held = undefined;
    byId("pass-name").textContent = number < programs.length - 1 ? model.title : "as in the file";
    byId("view-memory").hidden = !model.places.length;
    if (scene.view === "memory") setView("matrices");
    showFigures();
    search(byId("search").value.trim());
    scene.fit();
    refresh();
  }

  function hold(at, reveal = true) {
    scene.held = at;
    if (reveal) scene.reveal(at);
    listing.hold(at.command, true);
    refresh();
  }

  function refresh() {
    const pointing = scene.hover.command !== undefined || scene.hover.matrix !== undefined;
    const holding = scene.held.command !== undefined || scene.held.matrix !== undefined;
    details.show(holding ? scene.held : pointing ? scene.hover : {}, holding);
    scene.request();
  }

  function search(query) {
    scene.matches = findMatches(model, query);
    listing.setOrder(scene.matches && scene.matches.commands.length ? scene.matches.commands : null);
    byId("found").textContent = scene.matches
      ? `${scene.matches.matrices.size} matrices, ${scene.matches.commands.length} commands` : "";
    scene.request();
  }

  function nextMatch(step) {
    if (!scene.matches) return;
    const places = new Set(scene.matches.commands);
    for (const m of scene.matches.matrices) places.add(model.matrices[m].first);
    const order = [...places].sort((a, b) => a - b);
    if (!order.length) return;
    const from = scene.held.command === undefined ? -1 : scene.held.command;
    const after = step > 0 ? order.find((c) => c > from) : order.findLast((c) => c < from);
    const command = after !== undefined ? after : order[step > 0 ? 0 : order.length - 1];
    const matrix = [...model.commands[command].access.keys()].find((m) => scene.matches.matrices.has(m));
    hold(matrix === undefined ? { command } : { command, matrix });
  }

  function step(by) {
    const now = scene.held.command === undefined ? Math.floor(scene.from) - (by > 0 ? 1 : 0) : scene.held.command;
    hold({ command: Math.max(0, Math.min(model.commands.length - 1, now + by)) });
  }

  function pointer(event) {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  function moveStrip(x) {
    const middle = ((x - scene.left) / (scene.right - scene.left)) * model.commands.length;
    const half = (scene.to - scene.from) / 2;
    scene.setWindow(middle - half, middle + half);
  }

  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = pointer(event);
    drag = { x, y, from: scene.from, scroll: scene.scroll, moved: false, strip: y > scene.barsBottom + 6 };
    canvas.setPointerCapture(event.pointerId);
    if (drag.strip) moveStrip(x);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = pointer(event);
    if (drag && drag.strip) { moveStrip(x); return; }
    if (drag) {
      drag.moved = drag.moved || Math.hypot(x - drag.x, y - drag.y) > 4;
      if (drag.moved) {
        const from = drag.from - (x - drag.x) / scene.scale;
        scene.scroll = drag.scroll - (y - drag.y);
        scene.setWindow(from, from + scene.to - scene.from);
      }
      return;
    }
    scene.hover = scene.hit(x, y);
    canvas.style.cursor = scene.hover.command !== undefined ? "crosshair" : "default";
    refresh();
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = pointer(event);
    if (drag && !drag.moved && !drag.strip) hold(scene.hit(x, y), false);
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => { scene.hover = {}; refresh(); });
  canvas.addEventListener("dblclick", () => scene.zoom(0.4, scene.hover.command));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [x] = pointer(event);
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
    if (x < scene.left) {
      scene.scroll += event.deltaY;
      scene.request();
    } else if (sideways) {
      const by = sideways / scene.scale;
      scene.setWindow(scene.from + by, scene.to + by);
    } else {
      scene.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.004), scene.commandAt(x));
    }
  }, { passive: false });

  const keys = {
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), "+": () => scene.zoom(0.5), "=": () => scene.zoom(0.5),
    "-": () => scene.zoom(2), 0: () => scene.fit(), p: goToPeak, "/": () => byId("search").focus(),
    Escape: () => hold({}, false),
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target === byId("search");
    if (typing && event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    if (typing && event.key === "Escape") { byId("search").value = ""; search(""); byId("search").blur(); }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  function goToPeak() {
    const span = Math.min(scene.to - scene.from, Math.max(60, model.commands.length / 12));
    scene.setWindow(model.peak - span / 2, model.peak + span / 2);
    hold({ command: model.peak });
  }

  byId("search").addEventListener("input", (event) => search(event.target.value.trim()));
  byId("zoom-in").addEventListener("click", () => scene.zoom(0.5));
  byId("zoom-out").addEventListener("click", () => scene.zoom(2));
  byId("fit").addEventListener("click", () => scene.fit());
  byId("peak").addEventListener("click", goToPeak);
  byId("view-matrices").addEventListener("click", () => setView("matrices"));
  byId("view-memory").addEventListener("click", () => setView("memory"));
  byId("view-graph").addEventListener("click", () => setView("graph"));
  byId("view-graph").hidden = !graph;
  byId("passes").hidden = programs.length < 2;
  byId("pass").max = byId("pass").value = programs.length - 1;
  byId("pass").addEventListener("input", (event) => use(Number(event.target.value)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { scene.readColors(); scene.request(); });
  new ResizeObserver(() => { scene.resize(); listing.draw(); }).observe(canvas);

  // A link may say what to show: #c12, #m3, #search=lstm, #view=memory, #pass=2, #window=10-60, joined by &.
  function obey(hash) {
    for (const part of decodeURIComponent(hash.slice(1)).split("&")) {
      const [key, value = ""] = part.split("=");
      const window = value.match(/^(\d+)-(\d+)$/);
      if (key === "search") { byId("search").value = value; search(value); }
      if (key === "view" && value === "memory" && model.places.length) setView(value);
      if (key === "view" && value === "graph" && graph) setView(value);
      if (key === "pass" && programs[Number(value)]) { byId("pass").value = value; use(Number(value)); }
      if (key === "window" && window) scene.setWindow(Number(window[1]), Number(window[2]));
      if (/^c\d+$/.test(key) && Number(key.slice(1)) < model.commands.length) hold({ command: Number(key.slice(1)) });
      if (/^m\d+$/.test(key) && model.matrices[Number(key.slice(1))]) hold({ matrix: Number(key.slice(1)) });
    }
  }

  setView("matrices");
  scene.resize();
  use(programs.length - 1);
  listing.setOrder(null);
  refresh();
  obey(location.hash);
})();
