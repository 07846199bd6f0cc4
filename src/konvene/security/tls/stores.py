"""Keys and certificates from Kafka's settings: PEM files and PEM texts, PKCS12 and JKS stores.

PEM needs nothing but Python, unless its key is encrypted. PKCS12, JKS and encrypted keys are read with the
library `cryptography` (`konvene[tls]`). Errors name the setting and the file, never a password or a key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from konvene.security.tls.jks import read_jks

__all__ = ["InvalidStore", "KeyMaterial", "ReadFile", "key_material", "trusted_certificates"]

MISSING: Final = "this needs the library cryptography: pip install 'konvene[tls]'"

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY: Final = re.compile(
    r"-----BEGIN (ENCRYPTED |RSA |EC )?PRIVATE KEY-----.+?-----END \1?PRIVATE KEY-----", re.DOTALL
)


class InvalidStore(ValueError):
    """A key store or a trust store cannot be used; the message names its setting."""


class KeyMaterial(NamedTuple):
    """A private key and its certificate chain in PEM format, the key not encrypted."""

    key: str
    chain: str

    def __repr__(self) -> str:
        return "<key material [hidden]>"


ReadFile = Callable[[str], bytes]


def key_material(settings: Mapping[str, Any], read_file: ReadFile) -> KeyMaterial | None:
    """Return the key and the certificate chain of a listener or client; None if no key store is set.

    `settings` has Kafka's names. Raises `InvalidStore`."""
    kind, location = _type(settings, "keystore"), settings.get("ssl.keystore.location")
    key, chain = settings.get("ssl.keystore.key"), settings.get("ssl.keystore.certificate.chain")
    if kind == "PEM" and settings.get("ssl.keystore.password"):
        raise InvalidStore(
            "SSL key store password cannot be specified with PEM format, only key password may be specified"
        )
    if key or chain:
        if kind != "PEM" or location:
            raise InvalidStore("ssl.keystore.key needs ssl.keystore.type=PEM and no ssl.keystore.location")
        if not key or not chain:
            raise InvalidStore("ssl.keystore.key and ssl.keystore.certificate.chain have to be set together")
        return _pem_material(_reveal(key), _reveal(chain), settings, "ssl.keystore.key")
    if not location:
        return None
    data = _read("ssl.keystore.location", location, read_file)
    if kind == "PEM":
        text = data.decode("ascii", "replace")
        return _pem_material(text, text, settings, f"ssl.keystore.location={location}")
    password = _reveal(settings.get("ssl.keystore.password"))
    if kind == "PKCS12":
        return _pkcs12_material(data, password, location)
    return _jks_material(data, password, _reveal(settings.get("ssl.key.password")) or password, location)


def trusted_certificates(settings: Mapping[str, Any], read_file: ReadFile) -> str | None:
    """Return the trusted certificates in PEM format; None if no trust store is set. Raises `InvalidStore`."""
    kind, location = _type(settings, "truststore"), settings.get("ssl.truststore.location")
    inline = settings.get("ssl.truststore.certificates")
    if kind == "PEM" and settings.get("ssl.truststore.password"):
        raise InvalidStore("SSL trust store password cannot be specified for PEM format.")
    if inline:
        if kind != "PEM" or location:
            raise InvalidStore(
                "ssl.truststore.certificates needs ssl.truststore.type=PEM and no ssl.truststore.location"
            )
        return _certificates(_reveal(inline), "ssl.truststore.certificates")
    if not location:
        return None
    data = _read("ssl.truststore.location", location, read_file)
    if kind == "PEM":
        return _certificates(data.decode("ascii", "replace"), f"ssl.truststore.location={location}")
    password = _reveal(settings.get("ssl.truststore.password"))
    if kind == "PKCS12":
        certificates = _pkcs12_certificates(data, password, location)
    else:
        try:
            certificates = list(read_jks(data, password).certificates)
        except ValueError as error:
            raise InvalidStore(f"ssl.truststore.location={location}: {error}") from None
    if not certificates:
        raise InvalidStore(f"ssl.truststore.location={location}: the store has no trusted certificate")
    return "\n".join(map(_pem, certificates))


