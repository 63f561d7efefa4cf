"""A signed apt repository of fixture packages: a maker's names and versions, with nothing of the maker's in them."""

from coldiron.testing.aptrepo.key import SigningKey
from coldiron.testing.aptrepo.package import Deb, Package
from coldiron.testing.aptrepo.repository import build

__all__ = ["Deb", "Package", "SigningKey", "build"]
