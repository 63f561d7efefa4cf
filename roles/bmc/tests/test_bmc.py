"""The BMC answers, is the right one, and holds what is declared. Asked from here: nothing of this is on the node."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import urllib.request

import pytest

from coldiron.provision.bmc_ipmi import Ipmi
from coldiron.provision.bmc_trouble import Where

NETWORK = ("Pxe", "UefiHttp")


def told(opts, path):
    """Return a resource of a BMC that speaks Redfish, its certificate verified."""
    address, port = opts["bmc_address"], opts["bmc_port"] or 443
    words = f"{opts['bmc_user']}:{opts['bmc_password']}"
    headers = {"Authorization": "Basic " + base64.b64encode(words.encode()).decode()}
    request = urllib.request.Request(f"https://{address}:{port}{path}", headers=headers)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=opts["bmc_ca"] or None)),
    )
    with opener.open(request, timeout=opts["bmc_timeout_seconds"]) as answer:
        return json.load(answer)


def shown(opts):
    """Return the fingerprint of the certificate that the BMC shows, for those that were learnt."""
    pem = ssl.get_server_certificate((opts["bmc_address"], opts["bmc_port"] or 443), timeout=10)
    return f"SHA256:{hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest().upper()}"


@pytest.fixture(scope="module")
def system(opts, hostname):
    """What the BMC says of the machine; IPMI's words put into Redfish's."""
    if opts["bmc_protocol"] == "ipmi":
        where = Where(hostname, opts["bmc_address"], user=opts["bmc_user"])
        facts = Ipmi(where, str(opts["bmc_password"]), port=opts["bmc_port"]).facts(asset=True)
        boot = {
            "BootSourceOverrideEnabled": facts.override.enabled,
            "BootSourceOverrideTarget": facts.override.target,
        }
        return {"PowerState": facts.power, "SerialNumber": "".join(facts.asset.serials[:1]), "Boot": boot}
    if hostname in opts["bmc_known"]:
        # Its names and its signer count for nothing: that it is the learnt one was seen by the test of that.
        return {}
    return told(opts, told(opts, "/redfish/v1/Systems")["Members"][0]["@odata.id"])


def test_the_bmc_answers_for_one_machine(opts, system, hostname):
    if hostname in opts["bmc_known"]:
        assert shown(opts) == opts["bmc_known"][hostname]["fingerprint"]
    else:
        assert system["PowerState"] in ("On", "Off", "PoweringOn", "PoweringOff")


def test_the_machine_is_the_declared_one(opts, system):
    known = {system.get(key) for key in ("SerialNumber", "SKU", "ServiceTag")} - {None, ""}
    if opts["bmc_serial"] and known:
        assert opts["bmc_serial"].lower() in {word.lower() for word in known}


def test_no_override_sends_the_machine_back_to_its_installation(system):
    boot = system.get("Boot") or {}
    enabled, target = boot.get("BootSourceOverrideEnabled"), boot.get("BootSourceOverrideTarget")
    assert enabled in (None, "Disabled", "Once") or target not in NETWORK, boot


def test_bios_attributes_are_as_declared_or_wait_for_a_start(opts, system):
    if not opts["bmc_attributes"]:
        return
    bios = told(opts, system["Bios"]["@odata.id"])
    link = (bios.get("@Redfish.Settings") or {}).get("SettingsObject")
    staged = (told(opts, link["@odata.id"]).get("Attributes") or {}) if link else {}
    now = {name: staged.get(name, bios["Attributes"].get(name)) for name in opts["bmc_attributes"]}
    assert now == dict(opts["bmc_attributes"])


def test_the_boot_order_begins_as_declared(opts, system):
    if not opts["bmc_boot_order"]:
        return
    options = told(opts, system["Boot"]["BootOptions"]["@odata.id"])["Members"]
    named = {one["BootOptionReference"]: one for one in (told(opts, link["@odata.id"]) for link in options)}
    first = system["Boot"]["BootOrder"][: len(opts["bmc_boot_order"])]
    for reference, wanted in zip(first, opts["bmc_boot_order"], strict=True):
        assert wanted in (reference, named[reference].get("DisplayName"))
