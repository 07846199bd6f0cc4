"use strict";
// The page of all topics: `/topics`.
var konvene = konvene || {};
(() => {
  const { h, number, known, amount, words } = konvene;
  const topicPath = (row) => konvene.path("topics", row.name);

  const COLUMNS = [
    {
      id: "topic",
      head: "Topic",
      least: 220,
      grow: 3,
      text: (row) => row.name,
      draw: (row) => [
        h("a", { href: topicPath(row), tabindex: "-1", class: "name" }, row.name),
        row.internal ? konvene.tag("internal", null, "quiet") : null,
      ],
    },
    amount("partitions", "Partitions", 96, { always: true }),
    amount("replication_factor", "Replicas", 90, { always: true }),
    amount("records", "Records", 120, {
      always: true,
      hint: "Sum of end offset − start offset over the partitions",
    }),
    amount("groups", "Groups", 84, { always: true, hint: "Groups with committed offsets of the topic" }),
    words("id", "Id", 200, { grow: 1 }),
  ];

  konvene.topicsPage = () => {
    const view = konvene.live("topics");
    const internal = konvene.choice(
      "internal",
      "Internal",
      (row) => (row.internal ? "only internal" : "without internal"),
      () => grid.refilter(),
    );
    const grid = konvene.grid("topics", COLUMNS, {
      label: "Topics",
      noun: "topic",
      href: topicPath,
      sort: "topic",
      empty: "The cluster has no topics.",
      words: (row) => `${row.name} ${known(row.id)}`,
      passes: (row) => internal.passes(row),
    });
    const totals = konvene.facts([
      ["topics", "Topics"],
      ["partitions", "Partitions"],
    ]);
    view.on(["facts", "topics"], (changed) => {
      konvene.shell.facts(view);
      const section = view.section("topics"),
        keys = changed.get("topics");
      for (const key of keys || []) if (section.has(key)) internal.add(section.get(key));
      grid.update(section, keys || new Set());
      totals.set("topics", number(section.size));
      totals.set(
        "partitions",
        number([...section.values()].reduce((sum, row) => sum + (row.partitions || 0), 0)),
      );
    });
    return {
      title: "Topics",
      node: h(
        "div",
        {},
        h("div", { class: "title" }, h("h1", {}, "Topics"), totals.node),
        h("div", { class: "bar" }, internal.node, grid.count),
        grid.node,
      ),
      shown: () => konvene.shell.filter((text) => grid.setFilter(text)),
      close() {
        view.close();
        grid.close();
      },
    };
  };
})();
