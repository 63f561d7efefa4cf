"""Filters about images: their keys, and where they are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def image_public_key(private: str) -> str:
    """Return the PEM of the public key that verifies what the signing key ``private`` signs."""
    from coldiron.errors import ColdironError
    from coldiron.provision.images import public_key

    try:
        return public_key(str(private).encode()).decode()
    except ColdironError as error:
        raise AnsibleFilterError(error.message) from None


def image_places(images: Sequence[Mapping[str, Any]], directory: str) -> list[dict[str, Any]]:
    """Return ``images`` with the directory that each is served from, and the one above it."""
    found = []
    for image in images:
        place = f"{directory}/{'deploy' if image['class'] == 'deploy' else 'images'}"
        found.append({**image, "place": place, "path": f"{place}/{image['sha256']}"})
    return found


def image_links(
    names: Sequence[str], current: Sequence[Mapping[str, Any]], directory: str
) -> list[dict[str, str]]:
    """Return links by which firmware, which knows no digest, gets the files of the current RAM environment."""
    return [
        {"path": f"{directory}/deploy/{name}", "src": f"{image['sha256']}/{name}"}
        for image in current
        for name in names
    ]


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "image_links": image_links,
            "image_places": image_places,
            "image_public_key": image_public_key,
        }
