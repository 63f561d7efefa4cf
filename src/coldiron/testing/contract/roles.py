"""Rules on one role's folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coldiron.docs_gen import table_findings
from coldiron.errors import ColdironError
from coldiron.testing.contract.reading import (
    CHECK_MODE,
    GROUPS,
    Finding,
    Findings,
    Task,
    action_of,
    commented,
    declared_files,
    line_of,
    mapping,
    options_of,
    read,
    role_tasks,
    role_texts,
    tasks_of,
    without_comments,
)
from coldiron.testing.sabotage import read_sabotages
from coldiron.testing.secret import is_secret_name

TASK_FILE_LINES = 75

FILTERS_IN_A_ROW = 6

NEEDED_FILES = (
    "README.md",
    "defaults/main.yml",
    "meta/argument_specs.yml",
    "meta/main.yml",
    "tasks/main.yml",
    "tests/sabotage.yml",
)

READING_MODULES = frozenset(
    f"ansible.builtin.{word}"
    for word in (
        *("assert", "command", "debug", "fail", "find", "getent", "import_tasks"),
        *("include_tasks", "set_fact", "slurp", "stat", "uri"),
    )
) | {"coldiron.cluster.os_facts", "coldiron.cluster.role_options", "coldiron.cluster.slurm_edit"}

COMMANDS = (
    "ansible.builtin.command",
    "ansible.builtin.shell",
    "ansible.builtin.raw",
    "ansible.builtin.script",
)

COMMAND_GUARDS = ("creates", "removes")
TARGET_TOPS = ("etc", "usr", "var", "srv", "opt", "root", "run", "boot")
# A file that is known to have a checker, and what its validate has to call.
CHECKERS = {
    r"sudoers(\.d/|$|\.j2$)": "visudo",
    r"sshd_config": "sshd",
    r"chrony\.conf": "chronyd",
    r"nftables(\.conf|\.d/)|\.nft(\.j2)?$": "nft",
    r"prometheus(/prometheus)?\.yml|prometheus/rules": "promtool",
    r"alertmanager\.yml": "amtool",
}
# Facts that Ansible puts among the variables when it is asked to; they may be another host's, or not there.
INJECTED_FACT = re.compile(
    r"\bansible_(hostname|fqdn|nodename|domain|os_family|distribution\w*|kernel\w*|architecture|machine|processor\w*"
    r"|memtotal_mb|memory_mb|default_ipv[46]|all_ipv[46]_addresses|interfaces|date_time|env|user_id|python_version"
    r"|service_mgr|virtualization_\w+|devices|mounts|lsb)\b"
)
HARDWARE_FACT = re.compile(
    r"ansible_facts\s*(\[\s*['\"]|\.)(kernel|processor|mem|devices|mounts|interfaces|default_ipv)"
)

LADDER = re.compile(r"ansible_facts\s*(\[\s*['\"]|\.)(os_family|distribution)(['\"]\s*\])?\s*(==|!=|\bin\b)")
QUANTITY = re.compile(r"(timeout|interval|delay|wait|period|lifetime|retention|age|memory|headroom)$")


def anatomy(role: Path) -> Findings:
    """A role has every file of the house's anatomy, and no folder that the house does not know."""
    for name in (*NEEDED_FILES, f"tests/test_{role.name}.py"):
        if not (role / name).is_file():
            yield Finding(role / name, 1, "anatomy", "the role lacks this file")
    if not any((role / "tasks" / name).is_file() for name in ("install.yml", "configure.yml")):
        yield Finding(role / "tasks", 1, "anatomy", "tasks/ has neither install.yml nor configure.yml")
    known = {"defaults", "files", "handlers", "meta", "tasks", "templates", "tests", "vars"}
    for path in sorted(role.iterdir()):
        if path.is_dir() and path.name not in known and path.name != "__pycache__":
            yield Finding(
                path, 1, "anatomy", f"a role has no folder of this name: {', '.join(sorted(known))}"
            )
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", role.name):
        yield Finding(role, 1, "anatomy", "a role's name is in lower case, with underscores")


