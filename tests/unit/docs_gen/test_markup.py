"""Ansible's markup as HTML for the site and as Markdown for a README."""

from __future__ import annotations

import pytest

from coldiron.docs_gen.markup import anchor, inline, paragraphs
from coldiron.errors import ColdironError

PLUGINS = {"coldiron.cluster.converge": "../plugins/converge_module.html"}
SPEAKER = ("coldiron.cluster.converge", "module")


def test_a_description_becomes_paragraphs() -> None:
    assert paragraphs(["One.", "Two & more."], {}) == "<p>One.</p><p>Two &amp; more.</p>"
    assert paragraphs("As `hostname -s` says, C(or not).", {}) == (
        "<p>As <code>hostname -s</code> says, <code>or not</code>.</p>"
    )
    assert paragraphs(None, {}) == "<p></p>"


def test_a_plugin_of_this_site_is_linked_and_another_is_not() -> None:
    said = paragraphs("M(coldiron.cluster.converge) or M(ansible.builtin.apt)", PLUGINS)
    assert "href='../plugins/converge_module.html'" in said
    assert said.count("href") == 1
    assert "ansible.builtin.apt" in said


def test_an_option_of_the_same_plugin_is_linked_to_its_row() -> None:
    assert 'href="#users-append"' in paragraphs("See O(users[].append).", PLUGINS, SPEAKER)
    assert "href" not in paragraphs("See RV(changed).", PLUGINS, SPEAKER)
    assert "href" not in paragraphs("O(ansible.builtin.apt#module:name)", PLUGINS, SPEAKER)


def test_an_anchor_is_made_of_the_names_words() -> None:
    assert anchor("users_accounts[].name") == "users_accounts-name"
    assert anchor("drain: slurm_nodes") == "drain-slurm_nodes"


def test_a_readme_gets_code() -> None:
    text = "C(nfs), V(a\\)b), O(name), O(state=absent), M(a.b.c), B(not) I(now)."
    assert inline(text) == "`nfs`, `a)b`, `name`, `state: absent`, `a.b.c`, `not` `now`."
    assert inline("a | b <c>") == "a | b <c>"


@pytest.mark.parametrize(
    ("text", "told"), [("M(no name)", "no name"), ("U(https://example.org)", "no way to show")]
)
def test_markup_that_cannot_be_shown_is_named(text: str, told: str) -> None:
    with pytest.raises(ColdironError, match=told):
        inline(text)
    if text.startswith("M"):
        with pytest.raises(ColdironError, match=r"coldiron\.cluster\.converge"):
            paragraphs(text, {}, SPEAKER)
