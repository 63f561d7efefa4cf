"""What went wrong with a BMC, in one line that says what to do, and whether asking again may help."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown, shown_whole


@dataclass(frozen=True)
class Where:
    """The BMC in question. ``credentials`` is the variable's name, never its value; ``ca`` the file that vouches."""

    node: str
    address: str
    credentials: str = ""
    user: str = ""
    ca: str = ""

    def told(self, what: str) -> str:
        """The line that names node and BMC before ``what``."""
        return f"{self.node}: BMC {shown(self.address)}: {what}"


class Trouble(ColdironError):
    """A BMC that cannot be asked. ``passing``: a pause may help, so it is asked again, a few times."""

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message, ExitCode.ENVIRONMENT)
        self.passing = passing


# What the modules, Python's ssl and ipmitool say; the first that fits. {…} are filled from Where.
_KNOWN: tuple[tuple[str, str, bool], ...] = (
    (
        r"Error 40[13]|unauthorized name|RAKP 2 HMAC is invalid|insufficient privilege|invalid role",
        "it refuses the user `{user}`; write the right user and password into `{credentials}`, and see on the BMC "
        "that the account is enabled",
        False,
    ),
    (
        r"Hostname mismatch|IP address mismatch|doesn't match",
        "its certificate is for another name or address; give it one that names {address}, or learn this one: "
        "{learn}",
        False,
    ),
    (
        r"certificate has expired|not yet valid",
        "its certificate is past its time (or this machine's clock is wrong); renew it on the BMC",
        False,
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|self[- ]signed certificate",
        "nobody that {ca} vouches for has signed its certificate; name the right CA in `coldiron_bmc_ca`, or learn "
        "this one: {learn}",
        False,
    ),
    (
        r"WRONG_VERSION_NUMBER|UNEXPECTED_EOF|SSLV3|TLSV1|wrong version number|EOF occurred in violation",
        "it does not speak TLS as it should; see that Redfish is enabled on it, and that the port is right",
        False,
    ),
    (r"Error 503", "it is busy (HTTP 503)", True),
    (r"Error 50[024]", "it has an error of its own (HTTP 5xx); restart the BMC if it stays", True),
    (r"timed out|timeout", "it does not answer in time", True),
    (
        r"refused|No route to host|unreachable|Name or service|Errno -[23]|nodename",
        "nothing answers there; see its cable, its power and `bmc.address` in cluster.yml",
        True,
    ),
    (
        r"Unable to establish IPMI v2",
        "no IPMI session with it (RMCP+); see its cable and address, its user and password, that IPMI over LAN is "
        "enabled, and the cipher suite",
        True,
    ),
    # ipmitool's words where no answer came; with one it says "Set Chassis Power Control … failed: why".
    (r"Unable to (?:set|get) Chassis Power", "it does not answer in time", True),
    (r"reset by peer|RemoteDisconnected|closed connection|IncompleteRead", "it hangs up", True),
    (
        r"Error 404|resource not found|empty or missing",
        "there is no Redfish where it should be; see that Redfish is enabled and licensed on it",
        False,
    ),
    (r"Error 4\d\d", "it refuses the request", False),
    (
        r"Expecting |JSONDecode|Extra data|Unterminated|KeyError|TypeError|AttributeError|codec can't",
        "its answer makes no sense; see whether something else has its address, or restart the BMC",
        False,
    ),
)


def trouble(where: Where, said: str, secret: str = "") -> Trouble:
    """What ``said``, the words of a module or of ipmitool, means; ``secret`` never shows."""
    said = " ".join(said.replace(secret, "***").split() if secret else said.split())
    for pattern, words, passing in _KNOWN:
        if re.search(pattern, said, re.IGNORECASE):
            told = words.format(
                user=shown(where.user),
                credentials=shown(where.credentials) or "bmc_user` and `bmc_password",
                address=shown(where.address),
                ca=f"`{shown(where.ca)}`" if where.ca else "this machine",
                learn=f"ansible-playbook coldiron.cluster.bmc -e bmc_task=trust --limit {where.node}",
            )
            extended = re.search(r"extended message: '(.+?)'", said)
            if extended and words.startswith(("it refuses the request", "it has an error")):
                told += f": {shown_whole(extended[1])}"
            return Trouble(where.told(told), passing=passing)
    return Trouble(where.told(f"it cannot be asked: {shown_whole(said[:300] or 'no reason given')}"))
