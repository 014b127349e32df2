//! A strict JSON parser. It knows where it is, so that an error can name the place.

use super::{DEPTH_MAX, Profile, number, write};
use crate::INTEGER_MAX;

/// A parsed value: members sorted in UTF-16 order, numbers in canonical form.
#[derive(Debug)]
pub(super) enum Tree {
    Literal(&'static str),
    Number(String),
    String(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

/// Why a text is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}, at byte {offset}{}", place(.pointer))]
pub struct Error {
    /// Bytes from the start of the text.
    pub offset: usize,
    /// RFC 6901 JSON Pointer to the value; empty: the whole document.
    pub pointer: String,
    pub problem: Problem,
}

/// What is wrong with the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the text is not UTF-8; encode it as UTF-8")]
    NotUtf8,
    #[error("the text starts with a byte order mark; remove it")]
    ByteOrderMark,
    #[error("the text ends too early; was it cut?")]
    End,
    #[error("found {0}")]
    Syntax(&'static str),
    #[error("there is something after the JSON value; remove it")]
    Trailing,
    #[error("arrays and objects are nested more than {DEPTH_MAX} deep; flatten them")]
    TooDeep,
    #[error("the member {0} appears twice in one object; keep one")]
    Duplicate(String),
    #[error(
        "a string holds half of a surrogate pair, which is not a character; write the whole pair \
         or the character itself"
    )]
    LoneSurrogate,
    #[error("a string holds the control character U+{0:04X}; escape it")]
    Control(u32),
    #[error("null stands where canonical objects have nothing; leave the member out")]
    Null,
    #[error(
        "{0} is not written as an integer, and canonical objects hold no other numbers; write plain digits"
    )]
    NotAnInteger(String),
    #[error(
        "{0} is past ±9007199254740991 (2^53 - 1), where not every reader can tell integers apart; use a string"
    )]
    TooLarge(String),
    #[error(
        "the canonical form would change {0}, which no double holds exactly as written; give the \
         payload as bytes to keep it, or use a string"
    )]
    WouldChange(String),
    #[error("{0} is larger than any double; use a string")]
    NotFinite(String),
}

impl Problem {
    /// A stable word for the kind of problem, as the golden vectors have it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::NotUtf8 => "not_utf8",
            Self::ByteOrderMark => "byte_order_mark",
            Self::End => "end",
            Self::Syntax(_) => "syntax",
            Self::Trailing => "trailing",
            Self::TooDeep => "too_deep",
            Self::Duplicate(_) => "duplicate",
            Self::LoneSurrogate => "lone_surrogate",
            Self::Control(_) => "control",
            Self::Null => "null",
            Self::NotAnInteger(_) => "not_an_integer",
            Self::TooLarge(_) => "too_large",
            Self::WouldChange(_) => "would_change",
            Self::NotFinite(_) => "not_finite",
        }
    }
}

fn place(pointer: &str) -> String {
    if pointer.is_empty() {
        String::new()
    } else {
        format!(" ({pointer})")
    }
}

impl Error {
    pub(super) fn at(offset: usize, problem: Problem) -> Self {
        Self {
            offset,
            pointer: String::new(),
            problem,
        }
    }

    /// The same error, seen from the value that holds this one under `name`.
    fn inside(mut self, name: &str) -> Self {
        let name = name.replace('~', "~0").replace('/', "~1");
        self.pointer.insert_str(0, &cut(&name));
        self.pointer.insert(0, '/');
        self
    }
}

/// At most 100 characters of what was found (I17).
fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}

/// The text, if it is UTF-8 without a byte order mark.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, Error> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Error::at(error.valid_up_to(), Problem::NotUtf8))?;
    if text.starts_with('\u{feff}') {
        return Err(Error::at(0, Problem::ByteOrderMark));
    }
    Ok(text)
}

