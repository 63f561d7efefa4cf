"""Base images out of an inventory's own store: a container starts with what the image of its class holds.

An image is unpacked once for all racks of this machine, made fit for containers as every base is, and kept beside the
bare ones until a newer one of its class takes its place.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coldiron.errors import ColdironError
from coldiron.rack.base import Bakery, Recipe, newest, refuse_little_room
from coldiron.rack.host import Host
from coldiron.rack.layout import Machine

if TYPE_CHECKING:
    from coldiron.provision.store import Store, StoredImage

# An image is some 700 MB unpacked.
_ROOM_MIB = 1500
_UNPACK_SECONDS = 1800.0


@dataclass(frozen=True)
class Images:
    """The images that nodes may start from: those of ``store`` that are signed by the site's key ``trusted`` (PEM)."""

    store: Store
    trusted: bytes

    def current(self, node_class: str) -> StoredImage | None:
        """The class's image, None where it has none."""
        pair = self.store.pointers().get(node_class)
        found = self.store.images(node_class) if pair and pair.current else []
        return next((image for image in found if pair and image.sha256 == pair.current), None)


class Imaged:
    """Makes bases of images."""

    def __init__(
        self, host: Host, machine: Machine, images: Images, rack: str, say: Callable[[str], None]
    ) -> None:
        self._host = host
        self._machine = machine
        self._images = images
        self._rack = rack
        self._say = say
        self._told: set[str] = set()

    def base(self, node_class: str, recipe: Recipe) -> Path | None:
        """The root of a base with the class's current image in it; None, and that is said, where there is none.

        ``recipe`` is the bare base's: whose script makes a root fit for containers. Raises ColdironError where the
        image is not what the site has signed, or cannot be unpacked.
        """
        image = self._images.current(node_class)
        if image is None:
            self._tell(node_class, f"{node_class}: no image is baked, its nodes start bare")
            return None
        fit = hashlib.sha256(f"{recipe.script}\0{recipe.apt_options}".encode()).hexdigest()[:6]
        name = f"image-{image.sha256[:12]}-{fit}"
        with self._host.lock(self._machine.run / f"base-{node_class}.lock", self._say):
            found = newest(self._machine.bases, name)
            if found is None:
                self._tell(node_class, f"unpacking the image of {node_class}, {image.sha256[:12]}, once")
                self._images.store.verified(image, [self._images.trusted])
                found = self._unpack(image, recipe, name)
        return found

    def _tell(self, node_class: str, line: str) -> None:
        if node_class not in self._told:
            self._told.add(node_class)
            self._say(line)

    def _unpack(self, image: StoredImage, recipe: Recipe, name: str) -> Path:
        bases = self._machine.bases
        bases.mkdir(parents=True, exist_ok=True)
        refuse_little_room(bases, _ROOM_MIB, f"the image of {image.node_class}")
        work = bases / f".baking.{self._rack}.{name}"
        shutil.rmtree(work, ignore_errors=True)
        root, script = work / "root", work / "prepare-base.sh"
        root.mkdir(parents=True)
        root.chmod(0o755)
        script.write_text(recipe.script)
        try:
            self._host.run(
                ["tar", "--extract", "--zstd", f"--file={image.path}", f"--directory={root}", "--numeric-owner",
                 "--same-owner", "--same-permissions", "--xattrs", "--xattrs-include=*", "--acls"],
                what=f"unpacking {image.path}", timeout_seconds=_UNPACK_SECONDS,
            )  # fmt: skip
            self._host.run(
                ["env", f"COLDIRON_DISTRIBUTION={recipe.distribution}",
                 f"COLDIRON_APT_OPTIONS={recipe.apt_options}", "sh", str(script), str(root)],
                what=f"making the image of {image.node_class} fit for containers",
            )  # fmt: skip
        except ColdironError:
            shutil.rmtree(work, ignore_errors=True)
            raise
        script.unlink()
        return Bakery(self._host, self._machine).keep(work, name, f"image of {image.node_class}")
