"""Every rule finds the breach that is planted for it, and nothing in what is right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from coldiron.testing.contract import ROLE_RULES, TREE_RULES, check_role, check_tree
from coldiron.testing.contract.tree import collections_are_carried
from tests.contract.samples import good_role, good_tree, write

# Written apart, so that this file keeps the rules itself.
UNFINISHED = "TO" + "DO"
SKIP = "pytest.mark." + "skip"
REGISTRY = "deb.debian" + ".org"
CONFIGURE = "tasks/configure.yml"
SPEC = "meta/argument_specs.yml"


@dataclass(frozen=True)
class Plant:
    """A breach: the rule's function and short name, the file, what is replaced there (nothing: appended)."""

    function: str
    rule: str
    file: str
    old: str
    new: str | None

    def __str__(self) -> str:
        return f"{self.function}-{self.file}"


def task(body: str, comment: str = "# Why.\n", name: str = "Lamp | Do") -> str:
    """Return a task with this body, as text."""
    return f"{comment}- name: {name}\n  {body}\n"


ROLE_PLANTS = [
    Plant("anatomy", "anatomy", "README.md", "", None),
    Plant("anatomy", "anatomy", "tests/test_lamp.py", "", None),
    Plant("anatomy", "anatomy", "library/x.py", "", "pass\n"),
    Plant("defaults_match_spec", "spec", "defaults/main.yml", "lamp_level: 3\n", ""),
    Plant("defaults_match_spec", "spec", "defaults/main.yml", "", "lamp_color: red\n"),
    Plant("defaults_match_spec", "spec", "defaults/main.yml", "lamp_level: 3", "lamp_level: 4"),
    Plant("defaults_match_spec", "spec", "defaults/main.yml", "", "lamp_place: here\n"),
    Plant("spec_is_told", "spec", SPEC, "        description: How bright.\n", ""),
    Plant("spec_is_told", "spec", SPEC, "            description: Who.\n", ""),
    Plant("quantities_have_units", "unit", SPEC, "lamp_wait_seconds", "lamp_wait"),
    Plant("secrets_are_marked", "secret", SPEC, "        no_log: true\n", ""),
    Plant("secrets_are_marked", "secret", SPEC, "          name:\n", "          access_token:\n"),
    Plant("secrets_are_marked", "secret", "defaults/main.yml", '"{{ vault_lamp_password }}"', "changeme"),
    Plant("secrets_are_marked", "secret", CONFIGURE, ", secret: true", ""),
    Plant(
        "secrets_are_marked",
        "secret",
        CONFIGURE,
        "    units:",
        '      - {dest: /etc/lamp/key, content: "{{ lamp_password }}"}\n    units:',
    ),
    Plant("prefixes", "prefix", "defaults/main.yml", "lamp_level", "level"),
    Plant("prefixes", "prefix", "vars/Debian.yml", "__lamp_packages", "lamp_packages"),
    Plant("prefixes", "prefix", CONFIGURE, "register: __lamp_state", "register: state"),
    Plant("prefixes", "prefix", CONFIGURE, "", task("ansible.builtin.set_fact: {lamp_level: 5}")),
    Plant("prefixes", "prefix", CONFIGURE, "", task("vars: {x: 1}\n  ansible.builtin.debug: {msg: x}")),
    Plant("main_is_contents", "contents", "tasks/main.yml", "", task("ansible.builtin.debug: {msg: x}")),
    Plant("task_files_are_short", "length", CONFIGURE, "", "\n" * 75),
    Plant("task_names", "name", CONFIGURE, "Lamp | Read the", "Lamp | read the"),
    Plant("task_names", "name", CONFIGURE, "Lamp | Read the", "Read the"),
    Plant("actions_are_full", "fqcn", CONFIGURE, "ansible.builtin.command", "command"),
    Plant(
        "actions_are_full",
        "fqcn",
        CONFIGURE,
        "",
        task("block:\n    - name: Lamp | In\n      debug: {msg: x}"),
    ),
    Plant("commands_are_guarded", "command", CONFIGURE, "  changed_when: false\n", ""),
    Plant("commands_are_guarded", "command", CONFIGURE, "# Its switch knows no module.\n", ""),
    Plant(
        "errors_are_not_ignored",
        "errors",
        CONFIGURE,
        "",
        task("ansible.builtin.debug: {msg: x}\n  ignore_errors: true"),
    ),
    Plant(
        "errors_are_not_ignored",
        "errors",
        CONFIGURE,
        "",
        task("ansible.builtin.stat: {path: /x}\n  failed_when: false", comment=""),
    ),
    Plant("includes_are_chosen", "include", CONFIGURE, "", task("ansible.builtin.include_tasks: other.yml")),
    Plant(
        "includes_are_chosen",
        "include",
        CONFIGURE,
        "",
        task("ansible.builtin.import_tasks: ../../x/tasks/y.yml"),
    ),
    Plant(
        "restarts_are_wanted",
        "restart",
        CONFIGURE,
        "",
        task("ansible.builtin.systemd_service: {name: lamp, state: restarted}"),
    ),
    Plant(
        "preflight_changes_nothing",
        "preflight",
        "tasks/preflight.yml",
        "",
        task("ansible.builtin.file: {path: /x, state: absent}"),
    ),
    Plant("topology_stays_outside", "groups", CONFIGURE, "lampctl state", "lampctl {{ groups['head'][0] }}"),
    Plant(
        "topology_stays_outside", "groups", "templates/etc/lamp/lamp.conf.j2", "", "{{ hostvars['a'].b }}\n"
    ),
    Plant("topology_stays_outside", "facts", CONFIGURE, "lampctl state", "lampctl {{ ansible_hostname }}"),
    Plant(
        "topology_stays_outside", "check", CONFIGURE, "changed_when: false", "when: not ansible_check_mode"
    ),
    Plant(
        "install_reads_no_hardware",
        "bake",
        "tasks/install.yml",
        "__lamp_os.packages",
        "['lamp-' ~ ansible_facts['kernel']]",
    ),
    Plant(
        "no_ladders",
        "ladder",
        CONFIGURE,
        "changed_when: false",
        "changed_when: false\n  when: ansible_facts['os_family'] == 'Debian'",
    ),
    Plant(
        "expressions_are_short",
        "logic",
        "defaults/main.yml",
        "lamp_users: []",
        'lamp_users: "{{ a | b | c | d | e | f | g }}"',
    ),
    Plant(
        "templates_mirror_targets",
        "template",
        CONFIGURE,
        "dest: /etc/lamp/lamp.conf",
        "dest: /etc/other.conf",
    ),
    Plant("templates_mirror_targets", "template", "templates/etc/unused.j2", "", "x\n"),
    Plant("templates_mirror_targets", "template", "templates/lamp.conf.j2", "", "x\n"),
    Plant(
        "known_files_are_validated",
        "validate",
        CONFIGURE,
        "    units:",
        "      - {dest: /etc/sudoers.d/lamp, content: x}\n    units:",
    ),
    Plant(
        "known_files_are_validated",
        "validate",
        CONFIGURE,
        "    units:",
        '      - {dest: "{{ a }}", src: etc/chrony/chrony.conf.j2, validate: cat %s}\n    units:',
    ),
    Plant("sabotage_is_complete", "sabotage", "tests/sabotage.yml", "red: test_shines", "red: test_glows"),
    Plant("sabotage_is_complete", "sabotage", "tests/sabotage.yml", "  break: systemctl stop lamp\n", ""),
    Plant(
        "sabotage_is_complete",
        "sabotage",
        "tests/sabotage.yml",
        "",
        "- {name: The lamp is off, hosts: cluster, break: rm x, red: test_shines}\n",
    ),
    Plant("meta_is_plain", "meta", "meta/main.yml", "dependencies: []", "dependencies: [other]"),
    Plant("meta_is_plain", "meta", "meta/main.yml", "  platforms: [{name: Debian}]\n", "  author: x\n"),
    Plant("options_are_told", "options", SPEC, "How bright.", "How bright it is."),
    Plant("options_are_told", "options", "README.md", "<!-- options -->", ""),
]

