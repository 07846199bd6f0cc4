"use strict";
// konvene.sparkline(hours) returns a small drawing of rebalances per hour, oldest first, the last is the
// current hour.
var konvene = konvene || {};
(() => {
  const { s, plural } = konvene;
  const WIDTH = 96,
    HEIGHT = 22,
    BASE = 1;

  function sparkline(hours) {
    const most = Math.max(...hours, 4),
      step = WIDTH / Math.max(hours.length, 1);
    const sum = hours.reduce((total, each) => total + each, 0);
    const bar = (count, i) => {
      if (!count) return "";
      const tall = Math.max(((HEIGHT - BASE) * count) / most, 2).toFixed(1);
      const wide = (step - 1).toFixed(1);
      return `M${(i * step + 0.5).toFixed(1)} ${HEIGHT - BASE}v-${tall}h${wide}v${tall}z`;
    };
    return s(
      "svg",
      {
        class: "sparkline",
        role: "img",
        width: WIDTH,
        height: HEIGHT,
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        "aria-label": `${plural(sum, "rebalance")} in ${hours.length} hours`,
      },
      s("path", { d: `M0 ${HEIGHT - 0.5}H${WIDTH}`, class: "base" }),
      s("path", { d: hours.map(bar).join(""), class: "bars" }),
    );
  }

  konvene.sparkline = sparkline;
})();
