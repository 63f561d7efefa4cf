"""After ``pip install`` of the wheel into an empty environment, everything works from any directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.packaging.builds import COLLECTION, ROOT, Environment

OF_MACHINES = {"bmc", "deploy", "image", "netboot", "netboot_cache", "network"}
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir())


def test_the_command_line_is_there(wheel: Environment) -> None:
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    assert wheel.output("coldiron", "--version") == f"coldiron {version}\n"
    assert "Usage: coldiron" in wheel.output("coldiron", "--help")


def test_every_command_has_its_help(wheel: Environment) -> None:
    script = (
        "import typer, typer.testing, coldiron.cli as c\n"
        "def walk(command, words):\n"
        "    yield words\n"
        "    for name, sub in getattr(command, 'commands', {}).items():\n"
        "        yield from walk(sub, [*words, name])\n"
        "for words in walk(typer.main.get_command(c.app), []):\n"
        "    print(typer.testing.CliRunner().invoke(c.app, [*words, '--help']).exit_code, *words)\n"
    )
    said = wheel.output("python", "-c", script).splitlines()
    assert "0 rack up" in said
    assert [line for line in said if not line.startswith("0")] == []


def test_every_module_of_the_package_can_be_imported(wheel: Environment) -> None:
    """Those that only a checkout needs may want a tool of it, nothing else."""
    script = (
        "import importlib, pkgutil, coldiron\n"
        "for found in pkgutil.walk_packages(coldiron.__path__, 'coldiron.'):\n"
        "    if '__main__' in found.name: continue\n"
        "    try: importlib.import_module(found.name)\n"
        "    except ModuleNotFoundError as error: print(found.name, error.name)\n"
    )
    lacking = [line.split() for line in wheel.output("python", "-c", script).splitlines()]
    of_a_checkout = ("coldiron.docs_gen", "coldiron.testing.contract", "coldiron.dashboards")
    assert [line for line in lacking if not line[0].startswith(of_a_checkout)] == []
    # What asks a site's servers is everybody's.
    assert [line for line in lacking if line[0].endswith((".read", ".check"))] == []


def test_the_rack_says_what_it_needs(wheel: Environment) -> None:
    assert "systemd-container" in wheel.output("coldiron", "rack", "requirements").split()


def test_the_stages_are_called_by_name(wheel: Environment) -> None:
    listed = wheel.output("ansible-playbook", "coldiron.cluster.site", "--list-tasks", "-i", "inv")
    assert str(wheel.packages / COLLECTION / "playbooks" / "site.yml") in listed
    tags = {tag.strip(" []") for line in listed.splitlines() for tag in line.partition("TAGS:")[2].split(",")}
    assert set(ROLES) - tags == set()


def test_the_inventory_plugin_reads_cluster_yml(wheel: Environment) -> None:
    listed = json.loads(wheel.output("ansible-inventory", "-i", "inv", "--list"))
    assert "head01" in listed["cluster"]["hosts"]


def test_a_wrong_inventory_stops_the_stages_in_any_directory(wheel: Environment) -> None:
    wrong = wheel.elsewhere / "wrong"
    shutil.copytree(wheel.elsewhere / "inv", wrong)
    path = wrong / "cluster.yml"
    path.write_text(path.read_text(encoding="utf-8").replace("kind: head", "kind: haed"), encoding="utf-8")
    done = wheel.run("ansible-playbook", "coldiron.cluster.site", "-i", "wrong")
    assert done.returncode == 4
    assert "haed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("kind", "name"), [("inventory", "cluster"), ("module", "converge"), ("lookup", "os_data")]
)
def test_the_documentation_is_there(wheel: Environment, kind: str, name: str) -> None:
    document = json.loads(wheel.output("ansible-doc", "--json", "-t", kind, f"coldiron.cluster.{name}"))
    assert document[f"coldiron.cluster.{name}"]["doc"]["description"]


def test_ansible_galaxy_knows_the_collection(wheel: Environment) -> None:
    listed = json.loads(wheel.output("ansible-galaxy", "collection", "list", "--format", "json"))
    (place,) = (place for place, found in listed.items() if "coldiron.cluster" in found)
    assert place == str(wheel.packages / "ansible_collections")


ELSEWHERE = {
    *("gpu_driver", "gpu_fabric", "gpu_health", "gpu_mig", "gpu_power", "cuda", "gpu_exporter"),
    *("subids", "podman", "apptainer", "docker", "nvidia_container_toolkit"),
    *("containerd", "enroot", "pyxis"),
    *("mpi", "slurm_pam"),
    *("elasticsearch", "elasticsearch_exporter", "log_shipper", "kibana"),
    *("node_exporter", "prometheus", "alertmanager", "blackbox_exporter", "slurm_exporter", "grafana"),
    *("ipmi_exporter", "redfish_exporter"),
}


def test_the_roles_own_tests_are_found(wheel: Environment) -> None:
    found = wheel.output(
        "python", "-m", "pytest", "-p", "coldiron.testing.plugin", "-p", "no:cacheprovider",
        "--inventory", "inv", "--collect-only", "-q",
    )  # fmt: skip
    for role in ROLES:
        assert (wheel.packages / COLLECTION / "roles" / role / "tests" / f"test_{role}.py").is_file(), role
        # No host of this site is a machine, has GPUs of coldiron's, runs containers or MPI, or asks for a job.
        assert (f"test_{role}.py" in found) == (role not in OF_MACHINES | ELSEWHERE), role


def test_nothing_leads_back_into_the_checkout(wheel: Environment) -> None:
    """No link, no path file and no text of the installed package names the checkout."""
    checkout = str(ROOT)
    own = [wheel.packages / "coldiron", wheel.packages / COLLECTION, wheel.folder / "venv" / "bin"]
    own += wheel.packages.glob("coldiron-*.dist-info")
    texts = [path for folder in own for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    texts += wheel.packages.glob("*.pth")
    assert len(texts) > 300
    assert [str(path) for path in texts if checkout.encode() in path.read_bytes()] == []
    links = [path for path in (wheel.folder / "venv").rglob("*") if path.is_symlink()]
    assert [str(path) for path in links if Path(checkout) in path.resolve().parents] == []


@pytest.mark.site
def test_check_on_a_converged_site_is_silent(wheel: Environment, pytestconfig: pytest.Config) -> None:
    """The installed stages find nothing to do where the checkout's have been."""
    inventory = Path(pytestconfig.getoption("--inventory")[0]).resolve()
    done = wheel.run(
        "ansible-playbook", "coldiron.cluster.site", "-i", str(inventory), "--check",
        "--vault-password-file", str(inventory / ".vault-password"), ANSIBLE_FORKS="8",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    recap = [line for line in done.stdout.partition("PLAY RECAP")[2].splitlines() if " : " in line]
    assert len(recap) > 1
    assert [line for line in recap if " changed=0 " not in line] == []
