"""The cluster's secrets: generated once, into an ansible-vault file beside the inventory.

``check`` says what is wrong with secrets without quoting them; ``SECRETS`` is the table of those made here.
"""

from __future__ import annotations

from coldiron.secrets.table import SECRETS, Secret, check

__all__ = ["SECRETS", "Secret", "check"]
