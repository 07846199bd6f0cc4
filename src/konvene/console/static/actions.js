"use strict";
// Changes to groups and topics: reset offsets, remove members, delete a group, change a setting. Each is a
// dialog that needs the name of the group or topic typed. They exist only if the server allows changes.
//
//   konvene.groupActions(group, view)  buttons of the group page; none if changes are not allowed
//   konvene.changeSetting({resource, name, key, value, documentation, isFree})
//   konvene.target(id)                 fields that choose an offset: {node, value()}
var konvene = konvene || {};
(() => {
  const { h, number, plural, field, options, dialog, request, isUnknown, natural } = konvene;
  let serial = 0;
  const newId = (name) => `${name}-${serial++}`;

  // --- where to: earliest, latest, offset:N, time:MS, shift:N ---

  // Returns milliseconds of a `datetime-local` value in UTC.
  const utc = (value) => Date.parse(`${value}Z`);

  function target(kinds, chosen) {
    const id = newId("to");
    const kind = h("select", { id, onchange: () => show() }, options(kinds, chosen));
    const offset = h("input", { type: "number", id: `${id}-number`, step: "1", value: "0" });
    const time = h("input", {
      type: "datetime-local",
      id: `${id}-time`,
      step: "1",
      value: new Date(konvene.now()).toISOString().slice(0, 19),
    });
    const offsetField = field("Offset", offset),
      timeField = field("Time (UTC)", time);
    function show() {
      offsetField.hidden = kind.value !== "offset" && kind.value !== "shift";
      offsetField.firstChild.textContent = kind.value === "shift" ? "Shift by" : "Offset";
      timeField.hidden = kind.value !== "time";
    }
    function value() {
      if (kind.value === "time") {
        const ms = utc(time.value);
        if (Number.isNaN(ms)) throw new Error("The time is not complete.");
        return `time:${ms}`;
      }
      if (kind.value !== "offset" && kind.value !== "shift") return kind.value;
      if (!/^-?\d+$/.test(offset.value.trim())) throw new Error("The offset is not an integer.");
      return `${kind.value}:${offset.value.trim()}`;
    }
    // Sets the fields from a text such as `offset:5`.
    function set(text) {
      const [name, ...rest] = text.split(":"),
        argument = rest.join(":");
      if (!kinds.some(([each]) => each === name)) return;
      kind.value = name;
      if (name === "time" && Number.isSafeInteger(Number(argument)))
        time.value = new Date(Number(argument)).toISOString().slice(0, 19);
      if (name === "offset" || name === "shift") offset.value = argument;
      show();
    }
    show();
    return { label: kind, node: [kind, offsetField, timeField], value, set, kind };
  }

  // --- reset offsets ---

  function table(head, rows) {
    return h(
      "div",
      { class: "frame plan", tabindex: "0", role: "region", "aria-label": "Plan" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            head.map((each, i) => h("th", { scope: "col", class: i ? "num" : null }, each)),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map((cells) =>
            h(
              "tr",
              {},
              cells.map((cell, i) => h("td", { class: i ? "num" : null }, cell)),
            ),
          ),
        ),
      ),
    );
  }

  function planTable(plan) {
    return table(
      ["Partition", "Now", "New", "Lag after"],
      plan.map((row) => [
        row.partition,
        isUnknown(row.current) ? "none" : number(row.current),
        number(row.new),
        number(row.lag_after),
      ]),
    );
  }

  function resetOffsets(group, view) {
    const topics = [
      ...new Set([...view.section("units").values()].map((row) => row.topic).filter(Boolean)),
    ].sort();
    const to = target(
      [
        ["earliest", "Earliest"],
        ["latest", "Latest"],
        ["offset", "Offset"],
        ["time", "Time"],
        ["shift", "Shift by"],
      ],
      "earliest",
    );
    const topic = h(
      "select",
      { id: newId("topic") },
      h("option", { value: "" }, "all topics"),
      topics.map((each) => h("option", { value: each }, each)),
    );
    const preview = h("div", { "aria-live": "polite" });
    const body = () => ({ group, topics: topic.value ? [topic.value] : null, to: to.value() });
    let previewed = null;
    async function show() {
      preview.replaceChildren(h("p", { class: "soft" }, "Reading offsets …"));
      try {
        const wanted = body(),
          { plan, problems } = await request("/api/actions/reset-offsets/preview", wanted);
        previewed = JSON.stringify(wanted);
        preview.replaceChildren(
          ...(problems || []).map((text) => h("p", { class: "problem" }, text)),
          h("p", {}, `${plural(plan.length, "partition")} would be reset.`),
          planTable(plan),
        );
      } catch (error) {
        preview.replaceChildren(konvene.problem(error));
      }
    }
    dialog({
      title: "Reset offsets",
      action: "Reset offsets",
      isDangerous: true,
      confirm: group,
      body: [
        h(
          "p",
          {},
          "Sets the committed offsets of ",
          h("b", {}, group),
          ". The group must have no active members.",
        ),
        h(
          "div",
          { class: "row" },
          field("Topic", topic),
          h("div", { class: "field" }, h("label", { for: to.label.id }, "To"), to.node),
        ),
        h("p", {}, h("button", { type: "button", onclick: show }, "Preview")),
        preview,
      ],
      async submit() {
        const wanted = body();
        if (previewed !== JSON.stringify(wanted)) throw new Error("Show the preview of this reset first.");
        const { done, failed } = await request("/api/actions/reset-offsets", { ...wanted, confirm: group });
        return outcome(`${plural(done.length, "partition")} reset.`, failed);
      },
    });
  }

  const sentence = (each) =>
    typeof each === "string"
      ? each
      : each.error
        ? `${each.partition || each.member || each.id || ""}: ${each.error}`
        : Object.values(each).join(" ");

  function outcome(text, failed) {
    if (!failed || !failed.length) return [text];
    return [
      text,
      h("p", { class: "problem" }, `${plural(failed.length, "failure")}:`),
      h(
        "ul",
        { class: "problem" },
        failed.map((each) => h("li", {}, sentence(each))),
      ),
    ];
  }

  // --- members ---

  function removeMembers(group, view) {
    const rows = [...view.section("members").values()].sort((a, b) =>
      natural(a.name) < natural(b.name) ? -1 : 1,
    );
    const boxes = rows.map((row) => {
      const box = h("input", {
        type: "checkbox",
        id: newId("member"),
        value: row.id,
        onchange: () => count(),
      });
      return {
        row,
        box,
        node: h(
          "label",
          { for: box.id },
          box,
          h("span", {}, row.name),
          h("span", { class: "soft small" }, ` ${row.client_id || ""} ${row.host || ""}`),
        ),
      };
    });
    const chosen = () => boxes.filter(({ box }) => box.checked).map(({ row }) => row.id);
    const status = h("p", { class: "soft small", role: "status" });
    const search = h("input", {
      type: "search",
      id: newId("find"),
      oninput: () => {
        const needle = search.value.trim().toLowerCase();
        for (const { row, node } of boxes)
          node.hidden = !`${row.name} ${row.id} ${row.host || ""}`.toLowerCase().includes(needle);
      },
    });
    const count = () => {
      status.textContent = `${chosen().length} of ${plural(rows.length, "member")} chosen.`;
    };
    count();
    dialog({
      title: "Remove members",
      action: "Remove members",
      isDangerous: true,
      confirm: group,
      body: [
        h(
          "p",
          {},
          "Removed members lose what they own, and the group rebalances. Members that still run join again.",
        ),
        field("Filter", search),
        h(
          "div",
          { class: "checks", role: "group", "aria-label": "Members", tabindex: "0" },
          boxes.map(({ node }) => node),
        ),
        status,
      ],
      async submit() {
        const members = chosen();
        if (!members.length) throw new Error("Choose at least one member.");
        const { done, failed } = await request("/api/actions/remove-members", {
          group,
          members,
          confirm: group,
        });
        return outcome(
          `${plural(Array.isArray(done) ? done.length : members.length, "member")} removed.`,
          failed,
        );
      },
    });
  }

  function deleteGroup(group) {
    dialog({
      title: "Delete group",
      action: "Delete group",
      isDangerous: true,
      confirm: group,
      body: [
        h(
          "p",
          {},
          "Deletes ",
          h("b", {}, group),
          " with its committed offsets. This cannot be undone. The group must have no members.",
        ),
      ],
      async submit() {
        const { failed } = (await request("/api/actions/delete-group", { group, confirm: group })) || {};
        return outcome(
          failed && failed.length ? "The group was not deleted." : "The group was deleted.",
          failed,
        );
      },
    });
  }

  // --- settings ---

  const GROUP_SETTINGS = [
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.record.lock.duration.ms",
    "share.auto.offset.reset",
    "share.isolation.level",
    "streams.session.timeout.ms",
    "streams.heartbeat.interval.ms",
    "streams.num.standby.replicas",
  ];

  // Opens the dialog that sets or removes a setting. `isFree`: its name is typed too.
  function changeSetting({ resource, name, key, value, documentation, isFree }) {
    const keyInput = h("input", {
      type: "text",
      id: newId("key"),
      value: key || "",
      autocomplete: "off",
      spellcheck: "false",
      list: isFree ? "group-settings" : null,
    });
    const input = h("input", {
      type: "text",
      id: newId("value"),
      value: isUnknown(value) ? "" : value,
      autocomplete: "off",
      spellcheck: "false",
    });
    const remove = h("input", {
      type: "checkbox",
      id: newId("remove"),
      onchange: () => {
        input.disabled = remove.checked;
      },
    });
    dialog({
      title: isFree ? "Change a setting" : `Change ${key}`,
      action: "Apply",
      confirm: name,
      body: [
        documentation ? h("p", { class: "small soft" }, documentation) : null,
        isFree
          ? [
              field("Setting", keyInput),
              h(
                "datalist",
                { id: "group-settings" },
                GROUP_SETTINGS.map((each) => h("option", { value: each })),
              ),
            ]
          : null,
        field("Value", input),
        h("p", {}, h("label", { for: remove.id }, remove, " Remove the value, so that the default applies")),
      ]
        .flat()
        .filter(Boolean),
      async submit() {
        const chosen = isFree ? keyInput.value.trim() : key;
        if (!chosen) throw new Error("Name a setting.");
        await request("/api/actions/set-config", {
          resource,
          name,
          key: chosen,
          value: remove.checked ? null : input.value,
          confirm: name,
        });
        return remove.checked ? `${chosen} has its default again.` : `${chosen} is ${input.value} now.`;
      },
    });
  }

  // --- the group page ---

  function groupActions(group, view) {
    if (!view.fact("allow_changes")) return [];
    const button = (label, onclick) => h("button", { type: "button", onclick }, label);
    return [
      button("Reset offsets …", () => resetOffsets(group, view)),
      button("Remove members …", () => removeMembers(group, view)),
      button("Change a setting …", () => changeSetting({ resource: "group", name: group, isFree: true })),
      button("Delete group …", () => deleteGroup(group)),
    ];
  }

  Object.assign(konvene, { groupActions, changeSetting, target });
})();
