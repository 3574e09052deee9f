"""A CPU as a platform of verl, for tests: VERL_USE_EXTERNAL_MODULES=verl_cpu VERL_PLATFORM=cpu."""

# pyright: reportMissingImports=false
# The host library is not in the environment that is type-checked.

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform import platform_base, platform_manager

NOTHING = {"max_memory_allocated": 0, "max_memory_reserved": 0, "memory_allocated": 0}

MODULE = SimpleNamespace(
    **{name: (lambda value=value: value) for name, value in NOTHING.items()},
    memory_reserved=lambda: 0,
    mem_get_info=lambda: (1, 1),
    empty_cache=lambda: None,
    current_device=lambda: "cpu",
    set_device=lambda index: None,
    synchronize=lambda: None,
    manual_seed=torch.manual_seed,
    manual_seed_all=torch.manual_seed,
    is_available=lambda: True,
    device_count=lambda: 1,
    get_rng_state=torch.get_rng_state,
    set_rng_state=torch.set_rng_state,
    get_device_name=lambda: "cpu",
)


class PlatformCPU(platform_base.PlatformBase):
    """Everything that asks for an accelerator gets the CPU."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = MODULE  # type: ignore[assignment]

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CPU_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        return nullcontext()

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "CPU"

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None

    def ray_noset_envvars(self) -> list[str]:
        return []


platform_manager.PlatformRegistry.register(platform="cpu")(PlatformCPU)
