"""The daemon runs containers as it is told, outlives its restarts, asks the declared registries, and is root's."""

from __future__ import annotations

import json
import shlex
import tomllib

import pytest

IMAGE = "registry.invalid:5055/coldiron-test:latest"
TOOLS = "/bin/sh /usr/bin/cat /usr/bin/id /usr/bin/sleep"
# What makes the loader's cache of the driver's libraries writes beside it.
ETC = "/etc/ld.so.conf"
CARDS = "/usr/bin/nvidia-smi"
CTR = "ctr --namespace coldiron-test"
FOLDER = "/var/tmp/coldiron-containerd-test"
PORT = 5055

# Makes an image that is a file, as `docker save` writes it and as a registry serves it, of a root directory.
MAKE = """
import hashlib, io, json, pathlib, sys, tarfile
folder = pathlib.Path(sys.argv[1])
layer = (folder / "layer.tar").read_bytes()
digest = lambda data: "sha256:" + hashlib.sha256(data).hexdigest()
config = json.dumps({"architecture": sys.argv[2], "os": "linux", "config": {"Env": ["PATH=/usr/bin:/bin"]},
                     "rootfs": {"type": "layers", "diff_ids": [digest(layer)]}}).encode()
kind = "application/vnd.oci.image."
about = lambda sort, data: {"mediaType": kind + sort, "digest": digest(data), "size": len(data)}
manifest = json.dumps({"schemaVersion": 2, "mediaType": kind + "manifest.v1+json",
                       "config": about("config.v1+json", config),
                       "layers": [about("layer.v1.tar", layer)]}).encode()
for data in (layer, config, manifest):
    (folder / digest(data)).write_bytes(data)
(folder / "latest").write_bytes(manifest)
listed = [{"Config": "config.json", "RepoTags": [sys.argv[3]], "Layers": ["layer.tar"]}]
with tarfile.open(folder / "image.tar", "w") as archive:
    for name, data in (("manifest.json", json.dumps(listed).encode()), ("config.json", config), ("layer.tar", layer)):
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
"""

# A registry that serves these files, until it is killed.
SERVE = """
import http.server, pathlib, sys
folder = pathlib.Path(sys.argv[1])
class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        file = folder / self.path.partition("?")[0].rpartition("/")[2]
        there = file.is_file()
        self.send_response(200 if there or self.path == "/v2/" else 404)
        manifest = "/manifests/" in self.path
        sort = "vnd.oci.image.manifest.v1+json" if manifest else "octet-stream"
        self.send_header("Content-Type", "application/" + sort)
        data = file.read_bytes() if there else b""
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)
    do_HEAD = do_GET
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Registry).serve_forever()
"""


def config(host):
    return tomllib.loads(host.file("/etc/containerd/config.toml").content_string)


def tables(host):
    """The tables of pods and of images as the daemon reads them, whichever way config.toml is written."""
    read = tomllib.loads(host.check_output("containerd config dump"))
    plugins = read["plugins"]
    if "io.containerd.cri.v1.runtime" in plugins:
        return read, plugins["io.containerd.cri.v1.runtime"], plugins["io.containerd.cri.v1.images"]
    pods = plugins["io.containerd.grpc.v1.cri"]
    return read, pods, {**pods, "snapshotter": pods["containerd"]["snapshotter"]}


@pytest.fixture(scope="module")
def files(host):
    """An image of the node's own programs as files: no registry of the world is asked."""
    tools = f"{TOOLS} {CARDS}" if host.file(CARDS).exists else TOOLS
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[host.check_output("uname -m")]
    host.check_output(
        f"rm -rf {FOLDER} && mkdir -m 0700 {FOLDER} && {{ ldd {tools} | grep -o '/[^ :]*' | grep -v libnvidia;"
        f" printf '%s\\n' {tools} {ETC}; }} | sort -u | tar --create --dereference --files-from=- 2>/dev/null"
        f" > {FOLDER}/layer.tar && python3 -c {shlex.quote(MAKE)} {FOLDER} {architecture} {IMAGE}"
    )
    yield FOLDER
    host.check_output(f"rm -rf {FOLDER}")


@pytest.fixture(scope="module")
def image(host, opts, files):
    """The image, imported from its file."""
    host.check_output(f"{CTR} images import --snapshotter {opts['containerd_snapshotter']} {files}/image.tar")
    yield IMAGE
    host.run(f"{CTR} images remove {IMAGE}")
    host.run("ctr namespaces remove coldiron-test")


def run(opts, image, command, options="", name="one"):
    """What runs a command; without shares of the CPU, which want a controller that not every node hands on."""
    words = f"--snapshotter {opts['containerd_snapshotter']} --cpu-shares 0"
    return f"{CTR} run --rm {words} {options} {image} coldiron-{name} {command}"


def test_the_daemon_runs_and_starts_at_boot(host):
    daemon = host.service("containerd.service")
    assert daemon.is_running
    assert daemon.is_enabled


@pytest.mark.acts
def test_a_container_runs(host, opts, image):
    assert "uid=0" in host.check_output(run(opts, image, "/usr/bin/id"))


