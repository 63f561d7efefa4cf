"""Options tables: what they say, and when they are not current."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron import docs_gen

SPEC = """\
argument_specs:
  main:
    options:
      lamp_level:
        description:
          - How bright, in words | or numbers.
          - More is more.
        type: str
        choices: [low, high]
      lamp_users:
        description: Who.
        type: list
        elements: dict
        options:
          name: {description: The name., type: str, required: true}
          rights: {description: What for., type: str, default: all}
          note: {description: Free words., type: str}
      lamp_key:
        description: What opens it.
        type: str
        required: true
        no_log: true
      lamp_long: {description: Much., type: list, elements: str}
      lamp_unset: {description: Nothing., type: str}
"""
DEFAULTS = f"lamp_level: low\nlamp_users: []\nlamp_long: {['word'] * 30}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with one role."""
    role = tmp_path / "roles" / "lamp"
    for name, text in (
        ("meta/argument_specs.yml", SPEC),
        ("defaults/main.yml", DEFAULTS),
        ("README.md", "# lamp\n\n<!-- options -->\nold\n<!-- /options -->\n\nMore words.\n"),
    ):
        (role / name).parent.mkdir(parents=True, exist_ok=True)
        (role / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_table_says_what_the_spec_says(root: Path) -> None:
    assert docs_gen.main(["--root", str(root)]) == 0
    text = (root / "roles" / "lamp" / "README.md").read_text(encoding="utf-8")
    assert (
        "| `lamp_level` | str: `low`, `high` | `low` | How bright, in words \\| or numbers. More is more. |"
        in text
    )
    assert "| `lamp_users` | list of dict | `[]` | Who. |" in text
    assert "| `lamp_users[].name` | str | **required** | The name. |" in text
    assert "| `lamp_users[].rights` | str | `all` | What for. |" in text
    assert "| `lamp_users[].note` | str |  | Free words. |" in text
    assert "| `lamp_key` | str | **required** | What opens it. Secret. |" in text
    assert "| `lamp_long` | list of str | see [defaults](defaults/main.yml) | Much. |" in text
    assert "| `lamp_unset` | str | `null` | Nothing. |" in text
    assert text.endswith("<!-- /options -->\n\nMore words.\n")


def test_check_names_what_is_not_current(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = root / "roles" / "lamp" / "README.md"
    before = readme.read_text(encoding="utf-8")
    assert docs_gen.main(["--root", str(root), "--check"]) == 1
    assert "not current" in capsys.readouterr().out
    assert readme.read_text(encoding="utf-8") == before
    docs_gen.main(["--root", str(root)])
    assert docs_gen.main(["--root", str(root), "--check"]) == 0


def test_a_readme_without_a_place_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "roles" / "lamp" / "README.md").write_text("# lamp\n", encoding="utf-8")
    assert docs_gen.main(["--root", str(root)]) == 2
    assert "has no place for the options" in capsys.readouterr().err


def test_a_role_without_options_says_so(root: Path) -> None:
    spec = root / "roles" / "lamp" / "meta" / "argument_specs.yml"
    spec.write_text("argument_specs: {main: {short_description: x}}\n", encoding="utf-8")
    assert docs_gen.table(root / "roles" / "lamp") == "This role has no options.\n"


def test_a_role_without_a_spec_is_left_alone(root: Path) -> None:
    (root / "roles" / "lamp" / "meta" / "argument_specs.yml").unlink()
    assert docs_gen.main(["--root", str(root), "--check"]) == 0
