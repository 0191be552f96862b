// The fleet: every node as a mark, the counts that narrow it, and the table of nodes by concerns.

const ROW = 28; // as --row in page.css
const SPARE = 24; // rows beyond the edges of the window
const FLAGS = {
  reboot: { word: "Needs a reboot", sign: "\u27f3", test: (node) => node.reboot },
  sick: { word: "Sick GPU", sign: "!", test: (node) => node.sick.length > 0 },
  ports: { word: "Sick port", sign: "\u2260", test: (node) => node.ports.length > 0 },
  degraded: { word: "Slow or narrow link", sign: "\u2193", test: (node) => node.degraded.length > 0 },
  behind: { word: "Another version", sign: "\u2262", test: (node, data) => data.behind.has(node.number) },
};

// What narrows the table, as it stands in the address.
class Filter {
  constructor(query) {
    this.text = query.get("q") ?? "";
    this.statuses = new Set((query.get("status") ?? "").split(",").filter((name) => STATUS_OF[name]));
    this.flags = new Set((query.get("flag") ?? "").split(",").filter((name) => Object.hasOwn(FLAGS, name)));
    this.concern = query.get("concern") ?? "";
    this.only = query.get("only") ?? "";
    [this.sort, this.order] = (query.get("sort") ?? "status.down").split(".");
  }

  get query() {
    const sort = `${this.sort}.${this.order}`;
    return {
      q: this.text,
      status: [...this.statuses].join(","),
      flag: [...this.flags].join(","),
      concern: this.concern,
      only: this.only,
      sort: sort === "status.down" ? "" : sort,
    };
  }

  get empty() {
    return !(this.text || this.statuses.size || this.flags.size || this.concern || this.only);
  }

  toggle(kind, name) {
    const set = this[kind];
    set.has(name) ? set.delete(name) : set.add(name);
  }
}

// The nodes of a finding ("finding.3"), of a version ("version.0.2.1"), or of a division of CPUs ("cpus.0"; "stray.0" for
// those that send interrupts astray), with what to call them.
function chosen(data, only) {
  const [kind, ...places] = only.split(".");
  const [first, second, third] = places.map(Number);
  if (kind === "finding" && data.findings[first]) {
    const finding = data.findings[first];
    return { nodes: new Set(finding.nodes), word: `${finding.concerns.join(", ")}, ${finding.setting}` };
  }
  const division = data.divisions[first];
  if (kind === "cpus" && division) return { nodes: new Set(division.nodes), word: "the same division of CPUs" };
  if (kind === "stray" && division) return { nodes: new Set(division.stray), word: "interrupts on isolated CPUs" };
  const part = kind === "version" && data.skew[first]?.components[second];
  const version = part && part.versions[third];
  return version ? { nodes: new Set(version.nodes), word: `${part.component} ${part.of} ${version.version}` } : null;
}

// The place of a concern's status among all; -1 where the node does not declare it.
function worst(node, place) {
  return STATUS[node.cells[place]]?.rank ?? -1;
}

function matching(data, filter) {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const only = chosen(data, filter.only)?.nodes;
  const concern = data.concerns.indexOf(filter.concern);
  const inFindings = words.map((word) => nodesWithFinding(data, word));
  return data.nodes.filter(
    (node) =>
      (!filter.statuses.size || filter.statuses.has(node.status)) &&
      [...filter.flags].every((flag) => FLAGS[flag].test(node, data)) &&
      (!only || only.has(node.number)) &&
      (concern < 0 || worst(node, concern) > 0) &&
      words.every(
        (word, index) =>
          node.text.includes(word) || inFindings[index].has(node.number) || data.holds(node.number, word),
      ),
  );
}

// Who types a setting or an object wants the nodes where it is wrong.
function nodesWithFinding(data, word) {
  const found = new Set();
  for (const finding of data.findings) {
    finding.text ??= [...finding.concerns, finding.setting, finding.note, ...finding.objects].join(" ").toLowerCase();
    if (finding.text.includes(word)) finding.nodes.forEach((number) => found.add(number));
  }
  return found;
}

