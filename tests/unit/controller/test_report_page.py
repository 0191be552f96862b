# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of the report: what its file has in it, and what a browser makes of it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.plugin_utils.report import as_html
from ansible_collections.gpufleet.node.plugins.plugin_utils.report.model import Host, Report, build
from ansible_collections.gpufleet.node.tests.unit.controller.browser import Browser, program
from ansible_collections.gpufleet.node.tests.unit.controller.report_fleet import GENERATED, Kind, divided, fleet
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, quickest

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.controller.report_fleet",)

SIZE_LIMIT = 2_000_000
SECONDS_FOR_A_THOUSAND = 8.0
READY_MS = 700
ANSWER_MS = 100
NODES = 200
NASTY = '<img src=x onerror="window.hacked=1">'
CLOSING = "</script><script>window.hacked=2</script>"
VIEWS = ("fleet", "findings", "versions", "cpus", "health")
ROWS = "[...document.querySelectorAll('.grid tbody tr:not(.gap)')]"
NAMES = f"{ROWS}.map((row) => row.querySelector('a').textContent)"
COUNT = "document.querySelector('.count').textContent"
IN_FOCUS = "document.activeElement.textContent"


def page(hosts: Dict[str, Host], title: str = "Audit") -> str:
    return as_html.render(build(hosts, title=title, generated=GENERATED))


def hostile(kind: Kind) -> Dict[str, Host]:
    """Two nodes of which every text is markup: their names, and whatever is text in their facts and looks."""

    def poisoned(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: poisoned(entry, name) for name, entry in value.items()}
        if isinstance(value, list):
            return [poisoned(entry, key) for entry in value]
        enumerated = (
            "status",
            "pci_address",
            "gpu",
            "nic",
            "kind",
            "level",
            "cpus",
            "unavailable",
            "causes",
            "distances",
        )
        return f"{value} {CLOSING} {NASTY}" if isinstance(value, str) and key not in enumerated else value

    look, info = poisoned(kind.found), poisoned(kind.info)
    return {NASTY: Host(look, info, [NASTY]), CLOSING: Host({"msg": CLOSING}, None, ["__proto__"])}


# --- the file ---------------------------------------------------------------------------------------------------------


def part(text: str, tag: str) -> str:
    (found,) = re.findall(rf"<{tag}>(.*?)</{tag.split()[0]}>", text, flags=re.DOTALL)
    return str(found)


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(kinds: Tuple[Kind, ...]) -> None:
    text = page(fleet(kinds, 3))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for kind, tag in (("script-src", 'script type="module"'), ("style-src", "style")):
        digest = base64.b64encode(hashlib.sha256(part(text, tag).encode()).digest()).decode()
        assert rules[kind] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert [link for link in re.findall(r"https?://[^\"'\s<]+", text) if "www.w3.org/2000/svg" not in link] == []


def test_nothing_of_a_host_is_markup_in_the_file(kinds: Tuple[Kind, ...]) -> None:
    text = page(hostile(kinds[0]), title=CLOSING)
    assert "<img" not in text
    assert text.count("<script") == 2
    assert "hacked=2</script>" not in text


def test_a_lone_surrogate_does_not_cost_the_page(kinds: Tuple[Kind, ...]) -> None:
    (packed,) = re.findall(r'id="data">([^<]*)<', page({"n\udcff": Host({"msg": "a\udcff"})}))
    assert b'"n?"' in gzip.decompress(base64.b64decode(packed))


def test_the_same_report_gives_the_same_bytes(kinds: Tuple[Kind, ...]) -> None:
    assert page(fleet(kinds, 20)) == page(fleet(kinds, 20))


def test_a_node_has_one_line_whatever_is_in_its_texts(kinds: Tuple[Kind, ...]) -> None:
    hosts = fleet(kinds, 2)
    for host in hosts.values():
        (host.info or {})["node"]["gpus"][0]["serial"] = "1\n2\t3"
    lines = as_html.data(build(hosts, title="Audit", generated=GENERATED)).split("\n")
    assert [line.count("\t") for line in lines] == [0, 0, 1, 1]


def test_of_what_is_wrong_with_a_node_the_table_has_the_worst_in_a_line(kinds: Tuple[Kind, ...]) -> None:
    def first(*rows: Dict[str, Any]) -> str:
        found = {**kinds[0].in_sync, "concerns": {"hugepages": {**kinds[0].in_sync["concerns"]["hugepages"]}}}
        found["concerns"]["hugepages"]["settings"] = list(rows)
        report = build({"n1": Host(found)}, title="Audit", generated=GENERATED)
        return str(json.loads(as_html.data(report).split("\n", maxsplit=1)[0])["nodes"][0]["first"])

    row: Dict[str, Any] = {"object": "a", "wanted": 1, "effective": 2, "boot": 1, "status": "drifted"}
    declaration = {**row, "object": "/etc/x", "setting": "declaration", "wanted": "as declared"}
    waiting = {**row, "setting": "x", "status": "pending"}
    assert first() == ""
    assert first(waiting, declaration, {**row, "setting": "y"}) == "a y is 2, wanted 1"
    # Two are no longer than one and the number of the others.
    assert first(waiting, declaration) == "/etc/x declaration is 2, wanted as declared; a x is 2, wanted 1"
    assert first({**row, "setting": "z", "effective": 1, "boot": None}) == "a z at boot is not there, wanted 1"


