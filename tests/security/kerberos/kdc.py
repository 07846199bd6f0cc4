"""A Kerberos realm for tests: a KDC of MIT Kerberos on a loopback port, and key tables of its principals.

Needs the programs of Debian's krb5-kdc, krb5-admin-server and krb5-user. The KDC's database and the key
tables are in a temporary directory; nothing of the machine's own Kerberos is read or changed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

REALM = "KONVENE.TEST"
HOST = "localhost"
BROKER = f"kafka/{HOST}@{REALM}"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
START_S = 60
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


def missing() -> str | None:
    """Return what a test with Kerberos lacks on this machine; None if it can run."""
    absent = [program for program in PROGRAMS if _path(program) is None]
    if absent:
        return f"Kerberos: {', '.join(absent)} (Debian's krb5-kdc, krb5-admin-server and krb5-user)"
    try:
        import gssapi  # noqa: F401
    except ImportError:
        return "Kerberos: the library gssapi (konvene[gssapi])"
    return None


def _path(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Realm:
    """A running realm with the principals `kafka/localhost`, `alice` and `bob`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "krb5.conf"
        self.environment = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": str(folder / "no-tickets"),
            "KRB5RCACHEDIR": str(folder),
        }
        self._kdc: subprocess.Popen[bytes] | None = None

    def keytab(self, principal: str) -> Path:
        """Return the key table of a principal, which is written at the first call."""
        path = self.folder / f"{principal.partition('@')[0].replace('/', '-')}.keytab"
        if not path.exists():
            self._admin(f"addprinc -randkey {principal}")
            self._admin(f"ktadd -k {path} {principal}")
        return path

    def jaas(self, principal: str, keytab: Path | None = None) -> str:
        """Return the JAAS configuration of a principal, which Java's clients and brokers also read."""
        path = self.keytab(principal) if keytab is None else keytab
        return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{path}" principal="{principal}";'

    def client(self, user: str, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
        """Return client properties of a user."""
        return {
            "security.protocol": protocol,
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": self.jaas(f"{user}@{REALM}"),
        }

    def start(self) -> None:
        port = _free_port()
        self.config.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\n"
            "rdns = false\ndns_canonicalize_hostname = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\n kdc = 127.0.0.1:{port}\n}}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f'[kdcdefaults]\nkdc_listen = ""\nkdc_tcp_listen = 127.0.0.1:{port}\n'
            f"[realms]\n{REALM} = {{\n database_name = {self.folder}/principals\n"
            f" key_stash_file = {self.folder}/stash\n acl_file = {self.folder}/acl\n"
            " max_renewable_life = 1d\n supported_enctypes = aes256-cts:normal\n}\n"
            f"[logging]\nkdc = FILE:{self.folder}/kdc.log\nadmin_server = FILE:{self.folder}/admin.log\n"
        )
        self._run("kdb5_util", "create", "-s", "-W", "-P", "master", "-r", REALM)
        self._kdc = subprocess.Popen(
            [_path("krb5kdc") or "", "-n", "-r", REALM],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_S
        while not _accepts(port):
            if self._kdc.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the KDC did not start: {(self.folder / 'kdc.log').read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self._kdc is not None:
            self._kdc.terminate()
            self._kdc.wait(START_S)

    def _admin(self, query: str) -> None:
        self._run("kadmin.local", "-r", REALM, "-q", query)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_path(program) or "", *arguments], env=self._environment(), capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr}")

    def _environment(self) -> Mapping[str, str]:
        return os.environ | self.environment


@contextmanager
def running_realm(folder: Path) -> Iterator[Realm]:
    """Run a KDC; libraries of this process and of processes that it starts use its realm meanwhile."""
    realm = Realm(folder)
    before = {name: os.environ.get(name) for name in realm.environment}
    try:
        realm.start()
        os.environ.update(realm.environment)
        yield realm
    finally:
        realm.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0
