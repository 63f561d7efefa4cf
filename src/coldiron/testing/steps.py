"""The steps of a molecule scenario on the shared nodes; molecule/default's playbooks call them.

    python -m coldiron.testing.steps up
    python -m coldiron.testing.steps start --scenario time
    python -m coldiron.testing.steps prove --scenario time --inventory DIR
    python -m coldiron.testing.steps down

A scenario starts on bare nodes when its role is of the first stages, which need nothing of others; the
scheduler's roles start from a snapshot of the converged cluster. ``start`` makes that snapshot when it does
not stand yet for the roles as they are now.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import find, load
from coldiron.rack import elastic
from coldiron.rack.host import Host
from coldiron.rack.layout import Layout
from coldiron.testing import sabotage
from coldiron.testing.site import Site, load_site
from coldiron.testing.stages import COLLECTION, find_collection

INVENTORY = Path("molecule", "default", "inventory")
BARE_STAGES = ("stage_provision", "stage_base", "stage_storage")
WHOLE_SITE = "site"
# Roles whose scenarios install Elasticsearch, which the nodes of the others are spared.
WITH_ELASTIC = ("elasticsearch", "log_shipper", "kibana")
SNAPSHOT = "converged-"
# What the converged nodes are made from.
SOURCES = ("roles/*/defaults", "roles/*/tasks", "roles/*/templates", "roles/*/vars", "playbooks", "plugins")
STEP_SECONDS = 900
CHANGED = re.compile(r"^(\S+)\s*: ok=\d+\s+changed=([1-9]\d*)", re.MULTILINE)


def command(name: str) -> str:
    """Return the path of a command that lies beside this Python."""
    return str(Path(sys.executable).with_name(name))


def environment() -> dict[str, str]:
    """Return the environment for Ansible: plain output, and the commands beside this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    plain = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "PATH": path}
    # Molecule's own word for colours would win over the one above.
    return {key: value for key, value in os.environ.items() if key != "ANSIBLE_FORCE_COLOR"} | plain


def call(words: Sequence[str], what: str) -> str:
    """Run a command and return its output; a failure is a ColdironError with the output's end."""
    try:
        finished = subprocess.run(
            list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env=environment(), timeout=STEP_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ColdironError(f"{what}: no end within {STEP_SECONDS} s", ExitCode.HOSTS_FAILED) from error
    if finished.returncode != 0:
        end = finished.stdout[-4000:]
        raise ColdironError(f"{what} failed (rc {finished.returncode}):\n{end}", ExitCode.HOSTS_FAILED)
    return finished.stdout


def rack(verb: str, inventory: Path, *words: str) -> str:
    """Call ``coldiron rack VERB`` for an inventory."""
    return call([command("coldiron"), "rack", verb, "-i", str(inventory), *words], f"coldiron rack {verb}")


def playbook(sources: Sequence[Path], *words: str) -> str:
    """Run the stages on these inventory sources and return the output."""
    inventories = [word for source in sources for word in ("-i", str(source))]
    password = sources[0] / ".vault-password"
    vault = ["--vault-password-file", str(password)] if password.is_file() else []
    return call(
        [command("ansible-playbook"), f"{COLLECTION}.site", *inventories, *vault, *words], "the stages' run"
    )


def up(inventory: Path) -> None:
    """Bring the nodes up and make their secrets; what stands already is left alone."""
    call([command("coldiron"), "secrets", "init", "-i", str(inventory)], "coldiron secrets init")
    rack("up", inventory)


def starts_bare(site: Site, role: str) -> bool:
    """Tell whether a role's scenario starts on bare nodes: its stage needs nothing of the others."""
    return any(
        play.playbook.stem in BARE_STAGES and any(use.role == role for use in play.roles)
        for play in site.plays
    )


def digest(root: Path, inventory: Path) -> str:
    """Return a short digest of everything that converged nodes are made from."""
    found = hashlib.sha256()
    folders = [folder for pattern in SOURCES for folder in sorted(root.glob(pattern))]
    for folder in [*folders, inventory]:
        for path in sorted(folder.rglob("*")):
            hidden = any(part.startswith((".", "__pycache__")) for part in path.relative_to(folder).parts)
            if path.is_file() and not hidden:
                found.update(path.relative_to(root if root in path.parents else folder).as_posix().encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:12]


def snapshots(inventory: Path) -> list[str]:
    """Return the names of the rack's snapshots."""
    listed = json.loads(rack("snapshot", inventory, "--json") or "[]")
    return [str(item["name"] if isinstance(item, dict) else item) for item in listed]


def start(inventory: Path, scenario: str) -> str:
    """Put the nodes to where the scenario starts; returns the name of that place."""
    # Molecule believes its own note that the nodes are there; they may have been taken away since.
    up(inventory)
    if scenario in WITH_ELASTIC:
        elastic.make(Host(), Layout(load(find(inventory)).name, inventory.resolve()), print)
    site = load_site((inventory,))
    if scenario == WHOLE_SITE or starts_bare(site, scenario):
        rack("reset", inventory)
        return "bare"
    name = SNAPSHOT + digest(find_collection(), inventory)
    known = snapshots(inventory)
    if name not in known:
        rack("reset", inventory)
        playbook([inventory])
        rack("snapshot", inventory, name)
        for old in known:
            if old.startswith(SNAPSHOT):
                rack("snapshot", inventory, old, "--remove")
    else:
        rack("reset", inventory, "--to", name)
    return name


def prove(sources: Sequence[Path], scenario: str) -> int:
    """See --check silent on the converged nodes, then every break of the role seen and healed."""
    tags = [] if scenario == WHOLE_SITE else ["--tags", scenario]
    begun = time.monotonic()
    loud = CHANGED.findall(playbook(sources, "--check", *tags))
    if loud:
        hosts = ", ".join(f"{host} ({count})" for host, count in loud)
        raise ColdironError(f"--check on converged nodes announces changes: {hosts}", ExitCode.HOSTS_FAILED)
    print(f"--check is silent ({time.monotonic() - begun:.0f} s)")
    if scenario == WHOLE_SITE:
        return 0
    inventories = [word for source in sources for word in ("--inventory", str(source))]
    return sabotage.run([*inventories, "--role", scenario])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the command line's meaning."""
    first = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m coldiron.testing.steps", description=first)
    parser.add_argument("step", choices=["up", "start", "prove", "down"])
    parser.add_argument("--scenario", default=WHOLE_SITE, help="the scenario's name: a role, or site")
    parser.add_argument(
        "--inventory",
        action="append",
        type=Path,
        default=[],
        help="the scenario's variables, beside the nodes'",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Entry point: a ColdironError is told and is its exit code."""
    options = parse(arguments)
    inventory = find_collection() / INVENTORY
    try:
        if options.step == "up":
            up(inventory)
        elif options.step == "start":
            print(f"nodes are {start(inventory, options.scenario)}")
        elif options.step == "prove":
            return prove([inventory, *options.inventory], options.scenario)
        else:
            rack("down", inventory)
    except ColdironError as error:
        print(f"coldiron: {error.message}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
