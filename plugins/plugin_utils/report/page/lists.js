// The other views of the whole fleet: what is wrong in how many places, versions that differ, sick GPUs and ports, and slow links.

const FINDINGS_SHOWN = 300;
const STRIP = 32; // CPUs in a row
const DEVICE_WORDS = { gpu: "GPUs", nic: "network cards", nvme: "NVMe drives" };

function valueCells(row) {
  const wrong = row.status !== "in_sync" && row.status !== "accepted";
  // Nothing at boot is what is wrong where nothing else is; elsewhere it may not matter.
  const effective = wrong && row.effective !== row.wanted;
  const boot = wrong && row.boot !== row.wanted && (row.boot !== null || !effective);
  return [
    el("td", { class: "value" }, shown(row.wanted)),
    el("td", { class: `value${effective ? " off" : ""}` }, shown(row.effective)),
    el("td", { class: `value${boot ? " off" : ""}` }, shown(row.boot)),
  ];
}

// Those that endanger jobs come first.
const KINDS = [
  { name: "drift", word: "What jobs run on", means: "The same setting with the same values is one finding, on however many nodes. The worst come first, then those of the most nodes." },
  { name: "bookkeeping", word: "Bookkeeping", means: "What the collection keeps on the nodes for itself. Jobs do not notice; the next converge writes it." },
  { name: "not_installed", word: "Not installed", means: "Declared, and never converged on these nodes: nothing has drifted there. These are the values that they have." },
];
const OBJECTS_SHOWN = 3;
const RANGES_SHOWN = 4;
const LETTERS_SHOWN = 90;

// The first few, how many more there are, and behind that all others. One more takes no more room than "+1".
function cut(names, most) {
  if (names.length <= most + 1) return names.join(", ");
  const more = el("span", { class: "plus", title: "Show the others" }, `+${whole.format(names.length - most)}`);
  return el("details", {}, el("summary", {}, names.slice(0, most).join(", "), " ", more), names.slice(most).join(", "));
}

// The ranges of nodes; every second node of a rack is a single one, and long.
function rangeList(ranges) {
  const text = ranges.join(", ");
  if (ranges.length > RANGES_SHOWN + 1 || text.length <= LETTERS_SHOWN) return cut(ranges, RANGES_SHOWN);
  return el("details", {}, el("summary", {}, `${text.slice(0, text.lastIndexOf(",", LETTERS_SHOWN))}, \u2026`), text);
}

function findingRow(data, finding, place) {
  const note = finding.note || (finding.setting.endsWith(" (many)") ? "These differ from one to the next; the page of a node has them." : "");
  const values = note ? [el("td", { colspan: "3", class: "note" }, note)] : valueCells(finding);
  const [first] = finding.nodes;
  const where = finding.nodes.length === 1 ? el("a", { href: addressOf(data.nodes[first]) }, data.nodes[first].name) : rangeList(finding.ranges);
  return el(
    "tr",
    {},
    el("td", {}, badge(finding.status)),
    el("td", { class: "number" }, el("a", { href: address("fleet", { only: `finding.${place}` }), "aria-label": `${many(finding.nodes.length, "node")}: show in the table` }, whole.format(finding.nodes.length))),
    el("td", {}, finding.concerns.map((name) => el("div", {}, name))),
    el("td", {}, finding.setting === "-" ? "" : el("span", { class: "value" }, finding.setting), el("div", { class: "muted small" }, cut(finding.objects.filter((name) => !finding.concerns.includes(name)), OBJECTS_SHOWN))),
    values,
    el("td", { class: "names" }, where),
  );
}

function findingsView(data) {
  const heads = ["Status", "Nodes", "Concern", "Setting", "Wanted", "In effect", "At boot", "Where"];
  const shownFindings = data.findings.slice(0, FINDINGS_SHOWN).map((finding, place) => ({ finding, place }));
  const parts = KINDS.map((kind) => {
    const total = data.findings.filter((finding) => finding.kind === kind.name).length;
    const rows = shownFindings.filter(({ finding }) => finding.kind === kind.name).map(({ finding, place }) => findingRow(data, finding, place));
    if (!rows.length) return null;
    const title = el("h2", {}, `${kind.word}: ${many(total, "finding")}`);
    return el("section", { class: "kind", "data-kind": kind.name }, title, el("p", { class: "muted lead" }, kind.means), scrolled(table(kind.word, heads, rows), kind.word));
  });
  const rest = data.findings.length - FINDINGS_SHOWN;
  return el(
    "section",
    {},
    el("h1", {}, data.findings.length ? many(data.findings.length, "finding") : "Nothing is wrong"),
    parts,
    rest > 0 ? el("p", { class: "muted" }, `${many(rest, "more finding")} in gpufleet-report.json.`) : null,
  );
}

