"""What the secrets are, and what none of them may be."""

from __future__ import annotations

import base64

import pytest

from coldiron.errors import ColdironError
from coldiron.secrets import check
from coldiron.secrets.table import CA_CERTIFICATE, CA_KEY, make_missing


def test_made_secrets_are_sound_and_never_the_same() -> None:
    first = make_missing({})
    second = make_missing({})
    assert check(first) == []
    assert not set(first.values()) & set(second.values())


def test_their_sizes() -> None:
    made = make_missing({})
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
    assert check({"wiki_admin_password": "kT8-wq", "tokens": {"one": ["a9f$", "77b#"]}, "port": 3307}) == []
    assert check({"tokens": {"one": ["a9f$", "changeme"]}})[0].startswith("`tokens.one[2]` is a placeholder")


def test_the_authority_s_certificate_belongs_to_its_key() -> None:
    made = make_missing({})
    again = make_missing({CA_KEY: made[CA_KEY]})
    assert again[CA_CERTIFICATE] != made[CA_CERTIFICATE]
    assert check({CA_KEY: made[CA_KEY], CA_CERTIFICATE: again[CA_CERTIFICATE]}) == []
    assert make_missing(made) == {}


def test_an_authority_s_certificate_of_another_key_is_refused() -> None:
    one, other = make_missing({}), make_missing({})
    (fault,) = check({CA_KEY: one[CA_KEY], CA_CERTIFICATE: other[CA_CERTIFICATE]})
    assert fault.startswith("`coldiron_ca_certificate` is of another key; ")


def test_a_certificate_without_its_key_gets_no_other_key() -> None:
    with pytest.raises(ColdironError, match="its key `coldiron_ca_key` is not; put the key back"):
        make_missing({CA_CERTIFICATE: make_missing({})[CA_CERTIFICATE]})


@pytest.mark.parametrize("key", [CA_KEY, CA_CERTIFICATE, "coldiron_image_key"])
def test_what_is_no_key_is_refused_unquoted(key: str) -> None:
    made = make_missing({})
    spoilt = made[key][:-60]
    (fault,) = check({key: spoilt})
    assert fault.startswith(f"`{key}` is no ")
    assert "coldiron secrets init" in fault
    assert spoilt not in fault
    # One kind of key is not the other.
    if key != CA_CERTIFICATE:
        other = CA_KEY if key != CA_KEY else "coldiron_image_key"
        assert check({key: made[other]})
