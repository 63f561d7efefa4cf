"""Elasticsearch itself as a Debian package, for nodes of a rack that are its servers, and a stand-in for Kibana.

The maker's repository of packages cannot be had everywhere; the server can, by Maven's ordinary client: the build that
the maker's own integration tests run. It is the real server with its security, and without some of its modules (ILM,
ingest processors, the API of data streams). The package lays it out as the maker's own does, has its name and version,
and says in its description what it is. Kibana cannot be had at all: a fixture package of its name lies beside it, as
the maker has both in one repository.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zipfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from coldiron.rack.host import Host
from coldiron.rack.layout import Layout, Machine
from coldiron.rack.state import write_atomically
from coldiron.testing.aptrepo import Deb, SigningKey, build
from coldiron.testing.aptrepo.fixtures import named

# Where the nodes have it.
MOUNTED = "/srv/coldiron-elastic"
NAME = "elasticsearch"
VERSION = "8.19.21"
ARTIFACT = f"org.elasticsearch.distribution.integ-test-zip:elasticsearch:{VERSION}:zip"
# The maker's other packages, by the files of their fixtures.
FIXTURES = ("kibana", "filebeat")
_SECONDS = 900.0
# Another checkout's making, which it may be using, is left alone for that long.
_LEFT_ALONE_SECONDS = 86400.0
_HOME = "usr/share/elasticsearch"
_ETC = "etc/elasticsearch"

_CONTROL = f"""\
Package: {NAME}
Version: {VERSION}
Architecture: @ARCHITECTURE@
Maintainer: coldiron fixtures <fixtures@coldiron.invalid>
Depends: adduser, bash, coreutils, default-jre-headless
Description: FIXTURE: the real Elasticsearch, in the build of its maker's integration tests
 Re-packed from Maven for the nodes of coldiron's virtual rack. Not the maker's package: Java is the distribution's,
 and the modules that are not on Maven (ILM, ingest, the API of data streams) are not in it.
"""
# The maker's is of type notify, for which this build lacks the module.
_UNIT = """\
[Unit]
Description=Elasticsearch (FIXTURE)
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
RuntimeDirectory=elasticsearch
Environment=ES_HOME=/usr/share/elasticsearch
Environment=ES_PATH_CONF=/etc/elasticsearch
Environment=ES_JAVA_HOME=/usr/lib/jvm/default-java
Environment=PID_DIR=/run/elasticsearch
Environment=LD_PRELOAD=/usr/lib/coldiron-fixtures/open-files.so
EnvironmentFile=-/etc/default/elasticsearch
WorkingDirectory=/usr/share/elasticsearch
User=elasticsearch
Group=elasticsearch
ExecStart=/usr/share/elasticsearch/bin/elasticsearch -p ${PID_DIR}/elasticsearch.pid --quiet
StandardOutput=journal
StandardError=inherit
LimitNOFILE=65535
LimitNPROC=4096
LimitAS=infinity
LimitFSIZE=infinity
TimeoutStopSec=0
KillSignal=SIGTERM
KillMode=process
SendSIGKILL=no
SuccessExitStatus=143
TimeoutStartSec=900

[Install]
WantedBy=multi-user.target
"""
# A container has no more open files than the machine lets it have, and the server refuses to start with fewer than
# 65,535. It opens some hundreds here, so it is told that it had them.
_OPEN_FILES = """\
#define _GNU_SOURCE
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limits)
{
    int result = syscall(SYS_prlimit64, 0, resource, NULL, limits);
    if (result == 0 && resource == RLIMIT_NOFILE && limits->rlim_cur < 65535)
        limits->rlim_cur = limits->rlim_max = 65535;
    return result;
}
int getrlimit(__rlimit_resource_t resource, struct rlimit *limits)
{
    return getrlimit64(resource, (struct rlimit64 *)limits);
}
"""
_PREINST = """\
#!/bin/sh
set -e
getent group elasticsearch > /dev/null || addgroup --quiet --system elasticsearch
getent passwd elasticsearch > /dev/null || adduser --quiet --system --no-create-home --home /nonexistent \\
    --ingroup elasticsearch --disabled-password --shell /bin/false elasticsearch
"""
# As the maker's: the server is not started, and not restarted by an upgrade.
_POSTINST = """\
#!/bin/sh
set -e
chown root:elasticsearch /etc/elasticsearch /etc/elasticsearch/jvm.options.d
chmod 2750 /etc/elasticsearch /etc/elasticsearch/jvm.options.d
chown elasticsearch:elasticsearch /var/lib/elasticsearch /var/log/elasticsearch
chmod 2750 /var/lib/elasticsearch /var/log/elasticsearch
for file in elasticsearch.yml jvm.options log4j2.properties role_mapping.yml roles.yml users users_roles; do
    [ ! -e "/etc/elasticsearch/$file" ] || chown root:elasticsearch "/etc/elasticsearch/$file"
    [ ! -e "/etc/elasticsearch/$file" ] || chmod 0660 "/etc/elasticsearch/$file"
done
if [ ! -e /etc/elasticsearch/elasticsearch.keystore ]; then
    ES_JAVA_HOME=/usr/lib/jvm/default-java ES_PATH_CONF=/etc/elasticsearch \\
        /usr/share/elasticsearch/bin/elasticsearch-keystore create > /dev/null
    chown root:elasticsearch /etc/elasticsearch/elasticsearch.keystore
    chmod 0660 /etc/elasticsearch/elasticsearch.keystore
fi
[ ! -d /run/systemd/system ] || systemctl daemon-reload
"""
_CONFFILES = ("elasticsearch.yml", "jvm.options", "log4j2.properties", "role_mapping.yml", "roles.yml", "users",
              "users_roles")  # fmt: skip


def place(layout: Layout) -> Path:
    """The repository's directory on this machine."""
    return layout.data / "elastic"


