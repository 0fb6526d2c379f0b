"use strict";
// The script of the report page. Data lie in the page as text blocks and are read when first wanted. Nothing is
// fetched, and text from the data reaches the page as text nodes only.

const CARDS = 24, SHEET = 12, MORE = 60, RATIO = 2;
const PALETTE = ["#4477aa", "#ee7733", "#228833", "#cc3311", "#9467bd", "#8c564b", "#ee3377", "#7f7f7f", "#bcbd22", "#00a5b5"];

const block = id => document.getElementById(id);
const json = id => block(id) ? JSON.parse(block(id).textContent) : null;

function unpacked(id, Kind) {
  const text = block(id) ? atob(block(id).textContent) : "";
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Kind(bytes.buffer);
}

function once(make) {
  const kept = new Map();
  return (...key) => {
    const name = key.join("/");
    if (!kept.has(name)) kept.set(name, make(...key));
    return kept.get(name);
  };
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null));
  return made;
}

function colour(number, count) {
  if (number < 0) return "#999999";
  if (count <= PALETTE.length) return PALETTE[number % PALETTE.length];
  return `hsl(${(number * 137.508) % 360} ${55 + 20 * (number % 2)}% ${42 + 8 * (number % 3)}%)`;
}

const percent = share => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function shuffled(count, seed) {
  const order = [...Array(count).keys()];
  for (let i = count - 1; i > 0; i--) {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    const other = seed % (i + 1);
    [order[i], order[other]] = [order[other], order[i]];
  }
  return order;
}