def _type(settings: Mapping[str, Any], store: str) -> str:
    name = f"ssl.{store}.type"
    kind = str(settings.get(name) or "JKS").upper()
    if kind not in ("PEM", "PKCS12", "JKS"):
        raise InvalidStore(f"{name}={kind} is not supported; use PEM, PKCS12 or JKS")
    return kind


def _reveal(secret: Any) -> str:
    """Return a password's text, without the `[hidden]` of its `str`."""
    if secret is None:
        return ""
    text: str = secret.reveal() if hasattr(secret, "reveal") else str(secret)
    return text


def _read(setting: str, location: str, read_file: ReadFile) -> bytes:
    try:
        return read_file(location)
    except OSError as error:
        raise InvalidStore(f"{setting}={location} cannot be read: {error.strerror}") from None


# --- PEM ---


def _pem_material(key_text: str, chain_text: str, settings: Mapping[str, Any], where: str) -> KeyMaterial:
    found = _KEY.search(key_text)
    if found is None:
        raise InvalidStore(f"{where}: no private key in PEM format")
    key = found[0]
    if found[1] == "ENCRYPTED ":
        key = _decrypted(key, _reveal(settings.get("ssl.key.password")), where)
    elif "Proc-Type: 4,ENCRYPTED" in key:
        raise InvalidStore(f"{where}: the private key is encrypted in an old format; convert it to PKCS #8")
    return KeyMaterial(key, _certificates(chain_text, where))


def _certificates(text: str, where: str) -> str:
    found = _CERTIFICATE.findall(text)
    if not found:
        raise InvalidStore(f"{where}: no certificate in PEM format")
    return "\n".join(found) + "\n"


def _decrypted(key: str, password: str, where: str) -> str:
    if not password:
        raise InvalidStore(f"{where}: the private key is encrypted; set ssl.key.password")
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise InvalidStore(f"{where}: the private key is encrypted; {MISSING}") from None
    try:
        return _private_pem(load_pem_private_key(key.encode(), password.encode()))
    except (ValueError, TypeError):
        raise InvalidStore(f"{where}: the private key cannot be decrypted with ssl.key.password") from None


def _private_pem(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()


def _pem(certificate: bytes) -> str:
    """Return a certificate in DER as PEM."""
    from ssl import DER_cert_to_PEM_cert

    return DER_cert_to_PEM_cert(certificate)


# --- PKCS12 and JKS ---


def _load_pkcs12(data: bytes, password: str, where: str) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise InvalidStore(f"{where}: PKCS12 store; {MISSING}") from None
    try:
        return load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        raise InvalidStore(f"{where}: the store cannot be opened; is its password right?") from None


def _pkcs12_material(data: bytes, password: str, location: str) -> KeyMaterial:
    where = f"ssl.keystore.location={location}"
    store = _load_pkcs12(data, password, where)
    if store.key is None or store.cert is None:
        raise InvalidStore(f"{where}: the store has no private key")
    chain = [store.cert.certificate, *(extra.certificate for extra in store.additional_certs)]
    return KeyMaterial(_private_pem(store.key), "".join(map(_certificate_pem, chain)))


def _certificate_pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: bytes = certificate.public_bytes(Encoding.PEM)
    return text.decode()


def _pkcs12_certificates(data: bytes, password: str, location: str) -> list[bytes]:
    store = _load_pkcs12(data, password, f"ssl.truststore.location={location}")
    from cryptography.hazmat.primitives.serialization import Encoding

    return [extra.certificate.public_bytes(Encoding.DER) for extra in store.additional_certs]


def _jks_material(data: bytes, password: str, key_password: str, location: str) -> KeyMaterial:
    where = f"ssl.keystore.location={location}"
    try:
        store = read_jks(data, password, key_password)
    except ValueError as error:
        raise InvalidStore(f"{where}: {error}") from None
    if store.key is None:
        raise InvalidStore(f"{where}: the store has no private key")
    from base64 import encodebytes

    body = encodebytes(store.key).decode()
    key = f"-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n"
    return KeyMaterial(key, "".join(map(_pem, store.chain)))
