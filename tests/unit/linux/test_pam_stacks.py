# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which sessions pam_limits limits, by the stacks of PAM as distributions have them."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux.pam_stacks import without_limits
from ansible_collections.gpufleet.node.tests.unit.support import build

CONF = "/etc/security/limits.conf"
RUNS = "session    required   pam_limits.so\n"
# The lines that matter of Debian 12: openssh-server, login, util-linux, cron.
DEBIAN = {
    "/etc/pam.d/sshd": f"@include common-auth\naccount required pam_nologin.so\n@include common-session\n{RUNS}",
    "/etc/pam.d/login": f"@include common-session\n# Sets up user limits\n{RUNS}",
    "/etc/pam.d/su": f"{RUNS}@include common-session\n",
    "/etc/pam.d/cron": f"@include common-session-noninteractive\n{RUNS}",
    "/etc/pam.d/common-session": "session [default=1] pam_permit.so\nsession optional pam_systemd.so\n",
    "/etc/pam.d/common-session-noninteractive": "session [default=1] pam_permit.so\n",
    "/etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\n",
}
# Of RHEL 9, where authselect writes the stacks that services share.
RHEL = {
    "/etc/pam.d/sshd": "session    include      password-auth\nsession    include      postlogin\n",
    "/etc/pam.d/login": "session    include      system-auth\n-session   optional     pam_ck_connector.so\n",
    "/etc/pam.d/su": "session\t\tinclude\t\tsystem-auth\n",
    "/etc/pam.d/crond": "session    required   pam_loginuid.so\nsession    include    password-auth\n",
    "/etc/pam.d/system-auth": "session     required      pam_limits.so\nsession required pam_unix.so\n",
    "/etc/pam.d/password-auth": "session     required      pam_limits.so\nsession required pam_unix.so\n",
    "/etc/pam.d/postlogin": "session optional pam_umask.so silent\n",
    "/etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\nSubsystem sftp /usr/libexec/openssh/sftp-server\n",
    "/etc/ssh/sshd_config.d/50-redhat.conf": "UsePAM yes\n",
}
OTHER = "/etc/security/other.conf"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(DEBIAN, [], id="Debian"),
        pytest.param(RHEL, [], id="RHEL"),
        pytest.param({}, [], id="a machine without PAM"),
        pytest.param(
            {**DEBIAN, "/etc/ssh/sshd_config.d/10-site.conf": "UsePAM no\n"},
            ["sshd: /etc/ssh/sshd_config.d/10-site.conf line 1 has UsePAM no"],
            id="the first line of sshd_config counts",
        ),
        pytest.param({**RHEL, "/etc/ssh/sshd_config": 'Include "/etc/ssh/sshd_config.d/*.conf"\n'}, [], id="in quotes"),
        pytest.param(
            {**DEBIAN, "/etc/ssh/sshd_config": "Port 22\n"},
            ["sshd: /etc/ssh/sshd_config does not have UsePAM yes"],
            id="sshd's own default",
        ),
        pytest.param(
            {**DEBIAN, "/etc/ssh/sshd_config": "Match User git\n  UsePAM yes\n"},
            ["sshd: /etc/ssh/sshd_config does not have UsePAM yes"],
            id="what a Match block says is about some alone",
        ),
        pytest.param(
            {**DEBIAN, "/etc/pam.d/cron": "@include common-session-noninteractive\n#session required pam_limits.so\n"},
            ["cron: /etc/pam.d/cron does not run pam_limits.so for sessions"],
            id="a line that is commented out",
        ),
        pytest.param(
            {**DEBIAN, "/etc/pam.d/su": f"auth required pam_limits.so\nsession required pam_limits.so conf={OTHER}\n"},
            [f"su: /etc/pam.d/su gives pam_limits.so another file: conf={OTHER}"],
            id="another file",
        ),
        pytest.param(
            {**DEBIAN, "/etc/pam.d/su": f"session required pam_limits.so conf={OTHER}\n{RUNS}"}, [], id="both files"
        ),
        pytest.param(
            {**DEBIAN, "/etc/pam.d/su": f"session required pam_limits.so conf={CONF} set_all\n"},
            [],
            id="named as it is",
        ),
        pytest.param(
            {**RHEL, "/etc/pam.d/password-auth": "session required pam_unix.so\n"},
            [
                "sshd: /etc/pam.d/sshd does not run pam_limits.so for sessions",
                "crond: /etc/pam.d/crond does not run pam_limits.so for sessions",
            ],
            id="a stack that services share",
        ),
        pytest.param(
            {"/etc/pam.d/su": "session include su\nsession include gone\n"},
            ["su: /etc/pam.d/su does not run pam_limits.so for sessions"],
            id="a stack that includes itself, and one that does not exist",
        ),
        pytest.param(
            {"/usr/lib/pam.d/su": RUNS, "/etc/pam.d/su": "session required pam_unix.so\n"},
            ["su: /etc/pam.d/su does not run pam_limits.so for sessions"],
            id="the administrator's file hides the vendor's",
        ),
        pytest.param(
            {"/etc/pam.d/su": "Session [success=ok \\\n  default=bad] /usr/lib/security/pam_limits.so\n"},
            [],
            id="spelling",
        ),
    ],
)
def test_the_sessions_that_do_not_get_the_limits_are_named(
    tmp_path: Path, files: Dict[str, str], expected: List[str]
) -> None:
    found = without_limits(build(tmp_path, files).files, CONF)
    assert [f"{service}: {why}" for service, why in found] == expected
