"use strict";
// The topology of a streams group: a graph of each subtopology from its source topics to its sink topics, and
// its tasks with their owners, standbys and warm-ups.
//
// konvene.topology() returns {node, update(topology, units, isNewTopology)}; both are Maps of the live view.
var konvene = konvene || {};
(() => {
  const { h, s, plural, number, isUnknown, natural } = konvene;
  const ROW = 16,
    PADDING = 9,
    BETWEEN = 42,
    APART = 14,
    EDGE = 6; // px
  const LETTER = 6.7,
    LETTERS = 30;
  const TASKS = 40; // listed of a subtopology

  // --- layout ---

  // Returns the nodes of a subtopology: {name, kind, stores, successors}, with its topics as nodes.
  function nodesOf(id, sub) {
    const nodes = new Map();
    const add = (key, node) => {
      if (!nodes.has(key)) nodes.set(key, node);
      return nodes.get(key);
    };
    const topic = (name, isSink) =>
      add(`${isSink ? "to" : "from"}\n${name}`, { name, kind: "topic", stores: [], successors: [] });
    const inner = sub.nodes || [
      { name: `Subtopology ${id}`, kind: "whole", topics: [], stores: sub.changelogs || [], successors: [] },
    ];
    for (const { name, kind, stores } of inner)
      add(`node\n${name}`, { name, kind, stores: stores || [], successors: [] });
    for (const { name, kind, topics, successors } of inner) {
      const key = `node\n${name}`;
      for (const next of successors || [])
        if (nodes.has(`node\n${next}`)) nodes.get(key).successors.push(`node\n${next}`);
      const sources =
        kind === "whole"
          ? [...new Set([...(sub.source_topics || []), ...(sub.repartition || [])])]
          : kind === "source"
            ? topics || []
            : [];
      const sinks = kind === "whole" ? sub.sink_topics || [] : kind === "sink" ? topics || [] : [];
      for (const each of sources) topic(each, false).successors.push(key);
      for (const each of sinks) {
        topic(each, true);
        nodes.get(key).successors.push(`to\n${each}`);
      }
    }
    return nodes;
  }

  // Sets `layer` of each node: the length of the longest path to it. A cycle ends where it closes.
  function setLayers(nodes) {
    const before = new Map([...nodes.keys()].map((key) => [key, []]));
    for (const [key, { successors }] of nodes) for (const next of successors) before.get(next).push(key);
    const visiting = new Set();
    function layer(key) {
      const node = nodes.get(key);
      if (node.layer !== undefined) return node.layer;
      if (visiting.has(key)) return -1;
      visiting.add(key);
      node.layer = 0;
      let longest = 0;
      node.layer = undefined;
      for (const each of before.get(key)) longest = Math.max(longest, layer(each) + 1);
      visiting.delete(key);
      node.layer = longest;
      return longest;
    }
    for (const key of nodes.keys()) layer(key);
    return before;
  }

  const shorten = (text) =>
    text.length > LETTERS ? `${text.slice(0, 12)}…${text.slice(13 - LETTERS)}` : text;

  // Sets x, y, width and height of each node; returns the size of the drawing.
  function place(nodes, before) {
    const layers = [];
    for (const [key, node] of nodes) {
      node.lines = [shorten(node.name), ...node.stores.map((store) => `⛁ ${shorten(store)}`)];
      node.width = Math.ceil(Math.max(...node.lines.map((line) => line.length)) * LETTER) + 2 * PADDING + 4;
      node.height = node.lines.length * ROW + PADDING;
      (layers[node.layer] = layers[node.layer] || []).push(key);
    }
    const tall = (keys) => keys.reduce((sum, key) => sum + nodes.get(key).height + APART, -APART);
    const height = Math.max(...layers.map(tall)) + 2 * EDGE;
    let x = EDGE;
    for (const keys of layers) {
      const middle = (key) => {
        const from = before
          .get(key)
          .map((each) => nodes.get(each))
          .filter((each) => each.y !== undefined);
        return from.length
          ? from.reduce((sum, each) => sum + each.y + each.height / 2, 0) / from.length
          : height / 2;
      };
      const middles = new Map(keys.map((key) => [key, middle(key)]));
      keys.sort((a, b) => middles.get(a) - middles.get(b));
      const width = Math.max(...keys.map((key) => nodes.get(key).width));
      let y = (height - tall(keys)) / 2;
      for (const key of keys) {
        Object.assign(nodes.get(key), { x, y });
        y += nodes.get(key).height + APART;
      }
      x += width + BETWEEN;
    }
    return { width: x - BETWEEN + EDGE, height };
  }

  // --- drawing ---

  function box(node) {
    const { x, y, width, height, kind } = node;
    return s(
      "g",
      { class: `node ${kind}` },
      s("title", {}, [node.name, ...node.stores.map((store) => `store ${store}`)].join("\n")),
      s("rect", { x, y, width, height, rx: kind === "topic" ? Math.min(height / 2, 13) : 5 }),
      node.lines.map((line, i) =>
        s(
          "text",
          {
            x: x + width / 2,
            y: y + PADDING / 2 + ROW * i + 12,
            "text-anchor": "middle",
            class: i ? "store" : null,
          },
          line,
        ),
      ),
    );
  }

  function edge(from, to) {
    const x = from.x + from.width,
      y = from.y + from.height / 2,
      end = to.x - 5,
      low = to.y + to.height / 2;
    const bend = Math.max((end - x) / 2, 20);
    return `M${x} ${y}C${x + bend} ${y} ${end - bend} ${low} ${end} ${low}`;
  }

  const arrow = (node) => `M${node.x - 6} ${node.y + node.height / 2 - 3.5}l6 3.5l-6 3.5z`;

  function graph(id, sub) {
    const nodes = nodesOf(id, sub),
      before = setLayers(nodes),
      { width, height } = place(nodes, before);
    const edges = [],
      heads = [];
    for (const [key, node] of nodes) {
      for (const next of node.successors) edges.push(edge(node, nodes.get(next)));
      if (before.get(key).length) heads.push(arrow(node));
    }
    const svg = s(
      "svg",
      {
        class: "topology",
        role: "img",
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        "aria-label": `Graph of subtopology ${id}, ${plural(nodes.size, "node")}. A list below describes it.`,
      },
      s("path", { d: edges.join(""), class: "edges" }),
      s("path", { d: heads.join(""), class: "heads" }),
      [...nodes.values()].map(box),
    );
    return h(
      "div",
      { class: "frame graph", tabindex: "0", role: "region", "aria-label": `Graph of subtopology ${id}` },
      svg,
    );
  }

  // --- the graph as text ---

  const listed = (names) => names.join(", ");

  function sentenceOf({ name, kind, topics, stores, successors }) {
    const parts = [];
    if (kind === "source" && (topics || []).length) parts.push(`reads ${listed(topics)}`);
    if (kind === "sink" && (topics || []).length) parts.push(`writes ${listed(topics)}`);
    if ((stores || []).length)
      parts.push(`uses ${stores.length === 1 ? "store" : "stores"} ${listed(stores)}`);
    if ((successors || []).length) parts.push(`forwards to ${listed(successors)}`);
    return `${kind} ${name}${parts.length ? `: ${parts.join("; ")}` : ""}`;
  }

  function asText(sub) {
    const topics = [
      ["Source topics", sub.source_topics],
      ["Repartition source topics", sub.repartition],
      ["Sink topics", sub.sink_topics],
      ["Changelogs", sub.changelogs],
    ]
      .filter(([, names]) => names && names.length)
      .map(([label, names]) => h("li", {}, `${label}: ${listed(names)}`));
    return h(
      "details",
      {},
      h("summary", {}, "As text"),
      h(
        "ul",
        {},
        topics,
        (sub.nodes || []).map((node) => h("li", {}, sentenceOf(node))),
      ),
    );
  }

  // --- tasks ---

  function taskText(row) {
    const parts = [row.owner_name || row.owner || "no owner"];
    if ((row.standbys || []).length) parts.push(`standby ${listed(row.standbys)}`);
    if ((row.warmups || []).length) parts.push(`warm-up ${listed(row.warmups)}`);
    if (!isUnknown(row.restore_lag) && row.restore_lag > 0)
      parts.push(`${number(row.restore_lag)} records to restore`);
    return parts.join(" · ");
  }

  function drawTasks(node, tasks) {
    const lines = tasks.slice(0, TASKS).map(([key, row]) => [row.name || key, taskText(row)]);
    if (tasks.length > TASKS)
      lines.push(["", `and ${plural(tasks.length - TASKS, "more task")}, in the tab Tasks`]);
    const signature = JSON.stringify(lines);
    if (signature === node.signature) return;
    node.signature = signature;
    node.replaceChildren(...lines.map(([name, text]) => h("li", {}, h("b", {}, name), " ", text)));
  }

  function topology() {
    const node = h("div", {}, h("p", { class: "soft" }, "The topology of this group is not known."));
    const lists = new Map(); // elements of tasks by subtopology

    function drawAll(subs) {
      lists.clear();
      const ids = [...subs.keys()].sort((a, b) => (natural(a) < natural(b) ? -1 : 1));
      if (!ids.length) return;
      node.replaceChildren(
        ...ids.map((id) => {
          const sub = subs.get(id),
            tasks = h("ul", { class: "tasks" });
          lists.set(id, tasks);
          return h(
            "div",
            { class: "subtopology" },
            h(
              "h2",
              {},
              `Subtopology ${id}`,
              h(
                "span",
                { class: "tag quiet" },
                isUnknown(sub.tasks) ? "tasks unknown" : plural(sub.tasks, "task"),
              ),
            ),
            graph(id, sub),
            sub.nodes
              ? null
              : h(
                  "p",
                  { class: "soft small" },
                  "The processors are not known: the group did not send a description of its topology.",
                ),
            asText(sub),
            tasks,
          );
        }),
      );
    }

    function update(subs, units, isNew) {
      if (isNew || lists.size !== subs.size) drawAll(subs);
      const tasks = new Map([...lists.keys()].map((id) => [id, []]));
      for (const entry of units) {
        const id = entry[0].replace(/_\d+$/, "");
        if (tasks.has(id)) tasks.get(id).push(entry);
      }
      for (const [id, list] of lists) {
        drawTasks(
          list,
          tasks.get(id).sort((a, b) => (natural(a[0]) < natural(b[0]) ? -1 : 1)),
        );
      }
    }

    return { node, update };
  }

  konvene.topology = topology;
})();
