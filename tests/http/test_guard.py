"""Addresses that must not be reached, however they are written, found or hidden."""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.transports.ssrf import EVERYWHERE, AddressRefused, check_address, guarded
from tests.http.receiver import Receiver, answer
from tests.http.sending import FakeResolver, fail, leased, send, transport_to

FORBIDDEN = {
    "0.0.0.0": "unspecified",  # noqa: S104 - an address to refuse
    "0.1.2.3": "unspecified",
    "::": "unspecified",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "::1": "loopback",
    "10.0.0.1": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "169.254.1.1": "link-local",
    "169.254.169.254": "a metadata service",
    "168.63.129.16": "a metadata service",
    "fd00:ec2::254": "a metadata service",
    "100.64.0.1": "shared by a carrier's customers",
    "100.100.100.200": "shared by a carrier's customers",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "ff02::1": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "192.0.0.192": "reserved",
    "192.0.2.1": "for documentation",
    "198.51.100.1": "for documentation",
    "203.0.113.1": "for documentation",
    "2001:db8::1": "for documentation",
    "3fff::1": "for documentation",
    "198.18.0.1": "for benchmarks",
    "fc00::1": "unique-local",
    "fd12:3456::1": "unique-local",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fec0::1": "link-local",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:7f00:1": "loopback",
    "::ffff:10.0.0.1": "private",
    "::ffff:169.254.169.254": "a metadata service",
    "::ffff:0.0.0.0": "unspecified",
    "64:ff9b::127.0.0.1": "loopback",
    "64:ff9b::a00:1": "private",
    "64:ff9b::169.254.169.254": "a metadata service",
    "64:ff9b:1::a00:1": "reserved",
    "2002:7f00:1::": "a 6to4 tunnel",
    "2002:808:808::1": "a 6to4 tunnel",
    "192.88.99.1": "a 6to4 tunnel",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2": "a Teredo tunnel",
    "2001:10::1": "reserved",
    "::127.0.0.1": "reserved",
    "::ffff:0:127.0.0.1": "reserved",
    "100::1": "reserved",
    "4000::1": "reserved",
    "localhost": "not an address",
    "127.1": "not an address",
    "2130706433": "not an address",
    "0x7f000001": "not an address",
    "0177.0.0.1": "not an address",
    "": "not an address",
}
PUBLIC = (
    *("1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1"),
    *("192.167.1.1", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001::1"),
    *("::ffff:8.8.8.8", "64:ff9b::8.8.8.8"),
)


@pytest.mark.parametrize(("address", "kind"), FORBIDDEN.items())
def test_what_is_not_public_is_forbidden_by_its_kind(address: str, kind: str) -> None:
    assert check_address(address) == kind


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_allowed(address: str) -> None:
    assert check_address(address) is None


def test_an_allowed_network_opens_itself_and_nothing_else() -> None:
    allowed = [ip_network("10.1.0.0/16"), ip_network("fd00::/64")]

    assert check_address("10.1.2.3", allowed) is None
    assert check_address("::ffff:10.1.2.3", allowed) is None
    assert check_address("fd00::7", allowed) is None
    assert check_address("10.2.0.1", allowed) == "private"
    assert check_address("fd00:0:0:1::7", allowed) == "unique-local"
    assert check_address("127.0.0.1", allowed) == "loopback"


def test_a_name_is_no_address_even_when_everything_is_allowed() -> None:
    """Whoever connects would look it up once more, and perhaps find something else."""
    assert check_address("localhost", EVERYWHERE) == "not an address"


@given(st.ip_addresses(v=4))
def test_no_spelling_of_an_ipv4_address_fares_better_than_the_plain_one(
    address: IPv4Address,
) -> None:
    plain = check_address(str(address))

    for prefix in ("::ffff:0:0", "64:ff9b::"):
        spelled = IPv6Address(int(ip_address(prefix)) | int(address))
        assert check_address(str(spelled)) == plain
        assert check_address(spelled.exploded) == plain


@given(st.ip_addresses())
def test_nothing_that_the_library_knows_to_be_special_is_allowed(
    address: IPv4Address | IPv6Address,
) -> None:
    is_special = (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )

    if is_special and getattr(address, "ipv4_mapped", None) is None:
        assert check_address(str(address)) is not None or address in ip_network("64:ff9b::/96")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "localhost"])
def test_no_socket_is_made_for_a_forbidden_address(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    with pytest.raises(AddressRefused) as refusal:
        guarded(())((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, 80)))

    assert refusal.value.address == address


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.1", "255.255.255.255"),
        *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"),
        *("[fd00::1]", "[fe80::1]", "[ff02::1]"),
    ],
)
async def test_a_literal_address_is_refused_at_connect_time(host: str) -> None:
    """Literals never go through the resolver."""
    failure = await fail(f"http://{host}:9/hooks", allow_networks=())

    assert failure.nature is Nature.TERMINAL
    assert failure.fault.rule == "address not allowed"
    assert host.strip("[]") in failure.fault.message
    assert "allow_networks" in failure.fault.message


