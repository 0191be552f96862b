# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container engine for the length of a stage, and the machines in containers that it starts.

A stage that keeps the machines of a failed scenario leaves it running, and a later one continues on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

from needs import CACHE, DEBIAN_KEYRING, require_programs
from runner import Job, StageFailed
from scratch import mount_memory, remove

MIRROR = "http://deb.debian.org/debian"
REPOSITORY = "gpufleet-node-test"
DATA = CACHE / "docker"
IMAGES = CACHE / "images"
LOG = CACHE / "logs" / "dockerd.log"
PID_FILE = DATA / "run" / "docker.pid"
# What an engine leaves outside its folders.
TRACES = tuple(Path(path) for path in ("/etc/docker/key.json", "/etc/docker", "/run/docker", "/run/containerd"))
# Those of them that were there before the engine, a line each.
TRACES_BEFORE = DATA / "traces-before"
STARTUP_SECONDS = 60.0
# The path of a socket may have 107 bytes, and containerd adds to it.
LONGEST_SOCKET_FOLDER = 70
BUILDERS = 2

# What a bare server has: an init system, udev, what Ansible and a login need.
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "udev",
    "dbus",
    "kmod",
    "procps",
    "iproute2",
    "openssh-server",
    "sudo",
    "python3",
)
# What runs containers inside, and a client of containerd's interface for Kubernetes.
ENGINES = ("docker.io", "containerd", "runc", "busybox-static", "python3-grpcio")
# What only some suites have. The client of Docker is a package of its own, except in bookworm.
ENGINES_OF = {"bookworm": ("podman",), "trixie": ("docker-cli", "podman"), "sid": ("docker-cli",)}
# What installs packages as Debian and as Red Hat do, and makes repositories of both kinds.
MANAGERS = ("python3-apt", "gpg", "gpg-agent", "dnf", "dnf-plugins-core", "rpm", "createrepo-c")
# A cluster on one machine.
SLURM = ("slurmctld", "slurmd", "slurm-client", "munge")
# Who bring up network interfaces, and who filter what comes in, one beside the other.
NETWORK = (
    "network-manager",
    "ifupdown",
    "isc-dhcp-client",
    "dnsmasq-base",
    "iputils-ping",
    "firewalld",
    "ufw",
    "nftables",
)
# Where mmdebstrap keeps the options of dpkg.
DPKG_OPTIONS = "etc/dpkg/dpkg.cfg.d/99mmdebstrap"
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# A third of the bytes: what the network, the hardware and the tests of engines take.
ENGINES_LEFT_OUT = (
    "/usr/lib/cni/*",
    "/usr/lib/udev/hwdb.d/*",
    "/usr/libexec/podman/podman-testing",
    "/usr/bin/containerd-shim",
    "/usr/bin/containerd-shim-runc-v1",
    "/usr/bin/containerd-stress",
    "/usr/share/bash-completion/*",
)
# sshd is started by a connection, without its unit: see molecule/shared/create.yml.
CUSTOMIZE = """
systemctl --root="$1" mask ssh.service ssh.socket getty.target systemd-logind.service apt-daily.timer \
    apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
systemctl --root="$1" set-default multi-user.target
echo 'd /run/sshd 0755 root root' > "$1/usr/lib/tmpfiles.d/sshd-on-demand.conf"
rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/etc/machine-id
touch "$1/etc/machine-id"
"""
# By the kind of the image: without a configuration slurmd would look for one for a minute, and one firewall is enough.
CUSTOMIZE_EXTRAS = {
    "slurm": 'systemctl --root="$1" disable slurmctld.service slurmd.service\n',
    "network": 'systemctl --root="$1" disable firewalld.service\n',
}


@contextlib.contextmanager
def engine(job: Job, *, keep: bool = False) -> Iterator[Dict[str, str]]:
    """A running engine; yields what its clients need in their environment.

    Root gets one of its own, which is gone with all it held at the end. Others use the one that they may use.
    With ``keep`` the machines stay that are left at the end, and with them the engine, which the next call with
    ``keep`` gives back. Without it they are removed, also those that were kept.
    """
    if os.geteuid() != 0:
        require_programs(job, ["docker"])
        job.run(["docker", "version"])
        try:
            yield {}
        finally:
            if not keep or not containers(job, {}):
                _remove_containers(job, {})
                with contextlib.suppress(StageFailed):
                    listed = job.run(["docker", "images", "-q", REPOSITORY], cleanup=True)
                    if listed:
                        job.run(["docker", "rmi", "--force", *listed], cleanup=True)
        return
    require_programs(job, ["dockerd", "docker", "iptables"])
    address = kept_engine(job)
    if address is not None and not keep:
        job.say("removing the machines that an earlier run kept")
    if address is None or not keep:
        stop_stale()
        address = _start(job, keep=keep)
    try:
        yield address
    finally:
        if keep and containers(job, address):
            job.say("the container engine keeps running for the machines that are kept")
        else:
            _remove_containers(job, address)
            stop_stale()
            remove(job.scratch / "docker")
            job.say("the container engine is gone")