TREE_PLANTS = [
    Plant("no_foreign_names", "foreign", "docs/lamp.md", "", f"deb http://{REGISTRY}/debian trixie main\n"),
    Plant("no_foreign_names", "foreign", "docs/lamp.md", "", "cd /wo" + "rk/main\n"),
    Plant("nothing_is_unfinished", "unfinished", "src/coldiron/plan.py", "", f"# {UNFINISHED}: think\n"),
    Plant(
        "nothing_is_unfinished", "unfinished", "playbooks/check.yml", "", "- assert:\n    that: tr" + "ue\n"
    ),
    Plant("nothing_is_unfinished", "unfinished", "tests/test_x.py", "", f"@{SKIP}\ndef test_x(): pass\n"),
    Plant("nothing_is_unfinished", "unfinished", "tests/conftest.py", "", f"def lamp(): {SKIP}\n"),
    Plant("lock_is_closed", "lock", "requirements.lock", "", "--index-url https://example.invalid/simple\n"),
    Plant("lock_is_closed", "lock", "requirements.lock", "", "bare==2.0\n    # via y\n"),
    Plant("lock_is_closed", "lock", "requirements.lock", "", None),
    Plant(
        "collections_are_named", "collections", "collections/requirements.yml", '    version: ">=1.2.3"\n', ""
    ),
    Plant("collections_are_named", "collections", "galaxy.yml", "1.2.3", "1.2.4"),
    Plant(
        "collections_are_named",
        "collections",
        "roles/lamp/tasks/configure.yml",
        "",
        "- name: Lamp | Tune\n  ansible.posix.sysctl: {name: a, value: 1}\n",
    ),
    Plant("links_resolve", "link", "docs/lamp.md", "", "[gone](gone.md)\n"),
    Plant("links_resolve", "link", "README.md", "#how-bright", "#how-dark"),
    Plant(
        "groups_are_read_once",
        "groups",
        "playbooks/base.yml",
        "hosts: cluster",
        "hosts: \"{{ groups['x'] }}\"",
    ),
    Plant("groups_are_read_once", "check", "playbooks/base.yml", "", "  when: ansible_check_mode\n"),
    Plant("stages_use_every_role", "stage", "playbooks/base.yml", "cluster.lamp", "cluster.lantern"),
    Plant("roles_have_scenarios", "scenario", "molecule/lamp/molecule.yml", "", None),
    Plant(
        "only_run_knows_the_runner", "runner", "src/coldiron/plan.py", "", "from ansible_runner import run\n"
    ),
]


