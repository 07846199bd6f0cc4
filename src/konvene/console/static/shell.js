"use strict";
// What surrounds each page: the header with cluster, connection and filter, notices, and announcements for
// screen readers.
//
//   konvene.shell.show(page, section)  shows a page; the focus moves to its heading, but not at first
//   konvene.shell.filter(onFilter)     shows the filter box for the present page, and calls onFilter(text)
//   konvene.shell.noFilter()           hides it
//   konvene.shell.facts(view)          shows cluster, errors and the state of the logs of a live view
//   konvene.shell.title(text)          title of the window
//   konvene.announce(text)             read aloud by screen readers, at most one text in 4 seconds
var konvene = konvene || {};
(() => {
  const { h } = konvene;
  const ANNOUNCE_MS = 4000;
  const CONNECTIONS = { connecting: "connecting", live: "live", reconnecting: "reconnecting …" };
  const part = (id) => document.getElementById(id);
  let onFilter = null,
    waiting = [],
    timer = 0;

  function setText(node, text) {
    if (node.textContent !== text) node.textContent = text; // A status is read aloud when it is set.
  }

  konvene.onConnection = (state) => {
    const node = part("connection");
    if (node.dataset.state === state) return;
    node.dataset.state = state;
    setText(node.lastElementChild, CONNECTIONS[state]);
  };

  // --- announcements ---

  function announce(text) {
    waiting.push(text);
    if (!timer) speak();
  }

  function speak() {
    timer = 0;
    if (!waiting.length) return;
    const [last] = waiting.slice(-1),
      others = waiting.length - 1;
    waiting = [];
    part("announcer").textContent = others ? `${last} (and ${others} earlier)` : last;
    timer = setTimeout(speak, ANNOUNCE_MS);
  }

  // --- filter ---

  function filter(callback) {
    onFilter = callback;
    part("find").hidden = false;
    part("filter").value = konvene.query.get("q") || "";
    callback(part("filter").value);
  }

  function noFilter() {
    onFilter = null;
    part("find").hidden = true;
  }

  function listen() {
    part("find").addEventListener("submit", (event) => event.preventDefault());
    part("filter").addEventListener("input", (event) => {
      konvene.query.set({ q: event.target.value });
      if (onFilter) onFilter(event.target.value);
    });
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target.closest("input, select, textarea, dialog");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      if (part("find").hidden) return;
      event.preventDefault();
      part("filter").focus();
      part("filter").select();
    });
  }

  // --- notices ---

  function facts(view) {
    const cluster = view.fact("cluster_id"),
      bootstrap = view.fact("bootstrap");
    setText(
      part("cluster"),
      `Cluster ${cluster === null ? konvene.UNKNOWN : cluster}${bootstrap ? ` · ${bootstrap}` : ""}`,
    );
    part("cluster").title = part("cluster").textContent;
    const found = [],
      logs = view.fact("logs"),
      error = view.fact("error");
    if (error) found.push(["bad", error]);
    const percent = logs && logs.percent !== null ? `: ${logs.percent} %` : "";
    if (logs && logs.state === "reading") {
      found.push(["", `Reading the logs of the coordinators${percent}. Rebalances appear as they are read.`]);
    } else if (logs && logs.state === "unavailable" && !error) {
      found.push(["", `Rebalances cannot be read${logs.message ? `: ${logs.message}` : ""}.`]);
    }
    const signature = JSON.stringify(found),
      notices = part("notices");
    if (notices.dataset.signature === signature) return;
    notices.dataset.signature = signature;
    notices.replaceChildren(...found.map(([kind, text]) => h("p", { class: `notice ${kind}` }, text)));
  }

  // --- pages ---

  function show(page, section, isFirst) {
    part("page").replaceChildren(page.node);
    part("connection").hidden = Boolean(page.isStatic); // It has no live view.
    title(page.title);
    for (const link of document.querySelectorAll("nav [data-section]")) {
      if (link.dataset.section === section) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (page.shown) page.shown();
    const heading = part("page").querySelector("h1");
    if (!isFirst && heading) {
      heading.tabIndex = -1;
      heading.focus({ preventScroll: true });
    }
  }

  function title(text) {
    document.title = `${text} – konvene`;
  }

  konvene.announce = announce;
  konvene.setText = setText;
  konvene.shell = { show, filter, noFilter, facts, title, listen };
})();
