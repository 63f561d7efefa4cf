"""Bake an image of a class of nodes: a root, what its roles install, a packed and signed whole.

The root is made by mmdebstrap and filled by Ansible over a chroot connection, all of it in one control group: what is
interrupted is killed, and what a killed bake left is killed and removed by the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.provision import bake_inputs, bake_root, images
from coldiron.provision.bake_recipe import Archive, Recipe, archive, plain_inputs, words_of, write_files
from coldiron.provision.store import IMAGE, SBOM, STORE_DIRECTORY, Store, StoredImage, digest_of
from coldiron.rack import aptsource
from coldiron.rack.base import why
from coldiron.rack.build import APT
from coldiron.rack.cache import PORT
from coldiron.rack.cgroup import Cgroup, unified_root
from coldiron.rack.host import CommandError, Host
from coldiron.rack.layout import Machine
from coldiron.rack.machine import MachineKeeper
from coldiron.rack.requirements import Requirement, missing

Result = TypeVar("Result")
# An image's root is some 700 MB with its package lists, the packed one some 250.
ROOM_MIB = 3000
_ROOT_SECONDS = 1800.0
_ROLES_SECONDS = 3600.0
_PACK_SECONDS = 1800.0
# zstd's third level packs at the speed of the disk; the next ones cost twice the time for a few percent.
LEVEL = 3
PLAYBOOK = "bake.yml"
REQUIREMENTS = (
    Requirement("mmdebstrap", command="mmdebstrap"),
    Requirement("debian-archive-keyring", file=aptsource.KEYRING),
    Requirement("apt", file="/usr/lib/apt/apt-helper"),
    Requirement("zstd", command="zstd"),
    Requirement("tar", command="tar"),
    Requirement("util-linux", command="unshare"),
    Requirement("mount", command="mount"),
)


@dataclass
class Baked:
    """What came of it. ``fresh``: whether it was baked now. ``seconds`` by step, in their order."""

    image: StoredImage
    fresh: bool
    current: bool
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Baker:
    """Bakes one class of one inventory's nodes into its store."""

    def __init__(
        self,
        inventory: Path,
        node_class: str,
        *,
        say: Callable[[str], None] = lambda _: None,
        host: Host | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.inventory = inventory.resolve()
        self.directory = self.inventory if self.inventory.is_dir() else self.inventory.parent
        self.node_class = node_class
        self.say = say
        self.host = host or Host()
        self.machine = machine or Machine()
        self.store = Store(self.directory / STORE_DIRECTORY, self.host)
        self.seconds: dict[str, float] = {}

    def bake(self, *, again: bool = False) -> Baked:
        """Bake the class, unless there is an image of the same inputs; ``again`` bakes it all the same.

        Raises ColdironError where something is lacking or fails. Nothing of a bake that failed is in the store.
        """
        refuse_not_root()
        refuse_missing(self.host)
        wanted = self._step("inputs", lambda: bake_inputs.read(self.inventory, self.node_class))
        recipe = Recipe(
            wanted.distribution, wanted.options, self._step("archive", lambda: self._archive(wanted))
        )
        warnings = self._warnings(recipe)
        inputs = images.inputs_digest(
            plain_inputs({"root": recipe.inputs(), "roles": wanted.roles, "declared": wanted.declared})
        )
        if not again and (found := self.store.built(self.node_class, inputs)):
            return self._found(found, warnings)
        # The key is looked at before an hour is spent.
        images.public_key(wanted.key)
        self.store.refuse_little_room(ROOM_MIB)
        with self.store.baking(self.node_class, self.say) as work:
            if not again and (found := self.store.built(self.node_class, inputs)):
                # Another one has baked it while this one waited.
                return self._found(found, warnings)
            image = self._bake(work, wanted, recipe, inputs)
        return Baked(image, True, True, self.seconds, warnings)

    def _found(self, image: StoredImage, warnings: list[str]) -> Baked:
        pair = self.store.pointers().get(self.node_class)
        return Baked(image, False, pair is not None and pair.current == image.sha256, self.seconds, warnings)

    def _archive(self, wanted: bake_inputs.ClassInputs) -> Archive:
        apt = aptsource.read_host(APT, self.host.run(["apt-config", "dump"]).stdout)
        keeper = MachineKeeper(self.host, self.machine, self._groups())
        port = (keeper.registry().cache_port or PORT) if keeper.cache.running() else None
        return archive(wanted.distribution, apt, self.host, port)

    def _warnings(self, recipe: Recipe) -> list[str]:
        if not recipe.firmware_missing:
            return []
        if recipe.options.firmware_missing == "refuse":
            raise ColdironError(recipe.firmware_missing, ExitCode.REFUSED)
        return [recipe.firmware_missing]

    def _groups(self) -> Path:
        return unified_root((self.machine.proc / "self/mountinfo").read_text())

    def _bake(self, work: Path, wanted: bake_inputs.ClassInputs, recipe: Recipe, inputs: str) -> StoredImage:
        group = Cgroup(
            self._groups(), f"coldiron-bake/{os.path.basename(work)}-{_short(str(self.directory))}"
        )
        # A killed bake's own processes may still be at work.
        group.kill()
        group.make()
        root, log = work / "root", work / "log"
        chroot = work / "chroot.sh"
        chroot.write_text(files("coldiron.provision").joinpath("files/chroot.sh").read_text(encoding="utf-8"))
        chroot.chmod(0o700)
        try:
            self._step("root", lambda: self._make_root(recipe, work, root, log, group))
            self._step("roles", lambda: self._install(wanted, root, chroot, log, group))
            manifest_parts = self._step("finish", lambda: self._finish(wanted, recipe, root, chroot))
            self._step("sbom", lambda: self._sbom(["--root", str(root)], work / SBOM, recipe.archive.epoch))
            self._step("pack", lambda: self._pack(root, work / IMAGE, recipe.archive.epoch, log, group))
        except CommandError:
            self._keep_log(log)
            raise
        finally:
            group.kill()
            group.remove()
            # Another class may be baked at the same time.
            with contextlib.suppress(OSError):
                group.path.parent.rmdir()
        kernel, packages = manifest_parts
        sha256, size = self._step("digest", lambda: digest_of([work / IMAGE]))
        manifest = images.Manifest(
            sha256=sha256,
            size_bytes=size,
            node_class=self.node_class,
            distribution=wanted.distribution,
            kernel=kernel,
            packages=packages,
            roles=wanted.roles,
            inputs=inputs,
            created=int(time.time()),
        )
        ready = work / "ready"
        ready.mkdir()
        for name in (IMAGE, SBOM):
            os.rename(work / name, ready / name)
        return self._step("store", lambda: self.store.add(ready, manifest, wanted.key, (SBOM,)))

    def _make_root(self, recipe: Recipe, work: Path, root: Path, log: Path, group: Cgroup) -> None:
        self.say(
            f"baking {self.node_class}: a root of {recipe.distribution}, {len(recipe.packages)} packages and what "
            "they need"
        )
        write_files(recipe.files(), work / "files")
        (work / "sources.list").write_text(recipe.archive.sources)
        environment = {
            "COLDIRON_FILES": str(work / "files"),
            "DEBIAN_FRONTEND": "noninteractive",
            "TMPDIR": str(work),
        }
        command = recipe.mmdebstrap(root, work / "sources.list")
        code = self._spawn(command, group, log, environment, _ROOT_SECONDS)
        if code != 0:
            raise CommandError(
                f"making the root of {recipe.distribution}", why(log.read_text(errors="replace"))
            )

    def _install(
        self, wanted: bake_inputs.ClassInputs, root: Path, chroot: Path, log: Path, group: Cgroup
    ) -> None:
        self.say(f"installing what {', '.join(wanted.roles)} install")
        from coldiron.run.engine import find_ansible_playbook
        from coldiron.run.survey import settings
        from coldiron.testing.stages import find_collection

        # apt inside asks by name where no cache stands between.
        (root / "etc/resolv.conf").touch()
        extra = {
            "coldiron_image_hosts": list(wanted.hosts),
            "coldiron_image_roles": list(wanted.roles),
            "coldiron_image_packages": wanted.packages,
            "coldiron_image_root": str(root),
            "coldiron_image_chroot": str(chroot),
        }
        own = Path("ansible.cfg").resolve()
        environment = {
            **os.environ,
            **settings(self.directory, os.environ),
            **({"ANSIBLE_CONFIG": str(own)} if own.is_file() and "ANSIBLE_CONFIG" not in os.environ else {}),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "ANSIBLE_CALLBACK_FORMAT_PRETTY": "false",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "false",
        }
        playbook = find_collection() / "playbooks" / PLAYBOOK
        command = [
            find_ansible_playbook(), str(playbook), "-i", str(self.inventory), "-e", json.dumps(extra),
        ]  # fmt: skip
        begun = log.stat().st_size if log.exists() else 0
        code = self._spawn(command, group, log, environment, _ROLES_SECONDS)
        if code != 0:
            said = log.read_bytes()[begun:].decode(errors="replace")
            raise CommandError("installing what the roles install", why_ansible(said))

    def _finish(
        self, wanted: bake_inputs.ClassInputs, recipe: Recipe, root: Path, chroot: Path
    ) -> tuple[str, dict[str, str]]:
        options = wanted.options
        bake_root.settle(root, chroot, options.quiet_units, self.host)
        bake_root.clean(root, recipe.apt_sources)
        kernel = bake_root.kernel_of(root)
        if lacking := bake_root.missing_modules(root, kernel, options.modules):
            raise ColdironError(
                f"the kernel {kernel} has no {', '.join(lacking)}; write image_kernel: generic, or take them out of "
                "image_modules",
                ExitCode.REFUSED,
            )
        packages = bake_root.packages_of(root, self.host)
        foreign = words_of([recipe.archive.sources, *recipe.archive.apt_options]) - words_of(
            recipe.apt_sources
        )
        words = dict.fromkeys(foreign, "an address of this machine's package archive")
        words |= {str(root.parent): "a directory of this machine"}
        words |= dict.fromkeys(wanted.secrets, "a secret")
        bake_root.refuse_leftovers(root, words)
        bake_root.stamp(root)
        return kernel, packages

    def _sbom(self, source: Sequence[str], target: Path, epoch: int, told: str | None = None) -> None:
        """Write the list of components of ``source``, in debsbom's words; ``told`` is what it reads."""
        program = Path(sys.executable).parent / "debsbom"
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
        self.host.run(
            [
                str(program) if program.exists() else "debsbom", "generate", "--sbom-type", "cdx",
                *source, "--out", str(target.with_suffix("")), "--timestamp", moment,
                "--distro-name", f"coldiron-{self.node_class}",
            ],
            stdin=told,
            what="writing the list of components (debsbom)",
            timeout_seconds=600.0,
        )  # fmt: skip
        written = target.with_suffix(".cdx.json")
        if json.loads(written.read_bytes()).get("bomFormat") != "CycloneDX":
            raise ColdironError("debsbom wrote no CycloneDX document", ExitCode.HOSTS_FAILED)
        os.rename(written, target)

    def _pack(self, root: Path, target: Path, epoch: int, log: Path, group: Cgroup) -> None:
        # Both ends of the pipe count, and tar's warning of a socket is none.
        script = 'set -o pipefail; "$@" | zstd -q -T0 "-$COLDIRON_LEVEL" -o "$COLDIRON_TARGET"'
        environment = {"COLDIRON_LEVEL": str(LEVEL), "COLDIRON_TARGET": str(target)}
        command = ["bash", "-c", script, "bash", *tar_command(root, epoch)]
        if self._spawn(command, group, log, environment, _PACK_SECONDS) != 0:
            raise CommandError("packing the image", log.read_text(errors="replace"))
        # The root is not needed any more, and twice the size of the image.
        shutil.rmtree(root)

    def _spawn(
        self, command: Sequence[str], group: Cgroup, log: Path, environment: Mapping[str, str], seconds: float
    ) -> int:
        process = self.host.spawn(command, cgroup=group.path, log=log, env=environment)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise CommandError(os.path.basename(command[0]), f"no end after {seconds:.0f} s") from None
        finally:
            group.kill()

    def _keep_log(self, log: Path) -> None:
        """What was said goes on being there when the rest is removed."""
        if log.exists():
            kept = self.store.directory / f"last-failure-{self.node_class}.log"
            shutil.copy(log, kept)
            self.say(f"what was said to the end: {shown_path(kept)}")

    def _step(self, name: str, act: Callable[[], Result]) -> Result:
        begun = time.monotonic()
        try:
            return act()
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun


def tar_command(root: Path, epoch: int) -> list[str]:
    """What packs a root the same way each time: by name, by number, nothing younger than the archive."""
    return [
        "tar", "--create", "--format=posix", "--sort=name", "--numeric-owner", "--one-file-system",
        "--xattrs", "--xattrs-include=*", f"--mtime=@{epoch}", "--clamp-mtime",
        "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
        "--warning=no-file-ignored", f"--directory={root}", ".",
    ]  # fmt: skip


def why_ansible(said: str) -> str:
    """The lines of ansible-playbook's output that say why it failed."""
    for line in said.splitlines():
        if match := re.match(r"(?:fatal|failed): \[[^\]]*\].*? => (\{.*\})$", line):
            try:
                return str(json.loads(match[1])["msg"])
            except (ValueError, KeyError):
                continue
    told = [line for line in said.splitlines() if "ERROR" in line]
    return "\n".join(told[-2:] or said.splitlines()[-3:])


def refuse_not_root() -> None:
    """Raise ColdironError for an ordinary user."""
    if os.geteuid() != 0:
        raise ColdironError(
            "baking makes a root file system, which only root may; type the same behind sudo",
            ExitCode.ENVIRONMENT,
        )


def refuse_missing(host: Host) -> None:
    """Raise ColdironError, with the line to type, where a package is missing."""
    if packages := missing(host, REQUIREMENTS):
        raise ColdironError(
            f"baking needs packages that are not here; type: apt-get install {' '.join(packages)}",
            ExitCode.ENVIRONMENT,
        )


def _short(text: str) -> str:
    return images.inputs_digest({"text": text})[:8]
