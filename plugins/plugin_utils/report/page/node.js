// One node: what is wrong with it, a drawing of it, what is in sync, its GPUs and versions.

function nodeView(data, name, query, order) {
  const number = data.numbers.get(name);
  if (number === undefined) {
    return el("section", {}, el("h1", {}, "No such node"), el("p", {}, `There is no node ${name} in this report. `, el("a", { href: "#/fleet" }, "Back to the fleet")));
  }
  const node = data.nodes[number];
  const detail = data.detail(number);
  return el(
    "article",
    { class: "node" },
    crumbs(node, order),
    el("h1", {}, node.name),
    headline(node, detail),
    troubles(node, detail),
    settings("Not in sync", detail.concerns.filter((concern) => concern.status !== "in_sync"), query.get("concern")),
    detail.missing === null ? drawn(detail) : el("p", { class: "missing" }, `There is no drawing of this node: ${shown(detail.missing)}.`),
    settings("In sync", detail.concerns.filter((concern) => concern.status === "in_sync"), query.get("concern")),
    detail.missing === null ? [gpuTable(detail), portTable(detail), versionList(detail)] : null,
  );
}

// The neighbours in the order of the table that the reader came from.
function crumbs(node, order) {
  const at = order.indexOf(node);
  const [before, after] = [order[at - 1], at >= 0 ? order[at + 1] : undefined];
  return el(
    "nav",
    { class: "crumbs", "aria-label": "Nodes" },
    el("a", { href: "#/fleet", id: "back" }, "\u2190 Fleet"),
    before ? el("a", { href: addressOf(before), rel: "prev" }, `\u2039 ${before.name}`) : null,
    after ? el("a", { href: addressOf(after), rel: "next" }, `${after.name} \u203a`) : null,
  );
}

function headline(node, detail) {
  const facts = [
    detail.product,
    node.gpus,
    detail.distribution,
    detail.cpus ? many(detail.cpus, "CPU") : "",
    detail.memory_mib ? gib(detail.memory_mib) : "",
    detail.serial ? `serial number ${detail.serial}` : "",
    node.groups.length ? `groups ${node.groups.join(", ")}` : "",
  ];
  return el("p", { class: "headline" }, badge(node.status), el("span", { class: "muted" }, facts.filter(Boolean).join(" \u00b7 ")));
}

function troubles(node, detail) {
  const lines = [
    detail.message,
    ...detail.reasons.map((reason) => `Needs a reboot: ${reason}`),
    ...node.sick.map((gpu) => `GPU ${shown(gpu.index)} (${gpu.pci_address}) is sick: ${[...gpu.problems, ...gpu.xids].join("; ")}`),
    ...node.ports.map((port) => `Port ${[port.name, ...port.interfaces].join(", ")} is sick: ${port.problems.join("; ")}`),
    ...node.degraded.map((device) => `${device.names.join(", ") || device.pci_address}: link ${device.link.causes.join(" and ")}, ${linkText(device.link.width, device.link.speed_gts)} instead of ${linkText(device.link.best_width, device.link.best_speed_gts)}`),
  ].filter(Boolean);
  return lines.length ? el("ul", { class: "troubles" }, lines.map((line) => el("li", {}, line))) : null;
}

function drawn(detail) {
  const drawing = new Drawing(detail);
  const rows = drawing.devices.map(({ device, text }) => el("tr", {}, el("th", { scope: "row", class: "value" }, device.pci_address), el("td", {}, device.node === null ? "\u2013" : device.node), el("td", {}, text), el("td", { class: "value" }, deliveries(detail, device))));
  const owners = drawing.owners.map((owner) => el("tr", {}, el("th", { scope: "row" }, owner.word), el("td", {}, shown(owner.node?.node)), el("td", { class: "value" }, owner.text), el("td", { class: "value" }, owner.names)));
  return el(
    "section",
    {},
    el("h2", {}, "The machine"),
    drawing.element,
    el("details", {}, el("summary", {}, "The same as a table"), scrolled(table("Devices", ["PCI address", "NUMA", "Device", "CPUs of its interrupts"], rows), "Devices"), owners.length ? scrolled(table("Whose the CPUs are", ["Whose", "NUMA", "CPUs", "By"], owners), "Whose the CPUs are") : null),
  );
}

