"""A line that is logged on the node is found by a query, once, with what it says in fields that it cannot forge."""

from __future__ import annotations

import json
import re
import secrets

import pytest
import yaml

UNIT = "coldiron-log-shipper.service"
STATES = {"rsyslog": "/var/lib/coldiron-log-shipper", "filebeat": "/var/lib/coldiron-filebeat"}
ETC = "/etc/coldiron/log-shipper"
# What of a shipper lies there, and whose its password is.
FILES = {
    "rsyslog": {"rsyslog.conf", "password", "ca.crt"},
    "filebeat": {"filebeat.yml", "filebeat.js", "ca.crt"},
}
SECRETS = {
    "rsyslog": ("password", ("root", "log-shipper", 0o640)),
    "filebeat": ("filebeat.yml", ("log-shipper", "log-shipper", 0o600)),
}
SECONDS = 120
# Who quotes a command line, how, and how the line ends that is kept of it.
QUOTES = (
    ("sudo", "x : PWD=/ ; USER=root ; ENV=A={} ; COMMAND=/bin/true", "; ENV= [left out]"),
    ("sudo", "x : PWD=/ ; COMMAND=/bin/true COMMAND={} COMMAND=x", "COMMAND=/bin/true [left out]"),
    ("sudo", "x : (command continued) {}", "(command continued) [left out]"),
    ("CRON", "(root) CMD (PASSWORD={} /bin/true)", "CMD ( [left out]"),
    ("ansible-ansible.legacy.command", "Invoked with _raw_params=true {}", "Invoked with [left out]"),
    ("pkexec", "x: Executing command [USER=root] [COMMAND=/bin/true {}]", "[COMMAND=/bin/true [left out]"),
    ("kernel", "audit: type=1309 audit(1.0:1): argc=2 a0=true a1={}", "argc= [left out]"),
)
# Standard library, on the node itself; who asks, with what, is on standard input and in no process list.
ASK = """
import base64, json, ssl, sys, urllib.error, urllib.request
w = json.load(sys.stdin)
h = {"Content-Type": "application/json",
     "Authorization": "Basic " + base64.b64encode((w["user"] + ":" + w["password"]).encode()).decode()}
s, t = 0, b"null"
for u in w["urls"]:
    r = urllib.request.Request(u + w["path"], data=json.dumps(w["body"]).encode(), headers=h)
    try:
        c = ssl.create_default_context(cafile=w["ca"])
        with urllib.request.urlopen(r, timeout=20, context=c) as a: s, t = a.status, a.read()
        break
    except urllib.error.HTTPError as e: s, t = e.code, e.read()
    except OSError: pass
print(json.dumps([s, json.loads(t)]))
"""


@pytest.fixture
def ask(host, opts):
    """Search as who reads: ask(body) is a status and the answer."""

    def asked(body, user="coldiron-reader", password=None):
        urls = [f"https://{one}:{opts['log_shipper_port']}" for one in opts["log_shipper_servers"]]
        words = {
            "urls": urls, "path": f"/{opts['log_shipper_data_stream']}/_search", "user": user, "body": body,
            "password": str.__str__(opts["elasticsearch_reader_password"] if password is None else password),
            "ca": f"{ETC}/ca.crt",
        }  # fmt: skip
        done = host.run("printf %%s %s | python3 -c %s", json.dumps(words), ASK)
        assert done.rc == 0, done.stderr
        return tuple(json.loads(done.stdout))

    return asked


@pytest.fixture
def find(ask):
    """Lines that hold a word: find(word) is a list of documents."""

    def found(word, size=20):
        body = {"size": size, "query": {"match": {"message": word}}, "track_total_hits": True}
        status, answer = ask(body)
        return [one["_source"] for one in answer["hits"]["hits"]] if status == 200 else []

    return found