def _start(job: Job, *, keep: bool) -> Dict[str, str]:
    """Start an engine of our own. Returns its address."""
    sockets, data = DATA / "run", job.scratch / "docker"
    if len(os.fsencode(str(sockets))) > LONGEST_SOCKET_FOLDER:
        raise StageFailed(f"Cannot start a container engine in {sockets}: the path is too long for a socket")
    sockets.mkdir(parents=True, exist_ok=True)
    if keep:
        # The scratch folder ends with this run.
        data = DATA / "data"
        data.mkdir()
        mount_memory(data)
    address = _address()
    command = [
        "dockerd",
        "--host",
        address["DOCKER_HOST"],
        "--data-root",
        str(data),
        "--exec-root",
        str(sockets / "exec"),
    ]
    command += ["--pidfile", str(PID_FILE), "--config-file", str(DATA / "daemon.json")]
    # Nothing of the machine's network is touched: the containers have none.
    command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    if job.meter:
        command += job.meter.containers()
    (DATA / "daemon.json").write_text("{}\n", encoding="utf-8")
    TRACES_BEFORE.write_text("".join(f"{path}\n" for path in TRACES if path.exists()), encoding="utf-8")
    job.say("starting a container engine")
    with LOG.open("wb") as output:
        daemon = subprocess.Popen(
            job.counted(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=job.environment,
            start_new_session=True,
        )
    # Without it the end of the daemon would leave a process that whoever stops it takes for running.
    threading.Thread(target=daemon.wait, daemon=True).start()
    try:
        _await_engine(job, daemon, address)
    except BaseException:
        _end(daemon.pid)
        stop_stale()
        raise
    return address


def _address() -> Dict[str, str]:
    return {"DOCKER_HOST": f"unix://{DATA}/run/docker.sock", "DOCKER_CONFIG": str(DATA / "client")}


def kept_engine(job: Job) -> Optional[Dict[str, str]]:
    """The address of the engine that an earlier run left for the machines it kept; ``None`` where there is none."""
    if _running() is None:
        return None
    environment = {**job.environment, **_address()}
    asked = subprocess.run(["docker", "version"], env=environment, capture_output=True, check=False)
    return _address() if asked.returncode == 0 else None


def _await_engine(job: Job, daemon: subprocess.Popen[bytes], address: Dict[str, str]) -> None:
    deadline = time.monotonic() + STARTUP_SECONDS
    environment = {**job.environment, **address}
    while daemon.poll() is None and time.monotonic() < deadline:
        asked = subprocess.run(["docker", "version"], env=environment, capture_output=True, check=False)
        if asked.returncode == 0:
            return
        time.sleep(0.3)
    end = "\n".join(LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
    raise StageFailed(f"Cannot start a container engine:\n{end}")


def containers(job: Job, address: Dict[str, str]) -> List[str]:
    """The names of the containers that carry our label, whoever left them."""
    command = ["docker", "ps", "--all", "--format={{.Names}}", f"--filter=label={REPOSITORY}"]
    try:
        return job.run(command, environment=address, cleanup=True)
    except StageFailed:
        return []


def stop_unused(job: Job) -> None:
    """Stop an engine that was kept, when no machine is left on it."""
    address = kept_engine(job)
    if address is not None and not containers(job, address):
        stop_stale()


def _remove_containers(job: Job, address: Dict[str, str]) -> None:
    listed = containers(job, address)
    if listed:
        with contextlib.suppress(StageFailed):
            job.run(["docker", "rm", "--force", "--volumes", *listed], environment=address, cleanup=True)


def _running() -> Optional[int]:
    """The process of an engine that was started here and did not end."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(PID_FILE.read_text(encoding="utf-8"))
        return pid if _is_engine(pid) else None
    return None


def _is_engine(pid: int) -> bool:
    """Whether this number, which may belong to another process by now, is that of an engine that was started here."""
    with contextlib.suppress(OSError):
        return os.fsencode(str(PID_FILE)) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def _end(pid: int) -> None:
    # Once each: at the third one it ends without stopping its containers.
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + STARTUP_SECONDS
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        while _is_engine(pid):
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        else:
            return


def stop_stale() -> None:
    """Stop the engine that runs, be it one that a killed run left, and delete what it held and left elsewhere."""
    pid = _running()
    if pid is not None:
        _end(pid)
    if TRACES_BEFORE.exists():
        before = TRACES_BEFORE.read_text(encoding="utf-8").splitlines()
        for path in TRACES:
            if str(path) not in before:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
    remove(DATA)


def remove_all() -> None:
    """Remove all that failed scenarios kept."""
    if os.geteuid() != 0 and shutil.which("docker"):
        command = ["docker", "ps", "--all", "--quiet", f"--filter=label={REPOSITORY}"]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        if listed:
            subprocess.run(["docker", "rm", "--force", "--volumes", *listed], stdout=subprocess.DEVNULL, check=False)
    stop_stale()


# --- images -----------------------------------------------------------------------------------------------------------


def images(job: Job, address: Dict[str, str], names: Sequence[str]) -> Dict[str, Future[str]]:
    """Load images, each built when the cache has none. A name is ``SUITE`` or ``SUITE-KIND``.

    Returns the tags, all of them ready; one that could not be made raises ``StageFailed`` where it is asked for.
    """
    # First those that others are built on, so that no builder waits for another.
    order = sorted(names, key=lambda name: "-" in name)
    # Side by side: much of a build is one process that waits for the mirror or the disk.
    with ThreadPoolExecutor(max_workers=BUILDERS) as pool:
        return {name: pool.submit(_image, job, address, name) for name in order}


def _image(job: Job, address: Dict[str, str], name: str) -> str:
    archive = _archive(job, name)
    tag = f"{REPOSITORY}:{archive.stem}"
    # An engine that was kept has it.
    if not job.run(["docker", "images", "--quiet", tag], environment=address):
        job.run(["docker", "import", str(archive), tag], environment=address)
    return tag


def _archive(job: Job, name: str) -> Path:
    """The image as a file, built when the cache has none."""
    packages, left_out = packages_of(name), left_out_of(name)
    definition = [name, MIRROR, *packages, *left_out, customize_of(name)]
    digest = hashlib.sha256("\0".join(definition).encode()).hexdigest()[:12]
    archive = IMAGES / f"{name}-{digest}.tar"
    with job.locked(CACHE / "locks" / f"image-{name}", what=f"The image {name}"):
        if not archive.exists():
            _build(job, name, archive, packages=packages, left_out=left_out)
    return archive


def packages_of(name: str) -> Sequence[str]:
    suite, _dash, kind = name.partition("-")
    kinds = {
        "": (),
        "engines": (*ENGINES, *ENGINES_OF.get(suite, ())),
        "packages": MANAGERS,
        "slurm": SLURM,
        "network": NETWORK,
    }
    return (*PACKAGES, *kinds[kind])


def left_out_of(name: str) -> Sequence[str]:
    """Patterns of paths."""
    return (*LEFT_OUT, *ENGINES_LEFT_OUT) if name.endswith("-engines") else LEFT_OUT


def customize_of(name: str) -> str:
    """The script that ends the making of an image."""
    return CUSTOMIZE + CUSTOMIZE_EXTRAS.get(name.partition("-")[2], "")


def _build(job: Job, name: str, archive: Path, *, packages: Sequence[str], left_out: Sequence[str]) -> None:
    needed = ["mmdebstrap", DEBIAN_KEYRING]
    require_programs(job, needed if os.geteuid() == 0 else [*needed, "newuidmap"])
    suite, _dash, kind = name.partition("-")
    # Most of the work is in the packages that all images of a suite have.
    base = _archive(job, suite) if kind else None
    job.say(f"building the image {archive.name}")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for old in IMAGES.glob(f"{name}-" + "[0-9a-f]" * 12 + ".tar"):
        old.unlink()
    part = archive.with_suffix(".part.tar")
    command = ["mmdebstrap", *(["--variant=custom"] if base else ["--variant=minbase"])]
    # A mirror that is late with sid is as good here.
    command += ["--dpkgopt=force-unsafe-io", '--aptopt=Acquire::Check-Valid-Until "false"']
    command += _hooks(name, packages=packages, left_out=left_out, base=base)
    job.run([*command, suite, str(part), MIRROR])
    part.rename(archive)


def _hooks(name: str, *, packages: Sequence[str], left_out: Sequence[str], base: Optional[Path]) -> List[str]:
    """The arguments of mmdebstrap for what an image has in it, in the order in which they take effect."""
    hooks = []
    if base:
        archive = shlex.quote(str(base))
        if os.geteuid() != 0:
            # As another user it may not even reach the file.
            hooks.append(f"--setup-hook=upload {archive} /base.tar")
            archive = '"$1"/base.tar'
        # Its devices are there already, and so is what tells dpkg how to work here.
        unpack = f'tar --extract --directory="$1" --exclude="./dev/*" --exclude="./{DPKG_OPTIONS}" --file={archive}'
        hooks.append(f'--setup-hook={unpack} && rm -f "$1"/base.tar')
    # As an option of mmdebstrap, each package would pass through a filter of its own.
    lines = "".join(f"path-exclude={pattern}\n" for pattern in left_out)
    hooks.append(f'--setup-hook=printf %s {shlex.quote(lines)} >> "$1/{DPKG_OPTIONS}"')
    if base:
        install = f"apt-get install --yes --no-install-recommends {' '.join(packages)}"
        hooks.append(f'--customize-hook=chroot "$1" {install}')
    else:
        hooks.append(f"--include={','.join(packages)}")
    # What was unpacked before dpkg knew of it.
    removed = " ".join(f'"$1"{pattern}' for pattern in left_out)
    hooks.append(f"--customize-hook=rm -rf {removed}")
    hooks.append(f'--customize-hook=sh -euc {shlex.quote(customize_of(name))} hook "$1"')
    return hooks


def name_of(variable: str) -> str:
    """The name of the image that molecule.yml has as an environment variable, such as GPUFLEET_IMAGE_SID_ENGINES."""
    return variable[len("GPUFLEET_IMAGE_") :].lower().replace("_", "-")