function ordered(data, nodes, filter) {
  const concern = data.concerns.indexOf(filter.sort);
  const keys = {
    status: (node) => [STATUS_OF[node.status].rank, node.sick.length + node.ports.length, node.wrong],
    gpus: (node) => [node.gpus],
    driver: (node) => [node.versions.driver ?? ""],
    kernel: (node) => [node.versions.kernel ?? ""],
    first: (node) => [node.first],
  };
  const key = concern >= 0 ? (node) => [worst(node, concern)] : keys[filter.sort] ?? (() => []);
  const direction = filter.order === "down" ? -1 : 1;
  const withKeys = nodes.map((node) => ({ node, key: key(node) }));
  withKeys.sort((one, other) => {
    for (let place = 0; place < one.key.length; place++) {
      const [a, b] = [one.key[place], other.key[place]];
      const difference = typeof a === "number" ? a - b : natural.compare(a, b);
      if (difference) return direction * difference;
    }
    return (filter.sort === "name" ? direction : 1) * natural.compare(one.node.name, other.node.name);
  });
  return withKeys.map((entry) => entry.node);
}

// --- every node as a mark --------------------------------------------------------------------------------------------

const MARKS = {
  in_sync: (x, y) => `M${x + 2} ${y + 2}h6v6h-6z`,
  pending: (x, y) => `M${x + 5} ${y}l5 9h-10z`,
  not_installed: (x, y) => `M${x} ${y}h10v10h-10zM${x + 2.5} ${y + 2.5}v5h5v-5z`,
  drifted: (x, y) => `M${x} ${y}h10v10h-10z`,
  unknown: (x, y) => `M${x + 5} ${y - 0.5}l5.5 5.5l-5.5 5.5l-5.5 -5.5z`,
  invalid: (x, y) => `M${x + 5} ${y}a5 5 0 1 0 0.01 0zM${x + 2} ${y + 4}v2h6v-2z`,
  unreachable: (x, y) => `M${x} ${y + 1.5}l1.5 -1.5l3.5 3.5l3.5 -3.5l1.5 1.5l-3.5 3.5l3.5 3.5l-1.5 1.5l-3.5 -3.5l-3.5 3.5l-1.5 -1.5l3.5 -3.5z`,
};
const STEP = 14;

class Marks {
  constructor(data) {
    this.data = data;
    this.columns = Math.max(10, Math.min(64, Math.ceil(Math.sqrt(data.nodes.length * 5))));
    const rows = Math.max(1, Math.ceil(data.nodes.length / this.columns));
    const box = `-2 -2 ${this.columns * STEP + 2} ${rows * STEP + 2}`;
    // The table says the same to who cannot see it.
    this.element = draw("svg", { class: "marks", viewBox: box, "aria-hidden": "true" });
    this.element.style.maxWidth = `${this.columns * STEP * 1.4}px`;
    this.label = el("p", { class: "under", "aria-hidden": "true" });
    this.element.addEventListener("pointermove", (event) => this.name(this.under(event)));
    this.element.addEventListener("pointerleave", () => this.name(null));
    this.element.addEventListener("click", (event) => {
      const node = this.under(event);
      if (node) location.hash = addressOf(node);
    });
  }

  under(event) {
    const box = this.element.getBoundingClientRect();
    const scale = (this.columns * STEP + 2) / box.width;
    const column = Math.floor(((event.clientX - box.left) * scale - 2) / STEP);
    const row = Math.floor(((event.clientY - box.top) * scale - 2) / STEP);
    return column >= 0 && column < this.columns ? this.data.nodes[row * this.columns + column] : undefined;
  }

  name(node) {
    this.label.textContent = node ? `${node.name}: ${STATUS_OF[node.status].word.toLowerCase()}` : "Each mark is a node, in the order of the names.";
  }

  show(nodes) {
    const lit = new Set(nodes.map((node) => node.number));
    const paths = STATUS.flatMap((status) =>
      [true, false].map((inside) => {
        const those = this.data.nodes.filter((node) => node.status === status.name && lit.has(node.number) === inside);
        const shape = those.map((node) => MARKS[status.name]((node.number % this.columns) * STEP, Math.floor(node.number / this.columns) * STEP));
        return draw("path", { class: `m-${status.name}${inside ? "" : " out"}`, d: shape.join("") });
      }),
    );
    this.element.replaceChildren(...paths);
    this.name(null);
  }
}

// --- the table of nodes by concerns ----------------------------------------------------------------------------------