// One set of images of a run: rows 0..count-1, some of which (the places 0..shown-1) have a thumbnail.
class Images {
  constructor(run, key) {
    Object.assign(this, run.meta.sets[key]);
    this.run = run;
    this.id = `${run.id}-${key}`;
    this.labels = once(head => unpacked(`${this.id}-labels-${head}`, run.meta.clusters[head] <= 65536 ? Uint16Array : Int32Array));
    this.head = once(head => json(`${this.id}-head-${head}`));
    this.members = once(head => this.#members(head));
    this.sheet = once(number => this.#sheet(number));
    this.lists = once(what => ({
      classes: () => unpacked(`${this.id}-classes`, Int32Array),
      shown: () => unpacked(`${this.id}-shown`, Int32Array),
      sure: () => unpacked(`${this.id}-sure`, Uint8Array),
      ids: () => json(`${this.id}-ids`),
      places: () => new Map(Array.from(this.shown, (row, place) => [row, place])),
    })[what]());
  }
  get shown() { return this.lists("shown"); }
  get classes() { return this.lists("classes"); }
  get hasClasses() { return block(`${this.id}-classes`) !== null; }
  nameOf(row) {
    const ids = this.lists("ids");
    return ids ? ids.prefix + ids.rest[row] : String(row);
  }
  place(row) { return this.lists("places").get(row); }
  sure(place, head) {
    const sure = this.lists("sure");
    return sure.length ? sure[place * this.run.meta.clusters.length + head] / 255 : null;
  }
  describe(row, head) {
    const parts = [`image ${row}`];
    if (this.nameOf(row) !== String(row)) parts.push(this.nameOf(row));
    if (this.hasClasses) parts.push(`true class ${this.run.className(this.classes[row])}`);
    const sure = head === undefined ? null : this.sure(this.place(row), head);
    if (sure !== null) parts.push(`confidence ${sure.toFixed(2)}`);
    return parts.join(", ");
  }
  #members(head) {
    const labels = this.labels(head), found = Array.from({length: this.run.meta.clusters[head]}, () => []);
    this.shown.forEach((row, place) => found[labels[row]].push(place));
    return found;
  }
  histogram(head, cluster) {
    const labels = this.labels(head), counts = new Map();
    for (let row = 0; row < labels.length; row++) {
      if (labels[row] === cluster) counts.set(this.classes[row], (counts.get(this.classes[row]) || 0) + 1);
    }
    return [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  }
  async #sheet(number) {
    return createImageBitmap(new Blob([unpacked(`${this.id}-sheet-${number}`, Uint8Array)], {type: "image/jpeg"}));
  }
  // Draws thumbnails with frames into a canvas, `columns` in a row; fills in when their sheets are there.
  async draw(canvas, places, columns, side) {
    const lines = Math.max(1, Math.ceil(places.length / columns)), gap = 3, cell = side + gap;
    canvas.width = (columns * cell - gap) * RATIO;
    canvas.height = (lines * cell - gap) * RATIO;
    const context = canvas.getContext("2d"), perSheet = this.across * this.across;
    if (!this.tile) return;
    const wanted = canvas.wanted = {};
    await Promise.all([...new Set(places.map(place => Math.floor(place / perSheet)))].map(async number => {
      const bitmap = await this.sheet(number);
      if (canvas.wanted !== wanted) return;  // asked to show something else meanwhile
      places.forEach((place, index) => {
        if (Math.floor(place / perSheet) !== number) return;
        const across = bitmap.width / this.tile, inside = place % perSheet;
        const x = (index % columns) * cell * RATIO, y = Math.floor(index / columns) * cell * RATIO, frame = this.hasClasses ? 3 * RATIO : 0;
        if (frame) {
          context.fillStyle = this.run.colour(this.classes[this.shown[place]]);
          context.fillRect(x, y, side * RATIO, side * RATIO);
        }
        context.imageSmoothingQuality = "high";
        context.drawImage(bitmap, (inside % across) * this.tile, Math.floor(inside / across) * this.tile, this.tile, this.tile,
          x + frame, y + frame, side * RATIO - 2 * frame, side * RATIO - 2 * frame);
      });
    }));
  }
  thumb(row, side, head) {
    const canvas = element("canvas", {class: "thumb", role: "img", "aria-label": this.describe(row, head), title: this.describe(row, head)});
    canvas.style.width = canvas.style.height = `${side}px`;
    const place = this.place(row);
    this.draw(canvas, place === undefined ? [] : [place], 1, side);
    return canvas;
  }
}

class Run {
  constructor(number) {
    this.id = `r${number}`;
    this.meta = json(this.id);
    this.images = once(key => new Images(this, key));
    const classes = this.images("training").classes;
    this.classCount = this.meta.classNames ? this.meta.classNames.length : classes.reduce((most, c) => Math.max(most, c + 1), 0);
  }
  className(number) {
    if (number < 0) return "not known";
    return this.meta.classNames && number in this.meta.classNames ? this.meta.classNames[number] : `class ${number}`;
  }
  colour(number) { return colour(number, this.classCount); }
  legend() {
    const names = [...Array(Math.min(this.classCount, 200)).keys()];
    return names.map(c => element("span", {}, swatch(this.colour(c)), this.className(c)));
  }
}

function swatch(paint) {
  const made = element("i", {"aria-hidden": "true"});
  made.style.background = paint;
  return made;
}

function facts(run, images, head, cluster) {
  const own = images.head(head), trained = run.images("training").head(head);
  const words = [];
  if (own.purity && own.purity[cluster] !== null) words.push(`${run.className(own.common[cluster])}: ${percent(own.purity[cluster])}`);
  if (own.entropy && own.entropy[cluster] !== null) words.push(`entropy ${own.entropy[cluster].toFixed(2)}`);
  if (trained.confidence && trained.confidence[cluster] !== null) words.push(`confidence ${trained.confidence[cluster].toFixed(2)}`);
  return {size: own.sizes[cluster], words};
}

function card(explorer, head, cluster, columns, count, side) {
  const {run, images} = explorer, {size, words} = facts(run, images, head, cluster);
  const canvas = element("canvas", {"aria-hidden": "true"});
  const places = images.members(head)[cluster].slice(0, count);
  images.draw(canvas, places, columns, side);
  const made = element("button", {
    type: "button", class: "cardbox", "data-cluster": cluster,
    "aria-label": `Cluster ${cluster}: ${plural(size, "image")}${words.length ? ", " + words.join(", ") : ""}`,
    onclick: () => dialog.open(explorer, head, cluster),
  });
  if (images.tile) made.append(canvas);
  made.append(element("b", {}, `Cluster ${cluster}`, count > 4 ? element("span", {}, plural(size, "image")) : null));
  if (words.length && count > 4) made.append(element("small", {}, words.join(" · ")));
  return made;
}

// The grid of clusters of one run, with its head, set of images, order and page.
class Explorer {
  constructor(root) {
    this.root = root;
    this.run = runs[root.dataset.run];
    this.page = 0;
    this.seed = 1;
    for (const name of ["head", "set", "sort", "grid", "status", "page", "previous", "next", "legend", "found", "search"]) {
      this[`${name}Part`] = root.querySelector(`[data-${name}]`);
    }
    for (const part of [this.headPart, this.setPart, this.sortPart]) part.addEventListener("change", () => this.show(0));
    this.previousPart.addEventListener("click", () => this.show(this.page - 1));
    this.nextPart.addEventListener("click", () => this.show(this.page + 1));
    this.gridPart.addEventListener("keydown", event => this.#move(event));
    this.searchPart.addEventListener("submit", event => { event.preventDefault(); this.#search(); });
    for (const button of root.querySelectorAll("[data-preset]")) {
      button.addEventListener("click", () => {
        [this.setPart.value, this.sortPart.value] = button.dataset.preset.split(" ");
        this.seed += 1;
        this.show(0);
      });
    }
    if (this.run.images("training").hasClasses) this.legendPart.replaceChildren(...this.run.legend());
    this.show(0);
  }
  get head() { return Number(this.headPart.value); }
  get images() { return this.run.images(this.setPart.value); }

  order() {
    const summary = this.run.images("training").head(this.head), count = summary.sizes.length;
    if (this.sortPart.value === "random") return shuffled(count, this.seed);
    const by = {
      entropy: k => summary.entropy[k], mixed: k => -summary.entropy[k], purity: k => -summary.purity[k],
      confidence: k => -summary.confidence[k], doubt: k => summary.confidence[k],
      largest: k => -summary.sizes[k], smallest: k => summary.sizes[k], number: k => k,
    }[this.sortPart.value];
    const empty = k => summary.sizes[k] === 0;
    return [...Array(count).keys()].sort((a, b) => empty(a) - empty(b) || by(a) - by(b) || a - b);
  }
  show(page) {
    this.ordered = this.order();
    const pages = Math.ceil(this.ordered.length / CARDS);
    this.page = Math.min(Math.max(page, 0), pages - 1);
    const shown = this.ordered.slice(this.page * CARDS, (this.page + 1) * CARDS);
    this.gridPart.replaceChildren(...shown.map(k => card(this, this.head, k, 4, SHEET, 42)));
    const sort = this.sortPart.selectedOptions[0].textContent.trim();
    const by = this.setPart.value === "heldout" && !["random", "number"].includes(this.sortPart.value) ? `${sort} among training images` : sort;
    const set = this.setPart.value === "training" ? "training images" : "held-out images, by the head's own prediction";
    this.statusPart.textContent = `Head ${this.head}, ${plural(this.ordered.length, "cluster")} of ${this.images.count} ${set}; ${by}.`
      + (this.images.tile ? "" : " Their images are not in this report.");
    this.pagePart.textContent = `${this.page + 1} / ${pages}`;
    this.previousPart.disabled = this.page === 0;
    this.nextPart.disabled = this.page === pages - 1;
    for (const button of this.root.querySelectorAll("[data-preset]")) {
      button.setAttribute("aria-pressed", button.dataset.preset === `${this.setPart.value} ${this.sortPart.value}`);
    }
  }
  #move(event) {
    const cards = [...this.gridPart.children], at = cards.indexOf(document.activeElement);
    const columns = cards.filter(one => one.offsetTop === cards[0].offsetTop).length;
    const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns}[event.key];
    if (at < 0 || step === undefined) return;
    event.preventDefault();
    cards[Math.min(Math.max(at + step, 0), cards.length - 1)].focus();
  }
  #search() {
    const text = this.searchPart.querySelector("input").value.trim(), images = this.images;
    if (!text) return this.foundPart.replaceChildren();
    const rows = [], most = 12;
    let all = 0;
    const take = row => { all += 1; if (rows.length < most) rows.push(row); };
    if (/^\d+$/.test(text) && Number(text) < images.count) take(Number(text));
    if (images.lists("ids")) {
      const wanted = text.toLowerCase();
      for (let row = 0; row < images.count; row++) {
        if (row !== rows[0] && images.nameOf(row).toLowerCase().includes(wanted)) take(row);
      }
    }
    const set = this.setPart.value === "training" ? "training" : "held-out";
    if (!rows.length) {
      return this.foundPart.replaceChildren(`No ${set} image has the index or a name with “${text}”. There are ${images.count}, from 0 on.`);
    }
    this.foundPart.replaceChildren(
      element("p", {class: "note"}, all > most ? `${most} of ${all} images found:` : `${plural(all, `${set} image`)} found:`),
      ...rows.map(row => hit(this, row)));
  }
}

// An image and the cluster that it is in, for each head.
function hit(explorer, row) {
  const {run, images} = explorer;
  const chips = run.meta.clusters.map((_, head) => {
    const cluster = images.labels(head)[row];
    return element("button", {type: "button", onclick: () => dialog.open(explorer, head, cluster)}, `head ${head}: cluster ${cluster}`);
  });
  const where = element("div", {}, element("p", {}, images.describe(row)), element("div", {class: "chips"}, ...chips));
  return element("div", {class: "hit"}, images.place(row) === undefined || !images.tile ? null : images.thumb(row, 56), where);
}

const dialog = {
  box: block("cluster"),
  open(explorer, head, cluster) {
    Object.assign(this, {explorer, head, cluster, many: MORE});
    this.fill();
    if (!this.box.open) this.box.showModal();
    this.box.scrollTop = 0;
    block("cluster-title").focus();
  },
  step(by) {
    const order = this.explorer.head === this.head ? this.explorer.ordered : [...Array(this.explorer.run.meta.clusters[this.head]).keys()];
    const at = order.indexOf(this.cluster) + by;
    if (at >= 0 && at < order.length) this.open(this.explorer, this.head, order[at]);
  },
  fill() {
    const {explorer, head, cluster} = this, {run, images} = explorer;
    const {size, words} = facts(run, images, head, cluster);
    block("cluster-title").textContent = `Head ${head}, cluster ${cluster}`;
    const set = explorer.setPart.value === "training" ? "training" : "held-out";
    const body = this.box.querySelector("[data-body]");
    const left = element("div"), right = element("div");
    body.replaceChildren(
      element("p", {class: "lead"}, [plural(size, `${set} image`), ...words].join(" · ")),
      element("div", {class: "columns"}, left, right));
    this.fillImages(left, images, images.members(head)[cluster], size);
    if (images.hasClasses) {
      const counted = images.histogram(head, cluster), most = 14, rest = counted.slice(most).reduce((sum, [, n]) => sum + n, 0);
      const bars = counted.slice(0, most).flatMap(([c, n]) => {
        const bar = swatch(run.colour(c));
        bar.style.width = `${100 * n / counted[0][1]}%`;
        return [element("span", {}, run.className(c)), bar, element("span", {}, `${n} (${percent(n / size)})`)];
      });
      right.append(element("h3", {}, "True classes"), element("div", {class: "bars"}, ...bars));
      if (rest) right.append(element("p", {class: "note"}, `and ${rest} of ${counted.length - most} more classes`));
    }
    const nearest = run.images("training").head(head).nearest;
    if (nearest) {
      const cards = nearest[cluster].filter(k => k >= 0).map(k => card(explorer, head, k, 2, 4, 42));
      right.append(element("h3", {}, "Nearest clusters"), element("div", {class: "near"}, ...cards));
    }
  },
  fillImages(left, images, members, size) {
    if (!images.tile) return left.append(element("p", {class: "note"}, "The images are not in this report."));
    if (!members.length) return left.append(element("p", {class: "note"}, size ? "None of its images has a thumbnail." : "No image is in this cluster."));
    const thumbs = element("div", {class: "thumbs"}), where = element("div", {"aria-live": "polite"});
    const order = element("select", {"aria-label": "Order of the images"}, element("option", {value: "random"}, "at random"));
    if (images.sure(0, this.head) !== null) {
      order.append(element("option", {value: "sure"}, "most confident first"), element("option", {value: "doubt"}, "least confident first"));
    }
    const more = element("button", {type: "button", onclick: () => { this.many += MORE; show(); }});
    const show = () => {
      const sign = {random: 0, sure: -1, doubt: 1}[order.value];
      const sorted = [...members].sort((a, b) => sign * (images.sure(a, this.head) - images.sure(b, this.head)) || a - b);
      thumbs.replaceChildren(...sorted.slice(0, this.many).map(place => {
        const row = images.shown[place];
        const button = element("button", {type: "button", "aria-pressed": "false", onclick: () => {
          for (const one of thumbs.children) one.setAttribute("aria-pressed", one === button);
          where.replaceChildren(hit(this.explorer, row));
        }}, images.thumb(row, 52, this.head));
        return button;
      }));
      more.hidden = this.many >= members.length;
      more.textContent = `Show more (${members.length - this.many} left)`;
    };
    order.addEventListener("change", show);
    show();
    const note = members.length < size ? ` ${members.length} of its ${size} images have thumbnails.` : "";
    left.append(element("p", {class: "note"}, "Images ", order, ". Click one to see where each head puts it.", note), where, thumbs, more);
  },
};
dialog.box.addEventListener("click", event => {
  if (event.target === dialog.box || event.target.closest("[data-close]")) dialog.box.close();
  const button = event.target.closest("[data-step]");
  if (button) dialog.step(Number(button.dataset.step));
});
dialog.box.addEventListener("keydown", event => {
  if (event.target.matches("select, input")) return;
  const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  if (by) dialog.step(by);
});
dialog.box.addEventListener("close", () => {
  const back = dialog.explorer.gridPart.querySelector(`[data-cluster="${dialog.cluster}"]`);
  if (back && dialog.explorer.head === dialog.head) back.focus({preventScroll: true});
});

function neighbours(root) {
  const run = runs[root.dataset.neighbours], images = run.images("training"), found = json(`${run.id}-neighbours`);
  found.queries.forEach((query, number) => {
    const line = (title, rows) => {
      const same = images.hasClasses ? rows.filter(row => images.classes[row] === images.classes[query]).length : null;
      return element("div", {class: "line"}, element("span", {}, title), ...rows.map(row => images.thumb(row, 40)),
        same === null ? null : element("em", {}, `${same} of ${rows.length} of its class`));
    };
    const rows = element("div", {class: "rows"}, line("by features", found.by_features[number]), line("by pixels", found.by_pixels[number]));
    root.append(element("div", {class: "query", role: "group", "aria-label": `Neighbours of ${images.describe(query)}`}, images.thumb(query, 72), rows));
  });
}

class FeatureMap {
  constructor(root) {
    this.run = runs[root.dataset.map];
    this.images = this.run.images("training");
    Object.assign(this, json(`${this.run.id}-map`));
    for (const name of ["method", "colour", "canvas", "tip", "legend", "points"]) this[`${name}Part`] = root.querySelector(`[data-${name}]`);
    for (const part of [this.methodPart, this.colourPart]) part.addEventListener("change", () => this.draw());
    this.canvasPart.addEventListener("pointermove", event => this.#hover(event));
    this.canvasPart.addEventListener("pointerdown", event => this.#hover(event));
    this.canvasPart.addEventListener("pointerleave", () => { this.tipPart.hidden = true; });
    this.pointsPart.addEventListener("toggle", () => this.#table());
    new ResizeObserver(() => this.draw()).observe(this.canvasPart);
  }
  get where() { return this.points[this.methodPart.value]; }
  group(row) { return this.colourPart.value === "class" ? this.images.classes[row] : this.images.labels(this.colourPart.value)[row]; }
  draw() {
    const side = this.canvasPart.clientWidth, ratio = window.devicePixelRatio || 1, byClass = this.colourPart.value === "class";
    this.canvasPart.width = this.canvasPart.height = side * ratio;
    const context = this.canvasPart.getContext("2d"), count = byClass ? this.run.classCount : this.run.meta.clusters[this.colourPart.value];
    context.scale(ratio, ratio);
    context.globalAlpha = 0.8;
    this.rows.forEach((row, i) => {
      context.fillStyle = colour(this.group(row), count);
      context.beginPath();
      context.arc(...this.#at(i, side), side < 450 ? 2 : 3, 0, 7);
      context.fill();
    });
    this.legendPart.replaceChildren(...(byClass ? this.run.legend() : []));
    if (!byClass) this.legendPart.textContent = `${count} clusters, a colour each. Point at an image to see which.`;
    this.#table();
  }
  #at(i, side) { return this.where[i].map((v, axis) => 14 + (axis ? 1 - v : v) * (side - 28)); }
  #hover(event) {
    const side = this.canvasPart.clientWidth, {offsetX: x, offsetY: y} = event;
    let best = -1, least = 15 ** 2;
    for (let i = 0; i < this.rows.length; i++) {
      const [a, b] = this.#at(i, side), far = (a - x) ** 2 + (b - y) ** 2;
      if (far < least) [best, least] = [i, far];
    }
    this.tipPart.hidden = best < 0;
    if (best < 0) return;
    const row = this.rows[best], group = this.colourPart.value === "class" ? "" : `, cluster ${this.group(row)}`;
    if (this.tipPart.dataset.row !== String(row)) {
      this.tipPart.dataset.row = row;
      this.tipPart.replaceChildren(this.images.tile ? this.images.thumb(row, 48) : "", element("span", {}, this.images.describe(row) + group));
    }
    const [a, b] = this.#at(best, side);
    this.tipPart.style.left = `${Math.min(a + 12, side - this.tipPart.offsetWidth)}px`;
    this.tipPart.style.top = `${b + 12}px`;
  }
  #table() {
    if (!this.pointsPart.open) return;
    const cells = (tag, values) => element("tr", {}, ...values.map(value => element(tag, {}, String(value))));
    const kind = this.colourPart.value === "class" ? "class" : `cluster of head ${this.colourPart.value}`;
    const name = row => this.colourPart.value === "class" ? this.run.className(this.group(row)) : this.group(row);
    const body = this.rows.map((row, i) => cells("td", [row, this.images.nameOf(row), ...this.where[i].map(v => v.toFixed(3)), name(row)]));
    const table = element("table", {}, element("thead", {}, cells("th", ["index", "name", "x", "y", kind])), element("tbody", {}, ...body));
    this.pointsPart.querySelector("div")?.remove();
    this.pointsPart.append(element("div", {class: "scroll", tabindex: "0"}, table));
  }
}

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
requestAnimationFrame(() => performance.mark("report-ready"));
