"""People run images as themselves, from the node's own disk, with the declared mounts, variables and GPUs."""

from __future__ import annotations

import re

import pytest

TOOLS = "/bin/sh /usr/bin/cat /usr/bin/id /usr/bin/ls /usr/bin/env /usr/bin/touch"
CARDS = "/usr/bin/nvidia-smi"


def words(host):
    """enroot.conf as the declared words with their values."""
    lines = host.file("/etc/enroot/enroot.conf").content_string.splitlines()
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


@pytest.fixture(scope="module")
def user(host, opts, as_user):
    """Somebody who has an account here; without such a person Enroot has nothing to do on the node."""
    return as_user(next(name for name in opts["enroot_users"] if host.user(name).exists))


@pytest.fixture(scope="module")
def image(host, user):
    """An image of the node's own programs that asks for all GPUs: no registry is asked."""
    folder = user.output("mktemp --directory /var/tmp/enroot-test.XXXXXX").strip()
    root = f"{folder}/root"
    tools = f"{TOOLS} {CARDS}" if host.file(CARDS).exists else TOOLS
    made = (
        f"mkdir -p {root}/etc && {{ ldd {tools} | grep -o '/[^ :]*' | grep -v libnvidia; printf '%s\\n' {tools}; }}"
        f" | sort -u | tar --create --dereference --files-from=- 2>/dev/null | tar --extract --directory={root}"
        f" && echo NAME=coldiron-test > {root}/etc/os-release"
        f" && echo NVIDIA_VISIBLE_DEVICES=all > {root}/etc/environment"
        f" && mksquashfs {root} {folder}/test.sqsh -all-root -quiet -no-progress"
    )
    user.output(made)
    yield f"{folder}/test.sqsh"
    user.output(f"rm -rf {folder}")


@pytest.fixture(scope="module")
def container(user, image):
    """A container that the user has made of it."""
    user.run("enroot remove --force coldiron-test")
    user.output(f"enroot create --name coldiron-test {image}")
    yield "coldiron-test"
    user.output("enroot remove --force coldiron-test")


def inside(user, container, command, options="", before=""):
    return user.output(f"{before} enroot start {options} {container} {command}")


@pytest.mark.acts
def test_a_person_is_the_same_person_inside(host, opts, user, container):
    shown = inside(user, container, "/usr/bin/id")
    assert f"uid={0 if opts['enroot_remap_root'] else host.user(user.name).uid}" in shown
    assert "coldiron-test" in inside(user, container, "/usr/bin/cat /etc/os-release")


@pytest.mark.acts
def test_a_container_is_written_to_where_that_is_declared(opts, user, container):
    written = user.run(f"enroot start {container} /usr/bin/touch /here")
    assert (written.rc == 0) == opts["enroot_rootfs_writable"]


@pytest.mark.acts
def test_images_lie_on_the_node_s_own_disk(host, opts, user, container):
    root = opts["enroot_user_root"]
    if root:
        assert host.file(f"{root}/{user.name}/data/{container}").is_directory
        assert words(host)["ENROOT_CACHE_PATH"] == f"{root}/$(id -un)/cache"
    home = user.output('echo "$HOME"').strip()
    assert host.file(f"{home}/.local/share/enroot/{container}").exists == (not root)


def test_nobody_reads_another_s_files(host, opts):
    root = opts["enroot_user_root"]
    for name in opts["enroot_users"] if root else []:
        for folder in (f"{root}/{name}", f"{root}/{name}/data", f"/run/enroot/{name}"):
            found = host.file(folder)
            assert (found.user, found.mode) == (name, 0o700), folder


def test_a_boot_brings_the_working_directories_back(host, opts):
    """What systemd-tmpfiles reads; nobody else can make them first."""
    if opts["enroot_user_root"]:
        read = host.check_output("systemd-tmpfiles --cat-config").splitlines()
        for name in opts["enroot_users"]:
            assert f"d /run/enroot/{name} 0700 {name} - -" in read


@pytest.mark.acts
def test_declared_mounts_and_variables_are_in_every_container(opts, user, container):
    shown = inside(user, container, "/usr/bin/env").splitlines()
    for name, value in opts["enroot_environment"].items():
        assert f"{name}={value}" in shown
    points = [
        line.split()[4] for line in inside(user, container, "/usr/bin/cat /proc/self/mountinfo").splitlines()
    ]
    for line in opts["enroot_mounts"]:
        assert line.split()[1] in points


