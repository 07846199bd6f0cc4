"use strict";
// A table that sorts, filters, opens details of a row in place, and takes new rows while it is used.
//
// konvene.table(name, columns, rows, options) returns {node, draw, update, open, toggle, state}.
//   name     prefix of element ids
//   columns  {head, key(row) -> value to sort by, cell(row) -> text, node or array, num, cls, toggle};
//            the cells of a column with `toggle` are buttons that open the row's detail
//   options  noun            noun of a row, for the counter
//            rowKey(row)     identity of a row over updates; default: the row object
//            text(row)       text that the filter searches
//            choice(row)     value of the second filter, with its label `choiceName`
//            pick(row)       called when a row is chosen
//            current(row)    true for the chosen row
//            detail(row)     node that opens below the row; built when it opens
//            onToggle(row, isOpen)
//            state           {sort, descending, filter, choice} to begin with; `sort` is a column's head
//            onState(state)  called after the user sorts or filters
//
// `update(rows)` keeps sorting, filters, focus, opened rows and the number of rows shown. A row object that
// is the same as before is not drawn again; a cell that is equal to the former keeps its nodes. So handlers
// in cells must not depend on more of a row than its key.
var konvene = konvene || {};
(() => {
  const { h, number, plural } = konvene;
  const FEW = 100; // rows before "Show more"
  const MORE = 400; // rows that "Show more" adds
  const CONTROLS = "a, button, input, select";

  class Table {
    constructor(name, columns, rows, options) {
      this.name = name;
      this.columns = columns;
      this.rows = rows;
      this.options = options;
      this.limit = FEW;
      this.lines = new Map(); // by row key: {row, line, detail}
      this.opened = new Set(); // row keys
      const state = options.state || {};
      this.sorted = columns.findIndex((column) => column.head === state.sort);
      this.descending = Boolean(state.descending);
      this.filter = state.filter || "";
      this.choice = state.choice || "";
      this.build();
      this.draw();
    }

    build() {
      this.body = h("tbody", {});
      this.more = h("div", { class: "more", hidden: true });
      this.count = h("span", { class: "soft small right", role: "status" });
      this.heads = this.columns.map((column, i) =>
        h("th", { scope: "col", class: column.num ? "num" : null },
          h("button", { type: "button", onclick: () => this.sort(i) }, column.head)));
      this.node = h("div", { id: this.name }, this.bar(),
        h("div", { class: "frame" },
          h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body), this.more));
    }

    bar() {
      const { options, name } = this;
      const bar = h("div", { class: "bar" });
      if (options.text) {
        const onInput = (event) => this.setFilter({ filter: event.target.value });
        const input = h("input", { type: "search", id: `${name}-filter`, oninput: onInput });
        input.value = this.filter;
        bar.append(h("label", { for: input.id }, "Filter", input));
        this.input = input;
      }
      if (options.choice) {
        const onChange = (event) => this.setFilter({ choice: event.target.value });
        this.select = h("select", { id: `${name}-choice`, onchange: onChange });
        this.selectLabel = h("label", { for: this.select.id }, options.choiceName, this.select);
        bar.append(this.selectLabel);
      }
      bar.append(this.count);
      return bar;
    }

    // --- what the user does ---

    sort(i) {
      this.descending = this.sorted === i ? !this.descending : Boolean(this.columns[i].num);
      this.sorted = i;
      this.changed();
    }

    setFilter({ filter = this.filter, choice = this.choice }) {
      this.filter = filter;
      this.choice = choice;
      this.limit = FEW;
      this.changed();
    }

    changed() {
      this.draw();
      if (this.options.onState) this.options.onState(this.state());
    }

    state() {
      const sort = this.sorted < 0 ? null : this.columns[this.sorted].head;
      return { sort, descending: this.descending, filter: this.filter, choice: this.choice };
    }

    toggle(key) {
      const entry = this.lines.get(key);
      if (!this.options.detail || !entry) return;
      if (!this.opened.delete(key)) this.opened.add(key);
      this.draw();
      if (this.options.onToggle) this.options.onToggle(entry.row, this.opened.has(key));
    }

    // Opens a row's detail, whatever the filters and the number of rows shown; returns the row's element.
    open(key) {
      const row = this.rows.find((each) => this.keyOf(each) === key);
      if (row === undefined) return null;
      if (this.options.detail) this.opened.add(key);
      if (!this.isShown(row)) {
        this.filter = this.choice = "";
        if (this.input) this.input.value = "";
      }
      const index = this.visible().indexOf(row);
      while (index >= this.limit) this.limit += MORE;
      this.draw();
      return this.lines.get(key).line;
    }

    close(key) {
      if (this.opened.delete(key)) this.draw();
    }

    update(rows) {
      this.rows = rows;
      this.draw();
    }

    // --- which rows ---

    keyOf(row) {
      return this.options.rowKey ? this.options.rowKey(row) : row;
    }

    isShown(row) {
      const { text, choice } = this.options;
      const words = this.filter.trim().toLowerCase();
      if (words && text && !text(row).toLowerCase().includes(words)) return false;
      return !this.choice || !choice || choice(row) === this.choice;
    }

    visible() {
      const shown = this.rows.filter((row) => this.isShown(row));
      if (this.sorted < 0) return shown;
      const { key } = this.columns[this.sorted];
      const sign = this.descending ? -1 : 1;
      return shown.sort((a, b) => compare(key(a), key(b), sign));
    }

    // --- drawing ---

    draw() {
      this.drawHeads();
      this.drawChoices();
      const shown = this.visible();
      const { rows, limit, options } = this;
      const nodes = [];
      for (const row of shown.slice(0, limit)) nodes.push(...this.line(row));
      arrange(this.body, nodes);
      this.forget();
      this.more.hidden = shown.length <= limit;
      const showMore = () => { this.limit += MORE; this.draw(); };
      this.more.replaceChildren(`${number(shown.length - limit)} more `,
        h("button", { type: "button", onclick: showMore }, "Show more"));
      const total = plural(rows.length, options.noun);
      const count = shown.length === rows.length ? total : `${number(shown.length)} of ${total}`;
      if (this.count.textContent !== count) this.count.textContent = count; // A status is read aloud.
    }

    drawHeads() {
      this.heads.forEach((head, i) => {
        if (i === this.sorted) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
    }

    drawChoices() {
      if (!this.select) return;
      const choices = [...new Set(this.rows.map(this.options.choice))].sort();
      if (this.choice && !choices.includes(this.choice)) choices.push(this.choice);
      const fresh = h("select", {}, h("option", { value: "" }, "all"),
        choices.map((each) => h("option", { value: each }, each)));
      const same = [...fresh.options].map((each) => each.value).join("\n") ===
        [...this.select.options].map((each) => each.value).join("\n");
      if (!same) this.select.replaceChildren(...fresh.childNodes);
      this.select.value = this.choice;
      this.selectLabel.hidden = choices.length < 2;
    }

    // Returns the elements of a row: its line, and its detail if that is open.
    line(row) {
      const key = this.keyOf(row);
      let entry = this.lines.get(key);
      if (!entry) {
        entry = { row: null, line: this.newLine(key), detail: null };
        this.lines.set(key, entry);
      }
      const open = this.opened.has(key);
      if (entry.row !== row || entry.open !== open) {
        entry.detail = open && entry.row === row ? entry.detail : null;
        Object.assign(entry, { row, open });
        const cells = this.columns.map((column) => this.cell(column, row, open));
        if (!entry.line.childNodes.length) entry.line.append(...cells);
        else cells.forEach((cell, i) => replaceCell(entry.line.childNodes[i], cell));
      }
      const { current } = this.options;
      if (current && current(row)) entry.line.setAttribute("aria-current", "true");
      else entry.line.removeAttribute("aria-current");
      if (!open) return [entry.line];
      entry.detail = entry.detail || h("tr", { class: "opened" },
        h("td", { colspan: this.columns.length }, this.options.detail(row)));
      return [entry.line, entry.detail];
    }

    newLine(key) {
      const chosen = this.options.pick || this.options.detail;
      const line = h("tr", { class: chosen ? "pick" : null });
      if (chosen) {
        line.addEventListener("click", (event) => {
          if (!event.target.closest(CONTROLS) && !String(getSelection())) this.choose(key);
        });
      }
      return line;
    }

    choose(key) {
      const { row } = this.lines.get(key);
      this.toggle(key);
      if (this.options.pick) this.options.pick(row);
    }

    cell(column, row, open) {
      const cls = [column.num ? "num" : "", column.cls || ""].join(" ").trim() || null;
      let content = column.cell(row);
      if (column.toggle && this.options.detail) {
        const onclick = () => this.choose(this.keyOf(row));
        const attributes = { type: "button", class: "link toggle", "aria-expanded": String(open), onclick };
        content = h("button", attributes, content);
      }
      return h("td", { class: cls }, content);
    }

    // Drops the elements of rows that no longer exist.
    forget() {
      if (this.lines.size <= this.rows.length) return;
      const keys = new Set(this.rows.map((row) => this.keyOf(row)));
      for (const key of [...this.lines.keys()]) {
        if (!keys.has(key)) this.lines.delete(key);
      }
    }
  }

  // Orders two values; null comes last in both directions.
  function compare(x, y, sign) {
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return (x < y ? -1 : 1) * sign;
  }

  // Makes `nodes` the children of `parent`, moving as few as possible and keeping the focus.
  function arrange(parent, nodes) {
    const focused = parent.contains(document.activeElement) ? document.activeElement : null;
    const wanted = new Set(nodes);
    for (const node of [...parent.childNodes]) if (!wanted.has(node)) node.remove();
    let next = parent.firstChild;
    for (const node of nodes) {
      if (node === next) next = next.nextSibling;
      else parent.insertBefore(node, next);
    }
    const lost = focused && focused !== document.activeElement && focused.isConnected;
    if (lost) focused.focus({ preventScroll: true });
  }

  // Gives a cell the contents of a new one if they differ, keeping the focus.
  function replaceCell(cell, fresh) {
    if (cell.isEqualNode(fresh)) return;
    const focused = [...cell.querySelectorAll(CONTROLS)].indexOf(document.activeElement);
    if (cell.className !== fresh.className) cell.className = fresh.className;
    cell.replaceChildren(...fresh.childNodes);
    const control = focused < 0 ? null : cell.querySelectorAll(CONTROLS)[focused];
    if (control) control.focus({ preventScroll: true });
  }

  konvene.table = (name, columns, rows, options) => {
    const table = new Table(name, columns, rows, options);
    return {
      node: table.node,
      draw: () => table.draw(),
      update: (fresh) => table.update(fresh),
      open: (key) => table.open(key),
      close: (key) => table.close(key),
      toggle: (key) => table.toggle(key),
      isOpen: (key) => table.opened.has(key),
      state: () => table.state(),
    };
  };
})();
