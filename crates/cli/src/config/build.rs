//! From settings whose keys and kinds were checked to the model, with the rules between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use postrider_contract::text;
use postrider_core::{
    backoff::Backoff,
    deadline::{self, Deadlines},
};
use serde::de::{DeserializeOwned, IntoDeserializer, value, value::StringDeserializer};

use super::{
    layers::Settings,
    model::{
        Config, Connection, Destination, EventType, Http, JetStream, Kafka, Kind, Log, RabbitMq,
        RedisStreams, Relay, Route, Store,
    },
    path::Path,
    secret::Url,
    section::{Section, sections},
};
use crate::{code::Code, fault::Fault, names};

/// Makes the model of settings whose keys and kinds were checked.
///
/// # Errors
/// Every rule that is broken, not only the first.
pub(super) fn build(base: PathBuf, settings: Settings) -> Result<Config, Vec<Fault>> {
    let mut reader = Reader {
        settings: &settings,
        faults: Vec::new(),
    };
    let store = reader.store();
    let relay = reader.relay();
    let admin_listen = reader.admin_listen();
    let log = reader.log();
    let connections = reader.connections();
    let destinations = reader.destinations(&connections);
    let event_types = reader.event_types();
    let routes = reader.routes(&event_types, &destinations);
    let faults = reader.faults;
    match (store, relay) {
        (Some(store), Some(relay)) if faults.is_empty() => Ok(Config {
            base,
            store,
            relay,
            admin_listen,
            log,
            connections,
            destinations,
            event_types,
            routes,
            settings,
        }),
        _ => Err(faults),
    }
}

const POSTGRES: [&str; 2] = ["postgresql://", "postgres://"];
const DATABASES: [&str; 3] = ["sqlite:", "postgresql://", "postgres://"];

struct Reader<'a> {
    settings: &'a Settings,
    faults: Vec<Fault>,
}