const models = (node) => node.gpus.replaceAll("NVIDIA ", "").split(", ");

// Only the rows around the window are there; the grid says how many there are, and the keys go through all of them.
class Grid {
  constructor(data, filter, change) {
    Object.assign(this, { data, filter, change, nodes: [], active: [0, 0], from: 0, to: 0, everything: false });
    this.columns = [
      { key: "name", word: "Node", kind: "name" },
      ...data.concerns.map((name, place) => ({ key: name, word: name.replaceAll("_", " "), kind: "cell", place })),
      { key: "first", word: "What is wrong", kind: "text wide", text: (node) => node.first, more: (node) => node.more, of: "setting" },
      { key: "gpus", word: "GPUs", kind: "text gpus", text: (node) => (models(node).length > 2 ? models(node)[0] : models(node).join(", ")), more: (node) => (models(node).length > 2 ? models(node).length - 1 : 0), of: "model" },
      { key: "driver", word: "Driver", kind: "text", text: (node) => node.versions.driver },
      { key: "kernel", word: "Kernel", kind: "text", text: (node) => node.versions.kernel },
    ];
    this.above = el("tr", { class: "gap", "aria-hidden": "true" }, el("td"));
    this.below = el("tr", { class: "gap", "aria-hidden": "true" }, el("td"));
    this.body = el("tbody", { role: "rowgroup" });
    // Two tables, so that the head stays in the window while the rows go sideways; to a reader of screens they are one.
    this.bar = el("div", { class: "bar" }, this.sheet(this.head()));
    this.rows = el("div", { class: "rows" }, this.sheet(this.body));
    this.element = el(
      "div",
      { class: "grid", role: "grid", "aria-label": "Nodes by concerns", "aria-colcount": this.columns.length },
      this.bar,
      this.rows,
    );
    this.element.style.setProperty("--cells", data.concerns.length);
    this.element.style.setProperty("--letters", Math.max(0, ...data.nodes.map((node) => node.name.length)));
    this.more = el("button", { type: "button", class: "more", title: "There are more columns to the right: scroll sideways, or use the arrow keys in the table" });
    this.more.addEventListener("click", () => this.rows.scrollBy({ left: this.rows.clientWidth / 2, behavior: still() ? "auto" : "smooth" }));
    this.rows.addEventListener("scroll", () => this.edges(), { passive: true });
    // Who goes through the heads with the keyboard takes the rows along.
    this.bar.addEventListener("scroll", () => this.bar.scrollLeft === this.along || (this.rows.scrollLeft = this.bar.scrollLeft), { passive: true });
    this.body.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("focusin", (event) => this.entered(event));
    this.body.addEventListener("click", (event) => this.clicked(event));
  }

  sheet(part) {
    const columns = this.columns.map((column) => el("col", { class: column.kind }));
    return el("table", { class: "sheet", role: "presentation" }, el("colgroup", {}, columns), part);
  }

  // What lies beyond the edges, and how much of it on the right.
  edges() {
    const { scrollLeft, scrollWidth, clientWidth } = this.rows;
    this.bar.scrollLeft = scrollLeft;
    // What the head does because the rows did it does not move the rows again.
    this.along = this.bar.scrollLeft;
    const end = this.bar.getBoundingClientRect().right;
    const beyond = this.heads.filter((head) => head.getBoundingClientRect().right > end + 1).length;
    this.element.classList.toggle("left", scrollLeft > 0);
    this.element.classList.toggle("right", beyond > 0 && scrollLeft + clientWidth < scrollWidth - 1);
    this.more.hidden = !this.element.classList.contains("right");
    this.more.textContent = `${many(beyond, "more column")} \u2192`;
  }

