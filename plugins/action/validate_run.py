# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from difflib import SequenceMatcher, get_close_matches
from typing import Any, Container, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ..module_utils._core.shared_options import SHARED_OPTIONS
from ..module_utils._text.host_ranges import folded
from ..module_utils.concerns.nvml.spec import CONTROLLER, not_on_the_controller
from ..plugin_utils import acceptances, clusters
from ..plugin_utils.declarations import BROUGHT, ENTRIES
from ..plugin_utils.fleet_text import WIDEST
from ..plugin_utils.playbooks import (
    BEFORE_HOSTS,
    DRAINED,
    FAILURE,
    PROCEDURES,
    Option,
    cause_against,
    options_of,
    right_value,
    specifications,
    variables_of_roles,
)
from ..plugin_utils.profiles import VARIABLE as PROFILE
from ..plugin_utils.profiles import faults, variables_of
from ..plugin_utils.scope import CONCERNS, PARTS, left_out, mistyped_tags, names_of, unknown_concerns

Hosts = Mapping[str, Mapping[str, Any]]

# What every host may have a value of its own for, which an answer to a survey must not replace.
OF_THE_HOSTS = {PROFILE, acceptances.VARIABLE}

# What the playbooks set or register themselves.
OF_THE_PLAYBOOKS = {
    *("gpufleet_expect", "gpufleet_look", "gpufleet_concern", "gpufleet_info", "gpufleet_facts", "gpufleet_report"),
    *("gpufleet_variables", "gpufleet_gate", "gpufleet_drift", DRAINED, FAILURE, "gpufleet_no_report"),
    "gpufleet_ends_with_report",
    "gpufleet_keep_unreachable",
}

# What the variables of Ansible itself, and those that a role keeps to itself, begin with.
OF_ANSIBLE = ("ansible_", "_")
PREFIXES = (*CONCERNS, "gpufleet")

# The schedulers that a playbook queries, and only if there are any.
BACKEND = "drain_backend"

NOT_IN_THE_INVENTORY = "it is read before any host's variables are, so the inventory cannot set it. Set it with -e."

# The playbooks that look at what is declared for GPUs.
LOOKING = ("site", "audit", "mig_repartition", "reboot", "verify")

# What narrows a run, beside tags that are concerns.
NARROWING = ("gpufleet_concerns", "gpufleet_skip")

# A variable with a word for a prefix, such as audit_, may be somebody else's; one this near to one of ours with the
# same word is not. Nor is one with any prefix that is as near as the second, or with nearly the name of a concern
# before an option of it.
NEARLY_OURS = 0.85
CERTAINLY_OURS = 0.92
NEARLY_A_CONCERN = 0.85

# Concerns whose names others begin variables with as well: those of one word, and this one, in Kubespray. What
# is behind them and not known may be somebody else's, unless it is nearly one of ours.
SHARED_PREFIXES = ("kubelet_config",)

# Options that others may well use behind the first word of a concern, such as container_engines or nvidia_enabled.
OF_ANYBODY = {
    *SHARED_OPTIONS,
    *("block", "cdi", "enabled", "engines", "file", "folder", "force", "gpus", "load", "package", "source", "toolkit"),
}


def known_names() -> Set[str]:
    """Every variable that a role or a playbook of this collection has."""
    playbooks = [set(specification["options"]) for specification in specifications().values()]
    return OF_THE_PLAYBOOKS.union(OF_THE_HOSTS, variables_of_roles(), *playbooks)


def unknown_variables(names: Iterable[str], known: Set[str]) -> Dict[str, Optional[str]]:
    """The names with a prefix of ours, or nearly one, that are not known, with the nearest one that is.

    The names of most concerns are prefixes that nobody else has. Others may well have a dcgm_version, an audit_log, a
    reboot_window or a nvme_cli_version; nobody else has hugepage_pools or nvme_queues.
    """
    everything = sorted(known)
    ours = tuple(f"{prefix}_" for prefix in (*PREFIXES, "mig_repartition") if not is_shared(prefix))
    by_word: Dict[str, List[str]] = {}
    for name in everything:
        by_word.setdefault(_first_word(name), []).append(name)
    found: Dict[str, Optional[str]] = {}
    for name in names:
        if name in known or name.startswith(OF_ANSIBLE) or _is_of_others(name, known):
            continue
        if name.startswith(ours):
            near = get_close_matches(name, everything, n=1, cutoff=0.5)
            found[name] = near[0] if near else None
            continue
        near = [
            *_with_the_option_of(name, everything),
            *get_close_matches(name, by_word.get(_first_word(name), ()), n=1, cutoff=NEARLY_OURS),
            *get_close_matches(name, everything, n=1, cutoff=CERTAINLY_OURS),
        ]
        if near:
            found[name] = near[0]
    return found