def defaults_match_spec(role: Path) -> Findings:
    """The argument spec and defaults/main.yml name the same options with the same values."""
    spec_path, defaults_path = role / "meta" / "argument_specs.yml", role / "defaults" / "main.yml"
    options, defaults = options_of(role), mapping(defaults_path)
    for name in sorted(set(defaults) - set(options)):
        yield Finding(spec_path, 1, "spec", f"defaults has {name}, the spec does not: describe it")
    for name, option in options.items():
        if option.get("required"):
            if name in defaults:
                yield Finding(defaults_path, 1, "spec", f"{name} is required: it cannot have a default")
        elif name not in defaults:
            yield Finding(
                defaults_path, 1, "spec", f"the spec has {name}, defaults does not: give it a value"
            )
        elif "default" in option and option["default"] != defaults[name]:
            yield Finding(
                spec_path, 1, "spec", f"{name}: the spec's default is not the one in defaults/main.yml"
            )


def spec_is_told(role: Path) -> Findings:
    """Every option, nested ones too, has a description and a type."""
    path = role / "meta" / "argument_specs.yml"

    def visit(options: Mapping[str, Any], prefix: str) -> Findings:
        for name, option in options.items():
            if not isinstance(option, Mapping):
                yield Finding(path, 1, "spec", f"{prefix}{name}: an option is a mapping")
                continue
            for key in ("description", "type"):
                if not option.get(key):
                    yield Finding(path, 1, "spec", f"{prefix}{name} has no {key}")
            yield from visit(option.get("options") or {}, f"{prefix}{name}.")

    yield from visit(options_of(role), "")


def quantities_have_units(role: Path) -> Findings:
    """A number that measures something says its unit in its name."""
    for name, option in options_of(role).items():
        if option.get("type") in ("int", "float") and QUANTITY.search(name):
            text = f"{name} carries no unit: name it {name}_seconds, {name}_mib …"
            yield Finding(role / "meta" / "argument_specs.yml", 1, "unit", text)


def secrets_are_marked(role: Path) -> Findings:
    """An option that holds a secret is marked no_log and has no default; files that show it are secret."""
    spec_path = role / "meta" / "argument_specs.yml"

    def visit(options: Mapping[str, Any], prefix: str) -> Findings:
        for name, option in options.items():
            if not isinstance(option, Mapping):
                continue
            if (
                is_secret_name(name)
                and option.get("type", "str") in ("str", "raw")
                and not option.get("no_log")
            ):
                yield Finding(
                    spec_path, 1, "secret", f"{prefix}{name} looks like a secret: mark it no_log: true"
                )
            yield from visit(option.get("options") or {}, f"{prefix}{name}.")

    yield from visit(options_of(role), "")
    secret = secret_options(role)
    for name, value in mapping(role / "defaults" / "main.yml").items():
        if name in secret and isinstance(value, str) and value and "{{" not in value:
            yield Finding(
                role / "defaults" / "main.yml", 1, "secret", f"{name} is a secret and has a default value"
            )
    for path, line, item in declared_files(role):
        shown = _shows(role, item, secret)
        if shown and item.get("secret") is not True:
            yield Finding(
                path, line, "secret", f"the file {item.get('dest')} shows {shown}: mark it secret: true"
            )


def secret_options(role: Path) -> set[str]:
    """Return the role's options that are marked no_log, themselves or within."""

    def marked(option: Any) -> bool:
        return isinstance(option, Mapping) and (
            option.get("no_log") is True
            or any(marked(inner) for inner in (option.get("options") or {}).values())
        )

    return {name for name, option in options_of(role).items() if marked(option)}


def _shows(role: Path, item: Mapping[str, Any], secret: set[str]) -> str:
    """Return the secret option that a declared file's content or template uses, or nothing."""
    text = str(item.get("content", ""))
    template = role / "templates" / str(item.get("src", ""))
    if item.get("src") and template.is_file():
        text += without_comments(read(template))
    return next((name for name in sorted(secret) if re.search(rf"\b{name}\b", text)), "")


