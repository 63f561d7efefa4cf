"""The images that the controller keeps, by digest: added whole or not at all, found by class, thrown away by name.

A store is a directory beside the inventory: one directory an image, named by its digest, and ``pointers.json``, which
says of each class which image is current and which one is the way back. Images of the class ``deploy``, which nodes
boot into memory, lie in a ``deploy`` directory of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.provision import images, shelf
from coldiron.provision.images import Manifest
from coldiron.provision.whole import replace_file, sync_directory
from coldiron.rack.base import refuse_little_room
from coldiron.rack.host import Host, mount_points

STORE_DIRECTORY = ".images"
DEPLOY = "deploy"
MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
SBOM = "sbom.json"
POINTERS = "pointers.json"
IMAGE = "image.tar.zst"
_FORMAT = 1
_CHUNK = 1024 * 1024
# Fewer characters of a digest than these name nothing.
_LEAST_DIGITS = 4


def payload_of(node_class: str) -> tuple[str, ...]:
    """The files of an image whose bytes, one after the other, have the manifest's digest."""
    return ("vmlinuz", "initrd") if node_class == DEPLOY else (IMAGE,)


def digest_of(files: Iterable[Path]) -> tuple[str, int]:
    """The SHA-256 and the length, in bytes, of the files one after the other."""
    digest, length = hashlib.sha256(), 0
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                length += len(chunk)
    return digest.hexdigest(), length


