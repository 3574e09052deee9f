"""Entropy control in verl, from its configuration alone.

    export VERL_USE_EXTERNAL_MODULES=isentrope.integrations.verl
    python -m verl.trainer.main_ppo ... actor_rollout_ref.actor.policy_loss.loss_mode=isentrope_clip_cov

verl imports this package while it is being imported itself, in every process: the plug-in then
registers. Without verl the package stays light, so that recipes are translated on any machine.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isentrope.integrations.verl.plugin import ADVANTAGE_PREFIX, POLICY_LOSSES, compute_score

__all__ = ["ADVANTAGE_PREFIX", "POLICY_LOSSES", "compute_score"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from isentrope.integrations.verl import plugin

    return getattr(plugin, name)


if "verl" in sys.modules:
    from isentrope.integrations.verl import plugin as _plugin  # noqa: F401  registers
