// Makes the golden vectors beside it. It shares no code with postrider: canonical JSON comes from
// JSON.stringify and the sort order of JavaScript strings (UTF-16 code units), digests from
// node:crypto, so that agreement with the Rust code and the SQL functions means something.
//
//   node generate.mjs           writes the files
//   node generate.mjs --check   compares them, writes nothing, exits 1 on a difference
//
// Why an input is refused is written down by hand.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

const sha256 = (bytes) => createHash("sha256").update(bytes).digest();
const jcsDigest = (text) => "jcs-sha256-v1:" + sha256(Buffer.from(text, "utf8")).toString("hex");
const rawDigest = (bytes) => "sha256:" + sha256(bytes).toString("hex");

/** RFC 8785 for values that JSON.parse made. */
function canonical(value) {
  if (Array.isArray(value)) return "[" + value.map(canonical).join(",") + "]";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).filter((name) => value[name] !== undefined).sort();
  return "{" + names.map((name) => JSON.stringify(name) + ":" + canonical(value[name])).join(",") + "}";
}

/** The canonical form of a text, or the reason why there is none. */
function text(name, profile, input, refused) {
  if (refused) return { name, profile, input, refused };
  const output = canonical(JSON.parse(input));
  return { name, profile, input, canonical: output, digest: jcsDigest(output) };
}

function canonicalVectors() {
  const ok = (name, profile, input) => text(name, profile, input);
  const no = (name, profile, input, reason) => text(name, profile, input, reason);
  const bytes = (name, hex, refused) => ({ name, profile: "rfc8785", inputHex: hex, refused });
  const nested = (open, close, depth) => open.repeat(depth) + close.repeat(depth);
  const all = [];
  for (const number of [
    "1e21", "1e20", "0.000001", "1e-7", "-0", "295147905179352825856", "333333333.33333329", "4.50",
    "2e-3", "1E2", "5e-324", "999999999999999900000", "0", "-1", "1.0", "-0.0", "0e99999", "1e-400",
    "1.7976931348623157e308", "2.2250738585072014e-308", "9007199254740991", "-9007199254740991",
    "9007199254740992", "9007199254740993", "0.1", "1e23", "123456789012345678901234567890",
    "1.230e-5", "-1e-6", "1960362643280207.25", "5.684341886080801e-14", "100000000000000000000.5", "0.30000000000000004", "9.5367431640625e-7",
  ]) {
    all.push(ok("number " + number, "rfc8785", number));
  }
  for (const number of ["1.0", "1e2", "-0", "4.50", "1e20", "0.000001", "9007199254740991", "5e-324", "6.02214076e23", "0.30000000000000004"]) {
    all.push(ok("payload value keeps " + number, "value", number));
  }
  for (const number of ["9007199254740992", "9007199254740993", "-9007199254740992", "295147905179352825856",
    "333333333.33333329", "1e-400", "0.1000000000000000055511151231257827", "9007199254740993.0", "9007199254740993e0"]) {
    all.push(no("payload value would change " + number, "value", number, "would_change"));
  }
  for (const number of ["1e400", "-1e400"]) {
    for (const profile of ["value", "rfc8785"]) all.push(no(profile + " " + number, profile, number, "not_finite"));
  }
  for (const number of ["0", "1", "-1", "9007199254740991", "-9007199254740991"]) {
    all.push(ok("object integer " + number, "object", number));
  }
  for (const number of ["1.0", "1e2", "-0", "0.5", "1E400", "-0.0", "9007199254740993.0"]) {
    all.push(no("object number " + number, "object", number, "not_an_integer"));
  }
  for (const number of ["9007199254740992", "-9007199254740992", "18446744073709551616", "1" + "0".repeat(400)]) {
    all.push(no("object number " + number.slice(0, 30), "object", number, "too_large"));
  }
  all.push(
    ok("key order is by UTF-16 code unit", "rfc8785",
      '{"\u20ac":"euro","\\r":"cr","\ufb33":"dalet","1":"one","\u{1f600}":"smile","\u0080":"control","\u00f6":"o"}'),
    ok("key order of escaped names", "rfc8785", '{"\\ufb33":1,"\\ud83d\\ude00":2,"b":3,"a":4,"":5,"A":6,"aa":7,"a\\u0000":8}'),
    ok("only what must be escaped is", "rfc8785",
      JSON.stringify("\u2028\u2029<>&/\u007f\u0001\b\f\n\r\t\"\\\u001f\u00e9\u{1f600}\u0000")),
    ok("escapes that need not be", "rfc8785", '"\\u0041\\/\\u00e9\\ud83d\\ude00\\u2028\\u007f"'),
    ok("no normalisation", "rfc8785", '["e\u0301","\u00e9","\ufb01"]'),
    ok("noncharacters are text", "rfc8785", '"\uffff\ufdd0"'),
    ok("white space goes", "rfc8785", ' {\t"b" : [ 1 , 2 ,\r\n{ } ] , "a" : [ ] } \n'),
    ok("literals", "rfc8785", "[true,false,null]"),
    ok("empty string", "rfc8785", '""'),
    ok("empty name", "rfc8785", '{"":""}'),
    ok("depth 100", "rfc8785", nested("[", "]", 100)),
    ok("depth 100 of objects", "object", '{"a":'.repeat(99) + "{}" + "}".repeat(99)),
    ok("null in a payload value", "value", '{"a":null}'),
    no("null in an object", "object", '{"a":null}', "null"),
    no("depth 101", "rfc8785", nested("[", "]", 101), "too_deep"),
    no("depth 101 of objects", "object", '{"a":'.repeat(100) + "{}" + "}".repeat(100), "too_deep"),
    no("depth without an end", "value", "[".repeat(1000), "too_deep"),
    no("duplicate member", "rfc8785", '{"a":1,"a":1}', "duplicate"),
    no("duplicate member, deep", "value", '[{"x":{"a":1,"b":2,"a":3}}]', "duplicate"),
    no("duplicate member by escape", "object", '{"a":1,"\\u0061":1}', "duplicate"),
    no("lone high surrogate", "rfc8785", '"\\ud800"', "lone_surrogate"),
    no("lone low surrogate", "value", '"\\udc00"', "lone_surrogate"),
    no("lone surrogate in a name", "object", '{"\\ud83d":1}', "lone_surrogate"),
    no("surrogates in the wrong order", "rfc8785", '"\\ude00\\ud83d"', "lone_surrogate"),
    no("high surrogate before a letter", "rfc8785", '"\\ud800a"', "lone_surrogate"),
    no("high surrogate before another escape", "rfc8785", '"\\ud800\\n"', "lone_surrogate"),
    no("two high surrogates", "rfc8785", '"\\ud800\\ud800"', "lone_surrogate"),
    no("raw control character", "rfc8785", '"a\nb"', "control"),
    no("raw NUL", "rfc8785", '"\u0000"', "control"),
    ok("escaped NUL", "value", '{"x":"\\u0000"}'),
    no("byte order mark", "rfc8785", "\ufeff{}", "byte_order_mark"),
    no("something after the value", "rfc8785", "{} {}", "trailing"),
    no("a second number", "rfc8785", "1 2", "trailing"),
    no("nothing", "rfc8785", "", "end"),
    no("white space alone", "rfc8785", " \n", "end"),
    no("cut in an object", "rfc8785", '{"a":1', "end"),
    no("cut in a string", "rfc8785", '"abc', "end"),
    no("cut in an escape", "rfc8785", '"\\u12', "end"),
    no("cut in a word", "rfc8785", "tru", "end"),
    no("cut in a number", "rfc8785", "1.", "end"),
    no("trailing comma", "rfc8785", "[1,]", "syntax"),
    no("trailing comma in an object", "rfc8785", '{"a":1,}', "syntax"),
    no("single quotes", "rfc8785", "{'a':1}", "syntax"),
    no("comment", "rfc8785", "/* a */ 1", "syntax"),
    no("leading zero", "rfc8785", "01", "syntax"),
    no("leading plus", "rfc8785", "+1", "syntax"),
    no("leading point", "rfc8785", ".5", "syntax"),
    no("NaN", "rfc8785", "NaN", "syntax"),
    no("Infinity", "rfc8785", "-Infinity", "syntax"),
    no("hexadecimal", "rfc8785", "0x10", "trailing"),
    no("unknown escape", "rfc8785", '"\\x41"', "syntax"),
    no("bad hex digits", "rfc8785", '"\\u00g0"', "syntax"),
    no("other white space", "rfc8785", "\u00a01", "syntax"),
    no("vertical tab", "rfc8785", "\u000b1", "syntax"),
    bytes("invalid UTF-8", "22ff22", "not_utf8"),
    bytes("overlong UTF-8", "22c0a022", "not_utf8"),
    bytes("surrogate in UTF-8", "22eda08022", "not_utf8"),
    bytes("cut UTF-8", "22e282", "not_utf8"),
  );
  return all;
}

