"""URLs of tokens and keys: only allowed ones, only over https."""

from __future__ import annotations

import pytest

from konvene.security.oauth.urls import check_url

NAME = "sasl.oauthbearer.jwks.endpoint.url"


@pytest.mark.parametrize(
    "url",
    ["https://issuer/jwks", "https://issuer:8443/jwks?x=1", "file:///etc/jwks.json", "http://localhost:8080/jwks",
     "http://127.0.0.1/jwks", "http://[::1]:80/jwks"],
)  # fmt: skip
def test_an_allowed_url_is_accepted(url: str) -> None:
    assert check_url(NAME, url, (url,)).geturl().rstrip("/") == url.rstrip("/")
    for others in ((), ("https://issuer",), (url + "/",)):
        with pytest.raises(ValueError, match="is not allowed"):
            check_url(NAME, url, others)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (None, "is required"),
        ("", "is required"),
        ("issuer/jwks", "use an https"),
        ("ftp://issuer/jwks", "use an https"),
        ("ldap://issuer/x", "use an https"),
        ("https:///jwks", "use an https"),
        ("http://issuer/jwks", "use https"),
        ("http://169.254.169.254/latest", "use https"),
        ("http://localhost.evil.example/jwks", "use https"),
        ("file:", "names no file"),
        ("https://[::1/jwks", "is not a URL"),
    ],
)
def test_other_urls_are_rejected_even_if_they_are_listed(url: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        check_url(NAME, url, (url or "",))
    assert str(raised.value).startswith(NAME)
