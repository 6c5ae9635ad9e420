"""Whom a client believes over TLS, and what went wrong with that, in words. Loads no HTTP.

Servers are believed by the certificates that the system knows, or by those of the file that `SSL_CERT_FILE` names:
that of an authority of one's own, or of a server that has signed its certificate itself.
"""

import os
import ssl

from pagedchat.errors import PagedChatError

FILE_VARIABLE = "SSL_CERT_FILE"
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")
_MOST_CAUSES = 8


def trusting() -> ssl.SSLContext:
    """What connections to `https` and `wss` are made with.

    Raises:
        PagedChatError: the file that the variable names has no certificates.
    """
    context = ssl.create_default_context()  # takes the variable's file too, and passes over one that is none
    file = os.environ.get(FILE_VARIABLE, "")
    if file:
        try:
            context.load_verify_locations(file)
        except OSError as error:  # those of TLS are some
            no_pem = isinstance(error, ssl.SSLError)
            reason = "it has no certificates in PEM" if no_pem else (error.strerror or str(error)).lower()
            raise PagedChatError(
                f"The file that {FILE_VARIABLE} names cannot be used: {reason} ({file}).",
                "Name one with certificates in PEM, or unset the variable.",
            ) from None
    return context


def tls_trouble(error: BaseException) -> tuple[str, str] | None:
    """Why there is no TLS with a server, and what helps; None where something else went wrong.

    Args:
        error: as it was caught; what it was caused by is looked at, too.
    """
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is None or isinstance(found, ssl.SSLError):
            break
        found = found.__cause__ or found.__context__
    if isinstance(found, ssl.SSLCertVerificationError):
        reason = str(found.verify_message or "it is not valid").rstrip(".")
        return f"its certificate is not believed: {reason}", _cure(reason)
    if isinstance(found, ssl.SSLError):
        if found.reason in _NO_TLS:
            return "it does not speak TLS", "Write http:// in the place of https://."
        return (
            f"TLS failed ({(found.reason or 'no reason given').replace('_', ' ').lower()})",
            "Its log may say more.",
        )
    return None


def _cure(reason: str) -> str:
    if "ostname mismatch" in reason or "IP address mismatch" in reason:
        return "Give the name that is in the certificate."
    if "expired" in reason or "not yet valid" in reason:
        return "It takes another certificate, or the right time."
    return f"Name its authority's certificate, or its own: {FILE_VARIABLE}=FILE."
