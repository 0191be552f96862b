// A node as a drawing: NUMA nodes with their CPUs, the GPUs with their instances, cards and drives beside them.
// A device that is pointed at, or has the focus, lights up the CPUs that its interrupts may be delivered to, and a line
// about who has CPUs lights up those.

const WIDE = 1240;
const EDGE = 16;
const CARD = { width: 136, height: 96, gap: 8 };
const CHIP = { width: 136, height: 32, gap: 8 };
const CPU = 11;
const SLICES = 8; // of the memory of a GPU that can be divided; smaller ones have half of them

const clip = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}\u2026` : text);
const gib = (mib) => `${whole.format(Math.round(mib / 1024))} GiB`;
const label = (x, y, text, kind = "") => draw("text", { x, y, class: kind }, text);

class Drawing {
  constructor(detail) {
    this.detail = detail;
    this.cells = new Map();
    this.devices = [];
    this.stops = []; // what the arrow keys go to
    this.owners = []; // by NUMA node
    this.height = 0;
    this.parts = [];
    this.build();
    this.element = this.finish();
  }

  build() {
    const { numa, devices } = this.detail;
    const withCpus = numa.filter((node) => node.cpus || devices.some((device) => device.node === node.node));
    const boxes = withCpus.map((node) => ({ node, devices: devices.filter((device) => device.node === node.node) }));
    const lost = devices.filter((device) => !boxes.some((box) => box.devices.includes(device)));
    if (lost.length || !boxes.length) boxes.push({ node: null, devices: lost });
    const columns = boxes.length > 1 ? 2 : 1;
    const width = columns > 1 ? (WIDE - 40) / 2 : WIDE;
    for (let first = 0; first < boxes.length; first += columns) {
      const top = this.height;
      const heights = boxes.slice(first, first + columns).map((box, place) => this.box(box, place * (width + 40), top, width));
      boxes.slice(first, first + columns).forEach((_box, place) => this.frame(place * (width + 40), top, width, Math.max(...heights)));
      if (columns > 1 && heights.length > 1) this.between(boxes[first], boxes[first + 1], width, top);
      this.height = top + Math.max(...heights) + 20;
    }
    this.band(numa.filter((node) => !withCpus.includes(node)));
  }

  frame(x, y, width, height) {
    this.parts.unshift(draw("rect", { class: "numa", x, y, width, height, rx: 6 }));
  }

  between(one, other, width, y) {
    const distance = one.node?.distances[this.detail.numa.indexOf(other.node)];
    if (distance === undefined) return;
    this.parts.push(draw("path", { class: "wire", d: `M${width} ${y + 40}h40` }), draw("text", { x: width + 20, y: y + 32, class: "small middle" }, distance));
  }

  box({ node, devices }, x, top, width) {
    let y = top + 24;
    this.parts.push(label(x + EDGE, y, node ? `NUMA ${node.node}` : this.detail.numa.length ? "No NUMA node is told" : "No NUMA nodes", "head"));
    if (node) {
      const pools = node.hugepages.map(([size, pages, free]) => `${size >= 1048576 ? `${size / 1048576} GiB` : `${size / 1024} MiB`} pages: ${whole.format(pages)}, ${whole.format(free)} free`);
      const text = [node.cpus ? `CPUs ${clip(node.cpus, 46)}` : "no CPUs", node.memory_mib ? gib(node.memory_mib) : ""].filter(Boolean).join(" \u00b7 ");
      this.parts.push(label(x + EDGE + 76, y, text, "small"));
      if (pools.length) this.parts.push(label(x + EDGE, (y += 17), clip(pools.join(" \u00b7 "), Math.floor(width / 6.6)), "small"));
    }
    y = this.cpuCells(this.cpusOf(node), x + EDGE, y + 12, width - 2 * EDGE);
    y = this.ownerLines(node, x + EDGE, y, width - 2 * EDGE);
    const gpus = devices.filter((device) => device.kind === "gpu");
    y = this.stacks(gpus, devices, x + EDGE, y + 12, width - 2 * EDGE);
    const near = new Set(gpus.flatMap((gpu) => this.cardsAt(gpu, devices)));
    const others = devices.filter((device) => device.kind !== "gpu" && !near.has(device));
    return this.chips(others, x + EDGE, y, width - 2 * EDGE) - top + 8;
  }

  // Without NUMA nodes there is one memory, and all CPUs are beside it.
  cpusOf(node) {
    if (node) return cpus(node.cpus);
    return this.detail.numa.length ? [] : Array.from({ length: this.detail.cpus ?? 0 }, (_empty, cpu) => cpu);
  }

  cpuCells(numbers, x, y, width) {
    const rows = Math.ceil(numbers.length / Math.floor(width / CPU));
    const columns = Math.ceil(numbers.length / rows);
    const step = Math.min(2 * CPU, width / columns);
    numbers.forEach((cpu, place) => {
      const cell = draw("rect", { class: "cpu", x: x + (place % columns) * step, y: y + Math.floor(place / columns) * CPU, width: step - 2, height: CPU - 2, rx: 1.5 });
      this.cells.set(cpu, cell);
      this.parts.push(cell);
    });
    return y + rows * CPU;
  }

  ownerLines(node, x, top, width) {
    let y = top;
    for (const owner of ownersOf(this.detail.cpu_owners, this.cpusOf(node))) {
      y += 16;
      const text = `${owner.word}: CPUs ${owner.text} (${owner.names}).`;
      const inside = [
        draw("rect", { class: `cpu of-${owner.kind}`, x: 1, y: -8, width: CPU - 2, height: CPU - 2, rx: 1.5 }),
        label(18, 0, owner.word, "strong"),
        label(92, 0, clip(`${owner.text} (${owner.names})`, Math.floor((width - 92) / 6)), "small"),
      ];
      this.owners.push({ node, ...owner });
      this.stop("owner", x, y, inside, text, () => owner.numbers);
    }
    return y + (y > top ? 4 : 0);
  }

  // What is pointed at, or has the focus, and the CPUs that it lights up then.
  stop(kind, x, y, inside, text, numbers) {
    const group = draw("g", { class: kind, transform: `translate(${x} ${y})`, tabindex: this.stops.length ? "-1" : "0", role: "img", "aria-label": text }, inside);
    this.stops.push({ group, text, numbers });
    this.parts.push(group);
  }

  // The network cards that share a switch with a GPU and with no GPU before it.
  cardsAt(gpu, devices) {
    const firstGpu = new Map();
    for (const [address, card, level] of this.detail.near) {
      if ((level === "PIX" || level === "PXB") && !firstGpu.has(card)) firstGpu.set(card, address);
    }
    return devices.filter((device) => device.kind === "nic" && firstGpu.get(device.pci_address) === gpu.pci_address);
  }

  stacks(gpus, devices, x, y, width) {
    const columns = Math.max(1, Math.floor((width + CARD.gap) / (CARD.width + CARD.gap)));
    for (let first = 0; first < gpus.length; first += columns) {
      let lowest = y;
      gpus.slice(first, first + columns).forEach((gpu, place) => {
        const left = x + place * (CARD.width + CARD.gap);
        this.gpu(gpu, left, y);
        let below = y + CARD.height;
        for (const card of this.cardsAt(gpu, devices)) {
          this.parts.push(draw("path", { class: "wire", d: `M${left + 20} ${below}v12` }), label(left + 26, below + 10, "same PCIe switch", "tiny"));
          this.chip(card, left, below + 12);
          below += 12 + CHIP.height;
        }
        lowest = Math.max(lowest, below);
      });
      y = lowest + 12;
    }
    return y;
  }

  chips(devices, x, y, width) {
    const columns = Math.max(1, Math.floor((width + CHIP.gap) / (CHIP.width + CHIP.gap)));
    devices.forEach((device, place) => {
      this.chip(device, x + (place % columns) * (CHIP.width + CHIP.gap), y + Math.floor(place / columns) * (CHIP.height + CHIP.gap));
    });
    return y + Math.ceil(devices.length / columns) * (CHIP.height + CHIP.gap);
  }

  gpu(device, x, y) {
    const gpu = this.detail.gpus.find((one) => one.pci_address === device.pci_address) ?? {};
    const bad = gpu.healthy === false;
    const name = `GPU ${shown(gpu.index)}`;
    const state = [gpu.temperature_celsius === null ? "" : `${gpu.temperature_celsius} \u00b0C`, gpu.draw_watts === null ? "" : `${Math.round(gpu.draw_watts)}/${Math.round(gpu.limit_watts ?? 0)} W`].filter(Boolean).join(" \u00b7 ");
    const inside = [
      draw("rect", { class: `card gpu${bad ? " bad" : ""}`, width: CARD.width, height: CARD.height, rx: 4 }),
      label(8, 18, name, "strong"),
      bad ? draw("text", { x: CARD.width - 8, y: 18, class: "end warn" }, "! sick") : draw("text", { x: CARD.width - 8, y: 18, class: "end small" }, this.linkOf(device)),
      label(8, 34, clip((gpu.model ?? "GPU").replace(/^NVIDIA /, ""), 21), "small"),
      label(8, 48, device.pci_address, "mono"),
      ...this.memory(gpu),
      label(8, 88, gpu.model ? state : "no word from the driver", "small"),
    ];
    this.device(device, x, y, inside, `${name}, ${shown(gpu.model)}${bad ? `, sick: ${gpu.problems.join(", ")}` : ""}`);
  }

  // The memory of a GPU: its instances where it is divided, else what is in use.
  memory(gpu) {
    const [x, y, width, height] = [8, 56, CARD.width - 16, 16];
    const outline = draw("rect", { class: "slot", x, y, width, height, rx: 2 });
    if (!gpu.mig) {
      const used = gpu.memory_mib ? Math.max(0, Math.min(1, (gpu.used_mib ?? 0) / gpu.memory_mib)) : 0;
      const text = gpu.memory_mib ? `${gib(gpu.used_mib ?? 0)} of ${gib(gpu.memory_mib)}` : "";
      return [outline, draw("rect", { class: "used", x, y, width: width * used, height, rx: 2 }), label(x + 5, y + 12, text, "tiny")];
    }
    const end = Math.max(0, ...gpu.instances.map((one) => one.start + one.size));
    const slices = end > 0 && end <= SLICES / 2 && gpu.model?.includes("A30") ? SLICES / 2 : SLICES;
    const unit = width / slices;
    const instances = gpu.instances.flatMap((one) => {
      const name = one.profile ?? "?";
      const room = Math.floor((one.size * unit - 3) / 6.4);
      const text = name.length <= room ? name : name.split(".")[0].slice(0, room);
      return [
        draw("rect", { class: `instance${one.compute_instances ? "" : " idle"}`, x: x + one.start * unit + 0.5, y, width: one.size * unit - 1, height, rx: 2 }, draw("title", {}, name)),
        label(x + one.start * unit + 3, y + 12, text, "tiny on"),
      ];
    });
    return [outline, ...instances, gpu.instances.length ? null : label(x + 5, y + 12, "MIG, not divided", "tiny")];
  }

  chip(device, x, y) {
    const name = device.names[device.names.length - 1] ?? device.kind;
    const slow = device.link?.degraded;
    const second = device.kind === "nvme" && device.size_bytes ? `${(device.size_bytes / 1e12).toFixed(1)} TB x${device.link?.width ?? "?"}` : this.linkOf(device);
    const inside = [
      draw("rect", { class: `card ${device.kind}${slow ? " bad" : ""}`, width: CHIP.width, height: CHIP.height, rx: 4 }),
      label(8, 14, clip(name, 17), "strong"),
      draw("text", { x: CHIP.width - 8, y: 26, class: "end tiny" }, { nic: "NIC", nvme: "NVMe" }[device.kind] ?? device.kind),
      label(8, 26, `${slow ? "! " : ""}${clip(second, 18)}`, slow ? "tiny warn" : "tiny"),
    ];
    this.device(device, x, y, inside, `${device.kind === "nic" ? "Network card" : "NVMe drive"} ${device.names.join(", ")}`);
  }

  linkOf(device) {
    return device.link ? linkText(device.link.width, device.link.speed_gts) : "";
  }

  device(device, x, y, inside, name) {
    const text = `${name}, ${device.pci_address}. ${this.linkSentence(device)} ${this.interruptSentence(device)}`;
    this.devices.push({ device, text });
    this.stop("device", x, y, inside, text, () => (this.detail.interrupts[device.pci_address] ?? []).flatMap((one) => cpus(one.cpus)));
  }

  linkSentence(device) {
    const link = device.link;
    if (!link) return "";
    const best = link.degraded ? `, could be ${linkText(link.best_width, link.best_speed_gts)}` : "";
    return `PCI Express ${linkText(link.width, link.speed_gts)}${best}.`;
  }

  interruptSentence(device) {
    const deliveries = this.detail.interrupts[device.pci_address] ?? [];
    const movable = deliveries.reduce((sum, one) => sum + one.movable, 0);
    const fixed = deliveries.reduce((sum, one) => sum + one.fixed, 0);
    const away = this.detail.elsewhere[device.pci_address];
    if (!movable && !fixed) return "No interrupts.";
    const isolated = this.isolated();
    const astray = deliveries.reduce((sum, one) => sum + (cpus(one.cpus).some((cpu) => isolated.has(cpu)) ? one.movable : 0), 0);
    const stray = astray ? `, ${whole.format(astray)} may go to isolated CPUs` : "";
    return `${many(movable + fixed, "interrupt")}${fixed ? `, ${whole.format(fixed)} of them placed by the kernel` : ""}${away ? `, ${whole.format(away)} not where declared` : ""}${stray}.`;
  }

  isolated() {
    this.kept ??= new Set(this.detail.cpu_owners.filter((owner) => owner.kind === "isolated").flatMap((owner) => cpus(owner.cpus)));
    return this.kept;
  }

  // NVLink, and NUMA nodes that are memory alone.
  band(memoryOnly) {
    const linked = this.detail.gpus.filter((gpu) => gpu.nvlinks);
    const texts = [];
    if (linked.length) {
      const down = linked.filter((gpu) => gpu.nvlinks_inactive);
      const fabric = [...new Set(linked.map((gpu) => gpu.fabric).filter(Boolean))].join(", ");
      texts.push(`NVLink: ${linked[0].nvlinks} links on each of ${linked.length} GPUs${fabric ? `, fabric ${fabric}` : ""}${down.length ? `; down: ${down.map((gpu) => `${gpu.nvlinks_inactive} of GPU ${shown(gpu.index)}`).join(", ")}` : ", all up"}`);
    }
    const memory = memoryOnly.filter((node) => node.memory_mib);
    if (memory.length) texts.push(`NUMA nodes of memory alone: ${memory.map((node) => `${node.node} (${gib(node.memory_mib)})`).join(", ")}`);
    for (const text of texts) {
      this.parts.push(draw("rect", { class: "band", x: 0, y: this.height, width: WIDE, height: 28, rx: 6 }), label(EDGE, this.height + 18, clip(text, 190), "small"));
      this.height += 36;
    }
  }

  finish() {
    this.shade();
    const image = draw("svg", { class: "drawing", viewBox: `-1 -1 ${WIDE + 2} ${this.height + 2}`, role: "group", "aria-label": "The node: NUMA nodes with CPUs, GPUs, network cards and drives. The arrow keys go from device to device." }, this.parts);
    this.said = el("p", { class: "said", role: "status", "aria-live": "polite" }, this.hint());
    for (const entry of this.stops) {
      entry.group.addEventListener("pointerenter", () => this.light(entry));
      entry.group.addEventListener("pointerleave", () => this.light(null));
      entry.group.addEventListener("focus", () => this.light(entry));
      entry.group.addEventListener("blur", () => this.light(null));
    }
    image.addEventListener("keydown", (event) => this.key(event));
    return el("div", {}, scrolled(image, "Drawing of the node"), this.said);
  }

  hint() {
    const frames = this.owners.some((owner) => FRAMED.includes(owner.kind)) ? " Those with a solid frame are for the system, those with a dashed frame are isolated." : "";
    return this.cells.size ? `Small squares are CPUs, the stronger the more interrupts may be delivered there.${frames} Point at a device to see where its own go.` : "";
  }

  // An interrupt that may go to many CPUs counts for little on each.
  shade() {
    const load = new Map();
    for (const delivery of Object.values(this.detail.interrupts).flat()) {
      const numbers = cpus(delivery.cpus);
      for (const cpu of numbers) load.set(cpu, (load.get(cpu) ?? 0) + (delivery.movable + delivery.fixed) / numbers.length);
    }
    const most = Math.max(1, ...load.values());
    const owners = ownersOf(this.detail.cpu_owners, this.cells.keys());
    for (const [cpu, cell] of this.cells) {
      const those = owners.filter((owner) => owner.numbers.includes(cpu));
      cell.classList.add(...those.map((owner) => `of-${owner.kind}`));
      cell.classList.add(`load${Math.min(4, Math.ceil((4 * (load.get(cpu) ?? 0)) / most))}`);
      cell.append(draw("title", {}, [`CPU ${cpu}`, ...those.map((owner) => `${owner.word}: ${owner.names}`)].join(", ")));
    }
  }

  light(entry) {
    const numbers = new Set(entry ? entry.numbers() : []);
    for (const [cpu, cell] of this.cells) cell.classList.toggle("lit", numbers.has(cpu));
    this.said.textContent = entry ? entry.text : this.hint();
  }

  key(event) {
    const at = this.stops.findIndex((entry) => entry.group === document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (at < 0 || !step) return;
    event.preventDefault();
    const next = this.stops[(at + step + this.stops.length) % this.stops.length];
    this.stops[at].group.setAttribute("tabindex", "-1");
    next.group.setAttribute("tabindex", "0");
    next.group.focus();
  }
}
