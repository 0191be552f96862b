# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tokens without a telling name are not shown in differences of files, and what operators compare is."""

from __future__ import annotations

import json
import string
from pathlib import Path
from random import Random
from typing import Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import ReplaceFile, Step
from ansible_collections.gpufleet.node.plugins.module_utils._core.file_diff import file_diffs, masked
from ansible_collections.gpufleet.node.plugins.module_utils._core.tokens import MASKED, without_tokens
from ansible_collections.gpufleet.node.tests.unit.support import build
from hypothesis import given
from hypothesis import strategies as st

WORD = string.ascii_letters + string.digits
SLUG = f"{WORD}-_"
BASE64 = f"{WORD}+/"
LOWER = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"
BASE32 = f"{string.ascii_uppercase}234567"

# What comes before the random part, its alphabet and its length, by the rule of gitleaks (config/gitleaks.toml, commit
# b58d3f102cf3), or of trufflehog for the last ones. Made here: a scanner of repositories would find whole tokens.
RULES: Mapping[str, Tuple[str, str, int]] = {
    "1password-service-account-token": ("ops_" + "eyJ", BASE64, 250),
    "adobe-client-secret": ("p8e" + "-", LOWER, 32),
    "alibaba-access-key-id": ("LT" + "AI", LOWER, 20),
    "anthropic-api-key": ("sk-" + "ant-api03-", SLUG, 93),
    "artifactory-api-key": ("AK" + "Cp", WORD, 69),
    "artifactory-reference-token": ("cm" + "Vmd", WORD, 59),
    "aws-access-token": ("AK" + "IA", BASE32, 16),
    "aws-access-token of a session": ("AS" + "IA", BASE32, 16),
    "aws-amazon-bedrock-api-key-long-lived": ("AB" + "SK", BASE64, 109),
    "clickhouse-cloud-api-secret-key": ("4b" + "1d", WORD, 38),
    "clojars-api-token": ("CLOJARS" + "_", LOWER, 60),
    "databricks-api-token": ("da" + "pi", HEX, 32),
    "digitalocean-pat": ("dop" + "_v1_", HEX, 64),
    "doppler-api-token": ("dp" + ".pt.", LOWER, 43),
    "duffel-api-token": ("duffel" + "_live_", SLUG, 43),
    "dynatrace-api-token": ("dt0" + "c01.", LOWER, 24),
    "easypost-api-token": ("EZ" + "AK", LOWER, 54),
    "facebook-page-access-token": ("EA" + "AC", LOWER, 100),
    "flutterwave-secret-key": ("FLWSECK" + "_TEST-", "abcdefgh0123456789", 32),
    "flyio-access-token": ("fo" + "1_", SLUG, 43),
    "frameio-api-token": ("fio" + "-u-", SLUG, 64),
    "gcp-api-key": ("AI" + "za", SLUG, 35),
    "github-app-token": ("gh" + "s_", WORD, 36),
    "github-fine-grained-pat": ("github" + "_pat_", WORD, 82),
    "github-oauth": ("gh" + "o_", WORD, 36),
    "github-pat": ("gh" + "p_", WORD, 36),
    "github-refresh-token": ("gh" + "r_", WORD, 36),
    "gitlab-cicd-job-token": ("glcbt" + "-1_", SLUG, 20),
    "gitlab-deploy-token": ("gl" + "dt-", SLUG, 20),
    "gitlab-kubernetes-agent-token": ("gl" + "agent-", SLUG, 50),
    "gitlab-pat": ("gl" + "pat-", SLUG, 20),
    "gitlab-ptt": ("gl" + "ptt-", HEX, 40),
    "gitlab-rrt": ("GR13" + "48941", SLUG, 20),
    "gitlab-runner-authentication-token": ("gl" + "rt-", SLUG, 20),
    "gitlab-session-cookie": ("_gitlab" + "_session=", LOWER, 32),
    "grafana-cloud-api-token": ("gl" + "c_", BASE64, 32),
    "grafana-service-account-token": ("gl" + "sa_", WORD, 32),
    "heroku-api-key-v2": ("HRKU" + "-AA", SLUG, 58),
    "huggingface-access-token": ("h" + "f_", string.ascii_letters, 34),
    "huggingface-organization-api-token": ("api" + "_org_", string.ascii_letters, 34),
    "infracost-api-token": ("ic" + "o-", WORD, 32),
    "jwt": ("ey" + "Jh", SLUG, 34),
    "jwt-base64": ("ZX" + "lKaGJHY2lPaU", BASE64, 60),
    "linear-api-key": ("lin" + "_api_", LOWER, 40),
    "notion-api-token": ("nt" + "n_", WORD, 46),
    "npm-access-token": ("np" + "m_", LOWER, 36),
    "octopus-deploy-api-key": ("AP" + "I-", string.ascii_uppercase + string.digits, 26),
    "openai-api-key": ("sk-" + "proj-", SLUG, 74),
    "openai-api-key of the first form": ("sk" + "-", WORD, 48),
    "openshift-user-token": ("sha256" + "~", SLUG, 43),
    "perplexity-api-key": ("pp" + "lx-", WORD, 48),
    "planetscale-password": ("pscale" + "_pw_", SLUG, 32),
    "postman-api-token": ("PM" + "AK-", HEX, 24),
    "prefect-api-token": ("pn" + "u_", WORD, 36),
    "pulumi-api-token": ("pu" + "l-", HEX, 40),
    "pypi-upload-token": ("pypi-" + "AgEIcHlwaS5vcmc", SLUG, 60),
    "readme-api-token": ("rd" + "me_", LOWER, 70),
    "rubygems-api-token": ("ruby" + "gems_", HEX, 48),
    "scalingo-api-token": ("tk" + "-us-", SLUG, 48),
    "sendgrid-api-token": ("S" + "G.", SLUG, 66),
    "sendinblue-api-token": ("xkey" + "sib-", HEX, 64),
    "sentry-user-token": ("snt" + "ryu_", HEX, 64),
    "settlemint-personal-access-token": ("sm" + "_pat_", WORD, 16),
    "shippo-api-token": ("shippo" + "_live_", HEX, 40),
    "shopify-access-token": ("shp" + "at_", HEX, 32),
    "slack-app-token": ("xapp" + "-1-", WORD, 20),
    "slack-bot-token": ("xox" + "b-", string.digits, 12),
    "slack-legacy-workspace-token": ("xox" + "a-", WORD, 8),
    "slack-webhook-url": ("hooks" + ".slack.com/services/", BASE64, 44),
    "sourcegraph-access-token": ("sg" + "p_", HEX, 40),
    "square-access-token": ("sq0" + "atp-", SLUG, 22),
    "stripe-access-token": ("rk" + "_live_", WORD, 10),
    "twilio-api-key": ("S" + "K", HEX, 32),
    "vault-batch-token": ("hv" + "b.", SLUG, 138),
    "vault-service-token": ("hv" + "s.", SLUG, 90),
    "trufflehog: nvapi": ("nv" + "api-", SLUG, 64),
    "trufflehog: dockerhub": ("dckr" + "_pat_", SLUG, 27),
}
# Where a token stands without a name that says so.
LINES = {
    "json": '  "registry": "{}",',
    "yaml": "addr: {} # of the mirror",
    "ini": "url={}",
    "shell": "export NGC='{}'",
    "list": "- {}",
    "argument": "ExecStart=/usr/bin/x --with {} --and y",
    "address": "https://h.example/v2/{}/x?y=1",
    "query": "https://h.example/?q={}&y=1",
    "escaped": '"text": "a\\n{}\\n"',
    "comment": "# was {} until May",
    "header": "X-Thing: {}",
}
LINE_FORMS = st.sampled_from(sorted(LINES.values()))
DIGEST = "3f786850e387550fdab836ed7e6dc881de23001b9ab2f4c1d0a6e5b7c8d90e1f"
MACHINE = "3d1219c7c4c5404aaa1f6d2a48adfda4"
UUID = "8f3c1a2b-77d4-4c1e-9b1a-0123456789ab"
SHOWN = (
    f'"image": "nvcr.io/nvidia/k8s/dcgm-exporter@sha256:{DIGEST}",',
    f"sha256: {DIGEST}",
    f"sha512-{DIGEST}{DIGEST}",
    f"checksum = {DIGEST}",
    f"roothash={DIGEST} systemd.verity=1",
    f"ostree=/ostree/boot.1/default/{DIGEST}/0 ro",
    f"title Linux\nmachine-id {MACHINE}\nlinux /{MACHINE}/6.8.0-45-generic/linux",
    f"initrd /EFI/Linux/{MACHINE}-6.8.0-45-generic.efi",
    f"systemd.machine_id={MACHINE}",
    f"GPU-{UUID}",
    f"MIG-GPU-{UUID}/7/0",
    f"CUDA_VISIBLE_DEVICES=GPU-{UUID},MIG-{UUID}",
    f"UUID={UUID} / ext4 defaults 0 1",
    f"root=PARTUUID={UUID} rd.luks.uuid=luks-{UUID}",
    f"nqn.2014-08.org.nvmexpress:uuid:{UUID}",
    "nqn.1994-11.com.samsung:nvme:PM1733:2.5-inch:S4YNNE0N123456",
    "vfio-pci.ids=10de:2330 pci=0000:17:00.0,0000:3d:00.0",
    "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/nvme/nvme0/nvme0n1/queue/read_ahead_kb",
    "/dev/disk/by-id/nvme-SAMSUNG_MZQL23T8HCLS-00A07_S64HNE0R500123 /scratch xfs noatime 0 2",
    "/dev/disk/by-id/nvme-eui.36344830525001230025384e00000001",
    "/dev/disk/by-id/dm-uuid-LVM-q3Xz0R7aVb1TnK5sYw9eJd2LgM4hUf6cP8oQiBrZxWyEtNuGvCmSlDkHjFaIpOq1",
    'wwid "3600508b400105e210000900000490000"',
    "options nvidia NVreg_S0ixPowerManagementVideoMemoryThreshold=256 NVreg_RestrictProfilingToAdminUsers=0",
    'options nvidia NVreg_RegistryDwords="RMNvLinkSpeedControl=0x1;PeerMappingOverride=1"',
    "irqaffinity=ffffffffffffffffffffffffffffffff,00000000000000000000000000000fff",
    "BOOT_IMAGE=/vmlinuz-6.8.0-45-generic root=/dev/mapper/ubuntu--vg-ubuntu--lv iommu=pt",
    "featureGates: {CPUManagerPolicyAlphaOptions: true, TopologyManagerPolicyBetaOptions: true}",
    "LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/nvidia/current:/usr/local/cuda-12.4/targets/x86_64-linux/lib",
    "nvmlDeviceGetHandleByPciBusId_v2 nvidia-container-runtime-experimental-configuration-file-name",
    "npm_config_registry_something_long=1 s.some.thing hf_hub_disable_progress_bars_everywhere=1",
)


