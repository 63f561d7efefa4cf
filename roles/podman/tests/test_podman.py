"""People run containers without root: own image, own ids, own disk; registries are the declared ones."""

from __future__ import annotations

import json

import pytest

IMAGE = "localhost/coldiron-test:latest"
TOOLS = "/bin/sh /usr/bin/cat /usr/bin/id /usr/bin/touch"


def info(person):
    return json.loads(person.output("podman --log-level=error info --format json"))


@pytest.fixture(scope="module")
def user(host, opts, as_user):
    """Somebody who has an account here; without such a person podman has nothing to do on the node."""
    return as_user(next(name for name in opts["podman_users"] if host.user(name).exists))


@pytest.fixture(scope="module")
def image(user):
    """An image of the user's, made of the node's own programs: no registry is asked."""
    made = (
        f"{{ ldd {TOOLS} | grep -o '/[^ :]*'; printf '%s\\n' {TOOLS}; }} | sort -u"
        f" | tar --create --dereference --files-from=- 2>/dev/null | podman import --quiet - {IMAGE}"
    )
    user.output(made)
    yield IMAGE
    user.output(f"podman rmi --force {IMAGE}")


@pytest.mark.acts
def test_a_person_runs_a_container(user, image):
    assert "uid=0" in user.output(f"podman run --rm --network=none {image} /usr/bin/id")


@pytest.mark.acts
def test_root_inside_is_the_person_outside(host, user, image):
    rows = user.output(f"podman run --rm {image} /usr/bin/cat /proc/self/uid_map").splitlines()
    uid = host.user(user.name).uid
    ranges = [line.split(":") for line in host.file("/etc/subuid").content_string.splitlines()]
    start, count = next(row[1:] for row in ranges if row[0] == user.name)
    assert [row.split() for row in rows] == [["0", str(uid), "1"], ["1", start, count]]


@pytest.mark.acts
def test_a_container_writes_as_the_person_and_nobody_else(host, user, image):
    folder = user.output("mktemp --directory").strip()
    user.output(f"podman run --rm --volume {folder}:/mnt {image} /usr/bin/touch /mnt/mine")
    assert host.file(f"{folder}/mine").user == user.name
    refused = user.run(f"podman run --rm --volume /etc:/mnt {image} /usr/bin/touch /mnt/mine")
    assert refused.rc != 0
    assert not host.file("/etc/mine").exists
    user.output(f"rm -r {folder}")


def test_images_lie_on_the_node_s_own_disk(opts, user, as_user):
    store = info(user)["store"]
    assert store["graphRoot"] == f"{opts['podman_user_storage_root']}/{user.name}"
    assert store["graphDriverName"] == opts["podman_storage_driver"]
    assert info(as_user("root"))["store"]["graphRoot"] == opts["podman_storage_root"]


def test_nobody_reads_another_s_images(host, opts):
    for name in opts["podman_users"]:
        folder = host.file(f"{opts['podman_user_storage_root']}/{name}")
        assert (folder.user, folder.mode) == (name, 0o700)


def test_registries_are_the_declared_ones(opts, user):
    known = info(user)["registries"]
    assert (known.get("search") or []) == opts["podman_search_registries"]
    for registry in opts["podman_registries"]:
        shown = known[registry.get("prefix") or registry["location"]]
        assert shown["Location"] == registry["location"]
        assert shown["Blocked"] == bool(registry.get("blocked"))
        mirrors = [
            (mirror["location"], bool(mirror.get("insecure"))) for mirror in registry.get("mirrors") or []
        ]
        assert [(one["Location"], one["Insecure"]) for one in shown["Mirrors"] or []] == mirrors


def test_a_name_without_a_registry_is_pulled_from_nowhere(opts, user):
    """Whoever serves a name that somebody else means would run as that person."""
    if not opts["podman_search_registries"]:
        refused = user.run("podman pull --quiet coldiron-test-nowhere")
        assert refused.rc != 0
        assert "no unqualified-search registries are defined" in refused.stderr


def test_the_policy_is_the_declared_one(host, opts):
    assert json.loads(host.file("/etc/containers/policy.json").content_string) == opts["podman_policy"]


def test_the_engine_needs_no_session(host, opts, user):
    engine = info(user)["host"]
    assert engine["cgroupManager"] == opts["podman_cgroup_manager"]
    assert engine["eventLogger"] == "file"
    assert engine["ociRuntime"]["name"] == "crun"


def test_containers_have_the_declared_limits(host, opts, user):
    """What podman would be started with: the command itself says its default."""
    text = host.file("/etc/containers/containers.conf.d/50-coldiron.conf").content_string
    assert f"pids_limit = {opts['podman_pids_limit']}\n" in text


def test_root_s_service_listens_only_where_it_is_wanted(host, opts):
    assert host.service("podman.socket").is_running == opts["podman_socket"]
    assert host.service("podman.socket").is_enabled == opts["podman_socket"]
