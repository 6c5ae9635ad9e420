import time
from types import SimpleNamespace

import torch

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.runtime.attention.timed_backend import TimedBackend
from pagedchat.runtime.loading.build import load_model
from tests.helpers_models import make_checkpoint
from tests.runtime.drive import Driver


def slow_write(layer_idx, key, value):
    time.sleep(0.01)


def slow_attend(layer_idx, query, key, value, *, scale):
    time.sleep(0.02)
    return query * scale


def test_write_and_attend_are_timed_and_all_else_passes_through():
    backend = TimedBackend(SimpleNamespace(write=slow_write, attend=slow_attend, num_blocks=7))
    rows = torch.ones(2)
    backend.write(0, rows, rows)
    assert backend.attend(0, rows, rows, rows, scale=3).tolist() == [3, 3]
    assert backend.num_blocks == 7
    assert 0.03 <= backend.take_seconds() < 1
    assert backend.take_seconds() == 0


def test_a_step_on_a_cpu_tells_its_phases(tmp_path):
    model = ModelConfig(model=str(make_checkpoint(tmp_path / "opt", "opt")), skip_tokenizer_init=True)
    runner = load_model(EngineConfig(model=model, cache=CacheConfig(num_blocks=8))).runner
    driver = Driver(runner)
    seen = []
    execute = runner.execute
    runner.execute = lambda batch: seen.append(execute(batch)) or seen[-1]
    driver.add(list(range(5, 25)))
    while driver.step(3):
        pass
    assert len(seen) == 3
    for output in seen:
        assert 0 < output.attention_seconds < output.forward_seconds
        assert output.launch_seconds > 0
