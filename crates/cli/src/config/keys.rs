//! Every key there is: its place, kind, default and meaning. The file, the environment and
//! `--set` are checked against this one table, and docs/configuration.md is made from it.

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// A file or folder; a relative one starts at the folder of postrider.toml.
    File,
    /// A URL that may hold a password: text, or a reference like a secret.
    Url,
    /// `{ env = "NAME" }` or `{ file = "path" }`, never the secret itself.
    Secret,
    /// A whole number within the bounds.
    Integer {
        min: i64,
        max: i64,
    },
    Boolean,
    Duration,
    Choice(&'static [&'static str]),
    Texts,
    Secrets,
    /// A table of secrets under names of the operator's choice.
    NamedSecrets,
}

/// Whether a key must be there, and what holds where it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Required,
    Default(&'static str),
    /// Absent means what the key's description says.
    Optional,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// `*` stands for a name of the operator's choice, `#` for a place in a list.
    pub(crate) pattern: &'static str,
    pub(crate) kind: Kind,
    pub(crate) need: Need,
    /// The connection kinds it belongs to; empty: all.
    pub(crate) only: &'static [&'static str],
    pub(crate) about: &'static str,
}

const fn key(pattern: &'static str, kind: Kind, need: Need, about: &'static str) -> Key {
    Key {
        pattern,
        kind,
        need,
        only: &[],
        about,
    }
}

const fn only(
    kinds: &'static [&'static str],
    pattern: &'static str,
    kind: Kind,
    need: Need,
    about: &'static str,
) -> Key {
    Key {
        pattern,
        kind,
        need,
        only: kinds,
        about,
    }
}

use Kind::*;
use Need::*;

/// 2^53 - 1: what JSON can carry.
const COUNT: i64 = (1 << 53) - 1;
/// Bytes: one message must fit, and no configuration may ask for more than a machine has.
const BYTES: Kind = Integer {
    min: 1024,
    max: 1 << 40,
};

