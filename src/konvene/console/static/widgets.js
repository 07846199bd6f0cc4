"use strict";
// Small parts that several pages share: texts of times, tags, facts, tabs, filters and dialogs.
var konvene = konvene || {};
(() => {
  const { h, UNKNOWN, isUnknown, iso, number, setText } = konvene;

  // --- texts ---

  // Returns how long ago a time was: `12 s ago`.
  function ago(ms) {
    if (isUnknown(ms) || ms < 0) return UNKNOWN;
    const seconds = Math.max(Math.floor((konvene.now() - ms) / 1000), 0);
    if (seconds < 1) return "now";
    if (seconds < 60) return `${seconds} s ago`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
    return `${Math.floor(seconds / 86400)} d ago`;
  }

  const known = (value) => (isUnknown(value) ? UNKNOWN : String(value));
  const dash = (value) => (isUnknown(value) || value === "" ? "–" : String(value));

  // --- columns of a grid ---

  // Returns a column of a text field; `optional`: left out while no row has it.
  const words = (id, head, least, more) => ({
    id,
    head,
    least,
    text: (row) => dash(row[id]),
    optional: more && more.always ? null : (row) => !isUnknown(row[id]) && row[id] !== "",
    ...more,
  });

  // Returns a column of a figure, which is shown as unknown if it is null.
  const amount = (id, head, least, more) => ({
    id,
    head,
    least,
    num: true,
    key: (row) => row[id],
    text: (row) => number(row[id]),
    optional: more && more.always ? null : (row) => !isUnknown(row[id]),
    ...more,
  });

  // Replaces the children of a node; leaves out those that are null.
  function replace(node, ...children) {
    node.replaceChildren();
    return konvene.fill(node, {}, ...children);
  }

  // --- tags ---

  const INFERRED = "Inferred: Kafka's log does not record this, konvene derived it from the records.";
  const MISSING = "Incomplete: records of this rebalance were compacted, or could not be read.";

  function tag(shown, explanation, cls) {
    return h(
      "span",
      {
        class: `tag ${cls || ""}`,
        title: explanation,
        role: explanation ? "note" : null,
        "aria-label": explanation ? `${shown}. ${explanation}` : null,
      },
      shown,
    );
  }

  // Returns the mark of facts that were not observed, or null.
  function evidence(kind) {
    if (kind === "inferred") return tag("inferred", INFERRED, "quiet");
    return kind === "missing" ? tag("incomplete", MISSING, "quiet") : null;
  }

  const progress = (open) => (open ? tag("in progress", null, "busy") : null);

  // Returns the coloured dot of a cause's family.
  const causeDot = (cause) => h("i", { class: `dot ${konvene.family(cause || "")}`, "aria-hidden": "true" });

  // Returns the state of a group: text with a dot.
  function state(name) {
    const shown = known(name);
    const kind = /^(Stable|Steady)$/.test(shown)
      ? "good"
      : /^(Dead|Empty|unknown)$/.test(shown)
        ? "idle"
        : "busy";
    return [h("i", { class: `dot ${kind}`, "aria-hidden": "true" }), shown];
  }

  // --- facts: a row of terms with their values ---

  function facts(terms) {
    const values = new Map();
    const node = h(
      "dl",
      { class: "facts" },
      terms.map(([id, term]) => {
        const value = h("dd", {}, "–"),
          item = h("div", {}, h("dt", {}, term), value);
        values.set(id, { value, item });
        return item;
      }),
    );
    // Sets a value; null hides the term.
    function set(id, shown, title) {
      const { value, item } = values.get(id);
      item.hidden = shown === null;
      if (shown !== null) setText(value, shown);
      if (title) value.title = title;
    }
    return { node, set };
  }

  // --- tabs; the chosen one is the parameter "tab" ---

  // tabs: {id, label, panel, shown()}; returns {node, label(id, text), hide(id, isHidden), isShown(id)}.
  function tabs(label, list) {
    const buttons = new Map();
    let chosen = null;
    const bar = h("div", { class: "tabs", role: "tablist", "aria-label": label });
    for (const each of list) {
      const button = h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${each.id}`,
          "aria-controls": `panel-${each.id}`,
          onclick: () => choose(each.id, true),
        },
        each.label,
      );
      buttons.set(each.id, button);
      bar.append(button);
      each.panel.id = `panel-${each.id}`;
      each.panel.setAttribute("role", "tabpanel");
      each.panel.setAttribute("aria-labelledby", button.id);
    }
    const visible = () => list.filter(({ id }) => !buttons.get(id).hidden);
    function choose(id, isByUser) {
      chosen = id;
      for (const each of list) {
        const isChosen = each.id === id,
          button = buttons.get(each.id);
        button.setAttribute("aria-selected", String(isChosen));
        button.tabIndex = isChosen ? 0 : -1;
        each.panel.hidden = !isChosen;
      }
      if (isByUser) konvene.query.set({ tab: id === list[0].id ? null : id });
      const { shown } = list.find((each) => each.id === id);
      if (shown && bar.isConnected) shown();
    }
    bar.addEventListener("keydown", (event) => {
      const there = visible(),
        i = there.findIndex(({ id }) => id === chosen);
      const moves = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: there.length - 1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      const next = there[(moves[event.key] + there.length) % there.length];
      choose(next.id, true);
      buttons.get(next.id).focus();
    });
    const asked = konvene.query.get("tab");
    choose(list.some(({ id }) => id === asked) ? asked : list[0].id, false);
    return {
      node: h(
        "div",
        {},
        bar,
        list.map(({ panel }) => panel),
      ),
      label: (id, shown) => setText(buttons.get(id), shown),
      hide(id, isHidden) {
        buttons.get(id).hidden = isHidden;
        if (isHidden && chosen === id) choose(list[0].id, false);
      },
      isShown: (id) => chosen === id,
      chosen: () => chosen,
      choose,
    };
  }

  // --- a select that filters a grid by a value of its rows ---

  // Returns {node, passes(row), add(row)}; the choice is kept in the query string as `name`.
  function choice(name, label, value, onChange) {
    const values = new Set();
    let chosen = konvene.query.get(name) || "";
    const select = h(
      "select",
      {
        id: `choice-${name}`,
        onchange: () => {
          chosen = select.value;
          konvene.query.set({ [name]: chosen });
          onChange();
        },
      },
      h("option", { value: "" }, "all"),
    );
    const node = h("label", { for: select.id, hidden: true }, label, select);
    function add(row) {
      const each = value(row);
      if (isUnknown(each) || values.has(each)) return;
      values.add(each);
      const after = [...select.options].slice(1).find((option) => option.value > each);
      select.insertBefore(h("option", { value: each }, each), after || null);
      node.hidden = values.size < 2 && !chosen;
      select.value = values.has(chosen) ? chosen : "";
    }
    return { node, add, passes: (row) => !chosen || value(row) === chosen };
  }

  // --- dialogs ---

  let dialogs = 0;

  // Opens a modal dialog.
  //   title, body (nodes), action (label of the button), isDangerous
  //   confirm   name that has to be typed before the button works; none if it is null or undefined
  //   submit()  returns a promise of the message to show; its error is shown
  function dialog({ title, body, action, isDangerous, confirm, submit }) {
    const id = `dialog-${dialogs++}`;
    const typed = isUnknown(confirm)
      ? null
      : h("input", { type: "text", id: `${id}-confirm`, autocomplete: "off", spellcheck: "false" });
    const expected = isUnknown(confirm) ? "" : confirm.replace(/[\r\n]/g, ""); // a field has one line
    const button = h("button", { type: "submit", class: isDangerous ? "danger" : "primary" }, action);
    const close = h("button", { type: "button", onclick: () => node.close() }, "Cancel");
    const outcome = h("div", { class: "outcome", role: "alert" });
    const fields = h("div", { class: "fields" }, body);
    const form = h(
      "form",
      {},
      h("h2", { id }, title),
      fields,
      typed &&
        h(
          "p",
          { class: "confirm" },
          h("label", { for: typed.id }, "To confirm, type ", h("code", {}, confirm)),
          typed,
        ),
      outcome,
      h("p", { class: "buttons" }, close, button),
    );
    const node = h("dialog", { "aria-labelledby": id }, form);
    const check = () => {
      button.disabled = typed !== null && typed.value !== expected;
    };
    if (typed) typed.addEventListener("input", check);
    check();
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (button.disabled) return;
      button.disabled = true;
      outcome.replaceChildren();
      try {
        const message = await submit();
        fields.hidden = button.hidden = true;
        if (typed) typed.parentNode.hidden = true;
        replace(
          outcome,
          [message].flat().map((each) => (each.nodeType ? each : h("p", {}, each))),
        );
        close.textContent = "Close";
        close.focus();
      } catch (error) {
        outcome.replaceChildren(problem(error));
        check();
      }
    });
    node.addEventListener("close", () => node.remove());
    document.body.append(node);
    node.showModal();
    return node;
  }

  // Returns the text of an error, with its hint.
  function problem(error) {
    return h(
      "div",
      { class: "problem" },
      h("p", {}, error.message),
      error.hint ? h("p", { class: "small" }, error.hint) : null,
    );
  }

  // Returns a label with its input.
  function field(label, input, hint) {
    return h(
      "div",
      { class: "field" },
      h("label", { for: input.id }, label),
      input,
      hint ? h("span", { class: "small soft" }, hint) : null,
    );
  }

  const options = (pairs, chosen) =>
    pairs.map(([value, label]) => h("option", { value, selected: value === chosen }, label));

  // Returns a time as text with the full time as its tooltip.
  const time = (ms) =>
    h(
      "time",
      { datetime: isUnknown(ms) || ms < 0 ? null : new Date(ms).toISOString(), title: `${iso(ms)} UTC` },
      iso(ms),
    );

  Object.assign(konvene, {
    ago,
    known,
    dash,
    replace,
    words,
    amount,
    tag,
    evidence,
    progress,
    causeDot,
    state,
    facts,
    tabs,
    choice,
    dialog,
    problem,
    field,
    options,
    time,
  });
})();
