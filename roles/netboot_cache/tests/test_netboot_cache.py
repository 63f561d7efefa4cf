"""Images come through the cache, once each from the provisioner and by its certificate alone; nothing else does.

A third node asks, as a machine would.
"""

from __future__ import annotations

import json
import secrets
import shlex

import pytest

SLICE = 4 << 20
# Runs on another node with the Python that is there. It asks once for each path and prints the answers as JSON.
PROBE = r"""
import hashlib, http.client, json, sys

asked = json.loads(sys.argv[1])
found = []
for path in asked["paths"]:
    connection = http.client.HTTPConnection(asked["address"], 80, timeout=30)
    try:
        connection.request(asked["method"], path, headers=asked["headers"])
        answer = connection.getresponse()
        data = answer.read()
        found.append({"status": answer.status, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    except OSError as error:
        found.append({"status": 0, "size": 0, "sha256": "", "why": str(error)})
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def ask(opts, hostname, site, role_hosts, run_on):
    """Ask the cache from another node."""
    others = [name for name in site.hosts("cluster:!netboot_cache:!netboot_server:!bare_metal")
              if name in role_hosts("base")]  # fmt: skip
    assert others, f"there is no other node to ask {hostname} from"
    other = run_on(others[0])

    def _ask(*paths, method="GET", **headers):
        question = {
            "address": opts["netboot_cache_address"],
            "paths": paths,
            "method": method,
            "headers": headers,
        }
        found = other.run(f"python3 -c {shlex.quote(PROBE)} {shlex.quote(json.dumps(question))}")
        assert found.rc == 0, found.stderr
        return json.loads(found.stdout)

    return _ask


@pytest.fixture(scope="module")
def provisioner(opts, run_on):
    """The node that has the images."""
    return run_on(opts["netboot_cache_server_name"])


def log_of(node, path):
    """How often a cache has asked the provisioner's web server for a path."""
    found = node.run(f"cat /var/log/nginx/access.log | grep -cF 'GET {path} '")
    return int(found.stdout)


def test_the_server_runs_and_starts_at_boot(host):
    assert host.service("nginx").is_running
    assert host.service("nginx").is_enabled


def test_it_listens_on_its_own_address_alone(host, opts):
    lines = host.check_output("ss -Hltnp").splitlines()
    found = [line.split()[3] for line in lines if "nginx" in line]
    assert found == [f"{opts['netboot_cache_address']}:80"]


@pytest.mark.acts
def test_an_image_is_fetched_once_and_given_to_all(host, hostname, opts, ask, provisioner, eventually):
    """The image is one that nobody has: it is there for this test, and goes with it."""
    size = 2 * SLICE + 17
    digest = provisioner.check_output("head -c 40 /dev/urandom | sha256sum | cut -d' ' -f1")
    folder = f"{provisioner.check_output('ls -d /srv/*/images | head -n 1')}/{digest}"
    path = f"/images/{digest}/image.tar.zst"
    try:
        provisioner.check_output(f"mkdir {folder} && head -c {size} /dev/urandom > {folder}/image.tar.zst")
        wanted = provisioner.check_output(f"sha256sum {folder}/image.tar.zst").split()[0]
        first = ask(path, path)
        assert first == [{"status": 200, "size": size, "sha256": wanted}] * 2
        # nginx writes a line once it has answered.
        assert eventually(lambda: log_of(provisioner, path) >= 3, seconds=15)
        assert log_of(provisioner, path) == 3, "each of its three slices is fetched once"
        # Away from the provisioner, it is still here.
        provisioner.check_output(f"rm -r {folder}")
        assert ask(path) == first[:1]
        assert log_of(provisioner, path) == 3
        kept = host.check_output(f"du -sm {opts['netboot_cache_directory']} | cut -f1")
        assert int(kept) >= size >> 20
    finally:
        provisioner.run(f"rm -rf {folder}")


@pytest.mark.acts
def test_what_a_machine_says_of_itself_is_not_passed_on(ask, provisioner, eventually):
    """The provisioner's log has who asks, by the request's own words: they are the cache's."""
    canary = f"canary-{secrets.token_hex(8)}"
    path = f"/images/{'0' * 64}/{canary.replace('canary', 'none')}"
    ask(path, **{"User-Agent": canary, "Authorization": f"Bearer {canary}"})
    # nginx writes a line once it has answered.
    assert eventually(lambda: log_of(provisioner, path) == 1, seconds=15)
    assert provisioner.run(f"grep -rF {canary} /var/log/nginx").rc == 1


def test_nothing_else_goes_through(ask):
    paths = (
        "/", "/images/", "/deploy/", "/boot.ipxe", "/snponly.efi", "/boot/02-00-00-00-00-01.ipxe",
        "/api/v1/nodes/x1/identity", "/images/../api/v1/nodes/x1/identity", "/deploy/..%2fapi/v1/nodes/x1/identity",
        f"/images/{'0' * 64}/.incoming", "/etc/passwd", "/images/../../../etc/passwd",
    )  # fmt: skip
    for path, answer in zip(paths, ask(*paths), strict=True):
        assert answer["status"] in (400, 404), path
    for method in ("POST", "PUT", "DELETE"):
        for answer in ask(f"/images/{'0' * 64}/x", "/deploy/vmlinuz", method=method):
            assert answer["status"] in (403, 405), method


def test_the_provisioner_has_to_show_its_certificate(host, opts):
    """What nginx itself reads: who is asked, by which name, and whose word counts."""
    read = host.check_output("nginx -T 2>/dev/null")
    assert "proxy_ssl_verify on;" in read
    assert f"proxy_ssl_name {opts['netboot_cache_server_name']};" in read
    asked = {
        line.split()[1].rstrip(";") for line in read.splitlines() if line.strip().startswith("proxy_pass ")
    }
    assert asked == {f"https://{opts['netboot_cache_server']}:{opts['netboot_cache_server_port']}"}
    authority = host.file("/etc/coldiron/netboot-cache/ca.crt").content_string
    assert authority.strip() == str(opts["netboot_cache_ca_certificate"]).strip()


def test_nobody_else_reads_or_changes_what_is_kept(host, opts):
    kept = host.file(opts["netboot_cache_directory"])
    assert (kept.user, kept.mode) == (opts["__netboot_cache_os"]["web_user"], 0o700)
    assert host.run("grep -rlE 'PRIVATE KEY' /etc/coldiron/netboot-cache").rc == 1
