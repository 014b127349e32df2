//! The stable words that outcomes, preflights and quarantines carry. What they mean is said once, in
//! the documentation's tables with a column `code`, which are built in.

/// Every page with such a table.
const PAGES: [&str; 7] = [
    include_str!("../../../docs/states.md"),
    include_str!("../../../docs/transports/nats.md"),
    include_str!("../../../docs/transports/kafka.md"),
    include_str!("../../../docs/transports/rabbitmq.md"),
    include_str!("../../../docs/transports/http.md"),
    include_str!("../../../docs/transports/file.md"),
    include_str!("../../../docs/transports/redis.md"),
];

/// One row about a word.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) word: &'static str,
    /// The page's title.
    page: &'static str,
    /// Column and cell, but for the words.
    cells: Vec<(&'static str, &'static str)>,
}

/// Everything that is said, in the order of the pages.
pub(crate) fn all() -> Vec<Said> {
    PAGES.iter().flat_map(|page| rows(page)).collect()
}

/// What is said of one word, Markdown. `None`: nothing.
pub(crate) fn page(word: &str) -> Option<String> {
    let said: Vec<Said> = all().into_iter().filter(|said| said.word == word).collect();
    if said.is_empty() {
        return None;
    }
    let mut page = format!("# {word}\n");
    for one in said {
        page.push_str(&format!("\n{}\n", one.page));
        for (column, cell) in one.cells {
            page.push_str(&format!("- {column}: {cell}\n"));
        }
    }
    Some(page)
}

impl Said {
    pub(crate) fn title(&self) -> &'static str {
        // A severity or a state says less than the longest cell.
        let cells = self.cells.iter().map(|(_, cell)| *cell);
        cells.max_by_key(|cell| cell.len()).unwrap_or_default()
    }
}

fn rows(page: &'static str) -> Vec<Said> {
    let title = page.lines().next().unwrap_or_default();
    let title = title.trim_start_matches("# ");
    let mut header: Vec<&str> = Vec::new();
    let mut said = Vec::new();
    for line in page.lines() {
        let Some(row) = line.strip_prefix('|') else {
            header.clear();
            continue;
        };
        let cells: Vec<&str> = row
            .trim_end_matches('|')
            .split('|')
            .map(str::trim)
            .collect();
        if header.is_empty() {
            header = cells;
            continue;
        }
        let Some(at) = header.iter().position(|column| *column == "code") else {
            continue;
        };
        // Words stand in backquotes: every second part.
        let words = cells.get(at).copied().unwrap_or_default().split('`');
        for word in words.skip(1).step_by(2) {
            let others = header.iter().zip(&cells).enumerate();
            said.push(Said {
                word,
                page: title,
                cells: others
                    .filter(|(index, (_, cell))| *index != at && !cell.is_empty())
                    .map(|(_, (column, cell))| (*column, *cell))
                    .collect(),
            });
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_explained_by_every_page_that_has_it() {
        let page = page("stream_missing").unwrap();
        assert!(page.starts_with("# stream_missing\n\nNATS JetStream\n- severity: refused\n"));
        assert!(page.contains("postrider provision"), "{page}");
        assert!(page.contains("- outcome: outage"), "{page}");
        assert!(super::page("lanes").is_none(), "a setting is no code");
    }

    /// Literals in the sources that stand where a code does, and are none.
    const NO_CODES: [&str; 27] = [
        "file",
        "http",
        "jetstream",
        "kafka",
        "plaintext",
        "ssl",
        "sasl_plaintext",
        "sasl_ssl",
        "ce_id",
        "rabbitmq",
        "topic",
        "direct",
        "fanout",
        "stream",
        "quorum",
        "classic",
        "warning",
        "whsec_",
        "pending",
        "quarantined",
        "refused",
        "unknown",
        "ended",
        "expired",
        "live",
        "current",
        "done",
    ];

    #[test]
    fn every_code_that_can_be_printed_is_explained() {
        let crates = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut missing = Vec::new();
        let mut seen = 0;
        for folder in [
            "transport-nats/src",
            "transport-kafka/src",
            "transport-rabbitmq/src",
            "transport-http/src",
            "transport-file/src",
            "transport-redis/src",
            "transport/src",
            "relay/src",
            "core/src",
            "schema/src",
            "cli/src/backend",
            "cli/src/commands",
        ] {
            for_each_file(&crates.join(folder), &mut |name, text| {
                for code in codes(text) {
                    seen += 1;
                    if page(code).is_none() && !NO_CODES.contains(&code) {
                        missing.push(format!("{code} ({name})"));
                    }
                }
            });
        }
        assert!(
            seen > 100,
            "{seen} codes were found: does this test still look right?"
        );
        assert!(missing.is_empty(), "not explained: {missing:?}");
    }

    fn for_each_file(folder: &std::path::Path, look: &mut impl FnMut(&str, &str)) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            if path.is_dir() {
                for_each_file(&path, look);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                look(&name, text.split("#[cfg(test)]").next().unwrap_or_default());
            }
        }
    }

    /// Text literals in the form of a code that follow what codes follow.
    fn codes(text: &str) -> Vec<&str> {
        const BEFORE: [&str; 15] = [
            "code:",
            "outage(",
            "unknown(",
            "rejected(",
            "refused(",
            "warning(",
            "warn(",
            "refusal(",
            "Class::Refusal,",
            "Class::Outage,",
            "Class::Held,",
            "Err((",
            "last = (",
            ": &str =",
            "=>",
        ];
        let mut found = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('"') {
            let end = after.find('"').unwrap_or(after.len());
            let literal = &after[..end];
            let is_word = literal.starts_with(|c: char| c.is_ascii_lowercase())
                && literal
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            let before = before.trim_end();
            if is_word && BEFORE.iter().any(|way| before.ends_with(way)) {
                found.push(literal);
            }
            rest = after.get(end + 1..).unwrap_or_default();
        }
        found
    }
}
