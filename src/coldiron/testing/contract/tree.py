"""Rules on the whole checkout."""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from coldiron.testing.contract.reading import (
    CHECK_MODE,
    GROUPS,
    Finding,
    Findings,
    line_of,
    mapping,
    read,
    without_comments,
)
from coldiron.testing.stages import read_plays, roles_in_order

# Public package registries and mirrors, by the beginning of their names' SHA-256, so that not even this file names one.
REGISTRIES = frozenset(
    (
        *("a4aa2ac280bb8d1a", "8b5bb5eb9d758455", "e680c440a2e92079", "1ba4e37997a2e986"),
        *("26b795f2a123f2a2", "c2b35955576ffa71", "a0f007d863a0ed19", "e514b0d3b0562f54"),
        *("57630988f95417c0", "0dc11026ac75c015", "789e46d79514e280", "00a7dc5a0cc38858"),
        *("317d2d52829b7812", "43c04ed1dabe979b"),
    )
)
HOST_NAME = re.compile(r"(?<![\w.-])[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:org|com|io|net)(?![\w-])")

MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|root/\.pyenv|home/(?!USER\b|\{)[a-z]\w*/(?!\.)src)/")

UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")

ALWAYS_TRUE = re.compile(r"^\s*that:\s*(\[\s*)?true\b", re.IGNORECASE | re.MULTILINE)

SKIPPED = re.compile(
    r"pytest\.(mark\.)?(skip|skipif|xfail|importorskip)\b|unittest\.skip|^\s*assert True\b", re.MULTILINE
)

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")

NO_PRODUCT = ("LICENSE", "requirements.lock", "tests/contract/", "src/coldiron/testing/contract/")


def product_files(root: Path) -> list[Path]:
    """Return the checkout's files: what git tracks or would, or all of them where there is no git."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"], capture_output=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        names = [name.decode() for name in listed.stdout.split(b"\0") if name]
        return sorted(path for path in {root / name for name in names} if path.is_file() or path.is_symlink())
    return sorted(path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)


def _texts(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the product's text files; licences, locks and the rules themselves aside."""
    for path in product_files(root):
        if path.relative_to(root).as_posix().startswith(NO_PRODUCT) or path.is_symlink():
            continue
        try:
            yield path, read(path)
        except UnicodeDecodeError:
            continue


def no_foreign_names(root: Path) -> Findings:
    """No file names a package registry or a path of the machine it was written on."""
    for path, text in _texts(root):
        found = [
            (match, "sources are variables: take the mirror from the machine's own configuration")
            for match in HOST_NAME.finditer(text)
            if _is_registry(match[0])
        ]
        found += [(match, "a path of one machine") for match in MACHINE_PATHS.finditer(text)]
        for match, advice in found:
            yield Finding(path, line_of(text, match.start()), "foreign", f"{match[0]}: {advice}")


def _is_registry(host: str) -> bool:
    """Whether ``host``, or a domain that it lies in, is a known registry."""
    labels = host.split(".")
    domains = (".".join(labels[at:]) for at in range(len(labels) - 1))
    return any(hashlib.sha256(domain.encode()).hexdigest()[:16] in REGISTRIES for domain in domains)


def nothing_is_unfinished(root: Path) -> Findings:
    """No unfinished work, no assertion that cannot fail, no test that is skipped."""
    for path, text in _texts(root):
        patterns = [(UNFINISHED, "finish it, or write an issue")]
        if path.suffix in (".yml", ".yaml"):
            patterns.append((ALWAYS_TRUE, "an assertion that cannot fail proves nothing"))
        if path.name.startswith(("test_", "conftest")) and path.suffix == ".py":
            patterns.append((SKIPPED, "a test either runs or is not there"))
        for pattern, advice in patterns:
            for match in pattern.finditer(text):
                yield Finding(
                    path, line_of(text, match.start()), "unfinished", f"{match[0].strip()}: {advice}"
                )


def no_symlinks(root: Path) -> Findings:
    """No symbolic link lies in git."""
    for path in product_files(root):
        if path.is_symlink():
            yield Finding(path, 1, "symlink", "a symbolic link: a real file or folder is wanted")


def lock_is_closed(root: Path) -> Findings:
    """requirements.lock names no index and has a hash for every package."""
    path = root / "requirements.lock"
    text = read(path) if path.is_file() else ""
    if not text:
        yield Finding(path, 1, "lock", "there is no lock")
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*(-i\b|--(extra-)?index-url|--find-links|--trusted-host)", line) or "://" in line:
            yield Finding(path, number, "lock", f"{line.strip()}: the lock names no place")
    for match in re.finditer(r"^([A-Za-z0-9_.-]+)==.*(?:\n[ \t]+.*)*", text, re.MULTILINE):
        if "--hash=sha256:" not in match[0]:
            yield Finding(path, line_of(text, match.start()), "lock", f"{match[1]} has no hash")


