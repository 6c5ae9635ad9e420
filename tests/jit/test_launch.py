import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pagedchat.errors import KernelCompileError, KernelError
from pagedchat.jit import launch
from pagedchat.jit.driver import Gpu, gpu
from pagedchat.jit.launch import KernelStore, NotBuiltError, f32, i32
from pagedchat.jit.variant import Variant
from tests.jit.kernels import builder_in

SOME_GPU = Gpu(0, "NVIDIA Test", (9, 0), 1 << 30, 132, 227 * 1024)


class FakeKernel:
    """Counts how often it is loaded."""

    loaded = 0

    def __init__(self, code: bytes, entry: str, device_index: int) -> None:
        type(self).loaded += 1
        assert code.startswith(b"\x7fELF")
        self.entry, self.device_index = entry, device_index


@pytest.fixture
def store(root: Path, monkeypatch: pytest.MonkeyPatch) -> KernelStore:
    """Compiles for real; loading is faked."""
    monkeypatch.setattr(launch, "Kernel", FakeKernel)
    monkeypatch.setattr(launch, "gpu", lambda _index: SOME_GPU)
    monkeypatch.setattr(launch, "primary_context", lambda _index: nullcontext())
    monkeypatch.setattr(FakeKernel, "loaded", 0)
    return KernelStore(builder_in(root))


def test_kernel_is_loaded_once_however_it_is_asked_for(store: KernelStore) -> None:
    first = store.get("scale", 0, FACTOR=2, MORE_OF=True)
    assert store.get("scale", 0, FACTOR=2, MORE_OF=True) is first
    assert store.get("scale", 0, MORE_OF=1, FACTOR="2") is first
    assert store.get("scale", 0, "scale", FACTOR=2, MORE_OF=True) is first
    assert FakeKernel.loaded == 1


def test_constants_devices_and_entries_make_different_kernels(store: KernelStore) -> None:
    kernels: list[Any] = [
        store.get("scale", 0, FACTOR=2),
        store.get("scale", 0, FACTOR=3),
        store.get("scale", 1, FACTOR=2),
        store.get("scale", 0, entry="other", FACTOR=2),
    ]
    assert len(set(map(id, kernels))) == 4
    assert [(kernel.entry, kernel.device_index) for kernel in kernels[1:]] == [
        ("scale", 0),
        ("scale", 1),
        ("other", 0),
    ]


