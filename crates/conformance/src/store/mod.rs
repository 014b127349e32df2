//! What every store promises, as tests against its real database.
//!
//! A store's crate implements [`StoreHarness`] once and writes
//! `postrider_conformance::store_suite!(MyHarness);` in an integration test: one
//! `#[tokio::test]` per promise, named as the promise. Each opens a database of its own.

pub mod append;
pub mod control;
pub mod differential;
pub mod evidence;
pub mod exchange;
pub mod fetch;
pub mod fixture;
pub mod inspect;
pub mod memory;
pub mod ordering;
pub mod recovery;
pub mod replay;
pub mod sessions;

mod harness;

pub use harness::{AuditRow, CallerTransaction, FindingRow, StoreHarness, Tampering};

/// One test per promise, in modules by subject. Needs `tokio` with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! store_suite {
    ($harness:ty) => {
        $crate::__store_promises! { $harness;
            append: [
                events_appear_with_the_business_row_or_not_at_all,
                a_dropped_transaction_leaves_nothing,
                an_event_has_exactly_the_deliveries_of_its_delivery_set,
                an_unregistered_event_type_is_refused,
                without_an_active_delivery_set_nothing_is_appended,
                the_same_event_again_is_already_there,
                the_same_event_twice_in_one_batch_is_stored_once,
                another_event_under_the_same_id_is_a_conflict,
                one_id_in_two_transactions_is_stored_once,
                a_batch_is_all_or_nothing,
                an_empty_batch_is_nothing,
                a_payload_over_the_limit_of_a_destination_is_refused,
                a_broken_field_is_named,
                payload_and_headers_are_kept_exactly,
                an_event_without_an_id_gets_one,
                lanes_follow_the_hash_of_the_key,
                ids_1_positions_order_a_key_whatever_the_ids,
                what_is_committed_never_changes,
                tim_1_extreme_times_do_not_stop_a_batch,
            ];
            control: [
                a_fresh_store_has_the_schema_that_this_program_knows,
                the_same_plan_again_changes_nothing,
                other_content_under_a_registered_name_is_refused,
                a_member_without_a_registered_destination_is_refused,
                a_changed_schema_applies_to_later_events,
                set_1_a_changed_delivery_set_serves_new_events_only,
                a_new_generation_leaves_the_old_one_its_events,
                nothing_is_due_at_a_suspended_destination,
                changes_by_people_are_audited,
            ];
            sessions: [
                a_session_lives_as_long_as_its_lease,
                lse_1_only_the_stores_clock_ends_a_lease,
                opening_an_open_session_changes_nothing,
                an_exclusive_session_keeps_another_out,
                only_one_of_many_exclusive_sessions_opens,
                lanes_are_held_by_one_session_at_most,
                a_claim_takes_the_lowest_free_lanes_it_wants,
                dep_1_a_session_takes_no_lane_of_what_it_cannot_serve,
                shares_tell_what_a_fair_share_needs,
                an_ended_session_frees_its_lanes_once,
                breakers_are_reported_while_they_last,
                who_refuses_a_destination_has_no_share_of_it,
                the_doorbell_rings_for_a_sleeper,
            ];
            exchange: [
                an_attempt_is_durable_before_anything_is_sent,
                an_acknowledgement_closes_with_its_receipt,
                receipts_of_every_kind_come_back_as_they_were,
                a_retry_waits_its_delay_and_is_charged_as_told,
                unknown_waits_for_the_truth,
                quarantine_waits_for_a_person,
                what_is_unfit_is_quarantined_without_an_attempt,
                the_publish_slot_is_won_once,
                a_mixed_batch_settles_each_member_for_itself,
                the_same_exchange_again_changes_nothing,
                an_ended_session_can_do_nothing,
                only_what_was_registered_can_be_settled,
                a_refused_exchange_does_none_of_its_parts,
                an_outcome_does_not_reopen_what_was_closed,
                an_acknowledgement_closes_what_another_outcome_left_open,
                outcomes_at_one_destination_touch_no_other,
                jsn_1_a_nul_in_an_error_text_stops_nothing,
            ];
            fetch: [
                due_deliveries_come_in_position_order,
                only_the_lanes_asked_for_are_read,
                after_exclude_and_busy_keys_are_left_out,
                the_limit_stops_a_fetch,
                bytes_stop_a_fetch_but_never_the_first,
                next_due_is_the_first_retry_of_these_lanes,
                what_is_in_an_attempt_is_still_offered,
            ];
            ordering: [
                a_waiting_delivery_holds_the_later_ones_of_its_key,
                an_unknown_delivery_holds_the_later_ones_of_its_key,
                a_quarantined_delivery_holds_its_key_where_the_destination_says_so,
                a_quarantined_delivery_below_the_scan_lets_its_key_pass,
                a_held_key_holds_nothing_at_another_destination,
                what_holds_a_key_is_shown_with_its_tail,
                a_retry_below_the_scan_holds_its_key,
                a_replayed_head_below_the_scan_holds_its_key,
                a_tail_released_by_evidence_leaves_in_order,
                ord_1_what_commits_late_is_still_sent,
                ord_1_a_settled_run_does_not_swallow_a_late_commit,
                ord_1_a_rolled_back_position_delays_nobody,
                ord_1_a_fetch_says_what_may_still_appear,
                a_long_foreign_transaction_delays_nobody,
                ord_3_a_second_worker_never_overtakes_a_key,
                a_lane_handed_over_keeps_its_order,
            ];
            recovery: [
                an_expired_session_leaves_each_destination_its_policy,
                an_ended_session_is_settled_as_an_expired_one,
                recovery_happens_once,
                recovery_takes_the_longest_dead_first,
                recovery_leaves_what_was_settled,
            ];
            evidence: [
                a_late_receipt_of_a_dead_session_wins_the_slot,
                a_late_receipt_after_another_is_a_duplicate_kept_once,
                the_primary_receipt_again_is_still_primary,
                evidence_closes_any_open_delivery,
                evidence_that_overtakes_a_live_attempt_makes_its_receipt_a_duplicate,
                evidence_for_something_else_is_a_finding,
                evidence_with_another_digest_quarantines,
            ];
            replay: [
                a_selection_matches_all_that_it_names,
                replay_sends_the_same_event_again,
                rep_1_replay_keeps_the_order_of_a_key,
                rep_1_one_replayed_delivery_leaves_the_others,
                replay_releases_head_and_tail_in_order,
                replay_takes_the_lowest_positions_up_to_its_limit,
            ];
            inspect: [
                ids_1_pages_show_each_event_once_while_more_arrive,
                ids_1_pages_of_deliveries_show_each_once,
                filters_match_all_that_they_name,
                deliveries_are_filtered_by_destination_state_and_key,
                the_backlog_counts_each_state,
                sessions_are_listed_newest_first,
                an_event_shows_its_newest_attempts,
                maintenance_leaves_everything_in_place,
            ];
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_promises {
    ($harness:ty; $($module:ident: [$($promise:ident),* $(,)?];)*) => {
        $(mod $module {
            use super::*;
            $(#[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                $crate::store::$module::$promise::<$harness>().await;
            })*
        })*
    };
}

#[cfg(test)]
mod tests {
    /// A promise that is written but not listed would never run.
    #[test]
    fn every_promise_is_listed() {
        let modules = [
            ("append", include_str!("append.rs")),
            ("control", include_str!("control.rs")),
            ("sessions", include_str!("sessions.rs")),
            ("exchange", include_str!("exchange.rs")),
            ("fetch", include_str!("fetch.rs")),
            ("ordering", include_str!("ordering.rs")),
            ("recovery", include_str!("recovery.rs")),
            ("evidence", include_str!("evidence.rs")),
            ("replay", include_str!("replay.rs")),
            ("inspect", include_str!("inspect.rs")),
        ];
        let this = include_str!("mod.rs");
        for (module, source) in modules {
            let (_, list) = this
                .split_once(&format!("{module}: ["))
                .expect("the module is listed");
            let (list, _) = list.split_once("];").expect("the list ends");
            let listed: Vec<&str> = list.split(',').map(str::trim).collect();
            let promises = source.lines().filter_map(|line| {
                let name = line.strip_prefix("pub async fn ")?;
                name.split('<').next()
            });
            for promise in promises {
                assert!(
                    listed.contains(&promise),
                    "{module}::{promise} is not listed"
                );
            }
        }
    }
}