/** Doubles of every magnitude, by their bits (big-endian), from a fixed sequence. */
function doubleVectors() {
  const view = new DataView(new ArrayBuffer(8));
  let state = 1n;
  const next = () => (state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn);
  const all = [];
  const add = () => all.push({ bits: view.getBigUint64(0).toString(16).padStart(16, "0"), canonical: JSON.stringify(view.getFloat64(0)) });
  // Below a power of two doubles lie closer than above it, and the nearest short text may be wrong.
  for (let exponent = -60; exponent <= 130; exponent++) {
    view.setFloat64(0, 2 ** exponent);
    add();
  }
  while (all.length < 600) {
    // Half of them anywhere, half where text changes its layout or integers end.
    if (all.length % 2) view.setBigUint64(0, next() ^ (next() >> 32n));
    else view.setFloat64(0, Number(next() >> 20n) * 10 ** Number((next() >> 40n) % 40n - 30n));
    if (Number.isFinite(view.getFloat64(0))) add();
  }
  return all;
}

/** The canonical time (UTC, microseconds) of RFC 3339 text. The fraction is cut, not rounded. */
function time(input) {
  const [, head, fraction = "", zone] = /^(.{19})(?:\.(\d{1,9}))?(z|Z|[+-]\d\d:\d\d)$/.exec(input);
  const seconds = Date.parse(head.toUpperCase() + zone.toUpperCase()) / 1000;
  if (!Number.isSafeInteger(seconds)) throw new Error(input);
  const micros = fraction.slice(0, 6).padEnd(6, "0");
  const date = new Date(seconds * 1000).toISOString().slice(0, 19);
  return { canonical: `${date}.${micros}Z`, unixMicros: String(BigInt(seconds) * 1000000n + BigInt(micros)) };
}