def test_threads_that_ask_at_once_get_one_kernel(store: KernelStore) -> None:
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(store.get("scale", 0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
    assert FakeKernel.loaded == 1


def test_kernel_that_does_not_compile_says_why_each_time(store: KernelStore, root: Path) -> None:
    (root / "kernels" / "broken.cu").write_text("int f( {}\n")
    for _ in range(2):
        with pytest.raises(KernelCompileError, match=r"broken\.cu\(1\)"):
            store.get("broken", 0)


def test_rehearsal_finds_variants_and_builds_nothing(store: KernelStore) -> None:
    there = store.get("scale", 0, FACTOR=2)
    others: list[object] = []
    with store.rehearse() as wanted:
        for factor in (2, 3, 3):
            kernel = store.get("scale", 0, entry="any", FACTOR=factor)
            kernel.allow_shared(1 << 20)
            kernel.prefer_shared()
            assert kernel.active_clusters(4, 32) * 4 > kernel.active_thread_blocks(32) > 1000
            kernel.launch(1, 32, (), stream=0)
        thread = threading.Thread(target=lambda: others.append(store.get("scale", 0, FACTOR=2)))
        thread.start()
        thread.join()
    assert wanted == {Variant.of("scale", FACTOR=2), Variant.of("scale", FACTOR=3)}
    assert others == [there]
    assert store.get("scale", 0, FACTOR=2) is there
    assert FakeKernel.loaded == 1


def test_what_a_rehearsal_found_is_built_and_loaded_ahead(store: KernelStore, root: Path) -> None:
    with store.rehearse() as wanted:
        for entry in (None, "other"):
            store.get("scale", 0, entry, FACTOR=2)
    assert store.build_ahead(wanted, 0).wait()
    assert builder_in(root).build(Variant.of("scale", FACTOR=2), SOME_GPU.architecture).cached
    assert FakeKernel.loaded == 2
    assert {store.get("scale", 0, entry, FACTOR=2).entry for entry in (None, "other")} == {"scale", "other"}
    assert FakeKernel.loaded == 2


def test_a_kernel_that_is_refused_ahead_is_refused_to_who_asks(
    store: KernelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KernelError("The CUDA driver refused it.")

    monkeypatch.setattr(launch, "Kernel", refuse)
    with store.rehearse() as wanted:
        store.get("scale", 0, FACTOR=2)
    ahead = store.build_ahead(wanted, 0)
    assert ahead.wait(60)
    assert ahead.failure is not None
    with pytest.raises(KernelError, match="refused it"):
        store.get("scale", 0, FACTOR=2)


def test_nobody_compiles_where_there_is_no_time_for_it(store: KernelStore) -> None:
    others: list[object] = []
    with store.built_only():
        with pytest.raises(NotBuiltError, match="not built yet") as caught:
            store.get("scale", 0, FACTOR=2)
        thread = threading.Thread(target=lambda: others.append(store.get("scale", 0, FACTOR=3)))
        thread.start()
        thread.join()
        assert store.get("scale", 0, FACTOR=3) is others[0]
    assert caught.value.variant == Variant.of("scale", FACTOR=2)
    num_loaded = FakeKernel.loaded
    assert store.build_ahead([caught.value.variant], 0, quietly=True).wait(60)
    assert FakeKernel.loaded == num_loaded + 1
    with store.built_only():
        assert store.get("scale", 0, FACTOR=2) is not None


# --- on a GPU -----------------------------------------------------------------------------------------

COUNT = 1000


@pytest.fixture
def scaled() -> Any:
    """Input and poisoned output on the GPU."""
    import torch

    return torch.randn(COUNT, device="cuda"), torch.full((COUNT,), float("nan"), device="cuda")


def run(kernel: launch.Kernel, x: Any, y: Any, stream: int = 0, **options: Any) -> None:
    kernel.launch(4, (256, 1), (y.data_ptr(), x.data_ptr(), COUNT, i32(3), f32(2)), stream=stream, **options)


@pytest.mark.gpu
def test_kernel_computes_on_the_stream_it_is_given(root: Path, scaled: Any) -> None:
    import torch

    x, y = scaled
    kernel = KernelStore(builder_in(root)).get("scale", 0, FACTOR=5)
    assert 4 <= kernel.num_registers <= 64
    assert (kernel.shared_bytes, kernel.local_bytes, kernel.max_threads) == (0, 0, 1024)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    run(kernel, x, y, stream.cuda_stream)
    stream.synchronize()
    torch.testing.assert_close(y, x * 10 + 3)
    kernel.prefer_shared()
    run(kernel, x, y.fill_(0), torch.cuda.current_stream().cuda_stream, overlap=True)
    torch.testing.assert_close(y, x * 10 + 3)


@pytest.mark.gpu
def test_launch_is_captured_in_a_cuda_graph(root: Path, scaled: Any) -> None:
    import torch

    x, y = scaled
    kernel = KernelStore(builder_in(root)).get("scale", 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(kernel, x, y, torch.cuda.current_stream().cuda_stream)
    assert y.isnan().all()
    graph.replay()
    torch.testing.assert_close(y, x * 2 + 3)


@pytest.mark.gpu
def test_thread_that_never_saw_the_gpu_can_launch(root: Path, scaled: Any) -> None:
    import torch

    x, y = scaled
    kernel = KernelStore(builder_in(root)).get("scale", 0)
    torch.cuda.synchronize()
    thread = threading.Thread(target=run, args=(kernel, x, y))
    thread.start()
    thread.join()
    torch.testing.assert_close(y, x * 2 + 3)


@pytest.mark.gpu
def test_threads_launch_one_kernel_with_arguments_of_their_own(root: Path) -> None:
    import torch

    kernel = KernelStore(builder_in(root)).get("scale", 0)
    x = torch.randn(COUNT, device="cuda")
    outputs = [torch.zeros_like(x) for _ in range(8)]
    torch.cuda.synchronize()

    def work(index: int) -> None:
        for _ in range(200):
            args = (outputs[index].data_ptr(), x.data_ptr(), COUNT, index, 1.0)
            kernel.launch(4, 256, args, stream=0)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(outputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, output in enumerate(outputs):
        torch.testing.assert_close(output, x + index)


@pytest.mark.gpu
def test_what_the_driver_refuses_is_one_sentence(root: Path, scaled: Any) -> None:
    x, y = scaled
    store = KernelStore(builder_in(root))
    kernel = store.get("scale", 0)
    args = (y.data_ptr(), x.data_ptr(), COUNT, 3, 2.0)
    with pytest.raises(KernelError, match=r"cannot be launched with grid \(1, 1, 1\), thread block \(2048, 1, 1\)"):
        kernel.launch(1, 2048, args, stream=0)
    with pytest.raises(KernelError, match="Kernel scale takes 5 arguments, got 4"):
        kernel.launch(1, 32, args[:4], stream=0)
    with pytest.raises(KernelError, match=f"wants {1 << 20} bytes of dynamic shared memory; the GPU has"):
        kernel.allow_shared(1 << 20)
    kernel.allow_shared(gpu(0).shared_bytes)
    kernel.launch(4, 256, args, stream=0, shared_bytes=gpu(0).shared_bytes)
    kernel.launch((0, 5), 256, args, stream=0)
    with pytest.raises(KernelError, match="The cubin has no kernel nothing"):
        store.get("scale", 0, entry="nothing")
    with pytest.raises(KernelError, match="CUDA_ERROR_INVALID_DEVICE"):
        store.get("scale", 99)