@pytest.mark.acts
def test_containers_outlive_the_daemon(host, opts, image):
    words = f"--snapshotter {opts['containerd_snapshotter']} --cpu-shares 0"
    host.check_output(f"{CTR} run --detach {words} {image} coldiron-sleeper /usr/bin/sleep 600")
    try:
        host.check_output("systemctl restart containerd.service")
        shown = host.check_output(f"{CTR} tasks list")
        assert [line.split()[2] for line in shown.splitlines() if line.startswith("coldiron-sleeper")] == [
            "RUNNING"
        ]
    finally:
        host.run(f"{CTR} tasks kill --signal SIGKILL coldiron-sleeper")
        host.run(f"sleep 1; {CTR} tasks delete coldiron-sleeper; {CTR} containers delete coldiron-sleeper")


@pytest.mark.acts
def test_images_come_from_the_declared_mirror(host, opts, files, eventually):
    """A registry on the node itself stands for the mirror of one that is nowhere."""
    mirrors = [one for one in opts["containerd_registries"] if one["location"] == IMAGE.partition("/")[0]]
    if not mirrors:
        return
    serve = f"python3 -c {shlex.quote(SERVE)} {files} {PORT}"
    host.check_output(f"setsid {serve} > /dev/null 2>&1 < /dev/null & echo $! > {files}/pid")
    try:
        assert eventually(lambda: host.socket(f"tcp://127.0.0.1:{PORT}").is_listening, seconds=30)
        host.run(f"{CTR} images remove {IMAGE}")
        words = f"--hosts-dir {opts['__containerd_hosts']} --snapshotter {opts['containerd_snapshotter']}"
        pulled = host.run(f"{CTR} images pull {words} {IMAGE}")
        assert pulled.rc == 0, pulled.stderr
    finally:
        host.check_output(f"kill $(cat {files}/pid)")


def test_registries_are_the_declared_ones_and_no_others(host, opts):
    there = host.check_output(f"ls {opts['__containerd_hosts']}").split()
    assert sorted(there) == sorted(one["location"] for one in opts["containerd_registries"])
    for one in opts["containerd_registries"]:
        place = f"{opts['__containerd_hosts']}/{one['location']}"
        said = tomllib.loads(host.file(f"{place}/hosts.toml").content_string)
        assert list(said.get("host", {})) == [mirror["url"] for mirror in one.get("mirrors") or []]
        for about in (said, *said.get("host", {}).values()):
            if "ca" in about:
                assert "BEGIN CERTIFICATE" in host.file(about["ca"]).content_string


def test_nobody_but_root_may_talk_to_the_daemon(host):
    socket = host.file("/run/containerd/containerd.sock")
    assert (socket.user, socket.group, socket.mode) == ("root", "root", 0o660)


def test_the_daemon_s_file_is_the_declared_one(host, opts):
    assert config(host) == json.loads(json.dumps(opts["__containerd_config"]))


def test_the_daemon_reads_what_is_declared(host, opts):
    """Its own reading of the file, with what it would take where the file says nothing."""
    read, pods, images = tables(host)
    assert read["root"] == opts["containerd_data_root"]
    assert images["snapshotter"] == opts["containerd_snapshotter"]
    assert images["registry"]["config_path"] == opts["__containerd_hosts"]
    assert pods.get("enable_cdi", False) == opts["containerd_cdi"]
    if opts["containerd_cdi"]:
        assert pods["cdi_spec_dirs"] == opts["containerd_cdi_spec_dirs"]
    known = pods["containerd"]["runtimes"]
    assert known["runc"]["options"]["SystemdCgroup"] == opts["__containerd_systemd"]
    for name, about in opts["containerd_runtimes"].items():
        assert known[name]["options"]["BinaryName"] == about["path"]
    assert pods["containerd"]["default_runtime_name"] == opts["containerd_default_runtime"]


def test_the_daemon_has_started_with_its_file(host):
    begun = host.check_output('date +%s --date "$(systemctl show -P ActiveEnterTimestamp containerd)"')
    assert int(begun) >= int(host.file("/etc/containerd/config.toml").mtime.timestamp())


def test_the_daemon_has_the_declared_proxy(host, opts):
    pid = host.check_output("systemctl show --property MainPID --value containerd")
    environment = host.check_output("tr '\\0' '\\n' < /proc/%s/environ", pid).splitlines()
    proxy = opts["containerd_proxy"]
    for word in ("http", "https"):
        found = [line for line in environment if line.startswith(f"{word.upper()}_PROXY=")]
        assert found == ([f"{word.upper()}_PROXY={proxy[word]}"] if proxy.get(word) else [])


@pytest.mark.acts
def test_the_runtime_of_gpus_gives_a_container_the_one_that_it_names(host, opts, image):
    """By CDI's name; as a pod gets it whose runtime class is nvidia."""
    runtime = opts["containerd_runtimes"].get("nvidia")
    if runtime and host.file(CARDS).exists:
        asked = f"--runc-binary {runtime['path']} --env NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0"
        shown = host.check_output(run(opts, image, f"{CARDS} -L", asked, "gpu"))
        assert shown.count("GPU 0:") == 1
        assert shown.count("UUID: GPU-") == 1
        without = host.run(run(opts, image, f"{CARDS} -L", f"--runc-binary {runtime['path']}", "none"))
        assert "GPU 0:" not in without.stdout