@dataclass(frozen=True)
class StoredImage:
    """One image of a store, as its manifest says; the signature is looked at by ``Store.verified``."""

    directory: Path
    manifest: Manifest

    @property
    def sha256(self) -> str:
        return self.manifest.sha256

    @property
    def node_class(self) -> str:
        return self.manifest.node_class

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that nodes fetch, in the order in which the digest takes them."""
        return tuple(self.directory / name for name in payload_of(self.node_class))

    @property
    def path(self) -> Path:
        """The first of ``files``: of a class of nodes the only one."""
        return self.files[0]

    @property
    def manifest_path(self) -> Path:
        return self.directory / MANIFEST

    @property
    def signature_path(self) -> Path:
        return self.directory / SIGNATURE

    @property
    def sbom_path(self) -> Path:
        return self.directory / SBOM

    @property
    def on_shelf(self) -> shelf.Stored:
        """The image as the decisions about it want it."""
        found = self.manifest
        size = sum(file.stat().st_size for file in self.directory.iterdir())
        return shelf.Stored(found.sha256, found.node_class, found.inputs, found.created, size)


class Store:
    """The images in ``directory``, which is made when the first one is added."""

    def __init__(self, directory: Path, host: Host | None = None) -> None:
        self.directory = directory
        self._host = host or Host()

    # What is there.

    def images(self, node_class: str = "") -> list[StoredImage]:
        """The images there are, of one class if it is named, the newest first.

        Raises ColdironError where a manifest cannot be read.
        """
        found = []
        for folder in (self.directory, self.directory / DEPLOY):
            for path in sorted(folder.glob(f"[0-9a-f]*/{MANIFEST}")):
                try:
                    found.append(StoredImage(path.parent, images.parse_manifest(path.read_bytes())))
                except ColdironError as error:
                    raise ColdironError(f"{shown_path(path)}: {error.message}", error.exit_code) from None
        wanted = [image for image in found if node_class in ("", image.node_class)]
        return sorted(wanted, key=lambda image: (-image.manifest.created, image.sha256))

    def pointers(self) -> dict[str, shelf.Pointers]:
        """The current and previous image of each class. Raises ColdironError where the file cannot be read."""
        path = self.directory / POINTERS
        try:
            data = json.loads(path.read_bytes())
            if data["format"] != _FORMAT:
                raise ValueError
            return {str(name): shelf.Pointers(**pair) for name, pair in data["classes"].items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ColdironError(
                f"{shown_path(path)} cannot be read; remove it, then name each class's image with "
                "coldiron image promote"
            ) from None

    def current(self, node_class: str) -> StoredImage:
        """The image that nodes of a class are given. Raises ColdironError where there is none."""
        digest = self.pointers().get(node_class, shelf.Pointers()).current
        for image in self.images(node_class):
            if image.sha256 == digest:
                return image
        raise ColdironError(
            f"there is no current image of class {shown(node_class)}; type: coldiron image bake "
            f"{shown(node_class)} -i {shown_path(self.directory.parent)}"
        )

    def find(self, digits: str) -> StoredImage:
        """The image whose digest begins with ``digits``. Raises ColdironError for none, and for several."""
        found = [image for image in self.images() if image.sha256.startswith(digits.lower())]
        if len(digits) < _LEAST_DIGITS or not found:
            known = [image.sha256[:12] for image in self.images()]
            raise ColdironError(f"there is no image {shown(digits)}; {did_you_mean(digits, known)}")
        if len(found) > 1:
            raise ColdironError(f"{len(found)} images begin with {shown(digits)}; write more of the digest")
        return found[0]

    def built(self, node_class: str, inputs: str) -> StoredImage | None:
        """The newest image of the class that was made from the same inputs, if there is one."""
        there = self.images(node_class)
        found = shelf.built([image.on_shelf for image in there], node_class, inputs)
        return next((image for image in there if found and image.sha256 == found.sha256), None)

    def verified(
        self,
        image: StoredImage,
        trusted: Iterable[bytes],
        oldest: float | None = None,
        *,
        whole: bool = True,
    ) -> Manifest:
        """The image's manifest, once its signature and, if ``whole``, each of its bytes have been looked at.

        ``trusted`` are public keys in PEM, ``oldest`` the earliest creation that is allowed, in seconds since the
        epoch. Raises ImageRefused, with the image's place.
        """
        try:
            signature = image.signature_path.read_bytes()
        except OSError:
            raise images.SignatureBroken(
                f"{shown_path(image.directory)} has no signature; bake the image again"
            ) from None
        try:
            manifest = images.verify(image.manifest_path.read_bytes(), signature, trusted, oldest)
        except images.ImageRefused as error:
            raise type(error)(f"{shown_path(image.directory)}: {error.message}") from None
        if whole:
            digest, length = digest_of(image.files)
            if (digest, length) != (manifest.sha256, manifest.size_bytes):
                raise images.ImageAltered(
                    f"{shown_path(image.path)}: its bytes are not those of its manifest; bake the image again"
                )
        return manifest

    def given(self, classes: Collection[str], trusted: Collection[bytes]) -> list[tuple[StoredImage, bool]]:
        """The current (True) and previous images of ``classes``, each verified whole and with its SBOM.

        A class without an image is left out. Raises ColdironError for one that must not be given to a node.
        """
        found = []
        for node_class in dict.fromkeys(classes):
            pair = self.pointers().get(node_class, shelf.Pointers())
            for image in self.images(node_class):
                if image.sha256 not in (pair.current, pair.previous):
                    continue
                self.verified(image, trusted)
                if not image.sbom_path.is_file():
                    raise images.ImageRefused(
                        f"{shown_path(image.directory)} has no {SBOM}, its list of components; bake the image again"
                    )
                found.append((image, image.sha256 == pair.current))
        return sorted(found, key=lambda item: not item[1])

    # What changes it.

    @contextlib.contextmanager
    def baking(self, node_class: str, say: Callable[[str], None] = lambda _: None) -> Iterator[Path]:
        """An empty directory to make an image of the class in; nobody else bakes the class meanwhile.

        It is gone at the end, with all that was not added. What a killed bake left is removed first.
        """
        _make(self.directory)
        with self._host.lock(self.directory / f".lock-{node_class}", say):
            work = self.directory / f".baking-{node_class}"
            self._clear(work)
            work.mkdir(mode=0o700)
            try:
                yield work
            finally:
                self._clear(work)

    def add(
        self,
        work: Path,
        manifest: Manifest,
        private_key: bytes,
        extra: Collection[str] = (),
    ) -> StoredImage:
        """Sign what lies in ``work`` and make it the class's current image. It appears whole or not at all.

        ``work`` is a directory on the store's file system with the image's own files and those named ``extra``, the
        SBOM for one; it is moved away. Raises ColdironError where a file is missing or is not what the manifest says.
        """
        wanted = {*payload_of(manifest.node_class), *extra}
        for name in sorted(wanted):
            if not (work / name).is_file():
                raise ColdironError(f"{name}: the image cannot be added without it", ExitCode.HOSTS_FAILED)
        found = digest_of(work / name for name in payload_of(manifest.node_class))
        if found != (manifest.sha256, manifest.size_bytes):
            raise images.ImageAltered("the image that was made is not what its manifest says; bake it again")
        encoded = manifest.encoded()
        (work / MANIFEST).write_bytes(encoded)
        (work / SIGNATURE).write_bytes(images.sign(encoded, private_key))
        work.chmod(0o755)
        for name in (*wanted, MANIFEST, SIGNATURE):
            (work / name).chmod(0o644)
            _to_disk(work / name)
        sync_directory(work)
        folder = self.directory / DEPLOY if manifest.node_class == DEPLOY else self.directory
        _make(folder)
        final = folder / manifest.sha256
        with self._alone():
            if final.exists():
                # The same bytes again: the younger manifest takes the place of the older one.
                shutil.rmtree(final)
            os.rename(work, final)
            sync_directory(folder)
        self.promote(manifest.node_class, manifest.sha256)
        return StoredImage(final, manifest)

    def promote(self, node_class: str, sha256: str) -> shelf.Pointers:
        """Make an image the current one of its class. Raises ColdironError where the class has no such image."""
        return self._point(node_class, lambda there, pair: shelf.promote(there, node_class, pair, sha256))

    def roll_back(self, node_class: str) -> shelf.Pointers:
        """Make the previous image current again. Raises ColdironError where there is none."""
        return self._point(node_class, lambda there, pair: shelf.roll_back(there, node_class, pair))

    def prunable(self, on_nodes: Collection[str] = (), newest: int = 2) -> shelf.Pruning:
        """What ``prune`` would remove, and why the others stay."""
        there = [image.on_shelf for image in self.images()]
        return shelf.prune(there, self.pointers(), on_nodes, newest)

    def prune(self, on_nodes: Collection[str] = (), newest: int = 2) -> shelf.Pruning:
        """Remove images that are neither current, previous, ``on_nodes`` nor among the newest of their class."""
        with self._alone():
            found = self.prunable(on_nodes, newest)
            places = {image.sha256: image.directory for image in self.images()}
            for image in found.gone:
                # Out of sight first: what is half removed is no image.
                gone = self.directory / f".gone-{image.sha256}"
                os.rename(places[image.sha256], gone)
            for gone in self.directory.glob(".gone-*"):
                shutil.rmtree(gone)
        return found

    def refuse_little_room(self, needed_mib: int) -> None:
        """Raise ColdironError where fewer than ``needed_mib`` MiB are free for another image."""
        _make(self.directory)
        prune = f"free some (coldiron image prune -i {shown_path(self.directory.parent)})"
        refuse_little_room(self.directory, needed_mib, "baking an image", prune)

    def _point(
        self, node_class: str, decide: Callable[[list[shelf.Stored], shelf.Pointers], shelf.Pointers]
    ) -> shelf.Pointers:
        with self._alone():
            pointers = self.pointers()
            there = [image.on_shelf for image in self.images(node_class)]
            pair = decide(there, pointers.get(node_class, shelf.Pointers()))
            # A previous image that is gone is no way back.
            if pair.previous not in {image.sha256 for image in there}:
                pair = shelf.Pointers(pair.current)
            self._write(pointers | {node_class: pair})
        return pair

    def _write(self, pointers: Mapping[str, shelf.Pointers]) -> None:
        classes = {name: asdict(pair) for name, pair in sorted(pointers.items())}
        text = json.dumps({"format": _FORMAT, "classes": classes}, indent=1) + "\n"
        replace_file(self.directory / POINTERS, text, 0o644)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        _make(self.directory)
        with self._host.lock(self.directory / ".lock"):
            yield

    def _clear(self, work: Path) -> None:
        """Remove ``work``, unless something is mounted below it: that would be removed too."""
        mounted = mount_points(Path("/proc/self/mountinfo").read_text(), work.resolve())
        if mounted:
            raise ColdironError(
                f"{mounted[0]} is mounted where an image was baked; type: umount {mounted[0]}",
                ExitCode.REFUSED,
            )
        if work.exists():
            shutil.rmtree(work)


def _make(directory: Path) -> None:
    """Make a directory of the store, whose owner is that of the inventory."""
    if not directory.exists():
        directory.mkdir(parents=True)
        owner = directory.parent.stat()
        with contextlib.suppress(PermissionError):
            os.chown(directory, owner.st_uid, owner.st_gid)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
