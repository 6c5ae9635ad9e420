"""The parts of a GGUF model that is split over several files, held together: are all there, and of one model? Reads
their headers, no tensor.

Each part says its number from zero (`split.no`), how many there are (`split.count`) and how many tensors they have
together (`split.tensors.count`). What the model is like stands in the first one alone, which may have no tensor.
"""

from pathlib import Path

from pagedchat.bounds import shown
from pagedchat.errors import ModelError
from pagedchat.gguf_names import part_name
from pagedchat.models.checkpoint_files import weight_files
from pagedchat.models.gguf.header import GgufHeader, GgufTensor, read_header

_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_AGAIN = "Download it again."
_ALL_AGAIN = "Download all parts again, from one place."


def read_parts(name: str, path: Path) -> GgufHeader:
    """The values of the first part and the tensors of all; of a model in one file, what that file says.

    Args:
        name: of the model, for messages.
        path: of the file, or of one of the parts.

    Raises:
        ModelError: a part is missing, damaged, or of another model.
    """
    files = weight_files(name, path)
    headers = [read_header(file) for file in files]
    if part_name(path.name) is None:
        _check_whole(path, headers[0])
        return headers[0]
    for number, (file, header) in enumerate(zip(files, headers, strict=True)):
        _check_part(file, header, number, len(files))
    tensors = [tensor for header in headers for tensor in header.tensors]
    _check_total(name, files, headers, len(tensors))
    _check_once(name, tensors)
    return GgufHeader(headers[0].values, tensors)


def _check_whole(path: Path, header: GgufHeader) -> None:
    count = header.values.get(_COUNT)
    if count is not None and count not in (0, 1):
        raise ModelError(
            f"{path.name} is a part of a model (its {_COUNT} is {shown(count)}), but is not named as one.",
            "Name all parts as llama.cpp does, NAME-00001-of-00003.gguf and so on, in one folder.",
        )


def _check_part(file: Path, header: GgufHeader, number: int, count: int) -> None:
    """That it is the part that its name says it is."""
    said = header.values.get(_COUNT)
    if said is None and count == 1:
        return
    if said != count:
        raise ModelError(
            f"{file.name} is one of {count} parts by its name, but its {_COUNT} is {shown(said)}.",
            "Download it again, or give it another name if it is a model by itself.",
        )
    if (said := header.values.get(_NUMBER)) != number:
        raise ModelError(
            f"{file.name} is not the part that its name says: its {_NUMBER} is {shown(said)}, not {number}.", _AGAIN
        )


def _check_total(name: str, files: list[Path], headers: list[GgufHeader], found: int) -> None:
    total = headers[0].values.get(_TENSORS)
    if len(files) == 1 and total is None:
        return
    for file, header in zip(files, headers, strict=True):
        said = header.values.get(_TENSORS)
        if said != total:
            raise ModelError(
                f"{file.name} is a part of another model than {files[0].name}: its {_TENSORS} is {shown(said)}, "
                f"not {shown(total)}.",
                _ALL_AGAIN,
            )
    if total != found:
        raise ModelError(
            f"The parts of {name} have {found} tensors, but their {_TENSORS} is {shown(total)}.", _ALL_AGAIN
        )


def _check_once(name: str, tensors: list[GgufTensor]) -> None:
    seen: dict[str, Path] = {}
    for tensor in tensors:
        if tensor.name in seen:
            raise ModelError(
                f"{tensor.name[:60]} is in two parts of {name}: {seen[tensor.name].name} and {tensor.file.name}.",
                _ALL_AGAIN,
            )
        seen[tensor.name] = tensor.file
