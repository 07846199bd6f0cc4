"use strict";
// Formats values as text, and classifies causes and health scores. A value of null is unknown.
var konvene = konvene || {};
(() => {
  const UNKNOWN = "unknown";
  const isUnknown = (value) => value === null || value === undefined;

  const format = new Intl.NumberFormat("en-US"); // much faster than toLocaleString
  const number = (value) => (isUnknown(value) ? UNKNOWN : format.format(value));

  const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

  function duration(ms) {
    if (isUnknown(ms)) return UNKNOWN;
    if (ms < 1000) return `${ms} ms`;
    if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
    if (ms < 7200000) return `${Math.floor(ms / 60000)} min ${Math.floor((ms % 60000) / 1000)} s`;
    return `${Math.floor(ms / 3600000)} h ${Math.floor((ms % 3600000) / 60000)} min`;
  }

  // Returns milliseconds as seconds, without a unit.
  function seconds(ms) {
    if (isUnknown(ms)) return UNKNOWN;
    return ms < 100000 ? (ms / 1000).toFixed(1) : number(Math.round(ms / 1000));
  }

  // Returns a time as `2026-01-31 12:00:00` in UTC.
  function iso(ms) {
    if (isUnknown(ms) || ms < 0) return UNKNOWN;
    return new Date(ms).toISOString().replace("T", " ").slice(0, 19);
  }

  // Returns the epochs or generations of a rebalance.
  function epochs(rebalance) {
    const from = rebalance.from_epoch;
    return `${isUnknown(from) || from < 0 ? "?" : from} → ${rebalance.epoch}`;
  }

  // Families of causes by name, which is also the name of their CSS colour: label, and pattern of the causes.
  const FAMILIES = {
    join: { label: "joined", pattern: /^(member-joined|static-member-rejoins|upgraded|downgraded)/ },
    leave: { label: "left or removed", pattern: /^(member-left|member-gone|removed-by-admin)/ },
    lost: { label: "timed out or fenced", pattern: /(session-expired|timeout|fenced)/ },
    change: { label: "metadata changed", pattern: /(changed|refreshed|topology|leader-rejoined)/ },
    other: { label: "other", pattern: /./ },
  };
  const family = (cause) =>
    Object.keys(FAMILIES).find((name) => FAMILIES[name].pattern.test(cause)) || "other";

  // Levels of health by name, which is also the name of their CSS colour: lowest score, and label.
  const LEVELS = {
    good: { least: 90, label: "good (90–100)" },
    fair: { least: 70, label: "fair (70–89)" },
    poor: { least: 40, label: "poor (40–69)" },
    bad: { least: 0, label: "bad (below 40)" },
  };
  const health = (score) => Object.keys(LEVELS).find((name) => score >= LEVELS[name].least) || "bad";

  Object.assign(konvene, {
    UNKNOWN, FAMILIES, LEVELS, isUnknown, number, plural, duration, seconds, iso, epochs, family, health,
  });
})();