@dataclass(frozen=True)
class Large:
    """The page of a thousand nodes, and the seconds that it took to write."""

    text: str
    seconds: float


@pytest.fixture(scope="module")
def large(thousand: Dict[str, Host]) -> Large:
    report = build(thousand, title="Audit", generated=GENERATED)
    texts: List[str] = []
    seconds = quickest(lambda: texts.append(as_html.render(report)), attempts=1)
    return Large(texts[0], seconds)


@pytest.mark.once
def test_the_page_of_a_thousand_nodes_is_small_and_written_in_seconds(large: Large) -> None:
    assert large.seconds < SECONDS_FOR_A_THOUSAND * PATIENCE
    assert len(large.text.encode()) < SIZE_LIMIT


@pytest.mark.once
def test_a_thousand_nodes_that_differ_in_everything_are_small_enough_too(
    kinds: Tuple[Kind, ...], thousand: Dict[str, Host]
) -> None:
    hosts = {name: Host(kinds[0].found, host.info, host.groups) for name, host in thousand.items()}
    assert len(page(hosts).encode()) < SIZE_LIMIT


def _second_threads() -> List[str]:
    return [f"CPU {cpu}, System: system" for cpu in (112, 113)]


# --- in a browser -----------------------------------------------------------------------------------------------------

in_a_browser = [
    pytest.mark.once,
    pytest.mark.skipif(program() is None, reason="no Chromium here: apt-get install chromium-headless-shell"),
]


@pytest.fixture(scope="module")
def usual_hosts(kinds: Tuple[Kind, ...]) -> Dict[str, Host]:
    return fleet(kinds, NODES)


@pytest.fixture(scope="module")
def usual(usual_hosts: Dict[str, Host]) -> Report:
    """What usual.html is about."""
    return build(usual_hosts, title="Audit", generated=GENERATED)