/// Parses one value that is the whole text.
pub(super) fn parse(bytes: &[u8], profile: Profile) -> Result<Tree, Error> {
    let text = utf8(bytes)?;
    let mut parser = Parser {
        text,
        at: 0,
        profile,
    };
    parser.space();
    let value = parser.value(0)?;
    parser.space();
    if parser.at < text.len() {
        return Err(parser.error(Problem::Trailing));
    }
    Ok(value)
}

/// The offset at which valid JSON text is deeper than [`DEPTH_MAX`].
pub(super) fn too_deep(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (offset, byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Some(offset);
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    profile: Profile,
}

impl Parser<'_> {
    fn error(&self, problem: Problem) -> Error {
        Error::at(self.at, problem)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// `depth` containers are open around this value.
    fn value(&mut self, depth: usize) -> Result<Tree, Error> {
        match self.peek() {
            None => Err(self.error(Problem::End)),
            Some(b'{' | b'[') if depth == DEPTH_MAX => Err(self.error(Problem::TooDeep)),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => Ok(Tree::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => Ok(Tree::Number(self.number()?)),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => {
                if self.profile == Profile::Object && self.text[self.at..].starts_with("null") {
                    return Err(self.error(Problem::Null));
                }
                self.literal("null")
            }
            Some(_) => Err(self.error(Problem::Syntax("something that no JSON value starts with"))),
        }
    }

    fn literal(&mut self, word: &'static str) -> Result<Tree, Error> {
        let rest = &self.text[self.at..];
        if rest.starts_with(word) {
            self.at += word.len();
            Ok(Tree::Literal(word))
        } else if word.starts_with(rest) {
            Err(self.error(Problem::End))
        } else {
            Err(self.error(Problem::Syntax("a word that is not true, false or null")))
        }
    }

    fn array(&mut self, depth: usize) -> Result<Tree, Error> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Tree::Array(items));
        }
        loop {
            self.space();
            let index = items.len();
            items.push(
                self.value(depth)
                    .map_err(|error| error.inside(&index.to_string()))?,
            );
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Tree::Array(items));
                }
                None => return Err(self.error(Problem::End)),
                Some(_) => {
                    let expected = "something else where a comma or ] must follow an array item";
                    return Err(self.error(Problem::Syntax(expected)));
                }
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Tree, Error> {
        self.at += 1;
        let mut members: Vec<(String, Tree, usize)> = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Tree::Object(Vec::new()));
        }
        loop {
            self.space();
            let start = self.at;
            match self.peek() {
                Some(b'"') => {}
                None => return Err(self.error(Problem::End)),
                Some(_) => {
                    let expected = "something else where a member name in quotes must stand";
                    return Err(self.error(Problem::Syntax(expected)));
                }
            }
            let name = self.string()?;
            self.space();
            match self.peek() {
                Some(b':') => self.at += 1,
                None => return Err(self.error(Problem::End)),
                Some(_) => {
                    let expected = "something else where a colon must follow a member name";
                    return Err(self.error(Problem::Syntax(expected)));
                }
            }
            self.space();
            let value = self.value(depth).map_err(|error| error.inside(&name))?;
            members.push((name, value, start));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return sorted(members);
                }
                None => return Err(self.error(Problem::End)),
                Some(_) => {
                    let expected = "something else where a comma or } must follow a member";
                    return Err(self.error(Problem::Syntax(expected)));
                }
            }
        }
    }

    fn string(&mut self) -> Result<String, Error> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .bytes()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))
                .ok_or_else(|| Error::at(self.text.len(), Problem::End))?;
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(control) => return Err(self.error(Problem::Control(control.into()))),
                None => return Err(self.error(Problem::End)),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        let start = self.at;
        let byte = self.text.as_bytes().get(self.at + 1);
        self.at += 2;
        match byte {
            Some(b'"') => Ok('"'),
            Some(b'\\') => Ok('\\'),
            Some(b'/') => Ok('/'),
            Some(b'b') => Ok('\u{8}'),
            Some(b'f') => Ok('\u{c}'),
            Some(b'n') => Ok('\n'),
            Some(b'r') => Ok('\r'),
            Some(b't') => Ok('\t'),
            Some(b'u') => {
                let lone = Error::at(start, Problem::LoneSurrogate);
                let first = self.hex4()?;
                if !(0xD800..=0xDFFF).contains(&first) {
                    return char::from_u32(first).ok_or(lone);
                }
                if first >= 0xDC00 || !self.text[self.at..].starts_with("\\u") {
                    return Err(lone);
                }
                self.at += 2;
                let second = self.hex4()?;
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return Err(lone);
                }
                let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                char::from_u32(code).ok_or(lone)
            }
            None => Err(Error::at(self.text.len(), Problem::End)),
            Some(_) => Err(Error::at(
                start,
                Problem::Syntax("a backslash before something that is no escape"),
            )),
        }
    }

    fn hex4(&mut self) -> Result<u32, Error> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let Some(digits) = digits else {
            return Err(Error::at(self.text.len(), Problem::End));
        };
        let mut code = 0;
        for digit in digits {
            let digit = char::from(*digit).to_digit(16);
            let digit = digit.ok_or_else(|| {
                self.error(Problem::Syntax(
                    "something else where four hex digits must follow \\u",
                ))
            })?;
            code = code * 16 + digit;
        }
        self.at += 4;
        Ok(code)
    }

    fn digits(&mut self) -> Result<(), Error> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        match self.peek() {
            _ if self.at > start => Ok(()),
            None => Err(self.error(Problem::End)),
            Some(_) => Err(self.error(Problem::Syntax("something else where a digit must stand"))),
        }
    }

    fn number(&mut self) -> Result<String, Error> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(Error::at(
                    start,
                    Problem::Syntax("a number with a leading zero"),
                ));
            }
        } else {
            self.digits()?;
        }
        let mut plain = true;
        if self.peek() == Some(b'.') {
            plain = false;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            plain = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let token = &self.text[start..self.at];
        canonical_number(token, plain, self.profile).map_err(|problem| Error::at(start, problem))
    }
}

