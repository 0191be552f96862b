# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container engine for the length of a stage, and the machines in containers that it starts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Dict, Iterator, Sequence

from needs import CACHE, DEBIAN_KEYRING, require_programs
from runner import Job, StageFailed
from scratch import remove

MIRROR = "http://deb.debian.org/debian"
REPOSITORY = "gpufleet-node-test"
DATA = CACHE / "docker"
IMAGES = CACHE / "images"
# What an engine leaves outside its folders.
TRACES = tuple(Path(path) for path in ("/etc/docker/key.json", "/etc/docker", "/run/docker", "/run/containerd"))
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
def engine(job: Job) -> Iterator[Dict[str, str]]:
    """A running engine; yields what its clients need in their environment.

    Root gets one of its own, which is gone with all it held at the end. Others use the one that they may use.
    """
    if os.geteuid() != 0:
        require_programs(job, ["docker"])
        job.run(["docker", "version"])
        try:
            yield {}
        finally:
            _remove_containers(job, {})
            with contextlib.suppress(StageFailed):
                listed = job.run(["docker", "images", "-q", REPOSITORY], cleanup=True)
                if listed:
                    job.run(["docker", "rmi", "--force", *listed], cleanup=True)
        return
    require_programs(job, ["dockerd", "docker", "iptables"])
    stop_stale()
    before = [path for path in TRACES if path.exists()]
    sockets, data = DATA / "run", job.scratch / "docker"
    if len(os.fsencode(str(sockets))) > LONGEST_SOCKET_FOLDER:
        raise StageFailed(f"Cannot start a container engine in {sockets}: the path is too long for a socket")
    sockets.mkdir(parents=True, exist_ok=True)
    address = {"DOCKER_HOST": f"unix://{sockets}/docker.sock", "DOCKER_CONFIG": str(DATA / "client")}
    command = [
        "dockerd",
        "--host",
        address["DOCKER_HOST"],
        "--data-root",
        str(data),
        "--exec-root",
        str(sockets / "exec"),
    ]
    command += ["--pidfile", str(sockets / "docker.pid"), "--config-file", str(DATA / "daemon.json")]
    # Nothing of the machine's network is touched: the containers have none.
    command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    if job.meter:
        command += job.meter.containers()
    (DATA / "daemon.json").write_text("{}\n", encoding="utf-8")
    job.say("starting a container engine")
    log = job.log.with_name("dockerd.log")
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            job.counted(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=job.environment,
            start_new_session=True,
        )
    try:
        _await_engine(job, daemon, address, log)
        yield address
    finally:
        _remove_containers(job, address)
        daemon.terminate()
        try:
            daemon.wait(timeout=30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        remove(data)
        remove(DATA)
        for path in TRACES:
            if path not in before:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
        job.say("the container engine is gone")


def _await_engine(job: Job, daemon: subprocess.Popen[bytes], address: Dict[str, str], log: Path) -> None:
    deadline = time.monotonic() + STARTUP_SECONDS
    environment = {**job.environment, **address}
    while daemon.poll() is None and time.monotonic() < deadline:
        asked = subprocess.run(["docker", "version"], env=environment, capture_output=True, check=False)
        if asked.returncode == 0:
            return
        time.sleep(0.3)
    end = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
    raise StageFailed(f"Cannot start a container engine:\n{end}")


def _remove_containers(job: Job, address: Dict[str, str]) -> None:
    """Remove the containers that carry our label, whoever left them."""
    with contextlib.suppress(StageFailed):
        listed = job.run(["docker", "ps", "-aq", "--filter", f"label={REPOSITORY}"], environment=address, cleanup=True)
        if listed:
            job.run(["docker", "rm", "--force", "--volumes", *listed], environment=address, cleanup=True)


def stop_stale() -> None:
    """Stop an engine that a killed run left, and delete what it held."""
    pid_file = DATA / "run" / "docker.pid"
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text(encoding="utf-8"))
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        # The number may belong to another process by now.
        if os.fsencode(str(pid_file)) in words:
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + STARTUP_SECONDS
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.2)
    remove(DATA)


# --- images -----------------------------------------------------------------------------------------------------------


def images(job: Job, address: Dict[str, str], names: Sequence[str]) -> Dict[str, Future[str]]:
    """Load images, each built when the cache has none. A name is ``SUITE`` or ``SUITE-KIND``.

    Returns the tags, all of them ready; one that could not be made raises ``StageFailed`` where it is asked for.
    """
    # Side by side: much of a build is one process that waits for the mirror or the disk.
    with ThreadPoolExecutor(max_workers=BUILDERS) as pool:
        return {name: pool.submit(_image, job, address, name) for name in names}


def _image(job: Job, address: Dict[str, str], name: str) -> str:
    packages, left_out = packages_of(name), left_out_of(name)
    definition = [name, MIRROR, *packages, *left_out, customize_of(name)]
    digest = hashlib.sha256("\0".join(definition).encode()).hexdigest()[:12]
    archive = IMAGES / f"{name}-{digest}.tar"
    with job.locked(CACHE / "locks" / f"image-{name}", what=f"The image {name}"):
        if not archive.exists():
            _build(job, name, archive, packages=packages, left_out=left_out)
    tag = f"{REPOSITORY}:{name}"
    job.run(["docker", "import", str(archive), tag], environment=address)
    return tag


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
    job.say(f"building the image {archive.name}")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for old in IMAGES.glob(f"{name}-" + "[0-9a-f]" * 12 + ".tar"):
        old.unlink()
    part = archive.with_suffix(".part.tar")
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}", "--dpkgopt=force-unsafe-io"]
    # A mirror that is late with sid is as good here.
    command += ['--aptopt=Acquire::Check-Valid-Until "false"']
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in left_out]
    command += [
        f'--customize-hook=sh -euc {shlex.quote(customize_of(name))} hook "$1"',
        name.partition("-")[0],
        str(part),
    ]
    job.run([*command, MIRROR])
    part.rename(archive)


def name_of(variable: str) -> str:
    """The name of the image that molecule.yml has as an environment variable, such as GPUFLEET_IMAGE_SID_ENGINES."""
    return variable[len("GPUFLEET_IMAGE_") :].lower().replace("_", "-")
