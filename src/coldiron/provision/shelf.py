"""Which image of a class is current, which one is the way back, and which may go: decisions over a listing.

Nothing is deleted here. What is current, previous or on a node is never among what may go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import did_you_mean, shown
from coldiron.text import counted


@dataclass(frozen=True)
class Stored:
    """One image that is there. ``created`` in seconds since the epoch, ``size_bytes`` on the disk."""

    sha256: str
    node_class: str
    inputs: str
    created: int
    size_bytes: int


@dataclass(frozen=True)
class Pointers:
    """The images of one class that nodes are given, by digest; "" is none."""

    current: str = ""
    previous: str = ""


@dataclass(frozen=True)
class Pruning:
    """What may go, oldest first, and why each of the others stays (by digest)."""

    gone: tuple[Stored, ...]
    kept: Mapping[str, str]

    @property
    def bytes_freed(self) -> int:
        return sum(image.size_bytes for image in self.gone)


def built(images: Sequence[Stored], node_class: str, inputs: str) -> Stored | None:
    """The newest image of the class that was made from the same inputs: then nothing has to be baked."""
    same = [image for image in images if (image.node_class, image.inputs) == (node_class, inputs)]
    return max(same, key=_age, default=None)


def promote(images: Sequence[Stored], node_class: str, pointers: Pointers, sha256: str) -> Pointers:
    """The pointers once ``sha256`` is current. Raises ColdironError where the class has no such image."""
    known = [image.sha256 for image in images if image.node_class == node_class]
    if sha256 not in known:
        raise ColdironError(
            f"there is no image `{shown(sha256)}` of class {shown(node_class)}; {did_you_mean(sha256, known)}"
        )
    if sha256 == pointers.current:
        return pointers
    return Pointers(sha256, pointers.current)


def roll_back(images: Sequence[Stored], node_class: str, pointers: Pointers) -> Pointers:
    """The pointers once the previous image is current again; a second time undoes the first."""
    if not pointers.previous:
        raise ColdironError(
            f"class {shown(node_class)} has no previous image to go back to", ExitCode.REFUSED
        )
    return promote(images, node_class, pointers, pointers.previous)


def prune(
    images: Sequence[Stored], pointers: Mapping[str, Pointers], on_nodes: Collection[str], newest: int = 2
) -> Pruning:
    """What may go, when the ``newest`` of each class stay besides what is current, previous or ``on_nodes``.

    Raises ColdironError where a pointer leads nowhere: then the listing is not whole, and nothing may go by it.
    """
    if newest < 0:
        raise ColdironError("the number of images to keep is not below 0")
    there = {image.sha256 for image in images}
    for node_class, pair in sorted(pointers.items()):
        for name, digest in (("current", pair.current), ("previous", pair.previous)):
            if digest and digest not in there:
                raise ColdironError(
                    f"the {name} image of class {shown(node_class)} is not there; nothing is removed",
                    ExitCode.REFUSED,
                )
    kept: dict[str, str] = {}
    for node_class in {image.node_class for image in images}:
        ours = sorted((image for image in images if image.node_class == node_class), key=_age, reverse=True)
        for image in ours[:newest]:
            kept[image.sha256] = f"one of the {counted(newest, 'newest', 'newest')} of its class"
    # The stronger reason is the one that is told.
    kept |= {digest: "on a node" for digest in on_nodes if digest in there}
    for name in ("previous", "current"):
        kept |= {digest: name for pair in pointers.values() if (digest := getattr(pair, name))}
    return Pruning(tuple(sorted((i for i in images if i.sha256 not in kept), key=_age)), kept)


def _age(image: Stored) -> tuple[int, str]:
    """Orders by age; the digest only makes two of the same second certain."""
    return image.created, image.sha256