function timestampVectors() {
  const ok = (input) => ({ input, ...time(input) });
  const no = (input, refused) => ({ input, refused });
  return [
    ...[
      "2026-01-01T00:00:00Z", "2026-01-31T09:30:00.5Z", "2026-01-01T00:00:00.123456789Z",
      "2026-01-01T00:00:00.999999999Z", "1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.000001Z",
      "2026-01-31t09:30:00z", "2026-01-31T09:30:00.000001+05:45", "2026-01-01T00:30:00+01:00",
      "2025-12-31T23:30:00-01:00", "2024-02-29T12:00:00Z", "2000-02-29T00:00:00Z", "0001-01-01T00:00:00Z",
      "9999-12-31T23:59:59.999999Z", "0000-12-31T23:30:00-00:30", "2026-03-29T02:30:00+01:00",
      "2026-06-30T23:59:59-00:00", "2026-01-01T00:00:00+23:59", "1582-10-10T00:00:00Z", "1900-02-28T23:59:59Z",
    ].map(ok),
    no("2016-12-31T23:59:60Z", "leap_second"),
    no("2016-12-31T15:59:60-08:00", "leap_second"),
    no("2026-06-30T12:00:60Z", "leap_second"),
    no("2026-01-01T12:00:00", "no_zone"),
    no("2026-01-01T12:00:00.5", "no_zone"),
    no("2026-03-08 02:30:00", "syntax"),
    no("2026-01-01 00:00:00Z", "syntax"),
    no("2026-01-01", "syntax"),
    no("2026-01-01T00:00Z", "syntax"),
    no("2026-01-01T00:00:00.Z", "syntax"),
    no("2026-01-01T00:00:00,5Z", "syntax"),
    no("2026-01-01T00:00:00+0100", "syntax"),
    no("2026-01-01T00:00:00+01", "syntax"),
    no("2026-01-01T00:00:00 Z", "syntax"),
    no("2026-1-01T00:00:00Z", "syntax"),
    no("+2026-01-01T00:00:00Z", "syntax"),
    no("12026-01-01T00:00:00Z", "syntax"),
    no("\u0662026-01-01T00:00:00Z", "syntax"),
    no("infinity", "syntax"),
    no("-infinity", "syntax"),
    no("now", "syntax"),
    no("", "syntax"),
    no("4713-01-01T00:00:00Z BC", "syntax"),
    no("1767225600", "syntax"),
    no("2026-01-01T00:00:00.1234567891Z", "fraction"),
    no("2026-02-29T00:00:00Z", "no_such_time"),
    no("1900-02-29T00:00:00Z", "no_such_time"),
    no("2026-13-01T00:00:00Z", "no_such_time"),
    no("2026-00-01T00:00:00Z", "no_such_time"),
    no("2026-04-31T00:00:00Z", "no_such_time"),
    no("2026-01-00T00:00:00Z", "no_such_time"),
    no("2026-01-01T24:00:00Z", "no_such_time"),
    no("2026-01-01T00:60:00Z", "no_such_time"),
    no("2026-01-01T00:00:61Z", "no_such_time"),
    no("2026-01-01T00:00:00+24:00", "no_such_time"),
    no("2026-01-01T00:00:00+01:60", "no_such_time"),
    no("0000-12-31T23:59:59Z", "out_of_range"),
    no("0001-01-01T00:00:00+00:01", "out_of_range"),
    no("9999-12-31T23:59:59.999999-00:01", "out_of_range"),
  ];
}

const keyHash = (key) => sha256(Buffer.from(key, "utf8")).readBigUInt64BE(0) & 0x7fffffffffffffffn;

function keyVectors() {
  return ["", "a", "order/o-1", "\u00e9", "e\u0301", "\u{1f600}", " ", "tenant-7.order.o-42", "\u2028", "0", "x".repeat(511)].map((partitionKey) => {
    const hash = keyHash(partitionKey);
    const lane = (lanes) => ({ lanes, lane: Number(hash % BigInt(lanes)) });
    return { partitionKey, keyHash: String(hash), lanes: [1, 2, 3, 16, 64, 1000, 1024].map(lane) };
  });
}

const SET = { version: "7", digest: jcsDigest("{}") };

/** The envelope that an append of `event` makes. Names are those of the SQL function. */
function envelope(event) {
  const payload = Buffer.from(event.payload_base64, "base64");
  return canonical({
    schema: "postrider.envelope/1",
    eventId: event.event_id.toLowerCase(),
    generation: 1,
    tenant: event.tenant ?? "default",
    aggregate: {
      type: event.aggregate_type,
      id: event.aggregate_id,
      version: event.aggregate_version === undefined ? undefined : Number(event.aggregate_version),
    },
    eventType: event.event_type,
    schemaVersion: event.schema_version,
    payload: {
      contentType: event.content_type ?? "application/json",
      schemaDigest: event.schema_digest,
      digest: rawDigest(payload),
      length: payload.length,
    },
    partitionKey: event.partition_key ?? `${event.aggregate_type}/${event.aggregate_id}`,
    actor: event.actor,
    requestId: event.request_id,
    correlationId: event.correlation_id,
    causationId: event.causation_id,
    operationId: event.operation_id,
    occurredAt: time(event.occurred_at).canonical,
    deliverySet: { version: Number(event.delivery_set_version), digest: event.delivery_set_digest },
  });
}

const ID = "01890a5d-ac96-774b-bcce-b302099a8057";
const TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

function event(changes) {
  const { payload = "{}", ...rest } = changes;
  return {
    event_id: ID,
    event_type: "order.placed",
    schema_version: "1",
    aggregate_type: "order",
    aggregate_id: "o-1",
    payload_base64: Buffer.from(payload, typeof payload === "string" ? "utf8" : undefined).toString("base64"),
    occurred_at: "2026-01-31T09:30:00.5Z",
    delivery_set_version: SET.version,
    delivery_set_digest: SET.digest,
    ...rest,
  };
}

