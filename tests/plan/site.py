"""Making a whole small inventory: a sound cluster.yml of tests/plan/base, variables beside it, and secrets."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path

from coldiron.inventory.model import ClusterFile
from coldiron.secrets.store import VAULT_FILE, Store
from tests.plan.cases import base, over

PASSWORD = b"only for the test"
_BLOCK = re.compile(r"^(?=[a-z_]+:)", re.MULTILINE)


def inventory(directory: Path, text: str = "", *, base_name: str = "software") -> Path:
    """An inventory in ``directory``: the blocks of ``text`` that belong to cluster.yml over the base, the others in
    group_vars/all/site.yml.
    """
    plain = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    blocks = [block for block in _BLOCK.split(plain) if block]
    ours = [block for block in blocks if block.partition(":")[0] in ClusterFile.model_fields]
    directory.mkdir(parents=True)
    (directory / "cluster.yml").write_text(over(base(base_name), "".join(ours)), encoding="utf-8")
    shutil.copytree(vault() / "group_vars", directory / "group_vars")
    for name in (".vault-password",):
        shutil.copy2(vault() / name, directory / name)
    site = "dns_isolated: true\ntime_upstream_servers: []\n"
    site += "".join(block for block in blocks if block not in ours)
    (directory / "group_vars" / "all" / "site.yml").write_text(site, encoding="utf-8")
    return directory


@functools.cache
def vault() -> Path:
    """A directory with secrets, made once: encrypting takes a while."""
    import tempfile

    directory = Path(tempfile.mkdtemp(prefix="coldiron-test-"))
    (directory / ".vault-password").write_bytes(PASSWORD + b"\n")
    (directory / ".vault-password").chmod(0o600)
    Store(directory, PASSWORD).add_missing()
    assert (directory / VAULT_FILE).exists()
    return directory
