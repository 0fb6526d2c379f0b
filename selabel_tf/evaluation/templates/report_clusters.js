// Clusters: the grid, the search, and the dialog of one cluster.

const CARDS = 30, SHEET = 12, MORE = 60, FOUND = 12, PARTS = 8;

function facts(run, images, head, cluster) {
  const own = images.head(head), trained = run.images("training").head(head);
  const words = [];
  if (own.purity && own.purity[cluster] !== null) words.push(`purity ${percent(own.purity[cluster])} (${run.className(own.common[cluster])})`);
  if (own.entropy && own.entropy[cluster] !== null) words.push(`entropy ${own.entropy[cluster].toFixed(2)}`);
  if (trained.confidence && trained.confidence[cluster] !== null) words.push(`confidence ${trained.confidence[cluster].toFixed(2)}`);
  return {size: own.sizes[cluster], words};
}

// The classes of a cluster as one bar, the most frequent first.
function mixture(run, images, head, cluster) {
  const bar = element("span", {class: "mixture", "aria-hidden": "true"});
  for (const [c, n] of images.histogram(head, cluster).slice(0, PARTS)) {
    const part = swatch(run.colour(c));
    part.style.flexGrow = n;
    bar.append(part);
  }
  const rest = images.histogram(head, cluster).slice(PARTS).reduce((sum, [, n]) => sum + n, 0);
  if (rest) bar.append(element("i", {style: `flex-grow: ${rest}`}));
  return bar;
}

function card(explorer, images, head, cluster, columns, count, side) {
  const {run} = explorer, {size, words} = facts(run, images, head, cluster);
  const canvas = element("canvas", {"aria-hidden": "true"});
  const places = images.members(head)[cluster].slice(0, count);
  images.draw(canvas, places, columns, side);
  const made = element("button", {
    type: "button", class: "cardbox", "data-cluster": cluster,
    "aria-label": `Cluster ${cluster}: ${plural(size, "image")}${words.length ? ", " + words.join(", ") : ""}`,
    onclick: () => dialog.open(explorer, images, head, cluster),
  });
  if (images.tile) made.append(canvas);
  if (images.hasClasses) made.append(mixture(run, images, head, cluster));
  made.append(element("b", {}, `Cluster ${cluster}`, count > 4 ? element("span", {}, plural(size, "image")) : null));
  if (count > 4) made.append(...words.map(text => element("small", {}, text)));
  return made;
}

// The grid of clusters of one run, with its head, set of images, order and page.
class Explorer {
  constructor(root) {
    this.root = root;
    this.run = runs[root.dataset.run];
    this.page = 0;
    this.seed = 1;
    for (const name of ["head", "set", "sort", "grid", "status", "page", "pages", "pager", "previous", "next", "legend", "found", "search"]) {
      this[`${name}Part`] = root.querySelector(`[data-${name}]`);
    }
    for (const part of [this.headPart, this.setPart, this.sortPart]) part.addEventListener("change", () => this.show(0));
    this.previousPart.addEventListener("click", () => this.show(this.page - 1));
    this.nextPart.addEventListener("click", () => this.show(this.page + 1));
    this.pagePart.addEventListener("change", () => this.show(Math.round(Number(this.pagePart.value)) - 1));
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
    this.page = Math.min(Math.max(page || 0, 0), pages - 1);
    const shown = this.ordered.slice(this.page * CARDS, (this.page + 1) * CARDS);
    this.gridPart.replaceChildren(...shown.map(k => card(this, this.images, this.head, k, 4, SHEET, 42)));
    const sort = this.sortPart.selectedOptions[0].textContent.trim();
    const by = this.images.words !== "training" && !["random", "number"].includes(this.sortPart.value) ? `${sort} among training images` : sort;
    const set = this.images.words === "training" ? "training images" : "held-out images, by the head's own prediction";
    this.statusPart.textContent = `Head ${this.head}, ${plural(this.ordered.length, "cluster")} of ${this.images.count} ${set}; ${by}.`
      + (this.images.tile ? "" : " Their images are not in this report.");
    this.pagerPart.hidden = pages === 1;
    this.pagePart.value = this.page + 1;
    this.pagePart.max = pages;
    this.pagesPart.textContent = `of ${pages}`;
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
    const text = this.searchPart.querySelector("input").value.trim();
    if (!text) return this.foundPart.replaceChildren();
    const found = this.run.sets.flatMap(images => {
      const [rows, all] = images.find(text, FOUND), what = `${images.words} image`;
      if (!all) return [];
      return [element("p", {class: "note"}, all > FOUND ? `${FOUND} of ${all} ${what}s found` : `${plural(all, what)} found`), ...rows.map(row => hit(this, images, row))];
    });
    const there = this.run.sets.map(images => `${images.count} ${images.words}`).join(" and ");
    if (!found.length) found.push(`No image has the index or a name with “${text}”. There are ${there} images, counted from 0.`);
    this.foundPart.replaceChildren(...found);
  }
}

