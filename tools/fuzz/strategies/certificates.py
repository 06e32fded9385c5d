"""Certificates whose bytes get damaged: made once for this purpose, and good for nothing else."""

from base64 import b64decode, b64encode

from strategies.source import Source

_RSA = b64decode(
    "MIIC0DCCAjmgAwIBAgIBBzANBgkqhkiG9w0BAQsFADAbMQ0wCwYDVQQDDARmdXp6MQowCAYDVQQKDAFvMB4XDTI0"
    "MDEwMTAwMDAwMFoXDTM0MDEwMTAwMDAwMFowGzENMAsGA1UEAwwEZnV6ejEKMAgGA1UECgwBbzCBnzANBgkqhkiG"
    "9w0BAQEFAAOBjQAwgYkCgYEA1ebHP9K1+z6QYDJOlnO+5r7Jrg1W6XwhYMVZi8uuJ0Am3y2RC/BHvlpIv5eFU8Xo"
    "rotbKB4phtxE15SZKPk4z03xT4oHhKJ2j0XAjv1frUpF6Xb05VtJ/zf3Ia2e/ROzcvsfffU5DJp9vqN/eiF6KDao"
    "DYIOunZJJmNMeH1mr+kCAwEAAaOCASIwggEeMBIGA1UdEwEB/wQIMAYBAf8CAQEwNQYDVR0RBC4wLIIJYS5leGFt"
    "cGxlhwQKAAABhgxzcGlmZmU6Ly9hL2KBC2FAYi5leGFtcGxlMA4GA1UdDwEB/wQEAwICpDATBgNVHSUEDDAKBggr"
    "BgEFBQcDATAdBgNVHQ4EFgQU6KoxOErWQUyX5zJLXCv/F3DonfkwHwYDVR0jBBgwFoAU6KoxOErWQUyX5zJLXCv/"
    "F3DonfkwGQYDVR0fBBIwEDAOoAygCoYIaHR0cDovL2EwJAYIKwYBBQUHAQEEGDAWMBQGCCsGAQUFBzABhghodHRw"
    "Oi8vbzAQBgNVHSAECTAHMAUGAyoDBDAZBgNVHR4BAf8EDzANoAswCYIHZXhhbXBsZTANBgkqhkiG9w0BAQsFAAOB"
    "gQCe4745OheObOIZR8dp0WNZQGYp5Oy4zQ8qpP4NkmjvxPvVjy5Ty9S4fVYxnaEndgIvmctgrMUwFKa/t66UUnvx"
    "iwGk9cvqYR2YUgG+lmVwm8Bycgk757ORiBEnHYUFVJmbsiyYm+cq4NRrDtfOJ3Aq7sJnCx31hz5LFoMWTL+mmQ=="
)
_ELLIPTIC = b64decode(
    "MIIBITCByaADAgECAgEIMAoGCCqGSM49BAMCMBsxDTALBgNVBAMMBGZ1enoxCjAIBgNVBAoMAW8wHhcNMjQwMTAx"
    "MDAwMDAwWhcNMzQwMTAxMDAwMDAwWjAbMQ0wCwYDVQQDDARmdXp6MQowCAYDVQQKDAFvMFkwEwYHKoZIzj0CAQYI"
    "KoZIzj0DAQcDQgAE77zTRjqmfvus5GOEyHn05lp+Xxit/Px5nhXOK105/Pqx1e1S4Dl+bDCYK1AxiX4NJzJ9fcw8"
    "eUKw6oxG1ZfL/DAKBggqhkjOPQQDAgNHADBEAiAAhYtUM7HZaLe5C90gKna3dEkScs2SmQ0MZCxN9KuqzgIgNTjb"
    "TTJZJRZtL7JUAbxEdFvsPFnVSvpJCh/s9YuKBv0="
)
_REQUEST = b64decode(
    "MIIBnDCCAQUCAQAwGzENMAsGA1UEAwwEZnV6ejEKMAgGA1UECgwBbzCBnzANBgkqhkiG9w0BAQEFAAOBjQAwgYkC"
    "gYEA1ebHP9K1+z6QYDJOlnO+5r7Jrg1W6XwhYMVZi8uuJ0Am3y2RC/BHvlpIv5eFU8XorotbKB4phtxE15SZKPk4"
    "z03xT4oHhKJ2j0XAjv1frUpF6Xb05VtJ/zf3Ia2e/ROzcvsfffU5DJp9vqN/eiF6KDaoDYIOunZJJmNMeH1mr+kC"
    "AwEAAaBBMBgGCSqGSIb3DQEJBzELDAljaGFsbGVuZ2UwJQYJKoZIhvcNAQkOMRgwFjAUBgNVHREEDTALggliLmV4"
    "YW1wbGUwDQYJKoZIhvcNAQELBQADgYEAKYucbo5ziDSEw4cQc1oq1FTNHTSGsrJ7FaSEiuwpAugMU6GQA2lzWIQN"
    "LwafdMPtCHX4FvqzmRS1k5Mxki/jqKNg0neb7o6rm84iTN4ccv7uh/Cf18KXUe6NmsWAOt+3zvAWxfAuvVSyByAr"
    "xCPsIZQXs+VqzLt5Suqdoc5yBUc="
)


def certificate(source: Source) -> str:
    """A certificate or a request for one, as PEM; most often damaged."""
    label, der = source.pick(
        (("CERTIFICATE", _RSA), ("CERTIFICATE REQUEST", _REQUEST), ("CERTIFICATE", _ELLIPTIC))
    )
    data = bytearray(der)
    for _ in range(source.count(4)):
        at = source.randrange(len(data))
        data[at] = source.pick((0, 1, 0x30, 0x7F, 0x80, 0x82, 0xFF, source.randrange(256)))
    if source.chance(10):
        del data[source.randrange(len(data)) :]
    text = b64encode(bytes(data)).decode()
    return f"-----BEGIN {label}-----\n{text}\n-----END {label}-----\n"
