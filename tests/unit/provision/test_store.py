"""The store of images: whole or not there, one bake a class, pointers that lead somewhere, nothing unsigned given."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision import images
from coldiron.provision.images import Manifest
from coldiron.provision.store import DEPLOY, IMAGE, SBOM, Store, StoredImage

KEY, OTHER = images.make_key(), images.make_key()
PUBLIC = images.public_key(KEY)
CPU = "cpu-debian-13"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "inventory" / ".images")


def manifest_of(
    contents: bytes, node_class: str = CPU, inputs: str = "0", created: int = 1_790_000_000
) -> Manifest:
    return Manifest(
        sha256=hashlib.sha256(contents).hexdigest(),
        size_bytes=len(contents),
        node_class=node_class,
        distribution="debian-13",
        kernel="6.12.117",
        packages={"slurmd": "24.11.5-4"},
        roles=("base",),
        inputs=inputs * 64,
        created=created,
    )


def put(store: Store, contents: bytes, **said) -> StoredImage:
    manifest = manifest_of(contents, **said)
    with store.baking(manifest.node_class) as work:
        ready = work / "ready"
        ready.mkdir()
        if manifest.node_class == DEPLOY:
            (ready / "vmlinuz").write_bytes(contents[:3])
            (ready / "initrd").write_bytes(contents[3:])
        else:
            (ready / IMAGE).write_bytes(contents)
        (ready / SBOM).write_text("{}")
        return store.add(ready, manifest, KEY, (SBOM,))


def test_what_is_added_is_current_signed_and_whole(store):
    image = put(store, b"first")
    found = store.current(CPU)
    assert found == image
    assert found.path.read_bytes() == b"first"
    assert found.sha256 == hashlib.sha256(b"first").hexdigest() == found.directory.name
    assert store.verified(found, [PUBLIC]) == found.manifest
    assert found.sbom_path.is_file()
    assert {path.name for path in store.directory.iterdir()} == {found.sha256, "pointers.json"}


def test_everybody_may_read_an_image_and_nobody_a_bake(store):
    image = put(store, b"first")
    assert image.directory.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in image.directory.iterdir()} == {0o644}
    with store.baking(CPU) as work:
        assert work.stat().st_mode & 0o777 == 0o700


def test_the_ram_environment_is_two_files_under_one_digest(store):
    image = put(store, b"kernel and initrd", node_class=DEPLOY)
    assert image.directory.parent == store.directory / DEPLOY
    assert [path.name for path in image.files] == ["vmlinuz", "initrd"]
    store.verified(image, [PUBLIC])
    assert store.current(DEPLOY) == image


def test_a_second_image_leaves_a_way_back(store):
    first, second = put(store, b"first"), put(store, b"second", created=1_790_000_001)
    assert store.current(CPU) == second
    assert store.roll_back(CPU).current == first.sha256
    assert store.current(CPU) == first
    assert store.roll_back(CPU).current == second.sha256
    store.promote(CPU, first.sha256)
    assert store.current(CPU) == first


def test_without_a_previous_image_there_is_no_way_back(store):
    put(store, b"first")
    with pytest.raises(ColdironError, match="no previous image") as caught:
        store.roll_back(CPU)
    assert caught.value.exit_code == ExitCode.REFUSED


def test_a_class_without_an_image_says_what_to_type(store):
    with pytest.raises(ColdironError, match=r"type: coldiron image bake gpu-debian-12 -i .*inventory"):
        store.current("gpu-debian-12")


def test_the_same_bytes_again_are_one_image(store):
    put(store, b"first")
    again = put(store, b"first", created=1_790_000_009)
    assert [image.manifest.created for image in store.images()] == [1_790_000_009]
    assert store.pointers()[CPU].previous == ""
    store.verified(again, [PUBLIC])


def test_an_image_of_the_same_inputs_is_found_in_its_class_alone(store):
    image = put(store, b"first", inputs="a")
    put(store, b"other class", node_class="gpu-debian-13", inputs="b")
    assert store.built(CPU, "a" * 64) == image
    assert store.built(CPU, "b" * 64) is None


@pytest.mark.parametrize("what", ["image", "sbom"])
def test_nothing_is_added_that_lacks_a_part(store, what):
    manifest = manifest_of(b"first")
    with store.baking(CPU) as work:
        (work / "ready").mkdir()
        (work / "ready" / (SBOM if what == "image" else IMAGE)).write_bytes(b"first")
        with pytest.raises(ColdironError, match="cannot be added without it"):
            store.add(work / "ready", manifest, KEY, (SBOM,))
    assert store.images() == []
    assert store.pointers() == {}


def test_nothing_is_added_that_is_not_what_its_manifest_says(store):
    with store.baking(CPU) as work:
        (work / "ready").mkdir()
        (work / "ready" / IMAGE).write_bytes(b"other")
        with pytest.raises(images.ImageAltered):
            store.add(work / "ready", manifest_of(b"first"), KEY)
    assert store.images() == []


def test_a_bake_that_fails_leaves_nothing(store):
    def fail() -> None:
        with store.baking(CPU) as work:
            (work / "root" / "etc").mkdir(parents=True)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(store.directory.iterdir()) == []


def _killed(directory: Path, ready: Path) -> None:
    with Store(directory).baking(CPU) as work:
        (work / IMAGE).write_bytes(b"half")
        ready.touch()
        time.sleep(60)


def test_a_killed_bake_is_no_image_and_the_next_one_removes_it(store, tmp_path):
    started = tmp_path / "started"
    process = multiprocessing.get_context("fork").Process(target=_killed, args=(store.directory, started))
    process.start()
    for _ in range(200):
        if started.exists():
            break
        time.sleep(0.05)
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert (store.directory / f".baking-{CPU}" / IMAGE).exists()
    assert store.images() == []
    with store.baking(CPU) as work:
        assert list(work.iterdir()) == []


def test_two_bakes_of_one_class_wait_for_each_other_and_those_of_two_do_not(store):
    order: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def first() -> None:
        with store.baking(CPU):
            inside.set()
            go_on.wait(10)
            order.append("first")

    def second() -> None:
        with Store(store.directory).baking(CPU, order.append):
            order.append("second")

    one, two = threading.Thread(target=first), threading.Thread(target=second)
    one.start()
    assert inside.wait(10)
    with Store(store.directory).baking("gpu-debian-13"):
        order.append("other class")
    two.start()
    while len(order) < 2:
        time.sleep(0.01)
    go_on.set()
    one.join()
    two.join()
    assert order == [
        "other class",
        "waiting for another coldiron command that works on the same thing",
        "first",
        "second",
    ]


def test_what_is_mounted_below_a_dead_bake_is_not_removed(store, monkeypatch):
    work = store.directory / f".baking-{CPU}"
    work.mkdir(parents=True)
    mounted = f"36 35 0:3 / {work}/root/proc rw - proc proc rw\n"
    real = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, *a, **k: mounted if self.name == "mountinfo" else real(self, *a, **k)
    )
    with pytest.raises(ColdironError, match="type: umount"), store.baking(CPU):
        pass
    assert work.is_dir()


def test_an_altered_byte_is_seen_unless_only_the_signature_is_asked_for(store):
    image = put(store, b"first")
    image.path.write_bytes(b"fir5t")
    with pytest.raises(images.ImageAltered, match="not those of its manifest"):
        store.verified(image, [PUBLIC])
    store.verified(image, [PUBLIC], whole=False)


def test_an_altered_manifest_a_strange_key_and_an_old_image_are_refused(store):
    image = put(store, b"first")
    with pytest.raises(images.KeyUnknown):
        store.verified(image, [images.public_key(OTHER)])
    with pytest.raises(images.ImageTooOld):
        store.verified(image, [PUBLIC], oldest=image.manifest.created + 1)
    image.manifest_path.write_bytes(image.manifest_path.read_bytes().replace(b"6.12.117", b"6.12.118"))
    with pytest.raises(images.ManifestAltered, match=image.sha256):
        store.verified(image, [PUBLIC])
    image.signature_path.unlink()
    with pytest.raises(images.SignatureBroken, match="has no signature"):
        store.verified(image, [PUBLIC])


def test_nodes_are_given_the_current_and_the_previous_image_of_what_was_baked(store):
    first, second = put(store, b"first"), put(store, b"second", created=1_790_000_001)
    put(store, b"third", node_class="gpu-debian-13")
    deploy = put(store, b"kernel and initrd", node_class=DEPLOY)
    given = store.given([CPU, "never-baked", DEPLOY], [PUBLIC])
    assert given == [(second, True), (deploy, True), (first, False)]


def test_nodes_are_given_nothing_without_its_list_of_components_nor_unsigned(store):
    image = put(store, b"first")
    image.sbom_path.unlink()
    with pytest.raises(images.ImageRefused, match="list of components"):
        store.given([CPU], [PUBLIC])
    with pytest.raises(images.KeyUnknown):
        store.given([CPU], [])


def test_pruning_keeps_what_is_in_use(store):
    old = [put(store, f"image {n}".encode(), created=1_790_000_000 + n) for n in range(5)]
    on_node = old[1].sha256
    assert [image.sha256 for image in store.prunable([on_node], 1).gone] == [old[0].sha256, old[2].sha256]
    found = store.prune([on_node], 1)
    assert {image.sha256 for image in store.images()} == {old[n].sha256 for n in (1, 3, 4)}
    assert found.bytes_freed > 0
    assert not list(store.directory.glob(".gone-*"))


def test_what_a_killed_pruning_left_goes_with_the_next(store):
    put(store, b"first")
    left = store.directory / ".gone-abc"
    left.mkdir()
    store.prune()
    assert not left.exists()


def test_a_pointer_to_an_image_that_was_removed_by_hand_stops_the_pruning(store):
    put(store, b"first")
    shutil.rmtree(put(store, b"second", created=1_790_000_001).directory)
    with pytest.raises(ColdironError, match="nothing is removed"):
        store.prune()


def test_a_previous_image_that_is_gone_is_no_way_back(store):
    first = put(store, b"first")
    put(store, b"second", created=1_790_000_001)
    shutil.rmtree(first.directory)
    third = put(store, b"third", created=1_790_000_002)
    assert store.pointers()[CPU].current == third.sha256
    assert first.sha256 not in (store.directory / "pointers.json").read_text()


def test_an_image_is_found_by_its_first_digits(store):
    image = put(store, b"first")
    assert store.find(image.sha256[:8]) == image
    for digits in ("", image.sha256[:3], "ffff0000"):
        with pytest.raises(ColdironError, match="there is no image"):
            store.find(digits)


def test_digits_that_begin_two_images_want_more(store):
    numbers = (f"{n}".encode() for n in range(3000))
    seen: dict[str, bytes] = {}
    for contents in numbers:
        start = hashlib.sha256(contents).hexdigest()[:4]
        if start in seen:
            put(store, seen[start])
            put(store, contents)
            with pytest.raises(ColdironError, match="2 images begin with"):
                store.find(start)
            return
        seen[start] = contents
    pytest.fail("no two digests began alike")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 2, "classes": {}}', '{"format": 1, "classes": {"a": 1}}']
)
def test_pointers_that_cannot_be_read_are_named(store, text):
    put(store, b"first")
    (store.directory / "pointers.json").write_text(text)
    with pytest.raises(ColdironError, match=r"pointers\.json cannot be read"):
        store.current(CPU)


def test_a_manifest_that_cannot_be_read_is_named(store):
    image = put(store, b"first")
    image.manifest_path.write_text("{}")
    with pytest.raises(ColdironError, match=r"manifest\.json: "):
        store.images()


def test_too_little_room_is_said_before_anything_is_made(store):
    with pytest.raises(
        ColdironError, match=r"MiB are free, baking an image needs .*coldiron image prune"
    ) as caught:
        store.refuse_little_room(10**9)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    store.refuse_little_room(1)


def test_pointers_are_written_whole(store):
    put(store, b"first")
    assert json.loads((store.directory / "pointers.json").read_text())["format"] == 1
    assert not list(store.directory.glob("*.new"))