function versionsView(data) {
  const groups = data.skew.map((group, place) => versionGroup(data, group, place));
  const missing = data.nodes.filter((node) => !node.versions.kernel && !node.gpus).length;
  const skewed = data.skew.flatMap((group) => group.components).filter((part) => part.versions.length > 1).length;
  const title = !groups.length ? "No versions are known" : skewed ? `${many(skewed, "version")} not the same everywhere` : "The same versions everywhere";
  return el(
    "section",
    {},
    el("h1", {}, title),
    el("p", { class: "muted lead" }, "Compared are nodes with the same GPUs. The most frequent version comes first; a job that spans nodes meets the oldest of each."),
    groups,
    missing ? el("p", { class: "muted" }, `${many(missing, "node")} did not report it.`) : null,
  );
}

function versionGroup(data, group, place) {
  const rows = group.components.map((part, second) => {
    const bar = part.versions.map((version, third) => versionLine(data, group, version, `version.${place}.${second}.${third}`, third));
    const name = el("th", { scope: "row" }, part.component, part.of ? el("div", { class: "muted small" }, part.of) : null);
    const silent = part.missing ? el("div", { class: "muted small" }, `${many(part.missing, "node")} did not report it`) : null;
    return { skewed: part.versions.length > 1, row: el("tr", {}, name, el("td", {}, bar, silent)) };
  });
  rows.sort((one, other) => other.skewed - one.skewed);
  const caption = `${group.name}, ${many(group.nodes, "node")}`;
  return el("div", { class: "group" }, el("h2", {}, caption), table(caption, ["Component", "Versions"], rows.map((entry) => entry.row), { class: "plain versions" }));
}

function versionLine(data, group, version, only, rank) {
  const meter = el("span", { class: "meter", "aria-hidden": "true" }, el("i"));
  meter.firstChild.style.width = `${Math.max(1, (100 * version.nodes.length) / group.nodes)}%`;
  return el(
    "div",
    { class: `version${rank ? " other" : ""}` },
    el("span", { class: "value" }, rank ? el("span", { class: "flag", role: "img", "aria-label": "Another version" }, "\u2262") : null, version.version),
    meter,
    el("a", { href: address("fleet", { only }) }, many(version.nodes.length, "node")),
    rank ? el("span", { class: "names" }, nodeList(data, version.nodes, { only })) : null,
  );
}

function divisionsView(data) {
  const divided = data.divisions.reduce((sum, one) => sum + one.nodes.length, 0);
  const rest = data.nodes.length - divided;
  return el(
    "section",
    {},
    el("h1", {}, divided ? `${many(data.divisions.length, "division")} of CPUs` : "No node is known to divide its CPUs"),
    el("p", { class: "muted lead" }, "Nodes that divide the same CPUs in the same way now share one picture. CPUs with a solid frame are for the system, those with a dashed frame are isolated. The interrupts are those that can be moved, of all these nodes together."),
    data.divisions.map((division, place) => divisionGroup(data, division, place)),
    divided && rest ? el("p", { class: "muted" }, `${many(rest, "node")} did not report it, or ${rest === 1 ? "divides" : "divide"} no CPUs.`) : null,
  );
}

function divisionGroup(data, division, place) {
  const kinds = OWNERS.filter(({ kind }) => division.numa.some((numa) => numa.owners.some((owner) => owner.kind === kind)));
  const rows = division.numa.map((numa) => {
    const numbers = cpus(numa.cpus);
    const owners = ownersOf(numa.owners, numbers);
    const lines = (those) => those.map((line) => el("div", {}, el("span", { class: "value" }, line.text), " ", el("span", { class: "muted small" }, line.names)));
    return el(
      "tr",
      {},
      el("th", { scope: "row", class: "number" }, shown(numa.node)),
      el("td", {}, cpuStrip(numbers, owners), el("div", { class: "value small" }, numa.cpus)),
      kinds.map(({ kind }) => el("td", {}, lines(owners.filter((owner) => owner.kind === kind)))),
      el("td", {}, lines(numa.interrupts.map((one) => ({ text: one.cpus, names: DEVICE_WORDS[one.kind] ?? one.kind })))),
    );
  });
  const caption = many(division.nodes.length, "node");
  const heads = ["NUMA", "CPUs", ...kinds.map(({ word }) => word), "Interrupts"];
  const stray = el("p", { class: "astray" }, "Interrupts may be delivered to isolated CPUs on ", nodeList(data, division.stray, { only: `stray.${place}` }), ".");
  return el(
    "div",
    { class: "group" },
    el("h2", {}, el("a", { href: address("fleet", { only: `cpus.${place}` }) }, caption)),
    el("p", { class: "names" }, rangeList(division.ranges)),
    division.stray.length ? stray : null,
    scrolled(table(`CPUs of ${caption}`, heads, rows, { class: "plain divisions" }), `CPUs of ${caption}`),
  );
}

