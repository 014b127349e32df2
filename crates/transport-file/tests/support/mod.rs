//! A file of a test's own.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

use std::{path::PathBuf, sync::Arc};

use postrider_conformance::transport::{self, Capability, Fault, Received, fixture};
use postrider_contract::Destination;
use postrider_transport::Transport;
use postrider_transport_file::{Connection, JsonLines, KIND, RECEIPT_TYPE};
use serde_json::Value;
use tempfile::TempDir;

pub const FILE: &str = "events.jsonl";

pub struct Harness {
    pub folder: TempDir,
}

pub fn destination() -> Destination {
    let mut destination = fixture::destination(KIND, RECEIPT_TYPE);
    destination.target = FILE.to_owned();
    destination
}

impl Harness {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join(FILE)
    }

    pub fn connection(&self) -> Connection {
        let folder = self.folder.path();
        serde_json::from_value(serde_json::json!({ "folder": folder })).expect("valid settings")
    }

    pub fn transport(&self, destination: &Destination) -> Arc<dyn Transport> {
        Arc::new(JsonLines::open(destination, self.connection()).expect("it opens"))
    }

    pub fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path()).expect("the file is there");
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a line of JSON"))
            .collect()
    }
}

impl transport::Harness for Harness {
    const CANNOT: &'static [Capability] = &[
        Capability::Network,
        Capability::Refusal,
        Capability::MissingTarget,
        Capability::SizeLimit,
    ];
    const DOCS: &'static str = include_str!("../../../../docs/transports/file.md");
    const MESSAGE_BYTES_MAX: usize = 0;

    async fn start() -> Self {
        Self::new()
    }

    fn destination(&self) -> Destination {
        destination()
    }

    fn open(&self, destination: &Destination) -> Arc<dyn Transport> {
        self.transport(destination)
    }

    fn missing(&self) -> Destination {
        destination()
    }

    async fn received(&self) -> Vec<Received> {
        let text = std::fs::read_to_string(self.path()).expect("the file is there");
        let received = text.lines().map(|line| {
            let value: Value = serde_json::from_str(line).expect("a line of JSON");
            let event_id = value["id"].as_str().expect("an id").to_owned();
            match value["body"].as_str() {
                Some(body) => Received {
                    event_id,
                    headers: serde_json::from_value::<std::collections::BTreeMap<_, _>>(
                        value["headers"].clone(),
                    )
                    .expect("headers")
                    .into_iter()
                    .collect(),
                    body: body.as_bytes().to_vec(),
                },
                None => Received {
                    event_id,
                    headers: Vec::new(),
                    body: line.as_bytes().to_vec(),
                },
            }
        });
        received.collect()
    }

    async fn inflict(&self, fault: Fault) {
        panic!("a file cannot have {fault:?}");
    }

    async fn heal(&self) {}
}
