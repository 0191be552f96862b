#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_tools
short_description: The command gpufleet on the node, and the service that runs it at boot
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Installs the command C(gpufleet), a single Python file that needs no Ansible, as
    C(/var/lib/gpufleet/program/gpufleet.pyz), and C(/usr/local/sbin/gpufleet), which starts it. If C(/usr/local) is
    read-only, start it with C(/bin/sh /var/lib/gpufleet/program/gpufleet). C(gpufleet status) compares what is
    declared, in effect and due at the next boot, like an audit, for whoever is logged in.
  - Installs and enables C(gpufleet-boot.service), which applies at boot what no mechanism of the operating system
    carries across a reboot, such as clocks and power limits of GPUs. It starts after the driver and before the services
    that hand GPUs out. Each concern has its own time, and a failure of one does not stop the others.
  - The file is sent only if the node has a different one. It is built from the installed collection, and the same
    release gives the same file on every controller.
  - systemd is reloaded only if it has the old text of the boot service in memory, and never while containers would lose
    their GPUs by it. The setting is then V(pending), and RV(needs) has C(daemon-reload) until a reload or the next
    boot.
  - The service is never started, stopped or restarted by this module. With O(boot_failure=hold) stopping it by hand
    stops the services that wait for it as well. C(gpufleet boot) does the same work without systemd.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
attributes:
  action:
    description: Has an action plugin, so that part of it runs on the controller.
    support: full
    details: It builds the archive, and sends it to the nodes that need it.
options:
  archive_sha256:
    description:
      - The SHA-256 sum of the archive that the node must have. The action plugin fills it in. It is for
        M(gpufleet.node.node_state), which gets it from the lookup P(gpufleet.node.node_archive#lookup).
    type: str
  archive:
    description:
      - Where the archive was put on the node. Only the action plugin sets it.
    type: path
  boot_failure:
    description:
      - What happens to the services in O(boot_before) if a declaration could not be applied at boot. With V(continue)
        they start anyway. With V(hold) they do not.
    type: str
    choices: [continue, hold]
    default: continue
  boot_before:
    description:
      - The services that wait at boot until the declarations are applied. Services that a node does not have are
        ignored. Sockets and targets cannot wait, because they start before all services.
    type: list
    elements: str
    default:
      - nvidia-cdi-refresh.service
      - nvidia-dcgm.service
      - nvidia-dcgm-exporter.service
      - dcgm-exporter.service
      - docker.service
      - containerd.service
      - crio.service
      - podman.service
      - kubelet.service
      - k3s.service
      - k3s-agent.service
      - rke2-server.service
      - rke2-agent.service
      - slurmd.service
      - libvirtd.service
      - virtqemud.service
  boot_timeout:
    description:
      - How many seconds all declarations together may take at boot, from 10 to 3600.
    type: int
    default: 300
seealso:
  - plugin: gpufleet.node.node_archive
    plugin_type: lookup
  - name: systemd.unit(5)
    description: Ordering, requirements and drop-ins.
    link: https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html
"""

EXAMPLES = r"""
- name: Install the command and the boot service
  gpufleet.node.node_tools:

- name: Start no container and no job when the GPUs are not as declared
  gpufleet.node.node_tools:
    boot_failure: hold
    boot_before:
      - docker.service
      - slurmd.service

- name: Only the command
  gpufleet.node.node_tools:
    permanent: false

- name: Remove both
  gpufleet.node.node_tools:
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
      description: The file or the unit.
      type: str
      sample: /var/lib/gpufleet/program/gpufleet.pyz
    setting:
      description:
        - C(archive), C(bytecode), C(launcher) (the script in C(/var/lib/gpufleet/program)), C(command)
          (the script in C(/usr/local/sbin)), C(unit), C(enabled), C(mode and owner) or C(declaration).
      type: str
      sample: archive
    before:
      description: What was found; of an archive the first digits of its sum.
      type: raw
      sample: 3b7e1d09c2aa
    after:
      description: What was declared.
      type: raw
      sample: 91f00c4d27be
    scope:
      description: C(effective) for the command, C(boot) for the service.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
needs:
  description:
    - What must still happen; C(daemon-reload) when systemd could not be told of a changed unit yet.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: []
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description: What could not be set; always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: What the setting was declared for.
      type: str
    setting:
      description: The setting that it does not have, or that is not restored.
      type: str
    reason:
      description: Why.
      type: str
  sample: []
conflicts:
  description: What drop-ins of others change of the boot service.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Always C(systemd drop-in).
      type: str
      sample: systemd drop-in
    path:
      description: The file.
      type: str
      sample: /etc/systemd/system/gpufleet-boot.service.d/site.conf
    line:
      description: Always null.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: Section and key.
      type: str
      sample: Service.TimeoutStartSec
    value:
      description: The value it sets.
      type: str
      sample: 20min
    wins:
      description: Always C(them).
      type: str
      sample: them
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
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
      sample: boot_before
    found:
      description: The value that was found.
      type: raw
      sample: docker.socket
    wanted:
      description: The value that was wanted.
      type: raw
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The command on the node.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    archive_sha256:
      description: The sum of the archive, null where there is none.
      type: str
    interpreter:
      description: The Python that runs it; null if the command does not exist or is not that of this collection.
      type: str
      sample: /usr/bin/python3
boot:
  description: The boot service.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    service:
      description: C(enabled), C(disabled) or C(masked), and what else has a link to it.
      type: str
      sample: enabled
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.node.plugins.module_utils._node.module import answer
from ansible_collections.gpufleet.node.plugins.module_utils._node.sent_file import (
    arguments_with,
    ask_where_lacking,
    finish_or_ask,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools.concern import (
    CONCERN,
    NodeTools,
    lacks_archive,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools.options import SENT


def main() -> None:
    module = AnsibleModule(**arguments_with(CONCERN, SENT))
    # What was sent along is no part of what is declared, and no file of a recorded tree.
    path = module.params.pop("archive")
    if path is None:
        ask_where_lacking(module, lacks_archive)
    try:
        sent = Path(path).read_bytes() if path else None
    except OSError as error:
        module.fail_json(msg=f"Cannot read the archive that was sent in {path}: {error.strerror}.")
    finish_or_ask(module, answer(module, NodeTools(sent)))


if __name__ == "__main__":
    main()
