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
        Default("2000"),
        "Deliveries in one attempt at most. 0 is refused: it does not mean no limit.",
    ),
    key(
        "relay.batch_bytes_max",
        BYTES,
        Default("8388608"),
        "Payload bytes in one attempt at most, and twice this is fetched ahead per destination; one larger payload goes alone.",
    ),
    key(
        "relay.sending_max",
        Integer { min: 1, max: 64 },
        Default("2"),
        "Batches of one destination being sent at the same time.",
    ),
    key(
        "relay.late_max",
        Integer {
            min: 0,
            max: 10_000,
        },
        Default("16"),
        "Attempts of one destination that outlived their deadline and are still listened to, at most.",
    ),
    key(
        "relay.poll_min",
        Duration,
        Default("10ms"),
        "The shortest pause before looking for work again.",
    ),
    key(
        "relay.poll_max",
        Duration,
        Default("100ms"),
        "The longest pause between two looks at an empty queue while no doorbell is heard. Polling is the truth, the doorbell only a hint.",
    ),
    key(
        "relay.poll_max_with_doorbell",
        Duration,
        Default("1s"),
        "The same while the doorbell works.",
    ),
    key(
        "relay.rescan",
        Duration,
        Default("50ms"),
        "The least pause between two scans from the front of a queue that is not empty.",
    ),
    key(
        "relay.backoff_first",
        Duration,
        Default("500ms"),
        "Upper bound of the pause after the first failed attempt of a delivery; it doubles from there, with full jitter.",
    ),
    key(
        "relay.backoff_max",
        Duration,
        Default("5m"),
        "Upper bound of every pause between attempts of a delivery.",
    ),
    key(
        "relay.breaker_first",
        Duration,
        Default("250ms"),
        "The same between probes of a destination that is out.",
    ),
    key(
        "relay.breaker_max",
        Duration,
        Default("15s"),
        "Upper bound of every pause between such probes.",
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
        "The way to deliver.",
    ),
    key(
        "connections.*.cluster",
        Text,
        Optional,
        "The identity of what is connected to, as frozen in destinations and, where the kind can, compared at each connect. Absent: the table's name.",
    ),
    only(
        &["jetstream", "redis-streams", "rabbitmq"],
        "connections.*.servers",
        Texts,
        Required,
        "`nats://HOST:4222` or `tls://HOST:4222`, for redis-streams `redis://HOST:6379` or `rediss://HOST:6379` (TLS), for rabbitmq `amqp://HOST:5672` or `amqps://HOST:5671` (TLS); tried in turn, without user or password.",
    ),
    only(
        &["jetstream"],
        "connections.*.creds",
        Secret,
        Optional,
        "The text of a `.creds` file.",
    ),
    only(
        &["jetstream"],
        "connections.*.token",
        Secret,
        Optional,
        "A token.",
    ),
    only(
        &["jetstream"],
        "connections.*.nkey_seed",
        Secret,
        Optional,
        "The seed of a user nkey, `SU…`.",
    ),
    only(
        &["jetstream", "redis-streams", "kafka", "rabbitmq"],
        "connections.*.user",
        Text,
        Optional,
        "A user; goes with `password`. Absent, with a password, for redis-streams: the default user; for rabbitmq: `guest`, which a server takes from its own machine only.",
    ),
    only(
        &["jetstream", "redis-streams", "kafka", "rabbitmq"],
        "connections.*.password",
        Secret,
        Optional,
        "The user's password.",
    ),
    only(
        &["jetstream", "kafka"],
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
        &["jetstream", "http", "redis-streams", "kafka", "rabbitmq"],
        "connections.*.ca_file",
        File,
        Optional,
        "PEM file of authorities to trust; for http beside the system's. Absent: the system's.",
    ),
    only(
        &["jetstream", "redis-streams", "kafka", "rabbitmq"],
        "connections.*.cert_file",
        File,
        Optional,
        "PEM file of a client certificate; goes with `key_file`.",
    ),
    only(
        &["jetstream", "redis-streams", "kafka", "rabbitmq"],
        "connections.*.key_file",
        File,
        Optional,
        "PEM file of the certificate's key.",
    ),
    only(
        &["jetstream", "redis-streams", "kafka", "rabbitmq"],
        "connections.*.api_timeout",
        Duration,
        Default("5s"),
        "The longest wait for one answer that is no acknowledgement.",
    ),
    only(
        &["jetstream"],
        "connections.*.ping_interval",
        Duration,
        Default("5s"),
        "Between pings; three without an answer end the connection.",
    ),
    only(
        &["jetstream", "kafka", "rabbitmq"],
        "connections.*.in_flight_max",
        Integer {
            min: 1,
            max: 10_000,
        },
        Default("2000"),
        "Messages sent and not acknowledged yet, at most; also the longest batch.",
    ),
    only(
        &["jetstream", "kafka", "rabbitmq"],
        "connections.*.lookup_messages_max",
        Integer {
            min: 1,
            max: 10_000_000,
        },
        Default("20000"),
        "Messages read in one look-up of earlier sends, at most.",
    ),
    only(
        &["rabbitmq"],
        "connections.*.vhost",
        Text,
        Default("/"),
        "The virtual host. Any but `/` is part of the cluster's identity: `CLUSTER/VHOST`.",
    ),
    only(
        &["rabbitmq"],
        "connections.*.certificate_login",
        Boolean,
        Default("false"),
        "Log in by the client certificate (mechanism EXTERNAL) instead of by `user`.",
    ),
    only(
        &["rabbitmq"],
        "connections.*.heartbeat",
        Duration,
        Default("5s"),
        "Between heartbeats, in whole seconds; two that do not come end the connection.",
    ),
    only(
        &["rabbitmq"],
        "connections.*.publish_bytes_max",
        Integer {
            min: 1,
            max: 512 << 20,
        },
        Default("134217728"),
        "Larger messages, headers and body, are rejected before they are sent; at most the server's `max_message_size`.",
    ),
    only(
        &["rabbitmq"],
        "connections.*.priority",
        Integer { min: 0, max: 255 },
        Optional,
        "The priority of messages whose event has no header `amqp-priority`.",
    ),
    only(
        &["rabbitmq"],
        "connections.*.expiration",
        Duration,
        Optional,
        "How long messages live in a queue whose event has no header `amqp-expiration`. Absent: for ever.",
    ),
    only(
        &["rabbitmq"],
        "connections.*.streams",
        Texts,
        Default(""),
        "The queues that are streams: events can be looked for there.",
    ),
    only(
        &["rabbitmq"],
        "connections.*.provision_exchange_type",
        Choice(&["topic", "direct", "fanout"]),
        Default("topic"),
        "The type of an exchange that `postrider provision` makes.",
    ),
    only(
        &["rabbitmq"],
        "connections.*.provision_queue_type",
        Choice(&["quorum", "classic"]),
        Default("quorum"),
        "The type of a queue that `postrider provision` makes, unless it is in `streams`.",
    ),
    only(
        &["jetstream"],
        "connections.*.inbox_prefix",
        Text,
        Default("_INBOX"),
        "First part of the subjects that answers come to; change it where the user may not subscribe to `_INBOX.>`.",
    ),
    only(
        &["jetstream", "kafka"],
        "connections.*.provision_replicas",
        Integer { min: 1, max: 5 },
        Default("1"),
        "Replicas of a stream or topic that `postrider provision` makes.",
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
        "Age at which such a stream drops messages, in whole seconds. Absent: never.",
    ),
    only(
        &["kafka"],
        "connections.*.brokers",
        Texts,
        Required,
        "`HOST:9092`, some brokers of the cluster; the others are learnt from them.",
    ),
    only(
        &["kafka"],
        "connections.*.sasl_mechanism",
        Choice(&["plain", "scram-sha-256", "scram-sha-512"]),
        Optional,
        "How `user` and `password` are proved. The SCRAM ones need a program built with TLS for Kafka.",
    ),
    only(
        &["kafka"],
        "connections.*.message_bytes_max",
        Integer {
            min: 1000,
            max: 1_000_000_000,
        },
        Default("1000000"),
        "Largest message with headers, and largest set of them in one request. A smaller limit of the topic counts instead, where it can be read.",
    ),
    only(
        &["kafka"],
        "connections.*.in_flight_bytes_max",
        BYTES,
        Default("33554432"),
        "Bytes handed over and not acknowledged yet, at most.",
    ),
    only(
        &["kafka"],
        "connections.*.provision_partitions",
        Integer {
            min: 1,
            max: 10_000,
        },
        Default("6"),
        "Partitions of a topic that `postrider provision` makes. A topic that is there is never changed.",
    ),
    only(
        &["http"],
        "connections.*.url",
        Url,
        Required,
        "`https://HOST/PATH?QUERY`, to whose path a destination's `target` is added. Without user, password or fragment. Where the URL itself is the credential, give it as a reference.",
    ),
    only(
        &["http"],
        "connections.*.authorization",
        Secret,
        Optional,
        "The whole value of the `Authorization` header.",
    ),
    only(
        &["http"],
        "connections.*.headers",
        NamedSecrets,
        Optional,
        "More headers, the same for every request.",
    ),
    only(
        &["http"],
        "connections.*.signing_secrets",
        Secrets,
        Default(""),
        "Standard Webhooks secrets, `whsec_…`. Each request is signed with all of them: while one is replaced, name the new and the old one.",
    ),
    only(
        &["http"],
        "connections.*.allow_networks",
        Texts,
        Default(""),
        "Networks that are not public and may be sent to all the same, such as `10.1.0.0/16`.",
    ),
    only(
        &["http"],
        "connections.*.allow_plain_http",
        Boolean,
        Default("false"),
        "Allow `http://`. What is sent, signatures included, can then be read on the way.",
    ),
    only(
        &["http"],
        "connections.*.concurrency_max",
        Integer { min: 1, max: 1000 },
        Default("16"),
        "Requests at a time; also the longest batch.",
    ),
    only(
        &["http"],
        "connections.*.response_bytes_max",
        Integer {
            min: 1,
            max: 1 << 30,
        },
        Default("65536"),
        "Bytes read of a response; the rest is thrown away with its connection.",
    ),
    only(
        &["http"],
        "connections.*.request_bytes_max",
        Integer { min: 1, max: COUNT },
        Optional,
        "Larger requests, headers and body, are rejected before they are sent. Absent: the receiver decides.",
    ),
    only(
        &["file"],
        "connections.*.folder",
        File,
        Required,
        "The folder of the files. It must exist, unless `postrider provision` makes it.",
    ),
    only(
        &["file"],
        "connections.*.index_max",
        Integer {
            min: 1,
            max: 100_000_000,
        },
        Default("1000000"),
        "Event ids kept in memory, some 100 bytes each. Older ones are looked for in the file.",
    ),
    only(
        &["redis-streams"],
        "connections.*.database",
        Integer {
            min: 0,
            max: 1_000_000,
        },
        Default("0"),
        "The number of the database.",
    ),
    only(
        &["redis-streams"],
        "connections.*.dedup_window",
        Duration,
        Default("10m"),
        "How long the server remembers event ids, so that what is sent again is stored once; `0s`: not at all. The same for all that send to a stream.",
    ),
    only(
        &["redis-streams"],
        "connections.*.dedup_ids_max",
        Integer {
            min: 1,
            max: 1_000_000_000,
        },
        Default("1000000"),
        "Ids remembered of one stream at most, some 120 bytes each. More of them shorten the memory, and what is sent again after that is looked for first.",
    ),
    only(
        &["redis-streams"],
        "connections.*.replicas_min",
        Integer { min: 1, max: 100 },
        Default("1"),
        "Replicas that must have a message before it is acknowledged, where a destination has durability `replicated`.",
    ),
    only(
        &["redis-streams"],
        "connections.*.groups",
        Texts,
        Default(""),
        "Consumer groups that must exist. What one of them has not confirmed is never trimmed.",
    ),
    only(
        &["redis-streams"],
        "connections.*.length_max",
        Integer { min: 1, max: COUNT },
        Optional,
        "Entries that a stream keeps, about; older ones are trimmed once every consumer group has confirmed them. Goes with `groups`. Absent: nothing is trimmed.",
    ),
    only(
        &["redis-streams"],
        "connections.*.lookup_entries_max",
        Integer {
            min: 1,
            max: 10_000_000,
        },
        Default("20000"),
        "Entries read in one look-up of earlier sends, at most.",
    ),
    key(
        "destinations.*.connection",
        Text,
        Required,
        "The name of a connection. Its kind is the destination's kind, its cluster is frozen in the destination.",
    ),
    key(
        "destinations.*.target",
        Text,
        Required,
        "The place, with placeholders `{event_type}`, `{tenant}`, `{aggregate_type}`, `{aggregate_id}`: a subject such as `orders.{event_type}` (jetstream), a routing key such as `orders.{event_type}` or, without `exchange`, a queue (rabbitmq), a path such as `/` or `/events/{event_type}` (http), a topic such as `orders` (kafka; `orders/3` with an explicit partitioner), a file name without placeholders (file), the key of a stream such as `orders` (redis-streams).",
    ),
    only(
        &["jetstream"],
        "destinations.*.stream",
        Text,
        Required,
        "The stream that must acknowledge.",
    ),
    only(
        &["kafka"],
        "destinations.*.partitioner",
        Choice(&["murmur2", "crc32", "explicit"]),
        Optional,
        "How a key chooses its partition: as the Java client does (`murmur2`), as librdkafka does (`crc32`), or the target names it (`explicit`). Absent: `murmur2`.",
    ),
    only(
        &["rabbitmq"],
        "destinations.*.exchange",
        Text,
        Optional,
        "The exchange. Absent: the default exchange, where `target` is the name of a queue or stream.",
    ),
    key(
        "destinations.*.receipt_type",
        Text,
        Optional,
        "The receipts that close deliveries. Absent: the kind's own, such as `http.response/1`.",
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
pub(crate) const KINDS: &[&str] = &[
    "jetstream",
    "http",
    "file",
    "redis-streams",
    "kafka",
    "rabbitmq",
];

/// The key of a pattern.
///
/// # Panics
/// If there is none: the table and the code that reads it belong together.
pub(crate) fn of(pattern: &str) -> &'static Key {
    KEYS.iter()
        .find(|key| key.pattern == pattern)
        .unwrap_or_else(|| panic!("{pattern} is not in the table of keys"))
}
