//! The model broker: a log of what it stored, and the faults it was told to make. It never looks
//! at a clock.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use postrider_contract::{
    Digest, EventId, Receipt,
    cloudevents::{Headers, STRUCTURED},
    destination::Serializer,
};
use postrider_transport::{Message, ProbeStrength, Routing, wire::payload_digest};
use tokio::sync::oneshot;

use crate::fate::{Decision, Fate};

/// What a broker is like. [`Options::default`] is a broker without dedup that keeps order.
#[derive(Clone, Debug)]
pub struct Options {
    /// Named in receipts.
    pub name: String,
    pub pipelined_in_order: bool,
    pub batch_max: u32,
    /// `Some`: an event id seen before is not stored again, and answered with the first receipt.
    /// The broker remembers until [`Broker::forget`]; the span itself is only what the transport
    /// tells the dispatcher.
    pub dedup_window: Option<Duration>,
    pub probe: ProbeStrength,
    /// Largest message, headers and body, in bytes.
    pub message_bytes_max: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "memory".to_owned(),
            pipelined_in_order: true,
            batch_max: 1000,
            dedup_window: None,
            probe: ProbeStrength::ProvesAbsence,
            message_bytes_max: None,
        }
    }
}

/// One stored message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// 1, 2, …: the order at the broker.
    pub sequence: u64,
    pub event_id: EventId,
    pub partition_key: String,
    pub headers: Headers,
    pub body: Bytes,
    pub routing: Routing,
}

/// A timer of the caller's choosing: a real one, or a simulator's.
pub type Delay = Arc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Decides the fate of each message that no script mentions. `sends` counts how often this event
/// was sent before.
pub type Decide = Box<dyn FnMut(&Message, u64) -> Decision + Send>;

/// A broker shared by any number of transports and by whoever looks into it. Clones are handles.
#[derive(Clone)]
pub struct Broker {
    state: Arc<Mutex<State>>,
    options: Arc<Options>,
    delay: Option<Delay>,
}

struct State {
    log: Vec<Stored>,
    first: BTreeMap<EventId, usize>,
    remembered: BTreeMap<EventId, u64>,
    sends: BTreeMap<EventId, u64>,
    scripts: BTreeMap<EventId, VecDeque<Decision>>,
    decide: Option<Decide>,
    down: bool,
    message_bytes_max: Option<usize>,
    holes: Vec<Hole>,
    under_way: Vec<Message>,
    /// Messages that a living call of `send` has not brought to the broker yet, counted.
    in_hand: BTreeMap<EventId, u32>,
}

struct Hole {
    event_id: EventId,
    answer: oneshot::Sender<()>,
}

