"use strict";
// The trace of a rebalance: its steps, what each member did and waited for, and what the log does not record.
//
// konvene.trace(trace) returns a node.
//   steps      {after_ms, text}; `after_ms` is the time since the rebalance began
//   members    {name, part, before, after, revoked, added, acknowledged_ms, states, waited_for}
//   left_out   number of members that are not listed
//   unknown    facts that the log does not record
//   converged  false if the rebalance ended before all members reached their targets
var konvene = konvene || {};
(() => {
  const { h, duration, isUnknown, number, plural, UNKNOWN } = konvene;
  const PARTS = { joined: "joined", stayed: "stayed", gone: "departed" };
  const NONE = "none";

  const MEMBER_COLUMNS = [
    { head: "Member", cls: "name", text: (member) => member.name },
    { head: "Change", text: (member) => PARTS[member.part] || member.part },
    { head: "Before", num: true, text: (member) => number(member.before) },
    { head: "After", num: true, text: (member) => number(member.after) },
    { head: "Revoked", num: true, text: (member) => number(member.revoked) },
    { head: "Added", num: true, text: (member) => number(member.added) },
    { head: "Reached its target after", num: true, text: reached },
    { head: "Waited for", cls: "name", text: (member) => member.waited_for.join(", ") || NONE },
    { head: "States", text: (member) => member.states.join(", ") || UNKNOWN },
  ];

  function reached(member, trace) {
    if (!isUnknown(member.acknowledged_ms)) return duration(member.acknowledged_ms);
    if (member.part === "gone") return NONE;
    return trace.converged === false ? "not reached" : UNKNOWN;
  }

  function steps(trace) {
    const after = (ms) => `${ms < 0 ? "−" : "+"}${duration(Math.abs(ms))}`;
    return h("ol", { class: "steps" }, trace.steps.map((step) =>
      h("li", {}, h("span", { class: "after" }, after(step.after_ms)), h("span", {}, step.text))));
  }

  function members(trace) {
    const cls = (column) => [column.num ? "num" : "", column.cls || ""].join(" ").trim() || null;
    const head = MEMBER_COLUMNS.map((column) => h("th", { scope: "col", class: cls(column) }, column.head));
    const rows = trace.members.map((member) => h("tr", {},
      MEMBER_COLUMNS.map((column) => h("td", { class: cls(column) }, column.text(member, trace)))));
    return h("div", { class: "frame members" },
      h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)));
  }

  konvene.trace = (trace) => h("div", { class: "trace" },
    trace.steps.length ? steps(trace) : h("p", { class: "note" }, "No step has a known time."),
    trace.members.length ? members(trace) : null,
    trace.left_out ? h("p", { class: "note" }, `${plural(trace.left_out, "more member")} not listed.`) : null,
    trace.unknown.length
      ? h("p", { class: "note unknown" }, `The log does not record ${trace.unknown.join(", ")}.`) : null);
})();