@pytest.mark.acts
def test_hooks_run_before_a_container_starts(host, opts, user, container):
    """A hook that is declared has left what it leaves; the scenario's writes a variable."""
    shown = inside(user, container, "/usr/bin/env")
    for hook in opts["enroot_hooks"]:
        found = host.file(f"/etc/enroot/hooks.d/{hook['name']}.sh")
        assert found.mode == 0o755
        for line in re.findall(r"echo (\w+=\w+) >> \"\$ENROOT_ENVIRON\"", hook["content"]):
            assert line in shown


def test_the_settings_are_the_declared_ones(host, opts):
    spelt = {True: "yes", False: "no"}
    found = words(host)
    for name in ("rootfs_writable", "remap_root", "mount_home", "restrict_dev"):
        assert found[f"ENROOT_{name.upper()}"] == spelt[opts[f"enroot_{name}"]]
    for word, value in opts["enroot_settings"].items():
        assert found.get(word, "") == (spelt[value] if isinstance(value, bool) else str(value))


def test_passwords_are_their_person_s_alone(host, opts, as_user):
    root = opts["enroot_user_root"]
    for one in opts["enroot_credentials"]:
        path = f"{root}/{one['user']}/config/.credentials"
        found = host.file(path)
        assert (found.user, found.mode) == (one["user"], 0o600)
        assert f"machine {one['machine']} " in found.content_string
        others = [name for name in opts["enroot_users"] if name != one["user"] and host.user(name).exists]
        for other in others[:1]:
            assert as_user(other).run(f"cat {path}").rc != 0


@pytest.mark.acts
def test_an_image_that_asks_for_gpus_starts_where_there_are_none(opts, user, container):
    if opts["enroot_gpus"] == "none":
        assert "/dev" in inside(user, container, "/usr/bin/ls -d /dev")


@pytest.mark.acts
def test_a_container_has_the_gpus_that_it_asks_for(host, opts, user, container):
    if opts["enroot_gpus"] != "cdi":
        return
    listed = re.findall("^GPU ", inside(user, container, CARDS + " -L"), re.MULTILINE)
    assert len(listed) == len(re.findall("^GPU ", host.check_output("nvidia-smi -L"), re.MULTILINE))
    asked = "NVIDIA_VISIBLE_DEVICES=0 "
    if opts["enroot_restrict_dev"]:
        one = re.findall("^GPU ", inside(user, container, CARDS + " -L", before=asked), re.MULTILINE)
        assert len(one) == 1
    refused = user.run(f"NVIDIA_VISIBLE_DEVICES=77 enroot start {container} {CARDS} -L")
    assert refused.rc != 0
    assert "there is no GPU 77" in refused.stderr


@pytest.mark.acts
def test_a_container_of_a_job_has_the_job_s_gpus_and_no_others(opts, user, container):
    """As Slurm names them; where it constrains devices the rest cannot be opened either."""
    if opts["enroot_gpus"] == "cdi" and opts["enroot_restrict_dev"]:
        job = "SLURM_JOB_ID=7 SLURM_JOB_GPUS=1,2 CUDA_VISIBLE_DEVICES=1,2"
        shown = inside(user, container, CARDS + " -L", before=job)
        assert len(re.findall("^GPU ", shown, re.MULTILINE)) == 2
        without = user.run(f"SLURM_JOB_ID=7 enroot start {container} {CARDS} -L")
        assert "GPU 0" not in without.stdout


def test_the_packages_are_the_declared_ones(host, opts):
    if opts["enroot_source"] == "package":
        for item in opts["enroot_packages"]:
            assert host.package(item["name"]).version == item["version"]
    else:
        assert host.package("enroot").is_installed
        pattern = opts["enroot_version"].replace("*", ".*") or ".*"
        assert re.fullmatch(pattern, host.package("enroot").version)


@pytest.mark.acts
def test_people_may_make_namespaces_of_their_own(user):
    """Without them no container starts: kernels and their settings differ in who may."""
    assert user.run("unshare --user --map-root-user --mount true").rc == 0
