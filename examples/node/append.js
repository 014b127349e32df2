// Appends events in transactions of its own, with node-postgres (`pg`).
//
//     node append.js postgresql://user@host/database
//
// The database has the outbox (`postrider migrate`, `postrider apply`) with the event type
// `order.placed` version `1`. Prints one JSON object that says what happened.

"use strict";

const { randomUUID } = require("node:crypto");
const { Client } = require("pg");

const APPEND = `
  select event_id, position, already
  from postrider.append(
    event_type => 'order.placed',
    aggregate_type => 'order',
    aggregate_id => $1,
    payload => $2::text,
    event_id => $3
  )`;

// The bytes that consumers get: stored and sent exactly as they are here.
function orderPayload(order, total) {
  return JSON.stringify({ id: order, total });
}

async function append(client, order, payload, eventId) {
  const { rows } = await client.query(APPEND, [order, payload, eventId]);
  return rows[0];
}

// Changes the business data and says so. Both commit, or neither does.
async function place(client, order, total, eventId) {
  await client.query("insert into orders (id, total) values ($1, $2)", [order, total]);
  return append(client, order, orderPayload(order, total), eventId);
}

class Rollback extends Error {}

async function transaction(client, work) {
  await client.query("begin");
  try {
    await work();
    await client.query("commit");
  } catch (error) {
    await client.query("rollback");
    if (!(error instanceof Rollback)) throw error;
  }
}

// The error that a transaction ends with, as an application would log it.
async function expectedError(client, work) {
  try {
    await transaction(client, work);
  } catch (error) {
    // A class of its own: PR and a number. The detail says what it means, the hint what to do.
    return {
      sqlstate: error.code,
      message: error.message,
      detail: error.detail,
      hint: error.hint,
    };
  }
  return {};
}

async function main(url) {
  const report = {};
  const eventId = randomUUID();
  const client = new Client({ connectionString: url });
  await client.connect();

  await transaction(client, async () => {
    report.committed = await place(client, "js-1", 10, eventId);
  });

  await transaction(client, async () => {
    report.rolled_back = await place(client, "js-2", 20, randomUUID());
    throw new Rollback();
  });

  // A retry after "did my commit arrive?": the same event again changes nothing.
  await transaction(client, async () => {
    report.again = await append(client, "js-1", orderPayload("js-1", 10), eventId);
  });

  report.conflict = await expectedError(client, () =>
    append(client, "js-1", orderPayload("js-1", 11), eventId),
  );

  report.unknown_type = await expectedError(client, () =>
    client.query("select postrider.append('order.eaten', '{}', 'order', 'js-1', '1')"),
  );

  report.time_without_zone = await expectedError(client, () =>
    client.query(
      `select postrider.append('order.placed', '{"id":"js-3"}', 'order', 'js-3',
         occurred_at => '2026-01-01T12:00:00')`,
    ),
  );

  // A NUL that JSON escapes is the payload's own business, and stays as it is.
  await transaction(client, async () => {
    report.nul_in_payload = await append(client, "js-4", '{"id":"js-4\\u0000"}', randomUUID());
  });

  // Text of the envelope cannot hold it; Postgres itself refuses such text.
  const refused = await expectedError(client, () =>
    append(client, "js\0-5", orderPayload("js-5", 1), randomUUID()),
  );
  report.nul_in_text = refused.message;

  // Many events in one round trip: arrays in parallel, all or nothing, in order.
  await transaction(client, async () => {
    const orders = [0, 1, 2].map((index) => `js-batch-${index}`);
    const { rows } = await client.query(
      `select event_id, position, already from postrider.append_batch(
         event_types => $1, payloads => $2::bytea[], aggregate_types => $3, aggregate_ids => $4)`,
      [
        orders.map(() => "order.placed"),
        orders.map((order) => Buffer.from(orderPayload(order, 1))),
        orders.map(() => "order"),
        orders,
      ],
    );
    report.batch = rows;
  });

  await client.end();
  return report;
}

main(process.argv[2]).then(
  (report) => process.stdout.write(JSON.stringify(report)),
  (error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  },
);
