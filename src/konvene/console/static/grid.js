"use strict";
// A live table of any length: only the rows within its frame are elements, and an update touches only the
// cells that changed.
//
// konvene.grid(name, columns, options) returns a grid: node, count, update, tick, fit, setFilter, refilter,
// close.
//   name     prefix of element ids
//   columns  {id        name in the query string
//             head      text of the header
//             text(row) text of the cell; with `draw` whatever distinguishes its contents from others
//             draw(row) node or array to show instead of the text
//             key(row)  value to sort by; default: the text. null comes last
//             least     smallest width in px; grow: share of the remaining width
//             num       true for figures
//             optional(row)  whether the row has a value; the column is left out until one has
//             ticks     true if the text depends on the present time
//             title(row) tooltip; default: the text}
//   options  label       accessible name
//            noun        noun of a row, for the counter
//            empty       text if there are no rows
//            rowHeight   px; default 34
//            words(row)  text that the filter searches
//            passes(row) false to leave a row out, for other filters (then call refilter())
//            href(row)   page that a row opens
//            open(row)   called when a row is opened that has no page
//            sort        id of the column to sort by at first, with "-" for descending
//            query       parameter of the sorting in the query string; default "sort"
//
// update(section, keys) takes the Map of all rows by key and the Set of changed keys (null for all). New rows
// and deleted ones take effect at once; rows that only change their place move at most once a second.
//
// Keys: one row has the focus; arrows, Page Up and Down, Home and End move it, Enter opens it.
var konvene = konvene || {};
(() => {
  const { h, number, plural } = konvene;
  const SPARE = 4; // rows beyond each end of the frame
  const REORDER_MS = 1000;
  const GAP = 16; // px between columns, as in console.css
  const EDGE = 14; // px beside the first and the last column
  const BOTTOM = 24,
    AROUND = 130,
    LEAST_HEIGHT = 340; // px below the frame; above and below a tall one; of it

  // Returns a text that sorts as its numbers do: `orders:9` before `orders:10`.
  const natural = (text) => text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(14, "0"));

  function compareKeys(a, b) {
    if (a === b) return 0;
    if (a === null || a === undefined) return 2;
    if (b === null || b === undefined) return -2;
    return a < b ? -1 : 1;
  }

  class Grid {
    constructor(name, columns, options) {
      this.name = name;
      this.columns = columns;
      this.options = options;
      this.rowHeight = options.rowHeight || 34;
      this.entries = new Map(); // by row key: {key, row, words, place, tie, out}
      this.order = []; // entries that pass the filters, sorted
      this.used = new Set(columns.filter((column) => !column.optional));
      this.shown = []; // columns
      this.lines = new Map(); // elements by row key
      this.pool = []; // elements that are not in use
      this.needle = "";
      this.top = 0;
      this.height = 0;
      this.active = null; // key of the row that has the focus
      this.stale = new Set(); // entries to place anew
      this.timer = 0;
      this.readSort();
      this.build();
    }

    readSort() {
      const text = konvene.query.get(this.options.query || "sort") || this.options.sort || "";
      this.descending = text.startsWith("-");
      const id = text.replace(/^-/, "");
      this.sorted = this.columns.find((column) => column.id === id) || this.columns[0];
    }

    build() {
      const { options, name } = this;
      this.head = h("div", { class: "grid-head", role: "row", "aria-rowindex": "1" });
      this.body = h("div", { class: "grid-body", role: "rowgroup" });
      this.empty = h(
        "p",
        { class: "grid-empty soft", hidden: true },
        options.empty || `No ${options.noun}s.`,
      );
      this.table = h(
        "div",
        { class: "grid", role: "grid", "aria-label": options.label, "aria-rowcount": "1" },
        h("div", { role: "rowgroup", class: "grid-top" }, this.head),
        this.body,
      );
      this.frame = h("div", { class: "frame grid-frame", id: name }, this.table, this.empty);
      this.count = h("span", { class: "soft small count" });
      this.node = this.frame;
      this.body.style.setProperty("--row", `${this.rowHeight}px`);
      this.frame.addEventListener("scroll", () => this.scrolled(), { passive: true });
      this.body.addEventListener("keydown", (event) => this.onKey(event));
      this.body.addEventListener("click", (event) => this.onClick(event));
      this.body.addEventListener("focusin", (event) => this.onFocus(event));
      this.observer = new ResizeObserver(() => this.resize());
      this.observer.observe(this.frame);
      this.onWindow = () => this.fit();
      addEventListener("resize", this.onWindow);
      this.drawHead();
    }

    close() {
      this.observer.disconnect();
      removeEventListener("resize", this.onWindow);
      clearTimeout(this.timer);
    }

    // --- columns ---

    drawHead() {
      this.shown = this.columns.filter((column) => this.used.has(column));
      const widths = this.shown.map(({ least, grow }) =>
        grow ? `minmax(${least}px, ${grow}fr)` : `${least}px`,
      );
      const total = this.shown.reduce((sum, { least }) => sum + least + GAP, 2 * EDGE - GAP);
      this.table.style.setProperty("--columns", widths.join(" "));
      this.table.style.setProperty("--least", `${total}px`);
      this.table.setAttribute("aria-colcount", this.shown.length);
      this.head.replaceChildren(
        ...this.shown.map((column) =>
          h(
            "div",
            { role: "columnheader", class: column.num ? "num" : null, "aria-sort": this.sortOf(column) },
            h(
              "button",
              { type: "button", onclick: () => this.sortBy(column), title: column.hint || null },
              column.head,
            ),
          ),
        ),
      );
      for (const line of this.lines.values()) line.remove();
      this.lines.clear();
      this.pool = [];
    }

    sortOf(column) {
      return column === this.sorted ? (this.descending ? "descending" : "ascending") : "none";
    }

    sortBy(column) {
      this.descending = this.sorted === column ? !this.descending : Boolean(column.num);
      this.sorted = column;
      this.shown.forEach((each, i) => this.head.children[i].setAttribute("aria-sort", this.sortOf(each)));
      konvene.query.set({ [this.options.query || "sort"]: (this.descending ? "-" : "") + column.id });
      for (const entry of this.entries.values()) entry.place = this.placeOf(entry.row);
      this.arrangeAll();
    }

    placeOf(row) {
      const { key, text } = this.sorted;
      if (key) return key(row);
      const shown = text(row);
      return typeof shown === "string" ? natural(shown) : shown;
    }

    // --- rows ---

    update(section, keys) {
      let isStructural = false,
        hasNewColumn = false;
      for (const key of keys || new Set([...section.keys(), ...this.entries.keys()])) {
        const row = section.get(key);
        let entry = this.entries.get(key);
        if (row === undefined) {
          if (!entry) continue;
          this.entries.delete(key);
          entry.out = true;
          isStructural = true;
          continue;
        }
        const place = this.placeOf(row);
        if (!entry) {
          entry = { key, row, words: null, place, tie: natural(key), out: false };
          this.entries.set(key, entry);
          this.stale.add(entry);
          isStructural = true;
        } else {
          const passed = this.passes(entry);
          Object.assign(entry, { row, words: null });
          const isMoved = this.passes(entry) !== passed;
          if (isMoved) isStructural = true;
          if (isMoved || place !== entry.place) this.stale.add(entry);
          entry.place = place;
        }
        for (const column of this.columns) {
          if (!this.used.has(column) && column.optional(row)) {
            this.used.add(column);
            hasNewColumn = true;
          }
        }
      }
      if (hasNewColumn) this.drawHead();
      if (isStructural) this.arrange();
      else if (this.stale.size && !this.timer) {
        this.timer = setTimeout(() => {
          this.timer = 0;
          if (!document.hidden) this.arrange();
        }, REORDER_MS);
      }
      if (isStructural) return;
      if (hasNewColumn || !keys) this.draw();
      else this.drawChanged(keys);
    }

    passes(entry) {
      const { words, passes } = this.options;
      if (passes && !passes(entry.row)) return false;
      if (!this.needle) return true;
      if (entry.words === null) entry.words = words(entry.row).toLowerCase();
      return entry.words.includes(this.needle);
    }

    compare(a, b) {
      const order = compareKeys(a.place, b.place);
      if (order === 0) return a.tie < b.tie ? -1 : a.tie > b.tie ? 1 : 0;
      return Math.abs(order) === 2 ? order : this.descending ? -order : order;
    }

    // Places only the entries whose sort value, or whether they pass the filter, has changed.
    arrange() {
      if (this.stale.size > this.entries.size / 4) {
        this.arrangeAll();
        return;
      }
      const stale = this.stale;
      const rest = this.order.filter((entry) => !entry.out && !stale.has(entry));
      const fresh = [...stale]
        .filter((entry) => !entry.out && this.passes(entry))
        .sort((a, b) => this.compare(a, b));
      const merged = [];
      let i = 0;
      for (const entry of rest) {
        while (i < fresh.length && this.compare(fresh[i], entry) < 0) merged.push(fresh[i++]);
        merged.push(entry);
      }
      this.setOrder([...merged, ...fresh.slice(i)]);
    }

    arrangeAll() {
      const found = [];
      for (const entry of this.entries.values()) if (this.passes(entry)) found.push(entry);
      this.setOrder(found.sort((a, b) => this.compare(a, b)));
    }

    setOrder(order) {
      clearTimeout(this.timer);
      this.timer = 0;
      this.stale.clear();
      this.order = order;
      const all = this.entries.size,
        some = order.length;
      const total = plural(all, this.options.noun);
      const text = some === all ? total : `${number(some)} of ${total}`;
      if (this.count.textContent !== text) this.count.textContent = text;
      this.table.setAttribute("aria-rowcount", some + 1);
      this.empty.hidden = some > 0;
      this.empty.textContent =
        all > 0 ? "No row matches the filter." : this.options.empty || `No ${this.options.noun}s.`;
      this.body.style.setProperty("--rows", some);
      if (some) this.body.setAttribute("role", "rowgroup");
      else this.body.removeAttribute("role"); // A row group must have rows.
      this.draw();
    }

    setFilter(text) {
      this.needle = text.trim().toLowerCase();
      this.refilter();
    }

    refilter() {
      this.frame.scrollTop = this.top = 0;
      this.arrangeAll();
    }

    // --- drawing ---

    scrolled() {
      this.top = this.frame.scrollTop;
      if (this.frameRequest) return;
      this.frameRequest = requestAnimationFrame(() => {
        this.frameRequest = 0;
        this.draw();
      });
    }

    // Lets the frame end at the bottom of the window.
    fit() {
      const top = this.frame.getBoundingClientRect().top + scrollY;
      if (!this.frame.clientHeight || (top === this.frameTop && innerHeight === this.windowHeight)) return;
      Object.assign(this, { frameTop: top, windowHeight: innerHeight });
      const room = innerHeight - top - BOTTOM;
      this.frame.style.maxHeight = `${room < LEAST_HEIGHT ? innerHeight - AROUND : room}px`;
    }

    resize() {
      this.fit();
      const height = this.frame.clientHeight;
      if (height === this.height) return;
      this.height = height;
      this.draw();
    }

    draw() {
      if (!this.height || !this.node.isConnected || document.hidden) return;
      const last = Math.min(this.order.length, Math.ceil((this.top + this.height) / this.rowHeight) + SPARE);
      const first = Math.max(0, Math.min(Math.floor(this.top / this.rowHeight) - SPARE, last));
      const wanted = new Map();
      for (let i = first; i < last; i++) wanted.set(this.order[i].key, i);
      const focused = this.focusedKey();
      if (focused !== null && !wanted.has(focused)) {
        const i = this.order.findIndex((entry) => entry.key === focused);
        if (i >= 0) wanted.set(focused, i); // An element that has the focus stays.
      }
      for (const [key, line] of this.lines) {
        if (wanted.has(key)) continue;
        this.lines.delete(key);
        line.remove();
        this.pool.push(line);
      }
      let previous = null;
      for (const [key, i] of [...wanted].sort((a, b) => a[1] - b[1])) {
        let line = this.lines.get(key);
        if (!line) {
          line = this.pool.pop() || this.newLine();
          line.rowKey = key;
          this.lines.set(key, line);
        }
        const next = previous ? previous.nextSibling : this.body.firstChild;
        if (line !== next) this.place(line, next);
        this.drawLine(line, this.order[i].row, i);
        previous = line;
      }
      this.drawTabStop();
    }

    // Draws the rows of these keys that are in the frame.
    drawChanged(keys) {
      if (!this.height || document.hidden) return;
      for (const key of keys) {
        const line = this.lines.get(key);
        if (line) this.drawLine(line, this.entries.get(key).row, line.index);
      }
    }

    // Keeps the order of the elements that of the rows, for screen readers.
    place(line, next) {
      const hadFocus = line.contains(document.activeElement);
      this.body.insertBefore(line, next);
      if (hadFocus) line.focus({ preventScroll: true });
    }

    newLine() {
      const cells = this.shown.map((column) =>
        h("div", { role: "gridcell", class: column.num ? "num" : column.cls || null }),
      );
      const line = h("div", { role: "row", class: "grid-row", tabindex: "-1" }, cells);
      line.cells = cells;
      line.texts = [];
      return line;
    }

    drawLine(line, row, i) {
      if (line.index !== i) {
        line.index = i;
        line.style.top = `${i * this.rowHeight}px`;
        line.setAttribute("aria-rowindex", i + 2);
      }
      for (let j = 0; j < this.shown.length; j++) {
        const column = this.shown[j],
          text = column.text(row);
        if (line.texts[j] === text) continue;
        line.texts[j] = text;
        const cell = line.cells[j];
        if (column.draw)
          cell.replaceChildren(...[column.draw(row)].flat(Infinity).filter((each) => each !== null));
        else if (cell.firstChild && cell.firstChild.nodeType === Node.TEXT_NODE) cell.firstChild.data = text;
        else cell.textContent = text;
        const title = column.title ? column.title(row) : column.num ? "" : text;
        if (title) cell.title = title;
        else cell.removeAttribute("title");
      }
    }

    // Draws the cells again that depend on the present time.
    tick() {
      if (this.shown.some((column) => column.ticks)) this.draw();
    }

    // --- keyboard ---

    focusedKey() {
      const line = document.activeElement && document.activeElement.closest(".grid-row");
      return line && this.body.contains(line) ? line.rowKey : null;
    }

    drawTabStop() {
      let stop = this.lines.get(this.active);
      if (!stop) stop = this.body.firstElementChild;
      if (stop === this.stop) return;
      if (this.stop) this.stop.tabIndex = -1;
      if (stop) stop.tabIndex = 0;
      this.stop = stop;
    }

    onFocus(event) {
      const line = event.target.closest(".grid-row");
      if (!line) return;
      this.active = line.rowKey;
      this.drawTabStop();
    }

    onKey(event) {
      const line = event.target.closest(".grid-row");
      if (!line || event.altKey || event.ctrlKey || event.metaKey) return;
      const page = Math.max(Math.floor(this.height / this.rowHeight) - 2, 1),
        i = line.index;
      const moves = {
        ArrowDown: i + 1,
        ArrowUp: i - 1,
        PageDown: i + page,
        PageUp: i - page,
        Home: 0,
        End: this.order.length - 1,
      };
      if (event.key in moves) {
        event.preventDefault();
        this.focusRow(moves[event.key]);
      } else if (event.key === "Enter" && event.target === line) {
        event.preventDefault();
        this.openRow(line.rowKey);
      }
    }

    focusRow(i) {
      const index = Math.min(Math.max(i, 0), this.order.length - 1);
      if (index < 0) return;
      const head = this.head.offsetHeight,
        top = index * this.rowHeight;
      const room = this.frame.clientHeight - head;
      if (top < this.frame.scrollTop) this.frame.scrollTop = top;
      else if (top + this.rowHeight > this.frame.scrollTop + room)
        this.frame.scrollTop = top + this.rowHeight - room;
      this.top = this.frame.scrollTop;
      this.active = this.order[index].key;
      this.draw();
      this.lines.get(this.active).focus({ preventScroll: true });
    }

    onClick(event) {
      const line = event.target.closest(".grid-row");
      if (!line || event.target.closest("a, button") || String(getSelection())) return;
      this.openRow(line.rowKey);
    }

    openRow(key) {
      const entry = this.entries.get(key);
      if (!entry) return;
      if (this.options.href) konvene.go(this.options.href(entry.row));
      else if (this.options.open) this.options.open(entry.row);
    }
  }

  konvene.natural = natural;
  konvene.grid = (name, columns, options) => new Grid(name, columns, options);
})();
