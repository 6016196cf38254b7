"""The server of Placement: mutual TLS, the service, and a watch for each node."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

import grpc
import grpc.aio

from toolcell._extras import install_command
from toolcell_proto.v1 import placement_pb2_grpc, toolcell_pb2_grpc
from toolcelld.remote.certificates import TICKET_KEY_BYTES, Material
from toolcelld.remote.joining import Invitations, Joining, invitation
from toolcelld.remote.listener import OPTIONS
from toolcelld.rpc.interceptors import RefusalInterceptor
from toolcelld.sessions.lease import clock
from toolcelld_cluster.book import Book
from toolcelld_cluster.configuration import ClusterConfiguration, FileError, KubernetesSection
from toolcelld_cluster.engine import Engine
from toolcelld_cluster.inventory import Inventory
from toolcelld_cluster.keys import Keys, keys, stored
from toolcelld_cluster.ray.driver_process import DriverLost, DriverRefused, driver
from toolcelld_cluster.ray.engine import RayEngine
from toolcelld_cluster.service import Placement
from toolcelld_cluster.static import Static

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 64 * 1024
STREAMS_MAX: Final = 64
"""Of one connection: a client has one request at a time, for each of its sessions."""
PENDING_MAX: Final = 4096
STOP_SECONDS: Final = 1.0


async def run(
    configuration: ClusterConfiguration, invite: Sequence[str], on_serving: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        configuration: The file.
        invite: Tenants for each of which a code is printed.
        on_serving: Called when clients are served, and the engine has looked at its nodes once.

    Raises:
        FileError: The file or the keys cannot be used, or the address is taken.
    """
    unknown = [tenant for tenant in invite if tenant not in configuration.tenants]
    if unknown:
        raise FileError(f"{unknown[0]} is no tenant of the file: [tenants.{unknown[0]}]")
    names = stored(configuration.state) if configuration.kubernetes else configuration.nodes
    found = await asyncio.to_thread(keys, configuration.state, configuration.node, names)
    if configuration.ray is not None:
        await _check_ray(configuration)
    if configuration.kubernetes is not None:
        await _check_kubernetes(configuration.kubernetes)
    inventory = Inventory()
    for node in configuration.inventory().values():
        inventory.put(node)
    book = Book(configuration.rules(), inventory, clock(), int(time.time() * 1000))
    engine = _engine(configuration, book, found)
    book.freed = engine.release
    material = _material(configuration, found)
    invitations = Invitations(material)
    server = grpc.aio.server(interceptors=[RefusalInterceptor()], options=_options())
    service = Placement(book, engine, found)
    placement_pb2_grpc.add_PlacementServicer_to_server(service, server)
    toolcell_pb2_grpc.add_JoiningServicer_to_server(
        Joining(material, invitations, configuration.others), server
    )
    try:
        bound = server.add_secure_port(configuration.address, invitations.credentials())
    except RuntimeError as error:
        raise FileError(f"address: {configuration.address} cannot be listened on") from error
    await server.start()
    address = f"{configuration.address.rpartition(':')[0]}:{bound}"
    logger.info(
        "Placement serves %s, with the engine %s; keys are in %s.", address, engine.name, configuration.state
    )
    for tenant in invite:
        code = invitations.invite(tenant, ":")
        print(invitation(address, code, f"{tenant}'s cluster", command="toolcell cluster join"), flush=True)
    await _until_told(engine, on_serving)
    await server.stop(STOP_SECONDS)


def _engine(configuration: ClusterConfiguration, book: Book, found: Keys) -> Engine:
    if configuration.ray is not None:
        return RayEngine(configuration, configuration.ray, book, found)
    if configuration.kubernetes is not None:
        from toolcelld_cluster.kubernetes.engine import KubernetesEngine

        return KubernetesEngine(configuration, configuration.kubernetes, book, found)
    return Static(book, found, {name for name, section in configuration.nodes.items() if section.drain})


async def _check_kubernetes(section: KubernetesSection) -> None:
    """Raise FileError if the API server refuses what Placement needs, or the extra is not installed."""
    try:
        from toolcelld_cluster.kubernetes.engine import check
    except ImportError as error:
        if error.name is None or not error.name.startswith("httpx2"):
            raise
        needs = f"[kubernetes] needs a package that is not installed; {install_command('kubernetes')}"
        raise FileError(needs) from error
    await check(section)


async def _check_ray(configuration: ClusterConfiguration) -> None:
    """Raise FileError if the Ray cluster cannot be used, such as one that serves strangers."""
    assert configuration.ray is not None
    try:
        async with driver(configuration.ray):
            pass
    except (DriverLost, DriverRefused) as error:
        raise FileError(f"[ray] {error}") from error


async def _until_told(engine: Engine, on_serving: Callable[[], None]) -> None:
    """Run the engine until a signal comes."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(engine.run())
        telling = tasks.create_task(_tell(engine, on_serving))
        await over.wait()
        running.cancel()
        telling.cancel()


async def _tell(engine: Engine, on_serving: Callable[[], None]) -> None:
    """Call `on_serving` when the engine has looked at its nodes."""
    await engine.ready()
    on_serving()


def _material(configuration: ClusterConfiguration, found: Keys) -> Material:
    """Return what joining works with. The ticket that it signs is for no node: its key is kept nowhere."""
    return Material(
        address=configuration.address,
        node=configuration.node,
        certificate=found.certificate,
        key=found.key,
        client_ca=found.authority,
        tickets=os.urandom(TICKET_KEY_BYTES),
        sessions_max=0,
        authority_key=found.authority_key,
    )


def _options() -> tuple[tuple[str, int], ...]:
    return (
        *OPTIONS,
        ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.server.max_pending_requests", PENDING_MAX),
        ("grpc.server.max_pending_requests_hard_limit", PENDING_MAX),
    )
