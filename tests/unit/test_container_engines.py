"""containerd's and Enroot's files come out of options as their programs read them; what cannot be is refused."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.filter import containers

WORDS: dict[str, Any] = {
    "root": "/data/containerd",
    "snapshotter": "overlayfs",
    "sandbox_image": "mirror.example.com/pause:3.10",
    "systemd_cgroup": True,
    "cdi": True,
    "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"],
    "runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}},
    "default_runtime": "runc",
    "hosts": "/etc/containerd/certs.d",
}


@pytest.mark.parametrize(
    "words",
    [
        {"one": 1, "true": True, "list": ["a", "b c"], 'odd "name"': 'tab\tquote"é', "a.b": {}},
        {"table": {"in.ner": {"deep": {"x": 1}}, "empty": {}}, "plain": [{"k": "v"}, {"k": 2}]},
        {},
    ],
)
def test_toml_is_read_as_it_was_meant(words: dict[str, Any]) -> None:
    assert tomllib.loads(containers.toml(words)) == words


@pytest.mark.parametrize("version", [2, 3])
def test_config_toml_says_the_same_in_either_way_of_writing(version: int) -> None:
    made = containers.containerd_config(WORDS, version)
    assert tomllib.loads(containers.toml(made)) == made
    assert made["version"] == version
    assert made["root"] == "/data/containerd"
    plugins = made["plugins"]
    if version == 3:
        pods, images = plugins["io.containerd.cri.v1.runtime"], plugins["io.containerd.cri.v1.images"]
        assert images["pinned_images"]["sandbox"] == WORDS["sandbox_image"]
        snapshotter = images["snapshotter"]
    else:
        pods = images = plugins["io.containerd.grpc.v1.cri"]
        assert pods["sandbox_image"] == WORDS["sandbox_image"]
        snapshotter = pods["containerd"]["snapshotter"]
    assert snapshotter == "overlayfs"
    assert images["registry"] == {"config_path": "/etc/containerd/certs.d"}
    assert (pods["enable_cdi"], pods["cdi_spec_dirs"]) == (True, WORDS["cdi_spec_dirs"])
    runtimes = pods["containerd"]["runtimes"]
    assert runtimes["runc"]["options"] == {"SystemdCgroup": True}
    assert runtimes["nvidia"]["options"]["BinaryName"] == "/usr/bin/nvidia-container-runtime"


def test_a_release_that_does_not_know_cdi_is_not_told_of_it() -> None:
    made = containers.containerd_config({**WORDS, "cdi": False, "sandbox_image": ""}, 2)
    pods = made["plugins"]["io.containerd.grpc.v1.cri"]
    assert not {"enable_cdi", "cdi_spec_dirs", "sandbox_image"} & set(pods)


@pytest.mark.parametrize(
    ("declared", "version", "written"),
    [
        ("auto", "", 2),
        ("auto", "1.7.*", 2),
        ("auto", "2.1.*", 3),
        ("auto", "1:2.0-1", 3),
        ("2", "2.1.*", 2),
        ("3", "", 3),
    ],
)
def test_how_config_toml_is_written_follows_the_pinned_release(
    declared: str, version: str, written: int
) -> None:
    assert containers.containerd_config_version(declared, version) == written


def test_mirrors_are_asked_in_their_order_by_their_own_authority() -> None:
    mirrors = [
        {"url": "https://one.example", "ca": "ONE\n"},
        {"url": "https://two.example", "insecure": True},
    ]
    registry = {
        "location": "docker.io",
        "server": "https://registry.example",
        "ca": "OWN",
        "mirrors": mirrors,
    }
    files = {file["dest"]: file["content"] for file in containers.containerd_hosts([registry], "/c")}
    read = tomllib.loads(files["/c/docker.io/hosts.toml"])
    assert read["server"] == "https://registry.example"
    assert files[read["ca"]] == "OWN\n"
    assert list(read["host"]) == ["https://one.example", "https://two.example"]
    assert files[read["host"]["https://one.example"]["ca"]] == "ONE\n"
    assert read["host"]["https://two.example"]["skip_verify"] is True
    assert tomllib.loads(containers.containerd_hosts([{"location": "_default"}], "/c")[0]["content"]) == {}


def test_enroot_is_told_in_its_own_words() -> None:
    lines = containers.enroot_lines({"ENROOT_ROOTFS_WRITABLE": False, "ENROOT_MOUNT_HOME": True, "X": "a b"})
    assert lines == ["ENROOT_ROOTFS_WRITABLE no", "ENROOT_MOUNT_HOME yes", "X a b"]
    assert containers.enroot_environment({"A": 1, "B": "two words"}) == "A=1\nB=two words\n"
    (hook,) = containers.enroot_hooks([{"name": "50-site", "content": "#!/bin/bash\n\n"}])
    assert hook == {"dest": "/etc/enroot/hooks.d/50-site.sh", "content": "#!/bin/bash\n", "mode": "0755"}


def test_passwords_are_in_a_secret_file_of_their_person() -> None:
    login = {"machine": "nvcr.io", "login": "$oauthtoken", "password": "hush"}
    given = [
        {"user": "alice", **login},
        {"user": "bob", **login},
        {"user": "alice", **login, "machine": "b.example"},
    ]
    files = containers.enroot_credentials(given, "/data/")
    assert [file["dest"] for file in files] == [
        f"/data/{name}/config/.credentials" for name in ("alice", "bob")
    ]
    assert all(file["secret"] and file["mode"] == "0600" for file in files)
    assert [file["owner"] for file in files] == ["alice", "bob"]
    assert files[0]["content"].count("\n") == 2


def test_what_enroot_cannot_do_is_refused_without_a_password_in_the_words() -> None:
    bad = {"user": "eve", "machine": "a b", "login": "x", "password": "hush hush"}
    hooks = [{"name": "98-nvidia", "content": ""}, {"name": "../x", "content": ""}]
    found = containers.enroot_problems([bad], ["alice"], "", hooks, {"1A": "x"})
    assert len(found) == 6
    assert not [sentence for sentence in found if "hush" in sentence]
    good = {"user": "alice", "machine": "a", "login": "x", "password": "p"}
    hook = {"name": "50-site", "content": ""}
    assert containers.enroot_problems([good], ["alice"], "/data", [hook], {"A": 1}) == []
