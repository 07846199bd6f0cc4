"use strict";
// The page of one rebalance: `/groups/GROUP/rebalances/KEY`. What happened, step by step; what each member
// did, drawn over time; and what the log does not record.
var konvene = konvene || {};
(() => {
  const { h, s, number, plural, duration, iso, isUnknown, words } = konvene;
  const LANE = 20,
    RULER = 22,
    LEFT = 190,
    NARROW_LEFT = 110,
    COUNTS = 74,
    EDGE = 14,
    MOST = 200; // px; lanes
  const UNKNOWN_AFTER = "–";

  const after = (ms) => (isUnknown(ms) ? UNKNOWN_AFTER : `${ms < 0 ? "−" : "+"}${duration(Math.abs(ms))}`);
  const names = (list) => (list || []).join(", ") || UNKNOWN_AFTER;
  const PARTS = { gone: "departed" };
  const partOf = (row) => PARTS[row.part] || row.part || konvene.UNKNOWN;
  const ms = (id, head) => ({
    id,
    head,
    least: 110,
    num: true,
    key: (row) => row[id],
    text: (row) => after(row[id]),
    optional: (row) => !isUnknown(row[id]),
  });
  const figure = (id, head) => ({
    id,
    head,
    least: 84,
    num: true,
    key: (row) => row[id],
    text: (row) => (isUnknown(row[id]) ? UNKNOWN_AFTER : number(row[id])),
  });

  const MEMBERS = [
    { id: "name", head: "Member", least: 180, grow: 2, text: (row) => row.name },
    { id: "part", head: "Change", least: 96, text: partOf },
    figure("before", "Before"),
    figure("after", "After"),
    figure("revoked", "Revoked"),
    figure("added", "Added"),
    ms("joined_ms", "Joined"),
    ms("revoked_ms", "Revoked after"),
    { ...ms("acknowledged_ms", "Reached its target"), least: 128 },
    ms("departed_ms", "Departed"),
    {
      id: "waited_for",
      head: "Waited for",
      least: 160,
      grow: 1,
      text: (row) => names(row.waited_for),
      optional: (row) => (row.waited_for || []).length > 0,
    },
    {
      ...words("states", "States", 220, { grow: 2 }),
      text: (row) => names((row.states || []).map(String)),
      optional: (row) => (row.states || []).length > 0,
    },
  ];

  // --- lanes: what each member did between start and end ---

  // Returns the intervals of a member as [from, to, kind], in ms since the start.
  function intervals(row, length) {
    const from = isUnknown(row.joined_ms) ? 0 : row.joined_ms;
    const to = isUnknown(row.departed_ms) ? length : row.departed_ms;
    if (!isUnknown(row.departed_ms)) return [[from, to, "owns"]];
    const revoked = row.revoked && !isUnknown(row.revoked_ms) ? Math.max(row.revoked_ms, from) : from;
    const done = isUnknown(row.acknowledged_ms) ? to : Math.max(row.acknowledged_ms, revoked);
    return [
      [from, revoked, "revokes"],
      [revoked, done, "waits"],
      [done, to, "owns"],
    ].filter(([a, b]) => b > a);
  }

  const KINDS = [
    ["owns", "assigned"],
    ["revokes", "revoking"],
    ["waits", "waiting"],
  ];

  // Draws the members' lanes; `length` is the duration, of a rebalance in progress up to now.
  function lanes(rows, length, width) {
    const left = width < 560 ? NARROW_LEFT : LEFT,
      right = width - EDGE,
      from = left + COUNTS;
    const x = (at) => from + Math.min(Math.max(at / length, 0), 1) * (right - from);
    const height = RULER + rows.length * LANE + 6,
      letters = Math.floor(left / 7);
    const svg = s("svg", {
      role: "img",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      "aria-label": `What ${plural(rows.length, "member")} did. The table below has the same times.`,
    });
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(
        s("line", { x1: x(part * length), x2: x(part * length), y1: RULER - 4, y2: height, class: "axis" }),
      );
      if (width > 560 || part === 0 || part === 1) {
        svg.append(
          s(
            "text",
            {
              x: x(part * length),
              y: 12,
              "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle",
            },
            part === 0 ? "0" : duration(Math.round(part * length)),
          ),
        );
      }
    }
    rows.forEach((row, i) => {
      const y = RULER + i * LANE,
        name = row.name.length > letters ? `${row.name.slice(0, letters - 1)}…` : row.name;
      svg.append(
        s("text", { x: 4, y: y + 13, class: "lane" }, name, s("title", {}, row.name)),
        s(
          "text",
          { x: from - 12, y: y + 13, "text-anchor": "end", class: "lane" },
          `${isUnknown(row.before) ? "?" : row.before} → ${isUnknown(row.after) ? "?" : row.after}`,
        ),
      );
      for (const [a, b, kind] of intervals(row, length)) {
        svg.append(
          s(
            "rect",
            { x: x(a), y: y + 4, width: Math.max(x(b) - x(a), 1), height: LANE - 8, class: `during ${kind}` },
            s(
              "title",
              {},
              `${row.name}: ${KINDS.find(([each]) => each === kind)[1]} from ${after(a)} to ${after(b)}`,
            ),
          ),
        );
      }
      const marks = [
        [row.joined_ms, "joined", "+"],
        [row.acknowledged_ms, "converged", "✓"],
        [row.departed_ms, "departed", "×"],
      ];
      for (const [at, kind, letter] of marks) {
        if (isUnknown(at)) continue;
        svg.append(
          s(
            "text",
            { x: x(at), y: y + 14, "text-anchor": "middle", class: `mark ${kind}` },
            letter,
            s("title", {}, `${row.name} ${kind} ${after(at)}`),
          ),
        );
      }
    });
    return svg;
  }

  const legend = () =>
    h(
      "div",
      { class: "legend", role: "group", "aria-label": "Legend" },
      KINDS.map(([kind, text]) => h("span", {}, h("i", { class: `during ${kind}` }), text)),
      [
        ["+", "joined"],
        ["✓", "converged"],
        ["×", "departed"],
      ].map(([letter, text]) => h("span", {}, h("b", {}, letter), ` ${text}`)),
    );

  // --- the page ---

  class RebalancePage {
    constructor(group, key) {
      this.group = group;
      this.key = key;
      this.title = `Rebalance of ${group === "" ? "(empty id)" : group}`;
      this.view = konvene.live("rebalance", { group, key });
      this.build();
      this.view.on(["facts"], () => this.drawFacts());
      this.view.on(["steps"], () => this.drawSteps());
      this.view.on(["unknown"], () => this.drawUnknown());
      this.view.on(["members", "facts"], (changed) => {
        if (changed.has("members")) this.grid.update(this.view.section("members"), changed.get("members"));
        this.isStale = true;
        this.drawLanes();
      });
      this.timer = setInterval(() => this.tick(), 1000);
    }

    build() {
      this.heading = h("h1", {}, this.title);
      this.tags = h("span", { class: "tags" });
      this.sentence = h("p", { class: "lead" });
      this.note = h("p", { class: "soft" });
      this.missing = h("p", { class: "notice", hidden: true });
      this.around = h("nav", { class: "around", "aria-label": "Other rebalances of this group" });
      this.facts = konvene.facts([
        ["start", "Started (UTC)"],
        ["end", "Ended (UTC)"],
        ["took", "Took"],
        ["epoch", "Epoch"],
        ["cause", "Cause"],
      ]);
      this.steps = h("ol", { class: "steps" });
      this.lanesPlace = h("div", {
        class: "frame chart lanes",
        tabindex: "0",
        role: "region",
        "aria-label": "Members over time",
      });
      this.leftOut = h("p", { class: "soft small", hidden: true });
      this.unknown = h("section", { hidden: true });
      this.grid = konvene.grid("members", MEMBERS, {
        label: "Members",
        noun: "member",
        sort: "name",
        empty: "No members are known.",
        words: (row) => [row.name, partOf(row), names(row.waited_for)].join(" "),
      });
      this.stepsPlace = h("section", {}, h("h2", {}, "Step by step"), this.steps);
      this.membersPlace = h(
        "section",
        {},
        h("h2", {}, "Members"),
        this.lanesPlace,
        legend(),
        this.leftOut,
        h("div", { class: "bar" }, this.grid.count),
        this.grid.node,
      );
      this.node = h(
        "div",
        {},
        h(
          "p",
          { class: "crumbs small" },
          h("a", { href: "/" }, "Groups"),
          " / ",
          h("a", { href: konvene.path("groups", this.group) }, this.group || "(empty id)"),
          " / ",
        ),
        h("div", { class: "title" }, this.heading, this.tags, this.around),
        this.missing,
        this.sentence,
        this.note,
        this.facts.node,
        this.stepsPlace,
        this.membersPlace,
        this.unknown,
      );
      this.observer = new ResizeObserver(() => {
        this.isStale = true;
        this.drawLanes();
      });
      this.observer.observe(this.lanesPlace);
    }

    drawFacts() {
      const { view } = this,
        fact = (name) => view.fact(name);
      konvene.shell.facts(view);
      const exists = fact("exists") !== false;
      this.missing.hidden = exists;
      konvene.setText(
        this.missing,
        exists
          ? ""
          : "This rebalance is not known: the log does not contain it (any more), or it is not read yet.",
      );
      for (const part of [this.facts.node, this.stepsPlace, this.membersPlace]) part.hidden = !exists;
      konvene.setText(this.heading, fact("title") || this.title);
      konvene.shell.title(fact("title") || this.title);
      konvene.setText(this.sentence, fact("sentence") || "");
      konvene.setText(this.note, fact("note") || "");
      this.note.hidden = !fact("note");
      this.facts.set("start", iso(fact("start_ms")));
      this.facts.set("end", fact("open") ? "in progress" : iso(fact("end_ms")));
      this.drawTook();
      this.facts.set(
        "epoch",
        konvene.epochs({ from_epoch: fact("from_epoch"), epoch: konvene.known(fact("epoch")) }),
      );
      this.facts.set("cause", konvene.known(fact("cause")));
      const signature = JSON.stringify(["open", "evidence", "previous", "next", "left_out"].map(fact));
      if (signature === this.signature) return;
      this.signature = signature;
      konvene.replace(this.tags, konvene.progress(fact("open")), konvene.evidence(fact("evidence")));
      const link = (key, text, rel) =>
        isUnknown(key)
          ? h("span", { class: "soft" }, text)
          : h("a", { href: konvene.path("groups", this.group, "rebalances", key), rel }, text);
      this.around.replaceChildren(
        link(fact("previous"), "← Previous", "prev"),
        link(fact("next"), "Next →", "next"),
      );
      this.leftOut.hidden = !fact("left_out");
      this.leftOut.textContent = fact("left_out") ? `${plural(fact("left_out"), "member")} not listed.` : "";
    }

    length() {
      const { view } = this,
        start = view.fact("start_ms");
      if (!isUnknown(view.fact("duration_ms")) && !view.fact("open")) return view.fact("duration_ms");
      return view.fact("open") && !isUnknown(start) ? Math.max(konvene.now() - start, 1) : null;
    }

    drawTook() {
      const length = this.length();
      this.facts.set(
        "took",
        isUnknown(length)
          ? konvene.UNKNOWN
          : this.view.fact("open")
            ? `${duration(Math.floor(length / 1000) * 1000)} so far`
            : duration(length),
      );
    }

    drawSteps() {
      const steps = [...this.view.section("steps")]
        .sort((a, b) => Number(a[0]) - Number(b[0]))
        .map(([, step]) => step);
      this.stepsPlace.hidden = !steps.length;
      const items = steps.map((step) =>
        h(
          "li",
          {},
          h(
            "span",
            {
              class: "at",
              title: isUnknown(step.ms)
                ? null
                : `${new Date(step.ms).toISOString().replace("T", " ").replace("Z", "")} UTC`,
            },
            isUnknown(step.after_ms) ? "time unknown" : after(step.after_ms),
          ),
          h("span", {}, step.text),
        ),
      );
      items.forEach((item, i) => {
        const former = this.steps.children[i];
        if (!former) this.steps.append(item);
        else if (!former.isEqualNode(item)) former.replaceWith(item);
      });
      while (this.steps.children.length > items.length) this.steps.lastElementChild.remove();
    }

    drawLanes() {
      if (document.hidden || !this.isStale || !this.view.ready) return;
      const now = performance.now(),
        length = this.length();
      const width = this.lanesPlace.clientWidth - 28;
      const isFresh = this.drawnAt !== undefined && now - this.drawnAt < 900;
      if (isFresh && width === this.drawnWidth) return; // The next tick draws it.
      if (width <= 0) return;
      Object.assign(this, { drawnAt: now, drawnWidth: width, isStale: false });
      const rows = [...this.view.section("members").values()].slice(0, MOST);
      this.lanesPlace.hidden = !length || !rows.length;
      if (!this.lanesPlace.hidden) this.lanesPlace.replaceChildren(lanes(rows, length, Math.max(width, 300)));
    }

    drawUnknown() {
      const texts = [...this.view.section("unknown").values()];
      this.unknown.hidden = !texts.length;
      this.unknown.replaceChildren(
        h("h2", {}, "What the log does not record"),
        h(
          "ul",
          {},
          texts.map((text) => h("li", {}, text)),
        ),
      );
    }

    tick() {
      if (document.hidden) return;
      if (this.view.fact("open")) {
        this.drawTook();
        this.isStale = true;
      }
      this.drawLanes();
    }

    close() {
      clearInterval(this.timer);
      this.observer.disconnect();
      this.view.close();
      this.grid.close();
    }
  }

  konvene.rebalancePage = (group, key) => {
    const page = new RebalancePage(group, key);
    return {
      title: page.title,
      node: page.node,
      shown: () => konvene.shell.filter((text) => page.grid.setFilter(text)),
      close: () => page.close(),
    };
  };
})();