def collections_are_named(root: Path) -> Findings:
    """Outside collections: used ones are in requirements.yml with a version, and galaxy.yml says the same."""
    path = root / "collections" / "requirements.yml"
    wanted = {item.get("name"): item.get("version") for item in mapping(path).get("collections") or []}
    for name, version in wanted.items():
        if not version:
            yield Finding(path, 1, "collections", f"{name} has no version")
    galaxy = mapping(root / "galaxy.yml").get("dependencies") or {}
    if galaxy != wanted:
        yield Finding(
            root / "galaxy.yml", 1, "collections", "dependencies and collections/requirements.yml differ"
        )
    used = re.compile(
        r"(?<!/)\b((?:ansible|community|containers|kubernetes)\.(?!builtin\b)[a-z_]+)\.[a-z_]+\b"
    )
    for folder in ("roles", "playbooks"):
        for file in sorted((root / folder).rglob("*.yml")):
            text = without_comments(read(file))
            for match in used.finditer(text):
                if match[1] not in wanted and match[1] not in ("ansible.legacy",):
                    yield Finding(
                        file, line_of(text, match.start()), "collections", f"{match[1]} is not required"
                    )


def collections_are_carried(root: Path, installed: Path) -> Findings:
    """Each collection's lower bound is the version that the locked ``ansible`` distribution carries."""
    path = root / "collections" / "requirements.yml"
    for item in mapping(path).get("collections") or []:
        manifest = installed.joinpath(*str(item["name"]).split("."), "MANIFEST.json")
        if not manifest.is_file():
            yield Finding(
                path, 1, "collections", f"{item['name']} is not carried by the ansible distribution"
            )
            continue
        version = re.search(r'"version":\s*"([^"]+)"', read(manifest))
        if version is None or str(item.get("version", "")).lstrip(">=") != version[1]:
            carried = version[1] if version else "nothing"
            yield Finding(
                path, 1, "collections", f"{item['name']}: {item.get('version')}, carried is {carried}"
            )


def links_resolve(root: Path) -> Findings:
    """A relative link in a document leads to a file, and its anchor to a heading."""
    for path in product_files(root):
        if path.suffix != ".md":
            continue
        text = re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), read(path), flags=re.DOTALL)
        for match in LINK.finditer(text):
            target, _, anchor = match[1].partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            file = (path.parent / target) if target else path
            if not file.exists():
                yield Finding(path, line_of(text, match.start()), "link", f"{match[1]} leads nowhere")
            elif anchor and file.suffix == ".md" and anchor not in anchors(read(file)):
                yield Finding(
                    path, line_of(text, match.start()), "link", f"{match[1]}: there is no such heading"
                )


def anchors(text: str) -> set[str]:
    """Return the anchors of a Markdown text's headings, as the common forges make them."""
    found = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", text, re.MULTILINE):
        words = re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def groups_are_read_once(root: Path) -> Findings:
    """Only playbooks/group_vars/all/topology.yml reads groups and other hosts' variables."""
    allowed = root / "playbooks" / "group_vars" / "all" / "topology.yml"
    for path in sorted((root / "playbooks").rglob("*.yml")):
        text = without_comments(read(path))
        for match in GROUPS.finditer(text) if path != allowed else ():
            yield Finding(
                path, line_of(text, match.start()), "groups", f"{match[0]}: only topology.yml reads groups"
            )
        for match in CHECK_MODE.finditer(text):
            yield Finding(
                path, line_of(text, match.start()), "check", "ansible_check_mode belongs in plugins alone"
            )


def stages_use_every_role(root: Path) -> Findings:
    """Every role is in a stage, by its full name, and every role that a stage names exists."""
    site = root / "playbooks" / "site.yml"
    used = set(roles_in_order(read_plays(site))) if site.is_file() else set()
    there = {path.name for path in (root / "roles").glob("*") if path.is_dir()}
    for name in sorted(there - used):
        yield Finding(root / "roles" / name, 1, "stage", "no stage playbook uses this role")
    for name in sorted(used - there):
        yield Finding(
            site, 1, "stage", f"a stage uses role {name}, which does not exist (or not by its full name)"
        )


# What these roles do happens to machines that have no system yet: no container stands in for them.
PROVEN_ON_MACHINES = {"deploy": Path("tests/metal/test_provision.py")}


def roles_have_scenarios(root: Path) -> Findings:
    """Every role has a molecule scenario of its own name, or a proof on machines."""
    for path in sorted((root / "roles").glob("*")):
        scenario = root / "molecule" / path.name / "molecule.yml"
        if path.name in PROVEN_ON_MACHINES:
            scenario = root / PROVEN_ON_MACHINES[path.name]
        if path.is_dir() and not scenario.is_file():
            yield Finding(scenario, 1, "scenario", f"role {path.name} has no molecule scenario")


def only_run_knows_the_runner(root: Path) -> Findings:
    """ansible_runner is imported by the run package alone."""
    package = root / "src" / "coldiron"
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] == "run":
            continue
        for node in ast.walk(ast.parse(read(path), str(path))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "ansible_runner" for name in names):
                line = getattr(node, "lineno", 1)
                yield Finding(path, line, "runner", "only src/coldiron/run imports ansible_runner")


TREE_RULES: tuple[Callable[[Path], Findings], ...] = (
    no_foreign_names,
    nothing_is_unfinished,
    no_symlinks,
    lock_is_closed,
    collections_are_named,
    links_resolve,
    groups_are_read_once,
    stages_use_every_role,
    roles_have_scenarios,
    only_run_knows_the_runner,
)
