"""The kernel runs the modules that are installed, they are the pinned ones, and nothing moves them by chance."""

from __future__ import annotations

import os
import re

from ansible_collections.coldiron.cluster.plugins.module_utils import repository_files

VERSION = re.compile(r"\b([0-9]{3,}(?:\.[0-9]+){1,2})\b")
LOADED = "/proc/driver/nvidia/version"
SOURCE = "/etc/apt/sources.list.d/coldiron-nvidia-cuda.sources"


def has_driver(opts):
    return opts["gpu_driver_state"] == "present"


def is_container(host, opts):
    """A container has its host's kernel, and modules only if that has, unless a unit stands for them."""
    unit = opts["gpu_driver_modules_unit"]
    return host.file("/run/systemd/container").exists and not (unit and host.service(unit).exists)


def user_space(host):
    link = host.run("ls -1 /usr/lib/*-linux-gnu/libnvidia-ml.so.1 /usr/lib64/libnvidia-ml.so.1 2>/dev/null")
    path = host.check_output(f"readlink -f {link.stdout.split()[0]}") if link.stdout.split() else ""
    found = VERSION.search(os.path.basename(path))
    return found[1] if found else ""


def is_of(version, wanted):
    return version == wanted or ("." not in wanted and version.split(".")[0] == wanted)


def packages(host):
    """Installed driver packages: name, version, and whether upgrades leave them alone."""
    said = host.check_output("dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\\n' '*nvidia*'")
    rows = [line.split("|") for line in said.splitlines()]
    return {row[1]: (row[2], row[0].startswith("h")) for row in rows if row[0][1:2] == "i"}


def test_modules_user_space_and_pin_are_one_version(host, opts):
    if not has_driver(opts) or is_container(host, opts):
        return
    wanted = opts["gpu_driver_version"]
    loaded = VERSION.search(host.file(LOADED).content_string)[1]
    assert loaded == user_space(host)
    assert not wanted or is_of(loaded, wanted)


def test_the_driver_s_own_tool_sees_gpus(host, opts):
    if not has_driver(opts) or is_container(host, opts):
        return
    assert host.check_output("nvidia-smi -L").startswith("GPU 0: ")


def test_user_space_is_the_pinned_one(host, opts):
    if has_driver(opts) and opts["gpu_driver_version"]:
        assert is_of(user_space(host), opts["gpu_driver_version"])


def test_upgrades_leave_the_driver_alone(host, opts):
    if not has_driver(opts):
        return
    found = packages(host)
    name = "nvidia-driver-cuda" if opts["gpu_driver_source"] == "vendor" else "libnvidia-ml1"
    held = [row[1] for package, row in found.items() if package in (name, "nvidia-kernel-open-dkms")]
    assert held
    assert set(held) == {opts["gpu_driver_hold"]}
    simulated = host.run("apt-get -s -y dist-upgrade").stdout
    assert not re.search(rf"^Inst {name} ", simulated, re.MULTILINE)


def test_a_newer_driver_in_the_repository_is_not_the_candidate(host, opts):
    if not has_driver(opts) or opts["gpu_driver_source"] != "vendor" or not opts["gpu_driver_version"]:
        return
    policy = host.check_output("apt-cache policy nvidia-driver-cuda")
    candidate = re.search(r"Candidate: (\S+)", policy)[1]
    assert is_of(VERSION.search(candidate)[1], opts["gpu_driver_version"])


def test_the_repository_is_trusted_by_its_own_key_only(host, opts):
    vendor = has_driver(opts) and opts["gpu_driver_source"] == "vendor"
    assert host.file(SOURCE).exists == vendor
    if vendor:
        said = host.file(SOURCE).content_string
        wanted = opts["__gpu_driver_repositories"][0]["fingerprints"]
        assert repository_files.trusted_key(repository_files.key_in(said), wanted)
        for uri in opts["gpu_driver_repository"].get("uris", []):
            assert uri in said


def test_nouveau_stays_away(host, opts):
    if not has_driver(opts):
        return
    assert not host.file("/sys/module/nouveau").exists
    said = host.file("/etc/modprobe.d/coldiron-gpu-driver.conf").content_string.splitlines()
    assert "blacklist nouveau" in said


def test_a_kernel_without_modules_is_found_when_it_is_installed(host, opts):
    if not has_driver(opts):
        return
    hook = "/etc/kernel/postinst.d/zz-coldiron-gpu-driver"
    refused = host.run(f"{hook} 0.0.0-has-no-modules")
    assert refused.rc == 1
    assert "has no modules of GPU driver" in refused.stderr


def test_nothing_is_left_of_a_driver_that_was_taken_away(host, opts):
    if not has_driver(opts):
        assert not {"nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-smi"} & set(packages(host))
        assert not host.file("/etc/modprobe.d/coldiron-gpu-driver.conf").exists