@pytest.fixture
def arrived(ask, opts, find, eventually):
    """Wait until a line with the word is found, and give it. With ``text`` only a line that is no more than that.

    systemd tells of each command that it starts, whole.
    """

    def wait(word, text=""):
        return eventually(
            lambda: [line for line in find(word) if text in ("", line["message"])], seconds=SECONDS
        )[0]

    def of_late():
        """All that the node has logged in the last ten minutes, whole: also what no field is indexed of."""
        own = {"term": {"host.name": opts["log_shipper_host"]}}
        late = {"range": {"@timestamp": {"gte": "now-10m"}}}
        body = {"size": 10000, "sort": [{"@timestamp": "desc"}], "query": {"bool": {"filter": [own, late]}}}
        status, answer = ask(body)
        assert status == 200
        return answer["hits"]["hits"]

    wait.of_late = of_late
    return wait


@pytest.fixture
def agent(opts):
    """Who ships here."""
    return opts["log_shipper_agent"]


@pytest.fixture
def told(host, agent):
    """What the shipper is told: text for rsyslog, a tree for Filebeat. Tests call it."""

    def read():
        if agent == "filebeat":
            return yaml.safe_load(host.file(f"{ETC}/filebeat.yml").content_string)
        return host.file(f"{ETC}/rsyslog.conf").content_string

    return read


def word() -> str:
    return "w" + secrets.token_hex(8)


def log(host, text, *options):
    """Log a line as the node's programs do."""
    host.check_output("logger " + " ".join(options) + " -- %s", text)


def assert_left_out(host, arrived, canary):
    """Once all that was logged until now has come: no line has the word in any field."""
    fence = word()
    log(host, fence)
    assert arrived(fence)
    assert canary not in json.dumps(arrived.of_late())


def test_the_shipper_runs_and_a_boot_starts_it(host, eventually):
    unit = host.service(UNIT)
    assert unit.is_enabled
    assert eventually(lambda: unit.is_running, seconds=20)


def test_it_runs_as_a_user_who_may_do_nothing_else(host, opts, eventually):
    pid = eventually(lambda: int(host.check_output("systemctl show -p MainPID --value %s", UNIT)))
    status = dict(line.split(":", 1) for line in host.file(f"/proc/{pid}/status").content_string.splitlines())
    assert status["Uid"].split() == [str(host.user("log-shipper").uid)] * 4
    # Reading files that are not its own is all that it is ever given.
    allowed = 0b100 if opts["log_shipper_files"] else 0
    assert int(status["CapEff"], 16) == allowed


def test_nobody_else_reads_its_password(host, agent):
    name, expected = SECRETS[agent]
    file = host.file(f"{ETC}/{name}")
    assert (file.user, file.group, file.mode) == expected
    assert host.file(ETC).mode == 0o750
    assert host.file(STATES[agent]).mode == 0o700


def test_no_command_line_says_its_password(host, opts, eventually):
    pid = eventually(lambda: int(host.check_output("systemctl show -p MainPID --value %s", UNIT)))
    said = host.file(f"/proc/{pid}/cmdline").content_string + host.file(f"/proc/{pid}/environ").content_string
    assert str.__str__(opts["log_shipper_password"]) not in said


def test_it_is_the_declared_shipper_and_the_other_is_away(host, agent, eventually):
    pid = eventually(lambda: int(host.check_output("systemctl show -p MainPID --value %s", UNIT)))
    assert agent in host.file(f"/proc/{pid}/cmdline").content_string
    assert set(host.file(ETC).listdir()) == FILES[agent]
    for other, state in STATES.items():
        assert host.file(state).exists == (other == agent)


def test_the_package_s_own_unit_ships_nothing(host, agent):
    """Of Filebeat's package; where rsyslog ships, a Filebeat is the site's own."""
    if agent == "filebeat":
        assert host.check_output("systemctl is-active filebeat.service || true").strip() == "inactive"
        assert host.check_output("systemctl is-enabled filebeat.service || true").strip() == "disabled"


