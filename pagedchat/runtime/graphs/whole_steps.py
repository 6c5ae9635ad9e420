"""Decode steps of one launch: the four kinds of them, and how each is cut for a model, a GPU and a batch.

Arithmetic only; when such a step is taken says `which_step`.
"""

from pagedchat.ops.all_layers.plan import LayersPlan, plan_layers
from pagedchat.ops.all_layers.shape import LayersShape
from pagedchat.ops.whole_step.plan import (
    CLUSTER_TURN,
    MAX_LAYERS,
    ONE_TURN,
    PersistentPlan,
    plan_clustered,
    plan_persistent,
)
from pagedchat.runtime.graphs.decode.buckets import usual_turn
from pagedchat.runtime.graphs.step_facts import DecodeFacts, Setting

CLUSTERS_SCREENED, SCREENED = "one launch in clusters, screened", "one launch, screened"
CLUSTERS, ONE_LAUNCH = "one launch in clusters", "one launch"
WHOLE_STEPS = (CLUSTERS_SCREENED, SCREENED, CLUSTERS, ONE_LAUNCH)
"""Names of steps: each head may have a cluster of thread blocks, the vocabulary be screened by its 8-bit copy."""


def whole_step_plan(name: str, facts: DecodeFacts) -> PersistentPlan | None:
    """How the step `name` is cut; None where it is none of `WHOLE_STEPS`, or there is no room for it."""
    setting, rows = facts.setting, facts.rows
    if setting.gpu is None or name not in WHOLE_STEPS:
        return None
    shape, shared_limit = setting.shape, setting.gpu.shared_bytes
    make = plan_clustered if name in (CLUSTERS_SCREENED, CLUSTERS) else plan_persistent
    plan = make(shape, rows, facts.context_len, setting.gpu.num_multiprocessors, shared_limit)
    if plan is None or name not in (CLUSTERS_SCREENED, SCREENED):
        return plan
    return plan.screened(shape, rows, setting.sizes.vocab_size, shared_limit)


def layers_plan(facts: DecodeFacts) -> LayersPlan | None:
    """How one launch for all layers is cut, which is not a whole step; None where there is no room for it."""
    setting, gpu = facts.setting, facts.setting.gpu
    if gpu is None:
        return None
    shape = layers_shape(setting)
    return plan_layers(shape, facts.rows, facts.context_len, gpu.num_multiprocessors, gpu.shared_bytes)


def layers_shape(setting: Setting) -> LayersShape:
    """The model, as the kernel of all layers sees it; its three other products have the form of the way out."""
    forms = {"form": setting.form("out"), "qkv_form": setting.form("qkv")}
    return LayersShape.of(setting.sizes, setting.block_size, **forms, values_form=setting.values_form)


def one_turn_len(setting: Setting, num_seqs: int) -> int | None:
    """The shortest context that steps of so many sequences are captured for; see `buckets.context_lens`.

    Args:
        setting: what decodes.
        num_seqs: of a step.

    Returns:
        The longest that one or two sequences attend to in one turn of a launch's thread blocks; for three and four
        the same number where they have such a launch at all; None: a power of two as any.
    """
    gpu = setting.gpu
    usual = usual_turn(num_seqs)
    if gpu is None or setting.objection or setting.whole_objection or missing_places(setting):
        return usual
    sizes = (setting.shape, num_seqs, CLUSTER_TURN, gpu.num_multiprocessors, gpu.shared_bytes)
    if plan_clustered(*sizes) is not None:
        return CLUSTER_TURN
    return ONE_TURN if plan_persistent(*sizes) is not None else usual


def missing_places(setting: Setting) -> str:
    """What of a model's layers one launch has no place for, in words that go after "since"; empty if nothing."""
    sizes = setting.sizes
    if sizes.num_layers > MAX_LAYERS:
        return f"it has {sizes.num_layers} layers and one launch has places for {MAX_LAYERS}"
    if sizes.normed_heads:
        return "one launch does not norm queries and keys"
    if sizes.num_windowed:
        return f"{sizes.num_windowed} of its {sizes.num_layers} layers have a sliding window"
    return ""
