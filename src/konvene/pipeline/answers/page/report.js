"use strict";
// The page of `konvene explain report`, drawn from the JSON within the page.
var konvene = konvene || {};
(() => {
  const { h, iso, epochs, number, plural, duration, seconds, family, chart, table } = konvene;
  const ADVICE = 4; // items before "Show more"

  const data = JSON.parse(document.getElementById("data").textContent);
  data.details.forEach(unpack);
  const isSame = (row, detail) => detail.id === row.id && detail.cluster === row.cluster;
  const detailOf = (row) => data.details.find((detail) => isSame(row, detail));

  // Gives a detail the form that `konvene.chart` takes: the JSON has arrays, to be short.
  function unpack(detail) {
    detail.rebalances = detail.rebalances.map((values) =>
      Object.fromEntries(data.columns.map((name, i) => [name, values[i]])));
    detail.lanes = detail.lanes.map(([name, spans, gaps]) => ({
      name,
      spans: groupsOf(3, spans).map(([from, to, i]) => [from, to, i < 0 ? null : detail.names[i]]),
      gaps: groupsOf(2, gaps),
    }));
    detail.storms = data.storms
      .filter(([cluster, id]) => id === detail.id && cluster === detail.cluster)
      .map(([, , from, to]) => [from, to]);
  }

  function groupsOf(size, values) {
    const found = [];
    for (let i = 0; i < values.length; i += size) found.push(values.slice(i, i + size));
    return found;
  }

  const count = (head, name) =>
    ({ head, num: true, key: (row) => row[name], cell: (row) => number(row[name]) });
  const took = (head, name) =>
    ({ head, num: true, key: (row) => row[name], cell: (row) => duration(row[name]) });
  const unitSeconds = {
    head: "Partition-seconds", num: true,
    key: (row) => row.unavailable_ms, cell: (row) => seconds(row.unavailable_ms),
  };

  // --- a group ---

  const HINT = "Choose a rebalance: click a mark or a row, or step with ← and → on the timeline.";

  function groupSection(detail, row) {
    const details = h("div", { class: "details", "aria-live": "polite" },
      h("span", { class: "soft" }, detail.rebalances.length ? HINT : "This group did not rebalance."));
    let current = null;
    const drawn = chart(detail, {
      onPick: (key, rebalance) => {
        current = key;
        details.replaceChildren(
          h("b", {}, `${iso(rebalance.at_ms)} UTC · ${epochs(rebalance)}`), h("div", {}, rebalance.sentence),
          rebalance.note ? h("p", { class: "note" }, rebalance.note) : "");
        list.draw();
      },
    });
    const list = rebalanceTable(detail, row, drawn.pick, (key) => key === current);
    const left = [];
    if (detail.lanes_left_out) left.push(`${plural(detail.lanes_left_out, "partition")} not drawn`);
    if (detail.rebalances_left_out) {
      left.push(`${plural(detail.rebalances_left_out, "older rebalance")} not listed`);
    }
    const facts = [
      plural(row.rebalances, "rebalance"), `${plural(row.members, "member")} now`,
      `median ${duration(row.median_ms)}`, `slowest ${duration(row.slowest_ms)}`,
    ];
    const node = h("section", { id: "group", "aria-label": `Group ${detail.id}` },
      h("h2", {}, detail.id, tag(row.type), detail.cluster ? tag(detail.cluster) : null),
      h("div", { class: "bar" },
        h("span", { class: "soft small" }, `${facts.join(", ")}. Drag over the timeline to zoom.`),
        drawn.controls),
      drawn.node, drawn.legend, details, remark(left.join(", ")),
      h("h3", {}, "Rebalances of this group"), list.node);
    return { node, draw: drawn.draw };
  }

  function rebalanceTable(detail, row, pick, isCurrent) {
    const time = (rebalance) => {
      const onclick = () => pick(rebalance.key);
      return h("button", { type: "button", class: "link", onclick }, iso(rebalance.at_ms));
    };
    const happened = (rebalance) => [
      h("span", { class: "dot", style: { background: `var(--${family(rebalance.cause)})` } }),
      rebalance.sentence,
      rebalance.evidence === "observed" ? null : h("span", { class: "note" }, rebalance.note),
    ];
    const columns = [
      { head: "Time (UTC)", cls: "time", key: (rebalance) => rebalance.at_ms, cell: time },
      count(row.type === "classic" ? "Generation" : "Epoch", "epoch"),
      { head: "What happened", cls: "wide", key: (rebalance) => rebalance.cause, cell: happened },
      took("Took", "duration_ms"), count("Moved", "moved"), unitSeconds, count("Lag", "lag_records"),
    ];
    return table("rebalances", columns, detail.rebalances, {
      noun: "rebalance",
      rowKey: (rebalance) => rebalance.key,
      text: ({ sentence, cause, epoch, at_ms: ms }) => `${sentence} ${cause} ${epoch} ${iso(ms)}`,
      choiceName: "Cause",
      choice: (rebalance) => rebalance.cause,
      pick: (rebalance) => pick(rebalance.key),
      current: (rebalance) => isCurrent(rebalance.key),
    });
  }

  // --- sections of the page ---

  const tag = (text) => h("span", { class: "tag" }, text);
  const remark = (text) => (text ? h("p", { class: "soft small" }, `${text}.`) : null);

  function header() {
    const known = data.from_ms >= 0;
    const time = known ? `${iso(data.from_ms)} to ${iso(data.to_ms)} UTC` : "No rebalance was found.";
    return h("header", {}, h("h1", {}, data.title),
      h("p", { class: "soft" }, time, data.source ? [" · ", h("code", {}, data.source)] : null));
  }

  function figures() {
    const figure = (value, what) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, what));
    const noun = (amount, word) => (amount === 1 ? word : `${word}s`);
    const groups = data.groups_left_out + data.groups.length;
    const storms = data.storms.length;
    const found = [
      figure(number(data.rebalances), noun(data.rebalances, "rebalance")),
      figure(number(groups), noun(groups, "group")),
      figure(seconds(data.unavailable_ms), "partition-seconds (partitions × seconds without an owner)"),
      figure(number(storms), `${noun(storms, "storm")} (5 or more rebalances in 10 min)`),
    ];
    if (data.deliveries.partitions.length) {
      found.push(figure(number(data.deliveries.redelivered), "redeliveries"),
        figure(number(data.deliveries.archived), "archived records"));
    }
    return h("div", { class: "figures" }, found);
  }

  function advice() {
    const items = data.advice.map(([group, rule, text]) =>
      h("li", {}, h("div", {}, h("b", {}, group), tag(rule.replace(/-/g, " "))), text));
    const hidden = items.splice(ADVICE);
    const list = h("ul", { class: "advice" }, items);
    const showMore = (event) => {
      list.append(...hidden);
      event.target.parentNode.remove();
    };
    const more = h("p", {}, h("button", { type: "button", onclick: showMore }, `Show ${hidden.length} more`));
    return h("section", { id: "advice" }, h("h2", {}, "Advice"), list, hidden.length ? more : null);
  }

  function groupTable(choose, isCurrent) {
    const name = (row) => {
      const onclick = () => choose(row);
      return detailOf(row) ? h("button", { type: "button", class: "link", onclick }, row.id) : row.id;
    };
    const columns = [
      { head: "Group", cls: "wide", key: (row) => row.id.toLowerCase(), cell: name },
      { head: "Type", key: (row) => row.type, cell: (row) => row.type },
      count("Rebalances", "rebalances"), count("Members", "members"),
      took("Median", "median_ms"), took("Slowest", "slowest_ms"),
      unitSeconds, count("Moved", "moved"), count("Storms", "storms"),
    ];
    return table("groups", columns, data.groups, {
      noun: "group",
      text: (row) => `${row.id} ${row.type} ${row.cluster}`,
      choiceName: "Type",
      choice: (row) => row.type,
      pick: (row) => { if (detailOf(row)) choose(row); },
      current: isCurrent,
    });
  }

  function triggering() {
    const causes = ([, , , , kinds]) => kinds.map(([kind, times]) => `${kind} ${times}`).join(", ");
    const columns = [
      { head: "Client", cls: "wide", key: (row) => row[0].toLowerCase(), cell: (row) => row[0] },
      { head: "Group", cls: "wide", key: (row) => row[1].toLowerCase(), cell: (row) => row[1] },
      {
        head: "Rebalances", num: true, key: (row) => row[2],
        cell: (row) => `${number(row[2])} of ${number(row[3])}`,
      },
      { head: "Causes", cls: "wide", key: (row) => row[4].length, cell: causes },
    ];
    const options = { noun: "client", text: (row) => row.slice(0, 2).join(" ") };
    return h("section", {}, h("h2", {}, "Clients that trigger most rebalances"),
      table("triggering", columns, data.triggering, options).node);
  }

  function deliveries() {
    const { partitions, left_out: leftOut } = data.deliveries;
    const left = [];
    if (leftOut) left.push(`${plural(leftOut, "share partition")} not listed`);
    if (partitions.some((row) => !row.whole)) {
      left.push("* the log is incomplete: these figures count only the records that remain");
    }
    const name = (row) => [
      row.name, row.stuck ? tag("stuck") : null,
      row.trouble.map((text) => h("span", { class: "note" }, text)),
    ];
    const columns = [
      {
        head: "Group", key: (row) => row.group.toLowerCase(),
        cell: (row) => row.group + (row.whole ? "" : " *"),
      },
      { head: "Share partition", cls: "wide", key: (row) => row.name, cell: name },
      count("Start", "start"), count("Delivered", "delivered"), count("Redelivered", "redelivered"),
      count("Accepted", "accepted"), count("Released", "released"), count("Archived", "archived"),
      count("In flight", "in_flight"), count("Unknown", "unknown"), took("Blocked for", "blocked_ms"),
    ];
    const list = table("deliveries", columns, partitions, {
      noun: "share partition",
      text: (row) => `${row.group} ${row.name} ${row.cluster} ${row.trouble.join(" ")}`,
      choiceName: "Group",
      choice: (row) => row.group,
    });
    return h("section", { id: "records" }, h("h2", {}, "Deliveries of share groups, problems first"),
      h("p", { class: "soft small" },
        "Counted from the share-group state. A record is redelivered after it was released, its lock " +
        "expired or its member departed: the state does not record which."),
      list.node, remark(left.join("; ")), data.minutes.length ? minutes() : null);
  }

  function minutes() {
    const counts = ["Delivered", "Redelivered", "Archived", "Start"].map((head, i) => count(head, 3 + i));
    const columns = [
      { head: "Minute (UTC)", cls: "time", key: (row) => row[0], cell: (row) => iso(row[0]).slice(0, 16) },
      { head: "Group", key: (row) => row[1].toLowerCase(), cell: (row) => row[1] },
      { head: "Share partition", cls: "wide", key: (row) => row[2], cell: (row) => row[2] },
      ...counts,
    ];
    const options = { noun: "minute", text: (row) => `${row[1]} ${row[2]} ${iso(row[0])}` };
    return [
      h("h3", {}, "Minutes with most redelivered and archived records"),
      table("minutes", columns, data.minutes, options).node,
    ];
  }

  // --- the page ---

  const page = document.getElementById("page");
  page.append(header(), figures());
  if (data.advice.length) page.append(advice());
  if (data.groups.length) {
    const container = h("div", {});
    let chosen = null;
    const groups = groupTable(choose, (row) => row === chosen);
    function choose(row) {
      if (row === chosen) return;
      chosen = row;
      const shown = groupSection(detailOf(row), row);
      container.replaceChildren(shown.node);
      shown.draw(); // It needs the width of its container.
      groups.draw();
    }
    page.append(
      h("section", {}, h("h2", {}, "Groups, highest cost first"), groups.node,
        remark(data.groups_left_out ? `${plural(data.groups_left_out, "group")} not listed` : "")),
      container);
    const first = data.groups.find(detailOf);
    if (first) choose(first);
  }
  if (data.triggering.length) page.append(triggering());
  if (data.deliveries.partitions.length) page.append(deliveries());
  page.append(h("footer", {},
    "Generated by konvene from the logs of a group coordinator. Times are UTC. ", data.caveats.join(" ")));
})();