impl<'a> Reader<'a> {
    fn section(&self, name: &str) -> Section<'a> {
        Section::new(self.settings, Path::default().name(name))
    }

    /// A fault of one key, where it was given.
    fn fault(&mut self, section: &Section<'_>, key: &str, code: Code, what: &str, fix: &str) {
        let place = section
            .origin(key)
            .map_or_else(String::new, |origin| format!("{origin}: "));
        let path = section.path.name(key);
        self.faults
            .push(Fault::new(code, format!("{place}{path} {what}"), "", fix));
    }

    /// The start of a URL, where the URL is known by now. It is not repeated: it may be a secret.
    fn scheme(
        &mut self,
        section: &Section<'_>,
        key: &str,
        url: Option<&str>,
        known: &[&'static str],
    ) {
        if url.is_some_and(|url| !known.iter().any(|scheme| url.starts_with(scheme))) {
            let fix = format!("start it with {}", known.join(" or "));
            self.bad(section, key, "is of no known kind", &fix);
        }
    }

    fn bad(&mut self, section: &Section<'_>, key: &str, what: &str, fix: &str) {
        self.fault(section, key, Code::BadValue, what, fix);
    }

    fn store(&mut self) -> Option<Store> {
        let section = self.section("store");
        let schema = section.text("schema")?;
        let first = |c: char| c.is_ascii_lowercase() || c == '_';
        if !schema.starts_with(first)
            || schema.len() > 63
            || !schema.chars().all(|c| first(c) || c.is_ascii_digit())
        {
            self.bad(
                &section,
                "schema",
                "is not a plain PostgreSQL name",
                "use lower-case letters, digits and _ only, at most 63, no digit first",
            );
        }
        let (url, doorbell_url) = (section.url("url")?, section.url("doorbell_url"));
        self.scheme(&section, "url", url.given(), &DATABASES);
        let doorbell = doorbell_url.as_ref().and_then(Url::given);
        self.scheme(&section, "doorbell_url", doorbell, &POSTGRES);
        Some(Store {
            url,
            doorbell_url,
            schema,
            connections_max: narrow(section.integer("connections_max")?),
        })
    }

    fn relay(&mut self) -> Option<Relay> {
        let section = self.section("relay");
        let backoff = Backoff {
            first: self.at_most(&section, "backoff_first", "backoff_max"),
            max: section.duration("backoff_max"),
        };
        let breaker = Backoff {
            first: self.at_most(&section, "breaker_first", "breaker_max"),
            max: section.duration("breaker_max"),
        };
        let poll_min = self.at_most(&section, "poll_min", "poll_max");
        let poll_max = self.at_most(&section, "poll_max", "poll_max_with_doorbell");
        let deadlines = self.deadlines();
        Some(Relay {
            owner: section.text("owner"),
            exclusive: section.boolean("exclusive"),
            batch_max: narrow(section.integer("batch_max")?),
            batch_bytes_max: section.integer("batch_bytes_max")?,
            sending_max: narrow(section.integer("sending_max")?),
            late_max: narrow(section.integer("late_max")?),
            poll_min,
            poll_max,
            poll_max_with_doorbell: section.duration("poll_max_with_doorbell"),
            rescan: section.duration("rescan"),
            backoff,
            breaker,
            deadlines: deadlines?,
        })
    }

    /// The length of time `low`, which must not be zero and not exceed `high`.
    fn at_most(&mut self, section: &Section<'_>, low: &str, high: &str) -> Duration {
        let (low_value, high_value) = (section.duration(low), section.duration(high));
        if low_value.is_zero() {
            self.bad(section, low, "is 0s: it would spin", "use at least 1ms");
        }
        if low_value > high_value {
            let (low_text, high_text) = (
                super::duration::write(low_value),
                super::duration::write(high_value),
            );
            let high_path = section.path.name(high);
            self.fault(
                section,
                low,
                Code::ContradictorySettings,
                &format!("({low_text}) must be at most {high_path} ({high_text})"),
                "lower the one or raise the other",
            );
        }
        low_value
    }

    fn deadlines(&mut self) -> Option<Deadlines> {
        let section = Section::new(
            self.settings,
            Path::default().name("relay").name("deadlines"),
        );
        let settings = deadline::Settings {
            connect: section.duration("connect"),
            send: section.duration("send"),
            hard: section.duration("hard"),
            settle_margin: section.duration("settle_margin"),
            lease: section.duration("lease"),
            heartbeat: section.duration("heartbeat"),
            shutdown_grace: section.duration("shutdown_grace"),
        };
        match Deadlines::new(settings) {
            Ok(deadlines) => Some(deadlines),
            Err(contradiction) => {
                self.faults.push(Fault::new(
                    Code::ContradictorySettings,
                    format!("relay.deadlines: {contradiction}"),
                    "",
                    "change one of the two, in [relay.deadlines] or by POSTRIDER_RELAY__DEADLINES__…",
                ));
                None
            }
        }
    }

    fn admin_listen(&mut self) -> Option<SocketAddr> {
        let section = self.section("admin");
        let text = section.text("listen")?;
        if text == "off" {
            return None;
        }
        let address = text.parse();
        if address.is_err() {
            self.bad(
                &section,
                "listen",
                "is not an address with a port",
                "write for example \"127.0.0.1:7678\" or \"[::1]:7678\", or \"off\"",
            );
        }
        address.ok()
    }

    fn log(&mut self) -> Log {
        let section = self.section("log");
        let level = section.text("level").unwrap_or_default();
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&level) {
            self.bad(
                &section,
                "level",
                &format!("cannot be read: {error}"),
                "use error, warn, info, debug or trace, or directives such as \"info,postrider_relay=debug\"",
            );
        }
        Log {
            level_given: section.given("level"),
            json: section.text("format").as_deref() == Some("json"),
            level,
        }
    }

    fn connections(&mut self) -> BTreeMap<String, Connection> {
        let mut connections = BTreeMap::new();
        let mut clusters: BTreeMap<(&'static str, String), String> = BTreeMap::new();
        for section in sections(self.settings, "connections") {
            let Some(name) = own_name(&section) else {
                continue;
            };
            let cluster = section.text("cluster").unwrap_or_else(|| name.clone());
            self.valid(&section, text::cluster(&cluster));
            let kind = match section.text("kind").as_deref() {
                Some("jetstream") => self.jetstream(&section).map(Kind::JetStream),
                Some("kafka") => self.kafka(&section).map(Kind::Kafka),
                Some("rabbitmq") => self.rabbitmq(&section).map(Kind::RabbitMq),
                Some("http") => self.http(&section).map(Kind::Http),
                Some("file") => file(&section),
                Some("redis-streams") => self.redis(&section).map(Kind::RedisStreams),
                Some(_) | None => None,
            };
            // A key that is missing was reported before.
            let Some(kind) = kind else {
                continue;
            };
            let connection = Connection { cluster, kind };
            let identity = (connection.kind(), connection.cluster.clone());
            if let Some(other) = clusters.insert(identity, name.clone()) {
                self.bad(
                    &section,
                    "cluster",
                    &format!(
                        "is {:?}, as of connections.{other}: a registered destination finds its connection by it",
                        connection.cluster
                    ),
                    "give each connection of a kind its own cluster",
                );
            }
            connections.insert(name, connection);
        }
        connections
    }

    fn rabbitmq(&mut self, section: &Section<'_>) -> Option<RabbitMq> {
        let rabbitmq = RabbitMq {
            servers: self.servers(section, &["amqp://", "amqps://"], "use user and password"),
            vhost: section.text("vhost")?,
            user: section.text("user"),
            password: section.secret("password"),
            certificate_login: section.boolean("certificate_login"),
            ca_file: section.text("ca_file").map(PathBuf::from),
            cert_file: section.text("cert_file").map(PathBuf::from),
            key_file: section.text("key_file").map(PathBuf::from),
            api_timeout: section.duration("api_timeout"),
            heartbeat: section.duration("heartbeat"),
            in_flight_max: narrow(section.integer("in_flight_max")?),
            publish_bytes_max: section.integer("publish_bytes_max")?,
            priority: section.integer("priority").map(narrow),
            expiration: section.optional_duration("expiration"),
            streams: section.texts("streams"),
            lookup_messages_max: narrow(section.integer("lookup_messages_max")?),
            provision_exchange_type: section.text("provision_exchange_type")?,
            provision_queue_type: section.text("provision_queue_type")?,
        };
        self.together(section, "user", "password");
        self.together(section, "cert_file", "key_file");
        if rabbitmq.certificate_login && rabbitmq.user.is_some() {
            self.bad(
                section,
                "certificate_login",
                "is set and user is too",
                "keep one way to log in",
            );
        }
        if rabbitmq.certificate_login && rabbitmq.cert_file.is_none() {
            self.bad(
                section,
                "certificate_login",
                "is set and cert_file is not",
                "set cert_file and key_file",
            );
        }
        Some(rabbitmq)
    }

    fn jetstream(&mut self, section: &Section<'_>) -> Option<JetStream> {
        let instead = "use user and password, token, nkey_seed or creds";
        let servers = self.servers(section, &["nats://", "tls://"], instead);
        let jetstream = JetStream {
            servers,
            creds: section.secret("creds"),
            token: section.secret("token"),
            nkey_seed: section.secret("nkey_seed"),
            user: section.text("user"),
            password: section.secret("password"),
            tls_required: section.boolean("tls_required"),
            tls_first: section.boolean("tls_first"),
            ca_file: section.text("ca_file").map(PathBuf::from),
            cert_file: section.text("cert_file").map(PathBuf::from),
            key_file: section.text("key_file").map(PathBuf::from),
            api_timeout: section.duration("api_timeout"),
            ping_interval: section.duration("ping_interval"),
            in_flight_max: narrow(section.integer("in_flight_max")?),
            lookup_messages_max: narrow(section.integer("lookup_messages_max")?),
            inbox_prefix: section.text("inbox_prefix")?,
            provision_replicas: narrow(section.integer("provision_replicas")?),
            provision_bytes_max: section.integer("provision_bytes_max"),
            provision_age_max: section.optional_duration("provision_age_max"),
        };
        self.together(section, "user", "password");
        self.together(section, "cert_file", "key_file");
        let ways = [
            jetstream.creds.is_some(),
            jetstream.token.is_some(),
            jetstream.nkey_seed.is_some(),
            jetstream.user.is_some(),
        ];
        if ways.into_iter().filter(|given| *given).count() > 1 {
            self.bad(
                section,
                "kind",
                "has more than one of creds, token, nkey_seed and user",
                "keep one way to log in",
            );
        }
        Some(jetstream)
    }

    /// Addresses with one of these starts, and without credentials.
    fn servers(
        &mut self,
        section: &Section<'_>,
        schemes: &[&'static str],
        instead: &str,
    ) -> Vec<String> {
        let servers = section.texts("servers");
        if servers.is_empty() {
            self.bad(section, "servers", "is empty", "name at least one server");
        }
        if servers.iter().any(|server| server.contains('@')) {
            self.bad(section, "servers", "holds a user or a password", instead);
        }
        for server in &servers {
            self.scheme(section, "servers", Some(server), schemes);
        }
        servers
    }

    fn redis(&mut self, section: &Section<'_>) -> Option<RedisStreams> {
        let schemes = ["redis://", "rediss://"];
        let servers = self.servers(section, &schemes, "use user and password");
        if section.given("user") && !section.given("password") {
            self.bad(
                section,
                "user",
                "is set and password is not",
                "set password too",
            );
        }
        self.together(section, "cert_file", "key_file");
        if section.given("length_max") && section.texts("groups").is_empty() {
            self.fault(
                section,
                "length_max",
                Code::ContradictorySettings,
                "is set and groups is empty: nothing says whose unread entries must stay",
                "name the consumer groups in groups, or remove length_max",
            );
        }
        Some(RedisStreams {
            servers,
            user: section.text("user"),
            password: section.secret("password"),
            database: narrow(section.integer("database")?),
            ca_file: section.text("ca_file").map(PathBuf::from),
            cert_file: section.text("cert_file").map(PathBuf::from),
            key_file: section.text("key_file").map(PathBuf::from),
            api_timeout: section.duration("api_timeout"),
            dedup_window: section.duration("dedup_window"),
            dedup_ids_max: narrow(section.integer("dedup_ids_max")?),
            replicas_min: narrow(section.integer("replicas_min")?),
            groups: section.texts("groups"),
            length_max: section.integer("length_max"),
            lookup_entries_max: narrow(section.integer("lookup_entries_max")?),
        })
    }

    fn kafka(&mut self, section: &Section<'_>) -> Option<Kafka> {
        let brokers = section.texts("brokers");
        if brokers.is_empty() {
            self.bad(section, "brokers", "is empty", "name at least one broker");
        }
        if brokers.iter().any(|broker| broker.contains(['@', '/'])) {
            self.bad(
                section,
                "brokers",
                "holds a scheme, a user or a password",
                "write HOST:PORT only; use user and password",
            );
        }
        self.together(section, "user", "password");
        self.together(section, "user", "sasl_mechanism");
        self.together(section, "cert_file", "key_file");
        Some(Kafka {
            brokers,
            sasl_mechanism: section.text("sasl_mechanism"),
            user: section.text("user"),
            password: section.secret("password"),
            tls_required: section.boolean("tls_required"),
            ca_file: section.text("ca_file").map(PathBuf::from),
            cert_file: section.text("cert_file").map(PathBuf::from),
            key_file: section.text("key_file").map(PathBuf::from),
            api_timeout: section.duration("api_timeout"),
            in_flight_max: narrow(section.integer("in_flight_max")?),
            in_flight_bytes_max: section.integer("in_flight_bytes_max")?,
            message_bytes_max: narrow(section.integer("message_bytes_max")?),
            lookup_messages_max: narrow(section.integer("lookup_messages_max")?),
            provision_partitions: narrow(section.integer("provision_partitions")?),
            provision_replicas: narrow(section.integer("provision_replicas")?),
        })
    }

    fn http(&mut self, section: &Section<'_>) -> Option<Http> {
        let url = section.url("url")?;
        self.scheme(section, "url", url.given(), &["https://", "http://"]);
        // The rest of the rules are the transport's; this one is about what stands in a file.
        if let Url::Text(text) = &url
            && text.contains(['@', '#'])
        {
            self.bad(
                section,
                "url",
                "holds a user, a password or a fragment",
                "leave them out; use authorization, or give the URL as { env = \"NAME\" }",
            );
        }
        Some(Http {
            url,
            authorization: section.secret("authorization"),
            headers: section.named_secrets("headers"),
            signing_secrets: section.secrets("signing_secrets"),
            allow_networks: section.texts("allow_networks"),
            allow_plain_http: section.boolean("allow_plain_http"),
            ca_file: section.text("ca_file").map(PathBuf::from),
            concurrency_max: narrow(section.integer("concurrency_max")?),
            response_bytes_max: narrow(section.integer("response_bytes_max")?),
            request_bytes_max: section.integer("request_bytes_max"),
        })
    }

    /// Two keys of which neither means anything without the other.
    fn together(&mut self, section: &Section<'_>, one: &str, other: &str) {
        for (there, lacks) in [(one, other), (other, one)] {
            if section.given(there) && !section.given(lacks) {
                self.bad(
                    section,
                    there,
                    &format!("is set and {lacks} is not"),
                    &format!("set {lacks} too"),
                );
            }
        }
    }

    fn destinations(
        &mut self,
        connections: &BTreeMap<String, Connection>,
    ) -> BTreeMap<String, Destination> {
        let mut destinations = BTreeMap::new();
        for section in sections(self.settings, "destinations") {
            let Some(name) = own_name(&section) else {
                continue;
            };
            self.valid(&section, text::destination(&name));
            let (Some(connection), Some(target)) =
                (section.text("connection"), section.text("target"))
            else {
                continue;
            };
            if !connections.contains_key(&connection) {
                self.dangling(
                    &section,
                    "connection",
                    &connection,
                    "connections",
                    connections.keys(),
                );
            }
            if let Some(destination) = destination(&section, connection, target) {
                destinations.insert(name, destination);
            }
        }
        destinations
    }

    fn event_types(&mut self) -> Vec<EventType> {
        let mut seen = BTreeSet::new();
        let mut event_types = Vec::new();
        for section in sections(self.settings, "event_types") {
            let (Some(event_type), Some(schema_version), Some(content_type)) = (
                section.text("event_type"),
                section.text("schema_version"),
                section.text("content_type"),
            ) else {
                continue;
            };
            self.valid(&section, text::event_type(&event_type));
            self.valid(&section, text::schema_version(&schema_version));
            self.valid(&section, text::content_type(&content_type));
            if !seen.insert((event_type.clone(), schema_version.clone())) {
                self.bad(
                    &section,
                    "event_type",
                    &format!("is {event_type:?} version {schema_version:?} a second time"),
                    "remove one of the two",
                );
            }
            event_types.push(EventType {
                event_type,
                schema_version,
                content_type,
                json_schema: section.text("json_schema").map(PathBuf::from),
            });
        }
        event_types
    }

    fn routes(
        &mut self,
        event_types: &[EventType],
        destinations: &BTreeMap<String, Destination>,
    ) -> Vec<Route> {
        let known: BTreeMap<String, (&str, &str)> = event_types
            .iter()
            .map(|known| {
                let pair = (known.event_type.as_str(), known.schema_version.as_str());
                (format!("{} {}", pair.0, pair.1), pair)
            })
            .collect();
        let mut routed: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        let mut routes = Vec::new();
        for section in sections(self.settings, "routes") {
            let (Some(event_type), Some(schema_version)) =
                (section.text("event_type"), section.text("schema_version"))
            else {
                continue;
            };
            let pair = format!("{event_type} {schema_version}");
            if !known.contains_key(&pair) {
                self.dangling(&section, "event_type", &pair, "event_types", known.keys());
            }
            let names = section.texts("destinations");
            if names.is_empty() {
                self.bad(
                    &section,
                    "destinations",
                    "is empty",
                    "name at least one destination",
                );
            }
            let taken = routed
                .entry((event_type.clone(), schema_version.clone()))
                .or_default();
            let twice: Vec<&String> = names
                .iter()
                .filter(|name| !taken.insert((*name).clone()))
                .collect();
            for name in twice {
                self.bad(
                    &section,
                    "destinations",
                    &format!("sends {pair} to {name:?} a second time"),
                    "remove one of the two: one event is delivered to one destination once",
                );
            }
            for name in &names {
                if !destinations.contains_key(name) {
                    self.dangling(
                        &section,
                        "destinations",
                        name,
                        "destinations",
                        destinations.keys(),
                    );
                }
            }
            let consumer = section.text("consumer");
            if let Some(consumer) = &consumer {
                self.valid(&section, text::consumer(consumer));
            }
            routes.push(Route {
                event_type,
                schema_version,
                destinations: names,
                consumer,
                mandatory: section.boolean("mandatory"),
            });
        }
        for section in sections(self.settings, "event_types") {
            if let (Some(event_type), Some(schema_version)) =
                (section.text("event_type"), section.text("schema_version"))
                && !routed.contains_key(&(event_type.clone(), schema_version.clone()))
            {
                self.fault(
                    &section,
                    "event_type",
                    Code::DanglingReference,
                    &format!("{event_type:?} version {schema_version:?} has no route: its events would go nowhere"),
                    "add a [[routes]] for it, or remove the event type",
                );
            }
        }
        routes
    }

    /// A reference to something that is not in the file.
    fn dangling<'n>(
        &mut self,
        section: &Section<'_>,
        key: &str,
        given: &str,
        table: &str,
        known: impl Iterator<Item = &'n String>,
    ) {
        let known: Vec<&String> = known.collect();
        let fix = match names::nearest(given, known.iter().map(|name| (*name).clone())) {
            Some(name) => format!("did you mean {name:?}?"),
            None if known.is_empty() => format!("there are no {table} yet: add it"),
            None => {
                let names: Vec<String> = known
                    .iter()
                    .take(10)
                    .map(|name| format!("{name:?}"))
                    .collect();
                format!("name one of {}", names.join(", "))
            }
        };
        self.fault(
            section,
            key,
            Code::DanglingReference,
            &format!("names {given:?}, which is not in {table}"),
            &fix,
        );
    }

    /// A rule of the contract for a name or a text.
    fn valid(
        &mut self,
        section: &Section<'_>,
        result: Result<(), postrider_contract::invalid::Invalid>,
    ) {
        if let Err(invalid) = result {
            let place = section
                .origin("")
                .map_or_else(String::new, |origin| format!("{origin}: "));
            self.faults.push(Fault::new(
                Code::BadValue,
                format!("{place}{}: {invalid}", section.path),
                "",
                "correct it",
            ));
        }
    }
}

