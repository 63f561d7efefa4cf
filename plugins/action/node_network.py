# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The controller's half of node_network: render, change, come again over a new connection, and keep or take back."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.coldiron.cluster.plugins.module_utils.controller import lacks_coldiron

MODULE = "coldiron.cluster.node_network"
SPEC = ("interfaces", "resolvers", "search", "match")
# The switch starts a second after it was asked for, so that the answer still leaves by the old network.
SWITCH_SECONDS = 1.5
# A new connection either stands after so many seconds, or is tried again.
CONNECT_SECONDS = 5
# Before the node's own timer ends, so that nobody keeps what is being taken back.
MARGIN_SECONDS = 3
# How long a node that has taken its change back may need to answer again.
BACK_SECONDS = 60


class ActionModule(ActionBase):  # type: ignore[misc]
    """One change, proven over a new connection."""

    _supports_check_mode = True
    _supports_async = False
    _VALID_ARGS = frozenset({*SPEC, "backend", "confirm_seconds", "probes"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        try:
            from coldiron.errors import ColdironError
            from coldiron.provision.network import OWNED, mode_of, render, wanted_state
        except ImportError as error:
            raise AnsibleActionFail(lacks_coldiron("node_network", error)) from None
        args = self._task.args
        spec = {key: args[key] for key in SPEC if key in args}
        backend = str(args.get("backend", ""))
        seconds = int(args.get("confirm_seconds", 45))
        try:
            words = {
                "backend": backend,
                "files": render(spec, backend),
                "mode": mode_of(backend),
                "owned": list(OWNED[backend]),
                "wanted": wanted_state(spec),
                "probes": list(args.get("probes") or []),
                "confirm_seconds": seconds,
            }
        except ColdironError as error:
            raise AnsibleActionFail(error.message) from None
        changed = self._execute_module(MODULE, {**words, "step": "change"}, task_vars=task_vars)
        changed.pop("invocation", None)
        if not changed.pop("pending", False):
            return {**result, **changed}
        begun = time.monotonic()
        time.sleep(SWITCH_SECONDS)
        kept = self._confirm(words, task_vars, begun + seconds - MARGIN_SECONDS)
        if kept is not None and kept.get("kept"):
            return {**result, **changed}
        # Whatever was wrong with it, the node takes it back; say only what was seen of that.
        why = "; ".join(kept.get("lacking") or [str(kept.get("msg", ""))]) if kept else ""
        why = why or f"no new connection stood within {seconds} s"
        back = self._back(words, task_vars, begun + seconds)
        return {
            **result,
            **changed,
            "failed": True,
            "changed": False,
            "msg": _said(why, back, changed["why"]),
        }

    def _confirm(self, words: dict[str, Any], task_vars: Any, end: float) -> dict[str, Any] | None:
        """The node's judgement, asked for over a new connection; None where none came to stand in time."""
        while (left := end - time.monotonic()) > 0:
            settle = max(2, min(15, int(left) - CONNECT_SECONDS))
            found = self._call({**words, "step": "confirm", "settle_seconds": settle}, task_vars)
            if found is not None:
                return found
            time.sleep(0.5)
        return None

    def _back(self, words: dict[str, Any], task_vars: Any, end: float) -> bool | None:
        """Whether the old network is back; None where the node does not answer."""
        end += BACK_SECONDS
        while time.monotonic() < end:
            found = self._call({**words, "step": "undone", "settle_seconds": 20}, task_vars)
            if found is not None:
                return bool(found.get("undone"))
            time.sleep(1)
        return None

    def _call(self, words: dict[str, Any], task_vars: Any) -> dict[str, Any] | None:
        """Call the module over a connection of its own; None where that does not stand."""
        with contextlib.suppress(Exception):
            self._connection.set_option("timeout", CONNECT_SECONDS)
            self._connection.set_option("reconnection_retries", 0)
        try:
            with contextlib.suppress(AnsibleConnectionFailure):
                self._connection.reset()
            found: dict[str, Any] = self._execute_module(MODULE, words, task_vars=task_vars)
        except AnsibleConnectionFailure:
            return None
        return None if found.get("unreachable") else found


def _said(why: str, back: bool | None, wanted: list[str]) -> str:
    asked = "; ".join(wanted)
    if back:
        return f"the new network was taken back, and the old one answers: {why} (it was to change: {asked})"
    if back is None:
        return (
            f"the node does not answer since its network was changed: {why}. It was told to put the old files back "
            "by itself; look at its console"
        )
    return f"the new network was not kept: {why}; the node does not say that it has put the old one back"
