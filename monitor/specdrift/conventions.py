"""Every public name specdrift reads or writes: metrics, labels, causes, states, ports.

Rules, dashboards and adapters take their names from here and nowhere else.
"""

from __future__ import annotations

from typing import Final

# --- identity -------------------------------------------------------------------------------
NAME: Final = "specdrift"
FIELD_MANAGER: Final = "specdrift"
API_GROUP: Final = "specdrift.dev"
API_VERSION: Final = "specdrift.dev/v1alpha1"
POLICY_KIND: Final = "SpecDecodePolicy"
ANNOTATION_MODE: Final = "specdrift.dev/mode"
ANNOTATION_OVERRIDE: Final = "specdrift.dev/override"

# --- defaults for listening on loopback --------------------------------------------------------
LOOPBACK: Final = "127.0.0.1"
PORT_API: Final = 9470
PORT_DASHBOARD: Final = 8501
PORT_EXPORTER: Final = 9471
PORT_SIMULATED_ENGINE: Final = 8000

# --- labels -----------------------------------------------------------------------------------
LABEL_MODEL: Final = "model_name"
LABEL_ENGINE: Final = "engine"
LABEL_CLASS: Final = "traffic_class"
LABEL_NUM_SPECULATIVE_TOKENS: Final = "num_speculative_tokens"
LABEL_BATCH_BUCKET: Final = "batch_bucket"
LABEL_POSITION: Final = "position"
LABEL_OUTCOME: Final = "outcome"
LABEL_METHOD: Final = "method"

HEADER_TRAFFIC_CLASS: Final = "x-traffic-class"
CLASS_DEFAULT: Final = "default"
CLASS_OTHER: Final = "other"
CLASS_UNATTRIBUTED: Final = "unattributed"

# Batch buckets by number of running requests, upper bounds inclusive (design, section 2).
BATCH_BUCKET_BOUNDS: Final = (1, 8, 32, 128)
BATCH_BUCKETS: Final = ("1", "2-8", "9-32", "33-128", "129+")

# --- series published by the in-engine tap on the engine's own /metrics -----------------------
# labels: model_name, engine, traffic_class, num_speculative_tokens [, batch_bucket | position]
TAP_DRAFTS: Final = "specdrift_tap_spec_drafts_total"
TAP_DRAFT_TOKENS: Final = "specdrift_tap_spec_draft_tokens_total"
TAP_ACCEPTED_TOKENS: Final = "specdrift_tap_spec_accepted_tokens_total"
TAP_ACCEPTED_PER_POSITION: Final = "specdrift_tap_spec_accepted_tokens_per_position_total"
# labels: model_name, engine, traffic_class [, outcome]
TAP_OUTPUT_TOKENS: Final = "specdrift_tap_output_tokens_total"
TAP_REQUESTS: Final = "specdrift_tap_requests_total"
# request-steps (one per running request and engine step) and their seconds, by class and bucket
TAP_REQUEST_STEPS: Final = "specdrift_tap_request_steps_total"
TAP_REQUEST_STEP_SECONDS: Final = "specdrift_tap_request_step_seconds_total"
# sufficient statistics of per-request acceptance at finish (or abort), split by K
TAP_FINISHED_REQUESTS: Final = "specdrift_tap_finished_requests_total"
TAP_FINISHED_DRAFT_TOKENS: Final = "specdrift_tap_finished_draft_tokens_total"
TAP_FINISHED_ACCEPTED: Final = "specdrift_tap_finished_accepted_tokens_total"
TAP_FINISHED_ACCEPTED_SQUARED: Final = "specdrift_tap_finished_accepted_tokens_squared_total"
TAP_FINISHED_PRODUCT: Final = "specdrift_tap_finished_draft_accepted_product_total"
TAP_FINISHED_DRAFT_SQUARED: Final = "specdrift_tap_finished_draft_tokens_squared_total"
# histograms; labels: traffic_class, batch_bucket, le (step_seconds: batch_bucket and K only)
TAP_TPOT: Final = "specdrift_tap_time_per_output_token_seconds"
TAP_TTFT: Final = "specdrift_tap_time_to_first_token_seconds"
TAP_QUEUE: Final = "specdrift_tap_queue_time_seconds"
TAP_REQUEST_SECONDS: Final = "specdrift_tap_request_seconds"
TAP_STEP_SECONDS: Final = "specdrift_tap_step_seconds"
TAP_SPEC_CONFIG_INFO: Final = "specdrift_tap_spec_config_info"

# --- causes (design, section 6) -------------------------------------------------------------
CAUSE_MIX_SHIFT: Final = "mix_shift"
CAUSE_CONTENT_DRIFT: Final = "content_drift"
CAUSE_WEIGHTS_CHANGED: Final = "weights_changed"
CAUSE_ENGINE_CHANGED: Final = "engine_changed"
CAUSE_K_TRANSITION: Final = "k_transition"
CAUSE_SAMPLING_CHANGED: Final = "sampling_changed"
CAUSE_ENGINE_FAULT: Final = "engine_fault_suspected"
CAUSE_UNKNOWN: Final = "unknown"
CAUSES: Final = (
    CAUSE_MIX_SHIFT,
    CAUSE_CONTENT_DRIFT,
    CAUSE_WEIGHTS_CHANGED,
    CAUSE_ENGINE_CHANGED,
    CAUSE_K_TRANSITION,
    CAUSE_SAMPLING_CHANGED,
    CAUSE_ENGINE_FAULT,
    CAUSE_UNKNOWN,
)

# --- series published by the controller about itself (design, section 4) ----------------------
# labels: workload [, traffic_class [, side, drop]]
CONTROLLER_BUILD_INFO: Final = "specdrift_build_info"
CONTROLLER_UP: Final = "specdrift_up"
CONTROLLER_STATE: Final = "specdrift_state"
CONTROLLER_ENGINE_STATE: Final = "specdrift_engine_state"
CONTROLLER_CUSUM: Final = "specdrift_cusum"
CONTROLLER_DECISION_INTERVAL: Final = "specdrift_decision_interval"
CONTROLLER_BASELINE: Final = "specdrift_baseline_acceptance"
CONTROLLER_LAST_TICK: Final = "specdrift_last_tick_timestamp_seconds"
CONTROLLER_LAST_DECISION: Final = "specdrift_last_decision_timestamp_seconds"
CONTROLLER_ACTIONS: Final = "specdrift_actions_total"
CONTROLLER_SPEEDUP: Final = "specdrift_speedup_estimate"
CONTROLLER_BREAK_EVEN: Final = "specdrift_break_even_acceptance"
CONTROLLER_COST: Final = "specdrift_cost_dollars_per_million_tokens"

LABEL_WORKLOAD: Final = "workload"
LABEL_STATE: Final = "state"
LABEL_SIDE: Final = "side"
LABEL_DROP: Final = "drop"
LABEL_RUNG: Final = "rung"
LABEL_BOUND: Final = "bound"
LABEL_BASIS: Final = "basis"

# Outcomes of the actions counter.
OUTCOME_STARTED: Final = "started"
OUTCOME_VERIFIED: Final = "verified"
OUTCOME_UNDONE: Final = "undone"
OUTCOME_PROBED: Final = "probed"
OUTCOME_FELL_BACK: Final = "fell_back"
OUTCOME_RECOVERED: Final = "recovered"
