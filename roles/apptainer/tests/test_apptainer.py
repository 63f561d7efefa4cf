"""People build and run images as themselves, with the declared binds and the declared rights; nothing lies in homes."""

from __future__ import annotations

import shlex

import pytest

TOOLS = "/bin/sh /usr/bin/cat /usr/bin/id /usr/bin/ls"


@pytest.fixture(scope="module")
def user(host, opts, as_user):
    """Somebody who has an account here; without such a person Apptainer has nothing to do on the node."""
    return as_user(next(name for name in opts["apptainer_users"] if host.user(name).exists))


@pytest.fixture(scope="module")
def image(user):
    """An image that the user has built of the node's own programs: no registry is asked."""
    folder = user.output("mktemp --directory").strip()
    root = f"{folder}/root"
    made = (
        f"mkdir -p {root}/etc && {{ ldd {TOOLS} | grep -o '/[^ :]*'; printf '%s\\n' {TOOLS}; }} | sort -u"
        f" | tar --create --dereference --files-from=- 2>/dev/null | tar --extract --directory={root}"
        f" && : > {root}/etc/passwd && : > {root}/etc/group"
        f" && apptainer --quiet build {folder}/test.sif {root}"
    )
    user.output(made)
    yield f"{folder}/test.sif"
    user.output(f"rm -rf {folder}")


def inside(user, image, command, options=""):
    return user.output(f"apptainer --quiet exec {options} {image} {command}")


def setting(host, word):
    return host.check_output(f"apptainer config global --get {shlex.quote(word)}").strip()


@pytest.mark.acts
def test_a_person_is_the_same_person_inside(host, user, image):
    assert f"uid={host.user(user.name).uid}" in inside(user, image, "/usr/bin/id")


@pytest.mark.acts
def test_root_inside_is_the_person_outside(host, user, image):
    shown = inside(user, image, "/usr/bin/cat /proc/self/uid_map", "--fakeroot").splitlines()
    assert shown[0].split() == ["0", str(host.user(user.name).uid), "1"]
    assert len(shown) == 2, "without subordinate ids root inside has no other ids"


@pytest.mark.acts
def test_containers_need_no_program_with_root_s_rights(host, opts, user, image):
    """In a container of a user namespace the ids are mapped; a setuid starter maps none."""
    mapped = inside(user, image, "/usr/bin/cat /proc/self/uid_map").split()
    starters = host.run("find / -xdev -name 'starter-suid' -perm -4000").stdout.split()
    if opts["apptainer_setuid"]:
        assert starters
    else:
        assert mapped[1] == str(host.user(user.name).uid)
        assert starters == []
    assert setting(host, "allow setuid") == ("yes" if opts["apptainer_setuid"] else "no")


@pytest.mark.acts
def test_what_is_bound_is_what_was_declared(host, opts, user, image):
    points = [
        line.split()[4] for line in inside(user, image, "/usr/bin/cat /proc/self/mountinfo").splitlines()
    ]
    for bind in opts["apptainer_bind_paths"]:
        source, _, target = bind.partition(":")
        if host.file(source).exists:
            assert (target.partition(":")[0] or source) in points
    home = host.check_output(f"getent passwd {user.name}").split(":")[5]
    assert (home in points) == opts["apptainer_mount_home"]


@pytest.mark.acts
def test_nothing_of_an_image_lies_in_the_home(opts, user):
    root = opts["apptainer_user_root"]
    shown = user.output('echo "$APPTAINER_CACHEDIR $APPTAINER_TMPDIR"').split()
    if root:
        assert shown == [f"{root}/{user.name}/cache", f"{root}/{user.name}/tmp"]
        user.output('touch "$APPTAINER_TMPDIR/mine" && rm "$APPTAINER_TMPDIR/mine"')
    else:
        assert shown == []


def test_nobody_reads_another_s_files(host, opts):
    for name in opts["apptainer_users"] if opts["apptainer_user_root"] else []:
        folder = host.file(f"{opts['apptainer_user_root']}/{name}")
        assert (folder.user, folder.mode) == (name, 0o700)


def test_the_settings_are_the_declared_ones(host, opts):
    assert setting(host, "user bind control") == ("yes" if opts["apptainer_user_bind_control"] else "no")
    assert setting(host, "always use nv") == ("yes" if opts["apptainer_always_nv"] else "no")
    for word, value in opts["apptainer_settings"].items():
        assert setting(host, word) == {"True": "yes", "False": "no"}.get(str(value), str(value))


def test_the_package_is_the_declared_one(host, opts):
    for item in opts["__apptainer_files"] if opts["__apptainer_from"] == "package" else []:
        assert host.package(item["name"]).version == item["version"]