def token_of(rule: str, seed: object = 0) -> Tuple[str, str]:
    """A token, and the part of it that nobody may see."""
    start, alphabet, length = RULES[rule]
    random = Random(f"{rule} {seed}")
    body = "".join(random.choice(alphabet) for _count in range(length))
    return f"{start}{body}", body


@pytest.mark.parametrize("form", LINES.values(), ids=LINES.keys())
@pytest.mark.parametrize("rule", RULES)
def test_a_token_of_a_known_shape_is_not_shown_wherever_it_stands(rule: str, form: str) -> None:
    token, body = token_of(rule)
    (line,) = masked(form.format(token))
    assert body not in line
    # What stands before it is.
    assert line.startswith(form.partition("{}")[0])


@given(st.sampled_from(sorted(RULES)), st.integers(0, 1 << 32), LINE_FORMS)
def test_no_token_of_a_known_shape_is_shown(rule: str, seed: int, form: str) -> None:
    token, body = token_of(rule, seed)
    assert body not in masked(form.format(token))[0]


@given(st.sampled_from([BASE64, SLUG, WORD, HEX, LOWER]), st.integers(80, 200), st.integers(0, 1 << 32), LINE_FORMS)
def test_a_long_random_text_is_not_shown(alphabet: str, length: int, seed: int, form: str) -> None:
    random = Random(seed)
    text = "".join(random.choice(alphabet) for _count in range(length))
    line = without_tokens(form.format(text))
    # Its end may be behind a character that ends it.
    assert not any(text[start : start + 24] in line for start in range(length - 24))


