# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets that no name announces: tokens that are known by their shape, and long random texts.

What operators compare stays: digests of images, UUIDs, PCI addresses, WWNs, commits, and machine IDs in names of files.
"""

from __future__ import annotations

import re

MASKED = "********"
LONG = 32
# The shapes of gitleaks (config/gitleaks.toml of github.com/gitleaks/gitleaks, commit b58d3f102cf3) that need no name
# before them; of NVIDIA and Docker Hub those of trufflehog (pkg/detectors/nvapi, pkg/detectors/dockerhub/v2).
_TOKEN = re.compile(
    r"""(?x) (?: (?<![A-Za-z0-9]) | (?<=\\[nrt]) | (?<=%[0-9A-Fa-f]{2}) )
    (?:
      (?: A3T[A-Z0-9] | AKIA | ASIA | ABIA | ACCA )[A-Z2-7]{16}
    | (?: gh[oprsu]_ | github_pat_ | dckr_[po]at_ | nvapi- | _gitlab_session=
        | gl(?: agent | cbt | dt | ffct | ft | imt | oas | pat | ptt | rt | soat )- | GR1348941
        | xox[a-z][.-] | xapp-[0-9]- | sk-(?: ant | proj | svcacct | admin )- | [rs]k_(?: live | prod | test )_
        | hv[bs]\. | gl(?: c | sa )_ | sq0atp- | pypi-AgE | dp\.pt\. | dt0c01\. | SG\. | fo1_ | fm[12][ar]?_ | ops_eyJ
        | pscale_(?: oauth | pw | tkn )_ | duffel_(?: live | test )_ | sgp_ | sntrys_ | sntryu_ | HRKU-AA | fio-u-
        | tk-us- | do[opr]_v1_ | sm_[aps]at_ | shippo_(?: live | test )_ | v1\.0-(?= [0-9a-f]{24}- )
        | FLW(?: PUB | SEC )K_TEST- | sha256~ | s-s4t2(?: af | ud )- | PMAK- | bedrock-api-key-
        )[\w.=+/%~-]{8,}
    | (?: hf_ | api_org_ | npm_ | pnu_ | lin_api_ | ntn_ | rdme_ | rubygems_ | shp(?: at | ca | pa | ss )_ | xkeysib-
        | pul- | ico- | pplx- | sk- | p8e- | LTAI | AKCp | cmVmd | EZ[AT]K | EAA[ACM] | CLOJARS_
        )[A-Za-z0-9]{20,}[\w=+/-]*
    | AIza[\w-]{30,} | ABSK[A-Za-z0-9+/]{60,}={0,2} | (?: SK | dapi )[0-9a-fA-F]{32}(?:-[0-9])?
    | s\.(?= [A-Za-z]*[0-9] )[A-Za-z0-9]{24}(?![\w.]) | 4b1d[A-Za-z0-9]{38}(?![A-Za-z0-9])
    | API-[A-Z0-9]{26} | A3-[A-Z0-9]{6}(?: -[A-Z0-9]{5,11} ){3,4}
    | [\w.~-]{3}[0-9]Q~[\w.~-]{31,34} | [A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,} | [A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk
    | pat[A-Za-z0-9]{14}\.[a-f0-9]{64} | [ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}
    | (?: sc | ext | scauth | authress )_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[\w.=+/-]{40,}
    | (?: eyJ | ZXlK )[\w+/-]{16,}(?: [.=][\w=+/-]* ){0,4}
    )
    | hooks\.slack\.com/(?: services | triggers | workflows )/[\w+/-]+"""
)
_HEX = re.compile(
    rf"(?<![\w/+-])(?<!\w\.)[0-9a-fA-F]{{{LONG},}}(?![\w/+-]|\.\w)|(?<=/)[0-9a-fA-F]{{{LONG},}}(?![\w+-])"
)
_RANDOM = re.compile(rf"(?:[A-Za-z0-9+/_-]|\\/|%2[BbFf]|%3[Dd]){{{LONG},}}={{0,2}}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# A name of what is no secret although it is random, up to its value.
_IDENTIFIER = re.compile(
    r"""(?ix) (?: uuid | guid | wwid | wwn | [_-]id | serial | digest | checksum | hash | sha-?[0-9]+ | md5
    | fingerprint | thumbprint | commit | revision ) ["'\]]*\s*[:=~-]?\s*["']?$"""
)
_URL = re.compile(r"://\S*$")
_DEVICE = re.compile(r"/dev/\S*$")
# How many neighbours are of different classes, which are lower case, upper case and digits: in random text 65 %, and 30
# to 45 % where it has one case alone; in names that people make up to 35 %, and much less than 12 %.
_CLASSES = re.compile(r"[a-z]+|[A-Z]+|[0-9]+")
MIXED, ONE_CASE = 0.4, 0.12


def without_tokens(line: str) -> str:
    """The line with ``MASKED`` in the place of each token and each long random text."""
    if not re.search(r"\S{12}", line):
        return line
    line = _TOKEN.sub(MASKED, line)
    line = _HEX.sub(_without_hex, line)
    return _RANDOM.sub(_without_random, line)


def _without_hex(found: re.Match[str]) -> str:
    before = found.string[: found.start()][-200:]
    # Masks of CPUs and the like have few digits. In a path it is an object, as ostree and containerd name theirs.
    is_named = len(set(found[0].lower())) < 8 or _IDENTIFIER.search(before)
    return found[0] if is_named or (before.endswith("/") and not _URL.search(before)) else MASKED


def _without_random(found: re.Match[str]) -> str:
    # Of /dev/disk/by-id too.
    if _DEVICE.search(found.string[: found.start() + len("/dev/")][-200:]):
        return found[0]
    atoms = [atom for atom in re.split(r"[^A-Za-z0-9]+", _UUID.sub("", found[0])) if len(atom) < 8 or not _is_hex(atom)]
    is_random = any(len(atom) >= LONG and _changes(atom) >= ONE_CASE for atom in atoms if not _is_mixed(atom))
    joined = "".join(atoms)
    is_random = is_random or (len(joined) >= LONG * 3 // 4 and _is_mixed(joined) and _changes(joined) >= MIXED)
    return MASKED if is_random else found[0]


def _is_hex(text: str) -> bool:
    return re.fullmatch(r"[0-9a-fA-F]*", text) is not None


def _is_mixed(text: str) -> bool:
    return text not in (text.lower(), text.upper())


def _changes(text: str) -> float:
    """The part of neighbouring characters that are of different classes; 0 where no digit is between letters."""
    return (len(_CLASSES.findall(text)) - 1) / len(text) if re.search("[A-Za-z][0-9]+[A-Za-z]", text) else 0.0
