"""The names that SGLang 0.5.23 imports from sgl_kernel on a CPU; sgl_kernel itself has no CPU wheel.

Every request needs one of them, and torch can do it. The others belong to speculative decoding, which is off.
"""

from __future__ import annotations

from typing import NoReturn

import torch


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Writes each request's new cache slots, in turn, into its row: req_to_token[row, start:end].

    Shapes: indices and offsets [batch], req_to_token [pool size, pool_len], out_cache_loc [sum of lengths].
    """
    done = 0
    rows, starts, ends = req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist()
    for row, start, end in zip(rows, starts, ends, strict=True):
        req_to_token[row, start:end] = out_cache_loc[done : done + end - start].to(req_to_token.dtype)
        done += end - start


def _absent(*_args: object, **_kwargs: object) -> NoReturn:
    raise NotImplementedError("speculative decoding needs the real sgl_kernel, which has no CPU build")


assign_draft_cache_locs_contiguous_cpu = _absent
assign_extend_cache_locs_cpu = _absent
build_tree_kernel_efficient_cpu = _absent
copy_all_layer_kv_cache_cpu = _absent
fill_accept_out_cache_loc_cpu = _absent
fill_bonus_tokens_cpu = _absent
rotate_input_ids_cpu = _absent
verify_tree_greedy_cpu = _absent
