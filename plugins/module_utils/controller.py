"""What plugins say that run on the controller."""

from __future__ import annotations


def lacks_coldiron(who: str, error: ImportError) -> str:
    """How to give Ansible's own Python the package that ``who`` needs; ``error`` says what was not found."""
    return (
        f"{who} needs the Python package coldiron in Ansible's own Python ({error}); "
        "install it there: pip install coldiron"
    )
