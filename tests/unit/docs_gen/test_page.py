"""Links from files to pages, and the navigation's patterns."""

from __future__ import annotations

import pytest

from coldiron.docs_gen.page import Page, relink
from coldiron.docs_gen.pages import expand

PLACES = {"docs/time.md": "time.md", "roles/time/README.md": "roles/time.md", "README.md": "index.md"}
FILES = {"roles/time/defaults/main.yml", "inventories/virtual"}
ROLE = Page("roles/time.md", "", "roles/time/README.md")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[the clock](../../docs/time.md)", "[the clock](../time.md)"),
        ("[the clock](../../docs/time.md#peers)", "[the clock](../time.md#peers)"),
        ("[`code`](../../docs/time.md)", "[`code`](../time.md)"),
        ("[start](../../README.md), [it](README.md)", "[start](../index.md), [it](time.md)"),
        ("[defaults](defaults/main.yml)", "defaults (`roles/time/defaults/main.yml`)"),
        ("[inventories/virtual](../../inventories/virtual/)", "inventories/virtual"),
        ("[here](#options)", "[here](#options)"),
        ("[out](https://example.org/a.md)", "[out](https://example.org/a.md)"),
        ("[nowhere](nowhere.md)", "[nowhere](nowhere.md)"),
        ("![picture](../../docs/time.md)", "![picture](../../docs/time.md)"),
        ("```\n[the clock](../../docs/time.md)\n```\n", "```\n[the clock](../../docs/time.md)\n```\n"),
        (
            "~~~\na\n~~~\n[the clock](../../docs/time.md)\n~~~\nb\n~~~\n",
            "~~~\na\n~~~\n[the clock](../time.md)\n~~~\nb\n~~~\n",
        ),
    ],
)
def test_a_link_leads_to_the_page_of_its_file(written: str, shown: str) -> None:
    assert relink(written, ROLE, PLACES, FILES.__contains__) == shown


def test_patterns_of_the_navigation_are_filled_in() -> None:
    navigation = [
        {"Start": ["index.md", {"Clock": "time.md"}]},
        {"Roles": ["roles/index.md", "roles/*.md"]},
        {"More": [{"Verbs": ["cli/*.md"]}, "*.md", {"Clock": "time.md"}]},
    ]
    known = ["roles/users.md", "roles/index.md", "roles/dns.md", "cli/rack.md", "time.md", "a.md"]
    assert expand(navigation, known) == [
        {"Start": ["index.md", {"Clock": "time.md"}]},
        {"Roles": ["roles/index.md", "roles/dns.md", "roles/users.md"]},
        {"More": [{"Verbs": ["cli/rack.md"]}, "a.md", {"Clock": "time.md"}]},
    ]
    assert expand(None, known) is None
