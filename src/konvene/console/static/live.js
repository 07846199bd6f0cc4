"use strict";
// Follows a view of the server: its state as maps, which server-sent events keep current.
//
// konvene.live(view, parameters) returns an object with
//   section(name)        the Map of a section, from key to value; empty if the view has none (yet)
//   fact(name)           a value of the section "facts"; null if it is unknown
//   on(names, listener)  calls listener(keys) at most once per frame after a change in one of the sections;
//                        keys maps each changed section to the Set of its changed keys
//   ready                true after the first complete state
//   close()
//
// While the tab is hidden the maps are kept current, but no listener is called; once it is shown again, each
// listener gets all keys that changed meanwhile. A connection that was lost is opened again, and its first
// event replaces the whole state.
var konvene = konvene || {};
(() => {
  const RETRIES_MS = [500, 1000, 2000, 5000, 10000];
  const PATIENCE_MS = 1500; // before a page that has no state yet is shown as connecting
  const clock = { offset: 0 };

  // Returns the time of the server, in ms since 1970.
  konvene.now = () => Date.now() + clock.offset;

  class Live {
    constructor(view, parameters) {
      this.url = `/api/live?${new URLSearchParams({ view, ...parameters })}`;
      this.sections = new Map();
      this.listeners = [];
      this.changed = new Map(); // section name to the Set of keys that no listener has seen
      this.ready = false;
      this.frame = 0;
      this.retries = 0;
      this.timer = 0;
      this.closed = false;
      this.onVisible = () => {
        if (!document.hidden) this.schedule();
      };
      document.addEventListener("visibilitychange", this.onVisible);
      this.slow = setTimeout(() => {
        if (!this.ready) this.connection("connecting");
      }, PATIENCE_MS);
      this.connect();
    }

    connect() {
      this.source = new EventSource(this.url);
      this.source.onopen = () => {
        this.retries = 0;
      };
      this.source.onerror = () => this.failed();
      this.source.addEventListener("reset", (event) => this.reset(JSON.parse(event.data)));
      this.source.addEventListener("change", (event) => this.change(JSON.parse(event.data)));
    }

    // The browser itself retries a connection that broke, but not one that the server refused.
    failed() {
      if (this.closed) return;
      this.connection("reconnecting");
      if (this.source.readyState !== EventSource.CLOSED) return;
      const wait = RETRIES_MS[Math.min(this.retries++, RETRIES_MS.length - 1)];
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        if (!this.closed) this.connect();
      }, wait);
    }

    connection(state) {
      if (konvene.onConnection) konvene.onConnection(state);
    }

    reset({ sections }) {
      for (const name of new Set([...this.sections.keys(), ...Object.keys(sections)])) {
        const former = this.section(name),
          current = new Map(Object.entries(sections[name] || {}));
        this.sections.set(name, current);
        for (const keys of [former.keys(), current.keys()]) for (const key of keys) this.mark(name, key);
      }
      this.synchronise();
      this.ready = true;
      this.connection("live");
      this.schedule();
    }

    change({ set, remove }) {
      for (const [name, keys] of Object.entries(remove || {})) {
        const section = this.section(name);
        for (const key of keys) if (section.delete(key)) this.mark(name, key);
      }
      for (const [name, values] of Object.entries(set || {})) {
        if (!this.sections.has(name)) this.sections.set(name, new Map());
        const section = this.sections.get(name);
        for (const [key, value] of Object.entries(values)) {
          if (section.get(key) === value) continue;
          section.set(key, value);
          this.mark(name, key);
        }
      }
      this.synchronise();
      this.schedule();
    }

    // The time in each event sets the clock; by itself it is no change.
    synchronise() {
      const now = this.fact("now_ms");
      if (now !== null) clock.offset = now - Date.now();
      const facts = this.changed.get("facts");
      if (facts) {
        facts.delete("now_ms");
        if (!facts.size) this.changed.delete("facts");
      }
    }

    mark(name, key) {
      if (!this.changed.has(name)) this.changed.set(name, new Set());
      this.changed.get(name).add(key);
    }

    schedule() {
      if (this.frame || this.closed || document.hidden || !this.changed.size) return;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.deliver();
      });
    }

    deliver() {
      if (document.hidden || this.closed) return;
      const changed = this.changed;
      this.changed = new Map();
      for (const { names, listener } of this.listeners) {
        if (names.some((name) => changed.has(name))) listener(changed);
      }
    }

    section(name) {
      return this.sections.get(name) || new Map();
    }

    fact(name) {
      const value = this.section("facts").get(name);
      return value === undefined ? null : value;
    }

    on(names, listener) {
      this.listeners.push({ names, listener });
    }

    close() {
      this.closed = true;
      this.source.close();
      clearTimeout(this.timer);
      clearTimeout(this.slow);
      cancelAnimationFrame(this.frame);
      document.removeEventListener("visibilitychange", this.onVisible);
    }
  }

  konvene.live = (view, parameters) => new Live(view, parameters || {});
})();
