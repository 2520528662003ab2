"""A plugin of SGLang: multi-head latent attention (DeepSeek) on CPUs without AMX.

For the backend "torch_native" SGLang falls back to triton's choice, MHA in prefill, which fails in bmm there.
The absorbed MLA path exists and gives the same answer.
"""

from __future__ import annotations


def register() -> None:
    """SGLang calls this in each of its processes, before a model is loaded."""
    from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry
    from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import AttnForwardMethod

    AttentionBackendRegistry.register("torch_native", lambda attn, forward_batch: AttnForwardMethod.MLA)