async def test_nothing_reaches_a_server_that_must_not_be_reached(receiver: Receiver) -> None:
    failure = await fail(receiver.url, allow_networks=())

    assert failure.fault.code == "loopback"
    assert receiver.requests == []


@pytest.mark.parametrize(
    "addresses",
    [("127.0.0.1",), ("10.0.0.1", "192.168.0.1"), ("::ffff:127.0.0.1", "fd00::1")],
    ids=["one", "two", "hidden"],
)
async def test_a_name_that_leads_to_forbidden_addresses_is_refused(
    addresses: tuple[str, ...],
) -> None:
    resolver = FakeResolver(addresses)

    async with transport_to(
        "http://inside.example.com/", resolver=resolver, allow_networks=()
    ) as transport:
        (outcome,) = await transport.send([leased()])

    assert isinstance(outcome, Faulted)
    assert outcome.nature is Nature.TERMINAL
    assert f"inside.example.com leads to {addresses[0]}" in outcome.fault.message


async def test_a_name_that_is_rebound_to_a_forbidden_address_is_refused(
    receiver: Receiver,
) -> None:
    """The name is looked up for every connection, so each one is checked."""
    port = receiver.url.rpartition(":")[2]
    resolver = FakeResolver(("127.0.0.1",), ("127.0.0.2",))
    url = f"http://rebound.example.com:{port}/"

    outcomes: list[Outcome] = []
    for _ in range(2):
        async with transport_to(url, resolver=resolver, allow_networks=("127.0.0.1",)) as transport:
            outcomes += await transport.send([leased()])

    assert outcomes[0] == Succeeded()
    assert isinstance(outcomes[1], Faulted)
    assert outcomes[1].fault.rule == "address not allowed"
    assert len(receiver.requests) == 1


async def test_a_resolver_that_answers_with_a_name_gains_nothing(receiver: Receiver) -> None:
    """The socket would look that name up itself, past every check."""
    port = receiver.url.rpartition(":")[2]

    async with transport_to(
        f"http://sly.example.com:{port}/", resolver=FakeResolver(("localhost",)), allow_private=True
    ) as transport:
        (outcome,) = await transport.send([leased()])

    assert isinstance(outcome, Faulted)
    assert outcome.fault.rule == "address not allowed"
    assert receiver.requests == []


async def test_a_forbidden_address_beside_an_allowed_one_is_left_out(receiver: Receiver) -> None:
    port = receiver.url.rpartition(":")[2]
    resolver = FakeResolver(("10.0.0.1", "::1", "127.0.0.1"))

    async with transport_to(f"http://both.example.com:{port}/", resolver=resolver) as transport:
        outcomes = await transport.send([leased()])

    assert outcomes == [Succeeded()]


async def test_an_allowed_host_that_is_down_stays_transient_beside_a_forbidden_one() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        resolver = FakeResolver(("127.0.0.1", "10.0.0.1"))
        url = f"http://both.example.com:{closed.getsockname()[1]}/"

        async with transport_to(url, resolver=resolver) as transport:
            (outcome,) = await transport.send([leased()])

    assert isinstance(outcome, Faulted)
    assert outcome.fault.rule == "network: ConnectionRefusedError"


async def test_a_name_without_an_address_is_transient() -> None:
    async with transport_to("http://empty.example.com/", resolver=FakeResolver(())) as transport:
        (outcome,) = await transport.send([leased()])

    assert isinstance(outcome, Faulted)
    assert outcome.nature is Nature.TRANSIENT


async def test_a_redirect_into_the_network_is_not_followed(receiver: Receiver) -> None:
    receiver.answers(answer(302, location="http://169.254.169.254/latest/meta-data"))

    failure = await fail(receiver.url)

    assert failure.fault.rule == "status 302"
    assert len(receiver.requests) == 1


async def test_a_proxy_of_the_environment_is_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a proxy the socket would see only the proxy's address."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.delenv("NO_PROXY", raising=False)

    assert await send(receiver.url) == Succeeded()


@pytest.mark.parametrize("options", [{"allow_private": True}, {"allow_networks": ["127.0.0.0/8"]}])
async def test_what_is_allowed_is_reached(receiver: Receiver, options: dict[str, object]) -> None:
    assert await send(receiver.url, **options) == Succeeded()  # type: ignore[arg-type]


async def test_the_refusal_survives_the_connectors_own_handling() -> None:
    """Two refusals in one connect must not become an OSError that has forgotten what it was."""
    connector = aiohttp.TCPConnector(
        resolver=FakeResolver(("10.0.0.1", "10.0.0.2", "fd00::1")), socket_factory=guarded(())
    )
    async with aiohttp.ClientSession(connector=connector) as session:
        with pytest.raises(aiohttp.ClientConnectorError) as refusal:
            await session.get("http://three.example.com/")

    assert isinstance(refusal.value.os_error, AddressRefused)