function envelopeVectors() {
  const ok = (name, changes) => {
    const input = event(changes);
    const output = envelope(input);
    return {
      name,
      input,
      canonical: output,
      envelopeDigest: jcsDigest(output),
      payloadDigest: rawDigest(Buffer.from(input.payload_base64, "base64")),
      keyHash: String(keyHash(JSON.parse(output).partitionKey)),
    };
  };
  /** `refused` is the field that the error must name. */
  const no = (name, changes, refused) => ({ name, input: event(changes), refused });
  const full = {
    tenant: "t",
    aggregate_version: "42",
    content_type: "application/json; charset=utf-8",
    partition_key: "k",
    actor: "a",
    request_id: "r",
    correlation_id: "c",
    causation_id: "u",
    operation_id: "p",
    schema_digest: jcsDigest('{"type":"object"}'),
    traceparent: TRACE,
    tracestate: "a=1,b@c=2",
    headers: [["x-b", "2"], ["x-a", "1"]],
  };
  const all = [ok("nothing optional", {}), ok("everything", full)];
  for (const field of Object.keys(full)) all.push(ok("only " + field, field === "tracestate" ? { traceparent: TRACE, tracestate: full.tracestate } : { [field]: full[field] }));
  for (const field of Object.keys(full)) {
    const { [field]: _, ...rest } = full;
    if (field === "traceparent") delete rest.tracestate;
    all.push(ok("everything but " + field, rest));
  }
  const texts = {
    "non-ASCII": "m\u00fcller s\u00f6hne \u4e2d\u6587",
    "decomposed": "e\u0301",
    "emoji": "\u{1f600}\u{1f469}\u200d\u{1f4bb}",
    "quotes and backslashes": "\"a\\b\\\"c\\\\'",
    "line separators": "a\u2028b\u2029c",
    "markup": "</script><!-- & -->",
    "a space alone": " ",
    "right to left": "\u05e9\u05dc\u05d5\u05dd\u202e",
    "last characters": "\ud7ff\ue000\uffff\u{10ffff}",
    "JSON": "{\"a\":null}",
    "format characters": "%s $1 {0} :x ?",
  };
  for (const [name, value] of Object.entries(texts)) {
    all.push(ok("text everywhere: " + name, {
      tenant: value, aggregate_type: value, aggregate_id: value, partition_key: value, actor: value,
      request_id: value, correlation_id: value, causation_id: value, operation_id: value,
      headers: [["x-text", value]],
    }));
    all.push(ok("default partition key: " + name, { aggregate_type: value, aggregate_id: value }));
  }
  all.push(
    ok("empty partition key", { partition_key: "" }),
    ok("aggregate version 0", { aggregate_version: "0" }),
    ok("aggregate version 2^53 - 1", { aggregate_version: "9007199254740991" }),
    ok("upper-case event id", { event_id: ID.toUpperCase() }),
    ok("event id that is not a UUIDv7", { event_id: "00000000-0000-0000-0000-000000000001" }),
    no("nil event id", { event_id: "00000000-0000-0000-0000-000000000000" }, "eventId"),
    ok("time with an offset", { occurred_at: "2026-01-31t09:30:00.123456789+05:45" }),
    ok("time before 1970", { occurred_at: "1969-12-31T23:59:59.999999Z" }),
    ok("first time", { occurred_at: "0001-01-01T00:00:00Z" }),
    ok("last time", { occurred_at: "9999-12-31T23:59:59.999999Z" }),
    ok("names at their limits", { event_type: "t".repeat(100), schema_version: "v".repeat(64) }),
    ok("names with all their characters", { event_type: "run.created@2.0:a/b_c-D9", schema_version: "2.0-rc.1" }),
    ok("identifiers at their limits", { aggregate_type: "t".repeat(255), aggregate_id: "\u00e9".repeat(127) + "x", tenant: "n".repeat(255) }),
    ok("partition key at its limit", { partition_key: "k".repeat(511) }),
    ok("payload bytes are kept", { payload: '{"b":1,"a":1.0,"aa":1e2,"z":-0, "big":9007199254740993,  "e":1.230e-5}' }),
    ok("payload with an escaped NUL", { payload: '{"x":"\\u0000"}' }),
    ok("payload with a duplicate member", { payload: '{"a":1,"a":2}' }),
    ok("payload with a lone surrogate", { payload: '"\\ud800"' }),
    ok("payload with a number past every double", { payload: "[1e400,123456789012345678901234567890]" }),
    ok("payload null is four bytes", { payload: "null" }),
    ok("payload with white space around", { payload: " \n1\t" }),
    ok("payload 100 deep", { payload: "[".repeat(100) + "]".repeat(100) }),
    ok("payload with brackets in strings", { payload: JSON.stringify(["[".repeat(200), "\\\"[{".repeat(100)]) }),
    ok("payload of any bytes", { payload: [0, 255, 34, 10], content_type: "application/octet-stream" }),
    ok("empty payload", { payload: "", content_type: "text/plain" }),
    ok("payload that only looks like JSON", { payload: "{", content_type: "application/vnd.x+json" }),
    ok("tombstone", { payload: "", content_type: "application/vnd.postrider.tombstone" }),
    ok("content type in capitals", { content_type: "Application/JSON ;a=b" }),
    ok("headers with empty and odd values", { headers: [["x-empty", ""], ["!#$%&'*+-.^_`|~0", " %0A \u00e9"]] }),
    ok("trace context of a later version", { traceparent: "cc" + TRACE.slice(2) + "-what-the-future-brings" }),
  );
  const control = { NUL: "\u0000", CR: "\r", LF: "\n", tab: "\t", ESC: "\u001b", DEL: "\u007f", NEL: "\u0085", "the last C1": "\u009f" };
  const fields = {
    event_type: "eventType", schema_version: "schemaVersion", aggregate_type: "aggregate.type",
    aggregate_id: "aggregate.id", tenant: "tenant", partition_key: "partitionKey", actor: "actor",
    request_id: "requestId", correlation_id: "correlationId", causation_id: "causationId",
    operation_id: "operationId", content_type: "payload.contentType",
  };
  for (const [name, c] of Object.entries(control)) all.push(no(`${name} in an aggregate id`, { aggregate_id: `a${c}b` }, "aggregate.id"));
  for (const [field, refused] of Object.entries(fields)) {
    all.push(no(`NUL in ${field}`, { [field]: "a\u0000" }, refused));
    all.push(no(`line break in ${field}`, { [field]: "a\r\nX-Evil: 1" }, refused));
    if (field !== "partition_key") all.push(no(`empty ${field}`, { [field]: "" }, refused));
    const max = { event_type: 100, schema_version: 64, partition_key: 511 }[field] ?? 255;
    all.push(no(`${field} past its limit`, { [field]: "x".repeat(max + 1) }, refused));
  }
  all.push(
    no("aggregate id past its limit in bytes", { aggregate_id: "\u00e9".repeat(128) }, "aggregate.id"),
    no("space in an event type", { event_type: "order placed" }, "eventType"),
    no("non-ASCII event type", { event_type: "\u00e9" }, "eventType"),
    no("wildcard in a schema version", { schema_version: "*" }, "schemaVersion"),
    no("aggregate version 2^53", { aggregate_version: "9007199254740992" }, "aggregate.version"),
    no("content type without a slash", { content_type: "json" }, "payload.contentType"),
    no("content type with two slashes", { content_type: "a/b/c" }, "payload.contentType"),
    no("content type that ends in a semicolon", { content_type: "a/b;" }, "payload.contentType"),
    no("content type that ends in a space", { content_type: "a/b " }, "payload.contentType"),
    no("non-ASCII content type", { content_type: "a/b; c=\u00e9" }, "payload.contentType"),
    no("payload that is not JSON", { payload: "{" }, "payload"),
    no("payload that is not JSON, content type in capitals", { payload: "{", content_type: "APPLICATION/JSON ;a=b" }, "payload"),
    no("empty JSON payload", { payload: "" }, "payload"),
    no("two JSON values", { payload: "1 2" }, "payload"),
    no("JSON payload with a byte order mark", { payload: "\ufeff{}" }, "payload"),
    no("JSON payload that is not UTF-8", { payload: [34, 255, 34] }, "payload"),
    no("JSON payload with a raw control character", { payload: '"\n"' }, "payload"),
    no("JSON payload with a raw NUL", { payload: '"\u0000"' }, "payload"),
    no("JSON payload 101 deep", { payload: "[".repeat(101) + "]".repeat(101) }, "payload"),
    no("tombstone with a payload", { payload: "x", content_type: "application/vnd.postrider.tombstone" }, "payload"),
    no("tombstone without a key", { payload: "", content_type: "application/vnd.postrider.tombstone", partition_key: "" }, "partitionKey"),
    no("traceparent in capitals", { traceparent: TRACE.toUpperCase() }, "traceparent"),
    no("traceparent of zeros", { traceparent: "00-" + "0".repeat(32) + "-00f067aa0ba902b7-01" }, "traceparent"),
    no("traceparent of version ff", { traceparent: "ff" + TRACE.slice(2) }, "traceparent"),
    no("traceparent of version 00 that goes on", { traceparent: TRACE + "-x" }, "traceparent"),
    no("tracestate alone", { tracestate: "a=1" }, "tracestate"),
    no("tracestate without a value", { traceparent: TRACE, tracestate: "a" }, "tracestate"),
    no("tracestate with 33 members", { traceparent: TRACE, tracestate: Array.from({ length: 33 }, (_, i) => `k${i}=1`).join(",") }, "tracestate"),
    no("header name in capitals", { headers: [["X-Note", "1"]] }, "headers"),
    no("header name with a space", { headers: [["x note", "1"]] }, "headers"),
    no("empty header name", { headers: [["", "1"]] }, "headers"),
    no("header name past its limit", { headers: [["x".repeat(101), "1"]] }, "headers"),
    no("header twice", { headers: [["x-a", "1"], ["x-a", "2"]] }, "headers"),
    no("header value with a line break", { headers: [["x-a", "a\r\nX-Evil: 1"]] }, "headers"),
    no("header value with NUL", { headers: [["x-a", "\u0000"]] }, "headers"),
    no("33 headers", { headers: Array.from({ length: 33 }, (_, i) => [`x-${i}`, ""]) }, "headers"),
    no("headers past 8 KiB", { headers: [["x-a", "v".repeat(8190)]] }, "headers"),
    ...["ce-id", "ce_id", "cloudevents_id", "nats-msg-id", "postrider-event-id", "webhook-id", "proxy-x", "sec-x",
      "x-forwarded-for", "authorization", "cookie", "content-type", "content-length", "host", "traceparent",
      "idempotency-key", "connection", "transfer-encoding"]
      .map((name) => no("reserved header " + name, { headers: [[name, "1"]] }, "headers")),
  );
  return all;
}

