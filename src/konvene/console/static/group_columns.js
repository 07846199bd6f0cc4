"use strict";
// The columns of the grids of the group page: konvene.groupColumns has MEMBERS, IN_FLIGHT, units(unit) and
// rebalances(group), and assignment(row), the text of a member's state.
var konvene = konvene || {};
(() => {
  const { h, number, duration, known, dash, words, amount, isUnknown, ago } = konvene;

  const HELD = "; the coordinator holds the response until the assignment changes";

  function assignment(row) {
    if (row.state) return row.state.toLowerCase().replaceAll("_", " ");
    if (isUnknown(row.reached)) return konvene.UNKNOWN;
    if (row.reached) return "at its target";
    return row.pending ? "revoking" : row.waits ? "waiting" : "reconciling";
  }

  function epochs(row) {
    if (isUnknown(row.epoch)) return "–";
    return isUnknown(row.target_epoch) || row.target_epoch === row.epoch
      ? String(row.epoch)
      : `${row.epoch} → ${row.target_epoch}`;
  }

  function owned(row) {
    return isUnknown(row.target) || row.target === row.owned
      ? number(row.owned)
      : `${number(row.owned)} of ${number(row.target)}`;
  }

  function heartbeat(row) {
    if (isUnknown(row.heartbeat_ms))
      return isUnknown(row.heartbeat_interval_ms) ? "–" : `every ${duration(row.heartbeat_interval_ms)}`;
    return `${ago(row.heartbeat_ms)}${row.heartbeat_held ? ", held" : ""}`;
  }

  const MEMBERS = [
    {
      id: "name",
      head: "Member",
      least: 170,
      grow: 2,
      text: (row) => `${row.name}${row.is_leader ? " · leader" : ""}`,
      title: (row) => row.id,
      draw: (row) => [
        h("b", {}, h("bdi", {}, row.name)),
        row.is_leader
          ? konvene.tag("leader", "The leader computes the assignment of a classic group.", "quiet")
          : null,
      ],
    },
    {
      id: "assignment",
      head: "State",
      least: 124,
      text: assignment,
      draw: (row) => [
        h("i", {
          class: `dot ${row.reached ? "good" : isUnknown(row.reached) ? "idle" : "busy"}`,
          "aria-hidden": "true",
        }),
        assignment(row),
      ],
    },
    amount("epoch", "Epoch", 92, { text: epochs }),
    amount("owned", "Owned", 92, { text: owned, always: true }),
    words("units", "Assignment", 190, { grow: 3 }),
    words("pending", "Has to revoke", 130, { grow: 1 }),
    words("waits", "Waits for", 130, { grow: 1 }),
    amount("heartbeat_ms", "Heartbeat", 118, {
      ticks: true,
      text: heartbeat,
      optional: (row) => !isUnknown(row.heartbeat_ms) || !isUnknown(row.heartbeat_interval_ms),
      title: (row) =>
        isUnknown(row.heartbeat_interval_ms)
          ? ""
          : `Expected every ${duration(row.heartbeat_interval_ms)}${row.heartbeat_held ? HELD : ""}`,
    }),
    words("host", "Host", 130),
    words("client_id", "Client id", 140),
    words("instance_id", "Instance id", 130),
    words("rack", "Rack", 90),
    words("protocol", "Protocol", 90),
    words("process_id", "Process", 140),
    words("tags", "Tags", 140),
    words("id", "Member id", 320),
  ];

  const list = (names) => (names || []).join(", ");
  const some = (id) => ({
    text: (row) => dash(list(row[id])),
    optional: (row) => (row[id] || []).length > 0,
  });

  const units = (unit) => [
    {
      id: "name",
      head: unit === "task" ? "Task" : "Partition",
      least: 150,
      grow: 2,
      text: (row) => row.name,
    },
    {
      id: "owner",
      head: "Owner",
      least: 150,
      grow: 2,
      text: (row) => row.owner_name || (row.owner ? row.owner : "none"),
      title: (row) => row.owner || "",
      draw: (row) =>
        row.owner || row.owner_name ? row.owner_name || row.owner : h("span", { class: "soft" }, "none"),
    },
    amount("start", "Start offset", 110),
    amount("committed", "Committed", 110, {
      text: (row) => (isUnknown(row.committed) ? "–" : number(row.committed)),
    }),
    amount("end", "End", 110),
    amount("lag", "Lag", 96),
    amount("in_flight", "In flight", 90),
    amount("acquired", "Acquired", 90),
    amount("available", "Available", 90),
    amount("archived", "Archived", 90),
    amount("max_delivery_count", "Most deliveries", 124),
    amount("dead_letters", "Dead letters", 110),
    { ...words("standbys", "Standbys", 150), grow: 1, ...some("standbys") },
    { ...words("warmups", "Warm-ups", 150), grow: 1, ...some("warmups") },
    amount("restore_lag", "Restore lag", 104, {
      text: (row) => (isUnknown(row.restore_lag) ? "–" : number(row.restore_lag)),
    }),
  ];

  const rebalances = (group) => [
    {
      id: "at",
      head: "Time (UTC)",
      least: 150,
      key: (row) => row.at_ms,
      text: (row) => konvene.iso(row.at_ms),
      draw: (row) =>
        h(
          "a",
          { href: konvene.path("groups", group, "rebalances", row.key), tabindex: "-1" },
          konvene.iso(row.at_ms),
        ),
    },
    {
      id: "epoch",
      head: "Epoch",
      least: 98,
      num: true,
      key: (row) => row.epoch,
      text: (row) => known(row.epoch),
    },
    {
      id: "cause",
      head: "What happened",
      least: 320,
      grow: 5,
      cls: "two",
      key: (row) => row.cause,
      text: (row) => JSON.stringify([row.sentence, row.open, row.evidence, row.cause]),
      title: (row) => row.sentence,
      draw: (row) =>
        h(
          "div",
          { class: "clamp" },
          konvene.causeDot(row.cause),
          h("bdi", {}, row.sentence),
          konvene.progress(row.open),
          konvene.evidence(row.evidence),
        ),
    },
    {
      id: "took",
      head: "Took",
      least: 88,
      num: true,
      ticks: true,
      key: (row) => row.duration_ms,
      text: (row) =>
        row.open ? duration(Math.max(konvene.now() - row.at_ms, 0)) : duration(row.duration_ms),
    },
    amount("moved", "Moved", 76),
    amount("kept", "Kept", 76),
    amount("unavailable_ms", "Unavailable", 104, {
      text: (row) =>
        isUnknown(row.unavailable_ms) ? konvene.UNKNOWN : `${konvene.seconds(row.unavailable_ms)} s`,
      hint: "Partition-seconds: partitions or tasks × seconds without an owner",
    }),
    amount("lag_records", "Lag caused", 96),
  ];

  const IN_FLIGHT = [
    { id: "partition", head: "Partition", least: 140, grow: 1, text: (row) => row.partition },
    {
      id: "first",
      head: "Offsets",
      least: 130,
      num: true,
      key: (row) => row.first,
      text: (row) =>
        row.first === row.last ? number(row.first) : `${number(row.first)}–${number(row.last)}`,
    },
    words("state", "State", 110, { always: true }),
    words("member_name", "Member", 160, { grow: 1 }),
    amount("delivery_count", "Deliveries", 92),
    amount("held_ms", "Held for", 92, { text: (row) => duration(row.held_ms) }),
    amount("lock_left_ms", "Lock left", 92, { text: (row) => duration(row.lock_left_ms) }),
  ];

  konvene.groupColumns = { MEMBERS, IN_FLIGHT, units, rebalances, assignment };
})();
