"""The messages whose price is told: who asks what over which protocol, and what the origin behind answers."""

import dataclasses
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "load"))

from scenario import UNKNOWN_HOST, Forward, Page, Scenario, page  # noqa: E402

# What a browser sends beside Host: thirteen fields, one of them a cookie of 300 bytes.
BROWSER = [
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    ("Accept-Language", "en-GB,en;q=0.7,de;q=0.3"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Referer", "https://load.test/catalogue/chairs?page=2&sort=price"),
    ("Cookie", "session=" + "0123456789abcdef" * 16 + "; theme=dark; consent=necessary"),
    ("Cache-Control", "no-cache"),
    ("Pragma", "no-cache"),
    ("DNT", "1"),
    ("Priority", "u=0, i"),
    ("Sec-Fetch-Dest", "document"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-Site", "same-origin"),
]
# What an application answers with, beside Content-Length.
APPLICATION = [
    ("Date", "Tue, 01 Dec 2026 03:00:00 GMT"),
    ("Server", "application/4.2"),
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "private, max-age=0, must-revalidate"),
    ("ETag", 'W/"5f2c-1933b0a8d20"'),
    ("Last-Modified", "Mon, 30 Nov 2026 12:00:00 GMT"),
    ("Vary", "Accept-Encoding, Cookie"),
    ("Set-Cookie", "session=0123456789abcdef0123456789abcdef; Path=/; HttpOnly; Secure; SameSite=Lax"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "strict-origin-when-cross-origin"),
    ("Permissions-Policy", "camera=(), microphone=(), geolocation=()"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Strict-Transport-Security", "max-age=63072000; includeSubDomains"),
    ("Content-Language", "en"),
    ("Accept-Ranges", "bytes"),
    ("X-Runtime", "0.012345"),
    ("X-Request-Start", "t=1764558000"),
    ("Server-Timing", "db;dur=4.2, view;dur=7.1"),
]


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of exchange."""
    name: str
    what: str
    scenario: Scenario
    host: str = "proxied.test"
    status: int = 200
    request_fields: tuple = ()
    response_fields: tuple = ()
    response_bytes: int = 13


PLAIN = Scenario(Forward(), tls=False)
CASES = [
    Case("own", "HTTPS, an own answer of 11,776 bytes (404)", Scenario(Page(page(11_776)), prefixes=1_000, hosts=20), host=UNKNOWN_HOST, status=404),
    Case("proxied-1", "HTTP, proxied: 1 response field, 13 bytes", PLAIN),
    Case("proxied-20", "HTTP, proxied: 20 response fields, 13 bytes", PLAIN, response_fields=tuple(APPLICATION)),
    Case("browser", "HTTP, proxied: 14 request and 20 response fields, 8 KiB", PLAIN, request_fields=tuple(BROWSER),
         response_fields=tuple(APPLICATION), response_bytes=8192),
    Case("browser-tls", "HTTPS, proxied: the same", Scenario(Forward()), request_fields=tuple(BROWSER),
         response_fields=tuple(APPLICATION), response_bytes=8192),
    Case("browser-h2", "HTTP/2 client, HTTP/1 upstream: the same", Scenario(Forward(), http2=True),
         request_fields=tuple(BROWSER), response_fields=tuple(APPLICATION), response_bytes=8192),
]
BY_NAME = {case.name: case for case in CASES}
