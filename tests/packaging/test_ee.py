"""What ansible-builder makes of the execution environment's definition, and of the collection's own needs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import yaml

from tests.packaging.builds import Dist, Environment, beside, call, must


def create(checkout: Path, definition: str, context: Path) -> str:
    """Let ansible-builder write a build context; returns its Containerfile."""
    builder = [beside("ansible-builder"), "create", "-f", definition, "-c", str(context)]
    must([*builder, "--output-filename", "Containerfile"], checkout)
    return (context / "Containerfile").read_text(encoding="utf-8")


def test_the_definition_makes_an_image_of_the_wheel(checkout: Path, built: Dist, tmp_path: Path) -> None:
    shutil.copytree(built.folder, checkout / "dist")
    written = create(checkout, "execution-environment.yml", tmp_path / "context")
    assert (
        tmp_path / "context" / "_build" / "dist" / built.wheel.name
    ).read_bytes() == built.wheel.read_bytes()
    assert "pip install --no-cache-dir /tmp/dist/coldiron-*.whl" in written
    assert re.search(r"ARG PYPKG=.?python3\.12", written)
    bindep = (tmp_path / "context" / "_build" / "bindep.txt").read_text(encoding="utf-8")
    assert "openssh-clients [platform:rpm]" in bindep


def test_a_key_that_ansible_builder_does_not_know_is_refused(checkout: Path, tmp_path: Path) -> None:
    definition = yaml.safe_load((checkout / "execution-environment.yml").read_text(encoding="utf-8"))
    definition["dependencies"]["pyton"] = ["coldiron"]
    planted = tmp_path / "execution-environment.yml"
    planted.write_text(yaml.safe_dump(definition), encoding="utf-8")
    builder = [beside("ansible-builder"), "create", "-f", str(planted), "-c", str(tmp_path / "context")]
    done = call(builder, checkout)
    assert done.returncode == 1
    assert "pyton" in done.stdout + done.stderr


def test_the_versions_of_ansible_are_the_package_s(checkout: Path, built: Dist) -> None:
    definition = yaml.safe_load((checkout / "execution-environment.yml").read_text(encoding="utf-8"))
    project = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    for name in ("ansible_core", "ansible_runner"):
        assert f'"{definition["dependencies"][name]["package_pip"]}' in project


def test_the_installed_collection_says_what_it_needs(galaxy: Environment, built: Dist) -> None:
    """This is what ansible-builder asks when a definition of one's own names the collection."""
    collections = galaxy.folder / "home" / ".ansible" / "collections"
    told = yaml.safe_load(must([beside("ansible-builder"), "introspect", str(collections)], galaxy.elsewhere))
    version = built.wheel.name.split("-")[1]
    assert [line.split("  #")[0] for line in told["python"]] == [f"coldiron=={version}"]
    assert "openssh-clients [platform:rpm]  # from collection coldiron.cluster" in told["system"]
