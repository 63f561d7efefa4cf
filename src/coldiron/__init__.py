"""From cold iron to a working GPU cluster."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("coldiron")
except PackageNotFoundError:  # a checkout whose set-up has not run
    __version__ = "0+unknown"
