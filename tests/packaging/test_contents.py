"""What is in the wheel, the sdist and the Galaxy tarball: all that is needed, nothing else, the same each time."""

from __future__ import annotations

import email
import hashlib
import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.packaging.builds import (
    COLLECTION,
    Dist,
    beside,
    call,
    clean_clone,
    dist,
    git,
    in_tar,
    in_wheel,
    must,
)

# The places of a collection. A file that is nowhere among them has no business in a package.
PLACES = re.compile(
    r"""(?x)
    CHANGELOG\.md | LICENSE | README\.md | MANIFEST\.json | FILES\.json
    | meta/(runtime|execution-environment)\.yml | meta/ee-(bindep|requirements)\.txt
    | playbooks/([a-z_]+/)*[a-z_]+\.yml
    | plugins/[a-z_]+/[a-z_]+\.(py|yml)
    | roles/[a-z_]+/README\.md
    | roles/[a-z_]+/files/[a-z-]+(\.rules\.yml|-requirements\.txt)
    | roles/grafana/files/dashboards/[a-z]+\.json
    | roles/kibana/files/logs\.ndjson
    | roles/[a-z_]+/(defaults|handlers|meta|tasks|vars)/\w+\.yml
    | roles/[a-z_]+/templates/(\S+/)?[^/\s]+\.j2
    | roles/[a-z_]+/tests/(test_[a-z_]+\.py|sabotage\.yml)
    """
)
PARTS = ("meta/", "playbooks/", "plugins/", "roles/")
# What lies about in a checkout that is worked in, and must stay out of every package.
LITTER = {
    "inventories/virtual/group_vars/all/vault.yml": "munge_key: planted",
    "inventories/virtual/.vault-password": "planted",
    "playbooks/group_vars/all/vault.yml": "munge_key: planted",
    "roles/time/templates/etc/.chrony.conf.j2.swp": "planted",
    "roles/time/tasks/main.yml.orig": "planted",
    "roles/time/tests/__pycache__/test_time.cpython-311.pyc": "planted",
    "plugins/modules/converge.py.bak": "planted",
    "playbooks/notes.txt": "planted",
    "meta/token.yml": "planted",
    ".cache/site/virtual/group_vars/all/vault.yml": "planted",
    ".venv/lib/planted.py": "planted",
    "dist/old.yml": "planted",
    "artifacts/run.yml": "planted",
}


@pytest.fixture(scope="module")
def tracked(checkout: Path) -> set[str]:
    """The files of the checkout."""
    return {name for name in git(checkout, "ls-files", "-z").split("\0") if name}


def littered(folder: Path, origin: Path) -> Path:
    """A copy of a checkout that somebody has worked in, with links that lead back into it."""
    checkout = clean_clone(folder, origin)
    for name, content in LITTER.items():
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    (checkout / ".venv" / COLLECTION).mkdir(parents=True)
    for part in PARTS:
        (checkout / ".venv" / COLLECTION / part.rstrip("/")).symlink_to(checkout / part)
    return checkout


def test_the_tarball_has_only_what_belongs_into_a_collection(built: Dist) -> None:
    assert [name for name in in_tar(built.tarball) if not PLACES.fullmatch(name)] == []


def test_the_tarball_lacks_nothing(built: Dist, tracked: set[str]) -> None:
    wanted = {name for name in tracked if name.startswith(PARTS)}
    assert wanted - set(in_tar(built.tarball)) == set()
    assert len(wanted) > 150


def test_the_wheel_carries_the_very_collection_of_the_tarball(built: Dist) -> None:
    carried = {
        name.removeprefix(f"{COLLECTION}/"): content
        for name, content in in_wheel(built.wheel).items()
        if name.startswith("ansible_collections/")
    }
    assert carried == in_tar(built.tarball)