  head() {
    this.heads = this.columns.map((column) => {
      const button = el("button", { type: "button", class: "sort" }, el("span", {}, column.word));
      button.addEventListener("click", () => this.sortBy(column));
      return el("th", { scope: "col", class: column.kind, role: "columnheader" }, button);
    });
    const counts = this.columns.map((column) => el("td", { class: column.kind, role: "gridcell" }, this.count(column)));
    return el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, this.heads), el("tr", { class: "counts", role: "row" }, counts));
  }

  // How many nodes are not in sync in a concern: a button that keeps these.
  count(column) {
    if (column.kind === "name") return el("span", { class: "muted" }, "not in sync");
    if (column.kind !== "cell") return null;
    const count = this.data.nodes.filter((node) => worst(node, column.place) > 0).length;
    const label = `${column.word}: ${many(count, "node")} not in sync`;
    const button = el("button", { type: "button", "aria-label": label, "data-concern": column.key, disabled: !count }, whole.format(count));
    button.addEventListener("click", () => {
      this.filter.concern = this.filter.concern === column.key ? "" : column.key;
      this.change();
    });
    return button;
  }

  sortBy(column) {
    const down = column.kind === "cell" ? "down" : "up";
    const other = down === "down" ? "up" : "down";
    this.filter.order = this.filter.sort === column.key && this.filter.order === down ? other : down;
    this.filter.sort = column.key;
    this.change();
  }

  show(nodes) {
    this.nodes = nodes;
    this.active = [Math.min(this.active[0], Math.max(0, nodes.length - 1)), this.active[1]];
    this.element.setAttribute("aria-rowcount", nodes.length + 2);
    this.columns.forEach((column, place) => {
      const sorted = this.filter.sort === column.key;
      this.heads[place].setAttribute("aria-sort", sorted ? (this.filter.order === "down" ? "descending" : "ascending") : "none");
    });
    for (const button of this.element.querySelectorAll("[data-concern]")) {
      button.setAttribute("aria-pressed", button.dataset.concern === this.filter.concern);
    }
    this.render(true);
  }

  render(anew = false) {
    const top = this.body.getBoundingClientRect().top;
    const first = Math.floor(-top / ROW);
    const last = Math.ceil((innerHeight - top) / ROW);
    if (!anew && this.from <= Math.max(0, first) && Math.min(this.nodes.length, last) <= this.to) return;
    this.from = this.everything ? 0 : Math.max(0, Math.min(first - SPARE, this.nodes.length - 1));
    this.to = this.everything ? this.nodes.length : Math.max(0, Math.min(this.nodes.length, last + SPARE));
    const focused = this.body.contains(document.activeElement);
    const rows = [];
    for (let row = this.from; row < this.to; row++) rows.push(this.row(row));
    this.above.firstChild.style.height = `${this.from * ROW}px`;
    this.below.firstChild.style.height = `${(this.nodes.length - this.to) * ROW}px`;
    this.body.replaceChildren(this.above, ...rows, this.below);
    if (focused) this.cellAt(...this.active)?.focus({ preventScroll: true });
    if (anew) this.edges();
  }

  row(row) {
    const node = this.nodes[row];
    const cells = this.columns.map((column, place) => {
      const cell = this.cell(node, column);
      cell.tabIndex = row === this.active[0] && place === this.active[1] ? 0 : -1;
      return cell;
    });
    const line = el("tr", { role: "row", "aria-rowindex": row + 3 }, cells);
    line.row = row;
    return line;
  }

  cell(node, column) {
    if (column.kind === "name") {
      const status = STATUS_OF[node.status];
      const marks = Object.values(FLAGS).filter((flag) => flag.test(node, this.data));
      return el(
        "th",
        { scope: "row", class: "name", role: "rowheader", title: node.name },
        el("span", { class: `sign s-${status.name}`, role: "img", "aria-label": `${status.word}:` }, status.sign),
        el("a", { href: addressOf(node), tabindex: "-1" }, node.name),
        marks.map((flag) => el("span", { class: "flag", role: "img", title: flag.word, "aria-label": flag.word }, flag.sign)),
      );
    }
    if (column.kind !== "cell") {
      const text = column.text(node) ?? "";
      const rest = column.more?.(node) ?? 0;
      const others = rest > 0 ? el("a", { class: "plus", href: addressOf(node), tabindex: "-1", title: `${many(rest, `more ${column.of}`)} on the page of the node` }, `+${whole.format(rest)}`) : null;
      return el("td", { class: column.kind, role: "gridcell", title: text || null }, el("div", {}, el("span", {}, text), others));
    }
    const status = STATUS[node.cells[column.place]];
    const silent = node.status === "unreachable";
    const label = `${column.key}: ${status ? status.word.toLowerCase() : silent ? "no response" : "not declared"}`;
    const name = status ? status.name : silent ? "silent" : "none";
    // What is in sync is the ground on which the rest stands out.
    const sign = name === "in_sync" ? "\u00b7" : status?.sign ?? "";
    return el("td", { class: "cell", role: "gridcell", "aria-label": label, title: label }, el("span", { class: `c-${name}`, "aria-hidden": "true" }, sign));
  }

  cellAt(row, column) {
    const line = [...this.body.children].find((child) => child.row === row);
    return line?.children[column];
  }

  entered(event) {
    const cell = event.target.closest("td, th");
    const row = cell?.parentElement.row;
    if (row === undefined) return;
    this.cellAt(...this.active)?.setAttribute("tabindex", "-1");
    this.active = [row, cell.cellIndex];
    cell.tabIndex = 0;
  }

  clicked(event) {
    const cell = event.target.closest("td.cell");
    if (cell?.parentElement.row !== undefined) this.open(cell.parentElement.row, cell.cellIndex);
  }

  open(row, column) {
    const concern = this.columns[column].kind === "cell" ? this.columns[column].key : "";
    location.hash = addressOf(this.nodes[row], { concern });
  }

  key(event) {
    const [row, column] = this.active;
    const page = Math.max(1, Math.floor(innerHeight / ROW) - 8);
    const moves = {
      ArrowDown: [row + 1, column],
      ArrowUp: [row - 1, column],
      ArrowRight: [row, this.beside(column, 1)],
      ArrowLeft: [row, this.beside(column, -1)],
      PageDown: [row + page, column],
      PageUp: [row - page, column],
      Home: [event.ctrlKey ? 0 : row, 0],
      End: [event.ctrlKey ? this.nodes.length - 1 : row, this.beside(this.columns.length, -1)],
    };
    if (event.key === "Enter") this.open(row, column);
    else if (moves[event.key]) this.go(...moves[event.key]);
    else return;
    event.preventDefault();
  }

  beside(column, step) {
    return this.heads[column + step] ? column + step : column;
  }

  go(row, column) {
    const height = this.nodes.length - 1;
    this.cellAt(...this.active)?.setAttribute("tabindex", "-1");
    this.active = [Math.max(0, Math.min(height, row)), column];
    const top = this.body.getBoundingClientRect().top + this.active[0] * ROW;
    const head = this.bar.getBoundingClientRect().height;
    if (top < head) scrollBy(0, Math.floor(top - head));
    else if (top + ROW > innerHeight) scrollBy(0, Math.ceil(top + ROW - innerHeight));
    this.render();
    const cell = this.cellAt(...this.active);
    cell.tabIndex = 0;
    cell.focus({ preventScroll: true });
    this.sideways(cell, column);
  }

  // Only as far as it takes, and never below the names, which are always there.
  sideways(cell, column) {
    const [box, view] = [cell.getBoundingClientRect(), this.rows.getBoundingClientRect()];
    const names = view.left + this.heads[0].getBoundingClientRect().width;
    if (!column) this.rows.scrollLeft = 0;
    else if (box.left < names) this.rows.scrollLeft -= Math.ceil(names - box.left);
    else if (box.right > view.right) this.rows.scrollLeft += Math.ceil(box.right - view.right);
  }
}