def prefixes(role: Path) -> Findings:
    """Options begin with the role's name, constants, registers and facts with ``__`` and the role's name."""
    for name in mapping(role / "defaults" / "main.yml"):
        if not name.startswith(f"{role.name}_"):
            yield Finding(
                role / "defaults" / "main.yml", 1, "prefix", f"{name}: an option begins with {role.name}_"
            )
    inner = f"__{role.name}_"
    for path in sorted((role / "vars").glob("*.yml")):
        for name in mapping(path):
            if not name.startswith(inner):
                yield Finding(path, 1, "prefix", f"{name}: a constant begins with {inner}")
    for task in role_tasks(role):
        names = [task.words["register"]] if "register" in task.words else []
        if action_of(task) == "ansible.builtin.set_fact":
            names += [name for name in task.words["ansible.builtin.set_fact"] if name != "cacheable"]
        names += list(task.words.get("vars") or {})
        loop_var = (task.words.get("loop_control") or {}).get("loop_var")
        names += [loop_var] if loop_var else []
        for name in names:
            if not str(name).startswith(inner):
                text = f"{name}: what a task sets begins with {inner} (an input is never set)"
                yield Finding(task.path, task.first, "prefix", text)


def main_is_contents(role: Path) -> Findings:
    """tasks/main.yml is a table of contents: static imports and nothing else."""
    path = role / "tasks" / "main.yml"
    for task in tasks_of(path) if path.is_file() else ():
        if action_of(task) != "ansible.builtin.import_tasks":
            yield Finding(
                path, task.first, "contents", "tasks/main.yml holds ansible.builtin.import_tasks alone"
            )


def task_files_are_short(role: Path) -> Findings:
    """A task file has at most about 75 lines."""
    for path in sorted((role / "tasks").rglob("*.yml")):
        lines = len(read(path).splitlines())
        if lines > TASK_FILE_LINES:
            yield Finding(path, lines, "length", f"{lines} lines: a task file has at most {TASK_FILE_LINES}")


def task_names(role: Path) -> Findings:
    """A task is named ``Role | Outcome``."""
    spoken = role.name.replace("_", " ")
    for task in role_tasks(role):
        name = str(task.words.get("name", ""))
        head, _, outcome = name.partition(" | ")
        if head.lower() != spoken or not head[:1].isupper() or not outcome[:1].isupper():
            wanted = f"{spoken.capitalize()} | …, the outcome with a capital"
            yield Finding(task.path, task.first, "name", f"name the task {wanted}: {name!r}")


def actions_are_full(role: Path) -> Findings:
    """Every module is called by its full name."""
    for task in role_tasks(role):
        action = action_of(task)
        if action and action.count(".") < 2:
            yield Finding(
                task.path, task.first, "fqcn", f"call {action} by its full name, ansible.builtin.{action}"
            )


def commands_are_guarded(role: Path) -> Findings:
    """A command says when it changes something, and a comment says why no module does it."""
    for task in role_tasks(role):
        action = action_of(task)
        if action not in COMMANDS:
            continue
        given = task.words[action]
        arguments = {**(given if isinstance(given, Mapping) else {}), **(task.words.get("args") or {})}
        if "changed_when" not in task.words and not any(word in arguments for word in COMMAND_GUARDS):
            yield Finding(
                task.path, task.first, "command", "a command needs changed_when, creates or removes"
            )
        if not commented(task):
            yield Finding(task.path, task.first, "command", "a comment must say why a command is needed here")


def errors_are_not_ignored(role: Path) -> Findings:
    """An error may be passed over only with its reason in a comment and its result looked at."""
    for task in role_tasks(role):
        ignores = task.words.get("ignore_errors") or task.words.get("failed_when") is False
        if not ignores:
            continue
        if not commented(task):
            yield Finding(
                task.path, task.first, "errors", "a comment must say why the error may be passed over"
            )
        register = task.words.get("register")
        used = register and any(
            str(register) in _text_of(other) for other in role_tasks(role) if other.first != task.first
        )
        if not used:
            yield Finding(
                task.path, task.first, "errors", "no later task looks at the result: register and use it"
            )


def _text_of(task: Task) -> str:
    return "\n".join(read(task.path).splitlines()[task.first - 1 : task.last])


