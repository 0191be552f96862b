// What all views stand on: elements, the data, the address of a view, words and numbers.
// Everything that comes from hosts goes into the page as text; the policy of the page refuses markup from strings.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

// From the best to the worst. What the cells of a node have for a concern is its place here.
const STATUS = [
  { name: "in_sync", sign: "\u2713", word: "In sync", means: "as declared, now and at boot" },
  { name: "pending", sign: "\u21bb", word: "Pending", means: "written, and waits for a reboot, a reset or a reload" },
  { name: "not_installed", sign: "\u2205", word: "Not installed", means: "declared, and never converged on the node" },
  { name: "drifted", sign: "\u2260", word: "Drifted", means: "not as declared" },
  { name: "unknown", sign: "?", word: "Unknown", means: "could not be looked at, or another owner may set it at boot" },
  { name: "invalid", sign: "\u2298", word: "Invalid", means: "the declaration is wrong, or impossible on the node" },
  { name: "unreachable", sign: "\u00d7", word: "Unreachable", means: "did not respond" },
];
STATUS.forEach((status, rank) => Object.assign(status, { rank }));
const STATUS_OF = Object.fromEntries(STATUS.map((status) => [status.name, status]));
STATUS_OF.accepted = { name: "accepted", sign: "\u2295", word: "Accepted", means: "another owner sets or may set it, and the inventory accepts that" };
STATUS_OF.conflict = { name: "conflict", sign: "\u2694", word: "Conflict", means: "something else sets it too" };

function badge(name, text) {
  const status = STATUS_OF[name];
  const sign = el("span", { class: `sign s-${name}`, "aria-hidden": "true" }, status.sign);
  return el("span", { class: "badge" }, sign, " ", text ?? status.word);
}

const whole = new Intl.NumberFormat("en");
const many = (count, one, more) => `${whole.format(count)} ${count === 1 ? one : more ?? `${one}s`}`;
const shown = (value) => (value === null || value === undefined || value === "" ? "\u2013" : String(value));
// n2 before n10.
const natural = new Intl.Collator("en", { numeric: true });
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function cpus(list) {
  const found = [];
  for (const part of list.split(",")) {
    const [first, last] = part.split("-").map(Number);
    for (let cpu = first; cpu <= (last ?? first); cpu++) found.push(cpu);
  }
  return list === "" ? [] : found;
}

// The other way round.
function cpuText(numbers) {
  const parts = [];
  for (const cpu of [...numbers].sort((one, other) => one - other)) {
    const last = parts[parts.length - 1];
    if (last && last[1] === cpu - 1) last[1] = cpu;
    else parts.push([cpu, cpu]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

// Who has CPUs, by the kinds that the facts of a node know.
const OWNERS = [
  { kind: "system", word: "System", means: "slices of the system that are confined to them" },
  { kind: "isolated", word: "Isolated", means: "kept free by an argument of the kernel" },
  { kind: "gpu", word: "GPU slices", means: "slices in which jobs of a GPU run" },
  { kind: "slice", word: "Other slices", means: "slices of others that have not all CPUs" },
];
const FRAMED = ["system", "isolated"]; // what of it a square shows

// The owners that have some of these CPUs, those of a kind that have the same ones together.
function ownersOf(owners, numbers) {
  const here = new Set(numbers);
  return OWNERS.flatMap(({ kind, word }) => {
    const names = new Map();
    for (const owner of owners.filter((one) => one.kind === kind)) {
      const text = cpuText(cpus(owner.cpus).filter((cpu) => here.has(cpu)));
      if (text) names.set(text, [...(names.get(text) ?? []), owner.name.replace(/\.slice$/, "")]);
    }
    return [...names].map(([text, those]) => ({ kind, word, text, names: those.join(", "), numbers: cpus(text) }));
  });
}

// --- data ---------------------------------------------------------------------------------------------------------

class Data {
  constructor(lines) {
    Object.assign(this, JSON.parse(lines[0]));
    this.alike = JSON.parse(lines[1]);
    this.lines = lines.slice(2);
    this.nodes.forEach((node, number) => {
      node.number = number;
      node.text = [node.name, ...node.groups, node.gpus, ...Object.values(node.versions), node.first]
        .join(" ")
        .toLowerCase();
    });
    this.numbers = new Map(this.nodes.map((node) => [node.name, node.number]));
    this.behind = this.nodesWithAnotherVersion();
  }

  // What only the page of a node shows is read when it is opened.
  detail(number) {
    const line = this.lines[number];
    const detail = JSON.parse(line.slice(line.indexOf("\t") + 1));
    for (const [name, place] of Object.entries(detail.alike)) detail[name] = this.alike[place];
    return detail;
  }

  // Serial numbers, UUIDs and the product of a node.
  holds(number, text) {
    const line = this.lines[number];
    return line.slice(0, line.indexOf("\t")).includes(text);
  }

  nodesWithAnotherVersion() {
    const found = new Set();
    for (const group of this.skew) {
      for (const part of group.components) {
        for (const version of part.versions.slice(1)) version.nodes.forEach((number) => found.add(number));
      }
    }
    return found;
  }
}

async function unpack(packed) {
  const letters = atob(packed.trim());
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place++) bytes[place] = letters.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Data((await new Response(stream).text()).split("\n"));
}

// --- addresses: #/fleet?status=drifted, #/node/NAME ----------------------------------------------------------------

function place() {
  const [path, query] = location.hash.slice(2).split("?");
  const [view, ...rest] = path.split("/");
  return { view: view || "fleet", name: decoded(rest.join("/")), query: new URLSearchParams(query ?? "") };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function address(view, query = {}) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

const addressOf = (node, query) => address(`node/${encodeURIComponent(node.name)}`, query);

// --- lists of nodes -------------------------------------------------------------------------------------------------

const NAMES_SHOWN = 6;

// The first few nodes by name, and a way to the others.
function nodeList(data, numbers, query) {
  const links = numbers.slice(0, NAMES_SHOWN).flatMap((number, index) => [
    index ? ", " : null,
    el("a", { href: addressOf(data.nodes[number]) }, data.nodes[number].name),
  ]);
  const rest = numbers.length - NAMES_SHOWN;
  const others = el("a", { href: address("fleet", query) }, `${whole.format(rest)} more`);
  return el("span", {}, links, rest > 0 ? [" and ", others] : null);
}

function table(caption, heads, rows, attributes = {}) {
  return el(
    "table",
    { class: "plain", ...attributes },
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, rows),
  );
}

const scrolled = (inside, label) => el("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": label }, inside);