def test_it_ships_to_the_declared_servers_and_to_no_other(opts, agent, told):
    expected = [f"https://{one}:{opts['log_shipper_port']}" for one in opts["log_shipper_servers"]]
    if agent == "filebeat":
        output = told()["output"]
        assert list(output) == ["elasticsearch"]
        assert output["elasticsearch"]["hosts"] == expected
        assert output["elasticsearch"]["index"] == opts["log_shipper_data_stream"]
        return
    found = re.findall(r"server=\[([^\]]*)\] searchIndex=\"([^\"]*)\"", told())
    assert {(tuple(re.findall(r'"([^"]*)"', urls)), index) for urls, index in found} == {
        (tuple(expected), opts["log_shipper_data_stream"])
    }


def test_it_trusts_the_site_s_authority_alone(host, opts, agent, told):
    assert host.file(f"{ETC}/ca.crt").content_string.strip() == opts["log_shipper_ca_certificate"].strip()
    if agent == "filebeat":
        words = told()["output"]["elasticsearch"]["ssl"]
        assert words["verification_mode"] == "full"
        assert words["certificate_authorities"] == [f"{ETC}/ca.crt"]
        return
    text = told()
    assert "skipverify" not in text.lower()
    assert text.count('usehttps="on"') == text.count('type="omelasticsearch"')


def test_what_waits_lies_on_the_disk_and_is_bounded(opts, agent, told):
    if agent == "filebeat":
        queue = told()["queue"]
        assert list(queue) == ["disk"]
        assert queue["disk"]["max_size"] == opts["log_shipper_queue_mib"] * 1024 * 1024
        assert queue["disk"]["path"].startswith(STATES[agent])
        return
    text = told()
    assert 'queue.type="Disk"' in text
    assert f'queue.size="{opts["log_shipper_queue_lines"]}"' in text
    assert f'queue.maxDiskSpace="{opts["log_shipper_queue_mib"]}m"' in text
    assert 'main_queue(queue.type="Direct")' in text


def test_its_memory_and_its_own_log_are_bounded(host, opts, agent, told):
    unit = host.file(f"/etc/systemd/system/{UNIT}").content_string
    assert f"MemoryMax={opts['log_shipper_memory_mib']}M" in unit.splitlines()
    if agent == "filebeat":
        log = told()["logging"]
        assert (log["to_files"], log["to_stderr"]) == (True, False)
        for files in (log["files"], log["event_data"]["files"]):
            assert files["rotateeverybytes"] == opts["log_shipper_rejected_mib"] * 1024 * 1024
            assert (files["keepfiles"], files["permissions"]) == (2, 0o600)


def test_the_journal_leaves_room_and_nothing_is_kept_twice(host, opts):
    said = host.check_output("cat /etc/systemd/journald.conf.d/91-coldiron-log-shipper.conf")
    assert f"SystemKeepFree={opts['log_shipper_keep_free_mib']}M" in said.split()
    if not opts["log_shipper_system_rsyslog"]:
        assert not host.service("rsyslog").is_running
        assert host.check_output("systemctl is-enabled rsyslog.service || true").strip() == "masked"


@pytest.mark.acts
def test_a_logged_line_is_found_with_its_fields(host, opts, arrived):
    mark = word()
    log(host, f"{mark} hello", "-p", "daemon.warning", "-t", "coldiron-test")
    line = arrived(mark)
    assert line["message"] == f"{mark} hello"
    assert line["host"]["name"] == opts["log_shipper_host"]
    assert (line["log"]["level"], line["log"]["facility"]) == ("warning", "daemon")
    assert line["process"]["name"] in ("logger", "coldiron-test")
    assert line["user"]["id"] == "0"
    for name in ("cluster", "rack", "kind"):
        if opts[f"log_shipper_{name}"]:
            assert line["coldiron"][name] == opts[f"log_shipper_{name}"]


