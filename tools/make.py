# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``make`` runs: every check of the collection, the demonstration, the benchmark and the build.

python3 tools/make.py test
python3 tools/make.py unit --python 3.9 -- -k hugepages
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Dict, List, Sequence

import costs
import engine
import imports
import machine
import needs
import quick
import scenarios
import tarball
from needs import CACHE, COLLECTIONS, HOME, ROOT
from runner import Job, Stage, StageFailed, complain, run_stages
from scenarios import Scenario
from scratch import remove, scratch

STARTED = time.time()
LOGS = CACHE / "logs"
BUILD = ROOT / "build"
NODE_PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
# Those on which `make test` runs the unit tests. For those between them there are the sanity tests, which compile and
# import everything, and the scenarios in containers, whose controller has the oldest ansible-core.
TESTED_PYTHONS = ("3.9", "3.13")
# Which Pythons the controller of the oldest and of the newest ansible-core may run on, the preferred one first.
CONTROLLERS = {"floor": ("3.11", "3.12", "3.13"), "newest": ("3.13", "3.12", "3.14")}
# Pythons that ansible-core's own package refuses, although its module_utils run there.
BELOW_CONTROLLER = ("3.9", "3.10")
COLLECTION = "gpufleet.node"
SIZE_LIMIT = 2_000_000
# Those on virtual machines: a stage each, for they do not meet.
VM_SCENARIOS = ("vm-trixie", "vm-bookworm")
# Those that `make molecule` runs only by name: what `make test` has on another release.
BY_NAME = ("drain-bookworm",)
COMPILER = ("cc", needs.C_HEADERS)
PYTEST_END = r"^(=* ?)?\d+ (passed|failed|error|skipped)"
FAILURES_SHOWN = 20
# A line of ansible-test that begins a step, whose costs are listed.
SANITY_STEPS = r"^Running sanity test '?\"?(?P<step>[\w-]+)"


# --- environments -----------------------------------------------------------------------------------------------------


def controller(job: Job, which: str) -> Path:
    """The environment with the ``floor`` or the ``newest`` ansible-core and what runs on it."""
    names = [f"core-{which}", "molecule", "nvml", *(["lint"] if which == "newest" else [])]
    interpreter = needs.python(job, *CONTROLLERS[which])
    return needs.venv(job, which, interpreter=interpreter, requirements=needs.requirements(*names))


def player(job: Job) -> Path:
    """The environment of who only wants to see it: ansible-core for a Python that is there, the newest if possible."""
    known = ((which, version) for which in ("newest", "floor") for version in CONTROLLERS[which])
    which, versions = next(
        ((which, (version,)) for which, version in known if needs.known_python(version)),
        ("newest", CONTROLLERS["newest"]),
    )
    # It is used for minutes, once.
    interpreter = needs.python(job, *versions, optimized=False)
    return needs.venv(job, "player", interpreter=interpreter, requirements=needs.requirements(f"core-{which}", "nvml"))


def with_programs(job: Job, folder: Path) -> Dict[str, str]:
    """The programs of an environment first on PATH: Ansible's tools call each other by name."""
    return {"PATH": f"{folder / 'bin'}:{job.environment['PATH']}"}


# --- lint -------------------------------------------------------------------------------------------------------------


# What mypy checks: packages of the collection, and folders of programs that are started by their path, where each
# imports its siblings by their bare names.
TYPED_PACKAGES = ("plugins", "tests/kubernetes", "tests/awx")
TYPED = ("tools", "tests/measure", "tests/vm", "tests/try", "tests/nvml_simulator", "node")