def includes_are_chosen(role: Path) -> Findings:
    """include_* is for what is picked at run time; a fixed file is imported. No file of another role."""
    for task in role_tasks(role):
        action = action_of(task)
        given = task.words.get(action)
        target = str(given.get("file", given.get("name", "")) if isinstance(given, Mapping) else given)
        if action in ("ansible.builtin.include_tasks", "ansible.builtin.include_role") and "{{" not in target:
            yield Finding(task.path, task.first, "include", f"{target} is fixed: import it")
        if action.endswith("_tasks") and ".." in target:
            yield Finding(task.path, task.first, "include", f"{target} is another role's: make it a role")


def restarts_are_wanted(role: Path) -> Findings:
    """No task restarts a daemon on every run: that is restart_on's, or a handler's."""
    for path in sorted((role / "tasks").rglob("*.yml")):
        for task in tasks_of(path):
            given = task.words.get(action_of(task))
            if isinstance(given, Mapping) and given.get("state") in ("restarted", "reloaded"):
                yield Finding(path, task.first, "restart", "use converge's restart_on, or a handler")


def preflight_changes_nothing(role: Path) -> Findings:
    """tasks/preflight.yml looks and refuses; it changes nothing."""
    path = role / "tasks" / "preflight.yml"
    for task in tasks_of(path) if path.is_file() else ():
        action = action_of(task)
        if action in COMMANDS:
            reads = task.words.get("changed_when") is False
        else:
            reads = action in READING_MODULES or action == "" or action.endswith("_info")
        if not reads:
            yield Finding(
                path, task.first, "preflight", f"{action} may change the node: preflight only looks"
            )


def topology_stays_outside(role: Path) -> Findings:
    """A role reads no groups, no other host's variables, no injected facts and no check mode."""
    for path, text in role_texts(role):
        bare = without_comments(text)
        for pattern, rule, advice in (
            (GROUPS, "groups", "roles never read groups or hostvars: take a variable from topology.yml"),
            (INJECTED_FACT, "facts", "read ansible_facts[…] or os_data, never an injected fact"),
            (CHECK_MODE, "check", "ansible_check_mode belongs in plugins alone"),
        ):
            for match in pattern.finditer(bare):
                yield Finding(path, line_of(bare, match.start()), rule, f"{match[0]}: {advice}")


def install_reads_no_hardware(role: Path) -> Findings:
    """What can be baked into an image reads no fact of the hardware or the running kernel."""
    path = role / "tasks" / "install.yml"
    text = without_comments(read(path)) if path.is_file() else ""
    for match in HARDWARE_FACT.finditer(text):
        yield Finding(
            path, line_of(text, match.start()), "bake", f"{match[0]}…: install.yml runs in an image too"
        )


def no_ladders(role: Path) -> Findings:
    """What differs by operating system is data in vars/, not a condition on a task."""
    for path in sorted((role / "tasks").rglob("*.yml")):
        text = without_comments(read(path))
        for match in LADDER.finditer(text):
            yield Finding(
                path, line_of(text, match.start()), "ladder", "put the difference into vars/<Family>.yml"
            )


def expressions_are_short(role: Path) -> Findings:
    """Logic belongs in Python: no expression chains six filters."""
    for path, text in role_texts(role):
        for match in re.finditer(r"\{\{(.*?)\}\}", text, re.DOTALL):
            words = re.sub(r"'[^']*'|\"[^\"]*\"", "", match[1])
            if words.count("|") >= FILTERS_IN_A_ROW and _longest_chain(words) >= FILTERS_IN_A_ROW:
                text_ = f"{FILTERS_IN_A_ROW} filters in a row or more: write a filter plugin with unit tests"
                yield Finding(path, line_of(text, match.start()), "logic", text_)


def _longest_chain(expression: str) -> int:
    """Return how many filters follow one another in the longest chain at one level of brackets."""
    counts, longest = [0], 0
    for sign in expression:
        if sign in "([{":
            counts.append(0)
        elif sign in ")]}" and len(counts) > 1:
            counts.pop()
        elif sign in ",+~:":
            counts[-1] = 0
        elif sign == "|":
            counts[-1] += 1
            longest = max(longest, counts[-1])
    return longest


