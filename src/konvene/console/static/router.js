"use strict";
// Maps URLs to pages with the History API: `/groups/orders%2Fapp?tab=members`.
//
// Each segment of a path is percent-encoded. The segments that a URL cannot contain ("", "." and "..") are
// written `~`, with the value in the query string as `id`. Filters, sorting and the chosen tab live in the
// query string, so a reload or a sent link shows the same.
//
//   konvene.path(...segments)        URL of a page
//   konvene.query.get(name)          parameter of the present page, or null
//   konvene.query.set({name: value}) replaces parameters without a new history entry; null removes one
//   konvene.go(url)                  opens a page
//   konvene.route(pattern, page)     pattern such as ["groups", null]: null matches any segment;
//                                    page(segments) returns {title, node, close()}
//   konvene.start()
var konvene = konvene || {};
(() => {
  const routes = [];
  let current = null;

  const isImpossible = (segment) => segment === "" || segment === "." || segment === "..";

  function encode(text) {
    try {
      return encodeURIComponent(text);
    } catch {
      // half of a surrogate pair
      return encodeURIComponent(text.replace(/[\ud800-\udfff]/g, "\ufffd"));
    }
  }

  function path(...segments) {
    const hidden = segments.find(isImpossible);
    const shown = segments.map((each) => (isImpossible(each) ? "~" : encode(each)));
    return `/${shown.join("/")}${hidden === undefined ? "" : `?id=${encode(hidden)}`}`;
  }

  function decode(segment, id) {
    if (segment === "~" && id !== null) return id;
    try {
      return decodeURIComponent(segment);
    } catch {
      return segment;
    }
  }

  function segmentsOf(location) {
    const id = new URLSearchParams(location.search).get("id");
    const trimmed = location.pathname.replace(/^\//, "").replace(/\/$/, "");
    return trimmed === "" ? [] : trimmed.split("/").map((each) => decode(each, id));
  }

  function matching(segments) {
    return routes.find(
      ({ pattern }) =>
        pattern.length === segments.length &&
        pattern.every((each, i) => each === null || each === segments[i]),
    );
  }

  const query = {
    get: (name) => new URLSearchParams(location.search).get(name),
    set(values) {
      const parameters = new URLSearchParams(location.search);
      for (const [name, value] of Object.entries(values)) {
        if (value === null || value === "" || value === undefined) parameters.delete(name);
        else parameters.set(name, value);
      }
      const search = String(parameters);
      history.replaceState(history.state, "", location.pathname + (search ? `?${search}` : ""));
    },
  };

  function show(isFirst) {
    if (current && current.close) current.close();
    const segments = segmentsOf(location),
      route = matching(segments);
    konvene.shell.noFilter();
    current = route ? route.page(segments) : konvene.missingPage(segments);
    konvene.shell.show(current, segments[0] || "groups", isFirst);
  }

  function go(url) {
    if (url !== location.pathname + location.search) history.pushState(null, "", url);
    show(false);
    scrollTo(0, 0);
  }

  function onClick(event) {
    const link = event.target.closest && event.target.closest("a[href]");
    const isPlain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
    if (!link || !isPlain || event.defaultPrevented || link.target || link.origin !== location.origin) return;
    if (link.hash && link.pathname === location.pathname) return;
    event.preventDefault();
    go(link.pathname + link.search);
  }

  function start() {
    document.addEventListener("click", onClick);
    addEventListener("popstate", () => show(false));
    show(true);
  }

  Object.assign(konvene, {
    path,
    query,
    go,
    start,
    route: (pattern, page) => routes.push({ pattern, page }),
  });
})();
