"""What is done about a node's driver, and what is said where nothing can be done."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_driver_state as state

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version: 13"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025"


def machine(**own):
    base = {
        "nature": "machine", "loaded": "580.95.05", "loaded_flavour": "open", "user_space": "580.95.05",
        "running": "6.12.94", "boots": "6.12.94", "built": {"6.12.94": "580.95.05"}, "gpus": 8,
    }  # fmt: skip
    return state.Facts(**{**base, **own})


def test_versions_and_flavours_are_read_where_the_driver_writes_them():
    assert (state.version_of(OPEN), state.flavour_of(OPEN)) == ("580.95.05", "open")
    assert (state.version_of(CLOSED), state.flavour_of(CLOSED)) == ("550.163.01", "proprietary")
    assert state.version_of("libnvidia-ml.so.580.105.08") == "580.105.08"
    assert (state.version_of(""), state.flavour_of("")) == ("", "")


def test_kernels_sort_as_their_versions_do():
    names = ["6.12.107+deb13-amd64", "6.12.94+deb13-amd64", "6.1.0-40-amd64"]
    assert sorted(names, key=state.kernel_order) == names[::-1]


def test_a_node_that_is_right_is_left_alone():
    assert state.judge(machine(), "580.95.05", "open") == state.Verdict("none")
    assert state.judge(machine(), "580", "open") == state.Verdict("none")


@pytest.mark.parametrize(
    ("own", "action"),
    [
        ({"loaded": ""}, "load"),
        ({"loaded": "", "gpus": 0}, "none"),
        ({"loaded": "575.57.08"}, "reload"),
        ({"loaded_flavour": "proprietary"}, "reload"),
        ({"loaded": "575.57.08", "users": ("python (412)",)}, "reboot"),
        ({"nouveau": True, "loaded": ""}, "reboot"),
        ({"nature": "stand-in", "built": {}, "loaded": ""}, "load"),
    ],
)
def test_modules_are_exchanged_only_while_nobody_uses_them(own, action):
    verdict = state.judge(machine(**own), "580.95.05", "open")
    assert (verdict.action, verdict.problems) == (action, ())


def test_who_uses_the_gpus_is_said():
    verdict = state.judge(machine(loaded="575.57.08", users=("python (412)",)), "580.95.05", "open")
    assert "in use by python (412)" in " ".join(verdict.notes)


def test_a_kernel_without_modules_is_found_before_it_is_booted():
    facts = machine(
        boots="6.12.107",
        built={"6.12.94": "550.163.01", "6.12.107": ""},
        why={"6.12.107": "nv-mm.h:88: error: too few arguments"},
        loaded="550.163.01",
        user_space="550.163.01",
    )
    verdict = state.judge(facts, "550.163.01", "open")
    assert verdict.action == "none"
    assert len(verdict.problems) == 1
    assert "the next boot's kernel, 6.12.107, has no modules" in verdict.problems[0]
    assert "too few arguments" in verdict.problems[0]


def test_nothing_is_unloaded_for_modules_that_did_not_build():
    facts = machine(built={"6.12.94": ""}, loaded="575.57.08")
    verdict = state.judge(facts, "580.95.05", "open")
    assert verdict.action == "none"
    assert "the running kernel, 6.12.94" in verdict.problems[0]
    stale = machine(built={"6.12.94": "575.57.08"}, loaded="575.57.08")
    assert "has modules of driver 575.57.08" in state.judge(stale, "580.95.05", "open").problems[0]


def test_user_space_of_another_version_is_a_problem():
    assert (
        "580.95.05 is wanted" in state.judge(machine(user_space="595.45.04"), "580.95.05", "open").problems[0]
    )
    assert "NVML" in state.judge(machine(user_space=""), "580.95.05", "open").problems[0]


def test_secure_boot_names_the_one_step_that_a_person_does():
    verdict = state.judge(machine(secure_boot=True, enrolled=False, loaded=""), "580.95.05", "open")
    assert "Enroll MOK" in verdict.problems[0]
    assert state.judge(machine(secure_boot=True), "580.95.05", "open").problems == ()


def test_a_container_loads_nothing_and_follows_its_host():
    inside = {"nature": "container", "running": "", "boots": "", "built": {}}
    same = state.judge(machine(**inside), "580.95.05", "open")
    assert (same.action, same.problems) == ("none", ())
    other = state.judge(machine(**inside, loaded="575.57.08"), "580.95.05", "open")
    assert "the host runs the modules of driver 575.57.08" in other.problems[0]
    assert state.judge(state.Facts("container"), "580.95.05", "open").problems == ()


def test_an_image_s_kernel_without_modules_is_found_before_any_node_has_it():
    facts = state.Facts("image", user_space="550.163.01", boots="6.12.107", built={"6.12.107": ""})
    verdict = state.judge(facts, "550.163.01", "open")
    assert verdict.action == "none"
    assert "the image's kernel, 6.12.107, has no modules" in verdict.problems[0]
    assert state.judge(state.Facts("image"), "550.163.01", "open").problems == ()


def test_only_a_build_that_was_tried_explains_a_package_that_failed():
    never = machine(loaded="", built={"6.12.94": ""})
    assert state.unbuilt(never, "550.163.01") == []
    tried = machine(
        loaded="", built={"6.12.94": ""}, why={"6.12.94": "nv-pci.c:237:9: error: too few arguments"}
    )
    assert len(state.unbuilt(tried, "550.163.01")) == 1
    assert "they do not build (nv-pci.c:237:9" in state.unbuilt(tried, "550.163.01")[0]
    older = machine(loaded="", built={"6.12.94": "535.261.03"}, why=tried.why)
    assert len(state.unbuilt(older, "550.163.01")) == 1


@pytest.mark.parametrize("family", ["Debian", "RedHat", "Ubuntu"])
def test_a_machine_is_told_of_each_package_once(family):
    """Compiler, kernel and headers go to one call, which takes no package twice."""
    path = Path(__file__).parents[3] / "roles" / "gpu_driver" / "vars" / f"{family}.yml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    kinds = ("persistence", "build", "kernel")
    named = [name for kind in kinds for name in data.get(f"__gpu_driver_{kind}_packages", [])]
    assert len(named) == len(set(named))
    assert any("headers" in name or "devel" in name for name in named)