def plant(folder: Path, breach: Plant) -> None:
    """Put the breach into the sample."""
    path = folder / breach.file
    if breach.new is None:
        path.unlink()
    elif breach.old:
        text = path.read_text(encoding="utf-8")
        assert breach.old in text, "the sample has changed: nothing would be planted"
        write(path, text.replace(breach.old, breach.new))
    else:
        write(path, (path.read_text(encoding="utf-8") if path.exists() else "") + breach.new)


def test_what_is_right_is_left_alone(tmp_path: Path) -> None:
    tree = good_tree(tmp_path)
    assert [str(finding) for finding in check_role(tree / "roles" / "lamp")] == []
    assert [str(finding) for finding in check_tree(tree)] == []


@pytest.mark.parametrize("breach", ROLE_PLANTS, ids=str)
def test_a_breach_in_a_role_is_found(tmp_path: Path, breach: Plant) -> None:
    role = good_role(tmp_path)
    plant(role, breach)
    rule = next(rule for rule in ROLE_RULES if rule.__name__ == breach.function)
    found = list(rule(role))
    assert found, "the rule found nothing"
    assert {finding.rule for finding in found} == {breach.rule}
    assert all(finding.line >= 1 and finding.text for finding in found)


@pytest.mark.parametrize("breach", TREE_PLANTS, ids=str)
def test_a_breach_in_the_checkout_is_found(tmp_path: Path, breach: Plant) -> None:
    tree = good_tree(tmp_path)
    plant(tree, breach)
    rule = next(rule for rule in TREE_RULES if rule.__name__ == breach.function)
    assert {finding.rule for finding in rule(tree)} == {breach.rule}


def test_a_symbolic_link_is_found(tmp_path: Path) -> None:
    tree = good_tree(tmp_path)
    (tree / "shortcut").symlink_to("docs")
    (tree / "docs" / "other.md").symlink_to("lamp.md")
    assert "symlink" in {finding.rule for finding in check_tree(tree)}


def test_a_collection_that_is_not_carried_is_found(tmp_path: Path) -> None:
    tree, installed = good_tree(tmp_path / "tree"), tmp_path / "installed"
    assert "not carried" in str(next(collections_are_carried(tree, installed)))
    manifest = write(installed / "community" / "general" / "MANIFEST.json", '{"version": "1.2.3"}')
    assert not list(collections_are_carried(tree, installed))
    write(manifest, '{"version": "2.0.0"}')
    assert "carried is 2.0.0" in str(next(collections_are_carried(tree, installed)))


def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    role = good_role(tmp_path)
    write(role / "meta" / "main.yml", "a: b: c\n")
    assert any(finding.rule == "unreadable" and "main.yml:1" in finding.text for finding in check_role(role))


def test_every_rule_has_a_planted_breach() -> None:
    planted = {breach.function for breach in (*ROLE_PLANTS, *TREE_PLANTS)} | {"no_symlinks"}
    assert planted == {rule.__name__ for rule in (*ROLE_RULES, *TREE_RULES)}
