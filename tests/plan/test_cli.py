"""What a person sees of a plan: the verdict first, then what to mend, then the site, then what a run would do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import load
from coldiron.plan import Finding, Plan, Severity, cli
from coldiron.plan.data import refused, site_data, verdict
from coldiron.plan.design import Design
from coldiron.plan.show import shown_findings, shown_plan, shown_refusal
from tests.plan.cases import base

ROOT = Path(__file__).parents[2]
# Without a scheduler nothing wants secrets; the name server is what a role would ask for.
SOUND = """\
plugin: coldiron.cluster.cluster
name: hopper
domain: hopper.internal
networks:
  cluster: {subnet: 10.99.0.0/24}
features: {scheduler: none}
racks:
  - {name: r01, units: 4, depth_mm: 1000, load_kg: 500}
defaults:
  hardware:
    cores_per_socket: 8
    memory_gib: 64
    height_u: 2
    depth_mm: 700
    weight_kg: 20
    ports: [{count: 2, gbit_per_s: 25}]
nodes:
  - {name: head01, kind: head, address: 10.99.0.1, rack: r01, u: 1}
  - {name: storage01, kind: storage, address: 10.99.0.2, rack: r01, u: 3}
"""
CLASH = SOUND.replace("u: 3}", "u: 2}")


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    cli.register(made)
    return made


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("dns_forwarders: [192.0.2.53]\n")
    (tmp_path / "cluster.yml").write_text(SOUND)
    return tmp_path


def planned(app: typer.Typer, inventory: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plan", "-i", str(inventory), *words], catch_exceptions=False)
    return done.exit_code, done.output


def test_a_sound_site(app: typer.Typer, inventory: Path) -> None:
    code, text = planned(app, inventory)
    lines = text.splitlines()
    assert code == ExitCode.OK
    assert lines[0].startswith("sound: nothing to mend")
    assert "nodes  2: 1 head, 1 storage" in text
    assert "1 rack" in text
    assert ["storage", "nfs", "2", "all"] in [line.split() for line in lines]
    assert f"coldiron apply -i {inventory}  does it" in lines[-1]


def test_a_site_that_cannot_be_built(app: typer.Typer, inventory: Path) -> None:
    (inventory / "cluster.yml").write_text(CLASH)
    code, text = planned(app, inventory)
    lines = text.splitlines()
    assert code == ExitCode.REFUSED
    assert lines[0].startswith("refused: 1 to mend")
    assert lines[2] == "to mend:"
    # The line of the second node, where an editor opens it.
    assert lines[3].startswith(f"{inventory}/cluster.yml:19: storage01 (U2-U3)")
    assert lines[3].endswith("[CU101]")
    assert "coldiron explain CU101" in text
    assert "coldiron apply" not in text
    # What a run would do is said all the same.
    assert ["storage", "nfs", "2", "all"] in [line.split() for line in lines]


def test_the_site_and_the_options_are_looked_at_both(app: typer.Typer, inventory: Path) -> None:
    (inventory / "cluster.yml").write_text(CLASH)
    (inventory / "group_vars" / "cluster.yml").write_text("base_timezone: ../etc\n")
    code, text = planned(app, inventory, "--json")
    found = {finding["code"] for finding in json.loads(text)["findings"] if finding["severity"] == "refuse"}
    assert (code, found) == (ExitCode.REFUSED, {"CU101", "CR103"})


def test_the_site_is_looked_at_where_no_variable_can_be_read(app: typer.Typer, inventory: Path) -> None:
    (inventory / "cluster.yml").write_text(CLASH)
    (inventory / "group_vars" / "cluster.yml").write_text("base_timezone: [\n")
    data = json.loads(planned(app, inventory, "--json")[1])
    assert {"CU101", "CR105"} <= {finding["code"] for finding in data["findings"]}
    assert data["complete"] is False


def test_the_verdict_alone(app: typer.Typer, inventory: Path) -> None:
    assert planned(app, inventory, "-q")[1].count("\n") == 1
    (inventory / "cluster.yml").write_text(CLASH)
    code, text = planned(app, inventory, "--quiet")
    assert code == ExitCode.REFUSED
    assert text.startswith("refused: 1 to mend")
    assert text.count("\n") == 1


def test_json_holds_everything(app: typer.Typer, inventory: Path) -> None:
    (inventory / "cluster.yml").write_text(CLASH)
    data = json.loads(planned(app, inventory, "--json")[1])
    assert data["verdict"].startswith("refused: 1 to mend")
    assert data["refused"] is True
    assert data["counts"]["refuse"] == 1
    clash = next(finding for finding in data["findings"] if finding["code"] == "CU101")
    assert clash["id"].startswith("CU101:")
    assert isinstance(clash["figures"], dict)
    assert data["site"]["nodes"] == {"head": 1, "storage": 1}
    assert {one["name"]: one["u"] for one in data["design"]["positions"]} == {"head01": 1, "storage01": 2}
    assert data["steps"]


def test_warnings_refuse_when_strict(app: typer.Typer, inventory: Path) -> None:
    (inventory / "cluster.yml").write_text(SOUND.replace("memory_gib: 64", "memory_gib: 8"))
    assert planned(app, inventory, "-q")[0] == ExitCode.OK
    code, text = planned(app, inventory, "-q", "--strict")
    assert code == ExitCode.REFUSED
    assert text.startswith("refused by --strict: ")


def test_a_broken_file_is_refused_with_its_lines(app: typer.Typer, inventory: Path) -> None:
    (inventory / "cluster.yml").write_text(SOUND.replace("kind: head", "kind: heat"))
    code, text = planned(app, inventory)
    assert code == ExitCode.REFUSED
    assert text.startswith("refused: 1 to mend\n")
    assert "cluster.yml:18:" in text
    assert "has not been looked at yet" in text
    assert json.loads(planned(app, inventory, "--json")[1])["site"] is None


def test_without_an_inventory(app: typer.Typer, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["plan", "-i", str(tmp_path / "nothing")])
    assert isinstance(done.exception, ColdironError)
    assert done.exception.exit_code == ExitCode.USAGE


def finding(severity: Severity, number: int = 1) -> Finding:
    return Finding("CH101", severity, f"a/cluster.yml:{number}", "too little " * 9, "add more", "gpu[1-9]")


def test_the_verdict() -> None:
    assert verdict([]) == "sound: nothing to mend"
    some = [finding(Severity.WARN), finding(Severity.WARN), finding(Severity.ADVICE)]
    assert verdict(some) == "sound: nothing to mend, 2 warnings, 1 advice"
    assert not refused(some)
    assert verdict(some, strict=True) == "refused by --strict: 2 warnings, 1 advice"
    assert (
        verdict([*some, finding(Severity.REFUSE)], strict=True) == "refused: 1 to mend, 2 warnings, 1 advice"
    )
    assert not refused([finding(Severity.ADVICE)], strict=True)


def test_findings_are_one_line_each_in_a_pipe_and_wrapped_on_a_terminal() -> None:
    found = [finding(Severity.ADVICE), finding(Severity.REFUSE)]
    lines = shown_findings(found)
    assert [line for line in lines if line] == ["to mend:", str(found[1]), "advice:", str(found[0])]
    wrapped = shown_findings(found, 80)
    assert max(map(len, wrapped)) <= 80
    assert wrapped[2] == "  a/cluster.yml:1 [CH101]"
    assert all(line.startswith("    ") for line in wrapped[3:5])


def test_more_findings_than_anybody_reads_are_cut() -> None:
    many = [finding(severity, number) for severity in Severity for number in range(1, 151)]
    lines = shown_findings(many)
    assert [line for line in lines if "more; --json" in line] == [
        "... and 50 more; --json has them all",
        "... and 100 more; --json has them all",
        "... and 130 more; --json has them all",
    ]


def test_a_refusal_shows_what_led_to_it_only() -> None:
    text = shown_refusal([finding(Severity.REFUSE), finding(Severity.WARN, 2)])
    assert text.splitlines()[0] == "refused: 1 to mend, 1 warning"
    assert "cluster.yml:2" not in text


def test_ten_thousand_nodes_fit_on_a_page(tmp_path: Path) -> None:
    text = (
        base("node").replace("subnet: 10.99.0.0/24", "subnet: 10.64.0.0/10").replace("10.99.0.", "10.99.0.")
    )
    groups = "".join(
        f"  - {{name: 'cpu[{n:05d}-{n + 99:05d}]', kind: cpu, address: 10.{100 + n // 20000}.{n // 200}.1, "
        "hardware: {cores_per_socket: 8, memory_gib: 64, ports: [{count: 2, gbit_per_s: 25}]}}\n"
        for n in range(1000, 11000, 200)
    )
    (tmp_path / "cluster.yml").write_text(text + groups)
    cluster = load(tmp_path / "cluster.yml")
    plan = Plan(tmp_path, cluster, tuple(node.name for node in cluster.nodes), design=Design(cluster))
    lines = shown_plan(plan)
    assert len(lines) < 60
    assert max(map(len, lines)) < 200


def test_the_site_in_figures_counts_gpus_of_all_nodes(tmp_path: Path) -> None:
    (tmp_path / "cluster.yml").write_text(
        SOUND + "  - {name: 'gpu[01-03]', kind: gpu, address: 10.99.0.11, hardware: "
        "{cores_per_socket: 8, memory_gib: 64, gpus: {model: l4, count: 2}}}\n"
    )
    site = site_data(Design(load(tmp_path / "cluster.yml")))
    assert site["gpus"] == {"l4": 6}
    assert site["nodes"] == {"head": 1, "storage": 1, "gpu": 3}


class Terminal:
    """Enough of a terminal to ask its width and colour."""

    def isatty(self) -> bool:
        return True


def test_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    for columns, width in (("20", 40), ("80", 80), ("300", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        assert cli._columns() == width


def test_colour_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert cli._colour()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not cli._colour()


def test_there_is_no_colour_in_a_pipe(app: typer.Typer, inventory: Path) -> None:
    assert "\x1b" not in planned(app, inventory)[1]


def test_where_no_ansible_cfg_is_a_catalog_is_no_inventory(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "inventories" / "starter", tmp_path / "starter")
    (tmp_path / "ansible.cfg").touch()
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "COLDIRON_"))}
    done = subprocess.run(
        [Path(sys.executable).parent / "coldiron", "plan", "-q", "-i", "starter"],
        cwd=tmp_path, env=plain, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("sound: ")


def test_no_verb_waits_for_ansible_before_it_is_wanted() -> None:
    code = (
        "import sys, coldiron.cli; print([name for name in sys.modules if name.split('.')[0] == 'ansible'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")
