"use strict";
// The drawing of a group over time, which `chart.js` moves and zooms: axis, health, lanes of units with their
// owners, redeliveries, lag, storms and marks of rebalances, in one SVG, and the legend of its colours.
var konvene = konvene || {};
(() => {
  const { h, s, number, plural, family, health, FAMILIES, LEVELS } = konvene;

  // Heights and widths in pixels.
  const RIGHT = 14;
  const HEALTH = 12;
  const MARKS = 30;
  const REDELIVERIES = 34;
  const LAG = 76;
  const AXIS = 24;
  const GAP = 14;
  const PADDING = 28; // of the frame, left and right together
  const NARROW = 560;

  const COLOURS = 12; // --m0 to --m11 in page.css
  const LEGEND_NAMES = 14;
  const MINUTE = 60000;
  const DAY = 86400000;
  const MONTH = 2592000000;
  const STEPS = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000,
    900000, 1800000, 3600000, 7200000, 10800000, 21600000, 43200000, DAY, 2 * DAY, 7 * DAY, MONTH,
  ];
  let drawings = 0; // for ids

  class Drawing {
    constructor(options) {
      this.options = options;
      this.id = drawings++;
      this.colours = new Map(); // owner -> index
      this.zoomed = null; // [from, to] or null for all
      this.picked = null; // key of a rebalance
      this.drag = null; // {from, to} in pixels
      this.svg = s("svg", { role: "img", tabindex: "0" });
      this.node = h("div", { class: "frame chart" }, this.svg);
      this.legend = h("div", {});
    }

    setDetail(detail) {
      this.detail = detail;
      this.storms = detail.storms || this.options.storms || [];
      this.lag = detail.lag || [];
      this.health = detail.health || [];
      this.redeliveries = (detail.redeliveries && detail.redeliveries.sums) || [];
      for (const name of detail.names || []) this.colourIndex(name);
      for (const { spans } of detail.lanes) {
        for (const [, , owner] of spans) if (owner !== null) this.colourIndex(owner);
      }
      this.layOut();
      this.svg.setAttribute("aria-label",
        `Timeline of ${detail.id}: ${plural(detail.rebalances.length, "rebalance")}. ` +
        "Left and right step through them, plus and minus zoom, 0 shows all.");
      this.legend.replaceChildren(...this.legends());
    }

    // Sets `rows`, the y coordinate of each part that is drawn.
    layOut() {
      const lanes = this.detail.lanes.length;
      this.laneHeight = lanes > 48 ? 6 : lanes > 20 ? 10 : 15;
      const rows = {};
      let y = 4;
      const add = (name, height) => {
        rows[name] = y;
        y += height;
      };
      if (this.health.length) add("health", HEALTH + 6);
      add("marks", MARKS + GAP - 6);
      add("lanes", lanes * this.laneHeight + (lanes ? GAP : 0));
      if (this.redeliveries.length) add("redeliveries", REDELIVERIES + GAP - 4);
      if (this.lag.length) add("lag", LAG + 6);
      add("axis", AXIS);
      this.rows = rows;
      this.height = y;
    }

    isWithinRedeliveries(y) {
      const { redeliveries: top } = this.rows;
      return top !== undefined && y >= top && y < top + REDELIVERIES;
    }

    // --- time and width ---

    // Returns the clock of a live chart.
    now() {
      return this.options.now ? this.options.now() : Date.now();
    }

    // Returns the time of an end, which is null while it lasts.
    end(ms) {
      return ms === null || ms === undefined ? this.limit : ms;
    }

    // Returns the time that the chart shows without zoom.
    whole() {
      const { live, window_ms: length } = this.options;
      const to = live ? this.now() : this.detail.to_ms;
      const from = live && length ? to - length : this.detail.from_ms;
      const pad = Math.max((to - from) * 0.012, 1);
      return live ? [from, to] : [from - pad, to + pad];
    }

    x(ms) {
      return this.left + (ms - this.low) / (this.high - this.low) * (this.right - this.left);
    }

    time(px) {
      return this.low + (px - this.left) / (this.right - this.left) * (this.high - this.low);
    }

    // Returns the width of so many milliseconds.
    breadth(ms) {
      return ms / (this.high - this.low) * (this.right - this.left);
    }

    // Returns both x coordinates of an interval, cut at the edges of the drawing.
    cut(from, to) {
      return [Math.max(this.x(from), this.left), Math.min(this.x(to), this.right)];
    }

    isOutside(from, to) {
      return to < this.low || from > this.high;
    }

    room() {
      return Math.max(this.node.clientWidth - PADDING, 240);
    }

    // --- colours ---

    colourIndex(name) {
      if (!this.colours.has(name)) this.colours.set(name, this.colours.size);
      return this.colours.get(name);
    }

    colour(owner) {
      return owner === null ? "var(--several)" : `var(--m${this.colourIndex(owner) % COLOURS})`;
    }

    // --- drawing ---

    draw() {
      this.width = this.room();
      this.left = this.width < NARROW ? 84 : 132;
      this.right = this.width - RIGHT;
      const whole = this.whole();
      [this.low, this.high] = this.zoomed || whole;
      this.limit = this.options.live ? this.now() : this.detail.to_ms;
      this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
      this.svg.setAttribute("height", this.height);
      this.svg.replaceChildren();
      this.drawAxis();
      if (this.rows.health !== undefined) this.drawHealth();
      this.drawLanes();
      if (this.rows.redeliveries !== undefined) this.drawRedeliveries();
      if (this.rows.lag !== undefined) this.drawLag();
      this.drawStorms();
      this.drawMarks();
      this.drawPicked();
      if (this.drag) this.drawBand();
    }

    // Adds the label of a part, left of it; `full` is shown when the pointer rests on it.
    label(text, middle, cls, full) {
      const letters = this.left < 100 ? 11 : 20;
      const shown = text.length > letters ? `…${text.slice(1 - letters)}` : text;
      this.svg.append(s("text",
        { x: this.left - 10, y: middle, "text-anchor": "end", "dominant-baseline": "middle", class: cls },
        shown, full || shown !== text ? s("title", {}, full || text) : null));
    }

    drawAxis() {
      const { rows, svg, low, high } = this;
      const span = high - low;
      const count = Math.max((this.width - this.left) / 120, 2);
      const step = STEPS.find((each) => span / each <= count) || MONTH * Math.ceil(span / MONTH / 8);
      for (let ms = Math.ceil(low / step) * step; ms <= high; ms += step) {
        const x = this.x(ms);
        svg.append(s("line", { x1: x, x2: x, y1: 2, y2: rows.axis, class: "axis" }));
        if (x > this.left + 28) {
          svg.append(s("text", { x, y: rows.axis + 16, "text-anchor": "middle" }, tick(ms, step)));
        }
      }
      this.label(`${new Date(low).toISOString().slice(0, 10)}${this.left < 100 ? "" : " UTC"}`,
        rows.axis + 12);
    }

    drawHealth() {
      const y = this.rows.health;
      this.label("health", y + HEALTH / 2);
      const [from, to] = this.cut(this.detail.from_ms, this.limit);
      this.svg.append(s("rect", {
        x: from, y, width: Math.max(to - from, 0), height: HEALTH, rx: 2, fill: "var(--good)", opacity: 0.22,
      }));
      const width = Math.max(this.breadth(MINUTE), 2.5);
      for (const [ms, score] of this.health) {
        if (this.isOutside(ms, ms + MINUTE)) continue;
        const x = Math.max(this.x(ms), this.left);
        this.svg.append(s("rect", { x, y, width, height: HEALTH, fill: `var(--${health(score)})` }));
      }
    }

    drawLanes() {
      const paths = new Map(); // owner -> parts of its path
      const gaps = [];
      const tall = this.laneHeight - (this.laneHeight > 8 ? 3 : 1);
      const box = (a, b, top) => {
        const wide = b - a;
        return `M${a.toFixed(1)} ${top}h${wide.toFixed(1)}v${tall}h${(-wide).toFixed(1)}z`;
      };
      let previous = "";
      this.detail.lanes.forEach((lane, i) => {
        const top = this.rows.lanes + i * this.laneHeight;
        previous = this.drawLaneLabel(lane.name, previous, top + tall / 2 + 0.5);
        for (const [from, until, owner] of lane.spans) {
          const to = this.end(until);
          if (this.isOutside(from, to)) continue;
          const [a, b] = this.cut(from, to);
          if (b - a < 0.25) continue;
          if (!paths.has(owner)) paths.set(owner, []);
          paths.get(owner).push(box(a, b, top));
        }
        for (const [from, until] of lane.gaps) {
          const to = this.end(until);
          if (this.isOutside(from, to)) continue;
          const [a, b] = this.cut(from, to);
          if (b - a >= 1) gaps.push(box(a, b, top));
        }
      });
      for (const [owner, parts] of paths) {
        this.svg.append(s("path", { d: parts.join(""), fill: this.colour(owner) }));
      }
      if (gaps.length) {
        const d = gaps.join("");
        this.svg.append(s("path", { d, fill: "var(--card)" }),
          s("path", { d, fill: "var(--gap)", opacity: 0.28, class: "gaps" }));
      }
    }

    // Labels a lane, or, where lanes are low, the first of a topic; returns the topic.
    drawLaneLabel(name, previous, middle) {
      const topic = name.replace(/[:_]\d+( |$).*/, "");
      const tall = this.laneHeight >= 10;
      if (tall || topic !== previous) this.label(tall ? name : topic, middle, "lane");
      return topic;
    }

    drawRedeliveries() {
      const top = this.rows.redeliveries;
      const { interval_ms: interval } = this.detail.redeliveries;
      this.label("redelivered", top + REDELIVERIES / 2, null, "redelivered and archived records");
      const most = Math.max(...this.redeliveries.map(([, redelivered, archived]) => redelivered + archived));
      const wide = Math.max(this.breadth(interval) - 0.5, 2.5);
      for (const [ms, redelivered, archived] of this.redeliveries) {
        if (this.isOutside(ms, ms + interval)) continue;
        const x = Math.max(this.x(ms), this.left);
        const width = Math.max(Math.min(wide, this.right - x), 0);
        let y = top + REDELIVERIES;
        for (const [count, name] of [[redelivered, "redelivered"], [archived, "archived"]]) {
          const height = REDELIVERIES * count / most;
          y -= height;
          if (count) {
            this.svg.append(s("rect", { x, y, width, height, fill: `var(--${name})`, class: name }));
          }
        }
      }
    }

    drawLag() {
      const { lag: points, left, right, svg } = this;
      const top = this.rows.lag;
      const bottom = top + LAG;
      const most = Math.max(1, ...points.map((point) => point[1]));
      this.label("lag", top + 14);
      this.label(number(most), top + 30);
      const shown = points.filter(([ms], i) =>
        (points[i + 1] || [ms])[0] >= this.low && (points[i - 1] || [ms])[0] <= this.high);
      if (shown.length) {
        const y = (value) => bottom - value / most * (LAG - 6);
        const at = ([ms, value]) => `${this.x(ms).toFixed(1)} ${y(value).toFixed(1)}`;
        const line = `M${shown.map(at).join("L")}`;
        const [first, last] = [shown[0], shown[shown.length - 1]].map(([ms]) => this.x(ms).toFixed(1));
        const clip = `clip-${this.id}`;
        svg.append(
          s("clipPath", { id: clip }, s("rect", { x: left, y: top, width: right - left, height: LAG + 1 })),
          s("g", { "clip-path": `url(#${clip})` },
            s("path", {
              d: `${line}L${last} ${bottom}L${first} ${bottom}z`, fill: "var(--lag)", opacity: 0.18,
            }),
            s("path", {
              d: line, fill: "none", stroke: "var(--lag)", "stroke-width": 1.4, "stroke-linejoin": "round",
            })));
      }
      svg.append(s("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }));
    }

    drawStorms() {
      for (const [from, until] of this.storms) {
        const to = this.end(until);
        if (this.isOutside(from, to)) continue;
        const [a, b] = this.cut(from, to);
        this.svg.append(s("rect", {
          x: a - 2, y: this.rows.marks - 3, width: Math.max(b - a, 1) + 4, height: MARKS + 4, rx: 3,
          fill: "var(--bad)", opacity: 0.13, class: "storm",
        }));
      }
    }

    // Draws a mark for each rebalance; rebalances at the same place are stacked by family of cause.
    drawMarks() {
      const { rows, svg } = this;
      const bottom = rows.marks + MARKS;
      this.label("rebalances", rows.marks + MARKS / 2);
      const bins = this.bins();
      const most = Math.max(1, ...[...bins.values()].map((each) => each.length));
      const paths = {}; // by family
      const lines = [];
      for (const [bin, rebalances] of bins) {
        const x = bin * 3;
        const tall = most === 1 ? MARKS : 8 + (MARKS - 8) * rebalances.length / most;
        const counts = {};
        for (const { cause } of rebalances) counts[family(cause)] = (counts[family(cause)] || 0) + 1;
        let y = bottom;
        for (const name of Object.keys(FAMILIES)) {
          if (!counts[name]) continue;
          const part = tall * counts[name] / rebalances.length;
          y -= part;
          (paths[name] = paths[name] || []).push(`M${x - 1} ${y.toFixed(1)}h2v${part.toFixed(1)}h-2z`);
        }
        if (bins.size <= 160) lines.push(`M${x} ${bottom}V${this.bottom()}`);
      }
      if (lines.length) {
        svg.append(s("path", {
          d: lines.join(""), stroke: "var(--ink)", "stroke-width": 0.7, opacity: 0.28, fill: "none",
        }));
      }
      for (const [name, parts] of Object.entries(paths)) {
        svg.append(s("path", { d: parts.join(""), fill: `var(--${name})` }));
      }
    }

    // Returns the rebalances in sight by place, in steps of 3 pixels.
    bins() {
      const bins = new Map();
      for (const rebalance of this.detail.rebalances) {
        const x = this.x(rebalance.at_ms);
        if (x < this.left - 1 || x > this.right + 1) continue;
        const bin = Math.round(x / 3);
        if (!bins.has(bin)) bins.set(bin, []);
        bins.get(bin).push(rebalance);
      }
      return bins;
    }

    // Returns the y coordinate to which lines of rebalances reach.
    bottom() {
      return this.rows.lag === undefined ? this.rows.axis : this.rows.lag + LAG;
    }

    drawPicked() {
      const rebalance = this.pickedRebalance();
      if (!rebalance) return;
      const a = this.x(rebalance.at_ms);
      const b = Math.max(this.x(this.end(rebalance.until_ms)), a + 1);
      if (b < this.left || a > this.right) return;
      const { marks } = this.rows;
      const from = Math.max(a, this.left);
      this.svg.append(
        s("rect", {
          x: from, y: marks - 2, width: Math.max(Math.min(b, this.right) - from, 1),
          height: this.bottom() - marks + 2, fill: "var(--accent)", opacity: 0.16,
        }));
      if (a >= this.left) {
        this.svg.append(s("line", {
          x1: a, x2: a, y1: marks - 3, y2: this.bottom(), stroke: "var(--accent)", "stroke-width": 1.6,
          class: "picked",
        }));
      }
    }

    pickedRebalance() {
      return this.detail.rebalances.find(({ key }) => key === this.picked);
    }

    // Draws the time that the pointer is selecting.
    drawBand() {
      const old = this.svg.querySelector(".band");
      if (old) old.remove();
      const { from, to } = this.drag;
      const a = Math.max(Math.min(from, to), this.left);
      const b = Math.min(Math.max(from, to), this.right);
      this.svg.append(s("rect", {
        class: "band", x: a, y: 0, width: Math.max(b - a, 0), height: this.rows.axis, fill: "var(--accent)",
        opacity: 0.14,
      }));
    }

    // --- the legend ---

    legends() {
      const { lanes, rebalances } = this.detail;
      const families = new Set(rebalances.map(({ cause }) => family(cause)));
      const causes = Object.keys(FAMILIES)
        .filter((name) => families.has(name)).map((name) => key(name, FAMILIES[name].label));
      if (this.storms.length) causes.push(key("bad", "storm: 5 or more rebalances in 10 min", 0.3));
      ["redelivered", "archived"].forEach((name, i) => {
        if (this.redeliveries.some((sum) => sum[i + 1])) causes.push(key(name, name));
      });
      const levels = this.health.length
        ? Object.keys(LEVELS).map((name) => key(name, LEVELS[name].label)) : [];
      const names = [...this.colours.keys()];
      const owners = names.slice(0, LEGEND_NAMES).map((name, i) => key(`m${i % COLOURS}`, name));
      const more = names.length - owners.length;
      if (more > 0) owners.push(h("span", {}, `and ${plural(more, "more member")}`));
      if (lanes.some(({ spans }) => spans.some((span) => span[2] === null))) {
        owners.push(key("several", "several, briefly each"));
      }
      if (lanes.some(({ gaps }) => gaps.length)) owners.push(key("gap", "unassigned", 0.4));
      return [["Causes", causes], ["Health", levels], ["Members", owners]]
        .filter(([, keys]) => keys.length)
        .map(([name, keys]) => h("div", { class: "legend", role: "group", "aria-label": name },
          h("b", {}, name), keys));
    }
  }

  // Returns an entry of a legend: a patch of a colour of page.css, and what it stands for.
  function key(colour, text, opacity = 1) {
    const style = { background: `var(--${colour})`, opacity: String(opacity) };
    return h("span", {}, h("i", { style }), text);
  }

  // Returns the text of a tick of the axis.
  function tick(ms, step) {
    const text = new Date(ms).toISOString();
    if (step >= DAY || (step >= MINUTE && ms % DAY === 0)) return text.slice(0, 10);
    if (step >= MINUTE) return text.slice(11, 16);
    return step >= 1000 ? text.slice(11, 19) : text.slice(11, 23);
  }

  Object.assign(konvene, { Drawing });
})();