// --- the view --------------------------------------------------------------------------------------------------------

class Fleet {
  constructor(data, query) {
    this.data = data;
    this.filter = new Filter(query);
    this.marks = new Marks(data);
    this.grid = new Grid(data, this.filter, () => this.change());
    this.count = el("p", { class: "count", role: "status", "aria-live": "polite" });
    this.clear = el("button", { type: "button", class: "clear" }, "Show all");
    this.clear.addEventListener("click", () => this.reset());
    const [top, tools] = [this.top(), this.tools()];
    tools.append(this.grid.more);
    this.element = el("div", { class: "fleet" }, top, data.nodes.length ? [tools, this.grid.element] : null);
  }

  top() {
    const inSync = this.data.nodes.filter((node) => node.status === "in_sync").length;
    const total = this.data.nodes.length;
    if (!total) {
      return el("section", {}, el("h1", {}, "There are no nodes in this report"), el("p", { class: "muted" }, "No host of the inventory was in the run."));
    }
    const sentence = [el("strong", {}, whole.format(inSync)), ` of ${many(total, "node")} ${inSync === 1 ? "is" : "are"} in sync`];
    const settings = STATUS.map(({ name }) => [name, this.data.settings[name]])
      .filter(([name, count]) => count || name === "in_sync")
      .map(([name, count]) => (name === "invalid" ? `${many(count, "concern")} ${name}` : `${whole.format(count)} ${STATUS_OF[name].word.toLowerCase()}`));
    if (this.data.settings.accepted) settings.push(`${whole.format(this.data.settings.accepted)} accepted`);
    if (this.data.settings.unmanaged) settings.push(`${whole.format(this.data.settings.unmanaged)} unmanaged`);
    return el(
      "section",
      { class: "glance" },
      el("div", {}, el("h1", {}, sentence), el("p", { class: "muted" }, `Settings: ${settings.join(", ")}.`), this.chips()),
      el("div", { class: "overview" }, this.marks.element, this.marks.label),
    );
  }