class Checks:
    """Commands that all run, whichever fails."""

    def __init__(self, job: Job, environment: Dict[str, str]) -> None:
        self._job = job
        self._environment = environment
        self._failed: List[str] = []

    def run(self, title: str, command: Sequence[str], **variables: str) -> None:
        self._job.say(title)
        try:
            self._job.run(command, environment={**self._environment, **variables})
        except StageFailed as failure:
            self._job.say(f"{title}: {failure.reason}")
            self._failed.append(title)

    def types_of_package(self, folder: str) -> None:
        package = f"{imports.COLLECTION}{folder.replace('/', '.')}"
        self.run(f"mypy {folder}", ["mypy", "-p", package], MYPYPATH=str(COLLECTIONS))

    def types_of(self, folder: str) -> None:
        modules = [str(path) for path in sorted((ROOT / folder).rglob("*.py"))]
        if modules:
            self.run(f"mypy {folder}", ["mypy", *modules], MYPYPATH=f"{ROOT / folder}:{COLLECTIONS}")

    def changelog(self) -> None:
        self.run("changelog fragments", ["antsibull-changelog", "lint"])

    def ansible_lint(self, paths: Sequence[str] = ()) -> None:
        command = ["ansible-lint", "--offline", "--profile", "production", "--strict", "-q", *paths]
        self.run("ansible-lint", command)

    def generated(self) -> None:
        self.run("what is made from the documentation", ["python", "tools/generate.py", "--check"])

    def end(self) -> None:
        """Raises ``StageFailed`` if one failed."""
        if self._failed:
            raise StageFailed(f"not clean: {', '.join(self._failed)}")


def lint(job: Job) -> None:
    checks = Checks(job, with_programs(job, controller(job, "newest")))
    checks.run("ruff", ["ruff", "check", "--quiet", "."])
    checks.run("ruff format", ["ruff", "format", "--check", "--quiet", "."])
    checks.run("yamllint", ["yamllint", "--strict", "."])
    for folder in TYPED_PACKAGES:
        checks.types_of_package(folder)
    for folder in TYPED:
        checks.types_of(folder)
    checks.changelog()
    checks.ansible_lint()
    checks.generated()
    checks.end()


def docs(job: Job) -> None:
    """Write what is made from the documentation of the modules."""
    job.run(["python", "tools/generate.py"], environment=with_programs(job, controller(job, "newest")))


# --- unit -------------------------------------------------------------------------------------------------------------


# Of the tests that run on one Python alone (tests/unit/conftest.py).
ONCE = "3.13"
# What every concern keeps: half of what these take.
CONTRACT = "tests/unit/contract"
# A plugin of pytest.
MEASURE = str(ROOT / "tests" / "measure")


def unit(job: Job, pythons: Sequence[str] = NODE_PYTHONS, arguments: Sequence[str] = ()) -> None:
    """The unit tests on every Python that a node may have."""
    needs.require_programs(job, COMPILER)
    if not needs.offer_browser(job):
        job.note("no Chromium: the page of the report is not tried in a browser")
    failed = []
    for version in pythons:
        folder = unit_environment(job, version)
        tools = {}
        if version == ONCE:
            promtool = needs.offer_promtool(job)
            if promtool:
                tools["GPUFLEET_PROMTOOL"] = str(promtool)
            else:
                job.note("no promtool: the alert rules are not tried")
            names = needs.requirements("gpu-tools")
            interpreter = needs.python(job, version)
            tools["GPUFLEET_GPU_TOOLS"] = str(needs.venv(job, "gpu-tools", interpreter=interpreter, requirements=names))
        job.say(f"Python {version}")
        if not run_pytest(job, folder, version, arguments, **tools):
            failed.append(version)
    if failed:
        raise StageFailed(f"unit tests failed on Python {', '.join(failed)}")


def count_tests(job: Job) -> Sequence[str]:
    """Arguments of pytest that have it write down what each test costs, with ``MEASURE`` in PYTHONPATH."""
    return ("-p", "pytest_costs", "--costs", str(job.test_costs))


def unit_environment(job: Job, version: str) -> Path:
    """The environment of the unit tests on this Python."""
    interpreter = needs.python(job, version)
    below = version in BELOW_CONTROLLER
    core = needs.requirements("core-newest" if version in CONTROLLERS["newest"] else "core-floor")
    folder = needs.venv(
        job,
        f"unit-{version}",
        interpreter=interpreter,
        requirements=[*needs.requirements("unit", "nvml"), *([] if below else core)],
        without_dependencies=core if below else (),
    )
    if below:
        _keep_module_utils(folder / "lib" / f"python{version}" / "site-packages" / "ansible")
    return folder


