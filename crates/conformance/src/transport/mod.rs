//! What every transport promises, as tests against its real destination.
//!
//! A transport's crate implements [`Harness`] once and writes
//! `postrider_conformance::transport_suite!(MyHarness);` in an integration test. That makes one
//! `#[tokio::test]` per promise.

pub mod fixture;
pub mod promises;

use std::{future::Future, sync::Arc};

use postrider_contract::Destination;
use postrider_transport::Transport;

/// A destination of one test's own, real, and breakable on command.
pub trait Harness: Sized + Send + Sync + 'static {
    /// What this transport cannot do, or its destination cannot be made to do. The promises that
    /// need it check that it is documented instead.
    const CANNOT: &'static [Capability];

    /// The text of the transport's page in `docs/transports`.
    const DOCS: &'static str;

    /// Largest message that the destination takes, in bytes; see [`Capability::SizeLimit`].
    const MESSAGE_BYTES_MAX: usize;

    /// Starts a destination that is ready and empty.
    fn start() -> impl Future<Output = Self> + Send;

    fn destination(&self) -> Destination;

    /// A new transport to a destination that has this definition; [`Self::destination`] with
    /// another serializer or ordering.
    fn open(&self, destination: &Destination) -> Arc<dyn Transport>;

    /// The definition of a destination that does not exist at the same server.
    fn missing(&self) -> Destination;

    /// Everything the destination holds, in its order.
    fn received(&self) -> impl Future<Output = Vec<Received>> + Send;

    fn inflict(&self, fault: Fault) -> impl Future<Output = ()> + Send;

    /// Ends every fault.
    fn heal(&self) -> impl Future<Output = ()> + Send;
}

/// A message as its receiver sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub event_id: String,
    /// Lower-case names as in CloudEvents over HTTP, values decoded.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What can go wrong at a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It answers that it takes nothing.
    Refuse,
    /// It is gone: connections are refused.
    Down,
    /// What is sent disappears on the way, without an error.
    Silent,
    /// What is sent arrives; the answers disappear on the way.
    Deaf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// It can be made to refuse ([`Fault::Refuse`]).
    Refusal,
    /// It is reached over a network that can fail.
    Network,
    /// A target may be missing at a server that is there.
    MissingTarget,
    /// It bounds the size of a message.
    SizeLimit,
    /// It keeps the order of a batch.
    Order,
    /// It recognises an event that is sent again.
    Dedup,
    /// It can be asked whether it has an event.
    Find,
    /// It can say for certain that it does not have an event.
    ProveAbsence,
    /// It carries headers beside the body.
    Headers,
}

impl Capability {
    /// The word in the documentation, as in "**Cannot:** `order`".
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Refusal => "refusal",
            Self::Network => "network",
            Self::MissingTarget => "missing-target",
            Self::SizeLimit => "size-limit",
            Self::Order => "order",
            Self::Dedup => "dedup",
            Self::Find => "find",
            Self::ProveAbsence => "prove-absence",
            Self::Headers => "headers",
        }
    }
}

/// One `#[tokio::test]` per promise.
#[macro_export]
macro_rules! transport_suite {
    ($harness:ty) => {
        $crate::transport_suite!(
            $harness:
            acknowledges_with_evidence,
            keeps_the_body_byte_for_byte,
            a_refusal_is_not_an_acknowledgement,
            a_missing_target_burns_no_attempts,
            an_oversized_message_leaves_its_neighbours_alone,
            a_destination_that_is_down_is_an_outage,
            a_lost_answer_is_unknown_and_converges,
            a_black_hole_answers_every_message_by_its_deadline,
            a_full_window_of_lost_answers_clogs_nothing,
            comes_back_by_itself_on_the_same_address,
            keeps_the_order_of_a_batch,
            recognises_an_event_that_is_sent_again,
            a_probe_tells_the_truth,
            headers_come_through_unchanged,
            a_dropped_send_leaves_the_transport_usable,
            a_ready_destination_has_no_refusing_problem,
            what_it_cannot_do_is_documented,
        );
    };
    ($harness:ty: $($promise:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            $crate::transport::promises::$promise::<$harness>().await;
        }
    )*};
}