pub(crate) const KEYS: &[Key] = &[
    key(
        "store.url",
        Url,
        Required,
        "The database: `sqlite:PATH` or `postgresql://USER:PASSWORD@HOST/DATABASE`. A URL with a password is better given as `{ env = \"NAME\" }` or `{ file = \"PATH\" }`.",
    ),
    key(
        "store.doorbell_url",
        Url,
        Optional,
        "PostgreSQL without a pooler in between, for LISTEN, which a pooler in transaction mode cannot carry. Absent: `store.url`.",
    ),
    key(
        "store.schema",
        Text,
        Default("postrider"),
        "PostgreSQL: the schema that holds postrider's tables.",
    ),
    key(
        "store.connections_max",
        Integer { min: 2, max: 1000 },
        Default("8"),
        "PostgreSQL: connections that this process opens at most.",
    ),
    key(
        "relay.owner",
        Text,
        Optional,
        "The name of this worker, for people. Absent: host name and process id.",
    ),
    key(
        "relay.exclusive",
        Boolean,
        Default("false"),
        "Only one dispatcher works at a time; another one waits for it, claiming nothing.",
    ),
    key(
        "relay.batch_max",
        Integer {
            min: 1,
            max: 10_000,
        },
        Default("500"),
        "Deliveries in one attempt at most. 0 is refused: it does not mean no limit.",
    ),
    key(
        "relay.batch_bytes_max",
        BYTES,
        Default("8388608"),
        "Payload bytes in one attempt at most; one larger payload goes alone.",
    ),
    key(
        "relay.buffer_bytes_max",
        BYTES,
        Default("67108864"),
        "Payload bytes in memory at most, over all destinations.",
    ),
    key(
        "relay.late_max",
        Integer {
            min: 0,
            max: 100_000,
        },
        Default("1000"),
        "Sends that outlived their deadline and are still listened to, at most.",
    ),
    key(
        "relay.poll_min",
        Duration,
        Default("20ms"),
        "The shortest pause before looking for work again.",
    ),
    key(
        "relay.poll_max",
        Duration,
        Default("1s"),
        "The longest pause before looking for work again. Polling is the truth, the doorbell only a hint.",
    ),
    key(
        "relay.backoff_first",
        Duration,
        Default("1s"),
        "Upper bound of the pause after the first failed attempt; it doubles from there, with full jitter.",
    ),
    key(
        "relay.backoff_max",
        Duration,
        Default("5m"),
        "Upper bound of every pause between attempts.",
    ),
    key(
        "relay.deadlines.connect",
        Duration,
        Default("3s"),
        "Opening a connection to a destination.",
    ),
    key(
        "relay.deadlines.send",
        Duration,
        Default("5s"),
        "What a transport waits for one answer. More than `connect`.",
    ),
    key(
        "relay.deadlines.hard",
        Duration,
        Default("8s"),
        "The relay's own limit around a whole send, outside any client library. More than `send`.",
    ),
    key(
        "relay.deadlines.settle_margin",
        Duration,
        Default("2s"),
        "Time kept for writing an outcome down.",
    ),
    key(
        "relay.deadlines.lease",
        Duration,
        Default("30s"),
        "How long a worker's session lives without a heartbeat, by the database's clock. More than `hard` + `settle_margin`.",
    ),
    key(
        "relay.deadlines.heartbeat",
        Duration,
        Default("5s"),
        "Between heartbeats. Three fit into `lease`.",
    ),
    key(
        "relay.deadlines.shutdown_grace",
        Duration,
        Default("15s"),
        "How long a graceful stop may take. At least `hard` + `settle_margin`.",
    ),
    key(
        "admin.listen",
        Text,
        Default("127.0.0.1:7678"),
        "Where `/livez`, `/readyz` and `/metrics` are served, or `off`. Anything but a loopback address shows them to the network, without a password.",
    ),
    key(
        "log.format",
        Choice(&["text", "json"]),
        Default("text"),
        "How `run` logs to standard error.",
    ),
    key(
        "log.level",
        Text,
        Default("info"),
        "Which log lines: `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,postrider_relay=debug`.",
    ),
    key(
        "connections.*.kind",
        Choice(KINDS),
        Required,
        "The way to deliver. The table's name is the identity of the cluster, as frozen in destinations.",
    ),
    only(
        &["jetstream"],
        "connections.*.servers",
        Texts,
        Required,
        "URLs such as `nats://HOST:4222` or `tls://HOST:4222`, without user or password.",
    ),
    only(
        &["jetstream"],
        "connections.*.credentials",
        Secret,
        Optional,
        "The content of a NATS `.creds` file.",
    ),
    only(
        &["jetstream"],
        "connections.*.token",
        Secret,
        Optional,
        "A NATS token.",
    ),
    only(
        &["jetstream"],
        "connections.*.nkey",
        Secret,
        Optional,
        "A NATS NKey seed.",
    ),
    only(
        &["jetstream"],
        "connections.*.user",
        Text,
        Optional,
        "A NATS user; goes with `password`.",
    ),
    only(
        &["jetstream"],
        "connections.*.password",
        Secret,
        Optional,
        "The user's password.",
    ),
    only(
        &["jetstream"],
        "connections.*.tls_required",
        Boolean,
        Default("false"),
        "Refuse a connection without TLS.",
    ),
    only(
        &["jetstream"],
        "connections.*.tls_first",
        Boolean,
        Default("false"),
        "Start TLS before the server's first line (`handshake_first` on the server).",
    ),
    only(
        &["jetstream"],
        "connections.*.tls_ca_file",
        File,
        Optional,
        "PEM file of the authorities to trust. Absent: the system's.",
    ),
    only(
        &["jetstream"],
        "connections.*.tls_cert_file",
        File,
        Optional,
        "PEM file of a client certificate; goes with `tls_key_file`.",
    ),
    only(
        &["jetstream"],
        "connections.*.tls_key_file",
        File,
        Optional,
        "PEM file of the certificate's key.",
    ),
    only(
        &["jetstream"],
        "connections.*.api_timeout",
        Duration,
        Default("5s"),
        "The longest wait for one answer of the JetStream API.",
    ),
    only(
        &["jetstream"],
        "connections.*.ping_interval",
        Duration,
        Default("5s"),
        "Between pings; three without an answer end the connection.",
    ),
    only(
        &["jetstream"],
        "connections.*.in_flight_max",
        Integer {
            min: 1,
            max: 10_000,
        },
        Default("2000"),
        "Messages sent and not acknowledged yet, at most.",
    ),
    only(
        &["jetstream"],
        "connections.*.lookup_messages_max",
        Integer {
            min: 1,
            max: 10_000_000,
        },
        Default("20000"),
        "Messages read in one look-up of earlier sends, at most.",
    ),
    only(
        &["jetstream"],
        "connections.*.provision_replicas",
        Integer { min: 1, max: 5 },
        Default("1"),
        "Replicas of a stream that `postrider provision` makes.",
    ),
    only(
        &["jetstream"],
        "connections.*.provision_bytes_max",
        BYTES,
        Optional,
        "Largest size of such a stream. Absent: no bound.",
    ),
    only(
        &["jetstream"],
        "connections.*.provision_age_max",
        Duration,
        Optional,
        "Age at which such a stream drops messages. Absent: never.",
    ),
    only(
        &["http"],
        "connections.*.url",
        Url,
        Required,
        "Where requests go: `https://HOST/PATH`. A destination's `target` is appended to it. Where the URL itself is the credential, give it as a reference.",
    ),
    only(
        &["http"],
        "connections.*.signing_secrets",
        Secrets,
        Default(""),
        "Standard Webhooks secrets (`whsec_…`); a request carries one signature of each, so that a receiver can change over.",
    ),
    only(
        &["http"],
        "connections.*.headers",
        NamedSecrets,
        Optional,
        "Headers added to every request, such as `Authorization`.",
    ),
    only(
        &["http"],
        "connections.*.allow",
        Texts,
        Default(""),
        "Private address ranges (CIDR) that requests may go to. Link-local and metadata addresses stay refused.",
    ),
    only(
        &["file"],
        "connections.*.directory",
        File,
        Required,
        "The folder that a destination's `target` is a file in. It must exist.",
    ),
    key(
        "destinations.*.cluster",
        Text,
        Required,
        "The name of a connection. Its kind is the destination's kind.",
    ),
    key(
        "destinations.*.target",
        Text,
        Default(""),
        "The place: a subject such as `orders.{event_type}` (jetstream), a path after the connection's `url` (http), a file name (file).",
    ),
    only(
        &["jetstream"],
        "destinations.*.stream",
        Text,
        Required,
        "The stream that must acknowledge.",
    ),
    key(
        "destinations.*.key",
        Choice(&["partition-key", "none"]),
        Default("partition-key"),
        "What the broker's own key is made from, where it has one.",
    ),
    key(
        "destinations.*.serializer",
        Choice(&["cloudevents-binary", "cloudevents-structured", "raw"]),
        Default("cloudevents-binary"),
        "The wire format.",
    ),
    key(
        "destinations.*.durability",
        Choice(&["stored", "synced", "replicated"]),
        Optional,
        "What must be done before the acknowledgement. Absent: what the kind always does (`synced` for file, else `stored`).",
    ),
    key(
        "destinations.*.ordering",
        Choice(&["none", "key", "strict"]),
        Default("key"),
        "`key`: a waiting delivery holds the later ones of its partition key. `strict`: also one message of a key in flight. `none`: never holds.",
    ),
    key(
        "destinations.*.lanes",
        Integer { min: 1, max: 1024 },
        Default("16"),
        "Slices of the partition keys that workers share.",
    ),
    key(
        "destinations.*.on_unknown",
        Choice(&["resend", "probe", "hold"]),
        Default("resend"),
        "What follows when nobody knows whether a send arrived. `resend` may deliver twice, never zero times.",
    ),
    key(
        "destinations.*.on_quarantine",
        Choice(&["hold", "pass"]),
        Default("hold"),
        "Whether a quarantined delivery holds the later ones of its key.",
    ),
    key(
        "destinations.*.max_attempts",
        Integer {
            min: 1,
            max: 1_000_000,
        },
        Optional,
        "Refused attempts before quarantine; an outage costs none. Absent: no bound.",
    ),
    key(
        "destinations.*.max_payload_bytes",
        Integer { min: 1, max: COUNT },
        Optional,
        "Larger payloads are refused at append. Absent: no bound but the database's.",
    ),
    key(
        "event_types.#.event_type",
        Text,
        Required,
        "The name, such as `order.placed`.",
    ),
    key(
        "event_types.#.schema_version",
        Text,
        Required,
        "The exact version, text, such as `1`.",
    ),
    key(
        "event_types.#.content_type",
        Text,
        Default("application/json"),
        "The payload's media type.",
    ),
    key(
        "event_types.#.json_schema",
        File,
        Optional,
        "A JSON Schema file that payloads are checked against, at append and before sending. Absent: any payload.",
    ),
    key(
        "routes.#.event_type",
        Text,
        Required,
        "An event type listed above, exactly; there are no wildcards.",
    ),
    key(
        "routes.#.schema_version",
        Text,
        Required,
        "Its exact version.",
    ),
    key(
        "routes.#.destinations",
        Texts,
        Required,
        "The destinations that every such event must reach.",
    ),
    key(
        "routes.#.consumer",
        Text,
        Optional,
        "Who consumes there. Absent: the destination's name.",
    ),
    key(
        "routes.#.mandatory",
        Boolean,
        Default("true"),
        "Whether an event may be purged before this delivery is acknowledged (`false`) or not (`true`).",
    ),
];

/// The kinds of connection, and of destination: one per transport.
pub(crate) const KINDS: &[&str] = &["jetstream", "http", "file"];

/// The key of a pattern.
///
/// # Panics
/// If there is none: the table and the code that reads it belong together.
pub(crate) fn of(pattern: &str) -> &'static Key {
    KEYS.iter()
        .find(|key| key.pattern == pattern)
        .unwrap_or_else(|| panic!("{pattern} is not in the table of keys"))
}