// An image and the cluster that it is in, for each head.
function hit(explorer, images, row) {
  const chips = explorer.run.meta.clusters.map((_, head) => {
    const cluster = images.labels(head)[row];
    return element("button", {type: "button", onclick: () => dialog.open(explorer, images, head, cluster)}, `head ${head}: cluster ${cluster}`);
  });
  const thumb = images.place(row) === undefined || !images.tile ? null : images.thumb(row, 64);
  return element("div", {class: "hit"}, thumb, element("p", {}, images.describe(row)), element("div", {class: "chips"}, ...chips));
}

const dialog = {
  box: block("cluster"),
  open(explorer, images, head, cluster) {
    Object.assign(this, {explorer, images, head, cluster, many: MORE});
    this.fill();
    if (!this.box.open) this.box.showModal();
    this.box.scrollTop = 0;
    block("cluster-title").focus();
  },
  step(by) {
    const order = this.explorer.head === this.head ? this.explorer.ordered : [...Array(this.explorer.run.meta.clusters[this.head]).keys()];
    const at = order.indexOf(this.cluster) + by;
    if (at >= 0 && at < order.length) this.open(this.explorer, this.images, this.head, order[at]);
  },
  fill() {
    const {explorer, images, head, cluster} = this, {run} = explorer;
    const {size, words} = facts(run, images, head, cluster);
    block("cluster-title").textContent = `Head ${head}, cluster ${cluster}`;
    const left = element("div"), right = element("div");
    this.box.querySelector("[data-body]").replaceChildren(
      element("p", {class: "lead"}, [plural(size, `${images.words} image`), ...words].join(" · ")),
      element("div", {class: "columns"}, left, right));
    this.fillImages(left, images.members(head)[cluster], size);
    if (images.hasClasses && size) {
      const counted = images.histogram(head, cluster), most = 14, rest = counted.slice(most).reduce((sum, [, n]) => sum + n, 0);
      const bars = counted.slice(0, most).flatMap(([c, n]) => {
        const bar = swatch(run.colour(c));
        bar.style.width = `${100 * n / counted[0][1]}%`;
        return [element("span", {}, run.className(c)), bar, element("span", {}, `${n} (${percent(n / size)})`)];
      });
      right.append(element("h3", {}, "True classes"), element("div", {class: "bars"}, ...bars));
      if (rest) right.append(element("p", {class: "note"}, `and ${rest} of ${counted.length - most} more classes`));
    }
    const near = (run.images("training").head(head).nearest || [])[cluster]?.filter(k => k >= 0) || [];
    if (near.length) {
      const cards = near.map(k => card(explorer, images, head, k, 2, 4, 42));
      right.append(element("h3", {}, "Nearest clusters"), element("p", {class: "note"}, "By the mean features of their training images, the nearest first."),
        element("div", {class: "near"}, ...cards));
    }
  },
  fillImages(left, members, size) {
    const images = this.images;
    if (!images.tile) return left.append(element("p", {class: "note"}, "The images are not in this report."));
    if (!members.length) return left.append(element("p", {class: "note"}, size ? "None of its images has a thumbnail." : "No image is in this cluster."));
    const thumbs = element("div", {class: "thumbs"}), where = element("div", {class: "picked", "aria-live": "polite"});
    const order = element("select", {}, element("option", {value: "random"}, "at random"));
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
          where.replaceChildren(hit(this.explorer, images, row));
        }}, images.thumb(row, 52, this.head));
        return button;
      }));
      more.hidden = this.many >= members.length;
      more.textContent = `Show more (${members.length - this.many} left)`;
    };
    order.addEventListener("change", show);
    show();
    const note = members.length < size ? ` ${members.length} of its ${size} images have thumbnails.` : "";
    left.append(element("div", {class: "controls"}, element("label", {}, "Images", order)),
      element("p", {class: "note"}, "Click an image to see where each head puts it.", note), where, thumbs, more);
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
