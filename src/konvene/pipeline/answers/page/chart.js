"use strict";
// A group over time: its health, rebalances, the owner of each unit, redeliveries and lag (`drawing.js`),
// with zoom, keys and the text at the pointer.
//
// konvene.chart(detail, options) returns {node, controls, legend, pick, draw, update, close}.
//   detail   id            for the label
//            from_ms, to_ms
//            rebalances    newest first: {key, at_ms, until_ms, from_epoch, epoch, cause, sentence}
//            lanes         {name, spans: [[from_ms, to_ms, owner]], gaps: [[from_ms, to_ms]]};
//                          an owner of null stands for several members, each too short to be drawn
//            names         owners in the order of their colours; others follow as they occur
//            lag           [[ms, records]], optional
//            health        [[ms, score]] of minutes, optional
//            redeliveries  {interval_ms, sums: [[ms, redelivered, archived]]}, optional
//            storms        [[from_ms, to_ms]], optional
//   options  onPick(key, rebalance)  called when the user picks a rebalance
//            storms                  of a detail without storms
//            live                    true: the right edge is now, until the user zooms
//            now() -> ms             clock of a live chart; default: Date.now
//            window_ms               length of a live chart; default: from `from_ms` to now
// In a live chart, an end (`to_ms`, `until_ms`) of null is now.
//
// `node` is the drawing, `controls` are buttons that zoom, `legend` explains the colours. `draw` has to be
// called once `node` is in the page, since it needs a width. `update(detail)` replaces the data and keeps the
// zoom, the picked rebalance and the focus. `close` ends a live chart.
var konvene = konvene || {};
(() => {
  const { Drawing, h, iso, epochs, number } = konvene;
  const LEAST_MS = 20; // the shortest time to zoom to

  class Chart extends Drawing {
    constructor(detail, options) {
      super(options);
      this.tip = h("div", { class: "tip", hidden: true });
      this.node.append(this.tip);
      this.controls = this.newControls();
      this.listen();
      this.setDetail(detail);
    }

    update(detail) {
      this.setDetail(detail);
      this.draw();
    }

    // --- zoom ---

    // Shows this time; all, if it is as long as that.
    zoom(from, to) {
      const [first, last] = this.whole();
      if (to - from < LEAST_MS) {
        const middle = (from + to) / 2;
        from = middle - LEAST_MS / 2;
        to = middle + LEAST_MS / 2;
      }
      this.zoomed = from <= first && to >= last ? null : [Math.max(from, first), Math.min(to, last)];
      this.draw();
    }

    showAll() {
      this.zoomed = null;
      this.draw();
    }

    scale(by) {
      const { low, high } = this;
      const rebalance = this.pickedRebalance();
      const middle = (low + high) / 2;
      const inSight = rebalance && rebalance.at_ms >= low && rebalance.at_ms <= high;
      const centre = inSight ? rebalance.at_ms : middle;
      this.zoom(centre - (high - low) * by / 2, centre + (high - low) * by / 2);
    }

    // --- the picked rebalance ---

    // Marks a rebalance and brings it in sight; none if `key` is null. `quiet`: without calling `onPick`.
    pick(key, quiet) {
      this.picked = key;
      const rebalance = this.pickedRebalance();
      if (rebalance) {
        const ms = rebalance.at_ms;
        const half = (this.high - this.low) / 2;
        if (ms >= 0 && (ms < this.low || ms > this.high)) this.zoomed = [ms - half, ms + half];
      }
      this.draw();
      if (rebalance && !quiet && this.options.onPick) this.options.onPick(key, rebalance);
    }

    // Picks the rebalance that is so many steps older than the picked one.
    step(older) {
      const { rebalances } = this.detail;
      const index = rebalances.findIndex(({ key }) => key === this.picked);
      this.pickAt(index < 0 ? 0 : index + older);
    }

    pickAt(index) {
      const { rebalances } = this.detail;
      if (!rebalances.length) return;
      this.pick(rebalances[Math.min(Math.max(index, 0), rebalances.length - 1)].key);
    }

    // Returns the rebalances at most `far` pixels away, the nearest first.
    near(px, far) {
      return this.detail.rebalances
        .map((rebalance) => [Math.abs(this.x(rebalance.at_ms) - px), rebalance])
        .filter(([distance]) => distance <= far)
        .sort((a, b) => a[0] - b[0])
        .map(([, rebalance]) => rebalance);
    }

    // --- pointer and keys ---

    listen() {
      const { svg } = this;
      const px = (event) => event.clientX - svg.getBoundingClientRect().left;
      svg.addEventListener("pointermove", (event) => {
        if (this.drag) {
          this.drag.to = px(event);
          this.drawBand();
        } else {
          this.hover(px(event), event.clientY - svg.getBoundingClientRect().top);
        }
      });
      svg.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      svg.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        this.drag = { from: px(event), to: px(event) };
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener("pointerup", () => this.drop());
      svg.addEventListener("pointercancel", () => {
        this.drag = null;
        this.draw();
      });
      svg.addEventListener("dblclick", () => this.showAll());
      svg.addEventListener("keydown", (event) => this.onKey(event));
      new ResizeObserver(() => { if (this.room() !== this.width) this.draw(); }).observe(this.node);
      if (this.options.live) this.timer = setInterval(() => this.follow(), 1000);
    }

    // Moves a live chart on, once that is a pixel.
    follow() {
      if (this.zoomed || this.drag || document.hidden || !this.node.clientWidth) return;
      const pixel = (this.high - this.low) / (this.right - this.left);
      if (this.now() - this.limit >= pixel) this.draw();
    }

    close() {
      clearInterval(this.timer);
    }

    drop() {
      if (!this.drag) return;
      const { from, to } = this.drag;
      this.drag = null;
      if (Math.abs(to - from) > 8) {
        this.zoom(this.time(Math.min(from, to)), this.time(Math.max(from, to)));
        return;
      }
      const [nearest] = this.near(to, 8);
      if (nearest) this.pick(nearest.key);
      else this.draw();
    }

    onKey(event) {
      const moves = {
        ArrowLeft: () => this.step(1),
        ArrowRight: () => this.step(-1),
        Home: () => this.pickAt(this.detail.rebalances.length - 1),
        End: () => this.pickAt(0),
        "+": () => this.scale(0.5),
        "=": () => this.scale(0.5),
        "-": () => this.scale(2),
        0: () => this.showAll(),
      };
      const move = moves[event.key];
      if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      move();
    }

    // --- the text at the pointer ---

    hover(px, py) {
      if (px < this.left || px > this.right) {
        this.tip.hidden = true;
        return;
      }
      this.tip.replaceChildren(...this.tipLines(px, py));
      this.tip.hidden = false;
      const place = (at, room, size, edge) => `${Math.min(at + 26, Math.max(room - size - edge, 6))}px`;
      this.tip.style.left = place(px, this.node.clientWidth, this.tip.offsetWidth, 10);
      this.tip.style.top = place(py, this.node.clientHeight, this.tip.offsetHeight, 6);
    }

    tipLines(px, py) {
      const { rows, detail } = this;
      const ms = this.time(px);
      const lines = this.tipRebalance(px, ms);
      const lane = detail.lanes[Math.floor((py - rows.lanes) / this.laneHeight)];
      if (lane) lines.push(h("div", {}, `${lane.name}: ${this.owner(lane, ms)}`));
      if (this.isWithinRedeliveries(py)) {
        const { interval_ms: interval } = detail.redeliveries;
        const sum = this.redeliveries.find(([from]) => from <= ms && ms < from + interval);
        if (sum) lines.push(h("div", {}, `${number(sum[1])} redelivered, ${number(sum[2])} archived`));
      }
      if (rows.lag !== undefined && py >= rows.lag) {
        const point = this.lag.filter(([each]) => each <= ms).pop();
        if (point) lines.push(h("div", {}, `lag ${number(point[1])}`));
      }
      return lines;
    }

    tipRebalance(px, ms) {
      const [nearest, ...others] = this.near(px, 4);
      if (!nearest) return [h("b", {}, iso(ms))];
      const lines = [
        h("b", {}, `${iso(nearest.at_ms)}  ${epochs(nearest)}`), h("div", {}, nearest.sentence),
      ];
      if (others.length) lines.push(h("div", { class: "soft" }, `and ${others.length} more here`));
      return lines;
    }

    owner(lane, ms) {
      const span = lane.spans.find(([from, to]) => from <= ms && ms < this.end(to));
      if (!span) return "unassigned";
      return span[2] === null ? "several, one after another" : span[2];
    }

    // --- around the drawing ---

    newControls() {
      const button = (text, label, onclick) =>
        h("button", { type: "button", "aria-label": label, onclick }, text);
      return h("span", { class: "right" },
        button("+", "Zoom in", () => this.scale(0.5)), " ",
        button("−", "Zoom out", () => this.scale(2)), " ",
        button("Show all", null, () => this.showAll()));
    }
  }

  konvene.chart = (detail, options = {}) => {
    const chart = new Chart(detail, options);
    return {
      node: chart.node,
      controls: chart.controls,
      legend: chart.legend,
      pick: (picked, quiet) => chart.pick(picked, quiet),
      draw: () => chart.draw(),
      update: (fresh) => chart.update(fresh),
      close: () => chart.close(),
    };
  };
})();
