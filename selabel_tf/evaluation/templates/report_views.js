// Neighbours, the map, charts as files, colours; and the start of it all.

function neighbours(root) {
  const run = runs[root.dataset.neighbours], images = run.images("training"), found = json(`${run.id}-neighbours`);
  const ways = [["by features", found.by_features], ["by pixels", found.by_pixels]];
  const same = (query, rows) => rows.filter(row => images.classes[row] === images.classes[query]).length;
  if (images.hasClasses) {
    const shares = ways.map(([title, tables]) => {
      const all = tables.reduce((sum, rows) => sum + rows.length, 0), hits = tables.reduce((sum, rows, i) => sum + same(found.queries[i], rows), 0);
      return `${hits} of ${all} ${title}`;
    });
    root.before(element("p", {class: "note", "data-shares": ""}, `Neighbours of the same true class as their query: ${shares.join(", ")}.`));
  }
  found.queries.forEach((query, number) => {
    const line = (title, rows) => element("div", {class: "line"},
      element("span", {}, title, images.hasClasses ? element("em", {}, `${same(query, rows)} of ${rows.length}`) : null),
      element("div", {}, ...rows.map(row => images.thumb(row, 40))));
    root.append(element("div", {class: "query", role: "group", "aria-label": `Neighbours of ${images.describe(query)}`},
      images.thumb(query, 76), element("div", {class: "rows"}, ...ways.map(([title, tables]) => line(title, tables[number])))));
  });
}

class FeatureMap {
  constructor(root) {
    this.run = runs[root.dataset.map];
    this.explorer = explorers[root.dataset.map];
    this.images = this.run.images("training");
    Object.assign(this, json(`${this.run.id}-map`));
    for (const name of ["method", "colour", "only", "canvas", "tip", "legend", "picked", "points"]) this[`${name}Part`] = root.querySelector(`[data-${name}]`);
    for (const part of [this.methodPart, this.onlyPart]) part.addEventListener("change", () => this.draw());
    this.colourPart.addEventListener("change", () => this.#groups());
    this.canvasPart.addEventListener("pointermove", event => this.#hover(event));
    this.canvasPart.addEventListener("pointerdown", event => this.#hover(event));
    this.canvasPart.addEventListener("pointerleave", () => { this.tipPart.hidden = true; });
    this.canvasPart.addEventListener("click", event => {
      const point = this.#nearest(event);
      if (point >= 0) this.pickedPart.replaceChildren(hit(this.explorer, this.images, this.rows[point]));
    });
    this.pointsPart.addEventListener("toggle", () => this.#table());
    this.#groups();
    new ResizeObserver(() => this.draw()).observe(this.canvasPart);
  }
  get where() { return this.points[this.methodPart.value]; }
  get byClass() { return this.colourPart.value === "class"; }
  get groupCount() { return this.byClass ? this.run.classCount : this.run.meta.clusters[this.colourPart.value]; }
  group(row) { return this.byClass ? this.images.classes[row] : this.images.labels(this.colourPart.value)[row]; }
  groupName(group) { return this.byClass ? this.run.className(group) : `cluster ${group}`; }
  #groups() {
    const options = [...Array(this.groupCount).keys()].map(group => element("option", {value: group}, this.groupName(group)));
    this.onlyPart.replaceChildren(element("option", {value: ""}, "all"), ...options);
    this.legendPart.replaceChildren(...(this.byClass ? this.run.legend() : []));
    if (!this.byClass) this.legendPart.textContent = `${this.groupCount} clusters, a colour each; similar colours are chance.`;
    this.draw();
  }
  draw() {
    const side = this.canvasPart.clientWidth, ratio = window.devicePixelRatio || 1, only = this.onlyPart.value;
    this.canvasPart.width = this.canvasPart.height = side * ratio;
    const context = this.canvasPart.getContext("2d");
    context.scale(ratio, ratio);
    this.rows.forEach((row, i) => {
      const group = this.group(row);
      context.globalAlpha = only === "" || String(group) === only ? 0.85 : 0.08;
      context.fillStyle = colour(group, this.groupCount);
      context.beginPath();
      context.arc(...this.#at(i, side), side < 450 ? 2 : 3, 0, 7);
      context.fill();
    });
    this.#table();
  }
  #at(i, side) { return this.where[i].map((v, axis) => 14 + (axis ? 1 - v : v) * (side - 28)); }
  #nearest({offsetX: x, offsetY: y}) {
    let best = -1, least = 15 ** 2;
    for (let i = 0; i < this.rows.length; i++) {
      const [a, b] = this.#at(i, this.canvasPart.clientWidth), far = (a - x) ** 2 + (b - y) ** 2;
      if (far < least) [best, least] = [i, far];
    }
    return best;
  }
  #hover(event) {
    const best = this.#nearest(event), side = this.canvasPart.clientWidth;
    this.tipPart.hidden = best < 0;
    if (best < 0) return;
    const row = this.rows[best], key = `${row} ${this.colourPart.value}`;
    if (this.tipPart.dataset.key !== key) {
      this.tipPart.dataset.key = key;
      const group = this.byClass ? "" : `, ${this.groupName(this.group(row))}`;
      this.tipPart.replaceChildren(this.images.tile ? this.images.thumb(row, 48) : "", element("span", {}, this.images.describe(row) + group));
    }
    const [a, b] = this.#at(best, side);
    this.tipPart.style.left = `${Math.min(a + 12, side - this.tipPart.offsetWidth)}px`;
    this.tipPart.style.top = `${b + 12}px`;
  }
  #table() {
    if (!this.pointsPart.open) return;
    const cells = (tag, values) => element("tr", {}, ...values.map(value => element(tag, {}, String(value))));
    const kind = this.byClass ? "class" : `cluster of head ${this.colourPart.value}`;
    const name = row => this.byClass ? this.run.className(this.group(row)) : this.group(row);
    const body = this.rows.map((row, i) => cells("td", [row, this.images.nameOf(row), ...this.where[i].map(v => v.toFixed(3)), name(row)]));
    const table = element("table", {}, element("thead", {}, cells("th", ["index", "name", "x", "y", kind])), element("tbody", {}, ...body));
    this.pointsPart.querySelector(".scroll")?.remove();
    this.pointsPart.append(element("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Coordinates of the map"}, table));
  }
}

