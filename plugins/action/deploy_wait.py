"""Wait for a machine's step; a failure shows the end of its console, which is on the controller."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

TAIL_LINES = 12
TAIL_BYTES = 16 * 1024
# Colours and cursors of a firmware's menus.
ESCAPES = re.compile(r"\x1b\[[0-9;?=]*[A-Za-z]|\x1b[()][A-Z0-9]|[^\n\t -~]")
TOKEN = re.compile(r"(coldiron\.token=)\S+")


def tail(path: Path) -> list[str]:
    """The last lines of a serial console, without escapes and tokens; none where the file cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            text = stream.read().decode("utf-8", errors="replace").replace("\r", "\n")
    except OSError:
        return []
    lines = (TOKEN.sub(r"\1…", ESCAPES.sub("", line)).strip() for line in text.split("\n"))
    return [line for line in lines if line][-TAIL_LINES:]


class ActionModule(ActionBase):  # type: ignore[misc]
    """The module waits on the provisioner; this adds what only the controller can see."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = {**self._task.args, "seconds": float(self._task.args.get("seconds", 0))}
        result |= self._execute_module("coldiron.cluster.deploy_wait", arguments, task_vars=task_vars)
        console = str(self._task.args.get("console") or "")
        if result.get("failed") and console and (lines := tail(Path(console))):
            result["console"] = lines
            result["msg"] = f"{result.get('msg')}\nits console ends:\n" + "\n".join(
                f"  {line}" for line in lines
            )
        return result
