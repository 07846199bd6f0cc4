"use strict";
// Draws the page from its JSON. Strings from a log are inserted as text (`textContent`), never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = Object.fromEntries(data.columns.map((name, i) => [name, i]));
  const SVG = "http://www.w3.org/2000/svg";
  const COLOURS = 12;
  const FEW = 100; // rows of a table before "Show more"

  // --- elements ---

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) {
      if (child === null || child === undefined) continue;
      node.append(child.nodeType ? child : document.createTextNode(String(child)));
    }
    return node;
  }
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  // --- formats ---

  const number = (value) => value.toLocaleString("en-US");
  const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
  function duration(ms) {
    if (ms === null || ms === undefined) return "–";
    if (ms < 1000) return `${ms} ms`;
    if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
    if (ms < 7200000) return `${Math.floor(ms / 60000)} min ${Math.floor(ms % 60000 / 1000)} s`;
    return `${Math.floor(ms / 3600000)} h ${Math.floor(ms % 3600000 / 60000)} min`;
  }
  const seconds = (ms) => (ms === null || ms === undefined ? "–" : ms < 100000 ? (ms / 1000).toFixed(1) : number(Math.round(ms / 1000)));
  const iso = (ms) => (ms < 0 ? "unknown" : new Date(ms).toISOString().replace("T", " ").slice(0, 19));
  const FAMILIES = {
    join: ["joined", /^(member-joined|static-member-rejoins|upgraded|downgraded)/],
    leave: ["left or removed", /^(member-left|member-gone|removed-by-admin)/],
    lost: ["timed out or fenced", /(session-expired|timeout|fenced)/],
    change: ["metadata changed", /(changed|refreshed|topology|leader-rejoined)/],
    other: ["other", /./],
  };
  const family = (cause) => Object.keys(FAMILIES).find((name) => FAMILIES[name][1].test(cause)) || "other";
  const health = (score) => (score >= 90 ? "good" : score >= 70 ? "fair" : score >= 40 ? "poor" : "bad");

  // --- a table that sorts and filters ---

  // columns: {head, cell(row) -> text or node, key(row) -> what sorts, num, cls}
  function table(name, columns, rows, options) {
    let shown = rows.slice(), limit = FEW, sorted = null, descending = false, needle = "", choice = "";
    const body = h("tbody", {});
    const more = h("div", { class: "more", hidden: true });
    const count = h("span", { class: "soft small right", role: "status" });
    const heads = columns.map((column, i) => h("th", { scope: "col", class: column.num ? "num" : null },
      h("button", { type: "button", onclick: () => sort(i) }, column.head)));
    function sort(i) {
      descending = sorted === i ? !descending : Boolean(columns[i].num);
      sorted = i;
      draw();
    }
    function draw() {
      heads.forEach((head, i) => (i === sorted ? head.setAttribute("aria-sort", descending ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
      shown = rows.filter((row) => (!needle || options.text(row).toLowerCase().includes(needle)) && (!choice || options.choice(row) === choice));
      if (sorted !== null) {
        const key = columns[sorted].key, sign = descending ? -1 : 1;
        shown.sort((a, b) => {
          const x = key(a), y = key(b);
          if (x === y) return 0;
          if (x === null || x === undefined) return 1;
          if (y === null || y === undefined) return -1;
          return (x < y ? -1 : 1) * sign;
        });
      }
      body.replaceChildren(...shown.slice(0, limit).map((row) => {
        const line = h("tr", { class: options.pick ? "pick" : null },
          columns.map((column) => h("td", { class: [column.num ? "num" : "", column.cls || ""].join(" ").trim() || null }, column.cell(row))));
        if (options.pick) line.addEventListener("click", () => options.pick(row));
        if (options.current && options.current(row)) line.setAttribute("aria-current", "true");
        return line;
      }));
      more.hidden = shown.length <= limit;
      more.replaceChildren(`${number(shown.length - limit)} more `, h("button", { type: "button", onclick: () => { limit += 400; draw(); } }, "Show more"));
      count.textContent = shown.length === rows.length ? plural(rows.length, options.noun) : `${number(shown.length)} of ${plural(rows.length, options.noun)}`;
    }
    const search = h("input", { type: "search", id: `${name}-filter`, oninput: (event) => { needle = event.target.value.trim().toLowerCase(); limit = FEW; draw(); } });
    const bar = h("div", { class: "bar" }, h("label", { for: `${name}-filter` }, "Filter", search));
    if (options.choices && options.choices.length > 1) {
      bar.append(h("label", { for: `${name}-choice` }, options.choiceName, h("select", { id: `${name}-choice`, onchange: (event) => { choice = event.target.value; limit = FEW; draw(); } },
        h("option", { value: "" }, "all"), options.choices.map((each) => h("option", { value: each }, each)))));
    }
    bar.append(count);
    draw();
    const node = h("div", { id: name }, bar, h("div", { class: "frame" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), body), more));
    return { node, draw };
  }

  // --- a group drawn over time ---

  function chart(detail, onPick) {
    const LEFT = 132, RIGHT = 14, HEALTH = 12, MARKS = 30, GAP = 14, AGAIN = 34, LAG = 76, AXIS = 24;
    const laneHeight = detail.lanes.length > 48 ? 6 : detail.lanes.length > 20 ? 10 : 15;
    const rows = {};
    let y = 4;
    if (detail.health.length) { rows.health = y; y += HEALTH + 6; }
    rows.marks = y; y += MARKS + GAP - 6;
    rows.lanes = y; y += detail.lanes.length * laneHeight + (detail.lanes.length ? GAP : 0);
    if (detail.again.sums.length) { rows.again = y; y += AGAIN + GAP - 4; }
    if (detail.lag.length) { rows.lag = y; y += LAG + 6; }
    rows.axis = y; y += AXIS;
    const height = y;
    const pad = Math.max((detail.to_ms - detail.from_ms) * 0.012, 1);
    const whole = [detail.from_ms - pad, detail.to_ms + pad];
    let [low, high] = whole, width = 1000, picked = -1, drag = null;
    const rebalances = detail.rebalances; // newest first
    const svg = s("svg", { role: "img", tabindex: "0", height, "aria-label": `Timeline of ${detail.id}: ${plural(rebalances.length, "rebalance")}. Left and right step through them, plus and minus zoom, 0 shows all.` });
    const tip = h("div", { class: "tip", hidden: true });
    const box = h("div", { class: "frame chart" }, svg, tip);
    const x = (ms) => LEFT + (ms - low) / (high - low) * (width - LEFT - RIGHT);
    const time = (px) => low + (px - LEFT) / (width - LEFT - RIGHT) * (high - low);

    const breadth = () => Math.max(box.clientWidth - 28, 320);
    function draw() {
      width = breadth();
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.replaceChildren();
      axis();
      if (rows.health !== undefined) strip();
      lanes();
      if (rows.again !== undefined) repeated();
      if (rows.lag !== undefined) curve();
      marks();
    }
    function label(text, middle, cls) {
      const node = s("text", { x: LEFT - 10, y: middle, "text-anchor": "end", "dominant-baseline": "middle", class: cls || null }, text);
      svg.append(node);
      return node;
    }
    function axis() {
      const span = high - low;
      const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000, 900000, 1800000, 3600000, 7200000, 10800000, 21600000, 43200000, 86400000, 172800000, 604800000, 2592000000];
      const step = steps.find((each) => span / each <= Math.max((width - LEFT) / 120, 2)) || 2592000000 * Math.ceil(span / 2592000000 / 8);
      for (let ms = Math.ceil(low / step) * step; ms <= high; ms += step) {
        const text = new Date(ms).toISOString();
        const shown = step >= 86400000 ? text.slice(0, 10) : step >= 60000 ? (ms % 86400000 === 0 ? text.slice(0, 10) : text.slice(11, 16)) : step >= 1000 ? text.slice(11, 19) : text.slice(11, 23);
        svg.append(s("line", { x1: x(ms), x2: x(ms), y1: 2, y2: rows.axis, class: "axis" }));
        if (x(ms) > LEFT + 28) svg.append(s("text", { x: x(ms), y: rows.axis + 16, "text-anchor": "middle" }, shown));
      }
      label(`${new Date(low).toISOString().slice(0, 10)} UTC`, rows.axis + 12);
    }
    function strip() {
      label("health", rows.health + HEALTH / 2);
      svg.append(s("rect", { x: x(Math.max(low, detail.from_ms)), y: rows.health, width: Math.max(x(Math.min(high, detail.to_ms)) - x(Math.max(low, detail.from_ms)), 0), height: HEALTH, rx: 2, fill: "var(--good)", opacity: .22 }));
      const least = Math.max(60000 / (high - low) * (width - LEFT - RIGHT), 2.5);
      for (const [ms, score] of detail.health) {
        if (ms + 60000 < low || ms > high) continue;
        svg.append(s("rect", { x: Math.max(x(ms), LEFT), y: rows.health, width: least, height: HEALTH, fill: `var(--${health(score)})` }));
      }
    }
    function repeated() {
      label("redelivered", rows.again + AGAIN / 2).append(s("title", {}, "redelivered and archived records"));
      const { stretch_ms: stretch, sums } = detail.again;
      const most = Math.max(...sums.map(([, again, up]) => again + up)), bottom = rows.again + AGAIN;
      const least = Math.max(stretch / (high - low) * (width - LEFT - RIGHT) - .5, 2.5);
      for (const [ms, again, up] of sums) {
        if (ms + stretch < low || ms > high) continue;
        let from = bottom;
        for (const [count, cls] of [[again, "again"], [up, "archived"]]) {
          const from_x = Math.max(x(ms), LEFT), tall = AGAIN * count / most;
          from -= tall;
          if (count) svg.append(s("rect", { x: from_x, y: from, width: Math.max(Math.min(least, width - RIGHT - from_x), 0), height: tall, fill: `var(--${cls})`, class: cls }));
        }
      }
    }
    function lanes() {
      const paths = new Map(), gaps = [];
      const cut = (from, to) => [Math.max(x(from), LEFT), Math.min(x(to), width - RIGHT)];
      let previous = "";
      detail.lanes.forEach(([name, spans, unowned], i) => {
        const top = rows.lanes + i * laneHeight, tall = laneHeight - (laneHeight > 8 ? 3 : 1);
        const topic = name.replace(/[:_]\d+( |$).*/, "");
        if (laneHeight >= 10 || topic !== previous) {
          const text = name.length > 20 ? `…${name.slice(-19)}` : name;
          const node = label(laneHeight >= 10 ? text : topic.length > 20 ? `…${topic.slice(-19)}` : topic, top + tall / 2 + .5, "lane");
          node.append(s("title", {}, name));
        }
        previous = topic;
        for (let j = 0; j < spans.length; j += 3) {
          if (spans[j + 1] < low || spans[j] > high) continue;
          const [a, b] = cut(spans[j], spans[j + 1]);
          if (b - a < .25) continue;
          const key = spans[j + 2];
          if (!paths.has(key)) paths.set(key, []);
          paths.get(key).push(`M${a.toFixed(1)} ${top}h${(b - a).toFixed(1)}v${tall}h${(a - b).toFixed(1)}z`);
        }
        for (let j = 0; j < unowned.length; j += 2) {
          if (unowned[j + 1] < low || unowned[j] > high) continue;
          const [a, b] = cut(unowned[j], unowned[j + 1]);
          if (b - a >= 1) gaps.push(`M${a.toFixed(1)} ${top}h${(b - a).toFixed(1)}v${tall}h${(a - b).toFixed(1)}z`);
        }
      });
      for (const [key, parts] of paths) svg.append(s("path", { d: parts.join(""), fill: colour(key) }));
      if (gaps.length) {
        svg.append(s("path", { d: gaps.join(""), fill: "var(--card)" }), s("path", { d: gaps.join(""), fill: "var(--gap)", opacity: .28, class: "gaps" }));
      }
    }
    function curve() {
      const bottom = rows.lag + LAG, points = detail.lag;
      const most = Math.max(1, ...points.map((point) => point[1]));
      label("lag", rows.lag + 14);
      label(number(most), rows.lag + 30);
      const up = (value) => bottom - value / most * (LAG - 6);
      const seen = points.filter(([ms], i) => (points[i + 1] ? points[i + 1][0] : ms) >= low && (points[i - 1] ? points[i - 1][0] : ms) <= high);
      if (seen.length) {
        const d = seen.map(([ms, value], i) => `${i ? "L" : "M"}${x(ms).toFixed(1)} ${up(value).toFixed(1)}`).join("");
        const clip = `clip-${Math.abs(low | 0)}`;
        svg.append(s("clipPath", { id: clip }, s("rect", { x: LEFT, y: rows.lag, width: width - LEFT - RIGHT, height: LAG + 1 })),
          s("g", { "clip-path": `url(#${clip})` },
            s("path", { d: `${d}L${x(seen[seen.length - 1][0]).toFixed(1)} ${bottom}L${x(seen[0][0]).toFixed(1)} ${bottom}z`, fill: "var(--lag)", opacity: .18 }),
            s("path", { d, fill: "none", stroke: "var(--lag)", "stroke-width": 1.4, "stroke-linejoin": "round" })));
      }
      svg.append(s("line", { x1: LEFT, x2: width - RIGHT, y1: bottom, y2: bottom, class: "axis" }));
    }
    function marks() {
      label("rebalances", rows.marks + MARKS / 2);
      for (const [cluster, id, from, to] of data.storms) {
        if (id !== detail.id || cluster !== detail.cluster || to < low || from > high) continue;
        const a = Math.max(x(from), LEFT), b = Math.min(x(to), width - RIGHT);
        svg.append(s("rect", { x: a - 2, y: rows.marks - 3, width: Math.max(b - a, 1) + 4, height: MARKS + 4, rx: 3, fill: "var(--bad)", opacity: .13, class: "storm" }));
      }
      const bins = new Map();
      rebalances.forEach((row, i) => {
        const px = x(row[at.at_ms]);
        if (px < LEFT - 1 || px > width - RIGHT + 1) return;
        const key = Math.round(px / 3);
        if (!bins.has(key)) bins.set(key, []);
        bins.get(key).push(i);
      });
      const most = Math.max(1, ...[...bins.values()].map((each) => each.length));
      const reach = rows.lag !== undefined ? rows.lag + LAG : rows.axis;
      const faint = [], parts = {};
      for (const [key, indexes] of bins) {
        const px = key * 3, tall = most === 1 ? MARKS : 8 + (MARKS - 8) * indexes.length / most;
        const counts = {};
        for (const i of indexes) { const f = family(rebalances[i][at.cause]); counts[f] = (counts[f] || 0) + 1; }
        let from = rows.marks + MARKS;
        for (const f of Object.keys(FAMILIES)) {
          if (!counts[f]) continue;
          const part = tall * counts[f] / indexes.length;
          (parts[f] = parts[f] || []).push(`M${px - 1} ${(from - part).toFixed(1)}h2v${part.toFixed(1)}h-2z`);
          from -= part;
        }
        if (bins.size <= 160) faint.push(`M${px} ${rows.marks + MARKS}V${reach}`);
      }
      if (faint.length) svg.append(s("path", { d: faint.join(""), stroke: "var(--ink)", "stroke-width": .7, opacity: .28, fill: "none" }));
      for (const f of Object.keys(parts)) svg.append(s("path", { d: parts[f].join(""), fill: `var(--${f})` }));
      if (picked >= 0) {
        const row = rebalances[picked], a = x(row[at.at_ms]), b = Math.max(x(row[at.until_ms]), a + 1);
        if (b >= LEFT && a <= width - RIGHT) {
          svg.append(s("rect", { x: a, y: rows.marks - 2, width: b - a, height: reach - rows.marks + 2, fill: "var(--accent)", opacity: .16 }),
            s("line", { x1: a, x2: a, y1: rows.marks - 3, y2: reach, stroke: "var(--accent)", "stroke-width": 1.6, class: "picked" }));
        }
      }
    }
    const colour = (key) => (key < 0 ? "var(--several)" : `var(--m${key % COLOURS})`);
    function owner(lane, ms) {
      const spans = detail.lanes[lane][1];
      for (let j = 0; j < spans.length; j += 3) if (spans[j] <= ms && ms < spans[j + 1]) return spans[j + 2] < 0 ? "several, one after another" : detail.names[spans[j + 2]];
      return "unassigned";
    }
    function hover(event) {
      const place = svg.getBoundingClientRect(), px = event.clientX - place.left, py = event.clientY - place.top;
      if (drag) { band(px); return; }
      if (px < LEFT || px > width - RIGHT) { tip.hidden = true; return; }
      const ms = time(px), lines = [];
      const near = rebalances.map((row, i) => [Math.abs(x(row[at.at_ms]) - px), i]).filter(([far]) => far <= 4).sort((a, b) => a[0] - b[0]);
      if (near.length) {
        const row = rebalances[near[0][1]];
        lines.push(h("b", {}, `${iso(row[at.at_ms])}  ${row[at.from_epoch] < 0 ? "?" : row[at.from_epoch]} → ${row[at.to_epoch]}`), h("div", {}, row[at.sentence]));
        if (near.length > 1) lines.push(h("div", { class: "soft" }, `and ${near.length - 1} more here`));
      } else {
        lines.push(h("b", {}, iso(ms)));
      }
      const lane = Math.floor((py - rows.lanes) / laneHeight);
      if (lane >= 0 && lane < detail.lanes.length) lines.push(h("div", {}, `${detail.lanes[lane][0]}: ${owner(lane, ms)}`));
      if (rows.again !== undefined && py >= rows.again && py < rows.again + AGAIN) {
        const each = detail.again.sums.find(([from]) => from <= ms && ms < from + detail.again.stretch_ms);
        if (each) lines.push(h("div", {}, `${number(each[1])} redelivered, ${number(each[2])} archived`));
      }
      if (rows.lag !== undefined && py >= rows.lag) {
        const point = detail.lag.filter(([each]) => each <= ms).pop();
        if (point) lines.push(h("div", {}, `lag ${number(point[1])}`));
      }
      tip.replaceChildren(...lines);
      tip.hidden = false;
      const room = box.clientWidth;
      tip.style.left = `${Math.min(px + 26, Math.max(room - tip.offsetWidth - 10, 6))}px`;
      tip.style.top = `${Math.min(py + 26, Math.max(box.clientHeight - tip.offsetHeight - 6, 6))}px`;
    }
    function band(px) {
      const old = svg.querySelector(".band");
      if (old) old.remove();
      const a = Math.max(Math.min(drag, px), LEFT), b = Math.min(Math.max(drag, px), width - RIGHT);
      svg.append(s("rect", { class: "band", x: a, y: 0, width: Math.max(b - a, 0), height: rows.axis, fill: "var(--accent)", opacity: .14 }));
    }
    function zoom(from, to) {
      const least = 20;
      if (to - from < least) { const middle = (from + to) / 2; from = middle - least / 2; to = middle + least / 2; }
      low = Math.max(from, whole[0]);
      high = Math.min(to, whole[1]);
      draw();
    }
    function scale(by) {
      const middle = picked >= 0 ? rebalances[picked][at.at_ms] : (low + high) / 2;
      const inside = middle >= low && middle <= high ? middle : (low + high) / 2;
      zoom(inside - (high - low) * by / 2, inside + (high - low) * by / 2);
    }
    function pick(i, silent) {
      picked = i;
      const ms = rebalances[i][at.at_ms];
      if (ms < low || ms > high) { const span = high - low; low = ms - span / 2; high = ms + span / 2; }
      draw();
      if (!silent) onPick(i);
    }
    svg.addEventListener("pointermove", hover);
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
    svg.addEventListener("pointerdown", (event) => { if (event.button === 0) { drag = event.clientX - svg.getBoundingClientRect().left; svg.setPointerCapture(event.pointerId); } });
    svg.addEventListener("pointerup", (event) => {
      const px = event.clientX - svg.getBoundingClientRect().left, from = drag;
      drag = null;
      if (from === null) return;
      if (Math.abs(px - from) > 8) { zoom(time(Math.min(from, px)), time(Math.max(from, px))); return; }
      const near = rebalances.map((row, i) => [Math.abs(x(row[at.at_ms]) - px), i]).sort((a, b) => a[0] - b[0])[0];
      if (near && near[0] <= 8) pick(near[1]); else draw();
    });
    svg.addEventListener("dblclick", () => zoom(...whole));
    svg.addEventListener("keydown", (event) => {
      const last = rebalances.length - 1;
      const moves = { ArrowLeft: () => pick(Math.min(picked + 1, last)), ArrowRight: () => pick(picked < 0 ? 0 : Math.max(picked - 1, 0)), Home: () => pick(last), End: () => pick(0), "+": () => scale(.5), "=": () => scale(.5), "-": () => scale(2), 0: () => zoom(...whole) };
      const move = moves[event.key];
      if (move && (rebalances.length || !/Arrow|Home|End/.test(event.key))) { event.preventDefault(); move(); }
    });
    new ResizeObserver(() => { if (breadth() !== width) draw(); }).observe(box);
    const controls = h("span", { class: "right" },
      h("button", { type: "button", "aria-label": "Zoom in", onclick: () => scale(.5) }, "+"), " ",
      h("button", { type: "button", "aria-label": "Zoom out", onclick: () => scale(2) }, "−"), " ",
      h("button", { type: "button", onclick: () => zoom(...whole) }, "Show all"));
    return { node: box, controls, pick, draw };
  }

  function legend(detail) {
    const used = new Set(detail.rebalances.map((row) => family(row[at.cause])));
    const keys = Object.keys(FAMILIES).filter((name) => used.has(name)).map((name) => h("span", {}, h("i", { style: `background:var(--${name})` }), FAMILIES[name][0]));
    if (data.storms.some(([cluster, id]) => id === detail.id && cluster === detail.cluster)) keys.push(h("span", {}, h("i", { style: "background:var(--bad);opacity:.3" }), "storm: 5 or more rebalances in 10 min"));
    for (const [i, cls, text] of [[1, "again", "redelivered"], [2, "archived", "archived"]]) {
      if (detail.again.sums.some((each) => each[i])) keys.push(h("span", {}, h("i", { style: `background:var(--${cls})` }), text));
    }
    const names = detail.names.slice(0, 14).map((name, i) => h("span", {}, h("i", { style: `background:var(--m${i % COLOURS})` }), name));
    if (detail.names.length > 14) names.push(h("span", {}, `and ${plural(detail.names.length - 14, "more member")}`));
    if (detail.lanes.some((lane) => lane[1].some((value, j) => j % 3 === 2 && value < 0))) names.push(h("span", {}, h("i", { style: "background:var(--several)" }), "several, briefly each"));
    if (detail.lanes.some((lane) => lane[2].length)) names.push(h("span", {}, h("i", { style: "background:var(--gap);opacity:.4" }), "unassigned"));
    return [h("div", { class: "legend", "aria-label": "Causes" }, keys), h("div", { class: "legend", "aria-label": "Members" }, names)];
  }

  // --- a group ---

  function group(detail, row) {
    const details = h("div", { class: "details", "aria-live": "polite" }, h("span", { class: "soft" }, detail.rebalances.length ? "Choose a rebalance: click a mark or a row, or step with ← and → on the timeline." : "This group did not rebalance."));
    let current = -1, list = null;
    function show(i) {
      current = i;
      const r = detail.rebalances[i];
      details.replaceChildren(h("b", {}, `${iso(r[at.at_ms])} UTC · ${r[at.from_epoch] < 0 ? "?" : r[at.from_epoch]} → ${r[at.to_epoch]}`), h("div", {}, r[at.sentence]), ...(r[at.note] ? [h("p", { class: "note" }, r[at.note])] : []));
      if (list) list.draw();
    }
    const drawn = chart(detail, show);
    const rows = detail.rebalances.map((r, i) => ({ r, i }));
    const columns = [
      { head: "Time (UTC)", cls: "time", key: ({ r }) => r[at.at_ms], cell: ({ r, i }) => h("button", { type: "button", class: "link", onclick: () => drawn.pick(i) }, iso(r[at.at_ms])) },
      { head: row.type === "classic" ? "Generation" : "Epoch", num: true, key: ({ r }) => r[at.to_epoch], cell: ({ r }) => r[at.to_epoch] },
      { head: "What happened", cls: "wide", key: ({ r }) => r[at.cause], cell: ({ r }) => [h("span", { class: "dot", style: `background:var(--${family(r[at.cause])})` }), r[at.sentence], r[at.evidence] === "observed" ? null : h("span", { class: "note" }, r[at.note])] },
      { head: "Took", num: true, key: ({ r }) => r[at.duration_ms], cell: ({ r }) => duration(r[at.duration_ms]) },
      { head: "Moved", num: true, key: ({ r }) => r[at.moved], cell: ({ r }) => number(r[at.moved]) },
      { head: "Partition-seconds", num: true, key: ({ r }) => r[at.unavailable_ms], cell: ({ r }) => seconds(r[at.unavailable_ms]) },
      { head: "Lag", num: true, key: ({ r }) => r[at.lag_records], cell: ({ r }) => (r[at.lag_records] === null ? "–" : number(r[at.lag_records])) },
    ];
    const causes = [...new Set(detail.rebalances.map((r) => r[at.cause]))].sort();
    list = table("rebalances", columns, rows, {
      noun: "rebalance", text: ({ r }) => `${r[at.sentence]} ${r[at.cause]} ${r[at.to_epoch]} ${iso(r[at.at_ms])}`, choices: causes, choiceName: "Cause", choice: ({ r }) => r[at.cause],
      pick: ({ i }) => drawn.pick(i), current: ({ i }) => i === current,
    });
    const left = [];
    if (detail.lanes_left_out) left.push(`${plural(detail.lanes_left_out, "partition")} not drawn`);
    if (detail.rebalances_left_out) left.push(`${plural(detail.rebalances_left_out, "older rebalance")} not listed`);
    const node = h("section", { id: "group", "aria-label": `Group ${detail.id}` },
      h("h2", {}, detail.id, h("span", { class: "tag" }, row.type), detail.cluster ? h("span", { class: "tag" }, detail.cluster) : null),
      h("div", { class: "bar" }, h("span", { class: "soft small" }, `${plural(row.rebalances, "rebalance")}, ${plural(row.members, "member")} now, median ${duration(row.median_ms)}, slowest ${duration(row.slowest_ms)}. Drag over the timeline to zoom.`), drawn.controls),
      drawn.node, legend(detail), details,
      left.length ? h("p", { class: "soft small" }, `${left.join(", ")}.`) : null,
      h("h3", {}, "Rebalances of this group"), list.node);
    return { node, draw: drawn.draw };
  }

  // --- the page ---

  const page = document.getElementById("page");
  const figure = (value, what) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, what));
  const detailOf = (row) => data.details.find((each) => each.id === row.id && each.cluster === row.cluster);
  const many = data.groups_left_out + data.groups.length;
  page.append(
    h("header", {}, h("h1", {}, data.title),
      h("p", { class: "soft" }, data.from_ms < 0 ? "No rebalance was found." : `${iso(data.from_ms)} to ${iso(data.to_ms)} UTC`, data.source ? [" · ", h("code", {}, data.source)] : null)),
    h("div", { class: "figures" },
      figure(number(data.rebalances), data.rebalances === 1 ? "rebalance" : "rebalances"), figure(number(many), many === 1 ? "group" : "groups"),
      figure(seconds(data.unavailable_ms), "partition-seconds (partitions × seconds without an owner)"), figure(number(data.storms.length), `storm${data.storms.length === 1 ? "" : "s"} (5 or more rebalances in 10 min)`),
      ...(data.deliveries.partitions.length ? [figure(number(data.deliveries.redelivered), "redeliveries"), figure(number(data.deliveries.archived), "archived records")] : [])));
  if (data.advice.length) {
    const items = data.advice.map(([id, rule, text]) => h("li", {}, h("div", {}, h("b", {}, id), h("span", { class: "tag" }, rule.replace(/-/g, " "))), text));
    const hidden = items.splice(4);
    const list = h("ul", { class: "advice" }, items);
    page.append(h("section", { id: "advice" }, h("h2", {}, "Advice"), list,
      hidden.length ? h("p", {}, h("button", { type: "button", onclick: (event) => { list.append(...hidden); event.target.parentNode.remove(); } }, `Show ${hidden.length} more`)) : null));
  }
  const container = h("div", {});
  let chosen = null;
  const groups = table("groups", [
    { head: "Group", cls: "wide", key: (row) => row.id.toLowerCase(), cell: (row) => (detailOf(row) ? h("button", { type: "button", class: "link", onclick: () => choose(row) }, row.id) : row.id) },
    { head: "Type", key: (row) => row.type, cell: (row) => row.type },
    { head: "Rebalances", num: true, key: (row) => row.rebalances, cell: (row) => number(row.rebalances) },
    { head: "Members", num: true, key: (row) => row.members, cell: (row) => number(row.members) },
    { head: "Median", num: true, key: (row) => row.median_ms, cell: (row) => duration(row.median_ms) },
    { head: "Slowest", num: true, key: (row) => row.slowest_ms, cell: (row) => duration(row.slowest_ms) },
    { head: "Partition-seconds", num: true, key: (row) => row.unavailable_ms, cell: (row) => seconds(row.unavailable_ms) },
    { head: "Moved", num: true, key: (row) => row.moved, cell: (row) => number(row.moved) },
    { head: "Storms", num: true, key: (row) => row.storms, cell: (row) => number(row.storms) },
  ], data.groups, { noun: "group", text: (row) => `${row.id} ${row.type} ${row.cluster}`, choices: [...new Set(data.groups.map((row) => row.type))].sort(), choiceName: "Type", choice: (row) => row.type, pick: (row) => { if (detailOf(row)) choose(row); }, current: (row) => row === chosen });
  function choose(row) {
    if (row === chosen) return;
    chosen = row;
    const shown = group(detailOf(row), row);
    container.replaceChildren(shown.node);
    shown.draw(); // It needs the width of its container.
    groups.draw();
  }
  if (data.groups.length) {
    page.append(h("section", {}, h("h2", {}, "Groups, highest cost first"), groups.node, data.groups_left_out ? h("p", { class: "soft small" }, `${plural(data.groups_left_out, "group")} not listed.`) : null), container);
    const first = data.groups.find(detailOf);
    if (first) choose(first);
  }
  if (data.triggering.length) {
    page.append(h("section", {}, h("h2", {}, "Clients that trigger most rebalances"), table("triggering", [
      { head: "Client", cls: "wide", key: (row) => row[0].toLowerCase(), cell: (row) => row[0] },
      { head: "Group", cls: "wide", key: (row) => row[1].toLowerCase(), cell: (row) => row[1] },
      { head: "Rebalances", num: true, key: (row) => row[2], cell: (row) => `${number(row[2])} of ${number(row[3])}` },
      { head: "Causes", cls: "wide", key: (row) => row[4].length, cell: (row) => row[4].map(([kind, count]) => `${kind} ${count}`).join(", ") },
    ], data.triggering, { noun: "client", text: (row) => row.slice(0, 2).join(" ") }).node));
  }
  if (data.deliveries.partitions.length) {
    const some = data.deliveries, left = [];
    if (some.left_out) left.push(`${plural(some.left_out, "share partition")} not listed`);
    if (some.partitions.some((row) => !row.whole)) left.push("* the log is incomplete: these figures count only the records that remain");
    const amount = (head, name) => ({ head, num: true, key: (row) => row[name], cell: (row) => (row[name] === null ? "–" : number(row[name])) });
    page.append(h("section", { id: "records" }, h("h2", {}, "Deliveries of share groups, problems first"),
      h("p", { class: "soft small" }, "Counted from the share-group state. A record is redelivered after it was released, its lock expired or its member departed: the state does not record which."),
      table("deliveries", [
        { head: "Group", key: (row) => row.group.toLowerCase(), cell: (row) => row.group + (row.whole ? "" : " *") },
        { head: "Share partition", cls: "wide", key: (row) => row.name, cell: (row) => [row.name, row.stuck ? h("span", { class: "tag" }, "stuck") : null, ...row.trouble.map((text) => h("span", { class: "note" }, text))] },
        amount("Start", "start"), amount("Delivered", "delivered"), amount("Redelivered", "again"), amount("Accepted", "accepted"),
        amount("Released", "released"), amount("Archived", "archived"), amount("In flight", "in_flight"), amount("Unknown", "untold"),
        { head: "Blocked for", num: true, key: (row) => row.stood_ms, cell: (row) => duration(row.stood_ms) },
      ], some.partitions, { noun: "share partition", text: (row) => `${row.group} ${row.name} ${row.cluster} ${row.trouble.join(" ")}`, choices: [...new Set(some.partitions.map((row) => row.group))].sort(), choiceName: "Group", choice: (row) => row.group }).node,
      left.length ? h("p", { class: "soft small" }, `${left.join("; ")}.`) : null));
    if (data.minutes.length) {
      const counts = ["Delivered", "Redelivered", "Archived", "Start"].map((head, i) => ({ head, num: true, key: (row) => row[3 + i], cell: (row) => (row[3 + i] === null || row[3 + i] < 0 ? "–" : number(row[3 + i])) }));
      document.getElementById("records").append(h("h3", {}, "Minutes with most redelivered and archived records"), table("minutes", [
        { head: "Minute (UTC)", cls: "time", key: (row) => row[0], cell: (row) => iso(row[0]).slice(0, 16) },
        { head: "Group", key: (row) => row[1].toLowerCase(), cell: (row) => row[1] },
        { head: "Share partition", cls: "wide", key: (row) => row[2], cell: (row) => row[2] }, ...counts,
      ], data.minutes, { noun: "minute", text: (row) => `${row[1]} ${row[2]} ${iso(row[0])}` }).node);
    }
  }
  page.append(h("footer", {}, "Generated by konvene from the logs of a group coordinator. Times are UTC. ", data.caveats.join(" ")));
})();
