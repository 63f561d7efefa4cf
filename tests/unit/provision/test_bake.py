"""Baking, step by step, without root and archive: each step is a stand-in, what holds them together is the real one."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision import bake, images
from coldiron.provision.bake import Baker, tar_command, why_ansible
from coldiron.provision.bake_inputs import ClassInputs
from coldiron.provision.store import IMAGE, SBOM
from coldiron.rack.host import CommandError, Host
from tests.unit.provision.bake_samples import ARCHIVE, KERNEL, OPTIONS, make_root, write

KEY = images.make_key()
CPU = "cpu-debian-13"
WANTED = ClassInputs(
    node_class=CPU,
    distribution="debian-13",
    hosts=("cpu01",),
    roles=("base", "slurm_worker"),
    declared={"hosts": [{"base": [{"coldiron.cluster.converge": {"packages": ["less"]}}]}]},
    options=OPTIONS,
    key=KEY,
    secrets=("correct-horse-battery",),
)


class Kitchen(Host):
    """Makes of each command what the real one would leave. ``fails``: the step that does not end well."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = ""
        self.said = ""
        self.left = ("etc/left", "")
        self.commands: list[list[str]] = []
        self.root = Path()

    def which(self, command):
        return f"/usr/bin/{command}"

    def run(self, argv, **options):
        words = [str(word) for word in argv]
        self.commands.append(words)
        out = ""
        if words[0] == "dpkg-query":
            out = "ii \tslurmd\t24.11.5-4\n"
        if "generate" in words:
            if self.fails == "sbom":
                raise CommandError(options["what"], "no such file")
            Path(words[words.index("--out") + 1] + ".cdx.json").write_text('{"bomFormat": "CycloneDX"}')
        return subprocess.CompletedProcess(words, 0, out, "")

    def spawn(self, argv, *, cgroup, log, env=None):
        words = [str(word) for word in argv]
        self.commands.append(words)
        step = "root" if "mmdebstrap" in words else "pack" if words[0] == "bash" else "roles"
        if step == "root":
            self.root = make_root(Path(words[-2]))
            write(self.root, *self.left)
        elif step == "pack" and self.fails != "pack":
            Path(env["COLDIRON_TARGET"]).write_bytes(
                b"packed " + json.dumps(sorted(os.listdir(self.root))).encode()
            )
        with log.open("a") as stream:
            stream.write(self.said if self.fails == step else "all is well\n")
        return Ended(1 if self.fails == step else 0, self.fails == f"{step} hangs")


class Ended:
    def __init__(self, code, hangs):
        self.code, self.hangs = code, hangs

    def wait(self, seconds):
        if self.hangs:
            raise subprocess.TimeoutExpired("command", seconds)
        return self.code


class Group:
    """Stands in for a control group; how often it was killed is counted."""

    killed = 0

    def __init__(self, *_):
        self.path = Path("/nowhere/group")

    def make(self):
        pass

    def kill(self):
        Group.killed += 1

    def remove(self):
        pass


@pytest.fixture
def kitchen(tmp_path, monkeypatch):
    host = Kitchen()
    monkeypatch.setattr(bake, "Cgroup", Group)
    monkeypatch.setattr(bake, "refuse_not_root", lambda: None)
    monkeypatch.setattr(bake, "refuse_missing", lambda _host: None)
    monkeypatch.setattr(bake.bake_inputs, "read", lambda _inventory, _class: WANTED)
    monkeypatch.setattr(Baker, "_archive", lambda _self, _wanted: ARCHIVE)
    monkeypatch.setattr(bake, "ROOM_MIB", 1)
    (tmp_path / "cluster.yml").touch()
    return host


@pytest.fixture
def bake_it(kitchen, tmp_path):
    said: list[str] = []

    def run(**options):
        baker = Baker(tmp_path, CPU, host=kitchen, say=said.append)
        return baker, baker.bake(**options)

    run.said = said
    return run


