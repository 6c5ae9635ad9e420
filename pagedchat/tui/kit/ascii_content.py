"""Styled one-line texts for a terminal that has only ASCII: the header, the tour's borders."""

from textual.content import Content

from pagedchat.view.sentences.words import to_ascii

_BARS = str.maketrans({"│": "|", "▕": "[", "▏": "]", "░": ".", **dict.fromkeys("▎▍▌▋▊▉", "#")})


def content_to_ascii(content: Content) -> Content:
    """The same in ASCII, a character for a character, so that every style stays where it is."""
    return Content(to_ascii(content.plain.translate(_BARS)), list(content.spans))