def is_shared(prefix: str) -> bool:
    """Whether others begin variables with this as well."""
    return prefix != "gpufleet" and ("_" not in prefix or prefix in SHARED_PREFIXES)


def _first_word(name: str) -> str:
    return name.partition("_")[0]


def _with_the_option_of(name: str, known: Sequence[str]) -> Iterator[str]:
    """The known variables that have the same option behind nearly the same prefix, or behind the first part of it."""
    for prefix in PREFIXES:
        options = [variable[len(prefix) + 1 :] for variable in known if variable.startswith(f"{prefix}_")]
        for option in options:
            head = name[: -len(option) - 1]
            if name != f"{head}_{option}" or not head:
                continue
            nearly = SequenceMatcher(None, head, prefix).ratio() >= NEARLY_A_CONCERN
            if nearly or (option not in OF_ANYBODY and prefix.startswith(f"{head}_")):
                yield f"{prefix}_{option}"


def _is_of_others(name: str, known: Container[str]) -> bool:
    """Whether it is one of our options behind the word with which others begin theirs: kubelet_swap_behavior."""
    words = ((_first_word(prefix), prefix) for prefix in SHARED_PREFIXES)
    return any(f"{prefix}{name[len(word) :]}" in known for word, prefix in words if name.startswith(f"{word}_"))


class ActionModule(ActionBase):
    """Of the variables of roles it looks at the names only, and templates no value: two thousand hosts take seconds."""

    BYPASS_HOST_LOOP = True
    _requires_connection = False
    _VALID_ARGS = frozenset(("playbook",))

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        playbooks = specifications()
        _validated, arguments = self.validate_argument_spec({"playbook": {"type": "str", "choices": list(playbooks)}})
        hosts = {host: variables["hostvars"].raw_get(host) for host in variables["ansible_play_hosts_all"]}
        unknown = unknown_on(hosts)
        sentences = [_unknown_sentence(entry) for entry in unknown]
        sentences.extend(self._wrong_profiles(hosts, variables))
        sentences.extend(self._wrong_acceptances(hosts, variables))
        sentences.extend(mistyped_tags(variables.get("ansible_run_tags", ()), variables.get("ansible_skip_tags", ())))
        if arguments["playbook"]:
            options = dict(playbooks[arguments["playbook"]]["options"])
            for role in PROCEDURES.get(arguments["playbook"], ()):
                options.update(options_of(role))
            sentences.extend(self._wrong_values(options, hosts, variables))
            sentences.extend(self._unknown_concerns(options, hosts, variables))
            if not options.keys() & set(NARROWING):
                sentences.extend(self._not_narrowed(arguments["playbook"], variables))
        lacking = lacking_binding(hosts, BROUGHT["lacking"]) if arguments["playbook"] in LOOKING else None
        if lacking:
            Display().warning(lacking)
        result.update(
            changed=False,
            checked=len(hosts),
            unknown=unknown,
            clustered=self._clustered(hosts, variables),
            schedulers=sorted({str(value) for _host, value in self._values(BACKEND, hosts, variables)} - {"none"}),
        )
        if sentences:
            result.update(failed=True, msg="\n".join(sentences))
        return result

    def _clustered(self, hosts: Hosts, variables: Mapping[str, Any]) -> List[str]:
        """The hosts that declare something of their cluster, without those of which the run is not about that."""
        of_the_run = [variables.get(name, ()) for name in ("ansible_run_tags", "ansible_skip_tags")]

        def value(host: str, name: str) -> Any:
            return variables["hostvars"][host][name] if name in hosts[host] else []

        return [
            host
            for host, raw in hosts.items()
            if clusters.declares(raw)
            and not left_out((clusters.ROLE,), *(value(host, name) or [] for name in NARROWING), *of_the_run)
        ]

    def _wrong_profiles(self, hosts: Hosts, variables: Mapping[str, Any]) -> Iterator[str]:
        """A sentence for each thing that is wrong with a profile, with the hosts that have it."""
        hosts_of: Dict[str, List[str]] = {}
        for host, profile in self._values(PROFILE, hosts, variables):
            if profile:
                hosts_of.setdefault(str(profile), []).append(host)
        options = variables_of(CONCERNS) if hosts_of else {}
        for profile, names in hosts_of.items():
            for what, cause in faults(profile, options):
                yield f"Cannot use {what} ({_where(names)}): {cause}"

    def _wrong_acceptances(self, hosts: Hosts, variables: Mapping[str, Any]) -> Iterator[str]:
        """A sentence for each value of the variable that it cannot have, with the hosts that have it."""
        hosts_of: Dict[str, List[str]] = {}
        faults_of: Dict[str, Optional[str]] = {}
        for host, value in self._values(acceptances.VARIABLE, hosts, variables):
            # Mostly all hosts have the same.
            key = repr(value)
            if key not in faults_of:
                faults_of[key] = acceptances.fault_of(value, CONCERNS)
            hosts_of.setdefault(faults_of[key] or "", []).append(host)
        for fault, names in hosts_of.items():
            if fault:
                yield f"Cannot use the variable {acceptances.VARIABLE} ({_where(names)}): {fault}"

    def _wrong_values(self, options: Mapping[str, Option], hosts: Hosts, variables: Mapping[str, Any]) -> Iterator[str]:
        """A sentence for each variable that must be there, and for each value that one cannot have, with its hosts."""
        for name, option in options.items():
            if option.get("required") and name not in variables:
                yield f"The variable {name} is required: it must be {right_value(name, option)}."
            hosts_of: Dict[str, List[str]] = {}
            for host, value in self._values(name, hosts, variables):
                cause = NOT_IN_THE_INVENTORY if host and name in BEFORE_HOSTS else cause_against(name, option, value)
                if cause:
                    hosts_of.setdefault(cause, []).append(host)
            for cause, names in hosts_of.items():
                yield f"Cannot use the variable {name} ({_where(names)}): {cause}"

    def _unknown_concerns(self, options: Container[str], hosts: Hosts, variables: Mapping[str, Any]) -> Iterator[str]:
        """A sentence for each name in what narrows the run that is no concern, once for all hosts."""
        for variable in NARROWING:
            values = self._values(variable, hosts, variables) if variable in options else ()
            names = [name for _host, value in values for name in names_of(value or [])]
            yield from unknown_concerns(variable, list(dict.fromkeys(names)))

    def _not_narrowed(self, playbook: str, variables: Mapping[str, Any]) -> Iterator[str]:
        """A sentence for each thing that narrows other playbooks, where this one does all or nothing.

        What the inventory says of it is for the others.
        """
        given = load_extra_vars(self._loader)
        named = [name for name in NARROWING if given.get(name)]
        for option, tags in (("--tags", "ansible_run_tags"), ("--skip-tags", "ansible_skip_tags")):
            named.extend(f"{option} {tag}" for tag in variables.get(tags, ()) if tag in PARTS)
        for name in named:
            cause = f"{playbook} always covers everything on the nodes and cannot be limited to some concerns."
            yield f"Cannot use {name} (given to the run): {cause}"

    def _values(self, name: str, hosts: Hosts, variables: Mapping[str, Any]) -> Iterator[Tuple[str, Any]]:
        """The values of a variable by host; one that the whole run has comes once, without a host."""
        first = next(iter(hosts.values()), {})
        if name in load_extra_vars(self._loader) or (name in variables and variables[name] != first.get(name)):
            yield "", self._templar.template(variables[name])
            return
        for host, raw in hosts.items():
            if name in raw:
                templated = self._templar.is_template(raw[name])
                yield host, variables["hostvars"][host][name] if templated else raw[name]