const DESTINATION = {
  schema: "postrider.destination/1", name: "orders", generation: 1, kind: "jetstream", cluster: "eu-1",
  target: "orders.{event_type}", container: "ORDERS", key: "partition-key", partitioner: "none",
  serializer: "cloudevents-binary", durability: "stored", receiptType: "jetstream.ack/1", ordering: "key",
  lanes: 64, onUnknown: "resend", onQuarantine: "hold", maxAttempts: 20, maxPayloadBytes: 1048576,
};

/** A canonical object given as any JSON text; `refused` is a part that the error must name. */
function objectVector(name, value, refused) {
  const input = typeof value === "string" ? value : JSON.stringify(value, null, refused ? 0 : 1);
  if (refused) return { name, input, refused };
  const output = canonical(JSON.parse(input));
  return { name, input, canonical: output, digest: jcsDigest(output) };
}

function destinationVectors() {
  const ok = (name, changes) => objectVector(name, { ...DESTINATION, ...changes });
  const no = (name, changes, refused) => objectVector(name, { ...DESTINATION, ...changes }, refused);
  const raw = (from, to) => JSON.stringify(DESTINATION).replace(from, to);
  return [
    ok("everything", {}),
    ok("nothing optional", { container: undefined, maxAttempts: undefined, maxPayloadBytes: undefined }),
    ok("webhook", { kind: "http", target: "/hooks/\u00e9?a=1&b=\"2\"", container: undefined, cluster: "partner", key: "none",
      serializer: "cloudevents-structured", receiptType: "http.response/1", ordering: "none", onUnknown: "hold", onQuarantine: "pass" }),
    ok("file", { kind: "file", target: "out/events.jsonl", container: undefined, serializer: "raw", durability: "synced",
      receiptType: "file.append/1", ordering: "strict", lanes: 1, onUnknown: "probe" }),
    ok("log", { kind: "kafka", target: "orders", container: undefined, partitioner: "murmur2", durability: "replicated", receiptType: "kafka.offset/1", lanes: 1024 }),
    ok("largest numbers", { generation: 9007199254740991, maxPayloadBytes: 9007199254740991, maxAttempts: 4294967295 }),
    no("unknown member", { extra: 1 }, "extra"),
    no("missing member", { lanes: undefined }, "lanes"),
    no("unknown word", { onUnknown: "skip" }, "skip"),
    no("other schema", { schema: "postrider.destination/2" }, "postrider.destination/2"),
    no("no lanes", { lanes: 0 }, "lanes"),
    no("too many lanes", { lanes: 1025 }, "lanes"),
    no("no attempts", { maxAttempts: 0 }, "maxAttempts"),
    no("generation 0", { generation: 0 }, "generation"),
    no("empty target", { target: "" }, "target"),
    no("line break in the cluster", { cluster: "a\r\nb" }, "cluster"),
    no("space in the name", { name: "a b" }, "name"),
    no("null", { container: null }, "null"),
    objectVector("generation past 2^53 - 1", raw('"generation":1', '"generation":9007199254740992'), "2^53 - 1"),
    objectVector("integer with a fraction", raw('"lanes":64', '"lanes":64.0'), "64.0"),
    objectVector("integer with an exponent", raw('"lanes":64', '"lanes":6.4e1'), "6.4e1"),
    objectVector("duplicate member", raw('"lanes":64', '"lanes":64,"lanes":64'), "lanes"),
    objectVector("lone surrogate", raw('"eu-1"', '"\\ud800"'), "surrogate"),
  ];
}