@pytest.mark.acts
def test_a_unit_s_line_says_the_unit(host, arrived):
    mark = word()
    host.check_output("systemd-run --wait --quiet --unit=%s echo %s", f"coldiron-{mark}", mark)
    assert arrived(mark, mark)["service"]["unit"] == f"coldiron-{mark}.service"


@pytest.mark.acts
def test_an_xid_is_told_of_with_its_gpu(host, arrived):
    mark = word()
    log(
        host,
        f"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name={mark}, GPU has fallen off the bus.",
        "-t",
        "kernel",
    )
    line = arrived(mark)
    assert (line["gpu"]["xid"], line["gpu"]["pci"]) == ("79", "0000:3b:00")
    assert line["event"]["kind"] == "gpu"


@pytest.mark.acts
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("mce: [Hardware Error]: Machine check events logged", "processor"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID", "memory"),
        ("pcieport 0000:00:1c.0: AER: Uncorrected (Fatal) error received", "pcie"),
        ("blk_update_request: I/O error, dev sda, sector 1", "disk"),
    ],
)
def test_the_kernel_s_hardware_errors_are_named(host, arrived, text, error):
    mark = word()
    log(host, f"{text} {mark}", "-t", "kernel", "-p", "user.err")
    assert arrived(mark)["hardware"]["error"] == error


@pytest.mark.acts
def test_nobody_but_root_speaks_for_the_kernel(host, arrived):
    mark = word()
    text = f"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name={mark}, forged"
    host.check_output("runuser -u nobody -- logger -t kernel -- %s", text)
    line = arrived(mark)
    assert "gpu" not in line
    # Of a process that was gone before the journal looked there is no name.
    assert line["process"].get("name") != "kernel"


@pytest.mark.acts
def test_nobody_speaks_for_another_by_being_gone_before_the_journal_looks(host, arrived):
    """A process that has ended has no name that the journal could read; what it called itself is not taken for one."""
    mark = word()
    host.check_output(
        "systemctl kill -s STOP systemd-journald; runuser -u nobody -- logger -t kernel -- %s; said=$?;"
        " systemctl kill -s CONT systemd-journald; exit $said",
        f"{mark} forged",
    )
    line = arrived(mark)
    assert line["user"]["id"] != "0"
    assert "name" not in line["process"]


@pytest.mark.acts
def test_what_sudo_and_systemd_quote_of_command_lines_is_left_out(host, arrived):
    mark, canary = word(), word()
    host.check_output("mkdir /tmp/%s && cd /tmp/%s && sudo -u nobody true --password=%s", mark, mark, canary)
    host.check_output("rmdir /tmp/%s", mark)
    line = arrived(mark)
    assert line["message"].endswith("/true [left out]")
    unit = f"{word()}.service"
    host.check_output("systemd-run --wait --quiet --unit=%s true --password=%s", unit, canary)
    assert arrived(unit, f"Started {unit} (start: done)")
    assert_left_out(host, arrived, canary)


@pytest.mark.acts
def test_whoever_quotes_command_lines_has_them_left_out(host, opts, arrived):
    """As those programs write it; where a site's own list is not the role's, those that are in it."""
    canary = word()
    expected = {}
    for program, text, kept in QUOTES:
        if any(re.fullmatch(one["program"], program) for one in opts["log_shipper_command_lines"]):
            mark = word()
            log(host, f"{mark} {text.format(canary)}", "-t", program)
            expected[mark] = kept
    assert {
        mark: arrived(mark)["message"].endswith(kept) for mark, kept in expected.items()
    } == dict.fromkeys(expected, True)
    assert_left_out(host, arrived, canary)