def run_pytest(job: Job, folder: Path, version: str, arguments: Sequence[str], **tools: str) -> bool:
    """Whether the tests passed. What failed is in the summary."""
    cache = CACHE / "pytest" / job.name / version
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-o", f"cache_dir={cache}"]
    # A short path: daemons make sockets below it, whose paths have at most 107 bytes.
    command += ["--basetemp", str(job.scratch / job.name), *count_tests(job), *arguments]
    try:
        lines = job.run(command, environment={**tools, "PYTHONPATH": MEASURE}, show=PYTEST_END)
    except StageFailed as failure:
        tests = [line for line in failure.lines if line.startswith(("FAILED ", "ERROR "))]
        for line in tests[:FAILURES_SHOWN]:
            job.report(f"Python {version}: {line}")
        job.say(f"Python {version}: {len(tests)} tests failed ({failure})")
        return False
    job.note(f"Python {version}: {lines[-1] if lines else 'no output'}")
    return True


def contract(job: Job) -> None:
    """The tests that take longest, beside the others on the same Python."""
    unit(job, (ONCE,), (CONTRACT,))


def unit_on(version: str) -> Callable[[Job], None]:
    """The unit tests on this Python, without those that have a stage of their own."""
    return lambda job: unit(job, (version,), (f"--ignore={CONTRACT}",) if version == ONCE else ())


def _keep_module_utils(package: Path) -> None:
    """Leave of ansible-core what a node gets of it: the controller's part does not even compile there."""
    for path in package.iterdir():
        if path.is_dir() and path.name not in ("module_utils", "_vendor"):
            shutil.rmtree(path)


# --- quick ------------------------------------------------------------------------------------------------------------

# The rules for all files: tests that read them and run nothing.
RULES = ("tests/unit/repository/test_house.py", "tests/unit/repository/test_words.py")
# Times how long Python takes to import a look, several times over.
TIMED = "importing_the_look_costs"


def quick_stages(chosen: quick.Selection) -> List[Stage]:
    """The stages of ``make quick``, for what is chosen."""

    def tests(job: Job) -> None:
        quick_tests(job, chosen.tests)

    def contracts(job: Job) -> None:
        quick_tests(job, [CONTRACT, *(word for name in chosen.contracts for word in ("--concern", name))])

    return [
        *([Stage("quick-tests", tests)] if chosen.tests else []),
        *([Stage("quick-contract", contracts)] if chosen.contracts else []),
        Stage("quick-lint", lambda job: quick_lint(job, chosen.files)),
        Stage("quick-rules", lambda job: quick_tests(job, [*RULES, "-k", f"not {TIMED}"])),
    ]


def quick_tests(job: Job, arguments: Sequence[str]) -> None:
    needs.require_programs(job, COMPILER)
    folder = set_up(job, lambda: unit_environment(job, ONCE))
    if not run_pytest(job, folder, ONCE, arguments):
        raise StageFailed(f"unit tests failed on Python {ONCE}")


def quick_lint(job: Job, files: Sequence[str]) -> None:
    """The linters on these files, and the types of all that may use them."""
    checks = Checks(job, with_programs(job, set_up(job, lambda: controller(job, "newest"))))
    python, yaml = ([name for name in files if name.endswith(end)] for end in (".py", ".yml"))
    if python:
        checks.run("ruff", ["ruff", "check", "--quiet", "--force-exclude", *python])
        checks.run("ruff format", ["ruff", "format", "--check", "--quiet", "--force-exclude", *python])
    if yaml:
        checks.run("yamllint", ["yamllint", "--strict", *yaml])
    for folder in TYPED_PACKAGES:
        if any(name.startswith(f"{folder}/") for name in python):
            checks.types_of_package(folder)
    for folder in TYPED:
        if any(name.startswith(f"{folder}/") for name in python):
            checks.types_of(folder)
    if any(name.startswith("changelogs/") for name in files):
        checks.changelog()
    checks.generated()
    roles = sorted({"/".join(name.split("/")[:2]) for name in files if name.startswith("roles/")})
    linted = [*roles, *(name for name in yaml if name.startswith(("playbooks/", "molecule/")))]
    if linted:
        checks.ansible_lint(linted)
    checks.end()


def set_up(job: Job, make: Callable[[], Path]) -> Path:
    """An environment; where this call made it, the summary has how long that took."""
    begin = time.monotonic()
    folder = make()
    if (folder / ".ready").stat().st_mtime >= STARTED:
        job.note(f"first call: making the environment took {time.monotonic() - begin:.0f} s")
    return folder