def test_the_rest_of_the_wheel_is_the_package(built: Dist, tracked: set[str]) -> None:
    rest = {name for name in in_wheel(built.wheel) if not name.startswith("ansible_collections/")}
    package = {name for name in rest if name.startswith("coldiron/")}
    assert package == {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    assert [name for name in rest - package if not re.match(r"coldiron-[^/]+\.dist-info/", name)] == []


def test_the_sdist_has_only_files_of_the_checkout(built: Dist, tracked: set[str]) -> None:
    names = {name.partition("/")[2] for name in in_tar(built.sdist)}
    assert names - tracked == {"PKG-INFO"}


def test_no_package_has_a_secret_or_its_place(built: Dist) -> None:
    names = [*in_tar(built.tarball), *in_tar(built.sdist), *in_wheel(built.wheel)]
    assert [
        name for name in names if re.search(r"vault\.yml|vault-password|\.rack/|inventories/", name)
    ] == []


def test_the_manifest_holds(built: Dist) -> None:
    """Each file's checksum is right: this is what ansible-galaxy looks at when it installs or verifies."""
    files = in_tar(built.tarball)
    manifest = json.loads(files["MANIFEST.json"])
    listed = {entry["name"]: entry for entry in json.loads(files["FILES.json"])["files"]}
    digest = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert manifest["file_manifest_file"]["chksum_sha256"] == digest.pop("FILES.json")
    del digest["MANIFEST.json"]
    assert {
        name: entry["chksum_sha256"] for name, entry in listed.items() if entry["ftype"] == "file"
    } == digest


def test_there_is_one_version(built: Dist, checkout: Path) -> None:
    version = yaml.safe_load((checkout / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    wheel = in_wheel(built.wheel)
    (metadata,) = (content for name, content in wheel.items() if name.endswith(".dist-info/METADATA"))
    assert email.message_from_bytes(metadata)["Version"] == version
    assert json.loads(wheel[f"{COLLECTION}/MANIFEST.json"])["collection_info"]["version"] == version
    needed = (checkout / "meta" / "ee-requirements.txt").read_text(encoding="utf-8").splitlines()
    assert f"coldiron=={version}" in needed


def test_another_checkout_at_another_place_builds_the_same_bytes(
    built: Dist, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o077)
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    try:
        again = dist(littered(tmp_path / "another", checkout), tmp_path / "dist")
    finally:
        os.umask(before)
    assert again.contents() == built.contents()


def test_the_sums_are_those_of_the_artifacts(built: Dist) -> None:
    contents = built.contents()
    lines = contents.pop("SHA256SUMS").decode().splitlines()
    assert sorted(lines) == sorted(
        f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in contents.items()
    )
    assert len(lines) == 3


def test_a_build_in_a_checkout_that_is_worked_in_takes_no_litter(checkout: Path, tmp_path: Path) -> None:
    checkout = littered(tmp_path / "worked-in", checkout)
    # The whole checkout, by way of itself: following it has no end.
    (checkout / "roles" / "time" / "loop").symlink_to(checkout)
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), "."]
    must(build, checkout)
    (wheel,) = tmp_path.glob("*.whl")
    names = [name.removeprefix(f"{COLLECTION}/") for name in in_wheel(wheel) if COLLECTION in name]
    assert [name for name in names if not PLACES.fullmatch(name) or name.endswith("vault.yml")] == []
    assert "roles/time/tasks/main.yml" in names


def test_ansible_galaxy_in_a_checkout_that_is_worked_in_takes_no_litter(
    checkout: Path, tmp_path: Path
) -> None:
    checkout = littered(tmp_path / "worked-in", checkout)
    must([beside("ansible-galaxy"), "collection", "build", "--output-path", str(tmp_path)], checkout)
    (tarball,) = tmp_path.glob("*.tar.gz")
    names = list(in_tar(tarball))
    assert [name for name in names if not PLACES.fullmatch(name) or name.endswith("vault.yml")] == []
    assert "roles/time/tasks/main.yml" in names


def test_a_kind_of_file_that_is_not_allowed_is_left_out(checkout: Path, tmp_path: Path) -> None:
    """The allow-list does not know it yet; the test above that nothing is missing then says so."""
    checkout = clean_clone(tmp_path / "new", checkout)
    script = checkout / "roles" / "time" / "files" / "new.sh"
    script.parent.mkdir(exist_ok=True)
    script.write_text("true\n", encoding="utf-8")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "New")
    names = in_tar(dist(checkout, tmp_path / "dist").tarball)
    assert "roles/time/files/new.sh" not in names
    assert "roles/time/tasks/main.yml" in names


def test_uncommitted_changes_are_not_released(checkout: Path, tmp_path: Path) -> None:
    checkout = clean_clone(tmp_path / "changed", checkout)
    (checkout / "README.md").write_text("changed\n", encoding="utf-8")
    done = call([sys.executable, "scripts/dist.py", "--out", str(tmp_path / "dist")], checkout)
    assert done.returncode == 1
    assert done.stderr == "coldiron: 1 tracked files have uncommitted changes: commit them, or say --dirty\n"
    assert not (tmp_path / "dist").exists()