  chips() {
    const statuses = STATUS.map((status) => {
      const count = this.data.nodes.filter((node) => node.status === status.name).length;
      return this.chip("statuses", status.name, badge(status.name), count, status.means);
    });
    const flags = Object.entries(FLAGS).map(([name, flag]) => {
      const count = this.data.nodes.filter((node) => flag.test(node, this.data)).length;
      const sign = el("span", { class: "flag", "aria-hidden": "true" }, flag.sign);
      return this.chip("flags", name, el("span", { class: "badge" }, sign, " ", flag.word), count, flag.word);
    });
    return el(
      "div",
      {},
      el("div", { class: "chips", role: "group", "aria-label": "Nodes by their worst status" }, statuses),
      el("div", { class: "chips", role: "group", "aria-label": "Nodes with something else" }, flags),
    );
  }

  chip(kind, name, label, count, title) {
    // One that counts nothing is there only where a link has it chosen.
    if (!count && !this.filter[kind].has(name)) return null;
    const button = el("button", { type: "button", class: "chip", title, "data-kind": kind, "data-name": name }, label, el("b", {}, whole.format(count)));
    button.addEventListener("click", () => {
      this.filter.toggle(kind, name);
      this.change();
    });
    return button;
  }

  tools() {
    this.search = el("input", {
      type: "search",
      id: "search",
      placeholder: "Node, group, model, version, setting, serial number, UUID",
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": "shown",
    });
    this.search.value = this.filter.text;
    this.search.addEventListener("input", () => {
      this.filter.text = this.search.value;
      this.change();
    });
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" && this.grid.nodes.length) {
        event.preventDefault();
        this.grid.go(0, 0);
      }
    });
    this.count.id = "shown";
    this.what = el("p", { class: "what" });
    return el("div", { class: "tools", role: "search" }, el("label", { for: "search" }, "Search"), this.search, this.count, this.what, this.clear);
  }

  reset() {
    Object.assign(this.filter, new Filter(new URLSearchParams()), { sort: this.filter.sort, order: this.filter.order });
    this.search.value = "";
    this.change();
    this.search.focus();
  }

  change() {
    // A step back leads to the view before, not to each letter that was typed.
    history.replaceState(null, "", address("fleet", this.filter.query));
    this.show();
  }

  show() {
    const nodes = matching(this.data, this.filter);
    const [found, total] = [nodes.length, this.data.nodes.length];
    this.count.textContent = found === total ? many(total, "node") : `${whole.format(found)} of ${many(total, "node")}`;
    const only = chosen(this.data, this.filter.only);
    const concern = this.filter.concern && `${this.filter.concern} not in sync`;
    this.what.textContent = [only?.word, concern].filter(Boolean).join("; ");
    this.clear.hidden = this.filter.empty;
    for (const button of this.element.querySelectorAll(".chip")) {
      button.setAttribute("aria-pressed", this.filter[button.dataset.kind].has(button.dataset.name));
    }
    this.marks.show(nodes);
    this.order = ordered(this.data, nodes, this.filter);
    this.grid.show(this.order);
  }

  scrolled() {
    this.grid.render();
  }

  resized() {
    this.grid.render();
    this.grid.edges();
  }

  printing(everything) {
    this.grid.everything = everything;
    this.grid.render(true);
  }
}