# --- sanity -----------------------------------------------------------------------------------------------------------


# What depends on the ansible-core that it comes with. What only reads the sources is left to the newest, and so are the
# imports: the unit tests on the oldest Python run on what the oldest ansible-core brings to a node.
SANITY_TESTS: Dict[str, Sequence[str]] = {"floor": ("ansible-doc", "validate-modules"), "newest": ()}


def sanity(which: str) -> Callable[[Job], None]:
    """``ansible-test sanity`` on the Pythons of nodes that this ansible-core knows."""

    def work(job: Job) -> None:
        folder = controller(job, which)
        needs.require_programs(job, ["git", "shellcheck"])
        for cached in ("get_pip_24_2.py", "get_pip_25_2.py"):
            place = HOME / ".ansible" / "test" / "cache" / cached
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / "tools" / "get_pip.py", place)
        target = CACHE / "sanity" / which / "ansible_collections" / "gpufleet" / "node"
        needs.copy_sources(target)
        # Without a repository of its own the copy would be one of the ignored files of the checkout.
        job.run(["git", "init", "--quiet", str(target)])
        # It takes every python3.x on PATH for an interpreter that works, which a shim of pyenv need not be.
        interpreters = [str(needs.python(job, version).parent) for version in NODE_PYTHONS]
        path = ":".join([str(folder / "bin"), *interpreters, *needs.SYSTEM_PATH])
        ansible_test = str(folder / "bin" / "ansible-test")
        chosen = [word for name in SANITY_TESTS[which] for word in ("--test", name)]
        try:
            job.run(
                [ansible_test, "sanity", "--requirements", "--color", "no", *chosen],
                cwd=target,
                # It keeps its own bytecode, and refuses a prefix.
                environment={"PATH": path, "PYTHONPYCACHEPREFIX": ""},
                show=r"^(ERROR|FATAL):",
                steps=SANITY_STEPS,
            )
        finally:
            shutil.rmtree(CACHE / "sanity" / which, ignore_errors=True)

    return work


# --- molecule ---------------------------------------------------------------------------------------------------------


