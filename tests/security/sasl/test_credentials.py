"""Credentials in the metadata log, and what a broker without security loads."""

import subprocess
import sys

from konvene.security.sasl.credentials import ScramCredential

PLAIN_BROKER = "konvene.broker.app", "konvene.broker.broker", "konvene.broker.net.socket_server"
NOT_LOADED = "cryptography", "hashlib", "hmac", "konvene.security.sasl.scram", "konvene.security.tls"


def test_plaintext_broker_loads_no_cryptography() -> None:
    """Measured by imported modules, since that does not depend on the machine's speed."""
    code = (
        f"import sys\nimport {', '.join(PLAIN_BROKER)}\n"
        f"print([name for name in {NOT_LOADED!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_credential_shows_no_key() -> None:
    assert (
        repr(ScramCredential(b"salt", b"stored", b"server", 4_096)) == "<SCRAM credential: 4096 iterations>"
    )
