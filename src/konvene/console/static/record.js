"use strict";
// One record of the message browser: konvene.recordItem(record) returns a line that opens to key, value and
// headers.
var konvene = konvene || {};
(() => {
  const { h, number, plural, isUnknown, iso } = konvene;
  const PREVIEW = 240; // letters

  // --- JSON ---

  // Returns JSON with line breaks and indents. Numbers and strings stay as they are: parsing and writing them
  // again would change large integers.
  function prettyJson(text) {
    try {
      JSON.parse(text);
    } catch {
      return null;
    }
    const pieces = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) || [];
    let depth = 0,
      shown = "";
    pieces.forEach((piece, i) => {
      const isOpening = piece === "{" || piece === "[",
        isClosing = piece === "}" || piece === "]";
      const isEmpty = isOpening && /^[}\]]$/.test(pieces[i + 1] || "");
      const wasEmpty = isClosing && /^[{[]$/.test(pieces[i - 1] || "");
      if (isClosing) depth--;
      const line = () => `\n${"  ".repeat(depth)}`;
      if (isClosing && !wasEmpty) shown += line();
      shown += piece;
      if (isOpening) depth++;
      if (piece === ":") shown += " ";
      if (piece === "," || (isOpening && !isEmpty)) shown += line();
    });
    return shown;
  }

  // --- one record ---

  function size(bytes) {
    if (isUnknown(bytes)) return "";
    return bytes < 1024
      ? plural(bytes, "byte")
      : bytes < 1048576
        ? `${(bytes / 1024).toFixed(1)} KiB`
        : `${(bytes / 1048576).toFixed(1)} MiB`;
  }

  const isCut = (record, name) => record[`${name}_cut`] || (name === "value" && record.cut);

  function preview(text, error) {
    if (error) return h("span", { class: "problem" }, error);
    if (isUnknown(text)) return h("span", { class: "soft" }, "null");
    if (text === "") return h("span", { class: "soft" }, "(empty)");
    return text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text;
  }

  function part(record, name, label) {
    const text = record[name],
      error = record[`${name}_error`],
      bytes = record[`${name}_size`];
    const pretty = isUnknown(text) || error ? null : /^\s*[[{]/.test(text) ? prettyJson(text) : null;
    const shown = pretty === null ? text : pretty;
    return h(
      "section",
      { "aria-label": label },
      h("h2", {}, label, " ", h("span", { class: "soft small" }, size(bytes))),
      error ? h("p", { class: "problem" }, error) : null,
      isUnknown(shown)
        ? h("p", { class: "soft" }, "null")
        : h("pre", { tabindex: "0", "aria-label": label }, shown),
      isUnknown(record[`${name}_schema_id`])
        ? null
        : h("p", { class: "soft small" }, `Schema id ${record[`${name}_schema_id`]}.`),
      isCut(record, name) ? h("p", { class: "soft small" }, "Cut: only the beginning is shown.") : null,
      isUnknown(text) ? null : copyButton(text, `Copy ${label.toLowerCase()}`),
    );
  }

  function copyButton(text, label) {
    const button = h(
      "button",
      {
        type: "button",
        onclick: async () => {
          try {
            await navigator.clipboard.writeText(text);
            button.textContent = "Copied";
          } catch {
            button.textContent = copyBySelection(text) ? "Copied" : "Not copied";
          }
          konvene.announce(button.textContent);
          setTimeout(() => {
            button.textContent = label;
          }, 2000);
        },
      },
      label,
    );
    return button;
  }

  // The clipboard needs HTTPS or this machine; over plain HTTP a selection can still be copied.
  function copyBySelection(text) {
    const area = h("textarea", { class: "unseen", "aria-hidden": "true", tabindex: "-1" });
    area.value = text;
    document.body.append(area);
    area.select();
    let isCopied = false;
    try {
      isCopied = document.execCommand("copy");
    } catch {
      /* not copied */
    }
    area.remove();
    return isCopied;
  }

  function headersTable(headers) {
    if (!headers || !headers.length) return h("p", { class: "soft small" }, "No headers.");
    return h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Header"), h("th", { scope: "col" }, "Value"))),
      h(
        "tbody",
        {},
        headers.map(({ key, value }) =>
          h(
            "tr",
            {},
            h("td", {}, key),
            h("td", { class: "wide" }, isUnknown(value) ? h("span", { class: "soft" }, "null") : value),
          ),
        ),
      ),
    );
  }

  function recordItem(record) {
    const summary = h(
      "summary",
      {},
      h("span", { class: "where" }, `${record.partition}:${record.offset}`),
      h(
        "span",
        { class: "when" },
        isUnknown(record.timestamp_ms) || record.timestamp_ms < 0
          ? "no timestamp"
          : `${iso(record.timestamp_ms)}`,
      ),
      h("span", { class: "key mono" }, preview(record.key, record.key_error)),
      h("span", { class: "value mono" }, preview(record.value, record.value_error)),
    );
    const item = h("details", { class: "record" }, summary);
    item.addEventListener("toggle", () => {
      if (!item.open || item.children.length > 1) return;
      const ms = record.timestamp_ms;
      item.append(
        h(
          "div",
          { class: "opened" },
          h(
            "p",
            { class: "soft small" },
            [
              `Partition ${record.partition}, offset ${number(record.offset)}`,
              isUnknown(ms) || ms < 0
                ? "no timestamp"
                : `${new Date(ms).toISOString()} (${record.timestamp_type || "timestamp"})`,
            ].join(" · "),
          ),
          part(record, "key", "Key"),
          part(record, "value", "Value"),
          h("section", { "aria-label": "Headers" }, h("h2", {}, "Headers"), headersTable(record.headers)),
          copyButton(JSON.stringify(record, null, 2), "Copy record"),
        ),
      );
    });
    return item;
  }

  konvene.recordItem = recordItem;
})();