def test_a_bake_ends_in_a_current_image_with_all_that_it_is(bake_it):
    baker, baked = bake_it()
    manifest = baked.image.manifest
    assert baked.fresh
    assert baker.store.current(CPU) == baked.image
    assert baker.store.verified(baked.image, [images.public_key(KEY)]) == manifest
    assert manifest.kernel == KERNEL
    assert manifest.packages == {"slurmd": "24.11.5-4"}
    assert manifest.roles == ("base", "slurm_worker")
    assert json.loads(baked.image.sbom_path.read_text())["bomFormat"] == "CycloneDX"
    assert set(baked.seconds) >= {"inputs", "archive", "root", "roles", "finish", "sbom", "pack", "digest"}
    assert [path.name for path in baker.store.directory.iterdir() if path.name.startswith(".")] == []


def test_the_same_inputs_are_not_baked_again_unless_asked(bake_it, kitchen):
    _, first = bake_it()
    kitchen.commands.clear()
    _, second = bake_it()
    assert (second.fresh, second.current, second.image) == (False, True, first.image)
    assert kitchen.commands == []
    assert bake_it(again=True)[1].fresh


def test_an_image_of_the_same_inputs_that_is_not_current_is_said_to_be_so(bake_it, kitchen, monkeypatch):
    baker, first = bake_it()
    other = ClassInputs(**{**WANTED.__dict__, "roles": ("base",)})
    monkeypatch.setattr(bake.bake_inputs, "read", lambda _inventory, _class: other)
    kitchen.left = ("other/file", "")
    _, second = bake_it()
    assert baker.store.current(CPU).sha256 == second.image.sha256 != first.image.sha256
    monkeypatch.setattr(bake.bake_inputs, "read", lambda _inventory, _class: WANTED)
    _, third = bake_it()
    assert (third.fresh, third.current, third.image.sha256) == (False, False, first.image.sha256)


def test_ansible_is_led_into_the_root_and_told_the_class_s_roles(bake_it, kitchen):
    bake_it()
    command = next(words for words in kitchen.commands if words[0].endswith("ansible-playbook"))
    extra = json.loads(command[command.index("-e") + 1])
    assert extra["coldiron_image_roles"] == ["base", "slurm_worker"]
    assert extra["coldiron_image_hosts"] == ["cpu01"]
    assert extra["coldiron_image_packages"] == ["less"]
    assert extra["coldiron_image_root"].endswith(f".baking-{CPU}/root")
    assert extra["coldiron_image_chroot"].endswith("chroot.sh")
    assert "horse" not in str(kitchen.commands)


@pytest.mark.parametrize(
    ("step", "said", "why"),
    [
        ("root", "E: Unable to locate package nowhere\n", "making the root of debian-13: .*Unable to locate"),
        (
            "roles",
            'fatal: [cpu01]: FAILED! => {"msg": "apt cannot install slurmd"}\n',
            "apt cannot install slurmd",
        ),
        ("pack", "zstd: No space left on device\n", "packing the image: no space left"),
        ("sbom", "", "list of components"),
        ("roles hangs", "", "no end after 3600 s"),
    ],
)
def test_what_fails_is_told_and_leaves_no_image(bake_it, kitchen, tmp_path, step, said, why):
    kitchen.fails, kitchen.said = step, said
    killed = Group.killed
    with pytest.raises(ColdironError, match=why) as caught:
        bake_it()
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert Group.killed > killed
    left = {path.name for path in (tmp_path / ".images").iterdir()}
    assert left == {f"last-failure-{CPU}.log"}
    assert "last-failure" in bake_it.said[-1]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("deb http://mirror.example.org/debian trixie main", "package archive"),
        ("proxy 127.0.0.1:3143", "package archive"),
        ("password=correct-horse-battery", "a secret"),
    ],
)
def test_an_image_with_something_of_the_builder_s_is_thrown_away(bake_it, kitchen, tmp_path, text, what):
    kitchen.left = ("etc/left", text)
    with pytest.raises(ColdironError, match=rf"/etc/left \(.*{what}") as caught:
        bake_it()
    assert caught.value.exit_code == ExitCode.REFUSED
    assert "horse" not in caught.value.message
    assert not list((tmp_path / ".images").glob(f"*/{IMAGE}"))


