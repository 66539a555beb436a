// Draws the charts described by the #run-data element with Chart.js, in the colours of page.css.
(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("run-data").textContent);
  const holder = document.getElementById("charts");
  const drawn = [];

  const css = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const clear = (color, alpha) => color + Math.round(alpha * 255).toString(16).padStart(2, "0");

  function number(v) {
    const size = Math.abs(v);
    if (size >= 1000) return Math.round(v).toLocaleString("en-US");
    if (size !== 0 && size < 1e-3) return v.toExponential(2);
    return String(Number(v.toPrecision(4)));
  }

  const isBand = (s) => s.role === "low" || s.role === "high";

  function element(tag, className, text) {
    const e = document.createElement(tag);
    if (className) e.className = className;
    if (text) e.textContent = text;
    return e;
  }

  // The last known value of the first curve that is not a band's edge.
  function lastValue(chart) {
    const main = chart.series.find((s) => !s.role) || chart.series[0];
    const known = main.values.filter((v) => v !== null);
    return known.length ? number(known[known.length - 1]) + " " + chart.unit : "";
  }

  function dataset(chart, s, i, colorIndex) {
    const color = css("--c" + (colorIndex % 10));
    // A stage that did not run took no time.
    const values = chart.kind === "stack" ? s.values.map((v) => v ?? 0) : s.values;
    const base = { label: s.label, data: values, borderColor: color, backgroundColor: color };
    if (chart.kind === "bars") return Object.assign(base, { borderRadius: 3 });
    Object.assign(base, { borderWidth: 1.8, tension: 0, spanGaps: true, pointHitRadius: 8 });
    const few = s.values.filter((v) => v !== null).length < 3;
    base.pointRadius = s.role === "points" || few ? 3 : 0;
    if (chart.kind === "stack") {
      const below = i === 0 ? "origin" : "-1";
      return Object.assign(base, {
        fill: below, backgroundColor: clear(color, 0.75), borderWidth: 0 });
    }
    if (isBand(s)) {
      Object.assign(base, { borderWidth: 0.5, borderColor: clear(color, 0.35) });
      base.backgroundColor = clear(color, 0.15);
      base.fill = s.role === "high" && i > 0 ? "-1" : false;
    }
    return base;
  }

  function datasets(chart) {
    let next = 0;
    // A band shares the first colour with the curve inside it.
    return chart.series.map((s, i) => dataset(chart, s, i, isBand(s) ? 0 : next++));
  }

  function options(chart) {
    const stacked = chart.kind === "stack";
    const negative = chart.series.some((s) => s.values.some((v) => v < 0));
    const grid = { color: css("--line") };
    const ticks = { color: css("--quiet"), maxRotation: 0, autoSkipPadding: 14 };
    const several = chart.series.filter((s) => !isBand(s)).length > 1;
    return {
      responsive: true, maintainAspectRatio: false, animation: false, normalized: true,
      interaction: { mode: "index", intersect: false },
      scales: {
        x: { grid: { display: false }, ticks: ticks },
        y: {
          stacked: stacked, grid: grid, min: negative ? undefined : 0,
          ticks: Object.assign({}, ticks, { maxTicksLimit: 6, callback: (v) => number(v) }),
        },
      },
      plugins: {
        legend: {
          display: several,
          labels: {
            color: css("--quiet"), boxWidth: 10, boxHeight: 10, font: { size: 11 },
            // The chart's help line explains the band.
            filter: (item) => !isBand(chart.series[item.datasetIndex]),
          },
        },
        tooltip: {
          callbacks: {
            title: (items) => (chart.labels ? "" : "step ") + items[0].label,
            label: (item) =>
              item.dataset.label + ": " + number(item.parsed.y) + " " + chart.unit,
          },
        },
      },
    };
  }

  function draw(chart) {
    const box = element("div", "chart");
    const top = element("div", "top");
    top.append(element("h3", "", chart.title));
    if (chart.kind === "line") top.append(element("span", "now", lastValue(chart)));
    const canvas = element("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", chart.title + ". " + chart.help);
    const frame = element("div", "canvas");
    frame.append(canvas);
    box.append(top, element("p", "", chart.help), frame);
    holder.append(box);
    drawn.push([chart, new Chart(canvas, {
      type: chart.kind === "bars" ? "bar" : "line",
      data: { labels: chart.labels || data.steps, datasets: datasets(chart) },
      options: options(chart),
    })]);
  }

  data.charts.forEach(draw);

  // The reader switched between light and dark.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const [chart, c] of drawn) {
      c.data.datasets = datasets(chart);
      c.options = options(chart);
      c.update();
    }
  });
})();