def lacking_binding(hosts: Hosts, cause: str) -> Optional[str]:
    """What is known before the first look where the controller has no binding of the driver: of whose GPUs it is.

    ``cause`` is empty where it has one. By the names of variables alone, for to template them takes as long as a look.
    """
    about_gpus = tuple(f"{concern}_" for concern in ENTRIES["nvml"].registration.serves)
    lacking = [
        host
        for host, values in hosts.items()
        if values.get("nvml_source", CONTROLLER) == CONTROLLER
        and not values.get("nvml_file")
        and (values.get(PROFILE) or any(name.startswith(about_gpus) and values[name] for name in values))
    ]
    if not cause or not lacking:
        return None
    return f"{not_on_the_controller(cause)} Until then no GPU can be checked {_where(lacking)}."


def unknown_on(hosts: Hosts) -> List[Dict[str, Any]]:
    """The variables that no role has, by name, with the nearest existing one and the hosts that have them."""
    known = known_names()
    # Most hosts have the same variables, and to hold a name against all that are known takes a millisecond.
    nearest = unknown_variables({name for names in hosts.values() for name in names}, known)
    return [
        {"name": name, "nearest": nearest[name], "hosts": [host for host, names in hosts.items() if name in names]}
        for name in sorted(nearest)
    ]


def _unknown_sentence(entry: Mapping[str, Any]) -> str:
    hint = f" Did you mean {entry['nearest']}?" if entry["nearest"] else ""
    return f"Cannot use the variable {entry['name']} ({_where(entry['hosts'])}): no role has such a variable.{hint}"


def _where(hosts: Sequence[str]) -> str:
    return f"on {folded(hosts, widest=WIDEST)}" if any(hosts) else "given to the run"
