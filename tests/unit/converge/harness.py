"""A node that is a temporary directory and a table of answers: converge runs on it as an ordinary process."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROOT = Path(__file__).parents[3]


def load(kind: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"coldiron_test_{kind}_{name}", ROOT / "plugins" / kind / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


module = load("modules", "converge")
action = load("action", "converge")
declaration = load("module_utils", "declaration")
ME = {"owner": str(os.getuid()), "group": str(os.getgid())}


@dataclass
class Unit:
    """What systemd says of a unit, and how often it was told to do something."""

    active: str = "inactive"
    sub: str = "dead"
    file: str = "disabled"
    reloads: str = "yes"
    stale: str = "no"
    fails: bool = False
    load: str = "loaded"


@dataclass
class System:
    """The commands that converge knows, answered from memory."""

    root: Path
    packages: dict[str, tuple[str, str]] = field(default_factory=dict)  # name: (status, version)
    provides: dict[str, str] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    apt: list[tuple[int, str]] = field(default_factory=list)  # what the next apt-get installs answer
    calls: list[list[str]] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    other: Callable[[list[str]], Any] | None = None

    def __call__(self, argv: list[str], data: str = "", errors: bool = True) -> Any:
        self.calls.append(argv)
        self.inputs.append(data)
        if self.other is not None and (answer := self.other(argv)) is not None:
            return module.Done(*answer)
        handler = getattr(self, "do_" + argv[0].replace("-", "_"), None)
        return module.Done(*(handler(argv) if handler else (0, "")))

    def said(self, *start: str) -> list[list[str]]:
        return [argv for argv in self.calls if argv[: len(start)] == list(start)]

    def do_dpkg_query(self, argv: list[str]) -> tuple[int, str]:
        asked = argv[argv.index("--") + 1 :] if "--" in argv else list(self.packages)
        rows = [
            f"{self.packages[name][0]}\t{name}\tamd64\t{self.packages[name][1]}\t{self.provides.get(name, '')}\n"
            for name in asked
            if name in self.packages
        ]
        return (0 if len(rows) == len(asked) else 1), "".join(rows)

    def do_apt_get(self, argv: list[str]) -> tuple[int, str]:
        if "install" not in argv:
            return 0, ""
        rc, out = self.apt.pop(0) if self.apt else (0, "")
        for word in argv[argv.index("install") + 1 :] if rc == 0 else ():
            name, _, version = word.partition("=")
            if name.endswith("-"):
                self.packages.pop(name[:-1], None)
            else:
                self.packages[name] = ("ii ", version.replace("*", "0") or "1.0")
        return rc, out

    def do_apt_mark(self, argv: list[str]) -> tuple[int, str]:
        for name in argv[2:]:
            self.packages[name] = ("hi " if argv[1] == "hold" else "ii ", self.packages[name][1])
        return 0, ""

    def do_systemctl(self, argv: list[str]) -> tuple[int, str]:
        if argv[1] == "show":
            names = argv[argv.index("--") + 1 :]
            return 0, "\n\n".join(
                self.properties(self.units.get(name, Unit(load="not-found", file=""))) for name in names
            )
        if argv[1] in ("daemon-reload", "reset-failed"):
            return 0, ""
        unit = self.units.setdefault(argv[2], Unit())
        if argv[1] == "is-enabled":
            return 0, unit.file
        if argv[1] in ("start", "restart"):
            if unit.fails:
                unit.active, unit.sub = "failed", "failed"
                return 1, f"Job for {argv[2]} failed."
            unit.active, unit.sub = "active", "running"
        elif argv[1] == "stop":
            unit.active, unit.sub = "inactive", "dead"
        elif argv[1] in ("enable", "disable", "mask", "unmask"):
            unit.file = {"enable": "enabled", "mask": "masked"}.get(argv[1], "disabled")
        return 0, ""

    @staticmethod
    def properties(unit: Unit) -> str:
        return (
            f"LoadState={unit.load}\nActiveState={unit.active}\nSubState={unit.sub}\nUnitFileState={unit.file}\n"
            f"NeedDaemonReload={unit.stale}\nCanReload={unit.reloads}"
        )


class Action(action.ActionModule):  # type: ignore[misc, name-defined]
    """The action plugin, its last step handed to a function instead of ssh."""

    send: Callable[[str], dict[str, Any]]

    def _execute_module(
        self, module_name: Any = None, module_args: Any = None, **_kwargs: Any
    ) -> dict[str, Any]:
        assert list(module_args) == ["payload"]
        return self.send(json.dumps(module_args))


def make_action(
    args: dict[str, Any], folder: Path, variables: dict[str, Any] | None = None, **task: Any
) -> tuple[Action, dict[str, Any]]:
    """The action for one task of a role in folder; returns it and the variables to run it with."""
    loader = DataLoader()
    loader.set_basedir(str(folder))
    variables = {"ansible_search_path": [str(folder)], **(variables or {})}
    described = {
        "args": args,
        "check_mode": False,
        "diff": False,
        "no_log": False,
        "async_val": 0,
        "action": "coldiron.cluster.converge",
        "_role": None,
        "get_path": lambda: "roles/demo/tasks/main.yml:7",
        "get_search_path": lambda: [str(folder)],
    }
    made = Action(
        task=SimpleNamespace(**{**described, **task}),
        connection=SimpleNamespace(_shell=SimpleNamespace(tmpdir="/nowhere")),
        play_context=None,
        loader=loader,
        templar=Templar(loader=loader, variables=variables),
    )
    return made, variables


class Node:
    """A directory that holds just enough of a system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in (
            "etc",
            "var/lib/dpkg/updates",
            "var/lib/apt/lists",
            "usr/sbin",
            "usr/bin",
            "run/systemd/system",
        ):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "usr/bin/dpkg-query").touch()
        (root / "var/lib/apt/lists/mirror_Packages").touch()
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
        (root / "etc/group").write_text("root:x:0:\n")
        (root / "etc/shadow").write_text("root:*:1::::::\n")
        self.system = System(root)

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def record(self, unit: str) -> dict[str, str]:
        known: dict[str, str] = json.loads(self.read(f"/var/lib/coldiron/converge/{unit}.json"))
        return known

    def converge(self, check: bool = False, diff: bool = False, **declaration: Any) -> dict[str, Any]:
        """One call; paths belong to whoever runs the test unless they say otherwise."""
        for section in ("files", "directories"):
            declaration[section] = [{**ME, **item} for item in declaration.get(section, [])]
        made, variables = make_action(declaration, self.root, check_mode=check, diff=diff)
        made.send = self.send
        result: dict[str, Any] = made.run(None, variables)
        return result

    def send(self, arguments: str) -> dict[str, Any]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            module.main(arguments, str(self.root) + "/", self.system)
        result: dict[str, Any] = json.loads(said.getvalue())
        return result

    def tree(self) -> dict[str, tuple[int, str]]:
        """Every path with its mode and contents."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            text = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ""
            found[str(path)] = (path.lstat().st_mode, text)
        return found
