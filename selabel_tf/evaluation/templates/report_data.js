"use strict";
// The data of the report page: text blocks in the page, read when first wanted. Nothing is fetched, and text from the
// data reaches the page as text nodes only.

const RATIO = 2;
const PALETTE = ["#3f7fd1", "#f28a30", "#2f9e58", "#d63a3c", "#9265c4", "#a3724c", "#e8609f", "#87909a", "#b3ab1e", "#19a9bd"];

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

function swatch(paint) {
  const made = element("i", {"aria-hidden": "true"});
  made.style.background = paint;
  return made;
}

function colour(number, count) {
  if (number < 0) return "#999999";
  if (count <= PALETTE.length) return PALETTE[number % PALETTE.length];
  return `hsl(${(number * 137.508) % 360} ${55 + 20 * (number % 2)}% ${46 + 8 * (number % 3)}%)`;
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
    this.words = key === "training" ? "training" : "held-out";
    this.id = `${run.id}-${key}`;
    this.labels = once(head => unpacked(`${this.id}-labels-${head}`, run.meta.clusters[head] <= 65536 ? Uint16Array : Int32Array));
    this.head = once(head => json(`${this.id}-head-${head}`));
    this.members = once(head => this.#members(head));
    this.counts = once(head => this.#counts(head));
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
    const parts = [`${this.words} image ${row}`];
    if (this.nameOf(row) !== String(row)) parts.push(this.nameOf(row));
    if (this.hasClasses) parts.push(`true class ${this.run.className(this.classes[row])}`);
    const sure = head === undefined ? null : this.sure(this.place(row), head);
    if (sure !== null) parts.push(`confidence ${sure.toFixed(2)}`);
    return parts.join(", ");
  }
  // Rows whose index is `text`, or whose name has it: [up to `most` of them, how many there are].
  find(text, most) {
    const rows = [], wanted = text.toLowerCase(), index = /^\d+$/.test(text) && Number(text) < this.count ? Number(text) : -1;
    let all = 0;
    const take = row => { all += 1; if (rows.length < most) rows.push(row); };
    if (index >= 0) take(index);
    for (let row = 0; this.lists("ids") && row < this.count; row++) {
      if (row !== index && this.nameOf(row).toLowerCase().includes(wanted)) take(row);
    }
    return [rows, all];
  }
  #members(head) {
    const labels = this.labels(head), found = Array.from({length: this.run.meta.clusters[head]}, () => []);
    this.shown.forEach((row, place) => found[labels[row]].push(place));
    return found;
  }
  // How many images of each class are in each cluster, in one pass over all images; place 0 is "not known".
  #counts(head) {
    const labels = this.labels(head), classes = this.classes, width = classes.reduce((most, c) => Math.max(most, c), -1) + 2;
    const counts = new Int32Array(this.run.meta.clusters[head] * width);
    for (let row = 0; row < labels.length; row++) counts[labels[row] * width + classes[row] + 1] += 1;
    return {counts, width};
  }
  // [class, number of images] of a cluster, the most frequent first.
  histogram(head, cluster) {
    const {counts, width} = this.counts(head), found = [];
    for (let i = 0; i < width; i++) if (counts[cluster * width + i]) found.push([i - 1, counts[cluster * width + i]]);
    return found.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
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
    canvas.style.width = `${side}px`;
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
    this.sets = Object.keys(this.meta.sets).map(key => this.images(key));
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
