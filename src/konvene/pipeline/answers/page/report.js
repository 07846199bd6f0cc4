"use strict";
// The page of `konvene explain report`, drawn from the JSON within the page.
//
// The fragment of its address names the group and the rebalance that are open, so that a link opens them:
// `#group=orders-app&rebalance=66-12-8443`, and `cluster=` where the logs of several clusters were read. A
// rebalance may also be named by its epoch alone, which stands for the newest one of that epoch.
var konvene = konvene || {};
(() => {
  const {
    h, iso, epochs, number, plural, duration, seconds, isUnknown, family, chart, table, trace,
  } = konvene;
  const ADVICE = 4; // items before "Show more"
  const NONE = "none";

  const data = JSON.parse(document.getElementById("data").textContent);
  data.details.forEach(unpack);
  const isSame = (row, detail) => detail.id === row.id && detail.cluster === row.cluster;
  const detailOf = (row) => data.details.find((detail) => isSame(row, detail));

  // Gives a detail the form that `konvene.chart` takes: the JSON has arrays, to be short.
  function unpack(detail) {
    detail.rebalances = detail.rebalances.map((values) => named(data.columns, values));
    detail.lanes = detail.lanes.map(([name, spans, gaps]) => ({
      name,
      spans: groupsOf(3, spans).map(([from, to, i]) => [from, to, i < 0 ? null : detail.names[i]]),
      gaps: groupsOf(2, gaps),
    }));
    detail.storms = data.storms
      .filter(([cluster, id]) => id === detail.id && cluster === detail.cluster)
      .map(([, , from, to]) => [from, to]);
  }

  // Gives a trace the form that `konvene.trace` takes.
  const unpackedTrace = (packed) => ({
    ...packed,
    steps: packed.steps.map(([after, text]) => ({ after_ms: after, text })),
    members: packed.members.map((values) => named(data.member_columns, values)),
  });

  // Returns an object with these keys and values.
  function named(columns, values) {
    return Object.fromEntries(columns.map((name, i) => [name, values[i]]));
  }

  function groupsOf(size, values) {
    const found = [];
    for (let i = 0; i < values.length; i += size) found.push(values.slice(i, i + size));
    return found;
  }

  // --- columns: a value of null is unknown ---

  const count = (head, name) =>
    ({ head, num: true, key: (row) => row[name], cell: (row) => number(row[name]) });
  const took = (head, name) =>
    ({ head, num: true, key: (row) => row[name], cell: (row) => duration(row[name]) });
  const unitSeconds = {
    head: "Partition-seconds", num: true, key: (row) => row.unavailable_ms,
    cell: (row) => (row.unavailable_ms === 0 ? NONE : seconds(row.unavailable_ms)),
  };

  // Returns a column whose nulls are not unknown: there is no such value.
  function orNone(column) {
    const { key, cell } = column;
    return { ...column, cell: (row) => (isUnknown(key(row)) ? NONE : cell(row)) };
  }

  // Returns the records that arrived while partitions had no owner: 0 if all had one, null if unknown.
  const lagOf = (rebalance) => (rebalance.unavailable_ms === 0 ? 0 : rebalance.lag_records);
  const lagRecords = {
    head: "Lag", num: true, key: lagOf, cell: (row) => (lagOf(row) === 0 ? NONE : number(lagOf(row))),
  };

  // --- links ---

  function fragment(detail, key) {
    const parts = { group: detail.id, cluster: detail.cluster, rebalance: key };
    return `#${Object.entries(parts).filter(([, value]) => value)
      .map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}`;
  }

  // Returns what the address names: a group's row, its detail, the key of a rebalance, and what is missing.
  function linked() {
    const address = new URLSearchParams(location.hash.slice(1));
    const [id, cluster, rebalance] = ["group", "cluster", "rebalance"].map((name) => address.get(name));
    if (id === null) return { row: null, key: null, missing: null };
    const row = data.groups.find((each) => each.id === id && (!cluster || each.cluster === cluster));
    if (!row) return { row: null, key: null, missing: `This report has no group ${id}.` };
    const detail = detailOf(row);
    if (!detail) return { row: null, key: null, missing: `This report has no details of ${id}.` };
    if (!rebalance) return { row, key: null, missing: null };
    const found = detail.rebalances.find(({ key }) => key === rebalance) ||
      detail.rebalances.find(({ epoch }) => String(epoch) === rebalance);
    return found ? { row, key: found.key, missing: null }
      : { row, key: null, missing: `Rebalance ${rebalance} of ${id} is not listed in this report.` };
  }

  const linkTo = (detail, key, text, label) =>
    h("a", { class: "link", href: fragment(detail, key), "aria-label": label || null }, text);

  // Returns the name of a group, as a link if it has details.
  function groupLink(id) {
    const detail = data.details.find((each) => each.id === id);
    return detail ? linkTo(detail, null, id) : id;
  }

  // --- a group ---

  const HINT = "Choose a rebalance: click a mark or a row, or step with ← and → on the timeline.";

  // Returns {node, draw, show, shown}: `show(key)` opens a rebalance, and closes the one shown before.
  function groupSection(detail, row, onShow) {
    let picked = null; // marked in the timeline and in the table
    let shown = null; // opened by the address
    const details = h("div", { class: "details", "aria-live": "polite" },
      h("span", { class: "soft" }, detail.rebalances.length ? HINT : "This group did not rebalance."));
    const drawn = chart(detail, {
      onPick: (key, rebalance) => {
        picked = key;
        details.replaceChildren(...summary(detail, rebalance));
        list.draw();
      },
    });
    const list = rebalanceTable(detail, row, {
      pick: (key) => drawn.pick(key),
      isPicked: (key) => key === picked,
      onToggle: (key, isOpen) => {
        if (!isOpen && key !== shown) return; // The address names another one.
        shown = isOpen ? key : null;
        onShow(shown);
      },
    });
    function show(key) {
      if (shown !== null && shown !== key) list.close(shown);
      shown = key;
      if (key === null) return null;
      const line = list.open(key);
      drawn.pick(key);
      return line;
    }
    const node = h("section", { id: "group", "aria-label": `Group ${detail.id}` },
      h("h2", {}, detail.id, tag(row.type), detail.cluster ? tag(detail.cluster) : null, " ",
        linkTo(detail, null, "#", `Link to group ${detail.id}`)),
      h("div", { class: "bar" }, h("span", { class: "soft small" }, facts(row)), drawn.controls),
      drawn.node, drawn.legend, details, remark(omissions(detail)),
      h("h3", {}, "Rebalances of this group"), list.node);
    return { node, draw: drawn.draw, show, shown: () => shown };
  }

  const facts = (row) =>
    `${plural(row.rebalances, "rebalance")}, ${plural(row.members, "member")} now, ` +
    `median ${duration(row.median_ms)}, slowest ${duration(row.slowest_ms)}. Drag over the timeline to zoom.`;

  function omissions(detail) {
    const found = [];
    if (detail.lanes_left_out) found.push(`${plural(detail.lanes_left_out, "partition")} not drawn`);
    if (detail.rebalances_left_out) {
      found.push(`${plural(detail.rebalances_left_out, "older rebalance")} not listed`);
    }
    return found.join(", ");
  }

  // Returns what is shown of the rebalance that is picked in the timeline.
  const summary = (detail, rebalance) => [
    h("b", {}, `${iso(rebalance.at_ms)} UTC · ${epochs(rebalance)}`), " ",
    linkTo(detail, rebalance.key, "Open its steps"), h("div", {}, rebalance.sentence),
    rebalance.note ? h("p", { class: "note" }, rebalance.note) : "",
  ];

  // Returns what opens below the row of a rebalance.
  function opened(detail, row, rebalance) {
    const found = detail.traces[rebalance.key];
    const noun = row.type === "classic" ? "generation" : "epoch";
    const command = `konvene explain LOGS --group GROUP --why ${rebalance.epoch}`;
    return h("div", { class: "detail" },
      h("p", { class: "bar" }, h("b", {}, `${iso(rebalance.at_ms)} UTC · ${noun} ${epochs(rebalance)}`),
        linkTo(detail, rebalance.key, "Link to this rebalance")),
      found ? trace(unpackedTrace(found)) : h("p", { class: "note" },
        "The steps of this rebalance did not fit into this file. This command prints them: ",
        h("code", {}, command)),
      rebalance.note ? h("p", { class: "note" }, rebalance.note) : null);
  }

  function rebalanceTable(detail, row, { pick, isPicked, onToggle }) {
    const happened = (rebalance) => [
      h("span", { class: "dot", style: { background: `var(--${family(rebalance.cause)})` } }),
      rebalance.sentence,
      rebalance.evidence === "observed" ? null : h("span", { class: "note" }, rebalance.note),
    ];
    const columns = [
      {
        head: "Time (UTC)", cls: "time", toggle: true,
        key: (rebalance) => rebalance.at_ms, cell: (rebalance) => iso(rebalance.at_ms),
      },
      count(row.type === "classic" ? "Generation" : "Epoch", "epoch"),
      { head: "What happened", cls: "wide", key: (rebalance) => rebalance.cause, cell: happened },
      took("Took", "duration_ms"), count("Moved", "moved"), unitSeconds, lagRecords,
    ];
    return table("rebalances", columns, detail.rebalances, {
      noun: "rebalance",
      rowKey: (rebalance) => rebalance.key,
      text: ({ sentence, cause, epoch, at_ms: ms }) => `${sentence} ${cause} ${epoch} ${iso(ms)}`,
      choiceName: "Cause",
      choice: (rebalance) => rebalance.cause,
      pick: (rebalance) => pick(rebalance.key),
      current: (rebalance) => isPicked(rebalance.key),
      detail: (rebalance) => opened(detail, row, rebalance),
      onToggle: (rebalance, isOpen) => onToggle(rebalance.key, isOpen),
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
      h("li", {}, h("div", {}, h("b", {}, groupLink(group)), tag(rule.replace(/-/g, " "))), text));
    const hidden = items.splice(ADVICE);
    const list = h("ul", { class: "advice" }, items);
    const showMore = (event) => {
      list.append(...hidden);
      event.target.parentNode.remove();
    };
    const more = h("p", {}, h("button", { type: "button", onclick: showMore }, `Show ${hidden.length} more`));
    return h("section", { id: "advice" }, h("h2", {}, "Advice"), list, hidden.length ? more : null);
  }

  // Returns what of the logs could not be read.
  function damage() {
    const items = data.damage.map((text) => h("li", {}, text));
    const left = data.damage_left_out;
    return h("section", { id: "damage" }, h("h2", {}, "Damage of the logs"),
      h("ul", { class: "advice" }, items), remark(left ? `${plural(left, "more hole")} not listed` : ""));
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
      { head: "Group", cls: "wide", key: (row) => row[1].toLowerCase(), cell: (row) => groupLink(row[1]) },
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
      orNone(count("Start", "start")), count("Delivered", "delivered"), count("Redelivered", "redelivered"),
      count("Accepted", "accepted"), count("Released", "released"), count("Archived", "archived"),
      count("In flight", "in_flight"), count("Unknown", "unknown"), orNone(took("Blocked for", "blocked_ms")),
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
    const counts = ["Delivered", "Redelivered", "Archived"].map((head, i) => count(head, 3 + i));
    const columns = [
      { head: "Minute (UTC)", cls: "time", key: (row) => row[0], cell: (row) => iso(row[0]).slice(0, 16) },
      { head: "Group", key: (row) => row[1].toLowerCase(), cell: (row) => row[1] },
      { head: "Share partition", cls: "wide", key: (row) => row[2], cell: (row) => row[2] },
      ...counts, orNone(count("Start", 6)),
    ];
    const options = { noun: "minute", text: (row) => `${row[1]} ${row[2]} ${iso(row[0])}` };
    return [
      h("h3", {}, "Minutes with most redelivered and archived records"),
      table("minutes", columns, data.minutes, options).node,
    ];
  }

  // --- the page ---

  // Adds the table of groups and the section of one of them, which follows the address.
  function showGroups(page) {
    const container = h("div", {});
    const missing = h("p", { class: "missing", role: "status", hidden: true });
    let chosen = null; // a row of `data.groups`
    let section = null;
    const groups = groupTable((row) => visit(row, null), (row) => row === chosen);
    const first = data.groups.find(detailOf);

    // Shows a group; returns true if it was not shown before.
    function choose(row) {
      if (row === chosen) return false;
      chosen = row;
      section = groupSection(detailOf(row), row, (key) => setAddress(row, key));
      container.replaceChildren(section.node);
      section.draw(); // It needs the width of its container.
      groups.draw();
      return true;
    }
    function visit(row, key) {
      choose(row);
      section.show(key);
      setAddress(row, key);
    }
    function setAddress(row, key) {
      const address = fragment(detailOf(row), key);
      if (location.hash !== address) location.hash = address;
      missing.hidden = true;
    }
    // Opens what the address names; without a group, the first one.
    function follow() {
      const link = linked();
      missing.textContent = link.missing || "";
      missing.hidden = !link.missing;
      const row = link.row || first;
      if (!row) return;
      const isNew = choose(row);
      if (!isNew && section.shown() === link.key) return;
      const line = section.show(link.key);
      if (line) {
        line.scrollIntoView({ block: "center" });
        line.querySelector("button.toggle").focus({ preventScroll: true });
      } else if (link.row && isNew) {
        section.node.scrollIntoView();
      }
    }
    page.append(missing,
      h("section", {}, h("h2", {}, "Groups, highest cost first"), groups.node,
        remark(data.groups_left_out ? `${plural(data.groups_left_out, "group")} not listed` : "")),
      container);
    addEventListener("hashchange", follow);
    return follow;
  }

  const page = document.getElementById("page");
  page.append(header(), figures());
  if (data.damage.length) page.append(damage());
  if (data.advice.length) page.append(advice());
  const follow = data.groups.length ? showGroups(page) : null;
  if (data.triggering.length) page.append(triggering());
  if (data.deliveries.partitions.length) page.append(deliveries());
  page.append(h("footer", {},
    "Generated by konvene from the logs of a group coordinator. Times are UTC. ", data.caveats.join(" ")));
  if (follow) follow();
})();
