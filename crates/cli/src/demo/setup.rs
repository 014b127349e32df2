//! The demo's folder: configuration, schema, database.

use std::{
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use base64::Engine as _;
use postrider_store::control::Audit;
use uuid::Uuid;

use crate::{
    backend::store,
    code::Code,
    config::{self, Config, FILE_NAME, Sources},
    fault::{Failure, Fault},
    plan,
};

/// The file with the webhook's secret, so that every command works there after the demo too.
const SECRET_FILE: &str = "webhook.secret";
/// The file destination's file.
pub(super) const FILE: &str = "delivered/orders.jsonl";
/// The two destinations.
pub(super) const WEBHOOK: &str = "partner";
pub(super) const AUDIT: &str = "audit";

/// Where everything of one demo is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) folder: PathBuf,
    /// `whsec_…`, made for this demo.
    pub(super) secret: String,
}

impl Place {
    /// Makes the folder; takes none that holds something.
    pub(super) fn make(folder: Option<&Path>) -> Result<Self, Failure> {
        let folder = folder.map_or_else(
            || std::env::temp_dir().join(format!("postrider-demo-{}", Uuid::now_v7().simple())),
            Path::to_owned,
        );
        let is_empty = match std::fs::read_dir(&folder) {
            Ok(mut entries) => entries.next().is_none(),
            Err(_) => true,
        };
        if !is_empty {
            return Err(Fault::new(
                Code::FileExists,
                format!("{} is not empty", folder.display()),
                "The demo never writes over anything.",
                "name a folder that does not exist yet",
            )
            .into());
        }
        std::fs::create_dir_all(folder.join("delivered"))
            .map_err(|error| unusable(&folder, &error))?;
        // 32 random bytes; two UUIDs have 244 bits of it.
        let mut bytes = Vec::from(Uuid::new_v4().into_bytes());
        bytes.extend(Uuid::new_v4().into_bytes());
        let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
        Ok(Self {
            folder,
            secret: format!("whsec_{encoded}"),
        })
    }

    pub(super) fn database(&self) -> PathBuf {
        self.folder.join("shop.db")
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    /// Writes the configuration, makes the database and registers everything.
    pub(super) async fn prepare(&self, receiver: SocketAddr) -> Result<Config, Failure> {
        let schema = include_str!("../../../../examples/schemas/order-placed.json");
        self.write("order-placed.json", schema)?;
        self.write(SECRET_FILE, &self.secret)?;
        self.write(FILE_NAME, &configuration(receiver))?;
        let sources = Sources {
            file: Some(self.config()),
            assignments: Vec::new(),
            // The caller's variables are for another database.
            alone: true,
        };
        let config = config::load(&sources).map_err(Failure::of)?;
        store::migrate(&config).await?;
        let store = store::open(&config).await?;
        let registry = store
            .registry()
            .await
            .map_err(|error| store::fault(&error))?;
        let plan = plan::compute(&config, &registry).map_err(Failure::of)?;
        let audit = Audit {
            actor: "demo".to_owned(),
            reason: "the demo".to_owned(),
        };
        store
            .apply(&plan.control_plane, &audit)
            .await
            .map_err(|error| store::fault(&error))?;
        Ok(config)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.folder.join(name);
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| unusable(&path, &error))
    }
}

/// Deadlines are short, so that a killed relay is replaced within seconds; for a real system they
/// would make every slow moment an unknown outcome.
fn configuration(receiver: SocketAddr) -> String {
    format!(
        r#"# The demo's configuration. Try: postrider events list, postrider why EVENT_ID

[store]
url = "sqlite:shop.db"

[admin]
listen = "off"

[relay.deadlines]
connect = "300ms"
send = "600ms"
hard = "900ms"
settle_margin = "400ms"
lease = "2s"
heartbeat = "500ms"
shutdown_grace = "3s"

[connections.receiver]
kind = "http"
url = "http://{receiver}/"
signing_secrets = [{{ file = "{SECRET_FILE}" }}]
allow_plain_http = true
allow_networks = ["127.0.0.0/8"]

[connections.files]
kind = "file"
folder = "delivered"

[destinations.{WEBHOOK}]
connection = "receiver"
target = "/orders"

[destinations.{AUDIT}]
connection = "files"
target = "orders.jsonl"

[[event_types]]
event_type = "order.placed"
schema_version = "1"
json_schema = "order-placed.json"

[[routes]]
event_type = "order.placed"
schema_version = "1"
destinations = ["{WEBHOOK}", "{AUDIT}"]
"#
    )
}

pub(super) fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Fault::new(
        Code::FileUnusable,
        format!("{}: {error}", path.display()),
        "",
        "name a folder with --dir that this user may write to",
    )
    .into()
}
