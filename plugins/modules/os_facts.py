#!/usr/bin/python
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The few facts that roles choose their data by, in one call of some twenty milliseconds."""

from __future__ import annotations

import json
import os
import platform
import sys

DOCUMENTATION = r"""
module: os_facts
short_description: The few facts that say which operating system a node runs
description:
  - Sets C(ansible_facts) with the names and values of M(ansible.builtin.setup), and no others -
    C(os_family), C(distribution), C(distribution_version), C(distribution_major_version),
    C(distribution_release), C(architecture), C(python_version), C(service_mgr) and C(virtualization_type).
  - Says beside them whether the node's GPUs are simulated, as a virtual rack's are.
  - Costs a tenth of M(ansible.builtin.setup), because the standard library is all that it loads.
author: The coldiron maintainers
attributes:
  check_mode:
    support: full
    description: It only reads.
options: {}
"""

EXAMPLES = r"""
- name: Learn which operating system each node runs
  coldiron.cluster.os_facts:
  register: node

- name: Refuse a node whose GPUs are simulated
  ansible.builtin.fail:
    msg: Jobs would compute nothing here.
  when: node.simulated_gpus
"""

RETURN = r"""
ansible_facts:
  description: The facts named above.
  returned: always
  type: dict
  sample: {os_family: Debian, distribution: Debian, distribution_version: "13.1", distribution_major_version: "13"}
simulated_gpus:
  description: Whether the node says in C(/etc/coldiron/simulated-gpu) that its GPUs are simulated.
  returned: always
  type: bool
"""

NAMES = {
    "debian": "Debian", "ubuntu": "Ubuntu", "rhel": "RedHat", "rocky": "Rocky", "almalinux": "AlmaLinux",
    "centos": "CentOS", "fedora": "Fedora", "ol": "OracleLinux", "amzn": "Amazon", "linuxmint": "Linux Mint",
    "opensuse-leap": "openSUSE Leap", "sles": "SLES", "arch": "Archlinux",
}  # fmt: skip
FAMILIES = {"debian": "Debian", "ubuntu": "Debian", "rhel": "RedHat", "fedora": "RedHat", "centos": "RedHat",
            "suse": "Suse", "opensuse": "Suse", "sles": "Suse", "arch": "Archlinux"}  # fmt: skip
VENDORS = {"qemu": "kvm", "kvm": "kvm", "vmware": "VMware", "innotek": "virtualbox", "microsoft": "VirtualPC",
           "xen": "xen", "openstack": "kvm", "amazon": "kvm", "google": "kvm"}  # fmt: skip


MARKER = "/etc/coldiron/simulated-gpu"


def first_of(path: str) -> str:
    """A file's text, empty where there is none or it may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def os_release(text: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key: value.strip().strip("\"'") for key, value in pairs}


def distribution(release: dict[str, str], debian_version: str) -> dict[str, str]:
    """The five names of setup out of os-release; Debian's point release stands in debian_version only."""
    ident = release.get("ID", "linux")
    version = release.get("VERSION_ID", "NA")
    if ident == "debian" and debian_version.strip()[:1].isdigit():
        version = debian_version.strip()
    family = next(
        (FAMILIES[word] for word in [ident, *release.get("ID_LIKE", "").split()] if word in FAMILIES), "NA"
    )
    words = release.get("VERSION", "").partition("(")[2].rstrip(")").split(",")[0].strip()
    return {
        "os_family": family,
        "distribution": NAMES.get(ident, release.get("NAME", "NA")),
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
        "distribution_release": release.get("VERSION_CODENAME") or words or "NA",
    }


def virtualization(root: str) -> str:
    """container, the hypervisor's name in setup's words, or NA on metal."""
    if "container=" in first_of(root + "/proc/1/environ") or os.path.exists(root + "/run/systemd/container"):
        return "container"
    words = (
        first_of(root + "/sys/class/dmi/id/sys_vendor") + first_of(root + "/sys/class/dmi/id/product_name")
    ).lower()
    return next((name for word, name in VENDORS.items() if word in words), "NA")


def facts(root: str = "") -> dict[str, str]:
    found = distribution(
        os_release(first_of(root + "/etc/os-release") or first_of(root + "/usr/lib/os-release")),
        first_of(root + "/etc/debian_version"),
    )
    init = os.path.basename(os.path.realpath(root + "/sbin/init"))
    systemd = os.path.isdir(root + "/run/systemd/system") or init == "systemd"
    found.update(
        architecture=platform.machine(),
        python_version=platform.python_version(),
        service_mgr="systemd" if systemd else first_of(root + "/proc/1/comm").strip() or init,
        virtualization_type=virtualization(root),
    )
    return found


def main(_arguments: str) -> int:
    # There are no options: the placeholder alone makes this a lean module.
    print(json.dumps({"changed": False, "ansible_facts": facts(), "simulated_gpus": os.path.exists(MARKER)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(r"""<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"""))
