//! How many tests a runner's output says passed and failed.

use std::fmt;
use std::ops::AddAssign;

/// Whose output is read. One shows the other's lines for a failed test, so they are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    Nextest,
    Libtest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// The numbers before these words are added up. A test that ended in none of the good ways failed.
const PASSED: [&str; 1] = ["passed"];
const FAILED: [&str; 3] = ["failed", "timed out", "exec failed"];

impl Count {
    /// What one line of output adds.
    pub(crate) fn of_line(line: &str, runner: Runner) -> Self {
        let line = without_colour(line);
        let summary = match runner {
            Runner::Nextest => line.trim_start().strip_prefix("Summary ["),
            Runner::Libtest => line.strip_prefix("test result: "),
        };
        let Some(summary) = summary else {
            return Self::default();
        };
        let mut count = Self::default();
        for part in summary.split([',', ';', ':', '.', '(']) {
            let Some((number, what)) = part.trim().split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            if PASSED.contains(&what.trim()) {
                count.passed += number;
            } else if FAILED.contains(&what.trim()) {
                count.failed += number;
            }
        }
        count
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// The line without the escape sequences that colour it: ESC [ … letter.
fn without_colour(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        rest = rest.get(1..).unwrap_or("");
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(runner: Runner, line: &str, passed: u64, failed: u64) {
        assert_eq!(
            Count::of_line(line, runner),
            Count { passed, failed },
            "{line}"
        );
    }

    #[test]
    fn summaries_are_counted_and_nothing_else() {
        use Runner::{Libtest, Nextest};
        check(
            Nextest,
            "     Summary [   2.995s] 24 tests run: 23 passed, 1 failed, 0 skipped",
            23,
            1,
        );
        check(
            Nextest,
            "     Summary [  99.100s] 7 tests run: 4 passed (1 slow), 1 failed, 2 timed out, 3 skipped",
            4,
            3,
        );
        check(
            Nextest,
            "\u{1b}[32;1m     Summary\u{1b}[0m [   0.1s] \u{1b}[1m2\u{1b}[0m tests run: \
             \u{1b}[1m2\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, \u{1b}[1m0\u{1b}[0m skipped",
            2,
            0,
        );
        let libtest =
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out";
        check(Libtest, libtest, 3, 2);
        check(Nextest, libtest, 0, 0);
        check(
            Nextest,
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored",
            0,
            0,
        );
        check(Libtest, "running 3 tests", 0, 0);
    }
}
