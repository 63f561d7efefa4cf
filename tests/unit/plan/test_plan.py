"""What a plan finds over a whole inventory, and what it says would be done; nothing is started for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from coldiron.errors import ColdironError, ExitCode
from coldiron.plan import Finding, Plan, Severity, cli, make
from coldiron.plan.show import shown_findings, shown_plan, shown_steps
from coldiron.secrets.store import VAULT_FILE, Store

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan starts no process at all, so it contacts no node."""
    for name in ("COLDIRON_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_PASSWORD_FILE"):
        monkeypatch.delenv(name, raising=False)

    def refuse(*words: object, **more: object) -> None:
        raise AssertionError(f"a plan started {words}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "fork", refuse)


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """The inventory of the virtual rack, copied, with secrets of its own."""
    directory = tmp_path / "hopper"
    shutil.copytree(
        ROOT / "inventories" / "virtual",
        directory,
        ignore=shutil.ignore_patterns(".*", "vault.yml"),
    )
    (directory / ".vault-password").write_text("only for the test\n")
    (directory / ".vault-password").chmod(0o600)
    Store(directory, b"only for the test").add_missing()
    return directory


def site(inventory: Path, text: str) -> None:
    with (inventory / "group_vars" / "all" / "site.yml").open("a") as file:
        file.write(text)


def codes(plan: Plan) -> list[str]:
    return [finding.code for finding in plan.findings]


def only(plan: Plan) -> Finding:
    (finding,) = plan.findings
    return finding


def test_a_sound_inventory_says_what_would_be_done(inventory: Path) -> None:
    plan = make(inventory)
    assert plan.findings == []
    assert not plan.refused
    lines = shown_steps(plan)
    assert lines[0].startswith("virtual: 7 nodes, ")
    table = [line.split() for line in lines]
    assert ["base", "base", "7", "all"] in table
    assert ["slurm_worker", "4", "cpu01,gpu[01-03]"] in table
    assert ["mariadb", "1", "head01"] in table
    assert [step.stage for step in plan.steps] == sorted(
        (step.stage for step in plan.steps), key=["base", "storage", "scheduler"].index
    )


def test_a_limit_leaves_nodes_out(inventory: Path) -> None:
    plan = make(inventory, ["kind_gpu"])
    assert plan.hosts == ("gpu01", "gpu02", "gpu03")
    assert "slurm_controller" not in {step.role for step in plan.steps}
    assert "limited to kind_gpu" in shown_steps(plan)[0]
    with pytest.raises(ColdironError, match=r"no node matches --limit gpu1; did you mean `gpu01`\?"):
        make(inventory, ["gpu1"])


def test_every_fault_is_found_at_once_with_its_line(inventory: Path) -> None:
    lines = (inventory / "group_vars" / "all" / "site.yml").read_text().count("\n")
    site(inventory, 'base_timezone: "{{ nowhere }}"\ntime_control_clock: perhaps\nbase_locale: Klingon\n')
    plan = make(inventory)
    assert plan.refused
    assert sorted(codes(plan)) == ["CR102", "CR103", "CR104"]
    by_code = {finding.code: finding for finding in plan.findings}
    assert by_code["CR104"].where.endswith(f"group_vars/all/site.yml:{lines + 1}")
    assert "base_timezone: 'nowhere' is undefined" in by_code["CR104"].what
    assert by_code["CR102"].where.endswith(f"site.yml:{lines + 2}")
    assert by_code["CR103"].where.endswith(f"site.yml:{lines + 3}")
    assert 'base_locale "Klingon" is not usable' in by_code["CR103"].what
    # They concern all nodes, so none is named.
    assert {finding.hosts for finding in plan.findings} == {""}
    assert shown_plan(plan)[0] == "refused: 3 to mend"
    assert all(len(line.splitlines()) == 1 for line in map(str, plan.findings))


def test_a_fault_of_some_nodes_names_them(inventory: Path) -> None:
    (inventory / "group_vars" / "kind_gpu.yml").write_text("time_control_clock: perhaps\n")
    finding = only(make(inventory))
    assert finding.hosts == "gpu[01-03]"
    assert finding.where.endswith("group_vars/kind_gpu.yml:1")


def test_a_fault_of_one_node_names_it(inventory: Path) -> None:
    (inventory / "host_vars").mkdir()
    (inventory / "host_vars" / "gpu02.yml").write_text("# of its own\ntime_control_clock: perhaps\n")
    finding = only(make(inventory))
    assert finding.hosts == "gpu02"
    assert finding.where.endswith("host_vars/gpu02.yml:2")


def test_options_that_follow_from_a_node_s_name_are_looked_at_node_by_node(inventory: Path) -> None:
    site(
        inventory, "base_hostname: \"{{ 'GPU' if inventory_hostname == 'gpu02' else inventory_hostname }}\"\n"
    )
    finding = only(make(inventory))
    assert finding.code == "CR103"
    assert finding.hosts == "gpu02"


def test_a_required_option_without_a_value(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coldiron.plan import options

    def ask(resolved: object, role: str, variables: object) -> list[str]:
        return ["role users: missing required arguments: users_accounts"] if role == "users" else []

    monkeypatch.setattr(options, "_ask", ask)
    finding = only(make(inventory))
    assert (finding.code, finding.what) == ("CR101", "role users: missing required arguments: users_accounts")


def test_what_is_wrong_with_cluster_yml_comes_alone(inventory: Path) -> None:
    site(inventory, "time_control_clock: perhaps\n")
    file = inventory / "cluster.yml"
    file.write_text(
        file.read_text().replace("kind: gpu", "kind: gpuu").replace("name: virtual", "nam: virtual")
    )
    plan = make(inventory)
    assert codes(plan) == ["CI101", "CI103"]
    assert not plan.complete
    assert plan.findings[0].advice == "did you mean `name`?"
    assert "has not been looked at yet" in "\n".join(shown_plan(plan))


def test_variables_that_are_no_yaml(inventory: Path) -> None:
    site(inventory, "base_packages: [less\n")
    (inventory / "group_vars" / "kind_gpu.yml").write_text("- one\n- two\n")
    plan = make(inventory)
    assert codes(plan) == ["CR105", "CR105"]
    assert any("group_vars/all/site.yml:" in finding.where for finding in plan.findings)
    assert plan.findings[1].where.endswith("group_vars/kind_gpu.yml:1")
    assert not plan.complete


def test_an_expression_that_no_role_can_be_asked_without(inventory: Path) -> None:
    (inventory / "group_vars" / "cluster.yml").write_text('topology: "{{ nowhere }}"\n')
    plan = make(inventory)
    assert set(codes(plan)) == {"CR104"}


def test_secrets_that_are_not_there(inventory: Path) -> None:
    (inventory / VAULT_FILE).unlink()
    plan = make(inventory)
    finding = only(plan)
    assert finding.code == "CS102"
    assert finding.what == "the cluster has no secrets yet, which a run needs"
    # A design is planned before anybody makes its secrets; a run has to have them.
    assert not plan.refused
    assert make(inventory, strict=True).refused
    assert finding.advice.startswith("type: coldiron secrets init -i ")


def test_without_a_scheduler_nobody_needs_secrets(inventory: Path) -> None:
    (inventory / VAULT_FILE).unlink()
    file = inventory / "cluster.yml"
    text = file.read_text()
    assert "scheduler: slurm" in text
    file.write_text(text.replace("scheduler: slurm", "scheduler: none"))
    plan = make(inventory)
    # What is left of Slurm's policy keeps nobody from going on.
    assert codes(plan) == ["CV209"]
    assert not plan.refused
    assert {step.stage for step in plan.steps} == {"base", "storage"}


def test_a_secret_that_an_update_brought(inventory: Path) -> None:
    store = Store(inventory, b"only for the test")
    text = "".join(line for line in store.read().splitlines(keepends=True) if "jwt_key" not in line)
    store._write(text)
    finding = only(make(inventory))
    assert finding.what == "no slurm_controller_jwt_key"
    assert finding.severity is Severity.REFUSE


def test_a_vault_without_its_password(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115 - lives as long as the test
    site(inventory, "time_control_clock: perhaps\n")
    (inventory / ".vault-password").rename(inventory.parent / "password")
    plan = make(inventory)
    # The rest is looked at all the same, with secrets that are made up.
    assert codes(plan) == ["CS101", "CR102"]
    (inventory.parent / "password").chmod(0o600)
    assert codes(make(inventory, password_file=inventory.parent / "password")) == ["CR102"]
    (inventory.parent / "password").write_text("another\n")
    plan = make(inventory, password_file=inventory.parent / "password")
    assert codes(plan) == ["CS101", "CR102"]
    assert "does not open with this vault password" in plan.findings[0].what


def test_a_placeholder_is_found_and_no_secret_is_shown(inventory: Path) -> None:
    store = Store(inventory, b"only for the test")
    lines = [
        "slurm_dbd_database_password: changeme" if line.startswith("slurm_dbd_database") else line
        for line in store.read().splitlines()
    ]
    store._write("\n".join([*lines, "my_word: Xyzzy-plugh-42"]) + "\n")
    site(inventory, 'base_timezone: "{{ my_word }}!"\n')
    plan = make(inventory)
    assert codes(plan) == ["CS103", "CR103"]
    assert "`slurm_dbd_database_password` is a placeholder" in plan.findings[0].what
    assert "Xyzzy" not in "\n".join(shown_findings(plan.findings)) + json.dumps(plan.as_data())
    assert "********" in plan.findings[1].what


def test_values_marked_as_vault_are_opened(inventory: Path) -> None:
    from ansible.parsing.vault import VaultLib, VaultSecret

    secret = VaultSecret(b"only for the test")
    sealed = VaultLib([("default", secret)]).encrypt("Atlantis!", secret).decode()
    site(inventory, "base_timezone: !vault |\n" + "".join(f"  {line}\n" for line in sealed.splitlines()))
    assert codes(make(inventory)) == ["CR103"]


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    cli.register(made)
    return made


def test_the_command(app: typer.Typer, inventory: Path) -> None:
    done = CliRunner().invoke(app, ["plan", "-i", str(inventory)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "slurm_worker" in done.output
    assert f"coldiron apply -i {inventory}" in done.output
    site(inventory, "time_control_clock: perhaps\n")
    done = CliRunner().invoke(app, ["plan", "-i", str(inventory)])
    assert done.exit_code == ExitCode.REFUSED
    assert done.output.startswith("refused: 1 to mend\n")
    assert "coldiron explain CR102 " in done.output
    done = CliRunner().invoke(app, ["plan", "-i", str(inventory), "--json", "-l", "gpu01"])
    assert done.exit_code == 3
    data = json.loads(done.output)
    assert data["nodes"] == ["gpu01"]
    assert data["findings"][0]["code"] == "CR102"
    assert data["findings"][0]["severity"] == "refuse"
    assert {"stage": "base", "role": "time", "nodes": ["gpu01"]} in data["steps"]


def test_a_warning_refuses_nothing() -> None:
    assert not Plan(Path("x"), findings=[Finding("CR103", Severity.WARN, "f", "x")]).refused
