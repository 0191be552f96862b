// Which view is shown, the keys, the theme, the start.

const VIEWS = [
  { view: "fleet", word: "Fleet", count: () => null },
  { view: "findings", word: "Findings", count: (data) => data.findings.length },
  { view: "versions", word: "Versions", count: (data) => data.skew.flatMap((group) => group.components).filter((part) => part.versions.length > 1).length },
  { view: "cpus", word: "CPUs", count: (data) => data.divisions.reduce((sum, one) => sum + one.stray.length, 0) },
  { view: "health", word: "Health", count: (data) => data.nodes.reduce((sum, node) => sum + node.sick.length + node.ports.length + node.degraded.length, 0) },
];
const THEMES = ["auto", "light", "dark"];
const OLD_HOURS = 48;
const MOMENT = { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };

class Page {
  constructor(data) {
    this.data = data;
    this.content = document.getElementById("content");
    this.fleet = null;
    this.tabs();
    this.moment();
    // The part of the address behind # says which view is shown.
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      this.content.focus();
    });
    addEventListener("hashchange", () => this.show(true));
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("scroll", () => this.shownFleet()?.scrolled(), { passive: true });
    addEventListener("resize", () => this.shownFleet()?.resized());
    addEventListener("beforeprint", () => this.shownFleet()?.printing(true));
    addEventListener("afterprint", () => this.shownFleet()?.printing(false));
  }

  tabs() {
    const links = VIEWS.map((entry) => {
      const count = entry.count(this.data);
      return el("a", { href: address(entry.view), "data-view": entry.view }, entry.word, count ? el("b", {}, whole.format(count)) : null);
    });
    document.getElementById("views").append(...links);
  }

  moment() {
    const then = new Date(this.data.generated);
    const hours = (Date.now() - then) / 3600000;
    const text = then.toLocaleString("en-GB", MOMENT);
    const age = hours > OLD_HOURS ? `, ${many(Math.floor(hours / 24), "day")} old` : "";
    document.getElementById("moment").append("Looked at ", el("time", { datetime: this.data.generated, class: age ? "old" : null }, text, age));
  }

  shownFleet() {
    return this.view === "fleet" ? this.fleet : null;
  }

  show(moved) {
    if (this.view === "fleet") this.left = { address: address("fleet", this.fleet.filter.query), y: scrollY, active: this.fleet.grid.active };
    const { view, name, query } = place();
    const views = {
      findings: () => findingsView(this.data),
      versions: () => versionsView(this.data),
      cpus: () => divisionsView(this.data),
      health: () => healthView(this.data),
      node: () => nodeView(this.data, name, query, this.fleet?.order ?? this.data.nodes),
    };
    this.view = Object.hasOwn(views, view) ? view : "fleet";
    if (this.view === "fleet") this.fleet = new Fleet(this.data, query);
    this.content.replaceChildren(this.view === "fleet" ? this.fleet.element : views[view]());
    this.fleet && this.view === "fleet" && this.fleet.show();
    for (const link of document.querySelectorAll("#views a")) {
      link.dataset.view === this.view ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    }
    // Back to the fleet means to the same nodes in the same order.
    const back = document.getElementById("back");
    if (back && this.fleet) back.href = address("fleet", this.fleet.filter.query);
    document.title = [this.view === "node" ? name : VIEWS.find((entry) => entry.view === this.view).word, this.data.title].join(" \u2013 ");
    if (moved) this.arrive();
  }

  arrive() {
    // Who comes back to the same table goes on where he left it.
    const back = this.view === "fleet" && this.left?.address === location.hash;
    scrollTo(0, back ? this.left.y : 0);
    if (back) this.fleet.grid.active = this.left.active;
    this.shownFleet()?.grid.render(true);
    const heading = this.content.querySelector("h1");
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
    this.content.querySelector("tbody.wanted")?.scrollIntoView({ block: "center" });
  }

  key(event) {
    const typing = event.target instanceof HTMLInputElement;
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      if (this.view !== "fleet") {
        history.pushState(null, "", address("fleet", this.fleet?.filter.query));
        this.show(false);
      }
      this.fleet.search.focus();
      this.fleet.search.select();
    } else if (event.key === "Escape" && typing) {
      this.fleet.reset();
    }
  }
}

// What is kept in the browser may be forbidden, and the page works without.
function kept(value) {
  try {
    if (value !== undefined) localStorage.setItem("gpufleet-theme", value);
    return localStorage.getItem("gpufleet-theme");
  } catch {
    return value ?? null;
  }
}

// The choice of the reader, or that of the system as long as there is none.
function theme() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  let choice = THEMES.includes(kept()) ? kept() : "auto";
  const set = () => {
    const name = system.matches ? "dark" : "light";
    document.documentElement.dataset.theme = choice === "auto" ? name : choice;
    button.textContent = `Theme: ${choice}`;
  };
  set();
  system.addEventListener("change", set);
  button.addEventListener("click", () => {
    choice = THEMES[(THEMES.indexOf(choice) + 1) % THEMES.length];
    kept(choice);
    set();
  });
}

async function start() {
  theme();
  // What follows says more than that.
  document.querySelector(".late").remove();
  const loading = document.getElementById("loading");
  if (typeof DecompressionStream === "undefined") {
    loading.after(el("p", {}, "This browser cannot unpack the report. Chrome and Edge can from 111, Firefox from 113, Safari from 16.4. The same data are in gpufleet-report.json."));
    return;
  }
  try {
    const page = new Page(await unpack(document.getElementById("data").textContent));
    page.show(false);
  } catch (error) {
    loading.after(el("p", { role: "alert" }, `The report could not be read: ${error.message}. The file may be cut off; the same data are in gpufleet-report.json.`));
    throw error;
  }
  document.documentElement.dataset.ready = "";
}

start();