@pytest.fixture(scope="module")
def folder(kinds: Tuple[Kind, ...], usual: Report, large: Large, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports on some fleets."""
    place = tmp_path_factory.mktemp("pages")
    dead = {f"n{number}": Host({"unreachable": True, "msg": "Connection timed out"}) for number in range(30)}
    found = {"n1": Host(kinds[0].found, kinds[0].info), "n2": Host(kinds[3].found, kinds[3].info)}
    texts = {name: page(hosts) for name, hosts in (("empty", {}), ("dead", dead), ("found", found))}
    texts["divided"] = page(divided(kinds))
    texts.update(hostile=page(hostile(kinds[0])), usual=as_html.render(usual), large=large.text)
    for name, text in texts.items():
        (place / f"{name}.html").write_text(text, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(program() or "", tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """It has nothing to complain about at the end of a test, and has asked for nothing."""
    one_browser.resize(1400, 900)
    one_browser.prefer("light")
    yield one_browser
    complaints, requests = list(one_browser.complaints), list(one_browser.requests)
    one_browser.complaints.clear()
    one_browser.requests.clear()
    one_browser.call("Page.navigate", url="about:blank")
    assert complaints == []
    assert requests == []


class TestInABrowser:
    pytestmark = in_a_browser

    @pytest.mark.parametrize("name", ["usual", "empty", "dead", "hostile", "found", "divided"])
    def test_every_view_is_shown_without_a_complaint_and_without_the_network(
        self, name: str, browser: Browser, folder: Path
    ) -> None:
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            for view in VIEWS:
                browser.open(folder / f"{name}.html", f"#/{view}")
                assert browser.value("document.querySelectorAll('main h1').length") == 1

    @pytest.mark.parametrize("name", ["usual", "found", "dead", "hostile", "divided"])
    def test_every_node_has_a_page(self, name: str, browser: Browser, folder: Path) -> None:
        browser.open(folder / f"{name}.html")
        names = browser.value(NAMES)
        assert names
        for row in range(min(len(names), 12)):
            browser.value("location.hash = '#/fleet'")
            browser.until(f"{ROWS}.length")
            browser.value(f"location.hash = {ROWS}[{row}].querySelector('a').getAttribute('href')")
            browser.until("document.querySelector('article.node')")
            assert browser.value("document.querySelector('main h1').textContent") == names[row]
            # Where a reader of screens begins to read.
            assert browser.value(IN_FOCUS) == names[row]

    def test_a_sick_port_is_listed_with_how_its_counters_have_grown(
        self, browser: Browser, folder: Path, usual: Report
    ) -> None:
        (first, *_others) = [node for node in usual.nodes if node.sick_ports]
        count = sum(len(node.sick_ports) for node in usual.nodes)
        browser.open(folder / "usual.html", "#/health")
        shown = browser.value("document.querySelector('main').textContent")
        assert f"{count} sick port" in shown
        assert "link downed: 12 (+9)" in shown
        assert "symbol error: not known" in shown
        browser.open(folder / "usual.html", f"#/node/{first.name}")
        browser.until("document.querySelector('article.node')")
        said = browser.value("document.querySelector('.troubles').textContent")
        assert "is sick: it has lost its link (polling)" in said

    def test_settings_are_counted_as_people_write(self, browser: Browser, folder: Path, usual: Report) -> None:
        browser.open(folder / "usual.html")
        differing = usual.totals.counts["drifted"]
        assert differing > 1
        assert f" {differing} drifted," in browser.value("document.querySelector('.glance p').textContent")

    def test_what_hosts_say_is_text(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "hostile.html")
        assert sorted(browser.value(NAMES)) == sorted([NASTY, CLOSING])
        for place in ("#/findings", "#/versions", "#/health", f"#/node/{NASTY}", "#/node/__proto__", "#/__proto__"):
            browser.value(f"location.hash = {place!r}")
            browser.until("document.querySelector('main h1')")
        assert browser.value("window.hacked === undefined && document.images.length === 0") is True
        assert browser.value("document.scripts.length") == 2

    def test_markup_from_a_string_is_refused_by_the_policy(self, one_browser: Browser, folder: Path) -> None:
        one_browser.open(folder / "usual.html")
        attempt = (
            "(() => { try { document.body.innerHTML = '<b></b>'; return 'done'; } catch (e) { return e.name; } })()"
        )
        assert one_browser.value(attempt) == "TypeError"
        one_browser.complaints.clear()

    def test_a_count_that_is_chosen_narrows_the_table_and_once_more_widens_it(
        self, browser: Browser, folder: Path, usual: Report
    ) -> None:
        nodes = usual.totals.nodes
        browser.open(folder / "usual.html")
        browser.click("[data-name='drifted']")
        browser.until("document.querySelector('[data-name=drifted]').getAttribute('aria-pressed') === 'true'")
        assert sorted(browser.value(NAMES)) == sorted(nodes["drifted"])
        assert browser.value(COUNT) == f"{len(nodes['drifted'])} of {NODES} nodes"
        browser.click("[data-name='unknown']")
        assert browser.value(COUNT) == f"{len(nodes['drifted'] + nodes['unknown'])} of {NODES} nodes"
        browser.click("[data-name='drifted']")
        assert sorted(browser.value(NAMES)) == sorted(nodes["unknown"])
        browser.click(".clear")
        assert browser.value(COUNT) == f"{NODES} nodes"

    def test_the_count_of_a_concern_keeps_its_nodes_out_of_sync(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "usual.html")
        count = int(browser.value("document.querySelector('[data-concern=hugepages]').textContent"))
        browser.click("[data-concern=hugepages]")
        assert browser.value(COUNT) == f"{count} of {NODES} nodes"
        assert len(browser.value(NAMES)) == count

    def test_what_narrows_the_table_is_in_the_address(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "usual.html")
        browser.click("[data-name='pending']")
        place, names = browser.value("location.hash"), browser.value(NAMES)
        assert place == "#/fleet?status=pending"
        browser.open(folder / "empty.html")
        browser.open(folder / "usual.html", place)
        assert browser.value(NAMES) == names

    def test_the_slash_searches_and_escape_ends_it(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "usual.html", "#/versions")
        browser.press("/")
        browser.until("document.activeElement.id === 'search'")
        browser.type("R05-N0")
        browser.until(f"{COUNT} === '10 of {NODES} nodes'")
        assert set(browser.value(NAMES)) == {f"gpu-r05-n0{number}" for number in range(10)}
        browser.press("Escape")
        browser.until(f"{COUNT} === '{NODES} nodes'")

    @pytest.mark.parametrize("what", ["serial", "uuid"])
    def test_a_part_is_found_by_what_is_printed_on_it(
        self, what: str, browser: Browser, folder: Path, usual_hosts: Dict[str, Host]
    ) -> None:
        gpus = {name: host.info["node"]["gpus"] for name, host in usual_hosts.items() if host.info}
        name = next(name for name in gpus if len(gpus[name]) == 8)
        browser.open(folder / "usual.html", f"#/fleet?q={gpus[name][5][what]}")
        assert browser.value(NAMES) == [name]

    def test_a_setting_is_found_on_the_nodes_where_it_is_wrong(
        self, browser: Browser, folder: Path, usual: Report
    ) -> None:
        finding = next(one for one in usual.findings if one.setting == "power_limit_watts")
        browser.open(folder / "usual.html", "#/fleet?q=power_limit")
        assert set(browser.value(NAMES)) >= set(finding.nodes)
        assert len(browser.value(NAMES)) < NODES / 4

    def test_a_finding_leads_to_its_nodes(self, browser: Browser, folder: Path, usual: Report) -> None:
        browser.open(folder / "usual.html", "#/findings")
        assert browser.value("document.querySelectorAll('tbody tr').length") == len(usual.findings)
        browser.click("tbody tr:nth-child(2) .number a")
        browser.until(f"{ROWS}.length")
        assert sorted(browser.value(NAMES)) == sorted(usual.findings[1].nodes)

    def test_findings_stand_by_weight_and_fold_what_they_are_about(
        self, browser: Browser, kinds: Tuple[Kind, ...], tmp_path: Path
    ) -> None:
        hosts = {f"h{number:03}": Host(kinds[0].found, kinds[0].info) for number in range(1, 201)}
        path = tmp_path / "new.html"
        path.write_text(page(hosts), encoding="utf-8")
        browser.open(path, "#/findings")
        shown_kinds = browser.value("[...document.querySelectorAll('.kind')].map((one) => one.dataset.kind)")
        assert shown_kinds[-1] == "not_installed"
        assert shown_kinds == [kind for kind in ("drift", "bookkeeping", "not_installed") if kind in shown_kinds]
        wheres = browser.value("[...document.querySelectorAll('.kind .names')].map((one) => one.textContent)")
        assert set(wheres) == {"h[001-200]"}
        sign = "[...document.querySelectorAll('.kind[data-kind=not_installed] .sign')].map((one) => one.className)"
        assert set(browser.value(sign)) == {"sign s-not_installed"}
        browser.open(path, "#/fleet")
        cells = browser.value("document.querySelectorAll('.grid .c-not_installed').length")
        assert cells > 0

    def test_a_version_leads_to_its_nodes(self, browser: Browser, folder: Path, usual: Report) -> None:
        part_ = next(part_ for part_ in usual.skew[0].components if part_.skewed)
        browser.open(folder / "usual.html", "#/versions")
        browser.click(".version.other > a")
        browser.until(f"{ROWS}.length")
        assert sorted(browser.value(NAMES)) == sorted(part_.versions[1].nodes)

    def test_the_first_link_skips_to_the_content_of_the_same_view(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "usual.html", "#/versions")
        browser.press("Tab")
        assert browser.value(IN_FOCUS) == "Skip to the content"
        browser.press("Enter")
        browser.until("document.activeElement.id === 'content'")
        assert browser.value("location.hash") == "#/versions"

    def test_heads_of_columns_sort(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "usual.html")
        assert browser.value("document.querySelector('.grid [aria-sort]').getAttribute('aria-sort')") == "none"
        browser.click(".grid thead th.name button")
        names = browser.value(NAMES)
        assert names == sorted(names)
        assert browser.value("document.querySelector('.grid thead th.name').getAttribute('aria-sort')") == "ascending"
        browser.click(".grid thead th.name button")
        assert browser.value(NAMES)[0] == f"gpu-r{(NODES - 1) // 16:02}-n{(NODES - 1) % 16:02}"

    def test_the_keys_go_through_all_rows_of_which_few_are_there(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "large.html", "#/fleet?sort=name.up")
        assert browser.value("document.querySelector('.grid').getAttribute('aria-rowcount')") == "1002"
        assert len(browser.value(NAMES)) < 150
        browser.value("document.querySelector('.grid tbody [tabindex=\"0\"]').focus()")
        for key, text in (("ArrowDown", "gpu-r00-n01"), ("ArrowDown", "gpu-r00-n02"), ("ArrowUp", "gpu-r00-n01")):
            browser.press(key)
            assert text in browser.value(IN_FOCUS)
        browser.press("ArrowRight")
        assert browser.value("document.activeElement.getAttribute('aria-label')").startswith("hugepages: ")
        browser.press("Home")
        browser.press("End", control=True)
        browser.press("Home")
        assert "gpu-r62-n07" in browser.value(IN_FOCUS)
        assert browser.value("document.activeElement.parentElement.getAttribute('aria-rowindex')") == "1002"
        box = browser.value(
            "(() => { const b = document.activeElement.getBoundingClientRect(); return [b.top, b.bottom] })()"
        )
        assert 0 <= box[0] < box[1] <= 900
        browser.press("Enter")
        browser.until("document.querySelector('article.node')")
        assert browser.value("document.querySelector('main h1').textContent") == "gpu-r62-n07"

    def test_links_that_are_slow_alike_are_one_row(self, browser: Browser, folder: Path, usual: Report) -> None:
        alike = {
            (device.names, device.pci_address, device.link)
            for node in usual.nodes
            for device in node.degraded
            if device.link
        }
        assert len(alike) < sum(len(node.degraded) for node in usual.nodes)
        browser.open(folder / "usual.html", "#/health")
        counts = browser.value(
            "[...document.querySelectorAll('section > .scrolled:last-child tbody tr')]"
            ".map((row) => Number(row.firstChild.textContent))"
        )
        assert len(counts) == len(alike)
        assert sum(counts) == sum(len(node.degraded) for node in usual.nodes)
        assert counts == sorted(counts, reverse=True)

    def test_only_what_some_node_has_can_be_chosen(self, browser: Browser, folder: Path) -> None:
        chips = "[...document.querySelectorAll('.chip b')].map((one) => one.textContent)"
        browser.open(folder / "usual.html")
        assert "0" not in browser.value(chips)
        # What a link has chosen can be given up again.
        browser.open(folder / "usual.html", "#/fleet?status=invalid")
        assert browser.value(chips).count("0") == 1
        browser.click(".chip[data-name=invalid]")
        assert len(browser.value(NAMES)) > 0

    def test_of_a_node_comes_first_what_is_not_in_sync(self, browser: Browser, folder: Path, usual: Report) -> None:
        node = next(node for node in usual.nodes if node.status == "drifted" and node.facts)
        browser.open(folder / "usual.html", f"#/node/{node.name}")
        titles = browser.value("[...document.querySelectorAll('article h2')].map((one) => one.textContent)")
        assert titles[:3] == ["Not in sync", "The machine", "In sync"]
        names = browser.value(
            "[...document.querySelector('table.settings').querySelectorAll('.concern .badge')]"
            ".map((one) => one.textContent.slice(2))"
        )
        assert names == [concern.name for concern in node.concerns if concern.status != "in_sync"]

    def test_on_a_phone_the_first_nodes_are_on_the_first_screen(self, browser: Browser, folder: Path) -> None:
        browser.resize(390, 844)
        browser.open(folder / "usual.html")
        assert browser.value(f"{ROWS}[3].getBoundingClientRect().bottom") <= 844

    @pytest.mark.parametrize("width", [390, 800])
    def test_a_narrow_window_says_that_the_table_goes_on_and_the_keys_go_there(
        self, width: int, browser: Browser, folder: Path
    ) -> None:
        browser.resize(width, 800)
        browser.open(folder / "usual.html")
        more = "document.querySelector('.more')"
        assert re.fullmatch("[0-9]+ more columns \u2192", browser.value(f"{more}.textContent"))
        assert browser.value(f"{more}.checkVisibility()") is True
        assert browser.value("document.querySelector('.grid').classList.contains('right')") is True
        browser.value("document.querySelector('.grid tbody [tabindex=\"0\"]').focus()")
        browser.press("End")
        browser.until(f"{more}.hidden")
        focused = "document.activeElement.getBoundingClientRect()"
        assert browser.value(f"{focused}.right") <= width
        # The head went along, and the names of the nodes are where they were.
        last = "[...document.querySelectorAll('.grid thead th')].at(-1).getBoundingClientRect()"
        assert browser.value(f"{last}.left") == browser.value(f"{focused}.left")
        name = "document.activeElement.parentElement.firstChild.getBoundingClientRect()"
        assert 0 <= browser.value(f"{name}.left") < 60
        browser.press("ArrowLeft")
        assert browser.value(f"{focused}.left") >= browser.value(f"{name}.right")
        browser.press("Home")
        browser.until(f"!{more}.hidden")
        browser.click(".more")
        browser.until("document.querySelector('.grid').classList.contains('left')")

    def test_a_wide_window_shows_all_columns_and_no_hint(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "usual.html")
        assert browser.value("document.querySelector('.more').checkVisibility()") is False
        assert browser.value("document.querySelector('.grid').className") == "grid"

    def test_the_first_paint_has_the_counts_and_no_word_about_old_browsers(
        self, browser: Browser, folder: Path
    ) -> None:
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        try:
            browser.call("Page.navigate", url=(folder / "usual.html").as_uri())
            old = "[...document.querySelectorAll('#content p')].find((p) => p.textContent.includes('before 2023'))"
            end = time.monotonic() + PATIENCE * 10
            while not browser.value(f"Boolean({old})"):
                assert time.monotonic() < end
            assert browser.value(f"getComputedStyle({old}).visibility") == "hidden"
            assert browser.value("document.getElementById('loading').checkVisibility()") is True
            # A browser in which the script does not begin says so all the same.
            while browser.value(f"getComputedStyle({old}).visibility") == "hidden":
                assert time.monotonic() < end
        finally:
            browser.call("Emulation.setScriptExecutionDisabled", value=False)

    @pytest.mark.parametrize("width", [390, 1024, 1440])
    def test_the_header_goes_from_edge_to_edge_and_the_head_of_the_table_cuts_nothing(
        self, width: int, browser: Browser, folder: Path
    ) -> None:
        browser.resize(width, 900)
        browser.open(folder / "usual.html")
        assert browser.value("document.querySelector('.top').getBoundingClientRect().right") == width
        browser.value("scrollTo(0, 1500)")
        browser.until("document.querySelector('.bar').getBoundingClientRect().top === 0")
        tops = browser.value(
            "[...document.querySelectorAll('.grid thead .sort')].map((b) => b.getBoundingClientRect().top)"
        )
        assert min(tops) >= 4
        # No row shows through the head.
        bottom = browser.value("document.querySelector('.bar').getBoundingClientRect().bottom")
        inside = f"document.elementFromPoint(60, {bottom - 2}).closest('.bar') !== null"
        assert browser.value(inside) is True

    def test_a_cell_that_shows_one_of_several_says_how_many_more_and_leads_to_them(
        self, browser: Browser, folder: Path, usual: Report
    ) -> None:
        wrong = {
            node.name: sum(row["status"] != "in_sync" for one in node.concerns for row in one.settings)
            for node in usual.nodes
        }
        browser.open(folder / "usual.html")
        shown = browser.value(
            f"Object.fromEntries({ROWS}.map((row) => [row.querySelector('a').textContent,"
            " row.querySelector('.wide .plus')?.textContent ?? '']))"
        )
        assert {name: text for name, text in shown.items() if text} == {
            name: f"+{wrong[name] - 1}" for name in shown if wrong[name] > 2
        }
        name = next(name for name, text in shown.items() if text)
        browser.value(f"{ROWS}.find((row) => row.textContent.includes({name!r})).querySelector('.plus').click()")
        browser.until("document.querySelector('article.node')")
        assert browser.value("document.querySelector('main h1').textContent") == name

    def test_nodes_concerns_and_statuses_have_one_order_everywhere(
        self, browser: Browser, folder: Path, kinds: Tuple[Kind, ...], tmp_path: Path
    ) -> None:
        names = [f"gpu{number}" for number in (1, 2, 3, 10, 11, 20)]
        hosts = {name: Host(kinds[0].found, kinds[0].info) for name in reversed(names)}
        path = tmp_path / "order.html"
        path.write_text(page(hosts), encoding="utf-8")
        browser.open(path)
        assert browser.value(NAMES) == names
        heads = browser.value("[...document.querySelectorAll('.grid thead th.cell')].map((th) => th.textContent)")
        browser.open(path, "#/node/gpu1")
        badges = browser.value("[...document.querySelectorAll('.settings .concern .badge')].map((b) => b.textContent)")
        assert [badge.split(" ")[1].replace("_", " ") for badge in badges] == heads
        browser.open(folder / "usual.html")
        chips = browser.value("[...document.querySelectorAll('[data-kind=statuses]')].map((c) => c.dataset.name)")
        sentence = browser.value("document.querySelector('.glance .muted').textContent")
        told = [word for word in chips if re.search(rf"\b{word}\b", sentence)]
        assert told == sorted(told, key=sentence.index)

    @pytest.mark.parametrize("width", [390, 1400])
    def test_a_row_is_as_high_as_those_are_counted_that_are_not_there(
        self, width: int, browser: Browser, folder: Path
    ) -> None:
        browser.resize(width, 900)
        browser.open(folder / "usual.html")
        heights = browser.value(f"{ROWS}.map((row) => row.getBoundingClientRect().height)")
        assert set(heights) == {28}

    def test_scrolling_brings_the_rows_of_the_place(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "large.html", "#/fleet?sort=name.up")
        browser.value("scrollTo(0, document.documentElement.scrollHeight)")
        browser.until(f"{NAMES}.includes('gpu-r62-n07')")
        browser.value("scrollTo(0, document.documentElement.scrollHeight / 2)")
        browser.until(f"{NAMES}.some((name) => name.startsWith('gpu-r31'))")

    def test_on_paper_there_are_all_rows(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "large.html")
        browser.prefer("dark")
        browser.value("dispatchEvent(new Event('beforeprint'))")
        browser.call("Emulation.setEmulatedMedia", media="print")
        assert len(browser.value(NAMES)) == 1000
        assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        browser.call("Emulation.setEmulatedMedia", media="")
        browser.value("dispatchEvent(new Event('afterprint'))")
        assert len(browser.value(NAMES)) < 150

    def test_back_from_a_node_are_the_same_nodes_and_its_neighbours_are_those_of_the_table(
        self, browser: Browser, folder: Path
    ) -> None:
        browser.open(folder / "usual.html")
        browser.click("[data-name='drifted']")
        names = browser.value(NAMES)
        browser.click(".grid tbody tr:nth-child(3) a")
        browser.until("document.querySelector('article.node')")
        assert browser.value("document.querySelector('[rel=prev]').textContent") == f"\u2039 {names[0]}"
        assert browser.value("document.querySelector('[rel=next]').textContent") == f"{names[2]} \u203a"
        browser.click("#back")
        browser.until(f"{ROWS}.length")
        assert browser.value(NAMES) == names

    def test_back_from_a_node_is_the_place_that_was_left(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "large.html", "#/fleet?sort=name.up")
        browser.value("scrollTo(0, 9000)")
        browser.until(f"{NAMES}.includes('gpu-r20-n00')")
        browser.value(f"location.hash = {ROWS}[30].querySelector('a').getAttribute('href')")
        browser.until("document.querySelector('article.node')")
        assert browser.value("scrollY") == 0
        browser.value("history.back()")
        browser.until("document.querySelector('.grid')")
        assert browser.value("scrollY") == 9000
        assert "gpu-r20-n00" in browser.value(NAMES)

    def test_a_node_shows_its_settings_three_ways_and_its_parts_as_a_drawing(
        self, browser: Browser, folder: Path, kinds: Tuple[Kind, ...]
    ) -> None:
        browser.open(folder / "found.html", "#/node/n1")
        rows = browser.value(
            "[...document.querySelectorAll('.settings tbody tr:not(.concern)')]"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        assert ["gpu0", "power_limit_watts", "600", "700", "700", "\u2205 Not installed"] in rows
        assert len(rows) == sum(
            len(entry["settings"]) + ("failure" in entry) for entry in kinds[0].found["concerns"].values()
        )
        assert browser.value("document.querySelectorAll('.drawing .gpu').length") == 8
        assert browser.value("document.querySelectorAll('.drawing .cpu').length") == 224
        assert browser.value("document.querySelectorAll('.drawing .numa').length") == 2

    def test_a_device_lights_up_the_cpus_of_its_interrupts(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "found.html", "#/node/n1")
        lit = "[...document.querySelectorAll('.drawing .cpu.lit title')].map((title) => title.textContent)"
        browser.value("document.querySelector('.drawing .device[tabindex=\"0\"]').focus()")
        first = browser.value("document.activeElement.getAttribute('aria-label')")
        browser.press("ArrowRight")
        second = browser.value("document.activeElement.getAttribute('aria-label')")
        assert first != second
        assert browser.value("document.querySelector('.said').textContent") == second
        names = "[...document.querySelectorAll('.drawing .device')].find((d) => d.textContent.includes('nvme0'))"
        browser.value(f"{names}.focus()")
        # Its queues go where the kernel has put them: to all CPUs of the machine.
        assert len(browser.value(lit)) == 224

    def test_a_drawing_shows_whose_the_cpus_are_and_a_line_about_them_lights_them_up(
        self, browser: Browser, folder: Path
    ) -> None:
        browser.open(folder / "divided.html", "#/node/n3")
        count = "document.querySelectorAll('.drawing > .cpu').length"
        assert browser.value(count) == 224
        assert browser.value("document.querySelectorAll('.drawing > .of-system').length") == 8
        assert browser.value("document.querySelectorAll('.drawing > .of-isolated').length") == 216
        lines = "[...document.querySelectorAll('.drawing .owner')]"
        assert browser.value(f"{lines}.map((line) => line.getAttribute('aria-label'))") == [
            "System: CPUs 0-1,112-113 (system).",
            "Isolated: CPUs 2-55,114-167 (isolcpus, nohz_full).",
            "GPU slices: CPUs 2-55 (gpu-0, gpu-1).",
            "System: CPUs 56-57,168-169 (system).",
            "Isolated: CPUs 58-111,170-223 (isolcpus, nohz_full).",
            "GPU slices: CPUs 58-111 (gpu-7).",
        ]
        lit = "[...document.querySelectorAll('.drawing .cpu.lit title')].map((title) => title.textContent)"
        browser.value(f"{lines}[0].focus()")
        assert browser.value(lit) == ["CPU 0, System: system", "CPU 1, System: system", *_second_threads()]
        browser.press("ArrowRight")
        assert len(browser.value(lit)) == 108
        # What a keyboard reaches is also there as a table.
        assert browser.value("document.querySelectorAll('details .plain')[1].querySelectorAll('tbody tr').length") == 6
        stray = "[...document.querySelectorAll('.drawing .device')].filter((d) => d.getAttribute('aria-label')"
        assert browser.value(f"{stray}.includes('may go to isolated CPUs')).length") > 0
        browser.open(folder / "divided.html", "#/node/n1")
        assert browser.value(f"{stray}.includes('may go to isolated CPUs')).length") == 0

    def test_nodes_that_divide_their_cpus_alike_are_one_picture_that_leads_to_them(
        self, browser: Browser, folder: Path
    ) -> None:
        browser.open(folder / "divided.html", "#/cpus")
        assert browser.value("document.querySelector('main h1').textContent") == "3 divisions of CPUs"
        assert browser.value("document.querySelector('[data-view=cpus] b').textContent") == "1"
        groups = "[...document.querySelectorAll('.group')]"
        assert browser.value(f"{groups}.map((group) => group.querySelector('h2').textContent)") == [
            "3 nodes",
            "1 node",
            "1 node",
        ]
        cells = f"[...{groups}[0].querySelectorAll('tbody tr:first-child td')].map((cell) => cell.textContent)"
        assert browser.value(cells)[:4] == [
            "0-55,112-167",
            "0-1,112-113 system",
            "2-55,114-167 isolcpus, nohz_full",
            "2-55 gpu-0, gpu-1",
        ]
        assert browser.value(f"{groups}[0].querySelectorAll('.strip .of-system').length") == 8
        assert browser.value("document.querySelector('.astray').textContent") == (
            "Interrupts may be delivered to isolated CPUs on n3."
        )
        browser.click(".group h2 a")
        browser.until(f"{ROWS}.length")
        assert sorted(browser.value(NAMES)) == ["n1", "n2", "n3"]
        browser.open(folder / "divided.html", "#/fleet?only=stray.0")
        assert browser.value(NAMES) == ["n3"]
        browser.open(folder / "usual.html", "#/cpus")
        assert browser.value("document.querySelector('main h1').textContent") == "No node is known to divide its CPUs"

    def test_the_theme_follows_the_system_until_it_is_chosen(self, browser: Browser, folder: Path) -> None:
        colour = "getComputedStyle(document.body).backgroundColor"
        browser.open(folder / "usual.html")
        light = browser.value(colour)
        browser.prefer("dark")
        browser.until(f"{colour} !== '{light}'")
        dark = browser.value(colour)
        browser.click("#theme")
        assert (browser.value("document.getElementById('theme').textContent"), browser.value(colour)) == (
            "Theme: light",
            light,
        )
        browser.click("#theme")
        browser.prefer("light")
        browser.until("!matchMedia('(prefers-color-scheme: dark)').matches")
        assert browser.value(colour) == dark
        browser.click("#theme")
        assert browser.value(colour) == light

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_every_status_can_be_read_without_its_colour_and_on_it(
        self, scheme: str, browser: Browser, folder: Path
    ) -> None:
        browser.prefer(scheme)
        browser.open(folder / "large.html")
        signs = browser.value("[...document.querySelectorAll('.chip .sign')].map((sign) => sign.textContent)")
        assert len(set(signs)) == 7
        colours = browser.value(
            "[...document.querySelectorAll('.chip .sign')].map((sign) => getComputedStyle(sign))"
            ".map((style) => [style.color, style.backgroundColor])"
        )
        for text, ground in colours:
            assert contrast(text, ground) >= 4.5, (text, ground)
        soft = browser.value("getComputedStyle(document.querySelector('.grid tbody .text')).color")
        sheet = browser.value("getComputedStyle(document.querySelector('.grid')).backgroundColor")
        assert contrast(soft, sheet) >= 4.5

    def test_a_reader_of_screens_has_a_name_for_everything_that_can_be_used(
        self, browser: Browser, folder: Path
    ) -> None:
        browser.open(folder / "usual.html")
        tree = browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = [(node["role"]["value"], node.get("name", {}).get("value")) for node in tree if not node["ignored"]]
        used = {"button", "link", "searchbox", "grid", "gridcell", "columnheader", "rowheader", "navigation", "group"}
        named = {role for role, name in roles if name}
        assert {"button", "link", "searchbox", "grid", "columnheader", "rowheader", "navigation"} <= named
        nameless = [role for role, name in roles if role in used - {"gridcell"} and not name]
        assert nameless == []
        assert "hugepages: in sync" in [name for role, name in roles if role == "gridcell"]

    @pytest.mark.parametrize("width", [360, 800, 1400])
    def test_nothing_is_wider_than_the_window(self, width: int, browser: Browser, folder: Path) -> None:
        browser.resize(width, 800)
        for place in [*(f"#/{view}" for view in VIEWS), "#/node/gpu-r00-n00"]:
            browser.open(folder / "usual.html", place)
            assert browser.value("document.documentElement.scrollWidth") <= width, place

    def test_a_thousand_nodes_are_there_at_once_and_answer_at_once(self, browser: Browser, folder: Path) -> None:
        browser.open(folder / "large.html")
        ready = min(self._ready(browser, folder) for _attempt in range(3))
        assert ready < READY_MS * PATIENCE
        typed = (
            "Math.max(...['g', 'gp', 'gpu-r1', 'huge', ''].map((text) => {"
            " const [box, begin] = [document.getElementById('search'), performance.now()];"
            " box.value = text; box.dispatchEvent(new Event('input'));"
            " return document.body.offsetHeight && performance.now() - begin; }))"
        )
        assert min(browser.value(typed) for _attempt in range(3)) < ANSWER_MS * PATIENCE

    @staticmethod
    def _ready(browser: Browser, folder: Path) -> float:
        """Milliseconds from the first byte to a table that can be used."""
        browser.call("Page.navigate", url="about:blank")
        browser.open(folder / "large.html")
        return float(browser.value("performance.now()"))

    def test_a_browser_that_cannot_unpack_says_so(self, browser: Browser, folder: Path) -> None:
        script = browser.call("Page.addScriptToEvaluateOnNewDocument", source="delete globalThis.DecompressionStream")[
            "identifier"
        ]
        browser.call("Page.navigate", url=(folder / "usual.html").as_uri())
        browser.until("document.body && document.body.textContent.includes('This browser cannot unpack the report')")
        assert "200 nodes on 2026-01-02" in browser.value("document.getElementById('loading').textContent")
        browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)

    def test_a_file_that_is_cut_off_says_so(self, one_browser: Browser, folder: Path, tmp_path: Path) -> None:
        text = (folder / "usual.html").read_text(encoding="utf-8")
        cut = tmp_path / "cut.html"
        cut.write_text(re.sub(r'(id="data">.{4000})[^<]*', r"\1", text), encoding="utf-8")
        one_browser.call("Page.navigate", url=cut.as_uri())
        one_browser.until("document.querySelector('[role=alert]')")
        assert "The file may be cut off" in one_browser.value("document.querySelector('[role=alert]').textContent")
        one_browser.complaints.clear()


def contrast(one: str, other: str) -> float:
    """How far two colours are from each other, as https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio has it."""

    def luminance(colour: str) -> float:
        values = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