fn own_name(section: &Section<'_>) -> Option<String> {
    match section.path.0.last()? {
        super::path::Segment::Name(name) => Some(name.clone()),
        super::path::Segment::Index(_) => None,
    }
}

fn file(section: &Section<'_>) -> Option<Kind> {
    Some(Kind::File {
        folder: section.text("folder")?.into(),
        index_max: narrow(section.integer("index_max")?),
    })
}

fn destination(section: &Section<'_>, connection: String, target: String) -> Option<Destination> {
    Some(Destination {
        connection,
        target,
        container: section.text("stream").or(section.text("exchange")),
        receipt_type: section.text("receipt_type"),
        key: choice(section, "key")?,
        partitioner: choice(section, "partitioner"),
        serializer: choice(section, "serializer")?,
        durability: choice(section, "durability"),
        ordering: choice(section, "ordering")?,
        lanes: narrow(section.integer("lanes")?),
        on_unknown: choice(section, "on_unknown")?,
        on_quarantine: choice(section, "on_quarantine")?,
        max_attempts: section.integer("max_attempts").map(narrow),
        max_payload_bytes: section.integer("max_payload_bytes"),
    })
}

/// A word of the contract. The table of keys lists the same words.
fn choice<T: DeserializeOwned>(section: &Section<'_>, key: &str) -> Option<T> {
    let word: StringDeserializer<value::Error> = section.text(key)?.into_deserializer();
    Some(T::deserialize(word).expect("the table of keys lists the contract's words"))
}

/// An integer that the table of keys bounds to less than its type holds.
fn narrow<T: TryFrom<u64>>(number: u64) -> T
where
    T::Error: std::fmt::Debug,
{
    T::try_from(number).expect("the table of keys bounds it")
}
