"""``coldiron image``: what a person types and reads; and the role's plugins over the same store."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import shutil
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError, AnsibleLookupError
from ansible.plugins.loader import lookup_loader
from typer.testing import CliRunner

from coldiron.cli import app
from coldiron.errors import ColdironError
from coldiron.provision import bake_deploy, bake_inputs, images, ramdisk
from coldiron.provision.bake import Baked, Baker
from coldiron.provision.images import Manifest
from coldiron.provision.store import DEPLOY, IMAGE, SBOM, Store

KEY = images.make_key()
PUBLIC = images.public_key(KEY)
CPU = "cpu-debian-13"


@pytest.fixture
def inventory(tmp_path, monkeypatch):
    monkeypatch.setattr(bake_inputs, "site_key", lambda _inventory: KEY)
    (tmp_path / "cluster.yml").touch()
    return tmp_path


@pytest.fixture
def store(inventory):
    return Store(inventory / ".images")


def put(store, contents, created=1_790_000_000):
    manifest = Manifest(
        hashlib.sha256(contents).hexdigest(), len(contents), CPU, "debian-13", "6.12.117",
        {"slurmd": "24.11.5-4", "chrony": "4.6.1-3"}, ("base", "time"), "0" * 64, created,
    )  # fmt: skip
    with store.baking(CPU) as work:
        (work / "ready").mkdir()
        (work / "ready" / IMAGE).write_bytes(contents)
        (work / "ready" / SBOM).write_text("{}")
        return store.add(work / "ready", manifest, KEY, (SBOM,))


def typed(inventory, *words):
    done = CliRunner().invoke(app, ["image", *words, "-i", str(inventory)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def test_an_empty_store_says_how_an_image_is_made(inventory):
    assert typed(inventory, "list") == "no image yet; coldiron image bake CLASS makes one\n"


def test_the_list_says_which_image_nodes_are_given(inventory, store):
    old, new = put(store, b"old"), put(store, b"new", 1_790_000_100)
    lines = typed(inventory, "list").splitlines()
    assert re.match(rf"{CPU} +{new.sha256[:12]} .* 2 packages .* current$", lines[0])
    assert re.match(rf"{CPU} +{old.sha256[:12]} .* previous$", lines[1])
    rows = json.loads(typed(inventory, "list", "--json"))
    assert [row["state"] for row in rows] == ["current", "previous"]


@pytest.mark.parametrize("name", [CPU, hashlib.sha256(b"new").hexdigest()[:8]])
def test_an_image_is_shown_by_class_or_digest_once_it_was_verified(inventory, store, name):
    put(store, b"new")
    text = typed(inventory, "show", name, "--packages")
    assert "every byte is what was signed" in text
    assert "roles     base, time" in text
    assert "  slurmd 24.11.5-4" in text
    assert json.loads(typed(inventory, "show", name, "--json"))["node_class"] == CPU


def test_an_altered_image_is_neither_shown_nor_promoted(inventory, store):
    image = put(store, b"new")
    image.path.write_bytes(b"not")
    for words in (("show", CPU), ("promote", image.sha256[:8])):
        with pytest.raises(images.ImageAltered):
            typed(inventory, *words)


def test_a_name_that_is_no_image_says_which_there_are(inventory, store):
    put(store, b"new")
    with pytest.raises(ColdironError, match=f"there is no image gpu; .*or name a class: {CPU}"):
        typed(inventory, "show", "gpu")


def test_there_and_back(inventory, store):
    old, new = put(store, b"old"), put(store, b"new", 1_790_000_100)
    assert f"{old.sha256[:12]} is current again" in typed(inventory, "rollback", CPU)
    assert store.current(CPU) == old
    assert f"{new.sha256[:12]} is current; nodes get it" in typed(inventory, "promote", new.sha256[:8])
    assert store.current(CPU) == new


def test_pruning_says_what_would_go_and_then_what_went(inventory, store):
    first = put(store, b"0")
    for number in range(1, 4):
        put(store, b"%d" % number, 1_790_000_000 + number)
    words = ("prune", "--keep", "2", "--on-node", hashlib.sha256(b"1").hexdigest()[:8])
    assert "1 image would go" in typed(inventory, *words, "--dry-run")
    assert len(store.images()) == 4
    said = typed(inventory, *words)
    assert first.sha256[:12] in said
    assert "1 image gone, " in said
    assert len(store.images()) == 3


@pytest.mark.parametrize(
    ("fresh", "current", "said"),
    [
        (True, True, "1 MiB, 2 packages, in 1 min 3 s (root 1 min 2 s, pack 1.0 s)"),
        (False, True, "is current, nothing baked"),
        (False, False, "was made from the same inputs and is not current; coldiron image promote"),
    ],
)
def test_a_bake_ends_in_one_line(inventory, store, monkeypatch, fresh, current, said):
    image = put(store, b"x" * 1024 * 1024)
    baked = Baked(image, fresh, current, {"root": 62.0, "digest": 0.1, "pack": 1.0}, ["no firmware: …"])
    asked = []
    monkeypatch.setattr(Baker, "bake", lambda _self, *, again=False: asked.append(again) or baked)
    assert said in typed(inventory, "bake", CPU)
    data = json.loads(typed(inventory, "bake", CPU, "--json", "--again"))
    assert (data["baked"], data["sha256"], data["warnings"]) == (fresh, image.sha256, ["no firmware: …"])
    assert asked == [False, True]


@pytest.fixture
def deploying(inventory, monkeypatch):
    """The bake of the RAM environment, whose builder is a stand-in."""

    def build(work, **options):
        work.mkdir()
        for name in ("vmlinuz", "initrd"):
            (work / name).write_text(name)
        built.append(options)
        return ramdisk.Ramdisk(work / "vmlinuz", work / "initrd", "6.12.117", {"udev": "257"})

    built: list[dict] = []
    monkeypatch.setattr(bake_deploy.ramdisk, "build", build)
    monkeypatch.setattr(bake_deploy, "refuse_not_root", lambda: None)
    monkeypatch.setattr(bake_deploy, "refuse_missing", lambda _host: None)
    monkeypatch.setattr(bake_deploy, "release_dates", lambda *_: {"trixie": "Sat, 12 Sep 2026 07:55:41 UTC"})
    monkeypatch.setattr(bake_deploy, "program", lambda: {"start.py": b""})
    monkeypatch.setattr(bake_deploy.DeployBaker, "_from_site", lambda _self: (KEY, "certificate", "cloud"))
    return built


def test_the_ram_environment_is_baked_once_with_the_site_s_certificate_and_key(inventory, store, deploying):
    said = typed(inventory, "bake", DEPLOY)
    assert re.match(r"deploy: [0-9a-f]{12}, ", said)
    image = store.current(DEPLOY)
    assert store.given([DEPLOY], [PUBLIC]) == [(image, True)]
    assert json.loads(image.sbom_path.read_text())["components"]
    assert deploying[0]["ca_certificate"] == "certificate"
    assert deploying[0]["kernel"] == "cloud"
    assert deploying[0]["image_keys"] == [PUBLIC.decode()]
    assert "nothing baked" in typed(inventory, "bake", DEPLOY)
    assert len(deploying) == 1


def test_only_what_goes_into_the_ram_environment_bakes_it_again(tmp_path, monkeypatch):
    source = Path(bake_deploy.__file__).parent
    copy = tmp_path / "provision"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(bake_deploy, "files", lambda _package: copy)
    monkeypatch.setattr(
        bake_deploy, "program", lambda: {"deploy_main.py": (copy / "deploy_main.py").read_bytes()}
    )
    before = bake_deploy._program_digest()
    for name in ("bake.py", "image_cli.py", "deployd.py", "files/chroot.sh"):
        (copy / name).write_text("# another\n")
    assert bake_deploy._program_digest() == before
    for name in (
        "ramdisk.py",
        "ramdisk_tree.py",
        "files/ramdisk.yml",
        "files/ramdisk-init.sh",
        "deploy_main.py",
    ):
        kept = (copy / name).read_bytes()
        (copy / name).write_text("# another\n")
        assert bake_deploy._program_digest() != before, name
        (copy / name).write_bytes(kept)
    assert bake_deploy._program_digest() == before


def test_the_lookup_gives_what_is_verified_and_says_why_not(inventory, store):
    image = put(store, b"new")
    look = lookup_loader.get("coldiron.cluster.images")
    given = look.run([CPU, DEPLOY], {}, store=str(store.directory), trusted=[PUBLIC.decode()])
    assert given == [
        {"class": CPU, "sha256": image.sha256, "current": True, "directory": str(image.directory)}
    ]
    with pytest.raises(AnsibleLookupError, match="does not trust"):
        look.run([CPU], {}, store=str(store.directory), trusted=[])


def test_the_filters_say_where_images_are_served():
    filters = importlib.import_module("ansible_collections.coldiron.cluster.plugins.filter.images")
    assert filters.image_public_key(KEY.decode()) == PUBLIC.decode()
    with pytest.raises(AnsibleFilterError, match="no Ed25519 key"):
        filters.image_public_key("secret")
    placed = filters.image_places(
        [{"class": CPU, "sha256": "ab"}, {"class": DEPLOY, "sha256": "cd"}], "/srv/x"
    )
    assert [one["path"] for one in placed] == ["/srv/x/images/ab", "/srv/x/deploy/cd"]
    assert filters.image_links(["initrd"], placed[1:], "/srv/x") == [
        {"path": "/srv/x/deploy/initrd", "src": "cd/initrd"}
    ]
    assert set(filters.FilterModule().filters()) == {"image_links", "image_places", "image_public_key"}
