"""A job asks for a container and runs in it, with its own GPUs; Slurm loads a plugin that was built for it."""

from __future__ import annotations

import json
import re

import pytest

from coldiron.testing.jobs import with_nodes

TOOLS = "/bin/sh /usr/bin/cat /usr/bin/id"
CARDS = "/usr/bin/nvidia-smi"
NOTE = "/var/lib/coldiron/spank/pyxis/built.json"


def release(host):
    """Slurm's release here, such as 24.11.5."""
    return host.check_output("sinfo --version").split()[1]


@pytest.fixture(scope="module")
def user(host, opts, as_user, run_on, role_hosts):
    """Somebody who may run jobs: whom the controller knows and who has Enroot's directories here."""
    controller = run_on(role_hosts("slurm_controller")[0])
    known = controller.check_output("sacctmgr --noheader --parsable2 show user format=user").split()
    people = [account["name"] for account in opts["users_accounts"]]
    return as_user(next(name for name in people if name in known and host.user(name).exists))


@pytest.fixture(scope="module")
def image(host, user):
    """An image of the node's own programs that asks for all GPUs: no registry is asked."""
    folder = user.output("mktemp --directory /var/tmp/pyxis-test.XXXXXX").strip()
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


def job(hostname, image, command, options=""):
    """srun of a command in the image on this node."""
    asked = f"--immediate=30 --time=1 --ntasks=1 --mem=64M --nodelist={hostname} {options}"
    return f"srun {asked} --container-image={image} {command}"


def output(user, line):
    """What a job says that must succeed."""
    answer = with_nodes(lambda: user.run(line))
    assert answer.rc == 0, answer.stderr
    return answer.stdout


@pytest.mark.acts
def test_srun_has_the_option(host):
    assert "--container-image" in host.check_output("srun --help")


@pytest.mark.acts
def test_a_job_runs_in_the_image_that_it_asks_for(host, hostname, opts, user, image):
    if opts["pyxis_worker"]:
        shown = output(user, job(hostname, image, "/usr/bin/cat /etc/os-release"))
        assert shown == "NAME=coldiron-test\n"
        assert f"uid={host.user(user.name).uid}" in output(user, job(hostname, image, "/usr/bin/id"))


@pytest.mark.acts
def test_a_job_in_a_container_has_its_gpus_and_no_others(hostname, hostvars, opts, user, image):
    """Two of the node's GPUs, and none without asking; the container shows what may be opened."""
    gpus = (hostvars["coldiron_hardware"] or {}).get("gpus")
    if opts["pyxis_worker"] and gpus and opts["enroot_gpus"] == "cdi":
        asked = f"--gres=gpu:{gpus['type']}:2"
        shown = output(user, job(hostname, image, f"{CARDS} -L", asked))
        assert len(re.findall("^GPU ", shown, re.MULTILINE)) == 2, shown
        none = user.run(job(hostname, image, f"{CARDS} -L"))
        assert "GPU 0" not in none.stdout


@pytest.mark.acts
def test_a_job_without_an_image_runs_on_the_node(hostname, opts, user):
    if opts["pyxis_worker"]:
        asked = f"srun --immediate=30 --time=1 --ntasks=1 --mem=16M --nodelist={hostname} cat /etc/os-release"
        assert "NAME=coldiron-test" not in output(user, asked)


def test_the_plugin_is_the_builder_s(host, opts, run_on):
    """The same file everywhere, built of the declared source for the release that runs here."""
    builder = run_on(opts["pyxis_builder"])
    note = json.loads(builder.file(NOTE).content_string)
    assert note["source"] == opts["pyxis_source"]["sha256"]
    assert note["slurm"].split(".")[:2] == release(host).split(".")[:2]
    plugin = host.file(opts["__pyxis_path"])
    assert plugin.sha256sum == note["plugin"]
    assert (plugin.user, plugin.mode) == ("root", 0o644)


def test_it_is_built_for_the_slurm_that_the_builder_has(opts, run_on):
    builder = run_on(opts["pyxis_builder"])
    header = builder.file("/usr/include/slurm/slurm_version.h").content_string
    number = int(re.search(r"#define\s+SLURM_VERSION_NUMBER\s+0x(\w+)", header)[1], 16)
    built = json.loads(builder.file(NOTE).content_string)["slurm"]
    assert built == f"{number >> 16}.{number >> 8 & 255:02d}.{number & 255}"


def test_the_plugin_s_words_are_the_declared_ones(host, opts):
    lines = host.file(opts["__pyxis_file"]).content_string.splitlines()
    loaded = next(line.split() for line in lines if not line.startswith("#"))
    assert loaded[0] == ("required" if opts["pyxis_required"] else "optional")
    assert loaded[1] == opts["__pyxis_path"]
    assert sorted(loaded[2:]) == sorted(f"{word}={value}" for word, value in opts["__pyxis_words"].items())


def test_the_daemon_has_loaded_the_plugin(host, opts):
    """It makes root's directory when it loads it, and has started since the plugin was named."""
    if opts["pyxis_worker"]:
        folder = host.file(opts["pyxis_runtime_path"])
        assert (folder.user, folder.mode) == ("root", 0o700)
        begun = host.check_output('date +%s --date "$(systemctl show -P ActiveEnterTimestamp slurmd)"')
        assert int(begun) >= int(host.file(opts["__pyxis_file"]).mtime.timestamp())


def test_workers_have_no_compiler_for_it(host, hostname, opts):
    if opts["pyxis_worker"] and hostname != opts["pyxis_builder"]:
        assert not host.package("libslurm-dev").is_installed
