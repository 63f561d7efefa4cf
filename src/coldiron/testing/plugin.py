"""pytest plugin: a role's testinfra files run over ssh on the inventory's hosts of that role.

    pytest -p coldiron.testing.plugin roles/time/tests --inventory inventories/virtual --limit gpu01

Fixtures (module ``coldiron.testing.fixtures``): ``host`` (testinfra), ``hostname``, ``opts`` (its role's options
there), ``hostvars``, ``role_hosts``, ``as_user``, ``run_on``, ``ask_web``, ``exporter``, ``eventually``.
Without paths, ``--inventory`` or ``--role`` runs the tests of all roles, or of those roles.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coldiron.errors import ColdironError
from coldiron.testing.site import Site, load_site
from coldiron.testing.stages import find_collection

DEFAULT_INVENTORY = "inventories/virtual"
SITE = pytest.StashKey[Site]()
ACTS = "acts"
NO_HOST = "no_host"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that say which nodes and which roles are tested."""
    group = parser.getgroup("coldiron", "tests of roles on real nodes")
    group.addoption(
        "--inventory",
        action="append",
        metavar="PATH",
        help=f"inventory whose nodes are tested, as ansible-playbook's -i (default: {DEFAULT_INVENTORY})",
    )
    group.addoption(
        "--limit",
        metavar="PATTERN",
        help="test only hosts that this Ansible pattern matches",
    )
    group.addoption(
        "--role",
        action="append",
        metavar="ROLE",
        help="test only this role; repeat it or separate by commas",
    )
    group.addoption(
        "--read-only",
        action="store_true",
        help="run every command in a read-only view of its node, and leave out the tests that act",
    )
    group.addoption(
        "--active",
        action="store_true",
        help="with --read-only: run the tests that act too, they alone without the read-only view",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures after testinfra's own, so that they win, and choose what to run."""
    from coldiron.testing import fixtures

    config.pluginmanager.register(fixtures, "coldiron-fixtures")
    config.addinivalue_line("markers", f"{ACTS}: it acts on the nodes (runs a job, writes a file)")
    config.addinivalue_line("markers", f"{NO_HOST}: no host has the test's role: it is left out")
    asked = config.getoption("--inventory") or config.getoption("--role")
    if asked and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = role_test_folders(wanted_roles(config))


def role_test_folders(roles: list[str]) -> list[str]:
    """Return the test folders of these roles (of all when there are none named)."""
    folder = find_collection() / "roles"
    names = roles or sorted(path.parent.name for path in folder.glob("*/tests"))
    for name in names:
        if not (folder / name / "tests").is_dir():
            raise pytest.UsageError(f"role {name} has no tests: {folder / name / 'tests'} does not exist")
    return [str(folder / name / "tests") for name in names]


def wanted_roles(config: pytest.Config) -> list[str]:
    """Return the roles named with --role; none means all."""
    return [name for text in config.getoption("--role") or [] for name in text.split(",") if name]


def site_of(config: pytest.Config) -> Site:
    """Return the site under test, loaded once; a broken inventory ends the run with one line."""
    if SITE not in config.stash:
        given = config.getoption("--inventory") or [DEFAULT_INVENTORY]
        sources = tuple(Path(path).resolve() for text in given for path in text.split(","))
        try:
            config.stash[SITE] = load_site(sources)
        except ColdironError as error:
            raise pytest.UsageError(error.message) from error
        config.stash[SITE].connections.watch.read_only = config.getoption("--read-only")
    return config.stash[SITE]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Load a named inventory before anything is collected: a broken one is one line, not one a test."""
    if session.config.getoption("--inventory"):
        site_of(session.config)


def role_of(path: Path) -> str | None:
    """Return the role that a test file belongs to: roles/ROLE/tests/…; None for any other file."""
    parts = path.parts
    for index in range(len(parts) - 3, -1, -1):
        if parts[index] == "roles" and parts[index + 2] == "tests":
            return parts[index + 1]
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses ``hostname`` (``host``, ``opts`` … do) once for each host of its role."""
    if "hostname" not in metafunc.fixturenames:
        return
    site = site_of(metafunc.config)
    role = role_of(Path(str(metafunc.definition.path)))
    try:
        hosts = site.hosts_of_role(role) if role else site.hosts()
        limit = metafunc.config.getoption("--limit")
        if limit:
            within = set(site.hosts(limit))
            hosts = [host for host in hosts if host in within]
    except ColdironError as error:
        raise pytest.UsageError(error.message) from error
    # Left to itself, pytest would tell of a test that was skipped, on a host that is none.
    nobody = [pytest.param("", marks=getattr(pytest.mark, NO_HOST))]
    metafunc.parametrize("hostname", hosts or nobody, scope="module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of roles that no host has or that --role does not name, and those that act when nothing may."""
    items[:] = [item for item in items if item.get_closest_marker(NO_HOST) is None]
    wanted = wanted_roles(config)
    only_looks = config.getoption("--read-only") and not config.getoption("--active")
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        other = bool(wanted) and role_of(item.path) not in wanted
        acts = only_looks and item.get_closest_marker(ACTS) is not None
        (left_out if other or acts else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Set what the commands of a test may do, its fixtures' included, before anything of it runs."""
    if SITE in item.config.stash:
        watch = item.config.stash[SITE].connections.watch
        watch.read_only = item.config.getoption("--read-only") and item.get_closest_marker(ACTS) is None
        watch.journal.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Take every secret that the site knows out of what is reported."""
    report = yield
    if SITE in item.config.stash and isinstance(report, pytest.TestReport):
        redactor = item.config.stash[SITE].redactor
        if report.longrepr is not None and redactor.found_in(str(report.longrepr)):
            report.longrepr = redactor.clean(str(report.longrepr))
        report.sections = [(title, redactor.clean(text)) for title, text in report.sections]
    return report
