"""Containers that start from the baked images of their classes, on a machine made of files."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from coldiron.errors import ColdironError
from coldiron.provision import images
from coldiron.provision.images import Manifest
from coldiron.provision.store import DEPLOY, IMAGE, SBOM, STORE_DIRECTORY, Store, StoredImage
from coldiron.rack import cli
from coldiron.rack.build import Builder, Wishes
from coldiron.rack.imaged import Images
from coldiron.rack.preserve import reset
from coldiron.rack.rack import Rack
from coldiron.rack.spec import from_cluster
from coldiron.rack.state import RackState
from coldiron.rack.teardown import down

from .conftest import Toy

KEY, OTHER = images.make_key(), images.make_key()


def baked(store: Store, contents: bytes, node_class: str = "gpu-debian-13", key: bytes = KEY) -> StoredImage:
    manifest = Manifest(
        sha256=hashlib.sha256(contents).hexdigest(),
        size_bytes=len(contents),
        node_class=node_class,
        distribution="debian-13",
        kernel="6.12.117",
        packages={},
        roles=(),
        inputs="0" * 64,
        created=1_790_000_000,
    )
    with store.baking(node_class) as work:
        ready = work / "ready"
        ready.mkdir()
        for name in ("vmlinuz", "initrd") if node_class == DEPLOY else (IMAGE,):
            (ready / name).write_bytes(b"" if name == "initrd" else contents)
        (ready / SBOM).write_text("{}")
        return store.add(ready, manifest, key, (SBOM,))


@pytest.fixture
def rack(toy: Toy) -> Rack:
    return toy.rack()


@pytest.fixture
def store(rack: Rack) -> Store:
    return Store(rack.layout.inventory / STORE_DIRECTORY)


def up(rack: Rack, store: Store, key: bytes = KEY) -> RackState:
    wishes = Wishes(images=Images(store, images.public_key(key)))
    return Builder(rack, from_cluster(rack.layout.inventory), wishes).up()


def test_a_class_with_an_image_starts_from_it_and_others_start_bare(
    toy: Toy, rack: Rack, store: Store
) -> None:
    image = baked(store, b"an image")
    state = up(rack, store)
    gpu, head = Path(state.nodes["gpu01"].base), Path(state.nodes["head01"].base)
    assert gpu.parent.name.startswith(f"image-{image.sha256[:12]}-")
    assert head.parent.name.startswith("debian-13-")
    (unpacked,) = toy.host.ran("tar")
    assert f"--file={image.path}" in unpacked
    (fit,) = toy.host.ran("COLDIRON_DISTRIBUTION=debian-13")
    assert fit[-3] == "sh"
    assert not list(gpu.parent.glob("prepare-base.sh"))
    said = toy.said.getvalue()
    assert "head-debian-13: no image is baked, its nodes start bare" in said
    assert said.count("unpacking the image of gpu-debian-13") == 1


def test_an_image_is_unpacked_once_for_all_racks(toy: Toy, rack: Rack, store: Store) -> None:
    baked(store, b"an image")
    first = up(rack, store).nodes["gpu01"].base
    down(rack)
    assert Path(first).is_dir()
    assert up(rack, store).nodes["gpu01"].base == first
    assert len(toy.host.ran("tar")) == 1


@pytest.mark.parametrize("seconds_a_look", [60, 0, -60])
def test_a_newer_image_takes_the_place_of_the_older_one_where_nothing_stands_on_it(
    toy: Toy, rack: Rack, store: Store, monkeypatch: pytest.MonkeyPatch, seconds_a_look: int
) -> None:
    """Unpacked later, within the same second, or after the clock went back: the newer one is the newer one."""
    clock = itertools.count(1_790_000_000, seconds_a_look)
    monkeypatch.setattr("coldiron.rack.base.time", SimpleNamespace(time=lambda: float(next(clock))))
    baked(store, b"an image")
    first = up(rack, store).nodes["gpu01"].base
    newer = baked(store, b"another image")
    # What stands stays as it is, and so does what it stands on.
    assert up(rack, store).nodes["gpu01"].base == first
    assert Path(first).is_dir()
    down(rack)
    assert newer.sha256[:12] in up(rack, store).nodes["gpu01"].base
    assert not Path(first).exists()


def test_a_reset_goes_back_to_the_image(rack: Rack, store: Store) -> None:
    baked(store, b"an image")
    first = up(rack, store).nodes["gpu01"].base
    assert reset(rack, ["gpu01"]).nodes["gpu01"].base == first


def test_an_image_that_the_site_has_not_signed_is_not_unpacked(toy: Toy, rack: Rack, store: Store) -> None:
    image = baked(store, b"an image")
    with pytest.raises(ColdironError, match="sign"):
        up(rack, store, OTHER)
    image.path.write_bytes(b"aN image")
    with pytest.raises(ColdironError, match="its bytes are not those of its manifest"):
        up(rack, store)
    assert not toy.host.ran("tar")


def test_an_image_that_cannot_be_unpacked_leaves_nothing(
    toy: Toy, rack: Rack, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    baked(store, b"an image")

    def fail(words: list[str]) -> None:
        if words[0] == "tar":
            raise ColdironError("unpacking failed: no space")

    toy.host.before = fail
    with pytest.raises(ColdironError, match="no space"):
        up(rack, store)
    assert not list(toy.machine.bases.glob(".baking*"))
    toy.host.before = lambda _: None
    assert "image-" in up(rack, store).nodes["gpu01"].base


def test_without_any_image_the_command_says_how_to_bake_one(
    rack: Rack, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = rack.layout.inventory
    with pytest.raises(ColdironError, match="has no image; type: coldiron image bake CLASS"):
        cli.up(inventory=inventory, image=True)
    baked(store, b"kernel", DEPLOY)
    with pytest.raises(ColdironError, match="has no image"):
        cli.up(inventory=inventory, image=True)
    with pytest.raises(ColdironError, match="leave the other out"):
        cli.up(inventory=inventory, image=True, from_snapshot="one")
    monkeypatch.setattr("coldiron.provision.bake_inputs.site_key", lambda _directory: KEY)
    baked(store, b"an image")
    found = cli._images(inventory)
    assert (found.store.directory, found.trusted) == (inventory / STORE_DIRECTORY, images.public_key(KEY))
