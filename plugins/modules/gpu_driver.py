#!/usr/bin/python
# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The GPU driver of a node after its packages: modules, user space and the pinned version, made one or told apart."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_driver
short_description: Make a node run the GPU driver that is installed, or say why it does not
version_added: 0.1.0
description:
  - Compares the modules that the kernel runs, the user space that is installed and the version that is wanted.
  - Loads the modules, or unloads the old ones and loads the new, where nothing uses a GPU. Otherwise it says that a
    reboot is due; it never boots anything itself.
  - Finds a kernel for which the modules did not build before it is booted, and says why from DKMS's log.
  - In a container nothing is loaded, since its kernel is its host's; the versions are compared all the same. In the
    root of an image only the modules of its kernels are looked at.
options:
  modules_unit:
    description:
      - A systemd unit that stands for the kernel's modules. Starting it is loading them. Where it is installed, the
        node is taken for one without a kernel of its own.
    type: str
    default: ""
  services:
    description:
      - Units whose processes hold GPUs open. Those that run are stopped while modules are exchanged, and started
        afterwards, whether that went well or not. One that is masked is not started.
    type: list
    elements: str
    default: []
  packages_said:
    description:
      - What the package manager said where it failed to bring the driver. The module then fails, with the kernel whose
        modules did not build and the compiler's reason, or with these words where that is not why.
    type: str
    default: ""
  version:
    description: The driver; a branch such as V(580) takes any driver of it.
    type: str
    required: true
  flavour:
    description: The flavour of the kernel modules.
    type: str
    choices: [open, proprietary]
    required: true
  reload:
    description: Whether modules may be exchanged while nothing uses them.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: Says what would be done.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: GPU driver | Ensure the kernel runs it
  coldiron.cluster.gpu_driver:
    version: 580.95.05
    flavour: open