impl Broker {
    /// A broker that accepts everything, with no sense of time: what waits for a delay goes on at
    /// once, and a black hole holds until it is released.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::build(options, None)
    }

    /// A broker whose delays and timeouts are measured by `delay`.
    #[must_use]
    pub fn with_delay(options: Options, delay: Delay) -> Self {
        Self::build(options, Some(delay))
    }

    fn build(options: Options, delay: Option<Delay>) -> Self {
        let state = State {
            log: Vec::new(),
            first: BTreeMap::new(),
            remembered: BTreeMap::new(),
            sends: BTreeMap::new(),
            scripts: BTreeMap::new(),
            decide: None,
            down: false,
            message_bytes_max: options.message_bytes_max,
            holes: Vec::new(),
            under_way: Vec::new(),
            in_hand: BTreeMap::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            options: Arc::new(options),
            delay,
        }
    }

    /// Adds the fates of the next sends of one event, in order. When they are used up, the
    /// function decides again.
    pub fn script(&self, event_id: EventId, fates: impl IntoIterator<Item = impl Into<Decision>>) {
        let fates = fates.into_iter().map(Into::into);
        self.state()
            .scripts
            .entry(event_id)
            .or_default()
            .extend(fates);
    }

    /// Decides everything that is not scripted. Called with the broker locked: it must not call
    /// back.
    pub fn decide_by(&self, decide: impl FnMut(&Message, u64) -> Decision + Send + 'static) {
        self.state().decide = Some(Box::new(decide));
    }

    /// Connections that are open keep to what they last saw.
    pub fn set_message_bytes_max(&self, max: Option<usize>) {
        self.state().message_bytes_max = max;
    }

    pub(crate) fn message_bytes_max(&self) -> Option<usize> {
        self.state().message_bytes_max
    }

    /// While down, every send is an outage and every look-up fails; the log stays.
    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    #[must_use]
    pub fn is_down(&self) -> bool {
        self.state().down
    }

    /// Lets the black holes of one event answer what is true: acknowledged if stored, unknown
    /// otherwise. Says how many there were.
    pub fn release(&self, event_id: EventId) -> usize {
        self.release_where(|hole| hole.event_id == event_id)
    }

    /// As [`Broker::release`], for every event.
    pub fn release_all(&self) -> usize {
        self.release_where(|_| true)
    }

    /// Stores the copies of one event that are still under way. Says how many there were.
    pub fn deliver_late(&self, event_id: EventId) -> usize {
        self.deliver_late_where(|message| message.event_id == event_id)
    }

    /// As [`Broker::deliver_late`], for every event, in the order sent.
    pub fn deliver_all_late(&self) -> usize {
        self.deliver_late_where(|_| true)
    }

    /// Loses what is still under way, for good. Says how many copies there were.
    pub fn drop_all_late(&self) -> usize {
        std::mem::take(&mut self.state().under_way).len()
    }

    /// Copies that were sent and may still be stored.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.state().under_way.len()
    }

    /// Ends the dedup window of every id seen so far.
    pub fn forget(&self) {
        self.state().remembered.clear();
    }

    /// Everything stored, oldest first.
    #[must_use]
    pub fn log(&self) -> Vec<Stored> {
        self.state().log.clone()
    }

    /// Looks at the log without copying it.
    pub fn with_log<T>(&self, look: impl FnOnce(&[Stored]) -> T) -> T {
        look(&self.state().log)
    }

    /// How often an event was sent, whatever became of it.
    #[must_use]
    pub fn sends(&self, event_id: EventId) -> u64 {
        self.state().sends.get(&event_id).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) async fn wait(&self, duration: Duration) {
        if let Some(delay) = self.delay.as_ref().filter(|_| !duration.is_zero()) {
            delay(duration).await;
        }
    }

    /// `None` without a sense of time.
    pub(crate) fn timeout(&self, duration: Duration) -> Option<impl Future<Output = ()> + use<>> {
        self.delay.as_ref().map(|delay| delay(duration))
    }

    pub(crate) fn decide(&self, message: &Message) -> Decision {
        let mut state = self.state();
        let sends = state.sends.entry(message.event_id).or_default();
        let before = *sends;
        *sends += 1;
        if let Some(decision) = state
            .scripts
            .get_mut(&message.event_id)
            .and_then(VecDeque::pop_front)
        {
            return decision;
        }
        match state.decide.as_mut() {
            Some(decide) => decide(message, before),
            None => Fate::Accept.into(),
        }
    }

    /// Stores a message unless the id is remembered; the sequence of the first copy either way.
    pub(crate) fn store(&self, message: &Message) -> u64 {
        self.state()
            .store(message, self.options.dedup_window.is_some())
    }

    /// Stores one more copy, past any dedup.
    pub(crate) fn store_again(&self, message: &Message) {
        self.state().append(message);
    }

    /// Notes that these messages may still arrive, until each is taken or the hand is dropped.
    pub(crate) fn hold(&self, messages: &Arc<[Arc<Message>]>) -> Hand {
        let mut state = self.state();
        for message in messages.iter() {
            *state.in_hand.entry(message.event_id).or_default() += 1;
        }
        drop(state);
        let held = messages
            .iter()
            .map(|message| Some(message.event_id))
            .collect();
        Hand {
            broker: self.clone(),
            held: Mutex::new(held),
        }
    }

    pub(crate) fn keep_under_way(&self, message: &Message) {
        self.state().under_way.push(message.clone());
    }

    pub(crate) fn open_hole(&self, event_id: EventId) -> oneshot::Receiver<()> {
        let (answer, released) = oneshot::channel();
        self.state().holes.push(Hole { event_id, answer });
        released
    }

    pub(crate) fn next_sequence(&self) -> u64 {
        self.state().log.len() as u64 + 1
    }

    /// The first stored copy at or after `anchor`, and whether another may still appear.
    pub(crate) fn find(&self, event_id: EventId, anchor: Option<u64>) -> (Option<u64>, bool) {
        let state = self.state();
        let under_way = state.in_hand.contains_key(&event_id)
            || state
                .under_way
                .iter()
                .any(|message| message.event_id == event_id);
        let first = state
            .first
            .get(&event_id)
            .map(|&index| state.log[index].sequence);
        let found = match (first, anchor) {
            (Some(first), Some(anchor)) if first < anchor => state
                .log
                .iter()
                .skip(usize::try_from(anchor.saturating_sub(1)).unwrap_or(usize::MAX))
                .find(|stored| stored.event_id == event_id)
                .map(|stored| stored.sequence),
            (first, _) => first,
        };
        (found, under_way)
    }

    /// Whether the payload stored at a sequence has this digest.
    pub(crate) fn holds(&self, sequence: u64, digest: &Digest) -> bool {
        let index = usize::try_from(sequence)
            .unwrap_or(usize::MAX)
            .wrapping_sub(1);
        self.state().log.get(index).is_some_and(|stored| {
            let structured = stored.headers.get("content-type") == Some(STRUCTURED);
            let serializer = if structured {
                Serializer::CloudeventsStructured
            } else {
                Serializer::CloudeventsBinary
            };
            payload_digest(serializer, &stored.body).as_ref() == Some(digest)
        })
    }

    pub(crate) fn receipt(&self, sequence: u64) -> Receipt {
        Receipt::Handler {
            handler: self.options.name.clone(),
            sequence,
        }
    }

    fn release_where(&self, chosen: impl Fn(&Hole) -> bool) -> usize {
        let mut state = self.state();
        let (released, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut state.holes)
            .into_iter()
            .partition(chosen);
        state.holes = kept;
        drop(state);
        // A hole whose sender is gone has nobody to answer.
        released
            .into_iter()
            .filter_map(|hole| hole.answer.send(()).ok())
            .count()
    }

    fn deliver_late_where(&self, chosen: impl Fn(&Message) -> bool) -> usize {
        let mut state = self.state();
        let (arriving, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut state.under_way)
            .into_iter()
            .partition(chosen);
        state.under_way = kept;
        for message in &arriving {
            state.store(message, self.options.dedup_window.is_some());
        }
        arriving.len()
    }

    /// A panic of a `decide` function leaves the state whole: it only decides.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The messages of one call of `send` that have not arrived.