def container_scenarios() -> List[str]:
    found = sorted(path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml"))
    return [name for name in found if name not in (*VM_SCENARIOS, *BY_NAME)]


def molecule(job: Job, named: Sequence[str] = ()) -> None:
    """The scenarios in containers. Every one runs, whichever fails: one run tells all there is to tell.

    Those that are named are kept if they fail, and continue if they were kept.
    """
    folder = controller(job, "floor")
    connections = connections_of_others(job)
    images = {scenario: _images_of(scenario) for scenario in named or container_scenarios()}
    failed = 0
    with engine.engine(job, keep=bool(named)) as address:
        tags = engine.images(job, address, sorted({name for names in images.values() for name in names.values()}))
        for scenario, names in images.items():
            try:
                variables = {variable: tags[name].result() for variable, name in names.items()}
                chosen = Scenario(scenario, folder, {**address, **connections, **variables})
                if named:
                    scenarios.run_and_keep(job, chosen, again=f"make molecule SCENARIO={scenario}")
                else:
                    scenarios.run_twice(job, chosen)
            except StageFailed as failure:
                if job.stopping:
                    raise
                job.report(f"{scenario}: {failure}")
                failed += 1
    if failed:
        raise StageFailed(f"{failed} of {len(images)} scenarios failed")


def connections_of_others(job: Job) -> Dict[str, str]:
    """Other ways into a container than SSH."""
    interpreter = needs.python(job, *CONTROLLERS["floor"])
    others = needs.collections_of_others(job, "community.docker", "containers.podman", interpreter=interpreter)
    return {"ANSIBLE_COLLECTIONS_PATH": f"{COLLECTIONS}:{others}"}


def _images_of(scenario: str) -> Dict[str, str]:
    """The image that each variable in the scenario's molecule.yml stands for."""
    text = (ROOT / "molecule" / scenario / "molecule.yml").read_text(encoding="utf-8")
    return {variable: engine.name_of(variable) for variable in re.findall(r"GPUFLEET_IMAGE_\w+", text)}


def vm_test(scenario: str, *, keep: bool) -> Callable[[Job], None]:
    """A scenario on a real kernel, with a boot by its own boot loader. With ``keep`` as a named one of ``molecule``."""

    def work(job: Job) -> None:
        require_machines(job)
        chosen = Scenario(scenario, controller(job, "newest"), {})
        if keep:
            scenarios.run_and_keep(job, chosen, again=f"make vm-test SCENARIO={scenario}")
        else:
            scenarios.run_twice(job, chosen)

    return work


def require_machines(job: Job) -> None:
    """What virtual machines with simulated GPUs take."""
    needs.require_programs(job, ["mmdebstrap", "mkfs.ext4", "debugfs", "ssh", "ssh-keygen"])
    needs.require_programs(job, [needs.DEBIAN_KEYRING, *(["newuidmap"] if os.geteuid() != 0 else [])])
    needs.require_programs(job, COMPILER)


# --- what works with collections of others ----------------------------------------------------------------------------


def kubernetes(job: Job) -> None:
    """What drains nodes of Kubernetes and says what it allocates, with its Python client, on a recorded API server."""
    _beside(job, "kubernetes", needs.python(job, *CONTROLLERS["floor"]), ANSIBLE_COLLECTIONS_PATH=str(COLLECTIONS))


def awx(job: Job) -> None:
    """What brings the playbooks into AWX, with the modules of awx.awx, ansible-builder and ansible-runner."""
    interpreter = needs.python(job, *CONTROLLERS["floor"])
    others = needs.collections_of_others(job, "awx.awx", interpreter=interpreter)
    _beside(job, "awx", interpreter, ANSIBLE_COLLECTIONS_PATH=str(others))


def _beside(job: Job, name: str, interpreter: Path, **variables: str) -> None:
    """Run the tests of a folder in an environment of its own, which has in it what others have made."""
    folder = needs.venv(job, name, interpreter=interpreter, requirements=needs.requirements("core-floor", name))
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-o", f"cache_dir={CACHE / 'pytest' / name}"]
    path = [MEASURE, *([variables["PYTHONPATH"]] if "PYTHONPATH" in variables else [])]
    environment = {**with_programs(job, folder), **variables, "PYTHONPATH": ":".join(path)}
    command += [*count_tests(job), str(ROOT / "tests" / name)]
    lines = job.run(command, environment=environment, show=PYTEST_END)
    job.note(lines[-1] if lines else "no output")


# --- build ------------------------------------------------------------------------------------------------------------


def build(job: Job) -> None:
    """Build the tarball, prove that it depends on nothing but the sources, install it and use it by name."""
    folder = controller(job, "newest")
    programs = with_programs(job, folder)
    export, again = CACHE / "export" / "sources", CACHE / "export" / "build"
    needs.copy_sources(export)
    for old in BUILD.glob("*.tar.gz"):
        old.unlink()
    tarballs = []
    for source, target in ((ROOT, BUILD), (export, again)):
        command = ["ansible-galaxy", "collection", "build", "--force", "--output-path", str(target), str(source)]
        job.run(command, environment=programs)
        tarballs.append(next(iter(target.glob("*.tar.gz"))))
    used, clean = (tarball.content(path) for path in tarballs)
    if used != clean:
        different = sorted(name for name in {*used, *clean} if used.get(name) != clean.get(name))
        raise StageFailed(f"The tarballs of the used checkout and of a clean export differ in {', '.join(different)}")
    size = tarballs[0].stat().st_size
    if size > SIZE_LIMIT:
        raise StageFailed(f"{tarballs[0].name} has {size} bytes, more than {SIZE_LIMIT}")
    job.note(f"{os.path.relpath(tarballs[0], ROOT)}: {len(used)} files, {size} bytes")
    for which in ("newest", "floor"):
        _use_installed(job, tarballs[0], controller(job, which))
    shutil.rmtree(CACHE / "export")


def _use_installed(job: Job, built: Path, folder: Path) -> None:
    """Install the tarball alone, and let Ansible find the playbooks and modules in it by name."""
    place = CACHE / "export" / "installed"
    shutil.rmtree(place, ignore_errors=True)
    environment = {**with_programs(job, folder), "ANSIBLE_COLLECTIONS_PATH": str(place)}
    command = ["ansible-galaxy", "collection", "install", "--offline", "--no-deps", "-p", str(place), str(built)]
    job.run(command, environment=environment)
    elsewhere = CACHE / "export"
    installed = place / "ansible_collections" / "gpufleet" / "node"
    # All by one command each: to start takes these commands longer than all that they do.
    playbooks = [f"{COLLECTION}.{path.stem}" for path in sorted((installed / "playbooks").glob("*.yml"))]
    command = ["ansible-playbook", "--syntax-check", "-i", str(installed / "inventories" / "demo" / "hosts.yml")]
    job.run([*command, *playbooks], environment=environment, cwd=elsewhere)
    modules = [f"{COLLECTION}.{path.stem}" for path in sorted((installed / "plugins" / "modules").glob("*.py"))]
    lines = job.run(["ansible-doc", "-t", "module", *modules], environment=environment, cwd=elsewhere)
    # It ends well where it finds none of them.
    titles = {word for line in lines if line.startswith("> ") for word in line.split()}
    missing = [name for name in modules if name not in titles]
    if missing:
        raise StageFailed(f"ansible-doc does not find {', '.join(missing)}")


def nvml_simulator(job: Job) -> None:
    """The simulated driver and the tool that drives it, for any NVML client."""
    needs.require_programs(job, COMPILER)
    target = BUILD / "nvml_simulator"
    job.run([sys.executable, str(ROOT / "tests" / "nvml_simulator" / "build.py"), str(target)])
    job.note(f"{os.path.relpath(target, ROOT)}: libnvidia-ml.so.1, nvml-sim")


# --- demonstration and benchmark --------------------------------------------------------------------------------------


def demo(job: Job, chapter: str = "") -> None:
    """The main job on a virtual machine, or a chapter on two."""
    folder = ROOT / "tests" / "vm"
    program = str(folder / "demo.py")
    chapters = job.run([sys.executable, program, "--list"])
    if chapter and chapter not in chapters:
        raise StageFailed(f"Cannot show the chapter {chapter!r}: there are {', '.join(chapters)}")
    require_machines(job)
    images = [[], ["--worker"]] if chapter == "all" else [["--worker"] if chapter else []]
    with ThreadPoolExecutor() as pool:
        # They wait for different things: the image for a mirror and dpkg, the environment for an index and pip.
        environment = pool.submit(player, job)
        for words in images:
            job.run([sys.executable, str(folder / "bed.py"), "image", "--gpus", *words], show=r".")
        python = environment.result() / "bin" / "python"
    job.run(
        [str(python), program, *(["--chapter", chapter] if chapter else [])],
        environment={**with_programs(job, python.parents[1]), "GPUFLEET_STARTED": str(STARTED)},
        plain=True,
    )


def try_it(job: Job) -> None:
    """The playbooks on recorded machines."""
    folder = player(job)
    program = str(ROOT / "tests" / "try" / "fleet.py")
    environment = {**with_programs(job, folder), "GPUFLEET_STARTED": str(STARTED)}
    job.run([str(folder / "bin" / "python"), program], environment=environment, plain=True)


def bench(job: Job, arguments: Sequence[str] = ()) -> None:
    """The measurements behind docs/performance.md. The arguments are those of bench.py."""
    require_machines(job)
    folder = controller(job, "newest")
    program = str(ROOT / "tests" / "bench" / "bench.py")
    command = [str(folder / "bin" / "python"), program, *arguments]
    job.run(command, environment=with_programs(job, folder), show=r".")


def bench_scale(job: Job, arguments: Sequence[str] = ()) -> None:
    """What a fleet of a thousand hosts costs its controller. The arguments are those of scale.py."""
    interpreter = needs.python(job, *CONTROLLERS["newest"])
    names = needs.requirements("core-newest", "nvml", "runner")
    folder = needs.venv(job, "runner", interpreter=interpreter, requirements=names)
    command = [str(folder / "bin" / "python"), str(ROOT / "tests" / "bench" / "scale" / "scale.py"), *arguments]
    job.run(command, environment=with_programs(job, folder), show=r".")


def clean() -> None:
    """Stop what still runs, and delete every cache and every build."""
    bed = ROOT / "tests" / "vm" / "bed.py"
    for state in (CACHE / "vm" / "run").glob("*/bed.json"):
        subprocess.run([sys.executable, str(bed), "down", "--name", state.parent.name], check=False)
    engine.remove_all()
    for path in (CACHE, BUILD):
        remove(path)


# --- command line -----------------------------------------------------------------------------------------------------


def schedule(target: str, options: argparse.Namespace) -> List[Stage]:
    """The stages of a target, in the order in which they start."""

    def unit_with_options(job: Job) -> None:
        unit(job, options.python or NODE_PYTHONS, options.arguments)

    def molecule_with_options(job: Job) -> None:
        molecule(job, options.scenario or ())

    stages = (
        Stage("lint", lint),
        Stage("unit", unit_with_options),
        *(Stage(f"unit-{version}", unit_on(version)) for version in TESTED_PYTHONS),
        Stage("contract", contract),
        Stage("sanity-floor", sanity("floor")),
        Stage("sanity-newest", sanity("newest")),
        Stage("molecule", molecule_with_options),
        Stage("kubernetes", kubernetes),
        Stage("awx", awx),
        *(Stage(scenario, vm_test(scenario, keep=bool(options.scenario))) for scenario in VM_SCENARIOS),
        Stage("destroy", lambda job: scenarios.destroy(job, options.scenario or ())),
        Stage("docs", docs),
        Stage("build", build),
        Stage("nvml-simulator", nvml_simulator),
        Stage("try", try_it),
        Stage("demo", lambda job: demo(job, options.chapter)),
        Stage("bench", lambda job: bench(job, options.arguments)),
        Stage("bench-scale", lambda job: bench_scale(job, options.arguments)),
    )
    by_name = {stage.name: stage for stage in stages}
    chosen = options.scenario if target == "vm-test" else ()
    if target == "quick":
        return quick_stages(options.chosen)
    return [by_name[name] for name in chosen or STAGES_OF.get(target, (target,))]


# Those that hand on what stands after --.
TAKING_ARGUMENTS = ("unit", "bench", "bench-scale")

# What takes long comes first, so that both cores have work to the end.
STAGES_OF = {
    "test": (
        *VM_SCENARIOS,
        f"unit-{ONCE}",
        "molecule",
        "contract",
        *(f"unit-{version}" for version in TESTED_PYTHONS if version != ONCE),
        "sanity-floor",
        "sanity-newest",
        "awx",
        "kubernetes",
        "lint",
        "build",
    ),
    "sanity": ("sanity-floor", "sanity-newest"),
    "vm-test": VM_SCENARIOS,
}
# Those that check something, whose costs are kept for `make profile`.
COUNTED = ("test", "lint", "unit", "sanity", "molecule", "kubernetes", "awx", "vm-test", "build")
# Both emulated machines, which wait for much, and one of the others beside them.
SIDE_BY_SIDE = 3

TARGETS = {
    "test": "every check there is",
    "try": "the playbooks on recorded machines with simulated GPUs, without root: three minutes",
    "demo": "the main job on a virtual GPU node: check, converge, meddle, heal, reboot (CHAPTER=all for more)",
    "bench": "the measurements behind docs/performance.md",
    "bench-scale": "what a fleet of a thousand hosts costs its controller",
    "quick": "what the change since origin/main touches, or the concerns named: CONCERN=hugepages takes half a minute",
    "lint": "ruff, mypy, yamllint, ansible-lint, changelog fragments, and that `make docs` has nothing to do",
    "unit": "unit tests on Python 3.9 to 3.13",
    "sanity": "ansible-test sanity on the oldest and the newest ansible-core",
    "molecule": "scenarios in containers (SCENARIO=default for one)",
    "kubernetes": "the drain of nodes of Kubernetes, and device_plugin, on a recorded API server",
    "awx": "what brings the playbooks into AWX, and jobs as it runs them",
    "vm-test": "the scenarios on two real kernels with NUMA and NVMe, through a boot (SCENARIO=vm-trixie for one)",
    "destroy": "end the machines that a failed scenario left running (SCENARIO=default for one)",
    "docs": "write what is made from the documentation of the modules",
    "build": "the collection's tarball in build/",
    "nvml-simulator": "a libnvidia-ml.so.1 without a GPU, and the tool nvml-sim, in build/nvml_simulator/",
    "profile": "compare what two runs cost, by default the last two (BEFORE=FILE AFTER=FILE)",
    "clean": "delete .cache/ and build/",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make", description="\n".join(f"  {name:<14} {text}" for name, text in TARGETS.items())
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("target", choices=[*TARGETS, "help"])
    parser.add_argument("--python", action="append", choices=NODE_PYTHONS, help="unit tests on this Python only")
    parser.add_argument("--scenario", action="append", help="this scenario only")
    parser.add_argument("--concern", action="append", default=[], help="of make quick: this concern only")
    parser.add_argument("--chapter", default="", help="of the demonstration, and not its main job")
    parser.add_argument("--before", default="", metavar="FILE", help="profile: the run to compare with")
    parser.add_argument("--after", default="", metavar="FILE", help="profile: the run that is compared")
    parser.add_argument("arguments", nargs="*", help="for pytest, bench.py or scale.py, after --")
    # Intermixed: what is for them may come after an option of ours.
    options = parser.parse_intermixed_args()
    if options.arguments and options.target not in TAKING_ARGUMENTS:
        parser.error(f"{options.target} takes no arguments after --; {', '.join(TAKING_ARGUMENTS)} do")
    if options.concern and options.target != "quick":
        parser.error(f"{options.target} takes no concern; quick does")
    if options.target == "help":
        parser.print_help()
        return 0
    if options.target == "clean":
        clean()
        return 0
    if options.target == "profile":
        return profile(options.before, options.after)
    if options.target == "quick":
        try:
            options.chosen = choose_quick(options.concern)
        except quick.Unknown as error:
            complain(str(error))
            return 2
        if not any(options.chosen):
            complain(f"Nothing to check changed since {quick.UPSTREAM}. For a concern: make quick CONCERN=hugepages")
            return 0
    found = machine.look(home=needs.USER_HOME) if options.target == "test" else None
    if found is not None:
        say_what_is_not_new(found)
    needs.prepare_places()
    LOGS.mkdir(parents=True, exist_ok=True)
    which = {name: getattr(options, name) for name in ("python", "scenario", "arguments")}
    account = costs.Account(target=options.target, options=which, root=ROOT, logs=LOGS)
    with scratch() as folder, account.kept() as finish:
        status = run_stages(
            schedule(options.target, options),
            side_by_side=SIDE_BY_SIDE,
            environment={**needs.environment(), "TMPDIR": str(folder)},
            root=ROOT,
            logs=LOGS,
            account=finish if options.target in COUNTED else lambda outcomes: (),
        )
    if options.target == "quick":
        print("\n".join(quick.left_out(options.chosen)), flush=True)
    left = machine.changed(found, machine.look(home=needs.USER_HOME)) if found is not None else []
    for line in left:
        complain(f"This run changed the machine: {line}")
    return status or (1 if left else 0)


def profile(before: str, after: str) -> int:
    """Compare the costs of two runs. Returns the exit status: 1 where a stage is dearer, 2 without two runs."""
    try:
        lines, status = costs.profile(LOGS, before, after)
    except costs.NothingToCompare as reason:
        complain(str(reason))
        return 2
    print("\n".join(lines))
    return status


def choose_quick(names: Sequence[str]) -> quick.Selection:
    """What ``make quick`` checks. Raises ``quick.Unknown``."""
    files = [path.as_posix() for path in needs.source_files()]
    chosen = quick.choose(names, root=ROOT, files=files, cache=CACHE / "quick" / "imports.json")
    missing = [name for name in (f"unit-{ONCE}", "newest") if not any((CACHE / "venvs").glob(f"{name}-*/.ready"))]
    if any(chosen) and missing:
        print("The first call makes the environments and fills the caches, which takes minutes.", flush=True)
    for line in quick.summary(chosen) if any(chosen) else ():
        print(line, flush=True)
    return chosen


def say_what_is_not_new(found: machine.Machine) -> None:
    """The first lines of `make test`: a green run proves less on a machine that was used before."""
    programs = [*needs.PACKAGES, *needs.BROWSERS]
    lines = machine.not_new(found, programs=programs, cache=CACHE)
    if not lines:
        print("This machine is like a new one: nothing that the tests depend on was there before.", flush=True)
    for line in lines:
        print(f"Unlike on a new machine: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