function deliveries(detail, device) {
  const those = detail.interrupts[device.pci_address] ?? [];
  return those.map((one) => `${one.cpus} (${one.movable + one.fixed})`).join(", ");
}

function settings(title, concerns, wanted) {
  if (!concerns.length) return null;
  const bodies = concerns.map((concern) => concernBody(concern, concern.name === wanted));
  const heads = ["Object", "Setting", "Wanted", "In effect", "At boot", "Status"];
  const head = el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text))));
  return el("section", {}, el("h2", {}, title), scrolled(el("table", { class: "plain settings" }, el("caption", {}, `${title}: settings by concern, as wanted, in effect and at boot`), head, bodies), title));
}

function concernBody(concern, wanted) {
  const about = [
    `${many(concern.settings_in_sync, "setting")} in sync`,
    concern.needs.length ? `waits for ${concern.needs.join(", ")}` : "",
    concern.unmanaged_total ? `${whole.format(concern.unmanaged_total)} that cannot be set` : "",
  ];
  const head = el("th", { scope: "rowgroup", colspan: "6" }, badge(concern.status, concern.name), el("span", { class: "muted" }, ` ${about.filter(Boolean).join(" \u00b7 ")}`));
  const rows = concern.settings.map((row) =>
    el(
      "tr",
      {},
      el("td", { class: "value" }, row.object),
      el("td", { class: "value" }, row.setting),
      row.note ? el("td", { colspan: "3", class: "note" }, row.note) : valueCells(row),
      el("td", {}, badge(row.status)),
    ),
  );
  const rest = concern.omitted ? el("tr", {}, el("td", { colspan: "6", class: "muted" }, `${many(concern.omitted, "more setting")} in gpufleet-report.json`)) : null;
  const body = el("tbody", { class: wanted ? "wanted" : null }, el("tr", { class: "concern" }, head), rows, rest);
  return body;
}

function gpuTable(detail) {
  if (!detail.gpus.length) return null;
  const yes = (value) => (value === null ? "\u2013" : value ? "on" : "off");
  const rows = detail.gpus.map((gpu) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "number" }, shown(gpu.index)),
      el("td", {}, gpu.healthy === null ? badge("unknown") : gpu.healthy ? badge("in_sync", "Healthy") : badge("drifted", "Sick")),
      el("td", { class: "whole" }, shown(gpu.model)),
      el("td", { class: "value whole" }, gpu.pci_address),
      el("td", { class: "value whole" }, shown(gpu.serial)),
      el("td", { class: "value whole" }, shown(gpu.uuid)),
      el("td", {}, yes(gpu.persistence)),
      el("td", {}, yes(gpu.ecc)),
      el("td", {}, yes(gpu.mig)),
      el("td", { class: "number" }, whole.format(gpu.processes)),
      el("td", {}, counterList(gpu.counters)),
    ),
  );
  const heads = ["GPU", "Health", "Model", "PCI address", "Serial number", "UUID", "Persistence", "ECC", "MIG", "Processes", "Counters"];
  return el("section", {}, el("h2", {}, "GPUs"), scrolled(table("GPUs", heads, rows), "GPUs"));
}

function portTable(detail) {
  if (!detail.ports.length) return null;
  const health = (port) => (port.healthy === null ? badge("unknown") : port.healthy ? badge("in_sync", "Healthy") : badge("drifted", "Sick"));
  const rows = detail.ports.map((port) => el("tr", {}, el("td", {}, health(port)), portCells(port)));
  return el("section", {}, el("h2", {}, "Ports"), scrolled(table("Ports", ["Health", ...PORT_HEADS], rows), "Ports"));
}

function versionList(detail) {
  const rows = detail.versions.map((entry) => el("tr", {}, el("th", { scope: "row" }, entry.component), el("td", { class: "muted" }, entry.of), el("td", { class: "value" }, entry.version)));
  return el("section", {}, el("h2", {}, "Versions"), table("Versions", ["Component", "Of", "Version"], rows));
}