pub(crate) struct Hand {
    broker: Broker,
    held: Mutex<Vec<Option<EventId>>>,
}

impl Hand {
    /// One message arrived, or never will.
    pub(crate) fn take(&self, index: usize) {
        let taken = self.held().get_mut(index).and_then(Option::take);
        self.broker.state().let_go(taken);
    }

    fn held(&self) -> MutexGuard<'_, Vec<Option<EventId>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let rest = std::mem::take(&mut *self.held());
        self.broker.state().let_go(rest.into_iter().flatten());
    }
}

impl State {
    fn let_go(&mut self, event_ids: impl IntoIterator<Item = EventId>) {
        for event_id in event_ids {
            if let Some(count) = self.in_hand.get_mut(&event_id) {
                *count -= 1;
                if *count == 0 {
                    self.in_hand.remove(&event_id);
                }
            }
        }
    }

    fn store(&mut self, message: &Message, dedup: bool) -> u64 {
        if dedup && let Some(&sequence) = self.remembered.get(&message.event_id) {
            return sequence;
        }
        let sequence = self.append(message);
        self.remembered.insert(message.event_id, sequence);
        sequence
    }

    fn append(&mut self, message: &Message) -> u64 {
        let index = self.log.len();
        let sequence = index as u64 + 1;
        self.log.push(Stored {
            sequence,
            event_id: message.event_id,
            partition_key: message.partition_key.clone(),
            headers: message.headers.clone(),
            body: message.body.clone(),
            routing: message.routing.clone(),
        });
        self.first.entry(message.event_id).or_insert(index);
        sequence
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Broker")
            .field("name", &self.options.name)
            .field("stored", &state.log.len())
            .field("under_way", &state.under_way.len())
            .field("holes", &state.holes.len())
            .field("down", &state.down)
            .finish()
    }
}
