"""The daemon runs what it is told and as it is told; containers outlive it, and nobody but root may talk to it."""

from __future__ import annotations

import json
import shlex

import pytest

IMAGE = "localhost/coldiron-test:latest"
TOOLS = "/bin/sh /usr/bin/cat /usr/bin/id /usr/bin/sleep"


def info(host):
    return json.loads(host.check_output("docker info --format '{{json .}}'"))


@pytest.fixture(scope="module")
def image(host):
    """An image made of the node's own programs: no registry is asked."""
    made = (
        f"{{ ldd {TOOLS} | grep -o '/[^ :]*'; printf '%s\\n' {TOOLS}; }} | sort -u"
        f" | tar --create --dereference --files-from=- 2>/dev/null | docker import - {IMAGE}"
    )
    host.check_output(made)
    yield IMAGE
    host.check_output(f"docker rmi --force {IMAGE}")


@pytest.fixture
def sleeper(host, image):
    """A container that runs for a while, on the network that containers have by default."""
    name = host.check_output(f"docker run --detach {image} /usr/bin/sleep 600").strip()
    yield name
    host.check_output(f"docker rm --force {name}")


def test_the_daemon_runs_and_starts_at_boot(host):
    for unit in ("docker.service", "docker.socket"):
        assert host.service(unit).is_running
        assert host.service(unit).is_enabled


@pytest.mark.acts
def test_a_container_runs(host, image):
    assert "uid=0" in host.check_output(f"docker run --rm {image} /usr/bin/id")


@pytest.mark.acts
def test_root_inside_is_nobody_outside_where_ids_are_remapped(host, opts, sleeper):
    pid = host.check_output("docker inspect --format '{{.State.Pid}}' " + sleeper).strip()
    start, count = host.check_output(f"cat /proc/{pid}/uid_map").split()[1:]
    if opts["docker_userns_remap"]:
        ranges = [line.split(":") for line in host.file("/etc/subuid").content_string.splitlines()]
        assert [start, count] == next(row[1:] for row in ranges if row[0] == "dockremap")
    else:
        assert start == "0"


@pytest.mark.acts
def test_containers_outlive_the_daemon(host, opts, sleeper):
    # systemd counts starts, and this one is a test's.
    host.check_output("systemctl reset-failed docker.service; systemctl restart docker.service")
    running = host.check_output("docker inspect --format '{{.State.Running}}' " + sleeper).strip()
    assert (running == "true") == opts["docker_live_restore"]


def test_nobody_but_the_declared_group_may_talk_to_the_daemon(host, opts):
    socket = host.file("/run/docker.sock")
    assert (socket.user, socket.group, socket.mode) == ("root", opts["docker_socket_group"], 0o660)


@pytest.mark.acts
def test_a_member_of_docker_s_own_group_is_not_root(host, opts):
    """The package makes a group whose members would be root: here it has no power."""
    if opts["docker_socket_group"] != "docker":
        command = "docker version"
        refused = host.run(f"setpriv --reuid=nobody --regid=docker --clear-groups {command}")
        assert refused.rc != 0
        assert "permission denied" in refused.stderr


def test_the_daemon_has_the_declared_settings(host, opts):
    told = info(host)
    # Remapped ids have a directory of their own below it.
    assert told["DockerRootDir"].startswith(opts["docker_data_root"])
    assert told["LiveRestoreEnabled"] == opts["docker_live_restore"]
    assert told["LoggingDriver"] == opts["docker_log_driver"]
    mirrors = [url.rstrip("/") for url in told["RegistryConfig"]["Mirrors"] or []]
    assert mirrors == [url.rstrip("/") for url in opts["docker_registry_mirrors"]]
    assert set(opts["docker_insecure_registries"]) <= set(told["RegistryConfig"]["IndexConfigs"]) | set(
        told["RegistryConfig"]["InsecureRegistryCIDRs"]
    )
    assert set(opts["docker_runtimes"]) <= set(told["Runtimes"])
    proxy = opts["docker_proxy"]
    assert [told["HttpProxy"], told["HttpsProxy"], told["NoProxy"]] == [
        proxy.get("http") or "",
        proxy.get("https") or "",
        ",".join(proxy.get("no_proxy") or []),
    ]


@pytest.mark.acts
def test_a_container_that_talks_does_not_fill_the_disk(host, opts, sleeper):
    if opts["docker_log_driver"] in ("json-file", "local"):
        limits = json.loads(
            host.check_output("docker inspect --format '{{json .HostConfig.LogConfig}}' " + sleeper)
        )
        assert limits["Config"] == {
            "max-size": f"{opts['docker_log_max_size_mib']}m",
            "max-file": str(opts["docker_log_max_files"]),
        }


def test_the_daemon_s_file_is_the_declared_one(host, opts):
    declared = json.loads(host.file("/etc/docker/daemon.json").content_string)
    assert declared == opts["__docker_daemon"]
    for word, value in opts["docker_settings"].items():
        assert declared[word] == value


def test_over_the_network_nobody_is_heard_without_a_certificate(host, opts):
    address, port = opts["docker_tcp_address"], opts["docker_tcp_port"]
    listening = host.check_output("ss --listening --tcp --numeric --processes --no-header").splitlines()
    heard = [line.split()[3] for line in listening if '"dockerd"' in line]
    assert heard == ([f"{address}:{port}"] if address else [])
    if address:
        for scheme in ("http", "https"):
            asked = f"import ssl,urllib.request as u; c=ssl._create_unverified_context(); print(u.urlopen('{scheme}://"
            asked += (
                f"{address}:{port}/version', **({{'context': c}} if '{scheme}' == 'https' else {{}})).read())"
            )
            refused = host.run(f"python3 -c {shlex.quote(asked)}")
            assert refused.rc != 0, refused.stdout


def test_over_the_network_a_certificate_of_the_authority_is_heard(host, opts):
    """The daemon's own serves as a client's, where it was made for that as well."""
    address, port, tls = opts["docker_tcp_address"], opts["docker_tcp_port"], "/etc/docker/tls"
    if not address or "TLS Web Client" not in host.check_output(
        f"openssl x509 -in {tls}/server-cert.pem -noout -text"
    ):
        return
    words = (
        f"--tlsverify --tlscacert={tls}/ca.pem --tlscert={tls}/server-cert.pem --tlskey={tls}/server-key.pem"
    )
    assert host.check_output(f"docker -H tcp://{address}:{port} {words} info --format '{{{{.ID}}}}'")
