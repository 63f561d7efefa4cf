"""What the secrets are, and what none of them may be."""

from __future__ import annotations

import base64

import pytest

from coldiron.secrets import SECRETS, check


def test_made_secrets_are_sound_and_never_the_same() -> None:
    first = {secret.key: secret.make() for secret in SECRETS}
    second = {secret.key: secret.make() for secret in SECRETS}
    assert check(first) == []
    assert not set(first.values()) & set(second.values())


def test_their_sizes() -> None:
    made = {secret.key: secret.make() for secret in SECRETS}
    assert len(base64.b64decode(made["munge_key"])) == 1024
    assert len(base64.b64decode(made["slurm_controller_jwt_key"])) == 32
    for key in ("mariadb_root_password", "slurm_dbd_database_password"):
        assert len(made[key]) == 40
        # It goes into configuration files whose quoting differs.
        assert made[key].isalnum()


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "  ",
            None,
            "changeme",
            "CHANGE-ME",
            "change me!",
            "<changeme>",
            "password",
            "Password1",
            "secret",
        ),
        *(
            "your_password",
            "passw0rd!",
            "replace_me",
            "<your key here>",
            "aaaaaaaaaaaaaaaa",
            "12345678",
            "xxx",
        ),
        *("slurm", "root", "todo", "{{ password }}"),
    ],
)
def test_placeholders_are_refused_for_any_key(value: object) -> None:
    for key in ("mariadb_root_password", "grafana_admin_password"):
        (fault,) = check({key: value})
        assert fault.startswith(f"`{key}` is ")
        if isinstance(value, str) and len(value.strip()) > 6 and value != "password":
            assert value not in fault


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("munge_key", "not base64 at all?", "is not base64"),
        ("munge_key", base64.b64encode(b"short and sweet").decode(), "holds 15 bytes, and needs 32 to 1024"),
        ("munge_key", base64.b64encode(bytes(range(256)) * 5).decode(), "holds 1280 bytes"),
        ("slurm_controller_jwt_key", base64.b64encode(b"x1y2z3").decode(), "holds 6 bytes"),
        ("mariadb_root_password", "Tr0ub4dor", "is shorter than 12 characters"),
        ("slurm_dbd_database_password", 918273645546372819, "is not text"),
    ],
)
def test_own_faults(key: str, value: object, says: str) -> None:
    (fault,) = check({key: value})
    assert says in fault
    assert str(value) not in fault
    assert "coldiron secrets init" in fault


def test_a_site_s_own_secrets_may_be_anything_real() -> None:
    assert (
        check({"grafana_admin_password": "kT8-wq", "tokens": {"one": ["a9f$", "77b#"]}, "port": 3307}) == []
    )
    assert check({"tokens": {"one": ["a9f$", "changeme"]}})[0].startswith("`tokens.one[2]` is a placeholder")