// A chart and its numbers as files.
const save = {
  file(name, blob) {
    const link = element("a", {download: name, href: URL.createObjectURL(blob)});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  },
  csv(figure) {
    const cell = text => `"${(/^[=+@\t\r]|^-(?![\d.]*$)/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
    const lines = [...figure.querySelectorAll("tr")].map(row => [...row.cells].map(one => cell(one.textContent)).join(","));
    this.file(`${figure.dataset.name}.csv`, new Blob([lines.join("\n") + "\n"], {type: "text/csv"}));
  },
  async png(figure) {
    const chart = figure.querySelector("svg.chart"), copy = chart.cloneNode(true), {width, height} = chart.viewBox.baseVal;
    const parts = copy.querySelectorAll("*");
    chart.querySelectorAll("*").forEach((part, i) => {  // a picture does not see the page's style
      const style = getComputedStyle(part);
      for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"]) parts[i].style.setProperty(name, style.getPropertyValue(name));
    });
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    const picture = new Image();
    picture.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    await picture.decode();
    const canvas = element("canvas", {width: 3 * width, height: 3 * height}), context = canvas.getContext("2d");
    context.fillStyle = getComputedStyle(document.body).backgroundColor;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(blob => this.file(`${figure.dataset.name}.png`, blob));
  },
};
document.addEventListener("click", event => {
  const button = event.target.closest("[data-save]");
  if (button) save[button.dataset.save](button.closest("figure"));
});

const theme = {
  modes: {auto: "Auto", light: "Light", dark: "Dark"},
  set(mode) {
    const button = block("theme"), next = this.next(mode);
    document.documentElement.dataset.theme = mode;
    button.querySelector("span").textContent = this.modes[mode];
    button.setAttribute("aria-label", `Colours: ${this.modes[mode]}. Switch to ${this.modes[next]}`);
    button.onclick = () => {
      try { localStorage.setItem("theme", next); } catch { /* a page opened from a file may keep nothing */ }
      this.set(next);
    };
  },
  next(mode) { return {auto: "dark", dark: "light", light: "auto"}[mode]; },
  start() {
    let kept = null;
    try { kept = localStorage.getItem("theme"); } catch { /* as above */ }
    this.set(kept in this.modes ? kept : "auto");
  },
};

theme.start();
const runs = [];
for (let number = 0; block(`r${number}`); number++) runs.push(new Run(number));
const explorers = [...document.querySelectorAll(".explorer")].map(root => new Explorer(root));
const later = new IntersectionObserver(entries => {
  for (const entry of entries.filter(one => one.isIntersecting)) {
    later.unobserve(entry.target);
    if (entry.target.dataset.neighbours) neighbours(entry.target);
    else new FeatureMap(entry.target);
  }
}, {rootMargin: "600px"});
for (const root of document.querySelectorAll("[data-neighbours], [data-map]")) later.observe(root);
const here = new IntersectionObserver(entries => {
  for (const entry of entries.filter(one => one.isIntersecting)) {
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === `#${entry.target.id}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }
}, {rootMargin: "-25% 0px -70% 0px"});
for (const section of document.querySelectorAll("main > section")) here.observe(section);
requestAnimationFrame(() => performance.mark("report-ready"));
