"use strict";
// Draws the report from the JSON document in the page. All text goes through `textContent`, never through HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const SVG = "http://www.w3.org/2000/svg";

  // ---- elements

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "on") for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
      else if (value !== undefined && value !== null) node.setAttribute(name, value);
    }
    for (const child of children.flat(4)) {
      if (child === null || child === undefined || child === "") continue;
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
  }
  const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
  const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

  // ---- numbers

  function scaled(x, units, step = 1000) {
    if (x === null || x === undefined) return "–";
    let k = 0;
    while (x >= step * 0.9995 && k < units.length - 1) { x /= step; k++; }
    return `${x === 0 ? 0 : x >= 100 || (k === 0 && Number.isInteger(x)) ? Math.round(x) : x.toPrecision(3)} ${units[k]}`;
  }
  const bytes = (x) => scaled(x, ["B", "kB", "MB", "GB", "TB"]);
  const operations = (x) => scaled(x, ["", "k", "M", "G", "T"]).trim();
  const time = (seconds) => seconds === null || seconds === undefined ? "–" : scaled(seconds * 1e6, ["µs", "ms", "s"]);
  const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
  const percent = (x) => x === null || !isFinite(x) ? "–" : `${Math.round(100 * x)} %`;
  const base = (file) => file.replace(/^.*[\\/]/, "");
  const sum = (list, f) => list.reduce((total, x) => total + f(x), 0);

  // ---- parts that return often

  const link = (id) => el("a", { class: "link", href: `#${id}`, title: "A link to this" }, "¶");
  const placeText = (place) => `${base(place.file)}:${place.line}`;
  const place = (p) => el("span", { class: "mono place", title: p.file }, el("b", {}, placeText(p)), ` in ${p.name}`);

  /** Text whose parts between backticks are code. */
  const prose = (text) => text.split("`").map((part, k) => k % 2 ? el("code", {}, part) : part);

  function excerpt(p) {
    if (!p.source.length) return null;
    return el("pre", {}, p.source.map((line, k) => {
      const number = p.first + k;
      const text = `${String(number).padStart(5)}  ${line}\n`;
      return number === p.line ? el("span", { class: "hit" }, text) : text;
    }));
  }

  /** Folded content, made when it is first opened. `search` is the text that the search box looks in. */
  function folded(attributes, summary, content, search) {
    const box = el("details", attributes, el("summary", {}, summary));
    let made = false;
    box.open_up = () => { if (!made) { made = true; fill(box, {}, [content()]); } };
    box.addEventListener("toggle", () => { if (box.open) box.open_up(); });
    if (search !== undefined) { box.classList.add("entry"); box.searched = search.toLowerCase(); }
    return box;
  }

  const MOST_ROWS = 30;

  /** Columns: [title, text of a row, value of a row to sort by]. */
  function table(columns, rows, attributes = {}) {
    const body = el("tbody");
    let sorted = null, ascending = false;
    let shown = MOST_ROWS;
    const more = el("button", { type: "button", class: "more", on: { click: () => { shown = rows.length; draw(rows); } } },
      `Show all ${rows.length}`);
    const draw = (list) => {
      more.classList.toggle("hidden", list.length <= shown);
      body.replaceChildren(...list.slice(0, shown).map((row) => {
        const line = el("tr", { id: row.id }, columns.map(([, text], k) =>
          el("td", { class: columns[k][3] }, text(row))));
        line.searched = (row.search || "").toLowerCase();
        if (row.search !== undefined) line.classList.add("entry");
        return line;
      }));
      search();
    };
    const head = columns.map(([title, , value], k) => el("th", {
      class: columns[k][3], scope: "col", on: { click: () => {
        if (!value) return;
        ascending = sorted === k ? !ascending : k === 0;
        sorted = k;
        const sign = ascending ? 1 : -1;
        draw([...rows].sort((a, b) => {
          const [x, y] = [value(a) ?? -1, value(b) ?? -1];
          return sign * (x < y ? -1 : x > y ? 1 : 0);
        }));
      } },
    }, title));
    const made = el("div", { class: "scroll" }, el("table", attributes, el("thead", {}, el("tr", {}, head)), body), more);
    made.show_all = () => more.click();
    if (rows.length > shown && rows[0].search !== undefined) made.classList.add("long");
    draw(rows);
    return made;
  }

  function section(id, title, ...children) {
    const box = el("section", { id }, el("h2", {}, title, link(id)), children);
    main.append(box);
    document.getElementById("nav").append(el("a", { href: `#${id}` }, title));
    return box;
  }

  // ---- what happened, in words

  const steps = [];
  data.graphs.forEach((graph, g) => graph.plans.forEach((plan, p) => plan.steps.forEach((step, s) => {
    if (step.kind !== "view") steps.push({ ...step, graph: g, plan: p, number: s, id: `step-${g}-${p}-${s}` });
  })));
  const functions = new Map();
  for (const segment of data.segments) {
    const key = `${segment.function.file}:${segment.function.line}:${segment.function.name}`;
    if (!functions.has(key)) functions.set(key, { ...segment.function, segments: [] });
    functions.get(key).segments.push(segment);
  }
  const total = (segment) => ["guards", "graph", "backward"].reduce((t, kind) => t + (segment.totals[kind] || 0), 0);
  const compiling = sum(data.graphs, (g) => g.seconds.compile || 0) + sum(data.segments, (s) => s.seconds.trace || 0);

  function summary() {
    const box = el("section", { id: "summary" });
    box.append(el("h1", {}, data.program));
    const m = data.machine;
    box.append(el("p", { class: "soft" }, `torch ${m.torch}, Python ${data.python}, ${count(m.threads, "thread")}`
      + (m.gpu ? `, ${m.gpu}` : "") + `; the run took ${time(data.seconds)}`));
    const card = (value, label) => el("div", { class: "card" }, el("b", {}, value), el("span", { class: "soft" }, label));
    box.append(el("div", { class: "cards" },
      card(functions.size, functions.size === 1 ? "compiled function" : "compiled functions"),
      card(data.segments.length, data.segments.length === 1 ? "segment" : "segments"),
      card(data.breaks.length, data.breaks.length === 1 ? "graph break" : "graph breaks"),
      card(data.misses.length, data.misses.length === 1 ? "recompile" : "recompiles"),
      card(steps.filter((s) => s.kind === "kernel").length, "kernels"),
      card(time(compiling), "compiling"),
      card(time(sum(data.segments, total)), "in compiled code")));
    if (!data.segments.length) box.append(el("p", {}, "No compiled code was made or run while the report was on. "
      + "Does the program call burnish.compile?"));
    for (const [k, found] of data.breaks.entries()) {
      const top = found.stack[0];
      box.append(el("div", { class: "panel warn" }, el("a", { href: `#break-${k}` }, `Graph break ${found.code}`), ": ",
        found.title, top ? [" at ", place(top)] : null, ": ", found.what));
    }
    for (const [k, miss] of data.misses.entries()) {
      const first = miss.failures[0];
      box.append(el("div", { class: "panel note" }, el("a", { href: `#recompile-${k}` }, "Recompiled"), " ", place(miss.place),
        first ? [": ", el("code", {}, first.source), " was ", el("code", {}, first.expected), " and is now ",
          el("code", {}, first.found)] : ": no guard is known to have failed"));
    }
    for (const note of data.notes.filter((n) => n.slower)) box.append(el("div", { class: "panel note" }, note.text,
      note.times > 1 ? el("span", { class: "soft" }, ` (${note.times} times)`) : null));
    main.append(box);
  }

  // ---- the timeline

  const CATEGORIES = [
    ["trace", "trace"], ["compile", "compile"], ["lower", "lower"], ["measure", "choose library calls"],
    ["schedule", "schedule"], ["codegen", "generate code"], ["guards", "guards"], ["graph", "call"],
    ["backward", "backward"], ["kernel", "kernel"], ["library", "library"],
  ];

  function timeline() {
    const spans = data.spans.map(([category, name, line, start, length, thread]) =>
      ({ category, name: data.strings[name], line: data.strings[line], start, length, thread, depth: 0 }));
    if (!spans.length) return;
    const open = data.threads.map(() => []);
    const depths = data.threads.map(() => 0);
    spans.sort((a, b) => a.start - b.start || b.length - a.length);
    for (const span of spans) {
      const stack = open[span.thread];
      while (stack.length && stack[stack.length - 1] <= span.start + 0.05) stack.pop();
      span.depth = stack.length;
      stack.push(span.start + span.length);
      depths[span.thread] = Math.max(depths[span.thread], span.depth + 1);
    }
    const ROW = 17, HEAD = 20, WIDTH = 1160;
    const tops = [];
    let height = HEAD;
    data.threads.forEach((_, k) => { tops.push(height + 14); height += depths[k] * ROW + 22; });
    const end = Math.max(...spans.map((s) => s.start + s.length));
    let from = 0, to = end;
    const box = el("div", { id: "timeline-box", tabindex: 0, role: "img", "aria-label": "Timeline of the run" });
    const told = el("p", { class: "mono soft", id: "timeline-told" }, "Point at a span; the wheel zooms, dragging moves.");
    function draw() {
      const scale = WIDTH / (to - from);
      const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, height });
      for (let k = 0; k <= 8; k++) {
        const x = (k / 8) * WIDTH;
        picture.append(svg("line", { class: "rule", x1: x, x2: x, y1: HEAD - 4, y2: height }));
        picture.append(svg("text", { x: Math.min(x + 3, WIDTH - 50), y: 12 }, time((from + (k / 8) * (to - from)) / 1e6)));
      }
      data.threads.forEach((name, k) => picture.append(svg("text", { x: 2, y: tops[k] - 3 }, name)));
      for (const span of spans) {
        if (span.start + span.length < from || span.start > to) continue;
        const x = Math.max(0, (span.start - from) * scale);
        const width = Math.min(WIDTH, (span.start + span.length - from) * scale) - x;
        if (width < 0.15) continue;
        const y = tops[span.thread] + span.depth * ROW;
        const shape = svg("rect", { x, y, width: Math.max(width, 0.6), height: ROW - 3, rx: width > 6 ? 2 : 0,
          fill: `var(--${span.category})`, on: { mouseenter: () => {
            told.textContent = `${span.name === span.category ? "" : span.category + "  "}${span.name}  ${time(span.length / 1e6)}`
              + `  from ${time(span.start / 1e6)}${span.line ? "  " + span.line : ""}`;
          } } });
        picture.append(shape);
        if (width > 60) {
          const text = svg("text", { x: x + 4, y: y + 11, style: "pointer-events: none; fill: #15171a" });
          text.textContent = base(span.name).slice(0, Math.floor(width / 6.4));
          picture.append(text);
        }
      }
      box.replaceChildren(picture);
    }
    const clamp = (a, b) => {
      const width = Math.min(Math.max(b - a, 2), end);
      from = Math.min(Math.max(0, a), end - width);
      to = from + width;
      draw();
    };
    const at = (event) => from + ((event.clientX - box.getBoundingClientRect().left) / box.clientWidth) * (to - from);
    box.addEventListener("wheel", (event) => {
      event.preventDefault();
      const middle = at(event), factor = event.deltaY > 0 ? 1.25 : 0.8;
      clamp(middle - (middle - from) * factor, middle + (to - middle) * factor);
    }, { passive: false });
    let grabbed = null;
    box.addEventListener("pointerdown", (event) => { grabbed = [event.clientX, from, to]; });
    window.addEventListener("pointerup", () => { grabbed = null; });
    window.addEventListener("pointermove", (event) => {
      if (!grabbed) return;
      const moved = ((event.clientX - grabbed[0]) / box.clientWidth) * (grabbed[2] - grabbed[1]);
      clamp(grabbed[1] - moved, grabbed[2] - moved);
    });
    box.addEventListener("keydown", (event) => {
      const width = to - from, middle = (from + to) / 2;
      if (event.key === "+") clamp(middle - width / 4, middle + width / 4);
      else if (event.key === "-") clamp(middle - width, middle + width);
      else if (event.key === "ArrowLeft") clamp(from - width / 5, to - width / 5);
      else if (event.key === "ArrowRight") clamp(from + width / 5, to + width / 5);
      else if (event.key === "0") clamp(0, end);
    });
    const there = new Set(spans.map((s) => s.category));
    const legend = el("div", { class: "legend soft" }, CATEGORIES.filter(([c]) => there.has(c)).map(([c, title]) =>
      el("span", {}, el("i", { style: `background: var(--${c})` }), title)));
    draw();
    section("timeline", "Timeline", legend, el("div", { class: "panel" }, box), told,
      data.spans_left_out ? el("p", { class: "soft" }, `${count(data.spans_left_out, "shorter span")} left out here; `
        + "burnish.trace writes all of them.") : null);
  }

  // ---- functions and their segments

  function segmentBox(segment) {
    const id = `segment-${segment.number}`;
    const calls = segment.calls || segment.checks;
    const text = JSON.stringify([segment.place, segment.guards]);
    return folded({ id, class: "panel" }, [
      `Segment ${segment.number} from `, place(segment.place), link(id),
      el("span", { class: "right" }, `${count(calls, "call")} · ${time(total(segment))}`),
    ], () => {
      const graph = segment.graph === null ? null : data.graphs[segment.graph];
      const t = segment.totals;
      return [
        excerpt(segment.place),
        segment.at === null ? el("p", { class: "soft" }, "It was compiled before the report began, so its compilation is not shown.")
          : el("p", {}, `Compiled ${time(segment.at)} after the start: tracing took ${time(segment.seconds.trace)}`
            + (graph && graph.seconds.compile ? `, compiling its graph ${time(graph.seconds.compile)}` : "") + "."),
        segment.because !== null ? el("p", {}, "It was made because ", el("a", { href: `#recompile-${segment.because}` },
          "the guards of the others failed"), ".") : null,
        segment.break !== null ? el("p", {}, "It ends at ", el("a", { href: `#break-${segment.break}` },
          `a graph break, ${data.breaks[segment.break].code}`), ".") : null,
        calls ? el("p", {}, `In its ${count(calls, "call")}: guards ${time(t.guards || 0)}, kernels ${time(t.kernel || 0)}, `
          + `library calls ${time(t.library || 0)}, the graph as a whole ${time(t.graph || 0)}`
          + (t.backward ? `, backward ${time(t.backward)}` : "") + (segment.bytes ? `; ${bytes(segment.bytes)} in and out.` : ".")) : null,
        graph ? el("p", {}, "See ", el("a", { href: `#graph-${segment.graph}` }, `graph ${segment.graph}`), ".") : null,
        folded({}, `${count(segment.guard_count, "guard")}`, () => el("pre", {}, segment.guards.join("\n"),
          segment.guard_count > segment.guards.length ? `\n… and ${segment.guard_count - segment.guards.length} more` : null)),
      ];
    }, text);
  }

  function functionList() {
    if (!functions.size) return;
    const list = [...functions.values()].sort((a, b) => sum(b.segments, total) - sum(a.segments, total));
    section("functions", "Functions", list.map((f) => el("div", {},
      el("h3", {}, place(f), el("span", { class: "soft" }, ` · ${count(f.segments.length, "segment")} · ${time(sum(f.segments, total))}`)),
      f.segments.map(segmentBox))));
  }

  // ---- breaks and recompiles

  function breakList() {
    if (!data.breaks.length) return;
    section("breaks", "Graph breaks", data.breaks.map((found, k) => {
      const box = el("div", { class: "panel warn entry", id: `break-${k}` },
        el("h3", {}, `${found.code} ${found.title}`, link(`break-${k}`),
          found.times > 1 ? el("span", { class: "soft" }, ` · met in ${found.times} traces`) : null),
        el("p", {}, found.what), found.stack.length ? [place(found.stack[0]), excerpt(found.stack[0])] : null,
        found.stack.length > 1 ? folded({}, "Called from", () => found.stack.slice(1).map((p) => [el("p", {}, place(p)), excerpt(p)])) : null,
        el("p", {}, el("b", {}, "Why. "), prose(found.why)), el("p", {}, el("b", {}, "What to do. "), prose(found.what_to_do)),
        el("p", { class: "soft" }, "An example: ", el("code", {}, `burnish breaks ${found.code}`)));
      box.searched = JSON.stringify(found).toLowerCase();
      return box;
    }));
  }

  function missList() {
    if (!data.misses.length) return;
    section("recompiles", "Recompiles", data.misses.map((miss, k) => {
      const [first, ...also] = miss.failures;
      const box = el("div", { class: "panel note entry", id: `recompile-${k}` },
        el("h3", {}, place(miss.place), link(`recompile-${k}`), el("span", { class: "soft" }, ` · after ${time(miss.at)}`)),
        first ? el("table", { style: "width: auto" }, el("tbody", {},
          [["guard", first.source], ["expected", first.expected], ["found", first.found]].map(([title, text]) =>
            el("tr", {}, el("td", { class: "soft" }, title), el("td", { class: "left mono" }, text)))))
          : el("p", {}, "No guard is known to have failed."),
        also.length ? folded({}, `${count(also.length, "further guard")} of the nearest segment failed`, () =>
          el("pre", {}, also.map((f) => `${f.source}: expected ${f.expected}, found ${f.found}\n`))) : null,
        miss.advice ? el("p", {}, el("b", {}, "What to do. "), prose(miss.advice)) : null,
        miss.segment !== null ? el("p", {}, "Made then: ", el("a", { href: `#segment-${miss.segment}` }, `segment ${miss.segment}`)) : null);
      box.searched = JSON.stringify(miss).toLowerCase();
      return box;
    }));
  }

  // ---- kernels by line

  const share = (step) => step.best && step.estimate !== null ? Math.min(step.estimate / step.best, 1) : null;
  const moved = (step) => step.read + step.written;
  const bar = (x) => x === null ? "–" : [el("span", { class: "bar", title: percent(x) }, el("i", { style: `width: ${100 * x}%` })), ` ${percent(x).padStart(5)}`];
  const STEP_COLUMNS = [
    ["Step", (s) => [s.kind === "kernel" ? "" : "call ", el("a", { href: `#graph-${s.graph}`, class: "mono" }, s.name)], (s) => s.name],
    ["Line", (s) => el("span", { class: "mono", title: s.lines.join("\n") }, s.lines.length ? base(s.lines[0]) : "–"), (s) => s.lines[0], "left"],
    ["Calls", (s) => s.calls || "–", (s) => s.calls],
    ["Fastest", (s) => time(s.best), (s) => s.best],
    ["Total", (s) => s.calls ? time(s.total) : "–", (s) => s.total],
    ["Operations", (s) => operations(s.operations), (s) => s.operations],
    ["Bytes", (s) => bytes(moved(s)), moved],
    ["Op/byte", (s) => s.operations && moved(s) ? (s.operations / moved(s)).toPrecision(2) : "–", (s) => moved(s) ? s.operations / moved(s) : -1],
    ...(data.limits ? [["Of this machine", (s) => bar(share(s)), share]] : []),
  ];
  const searchable = (list) => list.map((s) => ({ ...s, search: [s.name, s.kind, ...s.lines].join(" ") }));

  function lineList() {
    if (!steps.length) return;
    const byLine = new Map();
    for (const step of steps) {
      const line = step.lines[0] || "no line known";
      if (!byLine.has(line)) byLine.set(line, []);
      byLine.get(line).push(step);
    }
    const weight = (list) => sum(list, (s) => s.total || 0) || sum(list, (s) => s.estimate || 0) * 1e-9;
    const all = sum([...byLine.values()], (list) => sum(list, (s) => s.total || 0));
    const lines = [...byLine].sort(([, a], [, b]) => weight(b) - weight(a));
    section("lines", "Lines", el("p", { class: "soft" }, "What each line of the program became. A fused kernel stands under the line of its first operation."),
      lines.map(([line, list], k) => folded({ id: `line-${k}`, class: "panel" }, [
        el("span", { class: "mono", title: line }, base(line)), link(`line-${k}`),
        el("span", { class: "right" }, `${count(list.length, "step")} · ${time(sum(list, (s) => s.total || 0))}`
          + (all ? ` · ${percent(sum(list, (s) => s.total || 0) / all)}` : "")),
      ], () => table(STEP_COLUMNS, list), line + " " + list.map((s) => s.name).join(" "))));
  }

  function kernelTable() {
    if (!steps.length) return;
    const list = searchable([...steps].sort((a, b) => (b.total || 0) - (a.total || 0)));
    section("kernels", "Kernels and library calls", data.limits ? el("p", { class: "soft" },
      `This machine multiplies at ${operations(data.limits.operations)} operations a second and copies memory at `
      + `${bytes(data.limits.bytes)} a second, measured at the end of the run. The last column is the time that a step needs at these speeds, as a share of its fastest call.`) : null,
    el("div", { class: "panel" }, table(STEP_COLUMNS, list)));
  }

  // ---- graphs, with their memory

  function memory(plan) {
    const inside = `inputs and weights ${bytes(plan.inputs)}, outputs ${bytes(plan.outputs)}, intermediate values ${bytes(plan.arena)}`;
    if (!plan.buffers.length) return el("p", {}, `Memory: ${inside}.`);
    const WIDTH = 1060, HEIGHT = 200, LEFT = 70;
    const count_ = plan.steps.length, x = (k) => LEFT + (k / count_) * (WIDTH - LEFT);
    const y = (offset) => HEIGHT - (offset / Math.max(plan.arena, 1)) * (HEIGHT - 10);
    const colours = ["graph", "library", "trace", "schedule", "lower", "codegen"];
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 24}`, role: "img", "aria-label": "Memory of intermediate values" });
    for (const part of [0, 0.5, 1]) {
      picture.append(svg("line", { class: "rule", x1: LEFT, x2: WIDTH, y1: y(part * plan.arena), y2: y(part * plan.arena) }));
      picture.append(svg("text", { x: 0, y: y(part * plan.arena) + 4 }, bytes(part * plan.arena)));
    }
    plan.buffers.forEach((b, k) => {
      const top = y(b.offset + b.bytes);
      picture.append(svg("rect", { x: x(b.first), y: top, width: Math.max(x(b.last + 1) - x(b.first), 1), height: Math.max(y(b.offset) - top, 1),
        fill: `var(--${colours[k % colours.length]})`, "fill-opacity": 0.75, stroke: "var(--panel)", "stroke-width": 0.6 },
      svg("title", {}, `${b.name}: ${bytes(b.bytes)} at ${bytes(b.offset)}, steps ${b.first} to ${b.last}`)));
    });
    picture.append(svg("text", { x: LEFT, y: HEIGHT + 18 }, "step 0"), svg("text", { x: WIDTH - 60, y: HEIGHT + 18 }, `step ${count_ - 1}`));
    const whole = sum(plan.buffers, (b) => b.bytes);
    return [el("p", {}, `Memory: ${inside}. ${count(plan.buffers.length, "intermediate value")} of together ${bytes(whole)} share it: `
      + "each is a box, as high as it is large, from the step that makes it to its last reader."), el("div", { class: "scroll" }, picture)];
  }

  function graphList() {
    if (!data.graphs.length) return;
    section("graphs", "Graphs", data.graphs.map((graph, g) => {
      const listing = data.texts[graph.operations];
      const segment = graph.segment === null ? null : data.segments[graph.segment];
      const inner = graph.plans.flatMap((plan) => plan.steps).filter((s) => s.kind !== "view");
      const took = ["lower", "measure", "schedule", "codegen"].filter((k) => graph.seconds[k]).map((k) => `${k} ${time(graph.seconds[k])}`);
      return folded({ id: `graph-${g}`, class: "panel" }, [`Graph ${g}`, segment ? [" of ", place(segment.place)] : null, link(`graph-${g}`),
        el("span", { class: "right" }, `${count(listing ? listing.split("\n").length : 0, "operation")} → ${count(inner.length, "step")}`)], () => [
        took.length ? el("p", {}, `Compiled in ${time(graph.seconds.compile)}: ${took.join(", ")}. It reads ${bytes(graph.weights)} of parameters and buffers.`)
          : el("p", {}, "It was not compiled while the report was on: another backend has it, it waits for a second call, or it runs eagerly."),
        segment ? el("p", {}, "Of ", el("a", { href: `#segment-${graph.segment}` }, `segment ${graph.segment}`), ".") : null,
        folded({}, "The captured operations", () => el("pre", {}, listing)),
        graph.plans.map((plan, p) => [
          graph.plans.length > 1 ? el("h3", {}, `Part ${p + 1} of ${graph.plans.length}`) : null,
          memory(plan),
          plan.steps.map((step, s) => step.kind === "view" ? null : folded({ id: `step-${g}-${p}-${s}` }, [
            el("span", { class: "mono" }, `${s}  ${step.name}`), el("span", { class: "soft mono" }, `  ${step.lines.length ? base(step.lines[0]) : ""}`),
            el("span", { class: "right" }, `${operations(step.operations)} op · ${bytes(moved(step))} · ${time(step.best)}`)],
          () => [el("p", { class: "soft mono" }, step.lines.join(", ")), el("pre", {}, data.texts[step.text])])),
        ]),
      ], listing + " " + inner.map((s) => s.name + " " + s.lines.join(" ")).join(" "));
    }));
  }

  function contestTable() {
    if (!data.contests.length) return;
    section("contests", "Contests", el("p", { class: "soft" }, "The first calls of compiled code take turns with eager, and the faster one stays."),
      el("div", { class: "panel" }, table([
        ["What", (c) => c.text.split(":")[0], (c) => c.text],
        ["Compiled", (c) => time(c.compiled), (c) => c.compiled],
        ["Eager", (c) => time(c.eager), (c) => c.eager],
        ["Compiled is", (c) => c.compiled > 0 ? `${(c.eager / c.compiled).toPrecision(3)}× as fast` : "–", (c) => c.eager / c.compiled],
        ["Kept", (c) => c.kept, (c) => c.kept],
      ], data.contests.map((c) => ({ ...c, search: c.text })))));
  }

  function noteList() {
    const notes = data.notes.filter((note) => !note.slower);
    if (notes.length) section("notes", "Notes", el("div", { class: "panel" }, notes.map((note) =>
      el("p", {}, note.text, note.times > 1 ? el("span", { class: "soft" }, ` (${note.times} times)`) : null))));
  }

  function pluginSections() {
    data.sections.forEach(({ title, columns, rows }, k) => section(`plugin-${k}`, title, el("div", { class: "panel" }, table(
      columns.map((column, c) => [column, (row) => row.cells[c], (row) => row.cells[c], c ? undefined : "left"]),
      rows.map((cells) => ({ cells, search: cells.join(" ") }))))));
  }

  // ---- search, theme, links

  function search() {
    const words = document.getElementById("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) for (const long of document.querySelectorAll(".long")) { long.classList.remove("long"); long.show_all(); }
    for (const entry of document.querySelectorAll(".entry"))
      entry.classList.toggle("hidden", !words.every((word) => entry.searched.includes(word)));
  }
  function go() {
    const id = decodeURIComponent(location.hash.slice(1));
    const graph = /^step-(\d+)-/.exec(id);
    const outer = graph && document.getElementById(`graph-${graph[1]}`);
    if (outer) { outer.open_up(); outer.open = true; }
    const target = id && document.getElementById(id);
    if (!target) return;
    if (target.open_up) { target.open_up(); target.open = true; }
    target.classList.remove("hidden");
    target.scrollIntoView();
  }
  const root = document.documentElement;
  const theme = (name) => root.setAttribute("data-theme", name);
  theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.getElementById("theme").addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));
  document.getElementById("search").addEventListener("input", search);
  window.addEventListener("hashchange", go);
  window.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement.tagName !== "INPUT") {
      event.preventDefault();
      document.getElementById("search").focus();
    }
  });

  document.title = `Burnish report: ${data.program}`;
  summary(); timeline(); functionList(); breakList(); missList(); lineList(); kernelTable(); graphList(); contestTable(); noteList(); pluginSections();
  document.body.dataset.ready = "yes";
  go();
})();
