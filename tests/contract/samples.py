"""A role and a checkout that keep every rule, to plant breaches in."""

from __future__ import annotations

from pathlib import Path

from coldiron import docs_gen

ROLE_FILES = {
    "README.md": "# lamp\n\n<!-- options -->\n<!-- /options -->\n",
    "defaults/main.yml": """\
---
# How bright it is.
lamp_level: 3
lamp_wait_seconds: 10
lamp_users: []
lamp_password: "{{ vault_lamp_password }}"
""",
    "meta/argument_specs.yml": """\
---
argument_specs:
  main:
    short_description: A lamp
    options:
      lamp_level:
        description: How bright.
        type: int
        default: 3
      lamp_wait_seconds:
        description: How long to wait.
        type: int
        default: 10
      lamp_users:
        description: Who may switch it.
        type: list
        elements: dict
        default: []
        options:
          name:
            description: Who.
            type: str
            required: true
      lamp_password:
        description: What opens it.
        type: str
        no_log: true
      lamp_place:
        description: Where it stands.
        type: str
        required: true
""",
    "meta/main.yml": "---\ngalaxy_info:\n  platforms: [{name: Debian}]\ndependencies: []\n",
    "vars/main.yml": "---\n__lamp_os: \"{{ lookup('coldiron.cluster.os_data', 'lamp') }}\"\n",
    "vars/Debian.yml": "---\n__lamp_packages: [lamp]\n",
    "tasks/main.yml": """\
---
- name: Lamp | Look
  ansible.builtin.import_tasks: preflight.yml

- name: Lamp | Install
  ansible.builtin.import_tasks: install.yml

- name: Lamp | Configure
  ansible.builtin.import_tasks: configure.yml
""",
    "tasks/preflight.yml": """\
---
- name: Lamp | Refuse the dark
  ansible.builtin.assert:
    that: lamp_level > 0
""",
    "tasks/install.yml": """\
---
- name: Lamp | Ensure the lamp is there
  coldiron.cluster.converge:
    packages: "{{ __lamp_os.packages }}"
""",
    "tasks/configure.yml": """\
---
- name: Lamp | Ensure it shines
  coldiron.cluster.converge:
    files:
      - {dest: /etc/lamp/lamp.conf, src: etc/lamp/lamp.conf.j2, secret: true}
    units:
      - {name: lamp.service, restart_on: [/etc/lamp/lamp.conf]}

# Its switch knows no module.
- name: Lamp | Read the switch
  ansible.builtin.command: lampctl state
  register: __lamp_state
  changed_when: false
""",
    "templates/etc/lamp/lamp.conf.j2": "level={{ lamp_level }}\npassword={{ lamp_password }}\n",
    "tests/test_lamp.py": "def test_shines(host):\n    assert host.service('lamp').is_running\n",
    "tests/sabotage.yml": """\
- name: The lamp is off
  hosts: cluster
  break: systemctl stop lamp
  red: test_shines
""",
}

TREE_FILES = {
    "README.md": "# House\n\nSee [the lamp](docs/lamp.md#how-bright) and [elsewhere](https://example.invalid/).\n",
    "docs/lamp.md": "# Lamp\n\n## How bright?\n\n```text\n[not a link](nowhere.md)\n```\n",
    "galaxy.yml": 'dependencies:\n  community.general: ">=1.2.3"\n',
    "collections/requirements.yml": 'collections:\n  - name: community.general\n    version: ">=1.2.3"\n',
    "requirements.lock": "pkg==1.0 ; x > '3' \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n",
    "playbooks/site.yml": "- name: Base\n  ansible.builtin.import_playbook: base.yml\n",
    "playbooks/base.yml": """\
- name: Base
  hosts: cluster
  tasks:
    - name: Base | Lamp
      ansible.builtin.import_role:
        name: coldiron.cluster.lamp
""",
    "playbooks/group_vars/all/topology.yml": "topology_nodes: \"{{ groups['cluster'] }}\"\n",
    "molecule/lamp/molecule.yml": "---\n{}\n",
    "src/coldiron/run/engine.py": "import ansible_runner\n",
    "src/coldiron/plan.py": "import json\n",
}


def write(path: Path, text: str) -> Path:
    """Write a file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def good_role(folder: Path) -> Path:
    """Return a role that keeps every rule."""
    role = folder / "roles" / "lamp"
    for name, text in ROLE_FILES.items():
        write(role / name, text)
    docs_gen.run(folder, check=False)
    return role


def good_tree(folder: Path) -> Path:
    """Return a checkout, with that role, that keeps every rule."""
    good_role(folder)
    for name, text in TREE_FILES.items():
        write(folder / name, text)
    return folder