def templates_mirror_targets(role: Path) -> Findings:
    """A template lies where its target will: templates/etc/x.j2 becomes /etc/x; none lies unused."""
    folder = role / "templates"
    used = "\n".join(text for path, text in role_texts(role) if folder not in path.parents)
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] not in TARGET_TOPS:
            yield Finding(path, 1, "template", "templates/ mirrors the target's path: etc/…, usr/…")
        if name not in used and not _included(folder, path, name):
            yield Finding(path, 1, "template", "nothing in the role uses this template")
    for path, line, item in declared_files(role):
        dest, src = str(item.get("dest", "")), str(item.get("src", ""))
        if src and "{{" not in dest + src and src.removesuffix(".j2") != dest.lstrip("/"):
            yield Finding(
                path, line, "template", f"{dest} comes from templates/{dest.lstrip('/')}.j2, not {src}"
            )


def _included(folder: Path, path: Path, name: str) -> bool:
    others = (other for other in folder.rglob("*") if other.is_file() and other != path)
    return any(name in read(other) for other in others)


def known_files_are_validated(role: Path) -> Findings:
    """A file whose program has a checker is checked before it is swapped in."""
    for path, line, item in declared_files(role):
        if item.get("state") == "absent":
            continue
        target = f"{item.get('dest', '')} {item.get('src', '')}"
        for pattern, checker in CHECKERS.items():
            named = any(re.search(pattern, word) for word in target.split())
            if named and checker not in str(item.get("validate", "")):
                text = f"{item.get('dest')} has a checker: validate it with {checker} (%s is the file)"
                yield Finding(path, line, "validate", text)


def sabotage_is_complete(role: Path) -> Findings:
    """tests/sabotage.yml has entries, each with its own name and a red test that exists."""
    path = role / "tests" / "sabotage.yml"
    if not path.is_file():
        return
    try:
        entries = read_sabotages(path, role.name)
    except ColdironError as error:
        yield Finding(path, 1, "sabotage", error.message)
        return
    known = {name for test in (role / "tests").glob("test_*.py") for name in test_names(test)}
    seen: set[str] = set()
    for entry in entries:
        if entry.red not in known:
            yield Finding(path, 1, "sabotage", f"{entry.name}: there is no test {entry.red}")
        if entry.name in seen:
            yield Finding(path, 1, "sabotage", f"{entry.name}: the name is there twice")
        seen.add(entry.name)


def test_names(path: Path) -> set[str]:
    """Return the names of the test functions in a file."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(read(path), str(path))
    return {
        node.name for node in ast.walk(tree) if isinstance(node, functions) and node.name.startswith("test")
    }


# pytest must not take the helper above for a test.
test_names.__test__ = False  # type: ignore[attr-defined]


def meta_is_plain(role: Path) -> Findings:
    """meta/main.yml names platforms and no dependencies."""
    path = role / "meta" / "main.yml"
    content = mapping(path)
    if content.get("dependencies") != []:
        yield Finding(path, 1, "meta", "write dependencies: []: the stages say what runs before what")
    if not (content.get("galaxy_info") or {}).get("platforms"):
        yield Finding(path, 1, "meta", "galaxy_info names no platforms")


def options_are_told(role: Path) -> Findings:
    """The README's options table is what the spec says now."""
    for text in table_findings(role):
        yield Finding(role / "README.md", 1, "options", text)


ROLE_RULES: tuple[Callable[[Path], Findings], ...] = (
    anatomy,
    defaults_match_spec,
    spec_is_told,
    quantities_have_units,
    secrets_are_marked,
    prefixes,
    main_is_contents,
    task_files_are_short,
    task_names,
    actions_are_full,
    commands_are_guarded,
    errors_are_not_ignored,
    includes_are_chosen,
    restarts_are_wanted,
    preflight_changes_nothing,
    topology_stays_outside,
    install_reads_no_hardware,
    no_ladders,
    expressions_are_short,
    templates_mirror_targets,
    known_files_are_validated,
    sabotage_is_complete,
    meta_is_plain,
    options_are_told,
)
