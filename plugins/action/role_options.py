"""Check the options of several roles on the controller, before any node is touched."""

from __future__ import annotations

import os
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import remove_values
from ansible.plugins.action import ActionBase

# The parser in C, where it is there: it reads a dozen specs a host in a tenth of the time.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
HINT = "write it in the inventory's group_vars/ or host_vars/; the role's README lists its options"
ROLES_DIR = os.path.join(os.path.dirname(__file__), "..", "..", "roles")


def load_options(role: str) -> dict[str, Any]:
    """Return the options of a role's ``main`` entry point, from its meta/argument_specs.yml."""
    path = os.path.join(ROLES_DIR, role, "meta", "argument_specs.yml")
    try:
        with open(path, encoding="utf-8") as stream:
            spec = yaml.load(stream, Loader=LOADER)
    except OSError as error:
        raise AnsibleActionFail(f"role {role} has no readable argument spec: {error}") from error
    options: dict[str, Any] = spec["argument_specs"]["main"].get("options", {})
    return options


class ActionModule(ActionBase):  # type: ignore[misc]
    """The same validation that Ansible runs at a role's start, for all roles of a host at once."""

    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"roles"})

    def _problems(self, role: str, task_vars: dict[str, Any]) -> list[str]:
        """Evaluate the role's own ``__<role>_problems``: sentences on what its argument spec cannot say."""
        scope: dict[str, Any] = {}
        for part in ("defaults", "vars"):
            path = os.path.join(ROLES_DIR, role, part, "main.yml")
            if os.path.exists(path):
                loaded = self._loader.load_from_file(path, cache="all", trusted_as_template=True) or {}
                # The order of precedence that Ansible has: role defaults, the inventory, role vars.
                scope = {**loaded, **task_vars} if part == "defaults" else {**scope, **loaded}
        if f"__{role}_problems" not in scope:
            return []
        templar = self._templar.copy_with_new_env(available_variables=scope)
        found = templar.template(scope[f"__{role}_problems"])
        return [sentence for sentence in (str(one).strip() for one in found) if sentence]

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        errors: list[str] = []
        for role in self._task.args.get("roles") or []:
            options = load_options(role)
            given = {}
            for name, option in options.items():
                if name not in task_vars:
                    # A default applies; a required option without a value is found by the validator.
                    continue
                if option.get("no_log") and option.get("type", "str") == "str":
                    # The value must not reach an error message: its presence and type are checked by hand.
                    value = self._templar.template(task_vars[name])
                    # One that may be left out may be given as nothing too.
                    if not isinstance(value, str) or not (value or option.get("default") == ""):
                        errors.append(f"role {role}: {name} must be a non-empty string")
                        continue
                    given[name] = "given"
                    continue
                given[name] = self._templar.template(task_vars[name])
            checked = ArgumentSpecValidator(options).validate(given)
            # Secrets inside lists and mappings (a user's password hash) are masked where a message repeats them.
            messages = remove_values(checked.error_messages, checked._no_log_values)
            errors += [f"role {role}: {message}" for message in messages]
            if not messages:
                errors += [f"role {role}: {problem}" for problem in self._problems(role, task_vars)]
        if errors:
            result.update(failed=True, msg="; ".join(errors), errors=errors, hint=HINT)
            return result
        result.update(changed=False)
        return result
