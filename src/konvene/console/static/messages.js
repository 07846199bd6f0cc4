"use strict";
// The message browser: `/topics/TOPIC/messages?from=…`. The query string has what is shown, except for the
// Avro schema, which is a file. `next` of an answer is sent back as `cursor` for more records.
var konvene = konvene || {};
(() => {
  const { h, number, plural, field, options, request, dialog } = konvene;
  const FORMATS = [
    ["text", "text"],
    ["json", "JSON"],
    ["hex", "hex"],
    ["long", "long"],
    ["avro", "Avro"],
  ];
  const PRODUCED = FORMATS.filter(([name]) => name !== "avro");
  const LIMITS = ["50", "100", "200", "500"];

  // --- produce ---

  function produce(topic, partitions) {
    const partition = h(
      "select",
      { id: "produce-partition" },
      h("option", { value: "" }, "by the partitioner"),
      partitions.map((each) => h("option", { value: each }, each)),
    );
    const texts = ["key", "value"].map((name) => {
      const input = h("textarea", {
        id: `produce-${name}`,
        rows: name === "key" ? "1" : "6",
        class: "mono",
        spellcheck: "false",
      });
      const none = h("input", {
        type: "checkbox",
        id: `produce-${name}-null`,
        onchange: () => {
          input.disabled = none.checked;
        },
      });
      if (name === "key") none.checked = input.disabled = true;
      const format = h("select", { id: `produce-${name}-format` }, options(PRODUCED, "text"));
      const label = name === "key" ? "Key" : "Value";
      return {
        input,
        none,
        format,
        name,
        node: h(
          "div",
          { class: "row" },
          field(label, input),
          h(
            "div",
            { class: "narrow" },
            field(`Format of the ${name}`, format),
            h("label", { for: none.id }, none, " null"),
          ),
        ),
      };
    });
    const headers = h("textarea", {
      id: "produce-headers",
      rows: "2",
      class: "mono",
      spellcheck: "false",
      placeholder: "name: value",
    });
    dialog({
      title: `Produce a record to ${topic}`,
      action: "Produce",
      body: [
        field("Partition", partition),
        texts.map(({ node }) => node),
        field("Headers", headers, "One per line, as name: value."),
      ],
      async submit() {
        const body = {
          topic,
          partition: partition.value === "" ? null : Number(partition.value),
          headers: parseHeaders(headers.value),
        };
        for (const { name, input, none, format } of texts) {
          body[name] = none.checked ? null : input.value;
          body[`${name}_format`] = format.value;
        }
        const at = await request("/api/produce", body);
        return `Written to partition ${at.partition} at offset ${number(at.offset)}.`;
      },
    });
  }

  function parseHeaders(text) {
    return text
      .split("\n")
      .filter((line) => line.trim())
      .map((line) => {
        const at = line.indexOf(":");
        if (at < 1) throw new Error(`The header “${line}” has no colon.`);
        return { key: line.slice(0, at).trim(), value: line.slice(at + 1).trim() };
      });
  }

  // --- the page ---

  class MessagesPage {
    constructor(topic) {
      this.topic = topic;
      this.schema = null; // text of the Avro schema
      this.serial = 0; // of the newest request
      this.view = konvene.live("topic", { topic });
      this.build();
      this.view.on(["facts", "partitions"], () => this.drawTopic());
    }

    build() {
      const { query } = konvene,
        text = (name, label) =>
          h("input", {
            type: "search",
            id: `m-${name}`,
            value: query.get(name) || "",
            autocomplete: "off",
            spellcheck: "false",
            "aria-label": label,
          });
      this.from = konvene.target(
        [
          ["latest", "Newest"],
          ["earliest", "Oldest"],
          ["offset", "Offset"],
          ["time", "Time"],
        ],
        "latest",
      );
      this.from.set(query.get("from") || "latest");
      this.partition = h("select", { id: "m-partition" }, h("option", { value: "" }, "all"));
      this.keyFilter = text("key_filter");
      this.valueFilter = text("value_filter");
      this.keyFormat = h(
        "select",
        { id: "m-key-format" },
        options(FORMATS, query.get("key_format") || "text"),
      );
      this.valueFormat = h(
        "select",
        { id: "m-value-format" },
        options(FORMATS, query.get("value_format") || "text"),
      );
      this.limit = h(
        "select",
        { id: "m-limit" },
        options(
          LIMITS.map((each) => [each, each]),
          query.get("limit") || "50",
        ),
      );
      this.file = h("input", {
        type: "file",
        id: "m-schema",
        accept: ".avsc,.json",
        onchange: () => this.readSchema(),
      });
      this.schemaField = field("Avro schema", this.file);
      for (const format of [this.keyFormat, this.valueFormat])
        format.addEventListener("change", () => this.drawSchema());
      this.produceButton = h(
        "button",
        { type: "button", hidden: true, onclick: () => produce(this.topic, this.partitionNames()) },
        "Produce a record …",
      );
      this.form = h(
        "form",
        { class: "query", "aria-label": "Which records" },
        h(
          "div",
          { class: "field" },
          h("label", { for: this.from.label.id }, "From"),
          h("div", { class: "parts" }, this.from.node),
        ),
        field("Partition", this.partition),
        field("Key contains", this.keyFilter),
        field("Value contains", this.valueFilter),
        field("Key as", this.keyFormat),
        field("Value as", this.valueFormat),
        this.schemaField,
        field("At most", this.limit),
        h("div", { class: "field end" }, h("button", { type: "submit", class: "primary" }, "Show")),
      );
      this.form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.show();
      });
      this.status = h("p", { class: "soft small", role: "status" });
      this.errors = h("div", {});
      this.records = h("div", { class: "frame records", role: "region", "aria-label": "Records" });
      this.more = h("button", { type: "button", hidden: true, onclick: () => this.load(true) }, "Load more");
      this.missing = h("p", { class: "notice", hidden: true }, "The cluster has no topic of this name.");
      this.drawSchema();
      this.node = h(
        "div",
        {},
        h(
          "p",
          { class: "crumbs small" },
          h("a", { href: "/topics" }, "Topics"),
          " / ",
          h("a", { href: konvene.path("topics", this.topic) }, this.topic),
          " / ",
        ),
        h(
          "div",
          { class: "title" },
          h("h1", {}, `Messages of ${this.topic}`),
          h("div", { class: "actions" }, this.produceButton),
        ),
        this.missing,
        this.form,
        this.status,
        this.errors,
        this.records,
        h("p", {}, this.more),
      );
    }

    partitionNames() {
      return [...this.view.section("partitions").keys()].sort((a, b) => Number(a) - Number(b));
    }

    drawTopic() {
      konvene.shell.facts(this.view);
      this.missing.hidden = this.view.fact("exists") !== false;
      this.produceButton.hidden = !this.view.fact("allow_changes");
      const names = this.partitionNames(),
        wanted = this.hasPartitions ? this.partition.value : konvene.query.get("partition") || "";
      if (names.length + 1 === this.partition.options.length || !names.length) return;
      this.hasPartitions = true;
      this.partition.replaceChildren(
        h("option", { value: "" }, "all"),
        ...names.map((each) => h("option", { value: each }, each)),
      );
      this.partition.value = names.includes(wanted) ? wanted : "";
    }

    usesAvro() {
      return this.keyFormat.value === "avro" || this.valueFormat.value === "avro";
    }

    drawSchema() {
      this.schemaField.hidden = !this.usesAvro();
    }

    async readSchema() {
      const [file] = this.file.files;
      this.schema = file ? await file.text() : null;
    }

    // Puts the form into the query string, and loads the first records.
    show() {
      try {
        konvene.query.set({
          from: this.from.value(),
          partition: this.partition.value,
          key_filter: this.keyFilter.value,
          value_filter: this.valueFilter.value,
          key_format: this.keyFormat.value === "text" ? null : this.keyFormat.value,
          value_format: this.valueFormat.value === "text" ? null : this.valueFormat.value,
          limit: this.limit.value === "50" ? null : this.limit.value,
        });
      } catch (error) {
        this.errors.replaceChildren(konvene.problem(error));
        return;
      }
      this.load(false);
    }

    body() {
      const get = (name) => konvene.query.get(name);
      const body = {
        topic: this.topic,
        from: get("from") || "latest",
        limit: Number(get("limit") || 50),
        key_filter: get("key_filter") || "",
        value_filter: get("value_filter") || "",
        key_format: get("key_format") || "text",
        value_format: get("value_format") || "text",
      };
      if (get("partition")) body.partition = Number(get("partition"));
      if (this.usesAvro()) {
        if (!this.schema) throw new Error("Choose the file with the Avro schema, then Show.");
        body.schema = this.schema;
      }
      return body;
    }

    async load(isMore) {
      const serial = ++this.serial;
      this.errors.replaceChildren();
      this.more.disabled = true;
      this.status.textContent = "Reading …";
      try {
        const body = isMore ? { ...this.body(), cursor: this.next } : this.body();
        const answer = await request("/api/messages", body);
        if (serial === this.serial) this.draw(answer, isMore);
      } catch (error) {
        if (serial !== this.serial) return;
        this.status.textContent = "";
        this.errors.replaceChildren(konvene.problem(error));
      }
      this.more.disabled = false;
    }

    draw({ records, scanned, next, ended }, isMore) {
      const first = records.map(konvene.recordItem);
      if (isMore) this.records.append(...first);
      else this.records.replaceChildren(...first);
      if (isMore && first.length) first[0].firstChild.focus();
      this.scanned = (isMore ? this.scanned : 0) + (scanned || 0);
      this.next = next;
      const count = this.records.querySelectorAll(".record").length;
      this.records.hidden = !count;
      this.more.hidden = !next;
      this.more.textContent = ended ? "Load newer records" : first.length ? "Load more" : "Search on";
      const searched = this.scanned > count ? `, ${number(this.scanned)} searched` : "";
      this.status.textContent = `${plural(count, "record")}${searched}${ended || !next ? ", no more" : ""}.`;
    }

    shown() {
      if (this.usesAvro()) this.status.textContent = "Choose the file with the Avro schema, then Show.";
      else this.load(false);
      this.records.hidden = true;
    }
  }

  konvene.messagesPage = (topic) => {
    const page = new MessagesPage(topic);
    return {
      title: `Messages of ${topic}`,
      node: page.node,
      shown: () => page.shown(),
      close: () => {
        page.serial++;
        page.view.close();
      },
    };
  };
})();
