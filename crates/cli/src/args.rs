//! What may stand on the command line. Only parsed here; nothing is looked up or done.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Delivers committed events and keeps the receipts.
///
/// Exit status: 0 done or yes, 1 no, 2 could not, 3 done in part.
#[derive(Debug, Parser)]
#[command(
    name = "postrider",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// The configuration file [default: postrider.toml]
    #[arg(
        long,
        global = true,
        display_order = 900,
        env = "POSTRIDER_CONFIG",
        hide_env = true,
        value_name = "PATH"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Set a key, over file and environment
    #[arg(long, global = true, display_order = 901, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show it at work: commit, kill the relay, deliver, prove; needs no server
    Demo(Demo),
    /// Write a postrider.toml and a JSON Schema to start from
    Init(Init),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Create or update the tables
    Migrate(Migrate),
    /// Make ahead what will be needed, such as partitions; run it daily
    Maintain(Format),
    /// Show what the file would change in the database
    Plan(Format),
    /// Register the file's destinations, event types and routes
    Apply(Apply),
    /// Create what destinations need, such as streams
    Provision(Provision),
    /// Say what is not ready, and why
    Check(Format),
    /// Relay until SIGTERM
    Run(Run),
    /// Send what is due once, and end
    DispatchOnce(DispatchOnce),
    /// Append events from the command line
    Append(Box<Append>),
    /// Committed events
    #[command(subcommand)]
    Events(Events),
    /// Open deliveries
    #[command(subcommand)]
    Deliveries(Deliveries),
    /// Deliveries in quarantine
    #[command(subcommand)]
    DeadLetter(DeadLetter),
    /// Registered destinations
    #[command(subcommand)]
    Destination(DestinationCommand),
    /// Workers, live and ended
    Sessions(Sessions),
    /// Who holds which lane
    Lanes(Format),
    /// Say what becomes of an event, and why
    Why(Why),
    /// Explain an error code, or list them
    Explain(Explain),
    /// Print a completion script
    Completions(Completions),
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Format {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What every changing command asks.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Do it; without this only show it
    #[arg(long)]
    pub(crate) yes: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Who, for the audit log [default: user@host]
    #[arg(long, env = "POSTRIDER_ACTOR", hide_env = true, value_name = "NAME")]
    pub(crate) actor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Page {
    /// Rows at most
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Go on after this cursor of an earlier list
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The folder to work in [default: a new one in the system's folder for temporary files]
    #[arg(long, value_name = "PATH")]
    pub(crate) dir: Option<PathBuf>,
    /// Orders to commit
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) orders: u32,
    /// How often to kill the relay
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(crate) kills: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Where to write
    #[arg(default_value = ".", value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report everything that is wrong
    Check(Format),
    /// Show every setting and where it comes from; never a secret
    Show(Format),
    /// List every key
    Keys(Keys),
}

#[derive(Debug, Args)]
pub(crate) struct Keys {
    /// Print the page of the documentation
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Provision {
    /// Only these destinations [default: all]
    #[arg(value_name = "DESTINATION")]
    pub(crate) destinations: Vec<String>,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Only one dispatcher at a time; wait while another one works
    #[arg(long)]
    pub(crate) exclusive: bool,
    /// Stop after looking for work this often
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations_max: Option<u64>,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct DispatchOnce {
    /// Claim nothing while another exclusive dispatcher works
    #[arg(long)]
    pub(crate) exclusive: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Append {
    /// JSON lines, one event each; `-` for standard input
    #[arg(long, value_name = "PATH", conflicts_with_all = ["event_type", "payload"])]
    pub(crate) json_lines: Option<PathBuf>,
    #[arg(long, value_name = "NAME", required_unless_present = "json_lines")]
    pub(crate) event_type: Option<String>,
    #[arg(long, value_name = "TEXT", required_unless_present = "json_lines")]
    pub(crate) schema_version: Option<String>,
    #[arg(long, value_name = "TEXT", required_unless_present = "json_lines")]
    pub(crate) aggregate_type: Option<String>,
    #[arg(long, value_name = "TEXT", required_unless_present = "json_lines")]
    pub(crate) aggregate_id: Option<String>,
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) aggregate_version: Option<String>,
    /// The payload; `@PATH` for a file, `@-` for standard input
    #[arg(long, value_name = "TEXT", required_unless_present = "json_lines")]
    pub(crate) payload: Option<String>,
    /// [default: application/json]
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// A UUID [default: a new one]
    #[arg(long, value_name = "ID")]
    pub(crate) event_id: Option<String>,
    /// [default: default]
    #[arg(long, value_name = "TEXT")]
    pub(crate) tenant: Option<String>,
    /// [default: AGGREGATE_TYPE/AGGREGATE_ID]
    #[arg(long, value_name = "TEXT")]
    pub(crate) partition_key: Option<String>,
    /// RFC 3339 with a zone [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) occurred_at: Option<String>,
    /// A free header; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) header: Vec<String>,
    #[arg(long, value_name = "TEXT")]
    pub(crate) correlation_id: Option<String>,
    #[arg(long, value_name = "TEXT")]
    pub(crate) causation_id: Option<String>,
    #[arg(long, value_name = "TEXT")]
    pub(crate) traceparent: Option<String>,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Events {
    /// List events in append order
    List(EventsList),
    /// All that is known of one event
    Show(EventsShow),
}

#[derive(Debug, Args)]
pub(crate) struct EventsList {
    #[arg(long, value_name = "NAME")]
    pub(crate) event_type: Option<String>,
    #[arg(long, value_name = "TEXT")]
    pub(crate) tenant: Option<String>,
    #[arg(long, value_name = "TEXT")]
    pub(crate) aggregate_type: Option<String>,
    #[arg(long, value_name = "TEXT")]
    pub(crate) aggregate_id: Option<String>,
    #[arg(long, value_name = "TEXT")]
    pub(crate) partition_key: Option<String>,
    #[command(flatten)]
    pub(crate) page: Page,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct EventsShow {
    #[arg(value_name = "EVENT_ID")]
    pub(crate) event_id: String,
    /// Show the payload too
    #[arg(long)]
    pub(crate) payload: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Deliveries {
    /// List open deliveries
    List(DeliveriesList),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OpenState {
    Pending,
    Unknown,
    Quarantined,
}

#[derive(Debug, Args)]
pub(crate) struct DeliveriesList {
    /// `NAME` for all generations, `NAME#2` for one
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    #[arg(long)]
    pub(crate) state: Option<OpenState>,
    #[arg(long, value_name = "TEXT")]
    pub(crate) partition_key: Option<String>,
    #[command(flatten)]
    pub(crate) page: Page,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetter {
    /// List quarantined deliveries
    List(DeadLetterList),
    /// One event's quarantined deliveries in full
    Show(DeadLetterShow),
    /// Send quarantined deliveries again: the same event to the same destination
    Replay(Replay),
}

/// Which quarantined deliveries; every part given must match.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Of this event; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) event_id: Vec<String>,
    /// At this destination: `NAME` for all generations, `NAME#2` for one
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Quarantined with this code
    #[arg(long, value_name = "CODE")]
    pub(crate) code: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterList {
    #[command(flatten)]
    pub(crate) selection: Selection,
    #[command(flatten)]
    pub(crate) page: Page,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct DeadLetterShow {
    #[arg(value_name = "EVENT_ID")]
    pub(crate) event_id: String,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Everything in quarantine
    #[arg(long, conflicts_with_all = ["event_id", "destination", "code"])]
    pub(crate) all: bool,
    /// Deliveries at most, first in append order
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DestinationCommand {
    /// List destinations with their backlog
    List(Format),
    /// Let a suspended destination run again
    Resume(Resume),
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// `NAME` for the newest generation, `NAME#1` for another
    #[arg(value_name = "NAME")]
    pub(crate) destination: String,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// Rows at most, newest first
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    #[arg(value_name = "EVENT_ID")]
    pub(crate) event_id: String,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Such as P0010
    #[arg(value_name = "CODE")]
    pub(crate) code: Option<String>,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
