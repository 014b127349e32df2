//! The transport suite against the model broker: what the simulator runs on keeps the promises
//! that the real transports keep.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use postrider_conformance::transport::{self, Capability, Fault, Received, fixture};
use postrider_contract::Destination;
use postrider_core::Class;
use postrider_transport::Transport;
use postrider_transport_memory::{Broker, Decision, Delay, Fate, Memory, Options};

const MESSAGE_BYTES_MAX: usize = 32 * 1024;

struct Harness {
    broker: Broker,
    fault: Arc<AtomicU8>,
}

const NONE: u8 = 0;
const REFUSE: u8 = 1;
const SILENT: u8 = 2;
const DEAF: u8 = 3;

impl transport::Harness for Harness {
    const CANNOT: &'static [Capability] = &[Capability::MissingTarget];
    const DOCS: &'static str = include_str!("../../../docs/transports/memory.md");
    const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

    async fn start() -> Self {
        let delay: Delay = Arc::new(|duration| Box::pin(tokio::time::sleep(duration)));
        let options = Options {
            dedup_window: Some(Duration::from_secs(60)),
            message_bytes_max: Some(MESSAGE_BYTES_MAX),
            ..Options::default()
        };
        let broker = Broker::with_delay(options, delay);
        let fault = Arc::new(AtomicU8::new(NONE));
        let rule = Arc::clone(&fault);
        broker.decide_by(move |_, _| match rule.load(Ordering::SeqCst) {
            REFUSE => Fate::Refuse(Class::Refusal).into(),
            SILENT => Fate::BlackHole { stored: false }.into(),
            DEAF => Fate::BlackHole { stored: true }.into(),
            _ => Decision {
                answer: Duration::from_millis(1),
                ..Fate::Accept.into()
            },
        });
        Self { broker, fault }
    }

    fn destination(&self) -> Destination {
        fixture::destination("memory", "handler.result/1")
    }

    fn open(&self, _: &Destination) -> Arc<dyn Transport> {
        Arc::new(Memory::open(&self.broker))
    }

    fn missing(&self) -> Destination {
        self.destination()
    }

    async fn received(&self) -> Vec<Received> {
        self.broker.with_log(|log| {
            log.iter()
                .map(|stored| Received {
                    event_id: stored.event_id.to_string(),
                    headers: stored
                        .headers
                        .iter()
                        .map(|(name, value)| (name.to_owned(), value.to_owned()))
                        .collect(),
                    body: stored.body.to_vec(),
                })
                .collect()
        })
    }

    async fn inflict(&self, fault: Fault) {
        let rule = match fault {
            Fault::Down => return self.broker.set_down(true),
            Fault::Refuse => REFUSE,
            Fault::Silent => SILENT,
            Fault::Deaf => DEAF,
        };
        self.fault.store(rule, Ordering::SeqCst);
    }

    async fn heal(&self) {
        self.broker.set_down(false);
        self.fault.store(NONE, Ordering::SeqCst);
    }
}

postrider_conformance::transport_suite!(Harness);