function pair(eventType) {
  return { eventType, schemaVersion: eventType.slice(eventType.lastIndexOf("@") + 1) };
}

// The set that seeds the product: thirteen exact pairs, fourteen members, four consumers.
const CORE = ["core_operations", "operations_projector", "OperationsProjectionAppliedReceipt"];
const COORDINATOR = ["billing_finalization_coordinator", "billing_finalization_coordinator_consumer", "BillingFinalizationCoordinatorConsumerReceipt"];
const METERING = ["metering_input_processor", "metering_input_processor_consumer", "MeteringInputProcessorConsumerReceipt"];
const CATCH_UP = ["billing_settlement_catch_up", "billing_settlement_catch_up_consumer", "BillingSettlementCatchUpConsumerReceipt"];
const ROUTES = [
  ["run.created@2.0", CORE],
  ["wallet.reserved@2.0", CORE],
  ["billing.finalization.committed@1", CORE],
  ["billing.settlement-transition.committed@1", CORE],
  ["billing.late-settlement-exposure.case-requested@1", CORE],
  ["billing.case-resolution.applied@1", CORE],
  ["billing.late-settlement-command-result.committed@1", CORE],
  ["execution.attempt-eligibility.finalized@1", METERING],
  ["execution.run-finalization.closed@1", COORDINATOR],
  ["billing.finalization-reconciliation.case-requested@1", CORE],
  ["billing.finalization-reconciliation-resolution.applied@1", COORDINATOR, CORE],
  ["gateway.evidence-availability.current-changed@1", METERING],
  ["metering.settlement-input.current-changed@1", CATCH_UP],
];

function seedSet() {
  const compare = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));
  const by = (...names) => (a, b) => names.map((name) => compare(a[name], b[name])).find((order) => order !== 0) ?? 0;
  const applicableEvents = ROUTES.map(([type]) => pair(type)).sort(by("eventType", "schemaVersion"));
  const members = ROUTES.flatMap(([type, ...to]) => to.map(([destination, consumer, receipt]) => ({
    ...pair(type),
    destination,
    destinationDigest: jcsDigest(canonical({ name: destination })),
    consumer,
    expectedReceiptType: receipt,
    expectedReceiptSchemaVersion: "1",
    projectionTarget: destination === "core_operations"
      ? { state: "required", projectionName: "operations", projectionVersion: "1" }
      : { state: "not_applicable" },
    mandatory: true,
  }))).sort(by("eventType", "schemaVersion", "destination", "consumer"));
  return {
    schema: "postrider.delivery-set/1", version: 1,
    applicableEventCount: applicableEvents.length, applicableEvents,
    memberCount: members.length, members,
  };
}

