"""Hand a machine's order and identity to the provisioner, and learn its host key before it first answers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.coldiron.cluster.plugins.module_utils.controller import lacks_coldiron

# Made once on the provisioner and kept there: an installed-anew node is the same to everybody who knows it.
HOST_KEY = (
    "umask 077 && mkdir -p {directory} && chmod 0700 {directory} && "
    "{{ test -s {key} || ssh-keygen -q -t ed25519 -N '' -C {node} -f {key}; }} && cat {key} {key}.pub"
)
END_OF_KEY = "-----END OPENSSH PRIVATE KEY-----\n"


class ActionModule(ActionBase):  # type: ignore[misc]
    """A thin adapter: coldiron.provision.prepare says what is ordered, this class carries it to the provisioner."""

    _VALID_ARGS = frozenset(
        {"node", "wishes", "others", "image", "known_hosts", "private_key_file", "host_keys", "command"}
    )

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        try:
            from coldiron.errors import ColdironError
        except ImportError as error:
            raise AnsibleActionFail(lacks_coldiron("provisioning", error)) from None
        try:
            return result | self._ordered()
        except ColdironError as error:
            return result | {"failed": True, "msg": error.message}

    def _ordered(self) -> dict[str, Any]:
        from coldiron.provision import prepare
        from coldiron.provision.network import render
        from coldiron.provision.order import ImageWanted
        from coldiron.provision.store import Store

        given = self._task.args
        node = prepare.Node(**given["node"])
        others = [prepare.Node(**other) for other in given.get("others") or []]
        wishes = dict(given["wishes"])
        wishes["consent"] = prepare.consent_of(node, wishes.get("consent") or [], others)
        if not wishes.get("authorized_keys") and given.get("private_key_file"):
            wishes["authorized_keys"] = [prepare.public_key(Path(given["private_key_file"]).expanduser())]
        if (spec := wishes.pop("network_spec", None)) and not wishes.get("network"):
            # The very files that role network will want: its first run changes nothing.
            wishes["network"] = render(spec, "networkd")
        wanted = given["image"]
        image = Store(Path(wanted["store"])).current(wanted["class"])
        order = prepare.make_order(
            node,
            prepare.Wishes(**wishes),
            ImageWanted(image.sha256, wanted["class"], int(wanted.get("oldest") or 0)),
        )
        if self._task.check_mode:
            return {"changed": True, "image": image.sha256, "consent": list(order.consent)}
        private, public = self._host_key(node.name, given["host_keys"])
        identity = prepare.make_identity(node, prepare.Wishes(**wishes), {"ed25519": private})
        names = [node.name, node.fqdn, node.address]
        prepare.KnownHosts(Path(given["known_hosts"])).learn(names, public)
        text = json.dumps({"order": order.as_dict(), "identity": identity.as_dict()})
        self._told(f"{shlex.quote(given['command'])} order --stdin", text.encode())
        return {"changed": True, "image": image.sha256, "consent": list(order.consent)}

    def _host_key(self, node: str, directory: str) -> tuple[str, str]:
        words = {name: shlex.quote(value) for name, value in (("directory", directory), ("node", node))}
        text = self._told(HOST_KEY.format(key=shlex.quote(f"{directory}/{node}"), **words))
        private, end, public = text.partition(END_OF_KEY)
        if not end or not public.strip():
            raise AnsibleActionFail(
                f"{directory}/{node} on the provisioner is no key of OpenSSH's; remove it"
            )
        return private + end, public.strip()

    def _told(self, command: str, text: bytes | None = None) -> str:
        """What ``command`` prints on the provisioner, given ``text`` on its standard input."""
        done = self._low_level_execute_command(f"/bin/sh -c {shlex.quote(command)}", in_data=text)
        if done["rc"]:
            # Never its output: a host key may stand there.
            why = " ".join(str(done.get("stderr", "")).split())[-400:]
            raise AnsibleActionFail(f"the provisioner did not take it (rc {done['rc']}): {why}")
        return str(done["stdout"]).replace("\r\n", "\n")
