"""Where this machine gets its Debian packages from: nodes get theirs from the same place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode

CODENAMES = {"debian-12": "bookworm", "debian-13": "trixie"}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_RELEASE = re.compile(r"(bullseye|bookworm|trixie|forky|sid|stable|oldstable|testing)(?P<part>[-/].*)?")
_INHERITED = ("Acquire::Check-Valid-Until", "Acquire::Check-Date")


@dataclass(frozen=True)
class Entry:
    """One line of a sources list: an archive, its suites and components."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    keyring: str | None = None


@dataclass(frozen=True)
class AptSource:
    """The machine's own Debian archive.

    ``parts``: suite suffixes ("", "-updates") with the archive that has them, in the order of the sources.
    ``proxy``: the proxy that apt uses here. ``options``: apt options that nodes need as well.
    """

    parts: tuple[tuple[str, str, tuple[str, ...]], ...]
    keyring: str = KEYRING
    proxy: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    @property
    def mirror(self) -> str:
        """The main archive's address."""
        return next((uri for suffix, uri, _ in self.parts if suffix == ""), self.parts[0][1])

    def sources(self, distribution: str) -> str:
        """A sources.list for ``distribution``. Raises ColdironError for one that the rack has no image of."""
        codename = codename_of(distribution)
        return "".join(
            f"deb {through_cache(uri)} {codename}{suffix} {' '.join(components)}\n"
            for suffix, uri, components in self.parts
        )


def codename_of(distribution: str) -> str:
    """The release's code name. Raises ColdironError for a distribution that the rack has no image of."""
    try:
        return CODENAMES[distribution]
    except KeyError:
        known = " or ".join(sorted(CODENAMES))
        raise ColdironError(
            f"the virtual rack has no image of {distribution}; write distribution: {known} in cluster.yml"
        ) from None


def through_cache(uri: str) -> str:
    """The address by which the package cache fetches ``uri``: spelt so, it speaks TLS to the archive."""
    return re.sub(r"^https://", "http://HTTPS///", uri).rstrip("/")


def parse_deb822(text: str) -> list[Entry]:
    """The enabled binary archives of a ``.sources`` file."""
    entries = []
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        fields: dict[str, str] = {}
        key = ""
        for line in paragraph.splitlines():
            if line[:1].isspace():
                fields[key] = f"{fields.get(key, '')} {line.strip()}"
            elif ":" in line:
                name, _, value = line.partition(":")
                key = name.strip().lower()
                fields[key] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in {
            "no",
            "false",
        }:
            continue
        signed = fields.get("signed-by", "").strip()
        entries.append(
            Entry(
                tuple(fields.get("uris", "").split()),
                tuple(fields.get("suites", "").split()),
                tuple(fields.get("components", "").split()),
                signed if signed.startswith("/") else None,
            )
        )
    return entries


def parse_one_line(text: str) -> list[Entry]:
    """The binary archives of a ``sources.list``."""
    entries = []
    for line in text.splitlines():
        match = re.match(
            r"\s*deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<rest>[^#]*)", line
        )
        if not match:
            continue
        signed = re.search(r"signed-by=(/\S+)", match["options"] or "")
        components = tuple(match["rest"].split())
        entries.append(Entry((match["uri"],), (match["suite"],), components, signed[1] if signed else None))
    return entries


def from_entries(entries: Iterable[Entry], where: str) -> AptSource:
    """The Debian archive among the machine's sources. Raises ColdironError where there is none."""
    parts: dict[str, tuple[str, tuple[str, ...]]] = {}
    keyring = KEYRING
    # Another project's archive may have a suite `bookworm` with `main` as well: Debian's key goes first.
    for entry in sorted(
        entries, key=lambda entry: bool(entry.keyring) and "debian-archive" not in str(entry.keyring)
    ):
        uris = [uri for uri in entry.uris if uri.startswith(("http://", "https://"))]
        for suite in entry.suites:
            match = _RELEASE.fullmatch(suite)
            if not match or not uris or "main" not in entry.components:
                continue
            suffix = match["part"] or ""
            if suffix == "" or suffix in {"-updates", "-security"}:
                parts.setdefault(suffix, (uris[0], entry.components))
                keyring = entry.keyring or keyring
    if "" not in parts:
        raise ColdironError(
            f"{where}: no Debian archive (http or https, component main) stands here, so the rack has no "
            "mirror for its nodes' packages; add your mirror's line",
            ExitCode.ENVIRONMENT,
        )
    ordered = sorted(parts.items(), key=lambda item: ("", "-updates", "-security").index(item[0]))
    return AptSource(tuple((suffix, uri, components) for suffix, (uri, components) in ordered), keyring)


def resolve_mirror_lists(entry: Entry) -> Entry:
    """``entry`` with ``mirror+file:`` addresses, as cloud images have them, replaced by the file's."""
    uris: list[str] = []
    for uri in entry.uris:
        match = re.fullmatch(r"mirror(?:\+|://)file:/*(/.+)", uri)
        if match and (listing := Path(match[1])).is_file():
            lines = [line.split("#")[0].split() for line in listing.read_text().splitlines()]
            uris += [words[0] for words in lines if words]
        else:
            uris.append(uri)
    return Entry(tuple(uris), entry.suites, entry.components, entry.keyring)


def parse_options(dump: str) -> tuple[str | None, dict[str, str]]:
    """The proxy, and the options that nodes inherit, from ``apt-config dump``."""
    values = dict(re.findall(r'^(\S+) "(.*)";$', dump, re.MULTILINE))
    proxy = values.get("Acquire::http::Proxy", "")
    inherited = {key: values[key] for key in _INHERITED if values.get(key)}
    return (proxy if proxy.startswith("http") else None), inherited


def read_host(apt: Path, dump: str) -> AptSource:
    """This machine's archive, from ``/etc/apt`` and ``apt-config dump``. Raises ColdironError without one."""
    entries = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if path.suffix not in {".list", ".sources"} or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        entries += parse_deb822(text) if path.suffix == ".sources" else parse_one_line(text)
    source = from_entries([resolve_mirror_lists(entry) for entry in entries], f"{apt}/sources.list.d")
    proxy, options = parse_options(dump)
    return AptSource(source.parts, source.keyring, proxy, options)


def backports(source: AptSource, codename: str) -> str:
    """A sources list for the release's backports, from the machine's own archive."""
    return f"deb [signed-by={source.keyring}] {source.mirror} {codename}-backports main\n"