@pytest.mark.acts
def test_a_login_by_ssh_is_told_of_and_not_forged(host, arrived):
    mark, forged = word(), word()
    said = f"Failed password for invalid user {mark} from 192.0.2.7 port 1 ssh2"
    # As sshd itself would say it, of somebody who calls himself what looks like an answer.
    unit = "--unit=ssh@coldiron-test.service"
    text = (
        f"Failed password for invalid user x from 192.0.2.9 port 9 ssh2 {forged} from 192.0.2.7 port 1 ssh2"
    )
    host.check_output("systemd-run --wait --quiet %s echo %s", unit, said)
    host.check_output("systemd-run --wait --quiet %s echo %s", unit, text)
    line = arrived(mark, said)
    assert (line["event"]["kind"], line["event"]["action"]) == ("login", "failed")
    assert (line["user"]["name"], line["source"]["ip"]) == (mark, "192.0.2.7")
    assert arrived(forged, text)["source"]["ip"] == "192.0.2.7"
    other = word()
    log(host, f"Failed password for root from 192.0.2.8 port 1 ssh2 {other}", "-t", "sshd")
    assert "source" not in arrived(other)


@pytest.mark.acts
def test_lines_that_mean_harm_arrive_as_text(host, opts, arrived):
    """Line ends, escapes, JSON, text that is none, and a megabyte: each is a line, and its fields are its own."""
    mark = word()
    begin = 'import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect("/dev/log"); '
    harm = {
        "n": rb"first\n\", \"host\": {\"name\": \"forged\"}, \"x\": \"",
        "e": rb"\x1b[31mred\x1b[0m\x07",
        "u": rb"\xff\xfe\xc3( broken",
    }
    for name, text in harm.items():
        program = begin + f's.send(b"<13>coldiron-test: {mark}{name} " + b"' + text.decode() + '")'
        host.check_output("python3 -c %s", program)
    for name in harm:
        line = arrived(f"{mark}{name}")
        assert line["host"]["name"] == opts["log_shipper_host"]
        assert "x" not in line
    host.check_output(
        "printf '%%s' %s > /tmp/coldiron-long;"
        " head -c 1000000 /dev/zero | tr '\\0' A >> /tmp/coldiron-long;"
        " systemd-cat -t coldiron-test < /tmp/coldiron-long; rm /tmp/coldiron-long",
        f"{mark}l ",
    )
    assert len(arrived(f"{mark}l")["message"]) <= int(opts["log_shipper_line_kib"]) * 1024


@pytest.mark.acts
def test_a_name_that_is_no_text_loses_no_line(host, opts, arrived):
    mark = word()
    program = (
        "import ctypes, syslog; ctypes.CDLL(None).prctl(15, b'bad' + bytes([0xff, 0xfe]) + b'name', 0, 0, 0);"
        f"syslog.syslog('{mark} from a program whose name is no text')"
    )
    host.check_output("python3 -c %s", program)
    assert arrived(mark)["host"]["name"] == opts["log_shipper_host"]


@pytest.mark.acts
def test_a_file_is_shipped_too(host, opts, arrived):
    for file in opts["log_shipper_files"]:
        if "*" in file["path"]:
            continue
        mark = word()
        host.check_output("umask 077; echo %s >> %s", f"{mark} in a file", file["path"])
        line = arrived(mark)
        assert line["log"]["file"] == file["path"]
        assert line["process"]["name"] == file["name"]


@pytest.mark.acts
def test_no_line_is_lost_and_none_doubled_where_the_shipper_is_killed(host, find, eventually):
    """Lines go on while it is killed. What was read and not yet written down may come twice: one line at the most."""
    mark = word()
    for number in range(4):
        host.check_output(
            "for i in $(seq %s %s); do echo %s number$i; done | systemd-cat -t coldiron-test",
            str(number * 25), str(number * 25 + 24), mark,
        )  # fmt: skip
        host.check_output("systemctl kill -s KILL --kill-whom=main %s || true", UNIT)

    def all_there():
        lines = [line["message"] for line in find(mark, size=200)]
        return len(set(lines)) == 100 and lines

    lines = eventually(all_there, seconds=SECONDS)
    assert len(lines) - len(set(lines)) <= 4


def test_who_ships_cannot_read(ask, opts):
    status, _ = ask({}, user=opts["log_shipper_user"], password=opts["log_shipper_password"])
    assert status == 403
