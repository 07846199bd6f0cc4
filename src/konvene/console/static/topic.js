"use strict";
// The page of a topic: `/topics/TOPIC`, with its partitions, groups and settings.
var konvene = konvene || {};
(() => {
  const { h, number, known, amount, words, dash, isUnknown } = konvene;

  const ids = (id) => ({
    text: (row) => dash((row[id] || []).join(", ")),
    key: (row) => (row[id] || []).length,
  });
  const PARTITIONS = [
    {
      id: "partition",
      head: "Partition",
      least: 90,
      num: true,
      key: (row) => row.partition,
      text: (row) => number(row.partition),
    },
    amount("leader", "Leader", 84, {
      always: true,
      text: (row) => (isUnknown(row.leader) || row.leader < 0 ? "none" : String(row.leader)),
    }),
    { ...words("replicas", "Replicas", 120, { always: true, grow: 1 }), ...ids("replicas") },
    { ...words("isr", "In sync", 120, { always: true, grow: 1 }), ...ids("isr"), draw: inSync },
    {
      ...words("offline", "Offline", 110, { grow: 1 }),
      ...ids("offline"),
      optional: (row) => (row.offline || []).length > 0,
    },
    amount("start", "Start offset", 120, { always: true }),
    amount("end", "End offset", 120, { always: true }),
    amount("records", "Records", 120, { always: true }),
  ];

  function inSync(row) {
    const isLess = (row.isr || []).length < (row.replicas || []).length;
    return [
      dash((row.isr || []).join(", ")),
      isLess ? konvene.tag("under-replicated", null, "warning") : null,
    ];
  }

  const groupPath = (row) => konvene.path("groups", row.id);
  const GROUPS = [
    {
      id: "group",
      head: "Group",
      least: 220,
      grow: 3,
      text: (row) => row.id,
      draw: (row) => h("a", { href: groupPath(row), tabindex: "-1", class: "name" }, row.id),
    },
    amount("partitions", "Partitions", 96, { always: true }),
    amount("lag", "Lag", 110, { always: true }),
  ];

  const SETTINGS = [
    {
      id: "name",
      head: "Setting",
      least: 260,
      grow: 2,
      text: (row) => row.name,
      title: (row) => row.documentation || row.name,
    },
    {
      id: "value",
      head: "Value",
      least: 180,
      grow: 2,
      text: (row) => (isUnknown(row.value) ? "hidden or unknown" : row.value === "" ? "(empty)" : row.value),
      draw: (row) =>
        isUnknown(row.value)
          ? h("span", { class: "soft" }, "hidden or unknown")
          : row.value === ""
            ? h("span", { class: "soft" }, "(empty)")
            : h("span", { class: row.is_default ? "soft" : "changed" }, row.value),
    },
    { id: "source", head: "Source", least: 190, grow: 1, text: (row) => known(row.source) },
    { id: "read_only", head: "Changeable", least: 92, text: (row) => (row.read_only ? "read only" : "yes") },
  ];

  konvene.topicPage = (name) => {
    const view = konvene.live("topic", { topic: name });
    const internal = h("span", { class: "tags" });
    const missing = h("p", { class: "notice", hidden: true }, "The cluster has no topic of this name.");
    const facts = konvene.facts([
      ["partitions", "Partitions"],
      ["records", "Records"],
      ["groups", "Groups"],
      ["id", "Id"],
    ]);
    const partitions = konvene.grid("partitions", PARTITIONS, {
      label: "Partitions",
      noun: "partition",
      sort: "partition",
      query: "partitions",
      words: (row) => `${row.partition} ${row.leader} ${inSync(row)[1] ? "under-replicated" : ""}`,
    });
    const groups = konvene.grid("groups", GROUPS, {
      label: "Groups",
      noun: "group",
      sort: "group",
      query: "groups",
      href: groupPath,
      empty: "No group has committed offsets of this topic.",
      words: (row) => row.id,
    });
    const settings = konvene.grid("settings", SETTINGS, {
      label: "Settings",
      noun: "setting",
      sort: "name",
      query: "settings",
      words: (row) => `${row.name} ${row.value} ${row.source} ${row.documentation || ""}`,
      open: change,
    });
    const hint = h(
      "span",
      { class: "soft small", hidden: true },
      "A row opens the dialog that changes its value.",
    );
    const tabs = konvene.tabs("Parts of the topic", [
      { id: "partitions", label: "Partitions", panel: panel(partitions), shown: refilter },
      { id: "groups", label: "Groups", panel: panel(groups), shown: refilter },
      { id: "settings", label: "Settings", panel: panel(settings, hint), shown: refilter },
    ]);
    const grids = { partitions, groups, settings };

    function panel(grid, ...others) {
      return h("section", {}, h("div", { class: "bar" }, others, grid.count), grid.node);
    }

    function refilter() {
      konvene.shell.filter((text) => grids[tabs.chosen()].setFilter(text));
    }

    function change(row) {
      if (!view.fact("allow_changes") || row.read_only) return;
      konvene.changeSetting({
        resource: "topic",
        name,
        key: row.name,
        value: row.value,
        documentation: row.documentation,
      });
    }

    function drawFacts() {
      konvene.shell.facts(view);
      missing.hidden = view.fact("exists") !== false;
      hint.hidden = !view.fact("allow_changes");
      if (view.fact("internal") && !internal.firstChild)
        internal.append(konvene.tag("internal", null, "quiet"));
      facts.set("id", known(view.fact("id")));
    }

    function drawSizes() {
      const rows = [...view.section("partitions").values()];
      const records = rows.some((row) => isUnknown(row.records))
        ? null
        : rows.reduce((sum, row) => sum + row.records, 0);
      facts.set("partitions", number(rows.length));
      facts.set("records", number(records));
      facts.set("groups", number(view.section("groups").size));
      tabs.label("partitions", `Partitions ${number(rows.length)}`);
      tabs.label("groups", `Groups ${number(view.section("groups").size)}`);
      tabs.label("settings", `Settings ${number(view.section("configs").size)}`);
    }

    view.on(["facts"], drawFacts);
    view.on(["partitions", "groups", "configs"], (changed) => {
      for (const [section, grid] of [
        ["partitions", partitions],
        ["groups", groups],
        ["configs", settings],
      ]) {
        if (changed.has(section)) grid.update(view.section(section), changed.get(section));
      }
      drawSizes();
    });
    return {
      title: name,
      node: h(
        "div",
        {},
        h("p", { class: "crumbs small" }, h("a", { href: "/topics" }, "Topics"), " / "),
        h(
          "div",
          { class: "title" },
          h("h1", {}, name),
          internal,
          h(
            "div",
            { class: "actions" },
            h("a", { class: "button", href: konvene.path("topics", name, "messages") }, "Messages"),
          ),
        ),
        missing,
        facts.node,
        tabs.node,
      ),
      shown: refilter,
      close() {
        view.close();
        for (const grid of Object.values(grids)) grid.close();
      },
    };
  };
})();