function deliverySetVectors() {
  const seed = seedSet();
  if (seed.applicableEventCount !== 13 || seed.memberCount !== 14) throw new Error("the seed set is wrong");
  const changed = (change) => {
    const set = structuredClone(seed);
    change(set);
    return set;
  };
  const ok = (name, change) => objectVector(name, changed(change));
  const no = (name, change, refused) => objectVector(name, changed(change), refused);
  const core = seed.members.findIndex((member) => member.destination === "core_operations");
  const other = seed.members.findIndex((member) => member.destination !== "core_operations");
  const both = seed.members.findIndex((member, i) => i > 0 && member.eventType === seed.members[i - 1].eventType);
  return [
    ok("thirteen pairs, fourteen members", () => {}),
    ok("no members", (set) => { set.members = []; set.memberCount = 0; }),
    ok("nothing at all", (set) => { Object.assign(set, { members: [], memberCount: 0, applicableEvents: [], applicableEventCount: 0 }); }),
    ok("optional member", (set) => { set.members[0].mandatory = false; }),
    ok("another projection version is another set", (set) => { for (const m of set.members) if (m.projectionTarget.state === "required") m.projectionTarget.projectionVersion = "2"; }),
    ok("versions sort as text", (set) => {
      set.applicableEvents = ["1", "10", "2"].map((schemaVersion) => ({ eventType: "a", schemaVersion }));
      Object.assign(set, { applicableEventCount: 3, members: [], memberCount: 0 });
    }),
    no("wrong event count", (set) => { set.applicableEventCount = 12; }, "applicableEventCount"),
    no("wrong member count", (set) => { set.memberCount = 15; }, "memberCount"),
    no("events out of order", (set) => { set.applicableEvents.reverse(); }, "applicableEvents[1]"),
    no("members out of order", (set) => { set.members.reverse(); }, "members[1]"),
    no("event twice", (set) => { set.applicableEvents.unshift(set.applicableEvents[0]); set.applicableEventCount += 1; }, "applicableEvents[1]"),
    no("member twice", (set) => { set.members.unshift(set.members[0]); set.memberCount += 1; }, "members[1]"),
    no("member without its event", (set) => { set.applicableEvents.shift(); set.applicableEventCount -= 1; }, "members[0].eventType"),
    no("wildcard", (set) => { set.applicableEvents[0].eventType = "billing.*"; }, "applicableEvents[0].eventType"),
    no("alias of a version", (set) => { set.applicableEvents[12].schemaVersion = "2"; }, "members[13].eventType"),
    no("second consumer of one destination", (set) => { set.members[both].destination = set.members[both - 1].destination; set.members[both].destinationDigest = set.members[both - 1].destinationDigest; }, `members[${both}].consumer`),
    no("destination with two digests", (set) => { set.members[core].destinationDigest = jcsDigest("{}"); }, "destinationDigest"),
    no("digest of raw bytes", (set) => { set.members[0].destinationDigest = rawDigest(""); }, "members[0].destinationDigest"),
    no("digest without its algorithm", (set) => { set.members[0].destinationDigest = set.members[0].destinationDigest.slice(14); }, "is not a digest"),
    no("projection with another's receipt", (set) => { set.members[core].expectedReceiptType = METERING[2]; }, "projectionTarget"),
    no("receipt of a projection without one", (set) => { set.members[other].expectedReceiptType = CORE[2]; }, "projectionTarget"),
    no("projection proved by a broker", (set) => { set.members[core].expectedReceiptType = "kafka.offset/1"; }, `members[${core}].projectionTarget`),
    no("not applicable with a name", (set) => { set.members[other].projectionTarget.projectionName = "x"; }, "projectionName"),
    no("required without a name", (set) => { delete set.members[core].projectionTarget.projectionName; }, "projectionName"),
    no("unknown projection state", (set) => { set.members[0].projectionTarget = { state: "latest" }; }, "latest"),
    no("unknown member of a member", (set) => { set.members[0].note = "x"; }, "note"),
    no("version 0", (set) => { set.version = 0; }, "version"),
  ];
}

function receiptVectors() {
  const digest = jcsDigest("{}");
  const ok = (value, number) => {
    const { [number]: _, ...shared } = value;
    return {
      ...objectVector(value.type, value),
      packed: { shared: canonical(shared), number: number === undefined ? null : String(value[number]) },
    };
  };
  const no = (name, value, refused) => objectVector(name, value, refused);
  return [
    ok({ type: "jetstream.ack/1", stream: "ORDERS", sequence: 9007199254740991, domain: "hub", duplicate: true }, "sequence"),
    ok({ type: "jetstream.ack/1", stream: "ORDERS", sequence: 1, duplicate: false }, "sequence"),
    ok({ type: "http.response/1", status: 204, bodyDigest: rawDigest("") }),
    ok({ type: "http.response/1", status: 200 }),
    ok({ type: "file.append/1", file: "out/\u00e9.jsonl", offset: 0, duplicate: false }, "offset"),
    ok({ type: "handler.result/1", handler: "mailer", sequence: 3 }, "sequence"),
    ok({ type: "kafka.offset/1", cluster: "c", topic: "t", partition: 2147483647, offset: 12 }, "offset"),
    ok({ type: "amqp.confirm/1", exchange: "", routingKey: "", deliveryTag: 9 }, "deliveryTag"),
    ok({ type: "redis.entry/1", key: "k", entryId: "1700000000000-0" }),
    ok({ type: "sqs.message/1", queue: "https://example.com/q", messageId: "m" }),
    ok({ type: "consumer.receipt/1", consumer: "operations_projector", receiptType: "OperationsProjectionAppliedReceipt",
      receiptSchemaVersion: "1", receiptDigest: digest, committedAt: "2026-01-31T09:30:00.500000Z" }),
    no("unknown type", { type: "pigeon/1" }, "pigeon/1"),
    no("unknown member", { type: "http.response/1", status: 200, body: "x" }, "body"),
    no("redirect", { type: "http.response/1", status: 302 }, "status"),
    no("offset of -1", { type: "kafka.offset/1", cluster: "c", topic: "t", partition: 0, offset: -1 }, "-1"),
    no("sequence past 2^53 - 1", '{"type":"jetstream.ack/1","stream":"S","sequence":9007199254740992,"duplicate":false}', "2^53 - 1"),
    no("time in another spelling", { type: "consumer.receipt/1", consumer: "c", receiptType: "r", receiptSchemaVersion: "1",
      receiptDigest: digest, committedAt: "2026-01-31T09:30:00.5Z" }, "2026-01-31T09:30:00.500000Z"),
    no("digest in capitals", { type: "consumer.receipt/1", consumer: "c", receiptType: "r", receiptSchemaVersion: "1",
      receiptDigest: digest.toUpperCase(), committedAt: "2026-01-31T09:30:00.500000Z" }, "is not a digest"),
  ];
}

