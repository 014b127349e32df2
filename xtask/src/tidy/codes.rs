//! Error codes for operators and their pages: each code that the sources name has a page in
//! docs/errors, and each page is of a code that the sources name.

use std::collections::BTreeMap;

use super::files::File;

const PAGES: &str = "docs/errors/";

pub(super) fn check(tracked: &[File]) -> Vec<String> {
    let mut named: BTreeMap<&str, &str> = BTreeMap::new();
    let mut pages: BTreeMap<&str, &str> = BTreeMap::new();
    let mut faults = Vec::new();
    for file in tracked {
        let path = file.path.as_str();
        if let Some(page) = path
            .strip_prefix(PAGES)
            .and_then(|name| name.strip_suffix(".md"))
        {
            if is_code(page) {
                pages.insert(page, path);
                if !file.text.starts_with(&format!("# {page}")) {
                    faults.push(format!("{path}: must start with `# {page}`"));
                }
            }
        } else if is_source(path) {
            // Unit tests at the bottom may name codes that do not exist.
            let product = file.text.split("#[cfg(test)]").next().unwrap_or("");
            for code in product.split('"').filter(|text| is_code(text)) {
                named.entry(code).or_insert(path);
            }
        }
    }
    for (code, path) in &named {
        if !pages.contains_key(code) {
            faults.push(format!(
                "{path}: error code {code} has no page {PAGES}{code}.md"
            ));
        }
    }
    for (code, path) in &pages {
        if !named.contains_key(code) {
            faults.push(format!("{path}: no source names the error code {code}"));
        }
    }
    faults
}

/// Sources of the product. SQL has codes of the same shape that are not ours.
fn is_source(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts.as_slice(), ["crates", _, "src", ..]) && path.ends_with(".rs")
}

/// `P` and four digits.
fn is_code(text: &str) -> bool {
    text.len() == 5
        && text
            .strip_prefix('P')
            .is_some_and(|digits| digits.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn codes_and_pages_must_match() {
        let source = file(
            "crates/x/src/lib.rs",
            "code(\"P0001\"), code(\"P0002\"), \"PORT5\"",
        );
        let test = file("crates/x/tests/t.rs", "explain(\"P9999\")");
        let page = |code: &str| {
            file(
                &format!("docs/errors/{code}.md"),
                &format!("# {code} it is"),
            )
        };
        assert_eq!(check(&[]).len(), 0);
        let good = [source, test, page("P0001"), page("P0002")];
        assert_eq!(check(&good), Vec::<String>::new());
        assert_eq!(check(&good[..3]).len(), 1);
        assert_eq!(check(&good[1..]).len(), 2);
        assert_eq!(check(&[file("docs/errors/P0003.md", "P0003")]).len(), 2);
    }
}