@pytest.mark.parametrize(
    "text",
    ["AbC1dEf2GhI3jKl4MnO5pQr6StU7vWx8", "q8fz3k1m0x7v2c9b4n6a5s8d7f3g1h2j", DIGEST, DIGEST.upper(), DIGEST[:32]],
)
@pytest.mark.parametrize("form", LINES.values(), ids=LINES.keys())
def test_32_random_characters_are_not_shown(text: str, form: str) -> None:
    assert text not in without_tokens(form.format(text))


@pytest.mark.parametrize("text", SHOWN)
def test_what_operators_compare_is_shown(text: str) -> None:
    assert masked(text) == text.split("\n")


def test_planted_secrets_appear_in_no_difference_whether_their_lines_change_or_not(tmp_path: Path) -> None:
    bodies = []
    before, after = {}, {}
    for rule in RULES:
        texts = []
        for seed in ("context", "before", "after"):
            token, body = token_of(rule, seed)
            bodies.append(body)
            texts.append(json.dumps(f"x {token} y"))
        context, old, new = texts
        before[f"/etc/x/{rule}"] = f"a: 1\nb: {context}\nc: {old}\nd: 1\n"
        after[f"/etc/x/{rule}"] = f"a: 2\nb: {context}\nc: {new}\nd: 2\n"
    steps = [Step(ReplaceFile(path, text)) for path, text in after.items()]
    found = file_diffs(steps, build(tmp_path, before).files)
    # Nothing is left of any, so that what changes is equal too.
    lines = ["-a: 1", "+a: 2", f' b: "x {MASKED} y"', f' c: "x {MASKED} y"', "-d: 1", "+d: 2"]
    assert {one["path"]: one["diff"].splitlines()[3:] for one in found} == dict.fromkeys(before, lines)
    assert [body for body in bodies if any(body in one["diff"] for one in found)] == []
