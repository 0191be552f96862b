#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_runtime
short_description: The NVIDIA runtime in container engines
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Configures the NVIDIA runtime and CDI in Docker, containerd, CRI-O, Podman and Apptainer, along with the NVIDIA
    Container Toolkit and the CDI specification, in one call for the machine, and compares them with what the daemons
    report.
  - Only what is declared is compared and changed. Keys, comments, order, indentation and line ends of others stay. If
    an engine reads drop-in files, the module writes one of its own, with at most one line in the main file that imports
    it.
  - Before any file is written, the new texts of all files are parsed as the engines parse them, and validated by the
    engine's own program if it is installed (C(dockerd --validate), C(containerd config dump), C(crio config), C(podman
    info)). Texts that do not amount to the declaration are refused, for all engines of the call. Docker
    19.03 and 20.10 have no C(--validate), so keys of C(daemon.json) with which they do not start are refused as well,
    and so are files that the installed release of containerd cannot read.
  - Files that are as declared are validated as well if the daemon has not started with them yet, C(daemon.json) if it
    has keys that not every release of Docker knows. If the daemon does not start with them, its C(next start) has
    drifted, and the run fails, because only the owner of the file can correct that.
  - Files are replaced atomically, and in such an order that a run that is killed leaves files that the engine accepts.
    The files that were found are kept in C(/var/lib/gpufleet/), and those with which the daemon was last healthy in
    C(/run/gpufleet/).
  - This module never restarts an engine. RV(needs) says whether a daemon must be reloaded or restarted to load its
    files, on every run until the daemon reports their values; P(gpufleet.node.container_engine_restart#module) does
    that, and the role P(gpufleet.node.container_runtime#role) calls it.
  - An engine that is not installed is listed in RV(unmanaged).
  - With O(state=absent), every file that was not edited since is restored byte for byte, and otherwise the values
    from before the first change are restored, even where someone else has changed them since. Everything else that
    others wrote stays. What their files, such as C(99-nvidia.toml) of C(nvidia-ctk), still set is listed in
    RV(conflicts) and RV(unmanaged). The original is restored even where the engine's own program rejects it; the change
    says so.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: partial
    details: >-
      C(dockerd --validate) validates the file in check mode too, if the module runs as root. Other engines validate
      only files that were written, so what only they refuse fails only in a real run, as does a runtime that is not
      installed by then.
options:
  engines:
    description:
      - The engines, each at most once. One that is not named is left as it is.
    type: list
    elements: dict
    default: []
    suboptions:
      engine:
        description:
          - The engine. V(containerd) is the one that runs pods, including that of k3s, RKE2, k0s and MicroK8s, by the
            templates and folders that these read.
        type: str
        choices: [docker, containerd, crio, podman, apptainer]
        required: true
      state:
        description:
          - With V(absent) the runtime of this name is removed, whoever added it, and is not the default one. Such an
            entry can have no other setting except O(engines[].bind_paths), which are removed too.
          - A containerd drop-in that is not ours is left to its owner. The run removes what is ours, names the file and
            the line in RV(conflicts), and fails; where nothing is ours, it changes nothing.
        type: str
        choices: [present, absent]
        default: present
      runtime_name:
        description:
          - How containers ask for the runtime, as in C(docker run --runtime nvidia).
        type: str
        default: nvidia
      runtime_path:
        description:
          - The program, as a path without blanks and commas. It must be there; the default one may come in the same
            run, with the role P(gpufleet.node.container_toolkit#role).
        type: path
        default: /usr/bin/nvidia-container-runtime
      default:
        description:
          - Whether containers that ask for no runtime get this one. With V(false) it is not this one; another default
            stays. If not given, it is left alone.
        type: bool
      cdi:
        description:
          - Whether the engine looks up CDI devices, such as C(nvidia.com/gpu=0). If not given, it is left alone.
        type: bool
      systemd_cgroup:
        description:
          - For containerd, whether the runtime manages cgroups through systemd (C(SystemdCgroup)). It must match the
            kubelet's cgroup driver. If not given, it is the value of the runtime that pods use by default. It is always
            written.
        type: bool
      base_runtime_spec:
        description:
          - For containerd, the JSON file with the base OCI specification of this runtime's containers, which is where
            EKS sets their resource limits. This key and those below default to the values of the default runtime,
            unless someone else wrote this runtime. An empty value, V(0) and V(false) mean that the key is not set.
        type: path
      privileged_without_host_devices:
        description:
          - For containerd, whether privileged containers get none of the host's devices.
        type: bool
      privileged_without_host_devices_all_devices_allowed:
        description:
          - For containerd, whether privileged containers may still access all devices.
          - Requires O(engines[].privileged_without_host_devices).
        type: bool
      cgroup_writable:
        description:
          - For containerd 2.1 and newer, whether containers may write to their cgroups.
        type: bool
      pod_annotations:
        description:
          - For containerd, the pod annotations that are passed to the runtime, as patterns.
        type: list
        elements: str
      container_annotations:
        description:
          - For containerd, the container annotations that are passed to the runtime, as patterns.
        type: list
        elements: str
      cni_conf_dir:
        description:
          - For containerd, the folder with the CNI configuration of this runtime's pods.
        type: path
      cni_max_conf_num:
        description:
          - For containerd, the maximum number of CNI configuration files to load from that folder.
        type: int
      snapshotter:
        description:
          - For containerd 1.7 and newer, the snapshotter of this runtime's containers.
        type: str
      sandboxer:
        description:
          - For containerd 2.0 and newer, the sandbox controller of this runtime.
        type: str
      io_type:
        description:
          - For containerd 2.0 and newer, how the output of containers is transported.
        type: str
        choices: [fifo, streaming]
      runc_root:
        description:
          - For containerd, the folder where runc keeps its state (C(Root)).
        type: path
      no_pivot_root:
        description:
          - For containerd, whether runc enters the root filesystem without C(pivot_root) (C(NoPivotRoot)), as on a
            RAM disk.
        type: bool
      no_new_keyring:
        description:
          - For containerd, whether containers inherit the session keyring instead of getting one of their
            own (C(NoNewKeyring)).
        type: bool
      shim_cgroup:
        description:
          - For containerd, the cgroup of the shim processes (C(ShimCgroup)).
        type: str
      io_uid:
        description:
          - For containerd, the user ID that owns the I/O pipes (C(IoUid)).
        type: int
      io_gid:
        description:
          - For containerd, the group ID that owns the I/O pipes (C(IoGid)).
        type: int
      criu_path:
        description:
          - For containerd 1.x, the path of the C(criu) program (C(CriuPath)). Newer versions ignore it.
        type: path
      criu_image_path:
        description:
          - For containerd, the folder for CRIU images (C(CriuImagePath)).
        type: path
      criu_work_path:
        description:
          - For containerd, CRIU's working folder (C(CriuWorkPath)).
        type: path
      default_ulimits:
        description:
          - For Docker, the limits of all containers by name, such as C(memlock). Each is a number for both, or C(soft)
            and C(hard). C(-1) is unlimited. Limits that are not named stay.
        type: dict
      default_shm_size:
        description:
          - For Docker, the size of C(/dev/shm) of all containers, such as V(8g).
        type: str
      live_restore:
        description:
          - For Docker, whether containers keep running while the daemon is down.
        type: bool
      data_root:
        description:
          - For Docker, the folder of images and containers. The contents of the previous folder are not moved.
        type: path
      exec_opts:
        description:
          - For Docker, the complete list of options such as V(native.cgroupdriver=systemd).
        type: list
        elements: str
      use_nvidia_container_cli:
        description:
          - For Apptainer, whether C(--nv) uses C(nvidia-container-cli). With O(engines[].default), every container gets
            the GPUs as with C(--nv).
        type: bool
      bind_paths:
        description:
          - For Apptainer, paths that are mounted into every container, as C(SOURCE), C(SOURCE:TARGET) or
            C(SOURCE:TARGET:OPTIONS). Other paths stay.
        type: list
        elements: str
  toolkit:
    description:
      - Keys of C(/etc/nvidia-container-runtime/config.toml), nested or dotted, such as
        C(nvidia-container-runtime.mode). Null means that the key is absent, and equals its default. Other keys stay as
        they are.
      - An unknown key is written as it is, unless it is close to a known one.
    type: dict
    default: {}
  cdi:
    description:
      - What is done about CDI specifications.
    type: dict
    suboptions:
      refresh:
        description:
          - Whether the specification of the GPUs is regenerated if it is missing, was generated for another driver, or
            names GPUs or MIG instances that do not exist. This is done by C(nvidia-cdi-refresh.service) if it is
            installed, and by C(nvidia-ctk) otherwise.
        type: bool
        default: false
      remove_duplicates:
        description:
          - Whether NVIDIA's files in C(/etc/cdi) are removed if a generated specification in C(/var/run/cdi) defines
            the same devices.
        type: bool
        default: false
      remove_oci_hooks:
        description:
          - Whether OCI hooks of older releases are removed, because they inject the GPUs a second time.
        type: bool
        default: false
seealso:
  - module: gpufleet.node.container_engine_restart
  - module: gpufleet.node.gpu_node_info
  - name: NVIDIA Container Toolkit
    description: What the runtime does, and the keys of its configuration.
    link: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/index.html
  - name: dockerd
    description: The keys of daemon.json, and which of them a reload applies.
    link: https://docs.docker.com/reference/cli/dockerd/
  - name: containerd-config.toml(5)
    description: The configuration of containerd and its versions.
    link: https://github.com/containerd/containerd/blob/main/docs/man/containerd-config.toml.5.md
  - name: Container Device Interface
    description: What a specification is.
    link: https://github.com/cncf-tags/container-device-interface
"""

EXAMPLES = r"""
- name: The NVIDIA runtime in Docker, by default, for jobs that lock memory
  gpufleet.node.container_runtime:
    engines:
      - engine: docker
        default: true
        cdi: true
        live_restore: true
        default_shm_size: 8g
        default_ulimits:
          memlock: -1
          nofile: {soft: 65536, hard: 1048576}

- name: A Kubernetes node on which unprivileged containers cannot get GPUs by an environment variable
  gpufleet.node.container_runtime:
    engines:
      - engine: containerd
        default: true
        cdi: true
        systemd_cgroup: true
    toolkit:
      accept-nvidia-visible-devices-envvar-when-unprivileged: false
      accept-nvidia-visible-devices-as-volume-mounts: true

- name: Podman by CDI alone
  gpufleet.node.container_runtime:
    engines:
      - engine: podman
        cdi: true
    cdi:
      refresh: true
      remove_duplicates: true
      remove_oci_hooks: true

- name: Restore what was there before
  gpufleet.node.container_runtime:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description: What was found before the run, one of C(in_sync), C(drifted) and C(pending).
  returned: success
  type: str
  sample: drifted
changes:
  description: The plan, which check mode and real mode share.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The engine, C(toolkit), C(cdi), or a file.
      type: str
      sample: docker
    setting:
      description: What is set on it, such as C(runtime NAME), C(default_runtime) or a key of the toolkit.
      type: str
      sample: runtime nvidia
    before:
      description: The value that was found.
      type: raw
      sample: null
    after:
      description: The value that is wanted; null is what the engine decides itself.
      type: raw
      sample: /usr/bin/nvidia-container-runtime
    scope:
      description:
        - C(boot) for the values of the files, which take effect at the next start of a daemon, C(effective)
          for those in effect. The files of an engine without a daemon are both.
      type: str
      sample: boot
    takes_effect:
      description: Always C(now); for a daemon see RV(needs).
      type: str
      sample: now
needs:
  description:
    - What must still happen, as C(reload_ENGINE) or C(restart_ENGINE), such as C(restart_docker).
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: [reload_docker]
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description: What was declared and is not installed here, or cannot be restored, with the reason.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The engine, C(toolkit), C(cdi), or a file.
      type: str
      sample: crio
    setting:
      description: The setting that is not applied.
      type: str
      sample: runtime nvidia
    reason:
      description: Why.
      type: str
      sample: it is not installed
conflicts:
  description:
    - Always empty. Another owner of a setting is an error before any change, which names the place.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Who it is, such as C(sysctl.d), C(tuned) or C(kernel command line).
      type: str
    path:
      description: The file.
      type: str
    line:
      description: The line in it, where there is one.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets.
      type: str
    value:
      description: The value it sets.
      type: str
    wins:
      description: Whose value stays in the end. One of C(us), C(them) and C(unknown).
      type: str
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
  sample: []
reboot_required:
  description: Whether RV(needs) has a reboot; always false.
  returned: always, unless the declaration was refused
  type: bool
  sample: false
reboot_reasons:
  description: Why; always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: []
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description:
        - C(declaration), C(conflict), C(not_permitted), C(refused), C(not_in_effect) or C(cannot_look).
      type: str
      sample: declaration
    object:
      description: What it was about.
      type: str
      sample: docker
    found:
      description: The value that was found.
      type: raw
      sample: crun
    wanted:
      description: The value that was wanted.
      type: raw
      sample: nvidia
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The settings in effect, as the daemons report them.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    engines:
      description: By the name of the engine.
      type: dict
      contains:
        flavour:
          description: >-
            The product that ships the engine, such as C(k3s) or C(snap); null for the distribution's package.
          type: str
          sample: null
        version:
          description: As the daemon reports it; null if none does.
          type: str
          sample: 28.5.2
        running:
          description: Whether a daemon runs.
          type: bool
          sample: true
        containers:
          description: How many containers run in it; null if no daemon reports it.
          type: int
          sample: 3
        settings:
          description: All settings that are known of the daemon, or of the files where none runs.
          type: dict
          sample: {"runtime nvidia": /usr/bin/nvidia-container-runtime, "default_runtime": "nvidia"}
        takes:
          description: What the daemon needs to load the declaration, C(reload), C(restart), or null for nothing.
          type: str
          sample: restart
        why:
          description: Why.
          type: str
          sample: dockerd turns CDI on or off only when it starts
        stops_containers:
          description:
            - How many containers would end with a restart now. Only Docker without live restore in its file ends any.
          type: int
          sample: 3
      sample: {}
    toolkit:
      description: The file of the toolkit, where it is declared, as in RV(boot.toolkit).
      type: dict
    cdi:
      description: The CDI specifications, where they are declared, as in RV(boot.cdi).
      type: dict
boot:
  description: The values of the files, which take effect at the next start of an engine.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    engines:
      description: By the name of the engine.
      type: dict
      contains:
        files:
          description: The files that it reads, in their order.
          type: list
          elements: str
          sample: [/etc/docker/daemon.json]
        settings:
          description: What they mean together.
          type: dict
          sample: {"runtime nvidia": /usr/bin/nvidia-container-runtime}
    toolkit:
      description: The file of the toolkit and its keys.
      type: dict
      sample: {"files": [/etc/nvidia-container-runtime/config.toml], "settings": {"disable-require": "false"}}
    cdi:
      description: The files of CDI, and what is wrong with them.
      type: dict
      sample: {"files": [/var/run/cdi/nvidia.yaml], "settings": {"duplicates": "none", "oci hooks": "none"}}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
