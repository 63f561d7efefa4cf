"""Bake the RAM environment that machines boot to be installed, into the same store and by the same key."""

from __future__ import annotations

import hashlib
import time
from importlib.resources import files
from pathlib import Path

from coldiron.errors import ColdironError
from coldiron.inventory import find, load
from coldiron.inventory.findings import shown_path
from coldiron.provision import bake_inputs, images, ramdisk
from coldiron.provision.bake import Baked, Baker, refuse_missing, refuse_not_root
from coldiron.provision.bake_recipe import release_dates
from coldiron.provision.deploy_program import program
from coldiron.provision.store import DEPLOY, SBOM, StoredImage, digest_of
from coldiron.rack import aptsource
from coldiron.rack.build import APT

CERTIFICATE = "coldiron_ca_certificate"
KERNEL = "image_deploy_kernel"
DISTRIBUTION = "debian-13"
ROOM_MIB = 2500
# What builds the environment, beside the program that runs in it.
_BUILDER = ("ramdisk.py", "ramdisk_tree.py", "files/ramdisk*")


class DeployBaker(Baker):
    """Bakes the class ``deploy``: a kernel and one initramfs, with the site's certificate and public key in it."""

    def bake(self, *, again: bool = False) -> Baked:
        """As ``Baker.bake`` does for a class of nodes."""
        refuse_not_root()
        refuse_missing(self.host)
        key, certificate, kernel = self._step("inputs", self._from_site)
        public = images.public_key(key)
        apt = aptsource.read_host(APT, self.host.run(["apt-config", "dump"]).stdout)
        dates = self._step("archive", lambda: release_dates(DISTRIBUTION, apt, self.host))
        inputs = images.inputs_digest(
            {
                "distribution": DISTRIBUTION,
                "archive": dates,
                "kernel": kernel,
                "certificate": certificate,
                "key": public.decode(),
                "program": _program_digest(),
            }
        )
        if not again and (found := self.store.built(DEPLOY, inputs)):
            return self._found(found, [])
        self.store.refuse_little_room(ROOM_MIB)
        with self.store.baking(DEPLOY, self.say) as work:
            if not again and (found := self.store.built(DEPLOY, inputs)):
                return self._found(found, [])
            image = self._make(work, key, public, certificate, kernel, inputs)
        return Baked(image, True, True, self.seconds)

    def _make(
        self, work: Path, key: bytes, public: bytes, certificate: str, kernel: str, inputs: str
    ) -> StoredImage:
        built = self._step(
            "build",
            lambda: ramdisk.build(
                work / "build",
                ca_certificate=certificate,
                image_keys=[public.decode()],
                distribution=DISTRIBUTION,
                kernel=kernel,
                say=self.say,
                host=self.host,
            ),
        )
        ready = work / "ready"
        ready.mkdir()
        epoch = int(time.time())
        listed = "".join(f"{name} {version} amd64\n" for name, version in sorted(built.packages.items()))
        self._step(
            "sbom",
            lambda: self._sbom(["--from-pkglist", "--distro-arch", "amd64"], ready / SBOM, epoch, listed),
        )
        for file in (built.vmlinuz, built.initrd):
            file.rename(ready / file.name)
        sha256, size = digest_of(ready / name for name in (built.vmlinuz.name, built.initrd.name))
        manifest = images.Manifest(
            sha256=sha256,
            size_bytes=size,
            node_class=DEPLOY,
            distribution=DISTRIBUTION,
            kernel=built.kernel,
            packages=built.packages,
            roles=(),
            inputs=inputs,
            created=epoch,
        )
        return self._step("store", lambda: self.store.add(ready, manifest, key, (SBOM,)))

    def _from_site(self) -> tuple[bytes, str, str]:
        """The key that signs, a secret; the certificate of the site's CA; which kernel the environment has."""
        from coldiron.testing.site import Site

        key = bake_inputs.site_key(self.inventory)
        directory = load(find(self.inventory)).directory
        site = Site((directory,))
        host = site.hosts()[0]
        try:
            certificate = str.__str__(site.resolve(host, None, CERTIFICATE))
            return key, certificate, str(site.resolve(host, bake_inputs.ROLE, KERNEL))
        except KeyError:
            raise ColdironError(
                f"{shown_path(directory)} has no {CERTIFICATE}, which machines know their provisioner by; type: "
                f"coldiron secrets init -i {shown_path(directory)}"
            ) from None


def _program_digest() -> str:
    """One digest over the files that are baked in, and those that say how. No other makes another environment."""
    here = Path(str(files("coldiron.provision")))
    found = program() | {
        path.name: path.read_bytes() for pattern in _BUILDER for path in here.glob(pattern) if path.is_file()
    }
    digest = hashlib.sha256()
    for name, content in sorted(found.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
