"""Addresses of this machine and its link are known in every form."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.network.addresses import is_own, leads_home

OWN = "198.51.100.7"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "::1", "169.254.169.254", "fe80::1%eth0", "0.0.0.0",  # noqa: S104  # refused
        "0.1.2.3", "::", "224.0.0.1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::1",
        "64:ff9b::127.0.0.1", "64:ff9b:1:7f00:0:100::", "64:ff9b:1::7f00:1", "2001:0:102:304::80ff:fffe",
        "2001:0:7f00:1::ffff:ffff", "fe80::5efe:7f00:1", "2a00::5efe:7f00:1", "2a00::200:5efe:7f00:1", "localhost", "",
    ],
)  # fmt: skip
def test_an_address_that_leads_home_is_known(address: str) -> None:
    assert leads_home(address, lambda _: False)


@pytest.mark.parametrize(
    "address",
    [OWN, f"::ffff:{OWN}", "2002:c633:6407::", "64:ff9b::c633:6407", "64:ff9b:1:c633:64:700::", f"::{OWN}"],
)
def test_an_own_address_that_is_no_loopback_leads_home_in_every_form(address: str) -> None:
    assert leads_home(address, lambda each: each == OWN)


@pytest.mark.parametrize(
    "address", ["198.51.100.9", "10.0.0.1", "2606:4700::1111", "64:ff9b::c633:6409", "::ffff:10.0.0.1"]
)
def test_an_address_elsewhere_does_not(address: str) -> None:
    assert not leads_home(address, lambda each: each == OWN)


@given(st.ip_addresses().map(str))
def test_every_address_has_an_answer(address: str) -> None:
    assert leads_home(address, lambda _: True)


def test_the_kernel_knows_which_addresses_are_this_machines() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("203.0.113.77")  # of documentation: no machine has it
    own = {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET)}
    assert all(map(is_own, own))
