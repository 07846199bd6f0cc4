"use strict";
// The page of a group: `/groups/GROUP`. Its tabs: timeline, members, partitions or tasks, rebalances, and
// topology (streams) or records in flight (share).
var konvene = konvene || {};
(() => {
  const { h, number, plural, known, isUnknown } = konvene;
  const columns = konvene.groupColumns;
  const HOUR_MS = 3600000;
  const WINDOWS_MS = [2 * 60000, 10 * 60000, HOUR_MS]; // lengths of the timeline: the shortest that shows all
  const REDRAW_MS = 1000;
  const LAG_MS = 4000; // between redraws if only the lag changes: less than that is not a pixel
  const WAITS = 6; // shown before "and n more"
  const LANES = 96; // drawn; the others are counted

  // --- the page ---

  class GroupPage {
    constructor(id) {
      this.id = id;
      this.title = id === "" ? "(empty id)" : id;
      this.view = konvene.live("group", { group: id });
      this.lag = []; // [ms, records] since the page was opened
      this.announced = null; // keys of rebalances that are known
      this.cause = konvene.choice(
        "cause",
        "Cause",
        (row) => row.cause,
        () => this.rebalances.refilter(),
      );
      this.build();
      this.view.on(["facts"], (changed) => this.takeFacts(changed.get("facts")));
      this.view.on(["waits", "rebalances"], () => this.drawNow());
      this.view.on(["members"], (changed) => this.fill(this.members, "members", changed));
      this.view.on(["rebalances"], (changed) => this.takeRebalances(changed));
      this.view.on(["lanes", "rebalances"], () => {
        this.isChartStale = true;
        this.drawChart();
      });
      this.view.on(["topology", "units", "members"], (changed) => this.takeTopology(changed));
      this.view.on(["units", "facts"], (changed) => this.takeUnits(changed));
      this.view.on(["in_flight"], (changed) => this.fill(this.inFlight, "in_flight", changed));
      this.timer = setInterval(() => this.tick(), 1000);
    }

    build() {
      const { id } = this;
      this.tags = h("span", { class: "tags" });
      this.buttons = h("div", { class: "actions", hidden: true });
      this.facts = konvene.facts([
        ["members", "Members"],
        ["lag", "Lag"],
        ["epoch", "Epoch"],
        ["assignment_epoch", "Assignment epoch"],
        ["assignor", "Assignor"],
        ["protocol_type", "Protocol type"],
        ["heartbeat_policy", "Heartbeat policy"],
        ["dead_letters", "Dead letters"],
        ["coordinator", "Coordinator"],
      ]);
      this.now = h("section", { class: "now", "aria-label": "Now" });
      this.members = konvene.grid("members", columns.MEMBERS, {
        label: "Members",
        noun: "member",
        sort: "name",
        query: "members",
        empty: "The group has no members.",
        words: (row) =>
          [
            row.name,
            row.id,
            row.client_id,
            row.host,
            row.instance_id,
            row.rack,
            row.units,
            row.tags,
            row.process_id,
            columns.assignment(row),
          ].join(" "),
        open: (row) => this.showUnitsOf(row),
      });
      this.rebalances = konvene.grid("rebalances", columns.rebalances(id), {
        label: "Rebalances",
        noun: "rebalance",
        rowHeight: 50,
        sort: "-at",
        query: "rebalances",
        empty: "No rebalance of this group is known.",
        words: (row) => `${row.sentence} ${row.cause} ${row.epoch} ${konvene.iso(row.at_ms)} ${row.evidence}`,
        passes: (row) => this.cause.passes(row),
        href: (row) => konvene.path("groups", id, "rebalances", row.key),
      });
      this.inFlight = konvene.grid("in-flight", columns.IN_FLIGHT, {
        label: "Records in flight",
        noun: "range",
        sort: "partition",
        query: "in-flight",
        empty: "No records are in flight.",
        words: (row) => `${row.partition} ${row.state} ${row.member_name}`,
      });
      this.owner = konvene.query.get("owner");
      this.ownerChip = h("button", { type: "button", class: "chip", onclick: () => this.setOwner(null) });
      this.drawOwner();
      this.newUnits("partition");
      this.topology = konvene.topology();
      this.chartPlace = h("div", {}, h("p", { class: "soft" }, "Reading …"));
      this.unitPanel = h(
        "section",
        {},
        h("div", { class: "bar" }, this.ownerChip, this.units.count),
        this.units.node,
      );
      this.tabs = konvene.tabs("Parts of the group", [
        {
          id: "timeline",
          label: "Timeline",
          panel: h("section", {}, this.chartPlace),
          shown: () => {
            this.isChartStale = true;
            this.drawChart();
            this.refilter();
          },
        },
        {
          id: "members",
          label: "Members",
          panel: this.panel(
            this.members,
            h("span", { class: "soft small" }, "A row opens the partitions or tasks of the member."),
          ),
          shown: () => this.refilter(),
        },
        { id: "units", label: "Partitions", panel: this.unitPanel, shown: () => this.refilter() },
        {
          id: "rebalances",
          label: "Rebalances",
          panel: this.panel(this.rebalances, this.cause.node),
          shown: () => this.refilter(),
        },
        {
          id: "topology",
          label: "Topology",
          panel: h("section", {}, this.topology.node),
          shown: () => {
            this.refilter();
            this.takeTopology(null);
          },
        },
        {
          id: "in-flight",
          label: "In flight",
          panel: this.panel(this.inFlight),
          shown: () => this.refilter(),
        },
      ]);
      this.node = h(
        "div",
        {},
        h("p", { class: "crumbs small" }, h("a", { href: "/" }, "Groups"), " / "),
        h("div", { class: "title" }, h("h1", {}, this.title), this.tags, this.buttons),
        this.facts.node,
        this.now,
        this.tabs.node,
      );
    }

    panel(grid, ...others) {
      return h("section", {}, h("div", { class: "bar" }, others, grid.count), grid.node);
    }

    newUnits(unit) {
      if (this.units && this.unit === unit) return;
      const former = this.units;
      this.unit = unit;
      this.units = konvene.grid("units", columns.units(unit), {
        label: unit === "task" ? "Tasks" : "Partitions",
        noun: unit,
        sort: "name",
        query: "units",
        empty: `The group has no ${unit}s.`,
        words: (row) =>
          [row.name, row.owner_name || "none", ...(row.standbys || []), ...(row.warmups || [])].join(" "),
        passes: (row) => this.isOf(row, this.owner),
      });
      if (!former) return;
      former.close();
      this.unitPanel.replaceChildren(
        h("div", { class: "bar" }, this.ownerChip, this.units.count),
        this.units.node,
      );
    }

    // Returns whether a member has a partition or task, as its owner or with a copy; true for no name.
    isOf(row, name) {
      if (!name) return true;
      const shared = (row.owner_name || "").split(", "); // A share partition may have several.
      return (
        row.owner_name === name || [...shared, ...(row.standbys || []), ...(row.warmups || [])].includes(name)
      );
    }

    setOwner(name) {
      this.owner = name;
      konvene.query.set({ owner: name });
      this.drawOwner();
      this.units.refilter();
    }

    drawOwner() {
      this.ownerChip.hidden = !this.owner;
      this.ownerChip.textContent = `Member ${this.owner} ✕`;
      this.ownerChip.setAttribute("aria-label", `Show all, not only those of ${this.owner}`);
    }

    grid() {
      return {
        members: this.members,
        units: this.units,
        rebalances: this.rebalances,
        "in-flight": this.inFlight,
      }[this.tabs.chosen()];
    }

    shown() {
      this.refilter();
      this.drawChart();
    }

    fit() {
      if (this.grid()) this.grid().fit();
    }

    // The filter box is for the grid in sight.
    refilter() {
      if (this.grid()) konvene.shell.filter((text) => this.grid() && this.grid().setFilter(text));
      else konvene.shell.noFilter();
    }

    showUnitsOf(member) {
      konvene.query.set({ q: null });
      this.setOwner(member.name);
      this.tabs.choose("units", true);
    }

    fill(grid, name, changed) {
      grid.update(this.view.section(name), changed.get(name));
      this.drawTabs();
    }

    // --- header ---

    // The lag changes often; the other facts are drawn only when they change.
    takeFacts(keys) {
      const lag = this.view.fact("lag");
      if (lag !== null) this.sampleLag(lag);
      if (keys.size === 1 && keys.has("lag")) this.drawLag();
      else this.drawFacts();
    }

    drawLag() {
      const lag = this.view.fact("lag"),
        isHidden = lag === null && this.view.fact("type") === "streams";
      this.facts.set("lag", isHidden ? null : number(lag));
    }

    drawFacts() {
      const { view } = this,
        fact = (name) => view.fact(name);
      konvene.shell.facts(view);
      const exists = fact("exists");
      this.facts.set("members", number(fact("members")));
      this.drawLag();
      const deadLetters =
        fact("dead_letter_topic") === null
          ? null
          : `${number(fact("dead_letters"))} in ${fact("dead_letter_topic")}`;
      this.facts.set("dead_letters", deadLetters);
      this.facts.node.hidden = exists === false;
      for (const name of [
        "epoch",
        "assignment_epoch",
        "assignor",
        "protocol_type",
        "heartbeat_policy",
        "coordinator",
      ]) {
        const isApplicable = name === "epoch" || name === "coordinator" || fact(name) !== null;
        this.facts.set(name, isApplicable ? known(fact(name)) : null);
      }
      const signature = JSON.stringify(["type", "state", "evidence", "exists", "allow_changes"].map(fact));
      if (signature !== this.signature) {
        this.signature = signature;
        konvene.replace(
          this.tags,
          fact("type") ? konvene.tag(fact("type")) : null,
          exists === false ? null : h("span", { class: "state" }, konvene.state(fact("state"))),
          konvene.evidence(fact("evidence")),
        );
        this.buttons.hidden = !fact("allow_changes") || exists === false;
        this.buttons.replaceChildren(...konvene.groupActions(this.id, view));
        this.tabs.hide("topology", fact("type") !== "streams");
        this.tabs.hide("in-flight", fact("type") !== "share");
      }
      this.newUnits(fact("unit") || "partition");
      this.drawNow();
      this.drawTabs();
      if (this.drawnAt === undefined) this.isChartStale = true; // Draw it even without owners and rebalances.
      this.drawChart();
    }

    sampleLag(lag) {
      const ms = konvene.now(),
        last = this.lag[this.lag.length - 1];
      if (last && ms - last[0] < REDRAW_MS) last[1] = lag;
      else this.lag.push([ms, lag]);
      while (this.lag.length && this.lag[0][0] < ms - HOUR_MS) this.lag.shift();
      this.isLagStale = true;
    }

    drawTabs() {
      const { view } = this,
        size = (name) => number(view.section(name).size);
      this.tabs.label("members", `Members ${size("members")}`);
      this.tabs.label("units", `${this.unit === "task" ? "Tasks" : "Partitions"} ${size("units")}`);
      this.tabs.label("rebalances", `Rebalances ${size("rebalances")}`);
      this.tabs.label("in-flight", `In flight ${size("in_flight")}`);
    }

    // The rebalance in progress, and the members that wait for others.
    drawNow() {
      const { view } = this,
        waits = [...view.section("waits").values()];
      const open = [...view.section("rebalances").values()].filter((row) => row.open);
      const exists = view.fact("exists");
      const signature = JSON.stringify([
        exists,
        open.map((row) => [row.key, row.sentence]),
        waits.slice(0, WAITS),
        waits.length,
      ]);
      if (signature === this.nowSignature) return;
      this.nowSignature = signature;
      const parts = [];
      if (exists === false) parts.push(h("p", { class: "notice" }, "The cluster has no group of this name."));
      for (const row of open) {
        parts.push(
          h(
            "p",
            {},
            konvene.progress(true),
            " ",
            h("a", { href: konvene.path("groups", this.id, "rebalances", row.key) }, row.sentence),
          ),
        );
      }
      if (waits.length) {
        parts.push(
          h("h2", { class: "small" }, "Waiting now"),
          h(
            "ul",
            { class: "waits" },
            waits.slice(0, WAITS).map((wait) => h("li", {}, wait.sentence)),
            waits.length > WAITS
              ? h("li", { class: "soft" }, `and ${plural(waits.length - WAITS, "more wait")}`)
              : null,
          ),
        );
      }
      this.now.hidden = !parts.length;
      this.now.replaceChildren(...parts);
      this.fit();
    }

    // --- sections ---

    takeUnits(changed) {
      if (changed.has("units") || this.filledUnits !== this.units) {
        const keys = this.filledUnits === this.units ? changed.get("units") : null;
        this.filledUnits = this.units;
        this.units.update(this.view.section("units"), keys);
        this.drawTabs();
      }
    }

    takeRebalances(changed) {
      const section = this.view.section("rebalances"),
        keys = changed.get("rebalances");
      const logs = this.view.fact("logs"),
        isLive = logs !== null && logs.state === "live";
      for (const key of keys) {
        const row = section.get(key);
        if (!row) continue;
        this.cause.add(row);
        if (this.announced && !this.announced.has(key) && isLive)
          konvene.announce(`New rebalance. ${row.sentence}`);
      }
      this.announced = new Set(section.keys());
      this.fill(this.rebalances, "rebalances", changed);
    }

    takeTopology(changed) {
      const { view } = this;
      if (!this.tabs.isShown("topology") || view.fact("type") !== "streams") return;
      this.topology.update(
        view.section("topology"),
        view.section("units"),
        changed === null || changed.has("topology"),
      );
    }

    // --- timeline ---

    // Returns the lanes to draw, those with most owners; the others are counted in `lanesLeftOut`.
    chosenLanes() {
      const lanes = [...this.view.section("lanes").values()];
      const busiest = lanes
        .sort((a, b) => b.spans.length - a.spans.length || a.order - b.order)
        .slice(0, LANES);
      this.lanesLeftOut = (this.view.fact("lanes_left_out") || 0) + Math.max(lanes.length - LANES, 0);
      return busiest.sort((a, b) => a.order - b.order);
    }

    detail() {
      const { view } = this,
        now = konvene.now();
      const lanes = this.chosenLanes().map(({ name, role, spans, gaps }) => ({
        name:
          role && role !== "active" && !name.includes("(")
            ? `${name} (${role === "warmup" ? "warm-up" : role})`
            : name,
        spans: spans || [],
        gaps: gaps || [],
      }));
      const rebalances = [...view.section("rebalances").values()]
        .filter((row) => !isUnknown(row.at_ms))
        .sort((a, b) => b.at_ms - a.at_ms);
      const starts = [
        ...lanes.map(({ spans }) => (spans.length ? spans[0][0] : now)),
        ...rebalances.map((row) => row.at_ms),
      ];
      const length = now - Math.min(now, ...starts);
      this.window = WINDOWS_MS.find((each) => each >= length) || HOUR_MS;
      return {
        id: this.title,
        from_ms: now - this.window,
        to_ms: now,
        rebalances,
        lanes,
        lag: this.lag.length > 1 ? this.lag : [],
      };
    }

    drawChart() {
      if (
        !(this.isChartStale || this.isLagStale) ||
        document.hidden ||
        !this.tabs.isShown("timeline") ||
        !this.view.ready ||
        !this.node.isConnected
      )
        return;
      const now = performance.now();
      const pause = this.isChartStale ? REDRAW_MS : LAG_MS;
      if (this.drawnAt !== undefined && now - this.drawnAt < pause - 50) return; // A later tick draws it.
      this.drawnAt = now;
      this.isChartStale = this.isLagStale = false;
      const detail = this.detail();
      if (!this.chart && !detail.lanes.length && !detail.rebalances.length && !detail.lag.length) {
        this.chartPlace.replaceChildren(
          h("p", { class: "soft" }, "Neither owners nor rebalances of this group are known."),
        );
        return;
      }
      if (!this.chart) {
        this.newChart(detail);
      } else {
        this.chartOptions.window_ms = this.window;
        this.chart.update(detail);
      }
      const range = this.window === HOUR_MS ? "hour" : plural(this.window / 60000, "minute");
      konvene.setText(this.range, `The last ${range} (UTC)`);
      const left = this.lanesLeftOut;
      konvene.setText(
        this.leftOut,
        left ? `${plural(left, this.unit)} not drawn: those with the fewest owners in this hour.` : "",
      );
    }

    newChart(detail) {
      this.chartOptions = {
        live: true,
        now: konvene.now,
        window_ms: this.window,
        onPick: (key, row) => this.showPicked(row),
      };
      this.chart = konvene.chart(detail, this.chartOptions);
      this.range = h("span", { class: "soft small" });
      this.picked = h(
        "div",
        { class: "details", "aria-live": "polite" },
        h(
          "span",
          { class: "soft" },
          "Choose a rebalance: click a mark, or step with ← and → on the timeline. Drag to zoom.",
        ),
      );
      this.leftOut = h("p", { class: "soft small" });
      this.chartPlace.replaceChildren(
        h("div", { class: "bar" }, this.range, this.chart.controls),
        this.chart.node,
        this.chart.legend,
        this.picked,
        this.leftOut,
      );
      this.chart.draw();
    }

    showPicked(row) {
      konvene.replace(
        this.picked,
        h("b", {}, `${konvene.iso(row.at_ms)} UTC · ${konvene.epochs(row)}`),
        konvene.progress(row.open),
        konvene.evidence(row.evidence),
        h("div", {}, row.sentence),
        row.note ? h("p", { class: "note" }, row.note) : null,
        h(
          "p",
          {},
          h(
            "a",
            { href: konvene.path("groups", this.id, "rebalances", row.key) },
            "Why it happened, step by step",
          ),
        ),
      );
    }

    tick() {
      if (document.hidden) return;
      if (this.grid()) this.grid().tick();
      this.drawChart();
    }

    close() {
      clearInterval(this.timer);
      this.view.close();
      if (this.chart) this.chart.close();
      for (const grid of [this.members, this.units, this.rebalances, this.inFlight]) grid.close();
    }
  }

  function groupPage(id) {
    const page = new GroupPage(id);
    return { title: page.title, node: page.node, shown: () => page.shown(), close: () => page.close() };
  }

  konvene.groupPage = groupPage;
})();
