"""The vault secrets of this process, for code that uses Ansible as a library."""

from __future__ import annotations

from typing import Any


def trust(secrets: list[Any]) -> None:
    """Let values marked ``!vault`` be decrypted: Ansible asks the process for their secrets, not the loader."""
    from ansible.parsing.vault import VaultSecretsContext

    context = VaultSecretsContext.current(optional=True)
    if context is None:
        VaultSecretsContext.initialize(VaultSecretsContext(list(secrets)))
    else:
        context.secrets[:] = secrets
