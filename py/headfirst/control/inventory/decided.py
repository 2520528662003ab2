"""Variables of roles that a run sets from the plan: an inventory cannot.

control/deployment/running/role_vars writes them; tests/unit/test_decided_variables.py compares the names.
"""

from __future__ import annotations

_BY_ROLE = {
    "bundle": "files packages",
    "check": """
        address closed_ports disk_path exposed_ports gpus hca ib_gid_index images is_rank may_reboot min_cuda
        min_disk_gb min_kv_shm_gb min_memory_gb min_shm_gb model_folder model_folder_required nic open_peers
        open_ports peers ports roles_to_come services slow_start_args""",
    "comm_check": "address backends container link_gbit rank ranks_per_node rdma_gbit rendezvous_port",
    "docker_engine": "http_proxy https_proxy no_proxy",
    "engine": """
        api_key changed compile_cache compile_cache_travels config config_path container drain_timeout
        generation is_last is_spare log model_name name planned rank ranks readiness ready_timeout replicas
        secret_env service_ranks standbys supervision supervisor url warm_argv""",
    "engine_image": "name programs registry_logins tarball_remote",
    "host_tuning": "firewall_optional hosts monitors peers ranks_slice rendezvous_ports served_ports",
    "monitoring": "containers folders secrets trees",
    "node_tools": "extras wheel",
    "nvidia_driver": "allow_reboot",
    "open_webui": """
        admin_email admin_password admin_password_before backup container engine_api_key model_name name
        secret_env secret_key url""",
    "podman_engine": "http_proxy https_proxy no_proxy",
    "proxy": """
        certificate certificate_ends certificate_key container keys metrics_address metrics_port name page
        service_api_keys services""",
    "rdma": "devices",
    "router": "admin_key api_key container is_last name planned url",
    "supervisor": "address keys members token",
    "weights": """
        address connections convert_to_bf16 environment hidden_layers hub_token keep_fp8 layers members model
        name readers revision source token""",
}
DECIDED = frozenset(f"{role}_{name}" for role, names in _BY_ROLE.items() for name in names.split())