/// The canonical form of a number. `plain`: no fraction, no exponent.
fn canonical_number(token: &str, plain: bool, profile: Profile) -> Result<String, Problem> {
    let within = plain && {
        let magnitude = token.trim_start_matches('-').parse::<u64>();
        magnitude.is_ok_and(|magnitude| magnitude <= INTEGER_MAX)
    };
    if within && token != "-0" {
        return Ok(token.to_owned());
    }
    match profile {
        Profile::Object if !plain || within => Err(Problem::NotAnInteger(cut(token))),
        Profile::Object => Err(Problem::TooLarge(cut(token))),
        Profile::Value if plain && !within => Err(Problem::WouldChange(cut(token))),
        Profile::Value | Profile::Rfc8785 => {
            let double: f64 = token.parse().map_err(|_| Problem::NotFinite(cut(token)))?;
            if !double.is_finite() {
                return Err(Problem::NotFinite(cut(token)));
            }
            let canonical = number::ecmascript(double);
            if profile == Profile::Value && !number::same_decimal(token, &canonical) {
                return Err(Problem::WouldChange(cut(token)));
            }
            Ok(canonical)
        }
    }
}

/// Sorts members, refusing a name that appears twice (the later one is at fault).
fn sorted(mut members: Vec<(String, Tree, usize)>) -> Result<Tree, Error> {
    members.sort_by(|(a, _, _), (b, _, _)| write::utf16_order(a, b));
    for pair in members.windows(2) {
        if pair[0].0 == pair[1].0 {
            let offset = pair[0].2.max(pair[1].2);
            return Err(Error::at(
                offset,
                Problem::Duplicate(format!("{:?}", cut(&pair[0].0))),
            ));
        }
    }
    Ok(Tree::Object(
        members
            .into_iter()
            .map(|(name, value, _)| (name, value))
            .collect(),
    ))
}
