"""Every statement of docs/security.md has a test. A new statement fails here until TESTS names its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text()

# The beginning of a statement (of a row, its first cell), and its tests: FILE::FUNCTION below tests/, or
# SCENARIO: NAME OF A TASK OR PLAY in a file of molecule/SCENARIO.
TESTS: dict[str, tuple[str, ...]] = {
    # On a node
    "`/etc/headfirst/engine.yaml`": (
        "engine: Check that the container may not do more than it must, and shows no key",
    ),
    "`/var/lib/headfirst/bundle`": ("long/test_bundle.py::test_what_is_on_the_hosts_is_roots",),
    "`/etc/headfirst/webui.env`": (
        "open_webui: Check that the container may not do more than it must, "
        "and that no secret is in an argument or a label",
    ),
    "`/etc/headfirst/router.env`": (
        "router: Check that both replicas answered, and that no key is in an argument or a label",
    ),
    "`/etc/headfirst/proxy`": ("proxy: Check that they show names, and no keys",),
    "`/var/lib/headfirst/proxy`": ("proxy: Check that they show names, and no keys",),
    "`/var/lib/headfirst/webui-backups`": ("unit/test_page_backup.py::test_only_the_owner_may_read_it",),
    "443 or 80 (`proxy_port`)": ("long/test_tls.py::test_a_key_opens_the_api_until_it_is_revoked",),
    "9101, with `tls`": (
        "unit/test_proxy_plan.py::test_it_is_in_front_of_engine_and_page_and_closes_their_ports",
    ),
    "`/etc/headfirst/prometheus`": (
        "unit/test_monitoring.py::test_a_key_is_given_where_the_engine_asks_for_it",
    ),
    "`/etc/headfirst/prometheus-keys`": ("monitoring: Check what they may do",),
    "`/var/lib/headfirst/prometheus`": ("monitoring: Check what they may do",),
    "9090 (`prometheus_port`)": ("browser/test_monitoring.py::test_prometheus_listens_on_loopback_alone",),
    "3000 (`grafana_port`)": ("unit/test_monitoring.py::test_nothing_listens_wider_than_it_must",),
    "9100 (`node_exporter_port`)": ("unit/test_monitoring.py::test_nothing_listens_wider_than_it_must",),
    "`/opt/headfirst`": ("node_tools: Check that it is the wheel's and works",),
    "`/var/lib/headfirst/models` (or `weights_dir`)": ("weights: What the hosts serve",),
    "`/var/lib/headfirst/webui`": ("open_webui: Inspect the chats",),
    "`/var/lib/headfirst/jobs`": (
        "unit/test_job_script.py::test_a_secret_is_in_a_private_file_and_nowhere_else",
    ),
    "containers and units `headfirst-*`": ("lab/test_down.py::test_only_what_runs_goes",),
    "`/etc/docker/daemon.json`": ("unit/test_docker_engine_vars.py::test_daemon_json_is_merged",),
    "`/etc/hosts`": ("host_tuning: Names, which the restart of a lab node takes away",),
    "`/etc/security/limits.d/headfirst.conf`": ("host_tuning: What is asked for no more",),
    "files `headfirst-*` below": ("rdma: A host without RDMA", "nvidia_driver: Verify"),
    "`headfirst-firewall.service`": (
        "unit/test_rendezvous_ports.py::test_only_the_head_of_several_ranks_has_them",
        "host_tuning: What is asked for no more",
    ),
    "`deploy down` removes": (
        "lab/test_down.py::test_only_what_runs_goes",
        "host_tuning: The end of a service",
    ),
    "Docker, its images, drivers": ("lab/test_down.py::test_only_what_runs_goes",),
    "`/etc/headfirst/headfirst-engine`": ("unit/test_service_change.py",),
    "`/etc/headfirst/owner.json`": ("lab/test_owner.py::test_every_node_names_its_owner",),
    "`/etc/headfirst/credentials.json`": (
        "unit/test_ownership_node_script.py::test_the_owner_and_its_credentials",
    ),
    "`/run/headfirst`": (
        "unit/test_ownership_node_script.py::test_the_lock_names_its_holder_until_it_is_released",
    ),
    "`/run/headfirst/jobs`": (
        "unit/test_job_script.py::test_a_secret_is_in_a_private_file_and_nowhere_else",
    ),
    "Without `--data` the head's credentials": (
        "unit/test_ownership_node_script.py::test_a_release_moves_the_credentials_to_the_data",
    ),
    # On the controller
    "While a run lasts, its secrets": (
        "unit/test_private_dir.py::test_without_a_login_the_folder_is_in_memory",
        "unit/test_private_dir.py::test_a_runtime_folder_that_others_can_read_is_not_used",
    ),
    "A run that is killed leaves the folder": ("unit/test_private_dir.py::test_a_killed_run_leaves_nothing",),
    "`~/.local/state/headfirst`": (
        "unit/test_run_failures.py::test_logs_are_private_and_the_last_twenty_stay",
        "lab/test_nodes.py::test_keys_are_for_their_owner_alone",
    ),
    "`~/.cache/headfirst`": ("unit/test_images_store.py", "unit/test_node_wheel.py"),
    # What listens where
    "30000 (`engine_port`)": ("unit/test_plan_references.py::test_a100x4_carries_the_published_commands",),
    "5000 (`dist_port`), with data-parallel": (
        "unit/test_rendezvous_ports.py::test_only_the_head_of_several_ranks_has_them",
    ),
    "ports that the kernel chooses, 32768": (
        "unit/test_rendezvous_ports.py::test_the_kernels_ports_stay_open_unless_they_are_named",
    ),
    "with one rank: one port": ("unit/test_rendezvous_ports.py::test_a_rank_alone_meets_nobody",),
    "8000 (`router_port`)": (
        "unit/test_supervisor_routers.py::test_the_key_of_the_service_does_not_open_the_list_of_replicas",
        "unit/test_supervisor_routers.py::test_names_of_models_and_states_need_no_key",
    ),
    "29000 (`router_metrics_port`)": (
        "unit/test_routers.py::test_only_the_clusters_hosts_reach_the_routers_metrics",
    ),
    "8080 (`webui_port`)": (
        "open_webui: Try to sign up",
        "browser/test_chat_page.py::test_nobody_can_sign_up",
    ),
    "5010 (`weights_port`)": (
        "unit/test_weights_strangers.py::test_an_address_that_is_no_member_is_refused_before_it_sends_anything",
    ),
    "The engine's rendezvous and message queues trust": (
        "unit/test_rendezvous_ports.py::test_only_the_head_of_several_ranks_has_them",
    ),
    "The head's rendezvous ports are therefore closed": (
        "unit/test_host_tuning.py::test_every_rank_is_admitted_from_where_it_connects",
        "host_tuning: Only the peer reaches the closed ports",
        "host_tuning: Connect from the host to its own address",
    ),
    "Everything else, SSH included": ("host_tuning: Close Ansible's own way in, or a port that is none",),
    "`host_tuning_firewall=false`": ("unit/test_host_tuning.py::test_the_firewall_can_be_left_out",),
    "The ports that the kernel chooses are not closed": (
        "unit/test_rendezvous_ports.py::test_the_kernels_ports_stay_open_unless_they_are_named",
    ),
    "Put the ranks on a network of their own": (
        "unit/test_rendezvous_ports.py::test_the_kernels_ports_stay_open_unless_they_are_named",
    ),
    "On a host whose ufw or firewalld is active": ("host_tuning: A node with ufw",),
    "On 5010 the nodes exchange news": (
        "unit/test_weights_board.py::test_only_members_with_the_token_are_answered",
        "unit/test_weights_transport.py::test_a_chain_copies_everything_and_the_head_sends_each_byte_once",
    ),
    "A connection from an address that is no rank's": (
        "unit/test_weights_strangers.py::test_an_address_that_is_no_member_is_refused_before_it_sends_anything",
        "unit/test_weights_transport.py::test_who_is_no_member_gets_nothing",
    ),
    "Every request carries an HMAC": (
        "unit/test_weights_transport.py::test_who_does_not_have_the_token_gets_nothing",
        "unit/test_weights_strangers.py::test_a_body_is_read_only_after_its_sender_is_proven",
        "unit/test_weights_transport_wire.py::test_in_clear_the_wire_shows_names_and_payload_and_no_token",
    ),
    "The answer to news carries one too": (
        "unit/test_weights_board.py::test_an_answer_without_the_token_is_not_taken",
        "unit/test_weights_strangers.py::test_a_recorded_answer_is_not_taken",
    ),
    "The HMAC covers what is asked for": (
        "unit/test_weights_strangers.py::test_a_recorded_request_is_answered_by_nobody",
        "unit/test_weights_transport_strangers.py::test_a_recorded_request_for_bytes_is_answered_by_nobody",
    ),
    "Only a file that the transfer offers": (
        "unit/test_weights_transport_strangers.py::test_only_names_of_offered_files_are_found",
        "unit/test_weights_transport_strangers.py::test_a_range_that_is_none_is_refused",
        "unit/test_weights_transport.py::test_a_file_of_another_version_is_not_sent",
    ),
    "A rank's address gets 24 connections": (
        "unit/test_weights_strangers.py::test_300_silent_connections_hold_few_threads_and_nobody_up",
        "unit/test_weights_strangers.py::test_who_sends_slowly_is_cut_off",
        "unit/test_weights_transport_wire.py::test_a_silent_connection_holds_nobody_up",
    ),
    "An answer that breaks the protocol": (
        "unit/test_weights_transport_strangers.py::test_an_answer_that_is_none_is_refused_in_bounded_time",
        "unit/test_weights_transport_strangers.py::test_bytes_that_come_too_slowly_are_not_waited_for",
        "unit/test_weights_strangers.py::test_an_endless_answer_is_not_read",
    ),
    "What arrives is proven by BLAKE3": (
        "unit/test_weights_transport_faults.py::test_only_pieces_with_flipped_bytes_are_fetched",
        "unit/test_weights_transport_faults.py::test_a_source_that_was_changed_is_named",
        "unit/test_weights_strangers.py::test_a_real_message_with_many_pieces_is_read",
    ),
    "File names, sizes, hashes, progress and the bytes": (
        "unit/test_weights_transport_wire.py::test_in_clear_the_wire_shows_names_and_payload_and_no_token",
    ),
    "Every connection is then encrypted by TLS 1.3": (
        "unit/test_weights_transport_wire.py::test_encrypted_the_wire_shows_neither",
        "unit/test_weights_transport_wire.py::test_older_versions_of_tls_are_refused",
        "unit/test_weights_transport_wire.py::test_the_key_is_of_the_token_alone",
    ),
    "A program without the secret cannot connect": (
        "unit/test_weights_transport_wire.py::test_who_connects_without_the_tokens_key_gets_nothing",
        "unit/test_weights_transport_wire.py::test_recorded_bytes_of_a_connection_admit_nobody",
        "unit/test_weights_transport_wire.py::test_older_versions_of_tls_are_refused",
    ),
    "Not protected: who takes": (
        "unit/test_weights_transport_strangers.py::test_wrong_bytes_of_an_impostor_are_not_kept",
    ),
    "With `weights_carrier=rdma` the bytes": (
        "unit/test_plan_carrier.py::test_what_cannot_be_is_refused_with_the_line",
        "unit/test_weights_carrier.py::test_rdma_is_not_together_with_encryption",
    ),
    "An adapter answers only reads": (
        "unit/test_weights_rdma.py::test_what_is_not_lent_by_this_lender_cannot_be_read",
        "unit/test_weights_rdma.py::test_a_stranger_can_neither_read_nor_connect",
        "unit/test_weights_carrier.py::test_an_offer_that_the_request_does_not_prove_is_refused",
    ),
    "Nobody can write": ("unit/test_weights_rdma.py::test_nobody_can_write",),
    # Data from outside
    "It is data, validated before it is used": (
        "unit/test_weights_hostile_listing.py::test_one_bad_entry_refuses_the_whole_list",
    ),
    "File lists (hub, mirror": (
        "unit/test_weights_hostile_listing.py::test_one_bad_entry_refuses_the_whole_list",
        "unit/test_untrusted.py::test_paths_that_leave_their_folder",
        "unit/test_untrusted.py::test_names_that_clash",
    ),
    "This is checked before anything is written": (
        "unit/test_weights_hostile_listing.py::test_a_hub_with_a_hostile_list_changes_nothing",
    ),
    "Hidden files are left out": (
        "unit/test_weights_hostile_listing.py::test_a_manifest_that_is_none_is_refused_with_what_to_do",
    ),
    "Answers of a hub that are no file": (
        "unit/test_weights_hostile_listing.py::test_the_answers_of_a_hub_are_bounded",
        "unit/test_untrusted.py::test_json_at_its_bounds",
    ),
    "Safetensors files": (
        "unit/test_weights_malformed_shards.py::test_what_the_library_refuses_is_refused_here",
    ),
    "A header over 100 MB": (
        "unit/test_weights_malformed_shards.py::test_a_header_over_the_limit_is_not_read",
    ),
    "Symbolic links": (
        "unit/test_weights_hostile_listing.py::test_links_in_the_target_are_refused_before_anything_is_removed",
    ),
    "In a folder that is given": (
        "unit/test_weights_hostile_listing.py::test_links_inside_the_source_and_into_a_hubs_cache_are_followed",
        "unit/test_weights_hostile_listing.py::test_a_link_that_leads_out_of_the_source_is_refused",
    ),
    "`verify` reports one": (
        "unit/test_weights_hostile_listing.py::test_verify_names_a_file_that_became_a_link",
    ),
    "A node, a hub, an engine or a model folder may send": ("unit/test_untrusted.py",),
    "`py/headfirst/untrusted.py` checks types": (
        "unit/test_untrusted.py::test_random_texts_never_pass_a_check_with_what_it_refuses",
        "unit/test_node_answers.py::test_an_answer_of_wrong_types_names_its_node",
    ),
    "module `host_facts`": ("unit/test_host_facts.py",),
    "the generated inventory": ("unit/test_generated_inventory.py::test_no_text_becomes_a_template",),
    "a model folder on the head": ("unit/test_node_answers.py::test_names_that_would_leave_the_folder",),
    "`deploy diagnose`": ("unit/test_node_answers.py::test_answers_that_are_refused_as_a_whole",),
    "hubs and mirrors": ("unit/test_weights_hostile_listing.py::test_the_answers_of_a_hub_are_bounded",),
    "`config.json`, index, safetensors headers": (
        "unit/test_weights_hostile_listing.py::test_an_index_that_names_other_files_is_refused",
        "unit/test_weights_malformed_shards.py::test_a_malformed_file_is_refused_with_its_name",
    ),
    "text that is printed": ("unit/test_terminal.py::test_every_command_prints_through_the_terminal",),
    "Python code of a model's repository": (
        "unit/test_plan_trust.py::test_any_other_model_with_code_is_not_trusted",
        "unit/test_plan_trust.py::test_who_decides",
    ),
    "That commit is then what is fetched": (
        "unit/test_plan_trust.py::test_a_listed_commit_is_trusted_and_fetched",
    ),
    "The plan prints the decision": ("unit/test_plan_trust.py::test_the_table_shows_the_decision",),
    "Not bounded: the time": ("unit/test_node_answers.py::test_a_log_line_without_end_keeps_its_start",),
    # Rules it keeps
    "No container is": ("unit/test_container_spec.py::test_an_init_is_pid_1_and_nothing_is_privileged",),
    "GPUs come by device request": (
        "unit/test_plan_references.py::test_a100x4_carries_the_published_commands",
    ),
    "Secrets are generated": (
        "unit/test_run_playbook.py::test_stages_changes_and_secrets",
        "unit/test_container_spec.py::test_secrets_are_in_the_environment_but_in_no_label",
    ),
    "Passwords in URLs": (
        "unit/test_run_failures.py::test_passwords_in_urls_are_masked_without_being_known",
        "unit/test_inventory.py::test_passwords_in_urls_of_any_variable_are_known",
        "node_tools: Check that the password is neither in an argument nor in the report nor on the node",
    ),
    "Two places show secrets": ("unit/test_live_chat.py::test_log_lines_for_people",),
    "SSH host keys are checked": ("lab/test_nodes.py::test_a_foreign_host_key_is_refused",),
    "apt gets a key file": (
        "unit/test_apt_key_file.py::test_apt_takes_the_owners_repository_and_not_the_attackers",
        "unit/test_apt_key_file.py::test_the_file_holds_the_key_alone",
        "unit/test_role_tools.py::test_every_key_of_apt_is_written_by_the_module",
    ),
    "A folder of packages": ("rdma: Install DOCA-OFED",),
    "Python packages are pinned": (
        "unit/test_node_wheel.py::test_every_line_of_a_lock_has_one_version_and_hashes",
        "unit/test_node_wheel.py::test_pip_refuses_files_with_other_content",
        "unit/test_images_site.py::test_locks_pin_one_file_per_package",
        "node_tools: Spoil a wheel of the folder",
    ),
    "Files from a hub": (
        "unit/test_weights_fetch_hub.py::test_bytes_that_stay_wrong_are_refused_with_the_file",
    ),
    "Images are pinned": ("engine_image: Another image goes by the same name on one host",),
    "The chat page accepts requests": (
        "unit/test_open_webui_vars.py::test_only_the_pages_own_addresses_are_allowed",
        "open_webui: Check that browsers let only the page itself read the answers",
    ),
    "Sign-up is closed": ("open_webui: Try to sign up",),
    "Behind the proxy, between the hosts": (
        "unit/test_proxy_plan.py::test_it_is_in_front_of_engine_and_page_and_closes_their_ports",
    ),
    "A key with a name is printed once": ("unit/test_keys.py::test_of_a_key_only_a_hash_is_kept",),
    "Without `tls` the API and the chat page use plain HTTP": (
        "lab/test_live_docker.py::test_tunnel_carries_many_requests_at_once_and_closes",
    ),
}


def statements(text: str) -> list[str]:
    """Rows of tables by their first cell, and sentences of text and lists; no heading or language link."""
    found = []
    for block in re.split(r"\n\s*\n|\n(?=[-|])", re.sub(r"(?m)^(#|\[简体中文\]).*$", "\n", text)):
        if block.startswith("|"):
            cell = block.split("|")[1].strip()
            if cell not in ("path or name", "port", "from") and not cell.startswith("---"):
                found.append(cell)
        else:
            joined = " ".join(block.removeprefix("- ").split())
            found += re.split(r"(?<=[.])\s+(?=[A-Z`])", joined) if joined else []
    return found


def matches(statement: str, start: str) -> bool:
    """Whether an entry is for a statement; one that is a name alone has a longer name beside it."""
    return statement.startswith(start) and not statement.startswith(f"{start[:-1]}/")


STATEMENTS = [statement for statement in statements(TEXT) if statement]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_names_its_tests(statement: str) -> None:
    assert sum(matches(statement, start) for start in TESTS) == 1, "Give it a test, or take it out."


@pytest.mark.parametrize("start", TESTS)
def test_no_entry_is_left_over(start: str) -> None:
    assert any(matches(statement, start) for statement in STATEMENTS)


@pytest.mark.parametrize("name", sorted({name for names in TESTS.values() for name in names}))
def test_the_named_test_exists(name: str) -> None:
    if name.startswith(("unit/", "lab/", "browser/", "long/")):
        path, _, function = name.partition("::")
        assert f"def {function or 'test_'}" in (ROOT / "tests" / path).read_text()
        return
    scenario, _, task = name.partition(": ")
    tasks = [path.read_text() for path in (ROOT / "molecule" / scenario).rglob("*.yml")]
    assert any(f"- name: {task}\n" in text for text in tasks)


def test_a_statement_without_a_test_is_found() -> None:
    assert statements(
        "# A\n\n| port | on |\n|---|---|\n| 1 | x |\n\nOne. Two\ngoes on.\n\n- Three.\n- Four: `a.b`.\n"
    ) == [
        "1",
        "One.",
        "Two goes on.",
        "Three.",
        "Four: `a.b`.",
    ]