"""

RETURN = r"""
nature:
  description: machine, stand-in (a unit stands for the kernel's modules), container, or image (a root without a boot).
  returned: always
  type: str
module:
  description: The version of the modules that the kernel runs; empty where it runs none.
  returned: always
  type: str
user_space:
  description: The version of NVML.
  returned: always
  type: str
reboot:
  description: Whether a reboot is due.
  returned: always
  type: bool
boot:
  description: Whether one is due now; a C(--check) never asks for it.
  returned: always
  type: bool
notes:
  description: What is worth knowing, a sentence each.
  returned: always
  type: list
  elements: str
"""

import contextlib
import glob
import os
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_driver_state as state
from ansible_collections.coldiron.cluster.plugins.module_utils.text_file import read

UNIT_PLACES = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
# The driver's own. What keeps the modules in use, but is stopped and started with them.
OWN_SERVICES = (
    "nvidia-persistenced.service", "nvidia-fabricmanager.service", "nvidia-imex.service", "nvidia-dcgm.service",
)  # fmt: skip
# Another driver's does not start: role gpu_fabric brings the one that does, and starts it.
TIED = ("nvidia-fabricmanager.service", "nvidia-imex.service")
LOADED = "/proc/driver/nvidia/version"
MODULES = ("nvidia-drm", "nvidia-modeset", "nvidia-uvm", "nvidia-peermem", "nvidia")
LIBRARIES = ("/usr/lib/*-linux-gnu/libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1",
             "/usr/lib/*-linux-gnu/nvidia/current/libnvidia-ml.so.1")  # fmt: skip
MAIN_MODULE = re.compile(r"nvidia(-current)?(-open)?\.ko(\.[a-z0-9]+)?")
LOGS = "/var/lib/dkms/nvidia*/*/{kernel}/*/log/make.log"
FAILED_LOGS = "/var/lib/dkms/nvidia*/*/build/make.log"


class Node:
    """The node under the module."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.unit: str = module.params["modules_unit"]
        self.services: list[str] = [*OWN_SERVICES, *module.params["services"]]

    def said(self, *words: str) -> str:
        """What a command says; empty where it fails or is not there."""
        if not self.module.get_bin_path(words[0]):
            return ""
        code, out, _error = self.module.run_command(list(words))
        return str(out).strip() if code == 0 else ""

    def nature(self) -> str:
        if self.unit and any(os.path.exists(f"{place}/{self.unit}") for place in UNIT_PLACES):
            return "stand-in"
        if not os.path.isdir("/run/systemd/system"):
            return "image"
        inside = os.path.exists("/run/systemd/container") or "container=" in read("/proc/1/environ")
        return "container" if inside else "machine"

    def facts(self) -> state.Facts:
        nature = self.nature()
        loaded = read(LOADED)
        facts: dict[str, Any] = {
            "nature": nature,
            "loaded": state.version_of(loaded),
            "loaded_flavour": state.flavour_of(loaded),
            "user_space": self.user_space(),
            "gpus": self.gpus(nature),
            "users": tuple(self.users()) if nature in ("machine", "stand-in") else (),
        }
        if nature in ("machine", "image"):
            running = os.uname().release if nature == "machine" else ""
            kernels = sorted(
                (
                    os.path.basename(path)
                    for path in glob.glob("/lib/modules/*")
                    if os.path.isdir(f"{path}/kernel")
                ),
                key=state.kernel_order,
            )
            secure = "enabled" in self.said("mokutil", "--sb-state")
            facts.update(
                running=running,
                boots=kernels[-1] if kernels else running,
                built={kernel: self.built(kernel) for kernel in {*kernels, running} if kernel},
                why={kernel: self.why(kernel) for kernel in {*kernels, running} if kernel},
                nouveau=os.path.isdir("/sys/module/nouveau"),
                secure_boot=secure,
                enrolled=not secure or self.enrolled(),
            )
        return state.Facts(**facts)

    def user_space(self) -> str:
        paths = [path for pattern in LIBRARIES for path in sorted(glob.glob(pattern))]
        return state.version_of(os.path.basename(os.path.realpath(paths[0]))) if paths else ""

    def gpus(self, nature: str) -> int:
        if nature != "machine":
            return 1
        found = 0
        for path in glob.glob("/sys/bus/pci/devices/*/vendor"):
            folder = os.path.dirname(path)
            is_gpu = read(f"{folder}/class").startswith("0x03")
            found += is_gpu and read(path).strip() == "0x10de"
        return found

    def users(self) -> list[str]:
        """Processes with a GPU open, but for those of services, which are stopped with it."""
        found = []
        for path in glob.glob("/proc/[0-9]*/fd"):
            pid = path.split("/")[2]
            with contextlib.suppress(OSError):
                held = {os.readlink(f"{path}/{one}") for one in os.listdir(path)}
                name = read(f"/proc/{pid}/comm").strip()
                if any(re.match(r"/dev/nvidia([0-9]|ctl|-uvm)", one) for one in held):
                    found += [f"{name} ({pid})"] if not self.own(read(f"/proc/{pid}/cgroup")) else []
        return found

    def own(self, groups: str) -> bool:
        """Whether a process belongs to one of the services: systemd gives each a control group of its name."""
        return any(f"/{service}" in f"{line}/" for line in groups.splitlines() for service in self.services)

    def built(self, kernel: str) -> str:
        """The version of a kernel's modules, under NVIDIA's name or Debian's."""
        for folder, _names, files in os.walk(f"/lib/modules/{kernel}"):
            for name in sorted(files):
                if MAIN_MODULE.fullmatch(name):
                    return str(state.version_of(self.said("modinfo", "-F", "version", f"{folder}/{name}")))
        return ""

    def why(self, kernel: str) -> str:
        """The first error in the log of the build for a kernel."""
        logs = glob.glob(LOGS.format(kernel=kernel)) or [
            path for path in glob.glob(FAILED_LOGS) if kernel in read(path)[:4000]
        ]
        for path in logs:
            match = re.search(r"^.*\berror: .*$", read(path), re.MULTILINE)
            if match:
                return os.path.basename(match[0].strip())[:200]
        return ""

    def enrolled(self) -> bool:
        code, out, error = self.module.run_command(["mokutil", "--test-key", "/var/lib/dkms/mok.pub"])
        return code != 0 or "already enrolled" in f"{out}{error}"

    def must(self, *words: str) -> None:
        code, out, error = self.module.run_command(list(words))
        if code != 0:
            self.module.fail_json(msg=f"{' '.join(words)}: {(error or out).strip() or code}")

    def load(self, nature: str) -> None:
        if nature == "stand-in":
            self.must("systemctl", "restart", self.unit)
            return
        for name in ("nvidia", "nvidia-uvm"):
            self.must("modprobe", name)

    def reload(self, nature: str) -> None:
        """Out with the old modules, in with the new; services that hold GPUs stop and start with them.

        What ran before runs afterwards, also where the modules could not be exchanged.
        """
        running = [one for one in self.services if self.said("systemctl", "is-active", one) == "active"]
        complaints: list[str] = []
        try:
            for one in running:
                self.must("systemctl", "stop", one)
            if nature == "machine":
                loaded = {line.split()[0].replace("_", "-") for line in read("/proc/modules").splitlines()}
                for name in (one for one in MODULES if one in loaded):
                    self.must("modprobe", "-r", name)
            self.load(nature)
        finally:
            for one in running:
                complaints += self.start(one)
        if complaints:
            self.module.fail_json(msg="; ".join(complaints))

    def start(self, service: str) -> list[str]:
        """Start a service again; returns what is wrong where it has to start and does not."""
        # Somebody wants it off for good: it ran on only because nobody had stopped it.
        if self.said("systemctl", "show", "--property=LoadState", "--value", service) == "masked":
            return []
        code, out, error = self.module.run_command(["systemctl", "start", service])
        return (
            [f"systemctl start {service}: {(error or out).strip() or code}"]
            if code and service not in TIED
            else []
        )


def main() -> None:
    """Look, do what can be done now, look again."""
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "flavour": {"type": "str", "choices": ["open", "proprietary"], "required": True},
            "packages_said": {"type": "str", "default": ""},
            "reload": {"type": "bool", "default": True},
            "modules_unit": {"type": "str", "default": ""},
            "services": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    version, flavour = module.params["version"], module.params["flavour"]
    node = Node(module)
    facts = node.facts()
    if said := module.params["packages_said"]:
        module.fail_json(msg="; ".join(state.unbuilt(facts, version)) or said)
    verdict = state.judge(facts, version, flavour)
    done: list[str] = []
    if verdict.action in ("load", "reload") and (verdict.action == "load" or module.params["reload"]):
        done = [verdict.action]
        if not module.check_mode:
            getattr(node, verdict.action)(facts.nature)
            facts = node.facts()
            verdict = state.judge(facts, version, flavour)
    # On a fresh node of a --check nothing is installed yet.
    if verdict.problems and not module.check_mode:
        module.fail_json(msg="; ".join(verdict.problems))
    for note in verdict.notes if verdict.action == "reboot" else ():
        module.warn(note)
    reboot = verdict.action == "reboot" or (verdict.action == "reload" and not module.check_mode)
    module.exit_json(
        changed=bool(done),
        done=done,
        nature=facts.nature,
        module=facts.loaded,
        user_space=facts.user_space,
        reboot=reboot,
        boot=reboot and not module.check_mode,
        notes=[*verdict.notes, *(verdict.problems if module.check_mode else ())],
    )


if __name__ == "__main__":
    main()
