"""Containers are promised the GPUs that are there: the specification is the driver's and the MIG layout's of now."""

from __future__ import annotations

import re

import pytest

IMAGE = "localhost/coldiron-test-gpu:latest"
PROGRAM = "/usr/local/sbin/coldiron-nvidia-cdi"


def devices(host):
    """The names by which containers ask for GPUs."""
    return set(host.check_output("nvidia-ctk cdi list 2> /dev/null").splitlines()) - {""}


def gpus(host):
    """The driver's own list: UUIDs of GPUs and of MIG devices."""
    listed = host.check_output("nvidia-smi -L")
    whole = re.findall(r"^GPU .*UUID: (GPU-[^)]+)", listed, re.MULTILINE)
    parts = re.findall(r"UUID: (MIG-[^)]+)", listed)
    return whole, parts


def test_every_gpu_and_mig_device_has_a_name(host, opts):
    whole, parts = gpus(host)
    named = devices(host)
    assert "nvidia.com/gpu=all" in named
    if "uuid" in opts["nvidia_container_toolkit_device_names"]:
        for uuid in parts or whole:
            assert f"nvidia.com/gpu={uuid}" in named
    assert len(named) - 1 == len(parts or whole) * len(opts["nvidia_container_toolkit_device_names"])


def test_the_specification_names_the_driver_that_is_there(host, opts):
    text = host.file(opts["nvidia_container_toolkit_cdi_file"]).content_string
    version = host.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader").splitlines()[0]
    assert f"libcuda.so.{version}" in text


def test_it_is_made_at_boot_and_watched(host):
    assert host.service("coldiron-nvidia-cdi.service").is_enabled
    assert host.service("coldiron-nvidia-cdi.path").is_running
    assert host.service("coldiron-nvidia-cdi.path").is_enabled


def test_what_is_there_is_not_made_again(host):
    assert host.check_output(PROGRAM) == ""


@pytest.mark.acts
def test_a_specification_that_is_old_is_made_anew_when_the_driver_changes(host, opts, eventually):
    """The driver's library is swapped at its upgrade; the path unit sees that."""
    file = opts["nvidia_container_toolkit_cdi_file"]
    before = host.file(file).content_string
    library = host.check_output(
        "ls -d /usr/lib/*/libnvidia-ml.so.1 /usr/lib64/libnvidia-ml.so.1 2> /dev/null | head -1"
    )
    host.check_output(f"echo 'cdiVersion: 0.5.0' > {file}")
    host.check_output(f"touch $(readlink -f {library})")
    try:
        eventually(lambda: host.file(file).content_string == before, seconds=15)
    finally:
        host.check_output(PROGRAM)


@pytest.mark.acts
def test_podman_gives_a_container_the_gpus_that_it_asks_for(host, hostvars):
    """The image is made of the node's own programs; the driver's library comes from the specification."""
    if not host.exists("podman"):
        return
    tools = "/bin/sh /usr/bin/nvidia-smi"
    host.check_output(
        f"{{ ldd {tools} | grep -o '/[^ :]*' | grep -v libnvidia; printf '%s\\n' {tools}; }} | sort -u"
        f" | tar --create --dereference --files-from=- 2>/dev/null | podman import --quiet - {IMAGE}"
    )
    name = sorted(one for one in devices(host) if not one.endswith("=all"))[0]
    listed = host.check_output(
        f"podman run --rm --network=none --device {name} {IMAGE} /usr/bin/nvidia-smi -L"
    )
    host.check_output(f"podman rmi --force {IMAGE}")
    assert len(re.findall("^GPU ", listed, re.MULTILINE)) == 1, listed


def test_the_version_is_the_declared_one(host, opts):
    if opts["nvidia_container_toolkit_version"]:
        pattern = opts["nvidia_container_toolkit_version"].replace("*", ".*")
        assert re.fullmatch(pattern, host.package("nvidia-container-toolkit-base").version)
