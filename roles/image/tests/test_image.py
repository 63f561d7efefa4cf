"""What the provisioner serves is whole, has its papers, and leads machines to the RAM environment that is current."""

from __future__ import annotations

import json

PAPERS = ("manifest.json", "manifest.sig", "sbom.json")


def served(host, folder):
    """Return the directories of the images in a folder, hidden ones too."""
    found = host.run(f"find {folder} -mindepth 1 -maxdepth 1 -type d")
    return sorted(found.stdout.split())


def files_of(image, kind):
    return [f"{image}/{name}" for name in (("vmlinuz", "initrd") if kind == "deploy" else ("image.tar.zst",))]


def test_every_image_is_what_its_name_says(host, opts):
    for kind in ("images", "deploy"):
        for image in served(host, f"{opts['image_directory']}/{kind}"):
            found = host.check_output(f"cat {' '.join(files_of(image, kind))} | sha256sum").split()[0]
            assert image.rpartition("/")[2] == found, image


def test_every_image_has_its_manifest_its_signature_and_its_list_of_components(host, opts):
    for kind in ("images", "deploy"):
        for image in served(host, f"{opts['image_directory']}/{kind}"):
            for name in PAPERS:
                assert host.file(f"{image}/{name}").is_file, f"{image}/{name}"
            manifest = json.loads(host.file(f"{image}/manifest.json").content_string)
            assert manifest["sha256"] == image.rpartition("/")[2]


def test_a_class_has_two_images_at_most_and_no_other_class_has_any(host, opts):
    count = dict.fromkeys([*opts["image_classes"], "deploy"], 0)
    for kind in ("images", "deploy"):
        for image in served(host, f"{opts['image_directory']}/{kind}"):
            manifest = json.loads(host.file(f"{image}/manifest.json").content_string)
            count[manifest["node_class"]] += 1
    assert max(count.values()) <= 2, count


def test_firmware_finds_the_ram_environment_by_a_name_without_a_digest(host, opts):
    folder = f"{opts['image_directory']}/deploy"
    for image in served(host, folder)[:1]:
        for name in ("vmlinuz", "initrd"):
            link = host.file(f"{folder}/{name}")
            assert link.is_symlink, image
            assert link.linked_to.rpartition("/")[0] in served(host, folder)


def test_everybody_may_read_what_is_served_and_nobody_but_root_writes_it(host, opts):
    wrong = host.check_output(
        f"find {opts['image_directory']}/images {opts['image_directory']}/deploy -not -type l "
        r"\( -perm /022 -o -not -user root -o -not -perm -044 \)"
    )
    assert wrong == ""