// The CPUs of a NUMA node as squares, as in the drawing of a node.
function cpuStrip(numbers, owners) {
  const columns = Math.min(STRIP, numbers.length);
  const cells = numbers.map((cpu, place) => draw("rect", { class: cpuClass(cpu, owners), x: (place % columns) * CPU + 1, y: Math.floor(place / columns) * CPU + 1, width: CPU - 2, height: CPU - 2, rx: 1.5 }));
  const [width, height] = [columns * CPU + 1, Math.ceil(numbers.length / columns) * CPU + 1];
  return draw("svg", { class: "drawing strip", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, cells);
}

const cpuClass = (cpu, owners) => ["cpu", ...FRAMED.filter((kind) => owners.some((owner) => owner.kind === kind && owner.numbers.includes(cpu))).map((kind) => `of-${kind}`)].join(" ");

function healthView(data) {
  const sick = data.nodes.flatMap((node) => node.sick.map((gpu) => ({ node, gpu })));
  const ports = data.nodes.flatMap((node) => node.ports.map((port) => ({ node, port })));
  const slow = data.nodes.flatMap((node) => node.degraded.map((device) => ({ node, device })));
  return el(
    "section",
    {},
    el("h1", {}, sick.length ? many(sick.length, "sick GPU") : "No GPU is known to be sick"),
    sick.length ? scrolled(sickTable(sick), "Sick GPUs") : null,
    el("h2", {}, ports.length ? many(ports.length, "sick port") : "No port is known to be sick"),
    ports.length ? scrolled(sickPortTable(ports), "Sick ports") : null,
    el("h2", {}, slow.length ? `${many(slow.length, "link")} slower or narrower than the device could be` : "No link is known to be degraded"),
    slow.length ? scrolled(slowTable(data, slow), "Degraded links") : null,
  );
}

function sickTable(sick) {
  const rows = sick.map(({ node, gpu }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, el("a", { href: addressOf(node) }, node.name)),
      el("td", { class: "number" }, shown(gpu.index)),
      el("td", {}, el("ul", { class: "problems" }, gpu.problems.map((text) => el("li", {}, text)), gpu.xids.map((text) => el("li", { class: "muted" }, text)))),
      el("td", {}, shown(gpu.model), el("div", { class: "muted small value" }, gpu.pci_address)),
      el("td", { class: "value" }, shown(gpu.serial), el("div", { class: "muted small" }, shown(gpu.uuid))),
      el("td", {}, counterList(gpu.counters)),
    ),
  );
  return table("Sick GPUs", ["Node", "GPU", "Problems", "Model", "Serial number", "Counters"], rows);
}

function sickPortTable(ports) {
  const rows = ports.map(({ node, port }) => el("tr", {}, el("th", { scope: "row" }, el("a", { href: addressOf(node) }, node.name)), portCells(port)));
  return table("Sick ports", ["Node", ...PORT_HEADS], rows);
}

const PORT_HEADS = ["Port", "Problems", "State", "Rate", "Counters"];

function portCells(port) {
  const rate = port.rate_gbps === null ? "\u2013" : `${port.rate_gbps} Gb/s`;
  const best = port.best_rate_gbps !== null && port.best_rate_gbps !== port.rate_gbps ? el("div", { class: "muted small" }, `others ${port.best_rate_gbps} Gb/s`) : null;
  return [
    el("td", { class: "value" }, port.name, el("div", { class: "muted small" }, [...port.interfaces, port.pci_address].join(", "))),
    el("td", {}, el("ul", { class: "problems" }, port.problems.map((text) => el("li", {}, text)))),
    el("td", {}, shown(port.state)),
    el("td", { class: "value" }, rate, best),
    el("td", {}, errorList(port.errors)),
  ];
}

function errorList(errors) {
  const lines = errors.map(([name, total, growth]) => el("li", {}, `${name.replaceAll("_", " ")}: ${total === null ? "not known" : whole.format(total)}`, growth ? ` (+${whole.format(growth)})` : ""));
  return lines.length ? el("ul", { class: "problems" }, lines) : "";
}

function counterList(counters) {
  const found = Object.entries(counters).filter(([, count]) => count > 0);
  return found.length ? el("ul", { class: "problems" }, found.map(([name, count]) => el("li", {}, `${name.replaceAll("_", " ")}: ${whole.format(count)}`))) : "";
}

// Nodes of one hardware often have the same link slow, so that those are one row.
function slowTable(data, slow) {
  const groups = new Map();
  for (const { node, device } of slow) {
    const { causes, width, speed_gts, best_width, best_speed_gts } = device.link;
    const texts = [device.names.join(", ") || device.kind, device.pci_address, causes.join(", "), linkText(width, speed_gts), linkText(best_width, best_speed_gts)];
    const key = JSON.stringify(texts);
    groups.set(key, { texts, nodes: [...(groups.get(key)?.nodes ?? []), node.number] });
  }
  const rows = [...groups.values()]
    .sort((one, other) => other.nodes.length - one.nodes.length)
    .map(({ texts, nodes }) => el("tr", {}, el("td", { class: "number" }, whole.format(nodes.length)), texts.map((text, place) => el("td", { class: place === 0 || place === 2 ? null : "value" }, text)), el("td", { class: "names" }, nodeList(data, nodes, { flag: "degraded" }))));
  return table("Degraded links", ["Nodes", "Device", "PCI address", "What", "Is", "Could be", "Where"], rows);
}

function linkText(width, speed) {
  return [width ? `x${width}` : "", speed ? `${speed} GT/s` : ""].filter(Boolean).join(" ") || "\u2013";
}