/** Percent-encoding of the CloudEvents HTTP and NATS bindings. */
function encodeHeader(value) {
  return Array.from(value, (c) => (/^[!#$&-~]$/.test(c) ? c : Array.from(Buffer.from(c, "utf8"), (b) => "%" + b.toString(16).toUpperCase().padStart(2, "0")).join(""))).join("");
}

function headerVectors() {
  const round = ["", "a b", "100%", "a%20b", "\"", "\"quoted\"", "\u00e9", "\u{1f600}", "Euro \u20ac \u{1f600}", "a~!#$&'()*+,-./:;<=>?@[\\]^_`{|}", " a ", "\u2028", "%zz"];
  return [
    ...round.map((value) => ({ decoded: value, encoded: encodeHeader(value) })),
    ...[
      ["a%20b", "a b"], ["%41", "A"], ["%c3%a9", "\u00e9"], ["%2541", "%41"], ["%zz", "%zz"], ["%4", "%4"], ["%", "%"], ["100%", "100%"],
      ["\"quoted\"", "quoted"], ["\"a \\\"b\\\" \\\\\"", "a \"b\" \\"], ["\"a%20b\"", "a b"], ["\"", "\""], ["\"a\"b\"", "\"a\"b\""], ["a b", "a b"], ["\u00e9", "\u00e9"],
    ].map(([received, decoded]) => ({ received, decoded })),
    ...["%ff", "%C0%A0", "%ED%A0%80", "%C3", "a%FFb"].map((received) => ({ received, refused: "not_utf8" })),
  ];
}

function cloudeventVectors() {
  const unreserved = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());
  return [
    ["nothing optional", event({})],
    ["everything, hard text", event({
      tenant: "m\u00fcller/s\u00f6hne!", aggregate_type: "kunden auftrag", aggregate_id: "a \"b\" 100% \u00e9\u{1f600}", aggregate_version: "9007199254740991",
      partition_key: "key\u2028", actor: "anna", request_id: "r 1", correlation_id: "c%20", causation_id: "\\", operation_id: "op",
      schema_digest: jcsDigest('{"type":"object"}'), traceparent: TRACE, tracestate: "a=1,b=2", payload: '{ "n":1.0 }',
    })],
    ["no key, no JSON", event({ partition_key: "", payload: [0, 255], content_type: "application/octet-stream" })],
    ["white space before JSON", event({ payload: " 1" })],
    ["white space after JSON", event({ payload: "1\n" })],
    ["tombstone", event({ payload: "", content_type: "application/vnd.postrider.tombstone" })],
  ].map(([name, input]) => {
    const text = envelope(input);
    const e = JSON.parse(text);
    const destinationDigest = jcsDigest(canonical(DESTINATION));
    const attributes = {
      specversion: "1.0",
      id: e.eventId,
      source: `/${unreserved(e.tenant)}/${unreserved(e.aggregate.type)}`,
      type: e.eventType,
      subject: e.aggregate.id,
      time: e.occurredAt,
      datacontenttype: e.payload.contentType,
      dataschema: e.payload.schemaDigest && "urn:postrider:schema:" + e.payload.schemaDigest,
      partitionkey: e.partitionKey || undefined,
      traceparent: input.traceparent,
      tracestate: input.tracestate,
      tenant: e.tenant,
      aggregatetype: e.aggregate.type,
      aggregateversion: e.aggregate.version?.toString(),
      schemaversion: e.schemaVersion,
      generation: e.generation.toString(),
      actor: e.actor,
      requestid: e.requestId,
      correlationid: e.correlationId,
      causationid: e.causationId,
      operationid: e.operationId,
      deliverysetversion: e.deliverySet.version.toString(),
      deliverysetdigest: e.deliverySet.digest,
      payloaddigest: e.payload.digest,
      envelopedigest: jcsDigest(text),
      destinationdigest: destinationDigest,
    };
    for (const key of Object.keys(attributes)) if (attributes[key] === undefined) delete attributes[key];
    const payload = Buffer.from(input.payload_base64, "base64");
    const bare = payload.toString("utf8");
    const embeds = attributes.datacontenttype === "application/json" && bare.trim() === bare;
    return { name, input, destinationDigest, attributes, structured: embeds ? { data: bare } : { data_base64: input.payload_base64 } };
  });
}

const files = {
  "canonical.json": canonicalVectors(),
  "doubles.json": doubleVectors(),
  "timestamps.json": timestampVectors(),
  "keys.json": keyVectors(),
  "envelopes.json": envelopeVectors(),
  "destinations.json": destinationVectors(),
  "delivery-sets.json": deliverySetVectors(),
  "receipts.json": receiptVectors(),
  "headers.json": headerVectors(),
  "cloudevents.json": cloudeventVectors(),
};

let differs = 0;
for (const [name, vectors] of Object.entries(files)) {
  const path = new URL(name, import.meta.url);
  // ASCII only, so that no editor or transfer can change what a vector says.
  const made = JSON.stringify(vectors, null, 1).replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")) + "\n";
  if (process.argv.includes("--check")) {
    let found = "";
    try { found = readFileSync(path, "utf8"); } catch { /* reported below */ }
    if (found !== made) {
      differs += 1;
      console.error(`${name} is not what generate.mjs makes; run it without --check`);
    }
  } else {
    writeFileSync(path, made);
    console.error(`${name}: ${vectors.length} vectors`);
  }
}
process.exit(differs ? 1 : 0);
