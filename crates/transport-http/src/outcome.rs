//! What an answer means: the documented table, in code.

use std::time::{Duration, SystemTime};

use postrider_core::{Class, Outcome, outcome::bounded_detail};
use reqwest::{StatusCode, header::HeaderMap};
use url::Url;

/// Longest `Retry-After` that is honoured. A receiver that asks for more is asked again after
/// this long.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// The outcome of a status that is not 2xx. `host`: for the detail; `url`: what a relative
/// `Location` is relative to.
pub(crate) fn of_status(
    status: StatusCode,
    headers: &HeaderMap,
    url: &Url,
    host: &str,
    now: SystemTime,
) -> Outcome {
    let code = status.as_u16();
    let said = format!("{host} answered {code}");
    let wait = retry_after(headers, now);
    match code {
        300..=399 => {
            let place = redirect(headers, url).unwrap_or_else(|| "nowhere".to_owned());
            Outcome::retryable(
                Class::Outage,
                "redirected",
                &format!(
                    "{said} and pointed to {place}; redirects are not \
                followed: point the connection at the right URL"
                ),
                None,
            )
        }
        410 => Outcome::Rejected {
            code: "gone",
            detail: bounded_detail(&format!("{said}: the receiver wants no more")),
            suspends: true,
        },
        429 => Outcome::retryable(Class::Outage, "too_many_requests", &said, wait),
        502..=504 => Outcome::retryable(Class::Outage, "unavailable", &said, wait),
        401 | 403 | 404 | 405 | 407 | 408 | 409 | 421 | 423 | 424 | 425 => {
            Outcome::retryable(Class::Refusal, refused_code(code), &said, wait)
        }
        413 => Outcome::rejected("message_too_large", &said),
        400..=499 => Outcome::rejected("rejected", &said),
        _ => Outcome::retryable(Class::Refusal, "receiver_failed", &said, wait),
    }
}

fn refused_code(status: u16) -> &'static str {
    match status {
        401 | 407 => "not_authorized",
        403 => "forbidden",
        404 => "not_found",
        405 => "method_not_allowed",
        409 => "in_progress",
        _ => "refused",
    }
}

/// `Retry-After`, in seconds or as a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers
        .get(reqwest::header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Too many digits for a number is long enough, too.
        text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs)
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        // A date that has passed: at once.
        date.duration_since(now).unwrap_or(Duration::ZERO)
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// Where a redirect pointed: scheme, host and port only, since the rest may hold a credential.
fn redirect(headers: &HeaderMap, url: &Url) -> Option<String> {
    let location = headers.get(reqwest::header::LOCATION)?.to_str().ok()?;
    let target = url.join(location).ok()?;
    let host = target.host_str()?;
    let port = target
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    Some(format!("{}://{host}{port}", target.scheme()))
}

#[cfg(test)]
mod tests {
    use reqwest::header::{LOCATION, RETRY_AFTER};

    use super::*;

    fn of(status: u16, headers: &HeaderMap) -> Outcome {
        let url = Url::parse("https://h.example/a/S3CRET2?token=S3CRET3").unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        of_status(status, headers, &url, "h.example", SystemTime::UNIX_EPOCH)
    }

    fn kind(status: u16) -> (&'static str, &'static str) {
        match of(status, &HeaderMap::new()) {
            Outcome::Acknowledged(_) => ("acknowledged", ""),
            Outcome::Retryable {
                class: Class::Outage,
                code,
                ..
            } => ("outage", code),
            Outcome::Retryable {
                class: Class::Refusal,
                code,
                ..
            } => ("refusal", code),
            Outcome::Retryable {
                class: Class::Held,
                code,
                ..
            } => ("held", code),
            Outcome::Rejected {
                code,
                suspends: true,
                ..
            } => ("suspends", code),
            Outcome::Rejected {
                code,
                suspends: false,
                ..
            } => ("rejected", code),
            Outcome::Unknown { code, .. } => ("unknown", code),
        }
    }

    #[test]
    fn each_status_has_its_outcome() {
        for status in 300..400 {
            assert_eq!(kind(status), ("outage", "redirected"), "{status}");
        }
        assert_eq!(kind(410), ("suspends", "gone"));
        assert_eq!(kind(429), ("outage", "too_many_requests"));
        for status in [502, 503, 504] {
            assert_eq!(kind(status), ("outage", "unavailable"), "{status}");
        }
        for status in [401, 403, 404, 405, 407, 408, 409, 421, 423, 424, 425] {
            assert_eq!(kind(status).0, "refusal", "{status}");
        }
        for status in [
            400, 402, 406, 411, 412, 414, 415, 416, 417, 422, 426, 431, 451,
        ] {
            assert_eq!(kind(status), ("rejected", "rejected"), "{status}");
        }
        assert_eq!(kind(413), ("rejected", "message_too_large"));
        for status in [500, 501, 505, 507, 599, 600, 999] {
            assert_eq!(kind(status), ("refusal", "receiver_failed"), "{status}");
        }
    }

    #[test]
    fn whk_3_not_found_is_not_gone() {
        assert_eq!(kind(404), ("refusal", "not_found"));
        assert_eq!(kind(410), ("suspends", "gone"));
    }

    #[test]
    fn retry_after_is_read_in_both_forms_and_capped() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let check = |text: &str, expect: Option<u64>| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(
                retry_after(&headers, now),
                expect.map(Duration::from_secs),
                "{text}"
            );
        };
        check("120", Some(120));
        check("0", Some(0));
        check("999999", Some(3600));
        check("99999999999999999999999", Some(3600));
        check("Sun, 06 Nov 1994 08:51:37 GMT", Some(120));
        check("Sunday, 06-Nov-94 08:51:37 GMT", Some(120));
        check("Sun, 06 Nov 1994 08:40:00 GMT", Some(0));
        check("Mon, 06 Nov 1995 08:49:37 GMT", Some(3600));
        check("-5", None);
        check("soon", None);
        check("", None);
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn sec_1_a_redirect_shows_its_host_and_nothing_else() {
        let shows = |location: &str, expect: &str| {
            let headers = HeaderMap::from_iter([(LOCATION, location.parse().unwrap())]);
            let Outcome::Retryable { detail, .. } = of(302, &headers) else {
                panic!()
            };
            assert!(
                detail.contains(&format!("pointed to {expect};")),
                "{detail}"
            );
            assert!(!detail.contains("S3CRET"), "{detail}");
        };
        shows(
            "https://u:S3CRET1@login.example:8443/S3CRET?x=S3CRET",
            "https://login.example:8443",
        );
        shows("/final", "https://h.example");
        shows("//other.example/x", "https://other.example");
        shows("http://[", "nowhere");
        shows("data:S3CRET", "nowhere");
    }
}
