"use strict";
// The page of all groups: `/`.
var konvene = konvene || {};
(() => {
  const { h, number, known, ago, isUnknown } = konvene;

  const sum = (hours) => (hours || []).reduce((total, each) => total + each, 0);
  const groupPath = (row) => konvene.path("groups", row.id);
  const link = (row) =>
    h("a", { href: groupPath(row), tabindex: "-1", class: "name" }, row.id === "" ? "(empty id)" : row.id);

  function lastRebalance(row) {
    const { last } = row;
    if (!last) return h("span", { class: "soft" }, "none known");
    return [
      h(
        "div",
        {},
        konvene.causeDot(last.cause),
        ago(last.at_ms),
        konvene.progress(last.open),
        konvene.evidence(last.evidence),
      ),
      h(
        "div",
        { class: "clip" },
        h(
          "a",
          {
            href: konvene.path("groups", row.id, "rebalances", last.key),
            tabindex: "-1",
            class: "plain-link",
          },
          last.sentence,
        ),
      ),
    ];
  }

  const COLUMNS = [
    { id: "group", head: "Group", least: 170, grow: 2, text: (row) => row.id, draw: link },
    { id: "type", head: "Type", least: 82, text: (row) => row.type || "–" },
    {
      id: "state",
      head: "State",
      least: 150,
      text: (row) => known(row.state),
      draw: (row) => konvene.state(row.state),
    },
    {
      id: "members",
      head: "Members",
      least: 84,
      num: true,
      key: (row) => row.members,
      text: (row) => number(row.members),
    },
    {
      id: "lag",
      head: "Lag",
      least: 96,
      num: true,
      key: (row) => row.lag,
      text: (row) => number(row.lag),
      hint: "Records between the committed offsets and the ends of the partitions",
    },
    {
      id: "last",
      head: "Last rebalance",
      least: 300,
      grow: 4,
      cls: "two",
      ticks: true,
      key: (row) => (row.last ? row.last.at_ms : null),
      text: (row) => (row.last ? JSON.stringify([ago(row.last.at_ms), row.last]) : ""),
      title: (row) => (row.last ? row.last.sentence : ""),
      draw: lastRebalance,
    },
    {
      id: "day",
      head: "Last 24 hours",
      least: 146,
      num: true,
      key: (row) => row.rebalances,
      title: (row) => `${known(row.rebalances)} rebalances in the last 24 hours`,
      text: (row) => `${row.rebalances} ${(row.hours || []).join()}`,
      draw: (row) => [
        row.hours ? konvene.sparkline(row.hours) : null,
        h("span", { class: "beside" }, isUnknown(row.rebalances) ? "–" : number(row.rebalances)),
      ],
    },
  ];

  function groupsPage() {
    const view = konvene.live("groups"),
      latest = new Map(); // key of the last rebalance by group
    const refilter = () => grid.refilter();
    const type = konvene.choice("type", "Type", (row) => row.type, refilter);
    const state = konvene.choice("state", "State", (row) => row.state, refilter);
    const grid = konvene.grid("groups", COLUMNS, {
      label: "Groups",
      noun: "group",
      rowHeight: 50,
      href: groupPath,
      sort: "group",
      empty: "The cluster has no groups.",
      words: (row) => `${row.id} ${row.type} ${row.state} ${row.last ? row.last.sentence : ""}`,
      passes: (row) => type.passes(row) && state.passes(row),
    });
    const totals = konvene.facts([
      ["groups", "Groups"],
      ["members", "Members"],
      ["lag", "Lag"],
      ["day", "Rebalances in 24 hours"],
      ["open", "In progress"],
    ]);
    const node = h(
      "div",
      {},
      h("div", { class: "title" }, h("h1", {}, "Groups"), totals.node),
      h("div", { class: "bar" }, type.node, state.node, grid.count),
      grid.node,
    );

    function onChange(changed) {
      konvene.shell.facts(view);
      const keys = changed.get("groups");
      if (!keys && grid.filled) return;
      const section = view.section("groups");
      for (const key of keys || []) {
        const row = section.get(key);
        if (row) {
          type.add(row);
          state.add(row);
        }
        watch(key, row);
      }
      grid.filled = true;
      grid.update(section, keys || new Set());
      drawTotals(section);
    }

    // Announces rebalances that began while the page is open.
    function watch(id, row) {
      const key = row && row.last ? row.last.key : null,
        isNew = latest.has(id) && key !== null && latest.get(id) !== key;
      latest.set(id, key);
      const logs = view.fact("logs"),
        isLive = logs !== null && logs.state === "live";
      if (isNew && isLive) konvene.announce(`Rebalance of ${id}. ${row.last.sentence}`);
    }

    function drawTotals(section) {
      let members = 0,
        lag = 0,
        day = 0,
        open = 0,
        isPartial = false;
      for (const row of section.values()) {
        members += row.members || 0;
        lag += row.lag || 0;
        day += isUnknown(row.rebalances) ? sum(row.hours) : row.rebalances;
        open += row.last && row.last.open ? 1 : 0;
        isPartial = isPartial || isUnknown(row.lag);
      }
      totals.set("groups", number(section.size));
      totals.set("members", number(members));
      totals.set(
        "lag",
        isPartial ? `≥ ${number(lag)}` : number(lag),
        isPartial ? "The lag of some groups is unknown" : "",
      );
      totals.set("day", number(day));
      totals.set("open", number(open));
    }

    view.on(["groups", "facts"], onChange);
    const timer = setInterval(() => {
      if (!document.hidden) grid.tick();
    }, 1000);
    return {
      title: "Groups",
      node,
      shown: () => konvene.shell.filter((text) => grid.setFilter(text)),
      close() {
        clearInterval(timer);
        view.close();
        grid.close();
      },
    };
  }

  konvene.groupsPage = groupsPage;
})();
