"use strict";
// Connects URLs with pages, and starts.
var konvene = konvene || {};
(() => {
  const { h } = konvene;

  konvene.missingPage = () => ({
    title: "Page not found",
    isStatic: true,
    node: h(
      "div",
      {},
      h("h1", {}, "Page not found"),
      h("p", {}, "This address is no page of the console. ", h("a", { href: "/" }, "Show all groups")),
    ),
  });

  konvene.route([], konvene.groupsPage);
  konvene.route(["groups"], konvene.groupsPage);
  konvene.route(["groups", null], ([, group]) => konvene.groupPage(group));
  konvene.route(["groups", null, "rebalances", null], ([, group, , key]) =>
    konvene.rebalancePage(group, key),
  );
  konvene.route(["topics"], konvene.topicsPage);
  konvene.route(["topics", null], ([, topic]) => konvene.topicPage(topic));
  konvene.route(["topics", null, "messages"], ([, topic]) => konvene.messagesPage(topic));
  konvene.shell.listen();
  konvene.start();
})();