def test_a_kernel_without_a_server_s_driver_is_refused_in_one_line(bake_it, monkeypatch):
    lacking = ClassInputs(
        **{
            **WANTED.__dict__,
            "options": bake.bake_inputs.Options(**{**OPTIONS.__dict__, "modules": ("ice",)}),
        }
    )
    monkeypatch.setattr(bake.bake_inputs, "read", lambda _inventory, _class: lacking)
    with pytest.raises(ColdironError, match="has no ice; write image_kernel: generic"):
        bake_it()


def test_missing_firmware_is_told_or_refused_by_policy(bake_it, monkeypatch):
    assert "lack the component non-free-firmware" in bake_it()[1].warnings[0]
    strict = bake.bake_inputs.Options(**{**OPTIONS.__dict__, "firmware_missing": "refuse"})
    wanted = ClassInputs(**{**WANTED.__dict__, "options": strict})
    monkeypatch.setattr(bake.bake_inputs, "read", lambda _inventory, _class: wanted)
    with pytest.raises(ColdironError, match="non-free-firmware") as caught:
        bake_it(again=True)
    assert caught.value.exit_code == ExitCode.REFUSED


def test_a_key_that_is_none_stops_the_bake_before_it_begins(bake_it, kitchen, monkeypatch):
    wanted = ClassInputs(**{**WANTED.__dict__, "key": b"no key"})
    monkeypatch.setattr(bake.bake_inputs, "read", lambda _inventory, _class: wanted)
    with pytest.raises(ColdironError, match="no Ed25519 key"):
        bake_it()
    assert kitchen.commands == []


def test_only_root_bakes(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ColdironError, match="type the same behind sudo"):
        bake.refuse_not_root()


def test_missing_packages_are_named_in_one_line(monkeypatch):
    host = Host()
    monkeypatch.setattr(host, "which", lambda command: None if command == "mmdebstrap" else "/usr/bin/x")
    with pytest.raises(ColdironError, match=r"apt-get install .*mmdebstrap"):
        bake.refuse_missing(host)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('ok: [a]\nfatal: [a]: FAILED! => {"changed": false, "msg": "no package"}\n', "no package"),
        ('failed: [a] (item=x) => {"msg": "item fails"}\n', "item fails"),
        ("[ERROR]: Attempting to decrypt but no vault secrets found\n", "no vault secrets"),
        ("Killed\n", "Killed"),
    ],
)
def test_the_reason_is_found_in_what_ansible_says(said, why):
    assert why in why_ansible(said)


def test_two_roots_alike_are_packed_alike_and_nothing_is_younger_than_the_archive(tmp_path):
    digests = []
    for name in ("one", "two"):
        root = tmp_path / name
        for path in sorted(("b", "a/c", "a/b"), reverse=name == "two"):
            write(root, path, path)
        os.utime(root / "b", (1, 1_000_000_000))
        done = subprocess.run(tar_command(root, 1_700_000_000), capture_output=True, check=True)
        digests.append(hashlib.sha256(done.stdout).hexdigest())
        (tmp_path / "out.tar").write_bytes(done.stdout)
    assert digests[0] == digests[1]
    with tarfile.open(tmp_path / "out.tar") as archive:
        times = {member.name: member.mtime for member in archive}
    assert times["./b"] == 1_000_000_000
    assert max(times.values()) == 1_700_000_000
    assert list(times) == sorted(times)


def test_the_list_of_components_must_be_one(bake_it, kitchen, monkeypatch, tmp_path):
    real = kitchen.run

    def run(argv, **options):
        done = real(argv, **options)
        if "generate" in argv:
            Path(str(argv[argv.index("--out") + 1]) + ".cdx.json").write_text("{}")
        return done

    monkeypatch.setattr(kitchen, "run", run)
    with pytest.raises(ColdironError, match="no CycloneDX"):
        bake_it()
    assert not list(tmp_path.glob(f".images/*/{SBOM}"))
