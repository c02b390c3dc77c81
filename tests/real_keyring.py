"""A real gnome-keyring for tests, on a session bus of its own: nothing of it is left when the test ends.

Programs that get its environment find it as on a desktop; the machine's own bus and keyrings are out of reach.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jeepney import DBusAddress, MessageType, Properties, new_method_call
from jeepney.io.blocking import open_dbus_connection
from polling import eventually

PASSWORD = "correct horse"
NAME = "org.freedesktop.secrets"
START_S = 10.0

BUS_CONFIG = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <servicedir>{services}</servicedir>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


class PrivateBus(dict[str, str]):
    """The environment of programs on the bus."""

    def call(self, path: str, interface: str, method: str, signature: str = "", *body: object) -> tuple[object, ...]:
        """Return the answer of the bus's Secret Service."""
        message = new_method_call(DBusAddress(path, NAME, interface), method, signature or None, body)
        return self._answer(message)

    def has_secret_service(self) -> bool:
        """Return whether a program is the Secret Service on this bus."""
        bus = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        return bool(self._answer(new_method_call(bus, "NameHasOwner", "s", (NAME,)))[0])

    def _answer(self, message: object) -> tuple[Any, ...]:
        with open_dbus_connection(self["DBUS_SESSION_BUS_ADDRESS"]) as connection:
            reply = connection.send_and_get_reply(message, timeout=START_S)
        assert reply.header.message_type is not MessageType.error, reply
        return tuple(reply.body)


class PrivateKeyring(PrivateBus):
    """The environment of programs that use the keyring, and the actions of its owner."""

    daemon: subprocess.Popen[bytes]

    @property
    def collection(self) -> str:
        """Return the path of the default collection; "/" for none, which a daemon may answer once to a new client."""
        where = "/org/freedesktop/secrets", "org.freedesktop.Secret.Service"
        answers = (str(self.call(*where, "ReadAlias", "s", "default")[0]) for _ in range(3))
        return next((answer for answer in answers if answer != "/"), "/")

    def lock(self) -> None:
        """Lock the default collection."""
        self.call("/org/freedesktop/secrets", "org.freedesktop.Secret.Service", "Lock", "ao", [self.collection])

    def unlock(self) -> None:
        """Unlock the default collection, like a prompt of the desktop, but over one connection without encryption."""
        service = DBusAddress("/org/freedesktop/secrets", NAME, "org.freedesktop.Secret.Service")
        private = service.with_interface("org.gnome.keyring.InternalUnsupportedGuiltRiddenInterface")
        collection = self.collection
        with open_dbus_connection(self["DBUS_SESSION_BUS_ADDRESS"]) as connection:
            open_session = new_method_call(service, "OpenSession", "sv", ("plain", ("s", "")))
            _output, session = connection.send_and_get_reply(open_session, timeout=START_S).body
            secret = (session, b"", PASSWORD.encode(), "text/plain")
            unlock = new_method_call(private, "UnlockWithMasterPassword", "o(oayays)", (collection, secret))
            reply = connection.send_and_get_reply(unlock, timeout=START_S)
        assert reply.header.message_type is not MessageType.error, reply

    def ready(self) -> bool:
        """Return whether the daemon has its name and an open default collection: it takes the name first."""
        return self.has_secret_service() and self.collection != "/" and not self.locked()

    def locked(self) -> bool:
        """Return whether the default collection is locked."""
        where = DBusAddress(self.collection, NAME, "org.freedesktop.Secret.Collection")
        _type, is_locked = self._answer(Properties(where).get("Locked"))[0]
        return bool(is_locked)

    def pause(self) -> None:
        """Pause the daemon until `resume`."""
        self.daemon.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the daemon go on."""
        self.daemon.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the daemon; the bus stays."""
        self.daemon.kill()
        self.daemon.wait()

    def start(self) -> None:
        """Start the daemon, with its collection open."""
        for attempt in range(3):
            try:
                self.daemon = _daemon(self)
                break
            except BrokenKeyring:  # it crashes at times, when it is asked while it opens the collection
                if attempt == 2:
                    raise


@contextmanager
def private_bus(folder: Path, activatable: str | None = None) -> Iterator[PrivateBus]:
    """Yield a session bus without a Secret Service; `activatable` is the program that it would start as one."""
    short = Path(tempfile.mkdtemp(prefix="omac-bus-", dir="/tmp"))  # a socket's path has room for 107 bytes
    try:
        environment = _environment(folder, short)
        services = folder / "services"
        services.mkdir()
        if activatable:
            (services / f"{NAME}.service").write_text(f"[D-BUS Service]\nName={NAME}\nExec={activatable}\n")
        config = folder / "bus.conf"
        config.write_text(BUS_CONFIG.format(socket=short / "socket", services=services))
        argv = ["dbus-daemon", "--nofork", "--print-address=1", f"--config-file={config}"]
        with subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as bus:
            try:
                assert bus.stdout is not None
                address = bus.stdout.readline().decode().strip()
                assert address, "dbus-daemon did not start"
                yield PrivateBus(environment, DBUS_SESSION_BUS_ADDRESS=address)
            finally:
                bus.kill()
    finally:
        shutil.rmtree(short, ignore_errors=True)


@contextmanager
def private_keyring(folder: Path) -> Iterator[PrivateKeyring]:
    """Yield a gnome-keyring with an empty, open login keyring under PASSWORD."""
    with private_bus(folder) as bus:
        keyring = PrivateKeyring(bus)
        keyring.start()
        try:
            yield keyring
        finally:
            keyring.daemon.kill()
            keyring.daemon.wait()


class BrokenKeyring(Exception):
    """A gnome-keyring-daemon that ended before its collection was open."""


def _daemon(keyring: PrivateKeyring) -> subprocess.Popen[bytes]:
    argv = ["gnome-keyring-daemon", "--unlock", "--foreground", "--components=secrets"]
    daemon = subprocess.Popen(
        argv, env=keyring, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert daemon.stdin is not None
        daemon.stdin.write(PASSWORD.encode())
        daemon.stdin.close()
        eventually(lambda: keyring.ready() or daemon.poll() is not None, START_S, "an open keyring")
        assert daemon.poll() is None, "gnome-keyring-daemon did not start"
        return daemon
    except BaseException as problem:
        with suppress(subprocess.TimeoutExpired):
            daemon.wait(1)
        if daemon.poll() is not None:
            raise BrokenKeyring("gnome-keyring-daemon ended") from problem
        daemon.kill()
        daemon.wait()
        raise


def _environment(folder: Path, runtime: Path) -> dict[str, str]:
    names = {"HOME": "home", "XDG_DATA_HOME": "data", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache"}
    found = {name: str(folder / "keyring" / place) for name, place in names.items()}
    for place in found.values():
        Path(place).mkdir(parents=True)
    return {"PATH": os.environ["PATH"], **found, "XDG_RUNTIME_DIR": str(runtime)}
