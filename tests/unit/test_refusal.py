"""The filter that a declaration is refused by."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.coldiron.cluster.plugins.filter.refusal import FilterModule

refuse = FilterModule().filters()["refuse"]


def test_a_declaration_passes_when_nothing_speaks_against_it() -> None:
    assert refuse(["chrony"], []) == ["chrony"]
    assert refuse(["chrony"], ["", " \n"]) == ["chrony"]


def test_every_problem_is_told() -> None:
    with pytest.raises(AnsibleFilterError, match=r"^Write a\. Write b\.$"):
        refuse([], ["Write a.", "", "Write b."])