def described(layout: Layout) -> Path:
    """The file beside the inventory that says how nodes reach the repository."""
    return layout.own / "elastic.json"


def making() -> str:
    """What tells one making of the package from another."""
    return hashlib.sha256(files("coldiron.rack").joinpath("elastic.py").read_bytes()).hexdigest()[:12]


def repository_making() -> str:
    """What tells one making of the repository from another: the package's, and the fixtures beside it."""
    folder = files("coldiron.testing.aptrepo")
    fixtures = b"".join(folder.joinpath(f"{name}.yml").read_bytes() for name in FIXTURES)
    return hashlib.sha256(making().encode() + fixtures).hexdigest()[:12]


def fetched(host: Host, machine: Machine) -> Path:
    """The maker's archive, fetched by Maven if this machine has none yet. Raises CommandError with Maven's words."""
    store = machine.cache / "elastic"
    archive = store / f"{NAME}-{VERSION}.zip"
    if not archive.is_file():
        work = store / ".fetch"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        command = [
            "mvn",
            "-q",
            "-B",
            "dependency:copy",
            f"-Dartifact={ARTIFACT}",
            f"-DoutputDirectory={work}",
        ]
        host.run(command, what="fetching Elasticsearch by Maven", timeout_seconds=_SECONDS)
        os.rename(work / archive.name, archive)
        shutil.rmtree(work)
    return archive


def lay_out(host: Host, archive: Path, root: Path) -> None:
    """The package's tree below ``root``, out of the maker's archive. Raises CommandError where nothing compiles."""
    top = f"{NAME}-{VERSION}"
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(root / ".zip")
    for directory in (_HOME, "etc", "usr/lib/systemd/system", "etc/default", "DEBIAN"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "modules", "LICENSE.txt", "NOTICE.txt"):
        (root / ".zip" / top / name).rename(root / _HOME / name)
    (root / ".zip" / top / "config").rename(root / _ETC)
    shutil.rmtree(root / ".zip")
    for directory in (
        f"{_ETC}/jvm.options.d",
        f"{_HOME}/plugins",
        "var/lib/elasticsearch",
        "var/log/elasticsearch",
    ):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for program in (root / _HOME / "bin").iterdir():
        program.chmod(0o755)
    java = root / _ETC / "jvm.options"
    log = "/var/log/elasticsearch"
    text = java.read_text(encoding="utf-8").replace("file=gc.log", f"file={log}/gc.log")
    java.write_text(text.replace("ErrorFile=hs_err", f"ErrorFile={log}/hs_err"), encoding="utf-8")
    (root / "usr/lib/systemd/system/elasticsearch.service").write_text(_UNIT, encoding="utf-8")
    (root / "etc/default/elasticsearch").write_text("# FIXTURE\n", encoding="utf-8")
    debian = root / "DEBIAN"
    architecture = host.run(["dpkg", "--print-architecture"]).stdout.strip()
    (debian / "control").write_text(_CONTROL.replace("@ARCHITECTURE@", architecture), encoding="utf-8")
    library = root / "usr/lib/coldiron-fixtures/open-files.so"
    library.parent.mkdir(parents=True)
    source = root / "open-files.c"
    source.write_text(_OPEN_FILES, encoding="utf-8")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(source)]
    host.run(command, what="compiling Elasticsearch's limits", timeout_seconds=_SECONDS)
    source.unlink()
    conffiles = [*(f"/{_ETC}/{name}" for name in _CONFFILES), "/etc/default/elasticsearch"]
    (debian / "conffiles").write_text("".join(f"{path}\n" for path in conffiles), encoding="utf-8")
    for script, text in (("preinst", _PREINST), ("postinst", _POSTINST)):
        (debian / script).write_text(text, encoding="utf-8")
        (debian / script).chmod(0o755)


def package(host: Host, machine: Machine) -> Path:
    """The package, made if this machine has none of this making yet. Raises CommandError."""
    made = machine.cache / "elastic" / making() / f"{NAME}_{VERSION}.deb"
    with host.lock(machine.run / "elastic.lock"):
        if made.is_file():
            return made
        archive = fetched(host, machine)
        for older in (machine.cache / "elastic").iterdir():
            if older.is_dir() and time.time() - older.stat().st_mtime > _LEFT_ALONE_SECONDS:
                shutil.rmtree(older)
        root = made.parent / ".root"
        root.mkdir(parents=True)
        root.chmod(0o755)
        lay_out(host, archive, root)
        unfinished = made.with_name(f".{made.name}")
        # What is in it is compressed already.
        command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(unfinished)]
        host.run(command, what="packing Elasticsearch", timeout_seconds=_SECONDS)
        os.rename(unfinished, made)
        shutil.rmtree(root)
    return made


def make(host: Host, layout: Layout, say: Callable[[str], None]) -> None:
    """Make the repository of a rack, if it has none of this making yet. Raises CommandError."""
    mark = repository_making()
    description = described(layout)
    if description.exists() and json.loads(description.read_text())["made"] == mark:
        return
    say("making the package of Elasticsearch, once, and stand-ins for Kibana and Filebeat")
    key = SigningKey.make(layout.data / "elastic-key")
    build(
        place(layout),
        [Deb(package(host, layout.machine)), *(one for name in FIXTURES for one in named(name))],
        key,
    )
    public = layout.own / "elastic.asc"
    write_atomically(public, key.public)
    repository = {
        "uris": [f"file:{MOUNTED}"],
        "suites": ["./"],
        "components": [],
        "key": str(public),
        "fingerprints": [key.fingerprint],
    }
    write_atomically(description, json.dumps({"made": mark, "repository": repository}, indent=2) + "\n")
