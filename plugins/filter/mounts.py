"""Filters of the role ``nfs``: exports and mounts as data, turned into what servers and systemd read."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

# Defaults of the role's argument spec, which Ansible does not fill into the entries of a list.
EXPORT_OPTIONS = ("rw", "sync", "no_subtree_check", "root_squash")
MOUNT_OPTIONS = ("hard", "noatime", "nodev", "nosuid")

# The words of exports(5) that ganesha has words of its own for.
GANESHA_SQUASH = {
    "root_squash": "Root_Squash",
    "no_root_squash": "No_Root_Squash",
    "all_squash": "All_Squash",
}

UNIT_HEADER = "# Ansible managed\n[Unit]\nDescription={path} from {server}\n"
MOUNT = "\n[Mount]\nWhat={server}:{export}\nWhere={path}\nType=nfs\nOptions={options}\n"
AUTOMOUNT = "\n[Automount]\nWhere={path}\n"
INSTALL = "\n[Install]\nWantedBy=remote-fs.target\n"


def option_words(entry: Mapping[str, Any], default: Sequence[str]) -> list[str]:
    """Return an entry's options as a list, given as a list, with commas, or not at all."""
    options = entry.get("options", default)
    return options.split(",") if isinstance(options, str) else list(options)


def export_options(export: Mapping[str, Any]) -> str:
    """Return an export's options as exports(5) wants them."""
    return ",".join(option_words(export, EXPORT_OPTIONS))


def export_directories(exports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the exported directories in converge's words."""
    return [{"path": export["path"], "mode": export.get("mode", "0755")} for export in exports]


def ganesha_exports(exports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each export with ganesha's ``id``, ``access`` and ``squash``.

    As in exports(5), an export is read-only unless ``rw`` is said, and squashes root unless told otherwise.
    The id is part of the file handles that clients hold: it follows from the path, not the place in the list.
    """
    found = []
    for export in exports:
        words = option_words(export, EXPORT_OPTIONS)
        squash = [GANESHA_SQUASH[word] for word in words if word in GANESHA_SQUASH]
        found.append(
            {
                **export,
                "id": zlib.crc32(export["path"].encode()) % 65535 + 1,
                "access": "RW" if "rw" in words else "RO",
                "squash": (squash or ["Root_Squash"])[-1],
            }
        )
    return found


def unit_name(path: str, suffix: str) -> str:
    """Return the name of the systemd unit of a path, as ``systemd-escape --path --suffix`` writes it."""

    def escape(character: str) -> str:
        if character.isascii() and (character.isalnum() or character in ":_."):
            return character
        return "".join(f"\\x{byte:02x}" for byte in character.encode())

    parts = ["".join(map(escape, part)) for part in path.split("/") if part]
    name = "-".join(parts) or "-"
    if name.startswith("."):
        name = f"\\x2e{name[1:]}"
    return f"{name}.{suffix}"


def mount_units(mounts: Sequence[Mapping[str, Any]], start: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the mounts as ``files`` and ``units`` in converge's words.

    ``start`` says whether they are mounted now or at the next boot. No unit is restarted when its file
    changes: that would take the directory away from whoever works in it.
    """
    declared: dict[str, list[dict[str, Any]]] = {"files": [], "units": []}
    for mount in mounts:
        words = {**mount, "options": ",".join(option_words(mount, MOUNT_OPTIONS))}
        automount = mount.get("automount", True)
        texts = {"mount": UNIT_HEADER + MOUNT + ("" if automount else INSTALL)}
        if automount:
            texts["automount"] = UNIT_HEADER + AUTOMOUNT + INSTALL
        declared["files"] += [
            {
                "dest": f"/etc/systemd/system/{unit_name(mount['path'], suffix)}",
                "content": text.format(**words),
            }
            for suffix, text in texts.items()
        ]
        wanted = unit_name(mount["path"], "automount" if automount else "mount")
        declared["units"].append({"name": wanted, "state": "started" if start else "none"})
    return declared


def fstab_options(mount: Mapping[str, Any]) -> str:
    """Return the options of a mount's line of /etc/fstab."""
    automount = ["noauto", "x-systemd.automount"] if mount.get("automount", True) else []
    return ",".join([*option_words(mount, MOUNT_OPTIONS), "_netdev", *automount])


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "export_directories": export_directories,
            "export_options": export_options,
            "fstab_options": fstab_options,
            "ganesha_exports": ganesha_exports,
            "mount_units": mount_units,
        }
